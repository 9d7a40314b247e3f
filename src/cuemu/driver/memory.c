/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Memory as the program sees it: addresses, allocations, attributes of an
 * address.
 *
 * Device addresses are mapped without any permission, so a CPU access crashes
 * as on a machine with a GPU. So does a CPU access to host memory of
 * cuMemCreate() before cuMemSetAccess(). Each process has addresses of its own,
 * so using an address of another process fails.
 */
#include "cuemu_populate.h"
#include "cuemu_work.h"

#include "../ptx/ptx.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CUEMU_VA_BASE     0x110000000000ull
#define CUEMU_VA_SIZE     0x010000000000ull /* bytes of addresses of each
                                               process */
#define CUEMU_VA_LATER_SIZE 0x004000000000ull /* of these, CUEMU_VA_LATER */
#define CUEMU_VA_STEP     ((uint64_t)4 << 30) /* reserved at a time */
#define CUEMU_SMALL_MAX   ((uint64_t)1 << 20)
#define CUEMU_SMALL_UNIT  512
#define CUEMU_SLAB_UNITS  (CUEMU_GRANULE / CUEMU_SMALL_UNIT)

/* A block of GPU memory shared by allocations below CUEMU_SMALL_MAX. */
struct cuemu_slab {
    cuemu_slab_t *next;
    cuemu_mem_t   back;       /* its memory and addresses */
    unsigned      used;       /* units */
    uint8_t       unit[CUEMU_SLAB_UNITS];
};

typedef struct {
    uint64_t base, size;
} cuemu_va_t;

static cuemu_mem_t **cuemu_mems;  /* by address */
static size_t cuemu_num_mems, cuemu_max_mems;
/* For running kernels, which cannot take cuemu_lock(); taken after it */
static pthread_rwlock_t cuemu_mems_lock = PTHREAD_RWLOCK_INITIALIZER;

static cuemu_va_t *cuemu_vas;     /* by address */
static size_t cuemu_num_vas, cuemu_max_vas;

static cuemu_slab_t *cuemu_slabs;


/* ----------------------------------------------------------- addresses */

static int cuemu_va_insert(size_t index, uint64_t base, uint64_t size)
{
    cuemu_va_t *vas;

    if (cuemu_num_vas == cuemu_max_vas) {
        vas = realloc(cuemu_vas, (cuemu_max_vas * 2 + 64) * sizeof(*vas));
        if (vas == NULL) {
            return -1;
        }
        cuemu_vas     = vas;
        cuemu_max_vas = cuemu_max_vas * 2 + 64;
    }

    memmove(&cuemu_vas[index + 1], &cuemu_vas[index],
            (cuemu_num_vas - index) * sizeof(*cuemu_vas));
    cuemu_vas[index].base = base;
    cuemu_vas[index].size = size;
    ++cuemu_num_vas;
    return 0;
}

/* Map memory without libc: the real driver maps and unmaps unseen by the
   program's hooks (H100, driver 580: freed memory stays in the process as
   "---p" and is handed out again without a call seen by UCX's memory hooks). */
static int cuemu_va_map(uint64_t base, uint64_t size, int prot, int flags,
                        int fd, uint64_t offset)
{
    long ptr = syscall(SYS_mmap, base, size, prot, flags, fd, offset);

    if ((ptr != -1) && ((uint64_t)ptr != base)) {
        syscall(SYS_munmap, ptr, size); /* a kernel without _NOREPLACE */
        ptr = -1;
    }

    return (ptr == -1) ? -1 : 0;
}

/* Return where an area of this process's addresses begins, and in *end_p where
   it ends. */
static uint64_t cuemu_va_begin(cuemu_va_area_t area, uint64_t *end_p)
{
    const uint64_t begin = CUEMU_VA_BASE +
                           (uint64_t)cuemu_session.slot * CUEMU_VA_SIZE;
    const uint64_t split = begin + CUEMU_VA_SIZE - CUEMU_VA_LATER_SIZE;

    *end_p = (area == CUEMU_VA_LATER) ? begin + CUEMU_VA_SIZE : split;
    return (area == CUEMU_VA_LATER) ? split : begin;
}

/* Return the bytes to reserve at once: at first room for all memory of the GPUs
   twice, as the real driver reserves its addresses before they are needed. */
static uint64_t cuemu_va_first_step(void)
{
    uint64_t bytes = 0;
    int i;

    for (i = 0; i < cuemu_session.node->num_gpus; ++i) {
        bytes += 2 * cuemu_session.shared->gpu_bytes[i];
    }

    return bytes;
}

/* Reserve addresses from *end_p to `end`. Returns 0 or -1. */
static int cuemu_va_extend(uint64_t *end_p, uint64_t end)
{
    end = (end + CUEMU_VA_STEP - 1) & ~(CUEMU_VA_STEP - 1);
    if (end <= *end_p) {
        return 0;
    }
    if (cuemu_va_map(*end_p, end - *end_p, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
                     MAP_FIXED_NOREPLACE, -1, 0) != 0) {
        return -1;
    }

    *end_p = end;
    return 0;
}

/* Reserve an area up to this address at least, not all of it: valgrind keeps
   20 MB for each GiB. Returns 0 or -1. */
static int cuemu_va_arena(cuemu_va_area_t area, uint64_t begin, uint64_t limit,
                          uint64_t end)
{
    static struct {
        uint64_t begin, end;
    } arenas[CUEMU_VA_AREAS];
    uint64_t first;

    if (arenas[area].begin != begin) {
        arenas[area].begin = arenas[area].end = begin;
        first = begin + cuemu_va_first_step();
        /* a limit of the process's addresses may leave no room for it */
        (void)cuemu_va_extend(&arenas[area].end,
                              (first < limit) ? first : limit);
    }

    return cuemu_va_extend(&arenas[area].end, end);
}

int cuemu_va_is_driver(uint64_t addr)
{
    uint64_t begin = CUEMU_VA_BASE +
                     (uint64_t)cuemu_session.slot * CUEMU_VA_SIZE;

    return (addr >= begin) && (addr - begin < CUEMU_VA_SIZE);
}

uint64_t cuemu_va_reserve(cuemu_va_area_t area, uint64_t size, uint64_t align)
{
    uint64_t end, begin, base;
    size_t i;

    begin = cuemu_va_begin(area, &end);
    size  = (size + CUEMU_GRANULE - 1) & ~(CUEMU_GRANULE - 1);
    align = (align < CUEMU_GRANULE) ? CUEMU_GRANULE : align;
    base  = (begin + align - 1) & ~(align - 1);

    /* Use the lowest gap: addresses of freed memory are reused at once */
    for (i = 0; (i < cuemu_num_vas) && (base + size > cuemu_vas[i].base);
         ++i) {
        if (cuemu_vas[i].base >= begin) {
            base = cuemu_vas[i].base + cuemu_vas[i].size;
            base = (base + align - 1) & ~(align - 1);
        }
    }

    return ((base <= end) && (size <= end - base) &&
            (cuemu_va_arena(area, begin, end, base + size) == 0) &&
            (cuemu_va_insert(i, base, size) == 0)) ?
                   base : 0;
}

void cuemu_va_release(uint64_t va, uint64_t size)
{
    size_t i;

    for (i = 0; i < cuemu_num_vas; ++i) {
        if (cuemu_vas[i].base == va) {
            memmove(&cuemu_vas[i], &cuemu_vas[i + 1],
                    (cuemu_num_vas - i - 1) * sizeof(*cuemu_vas));
            --cuemu_num_vas;
            return;
        }
    }
}

int cuemu_va_protect(uint64_t va, uint64_t size, int prot, int fd,
                     uint64_t offset)
{
    const int is_open = (prot != PROT_NONE);
    const int flags   = MAP_FIXED | ((is_open && (fd >= 0)) ?
                                     MAP_SHARED :
                                     MAP_PRIVATE | MAP_ANONYMOUS |
                                     (is_open ? 0 : MAP_NORESERVE));

    return cuemu_va_map(va, size, prot, flags, is_open ? fd : -1,
                        is_open ? offset : 0);
}

/* Map page-locked host memory through libc, where the program's hooks see it.
   It was not measured whether the real driver hides it. */
static int cuemu_va_host(uint64_t va, uint64_t size, int prot)
{
    const int flags = MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS |
                      ((prot == PROT_NONE) ? MAP_NORESERVE : 0);

    return (mmap((void*)(uintptr_t)va, size, prot, flags, -1, 0) ==
            MAP_FAILED) ? -1 : 0;
}

int cuemu_va_touch(cuemu_mem_kind_t kind, uint64_t va, uint64_t size, int prot)
{
    return (kind == CUEMU_MEM_HOST) ? cuemu_va_host(va, size, prot) :
                                      cuemu_va_protect(va, size, prot, -1, 0);
}

uint64_t cuemu_va_find(uint64_t addr, uint64_t size)
{
    size_t i;

    for (i = 0; i < cuemu_num_vas; ++i) {
        if ((addr >= cuemu_vas[i].base) &&
            (addr + size <= cuemu_vas[i].base + cuemu_vas[i].size)) {
            return cuemu_vas[i].base;
        }
    }

    return 0;
}

uint64_t cuemu_va_size(uint64_t va)
{
    size_t i;

    for (i = 0; i < cuemu_num_vas; ++i) {
        if (cuemu_vas[i].base == va) {
            return cuemu_vas[i].size;
        }
    }

    return 0;
}

/* -------------------------------------------------------------- records */

/* Return the index of the first record that ends behind `addr`. */
static size_t cuemu_mem_index(uint64_t addr)
{
    size_t low = 0, high = cuemu_num_mems, mid;

    while (low < high) {
        mid = (low + high) / 2;
        if (cuemu_mems[mid]->base + cuemu_mems[mid]->size <= addr) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }

    return low;
}

cuemu_mem_t *cuemu_mem_find(uint64_t addr)
{
    size_t i = cuemu_mem_index(addr);

    return ((i < cuemu_num_mems) && (cuemu_mems[i]->base <= addr)) ?
           cuemu_mems[i] : NULL;
}

cuemu_mem_t *cuemu_mem_after(uint64_t addr, uint64_t size)
{
    size_t i = cuemu_mem_index(addr);

    return ((i < cuemu_num_mems) && (cuemu_mems[i]->base < addr + size)) ?
           cuemu_mems[i] : NULL;
}

int cuemu_mem_overlaps(uint64_t addr, uint64_t size)
{
    return cuemu_mem_after(addr, size) != NULL;
}

cuemu_mem_t *cuemu_mem_add(const cuemu_mem_t *mem)
{
    size_t i = cuemu_mem_index(mem->base);
    cuemu_mem_t **mems, *copy;

    if (cuemu_mem_overlaps(mem->base, mem->size)) {
        return NULL;
    }

    copy = malloc(sizeof(*copy));
    if (copy == NULL) {
        return NULL;
    }

    *copy = *mem;
    pthread_rwlock_wrlock(&cuemu_mems_lock);
    if (cuemu_num_mems == cuemu_max_mems) {
        mems = realloc(cuemu_mems, (cuemu_max_mems * 2 + 64) * sizeof(*mems));
        if (mems == NULL) {
            pthread_rwlock_unlock(&cuemu_mems_lock);
            free(copy);
            return NULL;
        }
        cuemu_mems     = mems;
        cuemu_max_mems = cuemu_max_mems * 2 + 64;
    }

    memmove(&cuemu_mems[i + 1], &cuemu_mems[i],
            (cuemu_num_mems - i) * sizeof(*cuemu_mems));
    cuemu_mems[i] = copy;
    ++cuemu_num_mems;
    pthread_rwlock_unlock(&cuemu_mems_lock);
    return copy;
}

unsigned cuemu_mem_count(cuemu_mem_kind_t kind, unsigned *refs_p)
{
    unsigned count = 0;
    size_t i;

    *refs_p = 0;
    cuemu_lock();
    for (i = 0; i < cuemu_num_mems; ++i) {
        if (cuemu_mems[i]->kind == kind) {
            *refs_p += (unsigned)cuemu_mems[i]->refs;
            ++count;
        }
    }
    cuemu_unlock();
    return count;
}

void cuemu_mem_remove(cuemu_mem_t *mem)
{
    size_t i;

    pthread_rwlock_wrlock(&cuemu_mems_lock);
    i = cuemu_mem_index(mem->base);
    memmove(&cuemu_mems[i], &cuemu_mems[i + 1],
            (cuemu_num_mems - i - 1) * sizeof(*cuemu_mems));
    --cuemu_num_mems;
    pthread_rwlock_unlock(&cuemu_mems_lock);
    free(mem);
}

int cuemu_mem_is_own(const cuemu_mem_t *mem)
{
    return (mem->kind == CUEMU_MEM_HOST) || (mem->kind == CUEMU_MEM_HOST_REG);
}

int cuemu_mem_is_variable(const cuemu_mem_t *mem)
{
    return (mem->kind == CUEMU_MEM_DEVICE) && (mem->owner != NULL);
}

int cuemu_mem_is_host(const cuemu_mem_t *mem)
{
    return cuemu_mem_is_own(mem) || mem->on_host;
}

static int cuemu_mem_numa(const cuemu_mem_t *mem)
{
    return mem->on_host ? mem->numa : cuemu_session.node->gpus[mem->gpu].numa;
}

/* Return non-zero if cuMemPoolSetAccess gave the GPU access to a pool. The
   pool's own GPU has access without it: not counted here. */
static int cuemu_pool_is_open(const void *handle, int gpu)
{
    const cuemu_pool_t *pool = cuemu_object_check(handle, CUEMU_OBJ_POOL);

    return (pool != NULL) && (pool->access & (1u << gpu));
}

/* Memory opened by handle belongs to the address space of one context */
int cuemu_mem_is_reached(const cuemu_mem_t *mem, const cuemu_context_t *ctx)
{
    switch (mem->kind) {
    case CUEMU_MEM_VMM:
        return (mem->flags & (1u << ctx->gpu)) != 0;
    case CUEMU_MEM_POOL:
        return (mem->gpu == ctx->gpu) ||
               cuemu_pool_is_open(mem->owner, ctx->gpu);
    case CUEMU_MEM_IPC:
        return mem->ctx == ctx;
    case CUEMU_MEM_DEVICE:
        return (mem->ctx == ctx) || cuemu_context_has_peer(ctx, mem->ctx);
    default:
        return 1;
    }
}

void cuemu_mem_page(const cuemu_context_t *ctx, uint64_t addr, uint64_t size,
                    cuemu_ptx_range_t *range)
{
    const cuemu_mem_t *mem;
    uint64_t offset;

    range->memory = NULL;
    pthread_rwlock_rdlock(&cuemu_mems_lock);
    mem = cuemu_mem_find(addr);
    if ((mem != NULL) && cuemu_mem_is_reached(mem, ctx)) {
        range->begin = addr & ~(size - 1);
        range->end   = range->begin + size;
        if (range->begin < mem->base) {
            range->begin = mem->base;
        }
        if (range->end > mem->base + mem->size) {
            range->end = mem->base + mem->size;
        }
        range->writable = !mem->readonly;
        range->place    = cuemu_mem_is_host(mem) ?
                          CUEMU_PLACE_NUMA(cuemu_mem_numa(mem)) :
                          CUEMU_PLACE_GPU(mem->gpu);
        if (cuemu_mem_is_own(mem) || (mem->kind == CUEMU_MEM_MANAGED)) {
            range->memory = (char*)(uintptr_t)range->begin;
        } else {
            offset        = mem->offset + (range->begin - mem->base);
            range->memory = cuemu_session.memory[mem->gpu] + offset;
            if (cuemu_populate(mem->gpu, offset, range->end - range->begin) !=
                0) {
                range->memory = NULL;
            }
        }
    }
    pthread_rwlock_unlock(&cuemu_mems_lock);
}

/* Copy bytes between a GPU's memory and the program's immediately. */
static CUresult cuemu_mem_touch(uint64_t addr, void *data, uint64_t size,
                                int is_read)
{
    const cuemu_mem_t *mem;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    uint64_t offset;
    char *bytes;

    cuemu_lock();
    mem = cuemu_mem_find(addr);
    if ((mem != NULL) && !cuemu_mem_is_own(mem) &&
        (addr + size <= mem->base + mem->size)) {
        offset = mem->offset + (addr - mem->base);
        result = CUDA_ERROR_OUT_OF_MEMORY;
        if (cuemu_populate(mem->gpu, offset, size) == 0) {
            bytes = cuemu_session.memory[mem->gpu] + offset;
            memcpy(is_read ? data : bytes, is_read ? bytes : data, size);
            result = CUDA_SUCCESS;
        }
    }
    cuemu_unlock();
    return result;
}

CUresult cuemu_mem_poke(uint64_t addr, const void *data, uint64_t size)
{
    return cuemu_mem_touch(addr, (void*)data, size, 0);
}

/*
 * For test programs, which look them up by name: read or write GPU memory as it
 * is now, without waiting and without modelled time. Return 0, or -1 if the
 * range is not in one piece of a GPU's memory.
 */
__attribute__((visibility("default")))
int cuemu_put(unsigned long long dst, const void *src, size_t size);
__attribute__((visibility("default")))
int cuemu_get(void *dst, unsigned long long src, size_t size);

int cuemu_put(unsigned long long dst, const void *src, size_t size)
{
    return (cuemu_mem_poke(dst, src, size) == CUDA_SUCCESS) ? 0 : -1;
}

int cuemu_get(void *dst, unsigned long long src, size_t size)
{
    return (cuemu_mem_touch(src, dst, size, 1) == CUDA_SUCCESS) ? 0 : -1;
}

uint64_t cuemu_mem_run(uint64_t addr, uint64_t size)
{
    const cuemu_mem_t *mem = cuemu_mem_find(addr);

    return ((mem != NULL) && (mem->kind == CUEMU_MEM_VMM) &&
            (mem->base + mem->size < addr + size)) ?
           (mem->base + mem->size - addr) : size;
}

CUresult cuemu_mem_resolve(uint64_t addr, uint64_t size,
                           const cuemu_context_t *ctx, cuemu_range_t *range_p)
{
    cuemu_mem_t *mem = cuemu_mem_find(addr), *next;
    uint64_t end;

    range_p->addr = addr;
    if (mem == NULL) {
        /* A range that begins in pageable memory may reach into locked memory
           and beyond: its beginning decides (seen on H200) */
        next = cuemu_mem_after(addr, size);
        if ((addr == 0) || cuemu_va_is_driver(addr) ||
            ((next != NULL) && (next->kind != CUEMU_MEM_HOST_REG))) {
            return CUDA_ERROR_INVALID_VALUE;
        }

        range_p->gpu         = -1;
        range_p->offset      = addr;
        range_p->place       = CUEMU_PLACE_PAGEABLE;
        range_p->pageable    = 1;
        range_p->locked      = 0;
        range_p->sync_memops = 0;
        range_p->reached     = 1;
        range_p->ctx         = NULL;
        return CUDA_SUCCESS;
    }

    /* Mappings of one piece of memory may be adjacent */
    for (end = mem->base + mem->size, next = mem; end < addr + size;
         end = next->base + next->size) {
        next = cuemu_mem_find(end);
        if ((next == NULL) || (mem->kind != CUEMU_MEM_VMM) ||
            (next->kind != CUEMU_MEM_VMM) || (next->gpu != mem->gpu) ||
            (next->offset != mem->offset + (end - mem->base))) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }

    /* Memory without a context is refused in contexts of GPUs without access,
       whatever the other end is (each pair of kinds on 2 x H200, driver 580) */
    if (((mem->kind == CUEMU_MEM_VMM) || (mem->kind == CUEMU_MEM_POOL)) &&
        !cuemu_mem_is_reached(mem, ctx)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    range_p->pageable    = 0;
    range_p->locked      = cuemu_mem_is_host(mem);
    range_p->sync_memops = mem->sync_memops;
    range_p->reached     = cuemu_mem_is_reached(mem, ctx);
    range_p->ctx         = mem->ctx;
    if (cuemu_mem_is_own(mem)) {
        range_p->gpu    = -1;
        range_p->offset = addr;
        range_p->place  = CUEMU_PLACE_NUMA(cuemu_mem_numa(mem));
    } else if (mem->kind == CUEMU_MEM_MANAGED) {
        range_p->gpu    = -1;
        range_p->offset = addr;
        range_p->place  = CUEMU_PLACE_GPU(mem->gpu);
    } else {
        range_p->gpu    = mem->gpu;
        range_p->offset = mem->offset + (addr - mem->base);
        range_p->place  = mem->on_host ? CUEMU_PLACE_NUMA(mem->numa) :
                                         CUEMU_PLACE_GPU(mem->gpu);
    }

    return CUDA_SUCCESS;
}

uint64_t cuemu_mem_side(CUmemorytype type, const void *host, CUdeviceptr device,
                        size_t pitch, size_t x, size_t y)
{
    uint64_t base;

    switch ((int)type) {
    case CU_MEMORYTYPE_HOST:
        base = (uint64_t)(uintptr_t)host;
        break;
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
        base = (uint64_t)device;
        break;
    default:
        return 0;
    }

    return (base == 0) ? 0 : (base + y * pitch + x);
}

/* --------------------------------------------------------- device memory */

void cuemu_mem_soil(int gpu, uint64_t offset, uint64_t size)
{
    char *memory = (gpu >= 0) ? cuemu_session.memory[gpu] : NULL;

    if ((getenv("CUEMU_DIRTY") != NULL) &&
        (cuemu_populate(gpu, offset, size) == 0)) {
        memset((char*)((uintptr_t)memory + offset), 0xa5, size);
    }
}

int cuemu_mem_extent(int gpu, uint64_t size)
{
    int extent;

    cuemu_session_lock();
    extent = cuemu_session_extent_alloc(gpu, size);
    if (extent < 0) {
        cuemu_session_reap(1); /* dead processes may hold the memory */
        extent = cuemu_session_extent_alloc(gpu, size);
    }
    cuemu_session_unlock();
    if (extent >= 0) {
        cuemu_mem_soil(gpu, cuemu_session.shared->extents[extent].offset, size);
    }
    return extent;
}

CUresult cuemu_mem_back(cuemu_mem_t *mem, int gpu, uint64_t size)
{
    struct statvfs fs;
    int extent;

    /* The emulated GPU may be larger than the file system of its memory */
    if ((size <= cuemu_session.shared->gpu_bytes[gpu]) &&
        (statvfs(cuemu_session.dir, &fs) == 0) &&
        ((uint64_t)fs.f_bavail * fs.f_frsize < size)) {
        cuemu_session_no_space(size, "a GPU's memory");
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    extent = cuemu_mem_extent(gpu, size);
    if (extent < 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    mem->va = cuemu_va_reserve(cuemu_mem_is_variable(mem) ? CUEMU_VA_LATER :
                                                            CUEMU_VA_FIRST,
                               size, 0);
    if (mem->va == 0) {
        cuemu_session_lock();
        cuemu_session_extent_put(extent, 1);
        cuemu_session_unlock();
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    mem->base    = mem->va;
    mem->va_size = size;
    mem->gpu     = gpu;
    mem->extent  = extent;
    mem->offset  = cuemu_session.shared->extents[extent].offset;
    return CUDA_SUCCESS;
}

void cuemu_mem_unback(cuemu_mem_t *mem, int free_it)
{
    if (mem->extent >= 0) {
        cuemu_session_lock();
        cuemu_session_extent_put(mem->extent, free_it);
        cuemu_session_unlock();
    }

    if (mem->va != 0) {
        cuemu_va_release(mem->va, mem->va_size);
    }
}

/* Return the first unit of a free run in the slab, -1 if there is none. */
static int cuemu_slab_find(const cuemu_slab_t *slab, unsigned units)
{
    unsigned i, run = 0;

    for (i = 0; i < CUEMU_SLAB_UNITS; ++i) {
        run = slab->unit[i] ? 0 : (run + 1);
        if (run == units) {
            return (int)(i + 1 - units);
        }
    }

    return -1;
}

static CUresult cuemu_slab_alloc(cuemu_mem_t *mem, int gpu, uint64_t size)
{
    unsigned units = (unsigned)((size + CUEMU_SMALL_UNIT - 1) /
                                CUEMU_SMALL_UNIT);
    cuemu_slab_t *slab;
    CUresult result;
    int first = -1;

    for (slab = cuemu_slabs; slab != NULL; slab = slab->next) {
        if (slab->back.gpu == gpu) {
            first = cuemu_slab_find(slab, units);
            if (first >= 0) {
                break;
            }
        }
    }

    if (slab == NULL) {
        slab = calloc(1, sizeof(*slab));
        if (slab == NULL) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }

        result = cuemu_mem_back(&slab->back, gpu, CUEMU_GRANULE);
        if (result != CUDA_SUCCESS) {
            free(slab);
            return result;
        }

        slab->next  = cuemu_slabs;
        cuemu_slabs = slab;
        first       = 0;
    }

    memset(&slab->unit[first], 1, units);
    slab->used += units;
    mem->gpu    = gpu;
    mem->slab   = slab;
    mem->extent = slab->back.extent;
    mem->base   = slab->back.base + (uint64_t)first * CUEMU_SMALL_UNIT;
    mem->offset = slab->back.offset + (uint64_t)first * CUEMU_SMALL_UNIT;
    return CUDA_SUCCESS;
}

static void cuemu_slab_free(cuemu_mem_t *mem)
{
    cuemu_slab_t *slab  = mem->slab, **link = &cuemu_slabs;
    unsigned units      = (unsigned)((mem->size + CUEMU_SMALL_UNIT - 1) /
                                     CUEMU_SMALL_UNIT);

    memset(&slab->unit[(mem->base - slab->back.base) / CUEMU_SMALL_UNIT], 0,
           units);
    slab->used -= units;
    if (slab->used == 0) {
        while (*link != slab) {
            link = &(*link)->next;
        }
        *link = slab->next;
        cuemu_mem_unback(&slab->back, 1);
        free(slab);
    }
}

CUresult cuemu_mem_alloc_touchable(cuemu_context_t *ctx, size_t size,
                                   cuemu_mem_kind_t kind, unsigned flags,
                                   uint64_t *ptr_p)
{
    cuemu_mem_t mem = {.kind = kind, .extent = -1, .gpu = ctx->gpu};
    CUresult result = CUDA_SUCCESS;
    uint64_t length = (size + 4095) & ~(uint64_t)4095;

    if ((size == 0) || (length < size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_lock();
    mem.va = cuemu_va_reserve(CUEMU_VA_FIRST, length, 0);
    if (mem.va == 0) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
        goto out;
    }

    mem.base    = mem.va;
    mem.size    = size;
    mem.va_size = length;
    mem.ctx     = ctx;
    mem.flags   = flags;
    mem.id      = cuemu_unique_id();
    *ptr_p      = mem.base;
    if ((cuemu_va_touch(kind, mem.va, length, PROT_READ | PROT_WRITE) != 0) ||
        (cuemu_mem_add(&mem) == NULL)) {
        (void)cuemu_va_touch(kind, mem.va, length, PROT_NONE);
        cuemu_va_release(mem.va, length);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        cuemu_mem_soil(-1, mem.va, size);
    }

out:
    cuemu_unlock();
    return result;
}

CUresult cuemu_mem_alloc_device(cuemu_context_t *ctx, size_t size,
                                cuemu_mem_kind_t kind, void *owner,
                                CUdeviceptr *ptr_p)
{
    cuemu_mem_t mem = {.kind = kind, .extent = -1, .owner = owner};
    CUresult result;

    if ((ptr_p == NULL) || (size == 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_lock();
    if ((size <= CUEMU_SMALL_MAX) && (kind == CUEMU_MEM_DEVICE)) {
        result = cuemu_slab_alloc(&mem, ctx->gpu, size);
    } else {
        result = cuemu_mem_back(&mem, ctx->gpu, size);
    }

    if (result == CUDA_SUCCESS) {
        mem.size  = size;
        mem.ctx   = (kind == CUEMU_MEM_DEVICE) ? ctx : NULL;
        mem.id    = cuemu_unique_id();
        if (cuemu_mem_add(&mem) == NULL) {
            if (mem.slab != NULL) {
                cuemu_slab_free(&mem);
            } else {
                cuemu_mem_unback(&mem, 1);
            }
            result = CUDA_ERROR_OUT_OF_MEMORY;
        } else {
            *ptr_p = (CUdeviceptr)mem.base;
        }
    }
    cuemu_unlock();

    return result;
}

void cuemu_mem_drop(cuemu_mem_t *mem)
{
    if (mem->slab != NULL) {
        cuemu_slab_free(mem);
    } else {
        if ((mem->kind == CUEMU_MEM_MANAGED) || (mem->kind == CUEMU_MEM_HOST)) {
            (void)cuemu_va_touch(mem->kind, mem->va, mem->va_size, PROT_NONE);
        }
        cuemu_mem_unback(mem, !mem->imported);
    }

    cuemu_mem_remove(mem);
}

/* A pool without release threshold releases freed memory at the next
   synchronization. If the memory was exported, it then is neither free nor
   allocated again, even if no process has it mapped, until the pool is
   destroyed and its descriptors are closed (H200, driver 580; the descriptors
   are not waited for here). Call with cuemu_lock(), before it is freed. */
static void cuemu_mem_keep(const cuemu_mem_t *mem)
{
    cuemu_pool_t *pool = mem->is_exported ?
                                 cuemu_object_check(mem->owner,
                                                    CUEMU_OBJ_POOL) : NULL;
    int *kept;

    if ((pool == NULL) || (pool->threshold > 0)) {
        return;
    }

    kept = realloc(pool->kept, (pool->num_kept + 1) * sizeof(*kept));
    if (kept == NULL) {
        return;
    }

    pool->kept                   = kept;
    pool->kept[pool->num_kept++] = mem->extent;
    cuemu_session_lock();
    cuemu_session_extent_get(mem->extent);
    cuemu_session_unlock();
}

CUresult cuemu_mem_free_device(CUdeviceptr ptr, int from_stream)
{
    cuemu_context_t *ctx = NULL;
    CUresult result      = CUDA_SUCCESS;
    cuemu_mem_t *mem;

    cuemu_lock();
    mem = cuemu_mem_find(ptr);
    if ((mem == NULL) || (mem->base != ptr) ||
        (mem->is_freed && !from_stream) ||
        ((mem->kind != CUEMU_MEM_DEVICE) && (mem->kind != CUEMU_MEM_POOL) &&
         (mem->kind != CUEMU_MEM_MANAGED))) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        ctx = mem->ctx;
    }
    cuemu_unlock();

    if (result != CUDA_SUCCESS) {
        return result;
    }

    /* Free after the work that may use the memory */
    if (!from_stream && (ctx != NULL)) {
        cuemu_context_wait(ctx);
    }

    cuemu_lock();
    mem = cuemu_mem_find(ptr);
    if (mem != NULL) {
        cuemu_mem_keep(mem);
        cuemu_mem_drop(mem);
    }
    cuemu_unlock();
    return CUDA_SUCCESS;
}

cuemu_mem_t *cuemu_mem_of(const void *owner, int extent)
{
    size_t i;

    for (i = 0; i < cuemu_num_mems; ++i) {
        if ((cuemu_mems[i]->owner == owner) &&
            ((extent < 0) || (cuemu_mems[i]->extent == extent))) {
            return cuemu_mems[i];
        }
    }

    return NULL;
}

uint64_t cuemu_mem_bytes_of(const void *owner)
{
    uint64_t bytes = 0;
    size_t i;

    for (i = 0; i < cuemu_num_mems; ++i) {
        bytes += ((cuemu_mems[i]->owner == owner) && !cuemu_mems[i]->is_freed) ?
                 cuemu_mems[i]->size : 0;
    }

    return bytes;
}

void cuemu_mem_drop_context(cuemu_context_t *ctx)
{
    size_t i = cuemu_num_mems;

    while (i-- > 0) {
        if (cuemu_mems[i]->ctx == ctx) {
            cuemu_mem_drop(cuemu_mems[i]);
            i = (i < cuemu_num_mems) ? i : cuemu_num_mems;
        }
    }
}
