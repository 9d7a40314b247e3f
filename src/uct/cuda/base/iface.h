/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Common part of the transports' UCT interfaces: a queue of CUDA operations
 * behind flush, fence, progress and wakeup, and one device.
 */
#ifndef UCT_CUDA_BASE_IFACE_H
#define UCT_CUDA_BASE_IFACE_H

#include <uct/abi/abi.h>
#include <uct/cuda/base/queue.h>


/** Interface whose work is a queue of CUDA operations. */
typedef struct {
    uct_abi_iface_t  super;
    uct_cuda_queue_t queue;
    /** UCT_PROGRESS_ flags requested by UCP */
    unsigned         progress_wanted;
    bool             is_progressed;   /**< The worker calls this interface */
    unsigned         idle_calls;      /**< Consecutive calls without work */
    struct uct_cuda_worker *worker;   /**< For uct_cuda_iface_call_soon() */
} uct_cuda_iface_t;


static inline uct_cuda_queue_t *uct_cuda_ep_queue(uct_ep_h ep)
{
    return &((uct_cuda_iface_t*)ep->iface)->queue;
}

static inline uct_cuda_queue_t *uct_cuda_iface_queue(uct_iface_h iface)
{
    return &((uct_cuda_iface_t*)iface)->queue;
}


/** Operations shared by all interfaces. */
#define UCT_CUDA_IFACE_OPS \
    .ep_pending_add         = uct_cuda_ep_pending_add, \
    .ep_pending_purge       = uct_cuda_ep_pending_purge, \
    .ep_flush               = uct_cuda_ep_flush, \
    .ep_fence               = uct_cuda_ep_fence, \
    .iface_flush            = uct_cuda_iface_flush, \
    .iface_fence            = uct_cuda_iface_fence, \
    .iface_progress         = uct_cuda_iface_progress, \
    .iface_progress_enable  = uct_cuda_iface_progress_enable, \
    .iface_progress_disable = uct_cuda_iface_progress_disable, \
    .iface_event_fd_get     = uct_cuda_iface_event_fd_get, \
    .iface_event_arm        = uct_cuda_iface_event_arm

ucs_status_t uct_cuda_ep_pending_add(uct_ep_h ep, uct_pending_req_t *req,
                                     unsigned flags);
void uct_cuda_ep_pending_purge(uct_ep_h ep, uct_pending_purge_callback_t cb,
                               void *arg);
ucs_status_t uct_cuda_ep_flush(uct_ep_h ep, unsigned flags,
                               uct_completion_t *comp);
ucs_status_t uct_cuda_ep_fence(uct_ep_h ep, unsigned flags);
ucs_status_t uct_cuda_iface_flush(uct_iface_h iface, unsigned flags,
                                  uct_completion_t *comp);
ucs_status_t uct_cuda_iface_fence(uct_iface_h iface, unsigned flags);
unsigned uct_cuda_iface_progress(uct_iface_h iface);
void uct_cuda_iface_progress_enable(uct_iface_h iface, unsigned flags);
void uct_cuda_iface_progress_disable(uct_iface_h iface, unsigned flags);
ucs_status_t uct_cuda_iface_event_fd_get(uct_iface_h iface, int *fd_p);
ucs_status_t uct_cuda_iface_event_arm(uct_iface_h iface, unsigned events);


/**
 * Create an interface of @a size bytes that begins with the common part; the
 * rest is zeroed.
 *
 * @param max_poll, max_events  As for uct_cuda_queue_init().
 * @return UCS_OK; UCS_ERR_NO_DEVICE: UCX requests a device other than "cuda";
 *         UCS_ERR_INVALID_PARAM, UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_iface_new(size_t size, const uct_abi_iface_ops_t *ops,
                                const uct_abi_iface_args_t *args,
                                unsigned max_poll, unsigned max_events,
                                uct_abi_iface_t **iface_p);

/** Wait for the queue's operations and clean up; the caller frees the
 *  memory. */
void uct_cuda_iface_cleanup(uct_cuda_iface_t *iface);

/**
 * Call @a func in the next progress call of each worker with an interface, idle
 * or not, and again while it returns true. Thread safe; costs nothing until
 * then.
 */
void uct_cuda_iface_call_soon(bool (*func)(void));

/** Set the capabilities common to all: events, and zero-copy of one buffer. */
void uct_cuda_iface_query(uct_iface_attr_t *attr);

/** Fill in the single device "cuda", named as in stock UCX. */
int uct_cuda_query_device(const uct_abi_md_t *md, uct_abi_tl_device_t *device);

/** Return whether there is a GPU. Called before anything is offered to UCX. */
int uct_cuda_is_available(const uct_abi_component_t *component);

#endif
