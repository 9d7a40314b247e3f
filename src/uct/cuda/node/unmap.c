/* SPDX-License-Identifier: BSD-3-Clause */
/* A queue of mappings, oldest first. */
#include <uct/cuda/node/unmap.h>

#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/node/invalidation.h>

#include <stdlib.h>
#include <sys/queue.h>


/* Smallest size of an allocation and of its mapping, bytes */
#define GRANULARITY ((size_t)2 << 20)

/* Maximum number of processes sharing a GPU and the limit */
#define MAX_PARTS 64

/* Time until a busy context is queried again (ns) */
#define REPEAT_NS (1000ul * 1000)


/* How to find out whether a GPU is idle. All but REUSE may invalidate a
 * capture. */
typedef enum {
    REUSE, /* last answer, while it is recent; query the legacy stream */
    QUERY, /* for UCT_CUDA_CTX_ANSWER_NS */
    WAIT   /* see uct_cuda_ctx_wait_idle() */
} query_t;

typedef struct kept {
    TAILQ_ENTRY(kept)      link;
    uct_cuda_node_handle_t handle;
    CUdeviceptr            mapped;
    CUdevice               device;
    CUcontext              context;
    unsigned long long     context_id;
    size_t                 size;
} kept_t;

static struct {
    TAILQ_HEAD(, kept) list; /* oldest first */
    size_t             size;
} kept = {.list = TAILQ_HEAD_INITIALIZER(kept.list)};


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

/* Unmap a kept mapping, and remove it from the queue */
static void close_kept(kept_t *entry)
{
    unmap_now(&entry->handle, entry->mapped, entry->context,
              entry->context_id);
    kept.size -= entry->size;
    TAILQ_REMOVE(&kept.list, entry, link);
    free(entry);
}

void uct_cuda_node_unmap(const uct_cuda_node_handle_t *handle,
                         CUdeviceptr mapped, CUdevice device,
                         CUcontext context, unsigned long long id)
{
    kept_t *entry = NULL;

    if (handle->type == UCT_CUDA_NODE_HANDLE_LEGACY) {
        entry = malloc(sizeof(*entry));
    }

    if (entry == NULL) {
        unmap_now(handle, mapped, context, id);
        return;
    }

    entry->handle     = *handle;
    entry->mapped     = mapped;
    entry->device     = device;
    entry->context    = context;
    entry->context_id = id;
    entry->size       = (handle->length + GRANULARITY - 1) / GRANULARITY *
                        GRANULARITY;
    kept.size        += entry->size;
    TAILQ_INSERT_TAIL(&kept.list, entry, link);
}

/* Return whether a context is idle; true if it is gone. A negative answer is
 * reused for REPEAT_NS unless the caller may wait for longer: a query takes up
 * to 0.1 ms, a wait up to 2 ms, with the lock held. */
static bool is_idle(CUcontext context, unsigned long long id, query_t query)
{
    static uint64_t timed_out; /* time of the last WAIT that timed out, ns */
    static struct {
        unsigned long long id;
        uint64_t           when; /* ns */
        query_t            query;
    } busy;

    const uint64_t now = uct_cuda_now_ns();
    bool answer;

    if (((busy.id == id) && (query <= busy.query) &&
         (now - busy.when < REPEAT_NS)) ||
        ((query == REUSE) && uct_cuda_ctx_was_busy())) {
        return false;
    }

    if (!uct_cuda_ctx_push_alive(context, id)) {
        return true;
    }

    answer = ((query != WAIT) || uct_cuda_ctx_wait_idle(&timed_out)) &&
             uct_cuda_memory_legacy_is_idle() &&
             ((query != QUERY) || uct_cuda_ctx_is_idle(UCT_CUDA_CTX_ANSWER_NS));
    uct_cuda_ctx_pop();
    if (!answer) {
        busy.id    = id;
        busy.when  = uct_cuda_now_ns();
        busy.query = query;
    }
    return answer;
}

static bool entry_is_idle(const kept_t *entry, query_t query)
{
    return is_idle(entry->context, entry->context_id, query);
}

bool uct_cuda_node_unmap_blocks(const uct_cuda_node_handle_t *handle,
                                CUcontext context, unsigned long long id)
{
    return (handle->type == UCT_CUDA_NODE_HANDLE_LEGACY) &&
           !is_idle(context, id, WAIT);
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

void uct_cuda_node_unmap_due(bool may_query)
{
    if (!uct_cuda_node_unmap_is_due()) {
        return;
    }

    while ((kept.size > part_of(may_query ? UCT_CUDA_NODE_UNMAP_KEPT / 2 :
                                            UCT_CUDA_NODE_UNMAP_KEPT)) &&
           ((kept.size > part_of(UCT_CUDA_NODE_UNMAP_MAX)) ||
            entry_is_idle(TAILQ_FIRST(&kept.list),
                          may_query ? QUERY : REUSE))) {
        close_kept(TAILQ_FIRST(&kept.list));
    }
}

bool uct_cuda_node_unmap_idle(uint64_t max_ns)
{
    const uint64_t start = uct_cuda_now_ns();

    while (uct_cuda_node_unmap_is_much()) {
        if (uct_cuda_now_ns() - start > max_ns) {
            return true;
        }
        if (!entry_is_idle(TAILQ_FIRST(&kept.list), REUSE)) {
            return false;
        }

        close_kept(TAILQ_FIRST(&kept.list));
    }

    return false;
}

/* Return whether memory shares a block with other allocations */
static bool is_small(const uct_cuda_node_handle_t *handle)
{
    return (handle->type == UCT_CUDA_NODE_HANDLE_LEGACY) &&
           (handle->length < GRANULARITY);
}

bool uct_cuda_node_unmap_replaced(const uct_cuda_node_handle_t *handle,
                                  CUdevice device, bool may_block)
{
    kept_t *entry, *newer;

    for (entry = is_small(handle) ? TAILQ_FIRST(&kept.list) : NULL;
         entry != NULL; entry = newer) {
        newer = TAILQ_NEXT(entry, link);
        if ((entry->handle.pid != handle->pid) ||
            (entry->handle.pid_ns != handle->pid_ns) ||
            (entry->handle.base != handle->base) ||
            (entry->device != device) || !is_small(&entry->handle)) {
            continue;
        }

        if (!may_block && !entry_is_idle(entry, WAIT)) {
            return false;
        }

        close_kept(entry);
    }

    return true;
}

unsigned uct_cuda_node_unmap_device(CUdevice device, bool *is_busy_p)
{
    unsigned count = 0;
    kept_t *entry, *newer;

    for (entry = TAILQ_FIRST(&kept.list); entry != NULL; entry = newer) {
        newer = TAILQ_NEXT(entry, link);
        if (entry->device != device) {
            continue;
        }

        if (entry_is_idle(entry, WAIT)) {
            close_kept(entry);
            ++count;
        } else {
            *is_busy_p = true;
        }
    }

    return count;
}

unsigned uct_cuda_node_unmap_all(void)
{
    unsigned count = 0;

    for (; !TAILQ_EMPTY(&kept.list); ++count) {
        close_kept(TAILQ_FIRST(&kept.list));
    }

    return count;
}
