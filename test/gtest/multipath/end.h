/* SPDX-License-Identifier: BSD-3-Clause */
/* Ends in a short, readable form. */
#ifndef TEST_MULTIPATH_END_H
#define TEST_MULTIPATH_END_H

#include <uct/cuda/base/end.h>


const int HOST   = -1;
const int HIDDEN = -2;
const int NONE   = -3;


/** A GPU by its number, or a special end. */
class End {
public:
    End(int number)
        : m_end((number == HOST)   ? uct_cuda_end_host() :
                (number == HIDDEN) ? uct_cuda_end_hidden() :
                (number == NONE)   ? uct_cuda_end_none() :
                                     uct_cuda_end_gpu(number))
    {
    }

    operator uct_cuda_end_t() const
    {
        return m_end;
    }

private:
    uct_cuda_end_t m_end;
};

#endif
