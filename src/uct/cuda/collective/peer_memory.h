/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of a team: exports of this rank, mappings of other ranks' exports,
 * scratch memory, and the CUDA context of all of these.
 *
 * A rank maps memory before any rank runs. Each rank records the memory mapped
 * by all ranks; these records are equal on all ranks.
 */
#ifndef UCT_CUDA_COLLECTIVE_PEER_MEMORY_H
#define UCT_CUDA_COLLECTIVE_PEER_MEMORY_H

#include <uct/cuda/base/context_data.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/collective/agree.h>
#include <uct/cuda/node/mappings.h>
#include <uct/cuda/run/schedule.h>

BEGIN_C_DECLS


/** Status of a call for which a relay's memory is not available. */
#define UCT_CUDA_COLL_NO_RELAY UCS_ERR_REJECTED


/** Exported allocation of this rank. */
typedef struct {
    uct_cuda_node_handle_t handle;
    uint32_t              generation;
    uint64_t              used;     /**< Sequence of the last call */
    bool                  is_valid;
    bool                  is_known; /**< All other ranks have mapped it */
} uct_cuda_coll_export_t;


/** Export of another rank. */
typedef struct {
    uint32_t               generation;
    uct_cuda_node_mapping_t *mapping; /**< Or NULL */
    ucs_status_t           refusal; /**< Status of the last failed mapping */
    uint64_t               retry;   /**< First call that tries again */
    uint64_t               pause;   /**< Calls until then */
} uct_cuda_coll_import_t;


/** Scratch memory of this rank. */
typedef struct {
    CUdeviceptr base; /**< 0: none */
    size_t      size;
    uint64_t    agreed; /**< Bytes mapped by all ranks */
} uct_cuda_coll_scratch_t;


/** Memory of a team. Zeroed, except for agreement. */
typedef struct {
    uct_cuda_coll_agreement_t *agreement;

    /** Context of the last call's buffers; NULL: none yet */
    uct_cuda_context_t         *context; /**< Reference held */
    int                        cuda_device;
    uct_cuda_run_coll_device_t *device;
    uct_cuda_run_coll_events_t events;
    bool                       is_lost; /**< Context has changed */

    uct_cuda_coll_scratch_t scratch; /**< On this rank's GPU */
    /** On GPUs without a rank; owned by rank 0 */
    uct_cuda_coll_scratch_t relays[UCT_CUDA_MAX_GPUS];

    uct_cuda_coll_export_t exports[UCT_CUDA_NODE_CONTROL_EXPORTS];
    unsigned               cursor; /**< Last export checked */
    uct_cuda_coll_import_t imports[UCT_CUDA_PLAN_COLL_MAX_RANKS]
                                  [UCT_CUDA_NODE_CONTROL_EXPORTS];
} uct_cuda_coll_memory_t;


/**
 * Switch to the current context, of @a device. If it differs from the previous
 * one, release the resources of that one, set is_lost and announce the GPU to
 * the other ranks; rank 0 also publishes the node.
 *
 * @return UCS_OK, or the status of the call that failed.
 */
ucs_status_t uct_cuda_coll_memory_enter(uct_cuda_coll_memory_t *memory,
                                        int device);

/** Release all resources. */
void uct_cuda_coll_memory_release(uct_cuda_coll_memory_t *memory);


/**
 * Export a buffer's allocation unless it is exported already.
 *
 * @param post   This rank's announcement; is_new and is_short are set there.
 * @param shown  Filled with the location of the buffer.
 * @return UCS_OK; UCS_ERR_UNSUPPORTED: the buffer may continue in another
 *         mapping; UCS_ERR_UNREACHABLE: the memory cannot be shared; or an
 *         error of the driver.
 */
ucs_status_t uct_cuda_coll_memory_export(uct_cuda_coll_memory_t *memory,
                                         const void *address, size_t bytes,
                                         const uct_cuda_memory_t *allocation,
                                         uct_cuda_node_announcement_t *post,
                                         uct_cuda_node_location_t *shown);


/** Return whether all ranks have mapped the plan's scratch memory; the same
 *  answer on all ranks. */
bool uct_cuda_coll_memory_has(const uct_cuda_coll_memory_t *memory,
                              const uct_cuda_plan_coll_t *plan);

/** Allocate and export this rank's scratch memory of a plan, and on rank 0 that
 *  of its relays, unless they are large enough. */
ucs_status_t uct_cuda_coll_memory_make(uct_cuda_coll_memory_t *memory,
                                       const uct_cuda_plan_coll_t *plan);

/** Map all memory of other ranks used by this call, after they have allocated
 *  it. A failed mapping is retried in the next call, then ever more rarely. */
ucs_status_t uct_cuda_coll_memory_map(uct_cuda_coll_memory_t *memory,
                                      const uct_cuda_plan_coll_t *plan);

/**
 * Record that all ranks have mapped the memory or, with @a is_done false, that
 * one of them failed. Called on all ranks.
 */
void uct_cuda_coll_memory_mapped(uct_cuda_coll_memory_t *memory,
                                 const uct_cuda_plan_coll_t *plan,
                                 bool is_done);

/** Record that a rank has lost its mappings: no memory counts as mapped by all
 *  ranks. This rank's own mappings stay. Called on all ranks. */
void uct_cuda_coll_memory_drop_mapped(uct_cuda_coll_memory_t *memory);

/** Free the scratch memory of relays. */
void uct_cuda_coll_memory_free_relays(uct_cuda_coll_memory_t *memory);


/** Fill in the addresses of a call, as mapped by this rank. */
void uct_cuda_coll_memory_place(const uct_cuda_coll_memory_t *memory,
                                const uct_cuda_plan_coll_t *plan,
                                uct_cuda_run_coll_call_t *run);


END_C_DECLS

#endif
