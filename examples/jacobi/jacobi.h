/* SPDX-License-Identifier: BSD-3-Clause */

/* What the solver's files know of each other. */
#ifndef JACOBI_H_
#define JACOBI_H_

#include "gpu.h"
#include "jacobi_layout.h"

#include <mpi.h>

#include <stddef.h>
#include <stdint.h>

enum {
    JACOBI_OK    = 0,
    JACOBI_WRONG = 1, /* --check found a difference; the driver failed */
    JACOBI_USAGE = 2
};

typedef enum {
    JACOBI_ORDERED,   /* update, then one direction of the ring at a time */
    JACOBI_OVERLAPPED /* both at once, while the interior is updated */
} jacobi_mode_t;

typedef struct {
    uint64_t      rows, columns;   /* of the whole field; a multiple of grid */
    int           grid[2];         /* ranks: rows of them, columns of them */
    jacobi_mode_t mode;
    int           iterations;
    int           untimed;         /* of these, at the beginning */
    int           test_every;      /* iterations between convergence tests */
    double        tolerance;       /* residual at which it ends; 0: never */
    int           reduce_on_gpu;   /* MPI_Allreduce of GPU memory */
    int           check;
    int           quiet;
    const char   *json, *field;    /* files to be written, or NULL */
} jacobi_options_t;

/* One of the tests for convergence */
typedef struct {
    int   iteration;
    float residual;  /* largest change of a point in that iteration */
} jacobi_test_t;

/* A rank's part of the problem */
typedef struct {
    jacobi_options_t opts;
    int              rank, num_ranks;
    int              up, down;         /* neighbours in the ring of rows */
    int              left, right;      /* MPI_PROC_NULL: the field's edge */
    unsigned         rows, columns;    /* of this rank */
    uint64_t         first_row, first_column;
    uint64_t         pitch;            /* floats of a row in memory */
    gpu_ptr_t        field[2];         /* before and after an iteration */
    gpu_ptr_t        column[4];        /* to the left, right; from there */
    gpu_ptr_t        residual;         /* bits of a float; columns follow */
    gpu_stream_t     stream[2];        /* of the edges, of the interior */
    gpu_kernel_t     update, column_get, column_put;

    int              done;             /* iterations */
    jacobi_test_t   *tests;
    int              num_tests;
    double          *seconds;          /* of each iteration, the longest of all
                                          ranks: set at the end, on rank 0 */
    double          *updating;         /* ... and of its update alone */
    double           elapsed;          /* of the iterations that are timed */
    uint64_t         wrong;            /* points that --check found */
} jacobi_t;

/* Prints "jacobi: rank R: ..." and ends all ranks. */
void jacobi_die(const char *fmt, ...)
        __attribute__((noreturn, format(printf, 1, 2)));

/* Non-zero if the program is to go on; otherwise `code` is its exit code, and
   rank 0 has said why. */
int jacobi_options_parse(jacobi_options_t *opts, int argc, char **argv,
                         int rank, int num_ranks, int *code);

/* What stands left and right of the field beside a row (0 <= row < rows). */
float jacobi_boundary(uint64_t row, uint64_t rows);

/* Address of a float of a row; row 0 is the neighbour's above. */
gpu_ptr_t jacobi_at(const jacobi_t *job, int which, uint64_t row,
                    uint64_t index);

/* Solves the whole problem on the host and counts the points of this rank that
   differ from the GPU's by any bit. */
uint64_t jacobi_check(const jacobi_t *job);

/* --field: NumPy's format, at most JACOBI_PICTURE columns, evenly chosen. All
   ranks call. */
#define JACOBI_PICTURE 4096
void jacobi_write_field(const jacobi_t *job);

/* --json. */
void jacobi_write_json(const jacobi_t *job);

#endif
