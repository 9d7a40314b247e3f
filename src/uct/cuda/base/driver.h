/* SPDX-License-Identifier: BSD-3-Clause */
/* The CUDA driver, loaded at run time. */
#ifndef UCT_CUDA_BASE_DRIVER_H
#define UCT_CUDA_BASE_DRIVER_H

#include <ucs/type/status.h>
#include <uct/cuda/base/driver_table.h>

#include <stdbool.h>

BEGIN_C_DECLS


/* Loaded table; use uct_cuda_driver_get(). */
extern const uct_cuda_driver_t *uct_cuda_driver_table;

/* Load and initialize the driver; the slow part of uct_cuda_driver_get(). */
const uct_cuda_driver_t *uct_cuda_driver_load(void);


/** Return the driver's functions, or NULL on a node without a usable driver
 *  or device. The first call loads libcuda.so.1 and calls cuInit (0.1 to 0.5
 *  s with GPUs, microseconds without libcuda); later calls cost a load.
 *  Thread safe. A missing libcuda is not reported; other failures are logged
 *  once. */
static inline const uct_cuda_driver_t *uct_cuda_driver_get(void)
{
    const uct_cuda_driver_t *driver =
            __atomic_load_n(&uct_cuda_driver_table, __ATOMIC_ACQUIRE);

    return (driver != NULL) ? driver : uct_cuda_driver_load();
}


/**
 * Return why there is no driver.
 *
 * @return UCS_OK: there is one; UCS_ERR_NO_DEVICE: no libcuda or no device;
 *         UCS_ERR_UNSUPPORTED: libcuda is too old or refuses.
 */
ucs_status_t uct_cuda_driver_status(void);


/** Return whether the module was the first to load the driver into this
 *  process: no GPU was used before. */
bool uct_cuda_driver_is_first(void);


/**
 * Use @a driver instead of the real one; NULL: the real one again. For tests,
 * before other threads run.
 */
void uct_cuda_driver_override(const uct_cuda_driver_t *driver);


/** Translate a driver result other than CUDA_SUCCESS to a status:
 *  UCS_INPROGRESS for CUDA_ERROR_NOT_READY. Never logs. */
ucs_status_t uct_cuda_failure_status(CUresult result);

/** Translate a driver result to a status. Never logs. */
static inline ucs_status_t uct_cuda_status(CUresult result)
{
    return __builtin_expect(result == CUDA_SUCCESS, 1) ?
                   UCS_OK :
                   uct_cuda_failure_status(result);
}


/** Return the name of a driver result, such as "CUDA_ERROR_OUT_OF_MEMORY". */
const char *uct_cuda_result_name(CUresult result);


ucs_status_t uct_cuda_driver_report(const char *file, unsigned line,
                                    const char *caller, const char *function,
                                    CUresult result);

/* Translate a result, and log a failure with the function and the error. A
 * driver shutting down with the process is logged at debug level only. */
static inline ucs_status_t
uct_cuda_driver_check(const char *file, unsigned line, const char *caller,
                      const char *function, CUresult result)
{
    return __builtin_expect(result == CUDA_SUCCESS, 1) ?
                   UCS_OK :
                   uct_cuda_driver_report(file, line, caller, function, result);
}


/**
 * Call a driver function through the table.
 *
 * UCT_CUDA_CALL logs a failure as an error, so callers need not;
 * UCT_CUDA_CALL_NOLOG leaves this to the caller. Without a driver the result is
 * UCS_ERR_NO_DEVICE, without an optional function UCS_ERR_UNSUPPORTED; neither
 * is logged.
 */
#define UCT_CUDA_CALL(_function, ...) \
    ({ \
        const uct_cuda_driver_t *_driver = uct_cuda_driver_get(); \
        (_driver == NULL)              ? UCS_ERR_NO_DEVICE : \
        (_driver->_function == NULL)   ? UCS_ERR_UNSUPPORTED : \
        uct_cuda_driver_check(__FILE__, __LINE__, __func__, #_function, \
                              _driver->_function(__VA_ARGS__)); \
    })

#define UCT_CUDA_CALL_NOLOG(_function, ...) \
    ({ \
        const uct_cuda_driver_t *_driver = uct_cuda_driver_get(); \
        (_driver == NULL)              ? UCS_ERR_NO_DEVICE : \
        (_driver->_function == NULL)   ? UCS_ERR_UNSUPPORTED : \
        uct_cuda_status(_driver->_function(__VA_ARGS__)); \
    })


END_C_DECLS

#endif
