/* SPDX-License-Identifier: BSD-3-Clause */
/* A driver table for tests: one context; events complete on request. */
#ifndef TEST_CUDA_FAKE_DRIVER_H
#define TEST_CUDA_FAKE_DRIVER_H

#include <uct/cuda/base/driver.h>

#include <atomic>
#include <map>
#include <set>
#include <string>
#include <vector>

/* Installs itself as long as it lives. Functions not expected by a test are
   NULL in the table. */
class FakeDriver
{
public:
    FakeDriver();
    ~FakeDriver();

    uct_cuda_driver_t table;

    CUcontext context           = reinterpret_cast<CUcontext>(0x1000);
    std::vector<CUevent> waited_for; /* events awaited by streams, in order */
    unsigned long long ctx_id;   /* new for each test: state kept by context is
                                    not shared between tests */
    std::set<CUevent> done;        /* completed events */
    std::set<CUevent> events;      /* existing events */
    std::set<CUstream> streams;    /* existing streams */
    std::map<CUdeviceptr, std::string> mapped; /* open handles */
    unsigned opens              = 0;
    unsigned records            = 0; /* calls of cuEventRecord */
    std::string fail;              /* next function to fail */
    CUresult fail_with          = CUDA_ERROR_UNKNOWN;
    CUhostFn host_func          = nullptr;
    void *host_arg              = nullptr;

    /* One allocation on a GPU; other memory is not GPU memory */
    CUdeviceptr gpu_base         = 0;
    size_t gpu_length            = 0;
    int gpu_device               = 0;
    unsigned long long buffer_id = 1;
    unsigned questions           = 0; /* queries about addresses */
    CUresult no_memory           = CUDA_SUCCESS; /* result for other addresses,
                                                    without values */

    /* Make the driver know the allocation. */
    void offer_gpu_memory(CUdeviceptr base, size_t length);
    void offer_gpu_range(); /* start and end of the allocation, by a call of its
                               own */

    /* Tell the range only while a context is pushed; offer a primary one. */
    void need_context();
    bool needs_context  = false;
    unsigned num_pushed = 0;

    /* Carry out copies of this process's memory immediately: between GPUs,
       single and in batches, and between a GPU and the host. */
    void offer_gpu_copies();
    void offer_host_copies();

    /* Fill in the attributes of page-locked memory. */
    static CUresult locked(unsigned count, const CUpointer_attribute *names,
                           void **values, const void *base, size_t length);
    std::atomic<unsigned> singles{0};
    unsigned batches = 0;

    /* Export handles of GPU memory: legacy ones, or descriptors instead. Peer
       access always fails. */
    void offer_handles();
    void offer_descriptors();

    /* Support the other calls of threads copying host memory. */
    void offer_host_threads();

    /* Replace the context by another one at the same address. */
    void renew_context();

    /* Suppress the log as long as the driver lives. */
    void expect_errors();

    /* Replace GPU memory by host memory made with cuMemCreate, without CPU
       access. Generic copies are carried out, other copies must not be
       called. */
    CUdeviceptr offer_host_vmm(size_t length);
    void *behind(CUdeviceptr address); /* its bytes, for the test */
    std::vector<uint8_t> host_vmm;
    bool is_pool        = true; /* memory without a context */
    int handles_held    = 0; /* handles retained by
                                cuMemRetainAllocationHandle */
    unsigned any_copies = 0; /* calls of cuMemcpyAsync */

    /* Return whether this call shall fail. */
    bool fails(const char *function);

private:
    bool is_log_ours = false;
};

extern FakeDriver *fake;

#endif
