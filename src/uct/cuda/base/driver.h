/* SPDX-License-Identifier: BSD-3-Clause */
/* The CUDA driver, loaded at run time. */
#ifndef UCT_CUDA_BASE_DRIVER_H
#define UCT_CUDA_BASE_DRIVER_H

#include <ucs/type/status.h>
#include <uct/cuda/base/driver_table.h>

#include <stdbool.h>

BEGIN_C_DECLS


/* The loaded table; use uct_cuda_driver_get(). */
extern const uct_cuda_driver_t *uct_cuda_driver_table;

/* Load and initialise the driver; the slow part of uct_cuda_driver_get(). */
const uct_cuda_driver_t *uct_cuda_driver_load(void);


/**
 * The driver's functions, or NULL on a node that has no usable driver or no
 * device. The first call loads libcuda.so.1 and calls cuInit (0.1 to 0.5 s with
 * GPUs, microseconds without libcuda); later calls cost a load. Any thread.
 * A node without libcuda is passed over in silence; anything else that is wrong
 * is told once.
 */
static inline const uct_cuda_driver_t *uct_cuda_driver_get(void)
{
    const uct_cuda_driver_t *driver =
            __atomic_load_n(&uct_cuda_driver_table, __ATOMIC_ACQUIRE);

    return (driver != NULL) ? driver : uct_cuda_driver_load();
}


/**
 * Why there is no driver.
 *
 * @return UCS_OK when there is one; UCS_ERR_NO_DEVICE with no libcuda or no
 *         device; UCS_ERR_UNSUPPORTED when libcuda is too old or refuses.
 */
ucs_status_t uct_cuda_driver_status(void);


/** Was it us who brought the driver into this process? Then nobody has used a
 *  GPU before. */
bool uct_cuda_driver_is_first(void);


/**
 * Use @a driver instead of the machine's; NULL goes back to the machine's. For
 * tests, before other threads run.
 */
void uct_cuda_driver_override(const uct_cuda_driver_t *driver);


/* Of a result that is no success */
ucs_status_t uct_cuda_failure_status(CUresult result);

/** The status that a driver's result stands for. Logs nothing. */
static inline ucs_status_t uct_cuda_status(CUresult result)
{
    return __builtin_expect(result == CUDA_SUCCESS, 1) ?
                   UCS_OK :
                   uct_cuda_failure_status(result);
}


/** Name of a driver's result, such as "CUDA_ERROR_OUT_OF_MEMORY". */
const char *uct_cuda_result_name(CUresult result);


ucs_status_t uct_cuda_driver_tell(const char *file, unsigned line,
                                  const char *caller, const char *function,
                                  CUresult result);

/* Translate, and log a failure naming the function and the error. A driver
 * that is shutting down with the process is no error and is logged at debug
 * level. */
static inline ucs_status_t
uct_cuda_driver_check(const char *file, unsigned line, const char *caller,
                      const char *function, CUresult result)
{
    return __builtin_expect(result == CUDA_SUCCESS, 1) ?
                   UCS_OK :
                   uct_cuda_driver_tell(file, line, caller, function, result);
}


/**
 * Call a driver function through the table.
 *
 * UCT_CUDA_CALL logs a failure as an error, once, here; UCT_CUDA_CALL_NOLOG
 * leaves that to the caller. With no driver: UCS_ERR_NO_DEVICE; with an
 * optional function that this driver lacks: UCS_ERR_UNSUPPORTED; neither is
 * logged.
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
