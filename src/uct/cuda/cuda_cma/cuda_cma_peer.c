/* SPDX-License-Identifier: BSD-3-Clause */
/* Identity of a peer, and access to its memory. */
#include <uct/cuda/cuda_cma/cuda_cma_peer.h>

#include <uct/cuda/base/file.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/retry.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Missing in libcs before 2.36; the same on all processors */
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#define P_PIDFD ((idtype_t)3) /* an enumerator in newer libcs */


struct uct_cuda_cma_peer {
    LIST_ENTRY(uct_cuda_cma_peer) link;
    uct_cuda_cma_addr_t           addr;
    int                           pidfd; /* -1: a kernel before 5.3 */
    unsigned                      users;
};


/* Random number at a fixed address, read by peers to identify this process */
static uint64_t number;

/* Peers of this process, each once for any number of endpoints: UCX keeps
 * endpoints after the peer has closed its own, and each would keep a
 * descriptor */
static struct {
    pthread_mutex_t                lock; /* order: base/thread.h */
    LIST_HEAD(, uct_cuda_cma_peer) list;
} peers = {.lock = PTHREAD_MUTEX_INITIALIZER};


static void before_fork(void)
{
    pthread_mutex_lock(&peers.lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&peers.lock);
}

static void watch_forks(void)
{
    (void)pthread_atfork(before_fork, after_fork, after_fork);
}

/* Fields of /proc/PID/stat */
typedef struct {
    unsigned long long start; /* Clock ticks since boot; 0: unknown */
    bool               is_over;
} process_t;

/* Read fields 3, 20 and 22. The program's name, in brackets, may contain blanks
 * and brackets. A process whose first thread has ended is not a zombie yet. */
static process_t find_process(int32_t pid)
{
    process_t process = {0};
    char path[64], text[1024], state;
    const char *field;
    long threads;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    (void)uct_cuda_file_text(path, text, sizeof(text));
    field = strrchr(text, ')');
    if ((field == NULL) ||
        (sscanf(field + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                "%*s %*s %*s %*s %*s %ld %*s %llu", &state, &threads,
                &process.start) != 3)) {
        return (process_t){0};
    }

    process.is_over = ((state == 'Z') || (state == 'X')) && (threads <= 1);
    return process;
}

void uct_cuda_cma_addr_self(uint32_t iface, uct_cuda_cma_addr_t *addr)
{
    uint64_t expected = 0, random;

    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != sizeof(random)) {
        random = (uint64_t)getpid() << 32 | 1;
    }

    (void)__atomic_compare_exchange_n(&number, &expected, random, false,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    memset(addr, 0, sizeof(*addr));
    uct_cuda_node_iface_addr_self(&addr->process);
    addr->process.iface = iface;
    addr->start_time    = find_process(addr->process.pid).start;
    addr->place         = (uintptr_t)&number;
    addr->number        = __atomic_load_n(&number, __ATOMIC_RELAXED);
}

/* Check that a descriptor is still a pidfd: programs close descriptors they do
 * not own. Waiting for a process other than a child fails in a known way. */
static bool is_pidfd(int fd)
{
    siginfo_t info;

    return (UCT_CUDA_RETRY(waitid(P_PIDFD, (id_t)fd, &info,
                                  WEXITED | WNOHANG | WNOWAIT)) == 0) ||
           (errno == ECHILD);
}

/* Return whether the kernel confirms that the process has ended. Lack of
 * information, as after a chroot() without /proc, is no end. A pidfd becomes
 * readable when all threads have ended and their files are closed. */
static bool has_ended(const uct_cuda_cma_peer_t *peer)
{
    const uct_cuda_cma_addr_t *addr = &peer->addr;
    struct pollfd poll_fd           = {.fd = peer->pidfd, .events = POLLIN};
    process_t process;

    if ((peer->pidfd >= 0) && (UCT_CUDA_RETRY(poll(&poll_fd, 1, 0)) == 0)) {
        return false;
    }

    process = find_process(addr->process.pid);
    if (process.start != 0) {
        return (process.start != addr->start_time) || process.is_over;
    }

    return ((poll_fd.revents & POLLIN) && is_pidfd(peer->pidfd)) ||
           ((kill(addr->process.pid, 0) != 0) && (errno == ESRCH));
}

static ssize_t copy_some(const uct_cuda_cma_peer_t *peer, void *local,
                         uint64_t address, size_t length, bool to_local)
{
    const struct iovec here  = {.iov_base = local, .iov_len = length};
    const struct iovec there = {.iov_base = (void*)(uintptr_t)address,
                                .iov_len  = length};
    const pid_t pid          = peer->addr.process.pid;

    return UCT_CUDA_RETRY(
            to_local ? process_vm_readv(pid, &here, 1, &there, 1, 0) :
                       process_vm_writev(pid, &here, 1, &there, 1, 0));
}

/* Read the peer's number; false with errno on failure */
static bool read_number(const uct_cuda_cma_peer_t *peer, uint64_t *number_p)
{
    const ssize_t done = copy_some(peer, number_p, peer->addr.place,
                                   sizeof(*number_p), true);

    if (done >= 0) {
        errno = EFAULT; /* a part is missing */
    }
    return done == sizeof(*number_p);
}

/* Check the peer's image. After execve() the process keeps its PID, start time
 * and descriptors, but not its memory: another number is there, or none. A
 * process without memory (ESRCH) is about to end. */
static uct_cuda_cma_peer_state_t find_image(const uct_cuda_cma_peer_t *peer)
{
    uint64_t found;

    if (!read_number(peer, &found)) {
        return (errno == EFAULT) ? UCT_CUDA_CMA_PEER_REPLACED :
                                   UCT_CUDA_CMA_PEER_UNKNOWN;
    }

    return (found == peer->addr.number) ? UCT_CUDA_CMA_PEER_THERE :
                                          UCT_CUDA_CMA_PEER_REPLACED;
}

/* Explain why the peer's memory is not readable; NULL: it is the process of the
 * address, and readable */
static const char *find_obstacle(const uct_cuda_cma_peer_t *peer)
{
    const uct_cuda_cma_addr_t *addr = &peer->addr;
    const uint64_t start            = find_process(addr->process.pid).start;
    uint64_t found;

    if (((start == 0) || (start == addr->start_time)) && has_ended(peer)) {
        return "there is no such process";
    }

    if ((start == 0) || (start != addr->start_time)) {
        return "the process has ended, or not to be seen";
    }

    if (!read_number(peer, &found)) {
        return "the kernel does not let this process read the other one's "
               "memory (kernel.yama.ptrace_scope, another user or namespace, "
               "or seccomp)";
    }

    return (found == addr->number) ? NULL : "it is another process";
}

/* Return whether it is the process of an address, for any of its interfaces */
static bool is_of(const uct_cuda_cma_peer_t *peer,
                  const uct_cuda_cma_addr_t *addr)
{
    return (peer->addr.process.pid == addr->process.pid) &&
           (peer->addr.process.pid_ns == addr->process.pid_ns) &&
           (peer->addr.start_time == addr->start_time) &&
           (peer->addr.place == addr->place) &&
           (peer->addr.number == addr->number);
}

/* Add a reference to the peer of an address, creating the peer at first use.
 * NULL: no memory */
static uct_cuda_cma_peer_t *peer_of(const uct_cuda_cma_addr_t *addr)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    uct_cuda_cma_peer_t *peer;

    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&peers.lock);
    LIST_FOREACH(peer, &peers.list, link)
    {
        if (is_of(peer, addr)) {
            ++peer->users;
            goto out;
        }
    }

    peer = calloc(1, sizeof(*peer));
    if (peer != NULL) {
        peer->addr  = *addr;
        peer->users = 1;
        /* opened before other checks, so that they are of this process */
        peer->pidfd = uct_cuda_file_keep(
                (int)syscall(SYS_pidfd_open, addr->process.pid, 0));
        LIST_INSERT_HEAD(&peers.list, peer, link);
    }

out:
    pthread_mutex_unlock(&peers.lock);
    return peer;
}

ucs_status_t uct_cuda_cma_peer_get(const uct_cuda_cma_addr_t *addr,
                                   uct_cuda_cma_peer_t **peer_p,
                                   const char **reason_p)
{
    uct_cuda_node_iface_addr_t self;
    uct_cuda_cma_peer_t *peer;
    const char *reason;

    peer = peer_of(addr);
    if (peer == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    uct_cuda_node_iface_addr_self(&self);
    reason = (self.pid_ns != addr->process.pid_ns) ? "another pid namespace" :
                                                     find_obstacle(peer);
    if (reason != NULL) {
        if (reason_p != NULL) {
            *reason_p = reason;
        }
        uct_cuda_cma_peer_put(peer);
        return UCS_ERR_UNREACHABLE;
    }

    *peer_p = peer;
    return UCS_OK;
}

uct_cuda_cma_peer_state_t
uct_cuda_cma_peer_state(const uct_cuda_cma_peer_t *peer)
{
    return has_ended(peer) ? UCT_CUDA_CMA_PEER_ENDED : find_image(peer);
}

pid_t uct_cuda_cma_peer_pid(const uct_cuda_cma_peer_t *peer)
{
    return peer->addr.process.pid;
}

void uct_cuda_cma_peer_hold(uct_cuda_cma_peer_t *peer)
{
    pthread_mutex_lock(&peers.lock);
    ++peer->users;
    pthread_mutex_unlock(&peers.lock);
}

void uct_cuda_cma_peer_put(uct_cuda_cma_peer_t *peer)
{
    pthread_mutex_lock(&peers.lock);
    if (--peer->users == 0) {
        LIST_REMOVE(peer, link);
        if (peer->pidfd >= 0) {
            close(peer->pidfd);
        }
        free(peer);
    }
    pthread_mutex_unlock(&peers.lock);
}

static ucs_status_t log_exit(const uct_cuda_cma_peer_t *peer, size_t length)
{
    uct_cuda_error("process %d has ended or executes another program; %zu "
                   "bytes were not copied",
                   peer->addr.process.pid, length);
    return UCS_ERR_CONNECTION_RESET;
}

/* Log why a copy failed, and return its status */
static ucs_status_t log_error(const uct_cuda_cma_peer_t *peer,
                              uint64_t address, size_t length, bool to_local,
                              int error)
{
    uct_cuda_error("cannot %s %zu bytes at %#lx of process %d: %s",
                   to_local ? "read" : "write", length, (unsigned long)address,
                   peer->addr.process.pid, strerror(error));
    return (error == ESRCH)  ? UCS_ERR_CONNECTION_RESET :
           (error == EFAULT) ? UCS_ERR_INVALID_ADDR :
                               UCS_ERR_IO_ERROR;
}

/* Copy as much as the kernel copies at a time, with the image checked. Data
 * read is the peer's if its image is unchanged afterwards; before a write a
 * short gap cannot be closed. */
static uct_cuda_cma_peer_state_t
copy_checked(const uct_cuda_cma_peer_t *peer, void *local, uint64_t address,
             size_t length, bool to_local, ssize_t *done_p)
{
    uct_cuda_cma_peer_state_t state;
    int error;

    *done_p = -1;
    if (has_ended(peer)) {
        return UCT_CUDA_CMA_PEER_ENDED;
    }

    state = to_local ? UCT_CUDA_CMA_PEER_THERE : find_image(peer);
    if (state == UCT_CUDA_CMA_PEER_THERE) {
        *done_p = copy_some(peer, local, address, length, to_local);
        error   = (*done_p == 0) ? EFAULT : errno;
        if (to_local || (*done_p <= 0)) {
            state = find_image(peer);
        }
        errno = (*done_p > 0) ? errno : error;
    }

    return state;
}

ucs_status_t uct_cuda_cma_peer_copy(void *arg, void *local, uint64_t address,
                                    size_t length, bool to_local)
{
    const uct_cuda_cma_peer_t *peer = arg;
    size_t offset                   = 0;
    uct_cuda_cma_peer_state_t state;
    ssize_t done;

    while (offset < length) {
        state = copy_checked(peer, (char*)local + offset, address + offset,
                             length - offset, to_local, &done);
        if (uct_cuda_cma_peer_is_lost(state)) {
            return log_exit(peer, length - offset);
        }

        if ((state != UCT_CUDA_CMA_PEER_THERE) || (done <= 0)) {
            return log_error(peer, address + offset, length - offset,
                             to_local, errno);
        }

        offset += (size_t)done;
    }

    return UCS_OK;
}
