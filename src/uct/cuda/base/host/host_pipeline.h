/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies between a GPU and pageable host memory by threads of this process, in
 * chunks and through page-locked memory.
 *
 * The driver moves such memory at the speed of one processor core, and the
 * caller waits. Locking it takes longer than one copy saves. GB/s of 64 MiB
 * that were never copied before, measured on H200:
 *
 *                  driver   1 thread   2 threads   3     4
 * host to GPU        10.8       11.5          17  24.6  26
 * GPU to host        17.8       18.2          25  30.6  29
 */
#ifndef UCT_CUDA_BASE_HOST_HOST_PIPELINE_H
#define UCT_CUDA_BASE_HOST_HOST_PIPELINE_H

#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

BEGIN_C_DECLS


/** As many threads as the process may have processors (host_cpus.h), less one
 *  for the thread that waits, up to 8; none where there would be one. */
#define UCT_CUDA_HOST_PIPELINE_AUTO (~0u)


/** Host memory of another process: how threads get at it. */
typedef struct {
    /** Copy between a slot and that memory; any thread, logs errors. */
    ucs_status_t (*copy)(void *arg, void *slot, uint64_t address,
                         size_t length, bool to_slot);
    /** Called once the copy is released; may be NULL. */
    void         (*release)(void *arg);
    void         *arg; /**< Has to stay until then */
} uct_cuda_host_remote_t;


/** A copy under way. */
typedef struct uct_cuda_host_job uct_cuda_host_job_t;


/**
 * Set the number of threads that a copy may have. They start with the first one
 * that may have so many, sleep while there is nothing to copy, and stay to the
 * end of the process, as their slots do: unlocking those would wait for the
 * program's kernels.
 *
 * @param num_threads  0: none, all copies are the caller's from now on.
 */
void uct_cuda_host_pipeline_enable(unsigned num_threads);


/**
 * Start a copy, with a context current in which @a gpu is valid. Any thread.
 *
 * @param gpu          GPU memory.
 * @param host         Host memory, which has to stay until the copy is
 *                     released.
 * @param length       Bytes.
 * @param to_gpu       Else from it.
 *
 * @return UCS_OK; UCS_ERR_UNSUPPORTED: there are no threads, or the copy is too
 *         small for them; UCS_ERR_NO_MEMORY, or the driver's error (logged):
 *         nothing is under way.
 */
ucs_status_t uct_cuda_host_pipeline_start(CUdeviceptr gpu, void *host,
                                          size_t length, bool to_gpu,
                                          uct_cuda_host_job_t **job_p);


/**
 * The same with host memory of another process. There is no other way for that:
 * a copy of any size has a thread.
 *
 * @return Not UCS_ERR_UNSUPPORTED unless there can be no threads.
 */
ucs_status_t
uct_cuda_host_pipeline_start_remote(CUdeviceptr gpu, uint64_t address,
                                    size_t length, bool to_gpu,
                                    const uct_cuda_host_remote_t *remote,
                                    uct_cuda_host_job_t **job_p);


/** @return UCS_OK: every byte is there; UCS_INPROGRESS; or the driver's error
 *          (logged), or that of a remote copy. */
ucs_status_t uct_cuda_host_pipeline_test(const uct_cuda_host_job_t *job);


/** Have @a func(@a arg) called when the copy has ended, from one of the threads
 *  or at once. No function of this file may be called from there. */
void uct_cuda_host_pipeline_notify(uct_cuda_host_job_t *job, CUhostFn func,
                                   void *arg);


/** Give a copy back. One that still runs is waited for. */
void uct_cuda_host_pipeline_release(uct_cuda_host_job_t *job);


END_C_DECLS

#endif
