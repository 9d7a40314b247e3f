/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory exported by this process, and how peers learn of its end */
#include "fake_driver.h"
#include "process.h"

extern "C" {
#include <uct/cuda/node/exports.h>
#include <uct/cuda/node/mappings.h>
#include <uct/cuda/node/process.h>
#include <uct/cuda/node/unmap.h>
#include <uct/cuda/node/watch.h>
}

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static std::map<CUdeviceptr, unsigned long long> allocations; /* ids */
static const size_t length = 4096;

class IpcExports : public ::testing::Test
{
protected:
    FakeDriver driver;

    void SetUp() override
    {
        uct_cuda_node_watch_replace(true);
        allocations.clear();
        driver.offer_descriptors();
        driver.table.cuPointerGetAttributes =
                [](unsigned count, CUpointer_attribute *names, void **values,
                   CUdeviceptr address) {
                    auto it = allocations.find(address);

                    ++fake->questions;
                    for (unsigned i = 0; i < count; ++i) {
                        if (names[i] == CU_POINTER_ATTRIBUTE_BUFFER_ID) {
                            *(unsigned long long*)values[i] =
                                    (it == allocations.end()) ? 0 : it->second;
                        } else if ((names[i] ==
                                    CU_POINTER_ATTRIBUTE_MEMORY_TYPE) &&
                                   (it != allocations.end())) {
                            *(unsigned*)values[i] = CU_MEMORYTYPE_DEVICE;
                        } else if ((names[i] ==
                             CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) ||
                            (names[i] ==
                             CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES)) {
                            (void)fake->table.cuPointerGetAttribute(
                                    values[i], names[i], address);
                        }
                    }
                    return CUDA_SUCCESS;
                };
        driver.table.cuMemGetAddressRange = [](CUdeviceptr *base, size_t *size,
                                               CUdeviceptr address) {
            *base = address;
            *size = length;
            return CUDA_SUCCESS;
        };
    }

    /* Make tests independent of each other. */
    void TearDown() override
    {
        allocations.clear();
        while (uct_cuda_node_exports_check(0) > 0) {
            (void)uct_cuda_node_exports_check(4);
        }
        uct_cuda_node_watch_replace(false);
    }

    static CUdeviceptr alloc(CUdeviceptr base)
    {
        static unsigned long long id = 100000;

        allocations[base] = ++id;
        return base;
    }

    static uct_cuda_node_handle_t get(CUdeviceptr base)
    {
        uct_cuda_node_handle_t handle;
        uct_cuda_memory_t memory;

        memset(&memory, 0, sizeof(memory));
        memory.base      = base;
        memory.length    = length;
        memory.buffer_id = allocations[base];
        EXPECT_EQ(UCS_OK, uct_cuda_node_exports_get((void*)base, &memory,
                                                    &handle));
        return handle;
    }

    static unsigned num_open()
    {
        unsigned count = 0;

        for (int fd = 0; fd < 1024; ++fd) {
            count += (fcntl(fd, F_GETFD) >= 0);
        }
        return count;
    }
};

/* A key that was changed on its way must not keep the watch thread busy */
TEST_F(IpcExports, a_range_beyond_all_pieces_is_refused_at_once)
{
    uct_cuda_node_region_t region = {};
    uint64_t answer[UCT_CUDA_NODE_MAX_ANSWER / sizeof(uint64_t)];

    region.base   = 0x1000000;
    region.length = length;
    uct_cuda_node_exports_add_region(&region);
    driver.questions = 0;
    EXPECT_EQ(0u, uct_cuda_node_exports_renew(region.base, (uint64_t)1 << 62,
                                              answer));
    EXPECT_EQ(0, driver.questions);
    uct_cuda_node_exports_remove_region(&region);
}

TEST_F(IpcExports, an_allocation_has_one_handle)
{
    uct_cuda_node_handle_t first  = get(alloc(0x10000));
    uct_cuda_node_handle_t second = get(0x10000);

    EXPECT_EQ(0, memcmp(&first, &second, sizeof(first)));
    EXPECT_EQ(1u, uct_cuda_node_exports_check(0));
    EXPECT_EQ(1u, uct_cuda_node_exports_num_held());
    uct_cuda_node_exports_put(&first);
    EXPECT_EQ(1u, uct_cuda_node_exports_num_held());
    uct_cuda_node_exports_put(&second);
}

/* The last user's end closes the descriptor, which kept the memory. Peers may
   still have the allocation mapped, so it keeps its entry */
TEST_F(IpcExports, a_descriptor_is_closed_by_its_last_user)
{
    const unsigned before        = num_open();
    uct_cuda_node_handle_t first = get(alloc(0x10000));

    EXPECT_EQ(before + 1, num_open());
    uct_cuda_node_exports_put(&first);
    EXPECT_EQ(before, num_open());
    EXPECT_EQ(1u, uct_cuda_node_exports_check(0));
    EXPECT_FALSE(uct_cuda_node_invalidation_is_over(&first.notice));

    uct_cuda_node_handle_t second = get(0x10000);
    EXPECT_EQ(0, memcmp(&first, &second, sizeof(first)));
    EXPECT_EQ(before + 1, num_open());
    uct_cuda_node_exports_put(&second);
}

/* Programs register thousands of pieces, and have files of their own */
TEST_F(IpcExports, the_number_of_held_descriptors_is_limited)
{
    const unsigned before = num_open();
    std::vector<uct_cuda_node_handle_t> handles;

    for (unsigned i = 0; i < 7000; ++i) {
        handles.push_back(get(alloc(0x100000 + i * length)));
        EXPECT_EQ(UCT_CUDA_NODE_HANDLE_FD, handles.back().type);
    }
    EXPECT_EQ(before + UCT_CUDA_NODE_EXPORTS_MAX_HELD, num_open());
    EXPECT_EQ(7000u, uct_cuda_node_exports_check(0));

    /* A descriptor for each is available on request */
    for (unsigned i : {0u, 100u, 6999u}) {
        int fd = uct_cuda_node_exports_descriptor(&handles[i].notice);
        EXPECT_LE(0, fd);
        close(fd);
    }
    for (auto &handle : handles) {
        uct_cuda_node_exports_put(&handle);
    }
    EXPECT_EQ(before, num_open());
}

/* The last descriptors of a process are the program's. What would need a
   descriptor for as long as it is shared is not shared then. */
TEST_F(IpcExports, the_last_descriptors_are_left_to_the_program)
{
    const int lowest = open("/dev/null", O_RDONLY);
    struct rlimit before, limit;

    close(lowest);
    ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &before));
    limit          = before;
    limit.rlim_cur = lowest + 10;
    ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
    for (bool is_asked : {true, false}) {
        if (!is_asked) {
            uct_cuda_node_watch_replace(false);
        }
        const unsigned open           = num_open();
        uct_cuda_node_handle_t handle = get(alloc(is_asked ? 0x10000 :
                                                             0x20000));
        EXPECT_EQ(open, num_open());
        EXPECT_EQ(is_asked ? UCT_CUDA_NODE_HANDLE_FD :
                             UCT_CUDA_NODE_HANDLE_NONE,
                  handle.type);
        uct_cuda_node_exports_put(&handle);
    }
    ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &before));
}

/* Some seccomp profiles refuse memfd_create(). Memory of cuMemAlloc is shared
   as fast without it. */
TEST_F(IpcExports, a_missing_page_is_warned_of)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
    };
    struct sock_fprog program = {4, filter};
    char text[1024]           = {};
    int log[2];

    ASSERT_EQ(0, pipe(log));
    ASSERT_EQ(0, in_child([&] {
        if ((prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) ||
            (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)) {
            return 1;
        }
        dup2(log[1], STDERR_FILENO);
        (void)get(alloc(0x10000));
        (void)get(alloc(0x20000));
        return 0;
    }));
    close(log[1]);
    EXPECT_LT(0, read(log[0], text, sizeof(text) - 1));
    close(log[0]);
    const char *line = strstr(text, "memfd_create failed (");
    ASSERT_NE(nullptr, line) << text;
    EXPECT_EQ(nullptr, strstr(line + 1, "memfd_create failed (")) << "once";
}

/* A child does not keep its parent's memory in use */
TEST_F(IpcExports, a_child_has_no_descriptors)
{
    uct_cuda_node_handle_t handle = get(alloc(0x10000));
    const unsigned open           = num_open();

    EXPECT_EQ(4, in_child([&] { return open - num_open(); }))
            << "with both ends of a socket, and the named one";
    uct_cuda_node_exports_put(&handle);
}

/* The same without a thread: the number in the handle is the parent's */
TEST_F(IpcExports, a_child_has_no_descriptors_without_a_watch_thread)
{
    uct_cuda_node_watch_replace(false);
    uct_cuda_node_handle_t handle = get(alloc(0x10000));
    const int fd                  = handle.os.fd;

    EXPECT_LE(0, fd);
    EXPECT_EQ(0, in_child([fd] { return fcntl(fd, F_GETFD) >= 0; }));
    EXPECT_LE(0, fcntl(fd, F_GETFD));
    uct_cuda_node_exports_put(&handle);
}

/* A descriptor keeps memory in use like a mapping */
TEST_F(IpcExports, freed_memory_is_noticed)
{
    uct_cuda_node_handle_t handle = get(alloc(0x10000));

    (void)uct_cuda_node_exports_check(4);
    EXPECT_FALSE(uct_cuda_node_invalidation_is_over(&handle.notice));
    EXPECT_EQ(1u, uct_cuda_node_exports_num_held());
    allocations.erase(0x10000);
    (void)uct_cuda_node_exports_check(4);
    EXPECT_TRUE(uct_cuda_node_invalidation_is_over(&handle.notice));
    EXPECT_EQ(0u, uct_cuda_node_exports_num_held());

    /* Another allocation at the address has another handle */
    uct_cuda_node_handle_t other = get(alloc(0x10000));
    EXPECT_FALSE(uct_cuda_node_invalidation_is_over(&other.notice));
    EXPECT_TRUE(uct_cuda_node_invalidation_is_over(&handle.notice));
}

TEST_F(IpcExports, ending_an_export_takes_effect_at_once)
{
    uct_cuda_node_handle_t handle = get(alloc(0x10000));

    uct_cuda_node_exports_end(&handle);
    EXPECT_TRUE(uct_cuda_node_invalidation_is_over(&handle.notice));
    EXPECT_EQ(0u, uct_cuda_node_exports_num_held());
    uct_cuda_node_exports_end(&handle); /* an interval for other callers */
    EXPECT_EQ(0u, uct_cuda_node_exports_check(0));
}

/* Under frequent allocations and frees the table stays close to the number of
   living ones. A driver that does not answer has not reported all of them
   freed */
TEST_F(IpcExports, the_table_does_not_grow)
{
    const unsigned live = 100;
    CUdeviceptr next    = 0x100000;

    for (unsigned i = 0; i < 5000; ++i) {
        get(alloc(next));
        next += length;
        if (i >= live) {
            allocations.erase(next - (live + 1) * length);
        }
        ASSERT_GE(2 * live, uct_cuda_node_exports_check(0));
    }

    driver.table.cuPointerGetAttributes = [](unsigned, CUpointer_attribute*,
                                             void**, CUdeviceptr) {
        return CUDA_ERROR_DEINITIALIZED;
    };
    const unsigned before = uct_cuda_node_exports_check(0);
    (void)uct_cuda_node_exports_check(4);
    EXPECT_EQ(before, uct_cuda_node_exports_check(0));
    SetUp();
}

/* Another process, which exports and frees on request */
class IpcInvalidation : public ::testing::Test
{
protected:
    FakeDriver driver;
    int to_peer[2], from_peer[2];
    pid_t pid;
    uct_cuda_node_invalidation_t notices[4];

    void SetUp() override
    {
        ASSERT_EQ(0, pipe(to_peer));
        ASSERT_EQ(0, pipe(from_peer));
        pid = fork();
        if (pid == 0) {
            peer();
            _exit(0);
        }

        close(to_peer[0]);
        close(from_peer[1]);
        ASSERT_EQ((ssize_t)sizeof(notices),
                  read(from_peer[0], notices, sizeof(notices)));
    }

    void TearDown() override
    {
        uct_cuda_node_cache_purge_peer(handle(0).pid_ns, pid);
        EXPECT_EQ(0u, uct_cuda_node_cache_count());
        uct_cuda_node_unmap_all();
        EXPECT_TRUE(driver.mapped.empty());
        close(to_peer[1]);
        close(from_peer[0]);
        EXPECT_EQ(pid, waitpid(pid, nullptr, 0));
    }

    void peer()
    {
        uint32_t slot;

        close(to_peer[1]);
        for (slot = 0; slot < 4; ++slot) {
            uct_cuda_node_invalidation_begin(slot, &notices[slot]);
        }
        if (write(from_peer[1], notices, sizeof(notices)) < 0) {
            return;
        }
        while (read(to_peer[0], &slot, sizeof(slot)) == sizeof(slot)) {
            uct_cuda_node_invalidation_end(slot);
            if (write(from_peer[1], &slot, sizeof(slot)) < 0) {
                return;
            }
        }
    }

    void end(uint32_t slot)
    {
        EXPECT_EQ((ssize_t)sizeof(slot),
                  write(to_peer[1], &slot, sizeof(slot)));
        EXPECT_EQ((ssize_t)sizeof(slot),
                  read(from_peer[0], &slot, sizeof(slot)));
    }

    uct_cuda_node_handle_t handle(uint32_t slot)
    {
        uct_cuda_node_iface_addr_t self;
        uct_cuda_node_handle_t h;

        uct_cuda_node_iface_addr_self(&self);
        memset(&h, 0, sizeof(h));
        h.type      = UCT_CUDA_NODE_HANDLE_LEGACY;
        h.machine   = uct_cuda_node_machine_self();
        h.pid       = pid;
        h.pid_ns    = self.pid_ns;
        h.base      = 0x10000 * (slot + 1);
        h.length    = length;
        h.buffer_id = slot + 1;
        h.notice    = notices[slot];
        return h;
    }

    uct_cuda_node_mapping_t *get(const uct_cuda_node_handle_t &h)
    {
        uct_cuda_node_mapping_t *mapping = nullptr;
        EXPECT_EQ(UCS_OK, uct_cuda_node_cache_get(&h, 0, &mapping));
        return mapping;
    }
};

TEST_F(IpcInvalidation, freed_memory_is_unmapped)
{
    uct_cuda_node_cache_put(get(handle(0)), true);
    uct_cuda_node_cache_put(get(handle(1)), true);
    EXPECT_EQ(2u, driver.mapped.size());
    end(0);
    uct_cuda_node_cache_put(get(handle(1)), true); /* no other memory is
                                                      mapped */
    uct_cuda_node_unmap_all();
    EXPECT_EQ(1u, driver.mapped.size());
    EXPECT_EQ(2u, driver.opens);
}

TEST_F(IpcInvalidation, a_mapping_in_use_is_closed_by_its_last_user)
{
    uct_cuda_node_mapping_t *mapping = get(handle(0));

    end(0);
    uct_cuda_node_cache_put(get(handle(1)), true);
    uct_cuda_node_unmap_all();
    EXPECT_EQ(2u, driver.mapped.size());
    uct_cuda_node_cache_put(mapping, true);
    uct_cuda_node_unmap_all();
    EXPECT_EQ(1u, driver.mapped.size());
}

/* Else a process with many peers, one after another, would keep all pages */
TEST_F(IpcInvalidation, the_page_of_a_gone_peer_is_closed_with_its_last_user)
{
    const unsigned before            = uct_cuda_node_invalidation_num_views();
    uct_cuda_node_mapping_t *mapping = get(handle(0));

    uct_cuda_node_cache_purge_peer(mapping->handle.pid_ns, pid);
    EXPECT_EQ(before + 1, uct_cuda_node_invalidation_num_views());
    uct_cuda_node_cache_put(mapping, true);
    EXPECT_EQ(before, uct_cuda_node_invalidation_num_views());

    /* A new connection to it keeps the page again */
    mapping = get(handle(0));
    uct_cuda_node_cache_purge_peer(mapping->handle.pid_ns, pid);
    uct_cuda_node_mapping_t *other = get(handle(1));
    uct_cuda_node_cache_put(mapping, true);
    uct_cuda_node_cache_put(other, false);
    EXPECT_EQ(before + 1, uct_cuda_node_invalidation_num_views());
}

/* An unused communicator does not keep memory freed by peers */
TEST_F(IpcInvalidation, a_weak_reference_ends_with_the_memory)
{
    uct_cuda_node_mapping_t *lent = get(handle(0)), *used;

    uct_cuda_node_cache_weaken(lent);
    used = get(handle(0));
    EXPECT_EQ(lent, used);
    end(0);
    uct_cuda_node_cache_put(get(handle(1)), true);
    uct_cuda_node_unmap_all();
    EXPECT_EQ(2u, driver.mapped.size()) << "a transfer is under way";
    uct_cuda_node_cache_put(used, true);
    uct_cuda_node_unmap_all();
    EXPECT_EQ(1u, driver.mapped.size());
    EXPECT_EQ(2u, uct_cuda_node_cache_count());
    uct_cuda_node_cache_put_weak(lent, true);
    EXPECT_EQ(1u, uct_cuda_node_cache_count());
}

/* A check by another thread between the two calls finds a user */
TEST_F(IpcInvalidation, a_reference_to_freed_memory_is_closed_as_it_gets_weak)
{
    uct_cuda_node_mapping_t *lent = get(handle(0));

    end(0);
    uct_cuda_node_cache_put(get(handle(1)), true);
    EXPECT_FALSE(uct_cuda_node_mapping_is_closed(lent));
    uct_cuda_node_cache_weaken(lent);
    EXPECT_TRUE(uct_cuda_node_mapping_is_closed(lent));
    uct_cuda_node_unmap_all();
    EXPECT_EQ(1u, driver.mapped.size());
    uct_cuda_node_cache_put_weak(lent, true);
    EXPECT_EQ(1u, uct_cuda_node_cache_count());
}

/* A communicator that drops an export may show it again */
TEST_F(IpcInvalidation, a_released_weak_reference_leaves_the_mapping)
{
    uct_cuda_node_mapping_t *mapping = get(handle(0));

    uct_cuda_node_cache_weaken(mapping);
    uct_cuda_node_cache_put_weak(mapping, true);
    EXPECT_EQ(1u, uct_cuda_node_cache_count());
    mapping = get(handle(0));
    EXPECT_EQ(1u, driver.opens);
    uct_cuda_node_cache_weaken(mapping);
    end(0);
    uct_cuda_node_cache_put_weak(mapping, true);
    EXPECT_EQ(0u, uct_cuda_node_cache_count());

    /* Not that of a process that has ended */
    mapping = get(handle(1));
    uct_cuda_node_cache_weaken(mapping);
    uct_cuda_node_cache_put_weak(mapping, false);
    EXPECT_EQ(0u, uct_cuda_node_cache_count());
}

/* Keys are not trusted: a key of the same allocation may name another entry of
   the invalidation page, a missing one, or another page */
TEST_F(IpcInvalidation, a_keys_entry_in_the_invalidation_page_is_not_trusted)
{
    uct_cuda_node_handle_t h         = handle(0);
    uct_cuda_node_mapping_t *mapping = get(h);

    h.type        = UCT_CUDA_NODE_HANDLE_LEGACY;
    h.notice.slot = 1;
    EXPECT_EQ(mapping, get(h));
    end(1);
    uct_cuda_node_cache_put(mapping, true);
    uct_cuda_node_cache_put(mapping, true);
    EXPECT_EQ(0u, uct_cuda_node_cache_count()) << "its place has ended";

    for (uint32_t slot : {UCT_CUDA_NODE_INVALIDATION_NO_SLOT, UINT32_MAX / 2,
                          (uint32_t)UCT_CUDA_NODE_INVALIDATION_SLOTS}) {
        h       = handle(2);
        mapping = get(h);
        EXPECT_NE(nullptr, mapping->view);
        h.notice.slot = slot;
        uct_cuda_node_cache_put(get(h), true);
        EXPECT_EQ(nullptr, mapping->view);
        h.notice = notices[2];
        uct_cuda_node_cache_put(get(h), true);
        EXPECT_NE(nullptr, mapping->view);
        h.notice.page_id += 2;
        uct_cuda_node_cache_put(get(h), true);
        EXPECT_EQ(nullptr, mapping->view);
        uct_cuda_node_cache_put(mapping, false);
    }
}

/* An importer without invalidation page closes memory not used recently,
   measured by uses of other memory */
TEST_F(IpcInvalidation, peers_without_an_invalidation_page)
{
    uct_cuda_node_handle_t h = handle(0), first = h;

    first.notice.page_id = 0;
    for (unsigned i = 0; i < 1000; ++i) {
        h.base        += 0x10000;
        h.buffer_id    = 100 + i;
        h.notice.page_id = (i & 1) ? 0 : notices[0].page_id + 2;
        uct_cuda_node_cache_put(get(first), true);
        uct_cuda_node_cache_put(get(h), true);
        (void)uct_cuda_node_unmap_all();
        ASSERT_GE(300u, driver.mapped.size());
    }
    EXPECT_EQ(1001u, driver.opens);
}
