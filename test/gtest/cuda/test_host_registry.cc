/* SPDX-License-Identifier: BSD-3-Clause */
/* Page-locked host memory: when it is locked, who holds it, when it goes. */
#include "fake_driver.h"

extern "C" {
#include <uct/abi/abi.h>
#include <uct/cuda/base/host/host_pieces.h>
#include <uct/cuda/base/host/host_pieces.h>
#include <uct/cuda/base/host/host_pipeline.h>
#include <uct/cuda/base/host/host_registry.h>
#include <uct/cuda/cuda_copy/cuda_copy_mem.h>
}

#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

static const uintptr_t page  = 4096;
static const uintptr_t base  = UINT64_C(0x7f0000000000);
static const size_t mbyte    = 1 << 20;
static const uintptr_t space = 1024 * mbyte;

/* The linker has the module call these (--wrap) */
static long page_size;
static std::vector<uct_abi_unmap_cb_t> unmap_events;

extern "C" ucs_status_t __wrap_uct_abi_on_unmap(uct_abi_unmap_cb_t cb)
{
    unmap_events.push_back(cb);
    return UCS_OK;
}

extern "C" long __real_sysconf(int name);

extern "C" long __wrap_sysconf(int name)
{
    return ((name == _SC_PAGESIZE) && (page_size != 0)) ? page_size :
                                                          __real_sysconf(name);
}

static void unmap(uintptr_t start, size_t length)
{
    for (uct_abi_unmap_cb_t event : unmap_events) {
        event(reinterpret_cast<void*>(start), length);
    }
}

/* What the driver has registered: start and length */
static std::map<uintptr_t, size_t> registered;
static unsigned registrations;
static CUresult refuse;

typedef std::vector<std::pair<uintptr_t, size_t>> copies_t;
static copies_t copies;

static std::map<uintptr_t, size_t>::iterator find(uintptr_t address)
{
    auto it = registered.upper_bound(address);

    if (it == registered.begin()) {
        return registered.end();
    }
    --it;
    return (address < it->first + it->second) ? it : registered.end();
}

static bool overlaps(uintptr_t start, size_t length)
{
    auto it = registered.lower_bound(start);

    return (find(start) != registered.end()) ||
           ((it != registered.end()) && (it->first < start + length));
}

class HostRegistry : public ::testing::Test
{
protected:
    FakeDriver driver;

    void SetUp() override
    {
        registered.clear();
        copies.clear();
        registrations = 0;
        refuse        = CUDA_SUCCESS;
        page_size     = 0;

        driver.table.cuMemHostRegister = [](void *ptr, size_t length,
                                            unsigned flags) {
            uintptr_t start = reinterpret_cast<uintptr_t>(ptr);

            EXPECT_EQ(unsigned(CU_MEMHOSTREGISTER_PORTABLE), flags);
            ++registrations;
            if (refuse != CUDA_SUCCESS) {
                return refuse;
            }
            if (overlaps(start, length)) {
                return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
            }
            registered[start] = length;
            return CUDA_SUCCESS;
        };
        driver.table.cuMemHostUnregister = [](void *ptr) {
            return registered.erase(reinterpret_cast<uintptr_t>(ptr)) ?
                           CUDA_SUCCESS :
                           CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
        };
        driver.table.cuPointerGetAttribute = [](void*, CUpointer_attribute,
                                                CUdeviceptr) {
            return CUDA_ERROR_INVALID_VALUE;
        };
        driver.table.cuPointerGetAttributes =
                [](unsigned count, CUpointer_attribute *attributes,
                   void **values, CUdeviceptr address) {
                    auto it = find(address);

                    for (unsigned i = 0;
                         (i < count) && (it != registered.end()); ++i) {
                        switch (attributes[i]) {
                        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
                            *static_cast<CUmemorytype*>(values[i]) =
                                    CU_MEMORYTYPE_HOST;
                            break;
                        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
                            *static_cast<CUdeviceptr*>(values[i]) = it->first;
                            break;
                        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
                            *static_cast<size_t*>(values[i]) = it->second;
                            break;
                        default:
                            break;
                        }
                    }
                    return CUDA_SUCCESS;
                };
        /* As the driver: not from one registration into what is outside */
        driver.table.cuMemcpyHtoDAsync = [](CUdeviceptr, const void *src,
                                            size_t length, CUstream) {
            uintptr_t start = reinterpret_cast<uintptr_t>(src);
            auto it         = find(start);

            if ((it == registered.end()) ?
                        overlaps(start, length) :
                        (start + length > it->first + it->second)) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            copies.push_back({start, length});
            return CUDA_SUCCESS;
        };

        driver.table.cuCtxGetDevice = [](CUdevice *device) {
            *device = 0;
            return (fake->context == nullptr) ? CUDA_ERROR_INVALID_CONTEXT :
                                                CUDA_SUCCESS;
        };

        uct_cuda_host_registry_limit(space);
    }

    void TearDown() override
    {
        unmap(base, space);
        EXPECT_EQ(0u, uct_cuda_host_registry_count());
    }

    static size_t next(uintptr_t start, size_t length,
                       uct_cuda_host_region_t **region_p, bool at_once = false)
    {
        bool is_locked, is_busy, is_known;
        size_t piece;

        piece    = uct_cuda_host_registry_next(reinterpret_cast<void*>(start),
                                               length, at_once, &is_locked,
                                               &is_busy, region_p);
        is_known = (*region_p != NULL);
        for (auto &entry : registered) {
            is_known |= (start >= entry.first) &&
                        (start < entry.first + entry.second);
        }
        EXPECT_EQ(is_known, is_locked);
        return piece;
    }

    /* Copies a buffer until it is locked, and leaves it so. @return how often
     * it was not locked. */
    static unsigned copy_often(uintptr_t start, size_t length)
    {
        uct_cuda_host_region_t *region;
        unsigned count = 0;

        for (; count < 1000; ++count) {
            EXPECT_EQ(length, next(start, length, &region));
            if (region != nullptr) {
                uct_cuda_host_region_release(region);
                break;
            }
        }
        return count;
    }

    /* As ucp_mem_map() does */
    static uct_cuda_copy_memh_t *register_memory(uintptr_t start, size_t length)
    {
        uct_cuda_copy_memh_t *memh = nullptr;

        EXPECT_EQ(UCS_OK, uct_cuda_copy_mem_register(
                                  reinterpret_cast<void*>(start), length, false,
                                  &memh));
        return memh;
    }
};

TEST_F(HostRegistry, memory_is_locked_once_that_has_paid)
{
    const unsigned large = copy_often(base, 64 * mbyte);
    const unsigned small = copy_often(base + 128 * mbyte, mbyte);

    /* 64 MiB: 3.9 ms to lock, 4.4 saved by each copy (measured) */
    EXPECT_EQ(1u, large);
    EXPECT_GT(small, large);
    EXPECT_LT(small, 8u);
    EXPECT_EQ(2u, registrations);
    EXPECT_EQ(0u, copy_often(base, 64 * mbyte));
    EXPECT_EQ(0u, copy_often(base + 5, 64 * mbyte - 5));
    EXPECT_EQ(2u, registrations);
}

TEST_F(HostRegistry, pages_are_locked_whole)
{
    copy_often(base + 100, 16 * mbyte);
    ASSERT_EQ(1u, registered.size());
    EXPECT_EQ(base, registered.begin()->first);
    EXPECT_EQ(16 * mbyte + page, registered.begin()->second);
}

/* As arm64's kernels of RHEL 8 and of Grace's vendors have them */
TEST_F(HostRegistry, pages_of_64k_are_locked_whole)
{
    const size_t large = 64 << 10;

    page_size = large;
    copy_often(base + 5000, 16 * mbyte);
    page_size = 0;
    ASSERT_EQ(1u, registered.size());
    EXPECT_EQ(base, registered.begin()->first);
    EXPECT_EQ(16 * mbyte + large, registered.begin()->second);
}

TEST_F(HostRegistry, a_large_buffer_is_locked_in_parts)
{
    uct_cuda_host_region_t *region;

    for (int i = 0; i < 5; ++i) {
        EXPECT_EQ(64 * mbyte, next(base, 256 * mbyte, &region));
        if (region != nullptr) {
            uct_cuda_host_region_release(region);
        }
    }
    ASSERT_EQ(1u, registered.size());
    EXPECT_EQ(64 * mbyte, registered[base]);
}

/* A longer message in a buffer that is in use */
TEST_F(HostRegistry, more_of_a_buffer_is_locked_at_once)
{
    copy_often(base, 16 * mbyte);
    EXPECT_EQ(0u, copy_often(base + 16 * mbyte, 16 * mbyte));
    EXPECT_GT(copy_often(base + 32 * mbyte + page, 16 * mbyte), 0u);

    /* What the program has locked may be here today and gone tomorrow */
    registered[base + 128 * mbyte] = mbyte;
    EXPECT_GT(copy_often(base + 129 * mbyte, 16 * mbyte), 0u);

    refuse = CUDA_ERROR_OUT_OF_MEMORY;
    EXPECT_EQ(1000u, copy_often(base + 48 * mbyte + page, 16 * mbyte));
}

TEST_F(HostRegistry, unmapped_memory_is_unlocked_before_it_is_gone)
{
    copy_often(base, 16 * mbyte);
    ASSERT_EQ(1u, registered.size());
    unmap(base - page, page);
    EXPECT_EQ(1u, registered.size());

    unmap(base + 16 * mbyte - page, page);
    EXPECT_TRUE(registered.empty());

    /* What comes to its place is other memory */
    EXPECT_GT(copy_often(base, 16 * mbyte), 0u);
}

TEST_F(HostRegistry, uses_of_unmapped_memory_do_not_count)
{
    uct_cuda_host_region_t *region;

    for (int i = 0; i < 20; ++i) {
        next(base, 64 * mbyte, &region);
        EXPECT_EQ(nullptr, region);
        unmap(base, 64 * mbyte);
    }
    EXPECT_EQ(0u, registrations);
}

TEST_F(HostRegistry, memory_unmapped_in_use_is_unlocked_and_released_later)
{
    uct_cuda_host_region_t *region;

    copy_often(base, 16 * mbyte);
    next(base, 16 * mbyte, &region);
    ASSERT_NE(nullptr, region);
    unmap(base, 16 * mbyte);
    EXPECT_TRUE(registered.empty());
    EXPECT_EQ(0u, uct_cuda_host_registry_count());
    uct_cuda_host_region_release(region);
}

/* Nothing that a program could notice, whatever it sends */
TEST_F(HostRegistry, nothing_is_locked_unless_the_user_asks_for_it)
{
    uct_cuda_host_registry_limit(0);
    EXPECT_EQ(1000u, copy_often(base, 64 * mbyte));
    EXPECT_EQ(1000u, copy_often(base + 100 * mbyte, mbyte));
    EXPECT_EQ(0u, registrations);
}

/* One piece, with the edges that the program gave */
TEST_F(HostRegistry, registered_memory_is_locked_whole)
{
    uct_cuda_copy_memh_t *memh = register_memory(base + 100, 200 * mbyte);

    ASSERT_EQ(1u, registered.size());
    EXPECT_EQ(200 * mbyte, registered[base + 100]);
    uct_cuda_copy_mem_unregister(memh);
    EXPECT_TRUE(registered.empty());
}

TEST_F(HostRegistry, registered_memory_that_cannot_be_locked_stays_as_it_is)
{
    registered[base + mbyte] = mbyte;

    uct_cuda_copy_memh_t *around = register_memory(base, 4 * mbyte);
    uct_cuda_copy_memh_t *inside = register_memory(base + mbyte, mbyte);
    uct_cuda_copy_mem_unregister(around);
    uct_cuda_copy_mem_unregister(inside);
    ASSERT_EQ(1u, registered.size());
    EXPECT_EQ(mbyte, registered[base + mbyte]);

    driver.context = nullptr;
    registrations  = 0;
    uct_cuda_copy_mem_unregister(register_memory(base + 8 * mbyte, mbyte));
    EXPECT_EQ(0u, registrations);
}

/* What was registered in a context went with it, and somebody else may have the
 * address by now */
TEST_F(HostRegistry, registered_memory_goes_with_its_context)
{
    uct_cuda_copy_memh_t *memh = register_memory(base, mbyte);

    ++driver.ctx_id;
    uct_cuda_copy_mem_unregister(memh);
    EXPECT_EQ(1u, registered.size());
}

TEST_F(HostRegistry, a_copy_is_told_where_the_locked_memory_ends)
{
    uct_cuda_host_region_t *region;

    copy_often(base, 16 * mbyte);
    EXPECT_EQ(16 * mbyte, next(base, 32 * mbyte, &region));
    ASSERT_NE(nullptr, region);
    uct_cuda_host_region_release(region);
    EXPECT_EQ(mbyte, next(base - mbyte, 32 * mbyte, &region));
    EXPECT_EQ(nullptr, region);
}

TEST_F(HostRegistry, memory_that_the_program_has_locked_is_left_alone)
{
    uct_cuda_host_region_t *region;

    registered[base] = 8 * mbyte;
    for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(7 * mbyte, next(base + mbyte, 64 * mbyte, &region));
        EXPECT_EQ(nullptr, region);
    }
    EXPECT_EQ(0u, registrations);
    EXPECT_EQ(1u, registered.size());
}

TEST_F(HostRegistry, a_refusal_is_remembered)
{
    refuse = CUDA_ERROR_OUT_OF_MEMORY;
    EXPECT_EQ(1000u, copy_often(base, 16 * mbyte));
    EXPECT_EQ(1u, registrations);
    EXPECT_EQ(0u, uct_cuda_host_registry_count());
}

TEST_F(HostRegistry, the_limit_holds)
{
    uct_cuda_host_registry_limit(32 * mbyte);
    copy_often(base, 16 * mbyte);
    EXPECT_EQ(1000u, copy_often(base + 64 * mbyte, 17 * mbyte));
    EXPECT_EQ(1u, registered.size());

    uct_cuda_host_registry_limit(0);
    EXPECT_EQ(1000u, copy_often(base + 256 * mbyte, mbyte));
    EXPECT_EQ(1u, registrations);
}

TEST_F(HostRegistry, a_copy_over_several_registrations_goes_in_pieces)
{
    uintptr_t at = base + 300;
    size_t left  = 10 * page;

    registered[base + page]     = 2 * page;
    registered[base + 3 * page] = page;
    ASSERT_EQ(UCS_OK, uct_cuda_host_copy(0x1000, reinterpret_cast<void*>(at),
                                         left, true, nullptr));
    EXPECT_GT(copies.size(), 2u);
    for (auto &copy : copies) {
        EXPECT_EQ(at, copy.first);
        at   += copy.second;
        left -= copy.second;
    }
    EXPECT_EQ(0u, left);
}

/* Nine regions, one behind the other: more than fit without an allocation */
TEST_F(HostRegistry, pieces_are_where_regions_end)
{
    void *at = reinterpret_cast<void*>(base + 100);
    uct_cuda_host_pieces_t pieces;

    for (unsigned i = 0; i < 9; ++i) {
        registered[base + i * page] = page;
    }

    uct_cuda_host_pieces_init(&pieces);
    ASSERT_EQ(UCS_OK, uct_cuda_host_pieces_hold(&pieces, at, 9 * page - 200,
                                                true));
    EXPECT_TRUE(pieces.is_locked);
    ASSERT_EQ(9u, pieces.count);
    for (unsigned i = 0; i < 9; ++i) {
        EXPECT_EQ((i + 1) * page - ((i == 8) ? 200 : 100), pieces.ends[i]);
    }

    /* A copy each */
    ASSERT_EQ(UCS_OK, uct_cuda_host_pieces_copy(&pieces, 0x1000, at, true,
                                                nullptr));
    ASSERT_EQ(9u, copies.size());
    EXPECT_EQ(base + 100, copies[0].first);
    EXPECT_EQ(page - 100, copies[0].second);
    for (unsigned i = 1; i < 9; ++i) {
        EXPECT_EQ(base + i * page, copies[i].first);
        EXPECT_EQ((i == 8) ? page - 100 : page, copies[i].second);
    }

    uct_cuda_host_pieces_release(&pieces);
    EXPECT_EQ(9u, registered.size());
}

/* Without threads that would copy it, the driver's way from such a buffer is
 * slower than locking it: 8 to 11 GB/s, and 16 to 39 (measured) */
TEST_F(HostRegistry, a_large_new_buffer_is_locked_before_it_is_read)
{
    const auto is_locked = [this](size_t offset, size_t length, bool to_gpu) {
        uct_cuda_host_pieces_t pieces;

        uct_cuda_host_pieces_init(&pieces);
        EXPECT_EQ(UCS_OK, uct_cuda_host_pieces_hold(
                                  &pieces,
                                  reinterpret_cast<void*>(base + offset),
                                  length, to_gpu));
        uct_cuda_host_pieces_release(&pieces);
        return pieces.is_locked;
    };

    uct_cuda_host_pipeline_enable(0);
    EXPECT_TRUE(is_locked(0, 32 * mbyte, true));
    EXPECT_FALSE(is_locked(64 * mbyte, 32 * mbyte - page, true));
    EXPECT_FALSE(is_locked(128 * mbyte, 32 * mbyte, false));

    uct_cuda_host_pipeline_enable(3);
    EXPECT_FALSE(is_locked(192 * mbyte, 32 * mbyte, true));
}

TEST_F(HostRegistry, pieces_say_what_is_not_locked)
{
    uct_cuda_host_pieces_t pieces;

    uct_cuda_host_pieces_init(&pieces);
    uct_cuda_host_pieces_release(&pieces); /* of none */

    registered[base] = page;
    ASSERT_EQ(UCS_OK, uct_cuda_host_pieces_hold(
                              &pieces, reinterpret_cast<void*>(base), page,
                              true));
    EXPECT_TRUE(pieces.is_locked);
    uct_cuda_host_pieces_release(&pieces);

    uct_cuda_host_pieces_init(&pieces);
    ASSERT_EQ(UCS_OK,
              uct_cuda_host_pieces_hold(
                      &pieces, reinterpret_cast<void*>(base), 2 * page,
                      true));
    EXPECT_FALSE(pieces.is_locked);
    EXPECT_EQ(page, pieces.pageable);
    ASSERT_EQ(2u, pieces.count);
    EXPECT_EQ(page, pieces.ends[0]);
    EXPECT_EQ(2 * page, pieces.ends[1]);
    uct_cuda_host_pieces_release(&pieces);
}

static std::atomic<bool> is_unlocking, may_unlock;

/* Unlocking waits for the program's kernels, which may wait for this message:
 * it goes on, and by threads, since the driver still has the old pages */
TEST_F(HostRegistry, nobody_waits_for_memory_that_is_being_unlocked)
{
    uct_cuda_host_region_t *region;
    uct_cuda_host_pieces_t pieces;
    bool is_locked, is_busy;

    copy_often(base, 16 * mbyte);
    is_unlocking = may_unlock        = false;
    driver.table.cuMemHostUnregister = [](void*) {
        for (is_unlocking = true; !may_unlock;) {
            std::this_thread::yield();
        }
        return CUDA_SUCCESS;
    };
    std::thread program([] { unmap(base, 16 * mbyte); });
    while (!is_unlocking) {
        std::this_thread::yield();
    }

    EXPECT_EQ(page, uct_cuda_host_registry_next(
                            reinterpret_cast<void*>(base), page, false,
                            &is_locked, &is_busy, &region));
    EXPECT_EQ(nullptr, region);
    EXPECT_FALSE(is_locked);
    EXPECT_TRUE(is_busy);

    uct_cuda_host_pieces_init(&pieces);
    EXPECT_EQ(UCS_OK, uct_cuda_host_pieces_hold(
                              &pieces, reinterpret_cast<void*>(base - page),
                              3 * page, true));
    EXPECT_EQ(2u, pieces.count);
    EXPECT_EQ(3 * page, pieces.pageable);
    EXPECT_TRUE(pieces.is_busy);
    uct_cuda_host_pieces_release(&pieces);

    program.join(); /* nor does unmapping wait for ever */
    may_unlock = true;
    while (uct_cuda_host_registry_count() > 0) {
        std::this_thread::yield();
    }
    registered.clear();
}
