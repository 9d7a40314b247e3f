/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Windows with GPU memory, of ranks on one node in front of an MPI without
 * CUDA.
 *
 * Each rank maps the GPU memory of the others when the window is made, and its
 * puts and gets are copies. The ranks synchronise through a control block in
 * shared memory, not through the MPI: the MPI may delay a lock until its first
 * operation, and this library's operations never reach the MPI.
 *
 * The window's handle is a real window of the MPI. It has the host memory of
 * ranks without GPU memory (the MPI carries out operations on it), the error
 * handler, the info and the name. The MPI handles windows without GPU memory;
 * this library only stages origin buffers in GPU memory for them.
 */
#ifndef UCX_MP_MPI_WINDOW_H_
#define UCX_MP_MPI_WINDOW_H_

#include <mpi/call.h>

#include <uct/cuda/collective_api.h>

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>


/* Operation of a call; FETCH is MPI_Fetch_and_op, SWAP MPI_Compare_and_swap */
typedef enum {
    UCX_MP_MPI_RMA_PUT,
    UCX_MP_MPI_RMA_GET,
    UCX_MP_MPI_RMA_ACCUMULATE,
    UCX_MP_MPI_RMA_GET_ACCUMULATE,
    UCX_MP_MPI_RMA_FETCH,
    UCX_MP_MPI_RMA_SWAP
} ucx_mp_mpi_rma_kind_t;

/* Arguments of a call; those that it lacks are 0 */
typedef struct {
    ucx_mp_mpi_rma_kind_t kind;
    MPI_Win               win;
    const void            *origin_addr;
    MPI_Count             origin_count;
    MPI_Datatype          origin_datatype;
    const void            *compare_addr;
    void                  *result_addr;
    MPI_Count             result_count;
    MPI_Datatype          result_datatype;
    int                   target_rank;
    MPI_Aint              target_disp;
    MPI_Count             target_count;
    MPI_Datatype          target_datatype;
    MPI_Op                op;
    MPI_Request           *request; /* NULL: not a request-based call */
} ucx_mp_mpi_rma_t;

/* Access epochs of this rank at a target: by a lock, which may be exclusive,
   and by MPI_Win_start(). Flags; 0: none */
enum {
    UCX_MP_MPI_ACCESS_LOCKED    = 1,
    UCX_MP_MPI_ACCESS_EXCLUSIVE = 2,
    UCX_MP_MPI_ACCESS_STARTED   = 4
};

/* A rank's memory as this rank sees it */
typedef struct {
    bool                    is_ours; /* this library carries out operations on
                                        it, not the MPI */
    bool                    is_copied; /* kernels cannot use it */
    char                    *address;
    MPI_Aint                size, unit; /* bytes */
    CUcontext               ctx;      /* NULL: of the memory itself */
    uct_cuda_coll_mapping_t *mapping; /* NULL: own memory */
    unsigned                access;   /* bits UCX_MP_MPI_ACCESS_ */
    uint32_t                starts, waits; /* access epochs begun at it, and
                                              exposure epochs to it ended; as
                                              numbers modulo 2^32 */
} ucx_mp_mpi_target_t;

#define UCX_MP_MPI_WINDOW_CONTEXTS 16

typedef struct ucx_mp_mpi_window ucx_mp_mpi_window_t;
typedef struct ucx_mp_mpi_window_control ucx_mp_mpi_window_control_t;

struct ucx_mp_mpi_window {
    ucx_mp_mpi_window_t         *next;
    const uct_cuda_coll_api_t   *api;
    MPI_Win                     win;
    MPI_Group                   group;
    MPI_Comm                    trial; /* of this rank alone, returns errors;
                                          null: window_check() suffices */
    int                         rank, size;
    bool                        has_host;  /* a rank has memory of the MPI's */
    bool                        is_gpu;    /* this rank's is GPU memory */
    bool                        is_allocated; /* by us */
    bool                        is_fenced; /* in an epoch between two fences */
    bool                        is_locked; /* by MPI_Win_lock_all */
    unsigned                    num_mpi_locks; /* locks of single ranks that the
                                                  MPI holds */
    void                        *base;  /* of its GPU memory */
    int                         unit;
    char                        handle[UCT_CUDA_COLL_API_HANDLE];
    ucx_mp_mpi_window_control_t *control;
    uint32_t                    fences;
    pthread_mutex_t             lock; /* of the contexts below */
    unsigned                    num_busy;
    CUcontext                   busy[UCX_MP_MPI_WINDOW_CONTEXTS]; /* with copies
                                                       in progress */
    int                         *starts, *posts; /* ranks of the groups in
                                                    progress; NULL: none */
    int                         num_starts, num_posts;
    ucx_mp_mpi_target_t         targets[];
};

/* Number of windows with GPU memory, plus calls staged until a
   synchronisation */
extern unsigned ucx_mp_mpi_num_windows;

static inline bool ucx_mp_mpi_has_windows(void)
{
    return __builtin_expect(__atomic_load_n(&ucx_mp_mpi_num_windows,
                                            __ATOMIC_ACQUIRE) != 0, 0);
}

/* Return a window with GPU memory; NULL: it is the MPI's own. */
ucx_mp_mpi_window_t *ucx_mp_mpi_window_find(MPI_Win win);

/* Add a window to those that are found; remove it. */
void ucx_mp_mpi_window_add(ucx_mp_mpi_window_t *window);

void ucx_mp_mpi_window_remove(ucx_mp_mpi_window_t *window);

/*
 * Carry out a one-sided call if this library handles the target's memory
 * (is_ours), or if the rank is invalid or MPI_PROC_NULL. Puts and gets may
 * still be in progress on return, unless the call is request-based.
 *
 * @param rc_p  Filled with the wrapper's result if the call is done; an error
 *              is already raised.
 * @return Whether it is done; otherwise it is the MPI's call.
 */
bool ucx_mp_mpi_window_rma(const ucx_mp_mpi_rma_t *args, int *rc_p);

/* Let the MPI check the buffers, datatypes and operation of a call, but not the
   displacement. @return Its error, raised by the window's handler, or
   MPI_SUCCESS. */
int ucx_mp_mpi_window_check(const ucx_mp_mpi_rma_t *args);

/* Return whether MPI_Reduce_local() supports an operation that passed the
   check, for a predefined datatype: the check of some MPIs accepts unsupported
   ones. */
bool ucx_mp_mpi_window_reduces(const ucx_mp_mpi_window_t *window, MPI_Op op,
                               MPI_Datatype base, MPI_Count extent);

/* Keep a staged call on the MPI's memory until ucx_mp_mpi_window_settle(); end
   it at once if it failed or nothing is staged. Aborts without memory. @return
   The wrapper's result. */
int ucx_mp_mpi_window_defer(ucx_mp_mpi_call_t *call, MPI_Win win, int target);

/* Return a mark of the calls kept so far. Call it before the MPI's call that
   completes them: that call does not complete calls that other threads make
   later. */
uint64_t ucx_mp_mpi_window_mark(void);

/* Stands for all targets of a window; MPI_PROC_NULL is negative, too. */
#define UCX_MP_MPI_ALL INT_MIN

/* End the kept calls to a target of a window, or to all targets, up to `mark`,
   after the MPI has completed them: copies received data back. If `rc`, the
   MPI's result, is an error, keep them. @return `rc` if it is an error, else
   the first error or MPI_SUCCESS. */
int ucx_mp_mpi_window_settle(MPI_Win win, int target, uint64_t mark, int rc);

/* End a staged request-based get: wait for the MPI's request, flush the target,
   copy the data back, and fill `request_p` with a completed request, since a
   flush or unlock may complete the get as well. The flush is for MPICH 4.0,
   whose request completes before the data of a derived type are there.
   @return The wrapper's result. */
int ucx_mp_mpi_window_complete(ucx_mp_mpi_call_t *call, MPI_Win win, int target,
                               MPI_Request *request_p);

/* Fill `request_p` with a completed request. @return MPI_SUCCESS or the MPI's
   error. */
int ucx_mp_mpi_window_request(MPI_Request *request_p);

/* Wait for the window's copies in progress, to all targets. @return
   MPI_SUCCESS, or an MPI error, raised already. */
int ucx_mp_mpi_window_wait(ucx_mp_mpi_window_t *window);

/* Return the size of the control block of a window with `ranks` ranks,
   bytes. */
size_t ucx_mp_mpi_window_control_size(int ranks);

/* Make this rank's memory readable by the others, and wait until all ranks of
   the window have called this; the MPI makes progress meanwhile. */
void ucx_mp_mpi_window_barrier(ucx_mp_mpi_window_t *window);

/* Lock a target for accumulates: wait until no rank accumulates to it, and
   exclude other ranks until ucx_mp_mpi_window_end_atomic(). */
void ucx_mp_mpi_window_begin_atomic(ucx_mp_mpi_window_t *window, int target);

/* Unlock a target for other ranks' accumulates. */
void ucx_mp_mpi_window_end_atomic(ucx_mp_mpi_window_t *window, int target);

#endif
