/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Large copies between host and GPU memory of one process: correct bytes by one
 * path and by several, with and without page-locking, and after a failure of
 * any driver call.
 */
#include "fake_node.h"
#include "nodes.h"

extern "C" {
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/host/host_pipeline.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/copy/method.h>
#include <uct/cuda/cuda_copy/cuda_copy_ep.h>
#include <uct/cuda/cuda_copy/cuda_copy_mem.h>
#include <uct/cuda/process_settings.h>
}

#include <algorithm>
#include <climits>
#include <cstring>
#include <memory>
#include <random>
#include <vector>


/* The parameter: direction is to the GPU */
class test_copy_host : public ::testing::TestWithParam<bool>
{
protected:
    static const int gpu = 1;

    test_copy_host() : m_random(5)
    {
        m_config.set("", "y").set("_PATHS", "direct,gpu2,gpu3");
        m_config.set("_SHARES", "2,1,1").set("_STAGING_SIZE", "1m");
        m_config.set("_LEDGER", "n");
    }

    void SetUp() override
    {
        uct_cuda_host_pipeline_enable(0); /* tested separately */
        set_node(1);
    }

    void TearDown() override
    {
        destroy();
        uct_cuda_topo_override(NULL);
        uct_cuda_log_set(NULL, UCT_CUDA_LOG_WARN);
        uct_cuda_host_pipeline_enable(UCT_CUDA_HOST_PIPELINE_AUTO);
    }

    void set_node(unsigned seed)
    {
        destroy();
        m_topo = mesh_node(4, 24 * GB, 12 * GB);
        uct_cuda_topo_override(&m_topo);
        m_node.reset();
        m_node.reset(new FakeNode(4, seed));
        ASSERT_EQ(UCS_OK, uct_cuda_ctx_retain(gpu, false, &m_context));
        ASSERT_EQ(UCS_OK, uct_cuda_ctx_push(m_context));
        ASSERT_EQ(UCS_OK, uct_cuda_queue_init(&m_queue, 16, UINT_MAX));
        ASSERT_EQ(UCS_OK, uct_cuda_mp_engine_create(m_config, &m_engine));
    }

    void destroy()
    {
        if (!m_node) {
            return;
        }

        uct_cuda_queue_cleanup(&m_queue);
        uct_cuda_mp_engine_destroy(m_engine);
        uct_cuda_ctx_pop();
        uct_cuda_ctx_release(gpu);
        EXPECT_EQ("", m_node->leaks());
        for (const std::string &complaint : m_node->complaints) {
            ADD_FAILURE() << complaint;
        }
        m_node.reset();
    }

    struct Completion {
        uct_completion_t super;
        bool             is_done;
    };

    struct Copy {
        uint8_t                     *src, *dst;
        size_t                      size;
        ucs_status_t                status;   /* status of the start */
        bool                        is_split; /* copied over several paths */
        std::shared_ptr<Completion> comp;
    };

    /* Post a copy between this host memory and the GPU's. */
    Copy start(uint8_t *host, size_t size, bool has_engine = true)
    {
        const uct_cuda_end_t host_end = uct_cuda_end_host();
        const uct_cuda_end_t gpu_end  = uct_cuda_end_gpu(gpu);
        uct_cuda_copy_t description;
        uint8_t *other                = m_node->alloc(gpu, size);
        uct_cuda_stream_t *stream;
        uct_cuda_op_t *op;
        Copy copy;

        copy.src  = GetParam() ? host : other;
        copy.dst  = GetParam() ? other : host;
        copy.size = size;
        FakeNode::fill(copy.src, size, m_random());
        memset(copy.dst, 0, size);

        uct_cuda_copy_init(&description, copy.src, NULL, (uintptr_t)copy.dst,
                           size, true, NULL);
        description.local.end      = GetParam() ? host_end : gpu_end;
        description.remote.end     = GetParam() ? gpu_end : host_end;
        description.local.context  = m_may_split ? m_context : NULL;
        description.remote.context = m_may_split ? m_context : NULL;

        copy.status = uct_cuda_queue_stream(&m_queue, 0, &stream);
        if (copy.status != UCS_OK) {
            return copy;
        }
        copy.status = uct_cuda_op_get(stream, &op);
        if (copy.status != UCS_OK) {
            return copy;
        }
        copy.status = uct_cuda_copy_start(op, &description,
                                          has_engine ? m_engine : NULL, gpu,
                                          false);
        if (copy.status != UCS_OK) {
            uct_cuda_op_put(op);
            return copy;
        }

        copy.comp.reset(new Completion());
        copy.comp->super.count = 1;
        copy.comp->super.func  = [](uct_completion_t *self) {
            ((Completion*)self)->is_done = true;
        };
        op->comp      = &copy.comp->super;
        copy.is_split = (op->method->name == std::string("the engine"));
        copy.status   = uct_cuda_op_post(&m_queue, op);
        return copy;
    }

    /* Wait until it ends; return its status. */
    ucs_status_t finish(const Copy &copy)
    {
        if (copy.status != UCS_INPROGRESS) {
            return copy.status;
        }
        while (!copy.comp->is_done) {
            uct_cuda_queue_progress(&m_queue);
        }
        return copy.comp->super.status;
    }

    bool arrived(const Copy &copy)
    {
        return memcmp(copy.src, copy.dst, copy.size) == 0;
    }

    /* Run a complete copy; return whether it used several paths. */
    bool transfer(uint8_t *host, size_t size, bool has_engine = true)
    {
        Copy copy = start(host, size, has_engine);

        EXPECT_EQ(UCS_INPROGRESS, copy.status);
        EXPECT_EQ(UCS_OK, finish(copy));
        EXPECT_TRUE(arrived(copy));
        return copy.is_split;
    }

    size_t bytes(int from, int to)
    {
        return m_node->copied[GetParam() ? std::make_pair(from, to) :
                                           std::make_pair(to, from)];
    }

    Config                    m_config;
    uct_cuda_topo_t           m_topo;
    std::unique_ptr<FakeNode> m_node;
    CUcontext                 m_context;
    uct_cuda_queue_t          m_queue;
    uct_cuda_mp_engine_t      *m_engine;
    bool                      m_may_split = true;
    std::mt19937              m_random;
};

TEST_P(test_copy_host, several_paths)
{
    EXPECT_TRUE(transfer(m_node->alloc(-1, 4 * MiB), 4 * MiB));
    EXPECT_EQ(2 * MiB, bytes(-1, gpu));
    EXPECT_EQ(MiB, bytes(-1, 2));
    EXPECT_EQ(MiB, bytes(2, gpu));
    EXPECT_EQ(MiB, bytes(-1, 3));
    EXPECT_EQ(MiB, bytes(3, gpu));
}

TEST_P(test_copy_host, one_path)
{
    /* Too small; no engine; memory that peers may be unable to reach */
    EXPECT_FALSE(transfer(m_node->alloc(-1, MiB), MiB));
    EXPECT_FALSE(transfer(m_node->alloc(-1, 4 * MiB), 4 * MiB, false));
    m_may_split = false;
    EXPECT_FALSE(transfer(m_node->alloc(-1, 4 * MiB), 4 * MiB));
    m_may_split = true;
    m_config.set("", "n");
    set_node(1);
    EXPECT_FALSE(transfer(m_node->alloc(-1, 4 * MiB), 4 * MiB));
    EXPECT_EQ(4 * MiB, bytes(-1, gpu));
}

TEST_P(test_copy_host, pageable)
{
    EXPECT_FALSE(transfer(m_node->alloc_pageable(4 * MiB), 4 * MiB));
    EXPECT_EQ(4 * MiB, bytes(-1, gpu));
}

/* Memory whose parts are locked separately, and a part that is not locked */
TEST_P(test_copy_host, pieces)
{
    uint8_t *host = m_node->alloc(-1, 6 * MiB);

    m_node->split(host, 1234567);
    m_node->split(host + 1234567, MiB);
    EXPECT_TRUE(transfer(host, 6 * MiB));
    EXPECT_TRUE(transfer(host + 17, 6 * MiB - 4711));
    EXPECT_FALSE(transfer(host, 6 * MiB, false));

    /* Registered by UCX for the program, in one piece */
    uint8_t *pages = m_node->alloc_pageable(4 * MiB);
    uct_cuda_copy_memh_t *memh;
    ASSERT_EQ(UCS_OK,
              uct_cuda_copy_mem_register(pages, 4 * MiB, false, &memh));
    EXPECT_TRUE(transfer(pages, 4 * MiB));
    uct_cuda_copy_mem_unregister(memh);
    EXPECT_FALSE(transfer(pages, 4 * MiB));
}

TEST_P(test_copy_host, many_at_once)
{
    for (unsigned seed = 1; seed <= 5; ++seed) {
        std::vector<Copy> window;

        set_node(seed);
        for (int i = 0; i < 6; ++i) {
            size_t size = 64 * KiB + m_random() % (5 * MiB);

            window.push_back(start(m_node->alloc(-1, size), size));
            ASSERT_EQ(UCS_INPROGRESS, window.back().status);
        }
        /* One stream: the last one ends last */
        EXPECT_EQ(UCS_OK, finish(window.back()));
        for (Copy &copy : window) {
            EXPECT_TRUE(arrived(copy));
        }
    }
}

/* For a failure of each call: the caller gets an error or every byte, nothing
   is written later, no resource stays in use, and the next copy works */
TEST_P(test_copy_host, every_call_fails_once)
{
    unsigned failures = 0;
    unsigned calls;

    uct_cuda_log_set([](uct_cuda_log_level_t, const char*, unsigned,
                        const char*, const char*) {}, UCT_CUDA_LOG_ERROR);
    m_config.set("_CHUNKS", "3").set("_GRAPH", "n");
    set_node(1);
    calls = m_node->num_calls;
    transfer(m_node->alloc(-1, 2 * MiB), 2 * MiB);
    transfer(m_node->alloc(-1, 2 * MiB), 2 * MiB, false);
    calls = m_node->num_calls - calls;
    EXPECT_GT(calls, 50u);

    for (unsigned n = 1; n <= calls; ++n) {
        set_node(n);
        m_node->fail_call(n);
        for (bool has_engine : {true, false}) {
            uint8_t *host = m_node->alloc(-1, 2 * MiB + 4096);

            m_node->split(host, 300 * KiB);
            Copy copy           = start(host + 5, 2 * MiB + 17, has_engine);
            ucs_status_t status = finish(copy);
            std::vector<uint8_t> seen(copy.dst, copy.dst + copy.size);

            /* If the driver cannot be queried, all work counts as ended, as
               with a destroyed context */
            m_node->run_all();
            EXPECT_TRUE((m_node->failed_function == "cuEventQuery") ||
                        (memcmp(seen.data(), copy.dst, copy.size) == 0))
                    << "written after the end";
            if (status == UCS_OK) {
                EXPECT_TRUE(arrived(copy));
            } else {
                ++failures;
            }
        }

        m_node->fail_call(0);
        transfer(m_node->alloc(-1, 2 * MiB), 2 * MiB);
        if (HasFailure()) {
            FAIL() << "when call " << n << ", " << m_node->failed_function
                   << ", failed";
        }
    }

    EXPECT_GT(failures, 3u);
}

/* An endpoint's copy: UCP sees no failure that has a fallback, also if the
   driver refuses to copy all of the memory at once */
TEST_P(test_copy_host, failures_fall_back)
{
    const size_t size = 2 * MiB + 17;
    unsigned n        = 0;

    uct_cuda_log_set([](uct_cuda_log_level_t, const char*, unsigned,
                        const char*, const char*) {}, UCT_CUDA_LOG_ERROR);
    uct_cuda_settings_t settings = {};
    settings.host_zcopy          = true;
    settings.cache_max_regions   = ULONG_MAX;
    settings.cache_max_size      = SIZE_MAX;
    uct_cuda_settings_open(&settings);
    uct_cuda_settings_close(); /* stays in effect */
    for (const char *function :
         {"none", "cuStreamCreate", "cuEventCreate", "cuMemcpyHtoDAsync",
          "cuMemcpyDtoHAsync", "cuEventRecord"}) {
        uct_cuda_copy_iface_t iface = {};
        uct_ep_t ep                 = {(uct_iface_h)&iface};
        Completion comp             = {};
        ucs_status_t status;

        set_node(++n);
        uint8_t *host  = m_node->alloc(-1, size);
        uint8_t *other = m_node->alloc(gpu, size);
        uint8_t *src   = GetParam() ? host : other;

        /* At the end of a page, as for all registrations */
        m_node->split(host, MiB - ((uintptr_t)host % 4096));
        memset(host, 1, size);
        memset(other, 2, size);
        src[0]                  = 3;
        src[size - 1]           = 4;
        std::vector<uint8_t> sent(src, src + size);
        uct_iov_t iov           = {};
        iov.buffer              = host;
        iov.length              = size;
        iov.count               = 1;
        comp.super.count        = 1;
        comp.super.func         = [](uct_completion_t *self) {
            ((Completion*)self)->is_done = true;
        };

        ASSERT_EQ(UCS_OK,
                  uct_cuda_queue_init(&iface.super.queue, 16, UINT_MAX));
        m_node->fail_function = function;
        m_node->fail_call(1);
        status = GetParam() ?
                         uct_cuda_copy_ep_put_zcopy(&ep, &iov, 1,
                                                    (uintptr_t)other, 0,
                                                    &comp.super) :
                         uct_cuda_copy_ep_get_zcopy(&ep, &iov, 1,
                                                    (uintptr_t)other, 0,
                                                    &comp.super);
        m_node->fail_call(0);
        if (status == UCS_INPROGRESS) {
            while (!comp.is_done) {
                uct_cuda_queue_progress(&iface.super.queue);
            }
            status = comp.super.status;
        }
        EXPECT_EQ(UCS_OK, status) << function;
        EXPECT_EQ(0, memcmp(sent.data(), GetParam() ? other : host, size))
                << function;
        uct_cuda_queue_cleanup(&iface.super.queue);
    }
}

INSTANTIATE_TEST_SUITE_P(directions, test_copy_host, ::testing::Bool(),
                         [](const ::testing::TestParamInfo<bool> &info) {
                             return info.param ? "to_gpu" : "from_gpu";
                         });
