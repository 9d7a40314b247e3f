/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Times of messages between two ranks by the shape of their datatype: faces of
 * a cube of doubles in GPU memory, lists of blocks, few pieces, no gaps. Prints
 * one line per shape: name, memory, pieces, bytes, microseconds (half of the
 * shortest round trip). Every byte of the last message is compared.
 */
#include "gpu.h"
#include "util.h"

#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sizes that depend on the cube's edge N: N, N * N */
enum { EDGE = -1, AREA = -2 };

typedef enum {
    PLAIN,      /* `pieces` doubles in a row, predefined type */
    CONTIGUOUS, /* the same as one derived type */
    VECTOR,     /* blocks of `length` doubles, `stride` apart */
    RESIZED,    /* `pieces` elements: a double with a gap behind */
    FACE,       /* of a subarray: EDGE rows of EDGE doubles */
    INDEXED     /* blocks of 1 to 3 doubles at irregular places */
} shape_kind_t;

typedef struct {
    const char   *name;
    shape_kind_t kind;
    ucx_mp_mem_t mem;
    int          pieces, length, stride;
} shape_t;

#define SHAPE(_name, _kind, _mem, _pieces, _length, _stride) \
    {_name, _kind, UCX_MP_MEM_##_mem, _pieces, _length, _stride}
static const shape_t shapes[] = {
    SHAPE("plain", PLAIN, DEVICE, 1, 1, 1),
    SHAPE("plain", PLAIN, DEVICE, 4096, 1, 1),
    SHAPE("plain", PLAIN, DEVICE, 524288, 1, 1),
    SHAPE("contiguous-type", CONTIGUOUS, DEVICE, 1, 1, 1),
    SHAPE("contiguous-type", CONTIGUOUS, DEVICE, 4096, 1, 1),
    SHAPE("plain", PLAIN, HOST, 1, 1, 1),
    SHAPE("vector", VECTOR, HOST, 4, 1, 8),
    SHAPE("vector", VECTOR, HOST, 64, 1, 8),
    SHAPE("vector", VECTOR, HOST, 65536, 1, 8),
    SHAPE("vector", VECTOR, DEVICE, 2, 1, 8),
    SHAPE("vector", VECTOR, DEVICE, 4, 1, 8),
    SHAPE("vector", VECTOR, DEVICE, 8, 1, 8),
    SHAPE("vector", VECTOR, DEVICE, 15, 1, 8),
    SHAPE("vector", VECTOR, DEVICE, 16, 1, 8),
    SHAPE("vector", VECTOR, DEVICE, 64, 1, 8),
    SHAPE("vector", VECTOR, DEVICE, 1024, 1, 8),
    SHAPE("vector", VECTOR, DEVICE, 2, 2048, 4096),
    SHAPE("vector", VECTOR, DEVICE, 2, 4096, 8192),
    SHAPE("vector", VECTOR, DEVICE, 2, 65536, 131072),
    SHAPE("resized", RESIZED, DEVICE, 1024, 1, 1),
    SHAPE("indexed", INDEXED, DEVICE, 1000, 1, 1),
    SHAPE("indexed", INDEXED, DEVICE, 100000, 1, 1),
    SHAPE("face", FACE, DEVICE, EDGE, 1, 1),
    SHAPE("slab", VECTOR, DEVICE, AREA, 1, EDGE)
};
#undef SHAPE
enum { NUM_SHAPES = sizeof(shapes) / sizeof(*shapes) };

static struct {
    int edge, rounds, least, most;
} options = {.edge = 256, .rounds = 5, .most = INT_MAX};

static int rank, wrong;


static int scaled(int number)
{
    return (number == EDGE) ? options.edge :
           (number == AREA) ? options.edge * options.edge :
                              number;
}

static int pieces_of(const shape_t *shape)
{
    return ((shape->kind == PLAIN) || (shape->kind == CONTIGUOUS)) ?
                   1 :
                   scaled(shape->pieces);
}

static MPI_Datatype face_type(int edge)
{
    const int sizes[]  = {edge, edge, edge};
    const int parts[]  = {edge, 1, edge};
    const int starts[] = {0, edge / 2, 0};
    MPI_Datatype type;

    MPI_Type_create_subarray(3, sizes, parts, starts, MPI_ORDER_C, MPI_DOUBLE,
                             &type);
    return type;
}

static MPI_Datatype indexed_type(int count)
{
    int *lengths = malloc(count * sizeof(*lengths));
    int *places  = malloc(count * sizeof(*places));
    int at       = 0, i;
    MPI_Datatype type;

    for (i = 0; i < count; ++i) {
        lengths[i] = 1 + ucx_mp_hash(i) % 3;
        places[i]  = at;
        at        += lengths[i] + 1 + ucx_mp_hash(i + count) % 5;
    }
    MPI_Type_indexed(count, lengths, places, MPI_DOUBLE, &type);
    free(lengths);
    free(places);
    return type;
}

/* Make the shape's datatype. @return Number of its elements to send. */
static int type_make(const shape_t *shape, MPI_Datatype *type)
{
    const int pieces = scaled(shape->pieces);

    switch (shape->kind) {
    case PLAIN:
        MPI_Type_dup(MPI_DOUBLE, type);
        return pieces;
    case CONTIGUOUS:
        MPI_Type_contiguous(pieces, MPI_DOUBLE, type);
        break;
    case VECTOR:
        MPI_Type_vector(pieces, shape->length, scaled(shape->stride),
                        MPI_DOUBLE, type);
        break;
    case RESIZED:
        MPI_Type_create_resized(MPI_DOUBLE, 0, 2 * sizeof(double), type);
        return pieces;
    case FACE:
        *type = face_type(options.edge);
        break;
    case INDEXED:
        *type = indexed_type(pieces);
        break;
    }
    return 1;
}

static void exchange(void *from, void *to, int count, MPI_Datatype type)
{
    if (rank == 0) {
        MPI_Send(from, count, type, 1, 0, MPI_COMM_WORLD);
    }
    MPI_Recv(to, count, type, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1) {
        MPI_Send(from, count, type, 0, 0, MPI_COMM_WORLD);
    }
}

static void image_fill(double *image, size_t count, int seed)
{
    size_t i;

    for (i = 0; i < count; ++i) {
        image[i] = 1e9 * seed + i;
    }
}

/* Compare with an exchange of the same type in host memory, packed by the
   MPI */
static void check(const shape_t *shape, const void *to, double *image,
                  size_t doubles, int count, MPI_Datatype type)
{
    double *expected = malloc(doubles * sizeof(double));
    int size, at = 0;
    char *packed;

    MPI_Pack_size(count, type, MPI_COMM_SELF, &size);
    packed = malloc(size);
    image_fill(image, doubles, 1 - rank);
    MPI_Pack(image, count, type, packed, size, &at, MPI_COMM_SELF);
    image_fill(expected, doubles, 9);
    at = 0;
    MPI_Unpack(packed, size, &at, expected, count, type, MPI_COMM_SELF);
    ucx_mp_mem_get(shape->mem, image, to, doubles * sizeof(double));
    if (memcmp(image, expected, doubles * sizeof(double)) != 0) {
        printf("rank %d: %s of %d: other bytes\n", rank, shape->name,
               scaled(shape->pieces));
        ++wrong;
    }
    free(packed);
    free(expected);
}

static void shape_run(const shape_t *shape)
{
    MPI_Aint lower, extent, low, length;
    MPI_Datatype type;
    double *image, *from, *to, begin, time, shortest = 1e9;
    size_t doubles;
    int count, size, i;

    count = type_make(shape, &type);
    if (shape->kind == PLAIN) {
        MPI_Type_free(&type);
        type = MPI_DOUBLE;
    } else {
        MPI_Type_commit(&type);
    }
    MPI_Type_size(type, &size);
    MPI_Type_get_extent(type, &lower, &extent);
    MPI_Type_get_true_extent(type, &low, &length);
    doubles = ((count - 1) * extent + low + length) / sizeof(double);

    image = malloc(doubles * sizeof(double));
    from  = ucx_mp_mem_alloc(shape->mem, doubles * sizeof(double));
    to    = ucx_mp_mem_alloc(shape->mem, doubles * sizeof(double));
    image_fill(image, doubles, rank);
    ucx_mp_mem_put(shape->mem, from, image, doubles * sizeof(double));
    image_fill(image, doubles, 9);
    ucx_mp_mem_put(shape->mem, to, image, doubles * sizeof(double));

    exchange(from, to, count, type);
    for (i = 0; i < options.rounds; ++i) {
        MPI_Barrier(MPI_COMM_WORLD);
        begin = ucx_mp_time();
        exchange(from, to, count, type);
        time     = ucx_mp_time() - begin;
        shortest = (time < shortest) ? time : shortest;
    }
    check(shape, to, image, doubles, count, type);
    if (rank == 0) {
        printf("%-15s %-7s %7d %9zu %12.2f\n", shape->name,
               ucx_mp_mem_names[shape->mem], pieces_of(shape),
               (size_t)count * size, shortest * 1e6 / 2);
        fflush(stdout);
    }

    ucx_mp_mem_free(shape->mem, from);
    ucx_mp_mem_free(shape->mem, to);
    free(image);
    if (shape->kind != PLAIN) {
        MPI_Type_free(&type);
    }
}

int main(int argc, char **argv)
{
    static const ucx_mp_option_t table[] = {
        UCX_MP_NUMBER("edge", options.edge, 2, 512, "N",
                      "doubles along an edge of the cube"),
        UCX_MP_NUMBER("rounds", options.rounds, 1, 1000000, "N",
                      "round trips of each shape"),
        UCX_MP_NUMBER("least", options.least, 0, INT_MAX, "N",
                      "minimum pieces of a shape"),
        UCX_MP_NUMBER("most", options.most, 0, INT_MAX, "N",
                      "maximum pieces of a shape"),
        {.name = NULL}
    };
    int i, all, size;

    ucx_mp_program = "ucx_mp_gaps";
    ucx_mp_parse_options(argc, argv, "Measures messages of datatypes.", table);
    MPI_Init(&argc, &argv);
    ucx_mp_get_rank(&rank, &size);
    if (size != 2) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "two ranks are needed");
    }
    ucx_mp_gpu_require(rank);

    for (i = 0; i < NUM_SHAPES; ++i) {
        if ((pieces_of(&shapes[i]) >= options.least) &&
            (pieces_of(&shapes[i]) <= options.most)) {
            shape_run(&shapes[i]);
        }
    }
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("ucx_mp_gaps: %d wrong\n", all);
    }
    return ucx_mp_finish(all > 0);
}
