/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Multi-path engine: carries a large transfer over several links of the node at
 * once. This is its interface for transports.
 */
#ifndef UCT_CUDA_MULTIPATH_MULTIPATH_H
#define UCT_CUDA_MULTIPATH_MULTIPATH_H

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/end.h>
#include <uct/cuda/plan/config.h>
#include <uct/cuda/plan/reason.h>
#include <uct/cuda/run/request.h>

#include <stdbool.h>
#include <stdint.h>

BEGIN_C_DECLS


typedef struct uct_cuda_mp_transfer uct_cuda_mp_transfer_t;


/** Public members are those used by the inline checks. */
typedef struct uct_cuda_mp_engine {
    /** Transfers between GPUs below this size, bytes, are never split; updated
     *  after the node is probed */
    size_t min_size;
    size_t host_min_size; /**< The same between host memory and a GPU */
    /** min_size for transfers behind others, bytes; 0: unknown */
    size_t behind_min_size;
    size_t host_behind_min_size; /**< The same with host memory */
} uct_cuda_mp_engine_t;


/**
 * Create an engine. Cheap: topology, contexts, streams and staging memory are
 * created for the first transfer that uses them, and destroyed with the engine.
 *
 * @return UCS_OK; UCS_ERR_INVALID_PARAM: contradictory configuration (logged);
 *         UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_mp_engine_create(const uct_cuda_plan_config_t *config,
                                       uct_cuda_mp_engine_t **engine_p);


/**
 * Return the process's engine of this configuration, created at the first call:
 * interfaces share contexts, streams and staging memory. Thread safe. Each
 * success needs one uct_cuda_mp_engine_put(); the last one destroys the engine.
 *
 * @return As uct_cuda_mp_engine_create().
 */
ucs_status_t uct_cuda_mp_engine_get(const uct_cuda_plan_config_t *config,
                                    uct_cuda_mp_engine_t **engine_p);

/**
 * Add a reference to any existing engine, for callers without a configuration
 * of their own.
 *
 * @return UCS_OK or UCS_ERR_NO_ELEM.
 */
ucs_status_t uct_cuda_mp_engine_get_any(uct_cuda_mp_engine_t **engine_p);

void uct_cuda_mp_engine_put(uct_cuda_mp_engine_t *engine);


/** Destroy an engine. Waits for running transfers; transfers not released
 *  are freed, too. */
void uct_cuda_mp_engine_destroy(uct_cuda_mp_engine_t *engine);


/** Return the smallest size, bytes, for which to call uct_cuda_mp_start() with
 *  a transfer between GPUs; SIZE_MAX if multi-path is off. Costs one load;
 *  thread safe. */
static inline size_t uct_cuda_mp_min_size(const uct_cuda_mp_engine_t *engine)
{
    return __atomic_load_n(&engine->min_size, __ATOMIC_RELAXED);
}

/** Like uct_cuda_mp_min_size(), for a transfer from or to host memory. */
static inline size_t
uct_cuda_mp_host_min_size(const uct_cuda_mp_engine_t *engine)
{
    return __atomic_load_n(&engine->host_min_size, __ATOMIC_RELAXED);
}

/** Like uct_cuda_mp_min_size(), for a transfer behind others. */
static inline size_t
uct_cuda_mp_behind_min_size(const uct_cuda_mp_engine_t *engine)
{
    const size_t behind = __atomic_load_n(&engine->behind_min_size,
                                          __ATOMIC_RELAXED);
    const size_t least  = uct_cuda_mp_min_size(engine);

    return (behind > least) ? behind : least;
}

static inline bool
uct_cuda_mp_may_split(const uct_cuda_mp_engine_t *engine, size_t size)
{
    return __builtin_expect(size >= uct_cuda_mp_min_size(engine), 0);
}

static inline bool
uct_cuda_mp_may_split_host(const uct_cuda_mp_engine_t *engine, size_t size)
{
    return __builtin_expect(size >= uct_cuda_mp_host_min_size(engine), 0);
}


/**
 * Return whether uct_cuda_mp_start() would take this transfer now. Costs a few
 * loads; thread safe. It saves a single transfer all further work if its size
 * gains only behind others.
 *
 * @return UCT_CUDA_PLAN_ADMITTED, or the reason. The planner may still decline.
 */
uct_cuda_plan_reason_t uct_cuda_mp_admit(uct_cuda_mp_engine_t *engine,
                                         const uct_cuda_run_request_t *request);


/**
 * Start a transfer if several paths, or a path other than a plain copy's, are
 * faster. In windows from host memory each transfer may use one path.
 *
 * The source data must be ready. Any current context, or none, is allowed and
 * stays current; if one end is remote and the other a GPU, the remote memory is
 * mapped in it. Waits for copies only to clean up after a failure.
 *
 * @param memory      Used during the call only.
 * @param transfer_p  NULL with UCS_OK: one path is best (the reason is logged
 *                    at debug level), and the caller makes the copy. Nothing is
 *                    mapped.
 * @return UCS_OK; UCS_ERR_NO_MEMORY or another error (logged) of preparation or
 *         submission: nothing is in flight, nothing will be written later, and
 *         the caller may copy over one path. The engine remains usable.
 */
ucs_status_t uct_cuda_mp_start(uct_cuda_mp_engine_t *engine,
                               const uct_cuda_run_request_t *request,
                               uct_cuda_run_memory_t *memory,
                               uct_cuda_mp_transfer_t **transfer_p);


/**
 * Return whether a transfer has completed. Costs one event query (1.5 us).
 *
 * @return UCS_OK: every byte is at its destination; UCS_INPROGRESS; or the
 *         driver's error (logged): the destination is undefined.
 */
ucs_status_t uct_cuda_mp_test(uct_cuda_mp_transfer_t *transfer);


/**
 * Let the driver call @a func(@a arg) when the transfer has ended, in a thread
 * of the driver, where CUDA functions are not allowed. For event-driven wakeup.
 *
 * @return UCS_OK; otherwise @a func will not be called.
 */
ucs_status_t uct_cuda_mp_notify(uct_cuda_mp_transfer_t *transfer,
                                CUhostFn func, void *arg);


/** Release a transfer. Waits for it if it is running. */
void uct_cuda_mp_release(uct_cuda_mp_transfer_t *transfer);


/** Return the number of copies submitted for a transfer. */
unsigned uct_cuda_mp_num_steps(const uct_cuda_mp_transfer_t *transfer);


/** Smaller single-path messages, bytes, are not counted: they end before
 *  another process could react. */
#define UCT_CUDA_MP_COUNTED_MIN_SIZE (256ul << 10)

/** Messages of this size, bytes, count as queued: they take long enough (20 us
 *  at 390 GB/s) for the next one to fill its paths behind them. */
#define UCT_CUDA_MP_LARGE_MIN_SIZE (8ul << 20)

#define UCT_CUDA_MP_NOT_COUNTED UINT16_MAX

/**
 * Report to the engine, and so to the other processes of the node, a large
 * message copied by the caller over one link. With host memory at one end it
 * also reports whether others may follow. Thread safe; about 0.05 us, more in
 * the first call, which opens the ledger.
 *
 * @param size  Bytes.
 * @return Value for uct_cuda_mp_single_end() at the end of the message;
 *         UCT_CUDA_MP_NOT_COUNTED: nothing to report.
 */
uint16_t uct_cuda_mp_single_begin(uct_cuda_mp_engine_t *engine,
                                  uct_cuda_end_t src, uct_cuda_end_t dst,
                                  size_t size);

void uct_cuda_mp_single_end(uct_cuda_mp_engine_t *engine, uint16_t counted);


/** Count a message for the summary. Call it only if the summary's log level
 *  is on. Thread safe. */
void uct_cuda_mp_count(uct_cuda_mp_engine_t *engine);

/** Before threads copy pageable memory, update their number to the processors
 *  that other processes of the node leave. Thread safe; costs a clock read,
 *  and every 0.1 s a search for those processes. */
void uct_cuda_mp_share_cpus(uct_cuda_mp_engine_t *engine);


END_C_DECLS

#endif
