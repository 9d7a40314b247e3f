/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sizes, in bytes, at which host memory is copied in different ways, with their
 * measurements: H200, PCIe 5.0; docs/results/by-hand.md unless stated
 * otherwise.
 */
#ifndef UCT_CUDA_BASE_HOST_HOST_LIMITS_H
#define UCT_CUDA_BASE_HOST_HOST_LIMITS_H


/** Up to this size data from a peer's GPU goes through a page-locked slot,
 *  whatever the memory: memcpy() takes less than the 0.3 us to find out
 *  whether it is locked (cuPointerGetAttributes of a pointer unknown to the
 *  driver). */
#define UCT_CUDA_HOST_UNSEEN_MAX_SIZE (4ul << 10)

/** Up to this size a synchronous copy from a GPU goes through a slot: 8 B,
 *  4, 16 KiB take 7.8, 7.5, 8.2 us with a slot and 8.8, 10.4, 10.7 without.
 *  Slightly above UCP's largest eager fragment between processes. */
#define UCT_CUDA_HOST_SHORT_BOUNCE_MAX_SIZE (16ul << 10)

/** Up to this size an asynchronous copy from a peer's GPU to pageable memory
 *  goes through a slot; the driver would copy synchronously: messages of 64
 *  KiB, window 1, 4.0 GB/s instead of 2.1, of 4 KiB, window 16, 1.10 instead
 *  of 0.37 (1c7bdbc). Size of a slot. */
#define UCT_CUDA_HOST_BOUNCE_MAX_SIZE (64ul << 10)

/** From this size on copies within the process check whether memory is
 *  locked, which takes about 0.5 us. Smaller copies gain less. */
#define UCT_CUDA_HOST_OWN_MIN_SIZE (64ul << 10)

/** From these sizes on threads copy pageable memory, if they are awake or
 *  must be woken: messages of 1 MiB by threads 12.5 and 7.1 GB/s to and from
 *  a GPU, by the driver 11.9 and 8.3; of 4 MiB, new memory, 15.0 and 18.1
 *  instead of 8.1 and 13.4 in windows, and single ones 9.5 and 7.4 instead
 *  of 11.2 and 9.4. */
#define UCT_CUDA_HOST_AWAKE_MIN_SIZE   (1ul << 20)
#define UCT_CUDA_HOST_THREADS_MIN_SIZE (4ul << 20)

/** From this size on copies of locked memory within the process are offered
 *  to the engine. Smaller ones gain little, and in a row nothing: each costs
 *  the processor 2.9 us to submit. These include UCP's staging of messages
 *  to other nodes, in fragments of 512 KiB. Copies to and from peers' GPUs
 *  have the engine's own limit. */
#define UCT_CUDA_HOST_OWN_SPLIT_MIN_SIZE (2ul << 20)


/** Chunks copied by threads: 1 MiB is the fastest, if there are several for
 *  each thread; otherwise smaller in steps, down to a minimum. */
#define UCT_CUDA_HOST_MAX_CHUNK  (1ul << 20)
#define UCT_CUDA_HOST_MIN_CHUNK  (256ul << 10)
#define UCT_CUDA_HOST_CHUNK_STEP (64ul << 10)

/** Maximum threads: 4, 6, 8, 12 of them copy 31, 45, 45, 45 GB/s to a GPU
 *  and 32, 34, 40, 44 from one. */
#define UCT_CUDA_HOST_MAX_THREADS 8


#endif
