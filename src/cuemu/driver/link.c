/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The linker of the driver. PTX goes in, one or more; what comes out is opaque
 * to programs and is loaded by cuModuleLoadData(): here PTX as well, all texts
 * one behind the other. A name that one text declares and another defines is
 * found, since a module is one scope.
 */
#include "cuemu_kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CUlinkState_st {
    cuemu_object_t obj;
    char          *text;
    size_t         size;     /* without the final zero */
    char          *log;      /* the program's, for errors; NULL: none */
    size_t         log_size;
};

/* ".version" and its like stand in the first text alone */
static void cuemu_link_hide(char *text)
{
    static const char *const once[] = {".version", ".target", ".address_size"};
    size_t i;
    char *p;

    for (i = 0; i < sizeof(once) / sizeof(once[0]); ++i) {
        p = strstr(text, once[i]);
        for (; (p != NULL) && (*p != '\n') && (*p != '\0'); ++p) {
            *p = ' ';
        }
    }
}

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
                               "and fat binaries, no machine code, objects, "
                               "libraries or LTO-IR");
    }
    if (result != CUDA_SUCCESS) {
        free(text);
        return cuemu_link_fail(link, result, error);
    }

    if (link->size > 0) {
        cuemu_link_hide(text);
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

CUEMU_API(cuLinkCreate_v2,
          (unsigned num_options, CUjit_option *options, void **values,
           CUlinkState *link_p),
          (num_options, options, values, link_p))
{
    struct CUlinkState_st *link;
    unsigned i;

    if (cuemu_context_current() == NULL) {
        return cuemu_context_error();
    }

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
