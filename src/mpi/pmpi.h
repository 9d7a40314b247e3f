/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The PMPI functions of this process's MPI, looked up when the first wrapped
 * call runs. This library has no MPI in its dependencies: it may be preloaded
 * into any process, even if the MPI is loaded later with RTLD_LOCAL.
 */
#ifndef UCX_MP_MPI_PMPI_H_
#define UCX_MP_MPI_PMPI_H_

#include <mpi.h>
#include <stdbool.h>

/* generated: UCX_MP_MPI_WRAPPED and the other lists of functions */
#include <mpi/calls.h>


/* Handles: type, member, value, and variable of Open MPI, whose handles are
   addresses in the loaded library; those of other MPIs are constants. */
#define UCX_MP_MPI_HANDLES(_) \
    _(MPI_Comm, comm_world, MPI_COMM_WORLD, "mpi_comm_world") \
    _(MPI_Comm, comm_null, MPI_COMM_NULL, "mpi_comm_null") \
    _(MPI_Request, request_null, MPI_REQUEST_NULL, "request_null") \
    _(MPI_Datatype, datatype_null, MPI_DATATYPE_NULL, "mpi_datatype_null") \
    _(MPI_Datatype, byte, MPI_BYTE, "mpi_byte") \
    _(MPI_Datatype, integer, MPI_INT, "mpi_int") \
    _(MPI_Info, info_null, MPI_INFO_NULL, "mpi_info_null") \
    _(MPI_Errhandler, errors_return, MPI_ERRORS_RETURN, "mpi_errors_return") \
    _(MPI_Op, min, MPI_MIN, "mpi_op_min") \
    _(MPI_Op, replace, MPI_REPLACE, "mpi_op_replace") \
    _(MPI_Op, no_op, MPI_NO_OP, "mpi_op_no_op")

#ifdef OPEN_MPI
#define UCX_MP_MPI_HANDLE(_value, _variable) \
    ucx_mp_mpi_pmpi_variable("ompi_" _variable)
#else
#define UCX_MP_MPI_HANDLE(_value, _variable) (_value)
#endif

#define UCX_MP_MPI_MEMBER(_type, _name, _value, _variable) _type _name;
#define UCX_MP_MPI_POINTER(_name) __typeof__(PMPI_##_name) *_name;
typedef struct {
    UCX_MP_MPI_WRAPPED(UCX_MP_MPI_POINTER)
    UCX_MP_MPI_HELPERS(UCX_MP_MPI_POINTER)
    UCX_MP_MPI_EXTRAS(UCX_MP_MPI_POINTER)
    /* The MPI's own, or NULL */
    int  (*query_cuda_support)(void);
    int  (*gpu_query_support)(int type, int *is_supported_p);
    UCX_MP_MPI_HANDLES(UCX_MP_MPI_MEMBER)
    bool is_complete; /* all required functions and handles were found */
    bool stages;   /* the MPI has no CUDA support: stage GPU memory */
    bool assists;  /* Open MPI with CUDA support: pack messages of many pieces,
                      and take over its non-blocking reductions, which crash on
                      GPU memory */
    bool cuts_poorly; /* MPICH before 4.1: cannot unpack a part of a basic type
                         in host memory, if the datatype's basic types differ in
                         size */
    bool is_newer; /* the MPI has functions of MPI 4, not wrapped by this
                      library */
} ucx_mp_mpi_pmpi_t;


/* MPI_ functions of a tool, found after this library's and not in the MPI: a
   profiler linked into the program, say. The tool calls PMPI_ functions; this
   library wraps them, too. NULL: none. */
typedef struct {
    UCX_MP_MPI_WRAPPED(UCX_MP_MPI_POINTER)
} ucx_mp_mpi_tools_t;

typedef enum {
    UCX_MP_MPI_TOOLS_UNKNOWN, /* before ucx_mp_mpi_pmpi_find_calls() */
    UCX_MP_MPI_TOOLS_NONE,
    UCX_MP_MPI_TOOLS_SOME
} ucx_mp_mpi_tools_state_t;

extern ucx_mp_mpi_tools_t ucx_mp_mpi_tools;
extern int ucx_mp_mpi_tools_state; /* written with release order */


/* The MPI's functions. Do not read before ucx_mp_mpi_pmpi_find(). Calling a
   wrapped function missing in this MPI prints an error and aborts, except those
   that are NULL. */
extern ucx_mp_mpi_pmpi_t ucx_mp_mpi_pmpi;

/* true when ucx_mp_mpi_pmpi is filled; written with release order. */
extern bool ucx_mp_mpi_pmpi_found;

/* Fill ucx_mp_mpi_pmpi once; thread-safe. Call after MPI_Init(): before, MPICH
   aborts in the query of its CUDA support. */
void ucx_mp_mpi_pmpi_find(void);

/* Fill ucx_mp_mpi_pmpi once, without `stages` and `assists` (they stay false);
   thread-safe, at any time. Aborts if the process has no MPI. */
void ucx_mp_mpi_pmpi_find_calls(void);

/* Find the handles alone. @return Whether the MPI has all of them. */
bool ucx_mp_mpi_pmpi_find_handles(void);

/* Set `stages` and `assists` anew after MPI_Init(): Open MPI 5 does not know
   before whether it supports CUDA. */
void ucx_mp_mpi_pmpi_update(void);

/* Return whether a tool wraps any MPI function; thread-safe. */
static inline bool ucx_mp_mpi_has_tools(void)
{
    const int state = __atomic_load_n(&ucx_mp_mpi_tools_state,
                                      __ATOMIC_ACQUIRE);

    if (__builtin_expect(state == UCX_MP_MPI_TOOLS_NONE, 1)) {
        return false;
    }

    ucx_mp_mpi_pmpi_find_calls();
    return __atomic_load_n(&ucx_mp_mpi_tools_state, __ATOMIC_ACQUIRE) ==
           UCX_MP_MPI_TOOLS_SOME;
}

#ifdef OPEN_MPI
#define UCX_MP_MPI_CHECKED(_call) (_call)
#define UCX_MP_MPI_OWN(_name, _words, ...) static int own_##_name(__VA_ARGS__)
#else
/* MPICH 5 returns MPI_SUCCESS after an error if the program's error handler
   returns. */
typedef struct {
    int seen;  /* error code for which such a handler was called, or
                  success */
    int taken; /* error code that a wrapper has taken as the MPI's result */
} ucx_mp_mpi_handled_t;

extern __thread ucx_mp_mpi_handled_t ucx_mp_mpi_handled
        __attribute__((tls_model("initial-exec")));

static inline void ucx_mp_mpi_handled_begin(void)
{
    ucx_mp_mpi_handled.seen  = MPI_SUCCESS;
    ucx_mp_mpi_handled.taken = MPI_SUCCESS;
}

static inline int ucx_mp_mpi_handled_end(int rc)
{
    if (__builtin_expect((rc != MPI_SUCCESS) ||
                         (ucx_mp_mpi_handled.seen == MPI_SUCCESS), 1)) {
        return rc;
    }

    /* an MPI_Op function may call the MPI within a call */
    ucx_mp_mpi_handled.taken = ucx_mp_mpi_handled.seen;
    ucx_mp_mpi_handled.seen  = MPI_SUCCESS;
    return ucx_mp_mpi_handled.taken;
}

/* Return a wrapper's result as the MPI does. */
static inline int ucx_mp_mpi_handled_return(int rc)
{
    if (__builtin_expect((rc != MPI_SUCCESS) &&
                         (rc == ucx_mp_mpi_handled.taken), 0)) {
        ucx_mp_mpi_handled.taken = MPI_SUCCESS;
        return MPI_SUCCESS;
    }
    return rc;
}

/* Call a function of the MPI. @return Its result, or the error for which it
   called the program's error handler. */
#define UCX_MP_MPI_CHECKED(_call) \
    (ucx_mp_mpi_handled_begin(), ucx_mp_mpi_handled_end(_call))

#define UCX_MP_MPI_OWN(_name, _words, ...) \
    static int body_##_name(__VA_ARGS__); \
    static int own_##_name(__VA_ARGS__) \
    { \
        return ucx_mp_mpi_handled_return(body_##_name _words); \
    } \
    \
    static int body_##_name(__VA_ARGS__)
#endif

/*
 * Define a wrapper under both names of an MPI function. PMPI_ runs the body.
 * MPI_ calls a tool's function if there is one, and the tool calls PMPI_;
 * otherwise it runs the body. The function must be listed in
 * UCX_MP_MPI_WRAPPED.
 *
 * @param _words  Argument names, in parentheses; the declarations follow.
 */
#define UCX_MP_MPI_DEFINE(_name, _words, ...) \
    static int own_##_name(__VA_ARGS__); \
    int PMPI_##_name(__VA_ARGS__) \
            __attribute__((visibility("default"), alias("own_" #_name))); \
    __attribute__((visibility("default"))) int MPI_##_name(__VA_ARGS__) \
    { \
        if (ucx_mp_mpi_has_tools() && (ucx_mp_mpi_tools._name != NULL)) { \
            return ucx_mp_mpi_tools._name _words; \
        } \
        \
        return own_##_name _words; \
    } \
    \
    UCX_MP_MPI_OWN(_name, _words, __VA_ARGS__)

/* Return the address of a variable of the MPI; NULL: the MPI has no such
   variable. Call after ucx_mp_mpi_pmpi_find() or
   ucx_mp_mpi_pmpi_find_calls(). */
void *ucx_mp_mpi_pmpi_variable(const char *name);

#endif
