/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From which sizes on host memory is copied in which way, in bytes, and what
 * each is measured by: H200, PCIe 5.0; docs/results/by-hand.md unless said.
 */
#ifndef UCT_CUDA_BASE_HOST_HOST_LIMITS_H
#define UCT_CUDA_BASE_HOST_HOST_LIMITS_H

#include <stdint.h>
#include <unistd.h>


/** Up to here what comes from a peer's GPU goes by a page-locked slot, whatever
 *  the memory is: memcpy() takes less than the 0.3 us of finding out whether
 *  that is locked (cuPointerGetAttributes of a pointer that the driver does not
 *  know). */
#define UCT_CUDA_HOST_UNSEEN_MAX_SIZE (4ul << 10)

/** Up to here a synchronous copy from a GPU goes by a slot: 8 B, 4, 16 KiB take
 *  7.8, 7.5, 8.2 us so and 8.8, 10.4, 10.7 as they are. A little more than
 *  UCP's largest eager fragment between processes. */
#define UCT_CUDA_HOST_SHORT_BOUNCE_MAX_SIZE (16ul << 10)

/** Up to here an asynchronous copy from a peer's GPU to pageable memory does,
 *  which the driver would make synchronous: messages of 64 KiB, window 1, 4.0
 *  GB/s instead of 2.1, of 4 KiB, window 16, 1.10 instead of 0.37 (1c7bdbc).
 *  Size of a slot. */
#define UCT_CUDA_HOST_BOUNCE_MAX_SIZE (64ul << 10)

/** From here on it is found out whether memory is locked that is copied within
 *  the process: 0.5 us or so. Smaller copies have less than that to gain. */
#define UCT_CUDA_HOST_OWN_MIN_SIZE (64ul << 10)

/** From here on threads that are awake copy pageable memory, and from there on
 *  those that have to be woken up: messages of 1 MiB by threads 12.5 and 7.1
 *  GB/s to and from a GPU, by the driver 11.9 and 8.3; of 4 MiB, new, 15.0 and
 *  18.1 instead of 8.1 and 13.4 in windows, and alone 9.5 and 7.4 instead of
 *  11.2 and 9.4. */
#define UCT_CUDA_HOST_AWAKE_MIN_SIZE   (1ul << 20)
#define UCT_CUDA_HOST_THREADS_MIN_SIZE (4ul << 20)

/** From here on locked memory that is copied within the process is offered to
 *  the engine. Less gains little, and in a row nothing: the processor has as
 *  many copies to submit as it has microseconds, 2.9 each. UCP's staging of
 *  messages to other nodes, in fragments of 512 KiB, is among that. What goes
 *  to and from peers' GPUs has the engine's own limit. */
#define UCT_CUDA_HOST_OWN_SPLIT_MIN_SIZE (2ul << 20)


/** Chunks that threads copy: 1 MiB is the fastest, if there are several a
 *  thread; else in steps, and no less than this. */
#define UCT_CUDA_HOST_MAX_CHUNK  (1ul << 20)
#define UCT_CUDA_HOST_MIN_CHUNK  (256ul << 10)
#define UCT_CUDA_HOST_CHUNK_STEP (64ul << 10)

/** Threads at most: 4, 6, 8, 12 of them copy 31, 45, 45, 45 GB/s to a GPU and
 *  32, 34, 40, 44 from one. */
#define UCT_CUDA_HOST_MAX_THREADS 8


/** Bytes; registrations consist of whole pages, of 64 KiB on some aarch64. */
static inline uintptr_t uct_cuda_host_page_size(void)
{
    return (uintptr_t)sysconf(_SC_PAGESIZE);
}


#endif
