/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of ends. */
#include <uct/cuda/base/end.h>

#include <stdio.h>


const char *uct_cuda_end_str(uct_cuda_end_t end, char *buffer, size_t size)
{
    if (uct_cuda_end_is_gpu(end)) {
        snprintf(buffer, size, "gpu%d", uct_cuda_end_device(end));
    } else {
        snprintf(buffer, size, "%s",
                 uct_cuda_end_is_host(end)     ? "host" :
                 uct_cuda_end_is_host_vmm(end) ? "host vmm" :
                 uct_cuda_end_is_hidden(end)   ? "hidden gpu" :
                                                 "none");
    }

    return buffer;
}
