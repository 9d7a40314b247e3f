/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What collectives use of a context: streams and reducing kernels. Made when
 * first wanted, shared by all groups of the process, and there until it ends or
 * the context does.
 */
#ifndef UCT_CUDA_COLL_DEVICE_H
#define UCT_CUDA_COLL_DEVICE_H

#include <kernels/kernels.h>
#include <uct/cuda/base/context.h>
#include <uct/cuda/base/driver.h>

#include <stdbool.h>

BEGIN_C_DECLS


typedef struct uct_cuda_coll_device uct_cuda_coll_device_t;

/** Words of page-locked memory. */
typedef struct uct_cuda_coll_words uct_cuda_coll_words_t;


/**
 * That of a context, which is current; there as long as the caller holds that.
 *
 * @return UCS_OK, UCS_ERR_NO_MEMORY, UCS_ERR_UNSUPPORTED (a driver without
 *         kernels).
 */
ucs_status_t uct_cuda_coll_device_get(uct_cuda_context_t *context,
                                      uct_cuda_coll_device_t **device_p);


/** A stream by number, with the context current; logs a failure. */
ucs_status_t uct_cuda_coll_device_stream(uct_cuda_coll_device_t *device,
                                         unsigned queue, CUstream *stream_p);


/**
 * Words that GPUs may write, zeroed, with the context current.
 *
 * They are never freed, which would wait for the program's work (cuMemFreeHost)
 * and hold up all calls of the context meanwhile, but kept for who asks next:
 * twice as much at most as all groups of the context have had at one time.
 *
 * @param count    At least so many.
 * @param words_p  Filled; NULL: none.
 * @return What to put back, when no GPU writes them any more; NULL: none,
 *         the driver cannot write words or has no memory (logged).
 */
uct_cuda_coll_words_t *
uct_cuda_coll_device_get_words(uct_cuda_coll_device_t *device, unsigned count,
                               uint32_t **words_p);

void uct_cuda_coll_device_put_words(uct_cuda_coll_device_t *device,
                                    uct_cuda_coll_words_t *words);


/**
 * Compile what an operation needs, with the context current, unless that was
 * done. Loading it waits for all that the program has queued, which may be
 * waiting for the program: it waits until there is nothing, or not.
 *
 * @return UCS_OK; UCS_ERR_BUSY: not now; the driver's failure (logged).
 */
ucs_status_t uct_cuda_coll_device_load(uct_cuda_coll_device_t *device,
                                       ucx_mp_op_t op, ucx_mp_type_t type);


/** Launch a reduction; logs a failure. */
ucs_status_t
uct_cuda_coll_device_reduce(uct_cuda_coll_device_t *device, ucx_mp_op_t op,
                            ucx_mp_type_t type,
                            const ucx_mp_reduce_args_t *args, CUstream stream);


END_C_DECLS

#endif
