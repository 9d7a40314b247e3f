/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Functions that programs look up (tests/lookups.txt) but this driver does not
 * model. They return "not supported", and print this on stderr once.
 */
#include "cuemu_gate.h"

/* cuda.h maps these to newer names */
#undef cuArray3DCreate
#undef cuArrayCreate
#undef cuGraphAddNode
#undef cuGraphKernelNodeGetParams
#undef cuMemcpy3D
#undef cuMemcpy3DAsync
#undef cuStreamBatchMemOp

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

/* Memory of Vulkan and similar */
CUEMU_LACKS(cuExternalMemoryGetMappedBuffer)
CUEMU_LACKS(cuExternalMemoryGetMappedMipmappedArray)
CUEMU_LACKS(cuImportExternalMemory)
CUEMU_LACKS(cuImportExternalSemaphore)
CUEMU_LACKS(cuMipmappedArrayGetLevel)
CUEMU_LACKS(cuSignalExternalSemaphoresAsync)
CUEMU_LACKS(cuWaitExternalSemaphoresAsync)

/* Arrays, textures, and kinds of graph nodes */
CUEMU_LACKS(cuArray3DCreate)
CUEMU_ALSO(cuArray3DCreate_v2, cuArray3DCreate);
CUEMU_LACKS(cuArrayCreate)
CUEMU_ALSO(cuArrayCreate_v2, cuArrayCreate);
CUEMU_LACKS(cuArrayDestroy)
CUEMU_LACKS(cuGraphAddChildGraphNode)
CUEMU_LACKS(cuGraphAddNode)
CUEMU_ALSO(cuGraphAddNode_v2, cuGraphAddNode);
CUEMU_LACKS(cuGraphConditionalHandleCreate)
CUEMU_LACKS(cuGraphKernelNodeGetParams)
CUEMU_ALSO(cuGraphKernelNodeGetParams_v2, cuGraphKernelNodeGetParams);
CUEMU_LACKS(cuMemcpy3D)
CUEMU_ALSO(cuMemcpy3D_v2, cuMemcpy3D);
CUEMU_LACKS(cuMemcpy3DAsync)
CUEMU_ALSO(cuMemcpy3DAsync_v2, cuMemcpy3DAsync);
CUEMU_LACKS(cuSurfObjectCreate)
CUEMU_LACKS(cuTensorMapEncodeTiled)
CUEMU_LACKS(cuTexObjectCreate)
