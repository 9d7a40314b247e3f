/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of blocks: posted completely or not at all, with one completion. */
#include "fake_driver.h"

extern "C" {
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/copy/coalesce.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_ep.h>
#include <uct/cuda/node/rkey.h>
}

#include <gtest/gtest.h>

#include <climits>
#include <cstring>
#include <vector>

static constexpr size_t half = 2ul << 20, count = 100, step = 512, size = 256;
static uint8_t gpu[2 * half];

class IpcList : public ::testing::Test
{
protected:
    struct Reported {
        uct_completion_t comp;
        unsigned         count;
    };

    FakeDriver              driver;
    uct_cuda_mp_engine_t    engine = {SIZE_MAX, SIZE_MAX, 0, 0};
    uct_cuda_ipc_iface_t    iface  = {};
    uct_cuda_ipc_ep_t       ep     = {};
    uct_cuda_node_rkey_t    *rkey  = NULL;
    uct_cuda_node_memh_t    *memh  = NULL;
    Reported                    reported   = {};
    std::vector<void*>      buffers;
    std::vector<size_t>     lengths;
    std::vector<uint64_t>   remote;
    std::vector<uct_rkey_t> rkeys;

    void SetUp() override
    {
        uct_cuda_node_packed_rkey_t packed;

        driver.expect_errors();
        driver.offer_gpu_memory((CUdeviceptr)gpu, sizeof(gpu));
        driver.offer_gpu_range();
        driver.offer_gpu_copies();
        driver.offer_handles();

        ep.super.super.iface = (uct_iface_h)&iface;
        ep.is_self           = true;
        ASSERT_EQ(UCS_OK,
                  uct_cuda_queue_init(&iface.super.queue, 1000, UINT_MAX));
        iface.copier.max_streams            = 4;
        iface.copier.coalescer.engine       = &engine;
        iface.copier.coalescer.enable_cache = true;
        uct_cuda_copy_coalesce_init(&iface.copier.coalescer,
                                    &iface.super.queue);
        ASSERT_EQ(UCS_OK,
                  uct_cuda_node_memh_create(gpu + half, half, &memh));
        ASSERT_EQ(UCS_OK,
                  uct_cuda_node_rkey_pack(memh, gpu + half, half, &packed));
        ASSERT_EQ(UCS_OK,
                  uct_cuda_node_rkey_unpack(&packed, uct_cuda_end_none(),
                                            &rkey));

        for (size_t i = 0; i < count; ++i) {
            memset(gpu + i * step, (int)i, step);
            buffers.push_back(gpu + i * step);
            lengths.push_back(size);
            remote.push_back((uintptr_t)gpu + half + (count - 1 - i) * step);
            rkeys.push_back((uct_rkey_t)rkey);
        }
        memset(gpu + half, 'r', half);
        reported.comp.count  = 1;
        reported.comp.status = UCS_OK;
        reported.comp.func   = [](uct_completion_t *comp) {
            ++((Reported*)comp)->count;
        };
    }

    void TearDown() override
    {
        driver.done = driver.events;
        uct_cuda_queue_cleanup(&iface.super.queue);
        uct_cuda_copy_coalesce_cleanup(&iface.copier.coalescer);
        uct_cuda_node_rkey_destroy(rkey);
        uct_cuda_node_memh_destroy(memh);
    }

    ucs_status_t put(size_t num = count)
    {
        const uct_abi_list_t list = {buffers.data(), lengths.data(),
                                     remote.data(), rkeys.data(), num};

        return uct_cuda_ipc_ep_put_list(&ep.super.super, &list, &reported.comp);
    }

    void finish()
    {
        driver.done = driver.events;
        while (uct_cuda_queue_progress(&iface.super.queue) > 0) {
        }
    }

    /* Make each block an operation of its own: all are the same large one. */
    void enlarge()
    {
        buffers.assign(count, gpu);
        lengths.assign(count, UCT_CUDA_COPY_COALESCE_MAX_SIZE + 1);
        remote.assign(count, (uintptr_t)gpu + half);
    }

    /* Return whether the bytes of block i arrived, and none beside them. */
    bool arrived(size_t i, bool reverse = true)
    {
        const uint8_t *at = gpu + half + (reverse ? count - 1 - i : i) * step;

        return (at[0] == i) && (at[size - 1] == i) && (at[size] == 'r');
    }

    void expect_nothing()
    {
        finish();
        EXPECT_EQ(0u, reported.count);
        EXPECT_EQ(std::vector<uint8_t>(half, 'r'),
                  std::vector<uint8_t>(gpu + half, gpu + 2 * half));
    }
};

/* An endpoint to another process refuses a key of this process's memory: a peer
   may have forged it */
TEST_F(IpcList, a_key_of_the_own_process_is_for_its_own_endpoint)
{
    ep.is_self = false;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, put());
    expect_nothing();
}

/* 8, 16, 32 and the rest; no block waits for progress to be submitted */
TEST_F(IpcList, few_calls_and_one_completion)
{
    EXPECT_EQ(UCS_INPROGRESS, put());
    EXPECT_EQ(1u, driver.batches);
    EXPECT_EQ(0u, driver.singles);
    EXPECT_EQ(0u, reported.count);
    finish();
    EXPECT_EQ(1u, reported.count);
    EXPECT_EQ(UCS_OK, reported.comp.status);
    EXPECT_EQ(0, reported.comp.count);
    for (size_t i = 0; i < count; ++i) {
        EXPECT_TRUE(arrived(i)) << i;
    }
}

TEST_F(IpcList, a_list_is_read)
{
    const uct_abi_list_t list = {buffers.data(), lengths.data(), remote.data(),
                                 rkeys.data(), count};

    EXPECT_EQ(UCS_INPROGRESS,
              uct_cuda_ipc_ep_get_list(&ep.super.super, &list, NULL));
    finish();
    for (size_t i = 0; i < count; ++i) {
        EXPECT_EQ('r', gpu[i * step + size - 1]) << i;
        EXPECT_EQ(i, gpu[i * step + size]) << i;
    }
}

TEST_F(IpcList, empty_lists_complete_at_once)
{
    EXPECT_EQ(UCS_OK, put(0));
    lengths.assign(count, 0);
    EXPECT_EQ(UCS_OK, put());
    rkeys.assign(count, 0); /* not read */
    EXPECT_EQ(UCS_OK, put());
    expect_nothing();

    rkeys[50]   = (uct_rkey_t)rkey;
    lengths[50] = size;
    EXPECT_EQ(UCS_INPROGRESS, put());
    EXPECT_EQ(1u, driver.singles);
    finish();
    EXPECT_EQ(1u, reported.count);
    EXPECT_TRUE(arrived(50));
    EXPECT_EQ('r', gpu[half]);
}

TEST_F(IpcList, one_invalid_block_refuses_the_list)
{
    const std::vector<uint64_t> noise(64, 0x5a5a5a5a5a5a5a5a);

    for (uct_rkey_t wrong : {(uct_rkey_t)0, (uct_rkey_t)noise.data(),
                             (uct_rkey_t)UCT_INVALID_RKEY}) {
        rkeys[57] = wrong;
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, put());
    }
    rkeys[57] = (uct_rkey_t)rkey;

    remote[99] -= 2 * half;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, put());
    remote[99] = (uintptr_t)gpu + 2 * half - size + 1;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, put());
    remote[99]   = (uintptr_t)gpu + half;
    lengths[99]  = SIZE_MAX;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, put());
    expect_nothing();
}

/* Only the first block can find a full queue: UCP posts the list again */
TEST_F(IpcList, a_full_queue)
{
    uct_cuda_queue_t *queue = &iface.super.queue;
    uct_cuda_stream_t *stream;
    uct_cuda_op_t *op;

    queue->max_events = 1;
    ASSERT_EQ(UCS_OK, uct_cuda_queue_stream(queue, 0, &stream));
    ASSERT_EQ(UCS_OK, uct_cuda_op_get(stream, &op));
    ASSERT_EQ(UCS_INPROGRESS, uct_cuda_op_post(queue, op));
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, put());
    expect_nothing();

    enlarge();
    EXPECT_EQ(UCS_INPROGRESS, put());
    EXPECT_EQ(count, driver.singles);
    EXPECT_EQ(count, queue->outstanding);
    finish();
    EXPECT_EQ(1u, reported.count);
    EXPECT_EQ(UCS_OK, reported.comp.status);
}

TEST_F(IpcList, an_error_in_the_middle_is_reported_at_the_end)
{
    enlarge();
    driver.table.cuMemcpyDtoDAsync = [](CUdeviceptr dst, CUdeviceptr src,
                                        size_t bytes, CUstream) {
        if (++fake->singles > 10) {
            return CUDA_ERROR_UNKNOWN;
        }
        memcpy((void*)dst, (const void*)src, bytes);
        return CUDA_SUCCESS;
    };
    EXPECT_EQ(UCS_INPROGRESS, put());
    EXPECT_EQ(11u, driver.singles);
    EXPECT_EQ(0u, reported.count);
    finish();
    EXPECT_EQ(1u, reported.count);
    EXPECT_EQ(UCS_ERR_IO_ERROR, reported.comp.status);
    EXPECT_EQ(0, memcmp(gpu + half, gpu, lengths[0]));

    /* At the start: no operation is in flight to report it */
    reported.count = 0;
    EXPECT_EQ(UCS_ERR_IO_ERROR, put());
    finish();
    EXPECT_EQ(0u, reported.count);
}
