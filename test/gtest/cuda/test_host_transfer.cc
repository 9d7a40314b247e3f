/* SPDX-License-Identifier: BSD-3-Clause */
/* Which way host memory is copied, by size, direction and what is locked. */
#include "fake_driver.h"

extern "C" {
#include <uct/cuda/base/host/host_bounce.h>
#include <uct/cuda/base/host/host_pipeline.h>
#include <uct/cuda/transfer.h>
}

#include <gtest/gtest.h>

#include <climits>
#include <cstring>
#include <thread>
#include <vector>

static const size_t KiB = 1 << 10;
static const size_t MiB = 1 << 20;

static std::vector<char> host(8 << 20), gpu(8 << 20);
static bool is_locked; /* host memory, by the program */
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
    uct_cuda_transfer_t transfer;
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
                    for (unsigned i = 0; is_locked && (i < count); ++i) {
                        switch (names[i]) {
                        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
                            *(unsigned*)values[i] = CU_MEMORYTYPE_HOST;
                            break;
                        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
                            *(CUdeviceptr*)values[i] = (CUdeviceptr)host.data();
                            break;
                        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
                            *(size_t*)values[i] = host.size();
                            break;
                        default:
                            break;
                        }
                    }
                    return CUDA_SUCCESS;
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
        uct_cuda_mp_request_t request = {};
        uct_cuda_mp_memory_t memory   = {};
        uct_cuda_stream_t *stream;

        request.src_end = to_gpu ? uct_cuda_end_host() : uct_cuda_end_gpu(0);
        request.dst_end = to_gpu ? uct_cuda_end_gpu(0) : uct_cuda_end_host();
        request.size    = size;
        memory.src      = (CUdeviceptr)host.data();
        memory.dst      = (CUdeviceptr)host.data();
        if (is_peer) {
            request.remote = uct_cuda_end_gpu(0);
            memory.map     = [](void*, int, CUdeviceptr*) {
                return UCS_ERR_UNSUPPORTED;
            };
            memory.map_arg = to_gpu ? &memory.dst : &memory.src;
            memory.map_one = [](uct_cuda_mp_memory_t *self) {
                *(CUdeviceptr*)self->map_arg = (CUdeviceptr)gpu.data();
                return can_map ? UCS_OK : UCS_ERR_UNREACHABLE;
            };
        } else {
            (to_gpu ? memory.dst : memory.src) = (CUdeviceptr)gpu.data();
        }

        EXPECT_EQ(UCS_OK, uct_cuda_queue_stream(&queue, 0, &stream));
        EXPECT_EQ(UCS_OK, uct_cuda_op_get(stream, &op));
        driver.questions = 0;
        return uct_cuda_transfer_start(NULL, &request, &memory, &transfer, op);
    }

    /* All of a copy, every byte looked at */
    uct_cuda_way_t way(size_t size, bool to_gpu)
    {
        EXPECT_EQ(UCS_OK, start(size, to_gpu));
        op->arg  = &transfer;
        op->done = [](uct_cuda_op_t *self) {
            uct_cuda_transfer_end((uct_cuda_transfer_t*)self->arg);
        };
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
        return transfer.way;
    }
};

TEST_P(HostTransfer, little_of_a_peer_goes_by_a_slot)
{
    const uct_cuda_way_t small = is_peer ? UCT_CUDA_BY_SLOT :
                                                UCT_CUDA_BY_DRIVER;

    EXPECT_EQ(small, way(1, false));
    EXPECT_EQ(small, way(4 * KiB, false));
    EXPECT_EQ(is_peer, driver.questions == 0); /* is it locked? */
    EXPECT_EQ(small, way(4 * KiB + 1, false));
    EXPECT_LT(0u, driver.questions);
    EXPECT_EQ(small, way(64 * KiB, false));
    EXPECT_EQ(UCT_CUDA_BY_DRIVER, way(64 * KiB + 1, false));
    EXPECT_EQ(UCT_CUDA_BY_DRIVER, way(4 * KiB, true));
    EXPECT_EQ(UCT_CUDA_BY_DRIVER, way(64 * KiB, true));

    is_locked = true;
    EXPECT_EQ(small, way(4 * KiB, false)); /* without a look */
    EXPECT_EQ(UCT_CUDA_BY_DRIVER, way(4 * KiB + 1, false));
}

TEST_P(HostTransfer, what_is_not_locked_goes_by_threads)
{
    for (bool to_gpu : {false, true}) {
        EXPECT_EQ(UCT_CUDA_BY_DRIVER, way(4 * MiB - 1, to_gpu));
        EXPECT_EQ(UCT_CUDA_BY_THREADS, way(4 * MiB, to_gpu));
        is_locked = true;
        EXPECT_EQ(UCT_CUDA_BY_DRIVER, way(4 * MiB, to_gpu));
        is_locked = false;
    }

    uct_cuda_host_pipeline_enable(0);
    EXPECT_EQ(UCT_CUDA_BY_DRIVER, way(4 * MiB, true));
}

/* Nothing is kept of what could not be started: not a slot, not an operation */
TEST_P(HostTransfer, failures_hold_nothing)
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
        EXPECT_EQ(nullptr, op->release);
        uct_cuda_op_put(op);
    }

    can_map                        = true;
    driver.table.cuMemcpyDtoHAsync = [](void *dst, CUdeviceptr src,
                                        size_t length, CUstream) {
        return copy(dst, (const void*)src, length);
    };
    EXPECT_EQ(is_peer ? UCT_CUDA_BY_SLOT : UCT_CUDA_BY_DRIVER,
              way(8, false));
}

INSTANTIATE_TEST_SUITE_P(memory, HostTransfer, ::testing::Bool(),
                         [](const ::testing::TestParamInfo<bool> &info) {
                             return info.param ? "peer" : "own";
                         });
