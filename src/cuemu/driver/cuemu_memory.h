/* SPDX-License-Identifier: BSD-3-Clause */

/* Memory as the program sees it. */
#ifndef CUEMU_MEMORY_H_
#define CUEMU_MEMORY_H_

#include "cuemu_context.h"

typedef enum {
    CUEMU_MEM_DEVICE,   /* cuMemAlloc */
    CUEMU_MEM_IPC,      /* opened from another process */
    CUEMU_MEM_VMM,      /* cuMemMap */
    CUEMU_MEM_POOL,     /* cuMemAllocAsync */
    CUEMU_MEM_MANAGED,
    CUEMU_MEM_HOST,     /* cuMemHostAlloc */
    CUEMU_MEM_HOST_REG  /* cuMemHostRegister */
} cuemu_mem_kind_t;

/* In cuemu_mem_t.flags of VMM memory, beside one bit per accessing GPU: the CPU
   has access */
#define CUEMU_VMM_CPU (1u << 31)

/* A block of GPU memory shared by small allocations */
typedef struct cuemu_slab cuemu_slab_t;

typedef struct cuemu_mem {
    uint64_t         base, size;  /* address and size as seen by the program */
    cuemu_mem_kind_t kind;
    int              gpu;         /* GPU's index in the node; for host memory
                                     the nearest one */
    uint64_t         offset;      /* in the GPU's memory */
    int              extent;      /* shared->extents, -1: no extent */
    uint64_t         va, va_size; /* address range to release; 0: no range */
    cuemu_context_t *ctx;         /* NULL: no context */
    uint64_t         id;          /* CU_POINTER_ATTRIBUTE_BUFFER_ID */
    unsigned         flags;
    int              sync_memops;
    uint64_t         staged;      /* newest operation copying pageable memory to
                                     it */
    int              refs;        /* IPC: number of opens */
    int              readonly;
    cuemu_slab_t    *slab;
    void            *owner;       /* pool, allocation handle, or module of a
                                     variable */
    int              imported;    /* POOL: from another process */
    int              is_freed;    /* POOL: cuMemFreeAsync was called */
    int              is_exported; /* POOL: by cuMemPoolExportPointer */
    int              on_host;     /* VMM: host memory; the emulator keeps its
                                     bytes in a GPU's file */
    int              numa;        /* NUMA node of host memory */
} cuemu_mem_t;

typedef struct cuemu_pool {
    cuemu_object_t     obj;
    int                device;
    int                is_default;
    int                handle_types;
    int                is_exported; /* Its memory can be exported, too */
    uint64_t           id;        /* the exporter's, if it is imported */
    uint64_t           threshold;
    uint64_t           high;      /* most bytes in use so far */
    unsigned           access;    /* bit per GPU of the node, without its own */
    int                imported;  /* number of imports; 0: this process's own */
    int               *kept;      /* extents of exported memory it released */
    size_t             num_kept;
    struct cuemu_pool *next;      /* next imported pool */
} cuemu_pool_t;

/* Return non-zero for host memory at the program's own addresses. */
int cuemu_mem_is_own(const cuemu_mem_t *mem);

/* Return non-zero for the variables of a module. */
int cuemu_mem_is_variable(const cuemu_mem_t *mem);

/* Return non-zero for memory reported as host memory by the driver. */
int cuemu_mem_is_host(const cuemu_mem_t *mem);

/* Return non-zero if kernels of a context may use the memory: by the memory's
   own access rights if it has any, otherwise by the contexts'. */
int cuemu_mem_is_reached(const cuemu_mem_t *mem, const cuemu_context_t *ctx);

/* Find the range around an address that a kernel of `ctx` may use, within a
   page of `size` bytes (a power of 2), and make its memory present.
   range->memory is NULL, and the rest undefined, if the kernel may not use the
   address or there is no room. Needs no lock. */
struct cuemu_ptx_range;
void cuemu_mem_page(const cuemu_context_t *ctx, uint64_t addr, uint64_t size,
                    struct cuemu_ptx_range *range);

/* Write bytes to a GPU's memory immediately, without modelled time.
   INVALID_VALUE unless the range is inside one allocation or mapping of GPU
   memory; OUT_OF_MEMORY if the file system is full. Takes the lock. */
CUresult cuemu_mem_poke(uint64_t addr, const void *data, uint64_t size);

/* Find the record of the memory that contains an address; NULL if the driver
   does not know the memory. Call with cuemu_lock(); the result is valid while
   the lock is held. */
cuemu_mem_t *cuemu_mem_find(uint64_t addr);

/* Return the first record that overlaps addr..addr+size, NULL if there is none.
   Call with the lock. */
cuemu_mem_t *cuemu_mem_after(uint64_t addr, uint64_t size);
/* Return non-zero if a record overlaps addr..addr+size. Call with the lock. */
int cuemu_mem_overlaps(uint64_t addr, uint64_t size);

/* Return the number of records of a kind, and the sum of their references. */
unsigned cuemu_mem_count(cuemu_mem_kind_t kind, unsigned *refs_p);

/* Return any record of this owner, of one extent or (-1) of all; NULL if there
   is none. Call with the lock. */
cuemu_mem_t *cuemu_mem_of(const void *owner, int extent);

/* Return the bytes in use of all records of this owner. Call with the lock. */
uint64_t cuemu_mem_bytes_of(const void *owner);

/* Add a copy of a record and return the copy; NULL if out of memory or
   overlapping. Call with the lock. */
cuemu_mem_t *cuemu_mem_add(const cuemu_mem_t *mem);
/* Remove a record and free it. Its memory and addresses stay allocated. Call
   with the lock. */
void cuemu_mem_remove(cuemu_mem_t *mem);

/* Where addresses come from. The real driver (H200, 580) reserves some for
   imported memory and variables of modules only when they are needed. */
typedef enum {
    CUEMU_VA_FIRST, /* used from the first memory of a process on */
    CUEMU_VA_LATER, /* used from the first import or variable above
                       CUEMU_SMALL_MAX on */
    CUEMU_VA_AREAS
} cuemu_va_area_t;

/* Reserve the lowest free addresses, with PROT_NONE; 0 if there are none left.
   `align` is a power of 2, or 0: at least CUEMU_GRANULE is used. Call with the
   lock. */
uint64_t cuemu_va_reserve(cuemu_va_area_t area, uint64_t size, uint64_t align);
/* Give back the reservation that begins at `va`; `size` is ignored. Does not
   remove access given by cuemu_va_protect(). Call with the lock. */
void cuemu_va_release(uint64_t va, uint64_t size);
/* Return non-zero for addresses that only the driver allocates, in use or
   free. */
int cuemu_va_is_driver(uint64_t addr);
/* Give the CPU access to reserved addresses (`prot` PROT_READ, PROT_WRITE or
   both), backed by the file `fd` from `offset` on (-1: private memory), or
   remove the access (PROT_NONE). Returns 0 or -1. */
int cuemu_va_protect(uint64_t va, uint64_t size, int prot, int fd,
                     uint64_t offset);
/* Give the CPU access to memory of this kind, or remove it (PROT_NONE). Returns
   0 or -1. */
int cuemu_va_touch(cuemu_mem_kind_t kind, uint64_t va, uint64_t size, int prot);
/* Return the start of the reservation around addr..addr+size, 0 if there is
   none. */
uint64_t cuemu_va_find(uint64_t addr, uint64_t size);
/* Return the size of the reservation that begins at `va`, 0 if there is
   none. */
uint64_t cuemu_va_size(uint64_t va);

/* Location of bytes to copy */
typedef struct {
    int              gpu;      /* GPU's index in the node; -1: memory of this
                                  process */
    uint64_t         offset;   /* in the GPU's memory, or the address */
    uint64_t         addr;
    cuemu_place_t    place;    /* place whose links determine the copy's time */
    int              pageable;
    int              locked;   /* page-locked host memory */
    int              sync_memops;
    int              reached;  /* accessible by the calling context */
    cuemu_context_t *ctx;      /* its allocating or opening context */
} cuemu_range_t;

/* Return the number of bytes, up to `size`, that lie behind an address in one
   piece of a GPU's memory: fewer than `size` where mappings of several pieces
   are adjacent. `size` if the address is in no mapping of cuMemMap(). Call with
   cuemu_lock(). */
uint64_t cuemu_mem_run(uint64_t addr, uint64_t size);

/* Find the location of a range for use by `ctx`. Memory unknown to the driver
   is pageable. INVALID_VALUE unless the range lies in one place, for address
   0, free addresses of the driver, and mappings before cuMemSetAccess(). Call
   with cuemu_lock(). */
CUresult cuemu_mem_resolve(uint64_t addr, uint64_t size,
                           const cuemu_context_t *ctx, cuemu_range_t *range_p);

/* Return the address of the first byte of one side of a pitched copy; 0 for
   arrays. */
uint64_t cuemu_mem_side(CUmemorytype type, const void *host, CUdeviceptr device,
                        size_t pitch, size_t x, size_t y);

/* With CUEMU_DIRTY set, fill new memory with bytes 0xa5 instead of zeros: a
   real driver's contents are undefined. `gpu` -1: `offset` is an address. */
void cuemu_mem_soil(int gpu, uint64_t offset, uint64_t size);

/* Allocate memory as cuemu_session_extent_alloc() does. Call without the
   session's lock. */
int cuemu_mem_extent(int gpu, uint64_t size);

/* Allocate memory of `gpu` in an extent of its own and map it at new addresses.
   Sets gpu, offset, extent, va and base. Call with cuemu_lock(). */
CUresult cuemu_mem_back(cuemu_mem_t *mem, int gpu, uint64_t size);
/* Undo cuemu_mem_back(). `free_it`: free the extent as its owner. */
void cuemu_mem_unback(cuemu_mem_t *mem, int free_it);

/* Allocate memory that the host accesses, too: of kind MANAGED or HOST, with
   that kind's flags. Takes the lock. */
CUresult cuemu_mem_alloc_touchable(cuemu_context_t *ctx, size_t size,
                                   cuemu_mem_kind_t kind, unsigned flags,
                                   uint64_t *ptr_p);

/* Allocate memory of the context's GPU, of kind DEVICE or POOL; `owner` is the
   pool, or NULL. Takes the lock. */
CUresult cuemu_mem_alloc_device(cuemu_context_t *ctx, size_t size,
                                cuemu_mem_kind_t kind, void *owner,
                                CUdeviceptr *ptr_p);
/* Free the memory of cuMemFreeAsync calls that their streams have reached. Call
   without the lock. */
void cuemu_pool_collect(void);

/* Free the DEVICE, POOL or MANAGED memory that begins at `ptr`; INVALID_VALUE
   for any other address. Waits first for the work of the memory's context, if
   it has one, unless `from_stream`: a stream has reached cuMemFreeAsync. Call
   without the lock. */
CUresult cuemu_mem_free_device(CUdeviceptr ptr, int from_stream);

/* Remove a record and release its memory and addresses. Not for mappings of
   other processes' memory. Call with the lock. */
void cuemu_mem_drop(cuemu_mem_t *mem);

/* Free the memory of a context, after cuemu_ipc_drop_context(). Call with the
   lock. */
void cuemu_mem_drop_context(cuemu_context_t *ctx);

/* Close all mappings of other processes' memory in a context. Call with the
   lock. */
void cuemu_ipc_drop_context(const cuemu_context_t *ctx);

/* Return the number of the cluster that shares memory over NVLink
   (CUEMU_FABRIC), 0 if there is none. */
uint64_t cuemu_fabric(void);

#endif
