/* SPDX-License-Identifier: BSD-3-Clause */

/* The program's memory, its expected contents, and registrations. */
#define _GNU_SOURCE
#include "harmless.h"
#include "driver.h"
#include "pattern.h"
#include "util.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HARMLESS_BLOCK       ((size_t)1 << 20)  /* bytes compared at once */
#define HARMLESS_MANAGED_MAX ((size_t)16 << 20)
#define HARMLESS_TRIES       64

const char *const harmless_kind_names[] = {
    "device", "managed", "pinned", "malloc", "mmap",
    "private file", "shared file", "read-only file", "window", NULL
};

uint64_t harmless_below(uint64_t n)
{
    return ucx_mp_random_below(&harmless.random, n);
}

int harmless_index(const harmless_buffer_t *buffer)
{
    return (int)(buffer - harmless.buffers);
}

int harmless_is_pageable(const harmless_buffer_t *buffer)
{
    return buffer->kind >= HARMLESS_MALLOC;
}

static int harmless_is_mapped(harmless_kind_t kind)
{
    return (kind >= HARMLESS_MMAP) && (kind < HARMLESS_KIND_LAST);
}

uint8_t *harmless_ptr(const harmless_range_t *range)
{
    return range->buffer->ptr + range->begin;
}

uint8_t *harmless_shadow(const harmless_range_t *range)
{
    return range->buffer->shadow + range->begin;
}

/* ----------------------------------------------------- allocating, freeing */

static int harmless_file(size_t size)
{
    const char *folder = getenv("TMPDIR");
    char name[512];
    int fd;

    snprintf(name, sizeof(name), "%s/ucx_mp_harmless.XXXXXX",
             (folder != NULL) ? folder : "/tmp");
    fd = mkstemp(name);
    if ((fd < 0) || (ftruncate(fd, (off_t)size) != 0)) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "cannot make %s", name);
    }
    unlink(name);
    return fd;
}

static void harmless_map(harmless_buffer_t *b, void *at)
{
    int prot  = PROT_READ | PROT_WRITE;
    int flags = MAP_PRIVATE;
    void *ptr = MAP_FAILED;

    switch (b->kind) {
    case HARMLESS_FILE_READONLY:
        prot  = PROT_READ;
        flags = MAP_SHARED;
        break;
    case HARMLESS_FILE_SHARED:
        flags = MAP_SHARED;
        break;
    case HARMLESS_FILE_PRIVATE:
        break;
    default:
        flags |= MAP_ANONYMOUS;
        break;
    }
    b->fd = (flags & MAP_ANONYMOUS) ? -1 : harmless_file(b->size);
    if (at != NULL) {
        ptr = mmap(at, b->size, prot, flags | MAP_FIXED_NOREPLACE, b->fd, 0);
    }
    if (ptr == MAP_FAILED) {
        ptr = mmap(NULL, b->size, prot, flags, b->fd, 0);
    }
    if (ptr == MAP_FAILED) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "mmap of %zu bytes failed", b->size);
    }
    b->ptr = ptr;
}

/* Allocate memory with known contents at b->ptr, at `at` if possible. */
static void harmless_alloc(harmless_buffer_t *b, void *at)
{
    uint8_t value         = (uint8_t)harmless_below(256);
    ucx_mp_ptr_t ptr = 0;
    int result            = 0;
    const char *call      = "";

    b->num_regs = b->num_busy = 0;
    if (b->kind <= HARMLESS_PINNED) {
        harmless_gpu_use(b->gpu);
    }
    switch (b->kind) {
    case HARMLESS_DEVICE:
        call   = "cuMemAlloc";
        result = ucx_mp_driver.alloc(&ptr, b->size);
        b->ptr = (uint8_t*)(uintptr_t)ptr;
        break;
    case HARMLESS_MANAGED:
        call   = "cuMemAllocManaged";
        result = ucx_mp_driver.alloc_managed(&ptr, b->size,
                                             HARMLESS_CUDA_ATTACH_GLOBAL);
        b->ptr = (uint8_t*)(uintptr_t)ptr;
        break;
    case HARMLESS_PINNED:
        call   = "cuMemHostAlloc";
        result = ucx_mp_driver.host_alloc((void**)&b->ptr, b->size,
                                          harmless_below(4));
        break;
    case HARMLESS_MALLOC:
        b->ptr = malloc(b->size);
        break;
    default:
        value = 0;
        harmless_map(b, at);
        break;
    }
    if (!harmless_call(result, HARMLESS_CUDA_SUCCESS, "%s of %zu bytes", call,
                       b->size) || (b->ptr == NULL)) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "no %s memory of %zu bytes",
                   harmless_kind_names[b->kind], b->size);
    }

    /* Untouched zeros stay untouched: such pages are a special case */
    b->shadow = (value == 0) ? calloc(1, b->size) : malloc(b->size);
    if (b->shadow == NULL) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "out of memory");
    }
    if (value != 0) {
        memset(b->shadow, value, b->size);
    }
    if (b->kind == HARMLESS_DEVICE) {
        harmless_call(ucx_mp_driver.memset((uintptr_t)b->ptr, value, b->size),
                      HARMLESS_CUDA_SUCCESS, "cuMemsetD8 of %zu bytes",
                      b->size);
        harmless_call(ucx_mp_driver.ctx_synchronize(), HARMLESS_CUDA_SUCCESS,
                      "cuCtxSynchronize");
    } else if (!harmless_is_mapped(b->kind)) {
        memset(b->ptr, value, b->size);
    }
    ++harmless.counts[HARMLESS_NUM_ALLOCATIONS];
    harmless_log("buffer %d is %s memory of %zu bytes at %p",
                 harmless_index(b), harmless_kind_names[b->kind], b->size,
                 (void*)b->ptr);
}

static void harmless_dealloc(harmless_buffer_t *b, int is_gone)
{
    int result = 0, i;

    for (i = 0; (i < b->num_regs) && !is_gone; ++i) {
        harmless_gpu_use(b->regs[i].gpu);
        harmless_call(ucx_mp_driver.host_unregister(b->ptr + b->regs[i].begin),
                      HARMLESS_CUDA_SUCCESS, "cuMemHostUnregister of buffer "
                      "%d + %zu", harmless_index(b), b->regs[i].begin);
    }
    if ((b->kind <= HARMLESS_PINNED) && !is_gone) {
        harmless_gpu_use(b->gpu);
        result = (b->kind == HARMLESS_PINNED) ?
                         ucx_mp_driver.host_free(b->ptr) :
                         ucx_mp_driver.free((uintptr_t)b->ptr);
        harmless_call(result, HARMLESS_CUDA_SUCCESS, "freeing %s buffer %d",
                      harmless_kind_names[b->kind], harmless_index(b));
    } else if (b->kind == HARMLESS_MALLOC) {
        free(b->ptr);
    } else if (harmless_is_mapped(b->kind)) {
        munmap(b->ptr, b->size);
        if (b->fd >= 0) {
            close(b->fd);
        }
    }
    free(b->shadow);
    b->num_regs = b->num_busy = 0;
}

harmless_buffer_t *harmless_buffer_new(harmless_kind_t kind, int gpu,
                                       size_t size)
{
    harmless_buffer_t *b;

    for (b = harmless.buffers; b->is_valid; ++b) {
        if (b == &harmless.buffers[HARMLESS_MAX_BUFFERS - 1]) {
            ucx_mp_die(UCX_MP_EXIT_WRONG, "too many buffers");
        }
    }
    memset(b, 0, sizeof(*b));
    b->is_valid = 1;
    b->kind     = kind;
    b->gpu      = gpu;
    b->size     = size;
    b->largest  = size;
    harmless_alloc(b, NULL);
    return b;
}

void harmless_buffer_free(harmless_buffer_t *b, int is_gone)
{
    harmless_dealloc(b, is_gone);
    b->is_valid = 0;
}

void harmless_buffer_replace(harmless_buffer_t *b)
{
    void *at = b->ptr;

    harmless_dealloc(b, 0);
    ++b->life;
    b->size = b->largest;
    if (harmless_below(3) == 0) {
        b->size -= harmless_below(b->largest / 2);
    }
    harmless_alloc(b, harmless_below(4) ? at : NULL);
}

void harmless_memory_init(void)
{
    const size_t max = harmless.opts.max_size;
    size_t managed   = max / 4;
    int i;

    managed = (managed < HARMLESS_MANAGED_MAX) ? managed : HARMLESS_MANAGED_MAX;
    harmless_buffer_new(HARMLESS_MALLOC, 0, max);
    harmless_buffer_new(HARMLESS_MMAP, 0, max);
    harmless_buffer_new(HARMLESS_MMAP, 0, max / 4);
    harmless_buffer_new(HARMLESS_MALLOC, 0, max / 8);
    harmless_buffer_new(HARMLESS_FILE_PRIVATE, 0, max / 8);
    harmless_buffer_new(HARMLESS_FILE_SHARED, 0, max / 8);
    harmless_buffer_new(HARMLESS_FILE_READONLY, 0, max / 8);
    for (i = 0; i < harmless.num_gpus; ++i) {
        if (i == harmless.home) {
            harmless_buffer_new(HARMLESS_DEVICE, i, max);
            harmless_buffer_new(HARMLESS_DEVICE, i, max / 2);
            harmless_buffer_new(HARMLESS_PINNED, i, max / 4);
            harmless_buffer_new(HARMLESS_MANAGED, i, managed);
        }
        harmless_buffer_new(HARMLESS_DEVICE, i, max / 8);
    }
}

void harmless_memory_reset(int gpu)
{
    harmless_buffer_t *b;
    int i, kept;

    for (b = harmless.buffers; b < harmless.buffers + HARMLESS_MAX_BUFFERS;
         ++b) {
        if (!b->is_valid) {
            continue;
        }
        if ((b->kind <= HARMLESS_PINNED) && (b->gpu == gpu)) {
            harmless_dealloc(b, 1);
            ++b->life;
            harmless_alloc(b, NULL);
            continue;
        }
        for (i = kept = 0; i < b->num_regs; ++i) {
            if (b->regs[i].gpu != gpu) {
                b->regs[kept++] = b->regs[i];
            }
        }
        b->num_regs = kept;
    }
}

void harmless_memory_settle(void)
{
    harmless_buffer_t *b;

    for (b = harmless.buffers; b < harmless.buffers + HARMLESS_MAX_BUFFERS;
         ++b) {
        if (b->is_valid && b->is_temporary) {
            harmless_buffer_free(b, 0);
        }
        b->num_busy = 0;
    }
}

void harmless_memory_free_all(void)
{
    harmless_buffer_t *b;

    for (b = harmless.buffers; b < harmless.buffers + HARMLESS_MAX_BUFFERS;
         ++b) {
        if (b->is_valid) {
            harmless_buffer_free(b, 0);
        }
    }
}

/* ------------------------------------------------------------ parts of them */

static int harmless_meets(size_t begin_a, size_t end_a, size_t begin_b,
                          size_t end_b)
{
    return (begin_a < end_b) && (begin_b < end_a);
}

harmless_place_t harmless_place(const harmless_range_t *range)
{
    const size_t begin        = range->begin, end = begin + range->size;
    const harmless_reg_t *met = NULL, *reg;
    int i;

    for (i = 0; i < range->buffer->num_regs; ++i) {
        reg = &range->buffer->regs[i];
        if (harmless_meets(begin, end, reg->begin, reg->end)) {
            if (met != NULL) {
                return HARMLESS_REFUSED;
            }
            met = reg;
        }
    }
    if (met == NULL) {
        return HARMLESS_OUTSIDE;
    }
    if (begin < met->begin) {
        return (end <= met->end) ? HARMLESS_INTO : HARMLESS_OVER;
    }
    return (end <= met->end) ? HARMLESS_INSIDE : HARMLESS_REFUSED;
}

int harmless_is_plain(const harmless_range_t *range)
{
    /* MPI may page-lock memory in a window */
    return harmless_is_pageable(range->buffer) &&
           (range->buffer->kind != HARMLESS_WINDOW) &&
           (harmless_place(range) == HARMLESS_OUTSIDE);
}

int harmless_is_free(const harmless_range_t *range, int is_write)
{
    const harmless_busy_t *busy;
    int i;

    for (i = 0; i < range->buffer->num_busy; ++i) {
        busy = &range->buffer->busy[i];
        if ((is_write || busy->is_write) &&
            harmless_meets(range->begin, range->begin + range->size,
                           busy->begin, busy->end)) {
            return 0;
        }
    }
    return 1;
}

void harmless_set_busy(const harmless_range_t *range, int is_write)
{
    harmless_buffer_t *b = range->buffer;

    /* harmless_find() has left room */
    b->busy[b->num_busy].begin    = range->begin;
    b->busy[b->num_busy].end      = range->begin + range->size;
    b->busy[b->num_busy].is_write = is_write;
    ++b->num_busy;
}

static int harmless_suits(const harmless_range_t *range, unsigned flags)
{
    const harmless_buffer_t *b = range->buffer;
    harmless_place_t place;

    if (!b->is_valid || (range->size > b->size) ||
        (b->num_busy == HARMLESS_MAX_BUSY) ||
        ((flags & HARMLESS_TO_WRITE) && ((b->kind == HARMLESS_FILE_READONLY) ||
                                         (b->kind == HARMLESS_WINDOW))) ||
        ((flags & HARMLESS_TO_SEND) && (b->kind == HARMLESS_WINDOW)) ||
        ((flags & HARMLESS_HOST_ONLY) && (b->kind <= HARMLESS_MANAGED))) {
        return 0;
    }
    place = harmless_place(range);
    return (place != HARMLESS_REFUSED) &&
           /* a part chosen by MPI might begin in it and end behind it */
           !((flags & HARMLESS_TO_SEND) && (place == HARMLESS_OVER)) &&
           !((flags & HARMLESS_PLAIN_EDGE) && ((place == HARMLESS_OVER) ||
                                               (place == HARMLESS_INTO))) &&
           harmless_is_free(range, flags & (HARMLESS_TO_WRITE |
                                            HARMLESS_TO_SEND));
}

/* Choose its start in the buffer. */
static size_t harmless_choose_begin(const harmless_range_t *range)
{
    const harmless_buffer_t *b = range->buffer;
    const size_t room          = b->size - range->size;
    const harmless_reg_t *reg;
    size_t begin, edge;

    begin = harmless_below(room + 1);
    switch (harmless_below(8)) {
    case 0:
    case 1:
        return begin & ~(HARMLESS_PAGE - 1);
    case 2:
        return begin & ~(size_t)63;
    case 3:
        return (harmless_below(2) == 0) ? 0 : room;
    case 4:
    case 5: /* at the edges of a registration, or across */
        if (b->num_regs == 0) {
            return begin;
        }
        reg   = &b->regs[harmless_below(b->num_regs)];
        edge  = harmless_below(2) ? reg->begin : reg->end;
        begin = harmless_below(2) ? harmless_below(range->size + 1) :
                                    range->size * harmless_below(2);
        begin = (begin > edge) ? 0 : (edge - begin);
        return (begin > room) ? room : begin;
    default:
        return begin;
    }
}

int harmless_find(harmless_range_t *range, size_t size, unsigned flags)
{
    int i;

    for (i = 0; i < HARMLESS_TRIES; ++i) {
        range->buffer = &harmless.buffers[harmless_below(HARMLESS_MAX_BUFFERS)];
        range->size   = size;
        range->begin  = 0;
        if (range->buffer->is_valid && (size <= range->buffer->size)) {
            range->begin = harmless_choose_begin(range);
            if (harmless_suits(range, flags)) {
                return 1;
            }
        }
    }
    return 0;
}

void harmless_find_or_new(harmless_range_t *range, size_t size, unsigned flags)
{
    if (harmless_find(range, size, flags)) {
        return;
    }
    range->buffer = harmless_buffer_new(harmless_below(2) ? HARMLESS_MALLOC :
                                                            HARMLESS_MMAP,
                                        0, size + (2 * HARMLESS_GUARD));
    range->buffer->is_temporary = 1;
    range->begin                = HARMLESS_GUARD;
    range->size                 = size;
}

/* ----------------------------------------------------------------- contents */

void harmless_fill(const harmless_range_t *range, uint64_t seed)
{
    const uint8_t *shadow = harmless_shadow(range);
    harmless_buffer_t *b  = range->buffer;
    size_t done           = 0;
    ssize_t count;

    ucx_mp_pattern_bytes(harmless_shadow(range), range->size, seed);
    switch (b->kind) {
    case HARMLESS_DEVICE:
        harmless_gpu_use(b->gpu);
        harmless_call(ucx_mp_driver.copy_htod((uintptr_t)harmless_ptr(range),
                                              shadow, range->size),
                      HARMLESS_CUDA_SUCCESS, "cuMemcpyHtoD of %zu bytes to "
                      "buffer %d + %zu", range->size, harmless_index(b),
                      range->begin);
        /* copies from pageable memory may return early */
        harmless_call(ucx_mp_driver.ctx_synchronize(), HARMLESS_CUDA_SUCCESS,
                      "cuCtxSynchronize");
        break;
    case HARMLESS_FILE_READONLY:
        for (; done < range->size; done += (size_t)count) {
            count = pwrite(b->fd, shadow + done, range->size - done,
                           (off_t)(range->begin + done));
            if (count <= 0) {
                ucx_mp_die(UCX_MP_EXIT_WRONG, "pwrite failed");
            }
        }
        break;
    default:
        memcpy(harmless_ptr(range), shadow, range->size);
        break;
    }
}

/* Return the number of different bytes among `size`, and the first one's
   offset. */
static size_t harmless_differ(const uint8_t *got, const uint8_t *expected,
                              size_t size, size_t *first_p)
{
    size_t count = 0, i;

    if (memcmp(got, expected, size) == 0) {
        return 0;
    }
    for (i = 0; i < size; ++i) {
        if ((got[i] != expected[i]) && (count++ == 0)) {
            *first_p = i;
        }
    }
    return count;
}

static void harmless_compare(const harmless_range_t *range, const char *what)
{
    static uint8_t *staging;
    harmless_buffer_t *b = range->buffer;
    size_t count = 0, first = 0, offset, length, different, at = 0;
    uint8_t expected = 0, got = 0;
    const uint8_t *bytes;

    if ((staging == NULL) && ((staging = malloc(HARMLESS_BLOCK)) == NULL)) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "out of memory");
    }
    if (b->kind == HARMLESS_DEVICE) {
        harmless_gpu_use(b->gpu);
    }
    for (offset = range->begin; offset < range->begin + range->size;
         offset += length) {
        length = range->begin + range->size - offset;
        length = (length < HARMLESS_BLOCK) ? length : HARMLESS_BLOCK;
        bytes  = b->ptr + offset;
        if (b->kind == HARMLESS_DEVICE) {
            if (!harmless_call(ucx_mp_driver.copy_dtoh(staging,
                                                       (uintptr_t)bytes,
                                                       length),
                               HARMLESS_CUDA_SUCCESS, "cuMemcpyDtoH of %zu "
                               "bytes from buffer %d + %zu", length,
                               harmless_index(b), offset)) {
                return;
            }
            bytes = staging;
        }
        different = harmless_differ(bytes, b->shadow + offset, length, &at);
        if (different > 0) {
            if (count == 0) {
                first    = offset + at;
                expected = b->shadow[first];
                got      = bytes[at];
            }
            count += different;
            /* one report is enough */
            memcpy(b->shadow + offset, bytes, length);
        }
    }
    if (count > 0) {
        harmless_wrong("%s, bytes %zu to %zu of buffer %d (%s, %zu bytes, "
                       "number %u in its place): offset %zu expected 0x%02x "
                       "got 0x%02x, %zu bytes wrong", what, range->begin,
                       range->begin + range->size, harmless_index(b),
                       harmless_kind_names[b->kind], b->size, b->life, first,
                       expected, got, count);
    }
}

void harmless_verify(const harmless_range_t *range, size_t guard,
                     const char *what)
{
    const harmless_buffer_t *b = range->buffer;
    harmless_range_t before    = *range, after = *range;
    harmless_range_t all       = *range;

    before.size  = (range->begin < guard) ? range->begin : guard;
    before.begin = range->begin - before.size;
    after.begin  = range->begin + range->size;
    after.size   = b->size - after.begin;
    after.size   = (after.size < guard) ? after.size : guard;
    if (harmless_is_free(&before, 0)) {
        all.begin -= before.size;
        all.size  += before.size;
    }
    if (harmless_is_free(&after, 0)) {
        all.size += after.size;
    }
    harmless_compare(&all, what);
}

void harmless_verify_buffer(harmless_buffer_t *buffer, const char *what)
{
    harmless_range_t range = {buffer, 0, buffer->size};

    harmless_compare(&range, what);
}
