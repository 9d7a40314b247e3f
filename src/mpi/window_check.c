/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Check the arguments of one-sided calls that this library carries out. The MPI
 * checks them, since only it knows its datatypes and limits.
 */
#include <mpi/handles.h>
#include <mpi/window.h>

#include <limits.h>


#define WIDEST 32 /* bytes of a predefined datatype that can be reduced */


static int int_of(MPI_Count count)
{
    return (count < 0) ? -1 : (count > INT_MAX) ? INT_MAX : (int)count;
}

/* Check a buffer and the target's datatype by a put to MPI_PROC_NULL: the MPI
   checks the arguments and does nothing. @return Its error, raised, or
   MPI_SUCCESS. */
static int buffer_check(const ucx_mp_mpi_rma_t *args, const void *address,
                        MPI_Count count, MPI_Datatype type)
{
    return UCX_MP_MPI_CHECKED(ucx_mp_mpi_pmpi.Put(
            address, int_of(count), type, MPI_PROC_NULL, 0,
            int_of(args->target_count), args->target_datatype, args->win));
}

/* Check whether MPI allows the operation for the target's datatype. It does not
   allow user-defined operations, for example. @return As buffer_check(). */
static int op_check(const ucx_mp_mpi_rma_t *args)
{
    const MPI_Datatype type = args->target_datatype;

    return UCX_MP_MPI_CHECKED(ucx_mp_mpi_pmpi.Accumulate(
            args, 1, type, MPI_PROC_NULL, 0, 1, type, args->op, args->win));
}

int ucx_mp_mpi_window_check(const ucx_mp_mpi_rma_t *args)
{
    const ucx_mp_mpi_rma_kind_t kind = args->kind;
    const bool has_result = (kind > UCX_MP_MPI_RMA_ACCUMULATE);
    const bool has_op     = (kind != UCX_MP_MPI_RMA_SWAP) &&
                            (kind > UCX_MP_MPI_RMA_GET);
    const bool is_no_op   = has_op && has_result &&
                            (args->op == ucx_mp_mpi_pmpi.no_op);
    int rc                = MPI_SUCCESS;

    if (!is_no_op) {
        rc = buffer_check(args, args->origin_addr, args->origin_count,
                          args->origin_datatype);
    }
    if ((rc == MPI_SUCCESS) && has_result) {
        rc = buffer_check(args, args->result_addr, args->result_count,
                          args->result_datatype);
    }
    if ((rc == MPI_SUCCESS) && (kind >= UCX_MP_MPI_RMA_FETCH) &&
        (ucx_mp_mpi_layout_base(args->target_datatype) !=
         args->target_datatype)) {
        rc = ucx_mp_mpi_raise_win(args->win, MPI_ERR_TYPE);
    }
    return ((rc == MPI_SUCCESS) && has_op && !is_no_op) ? op_check(args) : rc;
}

/* MPI_Reduce_local() would abort: an element is reduced by a collective of this
   rank alone, on a communicator that returns errors. */
bool ucx_mp_mpi_window_reduces(const ucx_mp_mpi_window_t *window, MPI_Op op,
                               MPI_Datatype base, MPI_Count extent)
{
    char from[WIDEST] __attribute__((aligned(16))) = {0};
    char to[WIDEST] __attribute__((aligned(16)))   = {0};
    ucx_mp_type_t type;
    ucx_mp_op_t known;

    return (window->trial == ucx_mp_mpi_pmpi.comm_null) || (extent > WIDEST) ||
           (op == ucx_mp_mpi_pmpi.replace) || (op == ucx_mp_mpi_pmpi.no_op) ||
           ucx_mp_mpi_handles_known(op, base, &known, &type) ||
           (ucx_mp_mpi_pmpi.Allreduce(from, to, 1, base, op, window->trial) ==
            MPI_SUCCESS);
}
