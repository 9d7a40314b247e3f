/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods of copying host memory, by size, direction and page-locking. */
#include "fake_driver.h"

extern "C" {
#include <uct/cuda/base/host/host_bounce.h>
#include <uct/cuda/base/host/host_pipeline.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/copy/method.h>
#include <uct/cuda/node/process.h>
}

#include <gtest/gtest.h>

#include <climits>
#include <cstring>
#include <thread>
#include <vector>

static const size_t KiB = 1 << 10;
static const size_t MiB = 1 << 20;

static std::vector<char> host(8 << 20), gpu(8 << 20);
static bool is_locked; /* the program has page-locked the host memory */
static bool can_map;   /* the peer's memory */

static CUresult copy(void *dst, const void *src, size_t length)
{
    memcpy(dst, src, length);
    return CUDA_SUCCESS;
}

class HostTransfer : public ::testing::TestWithParam<bool>
{
protected:
    FakeDriver driver;
    uct_cuda_queue_t queue;
    uct_cuda_op_t *op;
    uct_cuda_node_rkey_t rkey = {}; /* key of the GPU memory, as a peer would
                                       have it */
    bool is_peer = GetParam();

    void SetUp() override
    {
        is_locked     = false;
        can_map       = true;
        for (size_t i = 0; i < host.size(); ++i) {
            host[i] = char(i * 2654435761u >> 13);
            gpu[i]  = char(i * 2246822519u >> 11);
        }

        driver.table.cuPointerGetAttributes =
                [](unsigned count, CUpointer_attribute *names, void **values,
                   CUdeviceptr) {
                    ++fake->questions;
                    return fake->locked(is_locked ? count : 0, names, values,
                                        host.data(), host.size());
                };
        driver.table.cuEventQuery       = [](CUevent) { return CUDA_SUCCESS; };
        driver.table.cuStreamDestroy    = [](CUstream) { return CUDA_SUCCESS; };
        driver.offer_host_copies();
        driver.offer_host_threads();
        uct_cuda_host_pipeline_enable(3);
        ASSERT_EQ(UCS_OK, uct_cuda_queue_init(&queue, 16, UINT_MAX));
    }

    void TearDown() override
    {
        uct_cuda_queue_cleanup(&queue);
        uct_cuda_host_pipeline_enable(UCT_CUDA_HOST_PIPELINE_AUTO);
    }

    ucs_status_t start(size_t size, bool to_gpu)
    {
        uct_cuda_copy_t copy = {};
        uct_cuda_node_iface_addr_t self;
        uct_cuda_stream_t *stream;

        uct_cuda_node_iface_addr_self(&self);
        rkey.gpu              = uct_cuda_end_gpu(0);
        rkey.handle.type      = can_map ? UCT_CUDA_NODE_HANDLE_LEGACY :
                                          UCT_CUDA_NODE_HANDLE_NONE;
        rkey.handle.pid       = can_map ? self.pid : self.pid + 1;
        rkey.handle.pid_ns    = self.pid_ns;
        rkey.handle.base      = (uintptr_t)gpu.data();
        rkey.handle.length    = gpu.size();
        rkey.handle.buffer_id = 7;
        uct_cuda_copy_init(&copy, host.data(), is_peer ? &rkey : nullptr,
                           (uintptr_t)gpu.data(), size, to_gpu, nullptr);
        copy.local.end  = uct_cuda_end_host();
        copy.remote.end = uct_cuda_end_gpu(0);

        EXPECT_EQ(UCS_OK, uct_cuda_queue_stream(&queue, 0, &stream));
        EXPECT_EQ(UCS_OK, uct_cuda_op_get(stream, &op));
        driver.questions = 0;
        return uct_cuda_copy_start(op, &copy, NULL, 0, true);
    }

    /* Run a complete copy, check every byte, and return its method. */
    std::string way(size_t size, bool to_gpu)
    {
        EXPECT_EQ(UCS_OK, start(size, to_gpu));
        const std::string name = op->method->name;
        EXPECT_EQ(UCS_INPROGRESS, uct_cuda_op_post(&queue, op));
        while (!uct_cuda_queue_is_idle(&queue)) {
            uct_cuda_queue_progress(&queue);
            std::this_thread::yield();
        }
        EXPECT_EQ(0, memcmp(host.data(), gpu.data(), size));
        EXPECT_TRUE((size == host.size()) ||
                    (memcmp(&host[size], &gpu[size], 16) != 0));
        std::vector<char> &dst = to_gpu ? gpu : host;
        for (size_t i = 0; i < size; ++i) {
            dst[i] = char(~dst[i]);
        }
        return name;
    }
};

TEST_P(HostTransfer, a_failed_copy_is_logged_with_its_bytes_and_ends)
{
    static std::string line;

    is_locked = true;
    ASSERT_EQ(UCS_OK, start(MiB, true));
    uct_cuda_log_set([](uct_cuda_log_level_t, const char*, unsigned,
                        const char*, const char *message) { line = message; },
                     UCT_CUDA_LOG_WARN);
    uct_cuda_op_log_failure(op, CUDA_ERROR_ILLEGAL_ADDRESS);
    uct_cuda_log_set(nullptr, UCT_CUDA_LOG_WARN);
    EXPECT_EQ(0u, line.find("copy failed (1048576 bytes from host to gpu0, by "
                            "the driver): ")) << line;
    ASSERT_EQ(UCS_INPROGRESS, uct_cuda_op_post(&queue, op));
}

TEST_P(HostTransfer, small_copies_of_a_peer_use_a_slot)
{
    const char *small = is_peer ? "a slot" : "the driver";

    EXPECT_EQ(small, way(1, false));
    EXPECT_EQ(small, way(4 * KiB, false));
    EXPECT_EQ(is_peer, driver.questions == 0); /* queries whether it is
                                                  locked */
    EXPECT_EQ(small, way(4 * KiB + 1, false));
    EXPECT_LT(0u, driver.questions);
    EXPECT_EQ(small, way(64 * KiB, false));
    EXPECT_EQ("the driver", way(64 * KiB + 1, false));
    EXPECT_EQ("the driver", way(4 * KiB, true));
    EXPECT_EQ("the driver", way(64 * KiB, true));

    is_locked = true;
    EXPECT_EQ(small, way(4 * KiB, false)); /* without a query */
    EXPECT_EQ("the driver", way(4 * KiB + 1, false));
}

TEST_P(HostTransfer, unlocked_memory_is_copied_by_threads)
{
    for (bool to_gpu : {false, true}) {
        EXPECT_EQ("the driver", way(4 * MiB - 1, to_gpu));
        EXPECT_EQ("threads", way(4 * MiB, to_gpu));
        is_locked = true;
        EXPECT_EQ("the driver", way(4 * MiB, to_gpu));
        is_locked = false;
    }

    uct_cuda_host_pipeline_enable(0);
    EXPECT_EQ("the driver", way(4 * MiB, true));
}

/* A failed start keeps neither a slot nor an operation */
TEST_P(HostTransfer, failures_release_everything)
{
    can_map = false;
    driver.table.cuMemcpyDtoHAsync = [](void*, CUdeviceptr, size_t, CUstream) {
        return CUDA_ERROR_UNKNOWN;
    };
    for (unsigned i = 0; i < 2 * UCT_CUDA_HOST_BOUNCE_SLOTS; ++i) {
        can_map = !can_map;
        EXPECT_EQ((is_peer && !can_map) ? UCS_ERR_UNREACHABLE :
                                          UCS_ERR_IO_ERROR,
                  start(8, false));
        EXPECT_EQ(nullptr, op->method->end);
        uct_cuda_op_put(op);
    }

    can_map                        = true;
    driver.table.cuMemcpyDtoHAsync = [](void *dst, CUdeviceptr src,
                                        size_t length, CUstream) {
        return copy(dst, (const void*)src, length);
    };
    EXPECT_EQ(is_peer ? "a slot" : "the driver",
              way(8, false));
}

INSTANTIATE_TEST_SUITE_P(memory, HostTransfer, ::testing::Bool(),
                         [](const ::testing::TestParamInfo<bool> &info) {
                             return info.param ? "peer" : "own";
                         });
