/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * What programs are linked with (tests/lookups.txt) and this runtime does not
 * do: there, and "not supported".
 */
#include "cudart.h"

#define CUEMU_CUDART_LACKS(_name) \
    CUEMU_CUDART_EXPORT cuemu_cudart_error_t _name(void); \
    CUEMU_CUDART_EXPORT cuemu_cudart_error_t _name(void) \
    { \
        return cuemu_cudart_return(CUDART_NOT_SUPPORTED); \
    }

CUEMU_CUDART_LACKS(cudaFuncGetAttributes)
CUEMU_CUDART_LACKS(cudaGraphAddMemcpyNode1D)
CUEMU_CUDART_LACKS(cudaGraphCreate)
CUEMU_CUDART_LACKS(cudaGraphExecMemcpyNodeSetParams1D)
CUEMU_CUDART_LACKS(cudaIpcGetEventHandle)
CUEMU_CUDART_LACKS(cudaIpcOpenEventHandle)
CUEMU_CUDART_LACKS(cudaLaunchCooperativeKernel)
CUEMU_CUDART_LACKS(cudaMemcpyBatchAsync)
