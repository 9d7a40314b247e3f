/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the transports have in common as UCT interfaces: a queue of CUDA
 * operations behind flush, fence, progress and wake-up, and one device.
 */
#ifndef UCT_CUDA_BASE_IFACE_H
#define UCT_CUDA_BASE_IFACE_H

#include <uct/abi/abi.h>
#include <uct/cuda/base/queue.h>


/** Interface whose work is a queue of CUDA operations. */
typedef struct {
    uct_abi_iface_t  super;
    uct_cuda_queue_t queue;
    unsigned         progress_wanted; /**< UCT_PROGRESS_ flags, by UCP */
    bool             is_progressed;   /**< The worker calls us */
    unsigned         idle_calls;      /**< ... and for so long in vain */
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


/** The part of the operations' table that all interfaces share. */
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
 * An interface of @a size bytes that begins with the common part; the rest is
 * zero.
 *
 * @param max_poll, max_events  As for uct_cuda_queue_init().
 *
 * @return UCS_OK; UCS_ERR_NO_DEVICE when UCX asks for a device other than
 *         "cuda"; UCS_ERR_INVALID_PARAM, UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_iface_new(size_t size, const uct_abi_iface_ops_t *ops,
                                const uct_abi_iface_args_t *args,
                                unsigned max_poll, unsigned max_events,
                                uct_abi_iface_t **iface_p);

/** Waits for the queue's operations; the memory is to be freed then. */
void uct_cuda_iface_cleanup(uct_cuda_iface_t *iface);

/**
 * Have @a func called in the next progress call of each worker that has an
 * interface, idle or not, and in those behind it while it returns true. Any
 * thread; costs nothing until then.
 */
void uct_cuda_iface_call_soon(bool (*func)(void));

/** The capabilities that all have: events, and zero-copy of one buffer. */
void uct_cuda_iface_query(uct_iface_attr_t *attr);

/** The one device "cuda", as stock UCX names it. */
ucs_status_t uct_cuda_query_devices(uct_device_type_t type,
                                    uct_abi_tl_device_t **devices_p,
                                    unsigned *num_devices_p);

/** Is there a GPU? Asked before anything is offered to UCX. */
int uct_cuda_is_available(const uct_abi_component_t *component);

#endif
