/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi/call.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>


/* Image and original have equal addresses modulo this number */
#define ALIGNMENT 256

/* An image longer than this, bytes, is packed instead if less than a quarter of
   it is data */
#define SPARSE_MIN ((size_t)64 << 20)

/* Dummy for buffers that could not be staged: with it this rank can still make
   the MPI's call. Its content is undefined. */
static char lost_bytes[UCX_MP_MPI_PACKED_LOST];


/* ------------------------------------------------------------- description */

static bool call_is_intact(const ucx_mp_mpi_call_t *call)
{
    return call->rc == MPI_SUCCESS;
}

/* Return whether to describe the call's buffers. Otherwise the MPI's call
   raises the error, once and with its own name. */
static bool call_is_described(const ucx_mp_mpi_call_t *call)
{
    return call_is_intact(call) && (call->comm != ucx_mp_mpi_pmpi.comm_null);
}

void ucx_mp_mpi_call_init(ucx_mp_mpi_call_t *call, const char *name,
                          MPI_Comm comm, unsigned flags)
{
    memset(call, 0, sizeof(*call));
    call->name      = name;
    call->comm      = comm;
    call->flags     = flags;
    call->byte      = ucx_mp_mpi_pmpi.byte;
    call->is_member = true;
    call->arrived   = SIZE_MAX;
}

void ucx_mp_mpi_call_begin(ucx_mp_mpi_call_t *call, const char *name,
                           MPI_Comm comm, unsigned flags)
{
    int is_inter = 0;

    ucx_mp_mpi_call_init(call, name, comm, flags);
    if (!call_is_described(call)) {
        return;
    }

    call->rc       = ucx_mp_mpi_pmpi.Comm_test_inter(comm, &is_inter);
    call->is_inter = is_inter;
    if (call_is_intact(call)) {
        call->rc = ucx_mp_mpi_pmpi.Comm_size(comm, &call->local);
    }
    if (call_is_intact(call)) {
        call->rc = ucx_mp_mpi_pmpi.Comm_rank(comm, &call->rank);
    }

    call->sources = call->local;
    if (call->is_inter && call_is_intact(call)) {
        call->rc = ucx_mp_mpi_pmpi.Comm_remote_size(comm, &call->sources);
    }
    call->targets = call->sources;
}

void ucx_mp_mpi_call_root(ucx_mp_mpi_call_t *call, int root)
{
    call->is_root = (root == (call->is_inter ? MPI_ROOT : call->rank));
    if (call->is_inter) {
        call->is_member = (root != MPI_ROOT) && (root != MPI_PROC_NULL);
    }
}

void ucx_mp_mpi_call_neighbors(ucx_mp_mpi_call_t *call)
{
    int kind = MPI_UNDEFINED;
    int weighted;

    if (!call_is_described(call)) {
        return;
    }

    call->rc = ucx_mp_mpi_pmpi.Topo_test(call->comm, &kind);
    if (!call_is_intact(call)) {
        return;
    }

    switch (kind) {
    case MPI_CART:
        call->rc       = ucx_mp_mpi_pmpi.Cartdim_get(call->comm,
                                                     &call->sources);
        call->sources *= 2;
        call->targets  = call->sources;
        break;
    case MPI_GRAPH:
        call->rc = ucx_mp_mpi_pmpi.Graph_neighbors_count(call->comm,
                                                         call->rank,
                                                         &call->sources);
        call->targets = call->sources;
        break;
    case MPI_DIST_GRAPH:
        call->rc = ucx_mp_mpi_pmpi.Dist_graph_neighbors_count(call->comm,
                                                              &call->sources,
                                                              &call->targets,
                                                              &weighted);
        break;
    default:
        call->sources = call->targets = 0; /* the MPI reports the error */
    }
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

/* Add a block to a layout. Skip a count <= 0 or a null datatype: the MPI
   reports the errors among them. @return As ucx_mp_mpi_layout_add(). */
static int part_add(ucx_mp_mpi_layout_t *layout, ptrdiff_t offset,
                    MPI_Count count, MPI_Datatype datatype, bool is_exact)
{
    return ((count <= 0) || (datatype == ucx_mp_mpi_pmpi.datatype_null)) ?
                   MPI_SUCCESS :
                   ucx_mp_mpi_layout_add(layout, offset, count, datatype,
                                         is_exact);
}

/* Add all blocks of a buffer. @return As ucx_mp_mpi_layout_add(). */
static int parts_add(const ucx_mp_mpi_parts_t *parts,
                     ucx_mp_mpi_layout_t *layout, bool is_exact)
{
    const MPI_Datatype *types = (parts->types_p != NULL) ? *parts->types_p :
                                                           NULL;
    MPI_Count lower, extent   = 1;
    int rc                    = MPI_SUCCESS;
    int i;

    if (parts->ranks == 0) {
        return part_add(layout, 0, parts->count, *parts->type_p, is_exact);
    }

    if (types == NULL) {
        if (*parts->type_p == ucx_mp_mpi_pmpi.datatype_null) {
            return MPI_SUCCESS;
        }
        rc = ucx_mp_mpi_pmpi.Type_get_extent_x(*parts->type_p, &lower, &extent);
    }
    for (i = 0; (i < parts->ranks) && (rc == MPI_SUCCESS); ++i) {
        rc = part_add(layout, ucx_mp_mpi_vector_at(parts->displs, i) * extent,
                      ucx_mp_mpi_vector_at(parts->counts, i),
                      (types == NULL) ? *parts->type_p : types[i], is_exact);
    }
    return rc;
}

static void call_fail(ucx_mp_mpi_call_t *call, int code)
{
    call->failed = (call->failed == MPI_SUCCESS) ? code : call->failed;
}

void ucx_mp_mpi_call_lose(ucx_mp_mpi_call_t *call, ucx_mp_mpi_buffer_t *buffer,
                          int rc, const char *too_large)
{
    if ((rc != UCX_MP_MPI_LAYOUT_NO_MEMORY) &&
        (rc != UCX_MP_MPI_LAYOUT_TOO_LARGE)) {
        call->rc = rc;
        return;
    }

    buffer->is_lost = true;
    ++call->num_buffers;
    call_fail(call, (rc == UCX_MP_MPI_LAYOUT_NO_MEMORY) ?
              ucx_mp_mpi_raise(call->comm, MPI_ERR_NO_MEM,
                               "%s: no memory to describe a datatype",
                               call->name) :
              ucx_mp_mpi_raise(call->comm, MPI_ERR_TYPE, "%s: %s", call->name,
                               too_large));
}

/* Describe the call's next buffer and count it. If its rows cannot be found,
   leave a buffer at a host address to the MPI, although some elements may be in
   GPU memory. */
static void call_describe(ucx_mp_mpi_call_t *call, ucx_mp_mpi_buffer_t *buffer)
{
    const int rc = parts_add(&buffer->parts, &buffer->layout, false);

    if (rc == MPI_SUCCESS) {
        ++call->num_buffers;
        return;
    }

    ucx_mp_mpi_layout_free(&buffer->layout);
    if ((rc > 0) || !ucx_mp_mpi_pointer_is_host(buffer->original)) {
        ucx_mp_mpi_call_lose(call, buffer, rc,
                             "GPU buffers of datatypes with gaps and 2 GiB of "
                             "data or more are not supported");
    }
}

/* Describe the call's next buffer, unless it is one block of host memory
   without gaps. MPI_IN_PLACE only sets is_in_place: buffers to write are then
   read, too. After an error, do nothing. */
static void call_add(ucx_mp_mpi_call_t *call, unsigned use, void *pointer_p,
                     const ucx_mp_mpi_parts_t *parts)
{
    ucx_mp_mpi_buffer_t *buffer = &call->buffers[call->num_buffers];
    const void *pointer;

    if (!call_is_described(call) || (!ucx_mp_mpi_pmpi.stages &&
                                     !(call->flags & UCX_MP_MPI_REDUCES))) {
        return;
    }

    memcpy(&pointer, pointer_p, sizeof(pointer));
    if (pointer == MPI_IN_PLACE) {
        call->is_in_place = true;
        return;
    }

    if ((parts->ranks == 0) &&
        ((parts->count <= 0) ||
         (*parts->type_p == ucx_mp_mpi_pmpi.datatype_null) ||
         ucx_mp_mpi_layout_is_array(*parts->type_p)) &&
        ucx_mp_mpi_pointer_is_host(pointer)) {
        return;
    }

    buffer->pointer_p = pointer_p;
    buffer->original  = pointer;
    buffer->use       = use;
    buffer->parts     = *parts;
    if (call->is_in_place && (use & UCX_MP_MPI_WRITE)) {
        buffer->use |= UCX_MP_MPI_READ;
    }
    call_describe(call, buffer);
}

void ucx_mp_mpi_call_buffer(ucx_mp_mpi_call_t *call, unsigned use,
                            void *pointer_p, MPI_Count count,
                            MPI_Datatype *type_p)
{
    call_add(call, use, pointer_p,
             &(ucx_mp_mpi_parts_t){.count = count, .type_p = type_p});
}

void ucx_mp_mpi_call_blocks(ucx_mp_mpi_call_t *call, unsigned use,
                            void *pointer_p, ucx_mp_mpi_parts_t parts)
{
    const void *pointer;

    /* In place, the program may give no types */
    memcpy(&pointer, pointer_p, sizeof(pointer));
    if ((parts.ranks > 0) && ((parts.types_p == NULL) ||
                              (*parts.types_p != NULL) ||
                              (pointer == MPI_IN_PLACE))) {
        call_add(call, use, pointer_p, &parts);
    }
}

bool ucx_mp_mpi_rank_is_self(MPI_Comm comm, int rank)
{
    int is_inter, own;

    /* the MPI's own call raises the error of MPI_COMM_NULL */
    return (comm != ucx_mp_mpi_pmpi.comm_null) &&
           (ucx_mp_mpi_pmpi.Comm_test_inter(comm, &is_inter) == MPI_SUCCESS) &&
           !is_inter &&
           ((rank == MPI_ANY_SOURCE) ?
                    ((ucx_mp_mpi_pmpi.Comm_size(comm, &own) == MPI_SUCCESS) &&
                     (own == 1)) :
                    ((ucx_mp_mpi_pmpi.Comm_rank(comm, &own) == MPI_SUCCESS) &&
                     (rank == own)));
}

/* ----------------------------------------------------------------- staging */

/* Set `low` and `on_gpu` of a buffer. @return Size of the range from its first
   to its last byte; 0: all host memory, or no bytes. */
static size_t buffer_measure(ucx_mp_mpi_buffer_t *buffer)
{
    ptrdiff_t low  = PTRDIFF_MAX;
    ptrdiff_t high = PTRDIFF_MIN;
    const ucx_mp_mpi_strided_t *rows;
    ptrdiff_t begin, end;
    size_t i;

    if (buffer->element != NULL) {
        return ucx_mp_mpi_buffer_locate(buffer);
    }

    if (buffer->on_gpu == NULL) {
        buffer->on_gpu = ucx_mp_mpi_buffer_on_gpu(buffer);
    }
    if (buffer->on_gpu == NULL) {
        return 0;
    }

    for (i = 0; i < buffer->layout.count; ++i) {
        rows  = &buffer->layout.rows[i];
        begin = rows->offset;
        end   = rows->offset + ((ptrdiff_t)rows->count - 1) * rows->stride;
        if (end < begin) { /* negative extent */
            begin = end;
            end   = rows->offset;
        }
        low  = (begin < low) ? begin : low;
        end += rows->length;
        high = (end > high) ? end : high;
    }

    buffer->low = low;
    return high - low;
}

/* Submit copies of rows from a buffer to its copy, with UCX_MP_MPI_WRITE back.
   If the copy is packed, only its first `limit` bytes, which may end inside a
   row. */
static void rows_copy(const ucx_mp_mpi_buffer_t *buffer,
                      const ucx_mp_mpi_strided_t *rows, size_t limit,
                      ucx_mp_mpi_copy_t *copy, ucx_mp_mpi_use_t use)
{
    const bool is_packed     = (buffer->staged != NULL);
    ucx_mp_mpi_plane_t plane = {
        .program   = (char*)buffer->original + rows->offset,
        .stride    = rows->stride,
        .length    = rows->length,
        .count     = rows->count,
        .is_back   = (use == UCX_MP_MPI_WRITE),
        .is_joined = rows->is_joined
    };
    size_t full;

    plane.staged = is_packed ? buffer->staged + rows->packed :
                               (char*)((uintptr_t)plane.program +
                                       buffer->shift);
    plane.step   = is_packed ? (ptrdiff_t)rows->step : rows->stride;
    if (is_packed && (limit < rows->packed + (rows->count - 1) * rows->step +
                                      rows->length)) {
        limit       = (limit > rows->packed) ? limit - rows->packed : 0;
        full        = (limit < rows->length) ?
                              0 :
                              (limit - rows->length) / rows->step + 1;
        plane.count = full;
        ucx_mp_mpi_copy_rows(copy, plane);

        plane.program += (ptrdiff_t)full * plane.stride;
        plane.staged  += (ptrdiff_t)full * plane.step;
        plane.count    = (full < rows->count) && (limit > full * rows->step);
        plane.length   = limit - full * rows->step;
    }
    ucx_mp_mpi_copy_rows(copy, plane);
}

/* Submit the copy of a buffer to its staging memory, with UCX_MP_MPI_WRITE
   back. `limit`: packed bytes to copy, SIZE_MAX: all; ignored for an image. */
static void buffer_copy(ucx_mp_mpi_buffer_t *buffer, ucx_mp_mpi_copy_t *copy,
                        ucx_mp_mpi_use_t use, size_t limit)
{
    size_t i;

    if (buffer->is_packed) {
        ucx_mp_mpi_pack(copy, buffer->element, buffer->original,
                        buffer->staged,
                        (limit < buffer->bytes) ? limit : buffer->bytes,
                        use == UCX_MP_MPI_WRITE);
        return;
    }

    for (i = 0; i < buffer->layout.count; ++i) {
        rows_copy(buffer, &buffer->layout.rows[i], limit, copy, use);
    }
}

static void call_copy_failed(ucx_mp_mpi_call_t *call,
                             const ucx_mp_mpi_buffer_t *buffer,
                             CUresult result, ucx_mp_mpi_use_t use)
{
    const bool is_read = (use == UCX_MP_MPI_READ);
    const char *what   = buffer->is_packed ?
                                 (is_read ? "packed by a kernel" :
                                            "unpacked by a kernel") :
                                 (is_read ? "copied to host memory" :
                                            "copied from host memory");

    call_fail(call, ucx_mp_mpi_raise(call->comm, MPI_ERR_OTHER,
                                     "%s: a GPU buffer could not be %s: %s",
                                     call->name, what,
                                     ucx_mp_mpi_gpu_error(result)));
}

/* Copy one buffer to its staging memory, with UCX_MP_MPI_WRITE back, and wait.
   Of a message, only the bytes that arrived go back. Raise an error. */
static void call_copy_buffer(ucx_mp_mpi_call_t *call,
                             ucx_mp_mpi_buffer_t *buffer, ucx_mp_mpi_use_t use)
{
    const size_t limit = ((use == UCX_MP_MPI_WRITE) &&
                          (buffer->element != NULL)) ? call->arrived :
                                                       SIZE_MAX;
    ucx_mp_mpi_copy_t copy;
    CUresult result;

    /* The context is that of the GPU memory used for staging, if any */
    ucx_mp_mpi_copy_begin(&copy, (buffer->block->context != NULL) ?
                                         buffer->staged :
                                         buffer->on_gpu);
    buffer_copy(buffer, &copy, use, limit);
    result = ucx_mp_mpi_copy_end(&copy);
    if (result != CUDA_SUCCESS) {
        call_copy_failed(call, buffer, result, use);
    }
}

/* Allocate an image of the buffer's `size` bytes and point the wrapper's
   argument to it. @return false: no memory. */
static bool buffer_hold_image(ucx_mp_mpi_buffer_t *buffer,
                              ucx_mp_mpi_copy_t *copy, size_t size)
{
    const uintptr_t low = (uintptr_t)buffer->original + buffer->low;
    const size_t begin  = low % ALIGNMENT;

    if (size > SIZE_MAX - ALIGNMENT) {
        return false;
    }

    buffer->block = ucx_mp_mpi_pool_get(begin + size, buffer->layout.size,
                                        copy);
    if (buffer->block == NULL) {
        return false;
    }

    buffer->shift = (uintptr_t)buffer->block->address + begin - low;
    ucx_mp_mpi_buffer_point(buffer, (void*)((uintptr_t)buffer->original +
                                            buffer->shift));
    return true;
}

/* Allocate a packed copy and replace the wrapper's pointer, datatypes and
   displacements. @return false, with nothing changed: no memory, or an error
   of the MPI. */
static bool buffer_hold_packed(ucx_mp_mpi_buffer_t *buffer,
                               ucx_mp_mpi_copy_t *copy)
{
    ucx_mp_mpi_layout_t layout = {0};

    if (parts_add(&buffer->parts, &layout, true) != MPI_SUCCESS) {
        goto err;
    }

    buffer->block = ucx_mp_mpi_pool_get(layout.size, layout.size, copy);
    if (buffer->block == NULL) {
        goto err;
    }

    if (!ucx_mp_mpi_packed_make(&buffer->packed, &buffer->parts,
                                UCX_MP_MPI_PACKED_CONTIGUOUS)) {
        goto err_put;
    }

    ucx_mp_mpi_layout_free(&buffer->layout);
    buffer->layout = layout;
    buffer->staged = buffer->block->address;
    ucx_mp_mpi_buffer_point(buffer, buffer->staged);
    return true;

err_put:
    ucx_mp_mpi_block_put(buffer->block);
    buffer->block = NULL;
err:
    ucx_mp_mpi_layout_free(&layout);
    return false;
}

static bool call_packs(const ucx_mp_mpi_call_t *call)
{
    return (call->flags & UCX_MP_MPI_PACKS) &&
           ((call->file_p == NULL) ||
            ucx_mp_mpi_layout_is_native(*call->file_p));
}

/* Return whether MPICH must pack a message to another rank: it cannot unpack
   bytes that UCX has cut inside a basic type. This library packs large and
   sparse messages nevertheless. */
static bool
message_needs_mpi_pack(const ucx_mp_mpi_buffer_t *buffer, size_t size)
{
    return buffer->element->is_uneven && !buffer->is_cpu &&
           (buffer->use & UCX_MP_MPI_READ) &&
           !(buffer->use & UCX_MP_MPI_WRITE) &&
           ((size <= SPARSE_MIN) || (buffer->bytes >= size / 4));
}

/* Stage a message as an image, which the MPI packs. Copy in a received
   message's buffer as well: bytes that do not arrive then keep their value.
   @return false: no memory. */
static bool message_hold_image(ucx_mp_mpi_buffer_t *buffer,
                               ucx_mp_mpi_copy_t *copy, size_t size)
{
    if (((buffer->layout.count == 0) &&
         (parts_add(&buffer->parts, &buffer->layout, true) != MPI_SUCCESS)) ||
        !buffer_hold_image(buffer, copy, size)) {
        return false;
    }

    ucx_mp_mpi_layout_release(buffer->element);
    buffer->element = NULL;
    buffer->use    |= UCX_MP_MPI_READ;
    return true;
}

static bool buffer_hold(const ucx_mp_mpi_call_t *call,
                        ucx_mp_mpi_buffer_t *buffer, ucx_mp_mpi_copy_t *copy,
                        size_t size)
{
    const bool is_sparse = (size > SPARSE_MIN) &&
                           (buffer->layout.size < size / 4) &&
                           call_packs(call);

    if (buffer->element != NULL) {
        return (message_needs_mpi_pack(buffer, size) &&
                message_hold_image(buffer, copy, size)) ||
               ucx_mp_mpi_buffer_hold_bytes(buffer, copy) ||
               ucx_mp_mpi_pmpi.assists; /* the MPI sends it as it is */
    }

    return (is_sparse && buffer_hold_packed(buffer, copy)) ||
           buffer_hold_image(buffer, copy, size) ||
           (!is_sparse && call_packs(call) &&
            buffer_hold_packed(buffer, copy));
}

static void buffer_stage(ucx_mp_mpi_call_t *call, ucx_mp_mpi_buffer_t *buffer)
{
    size_t size = buffer_measure(buffer);
    ucx_mp_mpi_copy_t copy;
    CUresult result;

    if (size == 0) {
        return;
    }

    ucx_mp_mpi_copy_begin(&copy, buffer->on_gpu);
    buffer->is_lost = !buffer_hold(call, buffer, &copy, size);
    if ((buffer->block != NULL) && (buffer->use & UCX_MP_MPI_READ) &&
        !(call->flags & UCX_MP_MPI_AGAIN)) {
        buffer_copy(buffer, &copy, UCX_MP_MPI_READ, SIZE_MAX);
    }

    result = ucx_mp_mpi_copy_end(&copy);
    if (buffer->is_lost) {
        call_fail(call, ucx_mp_mpi_raise(call->comm, MPI_ERR_NO_MEM,
                                         "%s: no host memory to stage %zu "
                                         "bytes of a GPU buffer", call->name,
                                         size));
    } else if (result != CUDA_SUCCESS) {
        call_copy_failed(call, buffer, result, UCX_MP_MPI_READ);
    }
}

/* MPI forbids overlapping buffers. If both buffers start at the same byte, give
   them overlapping copies, so that the MPI detects and reports it. Distinct
   parts of one array, such as halos, start at different bytes. */
static void call_alias(ucx_mp_mpi_call_t *call)
{
    ucx_mp_mpi_buffer_t *large = &call->buffers[0];
    ucx_mp_mpi_buffer_t *small = &call->buffers[1];

    if (call->is_apart || (call->num_buffers != 2) ||
        (large->original != small->original) || (large->block == NULL) ||
        (small->block == NULL) || (large->low != small->low) ||
        (large->staged != NULL) || (small->staged != NULL)) {
        return;
    }

    if (buffer_measure(large) < buffer_measure(small)) {
        large = &call->buffers[1];
        small = &call->buffers[0];
    }

    memcpy(small->pointer_p, large->pointer_p, sizeof(void*));
    small->shift = large->shift; /* both use the larger copy */
    if (small->use & UCX_MP_MPI_READ) {
        call_copy_buffer(call, small, UCX_MP_MPI_READ);
    }
}

/* After a failure, give the MPI a dummy buffer for a lost buffer, or 0 bytes if
   the call may carry none; leave other buffers.
   @return Whether this rank can make the call. */
static bool buffer_join(const ucx_mp_mpi_call_t *call,
                        ucx_mp_mpi_buffer_t *buffer)
{
    const bool is_empty = (call->flags & UCX_MP_MPI_EMPTY) &&
                          !(buffer->use & UCX_MP_MPI_RECEIVE);

    if (!is_empty && !buffer->is_lost) {
        return true;
    }

    if (!is_empty && !(call->flags & UCX_MP_MPI_PACKS)) {
        return false;
    }

    ucx_mp_mpi_buffer_point(buffer, lost_bytes);
    ucx_mp_mpi_packed_free(&buffer->packed);
    return ucx_mp_mpi_packed_make(&buffer->packed, &buffer->parts,
                                  is_empty ? UCX_MP_MPI_PACKED_NONE :
                                             UCX_MP_MPI_PACKED_SAME);
}

/* Take part in the call after this rank has failed. @return Whether the MPI's
   call is made, because other ranks wait for it. */
static bool call_join(ucx_mp_mpi_call_t *call)
{
    bool is_joined = (call->flags & UCX_MP_MPI_JOINS);
    unsigned i;

    for (i = 0; (i < call->num_buffers) && is_joined; ++i) {
        is_joined = buffer_join(call, &call->buffers[i]);
    }
    if (!is_joined) {
        call->rc = call->failed;
    }
    return is_joined;
}

bool ucx_mp_mpi_call_stage(ucx_mp_mpi_call_t *call)
{
    bool is_staged = false;
    unsigned i;

    if (!call_is_intact(call)) {
        return false;
    }

    for (i = 0; i < call->num_buffers; ++i) {
        buffer_stage(call, &call->buffers[i]);
        is_staged |= (call->buffers[i].block != NULL);
    }
    if (call->failed == MPI_SUCCESS) {
        call_alias(call);
    }
    if (call->failed != MPI_SUCCESS) {
        ucx_mp_mpi_failure_report(call->ordinal, call->rank);
        return call_join(call);
    }

    if (!is_staged) {
        ucx_mp_mpi_call_free(call); /* all buffers are host memory */
    }
    return true;
}

static bool type_needs_mpi_pack(MPI_Datatype datatype)
{
    ucx_mp_mpi_element_t *element;
    bool is_needed;

    if (!ucx_mp_mpi_pmpi.cuts_poorly ||
        (ucx_mp_mpi_layout_hold(datatype, &element) != MPI_SUCCESS) ||
        (element == NULL)) {
        return false;
    }

    is_needed = element->is_uneven;
    ucx_mp_mpi_layout_release(element);
    return is_needed;
}

MPI_Count ucx_mp_mpi_call_pack(ucx_mp_mpi_call_t *call, int peer,
                               const void **buffer_p, MPI_Count count,
                               MPI_Datatype *datatype_p, const void *received)
{
    const ucx_mp_mpi_pmpi_t *real = &ucx_mp_mpi_pmpi;
    int position                  = 0;
    MPI_Count element;
    int size;

#ifndef OPEN_MPI /* Open MPI can pack from MPI_BOTTOM */
    if (*buffer_p == MPI_BOTTOM) {
        return count;
    }
#endif

    /* errors are left to the MPI */
    if (!real->stages || (peer == MPI_PROC_NULL) || (count <= 0) ||
        (*datatype_p == real->datatype_null) ||
        ucx_mp_mpi_layout_is_array(*datatype_p) ||
        ((call->num_buffers == 0) &&
         ucx_mp_mpi_pointers_are_host(*buffer_p, received)) ||
        type_needs_mpi_pack(*datatype_p) ||
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
    *datatype_p = ucx_mp_mpi_pmpi.byte;
    return position;
}

void ucx_mp_mpi_call_copy(ucx_mp_mpi_call_t *call, ucx_mp_mpi_use_t use)
{
    ucx_mp_mpi_buffer_t *buffer;
    unsigned i;

    if ((use == UCX_MP_MPI_WRITE) && (call->failed == MPI_SUCCESS)) {
        call->rc = ucx_mp_mpi_failure_end(call->ordinal, call->name, call->comm,
                                          call->rc);
    }

    for (i = 0; (i < call->num_buffers) && call_is_intact(call) &&
                (call->failed == MPI_SUCCESS); ++i) {
        buffer = &call->buffers[i];
        if ((buffer->block != NULL) && (buffer->use & use)) {
            call_copy_buffer(call, buffer, use);
        }
    }
}

void ucx_mp_mpi_call_free(ucx_mp_mpi_call_t *call)
{
    ucx_mp_mpi_buffer_t *buffer;
    unsigned i;

    for (i = 0; i < call->num_buffers; ++i) {
        buffer = &call->buffers[i];
        ucx_mp_mpi_block_put(buffer->block);
        ucx_mp_mpi_layout_release(buffer->element);
        ucx_mp_mpi_layout_free(&buffer->layout);
        ucx_mp_mpi_packed_free(&buffer->packed);
    }
    call->num_buffers = 0;
    free(call->packed);
    call->packed = NULL;
}

int ucx_mp_mpi_call_end(ucx_mp_mpi_call_t *call)
{
    ucx_mp_mpi_call_copy(call, UCX_MP_MPI_WRITE);
    ucx_mp_mpi_call_free(call);
    return (call->failed != MPI_SUCCESS) ? call->failed : call->rc;
}
