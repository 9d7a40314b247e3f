/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests and answers are one message each. A request contains a descriptor:
 * the exporter sends its answer there. */
#include <uct/cuda/node/descriptors.h>

#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/retry.h>
#include <uct/cuda/node/process.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>


/* Time that a peer waits for an exporter, which may be stopped (ns) */
#define WAIT_NS (2000ul * 1000 * 1000)

/* Time in which a peer with a fallback does not wait again for an exporter that
 * did not answer (ns) */
#define SILENT_NS (10ul * 1000 * 1000 * 1000)

/* Interval of requests during SILENT_NS, which find out whether the exporter
 * answers again, and the wait for each (ns) */
#define RETRY_NS (200ul * 1000 * 1000)
#define RETRY_WAIT_NS (20ul * 1000 * 1000)

/* Silent exporters remembered */
#define MAX_SILENT 16

/* Maximum requests answered in one call: any process may send to the named
 * socket, without end */
#define MAX_AT_ONCE 64

/* User that stands for all users without a number in a user namespace */
#define OVERFLOW_UID 65534


typedef struct {
    uct_cuda_node_invalidation_t notice; /* of the requested descriptor */
    uint64_t                     base;   /* of the requested handle */
    uint64_t                     length; /* 0: for a descriptor; of the
                                            page, if the notice has no slot */
} request_t;

/* Ancillary data: a descriptor and the sender's user */
typedef union {
    char           bytes[CMSG_SPACE(sizeof(int)) +
                         CMSG_SPACE(sizeof(struct ucred))];
    struct cmsghdr align;
} control_t;


/* Exporters that did not answer in time, by the random number of their
 * invalidation page: a new process of the same PID has another one. An answer
 * removes the exporter. */
static struct {
    pthread_mutex_t lock; /* takes no other lock */
    unsigned        next;
    struct {
        uint32_t page_id;
        uint64_t end;
        uint64_t retry; /* time of the next request */
    } list[MAX_SILENT];
} silent = {.lock = PTHREAD_MUTEX_INITIALIZER};


/* Send a message with a descriptor or without one (-1). Does not wait. */
static bool
send_with(int socket, const void *data, size_t size, int fd)
{
    struct iovec iov  = {.iov_base = (void*)data, .iov_len = size};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    control_t control;
    struct cmsghdr *header;
    ssize_t sent;

    if (fd >= 0) {
        memset(&control, 0, sizeof(control));
        msg.msg_control    = control.bytes;
        msg.msg_controllen = CMSG_SPACE(sizeof(fd));
        header             = CMSG_FIRSTHDR(&msg);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type  = SCM_RIGHTS;
        header->cmsg_len   = CMSG_LEN(sizeof(fd));
        memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    }

    sent = UCT_CUDA_RETRY(sendmsg(socket, &msg, MSG_DONTWAIT | MSG_NOSIGNAL));
    return sent == (ssize_t)size;
}

/* Keep the first descriptor and close others: the buffer is large enough for
 * more than one */
static void take_first(const struct cmsghdr *header, int *fd_p)
{
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    size_t i;
    int fd;

    for (i = 0; i < count; ++i) {
        memcpy(&fd, CMSG_DATA(header) + (i * sizeof(fd)), sizeof(fd));
        if ((i == 0) && (*fd_p < 0)) {
            *fd_p = fd;
        } else {
            close(fd);
        }
    }
}

/* Return whether each user has a number in this user namespace */
static bool has_all_users(void)
{
    unsigned first, outside, count;
    char text[64];

    (void)uct_cuda_file_text("/proc/self/uid_map", text, sizeof(text));
    return (sscanf(text, "%u %u %u", &first, &outside, &count) == 3) &&
           (first == 0) && (count == UINT32_MAX);
}

/* Return whether a message is from a process of this user */
static bool is_from_user(const struct cmsghdr *header)
{
    struct ucred sender;

    memcpy(&sender, CMSG_DATA(header), sizeof(sender));
    return (sender.uid == geteuid()) &&
           ((sender.uid != OVERFLOW_UID) || has_all_users());
}

/* Receive a message. @return Its bytes; 0: the other end is closed, or another
 * user has sent it; -1: none yet. *fd_p is a descriptor owned by the caller, or
 * -1; errno is EMFILE if there was one, but this process has none left for
 * it. */
static ssize_t receive_with(int socket, void *data, size_t size, int *fd_p)
{
    struct iovec iov  = {.iov_base = data, .iov_len = size};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    control_t control;
    struct cmsghdr *header;
    ssize_t received;

    *fd_p              = -1;
    msg.msg_control    = control.bytes;
    msg.msg_controllen = sizeof(control.bytes);
    received           = UCT_CUDA_RETRY(recvmsg(socket, &msg, MSG_DONTWAIT |
                                                    MSG_CMSG_CLOEXEC));
    if (received < 0) {
        return received;
    }

    for (header = CMSG_FIRSTHDR(&msg); header != NULL;
         header = CMSG_NXTHDR(&msg, header)) {
        if (header->cmsg_level != SOL_SOCKET) {
            continue;
        }

        if (header->cmsg_type == SCM_RIGHTS) {
            take_first(header, fd_p);
        } else if ((header->cmsg_type == SCM_CREDENTIALS) &&
                   !is_from_user(header)) {
            received = 0;
        }
    }

    if ((msg.msg_flags & MSG_CTRUNC) && (*fd_p < 0)) {
        errno = EMFILE;
    }

    return received;
}

/* Let the kernel add the sender's user to each message */
static bool set_credentials(int socket)
{
    const int yes = 1;

    return setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes)) == 0;
}

static bool open_pair(int ends[2])
{
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0;
}

/* Get the address of a process's named socket: it begins with a zero, and is no
 * file. @return Its length */
static socklen_t name_of(uint64_t pid_ns, int32_t pid,
                         struct sockaddr_un *address)
{
    int length;

    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    length = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1,
                      "ucx-mp-descriptors-%lx-%d", (unsigned long)pid_ns, pid);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                       (size_t)length);
}

/* Create this process's named socket. -1: none, or the name is taken */
static int open_named(void)
{
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    uct_cuda_node_iface_addr_t self;
    struct sockaddr_un address;
    socklen_t length;

    uct_cuda_node_iface_addr_self(&self);
    length = name_of(self.pid_ns, self.pid, &address);
    if ((fd >= 0) &&
        ((self.pid_ns == 0) || !set_credentials(fd) ||
         (bind(fd, (const struct sockaddr*)&address, length) != 0))) {
        close(fd);
        return -1;
    }

    return fd;
}

bool uct_cuda_node_descriptors_open(uct_cuda_node_descriptors_t *socket)
{
    int ends[2];

    if (!open_pair(ends)) {
        return false;
    }

    socket->own   = uct_cuda_file_of(uct_cuda_file_keep(ends[0]));
    socket->peers = uct_cuda_file_of(uct_cuda_file_keep(ends[1]));
    socket->named = uct_cuda_file_of(uct_cuda_file_keep(open_named()));
    if ((socket->own.fd < 0) || (socket->peers.fd < 0)) {
        uct_cuda_node_descriptors_close(socket);
        return false;
    }

    return true;
}

void uct_cuda_node_descriptors_close(uct_cuda_node_descriptors_t *socket)
{
    uct_cuda_file_close(&socket->own);
    uct_cuda_file_close(&socket->peers);
    uct_cuda_file_close(&socket->named);
}

/* Return a descriptor to poll; -1: poll() passes it over */
static int fd_of(const uct_cuda_file_t *file)
{
    return uct_cuda_file_is_valid(file) ? file->fd : -1;
}

void uct_cuda_node_descriptors_wait(const uct_cuda_node_descriptors_t *socket,
                                    unsigned milliseconds)
{
    struct pollfd poll_fds[] = {
        {.fd = fd_of(&socket->own), .events = POLLIN},
        {.fd = fd_of(&socket->named), .events = POLLIN}
    };

    (void)poll(poll_fds, 2, (int)milliseconds);
}

static bool is_for_page(const request_t *request)
{
    return (request->length == 0) &&
           (request->notice.slot == UCT_CUDA_NODE_INVALIDATION_NO_SLOT);
}

static void answer_one(const request_t *request, int reply,
                       uct_cuda_node_make_t make, uct_cuda_node_renew_t renew)
{
    uint64_t handle[UCT_CUDA_NODE_MAX_ANSWER / sizeof(uint64_t)];
    size_t size;
    int fd;

    if (request->length > 0) {
        size = renew(request->base, request->length, handle);
        if (size > 0) {
            (void)send_with(reply, handle, size, -1);
        }
        return;
    }

    if (is_for_page(request)) {
        (void)send_with(reply, "", 1, uct_cuda_node_invalidation_page());
        return;
    }

    fd = make(&request->notice);
    if (fd >= 0) {
        (void)send_with(reply, "", 1, fd);
        close(fd);
    }
}

/* Answer requests received by one of the sockets. @param by_name  Its
 * requests may be for another process that had the same name, or from a process
 * that has no key of this one: they show the page's number. */
static void
answer_by(const uct_cuda_file_t *socket, bool by_name,
          uct_cuda_node_make_t make, uct_cuda_node_renew_t renew)
{
    unsigned left = uct_cuda_file_is_valid(socket) ? MAX_AT_ONCE : 0;
    request_t request;
    ssize_t received;
    int reply;

    for (; left > 0; --left) {
        received = receive_with(socket->fd, &request, sizeof(request), &reply);
        if (received == (ssize_t)sizeof(request)) {
            if ((reply >= 0) &&
                (!by_name ||
                 uct_cuda_node_invalidation_is_own(&request.notice))) {
                answer_one(&request, reply, make, renew);
            }
        } else if ((reply < 0) && (!by_name || (received < 0))) {
            return;
        }
        if (reply >= 0) {
            close(reply);
        }
    }
}

void uct_cuda_node_descriptors_answer(const uct_cuda_node_descriptors_t *socket,
                                      uct_cuda_node_make_t make,
                                      uct_cuda_node_renew_t renew)
{
    answer_by(&socket->own, false, make, renew);
    answer_by(&socket->named, true, make, renew);
}

void uct_cuda_node_descriptors_wake(const uct_cuda_node_descriptors_t *socket)
{
    static const request_t nothing;

    if (uct_cuda_file_is_valid(&socket->peers)) {
        (void)send_with(socket->peers.fd, &nothing, sizeof(nothing), -1);
    }
}

/* Wait until the exporter answers or closes its end of the socket, or until
 * the time is over. The caller finds out by receiving. */
static void wait_for_answer(int socket, uint64_t end)
{
    struct pollfd poll_fd = {.fd = socket, .events = POLLIN};

    (void)UCT_CUDA_RETRY(poll(&poll_fd, 1, uct_cuda_ms_until(end)));
}

/* Return whether a socket is connected to a named one; otherwise it is a
 * duplicate of a peer end */
static bool is_named(int socket)
{
    int type         = 0;
    socklen_t length = sizeof(type);

    return (getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &length) == 0) &&
           (type == SOCK_DGRAM);
}

/* Send a request. A named socket's queue is short, and many peers may send at
 * the same time: wait for room until the time is over. */
static bool send_request(int peers_end, const request_t *request, int reply,
                         uint64_t end)
{
    while (!send_with(peers_end, request, sizeof(*request), reply)) {
        if ((errno != EAGAIN) || (uct_cuda_now_ns() >= end)) {
            return false;
        }

        uct_cuda_sleep_ns(1000000);
    }

    return true;
}

/* Return the number of an exporter that is silent now; MAX_SILENT: it is not.
 * Call with the lock held. */
static unsigned find_silent(uint32_t page_id, uint64_t now)
{
    unsigned i = 0;

    while ((i < MAX_SILENT) && ((silent.list[i].page_id != page_id) ||
                                (now >= silent.list[i].end))) {
        ++i;
    }

    return i;
}

/* Return the time to wait for an exporter; 0: send no request */
static uint64_t get_wait(uint32_t page_id, bool has_fallback)
{
    const uint64_t now = uct_cuda_now_ns();
    uint64_t wait      = WAIT_NS;
    unsigned i;

    if (!has_fallback) {
        return wait;
    }

    pthread_mutex_lock(&silent.lock);
    i = find_silent(page_id, now);
    if (i < MAX_SILENT) {
        wait = (now < silent.list[i].retry) ? 0 : RETRY_WAIT_NS;
        if (wait > 0) {
            silent.list[i].retry = now + RETRY_NS;
        }
    }
    pthread_mutex_unlock(&silent.lock);
    return wait;
}

static void note_answer(uint32_t page_id)
{
    unsigned i;

    pthread_mutex_lock(&silent.lock);
    i = find_silent(page_id, uct_cuda_now_ns());
    if (i < MAX_SILENT) {
        silent.list[i].end = 0;
    }
    pthread_mutex_unlock(&silent.lock);
}

static void note_silent(uint32_t page_id)
{
    const uint64_t now = uct_cuda_now_ns();

    pthread_mutex_lock(&silent.lock);
    if (find_silent(page_id, now) == MAX_SILENT) {
        silent.list[silent.next].page_id = page_id;
        silent.list[silent.next].end     = now + SILENT_NS;
        silent.list[silent.next].retry   = now + RETRY_NS;
        silent.next                      = (silent.next + 1) % MAX_SILENT;
    }
    pthread_mutex_unlock(&silent.lock);
}

/* Send a request and wait for the answer, @a wait ns in all. @return Bytes of
 * the answer; 0: the exporter refused or ended; -1: no connection, or no answer
 * in time. *fd_p is -1 or a descriptor owned by the caller. */
static ssize_t
exchange(int peers_end, uint64_t inode, const request_t *request,
         uint64_t wait, void *data, size_t size, int *fd_p)
{
    const uint64_t end = uct_cuda_now_ns() + wait;
    ssize_t received   = -1;
    bool is_sent;
    int reply[2];

    *fd_p = -1;
    if ((uct_cuda_file_inode(peers_end) != inode) || !open_pair(reply)) {
        return -1;
    }

    /* another user's process may have taken the name */
    is_sent = (!is_named(peers_end) || set_credentials(reply[0])) &&
              send_request(peers_end, request, reply[1], end);
    close(reply[1]);
    if (is_sent) {
        wait_for_answer(reply[0], end);
        received = receive_with(reply[0], data, size, fd_p);
    }

    close(reply[0]);
    if (received >= 0) {
        note_answer(request->notice.page_id);
    } else if (uct_cuda_now_ns() >= end) {
        note_silent(request->notice.page_id);
    }

    return received;
}

int uct_cuda_node_descriptors_connect(uint64_t pid_ns, int32_t pid)
{
    struct sockaddr_un address;
    const socklen_t length = name_of(pid_ns, pid, &address);
    const int fd           = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if ((fd >= 0) &&
        (connect(fd, (const struct sockaddr*)&address, length) != 0)) {
        close(fd);
        return -1;
    }

    return fd;
}

int uct_cuda_node_descriptors_ask_page(uint64_t pid_ns, int32_t pid,
                                       uint32_t page_id)
{
    const uct_cuda_node_invalidation_t page = {
        .page_id = page_id,
        .slot    = UCT_CUDA_NODE_INVALIDATION_NO_SLOT
    };
    const int server = uct_cuda_node_descriptors_connect(pid_ns, pid);
    int fd           = -1;

    if (server >= 0) {
        fd = uct_cuda_node_descriptors_ask(server, uct_cuda_file_inode(server),
                                           &page, true);
        close(server);
    }

    return fd;
}

int uct_cuda_node_descriptors_ask(int peers_end, uint64_t inode,
                                  const uct_cuda_node_invalidation_t *notice,
                                  bool has_fallback)
{
    const request_t request = {.notice = *notice};
    const uint64_t wait     = get_wait(notice->page_id, has_fallback);
    char byte;
    int fd;

    if (wait == 0) {
        return -1;
    }

    if ((exchange(peers_end, inode, &request, wait, &byte, sizeof(byte), &fd) <=
         0) &&
        (fd >= 0)) {
        close(fd);
        return -1;
    }

    return fd;
}

ucs_status_t
uct_cuda_node_descriptors_ask_handle(int peers_end, uint64_t inode,
                                     const uct_cuda_node_invalidation_t *notice,
                                     uint64_t base, uint64_t length,
                                     bool has_fallback, void *answer,
                                     size_t size)
{
    const request_t request = {.notice = *notice,
                               .base   = base,
                               .length = length};
    const uint64_t wait     = get_wait(notice->page_id, has_fallback);
    ssize_t received;
    int fd;

    if (wait == 0) {
        return UCS_ERR_NOT_CONNECTED;
    }

    received = exchange(peers_end, inode, &request, wait, answer, size, &fd);
    if (fd >= 0) {
        close(fd);
    }

    return (received == (ssize_t)size) ? UCS_OK :
           (received < 0)              ? UCS_ERR_NOT_CONNECTED :
                                         UCS_ERR_UNREACHABLE;
}
