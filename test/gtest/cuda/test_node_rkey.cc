/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys of cuda_ipc: pack, unpack by other processes, and refusal of foreign
   keys. */
#include "fake_driver.h"

extern "C" {
#include <uct/cuda/base/imports.h>
#include <uct/cuda/cuda_cma/cuda_cma_rkey.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_md.h>
#include <uct/cuda/node/exports.h>
#include <uct/cuda/node/mappings.h>
#include <uct/cuda/node/process.h>
#include <uct/cuda/node/rkey.h>
#include <uct/cuda/node/unmap.h>
#include <uct/cuda/node/watch.h>
}

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <fcntl.h>
#include <random>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

static const CUdeviceptr base   = 0x7f0000000000;
static const size_t length      = 8 << 20;
static bool is_shareable;

static unsigned long long first_id = 1000;

class NodeRkey : public ::testing::Test
{
protected:
    FakeDriver driver;
    uct_cuda_node_memh_t *memh = nullptr;
    uct_cuda_node_packed_rkey_t packed;

    void SetUp() override
    {
        is_shareable     = true;
        first_id        += 10; /* ids are never reused */
        driver.buffer_id = first_id;
        driver.no_memory = CUDA_ERROR_INVALID_VALUE;
        driver.offer_gpu_memory(base, length);
        driver.offer_handles();
        driver.table.cuIpcGetMemHandle = [](CUipcMemHandle *handle,
                                            CUdeviceptr) {
            memset(handle, 0x22, sizeof(*handle));
            return is_shareable ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
        };
        ASSERT_EQ(UCS_OK,
                  uct_cuda_node_memh_create((void*)base, 4096, &memh));
    }

    void TearDown() override
    {
        uct_cuda_node_memh_destroy(memh);
        uct_cuda_node_cache_purge_peer(packed.handle.pid_ns, packed.handle.pid);
        uct_cuda_node_unmap_all();
    }

    void pack(void *address = nullptr)
    {
        ASSERT_EQ(UCS_OK, uct_cuda_node_rkey_pack(memh, address, 1, &packed));
    }

    /* Pack as another process would. */
    void pack_as_peer(int pid_offset)
    {
        pack();
        packed.handle.pid += pid_offset;
    }

    ucs_status_t unpack()
    {
        uct_cuda_node_rkey_t *rkey = nullptr;
        ucs_status_t status = uct_cuda_node_rkey_unpack(&packed,
                                               uct_cuda_end_none(), &rkey);
        if (status == UCS_OK) {
            EXPECT_EQ(base, rkey->handle.base);
            EXPECT_EQ(length, rkey->handle.length);
            uct_cuda_node_rkey_destroy(rkey);
        }
        return status;
    }
};

TEST_F(NodeRkey, peer_is_reachable)
{
    pack_as_peer(1);
    EXPECT_EQ(UCS_OK, unpack());
    EXPECT_EQ(1u, driver.opens);
}

TEST_F(NodeRkey, complete_allocation_is_exported_from_an_address_within)
{
    pack((void*)(base + 12345));
    EXPECT_EQ(base, packed.handle.base);
    EXPECT_EQ(length, packed.handle.length);
    EXPECT_EQ(first_id, packed.handle.buffer_id);
}

/* Without hooks on CUDA's functions UCX keeps handles of freed memory */
TEST_F(NodeRkey, memory_freed_and_allocated_again_is_exported_anew)
{
    pack();
    EXPECT_EQ(first_id, packed.handle.buffer_id);
    driver.buffer_id = first_id + 1;
    pack();
    EXPECT_EQ(first_id + 1, packed.handle.buffer_id);
}

/* As in the stock module, shareable memory or not */
TEST_F(NodeRkey, own_process_is_reachable_without_a_mapping)
{
    for (bool shareable : {true, false}) {
        is_shareable = shareable;
        ++driver.buffer_id;
        pack();
        EXPECT_EQ(UCS_OK, unpack());
        EXPECT_EQ(0u, driver.opens);
    }
}

TEST_F(NodeRkey, invalid_keys_are_detected)
{
    uct_cuda_node_rkey_t *rkey = nullptr;
    const std::vector<uint64_t> noise(64, 0x5a5a5a5a5a5a5a5a);
    const uct_rkey_t address = (uct_rkey_t)noise.data();
    for (uct_rkey_t wrong : {(uct_rkey_t)UCT_INVALID_RKEY, (uct_rkey_t)0,
                             address, address + 1}) {
        EXPECT_EQ(nullptr, uct_cuda_node_rkey_get(wrong));
        EXPECT_EQ(UCS_ERR_INVALID_PARAM,
                  uct_cuda_ipc_component.rkey_release(&uct_cuda_ipc_component,
                                                      wrong, nullptr));
        void *ptr;
        EXPECT_EQ(UCS_ERR_INVALID_PARAM,
                  uct_cuda_ipc_component.rkey_ptr(&uct_cuda_ipc_component,
                                                  wrong, nullptr, base, &ptr));
    }

    pack();
    ASSERT_EQ(UCS_OK, uct_cuda_node_rkey_unpack(&packed,
                                                uct_cuda_end_none(), &rkey));
    EXPECT_EQ(rkey, uct_cuda_node_rkey_get((uct_rkey_t)rkey));
    EXPECT_EQ(UCS_OK,
              uct_cuda_ipc_component.rkey_release(&uct_cuda_ipc_component,
                                                  (uct_rkey_t)rkey, nullptr));
}

/* Each message brings the key of the one before: the driver is asked once. For
 * another GPU it is asked again. */
TEST_F(NodeRkey, same_bytes_are_unpacked_without_asking_the_driver)
{
    uct_cuda_node_rkey_t *rkey, *again;

    pack_as_peer(8);
    ASSERT_EQ(UCS_OK, uct_cuda_node_rkey_unpack(&packed, uct_cuda_end_none(),
                                                &rkey));
    const uct_cuda_end_t from = rkey->from;
    uct_cuda_node_rkey_destroy(rkey);
    EXPECT_EQ(nullptr, uct_cuda_node_rkey_get((uct_rkey_t)rkey));

    driver.table.cuCtxGetCurrent = [](CUcontext*) {
        return CUDA_ERROR_INVALID_CONTEXT;
    };
    driver.table.cuDevicePrimaryCtxGetState = [](CUdevice, unsigned*, int*) {
        return CUDA_ERROR_INVALID_DEVICE;
    };
    ASSERT_EQ(UCS_OK, uct_cuda_node_rkey_unpack(&packed, from, &rkey));
    EXPECT_EQ(rkey, uct_cuda_node_rkey_get((uct_rkey_t)rkey));
    EXPECT_EQ(UCS_ERR_UNREACHABLE,
              uct_cuda_node_rkey_unpack(&packed, from, &again));
    uct_cuda_node_rkey_destroy(rkey);
    EXPECT_EQ(UCS_ERR_UNREACHABLE,
              uct_cuda_node_rkey_unpack(&packed, uct_cuda_end_gpu(1), &rkey));
    EXPECT_EQ(1u, driver.opens);
}

/* A key remembers its mapping, but not beyond that mapping's end */
TEST_F(NodeRkey, key_outlives_its_mapping)
{
    uct_cuda_node_mapping_t *mapping;
    uct_cuda_node_rkey_t *rkey;

    pack_as_peer(9);
    ASSERT_EQ(UCS_OK, uct_cuda_node_rkey_unpack(&packed, uct_cuda_end_none(),
                                                &rkey));
    for (unsigned opens = 1; opens < 4; ++opens) {
        for (unsigned i = 0; i < 2; ++i) {
            ASSERT_EQ(UCS_OK,
                      uct_cuda_node_cache_get_in(&rkey->handle, &rkey->hint, 0,
                                                 driver.context, driver.ctx_id,
                                                 &mapping));
            EXPECT_EQ(opens, driver.opens);
            EXPECT_EQ(1u, mapping->users);
            EXPECT_EQ(1u, driver.mapped.count(mapping->mapped));
            uct_cuda_node_cache_put(mapping, true);
        }
        uct_cuda_node_cache_purge_peer(packed.handle.pid_ns,
                                       packed.handle.pid);
        uct_cuda_node_unmap_all();
    }
    uct_cuda_node_rkey_destroy(rkey);
}

/* Nothing is mapped of this process's own memory */
TEST_F(NodeRkey, own_memory_needs_no_mapping)
{
    uct_cuda_node_rkey_t *rkey = nullptr;
    CUdeviceptr mapped         = 0;

    pack();
    ASSERT_EQ(UCS_OK, uct_cuda_node_rkey_unpack(&packed,
                                                uct_cuda_end_none(), &rkey));
    EXPECT_EQ(UCS_OK, uct_cuda_node_rkey_map(rkey, base + 7, &mapped));
    EXPECT_EQ(base + 7, mapped);
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              uct_cuda_node_rkey_map(rkey, base + length, &mapped));
    EXPECT_EQ(0u, driver.opens);
    uct_cuda_node_rkey_destroy(rkey);
}

/* As in UCXX's progress thread, in which UCP packs keys */
TEST_F(NodeRkey, memory_is_exported_by_a_thread_without_a_context)
{
    driver.need_context();
    driver.table.cuCtxGetCurrent = [](CUcontext *context) {
        *context = nullptr;
        return CUDA_SUCCESS;
    };
    driver.table.cuIpcGetMemHandle = [](CUipcMemHandle *handle, CUdeviceptr) {
        memset(handle, 0x22, sizeof(*handle));
        return (fake->num_pushed == 0) ? CUDA_ERROR_INVALID_CONTEXT :
                                         CUDA_SUCCESS;
    };
    pack();
    EXPECT_EQ(UCT_CUDA_NODE_HANDLE_LEGACY, packed.handle.type);
    EXPECT_EQ(0u, driver.num_pushed);
}

/* The driver exports no memory that the program has opened by a handle. Peers
   can open the handle as well, except the memory's owner. */
TEST_F(NodeRkey, opened_memory_has_its_owners_handle)
{
    CUipcMemHandle handle, opened = {};
    uct_cuda_node_rkey_t *rkey = nullptr, *own = nullptr;

    opened.reserved[0] = 0x33;
    driver.table.cuPointerGetAttribute = [](void *value, CUpointer_attribute,
                                            CUdeviceptr) {
        *(int*)value = 0;
        return CUDA_SUCCESS;
    };
    uct_cuda_imports_add(base, &opened);
    pack_as_peer(9);
    EXPECT_EQ(UCT_CUDA_NODE_HANDLE_LEGACY, packed.handle.type);
    EXPECT_TRUE(packed.handle.is_imported);
    EXPECT_EQ(0, memcmp(&opened, packed.handle.os.bytes, sizeof(opened)));
    ASSERT_EQ(UCS_OK, uct_cuda_node_rkey_unpack(&packed, uct_cuda_end_none(),
                                                &rkey));

    packed.handle.base        += length;
    packed.handle.os.bytes[0]  = 0x44;
    driver.table.cuIpcOpenMemHandle = [](CUdeviceptr*, CUipcMemHandle,
                                         unsigned) {
        return CUDA_ERROR_INVALID_CONTEXT;
    };
    EXPECT_EQ(UCS_ERR_UNREACHABLE,
              uct_cuda_node_rkey_unpack(&packed, uct_cuda_end_none(), &own));
    EXPECT_EQ(1u, driver.mapped.size()); /* closing others would not help */
    uct_cuda_node_rkey_destroy(rkey);

    /* closed, and other memory is there now */
    EXPECT_TRUE(uct_cuda_imports_find(base, first_id, &handle));
    uct_cuda_imports_remove(base);
    EXPECT_TRUE(uct_cuda_imports_find(base, first_id, &handle));
    driver.buffer_id = first_id + 1;
    EXPECT_FALSE(uct_cuda_imports_find(base, first_id + 1, &handle));
    uct_cuda_imports_remove(base);
    EXPECT_FALSE(uct_cuda_imports_find(base, first_id, &handle));
}

TEST_F(NodeRkey, memory_that_cannot_be_shared_is_packed_as_unreachable)
{
    is_shareable = false;
    pack_as_peer(2);
    EXPECT_EQ(UCS_ERR_UNREACHABLE, unpack());
    EXPECT_EQ(0u, driver.opens);
}

TEST_F(NodeRkey, a_freed_buffer_leaves_its_peer_reachable)
{
    pack_as_peer(3);
    driver.fail      = "cuIpcOpenMemHandle";
    driver.fail_with = CUDA_ERROR_INVALID_VALUE;
    EXPECT_EQ(UCS_ERR_UNREACHABLE, unpack());
    EXPECT_EQ(UCS_OK, unpack());
}

/* The next process of its pid may be unreachable */
TEST_F(NodeRkey, a_purged_peer_is_tried_again)
{
    pack_as_peer(11);
    EXPECT_EQ(UCS_OK, unpack());
    uct_cuda_node_rkey_purge_peer(packed.handle.pid_ns, packed.handle.pid);
    uct_cuda_node_cache_purge_peer(packed.handle.pid_ns, packed.handle.pid);
    uct_cuda_node_unmap_all();
    ++packed.handle.buffer_id;
    driver.fail      = "cuIpcOpenMemHandle";
    driver.fail_with = CUDA_ERROR_INVALID_VALUE;
    EXPECT_EQ(UCS_ERR_UNREACHABLE, unpack());
}

TEST_F(NodeRkey, host_memory_is_not_packed)
{
    char host[16];
    EXPECT_EQ(UCS_ERR_INVALID_ADDR,
              uct_cuda_node_rkey_pack(memh, host, 1, &packed));
    pack(); /* for TearDown */
}

/* Results for one process do not apply to a process of another container with
   the same pid */
TEST_F(NodeRkey, each_pid_namespace_is_tried)
{
    pack_as_peer(5);
    EXPECT_EQ(UCS_OK, unpack());
    ++packed.handle.pid_ns;
    driver.fail      = "cuIpcOpenMemHandle";
    driver.fail_with = CUDA_ERROR_INVALID_VALUE;
    EXPECT_EQ(UCS_ERR_UNREACHABLE, unpack());
    EXPECT_EQ(UCS_OK, unpack());
    EXPECT_EQ(2u, driver.opens);
    uct_cuda_node_cache_purge_peer(packed.handle.pid_ns - 1, packed.handle.pid);
}

/* A key is arbitrary bytes from a peer: a stock key, a newer one, or noise */
TEST_F(NodeRkey, foreign_keys_are_unreachable)
{
    std::mt19937 random(1);
    pack_as_peer(4);
    const uct_cuda_node_packed_rkey_t good = packed;
    for (int i = 0; i < 1000; ++i) {
        unsigned char *bytes = (unsigned char*)&packed;
        for (size_t k = 0; k < sizeof(packed); ++k) {
            bytes[k] = (unsigned char)random();
        }
        EXPECT_EQ(UCS_ERR_UNREACHABLE, unpack());
    }
    packed             = good;
    packed.handle.type = 200;
    EXPECT_EQ(UCS_ERR_UNREACHABLE, unpack());
    packed.handle      = good.handle;
}

/* Each field has bounds, checked once */
TEST_F(NodeRkey, fields_out_of_bounds_are_refused)
{
    pack_as_peer(40);
    const uct_cuda_node_packed_rkey_t good = packed;
    std::vector<std::function<void(uct_cuda_node_handle_t&)>> changes = {
        [](auto &h) { h.type = UCT_CUDA_NODE_HANDLE_LAST; },
        [](auto &h) { h.pid = 0; },
        [](auto &h) { h.pid = -h.pid; },
        [](auto &h) { h.base = 0; },
        [](auto &h) { h.length = 0; },
        [](auto &h) { h.length = UINT64_MAX; },
        [](auto &h) { h.notice.slot = UCT_CUDA_NODE_INVALIDATION_SLOTS; },
        [](auto &h) { h.notice.slot = UINT32_MAX - 1; },
    };

    for (const auto &change : changes) {
        packed = good;
        change(packed.handle);
        EXPECT_EQ(UCS_ERR_UNREACHABLE, unpack());
    }
    EXPECT_EQ(0u, driver.opens);
    packed                    = good;
    packed.handle.notice.slot = UCT_CUDA_NODE_INVALIDATION_NO_SLOT;
    EXPECT_EQ(UCS_OK, unpack());
}

/* Another module's key may be shorter than ours: bytes behind its magic are not
   read */
TEST_F(NodeRkey, short_key_is_not_read_beyond_its_end)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages       = (char*)mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uct_cuda_node_rkey_t *rkey;
    uct_rkey_t host_rkey;
    void *handle;

    ASSERT_NE(MAP_FAILED, (void*)pages);
    ASSERT_EQ(0, mprotect(pages + page, page, PROT_NONE));
    EXPECT_EQ(UCS_ERR_UNREACHABLE,
              uct_cuda_node_rkey_unpack(pages + page - sizeof(uint64_t),
                                        uct_cuda_end_none(), &rkey));
    EXPECT_EQ(UCS_ERR_UNREACHABLE,
              uct_cuda_cma_rkey_unpack(nullptr,
                                       pages + page - sizeof(uint64_t),
                                       UCS_SYS_DEVICE_ID_UNKNOWN, &host_rkey,
                                       &handle));
    munmap(pages, 2 * page);
    pack();
}

/* The driver knows the length of the allocation */
TEST_F(NodeRkey, key_that_is_longer_than_its_memory_is_refused)
{
    pack_as_peer(41);
    driver.table.cuMemGetAddressRange = [](CUdeviceptr *start, size_t *size,
                                           CUdeviceptr address) {
        *start = address;
        *size  = length;
        return CUDA_SUCCESS;
    };
    packed.handle.base   -= 1 << 20;
    packed.handle.length += 1 << 20;
    EXPECT_EQ(UCS_ERR_UNREACHABLE, unpack());
    EXPECT_TRUE(driver.mapped.empty());
    packed.handle.base   += 1 << 20;
    packed.handle.length -= 1 << 20;
    EXPECT_EQ(UCS_OK, unpack());
}

/* A peer cannot make this process copy within its own memory at arbitrary
   addresses */
TEST_F(NodeRkey, keys_of_own_memory_must_match_the_driver)
{
    pack();
    const uct_cuda_node_packed_rkey_t good = packed;
    packed.handle.length += 1;
    EXPECT_EQ(UCS_ERR_UNREACHABLE, unpack());
    packed              = good;
    packed.handle.base -= 4096;
    EXPECT_EQ(UCS_ERR_UNREACHABLE, unpack());
    packed                   = good;
    packed.handle.buffer_id += 1;
    EXPECT_EQ(UCS_ERR_UNREACHABLE, unpack());
    packed = good;
    EXPECT_EQ(UCS_OK, unpack());
}

/* Reservations are filled mapping by mapping (PyTorch's expandable segments); a
   handle covers one mapping */
TEST_F(NodeRkey, buffer_in_several_mappings_is_not_for_peers)
{
    driver.offer_descriptors();
    void *last = (void*)(base + length - 4096);
    EXPECT_EQ(UCS_OK, uct_cuda_node_rkey_pack(memh, last, 4096, &packed));
    EXPECT_EQ(UCT_CUDA_NODE_HANDLE_FD, packed.handle.type);
    EXPECT_EQ(UCS_OK, uct_cuda_node_rkey_pack(memh, last, 4097, &packed));
    EXPECT_EQ(UCT_CUDA_NODE_HANDLE_NONE, packed.handle.type);
    /* before UCX 1.16 the range is not passed: pack all registered memory */
    EXPECT_EQ(UCS_OK, uct_cuda_node_rkey_pack(memh, NULL, 0, &packed));
    EXPECT_EQ(UCT_CUDA_NODE_HANDLE_FD, packed.handle.type);
}

/* UCX may round up the length of other memory */
TEST_F(NodeRkey, a_length_beyond_other_memory_is_accepted)
{
    EXPECT_EQ(UCS_OK, uct_cuda_node_rkey_pack(memh, (void*)base, length + 15,
                                              &packed));
    EXPECT_EQ(UCT_CUDA_NODE_HANDLE_LEGACY, packed.handle.type);
}

TEST_F(NodeRkey, memory_is_mapped_for_a_context)
{
    uct_cuda_node_rkey_t *rkey = nullptr;
    CUdeviceptr mapped         = 0;

    pack_as_peer(6);
    ASSERT_EQ(UCS_OK, uct_cuda_node_rkey_unpack(&packed, uct_cuda_end_none(),
                                                &rkey));
    driver.table.cuCtxGetDevice = [](CUdevice*) {
        return CUDA_ERROR_INVALID_CONTEXT;
    };
    EXPECT_EQ(UCS_ERR_NO_DEVICE, uct_cuda_node_rkey_map(rkey, base, &mapped));
    uct_cuda_node_rkey_destroy(rkey);
}

TEST_F(NodeRkey, memory_is_mapped_for_code_on_gpus)
{
    uct_cuda_node_rkey_t *rkey = nullptr;
    CUdeviceptr mapped, end;

    pack_as_peer(6);
    ASSERT_EQ(UCS_OK, uct_cuda_node_rkey_unpack(&packed,
                                                uct_cuda_end_none(), &rkey));
    EXPECT_EQ(UCS_OK, uct_cuda_node_rkey_map(rkey, base, &mapped));
    EXPECT_EQ(1u, driver.mapped.count(mapped));
    EXPECT_EQ(UCS_OK, uct_cuda_node_rkey_map(rkey, base + length - 1, &end));
    EXPECT_EQ(mapped + length - 1, end);
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              uct_cuda_node_rkey_map(rkey, base + length, &mapped));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              uct_cuda_node_rkey_map(rkey, base - 1, &mapped));
    uct_cuda_node_rkey_destroy(rkey);
    EXPECT_EQ(1u, driver.opens);
}

/* It stays mapped as long as the key exists, independent of endpoints */
TEST_F(NodeRkey, returned_memory_belongs_to_its_key)
{
    uct_cuda_node_rkey_t *rkey = nullptr;
    CUdeviceptr mapped;

    pack_as_peer(6);
    ASSERT_EQ(UCS_OK, uct_cuda_node_rkey_unpack(&packed,
                                                uct_cuda_end_none(), &rkey));
    EXPECT_EQ(UCS_OK, uct_cuda_node_rkey_map(rkey, base, &mapped));
    uct_cuda_node_cache_purge_peer(packed.handle.pid_ns, packed.handle.pid);
    EXPECT_EQ(1u, driver.mapped.count(mapped));
    uct_cuda_node_rkey_destroy(rkey);
    EXPECT_EQ(1u, uct_cuda_node_unmap_all());
    EXPECT_EQ(0u, driver.mapped.size());
}

static const size_t chunk = length / 4;
static CUdeviceptr missing; /* piece that is not mapped; 0: none */
static decltype(uct_cuda_driver_t::cuPointerGetAttributes) ask_fake;

/* Two pieces mapped side by side into a larger reservation, reported as the
   range, each exported as a file descriptor */
class NodeRkeyMapped : public NodeRkey
{
protected:
    void SetUp() override
    {
        NodeRkey::SetUp();
        uct_cuda_node_watch_replace(true);
        missing = 0;
        uct_cuda_node_memh_destroy(memh);
        ASSERT_EQ(UCS_OK, uct_cuda_node_memh_create((void*)(base + chunk),
                                                    2 * chunk, &memh));
        driver.context                    = nullptr;
        driver.is_pool                    = false;
        driver.offer_descriptors();
        driver.table.cuMemGetAddressRange = [](CUdeviceptr *start, size_t *size,
                                               CUdeviceptr address) {
            *start = address & ~(CUdeviceptr)(chunk - 1);
            *size  = chunk;
            return CUDA_SUCCESS;
        };
        ask_fake = driver.table.cuPointerGetAttributes;
        driver.table.cuPointerGetAttributes =
                [](unsigned count, CUpointer_attribute *names, void **values,
                   CUdeviceptr address) {
                    if ((missing != 0) && (address >= missing) &&
                        (address < missing + chunk)) {
                        for (unsigned i = 0; i < count; ++i) {
                            if (names[i] == CU_POINTER_ATTRIBUTE_BUFFER_ID) {
                                *(unsigned long long*)values[i] = 0;
                            }
                        }
                        return CUDA_SUCCESS;
                    }
                    fake->buffer_id = first_id + (address - base) / chunk;
                    return ask_fake(count, names, values, address);
                };
    }

    void TearDown() override
    {
        uct_cuda_node_watch_replace(false);
        NodeRkey::TearDown();
    }

    uct_cuda_node_handle_t pack_range(CUdeviceptr address, size_t size)
    {
        EXPECT_EQ(UCS_OK, uct_cuda_node_rkey_pack(memh, (void*)address, size,
                                                  &packed));
        return packed.handle;
    }
};

TEST_F(NodeRkeyMapped, pieces_have_keys_of_their_own)
{
    const CUdeviceptr second            = base + 2 * chunk;
    const uct_cuda_node_handle_t before = pack_range(base + chunk + 5, 100);

    EXPECT_EQ(UCT_CUDA_NODE_HANDLE_FD, before.type);
    EXPECT_EQ(base + chunk, before.base);
    EXPECT_EQ(chunk, before.length);
    EXPECT_EQ(second, pack_range(second, chunk).base);

    /* Peers can still fetch memory by the first key */
    const uct_cuda_node_handle_t again = pack_range(base + chunk, chunk);
    EXPECT_EQ(0, memcmp(&before, &again, sizeof(before)));
}

TEST_F(NodeRkeyMapped, a_range_over_two_pieces_is_one_key)
{
    const uct_cuda_node_handle_t range = pack_range(base + 2 * chunk - 1, 2);
    const uct_cuda_node_handle_t all   = pack_range(0, 0);

    EXPECT_EQ(UCT_CUDA_NODE_HANDLE_RANGE, range.type);
    EXPECT_EQ(base + chunk, range.base);
    EXPECT_EQ(2 * chunk, range.length);
    EXPECT_EQ(2u, range.os.pieces.count);
    EXPECT_EQ(0, memcmp(&range, &all, sizeof(range)));
    EXPECT_EQ(UCT_CUDA_NODE_HANDLE_FD,
              pack_range(base + 2 * chunk - 1, 1).type);
}

TEST_F(NodeRkeyMapped, other_pieces_are_another_range)
{
    const uct_cuda_node_handle_t before = pack_range(0, 0);

    EXPECT_TRUE(uct_cuda_node_exports_has_range(&before));
    first_id += 100;
    EXPECT_FALSE(uct_cuda_node_exports_has_range(&before));

    const uct_cuda_node_handle_t after = pack_range(0, 0);
    EXPECT_EQ(UCT_CUDA_NODE_HANDLE_RANGE, after.type);
    EXPECT_NE(before.buffer_id, after.buffer_id);
    EXPECT_TRUE(uct_cuda_node_invalidation_is_over(&before.notice));
    EXPECT_FALSE(uct_cuda_node_invalidation_is_over(&after.notice));
    first_id -= 100;
}

/* A registration outlives its memory where UCX sees no frees */
TEST_F(NodeRkeyMapped, a_range_has_holes_where_pieces_are_gone)
{
    const uct_cuda_node_handle_t before = pack_range(0, 0);

    missing = base + chunk;
    const uct_cuda_node_handle_t after = pack_range(0, 0);
    EXPECT_EQ(UCT_CUDA_NODE_HANDLE_RANGE, after.type);
    EXPECT_NE(before.buffer_id, after.buffer_id);
    EXPECT_EQ(base + chunk, after.base);
    EXPECT_EQ(2 * chunk, after.length);

    missing = 0;
    const uct_cuda_node_handle_t again = pack_range(0, 0);
    EXPECT_EQ(UCT_CUDA_NODE_HANDLE_RANGE, again.type);
    EXPECT_NE(after.buffer_id, again.buffer_id);
    EXPECT_FALSE(uct_cuda_node_exports_has_range(&after));
}

TEST_F(NodeRkeyMapped, a_piece_that_cannot_be_shared_goes_another_way)
{
    driver.table.cuMemExportToShareableHandle =
            [](void*, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
               unsigned long long) { return CUDA_ERROR_NOT_SUPPORTED; };
    EXPECT_EQ(UCT_CUDA_NODE_HANDLE_NONE, pack_range(0, 0).type);
}

/* An executed program would keep the memory in use */
TEST_F(NodeRkeyMapped, executed_programs_inherit_no_memory)
{
    static int made;

    made = -1;
    driver.table.cuMemExportToShareableHandle =
            [](void *handle, CUmemGenericAllocationHandle,
               CUmemAllocationHandleType, unsigned long long) {
                made          = memfd_create("memory", 0);
                *(int*)handle = made;
                return CUDA_SUCCESS;
            };
    (void)pack_range(base + chunk, chunk);
    ASSERT_LE(0, made);
    EXPECT_EQ(FD_CLOEXEC, fcntl(made, F_GETFD));
}

/* Ranges that nobody uses any more are kept, but not all */
TEST_F(NodeRkeyMapped, ranges_are_few)
{
    uct_cuda_node_handle_t range;
    unsigned i, before = uct_cuda_node_exports_check(0);

    for (i = 0; i < UCT_CUDA_NODE_EXPORTS_MAX_RANGES + 8; ++i) {
        first_id += 100;
        ASSERT_EQ(UCS_OK, uct_cuda_node_exports_get_range(
                                  (void*)(base + chunk), 2 * chunk, &range));
        first_id -= 100;
        uct_cuda_node_exports_put(&range);
    }
    EXPECT_LE(uct_cuda_node_exports_check(0),
              before + 3 * UCT_CUDA_NODE_EXPORTS_MAX_RANGES + 3);
}
