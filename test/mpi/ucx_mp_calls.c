/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * MPI's calls on GPU memory besides blocking collectives and messages: packing,
 * files and nonblocking calls work. All others fail with an MPI error that
 * names them, passed to the error handler of their object.
 */
#include "gpu.h"
#include "util.h"

#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 1000 /* ints */

/* Open MPI 5 reports MPI 3 */
#if (MPI_VERSION >= 4) || \
        (defined(OMPI_MAJOR_VERSION) && (OMPI_MAJOR_VERSION >= 5))
#define HAS_MPI_4 1
#endif

static int world_rank, world_size, calls_done, calls_begun;
static int calls_refused, calls_wrong;
static int *gpu, *other; /* of world_size * COUNT ints, in GPU memory */
static int host[COUNT], back[COUNT];
static MPI_Errhandler handled_comm, handled_win, handled_file;
static int handled; /* calls of an error handler */


static void on_comm_error(MPI_Comm *comm, int *code, ...)
{
    handled += (*comm != MPI_COMM_NULL);
}

static void on_win_error(MPI_Win *win, int *code, ...)
{
    handled += (*win != MPI_WIN_NULL);
}

static void on_file_error(MPI_File *file, int *code, ...)
{
    handled += (*file != MPI_FILE_NULL);
}

static void wrong(const char *name, const char *what)
{
    ucx_mp_report("%s: %s", name, what);
    ++calls_wrong;
}

static void refused(const char *name, int rc)
{
    char text[MPI_MAX_ERROR_STRING] = "it succeeds";
    int length;

    if (rc != MPI_SUCCESS) {
        MPI_Error_string(rc, text, &length);
    }
    if ((strstr(text, name) == NULL) || (strstr(text, "GPU memory") == NULL)) {
        wrong(name, text);
    } else if (handled != 1) {
        wrong(name, "no error handler was called");
    }
    handled = 0;
    ++calls_refused;
}

/* Complete a call that has begun an operation. */
static void begun(const char *name, int rc, MPI_Request *request)
{
    if ((rc != MPI_SUCCESS) ||
        (MPI_Wait(request, MPI_STATUS_IGNORE) != MPI_SUCCESS) || handled) {
        wrong(name, "it fails");
    }
    handled = 0;
    ++calls_begun;
}

static void freed(const char *name, MPI_Request *request)
{
    if ((MPI_Request_free(request) != MPI_SUCCESS) ||
        (*request != MPI_REQUEST_NULL)) {
        wrong(name, "the request stays");
    }
}

#ifdef HAS_MPI_4
static void made(const char *name, int rc, MPI_Request *request)
{
    rc = (rc == MPI_SUCCESS) ? MPI_Start(request) : rc;
    begun(name, rc, request);
    freed(name, request);
}
#endif

#define REFUSED(_call, ...) refused(#_call, _call(__VA_ARGS__))

static void fill(int *buffer, int seed)
{
    int i;

    for (i = 0; i < COUNT; ++i) {
        host[i] = seed * COUNT + i;
    }
    ucx_mp_mem_write(UCX_MP_MEM_DEVICE, buffer, host, sizeof(host));
}

/* Check for COUNT ints in GPU memory. */
static void done(const char *name, int rc, const int *buffer, int seed)
{
    char text[MPI_MAX_ERROR_STRING];
    int length, i;

    ++calls_done;
    if (rc != MPI_SUCCESS) {
        MPI_Error_string(rc, text, &length);
        wrong(name, text);
        return;
    }

    ucx_mp_mem_read(UCX_MP_MEM_DEVICE, back, buffer, sizeof(back));
    for (i = 0; i < COUNT; ++i) {
        if (back[i] != seed * COUNT + i) {
            wrong(name, "other bytes");
            return;
        }
    }
}

#define ZERO() \
    ucx_mp_mem_set(UCX_MP_MEM_DEVICE, other, 0, COUNT * sizeof(int))

/* Pack and unpack GPU memory, also with packed bytes in GPU memory. */
static void try_packing(void)
{
    static const char external[] = "external32";
    int *packed       = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, 2 * sizeof(host));
    MPI_Aint at       = 0;
    int position      = 4, rc;

    fill(gpu, 1);
    ZERO();
    rc = MPI_Pack(gpu, COUNT, MPI_INT, packed, 2 * sizeof(host), &position,
                  MPI_COMM_WORLD);
    if (position != 4 + (int)sizeof(host)) {
        wrong("MPI_Pack", "the position is another one");
    }
    position = 4;
    if (rc == MPI_SUCCESS) {
        rc = MPI_Unpack(packed, 2 * sizeof(host), &position, other, COUNT,
                        MPI_INT, MPI_COMM_WORLD);
    }
    done("MPI_Pack and MPI_Unpack", rc, other, 1);

    fill(gpu, 2);
    ZERO();
    rc = MPI_Pack_external(external, gpu, COUNT, MPI_INT, packed,
                           2 * sizeof(host), &at);
    at = 0;
    if (rc == MPI_SUCCESS) {
        rc = MPI_Unpack_external(external, packed, 2 * sizeof(host), &at, other,
                                 COUNT, MPI_INT);
    }
    done("MPI_Pack_external and MPI_Unpack_external", rc, other, 2);
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, packed);
}

static void try_files(const char *folder)
{
    const MPI_Offset own = (MPI_Offset)world_rank * sizeof(host);
    MPI_Request request;
    char name[512];
    MPI_File file;
    int rc;

    snprintf(name, sizeof(name), "%s/ucx_mp_calls.%d", folder, world_size);
    rc = MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR |
                       MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file);
    if (rc != MPI_SUCCESS) {
        wrong("MPI_File_open", name);
        return;
    }

    MPI_File_set_errhandler(file, handled_file);
    fill(gpu, world_rank + 3);
    ZERO();
    rc = MPI_File_write_at_all(file, own, gpu, COUNT, MPI_INT,
                               MPI_STATUS_IGNORE);
    if (rc == MPI_SUCCESS) {
        rc = MPI_File_read_at(file, own, other, COUNT, MPI_INT,
                              MPI_STATUS_IGNORE);
    }
    done("MPI_File_write_at_all and MPI_File_read_at", rc, other,
         world_rank + 3);

    ZERO();
    MPI_File_seek(file, own, MPI_SEEK_SET);
    rc = MPI_File_write(file, gpu, COUNT, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_seek(file, own, MPI_SEEK_SET);
    if (rc == MPI_SUCCESS) {
        rc = MPI_File_read_all(file, other, COUNT, MPI_INT, MPI_STATUS_IGNORE);
    }
    done("MPI_File_write and MPI_File_read_all", rc, other, world_rank + 3);

    fill(gpu, world_rank + 4);
    ZERO();
    rc = MPI_File_iwrite_at(file, own, gpu, COUNT, MPI_INT, &request);
    begun("MPI_File_iwrite_at", rc, &request);
    MPI_File_seek(file, own, MPI_SEEK_SET);
    rc = MPI_File_iread(file, other, COUNT, MPI_INT, &request);
    begun("MPI_File_iread", rc, &request);
    done("MPI_File_iwrite_at and MPI_File_iread", rc, other, world_rank + 4);

    fill(gpu, world_rank + 5);
    ZERO();
    rc = MPI_File_write_at_all_begin(file, own, gpu, COUNT, MPI_INT);
    if (rc == MPI_SUCCESS) {
        rc = MPI_File_write_at_all_end(file, gpu, MPI_STATUS_IGNORE);
    }
    MPI_File_seek(file, own, MPI_SEEK_SET);
    if (rc == MPI_SUCCESS) {
        rc = MPI_File_read_all_begin(file, other, COUNT, MPI_INT);
    }
    if (rc == MPI_SUCCESS) {
        rc = MPI_File_read_all_end(file, other, MPI_STATUS_IGNORE);
    }
    done("MPI_File_write_at_all_begin and MPI_File_read_all_begin", rc, other,
         world_rank + 5);
    MPI_File_close(&file);
}

/* Put, get and change a window in host memory with GPU buffers. */
static void try_windows(void)
{
    const int me      = world_rank;
    const int one     = COUNT * (int)sizeof(int);
    int local[COUNT]  = {0};
    MPI_Request request;
    MPI_Win win;
    int rc;

    MPI_Win_create(local, sizeof(local), sizeof(int), MPI_INFO_NULL,
                   MPI_COMM_WORLD, &win);
    MPI_Win_set_errhandler(win, handled_win);
    MPI_Win_lock_all(0, win);

#define ARGS(_buffer) _buffer, COUNT, MPI_INT
#define CHANGED(_name, _seed, ...) \
    rc = __VA_ARGS__; \
    MPI_Win_flush(me, win); \
    done(_name, rc, other, _seed)

    fill(gpu, 3);
    rc = MPI_Put(ARGS(gpu), me, 0, COUNT, MPI_INT, win);
    MPI_Win_flush(me, win);
    ZERO();
    if (rc == MPI_SUCCESS) {
        CHANGED("MPI_Put and MPI_Get", 3,
                MPI_Get(ARGS(other), me, 0, COUNT, MPI_INT, win));
    }
    CHANGED("MPI_Get_accumulate", 3,
            MPI_Get_accumulate(ARGS(gpu), ARGS(other), me, 0, COUNT, MPI_INT,
                               MPI_MAX, win));
    fill(gpu, 4);
    rc = MPI_Accumulate(ARGS(gpu), me, 0, COUNT, MPI_INT, MPI_REPLACE, win);
    MPI_Win_flush(me, win);
    if (rc == MPI_SUCCESS) {
        rc = MPI_Rget(ARGS(other), me, 0, COUNT, MPI_INT, win, &request);
        begun("MPI_Rget", rc, &request);
        done("MPI_Accumulate and MPI_Rget", rc, other, 4);
    }
    fill(gpu, 5);
    begun("MPI_Rput", MPI_Rput(ARGS(gpu), me, 0, COUNT, MPI_INT, win, &request),
          &request);
    MPI_Win_flush(me, win);
    begun("MPI_Rget_accumulate",
          MPI_Rget_accumulate(ARGS(gpu), ARGS(other), me, 0, COUNT, MPI_INT,
                              MPI_MIN, win, &request), &request);
    begun("MPI_Raccumulate",
          MPI_Raccumulate(ARGS(gpu), me, 0, COUNT, MPI_INT, MPI_MAX, win,
                          &request), &request);
    MPI_Win_flush(me, win);
    done("MPI_Rput and MPI_Rget_accumulate", MPI_SUCCESS, other, 5);

    /* the first of the numbers: no change, then the same number again */
    CHANGED("MPI_Fetch_and_op", 5,
            MPI_Fetch_and_op(gpu, other, MPI_INT, me, 0, MPI_MAX, win));
    CHANGED("MPI_Compare_and_swap", 5,
            MPI_Compare_and_swap(gpu, gpu, other, MPI_INT, me, 0, win));

    handled = 0;
    fill(other, 6);
    (void)MPI_Get(ARGS(other), world_size, 0, COUNT, MPI_INT, win);
    MPI_Win_flush_all(win);
    if (handled != 1) {
        wrong("the errors of a wrong MPI_Get", "are more or less than one");
    }
    handled = 0;
    done("MPI_Get of no rank", MPI_SUCCESS, other, 6);
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);

    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_set_errhandler(win, handled_win);
    REFUSED(MPI_Win_attach, win, gpu, one);
    MPI_Win_free(&win);
}

/* The error handler of a window in GPU memory is called once for each wrong
   call. MPICH 5 then returns MPI_SUCCESS. */
static void try_window_mistakes(void)
{
    MPI_Win win;

    MPI_Win_create(gpu, COUNT * sizeof(int), sizeof(int), MPI_INFO_NULL,
                   MPI_COMM_WORLD, &win);
    MPI_Win_set_errhandler(win, handled_win);
    MPI_Win_fence(0, win);
    handled = 0;

    (void)MPI_Put(other, -1, MPI_INT, world_rank, COUNT, 1, MPI_INT, win);
    if (handled != 1) {
        wrong("the errors of a wrong MPI_Put", "are more or less than one");
    }
    handled = 0;

    (void)MPI_Accumulate(other, 1, MPI_INT, world_rank, 0, 1, MPI_INT,
                         MPI_OP_NULL, win);
    if (handled != 1) {
        wrong("the errors of a wrong MPI_Accumulate",
              "are more or less than one");
    }
    handled = 0;

    MPI_Win_fence(0, win);
    MPI_Win_free(&win);
}

static int class_of(int rc)
{
    int error_class = MPI_SUCCESS;

    if (rc != MPI_SUCCESS) {
        MPI_Error_class(rc, &error_class);
    }
    handled = 0;
    return error_class;
}

/* Compare error classes on GPU memory with the same MPI's on host memory. Data
   sent by a rank without an error stays in a communicator of its own. */
static void try_mistakes(void)
{
    int *in = calloc(world_size, sizeof(host));
    int *out = calloc(world_size, sizeof(host));
    int counts[64], displs[64], bytes[64], here, there, i;
    MPI_Datatype types[64];
    MPI_Comm all;

    for (i = 0; i < 64; ++i) {
        counts[i] = COUNT;
        displs[i] = i * COUNT;
        bytes[i]  = displs[i] * (int)sizeof(int);
        types[i]  = MPI_INT;
    }

#define ALIKE(_comm, _call) \
    { \
        MPI_Comm comm; \
        int *from = in, *into = out; \
        \
        (void)into; \
        MPI_Comm_dup(_comm, &comm); \
        here = class_of(_call); \
        MPI_Comm_free(&comm); \
        from  = gpu; \
        into  = other; \
        MPI_Comm_dup(_comm, &comm); \
        there = class_of(_call); \
        MPI_Comm_free(&comm); \
        ++calls_done; \
        if (here != there) { \
            fprintf(stderr, "class %d on host, %d on GPU memory\n", here, \
                    there); \
            wrong(#_call " on " #_comm, "another class of error"); \
        } \
    }
#define TO    into
#define SEND  from, count, type
#define RECV  TO, count, type
#define SENDV from, counts, displs, type
#define RECVV TO, counts, displs, type
#define FROM_ALL(_comm, _count, _type) \
    { \
        const int count   = _count; \
        MPI_Datatype type = _type; \
        \
        counts[0] = count; \
        types[0]  = type; \
        ALIKE(_comm, MPI_Allreduce(from, TO, count, type, MPI_SUM, comm)) \
        ALIKE(_comm, MPI_Scan(from, TO, count, type, MPI_SUM, comm)) \
        ALIKE(_comm, MPI_Exscan(from, TO, count, type, MPI_SUM, comm)) \
        ALIKE(_comm, MPI_Reduce_scatter(from, TO, counts, type, MPI_SUM, \
                                        comm)) \
        ALIKE(_comm, MPI_Reduce_scatter_block(from, TO, count, type, MPI_SUM, \
                                              comm)) \
        ALIKE(_comm, MPI_Allgather(SEND, RECV, comm)) \
        ALIKE(_comm, MPI_Allgatherv(SEND, RECVV, comm)) \
        ALIKE(_comm, MPI_Alltoall(SEND, RECV, comm)) \
        ALIKE(_comm, MPI_Alltoallv(SENDV, RECVV, comm)) \
        ALIKE(_comm, MPI_Alltoallw(from, counts, bytes, types, TO, counts, \
                                   bytes, types, comm)) \
    }
#define TO_ROOT(_comm, _count, _type, _root) \
    { \
        const int count   = _count; \
        MPI_Datatype type = _type; \
        \
        counts[0] = count; \
        ALIKE(_comm, MPI_Reduce(from, TO, count, type, MPI_SUM, _root, comm)) \
        ALIKE(_comm, MPI_Gather(SEND, RECV, _root, comm)) \
        ALIKE(_comm, MPI_Gatherv(SEND, RECVV, _root, comm)) \
    }
#define FROM_ROOT(_comm, _count, _type, _root) \
    { \
        const int count   = _count; \
        MPI_Datatype type = _type; \
        \
        counts[0] = count; \
        ALIKE(_comm, MPI_Scatter(SEND, RECV, _root, comm)) \
        ALIKE(_comm, MPI_Scatterv(SENDV, RECV, _root, comm)) \
    }
#define EACH(_comm, _count, _type, _root) \
    TO_ROOT(_comm, _count, _type, _root) \
    FROM_ROOT(_comm, _count, _type, _root) \
    ALIKE(_comm, MPI_Bcast(from, _count, _type, _root, comm))
    MPI_Comm_dup(MPI_COMM_WORLD, &all);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, handled_comm);
#ifdef OPEN_MPI /* MPICH crashes on these with host memory */
    FROM_ALL(all, COUNT, MPI_DATATYPE_NULL)
    EACH(all, COUNT, MPI_DATATYPE_NULL, 0)
    FROM_ALL(all, -1, MPI_INT)
    EACH(all, -1, MPI_INT, 0)
#endif
    EACH(all, COUNT, MPI_INT, 99)
    EACH(all, COUNT, MPI_INT, -7)

    /* One pointer for two buffers: a receiver would wait for data of a rank
       with an error, in MPICH of any rank */
#undef TO
#define TO from
#ifdef OPEN_MPI
    FROM_ALL(all, COUNT, MPI_INT)
    TO_ROOT(all, COUNT, MPI_INT, 0)
#endif
    FROM_ALL(MPI_COMM_SELF, COUNT, MPI_INT)
    TO_ROOT(MPI_COMM_SELF, COUNT, MPI_INT, 0)
    FROM_ROOT(MPI_COMM_SELF, COUNT, MPI_INT, 0)
    MPI_Comm_free(&all);
    free(in);
    free(out);
}

/* Send the filled buffer to this rank itself, and receive it in `back`. */
static void received(const char *name, int rc, int seed)
{
    int got[COUNT];

    if (rc == MPI_SUCCESS) {
        rc = MPI_Recv(got, COUNT, MPI_INT, world_rank, 5, MPI_COMM_WORLD,
                      MPI_STATUS_IGNORE);
    }
    ucx_mp_mem_write(UCX_MP_MEM_DEVICE, other, got, sizeof(got));
    done(name, rc, other, seed);
}

/* Send by MPI_Bsend(), and overwrite the buffer at once. */
static void send_overwritten(const char *what, int value)
{
    int rc;

    fill(gpu, value);
    rc = MPI_Bsend(gpu, COUNT, MPI_INT, world_rank, 5, MPI_COMM_WORLD);
    fill(gpu, value + 1);
    received(what, rc, value);
}

/* Check that the attached memory was returned. */
static void detached_check(const char *name, int is_same)
{
    if (!is_same) {
        wrong(name, "other memory than attached");
    }
}

/* Buffered sends by way of the attached memory: the program may reuse its
   buffer at once, or when the request completes. */
static void send_buffered(void *space, int space_size)
{
    MPI_Request request;
    void *detached = NULL;
    int size       = 0, i, rc;

    rc = MPI_Buffer_attach(space, space_size);
    if (rc != MPI_SUCCESS) {
        wrong("MPI_Buffer_attach", "memory is refused");
        return;
    }

    send_overwritten("MPI_Bsend", 6);

    rc = MPI_Ibsend(gpu, COUNT, MPI_INT, world_rank, 5, MPI_COMM_WORLD,
                    &request);
    begun("MPI_Ibsend", rc, &request);
    fill(gpu, 8);
    received("MPI_Ibsend", rc, 7);

    rc = MPI_Bsend_init(gpu, COUNT, MPI_INT, world_rank, 5, MPI_COMM_WORLD,
                        &request);
    for (i = 0; i < 2; ++i) {
        fill(gpu, 9 + i);
        rc = (rc == MPI_SUCCESS) ? MPI_Start(&request) : rc;
        rc = (rc == MPI_SUCCESS) ? MPI_Wait(&request, MPI_STATUS_IGNORE) : rc;
        received("MPI_Bsend_init", rc, 9 + i);
    }
    freed("MPI_Bsend_init", &request);
    MPI_Buffer_detach(&detached, &size);
    detached_check("MPI_Buffer_detach",
                   (detached == space) && (size == space_size));
}

#ifdef MPI_BUFFER_AUTOMATIC /* MPI 4.1 */
/* Send by way of memory that only this communicator uses. */
static void send_buffered_world(void *space, int space_size)
{
    void *detached = NULL;
    int size       = 0, rc;

    rc = MPI_Comm_attach_buffer(MPI_COMM_WORLD, space, space_size);
    if (rc != MPI_SUCCESS) {
        wrong("MPI_Comm_attach_buffer", "memory is refused");
        return;
    }

    send_overwritten("MPI_Bsend after MPI_Comm_attach_buffer", 11);
    MPI_Comm_detach_buffer(MPI_COMM_WORLD, &detached, &size);
    detached_check("MPI_Comm_detach_buffer",
                   (detached == space) && (size == space_size));
}
#endif

static void try_buffered(void)
{
    static char space[4 * sizeof(host) + 4 * MPI_BSEND_OVERHEAD];
    void *const gpu_space = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, sizeof(space));

    send_buffered(space, sizeof(space));
    send_buffered(gpu_space, sizeof(space));
#ifdef MPI_BUFFER_AUTOMATIC
    send_buffered_world(gpu_space, sizeof(space));
#endif
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, gpu_space);
}

#if MPI_VERSION < 5
/* Begin to receive a message of this rank that has arrived. Open MPI's own
   matched receives crash if the message is too long. */
static int receive_arrived(int *buffer, MPI_Datatype type, MPI_Request *request)
{
#ifdef OPEN_MPI
    MPI_Probe(world_rank, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return MPI_Irecv(buffer, 1, type, world_rank, 5, MPI_COMM_WORLD, request);
#else
    MPI_Message message;

    MPI_Mprobe(world_rank, 5, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
    return MPI_Imrecv(buffer, 1, type, &message, request);
#endif
}

/* A message that is too long, and has arrived before the receive, leaves the
   buffer as it is. Only the call that completes the request reports it. */
static void try_truncated(void)
{
    int rc = MPI_SUCCESS;
    MPI_Request send, receive;
    MPI_Datatype halves;
    int i;

    MPI_Type_vector(2, 1, 2, MPI_INT, &halves);
    MPI_Type_commit(&halves);
    fill(gpu, 25);
    fill(other, 26);
    for (i = 0; i < 2; ++i) {
        MPI_Isend(gpu, 2 + 2 * i, MPI_INT, world_rank, 5, MPI_COMM_WORLD,
                  &send);
        rc = receive_arrived((i == 0) ? other + COUNT : other, halves,
                             &receive);
        if ((rc != MPI_SUCCESS) || handled) {
            wrong("MPI_Irecv", "it fails before its request is complete");
        }
        rc = MPI_Wait(&receive, MPI_STATUS_IGNORE);
        MPI_Wait(&send, MPI_STATUS_IGNORE);
    }
    if ((rc == MPI_SUCCESS) || (handled != 1)) {
        wrong("MPI_Wait", "too long a message is not an error once");
    }
    handled = 0;
    done("MPI_Irecv of too long a message", MPI_SUCCESS, other, 26);
    MPI_Type_free(&halves);
}
#endif

/* Match many messages to oneself before any is received. */
static void try_matched(void)
{
    static MPI_Request requests[COUNT];
    static MPI_Message messages[COUNT];
    int rc = MPI_SUCCESS;
    int i;

    fill(gpu, 23);
    ZERO();
    for (i = 0; i < COUNT; ++i) {
        MPI_Isend(&host[i], 1, MPI_INT, 0, i, MPI_COMM_SELF, &requests[i]);
    }
    for (i = 0; i < COUNT; ++i) {
        MPI_Mprobe(0, i, MPI_COMM_SELF, &messages[i], MPI_STATUS_IGNORE);
    }
    for (i = 0; (i < COUNT) && (rc == MPI_SUCCESS); ++i) {
        rc = MPI_Mrecv(&other[i], 1, MPI_INT, &messages[i], MPI_STATUS_IGNORE);
    }
    MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE);
    done("MPI_Mrecv of many", rc, other, 23);

#ifndef OPEN_MPI /* Open MPI ends the program */
    /* MPICH 5 returns MPI_SUCCESS after a handler by the standard ABI */
    handled = 0;
    if ((MPI_Mrecv(other, 1, MPI_INT, NULL, MPI_STATUS_IGNORE) ==
         MPI_SUCCESS) &&
        (handled == 0)) {
        wrong("MPI_Mrecv", "no message is received");
    }
    handled = 0;
#endif
}

/* MPICH moves messages to oneself by the processor, Open MPI by UCX */
static void try_self(void)
{
#define SELF(_buffer) \
    _buffer, COUNT, MPI_INT, world_rank, 5, MPI_COMM_WORLD
    MPI_Request request, ends[2];
    MPI_Status statuses[2];
    MPI_Message message;
#ifdef HAS_MPI_4
    MPI_Datatype parted;
#endif
    int i, rc;

    fill(gpu, 12);
    ZERO();
    MPI_Isend(SELF(gpu), &request);
    rc = MPI_Recv(SELF(other), MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    done("MPI_Recv", rc, other, 12);

    MPI_Recv_init(SELF(other), &ends[0]);
    rc = MPI_Send_init(SELF(gpu), &ends[1]);
    for (i = 0; i < 2; ++i) {
        fill(gpu, 13 + i);
        ZERO();
        rc = (rc == MPI_SUCCESS) ? MPI_Startall(2, ends) : rc;
        rc = (rc == MPI_SUCCESS) ? MPI_Waitall(2, ends, statuses) : rc;
        done("MPI_Send_init", rc, other, 13 + i);
    }
    MPI_Request_free(&ends[0]);
    MPI_Request_free(&ends[1]);

    fill(gpu, 15);
    ZERO();
    MPI_Irecv(SELF(other), &request);
    rc = MPI_Ssend(SELF(gpu));
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    done("MPI_Ssend", rc, other, 15);

    for (i = 0; i < 2; ++i) { /* from GPU memory, and from host memory */
        fill(gpu, 16 + i);
        ZERO();
        MPI_Irecv(other, COUNT, MPI_INT, MPI_ANY_SOURCE, 5, MPI_COMM_SELF,
                  &request);
        rc = MPI_Send((i == 0) ? gpu : host, COUNT, MPI_INT, 0, 5,
                      MPI_COMM_SELF);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        done("MPI_Irecv from any source", rc, other, 16 + i);

        fill(gpu, 18 + i);
        ZERO();
        MPI_Isend((i == 0) ? gpu : host, COUNT, MPI_INT, 0, 5, MPI_COMM_SELF,
                  &request);
        MPI_Mprobe(MPI_ANY_SOURCE, 5, MPI_COMM_SELF, &message,
                   MPI_STATUS_IGNORE);
        rc = MPI_Mrecv(other, COUNT, MPI_INT, &message, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        done("MPI_Mrecv", rc, other, 18 + i);
    }

#ifdef HAS_MPI_4
#define PARTS(_peer) gpu, 2, 1, parted, _peer, 5, MPI_COMM_WORLD, \
                     MPI_INFO_NULL, &request
    MPI_Type_vector(2, 1, 2, MPI_INT, &parted);
    MPI_Type_commit(&parted);
    REFUSED(MPI_Psend_init, PARTS(world_rank));
    REFUSED(MPI_Precv_init, PARTS(world_rank));
#ifdef OPEN_MPI /* MPICH crashes in MPI_Start */
    made("MPI_Psend_init", MPI_Psend_init(PARTS(MPI_PROC_NULL)), &request);
    made("MPI_Precv_init", MPI_Precv_init(PARTS(MPI_PROC_NULL)), &request);
#endif
    MPI_Type_free(&parted);
#endif
}

#ifdef HAS_MPI_4
static void try_exchange(void)
{
    MPI_Request request;

    fill(gpu, 11);
    ZERO();
    begun("MPI_Isendrecv",
          MPI_Isendrecv(gpu, COUNT, MPI_INT, world_rank, 5, other, COUNT,
                        MPI_INT, world_rank, 5, MPI_COMM_WORLD, &request),
          &request);
    done("MPI_Isendrecv", MPI_SUCCESS, other, 11);
    begun("MPI_Isendrecv_replace",
          MPI_Isendrecv_replace(gpu, COUNT, MPI_INT, world_rank, 5, world_rank,
                                5, MPI_COMM_WORLD, &request),
          &request);
    done("MPI_Isendrecv_replace", MPI_SUCCESS, gpu, 11);
}

/* Free the request of an exchange before rank 1 begins its part, and make other
   calls until the data has arrived. */
static void free_exchange(const char *name, int *target, int count,
                          MPI_Datatype type)
{
    const double end    = ucx_mp_time() + 10;
    MPI_Request request = MPI_REQUEST_NULL;
    int token           = 0, last = 0, rc = MPI_SUCCESS, flag;

    fill(gpu, 20 + world_rank);
    if (world_rank == 1) {
        MPI_Recv(&token, 1, MPI_INT, 0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        rc = MPI_Sendrecv(gpu, count, type, 0, 5, other, count, type, 0, 5,
                          MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        done(name, rc, other, 20);
        return;
    }

    rc = (target == gpu) ?
                 MPI_Isendrecv_replace(gpu, count, type, 1, 5, 1, 5,
                                       MPI_COMM_WORLD, &request) :
                 MPI_Isendrecv(gpu, count, type, 1, 5, target, count, type, 1,
                               5, MPI_COMM_WORLD, &request);
    freed(name, &request);
    MPI_Send(&token, 1, MPI_INT, 1, 6, MPI_COMM_WORLD);
    while ((last != 22 * COUNT - 1) && (ucx_mp_time() < end)) {
        MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
        ucx_mp_mem_read(UCX_MP_MEM_DEVICE, &last, target + COUNT - 1,
                        sizeof(last));
    }
    done(name, rc, target, 21);
}

/* MPICH's own MPI_Isendrecv_replace fails with derived datatypes: it sends the
   halves in the other order, and MPICH 4.0 then aborts in MPI_Type_free. */
static void try_freed_exchange(void)
{
    static const int lengths[] = {COUNT / 2, COUNT / 2};
    static const int displs[]  = {COUNT / 2, 0};
    MPI_Datatype halves;

    if (world_size == 2) {
        MPI_Type_indexed(2, lengths, displs, MPI_INT, &halves);
        MPI_Type_commit(&halves);
        ZERO();
        free_exchange("MPI_Isendrecv", other, 1, halves);
        ZERO();
        free_exchange("MPI_Isendrecv_replace", gpu, COUNT, MPI_INT);
        MPI_Type_free(&halves);
    }
}
#endif

/* Free the request of a receive. Each `last` of these calls waits for a message
   that rank 1 sends later: the data has arrived, too. */
static void free_receive(const char *last, MPI_Datatype halves)
{
    MPI_Request request;
    int token = 0, rc = MPI_SUCCESS;

    fill(gpu, 30 + world_rank);
    ZERO();
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_rank == 1) {
        MPI_Send(gpu, 1, halves, 0, 5, MPI_COMM_WORLD);
        MPI_Send(&token, 1, MPI_INT, 0, 6, MPI_COMM_WORLD);
    } else {
        rc = MPI_Irecv(other, 1, halves, 1, 5, MPI_COMM_WORLD, &request);
        freed(last, &request);
        rc = (rc == MPI_SUCCESS) ?
                     MPI_Irecv(&token, 1, MPI_INT, 1, 6, MPI_COMM_WORLD,
                               &request) :
                     rc;
    }

    if (strcmp(last, "MPI_Barrier") == 0) {
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (strcmp(last, "MPI_Sendrecv") == 0) {
        MPI_Sendrecv(&token, 1, MPI_INT, 1 - world_rank, 7, &token, 1, MPI_INT,
                     1 - world_rank, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (strcmp(last, "MPI_Sendrecv_replace") == 0) {
        MPI_Sendrecv_replace(&token, 1, MPI_INT, 1 - world_rank, 7,
                             1 - world_rank, 7, MPI_COMM_WORLD,
                             MPI_STATUS_IGNORE);
    } else if (strcmp(last, "MPI_Allreduce") == 0) {
        MPI_Allreduce(MPI_IN_PLACE, &token, 1, MPI_INT, MPI_SUM,
                      MPI_COMM_WORLD);
    }
    if (world_rank == 0) {
        if (strcmp(last, "MPI_Wait") != 0) {
            done(last, rc, other, 31);
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        done(last, rc, other, 31);
    }
}

static void try_freed_receive(void)
{
    static const char *last[]  = {"MPI_Wait", "MPI_Barrier", "MPI_Sendrecv",
                                  "MPI_Sendrecv_replace", "MPI_Allreduce"};
    static const int lengths[] = {COUNT / 2, COUNT / 2};
    static const int displs[]  = {COUNT / 2, 0};
    MPI_Datatype halves;
    size_t i;

    MPI_Type_indexed(2, lengths, displs, MPI_INT, &halves);
    MPI_Type_commit(&halves);
    for (i = 0; (world_size == 2) && (i < sizeof(last) / sizeof(*last)); ++i) {
        free_receive(last[i], halves);
    }
    MPI_Type_free(&halves);
}

/* A missing request is an error. PyPI's MPICH 5 crashes instead. */
static void try_missing(void)
{
#if MPI_VERSION < 5
    MPI_Request *const none = NULL;
    int index, done;

    if ((MPI_Waitall(1, none, MPI_STATUSES_IGNORE) == MPI_SUCCESS) ||
        (MPI_Testsome(1, none, &done, &index, MPI_STATUSES_IGNORE) ==
         MPI_SUCCESS) || (MPI_Startall(1, none) == MPI_SUCCESS) ||
        (MPI_Wait(none, MPI_STATUS_IGNORE) == MPI_SUCCESS) ||
        (MPI_Start(none) == MPI_SUCCESS) ||
        (MPI_Request_free(none) == MPI_SUCCESS)) {
        wrong("MPI_Waitall", "a missing request is no error");
    }
    handled = 0;
#endif
}

/* No requests may be given by no array. */
static void try_no_requests(void)
{
    MPI_Request *const none = NULL;
    int index, done;

    if ((MPI_Waitall(0, none, MPI_STATUSES_IGNORE) != MPI_SUCCESS) ||
        (MPI_Testany(0, none, &index, &done, MPI_STATUS_IGNORE) !=
         MPI_SUCCESS) || !done || (index != MPI_UNDEFINED) || handled) {
        wrong("MPI_Waitall", "no requests are an error");
    }
    try_missing();
}

/* Such calls alone, and beside a staged request */
static void try_requests(void)
{
    MPI_Datatype halves;
    MPI_Request request;

    try_no_requests();
    MPI_Type_vector(2, 1, 2, MPI_INT, &halves);
    MPI_Type_commit(&halves);
    MPI_Irecv(gpu, 1, halves, world_rank, 5, MPI_COMM_WORLD, &request);
    try_no_requests();
    MPI_Send(host, 2, MPI_INT, world_rank, 5, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Type_free(&halves);
}

#define ONE    gpu, COUNT, MPI_INT
#define TWO    gpu, COUNT, MPI_INT, other, COUNT, MPI_INT
#define VECTOR gpu, counts, displs, MPI_INT
#define INTO   other, counts, displs, MPI_INT
#define SUM    gpu, other, COUNT, MPI_INT, MPI_SUM

static void try_later(void)
{
    const int degree = 1, near = world_rank;
    MPI_Datatype types[64];
    MPI_Aint bytes[64];
    MPI_Request request;
    MPI_Comm ring;
    int counts[64], displs[64], i;

    for (i = 0; i < world_size; ++i) {
        counts[i] = COUNT;
        displs[i] = i * COUNT;
        bytes[i]  = 0;
        types[i]  = MPI_INT;
    }

#define LATER(_name, ...) \
    begun("MPI_" #_name, MPI_##_name(__VA_ARGS__, MPI_COMM_WORLD, &request), \
          &request)
    LATER(Ibcast, ONE, 0);
    LATER(Ireduce, SUM, 0);
    LATER(Iallreduce, SUM);
    LATER(Iscan, SUM);
    LATER(Iexscan, SUM);
    LATER(Ireduce_scatter, gpu, other, counts, MPI_INT, MPI_SUM);
    LATER(Ireduce_scatter_block, SUM);
    LATER(Igather, TWO, 0);
    LATER(Igatherv, ONE, INTO, 0);
    LATER(Iscatter, TWO, 0);
    LATER(Iscatterv, VECTOR, other, COUNT, MPI_INT, 0);
    LATER(Iallgather, TWO);
    LATER(Iallgatherv, ONE, INTO);
    LATER(Ialltoall, TWO);
    LATER(Ialltoallv, VECTOR, INTO);
    LATER(Ialltoallw, gpu, counts, displs, types, other, counts, displs, types);

    /* host memory is left to the MPI, and so is memory without a sender */
    if ((MPI_Iallreduce(MPI_IN_PLACE, host, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD,
                        &request) != MPI_SUCCESS) ||
        (MPI_Wait(&request, MPI_STATUS_IGNORE) != MPI_SUCCESS)) {
        wrong("MPI_Iallreduce", "host memory fails");
    }

#ifdef HAS_MPI_4
#undef LATER
#define LATER(_name, ...) \
    made("MPI_" #_name "_init", \
         MPI_##_name##_init(__VA_ARGS__, MPI_COMM_WORLD, MPI_INFO_NULL, \
                            &request), &request)
    LATER(Bcast, ONE, 0);
    LATER(Reduce, SUM, 0);
    LATER(Allreduce, SUM);
    LATER(Scan, SUM);
    LATER(Exscan, SUM);
    LATER(Reduce_scatter, gpu, other, counts, MPI_INT, MPI_SUM);
    LATER(Reduce_scatter_block, SUM);
    LATER(Gather, TWO, 0);
    LATER(Gatherv, ONE, INTO, 0);
    LATER(Scatter, TWO, 0);
    LATER(Scatterv, VECTOR, other, COUNT, MPI_INT, 0);
    LATER(Allgather, TWO);
    LATER(Allgatherv, ONE, INTO);
    LATER(Alltoall, TWO);
    LATER(Alltoallv, VECTOR, INTO);
    LATER(Alltoallw, gpu, counts, displs, types, other, counts, displs, types);
#endif
#if MPI_VERSION >= 4
    begun("MPI_Iallreduce_c",
          MPI_Iallreduce_c(SUM, MPI_COMM_WORLD, &request), &request);
#endif

    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &near, &degree, 1, &near,
                                   &degree, MPI_INFO_NULL, 0, &ring);
#undef LATER
#define LATER(_name, ...) \
    begun("MPI_Ineighbor_" #_name, \
          MPI_Ineighbor_##_name(__VA_ARGS__, ring, &request), &request)
    MPI_Comm_set_errhandler(ring, handled_comm);
    LATER(allgather, TWO);
    LATER(allgatherv, ONE, INTO);
    LATER(alltoall, TWO);
    LATER(alltoallv, VECTOR, INTO);
    LATER(alltoallw, gpu, counts, bytes, types, other, counts, bytes, types);
    MPI_Comm_free(&ring);
}

/* Arguments without data to send or receive may have any value. */
static void try_nothing(void)
{
    const int is_root = (world_rank == 0);
    int rc;

    rc = MPI_Gather(is_root ? gpu : NULL, 0, MPI_INT, is_root ? other : NULL, 0,
                    is_root ? MPI_INT : MPI_DATATYPE_NULL, 0, MPI_COMM_WORLD);
    if ((rc != MPI_SUCCESS) || (handled != 0)) {
        wrong("MPI_Gather", "nothing cannot be gathered");
    }

    rc = MPI_Scatter(is_root ? gpu : NULL, 0,
                     is_root ? MPI_INT : MPI_DATATYPE_NULL,
                     is_root ? other : NULL, 0, MPI_INT, 0, MPI_COMM_WORLD);
    if ((rc != MPI_SUCCESS) || (handled != 0)) {
        wrong("MPI_Scatter", "nothing cannot be scattered");
    }
    handled = 0;
}

/* A message to oneself, matched before this process uses a GPU */
static MPI_Request early_request;
static MPI_Message early_message;

static void match_early(void)
{
    static int word = 24 * COUNT;

    MPI_Isend(&word, 1, MPI_INT, 0, 5, MPI_COMM_SELF, &early_request);
    MPI_Mprobe(0, 5, MPI_COMM_SELF, &early_message, MPI_STATUS_IGNORE);
}

static void receive_early(void)
{
    int rc;

    fill(other, 24);
    ucx_mp_mem_set(UCX_MP_MEM_DEVICE, other, 0, sizeof(*other));
    rc = MPI_Mrecv(other, 1, MPI_INT, &early_message, MPI_STATUS_IGNORE);
    MPI_Wait(&early_request, MPI_STATUS_IGNORE);
    done("MPI_Mrecv of an early message", rc, other, 24);
}

int main(int argc, char **argv)
{
    char why[256] = "";
    int all;

    ucx_mp_program = "ucx_mp_calls";
    MPI_Init(&argc, &argv);
    ucx_mp_get_rank(&world_rank, &world_size);
    match_early();
    if ((argc != 2) || (world_size > 64) ||
        (ucx_mp_gpu_init(world_rank, why, sizeof(why)) == 0)) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "usage: ucx_mp_calls FOLDER; needs a "
                   "GPU: %s", why);
    }

    MPI_Comm_create_errhandler(on_comm_error, &handled_comm);
    MPI_Win_create_errhandler(on_win_error, &handled_win);
    MPI_File_create_errhandler(on_file_error, &handled_file);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handled_comm);
    gpu   = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, world_size * sizeof(host));
    other = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, world_size * sizeof(host));

    receive_early(); /* before the table of matched messages overflows */
    try_packing();
    try_files(argv[1]);
    try_windows();
    try_window_mistakes();
    try_buffered();
    try_self();
    try_matched();
#if MPI_VERSION < 5 /* PyPI's MPICH 5 reports success after the handler */
    try_truncated();
#endif
#ifdef HAS_MPI_4
    try_exchange();
    try_freed_exchange();
#endif
    try_freed_receive();
    try_requests();
    try_later();
    try_nothing();
    try_mistakes();

    MPI_Allreduce(&calls_wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (world_rank == 0) {
        printf("ucx_mp_calls: %d calls done, %d begun and ended, %d refused by "
               "name, %d wrong\n", calls_done, calls_begun, calls_refused,
               all);
    }
    return ucx_mp_finish(all > 0);
}
