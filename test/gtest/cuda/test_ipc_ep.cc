/* SPDX-License-Identifier: BSD-3-Clause */
/* Results of a cuda_ipc endpoint for errors, and within its own process. */
#include "fake_driver.h"

extern "C" {
#include <uct/abi/host.h>
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/copy/choose_context.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_ep.h>
#include <uct/cuda/node/mappings.h>
#include <uct/cuda/node/rkey.h>
#include <uct/cuda/node/unmap.h>
}

#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <sys/mman.h>
#include <vector>

static uint8_t gpu[8192];

class IpcEp : public ::testing::Test
{
protected:
    FakeDriver           driver;
    uct_cuda_mp_engine_t engine = {SIZE_MAX, SIZE_MAX, 0, 0};
    uct_cuda_ipc_iface_t iface = {};
    uct_cuda_ipc_ep_t    ep    = {};
    uct_iov_t            iov   = {};
    std::vector<char>    local = std::vector<char>(4096, 'l');
    std::vector<char>    other = std::vector<char>(4096, 'o');

    void SetUp() override
    {
        driver.expect_errors();
        driver.no_memory = CUDA_ERROR_INVALID_VALUE;
        driver.offer_gpu_memory((CUdeviceptr)gpu, sizeof(gpu));
        driver.offer_gpu_copies();
        driver.offer_handles();
        ep.super.super.iface = (uct_iface_h)&iface;
        ep.is_self           = true;
        iov.buffer           = local.data();
        iov.length           = local.size();
        iov.count            = 1;
        ASSERT_EQ(UCS_OK,
                  uct_cuda_queue_init(&iface.super.queue, 16, UINT_MAX));
        iface.copier.max_streams      = 4;
        iface.copier.coalescer.engine = &engine;
        iface.copier.coalescer.queue  = &iface.super.queue;
    }

    void TearDown() override
    {
        driver.done = driver.events;
        uct_cuda_queue_cleanup(&iface.super.queue);
    }

    ucs_status_t put(const void *remote, uct_rkey_t rkey)
    {
        return uct_cuda_ipc_ep_put_zcopy(&ep.super.super, &iov, 1,
                                         (uintptr_t)remote, rkey, NULL);
    }

    ucs_status_t get(const void *remote, uct_rkey_t rkey)
    {
        return uct_cuda_ipc_ep_get_zcopy(&ep.super.super, &iov, 1,
                                         (uintptr_t)remote, rkey, NULL);
    }
};

TEST_F(IpcEp, transfer_without_a_valid_key_is_refused)
{
    const std::vector<uint64_t> noise(64, 0x5a5a5a5a5a5a5a5a);
    const uct_rkey_t address = (uct_rkey_t)noise.data();

    for (void *buffer : {(void*)local.data(), (void*)gpu}) {
        iov.buffer = buffer;
        for (uct_rkey_t rkey : {address, address + 1, (uct_rkey_t)0}) {
            EXPECT_EQ(UCS_ERR_INVALID_PARAM, put(other.data(), rkey));
            EXPECT_EQ(UCS_ERR_INVALID_PARAM, get(other.data(), rkey));
        }
    }

    /* GPU memory needs a key also within its process, a peer's memory always */
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, put(other.data(), UCT_INVALID_RKEY));
    iov.buffer = local.data();
    ep.is_self = false;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, put(other.data(), UCT_INVALID_RKEY));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, get(other.data(), UCT_INVALID_RKEY));
    EXPECT_EQ('o', other[0]);
}

TEST_F(IpcEp, host_memory_of_the_own_process_needs_no_key)
{
    EXPECT_EQ(UCS_OK, put(other.data(), UCT_INVALID_RKEY));
    EXPECT_EQ(std::vector<char>(4096, 'l'), other);
    other.assign(4096, 'n');
    EXPECT_EQ(UCS_OK, get(other.data(), UCT_INVALID_RKEY));
    EXPECT_EQ(std::vector<char>(4096, 'n'), local);
}

TEST_F(IpcEp, missing_host_memory_is_an_error)
{
    void *gone = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                      0);

    ASSERT_NE(MAP_FAILED, gone);
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, put(gone, UCT_INVALID_RKEY));
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, get(gone, UCT_INVALID_RKEY));
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, get(NULL, UCT_INVALID_RKEY));
    munmap(gone, 4096);
}

/* GPU memory behind a key of this process: a copy between plain addresses */
TEST_F(IpcEp, key_of_the_own_process)
{
    uct_cuda_node_packed_rkey_t packed;
    uct_cuda_node_rkey_t *rkey;
    uct_cuda_node_memh_t *memh;

    ASSERT_EQ(UCS_OK, uct_cuda_node_memh_create(gpu, sizeof(gpu), &memh));
    ASSERT_EQ(UCS_OK, uct_cuda_node_rkey_pack(memh, gpu, 8192, &packed));
    ASSERT_EQ(UCS_OK, uct_cuda_node_rkey_unpack(&packed,
                                                uct_cuda_end_none(), &rkey));

    memset(gpu, 'g', sizeof(gpu));
    iov.buffer = gpu + 4096;
    memset(gpu + 4096, 'h', 4096);
    EXPECT_EQ(UCS_INPROGRESS, put(gpu, (uct_rkey_t)rkey));
    EXPECT_EQ('h', gpu[4095]);
    driver.done = driver.events;
    EXPECT_EQ(1u, uct_cuda_queue_progress(&iface.super.queue));
    memset(gpu, 'g', 4096);
    EXPECT_EQ(UCS_INPROGRESS, get(gpu, (uct_rkey_t)rkey));
    EXPECT_EQ('g', gpu[8191]);
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, get(gpu + 4097, (uct_rkey_t)rkey));
    EXPECT_EQ(0u, driver.opens);

    uct_cuda_node_rkey_destroy(rkey);
    uct_cuda_node_memh_destroy(memh);
}

/* Other processes cannot map host memory made with cuMemCreate, as its key
   says. Within its own process, and at the local end, the driver copies it. */
TEST_F(IpcEp, host_memory_made_by_handle)
{
    static uint8_t remote[4096];
    uct_cuda_node_packed_rkey_t packed;
    uct_cuda_node_rkey_t *rkey;
    uct_cuda_node_memh_t *memh;

    void *const memory     = (void*)driver.offer_host_vmm(8192);
    void *const second     = (void*)(driver.gpu_base + 4096);
    uint8_t *const bytes   = driver.host_vmm.data();
    ASSERT_EQ(UCS_OK, uct_cuda_node_memh_create(memory, 8192, &memh));
    ASSERT_EQ(UCS_OK, uct_cuda_node_rkey_pack(memh, memory, 4096, &packed));
    EXPECT_EQ(UCT_CUDA_NODE_HANDLE_NONE, packed.handle.type);
    ++packed.handle.pid;
    EXPECT_EQ(UCS_ERR_UNREACHABLE,
              uct_cuda_node_rkey_unpack(&packed, uct_cuda_end_none(), &rkey));
    --packed.handle.pid;
    ASSERT_EQ(UCS_OK, uct_cuda_node_rkey_unpack(&packed, uct_cuda_end_none(),
                                                &rkey));

    memset(bytes, 'g', 4096);
    memset(bytes + 4096, 'h', 4096);
    iov.buffer = second;
    EXPECT_EQ(UCS_INPROGRESS, put(memory, (uct_rkey_t)rkey));
    EXPECT_EQ('h', bytes[4095]);
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              put((uint8_t*)memory + 1, (uct_rkey_t)rkey));

    /* The address of a peer's memory: mapped in the copy's context */
    rkey->is_self     = false;
    rkey->handle.type = UCT_CUDA_NODE_HANDLE_LEGACY;
    rkey->handle.pid  = 1;
    driver.table.cuIpcOpenMemHandle = [](CUdeviceptr *address, CUipcMemHandle,
                                         unsigned) {
        *address = (CUdeviceptr)remote;
        return CUDA_SUCCESS;
    };
    driver.table.cuIpcCloseMemHandle = [](CUdeviceptr) { return CUDA_SUCCESS; };
    EXPECT_EQ(UCS_INPROGRESS, put(memory, (uct_rkey_t)rkey));
    EXPECT_EQ('h', remote[4095]);
    EXPECT_EQ(2u, driver.any_copies);
    driver.done = driver.events;
    uct_cuda_queue_progress(&iface.super.queue);

    uct_cuda_node_rkey_destroy(rkey);
    uct_cuda_node_memh_destroy(memh);
}

static const CUcontext OWN_CONTEXT = (CUcontext)0x5000;
static CUcontext current;
static std::vector<CUcontext> enabled_in;
static CUcontext enabled_to;
static std::vector<CUcontext> reaching;

/* A copy runs in our own context if the program's context has no access to the
   memory and access cannot be enabled; queried once per key and context */
TEST_F(IpcEp, access_between_own_gpus)
{
    const int device           = UCT_CUDA_MAX_GPUS - 1; /* not used by other
                                                           tests */
    uct_cuda_context_t context = {};
    uct_cuda_node_rkey_t rkey  = {};

    driver.table.cuCtxCreate_v2 = [](CUcontext *ctx, unsigned, CUdevice) {
        *ctx = OWN_CONTEXT;
        return CUDA_SUCCESS;
    };
    driver.table.cuCtxSetLimit = [](CUlimit, size_t) { return CUDA_SUCCESS; };
    driver.table.cuCtxPushCurrent = [](CUcontext ctx) {
        current = ctx;
        return CUDA_SUCCESS;
    };
    driver.table.cuCtxEnablePeerAccess = [](CUcontext peer, unsigned) {
        enabled_in.push_back(current);
        enabled_to = peer;
        reaching.push_back(current);
        return CUDA_SUCCESS;
    };
    driver.table.cuPointerGetAttribute = [](void *, CUpointer_attribute name,
                                            CUdeviceptr) {
        return (name == CU_POINTER_ATTRIBUTE_DEVICE_POINTER) &&
                               std::count(reaching.begin(), reaching.end(),
                                          current) ?
                       CUDA_SUCCESS :
                       CUDA_ERROR_INVALID_VALUE;
    };
    enabled_in.clear();
    reaching         = {(CUcontext)0x2000};
    rkey.is_self     = true;
    rkey.handle.base = (uintptr_t)gpu;
    context.cuda     = (CUcontext)0x2000;
    context.id       = 1;
    EXPECT_EQ(nullptr,
              uct_cuda_copy_direct_context(&rkey, &context, device));
    EXPECT_TRUE(rkey.own.is_reached);
    EXPECT_EQ(0u, enabled_in.size());

    context.cuda = (CUcontext)0x3000;
    context.id   = 2;
    EXPECT_EQ(OWN_CONTEXT,
              uct_cuda_copy_direct_context(&rkey, &context, device));
    EXPECT_EQ(OWN_CONTEXT,
              uct_cuda_copy_direct_context(&rkey, &context, device));
    EXPECT_FALSE(rkey.own.is_reached);
    EXPECT_EQ(std::vector<CUcontext>{OWN_CONTEXT}, enabled_in);
    EXPECT_EQ(driver.context, enabled_to);

    /* Hardware without peer access */
    reaching.clear();
    driver.table.cuCtxEnablePeerAccess = [](CUcontext, unsigned) {
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    };
    context.id = 3;
    EXPECT_EQ(nullptr,
              uct_cuda_copy_direct_context(&rkey, &context, device));
    EXPECT_FALSE(rkey.own.is_reached);

    /* Host memory for the fake driver: without a context */
    context.id       = 4;
    rkey.handle.base = (uintptr_t)local.data();
    EXPECT_EQ(nullptr,
              uct_cuda_copy_direct_context(&rkey, &context, device));
    EXPECT_FALSE(rkey.own.is_reached);
    EXPECT_EQ(1u, enabled_in.size());
}

/* UCX's tests change only the pid, in a buffer otherwise filled with noise */
TEST_F(IpcEp, an_endpoint_is_connected_to_its_process)
{
    uct_cuda_node_device_addr_t device;
    char addr[UCT_CUDA_NODE_IFACE_ADDR_MAX];
    uct_abi_ep_params_t peer = {};

    uct_cuda_node_device_addr_self(&device, NULL);
    uct_cuda_node_iface_addr_self(&ep.peer);
    uct_cuda_node_iface_addr_pack(&ep.peer, addr);
    EXPECT_FALSE(uct_cuda_ipc_ep_is_connected(&ep.super.super, &peer));
    peer.iface_addr = (uct_iface_addr_t*)addr;
    EXPECT_FALSE(uct_cuda_ipc_ep_is_connected(&ep.super.super, &peer));
    peer.dev_addr = (uct_device_addr_t*)&device;
    EXPECT_TRUE(uct_cuda_ipc_ep_is_connected(&ep.super.super, &peer));

    const int32_t pid = 4194000;
    memset(addr, 0x33, sizeof(addr));
    memcpy(addr, &pid, sizeof(pid));
    EXPECT_FALSE(uct_cuda_ipc_ep_is_connected(&ep.super.super, &peer));
    uct_cuda_node_iface_addr_unpack(&device, addr, &ep.peer);
    memset(addr, 0x44, sizeof(addr));
    memcpy(addr, &pid, sizeof(pid));
    EXPECT_TRUE(uct_cuda_ipc_ep_is_connected(&ep.super.super, &peer));
    ++device.machine[3];
    EXPECT_FALSE(uct_cuda_ipc_ep_is_connected(&ep.super.super, &peer));
}

static ucs_status_t make_base(void *, uct_abi_host_class_t *, int *,
                              uct_abi_iface_t *)
{
    return UCS_OK;
}

/* Each worker of a process has endpoints to the same peers. The next transfer
   of each allocation maps it again once its mapping was closed. */
TEST_F(IpcEp, mappings_stay_until_the_last_endpoint_to_their_process)
{
    uct_abi_host_class_t base    = {};
    uct_cuda_node_iface_addr_t p = {};
    uct_abi_ep_params_t params   = {};
    uct_cuda_node_handle_t handle = {};
    uct_cuda_node_mapping_t *mapping;
    uct_cuda_node_device_addr_t device;
    char addr[UCT_CUDA_NODE_IFACE_ADDR_MAX];
    uct_ep_h first, second, other;

    const auto sym = uct_abi_host.sym;
    base.init      = (void*)make_base;
    uct_abi_host.sym.uct_base_ep_t_class          = &base;
    uct_abi_host.sym.ucs_class_call_cleanup_chain =
            [](uct_abi_host_class_t *, void *, int) {};

    const auto connect = [&](int32_t pid, uint32_t number, uct_ep_h *ep_p) {
        uct_cuda_node_iface_addr_self(&p);
        p.pid   = pid;
        p.iface = number;
        uct_cuda_node_iface_addr_pack(&p, addr);
        uct_cuda_node_device_addr_self(&device, NULL);
        params.dev_addr   = (uct_device_addr_t*)&device;
        params.iface_addr = (uct_iface_addr_t*)addr;
        ASSERT_EQ(UCS_OK, uct_cuda_ipc_ep_create(&iface.super.super, &params,
                                                 ep_p));
    };
    const auto map = [&] {
        handle.type      = UCT_CUDA_NODE_HANDLE_LEGACY;
        handle.machine   = uct_cuda_node_machine_self();
        handle.pid       = 4194000;
        handle.pid_ns    = p.pid_ns;
        handle.base      = 0x10000;
        handle.length    = 4096;
        handle.buffer_id = 1;
        ASSERT_EQ(UCS_OK, uct_cuda_node_cache_get(&handle, 0, &mapping));
        uct_cuda_node_cache_put(mapping, true);
    };

    connect(4194000, 1, &first);
    connect(4194000, 2, &second);
    connect(4194001, 1, &other);
    map();
    EXPECT_EQ(1u, driver.opens);
    uct_cuda_ipc_ep_destroy(first);
    uct_cuda_ipc_ep_destroy(other);
    map();
    EXPECT_EQ(1u, driver.opens);
    EXPECT_EQ(1u, uct_cuda_node_cache_count());
    uct_cuda_ipc_ep_destroy(second);
    EXPECT_EQ(0u, uct_cuda_node_cache_count());

    /* the next process of this pid */
    connect(4194000, 1, &first);
    map();
    EXPECT_EQ(2u, driver.opens);
    uct_cuda_ipc_ep_destroy(first);
    EXPECT_EQ(0u, uct_cuda_node_cache_count());
    uct_cuda_node_unmap_all();
    uct_abi_host.sym = sym;
}

/* Code on a GPU reads the endpoint in memory of its own context */
TEST_F(IpcEp, each_context_has_an_endpoint_for_gpus)
{
    static uint8_t memory[2];
    static unsigned num_allocs;
    void *first, *second, *again;

    num_allocs              = 0;
    driver.table.cuMemAlloc = [](CUdeviceptr *address, size_t) {
        *address = (CUdeviceptr)&memory[num_allocs++ % 2];
        return CUDA_SUCCESS;
    };
    driver.table.cuMemcpyHtoDAsync = [](CUdeviceptr to, const void *from,
                                        size_t size, CUstream) {
        memcpy((void*)to, from, size);
        return CUDA_SUCCESS;
    };
    ASSERT_EQ(UCS_OK, uct_cuda_ipc_ep_get_device_ep(&ep.super.super, &first));
    ASSERT_EQ(UCS_OK, uct_cuda_ipc_ep_get_device_ep(&ep.super.super, &again));
    EXPECT_EQ(first, again);
    driver.renew_context();
    ASSERT_EQ(UCS_OK, uct_cuda_ipc_ep_get_device_ep(&ep.super.super, &second));
    EXPECT_NE(first, second);
    EXPECT_EQ(2u, num_allocs);
    EXPECT_EQ(1, memory[0]);
    EXPECT_EQ(1, memory[1]);
    while (ep.device_eps != NULL) {
        uct_cuda_ipc_device_ep_t *next = ep.device_eps->next;

        free(ep.device_eps);
        ep.device_eps = next;
    }
}
