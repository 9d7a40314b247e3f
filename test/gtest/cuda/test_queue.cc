/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue of operations: completion, flush, fence, pending, wake-up. */
#include "fake_driver.h"
#include "process.h"

extern "C" {
#include <uct/cuda/base/queue.h>
}

#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <poll.h>
#include <set>
#include <sys/eventfd.h>
#include <unistd.h>
#include <vector>

struct Completion {
    uct_completion_t super;
    int calls = 0;

    explicit Completion(int count = 1)
    {
        super.func   = [](uct_completion_t *self) {
            ++reinterpret_cast<Completion *>(self)->calls;
        };
        super.count  = count;
        super.status = UCS_OK;
    }
};

/* A pending request that counts its calls, and has ended with the first one */
struct Pending {
    uct_pending_req_t super;
    int calls = 0;

    Pending()
    {
        super.func = [](uct_pending_req_t *self) {
            ++reinterpret_cast<Pending *>(self)->calls;
            return UCS_OK;
        };
    }
};

class Queue : public ::testing::Test
{
public:
    FakeDriver driver;
    uct_cuda_queue_t queue;

    void SetUp() override
    {
        ASSERT_EQ(UCS_OK, uct_cuda_queue_init(&queue, 16, UINT_MAX));
    }

    void TearDown() override
    {
        driver.done = driver.events;
        uct_cuda_queue_cleanup(&queue);
        EXPECT_TRUE(driver.events.empty()) << "events leaked";
        EXPECT_TRUE(driver.streams.empty()) << "streams leaked";
    }

    /* Return an operation that is not posted. */
    uct_cuda_op_t *get(unsigned index, uct_completion_t *comp)
    {
        uct_cuda_stream_t *stream;
        uct_cuda_op_t *op;

        EXPECT_EQ(UCS_OK, uct_cuda_queue_stream(&queue, index, &stream));
        EXPECT_EQ(UCS_OK, uct_cuda_op_get(stream, &op));
        op->comp = comp;
        return op;
    }

    uct_cuda_op_t *post(unsigned index, Completion *comp)
    {
        uct_cuda_op_t *op = get(index,
                                (comp == nullptr) ? nullptr : &comp->super);

        EXPECT_EQ(UCS_INPROGRESS, uct_cuda_op_post(&queue, op));
        return op;
    }

    void finish(uct_cuda_op_t *op)
    {
        driver.done.insert(op->event);
    }
};

TEST_F(Queue, completes_in_stream_order_and_across_streams_in_any)
{
    Completion a, b, c;
    uct_cuda_op_t *op_a = post(0, &a);
    uct_cuda_op_t *op_b = post(0, &b);
    uct_cuda_op_t *op_c = post(1, &c);

    EXPECT_EQ(0u, uct_cuda_queue_progress(&queue));
    finish(op_b); /* impossible in reality: a is before it in the stream */
    finish(op_c);
    EXPECT_EQ(1u, uct_cuda_queue_progress(&queue));
    EXPECT_EQ(1, c.calls);
    EXPECT_EQ(0, b.calls);
    finish(op_a);
    EXPECT_EQ(2u, uct_cuda_queue_progress(&queue));
    EXPECT_EQ(1, a.calls);
    EXPECT_EQ(1, b.calls);
}

TEST_F(Queue, streams_and_events_are_reused)
{
    for (int i = 0; i < 10; ++i) {
        Completion comp;
        finish(post(3, &comp));
        EXPECT_EQ(1u, uct_cuda_queue_progress(&queue));
    }
    EXPECT_EQ(1u, driver.events.size());
    EXPECT_EQ(1u, driver.streams.size());
}

TEST_F(Queue, flush_waits_for_what_came_before_it_only)
{
    Completion flushed, later;
    uct_cuda_op_t *a = post(0, nullptr);
    uct_cuda_op_t *b = post(1, nullptr);

    EXPECT_EQ(UCS_INPROGRESS, uct_cuda_queue_flush(&queue, &flushed.super));
    uct_cuda_op_t *c = post(2, &later);

    finish(c);
    finish(a);
    uct_cuda_queue_progress(&queue);
    EXPECT_EQ(1, later.calls);
    EXPECT_EQ(0, flushed.calls);
    finish(b);
    uct_cuda_queue_progress(&queue);
    EXPECT_EQ(1, flushed.calls);
}

TEST_F(Queue, flushes_complete_in_order)
{
    Completion first, second;
    uct_cuda_op_t *a = post(0, nullptr);
    EXPECT_EQ(UCS_INPROGRESS, uct_cuda_queue_flush(&queue, &first.super));
    uct_cuda_op_t *b = post(1, nullptr);
    EXPECT_EQ(UCS_INPROGRESS, uct_cuda_queue_flush(&queue, &second.super));

    finish(b);
    uct_cuda_queue_progress(&queue);
    EXPECT_EQ(0, second.calls);
    finish(a);
    uct_cuda_queue_progress(&queue);
    EXPECT_EQ(1, first.calls);
    EXPECT_EQ(1, second.calls);
}

TEST_F(Queue, flush_of_nothing_is_done)
{
    Completion comp;
    EXPECT_EQ(UCS_OK, uct_cuda_queue_flush(&queue, &comp.super));
    EXPECT_EQ(UCS_OK, uct_cuda_queue_flush(&queue, NULL));
    EXPECT_EQ(1, comp.super.count);
}

TEST_F(Queue, fence_holds_back_what_comes_after_it)
{
    uct_cuda_stream_t *stream;
    uct_cuda_op_t *a = post(0, nullptr);

    uct_cuda_queue_fence(&queue);
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, uct_cuda_queue_stream(&queue, 1, &stream));
    finish(a);
    uct_cuda_queue_progress(&queue);
    EXPECT_EQ(UCS_OK, uct_cuda_queue_stream(&queue, 1, &stream));
}

TEST_F(Queue, pending_request_runs_when_there_is_room)
{
    Pending req;

    EXPECT_EQ(UCS_ERR_BUSY,
              uct_cuda_queue_pending_add(&queue, this, &req.super));
    queue.max_events = 1;
    uct_cuda_op_t *a = post(0, nullptr);
    EXPECT_EQ(UCS_OK, uct_cuda_queue_pending_add(&queue, this, &req.super));
    uct_cuda_queue_progress(&queue);
    EXPECT_EQ(0, req.calls);
    finish(a);
    uct_cuda_queue_progress(&queue);
    EXPECT_EQ(1, req.calls);
}

/* Such as by a driver's call that a stream's capture did not allow */
TEST_F(Queue, refused_request_is_called_again_without_a_completion)
{
    static int calls;
    uct_pending_req_t req;

    calls    = 0;
    req.func = [](uct_pending_req_t*) {
        return (++calls == 1) ? UCS_ERR_NO_RESOURCE : UCS_OK;
    };
    queue.max_events = 1;
    uct_cuda_op_t *op = post(0, nullptr);
    ASSERT_EQ(UCS_OK, uct_cuda_queue_pending_add(&queue, this, &req));
    finish(op);
    uct_cuda_queue_progress(&queue);
    EXPECT_EQ(1, calls);
    EXPECT_FALSE(uct_cuda_queue_is_idle(&queue)) << "never called again";
    EXPECT_EQ(UCS_ERR_BUSY, uct_cuda_queue_arm(&queue)) << "the caller sleeps";
    uct_cuda_queue_progress(&queue);
    EXPECT_EQ(2, calls);
    EXPECT_TRUE(uct_cuda_queue_is_idle(&queue));
}

TEST_F(Queue, pending_request_that_did_a_part_is_called_again)
{
    static int runs;
    uct_pending_req_t first, second;
    runs       = 0;
    first.func = [](uct_pending_req_t*) {
        return (++runs < 3) ? UCS_INPROGRESS : UCS_OK;
    };
    second.func = [](uct_pending_req_t*) {
        EXPECT_EQ(3, runs); /* in their order */
        ++runs;
        return UCS_OK;
    };

    queue.max_events = 1;
    uct_cuda_op_t *a = post(0, nullptr);
    EXPECT_EQ(UCS_OK, uct_cuda_queue_pending_add(&queue, this, &first));
    EXPECT_EQ(UCS_OK, uct_cuda_queue_pending_add(&queue, this, &second));
    finish(a);
    uct_cuda_queue_progress(&queue);
    EXPECT_EQ(4, runs);
    EXPECT_EQ(nullptr, queue.pending_head);
}

/* The request whose turn has come may flush, although others wait behind it */
TEST_F(Queue, pending_request_may_flush)
{
    static uct_cuda_queue_t *the_queue;
    static std::vector<ucs_status_t> results;
    uct_pending_req_t first, second;

    the_queue = &queue;
    results.clear();
    first.func = [](uct_pending_req_t*) {
        results.push_back(uct_cuda_queue_flush(the_queue, NULL));
        return UCS_OK;
    };
    second.func = [](uct_pending_req_t*) {
        results.push_back(UCS_ERR_LAST);
        return UCS_OK;
    };

    queue.max_events = 1;
    uct_cuda_op_t *a = post(0, nullptr);
    EXPECT_EQ(UCS_OK, uct_cuda_queue_pending_add(&queue, this, &first));
    EXPECT_EQ(UCS_OK, uct_cuda_queue_pending_add(&queue, this, &second));
    Completion flushed;
    EXPECT_EQ(UCS_ERR_NO_RESOURCE,
              uct_cuda_queue_flush(&queue, &flushed.super));
    finish(a);
    uct_cuda_queue_progress(&queue);
    EXPECT_EQ((std::vector<ucs_status_t>{UCS_OK, UCS_ERR_LAST}), results);
}

TEST_F(Queue, purge_is_for_one_endpoint)
{
    Pending reqs[5];
    std::vector<uct_pending_req_t*> purged;
    int mine, theirs;

    queue.max_events = 1;
    uct_cuda_op_t *a = post(0, nullptr);
    for (int i = 0; i < 5; ++i) {
        EXPECT_EQ(UCS_OK,
                  uct_cuda_queue_pending_add(&queue, (i % 2) ? &theirs : &mine,
                                             &reqs[i].super));
    }

    uct_cuda_queue_pending_purge(
            &queue, &mine,
            [](uct_pending_req_t *req, void *arg) {
                ((std::vector<uct_pending_req_t*>*)arg)->push_back(req);
            },
            &purged);
    EXPECT_EQ((std::vector<uct_pending_req_t*>{&reqs[0].super, &reqs[2].super,
                                               &reqs[4].super}),
              purged);
    finish(a);
    uct_cuda_queue_progress(&queue);
    EXPECT_EQ(1, reqs[1].calls);
    EXPECT_EQ(1, reqs[3].calls);
    EXPECT_EQ(0, reqs[0].calls + reqs[2].calls + reqs[4].calls);
    EXPECT_EQ(nullptr, queue.pending_head);
}

/* A window of transfers of many copies each: copies that do not fit wait, and
   all end */
TEST_F(Queue, copies_beyond_a_streams_capacity_wait)
{
    std::vector<uct_cuda_op_t*> posted;
    uct_cuda_stream_t *stream;
    uct_cuda_op_t *op;
    Pending req;

    while (uct_cuda_queue_stream(&queue, 0, &stream) == UCS_OK) {
        ASSERT_LT(posted.size(), 64u) << "nothing bounds the window";
        ASSERT_EQ(UCS_OK, uct_cuda_op_get(stream, &op));
        op->steps = 97;
        ASSERT_EQ(UCS_INPROGRESS, uct_cuda_op_post(&queue, op));
        posted.push_back(op);
    }

    EXPECT_GE(posted.size(), 4u);
    EXPECT_EQ(UCS_OK, uct_cuda_queue_pending_add(&queue, this, &req.super));
    finish(posted[0]);
    EXPECT_EQ(1u, uct_cuda_queue_progress(&queue));
    EXPECT_EQ(1, req.calls);
    for (uct_cuda_op_t *each : posted) {
        finish(each);
    }
    uct_cuda_queue_progress(&queue);
    EXPECT_EQ(0u, queue.steps);
    finish(post(0, nullptr));
}

TEST_F(Queue, a_failed_copy_reports_its_completion)
{
    Completion comp;
    post(0, &comp);
    driver.fail      = "cuEventQuery";
    driver.fail_with = CUDA_ERROR_ILLEGAL_ADDRESS;
    EXPECT_EQ(1u, uct_cuda_queue_progress(&queue));
    EXPECT_EQ(1, comp.calls);
    EXPECT_EQ(UCS_ERR_IO_ERROR, comp.super.status);
}

TEST_F(Queue, a_failed_copy_has_ended_before_its_memory_is_released)
{
    static unsigned waits;
    static unsigned waits_when_done;
    static const uct_cuda_method_t method = {"a test", nullptr, nullptr,
                                             [](uct_cuda_op_t*) {
                                                 waits_when_done = waits;
                                             }, nullptr};
    uct_cuda_op_t *op = post(0, nullptr);

    waits = waits_when_done          = 0;
    driver.table.cuStreamSynchronize = [](CUstream) {
        ++waits;
        return CUDA_SUCCESS;
    };
    op->method  = &method;
    driver.fail = "cuEventQuery";
    EXPECT_EQ(1u, uct_cuda_queue_progress(&queue));
    EXPECT_EQ(1u, waits_when_done);

    /* Its context was destroyed with the stream */
    op            = post(0, nullptr);
    op->method    = &method;
    driver.fail   = "cuEventQuery";
    ++driver.ctx_id;
    EXPECT_EQ(1u, uct_cuda_queue_progress(&queue));
    EXPECT_EQ(1u, waits_when_done);
    --driver.ctx_id;
}

TEST_F(Queue, each_context_keeps_its_streams)
{
    const CUcontext first = driver.context;

    driver.table.cuCtxGetId = [](CUcontext context, unsigned long long *id) {
        *id = reinterpret_cast<uintptr_t>(context);
        return CUDA_SUCCESS;
    };
    for (int i = 0; i < 6; ++i) {
        driver.context = (i % 2 == 0) ? first :
                                        reinterpret_cast<CUcontext>(0x2000);
        finish(post(0, nullptr));
        EXPECT_EQ(1u, uct_cuda_queue_progress(&queue));
    }
    EXPECT_EQ(2u, driver.streams.size());
    EXPECT_EQ(2u, driver.events.size());
}

/* Repeated resets of a device do not fill memory */
TEST_F(Queue, destroyed_contexts_are_forgotten)
{
    const auto id = driver.ctx_id;

    for (int i = 1; i <= 3; ++i) {
        driver.renew_context();
        finish(post(0, nullptr));
        EXPECT_EQ(1u, uct_cuda_queue_progress(&queue));
        ASSERT_NE(nullptr, queue.pools);
        EXPECT_EQ(driver.ctx_id, queue.pools->context->id);
        EXPECT_EQ(nullptr, queue.pools->next);
        driver.done.clear(); /* events end with the context */
        driver.events.clear();
        driver.streams.clear();
    }
    driver.ctx_id = id;
}

TEST_F(Queue, failed_event_leaves_nothing_behind)
{
    Completion comp;
    uct_cuda_op_t *op = get(0, &comp.super);

    driver.fail = "cuEventRecord";
    /* The stream was synchronized instead: it has ended */
    EXPECT_EQ(UCS_OK, uct_cuda_op_post(&queue, op));
    EXPECT_EQ(0u, queue.outstanding);
    EXPECT_EQ(0, comp.calls);
    finish(post(0, &comp));
    EXPECT_EQ(1u, uct_cuda_queue_progress(&queue));

    op                               = get(0, nullptr);
    driver.fail                      = "cuEventRecord";
    driver.table.cuStreamSynchronize = [](CUstream) {
        return CUDA_ERROR_UNKNOWN;
    };
    EXPECT_EQ(UCS_ERR_IO_ERROR, uct_cuda_op_post(&queue, op));
    EXPECT_EQ(0u, queue.outstanding);
}

TEST_F(Queue, an_operation_waited_for_at_once_ignores_limits)
{
    uct_cuda_stream_t *stream;
    Completion comp;

    queue.max_events = 1;
    uct_cuda_op_t *op = post(0, &comp);
    uct_cuda_queue_fence(&queue);
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, uct_cuda_queue_stream(&queue, 1, &stream));
    ASSERT_EQ(UCS_OK, uct_cuda_queue_stream_now(&queue, 1, &stream));
    /* and it ends no fence */
    queue.max_events = 2;
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, uct_cuda_queue_stream(&queue, 1, &stream));
    finish(op);
    EXPECT_EQ(1u, uct_cuda_queue_progress(&queue));
    EXPECT_EQ(UCS_OK, uct_cuda_queue_stream(&queue, 1, &stream));
}

TEST_F(Queue, a_stream_can_be_waited_for)
{
    static int queries;
    uct_cuda_stream_t *stream;
    Completion comp;

    post(0, &comp);
    uct_cuda_queue_fence(&queue);
    queries                   = 0;
    driver.table.cuEventQuery = [](CUevent) {
        return (++queries < 5) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    };
    EXPECT_EQ(UCS_OK, uct_cuda_queue_stream_wait(&queue, 1, &stream));
    EXPECT_EQ(5, queries);
    /* No completion was reported yet */
    EXPECT_EQ(0, comp.calls);
    EXPECT_EQ(1u, uct_cuda_queue_progress(&queue));
    EXPECT_EQ(1, comp.calls);

    /* Nothing to wait for, no query */
    EXPECT_EQ(UCS_OK, uct_cuda_queue_stream_wait(&queue, 1, &stream));
    EXPECT_EQ(6, queries);
}

TEST_F(Queue, completion_may_post_the_next_operation)
{
    struct Chain {
        uct_completion_t super;
        Queue *test;
        int left;
    } chain;
    chain.super.func = [](uct_completion_t *self) {
        Chain *c = reinterpret_cast<Chain *>(self);
        if (--c->left > 0) {
            self->count = 1;
            EXPECT_EQ(UCS_INPROGRESS, uct_cuda_op_post(&c->test->queue,
                                                       c->test->get(0, self)));
        }
    };
    chain.super.count  = 1;
    chain.super.status = UCS_OK;
    chain.test         = this;
    chain.left         = 5;

    ASSERT_EQ(UCS_INPROGRESS, uct_cuda_op_post(&queue, get(0, &chain.super)));
    for (int i = 0; (i < 20) && (chain.left > 0); ++i) {
        driver.done = driver.events;
        uct_cuda_queue_progress(&queue);
    }
    EXPECT_EQ(0, chain.left);
    EXPECT_EQ(0u, queue.outstanding);
}

TEST_F(Queue, wakes_up_by_its_file_descriptor)
{
    int fd;
    ASSERT_EQ(UCS_OK, uct_cuda_queue_event_fd(&queue, &fd));
    uct_cuda_op_t *op = post(0, nullptr);
    ASSERT_EQ(UCS_OK, uct_cuda_queue_arm(&queue));

    struct pollfd pfd = {fd, POLLIN, 0};
    EXPECT_EQ(0, poll(&pfd, 1, 0));
    ASSERT_NE(nullptr, driver.host_func);
    driver.host_func(driver.host_arg);
    EXPECT_EQ(1, poll(&pfd, 1, 0));

    finish(op);
    EXPECT_EQ(UCS_ERR_BUSY, uct_cuda_queue_arm(&queue));
    EXPECT_EQ(0, poll(&pfd, 1, 0)) << "fd not drained";
    EXPECT_EQ(UCS_ERR_BUSY, uct_cuda_queue_arm(&queue)) << "it is over";
    uct_cuda_queue_progress(&queue);
    EXPECT_EQ(UCS_OK, uct_cuda_queue_arm(&queue));
    EXPECT_EQ(0, poll(&pfd, 1, 0));
}

/* The callback of a short operation does not wait for a long one's */
TEST_F(Queue, each_stream_has_a_stream_for_callbacks)
{
    static std::set<CUstream> streams;
    uct_cuda_op_t *first, *second;

    streams.clear();
    driver.table.cuLaunchHostFunc = [](CUstream stream, CUhostFn, void*) {
        streams.insert(stream);
        return CUDA_SUCCESS;
    };
    first  = post(0, nullptr);
    second = post(1, nullptr);
    ASSERT_EQ(UCS_OK, uct_cuda_queue_arm(&queue));
    EXPECT_EQ(2u, streams.size());
    EXPECT_EQ(0u, streams.count(first->stream->cuda));
    EXPECT_EQ(0u, streams.count(second->stream->cuda));
    finish(first);
    finish(second);
    uct_cuda_queue_progress(&queue);
}

/* The driver makes no callback in a context that has failed meanwhile */
TEST_F(Queue, wakes_up_without_a_callback)
{
    int fd;
    ASSERT_EQ(UCS_OK, uct_cuda_queue_event_fd(&queue, &fd));
    uct_cuda_op_t *op = post(0, nullptr);
    ASSERT_EQ(UCS_OK, uct_cuda_queue_arm(&queue));

    /* The alarm's thread writes to the descriptor before it notes this: a
       thread that arms in between polls again, and finds it readable */
    struct pollfd pfd   = {fd, POLLIN, 0};
    ucs_status_t status = UCS_OK;
    for (int tries = 0; (tries < 10000) && (status == UCS_OK); ++tries) {
        EXPECT_EQ(1, poll(&pfd, 1, (tries == 0) ? 30000 : 0));
        status = uct_cuda_queue_arm(&queue);
        usleep(1000);
    }
    EXPECT_EQ(UCS_ERR_BUSY, status);
    finish(op);
    uct_cuda_queue_progress(&queue);
}

/* A polling thread arms all the time: one callback, behind all running
   operations, in a stream of its own */
TEST_F(Queue, a_polling_thread_arms_once)
{
    static unsigned callbacks;
    static CUstream callback_stream;
    int fd;

    callbacks                     = 0;
    driver.table.cuLaunchHostFunc = [](CUstream stream, CUhostFn func,
                                       void *arg) {
        ++callbacks;
        callback_stream = stream;
        fake->host_func = func;
        fake->host_arg  = arg;
        return CUDA_SUCCESS;
    };
    ASSERT_EQ(UCS_OK, uct_cuda_queue_event_fd(&queue, &fd));
    uct_cuda_op_t *first  = post(0, nullptr);
    uct_cuda_op_t *second = post(0, nullptr);
    ASSERT_EQ(UCS_OK, uct_cuda_queue_arm(&queue));
    ASSERT_EQ(UCS_OK, uct_cuda_queue_arm(&queue));
    EXPECT_EQ(1u, callbacks);
    EXPECT_EQ(std::vector<CUevent>{second->event}, driver.waited_for);
    EXPECT_NE(first->stream->cuda, callback_stream);

    finish(first);
    uct_cuda_queue_progress(&queue);
    ASSERT_EQ(UCS_OK, uct_cuda_queue_arm(&queue));
    EXPECT_EQ(1u, callbacks);

    /* A later operation gets a callback of its own when it becomes the first */
    uct_cuda_op_t *third = post(0, nullptr);
    finish(second);
    uct_cuda_queue_progress(&queue);
    ASSERT_EQ(UCS_OK, uct_cuda_queue_arm(&queue));
    EXPECT_EQ(2u, callbacks);

    /* The first one's callback comes late: query again */
    driver.host_func(driver.host_arg);
    EXPECT_EQ(UCS_ERR_BUSY, uct_cuda_queue_arm(&queue));
    ASSERT_EQ(UCS_OK, uct_cuda_queue_arm(&queue));
    EXPECT_EQ(3u, callbacks);

    /* Or it has ended by then */
    driver.host_func(driver.host_arg);
    finish(third);
    EXPECT_EQ(UCS_ERR_BUSY, uct_cuda_queue_arm(&queue));
    EXPECT_EQ(UCS_ERR_BUSY, uct_cuda_queue_arm(&queue));
    EXPECT_EQ(1u, uct_cuda_queue_progress(&queue));
    EXPECT_EQ(UCS_OK, uct_cuda_queue_arm(&queue));
    EXPECT_EQ(3u, callbacks);
}

/* UCX has freed its requests by then; resources of copies are released */
TEST_F(Queue, a_closed_interface_gets_no_completions)
{
    static int released;
    static const uct_cuda_method_t method = {"a test", nullptr, nullptr,
                                             [](uct_cuda_op_t*) {
                                                 ++released;
                                             }, nullptr};
    Completion comps[3], flushed[2];
    Pending req;

    released         = 0;
    queue.max_events = 3;
    for (int i = 0; i < 3; ++i) {
        post(i / 2, &comps[i])->method = &method;
        if (i < 2) {
            EXPECT_EQ(UCS_INPROGRESS,
                      uct_cuda_queue_flush(&queue, &flushed[i].super));
        }
    }
    EXPECT_EQ(UCS_OK, uct_cuda_queue_pending_add(&queue, this, &req.super));

    /* The last one ends while the queue waits */
    driver.table.cuEventQuery = [](CUevent) {
        static int asked;
        return (++asked < 5) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    };
    uct_cuda_queue_cleanup(&queue);
    EXPECT_EQ(3, released);
    EXPECT_EQ(0, comps[0].calls + comps[1].calls + comps[2].calls);
    EXPECT_EQ(0, flushed[0].calls + flushed[1].calls);
    EXPECT_EQ(0, req.calls);
    ASSERT_EQ(UCS_OK, uct_cuda_queue_init(&queue, 16, UINT_MAX));
}

/* The engine's streams outlive a queue, and so do callbacks in them */
TEST_F(Queue, a_late_wake_up_writes_to_no_other_file)
{
    int fd, own;

    ASSERT_EQ(UCS_OK, uct_cuda_queue_event_fd(&queue, &fd));
    uct_cuda_op_t *op = post(0, nullptr);
    uct_cuda_method_t method = {
        "a test", [](uct_cuda_op_t*) { return UCS_INPROGRESS; },
        [](uct_cuda_op_t*, CUhostFn func, void *arg) {
            fake->host_func = func;
            fake->host_arg  = arg;
            return UCS_OK;
        },
        nullptr, nullptr
    };
    op->method = &method;
    ASSERT_EQ(UCS_OK, uct_cuda_queue_arm(&queue));
    method.test = [](uct_cuda_op_t*) { return UCS_OK; };
    uct_cuda_queue_cleanup(&queue);

    own               = eventfd(0, EFD_NONBLOCK);
    struct pollfd pfd = {own, POLLIN, 0};
    ASSERT_NE(nullptr, driver.host_func);
    driver.host_func(driver.host_arg);
    EXPECT_EQ(0, poll(&pfd, 1, 0));
    close(own);

    /* The descriptor's next owner is not woken up by it */
    ASSERT_EQ(UCS_OK, uct_cuda_queue_init(&queue, 16, UINT_MAX));
    int next;
    ASSERT_EQ(UCS_OK, uct_cuda_queue_event_fd(&queue, &next));
    EXPECT_EQ(fd, next) << "descriptors pile up";
    pfd.fd = next;
    EXPECT_EQ(0, poll(&pfd, 1, 0));
}

/* A wake-up descriptor inherited by fork is the parent's: the child may close
   the queue, and open others */
TEST_F(Queue, a_forked_child_takes_no_wake_up_of_its_parent)
{
    const uint64_t one = 1, two = 2;
    uint64_t value;
    int fd;

    ASSERT_EQ(UCS_OK, uct_cuda_queue_event_fd(&queue, &fd));
    ASSERT_EQ((ssize_t)sizeof(one), write(fd, &one, sizeof(one)));
    EXPECT_EQ(1, in_child([&] {
        uct_cuda_queue_t next;
        int other;

        uct_cuda_queue_cleanup(&queue);
        return (uct_cuda_queue_init(&next, 16, UINT_MAX) == UCS_OK) &&
               (uct_cuda_queue_event_fd(&next, &other) == UCS_OK) &&
               (write(other, &two, sizeof(two)) == (ssize_t)sizeof(two));
    }));
    EXPECT_EQ((ssize_t)sizeof(value), read(fd, &value, sizeof(value)));
    EXPECT_EQ(1u, value);
}

/* One command per existing context that the queue has used */
TEST_F(Queue, waiting_uses_one_command_per_context)
{
    static unsigned records;
    Completion done;

    driver.table.cuEventRecord = [](CUevent event, CUstream stream) {
        EXPECT_EQ(1u, fake->events.count(event));
        EXPECT_EQ(1u, fake->streams.count(stream));
        ++records;
        return CUDA_SUCCESS;
    };
    records = 0;
    uct_cuda_queue_wait_for_driver(&queue);
    EXPECT_EQ(0u, records);
    finish(post(1, &done));
    uct_cuda_queue_progress(&queue);
    records = 0;
    uct_cuda_queue_wait_for_driver(&queue);
    EXPECT_EQ(1u, records);
}
