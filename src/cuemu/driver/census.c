/* SPDX-License-Identifier: BSD-3-Clause */

/* Count a process's driver objects, so that tests can find leaks. */
#include "cuemu_gate.h"
#include "cuemu_memory.h"

#include <stdio.h>

static const struct {
    cuemu_obj_type_t type;
    const char      *name;
} cuemu_census_objects[] = {
    {CUEMU_OBJ_CONTEXT, "contexts"}, {CUEMU_OBJ_STREAM, "streams"},
    {CUEMU_OBJ_EVENT, "events"},     {CUEMU_OBJ_POOL, "pools"},
    {CUEMU_OBJ_HANDLE, "handles"},   {CUEMU_OBJ_GRAPH, "graphs"},
    {CUEMU_OBJ_NODE, "nodes"},       {CUEMU_OBJ_EXEC, "execs"}
};

static const struct {
    cuemu_mem_kind_t kind;
    const char      *name;
} cuemu_census_memory[] = {
    {CUEMU_MEM_DEVICE, "device"},   {CUEMU_MEM_IPC, "ipc"},
    {CUEMU_MEM_VMM, "vmm"},         {CUEMU_MEM_POOL, "pool"},
    {CUEMU_MEM_MANAGED, "managed"}, {CUEMU_MEM_HOST, "host"},
    {CUEMU_MEM_HOST_REG, "registered"}
};

#define CUEMU_COUNT(_array) (sizeof(_array) / sizeof((_array)[0]))

const char *cuemu_census(char *text, size_t size)
{
    size_t used = 0, i;
    unsigned count, refs;
    int retained;

    if (size == 0) {
        return text;
    }

#define CUEMU_PRINT(...) \
    used += (used < size) ? \
            (size_t)snprintf(text + used, size - used, __VA_ARGS__) : 0

    text[0] = '\0';
    for (i = 0; i < CUEMU_COUNT(cuemu_census_objects); ++i) {
        count = cuemu_object_count(cuemu_census_objects[i].type);
        CUEMU_PRINT("%s=%u ", cuemu_census_objects[i].name, count);
    }

    for (i = 0; i < CUEMU_COUNT(cuemu_census_memory); ++i) {
        count = cuemu_mem_count(cuemu_census_memory[i].kind, &refs);
        CUEMU_PRINT("%s=%u/%u ", cuemu_census_memory[i].name, count, refs);
    }

    for (i = 0; i < (size_t)cuemu_process.num_devices; ++i) {
        cuemu_lock();
        retained = (cuemu_process.primary[i] == NULL) ?
                   0 : cuemu_process.primary[i]->refs;
        cuemu_unlock();
        CUEMU_PRINT("retained.%zu=%d ", i, retained);
    }

    CUEMU_PRINT("current=%d", cuemu_ctx_depth);
    return text;
}
