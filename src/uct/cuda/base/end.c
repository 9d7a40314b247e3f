/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of ends. */
#include <uct/cuda/base/end.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>


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

bool uct_cuda_end_parse(const char *word, uct_cuda_end_t *end_p)
{
    unsigned long device;
    char *end;

    if (strcasecmp(word, "host") == 0) {
        *end_p = uct_cuda_end_host();
        return true;
    }

    if ((strncasecmp(word, "gpu", 3) != 0) ||
        !isdigit((unsigned char)word[3])) {
        return false;
    }

    device = strtoul(word + 3, &end, 10);
    *end_p = uct_cuda_end_gpu((int)device);
    return (*end == '\0') && (device < UCT_CUDA_MAX_GPUS);
}
