/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completion of the program's synchronous copies before its memory is accessed.
 *
 * Means offered by the driver (H100, driver 580): CU_CTX_SYNC_MEMOPS waits for
 * all queued work when it is set, and invalidates a capture; the attribute of
 * an allocation waits for copies into it only, as do later copies, for good.
 * Memory from cuMemCreate lacks this attribute, and for pools it has no effect:
 * there an event in a blocking stream of the module is used. It comes after the
 * copies of the legacy stream and waits for no other stream.
 */
#include <uct/cuda/base/memory.h>

#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/context_data.h>
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/driver.h>


/* Allocations remembered by a thread, a power of 2 */
#define KNOWN 64

/* CU_CTX_SYNC_MEMOPS, new in CUDA 12.1 */
#define CTX_SYNC_MEMOPS 0x80

/* A copy of the last 64 KiB of pageable memory takes 5 ms behind 256 MiB of
 * others over PCIe 5; kernels of the program in the legacy stream also delay
 * the event, perhaps for ever. */
#define MAX_WAIT_NS (20 * 1000 * 1000)


/* Data of a context */
typedef struct {
    CUstream stream; /* blocking; no other work is ever in it */
    CUevent  event;
    bool     is_busy; /* the event did not complete within MAX_WAIT_NS */
} legacy_t;


static ucs_status_t legacy_create(void *arg)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    legacy_t *legacy                = arg;

    if (driver->cuStreamCreate(&legacy->stream, CU_STREAM_DEFAULT) !=
        CUDA_SUCCESS) {
        return UCS_ERR_IO_ERROR;
    }

    if (driver->cuEventCreate(&legacy->event, CU_EVENT_DISABLE_TIMING) !=
        CUDA_SUCCESS) {
        (void)driver->cuStreamDestroy(legacy->stream);
        return UCS_ERR_IO_ERROR;
    }

    return UCS_OK;
}

static const uct_cuda_context_kind_t legacy_kind = {
    .size   = sizeof(legacy_t),
    .create = legacy_create
};

/*
 * Record the event of a context behind all work of its legacy stream so far;
 * waiting for the stream itself would not include that. Another thread may
 * record it again later.
 *
 * If the event is delayed for long the program has copied nothing since:
 * cuMemcpyHtoD() itself waits for earlier work of the legacy stream.
 */
static bool legacy_record(legacy_t *legacy)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();

    if (__atomic_load_n(&legacy->is_busy, __ATOMIC_RELAXED) &&
        (driver->cuEventQuery(legacy->event) == CUDA_ERROR_NOT_READY)) {
        return false;
    }

    __atomic_store_n(&legacy->is_busy, false, __ATOMIC_RELAXED);
    return driver->cuEventRecord(legacy->event, legacy->stream) ==
           CUDA_SUCCESS;
}

static bool legacy_wait(legacy_t *legacy, uint64_t wait_ns)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    const uint64_t start            = uct_cuda_now_ns();
    CUresult result;

    if (!legacy_record(legacy)) {
        return false;
    }

    do {
        result = driver->cuEventQuery(legacy->event);
    } while ((result == CUDA_ERROR_NOT_READY) &&
             (uct_cuda_now_ns() - start < wait_ns));

    if (wait_ns == MAX_WAIT_NS) {
        __atomic_store_n(&legacy->is_busy, result == CUDA_ERROR_NOT_READY,
                         __ATOMIC_RELAXED);
    }

    return result == CUDA_SUCCESS;
}

/* Wait for the legacy stream. @return true: all its work has ended */
static bool wait_for_legacy(uint64_t wait_ns)
{
    uct_cuda_context_t *context;
    bool has_ended;
    void *legacy;

    if (uct_cuda_context_hold_member(&legacy_kind, &context, &legacy) !=
        UCS_OK) {
        return false;
    }

    has_ended = legacy_wait(legacy, wait_ns);
    uct_cuda_context_put(context);
    return has_ended;
}

static void wait_for_copies(void)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    unsigned flags                  = 0;

    /* with this flag cuMemcpyHtoD() has waited already */
    if ((driver->cuCtxGetFlags == NULL) ||
        (driver->cuCtxGetFlags(&flags) != CUDA_SUCCESS) ||
        !(flags & CTX_SYNC_MEMOPS)) {
        (void)wait_for_legacy(MAX_WAIT_NS);
    }
}

bool uct_cuda_memory_legacy_is_idle(void)
{
    return wait_for_legacy(UCT_CUDA_CTX_ANSWER_NS);
}

/* The program's copies may be in either context: the current one, or the
 * primary one of the memory's device */
void uct_cuda_memory_sync_unowned(int device)
{
    CUcontext current = NULL, primary = NULL;
    uct_cuda_ctx_scope_t context;

    (void)uct_cuda_driver_get()->cuCtxGetCurrent(&current);
    if (current != NULL) {
        wait_for_copies();
    }

    if (uct_cuda_ctx_enter(NULL, device, &context) == UCS_OK) {
        (void)uct_cuda_driver_get()->cuCtxGetCurrent(&primary);
        if (primary != current) {
            wait_for_copies();
        }
        uct_cuda_ctx_leave(&context);
    }
}

/* Needs no current context (H200, driver 580) */
static bool set_attribute(const uct_cuda_memory_t *memory)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    const unsigned enable           = 1;

    return (driver->cuPointerSetAttribute != NULL) &&
           (driver->cuPointerSetAttribute(&enable,
                                          CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                          memory->base) == CUDA_SUCCESS);
}

void uct_cuda_memory_sync_memops(const uct_cuda_memory_t *memory)
{
    /* ids are never reused */
    static __thread unsigned long long known[KNOWN];
    unsigned long long *slot = &known[memory->buffer_id % KNOWN];

    if (((memory->type != UCS_MEMORY_TYPE_CUDA) &&
         (memory->type != UCS_MEMORY_TYPE_CUDA_MANAGED)) ||
        uct_cuda_end_is_host_vmm(memory->end)) {
        return;
    }

    if ((memory->buffer_id != 0) && (*slot == memory->buffer_id)) {
        return;
    }

    if ((memory->context == NULL) && (memory->type == UCS_MEMORY_TYPE_CUDA)) {
        uct_cuda_memory_sync_unowned(uct_cuda_end_device(memory->end));
    } else if (set_attribute(memory)) {
        *slot = memory->buffer_id;
    }
}
