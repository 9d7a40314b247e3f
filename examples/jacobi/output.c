/* SPDX-License-Identifier: BSD-3-Clause */

/* Files that the solver writes. */
#include "jacobi.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *open_file(const char *option, const char *path)
{
    FILE *file = fopen(path, "w");

    if (file == NULL) {
        jacobi_die("%s: %s cannot be written: %s", option, path,
                   strerror(errno));
    }
    return file;
}

static void close_file(const char *option, const char *path, FILE *file)
{
    int failed = ferror(file);

    failed |= fclose(file);
    if (failed) {
        jacobi_die("%s: %s was not written whole: %s", option, path,
                   strerror(errno));
    }
}

/* ------------------------------------------------------------------- field */

/* Columns of the whole field that are kept: every step-th */
static uint64_t picture_step(const jacobi_t *job)
{
    return (job->opts.columns + JACOBI_PICTURE - 1) / JACOBI_PICTURE;
}

/* How many multiples of `step` are below `end` */
static uint64_t multiples(uint64_t end, uint64_t step)
{
    return (end + step - 1) / step;
}

/* Kept points of a row of this rank; their number */
static uint64_t read_row(const jacobi_t *job, unsigned y, float *row,
                         float *kept)
{
    uint64_t step = picture_step(job), count = 0, x;

    gpu_get(row, jacobi_at(job, job->done % 2, y + 1ull, JACOBI_PAD),
            job->columns * sizeof(float));
    for (x = multiples(job->first_column, step) * step;
         x < job->first_column + job->columns; x += step) {
        kept[count++] = row[x - job->first_column];
    }
    return count;
}

/* "NPY" version 1: magic, length of the header, header, values */
static FILE *begin_npy(const char *path, uint64_t rows, uint64_t columns)
{
    FILE *file = open_file("--field", path);
    char header[128];

    memset(header, ' ', sizeof(header));
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    header[10 + snprintf(header + 10, sizeof(header) - 10,
                         "{'descr': '<f4', 'fortran_order': False, "
                         "'shape': (%llu, %llu), }",
                         (unsigned long long)rows,
                         (unsigned long long)columns)] = ' ';
    header[sizeof(header) - 1]                         = '\n';
    fwrite(header, sizeof(header), 1, file);
    return file;
}

void jacobi_write_field(const jacobi_t *job)
{
    uint64_t columns = multiples(job->opts.columns, picture_step(job));
    float *row       = malloc(job->columns * sizeof(float));
    float *kept      = malloc(columns * sizeof(float));
    FILE *file       = NULL;
    uint64_t x, count;
    int first, rank, received;
    MPI_Status status;
    unsigned y;

    if ((row == NULL) || (kept == NULL)) {
        jacobi_die("--field: no memory for a row of %u columns", job->columns);
    }

    if (job->rank == 0) {
        file = begin_npy(job->opts.field, job->opts.rows, columns);
    }

    /* Ranks in one row of the grid have the same rows */
    for (first = 0; first < job->num_ranks; first += job->opts.grid[1]) {
        for (y = 0; y < job->rows; ++y) {
            for (rank = first, x = 0; rank < first + job->opts.grid[1];
                 ++rank, x += count) {
                count = 0;
                if (rank == job->rank) {
                    count = read_row(job, y, row, kept + x);
                    if (rank != 0) {
                        MPI_Send(kept + x, (int)count, MPI_FLOAT, 0, 0,
                                 MPI_COMM_WORLD);
                        count = 0;
                    }
                } else if (job->rank == 0) {
                    MPI_Recv(kept + x, (int)(columns - x), MPI_FLOAT, rank, 0,
                             MPI_COMM_WORLD, &status);
                    MPI_Get_count(&status, MPI_FLOAT, &received);
                    count = (uint64_t)received;
                }
            }
            if (job->rank == 0) {
                fwrite(kept, sizeof(float), columns, file);
            }
        }
    }

    if (job->rank == 0) {
        close_file("--field", job->opts.field, file);
    }
    free(row);
    free(kept);
}

/* -------------------------------------------------------------------- JSON */

static void write_times(FILE *file, const char *name, const double *values,
                        int first, int end)
{
    int i;

    fprintf(file, " \"%s\": [", name);
    for (i = first; i < end; ++i) {
        fprintf(file, "%s%.9f", (i == first) ? "" : ", ", values[i]);
    }
    fprintf(file, "],\n");
}

void jacobi_write_json(const jacobi_t *job)
{
    const jacobi_options_t *opts = &job->opts;
    FILE *file                   = open_file("--json", opts->json);
    uint32_t bits;
    int i;

    fprintf(file, "{\"ranks\": %d, \"grid\": [%d, %d], \"rows\": %llu, "
            "\"columns\": %llu,\n", job->num_ranks, opts->grid[0],
            opts->grid[1], (unsigned long long)opts->rows,
            (unsigned long long)opts->columns);
    fprintf(file, " \"row_bytes\": %llu, \"mode\": \"%s\", \"iterations\": %d, "
            "\"untimed\": %d,\n",
            (unsigned long long)job->columns * sizeof(float),
            (opts->mode == JACOBI_ORDERED) ? "ordered" : "overlapped",
            job->done, opts->untimed);
    fprintf(file, " \"seconds\": %.9f,\n", job->elapsed);
    write_times(file, "iteration_seconds", job->seconds, opts->untimed,
                job->done);
    write_times(file, "update_seconds", job->updating, opts->untimed,
                job->done);
    if (opts->check) {
        fprintf(file, " \"wrong\": %llu,\n", (unsigned long long)job->wrong);
    }
    fprintf(file, " \"residuals\": [");
    for (i = 0; i < job->num_tests; ++i) {
        memcpy(&bits, &job->tests[i].residual, sizeof(bits));
        /* JSON has no NaN; the bits have */
        fprintf(file, "%s[%d, \"%.9g\", \"0x%08x\"]", (i == 0) ? "" : ", ",
                job->tests[i].iteration, job->tests[i].residual, bits);
    }
    fprintf(file, "]}\n");
    close_file("--json", opts->json, file);
}
