/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The MPI of this process: its PMPI functions, found when the first of our
 * calls runs. This library names no MPI as needed, so it may sit in any
 * process, also where an MPI is loaded later and RTLD_LOCAL.
 */
#ifndef UCX_MP_MPI_REAL_H_
#define UCX_MP_MPI_REAL_H_

#include <mpi.h>
#include <stdbool.h>

#include <mpi/calls.h> /* generated: UCX_MP_MPI_CALLS */


/* What is used of MPI besides the calls that are stood in for */
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
    _(Comm_size) \
    _(Comm_test_inter) \
    _(Dist_graph_neighbors_count) \
    _(File_get_view) \
    _(Get_elements_x) \
    _(Graph_neighbors_count) \
    _(Group_free) \
    _(Group_translate_ranks) \
    _(Iprobe) \
    _(Pack_size) \
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
    _(Win_call_errhandler)

/* Calls that may end others, and are stood in for as well (nonblocking.c) */
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

/* Calls that make communicators, MPI_COMM_WORLD too (member.c, world.c) */
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

/* All that is stood in for */
#define UCX_MP_MPI_STOOD_IN(_) \
    UCX_MP_MPI_CALLS(_) \
    UCX_MP_MPI_ENDS(_) \
    UCX_MP_MPI_MAKERS(_)

/* What is used where the MPI has it; NULL if not */
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
    /* These may be the MPI's or none */
    int          (*query_cuda_support)(void);
    int          (*gpu_query_support)(int type, int *is_supported_p);
    MPI_Comm     comm_world;
    MPI_Comm     comm_null;
    MPI_Request  request_null;
    MPI_Datatype datatype_null;
    bool         is_whole; /* it has all that we need */
    bool         stages;   /* without CUDA: GPU memory is staged */
    bool         is_newer; /* it has functions of MPI 4, and this library shows
                              none in front of them */
} ucx_mp_mpi_pmpi_t;


/* What comes behind ours by the MPI_ name and is not the MPI's: functions of a
   tool that is linked into the program, say. It calls PMPI_ names, which are
   ours. NULL: none. */
typedef struct {
    UCX_MP_MPI_STOOD_IN(UCX_MP_MPI_POINTER)
} ucx_mp_mpi_tools_t;

typedef enum {
    UCX_MP_MPI_TOOLS_UNKNOWN, /* before ucx_mp_mpi_pmpi_find_calls() */
    UCX_MP_MPI_TOOLS_NONE,
    UCX_MP_MPI_TOOLS_SOME
} ucx_mp_mpi_tools_state_t;

extern ucx_mp_mpi_tools_t ucx_mp_mpi_tools;
extern int ucx_mp_mpi_tools_state; /* set with release order */


/* Not to be read before ucx_mp_mpi_pmpi_find(). A call that this MPI does not
   have is a function that says so and ends the program. */
extern ucx_mp_mpi_pmpi_t ucx_mp_mpi_pmpi;

/* Whether ucx_mp_mpi_pmpi is filled; set with release order. */
extern bool ucx_mp_mpi_pmpi_found;

/* Fills ucx_mp_mpi_pmpi, once; any thread. When the MPI is initialised, or an
   MPICH ends the program. */
void ucx_mp_mpi_pmpi_find(void);

/* The same but for `stages`, which stays false; at any time. */
void ucx_mp_mpi_pmpi_find_calls(void);

/* Asks again whether the MPI takes GPU memory: Open MPI 5 knows once it has
   been initialised. */
void ucx_mp_mpi_pmpi_judge(void);

/* Whether there are tools, whatever they define. Any thread. */
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
 * Begins the definition of a function that is stood in for, by both of its
 * names: PMPI_ does our work, and so does MPI_ unless a tool comes first, which
 * will call the other. The tables above have it if UCX_MP_MPI_STOOD_IN has.
 *
 * @param _words  Its arguments' names, in parentheses; then their declarations.
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

/* A variable of the MPI's, after that; NULL if it has none of this name. */
void *ucx_mp_mpi_pmpi_variable(const char *name);

#endif
