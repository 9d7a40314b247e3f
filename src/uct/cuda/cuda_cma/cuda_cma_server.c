/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All data except the control block belongs to the thread. Requests are not
 * trusted: keys are unpacked like UCX's, and host memory is accessed only if a
 * key was given out for it and the driver confirms that it is page-locked.
 */
#include <uct/cuda/cuda_cma/cuda_cma_server.h>

#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/gpu.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/base/range.h>
#include <uct/cuda/base/thread.h>
#include <uct/cuda/cuda_cma/cuda_cma_ranges.h>
#include <uct/cuda/node/process.h>
#include <uct/cuda/node/mappings.h>
#include <uct/cuda/copy/post.h>
#include <uct/cuda/copy/kernel.h>

#include <ucs/sys/math.h>

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>


/* Time of polling before the server sleeps, and before it pauses between checks
 * of running work (ns) */
#define AWAKE_NS 100000ul
#define BUSY_NS  20000ul
#define PAUSE_NS 5000

/* Interval of checks without wakeup: for killed peers, and memory freed by them
 * (ns) */
#define ROUND_NS (1000ul * 1000 * 1000)

/* Maximum completions reported by one check */
#define MAX_POLL 256

/* Maximum requests of a peer taken in a row, for fairness */
#define MAX_TAKEN 256


/* Request that was taken */
typedef struct {
    uct_completion_t       comp;
    uct_cuda_cma_request_t *request;
    unsigned               *under_way;
} taken_request_t;

/* The thread's data of a slot */
typedef struct {
    unsigned             tail;      /* next request */
    unsigned             under_way;
    uint32_t             serials[UCT_CUDA_CMA_KEYS];
    uct_cuda_node_rkey_t *rkeys[UCT_CUDA_CMA_KEYS];
    taken_request_t      work[UCT_CUDA_CMA_REQUESTS];
} view_t;

static struct {
    pthread_mutex_t          lock;  /* order: base/thread.h */
    pid_t                    pid;   /* process of the thread */
    bool                     is_tried; /* not to be tried again */
    bool                     is_over;
    /* time of the last request for kernels */
    uint64_t                 prepared;
    pthread_t                thread;
    uct_cuda_cma_server_id_t id;
    uct_cuda_cma_control_t   *control;
    uct_cuda_node_alive_t    *alive; /* of peers with a slot */

    /* Owned by the thread */
    uct_cuda_queue_t         queue;
    uct_cuda_copier_t      copier;
    view_t                   *views[UCT_CUDA_CMA_SLOTS];
    bool                     is_starved; /* no memory for a view */
    /* the driver was queried in this round */
    bool                     has_asked;
    uint64_t                 open_begin; /* range confirmed by the last */
    uint64_t                 open_size;  /* query, bytes; 0: none */
} server = {.lock = PTHREAD_MUTEX_INITIALIZER};


/* ---------------------------------------------------------------- requests */

static void work_over(uct_completion_t *comp)
{
    taken_request_t *work = (taken_request_t*)comp;

    --*work->under_way;
    uct_cuda_cma_request_hand_over(work->request,
                                   (comp->status == UCS_OK) ?
                                           UCT_CUDA_CMA_DONE :
                                           UCT_CUDA_CMA_REFUSED);
}

static bool is_open(uint64_t address, uint64_t length)
{
    return uct_cuda_range_holds(server.open_begin, server.open_size, address,
                                length);
}

/* Return whether host memory may be accessed. Checked in each round: its lock
 * may be gone. */
static bool open_host(uint64_t address, uint64_t length)
{
    uct_cuda_memory_t memory;
    uint64_t base;
    size_t size;

    if (is_open(address, length)) {
        return true;
    }

    server.open_size = 0;
    if (!uct_cuda_cma_ranges_find(address, length, &base, &size)) {
        return false;
    }

    uct_cuda_memory_query((void*)(uintptr_t)address, 0, &memory);
    if (!uct_cuda_end_is_host(memory.end) || !memory.is_pinned ||
        !uct_cuda_range_holds(memory.base, memory.length, address, length)) {
        return false;
    }

    server.open_begin = ucs_max(base, memory.base);
    server.open_size  = ucs_min(base + size, memory.base + memory.length) -
                        server.open_begin;
    return true;
}

/* Unpack a key for the peer's GPU if there is a context on it, else for any.
 * Keys of this process's own memory are refused: no peer has one. */
static uct_cuda_node_rkey_t *unpack(const uct_cuda_node_packed_rkey_t *packed)
{
    const uct_cuda_end_t gpu   = uct_cuda_gpu_by_uuid(packed->handle.gpu);
    uct_cuda_node_rkey_t *rkey = NULL;

    if (((!uct_cuda_end_is_gpu(gpu) ||
          (uct_cuda_node_rkey_unpack(packed, gpu, &rkey) != UCS_OK)) &&
         (uct_cuda_node_rkey_unpack(packed, uct_cuda_end_none(), &rkey) !=
          UCS_OK))) {
        return NULL;
    }

    if (rkey->is_self) {
        uct_cuda_node_rkey_destroy(rkey);
        return NULL;
    }

    return rkey;
}

/* Return the unpacked key of a request; NULL: not available */
static uct_cuda_node_rkey_t *
find_rkey(view_t *view, uct_cuda_cma_slot_t *slot,
          const uct_cuda_cma_request_t *request)
{
    const unsigned i = request->key;
    uct_cuda_node_packed_rkey_t packed;

    if (i >= UCT_CUDA_CMA_KEYS) {
        return NULL;
    }

    if ((view->rkeys[i] != NULL) && (view->serials[i] == request->serial)) {
        return view->rkeys[i];
    }

    if (view->rkeys[i] != NULL) {
        uct_cuda_node_rkey_destroy(view->rkeys[i]);
        view->rkeys[i] = NULL;
    }

    if (slot->keys[i].serial == request->serial) {
        packed           = slot->keys[i].packed;
        view->serials[i] = request->serial;
        view->rkeys[i]   = unpack(&packed);
    }

    return view->rkeys[i];
}

static void heartbeat(void)
{
    __atomic_fetch_add(&server.control->heartbeat, 1, __ATOMIC_RELAXED);
}

static ucs_status_t
request_start(view_t *view, uct_cuda_cma_slot_t *slot,
              const uct_cuda_cma_request_t *request, uct_completion_t *comp,
              bool has_more)
{
    uct_cuda_queue_t *queue   = &server.queue;
    uct_cuda_node_rkey_t *key = find_rkey(view, slot, request);
    uct_cuda_copy_t transfer;
    ucs_status_t status;

    if ((key == NULL) || (request->length == 0) ||
        !open_host(request->host, request->length)) {
        return UCS_ERR_UNSUPPORTED;
    }

    uct_cuda_copy_init(&transfer, (void*)(uintptr_t)request->host, key,
                       request->gpu, request->length, !request->to_host, comp);
    for (;;) {
        status = uct_cuda_copy_post(&server.copier, &transfer, has_more,
                                    false);
        if (status != UCS_ERR_NO_RESOURCE) {
            return status;
        }

        /* the driver's limit is reached: some must complete first */
        uct_cuda_queue_submit_coalesced(queue, true);
        if (uct_cuda_queue_is_idle(queue)) {
            return status;
        }
        heartbeat();
        (void)uct_cuda_queue_progress(queue);
    }
}

static uct_cuda_cma_request_t *request_at(uct_cuda_cma_slot_t *slot, unsigned i)
{
    return &slot->requests[i % UCT_CUDA_CMA_REQUESTS];
}

/* Take a peer's posted requests. @return Their number */
static unsigned slot_take(view_t *view, uct_cuda_cma_slot_t *slot)
{
    uct_cuda_cma_request_t *request, copy;
    unsigned count = 0;
    ucs_status_t status;
    taken_request_t *work;

    for (; count < MAX_TAKEN; ++count, ++view->tail) {
        request = request_at(slot, view->tail);
        if (uct_cuda_cma_request_state(request) == UCT_CUDA_CMA_TAKEN_BACK) {
            uct_cuda_cma_request_hand_over(request, UCT_CUDA_CMA_FREE);
            continue;
        }

        if (uct_cuda_cma_request_state(request) != UCT_CUDA_CMA_POSTED) {
            break;
        }

        /* A request taken cannot be taken back: the program may be in a call
         * that waits for this data and blocks the server's driver calls */
        if (!server.has_asked) {
            server.has_asked = true;
            uct_cuda_queue_wait_for_driver(&server.queue);
        }

        if (!uct_cuda_cma_request_take(request, UCT_CUDA_CMA_TAKEN)) {
            /* taken back in between */
            uct_cuda_cma_request_hand_over(request, UCT_CUDA_CMA_FREE);
            continue;
        }

        work              = &view->work[view->tail % UCT_CUDA_CMA_REQUESTS];
        work->comp.func   = work_over;
        work->comp.count  = 1;
        work->comp.status = UCS_OK;
        work->request     = request;
        work->under_way   = &view->under_way;
        /* a copy, which the peer cannot change any more */
        copy              = *request;
        ++view->under_way;
        status = request_start(view, slot, &copy, &work->comp,
                               uct_cuda_cma_request_state(
                                       request_at(slot, view->tail + 1)) ==
                                       UCT_CUDA_CMA_POSTED);
        if (status != UCS_INPROGRESS) {
            uct_abi_completion_update(&work->comp, 1, status);
        }
    }

    return count;
}


/* ------------------------------------------------------------------- slots */

/* Unmap the memory of a process without slots: a peer that has stopped using
 * the server, or has ended, gets its memory back this way */
static void unmap_process(int32_t pid)
{
    uct_cuda_node_iface_addr_t self;
    unsigned i;

    for (i = 0; i < UCT_CUDA_CMA_SLOTS; ++i) {
        if (__atomic_load_n(&server.control->slots[i].pid, __ATOMIC_RELAXED) ==
            pid) {
            return;
        }
    }

    uct_cuda_node_iface_addr_self(&self);
    uct_cuda_node_cache_purge_peer(self.pid_ns, pid);
}

/* Clear the slot of a peer that has ended or stopped using it, with nothing
 * running */
static void slot_clear(unsigned i)
{
    uct_cuda_cma_slot_t *slot = &server.control->slots[i];
    view_t *view              = server.views[i];
    const int32_t pid         = slot->pid;
    unsigned k;

    if (view != NULL) {
        for (k = 0; k < UCT_CUDA_CMA_KEYS; ++k) {
            if (view->rkeys[k] != NULL) {
                uct_cuda_node_rkey_destroy(view->rkeys[k]);
            }
        }
        free(view);
        server.views[i] = NULL;
    }

    for (k = 0; k < UCT_CUDA_CMA_REQUESTS; ++k) {
        uct_cuda_cma_request_hand_over(&slot->requests[k], UCT_CUDA_CMA_FREE);
    }
    /* the next peer numbers its allocations from the start */
    memset(slot->keys, 0, sizeof(slot->keys));
    slot->is_over = 0;
    __atomic_store_n(&slot->pid, 0, __ATOMIC_RELEASE);
    unmap_process(pid);
}

/* Take all posted requests; @a is_round: also check for owners that have
 * ended */
static unsigned take_all(bool is_round)
{
    unsigned count = 0;
    uct_cuda_cma_slot_t *slot;
    int32_t pid;
    unsigned i;

    server.open_size  = 0;
    server.is_starved = false;
    server.has_asked  = false;
    for (i = 0; i < UCT_CUDA_CMA_SLOTS; ++i) {
        slot = &server.control->slots[i];
        pid  = __atomic_load_n(&slot->pid, __ATOMIC_ACQUIRE);
        if (pid == 0) {
            continue;
        }

        if (server.views[i] == NULL) {
            server.views[i] = calloc(1, sizeof(*server.views[i]));
            if (server.views[i] == NULL) {
                server.is_starved = true;
                continue;
            }
        }

        count += slot_take(server.views[i], slot);
        if (!server.is_starved) {
            heartbeat();
        }
        if ((server.views[i]->under_way == 0) &&
            (__atomic_load_n(&slot->is_over, __ATOMIC_ACQUIRE) ||
             (is_round &&
              !uct_cuda_node_alive_is_taken(server.alive, i)))) {
            slot_clear(i);
        }
    }

    return count;
}

/* Return whether there is nothing to do, once no peer can post without a
 * wakeup */
static bool is_idle(void)
{
    uct_cuda_cma_state_t state;
    uct_cuda_cma_slot_t *slot;
    unsigned i;

    if (__atomic_load_n(&server.control->is_over, __ATOMIC_SEQ_CST) ||
        __atomic_load_n(&server.control->is_short, __ATOMIC_SEQ_CST)) {
        return false;
    }

    for (i = 0; i < UCT_CUDA_CMA_SLOTS; ++i) {
        slot = &server.control->slots[i];
        if (__atomic_load_n(&slot->pid, __ATOMIC_SEQ_CST) == 0) {
            continue;
        }

        state = (server.views[i] == NULL) ?
                        UCT_CUDA_CMA_POSTED :
                        uct_cuda_cma_request_state(
                                request_at(slot, server.views[i]->tail));
        if (__atomic_load_n(&slot->is_over, __ATOMIC_SEQ_CST) ||
            (state == UCT_CUDA_CMA_POSTED) ||
            (state == UCT_CUDA_CMA_TAKEN_BACK)) {
            return false;
        }
    }

    return true;
}


/* ------------------------------------------------------------------ thread */

/* Pause for a short time: more requests come soon, but the program has priority
 * on the processor */
static void pause_between_polls(void)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};

    (void)nanosleep(&pause, NULL);
}

static void *serve(void *arg)
{
    uct_cuda_cma_control_t *control = server.control;
    uct_cuda_queue_t *queue         = &server.queue;
    uint64_t last                   = uct_cuda_now_ns(), round = last, now;
    bool is_round;

    (void)prctl(PR_SET_TIMERSLACK, 1000ul); /* ns */
    while (!__atomic_load_n(&control->is_over, __ATOMIC_ACQUIRE)) {
        now      = uct_cuda_now_ns();
        is_round = __atomic_exchange_n(&control->is_short, 0,
                                       __ATOMIC_ACQUIRE) ||
                   (now - round >= ROUND_NS);
        if (is_round) {
            round = now;
            (void)uct_cuda_node_cache_unmap_freed();
        }

        if (take_all(is_round) > 0) {
            last = uct_cuda_now_ns();
        }

        uct_cuda_queue_submit_coalesced(queue, false);
        if (!uct_cuda_queue_is_idle(queue) &&
            (uct_cuda_queue_progress(queue) > 0)) {
            last = uct_cuda_now_ns();
        }

        now = uct_cuda_now_ns();
        if (!uct_cuda_queue_is_idle(queue) || queue->is_coalescing ||
            server.is_starved) {
            if (now - last > BUSY_NS) {
                pause_between_polls();
            }
        } else if (now - last > AWAKE_NS) {
            uct_cuda_cma_control_sleep(control, is_idle, ROUND_NS);
        }
    }

    /* report running requests to their peers; cleanup would wait for them
     * anyway */
    uct_cuda_queue_submit_coalesced(queue, true);
    while (!uct_cuda_queue_is_idle(queue)) {
        (void)uct_cuda_queue_progress(queue);
        pause_between_polls();
    }
    uct_cuda_queue_cleanup(queue);
    uct_cuda_copier_close(&server.copier);
    return NULL;
}

/* Runs before the driver's exit handlers, registered earlier */
static void on_exit_of_program(void)
{
    if (server.pid != getpid()) {
        return;
    }

    pthread_mutex_lock(&server.lock);
    server.is_over = true;
    if (server.control != NULL) {
        __atomic_store_n(&server.control->is_over, 1, __ATOMIC_SEQ_CST);
        uct_cuda_cma_control_wake_self(server.control);
        if (uct_cuda_thread_join(server.thread)) {
            server.control = NULL; /* peers still have it mapped */
        }
    }
    pthread_mutex_unlock(&server.lock);
}

static void start(void)
{
    static bool has_handler;

    if (!has_handler && (atexit(on_exit_of_program) != 0)) {
        return;
    }

    has_handler = true;
    memset(&server.copier, 0, sizeof(server.copier));
    memset(server.views, 0, sizeof(server.views));
    if (uct_cuda_queue_init(&server.queue, MAX_POLL, UINT_MAX) !=
        UCS_OK) {
        return;
    }

    if (uct_cuda_copier_open_shared(&server.copier, &server.queue) !=
        UCS_OK) {
        goto err_queue; /* the next call may succeed */
    }

    /* loading a first kernel may invalidate a capture (base/ctx.h), so never
     * for a peer */
    server.copier.coalescer.loads_kernels = false;

    server.is_tried = true;
    server.control = uct_cuda_cma_control_create(&server.id);
    if (server.control == NULL) {
        goto err_copier;
    }

    if (uct_cuda_node_alive_open(server.id.fd, &server.alive) != UCS_OK) {
        goto err_control;
    }

    if (!uct_cuda_thread_start(serve, NULL, &server.thread)) {
        goto err_alive;
    }

    uct_cuda_debug("serving peers' copies of page-locked memory");
    return;

err_alive:
    uct_cuda_node_alive_close(server.alive);
err_control:
    close(server.id.fd);
    uct_cuda_cma_control_close(server.control);
    server.control = NULL;
err_copier:
    uct_cuda_copier_close(&server.copier);
err_queue:
    uct_cuda_queue_cleanup(&server.queue);
}

bool uct_cuda_cma_server_get(uct_cuda_cma_server_id_t *id_p)
{
    const pid_t pid = getpid();
    bool is_ready;
    uint64_t now;

    /* a forked child has neither the thread nor a lock it can trust */
    if ((__atomic_load_n(&server.pid, __ATOMIC_RELAXED) != 0) &&
        (__atomic_load_n(&server.pid, __ATOMIC_RELAXED) != pid)) {
        pthread_mutex_init(&server.lock, NULL);
        server.control  = NULL;
        server.is_tried = false;
    }

    pthread_mutex_lock(&server.lock);
    __atomic_store_n(&server.pid, pid, __ATOMIC_RELAXED);
    if (!server.is_tried && !server.is_over) {
        start();
    }

    is_ready = (server.control != NULL);
    if (is_ready) {
        *id_p = server.id;
        now   = uct_cuda_now_ns();
        if ((server.prepared == 0) || (now - server.prepared >= ROUND_NS)) {
            server.prepared = now;
            uct_cuda_copy_kernel_prepare();
        }
    }
    pthread_mutex_unlock(&server.lock);
    return is_ready;
}
