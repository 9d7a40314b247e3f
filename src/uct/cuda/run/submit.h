/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Submission of a step of any plan to a stream: its waits, its copy or
 * reduction, its completion, and its bar in the timeline. The caller chooses
 * stream and time.
 */
#ifndef UCT_CUDA_RUN_SUBMIT_H
#define UCT_CUDA_RUN_SUBMIT_H

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/end.h>
#include <uct/cuda/plan/steps.h>
#include <uct/cuda/run/device.h>

BEGIN_C_DECLS


/** Bar of a step in the timeline. */
typedef struct {
    uct_cuda_end_t from;       /**< Start of the row's link */
    uct_cuda_end_t to;         /**< End of the row's link */
    char           what[24];   /**< Path or queue */
    char           places[96]; /**< Source and destination */
} uct_cuda_run_submit_bar_t;


/** Plan of the steps, and its resources. */
typedef struct {
    uct_cuda_plan_steps_t       list;

    /** Return the address of a place for copies in the current context */
    CUdeviceptr                 (*address)(const void *arg,
                                           const uct_cuda_plan_place_t *place);
    /** Fill the bar of a traced step */
    void (*bar)(const void *arg, const uct_cuda_plan_step_t *step,
                uct_cuda_run_submit_bar_t *bar);
    const void                 *arg;

    /** For plans with reductions */
    uct_cuda_run_coll_device_t *device;
    ucx_mp_op_t                op;
    ucx_mp_type_t              type;

    /**
     * Offsets at which a registration ends and another begins, for this buffer:
     * bytes, ascending, in the memory that contains the buffer at @a offset.
     * The driver refuses a copy across.
     */
    uct_cuda_buffer_t          bounded;
    size_t                     offset;
    unsigned                   num_boundaries;
    const size_t               *boundaries;
} uct_cuda_run_submit_t;


/**
 * Submit a step without its waits to a stream of the current context.
 *
 * @return UCS_OK, or the driver's error (logged).
 */
ucs_status_t uct_cuda_run_submit_step(const uct_cuda_run_submit_t *submit,
                                      const uct_cuda_plan_step_t *step,
                                      CUstream stream);


END_C_DECLS

#endif
