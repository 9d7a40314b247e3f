/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copy in two legs through host memory. The near side is the local end's
 * context, with its own stream and host memory. The far side is the operation's
 * stream. The near stream always waits for the last use of the host memory, so
 * that the next copy can use this memory.
 */
#include <uct/cuda/copy/legs.h>

#include <uct/cuda/base/context_data.h>
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/host/host_block.h>
#include <uct/cuda/copy/choose_context.h>

#include <pthread.h>
#include <sys/mman.h>


/* A chunk takes some 80 us over PCIe 5 */
#define CHUNK ((size_t)4 << 20)
#define SLOTS 2u


/* Data of the near side's context */
typedef struct {
    CUstream              stream;      /* of a near side */
    CUevent               done[SLOTS]; /* the last leg that used the slot */
    uct_cuda_host_block_t block;       /* the slots of a near side */
} side_data_t;

typedef struct {
    CUcontext   cuda;
    CUstream    stream;
    side_data_t *data;
    CUdeviceptr memory;
} side_t;

/* A copy; [0] reads GPU memory, [1] writes it */
typedef struct {
    side_t       sides[2];
    const side_t *near;
    size_t       bytes;
} legs_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* order:
                                                            base/thread.h */


/* ---------------------------------------------------------- data of a side */

static void destroy_events(side_data_t *data, unsigned count)
{
    while (count > 0) {
        (void)uct_cuda_driver_get()->cuEventDestroy(data->done[--count]);
    }
}

static ucs_status_t side_data_create(void *arg)
{
    side_data_t *data = arg;
    ucs_status_t status;
    unsigned i;

    for (i = 0; i < SLOTS; ++i) {
        status = UCT_CUDA_CALL(cuEventCreate, &data->done[i],
                               CU_EVENT_DISABLE_TIMING);
        if (status != UCS_OK) {
            destroy_events(data, i);
            return status;
        }
    }

    status = uct_cuda_context_create_stream(&data->stream);
    if (status != UCS_OK) {
        destroy_events(data, SLOTS);
    }
    return status;
}

static void side_data_destroy(void *arg)
{
    side_data_t *data = arg;

    if (data->block.memory != NULL) {
        munmap(data->block.memory, SLOTS * CHUNK);
    }
}

static const uct_cuda_context_kind_t side_data_kind = {
    .size    = sizeof(side_data_t),
    .create  = side_data_create,
    .destroy = side_data_destroy
};


/* Fill in a side in the current context, which stays until
 * uct_cuda_context_put() */
static ucs_status_t
side_hold(side_t *side, CUdeviceptr memory, uct_cuda_context_t **context_p)
{
    ucs_status_t status;
    void *data;

    status = uct_cuda_context_hold_member(&side_data_kind, context_p, &data);
    if (status == UCS_OK) {
        side->cuda   = (*context_p)->cuda;
        side->data   = data;
        side->stream = side->data->stream;
        side->memory = memory;
    }
    return status;
}


/* -------------------------------------------------------------------- legs */

/* Let a side's stream wait for the other side's last use of a slot */
static ucs_status_t
wait_for(const side_t *side, const side_t *other, unsigned slot)
{
    return UCT_CUDA_CALL(cuStreamWaitEvent, side->stream,
                         other->data->done[slot], 0);
}

static ucs_status_t copy_leg(const legs_t *legs, unsigned leg, size_t offset)
{
    const size_t left  = legs->bytes - offset;
    const size_t bytes = (left < CHUNK) ? left : CHUNK;
    const side_t *side = &legs->sides[leg];
    char *host         = legs->near->data->block.memory +
                         ((offset / CHUNK) % SLOTS) * CHUNK;

    return (leg == 0) ? UCT_CUDA_CALL(cuMemcpyDtoHAsync, host,
                                      side->memory + offset, bytes,
                                      side->stream) :
                        UCT_CUDA_CALL(cuMemcpyHtoDAsync, side->memory + offset,
                                      host, bytes, side->stream);
}

/* Submit one leg of a chunk, with the side's context current */
static ucs_status_t submit_leg(const legs_t *legs, unsigned leg, size_t offset)
{
    const side_t *side  = &legs->sides[leg];
    const side_t *other = &legs->sides[!leg];
    const unsigned slot = (offset / CHUNK) % SLOTS;
    ucs_status_t status = UCS_OK;

    if ((leg == 1) || (offset >= SLOTS * CHUNK)) {
        status = wait_for(side, other, slot);
    }
    if (status == UCS_OK) {
        status = copy_leg(legs, leg, offset);
    }

    return (status == UCS_OK) ?
                   UCT_CUDA_CALL(cuEventRecord, side->data->done[slot],
                                 side->stream) :
                   status;
}

static ucs_status_t push_and_submit(const legs_t *legs, unsigned leg,
                                    size_t offset)
{
    const side_t *side = &legs->sides[leg];
    ucs_status_t status;
    CUcontext popped;

    status = UCT_CUDA_CALL(cuCtxPushCurrent, side->cuda);
    if (status == UCS_OK) {
        status = submit_leg(legs, leg, offset);
        (void)uct_cuda_driver_get()->cuCtxPopCurrent(&popped);
    }
    return status;
}

/* Let the far stream wait for the near stream: a copy to the near side begins
 * in the far stream, and the near stream may still use the slots. Call it in
 * the near context. */
static ucs_status_t begin(const legs_t *legs)
{
    const side_t *near = legs->near;
    ucs_status_t status;

    if (near == &legs->sides[0]) {
        return UCS_OK;
    }

    status = UCT_CUDA_CALL(cuEventRecord, near->data->done[0], near->stream);
    return (status == UCS_OK) ? wait_for(&legs->sides[0], near, 0) : status;
}

/* Let the first side's stream wait for the second side's: the operation ends
 * behind the copy, or the near stream stays behind the use of its slots */
static ucs_status_t end(const legs_t *legs)
{
    const unsigned last = ((legs->bytes - 1) / CHUNK) % SLOTS;

    return wait_for(&legs->sides[0], &legs->sides[1], last);
}

static ucs_status_t submit(const legs_t *legs)
{
    ucs_status_t status = begin(legs);
    size_t offset;

    for (offset = 0; (status == UCS_OK) && (offset < legs->bytes);
         offset += CHUNK) {
        status = push_and_submit(legs, 0, offset);
        if (status == UCS_OK) {
            status = push_and_submit(legs, 1, offset);
        }
    }

    if (status == UCS_OK) {
        status = end(legs);
    }
    if (status != UCS_OK) {
        (void)UCT_CUDA_CALL(cuStreamSynchronize, legs->sides[0].stream);
        (void)UCT_CUDA_CALL(cuStreamSynchronize, legs->sides[1].stream);
    }
    return status;
}

/* Submit with the near context current */
static ucs_status_t
submit_near(const uct_cuda_copy_t *copy, const side_t *far)
{
    uct_cuda_context_t *context;
    ucs_status_t status;
    legs_t legs;
    side_t *near = &legs.sides[!copy->is_put];

    status = side_hold(near, copy->local.address, &context);
    if (status != UCS_OK) {
        return status;
    }

    legs.near                = near;
    legs.bytes               = copy->bytes;
    legs.sides[copy->is_put] = *far;

    pthread_mutex_lock(&lock);
    /* if page-locking fails, pageable memory works, too, but slower */
    (void)uct_cuda_host_block_lock(&near->data->block, SLOTS * CHUNK);
    status = (near->data->block.memory == NULL) ? UCS_ERR_NO_MEMORY :
                                                  submit(&legs);
    pthread_mutex_unlock(&lock);
    uct_cuda_context_put(context);
    return status;
}


/* --------------------------------------------------------------- interface */

bool uct_cuda_copy_needs_legs(const uct_cuda_copy_t *copy, int device)
{
    return uct_cuda_end_is_gpu(copy->local.end) &&
           uct_cuda_end_is_gpu(copy->remote.end) &&
           !uct_cuda_copy_is_open_to(&copy->local, device);
}

ucs_status_t uct_cuda_copy_submit_legs(const uct_cuda_copy_t *copy,
                                       CUdeviceptr remote, CUstream stream)
{
    uct_cuda_ctx_scope_t near;
    uct_cuda_context_t *context;
    ucs_status_t status;
    side_t far;

    status = side_hold(&far, remote, &context);
    if (status != UCS_OK) {
        return status;
    }

    far.stream = stream;
    status     = uct_cuda_ctx_enter_for(
            uct_cuda_end_device(copy->local.end), copy->local.address, &near);
    if (status == UCS_OK) {
        status = submit_near(copy, &far);
        uct_cuda_ctx_leave(&near);
    }

    uct_cuda_context_put(context);
    return status;
}
