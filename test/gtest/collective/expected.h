/* SPDX-License-Identifier: BSD-3-Clause */
/* Results of collectives by MPI's definition. A new kind needs a case here. */
#ifndef UCT_CUDA_COLL_TEST_EXPECTED_H
#define UCT_CUDA_COLL_TEST_EXPECTED_H

#include "collective/machine.h"

#include <uct/cuda/plan/collective_planner.h>


/** Results by MPI's definition; a sum depends on the order. */
class Expected
{
public:
  Expected(const uct_cuda_plan_coll_request_t &request, const Machine &machine)
      : m_request(request), m_machine(machine)
  {
      m_first.push_back(0);
      for (unsigned rank = 0; rank < request.num_ranks; ++rank) {
          m_first.push_back(m_first[rank] + ((request.counts == NULL) ?
                                                 request.count :
                                                 request.counts[rank]));
      }
  }

    std::vector<uint32_t> of(unsigned rank) const
    {
        const unsigned root = m_request.root;
        const bool is_root  = (rank == root);
        std::vector<uint32_t> all;

        switch (m_request.kind) {
        case UCT_CUDA_COLL_KIND_ALLREDUCE:
            return sum(0, m_machine.inputs[0].size());
        case UCT_CUDA_COLL_KIND_REDUCE:
            return is_root ? sum(0, m_machine.inputs[0].size()) : all;
        case UCT_CUDA_COLL_KIND_REDUCE_SCATTER:
            return sum(m_first[rank], m_first[rank + 1]);
        case UCT_CUDA_COLL_KIND_BCAST:
            return is_root ? all : m_machine.inputs[root];
        case UCT_CUDA_COLL_KIND_ALLGATHER:
            return blocks();
        case UCT_CUDA_COLL_KIND_GATHER:
            return is_root ? blocks() : all;
        case UCT_CUDA_COLL_KIND_SCATTER:
            return (is_root && m_request.is_in_place) ? all :
                                                        block(root, rank);
        default:
            for (unsigned from = 0; from < m_request.num_ranks; ++from) {
                for (uint32_t value : block(from, rank)) {
                    all.push_back(value);
                }
            }
            return all;
        }
    }

private:
    std::vector<uint32_t> block(unsigned from, unsigned number) const
    {
        const auto begin = m_machine.inputs[from].begin();

        return std::vector<uint32_t>(begin + m_first[number],
                                     begin + m_first[number + 1]);
    }

    /** Return the ranks' data in order; in place it is there already. */
    std::vector<uint32_t> blocks() const
    {
        std::vector<uint32_t> all;

        for (unsigned rank = 0; rank < m_request.num_ranks; ++rank) {
            const bool is_kept = m_request.is_in_place &&
                                 ((m_request.kind ==
                                   UCT_CUDA_COLL_KIND_ALLGATHER) ||
                                  (rank == m_request.root));
            const std::vector<uint32_t> &from = is_kept ?
                                                        m_machine.kept[rank] :
                                                        m_machine.inputs[rank];
            const uint64_t begin = is_kept ? m_first[rank] : 0;

            for (uint64_t i = 0; i < m_first[rank + 1] - m_first[rank]; ++i) {
                all.push_back(from[begin + i]);
            }
        }
        return all;
    }

    /** Return the sum in the order of ranks. */
    std::vector<uint32_t> sum(uint64_t begin, uint64_t end) const
    {
        std::vector<uint32_t> result;

        for (uint64_t i = begin; i < end; ++i) {
            uint32_t value = m_machine.inputs[0][i];

            for (unsigned rank = 1; rank < m_request.num_ranks; ++rank) {
                value = add(value, m_machine.inputs[rank][i]);
            }
            result.push_back(value);
        }
        return result;
    }

    const uct_cuda_plan_coll_request_t &m_request;
    const Machine                 &m_machine;
    std::vector<uint64_t>         m_first;
};

#endif
