/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Locks of an open file description (F_OFD_SETLK). They survive if this process
 * closes another descriptor of the file. They last as long as any process has
 * the description. So this file opens a separate description: it is never
 * mapped, and a forked child closes it.
 */
#include <uct/cuda/node/alive.h>

#include <uct/cuda/base/file.h>
#include <uct/cuda/base/retry.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/queue.h>


struct uct_cuda_node_alive {
    LIST_ENTRY(uct_cuda_node_alive) link;
    uct_cuda_file_t                 file; /* none in a forked child */
};

static struct {
    pthread_mutex_t                  lock; /* order: base/thread.h */
    LIST_HEAD(, uct_cuda_node_alive) list;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};


static void before_fork(void)
{
    pthread_mutex_lock(&all.lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&all.lock);
}

static void after_fork_in_child(void)
{
    uct_cuda_node_alive_t *alive;

    LIST_FOREACH(alive, &all.list, link)
    {
        uct_cuda_file_close(&alive->file);
        alive->file.fd = -1;
    }
    LIST_INIT(&all.list);
    pthread_mutex_init(&all.lock, NULL);
}

static void watch_forks(void)
{
    (void)pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

ucs_status_t uct_cuda_node_alive_open(int fd, uct_cuda_node_alive_t **alive_p)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    uct_cuda_node_alive_t *alive;
    char path[64];

    alive = malloc(sizeof(*alive));
    if (alive == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    pthread_once(&once, watch_forks);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    pthread_mutex_lock(&all.lock);
    alive->file = uct_cuda_file_of(
            uct_cuda_file_keep(UCT_CUDA_RETRY(open(path,
                                                   O_RDWR | O_CLOEXEC))));
    if (alive->file.fd >= 0) {
        LIST_INSERT_HEAD(&all.list, alive, link);
    }
    pthread_mutex_unlock(&all.lock);
    if (alive->file.fd < 0) {
        free(alive);
        return UCS_ERR_IO_ERROR;
    }

    *alive_p = alive;
    return UCS_OK;
}

void uct_cuda_node_alive_close(uct_cuda_node_alive_t *alive)
{
    pthread_mutex_lock(&all.lock);
    if (uct_cuda_node_alive_is_owner(alive)) {
        LIST_REMOVE(alive, link);
        uct_cuda_file_close(&alive->file);
    }
    pthread_mutex_unlock(&all.lock);
    free(alive);
}

bool uct_cuda_node_alive_is_owner(const uct_cuda_node_alive_t *alive)
{
    return alive->file.fd >= 0;
}

/* Run a lock command for a range of numbers. @return true: success; a query
 * leaves its answer in the lock */
static bool lock_bytes(const uct_cuda_node_alive_t *alive, unsigned first,
                       unsigned count, int command, struct flock *lock)
{
    lock->l_whence = SEEK_SET;
    lock->l_start  = (off_t)first;
    lock->l_len    = (off_t)count;
    lock->l_pid    = 0;
    return uct_cuda_file_is_valid(&alive->file) &&
           (UCT_CUDA_RETRY(fcntl(alive->file.fd, command, lock)) == 0);
}

bool uct_cuda_node_alive_hold(uct_cuda_node_alive_t *alive, unsigned number)
{
    struct flock lock = {.l_type = F_WRLCK};

    return lock_bytes(alive, number, 1, F_OFD_SETLK, &lock);
}

bool uct_cuda_node_alive_wait(uct_cuda_node_alive_t *alive, unsigned number)
{
    struct flock lock = {.l_type = F_WRLCK};

    return lock_bytes(alive, number, 1, F_OFD_SETLKW, &lock);
}

void uct_cuda_node_alive_release(uct_cuda_node_alive_t *alive, unsigned number)
{
    struct flock lock = {.l_type = F_UNLCK};

    (void)lock_bytes(alive, number, 1, F_OFD_SETLK, &lock);
}

bool uct_cuda_node_alive_any_is_taken(const uct_cuda_node_alive_t *alive,
                                      unsigned first, unsigned count)
{
    struct flock lock = {.l_type = F_WRLCK};

    return !lock_bytes(alive, first, count, F_OFD_GETLK, &lock) ||
           (lock.l_type != F_UNLCK);
}

bool uct_cuda_node_alive_is_taken(const uct_cuda_node_alive_t *alive,
                                  unsigned number)
{
    return uct_cuda_node_alive_any_is_taken(alive, number, 1);
}
