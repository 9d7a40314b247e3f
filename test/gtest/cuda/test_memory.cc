/* SPDX-License-Identifier: BSD-3-Clause */
/* Queries of the driver about a buffer, and their number. */
#include "fake_driver.h"

extern "C" {
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/copy/choose_context.h>
}

#include <gtest/gtest.h>

#include <set>

class Memory : public ::testing::Test
{
protected:
    FakeDriver driver;
    char buffer[2];

    void SetUp() override
    {
        driver.gpu_device = 3;
        driver.offer_gpu_memory((CUdeviceptr)buffer, sizeof(buffer));
    }

    bool is_vmm()
    {
        uct_cuda_pointer_sharing_t sharing;

        uct_cuda_pointer_sharing(&driver.table, (CUdeviceptr)&buffer[0],
                                 &sharing);
        return sharing.is_vmm;
    }

    int place(const void *address)
    {
        CUcontext context    = nullptr;
        uct_cuda_end_t found = uct_cuda_end_none();

        uct_cuda_memory_place(address, &found, &context);
        EXPECT_EQ(driver.context, context);
        EXPECT_TRUE(uct_cuda_end_is_gpu(found));
        return uct_cuda_end_device(found);
    }
};

TEST_F(Memory, a_remembered_query_serves_one_operation)
{
    uct_cuda_memory_t memory;

    uct_cuda_memory_query(&buffer[0], 1, &memory);
    uct_cuda_memory_remember(&buffer[0], &memory);
    EXPECT_EQ(3, place(&buffer[0]));
    EXPECT_EQ(1u, driver.questions);

    driver.gpu_device = 5;
    EXPECT_EQ(5, place(&buffer[0]));
    EXPECT_EQ(2u, driver.questions);
}

TEST_F(Memory, another_query_replaces_the_remembered_one)
{
    uct_cuda_memory_t memory;

    uct_cuda_memory_query(&buffer[0], 1, &memory);
    uct_cuda_memory_remember(&buffer[0], &memory);
    driver.gpu_device = 5;
    EXPECT_EQ(5, place(&buffer[1]));
    uct_cuda_memory_query(&buffer[0], 1, &memory);
    EXPECT_EQ(5, place(&buffer[0]));
    EXPECT_EQ(4u, driver.questions);
}

/* Memory without a context may be mapped into a larger reservation */
TEST_F(Memory, a_reservation_is_no_allocation)
{
    uct_cuda_memory_t memory;

    driver.context                    = nullptr;
    driver.table.cuMemGetAddressRange = [](CUdeviceptr *base, size_t *length,
                                           CUdeviceptr address) {
        *base   = address;
        *length = 1;
        return fake->fails("cuMemGetAddressRange") ? fake->fail_with :
                                                     CUDA_SUCCESS;
    };
    uct_cuda_memory_query(&buffer[1], 1, &memory);
    EXPECT_EQ((CUdeviceptr)&buffer[1], memory.base);
    EXPECT_EQ(1u, memory.length);

    /* The driver answers only in a context, which this thread has not */
    driver.offer_gpu_range();
    driver.need_context();
    uct_cuda_memory_query(&buffer[1], 1, &memory);
    EXPECT_EQ((CUdeviceptr)&buffer[0], memory.base);
    EXPECT_EQ(2u, memory.length);
    EXPECT_EQ(0u, driver.num_pushed);

    driver.fail = "cuMemGetAddressRange";
    uct_cuda_memory_query(&buffer[1], 7, &memory);
    EXPECT_EQ((CUdeviceptr)&buffer[1], memory.base);
    EXPECT_EQ(7u, memory.length);
}

TEST_F(Memory, made_by_handle_or_not)
{
    static bool is_handle;
    static int held;

    held                                     = 0;
    driver.table.cuMemRetainAllocationHandle =
            [](CUmemGenericAllocationHandle*, void*) {
                held += is_handle;
                return is_handle ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
            };
    driver.table.cuMemRelease = [](CUmemGenericAllocationHandle) {
        --held;
        return CUDA_SUCCESS;
    };
    driver.context = nullptr;
    for (bool is : {true, false}) {
        driver.is_pool = !is;
        is_handle      = !is; /* is not queried */
        EXPECT_EQ(is, is_vmm());
        EXPECT_EQ(0, held);
    }

    /* before CUDA 11.3 */
    driver.table.cuPointerGetAttributes = [](unsigned, CUpointer_attribute*,
                                             void**, CUdeviceptr) {
        return CUDA_ERROR_INVALID_VALUE;
    };
    for (bool is : {true, false}) {
        is_handle = is;
        EXPECT_EQ(is, is_vmm());
        EXPECT_EQ(0, held);
    }

    driver.table.cuMemRetainAllocationHandle = NULL; /* before CUDA 11 */
    EXPECT_FALSE(is_vmm());
}

/* The driver reports host memory without a context; the CPU has no access */
TEST_F(Memory, host_memory_made_by_handle_is_for_the_driver_only)
{
    CUcontext context    = driver.context;
    uct_cuda_end_t found = uct_cuda_end_none();
    uct_cuda_memory_t memory;

    const CUdeviceptr base = driver.offer_host_vmm(8192);
    uct_cuda_memory_query((void*)(base + 1), 1, &memory);
    EXPECT_EQ(UCS_MEMORY_TYPE_CUDA, memory.type);
    EXPECT_TRUE(uct_cuda_end_is_host_vmm(memory.end));
    EXPECT_EQ(nullptr, memory.context);
    EXPECT_FALSE(memory.is_pinned);
    EXPECT_EQ(base + 1, memory.base); /* not 0 */
    EXPECT_EQ(1u, memory.length);
    uct_cuda_memory_place((void*)(base + 1), &found, &context);
    EXPECT_TRUE(uct_cuda_end_is_host_vmm(found));
    EXPECT_EQ(nullptr, context);
    EXPECT_EQ(0, driver.handles_held);

    /* Page-locked memory without a context, and a driver from before CUDA 11 */
    driver.table.cuMemRetainAllocationHandle = NULL;
    uct_cuda_memory_query((void*)base, 1, &memory);
    EXPECT_EQ(UCS_MEMORY_TYPE_HOST, memory.type);
    EXPECT_TRUE(memory.is_pinned);
    uct_cuda_memory_place((void*)base, &found, &context);
    EXPECT_TRUE(uct_cuda_end_is_host(found));
}

static std::set<int> may_touch; /* GPUs with access */
static CUcontext pushed;

/* The best GPU with access copies */
TEST_F(Memory, host_memory_made_by_handle_is_copied_by_a_gpu_with_access)
{
    const CUdeviceptr memory = driver.offer_host_vmm(8192);
    uct_cuda_ctx_scope_t context;
    uct_cuda_copy_t copy;

    driver.table.cuMemGetAccess = [](unsigned long long *flags,
                                     const CUmemLocation *location,
                                     CUdeviceptr) {
        EXPECT_EQ(CU_MEM_LOCATION_TYPE_DEVICE, location->type);
        *flags = may_touch.count(location->id) ?
                         CU_MEM_ACCESS_FLAGS_PROT_READWRITE :
                         CU_MEM_ACCESS_FLAGS_PROT_NONE;
        return CUDA_SUCCESS;
    };
    driver.table.cuCtxPushCurrent = [](CUcontext ctx) {
        pushed = ctx;
        return CUDA_SUCCESS;
    };
    driver.table.cuDeviceGetCount = [](int *count) {
        *count = 0;
        return CUDA_SUCCESS;
    };
    driver.table.cuDevicePrimaryCtxGetState = [](CUdevice, unsigned*,
                                                 int *is_active) {
        *is_active = 1;
        return CUDA_SUCCESS;
    };
    driver.table.cuDevicePrimaryCtxRetain = [](CUcontext *ctx, CUdevice) {
        *ctx = (CUcontext)0x7000;
        return CUDA_SUCCESS;
    };
    pushed            = nullptr;
    driver.gpu_device = 0; /* is current */
    may_touch         = {0, 5};
    uct_cuda_copy_init(&copy, (void*)memory, NULL, 0, 1, true, NULL);
    ASSERT_EQ(UCS_OK,
              uct_cuda_copy_enter(&copy, uct_cuda_end_gpu(5), &context));
    EXPECT_EQ((CUcontext)0x7000, pushed);
    EXPECT_EQ(5, context.device);

    pushed = nullptr;
    for (uct_cuda_end_t other : {uct_cuda_end_gpu(4), uct_cuda_end_none()}) {
        ASSERT_EQ(UCS_OK, uct_cuda_copy_enter(&copy, other, &context));
        EXPECT_EQ(nullptr, pushed);
        EXPECT_EQ(0, context.device);
    }

    may_touch = {7}; /* it has no context here */
    EXPECT_EQ(UCS_ERR_NO_DEVICE,
              uct_cuda_copy_enter(&copy, uct_cuda_end_gpu(5), &context));
}

/* A copy of it does not repeat this query */
TEST_F(Memory, page_locked_memory_of_a_context_is_queried_once)
{
    CUcontext context    = nullptr;
    uct_cuda_end_t found = uct_cuda_end_none();
    uct_cuda_memory_t memory;

    driver.table.cuPointerGetAttributes = [](unsigned, CUpointer_attribute*,
                                             void **values, CUdeviceptr) {
        *(unsigned*)values[0]  = CU_MEMORYTYPE_HOST;
        *(CUcontext*)values[2] = fake->context;
        return CUDA_SUCCESS;
    };
    driver.table.cuMemRetainAllocationHandle =
            [](CUmemGenericAllocationHandle*, void*) {
                ADD_FAILURE() << "asked again";
                return CUDA_ERROR_INVALID_VALUE;
            };
    uct_cuda_memory_query(&buffer[0], 1, &memory);
    EXPECT_TRUE(memory.is_pinned);
    uct_cuda_memory_place(&buffer[0], &found, &context);
    EXPECT_TRUE(uct_cuda_end_is_host(found));
}

/* Counts how often the attribute is set, and for which addresses */
class MemorySync : public Memory
{
protected:
    static unsigned attributes, waits, flags;
    static CUstream stream;

    void SetUp() override
    {
        Memory::SetUp();
        attributes = waits = flags         = 0;
        stream                             = nullptr;
        driver.table.cuPointerSetAttribute = [](const void *value,
                                                CUpointer_attribute name,
                                                CUdeviceptr address) {
            attributes += (name == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) &&
                          (*(const unsigned*)value == 1) &&
                          (address == fake->gpu_base);
            return CUDA_SUCCESS;
        };
    }

    /* Make memory of cuMemCreate: no context, pool or attribute. */
    void make_vmm()
    {
        driver.renew_context();
        driver.context                     = nullptr;
        driver.table.cuMemGetAddressRange  = [](CUdeviceptr*, size_t*,
                                               CUdeviceptr) {
            return CUDA_ERROR_NOT_FOUND;
        };
        driver.is_pool                     = false;
        driver.table.cuDevicePrimaryCtxGetState = [](CUdevice, unsigned*,
                                                     int *is_active) {
            *is_active = 1;
            return CUDA_SUCCESS;
        };
        driver.table.cuDevicePrimaryCtxRetain = [](CUcontext *ctx, CUdevice) {
            *ctx          = (CUcontext)0x2000;
            fake->context = *ctx;
            return CUDA_SUCCESS;
        };
        driver.table.cuDevicePrimaryCtxRelease = [](CUdevice) {
            fake->context = nullptr;
            return CUDA_SUCCESS;
        };
        driver.table.cuCtxGetFlags = [](unsigned *value) {
            *value = flags;
            return CUDA_SUCCESS;
        };
        driver.table.cuStreamCreate = [](CUstream *made, unsigned how) {
            EXPECT_EQ((unsigned)CU_STREAM_DEFAULT, how);
            *made = stream = (CUstream)0x3000;
            return CUDA_SUCCESS;
        };
        driver.table.cuEventRecord = [](CUevent, CUstream where) {
            EXPECT_EQ(stream, where);
            waits = 0;
            return CUDA_SUCCESS;
        };
        driver.table.cuEventQuery = [](CUevent) {
            return (++waits < 3) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
        };
    }

    /* Use an allocation unknown to all other tests. */
    void sync(unsigned long long id)
    {
        driver.buffer_id = (1ull << 40) + id;
        uct_cuda_memory_sync(&buffer[0]);
    }
};

unsigned MemorySync::attributes, MemorySync::waits, MemorySync::flags;
CUstream MemorySync::stream;

/* Without it the program's copies may not have ended when the driver returns */
TEST_F(MemorySync, the_attribute_is_set_once_per_allocation)
{
    sync(1001);
    EXPECT_EQ(1u, attributes);
    sync(1001);
    EXPECT_EQ(1u, attributes);
    sync(1002); /* freed, and replaced by another allocation */
    sync(1001 + 64); /* another allocation in the first one's entry */
    EXPECT_EQ(3u, attributes);
    sync(1001);
    EXPECT_EQ(4u, attributes);
}

TEST_F(MemorySync, a_failed_attribute_is_set_again)
{
    driver.table.cuPointerSetAttribute = [](const void*, CUpointer_attribute,
                                            CUdeviceptr) {
        ++attributes;
        return CUDA_ERROR_UNKNOWN;
    };
    sync(2001);
    sync(2001);
    EXPECT_EQ(2u, attributes);
}

/* The attribute has no effect (H100, driver 580) */
TEST_F(MemorySync, memory_of_pools_gets_no_attribute)
{
    make_vmm();
    driver.is_pool = true;
    sync(3001);
    EXPECT_EQ(0u, attributes);
    EXPECT_EQ(3u, waits);
}

/* Each time, by an event in a blocking stream, until it completes */
TEST_F(MemorySync, memory_without_the_attribute_is_waited_for)
{
    CUcontext context;
    uct_cuda_end_t end;

    make_vmm();
    sync(4001);
    EXPECT_EQ(3u, waits);
    waits = 0;
    sync(4001);
    EXPECT_EQ(3u, waits);
    waits = 0;
    uct_cuda_memory_place(&buffer[0], &end, &context);
    EXPECT_EQ(3u, waits);
    EXPECT_EQ(0u, attributes);
}

TEST_F(MemorySync, no_wait_if_the_context_synchronizes_copies)
{
    make_vmm();
    flags = 0x80; /* CU_CTX_SYNC_MEMOPS */
    sync(5001);
    EXPECT_EQ(0u, waits);
}

/* Work of the program in the legacy stream may wait for the program */
TEST_F(MemorySync, the_wait_is_limited)
{
    make_vmm();
    driver.table.cuEventQuery = [](CUevent) { return CUDA_ERROR_NOT_READY; };
    sync(6001);
}
