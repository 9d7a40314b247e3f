/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests and answers are one message each. A request has the descriptor on
 * which it is answered. */
#include <uct/cuda/node/descriptors.h>

#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/retry.h>

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>


/* Time that a peer waits for an exporter, which may be stopped (ns) */
#define WAIT_NS (2000ul * 1000 * 1000)


typedef struct {
    uct_cuda_node_invalidation_t notice; /* of the descriptor asked for */
    uint64_t                     base;   /* of the handle asked for */
    uint64_t                     length; /* 0: asks for a descriptor */
} request_t;

typedef union {
    char           bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
} control_t;


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
        msg.msg_controllen = sizeof(control.bytes);
        header             = CMSG_FIRSTHDR(&msg);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type  = SCM_RIGHTS;
        header->cmsg_len   = CMSG_LEN(sizeof(fd));
        memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    }

    sent = UCT_CUDA_RETRY(sendmsg(socket, &msg, MSG_DONTWAIT | MSG_NOSIGNAL));
    return sent == (ssize_t)size;
}

/* Keep the first descriptor and close others: the buffer has room for two */
static void take_first(const struct cmsghdr *header, int *fd_p)
{
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    size_t i;
    int fd;

    for (i = 0; i < count; ++i) {
        memcpy(&fd, CMSG_DATA(header) + (i * sizeof(fd)), sizeof(fd));
        if (i == 0) {
            *fd_p = fd;
        } else {
            close(fd);
        }
    }
}

/* Receive a message. @return Its bytes; 0: the other end is closed; -1: none
 * yet. *fd_p is -1 or a descriptor owned by the caller. */
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

    header = CMSG_FIRSTHDR(&msg);
    if ((header != NULL) && (header->cmsg_level == SOL_SOCKET) &&
        (header->cmsg_type == SCM_RIGHTS)) {
        take_first(header, fd_p);
    }

    return received;
}

static bool open_pair(int ends[2])
{
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0;
}

bool uct_cuda_node_descriptors_open(uct_cuda_node_descriptors_t *socket)
{
    int ends[2];

    if (!open_pair(ends)) {
        return false;
    }

    socket->own   = uct_cuda_file_of(ends[0]);
    socket->peers = uct_cuda_file_of(ends[1]);
    return true;
}

void uct_cuda_node_descriptors_close(uct_cuda_node_descriptors_t *socket)
{
    uct_cuda_file_close(&socket->own);
    uct_cuda_file_close(&socket->peers);
}

void uct_cuda_node_descriptors_wait(const uct_cuda_node_descriptors_t *socket,
                                    unsigned milliseconds)
{
    struct pollfd poll_fd = {
        .fd     = uct_cuda_file_is_there(&socket->own) ? socket->own.fd : -1,
        .events = POLLIN
    };

    (void)poll(&poll_fd, 1, (int)milliseconds);
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

    fd = make(&request->notice);
    if (fd >= 0) {
        (void)send_with(reply, "", 1, fd);
        close(fd);
    }
}

void uct_cuda_node_descriptors_answer(const uct_cuda_node_descriptors_t *socket,
                                      uct_cuda_node_make_t make,
                                      uct_cuda_node_renew_t renew)
{
    request_t request;
    ssize_t received;
    int reply;

    while (uct_cuda_file_is_there(&socket->own)) {
        received = receive_with(socket->own.fd, &request, sizeof(request),
                                &reply);
        if (received == (ssize_t)sizeof(request)) {
            if (reply >= 0) {
                answer_one(&request, reply, make, renew);
            }
        } else if (reply < 0) {
            return;
        }
        if (reply >= 0) {
            close(reply);
        }
    }
}

void uct_cuda_node_descriptors_wake(const uct_cuda_node_descriptors_t *socket)
{
    static const request_t nothing;

    if (uct_cuda_file_is_there(&socket->peers)) {
        (void)send_with(socket->peers.fd, &nothing, sizeof(nothing), -1);
    }
}

static int milliseconds_until(uint64_t end)
{
    const uint64_t now = uct_cuda_now_ns();

    return (now < end) ? (int)((end - now) / 1000000) + 1 : 0;
}

/* Wait until the exporter answers or closes its end of the socket, at most
 * WAIT_NS. The caller finds out by receiving. */
static void wait_for_answer(int socket)
{
    struct pollfd poll_fd = {.fd = socket, .events = POLLIN};
    const uint64_t end    = uct_cuda_now_ns() + WAIT_NS;

    (void)UCT_CUDA_RETRY(poll(&poll_fd, 1, milliseconds_until(end)));
}

/* Send a request and wait. @return Bytes of the answer; 0: the exporter refused
 * or ended; -1: it could not be asked, or did not answer in time. *fd_p is -1
 * or a descriptor owned by the caller. */
static ssize_t ask(int peers_end, uint64_t inode, const request_t *request,
                   void *data, size_t size, int *fd_p)
{
    ssize_t received = -1;
    bool is_sent;
    int reply[2];

    *fd_p = -1;
    if ((uct_cuda_file_inode(peers_end) != inode) || !open_pair(reply)) {
        return -1;
    }

    is_sent = send_with(peers_end, request, sizeof(*request), reply[1]);
    close(reply[1]);
    if (is_sent) {
        wait_for_answer(reply[0]);
        received = receive_with(reply[0], data, size, fd_p);
    }

    close(reply[0]);
    return received;
}

int uct_cuda_node_descriptors_ask(int peers_end, uint64_t inode,
                                  const uct_cuda_node_invalidation_t *notice)
{
    const request_t request = {.notice = *notice};
    char byte;
    int fd;

    (void)ask(peers_end, inode, &request, &byte, sizeof(byte), &fd);
    return fd;
}

ucs_status_t
uct_cuda_node_descriptors_ask_handle(int peers_end, uint64_t inode,
                                     uint64_t base, uint64_t length,
                                     void *answer, size_t size)
{
    const request_t request = {.base = base, .length = length};
    ssize_t received;
    int fd;

    received = ask(peers_end, inode, &request, answer, size, &fd);
    if (fd >= 0) {
        close(fd);
    }

    return (received == (ssize_t)size) ? UCS_OK :
           (received < 0)              ? UCS_ERR_NOT_CONNECTED :
                                         UCS_ERR_UNREACHABLE;
}
