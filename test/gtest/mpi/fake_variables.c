/* SPDX-License-Identifier: BSD-3-Clause */
/* The variables behind Open MPI's handles. A type's variable begins with its
   size. */

#define TYPE(_name, _size) \
    extern long ompi_mpi_##_name[]; \
    long ompi_mpi_##_name[8] = {_size};

TYPE(float, 4)
TYPE(double, 8)
TYPE(int, 4)
TYPE(unsigned, 4)
TYPE(long, 16) /* a size without a kernel */
TYPE(signed_char, 1)
TYPE(c_bool, 1)
TYPE(byte, 1)
TYPE(aint, 8)
TYPE(c_float_complex, 8)
TYPE(2int, 8)

#define OP(_name) \
    extern long ompi_mpi_op_##_name[]; \
    long ompi_mpi_op_##_name[8] = {0};

OP(sum)
OP(max)
OP(min)
OP(prod)
OP(land)
OP(lor)
OP(lxor)
OP(band)
OP(bor)
OP(bxor)
OP(minloc)
OP(maxloc)
