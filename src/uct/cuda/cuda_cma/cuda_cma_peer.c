/* SPDX-License-Identifier: BSD-3-Clause */
/* Who a peer is, and its memory. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <uct/cuda/cuda_cma/cuda_cma_peer.h>

#include <uct/cuda/base/log.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Which libcs before 2.36 do not have; the same for all processors */
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif


struct uct_cuda_cma_peer {
    uct_cuda_cma_addr_t addr;
    int                 pidfd; /* -1: a kernel before 5.3 */
    unsigned            users;
};


/* What peers read: a word of this process that no other one has there */
static uint64_t number;


/* Field 22 of /proc/PID/stat, or 0. The name of the
 * program, in brackets, may hold blanks and brackets. */
static uint64_t find_start_time(int32_t pid)
{
    unsigned long long start = 0;
    char path[64], text[1024];
    const char *field;
    ssize_t length;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }

    length = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[(length > 0) ? length : 0] = '\0';
    field = strrchr(text, ')');
    if ((field == NULL) ||
        (sscanf(field + 1, " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                "%*s %*s %*s %*s %*s %*s %*s %llu", &start) != 1)) {
        return 0;
    }

    return start;
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
    addr->start_time    = find_start_time(addr->process.pid);
    addr->place         = (uintptr_t)&number;
    addr->number        = __atomic_load_n(&number, __ATOMIC_RELAXED);
}

/* Without a pidfd, what cannot be seen is left to the copies to find out */
static bool is_alive(const uct_cuda_cma_peer_t *peer)
{
    const uct_cuda_cma_addr_t *addr = &peer->addr;
    struct pollfd poll_fd           = {.fd = peer->pidfd, .events = POLLIN};
    uint64_t start_time;

    if (peer->pidfd >= 0) {
        /* It becomes readable when its process ends */
        return poll(&poll_fd, 1, 0) == 0;
    }

    start_time = find_start_time(addr->process.pid);
    return (start_time == 0) || (start_time == addr->start_time);
}

static ssize_t copy_some(const uct_cuda_cma_peer_t *peer, void *local,
                         uint64_t address, size_t length, bool to_local)
{
    const struct iovec here  = {.iov_base = local, .iov_len = length};
    const struct iovec there = {.iov_base = (void*)(uintptr_t)address,
                                .iov_len  = length};
    const pid_t pid          = peer->addr.process.pid;

    return to_local ? process_vm_readv(pid, &here, 1, &there, 1, 0) :
                      process_vm_writev(pid, &here, 1, &there, 1, 0);
}

/* The peer's word, or false with errno */
static bool read_number(const uct_cuda_cma_peer_t *peer, uint64_t *number_p)
{
    const ssize_t done = copy_some(peer, number_p, peer->addr.place,
                                   sizeof(*number_p), true);

    if (done >= 0) {
        errno = EFAULT; /* where it is not all there */
    }
    return done == sizeof(*number_p);
}

/* Is the image that gave its address still there? By execve() another one has
 * its process number, start time and descriptors, but not its memory. */
static bool is_itself(const uct_cuda_cma_peer_t *peer)
{
    uint64_t found;

    return read_number(peer, &found) && (found == peer->addr.number);
}

/* NULL: it is the process of the address, and its memory may be read */
static const char *find_obstacle(const uct_cuda_cma_peer_t *peer)
{
    const uct_cuda_cma_addr_t *addr = &peer->addr;
    uint64_t found;

    if ((addr->start_time == 0) ||
        (find_start_time(addr->process.pid) != addr->start_time)) {
        return "the process is gone, or not to be seen";
    }

    if (!read_number(peer, &found)) {
        return "the kernel does not let this process read the other one's "
               "memory (kernel.yama.ptrace_scope, another user or namespace, "
               "or seccomp)";
    }

    return (found == addr->number) ? NULL : "it is another process";
}

ucs_status_t uct_cuda_cma_peer_get(const uct_cuda_cma_addr_t *addr,
                                   uct_cuda_cma_peer_t **peer_p,
                                   const char **reason_p)
{
    uct_cuda_node_iface_addr_t self;
    uct_cuda_cma_peer_t *peer;
    const char *reason;

    peer = calloc(1, sizeof(*peer));
    if (peer == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    uct_cuda_node_iface_addr_self(&self);
    peer->addr  = *addr;
    peer->users = 1;

    /* Opened before it is looked at: what it says is of this process then */
    peer->pidfd = (int)syscall(SYS_pidfd_open, addr->process.pid, 0);
    reason      = (self.pid_ns != addr->process.pid_ns) ?
                          "another pid namespace" :
                  ((peer->pidfd < 0) && (errno != ENOSYS) && (errno != EPERM)) ?
                          "there is no such process" :
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

bool uct_cuda_cma_peer_is_gone(const uct_cuda_cma_peer_t *peer)
{
    uint64_t found;

    if (!is_alive(peer)) {
        return true;
    }

    return read_number(peer, &found) ? (found != peer->addr.number) :
                                       ((errno == EFAULT) || (errno == ESRCH));
}

pid_t uct_cuda_cma_peer_pid(const uct_cuda_cma_peer_t *peer)
{
    return peer->addr.process.pid;
}

void uct_cuda_cma_peer_hold(uct_cuda_cma_peer_t *peer)
{
    __atomic_fetch_add(&peer->users, 1, __ATOMIC_RELAXED);
}

void uct_cuda_cma_peer_put(uct_cuda_cma_peer_t *peer)
{
    if (__atomic_sub_fetch(&peer->users, 1, __ATOMIC_ACQ_REL) > 0) {
        return;
    }

    if (peer->pidfd >= 0) {
        close(peer->pidfd);
    }
    free(peer);
}

static ucs_status_t tell_gone(const uct_cuda_cma_peer_t *peer, size_t length)
{
    uct_cuda_error("process %d is gone, or another program by now, with %zu "
                   "bytes to be copied",
                   peer->addr.process.pid, length);
    return UCS_ERR_CONNECTION_RESET;
}

/* The kernel copies all of a call to or from one image. What was read is the
 * peer's if its image is still there afterwards; between a look and a write
 * there is a moment that nothing closes. */
ucs_status_t uct_cuda_cma_peer_copy(void *arg, void *local, uint64_t address,
                                    size_t length, bool to_local)
{
    const uct_cuda_cma_peer_t *peer = arg;
    size_t offset                   = 0;
    ssize_t done;
    int error;

    while (offset < length) {
        if (!is_alive(peer) || (!to_local && !is_itself(peer))) {
            return tell_gone(peer, length - offset);
        }

        done = copy_some(peer, (char*)local + offset, address + offset,
                         length - offset, to_local);
        if (done <= 0) {
            error = (done < 0) ? errno : EFAULT;
            if ((error == EFAULT) && !is_itself(peer)) {
                return tell_gone(peer, length - offset);
            }

            uct_cuda_error("cannot %s %zu bytes at %#lx of process %d: %s",
                           to_local ? "read" : "write", length - offset,
                           (unsigned long)(address + offset),
                           peer->addr.process.pid, strerror(error));
            return (error == ESRCH)  ? UCS_ERR_CONNECTION_RESET :
                   (error == EFAULT) ? UCS_ERR_INVALID_ADDR :
                                       UCS_ERR_IO_ERROR;
        }

        offset += (size_t)done;
    }

    return (to_local && !is_itself(peer)) ? tell_gone(peer, length) : UCS_OK;
}
