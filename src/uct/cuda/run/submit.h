/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Submitting a step of any plan to a stream: what it waits for, its copy or its
 * reduction, what tells its end, and its bar in the timeline. Which stream, and
 * when, is the runner's.
 */
#ifndef UCT_CUDA_RUN_SUBMIT_H
#define UCT_CUDA_RUN_SUBMIT_H

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/end.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/plan/steps.h>
#include <uct/cuda/run/device.h>

BEGIN_C_DECLS


/** What a step is in the timeline. */
typedef struct {
    uct_cuda_end_t from;       /**< Its row ... */
    uct_cuda_end_t to;         /**< ... is of this link */
    char           what[24];   /**< Its path or queue */
    char           places[96]; /**< From where to where */
} uct_cuda_submit_bar_t;


/** Whose steps they are, and what these need. */
typedef struct {
    uct_cuda_steps_t       list;

    /** Address of a place, for copies of the context that is current */
    CUdeviceptr            (*address)(const void *arg,
                                      const uct_cuda_place_t *place);
    /** Asked for steps that are traced */
    void                   (*bar)(const void *arg, const uct_cuda_step_t *step,
                                  uct_cuda_submit_bar_t *bar);
    const void             *arg;

    /** Of plans that reduce */
    uct_cuda_coll_device_t *device;
    ucx_mp_op_t            op;
    ucx_mp_type_t          type;

    /** Where in this buffer one registration ends and another begins: bytes,
     *  ascending, of memory that the buffer begins so many bytes into. The
     *  driver refuses a copy across. */
    uct_cuda_buffer_t      bounded;
    size_t                 offset;
    unsigned               num_boundaries;
    const size_t           *boundaries;
} uct_cuda_submit_t;


/** What is submitted to the stream next waits for an event. */
static inline ucs_status_t uct_cuda_submit_wait(CUstream stream, CUevent event)
{
    return UCT_CUDA_CALL(cuStreamWaitEvent, stream, event, 0);
}


/** The step alone, to a stream of the current context; UCS_OK, or the driver's
 *  error (logged). */
ucs_status_t uct_cuda_submit_step(const uct_cuda_submit_t *submit,
                                  const uct_cuda_step_t *step, CUstream stream);


/** An event happens when all before it in the stream has ended. */
static inline ucs_status_t
uct_cuda_submit_record(CUstream stream, CUevent event)
{
    return UCT_CUDA_CALL(cuEventRecord, event, stream);
}

/** ... a word of page-locked memory gets this value. */
static inline ucs_status_t
uct_cuda_submit_write(CUstream stream, uint32_t *word, uint32_t value)
{
    return UCT_CUDA_CALL(cuStreamWriteValue32, stream,
                         (CUdeviceptr)(uintptr_t)word, value, 0);
}


END_C_DECLS

#endif
