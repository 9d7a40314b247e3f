/* SPDX-License-Identifier: BSD-3-Clause */

#include "kernels.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Define `_name` as the text of the PTX file `_file`, zero-terminated and
   hidden (see regenerate). */
#define UCX_MP_KERNELS_PTX(_name, _file) \
    __asm__(".pushsection .rodata\n" \
            ".globl " #_name "\n" \
            ".hidden " #_name "\n" \
            #_name ":\n" \
            ".incbin \"" _file "\"\n" \
            ".byte 0\n" \
            ".popsection\n"); \
    extern const char _name[] __attribute__((visibility("hidden")))

UCX_MP_KERNELS_PTX(ucx_mp_copy_ptx, UCX_MP_COPY_PTX);
UCX_MP_KERNELS_PTX(ucx_mp_pack_ptx, UCX_MP_PACK_PTX);
UCX_MP_KERNELS_PTX(ucx_mp_reduce_ptx, UCX_MP_REDUCE_PTX);

#define UCX_MP_KERNEL_NAME_MAX 64

struct ucx_mp_kernels {
    ucx_mp_kernels_driver_t driver;
    pthread_mutex_t         lock; /* protects loading */
    struct {
        CUmodule   module;
        CUfunction function;      /* NULL: not loaded */
    } kernel[UCX_MP_OP_LAST][UCX_MP_TYPE_LAST];
};

static const struct {
    const char *name;
    size_t      size, align;
    const char *same;  /* type with the same sums and logical operations */
} ucx_mp_types[UCX_MP_TYPE_LAST] = {
    [UCX_MP_TYPE_I8]      = {"i8", 1, 1, "u8"},
    [UCX_MP_TYPE_U8]      = {"u8", 1, 1, "u8"},
    [UCX_MP_TYPE_I16]     = {"i16", 2, 2, "u16"},
    [UCX_MP_TYPE_U16]     = {"u16", 2, 2, "u16"},
    [UCX_MP_TYPE_I32]     = {"i32", 4, 4, "u32"},
    [UCX_MP_TYPE_U32]     = {"u32", 4, 4, "u32"},
    [UCX_MP_TYPE_I64]     = {"i64", 8, 8, "u64"},
    [UCX_MP_TYPE_U64]     = {"u64", 8, 8, "u64"},
    [UCX_MP_TYPE_F16]     = {"f16", 2, 2, "f16"},
    [UCX_MP_TYPE_BF16]    = {"bf16", 2, 2, "bf16"},
    [UCX_MP_TYPE_F32]     = {"f32", 4, 4, "f32"},
    [UCX_MP_TYPE_F64]     = {"f64", 8, 8, "f64"},
    [UCX_MP_TYPE_C32]     = {"c32", 8, 4, "c32"},
    [UCX_MP_TYPE_C64]     = {"c64", 16, 8, "c64"},
    [UCX_MP_TYPE_I16_I32] = {"i16_i32", 8, 4, NULL},
    [UCX_MP_TYPE_I32_I32] = {"i32_i32", 8, 4, NULL},
    [UCX_MP_TYPE_I64_I32] = {"i64_i32", 16, 8, NULL},
    [UCX_MP_TYPE_F32_I32] = {"f32_i32", 8, 4, NULL},
    [UCX_MP_TYPE_F64_I32] = {"f64_i32", 16, 8, NULL},
    [UCX_MP_TYPE_F32_F32] = {"f32_f32", 8, 4, NULL},
    [UCX_MP_TYPE_F64_F64] = {"f64_f64", 16, 8, NULL}
};

static const char *const ucx_mp_ops[UCX_MP_OP_LAST] = {
    [UCX_MP_OP_SUM] = "sum",       [UCX_MP_OP_PROD] = "prod",
    [UCX_MP_OP_MIN] = "min",       [UCX_MP_OP_MAX] = "max",
    [UCX_MP_OP_LAND] = "land",     [UCX_MP_OP_LOR] = "lor",
    [UCX_MP_OP_LXOR] = "lxor",     [UCX_MP_OP_BAND] = "band",
    [UCX_MP_OP_BOR] = "bor",       [UCX_MP_OP_BXOR] = "bxor",
    [UCX_MP_OP_MINLOC] = "minloc", [UCX_MP_OP_MAXLOC] = "maxloc"
};


size_t ucx_mp_type_size(ucx_mp_type_t type)
{
    return ucx_mp_types[type].size;
}

size_t ucx_mp_type_align(ucx_mp_type_t type)
{
    return ucx_mp_types[type].align;
}

int ucx_mp_kernel_is_known(ucx_mp_op_t op, ucx_mp_type_t type)
{
    if (((unsigned)op >= UCX_MP_OP_LAST) ||
        ((unsigned)type >= UCX_MP_TYPE_LAST)) {
        return 0;
    }

    switch (op) {
    case UCX_MP_OP_SUM:
    case UCX_MP_OP_PROD:
        return type < UCX_MP_TYPE_I16_I32;
    case UCX_MP_OP_MIN:
    case UCX_MP_OP_MAX:
        return type < UCX_MP_TYPE_C32;
    case UCX_MP_OP_MINLOC:
    case UCX_MP_OP_MAXLOC:
        return type >= UCX_MP_TYPE_I16_I32;
    default:
        return type < UCX_MP_TYPE_F16;
    }
}

static int ucx_mp_op_is_bitwise(ucx_mp_op_t op)
{
    return (op == UCX_MP_OP_BAND) || (op == UCX_MP_OP_BOR) ||
           (op == UCX_MP_OP_BXOR);
}

/* Return the type whose kernel implements the operation: equal bits give equal
   results for several types. */
static const char *ucx_mp_kernel_type(ucx_mp_op_t op, ucx_mp_type_t type)
{
    switch (op) {
    case UCX_MP_OP_BAND:
    case UCX_MP_OP_BOR:
    case UCX_MP_OP_BXOR:
        return "u8";
    case UCX_MP_OP_MIN:
    case UCX_MP_OP_MAX:
    case UCX_MP_OP_MINLOC:
    case UCX_MP_OP_MAXLOC:
        return ucx_mp_types[type].name;
    default:
        return ucx_mp_types[type].same;
    }
}

/*
 * Return the PTX of one kernel in memory from malloc(): the text before the
 * first kernel, and its own. The driver's compile time is proportional to the
 * text. NULL: no memory, or no kernel of this name.
 */
static char *ucx_mp_kernel_ptx(const char *name)
{
    const char *text = ucx_mp_reduce_ptx;
    const char *head = strstr(text, ".visible .entry ");
    char entry[UCX_MP_KERNEL_NAME_MAX + 20];
    const char *begin, *end;
    size_t head_size, size;
    char *ptx;

    snprintf(entry, sizeof(entry), ".visible .entry %s(", name);
    begin = strstr(text, entry);
    end   = (begin == NULL) ? NULL : strstr(begin, "\n}\n");
    if (end == NULL) {
        return NULL;
    }

    head_size = (size_t)(head - text);
    size      = (size_t)(end - begin) + 3;
    ptx       = malloc(head_size + size + 1);
    if (ptx != NULL) {
        memcpy(ptx, text, head_size);
        memcpy(ptx + head_size, begin, size);
        ptx[head_size + size] = '\0';
    }
    return ptx;
}

ucx_mp_kernels_t *ucx_mp_kernels_create(const ucx_mp_kernels_driver_t *driver)
{
    ucx_mp_kernels_t *kernels = calloc(1, sizeof(*kernels));

    if (kernels != NULL) {
        kernels->driver = *driver;
        pthread_mutex_init(&kernels->lock, NULL);
    }
    return kernels;
}

void ucx_mp_kernels_destroy(ucx_mp_kernels_t *kernels)
{
    pthread_mutex_destroy(&kernels->lock);
    free(kernels);
}

static CUresult ucx_mp_kernels_compile(const ucx_mp_kernels_driver_t *driver,
                                       ucx_mp_op_t op, ucx_mp_type_t type,
                                       CUmodule *module_p,
                                       CUfunction *function_p)
{
    char name[UCX_MP_KERNEL_NAME_MAX];
    CUresult result;
    char *ptx;

    snprintf(name, sizeof(name), "ucx_mp_%s_%s", ucx_mp_ops[op],
             ucx_mp_kernel_type(op, type));
    ptx = ucx_mp_kernel_ptx(name);
    if (ptx == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    result = driver->ModuleLoadData(module_p, ptx);
    free(ptx);
    if (result != CUDA_SUCCESS) {
        *module_p = NULL;
        return result;
    }

    result = driver->ModuleGetFunction(function_p, *module_p, name);
    if (result != CUDA_SUCCESS) {
        (void)driver->ModuleUnload(*module_p);
        *module_p   = NULL;
        *function_p = NULL;
    }
    return result;
}

/* Return the type under which a kernel is stored: U8 for bitwise operations,
   which have one kernel for all types, else `type` */
static ucx_mp_type_t ucx_mp_kernel_shared(ucx_mp_op_t op, ucx_mp_type_t type)
{
    return ucx_mp_op_is_bitwise(op) ? UCX_MP_TYPE_U8 : type;
}

static CUresult ucx_mp_kernels_function(ucx_mp_kernels_t *kernels,
                                        ucx_mp_op_t op, ucx_mp_type_t type,
                                        CUfunction *function_p)
{
    CUresult result = CUDA_SUCCESS;
    CUfunction function;

    if (!ucx_mp_kernel_is_known(op, type)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }

    type = ucx_mp_kernel_shared(op, type);
    pthread_mutex_lock(&kernels->lock);
    if (kernels->kernel[op][type].function == NULL) {
        result = ucx_mp_kernels_compile(&kernels->driver, op, type,
                                        &kernels->kernel[op][type].module,
                                        &function);
        if (result == CUDA_SUCCESS) {
            __atomic_store_n(&kernels->kernel[op][type].function, function,
                             __ATOMIC_RELEASE);
        }
    }
    *function_p = kernels->kernel[op][type].function;
    pthread_mutex_unlock(&kernels->lock);
    return result;
}

int ucx_mp_kernels_are_loaded(ucx_mp_kernels_t *kernels, ucx_mp_op_t op,
                              ucx_mp_type_t type)
{
    return ucx_mp_kernel_is_known(op, type) &&
           (__atomic_load_n(&kernels->kernel[op][ucx_mp_kernel_shared(op, type)]
                                    .function,
                            __ATOMIC_ACQUIRE) != NULL);
}

CUresult ucx_mp_kernels_load(ucx_mp_kernels_t *kernels, ucx_mp_op_t op,
                             ucx_mp_type_t type)
{
    CUfunction function;

    return ucx_mp_kernels_function(kernels, op, type, &function);
}

/* Return the number of thread blocks: one thread per 16 bytes, so that few
   elements keep many threads busy; at most `max_blocks`, whose threads then
   have several loads in flight each. */
static unsigned ucx_mp_kernels_blocks(unsigned long long bytes,
                                      unsigned max_blocks)
{
    unsigned long long blocks = (bytes + 16 * UCX_MP_REDUCE_THREADS - 1) /
                                (16 * UCX_MP_REDUCE_THREADS);

    return (blocks < max_blocks) ? (unsigned)blocks : max_blocks;
}

CUresult ucx_mp_kernels_reduce(ucx_mp_kernels_t *kernels, ucx_mp_op_t op,
                               ucx_mp_type_t type,
                               const ucx_mp_reduce_args_t *args,
                               unsigned max_blocks, CUstream stream)
{
    ucx_mp_reduce_args_t mine = *args;
    void *params[]            = {&mine};
    unsigned long long bits   = 0;
    CUfunction function;
    CUresult result;
    unsigned i;

    if (!ucx_mp_kernel_is_known(op, type)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }

    if ((args->num_src == 0) || (args->num_src > UCX_MP_REDUCE_MAX) ||
        (args->num_dst == 0) || (args->num_dst > UCX_MP_REDUCE_MAX) ||
        (max_blocks == 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    for (i = 0; i < args->num_src; ++i) {
        bits |= args->src[i];
    }
    for (i = 0; i < args->num_dst; ++i) {
        bits |= args->dst[i];
    }
    if ((bits % ucx_mp_type_align(type)) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    if (args->count == 0) {
        return CUDA_SUCCESS;
    }

    result = ucx_mp_kernels_function(kernels, op, type, &function);
    if (result != CUDA_SUCCESS) {
        return result;
    }

    if (ucx_mp_op_is_bitwise(op)) {
        mine.count *= ucx_mp_type_size(type);
    }
    return kernels->driver.LaunchKernel(
            function,
            ucx_mp_kernels_blocks(args->count * ucx_mp_type_size(type),
                                  max_blocks),
            1, 1, UCX_MP_REDUCE_THREADS, 1, 1, 0, stream, params, NULL);
}


/* -------------------------------------------------------- copying, packing */

CUresult ucx_mp_copy_load(const ucx_mp_kernels_driver_t *driver,
                          ucx_mp_copy_t *kernels)
{
    CUmodule module;
    CUresult result;

    result = driver->ModuleLoadData(&module, ucx_mp_copy_ptx);
    if (result == CUDA_SUCCESS) {
        result = driver->ModuleGetFunction(&kernels->copy, module,
                                           "ucx_mp_copy");
    }
    if (result == CUDA_SUCCESS) {
        result = driver->ModuleGetFunction(&kernels->alike, module,
                                           "ucx_mp_copy_alike");
    }
    return result;
}

static CUresult ucx_mp_copy_any(const ucx_mp_kernels_driver_t *driver,
                       CUfunction function, unsigned blocks, const void *args,
                       CUstream stream)
{
    void *params[] = {(void*)args};

    return driver->LaunchKernel(function, blocks, 1, 1, UCX_MP_COPY_THREADS, 1,
                                1, 0, stream, params, NULL);
}

CUresult ucx_mp_copy_launch(const ucx_mp_kernels_driver_t *driver,
                            const ucx_mp_copy_t *kernels, unsigned blocks,
                            const ucx_mp_copy_args_t *args, CUstream stream)
{
    return ucx_mp_copy_any(driver, kernels->copy, blocks, args, stream);
}

CUresult
ucx_mp_copy_launch_alike(const ucx_mp_kernels_driver_t *driver,
                         const ucx_mp_copy_t *kernels, unsigned blocks,
                         const ucx_mp_copy_alike_args_t *args, CUstream stream)
{
    return ucx_mp_copy_any(driver, kernels->alike, blocks, args, stream);
}

CUresult ucx_mp_pack_load(const ucx_mp_kernels_driver_t *driver,
                          CUfunction *function)
{
    CUmodule module;
    CUresult result;

    result = driver->ModuleLoadData(&module, ucx_mp_pack_ptx);
    return (result != CUDA_SUCCESS) ?
                   result :
                   driver->ModuleGetFunction(function, module, "ucx_mp_pack");
}

CUresult ucx_mp_pack_launch(const ucx_mp_kernels_driver_t *driver,
                            CUfunction function,
                            const ucx_mp_pack_args_t *args, CUstream stream)
{
    const unsigned long long block = args->unit * UCX_MP_PACK_THREADS *
                                     UCX_MP_PACK_WORDS;
    unsigned long long blocks      = (args->bytes + block - 1) / block;
    void *params[]                 = {(void*)args};

    if (blocks > UCX_MP_PACK_BLOCKS) {
        blocks = UCX_MP_PACK_BLOCKS;
    }
    return driver->LaunchKernel(function, (unsigned)blocks, 1, 1,
                                UCX_MP_PACK_THREADS, 1, 1, 0, stream, params,
                                NULL);
}
