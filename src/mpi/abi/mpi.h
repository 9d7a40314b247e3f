/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The part of MPI 5.0's standard ABI that this library uses, so that it needs
 * no MPI to be built for that ABI. The values and layouts are the standard's
 * (MPI 5.0, chapter 20). generate.py declares the functions. If another mpi.h
 * precedes this one, the compiler compares both declarations.
 */
#ifndef UCX_MP_MPI_ABI_MPI_H_
#define UCX_MP_MPI_ABI_MPI_H_

#include <stdint.h>


#define UCX_MP_MPI_ABI 1

#ifndef MPI_VERSION
#define MPI_VERSION     5
#define MPI_SUBVERSION  0
#define MPI_ABI_VERSION 1

typedef intptr_t MPI_Aint;
typedef int64_t  MPI_Offset;
typedef int64_t  MPI_Count;

typedef struct {
    int MPI_SOURCE;
    int MPI_TAG;
    int MPI_ERROR;
    int reserved[5];
} MPI_Status;

typedef struct ucx_mp_abi_comm       *MPI_Comm;
typedef struct ucx_mp_abi_datatype   *MPI_Datatype;
typedef struct ucx_mp_abi_errhandler *MPI_Errhandler;
typedef struct ucx_mp_abi_file       *MPI_File;
typedef struct ucx_mp_abi_group      *MPI_Group;
typedef struct ucx_mp_abi_info       *MPI_Info;
typedef struct ucx_mp_abi_message    *MPI_Message;
typedef struct ucx_mp_abi_op         *MPI_Op;
typedef struct ucx_mp_abi_request    *MPI_Request;
typedef struct ucx_mp_abi_session    *MPI_Session;
typedef struct ucx_mp_abi_win        *MPI_Win;

/* operations: 0x20 */
#define UCX_MP_ABI_OP(_value) ((MPI_Op)(0x20 + (_value)))
#define MPI_SUM     UCX_MP_ABI_OP(0x01)
#define MPI_MIN     UCX_MP_ABI_OP(0x02)
#define MPI_MAX     UCX_MP_ABI_OP(0x03)
#define MPI_PROD    UCX_MP_ABI_OP(0x04)
#define MPI_BAND    UCX_MP_ABI_OP(0x08)
#define MPI_BOR     UCX_MP_ABI_OP(0x09)
#define MPI_BXOR    UCX_MP_ABI_OP(0x0a)
#define MPI_LAND    UCX_MP_ABI_OP(0x10)
#define MPI_LOR     UCX_MP_ABI_OP(0x11)
#define MPI_LXOR    UCX_MP_ABI_OP(0x12)
#define MPI_MINLOC  UCX_MP_ABI_OP(0x18)
#define MPI_MAXLOC  UCX_MP_ABI_OP(0x19)
#define MPI_REPLACE UCX_MP_ABI_OP(0x1c)
#define MPI_NO_OP   UCX_MP_ABI_OP(0x1d)

/* other handles: 0x100 */
#define MPI_COMM_NULL     ((MPI_Comm)0x100)
#define MPI_COMM_WORLD    ((MPI_Comm)0x101)
#define MPI_INFO_NULL     ((MPI_Info)0x130)
#define MPI_ERRORS_RETURN ((MPI_Errhandler)0x143)
#define MPI_REQUEST_NULL  ((MPI_Request)0x180)

/* datatypes: 0x200; bits 3 to 5 of those with a fixed size are its binary
   logarithm */
#define UCX_MP_ABI_TYPE(_value) ((MPI_Datatype)(0x200 + (_value)))
#define MPI_DATATYPE_NULL      UCX_MP_ABI_TYPE(0x00)
#define MPI_AINT               UCX_MP_ABI_TYPE(0x01)
#define MPI_COUNT              UCX_MP_ABI_TYPE(0x02)
#define MPI_OFFSET             UCX_MP_ABI_TYPE(0x03)
#define MPI_SHORT              UCX_MP_ABI_TYPE(0x08)
#define MPI_INT                UCX_MP_ABI_TYPE(0x09)
#define MPI_LONG               UCX_MP_ABI_TYPE(0x0a)
#define MPI_LONG_LONG_INT      UCX_MP_ABI_TYPE(0x0b)
#define MPI_UNSIGNED_SHORT     UCX_MP_ABI_TYPE(0x0c)
#define MPI_UNSIGNED           UCX_MP_ABI_TYPE(0x0d)
#define MPI_UNSIGNED_LONG      UCX_MP_ABI_TYPE(0x0e)
#define MPI_UNSIGNED_LONG_LONG UCX_MP_ABI_TYPE(0x0f)
#define MPI_FLOAT              UCX_MP_ABI_TYPE(0x10)
#define MPI_C_FLOAT_COMPLEX    UCX_MP_ABI_TYPE(0x12)
#define MPI_DOUBLE             UCX_MP_ABI_TYPE(0x14)
#define MPI_C_DOUBLE_COMPLEX   UCX_MP_ABI_TYPE(0x16)
#define MPI_INTEGER            UCX_MP_ABI_TYPE(0x19)
#define MPI_REAL               UCX_MP_ABI_TYPE(0x1a)
#define MPI_COMPLEX            UCX_MP_ABI_TYPE(0x1b)
#define MPI_DOUBLE_PRECISION   UCX_MP_ABI_TYPE(0x1c)
#define MPI_DOUBLE_COMPLEX     UCX_MP_ABI_TYPE(0x1d)
#define MPI_FLOAT_INT          UCX_MP_ABI_TYPE(0x28)
#define MPI_2INT               UCX_MP_ABI_TYPE(0x2b)
#define MPI_2REAL              UCX_MP_ABI_TYPE(0x30)
#define MPI_2DOUBLE_PRECISION  UCX_MP_ABI_TYPE(0x31)
#define MPI_2INTEGER           UCX_MP_ABI_TYPE(0x32)
#define MPI_C_BOOL             UCX_MP_ABI_TYPE(0x38)
#define MPI_INT8_T             UCX_MP_ABI_TYPE(0x40)
#define MPI_UINT8_T            UCX_MP_ABI_TYPE(0x41)
#define MPI_SIGNED_CHAR        UCX_MP_ABI_TYPE(0x44)
#define MPI_UNSIGNED_CHAR      UCX_MP_ABI_TYPE(0x45)
#define MPI_BYTE               UCX_MP_ABI_TYPE(0x47)
#define MPI_INT16_T            UCX_MP_ABI_TYPE(0x48)
#define MPI_UINT16_T           UCX_MP_ABI_TYPE(0x49)
#define MPI_INT32_T            UCX_MP_ABI_TYPE(0x50)
#define MPI_UINT32_T           UCX_MP_ABI_TYPE(0x51)
#define MPI_INT64_T            UCX_MP_ABI_TYPE(0x58)
#define MPI_UINT64_T           UCX_MP_ABI_TYPE(0x59)
#define MPI_INTEGER1           UCX_MP_ABI_TYPE(0xc1)
#define MPI_INTEGER2           UCX_MP_ABI_TYPE(0xc9)
#define MPI_INTEGER4           UCX_MP_ABI_TYPE(0xd1)
#define MPI_REAL4              UCX_MP_ABI_TYPE(0xd2)
#define MPI_INTEGER8           UCX_MP_ABI_TYPE(0xd9)
#define MPI_REAL8              UCX_MP_ABI_TYPE(0xda)
#define MPI_COMPLEX8           UCX_MP_ABI_TYPE(0xdb)
#define MPI_COMPLEX16          UCX_MP_ABI_TYPE(0xe3)

#define MPI_BOTTOM          ((void*)0)
#define MPI_IN_PLACE        ((void*)1)
#define MPI_STATUS_IGNORE   ((MPI_Status*)0)
#define MPI_STATUSES_IGNORE ((MPI_Status*)0)

#define MPI_MAX_DATAREP_STRING 128
#define MPI_MAX_ERROR_STRING   512
#define MPI_MAX_LIBRARY_VERSION_STRING 8192

enum {
    MPI_SUCCESS       = 0,
    MPI_ERR_BUFFER    = 1,
    MPI_ERR_COUNT     = 2,
    MPI_ERR_TYPE      = 3,
    MPI_ERR_RANK      = 6,
    MPI_ERR_REQUEST   = 7,
    MPI_ERR_ROOT      = 8,
    MPI_ERR_GROUP     = 9,
    MPI_ERR_OP        = 10,
    MPI_ERR_ARG       = 13,
    MPI_ERR_TRUNCATE  = 15,
    MPI_ERR_OTHER     = 16,
    MPI_ERR_PENDING   = 18,
    MPI_ERR_IN_STATUS = 19,
    MPI_ERR_DISP      = 26,
    MPI_ERR_INFO      = 34,
    MPI_ERR_NO_MEM    = 39,
    MPI_ERR_RMA_RANGE = 48,
    MPI_ERR_RMA_SYNC  = 50,

    MPI_ANY_SOURCE = -1,
    MPI_ANY_TAG    = -2,
    MPI_PROC_NULL  = -3,
    MPI_ROOT       = -4,
    MPI_UNDEFINED  = -32766,

    MPI_THREAD_MULTIPLE = 4096,

    MPI_ORDER_C              = 12,
    MPI_DISTRIBUTE_NONE      = 16,
    MPI_DISTRIBUTE_CYCLIC    = 18,
    MPI_DISTRIBUTE_DFLT_DARG = 19,

    MPI_COMBINER_NAMED          = 101,
    MPI_COMBINER_DUP            = 102,
    MPI_COMBINER_CONTIGUOUS     = 103,
    MPI_COMBINER_VECTOR         = 104,
    MPI_COMBINER_HVECTOR        = 105,
    MPI_COMBINER_INDEXED        = 106,
    MPI_COMBINER_HINDEXED       = 107,
    MPI_COMBINER_INDEXED_BLOCK  = 108,
    MPI_COMBINER_HINDEXED_BLOCK = 109,
    MPI_COMBINER_STRUCT         = 110,
    MPI_COMBINER_SUBARRAY       = 111,
    MPI_COMBINER_DARRAY         = 112,
    MPI_COMBINER_F90_REAL       = 113,
    MPI_COMBINER_F90_COMPLEX    = 114,
    MPI_COMBINER_F90_INTEGER    = 115,
    MPI_COMBINER_RESIZED        = 116,

    MPI_CART       = 211,
    MPI_GRAPH      = 212,
    MPI_DIST_GRAPH = 213,

    MPI_LOCK_EXCLUSIVE  = 301,
    MPI_LOCK_SHARED     = 302,
    MPI_MODE_NOSUCCEED  = 16384,
    MPI_WIN_BASE        = 601,
    MPI_WIN_DISP_UNIT   = 602,
    MPI_WIN_SIZE        = 603
};

typedef int MPI_Grequest_query_function(void *extra, MPI_Status *status);
typedef int MPI_Grequest_free_function(void *extra);
typedef int MPI_Grequest_cancel_function(void *extra, int is_complete);
typedef void MPI_Comm_errhandler_function(MPI_Comm *comm, int *code, ...);
typedef void MPI_Win_errhandler_function(MPI_Win *win, int *code, ...);
typedef int MPI_Comm_copy_attr_function(MPI_Comm comm, int keyval, void *extra,
                                        void *value, void *new_value,
                                        int *is_copied);
typedef int MPI_Comm_delete_attr_function(MPI_Comm comm, int keyval,
                                          void *value, void *extra);
typedef int MPI_Type_copy_attr_function(MPI_Datatype datatype, int keyval,
                                        void *extra, void *value,
                                        void *new_value, int *is_copied);
typedef int MPI_Type_delete_attr_function(MPI_Datatype datatype, int keyval,
                                          void *value, void *extra);
#endif /* MPI_VERSION */

#endif
