/* SPDX-License-Identifier: BSD-3-Clause */
/* Built-in constants of the model with their sources, and their names. */
#include <uct/cuda/plan/model_constants.h>

#include <uct/cuda/base/number.h>


/* Measured on H200: 2.9 us a copy and 0.35 us an event operation; a chunk has
 * four of them. 3 us lost between chunks over a GPU, in paths of 16 to 64
 * chunks.
 *
 * Host path, from copies by hand beside a direct one of 90 to 93 % of 64 to 512
 * MiB, in 4, 6, 8, 9, 12 and 16 chunks (driver 580.159): the first hop takes
 * bytes / 55.4 GB/s + 7.2 us a chunk  (2.9 us if the GPU sends nothing else),
 * the last chunk's second copy ends 8 us later, and an empty path takes 20 us
 * from the first call to its end, 6 more than the latencies of its links.
 * doubt_host: 64 MiB gained 8 us by hand, 5 to 9 in puts, on two machines.
 *
 * start_relay, doubt_relay: relays with host memory at one end, one chunk
 * beside a direct copy, by hand on two machines: empty they take 22 us from a
 * GPU and 14 to 21 to one; the latencies of their links are 17. The same
 * messages differ by 8 us. 1 MiB from a GPU takes 24 to 32 us with a relay and
 * 26 to 28 without; under MPI to a GPU 2 and 11 % longer with one.
 *
 * message, path: beside H200 (MPI, UCX 1.22) 64 KiB, sent by one copy, take 6.7
 * us from a GPU and 13.6 us to one; 1 MiB over two paths 20 to 26 us, 4 MiB
 * over four 47 to 58 us.
 *
 * wait: chains of staged chunks against copies alone; poll: an event query
 * after completion; join: not visible in them.
 *
 * graphs: 4 x H200 (driver 580.159), copy nodes over four contexts in chains of
 * four; medians. graph: factor on these rows; ucx_mp_tune --calibrate derives
 * it from graphs of 4, 16 and 64 copies. */
const uct_cuda_plan_model_t uct_cuda_plan_model_builtin = {
    .submit_copy       = 2.9e-6,
    .submit_chunk      = 2 * 2.9e-6 + 4 * 0.35e-6,
    .gap_gpu           = 3e-6,
    .gap_host          = 7.2e-6,
    .start_host        = 6e-6,
    .doubt_host        = 5e-6,
    .start_relay       = 6e-6,
    .doubt_relay       = 5e-6,
    .gpu_efficiency    = 1,
    .host_efficiency   = 1,
    .socket_efficiency = 1,
    .wait              = 1.5e-6,
    .poll              = 1.5e-6,
    .join              = 0,
    .message           = 7e-6,
    .path              = 2e-6,
    .graph             = 1,
    .min_gain          = 1.02,
    .graphs            = {
        {1, 0.5e-6, 39e-6, 14e-6, 1.7e-6, 4.5e-6},
        {4, 2e-6, 34e-6, 13e-6, 5.6e-6, 3.2e-6},
        {16, 7e-6, 43e-6, 22e-6, 19e-6, 8.2e-6},
        {64, 19e-6, 172e-6, 75e-6, 76e-6, 32e-6}
    }
};


#define CONSTANT(_name, _min, _max) \
    {#_name, offsetof(uct_cuda_plan_model_t, _name), _min, _max}

const uct_cuda_plan_model_constant_t uct_cuda_plan_model_constants[] = {
    CONSTANT(submit_copy, 0, 1e-3),
    CONSTANT(submit_chunk, 0, 1e-3),
    CONSTANT(gap_gpu, 0, 1e-3),
    CONSTANT(gap_host, 0, 1e-3),
    CONSTANT(start_host, -1e-3, 1e-3),
    CONSTANT(doubt_host, -1e-9, 1e-3),
    CONSTANT(start_relay, -1e-3, 1e-3),
    CONSTANT(doubt_relay, -1e-9, 1e-3),
    CONSTANT(gpu_efficiency, 0, 2),
    CONSTANT(host_efficiency, 0, 2),
    CONSTANT(socket_efficiency, 0, 4),
    CONSTANT(wait, -1e-9, 1e-3),
    CONSTANT(poll, -1e-9, 1e-3),
    CONSTANT(join, -1e-9, 1e-3),
    CONSTANT(message, -1e-9, 1e-3),
    CONSTANT(path, -1e-9, 1e-3),
    CONSTANT(graph, 0, 100),
    CONSTANT(min_gain, 0.99, 10),
    {NULL, 0, 0, 0}
};


bool uct_cuda_plan_model_set(uct_cuda_plan_model_t *model, unsigned index,
                             const char *text)
{
    const uct_cuda_plan_model_constant_t *constant =
            &uct_cuda_plan_model_constants[index];
    char *end;
    double value;

    value = uct_cuda_strtod(text, &end);
    if ((end == text) || (*end != '\0') || !(value > constant->min) ||
        !(value <= constant->max)) {
        return false;
    }

    *(double*)((char*)model + constant->offset) = value;
    return true;
}
