/* SPDX-License-Identifier: BSD-3-Clause */
/* State kept by context: many contexts, and destroyed ones. */
#include "fake_driver.h"

extern "C" {
#include <uct/cuda/base/context_data.h>
#include <uct/cuda/base/memory.h>
}

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

static constexpr unsigned MANY = 100;

static std::atomic<unsigned> created, destroyed;
static ucs_status_t create_status;

static const uct_cuda_context_kind_t kind = {
    sizeof(unsigned),
    [](void *member) {
        EXPECT_EQ(0u, *(unsigned*)member);
        *(unsigned*)member = ++created;
        return create_status;
    },
    [](void*) { ++destroyed; }
};

/* Contexts by number, from 1; each at an address of its own */
class Contexts : public testing::Test
{
protected:
    FakeDriver driver;
    static std::set<CUcontext> dead;

    Contexts()
    {
        uct_cuda_context_t *context;

        dead.clear();
        first                       = driver.ctx_id << 16;
        driver.table.cuCtxGetId     = [](CUcontext context,
                                     unsigned long long *id) {
            *id = first + (uintptr_t)context;
            return dead.count(context) ? CUDA_ERROR_CONTEXT_IS_DESTROYED :
                                         CUDA_SUCCESS;
        };
        driver.table.cuEventQuery = [](CUevent) { return CUDA_SUCCESS; };

        use(MANY + 1); /* discard the state of other tests */
        EXPECT_EQ(UCS_OK, uct_cuda_context_hold(&context));
        uct_cuda_context_put(context);
        created = destroyed = 0;
        create_status       = UCS_OK;
    }

    CUcontext at(unsigned number)
    {
        return (CUcontext)(uintptr_t)number;
    }

    void use(unsigned number)
    {
        driver.context = at(number);
    }

    /* Return the member's number, and keep the context. */
    unsigned get(unsigned number, uct_cuda_context_t **context)
    {
        void *member = nullptr;

        use(number);
        EXPECT_EQ(UCS_OK,
                  uct_cuda_context_hold_member(&kind, context, &member));
        EXPECT_EQ(at(number), (*context)->cuda);
        return *(unsigned*)member;
    }

    static unsigned long long first;
};

std::set<CUcontext> Contexts::dead;
unsigned long long Contexts::first;

/* More contexts than a table of fixed size would hold, used in rotation */
TEST_F(Contexts, each_of_many_contexts_has_one_stream_and_event)
{
    for (unsigned round = 0; round < 3; ++round) {
        for (unsigned i = 1; i <= MANY; ++i) {
            use(i);
            EXPECT_TRUE(uct_cuda_memory_legacy_is_idle());
        }
        EXPECT_EQ(MANY, driver.streams.size());
        EXPECT_EQ(MANY, driver.events.size());
    }
}

/* Only when another one comes, and not while it is in use; a context at a
   destroyed one's address is new */
TEST_F(Contexts, kept_resources_are_released_with_their_context)
{
    uct_cuda_context_t *one, *two, *three;

    EXPECT_EQ(1u, get(1, &one));
    EXPECT_EQ(2u, get(2, &two));
    uct_cuda_context_put(two);
    EXPECT_EQ(2u, get(2, &two));
    dead.insert(at(1));
    dead.insert(at(2));
    uct_cuda_context_put(two);
    EXPECT_FALSE(uct_cuda_context_is_alive(one));
    EXPECT_EQ(0u, destroyed);
    EXPECT_EQ(3u, get(3, &three));
    EXPECT_EQ(1u, destroyed); /* the first one is in use */
    uct_cuda_context_put(one);

    dead.clear();
    first += 1000; /* all at their old addresses */
    EXPECT_EQ(4u, get(1, &one));
    EXPECT_EQ(2u, destroyed);
    EXPECT_FALSE(uct_cuda_context_is_alive(three));
    uct_cuda_context_put(one);
    uct_cuda_context_put(three);
}

/* A failed member keeps nothing, and is tried again */
TEST_F(Contexts, a_resource_that_cannot_be_created_is_tried_again)
{
    uct_cuda_context_t *context;
    void *member;

    use(1);
    create_status = UCS_ERR_IO_ERROR;
    EXPECT_EQ(UCS_ERR_IO_ERROR,
              uct_cuda_context_hold_member(&kind, &context, &member));
    create_status = UCS_OK;
    EXPECT_EQ(2u, get(1, &context));
    EXPECT_EQ(1u, context->holders);
    uct_cuda_context_put(context);

    driver.context = nullptr;
    EXPECT_EQ(UCS_ERR_IO_ERROR,
              uct_cuda_context_hold_member(&kind, &context, &member));
    EXPECT_EQ(0u, destroyed);
}

TEST_F(Contexts, threads_share_one_resource)
{
    std::vector<std::thread> threads;

    use(1);
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([] {
            for (int k = 0; k < 200; ++k) {
                uct_cuda_context_t *context;
                void *member;

                ASSERT_EQ(UCS_OK, uct_cuda_context_hold_member(&kind, &context,
                                                               &member));
                EXPECT_EQ(1u, *(unsigned*)member);
                uct_cuda_context_put(context);
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(1u, created);
}
