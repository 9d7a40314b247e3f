/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Functions that programs link (tests/lookups.txt) but this runtime does not
 * have: they exist, return "not supported", and print it on stderr once.
 */
#include "cudart.h"

#include <stdio.h>

#define CUEMU_CUDART_LACKS(_name) \
    CUEMU_CUDART_EXPORT cuemu_cudart_error_t _name(void); \
    CUEMU_CUDART_EXPORT cuemu_cudart_error_t _name(void) \
    { \
        static int told; \
        if (!__atomic_exchange_n(&told, 1, __ATOMIC_RELAXED)) { \
            fprintf(stderr, "cuemu: the emulated runtime has no " #_name \
                            "; it returns cudaErrorNotSupported\n"); \
        } \
        return cuemu_cudart_return(CUDART_NOT_SUPPORTED); \
    }

CUEMU_CUDART_LACKS(cudaGraphAddMemcpyNode1D)
CUEMU_CUDART_LACKS(cudaGraphCreate)
CUEMU_CUDART_LACKS(cudaGraphExecMemcpyNodeSetParams1D)
CUEMU_CUDART_LACKS(cudaIpcGetEventHandle)
CUEMU_CUDART_LACKS(cudaIpcOpenEventHandle)
CUEMU_CUDART_LACKS(cudaLaunchCooperativeKernel)
CUEMU_CUDART_LACKS(cudaMemcpyBatchAsync)
