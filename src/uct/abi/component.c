/* SPDX-License-Identifier: BSD-3-Clause */
/* Components and transports: UCX's records of them, and their functions. */

#include "host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A uct_component and a uct_tl as UCX sees them, then our data. Each has room
   for the largest layout. */
typedef struct {
    uint64_t                  host[32];
    uint64_t                  tl[16];
    const uct_abi_component_t *desc;
} uct_abi_component_record_t;

static const uct_abi_component_t *uct_abi_component_desc(const void *component)
{
    return ((const uct_abi_component_record_t*)component)->desc;
}

/* Allocate memory for UCX to free. */
static void *uct_abi_host_alloc(size_t size, const char *name)
{
    return uct_abi_host.sym.ucs_malloc(size, name);
}

static ucs_status_t
uct_abi_component_query_md_resources(void *component,
                                     uct_md_resource_desc_t **resources_p,
                                     unsigned *num_resources_p)
{
    const uct_abi_component_t *desc = uct_abi_component_desc(component);
    uct_md_resource_desc_t *resource;

    *resources_p     = NULL;
    *num_resources_p = 0;
    if (!desc->is_available(desc)) {
        return UCS_OK;
    }

    resource = uct_abi_host_alloc(sizeof(*resource), "cuda_md_resource");
    if (resource == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    memset(resource, 0, sizeof(*resource));
    snprintf(resource->md_name, sizeof(resource->md_name), "%s", desc->name);
    *resources_p     = resource;
    *num_resources_p = 1;
    return UCS_OK;
}

static ucs_status_t uct_abi_component_md_open(void *component,
                                              const char *md_name,
                                              const void *config,
                                              uct_md_h *md_p)
{
    const uct_abi_component_t *desc = uct_abi_component_desc(component);
    uct_abi_md_t *md;
    ucs_status_t status;

    status = desc->md_open(desc, md_name, config, &md);
    if (status != UCS_OK) {
        return status;
    }

    md->host_ops       = uct_abi_host.md_ops;
    md->host_component = component;
    md->component      = desc;
    *md_p              = (uct_md_h)md;
    return UCS_OK;
}

static ucs_status_t uct_abi_component_rkey_unpack_13(void *component,
                                                     const void *buffer,
                                                     uct_rkey_t *rkey_p,
                                                     void **handle_p)
{
    const uct_abi_component_t *desc = uct_abi_component_desc(component);

    return desc->rkey_unpack(desc, buffer, UCT_ABI_SYS_DEVICE_UNKNOWN, rkey_p,
                             handle_p);
}

static ucs_status_t
uct_abi_component_rkey_unpack_19(
        void *component, const void *buffer,
        const uct_abi_host_rkey_unpack_params_t *params, uct_rkey_t *rkey_p,
        void **handle_p)
{
    const uct_abi_component_t *desc = uct_abi_component_desc(component);
    ucs_sys_device_t sys_dev        = UCT_ABI_SYS_DEVICE_UNKNOWN;

    if ((params != NULL) && (params->field_mask & 1)) {
        sys_dev = params->sys_device;
    }

    return desc->rkey_unpack(desc, buffer, sys_dev, rkey_p, handle_p);
}

static ucs_status_t
uct_abi_component_rkey_ptr(void *component, uct_rkey_t rkey, void *handle,
                           uint64_t remote_address, void **address_p)
{
    const uct_abi_component_t *desc = uct_abi_component_desc(component);

    if (address_p == NULL) {
        return UCS_ERR_INVALID_PARAM;
    }

    return desc->rkey_ptr(desc, rkey, handle, remote_address, address_p);
}

static ucs_status_t
uct_abi_component_rkey_release(void *component, uct_rkey_t rkey, void *handle)
{
    const uct_abi_component_t *desc = uct_abi_component_desc(component);

    return desc->rkey_release(desc, rkey, handle);
}

static ucs_status_t
uct_abi_component_rkey_compare(void *component, uct_rkey_t rkey1,
                               uct_rkey_t rkey2, const void *params,
                               int *result_p)
{
    /* No release has defined a field of params so far */
    if ((result_p == NULL) ||
        ((params != NULL) && (*(const uint64_t*)params != 0))) {
        return UCS_ERR_INVALID_PARAM;
    }

    *result_p = (rkey1 > rkey2) - (rkey1 < rkey2);
    return UCS_OK;
}

static ucs_status_t uct_abi_tl_query_devices(uct_md_h md_h,
                                             uct_abi_tl_device_t **devices_p,
                                             unsigned *num_devices_p)
{
    uct_abi_md_t *md           = (uct_abi_md_t*)md_h;
    const uct_abi_tl_t *tl     = md->component->tl;
    uct_abi_tl_device_t device = {.type = tl->device_type};

    *devices_p     = NULL;
    *num_devices_p = 0;
    if (!tl->query_device(md, &device)) {
        return UCS_OK;
    }

    *devices_p = uct_abi_host_alloc(sizeof(device), "cuda_tl_devices");
    if (*devices_p == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    **devices_p    = device;
    *num_devices_p = 1;
    return UCS_OK;
}

static ucs_status_t
uct_abi_tl_iface_open(uct_md_h md_h, uct_worker_h worker,
                      const uct_iface_params_t *params,
                      const uct_abi_iface_config_t *config,
                      uct_iface_h *iface_p)
{
    const uct_abi_iface_args_t args = {
        .md     = (uct_abi_md_t*)md_h,
        .worker = worker,
        .params = params,
        .config = config
    };
    uct_abi_iface_t *iface;
    ucs_status_t status;

    status = args.md->component->tl->iface_open(&args, &iface);
    if (status != UCS_OK) {
        return status;
    }

    *iface_p = (uct_iface_h)iface;
    return UCS_OK;
}

static void uct_abi_list_init(uct_abi_host_list_t *list)
{
    list->prev = list;
    list->next = list;
}

static void uct_abi_list_remove(uct_abi_host_list_t *link)
{
    if ((link->prev == NULL) || (link->next == NULL)) {
        return; /* not on any list */
    }

    link->prev->next = link->next;
    link->next->prev = link->prev;
    uct_abi_list_init(link);
}

static ucs_status_t
uct_abi_entry_emit(const uct_abi_host_t *host, const char *name,
                   const uct_abi_config_t *config, int base, void *entry)
{
    const uct_abi_layout_t *layout = host->release->entry;
    void *table                    = uct_abi_config_emit(host, config, base);

    if (table == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    /* UCX refuses a structure of size 0 */
    *(const char**)uct_abi_at(layout, entry, UCT_ABI_ENTRY_name) =
            (config->name != NULL) ? config->name : name;
    *(const char**)uct_abi_at(layout, entry, UCT_ABI_ENTRY_prefix) =
            (config->prefix != NULL) ? config->prefix : "";
    *(void**)uct_abi_at(layout, entry, UCT_ABI_ENTRY_table) = table;
    *(size_t*)uct_abi_at(layout, entry, UCT_ABI_ENTRY_size) =
            (config->size != 0) ? config->size : 1;
    return UCS_OK;
}

static ucs_status_t
uct_abi_component_emit(const uct_abi_host_t *host,
                       const uct_abi_component_t *desc,
                       uct_abi_component_record_t *record)
{
    const uct_abi_release_t *release = host->release;
    const uct_abi_layout_t *layout   = release->component;
    static const uct_abi_config_t no_config;
    ucs_status_t status;
    void *entry;

    record->desc = desc;
    snprintf(uct_abi_at(layout, record->host, UCT_ABI_COMPONENT_name),
             UCT_COMPONENT_NAME_MAX, "%s", desc->name);

#define UCT_ABI_COMPONENT_SET(_field, _fn) \
    uct_abi_slot_set(layout, record->host, UCT_ABI_COMPONENT_##_field, \
                     (uct_abi_fn_t)(_fn))

    UCT_ABI_COMPONENT_SET(query_md_resources,
                          uct_abi_component_query_md_resources);
    UCT_ABI_COMPONENT_SET(md_open, uct_abi_component_md_open);
    UCT_ABI_COMPONENT_SET(cm_open, uct_abi_unsupported);
    UCT_ABI_COMPONENT_SET(md_vfs_init, uct_abi_zero);
    UCT_ABI_COMPONENT_SET(rkey_compare, uct_abi_component_rkey_compare);
    if (release->minor < 19) {
        UCT_ABI_COMPONENT_SET(rkey_unpack, uct_abi_component_rkey_unpack_13);
    } else {
        UCT_ABI_COMPONENT_SET(rkey_unpack, uct_abi_component_rkey_unpack_19);
    }

    /* Up to 1.20 ucp_rkey_ptr() ignores the domain's flags */
    if ((desc->rkey_ptr == NULL) || (release->minor < 21)) {
        UCT_ABI_COMPONENT_SET(rkey_ptr, uct_abi_unsupported);
    } else {
        UCT_ABI_COMPONENT_SET(rkey_ptr, uct_abi_component_rkey_ptr);
    }

    if (desc->rkey_release == NULL) {
        UCT_ABI_COMPONENT_SET(rkey_release, uct_abi_zero);
    } else {
        UCT_ABI_COMPONENT_SET(rkey_release, uct_abi_component_rkey_release);
    }

    uct_abi_list_init(uct_abi_at(layout, record->host,
                                 UCT_ABI_COMPONENT_tl_list));

    status = uct_abi_entry_emit(host, desc->name, &desc->config, 0,
                                uct_abi_at(layout, record->host,
                                           UCT_ABI_COMPONENT_md_config));
    if (status != UCS_OK) {
        return status;
    }

    entry  = uct_abi_at(layout, record->host, UCT_ABI_COMPONENT_cm_config);
    status = uct_abi_entry_emit(host, "", &no_config, 0, entry);
    if (status != UCS_OK) {
        return status;
    }

    snprintf(uct_abi_at(release->tl, record->tl, UCT_ABI_TL_name),
             UCT_TL_NAME_MAX, "%s", desc->tl->name);
    uct_abi_slot_set(release->tl, record->tl, UCT_ABI_TL_query_devices,
                     (uct_abi_fn_t)uct_abi_tl_query_devices);
    uct_abi_slot_set(release->tl, record->tl, UCT_ABI_TL_iface_open,
                     (uct_abi_fn_t)uct_abi_tl_iface_open);
    return uct_abi_entry_emit(host, desc->tl->name, &desc->tl->config, 1,
                              uct_abi_at(release->tl, record->tl,
                                         UCT_ABI_TL_config));
}

/* Emit all components before the first is registered: all or none. UCX never
   frees them, and the module is never unloaded. */
ucs_status_t uct_abi_component_register_all(const uct_abi_host_t *host)
{
    uct_abi_component_record_t *records;
    ucs_status_t status;
    unsigned count, i;

    for (count = 0; uct_abi_components[count] != NULL; ++count) {
    }

    records = calloc(count + 1, sizeof(*records));
    if (records == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    for (i = 0; i < count; ++i) {
        status = uct_abi_component_emit(host, uct_abi_components[i],
                                        &records[i]);
        if (status != UCS_OK) {
            return status;
        }
    }

    for (i = 0; i < count; ++i) {
        host->sym.uct_tl_register(records[i].host, records[i].tl);
        host->sym.uct_component_register(records[i].host);
        uct_abi_debug("registered component %s with %s",
                      uct_abi_components[i]->name, uct_abi_host_name());
    }

    return UCS_OK;
}

/* Return whether a component, or one of its transports, has the name of one of
   ours. */
static int
uct_abi_component_is_rival(const uct_abi_release_t *release, void *component)
{
    const uct_abi_layout_t *layout = release->component;
    uct_abi_host_list_t *tls, *tl;
    const char *name, *tl_name;
    unsigned i;

    name = uct_abi_at(layout, component, UCT_ABI_COMPONENT_name);
    tls  = uct_abi_at(layout, component, UCT_ABI_COMPONENT_tl_list);

    for (i = 0; uct_abi_components[i] != NULL; ++i) {
        if (strcmp(uct_abi_components[i]->name, name) == 0) {
            return 1;
        }

        for (tl = tls->next; tl != tls; tl = tl->next) {
            tl_name = (char*)tl - release->tl->offset[UCT_ABI_TL_list];
            if (strcmp(uct_abi_components[i]->tl->name, tl_name) == 0) {
                return 1;
            }
        }
    }

    return 0;
}

/* Return whether a component's functions belong to this module. */
static int
uct_abi_component_is_of_module(const uct_abi_layout_t *layout, void *component)
{
    const void *fn = *(void**)uct_abi_at(layout, component,
                                         UCT_ABI_COMPONENT_query_md_resources);

    return uct_abi_object_defines(fn, UCT_ABI_MARK);
}

int uct_abi_component_is_twin_registered(const uct_abi_host_t *host)
{
    const uct_abi_layout_t *layout = host->release->component;
    uct_abi_host_list_t *head      = host->sym.uct_components_list;
    uct_abi_host_list_t *link;
    char *component;

    for (link = head->next; link != head; link = link->next) {
        component = (char*)link - layout->offset[UCT_ABI_COMPONENT_list];
        if (uct_abi_component_is_rival(host->release, component) &&
            uct_abi_component_is_of_module(layout, component)) {
            return 1;
        }
    }

    return 0;
}

void uct_abi_component_displace(const uct_abi_host_t *host)
{
    const uct_abi_layout_t *layout    = host->release->component;
    const uct_abi_layout_t *tl_layout = host->release->tl;
    int16_t entry_list    = host->release->entry->offset[UCT_ABI_ENTRY_list];
    uct_abi_host_list_t *head         = host->sym.uct_components_list;
    uct_abi_host_list_t *link, *next, *tls, *tl;
    char *component, *config;

    for (link = head->next; link != head; link = next) {
        next      = link->next;
        component = (char*)link - layout->offset[UCT_ABI_COMPONENT_list];
        if (!uct_abi_component_is_rival(host->release, component) ||
            uct_abi_component_is_of_module(layout, component)) {
            continue;
        }

        tls = uct_abi_at(layout, component, UCT_ABI_COMPONENT_tl_list);
        for (tl = tls->next; tl != tls; tl = tl->next) {
            config = (char*)tl - tl_layout->offset[UCT_ABI_TL_list] +
                     tl_layout->offset[UCT_ABI_TL_config];
            uct_abi_list_remove((uct_abi_host_list_t*)(config + entry_list));
        }

        config = uct_abi_at(layout, component, UCT_ABI_COMPONENT_md_config);
        uct_abi_list_remove((uct_abi_host_list_t*)(config + entry_list));
        config = uct_abi_at(layout, component, UCT_ABI_COMPONENT_cm_config);
        uct_abi_list_remove((uct_abi_host_list_t*)(config + entry_list));
        uct_abi_list_remove(link);
        uct_abi_debug("took the place of component %s of %s", component,
                      uct_abi_host_name());
    }
}
