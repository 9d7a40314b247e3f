/* SPDX-License-Identifier: BSD-3-Clause */
/* A queue of mappings, oldest first. */
#include <uct/cuda/node/unmap.h>

#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/node/invalidation.h>

#include <stdlib.h>


/* Smallest size of an allocation and of its mapping, bytes */
#define GRANULARITY ((size_t)2 << 20)

/* Maximum number of processes sharing a GPU and the limit */
#define MAX_PARTS 64

/* Time that an idle GPU needs to answer, with a margin */
#define IDLE_WAIT_NS (100 * 1000)

/* Time until a busy GPU is queried again */
#define BUSY_NS (1000ul * 1000)


typedef struct kept kept_t;

struct kept {
    kept_t                 *next;
    uct_cuda_node_handle_t handle;
    CUdeviceptr            mapped;
    CUcontext              context;
    unsigned long long    context_id;
    size_t                 size;
};

static struct {
    kept_t *oldest;
    kept_t **end; /* link of the next one */
    size_t size;
} kept = {.end = &kept.oldest};


/* Unmap now. The context may have been destroyed or reset, and a legacy mapping
 * with it; cuMemCreate memory belongs to no context and stays mapped. */
static void unmap_now(const uct_cuda_node_handle_t *handle, CUdeviceptr mapped,
                      CUcontext context, unsigned long long id)
{
    const bool is_pushed = uct_cuda_ctx_push_alive(context, id);

    if (is_pushed || (handle->type != UCT_CUDA_NODE_HANDLE_LEGACY)) {
        uct_cuda_node_handle_close(handle, mapped);
    }

    if (is_pushed) {
        uct_cuda_ctx_pop();
    }
}

/* Unmap the kept mapping that *link points to, and remove it from the queue */
static void close_kept(kept_t **link)
{
    kept_t *entry = *link;

    unmap_now(&entry->handle, entry->mapped, entry->context,
              entry->context_id);
    kept.size -= entry->size;
    *link      = entry->next;
    if (*link == NULL) {
        kept.end = link;
    }
    free(entry);
}

static void close_oldest(void)
{
    close_kept(&kept.oldest);
}

void uct_cuda_node_unmap(const uct_cuda_node_handle_t *handle,
                         CUdeviceptr mapped, CUcontext context,
                         unsigned long long id)
{
    kept_t *entry = NULL;

    if (handle->type == UCT_CUDA_NODE_HANDLE_LEGACY) {
        entry = malloc(sizeof(*entry));
    }

    if (entry == NULL) {
        unmap_now(handle, mapped, context, id);
        return;
    }

    entry->next       = NULL;
    entry->handle     = *handle;
    entry->mapped     = mapped;
    entry->context    = context;
    entry->context_id = id;
    entry->size       = (handle->length + GRANULARITY - 1) / GRANULARITY *
                        GRANULARITY;
    kept.size        += entry->size;
    *kept.end         = entry;
    kept.end          = &entry->next;
}

/* Return whether the GPU of a kept mapping is idle; true if the mapping's
 * context is gone. A negative answer is reused for BUSY_NS, whatever the GPU:
 * the query takes up to 0.1 ms with the lock held. */
static bool is_idle(const kept_t *entry, bool may_ask)
{
    static uint64_t busy;

    const uint64_t now = uct_cuda_now_ns();
    bool answer        = true;

    if ((busy != 0) && (now - busy < BUSY_NS)) {
        return false;
    }

    if (uct_cuda_ctx_push_alive(entry->context, entry->context_id)) {
        answer = uct_cuda_memory_legacy_is_idle() &&
                 (may_ask ? uct_cuda_ctx_is_idle(IDLE_WAIT_NS) :
                            !uct_cuda_ctx_was_busy());
        uct_cuda_ctx_pop();
    }

    busy = answer ? 0 : now;
    return answer;
}

/* Return this process's share of a limit: peers keep as much, possibly on one
 * GPU */
static size_t part_of(size_t size)
{
    return size / (uct_cuda_node_invalidation_num_views() + 1);
}

bool uct_cuda_node_unmap_is_much(void)
{
    return kept.size > part_of(UCT_CUDA_NODE_UNMAP_KEPT);
}

bool uct_cuda_node_unmap_is_due(void)
{
    return __atomic_load_n(&kept.size, __ATOMIC_RELAXED) >
           UCT_CUDA_NODE_UNMAP_KEPT / MAX_PARTS;
}

void uct_cuda_node_unmap_due(bool may_ask)
{
    if (!uct_cuda_node_unmap_is_due()) {
        return;
    }

    while ((kept.size > part_of(may_ask ? UCT_CUDA_NODE_UNMAP_KEPT / 2 :
                                          UCT_CUDA_NODE_UNMAP_KEPT)) &&
           ((kept.size > part_of(UCT_CUDA_NODE_UNMAP_MAX)) ||
            is_idle(kept.oldest, may_ask))) {
        close_oldest();
    }
}

bool uct_cuda_node_unmap_idle(uint64_t max_ns)
{
    const uint64_t start = uct_cuda_now_ns();

    while (uct_cuda_node_unmap_is_much()) {
        if (uct_cuda_now_ns() - start > max_ns) {
            return true;
        }
        if (!is_idle(kept.oldest, false)) {
            return false;
        }
        close_oldest();
    }

    return false;
}

void uct_cuda_node_unmap_replaced(const uct_cuda_node_handle_t *handle)
{
    kept_t **link = &kept.oldest;

    if ((handle->type != UCT_CUDA_NODE_HANDLE_LEGACY) ||
        (handle->length >= GRANULARITY)) {
        return;
    }

    while (*link != NULL) {
        if (((*link)->handle.pid == handle->pid) &&
            ((*link)->handle.pid_ns == handle->pid_ns) &&
            ((*link)->handle.base == handle->base)) {
            close_kept(link);
        } else {
            link = &(*link)->next;
        }
    }
}

unsigned uct_cuda_node_unmap_all(void)
{
    unsigned count = 0;

    for (; kept.oldest != NULL; ++count) {
        close_oldest();
    }

    return count;
}
