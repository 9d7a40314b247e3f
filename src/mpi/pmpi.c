/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi/pmpi.h>

#include <mpi/symbols.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>


ucx_mp_mpi_pmpi_t ucx_mp_mpi_pmpi;
bool ucx_mp_mpi_pmpi_found;
ucx_mp_mpi_tools_t ucx_mp_mpi_tools;
int ucx_mp_mpi_tools_state = UCX_MP_MPI_TOOLS_UNKNOWN;
#ifndef OPEN_MPI
__thread ucx_mp_mpi_handled_t ucx_mp_mpi_handled
        __attribute__((tls_model("initial-exec")));
#endif

static void *real_handle; /* MPI library, for dlsym() */


/* Return a profiling tool's MPI_ function, or NULL if no tool has one. `real`
   is the MPI's PMPI_ function: an MPI has both names of a call in one library,
   so an MPI_ function beside it is the MPI's. */
static void *tools_symbol(void *handle, const char *name, void *real)
{
    void *symbol = ucx_mp_mpi_others_symbol(handle, name);

    return ((symbol == NULL) || (symbol == real) ||
            ucx_mp_mpi_in_one_object(symbol, real)) ?
                   NULL :
                   symbol;
}

/* Return whether this library was built for another MPI than the process uses.
   Some wrapped functions are then missing in the MPI. */
static bool is_foreign(void)
{
    typedef int version_func_t(int *major, int *minor);
    version_func_t *get_version = dlsym(real_handle, "PMPI_Abi_get_version");
    int major                   = -1;
    int minor                   = -1;

    if (get_version != NULL) {
        (void)get_version(&major, &minor); /* -1: not the standard's ABI */
    }

#if defined(UCX_MP_MPI_ABI)
    return major <= 0;
#elif defined(OPEN_MPI)
    return (major > 0) || (dlsym(real_handle, "ompi_mpi_comm_world") == NULL);
#else
    return (major > 0) || (dlsym(real_handle, "ompi_mpi_comm_world") != NULL);
#endif
}

static void is_missing(void)
{
    fprintf(stderr, "ucx_mp: the program calls an MPI function that its MPI "
                    "does not have%s\n",
            is_foreign() ? ": it was started by another MPI's mpirun; "
                           "start it by its own, or with ucx_mp_run "
                           "--collectives n" :
                           "");
    abort();
}

void *ucx_mp_mpi_pmpi_variable(const char *name)
{
    /* if the program holds a copy (copy relocation), the copy is in use */
    void *variable = dlsym(RTLD_DEFAULT, name);

    return (variable != NULL) ? variable : dlsym(real_handle, name);
}

bool ucx_mp_mpi_pmpi_find_handles(void)
{
    ucx_mp_mpi_pmpi_t *real = &ucx_mp_mpi_pmpi;
    bool has_all            = true;

#define FIND_HANDLE(_type, _name, _value, _variable) \
    real->_name = UCX_MP_MPI_HANDLE(_value, _variable); \
    has_all     = has_all && (real->_name != (_type)0);
    UCX_MP_MPI_HANDLES(FIND_HANDLE)
    return has_all;
}

/* Return whether this is MPICH before 4.1: "MPICH Version:      4.0.2". Called
   once; a small thread has no stack for the text. */
static bool is_old_mpich(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length, major, minor;

    return (ucx_mp_mpi_pmpi.Get_library_version(text, &length) ==
            MPI_SUCCESS) &&
           (sscanf(text, "MPICH Version: %d.%d", &major, &minor) == 2) &&
           ((major < 4) || ((major == 4) && (minor == 0)));
}

static void real_find(void)
{
    ucx_mp_mpi_pmpi_t *real = &ucx_mp_mpi_pmpi;
    void *handle            = ucx_mp_mpi_others_handle("PMPI_Init");
    bool is_complete        = true;
    bool has_tools          = false;

    if (handle == NULL) {
        fprintf(stderr, "ucx_mp: the program calls an MPI function, but this "
                        "process has loaded no MPI\n");
        abort();
    }

    real_handle = handle;

#define FIND_CALL(_name) \
    real->_name = (__typeof__(real->_name))ucx_mp_mpi_others_symbol( \
            handle, "PMPI_" #_name); \
    if (real->_name == NULL) { \
        real->_name = (__typeof__(real->_name))is_missing; \
    }
    UCX_MP_MPI_WRAPPED(FIND_CALL)

#define FIND_ASKING(_name) \
    if ((void*)real->_name == (void*)is_missing) { \
        real->_name = NULL; \
    }
    UCX_MP_MPI_ASKING(FIND_ASKING)
    UCX_MP_MPI_ATTACHED(FIND_ASKING)

#define FIND_TOOL(_name) \
    ucx_mp_mpi_tools._name = (__typeof__(real->_name))tools_symbol( \
            handle, "MPI_" #_name, (void*)real->_name); \
    has_tools = has_tools || (ucx_mp_mpi_tools._name != NULL);
    UCX_MP_MPI_WRAPPED(FIND_TOOL)

#define FIND_HELPER(_name) \
    real->_name = (__typeof__(real->_name))dlsym(handle, "PMPI_" #_name); \
    is_complete = is_complete && (real->_name != NULL);
    UCX_MP_MPI_HELPERS(FIND_HELPER)

#define FIND_EXTRA(_name) \
    real->_name = (__typeof__(real->_name))dlsym(handle, "PMPI_" #_name);
    UCX_MP_MPI_EXTRAS(FIND_EXTRA)

    is_complete = ucx_mp_mpi_pmpi_find_handles() && is_complete;
#ifndef OPEN_MPI
    is_complete = is_complete && !is_foreign();
#endif
    real->query_cuda_support = (__typeof__(real->query_cuda_support))
            ucx_mp_mpi_others_symbol(handle, "MPIX_Query_cuda_support");
    real->gpu_query_support = (__typeof__(real->gpu_query_support))
            ucx_mp_mpi_others_symbol(handle, "MPIX_GPU_query_support");
    real->is_complete = is_complete;
    real->cuts_poorly = is_complete && is_old_mpich();
    real->is_newer = (dlsym(handle, "PMPI_Isendrecv") != NULL) &&
                     !ucx_mp_mpi_exports_symbol("MPI_Isendrecv");
    __atomic_store_n(&ucx_mp_mpi_tools_state,
                     has_tools ? UCX_MP_MPI_TOOLS_SOME : UCX_MP_MPI_TOOLS_NONE,
                     __ATOMIC_RELEASE);
}

void ucx_mp_mpi_pmpi_find_calls(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, real_find);
}

void ucx_mp_mpi_pmpi_update(void)
{
    ucx_mp_mpi_pmpi_t *real = &ucx_mp_mpi_pmpi;
    bool has_cuda;

    ucx_mp_mpi_pmpi_find_calls();
    has_cuda     = (real->query_cuda_support != NULL) &&
                   real->query_cuda_support();
    real->stages = real->is_complete && !has_cuda;
#ifdef OPEN_MPI
    real->assists = real->is_complete && has_cuda;
#endif
    __atomic_store_n(&ucx_mp_mpi_pmpi_found, true, __ATOMIC_RELEASE);
}

void ucx_mp_mpi_pmpi_find(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, ucx_mp_mpi_pmpi_update);
}
