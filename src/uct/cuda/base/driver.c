/* SPDX-License-Identifier: BSD-3-Clause */
/* Load libcuda.so.1, and translate its results. */
#include <uct/cuda/base/driver.h>

#include <uct/cuda/base/capture.h>
#include <uct/cuda/base/log.h>

#include <dlfcn.h>
#include <pthread.h>


#define DRIVER_LIBRARY "libcuda.so.1"


typedef struct {
    const char *symbol;
    size_t     offset; /* in uct_cuda_driver_t */
    bool       required;
} driver_entry_t;


#define ENTRY(_name, _symbol, _required) \
    {_symbol, offsetof(uct_cuda_driver_t, _name), _required},
#define REQUIRED_ENTRY(_name, _symbol, _args) ENTRY(_name, _symbol, true)
#define OPTIONAL_ENTRY(_name, _symbol, _args) ENTRY(_name, _symbol, false)

static const driver_entry_t driver_entries[] = {
    UCT_CUDA_DRIVER_FUNCTIONS(REQUIRED_ENTRY, OPTIONAL_ENTRY)
};


/* The list's arguments are those of the toolkit's own declarations */
#define ASSERT_ARGS(_name, _symbol, _args) \
    _Static_assert(__builtin_types_compatible_p( \
                           __typeof__(&_name), \
                           __typeof__(((uct_cuda_driver_t*)0)->_name)), \
                   _symbol);
UCT_CUDA_DRIVER_FUNCTIONS(ASSERT_ARGS, ASSERT_ARGS)


const uct_cuda_driver_t *uct_cuda_driver_table;

static struct {
    pthread_mutex_t   lock;
    ucs_status_t      status; /* UCS_INPROGRESS: not tried yet */
    bool              is_first; /* this module loaded it first */
    uct_cuda_driver_t table;
} driver = {
    .lock   = PTHREAD_MUTEX_INITIALIZER,
    .status = UCS_INPROGRESS
};


static ucs_status_t driver_fill(void *handle, uct_cuda_driver_t *table)
{
    const driver_entry_t *entry;
    void *function;
    size_t i;

    for (i = 0; i < sizeof(driver_entries) / sizeof(driver_entries[0]); ++i) {
        entry    = &driver_entries[i];
        function = dlsym(handle, entry->symbol);
        if ((function == NULL) && entry->required) {
            uct_cuda_warn("%s has no %s (driver too old); GPUs are not used",
                          DRIVER_LIBRARY, entry->symbol);
            return UCS_ERR_UNSUPPORTED;
        }

        *(void**)((char*)table + entry->offset) = function;
    }

    /* names a slice (MIG), where the older function names its GPU */
    function = dlsym(handle, "cuDeviceGetUuid_v2");
    if (function != NULL) {
        *(void**)&table->cuDeviceGetUuid = function;
    }

    return UCS_OK;
}

static ucs_status_t driver_init(const uct_cuda_driver_t *table)
{
    CUresult result = table->cuInit(0);
    const char *name;
    int count;

    if (result == CUDA_SUCCESS) {
        result = table->cuDeviceGetCount(&count);
        if ((result == CUDA_SUCCESS) && (count > 0)) {
            return UCS_OK;
        }
    }

    if ((result == CUDA_SUCCESS) || (result == CUDA_ERROR_NO_DEVICE)) {
        return UCS_ERR_NO_DEVICE;
    }

    if (table->cuGetErrorName(result, &name) != CUDA_SUCCESS) {
        name = "an unknown error";
    }

    uct_cuda_warn("cuInit failed with %s: GPUs are not used", name);
    return UCS_ERR_UNSUPPORTED;
}

/* Called with the lock held, once */
static ucs_status_t driver_open(void)
{
    ucs_status_t status;
    void *handle;

    handle = dlopen(DRIVER_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
    if (handle == NULL) {
        driver.is_first = true;
    } else {
        dlclose(handle);
    }

    handle = dlopen(DRIVER_LIBRARY, RTLD_NOW | RTLD_GLOBAL);
    if (handle == NULL) {
        /* The usual node without GPUs: no message */
        uct_cuda_debug("no CUDA driver: %s", dlerror());
        return UCS_ERR_NO_DEVICE;
    }

    status = driver_fill(handle, &driver.table);
    if (status == UCS_OK) {
        status = driver_init(&driver.table);
        uct_cuda_capture_wrap(&driver.table);
    }

    /* Kept open even if unusable: the driver does not unload cleanly after
     * cuInit */
    return status;
}

const uct_cuda_driver_t *uct_cuda_driver_load(void)
{
    ucs_status_t status = __atomic_load_n(&driver.status, __ATOMIC_ACQUIRE);

    if (status == UCS_INPROGRESS) {
        pthread_mutex_lock(&driver.lock);
        if (driver.status == UCS_INPROGRESS) {
            status = driver_open();
            if (status == UCS_OK) {
                __atomic_store_n(&uct_cuda_driver_table, &driver.table,
                                 __ATOMIC_RELEASE);
            }
            __atomic_store_n(&driver.status, status, __ATOMIC_RELEASE);
        }
        pthread_mutex_unlock(&driver.lock);
    }

    return __atomic_load_n(&uct_cuda_driver_table, __ATOMIC_ACQUIRE);
}

ucs_status_t uct_cuda_driver_status(void)
{
    if (uct_cuda_driver_get() != NULL) {
        return UCS_OK;
    }

    return driver.status;
}

bool uct_cuda_driver_is_first(void)
{
    return driver.is_first;
}

void uct_cuda_driver_override(const uct_cuda_driver_t *table)
{
    pthread_mutex_lock(&driver.lock);
    if ((table == NULL) && (driver.status == UCS_OK)) {
        table = &driver.table;
    }

    __atomic_store_n(&uct_cuda_driver_table, table, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&driver.lock);
}

ucs_status_t uct_cuda_failure_status(CUresult result)
{
    switch (result) {
    case CUDA_ERROR_NOT_READY:
        return UCS_INPROGRESS;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return UCS_ERR_NO_MEMORY;
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_SYSTEM_NOT_READY:
        return UCS_ERR_NO_DEVICE;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_INVALID_HANDLE:
        return UCS_ERR_INVALID_PARAM;
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NOT_PERMITTED:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
        return UCS_ERR_UNSUPPORTED;
    case CUDA_ERROR_ALREADY_MAPPED:
    case CUDA_ERROR_ALREADY_ACQUIRED:
    case CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED:
    case CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
        return UCS_ERR_ALREADY_EXISTS;
    case CUDA_ERROR_NOT_FOUND:
    case CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED:
        return UCS_ERR_NO_ELEM;
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
        return UCS_ERR_NO_RESOURCE;
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
    case CUDA_ERROR_PEER_ACCESS_NOT_ENABLED:
        return UCS_ERR_UNREACHABLE;
    default:
        return UCS_ERR_IO_ERROR;
    }
}

const char *uct_cuda_result_name(CUresult result)
{
    const uct_cuda_driver_t *table = uct_cuda_driver_get();
    const char *name;

    if ((table == NULL) ||
        (table->cuGetErrorName(result, &name) != CUDA_SUCCESS) ||
        (name == NULL)) {
        return "an unknown CUDA error";
    }

    return name;
}

ucs_status_t uct_cuda_driver_report(const char *file, unsigned line,
                                    const char *caller, const char *function,
                                    CUresult result)
{
    uct_cuda_log_level_t level;

    if (result == CUDA_ERROR_NOT_READY) {
        return UCS_INPROGRESS;
    }

    /* A program may exit with transfers in flight, and the driver ends first:
     * no error then. The caller repeats calls that the driver refuses during a
     * capture. */
    level = ((result == CUDA_ERROR_DEINITIALIZED) ||
             uct_cuda_capture_is_refusal(result)) ?
                    UCT_CUDA_LOG_DEBUG :
                    UCT_CUDA_LOG_ERROR;
    if (level <= uct_cuda_log_level) {
        uct_cuda_log_message(level, file, line, caller, "%s failed: %s",
                             function, uct_cuda_result_name(result));
    }

    return uct_cuda_status(result);
}
