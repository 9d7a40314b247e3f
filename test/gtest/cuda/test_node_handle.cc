/* SPDX-License-Identifier: BSD-3-Clause */
/* The process whose descriptor stands for another process's cuMemCreate
   memory. */
#include "fake_driver.h"
#include "process.h"

extern "C" {
#include <uct/cuda/node/descriptors.h>
#include <uct/cuda/node/handle.h>
#include <uct/cuda/node/mappings.h>
#include <uct/cuda/node/process.h>
#include <uct/cuda/node/rkey.h>
}

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <map>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

static char imported[16]; /* target of the descriptor */
static unsigned imports;

class IpcHandle : public ::testing::Test
{
protected:
    FakeDriver driver;
    uct_cuda_node_handle_t handle;
    pid_t child = -1;

    /* A peer, and one of its descriptors, whose number is another file in this
       process */
    void SetUp() override
    {
        uct_cuda_node_iface_addr_t self;

        imports = 0;
        memset(imported, 0, sizeof(imported));
        driver.table.cuMemImportFromShareableHandle =
                [](CUmemGenericAllocationHandle *allocation, void *fd,
                   CUmemAllocationHandleType) {
                    ++imports;
                    *allocation = 1;
                    return (pread((int)(intptr_t)fd, imported,
                                  sizeof(imported) - 1, 0) > 0) ?
                                   CUDA_SUCCESS :
                                   CUDA_ERROR_INVALID_VALUE;
                };
        driver.table.cuMemAddressReserve =
                [](CUdeviceptr *address, size_t, size_t, CUdeviceptr,
                   unsigned long long) {
                    *address = 0x70000000;
                    return CUDA_SUCCESS;
                };
        driver.table.cuMemAddressFree = [](CUdeviceptr, size_t) {
            return CUDA_SUCCESS;
        };
        driver.table.cuMemMap = [](CUdeviceptr, size_t, size_t,
                                   CUmemGenericAllocationHandle,
                                   unsigned long long) { return CUDA_SUCCESS; };
        driver.table.cuMemSetAccess = [](CUdeviceptr, size_t,
                                         const CUmemAccessDesc *,
                                         size_t) { return CUDA_SUCCESS; };
        driver.table.cuMemRelease = [](CUmemGenericAllocationHandle) {
            return CUDA_SUCCESS;
        };

        memset(&handle, 0, sizeof(handle));
        handle.type   = UCT_CUDA_NODE_HANDLE_FD;
        handle.base   = 0x50000000;
        handle.length = 4096;
        handle.os.fd  = memfd_create("own", MFD_CLOEXEC);
        ASSERT_EQ(3, write(handle.os.fd, "own", 3));

        child = spawn([this] {
            int fd = memfd_create("peer", MFD_CLOEXEC);

            return (write(fd, "peer", 4) == 4) &&
                   (dup2(fd, handle.os.fd) >= 0);
        });

        uct_cuda_node_iface_addr_self(&self);
        handle.pid     = child;
        handle.pid_ns  = self.pid_ns;
        handle.machine = uct_cuda_node_machine_self();
    }

    void TearDown() override
    {
        reap(child);
        close(handle.os.fd);
    }

    ucs_status_t open()
    {
        CUdeviceptr mapped;

        return uct_cuda_node_handle_open(&handle, 0, &mapped);
    }

    bool may_fetch_any()
    {
        return may_fetch(0);
    }
    bool may_fetch()
    {
        return may_fetch(handle.os.fd);
    }

    /* Return whether the kernel lets this process fetch another's
       descriptors. */
    bool may_fetch(int number)
    {
        int pidfd = (int)syscall(SYS_pidfd_open, child, 0);
        int fd    = (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);

        close(pidfd);
        close(fd);
        return fd >= 0;
    }
};

/* An exporter with few descriptors, or none: its page has a number, or a socket
   for requests */
class IpcDescriptor : public IpcHandle
{
protected:
    /* From LARGER on: asked, and answered with another handle than the same */
    enum { OVER = 'o', SHOWN = 's', ASKED = 'a', SILENT = 'q', OTHER = 'x',
           LARGER = 'l', SHORTER = '<', OTHER_GPU = 'g', NOT_MAPPED = 'n',
           CUT_OFF = 'c', NONE = '-', PIECES = 'p', UNNAMED = 'u',
           EXECUTED = 'e', REMAPPED = 'r' };

    int control[2];

    void SetUp() override
    {
        IpcHandle::SetUp();
        reap(child);
        ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, control));
        child = fork();
        if (child == 0) {
            export_as_set();
            _exit(0);
        }
        close(control[1]);
        ASSERT_EQ((ssize_t)sizeof(handle.notice),
                  read(control[0], &handle.notice, sizeof(handle.notice)));
        handle.pid   = child;
        number       = handle.os.fd;
        handle.os.fd = -1;
    }

    void TearDown() override
    {
        uct_cuda_node_invalidation_view_purge(handle.pid_ns, handle.pid);
        close(control[0]);
        handle.os.fd = number;
        IpcHandle::TearDown();
    }

    static int make(const uct_cuda_node_invalidation_t *notice)
    {
        uct_cuda_node_handle_t pieces[2];
        int fd = memfd_create("asked", MFD_CLOEXEC);

        if (kind == PIECES) {
            for (int i = 0; i < 2; ++i) {
                pieces[i]        = current;
                pieces[i].base   = 0x50000000 + (i * 0x10000);
                pieces[i].length = 0x10000;
                pieces[i].os.fd  = -1;
            }
            return (write(fd, pieces, sizeof(pieces)) ==
                    (ssize_t)sizeof(pieces)) ? fd : -1;
        }
        return ((notice->slot == 5) &&
                (notice->generation == current.notice.generation) &&
                (write(fd, "asked", 5) == 5)) ? fd : -1;
    }

    /* The handle is a range, whose pieces are at no address of its process */
    void current_range(unsigned count)
    {
        handle.type              = UCT_CUDA_NODE_HANDLE_RANGE;
        handle.length            = count * 0x10000;
        handle.os.pieces.address = 0;
        handle.os.pieces.count   = count;
    }

    static void answer_with(int reply, int fd)
    {
        char byte = 0;

        send_with(reply, &byte, 1, fd);
    }

    static bool send_with(int socket, void *bytes, size_t size, int fd)
    {
        union {
            char bytes[CMSG_SPACE(sizeof(int))];
            struct cmsghdr header;
        } data            = {};
        struct iovec iov  = {bytes, size};
        struct msghdr msg = {};

        msg.msg_iov            = &iov;
        msg.msg_iovlen         = 1;
        msg.msg_control        = data.bytes;
        msg.msg_controllen     = sizeof(data.bytes);
        data.header.cmsg_level = SOL_SOCKET;
        data.header.cmsg_type  = SCM_RIGHTS;
        data.header.cmsg_len   = CMSG_LEN(sizeof(fd));
        memcpy(CMSG_DATA(&data.header), &fd, sizeof(fd));
        return sendmsg(socket, &msg, MSG_DONTWAIT) == (ssize_t)size;
    }

    static size_t renew(uint64_t base, uint64_t length, void *answer)
    {
        uct_cuda_node_handle_t now = current;

        if ((base != now.base) || (length != now.length) || (kind == NONE)) {
            return 0;
        }
        now.remaps  = 7;
        now.length += (kind == LARGER) ? 4096 : (kind == SHORTER) ? -4096 : 0;
        now.gpu[3] += (kind == OTHER_GPU);
        if (kind == NOT_MAPPED) {
            now.type = UCT_CUDA_NODE_HANDLE_LEGACY;
        }
        memcpy(answer, &now, sizeof(now));
        return sizeof(now) - (kind == CUT_OFF);
    }

    void export_as_set()
    {
        uct_cuda_node_invalidation_t notice;
        uct_cuda_node_iface_addr_t self;
        struct pollfd fds[3];
        uct_cuda_node_descriptors_t socket;
        int shown = -1;
        char what;

        uct_cuda_node_invalidation_begin(5, &notice);
        uct_cuda_node_iface_addr_self(&self);
        current        = handle;
        current.pid    = self.pid;
        current.pid_ns = self.pid_ns;
        current.notice = notice;
        uct_cuda_node_descriptors_open(&socket);
        fds[0] = {control[1], POLLIN, 0};
        fds[1] = {socket.own.fd, POLLIN, 0};
        fds[2] = {socket.named.fd, POLLIN, 0};
        if (write(control[1], &notice, sizeof(notice)) < 0) {
            return;
        }
        while (poll(fds, 3, -1) > 0) {
            if ((fds[1].revents | fds[2].revents) & POLLIN) {
                uct_cuda_node_descriptors_answer(&socket, make, renew);
            }
            if (fds[0].revents != 0) {
                if (read(control[1], &what, 1) != 1) {
                    return;
                }
                kind = what;
                if ((what == OVER) || (what == REMAPPED)) {
                    uct_cuda_node_invalidation_end(5);
                    current.notice.generation += (what == REMAPPED);
                }
                if (what == EXECUTED) {
                    become_other(notice.fd, shown);
                } else {
                    shown = (what == SHOWN) ? make(&notice) : -1;
                    uct_cuda_node_invalidation_set_fd(5, shown);
                }
                uct_cuda_node_invalidation_set_server(
                        (what == OTHER) ? control[1] :
                        ((what == SHOWN) || (what == SILENT) ||
                         (what == EXECUTED)) ? -1 : socket.peers.fd,
                        socket.peers.inode, what != UNNAMED);
                if (write(control[1], "", 1) != 1) {
                    return;
                }
            }
        }
    }

    /* As a program that is executed: it has another file under the number */
    static void become_other(int page, int number)
    {
        const int fd = memfd_create("other", 0);

        if ((write(fd, "other", 5) != 5) || (dup2(fd, number) < 0) ||
            (close(page) != 0)) {
            _exit(1);
        }
    }

    void tell(char what)
    {
        ASSERT_EQ(1, write(control[0], &what, 1));
        ASSERT_EQ(1, read(control[0], &what, 1));
    }

    ucs_status_t renew_handle()
    {
        uct_cuda_node_invalidation_view_t *view =
                uct_cuda_node_handle_view(&handle);
        const ucs_status_t status = uct_cuda_node_handle_renew(view, &handle);

        uct_cuda_node_invalidation_view_put(view);
        return status;
    }

    /* The exporter answers, and the driver maps what it shows */
    void begin()
    {
        driver.offer_handles();
        driver.table.cuMemUnmap = [](CUdeviceptr, size_t) {
            return CUDA_SUCCESS;
        };
        tell(ASKED);
    }

    void forget_peer()
    {
        uct_cuda_node_rkey_purge_peer(handle.pid_ns, handle.pid);
        uct_cuda_node_cache_purge_peer(handle.pid_ns, handle.pid);
    }

    ucs_status_t unpack()
    {
        uct_cuda_node_packed_rkey_t packed = {};
        uct_cuda_node_rkey_t *rkey;
        ucs_status_t status;

        packed.magic  = UCT_CUDA_NODE_PACKED_RKEY_MAGIC;
        packed.handle = handle;
        status        = uct_cuda_node_rkey_unpack(&packed, uct_cuda_end_none(),
                                                  &rkey);
        if (status == UCS_OK) {
            uct_cuda_node_rkey_destroy(rkey);
        }
        return status;
    }

    /* A key whose owner may have mapped other memory asks it */
    ucs_status_t update_key()
    {
        uct_cuda_node_rkey_t rkey = {};
        ucs_status_t status;

        rkey.handle        = handle;
        rkey.handle.remaps = handle.remaps + 1;
        rkey.view          = uct_cuda_node_handle_view(&handle);
        status             = uct_cuda_node_rkey_ask_current(&rkey);
        uct_cuda_node_invalidation_view_put(rkey.view);
        return status;
    }

    static uct_cuda_node_handle_t current;
    static char kind;
    int number;
};

uct_cuda_node_handle_t IpcDescriptor::current;
char IpcDescriptor::kind;

TEST_F(IpcDescriptor, a_new_handle_covers_the_same_memory_of_the_same_gpu)
{
    const uct_cuda_node_handle_t before = handle;

    if (!may_fetch_any()) {
        GTEST_SKIP() << "pidfd_getfd: " << strerror(errno);
    }

    for (char what : {ASKED, LARGER}) {
        handle = before;
        tell(what);
        EXPECT_EQ(UCS_OK, renew_handle()) << what;
        EXPECT_EQ(7u, handle.remaps);
        EXPECT_EQ(before.length + ((what == LARGER) ? 4096 : 0),
                  handle.length);
    }

    handle = before;
    for (char what : {SHORTER, OTHER_GPU, NOT_MAPPED, CUT_OFF, NONE}) {
        tell(what);
        EXPECT_EQ(UCS_ERR_UNREACHABLE, renew_handle()) << what;
        EXPECT_EQ(UCS_ERR_UNREACHABLE, update_key()) << what;
        EXPECT_EQ(0, memcmp(&before, &handle, sizeof(handle))) << what;
    }
}

TEST_F(IpcDescriptor, an_exporter_that_cannot_be_asked_counts_as_unchanged)
{
    if (!may_fetch_any()) {
        GTEST_SKIP() << "pidfd_getfd: " << strerror(errno);
    }

    for (char what : {SILENT, OTHER}) {
        tell(what);
        EXPECT_EQ(UCS_ERR_NOT_CONNECTED, renew_handle()) << what;
        EXPECT_EQ(UCS_OK, update_key()) << what;
    }

    tell(ASKED);
    kill(child, SIGSTOP);
    EXPECT_EQ(UCS_OK, update_key()) << "stopped";
    kill(child, SIGCONT);

    tell(OVER);
    tell(SILENT);
    EXPECT_EQ(UCS_ERR_UNREACHABLE, update_key()) << "its page says so";
}

TEST_F(IpcDescriptor, a_descriptor_is_found_or_requested)
{
    if (!may_fetch_any()) {
        GTEST_SKIP() << "pidfd_getfd: " << strerror(errno);
    }

    for (char what : {SHOWN, ASKED}) {
        imports = 0;
        memset(imported, 0, sizeof(imported));
        tell(what);
        EXPECT_EQ(UCS_OK, open()) << what;
        EXPECT_STREQ("asked", imported);
    }

    for (char what : {SILENT, OTHER}) {
        tell(what);
        EXPECT_EQ(UCS_ERR_NOT_CONNECTED, open()) << what;
        EXPECT_EQ(-1, recv(control[0], &what, 1, MSG_DONTWAIT))
                << "another file is written to";
    }
    EXPECT_EQ(UCS_ERR_NOT_CONNECTED, open());
    ++handle.notice.generation; /* belongs to another allocation now */
    tell(SHOWN);
    EXPECT_EQ(UCS_ERR_NOT_CONNECTED, open());
    --handle.notice.generation;
    tell(OVER);
    EXPECT_EQ(UCS_OK, open()) << "the exporter judges what it is asked for";
    handle.notice.slot = 6;
    EXPECT_EQ(UCS_ERR_NOT_CONNECTED, open());
}

/* A page lives on in its peers. Its owner may have executed another program, or
   its PID may be another process's. */
TEST_F(IpcDescriptor, a_descriptor_of_a_later_program_is_not_used)
{
    if (!may_fetch_any()) {
        GTEST_SKIP() << "pidfd_getfd: " << strerror(errno);
    }

    tell(SHOWN);
    EXPECT_EQ(UCS_OK, open());
    EXPECT_STREQ("asked", imported);
    tell(EXECUTED);
    EXPECT_EQ(UCS_ERR_NOT_CONNECTED, open());
    EXPECT_STREQ("asked", imported);
}

/* An exporter without a socket: the handle has the number itself */
TEST_F(IpcDescriptor, a_number_in_a_handle_is_not_used_after_its_program)
{
    uct_cuda_node_invalidation_view_t *view;

    if (!may_fetch_any()) {
        GTEST_SKIP() << "pidfd_getfd: " << strerror(errno);
    }

    tell(SHOWN);
    view = uct_cuda_node_handle_view(&handle);
    ASSERT_NE(nullptr, view);
    handle.os.fd = uct_cuda_node_invalidation_view_fd(view, &handle.notice);
    uct_cuda_node_invalidation_view_put(view);
    EXPECT_EQ(UCS_OK, open());
    EXPECT_STREQ("asked", imported);
    tell(EXECUTED);
    EXPECT_EQ(UCS_ERR_NOT_CONNECTED, open());
    EXPECT_STREQ("asked", imported);
    tell(OVER);
    EXPECT_EQ(UCS_ERR_NOT_CONNECTED, open());
}

/* A peer's memory needs descriptors for a moment: at every number of free ones
   the result is right, and names their want */
TEST_F(IpcDescriptor, without_a_free_descriptor_the_error_says_so)
{
    struct rlimit before, limit;
    int used[16];

    if (!may_fetch_any()) {
        GTEST_SKIP() << "pidfd_getfd: " << strerror(errno);
    }

    ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &before));
    for (char what : {ASKED, SHOWN}) {
        tell(what);
        used[0]        = dup(0);
        limit          = before;
        limit.rlim_cur = used[0] + 8;
        close(used[0]);
        ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
        int count = 0;
        while ((used[count] = ::open("/dev/null", O_RDONLY)) >= 0) {
            ++count;
        }
        EXPECT_EQ(UCS_ERR_EXCEEDS_LIMIT, open()) << what;
        ucs_status_t status = UCS_ERR_EXCEEDS_LIMIT;
        for (; (count > 0) && (status != UCS_OK); --count) {
            EXPECT_EQ(UCS_ERR_EXCEEDS_LIMIT, status) << what << count;
            close(used[count - 1]);
            status = open();
        }
        EXPECT_EQ(UCS_OK, status) << what;
        for (; count > 0; --count) {
            close(used[count - 1]);
        }
        ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &before));
    }
}

/* UCX takes another transport for a key that is refused, but not for a copy
   that fails. Memory that is mapped stays so. */
TEST_F(IpcDescriptor, each_key_is_mapped_that_needs_a_descriptor)
{
    if (!may_fetch_any()) {
        GTEST_SKIP() << "pidfd_getfd: " << strerror(errno);
    }

    begin();
    EXPECT_EQ(UCS_OK, unpack());
    EXPECT_EQ(1u, imports);
    EXPECT_EQ(UCS_OK, unpack());
    EXPECT_EQ(1u, imports) << "mapped already";
    handle.base        += 2 * handle.length;
    handle.notice.slot  = 6;
    EXPECT_EQ(UCS_ERR_UNREACHABLE, unpack());
    EXPECT_EQ(1u, uct_cuda_node_cache_count());
    forget_peer();
}

/* The key was packed before, as one of NIXL's metadata */
TEST_F(IpcDescriptor, a_key_of_memory_mapped_anew_is_unpacked)
{
    if (!may_fetch_any()) {
        GTEST_SKIP() << "pidfd_getfd: " << strerror(errno);
    }

    begin();
    EXPECT_EQ(UCS_OK, unpack());
    tell(REMAPPED);
    (void)uct_cuda_node_cache_unmap_freed();
    ++handle.remaps; /* another key than the cached one */
    EXPECT_EQ(UCS_OK, unpack());
    EXPECT_EQ(2u, imports);
    forget_peer();
}

/* A copy fails if its memory is not mapped: a debugger stopped the exporter for
   a moment, and it answers again */
TEST_F(IpcDescriptor, a_copy_asks_an_exporter_that_was_stopped)
{
    uct_cuda_node_mapping_t *mapping;

    if (!may_fetch_any()) {
        GTEST_SKIP() << "pidfd_getfd: " << strerror(errno);
    }

    begin();
    kill(child, SIGSTOP);
    EXPECT_EQ(UCS_ERR_UNREACHABLE, unpack());
    kill(child, SIGCONT);
    ASSERT_EQ(UCS_OK, uct_cuda_node_cache_get(&handle, 0, &mapping));
    uct_cuda_node_cache_put(mapping, false);
    EXPECT_EQ(UCS_OK, unpack()) << "it has answered";
    forget_peer();
}

/* Exporters whose descriptors this process may not duplicate: a container's
   seccomp profile refuses pidfd_getfd(), or they have another PID namespace */
class IpcNamed : public IpcDescriptor
{
protected:
    static const unsigned NOBODY = 65534;

    /* Return whether a check succeeds in a process of its own, prepared by
       another function */
    static bool succeeds(std::function<bool()> prepare,
                         std::function<bool()> check)
    {
        return in_child([&] { return prepare() && check(); }) == 1;
    }

    static bool refuse_getfd()
    {
        struct sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                     offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_getfd, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
        };
        struct sock_fprog program = {4, filter};

        return (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) &&
               (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    }

    bool imports_asked()
    {
        return (open() == UCS_OK) && (strcmp(imported, "asked") == 0);
    }

    /* This process's named socket, and a request to it */
    struct Own {
        struct {
            uct_cuda_node_invalidation_t notice;
            uint64_t base, length;
        } request = {};
        uct_cuda_node_iface_addr_t self    = {};
        uct_cuda_node_descriptors_t socket = {};
        int requests                       = 0;
    };
    static Own own;

    static bool open_own()
    {
        uct_cuda_node_invalidation_begin(5, &own.request.notice);
        uct_cuda_node_iface_addr_self(&own.self);
        return uct_cuda_node_descriptors_open(&own.socket);
    }

    static bool request_own()
    {
        const int client = uct_cuda_node_descriptors_connect(own.self.pid_ns,
                                                             own.self.pid);
        bool is_sent;

        is_sent = send_with(client, &own.request, sizeof(own.request), client);
        close(client);
        return is_sent;
    }

    /* @param most  Requests; each sends another one */
    static int answer_own(int most)
    {
        static int limit;

        limit = most;
        uct_cuda_node_descriptors_answer(
                &own.socket,
                [](const uct_cuda_node_invalidation_t*) {
                    if (++own.requests < limit) {
                        (void)request_own();
                    }
                    return -1;
                },
                NULL);
        return own.requests;
    }

    static double now() /* seconds */
    {
        return std::chrono::duration<double>(
                       std::chrono::steady_clock::now().time_since_epoch())
                .count();
    }

    /* Ask the exporter by its name */
    int ask(const uct_cuda_node_invalidation_t *notice)
    {
        const int server = uct_cuda_node_descriptors_connect(handle.pid_ns,
                                                             handle.pid);

        return uct_cuda_node_descriptors_ask(
                server, uct_cuda_file_inode(server), notice, true);
    }
};

IpcNamed::Own IpcNamed::own;

TEST_F(IpcNamed, a_descriptor_is_requested_where_none_may_be_duplicated)
{
    tell(ASKED);
    EXPECT_TRUE(succeeds(refuse_getfd, [this] { return imports_asked(); }));
    EXPECT_TRUE(succeeds(refuse_getfd,
                         [this] { return renew_handle() == UCS_OK; }));
    tell(NONE);
    EXPECT_TRUE(succeeds(refuse_getfd, [this] {
        return renew_handle() == UCS_ERR_UNREACHABLE;
    }));
}

TEST_F(IpcNamed, a_range_is_a_file_of_its_pieces)
{
    current_range(2);
    tell(PIECES);
    EXPECT_EQ(UCS_OK, open());
    EXPECT_EQ(2u, imports);
}

/* Another process has taken the name first, and never answers */
TEST_F(IpcNamed, a_name_that_is_not_the_exporters_is_not_asked)
{
    tell(UNNAMED);
    kill(child, SIGSTOP);
    const auto start = now();
    EXPECT_TRUE(succeeds(refuse_getfd,
                         [this] { return open() == UCS_ERR_NOT_CONNECTED; }));
    EXPECT_TRUE(succeeds(refuse_getfd, [this] {
        return renew_handle() == UCS_ERR_NOT_CONNECTED;
    }));
    kill(child, SIGCONT);
    EXPECT_GT(1.0, now() - start) << "seconds";
}

/* A stopped exporter, whose queue has room late or never */
TEST_F(IpcNamed, an_exporter_is_waited_for_once)
{
    tell(ASKED);
    kill(child, SIGSTOP);
    EXPECT_TRUE(succeeds([] { return true; }, [this] {
        const auto start = now();
        if ((ask(&handle.notice) != -1) || (now() - start < 1.9)) {
            return false;
        }
        return (ask(&handle.notice) == -1) && (now() - start < 2.5);
    }));
    kill(child, SIGCONT);
    EXPECT_LE(0, ask(&handle.notice)) << "by another process";
}

/* Keys unpacked later use the memory again */
TEST_F(IpcNamed, an_exporter_that_answers_again_is_asked)
{
    tell(ASKED);
    EXPECT_TRUE(succeeds([] { return true; }, [this] {
        kill(child, SIGSTOP);
        const bool is_silent = (ask(&handle.notice) == -1);
        kill(child, SIGCONT);
        const auto start = now();
        while ((ask(&handle.notice) == -1) && (now() - start < 8)) {
            usleep(1000);
        }
        return is_silent && (now() - start < 8);
    }));
}

/* The time for room in the queue and the one for the answer are the same */
TEST_F(IpcNamed, a_full_queue_does_not_add_to_the_wait)
{
    EXPECT_TRUE(succeeds(open_own, [] {
        int count = 0;
        while (request_own()) {
            ++count;
        }
        std::thread reader([] {
            char bytes[256];
            usleep(1500 * 1000);
            while (recv(own.socket.named.fd, bytes, sizeof(bytes),
                        MSG_DONTWAIT) > 0) {
            }
        });
        const auto start = now();
        const int server = uct_cuda_node_descriptors_connect(own.self.pid_ns,
                                                             own.self.pid);
        const int fd = uct_cuda_node_descriptors_ask(
                server, uct_cuda_file_inode(server), &own.request.notice, true);
        reader.join();
        return (count > 0) && (fd == -1) && (now() - start < 2.5);
    }));
}

/* A PID is used again */
TEST_F(IpcNamed, another_process_of_the_same_name_does_not_answer)
{
    uct_cuda_node_invalidation_t notice = handle.notice;

    tell(ASKED);
    EXPECT_LE(0, ask(&notice));
    ++notice.page_id;
    EXPECT_EQ(-1, ask(&notice));
}

TEST_F(IpcNamed, another_user_gets_no_answer)
{
    auto become_nobody = [] { return setresuid(NOBODY, NOBODY, NOBODY) == 0; };

    if (geteuid() != 0) {
        GTEST_SKIP() << "not root";
    }

    tell(ASKED);
    EXPECT_TRUE(succeeds(become_nobody,
                         [this] { return ask(&handle.notice) == -1; }));
    EXPECT_TRUE(succeeds(become_nobody, [this] {
        return uct_cuda_node_descriptors_ask_page(
                       handle.pid_ns, handle.pid, handle.notice.page_id) == -1;
    }));
    EXPECT_LE(0, ask(&handle.notice)) << "it still answers others";
}

/* Another user has taken the name that an exporter would have */
TEST_F(IpcNamed, another_users_answer_is_not_used)
{
    uct_cuda_node_descriptors_t socket;
    int ready[2];
    char byte;
    pid_t pid;

    if (geteuid() != 0) {
        GTEST_SKIP() << "not root";
    }

    ASSERT_EQ(0, pipe(ready));
    pid = fork();
    if (pid == 0) {
        if (!uct_cuda_node_descriptors_open(&socket) ||
            (setresuid(NOBODY, NOBODY, NOBODY) != 0) ||
            (write(ready[1], "", 1) != 1)) {
            _exit(1);
        }
        /* its own check is not part of this test: it takes root's requests */
        for (;;) {
            struct ucred from;
            char request[64], control[256];
            struct iovec iov  = {request, sizeof(request)};
            struct msghdr msg = {};
            int reply         = -1;

            msg.msg_iov        = &iov;
            msg.msg_iovlen     = 1;
            msg.msg_control    = control;
            msg.msg_controllen = sizeof(control);
            if (recvmsg(socket.named.fd, &msg, 0) <= 0) {
                _exit(1);
            }
            for (auto *header = CMSG_FIRSTHDR(&msg); header != NULL;
                 header       = CMSG_NXTHDR(&msg, header)) {
                if (header->cmsg_type == SCM_RIGHTS) {
                    memcpy(&reply, CMSG_DATA(header), sizeof(reply));
                } else {
                    memcpy(&from, CMSG_DATA(header), sizeof(from));
                }
            }
            answer_with(reply, memfd_create("false", MFD_CLOEXEC));
            close(reply);
        }
    }
    EXPECT_EQ(1, read(ready[0], &byte, 1));
    EXPECT_EQ(-1, uct_cuda_node_descriptors_ask_page(handle.pid_ns, pid, 1));
    reap(pid);
    close(ready[0]);
    close(ready[1]);
}

/* Anybody may send to the named socket: the thread has other duties, too */
TEST_F(IpcNamed, requests_without_end_are_not_answered_at_once)
{
    EXPECT_TRUE(succeeds(open_own, [] {
        return request_own() && (answer_own(10000) < 10000);
    }));
}

/* A user namespace shows all users that it lacks as the same one */
TEST_F(IpcNamed, users_without_a_number_are_different_ones)
{
    auto ask_as_nobody = [] {
        return open_own() &&
               succeeds([] { return setresuid(NOBODY, NOBODY, NOBODY) == 0; },
                        request_own);
    };

    if (geteuid() != 0) {
        GTEST_SKIP() << "not root";
    }

    if (!succeeds([] { return unshare(CLONE_NEWUSER) == 0; },
                  [] { return geteuid() == NOBODY; })) {
        GTEST_SKIP() << "no user namespaces";
    }

    EXPECT_TRUE(succeeds(ask_as_nobody, [] {
        return (unshare(CLONE_NEWUSER) == 0) && (answer_own(1) == 0);
    }));
    EXPECT_TRUE(succeeds(ask_as_nobody, [] {
        return (setresuid(NOBODY, NOBODY, NOBODY) == 0) &&
               (answer_own(1) == 1);
    })) << "it is a user here";
}

/* A file that may shrink could end its readers */
TEST_F(IpcNamed, a_page_without_seals_is_not_mapped)
{
    static FILE *copy;

    EXPECT_TRUE(succeeds(open_own, [] {
        struct stat page;

        copy = tmpfile();
        return (fstat(uct_cuda_node_invalidation_page(), &page) == 0) &&
               (sendfile(fileno(copy), uct_cuda_node_invalidation_page(), NULL,
                         (size_t)page.st_size) == page.st_size) &&
               (uct_cuda_node_invalidation_view_get(
                        own.self.pid_ns + 1, own.self.pid,
                        &own.request.notice,
                        [](uint64_t, int32_t, uint32_t) {
                            return dup(fileno(copy));
                        }) == NULL);
    }));
}

TEST_F(IpcNamed, a_process_of_another_machine_is_not_asked)
{
    handle.machine ^= 1;
    EXPECT_EQ(NULL, uct_cuda_node_handle_view(&handle));
}

TEST_F(IpcNamed, memory_of_another_pid_namespace_is_mapped)
{
    struct stat name_space;
    int other[2];
    char path[64];
    pid_t pid;

    ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, other));
    pid = fork();
    if (pid == 0) {
        control[1] = other[1];
        close(other[0]);
        if ((unshare(CLONE_NEWPID) != 0) || ((pid = fork()) < 0)) {
            _exit(1);
        }
        if (pid == 0) {
            export_as_set();
            _exit(0);
        }
        close(other[1]);
        waitpid(pid, NULL, 0);
        _exit(0);
    }
    close(other[1]);
    if (read(other[0], &handle.notice, sizeof(handle.notice)) ==
        (ssize_t)sizeof(handle.notice)) {
        snprintf(path, sizeof(path), "/proc/%d/ns/pid_for_children", pid);
        ASSERT_EQ(0, stat(path, &name_space));
        handle.pid    = 1;
        handle.pid_ns = name_space.st_ino ^ uct_cuda_node_machine_self();
        std::swap(control[0], other[0]);
        tell(ASKED);
        EXPECT_TRUE(imports_asked());
        EXPECT_EQ(UCS_OK, renew_handle());
        std::swap(control[0], other[0]);
    }
    close(other[0]);
    waitpid(pid, NULL, 0);
}

TEST_F(IpcHandle, a_descriptor_is_fetched_from_the_exporter)
{
    if (!may_fetch()) {
        GTEST_SKIP() << "pidfd_getfd: " << strerror(errno);
    }

    EXPECT_EQ(UCS_OK, open());
    EXPECT_STREQ("peer", imported);
}

/* The exporter has this process's file open, under the number in its key */
class IpcLockedFile : public IpcHandle
{
protected:
    char path[32] = "/tmp/ucx-mp-locked-XXXXXX";
    int file, number;

    void SetUp() override
    {
        struct flock lock = {};

        file = mkstemp(path); /* the child inherits it */
        ASSERT_LE(0, file);
        lock.l_type = F_WRLCK;
        ASSERT_EQ(0, fcntl(file, F_SETLK, &lock));
        IpcHandle::SetUp();
        number       = handle.os.fd;
        handle.os.fd = file;
    }

    void TearDown() override
    {
        handle.os.fd = number;
        close(file);
        unlink(path);
        IpcHandle::TearDown();
    }

    /* Return whether another process sees the lock */
    bool is_locked()
    {
        return in_child([this] {
            struct flock lock = {};

            lock.l_type = F_WRLCK;
            return (fcntl(file, F_GETLK, &lock) == 0) &&
                   (lock.l_type != F_UNLCK);
        }) == 1;
    }
};

/* A key may be older than the number's use: closing a duplicate of a file ends
   all record locks that this process has on it */
TEST_F(IpcLockedFile, a_file_of_the_program_keeps_its_locks)
{
    ASSERT_TRUE(is_locked());
    EXPECT_EQ(UCS_ERR_NOT_CONNECTED, open());
    EXPECT_EQ(0u, imports);
    EXPECT_TRUE(is_locked());
}

/* In this namespace the pid belongs to another process */
TEST_F(IpcHandle, a_pid_of_another_namespace_is_not_used)
{
    ++handle.pid_ns;
    EXPECT_EQ(UCS_ERR_NOT_CONNECTED, open());
    handle.pid_ns = 0;
    EXPECT_EQ(UCS_ERR_NOT_CONNECTED, open());
    EXPECT_EQ(0u, imports);
}

TEST_F(IpcHandle, an_ended_exporter_is_unreachable)
{
    handle.pid = INT32_MAX;
    EXPECT_EQ(UCS_ERR_NOT_CONNECTED, open());
    EXPECT_EQ(0u, imports);
}

/* Handles of another machine's driver are invalid here */
TEST_F(IpcHandle, a_handle_of_another_machine_is_not_opened)
{
    handle.machine ^= 1;
    EXPECT_EQ(UCS_ERR_UNREACHABLE, open());
    handle.type = UCT_CUDA_NODE_HANDLE_LEGACY;
    EXPECT_EQ(UCS_ERR_UNREACHABLE, open());
    EXPECT_EQ(0u, imports);
    EXPECT_EQ(0u, driver.opens);
}

TEST_F(IpcHandle, a_fabric_handle_is_opened_from_any_machine)
{
    static CUmemAllocationHandleType asked;

    driver.table.cuMemImportFromShareableHandle =
            [](CUmemGenericAllocationHandle *allocation, void *,
               CUmemAllocationHandleType type) {
                *allocation = 1;
                asked       = type;
                return CUDA_SUCCESS;
            };
    handle.machine ^= 1;
    handle.pid_ns += 1;
    handle.type    = UCT_CUDA_NODE_HANDLE_FABRIC;
    EXPECT_EQ(UCS_OK, open());
    EXPECT_EQ(8, (int)asked);
}

/* Model the driver: importing a pool or its memory again gives the same handle.
   One call undoes all imports of memory, but only one import of a pool */
static int pool_imports, pool_is_refused;
static unsigned place_imports;
static std::map<CUdeviceptr, int> places;

class IpcPool : public ::testing::Test
{
protected:
    FakeDriver driver;
    uct_cuda_node_handle_t handle;

    void SetUp() override
    {
        pool_imports = pool_is_refused = 0;
        place_imports                  = 0;
        places.clear();
        driver.table.cuMemPoolImportFromShareableHandle =
                [](CUmemoryPool *pool, void *, CUmemAllocationHandleType,
                   unsigned long long) {
                    ++pool_imports;
                    *pool = (CUmemoryPool)0x700;
                    return CUDA_SUCCESS;
                };
        driver.table.cuMemPoolDestroy = [](CUmemoryPool) {
            if (!places.empty() || (pool_imports == 0)) {
                ++pool_is_refused;
                return CUDA_ERROR_INVALID_VALUE;
            }
            --pool_imports;
            return CUDA_SUCCESS;
        };
        driver.table.cuMemPoolSetAccess = [](CUmemoryPool,
                                             const CUmemAccessDesc *access,
                                             size_t) {
            return (access->location.id == 0) ? CUDA_SUCCESS :
                                                CUDA_ERROR_INVALID_DEVICE;
        };
        driver.table.cuMemPoolImportPointer = [](CUdeviceptr *address,
                                                 CUmemoryPool,
                                                 CUmemPoolPtrExportData *data) {
            ++place_imports;
            *address         = 0x10000 * ((unsigned char*)data)[0];
            places[*address] = 1;
            return (*address == 0) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
        };
        driver.table.cuMemFree = [](CUdeviceptr address) {
            return places.erase(address) ? CUDA_SUCCESS :
                                           CUDA_ERROR_INVALID_VALUE;
        };
        memset(&handle, 0, sizeof(handle));
        handle.type     = UCT_CUDA_NODE_HANDLE_POOL_FABRIC;
        handle.length   = 4096;
        handle.place[0] = 1;
    }

    CUdeviceptr open(uint8_t place, CUdevice device = 0,
                     ucs_status_t status = UCS_OK)
    {
        CUdeviceptr mapped = 0;

        handle.place[0] = place;
        EXPECT_EQ(status, uct_cuda_node_handle_open(&handle, device, &mapped));
        return mapped;
    }
};

TEST_F(IpcPool, memory_opened_twice_stays_until_it_is_closed_twice)
{
    CUdeviceptr one = open(1), again = open(1), other = open(2);

    EXPECT_EQ(one, again);
    uct_cuda_node_handle_close(&handle, one);
    EXPECT_EQ(1u, places.count(one));
    uct_cuda_node_handle_close(&handle, again);
    EXPECT_EQ(0u, places.count(one));
    EXPECT_EQ(3, pool_imports) << "there is memory of it left";
    uct_cuda_node_handle_close(&handle, other);
    EXPECT_TRUE(places.empty());
    EXPECT_EQ(0, pool_imports);
    EXPECT_EQ(0, pool_is_refused);
}

/* The calls were added one after the other; opening needs the call to close */
TEST_F(IpcPool, a_driver_that_lacks_one_of_the_calls)
{
    const uct_cuda_driver_t whole = driver.table;

    driver.table.cuMemPoolDestroy = NULL;
    open(1, 0, UCS_ERR_UNSUPPORTED);
    driver.table                    = whole;
    driver.table.cuMemPoolSetAccess = NULL;
    open(1, 0, UCS_ERR_UNSUPPORTED);
    driver.table                       = whole;
    driver.table.cuMemPoolImportPointer = NULL;
    open(1, 0, UCS_ERR_UNSUPPORTED);
    driver.table                                  = whole;
    driver.table.cuMemPoolImportFromShareableHandle = NULL;
    open(1, 0, UCS_ERR_UNSUPPORTED);
    EXPECT_EQ(0, pool_imports);
    driver.table = whole;
    uct_cuda_node_handle_close(&handle, open(1));
}

TEST_F(IpcPool, failure_leaves_nothing_open)
{
    open(1, 1, UCS_ERR_UNREACHABLE); /* no access by this GPU */
    EXPECT_EQ(0u, place_imports);
    EXPECT_EQ(0, pool_imports);

    driver.table.cuMemPoolImportPointer = [](CUdeviceptr *, CUmemoryPool,
                                             CUmemPoolPtrExportData *) {
        return CUDA_ERROR_INVALID_VALUE;
    };
    open(1, 0, UCS_ERR_UNREACHABLE);
    EXPECT_EQ(0, pool_imports);
    EXPECT_EQ(0, pool_is_refused);
}
