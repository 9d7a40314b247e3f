/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory domain and component of cuda_copy: allocation, registration, and
 * detection of memory types.
 */
#include <uct/cuda/cuda_copy/cuda_copy_md.h>

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/fabric.h>
#include <uct/cuda/base/gpu.h>
#include <uct/cuda/base/iface.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/base/memory_cache.h>
#include <uct/cuda/base/memtype.h>
#include <uct/cuda/cuda_copy/cuda_copy_mem.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>


/* UCX_CUDA_COPY_* of the memory domain; names and defaults of stock UCX */
typedef struct {
    int    reg_whole_alloc; /* uct_abi_on_off_auto_t */
    double max_reg_ratio;
    int    dmabuf;          /* uct_abi_ternary_t */
    int    pref_loc;
    int    enable_fabric;
    int    async_mem_type;
    int    retain_primary_ctx;
} copy_md_config_t;

typedef struct {
    uct_abi_md_t     super;
    copy_md_config_t config;
    bool             has_dmabuf;
    uct_cuda_copy_fabric_t fabric;
    size_t       gpu_memory; /* Of GPU 0, bytes */
} copy_md_t;

enum {
    PREF_LOC_CPU,
    PREF_LOC_GPU
};

static const char *const pref_loc_names[]       = {"cpu", "gpu", NULL};
static const char *const async_mem_type_names[] = {"host", "cuda",
                                                   "cuda-managed", NULL};

static const uct_abi_config_field_t md_config_fields[] = {
    UCT_ABI_CONFIG_FIELD("REG_WHOLE_ALLOC", "auto", ON_OFF_AUTO,
                         copy_md_config_t,
                         reg_whole_alloc,
                         "Report whole allocations to UCX, so that it "
                         "registers them once; auto: up to MAX_REG_RATIO"),
    /* no decimal point: UCX reads defaults in the program's locale */
    UCT_ABI_CONFIG_FIELD("MAX_REG_RATIO", "1e-1", DOUBLE, copy_md_config_t,
                         max_reg_ratio,
                         "Largest allocation that REG_WHOLE_ALLOC=auto reports "
                         "as a whole, as a share of the GPU's memory"),
    UCT_ABI_CONFIG_FIELD("DMABUF", "try", TERNARY, copy_md_config_t, dmabuf,
                         "Export GPU memory as dmabuf file descriptors"),
    UCT_ABI_CONFIG_FIELD("PREF_LOC", "cpu", ENUM, copy_md_config_t, pref_loc,
                         "Location reported for managed memory without a "
                         "preferred location",
                         .names = pref_loc_names),
    UCT_ABI_CONFIG_FIELD("ENABLE_FABRIC", "try", TERNARY, copy_md_config_t,
                         enable_fabric,
                         "Allocate memory that other nodes can map over "
                         "NVLink; try: if NVLink joins the nodes"),
    UCT_ABI_CONFIG_FIELD("ASYNC_MEM_TYPE", "cuda-managed", ENUM,
                         copy_md_config_t,
                         async_mem_type,
                         "Memory type reported for memory of a pool that "
                         "cannot be shared: cuda, cuda-managed",
                         .names = async_mem_type_names),
    UCT_ABI_CONFIG_FIELD("RETAIN_PRIMARY_CTX", "n", BOOL, copy_md_config_t,
                         retain_primary_ctx,
                         "Activate an inactive primary context to allocate "
                         "memory"),
    {.type = UCT_ABI_CONFIG_END}
};


static void md_close(uct_abi_md_t *md)
{
    free(md);
}

static ucs_status_t md_query(uct_abi_md_t *tl_md, uct_abi_md_attr_t *attr)
{
    const copy_md_t *md  = (copy_md_t*)tl_md;
    const uint64_t host  = UCT_ABI_BIT(UCT_ABI_MEM_TYPE_HOST);
    const uint64_t cuda  = UCT_ABI_BIT(UCT_ABI_MEM_TYPE_CUDA);
    const uint64_t managed = UCT_ABI_BIT(UCT_ABI_MEM_TYPE_CUDA_MANAGED);

    attr->flags            = UCT_ABI_MD_FLAG_REG | UCT_ABI_MD_FLAG_ALLOC;
    attr->max_reg          = SIZE_MAX;
    attr->max_alloc        = SIZE_MAX;
    attr->reg_mem_types    = host | cuda | managed;
    attr->cache_mem_types  = managed;
    attr->detect_mem_types = cuda | managed;
    attr->alloc_mem_types  = cuda | managed;
    attr->access_mem_types = host | cuda | managed;
    attr->dmabuf_mem_types = md->has_dmabuf ? cuda : 0;
    return UCS_OK;
}

static ucs_status_t mem_query(uct_abi_md_t *tl_md, const void *address,
                              size_t length, uct_abi_mem_attr_t *attr);

/* Return who uses memory that UCP allocates under this name (NULL: none). UCP
 * keeps its own buffers for good: after a reset of the device by the program,
 * messages from GPU to host memory of UCX 1.20 and later would pass through
 * freed memory. In the first message of a kind UCP allocates one byte, to find
 * its memory domain, and frees it. */
static uct_cuda_copy_user_t find_user(const char *name)
{
    if (name == NULL) {
        return UCT_CUDA_COPY_FOR_PROGRAM;
    }

    return (strcmp(name, "ucp_rndv_frags") == 0)  ? UCT_CUDA_COPY_FOR_UCP :
           (strcmp(name, "get_alloc_md_id") == 0) ? UCT_CUDA_COPY_FOR_PROBE :
                                                    UCT_CUDA_COPY_FOR_PROGRAM;
}

static ucs_status_t mem_alloc(uct_abi_md_t *tl_md, size_t *length_p,
                              void **address_p, uct_abi_mem_type_t mem_type,
                              ucs_sys_device_t sys_dev, unsigned flags,
                              const char *name, uct_mem_h *memh_p)
{
    const copy_md_t *md = (copy_md_t*)tl_md;
    uct_abi_mem_attr_t attr;
    uct_cuda_copy_memh_t *memh;
    ucs_status_t status;

    status = uct_cuda_copy_mem_alloc((ucs_memory_type_t)mem_type,
                                     uct_cuda_gpu_by_sys_device(sys_dev),
                                     md->config.retain_primary_ctx,
                                     md->fabric, find_user(name),
                                     flags & UCT_MD_MEM_FLAG_HIDE_ERRORS,
                                     length_p, address_p, &memh);
    if (status != UCS_OK) {
        return status;
    }

    /* UCX's hooks have seen an allocation without its type; and plain copies of
     * it must be complete when they return */
    attr.field_mask     = UCT_ABI_MEM_ATTR_MEM_TYPE;
    attr.sys_dev        = UCT_ABI_SYS_DEVICE_UNKNOWN;
    attr.base_address   = *address_p;
    attr.alloc_length   = *length_p;
    attr.is_registrable = 1;
    (void)mem_query(tl_md, *address_p, *length_p, &attr);
    *memh_p = memh;
    return UCS_OK;
}

static ucs_status_t mem_free(uct_abi_md_t *md, uct_mem_h memh)
{
    return uct_cuda_copy_mem_free(memh);
}

static ucs_status_t mem_reg(uct_abi_md_t *md, void *address, size_t length,
                            unsigned flags, uct_mem_h *memh_p)
{
    uct_cuda_copy_memh_t *memh;
    ucs_status_t status;

    status = uct_cuda_copy_mem_register(address, length,
                                        flags & UCT_MD_MEM_FLAG_HIDE_ERRORS,
                                        &memh);
    if (status == UCS_OK) {
        *memh_p = memh;
    }

    return status;
}

static ucs_status_t
mem_dereg(uct_abi_md_t *md, uct_mem_h memh, uct_completion_t *comp)
{
    uct_cuda_copy_mem_unregister(memh);
    uct_abi_completion_update(comp, 1, UCS_OK);
    return UCS_OK;
}

/* Pack an empty key: copies within the process need none */
static ucs_status_t mkey_pack(uct_abi_md_t *md, uct_mem_h memh, void *address,
                              size_t length, void *buffer)
{
    return UCS_OK;
}

/* Return the location of managed memory to be reported to UCX */
static ucs_sys_device_t managed_location(const copy_md_t *md,
                                         const void *address,
                                         size_t length, int device)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    int location                    = CU_DEVICE_INVALID;

    if ((driver->cuMemRangeGetAttribute == NULL) ||
        (driver->cuMemRangeGetAttribute(
                 &location, sizeof(location),
                 CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
                 (CUdeviceptr)address, (length == 0) ? 1 : length) !=
         CUDA_SUCCESS) ||
        (location == CU_DEVICE_INVALID)) {
        location = (md->config.pref_loc == PREF_LOC_GPU) ? device :
                                                           CU_DEVICE_CPU;
    }

    return uct_cuda_gpu_sys_device(location);
}

/* Return whether an allocation is small enough to be reported, and registered,
 * as a whole. A range that extends beyond memory without context, for example
 * over several pieces mapped side by side, is reported as it is. */
static bool is_reported_whole(const copy_md_t *md,
                              const uct_cuda_memory_t *memory,
                              const void *address, size_t length)
{
    if ((memory->context == NULL) &&
        ((uintptr_t)address + length > memory->base + memory->length)) {
        return false;
    }

    switch (md->config.reg_whole_alloc) {
    case UCT_ABI_ON:
        return true;
    case UCT_ABI_OFF:
        return false;
    default:
        return memory->length <=
               (double)md->gpu_memory * md->config.max_reg_ratio;
    }
}

/* Fill in a dmabuf for the pages around a range */
static void query_dmabuf(const copy_md_t *md, uct_abi_mem_attr_t *attr,
                         const void *address)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    const uintptr_t page            = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t base            = (uintptr_t)attr->base_address;
    const uintptr_t start           = base & ~(page - 1);
    const uintptr_t end = (base + attr->alloc_length + page - 1) & ~(page - 1);
    int fd              = -1;

    if (!md->has_dmabuf || (driver->cuMemGetHandleForAddressRange == NULL) ||
        (driver->cuMemGetHandleForAddressRange(
                 &fd, start, end - start, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                 0) != CUDA_SUCCESS)) {
        return;
    }

    attr->dmabuf_offset = (uintptr_t)address - start;
    if (attr->field_mask & UCT_ABI_MEM_ATTR_DMABUF_FD) {
        attr->dmabuf_fd = fd;
    } else {
        close(fd);
    }
}

/* Memory of a pool belongs to no context; a peer can map it only if the pool
 * was created for sharing */
static bool
is_of_closed_pool(const uct_cuda_memory_t *memory, const void *address)
{
    uct_cuda_pointer_sharing_t sharing;

    if ((memory->type != UCS_MEMORY_TYPE_CUDA) || (memory->context != NULL)) {
        return false;
    }

    uct_cuda_pointer_sharing(uct_cuda_driver_get(), (CUdeviceptr)address,
                             &sharing);
    return uct_cuda_memory_is_closed(&sharing);
}

static ucs_status_t mem_query(uct_abi_md_t *tl_md, const void *address,
                              size_t length, uct_abi_mem_attr_t *attr)
{
    const copy_md_t *md = (copy_md_t*)tl_md;
    uct_cuda_memory_t memory;

    if (address == NULL) {
        return UCS_OK;
    }

    if (uct_cuda_memory_cache_is_host(address)) {
        return UCS_ERR_INVALID_ADDR;
    }

    uct_cuda_memory_query(address, length, &memory);
    if (memory.type == UCS_MEMORY_TYPE_HOST) {
        /* the driver may free memory it knows, and reuse the address, unseen by
         * hooks */
        if (!memory.is_pinned) {
            uct_cuda_memory_cache_add_host(address);
        }
        return UCS_ERR_INVALID_ADDR;
    }

    if ((md->config.async_mem_type != UCT_ABI_MEM_TYPE_CUDA) &&
        is_of_closed_pool(&memory, address)) {
        uct_cuda_memory_report_closed(address);
        attr->mem_type       = UCT_ABI_MEM_TYPE_CUDA_MANAGED;
        attr->is_registrable = 0;
    } else {
        attr->mem_type = (uct_abi_mem_type_t)memory.type;
    }

    uct_cuda_memory_sync_memops(&memory);
    if (memory.type == UCS_MEMORY_TYPE_CUDA_MANAGED) {
        attr->sys_dev = managed_location(md, address, length,
                                         uct_cuda_end_device(memory.end));
        return UCS_OK;
    }

    attr->sys_dev = uct_cuda_gpu_sys_device(uct_cuda_end_device(memory.end));
    uct_cuda_memory_remember(address, &memory);
    if (is_reported_whole(md, &memory, address, length)) {
        attr->base_address = (void*)memory.base;
        attr->alloc_length = memory.length;
    }

    /* A UCX that sees allocations and frees knows that this is GPU memory, but
     * not its GPU, and asks each time until the cache is updated. Not every
     * release sees frees to a pool. */
    if ((memory.context != NULL) && uct_cuda_memtype_sees_frees()) {
        uct_abi_memtype_cache_update(attr->base_address, attr->alloc_length,
                                     attr->mem_type, attr->sys_dev);
    }

    if (attr->field_mask &
        (UCT_ABI_MEM_ATTR_DMABUF_FD | UCT_ABI_MEM_ATTR_DMABUF_OFFSET)) {
        query_dmabuf(md, attr, address);
    }

    return UCS_OK;
}

static ucs_status_t detect_memory_type(uct_abi_md_t *md, const void *address,
                                       size_t length,
                                       uct_abi_mem_type_t *mem_type_p)
{
    uct_abi_mem_attr_t attr = {
        .field_mask   = UCT_ABI_MEM_ATTR_MEM_TYPE,
        .sys_dev      = UCT_ABI_SYS_DEVICE_UNKNOWN,
        .base_address = (void*)address,
        .alloc_length = length
    };
    ucs_status_t status;

    status = mem_query(md, address, length, &attr);
    if (status == UCS_OK) {
        *mem_type_p = attr.mem_type;
    }

    return status;
}

static const uct_abi_md_ops_t md_ops = {
    .close              = md_close,
    .query              = md_query,
    .mem_alloc          = mem_alloc,
    .mem_free           = mem_free,
    .mem_reg            = mem_reg,
    .mem_dereg          = mem_dereg,
    .mem_query          = mem_query,
    .mkey_pack          = mkey_pack,
    .detect_memory_type = detect_memory_type
};

static bool dmabuf_is_supported(void)
{
    int is_supported = 0;

    return (uct_cuda_driver_get()->cuDeviceGetAttribute(
                    &is_supported, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0) ==
            CUDA_SUCCESS) &&
           is_supported;
}

static uct_cuda_copy_fabric_t find_fabric(int enable)
{
    uct_cuda_fabric_t fabric;

    return (enable == UCT_ABI_YES) ? UCT_CUDA_COPY_FABRIC_ONLY :
           ((enable == UCT_ABI_NO) || !uct_cuda_fabric_find(&fabric)) ?
                                     UCT_CUDA_COPY_FABRIC_NO :
                                     UCT_CUDA_COPY_FABRIC_TRY;
}

static ucs_status_t md_open(const uct_abi_component_t *component,
                            const char *md_name, const void *tl_config,
                            uct_abi_md_t **md_p)
{
    copy_md_t *md = calloc(1, sizeof(*md));

    if (md == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    md->config     = *(const copy_md_config_t*)tl_config;
    md->fabric     = find_fabric(md->config.enable_fabric);
    md->has_dmabuf = (md->config.dmabuf != UCT_ABI_NO) && dmabuf_is_supported();
    if ((md->config.dmabuf == UCT_ABI_YES) && !md->has_dmabuf) {
        uct_cuda_error("UCX_CUDA_COPY_DMABUF=y: the driver does not support "
                       "dmabuf; use try or n");
        free(md);
        return UCS_ERR_UNSUPPORTED;
    }

    if (md->config.async_mem_type == UCT_ABI_MEM_TYPE_HOST) {
        uct_cuda_warn("UCX_CUDA_COPY_ASYNC_MEM_TYPE=host is not supported; "
                      "using cuda-managed");
        md->config.async_mem_type = UCT_ABI_MEM_TYPE_CUDA_MANAGED;
    }

    (void)uct_cuda_driver_get()->cuDeviceTotalMem(&md->gpu_memory, 0);
    uct_cuda_memtype_setup();

    md->super.ops = &md_ops;
    *md_p         = &md->super;
    return UCS_OK;
}

/* Return a valid handle, as required by UCX; copies within the process ignore
 * it */
static ucs_status_t rkey_unpack(const uct_abi_component_t *component,
                                const void *buffer, ucs_sys_device_t sys_dev,
                                uct_rkey_t *rkey_p, void **handle_p)
{
    *rkey_p   = 0;
    *handle_p = NULL;
    return UCS_OK;
}

const uct_abi_component_t uct_cuda_copy_component = {
    .name = "cuda_cpy", /* spelling of stock UCX */
    .config = {
        .name   = "Cuda-copy memory domain",
        .prefix = "CUDA_COPY_",
        .fields = md_config_fields,
        .size   = sizeof(copy_md_config_t)
    },
    .tl           = &uct_cuda_copy_tl,
    .is_available = uct_cuda_is_available,
    .md_open      = md_open,
    .rkey_unpack  = rkey_unpack
};
