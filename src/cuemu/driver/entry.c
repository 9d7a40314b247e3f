/* SPDX-License-Identifier: BSD-3-Clause */

/* cuGetProcAddress(): functions by name and version; cuGetExportTable(), which
   is refused. */
#include "cuemu_gate.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* Variants of functions that take different arguments: `variant` is the one
   from this version on, up to that of the entry before. Newest first */
static const struct {
    const char *name;
    int         version;
    const char *variant;
} cuemu_variants[] = {
    {"cuCtxCreate", 12050, "cuCtxCreate_v4"},
    {"cuCtxCreate", 11040, "cuCtxCreate_v3"},
    {"cuCtxCreate", 0, "cuCtxCreate_v2"},
    {"cuGetProcAddress", 12000, "cuGetProcAddress_v2"},
    {"cuGetProcAddress", 0, "cuGetProcAddress"},
    {"cuGraphAddDependencies", 12030, "cuGraphAddDependencies_v2"},
    {"cuGraphAddDependencies", 0, "cuGraphAddDependencies"},
    {"cuGraphGetEdges", 12030, "cuGraphGetEdges_v2"},
    {"cuGraphGetEdges", 0, "cuGraphGetEdges"},
    {"cuGraphNodeGetDependencies", 12030, "cuGraphNodeGetDependencies_v2"},
    {"cuGraphNodeGetDependencies", 0, "cuGraphNodeGetDependencies"},
    {"cuGraphNodeGetDependentNodes", 12030, "cuGraphNodeGetDependentNodes_v2"},
    {"cuGraphNodeGetDependentNodes", 0, "cuGraphNodeGetDependentNodes"},
    {"cuGraphRemoveDependencies", 12030, "cuGraphRemoveDependencies_v2"},
    {"cuGraphRemoveDependencies", 0, "cuGraphRemoveDependencies"},
    {"cuMemAdvise", 12020, "cuMemAdvise_v2"},
    {"cuMemAdvise", 0, "cuMemAdvise"},
    {"cuMemPrefetchAsync", 12020, "cuMemPrefetchAsync_v2"},
    {"cuMemPrefetchAsync", 0, "cuMemPrefetchAsync"},
    {"cuMemcpyBatchAsync", 13000, "cuMemcpyBatchAsync_v2"},
    {"cuMemcpyBatchAsync", 0, "cuMemcpyBatchAsync"},
    {"cuStreamGetCaptureInfo", 12030, "cuStreamGetCaptureInfo_v3"},
    {"cuStreamGetCaptureInfo", 11030, "cuStreamGetCaptureInfo_v2"},
    {"cuStreamGetCaptureInfo", 0, "cuStreamGetCaptureInfo"},
    {"cuGraphInstantiate", 12000, "cuGraphInstantiateWithFlags"},
    {"cuGraphInstantiate", 0, "cuGraphInstantiate_v2"}
};

/* Functions newer than CUDA 11.2, by the beginnings of their names, and the
   versions that have them (cudaTypedefs.h) */
static const struct {
    const char *name;
    int         version;
} cuemu_versions[] = {
    {"cuCtxGetId", 12000},
    {"cuCtxRecordEvent", 12050},
    {"cuCtxSetFlags", 12010},
    {"cuFlushGPUDirectRDMAWrites", 11030},
    {"cuFuncGetParamInfo", 12040},
    {"cuGetProcAddress", 11030},
    {"cuGraphExecGetFlags", 12000},
    {"cuGraphInstantiateWithFlags", 11040},
    {"cuGraphInstantiateWithParams", 12000},
    {"cuGraphNodeGetEnabled", 11060},
    {"cuGraphNodeSetEnabled", 11060},
    {"cuKernelGetParamInfo", 12040},
    {"cuKernel", 12000},
    {"cuLaunchKernelEx", 11060},
    {"cuLibrary", 12000},
    {"cuMemGetHandleForAddressRange", 11070},
    {"cuMemcpyBatchAsync", 12080},
    {"cuMulticast", 12010},
    {"cuStreamGetDevice", 12080},
    {"cuStreamGetId", 12000}
};

/* Return the version of CUDA that introduced a function; 0 if it is old. */
static int cuemu_entry_version(const char *name)
{
    size_t i;

    for (i = 0; i < sizeof(cuemu_versions) / sizeof(cuemu_versions[0]); ++i) {
        if (strncmp(name, cuemu_versions[i].name,
                    strlen(cuemu_versions[i].name)) == 0) {
            return cuemu_versions[i].version;
        }
    }
    return 0;
}

static void *cuemu_entry_symbol(const char *name)
{
    static void *self = NULL;
    Dl_info info;

    if (self == NULL) {
        if ((dladdr((void*)cuemu_entry_symbol, &info) == 0) ||
            (info.dli_fname == NULL)) {
            return NULL;
        }
        self = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    }

    return (self == NULL) ? NULL : dlsym(self, name);
}

static void *cuemu_entry_find(const char *name, int version)
{
    char variant[128];
    void *symbol;
    size_t i;

    if ((strncmp(name, "cu", 2) != 0) || (strncmp(name, "cuemu", 5) == 0)) {
        return NULL;
    }

    for (i = 0; i < sizeof(cuemu_variants) / sizeof(cuemu_variants[0]); ++i) {
        if ((strcmp(name, cuemu_variants[i].name) == 0) &&
            (version >= cuemu_variants[i].version)) {
            return cuemu_entry_symbol(cuemu_variants[i].variant);
        }
    }

    snprintf(variant, sizeof(variant), "%s_v2", name);
    symbol = cuemu_entry_symbol(variant);
    return (symbol != NULL) ? symbol : cuemu_entry_symbol(name);
}

CUEMU_API_FLAGS(cuGetProcAddress_v2, CUEMU_GATE_NO_INIT,
                (const char *name, void **func, int version, cuuint64_t flags,
                 int *status),
                (name, func, version, flags, status))
{
    void *found;
    int is_old;

    if ((name == NULL) || (func == NULL) || (flags > 2)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    is_old = (version < cuemu_entry_version(name));
    found  = cuemu_entry_find(name, version);
    *func  = is_old ? NULL : found;
    if (status != NULL) {
        *status = (found == NULL) ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND :
                  is_old ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT :
                           CU_GET_PROC_ADDRESS_SUCCESS;
    }

    return CUDA_SUCCESS;
}

CUEMU_API_FLAGS(cuGetProcAddress, CUEMU_GATE_NO_INIT,
                (const char *name, void **func, int version, cuuint64_t flags),
                (name, func, version, flags))
{
    if ((name == NULL) || (func == NULL) || (flags > 2)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    *func = (version < cuemu_entry_version(name)) ?
            NULL : cuemu_entry_find(name, version);
    return (*func == NULL) ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

/* Return no table: the emulator has none of the driver's private tables. NVRTC
   asks for the table `nvrtc` and works without it. Any other request comes from
   NVIDIA's runtime library, which does not: report that once. */
CUEMU_API_FLAGS(cuGetExportTable, CUEMU_GATE_NO_INIT,
                (const void **table, const CUuuid *id), (table, id))
{
    static const char nvrtc[] = "\xda\x91\x51\xd3\x3a\xe6\xcc\x41"
                                "\xa5\xc0\x4f\x26\xd5\x33\xe3\x28";
    static int is_reported    = 0;

    if (((id == NULL) || (memcmp(id->bytes, nvrtc, sizeof(id->bytes)) != 0)) &&
        !__atomic_exchange_n(&is_reported, 1, __ATOMIC_RELAXED)) {
        fprintf(stderr, "cuemu: this program, or a library that it has "
                        "loaded, contains NVIDIA's CUDA runtime without a "
                        "symbol table, so that the emulated one cannot take "
                        "its place: keep the symbols (no strip, no -s), or "
                        "link with -cudart shared\n");
    }

    if (table != NULL) {
        *table = NULL;
    }

    return CUDA_ERROR_NOT_SUPPORTED;
}
