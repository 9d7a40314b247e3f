/* SPDX-License-Identifier: BSD-3-Clause */
/* Mapping cache: memory is mapped once, and unmapped when necessary. */
#include "fake_driver.h"

extern "C" {
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/node/mappings.h>
#include <uct/cuda/node/process.h>
#include <uct/cuda/node/unmap.h>
}

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstring>
#include <thread>

class IpcCache : public ::testing::Test
{
protected:
    FakeDriver driver;

    static uct_cuda_node_handle_t handle(uint64_t base, uint64_t buffer_id,
                                         int pid = 42, uint64_t length = 4096)
    {
        uct_cuda_node_handle_t h;
        memset(&h, 0, sizeof(h));
        h.type      = UCT_CUDA_NODE_HANDLE_LEGACY;
        h.machine   = uct_cuda_node_machine_self();
        h.pid       = pid;
        h.base      = base;
        h.length    = length;
        h.buffer_id = buffer_id;
        return h;
    }

    static uct_cuda_node_mapping_t *
    get(const uct_cuda_node_handle_t &h, CUdevice device = 0)
    {
        uct_cuda_node_mapping_t *mapping = nullptr;
        EXPECT_EQ(UCS_OK, uct_cuda_node_cache_get(&h, device, &mapping));
        return mapping;
    }

    void legacy_is_idle()
    {
        driver.table.cuEventRecord = [](CUevent event, CUstream) {
            fake->done.insert(event);
            return CUDA_SUCCESS;
        };
    }

    void TearDown() override
    {
        uct_cuda_node_cache_purge_peer(0, 42);
        uct_cuda_node_cache_purge_peer(0, 43);
        EXPECT_EQ(0u, uct_cuda_node_cache_count());
        uct_cuda_node_unmap_all();
        EXPECT_TRUE(driver.mapped.empty());
    }
};

TEST_F(IpcCache, second_use_finds_the_mapping)
{
    uct_cuda_node_mapping_t *first = get(handle(0x10000, 1));
    uct_cuda_node_cache_put(first, true);
    uct_cuda_node_mapping_t *second = get(handle(0x10000, 1));
    EXPECT_EQ(first, second);
    EXPECT_EQ(1u, driver.opens);
    uct_cuda_node_cache_put(second, true);
}

TEST_F(IpcCache, memory_freed_and_allocated_again_is_mapped_anew)
{
    uct_cuda_node_mapping_t *old_one = get(handle(0x10000, 1));
    CUdeviceptr old_address          = old_one->mapped;
    uct_cuda_node_cache_put(old_one, true);

    uct_cuda_node_mapping_t *new_one = get(handle(0x10000, 2));
    EXPECT_NE(old_address, new_one->mapped);
    EXPECT_EQ(2u, driver.opens);
    uct_cuda_node_unmap_all();
    EXPECT_EQ(0u, driver.mapped.count(old_address)) << "stale mapping is open";
    uct_cuda_node_cache_put(new_one, true);
}

TEST_F(IpcCache, mapping_in_use_outlives_its_allocation)
{
    uct_cuda_node_mapping_t *in_use = get(handle(0x10000, 1));
    CUdeviceptr address             = in_use->mapped;
    uct_cuda_node_mapping_t *other  = get(handle(0x10000, 2));
    uct_cuda_node_unmap_all();
    EXPECT_EQ(1u, driver.mapped.count(address));
    uct_cuda_node_cache_put(in_use, true);
    uct_cuda_node_unmap_all();
    EXPECT_EQ(0u, driver.mapped.count(address));
    uct_cuda_node_cache_put(other, true);
}

TEST_F(IpcCache, new_allocation_over_old_ones_retires_them)
{
    uct_cuda_node_cache_put(get(handle(0x10000, 1)), true);
    uct_cuda_node_cache_put(get(handle(0x11000, 2)), true);
    uct_cuda_node_cache_put(get(handle(0x40000, 3)), true);
    uct_cuda_node_cache_put(get(handle(0xf000, 4, 42, 0x4000)), true);
    EXPECT_EQ(2u, uct_cuda_node_cache_count());
}

TEST_F(IpcCache, peers_are_distinguished)
{
    uct_cuda_node_cache_put(get(handle(0x10000, 1, 42)), true);
    uct_cuda_node_cache_put(get(handle(0x10000, 1, 43)), true);
    EXPECT_EQ(2u, driver.opens);
    EXPECT_EQ(2u, uct_cuda_node_cache_count());
}

/* The handles of one process and GPU "may only be opened by one CUcontext per
   CUdevice" */
TEST_F(IpcCache, contexts_of_a_device_share_what_one_has_opened)
{
    const auto first = driver.context;
    const auto other = reinterpret_cast<CUcontext>(0x2000);
    auto elsewhere   = handle(0x20000, 2);

    driver.table.cuCtxGetId = [](CUcontext context, unsigned long long *id) {
        *id = reinterpret_cast<uintptr_t>(context);
        return CUDA_SUCCESS;
    };
    uct_cuda_node_cache_put(get(handle(0x10000, 1)), true);
    driver.context                   = other;
    uct_cuda_node_mapping_t *mapping = get(handle(0x10000, 1));
    EXPECT_EQ(first, mapping->context);
    EXPECT_EQ(1u, driver.opens);
    EXPECT_EQ(other, driver.context);
    uct_cuda_node_cache_put(mapping, true);

    /* more memory, also of the peer's other GPU */
    mapping = get(handle(0x18000, 3));
    EXPECT_EQ(first, mapping->context);
    EXPECT_EQ(other, driver.context);
    uct_cuda_node_cache_put(mapping, true);
    elsewhere.gpu[0] = 1;
    mapping          = get(elsewhere);
    EXPECT_EQ(other, mapping->context);
    uct_cuda_node_cache_put(mapping, true);

    /* Also if memory of one GPU appears at an address of the other's */
    elsewhere      = handle(0x10000, 5);
    elsewhere.gpu[0] = 1;
    driver.context   = first;
    mapping          = get(elsewhere);
    EXPECT_EQ(other, mapping->context);
    uct_cuda_node_cache_put(mapping, true);
    driver.context = other;
    mapping        = get(handle(0x20000, 6));
    EXPECT_EQ(first, mapping->context);
    uct_cuda_node_cache_put(mapping, true);
    driver.context = first;
}

/* Kernels of collectives need mappings in their own context: idle ones of
   another, as of an earlier collective there, make room */
TEST_F(IpcCache, a_collective_replaces_idle_mappings_of_another_context)
{
    const auto first = driver.context;
    const auto other = reinterpret_cast<CUcontext>(0x2000);

    driver.table.cuCtxGetId = [](CUcontext context, unsigned long long *id) {
        *id = reinterpret_cast<uintptr_t>(context);
        return CUDA_SUCCESS;
    };
    driver.table.cuCtxRecordEvent = [](CUcontext, CUevent event) {
        fake->done.insert(event);
        return CUDA_SUCCESS;
    };
    legacy_is_idle();
    for (bool is_idle : {true, false}) {
        driver.context                = first;
        uct_cuda_node_mapping_t *used = get(handle(0x10000, 1));
        if (is_idle) {
            uct_cuda_node_cache_put(used, true);
            driver.fail      = "cuIpcOpenMemHandle";
            driver.fail_with = CUDA_ERROR_ALREADY_MAPPED;
        }
        driver.context = other;
        uct_cuda_node_cache_collective(true);
        uct_cuda_node_mapping_t *mapping = get(handle(0x20000, 2));
        uct_cuda_node_cache_collective(false);
        EXPECT_EQ(is_idle ? other : first, mapping->context);
        EXPECT_EQ(is_idle ? 1u : 2u, uct_cuda_node_cache_count());
        uct_cuda_node_cache_put(mapping, false);
        if (!is_idle) {
            uct_cuda_node_cache_put(used, true);
        }
        uct_cuda_node_unmap_all();
    }
    driver.context = first;
}

/* A destroyed context that still has mappings in use opens nothing */
TEST_F(IpcCache, a_destroyed_context_opens_nothing)
{
    const auto other = reinterpret_cast<CUcontext>(0x2000);
    static CUcontext gone;

    gone                    = nullptr;
    driver.table.cuCtxGetId = [](CUcontext context, unsigned long long *id) {
        *id = reinterpret_cast<uintptr_t>(context);
        return (context == gone) ? CUDA_ERROR_CONTEXT_IS_DESTROYED :
                                   CUDA_SUCCESS;
    };
    uct_cuda_node_mapping_t *used = get(handle(0x10000, 1));
    gone                          = driver.context;
    driver.context                = other;
    for (uint64_t base : {0x10000, 0x20000}) {
        uct_cuda_node_mapping_t *mapping =
            get(handle(base, 1 + base / 0x20000));
        EXPECT_EQ(other, mapping->context) << base;
        uct_cuda_node_cache_put(mapping, true);
    }
    gone = nullptr; /* so that the driver below knows it, too */
    uct_cuda_node_cache_put(used, true);
}

/* Processes in containers may have the same pid */
TEST_F(IpcCache, pid_namespaces_are_distinguished)
{
    uct_cuda_node_handle_t one = handle(0x10000, 1), other = one;

    other.pid_ns = 7;
    uct_cuda_node_cache_put(get(one), true);
    uct_cuda_node_mapping_t *mapping = get(other);
    EXPECT_EQ(7u, mapping->handle.pid_ns);
    uct_cuda_node_cache_put(mapping, true);
    EXPECT_EQ(2u, driver.opens);
    EXPECT_EQ(2u, uct_cuda_node_cache_count());
    uct_cuda_node_cache_put(get(one), true);
    EXPECT_EQ(2u, driver.opens);

    /* Overlapping memory of one process is not the other's */
    other.base      -= 4096;
    other.length    *= 4;
    other.buffer_id  = 2;
    uct_cuda_node_cache_put(get(other), true);
    EXPECT_EQ(2u, uct_cuda_node_cache_count());
    uct_cuda_node_cache_put(get(one), true);
    EXPECT_EQ(3u, driver.opens);

    uct_cuda_node_cache_purge_peer(7, 42);
    EXPECT_EQ(1u, uct_cuda_node_cache_count());
}

/* A process may have the pid of an earlier one, the same address, and the same
   buffer id, since each process counts its own */
TEST_F(IpcCache, other_handle_or_gpu_is_other_memory)
{
    uct_cuda_node_handle_t first = handle(0x10000, 1), second = first;

    second.os.bytes[40] = 1;
    uct_cuda_node_cache_put(get(first), true);
    uct_cuda_node_cache_put(get(second), true);
    EXPECT_EQ(2u, driver.opens);

    first         = second;
    second.gpu[3] = 1;
    uct_cuda_node_cache_put(get(first), true);
    EXPECT_EQ(2u, driver.opens);
    uct_cuda_node_cache_put(get(second), true);
    EXPECT_EQ(3u, driver.opens);
    EXPECT_EQ(1u, uct_cuda_node_cache_count());
}

TEST_F(IpcCache, a_mapping_in_use_is_closed_by_its_last_user)
{
    uct_cuda_node_mapping_t *first  = get(handle(0x10000, 1));
    uct_cuda_node_mapping_t *second = get(handle(0x10000, 1));
    uct_cuda_node_mapping_t *other  = get(handle(0x10000, 1, 43));

    uct_cuda_node_cache_put(get(handle(0x20000, 2)), true);
    uct_cuda_node_cache_purge_peer(0, 42);
    EXPECT_EQ(2u, uct_cuda_node_cache_count());
    uct_cuda_node_cache_put(first, true);
    uct_cuda_node_unmap_all();
    EXPECT_EQ(2u, driver.mapped.size());
    uct_cuda_node_cache_put(second, true);
    uct_cuda_node_unmap_all();
    EXPECT_EQ(1u, driver.mapped.size());
    uct_cuda_node_cache_put(other, true);
    EXPECT_EQ(1u, uct_cuda_node_cache_count());
}

TEST_F(IpcCache, an_obstructing_stale_mapping_is_closed)
{
    uct_cuda_node_cache_put(get(handle(0x90000, 1)), true);
    driver.fail      = "cuIpcOpenMemHandle";
    driver.fail_with = CUDA_ERROR_ALREADY_MAPPED;
    uct_cuda_node_cache_put(get(handle(0x10000, 2)), true);
    EXPECT_EQ(1u, uct_cuda_node_cache_count());
}

/* The peer exports other memory at an address mapped for a communicator: it has
   freed the old memory, even without an announcement. A transfer keeps its
   mapping. */
TEST_F(IpcCache, an_obstructing_weak_reference_is_closed)
{
    uct_cuda_node_mapping_t *mapping = nullptr;
    uct_cuda_node_mapping_t *lent    = get(handle(0x10000, 1));
    uct_cuda_node_mapping_t *used    = get(handle(0x10000, 1));
    uct_cuda_node_handle_t second    = handle(0x10000, 2);

    uct_cuda_node_cache_weaken(lent);
    driver.fail      = "cuIpcOpenMemHandle";
    driver.fail_with = CUDA_ERROR_ALREADY_MAPPED;
    EXPECT_EQ(UCS_ERR_UNREACHABLE,
              uct_cuda_node_cache_get(&second, 0, &mapping));
    EXPECT_FALSE(lent->closed);
    uct_cuda_node_cache_put(used, true);

    /* Closed at once, since the driver puts small allocations into blocks */
    ASSERT_EQ(UCS_OK, uct_cuda_node_cache_get(&second, 0, &mapping));
    EXPECT_TRUE(lent->closed);
    EXPECT_EQ(1u, driver.mapped.size());
    uct_cuda_node_cache_put_weak(lent, true);
    uct_cuda_node_cache_put(mapping, true);
    EXPECT_EQ(1u, uct_cuda_node_cache_count());
}

/* Closing a mapping waits for the GPU's work, which may wait for the program */
TEST_F(IpcCache, a_collective_closes_nothing_on_a_busy_gpu)
{
    uct_cuda_node_mapping_t *mapping = nullptr;
    uct_cuda_node_handle_t large     = handle(0x10000, 1, 42, 4 << 20);
    uct_cuda_node_handle_t small     = handle(0x10000, 2);
    uct_cuda_node_handle_t next      = handle(0x10000, 3);

    legacy_is_idle();
    driver.table.cuCtxRecordEvent = [](CUcontext, CUevent event) {
        fake->done.erase(event);
        return CUDA_SUCCESS;
    };
    uct_cuda_node_cache_put(get(large), true);
    uct_cuda_node_cache_put(get(handle(0x90000000, 4)), true);
    uct_cuda_node_cache_collective(true);

    /* The driver may refuse any handle */
    driver.fail      = "cuIpcOpenMemHandle";
    driver.fail_with = CUDA_ERROR_ALREADY_MAPPED;
    EXPECT_EQ(UCS_ERR_BUSY, uct_cuda_node_cache_get(&small, 0, &mapping));
    EXPECT_EQ(1u, uct_cuda_node_cache_count()) << "the unused mapping is gone";

    /* It refuses one in the block of another mapping, but this is none */
    uct_cuda_node_cache_put(get(small), true);
    EXPECT_EQ(3u, driver.mapped.size());
    EXPECT_EQ(UCS_ERR_BUSY, uct_cuda_node_cache_get(&next, 0, &mapping));
    EXPECT_EQ(3u, driver.mapped.size());
    uct_cuda_node_cache_collective(false);

    /* Forget that the GPU was busy */
    driver.table.cuCtxRecordEvent = [](CUcontext, CUevent event) {
        fake->done.insert(event);
        return CUDA_SUCCESS;
    };
    EXPECT_TRUE(uct_cuda_ctx_is_idle(0));
}

/* Mappings on another GPU do not prevent the driver from opening a handle. The
   other GPU may wait for the program, and a query may invalidate a capture. */
TEST_F(IpcCache, a_collective_queries_no_gpu_in_vain)
{
    const auto own                   = driver.context;
    uct_cuda_node_mapping_t *mapping = nullptr;
    uct_cuda_node_handle_t refused   = handle(0x10000, 1);

    driver.table.cuCtxGetId = [](CUcontext context, unsigned long long *id) {
        *id = reinterpret_cast<uintptr_t>(context);
        return CUDA_SUCCESS;
    };
    legacy_is_idle();
    driver.table.cuCtxRecordEvent = [](CUcontext, CUevent event) {
        ADD_FAILURE() << "nothing can be closed";
        fake->done.insert(event);
        return CUDA_SUCCESS;
    };
    driver.context = reinterpret_cast<CUcontext>(0x2000);
    uct_cuda_node_cache_put(get(handle(0x90000, 2), 1), true);
    uct_cuda_node_cache_put(get(handle(0xa0000, 3), 1), false);
    driver.context   = own;
    driver.fail      = "cuIpcOpenMemHandle";
    driver.fail_with = CUDA_ERROR_ALREADY_MAPPED;
    uct_cuda_node_cache_collective(true);
    EXPECT_EQ(UCS_ERR_UNREACHABLE,
              uct_cuda_node_cache_get(&refused, 0, &mapping));
    uct_cuda_node_cache_collective(false);
    EXPECT_EQ(2u, driver.mapped.size());
}

/* A range and its pieces have the same addresses while both exist, also if the
   range cannot be opened */
TEST_F(IpcCache, a_range_leaves_weak_references_to_its_pieces)
{
    uct_cuda_node_mapping_t *mapping = nullptr;
    uct_cuda_node_mapping_t *lent    = get(handle(0x10000, 1));
    uct_cuda_node_handle_t range     = handle(0xf000, 2, 42, 0x4000);

    uct_cuda_node_cache_weaken(lent);
    range.type = UCT_CUDA_NODE_HANDLE_RANGE;
    EXPECT_EQ(UCS_ERR_UNREACHABLE,
              uct_cuda_node_cache_get(&range, 0, &mapping));
    EXPECT_FALSE(lent->closed);
    uct_cuda_node_cache_put_weak(lent, true);
}

TEST_F(IpcCache, handle_that_cannot_be_opened_is_unreachable)
{
    uct_cuda_node_mapping_t *mapping = nullptr;
    uct_cuda_node_handle_t h         = handle(0x10000, 1);

    driver.fail      = "cuIpcOpenMemHandle";
    driver.fail_with = CUDA_ERROR_INVALID_VALUE;
    EXPECT_EQ(UCS_ERR_UNREACHABLE, uct_cuda_node_cache_get(&h, 0, &mapping));
    EXPECT_EQ(0u, uct_cuda_node_cache_count());
    uct_cuda_node_cache_put(get(h), true); /* the next one works */
}

TEST_F(IpcCache, without_cache_nothing_stays)
{
    uct_cuda_node_cache_put(get(handle(0x10000, 1)), false);
    EXPECT_EQ(0u, uct_cuda_node_cache_count());
    uct_cuda_node_unmap_all();
    EXPECT_TRUE(driver.mapped.empty());
}

TEST_F(IpcCache, limit_of_regions_drops_the_least_recently_used)
{
    uct_cuda_node_cache_limit(2, SIZE_MAX);
    uct_cuda_node_cache_put(get(handle(0x10000, 1)), true);
    uct_cuda_node_cache_put(get(handle(0x20000, 2)), true);
    uct_cuda_node_cache_put(get(handle(0x10000, 1)), true); /* used again */
    uct_cuda_node_cache_put(get(handle(0x30000, 3)), true); /* drops 0x20000 */
    EXPECT_EQ(2u, uct_cuda_node_cache_count());
    EXPECT_EQ(3u, driver.opens);
    uct_cuda_node_cache_put(get(handle(0x10000, 1)), true);
    EXPECT_EQ(3u, driver.opens);
    uct_cuda_node_cache_put(get(handle(0x20000, 2)), true);
    EXPECT_EQ(4u, driver.opens);
    uct_cuda_node_cache_limit(ULONG_MAX, SIZE_MAX);
}

TEST_F(IpcCache, nothing_is_closed_in_a_destroyed_context)
{
    uct_cuda_node_cache_put(get(handle(0x10000, 1)), true);
    driver.ctx_id = 7; /* another context at the same address */
    uct_cuda_node_cache_purge_peer(0, 42);
    EXPECT_EQ(0u, uct_cuda_node_cache_count());
    EXPECT_EQ(1u, driver.mapped.size()) << "closed in a context not its own";
    driver.mapped.clear();
}

/* A mapping known to the program or to code on a GPU stays until all users have
   released it, even if another endpoint to this process is closed */
TEST_F(IpcCache, pinned_mapping_stays_until_it_is_unpinned)
{
    uct_cuda_node_pin_t *pins = nullptr, *others = nullptr;

    uct_cuda_node_cache_limit(1, SIZE_MAX);
    uct_cuda_node_mapping_t *pinned = get(handle(0x10000, 1));
    EXPECT_EQ(UCS_OK, uct_cuda_node_cache_pin(pinned, &pins));
    for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(pinned, get(handle(0x10000, 1)));
        EXPECT_EQ(UCS_OK, uct_cuda_node_cache_pin(pinned, &others));
    }
    uct_cuda_node_cache_put(get(handle(0x20000, 2)), true);
    uct_cuda_node_cache_limit(ULONG_MAX, SIZE_MAX);
    EXPECT_EQ(1u, driver.mapped.count(pinned->mapped));
    uct_cuda_node_cache_purge_peer(0, 42);
    uct_cuda_node_unmap_all();
    EXPECT_EQ(1u, driver.mapped.count(pinned->mapped));
    EXPECT_EQ(1u, driver.mapped.size());
    uct_cuda_node_cache_unpin(pins);
    uct_cuda_node_unmap_all();
    EXPECT_EQ(1u, driver.mapped.size());
    uct_cuda_node_cache_unpin(others);
    uct_cuda_node_unmap_all();
    EXPECT_TRUE(driver.mapped.empty());
}

/* Workers of two threads: the second one comes while the driver maps for the
   first, and must wait for this mapping */
TEST_F(IpcCache, two_threads_map_memory_once)
{
    static std::atomic<int> inside;
    uct_cuda_node_mapping_t *one = nullptr, *other = nullptr;

    inside                          = 0;
    driver.table.cuIpcOpenMemHandle = [](CUdeviceptr *mapped, CUipcMemHandle,
                                         unsigned) {
        const int number = ++inside;

        /* Time for the other thread to enter, if nothing stops it */
        for (int i = 0; (i < 200) && (inside < 2); ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        *mapped = 0x7000000 + (CUdeviceptr)number * 0x10000;
        return CUDA_SUCCESS;
    };
    driver.table.cuIpcCloseMemHandle = [](CUdeviceptr) { return CUDA_SUCCESS; };

    std::thread thread([&one] {
        one = get(handle(0x10000, 1));
        uct_cuda_node_cache_put(one, true);
    });
    while (inside == 0) {
        std::this_thread::yield();
    }
    other = get(handle(0x10000, 1));
    uct_cuda_node_cache_put(other, true);
    thread.join();
    EXPECT_EQ(1, inside);
    EXPECT_EQ(one, other);
}
