/* SPDX-License-Identifier: BSD-3-Clause */
/* Contexts retained for a device, and their lifetime. */
#include "fake_driver.h"

extern "C" {
#include <uct/cuda/base/ctx.h>
}

#include <gtest/gtest.h>

#include <set>

#define PRIMARY reinterpret_cast<CUcontext>(0x100)
#define OWN     reinterpret_cast<CUcontext>(0x200)

static bool is_active;
static int retained, created;
static std::set<int> limits;

class Ctx : public ::testing::Test
{
protected:
    FakeDriver driver;
    CUcontext ctx = nullptr;
    int device;
    /* Our own context stays forever: use another device for each test */
    static int next_device;

    void SetUp() override
    {
        is_active = false;
        retained = created = 0;
        limits.clear();
        device = next_device++;

        driver.table.cuDevicePrimaryCtxGetState = [](CUdevice, unsigned*,
                                                     int *active) {
            *active = is_active;
            return fake->fails("cuDevicePrimaryCtxGetState") ?
                           fake->fail_with :
                           CUDA_SUCCESS;
        };
        driver.table.cuDevicePrimaryCtxRetain = [](CUcontext *ctx, CUdevice) {
            ++retained;
            *ctx = PRIMARY;
            return fake->fails("cuDevicePrimaryCtxRetain") ? fake->fail_with :
                                                             CUDA_SUCCESS;
        };
        driver.table.cuDevicePrimaryCtxRelease = [](CUdevice) {
            --retained;
            return CUDA_SUCCESS;
        };
        driver.table.cuCtxCreate_v2 = [](CUcontext *ctx, unsigned, CUdevice) {
            if (fake->fails("cuCtxCreate_v2")) {
                return fake->fail_with;
            }
            ++created;
            *ctx = OWN;
            return CUDA_SUCCESS;
        };
        driver.table.cuCtxSetLimit = [](CUlimit limit, size_t value) {
            EXPECT_EQ(0u, value);
            limits.insert(limit);
            return CUDA_ERROR_UNSUPPORTED_LIMIT; /* any limit is unsupported */
        };
    }

    CUcontext retain(bool is_copy_only)
    {
        EXPECT_EQ(UCS_OK, uct_cuda_ctx_retain(device, is_copy_only, &ctx));
        return ctx;
    }
};

int Ctx::next_device = 3;

TEST_F(Ctx, a_context_is_created_if_there_is_none)
{
    EXPECT_FALSE(uct_cuda_ctx_is_active(device));
    EXPECT_EQ(OWN, retain(true));
    EXPECT_EQ(0, retained);
    EXPECT_EQ(1u, limits.count(CU_LIMIT_STACK_SIZE));
    EXPECT_TRUE(uct_cuda_ctx_is_active(device));
    EXPECT_FALSE(uct_cuda_ctx_has_two(device));

    /* The next caller gets the same context; it outlives its users */
    EXPECT_EQ(OWN, retain(false));
    uct_cuda_ctx_release(device);
    uct_cuda_ctx_release(device);
    EXPECT_FALSE(uct_cuda_ctx_retain_kept(device, &ctx));
    EXPECT_EQ(OWN, retain(true));
    EXPECT_EQ(1, created);
    uct_cuda_ctx_release(device);
}

TEST_F(Ctx, the_primary_context_if_it_is_active)
{
    is_active = true;
    EXPECT_EQ(PRIMARY, retain(true));
    EXPECT_EQ(PRIMARY, retain(true));
    EXPECT_FALSE(uct_cuda_ctx_has_two(device));
    EXPECT_EQ(1, retained);
    uct_cuda_ctx_release(device);
    uct_cuda_ctx_release(device);
    EXPECT_EQ(0, retained);
    EXPECT_EQ(0, created);
}

TEST_F(Ctx, the_primary_context_for_the_programs_memory)
{
    EXPECT_EQ(PRIMARY, retain(false));
    EXPECT_EQ(0, created);
    uct_cuda_ctx_release(device);
    EXPECT_EQ(0, retained);
}

TEST_F(Ctx, the_primary_context_if_its_state_is_unknown)
{
    driver.fail = "cuDevicePrimaryCtxGetState";
    EXPECT_EQ(PRIMARY, retain(true));
    uct_cuda_ctx_release(device);
    EXPECT_EQ(0, retained);
    EXPECT_EQ(0, created);
}

TEST_F(Ctx, the_program_comes_later)
{
    EXPECT_EQ(OWN, retain(true));
    is_active = true;
    EXPECT_TRUE(uct_cuda_ctx_has_two(device));
    uct_cuda_ctx_release(device);
    EXPECT_FALSE(uct_cuda_ctx_has_two(device));
    EXPECT_EQ(PRIMARY, retain(true));
    uct_cuda_ctx_release(device);
    EXPECT_EQ(0, retained);
}

TEST_F(Ctx, peer_access_is_queried_once)
{
    static int asked, enabled, can_access;
    int peer = next_device++, stranger = next_device++;

    asked = enabled                    = 0;
    driver.table.cuDeviceCanAccessPeer = [](int *can, CUdevice, CUdevice) {
        ++asked;
        *can = can_access;
        return CUDA_SUCCESS;
    };
    driver.table.cuCtxEnablePeerAccess = [](CUcontext, unsigned) {
        ++enabled;
        return CUDA_SUCCESS;
    };
    is_active = true;
    retain(false);
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, uct_cuda_ctx_enable_peer(device, peer));
    for (int other : {peer, stranger}) {
        CUcontext kept;
        EXPECT_EQ(UCS_OK, uct_cuda_ctx_retain(other, false, &kept));
    }

    for (int i = 0; i < 3; ++i) {
        can_access = 1;
        EXPECT_EQ(UCS_OK, uct_cuda_ctx_enable_peer(device, peer));
        can_access = 0;
        EXPECT_EQ(UCS_ERR_UNREACHABLE,
                  uct_cuda_ctx_enable_peer(device, stranger));
    }
    EXPECT_EQ(2, asked);
    EXPECT_EQ(1, enabled);

    for (int other : {device, peer, stranger}) {
        uct_cuda_ctx_release(other);
    }
}

TEST_F(Ctx, no_context_if_creation_fails)
{
    driver.fail      = "cuCtxCreate_v2";
    driver.fail_with = CUDA_ERROR_OUT_OF_MEMORY;
    EXPECT_EQ(UCS_ERR_NO_MEMORY, uct_cuda_ctx_retain(device, true, &ctx));
    EXPECT_FALSE(uct_cuda_ctx_is_active(device));
    EXPECT_EQ(OWN, retain(true));
    uct_cuda_ctx_release(device);
}

/* Before CUDA 12 contexts have no ids: a context exists until its device
   reports it inactive */
TEST_F(Ctx, a_driver_that_does_not_number_contexts)
{
    driver.table.cuCtxGetId = NULL;
    is_active               = true;
    EXPECT_EQ(PRIMARY, retain(false));
    EXPECT_TRUE(uct_cuda_ctx_is_alive(PRIMARY, uct_cuda_ctx_id(PRIMARY)));
    EXPECT_TRUE(uct_cuda_ctx_is_active(device));
    EXPECT_EQ(PRIMARY, retain(true));
    EXPECT_EQ(1, retained);
    uct_cuda_ctx_release(device);
    uct_cuda_ctx_release(device);
    EXPECT_EQ(0, retained);
}

/* cudaDeviceReset(): the handle stays, the context is new. The driver's count
   for the old one must still be released, once */
TEST_F(Ctx, reset_by_the_program)
{
    CUcontext again;

    is_active = true;
    ASSERT_EQ(UCS_OK, uct_cuda_ctx_retain(device, true, &ctx));
    EXPECT_EQ(1, retained);
    EXPECT_TRUE(uct_cuda_ctx_is_active(device));

    is_active                = false;
    driver.table.cuCtxGetId = [](CUcontext, unsigned long long*) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    };
    EXPECT_FALSE(uct_cuda_ctx_is_active(device));
    EXPECT_FALSE(uct_cuda_ctx_retain_kept(device, &again));

    driver.table.cuCtxGetId = [](CUcontext, unsigned long long *id) {
        *id = 2;
        return CUDA_SUCCESS;
    };
    EXPECT_FALSE(uct_cuda_ctx_retain_kept(device, &again));
    ASSERT_EQ(UCS_OK, uct_cuda_ctx_retain(device, false, &again));
    EXPECT_EQ(PRIMARY, again);
    EXPECT_EQ(1, retained);
    ASSERT_TRUE(uct_cuda_ctx_retain_kept(device, &again));
    EXPECT_EQ(1, retained);

    uct_cuda_ctx_release(device); /* last user of the old one */
    uct_cuda_ctx_release(device);
    EXPECT_EQ(1, retained);
    uct_cuda_ctx_release(device);
    EXPECT_EQ(0, retained);
}
