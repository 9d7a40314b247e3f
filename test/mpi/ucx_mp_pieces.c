/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Datatypes whose blocks are allocations: of equal and different size, empty,
 * adjacent and far apart, in GPU, page-locked, managed and pageable memory, by
 * absolute addresses and relative to a block or to a variable. Ranks move them
 * by calls of all shapes; every byte is compared.
 */
#include "gpu.h"
#include "util.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BLOCKS 24
#define WORLD      MPI_COMM_WORLD

typedef enum {
    FROM_BOTTOM,
    FROM_FIRST,
    FROM_LAST,
    FROM_VARIABLE,
    FROM_COUNT
} from_t;

typedef struct {
    int          count, bytes;
    ucx_mp_mem_t mem[MAX_BLOCKS];
    char         *block[MAX_BLOCKS];
    int          length[MAX_BLOCKS];
    MPI_Datatype type;
    void         *from;
} pieces_t;

static int rank, size, last, next, wrong;
static char *packed; /* data of all ranks, received as bytes */
static char where[80];


static ucx_mp_mem_t mem_of(char letter)
{
    ucx_mp_mem_t mem = 0;

    while (ucx_mp_mem_names[mem][0] != letter) {
        ++mem;
    }
    return mem;
}

static void pieces_fill(const pieces_t *pieces, int seed)
{
    char *bytes = malloc(pieces->bytes + 1);
    int k, i;

    for (k = 0; k < pieces->count; ++k) {
        for (i = 0; i < pieces->length[k]; ++i) {
            bytes[i] = (char)(seed * 31 + k + i * 7);
        }
        if (pieces->length[k] > 0) {
            ucx_mp_mem_write(pieces->mem[k], pieces->block[k], bytes,
                             pieces->length[k]);
        }
    }
    free(bytes);
}

static void compare(const char *bytes, int length, int seed, int k,
                    const char *call)
{
    int i;

    for (i = 0; i < length; ++i) {
        if (bytes[i] != (char)(seed * 31 + k + i * 7)) {
            ucx_mp_report("%s, %s: block %d is wrong at %d", where, call, k, i);
            ++wrong;
            return;
        }
    }
}

static void check(const pieces_t *pieces, int seed, const char *call)
{
    char *bytes = malloc(pieces->bytes + 1);
    int k;

    for (k = 0; k < pieces->count; ++k) {
        if (pieces->length[k] > 0) {
            ucx_mp_mem_read(pieces->mem[k], bytes, pieces->block[k],
                            pieces->length[k]);
            compare(bytes, pieces->length[k], seed, k, call);
        }
    }
    free(bytes);
}

/* Check one rank's blocks, packed in sequence. */
static void check_packed(const pieces_t *pieces, const char *bytes, int seed,
                         const char *call)
{
    int k;

    for (k = 0; k < pieces->count; ++k) {
        compare(bytes, pieces->length[k], seed, k, call);
        bytes += pieces->length[k];
    }
}

/* Put half of the blocks into a structure, half into another type, both into a
   third. */
static MPI_Datatype nest(const pieces_t *pieces, const MPI_Aint *places)
{
    const int half        = pieces->count / 2, one[2] = {1, 1};
    const MPI_Aint zero[2] = {0, 0};
    MPI_Datatype bytes[MAX_BLOCKS], parts[2], both, type;
    int k;

    for (k = 0; k < half; ++k) {
        bytes[k] = MPI_BYTE;
    }
    MPI_Type_create_struct(half, pieces->length, places, bytes, &parts[0]);
    MPI_Type_create_hindexed(pieces->count - half, pieces->length + half,
                             places + half, MPI_BYTE, &parts[1]);
    MPI_Type_create_struct(2, one, zero, parts, &both);
    MPI_Type_create_resized(both, -16, 32, &type);
    MPI_Type_free(&parts[0]);
    MPI_Type_free(&parts[1]);
    MPI_Type_free(&both);
    return type;
}

static void pieces_make(pieces_t *pieces, from_t from)
{
    static char variable;
    MPI_Aint places[MAX_BLOCKS], base;
    int k;

    pieces->from = (from == FROM_BOTTOM) ? MPI_BOTTOM :
                   (from == FROM_FIRST)  ? pieces->block[0] :
                   (from == FROM_LAST)   ? pieces->block[pieces->count - 1] :
                                           &variable;
    MPI_Get_address(pieces->from, &base);
    for (k = 0; k < pieces->count; ++k) {
        MPI_Get_address(pieces->block[k], &places[k]);
        places[k] = (from == FROM_BOTTOM) ? places[k] :
                                            MPI_Aint_diff(places[k], base);
    }

    if (pieces->count > 3) {
        pieces->type = nest(pieces, places);
    } else {
        MPI_Type_create_hindexed(pieces->count, pieces->length, places,
                                 MPI_BYTE, &pieces->type);
    }
    MPI_Type_commit(&pieces->type);
}

static void try_messages(const pieces_t *pieces)
{
    MPI_Request request;

    pieces_fill(pieces, rank);
    MPI_Bcast(pieces->from, 1, pieces->type, 0, WORLD);
    check(pieces, 0, "MPI_Bcast");
    pieces_fill(pieces, rank);
    MPI_Ibcast(pieces->from, 1, pieces->type, size - 1, WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check(pieces, size - 1, "MPI_Ibcast");
    pieces_fill(pieces, rank);
    MPI_Sendrecv_replace(pieces->from, 1, pieces->type, next, 0, last, 0, WORLD,
                         MPI_STATUS_IGNORE);
    check(pieces, last, "MPI_Sendrecv_replace");
    pieces_fill(pieces, rank);
    MPI_Sendrecv(pieces->from, 1, pieces->type, next, 0, packed, pieces->bytes,
                 MPI_BYTE, last, 0, WORLD, MPI_STATUS_IGNORE);
    check_packed(pieces, packed, last, "MPI_Sendrecv");
}

static void try_collectives(const pieces_t *pieces)
{
    int ones[64], zeros[64] = {0}, counts[64], displs[64], i;
    MPI_Datatype types[64], bytes[64];

    for (i = 0; i < size; ++i) {
        ones[i]   = 1;
        counts[i] = pieces->bytes;
        displs[i] = i * pieces->bytes;
        types[i]  = pieces->type;
        bytes[i]  = MPI_BYTE;
    }
    MPI_Allgather(pieces->from, 1, pieces->type, packed, pieces->bytes,
                  MPI_BYTE, WORLD);
    for (i = 0; i < size; ++i) {
        check_packed(pieces, packed + displs[i], i, "MPI_Allgather");
    }
    memset(packed, 0, (size_t)size * pieces->bytes);
    MPI_Alltoallw(pieces->from, ones, zeros, types, packed, counts, displs,
                  bytes, WORLD);
    for (i = 0; i < size; ++i) {
        check_packed(pieces, packed + displs[i], i, "MPI_Alltoallw");
    }
    pieces_fill(pieces, 99);
    MPI_Scatterv(packed, counts, displs, MPI_BYTE, pieces->from, 1,
                 pieces->type, 0, WORLD);
    check(pieces, rank, "MPI_Scatterv");
    memset(packed, 0, (size_t)size * pieces->bytes);
    MPI_Gather(pieces->from, 1, pieces->type, packed, pieces->bytes, MPI_BYTE,
               0, WORLD);
    for (i = 0; (rank == 0) && (i < size); ++i) {
        check_packed(pieces, packed + displs[i], i, "MPI_Gather");
    }
}

/* MPICH packs nothing at MPI_BOTTOM, and 4.0's file functions mishandle such
   types */
static void try_local(const pieces_t *pieces)
{
    int at = 0;
#ifdef OPEN_MPI
    MPI_File file;
#endif

    if (pieces->from != MPI_BOTTOM) {
        MPI_Pack(pieces->from, 1, pieces->type, packed, pieces->bytes, &at,
                 WORLD);
        check_packed(pieces, packed, rank, "MPI_Pack");
        pieces_fill(pieces, 99);
        at = 0;
        MPI_Unpack(packed, pieces->bytes, &at, pieces->from, 1, pieces->type,
                   WORLD);
        check(pieces, rank, "MPI_Unpack");
    }
#ifdef OPEN_MPI
    MPI_File_open(MPI_COMM_SELF, "/dev/null", MPI_MODE_RDWR, MPI_INFO_NULL,
                  &file);
    MPI_File_write(file, pieces->from, 1, pieces->type, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
#endif
}

static void try_pieces(pieces_t *pieces)
{
    from_t from;
    int k;

    pieces->bytes = 0;
    for (k = 0; k < pieces->count; ++k) {
        pieces->block[k] = ucx_mp_mem_alloc(pieces->mem[k],
                                            pieces->length[k] + 1);
        pieces->bytes   += pieces->length[k];
    }
    packed = malloc((size_t)size * pieces->bytes + 1);
    for (from = 0; from < FROM_COUNT; ++from) {
        snprintf(where, sizeof(where), "%d blocks of %d bytes and so on, way "
                 "%d", pieces->count, pieces->length[0], from);
        pieces_make(pieces, from);
        try_messages(pieces);
        try_collectives(pieces);
        try_local(pieces);
        MPI_Type_free(&pieces->type);
    }
    free(packed);
    for (k = 0; k < pieces->count; ++k) {
        ucx_mp_mem_free(pieces->mem[k], pieces->block[k]);
    }
}

int main(int argc, char **argv)
{
    /* first letters of ucx_mp_mem_names */
    static const char *const kinds[] = {"dd", "ddd", "dhd", "hd", "pmh",
                                        "dpmhddh", "ddhdpddmdhhddmddpdhddddd"};
    /* 4095 bytes and one more fill units of a GPU's memory */
    static const int lengths[] = {100, 4095, 70000, (2 << 20) - 1};
    const int num_kinds        = (int)(sizeof(kinds) / sizeof(kinds[0]));
    int all = 0, tried = 0, i, k, way;
    pieces_t pieces;

    ucx_mp_program = "ucx_mp_pieces";
    MPI_Init(&argc, &argv);
    ucx_mp_get_rank(&rank, &size);
    if (size > 64) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "64 ranks at most");
    }

    ucx_mp_gpu_require(rank);
    last = (rank + size - 1) % size;
    next = (rank + 1) % size;
    for (i = 0; i < num_kinds * 12; ++i) {
        pieces.count = (int)strlen(kinds[i / 12]);
        way          = i % 3; /* all equal, longer and longer, some empty */
        for (k = 0; k < pieces.count; ++k) {
            pieces.mem[k]    = mem_of(kinds[i / 12][k]);
            pieces.length[k] = lengths[i / 3 % 4] + (way > 0) * k;
            if ((way == 2) && (k % 3 == 1)) {
                pieces.length[k] = 0;
            }
        }
        if (pieces.count * lengths[i / 3 % 4] < (8 << 20)) {
            try_pieces(&pieces);
            ++tried;
        }
    }
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, WORLD);
    if (rank == 0) {
        printf("ucx_mp_pieces: %d types, each by %d addresses, %d wrong\n",
               tried, FROM_COUNT, all);
    }
    return ucx_mp_finish(all > 0);
}
