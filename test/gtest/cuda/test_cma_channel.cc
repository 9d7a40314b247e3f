/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests to a peer's server, played by the test; the peer is a child process
   with memory and no activity. */
#include "fake_driver.h"
#include "process.h"
#include "ticks.h"

extern "C" {
#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/host/host_pipeline.h>
#include <uct/cuda/cuda_cma/cuda_cma_ep.h>
#include <uct/cuda/cuda_cma/cuda_cma_ranges.h>
#include <uct/cuda/cuda_cma/cuda_cma_rkey.h>
}

#include <gtest/gtest.h>

#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

static uint8_t gpu[1 << 20];

class CmaChannel : public ::testing::Test
{
protected:
    struct Reported : uct_completion_t {
        unsigned count_reported = 0;

        static void count_one(uct_completion_t *self)
        {
            ++((Reported*)self)->count_reported;
        }

        Reported()
        {
            func   = count_one;
            count  = 1;
            status = UCS_OK;
        }
    };

    static constexpr size_t host_size = 1 << 20;
    FakeDriver               driver;
    uct_cuda_queue_t         queue   = {};
    uct_cuda_cma_control_t   *page   = nullptr;
    uct_cuda_cma_server_id_t id      = {};
    uct_cuda_cma_peer_t      *peer   = nullptr;
    uct_cuda_cma_channel_t   *channel = nullptr, *all = nullptr;
    uint8_t                  *host   = nullptr; /* now the child's */
    pid_t                    child   = -1;

    void SetUp() override
    {
        uct_cuda_cma_addr_t *addr;

        driver.buffer_id = 10 * driver.ctx_id;
        driver.expect_errors();
        memset(gpu, 'g', sizeof(gpu));
        driver.offer_gpu_memory((CUdeviceptr)gpu, sizeof(gpu));
        driver.offer_handles();
        driver.offer_host_copies();
        driver.offer_host_threads();
        uct_cuda_host_pipeline_enable(2);

        host = (uint8_t*)map(host_size, MAP_PRIVATE);
        addr = (uct_cuda_cma_addr_t*)map(sizeof(*addr), MAP_SHARED);
        memset(host, 'h', host_size);
        page = uct_cuda_cma_control_create(&id);
        ASSERT_NE(nullptr, page);
        child = spawn([addr] {
            signal(SIGUSR1, become_other);
            uct_cuda_cma_addr_self(2, addr);
            return true;
        });
        if (uct_cuda_cma_peer_get(addr, &peer, NULL) != UCS_OK) {
            GTEST_SKIP() << "no cross-memory attach here";
        }
        munmap(addr, sizeof(*addr));
        ASSERT_EQ(UCS_OK, uct_cuda_queue_init(&queue, 16, UINT_MAX));
        channel = uct_cuda_cma_channel_open(&all, peer, &id);
        ASSERT_NE(nullptr, channel);
    }

    void TearDown() override
    {
        if (channel != nullptr) {
            uct_cuda_cma_channel_put(channel);
        }
        driver.done = driver.events;
        uct_cuda_queue_cleanup(&queue);
        if (peer != nullptr) {
            uct_cuda_cma_peer_put(peer);
        }
        end_child();
        close(id.fd);
        uct_cuda_cma_control_close(page);
        munmap(host, host_size);
    }

    /* Change the child on request. */
    static void become_other(int)
    {
        execl("/bin/sleep", "sleep", "60", NULL);
        _exit(1);
    }

    static void *map(size_t size, int flags)
    {
        return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags,
                    -1, 0);
    }

    void end_child()
    {
        if (child > 0) {
            reap(child);
            child = -1;
        }
    }

    ucs_status_t post(size_t offset, size_t length, bool is_put,
                      Reported *reported)
    {
        uct_cuda_copy_t copy;
        ucs_status_t status;

        uct_cuda_copy_init(&copy, gpu + offset, NULL, (uintptr_t)host + offset,
                           length, is_put, reported);
        status = uct_cuda_cma_channel_follow(channel, &queue, &copy);

        return (status != UCS_ERR_UNSUPPORTED) ?
                       status :
                       uct_cuda_cma_channel_post(channel, &queue, &copy);
    }

    uct_cuda_cma_request_t &request(unsigned i)
    {
        return page->slots[0].requests[i % UCT_CUDA_CMA_REQUESTS];
    }

    /* Play the server: copy or refuse. */
    void answer(unsigned i, uct_cuda_cma_state_t state)
    {
        ASSERT_TRUE(uct_cuda_cma_request_take(&request(i),
                                              UCT_CUDA_CMA_TAKEN));
        uct_cuda_cma_request_hand_over(&request(i), state);
    }

    /* Progress until all completions are reported, 5 s at most. */
    void progress_until(const Reported &reported)
    {
        for (int i = 0; (i < 5000) && (reported.count_reported == 0); ++i) {
            uct_cuda_queue_progress(&queue);
            usleep(1000);
        }
        EXPECT_EQ(1u, reported.count_reported);
    }

    /* Return a byte of the child's memory. */
    uint8_t peek(size_t offset)
    {
        uint8_t byte = 0;

        EXPECT_EQ(UCS_OK, uct_cuda_cma_peer_copy(peer, &byte,
                                                 (uintptr_t)host + offset, 1,
                                                 true));
        return byte;
    }
};

TEST_F(CmaChannel, requests_are_posted_and_completed)
{
    Reported put, get;

    EXPECT_EQ(getpid(), page->slots[0].pid);
    ASSERT_EQ(UCS_INPROGRESS, post(64, 100, true, &put));
    ASSERT_EQ(UCS_INPROGRESS, post(256, 10, false, &get));
    EXPECT_EQ(UCT_CUDA_CMA_POSTED, uct_cuda_cma_request_state(&request(0)));
    EXPECT_EQ((uintptr_t)gpu + 64, request(0).gpu);
    EXPECT_EQ((uintptr_t)host + 64, request(0).host);
    EXPECT_EQ(100u, request(0).length);
    EXPECT_EQ(1, request(0).to_host);
    EXPECT_EQ((uintptr_t)gpu + 256, request(1).gpu);
    EXPECT_EQ(0, request(1).to_host);
    EXPECT_EQ(request(0).key, request(1).key) << "one allocation";
    EXPECT_EQ(request(0).serial,
              page->slots[0].keys[request(0).key].serial);

    answer(1, UCT_CUDA_CMA_DONE);
    uct_cuda_queue_progress(&queue);
    EXPECT_EQ(0u, put.count_reported);
    answer(0, UCT_CUDA_CMA_DONE);
    progress_until(put);
    EXPECT_EQ(1u, get.count_reported);
    EXPECT_EQ(UCS_OK, put.status);
    EXPECT_EQ(UCT_CUDA_CMA_FREE, uct_cuda_cma_request_state(&request(0)));
}

/* The driver is queried once while a transfer of the same allocation is under
   way, and again when there is none: the memory may have been freed */
TEST_F(CmaChannel, memory_is_queried_again_when_it_may_have_changed)
{
    uint32_t serial;
    unsigned asked;
    Reported reported[3];

    ASSERT_EQ(UCS_INPROGRESS, post(0, 8, true, &reported[0]));
    serial = request(0).serial;
    asked  = driver.questions;
    ASSERT_EQ(UCS_INPROGRESS, post(8, 8, true, &reported[1]));
    EXPECT_EQ(asked, driver.questions);
    answer(0, UCT_CUDA_CMA_DONE);
    answer(1, UCT_CUDA_CMA_DONE);
    progress_until(reported[1]);

    ++driver.buffer_id; /* freed, and replaced */
    ASSERT_EQ(UCS_INPROGRESS, post(0, 8, true, &reported[2]));
    EXPECT_NE(serial, request(2).serial);
    EXPECT_EQ(request(2).serial, page->slots[0].keys[request(2).key].serial);
    answer(2, UCT_CUDA_CMA_DONE);
    progress_until(reported[2]);
}

/* Refused requests go by threads, which the kernel lets access the child */
TEST_F(CmaChannel, refused_requests_are_copied_by_threads)
{
    Reported reported, next;

    ASSERT_EQ(UCS_INPROGRESS, post(16, 5, true, &reported));
    answer(0, UCT_CUDA_CMA_REFUSED);
    progress_until(reported);
    EXPECT_EQ(UCS_OK, reported.status);
    EXPECT_EQ('h', peek(15));
    EXPECT_EQ('g', peek(16));
    EXPECT_EQ('g', peek(20));
    EXPECT_EQ('h', peek(21));
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, post(0, 5, true, &next)) << "not again";
}

/* Threads copy in the context of each memory, not of the batch's first one:
   the program may have destroyed that */
TEST_F(CmaChannel, memory_of_two_contexts)
{
    const size_t half = sizeof(gpu) / 2;
    Reported first, second;

    driver.offer_gpu_memory((CUdeviceptr)gpu, half);
    driver.offer_handles();
    ASSERT_EQ(UCS_INPROGRESS, post(0, 5, true, &first));
    driver.renew_context();
    ++driver.buffer_id;
    driver.gpu_base += half;
    ASSERT_EQ(UCS_INPROGRESS, post(half, 5, true, &second));
    EXPECT_EQ(1u, queue.outstanding);
    answer(0, UCT_CUDA_CMA_DONE);
    answer(1, UCT_CUDA_CMA_REFUSED);
    progress_until(second);
    EXPECT_EQ(UCS_OK, first.status);
    EXPECT_EQ(UCS_OK, second.status);
}

/* A server that does not run is not waited for; it must not copy later */
TEST_F(CmaChannel, a_request_not_begun_is_cancelled)
{
    Reported reported;

    ASSERT_EQ(UCS_INPROGRESS, post(0, 5, true, &reported));
    progress_until(reported);
    EXPECT_EQ(UCS_OK, reported.status);
    EXPECT_EQ('g', peek(0));
    EXPECT_EQ(UCT_CUDA_CMA_TAKEN_BACK,
              uct_cuda_cma_request_state(&request(0)));
    EXPECT_FALSE(uct_cuda_cma_request_take(&request(0), UCT_CUDA_CMA_TAKEN));
}

/* A running server is waited for: it is busy */
TEST_F(CmaChannel, a_busy_server_is_waited_for)
{
    Reported reported;

    ASSERT_EQ(UCS_INPROGRESS, post(0, 5, true, &reported));
    for (int i = 0; i < 30; ++i) {
        __atomic_fetch_add(&page->heartbeat, 1, __ATOMIC_RELAXED);
        uct_cuda_queue_progress(&queue);
        usleep(1000);
    }
    EXPECT_EQ(0u, reported.count_reported);
    answer(0, UCT_CUDA_CMA_DONE);
    progress_until(reported);
    EXPECT_EQ('h', peek(0)) << "the server said so";
}

TEST_F(CmaChannel, a_peer_that_dies_is_an_error)
{
    Reported reported;

    ASSERT_EQ(UCS_INPROGRESS, post(0, 5, true, &reported));
    ASSERT_TRUE(uct_cuda_cma_request_take(&request(0), UCT_CUDA_CMA_TAKEN));
    end_child();
    progress_until(reported);
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, reported.status);
}

/* Otherwise the program could free memory that the server's GPU still writes
   to */
TEST_F(CmaChannel, a_begun_request_is_waited_for_while_the_peer_lives)
{
    Reported reported;

    ASSERT_EQ(UCS_INPROGRESS, post(0, 5, false, &reported));
    ASSERT_TRUE(uct_cuda_cma_request_take(&request(0), UCT_CUDA_CMA_TAKEN));
    for (int flags : {0, SA_RESTART}) {
        Ticks ticks(flags);
        while (Ticks::count < 3000) {
            uct_cuda_queue_progress(&queue);
        }
    }
    EXPECT_EQ(0u, reported.count_reported);
    uct_cuda_cma_request_hand_over(&request(0), UCT_CUDA_CMA_DONE);
    progress_until(reported);
    EXPECT_EQ(UCS_OK, reported.status);
}

/* Its files are closed then, but the driver may still be busy */
TEST_F(CmaChannel, a_peer_that_executes_another_program_is_an_error_later)
{
    Reported reported;

    ASSERT_EQ(UCS_INPROGRESS, post(0, 5, false, &reported));
    ASSERT_TRUE(uct_cuda_cma_request_take(&request(0), UCT_CUDA_CMA_TAKEN));
    const uint64_t end = uct_cuda_now_ns() + 400ul * 1000 * 1000;
    kill(child, SIGUSR1);
    while (uct_cuda_now_ns() < end) { /* an error after a second at least */
        uct_cuda_queue_progress(&queue);
        usleep(1000);
    }
    EXPECT_EQ(0u, reported.count_reported);
    progress_until(reported);
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, reported.status);
}

/* Requests beyond the server's slots wait and are not lost */
TEST_F(CmaChannel, requests_beyond_the_slots_wait)
{
    std::vector<Reported> reported(3 * UCT_CUDA_CMA_REQUESTS);
    unsigned posted = 0, answered = 0;

    while (answered < reported.size()) {
        while ((posted < reported.size()) &&
               (post(posted, 1, true, &reported[posted]) == UCS_INPROGRESS)) {
            ++posted;
        }
        ASSERT_LT(answered, posted);
        ASSERT_LE(posted - answered, unsigned(UCT_CUDA_CMA_REQUESTS));
        while (answered < posted) {
            answer(answered++, UCT_CUDA_CMA_DONE);
        }
        while (queue.outstanding > 0) {
            uct_cuda_queue_progress(&queue);
        }
    }
    for (auto &one : reported) {
        EXPECT_EQ(1u, one.count_reported);
    }
}

/* Later requests do not delay a flush */
TEST_F(CmaChannel, another_epoch_is_another_operation)
{
    Reported first, second, flush;

    ASSERT_EQ(UCS_INPROGRESS, post(0, 5, true, &first));
    ASSERT_EQ(UCS_INPROGRESS, uct_cuda_queue_flush(&queue, &flush));
    ASSERT_EQ(UCS_INPROGRESS, post(8, 5, true, &second));
    answer(0, UCT_CUDA_CMA_DONE);
    progress_until(flush);
    EXPECT_EQ(1u, first.count_reported);
    EXPECT_EQ(0u, second.count_reported);
    answer(1, UCT_CUDA_CMA_DONE);
    progress_until(second);
}

/* An interface is closed with a request in flight, and its endpoint is closed:
   no completion is reported, and the slot is released */
TEST_F(CmaChannel, closing_an_interface_releases_its_slot)
{
    Reported reported;

    ASSERT_EQ(UCS_INPROGRESS, post(0, 5, true, &reported));
    uct_cuda_cma_channel_put(channel);
    channel = nullptr;
    EXPECT_EQ(0u, page->slots[0].is_over);
    answer(0, UCT_CUDA_CMA_DONE);
    driver.done = driver.events;
    uct_cuda_queue_cleanup(&queue);
    EXPECT_EQ(1u, page->slots[0].is_over);
    EXPECT_EQ(0u, reported.count_reported);
    ASSERT_EQ(UCS_OK, uct_cuda_queue_init(&queue, 16, UINT_MAX));
}

/* UCX keeps endpoints closed by their peer: one slot per worker */
TEST_F(CmaChannel, endpoints_of_a_worker_share_one_channel)
{
    uct_cuda_cma_channel_t *same;

    for (int i = 0; i < 2 * UCT_CUDA_CMA_SLOTS; ++i) {
        same = uct_cuda_cma_channel_open(&all, peer, &id);
        ASSERT_EQ(channel, same);
    }
    EXPECT_EQ(0, page->slots[1].pid);
    for (int i = 0; i < 2 * UCT_CUDA_CMA_SLOTS; ++i) {
        uct_cuda_cma_channel_put(channel);
    }
    EXPECT_EQ(0u, page->slots[0].is_over);
}

/* Slots of dead processes are reclaimed, those of others are not */
TEST_F(CmaChannel, no_channel_opens_without_a_free_slot)
{
    std::vector<uct_cuda_cma_channel_t*> all(UCT_CUDA_CMA_SLOTS);
    std::vector<uct_cuda_cma_channel_t*> more;

    while (more.size() < UCT_CUDA_CMA_SLOTS - 1) {
        more.push_back(uct_cuda_cma_channel_open(&all[more.size()], peer,
                                                 &id));
        ASSERT_NE(nullptr, more.back());
    }
    EXPECT_EQ(0u, page->is_short);
    EXPECT_EQ(nullptr, uct_cuda_cma_channel_open(&all.back(), peer, &id));
    EXPECT_EQ(1u, page->is_short);
    for (auto *one : more) {
        uct_cuda_cma_channel_put(one);
    }
    EXPECT_EQ(1u, page->slots[1].is_over);
}

/* An endpoint copies by threads meanwhile */
TEST_F(CmaChannel, an_endpoint_gets_a_slot_once_one_is_free)
{
    uct_cuda_cma_rkey_t packed = {UCT_CUDA_CMA_PACKED_MAGIC, (uintptr_t)host,
                                  host_size, id};
    uct_cuda_cma_iface_t iface = {};
    uct_cuda_cma_ep_t ep       = {};
    uct_iov_t iov              = {};
    void *handle               = nullptr;
    uct_cuda_cma_slot_t &slot  = page->slots[UCT_CUDA_CMA_SLOTS - 1];
    uct_rkey_t rkey;

    ASSERT_EQ(UCS_OK, uct_cuda_cma_rkey_unpack(NULL, &packed, 0, &rkey,
                                               &handle));
    ASSERT_EQ(UCS_OK, uct_cuda_queue_init(&iface.super.queue, 16, UINT_MAX));
    for (auto &other : page->slots) {
        other.pid = getpid();
    }
    ep.super.super.iface = (uct_iface_h)&iface;
    ep.peer              = peer;
    iov.buffer           = gpu;
    iov.length           = 5;
    iov.count            = 1;
    for (unsigned expected : {UCT_CUDA_CMA_FREE, UCT_CUDA_CMA_POSTED}) {
        Reported reported;

        ASSERT_EQ(UCS_INPROGRESS,
                  uct_cuda_cma_ep_put_zcopy(&ep.super.super, &iov, 1,
                                            (uintptr_t)host, rkey, &reported));
        EXPECT_EQ(expected, slot.requests[0].state);
        slot.requests[0].state = slot.requests[0].state ? UCT_CUDA_CMA_DONE : 0;
        while (iface.super.queue.outstanding > 0) {
            driver.done = driver.events;
            uct_cuda_queue_progress(&iface.super.queue);
        }
        EXPECT_EQ(UCS_OK, reported.status);
        slot.pid = 0;
        usleep(1100 * 1000);
    }
    uct_cuda_cma_channel_put(ep.channel);
    uct_cuda_queue_cleanup(&iface.super.queue);
    uct_cuda_cma_rkey_release(NULL, rkey, handle);
}

TEST_F(CmaChannel, other_files_are_no_control_block)
{
    uct_cuda_cma_channel_t *none   = nullptr;
    uct_cuda_cma_server_id_t other = id;

    other.token ^= 2;
    EXPECT_EQ(nullptr, uct_cuda_cma_channel_open(&none, peer, &other));
    other    = id;
    other.fd = STDERR_FILENO;
    EXPECT_EQ(nullptr, uct_cuda_cma_channel_open(&none, peer, &other));
    other.fd = -1;
    EXPECT_EQ(nullptr, uct_cuda_cma_channel_open(&none, peer, &other));
    __atomic_store_n(&page->is_over, 1, __ATOMIC_RELAXED);
    EXPECT_EQ(nullptr, uct_cuda_cma_channel_open(&none, peer, &id));
}

static bool says_idle()
{
    return true;
}

TEST_F(CmaChannel, posting_wakes_the_server)
{
    std::thread server(
        [this] { uct_cuda_cma_control_sleep(page, says_idle, ULONG_MAX); });
    Reported reported;

    while (!__atomic_load_n(&page->is_asleep, __ATOMIC_RELAXED)) {
        usleep(100);
    }
    ASSERT_EQ(UCS_INPROGRESS, post(0, 5, true, &reported));
    server.join();
    answer(0, UCT_CUDA_CMA_DONE);
    progress_until(reported);
}

/* A killed peer has announced a wake-up of the server without doing it */
TEST_F(CmaChannel, a_lost_wake_up_is_repeated)
{
    uct_cuda_cma_control_sleep(page, says_idle, 1000);

    std::thread server(
        [this] { uct_cuda_cma_control_sleep(page, says_idle, ULONG_MAX); });
    while (!__atomic_load_n(&page->is_asleep, __ATOMIC_RELAXED)) {
        usleep(100);
    }
    usleep(10000);
    __atomic_store_n(&page->is_asleep, 0, __ATOMIC_RELAXED);
    uct_cuda_cma_control_wake(page);
    uct_cuda_cma_control_wake_self(page);
    server.join();
}

/* The peer's thread may not have cleared entries of the slot's last owner */
TEST_F(CmaChannel, keys_of_the_last_owner_are_overwritten)
{
    uct_cuda_cma_control_key_t &key = page->slots[0].keys[0];
    Reported reported;

    key.serial                  = 1;
    key.packed.handle.buffer_id = 7;
    ASSERT_EQ(UCS_INPROGRESS, post(0, 5, true, &reported));
    ASSERT_EQ(0u, request(0).key);
    EXPECT_EQ(request(0).serial, key.serial);
    EXPECT_EQ(driver.buffer_id, key.packed.handle.buffer_id);
    answer(0, UCT_CUDA_CMA_DONE);
    progress_until(reported);
}

/* It belongs to the parent */
TEST_F(CmaChannel, a_forked_child_gives_no_slot_back)
{
    ASSERT_EQ(0, in_child([this] {
        uct_cuda_cma_channel_put(channel);
        return 0;
    }));
    EXPECT_EQ(0u, page->slots[0].is_over);
}

/* A request to another peer is in flight, and this peer stands still */
TEST_F(CmaChannel, channels_do_not_wait_for_each_other)
{
    uct_cuda_cma_channel_t *first = channel;
    uct_cuda_cma_channel_t *others = nullptr;
    Reported stands, goes;

    ASSERT_EQ(UCS_INPROGRESS, post(0, 5, true, &stands));
    ASSERT_TRUE(uct_cuda_cma_request_take(&request(0), UCT_CUDA_CMA_TAKEN));
    channel = uct_cuda_cma_channel_open(&others, peer, &id);
    ASSERT_NE(nullptr, channel);
    ASSERT_EQ(UCS_INPROGRESS, post(8, 5, true, &goes));
    uct_cuda_cma_request_hand_over(&page->slots[1].requests[0],
                                   UCT_CUDA_CMA_DONE);
    progress_until(goes);
    EXPECT_EQ(0u, stands.count_reported);
    uct_cuda_cma_request_hand_over(&request(0), UCT_CUDA_CMA_DONE);
    progress_until(stands);
    uct_cuda_cma_channel_put(channel);
    channel = first;
}

/* Ranges of served memory, with keys */
TEST(CmaRanges, the_found_range_contains_all_bytes)
{
    uint64_t base;
    size_t length;

    EXPECT_FALSE(uct_cuda_cma_ranges_find(0x1000, 1, &base, &length));
    ASSERT_TRUE(uct_cuda_cma_ranges_add(0x1000, 0x100));
    ASSERT_TRUE(uct_cuda_cma_ranges_add(0x1080, 0x1000));
    ASSERT_TRUE(uct_cuda_cma_ranges_add(0x1000, 0x100));
    EXPECT_TRUE(uct_cuda_cma_ranges_find(0x10ff, 1, &base, &length));
    EXPECT_EQ(0x1000u, base);
    EXPECT_EQ(0x100u, length);
    EXPECT_TRUE(uct_cuda_cma_ranges_find(0x10ff, 2, &base, &length));
    EXPECT_EQ(0x1080u, base);
    EXPECT_FALSE(uct_cuda_cma_ranges_find(0x1000, 0x101, &base, &length));
    EXPECT_FALSE(uct_cuda_cma_ranges_find(0xfff, 2, &base, &length));
    EXPECT_FALSE(uct_cuda_cma_ranges_find(0x1080, SIZE_MAX, &base, &length));
    uct_cuda_cma_ranges_remove(0x1000, 0x100);
    EXPECT_TRUE(uct_cuda_cma_ranges_find(0x1000, 0x100, &base, &length));
    uct_cuda_cma_ranges_remove(0x1000, 0x100);
    EXPECT_FALSE(uct_cuda_cma_ranges_find(0x1000, 0x100, &base, &length));
    uct_cuda_cma_ranges_remove(0x1080, 0x1000);
}
