/* SPDX-License-Identifier: BSD-3-Clause */
/* The node as a matrix, in the manner of nvidia-smi topo -m. */
#include "tool.h"


void ucx_mp_topo_text(const uct_cuda_topo_t *topo, FILE *stream)
{
    uct_cuda_topo_print(topo, stream);
}
