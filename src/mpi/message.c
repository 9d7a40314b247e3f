/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi/message.h>

#include <limits.h>
#include <string.h>


/* In front of an Open MPI with CUDA, a kernel packs elements with gaps if they
   have at least this many pieces or bytes */
#define MANY_PIECES 4
#define MANY_BYTES  ((MPI_Count)16 << 10)

/* Matched messages of this rank to itself, which MPICH copies with the CPU, by
   a hash of their handle. After one has replaced another in the table, any
   matched message may be such a message. They are then all staged, which is
   always right. */
static struct {
    MPI_Message entries[256];
    bool        has_lost;
} matched;

static MPI_Message *matched_entry(MPI_Message message)
{
    return &matched.entries[(uintptr_t)message % 256];
}

int ucx_mp_mpi_message_peer(const MPI_Message *message)
{
    int rank = MPI_ANY_SOURCE;

    if ((message != NULL) &&
        (__atomic_load_n(&matched.has_lost, __ATOMIC_RELAXED) ||
         (__atomic_load_n(matched_entry(*message), __ATOMIC_RELAXED) ==
          *message))) {
        (void)ucx_mp_mpi_pmpi.Comm_rank(ucx_mp_mpi_pmpi.comm_world, &rank);
    }
    return rank;
}

#ifndef OPEN_MPI
static void matched_put(MPI_Message message, bool is_self)
{
    MPI_Message *entry = matched_entry(message);
    MPI_Message old    = message;

    if (!is_self) {
        (void)__atomic_compare_exchange_n(entry, &old, (MPI_Message)0, false,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED);
        return;
    }

    old = __atomic_exchange_n(entry, message, __ATOMIC_RELAXED);
    if ((old != (MPI_Message)0) && (old != message)) {
        __atomic_store_n(&matched.has_lost, true, __ATOMIC_RELAXED);
    }
}

/* Define a call that has matched a message if `_is_found` is true afterwards.
   The message may be received in the first GPU memory of this process. */
#define MATCHER(_name, _is_found, _words, ...) \
    UCX_MP_MPI_DEFINE(_name, _words, int source, int tag, MPI_Comm comm, \
                      __VA_ARGS__, MPI_Status *status) \
    { \
        MPI_Status own; \
        int rc; \
        \
        ucx_mp_mpi_pmpi_find(); \
        status = ucx_mp_mpi_message_status(status, &own); \
        rc     = ucx_mp_mpi_pmpi._name _words; \
        if (ucx_mp_mpi_pmpi.stages && (rc == MPI_SUCCESS) && (_is_found)) { \
            matched_put(*message, \
                        ucx_mp_mpi_rank_is_self(comm, status->MPI_SOURCE)); \
        } \
        return rc; \
    }

MATCHER(Improbe, *is_found, (source, tag, comm, is_found, message, status),
        int *is_found, MPI_Message *message)
MATCHER(Mprobe, true, (source, tag, comm, message, status),
        MPI_Message *message)
#endif


/* Return the largest count of a derived datatype that an Open MPI with CUDA
   shall send as it is. 0 for absolute addresses in GPU memory (MPI_BOTTOM),
   where Open MPI crashes. */
static MPI_Count limit_of(const ucx_mp_mpi_element_t *element)
{
    const MPI_Count size   = element->layout.size;
    const MPI_Count pieces = element->pieces;
    MPI_Count most;

    if (ucx_mp_mpi_gpu_memory((void*)element->low) != UCX_MP_MPI_MEMORY_HOST) {
        return 0;
    }

    if ((pieces == 1) && (element->extent == size)) {
        return INT64_MAX;
    }

    most = (MANY_PIECES - 1) / pieces;
    most = (most < (MANY_BYTES - 1) / size) ? most : (MANY_BYTES - 1) / size;
    return ((most == 0) && (pieces == 1)) ? 1 : most;
}

bool ucx_mp_mpi_message_find_limit(MPI_Count count, MPI_Datatype datatype)
{
    ucx_mp_mpi_limit_t *limit = ucx_mp_mpi_limit_entry(datatype);
    MPI_Count most            = INT64_MAX;
    ucx_mp_mpi_element_t *element;

    ucx_mp_mpi_pmpi_find();
    if ((!ucx_mp_mpi_pmpi.stages && !ucx_mp_mpi_pmpi.assists) ||
        (datatype == ucx_mp_mpi_pmpi.datatype_null) ||
        (__atomic_load_n(&limit->datatype, __ATOMIC_RELAXED) == datatype)) {
        return false;
    }

    if (ucx_mp_mpi_pmpi.assists && !ucx_mp_mpi_may_be_gpu()) {
        return true;
    }

    if (!ucx_mp_mpi_layout_is_named(datatype) ||
        !ucx_mp_mpi_layout_is_array(datatype)) {
        if (ucx_mp_mpi_pmpi.stages ||
            (ucx_mp_mpi_layout_hold(datatype, &element) != MPI_SUCCESS) ||
            (element == NULL)) {
            return false;
        }
        most = limit_of(element);
        ucx_mp_mpi_layout_release(element);
    }
    __atomic_store_n(&limit->most, most, __ATOMIC_RELAXED);
    __atomic_store_n(&limit->datatype, datatype, __ATOMIC_RELAXED);
    return count <= most;
}

/* Load the kernel for datatypes with gaps while the GPU is likely to be idle: a
   program may keep it busy in all of its messages. */
UCX_MP_MPI_DEFINE(Type_commit, (datatype), MPI_Datatype *datatype)
{
    int rc;

    ucx_mp_mpi_pmpi_find_calls();
    rc = ucx_mp_mpi_pmpi.Type_commit(datatype);
    if ((rc == MPI_SUCCESS) &&
        (ucx_mp_mpi_pmpi.stages || ucx_mp_mpi_pmpi.assists) &&
        ucx_mp_mpi_gpu_is_used() && !ucx_mp_mpi_layout_is_array(*datatype)) {
        ucx_mp_mpi_pack_load();
    }
    return rc;
}

/* A datatype that messages still use is destroyed when they complete. MPICH
   releases its lock while it deletes attributes. It would do so in the middle
   of UCX's progress, and other threads could enter. So delete this library's
   attribute first. */
UCX_MP_MPI_DEFINE(Type_free, (datatype), MPI_Datatype *datatype)
{
    int rc = MPI_SUCCESS;

    ucx_mp_mpi_pmpi_find_calls();
    if (datatype != NULL) {
        rc = ucx_mp_mpi_layout_detach(*datatype);
    }
    return (rc == MPI_SUCCESS) ? ucx_mp_mpi_pmpi.Type_free(datatype) : rc;
}

static MPI_Count count_get(const void *count_p, size_t width)
{
    return (width == sizeof(int)) ? *(const int*)count_p :
                                    *(const MPI_Count*)count_p;
}

/* Make the MPI call send or receive the program's memory as bytes, without a
   copy. @return false, with nothing changed: the bytes are not in a row in one
   GPU allocation, or more than INT_MAX. */
static bool message_is_direct(ucx_mp_mpi_buffer_t *buffer)
{
    const ucx_mp_mpi_element_t *element = buffer->element;

    return (element->layout.count == 1) &&
           (element->layout.rows[0].count == 1) &&
           ((buffer->parts.count == 1) ||
            (element->extent == (ptrdiff_t)element->layout.size)) &&
           (buffer->bytes <= INT_MAX) && buffer->is_single &&
           ucx_mp_mpi_buffer_give_bytes(buffer,
                                        (const char*)buffer->original +
                                                element->low);
}

/* Let the MPI check a datatype in its first message, by a send to
   MPI_PROC_NULL: since messages replace it by bytes, the MPI would not notice
   an uncommitted datatype.
   @return Whether it is valid; otherwise the error is raised, and in `call`. */
static bool
call_checks_type(ucx_mp_mpi_call_t *call, ucx_mp_mpi_element_t *element,
                 MPI_Datatype datatype)
{
    if (!__atomic_load_n(&element->is_accepted, __ATOMIC_RELAXED)) {
        call->rc = UCX_MP_MPI_CHECKED(ucx_mp_mpi_pmpi.Send(
                call, 1, datatype, MPI_PROC_NULL, 0, call->comm));
        __atomic_store_n(&element->is_accepted, call->rc == MPI_SUCCESS,
                         __ATOMIC_RELAXED);
    }
    return call->rc == MPI_SUCCESS;
}

void ucx_mp_mpi_message_buffer(ucx_mp_mpi_call_t *call, unsigned use, int peer,
                               void *pointer_p, void *count_p, size_t width,
                               MPI_Datatype *type_p)
{
    ucx_mp_mpi_buffer_t *buffer = &call->buffers[call->num_buffers];
    const MPI_Count count       = count_get(count_p, width);
    bool is_cpu                 = (call->flags & UCX_MP_MPI_HOST) &&
                                  ucx_mp_mpi_pmpi.stages;
    int rc;

    if ((call->rc != MPI_SUCCESS) || (count <= 0) || (peer == MPI_PROC_NULL) ||
        (*type_p == ucx_mp_mpi_pmpi.datatype_null)) {
        return; /* the MPI reports the error */
    }

#ifndef OPEN_MPI
    is_cpu = is_cpu || ucx_mp_mpi_rank_is_self(call->comm, peer);
#endif
    if (!is_cpu && ucx_mp_mpi_message_needs_no_packing(count, *type_p)) {
        return;
    }

    memset(buffer, 0, sizeof(*buffer));
    memcpy(&buffer->original, pointer_p, sizeof(buffer->original));
    buffer->pointer_p   = pointer_p;
    buffer->use         = use;
    buffer->parts       = (ucx_mp_mpi_parts_t){.count  = count,
                                               .type_p = type_p};
    buffer->count_p     = count_p;
    buffer->count_width = width;
    buffer->is_cpu      = is_cpu;

    rc = ucx_mp_mpi_layout_hold(*type_p, &buffer->element);
    if (rc != MPI_SUCCESS) {
        ucx_mp_mpi_call_lose(call, buffer, rc,
                             "a datatype with 2 GiB of data or more cannot be "
                             "described");
        return;
    }

    if (buffer->element == NULL) {
        return; /* it has no bytes */
    }

    buffer->bytes = (size_t)count * buffer->element->layout.size;
    if ((ucx_mp_mpi_buffer_locate(buffer) == 0) ||
        !call_checks_type(call, buffer->element, *type_p) ||
        (!is_cpu && message_is_direct(buffer))) {
        ucx_mp_mpi_layout_free(&buffer->layout);
        ucx_mp_mpi_layout_release(buffer->element);
        buffer->element = NULL;
        return;
    }
    ++call->num_buffers;
}

void ucx_mp_mpi_message_copied(ucx_mp_mpi_call_t *call, unsigned use,
                               void *pointer_p, void *count_p, size_t width,
                               MPI_Datatype *type_p)
{
    if (ucx_mp_mpi_pmpi.stages) {
        ucx_mp_mpi_call_buffer(call, use, pointer_p, count_get(count_p, width),
                               type_p);
    } else {
        ucx_mp_mpi_message_buffer(call, use, MPI_ANY_SOURCE, pointer_p, count_p,
                                  width, type_p);
    }
}

/* A staged copy that was read before is written back completely */
size_t ucx_mp_mpi_message_partial(const ucx_mp_mpi_call_t *call)
{
    unsigned i;

    for (i = 0; i < call->num_buffers; ++i) {
        if ((call->buffers[i].element != NULL) &&
            (call->buffers[i].use & UCX_MP_MPI_WRITE) &&
            !(call->buffers[i].use & UCX_MP_MPI_READ)) {
            return call->buffers[i].bytes;
        }
    }
    return 0;
}

void ucx_mp_mpi_message_arrived(ucx_mp_mpi_call_t *call,
                                const MPI_Status *status)
{
    const size_t size = ucx_mp_mpi_message_partial(call);
    MPI_Count bytes   = 0;
    int is_cancelled  = 0;

    if (size == 0) {
        return;
    }

    /* After too long a message the MPI may have written nothing. The status
       from MPI_Request_get_status() may not contain this error. */
    if ((ucx_mp_mpi_pmpi.Test_cancelled(status, &is_cancelled) !=
         MPI_SUCCESS) || is_cancelled ||
        (ucx_mp_mpi_pmpi.Get_elements_x(status, ucx_mp_mpi_pmpi.byte, &bytes) !=
         MPI_SUCCESS) || (bytes < 0) || ((size_t)bytes > size)) {
        bytes = 0;
    }
    call->arrived = bytes;
}
