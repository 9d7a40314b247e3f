/* SPDX-License-Identifier: BSD-3-Clause */
/* Execution of a collective's plan in memory of the test. */
#ifndef UCT_CUDA_COLL_TEST_MACHINE_H
#define UCT_CUDA_COLL_TEST_MACHINE_H

#include <uct/cuda/plan/collective_plan.h>

#include <gtest/gtest.h>

#include <random>
#include <vector>


/** Add in a way that is neither commutative nor associative, to detect
 *  orders. */
inline uint32_t add(uint32_t a, uint32_t b)
{
    return a * 0x9e3779b1u + (b ^ (b >> 7)) + 1;
}

/** Executes a plan of 4-byte elements, with steps in any permitted order. */
class Machine
{
public:
    Machine(const uct_cuda_plan_coll_t &plan, std::mt19937 &random) :
        m_plan(plan), m_random(random)
    {
        for (unsigned rank = 0; rank < plan.num_ranks; ++rank) {
            for (unsigned buffer = 0; buffer < UCT_CUDA_BUFFER_LAST;
                 ++buffer) {
                fill(rank, buffer,
                     uct_cuda_plan_coll_size(&plan, rank,
                                             (uct_cuda_buffer_t)buffer));
            }
            inputs.push_back(memory(rank, UCT_CUDA_BUFFER_SEND));
            kept.push_back(memory(rank, UCT_CUDA_BUFFER_RECV));
        }
        for (unsigned relay = 0; relay < plan.num_relays; ++relay) {
            fill(plan.num_ranks + relay, UCT_CUDA_BUFFER_SCRATCH,
                 plan.relay_scratch);
        }
    }

    std::vector<uint32_t> &memory(unsigned rank, unsigned buffer)
    {
        if ((buffer == UCT_CUDA_BUFFER_SEND) &&
            uct_cuda_plan_coll_is_same(&m_plan, rank)) {
            buffer = UCT_CUDA_BUFFER_RECV;
        }
        return m_memory[rank][buffer];
    }

    void run()
    {
        std::vector<bool> is_done(m_plan.list.num_steps);

        for (uint32_t i = 0; i < m_plan.list.num_steps; ++i) {
            std::vector<uint32_t> ready = ready_steps(is_done);

            ASSERT_FALSE(ready.empty()) << "after " << i << " steps";
            uint32_t step = ready[m_random() % ready.size()];
            run_step(m_plan.list.steps[step]);
            is_done[step] = true;
        }
    }

    std::vector<std::vector<uint32_t>> inputs;
    std::vector<std::vector<uint32_t>> kept; /* RECV before */

private:
    void fill(unsigned member, unsigned buffer, uint64_t bytes)
    {
        m_memory[member][buffer].resize(bytes / sizeof(uint32_t));
        for (uint32_t &value : m_memory[member][buffer]) {
            value = m_random();
        }
    }

    std::vector<uint32_t> ready_steps(const std::vector<bool> &is_done)
    {
        bool is_taken[UCT_CUDA_PLAN_COLL_MAX_RANKS][256] = {};
        std::vector<uint32_t> ready;

        for (uint32_t i = 0; i < m_plan.list.num_steps; ++i) {
            const uct_cuda_plan_step_t &step = m_plan.list.steps[i];
            bool is_ready = !is_done[i] && !is_taken[step.rank][step.queue];

            for (unsigned w = 0; w < step.num_waits; ++w) {
                is_ready = is_ready &&
                           is_done[m_plan.list.waits[step.waits + w]];
            }
            if (is_ready) {
                ready.push_back(i);
            }
            if (!is_done[i]) {
                is_taken[step.rank][step.queue] = true;
            }
        }

        return ready;
    }

    uint32_t *at(const uct_cuda_plan_place_t &place)
    {
        return &memory(place.owner,
                       place.buffer)[place.offset / sizeof(uint32_t)];
    }

    void run_step(const uct_cuda_plan_step_t &step)
    {
        const uct_cuda_plan_place_t *from =
            uct_cuda_plan_step_sources(&m_plan.list, &step);
        const uct_cuda_plan_place_t *to =
            uct_cuda_plan_step_destinations(&m_plan.list, &step);

        for (size_t i = 0; i < step.bytes / sizeof(uint32_t); ++i) {
            uint32_t sum = at(from[0])[i];
            for (unsigned s = 1; s < step.num_sources; ++s) {
                sum = add(sum, at(from[s])[i]);
            }
            for (unsigned d = 0; d < step.num_destinations; ++d) {
                at(to[d])[i] = sum;
            }
        }
    }

    const uct_cuda_plan_coll_t &m_plan;
    std::mt19937               &m_random;
    std::vector<uint32_t>      m_memory[UCT_CUDA_PLAN_COLL_MAX_MEMBERS]
                                       [UCT_CUDA_BUFFER_LAST];
};

#endif
