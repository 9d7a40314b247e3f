/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine and its two executors on a fake driver: correct bytes in every
 * order, no leaks, a fallback after any failure.
 */
#include "fake_node.h"
#include "nodes.h"
#include "process.h"

#include <uct/cuda/multipath/admit.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/copy/method.h>
#include <uct/cuda/multipath/history.h>
#include <uct/cuda/multipath/multipath.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <unistd.h>
#include <vector>


static std::vector<std::string> messages; /* also of threads of the module */
static std::mutex messages_lock;

static void keep_message(uct_cuda_log_level_t level, const char *, unsigned,
                         const char *, const char *message)
{
    if (level <= uct_cuda_log_level) {
        std::lock_guard<std::mutex> guard(messages_lock);
        messages.push_back(std::string(1, "EWIDT"[level]) + " " + message);
    }
}

static unsigned count_messages(const std::string &part)
{
    std::lock_guard<std::mutex> guard(messages_lock);

    return (unsigned)std::count_if(messages.begin(), messages.end(),
                                   [&](const std::string &message) {
                                       return message.find(part) !=
                                              std::string::npos;
                                   });
}


/* The parameter is MULTIPATH_GRAPH */
class test_engine : public ::testing::TestWithParam<const char*>
{
protected:
    test_engine() : m_random(99)
    {
        messages.clear();
        uct_cuda_log_set(keep_message, UCT_CUDA_LOG_INFO);
        /* Small staging memory, so that slots are reused many times */
        m_config.set("", "y").set("_STAGING_SIZE", "1m");
        m_config.set("_MIN_SIZE", "64k").set("_LEDGER", "n");
        m_config.set("_GRAPH", GetParam());
        set_node(beluga(), 4);
    }

    ~test_engine()
    {
        destroy();
        uct_cuda_topo_override(NULL);
        uct_cuda_log_set(NULL, UCT_CUDA_LOG_WARN);
    }

    /* Run a plain copy to its end. */
    void go_before(int src, int dst)
    {
        uct_cuda_mp_single_end(m_engine,
                               uct_cuda_mp_single_begin(m_engine, End(src),
                                                        End(dst), 64 * MiB));
    }

    /* Run enough plain copies to show that the host path is not contended. */
    void prove(int src, int dst)
    {
        for (int i = 0; i < UCT_CUDA_PLAN_HOST_PROOF; ++i) {
            go_before(src, dst);
        }
    }

    void set_node(const uct_cuda_topo_t &topo, int num_gpus, unsigned seed = 1)
    {
        destroy();
        m_topo = topo;
        uct_cuda_topo_override(&m_topo);
        m_node.reset(); /* one at a time */
        m_node.reset(new FakeNode(num_gpus, seed));
    }

    /* Use default settings on another node, with a ledger's folder or "n". */
    void use_defaults(const uct_cuda_topo_t &topo, const char *ledger = "n")
    {
        m_config = Config();
        m_config.set("_LEDGER", ledger);
        set_node(topo, 4);
    }

    void create()
    {
        ASSERT_EQ(UCS_OK, uct_cuda_mp_engine_create(m_config, &m_engine));
    }

    void destroy()
    {
        if (m_engine != NULL) {
            uct_cuda_mp_engine_destroy(m_engine);
            m_engine = NULL;
            EXPECT_EQ("", m_node->leaks());
        }
        if (m_node) {
            for (const std::string &complaint : m_node->complaints) {
                ADD_FAILURE() << complaint;
            }
        }
    }

    /* Both arguments of a start */
    struct request_t : uct_cuda_run_request_t, uct_cuda_run_memory_t {
    };

    struct Transfer {
        request_t              request;
        uct_cuda_mp_transfer_t *transfer;
        ucs_status_t           status;
    };

    void fill(void *from, void *to, size_t size)
    {
        FakeNode::fill(from, size, m_random());
        memset(to, 0, size);
    }

    /* Return a transfer of new memory that is not started. */
    Transfer make(int src, int dst, size_t size, size_t offset = 0)
    {
        Transfer t    = {};
        uint8_t *from = m_node->alloc(src, size + offset);
        uint8_t *to   = m_node->alloc(dst, size + offset);

        fill(from, to, size + offset);

        t.request.src        = (CUdeviceptr)from + offset;
        t.request.dst        = (CUdeviceptr)to + offset;
        t.request.src_end    = End(src);
        t.request.dst_end    = End(dst);
        t.request.size       = size;
        return t;
    }

    void start(Transfer &t)
    {
        t.status = uct_cuda_mp_start(m_engine, &t.request, &t.request,
                                     &t.transfer);
    }

    Transfer start(int src, int dst, size_t size, size_t offset = 0)
    {
        Transfer t = make(src, dst, size, offset);

        start(t);
        return t;
    }

    /* Run `count` transfers at the same time. */
    void window(int count)
    {
        std::vector<Transfer> transfers;

        for (int i = 0; i < count; ++i) {
            transfers.push_back(start(0, 1, MiB));
            ASSERT_NE(nullptr, transfers.back().transfer);
        }
        for (Transfer &t : transfers) {
            wait(t);
        }
    }

    uct_cuda_plan_reason_t admit(End src, End dst, size_t size)
    {
        request_t request = {};

        request.src_end = src;
        request.dst_end = dst;
        request.size    = size;
        return uct_cuda_mp_admit(m_engine, &request);
    }

    bool may_split(End src, End dst, size_t size)
    {
        return admit(src, dst, size) == UCT_CUDA_PLAN_ADMITTED;
    }

    /* Expect that a transfer between these is left to the caller. */
    void expect_not_ours(int src, int dst)
    {
        uct_cuda_mp_transfer_t *transfer = (uct_cuda_mp_transfer_t*)1;
        request_t request    = {};

        request.src        = 4096;
        request.dst        = 1 << 30;
        request.src_end    = End(src);
        request.dst_end    = End(dst);
        request.size       = 64 * MiB;

        EXPECT_EQ(UCS_OK, uct_cuda_mp_start(m_engine, &request, &request,
                                            &transfer));
        EXPECT_EQ(nullptr, transfer);
    }

    bool arrived(const Transfer &t)
    {
        return memcmp((void*)t.request.src, (void*)t.request.dst,
                      t.request.size) == 0;
    }

    static void await(uct_cuda_mp_transfer_t *transfer)
    {
        ucs_status_t status;

        do {
            status = uct_cuda_mp_test(transfer);
        } while (status == UCS_INPROGRESS);
        EXPECT_EQ(UCS_OK, status);
    }

    /* Finish a transfer with a peer. @return whether it used several paths */
    static bool await_peer(uct_cuda_mp_transfer_t *transfer, const void *local,
                           const void *remote, size_t size)
    {
        if (transfer == NULL) {
            return false;
        }

        await(transfer);
        EXPECT_EQ(0, memcmp(local, remote, size));
        uct_cuda_mp_release(transfer);
        return true;
    }

    void wait(Transfer &t)
    {
        await(t.transfer);
        EXPECT_TRUE(arrived(t)) << "completed with bytes missing";
        uct_cuda_mp_release(t.transfer);
    }

    /* Run a transfer over several paths from start to end. */
    void transfer(int src, int dst, size_t size, size_t offset = 0)
    {
        Transfer t = start(src, dst, size, offset);

        ASSERT_EQ(UCS_OK, t.status);
        ASSERT_NE(nullptr, t.transfer);
        wait(t);
    }

    /* Start eight transfers of one pair; expect all to end by the last one. */
    void expect_order(int src, int dst)
    {
        std::vector<Transfer> window;

        create();
        for (int i = 0; i < 8; ++i) {
            window.push_back(start(src, dst, (i % 2) ? 64 * KiB : MiB));
        }

        wait(window.back());
        for (int i = 0; i < 7; ++i) {
            EXPECT_EQ(UCS_OK, uct_cuda_mp_test(window[i].transfer));
            EXPECT_TRUE(arrived(window[i]));
            uct_cuda_mp_release(window[i].transfer);
        }
    }

    /* Start a dozen transfers between two of `ends`, -1 for the host, and
       finish them in another order; twenty times, on new nodes. */
    void expect_windows(std::vector<int> ends,
                        const std::function<void()> &check = [] {})
    {
        for (unsigned seed = 1; seed <= 20; ++seed) {
            std::vector<Transfer> window;

            set_node(beluga(), 4, seed);
            create();
            for (int i = 0; i < 12; ++i) {
                std::shuffle(ends.begin(), ends.end(), m_random);
                window.push_back(start(ends[0], ends[1],
                                       64 * KiB + m_random() % MiB));
                ASSERT_NE(nullptr, window.back().transfer);
            }
            std::shuffle(window.begin(), window.end(), m_random);
            for (Transfer &t : window) {
                wait(t);
            }
            check();
        }
    }

    void expect_one_transfer_a_link()
    {
        for (auto &link : m_node->most_at_once) {
            EXPECT_EQ(1u, link.second) << "from " << link.first.first << " to "
                                       << link.first.second;
        }
    }

    /* Count the callback. */
    void notify(const Transfer &t, int *calls)
    {
        EXPECT_EQ(UCS_OK, uct_cuda_mp_notify(
                                  t.transfer,
                                  [](void *arg) { ++*(int*)arg; }, calls));
    }

    size_t bytes(int from, int to)
    {
        return m_node->copied[{from, to}];
    }

    Config                    m_config;
    uct_cuda_topo_t           m_topo;
    std::unique_ptr<FakeNode> m_node;
    uct_cuda_mp_engine_t      *m_engine = NULL;
    std::mt19937              m_random;
};


TEST_P(test_engine, all_paths)
{
    m_config.set("_PATHS", "direct,gpu2,gpu3,host").set("_SHARES", "4,2,1,1");
    create();
    transfer(0, 1, MiB);
    EXPECT_EQ(MiB / 2, bytes(0, 1));
    EXPECT_EQ(MiB / 4, bytes(0, 2));
    EXPECT_EQ(MiB / 4, bytes(2, 1));
    EXPECT_EQ(MiB / 8, bytes(0, 3));
    EXPECT_EQ(MiB / 8, bytes(3, 1));
    EXPECT_EQ(MiB / 8, bytes(0, -1));
    EXPECT_EQ(MiB / 8, bytes(-1, 1));
}

TEST_P(test_engine, nothing_before_the_first_transfer)
{
    create();
    EXPECT_EQ(0u, m_node->num_calls);
    for (int i = 0; i < 4; ++i) {
        EXPECT_FALSE(m_node->has_context(i));
    }

    /* Too small: not even then */
    EXPECT_FALSE(uct_cuda_mp_may_split(m_engine, 64 * KiB - 1));
    EXPECT_TRUE(uct_cuda_mp_may_split(m_engine, 64 * KiB));

    m_config.set("_PATHS", "direct,gpu2");
    destroy();
    create();
    transfer(0, 1, MiB);
    EXPECT_TRUE(m_node->has_context(2));
    EXPECT_FALSE(m_node->has_context(3));
}

TEST_P(test_engine, sizes_and_alignments)
{
    create();
    for (int i = 0; i < 60; ++i) {
        int src = (int)(m_random() % 4);
        int dst = (src + 1 + (int)(m_random() % 3)) % 4;

        transfer(src, dst, 64 * KiB + m_random() % (2 * MiB),
                 m_random() % 512);
    }
}

TEST_P(test_engine, larger_than_a_plan)
{
    /* 4 MiB is the maximum of one plan */
    m_config.set("_PATHS", "direct,gpu2");
    create();
    transfer(0, 1, 9 * MiB + 12345);
    EXPECT_GT(bytes(0, 2), 3 * MiB);
}

TEST_P(test_engine, many_at_once)
{
    expect_windows({0, 1, 2, 3});
}

TEST_P(test_engine, one_pair_completes_in_order)
{
    expect_order(0, 1);
}

/* Copies of several transfers that share a link would all end late; tested for
   streams, graphs, and alternating */
TEST_P(test_engine, links_carry_one_transfer_at_a_time)
{
    m_config.set("_PATHS", "direct,gpu2,gpu3,host");
    for (unsigned seed = 1; seed <= 4; ++seed) {
        std::vector<Transfer> window;

        set_node(beluga(), 4, seed);
        create();
        for (int i = 0; i < 72; ++i) { /* at most 64 of them are graphs */
            window.push_back(start(i % 3 == 0 ? 3 : 0, 1, MiB));
            ASSERT_NE(nullptr, window.back().transfer);
        }
        for (Transfer &t : window) {
            wait(t);
        }
        expect_one_transfer_a_link();
        EXPECT_EQ(9u, m_node->most_at_once.size());
    }
}

/* One debug line per phase, in order, shows the life of a message */
TEST_P(test_engine, debug_messages_show_each_phase)
{
    const char *phases[] = {"D 1048576 bytes: admitted to planning",
                            "D gpu0 to gpu1, 1048576 bytes: ",
                            "D resources ready, after ",
                            "D transfer ", "D transfer "};
    size_t found         = 0;

    create();
    transfer(0, 1, MiB);
    EXPECT_EQ(0u, count_messages("D "));

    uct_cuda_log_set(keep_message, UCT_CUDA_LOG_DEBUG);
    messages.clear();
    transfer(0, 1, MiB);
    for (const std::string &message : messages) {
        ASSERT_LT(found, sizeof(phases) / sizeof(phases[0])) << message;
        EXPECT_EQ(0u, message.find(phases[found++])) << message;
    }

    EXPECT_EQ(sizeof(phases) / sizeof(phases[0]), found);
    EXPECT_EQ(1u, count_messages("submitted as "));
    EXPECT_EQ(1u, count_messages("ended after "));
    EXPECT_EQ(1u, count_messages("by the model, behind 0 others"));

    messages.clear();
    Transfer first = start(0, 1, MiB);
    Transfer next  = start(0, 1, MiB);
    wait(first);
    wait(next);
    EXPECT_EQ(1u, count_messages("behind 0 others"));
    EXPECT_EQ(1u, count_messages("behind 1 others"));
}

TEST_P(test_engine, release_waits)
{
    create();
    Transfer t = start(0, 1, MiB);

    uct_cuda_mp_release(t.transfer);
    EXPECT_TRUE(arrived(t));
}

TEST_P(test_engine, destroy_waits)
{
    create();
    Transfer t = start(0, 1, MiB);

    destroy();
    EXPECT_TRUE(m_node->is_idle());
    EXPECT_TRUE(arrived(t));
}

TEST_P(test_engine, notify)
{
    int calls = 0;

    create();
    Transfer t = start(0, 1, MiB);
    notify(t, &calls);
    EXPECT_EQ(0, calls);
    m_node->run_all();
    EXPECT_EQ(1, calls);
    EXPECT_TRUE(arrived(t));
    uct_cuda_mp_release(t.transfer);
}

/* A long transfer to another GPU does not delay it. A graph would wait for that
   one itself. */
TEST_P(test_engine, notifies_of_each_pair_at_its_end)
{
    int calls[2] = {0, 0};

    m_config.set("_PATHS", "direct,gpu3").set("_GRAPH", "n");
    create();
    m_node->stuck   = {0, 1};
    Transfer all[2] = {start(0, 1, MiB), start(0, 2, MiB)};

    for (int i = 0; i < 2; ++i) {
        notify(all[i], &calls[i]);
    }
    m_node->run_others();
    EXPECT_EQ(0, calls[0]);
    EXPECT_EQ(1, calls[1]);
    m_node->stuck = {-2, -2};
    m_node->run_all();
    EXPECT_EQ(1, calls[0]);
    for (Transfer &t : all) {
        uct_cuda_mp_release(t.transfer);
    }
}

/* Whichever path ends last */
TEST_P(test_engine, notifies_when_all_paths_are_done)
{
    m_config.set("_PATHS", "direct,gpu2,gpu3").set("_SHARES", "1,1,1");
    create();
    for (std::pair<int, int> last :
         {std::make_pair(0, 1), std::make_pair(2, 1), std::make_pair(3, 1)}) {
        int calls = 0;

        m_node->stuck = last;
        Transfer t    = start(0, 1, MiB);
        notify(t, &calls);
        m_node->run_others();
        EXPECT_EQ(0, calls) << "over GPU " << last.first;
        m_node->stuck = {-2, -2};
        m_node->run_all();
        EXPECT_EQ(1, calls);
        uct_cuda_mp_release(t.transfer);
    }
}

TEST_P(test_engine, threads)
{
    std::vector<std::thread> threads;
    std::vector<std::vector<Transfer>> started(4);

    create();
    for (int n = 0; n < 4; ++n) {
        for (int i = 0; i < 6; ++i) {
            started[n].push_back(make(n, (n + 1) % 4,
                                      100 * KiB * (size_t)(i + 1)));
        }
    }

    for (int n = 0; n < 4; ++n) {
        threads.emplace_back([&, n] {
            for (Transfer &t : started[n]) {
                start(t);
            }
            for (Transfer &t : started[n]) {
                while (uct_cuda_mp_test(t.transfer) == UCS_INPROGRESS) {
                }
                uct_cuda_mp_release(t.transfer);
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }

    for (auto &list : started) {
        for (Transfer &t : list) {
            EXPECT_EQ(UCS_OK, t.status);
            EXPECT_TRUE(arrived(t));
        }
    }
}

/* A peer's buffer, mapped by the test on demand as by a transport */
struct Peer {
    FakeNode         *node;
    uint8_t          *memory;
    std::vector<int> mapped_for;
    int              refuse     = -1;
    int              local      = -1; /* mapping in the caller's context */
    uint64_t         allocation = 0;

    static ucs_status_t map(void *arg, int device, CUdeviceptr *ptr_p)
    {
        Peer *self = (Peer*)arg;
        CUcontext current;

        uct_cuda_driver_get()->cuCtxGetCurrent(&current);
        EXPECT_EQ((device == self->local) ? 0u : (uintptr_t)(0x1000 + device),
                  (uintptr_t)current);
        if (device == self->refuse) {
            return UCS_ERR_UNREACHABLE;
        }

        self->mapped_for.push_back(device);
        *ptr_p = self->node->map_remote(self->memory, device);
        return UCS_OK;
    }
};

class test_engine_remote : public test_engine
{
protected:
    /* Transfer between the peer's GPU 1 and ours, or host memory in pieces that
       end at `cuts`. Checks the bytes. @return Whether several paths were
       used */
    bool exchange(bool is_put, size_t size, bool with_map = true,
                  const std::vector<size_t> &cuts = {})
    {
        request_t request = {};
        uct_cuda_mp_transfer_t *transfer;
        uint8_t *local = m_node->alloc(m_local, size);
        size_t begin   = 0;

        m_peer.node   = m_node.get();
        m_peer.memory = m_node->alloc_remote(1, size);
        m_peer.local  = m_local;
        m_peer.mapped_for.clear();
        fill(is_put ? local : m_peer.memory, is_put ? m_peer.memory : local,
             size);
        for (size_t cut : cuts) {
            m_node->split(local + begin, cut - begin);
            begin = cut;
        }

        /* The map function returns the remote end's pointer */
        (is_put ? request.src : request.dst)         = (CUdeviceptr)local;
        (is_put ? request.src_end : request.dst_end) = End(m_local);
        (is_put ? request.dst_end : request.src_end) = End(1);
        request.size                                 = size;
        request.host_numa                            = UCT_CUDA_TOPO_NO_NUMA;
        request.num_boundaries                       = (unsigned)cuts.size();
        request.boundaries                           = cuts.data();
        request.remote                               = End(1);
        request.map                                  = Peer::map;
        request.is_mappable                          = with_map;
        request.map_arg                              = &m_peer;
        request.allocation                           = m_peer.allocation;
        EXPECT_EQ(UCS_OK, uct_cuda_mp_start(m_engine, &request, &request,
                                            &transfer));
        if (!await_peer(transfer, local, m_peer.memory, size)) {
            return false;
        }

        /* it would cost 0.55 GB on the peer's GPU */
        EXPECT_EQ(m_may_use_peers_gpu, m_node->has_context(1));
        return true;
    }

    int m_local = 0; /* our GPU; HOST: host memory */
    Peer m_peer;
    bool m_may_use_peers_gpu = false;
};

TEST_P(test_engine_remote, put)
{
    m_config.set("_PATHS", "direct,gpu2,gpu3,host");
    create();
    /* The peer's GPU itself copies from the host */
    m_may_use_peers_gpu = true;
    EXPECT_TRUE(exchange(true, 2 * MiB + 12345));
    EXPECT_EQ((std::vector<int>{0, 2, 3, 1}), m_peer.mapped_for);
    EXPECT_GT(bytes(2, 1), 0u);
    EXPECT_GT(bytes(-1, 1), 0u);
}

TEST_P(test_engine_remote, get)
{
    m_config.set("_PATHS", "direct,gpu2,gpu3,host");
    create();
    /* The peer's GPU itself sends to relays and host */
    m_may_use_peers_gpu = true;
    EXPECT_TRUE(exchange(false, 2 * MiB + 12345));
    EXPECT_EQ((std::vector<int>{0, 1}), m_peer.mapped_for);
    EXPECT_GT(bytes(1, 2), 0u);
    EXPECT_GT(bytes(1, -1), 0u);
}

TEST_P(test_engine_remote, pieces_map_once)
{
    create();
    EXPECT_TRUE(exchange(true, 17 * MiB + 1));
    EXPECT_EQ((std::vector<int>{0, 2, 3}), m_peer.mapped_for);
}

TEST_P(test_engine_remote, both_directions_and_local_ones)
{
    create();
    for (int i = 0; i < 10; ++i) {
        EXPECT_TRUE(exchange(true, MiB + 7));
        /* The others have GPU 1 as sender, relay or end */
        m_may_use_peers_gpu = true;
        EXPECT_TRUE(exchange(false, MiB + 9));
        transfer(0, 2, MiB);
        transfer(3, 0, MiB);
        transfer(0, 1, MiB);
    }
}

TEST_P(test_engine_remote, refused_mapping)
{
    m_peer.refuse = 2;
    create();
    EXPECT_TRUE(exchange(true, MiB));
    EXPECT_EQ((std::vector<int>{0, 3}), m_peer.mapped_for);
    EXPECT_EQ(1u, count_messages("\"gpu2\""));
    /* Only its way to the peer's memory is dropped */
    m_may_use_peers_gpu = true;
    transfer(0, 2, MiB);
    EXPECT_GT(bytes(3, 2), 0u);
}

/* Freed memory does not disable a relay, even several allocations in a row */
TEST_P(test_engine_remote, refused_mapping_of_freed_memory)
{
    const std::vector<int> all = {0, 2, 3}, others = {0, 3};

    create();
    for (unsigned row : {2, 2, 3}) {
        for (unsigned i = 0; i < row; ++i) {
            ++m_peer.allocation;
            m_peer.refuse = 2;
            EXPECT_TRUE(exchange(true, MiB));
            EXPECT_EQ(others, m_peer.mapped_for);
            m_peer.refuse = -1;
            EXPECT_TRUE(exchange(true, MiB));
            EXPECT_EQ(others, m_peer.mapped_for);
        }
        ++m_peer.allocation;
        EXPECT_TRUE(exchange(true, MiB));
        EXPECT_EQ((row < 3) ? all : others, m_peer.mapped_for);
    }
}

/* A message over one path is not mapped first: neither in the local context */
TEST_P(test_engine_remote, declined_before_mapping)
{
    create();
    EXPECT_FALSE(exchange(true, 4 * KiB));
    EXPECT_TRUE(m_peer.mapped_for.empty()) << "too small";
    destroy();
    m_config.set("_PATHS", "direct,gpu1"); /* a relay for others */
    create();
    EXPECT_FALSE(exchange(true, MiB));
    EXPECT_TRUE(m_peer.mapped_for.empty()) << "by its plan";
}

/* The peer's memory may be gone: the path stays usable */
TEST_P(test_engine_remote, refused_in_the_local_context)
{
    m_peer.refuse = 0;
    create();
    EXPECT_FALSE(exchange(true, MiB));
    m_peer.refuse = -1;
    EXPECT_TRUE(exchange(true, MiB));
    EXPECT_GT(bytes(0, 1), 0u);
}

/* Every reason to decline in the first phase */
TEST_P(test_engine, reasons)
{
    uct_cuda_mp_thresholds_t thresholds = {};
    request_t request       = {};

    request.src_end = End(0);
    request.dst_end = End(1);
    request.size    = MiB;
    auto reason = [&] { return uct_cuda_mp_admit_by(&thresholds, &request); };

    EXPECT_EQ(UCT_CUDA_PLAN_ADMITTED, reason());
    thresholds.alone_min_size = 2 * MiB;
    EXPECT_EQ(UCT_CUDA_PLAN_NO_ALONE, reason());
    thresholds.window = 2;
    EXPECT_EQ(UCT_CUDA_PLAN_NO_ALONE, reason()) << "host memory's";
    thresholds.queued = 1;
    EXPECT_EQ(UCT_CUDA_PLAN_ADMITTED, reason());
    thresholds.behind_min_size = MiB + 1;
    EXPECT_EQ(UCT_CUDA_PLAN_NO_SMALL, reason());
    thresholds.queued         = 0;
    thresholds.alone_min_size = MiB;
    EXPECT_EQ(UCT_CUDA_PLAN_ADMITTED, reason()) << "alone";
    thresholds.min_size = MiB + 1;
    EXPECT_EQ(UCT_CUDA_PLAN_NO_SMALL, reason());
    request.remote = End(1);
    EXPECT_EQ(UCT_CUDA_PLAN_NO_MAPPING, reason());
    request.dst_end = End(0);
    EXPECT_EQ(UCT_CUDA_PLAN_NO_SAME_END, reason());
    request.dst_end = End(UCT_CUDA_MAX_GPUS);
    EXPECT_EQ(UCT_CUDA_PLAN_NO_INDEX, reason());
    request.dst_end = End(HIDDEN);
    EXPECT_EQ(UCT_CUDA_PLAN_NO_HIDDEN, reason());
    thresholds.is_off = true;
    EXPECT_EQ(UCT_CUDA_PLAN_NO_OFF, reason());
}

TEST_P(test_engine_remote, no_map_function)
{
    create();
    EXPECT_FALSE(exchange(true, MiB, false));
    /* The memory was the cause, not the relays */
    EXPECT_TRUE(exchange(true, MiB));

    destroy();
    m_config.set("_HOST", "y");
    create();
    EXPECT_FALSE(exchange(true, MiB, false));

    destroy();
    m_config.set("_PATHS", "gpu2,gpu3");
    create();
    EXPECT_FALSE(exchange(true, MiB, false));
}


/* Messages that one path carries best are left to the caller */
TEST_P(test_engine, transfers_left_to_the_caller)
{
    create();
    for (auto devices : std::vector<std::pair<int, int>>{{0, 0},
                                                         {-1, -1},
                                                         {-1, -2},
                                                         {-2, 1},
                                                         {0, -2},
                                                         {0, 7}}) {
        expect_not_ours(devices.first, devices.second);
    }
    EXPECT_EQ(1u, count_messages("not visible"));
}

/* Transports ask before they start */
TEST_P(test_engine, a_hidden_peer_is_reported_once)
{
    create();
    EXPECT_EQ(UCT_CUDA_PLAN_NO_HIDDEN, admit(0, HIDDEN, 64 * MiB));
    EXPECT_EQ(1u, count_messages("not visible"));
    EXPECT_EQ(UCT_CUDA_PLAN_NO_HIDDEN, admit(HIDDEN, 0, 64 * MiB));
    expect_not_ours(0, HIDDEN);
    EXPECT_EQ(1u, count_messages("not visible"));
}

/* A program may see more GPUs than the tables hold */
TEST_P(test_engine, gpus_beyond_the_tables)
{
    const int beyond = UCT_CUDA_MAX_GPUS;

    use_defaults(hgx());
    create();
    Transfer t = start(0, 1, 3 * MiB); /* it knows the node now */
    EXPECT_EQ(nullptr, t.transfer);
    for (auto devices : std::vector<std::pair<int, int>>{{beyond, 0},
                                                         {0, beyond + 1},
                                                         {-1, beyond},
                                                         {beyond + 40, 1}}) {
        EXPECT_EQ(UCT_CUDA_PLAN_NO_INDEX,
                  admit(devices.first, devices.second, 64 * MiB));
        expect_not_ours(devices.first, devices.second);
        EXPECT_EQ(UCT_CUDA_MP_NOT_COUNTED,
                  uct_cuda_mp_single_begin(m_engine, End(devices.first),
                                           End(devices.second), 64 * MiB));
    }
}

TEST_P(test_engine, auto_on_a_switch_takes_one_path)
{
    use_defaults(hgx());
    create();
    EXPECT_TRUE(uct_cuda_mp_may_split(m_engine, 64 * MiB));
    Transfer t = start(0, 1, 3 * MiB);
    EXPECT_EQ(UCS_OK, t.status);
    EXPECT_EQ(nullptr, t.transfer);
    /* Once the node is known, the query is not logged any more */
    EXPECT_FALSE(uct_cuda_mp_may_split(m_engine, SIZE_MAX - 1));
    EXPECT_EQ(1u, count_messages("I several paths gain nothing"));
    EXPECT_FALSE(m_node->has_context(0));
}

/* On a switched node the host path takes too long to begin for one message of
   this size, but not behind another one: all but the first of a window use
   it */
TEST_P(test_engine, windows_gain_where_one_message_does_not)
{
    char dir[] = "/tmp/test_engine.XXXXXX";

    use_defaults(hgx(), mkdtemp(dir));
    create();
    EXPECT_TRUE(may_split(0, 1, MiB))
            << "who knows";
    Transfer t = start(0, 1, 32 * MiB);
    EXPECT_EQ(nullptr, t.transfer);
    EXPECT_FALSE(may_split(0, 1, 32 * MiB));
    EXPECT_TRUE(may_split(0, 1, 256 * MiB));
    prove(0, 1);

    uint16_t small = uct_cuda_mp_single_begin(m_engine, End(0), End(1), MiB);
    t              = start(0, 1, 32 * MiB);
    EXPECT_EQ(nullptr, t.transfer);
    EXPECT_FALSE(may_split(0, 1, 32 * MiB));
    uct_cuda_mp_single_end(m_engine, small);

    uint16_t large = uct_cuda_mp_single_begin(m_engine, End(0), End(1),
                                              32 * MiB);
    EXPECT_TRUE(may_split(0, 1, 32 * MiB));
    EXPECT_FALSE(may_split(0, 2, 32 * MiB));
    EXPECT_FALSE(may_split(1, 0, 32 * MiB));
    t              = start(0, 1, 32 * MiB);
    ASSERT_NE(nullptr, t.transfer);
    EXPECT_LT(1u, uct_cuda_mp_num_steps(t.transfer));
    wait(t);
    t = start(0, 2, 32 * MiB); /* another pair has no transfers ahead of it */
    EXPECT_EQ(nullptr, t.transfer);
    uct_cuda_mp_single_end(m_engine, large);
    t = start(0, 1, 32 * MiB);
    EXPECT_EQ(nullptr, t.transfer);
    destroy();
    EXPECT_EQ(0, rmdir(dir)) << "the ledger's page is still there";
}

/* Two processes, as seen by the engines: the second one, in the other
   direction, leaves the host path to the first */
TEST_P(test_engine, the_host_path_needs_an_idle_opposite_direction)
{
    char dir[] = "/tmp/test_engine.XXXXXX";
    uct_cuda_mp_engine_t *other;

    use_defaults(switch_node(4, 200 * GB, 55 * GB), mkdtemp(dir));
    create();
    ASSERT_EQ(UCS_OK, uct_cuda_mp_engine_create(m_config, &other));

    Transfer first = start(0, 1, 64 * MiB);
    EXPECT_EQ(nullptr, first.transfer) << "without proof";
    prove(0, 1);
    first = start(0, 1, 64 * MiB);
    ASSERT_NE(nullptr, first.transfer);
    std::swap(m_engine, other);
    Transfer second = start(1, 0, 64 * MiB);
    EXPECT_EQ(nullptr, second.transfer);
    wait(first);
    usleep(50000); /* a recent transfer counts a little longer */
    prove(1, 0);
    second = start(1, 0, 64 * MiB);
    ASSERT_NE(nullptr, second.transfer);
    wait(second);
    prove(3, 2);

    /* A plain copy counts as well */
    std::swap(m_engine, other);
    uint16_t counted = uct_cuda_mp_single_begin(m_engine, End(2), End(3), MiB);
    std::swap(m_engine, other);
    second = start(3, 2, 64 * MiB);
    EXPECT_EQ(nullptr, second.transfer);
    std::swap(m_engine, other);
    uct_cuda_mp_single_end(m_engine, counted);
    EXPECT_EQ(UCT_CUDA_MP_NOT_COUNTED,
              uct_cuda_mp_single_begin(m_engine, End(2), End(HIDDEN),
                                       MiB));

    /* also with host memory */
    counted = uct_cuda_mp_single_begin(m_engine, End(HOST), End(3),
                                       MiB);
    std::swap(m_engine, other);
    usleep(50000);
    second = start(3, 2, 64 * MiB);
    EXPECT_EQ(nullptr, second.transfer);
    std::swap(m_engine, other);
    uct_cuda_mp_single_end(m_engine, counted);

    uct_cuda_mp_engine_destroy(other);
    destroy();
    EXPECT_EQ(0, rmdir(dir)) << "the ledger's page is still there";
}

/* In the pause between two of our transfers the other process may pause, too */
TEST_P(test_engine, contention_of_a_transfer_counts_for_the_next)
{
    char dir[] = "/tmp/test_engine.XXXXXX";
    uct_cuda_mp_engine_t *other;
    uct_cuda_mp_transfer_t *next;
    uint16_t counted;

    use_defaults(switch_node(4, 200 * GB, 55 * GB), mkdtemp(dir));
    create();
    ASSERT_EQ(UCS_OK, uct_cuda_mp_engine_create(m_config, &other));

    prove(0, 1);
    Transfer t = start(0, 1, 64 * MiB);
    ASSERT_NE(nullptr, t.transfer);
    wait(t);

    /* Return whether the next transfer uses one path although the links are
       idle. */
    auto is_yielding = [&] {
        EXPECT_EQ(UCS_OK, uct_cuda_mp_start(m_engine, &t.request, &t.request,
                                            &next));
        if (next == nullptr) {
            go_before(0, 1);
            return true;
        }

        await(next);
        uct_cuda_mp_release(next);
        return false;
    };
    /* After some intervals without contention a transfer uses several paths;
       then start one more */
    auto forget = [&] {
        for (int i = 0; i < 2; ++i) {
            usleep(2 * UCT_CUDA_MP_HISTORY_INTERVAL / 1000);
            EXPECT_TRUE(is_yielding()) << i;
        }
        prove(0, 1);
        EXPECT_FALSE(is_yielding());
        usleep(2 * UCT_CUDA_MP_HISTORY_INTERVAL / 1000);
        ASSERT_EQ(UCS_OK, uct_cuda_mp_start(m_engine, &t.request, &t.request,
                                            &t.transfer));
        ASSERT_NE(nullptr, t.transfer);
    };

    /* The other process's transfer is in flight when ours ends, and has ended
       when the next one begins */
    ASSERT_EQ(UCS_OK, uct_cuda_mp_start(m_engine, &t.request, &t.request,
                                        &t.transfer));
    ASSERT_NE(nullptr, t.transfer);
    m_node->run_all();
    counted = uct_cuda_mp_single_begin(other, End(1), End(0), MiB);
    await(t.transfer);
    uct_cuda_mp_single_end(other, counted);
    uct_cuda_mp_release(t.transfer);
    forget();

    await(t.transfer);
    uct_cuda_mp_release(t.transfer);

    /* Our plain copy begins first, and the other transfer ends after it */
    usleep(2 * UCT_CUDA_MP_HISTORY_INTERVAL / 1000);
    uint16_t ours = uct_cuda_mp_single_begin(m_engine, End(0), End(1),
                                             64 * MiB);
    counted       = uct_cuda_mp_single_begin(other, End(1), End(0), MiB);
    uct_cuda_mp_single_end(m_engine, ours);
    uct_cuda_mp_single_end(other, counted);
    EXPECT_TRUE(is_yielding());

    uct_cuda_mp_engine_destroy(other);
    destroy();
    EXPECT_EQ(0, rmdir(dir));
}

TEST_P(test_engine, one_engine_per_process)
{
    uct_cuda_mp_engine_t *first, *second, *third;

    EXPECT_EQ(UCS_ERR_NO_ELEM, uct_cuda_mp_engine_get_any(&first));
    ASSERT_EQ(UCS_OK, uct_cuda_mp_engine_get(m_config, &first));
    ASSERT_EQ(UCS_OK, uct_cuda_mp_engine_get(m_config, &second));
    EXPECT_EQ(first, second);
    m_config.set("_CHUNKS", "3");
    ASSERT_EQ(UCS_OK, uct_cuda_mp_engine_get(m_config, &third));
    EXPECT_NE(first, third);
    m_config.set("_SHARES", "1,2");
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, uct_cuda_mp_engine_get(m_config, &second));

    m_engine   = third;
    Transfer t = start(0, 1, MiB);
    ASSERT_NE(nullptr, t.transfer);
    EXPECT_LT(2u, uct_cuda_mp_num_steps(t.transfer));
    wait(t);
    m_engine = NULL;

    uct_cuda_mp_engine_put(third);
    EXPECT_EQ("", m_node->leaks());
    EXPECT_EQ(UCS_OK, uct_cuda_mp_engine_get_any(&third));
    EXPECT_EQ(first, third);
    uct_cuda_mp_engine_put(first);
    uct_cuda_mp_engine_put(first);
    m_engine = first;
    t        = start(0, 1, MiB);
    ASSERT_NE(nullptr, t.transfer);
    wait(t);
    m_engine = NULL;
    uct_cuda_mp_engine_put(first);
    EXPECT_EQ("", m_node->leaks());
    EXPECT_EQ(UCS_ERR_NO_ELEM, uct_cuda_mp_engine_get_any(&first));
}

TEST_P(test_engine, off)
{
    m_config.set("", "n");
    create();
    EXPECT_FALSE(uct_cuda_mp_may_split(m_engine, SIZE_MAX - 1));
}

TEST_P(test_engine, contradicting_configuration)
{
    m_config.set("_PATHS", "direct,gpu2").set("_SHARES", "1");
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              uct_cuda_mp_engine_create(m_config, &m_engine));
    EXPECT_EQ(1u, count_messages("E MULTIPATH_SHARES"));
}

TEST_P(test_engine, relay_without_peer_access)
{
    m_node->no_peer.insert({0, 2});
    create();
    transfer(0, 1, MiB);
    EXPECT_EQ(0u, bytes(0, 2));
    EXPECT_GT(bytes(0, 3), 0u);
    EXPECT_EQ(1u, count_messages("\"gpu2\""));
    EXPECT_EQ(0u, count_messages("E "));
    transfer(0, 1, MiB);
    EXPECT_EQ(1u, count_messages("\"gpu2\""));
    /* Only this pair of GPUs is affected */
    transfer(3, 1, MiB);
    EXPECT_GT(bytes(3, 2), 0u);
}

TEST_P(test_engine, no_peer_access_at_all)
{
    m_node->no_peer.insert({0, 1});
    create();
    Transfer t = start(0, 1, MiB);
    EXPECT_EQ(UCS_OK, t.status);
    EXPECT_EQ(nullptr, t.transfer);
}

/* Access that the program has not enabled is not enabled for it */
TEST_P(test_engine, peer_access_is_the_programs)
{
    const uct_cuda_driver_t *driver;
    CUdeviceptr memory[10];
    CUcontext ctx;
    bool is_ours;

    m_node.reset();
    m_node.reset(new FakeNode(10, 1));
    driver = uct_cuda_driver_get();
    m_node->offer_own_contexts(); /* it stays forever: use GPU 9 */
    m_node->program_peers = false;
    for (int gpu : {0, 1}) { /* the program uses these */
        ASSERT_EQ(UCS_OK, uct_cuda_ctx_retain(gpu, false, &ctx));
    }
    ASSERT_EQ(UCS_OK, uct_cuda_ctx_retain(9, true, &ctx));

    for (int gpu : {1, 9}) {
        ASSERT_EQ(UCS_OK, uct_cuda_ctx_retain(gpu, true, &ctx));
        ASSERT_EQ(UCS_OK, uct_cuda_ctx_push(ctx));
        ASSERT_EQ(CUDA_SUCCESS, driver->cuMemAlloc(&memory[gpu], 1));
        uct_cuda_ctx_pop();
        uct_cuda_ctx_release(gpu);
    }

    /* Nor is it enabled during a query */
    m_node->fail_function = "cuCtxEnablePeerAccess";
    m_node->num_calls     = 0;
    EXPECT_EQ(UCS_ERR_UNREACHABLE,
              uct_cuda_ctx_reach_peer(0, 1, memory[1], &is_ours));
    EXPECT_FALSE(is_ours);
    m_node->program_peers = true;
    EXPECT_EQ(UCS_OK, uct_cuda_ctx_reach_peer(0, 1, memory[1], &is_ours));
    EXPECT_FALSE(is_ours);
    EXPECT_EQ(0u, m_node->num_calls);
    m_node->fail_function = "";

    EXPECT_EQ(UCS_OK, uct_cuda_ctx_reach_peer(0, 9, memory[9], &is_ours));
    EXPECT_TRUE(is_ours);
    EXPECT_TRUE(m_node->has_peer(0, 9));
    for (int gpu : {1, 9}) {
        EXPECT_EQ(CUDA_SUCCESS, driver->cuMemFree(memory[gpu]));
    }
    for (int gpu : {0, 1, 9}) {
        uct_cuda_ctx_release(gpu);
    }
}

/* The other relays keep their staging memory, and this one is tried again */
TEST_P(test_engine, one_relay_without_memory_for_staging)
{
    unsigned steps[2];

    for (int i = 0; i < 2; ++i) {
        m_config.set("_STAGING_SIZE", "64m");
        m_config.set("_PATHS", (i == 0) ? "direct,gpu3" : "direct,gpu2,gpu3");
        m_node->full_gpu = 2;
        create();
        Transfer t = start(0, 1, 16 * MiB);
        ASSERT_NE(nullptr, t.transfer);
        steps[i] = uct_cuda_mp_num_steps(t.transfer);
        wait(t);
        EXPECT_EQ(0u, bytes(0, 2));
        if (i == 0) {
            destroy();
        }
    }
    EXPECT_EQ(steps[0], steps[1]);
    EXPECT_EQ(1u, count_messages("\"gpu2\""));

    m_node->full_gpu = -1;
    transfer(1, 2, MiB); /* memory there needs none of the engine's */
    usleep(1100 * 1000);
    transfer(0, 1, MiB);
    EXPECT_GT(bytes(0, 2), 0u);
    EXPECT_EQ(1u, count_messages("\"gpu2\""));
}

TEST_P(test_engine, no_memory_for_staging)
{
    m_config.set("_STAGING_SIZE", "64m");
    m_node->gpu_memory = 0;
    create();
    for (int i = 0; i < 3; ++i) {
        Transfer t = start(0, 1, MiB);
        EXPECT_EQ(UCS_OK, t.status);
        EXPECT_EQ(nullptr, t.transfer);
    }
    EXPECT_EQ(1u, count_messages("\"gpu2\""));
    EXPECT_EQ(1u, count_messages("\"gpu3\""));
    /* one wait for all that one transfer found without memory */
    EXPECT_EQ(2u, count_messages("for 1 s"));
    EXPECT_EQ(0u, count_messages("E "));
}

TEST_P(test_engine, no_memory_for_host_staging)
{
    m_config.set("_PATHS", "direct,gpu2,host");
    m_node->host_memory = 0;
    create();
    transfer(0, 1, MiB);
    EXPECT_EQ(0u, bytes(0, -1));
    EXPECT_GT(bytes(0, 2), 0u);
}

/* A relay's context cannot be created: the others carry on, also to and from
   that GPU */
TEST_P(test_engine, relay_without_context)
{
    m_config.set("_PATHS", "direct,gpu2,gpu3,gpu1");
    m_node->fail_function = "cuDevicePrimaryCtxRetain";
    m_node->fail_call(3);
    create();
    transfer(0, 1, MiB);
    EXPECT_EQ(0u, bytes(0, 2));
    EXPECT_GT(bytes(0, 3), 0u);
    transfer(0, 2, MiB);
    EXPECT_GT(bytes(1, 2), 0u);
    transfer(2, 0, MiB);
    EXPECT_GT(bytes(2, 1), 0u);
}

/* After a reset of a GPU its old resources are neither used nor destroyed: of
   the sender, the receiver, a relay, and behind the last transfer */
TEST_P(test_engine, gpus_that_were_reset)
{
    m_config.set("_PATHS", "direct,gpu2");
    create();
    for (int gpu : {0, 1, 2, 0}) {
        size_t before;

        for (int i = 0; i < 3; ++i) {
            transfer(0, 1, MiB);
            transfer(1, 0, MiB);
        }
        m_node->reset_context(gpu);
        before = bytes(2, 1);
        transfer(0, 1, MiB);
        EXPECT_GT(bytes(2, 1), before) << "GPU " << gpu << " was reset";
        before = bytes(2, 0);
        transfer(1, 0, MiB);
        EXPECT_GT(bytes(2, 0), before) << "GPU " << gpu << " was reset";
    }
    m_node->reset_context(0);
}

/* The engine's own context of a GPU is not the program's. Such contexts stay
   forever: use GPUs that no other test uses. */
TEST_P(test_engine, a_relay_that_the_program_comes_to_use)
{
    CUcontext ctx;

    m_config.set("_PATHS", "direct,gpu9,gpu8");
    set_node(mesh_node(10, 24 * GB, 12 * GB), 10);
    m_node->offer_own_contexts();
    create();
    transfer(0, 1, MiB);
    EXPECT_GT(bytes(0, 9), 0u);
    EXPECT_FALSE(uct_cuda_ctx_has_two(9));

    ASSERT_EQ(CUDA_SUCCESS,
              uct_cuda_driver_get()->cuDevicePrimaryCtxRetain(&ctx, 9));
    EXPECT_TRUE(uct_cuda_ctx_has_two(9));
    EXPECT_EQ(nullptr, start(9, 0, MiB).transfer);
    EXPECT_EQ(nullptr, start(0, 9, MiB).transfer);
    transfer(1, 0, MiB); /* it is still a relay */
    EXPECT_GT(bytes(1, 9), 0u);
    EXPECT_EQ(CUDA_SUCCESS,
              uct_cuda_driver_get()->cuDevicePrimaryCtxRelease(9));
}

/* Relays made in the background: behaviour of the first transfers meanwhile.
   The program has contexts on the GPUs of its own buffers. */
class test_engine_start : public test_engine
{
protected:
    test_engine_start()
    {
        m_config = Config();
        m_config.set("_START", "background").set("_LEDGER", "n");
        m_config.set("_GRAPH", GetParam()).set("_HOST", "n");
    }

    /* Use a node where the host path gains and relays do not, with default
       settings. */
    void use_switch(const char *ledger)
    {
        use_defaults(switch_node(4, 200 * GB, 55 * GB), ledger);
        m_config.set("_START", "auto").set("_GRAPH", GetParam());
    }

    void create_with_contexts(std::vector<int> devices)
    {
        create();
        for (int device : devices) {
            CUcontext ctx;

            ASSERT_EQ(CUDA_SUCCESS,
                      uct_cuda_driver_get()->cuDevicePrimaryCtxRetain(&ctx,
                                                                      device));
            m_own.push_back(device);
        }
    }

    ~test_engine_start()
    {
        m_node->release_contexts();
        give_back_contexts();
    }

    void give_back_contexts()
    {
        for (int device : m_own) {
            uct_cuda_driver_get()->cuDevicePrimaryCtxRelease(device);
        }
        m_own.clear();
    }

    /* Return the copies of one transfer; 0: one path, without the engine. */
    unsigned num_steps(int src, int dst, size_t size = 2 * MiB)
    {
        Transfer t = start(src, dst, size);
        unsigned steps;

        EXPECT_EQ(UCS_OK, t.status);
        if (t.transfer == NULL) {
            return 0;
        }

        steps = uct_cuda_mp_num_steps(t.transfer);
        wait(t);
        return steps;
    }

    template<typename Func> static void await(Func func)
    {
        for (int i = 0; i < 10000; ++i) {
            if (func()) {
                return;
            }
            usleep(1000);
        }
        FAIL() << "waited for 10 s";
    }

    std::vector<int> m_own;
};

TEST_P(test_engine_start, one_path_until_relays_are_ready)
{
    m_node->hold_context(2);
    m_node->hold_context(3);
    create_with_contexts({0, 1});
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(0u, num_steps(0, 1));
    }
    /* All at the same time, and each once */
    await([&] { return m_node->num_held() == 2; });
    EXPECT_EQ(0u, num_steps(0, 1));
    EXPECT_EQ(2u, m_node->num_held());

    m_node->release_contexts();
    await([&] { return num_steps(0, 1) > 0; });
    await([&] {
        size_t before[] = {bytes(0, 2), bytes(0, 3)};

        num_steps(0, 1);
        return (bytes(0, 2) > before[0]) && (bytes(0, 3) > before[1]);
    });
    EXPECT_TRUE(messages.empty()) << messages[0];
}

TEST_P(test_engine_start, relays_that_are_ready)
{
    m_node->hold_context(3);
    create_with_contexts({0, 1});
    await([&] { return num_steps(0, 1) > 0; });
    EXPECT_GT(bytes(0, 2), 0u);
    EXPECT_EQ(0u, bytes(0, 3));
    m_node->release_contexts();
    await([&] {
        num_steps(0, 1);
        return bytes(0, 3) > 0;
    });
}

/* GPU 0 is a relay like any other */
TEST_P(test_engine_start, no_wait_for_the_first_gpu)
{
    std::promise<void> done;
    bool is_late = false;

    m_node->hold_context(0);
    create_with_contexts({1, 2, 3});
    std::thread patience([&] {
        is_late = done.get_future().wait_for(std::chrono::seconds(5)) ==
                  std::future_status::timeout;
        m_node->release_contexts();
    });
    for (int i = 0; i < 3; ++i) {
        EXPECT_LT(0u, num_steps(1, 2)) << "GPU 3 is ready";
        EXPECT_EQ(0u, bytes(0, 2));
    }
    done.set_value();
    patience.join();
    EXPECT_FALSE(is_late) << "a transfer waited for a relay's context";
    await([&] {
        num_steps(1, 2);
        return bytes(0, 2) > 0;
    });
}

/* A plan with fewer paths than relays starts its own relays, and no others
   instead */
TEST_P(test_engine_start, missing_relays_are_not_replaced)
{
    m_config.set("_PATHS", "2");
    m_node->hold_context(2);
    create_with_contexts({0, 1});
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(0u, num_steps(0, 1));
    }
    m_node->release_contexts();
    await([&] { return num_steps(0, 1) > 0; });
    EXPECT_FALSE(m_node->has_context(3));
}

TEST_P(test_engine_start, contexts_of_the_program_need_no_wait)
{
    create_with_contexts({0, 1, 2, 3});
    EXPECT_LT(0u, num_steps(0, 1));
    EXPECT_GT(bytes(0, 2), 0u);
    EXPECT_GT(bytes(0, 3), 0u);
}

/* Not even a context of the transfer's own end exists */
TEST_P(test_engine_start, without_any_context)
{
    m_node->hold_context(0);
    create_with_contexts({});
    EXPECT_EQ(0u, num_steps(0, 1));
    m_node->release_contexts();
    await([&] { return num_steps(0, 1) > 0; });
}

TEST_P(test_engine_start, host_staging)
{
    m_config.set("_HOST", "y").set("_PATHS", "1");
    create_with_contexts({0, 1});
    EXPECT_EQ(0u, num_steps(0, 1, 64 * MiB));
    await([&] { return num_steps(0, 1, 64 * MiB) > 0; });
    EXPECT_GT(bytes(0, -1), 0u);
}

/* By default transfers wait for relays, but not for the host path */
TEST_P(test_engine_start, the_host_path_opens_in_the_background)
{
    char dir[] = "/tmp/test_engine.XXXXXX";

    use_switch(mkdtemp(dir));
    m_node->hold_context(1);
    create_with_contexts({0});
    EXPECT_EQ(0u, num_steps(0, 1, 64 * MiB));
    EXPECT_EQ(0u, count_messages("in the background"));
    EXPECT_FALSE(m_node->has_context(1)) << "without proof nothing is prepared";
    prove(0, 1);
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(0u, num_steps(0, 1, 64 * MiB));
    }
    m_node->release_contexts();
    await([&] { return num_steps(0, 1, 64 * MiB) > 0; });
    EXPECT_GT(bytes(0, -1), 0u);
    give_back_contexts();
    destroy();
    EXPECT_EQ(0, rmdir(dir));
}

/* Tried once; messages continue over one path */
TEST_P(test_engine_start, the_host_path_is_unavailable)
{
    char dir[] = "/tmp/test_engine.XXXXXX";

    use_switch(mkdtemp(dir));
    create_with_contexts({0});
    prove(0, 1);
    m_node->fail_function = "cuDevicePrimaryCtxRetain";
    m_node->fail_call(1, CUDA_ERROR_UNKNOWN);
    await([&] {
        EXPECT_EQ(0u, num_steps(0, 1, 64 * MiB));
        return count_messages("could not be set up") > 0;
    });
    EXPECT_EQ(1u, count_messages("cuDevicePrimaryCtxRetain failed"));
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(0u, num_steps(0, 1, 64 * MiB));
    }
    EXPECT_EQ(1u, count_messages("E "));
    EXPECT_EQ(1u, count_messages("W "));
    give_back_contexts();
    destroy();
    EXPECT_EQ(0, rmdir(dir));
}

/* Paths listed by the user are waited for */
TEST_P(test_engine_start, the_hosts_path_in_a_list)
{
    use_switch("n");
    m_config.set("_PATHS", "direct,host");
    create_with_contexts({0});
    EXPECT_LT(0u, num_steps(0, 1, 64 * MiB));
    EXPECT_GT(bytes(0, -1), 0u);
}

TEST_P(test_engine_start, relays_are_waited_for)
{
    use_defaults(beluga());
    m_config.set("_START", "auto").set("_GRAPH", GetParam());
    create_with_contexts({0, 1});
    EXPECT_LT(0u, num_steps(0, 1)) << "the first one";
    EXPECT_GT(bytes(0, 2), 0u);
}

TEST_P(test_engine_start, from_and_to_host_memory)
{
    set_node(hgx(), 4);
    create_with_contexts({0});
    EXPECT_GE(1u, num_steps(-1, 0));
    await([&] { return num_steps(-1, 0) > 2; });
    EXPECT_LT(2u, num_steps(0, -1));
}

/* The first transfer takes several paths, unless a setting says not to wait for
   them */
TEST_P(test_engine_start, the_start_setting_applies)
{
    m_config.set("_START", "wait");
    create();
    EXPECT_LT(0u, num_steps(0, 1));
    destroy();
    m_config.set("_PATHS", "direct,gpu3").set("_START", "background");
    m_node->hold_context(3);
    create_with_contexts({0, 1});
    EXPECT_EQ(0u, num_steps(0, 1));
    m_node->release_contexts();
    await([&] { return num_steps(0, 1) > 0; });
}

TEST_P(test_engine_start, a_context_is_unavailable)
{
    m_node->hold_context(2);
    m_node->hold_context(3);
    create_with_contexts({0, 1});
    m_node->fail_function = "cuDevicePrimaryCtxRetain";
    m_node->fail_call(1, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(0u, num_steps(0, 1));
    await([&] { return m_node->num_held() == 1; }); /* the other one failed */
    m_node->release_contexts();
    await([&] { return num_steps(0, 1) > 0; });
    EXPECT_EQ(1u, count_messages("cuDevicePrimaryCtxRetain failed"));
    EXPECT_EQ(1u, count_messages("could not be set up"));
    EXPECT_NE(m_node->has_context(2), m_node->has_context(3));
    EXPECT_EQ(bytes(0, 2) > 0, m_node->has_context(2));
    EXPECT_LT(0u, num_steps(0, 1));
    EXPECT_EQ(2u, messages.size());
}

TEST_P(test_engine_start, no_memory_for_staging)
{
    m_node->gpu_memory = 8 * MiB;
    create_with_contexts({0, 1});
    EXPECT_EQ(0u, num_steps(0, 1));
    await([&] {
        EXPECT_EQ(0u, num_steps(0, 1));
        return count_messages("is out of memory") == 2;
    });
    EXPECT_EQ(2u, messages.size());
}

TEST_P(test_engine_start, destroyed_meanwhile)
{
    for (int i = 0; i < 10; ++i) {
        m_node->hold_context(2);
        create_with_contexts((i == 0) ? std::vector<int>{0, 1} :
                                        std::vector<int>{});
        EXPECT_EQ(0u, num_steps(0, 1));
        std::thread later([&] {
            usleep(2000);
            m_node->release_contexts();
        });
        uct_cuda_mp_engine_destroy(m_engine);
        m_engine = NULL;
        later.join();
        EXPECT_FALSE(m_node->has_context(2));
        EXPECT_FALSE(m_node->has_context(3));
    }
}

static FakeNode *node_at_exit;

/* Runs after handlers registered later, like the driver's */
static void check_at_exit()
{
    _exit((node_at_exit->num_held() == 0) ? 0 : 1);
}

/* The program ends while a thread waits for the driver: the driver must not go
   first */
TEST_P(test_engine_start, end_of_the_program)
{
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_EXIT(
            {
                node_at_exit = m_node.get();
                atexit(check_at_exit);
                m_node->hold_context(2);
                create_with_contexts({0, 1});
                num_steps(0, 1);
                await([&] { return m_node->num_held() == 1; });
                std::thread([&] {
                    usleep(20000);
                    m_node->release_contexts();
                }).detach();
                exit(2);
            },
            ::testing::ExitedWithCode(0), "");
}

/* A forked process has no such threads: it does not wait */
TEST_P(test_engine_start, forked_meanwhile)
{
    /* No thread holds the fake's lock during the fork */
    m_node->hold_context(2);
    m_node->hold_context(3);
    create_with_contexts({0, 1});
    EXPECT_EQ(0u, num_steps(0, 1));
    await([&] { return m_node->num_held() == 2; });
    EXPECT_EQ(0, in_child([this] {
        alarm(10);
        uct_cuda_mp_engine_destroy(m_engine);
        return 0;
    }));
}

TEST_P(test_engine_start, threads)
{
    std::vector<std::thread> threads;
    std::vector<Transfer> transfers;

    create_with_contexts({0, 1});
    for (int i = 0; i < 16; ++i) {
        transfers.push_back(make(0, 1, 4 * MiB));
    }

    for (int n = 0; n < 4; ++n) {
        threads.emplace_back([&, n] {
            for (size_t i = (size_t)n; i < transfers.size(); i += 4) {
                Transfer &t = transfers[i];

                start(t);
                if (t.transfer != NULL) {
                    while (uct_cuda_mp_test(t.transfer) == UCS_INPROGRESS) {
                    }
                    usleep(500);
                }
            }
        });
    }

    for (std::thread &thread : threads) {
        thread.join();
    }

    for (Transfer &t : transfers) {
        EXPECT_EQ(UCS_OK, t.status);
        if (t.transfer != NULL) {
            EXPECT_TRUE(arrived(t));
            uct_cuda_mp_release(t.transfer);
        }
    }
    await([&] { return num_steps(0, 1) > 0; });
}

/*
 * For a failure of each call, at first use or later: the caller gets an error,
 * or every byte; nothing is written after the error; the next transfer works;
 * and nothing leaks.
 */
class test_engine_failures : public test_engine
{
protected:
    void every_call_fails_once(int src, int dst, const char *paths);
};

void test_engine_failures::every_call_fails_once(int src, int dst,
                                                 const char *paths)
{
    unsigned failures = 0;
    unsigned calls;

    m_config.set("_PATHS", paths).set("_CHUNKS", "3");
    create();
    transfer(src, dst, 300 * KiB);
    transfer(src, dst, 300 * KiB);
    calls = m_node->num_calls;
    EXPECT_GT(calls, 80u);

    for (unsigned n = 1; n <= calls; ++n) {
        set_node(beluga(), 4, n);
        create();
        m_node->fail_call(n);
        for (int round = 0; round < 2; ++round) {
            Transfer t          = start(src, dst, 300 * KiB + 17);
            uint8_t *dst        = (uint8_t*)t.request.dst;
            ucs_status_t status = t.status;

            if (t.transfer != NULL) {
                ASSERT_EQ(UCS_OK, status);
                do {
                    status = uct_cuda_mp_test(t.transfer);
                } while (status == UCS_INPROGRESS);
            } else if (status == UCS_OK) {
                continue; /* one path is the fallback */
            }

            std::vector<uint8_t> seen(dst, dst + t.request.size);
            m_node->run_all();
            EXPECT_EQ(0, memcmp(seen.data(), dst, seen.size()))
                    << "written after the end";
            if (status == UCS_OK) {
                EXPECT_TRUE(arrived(t));
            } else {
                EXPECT_EQ(UCS_ERR_IO_ERROR, status);
                ++failures;
            }

            if (t.transfer != NULL) {
                uct_cuda_mp_release(t.transfer);
            }
        }

        m_node->fail_call(0); /* in case the call has not happened yet */
        Transfer t = start(src, dst, MiB);
        EXPECT_EQ(UCS_OK, t.status);
        if (t.transfer != NULL) {
            wait(t);
        }
        destroy();
        if (HasFailure()) {
            FAIL() << "when call " << n << ", " << m_node->failed_function
                   << ", failed";
        }
        destroy();
    }

    EXPECT_GT(failures, 30u);
}

TEST_P(test_engine_failures, between_gpus)
{
    every_call_fails_once(0, 1, "direct,gpu2,host");
}

TEST_P(test_engine_failures, from_host_memory)
{
    every_call_fails_once(-1, 1, "direct,gpu2,gpu3");
}

TEST_P(test_engine_failures, to_host_memory)
{
    every_call_fails_once(1, -1, "direct,gpu2,gpu3");
}

/* Page-locked host memory at one end: relays are the other GPUs' PCIe links.
   With every value of MULTIPATH_GRAPH streams carry it. */
class test_engine_host : public test_engine_remote
{
protected:
    test_engine_host()
    {
        m_local             = HOST;
        m_may_use_peers_gpu = true; /* it copies the direct part */
    }

    ~test_engine_host()
    {
        destroy();
        EXPECT_EQ(0u, count_messages("graphs:"));
    }
};

TEST_P(test_engine_host, all_paths)
{
    m_config.set("_PATHS", "direct,gpu2,gpu3").set("_SHARES", "2,1,1");
    create();
    transfer(-1, 1, MiB);
    EXPECT_EQ(MiB / 2, bytes(-1, 1));
    EXPECT_EQ(MiB / 4, bytes(-1, 2));
    EXPECT_EQ(MiB / 4, bytes(2, 1));
    EXPECT_EQ(MiB / 4, bytes(-1, 3));
    EXPECT_EQ(MiB / 4, bytes(3, 1));
    transfer(1, -1, MiB);
    EXPECT_EQ(MiB / 2, bytes(1, -1));
    EXPECT_EQ(MiB / 4, bytes(1, 2));
    EXPECT_EQ(MiB / 4, bytes(2, -1));
    EXPECT_EQ(MiB / 4, bytes(1, 3));
    EXPECT_EQ(MiB / 4, bytes(3, -1));
    EXPECT_FALSE(m_node->has_context(0));
}

TEST_P(test_engine_host, asks_for_sizes_of_its_own)
{
    use_defaults(hgx());
    m_config.set("_GRAPH", GetParam());
    create();
    Transfer t = start(-1, 1, 16 * MiB);
    ASSERT_NE(nullptr, t.transfer);
    wait(t);
    /* Behind this switch other GPUs' links help only host memory */
    EXPECT_FALSE(uct_cuda_mp_may_split(m_engine, SIZE_MAX - 1));
    EXPECT_TRUE(uct_cuda_mp_may_split_host(m_engine, 16 * MiB));
    EXPECT_FALSE(uct_cuda_mp_may_split_host(m_engine, 64 * KiB));

    destroy();
    m_config.set("", "n");
    create();
    EXPECT_FALSE(uct_cuda_mp_may_split_host(m_engine, SIZE_MAX - 1));
}

TEST_P(test_engine_host, sizes_and_alignments)
{
    create();
    for (int i = 0; i < 40; ++i) {
        bool is_put = (i % 2 == 0);
        int gpu     = (int)(m_random() % 4);

        transfer(is_put ? -1 : gpu, is_put ? gpu : -1,
                 64 * KiB + m_random() % (9 * MiB), m_random() % 512);
    }
}

TEST_P(test_engine_host, one_pair_completes_in_order)
{
    expect_order(1, -1);
}

/* Mixed with transfers between GPUs, whose copies may be in graphs */
TEST_P(test_engine_host, many_at_once)
{
    m_config.set("_GRAPH", "n");
    expect_windows({-1, 0, 1, 2, 3}, [this] { expect_one_transfer_a_link(); });
}

TEST_P(test_engine_host, remote_put)
{
    m_config.set("_PATHS", "direct,gpu2,gpu3");
    create();
    /* Also in the context of the peer's GPU: it copies the direct part */
    EXPECT_TRUE(exchange(true, 2 * MiB + 12345));
    std::sort(m_peer.mapped_for.begin(), m_peer.mapped_for.end());
    EXPECT_EQ((std::vector<int>{1, 2, 3}), m_peer.mapped_for);
    EXPECT_GT(bytes(-1, 1), 0u);
    EXPECT_GT(bytes(2, 1), 0u);
}

TEST_P(test_engine_host, remote_get)
{
    m_config.set("_PATHS", "direct,gpu2,gpu3");
    create();
    EXPECT_TRUE(exchange(false, 2 * MiB + 12345));
    EXPECT_EQ((std::vector<int>{1}), m_peer.mapped_for);
    EXPECT_GT(bytes(1, -1), 0u);
    EXPECT_GT(bytes(2, -1), 0u);
}

TEST_P(test_engine_host, pieces_of_locked_memory)
{
    create();
    for (int i = 0; i < 30; ++i) {
        size_t size = 64 * KiB + m_random() % (6 * MiB);
        std::vector<size_t> cuts;

        for (size_t at = 0; (at += 1 + m_random() % (2 * MiB)) < size;) {
            cuts.push_back(at);
        }
        EXPECT_TRUE(exchange(i % 2 == 0, size, true, cuts));
    }
}

TEST_P(test_engine_host, refused_mapping)
{
    m_config.set("_PATHS", "direct,gpu2,gpu3").set("_GRAPH", "n");
    m_peer.refuse = 2;
    create();
    EXPECT_TRUE(exchange(true, MiB));
    EXPECT_EQ(0u, std::count(m_peer.mapped_for.begin(),
                             m_peer.mapped_for.end(), 2));
    EXPECT_EQ(1u, count_messages("\"gpu2\" from host to gpu1"));
    /* The failure concerned this direction only */
    EXPECT_TRUE(exchange(false, MiB));
    EXPECT_GT(bytes(1, 2), 0u);
    transfer(0, 1, MiB);
    EXPECT_GT(bytes(0, 2), 0u);

    destroy();
    m_peer.refuse = 1;
    create();
    EXPECT_FALSE(exchange(true, MiB));
    /* The peer's memory may have been gone: its GPU stays usable */
    m_peer.refuse = -1;
    EXPECT_TRUE(exchange(true, MiB));
}

TEST_P(test_engine_host, no_memory_for_staging)
{
    m_node->gpu_memory = 0;
    create();
    Transfer t = start(-1, 1, MiB);
    EXPECT_EQ(UCS_OK, t.status);
    EXPECT_EQ(nullptr, t.transfer);
    EXPECT_EQ(0u, count_messages("E "));
}

/* A single MiB takes one copy. In a sequence several paths are faster, and the
   engine tells the sender. */
TEST_P(test_engine_host, plain_copies_make_windows)
{
    const int host = HOST;
    uint16_t first, second;

    use_defaults(hgx());
    m_config.set("_GRAPH", GetParam());
    create();
    transfer(1, host, 16 * MiB);
    EXPECT_TRUE(uct_cuda_mp_may_split_host(m_engine, MiB));
    EXPECT_FALSE(may_split(1, host, MiB));
    EXPECT_EQ(nullptr, start(1, host, MiB).transfer);

    first = uct_cuda_mp_single_begin(m_engine, End(1), End(host), MiB);
    EXPECT_TRUE(may_split(1, host, MiB));
    EXPECT_FALSE(may_split(host, 1, MiB));
    second = uct_cuda_mp_single_begin(m_engine, End(1), End(host), MiB);
    uct_cuda_mp_single_end(m_engine, first);
    uct_cuda_mp_single_end(m_engine, second);
    EXPECT_TRUE(may_split(1, host, MiB));
    transfer(1, host, MiB);

    /* That transfer was alone again, and so will be the next */
    EXPECT_FALSE(may_split(1, host, MiB));
}

TEST_P(test_engine_host, windows_take_one_path_per_message)
{
    use_defaults(hgx());
    m_config.set("_GRAPH", GetParam());
    create();
    for (int window = 0; window < 2; ++window) {
        std::vector<Transfer> transfers;

        for (int i = 0; i < 16; ++i) {
            transfers.push_back(start(-1, 1, 2 * MiB + 4 * i));
            ASSERT_NE(nullptr, transfers.back().transfer);
            /* The first transfer of all does not know that others follow */
            EXPECT_GE((window == 0) ? 8u : 2u,
                      uct_cuda_mp_num_steps(transfers.back().transfer));
        }
        for (Transfer &t : transfers) {
            wait(t);
        }
    }
    for (int gpu = 0; gpu < 4; ++gpu) {
        EXPECT_GT(bytes(-1, gpu), 8 * MiB) << gpu;
    }
}

/* Counts of graphs in the engine's last log line */
class test_engine_graphs : public test_engine
{
protected:
    struct Counters {
        unsigned hits, retargets, misses, evictions, waits;

        bool operator==(const Counters &other) const
        {
            return (hits == other.hits) && (retargets == other.retargets) &&
                   (misses == other.misses) && (evictions == other.evictions) &&
                   (waits == other.waits);
        }

        friend std::ostream &operator<<(std::ostream &stream, const Counters &c)
        {
            return stream << c.hits << " hits, " << c.retargets
                          << " retargets, " << c.misses << " misses, "
                          << c.evictions << " evictions, " << c.waits
                          << " waits";
        }
    };

    test_engine_graphs()
    {
        /* A direct copy and two chunks of two hops each */
        m_config.set("_PATHS", "direct,gpu2").set("_CHUNKS", "2");
    }

    Counters counters()
    {
        Counters c = {};

        destroy();
        for (const std::string &message : messages) {
            if (message.compare(0, 10, "I graphs: ") == 0) {
                EXPECT_EQ(5, sscanf(message.c_str(),
                                    "I graphs: %u hits, %u retargets, %u "
                                    "misses, %u evictions, %u in-flight waits",
                                    &c.hits, &c.retargets, &c.misses,
                                    &c.evictions, &c.waits));
            }
        }
        return c;
    }

    void restart(Transfer &t)
    {
        memset((void*)t.request.dst, 0, t.request.size);
        start(t);
        ASSERT_EQ(UCS_OK, t.status);
        ASSERT_NE(nullptr, t.transfer);
    }

    void again(Transfer &t)
    {
        restart(t);
        wait(t);
    }
};

/* Banks of staging memory alternate, with a graph for each */
TEST_P(test_engine_graphs, same_addresses)
{
    create();
    Transfer t = start(0, 1, MiB);

    wait(t);
    for (int i = 0; i < 5; ++i) {
        again(t);
    }
    EXPECT_EQ((Counters{4, 0, 2, 0, 0}), counters());
}

TEST_P(test_engine_graphs, other_addresses)
{
    create();
    for (int i = 0; i < 6; ++i) {
        transfer(0, 1, MiB);
    }
    EXPECT_EQ((Counters{0, 4, 2, 0, 0}), counters());
}

/* Of two idle graphs, the one with the addresses is used, not the older one */
TEST_P(test_engine_graphs, the_graph_with_these_addresses_is_used)
{
    std::vector<Transfer> transfers;

    m_config.set("_CHUNKS", "4"); /* half of the staging slots each */
    create();
    for (int i = 0; i < 4; ++i) {
        transfers.push_back(start(0, 1, MiB));
    }
    for (Transfer &t : transfers) {
        wait(t);
    }
    for (int i : {0, 3, 2}) { /* the first one was alone: another shape */
        restart(transfers[i]);
    }
    for (int i : {0, 3, 2}) {
        wait(transfers[i]);
    }
    EXPECT_EQ((Counters{2, 0, 5, 0, 0}), counters());
}

/* Streams keep up with the links, so a graph would only begin later */
TEST_P(test_engine_graphs, no_graph_if_streams_keep_up)
{
    m_config.set("_GRAPH", "auto").set("_STAGING_SIZE", "64m");
    create();
    Transfer first  = start(0, 1, 8 * MiB);
    Transfer second = start(0, 1, 8 * MiB);

    wait(first);
    wait(second);
    for (int i = 0; i < 5; ++i) {
        transfer(0, 1, 8 * MiB);
    }
    EXPECT_EQ((Counters{0, 0, 0, 0, 0}), counters());
}

/* 16 chunks keep the processor busy for longer than half of the transfer. Seen
   once, then built for each bank of staging memory, while streams carry the
   transfer; launched from the fourth on */
TEST_P(test_engine_graphs, built_behind_streams)
{
    m_config.set("_GRAPH", "auto").set("_CHUNKS", "16");
    m_config.set("_STAGING_SIZE", "64m");
    create();
    Transfer t = start(0, 1, 12 * MiB);

    wait(t);
    for (int i = 0; i < 3; ++i) {
        again(t);
    }
    m_node->fail_function = "cuMemcpyAsync";
    m_node->fail_call(1); /* no streams from here on */
    for (int i = 0; i < 3; ++i) {
        again(t);
    }
    m_node->fail_call(0);
    EXPECT_EQ(0u, count_messages("E "));
    EXPECT_EQ((Counters{4, 0, 2, 0, 0}), counters());
}

/* Two shapes of similar sizes keep their graphs */
TEST_P(test_engine_graphs, two_shapes_keep_their_graphs)
{
    m_config.set("_GRAPH", "auto").set("_CHUNKS", "16");
    m_config.set("_STAGING_SIZE", "64m");
    create();
    for (int i = 0; i < 3; ++i) {
        transfer(0, 1, 12 * MiB);
        transfer(0, 1, 11 * MiB);
    }
    EXPECT_EQ((Counters{0, 2, 2, 0, 0}), counters());
}

/* 32 sizes, each with a graph for either bank */
TEST_P(test_engine_graphs, the_cache_is_full)
{
    create();
    for (size_t size = 1; size <= 32; ++size) {
        transfer(0, 1, MiB + size * 64 * KiB);
        transfer(0, 1, MiB + size * 64 * KiB);
    }

    /* Replaces the first shape's first graph */
    transfer(0, 1, 4 * MiB);
    transfer(0, 1, MiB + 64 * KiB);
    transfer(0, 1, MiB + 64 * KiB); /* the other bank: staging copies change */
    EXPECT_EQ((Counters{0, 2, 65, 1, 0}), counters());
}

/* Graphs in flight stay unchanged: other transfers get graphs of their own
   while there is room, then streams. The fake complains otherwise. */
TEST_P(test_engine_graphs, window)
{
    create();
    window(70);
    EXPECT_EQ((Counters{0, 0, 64, 0, 6}), counters());
}

/* A message of several plans is one graph each */
TEST_P(test_engine_graphs, pieces)
{
    create();
    transfer(0, 1, 16 * MiB); /* two of 8 MiB */
    transfer(0, 1, 16 * MiB);
    EXPECT_EQ((Counters{0, 2, 2, 0, 0}), counters());
}

/* The constants of a tuning table */
class test_engine_tuning : public test_engine_graphs
{
protected:
    test_engine_tuning()
    {
        static const char name[] = "/tmp/test_engine_tuning.XXXXXX";

        memcpy(m_name, name, sizeof(name));
        close(mkstemp(m_name));
        m_config.set("_PATHS", "auto").set("_CHUNKS", "auto");
        m_config.set("", "auto").set("_TUNING_FILE", m_name);
        m_config.set("_STAGING_SIZE", "16m");
    }

    ~test_engine_tuning()
    {
        destroy();
        unlink(m_name);
    }

    void table(const std::string &node, const std::string &line)
    {
        FILE *stream = fopen(m_name, "w");

        fprintf(stream, "ucx-mp-tuning 1\nnode %s\ndate 2026-11-21\n%s\n",
                node.c_str(), line.c_str());
        fclose(stream);
    }

    /* Expect one warning for all messages, and plans by the model. */
    void refused(const char *because)
    {
        messages.clear();
        create();
        transfer(0, 1, 4 * MiB);
        transfer(1, 0, 4 * MiB);
        EXPECT_GT(bytes(2, 1), 0u);
        EXPECT_GT(bytes(3, 1), 0u);
        EXPECT_EQ(1u, count_messages("W "));
        EXPECT_EQ(1u, count_messages(std::string("W cannot use the tuning "
                                                 "table, using the built-in "
                                                 "model: ") +
                                     m_name + because));
        destroy();
        set_node(beluga(), 4);
    }

    char m_name[64];
};

/* An old table, with one sentence about its rows */
TEST_P(test_engine_tuning, the_table_is_used)
{
    messages.clear();
    table("4 gpus, 12 x 48.0:48.0,48.0:12.0",
          "model min_gain 5\n"
          "48.0:48.0,48.0:12.0 1m 8m direct:.75,relay2:.25:4 auto");
    create();
    for (int i = 0; i < 2; ++i) {
        Transfer t = start(0, 1, 4 * MiB);

        EXPECT_EQ(nullptr, t.transfer);
    }
    EXPECT_EQ(1u, count_messages("W "));
    EXPECT_EQ(1u, count_messages(std::string("W ") + m_name +
                                 ":5: rows of paths, shares and chunks are "
                                 "ignored, the constants apply"));
}

/* CUDA_VISIBLE_DEVICES leaves two of the table's four GPUs: no mistake */
TEST_P(test_engine_tuning, a_table_for_hidden_gpus_costs_no_warning)
{
    uct_cuda_topo_t two = beluga();

    two.num_gpus   = 2;
    two.num_hidden = 2;
    set_node(two, 2);
    m_config.set("", "y").set("_PATHS", "direct,host").set("_SHARES", "1,1");
    table("4 gpus, 12 x 48.0:48.0,48.0:12.0", "");
    messages.clear();
    create();
    transfer(0, 1, 4 * MiB);
    EXPECT_EQ(0u, count_messages("W "));
    EXPECT_EQ(1u, count_messages(std::string("I the tuning table is not "
                                             "used: ") +
                                 m_name + ":2: made for the node's 4 GPUs, of "
                                 "which this process sees 2"));

    messages.clear();
    table("8 gpus, 56 x 48.0:48.0:12.0", "");
    set_node(two, 2);
    create();
    transfer(0, 1, 4 * MiB);
    EXPECT_EQ(1u, count_messages("W cannot use the tuning table"));
}

/* The choice of streams or graphs uses the node's constants: as in
   built_behind_streams, or never */
TEST_P(test_engine_tuning, the_table_sets_the_cost_of_graphs)
{
    m_config.set("_PATHS", "direct,gpu3").set("_SHARES", "1,1");
    m_config.set("_CHUNKS", "16");
    for (std::string cost : {"1", "20"}) {
        messages.clear();
        table("4 gpus, 12 x 48.0:48.0,48.0:12.0",
              "model graph " + cost);
        create();
        for (int i = 0; i < 4; ++i) {
            transfer(0, 1, 12 * MiB);
        }
        EXPECT_EQ(4 * 6 * MiB, bytes(3, 1));
        EXPECT_EQ((cost == "1") ? (Counters{0, 1, 2, 0, 0}) :
                                  (Counters{0, 0, 0, 0, 0}),
                  counters());
        set_node(beluga(), 4);
    }
}

TEST_P(test_engine_tuning, an_invalid_table_is_refused)
{
    const std::string node = "4 gpus, 12 x 48.0:48.0,48.0:12.0";

    table("8 gpus, 56 x 48.0:48.0:12.0", "");
    refused(":2: made for another node");
    table(node, "model gap_gpu fast");
    refused(":4: \"fast\" is not a value for \"gap_gpu\"");
    table(node + "\nucx-mp-tuning 2", "");
    refused(":3: expected \"date ...\"");

    FILE *stream = fopen(m_name, "w");
    fputs("ucx-mp-tuning 2\n", stream);
    fclose(stream);
    refused(":1: format 2 is newer than this module");

    unlink(m_name);
    refused(": No such file or directory");
}

/* Building fails once: streams this time, graphs the next */
TEST_P(test_engine_graphs, a_failure_to_build)
{
    for (const char *function : {"cuGraphCreate", "cuGraphAddMemcpyNode",
                                 "cuGraphInstantiateWithFlags"}) {
        set_node(beluga(), 4);
        messages.clear();
        create();
        m_node->fail_function = function;
        m_node->fail_call(1);
        transfer(0, 1, MiB);
        EXPECT_EQ(function, m_node->failed_function);
        transfer(0, 1, MiB);
        transfer(0, 1, MiB);
        EXPECT_EQ(0u, count_messages("CUDA graphs failed"));
        EXPECT_EQ((Counters{0, 0, 2, 0, 0}), counters());
    }
}

/* A graph waits for the last user of its slots, and for no later one in that
   user's stream. Here a message too small for the host path makes slots and
   streams differ */
TEST_P(test_engine_graphs, a_graph_waits_for_the_last_user_of_its_slots)
{
    size_t host;

    m_config.set("_PATHS", "direct,gpu2,host").set("_MIN_SIZE", "16k");
    m_config.set("_CHUNKS", "4"); /* half of the slots of a staging memory */
    create();
    Transfer before = start(0, 1, MiB);
    host            = bytes(0, -1);
    ASSERT_GT(host, 0u);
    Transfer small = start(0, 1, 16 * KiB);
    ASSERT_EQ(host, bytes(0, -1));
    ASSERT_GT(bytes(0, 2), 0u);
    m_node->run_others(); /* they end, but no completion was reported yet */

    m_node->stuck   = {2, 1};
    Transfer second = start(0, 1, MiB);
    Transfer third  = start(0, 1, MiB);
    m_node->run_others();
    EXPECT_EQ(UCS_INPROGRESS, uct_cuda_mp_test(second.transfer));
    EXPECT_EQ(UCS_INPROGRESS, uct_cuda_mp_test(third.transfer));
    uint8_t *begin = (uint8_t*)third.request.dst;
    uint8_t *end   = begin + MiB;
    /* All except the part through GPU 2 */
    EXPECT_GT((size_t)(end - begin - std::count(begin, end, 0)), MiB / 4);
    m_node->stuck = {-2, -2};
    for (Transfer *t : {&before, &small, &second, &third}) {
        wait(*t);
    }
}

/* Without contention between transfers, graphs have no event nodes */
TEST_P(test_engine_graphs, without_contention_no_event_nodes)
{
    m_node->refuse_event_nodes = true;
    create();
    for (int i = 0; i < 6; ++i) {
        transfer(0, 1, MiB);
    }
    EXPECT_EQ((Counters{0, 4, 2, 0, 0}), counters());
}

/* A transfer that comes nevertheless waits for their links */
TEST_P(test_engine_graphs, a_concurrent_transfer_waits_for_the_graph)
{
    create();
    transfer(0, 1, MiB);

    m_node->stuck  = {2, 1};
    Transfer first = start(0, 1, MiB);
    Transfer other = start(0, 1, MiB);
    m_node->run_others();
    EXPECT_EQ(UCS_INPROGRESS, uct_cuda_mp_test(first.transfer));
    EXPECT_EQ(UCS_INPROGRESS, uct_cuda_mp_test(other.transfer));
    uint8_t *begin = (uint8_t*)other.request.dst;
    EXPECT_EQ(MiB, (size_t)std::count(begin, begin + MiB, 0));
    m_node->stuck = {-2, -2};
    wait(first);
    wait(other);
    window(3);
    transfer(0, 1, MiB);
    transfer(0, 1, MiB);
    window(2);
}

/* With a driver before CUDA 11.4 nothing is tried, so nothing fails */
TEST_P(test_engine_graphs, driver_without_graphs)
{
    m_node->drop_graphs();
    create();
    for (int i = 0; i < 4; ++i) {
        transfer(0, 1, MiB);
    }
    EXPECT_EQ(0u, count_messages("W "));
    EXPECT_EQ(0u, count_messages("E "));
    EXPECT_EQ((Counters{0, 0, 0, 0, 0}), counters());
}

/* After three failures in a row graphs are not tried again, with one message */
TEST_P(test_engine_graphs, refused_event_nodes)
{
    m_node->refuse_event_nodes = true;
    create();
    for (int i = 0; i < 4; ++i) {
        window(2);
    }
    EXPECT_EQ(1u, count_messages("W CUDA graphs failed"));
    EXPECT_EQ((Counters{0, 0, 1, 0, 0}), counters()); /* it was alone */
}

/* An update refused by the driver is no error: the graph is built again */
TEST_P(test_engine_graphs, a_refused_update)
{
    create();
    transfer(0, 1, MiB);
    transfer(0, 1, MiB);
    m_node->fail_function = "cuGraphExecMemcpyNodeSetParams";
    m_node->fail_call(2);
    transfer(0, 1, MiB);
    EXPECT_EQ(0u, count_messages("E "));
    EXPECT_EQ((Counters{0, 0, 3, 0, 0}), counters());
}

static std::string graph_name(const ::testing::TestParamInfo<const char*> &info)
{
    return std::string("graph_") + info.param;
}

INSTANTIATE_TEST_SUITE_P(executors, test_engine_tuning,
                         ::testing::Values("auto"), graph_name);
INSTANTIATE_TEST_SUITE_P(executors, test_engine_graphs, ::testing::Values("y"),
                         graph_name);
INSTANTIATE_TEST_SUITE_P(executors, test_engine,
                         ::testing::Values("n", "y", "auto"), graph_name);
INSTANTIATE_TEST_SUITE_P(executors, test_engine_start,
                         ::testing::Values("n", "auto"), graph_name);
INSTANTIATE_TEST_SUITE_P(executors, test_engine_failures,
                         ::testing::Values("n", "y", "auto"), graph_name);
INSTANTIATE_TEST_SUITE_P(executors, test_engine_host,
                         ::testing::Values("n", "y", "auto"), graph_name);
INSTANTIATE_TEST_SUITE_P(executors, test_engine_remote,
                         ::testing::Values("n", "y", "auto"), graph_name);
