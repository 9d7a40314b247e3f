/* SPDX-License-Identifier: BSD-3-Clause */
/* Put and get of cuda_cma: keys, valid peers, completions. */
#include "fake_driver.h"

extern "C" {
#include <uct/cuda/cuda_cma/cuda_cma_ep.h>
#include <uct/cuda/cuda_cma/cuda_cma_md.h>
}

#include <gtest/gtest.h>

#include <climits>
#include <cstring>
#include <vector>

static uint8_t gpu[8192];

class CmaEp : public ::testing::Test
{
protected:
    FakeDriver           driver;
    uct_cuda_cma_iface_t iface = {};
    uct_cuda_cma_ep_t    ep    = {}; /* to another worker of this process */
    uct_iov_t            iov   = {};
    std::vector<uint8_t> host  = std::vector<uint8_t>(4096, 'h');
    uct_rkey_t           rkey  = 0;
    void                 *handle;
    uct_abi_md_t         *md;

    struct Reported : uct_completion_t {
        unsigned count_reported = 0;
    };

    void SetUp() override
    {
        const int on[]        = {UCT_ABI_ON, 0};
        const auto *component = &uct_cuda_cma_component;
        char packed[64];
        uct_mem_h memh;

        driver.expect_errors();
        memset(gpu, 'g', sizeof(gpu));
        driver.offer_gpu_memory((CUdeviceptr)gpu, sizeof(gpu));
        driver.table.cuPointerGetAttribute = [](void *, CUpointer_attribute,
                                                CUdeviceptr) {
            return CUDA_ERROR_INVALID_VALUE;
        };
        driver.offer_host_copies();
        driver.no_memory     = CUDA_ERROR_INVALID_VALUE;
        iov.buffer           = gpu;
        iov.length           = host.size();
        iov.count            = 1;
        ep.super.super.iface = (uct_iface_h)&iface;
        ASSERT_EQ(UCS_OK,
                  uct_cuda_queue_init(&iface.super.queue, 16, UINT_MAX));

        ASSERT_EQ(UCS_OK, component->md_open(component, "cuda_cma", on, &md));
        ASSERT_EQ(UCS_OK, md->ops->mem_reg(md, host.data(), host.size(), 0,
                                           &memh));
        ASSERT_EQ(UCS_OK, md->ops->mkey_pack(md, memh, host.data(),
                                             host.size(), packed));
        ASSERT_EQ(UCS_OK, component->rkey_unpack(component, packed, 0, &rkey,
                                                 &handle));
        md->ops->mem_dereg(md, memh, NULL);
    }

    void TearDown() override
    {
        uct_cuda_cma_component.rkey_release(&uct_cuda_cma_component, rkey,
                                            handle);
        md->ops->close(md);
        driver.done = driver.events;
        uct_cuda_queue_cleanup(&iface.super.queue);
    }

    ucs_status_t put(uint64_t remote, uct_rkey_t key, uct_completion_t *comp)
    {
        return uct_cuda_cma_ep_put_zcopy(&ep.super.super, &iov, 1, remote, key,
                                         comp);
    }

    ucs_status_t get(uint64_t remote, uct_rkey_t key, uct_completion_t *comp)
    {
        return uct_cuda_cma_ep_get_zcopy(&ep.super.super, &iov, 1, remote, key,
                                         comp);
    }

    /* A transfer ends with its completion, not earlier */
    void expect_reported(bool is_put)
    {
        Reported reported;

        reported.func   = [](uct_completion_t *self) {
            ++((Reported*)self)->count_reported;
        };
        reported.count  = 1;
        reported.status = UCS_OK;
        ASSERT_EQ(UCS_INPROGRESS,
                  is_put ? put((uintptr_t)host.data(), rkey, &reported) :
                           get((uintptr_t)host.data(), rkey, &reported));
        uct_cuda_queue_progress(&iface.super.queue);
        EXPECT_EQ(0u, reported.count_reported);
        driver.done = driver.events;
        uct_cuda_queue_progress(&iface.super.queue);
        EXPECT_EQ(1u, reported.count_reported);
        EXPECT_EQ(UCS_OK, reported.status);
    }
};

TEST_F(CmaEp, memory_of_another_worker_of_this_process)
{
    expect_reported(true);
    EXPECT_EQ(std::vector<uint8_t>(4096, 'g'), host);
    host.assign(4096, 'n');
    expect_reported(false);
    EXPECT_EQ(0, memcmp(gpu, host.data(), host.size()));
    EXPECT_EQ('g', gpu[4096]);
}

/* GPUs access it like their own memory */
TEST_F(CmaEp, host_memory_made_by_handle_is_a_gpus)
{
    iov.buffer = (void*)driver.offer_host_vmm(8192);
    driver.host_vmm.assign(8192, 'v');
    driver.offer_host_copies();
    expect_reported(true);
    EXPECT_EQ(std::vector<uint8_t>(4096, 'v'), host);
    host.assign(4096, 'n');
    expect_reported(false);
    EXPECT_EQ(0, memcmp(driver.host_vmm.data(), host.data(), host.size()));
    EXPECT_EQ('v', driver.host_vmm[4096]);
}

TEST_F(CmaEp, nothing_outside_a_key_is_touched)
{
    const uint64_t base               = (uintptr_t)host.data();
    const std::vector<uint64_t> noise = std::vector<uint64_t>(
            64, 0x5a5a5a5a5a5a5a5a);

    for (uct_rkey_t key : {(uct_rkey_t)UCT_INVALID_RKEY, (uct_rkey_t)0,
                           (uct_rkey_t)noise.data()}) {
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, put(base, key, NULL));
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, get(base, key, NULL));
    }
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, put(base - 1, rkey, NULL));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, get(base + 1, rkey, NULL));
    iov.length = 4097;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, put(base, rkey, NULL));
    iov.length = 0;
    EXPECT_EQ(UCS_OK, put(base - 1, rkey, NULL));
    iov.length = 16;
    iov.buffer = &iov;
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, put(base, rkey, NULL)) << "host to host";
    EXPECT_EQ(std::vector<uint8_t>(4096, 'h'), host);
    EXPECT_EQ('g', gpu[0]);
}

TEST_F(CmaEp, a_missing_process_is_unreachable)
{
    uct_abi_ep_params_t params = {};
    uct_cuda_cma_addr_t addr;
    uct_ep_h made = nullptr;

    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              uct_cuda_cma_ep_create(&iface.super.super, &params, &made));
    uct_cuda_cma_addr_self(1, &addr);
    addr.process.pid  = 4194000;
    params.iface_addr = (uct_iface_addr_t*)&addr;
    EXPECT_EQ(UCS_ERR_UNREACHABLE,
              uct_cuda_cma_ep_create(&iface.super.super, &params, &made));
    EXPECT_EQ(nullptr, made);
}
