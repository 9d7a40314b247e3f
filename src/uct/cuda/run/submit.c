/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies and reductions of steps. */
#include <uct/cuda/run/submit.h>

#include <uct/cuda/base/trace.h>


/* Return the bytes until the next boundary, at most `bytes` */
static size_t
until_boundary(const uct_cuda_run_submit_t *submit, size_t begin, size_t bytes)
{
    const size_t *boundaries = submit->boundaries;
    unsigned i               = 0;

    while ((i < submit->num_boundaries) && (boundaries[i] <= begin)) {
        ++i;
    }

    return ((i < submit->num_boundaries) && (boundaries[i] - begin < bytes)) ?
                   boundaries[i] - begin :
                   bytes;
}

/* Submit a copy in pieces that cross no boundary of a registration */
static ucs_status_t copy_bounded(const uct_cuda_run_submit_t *submit,
                                 const uct_cuda_plan_step_t *step,
                                 CUdeviceptr from, CUdeviceptr to,
                                 CUstream stream)
{
    const uct_cuda_plan_place_t *place =
        uct_cuda_plan_step_sources(&submit->list, step);
    size_t left                        = step->bytes;
    bool is_bounded;
    ucs_status_t status;
    size_t begin, bytes;

    if (place->buffer != submit->bounded) {
        place = uct_cuda_plan_step_destinations(&submit->list, step);
    }

    is_bounded = (place->buffer == submit->bounded);
    begin      = submit->offset + place->offset;
    do {
        bytes   = is_bounded ? until_boundary(submit, begin, left) : left;
        status  = UCT_CUDA_CALL(cuMemcpyAsync, to, from, bytes, stream);
        from   += bytes;
        to     += bytes;
        begin  += bytes;
        left   -= bytes;
    } while ((status == UCS_OK) && (left > 0));

    return status;
}

static ucs_status_t copy(const uct_cuda_run_submit_t *submit,
                         const uct_cuda_plan_step_t *step, CUstream stream)
{
    const CUdeviceptr from = submit->address(
            submit->arg, uct_cuda_plan_step_sources(&submit->list, step));
    const CUdeviceptr to   = submit->address(
            submit->arg, uct_cuda_plan_step_destinations(&submit->list, step));

    return (submit->num_boundaries > 0) ?
                   copy_bounded(submit, step, from, to, stream) :
                   UCT_CUDA_CALL(cuMemcpyAsync, to, from, step->bytes, stream);
}

static ucs_status_t reduce(const uct_cuda_run_submit_t *submit,
                           const uct_cuda_plan_step_t *step, CUstream stream)
{
    const uct_cuda_plan_place_t *sources =
        uct_cuda_plan_step_sources(&submit->list, step);
    const uct_cuda_plan_place_t *destinations =
            uct_cuda_plan_step_destinations(&submit->list, step);
    ucx_mp_reduce_args_t args;
    unsigned i;

    args.num_src = step->num_sources;
    args.num_dst = step->num_destinations;
    args.count   = step->bytes / ucx_mp_type_size(submit->type);
    for (i = 0; i < args.num_src; ++i) {
        args.src[i] = submit->address(submit->arg, &sources[i]);
    }
    for (i = 0; i < args.num_dst; ++i) {
        args.dst[i] = submit->address(submit->arg, &destinations[i]);
    }
    return uct_cuda_run_coll_device_reduce(submit->device, submit->op,
                                           submit->type, &args, stream);
}

static void
trace_end(const uct_cuda_run_submit_t *submit, const uct_cuda_plan_step_t *step,
          uct_cuda_trace_copy_t *traced, CUstream stream)
{
    uct_cuda_run_submit_bar_t bar;

    submit->bar(submit->arg, step, &bar);
    uct_cuda_trace_places(traced, bar.places);
    uct_cuda_trace_end(traced, stream, bar.from, bar.to, step->bytes, bar.what);
}

ucs_status_t uct_cuda_run_submit_step(const uct_cuda_run_submit_t *submit,
                                      const uct_cuda_plan_step_t *step,
                                      CUstream stream)
{
    uct_cuda_trace_copy_t *traced = uct_cuda_trace_begin(stream);
    ucs_status_t status;

    status = (step->type == UCT_CUDA_PLAN_STEP_COPY) ?
                     copy(submit, step, stream) :
                     reduce(submit, step, stream);
    if (traced != NULL) {
        trace_end(submit, step, traced, stream);
    }

    return status;
}
