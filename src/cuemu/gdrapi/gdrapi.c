/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * libgdrapi.so.2 of the emulated node: GDRCopy 2.4, with whose declarations
 * programs are compiled. Like GDRCopy's, it is not thread-safe.
 */
#include "../driver/cuemu_bar.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#define GDR_EXPORT __attribute__((visibility("default")))

typedef struct gdr_memory {
    cuemu_bar_t        bar;
    struct gdr_memory *next;
} gdr_memory_t;

struct gdr {
    gdr_memory_t *pinned;
};

typedef struct gdr *gdr_t;

typedef struct {
    unsigned long h; /* gdr_memory_t* */
} gdr_mh_t;

typedef struct {
    uint64_t va, mapped_size;
    uint32_t page_size;
    uint64_t tm_cycles;
    uint32_t cycles_per_ms;
    unsigned mapped : 1;
    unsigned wc_mapping : 1;
    unsigned mapping_type; /* 0: not mapped, 1: write-combined */
} gdr_info_v2_t;

GDR_EXPORT gdr_t gdr_open(void);
GDR_EXPORT int gdr_close(gdr_t gdr);
GDR_EXPORT int gdr_pin_buffer(gdr_t gdr, unsigned long addr, size_t size,
                              uint64_t p2p_token, uint32_t va_space,
                              gdr_mh_t *handle);
GDR_EXPORT int gdr_unpin_buffer(gdr_t gdr, gdr_mh_t handle);
GDR_EXPORT int gdr_get_callback_flag(gdr_t gdr, gdr_mh_t handle, int *flag);
GDR_EXPORT int gdr_get_info_v2(gdr_t gdr, gdr_mh_t handle,
                               gdr_info_v2_t *info);
GDR_EXPORT int gdr_map(gdr_t gdr, gdr_mh_t handle, void **va, size_t size);
GDR_EXPORT int gdr_unmap(gdr_t gdr, gdr_mh_t handle, void *va, size_t size);
GDR_EXPORT int gdr_copy_to_mapping(gdr_mh_t handle, void *map_d_ptr,
                                   const void *h_ptr, size_t size);
GDR_EXPORT int gdr_copy_from_mapping(gdr_mh_t handle, void *h_ptr,
                                     const void *map_d_ptr, size_t size);
GDR_EXPORT void gdr_runtime_get_version(int *major, int *minor);
GDR_EXPORT int gdr_driver_get_version(gdr_t gdr, int *major, int *minor);

static cuemu_bar_t *gdr_bar(gdr_mh_t handle)
{
    return &((gdr_memory_t*)handle.h)->bar;
}

gdr_t gdr_open(void)
{
    return calloc(1, sizeof(struct gdr));
}

int gdr_close(gdr_t gdr)
{
    gdr_mh_t handle;

    while (gdr->pinned != NULL) {
        handle.h = (unsigned long)gdr->pinned;
        (void)gdr_unpin_buffer(gdr, handle);
    }

    free(gdr);
    return 0;
}

int gdr_pin_buffer(gdr_t gdr, unsigned long addr, size_t size,
                   uint64_t p2p_token, uint32_t va_space, gdr_mh_t *handle)
{
    gdr_memory_t *memory;
    int error;

    if ((handle == NULL) || (p2p_token != 0) || (va_space != 0)) {
        return EINVAL; /* tokens do not go with persistent mappings */
    }

    memory = malloc(sizeof(*memory));
    if (memory == NULL) {
        return ENOMEM;
    }

    error = cuemu_bar_pin(addr, size, &memory->bar);
    if (error != 0) {
        free(memory);
        return error;
    }

    memory->next = gdr->pinned;
    gdr->pinned  = memory;
    handle->h    = (unsigned long)memory;
    return 0;
}

int gdr_unpin_buffer(gdr_t gdr, gdr_mh_t handle)
{
    gdr_memory_t **link = &gdr->pinned, *memory;
    int error;

    while ((*link != NULL) && ((unsigned long)*link != handle.h)) {
        link = &(*link)->next;
    }
    if (*link == NULL) {
        return EINVAL;
    }

    memory = *link;
    *link  = memory->next;
    error  = cuemu_bar_unpin(&memory->bar);
    free(memory);
    return error;
}

int gdr_get_callback_flag(gdr_t gdr, gdr_mh_t handle, int *flag)
{
    *flag = 0; /* no callback: pages stay pinned when they are freed */
    return 0;
}

int gdr_get_info_v2(gdr_t gdr, gdr_mh_t handle, gdr_info_v2_t *info)
{
    const cuemu_bar_t *bar = gdr_bar(handle);

    cuemu_bar_query();
    info->va            = bar->va;
    info->mapped_size   = bar->size;
    info->page_size     = CUEMU_BAR_PAGE;
    info->tm_cycles     = 0;
    info->cycles_per_ms = 0;
    info->mapped        = (bar->mapping != NULL);
    info->wc_mapping    = info->mapped;
    info->mapping_type  = info->mapped;
    return 0;
}

int gdr_map(gdr_t gdr, gdr_mh_t handle, void **va, size_t size)
{
    int error = cuemu_bar_map(gdr_bar(handle), size);

    if (error == 0) {
        *va = gdr_bar(handle)->mapping;
    }

    return error;
}

int gdr_unmap(gdr_t gdr, gdr_mh_t handle, void *va, size_t size)
{
    return cuemu_bar_unmap(gdr_bar(handle), va, size);
}

int gdr_copy_to_mapping(gdr_mh_t handle, void *map_d_ptr, const void *h_ptr,
                        size_t size)
{
    return cuemu_bar_write(gdr_bar(handle), map_d_ptr, h_ptr, size);
}

int gdr_copy_from_mapping(gdr_mh_t handle, void *h_ptr, const void *map_d_ptr,
                          size_t size)
{
    return cuemu_bar_read(gdr_bar(handle), h_ptr, map_d_ptr, size);
}

void gdr_runtime_get_version(int *major, int *minor)
{
    *major = 2;
    *minor = 4;
}

int gdr_driver_get_version(gdr_t gdr, int *major, int *minor)
{
    gdr_runtime_get_version(major, minor);
    return 0;
}
