/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Fuzz the reader of tuning tables: the result is constants within their
 * bounds, or an error message. With an odd first byte, a valid header is put in
 * front of the rest.
 */

#include <uct/cuda/plan/tuning.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void describe(uct_cuda_topo_t *topo)
{
    int i, j;

    uct_cuda_topo_init(topo, 4);
    for (i = 0; i < 4; ++i) {
        uct_cuda_topo_set_host(topo, i, 12e9, UCT_CUDA_TOPO_NO_LIMIT,
                               UCT_CUDA_TOPO_NO_LIMIT);
        for (j = 0; j < 4; ++j) {
            if (i != j) {
                uct_cuda_topo_set_link(topo, i, j, 48e9, UCT_CUDA_TOPO_NO_LIMIT,
                                       UCT_CUDA_TOPO_NO_LIMIT);
            }
        }
    }
}

static void check_constants(const uct_cuda_plan_tuning_t *tuning)
{
    const uct_cuda_plan_model_constant_t *constant =
        uct_cuda_plan_model_constants;
    double value;

    for (; constant->name != NULL; ++constant) {
        value = *(const double*)((const char*)&tuning->model +
                                 constant->offset);
        if (!(value > constant->min) || !(value <= constant->max)) {
            fprintf(stderr, "%s is %g: not above %g, or more than %g\n",
                    constant->name, value, constant->min, constant->max);
            abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uct_cuda_topo_t topo;
    static uct_cuda_plan_tuning_t *empty;
    uct_cuda_plan_tuning_t *tuning = NULL;
    char error[512];
    size_t room, length = 0;
    FILE *stream;
    char *text;

    if (empty == NULL) {
        describe(&topo);
        empty = uct_cuda_plan_tuning_create(&topo);
    }
    if (size < 2) {
        return 0;
    }

    room = size + UCT_CUDA_PLAN_NODE_SIZE + 64;
    text = malloc(room);
    if (data[0] & 1) {
        length = (size_t)snprintf(text, room, "ucx-mp-tuning %d\nnode %s\n"
                                  "date today\n",
                                  UCT_CUDA_PLAN_TUNING_FORMAT, empty->node);
    }
    memcpy(text + length, data + 1, size - 1);
    stream   = fmemopen(text, length + size - 1, "r");
    error[0] = '\0';
    if (uct_cuda_plan_tuning_read(stream, "table", &topo, error, sizeof(error),
                                  &tuning) == UCS_OK) {
        check_constants(tuning);
        free(tuning);
    } else if (error[0] == '\0') {
        abort();
    }
    fclose(stream);
    free(text);
    return 0;
}
