/* SPDX-License-Identifier: BSD-3-Clause */
/* Unused mappings are closed when closing does not block, or when it must
   be. */
#include "fake_driver.h"

extern "C" {
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/node/unmap.h>
}

#include <gtest/gtest.h>

#include <cstring>
#include <unistd.h>

static const size_t MiB = (size_t)1 << 20;

class IpcUnmap : public ::testing::Test
{
public:
    FakeDriver driver;
    CUdeviceptr next = 0x10000;

    /* Let the work of the legacy stream, and of the context, end at once. */
    void idle()
    {
        usleep(2000); /* an earlier "busy" is valid for one */
        driver.table.cuEventRecord = [](CUevent event, CUstream) {
            fake->done.insert(event);
            return CUDA_SUCCESS;
        };
        driver.table.cuCtxRecordEvent = [](CUcontext, CUevent event) {
            fake->done.insert(event);
            return CUDA_SUCCESS;
        };
    }

    void busy()
    {
        driver.table.cuEventRecord = [](CUevent event, CUstream) {
            fake->done.erase(event);
            return CUDA_SUCCESS;
        };
    }

    /* Make the legacy stream idle and another one busy: only a query of the
       context sees it. */
    void busy_elsewhere()
    {
        idle();
        driver.table.cuCtxRecordEvent = [](CUcontext, CUevent event) {
            fake->done.erase(event);
            return CUDA_SUCCESS;
        };
    }

    void unmap(size_t length,
               uct_cuda_node_handle_type_t type = UCT_CUDA_NODE_HANDLE_LEGACY)
    {
        uct_cuda_node_handle_t handle;

        memset(&handle, 0, sizeof(handle));
        handle.type         = type;
        handle.length       = length;
        driver.mapped[next] = "";
        uct_cuda_node_unmap(&handle, next, 0, driver.context, driver.ctx_id);
        next += 0x10000;
    }

    /* Unmap so much at a time that the total is near a limit. */
    void unmap_up_to(size_t size)
    {
        for (size_t sum = 0; sum < size; sum += 16 * MiB) {
            unmap(16 * MiB);
        }
    }

    void TearDown() override
    {
        uct_cuda_node_unmap_all();
        EXPECT_TRUE(driver.mapped.empty());
        idle(); /* forget that the GPU was busy */
        EXPECT_TRUE(uct_cuda_ctx_is_idle(0));
    }
};

TEST_F(IpcUnmap, mappings_that_close_without_waiting_are_closed_at_once)
{
    driver.table.cuMemUnmap = [](CUdeviceptr address, size_t) {
        fake->mapped.erase(address);
        return CUDA_SUCCESS;
    };
    driver.table.cuMemAddressFree = [](CUdeviceptr, size_t) {
        return CUDA_SUCCESS;
    };
    unmap(4096, UCT_CUDA_NODE_HANDLE_FD);
    EXPECT_TRUE(driver.mapped.empty());
    unmap(4096);
    EXPECT_EQ(1u, driver.mapped.size());
}

TEST_F(IpcUnmap, the_oldest_mapping_is_closed_first)
{
    idle();
    unmap_up_to(UCT_CUDA_NODE_UNMAP_KEPT);
    uct_cuda_node_unmap_due(false);
    EXPECT_EQ(UCT_CUDA_NODE_UNMAP_KEPT / (16 * MiB), driver.mapped.size());
    EXPECT_EQ(1u, driver.mapped.count(0x10000));
    unmap(1); /* small mappings count as the smallest size of an allocation */
    uct_cuda_node_unmap_due(false);
    EXPECT_EQ(UCT_CUDA_NODE_UNMAP_KEPT / (16 * MiB), driver.mapped.size());
    EXPECT_EQ(0u, driver.mapped.count(0x10000));
}

TEST_F(IpcUnmap, more_is_kept_while_the_gpu_is_busy)
{
    for (auto how : {&IpcUnmap::busy, &IpcUnmap::busy_elsewhere}) {
        (this->*how)();
        unmap_up_to(UCT_CUDA_NODE_UNMAP_KEPT + 16 * MiB);
        uct_cuda_node_unmap_due(true);
        EXPECT_EQ(UCT_CUDA_NODE_UNMAP_KEPT / (16 * MiB) + 1,
                  driver.mapped.size());
        unmap_up_to(UCT_CUDA_NODE_UNMAP_MAX - UCT_CUDA_NODE_UNMAP_KEPT);
        uct_cuda_node_unmap_due(true);
        EXPECT_EQ(UCT_CUDA_NODE_UNMAP_MAX / (16 * MiB), driver.mapped.size());
        uct_cuda_node_unmap_all();
    }
}

/* cuCtxRecordEvent would invalidate the capture */
TEST_F(IpcUnmap, no_query_while_a_blocking_stream_is_captured)
{
    busy_elsewhere();
    EXPECT_FALSE(uct_cuda_ctx_is_idle(0));
    driver.table.cuStreamIsCapturing = [](CUstream stream,
                                          CUstreamCaptureStatus*) {
        return (stream == CU_STREAM_LEGACY) ?
               CUDA_ERROR_STREAM_CAPTURE_IMPLICIT :
               CUDA_SUCCESS;
    };
    driver.table.cuCtxRecordEvent = [](CUcontext, CUevent) {
        ADD_FAILURE() << "queried";
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    };
    EXPECT_TRUE(uct_cuda_ctx_is_idle(0));
}

/* A check does not wait for a GPU: it closes many mappings, or none */
TEST_F(IpcUnmap, a_check_closes_idle_mappings)
{
    for (auto how : {&IpcUnmap::busy, &IpcUnmap::busy_elsewhere}) {
        (this->*how)();
        unmap_up_to(2 * UCT_CUDA_NODE_UNMAP_MAX);
        if (how == &IpcUnmap::busy_elsewhere) {
            uct_cuda_node_unmap_due(true); /* notices it */
        }
        const size_t before = driver.mapped.size();
        EXPECT_FALSE(uct_cuda_node_unmap_idle(UINT64_MAX));
        EXPECT_EQ(before, driver.mapped.size());
        uct_cuda_node_unmap_all();
    }

    idle();
    unmap_up_to(UCT_CUDA_NODE_UNMAP_KEPT);
    uct_cuda_node_unmap_due(true); /* notices it */
    unmap_up_to(2 * UCT_CUDA_NODE_UNMAP_MAX);
    EXPECT_TRUE(uct_cuda_node_unmap_is_much());
    EXPECT_TRUE(uct_cuda_node_unmap_idle(0)) << "more is to be closed";
    EXPECT_FALSE(uct_cuda_node_unmap_idle(UINT64_MAX));
    EXPECT_FALSE(uct_cuda_node_unmap_is_much());
    EXPECT_EQ(UCT_CUDA_NODE_UNMAP_KEPT / (16 * MiB), driver.mapped.size());
}

/* A message cannot query all streams, so it takes the GPU for busy for a while;
   a collective queries it */
TEST_F(IpcUnmap, a_collective_uses_no_guess_of_a_message)
{
    const size_t kept = UCT_CUDA_NODE_UNMAP_KEPT / (16 * MiB);

    unmap_up_to(UCT_CUDA_NODE_UNMAP_KEPT + 16 * MiB);
    busy_elsewhere();
    uct_cuda_node_unmap_due(true);
    idle();
    uct_cuda_node_unmap_due(false);
    EXPECT_EQ(kept + 1, driver.mapped.size());
    uct_cuda_node_unmap_due(true);
    EXPECT_EQ(kept / 2, driver.mapped.size());
}

TEST_F(IpcUnmap, a_busy_context_keeps_its_own_mappings_only)
{
    bool is_busy = false;

    idle();
    driver.table.cuCtxGetId = [](CUcontext context, unsigned long long *id) {
        *id = reinterpret_cast<uintptr_t>(context);
        return CUDA_SUCCESS;
    };
    driver.table.cuCtxPushCurrent = [](CUcontext context) {
        fake->context = context;
        return CUDA_SUCCESS;
    };
    driver.table.cuCtxRecordEvent = [](CUcontext context, CUevent event) {
        fake->done.erase(event);
        if (context != reinterpret_cast<CUcontext>(0x3000)) {
            fake->done.insert(event);
        }
        return CUDA_SUCCESS;
    };
    for (uintptr_t context : {0x3000, 0x4000}) {
        driver.context = reinterpret_cast<CUcontext>(context);
        driver.ctx_id  = context;
        unmap(4096);
    }
    EXPECT_EQ(0u, uct_cuda_node_unmap_device(1, &is_busy));
    EXPECT_FALSE(is_busy);
    EXPECT_EQ(1u, uct_cuda_node_unmap_device(0, &is_busy));
    EXPECT_TRUE(is_busy);
    EXPECT_EQ(1u, driver.mapped.count(0x10000));
}

/* Work of another thread ends soon: a collective waits for it, since falling
   back takes longer; a check of limits does not. */
TEST_F(IpcUnmap, a_collective_waits_for_work_that_ends_soon)
{
    static unsigned queries;
    unsigned count = 0;
    bool is_busy;

    busy_elsewhere();
    driver.table.cuEventQuery = [](CUevent event) {
        if (fake->done.count(event) == 0) {
            usleep(150);
            return (++queries % 2 == 0) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
        }
        return CUDA_SUCCESS;
    };

    unmap_up_to(128 * MiB);
    uct_cuda_node_unmap_due(true);
    EXPECT_EQ(8u, driver.mapped.size());

    /* a busy machine may delay a thread by more than the wait */
    for (int i = 0; (i < 20) && (count < 8); ++i) {
        usleep(110 * 1000); /* a wait in vain makes the next ones short */
        queries = 0;
        is_busy = false;
        count  += uct_cuda_node_unmap_device(0, &is_busy);
        EXPECT_EQ(count < 8, is_busy);
    }
    EXPECT_EQ(8u, count);
}

TEST_F(IpcUnmap, mappings_of_a_destroyed_context_are_not_closed)
{
    unmap(4096);
    driver.ctx_id = 7;
    EXPECT_EQ(1u, uct_cuda_node_unmap_all());
    EXPECT_EQ(1u, driver.mapped.size());
    driver.mapped.clear();
}

/* Messages make no query that breaks a capture, and use the result of
   collectives' queries */
TEST_F(IpcUnmap, messages_query_the_legacy_stream_only)
{
    const size_t kept = UCT_CUDA_NODE_UNMAP_KEPT / (16 * MiB);

    idle();
    unmap_up_to(UCT_CUDA_NODE_UNMAP_KEPT + 16 * MiB);
    uct_cuda_node_unmap_due(true);
    EXPECT_EQ(kept / 2, driver.mapped.size());

    unmap_up_to(UCT_CUDA_NODE_UNMAP_KEPT / 2 + 16 * MiB);
    driver.table.cuCtxRecordEvent = [](CUcontext, CUevent) {
        ADD_FAILURE() << "a capture may be under way";
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    };
    uct_cuda_node_unmap_due(false);
    EXPECT_EQ(kept, driver.mapped.size());

    unmap(16 * MiB);
    busy_elsewhere();
    uct_cuda_node_unmap_due(true);
    uct_cuda_node_unmap_due(false);
    EXPECT_EQ(kept + 1, driver.mapped.size());
}
