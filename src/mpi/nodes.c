/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi/nodes.h>
#include <mpi/reduction.h>

#include <mpi/handles.h>
#include <mpi/job.h>
#include <mpi/pack.h>

#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>


/* smallest call that is worth an agreement, bytes */
#define MIN_BYTES ((uint64_t)256 << 10)

/* A buffer is split into MIN_CHUNKS chunks: into more if a shard would exceed
   SHARD_BYTES, into fewer if a chunk would be shorter than CHUNK_BYTES */
#define SHARD_BYTES ((uint64_t)2 << 20)
#define CHUNK_BYTES ((uint64_t)256 << 10)
#define MIN_CHUNKS  4

/* Chunks and shards start at a multiple of this, elements: kernels can then
   access whole words */
#define GRAIN 64

/* chunks in progress at once, each on its own stream */
#define DEPTH (UCX_MP_MPI_COPY_STREAMS - 1)

#define IDLE_BEFORE_YIELD 64

/* Most calls to skip after an agreement found no process using a GPU; starts at
   1 and doubles */
#define MAX_UNASKED 63

struct ucx_mp_mpi_nodes {
    uint64_t              key;    /* key of the communicator */
    uct_cuda_coll_team_t  *team;  /* GPU team of this node; NULL: this node has
                                     one rank */
    MPI_Comm              local;  /* ranks of this node */
    MPI_Comm              across; /* ranks with the same shard, one per node */
    int                   rank, size; /* within `local` */
    int                   shards;
    bool                  is_split;   /* `local` and `across` exist, on all
                                         ranks */
    bool                  has_local;
    bool                  is_off;     /* they could not be made, on all ranks */
    bool                  has_shard;
    unsigned              unasked; /* calls to make without agreement */
    unsigned              left;    /* remaining ones of them */
};

/* Progress of this rank's shard of a chunk */
typedef enum {
    STAGE_HERE,   /* in GPU memory: complete, or this rank has no shard */
    STAGE_OUT,    /* being copied to host memory */
    STAGE_ACROSS, /* being reduced between nodes */
    STAGE_IN      /* being copied back */
} stage_t;

typedef struct {
    stage_t            stage;
    uint64_t           chunk;
    ucx_mp_mpi_copy_t  copy;
    ucx_mp_mpi_block_t *host;
    MPI_Request        request;
} shard_slot_t;

typedef struct {
    ucx_mp_mpi_nodes_t            *nodes;
    const ucx_mp_mpi_collective_t *args;
    ucx_mp_type_t                 type;
    ucx_mp_op_t                   op;
    const char                    *send; /* in place: same as recv */
    char                          *recv;
    size_t                        element;
    uint64_t                      count, chunk, num_chunks; /* in elements;
                                                               `chunk` per
                                                               chunk */
    uint64_t                      next_across; /* next chunk to reduce between
                                                  nodes: the MPI requires the
                                                  same order on all ranks */
    shard_slot_t                  slots[DEPTH];
    unsigned                      idle;
    bool                          is_failed;
    bool                          is_given_up; /* on all ranks of this node:
                                                  buffers are no longer
                                                  written */
    char                          why[256];
} run_t;

static struct {
    uint64_t bytes, agreements;
} totals;


__attribute__((visibility("default"))) void
ucx_mp_mpi_nodes_counts(uint64_t *bytes_p, uint64_t *agreements_p)
{
    *bytes_p      = __atomic_load_n(&totals.bytes, __ATOMIC_RELAXED);
    *agreements_p = __atomic_load_n(&totals.agreements, __ATOMIC_RELAXED);
}


/* ------------------------------------------------------------ communicators */

ucx_mp_mpi_nodes_t *ucx_mp_mpi_nodes_create(uint64_t key)
{
    ucx_mp_mpi_nodes_t *nodes = calloc(1, sizeof(*nodes));

    if (nodes != NULL) {
        nodes->key = key;
    }
    return nodes;
}

/* Free the team and, with `has_mpi`, the communicators of nodes_split().
   MPI_COMM_WORLD is freed inside MPI_Finalize(), where communicators can no
   longer be freed. */
static void nodes_release(ucx_mp_mpi_nodes_t *nodes, bool has_mpi)
{
    if (nodes->team != NULL) {
        ucx_mp_mpi_job.api->team_destroy(nodes->team);
        nodes->team = NULL;
    }
    if (has_mpi && nodes->has_shard) {
        ucx_mp_mpi_pmpi.Comm_free(&nodes->across);
    }
    if (has_mpi && nodes->has_local) {
        ucx_mp_mpi_pmpi.Comm_free(&nodes->local);
    }
}

void ucx_mp_mpi_nodes_destroy(ucx_mp_mpi_nodes_t *nodes, MPI_Comm comm)
{
    nodes_release(nodes, comm != ucx_mp_mpi_pmpi.comm_world);
    free(nodes);
}

/* Join the team of this node. @return Whether all its ranks have joined. */
static bool nodes_join(ucx_mp_mpi_nodes_t *nodes)
{
    if (nodes->size == 1) {
        return true;
    }

    nodes->team = ucx_mp_mpi_job_join(nodes->local, nodes->key, nodes->rank,
                                      nodes->size, 0);
    return ucx_mp_mpi_on_all(nodes->local, nodes->team != NULL);
}

static bool nodes_split(ucx_mp_mpi_nodes_t *nodes, MPI_Comm comm)
{
    const ucx_mp_mpi_pmpi_t *real = &ucx_mp_mpi_pmpi;
    int mine[2], all[2], rank;

    if ((real->Comm_rank(comm, &rank) != MPI_SUCCESS) ||
        (real->Comm_split(comm, ucx_mp_mpi_machine_color(), rank,
                          &nodes->local) != MPI_SUCCESS)) {
        return false;
    }

    nodes->has_local = true;
    real->Comm_rank(nodes->local, &nodes->rank);
    real->Comm_size(nodes->local, &nodes->size);
    mine[0] = nodes_join(nodes);
    mine[1] = nodes->size;
    if ((real->Allreduce(mine, all, 2, ucx_mp_mpi_pmpi.integer,
                         ucx_mp_mpi_pmpi.min, comm) != MPI_SUCCESS) ||
        !all[0]) {
        return false;
    }

    nodes->shards    = all[1];
    nodes->has_shard = (nodes->rank < nodes->shards);
    if (real->Comm_split(comm,
                         nodes->has_shard ? nodes->rank : MPI_UNDEFINED, rank,
                         &nodes->across) != MPI_SUCCESS) {
        nodes->has_shard = false;
        return false;
    }
    return true;
}

/* Split the communicator on first use; all ranks call this, with GPU buffers.
   @return Whether it is split; the same on all ranks. */
static bool nodes_are_split(ucx_mp_mpi_nodes_t *nodes, MPI_Comm comm)
{
    if (!nodes->is_split) {
        nodes->is_split = nodes_split(nodes, comm);
        if (!nodes->is_split) {
            nodes_release(nodes, true);
            nodes->has_shard = nodes->has_local = false;
            nodes->is_off    = true;
        }
    }
    return nodes->is_split;
}


/* ------------------------------------------------------------------- a call */

__attribute__((format(printf, 2, 3))) static void
run_fail(run_t *run, const char *format, ...)
{
    va_list ap;

    if (!run->is_failed) { /* keep the first reason */
        va_start(ap, format);
        vsnprintf(run->why, sizeof(run->why), format, ap);
        va_end(ap);
    }
    run->is_failed = true;
}

static bool run_check(run_t *run, int rc, const char *what)
{
    if (rc != MPI_SUCCESS) {
        run_fail(run, "%s failed (MPI error %d)", what, rc);
    }
    return rc == MPI_SUCCESS;
}

static uint64_t chunk_first(const run_t *run, uint64_t chunk)
{
    return chunk * run->chunk;
}

static uint64_t chunk_count(const run_t *run, uint64_t chunk)
{
    const uint64_t left = run->count - chunk_first(run, chunk);

    return (left < run->chunk) ? left : run->chunk;
}

/* Return the first element of a shard, counted from the start of the buffer.
   `shard` may be one more than the last: the end of the chunk. */
static uint64_t shard_first(const run_t *run, uint64_t chunk, int shard)
{
    const uint64_t count = chunk_count(run, chunk);
    const int shards     = run->nodes->shards;
    uint64_t grains      = (count + GRAIN - 1) / GRAIN;
    uint64_t first       = grains * shard / shards * GRAIN;

    return chunk_first(run, chunk) + ((first < count) ? first : count);
}

static int shard_count(const run_t *run, uint64_t chunk, int shard)
{
    return (int)(shard_first(run, chunk, shard + 1) -
                 shard_first(run, chunk, shard));
}

static char *run_place(const run_t *run, uint64_t element)
{
    return run->recv + element * run->element;
}

static void slot_copy(run_t *run, shard_slot_t *slot, stage_t stage)
{
    const uint64_t first = shard_first(run, slot->chunk, run->nodes->rank);
    const size_t bytes   = (size_t)shard_count(run, slot->chunk,
                                               run->nodes->rank) *
                           run->element;
    const char *source   = (run->nodes->size == 1) ? run->send : run->recv;
    ucx_mp_mpi_plane_t plane = {.staged = slot->host->address,
                                .stride = bytes,
                                .step   = bytes,
                                .length = bytes,
                                .count  = (bytes > 0)};

    slot->stage = stage;
    if (run->is_given_up) {
        return;
    }

    plane.is_back = (stage != STAGE_OUT);
    plane.program = plane.is_back ? run_place(run, first) :
                                    (char*)source + first * run->element;
    ucx_mp_mpi_copy_rows(&slot->copy, plane);
}

/* Advance one slot without blocking. @return Whether an MPI call was made,
   which lets the MPI progress. */
static bool slot_advance(run_t *run, shard_slot_t *slot)
{
    const ucx_mp_mpi_pmpi_t *real = &ucx_mp_mpi_pmpi;
    const char *what              = "the reduction between nodes";
    int is_done                   = 1;
    int count;

    switch (slot->stage) {
    case STAGE_OUT:
        if ((slot->chunk != run->next_across) ||
            !ucx_mp_mpi_copy_is_done(&slot->copy)) {
            return false;
        }

        ++run->next_across;
        count = shard_count(run, slot->chunk, run->nodes->rank);
        if (!run_check(run,
                       real->Iallreduce(MPI_IN_PLACE, slot->host->address,
                                        count, run->args->datatype,
                                        run->args->op, run->nodes->across,
                                        &slot->request),
                       what)) {
            slot->stage = STAGE_HERE;
            return false;
        }

        slot->stage = STAGE_ACROSS;
        __atomic_fetch_add(&totals.bytes, (uint64_t)count * run->element,
                           __ATOMIC_RELAXED);
        return true;
    case STAGE_ACROSS:
        run_check(run, real->Test(&slot->request, &is_done, MPI_STATUS_IGNORE),
                  what);
        if (is_done) {
            slot_copy(run, slot, STAGE_IN);
        }
        return true;
    case STAGE_IN:
        if (ucx_mp_mpi_copy_is_done(&slot->copy)) {
            slot->stage = STAGE_HERE;
        }
        return false;
    default:
        return false;
    }
}

static void run_advance(void *arg)
{
    run_t *run    = arg;
    bool is_asked = false;
    unsigned i;

    for (i = 0; i < DEPTH; ++i) {
        is_asked |= slot_advance(run, &run->slots[i]);
    }

    if (!is_asked) {
        ucx_mp_mpi_progress(run->args->comm);
    }
}

static void run_wait(run_t *run, const shard_slot_t *slot)
{
    while (slot->stage != STAGE_HERE) {
        run_advance(run);
        if (++run->idle % IDLE_BEFORE_YIELD == 0) {
            sched_yield();
        }
    }
}

/* Carry out a step within the node by the MPI, in host memory. Record an error
   in `run`; if a rank of the node cannot stage, all of them give up. */
static void run_stage(run_t *run, const uct_cuda_coll_call_t *what)
{
    const ucx_mp_mpi_nodes_t *nodes     = run->nodes;
    MPI_Datatype datatype               = run->args->datatype;
    int counts[UCT_CUDA_COLL_API_RANKS] = {0};
    int displs[UCT_CUDA_COLL_API_RANKS] = {0};
    const void *sendbuf                 = MPI_IN_PLACE;
    void *recvbuf                       = what->recvbuf;
    ucx_mp_mpi_call_t call;
    int i, total = 0;

    for (i = 0; i < nodes->size; ++i) {
        counts[i] = (int)what->counts[i];
        displs[i] = total;
        total    += counts[i];
    }

    ucx_mp_mpi_call_begin(&call, run->args->name, nodes->local, 0);
    call.is_apart = true; /* a shard may start at the same byte as the chunk */
    if (what->kind == UCT_CUDA_COLL_KIND_ALLGATHER) {
        ucx_mp_mpi_call_buffer(&call, UCX_MP_MPI_READ | UCX_MP_MPI_WRITE,
                               &recvbuf, total, &datatype);
    } else {
        sendbuf = what->sendbuf;
        ucx_mp_mpi_call_buffer(&call, UCX_MP_MPI_READ, &sendbuf, total,
                               &datatype);
        ucx_mp_mpi_call_buffer(&call, UCX_MP_MPI_WRITE, &recvbuf,
                               counts[nodes->rank], &datatype);
    }

    /* If one rank of the node cannot stage, none makes the call */
    if (!ucx_mp_mpi_on_all(nodes->local, ucx_mp_mpi_call_stage(&call))) {
        run_fail(run, "the part inside the node cannot be staged on all ranks");
        run->is_given_up = true;
    } else {
        call.rc = (what->kind == UCT_CUDA_COLL_KIND_ALLGATHER) ?
                          ucx_mp_mpi_pmpi.Allgatherv(sendbuf, 0, datatype,
                                                     recvbuf, counts, displs,
                                                     datatype, nodes->local) :
                          ucx_mp_mpi_pmpi.Reduce_scatter(sendbuf, recvbuf,
                                                         counts, datatype,
                                                         run->args->op,
                                                         nodes->local);
    }
    run_check(run, ucx_mp_mpi_call_end(&call), "the part inside the node");
}

/* Carry out one step of a chunk within the node and wait: on GPUs or, if they
   cannot, in host memory. `kind`: REDUCE_SCATTER or ALLGATHER. Record an error
   in `run`. Does nothing with one rank, or if the ranks have given up. */
static void run_inside(run_t *run, uct_cuda_coll_kind_t kind, uint64_t chunk)
{
    const ucx_mp_mpi_nodes_t *nodes       = run->nodes;
    const uint64_t first                  = chunk_first(run, chunk);
    const void *sendbuf                   = run->send + first * run->element;
    uint64_t counts[UCT_CUDA_COLL_API_RANKS] = {0};
    uct_cuda_coll_call_t what             = {
        .kind     = kind,
        .counts   = counts,
        .op       = run->op,
        .type     = run->type,
        .progress = run_advance,
        .arg      = run
    };
    char why[sizeof(run->why) / 2];
    int shard;

    if ((nodes->size == 1) || run->is_given_up) {
        return;
    }

    for (shard = 0; shard < nodes->shards; ++shard) {
        counts[shard] = shard_count(run, chunk, shard);
    }

    if (kind == UCT_CUDA_COLL_KIND_ALLGATHER) {
        what.is_in_place = 1;
        what.recvbuf     = run_place(run, first);
    } else {
        what.sendbuf = sendbuf;
        what.recvbuf = run_place(run, nodes->has_shard ?
                                              shard_first(run, chunk,
                                                          nodes->rank) :
                                              first);
    }

    switch (ucx_mp_mpi_job.api->collective(nodes->team, &what, why,
                                           sizeof(why))) {
    case UCT_CUDA_COLL_DONE:
        break;
    case UCT_CUDA_COLL_STAGE:
        run_stage(run, &what);
        break;
    default: /* the same on all ranks of the node */
        run_fail(run, "the GPUs' part failed: %s", why);
        run->is_given_up = true;
        break;
    }
}

/* Process all chunks, even after an error: other ranks wait for this one */
static void run_chunks(run_t *run)
{
    uint64_t chunk;
    shard_slot_t *slot;

    for (chunk = 0; chunk < run->num_chunks + DEPTH - 1; ++chunk) {
        if (chunk < run->num_chunks) {
            run_inside(run, UCT_CUDA_COLL_KIND_REDUCE_SCATTER, chunk);
            slot        = &run->slots[chunk % DEPTH];
            slot->chunk = chunk;
            if (run->nodes->has_shard) {
                slot_copy(run, slot, STAGE_OUT);
            }
        }

        if (chunk >= DEPTH - 1) {
            run_wait(run, &run->slots[(chunk + 1) % DEPTH]);
            run_inside(run, UCT_CUDA_COLL_KIND_ALLGATHER, chunk + 1 - DEPTH);
        }
    }
}

static void run_cut(run_t *run)
{
    uint64_t bytes = run->count * run->element / MIN_CHUNKS;
    uint64_t most  = SHARD_BYTES * run->nodes->shards;

    bytes = (bytes < CHUNK_BYTES) ? CHUNK_BYTES : bytes;
    bytes = (bytes > most) ? most : bytes;
    run->chunk      = (bytes / run->element + GRAIN - 1) / GRAIN * GRAIN;
    run->num_chunks = (run->count + run->chunk - 1) / run->chunk;
}

/* Choose the chunks, and prepare streams and host memory. @return Whether all
   succeeded; the caller reports it to the other ranks. Call run_end() in any
   case. */
static bool run_begin(run_t *run)
{
    const ucx_mp_mpi_nodes_t *nodes = run->nodes;
    bool has_all                    = true;
    size_t bytes;
    shard_slot_t *slot;
    unsigned i;

    run_cut(run);
    /* Copies read `send`; ucx_mp_mpi_copy_begin_on() syncs `recv` only */
    if ((nodes->size == 1) && (run->send != run->recv)) {
        ucx_mp_mpi_job.api->sync(run->send);
    }
    bytes = (run->chunk / nodes->shards + 2 * GRAIN) * run->element;
    for (i = 0; i < DEPTH; ++i) {
        slot = &run->slots[i];
        ucx_mp_mpi_copy_begin_on(&slot->copy, run->recv, i + 1);
        if (nodes->has_shard) {
            slot->host = ucx_mp_mpi_pool_get(bytes, bytes, &slot->copy);
        }
        has_all = has_all && (slot->copy.result == CUDA_SUCCESS) &&
                  (!nodes->has_shard || (slot->host != NULL));
    }

    /* Copies of `send` run in the context of `recv` */
    return has_all &&
           ((nodes->size > 1) || ucx_mp_mpi_gpu_is_reached(run->send));
}

static void run_end(run_t *run)
{
    CUresult result;
    shard_slot_t *slot;
    unsigned i;

    for (i = 0; i < DEPTH; ++i) {
        slot   = &run->slots[i];
        result = ucx_mp_mpi_copy_end(&slot->copy);
        if (result != CUDA_SUCCESS) {
            run_fail(run, "a GPU buffer could not be copied: %s",
                     ucx_mp_mpi_gpu_error(result));
        }
        ucx_mp_mpi_block_put(slot->host);
    }
}

/* Values to agree on before any byte is written; the minimum of all ranks
   counts */
typedef enum {
    AGREE_GPU,  /* GPU buffers, streams and memory are ready */
    AGREE_FITS, /* the buffers are large enough */
    AGREE_HOST, /* this process uses no GPU */
    AGREE_LOW,  /* size in two halves, and their negations: the minima are equal
                   in magnitude only if all ranks have the same size */
    AGREE_NOT_LOW,
    AGREE_HIGH,
    AGREE_NOT_HIGH,
    AGREE_LAST
} agree_t;

/* Agree with all ranks whether to carry out the call, and how many later calls
   to skip. Set `*is_ready_p` to whether all ranks are ready. @return
   MPI_SUCCESS, or the error to return, already raised; the same on all
   ranks. */
static int run_agree(const run_t *run, bool is_ready, bool *is_ready_p)
{
    const MPI_Comm comm        = run->args->comm;
    const uint64_t bytes       = run->count * run->element;
    const bool fits            = !is_ready || (
            ucx_mp_mpi_pointer_is_gpu(run->recv + bytes - 1) &&
            ucx_mp_mpi_pointer_is_gpu(run->send + bytes - 1));
    const int low              = bytes & INT_MAX;
    const int high             = (bytes >> 31) & INT_MAX;
    const int mine[AGREE_LAST] = {is_ready, fits, !ucx_mp_mpi_gpu_is_used(),
                                  low, -low, high, -high};
    ucx_mp_mpi_nodes_t *nodes  = run->nodes;
    int all[AGREE_LAST];
    int rc;

    rc = ucx_mp_mpi_pmpi.Allreduce(mine, all, AGREE_LAST,
                                   ucx_mp_mpi_pmpi.integer,
                                   ucx_mp_mpi_pmpi.min, comm);
    if (rc != MPI_SUCCESS) {
        return rc;
    }

    __atomic_fetch_add(&totals.agreements, 1, __ATOMIC_RELAXED);
    nodes->unasked = all[AGREE_HOST] ? 2 * nodes->unasked + 1 : 0;
    nodes->unasked = (nodes->unasked > MAX_UNASKED) ? MAX_UNASKED :
                                                      nodes->unasked;
    nodes->left    = nodes->unasked;

    if ((all[AGREE_LOW] != -all[AGREE_NOT_LOW]) ||
        (all[AGREE_HIGH] != -all[AGREE_NOT_HIGH])) {
        return ucx_mp_mpi_raise(comm, MPI_ERR_COUNT,
                                "%s: ranks call with different numbers of "
                                "bytes, this one with %llu", run->args->name,
                                (unsigned long long)bytes);
    }

    if (!all[AGREE_FITS]) {
        return ucx_mp_mpi_raise(comm, MPI_ERR_BUFFER,
                                "%s: %s buffer ends before the %llu bytes do",
                                run->args->name,
                                fits ? "another rank's" : "this rank's",
                                (unsigned long long)bytes);
    }

    *is_ready_p = all[AGREE_GPU];
    return MPI_SUCCESS;
}

bool ucx_mp_mpi_nodes_collective(ucx_mp_mpi_nodes_t *nodes,
                                 const ucx_mp_mpi_collective_t *args,
                                 int *rc_p)
{
    const bool is_in_place = (args->sendbuf == MPI_IN_PLACE);
    run_t run              = {.nodes = nodes,
                              .args  = args,
                              .send  = is_in_place ? args->recvbuf :
                                                     args->sendbuf,
                              .recv  = args->recvbuf,
                              .count = args->count};
    bool is_ready = false;
    bool has_buffers;
    MPI_Count size;
    int mine, is_good;

    if ((args->kind != UCT_CUDA_COLL_KIND_ALLREDUCE) || (args->count <= 0) ||
        (args->sendbuf == args->recvbuf) ||
        !ucx_mp_mpi_handles_known(args->op, args->datatype, &run.op,
                                  &run.type) ||
        (ucx_mp_mpi_pmpi.Type_size_x(args->datatype, &size) != MPI_SUCCESS)) {
        return false;
    }

    run.element = size; /* these datatypes have no gaps */
    if ((run.count > INT64_MAX / 2 / run.element) ||
        (run.count * run.element < MIN_BYTES)) {
        return false;
    }

    if (nodes->is_off) { /* the same on all ranks */
        return false;
    } else if (nodes->left > 0) {
        --nodes->left;
        return false;
    }

    has_buffers = ucx_mp_mpi_gpu_is_used() &&
                  ucx_mp_mpi_pointer_is_gpu(run.recv) &&
                  (is_in_place || ucx_mp_mpi_pointer_is_gpu(run.send));
    if (!nodes->is_split) {
        *rc_p = run_agree(&run, has_buffers, &is_ready);
        if (!is_ready || !nodes_are_split(nodes, args->comm)) {
            return *rc_p != MPI_SUCCESS;
        }
    }

    is_ready = false;
    *rc_p    = run_agree(&run, has_buffers && run_begin(&run), &is_ready);
    if (is_ready) {
        run_chunks(&run);
    }
    if (has_buffers) {
        run_end(&run);
    }
    if (!is_ready) {
        return *rc_p != MPI_SUCCESS;
    }

    mine  = !run.is_failed;
    *rc_p = ucx_mp_mpi_pmpi.Allreduce(&mine, &is_good, 1,
                                      ucx_mp_mpi_pmpi.integer,
                                      ucx_mp_mpi_pmpi.min, args->comm);
    if ((*rc_p == MPI_SUCCESS) && !is_good) {
        *rc_p = ucx_mp_mpi_raise(args->comm, MPI_ERR_OTHER, "%s: %s",
                                 args->name,
                                 run.is_failed ? run.why :
                                                 "another rank's part failed");
    }
    return true;
}
