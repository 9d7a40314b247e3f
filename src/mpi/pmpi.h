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

#include <mpi/calls.h> /* generated: UCX_MP_MPI_CALLS */


/* MPI functions called but not wrapped by this library */
#define UCX_MP_MPI_HELPERS(_) \
    _(Add_error_class) \
    _(Add_error_code) \
    _(Add_error_string) \
    _(Cartdim_get) \
    _(Comm_call_errhandler) \
    _(Comm_create_keyval) \
    _(Comm_free) \
    _(Comm_get_attr) \
    _(Comm_group) \
    _(Comm_rank) \
    _(Comm_remote_size) \
    _(Comm_set_attr) \
    _(Comm_set_errhandler) \
    _(Comm_size) \
    _(Comm_test_inter) \
    _(Dist_graph_neighbors_count) \
    _(File_get_view) \
    _(Get_elements_x) \
    _(Graph_neighbors_count) \
    _(Grequest_complete) \
    _(Grequest_start) \
    _(Group_free) \
    _(Group_size) \
    _(Group_translate_ranks) \
    _(Info_get) \
    _(Iprobe) \
    _(Pack_size) \
    _(Query_thread) \
    _(Status_set_cancelled) \
    _(Status_set_elements) \
    _(Test_cancelled) \
    _(Topo_test) \
    _(Type_commit) \
    _(Type_contiguous) \
    _(Type_create_hindexed) \
    _(Type_create_hvector) \
    _(Type_create_keyval) \
    _(Type_create_resized) \
    _(Type_create_struct) \
    _(Type_free) \
    _(Type_get_attr) \
    _(Type_get_contents) \
    _(Type_get_envelope) \
    _(Type_get_extent_x) \
    _(Type_get_true_extent_x) \
    _(Type_set_attr) \
    _(Type_size_x) \
    _(Win_call_errhandler) \
    _(Win_get_group)

/* Calls to complete requests; wrapped in nonblocking.c */
#define UCX_MP_MPI_ENDS(_) \
    _(File_read_all_end) \
    _(File_read_at_all_end) \
    _(File_read_ordered_end) \
    _(File_write_all_end) \
    _(File_write_at_all_end) \
    _(File_write_ordered_end) \
    _(Request_free) \
    _(Request_get_status) \
    _(Start) \
    _(Startall) \
    _(Test) \
    _(Testall) \
    _(Testany) \
    _(Testsome) \
    _(Wait) \
    _(Waitall) \
    _(Waitany) \
    _(Waitsome)

/* Calls to make communicators, MPI_COMM_WORLD included; wrapped in comm.c and
   start.c */
#define UCX_MP_MPI_MAKERS(_) \
    _(Cart_create) \
    _(Cart_sub) \
    _(Comm_create) \
    _(Comm_create_group) \
    _(Comm_dup) \
    _(Comm_dup_with_info) \
    _(Comm_split) \
    _(Comm_split_type) \
    _(Dist_graph_create) \
    _(Dist_graph_create_adjacent) \
    _(Graph_create) \
    _(Init) \
    _(Init_thread) \
    _(Intercomm_merge)

/* Calls to make a window, synchronise its ranks or free it (window_create.c,
   window_sync.c) */
#if MPI_VERSION >= 4
#define UCX_MP_MPI_WINDOWS_LARGE(_) \
    _(Win_allocate_c) \
    _(Win_create_c)
#else
#define UCX_MP_MPI_WINDOWS_LARGE(_)
#endif
#define UCX_MP_MPI_WINDOWS(_) \
    _(Win_allocate) \
    _(Win_complete) \
    _(Win_create) \
    _(Win_fence) \
    _(Win_flush) \
    _(Win_flush_all) \
    _(Win_flush_local) \
    _(Win_flush_local_all) \
    _(Win_free) \
    _(Win_get_attr) \
    _(Win_lock) \
    _(Win_lock_all) \
    _(Win_post) \
    _(Win_start) \
    _(Win_sync) \
    _(Win_test) \
    _(Win_unlock) \
    _(Win_unlock_all) \
    _(Win_wait)

/* Calls to attach memory for buffered messages (attached.c) */
#if MPI_VERSION >= 4
#define UCX_MP_MPI_ATTACHED_LARGE(_) \
    _(Buffer_attach_c) \
    _(Buffer_detach_c)
#else
#define UCX_MP_MPI_ATTACHED_LARGE(_)
#endif
#define UCX_MP_MPI_ATTACHED(_) \
    _(Buffer_attach) \
    _(Buffer_detach) \
    UCX_MP_MPI_ATTACHED_LARGE(_)

/* All wrapped functions. Those of UCX_MP_MPI_ASKING, generated, are NULL if the
   MPI lacks them. */
#define UCX_MP_MPI_STOOD_IN(_) \
    UCX_MP_MPI_ASKING(_) \
    UCX_MP_MPI_ATTACHED(_) \
    UCX_MP_MPI_CALLS(_) \
    UCX_MP_MPI_ENDS(_) \
    _(Error_class) \
    UCX_MP_MPI_MAKERS(_) \
    UCX_MP_MPI_WINDOWS(_) \
    UCX_MP_MPI_WINDOWS_LARGE(_)

/* Optional functions: NULL if the MPI lacks them */
#if MPI_VERSION >= 4
#define UCX_MP_MPI_EXTRAS(_) \
    _(Type_get_contents_c) \
    _(Type_get_envelope_c)
#else
#define UCX_MP_MPI_EXTRAS(_)
#endif

#define UCX_MP_MPI_POINTER(_name) __typeof__(PMPI_##_name) *_name;
typedef struct {
    UCX_MP_MPI_STOOD_IN(UCX_MP_MPI_POINTER)
    UCX_MP_MPI_HELPERS(UCX_MP_MPI_POINTER)
    UCX_MP_MPI_EXTRAS(UCX_MP_MPI_POINTER)
    /* The MPI's own, or NULL */
    int          (*query_cuda_support)(void);
    int          (*gpu_query_support)(int type, int *is_supported_p);
    MPI_Comm     comm_world;
    MPI_Comm     comm_null;
    MPI_Request  request_null;
    MPI_Datatype datatype_null;
    MPI_Info     info_null;
    MPI_Errhandler errors_return;
    bool         is_complete; /* all required functions were found */
    bool         stages;   /* the MPI has no CUDA support: stage GPU memory */
    bool         assists;  /* Open MPI with CUDA support: pack messages of many
                              pieces, and take over its non-blocking
                              reductions, which crash on GPU memory */
    bool         is_newer; /* the MPI has functions of MPI 4, not wrapped by
                              this library */
} ucx_mp_mpi_pmpi_t;


/* MPI_ functions of a tool, found after this library's and not in the MPI: a
   profiler linked into the program, say. The tool calls PMPI_ functions; this
   library wraps them, too. NULL: none. */
typedef struct {
    UCX_MP_MPI_STOOD_IN(UCX_MP_MPI_POINTER)
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

/* Fill ucx_mp_mpi_pmpi once; thread-safe. Call after MPI_Init(): MPICH aborts
   if it is asked earlier for its CUDA support. */
void ucx_mp_mpi_pmpi_find(void);

/* Fill ucx_mp_mpi_pmpi once, without `stages` and `assists` (they stay false);
   thread-safe, at any time. Aborts if the process has no MPI. */
void ucx_mp_mpi_pmpi_find_calls(void);

/* Set `stages` and `assists` anew after MPI_Init(): Open MPI 5 does not know
   before whether it supports CUDA. */
void ucx_mp_mpi_pmpi_judge(void);

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

/*
 * Define a wrapper under both names of an MPI function. PMPI_ runs the body.
 * MPI_ calls a tool's function if there is one, and the tool calls PMPI_;
 * otherwise it runs the body. The function must be listed in
 * UCX_MP_MPI_STOOD_IN.
 *
 * @param _words  Argument names, in parentheses; the declarations follow.
 */
#define UCX_MP_MPI_DEFINE(_name, _words, ...) \
    static int own_##_name(__VA_ARGS__); \
    int PMPI_##_name(__VA_ARGS__) __attribute__((alias("own_" #_name))); \
    int MPI_##_name(__VA_ARGS__) \
    { \
        if (ucx_mp_mpi_has_tools() && (ucx_mp_mpi_tools._name != NULL)) { \
            return ucx_mp_mpi_tools._name _words; \
        } \
        \
        return own_##_name _words; \
    } \
    \
    static int own_##_name(__VA_ARGS__)

/* Return the address of a variable of the MPI; NULL: the MPI has no such
   variable. Call after ucx_mp_mpi_pmpi_find() or
   ucx_mp_mpi_pmpi_find_calls(). */
void *ucx_mp_mpi_pmpi_variable(const char *name);

#endif
