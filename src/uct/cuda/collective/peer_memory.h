/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peer memory: what a rank shows of its own to the others of its group, what it
 * has mapped of theirs, scratch memory, and the context that all of this is in.
 *
 * Memory is mapped before all run; what all ranks are known to have mapped is
 * remembered, the same on all of them.
 */
#ifndef UCT_CUDA_COLL_PEER_MEMORY_H
#define UCT_CUDA_COLL_PEER_MEMORY_H

#include <uct/cuda/base/context.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/collective/agree.h>
#include <uct/cuda/node/mappings.h>
#include <uct/cuda/run/program.h>

BEGIN_C_DECLS


/** An allocation of this rank's. */
typedef struct {
    uct_cuda_node_handle_t handle;
    uint32_t              generation;
    uint64_t              used;     /**< Sequence of the last call */
    bool                  is_there;
    bool                  is_known; /**< All others have mapped it */
} uct_cuda_coll_export_t;


/** One of another rank's. */
typedef struct {
    uint32_t               generation;
    uct_cuda_node_mapping_t *mapping; /**< Or NULL */
    ucs_status_t           refusal; /**< It cannot be mapped ... */
    uint64_t               retry;   /**< ... before this call ... */
    uint64_t               pause;   /**< ... which is so many after the last */
} uct_cuda_coll_import_t;


/** Scratch memory that this rank has made. */
typedef struct {
    CUdeviceptr base; /**< 0: none */
    size_t      size;
    uint64_t    agreed; /**< Bytes that all ranks have mapped, whoever made
                             it */
} uct_cuda_coll_scratch_t;


/** Zeroed, but for the first. */
typedef struct {
    uct_cuda_coll_agreement_t *agreement;

    /** That the buffers of the last call were in; NULL: none yet */
    uct_cuda_context_t     *context; /**< Held */
    int                    cuda_device;
    uct_cuda_coll_device_t *device;
    uct_cuda_coll_events_t events;
    bool                   is_lost; /**< Another than before */

    uct_cuda_coll_scratch_t scratch; /**< On this rank's GPU */
    uct_cuda_coll_scratch_t relays[UCT_CUDA_MAX_GPUS]; /**< On those of the
                                topology that no rank has: the first rank's */

    uct_cuda_coll_export_t exports[UCT_CUDA_COLL_PAGE_EXPORTS];
    uct_cuda_coll_import_t imports[UCT_CUDA_COLL_MAX_RANKS]
                                  [UCT_CUDA_COLL_PAGE_EXPORTS];
} uct_cuda_coll_memory_t;


/** Go on in the current context, one of @a device. What was made in another one
 *  goes, and the others are told of the GPU. */
ucs_status_t uct_cuda_coll_memory_enter(uct_cuda_coll_memory_t *memory,
                                        int device);

/** Let go of everything. */
void uct_cuda_coll_memory_release(uct_cuda_coll_memory_t *memory);


/**
 * Show a buffer's allocation, unless it is shown already.
 *
 * @param post   Of this rank: whether something is new, or ends too early.
 * @param shown  Filled: where the buffer is.
 */
ucs_status_t uct_cuda_coll_memory_show(uct_cuda_coll_memory_t *memory,
                                       const void *address, size_t bytes,
                                       const uct_cuda_memory_t *allocation,
                                       uct_cuda_coll_post_t *post,
                                       uct_cuda_coll_shown_t *shown);


/** Have all ranks mapped the scratch memory that a plan wants? The same answer
 *  on all of them. */
bool uct_cuda_coll_memory_has(const uct_cuda_coll_memory_t *memory,
                              const uct_cuda_coll_plan_t *plan);

/** Make that of this rank's. */
ucs_status_t uct_cuda_coll_memory_make(uct_cuda_coll_memory_t *memory,
                                       const uct_cuda_coll_plan_t *plan);

/** Map all of the others' that this call takes, after they have made it. */
ucs_status_t uct_cuda_coll_memory_map(uct_cuda_coll_memory_t *memory,
                                      const uct_cuda_coll_plan_t *plan);

/** All ranks have done so, or (@a is_done false) one could not; on all of
 *  them. */
void uct_cuda_coll_memory_mapped(uct_cuda_coll_memory_t *memory,
                                 const uct_cuda_coll_plan_t *plan,
                                 bool is_done);

/** A rank has lost all that it had mapped; on all of them. */
void uct_cuda_coll_memory_forget(uct_cuda_coll_memory_t *memory);

/** Relays will not be used any more. */
void uct_cuda_coll_memory_free_relays(uct_cuda_coll_memory_t *memory);


/** Where everything is for this rank, in this call. */
void uct_cuda_coll_memory_place(const uct_cuda_coll_memory_t *memory,
                                const uct_cuda_coll_plan_t *plan,
                                uct_cuda_coll_run_t *run);


END_C_DECLS

#endif
