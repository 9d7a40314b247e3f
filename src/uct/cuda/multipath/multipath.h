/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The multi-path engine: carries one large transfer over several links of the
 * node at once. This is all that a transport needs to know of it.
 */
#ifndef UCT_CUDA_MP_MULTIPATH_H
#define UCT_CUDA_MP_MULTIPATH_H

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/end.h>
#include <uct/cuda/plan/config.h>
#include <uct/cuda/plan/reason.h>
#include <uct/cuda/run/request.h>

#include <stdbool.h>
#include <stdint.h>

BEGIN_C_DECLS


typedef struct uct_cuda_mp_transfer uct_cuda_mp_transfer_t;


/** Only what the inline pre-checks need is public. */
typedef struct uct_cuda_mp_engine {
    size_t min_size;      /**< No transfer below this is ever striped, bytes.
                               Changes as the engine learns about the node. */
    size_t host_min_size; /**< The same between host memory and a GPU */
} uct_cuda_mp_engine_t;


/**
 * Create an engine. Cheap: topology, contexts, streams and staging memory come
 * for the first transfer that wants them, and go with the engine.
 *
 * @return UCS_OK; UCS_ERR_INVALID_PARAM for a configuration that contradicts
 *         itself (logged); UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_mp_engine_create(const uct_cuda_mp_config_t *config,
                                       uct_cuda_mp_engine_t **engine_p);


/**
 * The process's engine of this configuration, created for the first who asks:
 * interfaces share contexts, streams and staging memory. Any thread. Every
 * success needs a uct_cuda_mp_engine_put(); the last one destroys the engine.
 *
 * @return As uct_cuda_mp_engine_create().
 */
ucs_status_t uct_cuda_mp_engine_get(const uct_cuda_mp_config_t *config,
                                    uct_cuda_mp_engine_t **engine_p);

/** One more reference to an engine that somebody has got; UCS_ERR_NO_ELEM if
 *  there is none. For callers without a configuration of their own. */
ucs_status_t uct_cuda_mp_engine_get_any(uct_cuda_mp_engine_t **engine_p);

void uct_cuda_mp_engine_put(uct_cuda_mp_engine_t *engine);


/** Waits for transfers that are still running. Those that nobody has released
 *  are gone as well. */
void uct_cuda_mp_engine_destroy(uct_cuda_mp_engine_t *engine);


/** Is it worth calling uct_cuda_mp_start()? One load and a compare; any thread.
 *  False when multi-path is off. */
static inline bool
uct_cuda_mp_wants(const uct_cuda_mp_engine_t *engine, size_t size)
{
    return __builtin_expect(
            size >= __atomic_load_n(&engine->min_size, __ATOMIC_RELAXED), 0);
}


/** The same for a transfer from or to host memory. */
static inline bool
uct_cuda_mp_wants_host(const uct_cuda_mp_engine_t *engine, size_t size)
{
    return __builtin_expect(size >= __atomic_load_n(&engine->host_min_size,
                                                    __ATOMIC_RELAXED),
                            0);
}


/**
 * Would uct_cuda_mp_start() want this transfer, as things are? Few loads; any
 * thread. Between the sizes that gain behind others and those that gain alone,
 * it spares a lone transfer all of the rest.
 *
 * @return UCT_CUDA_MP_ADMITTED, or why not. A plan may say no all the same.
 */
uct_cuda_mp_reason_t uct_cuda_mp_admit(uct_cuda_mp_engine_t *engine,
                                       const uct_cuda_mp_request_t *request);


/**
 * Start a transfer, if several paths are better than one, or another one than
 * that of a plain copy is. In windows from host memory one path may be what
 * each takes.
 *
 * The source's bytes must be ready. Any current context, or none, is fine and
 * is left as it was; if one end is remote and the other a GPU, it is that in
 * which the remote memory is to be mapped. Never waits for a copy except to
 * clean up after a failure.
 *
 * @param memory      Needed during the start only.
 * @param transfer_p  NULL with UCS_OK: one path is best (why is logged at debug
 *                    level), do it yourself. Nothing is mapped.
 * @return UCS_OK; UCS_ERR_NO_MEMORY or another error when setting up or
 *         submitting failed: nothing is in flight any more and nothing will be
 *         written later, the caller may do the transfer by one path. The
 *         engine has logged it and stays usable.
 */
ucs_status_t uct_cuda_mp_start(uct_cuda_mp_engine_t *engine,
                               const uct_cuda_mp_request_t *request,
                               uct_cuda_mp_memory_t *memory,
                               uct_cuda_mp_transfer_t **transfer_p);


/**
 * Has it arrived? Costs one event query (1.5 us).
 *
 * @return UCS_OK when every byte is at its destination, UCS_INPROGRESS, or the
 *         driver's error (logged): the destination's contents are undefined.
 */
ucs_status_t uct_cuda_mp_test(uct_cuda_mp_transfer_t *transfer);


/**
 * Have the driver call @a func(@a arg) once the transfer has ended, from a
 * thread of its own, in which no CUDA function may be called. For event-driven
 * wake-up.
 */
ucs_status_t uct_cuda_mp_notify(uct_cuda_mp_transfer_t *transfer,
                                CUhostFn func, void *arg);


/** Give a transfer back. One that still runs is waited for. */
void uct_cuda_mp_release(uct_cuda_mp_transfer_t *transfer);


/** Copies that the driver was given for a transfer. */
unsigned uct_cuda_mp_num_steps(const uct_cuda_mp_transfer_t *transfer);


/** Smaller messages on one path are gone before anybody could heed them. */
#define UCT_CUDA_MP_COUNTED_MIN_SIZE (256ul << 10)

/** ... and behind one of these several paths are full before it has ended:
 *  20 us at 390 GB/s. */
#define UCT_CUDA_MP_LARGE_MIN_SIZE (8ul << 20)

#define UCT_CUDA_MP_NOT_COUNTED UINT16_MAX

/**
 * Tell the engine, and through it the other processes of the node, of a large
 * message that the caller moves by one copy: it uses a link all the same. With
 * host memory at one end also of what others may follow. Any thread; about
 * 0.05 us, and the first time what it takes to find the others.
 *
 * @param size  Bytes.
 * @return What uct_cuda_mp_single_end() wants to have when the message is over;
 *         UCT_CUDA_MP_NOT_COUNTED if there is nothing to tell.
 */
uint16_t uct_cuda_mp_single_begin(uct_cuda_mp_engine_t *engine,
                                  uct_cuda_end_t src, uct_cuda_end_t dst,
                                  size_t size);

void uct_cuda_mp_single_end(uct_cuda_mp_engine_t *engine, uint16_t counted);


/** A message has begun, for the line at the end; only if somebody reads it. */
void uct_cuda_mp_count(uct_cuda_mp_engine_t *engine);

/**
 * Before threads copy pageable memory: have those processors left to the other
 * processes of the node that are theirs. Any thread; a look at the clock, and
 * every 0.1 s one at the processes.
 */
void uct_cuda_mp_share_cpus(uct_cuda_mp_engine_t *engine);


END_C_DECLS

#endif
