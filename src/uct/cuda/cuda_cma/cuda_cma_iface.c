/* SPDX-License-Identifier: BSD-3-Clause */
/* UCT interface of cuda_cma: attributes, estimates and settings. */
#include <uct/cuda/cuda_cma/cuda_cma_md.h>

#include <uct/cuda/base/host/host_cpus.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/cuda_cma/cuda_cma_ep.h>
#include <uct/cuda/cuda_cma/cuda_cma_peer.h>

#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>


/* Bandwidth of process_vm_writev() with one thread, and with 8, bytes/s
 * (measured on an H200 node: 4.4, 14.3, 16.4 GB/s with 1, 4, 8) */
#define THREAD_BANDWIDTH 4.4e9
#define MAX_BANDWIDTH    14e9

/* Waking a thread, and filling and emptying a slot, seconds */
#define OVERHEAD 10e-6
#define LATENCY  10e-6


typedef struct {
    uct_abi_iface_config_t super;
    unsigned               max_poll;
    double                 bandwidth; /* bytes/s, or auto */
} iface_config_t;


static uct_abi_config_field_t config_fields[] = {
    UCT_ABI_CONFIG_FIELD("MAX_POLL", "16", UINT, iface_config_t,
                         max_poll, "Maximum completions per progress call"),
    UCT_ABI_CONFIG_FIELD("BW", "auto", BW, iface_config_t,
                         bandwidth, "Bandwidth reported to UCX"),
    {.type = UCT_ABI_CONFIG_END}
};


typedef struct {
    uct_cuda_cma_iface_t super;
    uint32_t             number; /* See uct_cuda_node_iface_number() */
    double               bandwidth;
} cma_iface_t;


static double threads_bandwidth(void)
{
    const unsigned share     = uct_cuda_host_cpus_share();
    const unsigned threads   = (share > 2) ? share - 1 : 1;
    const double all_threads = threads * THREAD_BANDWIDTH;

    return (all_threads < MAX_BANDWIDTH) ? all_threads : MAX_BANDWIDTH;
}

static const cma_iface_t *iface_of(uct_abi_iface_t *tl_iface)
{
    return (const cma_iface_t*)tl_iface;
}

static ucs_status_t iface_query(uct_abi_iface_t *tl_iface,
                                uct_iface_attr_t *attr)
{
    uct_cuda_iface_query(attr);

    attr->device_addr_len  = uct_cuda_node_device_addr_length(NULL);
    attr->iface_addr_len   = sizeof(uct_cuda_cma_addr_t);
    attr->cap.flags       |= UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE;
    attr->latency.c        = LATENCY;
    attr->latency.m        = 0;
    attr->bandwidth.shared = iface_of(tl_iface)->bandwidth;
    attr->overhead         = OVERHEAD;
    return UCS_OK;
}

/* Estimate transfers between a local GPU and remote host memory; other pairs
 * have better transports */
static ucs_status_t estimate_perf(uct_abi_iface_t *tl_iface,
                                  uct_abi_perf_attr_t *attr)
{
    if ((attr->local_mem_type == UCT_ABI_MEM_TYPE_HOST) ||
        ((attr->remote_mem_type != UCT_ABI_MEM_TYPE_HOST) &&
         (attr->remote_mem_type != UCT_ABI_MEM_TYPE_UNKNOWN))) {
        return UCS_ERR_UNSUPPORTED;
    }

    attr->bandwidth.shared  = iface_of(tl_iface)->bandwidth;
    attr->path_bandwidth    = attr->bandwidth;
    attr->send_pre_overhead = OVERHEAD;
    attr->latency.c         = LATENCY;
    return UCS_OK;
}

static ucs_status_t get_device_address(uct_iface_h iface,
                                       uct_device_addr_t *addr)
{
    uct_cuda_node_device_addr_t self;

    uct_cuda_node_device_addr_self(&self, NULL);
    memcpy(addr, &self, uct_cuda_node_device_addr_length(NULL));
    return UCS_OK;
}

static ucs_status_t get_address(uct_iface_h iface, uct_iface_addr_t *addr)
{
    uct_cuda_cma_addr_t self;

    uct_cuda_cma_addr_self(((cma_iface_t*)iface)->number, &self);
    memcpy(addr, &self, sizeof(self));
    return UCS_OK;
}

/* Log once in a process why a peer's host memory is not accessible */
static void log_once(const uct_cuda_cma_addr_t *addr, const char *reason)
{
    static bool is_logged;

    if (!__atomic_exchange_n(&is_logged, true, __ATOMIC_RELAXED)) {
        uct_cuda_info("cuda_cma: cannot access host memory of process %d: %s; "
                      "UCX uses other transports",
                      addr->process.pid, reason);
    }
}

static int is_reachable(uct_abi_iface_t *tl_iface, uct_abi_reachable_t *peer)
{
    const uint32_t number = ((cma_iface_t*)tl_iface)->number;
    uct_cuda_node_device_addr_t device, own_device;
    uct_cuda_cma_peer_t *process;
    uct_cuda_cma_addr_t addr;

    if ((peer->dev_addr == NULL) || (peer->iface_addr == NULL)) {
        peer->reason = "an address is missing";
        return 0;
    }

    uct_cuda_node_device_addr_self(&own_device, NULL);
    memcpy(&device, peer->dev_addr, uct_cuda_node_device_addr_length(NULL));
    memcpy(&addr, peer->iface_addr, sizeof(addr));
    if (memcmp(&device, &own_device, uct_cuda_node_device_addr_length(NULL)) !=
        0) {
        peer->reason = "different machine";
        return 0;
    }

    if (uct_cuda_node_is_self(addr.process.pid, addr.process.pid_ns)) {
        peer->reason = (addr.process.iface == number) ? "same interface" : NULL;
        return peer->reason == NULL;
    }

    if (uct_cuda_cma_peer_get(&addr, &process, &peer->reason) != UCS_OK) {
        log_once(&addr, peer->reason);
        return 0;
    }

    uct_cuda_cma_peer_put(process);
    return 1;
}

static void iface_close(uct_iface_h tl_iface)
{
    uct_cuda_cma_iface_t *iface = (uct_cuda_cma_iface_t*)tl_iface;

    uct_cuda_iface_cleanup(&iface->super);
    uct_cuda_copier_close(&iface->copier);
    free(iface);
}

static const uct_abi_iface_ops_t iface_ops = {
    .host = {
        UCT_CUDA_IFACE_OPS,
        .ep_put_zcopy             = uct_cuda_cma_ep_put_zcopy,
        .ep_get_zcopy             = uct_cuda_cma_ep_get_zcopy,
        .ep_destroy               = uct_cuda_cma_ep_destroy,
        .iface_close              = iface_close,
        .iface_get_device_address = get_device_address,
        .iface_get_address        = get_address
    },
    .ep_create          = uct_cuda_cma_ep_create,
    .ep_is_connected    = uct_cuda_cma_ep_is_connected,
    .iface_query        = iface_query,
    .iface_is_reachable = is_reachable,
    .estimate_perf      = estimate_perf
};

static ucs_status_t
iface_open(const uct_abi_iface_args_t *args, uct_abi_iface_t **iface_p)
{
    const iface_config_t *config =
            (const iface_config_t*)args->config;
    ucs_status_t status;
    cma_iface_t *iface;

    status = uct_cuda_iface_new(sizeof(*iface), &iface_ops, args,
                                config->max_poll, UINT_MAX, iface_p);
    if (status != UCS_OK) {
        return status;
    }

    iface            = (cma_iface_t*)*iface_p;
    iface->number    = uct_cuda_node_iface_number();
    iface->bandwidth = uct_abi_double_is_auto(config->bandwidth) ?
                               threads_bandwidth() :
                               config->bandwidth;
    return UCS_OK;
}

static int query_device(const uct_abi_md_t *md, uct_abi_tl_device_t *device)
{
    return ((const uct_cuda_cma_md_t*)md)->is_on &&
           uct_cuda_query_device(md, device);
}

const uct_abi_tl_t uct_cuda_cma_tl = {
    .name = "cuda_cma",
    .config = {
        .name   = "cuda_cma transport",
        .prefix = "CUDA_CMA_",
        .fields = config_fields,
        .size   = sizeof(iface_config_t)
    },
    .device_type  = UCT_DEVICE_TYPE_SHM,
    .query_device = query_device,
    .iface_open   = iface_open
};
