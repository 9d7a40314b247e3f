/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control block of a team: shared memory in which the ranks of a node announce
 * their arguments and their progress. Each cache line has one writer; the other
 * ranks read it.
 *
 * Ranks make the same calls in the same order and number them from 1. Each rank
 * joins before any of its calls and announces its arguments from then on. GPUs
 * carry out no call before all ranks have joined. Odd and even calls use
 * different lines. A rank that falls back may already be in a later call and
 * overwrite its line. Readers therefore copy the line and check its sequence
 * number.
 */
#ifndef UCT_CUDA_NODE_CONTROL_H
#define UCT_CUDA_NODE_CONTROL_H

#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>
#include <uct/cuda/base/topo.h>
#include <uct/cuda/node/segment.h>
#include <uct/cuda/node/handle.h>
#include <uct/cuda/plan/model_constants.h>

#include <stdbool.h>
#include <stdint.h>

BEGIN_C_DECLS


/** Allocations exported by a rank at once, 224 bytes each */
#define UCT_CUDA_NODE_CONTROL_EXPORTS 128
#define UCT_CUDA_NODE_CONTROL_LINE    64


/** Location of a rank's buffer in its exported allocations. */
typedef struct {
    uint32_t index;      /**< Number of the export */
    uint32_t generation; /**< Distinguishes exports of one number */
    uint64_t offset;     /**< Bytes */
} uct_cuda_node_location_t;


typedef enum {
    UCT_CUDA_NODE_ANNOUNCE_DECLINE,   /**< The rank declines */
    UCT_CUDA_NODE_ANNOUNCE_GPU,
    UCT_CUDA_NODE_ANNOUNCE_WRITING /**< The announcement is being written */
} uct_cuda_node_announcement_kind_t;


/** Announcement of a rank at the start of a call. */
typedef struct {
    /** Number of the call and kind; written last */
    uint64_t                  stamp;
    /** Size by count, or of all blocks if they differ */
    uint64_t                  bytes;
    uint8_t                   kind; /**< uct_cuda_node_announcement_kind_t */
    uint8_t                   op;       /**< ucx_mp_op_t */
    uint8_t                   type;     /**< ucx_mp_type_t */
    uint8_t                   is_in_place;
    uint8_t                   is_new; /**< An allocation must be mapped first */
    /** The rank has another context: its mappings of peers are gone */
    uint8_t                   is_lost;
    /** A buffer ends before its bytes do */
    uint8_t                   is_short;
    uint8_t                   call;     /**< uct_cuda_coll_kind_t */
    uint8_t                   root;
    /** If the rank declines: the team's reason; 0: the rank is ahead */
    uint8_t                   reason;
    /** If the rank declines: negated ucs_status_t */
    uint8_t                   status;
    uint8_t                   reserved;
    /** Hash of the blocks' counts; 0: all equal */
    uint32_t                  counts;
    uct_cuda_node_location_t  send;     /**< Same as recv if in place */
    uct_cuda_node_location_t  recv;
} uct_cuda_node_announcement_t;


/** Phase reached by a rank in a call. */
typedef enum {
    UCT_CUDA_NODE_PHASE_PLANNED, /**< The plan is made, or there is none */
    UCT_CUDA_NODE_PHASE_MADE,  /**< Exported memory is allocated */
    UCT_CUDA_NODE_PHASE_READY, /**< All peers' memory is mapped */
    UCT_CUDA_NODE_PHASE_DONE,  /**< Its steps have ended */
    UCT_CUDA_NODE_PHASE_LAST
} uct_cuda_node_phase_t;


typedef struct uct_cuda_node_control uct_cuda_node_control_t;


/**
 * Open the control block of a team.
 *
 * @param key      Key of the team in the shared segment.
 * @param members  Segment ranks of the team's ranks.
 * @return UCS_OK, UCS_ERR_INVALID_PARAM, or as uct_cuda_node_segment_get().
 */
ucs_status_t uct_cuda_node_control_open(uct_cuda_node_segment_t *segment,
                                        uint64_t key, unsigned rank,
                                        unsigned size, const unsigned *members,
                                        uct_cuda_node_control_t **control_p);

void uct_cuda_node_control_close(uct_cuda_node_control_t *control);

/**
 * Join: this rank announces its arguments in call @a first and in all later
 * ones.
 */
void uct_cuda_node_control_join(uct_cuda_node_control_t *control,
                                uint64_t first);

/** Return the first call announced by a rank; 0: it has not joined yet. */
uint64_t uct_cuda_node_control_joined(const uct_cuda_node_control_t *control,
                                      unsigned rank);

/**
 * Return true if all ranks queue this non-blocking call, false if none does.
 * Each rank gets the same result, and none waits: by atomic operations the
 * ranks agree on the number of the first call to queue. They queue this call
 * and all later ones.
 *
 * @param number   Number of the call, the same on all ranks and rising.
 * @param is_able  Whether this rank is able to queue it. No call is queued
 *                 before each rank has been able once.
 */
bool uct_cuda_node_control_is_queued(uct_cuda_node_control_t *control,
                                     unsigned size, uint64_t number,
                                     bool is_able);

/** Values of rank 0, used by all ranks. Rank 0 sets the options before it
 *  joins, and the node before it announces its first call on GPUs. */
typedef struct {
    int32_t         algorithm; /**< uct_cuda_plan_coll_algorithm_t, or AUTO */
    int32_t         multipath; /**< 0, 1, or AUTO */
    bool            has_topo;
    uct_cuda_topo_t topo;      /**< Node as seen by rank 0 */
    uct_cuda_plan_model_t transfers; /**< Model constants of transfers on it */
} uct_cuda_node_control_common_t;

uct_cuda_node_control_common_t *
uct_cuda_node_control_common(uct_cuda_node_control_t *control);


/**
 * Announce this rank's arguments of call @a sequence. Ignores post->stamp.
 */
void uct_cuda_node_control_announce(uct_cuda_node_control_t *control,
                                    uint64_t sequence,
                                    const uct_cuda_node_announcement_t *post);

/** Announce only that this rank declines; the reason must not be 0. */
void uct_cuda_node_control_decline(uct_cuda_node_control_t *control,
                                   uint64_t sequence, uint8_t reason,
                                   ucs_status_t status);

/**
 * Read a rank's announcement of a call, without waiting. If the rank declines,
 * only kind, reason and status are filled in. A rank already in a later call
 * has declined (reason 0): it did not wait for this rank.
 *
 * @return false: not announced yet; @a post is undefined.
 */
bool uct_cuda_node_control_read(const uct_cuda_node_control_t *control,
                                unsigned rank, uint64_t sequence,
                                uct_cuda_node_announcement_t *post);


/** Announce that this rank has reached a phase of a call, with a status. */
void uct_cuda_node_control_reach(uct_cuda_node_control_t *control,
                                 uct_cuda_node_phase_t phase, uint64_t sequence,
                                 ucs_status_t status);

/** Return the status with which a rank reached a phase of a call;
 *  UCS_INPROGRESS: not yet; UCS_OK also if the rank is in a later call. */
ucs_status_t
uct_cuda_node_control_reached(const uct_cuda_node_control_t *control,
                              unsigned rank, uct_cuda_node_phase_t phase,
                              uint64_t sequence);


/** Set the UUID of this rank's GPU; valid with an announcement that has
 *  is_lost set. */
void uct_cuda_node_control_set_gpu(uct_cuda_node_control_t *control,
                                   const uint8_t uuid[16]);

const uint8_t *uct_cuda_node_control_gpu(const uct_cuda_node_control_t *control,
                                         unsigned rank);


/** Store how many steps of call @a sequence have completed on one of this
 *  rank's queues. The steps of a queue complete in order. */
void uct_cuda_node_control_step(uct_cuda_node_control_t *control,
                                unsigned queue, uint64_t sequence,
                                uint32_t steps);

/** Return how many steps of call @a sequence have completed on a rank's queue:
 *  0 if the rank has stored none yet, UINT32_MAX if it is in a later call. */
uint32_t uct_cuda_node_control_steps(const uct_cuda_node_control_t *control,
                                     unsigned rank, unsigned queue,
                                     uint64_t sequence);


/**
 * Export an allocation, before the announcement that uses it.
 *
 * @param handle  NULL: withdraw the export; peers unmap it.
 * @return Generation of the export.
 */
uint32_t uct_cuda_node_control_export(uct_cuda_node_control_t *control,
                                      unsigned index,
                                      const uct_cuda_node_handle_t *handle);

/** Return an export of another rank and its generation; NULL: none. The
 *  handle is in shared memory, where the rank may change it later. */
const uct_cuda_node_handle_t *
uct_cuda_node_control_exported(const uct_cuda_node_control_t *control,
                               unsigned rank, unsigned index,
                               uint32_t *generation_p);


/** Return whether a rank's process is alive and has not left the team.
 *  Takes a system call. Works across PID namespaces. */
bool uct_cuda_node_control_is_alive(const uct_cuda_node_control_t *control,
                                    unsigned rank);

/** As uct_cuda_node_control_is_alive(), true also if it has left the team. */
bool uct_cuda_node_control_is_running(const uct_cuda_node_control_t *control,
                                      unsigned rank);


END_C_DECLS

#endif
