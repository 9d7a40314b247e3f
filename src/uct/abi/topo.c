/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX's numbering of PCI devices. */

#include "host.h"

ucs_status_t uct_abi_topo_sys_device(uint16_t domain, uint8_t bus, uint8_t slot,
                                     uint8_t function,
                                     ucs_sys_device_t *sys_dev_p)
{
    uct_abi_host_bus_id_t bus_id = {domain, bus, slot, function};

    if (uct_abi_host.release == NULL) {
        return UCS_ERR_UNSUPPORTED;
    }

    return uct_abi_host.sym.ucs_topo_find_device_by_bus_id(&bus_id, sys_dev_p);
}

ucs_status_t uct_abi_topo_sys_device_set_name(ucs_sys_device_t sys_dev,
                                              const char *name,
                                              unsigned priority)
{
    if (uct_abi_host.release == NULL) {
        return UCS_ERR_UNSUPPORTED;
    }

    /* 1.13 has no priority and ignores a third argument */
    return uct_abi_host.sym.ucs_topo_sys_device_set_name(sys_dev, name,
                                                         priority);
}

uint64_t uct_abi_system_id(void)
{
    return (uct_abi_host.release == NULL) ?
                   0 :
                   uct_abi_host.sym.ucs_get_system_id();
}
