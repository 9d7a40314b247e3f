/* SPDX-License-Identifier: BSD-3-Clause */
/* The watch thread: start, work, end, and behaviour in forks. */
#include <uct/cuda/node/watch.h>

#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/retry.h>
#include <uct/cuda/base/thread.h>

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>


/* Interval of checks */
#define PERIOD_NS (20ul * 1000 * 1000)

/* Interval of checks without memory to watch: the program may have closed the
 * socket that wakes the thread */
#define IDLE_MS 1000

/* Time that a fork waits for the thread */
#define FORK_WAIT_MS 100

#define MAX_WATCHED 2


static struct {
    pthread_mutex_t lock;      /* start and end; order: base/thread.h */
    pthread_mutex_t busy;      /* held while the thread works */
    bool            is_tried;
    bool            is_ready;
    bool            has_thread;
    bool            is_over;
    bool            is_asleep; /* until it is woken */
    pid_t           pid;
    pthread_t       thread;
    uct_cuda_node_descriptors_t socket;
    const uct_cuda_node_watched_t *watched[MAX_WATCHED]; /* NULL: unused */
} watch = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .busy = PTHREAD_MUTEX_INITIALIZER
};


/* This thread forks and has locked `busy`; others may fork at the same time */
static __thread bool is_forking;


static const uct_cuda_node_watched_t *get_watched(unsigned number)
{
    return (number < MAX_WATCHED) ?
                   __atomic_load_n(&watch.watched[number], __ATOMIC_ACQUIRE) :
                   NULL;
}

static int make_none(const uct_cuda_node_invalidation_t *notice)
{
    (void)notice;
    return -1;
}

static size_t renew_none(uint64_t base, uint64_t length, void *answer)
{
    (void)base;
    (void)length;
    (void)answer;
    return 0;
}

/* Return the client that answers requests. Without one, requests and wakeups
 * must be received, too: the thread would not wait while there are any. */
static const uct_cuda_node_watched_t *get_server(void)
{
    static const uct_cuda_node_watched_t none = {.make  = make_none,
                                                 .renew = renew_none};
    const uct_cuda_node_watched_t *watched;
    unsigned i = 0;

    while (((watched = get_watched(i)) != NULL) && (watched->make == NULL)) {
        ++i;
    }

    return (watched != NULL) ? watched : &none;
}

/* Answer the peers' requests and, with @a is_due, let each client check its
 * memory: many requests may come in one interval, if a peer maps memory in many
 * pieces. @return true: a client has memory to watch */
static bool poll_all(bool is_due)
{
    bool has_work = !is_due;
    const uct_cuda_node_watched_t *watched, *server;
    unsigned i;

    pthread_mutex_lock(&watch.busy);
    server = get_server();
    uct_cuda_node_descriptors_answer(&watch.socket, server->make,
                                     server->renew);
    for (i = 0; is_due && ((watched = get_watched(i)) != NULL); ++i) {
        has_work |= watched->poll();
    }
    pthread_mutex_unlock(&watch.busy);
    return has_work;
}

/* Add a client unless it is one already. Call with the lock held. */
static void add_watched(const uct_cuda_node_watched_t *watched)
{
    unsigned i;

    for (i = 0; i < MAX_WATCHED; ++i) {
        if (watch.watched[i] == NULL) {
            __atomic_store_n(&watch.watched[i], watched, __ATOMIC_RELEASE);
        }
        if (watch.watched[i] == watched) {
            return;
        }
    }
}

static void *watch_main(void *arg)
{
    bool has_work = false;
    uint64_t due  = 0;
    bool is_due;

    while (!__atomic_load_n(&watch.is_over, __ATOMIC_ACQUIRE)) {
        /* a client added after this check sees the thread asleep and wakes
         * it */
        __atomic_store_n(&watch.is_asleep, true, __ATOMIC_SEQ_CST);
        is_due   = !has_work || (uct_cuda_now_ns() >= due);
        has_work = poll_all(is_due);
        if (is_due) {
            due = uct_cuda_now_ns() + PERIOD_NS;
        }
        if (has_work) {
            __atomic_store_n(&watch.is_asleep, false, __ATOMIC_SEQ_CST);
        }
        uct_cuda_node_descriptors_wait(&watch.socket,
                                       has_work ? uct_cuda_ms_until(due) :
                                                  IDLE_MS);
    }

    return NULL;
}

/* Stop the thread for good, and close the socket if the thread ends in time.
 * Call with the lock held. */
static void end(void)
{
    if (watch.has_thread) {
        __atomic_store_n(&watch.is_over, true, __ATOMIC_RELEASE);
        uct_cuda_node_descriptors_wake(&watch.socket);
        watch.has_thread = !uct_cuda_thread_join(watch.thread);
    }
    if (watch.is_ready && !watch.has_thread) {
        uct_cuda_node_descriptors_close(&watch.socket);
    }
    watch.is_tried = true;
    watch.is_ready = false;
}

/* Stop the thread when the program exits: before the driver's exit handlers,
 * which were registered earlier. A forked child has no thread to stop. */
static void on_exit_of_program(void)
{
    if (watch.pid == getpid()) {
        pthread_mutex_lock(&watch.lock);
        end();
        pthread_mutex_unlock(&watch.lock);
    }
}

/* Keep the watch thread from working during the fork, unless it works for
 * longer than FORK_WAIT_MS: the driver may fork in a call that the thread waits
 * for */
static void before_fork(void)
{
    unsigned tries = FORK_WAIT_MS;

    while (!(is_forking = (pthread_mutex_trylock(&watch.busy) == 0)) &&
           (tries-- > 0)) {
        uct_cuda_sleep_ns(1000000);
    }
}

static void after_fork(void)
{
    if (is_forking) {
        pthread_mutex_unlock(&watch.busy);
    }
}

/* Close inherited resources: a child must not keep its parent's memory in
 * use */
static void after_fork_in_child(void)
{
    const uct_cuda_node_watched_t *watched;
    unsigned i;

    pthread_mutex_init(&watch.busy, NULL);
    pthread_mutex_init(&watch.lock, NULL);
    if (watch.is_ready) {
        uct_cuda_node_descriptors_close(&watch.socket);
    }
    for (i = 0; (watched = get_watched(i)) != NULL; ++i) {
        if (watched->close_inherited != NULL) {
            watched->close_inherited();
        }
    }
    watch.is_tried   = watch.is_tried && !watch.has_thread;
    watch.is_ready   = false;
    watch.has_thread = false;
    watch.is_asleep  = false;
}

/* Register the handlers. @return true on success */
static bool add_handlers(void)
{
    static bool has_handlers;

    has_handlers = has_handlers ||
                   ((atexit(on_exit_of_program) == 0) &&
                    (pthread_atfork(before_fork, after_fork,
                                    after_fork_in_child) == 0));
    return has_handlers;
}

/* Start the thread with its socket; it is tried once. On failure is_ready stays
 * false. Call with the lock held. */
static void start(void)
{
    watch.is_tried = true;
    watch.pid      = getpid();
    if (!add_handlers() || !uct_cuda_node_descriptors_open(&watch.socket)) {
        uct_cuda_debug("no socket for peers' requests");
        return;
    }

    watch.has_thread = uct_cuda_thread_start(watch_main, NULL, &watch.thread);
    if (!watch.has_thread) {
        uct_cuda_node_descriptors_close(&watch.socket);
        return;
    }

    watch.is_ready = true;
}

const uct_cuda_node_descriptors_t *
uct_cuda_node_watch_start(const uct_cuda_node_watched_t *watched)
{
    const uct_cuda_node_descriptors_t *socket;

    pthread_mutex_lock(&watch.lock);
    add_watched(watched);
    if (!watch.is_tried) {
        start();
    }
    socket = watch.is_ready ? &watch.socket : NULL;
    pthread_mutex_unlock(&watch.lock);
    return socket;
}

void uct_cuda_node_watch_replace(bool is_ready)
{
    pthread_mutex_lock(&watch.lock);
    end();
    watch.is_ready = is_ready && add_handlers() &&
                     uct_cuda_node_descriptors_open(&watch.socket);
    pthread_mutex_unlock(&watch.lock);
}

void uct_cuda_node_watch_wake(void)
{
    if (__atomic_load_n(&watch.is_asleep, __ATOMIC_SEQ_CST) &&
        __atomic_exchange_n(&watch.is_asleep, false, __ATOMIC_SEQ_CST)) {
        uct_cuda_node_descriptors_wake(&watch.socket);
    }
}
