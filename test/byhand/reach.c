/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Print what the driver answers to copies and fills of each kind of memory, and
 * to the question for its range, in a context of either GPU: 0, or the number
 * of the error. Memory whose name ends in a digit is of that GPU's context; of
 * cuMemCreate memory the last digits are the GPUs with access. An emulated node
 * must answer alike (reach-h200.txt).
 */
#include "byhand.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE  ((size_t)2 << 20) /* a granule of cuMemCreate */
#define MAX   16

static const byhand_option_t options[] = {{NULL, NULL, NULL, 0, 0, NULL}};

static const byhand_program_t program = {
    "reach",
    "Which copies, fills and queries of memory each context may make.",
    "1M", options, SIZE};

typedef struct {
    const char  *name;
    CUdeviceptr address;
} memory_t;

static memory_t memories[MAX];
static int num_memories;
static CUstream streams[2];

static struct {
    CUresult (*create)(CUmemGenericAllocationHandle*, size_t,
                       const CUmemAllocationProp*, unsigned long long);
    CUresult (*reserve)(CUdeviceptr*, size_t, size_t, CUdeviceptr,
                        unsigned long long);
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
                    unsigned long long);
    CUresult (*set_access)(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t);
    CUresult (*default_pool)(CUmemoryPool*, CUdevice);
    CUresult (*alloc_from_pool)(CUdeviceptr*, size_t, CUmemoryPool, CUstream);
    CUresult (*alloc_managed)(CUdeviceptr*, size_t, unsigned);
    CUresult (*copy)(CUdeviceptr, CUdeviceptr, size_t);
    CUresult (*copy_gpu)(CUdeviceptr, CUdeviceptr, size_t, CUstream);
    CUresult (*fill)(CUdeviceptr, unsigned char, size_t, CUstream);
} more;


static void load(const char *symbol, void **function_p)
{
    *function_p = dlsym(dlopen("libcuda.so.1", RTLD_LAZY), symbol);
    if (*function_p == NULL) {
        byhand_die("the driver has no %s", symbol);
    }
}

static void load_all(void)
{
    load("cuMemCreate", (void**)&more.create);
    load("cuMemAddressReserve", (void**)&more.reserve);
    load("cuMemMap", (void**)&more.map);
    load("cuMemSetAccess", (void**)&more.set_access);
    load("cuDeviceGetDefaultMemPool", (void**)&more.default_pool);
    load("cuMemAllocFromPoolAsync", (void**)&more.alloc_from_pool);
    load("cuMemAllocManaged", (void**)&more.alloc_managed);
    load("cuMemcpy", (void**)&more.copy);
    load("cuMemcpyDtoDAsync_v2", (void**)&more.copy_gpu);
    load("cuMemsetD8Async", (void**)&more.fill);
}

static void add(const char *name, CUdeviceptr address)
{
    memories[num_memories++] = (memory_t){name, address};
}

/* Memory from cuMemCreate on a GPU. @param accessors  Bits of GPUs */
static CUdeviceptr create(int gpu, unsigned accessors)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    CUmemAccessDesc access   = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    int i;

    prop.location.type        = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id          = gpu;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    access.location.type      = CU_MEM_LOCATION_TYPE_DEVICE;
    byhand_check(more.create(&handle, SIZE, &prop, 0), "MemCreate");
    byhand_check(more.reserve(&address, SIZE, 0, 0, 0), "MemAddressReserve");
    byhand_check(more.map(address, SIZE, 0, handle, 0), "MemMap");
    for (i = 0; i < 2; ++i) {
        access.location.id = i;
        if (accessors & (1u << i)) {
            byhand_check(more.set_access(address, SIZE, &access, 1),
                         "MemSetAccess");
        }
    }
    return address;
}

static CUdeviceptr from_pool(int gpu)
{
    CUmemoryPool pool;
    CUdeviceptr address;

    byhand_on(gpu);
    byhand_check(more.default_pool(&pool, gpu), "DeviceGetDefaultMemPool");
    byhand_check(more.alloc_from_pool(&address, SIZE, pool, streams[gpu]),
                 "MemAllocFromPoolAsync");
    CU(StreamSynchronize(streams[gpu]));
    return address;
}

static CUdeviceptr managed(int gpu)
{
    CUdeviceptr address;

    byhand_on(gpu);
    byhand_check(more.alloc_managed(&address, SIZE, CU_MEM_ATTACH_GLOBAL),
                 "MemAllocManaged");
    return address;
}

static void *aligned(void)
{
    void *memory = aligned_alloc(4096, SIZE);

    if (memory == NULL) {
        byhand_die("no memory");
    }
    memset(memory, 1, SIZE);
    return memory;
}

static void make(void)
{
    void *memory;

    add("alloc0", byhand_gpu_memory(0, SIZE));
    add("managed0", managed(0));
    add("alloc1", byhand_gpu_memory(1, SIZE));
    add("managed1", managed(1));
    add("vmm0:0", create(0, 1));
    add("vmm1:1", create(1, 2));
    add("vmm0:01", create(0, 3));
    add("vmm0:1", create(0, 2));
    add("pool0", from_pool(0));
    add("pool1", from_pool(1));
    byhand_on(1);
    CU(MemHostAlloc(&memory, SIZE, CU_MEMHOSTALLOC_PORTABLE));
    add("locked", (CUdeviceptr)memory);
    byhand_on(0);
    memory = aligned();
    CU(MemHostRegister(memory, SIZE, 0));
    add("register0", (CUdeviceptr)memory);
    add("malloc", (CUdeviceptr)aligned());
}

typedef CUresult (*call_t)(CUdeviceptr to, CUdeviceptr from, int gpu);

static CUresult copy_gpu(CUdeviceptr to, CUdeviceptr from, int gpu)
{
    return more.copy_gpu(to, from, SIZE / 2, streams[gpu]);
}

static CUresult copy_any(CUdeviceptr to, CUdeviceptr from, int gpu)
{
    return cu.MemcpyAsync(to, from, SIZE / 2, streams[gpu]);
}

static CUresult copy_now(CUdeviceptr to, CUdeviceptr from, int gpu)
{
    (void)gpu;
    return more.copy(to, from, SIZE / 2);
}

static void print_copies(const char *name, call_t call, int gpu)
{
    int from, to;

    printf("%s, context %d, from the row to the column\n%-10s", name, gpu, "");
    for (to = 0; to < num_memories; ++to) {
        printf("%10s", memories[to].name);
    }
    byhand_on(gpu);
    for (from = 0; from < num_memories; ++from) {
        printf("\n%-10s", memories[from].name);
        for (to = 0; to < num_memories; ++to) {
            printf("%10d", call(memories[to].address, memories[from].address,
                                gpu));
            CU(StreamSynchronize(streams[gpu]));
            CU(CtxSynchronize());
        }
    }
    printf("\n\n");
}

static void print_queries(int gpu)
{
    CUdeviceptr base;
    size_t size;
    int i;

    byhand_on(gpu);
    printf("context %d: cuMemsetD8Async, cuMemGetAddressRange\n", gpu);
    for (i = 0; i < num_memories; ++i) {
        printf("%-10s%10d", memories[i].name,
               more.fill(memories[i].address, 1, SIZE / 2, streams[gpu]));
        CU(StreamSynchronize(streams[gpu]));
        printf("%10d\n", cu.MemGetAddressRange(&base, &size,
                                               memories[i].address));
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        call_t     call;
    } calls[] = {{"cuMemcpyDtoDAsync", copy_gpu},
                 {"cuMemcpyAsync", copy_any},
                 {"cuMemcpy", copy_now}};
    int gpu, i;

    byhand_begin_apart(argc, argv, &program, 2);
    load_all();
    for (gpu = 0; gpu < 2; ++gpu) {
        streams[gpu] = byhand_stream(gpu);
    }
    make();
    for (i = 0; i < 3; ++i) {
        for (gpu = 0; gpu < 2; ++gpu) {
            print_copies(calls[i].name, calls[i].call, gpu);
        }
    }
    for (gpu = 0; gpu < 2; ++gpu) {
        print_queries(gpu);
    }
    return 0;
}
