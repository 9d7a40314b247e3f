/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The program's synchronous copies have ended before its memory is touched.
 *
 * What the driver offers for that (H100, driver 580): CU_CTX_SYNC_MEMOPS waits
 * for all that is queued when it is set, and breaks a capture; the attribute of
 * an allocation waits for the copies into it alone, and so do those that come
 * later, for good. Memory made with cuMemCreate has no such attribute, and
 * pools' has one that does nothing: there it takes an event in a blocking
 * stream of ours, which comes behind the legacy stream's copies and behind no
 * other stream's work.
 */
#include <uct/cuda/base/memory.h>

#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/gpu.h>
#include <uct/cuda/base/log.h>

#include <pthread.h>


/* Allocations that a thread remembers, a power of 2 */
#define KNOWN 64

#define MAX_CONTEXTS 64

/* CU_CTX_SYNC_MEMOPS, which came with CUDA 12.1 */
#define CTX_SYNC_MEMOPS 0x80

/* A copy of the last 64 KiB of pageable memory takes 5 ms behind 256 MiB of
 * others over PCIe 5; kernels of the program's in the legacy stream, before
 * which the event does not come either, may take for ever. */
#define MAX_WAIT_NS (20 * 1000 * 1000)

/* The event of an idle stream comes in 10 us (H100) */
#define IDLE_WAIT_NS (100 * 1000)


/* Of a context that is gone the numbers are never asked for again */
typedef struct {
    unsigned long long id;
    CUstream           stream; /* blocking; nothing is ever in it */
    CUevent            event;
    bool               is_busy; /* the event has not come in MAX_WAIT_NS */
} entry_t;

static struct {
    pthread_mutex_t lock; /* order: base/thread.h */
    unsigned        next;
    entry_t         entries[MAX_CONTEXTS];
} contexts = {.lock = PTHREAD_MUTEX_INITIALIZER};


static bool make_entry(unsigned long long id, entry_t *entry)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();

    if (driver->cuStreamCreate(&entry->stream, CU_STREAM_DEFAULT) !=
        CUDA_SUCCESS) {
        return false;
    }

    if (driver->cuEventCreate(&entry->event, CU_EVENT_DISABLE_TIMING) !=
        CUDA_SUCCESS) {
        (void)driver->cuStreamDestroy(entry->stream);
        return false;
    }

    entry->id      = id;
    entry->is_busy = false;
    return true;
}

/* The current context's; NULL: it cannot be had. The lock is held. */
static entry_t *get_entry(void)
{
    unsigned long long id;
    CUcontext cuda;
    entry_t *entry;
    unsigned i;

    if (uct_cuda_ctx_current(&cuda, &id) != UCS_OK) {
        return NULL;
    }

    for (i = 0; i < MAX_CONTEXTS; ++i) {
        if (contexts.entries[i].id == id) {
            return &contexts.entries[i];
        }
    }

    entry = &contexts.entries[contexts.next % MAX_CONTEXTS];
    if (!make_entry(id, entry)) {
        return NULL;
    }

    ++contexts.next;
    return entry;
}

/*
 * Records an event of the current context behind all its legacy stream's work
 * until now; waiting for the stream instead does not wait for that.
 *
 * If one has not come for long, nothing of the program's has been copied since:
 * cuMemcpyHtoD() itself waits for what the legacy stream had before it.
 */
static bool record_event(entry_t **entry_p)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    entry_t *entry                  = get_entry();

    if ((entry == NULL) ||
        (entry->is_busy &&
         (driver->cuEventQuery(entry->event) == CUDA_ERROR_NOT_READY))) {
        return false;
    }

    entry->is_busy = false;
    *entry_p       = entry;
    return driver->cuEventRecord(entry->event, entry->stream) == CUDA_SUCCESS;
}

/* @return Whether the legacy stream has ended all that it had */
static bool wait_for_legacy(uint64_t wait_ns)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    const uint64_t start            = uct_cuda_now_ns();
    bool is_recorded;
    CUresult result;
    entry_t *entry;

    pthread_mutex_lock(&contexts.lock);
    is_recorded = record_event(&entry);
    pthread_mutex_unlock(&contexts.lock);
    if (!is_recorded) {
        return false;
    }

    do {
        result = driver->cuEventQuery(entry->event);
    } while ((result == CUDA_ERROR_NOT_READY) &&
             (uct_cuda_now_ns() - start < wait_ns));

    if (wait_ns == MAX_WAIT_NS) {
        entry->is_busy = (result == CUDA_ERROR_NOT_READY);
    }

    return result == CUDA_SUCCESS;
}

static void wait_for_copies(void)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    unsigned flags                  = 0;

    /* With that, cuMemcpyHtoD() has waited already */
    if ((driver->cuCtxGetFlags == NULL) ||
        (driver->cuCtxGetFlags(&flags) != CUDA_SUCCESS) ||
        !(flags & CTX_SYNC_MEMOPS)) {
        (void)wait_for_legacy(MAX_WAIT_NS);
    }
}

bool uct_cuda_memory_legacy_is_idle(void)
{
    return wait_for_legacy(IDLE_WAIT_NS);
}

/* Nobody knows which context the program has copied in: the current one, or the
 * primary one of the memory's device */
void uct_cuda_memory_sync_unowned(int device)
{
    CUcontext current = NULL, primary = NULL;
    uct_cuda_gpu_context_t context;

    (void)uct_cuda_driver_get()->cuCtxGetCurrent(&current);
    if (current != NULL) {
        wait_for_copies();
    }

    if (uct_cuda_gpu_context_push(NULL, device, &context) == UCS_OK) {
        (void)uct_cuda_driver_get()->cuCtxGetCurrent(&primary);
        if (primary != current) {
            wait_for_copies();
        }
        uct_cuda_gpu_context_pop(&context);
    }
}

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
    /* Ids are never used again */
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
