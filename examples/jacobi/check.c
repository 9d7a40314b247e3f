/* SPDX-License-Identifier: BSD-3-Clause */

/* The same problem on the host, in the same order of additions. */
#include "jacobi.h"

#include <stdlib.h>
#include <string.h>

/* One row after an iteration; `edge` stands left and right of it */
static void update_row(const float *above, const float *here,
                       const float *below, float edge, float *out,
                       uint64_t columns)
{
    float left, right;
    uint64_t x;

    for (x = 0; x < columns; ++x) {
        left   = (x == 0) ? edge : here[x - 1];
        right  = (x == columns - 1) ? edge : here[x + 1];
        out[x] = 0.25f * ((left + right) + (above[x] + below[x]));
    }
}

uint64_t jacobi_check(const jacobi_t *job)
{
    uint64_t rows = job->opts.rows, columns = job->opts.columns, wrong = 0;
    float *field[2], *mine, *swap;
    const float *theirs;
    uint64_t y, x;
    int i;

    field[0] = calloc(rows * columns, sizeof(float));
    field[1] = calloc(rows * columns, sizeof(float));
    mine     = malloc(job->columns * sizeof(float));
    if ((field[0] == NULL) || (field[1] == NULL) || (mine == NULL)) {
        jacobi_die("--check: no memory for the field of %llu x %llu points",
                   (unsigned long long)rows, (unsigned long long)columns);
    }

    for (i = 0; i < job->done; ++i) {
        for (y = 0; y < rows; ++y) {
            update_row(field[0] + (y + rows - 1) % rows * columns,
                       field[0] + y * columns,
                       field[0] + (y + 1) % rows * columns,
                       jacobi_boundary(y, rows), field[1] + y * columns,
                       columns);
        }
        swap     = field[0];
        field[0] = field[1];
        field[1] = swap;
    }

    for (y = 0; y < job->rows; ++y) {
        gpu_get(mine, jacobi_at(job, job->done % 2, y + 1, JACOBI_PAD),
                job->columns * sizeof(float));
        theirs = field[0] + (job->first_row + y) * columns + job->first_column;
        for (x = 0; x < job->columns; ++x) {
            wrong += (memcmp(&mine[x], &theirs[x], sizeof(float)) != 0);
        }
    }

    free(field[0]);
    free(field[1]);
    free(mine);
    return wrong;
}
