/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives.h"
#include "util.h"

#include <stdlib.h>
#include <string.h>


const coll_base_t coll_bases[] = {
    {"MPI_BYTE", MPI_BYTE, 1, COLL_INTEGER, 0},
    {"MPI_INT8_T", MPI_INT8_T, 1, COLL_INTEGER, 0},
    {"MPI_UINT16_T", MPI_UINT16_T, 2, COLL_INTEGER, 0},
    {"MPI_INT", MPI_INT, 4, COLL_INTEGER, 0},
    {"MPI_INT64_T", MPI_INT64_T, 8, COLL_INTEGER, 0},
    {"MPI_FLOAT", MPI_FLOAT, 4, COLL_REAL, 0},
    {"MPI_DOUBLE", MPI_DOUBLE, 8, COLL_REAL, 0},
    {"MPI_C_DOUBLE_COMPLEX", MPI_C_DOUBLE_COMPLEX, 16, COLL_REAL, 0},
    {"MPI_C_BOOL", MPI_C_BOOL, 1, COLL_LOGICAL, 0},
    {"MPI_2INT", MPI_2INT, 8, COLL_PAIR, 4},
    {"MPI_FLOAT_INT", MPI_FLOAT_INT, 8, COLL_PAIR, 4},
    {"MPI_SHORT_INT", MPI_SHORT_INT, 8, COLL_PAIR, 2},
    {"MPI_DOUBLE_INT", MPI_DOUBLE_INT, 16, COLL_PAIR, 8},
    {"MPI_LONG_INT", MPI_LONG_INT, 16, COLL_PAIR, 8}
};
const int coll_num_bases = sizeof(coll_bases) / sizeof(coll_bases[0]);

/* Type of the user-defined function, since MPI passes only a handle */
static const coll_type_t *own_type;


void coll_type_base(coll_type_t *type, const coll_base_t *base)
{
    memset(type, 0, sizeof(*type));
    type->base      = base;
    type->mpi       = base->mpi;
    type->blocks    = 1;
    type->length[0] = 1;
    type->elements  = 1;
    type->high      = 1;
    type->extent    = 1;
}

static void type_block(coll_type_t *type, int offset, int length)
{
    type->offset[type->blocks]   = offset;
    type->length[type->blocks++] = length;
    type->elements              += length;
    type->low  = (offset < type->low) ? offset : type->low;
    type->high = (offset + length > type->high) ? offset + length : type->high;
}

static void type_commit(coll_type_t *type)
{
    const MPI_Aint size = type->base->size;
    MPI_Datatype indexed;

    MPI_Type_indexed(type->blocks, type->length, type->offset,
                     type->base->mpi, &indexed);
    MPI_Type_create_resized(indexed, 0, type->extent * size, &type->mpi);
    MPI_Type_commit(&type->mpi);
    MPI_Type_free(&indexed);
}

void coll_type_draw(coll_type_t *type, const coll_base_t *base, int kinds,
                    uint64_t *state)
{
    const int kind = ucx_mp_random_below(state, kinds);
    int i, at, length, stride;

    coll_type_base(type, base);
    if (kind == 0) {
        return;
    }

    type->is_derived = true;
    type->blocks     = type->elements = 0;
    type->low        = (kind == 5) ? 0 : 1 << 20;
    type->high       = -(1 << 20);
    length           = 1 + ucx_mp_random_below(state, 3);
    stride           = length + 1 + ucx_mp_random_below(state, 4);

    switch (kind) {
    case 1: /* contiguous */
        type_block(type, 0, length);
        break;
    case 2: /* vector */
    case 3: /* columns of a matrix: elements interleave */
        for (i = 0; i < COLL_MAX_BLOCKS; ++i) {
            type_block(type, i * stride, length);
        }
        break;
    case 4: /* irregular, begins after its origin; Open MPI 4.1 mishandles
               adjacent blocks */
    case 5: /* irregular, begins before its origin */
    case 6: /* irregular, not in order */
        at = (kind == 5) ? -4 : 2;
        for (i = 0; i < 4; ++i) {
            type_block(type, at, 1 + i % 3);
            at += 2 + i % 3 + (int)ucx_mp_random_below(state, 3);
        }
        break;
    }

    if (kind == 6) {
        at              = type->offset[0];
        length          = type->length[0];
        type->offset[0] = type->offset[2];
        type->length[0] = type->length[2];
        type->offset[2] = at;
        type->length[2] = length;
    }

    type->extent = type->high + (int)ucx_mp_random_below(state, 3);
    if (kind == 3) {
        type->extent    = length;
        type->max_count = stride / length;
    } else if (kind == 5) {
        type->extent = type->high - type->low;
    }

    type_commit(type);
}

void coll_type_scatter(coll_type_t *twin, const coll_type_t *type,
                       const ptrdiff_t *places)
{
    const MPI_Aint size = type->base->size;
    MPI_Aint at[COLL_MAX_BLOCKS];
    MPI_Datatype indexed;
    int i;

    for (i = 0; i < type->blocks; ++i) {
        at[i] = type->offset[i] * size + places[i];
    }

    *twin            = *type;
    twin->is_derived = true;
    MPI_Type_create_hindexed(type->blocks, type->length, at, type->base->mpi,
                             &indexed);
    /* Open MPI 4.1 assumes that a block of a type beginning at 0 lies at 0 */
    MPI_Type_create_resized(indexed, (type->blocks == 1) ? at[0] : 0,
                            type->extent * size, &twin->mpi);
    MPI_Type_commit(&twin->mpi);
    MPI_Type_free(&indexed);
}

void coll_type_free(coll_type_t *type)
{
    if (type->is_derived) {
        MPI_Type_free(&type->mpi);
    }
}

/* Small whole numbers: exact in any order of additions */
static void real_fill(const coll_base_t *base, uint8_t *at, uint64_t random)
{
    const double values[2] = {random % 64, random / 64 % 64};
    const float value      = (float)values[0];

    if (base->size == sizeof(float)) {
        memcpy(at, &value, sizeof(value));
    } else {
        memcpy(at, values, base->size);
    }
}

/* Sums of up to COLL_MAX_RANKS small integers do not overflow: on overflow Open
   MPI's vector instructions saturate, but its loops and GPUs wrap */
void coll_base_fill(const coll_base_t *base, void *buffer, size_t count,
                    uint64_t *state)
{
    uint8_t *at = buffer;
    uint64_t random;
    size_t i, j;
    double value;
    float single;

    for (i = 0; i < count; ++i, at += base->size) {
        random = ucx_mp_random(state);
        for (j = 0; j < base->size; ++j) {
            at[j] = random >> (8 * (j % 8));
        }
        if (base->class == COLL_LOGICAL) {
            *at = random & 1;
        } else if (base->mpi == MPI_INT8_T) {
            *at = (uint8_t)(random % 15 - 7);
        } else if (base->mpi == MPI_UINT16_T) {
            at[1] &= 0xf;
        } else if (base->class == COLL_REAL) {
            real_fill(base, at, random);
        } else if (base->mpi == MPI_FLOAT_INT) {
            single = (float)(random % 64);
            memcpy(at, &single, sizeof(single));
        } else if (base->mpi == MPI_DOUBLE_INT) {
            value = (double)(random % 64);
            memcpy(at, &value, sizeof(value));
        }
    }
}

static void base_cover(const coll_base_t *base, uint8_t value, uint8_t *mask)
{
    if (base->class != COLL_PAIR) {
        memset(mask, value, base->size);
        return;
    }

    memset(mask, value, base->value);
    /* the int is aligned, and padding may come after it */
    memset(mask + ((base->value + 3) & ~(size_t)3), value, sizeof(int));
}

void coll_side_cover(const coll_side_t *side, const coll_base_t *base,
                     const uint8_t *values, uint8_t *mask)
{
    const coll_type_t *type;
    int part, i, block, k;

    for (part = 0; part < side->parts; ++part) {
        type = side->type[part];
        for (i = 0; i < side->count[part]; ++i) {
            for (block = 0; block < type->blocks; ++block) {
                for (k = 0; k < type->length[block]; ++k) {
                    base_cover(base, (values == NULL) ? 1 : values[block],
                               mask + (side->displ[part] - side->low +
                                       i * type->extent +
                                       type->offset[block] + k) *
                                              base->size);
                }
            }
        }
    }
}

/* Compose maps x -> factor x + term modulo 256, given as pairs of bytes:
   associative, and not commutative. */
static void own_function(void *in, void *inout, int *count,
                         MPI_Datatype *datatype)
{
    const size_t size = own_type->base->size;
    uint8_t *a, *b;
    size_t j;
    int i, block;

    (void)datatype;
    for (i = 0; i < *count; ++i) {
        for (block = 0; block < own_type->blocks; ++block) {
            a = (uint8_t*)in + (i * own_type->extent +
                                own_type->offset[block]) * (ptrdiff_t)size;
            b = (uint8_t*)inout + (a - (uint8_t*)in);
            for (j = 0; j + 1 < own_type->length[block] * size; j += 2) {
                b[j + 1] = a[j] * b[j + 1] + a[j + 1];
                b[j]     = a[j] * b[j];
            }
        }
    }
}

MPI_Op coll_op_own(const coll_type_t *type)
{
    static MPI_Op op = MPI_OP_NULL;

    own_type = type;
    if (op == MPI_OP_NULL) {
        MPI_Op_create(own_function, 0, &op);
    }

    return op;
}

MPI_Op coll_op_draw(const coll_base_t *base, uint64_t *state)
{
    const MPI_Op integer[] = {MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN,
                              MPI_BAND, MPI_BOR, MPI_BXOR, MPI_LAND,
                              MPI_LOR, MPI_LXOR};
    const MPI_Op real[]    = {MPI_SUM, MPI_MAX, MPI_MIN};
    const MPI_Op logical[] = {MPI_LAND, MPI_LOR, MPI_LXOR};
    const MPI_Op pair[]    = {MPI_MINLOC, MPI_MAXLOC};

    if (base->mpi == MPI_BYTE) {
        return integer[4 + ucx_mp_random_below(state, 3)];
    }

    if (base->mpi == MPI_C_DOUBLE_COMPLEX) {
        return MPI_SUM;
    }

    switch (base->class) {
    case COLL_INTEGER:
        return integer[ucx_mp_random_below(state, 10)];
    case COLL_REAL:
        return real[ucx_mp_random_below(state, 3)];
    case COLL_LOGICAL:
        return logical[ucx_mp_random_below(state, 3)];
    default:
        return pair[ucx_mp_random_below(state, 2)];
    }
}
