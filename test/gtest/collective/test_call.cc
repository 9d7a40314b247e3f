/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of two ranks, threads of one process with a GPU each: successful calls,
   calls left to the native path by all ranks, and errors on all ranks. */
#include "gpus.h"
#include "ranks.h"

extern "C" {
#include <kernels/kernels.h>
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/collective/call.h>
#include <uct/cuda/collective/options.h>
#include <uct/cuda/collective/queue.h>
#include <uct/cuda/collective/team.h>
#include <uct/cuda/multipath/traffic.h>
#include <uct/cuda/plan/collective_planner.h>
#include <uct/cuda/plan/transfer_planner.h>
}

#include <chrono>
#include <memory>
#include <mutex>
#include <sys/stat.h>
#include <thread>


/* Only one rank has no memory for its part */
enum : int { ALL_RANKS = -2 };
static int poor_rank = -1;

extern "C" ucs_status_t
__real_uct_cuda_run_schedule_create(uct_cuda_plan_coll_t *plan, unsigned rank,
                                    uct_cuda_run_schedule_t **program_p);
extern "C" ucs_status_t
__wrap_uct_cuda_run_schedule_create(uct_cuda_plan_coll_t *plan, unsigned rank,
                                    uct_cuda_run_schedule_t **program_p);

ucs_status_t
__wrap_uct_cuda_run_schedule_create(uct_cuda_plan_coll_t *plan, unsigned rank,
                                    uct_cuda_run_schedule_t **program_p)
{
    if ((poor_rank == ALL_RANKS) || ((int)rank == poor_rank)) {
        uct_cuda_plan_coll_release(plan);
        return UCS_ERR_NO_MEMORY;
    }
    return __real_uct_cuda_run_schedule_create(plan, rank, program_p);
}

/* or none for streams and events */
static const uct_cuda_run_coll_events_t *unprepared;

extern "C" ucs_status_t
__real_uct_cuda_run_schedule_prepare(const uct_cuda_run_schedule_t *schedule,
                                     const uct_cuda_run_coll_call_t *run);
extern "C" ucs_status_t
__wrap_uct_cuda_run_schedule_prepare(const uct_cuda_run_schedule_t *schedule,
                                     const uct_cuda_run_coll_call_t *run);

ucs_status_t
__wrap_uct_cuda_run_schedule_prepare(const uct_cuda_run_schedule_t *schedule,
                                     const uct_cuda_run_coll_call_t *run)
{
    return (run->events == unprepared) ?
                   UCS_ERR_NO_MEMORY :
                   __real_uct_cuda_run_schedule_prepare(schedule, run);
}

/* or is late to read the others' GPUs */
static bool is_late;

extern "C" bool
__real_uct_cuda_coll_agree_find_gpus(uct_cuda_coll_agreement_t *agreement);
extern "C" bool
__wrap_uct_cuda_coll_agree_find_gpus(uct_cuda_coll_agreement_t *agreement);

bool
__wrap_uct_cuda_coll_agree_find_gpus(uct_cuda_coll_agreement_t *agreement)
{
    if (is_late && (agreement->rank == 0)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    const bool is_known = __real_uct_cuda_coll_agree_find_gpus(agreement);
    if (is_late) {
        EXPECT_EQ((agreement->sequence == 1) ? 1 : 2, agreement->gpus[1]);
    }
    return is_known;
}


class Call : public Ranks
{
protected:
    enum : unsigned { SIZE = 2, COUNT = 1000, BYTES = SIZE * COUNT };
    enum : int { GPUS = 3 }; /* one GPU has no rank */

    /* Configuration of the process; the first value is used */
    static uct_cuda_plan_config_t config;

    std::unique_ptr<Gpus> gpus;
    uct_cuda_topo_t topo = Gpus::topo(GPUS);
    uct_cuda_coll_team_t *teams[SIZE];
    uint8_t *sends[SIZE], *recvs[SIZE]; /* buffers of BYTES */
    uct_cuda_coll_call_t calls[SIZE]       = {};
    uct_cuda_coll_result_t results[SIZE];
    char whys[SIZE][256];

    void SetUp() override
    {
        const unsigned members[SIZE] = {0, 0};

        Ranks::SetUp();
        gpus.reset(new Gpus(GPUS, false));
        uct_cuda_topo_override(&topo);
        uct_cuda_coll_configure_node(&config);
        for (unsigned rank = 0; rank < SIZE; ++rank) {
            CUcontext context;
            ucs_status_t status;

            ASSERT_EQ(UCS_OK, uct_cuda_ctx_retain((int)rank, true, &context));
            status = uct_cuda_coll_team_create(segment, KEY, rank, SIZE,
                                               members,
                                               0, &teams[rank]);
            ASSERT_EQ(UCS_OK, status);
            sends[rank] = gpus->alloc((int)rank, BYTES);
            recvs[rank] = gpus->alloc((int)rank, BYTES);
        }
        /* Shared state, for the test to read and change */
        controls = {open_control(0, SIZE)};
        use(UCT_CUDA_PLAN_COLL_FLAT); /* copies */
        all_gather();
    }

    void TearDown() override
    {
        for (uct_cuda_coll_team_t *team : teams) {
            uct_cuda_coll_queue_destroy(team);
        }
        for (int gpu = 0; gpu < (int)SIZE; ++gpu) {
            uct_cuda_ctx_release(gpu);
        }
        EXPECT_EQ(std::vector<std::string>(), gpus->complaints);
        uct_cuda_topo_override(nullptr);
        gpus.reset();
        Ranks::TearDown();
    }

    static void SetUpTestSuite()
    {
        char path[] = "/tmp/coll-ledger-XXXXXX";

        if (config.ledger[0] == '\0') {
            uct_cuda_plan_config_init(&config);
            strcpy(config.ledger, mkdtemp(path));
            config.tuning_file[0] = '\0';
        } else {
            mkdir(config.ledger, 0700);
        }
    }

    static void TearDownTestSuite()
    {
        EXPECT_EQ(0, rmdir(config.ledger)) << "somebody is still there";
    }

    void use(int algorithm)
    {
        uct_cuda_node_control_common(controls[0])->algorithm = algorithm;
    }

    void set(uct_cuda_coll_kind_t kind)
    {
        for (unsigned rank = 0; rank < SIZE; ++rank) {
            calls[rank]         = {};
            calls[rank].kind    = kind;
            calls[rank].sendbuf = sends[rank];
            calls[rank].recvbuf = recvs[rank];
            calls[rank].count   = COUNT;
            calls[rank].type    = UCX_MP_TYPE_U8;
            memset(sends[rank], 'a' + (int)rank, BYTES);
            memset(recvs[rank], 0, BYTES);
        }
    }

    void all_gather()
    {
        set(UCT_CUDA_COLL_KIND_ALLGATHER);
    }

    /* Sums; each rank holds a part for the other one in scratch memory */
    void all_reduce(bool is_in_place)
    {
        set(UCT_CUDA_COLL_KIND_ALLREDUCE);
        for (uct_cuda_coll_call_t &call : calls) {
            call.op          = UCX_MP_OP_SUM;
            call.is_in_place = is_in_place;
            call.sendbuf     = is_in_place ? nullptr : call.sendbuf;
        }
    }

    /* Run all ranks, each in a thread. @return The result, equal on all
       ranks */
    uct_cuda_coll_result_t run()
    {
        std::vector<std::thread> threads;

        log.clear();
        for (unsigned rank = 0; rank < SIZE; ++rank) {
            threads.emplace_back([this, rank] {
                results[rank] = uct_cuda_coll_queue_collective(
                        teams[rank], &calls[rank], whys[rank],
                        sizeof(whys[rank]));
            });
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        EXPECT_EQ(results[0], results[1]);
        if (results[0] == UCT_CUDA_COLL_DIFFERS) {
            EXPECT_STREQ(whys[0], whys[1]);
        }
        return results[0];
    }

    bool are_gathered() const
    {
        const std::string expected = std::string(COUNT, 'a') +
                                     std::string(COUNT, 'b');

        for (const uint8_t *recv : recvs) {
            if (std::string((const char*)recv, BYTES) != expected) {
                return false;
            }
        }
        return true;
    }
};

uct_cuda_plan_config_t Call::config;

TEST_F(Call, bytes_arrive)
{
    uint64_t done, staged, done_before, staged_before;

    uct_cuda_coll_counts(&done_before, &staged_before);
    for (unsigned i = 0; i < 20; ++i) {
        all_gather();
        ASSERT_EQ(UCT_CUDA_COLL_DONE, run());
        ASSERT_TRUE(are_gathered());
    }
    uct_cuda_coll_counts(&done, &staged);
    EXPECT_EQ(20 * SIZE, done - done_before);
    EXPECT_EQ(0u, staged - staged_before);
    EXPECT_TRUE(has_logged("collective 20: all-gather of 2000 bytes, 2 ranks"));
}

/* Calls that are started: all of them on this thread */
class Started : public Call
{
protected:
    using op_t = uct_cuda_coll_op_t *;

    op_t start(unsigned rank,
               uct_cuda_coll_reason_t reason = UCT_CUDA_COLL_AHEAD)
    {
        return uct_cuda_coll_queue_start(teams[rank], &calls[rank], reason);
    }

    uct_cuda_coll_result_t end(op_t op, unsigned rounds = 1000000)
    {
        uct_cuda_coll_result_t result = UCT_CUDA_COLL_PENDING;

        while ((result == UCT_CUDA_COLL_PENDING) && (rounds-- > 0)) {
            uct_cuda_coll_queue_progress();
            result = uct_cuda_coll_queue_test(op, whys[0], sizeof(whys[0]));
        }
        return result;
    }
};

TEST_F(Started, a_call_waits_for_no_rank)
{
    for (unsigned i = 0; i < 5; ++i) {
        const unsigned first = i % SIZE;
        op_t ops[SIZE];

        all_gather();
        ops[first] = start(first);
        EXPECT_EQ(UCT_CUDA_COLL_PENDING, end(ops[first], 100));
        ops[1 - first] = start(1 - first);
        for (op_t op : ops) {
            EXPECT_EQ(UCT_CUDA_COLL_DONE, end(op));
        }
        EXPECT_TRUE(are_gathered()) << i;
    }
    EXPECT_TRUE(has_logged("collective 5: all-gather of 2000 bytes, 2 ranks"));
}

/* The second one gathers into the first one's send buffers */
TEST_F(Started, calls_are_carried_out_in_their_order)
{
    op_t ops[2][SIZE];

    for (unsigned rank = 0; rank < SIZE; ++rank) {
        ops[0][rank]        = start(rank);
        calls[rank].recvbuf = sends[rank];
        calls[rank].sendbuf = recvs[rank];
        ops[1][rank]        = start(rank);
    }
    EXPECT_EQ(UCT_CUDA_COLL_DONE, end(ops[1][1]));
    EXPECT_EQ(UCT_CUDA_COLL_DONE, end(ops[1][0]));
    EXPECT_EQ(UCT_CUDA_COLL_DONE, end(ops[0][0], 1));
    EXPECT_EQ(UCT_CUDA_COLL_DONE, end(ops[0][1], 1));
    EXPECT_TRUE(are_gathered());
    for (const uint8_t *send : sends) {
        EXPECT_EQ(std::string(BYTES, 'a'), std::string((char*)send, BYTES));
    }
}

TEST_F(Started, a_declined_call_is_the_mpis_on_all_ranks)
{
    op_t declined[SIZE], ops[SIZE];

    declined[0] = start(0);
    declined[1] = start(1, UCT_CUDA_COLL_NO_HOST);
    ops[0]      = start(0);
    ops[1]      = start(1);
    for (op_t op : declined) {
        EXPECT_EQ(UCT_CUDA_COLL_STAGE, end(op));
    }
    EXPECT_TRUE(has_logged("collective 1: all-gather of 2000 bytes, 2 ranks: "
                           "falls back to the MPI: host, rank 1: a buffer "));
    for (op_t op : ops) {
        EXPECT_EQ(UCT_CUDA_COLL_DONE, end(op));
    }
    EXPECT_TRUE(are_gathered());
}

TEST_F(Started, blocking_calls_come_behind)
{
    op_t ops[SIZE];

    ops[0] = start(0);
    uct_cuda_coll_queue_decline(teams[0], UCT_CUDA_COLL_KIND_ALLGATHER,
                                UCT_CUDA_COLL_NO_HOST);
    ops[1] = start(1);
    EXPECT_EQ(UCT_CUDA_COLL_STAGE,
              uct_cuda_coll_queue_collective(teams[1], &calls[1], whys[1],
                                             sizeof(whys[1])));
    for (op_t op : ops) {
        EXPECT_EQ(UCT_CUDA_COLL_DONE, end(op, 1));
    }
    EXPECT_TRUE(are_gathered());
    EXPECT_EQ(UCT_CUDA_COLL_DONE, run());
}

TEST_F(Started, differing_arguments_are_an_error)
{
    op_t ops[SIZE];

    calls[1].count = COUNT - 1;
    for (unsigned rank = 0; rank < SIZE; ++rank) {
        ops[rank] = start(rank);
    }
    for (op_t op : ops) {
        EXPECT_EQ(UCT_CUDA_COLL_DIFFERS, end(op));
        EXPECT_STREQ("rank 0 calls with 1000 bytes, rank 1 with 999", whys[0]);
    }
}

/* Ranks run in threads, each at its own pace, and pass GPU memory from some
   call on */
TEST_F(Started, all_ranks_queue_from_one_call_on)
{
    enum : unsigned { NUMBERS = 300 };

    for (unsigned first = 1; first < 50; first += 7) {
        std::vector<bool> queued[SIZE];
        std::vector<std::thread> threads;

        for (unsigned rank = 0; rank < SIZE; ++rank) {
            uct_cuda_coll_queue_destroy(teams[rank]);
            const unsigned members[SIZE] = {0, 0};
            ASSERT_EQ(UCS_OK, uct_cuda_coll_team_create(
                                      segment, KEY + first, rank, SIZE, members,
                                      0, &teams[rank]));
        }
        for (unsigned rank = 0; rank < SIZE; ++rank) {
            threads.emplace_back([=, &queued] {
                for (unsigned number = 1; number <= NUMBERS; ++number) {
                    queued[rank].push_back(uct_cuda_coll_queue_is_queued(
                            teams[rank], number, number >= first + 5 * rank));
                    if (number % (7 + rank) == 0) {
                        std::this_thread::yield();
                    }
                }
            });
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        EXPECT_EQ(queued[0], queued[1]) << first;
        EXPECT_FALSE(queued[0][first]) << first;
    }
}

TEST_F(Call, host_memory_falls_back)
{
    calls[1].recvbuf = gpus->alloc_pageable(4096);
    EXPECT_EQ(UCT_CUDA_COLL_STAGE, run());
    EXPECT_STREQ("", whys[0]);
    EXPECT_TRUE(gpus->copied.empty());
    EXPECT_TRUE(has_logged("collective 1: all-gather of 2000 bytes, 2 ranks: "
                           "falls back to the MPI: host, rank 1: a buffer "));

    /* only in this call */
    all_gather();
    EXPECT_EQ(UCT_CUDA_COLL_DONE, run());
    EXPECT_TRUE(are_gathered());
}

TEST_F(Call, a_declining_rank_is_not_waited_for)
{
    uct_cuda_coll_queue_decline(teams[1], UCT_CUDA_COLL_KIND_ALLGATHER,
                                UCT_CUDA_COLL_NO_DATATYPE);
    EXPECT_EQ(UCT_CUDA_COLL_STAGE,
              uct_cuda_coll_queue_collective(teams[0], &calls[0], whys[0],
                                             sizeof(whys[0])));
    EXPECT_TRUE(has_logged("collective 1: all-gather: falls back to the MPI: "
                           "datatype: "));
    EXPECT_TRUE(has_logged("MPI: datatype, rank 1: "));
    EXPECT_EQ(UCT_CUDA_COLL_DONE, run());
}

TEST_F(Call, misaligned_elements_fall_back)
{
    calls[0].type    = UCX_MP_TYPE_U32;
    calls[1].type    = UCX_MP_TYPE_U32;
    calls[0].count   = COUNT / 8;
    calls[1].count   = COUNT / 8;
    EXPECT_EQ(UCT_CUDA_COLL_DONE, run());
    calls[1].recvbuf = recvs[1] + 2;
    EXPECT_EQ(UCT_CUDA_COLL_STAGE, run());
}

/* Each call tries again: a failed export is no GPU fault, however often it
   happens */
TEST_F(Call, memory_that_cannot_be_exported_falls_back)
{
    gpus->exports = false;
    for (unsigned i = 0; i < 5; ++i) {
        EXPECT_EQ(UCT_CUDA_COLL_STAGE, run()) << i;
        EXPECT_STREQ("", whys[0]);
        EXPECT_TRUE(gpus->copied.empty());
        EXPECT_TRUE(has_logged("export, rank 1: ")) << log;
    }
    gpus->exports = true;
    EXPECT_EQ(UCT_CUDA_COLL_DONE, run());
    EXPECT_TRUE(are_gathered());
}

TEST_F(Call, a_buffer_that_ends_too_early_is_an_error)
{
    calls[1].recvbuf = recvs[1] + 1;
    EXPECT_EQ(UCT_CUDA_COLL_DIFFERS, run());
    EXPECT_STREQ("rank 1's buffer ends before the 1000 bytes do", whys[0]);
    EXPECT_TRUE(gpus->copied.empty());
}

TEST_F(Call, other_counts_are_an_error)
{
    calls[1].count = COUNT - 1;
    EXPECT_EQ(UCT_CUDA_COLL_DIFFERS, run());
    EXPECT_STREQ("rank 0 calls with 1000 bytes, rank 1 with 999", whys[0]);
}

/* A rank that reads the announcements late gets the mismatch, too, while the
   other rank continues */
TEST_F(Call, a_late_rank_gets_the_mismatch_too)
{
    std::atomic<bool> is_waiting{false};

    calls[1].count    = COUNT - 1;
    calls[0].arg      = &is_waiting;
    calls[0].progress = [](void *arg) {
        if (!static_cast<std::atomic<bool>*>(arg)->exchange(true)) {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
    };
    std::thread other([this, &is_waiting] {
        while (!is_waiting) {
            std::this_thread::yield();
        }
        results[1] = uct_cuda_coll_queue_collective(teams[1], &calls[1],
                                                    whys[1], sizeof(whys[1]));
        for (unsigned i = 0; i < 2; ++i) {
            uct_cuda_coll_queue_decline(teams[1], UCT_CUDA_COLL_KIND_ALLGATHER,
                                        UCT_CUDA_COLL_NO_HOST);
        }
    });
    results[0] = uct_cuda_coll_queue_collective(teams[0], &calls[0], whys[0],
                                                sizeof(whys[0]));
    other.join();
    EXPECT_EQ(UCT_CUDA_COLL_DIFFERS, results[0]);
    EXPECT_EQ(UCT_CUDA_COLL_DIFFERS, results[1]);
    EXPECT_STREQ(whys[1], whys[0]);
}

/* No rank waits for steps unknown to a rank without memory. Later calls use the
   same resources on all ranks */
TEST_F(Call, a_rank_without_a_plan_makes_all_fall_back)
{
    all_reduce(false);
    ASSERT_EQ(UCT_CUDA_COLL_DONE, run());
    for (unsigned i = 0; i < 5; ++i) {
        poor_rank = (int)(i % SIZE);
        for (uct_cuda_coll_call_t &call : calls) {
            call.count = COUNT - 8 * (i + 1);
        }
        EXPECT_EQ(UCT_CUDA_COLL_STAGE, run()) << i;
        EXPECT_TRUE(has_logged(i % 2 ? "MPI: plan, rank 1: " :
                                       "MPI: plan, rank 0: ")) << log;
        poor_rank = -1;
        EXPECT_EQ(UCT_CUDA_COLL_DONE, run()) << i;
    }
    for (unsigned i = 0; i < 6; ++i) {
        for (uct_cuda_coll_call_t &call : calls) {
            call.count = COUNT - 8 * i;
        }
        EXPECT_EQ(UCT_CUDA_COLL_DONE, run()) << i;
    }
}

/* A rank without a plan comes with another GPU before a late rank has read its
   first one */
TEST_F(Call, a_gpu_is_read_before_it_is_another)
{
    std::vector<std::thread> threads;
    uct_cuda_coll_call_t next = calls[1];
    CUcontext context;

    ASSERT_EQ(UCS_OK, uct_cuda_ctx_retain(2, true, &context));
    next.sendbuf = gpus->alloc(2, BYTES);
    next.recvbuf = gpus->alloc(2, BYTES);
    poor_rank    = ALL_RANKS;
    is_late      = true;
    for (unsigned rank = 0; rank < SIZE; ++rank) {
        threads.emplace_back([this, rank, next] {
            for (const auto &call : {calls[rank], rank ? next : calls[0]}) {
                EXPECT_EQ(UCT_CUDA_COLL_STAGE,
                          uct_cuda_coll_queue_collective(
                                  teams[rank], &call, whys[rank],
                                  sizeof(whys[rank])));
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    is_late   = false;
    poor_rank = -1;
    EXPECT_EQ(UCT_CUDA_COLL_DONE, run()); /* at the old address */
    uct_cuda_ctx_release(2);
}

/* After three failures in a row, the next calls do not try again */
TEST_F(Call, missing_scratch_memory_falls_back)
{
    all_reduce(false);
    gpus->gpu_memory = 2 * BYTES;
    for (unsigned i = 0; i < 3; ++i) {
        EXPECT_EQ(UCT_CUDA_COLL_STAGE, run()) << i;
        EXPECT_EQ(0u, gpus->launches);
        EXPECT_TRUE(has_logged("MPI: make, rank 0: ")) << log;
        EXPECT_TRUE(has_logged("(status -4)")) << log;
    }
    gpus->gpu_memory = 1ul << 40;
    for (unsigned i = 0; i < 64; ++i) {
        ASSERT_EQ(UCT_CUDA_COLL_STAGE, run()) << i;
        ASSERT_TRUE(has_logged("2 ranks: falls back to the MPI: pause: "));
    }
    EXPECT_EQ(0u, gpus->launches);
    EXPECT_EQ(UCT_CUDA_COLL_DONE, run());
    EXPECT_EQ(SIZE, gpus->launches);
}

/* A program that keeps its GPU busy waits in its first call only */
TEST_F(Call, a_busy_gpu_is_not_waited_for_again)
{
    using std::chrono::steady_clock;
    static thread_local unsigned queries;
    uct_cuda_driver_t *table = const_cast<uct_cuda_driver_t*>(
            uct_cuda_driver_get());
    const auto query         = table->cuEventQuery;
    auto shortest            = steady_clock::duration::max();
    unsigned i;

    all_reduce(false);
    table->cuCtxRecordEvent = [](CUcontext, CUevent) { return CUDA_SUCCESS; };
    table->cuEventQuery     = [](CUevent) { return CUDA_ERROR_NOT_READY; };
    /* the wait of one call may count again after a time in which this process
       stood still */
    for (i = 0; (i < 200) && (shortest >= std::chrono::milliseconds(2)); ++i) {
        const auto start = steady_clock::now();

        EXPECT_EQ(UCT_CUDA_COLL_STAGE, run());
        EXPECT_TRUE(has_logged("MPI: busy, rank ")) << log;
        shortest = std::min(shortest, steady_clock::now() - start);
    }
    EXPECT_GT(std::chrono::milliseconds(2), shortest);

    /* An idle GPU needs some microseconds to answer. This process may stand
       still meanwhile. */
    table->cuCtxRecordEvent = [](CUcontext, CUevent) {
        queries = 0;
        return CUDA_SUCCESS;
    };
    table->cuEventQuery = [](CUevent) {
        return (++queries < 3) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    };
    for (i = 0; (i < 100) && (run() == UCT_CUDA_COLL_STAGE); ++i) {
    }
    EXPECT_GT(100u, i);
    table->cuCtxRecordEvent = nullptr;
    table->cuEventQuery     = query;
    EXPECT_EQ(UCT_CUDA_COLL_DONE, run());
}

TEST_F(Call, scratch_memory_that_comes_back_is_used)
{
    all_reduce(false);
    gpus->gpu_memory = 2 * BYTES;
    EXPECT_EQ(UCT_CUDA_COLL_STAGE, run());
    gpus->gpu_memory = 1ul << 40;
    EXPECT_EQ(UCT_CUDA_COLL_DONE, run());
    EXPECT_EQ(SIZE, gpus->launches);
}

/* It may need more streams and events than earlier ones: a rank that has none
   is an error while others run, and the data in place is lost */
TEST_F(Call, ranks_prepare_a_new_plan_together)
{
    auto was_prepared = [this] {
        return uct_cuda_node_control_reached(
                       controls[0], 0, UCT_CUDA_NODE_PHASE_READY,
                       teams[0]->agreement.sequence) == UCS_OK;
    };

    for (unsigned part = 1; part < 6; part += 4) {
        for (uct_cuda_coll_call_t &call : calls) {
            call.count = COUNT / part; /* the same elements in a copy */
        }
        ASSERT_EQ(UCT_CUDA_COLL_DONE, run());
        EXPECT_TRUE(was_prepared());
        ASSERT_EQ(UCT_CUDA_COLL_DONE, run());
        EXPECT_FALSE(was_prepared());
    }

    /* also if a rank could not prepare it at first */
    for (uct_cuda_coll_call_t &call : calls) {
        call.count = COUNT / 25;
    }
    unprepared = &teams[1]->memory.events;
    EXPECT_EQ(UCT_CUDA_COLL_STAGE, run());
    unprepared = nullptr;
    EXPECT_EQ(UCT_CUDA_COLL_DONE, run());
    EXPECT_TRUE(was_prepared());
}

/* The old memory was freed to make room */
TEST_F(Call, scratch_memory_is_allocated_again_after_a_failure)
{
    auto set_count = [this](unsigned count) {
        for (uct_cuda_coll_call_t &call : calls) {
            call.count = count;
        }
    };

    all_reduce(false);
    set_count(COUNT / 2);
    EXPECT_EQ(UCT_CUDA_COLL_DONE, run());
    gpus->gpu_memory = 2 * BYTES;
    set_count(BYTES);
    EXPECT_EQ(UCT_CUDA_COLL_STAGE, run());
    gpus->gpu_memory = 1ul << 40;
    set_count(COUNT / 2);
    EXPECT_EQ(UCT_CUDA_COLL_DONE, run());
}

/* The data to send is intact: the MPI can run the call */
TEST_F(Call, a_failing_copy_falls_back)
{
    gpus->fail_function = "cuMemcpyAsync";
    gpus->fail_call(1);
    EXPECT_EQ(UCT_CUDA_COLL_STAGE, run());
    EXPECT_TRUE(gpus->is_idle());
    EXPECT_EQ(UCT_CUDA_COLL_DONE, run());
    EXPECT_TRUE(are_gathered());
}

/* In place, results may have overwritten the input */
TEST_F(Call, a_copy_that_fails_in_place_is_an_error)
{
    for (bool is_in_place : {false, true}) {
        all_reduce(is_in_place);
        ASSERT_EQ(UCT_CUDA_COLL_DONE, run());
        gpus->fail_function = "cuMemcpyAsync";
        gpus->fail_call(1);
        EXPECT_EQ(is_in_place ? UCT_CUDA_COLL_FAILED : UCT_CUDA_COLL_STAGE,
                  run());
    }
}

/* The result begins at the other buffer's start, or inside it */
TEST_F(Call, buffers_that_overlap_are_in_place)
{
    all_reduce(false);
    for (uct_cuda_coll_call_t &call : calls) {
        call.recvbuf = (uint8_t*)call.sendbuf + COUNT - 8;
    }
    gpus->fail_function = "cuMemcpyAsync";
    gpus->fail_call(1);
    EXPECT_EQ(UCT_CUDA_COLL_FAILED, run());
    for (uct_cuda_coll_call_t &call : calls) {
        call.recvbuf = (uint8_t*)call.sendbuf + COUNT;
    }
    gpus->fail_call(1);
    EXPECT_EQ(UCT_CUDA_COLL_STAGE, run());
}

/* All resources made in it are gone, and all ranks know it */
TEST_F(Call, a_destroyed_context_is_replaced)
{
    CUcontext context;

    all_reduce(false);
    ASSERT_EQ(UCT_CUDA_COLL_DONE, run());
    gpus->reset_context(1);
    ASSERT_EQ(UCS_OK, uct_cuda_ctx_retain(1, true, &context));
    all_gather();
    ASSERT_EQ(UCT_CUDA_COLL_DONE, run());
    EXPECT_TRUE(are_gathered());
    all_reduce(false);
    EXPECT_EQ(UCT_CUDA_COLL_DONE, run());
    uct_cuda_ctx_release(1);
}

/* Small sums of ranks that share a GPU go to the MPI if it supports them */
TEST_F(Call, small_sums_on_one_gpu_are_left_to_the_mpi)
{
    all_reduce(false);
    for (uct_cuda_coll_call_t &call : calls) {
        call.has_native_path = 1;
        call.sendbuf     = sends[0];
        call.recvbuf     = recvs[0];
    }
    /* ranks know that they share a GPU after their first call */
    EXPECT_EQ(UCT_CUDA_COLL_DONE, run());
    EXPECT_EQ(UCT_CUDA_COLL_STAGE, run());
    for (uct_cuda_coll_call_t &call : calls) {
        call.has_native_path = 0;
    }
    EXPECT_EQ(UCT_CUDA_COLL_DONE, run());
}

/* Freed memory is exported again: otherwise the other rank would read missing
   or foreign memory */
TEST_F(Call, freed_memory_is_exported_again)
{
    for (unsigned i = 0; i < 100; ++i) {
        const int other  = (int)(i % 2);
        sends[other]     = gpus->alloc(other, BYTES);
        recvs[1 - other] = gpus->alloc(1 - other, BYTES);
        all_gather();
        ASSERT_EQ(UCT_CUDA_COLL_DONE, run());
        ASSERT_TRUE(are_gathered()) << i;
    }
}

/* Programs that cycle over buffers: each is exported once, without a query for
   all others */
TEST_F(Call, memory_used_in_turns_stays_exported)
{
    enum : unsigned { PAIRS = 40 };
    std::vector<uint8_t*> buffers[SIZE];
    uint32_t exported[3], generation;
    uct_cuda_driver_t *table = const_cast<uct_cuda_driver_t*>(
            uct_cuda_driver_get());
    static const auto query  = table->cuPointerGetAttributes;
    static std::atomic<unsigned> queries;

    table->cuPointerGetAttributes = [](unsigned count,
                                       CUpointer_attribute *attributes,
                                       void **values, CUdeviceptr at) {
        ++queries;
        return query(count, attributes, values, at);
    };

    for (unsigned rank = 0; rank < SIZE; ++rank) {
        for (unsigned i = 0; i < 2 * PAIRS; ++i) {
            buffers[rank].push_back(gpus->alloc((int)rank, BYTES));
        }
    }
    for (uint32_t &sum : exported) {
        for (unsigned i = 0; i < 2 * PAIRS; i += 2) {
            for (unsigned rank = 0; rank < SIZE; ++rank) {
                sends[rank] = buffers[rank][i];
                recvs[rank] = buffers[rank][i + 1];
            }
            all_gather();
            queries = 0;
            ASSERT_EQ(UCT_CUDA_COLL_DONE, run());
            ASSERT_TRUE(are_gathered());
            ASSERT_GT(SIZE * 2 * 20, queries); /* two new ones a rank */
        }
        sum = 0;
        for (unsigned i = 0; i < UCT_CUDA_NODE_CONTROL_EXPORTS; ++i) {
            (void)uct_cuda_node_control_exported(controls[0], 0, i,
                                                 &generation);
            sum += generation;
        }
    }
    table->cuPointerGetAttributes = query;
    EXPECT_EQ(exported[0], exported[1]);
    EXPECT_EQ(exported[0], exported[2]);
}

/* A transfer from the third GPU, with the first one as relay while its links
   are idle */
class Links : public Call
{
protected:
    enum : unsigned { MANY = 512 << 10 };

    uct_cuda_mp_traffic_t *traffic = nullptr;
    std::mutex lock;
    unsigned most_paths = 0, fewest_paths = 100;
    bool had_there = false, had_back = false, had_other = false;

    void SetUp() override
    {
        Call::SetUp();
        ASSERT_EQ(UCS_OK, uct_cuda_mp_traffic_create(config.ledger, &traffic));
        for (unsigned rank = 0; rank < SIZE; ++rank) {
            sends[rank] = gpus->alloc((int)rank, MANY);
            recvs[rank] = gpus->alloc((int)rank, SIZE * MANY);
        }
    }

    void TearDown() override
    {
        uct_cuda_mp_traffic_destroy(traffic);
        Call::TearDown();
    }

    void gather(unsigned count)
    {
        all_gather();
        for (uct_cuda_coll_call_t &call : calls) {
            call.count = count;
        }
    }

    /* Plan a transfer, and record its load and number of paths. */
    void plan()
    {
        const std::lock_guard<std::mutex> guard(lock);
        const uct_cuda_end_t src = uct_cuda_end_gpu(2);
        const uct_cuda_end_t dst = uct_cuda_end_gpu(1);
        uct_cuda_plan_knowledge_t know = {};
        uct_cuda_plan_load_t load      = {};
        uct_cuda_plan_t plan;

        uct_cuda_mp_traffic_load(traffic, src, dst, &load);
        know.topo   = &topo;
        know.config = &config;
        know.load   = &load;
        uct_cuda_plan_make(&know, src, dst, 64ul << 20, &plan);
        most_paths   = std::max(most_paths, plan.num_paths + 0u);
        fewest_paths = std::min(fewest_paths, plan.num_paths + 0u);
        had_there   |= is_taken(load, 0, 1);
        had_back    |= is_taken(load, 1, 0);
        had_other   |= is_taken(load, 2, 0) || is_taken(load, 0, 2);
    }

    static bool is_taken(const uct_cuda_plan_load_t &load, int from, int to)
    {
        const uint16_t link = uct_cuda_plan_link(uct_cuda_end_gpu(from),
                                                 uct_cuda_end_gpu(to));
        return (load.active[link] > 0) && (load.direct[link] > 0);
    }
};

TEST_F(Links, transfers_see_the_links_used_by_collectives)
{
    plan();
    EXPECT_EQ(2u, fewest_paths);
    for (unsigned again = 0; again < 3; ++again) {
        fewest_paths  = 100;
        had_there     = false;
        had_back      = false;
        gpus->on_copy = [this] { plan(); };
        gather(MANY);
        ASSERT_EQ(UCT_CUDA_COLL_DONE, run());
        EXPECT_LT(fewest_paths, 2u);
        EXPECT_TRUE(had_there && had_back);
        EXPECT_FALSE(had_other);

        /* until they have ended */
        gpus->on_copy = nullptr;
        fewest_paths  = 100;
        plan();
        EXPECT_EQ(2u, fewest_paths);
    }
}

/* After every kind of end */
TEST_F(Links, failures_leave_no_link_in_use)
{
    gather(MANY);
    gpus->fail_function = "cuMemcpyAsync";
    gpus->fail_call(1);
    EXPECT_EQ(UCT_CUDA_COLL_STAGE, run());
    plan();
    EXPECT_EQ(2u, fewest_paths);
}

/* Operations too short to matter are not announced */
TEST_F(Links, small_collectives_cost_nothing)
{
    unsigned copies = 0;

    gpus->on_copy = [this, &copies] {
        plan();
        const std::lock_guard<std::mutex> guard(lock);
        ++copies;
    };
    gather(COUNT);
    ASSERT_EQ(UCT_CUDA_COLL_DONE, run());
    EXPECT_FALSE(had_there || had_back);
    EXPECT_EQ(2u, fewest_paths);
    EXPECT_GT(copies, 0u);
}
