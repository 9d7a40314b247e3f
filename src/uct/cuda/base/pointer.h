/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queries of the driver about a pointer: its kind of memory, the GPU that
 * copies it, its range, the access rights of GPUs, and how it can be shared
 * with other processes. The module and the MPI interposition library share this
 * file, each with its own table of the driver. Nothing is kept: memory may be
 * freed and replaced at any time. base/memory.h has the module's answers, with
 * contexts.
 */
#ifndef UCT_CUDA_BASE_POINTER_H
#define UCT_CUDA_BASE_POINTER_H

#include <uct/cuda/base/driver_table.h>

#include <ucs/sys/compiler_def.h>

#include <stdbool.h>
#include <stdint.h>

BEGIN_C_DECLS


/** Attributes to get, each with all before it. */
typedef enum {
    UCT_CUDA_POINTER_KIND  = 3,
    UCT_CUDA_POINTER_PLACE = 4, /**< ordinal */
    UCT_CUDA_POINTER_RANGE = 6, /**< base, length */
    UCT_CUDA_POINTER_ALL   = 7  /**< buffer_id */
} uct_cuda_pointer_attributes_t;


/** Attributes of a pointer as the driver reports them; 0 if unknown to it. */
typedef struct {
    CUdeviceptr        address;
    CUmemorytype       type;
    unsigned           is_managed;
    CUcontext          context; /**< NULL for pool and VMM memory */
    int                ordinal; /**< GPU that it lies on; negative: hidden */
    CUdeviceptr        base; /**< Without a context: of the reservation */
    size_t             length;
    unsigned long long buffer_id;
} uct_cuda_pointer_t;


/** Kinds of memory. */
typedef enum {
    UCT_CUDA_POINTER_UNKNOWN, /**< To the driver: pageable, or freed */
    UCT_CUDA_POINTER_PINNED,  /**< Host memory known to the driver */
    UCT_CUDA_POINTER_HOST_VMM,
    UCT_CUDA_POINTER_GPU,
    UCT_CUDA_POINTER_MANAGED
} uct_cuda_pointer_kind_t;


/** How GPU memory can be shared with other processes. */
typedef struct {
    /** If it has no context: from cuMemCreate, not from a pool */
    bool         is_vmm;
    int          is_legacy;    /**< By cuIpcGetMemHandle() */
    uint64_t     handle_types; /**< Of CUmemAllocationHandleType */
    CUmemoryPool pool;         /**< NULL: none, or unknown to the driver */
    int          ordinal;
} uct_cuda_pointer_sharing_t;


/**
 * Get attributes of an address in one call (0.1 to 0.26 us on an H200 node).
 *
 * @return The driver's result. For memory unknown to it either an error, or
 *         CUDA_SUCCESS with zeroes.
 */
CUresult uct_cuda_pointer_query(const uct_cuda_driver_t *driver,
                                CUdeviceptr address,
                                uct_cuda_pointer_attributes_t attributes,
                                uct_cuda_pointer_t *pointer);

/** Return the kind of memory. Host memory without a context costs a call. */
uct_cuda_pointer_kind_t
uct_cuda_pointer_kind(const uct_cuda_driver_t *driver,
                      const uct_cuda_pointer_t *pointer);


/**
 * Return the GPU whose contexts can copy memory of kind GPU. It is the one that
 * the memory lies on. An exception is memory without a context that the program
 * has opened to others only, as it does with a peer's memory that it imports:
 * the driver refuses copies in a context of a GPU without access, also on the
 * GPU itself (H200, driver 580). Negative: all of them hidden.
 */
int uct_cuda_pointer_gpu(const uct_cuda_driver_t *driver,
                         const uct_cuda_pointer_t *pointer);


/** Return whether cuMemSetAccess lets a GPU access memory from cuMemCreate.
 *  @param access  CU_MEM_ACCESS_FLAGS_PROT_READ or READWRITE */
bool uct_cuda_pointer_has_access(const uct_cuda_driver_t *driver, int device,
                                 CUdeviceptr address,
                                 unsigned long long access);


/**
 * Get the range of an allocation, or of a mapping within a reservation (as of
 * PyTorch), for which the attributes describe the reservation, most
 * of which may be empty (H100, driver 580).
 *
 * @return The driver's result: it needs a context with access to the memory.
 *         CUDA_ERROR_NOT_FOUND for host memory, which begins at 0 (queried by
 *         tests of UCX 1.22).
 */
CUresult uct_cuda_pointer_range(const uct_cuda_driver_t *driver,
                                CUdeviceptr address, CUdeviceptr *base_p,
                                size_t *length_p);

/** Return the id of the memory, unique in the process's lifetime; 0: none.
 *  @return false: the driver does not answer, as at process exit. */
bool uct_cuda_pointer_id(const uct_cuda_driver_t *driver, CUdeviceptr address,
                         unsigned long long *id_p);

/** Return whether kernels in the current context use this address for the
 *  memory, and its context. For VMM memory, access rights matter, too. */
bool uct_cuda_pointer_is_mapped(const uct_cuda_driver_t *driver,
                                CUdeviceptr address, CUcontext *context_p);

/** Find out how GPU memory can be shared with other processes. */
void uct_cuda_pointer_sharing(const uct_cuda_driver_t *driver,
                              CUdeviceptr address,
                              uct_cuda_pointer_sharing_t *sharing);

/** Retain the allocation of memory from cuMemCreate. @return false: other
 *  memory; compute-sanitizer lists the refused call. */
bool uct_cuda_pointer_retain(const uct_cuda_driver_t *driver,
                             CUdeviceptr address,
                             CUmemGenericAllocationHandle *handle_p);


END_C_DECLS

#endif
