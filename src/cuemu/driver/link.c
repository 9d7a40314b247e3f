/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The linker of the driver. Its input is one or more PTX texts, and of
 * libcudadevrt.a the grid's barrier. Its result is opaque to programs, which
 * load it by cuModuleLoadData(): here it is PTX
 * again, the concatenation of all texts. Each begins with .version, and can use
 * the names that another one makes visible.
 */
#include "cuemu_gate.h"
#include "cuemu_kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CUlinkState_st {
    cuemu_object_t obj;
    char          *text;
    size_t         size;     /* without the final zero */
    char          *log;      /* the program's, for errors; NULL: no log */
    size_t         log_size;
};

/* Functions of libcudadevrt.a, which is machine code: the grid's barrier of a
   cooperative launch, in the word at 4 of its workspace. Each round adds up to
   2^31, so that the top bit changes. */
static const char cuemu_link_devrt[] =
        ".version 6.0\n.target sm_60\n.address_size 64\n"
        ".visible .func (.param .b64 r) cudaCGGetIntrinsicHandle"
        "(.param .b32 a)\n{\n"
        ".reg .b64 %d; mov.u64 %d, 1; st.param.b64 [r], %d; ret;\n}\n"
        ".visible .func (.param .b32 r) cudaCGSynchronize"
        "(.param .b64 a, .param .b32 b)\n{\n"
        ".reg .pred %p<3>; .reg .b32 %r<7>; .reg .b64 %d;\n"
        "mov.u32 %r1, %envreg1; mov.u32 %r2, %envreg2;\n"
        "mov.b64 %d, {%r2, %r1};\n"
        "mov.u32 %r3, %tid.x; mov.u32 %r4, %tid.y; or.b32 %r3, %r3, %r4;\n"
        "mov.u32 %r4, %tid.z; or.b32 %r3, %r3, %r4;\n"
        "setp.ne.u32 %p1, %r3, 0; bar.sync 0; @%p1 bra $WAITED;\n"
        "mov.u32 %r3, %nctaid.x; mov.u32 %r4, %nctaid.y;\n"
        "mul.lo.u32 %r3, %r3, %r4; mov.u32 %r4, %nctaid.z;\n"
        "mul.lo.u32 %r3, %r3, %r4; sub.u32 %r5, 0x80000001, %r3;\n"
        "mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ctaid.y;\n"
        "or.b32 %r3, %r3, %r4; mov.u32 %r4, %ctaid.z; or.b32 %r3, %r3, %r4;\n"
        "setp.eq.u32 %p2, %r3, 0; selp.b32 %r5, %r5, 1, %p2;\n"
        "atom.add.release.gpu.u32 %r5, [%d+4], %r5;\n"
        "$WAIT: ld.acquire.gpu.u32 %r6, [%d+4]; xor.b32 %r6, %r6, %r5;\n"
        "setp.gt.s32 %p2, %r6, -1; @%p2 bra $WAIT;\n"
        "$WAITED: bar.sync 0; mov.u32 %r3, 0; st.param.b32 [r], %r3; ret;\n"
        "}\n";

static CUresult cuemu_link_fail(struct CUlinkState_st *link, CUresult result,
                                const char *error)
{
    fprintf(stderr, "cuemu: %s\n", error);
    if (link->log != NULL) {
        snprintf(link->log, link->log_size, "%s", error);
    }
    return result;
}

static CUresult cuemu_link_add(struct CUlinkState_st *link,
                               CUjitInputType type, const void *data,
                               size_t size)
{
    char error[CUEMU_PTX_ERROR_SIZE] = "";
    char *text                       = NULL, *all;
    CUresult result                  = CUDA_SUCCESS;
    size_t length;

    switch (type) {
    case CU_JIT_INPUT_PTX:
        text   = strndup(data, size);
        result = (text == NULL) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
        break;
    case CU_JIT_INPUT_FATBINARY:
        result = cuemu_fatbin_text(data, cuemu_session.node->gpus[0].sm, &text,
                                   error);
        break;
    case CU_JIT_INPUT_LIBRARY:
        if (memmem(data, size, "cuda_device_runtime", 19) != NULL) {
            text   = strdup(cuemu_link_devrt);
            result = (text == NULL) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
            break;
        }
        /* fall through */
    default:
        return cuemu_link_fail(link, CUDA_ERROR_NOT_SUPPORTED,
                               "cuLinkAddData: the emulated driver links "
                               "PTX, fat binaries and libcudadevrt.a, but not "
                               "machine code, objects, other libraries or "
                               "LTO-IR");
    }
    if (result != CUDA_SUCCESS) {
        free(text);
        return cuemu_link_fail(link, result, error);
    }

    length = strlen(text);
    all    = realloc(link->text, link->size + length + 2);
    if (all != NULL) {
        memcpy(all + link->size, text, length);
        link->text          = all;
        link->size         += length + 1;
        all[link->size - 1] = '\n';
        all[link->size]     = '\0';
    }
    free(text);
    return (all == NULL) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUEMU_CTX_API(cuLinkCreate_v2,
              (unsigned num_options, CUjit_option *options, void **values,
               CUlinkState *link_p),
              (num_options, options, values, link_p))
{
    struct CUlinkState_st *link;
    unsigned i;

    if (link_p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    link = cuemu_object_new(CUEMU_OBJ_LINK, sizeof(*link));
    if (link == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    for (i = 0; (options != NULL) && (values != NULL) && (i < num_options);
         ++i) {
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER) {
            link->log = values[i];
        } else if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) {
            link->log_size = (size_t)(uintptr_t)values[i];
        }
    }
    link->log = (link->log_size == 0) ? NULL : link->log;
    *link_p   = link;
    return CUDA_SUCCESS;
}

CUEMU_API(cuLinkAddData_v2,
          (CUlinkState link, CUjitInputType type, void *data, size_t size,
           const char *name, unsigned num_options, CUjit_option *options,
           void **values),
          (link, type, data, size, name, num_options, options, values))
{
    if (cuemu_object_check(link, CUEMU_OBJ_LINK) == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }

    return (data == NULL) ? CUDA_ERROR_INVALID_VALUE :
                            cuemu_link_add(link, type, data, size);
}

CUEMU_API(cuLinkAddFile_v2,
          (CUlinkState link, CUjitInputType type, const char *path,
           unsigned num_options, CUjit_option *options, void **values),
          (link, type, path, num_options, options, values))
{
    CUresult result;
    void *image;
    size_t size;

    if (cuemu_object_check(link, CUEMU_OBJ_LINK) == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }

    result = cuemu_image_read(path, &image, &size);
    if (result == CUDA_SUCCESS) {
        result = cuemu_link_add(link, type, image, size);
        free(image);
    }
    return result;
}

CUEMU_API(cuLinkComplete, (CUlinkState link, void **image_p, size_t *size_p),
          (link, image_p, size_p))
{
    if (cuemu_object_check(link, CUEMU_OBJ_LINK) == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }

    if ((image_p == NULL) || (link->text == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    *image_p = link->text;
    if (size_p != NULL) {
        *size_p = link->size + 1;
    }
    return CUDA_SUCCESS;
}

CUEMU_API(cuLinkDestroy, (CUlinkState link), (link))
{
    if (cuemu_object_check(link, CUEMU_OBJ_LINK) == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }

    free(link->text);
    cuemu_object_delete(link);
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------- nvJitLink */

/*
 * Replacement of NVIDIA's nvJitLink, which would produce machine code:
 * preload/static.c redirects its functions here. Numbers are those of
 * nvJitLink.h.
 */
#define CUEMU_JIT __attribute__((visibility("default"))) int

enum {
    CUEMU_JIT_SUCCESS       = 0,
    CUEMU_JIT_INVALID_INPUT = 3,
    CUEMU_JIT_NO_PTX        = 4,
    CUEMU_JIT_INTERNAL      = 6,
    CUEMU_JIT_PTX           = 2, /* inputs */
    CUEMU_JIT_FATBIN        = 4,
    CUEMU_JIT_LIBRARY       = 6,
    CUEMU_JIT_ANY           = 10
};

typedef struct CUlinkState_st *cuemu_jit_t;

CUEMU_JIT nvJitLinkCreate(cuemu_jit_t *handle, uint32_t num_options,
                          const char **options);
CUEMU_JIT nvJitLinkDestroy(cuemu_jit_t *handle);
CUEMU_JIT nvJitLinkAddData(cuemu_jit_t jit, int type, const void *data,
                           size_t size, const char *name);
CUEMU_JIT nvJitLinkAddFile(cuemu_jit_t jit, int type, const char *path);
CUEMU_JIT nvJitLinkComplete(cuemu_jit_t jit);
CUEMU_JIT nvJitLinkGetLinkedCubinSize(cuemu_jit_t jit, size_t *size);
CUEMU_JIT nvJitLinkGetLinkedCubin(cuemu_jit_t jit, void *image);
CUEMU_JIT nvJitLinkGetLinkedPtxSize(cuemu_jit_t jit, size_t *size);
CUEMU_JIT nvJitLinkGetLinkedPtx(cuemu_jit_t jit, char *text);
CUEMU_JIT nvJitLinkGetErrorLogSize(cuemu_jit_t jit, size_t *size);
CUEMU_JIT nvJitLinkGetErrorLog(cuemu_jit_t jit, char *log);
CUEMU_JIT nvJitLinkGetInfoLogSize(cuemu_jit_t jit, size_t *size);
CUEMU_JIT nvJitLinkGetInfoLog(cuemu_jit_t jit, char *log);
CUEMU_JIT nvJitLinkVersion(unsigned *major, unsigned *minor);

CUEMU_JIT nvJitLinkCreate(cuemu_jit_t *handle, uint32_t num_options,
                          const char **options)
{
    cuemu_jit_t jit = calloc(1, sizeof(*jit));
    char *log       = calloc(1, CUEMU_PTX_ERROR_SIZE);

    if ((jit == NULL) || (log == NULL)) {
        free(jit);
        free(log);
        return CUEMU_JIT_INTERNAL;
    }
    jit->log      = log;
    jit->log_size = CUEMU_PTX_ERROR_SIZE;
    *handle       = jit;
    return CUEMU_JIT_SUCCESS;
}

CUEMU_JIT nvJitLinkDestroy(cuemu_jit_t *handle)
{
    free((*handle)->text);
    free((*handle)->log);
    free(*handle);
    *handle = NULL;
    return CUEMU_JIT_SUCCESS;
}

CUEMU_JIT nvJitLinkAddData(cuemu_jit_t jit, int type, const void *data,
                           size_t size, const char *name)
{
    uint32_t magic = 0;

    if (data == NULL) {
        return CUEMU_JIT_INVALID_INPUT;
    }

    memcpy(&magic, data, (size < sizeof(magic)) ? size : sizeof(magic));
    if (type == CUEMU_JIT_ANY) {
        type = (magic == CUEMU_FATBIN_MAGIC)       ? CUEMU_JIT_FATBIN :
               (memcmp(&magic, "!<ar", 4) == 0)    ? CUEMU_JIT_LIBRARY :
               (memcmp(&magic, "\177ELF", 4) == 0) ? 0 : CUEMU_JIT_PTX;
    }
    if (((type == CUEMU_JIT_FATBIN) && (cuemu_session.node == NULL)) ||
        (cuemu_link_add(jit,
                        (type == CUEMU_JIT_PTX)     ? CU_JIT_INPUT_PTX :
                        (type == CUEMU_JIT_FATBIN)  ? CU_JIT_INPUT_FATBINARY :
                        (type == CUEMU_JIT_LIBRARY) ? CU_JIT_INPUT_LIBRARY :
                                                      CU_JIT_INPUT_CUBIN,
                        data, size) != CUDA_SUCCESS)) {
        return CUEMU_JIT_NO_PTX;
    }
    return CUEMU_JIT_SUCCESS;
}

CUEMU_JIT nvJitLinkAddFile(cuemu_jit_t jit, int type, const char *path)
{
    void *image;
    size_t size;
    int result;

    if (cuemu_image_read(path, &image, &size) != CUDA_SUCCESS) {
        return CUEMU_JIT_INVALID_INPUT;
    }
    result = nvJitLinkAddData(jit, type, image, size, path);
    free(image);
    return result;
}

CUEMU_JIT nvJitLinkComplete(cuemu_jit_t jit)
{
    return (jit->text == NULL) ? CUEMU_JIT_INVALID_INPUT : CUEMU_JIT_SUCCESS;
}

CUEMU_JIT nvJitLinkGetLinkedCubinSize(cuemu_jit_t jit, size_t *size)
{
    *size = jit->size + 1;
    return nvJitLinkComplete(jit);
}

CUEMU_JIT nvJitLinkGetLinkedCubin(cuemu_jit_t jit, void *image)
{
    if (jit->text != NULL) {
        memcpy(image, jit->text, jit->size + 1);
    }
    return nvJitLinkComplete(jit);
}

CUEMU_JIT nvJitLinkGetLinkedPtxSize(cuemu_jit_t jit, size_t *size)
{
    return nvJitLinkGetLinkedCubinSize(jit, size);
}

CUEMU_JIT nvJitLinkGetLinkedPtx(cuemu_jit_t jit, char *text)
{
    return nvJitLinkGetLinkedCubin(jit, text);
}

CUEMU_JIT nvJitLinkGetErrorLogSize(cuemu_jit_t jit, size_t *size)
{
    *size = strlen(jit->log) + 1;
    return CUEMU_JIT_SUCCESS;
}

CUEMU_JIT nvJitLinkGetErrorLog(cuemu_jit_t jit, char *log)
{
    memcpy(log, jit->log, strlen(jit->log) + 1);
    return CUEMU_JIT_SUCCESS;
}

CUEMU_JIT nvJitLinkGetInfoLogSize(cuemu_jit_t jit, size_t *size)
{
    *size = 1;
    return CUEMU_JIT_SUCCESS;
}

CUEMU_JIT nvJitLinkGetInfoLog(cuemu_jit_t jit, char *log)
{
    *log = '\0';
    return CUEMU_JIT_SUCCESS;
}

/* Report a version with which Numba passes PTX: from 12.3 on it passes
   LTO-IR. */
CUEMU_JIT nvJitLinkVersion(unsigned *major, unsigned *minor)
{
    *major = 12;
    *minor = 2;
    return CUEMU_JIT_SUCCESS;
}
