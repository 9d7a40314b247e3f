/* SPDX-License-Identifier: BSD-3-Clause */
/* Answers of cuda_copy's memory domain about locations of memory. */
#include "fake_driver.h"

extern "C" {
#include <uct/cuda/cuda_copy/cuda_copy_md.h>
}

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstring>
#include <vector>

static const CUdeviceptr base = 0x7f0000000000;
static const size_t length    = 1024;

class CopyMd : public ::testing::Test
{
protected:
    FakeDriver driver;
    uct_abi_md_t *md = nullptr;
    static size_t gpu_memory;

    void SetUp() override
    {
        open(UCT_ABI_ON, 1ul << 30);
    }

    void open(uct_abi_on_off_auto_t whole, size_t memory,
              uct_abi_ternary_t dmabuf = UCT_ABI_NO,
              bool as_managed = false)
    {
        const uct_abi_config_t &config = uct_cuda_copy_component.config;
        std::vector<char> values(config.size);

        gpu_memory = memory;
        driver.offer_gpu_memory(base, length);
        driver.offer_gpu_range();
        driver.table.cuDeviceGetCount = [](int *count) {
            *count = 0;
            return CUDA_SUCCESS;
        };
        driver.table.cuMemRetainAllocationHandle =
            [](CUmemGenericAllocationHandle *, void *) { return CUDA_SUCCESS; };
        driver.table.cuMemRelease = [](CUmemGenericAllocationHandle) {
            return CUDA_SUCCESS;
        };
        driver.table.cuDeviceTotalMem = [](size_t *bytes, CUdevice) {
            *bytes = gpu_memory;
            return CUDA_SUCCESS;
        };
        driver.table.cuPointerSetAttribute = NULL;
        for (unsigned i = 0; config.fields[i].type != UCT_ABI_CONFIG_END; ++i) {
            if (strcmp(config.fields[i].name, "REG_WHOLE_ALLOC") == 0) {
                *(int*)&values[config.fields[i].offset] = whole;
            } else if (strcmp(config.fields[i].name, "MAX_REG_RATIO") == 0) {
                *(double*)&values[config.fields[i].offset] = 0.25;
            } else if (strcmp(config.fields[i].name, "DMABUF") == 0) {
                *(int*)&values[config.fields[i].offset] = dmabuf;
            } else if (strcmp(config.fields[i].name, "ASYNC_MEM_TYPE") == 0) {
                *(int*)&values[config.fields[i].offset] =
                        as_managed ? UCT_ABI_MEM_TYPE_CUDA_MANAGED :
                                     UCT_ABI_MEM_TYPE_CUDA;
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

    /* Return the bytes of the allocation reported for a range. */
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

size_t CopyMd::gpu_memory;

/* For every address and length inside it, as UCX's tests expect */
TEST_F(CopyMd, the_whole_allocation_is_reported)
{
    EXPECT_EQ(length, reported(base, length));
    EXPECT_EQ(length, reported(base + 100, 10));
    EXPECT_EQ(length, reported(base + 1000, 1000));
}

/* By the user's setting, unless it is a large part of the GPU's memory */
TEST_F(CopyMd, large_allocations_are_reported_whole_by_setting)
{
    for (size_t memory : {4 * length, 4 * length - 4}) {
        TearDown();
        open(UCT_ABI_ON_OFF_AUTO, memory);
        EXPECT_EQ((memory == 4 * length) ? length : 10u,
                  reported(base + 100, 10));
    }
}

/* Rounded to full pages; the address lies inside */
TEST_F(CopyMd, dmabuf_has_the_allocations_pages)
{
    static int fd;
    uct_abi_mem_attr_t attr = {};

    TearDown();
    driver.table.cuDeviceGetAttribute = [](int *value, CUdevice_attribute,
                                           CUdevice) {
        *value = 1;
        return CUDA_SUCCESS;
    };
    driver.table.cuMemGetHandleForAddressRange =
            [](void *handle, CUdeviceptr begin, size_t bytes,
               CUmemRangeHandleType, unsigned long long) {
                EXPECT_EQ(base, begin);
                EXPECT_EQ((size_t)sysconf(_SC_PAGESIZE), bytes);
                *(int*)handle = fd = dup(0);
                return CUDA_SUCCESS;
            };
    open(UCT_ABI_ON, 1ul << 30, UCT_ABI_YES);
    for (unsigned with_fd : {0, 1}) {
        attr.field_mask = UCT_ABI_MEM_ATTR_DMABUF_OFFSET |
                          (with_fd ? UCT_ABI_MEM_ATTR_DMABUF_FD : 0);
        attr.base_address = (void*)(base + 100);
        attr.alloc_length = 10;
        attr.dmabuf_fd    = -1;
        ASSERT_EQ(UCS_OK,
                  md->ops->mem_query(md, (void*)(base + 100), 10, &attr));
        EXPECT_EQ(100u, attr.dmabuf_offset);
    }
    EXPECT_EQ(fd, attr.dmabuf_fd);
    EXPECT_EQ(0, close(fd));
}

/* Behind memory made with cuMemCreate a second piece may be mapped */
TEST_F(CopyMd, a_range_over_several_mappings_is_reported_as_given)
{
    driver.context = nullptr;
    EXPECT_EQ(length, reported(base + 100, 10));
    EXPECT_EQ(1000u, reported(base + 1000, 1000));
}

/* Reported as GPU memory, so that the CPU does not access it, without a GPU,
   since it is near a NUMA node's processors. Pools have no effect on this. */
TEST_F(CopyMd, host_memory_made_by_handle_counts_as_a_gpus)
{
    uct_abi_mem_type_t type;
    uct_abi_mem_attr_t attr;
    uct_mem_h memh;

    for (bool as_managed : {false, true}) {
        TearDown();
        open(UCT_ABI_ON, 1ul << 30, UCT_ABI_NO, as_managed);
        const CUdeviceptr memory = driver.offer_host_vmm(8192);
        attr                = {};
        attr.field_mask     = ~0ul;
        attr.sys_dev        = 3;
        attr.is_registrable = 1;
        attr.base_address   = (void*)(memory + 100);
        attr.alloc_length   = 10;
        attr.dmabuf_fd      = -1;
        ASSERT_EQ(UCS_OK,
                  md->ops->mem_query(md, (void*)(memory + 100), 10, &attr));
        EXPECT_EQ(UCT_ABI_MEM_TYPE_CUDA, attr.mem_type);
        EXPECT_EQ(UCT_ABI_SYS_DEVICE_UNKNOWN, attr.sys_dev);
        EXPECT_EQ(1, attr.is_registrable);
        EXPECT_EQ((void*)(memory + 100), attr.base_address);
        EXPECT_EQ(10u, attr.alloc_length);
        EXPECT_EQ(-1, attr.dmabuf_fd);
        ASSERT_EQ(UCS_OK, md->ops->detect_memory_type(md, (void*)memory, 1,
                                                      &type));
        EXPECT_EQ(UCT_ABI_MEM_TYPE_CUDA, type);
    }

    /* It is page-locked by definition */
    driver.table.cuMemHostRegister = [](void*, size_t, unsigned) {
        ADD_FAILURE() << "page-locked once more";
        return CUDA_ERROR_UNKNOWN;
    };
    ASSERT_EQ(UCS_OK, md->ops->mem_reg(md, (void*)driver.gpu_base, 8192,
                                       0, &memh));
    EXPECT_EQ(UCS_OK, md->ops->mem_dereg(md, memh, NULL));
}

/* The driver is queried once about newly allocated memory */
TEST_F(CopyMd, allocated_memory_is_queried_once)
{
    static unsigned waits;
    size_t size     = length;
    void *address   = nullptr;
    uct_mem_h memh;

    waits                       = 0;
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
