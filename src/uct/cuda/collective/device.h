/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What collectives use of a context: streams and reducing kernels. Made when
 * first wanted, shared by all groups of the process, and there until it ends or
 * the context does.
 */
#ifndef UCT_CUDA_COLL_DEVICE_H
#define UCT_CUDA_COLL_DEVICE_H

#include <kernels/kernels.h>
#include <uct/cuda/base/driver.h>

#include <stdbool.h>

BEGIN_C_DECLS


typedef struct uct_cuda_coll_device uct_cuda_coll_device_t;


/**
 * That of the current context.
 *
 * @param device  The context's.
 * @param id      Its number (uct_cuda_ctx_current()).
 * @return UCS_OK, UCS_ERR_NO_MEMORY, UCS_ERR_UNSUPPORTED (a driver without
 *         kernels).
 */
ucs_status_t uct_cuda_coll_device_get(int device, CUcontext context,
                                      unsigned long long id,
                                      uct_cuda_coll_device_t **device_p);


/** A stream by number, with the context current; logs a failure. */
ucs_status_t uct_cuda_coll_device_stream(uct_cuda_coll_device_t *device,
                                         unsigned queue, CUstream *stream_p);


/** Compile what an operation needs, with the context current. */
ucs_status_t uct_cuda_coll_device_load(uct_cuda_coll_device_t *device,
                                       ucx_mp_op_t op, ucx_mp_type_t type);


/** Launch a reduction; logs a failure. */
ucs_status_t
uct_cuda_coll_device_reduce(uct_cuda_coll_device_t *device, ucx_mp_op_t op,
                            ucx_mp_type_t type,
                            const ucx_mp_reduce_args_t *args, CUstream stream);


END_C_DECLS

#endif
