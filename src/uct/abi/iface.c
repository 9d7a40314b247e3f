/* SPDX-License-Identifier: BSD-3-Clause */
/* Interfaces and endpoints: libuct's base classes, and operations with
   translated arguments. */

#include "host.h"
#include "tables.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Feature bit of uct_iface_params_t from 1.14 on, for RMA and atomics */
#define UCT_ABI_IFACE_FEATURE_FLUSH_REMOTE (1 << 6)

typedef ucs_status_t (*uct_abi_iface_ctor_t)(
        void *self, uct_abi_host_class_t *cls, int *count,
        const uct_iface_ops_t *ops, void *internal_ops, uct_md_h md,
        uct_worker_h worker, const uct_iface_params_t *params,
        const void *config);

typedef ucs_status_t (*uct_abi_ep_ctor_t)(void *self, uct_abi_host_class_t *cls,
                                          int *count, void *iface);

static uct_abi_iface_t *uct_abi_iface(uct_iface_h iface)
{
    return (uct_abi_iface_t*)iface;
}

static ucs_status_t
uct_abi_iface_query(uct_iface_h tl_iface, uct_iface_attr_t *attr_p)
{
    uct_abi_iface_t *iface = uct_abi_iface(tl_iface);

    uct_abi_host.sym.uct_base_iface_query(iface, attr_p);

    if (uct_abi_host.release->minor >= 22) {
        /* ctl_device, in former padding behind dev_num_paths */
        *((ucs_sys_device_t*)(&attr_p->dev_num_paths + 1)) =
                UCT_ABI_SYS_DEVICE_UNKNOWN;
    }

    return iface->ops->iface_query(iface, attr_p);
}

static ucs_status_t
uct_abi_ep_create(const uct_abi_host_ep_params_t *host_params, uct_ep_h *ep_p)
{
    uint64_t mask              = host_params->field_mask;
    uct_abi_ep_params_t params = {0};
    uct_abi_iface_t *iface;

    if (!(mask & UCT_ABI_EP_PARAM_IFACE)) {
        return UCS_ERR_INVALID_PARAM;
    }

    UCT_ABI_TAKE(mask, UCT_ABI_EP_PARAM_DEV_ADDR, params.dev_addr,
                 host_params->dev_addr)
    UCT_ABI_TAKE(mask, UCT_ABI_EP_PARAM_IFACE_ADDR, params.iface_addr,
                 host_params->iface_addr)
    iface = uct_abi_iface(host_params->iface);
    return iface->ops->ep_create(iface, &params, ep_p);
}

static int uct_abi_iface_is_reachable(const uct_iface_h tl_iface,
                                      const uct_device_addr_t *dev_addr,
                                      const uct_iface_addr_t *iface_addr)
{
    uct_abi_iface_t *iface   = uct_abi_iface(tl_iface);
    uct_abi_reachable_t peer = {dev_addr, iface_addr, NULL};

    return iface->ops->iface_is_reachable(iface, &peer);
}

/* Return whether this is our own device's address: UCX's device scope. */
static int uct_abi_iface_is_same_device(uct_iface_h tl_iface,
                                        const uct_device_addr_t *dev_addr)
{
    uct_abi_iface_t *iface = uct_abi_iface(tl_iface);
    uct_device_addr_t *own;
    uct_iface_attr_t attr;
    int result;

    if ((uct_abi_iface_query(tl_iface, &attr) != UCS_OK) ||
        ((own = calloc(1, attr.device_addr_len + 1)) == NULL)) {
        return 0;
    }

    result = (iface->ops->host.iface_get_device_address(tl_iface, own) ==
              UCS_OK) &&
             (memcmp(own, dev_addr, attr.device_addr_len) == 0);
    free(own);
    return result;
}

/* Store the reason why a peer is unreachable, if the caller provides room. */
static void
uct_abi_iface_explain(const uct_abi_host_reachable_params_t *params,
                      size_t length, const char *reason)
{
    if ((reason != NULL) && (length > 1)) {
        snprintf(params->info_string, length, "%s", reason);
    }
}

static int
uct_abi_iface_is_reachable_v2(const uct_iface_h tl_iface,
                              const uct_abi_host_reachable_params_t *params)
{
    uct_abi_iface_t *iface   = uct_abi_iface(tl_iface);
    uint64_t mask            = params->field_mask;
    uct_abi_reachable_t peer = {0};
    size_t info_length       = 0;

    if ((mask & UCT_ABI_REACHABLE_INFO_STRING) &&
        (params->info_string != NULL)) {
        info_length = (mask & UCT_ABI_REACHABLE_INFO_STRING_LENGTH) ?
                              params->info_string_length :
                              1;
        if (info_length > 0) {
            params->info_string[0] = '\0';
        }
    }

    /* NULL for device addresses without bytes, such as cuda_copy's */
    if (!(mask & UCT_ABI_REACHABLE_DEVICE_ADDR)) {
        uct_abi_iface_explain(params, info_length,
                              "a device address is missing");
        return 0;
    }

    peer.dev_addr = params->device_addr;
    UCT_ABI_TAKE(mask, UCT_ABI_REACHABLE_IFACE_ADDR, peer.iface_addr,
                 params->iface_addr)

    if (!iface->ops->iface_is_reachable(iface, &peer)) {
        uct_abi_iface_explain(params, info_length, peer.reason);
        return 0;
    }

    if ((mask & UCT_ABI_REACHABLE_SCOPE) &&
        (params->scope != UCT_ABI_SCOPE_NETWORK) &&
        !uct_abi_iface_is_same_device(tl_iface, params->device_addr)) {
        uct_abi_iface_explain(params, info_length, "another device");
        return 0;
    }

    return 1;
}

static int
uct_abi_ep_is_connected(uct_ep_h ep,
                        const uct_abi_host_connected_params_t *params)
{
    uct_abi_iface_t *iface   = uct_abi_ep_iface(ep);
    uct_abi_ep_params_t peer = {0};

    UCT_ABI_TAKE(params->field_mask, UCT_ABI_CONNECTED_DEVICE_ADDR,
                 peer.dev_addr, params->device_addr)
    UCT_ABI_TAKE(params->field_mask, UCT_ABI_CONNECTED_IFACE_ADDR,
                 peer.iface_addr, params->iface_addr)
    if (iface->ops->ep_is_connected != NULL) {
        return iface->ops->ep_is_connected(ep, &peer);
    }

    return (peer.dev_addr != NULL) &&
           uct_abi_iface_is_reachable((uct_iface_h)iface, peer.dev_addr,
                                      peer.iface_addr);
}

static ucs_status_t
uct_abi_iface_estimate_perf(uct_iface_h tl_iface, void *host)
{
    uct_abi_iface_t *iface           = uct_abi_iface(tl_iface);
    const uct_abi_layout_t *layout   = uct_abi_host.release->perf_attr;
    const uct_abi_perf_bits_t *moved = uct_abi_host.release->perf_bits;
    uct_abi_perf_attr_t attr;
    ucs_status_t status;
    uint64_t mask;

    memset(&attr, 0, sizeof(attr));
    attr.operation        = UCT_ABI_EP_OP_UNKNOWN;
    attr.local_mem_type   = UCT_ABI_MEM_TYPE_UNKNOWN;
    attr.remote_mem_type  = UCT_ABI_MEM_TYPE_UNKNOWN;
    attr.local_sys_dev    = UCT_ABI_SYS_DEVICE_UNKNOWN;
    attr.remote_sys_dev   = UCT_ABI_SYS_DEVICE_UNKNOWN;
    attr.max_inflight_eps = SIZE_MAX;
    attr.is_answered      = (uct_abi_host.release->minor < 19);

#define UCT_ABI_PERF_AT(_type, _field) \
    (*(_type*)uct_abi_at(layout, host, UCT_ABI_PERF_ATTR_##_field))

    mask = UCT_ABI_PERF_AT(uint64_t, field_mask);
    UCT_ABI_TAKE(mask, 1 << 0, attr.operation,
                 (uct_abi_ep_op_t)UCT_ABI_PERF_AT(int, operation))
    UCT_ABI_TAKE(mask, 1 << 1, attr.local_mem_type,
                 uct_abi_mem_type_from_host(
                         UCT_ABI_PERF_AT(int, local_memory_type)))
    UCT_ABI_TAKE(mask, 1 << 2, attr.remote_mem_type,
                 uct_abi_mem_type_from_host(
                         UCT_ABI_PERF_AT(int, remote_memory_type)))
    UCT_ABI_TAKE(mask, 1 << 3, attr.local_sys_dev,
                 UCT_ABI_PERF_AT(ucs_sys_device_t, local_sys_device))
    UCT_ABI_TAKE(mask, 1 << 4, attr.remote_sys_dev,
                 UCT_ABI_PERF_AT(ucs_sys_device_t, remote_sys_device))

    status = iface->ops->estimate_perf(iface, &attr);
    if (status != UCS_OK) {
        return status;
    }

    if ((attr.path_bandwidth.dedicated == 0) &&
        (attr.path_bandwidth.shared == 0)) {
        attr.path_bandwidth = attr.bandwidth;
    }

#define UCT_ABI_PERF_GIVE(_bit, _type, _field) \
    UCT_ABI_TAKE(mask, _bit, UCT_ABI_PERF_AT(_type, _field), attr._field)

    UCT_ABI_PERF_GIVE(1 << 5, double, send_pre_overhead)
    UCT_ABI_PERF_GIVE(1 << 6, double, send_post_overhead)
    UCT_ABI_PERF_GIVE(1 << 7, double, recv_overhead)
    UCT_ABI_PERF_GIVE(1 << 8, uct_ppn_bandwidth_t, bandwidth)
    UCT_ABI_PERF_GIVE(moved->path_bandwidth, uct_ppn_bandwidth_t,
                      path_bandwidth)
    UCT_ABI_PERF_GIVE(moved->latency, ucs_linear_func_t, latency)
    UCT_ABI_PERF_GIVE(moved->max_inflight_eps, size_t, max_inflight_eps)
    UCT_ABI_PERF_GIVE(moved->flags, uint64_t, flags)
    return UCS_OK;
}

static ucs_status_t uct_abi_ep_get_device_ep(uct_ep_h ep, void **device_ep_p)
{
    const uct_abi_iface_t *iface = uct_abi_ep_iface(ep);

    return (iface->ops->ep_get_device_ep == NULL) ?
                   UCS_ERR_UNSUPPORTED :
                   iface->ops->ep_get_device_ep(ep, device_ep_p);
}

/* Lists: UCT_IFACE_FLAG_V2_PUT_SGL_ZCOPY and _GET_SGL_ZCOPY */
static ucs_status_t uct_abi_iface_query_v2(uct_iface_h tl_iface, void *attr)
{
    const uct_abi_iface_ops_t *ops = uct_abi_iface(tl_iface)->ops;
    const uct_abi_layout_t *layout = uct_abi_host.release->iface_attr_v2;
    const uint64_t mask            = *(uint64_t*)attr;
    const struct {
        int      field;
        uint64_t value;
        bool     is_valid;
    } offers[] = {
        {UCT_ABI_IFACE_ATTR_V2_cap_flags, UCT_ABI_BIT(0),
         ops->ep_put_list != NULL},
        {UCT_ABI_IFACE_ATTR_V2_cap_flags, UCT_ABI_BIT(1),
         uct_abi_has(layout, UCT_ABI_IFACE_ATTR_V2_max_get_sgl_zcopy_count) &&
                 (ops->ep_get_list != NULL)},
        {UCT_ABI_IFACE_ATTR_V2_max_put_sgl_zcopy_count, SIZE_MAX,
         ops->ep_put_list != NULL},
        {UCT_ABI_IFACE_ATTR_V2_max_get_sgl_zcopy_count, SIZE_MAX,
         ops->ep_get_list != NULL}
    };
    ucs_status_t status;
    unsigned i;

    status = uct_abi_host.sym.uct_iface_base_query_v2(tl_iface, attr);
    for (i = 0; (i < sizeof(offers) / sizeof(offers[0])) && (status == UCS_OK);
         ++i) {
        if (offers[i].is_valid && uct_abi_has(layout, offers[i].field) &&
            (mask & uct_abi_attr_v2_bit(layout, offers[i].field))) {
            *(uint64_t*)uct_abi_at(layout, attr, offers[i].field) |=
                    offers[i].value;
        }
    }

    return status;
}

/* Elements repeated with a stride are not supported, as in UCX's own
   transports; UCP does not use them */
#define UCT_ABI_EP_LIST(_operation) \
    static ucs_status_t uct_abi_ep_##_operation( \
            uct_ep_h ep, void *const *buffers, const size_t *lengths, \
            const uct_mem_h *memhs, const uint64_t *remote_addrs, \
            const uct_rkey_t *rkeys, const size_t *counts, \
            const size_t *strides, size_t count, uct_completion_t *comp) \
    { \
        const uct_abi_iface_ops_t *ops = uct_abi_ep_iface(ep)->ops; \
        const uct_abi_list_t list = {buffers, lengths, remote_addrs, rkeys, \
                                     count}; \
        \
        if ((ops->ep_##_operation == NULL) || (counts != NULL) || \
            (strides != NULL)) { \
            return UCS_ERR_UNSUPPORTED; \
        } \
        \
        if ((count > 0) && ((buffers == NULL) || (lengths == NULL) || \
                            (remote_addrs == NULL) || (rkeys == NULL))) { \
            uct_abi_error("list of %zu blocks without arrays of buffers, " \
                          "lengths, addresses and keys", \
                          count); \
            return UCS_ERR_INVALID_PARAM; \
        } \
        \
        return ops->ep_##_operation(ep, &list, comp); \
    }

UCT_ABI_EP_LIST(put_list)
UCT_ABI_EP_LIST(get_list)

void uct_abi_internal_ops_emit(uct_abi_host_t *host)
{
    const uct_abi_layout_t *layout = host->release->internal_ops;
    unsigned i;

    for (i = 0; i < UCT_ABI_TABLE_MAX; ++i) {
        host->internal_ops[i] = (uct_abi_fn_t)uct_abi_unsupported;
    }

#define UCT_ABI_INTERNAL_OPS_SET(_field, _fn) \
    uct_abi_slot_set(layout, host->internal_ops, \
                     UCT_ABI_INTERNAL_OPS_##_field, (uct_abi_fn_t)(_fn))

    UCT_ABI_INTERNAL_OPS_SET(iface_estimate_perf, uct_abi_iface_estimate_perf);
    UCT_ABI_INTERNAL_OPS_SET(iface_vfs_refresh, uct_abi_zero); /* adds nothing
                                                to the virtual file system */
    UCT_ABI_INTERNAL_OPS_SET(iface_is_reachable_v2,
                             uct_abi_iface_is_reachable_v2);
    UCT_ABI_INTERNAL_OPS_SET(ep_is_connected, uct_abi_ep_is_connected);
    if (host->release->minor >= 21) {
        UCT_ABI_INTERNAL_OPS_SET(ep_get_device_ep, uct_abi_ep_get_device_ep);
    }
    if (host->sym.uct_iface_base_query_v2 != NULL) {
        UCT_ABI_INTERNAL_OPS_SET(iface_query_v2,
                                 host->sym.uct_iface_base_query_v2);
    }
    if (uct_abi_tables_has_lists(host->release,
                                 host->sym.uct_iface_base_query_v2)) {
        UCT_ABI_INTERNAL_OPS_SET(iface_query_v2, uct_abi_iface_query_v2);
        UCT_ABI_INTERNAL_OPS_SET(ep_put_sgl_zcopy, uct_abi_ep_put_list);
        UCT_ABI_INTERNAL_OPS_SET(ep_get_sgl_zcopy, uct_abi_ep_get_list);
    }
}

static void uct_abi_iface_ops_emit(const uct_abi_iface_ops_t *ops,
                                   uct_iface_ops_t *host_ops)
{
    uct_abi_fn_t *slots = (uct_abi_fn_t*)host_ops;
    unsigned i;

#define UCT_ABI_IFACE_OPS_SET(_name, _fn) \
    slots[offsetof(uct_iface_ops_t, _name) / sizeof(*slots)] = \
            (uct_abi_fn_t)(_fn)

    memcpy(host_ops, &ops->host, sizeof(*host_ops));
    UCT_ABI_IFACE_OPS_SET(iface_query, uct_abi_iface_query);
    UCT_ABI_IFACE_OPS_SET(ep_create, uct_abi_ep_create);
    UCT_ABI_IFACE_OPS_SET(iface_is_reachable, uct_abi_iface_is_reachable);
    for (i = 0; i < sizeof(*host_ops) / sizeof(*slots); ++i) {
        if (slots[i] == NULL) {
            slots[i] = (uct_abi_fn_t)uct_abi_unsupported;
        }
    }
}

unsigned uct_abi_iface_uses(const uct_abi_iface_args_t *args)
{
    const uct_iface_params_t *params = args->params;
    const uint64_t features =
            (params->field_mask & UCT_IFACE_PARAM_FIELD_FEATURES) ?
                    params->features :
                    0;

    return ((features & UCT_IFACE_FEATURE_TAG) ? UCT_ABI_IFACE_USE_TAG : 0) |
           (((features & UCT_ABI_IFACE_FEATURE_FLUSH_REMOTE) &&
             (uct_abi_host.release->minor >= 16)) ?
                    UCT_ABI_IFACE_USE_RMA :
                    0);
}

ucs_status_t uct_abi_iface_new(size_t size, const uct_abi_iface_ops_t *ops,
                               const uct_abi_iface_args_t *args,
                               uct_abi_iface_t **iface_p)
{
    uct_abi_host_class_t *cls = uct_abi_host.sym.uct_base_iface_t_class;
    uct_abi_iface_t *iface    = calloc(1, size);
    int count                 = 1;
    uct_abi_iface_ctor_t ctor;
    uct_iface_ops_t host_ops;
    ucs_status_t status;

    if (iface == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    uct_abi_iface_ops_emit(ops, &host_ops);
    iface->ops    = ops;
    iface->md     = args->md;
    iface->worker = args->worker;

    memcpy(&ctor, &cls->init, sizeof(ctor));
    status = ctor(iface, cls, &count, &host_ops, uct_abi_host.internal_ops,
                  (uct_md_h)args->md, args->worker, args->params, args->config);
    if (status != UCS_OK) {
        uct_abi_host.sym.ucs_class_call_cleanup_chain(cls, iface, count);
        free(iface);
        return status;
    }

    *iface_p = iface;
    return UCS_OK;
}

void uct_abi_iface_cleanup(uct_abi_iface_t *iface)
{
    /* the worker must not call into freed memory */
    uct_abi_iface_progress_disable(iface, UCT_PROGRESS_SEND |
                                                  UCT_PROGRESS_RECV);
    uct_abi_host.sym.ucs_class_call_cleanup_chain(
            uct_abi_host.sym.uct_base_iface_t_class, iface, -1);
}

ucs_status_t
uct_abi_ep_new(size_t size, uct_abi_iface_t *iface, uct_ep_h *ep_p)
{
    uct_abi_host_class_t *cls = uct_abi_host.sym.uct_base_ep_t_class;
    uct_abi_ep_t *ep          = calloc(1, size);
    int count                 = 1;
    uct_abi_ep_ctor_t ctor;
    ucs_status_t status;

    if (ep == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    memcpy(&ctor, &cls->init, sizeof(ctor));
    status = ctor(ep, cls, &count, iface);
    if (status != UCS_OK) {
        uct_abi_host.sym.ucs_class_call_cleanup_chain(cls, ep, count);
        free(ep);
        return status;
    }

    *ep_p = &ep->super;
    return UCS_OK;
}

void uct_abi_ep_delete(uct_ep_h ep)
{
    uct_abi_host.sym.ucs_class_call_cleanup_chain(
            uct_abi_host.sym.uct_base_ep_t_class, ep, -1);
    free(ep);
}

void uct_abi_iface_progress_enable(uct_abi_iface_t *iface, unsigned flags)
{
    uct_abi_host.sym.uct_base_iface_progress_enable((uct_iface_h)iface, flags);
}

void uct_abi_iface_progress_disable(uct_abi_iface_t *iface, unsigned flags)
{
    uct_abi_host.sym.uct_base_iface_progress_disable((uct_iface_h)iface, flags);
}

uint64_t uct_abi_iface_flags(unsigned abi_flags)
{
    unsigned minor = (uct_abi_host.release == NULL) ?
                             0 :
                             uct_abi_host.release->minor;
    uint64_t flags = 0;

    if ((abi_flags & UCT_ABI_IFACE_FLAG_INTER_NODE) && (minor >= 18)) {
        flags |= UCT_ABI_BIT(54);
    }
    if ((abi_flags & UCT_ABI_IFACE_FLAG_DEVICE_EP) && (minor >= 21)) {
        flags |= UCT_ABI_BIT(55);
    }

    return flags;
}

/* UCX 1.16 and later have no flags and ignore this argument */
int uct_abi_worker_callback_add(uct_worker_h worker, ucs_callback_t func,
                                void *arg)
{
    return ((uct_abi_host.sym.ucs_callbackq_add_safe != NULL) &&
            (uct_abi_host.sym.ucs_callbackq_remove_safe != NULL)) ?
                   uct_abi_host.sym.ucs_callbackq_add_safe(&worker->progress_q,
                                                           func, arg, 0) :
                   UCS_CALLBACKQ_ID_NULL;
}

void uct_abi_worker_callback_remove(uct_worker_h worker, int id)
{
    uct_abi_host.sym.ucs_callbackq_remove_safe(&worker->progress_q, id);
}
