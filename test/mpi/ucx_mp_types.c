/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Messages of random datatypes, nested and with gaps, between two ranks. Each
 * end is in memory of any kind, as a datatype, as bytes or at MPI_BOTTOM; all
 * calls to send and to receive are used. The expected bytes are computed here,
 * without MPI; all others must stay unchanged. The receiver often has room for
 * more, and sometimes for less.
 */
#include "gpu.h"
#include "util.h"

#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BLOCKS 6000
#define MAX_BYTES  (192 << 10) /* limit of a type's span, bytes */
#define DATA       7
#define READY      8

/* A datatype, and each byte of it in the order of the type map */
typedef struct {
    MPI_Datatype mpi;
    int          count;
    ptrdiff_t    offset[MAX_BLOCKS];
    int          length[MAX_BLOCKS];
    ptrdiff_t    lower, extent; /* lower bound and extent, from MPI */
    ptrdiff_t    low, high;     /* offsets of the first byte and behind the
                                   last */
    size_t       size;
} type_t;

/* One end of a message */
typedef struct {
    ucx_mp_mem_t mem;
    int          count;
    MPI_Datatype type;
    char         *base;   /* start of the memory, `room` bytes */
    char         *buffer; /* MPI's argument */
    size_t       room;
    size_t       origin;  /* offset of the first element from the base */
    bool         is_bytes;
    bool         is_bottom;
} end_t;

static uint64_t calls    = 300;
static uint64_t seed     = 1;
static uint64_t state;
static int rank, on_host;
static uint64_t wrong, done, cut;
static char attached[8 << 20];

static const ucx_mp_option_t options[] = {
    UCX_MP_NUMBER("calls", calls, 1, 1000000, "N", "messages"),
    UCX_MP_NUMBER("seed", seed, 0, 1u << 30, "N", "of the random numbers"),
    UCX_MP_FLAG("host", on_host, "no GPU memory: what the MPI does by itself"),
    {NULL}
};


static int below(int n)
{
    return (int)ucx_mp_random_below(&state, n);
}

/* ------------------------------------------------------------------- types */

static bool type_add(type_t *type, ptrdiff_t offset, int length)
{
    const int last = type->count - 1;

    if ((last >= 0) && (type->offset[last] + type->length[last] == offset)) {
        type->length[last] += length;
    } else if (type->count < MAX_BLOCKS) {
        type->offset[type->count]   = offset;
        type->length[type->count++] = length;
    } else {
        return false;
    }
    type->size += length;
    return true;
}

static bool type_put(type_t *type, const type_t *inner, ptrdiff_t offset,
                     int count)
{
    bool is_added = true;
    int i, j;

    for (i = 0; i < count; ++i) {
        for (j = 0; (j < inner->count) && is_added; ++j) {
            is_added = type_add(type,
                                offset + i * inner->extent + inner->offset[j],
                                inner->length[j]);
        }
    }
    return is_added;
}

/* Get the type's bounds from MPI. @return Whether it can be received: no byte
   occurs twice. */
static bool type_measure(type_t *type)
{
    MPI_Aint lower, extent;
    char *seen;
    bool is_sound = true;
    int i, j;

    MPI_Type_get_extent(type->mpi, &lower, &extent);
    type->lower  = lower;
    type->extent = extent;
    type->low    = PTRDIFF_MAX;
    type->high   = PTRDIFF_MIN;
    for (i = 0; i < type->count; ++i) {
        type->low  = (type->offset[i] < type->low) ? type->offset[i] :
                                                     type->low;
        type->high = (type->offset[i] + type->length[i] > type->high) ?
                             type->offset[i] + type->length[i] :
                             type->high;
    }
    if ((type->count == 0) || (type->high - type->low > MAX_BYTES)) {
        return false;
    }

    seen = calloc(type->high - type->low, 1);
    for (i = 0; i < type->count; ++i) {
        for (j = 0; j < type->length[i]; ++j) {
            is_sound = is_sound && !seen[type->offset[i] + j - type->low]++;
        }
    }
    free(seen);
    return is_sound;
}

static void type_base(type_t *type)
{
    static const struct {
        MPI_Datatype mpi;
        int          size;
    } bases[] = {
        {MPI_BYTE, 1}, {MPI_SHORT, 2}, {MPI_INT, 4}, {MPI_DOUBLE, 8},
        {MPI_FLOAT, 4}, {MPI_C_DOUBLE_COMPLEX, 16}
    };
    const int i = below(6);

    memset(type, 0, sizeof(*type));
    type_add(type, 0, bases[i].size);
    type->mpi    = bases[i].mpi;
    type->extent = bases[i].size;
    type->high   = bases[i].size;
}

static bool make_indexed(type_t *type, const type_t *inner, int kind)
{
    const int count = 1 + below(kind == 2 ? 40 : 6);
    int lengths[40], displs[40];
    MPI_Aint places[40];
    bool is_added = true;
    int at        = below(3), i;

    for (i = 0; i < count; ++i) {
        lengths[i] = (kind == 2) ? 2 : 1 + below(3);
        displs[i]  = at;
        places[i]  = at * (MPI_Aint)inner->extent +
                     ((kind == 1) ? below(3) * 16 : 0);
        at        += lengths[i] + below(4);
    }
    if (below(3) == 0) { /* not in the order of addresses */
        at = displs[0], displs[0] = displs[count - 1], displs[count - 1] = at;
        if (kind != 1) {
            for (i = 0; i < count; ++i) {
                places[i] = displs[i] * (MPI_Aint)inner->extent;
            }
        }
    }
    for (i = 0; i < count; ++i) {
        is_added = is_added && type_put(type, inner, places[i], lengths[i]);
    }

    if (kind == 0) {
        MPI_Type_indexed(count, lengths, displs, inner->mpi, &type->mpi);
    } else if (kind == 1) {
        MPI_Type_create_hindexed(count, lengths, places, inner->mpi,
                                 &type->mpi);
    } else {
        MPI_Type_create_indexed_block(count, 2, displs, inner->mpi,
                                      &type->mpi);
    }
    return is_added;
}

static bool make_subarray(type_t *type, const type_t *inner)
{
    int sizes[3], parts[3], starts[3], at[3], i;
    const bool is_c = below(2);
    const int slow  = is_c ? 0 : 2, fast = 2 - slow;
    bool is_added   = true;
    ptrdiff_t place;

    for (i = 0; i < 3; ++i) {
        sizes[i]  = 1 + below(6);
        parts[i]  = 1 + below(sizes[i]);
        starts[i] = below(sizes[i] - parts[i] + 1);
    }
    MPI_Type_create_subarray(3, sizes, parts, starts,
                             is_c ? MPI_ORDER_C : MPI_ORDER_FORTRAN,
                             inner->mpi, &type->mpi);

#define FOR(_d) for (at[_d] = 0; at[_d] < parts[_d]; ++at[_d])
    FOR(slow)
    FOR(1)
    FOR(fast)
    {
        place    = ((at[slow] + starts[slow]) * sizes[1] + at[1] + starts[1]) *
                           sizes[fast] + at[fast] + starts[fast];
        is_added = is_added && type_put(type, inner, place * inner->extent, 1);
    }
    return is_added;
}

/* Make a distributed array of two dimensions, one in blocks of two and one
   undivided: the part of process 0 of 2. */
static bool make_darray(type_t *type, const type_t *inner)
{
    const int sizes[2]     = {2 + below(6), 1 + below(5)};
    const int grid[2]      = {2, 1};
    const int kinds[2]     = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE};
    const int arguments[2] = {2, MPI_DISTRIBUTE_DFLT_DARG};
    bool is_added          = true;
    int i;

    MPI_Type_create_darray(2, 0, 2, sizes, kinds, arguments, grid, MPI_ORDER_C,
                           inner->mpi, &type->mpi);
    for (i = 0; i < sizes[0]; ++i) {
        if (i / 2 % 2 == 0) {
            is_added = is_added && type_put(type, inner,
                                            (ptrdiff_t)i * sizes[1] *
                                                    inner->extent, sizes[1]);
        }
    }
    return is_added;
}

static bool make_struct(type_t *type, const type_t *inner)
{
    type_t *other = malloc(sizeof(*other));
    MPI_Datatype types[2];
    MPI_Aint places[2];
    int lengths[2] = {1 + below(2), 1 + below(4)};
    bool is_added;

    type_base(other);
    places[0] = below(4) * 8;
    places[1] = places[0] + lengths[0] * inner->extent + inner->high +
                below(5) * 8;
    if (below(3) == 0) { /* the second type comes first */
        places[1] = -64 + below(2) * 4;
    }
    types[0] = inner->mpi;
    types[1] = other->mpi;
    MPI_Type_create_struct(2, lengths, places, types, &type->mpi);
    is_added = type_put(type, inner, places[0], lengths[0]) &&
               type_put(type, other, places[1], lengths[1]);
    free(other);
    return is_added;
}

static bool make(type_t *type, const type_t *inner)
{
    const int count  = 1 + below(12), length = 1 + below(3);
    const int stride = (length + below(4)) * (below(4) ? 1 : -1);
    bool is_added    = true;
    MPI_Aint bytes;
    int i;

    switch (below(11)) {
    case 0:
        MPI_Type_contiguous(length, inner->mpi, &type->mpi);
        return type_put(type, inner, 0, length);
    case 1:
        MPI_Type_vector(count, length, stride, inner->mpi, &type->mpi);
        bytes = stride * (MPI_Aint)inner->extent;
        break;
    case 2:
        bytes = length * (MPI_Aint)inner->extent + below(3) * 16;
        MPI_Type_create_hvector(count, length, bytes, inner->mpi, &type->mpi);
        break;
    case 3:
        MPI_Type_dup(inner->mpi, &type->mpi);
        return type_put(type, inner, 0, 1);
    case 4:
        MPI_Type_create_resized(inner->mpi, inner->lower - below(2) * 16,
                                inner->extent + below(4) * 16, &type->mpi);
        return type_put(type, inner, 0, 1);
    case 5:
        return make_subarray(type, inner);
    case 6:
        return make_darray(type, inner);
    case 7:
        return make_struct(type, inner);
    default:
        return make_indexed(type, inner, below(3));
    }

    for (i = 0; i < count; ++i) {
        is_added = is_added && type_put(type, inner, i * bytes, length);
    }
    return is_added;
}

static void type_draw(type_t *type)
{
    type_t *inner   = malloc(sizeof(*inner));
    const int depth = 1 + below(4);
    bool is_sound;
    int i;

    do {
        type_base(type);
        is_sound = true;
        for (i = 0; (i < depth) && is_sound; ++i) {
            *inner = *type;
            memset(type, 0, sizeof(*type));
            is_sound = make(type, inner) && type_measure(type);
            if (i > 0) {
                MPI_Type_free(&inner->mpi);
            }
        }
        if (!is_sound) {
            MPI_Type_free(&type->mpi);
        }
    } while (!is_sound);
    MPI_Type_commit(&type->mpi);
    free(inner);
}

/* Return a number of elements in which no byte occurs twice. */
static int type_count(const type_t *type)
{
    const ptrdiff_t span = type->high - type->low;
    const ptrdiff_t step = (type->extent < 0) ? -type->extent : type->extent;

    return (step < span) ? 1 : (step * 8 > MAX_BYTES) ? 2 : 1 + below(7);
}

/* -------------------------------------------------------------------- ends */

static unsigned char data_at(uint64_t call, size_t i)
{
    return (unsigned char)(ucx_mp_hash(call * 1000003 + i / 8) >> (i % 8 * 8));
}

static size_t element_room(const type_t *type, int count)
{
    ptrdiff_t step = (type->extent < 0) ? -type->extent : type->extent;

    return type->high - type->low + (count - 1) * step;
}

/* Allocate an end's memory and set MPI's arguments for it. */
static void end_open(end_t *end, const type_t *type, int count)
{
    MPI_Aint address;
    int one = 1;

    memset(end, 0, sizeof(*end));
    end->is_bytes  = below(5) == 0;
    end->is_bottom = !end->is_bytes && (below(6) == 0);
    end->mem       = on_host ? UCX_MP_MEM_HOST :
                     below(3) ? UCX_MP_MEM_DEVICE : below(UCX_MP_MEM_LAST);
    end->count     = count;
    end->room      = 512 + (end->is_bytes ? count * type->size :
                                            element_room(type, count));
    end->base      = ucx_mp_mem_alloc(end->mem, end->room);
    end->origin    = 256;
    end->type      = type->mpi;
    if (end->is_bytes) {
        end->count = count * (int)type->size;
        end->type  = below(2) ? MPI_BYTE : MPI_PACKED;
    } else {
        end->origin -= type->low;
        if (type->extent < 0) {
            end->origin -= (count - 1) * type->extent;
        }
    }

    end->buffer = end->base + end->origin;
    if (end->is_bottom) {
        address = (MPI_Aint)end->buffer;
        MPI_Type_create_hindexed(1, &one, &address, type->mpi, &end->type);
        MPI_Type_create_resized(end->type, address + type->lower, type->extent,
                                &end->type);
        MPI_Type_commit(&end->type);
        end->buffer = MPI_BOTTOM;
    }
}

static void end_close(end_t *end)
{
    if (end->is_bottom) {
        MPI_Type_free(&end->type);
    }
    ucx_mp_mem_free(end->mem, end->base);
}

/* Write the first `size` bytes of a message to their places in `image`. */
static void end_fill(const end_t *end, const type_t *type, char *image,
                     uint64_t call, size_t size)
{
    size_t at = 0;
    int element, block, i;

    if (end->is_bytes) {
        for (; at < size; ++at) {
            image[end->origin + at] = data_at(call, at);
        }
        return;
    }

    for (element = 0; at < size; ++element) {
        for (block = 0; block < type->count; ++block) {
            for (i = 0; (i < type->length[block]) && (at < size); ++i) {
                image[end->origin + element * type->extent +
                      type->offset[block] + i] = data_at(call, at);
                ++at;
            }
        }
    }
}

static char *end_image(const end_t *end, const type_t *type, uint64_t call,
                       size_t size)
{
    char *image = malloc(end->room);

    memset(image, 0x5a, end->room);
    end_fill(end, type, image, call, size);
    return image;
}

static void end_check(const end_t *end, const char *image, uint64_t call,
                      const char *what)
{
    char *found = malloc(end->room);
    size_t i;

    ucx_mp_mem_get(end->mem, found, end->base, end->room);
    for (i = 0; (i < end->room) && (found[i] == image[i]); ++i) {
    }
    if (i < end->room) {
        ++wrong;
        printf("%s: rank %d: call %d: %s, %s memory%s%s: byte %zd of %zu is "
               "0x%02x, not 0x%02x\n", ucx_mp_program, rank, (int)call, what,
               ucx_mp_mem_names[end->mem], end->is_bytes ? ", bytes" : "",
               end->is_bottom ? ", MPI_BOTTOM" : "", i, end->room,
               (unsigned char)found[i], (unsigned char)image[i]);
    }
    free(found);
}

/* ------------------------------------------------------------------- calls */

static const char *const sends[] = {
    "Send", "Ssend", "Rsend", "Bsend", "Isend", "Issend", "Irsend", "Ibsend",
    "Send_init", "Ssend_init", "Rsend_init", "Bsend_init", "Sendrecv",
    "Isend and Request_free", "Pack"
};
static const char *const recvs[] = {
    "Recv", "Sendrecv", "Mrecv", "Imrecv", "Irecv", "Recv_init", "Unpack"
};
enum { NUM_SENDS = sizeof(sends) / sizeof(*sends), NUM_RECVS = 7 };

static bool is_ready(int mode)
{
    return (mode == 2) || (mode == 6) || (mode == 10);
}

/* Complete a request by one of MPI's calls, chosen by `how`. */
static int finish(MPI_Request *request, MPI_Status *status, int how)
{
    MPI_Request two[2]     = {MPI_REQUEST_NULL, *request};
    MPI_Status statuses[2] = {{0}};
    int indices[2], flag   = 0, index = 0, rc = MPI_SUCCESS;

    switch (how) {
    case 0:
        return MPI_Wait(request, status);
    case 1:
        while (!flag && (rc == MPI_SUCCESS)) {
            rc = MPI_Test(request, &flag, status);
        }
        return rc;
    case 2:
        rc = MPI_Waitall(2, two, statuses);
        *status = statuses[1];
        if (rc == MPI_ERR_IN_STATUS) {
            rc = statuses[1].MPI_ERROR;
        }
        break;
    case 3:
        rc = MPI_Waitany(2, two, &index, status);
        break;
    case 4:
        rc = MPI_Waitsome(2, two, &index, indices, statuses);
        *status = statuses[0];
        if (rc == MPI_ERR_IN_STATUS) {
            rc = statuses[0].MPI_ERROR;
        }
        break;
    case 5:
        while (!flag && (rc == MPI_SUCCESS)) {
            rc = MPI_Testany(2, two, &index, &flag, status);
        }
        break;
    case 6:
        while (!flag && (rc == MPI_SUCCESS)) {
            rc = MPI_Testall(2, two, &flag, statuses);
        }
        *status = statuses[1];
        if (rc == MPI_ERR_IN_STATUS) {
            rc = statuses[1].MPI_ERROR;
        }
        break;
    default:
        while (!flag && (rc == MPI_SUCCESS)) {
            rc = MPI_Request_get_status(*request, &flag, status);
        }
        return (rc == MPI_SUCCESS) ? MPI_Wait(request, MPI_STATUS_IGNORE) : rc;
    }
    *request = two[1];
    return rc;
}

#define ARGS  end->buffer, end->count, end->type, 1 - rank, DATA, MPI_COMM_WORLD
#define WORLD MPI_COMM_WORLD

/* Start a persistent request `times` times */
static void again(MPI_Request *request, int times, int how)
{
    MPI_Status status;
    int i;

    for (i = 0; i < times; ++i) {
        if (i % 2 == 0) {
            MPI_Start(request);
        } else {
            MPI_Startall(1, request);
        }
        finish(request, &status, how);
    }
    MPI_Request_free(request);
}

static void send_packed(end_t *end)
{
    int size, at = 3;
    char *packed;

    MPI_Pack_size(end->count, end->type, WORLD, &size);
    packed = malloc(size + 3);
    MPI_Pack(end->buffer, end->count, end->type, packed, size + 3, &at, WORLD);
    MPI_Send(packed + 3, at - 3, MPI_PACKED, 1 - rank, DATA, WORLD);
    free(packed);
}

static void send(end_t *end, int mode, int how, int times)
{
    MPI_Request request;
    MPI_Status status;
    int i;

    for (i = 0; (i < times) && (mode < 8); ++i) {
        switch (mode) {
        case 0: MPI_Send(ARGS); break;
        case 1: MPI_Ssend(ARGS); break;
        case 2: MPI_Rsend(ARGS); break;
        case 3: MPI_Bsend(ARGS); break;
        case 4: MPI_Isend(ARGS, &request); break;
        case 5: MPI_Issend(ARGS, &request); break;
        case 6: MPI_Irsend(ARGS, &request); break;
        case 7: MPI_Ibsend(ARGS, &request); break;
        }
        if (mode >= 4) {
            finish(&request, &status, how);
        }
    }

    switch (mode) {
    case 8: MPI_Send_init(ARGS, &request); again(&request, times, how); break;
    case 9: MPI_Ssend_init(ARGS, &request); again(&request, times, how); break;
    case 10: MPI_Rsend_init(ARGS, &request); again(&request, times, how); break;
    case 11: MPI_Bsend_init(ARGS, &request); again(&request, times, how); break;
    case 12:
        MPI_Sendrecv(end->buffer, end->count, end->type, 1 - rank, DATA, NULL,
                     0, MPI_BYTE, MPI_PROC_NULL, 0, WORLD, &status);
        break;
    case 13:
        MPI_Isend(ARGS, &request);
        MPI_Request_free(&request);
        break;
    case 14:
        send_packed(end);
        break;
    }
}

static int receive_packed(end_t *end, MPI_Status *status)
{
    int size, at = 5, rc;
    char *packed;

    MPI_Probe(1 - rank, DATA, WORLD, status);
    MPI_Get_count(status, MPI_PACKED, &size);
    packed = malloc(size + 5);
    rc     = MPI_Recv(packed + 5, size, MPI_PACKED, 1 - rank, DATA, WORLD,
                      status);
    if (rc == MPI_SUCCESS) {
        rc = MPI_Unpack(packed, size + 5, &at, end->buffer, end->count,
                        end->type, WORLD);
    }
    free(packed);
    return rc;
}

static int receive(end_t *end, int mode, int how, bool tells,
                   MPI_Status *status)
{
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Message message;
    int rc = MPI_SUCCESS;

    switch (mode) {
    case 0:
        return MPI_Recv(ARGS, status);
    case 1:
        return MPI_Sendrecv(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, end->buffer,
                            end->count, end->type, MPI_ANY_SOURCE, DATA, WORLD,
                            status);
    case 2:
        MPI_Mprobe(1 - rank, DATA, WORLD, &message, status);
        return MPI_Mrecv(end->buffer, end->count, end->type, &message, status);
    case 3:
        MPI_Mprobe(1 - rank, DATA, WORLD, &message, status);
        MPI_Imrecv(end->buffer, end->count, end->type, &message, &request);
        return finish(&request, status, how);
    case 4:
        MPI_Irecv(ARGS, &request);
        break;
    case 5:
        MPI_Recv_init(ARGS, &request);
        MPI_Start(&request);
        break;
    case 6:
        return receive_packed(end, status);
    }

    if (tells) {
        MPI_Send(NULL, 0, MPI_BYTE, 1 - rank, READY, WORLD);
    }
    rc = finish(&request, status, how);
    if (mode == 5) {
        MPI_Request_free(&request);
    }
    return rc;
}

/* -------------------------------------------------------------------- test */

/* Return whether MPI packs elements in host memory as expected here. */
static bool mpi_packs(const type_t *type, int count)
{
    const size_t room = element_room(type, count);
    char *image       = calloc(room, 1);
    char *packed      = malloc(type->size * count + 64);
    ptrdiff_t origin  = -type->low;
    bool knows        = true;
    size_t at         = 0, i;
    int block, k, position = 0, element;

    origin -= (type->extent < 0) ? (count - 1) * type->extent : 0;
    for (i = 0; i < room; ++i) {
        image[i] = data_at(99, i);
    }
    MPI_Pack(image + origin, count, type->mpi, packed,
             (int)type->size * count + 64, &position, WORLD);
    knows = (position == (int)type->size * count);
    for (element = 0; element < count; ++element) {
        for (block = 0; block < type->count; ++block) {
            for (k = 0; k < type->length[block]; ++k) {
                knows = knows && (packed[at++] ==
                                  image[origin + element * type->extent +
                                        type->offset[block] + k]);
            }
        }
    }
    free(packed);
    free(image);
    return knows;
}

/* Return whether MPI knows this type: Open MPI 4.1 packs some wrongly. MPICH
   4.0 rounds the bytes of some types without gaps down to a multiple of another
   datatype's size, which may pass unseen with two elements. */
static bool mpi_knows(const type_t *type)
{
    return mpi_packs(type, 1) && mpi_packs(type, 2);
}

static bool mpi_does(const end_t *end, bool knows)
{
    return knows || end->is_bytes || (end->mem == UCX_MP_MEM_DEVICE);
}

/* Return whether Open MPI 4.1 ends the program if the receive has too little
   room, in host memory, too: in Imrecv it has not set the communicator, in a
   persistent receive it frees the request twice. */
static bool mpi_fails_short(int receiving)
{
    return (receiving == 3) || (receiving == 5);
}

/* Return whether MPICH 4.0 fails with host memory: buffered messages arrive out
   of order, and MPI_BOTTOM is not packed. */
static bool mpi_fails(const end_t *source, int mode, const end_t *target,
                      int receiving)
{
#ifdef OPEN_MPI
    return false;
#else
    return (mode == 3) || (mode == 7) || (mode == 11) ||
           ((mode == 14) && source->is_bottom) ||
           ((receiving == 6) && target->is_bottom);
#endif
}

static void test_recv(end_t *end, const type_t *type, uint64_t call, int mode,
                      int how, bool tells, size_t sent, const char *what)
{
    const size_t room = (size_t)end->count *
                        (end->is_bytes ? 1 : type->size);
    MPI_Status status;
    char *image;
    int rc, bytes = -1, error = 0;

    image = end_image(end, type, call, 0);
    ucx_mp_mem_put(end->mem, end->base, image, end->room);
    free(image);

    rc = receive(end, mode, how, tells, &status);
    if (room < sent) {
        ++cut;
        if (rc != MPI_SUCCESS) {
            MPI_Error_class(rc, &error);
        }
        if ((mode != 6) && (error != MPI_ERR_TRUNCATE)) {
            ++wrong;
            printf("%s: rank %d: call %d: %s: error class %d, not "
                   "MPI_ERR_TRUNCATE\n", ucx_mp_program, rank, (int)call, what,
                   error);
        }
        return;
    }

    MPI_Get_count(&status, MPI_BYTE, &bytes);
    if ((rc != MPI_SUCCESS) || (bytes != (int)sent)) {
        ++wrong;
        printf("%s: rank %d: call %d: %s: error %d, %d bytes, not %zu\n",
               ucx_mp_program, rank, (int)call, what, rc, bytes, sent);
    }
    image = end_image(end, type, call, sent);
    end_check(end, image, call, what);
    free(image);
}

/* Send one message. Both ranks draw the same random numbers. */
static void test(uint64_t call)
{
    type_t *type       = malloc(sizeof(*type));
    const int sender   = call % 2;
    int mode           = below(NUM_SENDS);
    int receiving      = below(NUM_RECVS);
    const int how      = below(8);
    const int kind     = below(6); /* 0: room for less; 1, 2: for more */
    end_t source, target;
    char what[80], *image;
    bool tells, knows;
    int count, room;
    size_t sent;

    if (is_ready(mode)) {
        receiving = 4 + receiving % 2;
    }
    type_draw(type);
    count = type_count(type);
    room  = count;
    if ((count > 1) && (kind <= 2) &&
        ((kind > 0) || !mpi_fails_short(receiving))) {
        count = (kind == 0) ? count : 1 + below(count);
        room  = (kind == 0) ? room - 1 : room;
    }
    tells = is_ready(mode);
    knows = mpi_knows(type);
    snprintf(what, sizeof(what), "%s to %s", sends[mode], recvs[receiving]);

    /* draw for both ends on both ranks */
    end_open(&source, type, count);
    end_open(&target, type, room);
    sent = (size_t)count * type->size;
    if ((receiving == 6) && (count != room)) {
        receiving = 4; /* MPI_Unpack needs the full count */
        snprintf(what, sizeof(what), "%s to %s", sends[mode], recvs[4]);
    }
    if (!mpi_does(&source, knows) || !mpi_does(&target, knows) ||
        mpi_fails(&source, mode, &target, receiving)) {
        goto out;
    }

    if (rank == sender) {
        image = end_image(&source, type, call, sent);
        ucx_mp_mem_put(source.mem, source.base, image, source.room);
        if (tells) {
            MPI_Recv(NULL, 0, MPI_BYTE, 1 - rank, READY, WORLD,
                     MPI_STATUS_IGNORE);
        }
        send(&source, mode, how, 1);
        if (mode == 13) { /* keep the memory until the message is received */
            MPI_Recv(NULL, 0, MPI_BYTE, 1 - rank, READY, WORLD,
                     MPI_STATUS_IGNORE);
        }
        end_check(&source, image, call, what);
        free(image);
    } else {
        test_recv(&target, type, call, receiving, how, tells, sent, what);
        if (mode == 13) {
            MPI_Send(NULL, 0, MPI_BYTE, 1 - rank, READY, WORLD);
        }
    }
    ++done;

out:
    end_close(&target);
    end_close(&source);
    MPI_Type_free(&type->mpi);
    free(type);
}

static void expect(bool is_right, const char *what)
{
    if (!is_right) {
        ++wrong;
        printf("%s: rank %d: %s\n", ucx_mp_program, rank, what);
    }
}

/* Test requests that end in other ways: cancelled; freed while their message is
   in flight and the other rank waits for a later one; several at once. */
static void test_requests(void)
{
    enum { ROWS = 32768, AT_ONCE = 10 };
    const ucx_mp_mem_t mem = on_host ? UCX_MP_MEM_HOST : UCX_MP_MEM_DEVICE;
    const size_t size      = 2 * ROWS * sizeof(double);
    double *values         = malloc(size);
    char *from             = ucx_mp_mem_alloc(mem, size);
    char *to               = ucx_mp_mem_alloc(mem, size);
    MPI_Request requests[2 * AT_ONCE];
    MPI_Datatype column, part;
    MPI_Status status, statuses[2 * AT_ONCE];
    int i, left, ended, count, is_cancelled, indices[2 * AT_ONCE];
    bool is_right = true;

    MPI_Type_vector(ROWS, 1, 2, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);
    for (i = 0; i < 2 * ROWS; ++i) {
        values[i] = i + 1e6 * rank;
    }
    ucx_mp_mem_put(mem, from, values, size);
    ucx_mp_mem_put(mem, to, values, size);

    for (i = 0; i < 100; ++i) {
        MPI_Irecv(to, 1, column, 1 - rank, 77, WORLD, requests);
        MPI_Cancel(requests);
        MPI_Wait(requests, &status);
        MPI_Test_cancelled(&status, &is_cancelled);
        is_right = is_right && is_cancelled;
    }
    expect(is_right, "a receive was not cancelled");

    if (rank == 0) {
        for (i = 0; i < 2; ++i) {
            if (i == 0) {
                MPI_Isend(from, 1, column, 1, i, WORLD, requests);
            } else {
                MPI_Send_init(from, 1, column, 1, i, WORLD, requests);
                MPI_Start(requests);
            }
            MPI_Request_free(requests);
            MPI_Send(NULL, 0, MPI_BYTE, 1, READY, WORLD);
            MPI_Recv(NULL, 0, MPI_BYTE, 1, READY, WORLD, &status);
        }
    } else {
        for (i = 0; i < 2; ++i) {
            MPI_Recv(NULL, 0, MPI_BYTE, 0, READY, WORLD, &status);
            MPI_Recv(to, 1, column, 0, i, WORLD, &status);
            MPI_Get_elements(&status, column, &count);
            expect(count == ROWS, "a freed send: other elements");
            MPI_Send(NULL, 0, MPI_BYTE, 0, READY, WORLD);
        }
        ucx_mp_mem_get(mem, values, to, size);
        for (i = 0; i < 2 * ROWS; ++i) {
            is_right = is_right && (values[i] == i + ((i % 2) ? 1e6 : 0));
        }
        expect(is_right, "a freed send: other bytes");
    }

    MPI_Type_vector(64, 1, 2 * AT_ONCE, MPI_DOUBLE, &part);
    MPI_Type_commit(&part);
    for (i = 0; i < AT_ONCE; ++i) {
        MPI_Irecv(to + i * sizeof(double), 1, part, 1 - rank, i, WORLD,
                  &requests[i]);
        MPI_Issend(from + i * sizeof(double), 1, part, 1 - rank, i, WORLD,
                   &requests[AT_ONCE + i]);
    }
    MPI_Type_free(&part); /* the messages in flight still use it */
    for (left = 2 * AT_ONCE; left > 0; left -= ended) {
        MPI_Waitsome(2 * AT_ONCE, requests, &ended, indices, statuses);
    }
    ucx_mp_mem_get(mem, values, to, size);
    for (i = 0; i < 64 * 2 * AT_ONCE; ++i) {
        is_right = is_right && ((i % (2 * AT_ONCE) >= AT_ONCE) ||
                                (values[i] == i + 1e6 * (1 - rank)));
    }
    expect(is_right, "several at once: other bytes");

    MPI_Type_free(&column);
    ucx_mp_mem_free(mem, to);
    ucx_mp_mem_free(mem, from);
    free(values);
}

/* A datatype that is not committed is an error, which leaves nothing behind. */
static void test_uncommitted(void)
{
    const ucx_mp_mem_t mem = on_host ? UCX_MP_MEM_HOST : UCX_MP_MEM_DEVICE;
    char *buffer           = ucx_mp_mem_alloc(mem, 256);
    MPI_Request request;
    MPI_Datatype type;
    int error = 0;

    MPI_Type_vector(8, 1, 2, MPI_INT, &type);
    MPI_Error_class(MPI_Send(buffer, 1, type, 1 - rank, 0, WORLD), &error);
    expect(error == MPI_ERR_TYPE, "a send of an uncommitted datatype");
    MPI_Error_class(MPI_Irecv(buffer, 1, type, 1 - rank, 0, WORLD, &request),
                    &error);
    expect(error == MPI_ERR_TYPE, "a receive of an uncommitted datatype");
    MPI_Type_commit(&type);
    expect(MPI_Sendrecv(buffer, 1, type, 1 - rank, 0, buffer + 128, 1, type,
                        1 - rank, 0, WORLD, MPI_STATUS_IGNORE) == MPI_SUCCESS,
           "a committed datatype");
    MPI_Type_free(&type);
    ucx_mp_mem_free(mem, buffer);
}

/* Send in one of five ways. */
static void send_uneven(const char *from, int count, MPI_Datatype type, int way)
{
    MPI_Request request = MPI_REQUEST_NULL;

    switch (way) {
    case 0:
        MPI_Send(from, count, type, 1, way, WORLD);
        break;
    case 1:
        MPI_Ssend(from, count, type, 1, way, WORLD);
        break;
    case 2:
        MPI_Sendrecv(from, count, type, 1, way, NULL, 0, MPI_BYTE,
                     MPI_PROC_NULL, 0, WORLD, MPI_STATUS_IGNORE);
        break;
    case 3:
        MPI_Isend(from, count, type, 1, way, WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        break;
    default:
        MPI_Send_init(from, count, type, 1, way, WORLD, &request);
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Request_free(&request);
    }
}

/* Send `count` elements of 16 bytes, with a number in the first and second half
   of each, to host memory. */
static void test_uneven(MPI_Datatype type, int first, int second, int count)
{
    const ucx_mp_mem_t mem = on_host ? UCX_MP_MEM_HOST : UCX_MP_MEM_DEVICE;
    const size_t size      = (size_t)count * 16;
    char *from             = ucx_mp_mem_alloc(mem, size);
    char *image            = malloc(size);
    bool is_right          = true;
    MPI_Request request;
    MPI_Status status;
    int way, rc, is_data;
    size_t i;

    for (way = 0; way < 5; ++way) {
        for (i = 0; i < size; ++i) {
            image[i] = (rank == 0) ? data_at(way, i) : 0x5a;
        }
        if (rank == 0) {
            ucx_mp_mem_put(mem, from, image, size);
            MPI_Barrier(WORLD);
            send_uneven(from, count, type, way);
            continue;
        }

        MPI_Irecv(image, count, type, 0, way, WORLD, &request);
        MPI_Barrier(WORLD);
        rc       = MPI_Wait(&request, &status);
        is_right = is_right && (rc == MPI_SUCCESS);
        for (i = 0; i < size; ++i) {
            is_data  = (i % 16 < 8) ? ((int)(i % 8) < first) :
                                      ((int)(i % 8) < second);
            is_right = is_right &&
                       ((unsigned char)image[i] ==
                        (is_data ? data_at(way, i) : 0x5a));
        }
    }
    expect(is_right, "basic types of several sizes: other bytes");
    free(image);
    ucx_mp_mem_free(mem, from);
}

/* Test datatypes whose basic types differ in size, of messages that are sent in
   several parts. */
static void test_all_uneven(void)
{
    const MPI_Datatype types[2] = {MPI_CHAR, MPI_DOUBLE};
    const int lengths[2]        = {1, 1};
    const MPI_Aint places[2]    = {0, 8};
    MPI_Datatype type;
    int count;

    for (count = 100; count < 100000; count *= 5) {
        MPI_Type_create_struct(2, lengths, places, types, &type);
        MPI_Type_commit(&type);
        test_uneven(type, 1, 8, count);
        MPI_Type_free(&type);

        MPI_Type_vector(1, 1, 1, MPI_DOUBLE_INT, &type);
        MPI_Type_commit(&type);
        test_uneven(type, 8, 4, count);
        MPI_Type_free(&type);
    }
}

int main(int argc, char **argv)
{
    uint64_t i, all;
    int size;

    ucx_mp_program = "ucx_mp_types";
    ucx_mp_parse_options(argc, argv, "Sends messages of random datatypes.",
                         options);
    MPI_Init(&argc, &argv);
    ucx_mp_get_rank(&rank, &size);
    if (size != 2) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "two ranks are needed");
    }
    if (!on_host) {
        ucx_mp_gpu_require(rank);
    }

    MPI_Comm_set_errhandler(WORLD, MPI_ERRORS_RETURN);
    MPI_Buffer_attach(attached, sizeof(attached));
    for (i = 0; i < calls; ++i) {
        state = ucx_mp_hash(seed * 1000000 + i);
        test(i);
    }
    test_requests();
    test_uncommitted();
    test_all_uneven();
    MPI_Buffer_detach(&(void*){NULL}, &size);
    MPI_Allreduce(&wrong, &all, 1, MPI_UINT64_T, MPI_SUM, WORLD);
    if (rank == 0) {
        printf("%s: %d messages, %d of them cut, %d wrong\n", ucx_mp_program,
               (int)done, (int)cut, (int)all);
    }
    MPI_Finalize();
    return (all == 0) ? UCX_MP_EXIT_OK : UCX_MP_EXIT_WRONG;
}
