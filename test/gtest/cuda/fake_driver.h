/* SPDX-License-Identifier: BSD-3-Clause */
/* A driver table for tests: one context, events that end when told to. */
#ifndef TEST_CUDA_FAKE_DRIVER_H
#define TEST_CUDA_FAKE_DRIVER_H

#include <uct/cuda/base/driver.h>

#include <atomic>
#include <map>
#include <set>
#include <string>
#include <vector>

/* Installs itself for as long as it lives. What a test does not expect to be
 * called is NULL in the table. */
class FakeDriver
{
public:
    FakeDriver();
    ~FakeDriver();

    uct_cuda_driver_t table;

    CUcontext context           = reinterpret_cast<CUcontext>(0x1000);
    std::vector<CUevent> waited_for; /* by streams, in order */
    unsigned long long ctx_id;   /* new: what is kept by context is not another
                                  * test's */
    std::set<CUevent> done;        /* events that have happened */
    std::set<CUevent> events;      /* events that exist */
    std::set<CUstream> streams;    /* streams that exist */
    std::map<CUdeviceptr, std::string> mapped; /* open handles */
    unsigned opens              = 0;
    unsigned records            = 0; /* by cuEventRecord */
    std::string fail;              /* function that fails next */
    CUresult fail_with          = CUDA_ERROR_UNKNOWN;
    CUhostFn host_func          = nullptr;
    void *host_arg              = nullptr;

    /* An allocation on a GPU; nothing else is any GPU's memory */
    CUdeviceptr gpu_base         = 0;
    size_t gpu_length            = 0;
    int gpu_device               = 0;
    unsigned long long buffer_id = 1;
    unsigned questions           = 0; /* about addresses */
    CUresult no_memory           = CUDA_SUCCESS; /* the answer elsewhere, and
                                                    values stay as they are */

    /* Lets the driver know of it. */
    void offer_gpu_memory(CUdeviceptr base, size_t length);
    void offer_gpu_range(); /* where it starts and ends, by a call of its own */

    /* Copies of what is memory of this process, done at once: between GPUs, one
     * by one and in batches, and between a GPU and the host */
    void offer_gpu_copies();
    void offer_host_copies();
    std::atomic<unsigned> singles{0};
    unsigned batches = 0;

    /* Handles of GPU memory for other processes: legacy ones, and descriptors
     * instead. No GPU can be made a peer. */
    void offer_handles();
    void offer_descriptors();

    /* What threads that copy host memory ask for besides */
    void offer_host_threads();

    /* Another context takes the place of this one, at the same address. */
    void renew_context();

    /* Nothing is logged for as long as the driver lives. */
    void expect_errors();

    /* Instead: the host's, made with cuMemCreate, which the CPU has no access
     * to. Generic copies are carried out, others are not to be called. */
    CUdeviceptr offer_host_vmm(size_t length);
    void *behind(CUdeviceptr address); /* where its bytes are, for the test */
    std::vector<uint8_t> host_vmm;
    bool is_pool        = true; /* memory of no context */
    int handles_held    = 0; /* of cuMemRetainAllocationHandle */
    unsigned any_copies = 0; /* by cuMemcpyAsync */

    /* Does this call fail? */
    bool fails(const char *function);

private:
    bool is_log_ours = false;
};

extern FakeDriver *fake;

#endif
