/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The linker of the driver. Its input is one or more PTX texts. Its result is
 * opaque to programs, which load it by cuModuleLoadData(): here it is PTX
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
    default:
        return cuemu_link_fail(link, CUDA_ERROR_NOT_SUPPORTED,
                               "cuLinkAddData: the emulated driver links PTX "
                               "and fat binaries, but not machine code, "
                               "objects, libraries or LTO-IR");
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
        type = (magic == CUEMU_FATBIN_MAGIC)          ? CUEMU_JIT_FATBIN :
               (memcmp(&magic, "\177ELF", 4) == 0) ? 0 : CUEMU_JIT_PTX;
    }
    if (((type == CUEMU_JIT_FATBIN) && (cuemu_session.node == NULL)) ||
        (cuemu_link_add(jit,
                        (type == CUEMU_JIT_PTX)    ? CU_JIT_INPUT_PTX :
                        (type == CUEMU_JIT_FATBIN) ? CU_JIT_INPUT_FATBINARY :
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
