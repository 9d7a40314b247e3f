/* SPDX-License-Identifier: BSD-3-Clause */
/* A group and a call of it, as their parts see them. */
#ifndef UCT_CUDA_COLL_STATE_H
#define UCT_CUDA_COLL_STATE_H

#include <uct/cuda/base/gpu.h>
#include <uct/cuda/collective/group.h>
#include <uct/cuda/node/mappings.h>
#include <uct/cuda/plan/book.h>
#include <uct/cuda/run/program.h>

BEGIN_C_DECLS


/* Behind the program's allocations a rank shows its scratch memory, and the
 * first rank that of relays */
#define NUM_EXPORTS   (UCT_CUDA_COLL_PAGE_EXPORTS - UCT_CUDA_MAX_GPUS - 1)
#define SCRATCH       NUM_EXPORTS
#define RELAY(_gpu)   (SCRATCH + 1 + (_gpu))
#define RELAYS_RANK   0

/* Plans that are kept: a program has so many sizes of messages in turns */
#define NUM_PROGRAMS 64

/* An allocation of this rank's */
typedef struct {
    uct_cuda_ipc_handle_t handle;
    uint32_t              generation;
    uint64_t              used;    /* sequence of the last call */
    bool                  is_there;
    bool                  is_known; /* all others have mapped it */
} export_t;

/* One of another rank's */
typedef struct {
    uint32_t               generation;
    uct_cuda_ipc_mapping_t *mapping; /* or NULL */
} import_t;

/* Memory of a GPU that no rank has */
typedef struct {
    CUdeviceptr base; /* of the first rank, 0: none */
    size_t      size;
    uint64_t    agreed; /* bytes of it that all ranks have mapped */
} relay_t;

typedef struct {
    uct_cuda_coll_program_t *program; /* or NULL */
    uint64_t                used;
} cached_program_t;

struct uct_cuda_coll_group {
    unsigned               rank, size;
    uct_cuda_coll_page_t   *page;
    uint64_t               sequence;
    unsigned               failures;
    bool                   is_off;   /* on all ranks */
    bool                   is_whole; /* all have joined before this call */
    uint64_t               deadline; /* of waiting for that, ns; 0: none yet */

    /* Of the context that the buffers of the last call were in */
    CUcontext              context;
    unsigned long long     context_id;
    int                    cuda_device;
    uct_cuda_coll_device_t *device;
    uct_cuda_coll_events_t events;
    CUdeviceptr            scratch;
    uint64_t               scratch_size;
    bool                   is_lost;      /* another context than before */
    relay_t                relays[UCT_CUDA_MAX_GPUS]; /* of topo */

    uct_cuda_coll_post_t   posts[UCT_CUDA_COLL_MAX_RANKS]; /* last call's */

    /* What all ranks have; the same on all of them */
    uint64_t               agreed_scratch;
    bool                   has_no_relays; /* they could not be had */
    bool                   agreed_kernels[UCX_MP_OP_LAST][UCX_MP_TYPE_LAST];
    uct_cuda_topo_t        topo;
    int                    gpus[UCT_CUDA_COLL_MAX_RANKS]; /* of topo */

    export_t               exports[UCT_CUDA_COLL_PAGE_EXPORTS];
    import_t               imports[UCT_CUDA_COLL_MAX_RANKS]
                                  [UCT_CUDA_COLL_PAGE_EXPORTS];
    uct_cuda_coll_book_t   *book;        /* of topo and gpus; NULL: none yet */
    cached_program_t       programs[NUM_PROGRAMS];
};

/* A call; element, what is in place, and the kernel are those of all ranks once
   they have agreed */
typedef struct {
    uct_cuda_coll_group_t      *group;
    const uct_cuda_coll_call_t *what;
    uct_cuda_coll_request_t    request;
    uint64_t                   counts[UCT_CUDA_COLL_MAX_RANKS]; /* its */
    uct_cuda_coll_plan_t       shape; /* of its plan */
    ucx_mp_op_t                op;
    ucx_mp_type_t              type;
    uct_cuda_coll_post_t       post;
    uct_cuda_coll_post_t       *posts; /* of all ranks, the group's */
    uct_cuda_gpu_context_t     pushed;
    unsigned                   spins;
    uint64_t                   looked; /* for others, ns */
    uint64_t                   began;  /* to wait so, ns ... */
    const char                 *wanted; /* for a rank that has not ... */
    unsigned                   waits_for; /* ... this one */
    const uct_cuda_coll_plan_t *plan;     /* that was carried out, or NULL */
    char                       *why;
    size_t                     why_size;
} call_t;


END_C_DECLS

#endif
