/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory domain and component of cuda_ipc. */
#include <uct/cuda/cuda_ipc/cuda_ipc_md.h>

#include <uct/cuda/base/gpu.h>
#include <uct/cuda/base/host/host_limits.h>
#include <uct/cuda/base/host/host_pipeline.h>
#include <uct/cuda/base/iface.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/collective/options.h>
#include <uct/cuda/node/exports.h>
#include <uct/cuda/node/rkey.h>
#include <uct/cuda/plan/collective_planner.h>
#include <uct/cuda/plan/config.h>
#include <uct/cuda/process_settings.h>

#include <ucs/sys/math.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>


/* UCX_CUDA_IPC_* of the memory domain; names and defaults of stock UCX */
typedef struct {
    int           enable_mnnvl;
    unsigned long cache_max_regions;
    size_t        cache_max_size;
    int           host_zcopy;
    unsigned long host_copy_threads;
    char          *collectives;
    char          *collectives_algorithm;
    int           collectives_multipath; /* uct_abi_ternary_t */
    int           collectives_waits;
} ipc_md_config_t;

typedef struct {
    uct_cuda_ipc_md_t super;
    bool              host_zcopy;
} ipc_md_t;

/* Allocations checked at each deregistration */
#define CHECKS 4

static const uct_abi_config_field_t md_config_fields[] = {
    UCT_ABI_CONFIG_FIELD("ENABLE_MNNVL", "try", TERNARY, ipc_md_config_t,
                         enable_mnnvl,
                         "Reach GPUs of other nodes if NVLink joins the nodes "
                         "(UCX 1.18 and later)"),
    UCT_ABI_CONFIG_FIELD("CACHE_MAX_REGIONS", "inf", ULUNITS, ipc_md_config_t,
                         cache_max_regions,
                         "Maximum mappings kept of each peer's memory"),
    UCT_ABI_CONFIG_FIELD("CACHE_MAX_SIZE", "inf", MEMUNITS, ipc_md_config_t,
                         cache_max_size,
                         "Maximum bytes kept mapped of each peer's memory"),
    UCT_ABI_CONFIG_FIELD("HOST_ZCOPY", "y", BOOL, ipc_md_config_t, host_zcopy,
                         "Copy directly between this process's host memory and "
                         "peers' GPUs (UCX 1.16 and later), and over several "
                         "links between host memory and its own GPUs"),
    UCT_ABI_CONFIG_FIELD("HOST_COPY_THREADS", "auto", ULUNITS, ipc_md_config_t,
                         host_copy_threads,
                         "Number of threads that copy pageable host memory, at "
                         "most 8; auto: the process's share of the processors, "
                         "less one"),
    UCT_ABI_CONFIG_FIELD("COLLECTIVES", "auto", STRING, ipc_md_config_t,
                         collectives,
                         "Carry out MPI collectives on the GPUs; between nodes "
                         "all-reduces only (ucx_mp_run --collectives). auto: "
                         "under an MPI built with CUDA only calls that are "
                         "faster on GPUs; n: stage them, or leave them to an "
                         "MPI built with CUDA"),
    UCT_ABI_CONFIG_FIELD("COLLECTIVES_ALGORITHM", "auto", STRING,
                         ipc_md_config_t,
                         collectives_algorithm,
                         "Algorithm of collectives: kernel (one kernel per "
                         "rank), flat (copy engines and kernels in two "
                         "stages), hierarchical; auto: by node and size"),
    UCT_ABI_CONFIG_FIELD("COLLECTIVES_MULTIPATH", "auto", TERNARY_AUTO,
                         ipc_md_config_t, collectives_multipath,
                         "Let collectives copy through GPUs without a rank of "
                         "the communicator: y (where possible), n (never), "
                         "auto (where the model expects a gain)"),
    UCT_ABI_CONFIG_FIELD("COLLECTIVES_WAITS", "n", BOOL, ipc_md_config_t,
                         collectives_waits,
                         "Log a warning, instead of a debug line, when a "
                         "collective has waited for more than a second"),
    {.type = UCT_ABI_CONFIG_END}
};


static void md_close(uct_abi_md_t *md)
{
    uct_cuda_settings_close();
    free(md);
}

static ucs_status_t md_query(uct_abi_md_t *md, uct_abi_md_attr_t *attr)
{
    attr->flags            = UCT_ABI_MD_FLAG_REG | UCT_ABI_MD_FLAG_NEED_RKEY |
                             UCT_ABI_MD_FLAG_INVALIDATE |
                             UCT_ABI_MD_FLAG_MEMTYPE_COPY |
                             UCT_ABI_MD_FLAG_RKEY_PTR;
    attr->max_reg          = SIZE_MAX;
    attr->reg_mem_types    = UCT_ABI_BIT(UCT_ABI_MEM_TYPE_CUDA);

    /* Local host memory is accepted unregistered: UCP then neither puts keys of
     * it into host messages nor caches registrations. Access to a peer's memory
     * needs a key, and host memory has none. */
    attr->access_mem_types = UCT_ABI_BIT(UCT_ABI_MEM_TYPE_CUDA) |
                             (((ipc_md_t*)md)->host_zcopy ?
                                      UCT_ABI_BIT(UCT_ABI_MEM_TYPE_HOST) :
                                      0);
    attr->rkey_packed_size = sizeof(uct_cuda_node_packed_rkey_t);

    /* UCP requires a cache for registered memory (it asserts), so that handles
     * outlive their memory: see packing */
    attr->cache_mem_types = UCT_ABI_BIT(UCT_ABI_MEM_TYPE_CUDA);
    return UCS_OK;
}

static ucs_status_t mem_reg(uct_abi_md_t *md, void *address, size_t length,
                            unsigned flags, uct_mem_h *memh_p)
{
    uct_cuda_node_memh_t *memh;
    ucs_status_t status;

    status = uct_cuda_node_memh_create(address, length, &memh);
    if (status == UCS_OK) {
        *memh_p = memh;
    }

    return status;
}

static ucs_status_t
mem_dereg(uct_abi_md_t *md, uct_mem_h memh, uct_completion_t *comp)
{
    uct_cuda_node_memh_destroy(memh);

    /* A peer's mapping outlives the registration, since the memory may. Where
     * UCX sees frees, this is the time to invalidate memory freed earlier. */
    (void)uct_cuda_node_exports_check(CHECKS);
    uct_abi_completion_update(comp, 1, UCS_OK);
    return UCS_OK;
}

static ucs_status_t mkey_pack(uct_abi_md_t *md, uct_mem_h memh, void *address,
                              size_t length, void *buffer)
{
    return uct_cuda_node_rkey_pack(memh, address, length, buffer);
}

/* Pack the local address of the peer's memory for code on GPUs, in the layout
 * of UCX's device header */
static ucs_status_t mem_elem_pack(uct_abi_md_t *md, uct_mem_h memh,
                                  uct_rkey_t uct_rkey, void *mem_elem)
{
    uct_cuda_node_rkey_t *rkey = uct_cuda_node_rkey_get(uct_rkey);
    CUdeviceptr mapped;
    ucs_status_t status;
    ptrdiff_t offset;
    uint64_t base;

    /* local memory needs none, although UCP asks for it */
    if (uct_rkey == UCT_INVALID_RKEY) {
        return UCS_ERR_UNSUPPORTED;
    }

    if (rkey == NULL) {
        return UCS_ERR_INVALID_PARAM;
    }

    base   = rkey->handle.base; /* mapping may change it */
    status = uct_cuda_node_rkey_map(rkey, base, &mapped);
    if (status == UCS_OK) {
        offset = (ptrdiff_t)(mapped - base);
        memcpy(mem_elem, &offset, sizeof(offset));
    }

    return status;
}

static const uct_abi_md_ops_t md_ops = {
    .close         = md_close,
    .query         = md_query,
    .mem_reg       = mem_reg,
    .mem_dereg     = mem_dereg,
    .mkey_pack     = mkey_pack,
    .mem_elem_pack = mem_elem_pack
};

/* Parse the collectives' variables. An invalid value costs a warning, once in a
 * process, and the default is used. */
static void
read_collectives(const ipc_md_config_t *config, uct_cuda_coll_config_t *result)
{
    static bool is_logged;
    uct_cuda_plan_ternary_t is_on = UCT_CUDA_PLAN_AUTO;
    const bool is_wrong = !uct_cuda_plan_ternary_parse(config->collectives,
                                                       &is_on);
    const bool is_wrong_algorithm =
            uct_cuda_coll_algorithm_parse(config->collectives_algorithm,
                                          &result->algorithm) !=
            UCS_OK;

    result->is_on      = (is_on == UCT_CUDA_PLAN_NO)  ? 0 :
                         (is_on == UCT_CUDA_PLAN_YES) ? 2 :
                                                        1;
    result->multipath  = (config->collectives_multipath <= UCT_ABI_YES) ?
                                 config->collectives_multipath :
                                 UCT_CUDA_PLAN_COLL_AUTO;
    result->logs_waits = config->collectives_waits;
    if (is_wrong_algorithm) {
        (void)uct_cuda_coll_algorithm_parse("auto", &result->algorithm);
    }

    if ((!is_wrong && !is_wrong_algorithm) ||
        __atomic_exchange_n(&is_logged, true, __ATOMIC_RELAXED)) {
        return;
    }

    if (is_wrong) {
        uct_cuda_warn("UCX_CUDA_IPC_COLLECTIVES: '%s' is not y, n or auto; "
                      "using the default, auto",
                      config->collectives);
    }
    if (is_wrong_algorithm) {
        uct_cuda_warn("UCX_CUDA_IPC_COLLECTIVES_ALGORITHM: '%s' is not auto, "
                      "kernel, flat or hierarchical; using the default, auto",
                      config->collectives_algorithm);
    }
}

static void open_settings(const ipc_md_config_t *config)
{
    uct_cuda_settings_t settings = {
        .host_zcopy        = config->host_zcopy,
        .host_copy_threads =
                (config->host_copy_threads == UCT_ABI_ULUNITS_AUTO) ?
                        UCT_CUDA_HOST_PIPELINE_AUTO :
                        (unsigned)ucs_min(config->host_copy_threads,
                                  (unsigned long)UCT_CUDA_HOST_MAX_THREADS),
        .cache_max_regions = (config->cache_max_regions >=
                              UCT_ABI_ULUNITS_AUTO) ?
                        ULONG_MAX :
                        config->cache_max_regions,
        .cache_max_size    =
                (config->cache_max_size >= UCT_ABI_MEMUNITS_AUTO) ?
                        SIZE_MAX :
                        config->cache_max_size
    };

    read_collectives(config, &settings.collectives);
    uct_cuda_settings_open(&settings);
}

static ucs_status_t md_open(const uct_abi_component_t *component,
                            const char *md_name, const void *tl_config,
                            uct_abi_md_t **md_p)
{
    const ipc_md_config_t *config = tl_config;
    ipc_md_t *md;

    md = calloc(1, sizeof(*md));
    if (md == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    open_settings(config);
    md->super.has_fabric = (config->enable_mnnvl != UCT_ABI_NO) &&
                           uct_cuda_fabric_find(&md->super.fabric);
    if ((config->enable_mnnvl == UCT_ABI_YES) && !md->super.has_fabric) {
        uct_cuda_error("UCX_CUDA_IPC_ENABLE_MNNVL=y: the GPUs of this node are "
                       "not in a multi-node NVLink domain");
    }

    md->host_zcopy      = config->host_zcopy;
    md->super.super.ops = &md_ops;
    *md_p               = &md->super.super;
    return UCS_OK;
}

static ucs_status_t rkey_unpack(const uct_abi_component_t *component,
                                const void *buffer, ucs_sys_device_t sys_dev,
                                uct_rkey_t *rkey_p, void **handle_p)
{
    uct_cuda_node_rkey_t *rkey;
    ucs_status_t status;

    status = uct_cuda_node_rkey_unpack(buffer,
                                       uct_cuda_gpu_by_sys_device(sys_dev),
                                       &rkey);
    if (status == UCS_OK) {
        *rkey_p   = (uintptr_t)rkey;
        *handle_p = NULL;
    }

    return status;
}

static ucs_status_t rkey_ptr(const uct_abi_component_t *component,
                             uct_rkey_t uct_rkey, void *handle,
                             uint64_t remote_address, void **address_p)
{
    uct_cuda_node_rkey_t *rkey = uct_cuda_node_rkey_get(uct_rkey);
    CUdeviceptr mapped;
    ucs_status_t status;

    if (rkey == NULL) {
        return UCS_ERR_INVALID_PARAM;
    }

    status = uct_cuda_node_rkey_map(rkey, remote_address, &mapped);
    if (status == UCS_OK) {
        *address_p = (void*)mapped;
    }

    return status;
}

static ucs_status_t rkey_release(const uct_abi_component_t *component,
                                 uct_rkey_t rkey, void *handle)
{
    uct_cuda_node_rkey_t *known = uct_cuda_node_rkey_get(rkey);

    if (known == NULL) {
        return UCS_ERR_INVALID_PARAM;
    }

    uct_cuda_node_rkey_destroy(known);
    return UCS_OK;
}

const uct_abi_component_t uct_cuda_ipc_component = {
    .name = "cuda_ipc",
    .config = {
        .name   = "Cuda-IPC memory domain",
        .prefix = "CUDA_IPC_",
        .fields = md_config_fields,
        .size   = sizeof(ipc_md_config_t)
    },
    .tl           = &uct_cuda_ipc_tl,
    .is_available = uct_cuda_is_available,
    .md_open      = md_open,
    .rkey_unpack  = rkey_unpack,
    .rkey_ptr     = rkey_ptr,
    .rkey_release = rkey_release
};
