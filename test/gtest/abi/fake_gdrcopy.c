/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands for a UCX's libuct_cuda_gdrcopy.so, which needs the UCX's own CUDA
 * module, and says so when UCX's module loader has loaded it. */
#include <dlfcn.h>
#include <stdio.h>

signed char ucs_module_global_init(void);

signed char ucs_module_global_init(void)
{
    void *cuda = dlopen("libuct_cuda.so.0", RTLD_LAZY | RTLD_NOLOAD);

    fprintf(stderr, "fake gdr_copy: loaded %s the UCX's CUDA module\n",
            (cuda != NULL) ? "with" : "without");
    return 0;
}
