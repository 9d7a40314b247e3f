/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi/gpu.h>

#include <mpi/module.h>
#include <mpi/symbols.h>
#include <uct/cuda/base/capture.h>
#include <uct/cuda/base/device_memory.h>
#include <uct/cuda/base/pointer.h>

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>


#define MAX_PITCH   0x7fffffff /* CU_DEVICE_ATTRIBUTE_MAX_PITCH of all GPUs */
#define MAX_STREAMS 64

/* Maximum of thread blocks of a reduction: enough to keep NVLink or PCIe busy,
   with few multiprocessors */
#define REDUCE_BLOCKS 32

static uct_cuda_driver_t driver;


/* Set to 1 by the transport module while it watches the driver and the program
   has made no context and allocated no GPU memory. The module finds this
   variable by name. */
__attribute__((visibility("default"))) int ucx_mp_mpi_no_gpu_memory_yet;

static bool               driver_found;
static unsigned long long objects_seen;

/* Streams by context. After a device reset a new context may have the old
   handle, and the old streams are invalid: compare the id, too. */
static struct {
    pthread_mutex_t lock;
    unsigned        next;
    struct {
        CUcontext          ctx;
        unsigned long long id;
        unsigned           index;
        CUstream           stream;
    } entries[MAX_STREAMS];
} streams = {.lock = PTHREAD_MUTEX_INITIALIZER};


/* Let the module complete the program's synchronous copies to memory. */
static void sync_memory(const void *address)
{
    const uct_cuda_coll_api_t *api = ucx_mp_mpi_module();

    if (api != NULL) {
        api->sync(address);
    }
}

/* Fill the table. @return Whether the driver has all functions that are called
   without a check. The transport module needs more, so it may decline a driver
   with which GPU memory is still staged. */
static bool driver_fill(void *handle)
{
#define FILL(_name, _symbol, _args) \
    driver._name = (CUresult(*) _args)dlsym(handle, _symbol);
    UCT_CUDA_DRIVER_FUNCTIONS(FILL, FILL)
    uct_cuda_capture_wrap(&driver);

    return (driver.cuGetErrorName != NULL) &&
           (driver.cuDeviceGetCount != NULL) &&
           (driver.cuDevicePrimaryCtxRetain != NULL) &&
           (driver.cuCtxPushCurrent != NULL) &&
           (driver.cuCtxPopCurrent != NULL) &&
           (driver.cuCtxGetCurrent != NULL) &&
           (driver.cuCtxGetDevice != NULL) && (driver.cuMemAlloc != NULL) &&
           (driver.cuMemFree != NULL) && (driver.cuMemHostRegister != NULL) &&
           (driver.cuMemGetAddressRange != NULL) &&
           (driver.cuPointerGetAttribute != NULL) &&
           (driver.cuPointerGetAttributes != NULL) &&
           (driver.cuMemcpy2DAsync != NULL) && (driver.cuMemcpyAsync != NULL) &&
           (driver.cuStreamCreate != NULL) &&
           (driver.cuStreamDestroy != NULL) &&
           (driver.cuStreamQuery != NULL) &&
           (driver.cuStreamSynchronize != NULL);
}

static void driver_find(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    void *handle;

    pthread_mutex_lock(&lock);
    if (!driver_found) {
        handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
        /* keep the handle: its functions stay in use */
        if ((handle != NULL) && driver_fill(handle)) {
            __atomic_store_n(&driver_found, true, __ATOMIC_RELEASE);
        }
    }
    pthread_mutex_unlock(&lock);
}

bool ucx_mp_mpi_gpu_is_available(void)
{
    int count = 0;

    driver_find();
    return __atomic_load_n(&driver_found, __ATOMIC_ACQUIRE) &&
           (driver.cuDeviceGetCount(&count) == CUDA_SUCCESS) && (count > 0);
}

bool ucx_mp_mpi_gpu_is_used(void)
{
    unsigned long long objects;

    if (__atomic_load_n(&ucx_mp_mpi_no_gpu_memory_yet, __ATOMIC_ACQUIRE)) {
        return false;
    }

    if (__atomic_load_n(&driver_found, __ATOMIC_ACQUIRE)) {
        return true;
    }

    /* Look for libcuda only if an object was loaded since the last call */
    objects = ucx_mp_mpi_objects_loaded();
    if (objects != __atomic_load_n(&objects_seen, __ATOMIC_RELAXED)) {
        driver_find();
        __atomic_store_n(&objects_seen, objects, __ATOMIC_RELAXED);
    }

    return __atomic_load_n(&driver_found, __ATOMIC_ACQUIRE);
}

/* Return whether the CPU can read an address. rt_sigprocmask() reads the signal
   set there before it refuses the invalid operation -1: EFAULT if it cannot. */
static bool is_readable(uintptr_t at)
{
    return (syscall(SYS_rt_sigprocmask, -1, at & ~(uintptr_t)7, NULL, 8) ==
            0) || (errno != EFAULT);
}

static CUresult query(const void *address,
                      uct_cuda_pointer_attributes_t attributes,
                      uct_cuda_pointer_t *pointer)
{
    return uct_cuda_pointer_query(&driver, (CUdeviceptr)address, attributes,
                                  pointer);
}

ucx_mp_mpi_memory_t ucx_mp_mpi_gpu_memory(const void *address)
{
    uct_cuda_pointer_t pointer;
    CUresult result;

    result = query(address, UCT_CUDA_POINTER_KIND, &pointer);
    if (result != CUDA_SUCCESS) {
        /* After exit() in one thread, the driver may be gone while another
           thread still calls MPI. Memory that the CPU cannot read then counts
           as GPU memory. */
        return ((result == CUDA_ERROR_DEINITIALIZED) &&
                !is_readable((uintptr_t)address)) ?
                       UCX_MP_MPI_MEMORY_GPU :
                       UCX_MP_MPI_MEMORY_HOST;
    }

    switch (uct_cuda_pointer_kind(&driver, &pointer)) {
    case UCT_CUDA_POINTER_MANAGED:
        return UCX_MP_MPI_MEMORY_MANAGED;
    case UCT_CUDA_POINTER_GPU:
    case UCT_CUDA_POINTER_HOST_VMM: /* the CPU cannot access it */
        return UCX_MP_MPI_MEMORY_GPU;
    default:
        return UCX_MP_MPI_MEMORY_HOST;
    }
}

/* Find the context of memory, NULL if it has none, and a GPU that can access it
   if it has none; -1: host memory with a context, or no such GPU. */
static CUresult memory_place(const void *address, CUcontext *ctx_p,
                             int *device_p)
{
    uct_cuda_pointer_t pointer;
    CUresult result;

    result = query(address, UCT_CUDA_POINTER_PLACE, &pointer);
    if (pointer.type == CU_MEMORYTYPE_HOST) {
        pointer.ordinal = -1;
    }
    *ctx_p    = pointer.context;
    *device_p = (pointer.type == 0) ?
                        pointer.ordinal :
                        uct_cuda_pointer_gpu(&driver, &pointer);
    return result;
}

static CUresult copy_context(const void *address, CUcontext *ctx_p)
{
    CUdevice current = -1;
    CUcontext ctx;
    CUresult result;
    int device;

    result = memory_place(address, &ctx, &device);
    if ((result == CUDA_SUCCESS) && (ctx == NULL)) {
        /* Pool and VMM memory has no context. Use the current one if it is on
           a GPU with access. Otherwise use the primary context, and never
           release it: usually the program uses it, too. */
        result = driver.cuCtxGetCurrent(&ctx);
        if ((device >= 0) &&
            ((ctx == NULL) ||
             (driver.cuCtxGetDevice(&current) != CUDA_SUCCESS) ||
             (current != device))) {
            result = driver.cuDevicePrimaryCtxRetain(&ctx, device);
        }
    }

    *ctx_p = ctx;
    return result;
}

/* Set the stream of `copy`, whose context is current: a cached one, or a new
   one, which is cached if the context has an id and the cache has room. Sets
   is_kept. */
static CUresult copy_stream(ucx_mp_mpi_copy_t *copy, unsigned index)
{
    unsigned long long id = 0;
    CUresult result;
    unsigned i;

    copy->is_kept = (driver.cuCtxGetId != NULL) &&
                    (driver.cuCtxGetId(copy->ctx, &id) == CUDA_SUCCESS);
    if (!copy->is_kept) {
        return driver.cuStreamCreate(&copy->stream, CU_STREAM_NON_BLOCKING);
    }

    pthread_mutex_lock(&streams.lock);
    for (i = 0; i < MAX_STREAMS; ++i) {
        if ((streams.entries[i].ctx == copy->ctx) &&
            (streams.entries[i].id == id) &&
            (streams.entries[i].index == index)) {
            copy->stream = streams.entries[i].stream;
            pthread_mutex_unlock(&streams.lock);
            return CUDA_SUCCESS;
        }
    }

    result = driver.cuStreamCreate(&copy->stream, CU_STREAM_NON_BLOCKING);
    if ((result == CUDA_SUCCESS) && (streams.next < MAX_STREAMS)) {
        i                         = streams.next++;
        streams.entries[i].ctx    = copy->ctx;
        streams.entries[i].id     = id;
        streams.entries[i].index  = index;
        streams.entries[i].stream = copy->stream;
    } else {
        copy->is_kept = false;
    }
    pthread_mutex_unlock(&streams.lock);
    return result;
}

void ucx_mp_mpi_copy_begin_in(ucx_mp_mpi_copy_t *copy, CUcontext ctx,
                              unsigned index)
{
    *copy        = (ucx_mp_mpi_copy_t){.ctx = ctx};
    copy->result = driver.cuCtxPushCurrent(ctx);
    if (copy->result != CUDA_SUCCESS) {
        copy->ctx = NULL;
        return;
    }

    copy->result = copy_stream(copy, index);
}

void ucx_mp_mpi_copy_begin_on(ucx_mp_mpi_copy_t *copy, const void *address,
                              unsigned index)
{
    CUcontext ctx   = NULL;
    CUresult result = copy_context(address, &ctx);

    if (result != CUDA_SUCCESS) {
        *copy = (ucx_mp_mpi_copy_t){.result = result};
        return;
    }

    ucx_mp_mpi_copy_begin_in(copy, ctx, index);
    if (copy->result == CUDA_SUCCESS) {
        sync_memory(address);
    }
}

bool ucx_mp_mpi_copy_here(ucx_mp_mpi_copy_t *copy)
{
    *copy = (ucx_mp_mpi_copy_t){.stream = NULL};
    return (driver.cuCtxGetCurrent(&copy->ctx) == CUDA_SUCCESS) &&
           (copy->ctx != NULL);
}

void ucx_mp_mpi_copy_begin(ucx_mp_mpi_copy_t *copy, const void *address)
{
    ucx_mp_mpi_copy_begin_on(copy, address, 0);
}

bool ucx_mp_mpi_copy_is_done(ucx_mp_mpi_copy_t *copy)
{
    CUresult result;

    if (copy->result != CUDA_SUCCESS) {
        return true;
    }

    result = driver.cuStreamQuery(copy->stream);
    if (result == CUDA_ERROR_NOT_READY) {
        return false;
    }

    copy->result = result;
    return true;
}

/* Find the range around an address that one copy may cover. For VMM memory,
   which has no context, the attributes would return the whole reservation: ask
   for the mapping. If the driver does not know it, the range is one row. Host
   memory that the driver does not know: one granule, pageable.
   @return An error: the CPU cannot read such an address, or the driver is
           gone. */
static CUresult find_piece(const char *address, size_t length,
                           ucx_mp_mpi_piece_t *piece)
{
    const uintptr_t at = (uintptr_t)address;
    uct_cuda_pointer_t pointer;
    CUdeviceptr base;
    CUresult result;

    result = query(address, UCT_CUDA_POINTER_RANGE, &pointer);
    if (result == CUDA_ERROR_DEINITIALIZED) {
        return result;
    } else if ((result != CUDA_SUCCESS) || (pointer.type == 0)) {
        base   = at & ~(UCX_MP_MPI_GRANULE - 1);
        *piece = (ucx_mp_mpi_piece_t){base, base + UCX_MP_MPI_GRANULE, true,
                                      false, false};
        return is_readable(at) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }

    if (pointer.context == NULL) {
        result = uct_cuda_pointer_range(&driver, at, &pointer.base,
                                        &pointer.length);
    }

    if ((result != CUDA_SUCCESS) || (at - pointer.base >= pointer.length)) {
        pointer.base   = at;
        pointer.length = length;
    }
    *piece = (ucx_mp_mpi_piece_t){pointer.base, pointer.base + pointer.length,
                                  false,
                                  (pointer.context != NULL) &&
                                  (pointer.type == CU_MEMORYTYPE_DEVICE),
                                  pointer.type == CU_MEMORYTYPE_DEVICE};
    return CUDA_SUCCESS;
}

bool ucx_mp_mpi_gpu_is_reached(const void *address)
{
    int device, current;
    CUcontext ctx;

    return (memory_place(address, &ctx, &device) != CUDA_SUCCESS) ||
           (ctx != NULL) || (device < 0) ||
           (driver.cuCtxGetDevice(&current) != CUDA_SUCCESS) ||
           (current == device) ||
           uct_cuda_pointer_has_access(&driver, current, (CUdeviceptr)address,
                                       CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

bool ucx_mp_mpi_gpu_is_copyable(const void *address, size_t length)
{
    ucx_mp_mpi_piece_t piece;

    if (find_piece(address, length, &piece) != CUDA_SUCCESS) {
        return true;
    }

    return piece.is_allocation ? (length <= piece.end - (uintptr_t)address) :
                                 ucx_mp_mpi_gpu_is_reached(address);
}

bool ucx_mp_mpi_gpu_is_one_allocation(const void *address, size_t length)
{
    ucx_mp_mpi_piece_t piece;

    return (ucx_mp_mpi_gpu_memory(address) != UCX_MP_MPI_MEMORY_HOST) &&
           (find_piece(address, length, &piece) == CUDA_SUCCESS) &&
           piece.is_gpu && (length <= piece.end - (uintptr_t)address);
}

void *ucx_mp_mpi_gpu_alloc(size_t size)
{
    CUdeviceptr address = 0;

    return (driver.cuMemAlloc(&address, size) == CUDA_SUCCESS) ?
                   (void*)address :
                   NULL;
}

void ucx_mp_mpi_gpu_free(void *address)
{
    CUcontext ctx;

    if ((copy_context(address, &ctx) == CUDA_SUCCESS) &&
        (driver.cuCtxPushCurrent(ctx) == CUDA_SUCCESS)) {
        (void)driver.cuMemFree((CUdeviceptr)address);
        (void)driver.cuCtxPopCurrent(&ctx);
    }
}

void ucx_mp_mpi_gpu_free_unused(void *address, bool is_waited)
{
    (void)uct_cuda_device_memory_free(&driver, (CUdeviceptr)address,
                                      is_waited);
}

bool ucx_mp_mpi_gpu_kernels(ucx_mp_kernels_driver_t *kernels)
{
    return uct_cuda_driver_kernels(&driver, kernels);
}

bool ucx_mp_mpi_copy_context_id(ucx_mp_mpi_copy_t *copy,
                                unsigned long long *id)
{
    return (copy->result == CUDA_SUCCESS) && (driver.cuCtxGetId != NULL) &&
           (driver.cuCtxGetId(copy->ctx, id) == CUDA_SUCCESS);
}

bool ucx_mp_mpi_copy_upload(ucx_mp_mpi_copy_t *copy, void *to,
                            const void *from, size_t size)
{
    return (driver.cuMemcpyAsync((CUdeviceptr)to, (CUdeviceptr)from, size,
                                 copy->stream) == CUDA_SUCCESS) &&
           (driver.cuStreamSynchronize(copy->stream) == CUDA_SUCCESS);
}

void ucx_mp_mpi_copy_pack(ucx_mp_mpi_copy_t *copy, CUfunction function,
                          const ucx_mp_pack_args_t *args, const void *program)
{
    ucx_mp_kernels_driver_t kernels;

    if (copy->result != CUDA_SUCCESS) {
        return;
    }

    if (function == NULL) { /* its context was destroyed */
        copy->result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
        return;
    }

    sync_memory(program);
    (void)ucx_mp_mpi_gpu_kernels(&kernels);
    copy->result = ucx_mp_pack_launch(&kernels, function, args, copy->stream);
}

void ucx_mp_mpi_copy_reduce(ucx_mp_mpi_copy_t *copy, ucx_mp_kernels_t *kernels,
                            ucx_mp_op_t op, ucx_mp_type_t type, void *to,
                            const void *from, size_t count)
{
    const ucx_mp_reduce_args_t args = {
        .src = {(uintptr_t)to, (uintptr_t)from},
        .dst = {(uintptr_t)to},
        .count = count, .num_src = 2, .num_dst = 1
    };

    if (copy->result == CUDA_SUCCESS) {
        copy->result = ucx_mp_kernels_reduce(kernels, op, type, &args,
                                             REDUCE_BLOCKS, copy->stream);
    }
}

/* Look up the next rows' range, and let the module complete the program's
   synchronous copies into it */
static void copy_find_piece(ucx_mp_mpi_copy_t *copy, const char *address,
                            size_t length)
{
    copy->result = find_piece(address, length, &copy->piece);
    if ((copy->result == CUDA_SUCCESS) && copy->piece.is_allocation) {
        sync_memory(address);
    }
}


/* @return Number of rows, from the first one, that are completely in the
           range. */
static size_t piece_rows(const ucx_mp_mpi_piece_t *piece,
                         const ucx_mp_mpi_plane_t *plane)
{
    const uintptr_t at = (uintptr_t)plane->program;
    size_t count       = plane->count;

    if ((at < piece->begin) || (at >= piece->end) ||
        (plane->length > piece->end - at)) {
        return 0;
    }

    if (plane->stride > 0) {
        count = (piece->end - at - plane->length) / (size_t)plane->stride + 1;
    } else if (plane->stride < 0) {
        count = (at - piece->begin) / -(size_t)plane->stride + 1;
    }
    return (count < plane->count) ? count : plane->count;
}

static void copy_row(ucx_mp_mpi_copy_t *copy, const ucx_mp_mpi_plane_t *plane,
                     size_t row)
{
    char *program   = plane->program + (ptrdiff_t)row * plane->stride;
    char *staged    = plane->staged + (ptrdiff_t)row * plane->step;
    char *dst       = plane->is_back ? program : staged;
    const char *src = plane->is_back ? staged : program;

    if (copy->piece.is_pageable) {
        memcpy(dst, src, plane->length);
    } else if (copy->result == CUDA_SUCCESS) {
        copy->result = driver.cuMemcpyAsync((CUdeviceptr)dst, (CUdeviceptr)src,
                                            plane->length, copy->stream);
    }
}

static bool is_pitch(const ucx_mp_mpi_plane_t *plane, ptrdiff_t pitch)
{
    return (pitch >= (ptrdiff_t)plane->length) && (pitch <= MAX_PITCH);
}

/* Copy the first `count` rows, which lie in the last range: by one driver call
   if the distances allow, else row by row; pageable memory by the CPU. */
static void copy_inside(ucx_mp_mpi_copy_t *copy,
                        const ucx_mp_mpi_plane_t *plane, size_t count)
{
    CUDA_MEMCPY2D rows = {
        .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
        .srcDevice     = (CUdeviceptr)plane->program,
        .srcPitch      = plane->stride,
        .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
        .dstDevice     = (CUdeviceptr)plane->staged,
        .dstPitch      = plane->step,
        .WidthInBytes  = plane->length,
        .Height        = count
    };
    size_t i;

    if (!copy->piece.is_pageable && (count > 1) &&
        is_pitch(plane, plane->stride) && is_pitch(plane, plane->step)) {
        if (plane->is_back) {
            rows.srcDevice = (CUdeviceptr)plane->staged;
            rows.srcPitch  = plane->step;
            rows.dstDevice = (CUdeviceptr)plane->program;
            rows.dstPitch  = plane->stride;
        }
        copy->result = driver.cuMemcpy2DAsync(&rows, copy->stream);
        return;
    }

    for (i = 0; i < count; ++i) {
        copy_row(copy, plane, i);
    }
}

/* Copy one row that starts in the range and ends in others: it joins several
   blocks of a datatype, or several mappings */
static void copy_across(ucx_mp_mpi_copy_t *copy, ucx_mp_mpi_plane_t row)
{
    size_t left = row.length;

    while ((left > 0) && (copy->result == CUDA_SUCCESS)) {
        row.length = copy->piece.end - (uintptr_t)row.program;
        row.length = (row.length < left) ? row.length : left;
        if ((row.length < left) && copy->piece.is_allocation &&
            !row.is_joined) {
            copy->result = CUDA_ERROR_INVALID_VALUE; /* the row ends after its
                                                        allocation */
            return;
        }

        copy_row(copy, &row, 0);
        row.program += row.length;
        row.staged  += row.length;
        left        -= row.length;
        if (left > 0) {
            copy_find_piece(copy, row.program, left);
        }
    }
}

void ucx_mp_mpi_copy_rows(ucx_mp_mpi_copy_t *copy, ucx_mp_mpi_plane_t plane)
{
    size_t count;

    while ((plane.count > 0) && (copy->result == CUDA_SUCCESS)) {
        count = piece_rows(&copy->piece, &plane);
        if (count == 0) {
            copy_find_piece(copy, plane.program, plane.length);
            count = piece_rows(&copy->piece, &plane);
        }

        if (copy->result != CUDA_SUCCESS) {
            return;
        } else if (count > 0) {
            copy_inside(copy, &plane, count);
        } else {
            copy_across(copy, plane);
            count = 1;
        }
        plane.program += (ptrdiff_t)count * plane.stride;
        plane.staged  += (ptrdiff_t)count * plane.step;
        plane.count   -= count;
    }
}

bool ucx_mp_mpi_copy_is_mapped(const void *address)
{
    CUcontext ctx;

    return uct_cuda_pointer_is_mapped(&driver, (CUdeviceptr)address, &ctx);
}

bool ucx_mp_mpi_copy_lock(ucx_mp_mpi_copy_t *copy, void *address, size_t size)
{
    uct_cuda_pointer_t pointer;

    if (copy->result != CUDA_SUCCESS) {
        return false;
    }

    /* a device reset unlocks the memory */
    if ((query(address, UCT_CUDA_POINTER_KIND, &pointer) == CUDA_SUCCESS) &&
        (pointer.type == CU_MEMORYTYPE_HOST)) {
        return true;
    }

    return driver.cuMemHostRegister(address, size,
                                    CU_MEMHOSTREGISTER_PORTABLE |
                                            CU_MEMHOSTREGISTER_DEVICEMAP) ==
           CUDA_SUCCESS;
}

void ucx_mp_mpi_copy_bytes(ucx_mp_mpi_copy_t *copy, void *to, const void *from,
                           size_t size)
{
    if (copy->result == CUDA_SUCCESS) {
        copy->result = driver.cuMemcpyAsync((CUdeviceptr)to, (CUdeviceptr)from,
                                            size, copy->stream);
    }
}

CUresult ucx_mp_mpi_copy_leave(ucx_mp_mpi_copy_t *copy)
{
    if (!copy->is_kept || (copy->result != CUDA_SUCCESS)) {
        return ucx_mp_mpi_copy_end(copy);
    }

    (void)driver.cuCtxPopCurrent(&copy->ctx);
    return CUDA_SUCCESS;
}

CUresult ucx_mp_mpi_copy_end(ucx_mp_mpi_copy_t *copy)
{
    CUresult result;

    if (copy->stream != NULL) {
        /* even after an error: a submitted copy must not write later */
        result = driver.cuStreamSynchronize(copy->stream);
        if (copy->result == CUDA_SUCCESS) {
            copy->result = result;
        }
        if (!copy->is_kept) {
            driver.cuStreamDestroy(copy->stream);
        }
    }

    if (copy->ctx != NULL) {
        driver.cuCtxPopCurrent(&copy->ctx);
    }

    return copy->result;
}

const char *ucx_mp_mpi_gpu_error(CUresult result)
{
    const char *name;

    if (result == CUDA_ERROR_DEINITIALIZED) { /* no error names are available
                                                 then */
        return "CUDA_ERROR_DEINITIALIZED, the program is ending";
    }

    return (driver.cuGetErrorName(result, &name) == CUDA_SUCCESS) ?
                   name :
                   "an unknown CUDA error";
}
