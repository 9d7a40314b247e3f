/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands for a UCX's libuct_cuda_gdrcopy.so, which needs the UCX's own CUDA
 * module and GDRCopy, and says so when UCX's module loader has loaded it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <dlfcn.h>
#include <stdio.h>

signed char ucs_module_global_init(void);
void gdr_runtime_get_version(int *major, int *minor);

signed char ucs_module_global_init(void)
{
    void *cuda = dlopen("libuct_cuda.so.0", RTLD_LAZY | RTLD_NOLOAD);
    int major, minor;

    gdr_runtime_get_version(&major, &minor);
    fprintf(stderr,
            "fake gdr_copy: loaded %s the UCX's CUDA module, GDRCopy %d.%d\n",
            (cuda != NULL) ? "with" : "without", major, minor);
    return 0;
}
