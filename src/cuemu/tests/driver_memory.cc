/* SPDX-License-Identifier: BSD-3-Clause */

/* Freed memory: its addresses, and its bytes while another process has it open.
   Bytes of new memory. */
#include "driver_fixture.h"

#include <sys/resource.h>
#include <sys/syscall.h>

static std::atomic<int> num_mapping_calls;

/* Count the calls seen by hooks on libc's functions, in a program and its
   libraries. */
extern "C" void *mmap(void *addr, size_t length, int prot, int flags, int fd,
                      off_t offset)
{
    ++num_mapping_calls;
    return (void*)syscall(SYS_mmap, addr, length, prot, flags, fd, offset);
}

extern "C" int munmap(void *addr, size_t length)
{
    ++num_mapping_calls;
    return (int)syscall(SYS_munmap, addr, length);
}

class driver_memory : public driver {
protected:
    static const size_t size = 4 * MiB;

    static unsigned type_of(CUdeviceptr va)
    {
        unsigned type = 0;
        CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
        void *value                   = &type;

        EXPECT_EQ(CUDA_SUCCESS,
                  cuPointerGetAttributes(1, &attribute, &value, va));
        return type;
    }

    /* Return the bytes in use on the current device, by all processes. */
    static size_t used()
    {
        size_t free_bytes = 0, total = 0;

        EXPECT_EQ(CUDA_SUCCESS, cuMemGetInfo(&free_bytes, &total));
        return total - free_bytes;
    }

    /* Free and allocate memory of a kind: hooks on mappings see neither. */
    static void frees_unseen(const std::function<CUdeviceptr()> &take,
                             const std::function<void(CUdeviceptr)> &give,
                             const char *perms)
    {
        CUdeviceptr first = take(), again;
        int before;

        EXPECT_EQ(perms, mapped(first));
        before = num_mapping_calls;
        give(first);
        EXPECT_EQ("---p", mapped(first));
        EXPECT_EQ(0u, type_of(first));
        again = take();
        EXPECT_EQ(first, again);
        EXPECT_EQ(perms, mapped(again));
        EXPECT_NE(0u, type_of(again));
        EXPECT_EQ(before, num_mapping_calls);
        give(again);
    }

    /* Map memory, and let device 0 use it. */
    static CUdeviceptr map_open(CUmemGenericAllocationHandle handle)
    {
        const CUmemAccessDesc access = access_of(0);
        CUdeviceptr va               = map(handle, size);

        EXPECT_EQ(CUDA_SUCCESS, cuMemSetAccess(va, size, &access, 1));
        return va;
    }

    static void unmap(CUdeviceptr va)
    {
        EXPECT_EQ(CUDA_SUCCESS, cuMemUnmap(va, size));
        EXPECT_EQ(CUDA_SUCCESS, cuMemAddressFree(va, size));
    }

    /* Create memory of device 0 for sharing by descriptor. */
    static CUmemGenericAllocationHandle create()
    {
        const CUmemAllocationProp prop = memory_of(
                0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        CUmemGenericAllocationHandle handle = 0;

        EXPECT_EQ(CUDA_SUCCESS, cuMemCreate(&handle, size, &prop, 0));
        return handle;
    }
};

/* Page-locked memory is mapped and unmapped by libc's calls, as UCX's hooks
   expect (test_cuMemAllocHost of UCX's cuda_hooks tests). */
TEST_F(driver_memory, page_locked_memory_is_mapped_through_libc)
{
    run(1, [&](int) {
        void *ptr;
        int before;

        use(0);
        before = num_mapping_calls;
        ptr    = pinned(size);
        EXPECT_LT(before, num_mapping_calls);
        EXPECT_EQ("rw-p", mapped((CUdeviceptr)(uintptr_t)ptr));

        before = num_mapping_calls;
        EXPECT_EQ(CUDA_SUCCESS, cuMemFreeHost(ptr));
        EXPECT_LT(before, num_mapping_calls);
        EXPECT_EQ("---p", mapped((CUdeviceptr)(uintptr_t)ptr));
    });
}

TEST_F(driver_memory, freed_addresses_are_reused_without_mapping_calls)
{
    run(1, [&](int) {
        const auto give = [](CUdeviceptr va) {
            EXPECT_EQ(CUDA_SUCCESS, cuMemFree(va));
        };

        use(0);
        frees_unseen([] { return alloc(size); }, give, "---p");
        frees_unseen([] { return alloc(4096); }, give, "---p");
        frees_unseen(
                [] {
                    CUdeviceptr va = 0;
                    EXPECT_EQ(CUDA_SUCCESS,
                              cuMemAllocManaged(&va, size,
                                                CU_MEM_ATTACH_GLOBAL));
                    return va;
                },
                give, "rw-p");
        frees_unseen(
                [] {
                    CUdeviceptr va = 0;
                    EXPECT_EQ(CUDA_SUCCESS,
                              cuMemAllocAsync(&va, size, nullptr));
                    return va;
                },
                [](CUdeviceptr va) {
                    CUdeviceptr other = 0;
                    EXPECT_EQ(CUDA_SUCCESS, cuMemFreeAsync(va, nullptr));
                    EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(nullptr));
                    /* makes the driver look for free memory */
                    EXPECT_EQ(CUDA_SUCCESS,
                              cuMemAllocAsync(&other, 64 * MiB, nullptr));
                    EXPECT_EQ(CUDA_SUCCESS, cuMemFree(other));
                },
                "---p");
        frees_unseen([] {
                         CUmemGenericAllocationHandle handle = create();
                         CUdeviceptr va                      = map_open(handle);
                         EXPECT_EQ(CUDA_SUCCESS, cuMemRelease(handle));
                         return va;
                     },
                     unmap, "---p");
    });
}

/* A pool counts what is in use: a free counts at once. */
TEST_F(driver_memory, pools_count_used_bytes)
{
    run(1, [&](int) {
        const CUmemPool_attribute high = CU_MEMPOOL_ATTR_USED_MEM_HIGH;
        cuuint64_t zero                = 0;
        CUdeviceptr va[2];
        CUmemoryPool pool;

        use(0);
        CU_OK(cuDeviceGetDefaultMemPool(&pool, 0));
        auto used = [&](CUmemPool_attribute what =
                                CU_MEMPOOL_ATTR_USED_MEM_CURRENT) {
            cuuint64_t bytes = ~0ull;

            EXPECT_EQ(CUDA_SUCCESS, cuMemPoolGetAttribute(pool, what, &bytes));
            return bytes;
        };
        EXPECT_EQ(0u, used());
        CU_OK(cuMemAllocAsync(&va[0], 1024, nullptr));
        CU_OK(cuMemAllocAsync(&va[1], 2048, nullptr));
        EXPECT_EQ(3072u, used());
        CU_OK(cuMemFreeAsync(va[1], nullptr));
        EXPECT_EQ(1024u, used());
        CU_OK(cuMemFreeAsync(va[0], nullptr));
        EXPECT_EQ(0u, used());
        EXPECT_EQ(3072u, used(high));
        EXPECT_LE(3072u, used(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH));
        CU_OK(cuMemAllocAsync(&va[0], 512, nullptr));
        EXPECT_EQ(3072u, used(high));
        CU_OK(cuMemPoolSetAttribute(pool, high, &zero)); /* begin again */
        EXPECT_EQ(512u, used(high));
        CU_OK(cuMemFreeAsync(va[0], nullptr));
    });
}

/* Memory without a context is refused in contexts of GPUs without access to it,
   whatever the other end is. (Each pair of kinds of memory, in contexts of
   either GPU of 2 x H200, driver 580.) */
TEST_F(driver_memory, copies_need_access_to_memory_without_a_context)
{
    run(1, [&](int) {
        CUdeviceptr vmm, pool, managed, plain[2];
        void *host;

        use(0);
        vmm = map_open(create()); /* GPU 0 alone */
        plain[0] = alloc(size);
        CU_OK(cuMemAllocAsync(&pool, size, nullptr));
        use(1);
        plain[1] = alloc(size);
        CU_OK(cuMemAllocManaged(&managed, size, CU_MEM_ATTACH_GLOBAL));
        CU_OK(cuMemHostAlloc(&host, size, CU_MEMHOSTALLOC_PORTABLE));

        auto both_ways = [&](CUdeviceptr a, CUdeviceptr b) {
            const CUresult there = cuMemcpyDtoDAsync(a, b, size, nullptr);

            EXPECT_EQ(there, cuMemcpyDtoDAsync(b, a, size, nullptr));
            EXPECT_EQ(there, cuMemcpy(a, b, size));
            return there;
        };
        const CUdeviceptr others[] = {plain[0], plain[1], managed,
                                      (CUdeviceptr)host};
        for (CUdeviceptr other : others) {
            use(1);
            EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, both_ways(vmm, other));
            EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, both_ways(pool, other));
            EXPECT_EQ(CUDA_SUCCESS, both_ways(plain[0], other));
            use(0);
            EXPECT_EQ(CUDA_SUCCESS, both_ways(vmm, other));
            EXPECT_EQ(CUDA_SUCCESS, both_ways(pool, other));
        }

        const CUmemAccessDesc access = access_of(1);
        CU_OK(cuMemSetAccess(vmm, size, &access, 1));
        use(1);
        EXPECT_EQ(CUDA_SUCCESS, both_ways(vmm, managed));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, both_ways(vmm, pool));

        /* nor is the range found there, unlike page-locked memory's */
        size_t found;
        EXPECT_EQ(CUDA_SUCCESS, cuMemGetAddressRange(nullptr, &found, vmm));
        EXPECT_EQ(CUDA_ERROR_NOT_FOUND,
                  cuMemGetAddressRange(nullptr, &found, pool));
        EXPECT_EQ(CUDA_ERROR_NOT_FOUND,
                  cuMemGetAddressRange(nullptr, &found, plain[0]));
        EXPECT_EQ(CUDA_SUCCESS, cuMemGetAddressRange(nullptr, &found,
                                                     (CUdeviceptr)host));
        EXPECT_EQ(+size, found);

        /* a fill needs the GPU's own memory, or access to it */
        EXPECT_EQ(CUDA_SUCCESS, cuMemsetD8(plain[1], 1, size));
        EXPECT_EQ(CUDA_SUCCESS, cuMemsetD8(managed, 1, size));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(plain[0], 1, size));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(pool, 1, size));
    });
}

/* Neither a copy nor a registration takes freed memory for host memory. */
TEST_F(driver_memory, freed_memory_is_not_host_memory)
{
    run(1, [&](int) {
        char word[8];

        use(0);
        CUdeviceptr va = alloc(size);
        CU_OK(cuMemFree(va));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(word, va, 8));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(va, word, 8));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  cuMemHostRegister((void*)va, 4096, 0));
    });
}

/* A descriptor keeps memory in use after its owner has unmapped and released
   it, as does each duplicate in any process. Closing the last one frees the
   memory (H100, driver 580). */
TEST_F(driver_memory, a_descriptor_keeps_memory_in_use)
{
    run(2, [&](int rank) {
        CUmemGenericAllocationHandle handle;
        CUdeviceptr address = 0;
        size_t before;
        int fd = -1;

        use(0);
        barrier();
        before = used();
        barrier();

        if (rank == 0) {
            handle  = create();
            address = map_open(handle);
            fd = export_memory(handle);
            CU_OK(cuMemRelease(handle));
        }
        barrier();
        if (rank == 1) {
            fd = take();
        }
        barrier();
        if (rank == 0) {
            unmap(address);
            EXPECT_EQ(before + size, used());
            close(fd);
        }
        barrier();
        EXPECT_EQ(before + size, used());
        barrier();

        if (rank == 1) {
            /* Can be mapped as long as the descriptor is open */
            handle = import_memory(fd);
            close(fd);
            EXPECT_EQ(before + size, used());
            CU_OK(cuMemRelease(handle));
        }
        barrier();
        EXPECT_EQ(before, used());
    });
}

/* The real driver writes no file, so a limit on file sizes does not apply.
   (Exceeding it would end the program by SIGXFSZ.) */
TEST_F(driver_memory, a_descriptor_needs_no_room_in_files)
{
    run(1, [&](int) {
        const struct rlimit none = {0, 0};
        CUmemGenericAllocationHandle handle, imported;
        int fd;

        use(0);
        handle = create();
        ASSERT_EQ(0, setrlimit(RLIMIT_FSIZE, &none));
        fd       = export_memory(handle);
        imported = import_memory(fd);
        CU_OK(cuMemRelease(imported));
        CU_OK(cuMemRelease(handle));
        close(fd);
    });
}

/* Memory opened by a peer stays in use on the node after its owner has freed it
   (H100: 10.7 GiB after 20,000 messages between temporary buffers). */
TEST_F(driver_memory, memory_opened_by_a_peer_stays_in_use)
{
    run(2, [&](int rank) {
        CUmemGenericAllocationHandle handle;
        CUdeviceptr legacy = 0, vmm = 0;
        size_t before;
        int fd = -1;

        use(0);
        barrier();
        before = used();
        barrier();

        if (rank == 0) {
            legacy = alloc(size);
            CU_OK(cuIpcGetMemHandle(&m_shared->handle[0], legacy));
            handle = create();
            vmm    = map_open(handle);
            fd = export_memory(handle);
            CU_OK(cuMemRelease(handle));
        }
        barrier();
        EXPECT_EQ(before + 2 * size, used());

        if (rank == 1) {
            CU_OK(cuIpcOpenMemHandle(&legacy, m_shared->handle[0],
                                     CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
            fd     = take();
            handle = import_memory(fd);
            vmm    = map_open(handle);
            CU_OK(cuMemRelease(handle));
            close(fd);
        }
        barrier();

        if (rank == 0) {
            CU_OK(cuMemFree(legacy));
            unmap(vmm);
            close(fd);
        }
        barrier();
        EXPECT_EQ(before + 2 * size, used());
        barrier();

        if (rank == 1) {
            CU_OK(cuIpcCloseMemHandle(legacy));
        }
        barrier();
        EXPECT_EQ(before + size, used());
        barrier();

        if (rank == 1) {
            unmap(vmm);
        }
        barrier();
        EXPECT_EQ(before, used());
        close(fd);
    });
}

/* New memory is zero, or anything else. */
TEST_F(driver_memory, new_memory_may_be_dirty)
{
    for (int dirty = 0; dirty < 2; ++dirty) {
        if (dirty) {
            setenv("CUEMU_DIRTY", "1", 1);
        }
        run(1, [&](int) {
            const uint32_t want = dirty ? 0xa5a5a5a5u : 0;
            CUdeviceptr pool, managed;

            use(0);
            CUdeviceptr va = map_open(create());
            CU_OK(cuMemAllocAsync(&pool, size, nullptr));
            CU_OK(cuMemAllocManaged(&managed, size, CU_MEM_ATTACH_GLOBAL));
            for (CUdeviceptr ptr : {va, pool, managed, alloc(size), alloc(64),
                                    (CUdeviceptr)(uintptr_t)pinned(4096)}) {
                EXPECT_EQ(std::vector<uint32_t>(16, want), get(ptr, 64));
            }
        });
    }
    unsetenv("CUEMU_DIRTY");
}

/* In their variants before CUDA 12.2, with a device or -1, and from then on,
   with a location */
TEST_F(driver_memory, hints_are_for_managed_memory)
{
    run(1, [&](int) {
        CUresult (*advise)(CUdeviceptr, size_t, int, int);
        CUresult (*prefetch)(CUdeviceptr, size_t, CUmemLocation, unsigned,
                             CUstream);
        CUmemLocation at = {};
        CUdeviceptr managed;

        use(0);
        CUdeviceptr plain = alloc(4096);
        CU_OK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
        CU_OK(cuGetProcAddress("cuMemAdvise", (void**)&advise, 12000, 0, NULL));
        CU_OK(cuGetProcAddress("cuMemPrefetchAsync", (void**)&prefetch, 13000,
                               0, NULL));
        CU_OK(advise(managed, 4096, 1, 0));
        CU_OK(advise(managed, 4096, 1, -1));
        CU_OK(advise(managed, 4096, 1, 99)); /* read mostly: by any device */
        EXPECT_EQ(CUDA_ERROR_INVALID_DEVICE, advise(managed, 4096, 3, 99));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, advise(managed, 4096, 0, 0));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, advise(plain, 4096, 1, 0));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  prefetch(managed, 4096, at, 0, nullptr));
        at.type = CU_MEM_LOCATION_TYPE_DEVICE;
        at.id   = 1;
        CU_OK(prefetch(managed, 4096, at, 0, nullptr));
        at.id = 99;
        EXPECT_EQ(CUDA_ERROR_INVALID_DEVICE,
                  prefetch(managed, 4096, at, 0, nullptr));
    });
}
