/* SPDX-License-Identifier: BSD-3-Clause */

/* Memory of one process in another: handles, death of a process, access. */
#include "driver_fixture.h"

#include <csignal>
#include <fcntl.h>

TEST_F(driver, ipc_moves_bytes_both_ways)
{
    run(2, [&](int rank) {
        const size_t size = 8 * MiB + 4096;

        use(rank);
        CUdeviceptr mine = alloc(size);
        put(mine, pattern(size, 10 + rank));
        CU_OK(cuIpcGetMemHandle(&m_shared->handle[rank], mine));
        m_shared->value[rank] = mine;
        barrier();

        if (rank == 0) {
            CUdeviceptr theirs = 0, again = 0;
            CU_OK(cuIpcOpenMemHandle(&theirs, m_shared->handle[1],
                                     CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
            EXPECT_NE(m_shared->value[1], theirs);
            /* opening again gives the same mapping */
            CU_OK(cuIpcOpenMemHandle(&again, m_shared->handle[1],
                                     CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
            EXPECT_EQ(theirs, again);

            EXPECT_EQ(pattern(size, 11), get(theirs, size));
            CU_OK(cuMemcpyAsync(theirs + 512, mine, size - 512, nullptr));
            CU_OK(cuStreamSynchronize(nullptr));
            CU_OK(cuIpcCloseMemHandle(theirs));
            CU_OK(cuIpcCloseMemHandle(theirs));
            EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(theirs));
        }
        barrier();

        if (rank == 1) {
            auto want = pattern(size, 11), got = get(mine, size);
            auto sent = pattern(size, 10);
            std::copy(sent.begin(), sent.end() - 128, want.begin() + 128);
            EXPECT_EQ(want, got);
        }
    });
}

TEST_F(driver, ipc_of_small_allocations)
{
    run(2, [&](int rank) {
        use(rank);
        CUdeviceptr ptr[3];
        for (int i = 0; i < 3; ++i) {
            ptr[i] = alloc(4096);
            put(ptr[i], pattern(4096, 20 + i));
        }

        if (rank == 1) {
            CUdeviceptr base;
            size_t size;
            CU_OK(cuMemGetAddressRange(&base, &size, ptr[1] + 100));
            EXPECT_EQ(ptr[1], base);
            EXPECT_EQ(4096u, size);
            CU_OK(cuIpcGetMemHandle(&m_shared->handle[0], ptr[1]));
        }
        barrier();

        if (rank == 0) {
            CUdeviceptr theirs;
            CU_OK(cuIpcOpenMemHandle(&theirs, m_shared->handle[0], 1));
            EXPECT_EQ(pattern(4096, 21), get(theirs, 4096));
            CU_OK(cuIpcCloseMemHandle(theirs));
        }
        barrier();
    });
}

/* An allocation at the address of freed memory cannot be opened until the old
   mapping is closed. This concerns small allocations: they share a block as
   long as one of them exists. */
TEST_F(driver, ipc_of_memory_that_replaces_mapped_memory)
{
    run(2, [&](int rank) {
        const unsigned flags = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
        CUdeviceptr mine = 0, theirs[2] = {0, 0};

        use(rank);
        (void)alloc(4096);
        for (int i = 0; i < 2; ++i) {
            if (rank == 1) {
                mine = alloc(4096);
                CU_OK(cuIpcGetMemHandle(&m_shared->handle[i], mine));
                m_shared->value[i] = mine;
            }
            barrier();
            if ((rank == 0) && (i == 0)) {
                CU_OK(cuIpcOpenMemHandle(&theirs[0], m_shared->handle[0],
                                         flags));
            }
            barrier();
            if ((rank == 1) && (i == 0)) {
                CU_OK(cuMemFree(mine));
            }
        }

        if ((rank == 0) && (m_shared->value[0] == m_shared->value[1])) {
            EXPECT_EQ(CUDA_ERROR_ALREADY_MAPPED,
                      cuIpcOpenMemHandle(&theirs[1], m_shared->handle[1],
                                         flags));
            CU_OK(cuIpcCloseMemHandle(theirs[0]));
            CU_OK(cuIpcOpenMemHandle(&theirs[1], m_shared->handle[1], flags));
            CU_OK(cuIpcCloseMemHandle(theirs[1]));
        } else if (rank == 0) {
            ADD_FAILURE() << "the address was not used again";
        }
        barrier();
    });
}

TEST_F(driver, ipc_refuses)
{
    run(2, [&](int rank) {
        CUdeviceptr ptr = 0;

        use(rank);
        if (rank == 0) {
            CUdeviceptr mine = alloc(4 * MiB);
            CU_OK(cuIpcGetMemHandle(&m_shared->handle[0], mine));
            EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT,
                      cuIpcOpenMemHandle(&ptr, m_shared->handle[0], 1));
            CU_OK(cuMemFree(mine));
            EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                      cuIpcGetMemHandle(&m_shared->handle[1], mine));
            /* the same memory and address again, but a new handle */
            EXPECT_EQ(mine, alloc(4 * MiB));
            CU_OK(cuIpcGetMemHandle(&m_shared->handle[2], mine));
        }
        barrier();

        if (rank == 1) {
            CUipcMemHandle junk = m_shared->handle[2];
            memset(junk.reserved + 32, 0, 8); /* its size */
            EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE,
                      cuIpcOpenMemHandle(&ptr, junk, 1));
            memset(&junk, 0x5a, sizeof(junk));
            EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE,
                      cuIpcOpenMemHandle(&ptr, m_shared->handle[0], 1));
            EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE,
                      cuIpcOpenMemHandle(&ptr, junk, 1));
            EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                      cuIpcOpenMemHandle(&ptr, m_shared->handle[0], 0));
        }
        barrier();
    });
}

TEST_F(driver, opened_memory_outlives_its_owner)
{
    setenv("CUEMU_GPU_MEMORY", "64M", 1);
    run(2, [&](int rank) {
        use(rank);
        if (rank == 1) {
            CUdeviceptr mine = alloc(48 * MiB);
            put(mine, pattern(MiB, 30));
            CU_OK(cuIpcGetMemHandle(&m_shared->handle[0], mine));
            barrier();
            barrier();
            CU_OK(cuMemFree(mine));
            /* still open in the other process */
            EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&mine, 48 * MiB));
            barrier();
            barrier();
            CU_OK(cuMemAlloc(&mine, 48 * MiB));
        } else {
            CUdeviceptr theirs;
            barrier();
            CU_OK(cuIpcOpenMemHandle(&theirs, m_shared->handle[0], 1));
            barrier();
            barrier();
            EXPECT_EQ(pattern(MiB, 30), get(theirs, MiB));
            CU_OK(cuIpcCloseMemHandle(theirs));
            barrier();
        }
    });
}

/* Each allocation has a new buffer id, also at a reused address. */
TEST_F(driver, buffer_ids_distinguish_allocations)
{
    run(1, [](int) {
        unsigned long long first, second;

        use(0);
        CUdeviceptr a = alloc(4 * MiB);
        CU_OK(cuPointerGetAttribute(&first, CU_POINTER_ATTRIBUTE_BUFFER_ID, a));
        CU_OK(cuMemFree(a));
        CUdeviceptr b = alloc(4 * MiB);
        EXPECT_EQ(a, b);
        CU_OK(cuPointerGetAttribute(&second, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                    b));
        EXPECT_NE(first, second);
    });
}

TEST_F(driver, cpu_must_not_touch_device_memory)
{
    for (int write = 0; write < 2; ++write) {
        pid_t pid = start(0, [=](int) {
            use(0);
            volatile char *ptr = (volatile char*)(uintptr_t)alloc(4096);
            if (write) {
                *ptr = 1;
            } else {
                (void)*ptr;
            }
        });
        int status = finish(pid);
        EXPECT_TRUE(WIFSIGNALED(status) && (WTERMSIG(status) == SIGSEGV));
    }
}

/* A process is killed during a copy: its memory is freed, and time continues
   for the others. */
TEST_F(driver, killed_process_leaves_nothing)
{
    setenv("CUEMU_GPU_MEMORY", "256M", 1);
    m_count      = 2;
    pid_t victim = start(0, [&](int) {
        use(0);
        CUdeviceptr ptr = alloc(200 * MiB);
        void *host      = pinned(100 * MiB);
        CUstream s      = stream();
        barrier();
        for (int i = 0; i < 100; ++i) {
            CU_OK(cuMemcpyAsync(ptr, (CUdeviceptr)(uintptr_t)host, 100 * MiB,
                                s));
        }
        barrier();
        pause();
    });
    pid_t other = start(1, [&](int) {
        use(0);
        CUdeviceptr ptr;
        barrier();
        EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&ptr, 100 * MiB));
        barrier();
        while (m_shared->value[0] == 0) {
            usleep(1000);
        }
        auto words = pattern(MiB, 40);
        CUdeviceptr small = alloc(MiB);
        put(small, words);
        EXPECT_EQ(words, get(small, MiB));

        CUresult result = CUDA_ERROR_UNKNOWN;
        for (int i = 0; (i < 1000) && (result != CUDA_SUCCESS); ++i) {
            result = cuMemAlloc(&ptr, 200 * MiB);
            usleep(1000);
        }
        EXPECT_EQ(CUDA_SUCCESS, result);
    });

    usleep(500000);
    kill(victim, SIGKILL);
    EXPECT_TRUE(WIFSIGNALED(finish(victim)));
    m_shared->value[0] = 1;
    EXPECT_EQ(0, finish(other));
}

TEST_F(driver, physical_memory_by_descriptor)
{
    run(2, [&](int rank) {
        const size_t size              = 4 * MiB;
        const CUmemAllocationProp prop = memory_of(
                1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        const CUmemAccessDesc access   = access_of(rank);
        CUmemGenericAllocationHandle handle;

        use(rank);
        if (rank == 1) {
            EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                      cuMemCreate(&handle, 4096, &prop, 0));
            CU_OK(cuMemCreate(&handle, size, &prop, 0));
            export_memory(handle);
        }
        barrier();

        if (rank == 0) {
            int fd = take();
            handle = import_memory(fd);
            close(fd);
        }

        CUdeviceptr va = map(handle, size);
        if (rank == 0) {
            char byte;
            EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(&byte, va, 1));
            CU_OK(cuMemSetAccess(va, size, &access, 1));
            put(va, pattern(size, 50));
        }
        barrier();

        if (rank == 1) {
            CU_OK(cuMemSetAccess(va, size, &access, 1));
            EXPECT_EQ(pattern(size, 50), get(va, size));
        }
        CU_OK(cuMemUnmap(va, size));
        CU_OK(cuMemRelease(handle));
        CU_OK(cuMemAddressFree(va, size));
    });
}

/* Host memory of cuMemCreate; access is granted to each processor separately */
class driver_host_vmm : public driver {
protected:
    static const size_t size = 4 * MiB;

    static CUmemAllocationProp properties(int type, int id)
    {
        return memory_of(id, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, type);
    }

    static CUresult let(CUdeviceptr va, int type, int id, int flags)
    {
        const CUmemAccessDesc access = access_of(id, flags, type);

        return cuMemSetAccess(va, size, &access, 1);
    }

    /* Return non-zero if the CPU has this access. Asks the kernel, so that no
       signal handler is needed. */
    static bool cpu_can(CUdeviceptr va, int prot)
    {
        return mapped(va).find((prot == PROT_WRITE) ? 'w' : 'r') !=
               std::string::npos;
    }
};

TEST_F(driver_host_vmm, it_is_host_memory_without_a_context)
{
    run(1, [&](int) {
        CUmemGenericAllocationHandle handle, again;
        CUmemAllocationProp prop = properties(3, 1);
        unsigned type            = 0;
        CUcontext context        = (CUcontext)1;
        CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                       CU_POINTER_ATTRIBUTE_CONTEXT};
        void *values[]              = {&type, &context};
        CUdeviceptr base;
        size_t length;
        void *pointer;

        use(0);
        CU_OK(cuMemCreate(&handle, size, &prop, 0));
        for (int other : {2, 4}) { /* the driver's manual excludes these */
            prop = properties(other, 0);
            EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                      cuMemCreate(&again, size, &prop, 0));
        }
        prop = properties(3, 64); /* no NUMA node of this number */
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  cuMemCreate(&again, size, &prop, 0));

        CUdeviceptr va = map(handle, size);
        CU_OK(cuPointerGetAttributes(2, names, values, va + 4096));
        EXPECT_EQ((unsigned)CU_MEMORYTYPE_HOST, type);
        EXPECT_EQ(nullptr, context);
        CU_OK(cuMemRetainAllocationHandle(&again, (void*)(va + 4096)));
        CU_OK(cuMemGetAllocationPropertiesFromHandle(&prop, again));
        EXPECT_EQ(3, (int)prop.location.type);
        EXPECT_EQ(1, prop.location.id);
        CU_OK(cuMemRelease(again));
        CU_OK(cuMemGetAddressRange(&base, &length, va + 4096));
        EXPECT_EQ(0u, base);
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  cuPointerGetAttribute(&pointer,
                                        CU_POINTER_ATTRIBUTE_HOST_POINTER,
                                        va));
    });
}

TEST_F(driver_host_vmm, access_is_granted_to_each_processor)
{
    run(1, [&](int) {
        CUmemAllocationProp prop = properties(3, 0);
        CUmemGenericAllocationHandle handle;
        void *pointer;
        char byte;

        use(1);
        CU_OK(cuMemCreate(&handle, size, &prop, 0));
        CUdeviceptr va = map(handle, size);
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(&byte, va, 1));
        CU_OK(let(va, 3, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
        EXPECT_TRUE(cpu_can(va, PROT_WRITE));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(&byte, va, 1));
        CU_OK(let(va, 3, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE));
        EXPECT_FALSE(cpu_can(va, PROT_READ));

        CU_OK(let(va, 1, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
        EXPECT_FALSE(cpu_can(va, PROT_READ));
        put(va, pattern(size, 60));
        EXPECT_EQ(pattern(size, 60), get(va, size));
        CUdeviceptr gpu = alloc(size);
        CU_OK(cuMemcpy(gpu, va, size));
        EXPECT_EQ(pattern(size, 60), get(gpu, size));
        use(0); /* without access */
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(&byte, va, 1));
        use(1);

        CU_OK(let(va, 2, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
        EXPECT_FALSE(cpu_can(va, PROT_WRITE));
        EXPECT_EQ(0, memcmp((void*)va, pattern(size, 60).data(), size));
        CU_OK(cuPointerGetAttribute(&pointer,
                                    CU_POINTER_ATTRIBUTE_HOST_POINTER, va));
        CU_OK(let(va, 3, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
        memset((void*)va, 0x61, size);
        EXPECT_EQ(std::vector<uint32_t>(size / 4, 0x61616161), get(va, size));

        CU_OK(cuMemUnmap(va, size));
        EXPECT_FALSE(cpu_can(va, PROT_READ));
        CU_OK(cuMemRelease(handle));
        CU_OK(cuMemAddressFree(va, size));
    });
}

TEST_F(driver_host_vmm, it_is_shared_by_descriptor)
{
    run(2, [&](int rank) {
        CUmemAllocationProp prop = properties(3, 1);
        CUmemGenericAllocationHandle handle;

        use(rank);
        if (rank == 1) {
            CU_OK(cuMemCreate(&handle, size, &prop, 0));
            export_memory(handle);
        }
        barrier();

        if (rank == 0) {
            int fd = take();
            handle = import_memory(fd);
            close(fd);
            CU_OK(cuMemGetAllocationPropertiesFromHandle(&prop, handle));
            EXPECT_EQ(3, (int)prop.location.type);
            EXPECT_EQ(1, prop.location.id);
        }

        CUdeviceptr va = map(handle, size);
        CU_OK(let(va, 1, rank, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
        if (rank == 0) {
            put(va, pattern(size, 70));
        }
        barrier();
        EXPECT_EQ(pattern(size, 70), get(va, size));
        barrier();
    });
}

class driver_share : public driver, public ::testing::WithParamInterface<int> {
protected:
    /* Fetch a handle from the other process: its file descriptor, or a fabric
       handle in shared memory. */
    void *fetch(int type)
    {
        return (type == CU_MEM_HANDLE_TYPE_FABRIC) ?
               (void*)&m_shared->handle[1] : (void*)(intptr_t)take();
    }
};

TEST_P(driver_share, memory_of_pools)
{
    const CUmemAllocationHandleType type = (CUmemAllocationHandleType)
            GetParam();
    const size_t size                    = 4 * MiB;

    setenv("CUEMU_FABRIC", "7", 1);
    run(2, [&](int rank) {
        CUmemPoolProps props         = {};
        const CUmemAccessDesc access = access_of(0);
        CUmemPoolPtrExportData data;
        CUmemoryPool pool, again;
        CUdeviceptr mem = 0, same = 0;
        CUmemFabricHandle fabric;
        int fd = -1;

        use(rank);
        if (rank == 1) {
            props.allocType     = CU_MEM_ALLOCATION_TYPE_PINNED;
            props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
            props.location.id   = 1;
            props.handleTypes   = type;
            CU_OK(cuMemPoolCreate(&pool, &props));
            CU_OK(cuMemAllocFromPoolAsync(&mem, size, pool, nullptr));
            CU_OK(cuStreamSynchronize(nullptr));
            put(mem, pattern(size, 60));
            uint64_t allowed = 0;
            CU_OK(cuPointerGetAttribute(
                    &allowed, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, mem));
            EXPECT_EQ((uint64_t)type, allowed);
            /* H200, driver 580: not before the pool */
            EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                      cuMemPoolExportPointer(&data, mem));
            CU_OK(cuMemPoolExportToShareableHandle(
                    (type == CU_MEM_HANDLE_TYPE_FABRIC) ? (void*)&fabric :
                                                          (void*)&fd,
                    pool, type, 0));
            if (type != CU_MEM_HANDLE_TYPE_FABRIC) {
                EXPECT_EQ(0, fcntl(fd, F_GETFD)); /* H200, driver 580 */
            }
            /* H100, driver 580 */
            EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                      cuMemPoolExportPointer(&data, mem + 512));
            CU_OK(cuMemPoolExportPointer(&data, mem));
            memcpy(&m_shared->handle[0], &data, sizeof(data));
            memcpy(&m_shared->handle[1], &fabric, sizeof(fabric));
            offer(fd);
        }
        barrier();

        if (rank == 0) {
            void *os = fetch(type);
            CU_OK(cuMemPoolImportFromShareableHandle(&pool, os, type, 0));
            CU_OK(cuMemPoolImportFromShareableHandle(&again, os, type, 0));
            EXPECT_EQ(pool, again);
            EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                      cuMemAllocFromPoolAsync(&mem, size, pool, nullptr));
            CU_OK(cuMemPoolSetAccess(pool, &access, 1));
            memcpy(&data, &m_shared->handle[0], sizeof(data));
            CU_OK(cuMemPoolImportPointer(&mem, pool, &data));
            CU_OK(cuMemPoolImportPointer(&same, pool, &data));
            EXPECT_EQ(mem, same);
            EXPECT_EQ(pattern(size, 60), get(mem, size));
            put(mem, pattern(size, 61));
            EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(pool));
            CU_OK(cuMemFree(mem));
            EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemFree(mem));
            CU_OK(cuMemPoolDestroy(pool));
            CU_OK(cuMemPoolDestroy(pool));
            EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                      cuMemPoolImportPointer(&mem, pool, &data));
        }
        barrier();

        if (rank == 1) {
            EXPECT_EQ(pattern(size, 61), get(mem, size));
        }
    });
    unsetenv("CUEMU_FABRIC");
}

/* The manual: access for a GPU that is no peer is refused or, before the pool's
   first allocation, that allocation fails. */
TEST_F(driver, pools_are_for_peers_only)
{
    setenv("CUEMU_NODE", "pcie-no-peers", 1);
    run(1, [](int) {
        CUmemAccessDesc access = access_of(1);
        CUmemoryPool pool;
        CUdeviceptr ptr;

        use(0);
        CU_OK(cuDeviceGetDefaultMemPool(&pool, 0));
        CU_OK(cuMemPoolSetAccess(pool, &access, 1));
        EXPECT_EQ(CUDA_ERROR_INVALID_DEVICE,
                  cuMemAllocAsync(&ptr, MiB, nullptr));
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
        CU_OK(cuMemPoolSetAccess(pool, &access, 1));
        CU_OK(cuMemAllocAsync(&ptr, MiB, nullptr));
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        EXPECT_EQ(CUDA_ERROR_INVALID_DEVICE,
                  cuMemPoolSetAccess(pool, &access, 1));
        access.location.id = 0;
        CU_OK(cuMemPoolSetAccess(pool, &access, 1));
    });
}

/* Properties of a pool of device 0 */
static CUmemPoolProps pool_props(CUmemAllocationHandleType types)
{
    CUmemPoolProps props = {};

    props.allocType     = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.handleTypes   = types;
    return props;
}

TEST_F(driver, pool_that_is_not_shared)
{
    run(1, [&](int) {
        CUmemPoolProps props = pool_props(CU_MEM_HANDLE_TYPE_NONE);
        CUmemPoolPtrExportData data;
        CUmemoryPool pool;
        CUdeviceptr mem;
        int fd;

        use(0);
        CU_OK(cuMemPoolCreate(&pool, &props));
        CU_OK(cuMemAllocFromPoolAsync(&mem, MiB, pool, nullptr));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  cuMemPoolExportToShareableHandle(
                          &fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                          0));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportPointer(&data, mem));
        props.handleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
        EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, cuMemPoolCreate(&pool, &props));
    });
}

/* H200, driver 580: exported memory that a pool releases stays in use until the
   pool is destroyed, unless the pool keeps what is freed */
TEST_F(driver, pool_that_releases_shared_memory)
{
    run(1, [&](int) {
        const CUmemPoolProps props = pool_props(
                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        CUmemPoolPtrExportData data;
        size_t total, before, now;
        CUmemoryPool pool;
        CUdeviceptr mem;
        int fd;

        use(0);
        for (uint64_t threshold : {UINT64_C(0), UINT64_MAX}) {
            CU_OK(cuMemPoolCreate(&pool, &props));
            CU_OK(cuMemPoolSetAttribute(
                    pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
            CU_OK(cuMemPoolExportToShareableHandle(
                    &fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
            for (bool is_exported : {false, true}) {
                CU_OK(cuMemGetInfo(&before, &total));
                CU_OK(cuMemAllocFromPoolAsync(&mem, 4 * MiB, pool, nullptr));
                if (is_exported) {
                    CU_OK(cuMemPoolExportPointer(&data, mem));
                }
                CU_OK(cuMemFreeAsync(mem, nullptr));
                CU_OK(cuStreamSynchronize(nullptr));
                CU_OK(cuMemGetInfo(&now, &total));
                EXPECT_EQ((is_exported && (threshold == 0)) ? 4 * MiB : 0,
                          before - now);
            }
            CU_OK(cuMemPoolDestroy(pool));
            close(fd);
            CU_OK(cuMemGetInfo(&now, &total));
            EXPECT_EQ(before, now);
        }
    });
}

TEST_P(driver_share, memory_made_with_cuMemCreate)
{
    const CUmemAllocationHandleType type = (CUmemAllocationHandleType)
            GetParam();
    const size_t size                    = 4 * MiB;

    setenv("CUEMU_FABRIC", "7", 1);
    run(2, [&](int rank) {
        const CUmemAllocationProp prop = memory_of(0, type);
        CUmemGenericAllocationHandle handle;
        CUmemFabricHandle fabric;
        int fd = -1;

        use(rank);
        if (rank == 1) {
            CU_OK(cuMemCreate(&handle, size, &prop, 0));
            CU_OK(cuMemExportToShareableHandle(
                    (type == CU_MEM_HANDLE_TYPE_FABRIC) ? (void*)&fabric :
                                                          (void*)&fd,
                    handle, type, 0));
            memcpy(&m_shared->handle[1], &fabric, sizeof(fabric));
            offer(fd);
        }
        barrier();

        if (rank == 0) {
            void *os = fetch(type);
            CU_OK(cuMemImportFromShareableHandle(&handle, os, type));
            CU_OK(cuMemRelease(handle));
            if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
                setenv("CUEMU_FABRIC", "8", 1); /* another cluster */
                EXPECT_EQ(CUDA_ERROR_NOT_PERMITTED,
                          cuMemImportFromShareableHandle(&handle, os, type));
            }
        }
        barrier();
    });
    unsetenv("CUEMU_FABRIC");
}

INSTANTIATE_TEST_SUITE_P(types, driver_share,
                         ::testing::Values(
                                 (int)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                 (int)CU_MEM_HANDLE_TYPE_FABRIC));
