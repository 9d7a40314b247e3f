/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks of a team in one process: each has the control block mapped, and the
   test plays some of them. */
#ifndef TEST_COLLECTIVE_RANKS_H
#define TEST_COLLECTIVE_RANKS_H

extern "C" {
#include <uct/cuda/base/log.h>
#include <uct/cuda/node/control.h>
}

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <unistd.h>
#include <vector>


class Ranks : public ::testing::Test
{
protected:
    enum : uint64_t { KEY = 17 };

    uct_cuda_node_segment_t *segment = nullptr;
    /* mappings of the played ranks */
    std::vector<uct_cuda_node_control_t*> controls;
    std::string dir;

    /* Messages at debug level, of all threads */
    static std::string log;
    static std::mutex log_lock;

    void SetUp() override
    {
        char path[]                           = "/tmp/coll-ranks-XXXXXX";
        char name[UCT_CUDA_NODE_SEGMENT_NAME] = "";

        dir = mkdtemp(path);
        ASSERT_EQ(UCS_OK, uct_cuda_node_segment_open(dir.c_str(), 0, 2, name,
                                                     &segment));
        uct_cuda_node_segment_unlink(segment);
        log.clear();
        uct_cuda_log_set(
                [](uct_cuda_log_level_t, const char*, unsigned, const char*,
                   const char *message) {
                    const std::lock_guard<std::mutex> guard(log_lock);
                    log += std::string(message) + "\n";
                },
                UCT_CUDA_LOG_DEBUG);
    }

    void TearDown() override
    {
        uct_cuda_log_set(nullptr, UCT_CUDA_LOG_WARN);
        for (uct_cuda_node_control_t *control : controls) {
            if (control != nullptr) {
                uct_cuda_node_control_close(control);
            }
        }
        uct_cuda_node_segment_close(segment);
        rmdir(dir.c_str());
    }

    /* All ranks are this process; it does not end during a test. */
    uct_cuda_node_control_t *open_control(unsigned rank, unsigned size)
    {
        const std::vector<unsigned> members(size, 0);
        uct_cuda_node_control_t *control = nullptr;

        EXPECT_EQ(UCS_OK, uct_cuda_node_control_open(segment, KEY, rank, size,
                                                     members.data(), &control));
        return control;
    }

    /* Play the ranks from 1 on. */
    void play(unsigned size)
    {
        controls.assign(size, nullptr);
        for (unsigned rank = 1; rank < size; ++rank) {
            controls[rank] = open_control(rank, size);
        }
    }

    void leave(unsigned rank)
    {
        uct_cuda_node_control_close(controls[rank]);
        controls[rank] = nullptr;
    }

    static bool has_logged(const char *text)
    {
        const std::lock_guard<std::mutex> guard(log_lock);

        return log.find(text) != std::string::npos;
    }
};

#endif
