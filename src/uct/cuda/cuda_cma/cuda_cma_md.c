/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory domain and component of cuda_cma. */
#include <uct/cuda/cuda_cma/cuda_cma_md.h>

#include <uct/cuda/base/iface.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/base/range.h>
#include <uct/cuda/cuda_cma/cuda_cma_ranges.h>
#include <uct/cuda/cuda_cma/cuda_cma_rkey.h>
#include <uct/cuda/cuda_cma/cuda_cma_server.h>
#include <uct/cuda/process_settings.h>

#include <stdlib.h>
#include <string.h>


typedef struct {
    int enable; /* uct_abi_on_off_auto_t */
    int peer_gpu;
} cma_md_config_t;

typedef struct {
    uct_cuda_cma_md_t super;
    bool              peer_gpu;
} cma_md_t;

typedef struct {
    uct_cuda_cma_rkey_t key;
    /* its range is shared with peers that use the server */
    bool                is_shared;
} memh_t;

static const uct_abi_config_field_t md_config_fields[] = {
    UCT_ABI_CONFIG_FIELD("ENABLE", "auto", ON_OFF_AUTO, cma_md_config_t, enable,
                         "Copy between this process's GPUs and other "
                         "processes' host memory; auto: in NIXL's UCX"),
    UCT_ABI_CONFIG_FIELD("PEER_GPU", "y", BOOL, cma_md_config_t, peer_gpu,
                         "Let a GPU of this process copy for peers that access "
                         "its page-locked memory; n: threads of the peers "
                         "copy"),
    {.type = UCT_ABI_CONFIG_END}
};


static void md_close(uct_abi_md_t *md)
{
    free(md);
}

static ucs_status_t md_query(uct_abi_md_t *md, uct_abi_md_attr_t *attr)
{
    attr->flags            = UCT_ABI_MD_FLAG_REG | UCT_ABI_MD_FLAG_NEED_RKEY;
    attr->max_reg          = SIZE_MAX;
    attr->reg_mem_types    = UCT_ABI_BIT(UCT_ABI_MEM_TYPE_HOST);

    /* local GPU memory needs no registration */
    attr->access_mem_types = UCT_ABI_BIT(UCT_ABI_MEM_TYPE_CUDA);
    attr->cache_mem_types  = UCT_ABI_BIT(UCT_ABI_MEM_TYPE_HOST);
    attr->rkey_packed_size = sizeof(uct_cuda_cma_rkey_t);
    return UCS_OK;
}

static bool is_locked(const void *address, size_t length)
{
    uct_cuda_memory_t memory;

    uct_cuda_memory_query(address, length, &memory);
    return uct_cuda_end_is_host(memory.end) && memory.is_pinned &&
           uct_cuda_range_holds(memory.base, memory.length, (uintptr_t)address,
                                length);
}

static ucs_status_t mem_reg(uct_abi_md_t *md, void *address, size_t length,
                            unsigned flags, uct_mem_h *memh_p)
{
    memh_t *memh = calloc(1, sizeof(*memh));

    if (memh == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    memh->key.magic  = UCT_CUDA_CMA_PACKED_MAGIC;
    memh->key.base   = (uintptr_t)address;
    memh->key.length = length;
    *memh_p          = memh;
    return UCS_OK;
}

static ucs_status_t
mem_dereg(uct_abi_md_t *md, uct_mem_h tl_memh, uct_completion_t *comp)
{
    memh_t *memh = tl_memh;

    if (memh->is_shared) {
        uct_cuda_cma_ranges_remove(memh->key.base, memh->key.length);
    }
    free(memh);
    uct_abi_completion_update(comp, 1, UCS_OK);
    return UCS_OK;
}

static ucs_status_t mkey_pack(uct_abi_md_t *md, uct_mem_h tl_memh,
                              void *address, size_t length, void *buffer)
{
    memh_t *memh               = tl_memh;
    uct_cuda_cma_rkey_t packed = memh->key;

    /* check again: another memory domain may have locked it meanwhile */
    if (((cma_md_t*)md)->peer_gpu &&
        is_locked((void*)(uintptr_t)packed.base, packed.length) &&
        uct_cuda_cma_server_get(&packed.server) && !memh->is_shared) {
        memh->is_shared = uct_cuda_cma_ranges_add(packed.base, packed.length);
    }

    memcpy(buffer, &packed, sizeof(packed));
    return UCS_OK;
}

static const uct_abi_md_ops_t md_ops = {
    .close     = md_close,
    .query     = md_query,
    .mem_reg   = mem_reg,
    .mem_dereg = mem_dereg,
    .mkey_pack = mkey_pack
};

static ucs_status_t md_open(const uct_abi_component_t *component,
                            const char *md_name, const void *tl_config,
                            uct_abi_md_t **md_p)
{
    const cma_md_config_t *config = tl_config;
    cma_md_t *md;

    md = calloc(1, sizeof(*md));
    if (md == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    md->super.is_on     = (config->enable == UCT_ABI_ON_OFF_AUTO) ?
                                  uct_cuda_settings_is_one_sided() :
                                  (config->enable == UCT_ABI_ON);
    md->peer_gpu        = config->peer_gpu;
    md->super.super.ops = &md_ops;
    *md_p               = &md->super.super;
    return UCS_OK;
}

const uct_abi_component_t uct_cuda_cma_component = {
    .name = "cuda_cma",
    .config = {
        .name   = "Cuda-CMA memory domain",
        .prefix = "CUDA_CMA_",
        .fields = md_config_fields,
        .size   = sizeof(cma_md_config_t)
    },
    .tl           = &uct_cuda_cma_tl,
    .is_available = uct_cuda_is_available,
    .md_open      = md_open,
    .rkey_unpack  = uct_cuda_cma_rkey_unpack,
    .rkey_release = uct_cuda_cma_rkey_release
};
