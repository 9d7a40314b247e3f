/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank's reaction to the posts of others; the test plays these. */
#include "ranks.h"

extern "C" {
#include <kernels/kernels.h>
#include <uct/cuda/base/clock.h>
#include <uct/cuda/collective/agree.h>
#include <uct/cuda/plan/trees.h>
}

#include <cstring>

std::string Ranks::log;
std::mutex Ranks::log_lock;

class Agreement : public Ranks
{
protected:
    enum : unsigned { SIZE = 3 };

    uct_cuda_coll_agreement_t self    = {};
    uct_cuda_coll_call_t call         = {};
    uct_cuda_node_announcement_t post = {}; /* the post of all ranks */
    char why[256]                     = "";

    /* Actions of the others while this rank waits, round by round */
    std::function<void()> others = [] {};
    unsigned rounds              = 0;

    void SetUp() override
    {
        Ranks::SetUp();
        play(SIZE);
        self.control  = open_control(0, SIZE);
        self.rank     = 0;
        self.size     = SIZE;
        call.progress = [](void *arg) {
            Agreement *test = static_cast<Agreement*>(arg);
            ++test->rounds;
            test->others();
        };
        call.arg   = this;
        post.kind  = UCT_CUDA_NODE_ANNOUNCE_GPU;
        post.call  = UCT_CUDA_COLL_KIND_ALLREDUCE;
        post.type  = UCX_MP_TYPE_F32;
        post.bytes = 4000;
    }

    void TearDown() override
    {
        uct_cuda_node_control_close(self.control);
        Ranks::TearDown();
    }

    void begin()
    {
        uct_cuda_coll_agree_begin(&self, &call, why, sizeof(why));
        self.bytes = 4000;
        rounds     = 0;
    }

    void say(unsigned rank, const uct_cuda_node_announcement_t &what)
    {
        uct_cuda_node_control_announce(controls[rank], self.sequence, &what);
    }

    uct_cuda_coll_result_t agree()
    {
        uct_cuda_coll_result_t result;
        ucs_status_t waited = UCS_OK;

        uct_cuda_coll_agree_announce(&self, &post);
        while ((result = uct_cuda_coll_agree_test(&self, waited)) ==
               UCT_CUDA_COLL_PENDING) {
            waited = uct_cuda_coll_agree_idle(&self);
        }
        if (result == UCT_CUDA_COLL_DIFFERS) {
            barrier(UCT_CUDA_NODE_PHASE_PLANNED, UCS_OK);
        }
        return result;
    }

    ucs_status_t barrier(uct_cuda_node_phase_t phase, ucs_status_t status)
    {
        ucs_status_t waited = UCS_OK;

        uct_cuda_coll_agree_reach(&self, phase, status);
        while ((status = uct_cuda_coll_agree_reached(&self, waited)) ==
               UCS_INPROGRESS) {
            waited = uct_cuda_coll_agree_idle(&self);
        }
        return status;
    }

    /* Let only rank 2 post something else. */
    template<typename F> uct_cuda_coll_result_t differ(F change)
    {
        uct_cuda_node_announcement_t other = post;

        begin();
        change(other);
        say(1, post);
        say(2, other);
        have_read();
        return agree();
    }

    void have_read()
    {
        for (unsigned rank = 1; rank < SIZE; ++rank) {
            uct_cuda_node_control_reach(controls[rank],
                                        UCT_CUDA_NODE_PHASE_PLANNED,
                                        self.sequence, UCS_OK);
        }
    }
};

TEST_F(Agreement, equal_announcements_agree)
{
    begin();
    say(1, post);
    say(2, post);
    EXPECT_EQ(UCT_CUDA_COLL_DONE, agree());
    EXPECT_STREQ("", why);
    EXPECT_EQ(4000u, self.posts[2].bytes);
}

TEST_F(Agreement, one_fallback_is_a_fallback_of_all)
{
    begin();
    say(2, post);
    uct_cuda_node_control_decline(controls[1], self.sequence,
                                  UCT_CUDA_COLL_NO_HOST, UCS_OK);
    EXPECT_EQ(UCT_CUDA_COLL_STAGE, agree());
    EXPECT_STREQ("", why);

    /* Ranks do not wait for the others after a fallback */
    begin();
    uct_cuda_node_control_decline(controls[1], self.sequence,
                                  UCT_CUDA_COLL_NO_HOST, UCS_OK);
    EXPECT_EQ(UCT_CUDA_COLL_STAGE, agree());
    EXPECT_EQ(0u, rounds);
    EXPECT_EQ(UCT_CUDA_COLL_NO_HOST, self.fallback.reason);
    EXPECT_EQ(1, self.fallback.rank);
}

TEST_F(Agreement, a_declining_rank_announces_its_reason)
{
    uct_cuda_node_announcement_t read;

    begin();
    uct_cuda_coll_agree_decline(&self, UCT_CUDA_COLL_NO_EXPORT,
                                UCS_ERR_NO_MEMORY);
    ASSERT_TRUE(
        uct_cuda_node_control_read(controls[1], 0, self.sequence, &read));
    EXPECT_EQ(UCT_CUDA_NODE_ANNOUNCE_DECLINE, read.kind);
    EXPECT_EQ(UCT_CUDA_COLL_NO_EXPORT, read.reason);
    EXPECT_EQ(-UCS_ERR_NO_MEMORY, read.status);
}

TEST_F(Agreement, different_sizes_are_an_error_with_a_message)
{
    EXPECT_EQ(UCT_CUDA_COLL_DIFFERS,
              differ([](uct_cuda_node_announcement_t &p) { p.bytes = 4004; }));
    EXPECT_STREQ("rank 0 calls with 4000 bytes, rank 2 with 4004", why);
    EXPECT_EQ(UCT_CUDA_COLL_DIFFERS,
              differ([](uct_cuda_node_announcement_t &p) {
                  p.call = UCT_CUDA_COLL_KIND_ALLGATHER;
              }));
    EXPECT_STREQ("rank 0 calls all-reduce, rank 2 calls all-gather", why);
    EXPECT_EQ(UCT_CUDA_COLL_DIFFERS,
              differ([](uct_cuda_node_announcement_t &p) { p.root = 2; }));
    EXPECT_STREQ("rank 0 calls with root 0, rank 2 with 2", why);
    EXPECT_EQ(UCT_CUDA_COLL_DIFFERS,
              differ([](uct_cuda_node_announcement_t &p) { p.counts = 5; }));
    EXPECT_STREQ("ranks 0 and 2 call with different counts", why);
    EXPECT_EQ(UCT_CUDA_COLL_DIFFERS,
              differ([](uct_cuda_node_announcement_t &p) { p.is_short = 1; }));
    EXPECT_STREQ("rank 2's buffer ends before the 4000 bytes do", why);

    /* A mismatch concerns only this call */
    EXPECT_EQ(UCT_CUDA_COLL_DONE, differ([](uct_cuda_node_announcement_t&) {}));
    EXPECT_STREQ("", why);
}

/* After a mismatch no rank begins another call, since late ranks would not see
   the mismatch then */
TEST_F(Agreement, a_mismatch_ends_when_all_have_read_it)
{
    uct_cuda_node_announcement_t other = post;

    other.bytes = 4004;
    begin();
    say(1, post);
    say(2, other);
    others = [this] {
        if (rounds == 3) {
            have_read();
        }
    };
    EXPECT_EQ(UCT_CUDA_COLL_DIFFERS, agree());
    EXPECT_EQ(3u, rounds);

    /* a rank's fallback is not the mismatch */
    begin();
    say(1, post);
    say(2, other);
    others = [this] {
        if (rounds == 1) {
            leave(2);
        }
    };
    EXPECT_EQ(UCT_CUDA_COLL_DIFFERS, agree());
    EXPECT_STREQ("rank 0 calls with 4000 bytes, rank 2 with 4004", why);
}

/* Ranks may pass different operations: the MPI's native path applies its own
   rules */
TEST_F(Agreement, another_operation_falls_back)
{
    EXPECT_EQ(UCT_CUDA_COLL_STAGE, differ([](uct_cuda_node_announcement_t &p) {
                  p.op = UCX_MP_OP_MAX;
              }));
    EXPECT_EQ(UCT_CUDA_COLL_STAGE,
              differ([](uct_cuda_node_announcement_t &p) {
                  p.type = UCX_MP_TYPE_I32; /* of the same size */
              }));
    EXPECT_EQ(UCT_CUDA_COLL_STAGE, differ([](uct_cuda_node_announcement_t &p) {
                  p.is_in_place = 1;
              }));
    EXPECT_STREQ("", why);

    /* With a root, the root's value applies */
    post.call = UCT_CUDA_COLL_KIND_GATHER;
    EXPECT_EQ(UCT_CUDA_COLL_DONE, differ([](uct_cuda_node_announcement_t &p) {
                  p.is_in_place = 1;
              }));
}

TEST_F(Agreement, a_late_rank_is_waited_for)
{
    begin();
    say(1, post);
    others = [this] {
        if (rounds == 5) {
            say(2, post);
        }
    };
    EXPECT_EQ(UCT_CUDA_COLL_DONE, agree());
    EXPECT_EQ(5u, rounds); /* the MPI could progress meanwhile */
}

TEST_F(Agreement, a_rank_that_left_is_an_error)
{
    begin();
    say(1, post);
    others = [this] {
        if (rounds == 1) {
            leave(2);
        }
    };
    EXPECT_EQ(UCT_CUDA_COLL_FAILED, agree());
    EXPECT_STREQ("the process of rank 2 has ended", why);
}

/* It did not wait for late ranks */
TEST_F(Agreement, a_rank_may_leave_after_a_fallback)
{
    begin();
    others = [this] {
        if (rounds == 1) {
            uct_cuda_node_control_decline(controls[2], self.sequence,
                                          UCT_CUDA_COLL_NO_HOST, UCS_OK);
            leave(2);
        }
    };
    EXPECT_EQ(UCT_CUDA_COLL_STAGE, agree());
    EXPECT_STREQ("", why);
}

TEST_F(Agreement, a_late_rank_is_named_after_a_second)
{
    uint64_t second = 0;

    begin();
    say(1, post);
    others = [this, &second] {
        second += !has_logged("after 1 s") ? 0 : 1;
        if (second == 3) {
            say(2, post);
        }
    };
    EXPECT_EQ(UCT_CUDA_COLL_DONE, agree());
    EXPECT_EQ("collective 1: all-reduce of 4000 bytes, 3 ranks: rank 0 waiting "
              "for rank 2, which has not made this call after 1 s\n",
              log);

    /* But not about a shorter time, in spite of earlier calls */
    log.clear();
    begin();
    say(1, post);
    rounds = 0;
    others = [this] {
        if (rounds == 30) {
            say(2, post);
        }
    };
    EXPECT_EQ(UCT_CUDA_COLL_DONE, agree());
    EXPECT_EQ("", log);
}

TEST_F(Agreement, all_have_joined_before_the_call)
{
    begin();
    uct_cuda_node_control_join(self.control, 1);
    uct_cuda_node_control_join(controls[1], 1);
    others = [this] {
        if (rounds == 3) {
            uct_cuda_node_control_join(controls[2], 1);
        }
    };
    EXPECT_TRUE(uct_cuda_coll_agree_all_joined(&self));
    EXPECT_EQ(3u, rounds);

    /* It need not be asked again */
    uct_cuda_node_control_join(controls[2], 100);
    begin();
    EXPECT_TRUE(uct_cuda_coll_agree_all_joined(&self));
    EXPECT_EQ(0u, rounds);
}

/* The first call waits a moment for it, later calls do not */
TEST_F(Agreement, a_rank_that_has_not_joined_is_waited_for_once)
{
    begin();
    uct_cuda_node_control_join(self.control, 1);
    uct_cuda_node_control_join(controls[1], 1);
    EXPECT_FALSE(uct_cuda_coll_agree_all_joined(&self));
    EXPECT_GT(rounds, 0u);
    begin();
    EXPECT_FALSE(uct_cuda_coll_agree_all_joined(&self));
    EXPECT_EQ(0u, rounds);

    /* It has joined, but not posted this call */
    uct_cuda_node_control_join(controls[2], 3);
    EXPECT_FALSE(uct_cuda_coll_agree_all_joined(&self));
    begin();
    EXPECT_TRUE(uct_cuda_coll_agree_all_joined(&self));
}

/* A rank with host memory in all of ten communicators: waiting 0.2 s for each
   would take 2 s */
TEST_F(Agreement, waits_for_ranks_that_never_join_get_shorter)
{
    const uint64_t began = uct_cuda_now_ns();
    uint64_t first_wait;

    uct_cuda_node_control_join(self.control, 1);
    uct_cuda_node_control_join(controls[1], 1);
    for (unsigned communicator = 0; communicator < 10; ++communicator) {
        self.deadline = 0;
        begin();
        EXPECT_FALSE(uct_cuda_coll_agree_all_joined(&self));
    }
    EXPECT_LT(uct_cuda_now_ns() - began, 1900000000u);

    /* until one communicator is complete */
    others = [this] { uct_cuda_node_control_join(controls[2], 1); };
    while (!uct_cuda_coll_agree_all_joined(&self)) {
        begin();
        others();
    }
    self.is_joined = false;
    self.deadline = 0;
    others        = [] {};
    uct_cuda_node_control_join(controls[2], 0);
    begin();
    first_wait = uct_cuda_now_ns();
    EXPECT_FALSE(uct_cuda_coll_agree_all_joined(&self));
    EXPECT_GT(uct_cuda_now_ns() - first_wait, 150000000u);
}

TEST_F(Agreement, a_phase_ends_with_the_first_failure)
{
    const uct_cuda_node_phase_t phase = UCT_CUDA_NODE_PHASE_MADE;

    begin();
    uct_cuda_node_control_reach(controls[1], phase, self.sequence, UCS_OK);
    others = [this] {
        uct_cuda_node_control_reach(controls[2], phase, self.sequence, UCS_OK);
    };
    EXPECT_EQ(UCS_OK, barrier(phase, UCS_OK));
    EXPECT_EQ(UCS_OK, uct_cuda_node_control_reached(controls[1], 0, phase,
                                                    self.sequence));

    begin();
    uct_cuda_node_control_reach(controls[1], phase, self.sequence,
                                UCS_ERR_NO_MEMORY);
    others = [this] {
        uct_cuda_node_control_reach(controls[2], phase, self.sequence,
                                    UCS_ERR_IO_ERROR);
    };
    EXPECT_EQ(UCS_ERR_NO_MEMORY,
              barrier(phase, UCS_OK));
    EXPECT_STREQ("rank 1 could not continue", why);
}

/* It waits for all others: resources of a failed call must not be released
   earlier */
TEST_F(Agreement, a_failed_rank_waits_for_the_others)
{
    const uct_cuda_node_phase_t phase = UCT_CUDA_NODE_PHASE_DONE;

    begin();
    uct_cuda_node_control_reach(controls[1], phase, self.sequence,
                                UCS_ERR_ENDPOINT_TIMEOUT);
    others = [this] {
        if (rounds == 4) {
            uct_cuda_node_control_reach(controls[2], phase, self.sequence,
                                        UCS_OK);
        }
    };
    EXPECT_EQ(UCS_ERR_NO_MEMORY,
              barrier(phase, UCS_ERR_NO_MEMORY));
    EXPECT_EQ(4u, rounds);
}

TEST_F(Agreement, a_rank_that_dies_during_a_phase_is_an_error)
{
    const uct_cuda_node_phase_t phase = UCT_CUDA_NODE_PHASE_DONE;

    begin();
    uct_cuda_node_control_reach(controls[1], phase, self.sequence, UCS_OK);
    others = [this] {
        if (rounds == 1) {
            leave(2);
        }
    };
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT,
              barrier(phase, UCS_OK));
    EXPECT_STREQ("the process of rank 2 has ended", why);
}

/* It may still copy to or from this rank's memory */
TEST_F(Agreement, a_living_rank_is_waited_for_after_one_has_died)
{
    const uct_cuda_node_phase_t phase = UCT_CUDA_NODE_PHASE_DONE;

    begin();
    leave(1);
    others = [this] {
        self.looked = 1; /* look at once */
        if (rounds == 8) {
            uct_cuda_node_control_reach(controls[2], phase, self.sequence,
                                        UCS_ERR_CANCELED);
        }
    };
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, barrier(phase, UCS_OK));
    EXPECT_EQ(8u, rounds);
    EXPECT_STREQ("the process of rank 1 has ended", why);
}

/* The context of this rank's call is gone: each of its tests says so */
TEST_F(Agreement, living_ranks_are_waited_for_without_a_context)
{
    const uct_cuda_node_phase_t phase = UCT_CUDA_NODE_PHASE_DONE;

    begin();
    self.first_failed = 1; /* of an earlier call */
    uct_cuda_node_control_reach(controls[1], phase, self.sequence, UCS_OK);
    uct_cuda_coll_agree_reach(&self, phase, UCS_OK);
    for (unsigned i = 0; i < 100; ++i) {
        ASSERT_EQ(UCS_INPROGRESS,
                  uct_cuda_coll_agree_reached(&self, UCS_ERR_NO_DEVICE));
    }
    leave(2);
    EXPECT_EQ(UCS_ERR_NO_DEVICE,
              uct_cuda_coll_agree_reached(&self, UCS_ERR_NO_DEVICE));
    EXPECT_STREQ("rank 2 could not continue", why);
}

/* A rank that has seen all others may leave before this rank looks again */
TEST_F(Agreement, a_rank_that_left_after_a_phase_has_reached_it)
{
    const uct_cuda_node_phase_t phase = UCT_CUDA_NODE_PHASE_DONE;

    begin();
    uct_cuda_node_control_reach(controls[1], phase, self.sequence, UCS_OK);
    others = [this] {
        uct_cuda_node_control_reach(controls[2], phase, self.sequence, UCS_OK);
        leave(2);
        self.looked = 1; /* look at once */
    };
    EXPECT_EQ(UCS_OK, barrier(phase, UCS_OK));
    EXPECT_STREQ("", why);
}

TEST_F(Agreement, others_failures_end_a_wait_for_their_steps)
{
    ucs_status_t status = UCS_OK;
    unsigned i;

    begin();
    uct_cuda_coll_agree_run(&self);
    uct_cuda_node_control_reach(controls[1], UCT_CUDA_NODE_PHASE_DONE,
                                self.sequence, UCS_OK);
    for (i = 0; i < 1000; ++i) {
        ASSERT_EQ(UCS_OK, uct_cuda_coll_agree_idle(&self));
    }
    uct_cuda_node_control_reach(controls[2], UCT_CUDA_NODE_PHASE_DONE,
                                self.sequence, UCS_ERR_IO_ERROR);
    for (i = 0; (i < 1000) && (status == UCS_OK); ++i) {
        status = uct_cuda_coll_agree_idle(&self);
    }
    EXPECT_EQ(UCS_ERR_CANCELED, status);

    /* The error belongs to the failed rank, not to the rank that stops because
       of it */
    EXPECT_EQ(UCS_ERR_IO_ERROR,
              barrier(UCT_CUDA_NODE_PHASE_DONE,
                                          status));
    EXPECT_STREQ("rank 2 could not continue", why);
    EXPECT_EQ(UCT_CUDA_COLL_FAULT_RUN, self.fallback.reason);
    EXPECT_EQ(2, self.fallback.rank);
}

/* All ranks plan by rank 0's knowledge of the node */
TEST_F(Agreement, rank_0_decides_about_the_node_for_all)
{
    uct_cuda_node_control_common_t *common = uct_cuda_node_control_common(
        controls[1]);
    uint8_t uuid[16]                       = {};

    self.rank = 1; /* reads others' posts */
    for (unsigned rank = 0; rank < SIZE; ++rank) {
        uuid[0] = (uint8_t)(rank + 1);
        uct_cuda_node_control_set_gpu((rank == 0) ? self.control :
                                                    controls[rank],
                                      uuid);
        uct_cuda_topo_init(&common->topo, SIZE);
    }
    for (unsigned gpu = 0; gpu < SIZE; ++gpu) {
        common->topo.gpus[gpu].uuid[0] = (uint8_t)(SIZE - gpu);
    }
    common->transfers              = uct_cuda_plan_model_builtin;
    common->transfers.submit_chunk = 1e-3;

    /* Only after rank 0 has posted it, and if the ranks' GPUs match */
    ASSERT_TRUE(uct_cuda_coll_agree_find_gpus(&self));
    EXPECT_EQ(uct_cuda_plan_model_builtin.submit_chunk,
              self.transfers.submit_chunk);
    EXPECT_EQ(0, self.gpus[0]);
    EXPECT_TRUE(uct_cuda_coll_agree_is_peer(&self, 2));
    common->has_topo = true;
    ASSERT_TRUE(uct_cuda_coll_agree_find_gpus(&self));
    EXPECT_EQ(1e-3, self.transfers.submit_chunk);
    EXPECT_EQ((int)SIZE - 1, self.gpus[0]);
    EXPECT_FALSE(uct_cuda_coll_agree_is_peer(&self, 2)); /* no links */
    common->topo.gpus[1].uuid[0] = 77;
    ASSERT_TRUE(uct_cuda_coll_agree_find_gpus(&self));
    EXPECT_EQ(uct_cuda_plan_model_builtin.submit_chunk,
              self.transfers.submit_chunk);
}

/* Ranks with one visible GPU each: rank 0 knows the rate of its own ports to
   the switch, and the others' ports are the same */
TEST_F(Agreement, hidden_gpus_are_behind_the_switch_of_rank_0)
{
    uct_cuda_node_control_common_t *common = uct_cuda_node_control_common(
            self.control);
    uct_cuda_plan_coll_ranks_t ranks = {};

    for (unsigned rank = 0; rank < SIZE; ++rank) {
        const uint8_t uuid[16] = {(uint8_t)(rank + 1)};

        uct_cuda_node_control_set_gpu((rank == 0) ? self.control :
                                                    controls[rank],
                                      uuid);
    }
    uct_cuda_topo_init(&common->topo, 1);
    common->topo.gpus[0].uuid[0] = 1;
    uct_cuda_topo_add_limit(&common->topo, UCT_CUDA_TOPO_LIMIT_HOST, 55e9);
    uct_cuda_topo_add_limit(&common->topo, UCT_CUDA_TOPO_LIMIT_NVLINK, 396e9);
    common->has_topo = true;

    ASSERT_TRUE(uct_cuda_coll_agree_find_gpus(&self));
    ranks.topo      = &self.topo;
    ranks.num_ranks = SIZE;
    ranks.gpus      = self.gpus;
    EXPECT_EQ(396e9, uct_cuda_plan_coll_trees_ports(&ranks));
    EXPECT_EQ(396e9, self.topo.links[2][1].bandwidth);
    EXPECT_EQ(2 * SIZE, (unsigned)self.topo.num_limits);
}

TEST_F(Agreement, more_gpus_than_plans_know_are_too_many)
{
    const unsigned many = UCT_CUDA_MAX_GPUS + 1;
    uct_cuda_coll_agreement_t other = {};
    std::vector<unsigned> members(many, 0);

    other.size = many;
    for (unsigned rank = 0; rank < many; ++rank) {
        uct_cuda_node_control_t *control;
        const uint8_t uuid[16] = {(uint8_t)(rank + 1)};

        ASSERT_EQ(UCS_OK, uct_cuda_node_control_open(segment, KEY + 1, rank,
                                                     many,
                                                     members.data(), &control));
        uct_cuda_node_control_set_gpu(control, uuid);
        controls.push_back(control);
        other.control = control;
    }
    EXPECT_FALSE(uct_cuda_coll_agree_find_gpus(&other));
    other.size = many - 1;
    EXPECT_TRUE(uct_cuda_coll_agree_find_gpus(&other));
}

/* A word of the control block has 40 bits for a call's number */
TEST_F(Agreement, call_numbers_wrap_around)
{
    const uint64_t last = (1ul << 40) - 1;

    self.sequence = last - 1;
    for (unsigned rank = 1; rank < SIZE; ++rank) {
        uct_cuda_node_control_join(controls[rank], last - 2);
    }
    uct_cuda_node_control_join(self.control, last - 2);
    for (unsigned i = 0; i < 4; ++i) {
        begin();
        others = [this] {
            if (rounds == 2) {
                say(1, post);
                say(2, post);
            }
        };
        ASSERT_EQ(UCT_CUDA_COLL_DONE, agree()) << i;
        EXPECT_EQ(2u, rounds) << i; /* no rank had joined before */
        others = [this] {
            for (unsigned rank = 1; rank < SIZE; ++rank) {
                uct_cuda_node_control_reach(controls[rank],
                                            UCT_CUDA_NODE_PHASE_DONE,
                                            self.sequence, UCS_OK);
            }
        };
        rounds = 0;
        ASSERT_EQ(UCS_OK, barrier(UCT_CUDA_NODE_PHASE_DONE, UCS_OK));
        EXPECT_GT(rounds, 0u) << i;
    }
}

TEST_F(Agreement, a_rank_ahead_across_the_wrap_around_is_ahead)
{
    const uct_cuda_node_phase_t phase = UCT_CUDA_NODE_PHASE_DONE;
    uint64_t ahead;

    self.sequence = (1ul << 40) - 2;
    begin();
    ahead = self.sequence + 1;
    say(2, post);
    uct_cuda_node_control_decline(controls[1], ahead, UCT_CUDA_COLL_NO_HOST,
                                  UCS_OK);
    uct_cuda_node_control_reach(controls[1], phase, ahead, UCS_ERR_IO_ERROR);
    uct_cuda_node_control_step(controls[1], 3, ahead, 1);
    EXPECT_EQ(UCT_CUDA_COLL_STAGE, agree());
    EXPECT_EQ(UCS_OK, uct_cuda_node_control_reached(self.control, 1, phase,
                                                    self.sequence));
    EXPECT_EQ(UINT32_MAX, uct_cuda_node_control_steps(self.control, 1, 3,
                                                      self.sequence));
    EXPECT_EQ(1u, uct_cuda_node_control_steps(self.control, 1, 3, ahead));
    EXPECT_EQ(0u, uct_cuda_node_control_steps(self.control, 1, 3, ahead + 1));
}
