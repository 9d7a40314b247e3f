/* SPDX-License-Identifier: BSD-3-Clause */
/* Synchronous copies of a process; small ones from GPUs go through page-locked
   memory. */
#include "fake_driver.h"

extern "C" {
#include <uct/cuda/base/host/host_bounce.h>
#include <uct/cuda/cuda_copy/cuda_copy_ep.h>
#include <uct/cuda/process_settings.h>
}

#include <gtest/gtest.h>

#include <climits>
#include <cstring>
#include <vector>

/* Largest size copied through a slot */
static const unsigned bounced = 16384;

static uint8_t gpu[2 * bounced], host[2 * bounced];

/* The stream's outstanding copy, and the last copy's destination */
static struct {
    void       *dst;
    const void *src;
    size_t     bytes;
} pending;
static const void *last_dst;
static unsigned failures; /* in calls of cuStreamSynchronize */
static CUresult refused;  /* result of cuMemcpyDtoHAsync */

static CUresult copy_later(void *dst, const void *src, size_t bytes)
{
    pending  = {dst, src, bytes};
    last_dst = dst;
    return CUDA_SUCCESS;
}

class CopyShort : public ::testing::Test
{
protected:
    FakeDriver            driver;
    uct_cuda_copy_iface_t iface = {};
    uct_ep_t              ep    = {(uct_iface_h)&iface};

    void SetUp() override
    {
        failures      = 0;
        refused       = CUDA_SUCCESS;
        last_dst      = nullptr;
        pending       = {};
        for (unsigned i = 0; i < sizeof(gpu); ++i) {
            gpu[i]  = uint8_t(i * 7 + i / 256);
            host[i] = 0;
        }

        driver.expect_errors();
        driver.offer_host_threads();
        driver.offer_gpu_memory((CUdeviceptr)gpu, sizeof(gpu));
        driver.table.cuMemcpyDtoHAsync = [](void *dst, CUdeviceptr src,
                                            size_t bytes, CUstream) {
            return (refused != CUDA_SUCCESS) ?
                           refused :
                           copy_later(dst, (const void*)src, bytes);
        };
        driver.table.cuMemcpyHtoDAsync = [](CUdeviceptr dst, const void *src,
                                            size_t bytes, CUstream) {
            return copy_later((void*)dst, src, bytes);
        };
        driver.table.cuMemcpy = [](CUdeviceptr dst, CUdeviceptr src,
                                   size_t bytes) {
            memcpy((void*)dst, (const void*)src, bytes);
            return CUDA_SUCCESS;
        };
        driver.table.cuStreamSynchronize = [](CUstream) {
            if (failures > 0) {
                --failures;
                return CUDA_ERROR_UNKNOWN;
            }
            if (pending.bytes > 0) {
                memcpy(pending.dst, pending.src, pending.bytes);
                pending.bytes = 0;
            }
            return CUDA_SUCCESS;
        };
        ASSERT_EQ(UCS_OK,
                  uct_cuda_queue_init(&iface.super.queue, 16, UINT_MAX));
    }

    void TearDown() override
    {
        failures = 0;
        uct_cuda_queue_cleanup(&iface.super.queue);
    }

    /* Check that the bytes arrived, and none behind them. */
    void get(unsigned length)
    {
        ASSERT_EQ(UCS_OK,
                  uct_cuda_copy_ep_get_short(&ep, host + 1, length,
                                             (uintptr_t)(gpu + 1), 0));
        EXPECT_EQ(0, memcmp(host + 1, gpu + 1, length));
        EXPECT_EQ(0, host[length + 1]);
    }

    /* Return the number of free slots. */
    static unsigned num_slots()
    {
        std::vector<void*> slots;
        void *slot;

        while ((slot = uct_cuda_host_bounce_get(1)) != nullptr) {
            slots.push_back(slot);
        }
        for (void *each : slots) {
            uct_cuda_host_bounce_put(each);
        }
        return unsigned(slots.size());
    }
};

TEST_F(CopyShort, small_copies_from_a_gpu_use_locked_memory)
{
    for (unsigned length : {1u, 8u, 4097u, bounced}) {
        memset(host, 0, sizeof(host));
        get(length);
        EXPECT_NE(host + 1, last_dst) << length;
        EXPECT_EQ(UCT_CUDA_HOST_BOUNCE_SLOTS, num_slots());
    }

    get(bounced + 1);
    EXPECT_EQ(host + 1, last_dst);
}

TEST_F(CopyShort, copies_to_a_gpu_are_plain)
{
    memset(host, 5, sizeof(host));
    EXPECT_EQ(UCS_OK,
              uct_cuda_copy_ep_put_short(&ep, host, 100, (uintptr_t)gpu, 0));
    EXPECT_EQ(gpu, last_dst);
    EXPECT_EQ(0, memcmp(host, gpu, 100));
    EXPECT_NE(5, gpu[100]);
}

TEST_F(CopyShort, without_a_free_slot_the_driver_copies)
{
    std::vector<void*> slots;
    void *slot;

    while ((slot = uct_cuda_host_bounce_get(1)) != nullptr) {
        slots.push_back(slot);
    }
    get(8);
    EXPECT_EQ(host + 1, last_dst);
    for (void *each : slots) {
        uct_cuda_host_bounce_put(each);
    }
}

TEST_F(CopyShort, failures_fall_back)
{
    refused = CUDA_ERROR_UNKNOWN;
    get(8);
    EXPECT_EQ(UCT_CUDA_HOST_BOUNCE_SLOTS, num_slots());

    refused  = CUDA_SUCCESS;
    failures = 1;
    get(64);
    EXPECT_EQ(UCT_CUDA_HOST_BOUNCE_SLOTS, num_slots());
}

/* No other copy may use a slot still writable by the stream */
TEST_F(CopyShort, a_slot_with_an_unknown_end_is_kept)
{
    static void *slot;

    slot                           = nullptr;
    driver.table.cuMemcpyDtoHAsync = [](void *dst, CUdeviceptr src,
                                        size_t bytes, CUstream) {
        slot = (slot == nullptr) ? dst : slot;
        return copy_later(dst, (const void*)src, bytes);
    };
    failures = 2;
    get(64);
    EXPECT_EQ(UCT_CUDA_HOST_BOUNCE_SLOTS - 1, num_slots());
    uct_cuda_host_bounce_put(slot);
}

/* The stream accepts a part of a copy. This part must have ended when the
   complete copy runs another way: afterwards the memory may be reused. */
TEST_F(CopyShort, a_partial_copy_has_ended_before_the_fallback)
{
    static const unsigned length = 3 * 4096;
    static unsigned accepted;
    uct_iov_t iov = {};

    driver.table.cuMemcpyHtoDAsync = [](CUdeviceptr dst, const void *src,
                                        size_t bytes, CUstream) {
        return (bytes == length)  ? CUDA_ERROR_INVALID_VALUE :
               (accepted++ == 0)  ? copy_later((void*)dst, src, bytes) :
                                    CUDA_ERROR_UNKNOWN;
    };
    driver.table.cuMemcpy = [](CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
        EXPECT_EQ(0u, pending.bytes) << "still under way";
        memcpy((void*)dst, (const void*)src, bytes);
        return CUDA_SUCCESS;
    };
    memset(host, 5, sizeof(host));
    iov.buffer = host;
    iov.length = length;
    iov.count  = 1;
    for (bool is_zcopy : {false, true}) {
        accepted = 0;
        memset(gpu, 0, sizeof(gpu));
        EXPECT_EQ(UCS_OK,
                  is_zcopy ? uct_cuda_copy_ep_put_zcopy(&ep, &iov, 1,
                                                        (uintptr_t)gpu, 0,
                                                        NULL) :
                             uct_cuda_copy_ep_put_short(&ep, host, length,
                                                        (uintptr_t)gpu, 0));
        EXPECT_EQ(3u, accepted) << "and once more in another stream";
        EXPECT_EQ(0, memcmp(host, gpu, length));
    }

    /* Without knowledge of its end, success must not be reported */
    accepted = 0;
    failures = 1;
    pending  = {};
    driver.table.cuMemcpy = [](CUdeviceptr, CUdeviceptr, size_t) {
        return CUDA_SUCCESS;
    };
    EXPECT_EQ(UCS_ERR_IO_ERROR,
              uct_cuda_copy_ep_put_short(&ep, host, length, (uintptr_t)gpu, 0));
}

static ucs_status_t short_get(uct_ep_h ep, const void *buffer, unsigned length,
                              uint64_t remote_addr, uct_rkey_t rkey)
{
    return uct_cuda_copy_ep_get_short(ep, (void*)buffer, length, remote_addr,
                                      rkey);
}

/* A copy of no bytes succeeds at once, with any addresses */
TEST_F(CopyShort, a_copy_of_no_bytes_succeeds_at_once)
{
    uct_iov_t iov = {NULL, 0, NULL, 0, 1};

    EXPECT_EQ(UCS_OK, uct_cuda_copy_ep_put_zcopy(&ep, &iov, 1, 16, 0, NULL));
    EXPECT_EQ(UCS_OK, uct_cuda_copy_ep_get_zcopy(&ep, &iov, 1, 16, 0, NULL));
    EXPECT_EQ(UCS_OK, uct_cuda_copy_ep_put_short(&ep, NULL, 0, 16, 0));
    EXPECT_EQ(UCS_OK, short_get(&ep, NULL, 0, 16, 0));
    EXPECT_EQ(0u, driver.questions);
}

/* cuMemCreate memory of a GPU without a context here, such as an imported
   peer's: another GPU copies it if it has access */
TEST_F(CopyShort, memory_of_a_gpu_without_context_is_copied_by_another_one)
{
    static const auto attributes = driver.table.cuPointerGetAttributes;

    driver.gpu_device = 1;
    driver.table.cuPointerGetAttributes =
            [](unsigned count, CUpointer_attribute *names, void **values,
               CUdeviceptr address) {
                const CUresult result = attributes(count, names, values,
                                                   address);

                for (unsigned i = 0; i < count; ++i) {
                    if (names[i] == CU_POINTER_ATTRIBUTE_CONTEXT) {
                        *(CUcontext*)values[i] = nullptr;
                    }
                }
                return result;
            };
    driver.table.cuCtxGetDevice = [](CUdevice *device) {
        *device = 0;
        return CUDA_SUCCESS;
    };
    driver.table.cuMemGetAccess = [](unsigned long long *flags,
                                     const CUmemLocation *location,
                                     CUdeviceptr) {
        *flags = (location->id == 0) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE :
                                       CU_MEM_ACCESS_FLAGS_PROT_NONE;
        return CUDA_SUCCESS;
    };

    get(100);
}

/* Host memory without CPU access: one generic copy of the driver each, never
   through the CPU or a slot, for every kind of memory at the other end */
TEST_F(CopyShort, host_memory_made_by_handle_is_the_drivers)
{
    const uct_cuda_settings_t settings = {true,     1, ULONG_MAX,
                                          SIZE_MAX, {}};
    static const size_t large = 4 << 20;
    const CUdeviceptr memory  = driver.offer_host_vmm(large);
    std::vector<uint8_t> other(large);
    uct_iov_t iov = {other.data(), 0, NULL, 0, 1};

    uct_cuda_settings_open(&settings);
    for (size_t length : {size_t(8), size_t(bounced + 1), large}) {
        for (bool is_zcopy : {false, true}) {
            for (bool is_put : {true, false}) {
                driver.any_copies = 0;
                memset(other.data(), is_put ? 3 : 0, large);
                memset(driver.host_vmm.data(), is_put ? 0 : 4, large);
                iov.length = length;
                ASSERT_EQ(is_zcopy ? UCS_INPROGRESS : UCS_OK,
                          !is_zcopy ?
                                  (is_put ? uct_cuda_copy_ep_put_short :
                                            short_get)(&ep, other.data(),
                                                       unsigned(length),
                                                       memory, 0) :
                                  (is_put ? uct_cuda_copy_ep_put_zcopy :
                                            uct_cuda_copy_ep_get_zcopy)(
                                          &ep, &iov, 1, memory, 0, NULL));
                EXPECT_EQ(1u, driver.any_copies);
                EXPECT_EQ(0, memcmp(driver.host_vmm.data(), other.data(),
                                    length));
                driver.done = driver.events;
                uct_cuda_queue_progress(&iface.super.queue);
            }
        }
    }

    /* The same between two places of it */
    EXPECT_EQ(UCS_OK,
              uct_cuda_copy_ep_put_short(&ep, (void*)memory, 64, memory + 4096,
                                         0));
    EXPECT_EQ(2u, driver.any_copies);
    uct_cuda_settings_close();
}
