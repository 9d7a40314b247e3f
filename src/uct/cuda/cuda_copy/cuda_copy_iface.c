/* SPDX-License-Identifier: BSD-3-Clause */
/* UCT interface of cuda_copy: attributes, estimates and settings. */
#include <uct/cuda/cuda_copy/cuda_copy_md.h>

#include <uct/cuda/base/log.h>
#include <uct/cuda/cuda_copy/cuda_copy_bandwidth.h>
#include <uct/cuda/cuda_copy/cuda_copy_ep.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>


/* Values of stock UCX, so that UCP chooses the same protocols. A short copy
 * from a GPU takes 7.5 us through page-locked memory (measured on H200, 8 B to
 * 4 KiB), while stock's value is 5.8. With the true value UCP lets receivers
 * read small messages themselves, in half the time; but two processes that both
 * send before they receive then wait for each other, and programs depend on
 * that working (test/mpi/ucx_mp_eager). So messages sent eagerly by stock UCX
 * are sent eagerly here, unless the user changes this. */
#define BW_DEFAULT        "10000MBs,h2d:8300MBs,d2h:11660MBs,d2d:320GBs"
#define SHORT_SYNC_FACTOR 0.95
#define COPY_LATENCY      1.8e-6 /* seconds */
#define COPY_OVERHEAD     4e-6   /* seconds */
#define READ_LATENCY      3.5e-6 /* seconds */


/* UCX_CUDA_COPY_* of the interface; names and defaults of stock UCX */
typedef struct {
    uct_abi_iface_config_t super;
    unsigned               max_poll;
    unsigned               max_events;
    char                   *bandwidth;
    int                    short_proto;
} iface_config_t;

enum {
    SHORT_PROTO_EAGER,
    SHORT_PROTO_RNDV
};

static const char *const short_proto_names[] = {"eager", "rndv", NULL};

static const uct_abi_config_field_t iface_config_fields[] = {
    UCT_ABI_CONFIG_FIELD("MAX_POLL", "16", UINT, iface_config_t, max_poll,
                         "Maximum completions per progress call"),
    UCT_ABI_CONFIG_FIELD("MAX_EVENTS", "inf", UINT, iface_config_t, max_events,
                         "Maximum copies in flight"),
    UCT_ABI_CONFIG_FIELD("BW", BW_DEFAULT, STRING, iface_config_t, bandwidth,
                         "Bandwidths reported to UCX: default, h2d, d2h, d2d"),
    UCT_ABI_CONFIG_FIELD("SHORT_PROTO", "eager", ENUM, iface_config_t,
                         short_proto,
                         "Protocol of small messages between GPUs (UCX 1.20 "
                         "and later): eager, as with UCX's own module; or "
                         "rndv, which takes half the time, but hangs if two "
                         "processes both wait for the end of a send before "
                         "they receive",
                         .names = short_proto_names),
    {.type = UCT_ABI_CONFIG_END}
};


typedef struct {
    uct_cuda_copy_iface_t     super;
    uint64_t                  id; /* An interface reaches only itself */
    uct_cuda_copy_bandwidth_t bandwidth;
    /* Of a short copy to the host, seconds */
    double                    read_latency;
} copy_iface_t;


static ucs_status_t iface_query(uct_abi_iface_t *tl_iface,
                                uct_iface_attr_t *attr)
{
    const copy_iface_t *iface = (copy_iface_t*)tl_iface;

    uct_cuda_iface_query(attr);

    attr->iface_addr_len    = sizeof(iface->id);
    attr->cap.flags        |= UCT_IFACE_FLAG_PUT_SHORT |
                              UCT_IFACE_FLAG_GET_SHORT;
    attr->cap.put.max_short = UINT_MAX;
    attr->cap.get.max_short = UINT_MAX;
    attr->latency.c         = 8e-6;
    attr->latency.m         = 0;
    attr->bandwidth.shared  = iface->bandwidth.dflt;
    attr->overhead          = 0;
    return UCS_OK;
}

static ucs_status_t estimate_perf(uct_abi_iface_t *tl_iface,
                                  uct_abi_perf_attr_t *attr)
{
    const copy_iface_t *iface = (copy_iface_t*)tl_iface;
    const bool is_zcopy       = (attr->operation == UCT_ABI_EP_OP_PUT_ZCOPY) ||
                           (attr->operation == UCT_ABI_EP_OP_GET_ZCOPY);
    const bool is_get    = uct_abi_ep_op_is_get(attr->operation);
    const double factor  = is_zcopy ? 1 : SHORT_SYNC_FACTOR;
    const bool is_copy   = is_get || uct_abi_ep_op_is_put(attr->operation) ||
                         (attr->operation >= UCT_ABI_EP_OP_UNKNOWN);
    uct_abi_mem_type_t from, to;

    from = is_get ? attr->remote_mem_type : attr->local_mem_type;
    to   = is_get ? attr->local_mem_type : attr->remote_mem_type;
    if ((from == UCT_ABI_MEM_TYPE_HOST) && (to == UCT_ABI_MEM_TYPE_HOST) &&
        (is_copy || !attr->is_answered)) {
        return UCS_ERR_UNSUPPORTED;
    }

    if ((from == UCT_ABI_MEM_TYPE_HOST) && (to == UCT_ABI_MEM_TYPE_CUDA)) {
        attr->bandwidth.shared = iface->bandwidth.h2d * factor;
    } else if ((from == UCT_ABI_MEM_TYPE_CUDA) &&
               (to == UCT_ABI_MEM_TYPE_HOST)) {
        attr->bandwidth.shared = iface->bandwidth.d2h * factor;
    } else if ((from == UCT_ABI_MEM_TYPE_CUDA) &&
               (to == UCT_ABI_MEM_TYPE_CUDA)) {
        attr->bandwidth.shared = iface->bandwidth.d2d;
    } else {
        attr->bandwidth.shared = iface->bandwidth.dflt;
        /* UCX up to 1.19 does not name the memory to be reached by a lane, but
         * it does so for the copies of a pipeline. If these were faster, UCX
         * would rate one copy below two. */
        if (is_zcopy && (from == UCT_ABI_MEM_TYPE_UNKNOWN) &&
            (attr->bandwidth.shared < iface->bandwidth.d2h)) {
            attr->bandwidth.shared = iface->bandwidth.d2h;
        }
    }

    /* a synchronous copy also waits for its completion */
    attr->path_bandwidth     = attr->bandwidth;
    attr->send_pre_overhead  = COPY_OVERHEAD;
    attr->send_post_overhead = is_zcopy ? 0 :
                               (to == UCT_ABI_MEM_TYPE_HOST) ?
                                       iface->read_latency :
                                       COPY_LATENCY;
    attr->latency.c          = is_zcopy ? COPY_LATENCY : 0;
    return UCS_OK;
}

static ucs_status_t get_device_address(uct_iface_h iface,
                                       uct_device_addr_t *addr)
{
    return UCS_OK;
}

static ucs_status_t get_address(uct_iface_h iface, uct_iface_addr_t *addr)
{
    memcpy(addr, &((copy_iface_t*)iface)->id, sizeof(uint64_t));
    return UCS_OK;
}

static int is_reachable(uct_abi_iface_t *iface, uct_abi_reachable_t *peer)
{
    if ((peer->iface_addr != NULL) &&
        (memcmp(peer->iface_addr, &((copy_iface_t*)iface)->id,
                sizeof(uint64_t)) ==
         0)) {
        return 1;
    }

    peer->reason = "cuda_copy reaches its own interface only";
    return 0;
}

static ucs_status_t ep_create(uct_abi_iface_t *iface,
                              const uct_abi_ep_params_t *params, uct_ep_h *ep_p)
{
    return uct_abi_ep_new(sizeof(uct_abi_ep_t), iface, ep_p);
}

static void iface_close(uct_iface_h iface)
{
    uct_cuda_mp_engine_t *engine = ((uct_cuda_copy_iface_t*)iface)->engine;

    /* transfers are operations of the queue, which waits for them here */
    uct_cuda_iface_cleanup((uct_cuda_iface_t*)iface);
    if (engine != NULL) {
        uct_cuda_mp_engine_put(engine);
    }

    free(iface);
}

static const uct_abi_iface_ops_t iface_ops = {
    .host = {
        UCT_CUDA_IFACE_OPS,
        .ep_put_short             = uct_cuda_copy_ep_put_short,
        .ep_get_short             = uct_cuda_copy_ep_get_short,
        .ep_put_zcopy             = uct_cuda_copy_ep_put_zcopy,
        .ep_get_zcopy             = uct_cuda_copy_ep_get_zcopy,
        .ep_destroy               = uct_abi_ep_delete,
        .iface_close              = iface_close,
        .iface_get_device_address = get_device_address,
        .iface_get_address        = get_address
    },
    .ep_create          = ep_create,
    .iface_query        = iface_query,
    .iface_is_reachable = is_reachable,
    .estimate_perf      = estimate_perf
};

/* Return an id unlike that of any other interface on any machine */
static uint64_t unique_id(const void *object)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return uct_abi_system_id() ^ ((uint64_t)getpid() << 40) ^
           (uintptr_t)object ^
           ((uint64_t)now.tv_sec * 1000000007 + (uint64_t)now.tv_nsec);
}

static ucs_status_t
iface_open(const uct_abi_iface_args_t *args, uct_abi_iface_t **iface_p)
{
    const iface_config_t *config = (const iface_config_t*)args->config;
    uct_cuda_copy_bandwidth_t bandwidth;
    ucs_status_t status;
    char error[256];
    copy_iface_t *iface;

    /* a plain bandwidth (the format of UCX up to 1.16) leaves the others
     * unchanged */
    if ((uct_cuda_copy_bandwidth_parse(BW_DEFAULT, &bandwidth, error,
                                       sizeof(error)) != UCS_OK) ||
        (uct_cuda_copy_bandwidth_parse(config->bandwidth, &bandwidth, error,
                                       sizeof(error)) != UCS_OK)) {
        uct_cuda_error("UCX_CUDA_COPY_%s", error);
        return UCS_ERR_INVALID_PARAM;
    }

    status = uct_cuda_iface_new(sizeof(*iface), &iface_ops, args,
                                config->max_poll, config->max_events, iface_p);
    if (status != UCS_OK) {
        return status;
    }

    iface            = (copy_iface_t*)*iface_p;
    iface->bandwidth    = bandwidth;
    iface->read_latency = (config->short_proto == SHORT_PROTO_RNDV) ?
                                  READ_LATENCY :
                                  COPY_LATENCY;
    iface->id           = unique_id(iface);
    return UCS_OK;
}

const uct_abi_tl_t uct_cuda_copy_tl = {
    .name = "cuda_copy",
    .config = {
        .name   = "cuda_copy transport",
        .prefix = "CUDA_COPY_",
        .fields = iface_config_fields,
        .size   = sizeof(iface_config_t)
    },
    .device_type  = UCT_DEVICE_TYPE_ACC,
    .query_device = uct_cuda_query_device,
    .iface_open   = iface_open
};
