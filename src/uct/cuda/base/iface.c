/* SPDX-License-Identifier: BSD-3-Clause */
/* UCT's operations on top of a queue of CUDA operations. */
#include <uct/cuda/base/iface.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/gpu.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/log_ucx.h>
#include <uct/cuda/base/memtype.h>

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>


#define DEVICE_NAME "cuda"

/* Functions to be called in progress */
#define MAX_FUNCS 2

/* Worker with interfaces. Kept for reuse: the worker may call once more after
 * the callback was removed. */
typedef struct uct_cuda_worker uct_cuda_worker_t;

struct uct_cuda_worker {
    uct_cuda_worker_t *next;
    uct_worker_h      uct;
    unsigned          num_ifaces;
    int               callback; /* number, or UCS_CALLBACKQ_ID_NULL */
};

static struct {
    pthread_mutex_t   lock; /* order: base/thread.h */
    uct_cuda_worker_t *head;
    struct {
        bool (*func)(void);
        bool is_wanted;
    } calls[MAX_FUNCS];
} workers = {.lock = PTHREAD_MUTEX_INITIALIZER};


/* More calls than between two GPU messages of a program that sends such
 * messages */
#define MAX_IDLE_CALLS 10000


ucs_status_t uct_cuda_ep_pending_add(uct_ep_h ep, uct_pending_req_t *req,
                                     unsigned flags)
{
    return uct_cuda_queue_pending_add(uct_cuda_ep_queue(ep), ep, req);
}

void uct_cuda_ep_pending_purge(uct_ep_h ep, uct_pending_purge_callback_t cb,
                               void *arg)
{
    uct_cuda_queue_pending_purge(uct_cuda_ep_queue(ep), ep, cb, arg);
}

ucs_status_t uct_cuda_ep_flush(uct_ep_h ep, unsigned flags,
                               uct_completion_t *comp)
{
    return uct_cuda_queue_flush(uct_cuda_ep_queue(ep), comp);
}

ucs_status_t uct_cuda_ep_fence(uct_ep_h ep, unsigned flags)
{
    uct_cuda_queue_fence(uct_cuda_ep_queue(ep));
    return UCS_OK;
}

ucs_status_t uct_cuda_iface_flush(uct_iface_h iface, unsigned flags,
                                  uct_completion_t *comp)
{
    /* as everywhere in UCX, an interface cannot be flushed in the background */
    return (comp != NULL) ?
                   UCS_ERR_UNSUPPORTED :
                   uct_cuda_queue_flush(uct_cuda_iface_queue(iface), NULL);
}

ucs_status_t uct_cuda_iface_fence(uct_iface_h iface, unsigned flags)
{
    uct_cuda_queue_fence(uct_cuda_iface_queue(iface));
    return UCS_OK;
}

/*
 * The worker calls the interface while there is work, and a little longer: a
 * program that sends host memory only should not pay for this interface
 * (polling an empty queue took 14 % of the time of an 8-byte message).
 */
static void set_progressed(uct_cuda_iface_t *iface, bool is_progressed)
{
    if (is_progressed == iface->is_progressed) {
        return;
    }

    iface->is_progressed = is_progressed;
    iface->idle_calls    = 0;
    if (is_progressed) {
        uct_abi_iface_progress_enable(&iface->super, iface->progress_wanted);
    } else {
        uct_abi_iface_progress_disable(&iface->super,
                                       UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    }
}

static void on_busy(uct_cuda_queue_t *queue)
{
    uct_cuda_iface_t *iface = (uct_cuda_iface_t*)((char*)queue -
                                                  offsetof(uct_cuda_iface_t,
                                                           queue));

    iface->idle_calls = 0;
    set_progressed(iface, iface->progress_wanted != 0);
}

unsigned uct_cuda_iface_progress(uct_iface_h tl_iface)
{
    uct_cuda_iface_t *iface = (uct_cuda_iface_t*)tl_iface;

    if (iface->queue.has_coalesced) {
        if (iface->queue.may_wait(&iface->queue)) {
            return 0;
        }

        uct_cuda_queue_submit_coalesced(&iface->queue, false);
    }

    if (!uct_cuda_queue_is_idle(&iface->queue)) {
        return uct_cuda_queue_progress(&iface->queue);
    }

    if (!iface->queue.is_coalescing &&
        (++iface->idle_calls >= MAX_IDLE_CALLS)) {
        set_progressed(iface, false);
    }

    return 0;
}

void uct_cuda_iface_progress_enable(uct_iface_h tl_iface, unsigned flags)
{
    uct_cuda_iface_t *iface = (uct_cuda_iface_t*)tl_iface;

    iface->progress_wanted |= flags;
    set_progressed(iface, iface->progress_wanted != 0);
}

void uct_cuda_iface_progress_disable(uct_iface_h tl_iface, unsigned flags)
{
    uct_cuda_iface_t *iface = (uct_cuda_iface_t*)tl_iface;

    iface->progress_wanted &= ~flags;
    if (iface->progress_wanted == 0) {
        set_progressed(iface, false);
    }
}

ucs_status_t uct_cuda_iface_event_fd_get(uct_iface_h iface, int *fd_p)
{
    return uct_cuda_queue_event_fd(uct_cuda_iface_queue(iface), fd_p);
}

ucs_status_t uct_cuda_iface_event_arm(uct_iface_h iface, unsigned events)
{
    return uct_cuda_queue_arm(uct_cuda_iface_queue(iface));
}

/* Call with the lock held. NULL: no memory */
static uct_cuda_worker_t *worker_get(uct_worker_h uct)
{
    uct_cuda_worker_t *worker, *idle = NULL;

    for (worker = workers.head; worker != NULL; worker = worker->next) {
        if (worker->num_ifaces == 0) {
            idle = worker;
        } else if (worker->uct == uct) {
            return worker;
        }
    }

    if (idle == NULL) {
        idle = calloc(1, sizeof(*idle));
        if (idle == NULL) {
            return NULL;
        }

        idle->next   = workers.head;
        workers.head = idle;
    }

    idle->uct      = uct;
    idle->callback = UCS_CALLBACKQ_ID_NULL;
    return idle;
}

/* Call with the lock held */
static void worker_cancel(uct_cuda_worker_t *worker)
{
    if (worker->callback != UCS_CALLBACKQ_ID_NULL) {
        uct_abi_worker_callback_remove(worker->uct, worker->callback);
        worker->callback = UCS_CALLBACKQ_ID_NULL;
    }
}

/* Without memory the worker is called for other interfaces only */
static void iface_add(uct_cuda_iface_t *iface)
{
    pthread_mutex_lock(&workers.lock);
    iface->worker = worker_get(iface->super.worker);
    if (iface->worker != NULL) {
        ++iface->worker->num_ifaces;
    }
    pthread_mutex_unlock(&workers.lock);
}

static void iface_remove(uct_cuda_iface_t *iface)
{
    if (iface->worker == NULL) {
        return;
    }

    pthread_mutex_lock(&workers.lock);
    if (--iface->worker->num_ifaces == 0) {
        worker_cancel(iface->worker);
    }
    pthread_mutex_unlock(&workers.lock);
}

/* If the lock is held, leave this to the next progress call: the holder may
 * wait for a lock of the worker's queue */
static unsigned worker_call(void *arg)
{
    bool is_wanted = false;
    unsigned i;

    for (i = 0; i < MAX_FUNCS; ++i) {
        if (__atomic_exchange_n(&workers.calls[i].is_wanted, false,
                                __ATOMIC_ACQ_REL) &&
            workers.calls[i].func()) {
            __atomic_store_n(&workers.calls[i].is_wanted, true,
                             __ATOMIC_RELEASE);
        }
    }

    if (pthread_mutex_trylock(&workers.lock) == 0) {
        for (i = 0; i < MAX_FUNCS; ++i) {
            is_wanted |= workers.calls[i].is_wanted;
        }
        if (!is_wanted) {
            worker_cancel(arg);
        }
        pthread_mutex_unlock(&workers.lock);
    }

    return 0;
}

void uct_cuda_iface_call_soon(bool (*func)(void))
{
    uct_cuda_worker_t *worker;
    unsigned i;

    pthread_mutex_lock(&workers.lock);
    for (i = 0; (workers.calls[i].func != NULL) &&
                (workers.calls[i].func != func); ++i) {
    }
    workers.calls[i].func = func;
    __atomic_store_n(&workers.calls[i].is_wanted, true, __ATOMIC_RELEASE);
    for (worker = workers.head; worker != NULL; worker = worker->next) {
        if ((worker->num_ifaces > 0) &&
            (worker->callback == UCS_CALLBACKQ_ID_NULL)) {
            worker->callback = uct_abi_worker_callback_add(worker->uct,
                                                           worker_call, worker);
        }
    }
    pthread_mutex_unlock(&workers.lock);
}

ucs_status_t uct_cuda_iface_new(size_t size, const uct_abi_iface_ops_t *ops,
                                const uct_abi_iface_args_t *args,
                                unsigned max_poll, unsigned max_events,
                                uct_abi_iface_t **iface_p)
{
    const uct_iface_params_t *params = args->params;
    uct_cuda_iface_t *iface;
    ucs_status_t status;

    if (!(params->field_mask & UCT_IFACE_PARAM_FIELD_DEVICE)) {
        uct_cuda_error("cannot open an interface: the device name is missing");
        return UCS_ERR_INVALID_PARAM;
    }

    if (strncmp(params->mode.device.dev_name, DEVICE_NAME,
                strlen(DEVICE_NAME)) != 0) {
        uct_cuda_error("cannot open an interface: there is no device %s",
                       params->mode.device.dev_name);
        return UCS_ERR_NO_DEVICE;
    }

    status = uct_abi_iface_new(size, ops, args, iface_p);
    if (status != UCS_OK) {
        return status;
    }

    iface  = (uct_cuda_iface_t*)*iface_p;
    status = uct_cuda_queue_init(&iface->queue, max_poll, max_events);
    if (status != UCS_OK) {
        uct_abi_iface_cleanup(*iface_p);
        free(*iface_p);
        return status;
    }

    iface->queue.on_busy = on_busy;
    iface_add(iface);
    return UCS_OK;
}

void uct_cuda_iface_cleanup(uct_cuda_iface_t *iface)
{
    iface_remove(iface);
    uct_cuda_queue_cleanup(&iface->queue);
    uct_abi_iface_cleanup(&iface->super);
}

void uct_cuda_iface_query(uct_iface_attr_t *attr)
{
    attr->cap.flags       = UCT_IFACE_FLAG_CONNECT_TO_IFACE |
                            UCT_IFACE_FLAG_PENDING | UCT_IFACE_FLAG_GET_ZCOPY |
                            UCT_IFACE_FLAG_PUT_ZCOPY;
    attr->cap.event_flags = UCT_IFACE_FLAG_EVENT_SEND_COMP |
                            UCT_IFACE_FLAG_EVENT_RECV |
                            UCT_IFACE_FLAG_EVENT_FD;

    attr->cap.put.min_zcopy       = 0;
    attr->cap.put.max_zcopy       = SIZE_MAX;
    attr->cap.put.opt_zcopy_align = 1;
    attr->cap.put.align_mtu       = 1;
    attr->cap.put.max_iov         = 1;

    attr->cap.get.min_zcopy       = 0;
    attr->cap.get.max_zcopy       = SIZE_MAX;
    attr->cap.get.opt_zcopy_align = 1;
    attr->cap.get.align_mtu       = 1;
    attr->cap.get.max_iov         = 1;

    attr->bandwidth.dedicated = 0;
    attr->priority            = 0;
}

int uct_cuda_query_device(const uct_abi_md_t *md, uct_abi_tl_device_t *device)
{
    unsigned long long id;
    CUcontext context;
    CUdevice current;

    strcpy(device->name, DEVICE_NAME);
    device->sys_device =
            ((uct_cuda_ctx_current(&context, &id) == UCS_OK) &&
             (uct_cuda_driver_get()->cuCtxGetDevice(&current) ==
              CUDA_SUCCESS)) ?
                    uct_cuda_gpu_sys_device(current) :
                    UCT_ABI_SYS_DEVICE_UNKNOWN;
    return 1;
}

int uct_cuda_is_available(const uct_abi_component_t *component)
{
    uct_cuda_log_to_ucx();
    if (uct_cuda_gpu_count() == 0) {
        return 0;
    }

    uct_cuda_memtype_setup();
    uct_cuda_gpu_name_sys_devices();
    return 1;
}
