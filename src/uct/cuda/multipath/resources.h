/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What both executors work with: contexts, streams, events and staging memory
 * of the GPUs that transfers touch. Made when first wanted. Not thread-safe.
 *
 * A transfer is one or more plans: prepare each of them and hand it to an
 * executor, then finish the whole, or abort it.
 */
#ifndef UCT_CUDA_MP_RESOURCES_H
#define UCT_CUDA_MP_RESOURCES_H

#include <uct/cuda/base/driver.h>
#include <uct/cuda/multipath/plan.h>
#include <uct/cuda/multipath/staging.h>

BEGIN_C_DECLS


typedef struct uct_cuda_mp_rsc uct_cuda_mp_rsc_t;


/** Streams that a transfer's last copies can be on: those of the lanes into its
 *  destination, and those that graphs take turns in. */
#define UCT_CUDA_MP_MAX_ENDINGS (UCT_CUDA_NUM_ENDS + 2)


/** Behind the last copy of one stream. */
typedef struct {
    CUevent            event;
    int                device; /**< Whose context it is of ... */
    unsigned long long ctx_id; /**< ... which may be gone since */
} uct_cuda_mp_ending_t;


/** Events behind a transfer's last copies. The first num_pending have not been
 *  seen to happen. */
typedef struct {
    unsigned             count;
    unsigned             num_pending;
    unsigned             turn;
    uct_cuda_mp_ending_t events[UCT_CUDA_MP_MAX_ENDINGS];
} uct_cuda_mp_endings_t;


/** Where a transfer's two ends are. */
typedef struct {
    CUdeviceptr  src;
    CUdeviceptr  dst;
    /** A GPU, or host memory that is page-locked for all contexts; not both
     *  are host memory */
    uct_cuda_end_t src_end;
    uct_cuda_end_t dst_end;
    /** The one of them, or none, whose memory is another process's: src or dst
     *  is good for the other end's context only, and for none if that is the
     *  host's. */
    uct_cuda_end_t remote;
    /** The remote end's address in the contexts of other devices, and in its
     *  own if the other end is the host's */
    CUdeviceptr  mapped[UCT_CUDA_MAX_GPUS];
    /** Where in the host's end, in bytes and ascending, a piece of page-locked
     *  memory ends and another begins: no copy may cross that */
    unsigned     num_cuts;
    const size_t *cuts;
} uct_cuda_mp_ends_t;


/** Is one of the ends host memory? */
static inline bool uct_cuda_mp_ends_is_host(const uct_cuda_mp_ends_t *ends)
{
    return uct_cuda_mp_plan_ends_host(ends->src_end, ends->dst_end);
}


/**
 * The device that a transfer belongs to, whose context its completion is of:
 * that of the end that is this process's own, or of the source if both are. If
 * one is host memory, the other one's: there is no other.
 */
static inline int uct_cuda_mp_ends_local(const uct_cuda_mp_ends_t *ends)
{
    if (!uct_cuda_mp_ends_is_host(ends) &&
        uct_cuda_end_equal(ends->src_end, ends->remote)) {
        return uct_cuda_end_device(ends->dst_end);
    }

    return uct_cuda_end_device(
            uct_cuda_mp_plan_gpu_end(ends->src_end, ends->dst_end));
}


/** Is a GPU an end with memory of this process? */
static inline bool
uct_cuda_mp_ends_is_local_gpu(const uct_cuda_mp_ends_t *ends, int device)
{
    return !uct_cuda_end_is_device(ends->remote, device) &&
           (uct_cuda_end_is_device(ends->src_end, device) ||
            uct_cuda_end_is_device(ends->dst_end, device));
}


/** UCS_OK or UCS_ERR_NO_MEMORY. Asks nothing of the driver. */
ucs_status_t
uct_cuda_mp_rsc_create(uct_cuda_mp_rsc_t **rsc_p);


/** Waits for all copies, then frees streams, events, staging memory and
 *  contexts. None of them may be lost. */
void uct_cuda_mp_rsc_destroy(uct_cuda_mp_rsc_t *rsc);


/**
 * Set up what a plan needs and is not there yet: contexts, peer access, streams
 * and staging memory. A few comparisons when nothing is missing.
 *
 * @param path_p  On failure, index of the plan's path that cannot be had.
 * @return UCS_OK; UCS_ERR_NO_MEMORY when staging memory of this size is not to
 *         be had (a smaller one may be; not logged); UCS_ERR_UNREACHABLE for
 *         missing peer access; UCS_ERR_NO_RESOURCE or another error (logged).
 */
ucs_status_t uct_cuda_mp_rsc_prepare(uct_cuda_mp_rsc_t *rsc,
                                         const uct_cuda_mp_plan_t *plan,
                                         const uct_cuda_mp_ends_t *ends,
                                         unsigned *path_p);


/**
 * GPU in whose context a step reads or writes the remote end, and which
 * therefore needs a mapping of it; none also if it is the local end's, which
 * has one.
 */
uct_cuda_end_t uct_cuda_mp_rsc_remote_reader(const uct_cuda_mp_ends_t *ends,
                                      const uct_cuda_mp_step_t *step);


/** Devices whose contexts a path takes, a bit each. */
uint32_t uct_cuda_mp_rsc_path_devices(const uct_cuda_mp_plan_t *plan,
                                      const uct_cuda_mp_ends_t *ends,
                                      const uct_cuda_mp_path_t *path);


/** Devices whose contexts are there, a bit each. */
uint32_t uct_cuda_mp_rsc_devices(const uct_cuda_mp_rsc_t *rsc);

bool uct_cuda_mp_rsc_has_host_staging(const uct_cuda_mp_rsc_t *rsc, int numa);


/** Devices, a bit each, whose contexts were there and have been reset or
 *  destroyed by the program since. One driver call a context. */
uint32_t uct_cuda_mp_rsc_lost(const uct_cuda_mp_rsc_t *rsc);


/**
 * Forget all that was of these devices' contexts, without a word to the driver,
 * which would not survive it; what is wanted of them next is made anew. Waits
 * for the copies of the other devices.
 */
void uct_cuda_mp_rsc_lose(uct_cuda_mp_rsc_t *rsc, uint32_t devices);


/** Take over a reference to a device's context, which has this number. */
void uct_cuda_mp_rsc_adopt_ctx(uct_cuda_mp_rsc_t *rsc, int device,
                               CUcontext ctx, unsigned long long id);


/**
 * Take over staging memory, or free it if there is some already. A context is
 * current, and that of the memory's GPU if it has one.
 *
 * @param numa  Node of host memory.
 */
void uct_cuda_mp_rsc_adopt_staging(uct_cuda_mp_rsc_t *rsc, int numa,
                                   uct_cuda_mp_staging_t *staging);


/** Context of a device that a successful prepare needed. */
CUcontext uct_cuda_mp_rsc_ctx(const uct_cuda_mp_rsc_t *rsc,
                                  int device);


/**
 * Have events happen when all copies submitted since the last finish or abort
 * have ended: one a stream that writes to the destination. Joining these in one
 * more stream would cost each transfer 5 us (3 to 7 us, measured on H200).
 * They go back with uct_cuda_mp_rsc_put_endings().
 */
ucs_status_t uct_cuda_mp_rsc_finish(uct_cuda_mp_rsc_t *rsc,
                                    const uct_cuda_mp_ends_t *ends,
                                    uct_cuda_mp_endings_t *endings);


/** Have all happened? UCS_OK, UCS_INPROGRESS, or the driver's error (logged).
 *  As a rule one event query. Any thread. */
ucs_status_t uct_cuda_mp_endings_test(uct_cuda_mp_endings_t *endings);


/** Wait until all have happened, whatever the driver says of them. */
void uct_cuda_mp_endings_wait(uct_cuda_mp_endings_t *endings);


void uct_cuda_mp_rsc_put_endings(uct_cuda_mp_rsc_t *rsc,
                                 const uct_cuda_mp_endings_t *endings);


/** Nothing is in flight: what is submitted next has nobody to wait for. Spares
 *  it its waits, which hold it up even for what has happened long ago. */
void uct_cuda_mp_rsc_idle(uct_cuda_mp_rsc_t *rsc);


/** Wait for all copies submitted since the last finish or abort. */
void uct_cuda_mp_rsc_abort(uct_cuda_mp_rsc_t *rsc);


/** Have the driver call @a func once all have happened; from a stream of
 *  @a device's context. */
ucs_status_t
uct_cuda_mp_rsc_notify(uct_cuda_mp_rsc_t *rsc, int device,
                       const uct_cuda_mp_endings_t *endings, CUhostFn func,
                       void *arg);


/** An event without timing; the device's context has to be current. */
ucs_status_t
uct_cuda_mp_rsc_get_event(uct_cuda_mp_rsc_t *rsc, int device,
                                CUevent *event_p);


/** Give an event back. Waits for it that were submitted hold on. */
void uct_cuda_mp_rsc_put_event(uct_cuda_mp_rsc_t *rsc,
                                     int device, CUevent event);


/*
 * For the executors
 */

/**
 * Whose context a lane's stream belongs to, and so whose copy engines work it:
 * the GPU that sends, or, from the host, the one that receives. Two copies that
 * leave a GPU's engines at once share them by turns, and the slower one holds
 * up the other: with the host's path on the engines of the direct one, both
 * together ran at 200 instead of 380 GB/s (measured on H200). The direct lane
 * is the local end's, as a plain copy is.
 */
int uct_cuda_mp_rsc_lane_device(const uct_cuda_mp_ends_t *ends, uint16_t lane);


/**
 * A lane is for one transfer at a time, in the order of submission, whoever
 * carries it out. Two at once would share it, and so end together and leave
 * both lanes of a relayed path idle at the same time, where one behind the
 * other fills the first lane while its forerunner drains the second.
 *
 * A stream keeps that order by itself. Graphs keep it by an event a lane, its
 * tail, which each of them waits for in front of its first copy on the lane and
 * records behind its last one. A graph that is alone spares itself these nodes:
 * whoever has one of its lanes next waits for its end.
 */

/** Stream of a lane, made to wait for the graphs that have the lane: for work
 *  that no graph has. The lane's device becomes current. */
ucs_status_t uct_cuda_mp_rsc_lane_to_stream(uct_cuda_mp_rsc_t *rsc, int device,
                                            uint16_t lane, int *current,
                                            CUstream *stream_p);

/** A lane's tail for nodes of a graph. The same one for good. */
ucs_status_t uct_cuda_mp_rsc_lane_tail(uct_cuda_mp_rsc_t *rsc, int device,
                                       uint16_t lane, int *current,
                                       CUevent *tail_p);

/** Before a launch: have the lane's tail stand for what its stream was given
 *  last, and the launch wait for what its nodes do not. */
ucs_status_t uct_cuda_mp_rsc_lane_to_graph(uct_cuda_mp_rsc_t *rsc, int device,
                                           uint16_t lane, bool is_tailed,
                                           CUstream launch, int *current);

/** After it.
 *
 * @param ended  As of uct_cuda_mp_rsc_launch_stream(), recorded. */
void uct_cuda_mp_rsc_lane_launched(uct_cuda_mp_rsc_t *rsc, int device,
                                   uint16_t lane, bool is_tailed,
                                   CUevent ended);


/**
 * Stream of the local end's context for one graph. Graphs between the same two
 * GPUs take two streams in turns, so that one begins while another ends.
 *
 * @param ended_p  To be recorded behind the graph. Who waits for it may come to
 *                 wait for the next graph in the stream as well.
 */
ucs_status_t uct_cuda_mp_rsc_launch_stream(uct_cuda_mp_rsc_t *rsc,
                                           const uct_cuda_mp_ends_t *ends,
                                           CUstream *stream_p,
                                           CUevent *ended_p);


/** The transfer that is being submitted has work on this stream of a device's
 *  context, and with @a is_ending some that no other work waits for. */
void uct_cuda_mp_rsc_note_used(uct_cuda_mp_rsc_t *rsc, int device,
                               CUstream stream, bool is_ending);


/** Make a device's context current unless @a current says that it is; replaces
 *  the top of the stack, which the caller has pushed. */
ucs_status_t
uct_cuda_mp_rsc_make_current(uct_cuda_mp_rsc_t *rsc,
                                   int device, int *current);


/**
 * Where a step copies from and to, for the context of its lane.
 *
 * @param offset  Where the plan's first byte is in the transfer, bytes.
 */
void uct_cuda_mp_rsc_addresses(uct_cuda_mp_rsc_t *rsc,
                               const uct_cuda_mp_step_t *step,
                               const uct_cuda_mp_ends_t *ends, size_t offset,
                               CUdeviceptr *from_p, CUdeviceptr *to_p);


/** Staging memory that a staging place, or a path of a plan, is in; NULL for a
 *  direct path. */
uct_cuda_mp_staging_t *
uct_cuda_mp_rsc_staging(uct_cuda_mp_rsc_t *rsc,
                              const uct_cuda_mp_place_t *place);

uct_cuda_mp_staging_t *
uct_cuda_mp_rsc_path_staging(uct_cuda_mp_rsc_t *rsc,
                                   const uct_cuda_mp_plan_t *plan,
                                   unsigned path);


/** Make a stream wait for the last graph that had a bank, if any had. */
ucs_status_t uct_cuda_mp_rsc_wait_bank(const uct_cuda_mp_bank_t *bank,
                                       CUstream stream);


/** The graph launched last in a stream, whose device's context is current, has
 *  the bank; whoever waits for it waits for no later one. */
ucs_status_t uct_cuda_mp_rsc_give_bank(uct_cuda_mp_rsc_t *rsc,
                                       uct_cuda_mp_bank_t *bank, int device,
                                       CUstream stream);


/** As uct_cuda_mp_rsc_give_bank(), by the event of the launch's stream: one for
 *  all banks. */
void uct_cuda_mp_rsc_lend_bank(uct_cuda_mp_rsc_t *rsc, uct_cuda_mp_bank_t *bank,
                               CUevent ended);


/** The next plan begins behind the slots, or banks, of each staging memory that
 *  this one uses. */
void uct_cuda_mp_rsc_advance(uct_cuda_mp_rsc_t *rsc,
                             const uct_cuda_mp_plan_t *plan, bool whole_banks);


END_C_DECLS

#endif
