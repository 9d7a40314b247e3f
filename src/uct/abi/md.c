/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory domain operations: from UCX's arguments to ours and back. */

#include "host.h"

#include <string.h>

static uct_abi_md_t *uct_abi_md(uct_md_h md)
{
    return (uct_abi_md_t*)md;
}

static void uct_abi_md_close(uct_md_h md)
{
    uct_abi_md(md)->ops->close(uct_abi_md(md));
}

static ucs_status_t uct_abi_md_query(uct_md_h md, void *host_attr)
{
    const uct_abi_release_t *release = uct_abi_host.release;
    const uct_abi_layout_t *layout   = release->md_attr;
    uct_abi_md_attr_t attr;
    ucs_status_t status;

    memset(&attr, 0, sizeof(attr));
    memset(&attr.local_cpus, 0xff, sizeof(attr.local_cpus));

    status = uct_abi_md(md)->ops->query(uct_abi_md(md), &attr);
    if (status != UCS_OK) {
        return status;
    }

    if (attr.flags & UCT_ABI_MD_FLAG_INVALIDATE) {
        attr.flags |= 0x1800; /* INVALIDATE bits of RMA and AMO, distinguished
                                 from 1.15 on */
    }
    attr.flags &= release->md_flags;
    if (release->minor < 21) {
        attr.flags &= ~(uint64_t)UCT_ABI_MD_FLAG_RKEY_PTR;
    }
    if ((release->minor < 19) && uct_abi_has_gdrcopy &&
        !(attr.flags & UCT_ABI_MD_FLAG_NEED_RKEY)) {
        /* As UCX's own cuda_copy up to 1.18: UCP would prefer it to gdr_copy
           for small copies inside the process. Without gdr_copy it is faster
           than staging. */
        attr.access_mem_types &= ~UCT_ABI_BIT(UCT_ABI_MEM_TYPE_HOST);
    }
    if (attr.reg_alignment == 0) {
        attr.reg_alignment = 1;
    }

#define UCT_ABI_MD_ATTR_SET(_field) \
    if (uct_abi_has(layout, UCT_ABI_MD_ATTR_##_field)) { \
        memcpy(uct_abi_at(layout, host_attr, UCT_ABI_MD_ATTR_##_field), \
               &attr._field, sizeof(attr._field)); \
    }

    UCT_ABI_MD_ATTR_SET(max_alloc);
    UCT_ABI_MD_ATTR_SET(max_reg);
    UCT_ABI_MD_ATTR_SET(flags);
    UCT_ABI_MD_ATTR_SET(reg_mem_types);
    UCT_ABI_MD_ATTR_SET(reg_nonblock_mem_types);
    UCT_ABI_MD_ATTR_SET(cache_mem_types);
    UCT_ABI_MD_ATTR_SET(gva_mem_types);
    UCT_ABI_MD_ATTR_SET(detect_mem_types);
    UCT_ABI_MD_ATTR_SET(alloc_mem_types);
    UCT_ABI_MD_ATTR_SET(access_mem_types);
    UCT_ABI_MD_ATTR_SET(dmabuf_mem_types);
    UCT_ABI_MD_ATTR_SET(reg_cost);
    UCT_ABI_MD_ATTR_SET(rkey_packed_size);
    UCT_ABI_MD_ATTR_SET(reg_alignment);
    UCT_ABI_MD_ATTR_SET(local_cpus);
    return UCS_OK;
}

static ucs_status_t uct_abi_md_mem_alloc_19(uct_md_h md, size_t *length_p,
                                            void **address_p, int mem_type,
                                            ucs_sys_device_t sys_dev,
                                            unsigned flags, const char *name,
                                            uct_mem_h *memh_p)
{
    const uct_abi_md_ops_t *ops = uct_abi_md(md)->ops;

    if (ops->mem_alloc == NULL) {
        return UCS_ERR_UNSUPPORTED;
    }

    return ops->mem_alloc(uct_abi_md(md), length_p, address_p,
                          uct_abi_mem_type_from_host(mem_type), sys_dev, flags,
                          name, memh_p);
}

static ucs_status_t uct_abi_md_mem_alloc_13(uct_md_h md, size_t *length_p,
                                            void **address_p, int mem_type,
                                            unsigned flags, const char *name,
                                            uct_mem_h *memh_p)
{
    return uct_abi_md_mem_alloc_19(md, length_p, address_p, mem_type,
                                   UCT_ABI_SYS_DEVICE_UNKNOWN, flags, name,
                                   memh_p);
}

static ucs_status_t uct_abi_md_mem_free(uct_md_h md, uct_mem_h memh)
{
    const uct_abi_md_ops_t *ops = uct_abi_md(md)->ops;

    return (ops->mem_free == NULL) ? UCS_ERR_UNSUPPORTED :
                                     ops->mem_free(uct_abi_md(md), memh);
}

static ucs_status_t uct_abi_md_mem_reg_13(uct_md_h md, void *address,
                                          size_t length, unsigned flags,
                                          uct_mem_h *memh_p)
{
    return uct_abi_md(md)->ops->mem_reg(uct_abi_md(md), address, length, flags,
                                        memh_p);
}

static ucs_status_t
uct_abi_md_mem_reg_14(uct_md_h md, void *address, size_t length,
                      const uct_abi_host_mem_reg_params_t *params,
                      uct_mem_h *memh_p)
{
    const unsigned flags = (params->field_mask & UCT_ABI_MEM_REG_FLAGS) ?
                                   (unsigned)params->flags :
                                   0;

    return uct_abi_md_mem_reg_13(md, address, length, flags, memh_p);
}

static ucs_status_t
uct_abi_md_mem_dereg(uct_md_h md, const uct_abi_host_mem_dereg_params_t *params)
{
    uct_completion_t *comp = NULL;

    if (!(params->field_mask & UCT_ABI_MEM_DEREG_FIELD_MEMH) ||
        (params->memh == NULL)) {
        return UCS_ERR_INVALID_PARAM;
    }

    if ((params->field_mask & UCT_ABI_MEM_DEREG_FIELD_FLAGS) &&
        (params->flags & UCT_ABI_MEM_DEREG_INVALIDATE)) {
        if (params->field_mask & UCT_ABI_MEM_DEREG_FIELD_COMPLETION) {
            comp = params->comp;
        }
        if (comp == NULL) {
            return UCS_ERR_INVALID_PARAM;
        }
    }

    return uct_abi_md(md)->ops->mem_dereg(uct_abi_md(md), params->memh, comp);
}

static ucs_status_t uct_abi_md_mem_query(uct_md_h md, const void *address,
                                         size_t length,
                                         uct_abi_host_mem_attr_t *host_attr)
{
    const uct_abi_md_ops_t *ops = uct_abi_md(md)->ops;
    uint64_t mask               = host_attr->field_mask;
    uct_abi_mem_attr_t attr;
    ucs_status_t status;

    if (ops->mem_query == NULL) {
        return UCS_ERR_UNSUPPORTED;
    }

    attr.field_mask     = mask;
    attr.mem_type       = UCT_ABI_MEM_TYPE_HOST;
    attr.sys_dev        = UCT_ABI_SYS_DEVICE_UNKNOWN;
    attr.base_address   = (void*)(uintptr_t)address;
    attr.alloc_length   = length;
    attr.dmabuf_fd      = -1;
    attr.dmabuf_offset  = 0;
    attr.is_registrable = 1;

    status = ops->mem_query(uct_abi_md(md), address, length, &attr);
    if (status != UCS_OK) {
        return status;
    }

    UCT_ABI_TAKE(mask, UCT_ABI_MEM_ATTR_MEM_TYPE, host_attr->mem_type,
                 uct_abi_mem_type_to_host(attr.mem_type))
    UCT_ABI_TAKE(mask, UCT_ABI_MEM_ATTR_SYS_DEV, host_attr->sys_dev,
                 attr.sys_dev)
    UCT_ABI_TAKE(mask, UCT_ABI_MEM_ATTR_BASE_ADDRESS, host_attr->base_address,
                 attr.base_address)
    UCT_ABI_TAKE(mask, UCT_ABI_MEM_ATTR_ALLOC_LENGTH, host_attr->alloc_length,
                 attr.alloc_length)
    UCT_ABI_TAKE(mask, UCT_ABI_MEM_ATTR_DMABUF_FD, host_attr->dmabuf_fd,
                 attr.dmabuf_fd)
    UCT_ABI_TAKE(mask, UCT_ABI_MEM_ATTR_DMABUF_OFFSET, host_attr->dmabuf_offset,
                 attr.dmabuf_offset)
    if ((mask & UCT_ABI_MEM_ATTR_MEM_FLAGS) &&
        (uct_abi_host.release->minor >= 22)) {
        host_attr->mem_flags = attr.is_registrable ?
                                       UCT_ABI_MEM_FLAG_REGISTRABLE :
                                       0;
    }

    return UCS_OK;
}

/* The host's flags describe the use of a key; our keys are the same for all
   uses */
static ucs_status_t
uct_abi_md_mkey_pack(uct_md_h md, uct_mem_h memh, void *address, size_t length,
                     const void *params, void *buffer)
{
    return uct_abi_md(md)->ops->mkey_pack(uct_abi_md(md), memh, address, length,
                                          buffer);
}

static ucs_status_t uct_abi_md_mkey_pack_13(uct_md_h md, uct_mem_h memh,
                                            const void *params, void *buffer)
{
    return uct_abi_md_mkey_pack(md, memh, NULL, 0, params, buffer);
}

static ucs_status_t uct_abi_md_detect_memory_type(uct_md_h md,
                                                  const void *address,
                                                  size_t length,
                                                  int *host_type_p)
{
    const uct_abi_md_ops_t *ops = uct_abi_md(md)->ops;
    uct_abi_mem_type_t mem_type;
    ucs_status_t status;

    if (ops->detect_memory_type == NULL) {
        return UCS_ERR_UNSUPPORTED;
    }

    status = ops->detect_memory_type(uct_abi_md(md), address, length,
                                     &mem_type);
    if (status == UCS_OK) {
        *host_type_p = uct_abi_mem_type_to_host(mem_type);
    }

    return status;
}

static ucs_status_t uct_abi_md_mem_elem_pack(uct_md_h md, uct_mem_h memh,
                                             uct_rkey_t rkey, void *mem_elem)
{
    const uct_abi_md_ops_t *ops = uct_abi_md(md)->ops;

    return (ops->mem_elem_pack == NULL) ?
                   UCS_ERR_UNSUPPORTED :
                   ops->mem_elem_pack(uct_abi_md(md), memh, rkey, mem_elem);
}

/* mem_elem_release came with this form. It has nothing to release: the key
   keeps the mapping until it is released itself. */
static ucs_status_t uct_abi_md_mem_elem_pack_22_1(uct_md_h md, uct_mem_h memh,
                                                  uct_rkey_t rkey,
                                                  void *mem_elem,
                                                  void **release_handle_p)
{
    *release_handle_p = NULL;
    return uct_abi_md_mem_elem_pack(md, memh, rkey, mem_elem);
}

void uct_abi_md_ops_emit(uct_abi_host_t *host)
{
    const uct_abi_layout_t *layout = host->release->md_ops;
    unsigned minor                 = host->release->minor;
    unsigned i;

    for (i = 0; i < UCT_ABI_TABLE_MAX; ++i) {
        host->md_ops[i] = (uct_abi_fn_t)uct_abi_unsupported;
    }

#define UCT_ABI_MD_OPS_SET(_field, _fn) \
    uct_abi_slot_set(layout, host->md_ops, UCT_ABI_MD_OPS_##_field, \
                     (uct_abi_fn_t)(_fn))

    UCT_ABI_MD_OPS_SET(close, uct_abi_md_close);
    UCT_ABI_MD_OPS_SET(query, uct_abi_md_query);
    UCT_ABI_MD_OPS_SET(mem_free, uct_abi_md_mem_free);
    UCT_ABI_MD_OPS_SET(mem_dereg, uct_abi_md_mem_dereg);
    UCT_ABI_MD_OPS_SET(mem_query, uct_abi_md_mem_query);
    UCT_ABI_MD_OPS_SET(detect_memory_type, uct_abi_md_detect_memory_type);
    UCT_ABI_MD_OPS_SET(is_sockaddr_accessible, uct_abi_zero);
    UCT_ABI_MD_OPS_SET(mem_elem_release, uct_abi_zero);
    if (uct_abi_has(layout, UCT_ABI_MD_OPS_mem_elem_release)) {
        UCT_ABI_MD_OPS_SET(mem_elem_pack, uct_abi_md_mem_elem_pack_22_1);
    } else {
        UCT_ABI_MD_OPS_SET(mem_elem_pack, uct_abi_md_mem_elem_pack);
    }

    if (minor < 14) {
        UCT_ABI_MD_OPS_SET(mem_reg, uct_abi_md_mem_reg_13);
    } else {
        UCT_ABI_MD_OPS_SET(mem_reg, uct_abi_md_mem_reg_14);
    }

    if (minor < 16) {
        UCT_ABI_MD_OPS_SET(mkey_pack, uct_abi_md_mkey_pack_13);
    } else {
        UCT_ABI_MD_OPS_SET(mkey_pack, uct_abi_md_mkey_pack);
    }

    if (minor < 19) {
        UCT_ABI_MD_OPS_SET(mem_alloc, uct_abi_md_mem_alloc_13);
    } else {
        UCT_ABI_MD_OPS_SET(mem_alloc, uct_abi_md_mem_alloc_19);
    }
}
