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
CUEMU_CUDART_LACKS(cudaMemcpyBatchAsync)

/* cudaChannelFormatDesc: it is returned, unlike other results, so that a
   function that returns an error would not do */
typedef struct {
    int x, y, z, w, kind;
} cuemu_cudart_channel_t;

CUEMU_CUDART_EXPORT cuemu_cudart_channel_t
cudaCreateChannelDesc(int x, int y, int z, int w, int kind);

CUEMU_CUDART_EXPORT cuemu_cudart_channel_t
cudaCreateChannelDesc(int x, int y, int z, int w, int kind)
{
    return (cuemu_cudart_channel_t){x, y, z, w, kind};
}
