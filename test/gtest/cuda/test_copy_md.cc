/* SPDX-License-Identifier: BSD-3-Clause */
/* What cuda_copy's memory domain answers to the question what is where. */
#include "fake_driver.h"

extern "C" {
#include <uct/cuda/cuda_copy/cuda_copy_md.h>
}

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

static const CUdeviceptr base = 0x7f0000000000;
static const size_t length    = 1024;

class CopyMd : public ::testing::Test
{
protected:
    FakeDriver driver;
    uct_abi_md_t *md = nullptr;

    void SetUp() override
    {
        const uct_abi_config_t &config = uct_cuda_copy_component.config;
        std::vector<char> values(config.size);

        driver.offer_gpu_memory(base, length);
        driver.table.cuDeviceTotalMem = [](size_t *bytes, CUdevice) {
            *bytes = 1ul << 30;
            return CUDA_SUCCESS;
        };
        driver.table.cuDeviceGetCount = [](int *count) {
            *count = 0;
            return CUDA_SUCCESS;
        };
        driver.table.cuMemGetAddressRange = [](CUdeviceptr *start, size_t *size,
                                               CUdeviceptr) {
            *start = base;
            *size  = length;
            return CUDA_SUCCESS;
        };
        driver.table.cuMemRetainAllocationHandle =
            [](CUmemGenericAllocationHandle *, void *) { return CUDA_SUCCESS; };
        driver.table.cuMemRelease = [](CUmemGenericAllocationHandle) {
            return CUDA_SUCCESS;
        };
        driver.table.cuPointerSetAttribute = NULL;
        driver.table.cuCtxSetFlags         = NULL;
        for (unsigned i = 0; config.fields[i].type != UCT_ABI_CONFIG_END; ++i) {
            if (strcmp(config.fields[i].name, "REG_WHOLE_ALLOC") == 0) {
                *(int*)&values[config.fields[i].offset] = UCT_ABI_ON;
            } else if (strcmp(config.fields[i].name, "ASYNC_MEM_TYPE") == 0) {
                *(int*)&values[config.fields[i].offset] = UCT_ABI_MEM_TYPE_CUDA;
            }
        }
        ASSERT_EQ(UCS_OK,
                  uct_cuda_copy_component.md_open(&uct_cuda_copy_component,
                                                  "cuda_cpy", values.data(),
                                                  &md));
    }

    void TearDown() override
    {
        md->ops->close(md);
    }

    /* Bytes of the allocation that a range is said to belong to */
    size_t reported(CUdeviceptr address, size_t bytes)
    {
        uct_abi_mem_attr_t attr = {};
        attr.field_mask   = UCT_ABI_MEM_ATTR_BASE_ADDRESS |
                            UCT_ABI_MEM_ATTR_ALLOC_LENGTH;
        attr.base_address = (void*)address;
        attr.alloc_length = bytes;
        EXPECT_EQ(UCS_OK,
                  md->ops->mem_query(md, (void*)address, bytes, &attr));
        return attr.alloc_length;
    }
};

/* As UCX's tests ask, whatever length comes with the address */
TEST_F(CopyMd, allocation_is_reported_whole)
{
    EXPECT_EQ(length, reported(base, length));
    EXPECT_EQ(length, reported(base + 100, 10));
    EXPECT_EQ(length, reported(base + 1000, 1000));
}

/* Behind memory made with cuMemCreate another piece of it may follow */
TEST_F(CopyMd, range_over_several_mappings_is_what_it_is)
{
    driver.context = nullptr;
    EXPECT_EQ(length, reported(base + 100, 10));
    EXPECT_EQ(1000u, reported(base + 1000, 1000));
}

/* The driver is asked once about memory that it has just given */
TEST_F(CopyMd, allocated_memory_is_looked_at_once)
{
    static unsigned waits;
    size_t size     = length;
    void *address   = nullptr;
    uct_mem_h memh;

    waits                       = 0;
    driver.table.cuCtxGetDevice = [](CUdevice *device) {
        *device = 0;
        return CUDA_SUCCESS;
    };
    driver.table.cuMemAlloc = [](CUdeviceptr *memory, size_t) {
        *memory = base;
        return CUDA_SUCCESS;
    };
    driver.table.cuMemFree = [](CUdeviceptr) { return CUDA_SUCCESS; };
    driver.table.cuPointerSetAttribute = [](const void*,
                                            CUpointer_attribute name,
                                            CUdeviceptr) {
        waits += (name == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
        return CUDA_SUCCESS;
    };

    driver.buffer_id = 2001;
    driver.questions = 0;
    ASSERT_EQ(UCS_OK,
              md->ops->mem_alloc(md, &size, &address, UCT_ABI_MEM_TYPE_CUDA,
                                 UCT_ABI_SYS_DEVICE_UNKNOWN, 0, "test", &memh));
    EXPECT_EQ((void*)base, address);
    EXPECT_EQ(1u, driver.questions);
    EXPECT_EQ(1u, waits);
    EXPECT_EQ(UCS_OK, md->ops->mem_free(md, memh));
}
