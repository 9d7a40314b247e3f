/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Fat binaries, made by nvcc for programs: PTX and machine code for several
 * GPUs. Their layout is not documented; the parts used here were found by
 * inspecting such binaries.
 */
#include "cuemu_kernel.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUEMU_FATBIN_PTX  1
#define CUEMU_FATBIN_LZ4  0x2000u
#define CUEMU_FATBIN_ZSTD 0x8000u

typedef struct {
    uint32_t    magic;
    uint32_t    version;
    const void *data;
    const void *name;      /* version 2: the fat binaries that were linked */
} cuemu_fatbin_wrapper_t;

#define CUEMU_FATBIN_LINKED 2

typedef struct {
    uint32_t magic;
    uint16_t version;
    uint16_t header_size;
    uint64_t size;         /* bytes of all entries behind the header */
} cuemu_fatbin_header_t;

typedef struct {
    uint16_t kind;
    uint16_t version;
    uint32_t header_size;
    uint64_t size;         /* bytes behind the entry's header */
    uint32_t packed_size;  /* bytes without padding */
    uint32_t spare;
    uint16_t minor, major;
    uint32_t arch;         /* 70 */
    uint32_t name_offset, name_size;
    uint64_t flags;
    uint64_t spare2;
    uint64_t full_size;    /* bytes when unpacked */
} cuemu_fatbin_entry_t;

/* Unpack LZ4's block format. Returns the bytes unpacked, 0 for bad data. */
static size_t cuemu_lz4_unpack(const uint8_t *in, size_t in_size, uint8_t *out,
                               size_t out_size)
{
    size_t at = 0, to = 0, count, distance;
    uint8_t token, more;

    while (at < in_size) {
        token = in[at++];
        count = token >> 4;
        if (count == 15) {
            do {
                if (at == in_size) {
                    return 0;
                }
                more   = in[at++];
                count += more;
            } while (more == 255);
        }
        if ((count > in_size - at) || (count > out_size - to)) {
            return 0;
        }
        memcpy(out + to, in + at, count);
        at += count;
        to += count;
        if (at == in_size) {
            return to; /* the last ones are literals */
        }

        if (in_size - at < 2) {
            return 0;
        }
        distance = in[at] | ((size_t)in[at + 1] << 8);
        at      += 2;
        count    = (token & 15) + 4;
        if ((token & 15) == 15) {
            do {
                if (at == in_size) {
                    return 0;
                }
                more   = in[at++];
                count += more;
            } while (more == 255);
        }
        if ((distance == 0) || (distance > to) || (count > out_size - to)) {
            return 0;
        }
        for (; count > 0; --count, ++to) {
            out[to] = out[to - distance];
        }
    }

    return to;
}

/* Unpack with the system's zstd: nvcc uses zstd since release 13. Return the
   bytes unpacked; 0 for bad data, or without libzstd.so.1. */
static size_t cuemu_zstd_unpack(const void *in, size_t in_size, void *out,
                                size_t out_size)
{
    void *library = dlopen("libzstd.so.1", RTLD_LAZY | RTLD_LOCAL);
    size_t (*unpack)(void*, size_t, const void*, size_t);
    size_t size;

    if (library == NULL) {
        return 0;
    }

    unpack = (size_t(*)(void*, size_t, const void*, size_t))dlsym(
            library, "ZSTD_decompress");
    size   = (unpack == NULL) ? 0 : unpack(out, out_size, in, in_size);
    dlclose(library);
    return (size > out_size) ? 0 : size; /* errors are large numbers */
}

/* Return non-zero if `a` is better code for a GPU than `b` (NULL: none). The
   newest code that the GPU runs is best. If the GPU runs neither, the older one
   is better: nvcc no longer makes code for old GPUs. */
static int cuemu_fatbin_is_better(const cuemu_fatbin_entry_t *a,
                                  const cuemu_fatbin_entry_t *b, int sm)
{
    if (b == NULL) {
        return 1;
    } else if (((int)a->arch <= sm) != ((int)b->arch <= sm)) {
        return (int)a->arch <= sm;
    }
    return ((int)a->arch <= sm) ? (a->arch > b->arch) : (a->arch < b->arch);
}

static CUresult cuemu_fatbin_extract(const cuemu_fatbin_header_t *header,
                                     int sm, char **text_p, char *error)
{
    const cuemu_fatbin_entry_t *entry, *best = NULL;
    const char *p, *end;
    size_t size;
    int packed;

    if ((header == NULL) || (header->magic != CUEMU_FATBIN_MAGIC)) {
        snprintf(error, CUEMU_PTX_ERROR_SIZE, "not a fat binary");
        return CUDA_ERROR_INVALID_IMAGE;
    }

    /* The first one may be empty */
    while ((header->size == 0) && (header[1].magic == CUEMU_FATBIN_MAGIC)) {
        ++header;
    }

    p   = (const char*)header + header->header_size;
    end = p + header->size;
    for (; p + sizeof(*entry) <= end; p += entry->header_size + entry->size) {
        entry = (const cuemu_fatbin_entry_t*)(const void*)p;
        if ((entry->header_size < sizeof(*entry)) ||
            (entry->size > (uint64_t)(end - p))) {
            break;
        }
        if ((entry->kind == CUEMU_FATBIN_PTX) &&
            cuemu_fatbin_is_better(entry, best, sm)) {
            best = entry;
        }
    }

    if (best == NULL) {
        snprintf(error, CUEMU_PTX_ERROR_SIZE,
                 "the fat binary holds no PTX, and machine code cannot run "
                 "here: use nvcc -gencode arch=compute_75,code=compute_75");
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }

    p = (const char*)best + best->header_size;
    packed  = (best->flags & (CUEMU_FATBIN_LZ4 | CUEMU_FATBIN_ZSTD)) != 0;
    size    = packed ? best->full_size : best->size;
    *text_p = calloc(1, size + 1);
    if (*text_p == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    if (!packed) {
        memcpy(*text_p, p, size);
    } else if (((best->flags & CUEMU_FATBIN_LZ4) ?
                cuemu_lz4_unpack((const uint8_t*)p, best->packed_size,
                                 (uint8_t*)*text_p, size) :
                cuemu_zstd_unpack(p, best->packed_size, *text_p, size)) == 0) {
        snprintf(error, CUEMU_PTX_ERROR_SIZE,
                 "the fat binary's PTX cannot be unpacked%s: compile with nvcc "
                 "-no-compress", (best->flags & CUEMU_FATBIN_ZSTD) ?
                                 " (by libzstd.so.1)" : "");
        free(*text_p);
        *text_p = NULL;
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

/* Link the PTX of a program's source files (nvcc -rdc=true): `files` ends with
   NULL. Files of libraries may have machine code only. */
static CUresult cuemu_fatbin_link(void *const *files, int sm, char **text_p,
                                  char *error)
{
    CUresult result = CUDA_ERROR_NO_BINARY_FOR_GPU;
    char *all       = NULL, *text, *longer;
    size_t size     = 0, length;

    for (; *files != NULL; ++files) {
        if (cuemu_fatbin_extract(*files, sm, &text, error) != CUDA_SUCCESS) {
            continue;
        }
        length = strlen(text);
        longer = realloc(all, size + length + 2);
        if (longer != NULL) {
            all = longer;
            memcpy(all + size, text, length);
            memcpy(all + size + length, "\n", 2);
            size  += length + 1;
            result = CUDA_SUCCESS;
        }
        free(text);
        if (longer == NULL) {
            free(all);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    *text_p = all;
    return result;
}

CUresult cuemu_fatbin_text(const void *image, int sm, char **text_p,
                           char *error)
{
    const cuemu_fatbin_wrapper_t *wrapper = image;
    CUresult result;

    if (wrapper->magic != CUEMU_FATBIN_WRAPPER) {
        return cuemu_fatbin_extract(image, sm, text_p, error);
    }

    result = cuemu_fatbin_extract(wrapper->data, sm, text_p, error);
    return ((result == CUDA_ERROR_NO_BINARY_FOR_GPU) &&
            (wrapper->version == CUEMU_FATBIN_LINKED) &&
            (wrapper->name != NULL)) ?
           cuemu_fatbin_link(wrapper->name, sm, text_p, error) : result;
}
