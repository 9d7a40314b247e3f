/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi/call.h>
#include <mpi/handles.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>


/* The copy begins as far from such a boundary as the original does */
#define ALIGNMENT 256


static bool is_host(const void *pointer)
{
    if (pointer == MPI_IN_PLACE) {
        return true;
    }

    /* MPI_BOTTOM: the datatype knows where */
    return (pointer != MPI_BOTTOM) &&
           (ucx_mp_mpi_gpu_memory(pointer) == UCX_MP_MPI_MEMORY_HOST);
}

bool ucx_mp_mpi_pointers_are_host(const void *first, const void *second)
{
    return is_host(first) && is_host(second);
}

static bool is_gpu(const void *pointer)
{
    return (pointer != MPI_IN_PLACE) && (pointer != MPI_BOTTOM) &&
           (ucx_mp_mpi_gpu_memory(pointer) == UCX_MP_MPI_MEMORY_GPU);
}

bool ucx_mp_mpi_pointers_are_gpu(const void *first, const void *second)
{
    return ucx_mp_mpi_real.stages && (is_gpu(first) || is_gpu(second));
}


/* ------------------------------------------------------------- description */

static bool call_is_intact(const ucx_mp_mpi_call_t *call)
{
    return call->rc == MPI_SUCCESS;
}

static int call_is_inter(ucx_mp_mpi_call_t *call)
{
    int is_inter = 0;

    call->rc = ucx_mp_mpi_real.Comm_test_inter(call->comm, &is_inter);
    return is_inter;
}

void ucx_mp_mpi_call_begin(ucx_mp_mpi_call_t *call, const char *name,
                           MPI_Comm comm)
{
    int is_inter;

    memset(call, 0, sizeof(*call));
    call->name      = name;
    call->comm      = comm;
    call->is_member = true;

    is_inter = call_is_inter(call);
    if (call_is_intact(call)) {
        call->rc = ucx_mp_mpi_real.Comm_size(comm, &call->local);
    }
    if (call_is_intact(call)) {
        call->rc = ucx_mp_mpi_real.Comm_rank(comm, &call->rank);
    }

    call->sources = call->local;
    if (is_inter && call_is_intact(call)) {
        call->rc = ucx_mp_mpi_real.Comm_remote_size(comm, &call->sources);
    }
    call->targets = call->sources;
}

void ucx_mp_mpi_call_root(ucx_mp_mpi_call_t *call, int root)
{
    int is_inter;

    if (!call_is_intact(call)) {
        return;
    }

    is_inter = call_is_inter(call);
    if (is_inter) {
        call->is_root   = (root == MPI_ROOT);
        call->is_member = (root != MPI_ROOT) && (root != MPI_PROC_NULL);
    } else if (call_is_intact(call)) {
        call->is_root = (call->rank == root);
    }
}

void ucx_mp_mpi_call_neighbors(ucx_mp_mpi_call_t *call)
{
    int kind = MPI_UNDEFINED;
    int weighted;

    if (!call_is_intact(call)) {
        return;
    }

    call->rc = ucx_mp_mpi_real.Topo_test(call->comm, &kind);
    if (!call_is_intact(call)) {
        return;
    }

    switch (kind) {
    case MPI_CART:
        call->rc       = ucx_mp_mpi_real.Cartdim_get(call->comm,
                                                     &call->sources);
        call->sources *= 2;
        call->targets  = call->sources;
        break;
    case MPI_GRAPH:
        call->rc = ucx_mp_mpi_real.Graph_neighbors_count(call->comm,
                                                         call->rank,
                                                         &call->sources);
        call->targets = call->sources;
        break;
    case MPI_DIST_GRAPH:
        call->rc = ucx_mp_mpi_real.Dist_graph_neighbors_count(call->comm,
                                                              &call->sources,
                                                              &call->targets,
                                                              &weighted);
        break;
    default:
        call->sources = call->targets = 0; /* the MPI says what is wrong */
    }
}

MPI_Datatype ucx_mp_mpi_byte(void)
{
    ucx_mp_mpi_handles_find();
    return ucx_mp_mpi_handles.byte;
}

MPI_Count ucx_mp_mpi_sum(ucx_mp_mpi_vector_t counts, int ranks)
{
    MPI_Count sum = 0;
    int i;

    for (i = 0; i < ranks; ++i) {
        sum += ucx_mp_mpi_vector_at(counts, i);
    }

    return sum;
}

/* The next buffer, if it is one to look at: not the MPI's IN_PLACE, and not
   host memory */
static ucx_mp_mpi_buffer_t *
call_next_buffer(ucx_mp_mpi_call_t *call, unsigned use, void *pointer_p)
{
    ucx_mp_mpi_buffer_t *buffer = &call->buffers[call->num_buffers];
    const void *pointer;

    if (!call_is_intact(call)) {
        return NULL;
    }

    memcpy(&pointer, pointer_p, sizeof(pointer));
    if (pointer == MPI_IN_PLACE) {
        call->is_in_place = true;
        return NULL;
    }

    if (is_host(pointer)) {
        return NULL;
    }

    buffer->pointer_p = pointer_p;
    buffer->original  = pointer;
    buffer->use       = use;
    if (call->is_in_place && (use & UCX_MP_MPI_WRITE)) {
        buffer->use |= UCX_MP_MPI_READ;
    }

    ++call->num_buffers;
    return buffer;
}

static void call_layout_add(ucx_mp_mpi_call_t *call,
                            ucx_mp_mpi_buffer_t *buffer, ptrdiff_t offset,
                            MPI_Count count, MPI_Datatype datatype)
{
    /* what is wrong with a negative count or no type the MPI says */
    if (!call_is_intact(call) || (count <= 0) ||
        (datatype == ucx_mp_mpi_real.datatype_null)) {
        return;
    }

    call->rc = ucx_mp_mpi_layout_add(&buffer->layout, offset, count, datatype);
    switch (call->rc) {
    case UCX_MP_MPI_LAYOUT_NO_MEMORY:
        call->rc = ucx_mp_mpi_raise(call->comm, MPI_ERR_NO_MEM,
                                    "%s: no memory to describe a datatype",
                                    call->name);
        break;
    case UCX_MP_MPI_LAYOUT_TOO_LARGE:
        call->rc = ucx_mp_mpi_raise(call->comm, MPI_ERR_TYPE,
                                    "%s: GPU buffers of datatypes with gaps "
                                    "and 2 GiB of data or more are not "
                                    "supported", call->name);
        break;
    }
}

void ucx_mp_mpi_call_buffer(ucx_mp_mpi_call_t *call, unsigned use,
                            void *pointer_p, MPI_Count count,
                            MPI_Datatype datatype)
{
    ucx_mp_mpi_buffer_t *buffer = call_next_buffer(call, use, pointer_p);

    if (buffer != NULL) {
        call_layout_add(call, buffer, 0, count, datatype);
    }
}

void ucx_mp_mpi_call_vector(ucx_mp_mpi_call_t *call, unsigned use,
                            void *pointer_p, int ranks,
                            ucx_mp_mpi_vector_t counts,
                            ucx_mp_mpi_vector_t displs, MPI_Datatype datatype)
{
    ucx_mp_mpi_buffer_t *buffer = call_next_buffer(call, use, pointer_p);
    MPI_Count lower, extent;
    int i;

    if ((buffer == NULL) || (ranks == 0)) {
        return;
    }

    if (datatype == ucx_mp_mpi_real.datatype_null) {
        return; /* the MPI says what is wrong */
    }

    call->rc = ucx_mp_mpi_real.Type_get_extent_x(datatype, &lower, &extent);
    for (i = 0; i < ranks; ++i) {
        call_layout_add(call, buffer, ucx_mp_mpi_vector_at(displs, i) * extent,
                        ucx_mp_mpi_vector_at(counts, i), datatype);
    }
}

void ucx_mp_mpi_call_types(ucx_mp_mpi_call_t *call, unsigned use,
                           void *pointer_p, int ranks,
                           ucx_mp_mpi_vector_t counts,
                           ucx_mp_mpi_vector_t displs,
                           const MPI_Datatype *datatypes)
{
    ucx_mp_mpi_buffer_t *buffer = call_next_buffer(call, use, pointer_p);
    int i;

    for (i = 0; (buffer != NULL) && (datatypes != NULL) && (i < ranks); ++i) {
        call_layout_add(call, buffer, ucx_mp_mpi_vector_at(displs, i),
                        ucx_mp_mpi_vector_at(counts, i), datatypes[i]);
    }
}

bool ucx_mp_mpi_is_own_rank(MPI_Comm comm, int rank)
{
    int is_inter, own;

    return (ucx_mp_mpi_real.Comm_test_inter(comm, &is_inter) == MPI_SUCCESS) &&
           !is_inter &&
           (ucx_mp_mpi_real.Comm_rank(comm, &own) == MPI_SUCCESS) &&
           (rank == own);
}

bool ucx_mp_mpi_call_is_local(ucx_mp_mpi_call_t *call, int peer,
                              MPI_Datatype datatype)
{
    bool is_dense;

    if (!call_is_intact(call) || (peer == MPI_PROC_NULL)) {
        return false;
    }

#ifndef OPEN_MPI
    if (ucx_mp_mpi_is_own_rank(call->comm, peer)) {
        return true;
    }
#endif
    if (datatype == ucx_mp_mpi_real.datatype_null) {
        return false;
    }

    call->rc = ucx_mp_mpi_layout_is_dense(datatype, &is_dense);
    return call_is_intact(call) && !is_dense;
}


/* ----------------------------------------------------------------- staging */

/* Bounds, and an address that the driver knows. A buffer at MPI_BOTTOM may be
   host memory after all, or some of both. */
static size_t buffer_measure(ucx_mp_mpi_buffer_t *buffer)
{
    const char *original = buffer->original;
    ptrdiff_t low        = PTRDIFF_MAX;
    ptrdiff_t high       = PTRDIFF_MIN;
    const ucx_mp_mpi_rows_t *rows;
    ptrdiff_t begin, end;
    size_t i;

    for (i = 0; i < buffer->layout.count; ++i) {
        rows  = &buffer->layout.rows[i];
        begin = rows->offset;
        end   = rows->offset + ((ptrdiff_t)rows->count - 1) * rows->stride;
        if (end < begin) { /* a negative extent */
            begin = end;
            end   = rows->offset;
        }
        low  = (begin < low) ? begin : low;
        end += rows->length;
        high = (end > high) ? end : high;
        if ((buffer->on_gpu == NULL) && !is_host(original + rows->offset)) {
            buffer->on_gpu = original + rows->offset;
        }
    }

    if (buffer->on_gpu == NULL) {
        return 0;
    }

    buffer->low = low;
    return high - low;
}

static void buffer_copy(ucx_mp_mpi_buffer_t *buffer, ucx_mp_mpi_copy_t *copy,
                        ucx_mp_mpi_use_t use)
{
    const ucx_mp_mpi_rows_t *rows;
    char *original, *staged;
    size_t i;

    for (i = 0; i < buffer->layout.count; ++i) {
        rows     = &buffer->layout.rows[i];
        original = (char*)buffer->original + rows->offset;
        staged   = (char*)((uintptr_t)original + buffer->shift);
        if (use == UCX_MP_MPI_READ) {
            ucx_mp_mpi_copy_rows(copy, staged, original, rows->length,
                                 rows->stride, rows->count);
        } else {
            ucx_mp_mpi_copy_rows(copy, original, staged, rows->length,
                                 rows->stride, rows->count);
        }
    }
}

static void call_copy_failed(ucx_mp_mpi_call_t *call, CUresult result,
                             const char *what)
{
    call->rc = ucx_mp_mpi_raise(call->comm, MPI_ERR_OTHER,
                                "%s: a GPU buffer could not be copied %s host "
                                "memory: %s", call->name, what,
                                ucx_mp_mpi_gpu_error(result));
}

/* Between a buffer and its copy */
static void call_copy_buffer(ucx_mp_mpi_call_t *call,
                             ucx_mp_mpi_buffer_t *buffer, ucx_mp_mpi_use_t use)
{
    ucx_mp_mpi_copy_t copy;
    CUresult result;

    ucx_mp_mpi_copy_begin(&copy, buffer->on_gpu);
    buffer_copy(buffer, &copy, use);
    result = ucx_mp_mpi_copy_end(&copy);
    if (result != CUDA_SUCCESS) {
        call_copy_failed(call, result,
                         (use == UCX_MP_MPI_READ) ? "to" : "from");
    }
}

static void buffer_stage(ucx_mp_mpi_call_t *call, ucx_mp_mpi_buffer_t *buffer)
{
    size_t size = buffer_measure(buffer);
    ucx_mp_mpi_copy_t copy;
    CUresult result;
    uintptr_t low;
    char *staged;
    void *copied;

    if (size == 0) {
        return;
    }

    ucx_mp_mpi_copy_begin(&copy, buffer->on_gpu);
    staged = ucx_mp_mpi_pool_get(size + ALIGNMENT, &copy, &buffer->block);
    if (staged != NULL) {
        low           = (uintptr_t)buffer->original + buffer->low;
        buffer->shift = (uintptr_t)staged + low % ALIGNMENT - low;
        if (buffer->use & UCX_MP_MPI_READ) {
            buffer_copy(buffer, &copy, UCX_MP_MPI_READ);
        }
    }

    result = ucx_mp_mpi_copy_end(&copy);
    if (staged == NULL) {
        call->rc = ucx_mp_mpi_raise(call->comm, MPI_ERR_NO_MEM,
                                    "%s: no host memory to stage %zu bytes of "
                                    "a GPU buffer", call->name, size);
    } else if (result != CUDA_SUCCESS) {
        call_copy_failed(call, result, "to");
    } else {
        copied = (void*)((uintptr_t)buffer->original + buffer->shift);
        memcpy(buffer->pointer_p, &copied, sizeof(copied));
    }
}

/* One pointer for two buffers that overlap: so it is on the copies, for the MPI
   to judge. Parts of one array that lie apart, as halos do, begin at different
   bytes. */
static void call_alias(ucx_mp_mpi_call_t *call)
{
    ucx_mp_mpi_buffer_t *large = &call->buffers[0];
    ucx_mp_mpi_buffer_t *small = &call->buffers[1];

    if (call->is_apart || (call->num_buffers != 2) ||
        (large->original != small->original) || (large->block == NULL) ||
        (small->block == NULL) || (large->low != small->low)) {
        return;
    }

    if (buffer_measure(large) < buffer_measure(small)) {
        large = &call->buffers[1];
        small = &call->buffers[0];
    }

    memcpy(small->pointer_p, large->pointer_p, sizeof(void*));
    small->shift = large->shift; /* its bytes come from there, and go there */
    if (small->use & UCX_MP_MPI_READ) {
        call_copy_buffer(call, small, UCX_MP_MPI_READ);
    }
}

bool ucx_mp_mpi_call_stage(ucx_mp_mpi_call_t *call)
{
    unsigned i;

    for (i = 0; (i < call->num_buffers) && call_is_intact(call); ++i) {
        buffer_stage(call, &call->buffers[i]);
    }

    if (call_is_intact(call)) {
        call_alias(call);
    }
    return call_is_intact(call);
}

MPI_Count ucx_mp_mpi_call_pack(ucx_mp_mpi_call_t *call, int peer,
                               const void **buffer_p, MPI_Count count,
                               MPI_Datatype *datatype_p)
{
    const ucx_mp_mpi_real_t *real = &ucx_mp_mpi_real;
    int position                  = 0;
    MPI_Count element;
    bool is_dense;
    int size;

    /* what is wrong the MPI says */
    if ((peer == MPI_PROC_NULL) || (count <= 0) ||
        (*datatype_p == real->datatype_null) ||
        (ucx_mp_mpi_layout_is_dense(*datatype_p, &is_dense) != MPI_SUCCESS) ||
        is_dense ||
        (real->Type_size_x(*datatype_p, &element) != MPI_SUCCESS) ||
        (element <= 0) || (count > INT_MAX / 2 / element) ||
        (real->Pack_size((int)count, *datatype_p, call->comm, &size) !=
         MPI_SUCCESS)) {
        return count;
    }

    call->packed = malloc(size);
    if ((call->packed == NULL) ||
        (real->Pack(*buffer_p, (int)count, *datatype_p, call->packed, size,
                    &position, call->comm) != MPI_SUCCESS)) {
        return count;
    }

    *buffer_p   = call->packed;
    *datatype_p = ucx_mp_mpi_byte();
    return position;
}

void ucx_mp_mpi_call_copy(ucx_mp_mpi_call_t *call, ucx_mp_mpi_use_t use)
{
    ucx_mp_mpi_buffer_t *buffer;
    unsigned i;

    for (i = 0; (i < call->num_buffers) && call_is_intact(call); ++i) {
        buffer = &call->buffers[i];
        if ((buffer->block != NULL) && (buffer->use & use)) {
            call_copy_buffer(call, buffer, use);
        }
    }
}

void ucx_mp_mpi_call_free(ucx_mp_mpi_call_t *call)
{
    unsigned i;

    for (i = 0; i < call->num_buffers; ++i) {
        if (call->buffers[i].block != NULL) {
            ucx_mp_mpi_pool_put(call->buffers[i].block);
        }
        ucx_mp_mpi_layout_free(&call->buffers[i].layout);
    }
    call->num_buffers = 0;
    free(call->packed);
    call->packed = NULL;
}

int ucx_mp_mpi_call_end(ucx_mp_mpi_call_t *call)
{
    ucx_mp_mpi_call_copy(call, UCX_MP_MPI_WRITE);
    ucx_mp_mpi_call_free(call);
    return call->rc;
}
