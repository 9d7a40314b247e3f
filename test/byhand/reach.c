/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Print what the driver answers to copies and fills of each kind of memory, and
 * to the question for its range, in a context of either GPU: 0, or the number
 * of the error. Memory whose name ends in a digit is of that GPU's context; of
 * cuMemCreate memory the last digits are the GPUs with access. An emulated node
 * must answer alike (reach-h200.txt).
 */
#include "byhand.h"

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
    CU(MemCreate(&handle, SIZE, &prop, 0));
    CU(MemAddressReserve(&address, SIZE, 0, 0, 0));
    CU(MemMap(address, SIZE, 0, handle, 0));
    for (i = 0; i < 2; ++i) {
        access.location.id = i;
        if (accessors & (1u << i)) {
            CU(MemSetAccess(address, SIZE, &access, 1));
        }
    }
    return address;
}

static CUdeviceptr from_pool(int gpu)
{
    CUmemoryPool pool;
    CUdeviceptr address;

    byhand_on(gpu);
    CU(DeviceGetDefaultMemPool(&pool, gpu));
    CU(MemAllocFromPoolAsync(&address, SIZE, pool, streams[gpu]));
    CU(StreamSynchronize(streams[gpu]));
    return address;
}

static CUdeviceptr managed(int gpu)
{
    CUdeviceptr address;

    byhand_on(gpu);
    CU(MemAllocManaged(&address, SIZE, CU_MEM_ATTACH_GLOBAL));
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
    return cu.MemcpyDtoDAsync(to, from, SIZE / 2, streams[gpu]);
}

static CUresult copy_any(CUdeviceptr to, CUdeviceptr from, int gpu)
{
    return cu.MemcpyAsync(to, from, SIZE / 2, streams[gpu]);
}

static CUresult copy_now(CUdeviceptr to, CUdeviceptr from, int gpu)
{
    (void)gpu;
    return cu.Memcpy(to, from, SIZE / 2);
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
               cu.MemsetD8Async(memories[i].address, 1, SIZE / 2,
                                streams[gpu]));
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
