/* SPDX-License-Identifier: BSD-3-Clause */
/* Page-locked host memory: registration, and the pieces of copies. */
#include "fake_driver.h"

extern "C" {
#include <uct/cuda/base/host/host_pieces.h>
#include <uct/cuda/cuda_copy/cuda_copy_mem.h>
}

#include <gtest/gtest.h>

#include <map>
#include <vector>

static const uintptr_t page = 4096;
static const uintptr_t base = UINT64_C(0x7f0000000000);
static const size_t mbyte   = 1 << 20;

/* Ranges registered with the driver: start and length */
static std::map<uintptr_t, size_t> registered;
static unsigned registrations;

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

class HostPieces : public ::testing::Test
{
protected:
    FakeDriver driver;

    void SetUp() override
    {
        registered.clear();
        copies.clear();
        registrations = 0;

        driver.table.cuMemHostRegister = [](void *ptr, size_t length,
                                            unsigned flags) {
            uintptr_t start = reinterpret_cast<uintptr_t>(ptr);

            EXPECT_EQ(unsigned(CU_MEMHOSTREGISTER_PORTABLE), flags);
            ++registrations;
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

                    return (it == registered.end()) ?
                                   CUDA_SUCCESS :
                                   fake->locked(count, attributes, values,
                                                (const void*)it->first,
                                                it->second);
                };
        /* Like the driver, refuse a copy that crosses the end of a
           registration */
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
    }

    /* Register memory as ucp_mem_map() does */
    static uct_cuda_copy_memh_t *register_memory(uintptr_t start, size_t length)
    {
        uct_cuda_copy_memh_t *memh = nullptr;

        EXPECT_EQ(UCS_OK, uct_cuda_copy_mem_register(
                                  reinterpret_cast<void*>(start), length, false,
                                  &memh));
        return memh;
    }
};

/* One piece, with the program's bounds */
TEST_F(HostPieces, registered_memory_is_locked_completely)
{
    uct_cuda_copy_memh_t *memh = register_memory(base + 100, 200 * mbyte);

    ASSERT_EQ(1u, registered.size());
    EXPECT_EQ(200 * mbyte, registered[base + 100]);
    uct_cuda_copy_mem_unregister(memh);
    EXPECT_TRUE(registered.empty());
}

TEST_F(HostPieces, registered_memory_that_cannot_be_locked_is_unchanged)
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

/* A registration ended with its context, and the address may belong to other
   memory now */
TEST_F(HostPieces, a_registration_ends_with_its_context)
{
    uct_cuda_copy_memh_t *memh = register_memory(base, mbyte);

    ++driver.ctx_id;
    uct_cuda_copy_mem_unregister(memh);
    EXPECT_EQ(1u, registered.size());
}

TEST_F(HostPieces, a_copy_over_several_registrations_goes_in_pieces)
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

/* Nine adjacent ones: more than fit without an allocation. Messages lock no
   memory. */
TEST_F(HostPieces, pieces_end_where_registrations_end)
{
    void *at = reinterpret_cast<void*>(base + 100);
    uct_cuda_host_pieces_t pieces;

    for (unsigned i = 0; i < 9; ++i) {
        registered[base + i * page] = page;
    }

    uct_cuda_host_pieces_init(&pieces);
    ASSERT_EQ(UCS_OK, uct_cuda_host_pieces_find(&pieces, at, 9 * page - 200));
    EXPECT_TRUE(pieces.is_locked);
    ASSERT_EQ(9u, pieces.count);
    for (unsigned i = 0; i < 9; ++i) {
        EXPECT_EQ((i + 1) * page - ((i == 8) ? 200 : 100), pieces.ends[i]);
    }

    /* One copy each */
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
    EXPECT_EQ(0u, registrations);
}

TEST_F(HostPieces, pieces_report_unlocked_memory)
{
    void *at = reinterpret_cast<void*>(base);
    uct_cuda_host_pieces_t pieces;

    uct_cuda_host_pieces_init(&pieces);
    uct_cuda_host_pieces_release(&pieces); /* without pieces */

    registered[base] = page;
    ASSERT_EQ(UCS_OK, uct_cuda_host_pieces_find(&pieces, at, page));
    EXPECT_TRUE(pieces.is_locked);
    uct_cuda_host_pieces_release(&pieces);

    uct_cuda_host_pieces_init(&pieces);
    ASSERT_EQ(UCS_OK, uct_cuda_host_pieces_find(&pieces, at, 2 * page));
    EXPECT_FALSE(pieces.is_locked);
    EXPECT_EQ(page, pieces.pageable);
    ASSERT_EQ(2u, pieces.count);
    EXPECT_EQ(page, pieces.ends[0]);
    EXPECT_EQ(2 * page, pieces.ends[1]);
    uct_cuda_host_pieces_release(&pieces);
}
