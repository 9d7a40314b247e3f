/* SPDX-License-Identifier: BSD-3-Clause */

/* GPU memory mapped for the processor, for the emulated GDRCopy (../gdrapi).
   Functions return 0 or an errno value. */
#ifndef CUEMU_BAR_H_
#define CUEMU_BAR_H_

#include <stdint.h>

#define CUEMU_BAR_PAGE ((uint64_t)65536) /* bytes */

#define CUEMU_BAR_API __attribute__((visibility("default")))

/* Pinned pages of GPU memory */
typedef struct {
    uint64_t va, size; /* address for the GPU and bytes, of whole pages */
    int      gpu;      /* GPU's index in the node */
    int      extent;   /* shared->extents */
    uint64_t offset;   /* in the GPU's memory */
    void    *mapping;  /* address for the processor; NULL: not mapped */
    uint64_t mapped;   /* bytes mapped */
} cuemu_bar_t;

/* Pin the pages around addr..addr+size. They stay in use after their owner has
   freed them, until cuemu_bar_unpin(). EINVAL unless they belong to one
   allocation of GPU memory of this process. */
CUEMU_BAR_API int cuemu_bar_pin(uint64_t addr, uint64_t size, cuemu_bar_t *bar);

/* Unpin pages. A mapping that is left can no longer be accessed. */
CUEMU_BAR_API int cuemu_bar_unpin(cuemu_bar_t *bar);

/* Map the first `size` bytes. EAGAIN if they are mapped already, EINVAL if
   `size` is 0 or more than is pinned. */
CUEMU_BAR_API int cuemu_bar_map(cuemu_bar_t *bar, uint64_t size);

/* Unmap. EINVAL if there is no mapping, or if `ptr` is no mapping. */
CUEMU_BAR_API int cuemu_bar_unmap(cuemu_bar_t *bar, void *ptr, uint64_t size);

/* Copy between the mapping (at `ptr`) and other memory of the program. EINVAL
   if there is no mapping. */
CUEMU_BAR_API int cuemu_bar_write(const cuemu_bar_t *bar, void *ptr,
                                  const void *src, uint64_t size);
CUEMU_BAR_API int cuemu_bar_read(const cuemu_bar_t *bar, void *dst,
                                 const void *ptr, uint64_t size);

/* Hold the caller for the time of gdr_get_info(). */
CUEMU_BAR_API void cuemu_bar_query(void);

#endif
