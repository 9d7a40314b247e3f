/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every symbol of UCX used by the module, with the prototype common to all
 * releases. They are looked up in the running UCX; the module is not linked to
 * it.
 */

#ifndef UCT_ABI_SYMBOLS_H_
#define UCT_ABI_SYMBOLS_H_

#include "args.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef void (*uct_abi_fn_t)(void);

/* _(return type, name, arguments). The module attaches only if all exist. */
#define UCT_ABI_FUNCTIONS(_) \
    _(void, ucs_log_dispatch, \
      (const char *file, unsigned line, const char *function, int level, \
       void *component, const char *format, ...)) \
    _(void*, ucs_malloc, (size_t size, const char *name)) \
    _(void, ucs_class_call_cleanup_chain, \
      (uct_abi_host_class_t *cls, void *obj, int limit)) \
    _(ucs_status_t, ucs_topo_find_device_by_bus_id, \
      (const uct_abi_host_bus_id_t *bus_id, ucs_sys_device_t *sys_dev_p)) \
    _(ucs_status_t, ucs_topo_sys_device_set_name, \
      (ucs_sys_device_t sys_dev, const char *name, unsigned priority)) \
    _(uint64_t, ucs_get_system_id, (void)) \
    _(void, ucs_memtype_cache_update, \
      (const void *address, size_t size, int mem_type, \
       ucs_sys_device_t sys_dev, uint8_t mem_flags)) \
    _(ucs_status_t, ucm_set_event_handler, \
      (int events, int priority, \
       void (*cb)(int event, uct_abi_host_mem_event_t *data, void *arg), \
       void *arg)) \
    _(void, uct_component_register, (void *component)) \
    _(void, uct_tl_register, (void *component, void *tl)) \
    _(void, uct_base_iface_query, \
      (void *iface, uct_iface_attr_t *attr_p)) \
    _(void, uct_base_iface_progress_enable, \
      (uct_iface_h iface, unsigned flags)) \
    _(void, uct_base_iface_progress_disable, \
      (uct_iface_h iface, unsigned flags))

/* May be missing. */
#define UCT_ABI_OPTIONAL_FUNCTIONS(_) \
    _(ucs_status_t, ucm_bistro_patch, \
      (void *function, void *hook, const char *name, void **original_p, \
       void **restore_point_p)) \
    _(ucs_status_t, uct_iface_base_query_v2, (uct_iface_h iface, void *attr)) \
    _(int, ucs_callbackq_add_safe, \
      (ucs_callbackq_t *queue, ucs_callback_t func, void *arg, \
       unsigned flags)) \
    _(void, ucs_callbackq_remove_safe, (ucs_callbackq_t *queue, int id))

/* _(type, name): variables. A program may own the effective copy. */
#define UCT_ABI_VARIABLES(_) \
    _(void, ucs_global_opts) \
    _(void*, ucs_memtype_cache_global_instance) \
    _(uct_abi_host_list_t, ucs_config_global_list) \
    _(uct_abi_host_list_t, ucm_event_installer_list) \
    _(uct_abi_host_list_t, uct_components_list) \
    _(void, uct_iface_config_table) \
    _(uct_abi_host_class_t, uct_base_iface_t_class) \
    _(uct_abi_host_class_t, uct_base_ep_t_class)

#define UCT_ABI_DECLARE_FUNCTION(_ret, _name, _args) _ret (*_name) _args;
#define UCT_ABI_DECLARE_VARIABLE(_type, _name)       _type *_name;

typedef struct {
    UCT_ABI_FUNCTIONS(UCT_ABI_DECLARE_FUNCTION)
    UCT_ABI_OPTIONAL_FUNCTIONS(UCT_ABI_DECLARE_FUNCTION)
    UCT_ABI_VARIABLES(UCT_ABI_DECLARE_VARIABLE)
} uct_abi_symbols_t;

#ifdef __cplusplus
}
#endif

#endif
