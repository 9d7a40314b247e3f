/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams and reduction kernels of a context, for collectives. Created at first
 * use, shared by all teams of the process, and kept until the process or the
 * context ends.
 */
#ifndef UCT_CUDA_RUN_DEVICE_H
#define UCT_CUDA_RUN_DEVICE_H

#include <kernels/kernels.h>
#include <uct/cuda/base/context_data.h>
#include <uct/cuda/base/driver.h>


BEGIN_C_DECLS


typedef struct uct_cuda_coll_device uct_cuda_run_coll_device_t;

/** Page-locked memory words. */
typedef struct uct_cuda_coll_words uct_cuda_run_coll_words_t;


/**
 * Return the streams and kernels of the current context. They exist while the
 * caller holds the context.
 *
 * @return UCS_OK, UCS_ERR_NO_MEMORY, UCS_ERR_UNSUPPORTED (a driver without
 *         kernels).
 */
ucs_status_t
uct_cuda_run_coll_device_get(uct_cuda_context_t *context,
                             uct_cuda_run_coll_device_t **device_p);


/** Return the stream of a queue, with the context current. The first call for a
 *  queue creates it and logs a failure. */
ucs_status_t uct_cuda_run_coll_device_stream(uct_cuda_run_coll_device_t *device,
                                             unsigned queue,
                                             CUstream *stream_p);


/**
 * Allocate zeroed words for GPUs to write, with the context current.
 *
 * They are reused, not freed: cuMemFreeHost() would wait for the program's work
 * and block all calls of the context meanwhile. At most twice the peak use of
 * the context's teams is allocated.
 *
 * @param count    Minimum number of words.
 * @param words_p  Filled; NULL: none.
 * @return Handle to release when no GPU writes the words any more; NULL: the
 *         driver cannot write words or has no memory (logged).
 */
uct_cuda_run_coll_words_t *
uct_cuda_run_coll_device_get_words(uct_cuda_run_coll_device_t *device,
                                   unsigned count, uint32_t **words_p);

void uct_cuda_run_coll_device_put_words(uct_cuda_run_coll_device_t *device,
                                        uct_cuda_run_coll_words_t *words);


/**
 * Compile and load the kernels of an operation unless loaded, with the context
 * current. Loading waits for all work queued by the program, which may in turn
 * wait for the program, so it is only done when the GPU becomes idle within
 * 2 ms; this call waits for that.
 *
 * @return UCS_OK; UCS_ERR_BUSY: not idle; the driver's failure (logged).
 */
ucs_status_t uct_cuda_run_coll_device_load(uct_cuda_run_coll_device_t *device,
                                           ucx_mp_op_t op, ucx_mp_type_t type);


/** Launch a reduction; logs a failure. */
ucs_status_t uct_cuda_run_coll_device_reduce(uct_cuda_run_coll_device_t *device,
                                             ucx_mp_op_t op, ucx_mp_type_t type,
                                             const ucx_mp_reduce_args_t *args,
                                             CUstream stream);


END_C_DECLS

#endif
