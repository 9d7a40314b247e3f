/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank's part of a plan on GPUs that run late and in any order: its waits,
   and its behaviour after failures. The other rank is played. */
#include "gpus.h"
#include "ranks.h"

extern "C" {
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/plan/builder.h>
#include <uct/cuda/run/schedule.h>
}

#include <memory>


class Schedule : public Ranks, public ::testing::WithParamInterface<bool>
{
protected:
    enum : unsigned { SIZE = 2, BYTES = 1000, SEQUENCE = 5 };

    std::unique_ptr<Gpus> gpus;
    uct_cuda_plan_coll_t plan         = {};
    uct_cuda_plan_builder_t builder   = {};
    uct_cuda_run_coll_events_t events = {};
    uct_cuda_run_coll_call_t run      = {};
    uct_cuda_run_schedule_t *program = nullptr;
    CUcontext context               = nullptr;
    uct_cuda_context_t *record      = nullptr;

    /* Called while there is nothing to do */
    std::function<ucs_status_t()> idle = [] { return UCS_OK; };
    unsigned idles                     = 0;

    void SetUp() override
    {
        Ranks::SetUp();
        play(SIZE);
        run.control = open_control(0, SIZE);
        start(1);
    }

    void TearDown() override
    {
        stop();
        uct_cuda_node_control_close(run.control);
        Ranks::TearDown();
    }

    /* Begin with empty buffers of both ranks, and a plan without steps. */
    void start(unsigned seed)
    {
        gpus.reset(new Gpus(SIZE, GetParam(), seed));
        ASSERT_EQ(UCS_OK, uct_cuda_ctx_retain(0, true, &context));
        ASSERT_EQ(UCS_OK, uct_cuda_ctx_push(context));
        ASSERT_EQ(UCS_OK, uct_cuda_context_hold(&record));
        ASSERT_EQ(UCS_OK, uct_cuda_run_coll_device_get(record, &run.device));
        run.events   = &events;
        run.sequence = SEQUENCE;
        run.op       = UCX_MP_OP_BOR;
        run.type     = UCX_MP_TYPE_U8;
        for (unsigned rank = 0; rank < SIZE; ++rank) {
            for (CUdeviceptr &place : run.places[rank]) {
                place = (CUdeviceptr)gpus->alloc((int)rank, BYTES);
                memset((void*)place, 0, BYTES);
            }
        }
        memset((void*)run.places[0][UCT_CUDA_BUFFER_SEND], 'a', BYTES);
        plan           = {};
        plan.num_ranks = SIZE;
        ASSERT_EQ(UCS_OK,
                  uct_cuda_plan_builder_init(&builder, &plan, 10, 20, 20));
    }

    void stop()
    {
        if (program != nullptr) {
            uct_cuda_run_schedule_destroy(program);
            program = nullptr;
        }
        if (plan.list.steps != nullptr) { /* the plan was not used */
            free(builder.levels);
            uct_cuda_plan_coll_release(&plan);
        }
        uct_cuda_run_coll_events_release(&events, run.device, true);
        uct_cuda_context_put(record);
        uct_cuda_ctx_pop();
        uct_cuda_ctx_release(0);
        EXPECT_EQ(std::vector<std::string>(), gpus->complaints);
        gpus.reset();
    }

    uint8_t *place(unsigned rank, uct_cuda_buffer_t buffer)
    {
        return (uint8_t*)run.places[rank][buffer];
    }

    /* Add a copy by a rank between any places. */
    uint32_t copy(unsigned rank, unsigned queue, unsigned from,
                  uct_cuda_buffer_t source, unsigned to,
                  uct_cuda_buffer_t destination, unsigned level,
                  uint32_t wait = UCT_CUDA_NO_STEP)
    {
        const uint32_t step = uct_cuda_plan_builder_step(
                &builder, UCT_CUDA_PLAN_STEP_COPY, rank, queue, BYTES, level);

        uct_cuda_plan_builder_place(&builder, true, from, source, 0);
        uct_cuda_plan_builder_place(&builder, false, to, destination, 0);
        uct_cuda_plan_builder_wait(&builder, wait);
        return step;
    }

    void make()
    {
        ASSERT_EQ(UCS_OK, uct_cuda_plan_builder_finish(&builder));
        ASSERT_EQ(UCS_OK, uct_cuda_run_schedule_create(&plan, 0, &program));
        ASSERT_EQ(UCS_OK, uct_cuda_run_schedule_prepare(program, &run));
    }

    ucs_status_t carry_out()
    {
        ucs_status_t status = uct_cuda_run_schedule_begin(program, &run);

        while ((status = uct_cuda_run_schedule_test(program, status)) ==
               UCS_INPROGRESS) {
            ++idles;
            status = idle();
        }
        return status;
    }

    static bool is_all(const uint8_t *memory, char value)
    {
        return std::string((const char*)memory, BYTES) ==
               std::string(BYTES, value);
    }

    /* Make a copy over a blockable link: to the other GPU and back. */
    void make_there_and_back()
    {
        const uint32_t there = copy(0, 0, 0, UCT_CUDA_BUFFER_SEND, 1,
                                    UCT_CUDA_BUFFER_SCRATCH, 0);

        copy(0, 1, 1, UCT_CUDA_BUFFER_SCRATCH, 0, UCT_CUDA_BUFFER_RECV, 1,
             there);
        make();
    }

    /* Make a copy of data provided by the other rank. */
    void make_remote()
    {
        const uint32_t brought = copy(1, 2, 1, UCT_CUDA_BUFFER_SEND, 1,
                                      UCT_CUDA_BUFFER_SCRATCH, 0);

        copy(0, 0, 1, UCT_CUDA_BUFFER_SCRATCH, 0, UCT_CUDA_BUFFER_RECV, 1,
             brought);
        make();
    }

    void bring()
    {
        memset(place(1, UCT_CUDA_BUFFER_SCRATCH), 'b', BYTES);
        uct_cuda_node_control_step(controls[1], 0, SEQUENCE, 1);
    }
};

/* A step waits for one of another queue through an event, awaited by the GPU */
TEST_P(Schedule, own_steps_wait_for_each_other)
{
    for (unsigned seed = 1; seed < 20; ++seed) {
        stop();
        start(seed);
        make_there_and_back();
        for (unsigned again = 0; again < 3; ++again) {
            memset(place(0, UCT_CUDA_BUFFER_SEND), 'c' + (int)again, BYTES);
            ASSERT_EQ(UCS_OK, carry_out());
            ASSERT_TRUE(is_all(place(0, UCT_CUDA_BUFFER_RECV),
                               (char)('c' + again)))
                    << "seed " << seed;
        }
        EXPECT_TRUE(gpus->is_idle());
    }
}

TEST_P(Schedule, others_steps_are_waited_for)
{
    make_remote();
    idle = [this] {
        if (idles == 100) {
            EXPECT_TRUE(gpus->copied.empty()) << "before it was there";
            uct_cuda_node_control_step(controls[1], 0, SEQUENCE - 1, 1);
            uct_cuda_node_control_step(controls[1], 1, SEQUENCE, 1);
        } else if (idles == 200) {
            EXPECT_TRUE(gpus->copied.empty()) << "another call, another queue";
            bring();
        }
        return UCS_OK;
    };
    ASSERT_EQ(UCS_OK, carry_out());
    EXPECT_GE(idles, 200u);
    EXPECT_TRUE(is_all(place(0, UCT_CUDA_BUFFER_RECV), 'b'));
}

/* Other queues continue */
TEST_P(Schedule, other_queues_continue_during_a_wait)
{
    copy(0, 1, 0, UCT_CUDA_BUFFER_SEND, 0, UCT_CUDA_BUFFER_SCRATCH, 2);
    make_remote();
    idle = [this] {
        if ((idles > 1000) &&
            is_all(place(0, UCT_CUDA_BUFFER_SCRATCH), 'a')) {
            bring();
        }
        gpus->run_others();
        return (idles < 1000000) ? UCS_OK : UCS_ERR_TIMED_OUT;
    };
    ASSERT_EQ(UCS_OK, carry_out());
    EXPECT_TRUE(is_all(place(0, UCT_CUDA_BUFFER_RECV), 'b'));
}

/* A step for others is announced when it has ended, not earlier */
TEST_P(Schedule, ended_steps_are_announced)
{
    bool was_seen = false;

    const uint32_t first = copy(0, 0, 0, UCT_CUDA_BUFFER_SEND, 1,
                                UCT_CUDA_BUFFER_SCRATCH, 0);
    copy(1, 0, 1, UCT_CUDA_BUFFER_SCRATCH, 1, UCT_CUDA_BUFFER_RECV, 1, first);
    make();
    gpus->stuck = {0, 1};
    idle        = [&] {
        was_seen |= (uct_cuda_node_control_steps(controls[1], 0, 0, SEQUENCE) >
                     0);
        if (idles == 100) {
            EXPECT_FALSE(was_seen);
            gpus->stuck = {-2, -2};
        }
        return UCS_OK;
    };
    ASSERT_EQ(UCS_OK, carry_out());
    EXPECT_EQ(1u, uct_cuda_node_control_steps(controls[1], 0, 0, SEQUENCE));
    EXPECT_TRUE(is_all(place(1, UCT_CUDA_BUFFER_SCRATCH), 'a'));
}

/* A step that was not submitted, or an unknown end: no work is left when the
   call returns, and the next call works */
TEST_P(Schedule, a_failing_call_leaves_nothing_behind)
{
    unsigned failures = 0;

    make_there_and_back();
    for (const char *function :
         {"cuMemcpyAsync", "cuEventRecord", "cuStreamWaitEvent",
          "cuEventQuery", "cuLaunchHostFunc"}) {
        gpus->fail_function = function;
        for (unsigned n = 1; n < 3; ++n) {
            gpus->failed_function.clear();
            gpus->fail_call(n);
            const ucs_status_t status = carry_out();
            if (gpus->failed_function.empty()) {
                EXPECT_EQ(UCS_OK, status);
            } else {
                ++failures;
                EXPECT_EQ(UCS_ERR_IO_ERROR, status) << function;
            }
            EXPECT_TRUE(gpus->is_idle()) << function;
        }
        gpus->fail_call(1000000);
        ASSERT_EQ(UCS_OK, carry_out());
    }
    EXPECT_GE(failures, 6u);
}

/* Without its context the process can do nothing more */
TEST_P(Schedule, a_failed_context_is_not_used_again)
{
    make_there_and_back();
    gpus->fail_function = "cuStreamSynchronize";
    gpus->fail_call(1);
    gpus->stuck = {0, 1};
    idle        = [this] {
        gpus->stuck = {-2, -2};
        return UCS_ERR_CANCELED;
    };
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, carry_out());
}

TEST_P(Schedule, a_rank_that_never_ends_its_step_is_named)
{
    make_remote();
    idle = [] { return has_logged("waiting") ? UCS_ERR_TIMED_OUT : UCS_OK; };
    EXPECT_EQ(UCS_ERR_TIMED_OUT, carry_out());
    EXPECT_TRUE(has_logged("bytes: step 1 of rank 0 waiting for rank 1: queue "
                           "0 at step 0 of 1\n"))
            << log;
    EXPECT_TRUE(gpus->copied.empty());
}

TEST_P(Schedule, a_step_that_the_gpu_never_ends_is_named)
{
    make_there_and_back();
    gpus->stuck = {0, 1};
    idle        = [this] {
        if (!has_logged("running on the GPU")) {
            return UCS_OK;
        }
        gpus->stuck = {-2, -2};
        return UCS_ERR_TIMED_OUT;
    };
    EXPECT_EQ(UCS_ERR_TIMED_OUT, carry_out());
    EXPECT_TRUE(has_logged("bytes: step 0 of rank 0 running on the GPU"));
    EXPECT_TRUE(gpus->is_idle());
}

INSTANTIATE_TEST_SUITE_P(asked, Schedule, ::testing::Values(false));
INSTANTIATE_TEST_SUITE_P(words, Schedule, ::testing::Values(true));
