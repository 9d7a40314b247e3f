/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests of addresses: the processes reachable by cuda_ipc. */
#include "process.h"

extern "C" {
#include <uct/cuda/cuda_ipc/cuda_ipc_ep.h>
#include <uct/cuda/node/process.h>
}

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <fcntl.h>
#include <pthread.h>
#include <set>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

class IpcAddress : public ::testing::Test
{
protected:
    uct_cuda_node_device_addr_t device;
    uct_cuda_node_iface_addr_t iface;

    void SetUp() override
    {
        uct_cuda_node_device_addr_self(&device, NULL);
        uct_cuda_node_iface_addr_self(&iface);
    }

    /* Return why a peer is unreachable; "" if it is reachable. */
    std::string obstacle(const void *device_addr,
                         const uct_cuda_fabric_t *fabric = NULL)
    {
        char addr[UCT_CUDA_NODE_IFACE_ADDR_MAX];
        uct_cuda_node_iface_addr_pack(&iface, addr);
        const char *text = uct_cuda_node_addr_obstacle(device_addr, addr, 5,
                                                       fabric);
        return (text == NULL) ? "" : text;
    }
};

/* UCX's own tests look for these words */
TEST_F(IpcAddress, the_own_interface_is_unreachable)
{
    iface.iface = 5;
    EXPECT_EQ("same process", obstacle(&device));

    /* nor an interface without a number, as after a change of the pid only */
    iface.iface = 0;
    EXPECT_EQ("same process", obstacle(&device));
}

TEST_F(IpcAddress, another_interface_of_the_process_is_reachable)
{
    for (uint32_t number : {1, 4, 6, UCT_CUDA_NODE_IFACE_MAX}) {
        iface.iface = number;
        EXPECT_EQ("", obstacle(&device)) << number;
    }
}

TEST_F(IpcAddress, interfaces_are_numbered)
{
    std::set<uint32_t> numbers;

    for (int i = 0; i < UCT_CUDA_NODE_IFACE_MAX; ++i) {
        const uint32_t number = uct_cuda_node_iface_number();

        EXPECT_GE(number, 1u);
        EXPECT_LE(number, (uint32_t)UCT_CUDA_NODE_IFACE_MAX);
        EXPECT_TRUE(numbers.insert(number).second);
    }
}

TEST_F(IpcAddress, another_process_of_the_machine_is_reachable)
{
    iface.pid += 1;
    EXPECT_EQ("", obstacle(&device));
}

TEST_F(IpcAddress, the_same_pid_in_another_namespace_is_reachable)
{
    iface.pid_ns += 1;
    EXPECT_EQ("", obstacle(&device));
}

TEST_F(IpcAddress, another_machine_is_unreachable)
{
    iface.pid        += 1;
    device.machine[15] ^= 1;
    EXPECT_NE("", obstacle(&device));
}

TEST_F(IpcAddress, every_digit_of_the_machine_counts)
{
    static const uint8_t zeros[16] = {0};
    EXPECT_NE(0, memcmp(device.machine + 12, zeros, 4));
}

/* A stock peer's device address has 8 bytes and may end a page */
TEST_F(IpcAddress, a_stock_peer_is_unreachable_and_8_bytes_are_read)
{
    size_t page = sysconf(_SC_PAGESIZE);
    char *pages = (char*)mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(MAP_FAILED, (void*)pages);
    ASSERT_EQ(0, mprotect(pages + page, page, PROT_NONE));
    memset(pages + page - 8, 0x5a, 8);
    iface.pid += 1;
    EXPECT_NE("", obstacle(pages + page - 8));
    munmap(pages, 2 * page);
}

TEST_F(IpcAddress, child_of_a_fork_has_its_own)
{
    EXPECT_EQ(1, in_child([this] {
        uct_cuda_node_iface_addr_t own;

        uct_cuda_node_iface_addr_self(&own);
        return (own.pid == getpid()) && (own.pid != iface.pid);
    }));
}

/* Looking up the pid namespace is slow, on request */
static std::atomic<int> num_looks;
static useconds_t look_time;

static void look_at(const char *path)
{
    if (strcmp(path, "/proc/self/ns/pid") == 0) {
        ++num_looks;
        usleep(look_time);
    }
}

/* Symbols of stat() in the C library, before 2.33 and since */
extern "C" {
#if __GLIBC_PREREQ(2, 33)
int __real_stat(const char *path, struct stat *st);
int __wrap_stat(const char *path, struct stat *st);

int __wrap_stat(const char *path, struct stat *st)
{
    look_at(path);
    return __real_stat(path, st);
}
#else
int __real___xstat(int version, const char *path, struct stat *st);
int __wrap___xstat(int version, const char *path, struct stat *st);
int __wrap_stat(const char *path, struct stat *st);

int __wrap___xstat(int version, const char *path, struct stat *st)
{
    look_at(path);
    return __real___xstat(version, path, st);
}

/* in code without optimization */
int __wrap_stat(const char *path, struct stat *st)
{
    return __wrap___xstat(_STAT_VER, path, st);
}
#endif
}

static void *ask(void *)
{
    uct_cuda_node_iface_addr_t own;

    uct_cuda_node_iface_addr_self(&own);
    return (own.pid_ns == 0) ? &num_looks : NULL;
}

/* A child has no result yet, and several threads want it. A second look-up must
   not overwrite a result being read. */
static bool ask_at_once()
{
    pthread_t threads[4];
    bool is_right = true;
    void *is_torn;

    num_looks = 0;
    look_time = 20000;
    for (pthread_t &thread : threads) {
        pthread_create(&thread, NULL, ask, NULL);
    }
    for (pthread_t &thread : threads) {
        pthread_join(thread, &is_torn);
        is_right = is_right && (is_torn == NULL);
    }
    return is_right && (num_looks == 1);
}

TEST_F(IpcAddress, the_address_is_computed_once_for_all_threads)
{
    EXPECT_EQ(1, in_child(ask_at_once));
}

TEST_F(IpcAddress, endpoint_knows_its_peer)
{
    uct_abi_ep_params_t peer = {};
    uct_cuda_ipc_ep_t ep     = {};
    uint8_t packed[64]       = {};

    uct_cuda_node_iface_addr_pack(&iface, packed);
    uct_cuda_node_iface_addr_unpack(&device, packed, &ep.peer);
    EXPECT_FALSE(uct_cuda_ipc_ep_is_connected((uct_ep_h)&ep, &peer));
    peer.dev_addr   = (const uct_device_addr_t*)&device;
    peer.iface_addr = (const uct_iface_addr_t*)packed;
    EXPECT_TRUE(uct_cuda_ipc_ep_is_connected((uct_ep_h)&ep, &peer));
    ++ep.peer.pid;
    EXPECT_FALSE(uct_cuda_ipc_ep_is_connected((uct_ep_h)&ep, &peer));
}

TEST_F(IpcAddress, missing_addresses_are_unreachable)
{
    EXPECT_NE("", obstacle(NULL));
    EXPECT_NE(nullptr, uct_cuda_node_addr_obstacle(&device, NULL, 5, NULL));
}

/* Changing only the pid, as UCX's tests do, changes the process */
TEST_F(IpcAddress, packed_begins_with_the_pid_and_is_no_longer_than_it_says)
{
    const uint64_t first = 0xeffffffc ^ uct_cuda_node_machine_self();
    for (uint64_t ns : {first, first + 12345}) {
        char addr[UCT_CUDA_NODE_IFACE_ADDR_MAX + 1];
        uct_cuda_node_iface_addr_t process = {}, copy;
        int32_t pid = 4194303;
        memset(addr, 0x77, sizeof(addr));
        process.pid    = pid;
        process.pid_ns = ns;
        process.iface  = UCT_CUDA_NODE_IFACE_MAX;
        uct_cuda_node_iface_addr_pack(&process, addr);
        uct_cuda_node_iface_addr_unpack(&device, addr, &copy);
        EXPECT_TRUE(uct_cuda_node_is_same_process(&process, &copy));
        EXPECT_EQ(process.iface, copy.iface);
        EXPECT_EQ((ns == first) ? 4u : 12u,
                  uct_cuda_node_iface_addr_length(&process));
        EXPECT_EQ(0x77, addr[uct_cuda_node_iface_addr_length(&process)]);

        pid = 12345;
        memcpy(addr, &pid, sizeof(pid));
        uct_cuda_node_iface_addr_unpack(&device, addr, &copy);
        EXPECT_EQ(12345, copy.pid);
        EXPECT_EQ(first, copy.pid_ns);
    }
}

/* The first pid namespace of another machine is another namespace */
TEST_F(IpcAddress, unpacked_with_its_machine)
{
    uct_cuda_node_iface_addr_t here, there;
    const int32_t pid = 7;
    uct_cuda_node_iface_addr_unpack(&device, &pid, &here);
    device.machine[0] ^= 1;
    uct_cuda_node_iface_addr_unpack(&device, &pid, &there);
    EXPECT_EQ(here.pid, there.pid);
    EXPECT_NE(here.pid_ns, there.pid_ns);
}

/* A process of an unknown namespace is not reachable */
TEST_F(IpcAddress, own_process_is_known_for_certain)
{
    EXPECT_TRUE(uct_cuda_node_is_self(iface.pid, iface.pid_ns));
    EXPECT_FALSE(uct_cuda_node_is_self(iface.pid + 1, iface.pid_ns));
    EXPECT_FALSE(uct_cuda_node_is_self(iface.pid, iface.pid_ns + 1));
    EXPECT_FALSE(uct_cuda_node_is_self(iface.pid, 0));
}

/* Machines that share memory over NVLink */
class IpcFabric : public IpcAddress
{
protected:
    uct_cuda_fabric_t fabric;

    /* A process of another machine of the fabric */
    void SetUp() override
    {
        memset(&fabric, 0, sizeof(fabric));
        fabric.cluster[3] = 5;
        fabric.clique     = 2;
        uct_cuda_node_device_addr_self(&device, &fabric);
        uct_cuda_node_iface_addr_self(&iface);
        device.machine[15] ^= 1;
        iface.pid_ns       ^= 1;
    }

    bool is_reachable(const uct_cuda_fabric_t *own)
    {
        return obstacle(&device, own).empty();
    }
};

TEST_F(IpcFabric, another_machine_of_the_fabric_is_reachable)
{
    EXPECT_TRUE(is_reachable(&fabric));
}

TEST_F(IpcFabric, both_ends_need_the_fabric)
{
    EXPECT_FALSE(is_reachable(NULL));
    uct_cuda_node_device_addr_self(&device, NULL);
    device.machine[15] ^= 1;
    EXPECT_FALSE(is_reachable(&fabric));
}

TEST_F(IpcFabric, another_cluster_or_clique_is_unreachable)
{
    ++fabric.clique;
    EXPECT_FALSE(is_reachable(&fabric));
    --fabric.clique;
    ++fabric.cluster[15];
    EXPECT_FALSE(is_reachable(&fabric));
}

TEST_F(IpcFabric, a_fabric_makes_addresses_longer)
{
    EXPECT_EQ(28u, uct_cuda_node_device_addr_length(&fabric));
    EXPECT_EQ(24u, uct_cuda_node_device_addr_length(NULL));
}

/* Pids, and numbers of pid namespaces, are the same on many machines */
TEST_F(IpcFabric, equal_pids_on_other_machines_are_other_processes)
{
    struct stat st;

    ASSERT_EQ(0, stat("/proc/self/ns/pid", &st));
    uct_cuda_node_iface_addr_self(&iface);
    EXPECT_EQ(st.st_ino ^ uct_cuda_node_machine_self(), iface.pid_ns);
    EXPECT_NE(0u, uct_cuda_node_machine_self());
}

/* A key names a descriptor of its process as the page: it may be another file
   by now, and opening it could change it, block, or have side effects */
TEST(NodeProcess, only_a_file_of_that_name_is_opened)
{
    const int page  = memfd_create("a-page", MFD_CLOEXEC);
    const int other = memfd_create("a-page-too", MFD_CLOEXEC);
    int ends[2];

    ASSERT_EQ(0, pipe(ends));
    const int opened = uct_cuda_node_file_open(getpid(), page, "a-page",
                                               O_RDWR);
    EXPECT_LE(0, opened);
    EXPECT_EQ(-1, uct_cuda_node_file_open(getpid(), page, "a-pag", O_RDWR));
    for (int fd : {other, ends[0], ends[1], 1 << 20, -1}) {
        EXPECT_EQ(-1, uct_cuda_node_file_open(getpid(), fd, "a-page",
                                              O_RDONLY));
    }
    for (int fd : {page, other, ends[0], ends[1], opened}) {
        close(fd);
    }
}
