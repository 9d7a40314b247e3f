/* SPDX-License-Identifier: BSD-3-Clause */

/* Work of the driver as operations of the simulation. */
#ifndef CUEMU_WORK_H_
#define CUEMU_WORK_H_

#include "cuemu_memory.h"

/* Action of a simulated operation when it is served */
typedef enum {
    CUEMU_PAYLOAD_NONE = 0,
    CUEMU_PAYLOAD_MOVE,
    CUEMU_PAYLOAD_FILL,
    CUEMU_PAYLOAD_CALL,   /* host function in the process `owner` */
    CUEMU_PAYLOAD_WATCH,  /* wake a waiter, see cuemu_work_watch() */
    CUEMU_PAYLOAD_KERNEL  /* function `func` of the driver, such as job.c's */
} cuemu_payload_kind_t;

typedef struct {
    int32_t  kind;
    int32_t  move;                    /* shared->moves, -1: not listed */
    int32_t  src_gpu, dst_gpu;        /* -1: memory of the owner */
    uint64_t src, dst;
    uint64_t width, height;           /* bytes of a row, rows */
    uint64_t src_pitch, dst_pitch;
    uint64_t value;                   /* FILL; MOVE: address of src */
    uint32_t value_size;
    uint32_t spare;
    uint64_t func, arg, stream;       /* CALL, KERNEL; MOVE: address of dst,
                                         memory to be freed, context; FILL of
                                         the owner's memory: its context */
} cuemu_payload_t;

typedef struct {
    cuemu_op_desc_t desc;
    cuemu_payload_t payload;
} cuemu_work_t;

/* Return the current emulated time. */
cuemu_time_t cuemu_now(void);

/* Report to the clock that the calling thread enters the driver. Pairs with
   cuemu_work_call_end() may nest: the outermost pair counts. */
void cuemu_work_call_begin(void);

/* Report to the clock that the calling thread leaves the driver. */
void cuemu_work_call_end(void);

/* Return the time of a call on this node, ps. */
cuemu_time_t cuemu_cost(cuemu_call_t call);

/* Hold the caller until emulated time `until`, serving due operations
   meanwhile. Returns at once if that time has passed. */
void cuemu_work_spend_until(cuemu_time_t until);

/* Hold the caller for the time of a call that has found or done something. */
void cuemu_work_spend(cuemu_call_t call);

/* Hold the caller for a query that found nothing done. Takes longer, the longer
   this thread has found nothing; ends early with a copy's end or the work of
   another rank. */
void cuemu_work_spend_polling(cuemu_call_t call);

/* Hold the caller for `call`. During the last part, as long as `held` takes,
   calls of other threads wait until it ends. */
void cuemu_work_spend_held(cuemu_call_t call, cuemu_call_t held);

/* Wait once, in a loop that waits for other calls or for work: serve due
   operations, or hold the caller for 1 us. */
void cuemu_work_pause(void);

/* Hold the caller while a call of another thread is in the part given to
   cuemu_work_spend_held() as `held`. */
void cuemu_work_wait_held(void);

/* Submit an operation to a stream, waiting for a free operation if necessary.
   `at` is the end of the submitting call. Returns the operation, 0 on failure.
   Call with cuemu_lock(). */
cuemu_op_id_t cuemu_work_submit(cuemu_stream_t *stream, cuemu_work_t *work,
                                const cuemu_op_id_t *deps, unsigned num_deps,
                                cuemu_time_t at);

/* Return an operation that ends when all work in the stream so far has ended; 0
   if it has. Call with cuemu_lock(). */
cuemu_op_id_t cuemu_work_tail(cuemu_stream_t *stream);

/* Return the stream's newest operation, 0 if it has ended. Work of other
   streams before it does not count. Call with cuemu_lock(). */
cuemu_op_id_t cuemu_work_last(cuemu_stream_t *stream);

/* Let the event stand for the end of operations (none: past work), instead of
   its last record. `start`, `at`: time of recording, and end of the call. Call
   with cuemu_lock(). */
void cuemu_work_record(cuemu_event_t *event, const cuemu_op_id_t *ops,
                       unsigned count, cuemu_time_t start, cuemu_time_t at);

/* Forget the work of the event's last record. Call with cuemu_lock(). */
void cuemu_work_release(cuemu_event_t *event);

/* Return non-zero if the event's work is done, and store its end time. Call
   with cuemu_lock(). */
int cuemu_work_settle(cuemu_event_t *event);

/* Let the context keep the work of a stream that is destroyed. Call with
   cuemu_lock(). */
void cuemu_work_orphan(cuemu_stream_t *stream);

/* Return an operation that ends when all work queued in the context so far has
   ended, that of destroyed streams included; 0 if it has. Call with
   cuemu_lock(). */
cuemu_op_id_t cuemu_context_tail(cuemu_context_t *ctx);

/* Delay the next operation in an idle stream, at most for a while, until the
   process waits for it: by submitting work behind it, or by waiting for the
   stream or an event in it. Kept as stream->lingers; 0: the stream is not idle.
   Call with cuemu_lock(). */
cuemu_op_id_t cuemu_work_linger(cuemu_stream_t *stream, cuemu_time_t now);

/* End all delays by cuemu_work_linger(). Call with cuemu_lock(). */
void cuemu_work_hurry_all(void);

/* Add an operation that belongs to no stream, waiting for a free one if
   necessary. `at`: its earliest submission time. Fills the owner and payload of
   work->desc. Returns the operation; 0 on failure (reported on stderr). Call
   with cuemu_lock(). */
cuemu_op_id_t cuemu_work_add(cuemu_work_t *work, const cuemu_op_id_t *deps,
                             unsigned num_deps, cuemu_time_t at);

/* Describe a copy of `height` rows of `width` bytes; pitches in bytes. Sets the
   places that determine its time, and the bytes to move. */
void cuemu_work_set_move(cuemu_work_t *work, const cuemu_range_t *dst,
                         uint64_t dst_pitch, const cuemu_range_t *src,
                         uint64_t src_pitch, uint64_t width, uint64_t height);

/* Describe the call of a function with `arg`, by the process itself when a
   stream gets there: a host function, or one of the driver's (KERNEL). */
void cuemu_work_set_call(cuemu_work_t *work, cuemu_payload_kind_t kind,
                         void *func, void *arg);

/* Let the engine of the GPU of `ctx`, the stream's or the graph node's context,
   make a copy set by cuemu_work_set_move(). Changes the time only of a copy
   between two GPUs whose source is not that GPU. */
void cuemu_work_set_engine(cuemu_work_t *work, const cuemu_context_t *ctx,
                           const cuemu_range_t *dst, const cuemu_range_t *src);

/* Let the contexts fail whose unfinished copies use a range that is unmapped:
   their GPUs find no mapping. */
void cuemu_work_fault(uint64_t addr, uint64_t size);

/* Return non-zero if one operation models the copy, also where the node has
   only a route through the host; zero if GPUs that could be peers lack peer
   access, so that cuemu_work_stage() has to model it. */
int cuemu_work_is_direct(const cuemu_range_t *dst, const cuemu_range_t *src);

/*
 * Submit both halves of a copy through host memory, as the driver does without
 * peer access: in pieces, so that both halves are busy all the time. `work`
 * becomes the operation behind them that moves the bytes.
 */
void cuemu_work_stage(cuemu_work_t *work, const cuemu_op_id_t *deps,
                      unsigned num_deps, cuemu_time_t at,
                      cuemu_op_id_t halves[2]);

/* Submit a copy to a stream, as cuemu_work_submit() does; `direct` is from
   cuemu_work_is_direct(). */
cuemu_op_id_t cuemu_work_copy(cuemu_stream_t *stream, cuemu_work_t *work,
                              int direct, cuemu_time_t at);

/* Return non-zero if the operation is done, or is 0. Takes the session's
   lock. */
int cuemu_work_done(cuemu_op_id_t op);

/* Submit work that lasts until a word of memory meets a condition, like a
   kernel that spins on it; see cuStreamWaitValue32. Call with cuemu_lock(). */
CUresult cuemu_work_wait_value(cuemu_stream_t *stream,
                               const cuemu_range_t *word, uint32_t value,
                               unsigned how, cuemu_time_t at);

/*
 * Announce that this process waits for the operation. When it is done, the
 * clock stops until the process has noticed, or for 5 ms of real time. So the
 * machine's load does not delay the program in emulated time. Call without any
 * lock.
 */
void cuemu_work_watch(cuemu_op_id_t op);

/* Wait for an operation, serving due ones meanwhile; 0: return at once. Call
   without any lock. */
void cuemu_work_wait(cuemu_op_id_t op);

/* Bring the simulation to the present time and serve all due operations that
   this process may serve, except host functions: those are left to the service
   thread. Returns non-zero if any were served or the simulation has changed.
   Call without any lock. */
int cuemu_work_progress(void);

/* Wait for all work queued in the context so far. Call without any lock. */
void cuemu_context_wait(cuemu_context_t *ctx);
/* Wait for all work queued in all contexts so far, as cuMemFreeHost and
   cuMemHostUnregister do. Call without any lock. */
void cuemu_process_wait(void);
/* Wait until no thread is inside cuemu_process_wait(): copies of page-locked
   memory have to. Call without any lock. */
void cuemu_process_wait_unlocked(void);

/* Counters for the report at exit */
extern uint64_t cuemu_stat_moves, cuemu_stat_bytes, cuemu_stat_torn;

/* Stop the service thread at exit and wait for its end, and for a host function
   that has just begun. Has no effect if the thread is not running. */
void cuemu_work_stop(void);

#endif
