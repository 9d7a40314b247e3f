/* SPDX-License-Identifier: BSD-3-Clause */

/* Actions of the program itself between, before and during messages. */
#define _GNU_SOURCE
#include "harmless.h"
#include "driver.h"
#include "util.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define HARMLESS_MAX_PENDING 16
#define HARMLESS_REG_MAX     ((size_t)48 << 20)

/* A copy in flight */
typedef struct {
    harmless_range_t dst;
    void            *stream;
    int              gpu;
} harmless_pending_t;

static harmless_pending_t harmless_pending[HARMLESS_MAX_PENDING];
static int harmless_num_pending;

static int harmless_is_host(const harmless_buffer_t *b)
{
    return (b->kind != HARMLESS_DEVICE) && (b->kind != HARMLESS_MANAGED);
}

static ucx_mp_ptr_t harmless_address(const harmless_range_t *range)
{
    return (ucx_mp_ptr_t)(uintptr_t)harmless_ptr(range);
}

/* ------------------------------------------------------------------- copies */

static size_t harmless_copy_size(void)
{
    switch (harmless_below(16)) {
    case 0:
        return ucx_mp_random_size(&harmless.random, (size_t)4 << 20,
                                  harmless.opts.max_size / 2);
    case 1:
    case 2:
    case 3:
    case 4:
    case 5:
        return ucx_mp_random_size(&harmless.random, (size_t)64 << 10,
                                  (size_t)4 << 20);
    default:
        return ucx_mp_random_size(&harmless.random, 1, (size_t)64 << 10);
    }
}

typedef enum {
    HARMLESS_COPY_ANY,
    HARMLESS_COPY_HTOD,
    HARMLESS_COPY_DTOH,
    HARMLESS_COPY_DTOD,
    HARMLESS_COPY_PEER
} harmless_copy_t;

static const char *const harmless_copy_names[] = {"cuMemcpy", "cuMemcpyHtoD",
                                                  "cuMemcpyDtoH",
                                                  "cuMemcpyDtoD",
                                                  "cuMemcpyPeer"};

/* Choose the call for these two; half of the time the generic one. */
static harmless_copy_t
harmless_choose_copy(const harmless_buffer_t *dst, const harmless_buffer_t *src)
{
    if (harmless_below(2) ||
        (harmless_is_host(dst) && harmless_is_host(src))) {
        return HARMLESS_COPY_ANY;
    }
    if (harmless_is_host(src)) {
        return HARMLESS_COPY_HTOD;
    }
    if (harmless_is_host(dst)) {
        return HARMLESS_COPY_DTOH;
    }
    return ((dst->kind == HARMLESS_DEVICE) && (src->kind == HARMLESS_DEVICE) &&
            harmless_below(2)) ? HARMLESS_COPY_PEER : HARMLESS_COPY_DTOD;
}

static int harmless_run_copy(harmless_copy_t copy, const harmless_range_t *to,
                             const harmless_range_t *from, void *stream)
{
    const ucx_mp_driver_t *cuda = &ucx_mp_driver;
    const ucx_mp_ptr_t dst      = harmless_address(to);
    const ucx_mp_ptr_t src      = harmless_address(from);
    void *dst_ctx                    = harmless.gpus[to->buffer->gpu].ctx;
    void *src_ctx                    = harmless.gpus[from->buffer->gpu].ctx;

    switch (copy) {
    case HARMLESS_COPY_HTOD:
        return stream ? cuda->copy_htod_async(dst, harmless_ptr(from),
                                              to->size, stream) :
                        cuda->copy_htod(dst, harmless_ptr(from), to->size);
    case HARMLESS_COPY_DTOH:
        return stream ? cuda->copy_dtoh_async(harmless_ptr(to), src, to->size,
                                              stream) :
                        cuda->copy_dtoh(harmless_ptr(to), src, to->size);
    case HARMLESS_COPY_DTOD:
        return stream ? cuda->copy_dtod_async(dst, src, to->size, stream) :
                        cuda->copy_dtod(dst, src, to->size);
    case HARMLESS_COPY_PEER:
        return stream ? cuda->copy_peer_async(dst, dst_ctx, src, src_ctx,
                                              to->size, stream) :
                        cuda->copy_peer(dst, dst_ctx, src, src_ctx, to->size);
    default:
        return stream ? cuda->copy_async(dst, src, to->size, stream) :
                        cuda->copy(dst, src, to->size);
    }
}

/* Choose two parts of memory, mostly one of them on a GPU. */
static int harmless_choose_parts(harmless_range_t *dst, harmless_range_t *src)
{
    const size_t size = harmless_copy_size();
    int host_only     = (harmless_below(8) == 0);
    unsigned edge     = host_only ? HARMLESS_PLAIN_EDGE : 0;
    int i;

    for (i = 0; i < 8; ++i) {
        if (!harmless_find(src, size, edge) ||
            !harmless_find(dst, size, edge | HARMLESS_TO_WRITE)) {
            return 0;
        }
        if ((src->buffer == dst->buffer) &&
            (src->begin < dst->begin + size) &&
            (dst->begin < src->begin + size)) {
            continue;
        }
        /* the driver promises nothing for two mixtures of pageable and locked
           memory */
        if (host_only || !harmless_is_host(src->buffer) ||
            !harmless_is_host(dst->buffer)) {
            return !host_only || (harmless_is_host(src->buffer) &&
                                  harmless_is_host(dst->buffer));
        }
    }
    return 0;
}

static void harmless_after_async(const harmless_range_t *dst,
                                 const harmless_range_t *src, int gpu,
                                 void *stream)
{
    harmless_pending_t *pending = &harmless_pending[harmless_num_pending];

    /* Pageable memory has been read, or written, when the call returns. Other
       operations may read it, too. */
    if (harmless_is_plain(src) && harmless_is_free(src, 1) &&
        (harmless_is_plain(dst) || (dst->buffer->kind == HARMLESS_DEVICE))) {
        harmless_fill(src, harmless.random);
    } else {
        harmless_set_busy(src, 0);
    }
    if (harmless_is_plain(dst) && (harmless_is_plain(src) ||
                                   (src->buffer->kind == HARMLESS_DEVICE))) {
        harmless_verify(dst, HARMLESS_GUARD, "an asynchronous copy to pageable "
                        "memory, as soon as the call returned");
        return;
    }
    harmless_set_busy(dst, 1);
    pending->dst    = *dst;
    pending->stream = stream;
    pending->gpu    = gpu;
    ++harmless_num_pending;
}

static void harmless_do_copy(int is_async)
{
    harmless_range_t src, dst;
    harmless_copy_t copy;
    void *stream = NULL;
    int gpu, ok;

    if ((harmless_num_pending == HARMLESS_MAX_PENDING) ||
        !harmless_choose_parts(&dst, &src)) {
        return;
    }
    copy = harmless_choose_copy(dst.buffer, src.buffer);
    gpu  = !harmless_is_host(src.buffer) ? src.buffer->gpu :
           !harmless_is_host(dst.buffer) ? dst.buffer->gpu :
                                           harmless.home;
    if (is_async) {
        stream = harmless.gpus[gpu].streams[harmless_below(2)];
    }
    harmless_gpu_use(gpu);
    ok = harmless_call(harmless_run_copy(copy, &dst, &src, stream),
                       HARMLESS_CUDA_SUCCESS, "%s%s of %zu bytes from buffer "
                       "%d (%s) + %zu to buffer %d (%s) + %zu",
                       harmless_copy_names[copy], is_async ? "Async" : "",
                       dst.size, harmless_index(src.buffer),
                       harmless_kind_names[src.buffer->kind], src.begin,
                       harmless_index(dst.buffer),
                       harmless_kind_names[dst.buffer->kind], dst.begin);
    if (!ok) {
        return;
    }
    memcpy(harmless_shadow(&dst), harmless_shadow(&src), dst.size);
    if (is_async) {
        ++harmless.counts[HARMLESS_NUM_ASYNC];
        harmless_after_async(&dst, &src, gpu, stream);
        return;
    }

    ++harmless.counts[HARMLESS_NUM_COPIES];
    if (!harmless_is_host(dst.buffer)) {
        /* such a copy may return before the bytes have arrived */
        harmless_call(ucx_mp_driver.ctx_synchronize(), HARMLESS_CUDA_SUCCESS,
                      "cuCtxSynchronize");
    }
    harmless_verify(&dst, HARMLESS_GUARD, harmless_copy_names[copy]);
}

void harmless_wait_copies(void)
{
    harmless_pending_t *pending;
    int i;

    for (i = 0; i < harmless_num_pending; ++i) {
        pending = &harmless_pending[i];
        harmless_gpu_use(pending->gpu);
        harmless_call(ucx_mp_driver.stream_synchronize(pending->stream),
                      HARMLESS_CUDA_SUCCESS, "cuStreamSynchronize");
    }
    for (i = 0; i < harmless_num_pending; ++i) {
        harmless_verify(&harmless_pending[i].dst, HARMLESS_GUARD,
                        "an asynchronous copy");
    }
    harmless_num_pending = 0;
}

/* ------------------------------------------------------------ registrations */

/* Choose a random buffer for registration; NULL if there is none. */
static harmless_buffer_t *harmless_choose_registrable(void)
{
    harmless_buffer_t *b;
    int i;

    for (i = 0; i < 64; ++i) {
        b = &harmless.buffers[harmless_below(HARMLESS_MAX_BUFFERS)];
        if (b->is_valid && !b->is_temporary &&
            ((b->kind == HARMLESS_MALLOC) || (b->kind == HARMLESS_MMAP) ||
             (b->kind == HARMLESS_FILE_PRIVATE))) {
            return b;
        }
    }
    return NULL;
}

/* Choose full pages inside the buffer. */
static int harmless_choose_pages(harmless_range_t *range)
{
    const harmless_buffer_t *b = range->buffer;
    const size_t into          = (uintptr_t)b->ptr % HARMLESS_PAGE;
    const size_t skip          = (into == 0) ? 0 : (HARMLESS_PAGE - into);
    size_t pages, count, first;

    if (b->size < skip + HARMLESS_PAGE) {
        return 0;
    }
    pages = (b->size - skip) / HARMLESS_PAGE;
    count = ucx_mp_random_size(&harmless.random, 1,
                               (pages < HARMLESS_REG_MAX / HARMLESS_PAGE) ?
                                       pages : HARMLESS_REG_MAX /
                                               HARMLESS_PAGE);
    first        = harmless_below(pages - count + 1);
    range->begin = skip + (first * HARMLESS_PAGE);
    range->size  = count * HARMLESS_PAGE;
    return 1;
}

static void harmless_do_register(void)
{
    harmless_range_t range = {harmless_choose_registrable(), 0, 0};
    harmless_buffer_t *b   = range.buffer;
    int expected           = HARMLESS_CUDA_SUCCESS;
    harmless_place_t place;
    int gpu, ok;

    if ((b == NULL) || (b->num_regs == HARMLESS_MAX_REGS) ||
        !harmless_choose_pages(&range) || !harmless_is_free(&range, 1)) {
        return;
    }
    place = harmless_place(&range);
    if (place != HARMLESS_OUTSIDE) {
        expected = HARMLESS_CUDA_ALREADY_REGISTERED;
    }
    gpu = (int)harmless_below(harmless.num_gpus);
    harmless_gpu_use(gpu);
    ok = harmless_call(ucx_mp_driver.host_register(harmless_ptr(&range),
                                                   range.size,
                                                   harmless_below(4)),
                       expected, "cuMemHostRegister of %zu bytes of buffer %d "
                       "(%s) + %zu", range.size, harmless_index(b),
                       harmless_kind_names[b->kind], range.begin);
    ++harmless.counts[HARMLESS_NUM_REGISTRATIONS];
    if (ok) {
        b->regs[b->num_regs].begin = range.begin;
        b->regs[b->num_regs].end   = range.begin + range.size;
        b->regs[b->num_regs].gpu   = gpu;
        ++b->num_regs;
    }
}

static void harmless_do_unregister(void)
{
    harmless_buffer_t *b = harmless_choose_registrable();
    harmless_range_t range;
    harmless_reg_t *reg;
    int ok;

    if ((b == NULL) || (b->num_regs == 0)) {
        return;
    }
    reg          = &b->regs[harmless_below(b->num_regs)];
    range.buffer = b;
    range.begin  = reg->begin;
    range.size   = reg->end - reg->begin;
    if (!harmless_is_free(&range, 1)) {
        return;
    }
    harmless_gpu_use(reg->gpu);
    ok = harmless_call(ucx_mp_driver.host_unregister(harmless_ptr(&range)),
                       HARMLESS_CUDA_SUCCESS, "cuMemHostUnregister of buffer "
                       "%d (%s) + %zu", harmless_index(b),
                       harmless_kind_names[b->kind], reg->begin);
    ++harmless.counts[HARMLESS_NUM_REGISTRATIONS];
    if (ok) {
        *reg = b->regs[--b->num_regs];
    }
}

/* Memory not registered by the program must not be registered: query the driver
   and expect its answers for unknown memory. */
static void harmless_do_ask(void)
{
    unsigned type = 0;
    harmless_range_t range;
    int result, expected;

    if (!harmless_find(&range, 1, 0) ||
        (range.buffer->kind == HARMLESS_MANAGED) ||
        (range.buffer->kind == HARMLESS_WINDOW)) {
        return;
    }
    ++harmless.counts[HARMLESS_NUM_OTHERS];
    harmless_gpu_use((int)harmless_below(harmless.num_gpus));
    result   = ucx_mp_driver.pointer_attribute(&type, HARMLESS_CUDA_MEMORY_TYPE,
                                               harmless_address(&range));
    type     = (result == HARMLESS_CUDA_SUCCESS) ? type : 0;
    expected = (range.buffer->kind == HARMLESS_DEVICE) ?
                       HARMLESS_CUDA_TYPE_DEVICE :
               harmless_is_plain(&range) ? 0 : HARMLESS_CUDA_TYPE_HOST;
    if ((int)type != expected) {
        harmless_wrong("byte %zu of buffer %d (%s) is of memory type %u for "
                       "the driver, %d by what the program has registered",
                       range.begin, harmless_index(range.buffer),
                       harmless_kind_names[range.buffer->kind], type,
                       expected);
        return;
    }
    if ((expected == 0) && (harmless_below(4) == 0) &&
        (((uintptr_t)harmless_ptr(&range) & (HARMLESS_PAGE - 1)) == 0)) {
        harmless_call(ucx_mp_driver.host_unregister(harmless_ptr(&range)),
                      HARMLESS_CUDA_NOT_REGISTERED, "cuMemHostUnregister of "
                      "buffer %d (%s) + %zu, which is not registered",
                      harmless_index(range.buffer),
                      harmless_kind_names[range.buffer->kind], range.begin);
    }
}

/* --------------------------------------------------- contexts, other memory */

static void harmless_do_peer(void)
{
    int a, b, result, expected, is_enable = harmless_below(2);
    uint8_t *has;

    if (harmless.num_gpus < 2) {
        return;
    }
    a   = (int)harmless_below(harmless.num_gpus);
    b   = (int)harmless_below(harmless.num_gpus - 1);
    b  += (b >= a);
    has = &harmless.has_peer[a][b];
    if (!is_enable) {
        /* Taking peer access away from the program's own copy in flight gives
           CUDA_ERROR_ILLEGAL_ADDRESS (seen on H200, with any transport) */
        harmless_wait_copies();
    }
    harmless_gpu_use(a);
    if (is_enable) {
        expected = !harmless.can_peer[a][b] ? HARMLESS_CUDA_PEER_UNSUPPORTED :
                   *has ? HARMLESS_CUDA_PEER_ALREADY_ENABLED :
                          HARMLESS_CUDA_SUCCESS;
        result   = ucx_mp_driver.peer_enable(harmless.gpus[b].ctx, 0);
    } else {
        expected = *has ? HARMLESS_CUDA_SUCCESS :
                          HARMLESS_CUDA_PEER_NOT_ENABLED;
        result   = ucx_mp_driver.peer_disable(harmless.gpus[b].ctx);
    }
    if (harmless_call(result, expected, "cuCtx%sPeerAccess from GPU %d to GPU "
                      "%d", is_enable ? "Enable" : "Disable",
                      harmless.gpus[a].device, harmless.gpus[b].device)) {
        *has = is_enable;
    } else if (result == HARMLESS_CUDA_PEER_ALREADY_ENABLED) {
        *has = 1; /* one report of it is enough */
    }
    ++harmless.counts[HARMLESS_NUM_PEERS];
}

static void harmless_do_flags(void)
{
    const int device = harmless.gpus[harmless_below(harmless.num_gpus)].device;
    unsigned flags   = (1u << harmless_below(4)) >> 1; /* 0, 1, 2 or 4 */
    unsigned seen    = 0;
    int active       = 0;

    harmless_call(ucx_mp_driver.ctx_set_flags(device, flags),
                  HARMLESS_CUDA_SUCCESS, "cuDevicePrimaryCtxSetFlags of GPU "
                  "%d", device);
    harmless_call(ucx_mp_driver.ctx_get_state(device, &seen, &active),
                  HARMLESS_CUDA_SUCCESS, "cuDevicePrimaryCtxGetState of GPU "
                  "%d", device);
    if (!active || ((seen & HARMLESS_CUDA_SCHED_MASK) != flags)) {
        harmless_wrong("GPU %d's primary context is %sactive, flags 0x%x, "
                       "after flags 0x%x were set", device,
                       active ? "" : "not ", seen, flags);
    }
    ++harmless.counts[HARMLESS_NUM_OTHERS];
}

static void harmless_do_replace(void)
{
    harmless_buffer_t *b;

    b = &harmless.buffers[harmless_below(HARMLESS_MAX_BUFFERS)];
    if (!b->is_valid || b->is_temporary || (b->num_busy > 0) ||
        (b->kind == HARMLESS_WINDOW) ||
        /* large ones are slow */
        ((b->size >= harmless.opts.max_size / 2) && harmless_below(4))) {
        return;
    }
    harmless_verify_buffer(b, "before it is freed");
    harmless_buffer_replace(b);
}

/* Discard pages; new ones at the same address are zeros. */
static void harmless_do_discard(void)
{
    harmless_range_t range = {harmless_choose_registrable(), 0, 0};

    if ((range.buffer == NULL) || (range.buffer->kind != HARMLESS_MMAP) ||
        !harmless_choose_pages(&range) || !harmless_is_free(&range, 1) ||
        (harmless_place(&range) != HARMLESS_OUTSIDE)) {
        return;
    }
    harmless_log("madvise(DONTNEED) of %zu bytes of buffer %d + %zu",
                 range.size, harmless_index(range.buffer), range.begin);
    if (madvise(harmless_ptr(&range), range.size, MADV_DONTNEED) != 0) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "madvise failed");
    }
    memset(harmless_shadow(&range), 0, range.size);
    ++harmless.counts[HARMLESS_NUM_OTHERS];
}

static void harmless_do_write(void)
{
    harmless_range_t range;

    if (harmless_find(&range, harmless_copy_size(), HARMLESS_TO_WRITE)) {
        harmless_fill(&range, harmless.random);
    }
}

static void harmless_do_verify(void)
{
    harmless_buffer_t *b;

    b = &harmless.buffers[harmless_below(HARMLESS_MAX_BUFFERS)];
    if (b->is_valid && (b->num_busy == 0)) {
        harmless_verify_buffer(b, "looked at");
    }
}

void harmless_do_something(void)
{
    uint64_t what = harmless_below(100);

    if (harmless.num_gpus == 0) {
        /* without CUDA */
        if (what < 10) {
            harmless_do_replace();
        } else if (what < 40) {
            harmless_do_discard();
        } else if (what < 45) {
            harmless_do_verify();
        } else {
            harmless_do_write();
        }
        return;
    }

    if (what < 30) {
        harmless_do_copy(0);
    } else if (what < 60) {
        harmless_do_copy(1);
    } else if (what < 68) {
        harmless_do_register();
    } else if (what < 75) {
        harmless_do_unregister();
    } else if (what < 79) {
        harmless_do_replace();
    } else if (what < 82) {
        harmless_do_discard();
    } else if (what < 89) {
        harmless_do_ask();
    } else if (what < 93) {
        harmless_do_peer();
    } else if (what < 95) {
        harmless_do_flags();
    } else if (what < 96) {
        harmless_do_verify();
    } else {
        harmless_do_write();
    }
}

/* Reset one GPU's context, with all memory of the program there. */
void harmless_reset(void)
{
    const int gpu = (int)harmless_below(harmless.num_gpus);
    int i;

    harmless_gpu_use(gpu);
    harmless_call(ucx_mp_driver.ctx_reset(harmless.gpus[gpu].device),
                  HARMLESS_CUDA_SUCCESS, "cuDevicePrimaryCtxReset of GPU %d",
                  harmless.gpus[gpu].device);
    for (i = 0; i < harmless.num_gpus; ++i) {
        harmless.has_peer[gpu][i] = harmless.has_peer[i][gpu] = 0;
    }
    harmless_gpu_open(gpu);
    harmless_memory_reset(gpu);
    ++harmless.counts[HARMLESS_NUM_RESETS];
}
