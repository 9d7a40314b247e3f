/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * GPU code: modules, libraries, functions, variables. PTX is parsed when the
 * real driver would compile it, at loading; machine code cannot run here.
 */
#include "cuemu_gate.h"
#include "cuemu_kernel.h"
#include "../core/hardware.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Shared memory of a block by default, bytes; cuemu_shared_bytes(): on
   request */
#define CUEMU_SHARED_PLAIN 49152

struct cuemu_library {
    cuemu_object_t   obj;
    char            *text;
    cuemu_kernel_t  *kernels;
    cuemu_module_t  *modules;   /* one module per context */
    cuemu_library_t *next;
};

/* Result of cuLibraryGetKernel(): a function, independent of contexts */
struct cuemu_kernel {
    cuemu_object_t   obj;
    cuemu_library_t *library;
    cuemu_kernel_t  *next;
    char             name[];
};

static cuemu_library_t *cuemu_libraries;


/* -------------------------------------------------------- content of images */

/* Return the number behind a directive: 80 for ".target sm_80", 83 for
   ".version 8.3"; 0 if the text has no such directive or number. */
static int cuemu_text_number(const char *text, const char *word)
{
    const char *p = strstr(text, word);
    int major, minor;

    if (p == NULL) {
        return 0;
    }
    p += strlen(word);
    if (strcmp(word, ".version") == 0) {
        return (sscanf(p, " %d.%d", &major, &minor) == 2) ?
               (major * 10 + minor) : 0;
    }
    p += strcspn(p, "0123456789\n");
    return atoi(p);
}

static void cuemu_complain(const char *what)
{
    fprintf(stderr, "cuemu: %s\n", what);
}

/* With UCX_LOG_LEVEL debug or trace, warn on stderr if a real GPU would refuse
   PTX for a newer one. It runs here, because nvcc 13 cannot make PTX for
   V100. */
static void cuemu_warn_target(int target, int sm)
{
    const char *level = getenv("UCX_LOG_LEVEL");

    if ((target > sm) && (level != NULL) &&
        ((strncasecmp(level, "debug", 5) == 0) ||
         (strncasecmp(level, "trace", 5) == 0))) {
        fprintf(stderr, "cuemu: PTX for sm_%d runs here, but a GPU of sm_%d "
                        "would refuse it\n", target, sm);
    }
}

/* Refuse PTX of a newer major version than that of driver 13.0, 9.0, with a
   sentence in `error`. A GPU's driver refuses 9.1, too, but runs the machine
   code that such a toolkit writes beside it. PTX for a newer GPU is accepted,
   see cuemu_warn_target(). */
static CUresult cuemu_text_check(const char *text, int sm, char *error)
{
    int version = cuemu_text_number(text, ".version");
    int target  = cuemu_text_number(text, ".target");

    if (version >= 100) {
        snprintf(error, CUEMU_PTX_ERROR_SIZE,
                 "PTX %d.%d is newer than this driver: use a toolkit of CUDA "
                 "13 or older", version / 10, version % 10);
        return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    }

    cuemu_warn_target(target, sm);
    return CUDA_SUCCESS;
}

static CUresult cuemu_ptx_result(cuemu_ptx_status_t status)
{
    return (status == CUEMU_PTX_OK) ? CUDA_SUCCESS :
           (status == CUEMU_PTX_NO_MEMORY) ? CUDA_ERROR_OUT_OF_MEMORY :
           (status == CUEMU_PTX_NOT_KNOWN) ? CUDA_ERROR_NOT_SUPPORTED :
                                             CUDA_ERROR_INVALID_PTX;
}

/* Copy the PTX out of an image (PTX or a fat binary), to a string from malloc()
   that the caller frees. Machine code is refused. On failure writes a sentence
   to `error`, except for OUT_OF_MEMORY. */
static CUresult cuemu_image_text(const void *image, int sm, char **text_p,
                                 char *error)
{
    uint32_t magic;

    memcpy(&magic, image, sizeof(magic));
    if (memcmp(image, "\177ELF", 4) == 0) {
        snprintf(error, CUEMU_PTX_ERROR_SIZE,
                 "machine code cannot run here: make PTX with nvcc "
                 "-gencode arch=compute_75,code=compute_75");
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }

    if ((magic == CUEMU_FATBIN_MAGIC) || (magic == CUEMU_FATBIN_WRAPPER)) {
        return cuemu_fatbin_text(image, sm, text_p, error);
    }

    *text_p = strdup(image);
    return (*text_p == NULL) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- modules */

/* Set the addresses of the module's managed variables: those of `other`, a
   module with the same text in another context, or new memory. */
static CUresult cuemu_module_managed(cuemu_module_t *module,
                                     const cuemu_module_t *other)
{
    CUresult result = CUDA_SUCCESS;
    cuemu_ptx_global_t *global;
    unsigned i;

    module->owns_managed = (other == NULL);
    for (i = 0; (result == CUDA_SUCCESS) &&
         ((global = cuemu_ptx_global(module->ptx, i)) != NULL); ++i) {
        if (global->managed && (other != NULL)) {
            global->address = cuemu_ptx_global(other->ptx, i)->address;
        } else if (global->managed) {
            result = cuemu_mem_alloc_touchable(module->ctx, global->size,
                                               CUEMU_MEM_MANAGED,
                                               CU_MEM_ATTACH_GLOBAL,
                                               &global->address);
        }
    }
    return result;
}

/* Set the addresses of the module's other variables, in new memory of `*size_p`
   bytes. */
static CUresult cuemu_module_place(cuemu_module_t *module, uint64_t *size_p)
{
    uint64_t size = 0;
    cuemu_ptx_global_t *global;
    CUresult result;
    unsigned i;

    for (i = 0; (global = cuemu_ptx_global(module->ptx, i)) != NULL; ++i) {
        if (!global->managed) {
            size            = (size + global->align - 1) & ~(global->align - 1);
            global->address = size;
            size           += global->size;
        }
    }

    *size_p = size;
    result  = (size == 0) ? CUDA_SUCCESS :
              cuemu_mem_alloc_device(module->ctx, size, CUEMU_MEM_DEVICE,
                                     module, &module->globals);
    for (i = 0; (global = cuemu_ptx_global(module->ptx, i)) != NULL; ++i) {
        global->address += global->managed ? 0 : module->globals;
    }
    return result;
}

/* Store initial values. Another module with the same managed variables has done
   so for them. */
static CUresult cuemu_module_init(cuemu_module_t *module, uint64_t size)
{
    char *memory    = calloc(1, size + 1), *to;
    CUresult result = CUDA_SUCCESS;
    cuemu_ptx_global_t *global;
    unsigned i;

    if (memory == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    cuemu_ptx_link(module->ptx);
    for (i = 0; (global = cuemu_ptx_global(module->ptx, i)) != NULL; ++i) {
        to = global->managed ? (char*)(uintptr_t)global->address :
                               (memory + (global->address - module->globals));
        if (global->managed && !module->owns_managed) {
            continue;
        }
        if (global->init != NULL) {
            memcpy(to, global->init, global->size);
        } else {
            memset(to, 0, global->size);
        }
    }
    if (size > 0) {
        result = cuemu_mem_poke(module->globals, memory, size);
    }
    free(memory);
    return result;
}

void cuemu_module_release(cuemu_module_t *module)
{
    if (__atomic_sub_fetch(&module->refs, 1, __ATOMIC_ACQ_REL) > 0) {
        return;
    }

    if (module->ptx != NULL) {
        cuemu_ptx_unload(module->ptx);
    }
    cuemu_object_delete(module);
}

/* Free the memory of the module's variables. */
static void cuemu_module_free_memory(cuemu_module_t *module)
{
    cuemu_ptx_global_t *global;
    unsigned i;

    if (module->globals != 0) {
        (void)cuemu_mem_free_device(module->globals, 0);
    }
    for (i = 0; module->owns_managed &&
         ((global = cuemu_ptx_global(module->ptx, i)) != NULL); ++i) {
        if (global->managed && (global->address != 0)) {
            (void)cuemu_mem_free_device(global->address, 0);
        }
    }
}

static void cuemu_module_free(cuemu_module_t *module, int context_is_gone)
{
    cuemu_function_t *function, *next;

    for (function = module->functions; function != NULL; function = next) {
        next = function->next;
        cuemu_object_delete(function);
    }
    module->functions = NULL;

    if (!context_is_gone) {
        cuemu_module_free_memory(module);
    }
    module->globals = 0;
    module->ctx     = NULL;
    cuemu_module_release(module);
}

/* Create a module with one reference from a PTX text, and its variables in the
   context's memory. It shares managed variables with `other`, a module of the
   same text, unless NULL. `lazy`: a kernel that is refused only fails itself.
   On failure `error` may have a sentence. */
static CUresult cuemu_module_new(cuemu_context_t *ctx, const char *text,
                                 int lazy,
                                 const cuemu_module_t *other,
                                 cuemu_module_t **module_p, char *error)
{
    cuemu_module_t *module;
    cuemu_ptx_status_t status;
    uint64_t size = 0;
    CUresult result;

    result = cuemu_text_check(text, cuemu_session.node->gpus[ctx->gpu].sm,
                              error);
    if (result != CUDA_SUCCESS) {
        return result;
    }

    module = cuemu_object_new(CUEMU_OBJ_MODULE, sizeof(*module));
    if (module == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    module->ctx    = ctx;
    module->refs   = 1;
    module->target = cuemu_text_number(text, ".target");
    status         = cuemu_ptx_load(text, strlen(text), lazy, &module->ptx,
                                    error);
    result         = (status == CUEMU_PTX_OK) ?
                     cuemu_module_managed(module, other) :
                     cuemu_ptx_result(status);
    if (result == CUDA_SUCCESS) {
        result = cuemu_module_place(module, &size);
    }
    if (result == CUDA_SUCCESS) {
        result = cuemu_module_init(module, size);
    }
    if (result != CUDA_SUCCESS) {
        cuemu_module_free(module, 0);
        return result;
    }

    *module_p = module;
    return CUDA_SUCCESS;
}

void cuemu_module_retire(cuemu_context_t *ctx)
{
    cuemu_module_t *module, *next;
    cuemu_library_t *library;
    cuemu_module_t **link;

    for (library = cuemu_libraries; library != NULL; library = library->next) {
        for (link = &library->modules; *link != NULL;) {
            if ((*link)->ctx == ctx) {
                *link = (*link)->next;
            } else {
                link = &(*link)->next;
            }
        }
    }

    for (module = cuemu_object_next(CUEMU_OBJ_MODULE, NULL); module != NULL;
         module = next) {
        next = cuemu_object_next(CUEMU_OBJ_MODULE, module);
        if (module->ctx == ctx) {
            cuemu_module_free(module, 1);
        }
    }
}

/* Write `error` (empty: no error) to the program's CU_JIT_ERROR_LOG_BUFFER, cut
   to the size in CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, and its full length to
   that option. Without such options has no effect. */
static void cuemu_module_log(unsigned num_options, const CUjit_option *options,
                             void **values, const char *error)
{
    size_t size = 0;
    char *log   = NULL;
    unsigned i;

    for (i = 0; (options != NULL) && (values != NULL) && (i < num_options);
         ++i) {
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER) {
            log = values[i];
        } else if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) {
            size      = (size_t)(uintptr_t)values[i];
            values[i] = (void*)(uintptr_t)strlen(error);
        }
    }

    if ((log != NULL) && (size > 0)) {
        snprintf(log, size, "%s", error);
    }
}

static CUresult cuemu_module_load(CUmodule *module_p, const void *image,
                                  unsigned num_options,
                                  const CUjit_option *options, void **values)
{
    cuemu_context_t *ctx             = cuemu_context_current();
    char error[CUEMU_PTX_ERROR_SIZE] = "";
    cuemu_module_t *module           = NULL;
    char *text                       = NULL;
    CUresult result;

    if (ctx == NULL) {
        return cuemu_context_error();
    }

    if ((module_p == NULL) || (image == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    result = cuemu_image_text(image, cuemu_session.node->gpus[ctx->gpu].sm,
                              &text, error);
    if (result == CUDA_SUCCESS) {
        result = cuemu_module_new(ctx, text, 0, NULL, &module, error);
        free(text);
    }

    if (error[0] != '\0') {
        cuemu_complain(error);
    }
    cuemu_module_log(num_options, options, values, error);
    if (result == CUDA_SUCCESS) {
        /* Loading waits for the context's work, with and without lazy loading
           (H100, driver 580) */
        cuemu_context_wait(ctx);
        *module_p = (CUmodule)module;
    }
    return result;
}

CUEMU_API(cuModuleLoadData, (CUmodule *module, const void *image),
          (module, image))
{
    return cuemu_module_load(module, image, 0, NULL, NULL);
}

CUEMU_API(cuModuleLoadDataEx,
          (CUmodule *module, const void *image, unsigned num_options,
           CUjit_option *options, void **values),
          (module, image, num_options, options, values))
{
    return cuemu_module_load(module, image, num_options, options, values);
}

CUEMU_API(cuModuleLoadFatBinary, (CUmodule *module, const void *image),
          (module, image))
{
    return cuemu_module_load(module, image, 0, NULL, NULL);
}

CUresult cuemu_image_read(const char *path, void **image_p, size_t *size_p)
{
    FILE *file      = (path == NULL) ? NULL : fopen(path, "rb");
    CUresult result = CUDA_ERROR_INVALID_IMAGE;
    char *image     = NULL;
    long size;

    if (file == NULL) {
        return (path == NULL) ? CUDA_ERROR_INVALID_VALUE :
                                CUDA_ERROR_FILE_NOT_FOUND;
    }

    if ((fseek(file, 0, SEEK_END) == 0) && ((size = ftell(file)) >= 0) &&
        (fseek(file, 0, SEEK_SET) == 0)) {
        image  = calloc(1, (size_t)size + 16);
        result = (image == NULL) ? CUDA_ERROR_OUT_OF_MEMORY :
                 (fread(image, 1, (size_t)size, file) == (size_t)size) ?
                 CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
        *size_p = (size_t)size;
    }
    fclose(file);
    if (result != CUDA_SUCCESS) {
        free(image);
        return result;
    }
    *image_p = image;
    return CUDA_SUCCESS;
}

CUEMU_API(cuModuleLoad, (CUmodule *module, const char *path), (module, path))
{
    void *image;
    size_t size;
    CUresult result = cuemu_image_read(path, &image, &size);

    if (result == CUDA_SUCCESS) {
        result = cuemu_module_load(module, image, 0, NULL, NULL);
        free(image);
    }
    return result;
}

CUEMU_API(cuModuleUnload, (CUmodule handle), (handle))
{
    cuemu_module_t *module = cuemu_object_check(handle, CUEMU_OBJ_MODULE);

    if (module == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }

    cuemu_context_wait(module->ctx); /* running kernels may belong to it */
    cuemu_module_free(module, 0);
    return CUDA_SUCCESS;
}

/* -------------------------------------------------------------- functions */

static CUresult cuemu_function_get(cuemu_module_t *module, const char *name,
                                   cuemu_function_t **function_p)
{
    char error[CUEMU_PTX_ERROR_SIZE] = "";
    cuemu_ptx_kernel_t *kernel;
    cuemu_function_t *function;
    CUresult result;

    kernel = cuemu_ptx_kernel(module->ptx, name, 0);
    if (kernel == NULL) {
        return CUDA_ERROR_NOT_FOUND;
    }

    result = cuemu_ptx_result(cuemu_ptx_kernel_parse(kernel, error));
    if (result != CUDA_SUCCESS) {
        if (error[0] != '\0') { /* the text is set only the first time */
            fprintf(stderr, "cuemu: kernel %s: %s\n", name, error);
        }
        return result;
    }

    cuemu_lock();
    for (function = module->functions; function != NULL;
         function = function->next) {
        if (function->kernel == kernel) {
            break;
        }
    }

    if (function == NULL) {
        function = cuemu_object_new(CUEMU_OBJ_FUNCTION, sizeof(*function));
        if (function != NULL) {
            function->module  = module;
            function->kernel  = kernel;
            function->next    = module->functions;
            module->functions = function;
            cuemu_ptx_kernel_info(kernel, &function->info);
        }
    }
    cuemu_unlock();

    *function_p = function;
    return (function == NULL) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUEMU_API(cuModuleGetFunction,
          (CUfunction *func, CUmodule handle, const char *name),
          (func, handle, name))
{
    cuemu_module_t *module = cuemu_object_check(handle, CUEMU_OBJ_MODULE);

    if (module == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }

    return ((func == NULL) || (name == NULL)) ?
           CUDA_ERROR_INVALID_VALUE :
           cuemu_function_get(module, name, (cuemu_function_t**)func);
}

static CUresult cuemu_ptx_count(cuemu_ptx_module_t *ptx, unsigned *count)
{
    if (count == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (*count = 0; cuemu_ptx_kernel(ptx, NULL, *count) != NULL; ++*count) {
    }
    return CUDA_SUCCESS;
}

CUEMU_API(cuModuleGetFunctionCount, (unsigned *count, CUmodule handle),
          (count, handle))
{
    const cuemu_module_t *module = cuemu_object_check(handle, CUEMU_OBJ_MODULE);

    return (module == NULL) ? CUDA_ERROR_INVALID_HANDLE :
                              cuemu_ptx_count(module->ptx, count);
}

static CUresult cuemu_module_global(cuemu_module_t *module, const char *name,
                                    CUdeviceptr *ptr, size_t *size)
{
    const cuemu_ptx_global_t *global;
    unsigned i;

    for (i = 0; (global = cuemu_ptx_global(module->ptx, i)) != NULL; ++i) {
        if (strcmp(global->name, name) == 0) {
            if (ptr != NULL) {
                *ptr = (CUdeviceptr)global->address;
            }
            if (size != NULL) {
                *size = global->size;
            }
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_NOT_FOUND;
}

CUEMU_API(cuModuleGetGlobal_v2,
          (CUdeviceptr *ptr, size_t *size, CUmodule handle, const char *name),
          (ptr, size, handle, name))
{
    cuemu_module_t *module = cuemu_object_check(handle, CUEMU_OBJ_MODULE);

    if (module == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }

    return (name == NULL) ? CUDA_ERROR_INVALID_VALUE :
                            cuemu_module_global(module, name, ptr, size);
}

/* Find the function of a call that stores its answer at `out`. */
static CUresult cuemu_function_query(CUfunction handle, const void *out,
                                     cuemu_function_t **function_p)
{
    CUresult result = cuemu_function_resolve(handle, function_p);

    return ((result == CUDA_SUCCESS) && (out == NULL)) ?
           CUDA_ERROR_INVALID_VALUE : result;
}

CUEMU_API(cuFuncGetAttribute,
          (int *value, CUfunction_attribute attribute, CUfunction handle),
          (value, attribute, handle))
{
    cuemu_function_t *function;
    CUresult result = cuemu_function_query(handle, value, &function);

    if (result != CUDA_SUCCESS) {
        return result;
    }

    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = (int)cuemu_function_threads(function);
        break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *value = (int)function->info.shared_size;
        break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
        *value = 0;
        break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *value = (int)function->info.local_size;
        break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = 32; /* PTX registers are not GPU registers */
        break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION: /* CUB chooses its kernels by it */
        *value = function->module->target;
        break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = cuemu_session.node->gpus[function->module->ctx->gpu].sm;
        break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = (int)cuemu_function_shared(function);
        break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *value = -1;
        break;
    default:
        *value = 0;
        break;
    }
    return CUDA_SUCCESS;
}

/* Return the most shared memory of a block on the function's GPU, in bytes; see
   cuemu_shared_bytes(). */
static size_t cuemu_function_most(const cuemu_function_t *function,
                                  int *reserved_p)
{
    return (size_t)cuemu_shared_bytes(
            cuemu_session.node->gpus[function->module->ctx->gpu].sm,
            reserved_p);
}

uint32_t cuemu_function_shared(const cuemu_function_t *function)
{
    return (function->dynamic_shared != 0) ? function->dynamic_shared :
           (CUEMU_SHARED_PLAIN - function->info.shared_size);
}

CUEMU_API(cuFuncSetAttribute,
          (CUfunction handle, CUfunction_attribute attribute, int value),
          (handle, attribute, value))
{
    cuemu_function_t *function;
    CUresult result = cuemu_function_resolve(handle, &function);

    if (result != CUDA_SUCCESS) {
        return result;
    }

    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
        if ((value < 0) ||
            ((uint32_t)value + function->info.shared_size >
             cuemu_function_most(function, NULL))) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        function->dynamic_shared = (uint32_t)value;
        return CUDA_SUCCESS;
    }

    return (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) ?
           CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUEMU_API(cuFuncSetCacheConfig, (CUfunction handle, CUfunc_cache config),
          (handle, config))
{
    cuemu_function_t *function;

    return cuemu_function_resolve(handle, &function);
}

CUEMU_API(cuFuncGetName, (const char **name, CUfunction handle),
          (name, handle))
{
    cuemu_function_t *function;
    CUresult result = cuemu_function_query(handle, name, &function);

    if (result == CUDA_SUCCESS) {
        *name = function->info.name;
    }
    return result;
}

CUEMU_API(cuFuncGetModule, (CUmodule *module, CUfunction handle),
          (module, handle))
{
    cuemu_function_t *function;
    CUresult result = cuemu_function_query(handle, module, &function);

    if (result == CUDA_SUCCESS) {
        *module = (CUmodule)function->module;
    }
    return result;
}

/* Most threads and blocks of a multiprocessor (programming guide, table of
   technical specifications) */
#define CUEMU_SM_MAX_THREADS 2048
#define CUEMU_SM_MAX_BLOCKS  32

unsigned cuemu_function_threads(const cuemu_function_t *function)
{
    return (function->info.max_threads != 0) ? function->info.max_threads :
                                               CUEMU_BLOCK_THREADS;
}

unsigned cuemu_function_blocks(const cuemu_function_t *function,
                               uint64_t threads, size_t shared)
{
    size_t blocks = CUEMU_SM_MAX_THREADS / threads, most, need;
    int reserved;

    most = cuemu_function_most(function, &reserved) + (size_t)reserved;
    need = shared + function->info.shared_size + (size_t)reserved;
    if ((need > 0) && (blocks > most / need)) {
        blocks = most / need;
    }
    return (blocks > CUEMU_SM_MAX_BLOCKS) ? CUEMU_SM_MAX_BLOCKS :
                                            (unsigned)blocks;
}

CUEMU_API(cuOccupancyMaxActiveBlocksPerMultiprocessor,
          (int *blocks, CUfunction handle, int threads, size_t shared),
          (blocks, handle, threads, shared))
{
    cuemu_function_t *function;
    CUresult result = cuemu_function_query(handle, blocks, &function);

    if ((result != CUDA_SUCCESS) || (threads <= 0)) {
        return (result != CUDA_SUCCESS) ? result : CUDA_ERROR_INVALID_VALUE;
    }

    *blocks = ((unsigned)threads > cuemu_function_threads(function)) ? 0 :
              (int)cuemu_function_blocks(function, (uint64_t)threads, shared);
    return CUDA_SUCCESS;
}

/* The largest block that the kernel may have, and blocks of it for all
   multiprocessors */
CUEMU_API(cuOccupancyMaxPotentialBlockSize,
          (int *grid, int *block, CUfunction handle,
           CUoccupancyB2DSize of_block, size_t shared, int limit),
          (grid, block, handle, of_block, shared, limit))
{
    cuemu_function_t *function;
    CUresult result = cuemu_function_resolve(handle, &function);
    const cuemu_gpu_t *gpu;
    int most;

    if ((result != CUDA_SUCCESS) || (grid == NULL) || (block == NULL)) {
        return (result != CUDA_SUCCESS) ? result : CUDA_ERROR_INVALID_VALUE;
    }

    gpu    = &cuemu_session.node->gpus[function->module->ctx->gpu];
    most   = (int)cuemu_function_threads(function);
    *block = ((limit > 0) && (limit < most)) ? limit : most;
    shared = (of_block != NULL) ? of_block(*block) : shared;
    *grid  = gpu->sm_count *
             (int)cuemu_function_blocks(function, (uint64_t)*block, shared);
    return CUDA_SUCCESS;
}

/* -------------------------------------------------------------- libraries */

CUEMU_API(cuLibraryLoadData,
          (CUlibrary *library_p, const void *code, CUjit_option *jit,
           void **jit_values, unsigned num_jit, CUlibraryOption *options,
           void **values, unsigned num_options),
          (library_p, code, jit, jit_values, num_jit, options, values,
           num_options))
{
    char error[CUEMU_PTX_ERROR_SIZE] = "";
    cuemu_ptx_module_t *ptx          = NULL;
    cuemu_library_t *library;
    CUresult result;
    int sm = 0, i;

    if ((library_p == NULL) || (code == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    for (i = 0; i < cuemu_process.num_devices; ++i) {
        if (cuemu_session.node->gpus[cuemu_process.gpu[i]].sm > sm) {
            sm = cuemu_session.node->gpus[cuemu_process.gpu[i]].sm;
        }
    }

    library = cuemu_object_new(CUEMU_OBJ_LIBRARY, sizeof(*library));
    if (library == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    /* Report bad code now */
    result = cuemu_image_text(code, sm, &library->text, error);
    if (result == CUDA_SUCCESS) {
        result = cuemu_text_check(library->text, sm, error);
    }
    if (result == CUDA_SUCCESS) {
        result = cuemu_ptx_load(library->text, strlen(library->text), 1,
                                &ptx, error) == CUEMU_PTX_OK ?
                 CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    }
    if (result != CUDA_SUCCESS) {
        cuemu_complain(error);
        cuemu_module_log(num_jit, jit, jit_values, error);
        free(library->text);
        cuemu_object_delete(library);
        return result;
    }

    cuemu_ptx_unload(ptx);
    cuemu_lock();
    library->next   = cuemu_libraries;
    cuemu_libraries = library;
    cuemu_unlock();
    *library_p = (CUlibrary)library;
    return CUDA_SUCCESS;
}

/* Find a library's module in the current context, or load it. */
static CUresult cuemu_library_module(CUlibrary handle,
                                     cuemu_module_t **module_p)
{
    cuemu_library_t *library = cuemu_object_check(handle, CUEMU_OBJ_LIBRARY);
    cuemu_context_t *ctx     = cuemu_context_current();
    char error[CUEMU_PTX_ERROR_SIZE] = "";
    cuemu_module_t *module, *other;
    CUresult result;

    if ((library == NULL) || (ctx == NULL)) {
        return (library == NULL) ? CUDA_ERROR_INVALID_HANDLE :
                                   cuemu_context_error();
    }

    cuemu_lock();
    other = library->modules;
    for (module = library->modules; module != NULL; module = module->next) {
        if (module->ctx == ctx) {
            break;
        }
    }
    cuemu_unlock();
    if (module != NULL) {
        *module_p = module;
        return CUDA_SUCCESS;
    }

    result = cuemu_module_new(ctx, library->text, 1, other, &module, error);
    if (result != CUDA_SUCCESS) {
        cuemu_complain(error);
        return result;
    }

    cuemu_lock();
    module->next     = library->modules;
    library->modules = module;
    cuemu_unlock();
    *module_p = module;
    return CUDA_SUCCESS;
}

CUEMU_API(cuLibraryUnload, (CUlibrary handle), (handle))
{
    cuemu_library_t *library = cuemu_object_check(handle, CUEMU_OBJ_LIBRARY);
    cuemu_library_t **link;
    cuemu_module_t *module, *next;
    cuemu_kernel_t *kernel, *next_kernel;

    if (library == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }

    cuemu_lock();
    for (link = &cuemu_libraries; *link != library; link = &(*link)->next) {
    }
    *link = library->next;
    cuemu_unlock();

    for (module = library->modules; module != NULL; module = next) {
        next = module->next;
        cuemu_context_wait(module->ctx);
        cuemu_module_free(module, 0);
    }
    for (kernel = library->kernels; kernel != NULL; kernel = next_kernel) {
        next_kernel = kernel->next;
        cuemu_object_delete(kernel);
    }
    free(library->text);
    cuemu_object_delete(library);
    return CUDA_SUCCESS;
}

#define CUEMU_NAME_MAX 1024

CUEMU_API(cuLibraryGetKernel,
          (CUkernel *kernel_p, CUlibrary handle, const char *name),
          (kernel_p, handle, name))
{
    cuemu_library_t *library = cuemu_object_check(handle, CUEMU_OBJ_LIBRARY);
    cuemu_kernel_t *kernel;
    char entry[CUEMU_NAME_MAX + 32];
    const char *found;

    if (library == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }

    if ((kernel_p == NULL) || (name == NULL) ||
        (strlen(name) >= CUEMU_NAME_MAX)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    snprintf(entry, sizeof(entry), ".entry %s", name);
    found = strstr(library->text, entry);
    while ((found != NULL) &&
           (strchr("( \t\n;", found[strlen(entry)]) == NULL)) {
        found = strstr(found + 1, entry);
    }
    if (found == NULL) {
        return CUDA_ERROR_NOT_FOUND;
    }

    cuemu_lock();
    for (kernel = library->kernels; kernel != NULL; kernel = kernel->next) {
        if (strcmp(kernel->name, name) == 0) {
            break;
        }
    }
    if (kernel == NULL) {
        kernel = cuemu_object_new(CUEMU_OBJ_KERNEL,
                                  sizeof(*kernel) + CUEMU_NAME_MAX);
        if (kernel != NULL) {
            kernel->library  = library;
            kernel->next     = library->kernels;
            library->kernels = kernel;
            memcpy(kernel->name, name, strlen(name) + 1);
        }
    }
    cuemu_unlock();

    *kernel_p = (CUkernel)kernel;
    return (kernel == NULL) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUEMU_API(cuLibraryGetModule, (CUmodule *module, CUlibrary library),
          (module, library))
{
    cuemu_module_t *found;
    CUresult result = cuemu_library_module(library, &found);

    if ((result != CUDA_SUCCESS) || (module == NULL)) {
        return (result != CUDA_SUCCESS) ? result : CUDA_ERROR_INVALID_VALUE;
    }
    *module = (CUmodule)found;
    return CUDA_SUCCESS;
}

CUEMU_API(cuLibraryGetKernelCount, (unsigned *count, CUlibrary library),
          (count, library))
{
    cuemu_module_t *module;
    CUresult result = cuemu_library_module(library, &module);

    return (result != CUDA_SUCCESS) ? result :
                                      cuemu_ptx_count(module->ptx, count);
}

CUEMU_API(cuLibraryGetGlobal,
          (CUdeviceptr *ptr, size_t *size, CUlibrary library, const char *name),
          (ptr, size, library, name))
{
    cuemu_module_t *module;
    CUresult result = cuemu_library_module(library, &module);

    return (result != CUDA_SUCCESS) ? result :
           (name == NULL)           ? CUDA_ERROR_INVALID_VALUE :
           cuemu_module_global(module, name, ptr, size);
}

/* Managed variables are in every context at one address */
CUEMU_API(cuLibraryGetManaged,
          (CUdeviceptr *ptr, size_t *size, CUlibrary library, const char *name),
          (ptr, size, library, name))
{
    return cuemu_do_cuLibraryGetGlobal(ptr, size, library, name);
}

CUresult cuemu_function_resolve(CUfunction handle,
                                cuemu_function_t **function_p)
{
    cuemu_kernel_t *kernel = cuemu_object_check(handle, CUEMU_OBJ_KERNEL);
    cuemu_module_t *module;
    CUresult result;

    if (kernel == NULL) {
        *function_p = cuemu_object_check(handle, CUEMU_OBJ_FUNCTION);
        return (*function_p == NULL) ? CUDA_ERROR_INVALID_HANDLE :
                                       CUDA_SUCCESS;
    }

    result = cuemu_library_module((CUlibrary)kernel->library, &module);
    return (result != CUDA_SUCCESS) ? result :
           cuemu_function_get(module, kernel->name, function_p);
}

CUEMU_API(cuKernelGetFunction, (CUfunction *function, CUkernel handle),
          (function, handle))
{
    return (function == NULL) ? CUDA_ERROR_INVALID_VALUE :
           cuemu_function_resolve((CUfunction)handle,
                                  (cuemu_function_t**)function);
}

/* Answer for the current context and all devices: the code is the same */
CUEMU_API(cuKernelGetAttribute,
          (int *value, CUfunction_attribute attribute, CUkernel kernel,
           CUdevice dev),
          (value, attribute, kernel, dev))
{
    return cuemu_do_cuFuncGetAttribute(value, attribute, (CUfunction)kernel);
}

CUEMU_API(cuKernelSetAttribute,
          (CUfunction_attribute attribute, int value, CUkernel kernel,
           CUdevice dev),
          (attribute, value, kernel, dev))
{
    return cuemu_do_cuFuncSetAttribute((CUfunction)kernel, attribute, value);
}

CUEMU_API(cuFuncGetParamInfo,
          (CUfunction handle, size_t index, size_t *offset, size_t *size),
          (handle, index, offset, size))
{
    cuemu_function_t *function;
    CUresult result = cuemu_function_resolve(handle, &function);
    uint32_t at, length;

    if (result != CUDA_SUCCESS) {
        return result;
    }

    if ((offset == NULL) || (index >= function->info.num_params)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_ptx_kernel_param(function->kernel, (unsigned)index, &at, &length);
    *offset = at;
    if (size != NULL) {
        *size = length;
    }
    return CUDA_SUCCESS;
}

CUEMU_API(cuKernelGetParamInfo,
          (CUkernel kernel, size_t index, size_t *offset, size_t *size),
          (kernel, index, offset, size))
{
    return cuemu_do_cuFuncGetParamInfo((CUfunction)kernel, index, offset, size);
}
