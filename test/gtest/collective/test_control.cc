/* SPDX-License-Identifier: BSD-3-Clause */
/* The shared segment and its control blocks: ranks in processes of their own
   read each other's posts. */
#include "process.h"

extern "C" {
#include <uct/cuda/node/control.h>
#include <uct/cuda/plan/collective_plan.h>
}

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

class CollSegment : public ::testing::Test
{
protected:
    std::string dir;
    char name[UCT_CUDA_NODE_SEGMENT_NAME] = "";
    uct_cuda_node_segment_t *segment      = nullptr;

    void SetUp() override
    {
        char path[] = "/tmp/coll-board-XXXXXX";
        dir         = mkdtemp(path);
        ASSERT_EQ(UCS_OK, open(0, 2, name, &segment));
    }

    void TearDown() override
    {
        if (segment != nullptr) {
            uct_cuda_node_segment_close(segment);
        }
        EXPECT_EQ(0, rmdir(dir.c_str())) << "a file is left";
    }

    ucs_status_t open(unsigned rank, unsigned size, char *what,
                      uct_cuda_node_segment_t **board_p)
    {
        return uct_cuda_node_segment_open(dir.c_str(), rank, size, what,
                                          board_p);
    }

    std::string path() const
    {
        return dir + "/" + name;
    }

    /* Run rank 1 in a process of its own to its end. */
    template<typename F> int in_segment_1(F func)
    {
        return in_child([&] { return as_segment_1(func); });
    }

    template<typename F> int as_segment_1(F func)
    {
        uct_cuda_node_segment_t *mine;

        return (open(1, 2, name, &mine) == UCS_OK) ? func(mine) : 99;
    }

    uint32_t word() const
    {
        return *uct_cuda_node_segment_changes(segment);
    }
};

class CollControl : public CollSegment
{
protected:
    static const uint64_t KEY        = 17;
    uct_cuda_node_control_t *control = nullptr;

    void SetUp() override
    {
        CollSegment::SetUp();
        ASSERT_EQ(UCS_OK, open_control(segment, 0, &control));
    }

    void TearDown() override
    {
        if (control != nullptr) {
            uct_cuda_node_control_close(control);
        }
        CollSegment::TearDown();
    }

    static ucs_status_t open_control(uct_cuda_node_segment_t *segment,
                                     unsigned rank,
                                     uct_cuda_node_control_t **control_p)
    {
        const unsigned members[] = {0, 1};
        return uct_cuda_node_control_open(segment, KEY, rank, 2, members,
                                          control_p);
    }

    template<typename F> int in_rank_1(F func)
    {
        return in_segment_1([&](uct_cuda_node_segment_t *mine) {
            return run_rank_1(mine, func);
        });
    }

    template<typename F>
    static int run_rank_1(uct_cuda_node_segment_t *segment, F func)
    {
        uct_cuda_node_control_t *mine;
        return (open_control(segment, 1, &mine) == UCS_OK) ? func(mine) : 98;
    }

    /* Posts of rank 1 */
    uct_cuda_node_announcement_t said;

    bool hears(uint64_t sequence)
    {
        return uct_cuda_node_control_read(control, 1, sequence, &said);
    }

    static uct_cuda_node_announcement_t post(uint64_t bytes)
    {
        uct_cuda_node_announcement_t result;
        memset(&result, 0, sizeof(result));
        result.kind        = UCT_CUDA_NODE_ANNOUNCE_GPU;
        result.bytes       = bytes;
        result.recv.offset = 3 * bytes;
        return result;
    }
};

TEST_F(CollSegment, another_machines_segment_is_not_opened)
{
    const std::string here = name;
    const size_t dash      = here.find('-', strlen("ucx-mp-coll-"));
    uct_cuda_node_segment_t *mine;

    ASSERT_NE(std::string::npos, dash);
    snprintf(name, sizeof(name), "ucx-mp-coll-%s1%s",
             here.substr(strlen("ucx-mp-coll-"),
                         dash - strlen("ucx-mp-coll-")).c_str(),
             here.substr(dash).c_str());
    ASSERT_EQ(0, link((dir + "/" + here).c_str(),
                      (dir + "/" + name).c_str()));
    EXPECT_EQ(UCS_ERR_UNREACHABLE, open(1, 2, name, &mine));
    unlink((dir + "/" + name).c_str());
    strcpy(name, here.c_str());
}

/* A job killed during its start leaves a file. The next job removes it, unless
   it is young or a process holds it */
TEST_F(CollSegment, files_of_killed_jobs_are_removed)
{
    const std::string prefix = std::string(name).substr(
            0, std::string(name).find('-', strlen("ucx-mp-coll-")) + 1);
    const std::string left = dir + "/" + prefix + "1-left";
    const std::string held = dir + "/" + prefix + "1-held";
    const std::string young = dir + "/" + prefix + "1-young";
    const std::string other = dir + "/ucx-mp-coll-other";
    const struct timespec old[] = {{1, 0}, {1, 0}};
    struct flock lock           = {};
    char next_name[UCT_CUDA_NODE_SEGMENT_NAME];
    uct_cuda_node_segment_t *next;
    int fd = -1;

    for (const auto &file : {left, young, other, held}) {
        close(fd);
        fd = ::open(file.c_str(), O_RDWR | O_CREAT, 0600);
        ASSERT_LE(0, fd);
        if (file != young) {
            futimens(fd, old);
        }
    }
    lock.l_type = F_WRLCK;
    lock.l_len  = 1;
    ASSERT_EQ(0, fcntl(fd, F_OFD_SETLK, &lock));
    ASSERT_EQ(UCS_OK, open(0, 2, next_name, &next));
    EXPECT_EQ(0, access(path().c_str(), F_OK));
    EXPECT_NE(0, access(left.c_str(), F_OK));
    EXPECT_EQ(0, unlink(held.c_str()));
    EXPECT_EQ(0, unlink(young.c_str()));
    EXPECT_EQ(0, unlink(other.c_str()));
    uct_cuda_node_segment_close(next);
    close(fd);
}

/* Failures are found by communicator, call and start time; the oldest ones are
   overwritten */
TEST_F(CollSegment, failures_are_found_by_their_call)
{
    EXPECT_EQ(0u, *uct_cuda_node_segment_failures(segment));
    EXPECT_EQ(-1, uct_cuda_node_segment_failed_rank(segment, 7, 3, 0));
    EXPECT_EQ(0, in_segment_1([](uct_cuda_node_segment_t *mine) {
        uct_cuda_node_segment_report_failure(mine, 7, 3, 0, 1);
        return 0;
    }));
    EXPECT_EQ(1u, *uct_cuda_node_segment_failures(segment));
    EXPECT_EQ(1, uct_cuda_node_segment_failed_rank(segment, 7, 3, 0));
    EXPECT_EQ(-1, uct_cuda_node_segment_failed_rank(segment, 7, 4, 0));
    EXPECT_EQ(-1, uct_cuda_node_segment_failed_rank(segment, 8, 3, 0));
    EXPECT_EQ(-1, uct_cuda_node_segment_failed_rank(segment, 7, 3, 1));
    uct_cuda_node_segment_report_failure(segment, 7, 3, 0, 2);
    uct_cuda_node_segment_withdraw_failure(segment, 7, 3, 1);
    EXPECT_EQ(2, uct_cuda_node_segment_failed_rank(segment, 7, 3, 0));
    for (int i = 1; i <= UCT_CUDA_NODE_SEGMENT_FAILURES; ++i) {
        uct_cuda_node_segment_report_failure(segment, 9, 100, i, i);
    }
    EXPECT_EQ(-1, uct_cuda_node_segment_failed_rank(segment, 7, 3, 0));
    EXPECT_EQ(1, uct_cuda_node_segment_failed_rank(segment, 9, 100, 1));
    EXPECT_EQ(200, uct_cuda_node_segment_failed_rank(segment, 9, 100, 200));
}

/* The first rank with a key makes its control block, later ranks find it */
TEST_F(CollSegment, a_control_is_found_by_its_key)
{
    void *memory = nullptr, *other = nullptr;

    EXPECT_EQ(0u, word());
    EXPECT_EQ(0, in_segment_1([](uct_cuda_node_segment_t *mine) {
        void *control;
        if (uct_cuda_node_segment_get(mine, 5, 100000, &control) != UCS_OK) {
            return 1;
        }
        memset(control, 'x', 100000);
        return 0; /* ends without releasing it */
    }));
    EXPECT_NE(0u, word());
    EXPECT_TRUE(uct_cuda_node_segment_has(segment, 5));
    EXPECT_FALSE(uct_cuda_node_segment_has(segment, 6));

    ASSERT_EQ(UCS_OK, uct_cuda_node_segment_get(segment, 5, 100000, &memory));
    EXPECT_EQ(std::string(100000, 'x'), std::string((char*)memory, 100000));
    const uint32_t before = word();
    ASSERT_EQ(UCS_OK, uct_cuda_node_segment_get(segment, 6, 100000, &other));
    EXPECT_NE(before, word());
    EXPECT_EQ(std::string(100000, 0), std::string((char*)other, 100000));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              uct_cuda_node_segment_get(segment, 5, 200000, &memory));
    uct_cuda_node_segment_put(segment, 6, 100000, other);
    EXPECT_FALSE(uct_cuda_node_segment_has(segment, 6));
    uct_cuda_node_segment_put(segment, 5, 100000, memory);
    EXPECT_TRUE(uct_cuda_node_segment_has(segment, 5)) << "rank 1 still has it";
}

/* A program that closes descriptors not its own, and opens files */
TEST_F(CollSegment, another_file_under_its_numbers_is_left_alone)
{
    const int foreign = memfd_create("foreign", 0);
    void *memory      = nullptr;
    std::vector<int> numbers;
    struct stat own, file;

    ASSERT_EQ(0, stat(path().c_str(), &own));
    for (int fd = 3; fd < 1000; ++fd) {
        if ((fstat(fd, &file) == 0) && (file.st_ino == own.st_ino)) {
            numbers.push_back(dup2(foreign, fd));
        }
    }
    EXPECT_EQ(2u, numbers.size());
    EXPECT_EQ(UCS_ERR_NO_RESOURCE,
              uct_cuda_node_segment_get(segment, 5, 100000, &memory));
    EXPECT_TRUE(uct_cuda_node_segment_is_alive(segment, 1)) << "not known";
    uct_cuda_node_segment_close(segment);
    segment = nullptr;
    ASSERT_EQ(0, fstat(foreign, &file));
    EXPECT_EQ(0, file.st_size);
    for (int fd : numbers) {
        EXPECT_EQ(0, close(fd));
    }
    close(foreign);
}

/* Creating and freeing communicators uses up neither memory nor descriptors */
TEST_F(CollSegment, memory_of_control_blocks_is_reused)
{
    const struct rlimit few = {64, 64};
    struct rlimit before;
    struct stat st[2];
    void *memory;

    ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &before));
    ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &few));
    for (uint64_t i = 1; i <= 3 * UCT_CUDA_NODE_SEGMENT_PAGES; ++i) {
        const size_t bytes = (i % 2) ? 5000 : 70000;
        ASSERT_EQ(UCS_OK, uct_cuda_node_segment_get(segment, i, bytes,
                                                    &memory));
        ASSERT_EQ(0, *(char*)memory);
        *(char*)memory = 1;
        uct_cuda_node_segment_put(segment, i, bytes, memory);
        ASSERT_EQ(0, stat(path().c_str(), &st[i > 2]));
    }
    EXPECT_EQ(st[0].st_size, st[1].st_size);
    setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(CollSegment, control_blocks_are_limited)
{
    std::vector<void*> controls(UCT_CUDA_NODE_SEGMENT_PAGES);
    void *memory;

    for (size_t i = 0; i < controls.size(); ++i) {
        ASSERT_EQ(UCS_OK,
                  uct_cuda_node_segment_get(segment, i + 1, 64, &controls[i]));
    }
    EXPECT_EQ(UCS_ERR_EXCEEDS_LIMIT,
              uct_cuda_node_segment_get(segment, controls.size() + 1, 64,
                                        &memory));
    for (size_t i = 0; i < controls.size(); ++i) {
        uct_cuda_node_segment_put(segment, i + 1, 64, controls[i]);
    }
    EXPECT_EQ(UCS_OK, uct_cuda_node_segment_get(segment, controls.size() + 1,
                                                64,
                                                &memory));
    uct_cuda_node_segment_put(segment, controls.size() + 1, 64, memory);
}

/* On a full file system; the next attempt may succeed */
TEST_F(CollSegment, a_file_that_cannot_grow)
{
    struct rlimit before, full;
    struct stat st;
    void *memory;

    ASSERT_EQ(0, stat(path().c_str(), &st));
    ASSERT_EQ(0, getrlimit(RLIMIT_FSIZE, &before));
    full          = before;
    full.rlim_cur = (rlim_t)st.st_size;
    signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(0, setrlimit(RLIMIT_FSIZE, &full));
    const ucs_status_t status = uct_cuda_node_segment_get(segment, 7, 1 << 20,
                                                          &memory);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_DFL);
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, status);
    EXPECT_FALSE(uct_cuda_node_segment_has(segment, 7));
    ASSERT_EQ(UCS_OK, uct_cuda_node_segment_get(segment, 7, 1 << 20, &memory));
    uct_cuda_node_segment_put(segment, 7, 1 << 20, memory);
}

TEST_F(CollControl, a_control_block_closed_by_all_is_free)
{
    EXPECT_TRUE(uct_cuda_node_segment_has(segment, KEY));
    uct_cuda_node_control_close(control);
    control = nullptr;
    EXPECT_FALSE(uct_cuda_node_segment_has(segment, KEY));
}

TEST_F(CollControl, a_rank_joins_before_a_call)
{
    EXPECT_EQ(0u, uct_cuda_node_control_joined(control, 1));
    EXPECT_EQ(0, in_rank_1([](uct_cuda_node_control_t *mine) {
        uct_cuda_node_control_join(mine, 12);
        return 0;
    }));
    EXPECT_EQ(12u, uct_cuda_node_control_joined(control, 1));
}

TEST_F(CollControl, an_announcement_is_read_once_complete)
{
    EXPECT_FALSE(hears(1));
    EXPECT_EQ(0, in_rank_1([](uct_cuda_node_control_t *mine) {
        const uct_cuda_node_announcement_t said = post(17);
        uct_cuda_node_control_announce(mine, 1, &said);
        return 0;
    }));

    ASSERT_TRUE(hears(1));
    EXPECT_EQ(UCT_CUDA_NODE_ANNOUNCE_GPU, said.kind);
    EXPECT_EQ(17u, said.bytes);
    EXPECT_EQ(51u, said.recv.offset);
    EXPECT_FALSE(hears(2));
}

/* A rank may be any number of calls ahead after a fallback */
TEST_F(CollControl, a_rank_that_is_ahead_has_fallen_back)
{
    for (uint64_t ahead : {1, 2, 3, 4}) {
        const uint64_t last = 5 + ahead;
        EXPECT_EQ(0, in_rank_1([last](uct_cuda_node_control_t *mine) {
            const uct_cuda_node_announcement_t said = post(1);
            for (uint64_t i = 1; i < last; ++i) {
                uct_cuda_node_control_decline(mine, i, 1, UCS_OK);
            }
            uct_cuda_node_control_announce(mine, last, &said);
            return 0;
        }));
        ASSERT_TRUE(hears(5)) << ahead;
        EXPECT_EQ(UCT_CUDA_NODE_ANNOUNCE_DECLINE, said.kind) << ahead;
        EXPECT_FALSE(hears(last + 1));
    }
}

/* A rank that has seen a third one fall back waits for no rank: it writes its
   line again while another rank still works with its copy */
TEST_F(CollControl, a_read_announcement_stays_valid)
{
    EXPECT_EQ(0, in_rank_1([](uct_cuda_node_control_t *mine) {
        const uct_cuda_node_announcement_t first = post(1);
        uct_cuda_node_control_announce(mine, 1, &first);
        return 0;
    }));
    ASSERT_TRUE(hears(1));
    EXPECT_EQ(0, in_rank_1([](uct_cuda_node_control_t *mine) {
        const uct_cuda_node_announcement_t next = post(2);
        uct_cuda_node_control_decline(mine, 2, 1, UCS_OK);
        uct_cuda_node_control_announce(mine, 3, &next);
        return 0;
    }));
    EXPECT_EQ(UCT_CUDA_NODE_ANNOUNCE_GPU, said.kind);
    EXPECT_EQ(1u, said.bytes);
    EXPECT_EQ(3u, said.recv.offset);
    /* a late rank finds that it has gone on */
    ASSERT_TRUE(hears(1));
    EXPECT_EQ(UCT_CUDA_NODE_ANNOUNCE_DECLINE, said.kind);
}

/* Two calls later the line of a post holds a fallback */
TEST_F(CollControl, a_fallback_replaces_an_announcement)
{
    EXPECT_EQ(0, in_rank_1([](uct_cuda_node_control_t *mine) {
        const uct_cuda_node_announcement_t said = post(1);
        uct_cuda_node_control_announce(mine, 1, &said);
        uct_cuda_node_control_decline(mine, 2, 1, UCS_OK);
        uct_cuda_node_control_decline(mine, 3, 1, UCS_OK);
        return 0;
    }));
    ASSERT_TRUE(hears(3));
    EXPECT_EQ(UCT_CUDA_NODE_ANNOUNCE_DECLINE, said.kind);
}

TEST_F(CollControl, a_phase_is_reached_with_a_status)
{
    EXPECT_EQ(UCS_INPROGRESS,
              uct_cuda_node_control_reached(control, 1,
                                            UCT_CUDA_NODE_PHASE_DONE, 7));
    EXPECT_EQ(0, in_rank_1([](uct_cuda_node_control_t *mine) {
        uct_cuda_node_control_reach(mine, UCT_CUDA_NODE_PHASE_READY, 7, UCS_OK);
        uct_cuda_node_control_reach(mine, UCT_CUDA_NODE_PHASE_DONE, 7,
                                    UCS_ERR_NO_MEMORY);
        return 0;
    }));
    EXPECT_EQ(UCS_OK, uct_cuda_node_control_reached(
                              control, 1, UCT_CUDA_NODE_PHASE_READY, 7));
    EXPECT_EQ(UCS_ERR_NO_MEMORY,
              uct_cuda_node_control_reached(control, 1,
                                            UCT_CUDA_NODE_PHASE_DONE, 7));
    EXPECT_EQ(UCS_INPROGRESS,
              uct_cuda_node_control_reached(control, 1,
                                            UCT_CUDA_NODE_PHASE_DONE, 8));
    EXPECT_EQ(UCS_INPROGRESS,
              uct_cuda_node_control_reached(control, 1,
                                            UCT_CUDA_NODE_PHASE_MADE, 7));
}

TEST_F(CollControl, steps_count_for_their_call_and_queue)
{
    EXPECT_EQ(0, in_rank_1([](uct_cuda_node_control_t *mine) {
        uct_cuda_node_control_step(mine, 3, 9, 2);
        return 0;
    }));
    EXPECT_EQ(2u, uct_cuda_node_control_steps(control, 1, 3, 9));
    EXPECT_EQ(0u, uct_cuda_node_control_steps(control, 1, 2, 9));
    EXPECT_EQ(0u, uct_cuda_node_control_steps(control, 1, 3, 10));
    EXPECT_EQ(0u, uct_cuda_node_control_steps(control, 0, 3, 9));
}

TEST_F(CollControl, exported_memory_has_a_generation)
{
    uint32_t generation, next;

    EXPECT_EQ(0, in_rank_1([](uct_cuda_node_control_t *mine) {
        uct_cuda_node_handle_t handle;
        memset(&handle, 0, sizeof(handle));
        handle.base = 0x1000;
        return (int)uct_cuda_node_control_export(mine, 2, &handle) - 1;
    }));
    const uct_cuda_node_handle_t *shown =
            uct_cuda_node_control_exported(control, 1, 2, &generation);
    ASSERT_NE(nullptr, shown);
    EXPECT_EQ(0x1000u, shown->base);

    EXPECT_EQ(0, in_rank_1([](uct_cuda_node_control_t *mine) {
        (void)uct_cuda_node_control_export(mine, 2, nullptr);
        return 0;
    }));
    EXPECT_EQ(nullptr, uct_cuda_node_control_exported(control, 1, 2, &next));
    EXPECT_NE(generation, next);
}

/* A rank is known to be gone after any kind of end of its process, not
   before */
TEST_F(CollControl, a_dead_rank_is_noticed)
{
    const pid_t pid = spawn([&] {
        return as_segment_1([](uct_cuda_node_segment_t*) { return 1; }) == 1;
    });

    EXPECT_TRUE(uct_cuda_node_control_is_alive(control, 1));
    EXPECT_TRUE(uct_cuda_node_control_is_alive(control, 0));
    reap(pid);
    EXPECT_FALSE(uct_cuda_node_control_is_alive(control, 1));
}

/* A living rank counts as gone after it has freed the communicator */
TEST_F(CollControl, a_rank_that_left_is_noticed)
{
    EXPECT_EQ(0, in_segment_1([&](uct_cuda_node_segment_t *mine) {
        return run_rank_1(mine, [&](uct_cuda_node_control_t *its) {
            const bool was_there = uct_cuda_node_control_is_alive(control, 0);
            uct_cuda_node_control_close(its);
            return was_there ? 0 : 1;
        });
    }));
    EXPECT_FALSE(uct_cuda_node_control_is_alive(control, 1));
}

TEST_F(CollSegment, the_file_is_removed_by_unlink_or_its_creator)
{
    EXPECT_EQ(0, access(path().c_str(), F_OK));
    uct_cuda_node_segment_unlink(segment);
    EXPECT_NE(0, access(path().c_str(), F_OK));
    uct_cuda_node_segment_close(segment);

    ASSERT_EQ(UCS_OK, open(0, 2, name, &segment));
    uct_cuda_node_segment_close(segment);
    EXPECT_NE(0, access(path().c_str(), F_OK));
    segment = nullptr;
}

TEST_F(CollSegment, other_files_are_not_opened)
{
    char there[UCT_CUDA_NODE_SEGMENT_NAME];
    uct_cuda_node_segment_t *other;

    /* another number of ranks, a rank too many */
    EXPECT_EQ(UCS_ERR_UNREACHABLE, open(1, 3, name, &other));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, open(2, 2, name, &other));

    /* no file there, as on another node */
    strcpy(there, "nothing");
    EXPECT_EQ(UCS_ERR_UNREACHABLE, open(1, 2, there, &other));

    /* outside of the folder */
    strcpy(there, "../nothing");
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, open(1, 2, there, &other));

    /* a foreign file of the right size */
    struct stat st;
    ASSERT_EQ(0, stat(path().c_str(), &st));
    strcpy(there, (std::string(name) + "0").c_str());
    const std::string zeros = path() + "0";
    FILE *file              = fopen(zeros.c_str(), "w");
    ASSERT_NE(nullptr, file);
    fclose(file);
    ASSERT_EQ(0, truncate(zeros.c_str(), st.st_size));
    EXPECT_EQ(UCS_ERR_UNREACHABLE, open(1, 2, there, &other));

    /* a short file; reading it would end the process */
    ASSERT_EQ(0, truncate(zeros.c_str(), 0));
    EXPECT_EQ(UCS_ERR_UNREACHABLE, open(1, 2, there, &other));
    unlink(zeros.c_str());
}

TEST_F(CollControl, a_control_has_so_many_ranks)
{
    const unsigned members[UCT_CUDA_PLAN_COLL_MAX_RANKS + 1] = {0};
    uct_cuda_node_control_t *other;

    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              uct_cuda_node_control_open(segment, 1, 0,
                                         UCT_CUDA_PLAN_COLL_MAX_RANKS + 1,
                                         members, &other));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              uct_cuda_node_control_open(segment, 1, 2, 2, members, &other));
}

TEST_F(CollSegment, no_segment_without_a_directory)
{
    char there[UCT_CUDA_NODE_SEGMENT_NAME];
    uct_cuda_node_segment_t *other;

    EXPECT_EQ(UCS_ERR_NO_RESOURCE,
              uct_cuda_node_segment_open("/nonexistent", 0, 2, there, &other));
}

/* A child closes inherited state: it removes neither a name still needed by
   ranks, nor its parent from a team */
TEST_F(CollControl, a_forked_child_changes_nothing)
{
    struct stat st;

    EXPECT_EQ(0, in_segment_1([this](uct_cuda_node_segment_t*) {
        uct_cuda_node_control_close(control);
        uct_cuda_node_segment_close(segment);
        return 0;
    }));
    EXPECT_EQ(0, stat(path().c_str(), &st));
    EXPECT_TRUE(uct_cuda_node_segment_has(segment, KEY));
    EXPECT_EQ(0, in_rank_1([](uct_cuda_node_control_t *mine) {
        return uct_cuda_node_control_is_alive(mine, 0) ? 0 : 1;
    }));
}

/* Mappings of the shared segment, at one address for all ranks while not
   NULL */
static std::map<off_t, void*> *one_mapping;

extern "C" {
void *__real_mmap(void *addr, size_t length, int prot, int flags, int fd,
                  off_t offset);
void *__wrap_mmap(void *addr, size_t length, int prot, int flags, int fd,
                  off_t offset);
int __real_munmap(void *addr, size_t length);
int __wrap_munmap(void *addr, size_t length);

void *__wrap_mmap(void *addr, size_t length, int prot, int flags, int fd,
                  off_t offset)
{
    if ((one_mapping != nullptr) && (one_mapping->count(offset) != 0)) {
        return (*one_mapping)[offset];
    }

    void *mapped = __real_mmap(addr, length, prot, flags, fd, offset);
    if (one_mapping != nullptr) {
        (*one_mapping)[offset] = mapped;
    }
    return mapped;
}

int __wrap_munmap(void *addr, size_t length)
{
    return (one_mapping != nullptr) ? 0 : __real_munmap(addr, length);
}
}

/*
 * Ranks as threads, with the control block at one address. ThreadSanitizer
 * judges them by C's rules, since x86 orders more. Each call is as in a team:
 * ranks post and read the others' posts until one falls back. If none does,
 * they export memory, announce it, look at the others', and end.
 */
class CollRanks : public CollSegment
{
protected:
    enum : unsigned { RANKS = 4, CALLS = 2000 };
    /* Results by rank: a variable shared by ranks would order them */
    unsigned wrong[RANKS] = {}, done[RANKS] = {};
    /* Results of a rank's steps, for the next one */
    uint64_t results[RANKS] = {};

    static bool passes(unsigned rank, uint64_t call)
    {
        return (call * 2654435761u >> 7) % (8 * RANKS) == rank;
    }

    static uint64_t bytes_of(unsigned rank, uint64_t call)
    {
        return call * RANKS + rank;
    }

    /* Wait until all ranks have reached the phase. */
    void reach(uct_cuda_node_control_t *control, unsigned rank, uint64_t call,
               uct_cuda_node_phase_t phase)
    {
        uct_cuda_node_control_reach(control, phase, call, UCS_OK);
        for (unsigned other = 0; other < RANKS; ++other) {
            while (uct_cuda_node_control_reached(control, other, phase, call) ==
                   UCS_INPROGRESS) {
                std::this_thread::yield();
            }
        }
    }

    /* Read the posts of the others: false if one falls back. */
    bool agree(uct_cuda_node_control_t *control, unsigned rank, uint64_t call)
    {
        uct_cuda_node_announcement_t posts[RANKS];

        for (unsigned other = 0; other < RANKS; ++other) {
            while (!uct_cuda_node_control_read(control, other, call,
                                               &posts[other])) {
                std::this_thread::yield();
            }
            if (posts[other].kind != UCT_CUDA_NODE_ANNOUNCE_GPU) {
                return false;
            }
        }
        for (unsigned other = 0; other < RANKS; ++other) {
            const uint64_t bytes = bytes_of(other, call);

            wrong[rank] += (posts[other].bytes != bytes) ||
                           (posts[other].recv.offset != bytes) ||
                           (posts[other].send.offset != bytes) ||
                           (memcmp(uct_cuda_node_control_gpu(control, other),
                                   &call, sizeof(call)) != 0);
        }
        return true;
    }

    void run(unsigned rank)
    {
        const unsigned members[] = {0, 0, 0, 0};
        uct_cuda_node_control_t *control;

        ASSERT_EQ(UCS_OK, uct_cuda_node_control_open(segment, 17, rank, RANKS,
                                                     members, &control));
        uct_cuda_node_control_join(control, 1);
        for (unsigned other = 0; other < RANKS; ++other) {
            while (uct_cuda_node_control_joined(control, other) == 0) {
                std::this_thread::yield();
            }
        }
        for (uint64_t call = 1; call <= CALLS; ++call) {
            uct_cuda_node_announcement_t post = {};

            /* as if an announcement were lost */
            uint8_t uuid[16] = {};
            memcpy(uuid, &call, sizeof(call));
            post.kind        = UCT_CUDA_NODE_ANNOUNCE_GPU;
            post.bytes       = bytes_of(rank, call);
            post.recv.offset = post.send.offset = post.bytes;
            if (passes(rank, call)) {
                uct_cuda_node_control_decline(control, call, 1, UCS_OK);
                continue;
            }
            uct_cuda_node_control_set_gpu(control, uuid);
            uct_cuda_node_control_announce(control, call, &post);
            if (agree(control, rank, call)) {
                work(control, rank, call);
            }
        }
        /* no rank is gone before the others have read its last post */
        reach(control, rank, CALLS + 1, UCT_CUDA_NODE_PHASE_DONE);
        uct_cuda_node_control_close(control);
    }

    void work(uct_cuda_node_control_t *control, unsigned rank, uint64_t call)
    {
        uct_cuda_node_handle_t handle = {};
        uint32_t generation;

        memcpy(&handle, &call, sizeof(call));
        (void)uct_cuda_node_control_export(control, 3, &handle);
        reach(control, rank, call, UCT_CUDA_NODE_PHASE_MADE);
        for (unsigned other = 0; other < RANKS; ++other) {
            const uct_cuda_node_handle_t *shown =
                uct_cuda_node_control_exported(control, other, 3, &generation);

            wrong[rank] += (shown == nullptr) ||
                           (memcmp(shown, &call, sizeof(call)) != 0);
        }
        reach(control, rank, call, UCT_CUDA_NODE_PHASE_READY);
        results[rank] = call;
        uct_cuda_node_control_step(control, 2, call, 5);
        while (uct_cuda_node_control_steps(control, (rank + 1) % RANKS, 2,
                                           call) < 5) {
            std::this_thread::yield();
        }
        wrong[rank] += (results[(rank + 1) % RANKS] != call);
        reach(control, rank, call, UCT_CUDA_NODE_PHASE_DONE);
        ++done[rank];
    }
};

TEST_F(CollRanks, threads_in_the_place_of_ranks)
{
    std::vector<std::thread> threads;
    std::map<off_t, void*> mappings;

    one_mapping = &mappings;
    for (unsigned rank = 0; rank < RANKS; ++rank) {
        threads.emplace_back([this, rank] { run(rank); });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    one_mapping = nullptr;
    for (unsigned rank = 0; rank < RANKS; ++rank) {
        EXPECT_EQ(0u, wrong[rank]);
        EXPECT_EQ(done[0], done[rank]);
    }
    EXPECT_GT(done[0], CALLS / 2);
    EXPECT_LT(done[0], (unsigned)CALLS);
}
