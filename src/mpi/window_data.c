/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations on memory of windows that is mapped into this process. An "error
 * class" returned here is MPI_SUCCESS, or the class of an error that is not
 * raised yet.
 */
#include <mpi/handles.h>
#include <mpi/message.h>
#include <mpi/window.h>

#include <limits.h>
#include <string.h>


/* Bytes of an accumulate that are staged at once */
#define CHUNK ((size_t)16 << 20)

/* Accumulates of fewer bytes go through host memory: a kernel takes as long */
#define KERNEL_MIN ((size_t)16 << 10)

/* Elements of a pair's datatype that are reduced at once, and bytes of one, at
   most */
#define PAIRS    64
#define PAIR_MAX 32

/* Origin, result or target buffer of an operation */
typedef struct {
    char                 *address; /* of the first element's origin */
    MPI_Count            count;
    MPI_Datatype         type;
    ucx_mp_mpi_element_t *element; /* NULL: bytes in a row at the address */
    size_t               bytes;    /* packed */
    ptrdiff_t            low, high; /* first byte, and behind the last one */
    bool                 is_target;
} side_t;

typedef struct {
    ucx_mp_mpi_window_t *window;
    ucx_mp_mpi_target_t *target;
    int                 rank;
    ucx_mp_mpi_copy_t   copy;
} work_t;


/* ------------------------------------------------------------------- sides */

/* Return whether elements of `size` bytes are contiguous in memory, and packed
   in the order of memory. */
static bool is_row(const ucx_mp_mpi_element_t *element, MPI_Count size)
{
    const ucx_mp_mpi_layout_t *layout = &element->layout;

    return (layout->count == 1) && (layout->rows[0].count == 1) &&
           (layout->rows[0].offset == 0) && (element->extent == size);
}

/* Describe a buffer; side_free() frees the description. @return An error
   class. */
static int side_make(side_t *side, const void *address, MPI_Count count,
                     MPI_Datatype type)
{
    ucx_mp_mpi_element_t *element = NULL;
    MPI_Count size;
    ptrdiff_t last;

    *side = (side_t){.address = (char*)address, .count = count, .type = type};
    if (count < 0) {
        return MPI_ERR_COUNT;
    }
    if ((type == ucx_mp_mpi_pmpi.datatype_null) || (type == (MPI_Datatype)0)) {
        return (count == 0) ? MPI_SUCCESS : MPI_ERR_TYPE;
    }
    if (ucx_mp_mpi_pmpi.Type_size_x(type, &size) != MPI_SUCCESS) {
        return MPI_ERR_TYPE;
    }
    if (__builtin_mul_overflow((size_t)count, (size_t)size, &side->bytes)) {
        return MPI_ERR_COUNT;
    }
    if (side->bytes == 0) {
        return MPI_SUCCESS;
    }

    side->high = (ptrdiff_t)side->bytes;
    if (ucx_mp_mpi_message_needs_no_packing(1, type)) {
        return MPI_SUCCESS;
    }

    if ((ucx_mp_mpi_layout_hold(type, &element) != MPI_SUCCESS) ||
        (element == NULL)) {
        return MPI_ERR_TYPE;
    }
    if (is_row(element, size)) {
        ucx_mp_mpi_layout_release(element);
        return MPI_SUCCESS;
    }

    last          = (count - 1) * element->extent;
    side->element = element;
    side->low     = element->low + ((last < 0) ? last : 0);
    side->high    = element->high + ((last > 0) ? last : 0);
    return MPI_SUCCESS;
}

static void side_free(side_t *side)
{
    ucx_mp_mpi_layout_release(side->element);
    side->element = NULL;
}

/* Shorten the receiving side to `bytes`. @return An error class:
   MPI_ERR_TRUNCATE if it is too small for them, MPI_ERR_TYPE if elements with
   gaps would be cut. */
static int side_cut(side_t *side, size_t bytes)
{
    const size_t size = (side->bytes == 0) ? 0 : side->bytes / side->count;

    if (bytes == side->bytes) {
        return MPI_SUCCESS;
    }
    if (bytes > side->bytes) {
        return MPI_ERR_TRUNCATE;
    }
    if ((side->element != NULL) && (bytes % size != 0)) {
        return MPI_ERR_TYPE;
    }

    side->count = bytes / size;
    side->bytes = bytes;
    return MPI_SUCCESS;
}

/* Describe the target's buffer, as mapped here. @return An error class:
   MPI_ERR_RMA_RANGE if it is not within the window. */
static int side_make_remote(side_t *side, const work_t *work,
                            const ucx_mp_mpi_rma_t *args)
{
    const ucx_mp_mpi_target_t *target = work->target;
    const int rc = side_make(side, NULL, args->target_count,
                             args->target_datatype);
    MPI_Aint at;

    if (rc != MPI_SUCCESS) {
        return rc;
    }

    if (__builtin_mul_overflow(args->target_disp, target->unit, &at) ||
        (args->target_disp < 0)) {
        return MPI_ERR_DISP;
    }
    if ((side->bytes > 0) &&
        ((at > target->size) || (at + side->low < 0) ||
         (side->high > target->size - at))) {
        return MPI_ERR_RMA_RANGE;
    }

    side->address   = target->address + at;
    side->is_target = true;
    return MPI_SUCCESS;
}


/* ------------------------------------------------------------------ copies */

static void work_begin(work_t *work)
{
    if (work->target->ctx != NULL) {
        ucx_mp_mpi_copy_begin_in(&work->copy, work->target->ctx, 0);
    } else {
        ucx_mp_mpi_copy_begin(&work->copy, work->target->address);
    }
}

/* @return An error class. */
static int work_end(work_t *work)
{
    return (ucx_mp_mpi_copy_end(&work->copy) == CUDA_SUCCESS) ? MPI_SUCCESS :
                                                                MPI_ERR_OTHER;
}

/* Leave the context with copies in progress: ucx_mp_mpi_window_wait() waits for
   them. Wait here after an error, or if the window's list of busy contexts is
   full. @return An error class. */
static int work_leave(work_t *work)
{
    ucx_mp_mpi_window_t *window = work->window;
    const CUcontext ctx         = work->copy.ctx;
    bool is_kept                = true;
    CUresult result;
    unsigned i;

    pthread_mutex_lock(&window->lock);
    for (i = 0; (i < window->num_busy) && (window->busy[i] != ctx); ++i) {
    }
    if ((i == UCX_MP_MPI_WINDOW_CONTEXTS) ||
        (work->copy.result != CUDA_SUCCESS)) {
        is_kept = false;
    } else if (i == window->num_busy) {
        window->busy[window->num_busy++] = ctx;
    }
    result = is_kept ? ucx_mp_mpi_copy_leave(&work->copy) :
                       ucx_mp_mpi_copy_end(&work->copy);
    pthread_mutex_unlock(&window->lock);
    return (result == CUDA_SUCCESS) ? MPI_SUCCESS : MPI_ERR_OTHER;
}

/* Make the program's synchronous copies to a side without gaps complete; copies
   in rows and packing kernels do so themselves. Call after work_begin(). */
static void side_sync(const work_t *work, const side_t *side)
{
    if ((side->element == NULL) && (side->bytes > 0)) {
        work->window->api->sync(side->address);
    }
}

/* Return whether a side is in one GPU allocation, and copies of it run in the
   context of `work`. Call after work_begin(). */
static bool is_in_context(const work_t *work, const side_t *side)
{
    ucx_mp_mpi_copy_t copy;
    bool is_same;

    if (!ucx_mp_mpi_gpu_is_one_allocation(side->address + side->low,
                                          side->high - side->low)) {
        return false;
    }

    ucx_mp_mpi_copy_begin(&copy, side->address + side->low);
    is_same = (copy.ctx == work->copy.ctx);
    (void)ucx_mp_mpi_copy_leave(&copy);
    return is_same;
}

/* Make a context current in which the driver takes copies of the side, until
   work_wait(): the memory's own if it refuses those in the target's context.
   @return An error class, of the copies so far. */
static int side_enter(work_t *work, const side_t *side)
{
    const char *first = side->address + side->low;
    int rc            = MPI_SUCCESS;

    if (!side->is_target && !ucx_mp_mpi_gpu_is_reached(first)) {
        rc = work_end(work);
        ucx_mp_mpi_copy_begin(&work->copy, first);
    }
    return rc;
}

/* Submit copies of a side's rows to packed bytes at `staged`, with `is_back`
   from there. @return An error class: MPI_ERR_NO_MEM if the rows cannot be
   found. */
static int side_copy_rows(work_t *work, const side_t *side, char *staged,
                          bool is_back)
{
    ucx_mp_mpi_strided_t one   = {0, side->bytes, side->bytes, 1, 0,
                                  side->bytes, false};
    ucx_mp_mpi_layout_t layout = {.rows = &one, .count = 1};
    const ucx_mp_mpi_strided_t *rows;
    const int rc = side_enter(work, side);
    ucx_mp_mpi_plane_t plane;
    size_t i;

    if (rc != MPI_SUCCESS) {
        return rc;
    }

    if (side->element != NULL) {
        layout = (ucx_mp_mpi_layout_t){0};
        if (ucx_mp_mpi_layout_add(&layout, 0, side->count, side->type, true) !=
            MPI_SUCCESS) {
            ucx_mp_mpi_layout_free(&layout);
            return MPI_ERR_NO_MEM;
        }
    }

    for (i = 0; i < layout.count; ++i) {
        rows = &layout.rows[i];
        plane.program   = side->address + rows->offset;
        plane.staged    = staged + rows->packed;
        plane.stride    = rows->stride;
        plane.step      = rows->step;
        plane.length    = rows->length;
        plane.count     = rows->count;
        plane.is_back   = is_back;
        plane.is_joined = rows->is_joined;
        ucx_mp_mpi_copy_rows(&work->copy, plane);
    }
    if (side->element != NULL) {
        ucx_mp_mpi_layout_free(&layout);
    }
    return MPI_SUCCESS;
}

/* Submit the copy of a side to packed bytes in `room`, with `is_back` from
   there: by the packing kernel if the side has gaps and `is_reached` says that
   kernels can access it, by one copy if it has none and the room is on the GPU,
   else in rows. @return An error class. */
static int side_copy(work_t *work, const side_t *side,
                     const ucx_mp_mpi_block_t *room, bool is_back,
                     bool is_reached)
{
    if ((side->element != NULL) && is_reached &&
        ucx_mp_mpi_block_is_mapped(room) &&
        ucx_mp_mpi_pack_prepare(&work->copy, side->element)) {
        ucx_mp_mpi_pack(&work->copy, side->element, side->address,
                        room->address, side->bytes, is_back);
        return MPI_SUCCESS;
    }

    if ((side->element == NULL) && (room->context != NULL)) {
        ucx_mp_mpi_copy_bytes(&work->copy,
                              is_back ? side->address : room->address,
                              is_back ? room->address : side->address,
                              side->bytes);
        return MPI_SUCCESS;
    }

    return side_copy_rows(work, side, room->address, is_back);
}

/* Wait for the copies so far, and begin the next ones. @return An error
   class. */
static int work_wait(work_t *work)
{
    const int rc = work_end(work);

    work_begin(work);
    return rc;
}

/* Copy a side to packed bytes in host memory, with `is_back` from there, and
   wait. @return An error class. */
static int work_copy(work_t *work, const side_t *side,
                     const ucx_mp_mpi_block_t *room, bool is_back)
{
    const int rc = side_copy(work, side, room, is_back, false);

    return (rc == MPI_SUCCESS) ? work_wait(work) : rc;
}

/* Pack one side and unpack the bytes to the other one, by way of GPU memory if
   copies of `local` can run in the target's context, else of host memory. Wait.
   @return An error class. */
static int move_packed(work_t *work, const side_t *from, const side_t *to,
                       const side_t *local)
{
    const bool is_one      = (local->element == NULL) ?
                                 ucx_mp_mpi_gpu_is_copyable(local->address,
                                                            local->bytes) :
                                 is_in_context(work, local);
    const bool is_direct[] = {!work->target->is_copied,
                              is_one && !work->target->is_copied};
    ucx_mp_mpi_block_t *room = NULL;
    int rc;

    if (is_one) {
        room = ucx_mp_mpi_gpu_block_get(&work->copy, from->bytes);
    }
    if (room == NULL) {
        room = ucx_mp_mpi_pool_get(from->bytes, from->bytes, &work->copy);
    }
    if (room == NULL) {
        return MPI_ERR_NO_MEM;
    }

    rc = side_copy(work, from, room, false, is_direct[from == local]);
    if ((rc == MPI_SUCCESS) && (room->context == NULL)) {
        rc = work_wait(work);
    }
    if (rc == MPI_SUCCESS) {
        rc = side_copy(work, to, room, true, is_direct[to == local]);
    }
    if (rc == MPI_SUCCESS) {
        rc = work_wait(work);
    }
    ucx_mp_mpi_block_put(room);
    return rc;
}

/* Carry out a put or get. A copy between two buffers without gaps stays in
   progress. @return An error class. */
static int move(work_t *work, const ucx_mp_mpi_rma_t *args, side_t *remote)
{
    const bool is_get = (args->kind == UCX_MP_MPI_RMA_GET);
    side_t local;
    side_t *from = is_get ? remote : &local;
    side_t *to   = is_get ? &local : remote;
    int end_rc, rc;

    rc = side_make(&local, args->origin_addr, args->origin_count,
                   args->origin_datatype);
    if (rc == MPI_SUCCESS) {
        rc = side_cut(to, from->bytes);
    }
    if ((rc != MPI_SUCCESS) || (from->bytes == 0)) {
        side_free(&local);
        return rc;
    }

    work_begin(work);
    side_sync(work, &local);
    if ((local.element == NULL) && (remote->element == NULL) &&
        ucx_mp_mpi_gpu_is_copyable(local.address, local.bytes)) {
        ucx_mp_mpi_copy_bytes(&work->copy, to->address, from->address,
                              from->bytes);
        return work_leave(work);
    }

    rc     = move_packed(work, from, to, &local);
    end_rc = work_end(work);
    side_free(&local);
    return (rc == MPI_SUCCESS) ? end_rc : rc;
}


/* ------------------------------------------------------------- accumulates */

typedef struct {
    const ucx_mp_mpi_rma_t *args;
    MPI_Datatype           base;
    size_t                 width; /* packed size of the base type, bytes */
    bool                   is_padded; /* the base type has gaps: a pair */
    bool                   has_origin, has_result;
    side_t                 origin, result;
} change_t;

/* Reduce packed elements of the base type. @return The MPI's result. */
static int change_reduce(const change_t *change, char *target,
                         const char *origin, size_t bytes)
{
    const ucx_mp_mpi_pmpi_t *real = &ucx_mp_mpi_pmpi;
    const MPI_Datatype base       = change->base;
    int rc                        = MPI_SUCCESS;
    char pairs[2][PAIRS * PAIR_MAX] __attribute__((aligned(16)));
    int count, part, position;
    size_t at;

    if (!change->is_padded) {
        return real->Reduce_local(origin, target, (int)(bytes / change->width),
                                  base, change->args->op);
    }

    for (at = 0; (at < bytes) && (rc == MPI_SUCCESS); at += part) {
        count    = (bytes - at) / change->width;
        count    = (count < PAIRS) ? count : PAIRS;
        part     = count * (int)change->width;
        position = 0;
        rc       = real->Unpack(origin + at, part, &position, pairs[0], count,
                                base, real->comm_world);
        position = 0;
        if (rc == MPI_SUCCESS) {
            rc = real->Unpack(target + at, part, &position, pairs[1], count,
                              base, real->comm_world);
        }
        if (rc == MPI_SUCCESS) {
            rc = real->Reduce_local(pairs[0], pairs[1], count, base,
                                    change->args->op);
        }
        position = 0;
        if (rc == MPI_SUCCESS) {
            rc = real->Pack(pairs[1], count, base, target + at, part, &position,
                            real->comm_world);
        }
    }
    return rc;
}

/* Compute new values at `target` in host memory, which holds the old ones. For
   a swap, the values to compare follow those at `origin`. @return An error
   class. */
static int change_apply(const change_t *change, void *target,
                        const void *origin, size_t bytes)
{
    const MPI_Op op = change->args->op;

    if (change->args->kind == UCX_MP_MPI_RMA_SWAP) {
        if (memcmp(target, (const char*)origin + bytes, bytes) == 0) {
            memcpy(target, origin, bytes);
        }
        return MPI_SUCCESS;
    }

    if (op == ucx_mp_mpi_pmpi.replace) {
        memcpy(target, origin, bytes);
        return MPI_SUCCESS;
    }

    return (change_reduce(change, target, origin, bytes) == MPI_SUCCESS) ?
                   MPI_SUCCESS :
                   MPI_ERR_OP;
}

/* Read, change and write part of the target's memory by way of host memory,
   while other ranks' accumulates to the target are excluded. Wait. @return An
   error class. */
static int change_part(work_t *work, const change_t *change,
                       const side_t *target, const side_t *origin,
                       const side_t *result)
{
    const size_t bytes = target->bytes;
    const bool is_swap = (change->args->kind == UCX_MP_MPI_RMA_SWAP);
    ucx_mp_mpi_block_t *old, *new;
    side_t compare;
    int rc, end_rc;

    work_begin(work);
    old = ucx_mp_mpi_pool_get(bytes, bytes, &work->copy);
    new = ucx_mp_mpi_pool_get(2 * bytes, 2 * bytes, &work->copy);
    if ((old == NULL) || (new == NULL)) {
        (void)work_end(work);
        rc = MPI_ERR_NO_MEM;
        goto out;
    }

    rc = MPI_SUCCESS;
    if (change->has_origin) {
        rc = side_copy(work, origin, new, false, false);
    }
    if ((rc == MPI_SUCCESS) && is_swap) {
        compare         = *origin;
        compare.address = (char*)change->args->compare_addr;
        rc = side_copy_rows(work, &compare, new->address + bytes, false);
    }
    if (rc == MPI_SUCCESS) {
        rc = work_wait(work);
    }

    ucx_mp_mpi_window_begin_atomic(work->window, work->rank);
    if (rc == MPI_SUCCESS) {
        rc = work_copy(work, target, old, false);
    }
    if ((rc == MPI_SUCCESS) && change->has_result) {
        rc = work_copy(work, result, old, true);
    }
    if ((rc == MPI_SUCCESS) && change->has_origin) {
        rc = change_apply(change, old->address, new->address, bytes);
    }
    if ((rc == MPI_SUCCESS) && change->has_origin) {
        rc = side_copy(work, target, old, true, false);
    }
    end_rc = work_end(work);
    rc     = (rc == MPI_SUCCESS) ? end_rc : rc;
    ucx_mp_mpi_window_end_atomic(work->window, work->rank);

out:
    ucx_mp_mpi_block_put(old);
    ucx_mp_mpi_block_put(new);
    return rc;
}

/* Change part of the target's memory by a kernel, while other ranks'
   accumulates to the target are excluded. Wait. @return false: nothing is done,
   since no kernel has the operation or reaches the memory, or the part is
   smaller than KERNEL_MIN. true: `*rc_p` is an error class. */
static bool change_on_gpu(work_t *work, const change_t *change,
                          const side_t *target, const side_t *origin,
                          const side_t *result, int *rc_p)
{
    const size_t bytes        = target->bytes;
    ucx_mp_kernels_t *kernels = NULL;
    const char *from          = NULL;
    ucx_mp_mpi_block_t *room  = NULL;
    ucx_mp_type_t type;
    ucx_mp_op_t op;

    if ((bytes < KERNEL_MIN) || work->target->is_copied ||
        !change->has_origin ||
        !ucx_mp_mpi_handles_known(change->args->op, change->base, &op, &type) ||
        ((uintptr_t)target->address % ucx_mp_type_align(type) != 0)) {
        return false;
    }

    work_begin(work);
    side_sync(work, origin);
    if (change->has_result) {
        side_sync(work, result);
    }
    if (ucx_mp_mpi_gpu_is_copyable(origin->address, bytes) &&
        (!change->has_result ||
         ucx_mp_mpi_gpu_is_copyable(result->address, bytes))) {
        kernels = ucx_mp_mpi_reduce_prepare(&work->copy, op, type);
    }
    if ((kernels != NULL) && is_in_context(work, origin) &&
        ((uintptr_t)origin->address % ucx_mp_type_align(type) == 0)) {
        from = origin->address;
    } else if (kernels != NULL) {
        room = ucx_mp_mpi_gpu_block_get(&work->copy, bytes);
        from = (room == NULL) ? NULL : room->address;
    }
    if (from == NULL) {
        (void)work_end(work);
        return false;
    }

    if (room != NULL) {
        ucx_mp_mpi_copy_bytes(&work->copy, room->address, origin->address,
                              bytes);
    }
    *rc_p = work_wait(work);
    if (*rc_p == MPI_SUCCESS) {
        ucx_mp_mpi_window_begin_atomic(work->window, work->rank);
        if (change->has_result) {
            ucx_mp_mpi_copy_bytes(&work->copy, result->address,
                                  target->address, bytes);
        }
        ucx_mp_mpi_copy_reduce(&work->copy, kernels, op, type, target->address,
                               from, bytes / change->width);
        *rc_p = work_wait(work);
        ucx_mp_mpi_window_end_atomic(work->window, work->rank);
    }
    (void)work_end(work);
    ucx_mp_mpi_block_put(room);
    return true;
}

/* Return `bytes` bytes at offset `at` of a side without gaps, as a side. */
static side_t side_part(const side_t *side, size_t at, size_t bytes)
{
    side_t part = *side;

    part.address += at;
    part.bytes    = bytes;
    part.high     = (ptrdiff_t)bytes;
    return part;
}

/* Change the target's memory, in pieces of CHUNK bytes if no side has gaps: MPI
   demands only that each element changes atomically. @return An error class. */
static int change_all(work_t *work, const change_t *change,
                      const side_t *target)
{
    const bool is_cut  = (target->element == NULL) &&
                         (change->origin.element == NULL) &&
                         (change->result.element == NULL);
    const size_t chunk = is_cut ? CHUNK / change->width * change->width :
                                  SIZE_MAX;
    int rc             = MPI_SUCCESS;
    side_t parts[3];
    size_t at, bytes;

    if (!is_cut && (target->bytes / change->width > INT_MAX)) {
        return MPI_ERR_COUNT;
    }
    if (!is_cut) {
        return change_part(work, change, target, &change->origin,
                           &change->result);
    }

    for (at = 0; (at < target->bytes) && (rc == MPI_SUCCESS); at += bytes) {
        bytes    = (target->bytes - at < chunk) ? target->bytes - at : chunk;
        parts[0] = side_part(target, at, bytes);
        parts[1] = side_part(&change->origin, at, bytes);
        parts[2] = side_part(&change->result, at, bytes);
        if (!change_on_gpu(work, change, &parts[0], &parts[1], &parts[2],
                           &rc)) {
            rc = change_part(work, change, &parts[0], &parts[1], &parts[2]);
        }
    }
    return rc;
}

/* Describe a buffer, as many bytes as the target's. @return An error class. */
static int side_make_equal(side_t *side, const void *address, MPI_Count count,
                           MPI_Datatype type, const side_t *target)
{
    const int rc = side_make(side, address, count, type);

    return ((rc == MPI_SUCCESS) && (side->bytes != target->bytes)) ?
                   MPI_ERR_COUNT :
                   rc;
}

/* Carry out an operation that changes the target's elements. @return An error
   class. */
static int accumulate(work_t *work, const ucx_mp_mpi_rma_t *args,
                      side_t *target)
{
    change_t change = {.args = args};
    ucx_mp_mpi_type_sizes_t sizes;
    int rc = MPI_SUCCESS;

    change.has_origin = (args->kind == UCX_MP_MPI_RMA_SWAP) ||
                        (args->op != ucx_mp_mpi_pmpi.no_op);
    change.has_result = (args->kind != UCX_MP_MPI_RMA_ACCUMULATE);
    if (target->bytes == 0) {
        return MPI_SUCCESS;
    }

    change.base = ucx_mp_mpi_layout_base(args->target_datatype);
    if ((change.base == ucx_mp_mpi_pmpi.datatype_null) ||
        (ucx_mp_mpi_layout_type_sizes(change.base, &sizes) != MPI_SUCCESS)) {
        return MPI_ERR_TYPE;
    }

    if ((args->kind != UCX_MP_MPI_RMA_SWAP) &&
        !ucx_mp_mpi_window_reduces(work->window, args->op, change.base,
                                   sizes.extent)) {
        return MPI_ERR_OP;
    }

    change.width     = (size_t)sizes.size;
    change.is_padded = (sizes.size != sizes.extent);
    if (change.is_padded && (sizes.extent > PAIR_MAX)) {
        return MPI_ERR_TYPE;
    }

    if (change.has_origin) {
        rc = side_make_equal(&change.origin, args->origin_addr,
                             args->origin_count, args->origin_datatype,
                             target);
    }
    if ((rc == MPI_SUCCESS) && change.has_result) {
        rc = side_make_equal(&change.result, args->result_addr,
                             args->result_count, args->result_datatype,
                             target);
    }
    if (rc == MPI_SUCCESS) {
        rc = change_all(work, &change, target);
    }
    side_free(&change.origin);
    side_free(&change.result);
    return rc;
}


/* ------------------------------------------------------------------- calls */

/* Carry out a call on a target's mapped memory. @return An error class:
   MPI_ERR_RMA_SYNC outside of an access epoch. */
static int rma(ucx_mp_mpi_window_t *window, const ucx_mp_mpi_rma_t *args)
{
    work_t work = {.window = window, .rank = args->target_rank,
                   .target = &window->targets[args->target_rank]};
    side_t target;
    int rc;

    if (!window->is_fenced && !window->is_locked &&
        (work.target->access == 0)) {
        return MPI_ERR_RMA_SYNC;
    }

    rc = side_make_remote(&target, &work, args);
    if (rc == MPI_SUCCESS) {
        rc = (args->kind <= UCX_MP_MPI_RMA_GET) ?
                     move(&work, args, &target) :
                     accumulate(&work, args, &target);
    }
    side_free(&target);
    return rc;
}

bool ucx_mp_mpi_window_rma(const ucx_mp_mpi_rma_t *args, int *rc_p)
{
    ucx_mp_mpi_window_t *window = ucx_mp_mpi_window_find(args->win);
    const int rank              = args->target_rank;
    int rc;

    if ((window == NULL) || ((rank >= 0) && (rank < window->size) &&
                             !window->targets[rank].is_ours)) {
        return false;
    }

    *rc_p = ucx_mp_mpi_window_check(args);
    if (*rc_p != MPI_SUCCESS) {
        return true;
    }

    rc = (rank == MPI_PROC_NULL) ? MPI_SUCCESS : MPI_ERR_RANK;
    if ((rank >= 0) && (rank < window->size)) {
        rc = rma(window, args);
    }

    if (rc != MPI_SUCCESS) {
        rc = ucx_mp_mpi_raise_win(args->win, rc);
    } else if (args->request != NULL) {
        rc = ucx_mp_mpi_window_wait(window);
        if (rc == MPI_SUCCESS) {
            rc = ucx_mp_mpi_window_request(args->request);
        }
    }
    *rc_p = rc;
    return true;
}
