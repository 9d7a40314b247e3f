/* SPDX-License-Identifier: BSD-3-Clause */
#include "driver.h"

#include "gpu.h"
#include "util.h"

ucx_mp_driver_t ucx_mp_driver;

void ucx_mp_driver_load(void)
{
    const ucx_mp_symbol_t symbols[] = {
        UCX_MP_DRIVER_FUNCTIONS(UCX_MP_DRIVER_SYMBOL)
    };

    ucx_mp_gpu_functions(symbols, sizeof(symbols) / sizeof(symbols[0]));
    ucx_mp_driver.prop = (ucx_mp_prop_t){.type          = 1,
                                         .handle_types  = 1,
                                         .location_type = 1};
    UCX_MP_DRIVER(get_device, &ucx_mp_driver.prop.location);
}

void ucx_mp_driver_check(int error, const char *what)
{
    if (error != 0) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "%s failed: %s", what,
                   ucx_mp_gpu_error_name(error));
    }
}

size_t ucx_mp_driver_in_use(void)
{
    size_t free_bytes, total;

    UCX_MP_DRIVER(get_info, &free_bytes, &total);
    return total - free_bytes;
}

void *ucx_mp_driver_pool(void)
{
    const int release_threshold = 4;
    uint64_t bytes              = UINT64_MAX;
    void *pool;

    UCX_MP_DRIVER(pool_create, &pool, &ucx_mp_driver.prop);
    UCX_MP_DRIVER(pool_set, pool, release_threshold, &bytes);
    return pool;
}

void *ucx_mp_driver_vmm(size_t size)
{
    ucx_mp_ptr_t range;

    UCX_MP_DRIVER(reserve, &range, size, 0, 0, 0);
    ucx_mp_driver_map(range, size, size);
    return (void*)(uintptr_t)range;
}

void ucx_mp_driver_map(ucx_mp_ptr_t range, size_t size, size_t piece)
{
    ucx_mp_access_t access = {.location_type = 1, .flags = 3};
    unsigned long long handle;
    size_t offset;

    for (offset = 0; offset < size; offset += piece) {
        UCX_MP_DRIVER(create, &handle, piece, &ucx_mp_driver.prop, 0);
        UCX_MP_DRIVER(map, range + offset, piece, 0, handle, 0);
        UCX_MP_DRIVER(release, handle);
    }

    UCX_MP_DRIVER(get_device, &access.location);
    UCX_MP_DRIVER(set_access, range, size, &access, 1);
}
