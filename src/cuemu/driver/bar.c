/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * GPU memory mapped for the processor, as by GDRCopy's kernel driver with
 * persistent mappings, its default.
 *
 * Times are those of a V100 behind PCIe with a write-combined mapping, of the
 * README of GDRCopy 2.6. They stand for all nodes: mappings are faster where
 * the processor caches the GPU's memory (NVLink-C2C). The copies use none of
 * the node's links.
 */
#include "cuemu_bar.h"
#include "cuemu_gate.h"
#include "cuemu_populate.h"
#include "cuemu_work.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* gdrcopy_apiperf, 64 KiB */
#define CUEMU_BAR_PIN    (1346 * CUEMU_PS_PER_US)
#define CUEMU_BAR_UNPIN  (677 * CUEMU_PS_PER_US)
#define CUEMU_BAR_MAP    (3604 * CUEMU_PS_PER_US / 1000)
#define CUEMU_BAR_UNMAP  (4701 * CUEMU_PS_PER_US / 1000)
#define CUEMU_BAR_INFO   (340 * CUEMU_PS_PER_US / 1000)

/* gdrcopy_copylat: the line through 8 B and 8 KiB of gdr_copy_to_mapping, and
   that through 1 KiB and 8 KiB of gdr_copy_from_mapping (16 B: 0.86 us, other
   sizes below 512 B: up to 3.6 us). ps and ps per byte */
#define CUEMU_BAR_WRITE      88000
#define CUEMU_BAR_WRITE_BYTE 88.6
#define CUEMU_BAR_READ       1070000
#define CUEMU_BAR_READ_BYTE  1691.0

/* Begin a call and return the errno value that CUEMU_FAULT sets for it. */
static int cuemu_bar_enter(const char *name)
{
    cuemu_work_call_begin();
    return (int)cuemu_gate_fault(name);
}

/* End a call that took `cost` ps if it succeeded. */
static int cuemu_bar_leave(int error, cuemu_time_t cost)
{
    if ((error == 0) && (cuemu_session.slot >= 0)) {
        cuemu_work_spend_until(cuemu_now() + cost);
    }
    cuemu_work_call_end();
    return error;
}

/* Find the memory behind pages and take a reference. The pages may begin before
   a small allocation, and end behind it. Call with both locks. */
static int cuemu_bar_find(cuemu_bar_t *bar)
{
    const cuemu_mem_t *mem = cuemu_mem_after(bar->va, bar->size);
    const cuemu_extent_t *ext;

    if ((mem == NULL) || (mem->extent < 0) || mem->on_host ||
        ((mem->kind != CUEMU_MEM_DEVICE) && (mem->kind != CUEMU_MEM_POOL) &&
         (mem->kind != CUEMU_MEM_VMM))) {
        return EINVAL;
    }

    ext         = &cuemu_session.shared->extents[mem->extent];
    bar->gpu    = mem->gpu;
    bar->extent = mem->extent;
    bar->offset = mem->offset + (bar->va - mem->base);
    if ((bar->offset < ext->offset) ||
        (bar->offset + bar->size > ext->offset + ext->size) ||
        ((mem->kind == CUEMU_MEM_VMM) &&
         ((bar->va < mem->base) ||
          (bar->va + bar->size > mem->base + mem->size)))) {
        return EINVAL;
    }

    cuemu_session_extent_get(bar->extent);
    return 0;
}

int cuemu_bar_pin(uint64_t addr, uint64_t size, cuemu_bar_t *bar)
{
    int error = cuemu_bar_enter("gdr_pin_buffer");

    memset(bar, 0, sizeof(*bar));
    bar->va   = addr & ~(CUEMU_BAR_PAGE - 1);
    bar->size = ((addr + size + CUEMU_BAR_PAGE - 1) & ~(CUEMU_BAR_PAGE - 1)) -
                bar->va;
    if ((error == 0) &&
        ((size == 0) || !cuemu_process.initialized || cuemu_process.forked)) {
        error = EINVAL;
    }

    if (error == 0) {
        cuemu_lock();
        cuemu_session_lock();
        error = cuemu_bar_find(bar);
        cuemu_session_unlock();
        cuemu_unlock();
    }

    return cuemu_bar_leave(error, CUEMU_BAR_PIN);
}

int cuemu_bar_unpin(cuemu_bar_t *bar)
{
    int error = cuemu_bar_enter("gdr_unpin_buffer");

    if (bar->mapping != NULL) {
        (void)mmap(bar->mapping, bar->mapped, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
                   0);
    }

    /* A program may unpin after the driver's end, and in a forked child */
    if ((cuemu_session.slot >= 0) && !cuemu_process.forked) {
        cuemu_session_lock();
        cuemu_session_extent_put(bar->extent, 0);
        cuemu_session_unlock();
    }

    return cuemu_bar_leave(error, CUEMU_BAR_UNPIN);
}

/* Round up to the processor's pages. */
static uint64_t cuemu_bar_length(uint64_t size)
{
    return (size + 4095) & ~(uint64_t)4095;
}

int cuemu_bar_map(cuemu_bar_t *bar, uint64_t size)
{
    uint64_t length = cuemu_bar_length(size);
    int error       = cuemu_bar_enter("gdr_map");
    void *ptr;

    if ((error == 0) && (bar->mapping != NULL)) {
        error = EAGAIN;
    } else if ((error == 0) && (length > bar->size)) {
        error = EINVAL;
    }

    if (error == 0) {
        ptr = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED,
                   cuemu_session.fd[bar->gpu], (off_t)bar->offset);
        if (ptr == MAP_FAILED) {
            error = errno; /* EINVAL for no bytes */
        } else {
            bar->mapping = ptr;
            bar->mapped  = length;
        }
    }

    return cuemu_bar_leave(error, CUEMU_BAR_MAP);
}

int cuemu_bar_unmap(cuemu_bar_t *bar, void *ptr, uint64_t size)
{
    int error = cuemu_bar_enter("gdr_unmap");

    if ((error == 0) && (bar->mapping == NULL)) {
        error = EINVAL;
    }

    if ((error == 0) && (munmap(ptr, cuemu_bar_length(size)) != 0)) {
        error = errno;
    }

    if (error == 0) {
        bar->mapping = NULL;
    }

    return cuemu_bar_leave(error, CUEMU_BAR_UNMAP);
}

/* Prepare a copy: return EINVAL without a mapping, ENOMEM if the file system of
   the GPU's memory is full. */
static int cuemu_bar_ready(const cuemu_bar_t *bar, const void *ptr,
                           uint64_t size)
{
    uint64_t offset = (uint64_t)((const char*)ptr - (const char*)bar->mapping);

    if (bar->mapping == NULL) {
        return EINVAL;
    }

    return ((cuemu_session.slot >= 0) && (offset < bar->mapped) &&
            (size <= bar->mapped - offset) &&
            (cuemu_populate(bar->gpu, bar->offset + offset, size) != 0)) ?
           ENOMEM : 0;
}

/* Copy `size` bytes, of which those at `ptr` are in the mapping. The cost is
   `cost` ps, and `cost_byte` ps for each byte. */
static int cuemu_bar_copy(const char *name, const cuemu_bar_t *bar,
                          const void *ptr, void *dst, const void *src,
                          uint64_t size, cuemu_time_t cost, double cost_byte)
{
    int error = cuemu_bar_enter(name);

    error = (error == 0) ? cuemu_bar_ready(bar, ptr, size) : error;
    if (error == 0) {
        memcpy(dst, src, size);
    }

    return cuemu_bar_leave(error,
                           cost + (cuemu_time_t)((double)size * cost_byte));
}

int cuemu_bar_write(const cuemu_bar_t *bar, void *ptr, const void *src,
                    uint64_t size)
{
    return cuemu_bar_copy("gdr_copy_to_mapping", bar, ptr, ptr, src, size,
                          CUEMU_BAR_WRITE, CUEMU_BAR_WRITE_BYTE);
}

int cuemu_bar_read(const cuemu_bar_t *bar, void *dst, const void *ptr,
                   uint64_t size)
{
    return cuemu_bar_copy("gdr_copy_from_mapping", bar, ptr, dst, ptr, size,
                          CUEMU_BAR_READ, CUEMU_BAR_READ_BYTE);
}

void cuemu_bar_query(void)
{
    cuemu_work_call_begin();
    (void)cuemu_bar_leave(0, CUEMU_BAR_INFO);
}
