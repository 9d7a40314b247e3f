/* SPDX-License-Identifier: BSD-3-Clause */
/* Coalesced small copies: queries of the driver, and completions. */
#include "fake_driver.h"

extern "C" {
#include <uct/cuda/base/iface.h>
#include <uct/cuda/copy/coalesce.h>
#include <uct/cuda/node/process.h>
}

#include <kernels/kernels.h>

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <vector>

static constexpr size_t half = 1ul << 20;
static uint8_t gpu[2 * half];
static uint8_t host[half]; /* the first half is page-locked */

class Coalesce : public ::testing::Test
{
protected:
    struct Reported {
        uct_completion_t comp;
        unsigned         count;
    };

    FakeDriver                driver;
    uct_cuda_mp_engine_t      engine    = {SIZE_MAX, SIZE_MAX, 0, 0};
    uct_cuda_iface_t          iface     = {};
    uct_cuda_copy_coalescer_t coalescer = {};
    uct_cuda_node_rkey_t      rkey      = {};
    uct_cuda_stream_t         *stream;
    uint8_t                   *local  = gpu;
    uct_cuda_end_t            local_end = uct_cuda_end_gpu(0);
    bool                      is_owned  = true;
    uint8_t                   *remote = gpu + half;
    std::vector<Reported>    reported = std::vector<Reported>(2000);

    void SetUp() override
    {
        uct_cuda_node_iface_addr_t self;

        driver.expect_errors();
        driver.offer_gpu_memory((CUdeviceptr)gpu, sizeof(gpu));
        driver.offer_gpu_range();
        driver.offer_gpu_copies();

        uct_cuda_node_iface_addr_self(&self);
        rkey.handle.type       = UCT_CUDA_NODE_HANDLE_LEGACY;
        rkey.handle.pid        = self.pid;
        rkey.handle.pid_ns     = self.pid_ns;
        rkey.handle.base       = (uintptr_t)remote;
        rkey.handle.length     = half;
        rkey.handle.buffer_id  = 7;
        coalescer.engine       = &engine;
        coalescer.enable_cache = true;
        ASSERT_EQ(UCS_OK,
                  uct_cuda_queue_init(&iface.queue, 1000, UINT_MAX));
        uct_cuda_copy_coalesce_init(&coalescer, &iface.queue);
        ASSERT_EQ(UCS_OK, uct_cuda_queue_stream(&iface.queue, 0,
                                                &stream));
        memset(gpu, 'r', sizeof(gpu));
        SetUpReported();
    }

    void SetUpReported()
    {
        for (auto &one : reported) {
            one.count      = 0;
            one.comp.count = 1;
            one.comp.func  = [](uct_completion_t *comp) {
                ++((Reported*)comp)->count;
            };
            one.comp.status = UCS_OK;
        }
    }

    void TearDown() override
    {
        uct_cuda_queue_submit_coalesced(&iface.queue, true);
        driver.done = driver.events;
        uct_cuda_queue_cleanup(&iface.queue);
        uct_cuda_copy_coalesce_cleanup(&coalescer);
    }

    bool may_wait()
    {
        return iface.queue.may_wait(&iface.queue);
    }

    /* Post operations, so that later ones coalesce behind them. */
    void occupy(unsigned count = 2)
    {
        uct_cuda_op_t *op;

        for (; count > 0; --count) {
            ASSERT_EQ(UCS_OK, uct_cuda_op_get(stream, &op));
            ASSERT_EQ(UCS_INPROGRESS, uct_cuda_op_post(&iface.queue, op));
        }
        driver.records = 0;
    }

    /* End the stream's first operation. */
    void end_one()
    {
        driver.done.insert(iface.queue.active->head->event);
        ASSERT_EQ(1u, uct_cuda_queue_progress(&iface.queue));
    }

    uct_cuda_copy_t block(unsigned i, size_t from, size_t to, size_t length,
                          bool is_put = true)
    {
        uct_cuda_copy_t copy;

        uct_cuda_copy_init(&copy, local + from, &rkey, (uintptr_t)remote + to,
                           length, is_put, &reported[i].comp);
        copy.local.end     = local_end;
        copy.local.context = is_owned ? driver.context : nullptr;
        return copy;
    }

    ucs_status_t
    post(unsigned i, size_t from, size_t to, size_t length, bool is_put = true)
    {
        const uct_cuda_copy_t copy = block(i, from, to, length, is_put);

        return uct_cuda_copy_coalesce_follow(&coalescer, &copy, false, false) ?
                   UCS_INPROGRESS :
                   uct_cuda_copy_coalesce_add(&coalescer, stream, 0, &copy,
                                              false);
    }

    /* Use host memory as local memory from now on; at first, the driver is
       queried copy by copy. */
    void use_host()
    {
        local     = host;
        local_end = uct_cuda_end_host();
        memset(host, 'h', sizeof(host));
        driver.table.cuMemcpyBatchAsync_v1  = NULL;
        driver.table.cuPointerGetAttributes = [](unsigned count,
                                                 CUpointer_attribute *names,
                                                 void **values,
                                                 CUdeviceptr address) {
            const bool is_locked = (address >= (CUdeviceptr)host) &&
                                   (address < (CUdeviceptr)host + half / 2);

            ++fake->questions;
            /* values of other memory stay */
            return fake->locked(is_locked ? count : 0, names, values, host,
                                half / 2);
        };
        driver.table.cuMemcpyDtoDAsync = [](CUdeviceptr dst, CUdeviceptr src,
                                            size_t bytes, CUstream) {
            for (CUdeviceptr address : {dst, src}) {
                if (address - (CUdeviceptr)host < sizeof(host)) {
                    return CUDA_ERROR_INVALID_VALUE;
                }
            }
            ++fake->singles;
            memcpy((void*)dst, (const void*)src, bytes);
            return CUDA_SUCCESS;
        };
        driver.offer_host_copies();
    }

    void finish()
    {
        uct_cuda_queue_submit_coalesced(&iface.queue, true);
        driver.done = driver.events;
        while (uct_cuda_queue_progress(&iface.queue) > 0) {
        }
    }

    void expect_reported(unsigned count, ucs_status_t status)
    {
        for (unsigned i = 0; i < reported.size(); ++i) {
            ASSERT_EQ((i < count) ? 1u : 0u, reported[i].count) << i;
            if (i < count) {
                ASSERT_EQ(status, reported[i].comp.status) << i;
            }
        }
    }
};

TEST_F(Coalesce, a_single_copy_is_not_delayed)
{
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, post(0, 0, 0, 64));
    occupy(1);
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, post(0, 0, 0, 64));
    occupy(1);
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, post(0, 0, 0, half + 1));
    EXPECT_EQ(UCS_INPROGRESS, post(0, 0, 0, 64));
}

/* While a group runs there is time to collect the next one */
TEST_F(Coalesce, blocks_behind_one_group_wait)
{
    occupy();
    EXPECT_EQ(UCS_INPROGRESS, post(0, 0, 0, 64));
    EXPECT_EQ(UCS_INPROGRESS, post(1, 128, 128, 64));
    end_one();
    uct_cuda_queue_submit_coalesced(&iface.queue, false);
    EXPECT_EQ(1u, driver.batches);
    end_one(); /* the group alone */
    EXPECT_EQ(UCS_INPROGRESS, post(2, 256, 256, 64));
    EXPECT_EQ(UCS_INPROGRESS, post(3, 384, 384, 64));
    EXPECT_EQ(1u, driver.batches);
    uct_cuda_queue_submit_coalesced(&iface.queue, false);
    EXPECT_EQ(2u, driver.batches);
    finish();
    expect_reported(4, UCS_OK);
}

/* Behind one copy a block waits only if the last group was large */
TEST_F(Coalesce, blocks_behind_one_copy_wait_after_a_large_group)
{
    for (const unsigned count : {8u, 2u, 9u}) {
        occupy();
        for (unsigned i = 0; i < count; ++i) {
            EXPECT_EQ(UCS_INPROGRESS, post(i, i * 128, i * 128, 64));
        }
        finish();
        expect_reported(count, UCS_OK);
        occupy(1);
        EXPECT_EQ((count >= 8) ? UCS_INPROGRESS : UCS_ERR_UNSUPPORTED,
                  post(0, 0, 0, 64));
        finish();
        SetUpReported();
    }
}

/* 128 of them per call and event, two queries in total */
TEST_F(Coalesce, many_copies_take_few_calls)
{
    const unsigned count = 1000;

    occupy();
    driver.questions = 0;
    for (unsigned i = 0; i < count; ++i) {
        memset(local + i * 512, (int)i, 256);
        ASSERT_EQ(UCS_INPROGRESS, post(i, i * 512, i * 1024, 256));
    }
    finish();
    expect_reported(count, UCS_OK);
    EXPECT_EQ(0u, driver.singles);
    EXPECT_EQ(8u, driver.batches);
    EXPECT_EQ(8u, driver.records);
    EXPECT_EQ(8u, driver.questions);
    for (unsigned i = 0; i < count; ++i) {
        ASSERT_EQ(0, memcmp(remote + i * 1024, local + i * 512, 256)) << i;
        ASSERT_EQ('r', remote[i * 1024 + 256]) << i;
    }
}

/* Also for a thread without a context, to which the driver tells no range */
TEST_F(Coalesce, adjacent_blocks_are_one_copy)
{
    driver.need_context();
    occupy();
    for (unsigned i = 0; i < 8; ++i) {
        memset(local + i * 4096, 'a' + (int)i, 4096);
        ASSERT_EQ(UCS_INPROGRESS, post(i, i * 4096, (i + 1) * 4096, 4096));
    }
    finish();
    expect_reported(8, UCS_OK);
    EXPECT_EQ(1u, driver.singles);
    EXPECT_EQ(0u, driver.batches);
    EXPECT_EQ(0, memcmp(remote + 4096, local, 8 * 4096));
    EXPECT_EQ('r', remote[9 * 4096]);
}

/* Another thread calls progress while blocks arrive: they are submitted when
   the GPU has at most one operation left, and the driver is not queried each
   time */
TEST_F(Coalesce, concurrent_progress_does_not_split_a_group)
{
    occupy();
    EXPECT_EQ(UCS_INPROGRESS, post(0, 0, 0, 256));
    end_one();
    EXPECT_FALSE(may_wait());
    uct_cuda_queue_submit_coalesced(&iface.queue, false);
    EXPECT_EQ(1u, driver.singles);

    for (unsigned i = 1; i < 8; ++i) {
        EXPECT_EQ(UCS_INPROGRESS, post(i, i * 512, i * 1024, 256));
        uct_cuda_queue_submit_coalesced(&iface.queue, false);
        EXPECT_TRUE(may_wait()) << i;
        EXPECT_FALSE(may_wait()) << "nothing came";
    }
    EXPECT_EQ(1u, driver.records);

    /* The first one has ended, one is left: these are next */
    end_one();
    uct_cuda_queue_submit_coalesced(&iface.queue, false);
    EXPECT_EQ(2u, driver.records);
    EXPECT_EQ(1u, driver.batches);

    /* None is left; another stream is busy */
    uct_cuda_stream_t *other;
    uct_cuda_op_t *op;
    ASSERT_EQ(UCS_OK, uct_cuda_queue_stream(&iface.queue, 1, &other));
    ASSERT_EQ(UCS_OK, uct_cuda_op_get(other, &op));
    ASSERT_EQ(UCS_INPROGRESS, uct_cuda_op_post(&iface.queue, op));
    EXPECT_EQ(UCS_INPROGRESS, post(8, 8 * 512, 8 * 1024, 256));
    driver.done = driver.events;
    driver.done.erase(op->event);
    uct_cuda_queue_progress(&iface.queue);
    EXPECT_EQ(nullptr, stream->head);
    uct_cuda_queue_submit_coalesced(&iface.queue, false);
    EXPECT_EQ(2u, driver.singles);
    finish();
    expect_reported(9, UCS_OK);
}

/* And only for a limited number of calls, even if blocks keep coming */
TEST_F(Coalesce, progress_waits_a_limited_number_of_calls)
{
    unsigned waited = 0;

    occupy();
    occupy();
    for (unsigned i = 0; i < 100; ++i) {
        EXPECT_EQ(UCS_INPROGRESS, post(i, i * 512, i * 1024, 256));
        waited += may_wait();
    }
    EXPECT_GT(waited, 80u);
    EXPECT_LT(waited, 97u);
}

/* Adjacent in one memory only, or in another order, or in an allocation that
   happens to follow */
TEST_F(Coalesce, other_blocks_are_separate_copies)
{
    occupy();
    EXPECT_EQ(UCS_INPROGRESS, post(0, 0, 0, 4096));
    EXPECT_EQ(UCS_INPROGRESS, post(1, 4096, 12288, 4096));
    EXPECT_EQ(UCS_INPROGRESS, post(2, 12288, 16384, 4096));
    EXPECT_EQ(UCS_INPROGRESS, post(3, 8192, 12288 + 8192, 4096));
    driver.gpu_length = 32768;
    EXPECT_EQ(UCS_INPROGRESS, post(4, 16384, 24576, 4096));
    finish();
    EXPECT_EQ(1u, driver.batches);

    occupy();
    driver.table.cuMemGetAddressRange = [](CUdeviceptr *base, size_t *length,
                                           CUdeviceptr address) {
        *base   = address - (address - (CUdeviceptr)gpu) % 4096;
        *length = 4096;
        return CUDA_SUCCESS;
    };
    EXPECT_EQ(UCS_INPROGRESS, post(5, 0, 0, 4096));
    EXPECT_EQ(UCS_INPROGRESS, post(6, 4096, 4096, 4096));
    finish();
    EXPECT_EQ(2u, driver.batches);
    EXPECT_EQ(0u, driver.singles);
    expect_reported(7, UCS_OK);
}

/* A key may be unpacked at another key's address */
TEST_F(Coalesce, a_new_key_at_an_old_address_is_new)
{
    occupy();
    EXPECT_EQ(UCS_INPROGRESS, post(0, 0, 0, 64));
    rkey.handle.base   = (uintptr_t)remote + 4096;
    rkey.handle.length = half - 4096;
    EXPECT_EQ(UCS_INPROGRESS, post(1, 1024, 8192, 64));
    memset(local, 'l', 2048);
    finish();
    expect_reported(2, UCS_OK);
    EXPECT_EQ('l', remote[8192]);
    EXPECT_EQ('r', remote[8192 - 1]);
    EXPECT_EQ('r', remote[4096]);
}

/* A waiter for the queue would wait forever for unsubmitted copies; a fence
   would miss them */
TEST_F(Coalesce, a_wait_submits_the_group)
{
    uct_cuda_queue_t *queue = &iface.queue;
    uct_completion_t comp   = {};
    const std::vector<std::function<void()>> waits = {
        [&]() { uct_cuda_queue_flush(queue, &comp); },
        [&]() { uct_cuda_queue_fence(queue); },
        [&]() {
            end_one();
            EXPECT_EQ(UCS_OK, uct_cuda_queue_arm(queue));
        },
        [&]() {
            end_one();
            uct_cuda_iface_progress((uct_iface_h)&iface);
        }
    };
    unsigned posted = 0;

    driver.table.cuLaunchHostFunc = [](CUstream, CUhostFn, void*) {
        return CUDA_SUCCESS;
    };
    comp.count = 10;
    for (const auto &wait : waits) {
        occupy();
        ASSERT_EQ(UCS_INPROGRESS, post(posted, 0, 0, 64));
        ++posted;
        EXPECT_EQ(posted - 1, driver.singles);
        wait();
        EXPECT_EQ(posted, driver.singles);
        expect_reported(posted - 1, UCS_OK);
        finish();
        queue->is_fenced = false;
    }
    expect_reported(posted, UCS_OK);
}

/* Also copies posted by the last completion are submitted, if nothing else is
   left */
TEST_F(Coalesce, progress_of_an_idle_queue_submits)
{
    occupy();
    ASSERT_EQ(UCS_INPROGRESS, post(0, 0, 0, 64));
    driver.done = driver.events;
    ASSERT_EQ(2u, uct_cuda_queue_progress(&iface.queue));
    ASSERT_TRUE(uct_cuda_queue_is_idle(&iface.queue));
    EXPECT_EQ(0u, driver.singles);
    uct_cuda_iface_progress((uct_iface_h)&iface);
    EXPECT_EQ(1u, driver.singles);
}

TEST_F(Coalesce, cleanup_of_the_queue_submits)
{
    occupy();
    ASSERT_EQ(UCS_INPROGRESS, post(0, 0, 0, 64));
    driver.done                = driver.events;
    driver.table.cuEventRecord = [](CUevent, CUstream) { return CUDA_SUCCESS; };
    uct_cuda_queue_cleanup(&iface.queue);
    EXPECT_EQ(1u, driver.singles);
    ASSERT_EQ(UCS_OK, uct_cuda_queue_init(&iface.queue, 1000, UINT_MAX));
}

TEST_F(Coalesce, completions_follow_the_event)
{
    occupy();
    for (unsigned i = 0; i < 20; ++i) {
        EXPECT_EQ(UCS_INPROGRESS, post(i, i * 512, i * 1024, 256));
    }
    uct_cuda_queue_submit_coalesced(&iface.queue, true);
    uct_cuda_queue_progress(&iface.queue);
    expect_reported(0, UCS_OK);
    finish();
    expect_reported(20, UCS_OK);
}

TEST_F(Coalesce, without_batches_copies_are_single)
{
    occupy();
    driver.table.cuMemcpyBatchAsync_v1 = NULL;
    for (unsigned i = 0; i < 8; ++i) {
        memset(local + i * 512, (int)i, 256);
        EXPECT_EQ(UCS_INPROGRESS, post(i, i * 512, i * 1024, 256));
    }
    finish();
    expect_reported(8, UCS_OK);
    EXPECT_EQ(8u, driver.singles);
    EXPECT_EQ(1u, driver.records);
    EXPECT_EQ(7, remote[7 * 1024]);
}

TEST_F(Coalesce, a_refused_batch_becomes_single_copies)
{
    occupy();
    EXPECT_EQ(UCS_INPROGRESS, post(0, 0, 0, 64));
    EXPECT_EQ(UCS_INPROGRESS, post(1, 128, 256, 64));
    driver.fail = "cuMemcpyBatchAsync";
    finish();
    expect_reported(2, UCS_OK);
    EXPECT_EQ(2u, driver.singles);
}

TEST_F(Coalesce, errors_are_reported_by_progress)
{
    occupy();
    driver.table.cuMemcpyBatchAsync_v1 = NULL;
    for (unsigned i = 0; i < 7; ++i) {
        EXPECT_EQ(UCS_INPROGRESS, post(i, i * 512, i * 1024, 256));
    }
    driver.fail = "cuMemcpyDtoDAsync";
    EXPECT_EQ(UCS_INPROGRESS, post(7, 7 * 512, 7 * 1024, 256));
    expect_reported(0, UCS_OK);
    finish();
    expect_reported(8, UCS_ERR_IO_ERROR);
}

/* The copies were waited for: they are correct */
TEST_F(Coalesce, without_an_event_copies_are_waited_for)
{
    occupy();
    for (unsigned i = 0; i < 7; ++i) {
        EXPECT_EQ(UCS_INPROGRESS, post(i, i * 512, i * 1024, 256));
    }
    driver.fail = "cuEventRecord";
    EXPECT_EQ(UCS_INPROGRESS, post(7, 7 * 512, 7 * 1024, 256));
    expect_reported(0, UCS_OK);
    finish();
    expect_reported(8, UCS_OK);
    EXPECT_EQ(0u, iface.queue.outstanding);
}

TEST_F(Coalesce, a_reset_context_gets_no_copies)
{
    occupy();
    EXPECT_EQ(UCS_INPROGRESS, post(0, 0, 0, 64));
    EXPECT_EQ(UCS_INPROGRESS, post(1, 128, 256, 64));
    ++driver.ctx_id;
    finish();
    expect_reported(2, UCS_ERR_IO_ERROR);
    EXPECT_EQ(0u, driver.batches + driver.singles);
}

/* The context stays until completions of the coalesced copies are reported */
TEST_F(Coalesce, a_reset_context_stays_until_its_group_completes)
{
    uct_cuda_stream_t *next;

    occupy();
    EXPECT_EQ(UCS_INPROGRESS, post(0, 0, 0, 64));
    EXPECT_EQ(UCS_INPROGRESS, post(1, 128, 256, 64));
    const unsigned submitted = driver.singles;
    ++driver.ctx_id;
    driver.done = driver.events;
    while (uct_cuda_queue_progress(&iface.queue) > 0) {
    }
    expect_reported(0, UCS_OK);

    ASSERT_EQ(UCS_OK, uct_cuda_queue_stream(&iface.queue, 0, &next));
    EXPECT_NE(stream, next);
    finish();
    expect_reported(2, UCS_ERR_IO_ERROR);
    EXPECT_EQ(submitted, driver.batches + driver.singles);
}

TEST_F(Coalesce, random_lists_arrive)
{
    std::mt19937 chance(17);
    unsigned posted = 0;

    for (unsigned round = 0; round < 20; ++round) {
        const bool is_put = chance() % 2;
        std::vector<uint8_t> goal(gpu, gpu + sizeof(gpu));
        uint8_t *target = is_put ? goal.data() + half : goal.data();
        size_t from = 0, to = 0;

        for (auto &byte : goal) {
            byte = (uint8_t)chance();
        }
        memcpy(gpu, goal.data(), sizeof(gpu));
        occupy();
        for (unsigned i = 0; i < 80; ++i) {
            const size_t length = 1 + chance() % 5000;

            from += (chance() % 3 == 0) ? chance() % 500 : 0;
            to   += (chance() % 3 == 0) ? chance() % 500 : 0;
            memcpy(target + (is_put ? to : from),
                   (is_put ? local + from : remote + to), length);
            ASSERT_EQ(UCS_INPROGRESS, post(posted++, from, to, length,
                                           is_put));
            from += length;
            to   += length;
        }
        finish();
        expect_reported(posted, UCS_OK);
        ASSERT_EQ(0, memcmp(goal.data(), gpu, sizeof(gpu))) << round;
    }
}

/* Page-locked memory too: one event per group, one query per allocation */
TEST_F(Coalesce, host_memory_is_coalesced)
{
    const auto batch = driver.table.cuMemcpyBatchAsync_v1;

    use_host();
    for (bool is_put : {true, false}) {
        const uint8_t *from = is_put ? local : remote;
        const uint8_t *to   = is_put ? remote : local;

        occupy();
        driver.questions = 0;
        for (unsigned i = 0; i < 8; ++i) {
            memset((void*)(from + i * 16384), 'a' + (int)i + is_put, 8192);
            ASSERT_EQ(UCS_INPROGRESS, post(i + 8 * !is_put, i * 16384,
                                           i * 16384, 8192, is_put));
        }
        EXPECT_EQ(1u, driver.questions);
        uct_cuda_queue_submit_coalesced(&iface.queue, true);
        EXPECT_EQ(1u, driver.records);
        EXPECT_EQ(is_put ? 8u : 0u, driver.singles);
        EXPECT_EQ(is_put ? 0u : 1u, driver.batches);
        finish();
        expect_reported(is_put ? 8 : 16, UCS_OK);
        for (unsigned i = 0; i < 8; ++i) {
            EXPECT_EQ('a' + (int)i + is_put, to[i * 16384 + 8191]);
        }
        driver.singles                     = 0;
        driver.table.cuMemcpyBatchAsync_v1 = batch;
    }
}

/* Blocks that other paths carry faster, alone or behind others */
TEST_F(Coalesce, blocks_below_the_size_behind_others_are_coalesced)
{
    occupy();
    engine.min_size        = 4096;
    engine.behind_min_size = 16384;
    EXPECT_EQ(UCS_INPROGRESS, post(0, 0, 0, 8192));
    engine.behind_min_size = 8192;
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, post(1, 8192, 8192, 8192));
    engine.behind_min_size = 0; /* unknown */
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, post(1, 8192, 8192, 8192));
    finish();
    expect_reported(1, UCS_OK);
    engine.min_size = SIZE_MAX;
}

/* Memory that is not locked, or not to its end, or faster in another way */
TEST_F(Coalesce, unsuitable_host_memory_is_not_coalesced)
{
    use_host();
    occupy();
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, post(0, half / 2, 0, 8192));
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, post(0, half / 2 - 4096, 0, 8192));
    engine.host_min_size = 8192;
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, post(0, 0, 0, 8192));
    engine.host_min_size = SIZE_MAX;
    EXPECT_EQ(UCS_INPROGRESS, post(0, 0, 0, 8192));

    /* also if other copies already wait */
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, post(1, half / 2 - 4096, 16384, 8192));
    EXPECT_EQ(UCS_INPROGRESS, post(1, 8192, 8192, 8192));
    engine.host_min_size = 4096;
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, post(2, 16384, 16384, 8192));
    finish();
    expect_reported(2, UCS_OK);
    EXPECT_EQ('h', remote[16383]);
    EXPECT_EQ('r', remote[16384]);
}

/* A block of GPU memory behind one of host memory belongs to another group */
TEST_F(Coalesce, a_group_has_one_kind_of_memory)
{
    use_host();
    occupy();
    EXPECT_EQ(UCS_INPROGRESS, post(0, 0, 0, 8192));
    local     = gpu;
    local_end = uct_cuda_end_gpu(0);
    memset(gpu, 'g', half);
    EXPECT_EQ(UCS_INPROGRESS, post(1, 0, 8192, 8192));
    EXPECT_EQ(1u, driver.records);
    finish();
    EXPECT_EQ(2u, driver.records);
    expect_reported(2, UCS_OK);
    EXPECT_EQ('h', remote[8191]);
    EXPECT_EQ('g', remote[8192]);
}

/* At most 16 MiB wait, even if the blocks are few */
TEST_F(Coalesce, delayed_bytes_are_limited)
{
    driver.table.cuMemcpyBatchAsync_v1 =
            [](CUdeviceptr*, CUdeviceptr*, size_t *bytes, size_t count,
               uct_cuda_memcpy_attributes_t*, size_t*, size_t, size_t*,
               CUstream) {
        EXPECT_LE(count, (fake->batches == 0) ? 8u : 16u);
        EXPECT_EQ(half, bytes[count - 1]);
        ++fake->batches;
        return CUDA_SUCCESS;
    };
    occupy();
    for (unsigned i = 0; i < 40; ++i) {
        ASSERT_EQ(UCS_INPROGRESS, post(i, 0, 0, half));
    }
    EXPECT_EQ(3u, driver.batches);
    EXPECT_EQ(3u, driver.records);
    finish();
    expect_reported(40, UCS_OK);
}


/* Blocks copied by a kernel: a GPU runs it on request, with any number of its
   warps before it is cancelled */
class CoalesceKernel : public Coalesce
{
protected:
    static constexpr unsigned warps = 2 * 4 * UCX_MP_COPY_WARPS;

    struct Launch {
        bool                 is_uniform;
        uint64_t             serial;
        std::vector<uint8_t*> dst, src;
        std::vector<size_t>  size;

        explicit Launch(const ucx_mp_copy_args_t &args) :
            is_uniform(false), serial(args.serial)
        {
            for (unsigned i = 0; i < args.count; ++i) {
                dst.push_back((uint8_t*)args.dst[i]);
                src.push_back((uint8_t*)args.src[i]);
                size.push_back(args.size[i]);
            }
        }

        explicit Launch(const ucx_mp_copy_alike_args_t &args) :
            is_uniform(true), serial(args.serial)
        {
            for (unsigned i = 0; i < args.count; ++i) {
                dst.push_back((uint8_t*)args.base_dst + 16ull * args.dst[i]);
                src.push_back((uint8_t*)args.base_src + 16ull * args.src[i]);
                size.push_back(args.size);
            }
        }
    };

    static std::vector<Launch> launched;
    static uint64_t words[UCX_MP_COPY_OFF + warps];
    static unsigned begun; /* warps seen as begun */

    void SetUp() override
    {
        Coalesce::SetUp();
        launched.clear();
        begun               = 0;
        coalescer.kernel_blocks = 4;
        memset(words, 0xff, sizeof(words));

        driver.table.cuModuleLoadData    = [](CUmodule *module, const void*) {
            *module = (CUmodule)1;
            return CUDA_SUCCESS;
        };
        driver.table.cuModuleUnload = [](CUmodule) { return CUDA_SUCCESS; };
        driver.table.cuModuleGetFunction = [](CUfunction *function, CUmodule,
                                              const char *name) {
            *function = (strcmp(name, "ucx_mp_copy_alike") == 0) ? alike : any;
            return CUDA_SUCCESS;
        };
        driver.table.cuLaunchKernel      = [](CUfunction function,
                                              unsigned blocks,
                                              unsigned, unsigned, unsigned,
                                              unsigned, unsigned, unsigned,
                                              CUstream, void **params,
                                              void**) {
            if (fake->fails("cuLaunchKernel")) {
                return fake->fail_with;
            }
            EXPECT_EQ(warps, blocks * UCX_MP_COPY_WARPS);
            if (function == alike) {
                launched.emplace_back(
                        *(const ucx_mp_copy_alike_args_t*)params[0]);
            } else {
                launched.emplace_back(*(const ucx_mp_copy_args_t*)params[0]);
            }
            return CUDA_SUCCESS;
        };
        driver.table.cuMemAlloc = [](CUdeviceptr *memory, size_t size) {
            EXPECT_GE(size, sizeof(words));
            *memory = (CUdeviceptr)words;
            return CUDA_SUCCESS;
        };
        driver.table.cuMemFree = [](CUdeviceptr) { return CUDA_SUCCESS; };
        driver.table.cuMemcpyHtoDAsync = [](CUdeviceptr dst, const void *src,
                                            size_t size, CUstream) {
            const size_t at = dst - (CUdeviceptr)words;

            EXPECT_LT(at, sizeof(words));
            memcpy((void*)dst, src, std::min(size, sizeof(words) - at));
            return CUDA_SUCCESS;
        };
        driver.table.cuMemcpyDtoHAsync = [](void *dst, CUdeviceptr src,
                                            size_t size, CUstream) {
            if (fake->fails("cuMemcpyDtoHAsync")) {
                return fake->fail_with;
            }
            for (unsigned i = 0; i < begun; ++i) {
                words[UCX_MP_COPY_OFF + i] =
                        UCX_MP_COPY_BEGUN(launched.back().serial);
            }
            memcpy(dst, (const void*)src, size);
            return CUDA_SUCCESS;
        };
        driver.table.cuStreamSynchronize    = [](CUstream) {
            return CUDA_SUCCESS;
        };
        driver.table.cuPointerGetAttributes = [](unsigned count,
                                                 CUpointer_attribute *names,
                                                 void **values,
                                                 CUdeviceptr address) {
            for (unsigned i = 0; i < count; ++i) {
                if (names[i] == CU_POINTER_ATTRIBUTE_DEVICE_POINTER) {
                    *(CUdeviceptr*)values[i] = reached ? address : 0;
                } else if (names[i] == CU_POINTER_ATTRIBUTE_CONTEXT) {
                    *(CUcontext*)values[i] = fake->context;
                }
            }
            return CUDA_SUCCESS;
        };
        reached = true;
    }

    static bool reached;
    static const CUfunction any, alike;

    static void run(const Launch &launch)
    {
        for (size_t i = 0; i < launch.dst.size(); ++i) {
            memcpy(launch.dst[i], launch.src[i], launch.size[i]);
        }
    }

    /* Post a list: more blocks follow for certain. */
    void post_list(unsigned first, unsigned last, unsigned odd = UINT_MAX)
    {
        for (unsigned i = first; i < last; ++i) {
            const uct_cuda_copy_t copy = block(i, i * 512, i * 768,
                                               (i == odd) ? 255 : 256);

            memset(local + i * 512, 1 + (int)i, 256);
            if (!uct_cuda_copy_coalesce_follow(&coalescer, &copy, i + 1 < last,
                                               i > first)) {
                ASSERT_EQ(UCS_INPROGRESS,
                          uct_cuda_copy_coalesce_add(&coalescer, stream, 0,
                                                     &copy, i + 1 < last));
            }
        }
        uct_cuda_queue_submit_coalesced(&iface.queue, true);
    }

    /* Post blocks of 256 bytes with gaps, behind a running operation. */
    void post_many(unsigned first, unsigned last)
    {
        for (unsigned i = first; i < last; ++i) {
            memset(local + i * 512, 1 + (int)i, 256);
            ASSERT_EQ(UCS_INPROGRESS, post(i, i * 512, i * 1024, 256));
        }
    }

    void expect_there(unsigned count)
    {
        for (unsigned i = 0; i < count; ++i) {
            ASSERT_EQ(0, memcmp(remote + i * 1024, local + i * 512, 256)) << i;
            ASSERT_EQ('r', remote[i * 1024 + 256]) << i;
        }
    }

    static bool is_off(const Launch &launch)
    {
        return words[launch.serial % UCX_MP_COPY_OFF] == launch.serial;
    }

    /* Let warps announce their end; no further one begins. */
    static void end(const Launch &launch, unsigned from, unsigned to,
                    bool has_copied = true)
    {
        begun = 0;
        for (unsigned i = from; i < to; ++i) {
            words[UCX_MP_COPY_OFF + i] =
                    has_copied ? UCX_MP_COPY_COPIED(launch.serial) :
                                 UCX_MP_COPY_NOTHING(launch.serial);
        }
    }

    /* Post 128 blocks from `first` on behind others. @return Their kernel */
    CUevent post_kernel(unsigned first = 0)
    {
        occupy();
        post_many(first, first + 128);
        return stream->tail->event;
    }

    /* Complete everything but the kernels, idle for a while. */
    void lose_patience(std::vector<CUevent> kernels)
    {
        driver.done = driver.events;
        for (auto kernel : kernels) {
            driver.done.erase(kernel);
        }
        usleep(5000);
    }
};

std::vector<CoalesceKernel::Launch> CoalesceKernel::launched;
const CUfunction CoalesceKernel::any = (CUfunction)2;
const CUfunction CoalesceKernel::alike = (CUfunction)3;
uint64_t CoalesceKernel::words[UCX_MP_COPY_OFF + warps];
unsigned CoalesceKernel::begun;
bool CoalesceKernel::reached;

/* The program may have written to it by a copy that returned early. Posting a
   block by itself, or the first one of a group, waits for that. */
TEST_F(Coalesce, memory_without_context_is_synchronized_once_per_group)
{
    is_owned = false;
    occupy();
    ASSERT_EQ(UCS_INPROGRESS, post(0, 0, 0, 256));
    for (unsigned i = 1; i < 6; ++i) {
        const uct_cuda_copy_t copy = block(i, 512 * i, 1024 * i, 256);
        EXPECT_TRUE(
            uct_cuda_copy_coalesce_follow(&coalescer, &copy, false, false));
    }
    driver.records = 0;
    finish();
    EXPECT_EQ(2u, driver.records) << "of the legacy stream, and of the copies";
    expect_reported(6, UCS_OK);
}

TEST_F(Coalesce, a_list_or_a_read_of_memory_without_context_needs_no_more)
{
    is_owned = false;
    for (bool is_put : {true, false}) {
        const uct_cuda_copy_t copy = block(1, 512, 1024, 256, is_put);

        SetUpReported();
        occupy();
        ASSERT_EQ(UCS_INPROGRESS, post(0, 0, 0, 256, is_put));
        EXPECT_TRUE(
            uct_cuda_copy_coalesce_follow(&coalescer, &copy, false, is_put));
        driver.records = 0;
        finish();
        EXPECT_EQ(1u, driver.records) << is_put;
        expect_reported(2, UCS_OK);
    }
}

/* Its copies are not seen from the group's context. */
TEST_F(Coalesce, memory_without_context_is_queried_per_block_in_others)
{
    const uct_cuda_copy_t copy = block(1, 512, 1024, 256);

    is_owned = false;
    occupy();
    ASSERT_EQ(UCS_INPROGRESS, post(0, 0, 0, 256));
    driver.table.cuCtxGetCurrent = [](CUcontext *context_p) {
        *context_p = (CUcontext)77;
        return CUDA_SUCCESS;
    };
    EXPECT_FALSE(
        uct_cuda_copy_coalesce_follow(&coalescer, &copy, false, false));
    EXPECT_TRUE(uct_cuda_copy_coalesce_follow(&coalescer, &copy, false, true));
}

TEST_F(CoalesceKernel, the_kernel_copies_many_small_blocks)
{
    occupy();
    post_many(0, 256);
    finish();
    ASSERT_EQ(2u, launched.size());
    EXPECT_EQ(0u, driver.batches + driver.singles);
    EXPECT_EQ(0, std::count_if(std::begin(words), std::end(words),
                               [](uint64_t word) { return word != 0; }))
            << "zeros, before the first launch";
    EXPECT_EQ(launched[0].serial + 1, launched[1].serial);
    run(launched[0]);
    run(launched[1]);
    expect_reported(256, UCS_OK);
    expect_there(256);
}

/* Blocks of equal size in a list share one launch; a block of another size is
   launched with as many as fit the general kernel */
TEST_F(CoalesceKernel, a_list_of_equal_blocks_shares_a_launch)
{
    occupy();
    post_many(0, 64);
    finish();
    launched.clear();
    driver.batches = 0;

    post_list(64, 964);
    finish();
    ASSERT_GE(launched.size(), 2u);
    size_t largest = 0, sum = 0;
    for (const auto &launch : launched) {
        EXPECT_TRUE(launch.is_uniform);
        largest = std::max(largest, launch.dst.size());
        sum    += launch.dst.size();
        run(launch);
    }
    EXPECT_EQ(480u, largest);
    EXPECT_EQ(900u, sum);
    EXPECT_EQ(0u, driver.batches);
    expect_reported(964, UCS_OK);

    launched.clear();
    post_list(1000, 1300, 1040);
    finish();
    sum = 0;
    for (const auto &launch : launched) {
        if (!launch.is_uniform) {
            EXPECT_LE(launch.dst.size(), 128u);
        }
        sum += launch.dst.size();
        run(launch);
    }
    EXPECT_EQ(300u, sum);
    EXPECT_EQ(255, std::count(remote + 1040 * 768, remote + 1040 * 768 + 256,
                              (uint8_t)(1 + 1040)));
}

/* Addresses outside the range of the kernel for equal blocks */
TEST_F(CoalesceKernel, distant_or_unaligned_blocks_use_the_general_kernel)
{
    const CUdeviceptr far = 1ull << 40;
    uct_cuda_copy_list_t list;

    for (int64_t offset : {16ll, -16ll, -(16ll << 31), (16ll << 31) - 16}) {
        list.count = 0;
        uct_cuda_copy_list_add(&list, far, far, 8, false);
        uct_cuda_copy_list_add(&list, far + offset, far - 64, 8, true);
        EXPECT_TRUE(list.is_uniform) << offset;
    }
    for (int64_t offset : {8ll, 16ll << 31, -(16ll << 31) - 16}) {
        list.count = 0;
        uct_cuda_copy_list_add(&list, far, far, 8, false);
        uct_cuda_copy_list_add(&list, far + offset, far - 64, 8, false);
        EXPECT_FALSE(list.is_uniform) << offset;
    }
    list.count = 0;
    uct_cuda_copy_list_add(&list, far, far, 8, false);
    uct_cuda_copy_list_add(&list, far + 8, far + 8, 8, true);
    EXPECT_EQ(1u, list.count);
    EXPECT_TRUE(list.is_uniform) << "one is";
    uct_cuda_copy_list_add(&list, far + 32, far + 32, 8, true);
    EXPECT_FALSE(list.is_uniform) << "another length";
}

TEST_F(CoalesceKernel, the_kernel_is_not_used_if_unsuitable_or_off)
{
    reached = false;
    occupy();
    post_many(0, 128);
    finish();
    EXPECT_EQ(1u, driver.batches);

    reached = true;
    occupy();
    post_many(128, 131);
    finish();
    EXPECT_EQ(2u, driver.batches);

    coalescer.kernel_blocks = 0;
    occupy();
    post_many(131, 259);
    finish();
    EXPECT_EQ(3u, driver.batches);
    EXPECT_TRUE(launched.empty());
    expect_reported(259, UCS_OK);
    expect_there(259);
}

TEST_F(CoalesceKernel, a_failed_launch_is_replaced_by_copies)
{
    driver.fail = "cuLaunchKernel";
    occupy();
    post_many(0, 128);
    finish();
    EXPECT_EQ(1u, driver.batches);
    expect_reported(128, UCS_OK);
    expect_there(128);
}

/* The program keeps the GPU full: copies replace the kernel, and no kernel
   follows until the cancelled one has run; started parts are waited for */
TEST_F(CoalesceKernel, a_launch_without_room_is_cancelled)
{
    unsigned first = 0;

    /* none, a few, and more than the bits of a word */
    for (unsigned share : {0u, 3u, 67u}) {
        uct_cuda_queue_t *queue = &iface.queue;

        launched.clear();
        driver.batches = 0;
        begun   = share;
        const CUevent kernel = post_kernel(first);
        ASSERT_EQ(1u, launched.size());

        lose_patience({kernel});
        uct_cuda_queue_progress(queue);
        EXPECT_TRUE(is_off(launched[0]));
        EXPECT_EQ(1u, driver.batches) << "copies in its place";

        occupy(1);
        post_many(300 + first, 300 + first + 128);
        EXPECT_EQ(1u, launched.size()) << "no room yet";
        EXPECT_EQ(2u, driver.batches);

        driver.done = driver.events;
        uct_cuda_queue_progress(queue);
        EXPECT_EQ((share > 0) ? 0u : 1u, reported[first].count);
        end(launched[0], share, share + 1, false);
        uct_cuda_queue_progress(queue);
        EXPECT_EQ((share > 0) ? 0u : 1u, reported[first].count)
                << "one that began later is none of those";
        end(launched[0], std::min(1u, share), share - std::min(1u, share));
        uct_cuda_queue_progress(queue);
        EXPECT_EQ((share > 0) ? 0u : 1u, reported[first].count)
                << "the first of them is still there, and the last";
        end(launched[0], 0, share - std::min(1u, share));
        uct_cuda_queue_progress(queue);
        EXPECT_EQ((share > 0) ? 0u : 1u, reported[first].count)
                << "the last of them is still there";
        end(launched[0], 0, share);
        finish();
        EXPECT_EQ(1u, reported[first].count);
        EXPECT_EQ(UCS_OK, reported[first].comp.status);
        expect_there(first + 128);
        first += 128;
    }
}

/* All of it has begun: it ends by itself */
TEST_F(CoalesceKernel, a_running_launch_is_waited_for)
{
    uct_cuda_queue_t *queue = &iface.queue;

    const CUevent kernel = post_kernel();
    begun = warps;
    lose_patience({kernel});
    uct_cuda_queue_progress(queue);
    uct_cuda_queue_progress(queue);
    EXPECT_EQ(0u, driver.batches);
    EXPECT_EQ(0u, reported[0].count);
    end(launched[0], 0, warps);
    finish();
    EXPECT_EQ(0u, driver.batches);
    expect_reported(128, UCS_OK);
}

/* A warp announces its start and then sees the cancellation, while the host
   cancels and then sees the warp's start */
TEST_F(CoalesceKernel, blocks_of_a_cancelled_launch_are_copied)
{
    uct_cuda_queue_t *queue = &iface.queue;

    const CUevent kernel = post_kernel();
    begun = warps;
    lose_patience({kernel});
    uct_cuda_queue_progress(queue);
    EXPECT_EQ(0u, driver.batches);
    end(launched[0], 0, warps);
    end(launched[0], 5, 6, false);
    finish(); /* queried, copied */
    finish();
    EXPECT_EQ(1u, driver.batches);
    expect_reported(128, UCS_OK);
    expect_there(128);
}

/* Launches of two streams are cancelled, the later one first: neither resets
   the other's cancellation, nor believes that the other has run */
TEST_F(CoalesceKernel, launches_are_cancelled_separately)
{
    uct_cuda_queue_t *queue  = &iface.queue;
    uct_cuda_stream_t *first = stream;
    std::vector<CUevent> kernels;

    occupy();
    post_many(0, 128);
    kernels.push_back(stream->tail->event);
    ASSERT_EQ(UCS_OK, uct_cuda_queue_stream(queue, 1, &stream));
    occupy();
    post_many(128, 256);
    kernels.push_back(stream->tail->event);
    ASSERT_EQ(2u, launched.size());
    ASSERT_NE(kernels[0], kernels[1]);

    lose_patience(kernels);
    uct_cuda_queue_progress(queue);
    uct_cuda_queue_progress(queue);
    EXPECT_TRUE(is_off(launched[0]));
    EXPECT_TRUE(is_off(launched[1]));
    EXPECT_EQ(2u, driver.batches);
    finish();
    expect_reported(256, UCS_OK);
    expect_there(256);
    stream = first;
}

/* The driver fails during the cancellation, with or without having written it:
   earlier announcements of an end are not trusted */
TEST_F(CoalesceKernel, a_failed_cancellation_is_repeated)
{
    uct_cuda_queue_t *queue = &iface.queue;

    const CUevent kernel = post_kernel();
    driver.fail = "cuMemcpyDtoHAsync";
    lose_patience({kernel});
    uct_cuda_queue_progress(queue);
    EXPECT_TRUE(is_off(launched[0]));
    EXPECT_EQ(0u, driver.batches);
    EXPECT_EQ(0u, reported[0].count);

    driver.fail.clear();
    end(launched[0], 0, warps, false);
    finish(); /* cancelled, queried, copied */
    finish();
    finish();
    EXPECT_EQ(1u, driver.batches);
    expect_reported(128, UCS_OK);
    expect_there(128);
}

/* Whether a kernel can access the memory costs two queries */
TEST_F(CoalesceKernel, only_a_group_for_a_kernel_is_queried)
{
    static unsigned queries;
    static decltype(driver.table.cuPointerGetAttributes) real;
    unsigned first = 0;

    real = driver.table.cuPointerGetAttributes;
    driver.table.cuPointerGetAttributes = [](unsigned count,
                                             CUpointer_attribute *names,
                                             void **values,
                                             CUdeviceptr address) {
        ++queries;
        return real(count, names, values, address);
    };
    for (unsigned count : {128u, 3u, 4u}) {
        occupy();
        queries = 0;
        post_many(first, first + count);
        uct_cuda_queue_submit_coalesced(&iface.queue, true);
        EXPECT_EQ((count > 3) ? 2u : 0u, queries) << count;
        finish();
        first += count;
    }
}

/* One thread posts and another makes progress: groups grow while blocks arrive,
   and are submitted when they stop */
TEST_F(CoalesceKernel, progress_of_another_thread_does_not_split_a_group)
{
    occupy();
    post_many(0, 20);
    std::thread([&]() {
        end_one();
        uct_cuda_queue_submit_coalesced(&iface.queue, false);
    }).join();
    const unsigned early = driver.batches + (unsigned)launched.size();
    usleep(200);
    std::thread([&]() {
        uct_cuda_queue_submit_coalesced(&iface.queue, false);
    }).join();
    EXPECT_EQ(1u, driver.batches + launched.size());
    EXPECT_LE(early, 1u); /* a busy machine may delay a thread */
    finish();
    expect_reported(20, UCS_OK);
}
