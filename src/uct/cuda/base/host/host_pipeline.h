/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies between a GPU and pageable host memory by threads of this process, in
 * chunks through page-locked memory.
 *
 * The driver moves such memory at the speed of one processor core, and blocks
 * the caller. Locking it takes longer than one copy saves. GB/s of 64 MiB never
 * copied before, measured on H200:
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


/** As many threads as processors available to the process (host_cpus.h),
 *  less one for the waiting thread, up to 8; none if there would be one. */
#define UCT_CUDA_HOST_PIPELINE_AUTO (~0u)


/** Access to host memory of another process. */
typedef struct {
    /** Copy between a slot and that memory; thread safe, logs errors. */
    ucs_status_t (*copy)(void *arg, void *slot, uint64_t address,
                         size_t length, bool to_slot);
    /** Called when the copy is released; may be NULL. */
    void         (*release)(void *arg);
    void         *arg; /**< Valid until release */
} uct_cuda_host_remote_t;


/** Running copy. */
typedef struct uct_cuda_host_job uct_cuda_host_job_t;


/**
 * Set the number of threads for a copy. They start with the first copy that may
 * use that many, sleep while idle, and stay with their slots until the process
 * ends: unlocking the slots would wait for the program's kernels.
 *
 * @param num_threads  0: none; copies are left to the caller from now on.
 */
void uct_cuda_host_pipeline_enable(unsigned num_threads);


/**
 * Start a copy, with a context current in which @a gpu is valid. Thread safe.
 *
 * @param gpu          GPU memory.
 * @param host         Host memory, valid until the copy is released.
 * @param length       Bytes.
 * @param to_gpu       Direction; false: from the GPU.
 * @return UCS_OK; UCS_ERR_UNSUPPORTED: no threads, or the copy is too small for
 *         them; UCS_ERR_NO_MEMORY, or the driver's error (logged): nothing is
 *         running.
 */
ucs_status_t uct_cuda_host_pipeline_start(CUdeviceptr gpu, void *host,
                                          size_t length, bool to_gpu,
                                          uct_cuda_host_job_t **job_p);


/**
 * Start a copy with host memory of another process. Threads are the only method
 * for it, for any size.
 *
 * @return As uct_cuda_host_pipeline_start(), but UCS_ERR_UNSUPPORTED only if
 *         threads cannot be started.
 */
ucs_status_t
uct_cuda_host_pipeline_start_remote(CUdeviceptr gpu, uint64_t address,
                                    size_t length, bool to_gpu,
                                    const uct_cuda_host_remote_t *remote,
                                    uct_cuda_host_job_t **job_p);


/** Return UCS_OK: every byte is there; UCS_INPROGRESS; or the driver's error
 *  (logged), or that of a remote copy. */
ucs_status_t uct_cuda_host_pipeline_test(const uct_cuda_host_job_t *job);


/**
 * Call @a func(@a arg) when the copy has ended, from one of the threads or at
 * once. The function must not call functions of this file.
 */
void uct_cuda_host_pipeline_notify(uct_cuda_host_job_t *job, CUhostFn func,
                                   void *arg);


/** Release a copy. Waits for it if it is running. */
void uct_cuda_host_pipeline_release(uct_cuda_host_job_t *job);


END_C_DECLS

#endif
