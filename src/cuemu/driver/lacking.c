/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Functions that programs look up (tests/lookups.txt) but this driver does not
 * model: they exist, return "not supported", and print it on stderr once.
 */
#include "cuemu_gate.h"

#undef cuStreamBatchMemOp /* cuda.h maps it to a newer name */

#define CUEMU_LACKS(_name) \
    CUEMU_API_FLAGS(_name, CUEMU_GATE_LACKS, (void), ()) \
    { \
        return CUDA_ERROR_NOT_SUPPORTED; \
    }

/* Events of other processes */
CUEMU_LACKS(cuIpcGetEventHandle)
CUEMU_LACKS(cuIpcOpenEventHandle)

/* NVSwitch's multicast */
CUEMU_LACKS(cuMulticastAddDevice)
CUEMU_LACKS(cuMulticastBindAddr)
CUEMU_LACKS(cuMulticastBindMem)
CUEMU_LACKS(cuMulticastCreate)
CUEMU_LACKS(cuMulticastGetGranularity)
CUEMU_LACKS(cuMulticastUnbind)

/* Other devices' writes to a GPU's memory */
CUEMU_LACKS(cuFlushGPUDirectRDMAWrites)
CUEMU_LACKS(cuStreamBatchMemOp)
CUEMU_ALSO(cuStreamBatchMemOp_v2, cuStreamBatchMemOp);
