/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi/handles.h>
#include <mpi/pmpi.h>

#include <pthread.h>


/* Classes of operations that MPI allows for a datatype (MPI 4.1, 6.9.2); the
   MPI reports other combinations. Left out: pairs with gaps, since a kernel
   would write the gaps, and Fortran's LOGICAL, whose values depend on the
   compiler. */
enum {
    ARITHMETIC = 1 << 0,
    ORDERED    = 1 << 1,
    LOGICAL    = 1 << 2,
    BITWISE    = 1 << 3,
    PAIR       = 1 << 4
};

#define C_INTEGER (ARITHMETIC | ORDERED | LOGICAL | BITWISE)
#define F_INTEGER (ARITHMETIC | ORDERED | BITWISE)
#define FLOATING  (ARITHMETIC | ORDERED)
#define COMPLEX   ARITHMETIC

/* MPI's name, Open MPI's variable, size in bytes, allowed operations, kernel
   type; common types first. A Fortran type of another size is left to the
   MPI. */
#define TYPES(_) \
    _(MPI_FLOAT, float, 4, FLOATING, F32) \
    _(MPI_DOUBLE, double, 8, FLOATING, F64) \
    _(MPI_INT, int, 4, C_INTEGER, I32) \
    _(MPI_LONG, long, 8, C_INTEGER, I64) \
    _(MPI_UNSIGNED, unsigned, 4, C_INTEGER, U32) \
    _(MPI_UNSIGNED_LONG, unsigned_long, 8, C_INTEGER, U64) \
    _(MPI_SIGNED_CHAR, signed_char, 1, C_INTEGER, I8) \
    _(MPI_UNSIGNED_CHAR, unsigned_char, 1, C_INTEGER, U8) \
    _(MPI_SHORT, short, 2, C_INTEGER, I16) \
    _(MPI_UNSIGNED_SHORT, unsigned_short, 2, C_INTEGER, U16) \
    _(MPI_LONG_LONG_INT, long_long_int, 8, C_INTEGER, I64) \
    _(MPI_UNSIGNED_LONG_LONG, unsigned_long_long, 8, C_INTEGER, U64) \
    _(MPI_INT8_T, int8_t, 1, C_INTEGER, I8) \
    _(MPI_UINT8_T, uint8_t, 1, C_INTEGER, U8) \
    _(MPI_INT16_T, int16_t, 2, C_INTEGER, I16) \
    _(MPI_UINT16_T, uint16_t, 2, C_INTEGER, U16) \
    _(MPI_INT32_T, int32_t, 4, C_INTEGER, I32) \
    _(MPI_UINT32_T, uint32_t, 4, C_INTEGER, U32) \
    _(MPI_INT64_T, int64_t, 8, C_INTEGER, I64) \
    _(MPI_UINT64_T, uint64_t, 8, C_INTEGER, U64) \
    _(MPI_C_BOOL, c_bool, 1, LOGICAL, U8) \
    _(MPI_BYTE, byte, 1, BITWISE, U8) \
    _(MPI_AINT, aint, 8, F_INTEGER, I64) \
    _(MPI_OFFSET, offset, 8, F_INTEGER, I64) \
    _(MPI_COUNT, count, 8, F_INTEGER, I64) \
    _(MPI_C_FLOAT_COMPLEX, c_float_complex, 8, COMPLEX, C32) \
    _(MPI_C_DOUBLE_COMPLEX, c_double_complex, 16, COMPLEX, C64) \
    _(MPI_INTEGER1, integer1, 1, F_INTEGER, I8) \
    _(MPI_INTEGER2, integer2, 2, F_INTEGER, I16) \
    _(MPI_INTEGER4, integer4, 4, F_INTEGER, I32) \
    _(MPI_INTEGER8, integer8, 8, F_INTEGER, I64) \
    _(MPI_REAL4, real4, 4, FLOATING, F32) \
    _(MPI_REAL8, real8, 8, FLOATING, F64) \
    _(MPI_COMPLEX8, complex8, 8, COMPLEX, C32) \
    _(MPI_COMPLEX16, complex16, 16, COMPLEX, C64) \
    _(MPI_2INT, 2int, 8, PAIR, I32_I32) \
    _(MPI_FLOAT_INT, float_int, 8, PAIR, F32_I32) \
    _(MPI_INTEGER, integer, 4, F_INTEGER, I32) \
    _(MPI_REAL, real, 4, FLOATING, F32) \
    _(MPI_DOUBLE_PRECISION, dblprec, 8, FLOATING, F64) \
    _(MPI_COMPLEX, cplex, 8, COMPLEX, C32) \
    _(MPI_DOUBLE_COMPLEX, dblcplex, 16, COMPLEX, C64) \
    _(MPI_2INTEGER, 2integer, 8, PAIR, I32_I32) \
    _(MPI_2REAL, 2real, 8, PAIR, F32_F32) \
    _(MPI_2DOUBLE_PRECISION, 2dblprec, 16, PAIR, F64_F64)

#define OPS(_) \
    _(MPI_SUM, sum, ARITHMETIC, UCX_MP_OP_SUM) \
    _(MPI_MAX, max, ORDERED, UCX_MP_OP_MAX) \
    _(MPI_MIN, min, ORDERED, UCX_MP_OP_MIN) \
    _(MPI_PROD, prod, ARITHMETIC, UCX_MP_OP_PROD) \
    _(MPI_LAND, land, LOGICAL, UCX_MP_OP_LAND) \
    _(MPI_LOR, lor, LOGICAL, UCX_MP_OP_LOR) \
    _(MPI_LXOR, lxor, LOGICAL, UCX_MP_OP_LXOR) \
    _(MPI_BAND, band, BITWISE, UCX_MP_OP_BAND) \
    _(MPI_BOR, bor, BITWISE, UCX_MP_OP_BOR) \
    _(MPI_BXOR, bxor, BITWISE, UCX_MP_OP_BXOR) \
    _(MPI_MINLOC, minloc, PAIR, UCX_MP_OP_MINLOC) \
    _(MPI_MAXLOC, maxloc, PAIR, UCX_MP_OP_MAXLOC)

#define MAX_TYPES 64

typedef struct {
    MPI_Datatype  mpi;
    unsigned      allowed;
    ucx_mp_type_t type;
} known_type_t;

typedef struct {
    MPI_Op      mpi;
    unsigned    needed;
    ucx_mp_op_t op;
} known_op_t;

static struct {
    unsigned     num_types, num_ops;
    known_type_t types[MAX_TYPES];
    known_op_t   ops[UCX_MP_OP_LAST];
} known;


/* Add a datatype if the MPI has it: Open MPI may be built without some */
static void type_add(MPI_Datatype datatype, int size, unsigned allowed,
                     ucx_mp_type_t type)
{
    MPI_Count real_size;

    if ((datatype != (MPI_Datatype)0) &&
        (datatype != ucx_mp_mpi_pmpi.datatype_null) &&
        (ucx_mp_mpi_pmpi.Type_size_x(datatype, &real_size) == MPI_SUCCESS) &&
        (real_size == size)) {
        known.types[known.num_types++] = (known_type_t){datatype, allowed,
                                                        type};
    }
}

static void find(void)
{
#define TYPE_ADD(_mpi, _symbol, _size, _allowed, _type) \
    type_add(UCX_MP_MPI_HANDLE(_mpi, "mpi_" #_symbol), _size, _allowed, \
             UCX_MP_TYPE_##_type);
    TYPES(TYPE_ADD)

#define OP_ADD(_mpi, _symbol, _needed, _op) \
    known.ops[known.num_ops++] = (known_op_t){ \
        UCX_MP_MPI_HANDLE(_mpi, "mpi_op_" #_symbol), _needed, _op};
    OPS(OP_ADD)
}

bool ucx_mp_mpi_handles_known(MPI_Op op, MPI_Datatype datatype,
                              ucx_mp_op_t *op_p, ucx_mp_type_t *type_p)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    unsigned i, j;

    pthread_once(&once, find);
    for (i = 0; (i < known.num_types) && (known.types[i].mpi != datatype);
         ++i) {
    }
    for (j = 0; (j < known.num_ops) && (known.ops[j].mpi != op); ++j) {
    }
    if ((i == known.num_types) || (j == known.num_ops) ||
        !(known.types[i].allowed & known.ops[j].needed)) {
        return false;
    }

    *type_p = known.types[i].type;
    *op_p   = known.ops[j].op;
    return true;
}
