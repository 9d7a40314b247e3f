/* SPDX-License-Identifier: BSD-3-Clause */
/* A driver table for tests: one context, events that end when told to. */
#ifndef TEST_CUDA_FAKE_DRIVER_H
#define TEST_CUDA_FAKE_DRIVER_H

#include <uct/cuda/base/driver.h>

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
    unsigned long long ctx_id   = 1;
    std::set<CUevent> done;        /* events that have happened */
    std::set<CUevent> events;      /* events that exist */
    std::set<CUstream> streams;    /* streams that exist */
    std::map<CUdeviceptr, std::string> mapped; /* open handles */
    unsigned opens              = 0;
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
};

extern FakeDriver *fake;

#endif
