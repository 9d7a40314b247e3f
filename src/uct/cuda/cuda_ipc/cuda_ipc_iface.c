/* SPDX-License-Identifier: BSD-3-Clause */
/* UCT interface of cuda_ipc: attributes, estimates and settings. */
#include <uct/cuda/cuda_ipc/cuda_ipc_md.h>

#include <uct/cuda/base/gpu.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/collective/options.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_ep.h>
#include <uct/cuda/node/process.h>
#include <uct/cuda/process_settings.h>


#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>


#define MBYTE (1024.0 * 1024.0)

/* Seconds: with this value UCP copies from host memory directly from about 64
 * KiB on. Below that, in pageable memory, its own staging is faster. */
#define HOST_PUT_OVERHEAD 20e-6

/* Cost reported for reads so that messages do not use them. The overhead
 * (seconds) exceeds what a rendezvous by get saves: one UCX message, perhaps
 * over TCP. The bandwidth (bytes/s) is below UCX's estimate for a rendezvous
 * through host memory, about 9 GB/s. Reads over TCP still cost more, so the
 * program's own reads use cuda_ipc. */
#define DISCOURAGED_GET_OVERHEAD  200e-6
#define DISCOURAGED_GET_BANDWIDTH 5e9


#define NUM_PLAIN_FIELDS   10
#define MAX_MULTIPATH_VARS 24
#define MAX_FIELDS         (NUM_PLAIN_FIELDS + MAX_MULTIPATH_VARS)


/* UCX_CUDA_IPC_* of the interface; names and defaults of stock UCX */
typedef struct {
    uct_abi_iface_config_t super;
    unsigned               max_events;
    unsigned               max_poll;
    unsigned               max_streams;
    int                    enable_get_zcopy; /* uct_abi_on_off_auto_t */
    double                 bandwidth;        /* bytes/s, or auto */
    int                    enable_cache;
    double                 overhead;         /* seconds */
    double                 latency;          /* seconds */
    int                    enable_same_process;
    unsigned               kernel_blocks;    /* of threads */
    char                   *multipath[MAX_MULTIPATH_VARS];
} iface_config_t;


/* Variables of UCX's own module, ENABLE_SAME_PROCESS and KERNEL_BLOCKS;
 * config_add_multipath() adds those of the engine */
static uct_abi_config_field_t config_fields[MAX_FIELDS + 1] = {
    UCT_ABI_CONFIG_FIELD("MAX_POLL", "16", UINT, iface_config_t,
                         max_poll, "Maximum completions per progress call"),
    UCT_ABI_CONFIG_FIELD("MAX_STREAMS", "16", UINT, iface_config_t,
                         max_streams,
                         "Number of streams for single-path transfers"),
    UCT_ABI_CONFIG_FIELD("CACHE", "y", BOOL, iface_config_t,
                         enable_cache, "Keep mappings of peers' memory"),
    UCT_ABI_CONFIG_FIELD("ENABLE_GET_ZCOPY", "auto", ON_OFF_AUTO,
                         iface_config_t, enable_get_zcopy,
                         "Offer get; auto: on nodes without NVLink only for "
                         "reads of the program, not for messages"),
    UCT_ABI_CONFIG_FIELD("MAX_EVENTS", "inf", UINT, iface_config_t,
                         max_events, "Maximum transfers in flight"),
    UCT_ABI_CONFIG_FIELD("BW", "auto", BW, iface_config_t,
                         bandwidth, "Bandwidth between GPUs reported to UCX"),
    /* no decimal point: UCX reads defaults in the program's locale */
    UCT_ABI_CONFIG_FIELD("LAT", "1800ns", TIME, iface_config_t,
                         latency, "Latency reported to UCX"),
    UCT_ABI_CONFIG_FIELD("OVERHEAD", "4us", TIME, iface_config_t,
                         overhead,
                         "Processor time of a transfer reported to UCX"),
    UCT_ABI_CONFIG_FIELD("ENABLE_SAME_PROCESS", "n", BOOL,
                         iface_config_t, enable_same_process,
                         "Connect workers of this process; always on in NIXL's "
                         "UCX"),
    UCT_ABI_CONFIG_FIELD("KERNEL_BLOCKS", "8", UINT,
                         iface_config_t, kernel_blocks,
                         "Maximum thread blocks of the kernel that copies "
                         "small scattered blocks; twice as many between GPUs; "
                         "0: do not use the kernel"),
};


typedef struct {
    uct_cuda_ipc_iface_t super;
    uint32_t             number; /* See uct_cuda_node_iface_number() */
    int                  enable_get_zcopy;
    unsigned             uses; /* UCT_ABI_IFACE_USE_ */
    double               bandwidth;
    double               latency;
    double               overhead;
} ipc_iface_t;


/* Add the engine's variables when the module is loaded. UCX passes their text;
 * the engine parses it. */
__attribute__((constructor)) static void config_add_multipath(void)
{
    uct_abi_config_field_t *field = &config_fields[NUM_PLAIN_FIELDS];
    unsigned i;

    for (i = 0; (i < MAX_MULTIPATH_VARS) &&
                (uct_cuda_plan_config_vars[i].name != NULL);
         ++i, ++field) {
        field->name   = uct_cuda_plan_config_vars[i].name;
        field->dfl    = uct_cuda_plan_config_vars[i].dfl;
        field->doc    = uct_cuda_plan_config_vars[i].doc;
        field->type   = UCT_ABI_CONFIG_STRING;
        field->offset = offsetof(iface_config_t, multipath) +
                        (i * sizeof(char*));
    }
}

static bool is_folder(const char *path)
{
    struct stat file;

    return (stat(path, &file) == 0) && S_ISDIR(file.st_mode) &&
           (access(path, W_OK | X_OK) == 0);
}

/* Warn about values that name a missing GPU, directory or file. base/trace.c
 * checks MULTIPATH_TRACE. */
static void log_missing(const uct_cuda_plan_config_t *multipath)
{
    const int count    = uct_cuda_gpu_count();
    const char *folder = multipath->ledger;
    const char *table  = multipath->tuning_file;
    unsigned i;

    for (i = 0; i < multipath->num_paths; ++i) {
        if (uct_cuda_end_is_gpu(multipath->paths[i]) &&
            (uct_cuda_end_device(multipath->paths[i]) >= count)) {
            uct_cuda_warn("UCX_CUDA_IPC_MULTIPATH_PATHS: gpu%d does not exist "
                          "(%d GPUs are visible); ignoring this path",
                          uct_cuda_end_device(multipath->paths[i]), count);
        }
    }

    if ((*folder == '/') && !is_folder(folder)) {
        uct_cuda_warn("UCX_CUDA_IPC_MULTIPATH_LEDGER: %s is not a writable "
                      "directory; running without a ledger",
                      folder);
    }

    if ((*table != '\0') && (strcmp(table, "auto") != 0) &&
        (access(table, R_OK) != 0)) {
        uct_cuda_warn("UCX_CUDA_IPC_MULTIPATH_TUNING_FILE: cannot read %s; "
                      "using the built-in model",
                      table);
    }
}

/* Parse the engine's variables. An invalid value costs a warning, once in a
 * process, and the default is used: a transport that refused to open would
 * silently leave messages to a slower one. */
static void config_read_multipath(const iface_config_t *config,
                                  uct_cuda_plan_config_t *multipath)
{
    static bool is_logged;
    const bool logs = !__atomic_load_n(&is_logged, __ATOMIC_RELAXED);
    const uct_cuda_plan_config_var_t *var = uct_cuda_plan_config_vars;
    char error[512];
    unsigned i;

    uct_cuda_plan_config_init(multipath);
    for (i = 0;
         (i < MAX_MULTIPATH_VARS) && (var[i].name != NULL); ++i) {
        if ((uct_cuda_plan_config_set(multipath, var[i].name,
                                      config->multipath[i], error,
                                      sizeof(error)) != UCS_OK) &&
            logs) {
            uct_cuda_warn("UCX_CUDA_IPC_%s: %s; using the default, %s",
                          var[i].name, error,
                          (*var[i].dfl == '\0') ? "nothing" : var[i].dfl);
        }
    }

    if (uct_cuda_plan_config_check(multipath, error, sizeof(error)) != UCS_OK) {
        multipath->num_paths  = 0;
        multipath->num_shares = 0;
        multipath->num_chunks = 0;
        if (logs) {
            uct_cuda_warn("UCX_CUDA_IPC_%s; using automatic paths, shares and "
                          "chunks",
                          error);
        }
    }

    if (logs) {
        log_missing(multipath);
        __atomic_store_n(&is_logged, true, __ATOMIC_RELAXED);
    }
}

/*
 * Bandwidth of a GPU generation as reported by stock UCX (bytes/s): the same
 * values make UCP choose the same protocols. The planner does not use them.
 */
static double generation_bandwidth(void)
{
    switch (uct_cuda_gpu_sm_major()) {
    case 6:
        return 80000.0 * MBYTE;
    case 7:
        return 250000.0 * MBYTE;
    case 8:
        return 300000.0 * MBYTE;
    case 9:
        return 400000.0 * MBYTE;
    case 10:
        return 800000.0 * MBYTE;
    default:
        return 6911.0 * MBYTE;
    }
}

/*
 * Bandwidth between this process's host memory and a GPU (bytes/s), by the
 * generation's PCIe link: 12 (3.0), 24 (4.0) and 55 GB/s (5.0, measured on
 * H200). It only serves UCX's choice, so the node is not probed, which would
 * take time.
 */
static double host_bandwidth(void)
{
    const int generation = uct_cuda_gpu_sm_major();

    return (generation >= 9) ? 55e9 : (generation == 8) ? 24e9 : 12e9;
}

/*
 * Return whether reads of a peer's memory are slower than writes by the peer,
 * as on a node without NVLink. Messages then use put; a program's own read uses
 * get, since the alternative is TCP.
 */
static bool get_is_slower(const ipc_iface_t *iface)
{
    return (iface->enable_get_zcopy == UCT_ABI_ON_OFF_AUTO) &&
           !uct_cuda_gpu_has_nvlink();
}

static bool get_is_offered(const ipc_iface_t *iface)
{
    return get_is_slower(iface) ? (iface->uses & UCT_ABI_IFACE_USE_RMA) :
                                  (iface->enable_get_zcopy != UCT_ABI_OFF);
}

/* Return whether to report a high cost for reads. UCX makes the same query for
 * reads of messages and of the program: if both may occur, the answer must suit
 * messages. */
static bool get_is_discouraged(const ipc_iface_t *iface)
{
    return get_is_slower(iface) && (iface->uses & UCT_ABI_IFACE_USE_TAG);
}

/* Return the fabric of the domain's node; NULL: none, or not to be used */
static const uct_cuda_fabric_t *md_fabric(const uct_abi_md_t *tl_md)
{
    const uct_cuda_ipc_md_t *md = (const uct_cuda_ipc_md_t*)tl_md;

    return md->has_fabric ? &md->fabric : NULL;
}

static ucs_status_t iface_query(uct_abi_iface_t *tl_iface,
                                uct_iface_attr_t *attr)
{
    const ipc_iface_t *iface        = (ipc_iface_t*)tl_iface;
    const uct_cuda_fabric_t *fabric = md_fabric(tl_iface->md);
    uct_cuda_node_iface_addr_t self;

    uct_cuda_node_iface_addr_self(&self);
    uct_cuda_iface_query(attr);

    attr->device_addr_len   = uct_cuda_node_device_addr_length(fabric);
    attr->iface_addr_len    = uct_cuda_node_iface_addr_length(&self);
    attr->cap.flags        |= UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE |
                              uct_abi_iface_flags(
                                      UCT_ABI_IFACE_FLAG_DEVICE_EP |
                                      ((fabric != NULL) ?
                                               UCT_ABI_IFACE_FLAG_INTER_NODE :
                                               0));
    attr->cap.get.max_zcopy = get_is_offered(iface) ? SIZE_MAX : 0;
    attr->latency.c         = 1e-6;
    attr->latency.m         = 0;
    attr->bandwidth.shared  = iface->bandwidth;
    attr->overhead          = 7e-6;
    return UCS_OK;
}

/* Return whether the operation is supported, or not specified */
static bool is_offered(uct_abi_ep_op_t operation)
{
    return (operation == UCT_ABI_EP_OP_PUT_ZCOPY) ||
           (operation == UCT_ABI_EP_OP_GET_ZCOPY) ||
           (operation == UCT_ABI_EP_OP_RNDV_ZCOPY) ||
           (operation >= UCT_ABI_EP_OP_UNKNOWN);
}

static ucs_status_t estimate_perf(uct_abi_iface_t *tl_iface,
                                  uct_abi_perf_attr_t *attr)
{
    const ipc_iface_t *iface = (ipc_iface_t*)tl_iface;
    const bool is_host = (attr->local_mem_type == UCT_ABI_MEM_TYPE_HOST);
    const bool is_put  = uct_abi_ep_op_is_put(attr->operation);
    bool is_discouraged;

    /* No transfer accesses a peer's host memory. UCP uses no other operation
     * here; estimates for them have no effect. */
    if ((attr->remote_mem_type == UCT_ABI_MEM_TYPE_HOST) &&
        is_offered(attr->operation)) {
        return UCS_ERR_UNSUPPORTED;
    }

    is_discouraged = uct_abi_ep_op_is_get(attr->operation) &&
                     get_is_discouraged(iface);
    if (is_discouraged && is_host) {
        return UCS_ERR_UNSUPPORTED;
    }

    attr->bandwidth.shared  = is_discouraged ? DISCOURAGED_GET_BANDWIDTH :
                              is_host        ? host_bandwidth() :
                                               generation_bandwidth();
    attr->path_bandwidth    = attr->bandwidth;
    attr->send_pre_overhead = iface->overhead +
                              ((is_host && is_put) ? HOST_PUT_OVERHEAD : 0) +
                              (is_discouraged ? DISCOURAGED_GET_OVERHEAD : 0);
    attr->latency.c         = iface->latency;
    return UCS_OK;
}

static ucs_status_t get_device_address(uct_iface_h iface,
                                       uct_device_addr_t *addr)
{
    const uct_cuda_fabric_t *fabric = md_fabric(((uct_abi_iface_t*)iface)->md);
    uct_cuda_node_device_addr_t self;

    uct_cuda_node_device_addr_self(&self, fabric);
    memcpy(addr, &self, uct_cuda_node_device_addr_length(fabric));
    return UCS_OK;
}

static ucs_status_t get_address(uct_iface_h iface, uct_iface_addr_t *addr)
{
    uct_cuda_node_iface_addr_t self;

    uct_cuda_node_iface_addr_self(&self);
    self.iface = ((ipc_iface_t*)iface)->number;
    uct_cuda_node_iface_addr_pack(&self, addr);
    return UCS_OK;
}

static int is_reachable(uct_abi_iface_t *tl_iface, uct_abi_reachable_t *peer)
{
    const ipc_iface_t *iface = (ipc_iface_t*)tl_iface;

    peer->reason = uct_cuda_node_addr_obstacle(peer->dev_addr, peer->iface_addr,
                                               iface->number,
                                               md_fabric(tl_iface->md));
    return peer->reason == NULL;
}

static void iface_close(uct_iface_h tl_iface)
{
    uct_cuda_ipc_iface_t *iface = (uct_cuda_ipc_iface_t*)tl_iface;

    /* transfers are operations of the queue, which waits for them here */
    uct_cuda_iface_cleanup(&iface->super);
    uct_cuda_copier_close(&iface->copier);
    free(iface);
}

static const uct_abi_iface_ops_t iface_ops = {
    .host = {
        UCT_CUDA_IFACE_OPS,
        .ep_put_zcopy             = uct_cuda_ipc_ep_put_zcopy,
        .ep_get_zcopy             = uct_cuda_ipc_ep_get_zcopy,
        .ep_destroy               = uct_cuda_ipc_ep_destroy,
        .iface_close              = iface_close,
        .iface_get_device_address = get_device_address,
        .iface_get_address        = get_address
    },
    .ep_put_list        = uct_cuda_ipc_ep_put_list,
    .ep_get_list        = uct_cuda_ipc_ep_get_list,
    .ep_create          = uct_cuda_ipc_ep_create,
    .ep_is_connected    = uct_cuda_ipc_ep_is_connected,
    .ep_get_device_ep   = uct_cuda_ipc_ep_get_device_ep,
    .iface_query        = iface_query,
    .iface_is_reachable = is_reachable,
    .estimate_perf      = estimate_perf
};

static ucs_status_t
iface_open(const uct_abi_iface_args_t *args, uct_abi_iface_t **iface_p)
{
    const iface_config_t *config =
            (const iface_config_t*)args->config;
    const uct_cuda_copy_settings_t settings = {
        .max_streams   = config->max_streams,
        .kernel_blocks = config->kernel_blocks,
        .enable_cache  = config->enable_cache
    };
    uct_cuda_plan_config_t multipath;
    uct_cuda_mp_engine_t *engine;
    ucs_status_t status;
    ipc_iface_t *iface;

    config_read_multipath(config, &multipath);
    uct_cuda_coll_configure_node(&multipath);
    status = uct_cuda_mp_engine_get(&multipath, &engine);
    if (status != UCS_OK) {
        return status;
    }

    status = uct_cuda_iface_new(sizeof(*iface), &iface_ops, args,
                                config->max_poll, config->max_events, iface_p);
    if (status != UCS_OK) {
        uct_cuda_mp_engine_put(engine);
        return status;
    }

    iface = (ipc_iface_t*)*iface_p;
    /* Off by default: a UCP with protocols v1 that reaches its own process
     * would use this transport for host memory, too, which fails (UCX's own
     * test_ucp_mmap of 1.20) */
    iface->number           = (config->enable_same_process ||
                               uct_cuda_settings_is_one_sided()) ?
                                      uct_cuda_node_iface_number() :
                                      0;
    iface->enable_get_zcopy = config->enable_get_zcopy;
    iface->uses             = uct_abi_iface_uses(args);
    iface->latency          = config->latency;
    iface->overhead         = config->overhead;
    iface->bandwidth        = uct_abi_double_is_auto(config->bandwidth) ?
                                      generation_bandwidth() :
                                      config->bandwidth;
    uct_cuda_copier_open(&iface->super.copier, &iface->super.super.queue,
                         engine, &settings);
    return UCS_OK;
}

const uct_abi_tl_t uct_cuda_ipc_tl = {
    .name = "cuda_ipc",
    .config = {
        .name   = "cuda_ipc transport",
        .prefix = "CUDA_IPC_",
        .fields = config_fields,
        .size   = sizeof(iface_config_t)
    },
    .device_type  = UCT_DEVICE_TYPE_SHM,
    .query_device = uct_cuda_query_device,
    .iface_open   = iface_open
};
