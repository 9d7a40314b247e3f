/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups: what ranks agree on, whose memory is mapped where, and calls from
 * their beginning to their end.
 *
 * All ranks decide alike, since each decides by what all have posted and by
 * what it remembers of earlier calls, which is the same on all.
 */
#include <uct/cuda/collective/group.h>
#include <uct/cuda/collective_api.h>

#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/device_memory.h>
#include <uct/cuda/base/gpu.h>
#include <uct/cuda/base/hash.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/mapped.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/base/topo.h>
#include <uct/cuda/node/exports.h>
#include <uct/cuda/node/mappings.h>
#include <uct/cuda/plan/book.h>
#include <uct/cuda/run/program.h>
#include <ucs/sys/math.h>

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


#define BOARD_DIR "/dev/shm"

/* Behind the program's allocations a rank shows its scratch memory, and the
 * first rank that of relays */
#define NUM_EXPORTS   (UCT_CUDA_COLL_PAGE_EXPORTS - UCT_CUDA_MAX_GPUS - 1)
#define SCRATCH       NUM_EXPORTS
#define RELAY(_gpu)   (SCRATCH + 1 + (_gpu))
#define RELAYS_RANK   0

/* Plans that are kept: a program has so many sizes of messages in turns */
#define NUM_PROGRAMS 64

/* Idle rounds until the MPI is given a chance, between two of these, and until
 * other processes are given the processor */
#define SPINS_BEFORE_PROGRESS 256
#define SPINS_A_PROGRESS      64
#define SPINS_BEFORE_YIELD    4096

/* Time between two looks at whether others are there, ns */
#define ALIVE_INTERVAL 100000000ul

/* Time that the first call with GPU buffers waits for others' first one, ns */
#define JOIN_TIME 200000000ul

/* Of links between GPUs that rank 0 does not see, bytes/s */
#define UNKNOWN_BANDWIDTH 20e9

/* Bytes of an element of a copy at most; kernels load as much as they like */
#define MAX_COPY_ELEMENT 8

/* After so many calls in which something could not be had, no more are tried */
#define MAX_FAILURES 3


/* An allocation of this rank's */
typedef struct {
    uct_cuda_node_handle_t handle;
    uint32_t               generation;
    uint64_t               used;    /* sequence of the last call */
    bool                   is_there;
    bool                   is_known; /* all others have mapped it */
} export_t;

/* One of another rank's */
typedef struct {
    uint32_t                generation;
    uct_cuda_node_mapping_t *mapping; /* or NULL */
} import_t;

/* Memory of a GPU that no rank has */
typedef struct {
    CUdeviceptr base; /* of the first rank, 0: none */
    size_t      size;
    uint64_t    agreed; /* bytes of it that all ranks have mapped */
} relay_t;

typedef struct {
    uct_cuda_coll_program_t *program; /* or NULL */
    uint64_t                used;
} cached_program_t;

struct uct_cuda_coll_group {
    unsigned               rank, size;
    uct_cuda_coll_page_t   *page;
    uint64_t               sequence;
    unsigned               failures;
    bool                   is_off;   /* on all ranks */
    bool                   is_whole; /* all have joined before this call */
    uint64_t               deadline; /* of waiting for that, ns; 0: none yet */

    /* Of the context that the buffers of the last call were in */
    CUcontext              context;
    unsigned long long     context_id;
    int                    cuda_device;
    uct_cuda_coll_device_t *device;
    uct_cuda_coll_events_t events;
    CUdeviceptr            scratch;
    uint64_t               scratch_size;
    bool                   is_lost;      /* another context than before */
    relay_t                relays[UCT_CUDA_MAX_GPUS]; /* of topo */

    uct_cuda_coll_post_t   posts[UCT_CUDA_COLL_MAX_RANKS]; /* last call's */

    /* What all ranks have; the same on all of them */
    uint64_t               agreed_scratch;
    bool                   has_no_relays; /* they could not be had */
    bool                   agreed_kernels[UCX_MP_OP_LAST][UCX_MP_TYPE_LAST];
    uct_cuda_topo_t        topo;
    int                    gpus[UCT_CUDA_COLL_MAX_RANKS]; /* of topo */

    export_t               exports[UCT_CUDA_COLL_PAGE_EXPORTS];
    import_t               imports[UCT_CUDA_COLL_MAX_RANKS]
                                  [UCT_CUDA_COLL_PAGE_EXPORTS];
    uct_cuda_coll_book_t   *book;        /* of topo and gpus; NULL: none yet */
    cached_program_t       programs[NUM_PROGRAMS];
};

/* A call; element, what is in place, and the kernel are those of all ranks once
   they have agreed */
typedef struct {
    uct_cuda_coll_group_t      *group;
    const uct_cuda_coll_call_t *what;
    uct_cuda_coll_request_t    request;
    uint64_t                   counts[UCT_CUDA_COLL_MAX_RANKS]; /* its */
    uct_cuda_coll_plan_t       shape; /* of its plan */
    ucx_mp_op_t                op;
    ucx_mp_type_t              type;
    uct_cuda_coll_post_t       post;
    uct_cuda_coll_post_t       *posts; /* of all ranks, the group's */
    uct_cuda_gpu_context_t     pushed;
    unsigned                   spins;
    uint64_t                   looked; /* for others, ns */
    uint64_t                   began;  /* to wait so, ns ... */
    const char                 *wanted; /* for a rank that has not ... */
    unsigned                   waits_for; /* ... this one */
    const uct_cuda_coll_plan_t *plan;     /* that was carried out, or NULL */
    char                       *why;
    size_t                     why_size;
} call_t;

static struct {
    pthread_mutex_t        lock; /* order: base/thread.h */
    bool                   is_said;
    uct_cuda_coll_config_t said;
    int                    is_on; /* of it, read without the lock */
} config = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct {
    uint64_t done, staged;
} totals;


ucs_status_t uct_cuda_coll_algorithm_parse(const char *name, int *algorithm_p)
{
    static const char *names[] = {
        [UCT_CUDA_COLL_ONE_KERNEL]   = "kernel",
        [UCT_CUDA_COLL_FLAT]         = "flat",
        [UCT_CUDA_COLL_HIERARCHICAL] = "hierarchical",
        [UCT_CUDA_COLL_RING]         = "ring"
    };
    int i;

    *algorithm_p = UCT_CUDA_COLL_AUTO;
    if (strcmp(name, "auto") == 0) {
        return UCS_OK;
    }

    for (i = 0; i < UCT_CUDA_COLL_ALGORITHM_LAST; ++i) {
        if (strcmp(name, names[i]) == 0) {
            *algorithm_p = i;
            return UCS_OK;
        }
    }
    return UCS_ERR_INVALID_PARAM;
}

void uct_cuda_coll_configure(const uct_cuda_coll_config_t *user)
{
    pthread_mutex_lock(&config.lock);
    if (!config.is_said) {
        config.is_said = true;
        config.said    = *user;
        __atomic_store_n(&config.is_on, user->is_on, __ATOMIC_RELEASE);
    } else if ((config.said.is_on != user->is_on) ||
               (config.said.algorithm != user->algorithm) ||
               (config.said.multipath != user->multipath)) {
        uct_cuda_info("UCX_CUDA_IPC_COLLECTIVES* stay as they were when the "
                      "first memory domain was opened");
    }
    pthread_mutex_unlock(&config.lock);
}

int uct_cuda_coll_is_on(void)
{
    const int is_on = __atomic_load_n(&config.is_on, __ATOMIC_ACQUIRE);

    return ((is_on != 0) && (uct_cuda_gpu_count() > 0)) ? is_on : 0;
}

void uct_cuda_coll_counts(uint64_t *done_p, uint64_t *staged_p)
{
    *done_p   = __atomic_load_n(&totals.done, __ATOMIC_RELAXED);
    *staged_p = __atomic_load_n(&totals.staged, __ATOMIC_RELAXED);
}

__attribute__((format(printf, 2, 3))) static void
call_explain(call_t *call, const char *format, ...)
{
    va_list ap;

    if (call->why[0] == '\0') { /* the first reason is the one */
        va_start(ap, format);
        vsnprintf(call->why, call->why_size, format, ap);
        va_end(ap);
    }
}


/* ---------------------------------------------------------------- waiting */

static void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* What the next waiting is for: a rank that has not done something */
static void call_waits(call_t *call, unsigned rank, const char *wanted)
{
    call->waits_for = rank;
    call->wanted    = wanted;
    call->began     = 0;
}

/* Of what hangs somebody wants to know where: once a waiting */
static void call_tell_wait(call_t *call, uint64_t now)
{
    if (call->began == 0) {
        call->began = now;
    } else if ((call->wanted != NULL) &&
               (now - call->began >= UCT_CUDA_COLL_TOLD_NS)) {
        uct_cuda_debug("collective %lu waits for rank %u, which has not %s "
                       "for a second",
                       (unsigned long)call->group->sequence, call->waits_for,
                       call->wanted);
        call->wanted = NULL;
    }
}

static ucs_status_t call_look(call_t *call)
{
    uct_cuda_coll_group_t *group = call->group;
    uint64_t now                 = uct_cuda_now_ns();
    unsigned rank;

    call_tell_wait(call, now);

    if (call->looked == 0) {
        call->looked = now;
    } else if (now - call->looked > ALIVE_INTERVAL) {
        call->looked = now;
        for (rank = 0; rank < group->size; ++rank) {
            if (!uct_cuda_coll_page_is_alive(group->page, rank)) {
                call_explain(call, "the process of rank %u has ended", rank);
                return UCS_ERR_ENDPOINT_TIMEOUT;
            }
        }
    }
    return UCS_OK;
}

/* One round of waiting for others, or for the GPU */
static ucs_status_t call_idle(call_t *call)
{
    if (++call->spins < SPINS_BEFORE_PROGRESS) {
        cpu_relax();
        return UCS_OK;
    }

    if (call->spins >= SPINS_BEFORE_YIELD) {
        sched_yield();
    }

    if ((call->spins % SPINS_A_PROGRESS) != 0) {
        return UCS_OK;
    }

    if (call->what->progress != NULL) {
        call->what->progress(call->what->arg);
    }
    return call_look(call);
}

/* Waits until all ranks have got there. @return the first failure of any, the
   same on all ranks unless one has died. */
static ucs_status_t call_meet(call_t *call, uct_cuda_coll_phase_t phase,
                              ucs_status_t status)
{
    uct_cuda_coll_group_t *group = call->group;
    ucs_status_t result          = UCS_OK;
    ucs_status_t reached, idle;
    unsigned rank;

    uct_cuda_coll_page_reach(group->page, phase, group->sequence, status);
    call->spins = 0;
    for (rank = 0; rank < group->size; ++rank) {
        call_waits(call, rank,
                   (phase == UCT_CUDA_COLL_PHASE_DONE) ? "ended its steps" :
                                                         "prepared its own");
        do {
            reached = uct_cuda_coll_page_reached(group->page, rank, phase,
                                                 group->sequence);
            idle    = (reached == UCS_INPROGRESS) ? call_idle(call) : UCS_OK;
            if (idle != UCS_OK) {
                /* Who has seen everybody here may have left since */
                reached = uct_cuda_coll_page_reached(group->page, rank, phase,
                                                     group->sequence);
                if (reached == UCS_INPROGRESS) {
                    return idle;
                }
                call->why[0] = '\0';
            }
        } while (reached == UCS_INPROGRESS);

        if ((reached != UCS_OK) && (result == UCS_OK)) {
            call_explain(call, "rank %u could not go on", rank);
            result = reached;
        }
    }
    return result;
}

/* Steps of others that are waited for may never end */
static ucs_status_t run_idle(void *arg)
{
    call_t *call                 = arg;
    uct_cuda_coll_group_t *group = call->group;
    ucs_status_t status          = call_idle(call);
    ucs_status_t reached;
    unsigned rank;

    for (rank = 0; (status == UCS_OK) && (rank < group->size) &&
                   ((call->spins % SPINS_A_PROGRESS) == 0);
         ++rank) {
        reached = uct_cuda_coll_page_reached(group->page, rank,
                                             UCT_CUDA_COLL_PHASE_DONE,
                                             group->sequence);
        if (reached < UCS_OK) {
            call_explain(call, "rank %u could not go on", rank);
            status = reached;
        }
    }
    return status;
}


/* ---------------------------------------------------------- own memory */

static void export_drop(uct_cuda_coll_group_t *group, unsigned index)
{
    export_t *export = &group->exports[index];

    if (export->is_there) {
        /* The program's may live on; what this group has made is about to go */
        if (index < NUM_EXPORTS) {
            uct_cuda_node_exports_put(&export->handle);
        } else {
            uct_cuda_node_exports_end(&export->handle);
        }
        export->generation = uct_cuda_coll_page_show(group->page, index, NULL);
        export->is_there   = false;
    }
    export->is_known = false;
}

/* Is the allocation still the one that was shown? */
static bool export_is_current(const export_t *export)
{
    uct_cuda_memory_t memory;

    uct_cuda_memory_query((void*)export->handle.base, 1, &memory);
    return (memory.type == UCS_MEMORY_TYPE_CUDA) &&
           (memory.buffer_id == export->handle.buffer_id);
}

static ucs_status_t export_add(uct_cuda_coll_group_t *group, unsigned index,
                               const void *address)
{
    export_t *export = &group->exports[index];
    uct_cuda_memory_t memory;
    ucs_status_t status;

    export_drop(group, index);
    uct_cuda_memory_query(address, 1, &memory);
    status = uct_cuda_node_exports_get(address, &memory, &export->handle);
    if (status != UCS_OK) {
        return status;
    }

    if (export->handle.type == UCT_CUDA_NODE_HANDLE_NONE) {
        return UCS_ERR_UNREACHABLE;
    }

    export->is_there   = true;
    export->generation = uct_cuda_coll_page_show(group->page, index,
                                                 &export->handle);
    return UCS_OK;
}

static int export_find(const uct_cuda_coll_group_t *group,
                       const uct_cuda_memory_t *memory)
{
    const export_t *export;
    int i;

    for (i = 0; i < NUM_EXPORTS; ++i) {
        export = &group->exports[i];
        if (export->is_there && (export->handle.base == memory->base) &&
            (export->handle.length == memory->length) &&
            (export->handle.buffer_id == memory->buffer_id)) {
            return i;
        }
    }
    return -1;
}

/* A place for one more: a free one, or that which was used longest ago. Those
   whose memory was freed go, as do others' mappings of it then. */
static int export_place(uct_cuda_coll_group_t *group)
{
    int oldest = 0;
    int i;

    for (i = 0; i < NUM_EXPORTS; ++i) {
        if (group->exports[i].is_there &&
            !export_is_current(&group->exports[i])) {
            export_drop(group, i);
        }
    }

    for (i = 0; i < NUM_EXPORTS; ++i) {
        if (!group->exports[i].is_there) {
            return i;
        }
        if (group->exports[i].used < group->exports[oldest].used) {
            oldest = i;
        }
    }
    return oldest;
}

/* Shows a buffer's allocation, unless it is shown already */
static ucs_status_t call_show(call_t *call, const void *address,
                              const uct_cuda_memory_t *memory, size_t bytes,
                              uct_cuda_coll_memory_t *shown)
{
    uct_cuda_coll_group_t *group = call->group;
    const uint64_t offset        = (CUdeviceptr)address - memory->base;
    int index                    = export_find(group, memory);
    ucs_status_t status;

    if ((offset > memory->length) || (bytes > memory->length - offset)) {
        /* what is mapped into a reservation may go on in the next piece */
        if (memory->context == NULL) {
            return UCS_ERR_UNSUPPORTED;
        }
        call->post.is_short = 1;
    }

    if (index < 0) {
        index  = export_place(group);
        status = export_add(group, index, address);
        if (status != UCS_OK) {
            return status;
        }
    }

    group->exports[index].used = group->sequence;
    call->post.is_new         |= !group->exports[index].is_known;
    shown->index               = index;
    shown->generation          = group->exports[index].generation;
    shown->offset              = offset;
    return UCS_OK;
}


/* -------------------------------------------------------- others' memory */

static void import_drop(import_t *import)
{
    if (import->mapping != NULL) {
        uct_cuda_node_cache_unlend(import->mapping);
        import->mapping = NULL;
    }
}

static void imports_drop(uct_cuda_coll_group_t *group)
{
    unsigned rank, index;

    for (rank = 0; rank < group->size; ++rank) {
        for (index = 0; index < UCT_CUDA_COLL_PAGE_EXPORTS; ++index) {
            import_drop(&group->imports[rank][index]);
        }
    }
}

/* Lets go of what others show no more */
static void imports_sweep(uct_cuda_coll_group_t *group)
{
    unsigned rank, index;
    uint32_t generation;
    import_t *import;

    for (rank = 0; rank < group->size; ++rank) {
        for (index = 0; index < UCT_CUDA_COLL_PAGE_EXPORTS; ++index) {
            import = &group->imports[rank][index];
            if (import->mapping != NULL) {
                (void)uct_cuda_coll_page_shown(group->page, rank, index,
                                               &generation);
                if (generation != import->generation) {
                    import_drop(import);
                }
            }
        }
    }
}

static ucs_status_t import_map(uct_cuda_coll_group_t *group, unsigned rank,
                               unsigned index)
{
    import_t *import;
    const uct_cuda_node_handle_t *handle;
    ucs_status_t status;

    if (index >= UCT_CUDA_COLL_PAGE_EXPORTS) {
        return UCS_ERR_INVALID_PARAM;
    }

    import = &group->imports[rank][index];
    if ((rank == group->rank) || (import->mapping != NULL)) {
        return UCS_OK;
    }

    handle = uct_cuda_coll_page_shown(group->page, rank, index,
                                      &import->generation);
    if (handle == NULL) {
        return UCS_ERR_NO_ELEM;
    }

    /* What a rank has freed it names no more: it need not be kept until the
     * next call, which may never come */
    status = uct_cuda_node_cache_get_in(handle, group->cuda_device,
                                        group->context, group->context_id,
                                        &import->mapping);
    if (status != UCS_OK) {
        return status;
    }

    uct_cuda_node_cache_lend(import->mapping);
    if (!uct_cuda_node_mapping_is_in(import->mapping, group->context_id)) {
        import_drop(import);
        return UCS_ERR_UNREACHABLE;
    }

    return UCS_OK;
}

/* No plan has a step between ranks that are no peers */
static bool is_peer(const uct_cuda_coll_group_t *group, unsigned rank)
{
    const int own = group->gpus[group->rank];
    const int gpu = group->gpus[rank];

    return (own == gpu) || (group->topo.links[own][gpu].bandwidth > 0) ||
           (group->topo.links[gpu][own].bandwidth > 0);
}

/* Everything of others' that this call takes, in this rank's context */
static ucs_status_t call_map(call_t *call, const uct_cuda_coll_plan_t *plan)
{
    uct_cuda_coll_group_t *group = call->group;
    ucs_status_t status          = UCS_OK;
    unsigned rank, i;

    imports_sweep(group);
    for (rank = 0; (rank < group->size) && (status == UCS_OK); ++rank) {
        if (!is_peer(group, rank)) {
            continue;
        }

        status = import_map(group, rank, call->posts[rank].recv.index);
        if (status == UCS_OK) {
            status = import_map(group, rank, call->posts[rank].send.index);
        }
        if ((status == UCS_OK) && (plan->scratch > 0)) {
            status = import_map(group, rank, SCRATCH);
        }
    }
    for (i = 0; (i < plan->num_relays) && (status == UCS_OK); ++i) {
        status = import_map(group, RELAYS_RANK, RELAY(plan->relays[i]));
    }
    return status;
}

static CUdeviceptr call_address(const call_t *call, unsigned rank,
                                uct_cuda_coll_buffer_t buffer)
{
    const uct_cuda_coll_group_t *group = call->group;
    const uct_cuda_coll_memory_t *memory =
            (buffer == UCT_CUDA_COLL_SEND) ? &call->posts[rank].send :
                                             &call->posts[rank].recv;
    const unsigned index = (buffer == UCT_CUDA_COLL_SCRATCH) ? SCRATCH :
                                                               memory->index;
    const uint64_t offset = (buffer == UCT_CUDA_COLL_SCRATCH) ? 0 :
                                                                memory->offset;

    if (rank == group->rank) {
        return (buffer == UCT_CUDA_COLL_SCRATCH) ?
                       group->scratch :
                       (group->exports[index].handle.base + offset);
    }

    return (group->imports[rank][index].mapping == NULL) ?
                   0 :
                   (group->imports[rank][index].mapping->mapped + offset);
}

static CUdeviceptr relay_address(const uct_cuda_coll_group_t *group, int gpu)
{
    return (group->rank == RELAYS_RANK) ?
                   group->relays[gpu].base :
                   group->imports[RELAYS_RANK][RELAY(gpu)].mapping->mapped;
}


/* ---------------------------------------------------------------- context */

static void scratch_free(uct_cuda_coll_group_t *group, bool is_alive)
{
    export_drop(group, SCRATCH);
    if (is_alive && (group->scratch != 0)) {
        uct_cuda_device_memory_free(group->scratch);
    }
    group->scratch      = 0;
    group->scratch_size = 0;
}

/* Memory made with cuMemCreate is no context's */
static void relays_free(uct_cuda_coll_group_t *group)
{
    int gpu;

    for (gpu = 0; gpu < UCT_CUDA_MAX_GPUS; ++gpu) {
        export_drop(group, RELAY(gpu));
        if (group->relays[gpu].base != 0) {
            uct_cuda_mapped_free(group->relays[gpu].base,
                                 group->relays[gpu].size);
        }
        memset(&group->relays[gpu], 0, sizeof(group->relays[gpu]));
    }
}

static void group_leave_context(uct_cuda_coll_group_t *group)
{
    const bool is_alive = (group->context != NULL) &&
                          uct_cuda_ctx_push_alive(group->context,
                                                  group->context_id);

    imports_drop(group);
    relays_free(group);
    scratch_free(group, is_alive);
    uct_cuda_coll_events_release(&group->events, group->device, is_alive);
    if (is_alive) {
        uct_cuda_ctx_pop();
    }
    group->context = NULL;
    group->device  = NULL;
}

/* Rank 0 sees the node for all */
static void group_tell_topo(uct_cuda_coll_group_t *group)
{
    uct_cuda_coll_common_t *common = uct_cuda_coll_page_common(group->page);
    const uct_cuda_topo_t *topo    = uct_cuda_topo_get();

    if ((topo != NULL) && !common->has_topo) {
        common->topo     = *topo;
        common->has_topo = true;
    }
}

/* With the buffers' context current */
static ucs_status_t group_enter_context(uct_cuda_coll_group_t *group,
                                        int device)
{
    unsigned long long id;
    ucs_status_t status;
    CUcontext context;
    CUuuid uuid;

    status = uct_cuda_ctx_current(&context, &id);
    if ((status != UCS_OK) || ((context == group->context) &&
                               (id == group->context_id))) {
        return status;
    }

    group_leave_context(group);
    group->is_lost = true;
    status         = UCT_CUDA_CALL(cuDeviceGetUuid, &uuid, device);
    if (status != UCS_OK) {
        return status;
    }

    status = uct_cuda_coll_device_get(device, context, id, &group->device);
    if (status != UCS_OK) {
        return status;
    }

    uct_cuda_coll_page_set_gpu(group->page, (const uint8_t*)uuid.bytes);
    group->context     = context;
    group->context_id  = id;
    group->cuda_device = device;
    if (group->rank == 0) {
        group_tell_topo(group);
    }
    return UCS_OK;
}

static ucs_status_t scratch_make(uct_cuda_coll_group_t *group, uint64_t size)
{
    ucs_status_t status;

    if (size <= group->scratch_size) {
        return UCS_OK;
    }

    scratch_free(group, true);
    status = UCT_CUDA_CALL_NOLOG(cuMemAlloc, &group->scratch, size);
    if (status != UCS_OK) {
        group->scratch = 0;
        return status;
    }

    status = export_add(group, SCRATCH, (void*)group->scratch);
    if (status != UCS_OK) {
        scratch_free(group, true);
        return status;
    }

    group->scratch_size = size;
    return UCS_OK;
}

/* What the first rank makes for all */
static ucs_status_t relays_make(uct_cuda_coll_group_t *group,
                                const uct_cuda_coll_plan_t *plan)
{
    ucs_status_t status = UCS_OK;
    relay_t *relay;
    unsigned i;

    for (i = 0; (i < plan->num_relays) && (status == UCS_OK); ++i) {
        relay = &group->relays[plan->relays[i]];
        if ((group->rank != RELAYS_RANK) ||
            (relay->size >= plan->relay_scratch)) {
            continue;
        }

        export_drop(group, RELAY(plan->relays[i]));
        if (relay->base != 0) {
            uct_cuda_mapped_free(relay->base, relay->size);
        }

        relay->base = 0;
        relay->size = plan->relay_scratch;
        status      = uct_cuda_mapped_alloc(
                plan->relays[i], group->cuda_device,
                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, &relay->size,
                &relay->base);
        if (status != UCS_OK) {
            relay->base = 0;
            relay->size = 0;
            break;
        }
        status = export_add(group, RELAY(plan->relays[i]), (void*)relay->base);
    }
    return status;
}


/* ----------------------------------------------------------------- plans */

static bool program_fits(const cached_program_t *entry,
                         const uct_cuda_coll_plan_t *shape)
{
    const uct_cuda_coll_plan_t *plan;

    if (entry->program == NULL) {
        return false;
    }

    plan = uct_cuda_coll_program_plan(entry->program);
    return (plan->kind == shape->kind) && (plan->root == shape->root) &&
           (plan->bytes == shape->bytes) && (plan->element == shape->element) &&
           (plan->is_in_place == shape->is_in_place) &&
           (memcmp(plan->blocks, shape->blocks, sizeof(plan->blocks)) == 0);
}

/* What is to be planned, in elements of so many bytes */
static ucs_status_t call_request(call_t *call, uint32_t element,
                                 bool is_in_place)
{
    const uct_cuda_coll_group_t *group = call->group;
    const uct_cuda_coll_call_t *what   = call->what;
    const uint32_t size                = ucx_mp_type_size(what->type);
    uct_cuda_coll_request_t *request   = &call->request;
    unsigned rank;

    request->topo        = &group->topo;
    request->num_ranks   = group->size;
    request->kind        = what->kind;
    request->root        = uct_cuda_coll_kind_has_root(what->kind) ?
                                   what->root :
                                   0;
    request->count       = what->count * size / element;
    request->element     = element;
    request->is_in_place = is_in_place;
    request->max_scratch = UCT_CUDA_COLL_MAX_SCRATCH;
    request->algorithm   = uct_cuda_coll_page_common(group->page)->algorithm;
    request->chunks      = UCT_CUDA_COLL_AUTO;
    request->multipath   = group->has_no_relays ?
                                   0 :
                                   uct_cuda_coll_page_common(group->page)
                                           ->multipath;
    memcpy(request->gpus, group->gpus, sizeof(request->gpus));
    for (rank = 0; (what->counts != NULL) && (rank < group->size); ++rank) {
        if (what->counts[rank] > UCT_CUDA_COLL_MAX_COUNT) {
            return UCS_ERR_INVALID_PARAM;
        }
        call->counts[rank] = what->counts[rank] * size / element;
        request->counts    = call->counts;
    }
    return (what->count > UCT_CUDA_COLL_MAX_COUNT) ?
                   UCS_ERR_INVALID_PARAM :
                   uct_cuda_coll_shape(request, &call->shape);
}

/* The plan of this call, from those that were made already if it is there */
static ucs_status_t call_program(call_t *call,
                                 uct_cuda_coll_program_t **program_p)
{
    uct_cuda_coll_group_t *group = call->group;
    cached_program_t *entry      = &group->programs[0];
    uct_cuda_coll_plan_t plan;
    ucs_status_t status;
    unsigned i;

    for (i = 0; i < NUM_PROGRAMS; ++i) {
        if (program_fits(&group->programs[i], &call->shape)) {
            entry = &group->programs[i];
            goto out;
        }
        if (group->programs[i].used < entry->used) {
            entry = &group->programs[i];
        }
    }

    if (group->book == NULL) {
        group->book = uct_cuda_coll_book_create();
    }
    status = uct_cuda_coll_plan(group->book, &call->request, &plan);
    if (status != UCS_OK) {
        return status;
    }

    if (entry->program != NULL) {
        uct_cuda_coll_program_destroy(entry->program);
        entry->program = NULL;
    }
    status = uct_cuda_coll_program_create(&plan, group->rank, &entry->program);
    if (status != UCS_OK) {
        return status;
    }

out:
    entry->used = group->sequence;
    *program_p  = entry->program;
    return UCS_OK;
}


/* ------------------------------------------------------------------ calls */

/* A buffer of this rank's, if it has one in this collective. @return Whether it
   is on a GPU, or not there. */
static bool call_query(const call_t *call, uct_cuda_coll_buffer_t buffer,
                       const void *address, uct_cuda_memory_t *memory)
{
    const uint64_t bytes = uct_cuda_coll_plan_size(&call->shape,
                                                   call->group->rank, buffer);

    memory->type = UCS_MEMORY_TYPE_UNKNOWN;
    if (bytes == 0) {
        return true;
    }

    uct_cuda_memory_query(address, bytes, memory);
    uct_cuda_memory_sync_memops(memory);
    return (memory->type == UCS_MEMORY_TYPE_CUDA) &&
           uct_cuda_end_is_gpu(memory->end) &&
           ((uintptr_t)address % ucx_mp_type_align(call->what->type) == 0);
}

/* Blocks' counts in few bits, never 0 */
static uint32_t call_counts(const call_t *call)
{
    uint32_t hash = UCT_CUDA_HASH32;
    unsigned rank;

    for (rank = 0; rank < call->group->size; ++rank) {
        hash = uct_cuda_hash32(hash, (uint32_t)call->what->counts[rank]);
        hash = uct_cuda_hash32(hash,
                               (uint32_t)(call->what->counts[rank] >> 32));
    }
    return (hash == 0) ? 1 : hash;
}

/* Says what this rank does, and shows its memory */
static ucs_status_t call_fill(call_t *call, const uct_cuda_memory_t *send,
                              const uct_cuda_memory_t *recv)
{
    const uct_cuda_coll_call_t *what = call->what;
    const unsigned rank              = call->group->rank;
    uct_cuda_coll_post_t *post       = &call->post;
    const bool has_recv              = (recv->type == UCS_MEMORY_TYPE_CUDA);
    const bool has_send              = (send->type == UCS_MEMORY_TYPE_CUDA) &&
                          !uct_cuda_coll_plan_is_same(&call->shape, rank);
    ucs_status_t status              = UCS_OK;

    post->kind        = UCT_CUDA_COLL_POST_GPU;
    post->call        = (uint8_t)call->shape.kind;
    post->root        = call->shape.root;
    post->count       = (what->counts == NULL) ?
                                what->count :
                                call->shape.bytes / call->shape.element;
    post->counts      = (what->counts == NULL) ? 0 : call_counts(call);
    post->op          = uct_cuda_coll_kind_reduces(what->kind) ?
                                (uint8_t)what->op :
                                0;
    post->type        = (uint8_t)what->type;
    post->is_in_place = call->shape.is_in_place;
    if (has_recv) {
        status = call_show(call, what->recvbuf, recv,
                           uct_cuda_coll_plan_size(&call->shape, rank,
                                                   UCT_CUDA_COLL_RECV),
                           &post->recv);
    }
    if ((status == UCS_OK) && has_send) {
        status = call_show(call, what->sendbuf, send,
                           uct_cuda_coll_plan_size(&call->shape, rank,
                                                   UCT_CUDA_COLL_SEND),
                           &post->send);
    }

    /* A name for what is not there; nothing goes to it */
    if (!has_send) {
        post->send = post->recv;
    } else if (!has_recv) {
        post->recv = post->send;
    }
    post->is_lost = call->group->is_lost;
    return status;
}

/* Loading a kernel would wait for a GPU that may wait for the program: until it
   can be done all ranks go another way. Failures are told when all prepare. */
static bool call_may_load(const call_t *call)
{
    const bool reduces = uct_cuda_coll_kind_reduces(call->what->kind);

    return uct_cuda_coll_device_load(call->group->device,
                                     reduces ? (ucx_mp_op_t)call->what->op :
                                               UCX_MP_OP_BOR,
                                     reduces ? (ucx_mp_type_t)call->what->type :
                                               UCX_MP_TYPE_U8) != UCS_ERR_BUSY;
}

/* Whether this rank's part can be done by GPUs; then its post is filled, and
   the context of its buffers is current */
static bool call_describe(call_t *call)
{
    const uct_cuda_coll_call_t *what = call->what;
    const uct_cuda_memory_t *one;
    uct_cuda_memory_t send, recv;

    if (((unsigned)what->type >= UCX_MP_TYPE_LAST) ||
        (uct_cuda_coll_kind_reduces(what->kind) &&
         !ucx_mp_kernel_is_known(what->op, what->type)) ||
        (call_request(call, ucx_mp_type_size(what->type),
                      what->is_in_place) != UCS_OK) ||
        (call->shape.bytes == 0) ||
        !call_query(call, UCT_CUDA_COLL_RECV, what->recvbuf, &recv) ||
        !call_query(call, UCT_CUDA_COLL_SEND,
                    uct_cuda_coll_plan_is_same(&call->shape,
                                               call->group->rank) ?
                            what->recvbuf :
                            what->sendbuf,
                    &send)) {
        return false;
    }

    one = (recv.type == UCS_MEMORY_TYPE_CUDA) ? &recv : &send;
    if ((one->type != UCS_MEMORY_TYPE_CUDA) ||
        ((send.type == UCS_MEMORY_TYPE_CUDA) &&
         (!uct_cuda_end_equal(one->end, send.end) ||
          (one->context != send.context))) ||
        (uct_cuda_gpu_context_push(one->context, uct_cuda_end_device(one->end),
                                   &call->pushed) != UCS_OK)) {
        return false;
    }

    if ((group_enter_context(call->group, uct_cuda_end_device(one->end)) !=
         UCS_OK) ||
        !call_may_load(call) || (call_fill(call, &send, &recv) != UCS_OK)) {
        uct_cuda_gpu_context_pop(&call->pushed);
        return false;
    }
    return true;
}

/* What the posts of all ranks lead to, all of GPUs. DONE: to a plan */
static uct_cuda_coll_result_t call_compare(call_t *call)
{
    const uct_cuda_coll_post_t *first = &call->posts[0];
    uct_cuda_coll_result_t result     = UCT_CUDA_COLL_DONE;
    const bool has_root = uct_cuda_coll_kind_has_root(call->shape.kind);
    const uct_cuda_coll_post_t *post;
    uint64_t bytes[2];
    unsigned rank;

    bytes[0] = first->count * ucx_mp_type_size(first->type);
    for (rank = 0; rank < call->group->size; ++rank) {
        post     = &call->posts[rank];
        bytes[1] = post->count * ucx_mp_type_size(post->type);
        if (post->is_short) {
            call_explain(call, "rank %u's buffer ends before the %llu bytes do",
                         rank, (unsigned long long)bytes[1]);
        } else if (post->call != first->call) {
            call_explain(call, "rank 0 calls %s, and rank %u %s",
                         uct_cuda_coll_kind_str(first->call), rank,
                         uct_cuda_coll_kind_str(post->call));
        } else if (post->root != first->root) {
            call_explain(call, "rank 0 calls with root %u, and rank %u with %u",
                         first->root, rank, post->root);
        } else if (bytes[1] != bytes[0]) {
            call_explain(call, "rank 0 calls with %llu bytes, and rank %u with "
                         "%llu", (unsigned long long)bytes[0], rank,
                         (unsigned long long)bytes[1]);
        } else if (post->counts != first->counts) {
            call_explain(call, "ranks 0 and %u call with other counts", rank);
        } else if ((post->op != first->op) || (post->type != first->type) ||
                   (!has_root && (post->is_in_place != first->is_in_place))) {
            result = UCT_CUDA_COLL_STAGE;
        }
        if (call->why[0] != '\0') {
            return UCT_CUDA_COLL_DIFFERS;
        }
    }
    return result;
}

/* Elements of a copy are as wide as all buffers and blocks are aligned */
static uint32_t call_element(const call_t *call)
{
    const uct_cuda_coll_plan_t *shape = &call->shape;
    uint64_t bits                     = MAX_COPY_ELEMENT |
                                        shape->bytes;
    unsigned rank;

    for (rank = 0; rank < call->group->size; ++rank) {
        bits |= call->posts[rank].send.offset |
                call->posts[rank].recv.offset | shape->blocks[rank];
    }
    return (uint32_t)(bits & -bits);
}

/* The plan's request, as all ranks have it */
static ucs_status_t call_settle(call_t *call)
{
    static const ucx_mp_type_t copies[] = {
        [1] = UCX_MP_TYPE_U8, [2] = UCX_MP_TYPE_U16, [4] = UCX_MP_TYPE_U32,
        [8] = UCX_MP_TYPE_U64
    };
    const uct_cuda_coll_call_t *what = call->what;
    const bool reduces               = uct_cuda_coll_kind_reduces(what->kind);
    const uint32_t element           = reduces ? call->shape.element :
                                                 call_element(call);

    call->op   = UCX_MP_OP_BOR; /* of one source: none */
    call->type = copies[reduces ? 1 : element];
    if (reduces) {
        call->op   = (ucx_mp_op_t)what->op;
        call->type = (ucx_mp_type_t)what->type;
    }
    return call_request(call, element,
                        call->posts[call->shape.root].is_in_place);
}

/* Has every rank come to the page before this call, so that it says there what
   it does? The first call with GPU buffers gives the others' first ones a
   moment: who sees them on all ranks at once need stage none. A rank whose
   buffers are in host memory may not come. */
static bool call_is_of_all(call_t *call)
{
    uct_cuda_coll_group_t *group = call->group;
    uint64_t first;
    unsigned rank;

    if (group->is_whole) {
        return true;
    }

    if (group->deadline == 0) {
        group->deadline = uct_cuda_now_ns() + JOIN_TIME;
    }

    call->spins = 0;
    for (rank = 0; rank < group->size; ++rank) {
        call_waits(call, rank, "brought GPU memory to the communicator");
        while (((first = uct_cuda_coll_page_joined(group->page, rank)) == 0) &&
               (uct_cuda_now_ns() < group->deadline) &&
               (call_idle(call) == UCS_OK)) {
        }
        call->why[0] = '\0'; /* the MPI finds out who has ended */
        if ((first == 0) || (first > group->sequence)) {
            return false;
        }
    }
    group->is_whole = true;
    return true;
}

/* Has a rank said that it passes? Then all do it another way, and it may have
   left the group since. */
static bool call_is_passed(const call_t *call)
{
    const uct_cuda_coll_group_t *group = call->group;
    uct_cuda_coll_post_t post;
    unsigned rank;

    for (rank = 0; rank < group->size; ++rank) {
        if (uct_cuda_coll_page_read(group->page, rank, group->sequence,
                                    &post) &&
            (post.kind != UCT_CUDA_COLL_POST_GPU)) {
            return true;
        }
    }
    return false;
}

/* What all ranks do in this call. DONE: by GPUs. */
static uct_cuda_coll_result_t call_agree(call_t *call)
{
    uct_cuda_coll_group_t *group = call->group;
    unsigned rank;

    call->spins = 0;
    for (rank = 0; rank < group->size; ++rank) {
        call_waits(call, rank, "come to this call");
        while (!uct_cuda_coll_page_read(group->page, rank, group->sequence,
                                        &call->posts[rank])) {
            if (call_idle(call) == UCS_OK) {
                continue;
            } else if (!call_is_passed(call)) {
                return UCT_CUDA_COLL_FAILED;
            }
            call->why[0] = '\0';
            return UCT_CUDA_COLL_STAGE;
        }

        if (call->posts[rank].kind != UCT_CUDA_COLL_POST_GPU) {
            return UCT_CUDA_COLL_STAGE;
        }
    }
    return call_compare(call);
}

/* Number of a rank's GPU in the topology, or -1 */
static int topo_find(const uct_cuda_topo_t *topo, const uint8_t *uuid)
{
    int i;

    for (i = 0; i < topo->num_gpus; ++i) {
        if (memcmp(topo->gpus[i].uuid, uuid, sizeof(topo->gpus[i].uuid)) ==
            0) {
            return i;
        }
    }
    return -1;
}

/* The node as rank 0 sees it; or, if that does not see all ranks' GPUs, these
   with links that are all alike. Whether they are peers mapping will show. */
static void group_find_gpus(uct_cuda_coll_group_t *group)
{
    const uct_cuda_coll_common_t *common = uct_cuda_coll_page_common(
            group->page);
    bool is_known = common->has_topo;
    const uint8_t *uuid;
    unsigned rank;
    int gpu, peer;

    group->topo = common->topo;
    for (rank = 0; rank < group->size; ++rank) {
        group->gpus[rank] = topo_find(&group->topo,
                                      uct_cuda_coll_page_gpu(group->page,
                                                             rank));
        is_known         &= (group->gpus[rank] >= 0);
    }
    if (is_known) {
        return;
    }

    uct_cuda_topo_init(&group->topo, 0);
    for (rank = 0; rank < group->size; ++rank) {
        uuid = uct_cuda_coll_page_gpu(group->page, rank);
        gpu  = topo_find(&group->topo, uuid);
        if ((gpu < 0) && (group->topo.num_gpus == UCT_CUDA_MAX_GPUS)) {
            group->is_off = true; /* more than plans know; on all ranks */
            return;
        }

        if (gpu < 0) {
            gpu = group->topo.num_gpus++;
            memcpy(group->topo.gpus[gpu].uuid, uuid,
                   sizeof(group->topo.gpus[gpu].uuid));
            for (peer = 0; peer < gpu; ++peer) {
                uct_cuda_topo_set_link(&group->topo, gpu, peer,
                                       UNKNOWN_BANDWIDTH,
                                       UCT_CUDA_TOPO_NO_LIMIT,
                                       UCT_CUDA_TOPO_NO_LIMIT);
                uct_cuda_topo_set_link(&group->topo, peer, gpu,
                                       UNKNOWN_BANDWIDTH,
                                       UCT_CUDA_TOPO_NO_LIMIT,
                                       UCT_CUDA_TOPO_NO_LIMIT);
            }
        }
        group->gpus[rank] = gpu;
    }
}

static void programs_drop(uct_cuda_coll_group_t *group)
{
    unsigned i;

    for (i = 0; i < NUM_PROGRAMS; ++i) {
        if (group->programs[i].program != NULL) {
            uct_cuda_coll_program_destroy(group->programs[i].program);
        }
    }
    memset(group->programs, 0, sizeof(group->programs));
    uct_cuda_coll_book_destroy(group->book);
    group->book = NULL;
}

/* A rank has another context than before, and nothing that was mapped in it or
   made for it; on all ranks */
static void group_forget(uct_cuda_coll_group_t *group)
{
    unsigned i;

    for (i = 0; i < UCT_CUDA_COLL_PAGE_EXPORTS; ++i) {
        group->exports[i].is_known = false;
    }
    for (i = 0; i < UCT_CUDA_MAX_GPUS; ++i) {
        group->relays[i].agreed = 0;
    }
    memset(group->agreed_kernels, 0, sizeof(group->agreed_kernels));
    group->agreed_scratch = 0;
    programs_drop(group);
    group_find_gpus(group);
}

/* Has something to be made or mapped before this call can be carried out? The
   same answer on all ranks. */
static bool call_is_new(const call_t *call, const uct_cuda_coll_plan_t *plan)
{
    const uct_cuda_coll_group_t *group = call->group;
    bool is_new                        = false;
    unsigned rank, i;

    for (rank = 0; rank < group->size; ++rank) {
        is_new |= call->posts[rank].is_new || call->posts[rank].is_lost;
    }
    for (i = 0; i < plan->num_relays; ++i) {
        is_new |= (plan->relay_scratch > group->relays[plan->relays[i]].agreed);
    }

    return is_new ||
           !group->agreed_kernels[call->op][call->type] ||
           (plan->scratch > group->agreed_scratch);
}

/* Nobody runs before everybody has what it takes */
static ucs_status_t call_prepare(call_t *call,
                                 const uct_cuda_coll_program_t *program,
                                 const uct_cuda_coll_run_t *run)
{
    uct_cuda_coll_group_t *group = call->group;
    const uct_cuda_coll_plan_t *plan = uct_cuda_coll_program_plan(program);
    ucs_status_t status;
    relay_t *relay;
    unsigned i;

    status = scratch_make(group, plan->scratch);
    if (status == UCS_OK) {
        status = relays_make(group, plan);
    }
    if (status == UCS_OK) {
        status = uct_cuda_coll_device_load(group->device, call->op,
                                           call->type);
    }
    if (status == UCS_OK) {
        status = uct_cuda_coll_program_prepare(program, run);
    }
    status = call_meet(call, UCT_CUDA_COLL_PHASE_MADE, status);
    if (status == UCS_OK) {
        status = call_meet(call, UCT_CUDA_COLL_PHASE_READY,
                           call_map(call, plan));
    }

    if (status != UCS_OK) {
        /* Some have other scratch than before, or none, and not all of the
           others have mapped it */
        group->agreed_scratch = 0;
        return status;
    }

    group->agreed_kernels[call->op][call->type]    = true;
    group->exports[call->post.recv.index].is_known = true;
    group->exports[call->post.send.index].is_known = true;
    group->is_lost                                 = false;
    if (plan->scratch > group->agreed_scratch) {
        group->agreed_scratch = plan->scratch;
    }
    for (i = 0; i < plan->num_relays; ++i) {
        relay         = &group->relays[plan->relays[i]];
        relay->agreed = ucs_max(relay->agreed, plan->relay_scratch);
    }
    return UCS_OK;
}

/* Something could not be had; on all ranks. Relays are done without then. */
static void call_give_up(call_t *call, const uct_cuda_coll_program_t *program)
{
    uct_cuda_coll_group_t *group = call->group;

    if ((program != NULL) &&
        (uct_cuda_coll_program_plan(program)->num_relays > 0)) {
        uct_cuda_debug("collectives: no copies over other GPUs from here on");
        group->has_no_relays = true;
        relays_free(group);
        programs_drop(group);
        return;
    }

    group->is_off = (++group->failures >= MAX_FAILURES);
}

/* May results stand where a rank's terms were? In place, or in a buffer that
   overlaps the other one; the same answer on all ranks. */
static bool call_overwrites(const call_t *call)
{
    const uct_cuda_coll_post_t *post;
    uint64_t sent, received;
    unsigned rank;

    if (!uct_cuda_coll_kind_reduces(call->shape.kind)) {
        return false;
    }

    for (rank = 0; rank < call->group->size; ++rank) {
        post     = &call->posts[rank];
        sent     = uct_cuda_coll_plan_size(&call->shape, rank,
                                           UCT_CUDA_COLL_SEND);
        received = uct_cuda_coll_plan_size(&call->shape, rank,
                                           UCT_CUDA_COLL_RECV);
        if (post->is_in_place ||
            ((post->send.index == post->recv.index) &&
             (post->send.offset < post->recv.offset + received) &&
             (post->recv.offset < post->send.offset + sent))) {
            return true;
        }
    }
    return false;
}

static uct_cuda_coll_result_t call_run(call_t *call)
{
    uct_cuda_coll_group_t *group = call->group;
    uct_cuda_coll_run_t run      = {
        .device   = group->device,
        .events   = &group->events,
        .page     = group->page,
        .sequence = group->sequence,
        .idle     = run_idle,
        .arg      = call
    };
    uct_cuda_coll_program_t *program = NULL;
    const uct_cuda_coll_plan_t *plan;
    ucs_status_t status;
    unsigned rank, buffer, i;

    for (rank = 0; rank < group->size; ++rank) {
        if (call->posts[rank].is_lost) {
            group_forget(group);
            break;
        }
    }

    if (group->is_off) {
        return UCT_CUDA_COLL_STAGE;
    }

    status = call_settle(call);
    if (status == UCS_OK) {
        status = call_program(call, &program);
    }
    if (status == UCS_ERR_UNSUPPORTED) {
        return UCT_CUDA_COLL_STAGE; /* others may have a plan on these GPUs */
    } else if (status != UCS_OK) {
        program = NULL;
    }
    run.op   = call->op;
    run.type = call->type;

    if ((program == NULL) ||
        (call_is_new(call, uct_cuda_coll_program_plan(program)) &&
         (call_prepare(call, program, &run) != UCS_OK))) {
        call_give_up(call, program);
        return UCT_CUDA_COLL_STAGE;
    }

    for (rank = 0; rank < group->size; ++rank) {
        for (buffer = 0; buffer < UCT_CUDA_COLL_BUFFER_LAST; ++buffer) {
            run.places[rank][buffer] = call_address(call, rank, buffer);
        }
    }
    call->plan = plan = uct_cuda_coll_program_plan(program);
    for (i = 0; i < plan->num_relays; ++i) {
        run.places[group->size + i][UCT_CUDA_COLL_SCRATCH] =
                relay_address(group, plan->relays[i]);
    }

    call->spins = 0;
    call_waits(call, group->rank, NULL); /* the program says for which step */
    status      = call_meet(call, UCT_CUDA_COLL_PHASE_DONE,
                            uct_cuda_coll_program_run(program, &run));
    if (status == UCS_OK) {
        return UCT_CUDA_COLL_DONE;
    }

    /* What was sent is still there, if nobody is gone, nor anybody's context */
    return (call_overwrites(call) || (status == UCS_ERR_ENDPOINT_TIMEOUT)) ?
                   UCT_CUDA_COLL_FAILED :
                   UCT_CUDA_COLL_STAGE;
}

/* Is the way of an MPI that takes GPU memory as fast? Ranks of one GPU take
   turns on it, and to sum a few bytes the CPU need not wait for them: up to
   this it is up to a tenth faster, and ours from there on (two ranks on an
   H100, four on two; docs/collectives-cuda-mpi.md). Each rank passes by itself,
   so nothing is agreed on; who does not know the GPUs yet sees it pass. */
static bool call_is_left(const call_t *call)
{
    static const uint64_t most         = 16 << 10;
    const uct_cuda_coll_call_t *what   = call->what;
    const uct_cuda_coll_group_t *group = call->group;
    uint64_t blocks                    = 1;

    if (what->kind == UCT_CUDA_COLL_KIND_REDUCE_SCATTER) {
        blocks = group->size;
    } else if (what->kind != UCT_CUDA_COLL_KIND_ALLREDUCE) {
        return false;
    }

    return what->has_own_way && (what->counts == NULL) &&
           (what->count <= most / blocks / ucx_mp_type_size(what->type)) &&
           (group->topo.num_gpus > 0) &&
           uct_cuda_coll_shares_gpus(group->gpus, group->size);
}

/* A line a call, as a message has one */
static void call_tell(const call_t *call, uct_cuda_coll_result_t result,
                      uint64_t taken)
{
    const uct_cuda_coll_plan_t *plan = call->plan;
    const char *kind = uct_cuda_coll_kind_str(call->what->kind);

    if ((result != UCT_CUDA_COLL_DONE) || (plan == NULL)) {
        uct_cuda_debug("collective %lu: %s %s%s%s",
                       (unsigned long)call->group->sequence, kind,
                       (result == UCT_CUDA_COLL_FAILED) ?
                               "failed" :
                               "goes by way of the host",
                       (call->why[0] == '\0') ? "" : ": ", call->why);
        return;
    }

    uct_cuda_debug("collective %lu: %s of %lu bytes, %u ranks: %s, %u step%s, "
                   "%.1f us expected, %.1f us taken",
                   (unsigned long)call->group->sequence, kind,
                   (unsigned long)plan->bytes, call->group->size,
                   uct_cuda_coll_algorithm_str(plan->algorithm),
                   plan->num_steps, (plan->num_steps == 1) ? "" : "s",
                   plan->seconds * 1e6, (double)taken / 1e3);
}

uct_cuda_coll_result_t
uct_cuda_coll_group_collective(uct_cuda_coll_group_t *group,
                               const uct_cuda_coll_call_t *what, char *why,
                               size_t why_size)
{
    call_t call = {.group    = group,
                   .what     = what,
                   .posts    = group->posts,
                   .why      = why,
                   .why_size = why_size};
    uct_cuda_coll_result_t result;
    uint64_t began = 0;

    why[0] = '\0';
    if (group->is_off) {
        return UCT_CUDA_COLL_STAGE;
    }

    if (uct_cuda_log_is_on(UCT_CUDA_LOG_DEBUG)) {
        began = uct_cuda_now_ns();
    }
    ++group->sequence;
    if (call_is_left(&call) || !call_describe(&call)) {
        goto out_pass;
    }

    if (!call_is_of_all(&call)) {
        uct_cuda_gpu_context_pop(&call.pushed);
        goto out_pass;
    }

    uct_cuda_coll_page_post(group->page, group->sequence, &call.post);
    result = call_agree(&call);
    if (result == UCT_CUDA_COLL_DONE) {
        uct_cuda_node_cache_collective(true);
        result = call_run(&call);
        uct_cuda_node_cache_collective(false);
    }
    uct_cuda_gpu_context_pop(&call.pushed);
    goto out;

out_pass:
    uct_cuda_coll_page_pass(group->page, group->sequence);
    result = UCT_CUDA_COLL_STAGE;
out:
    __atomic_fetch_add((result == UCT_CUDA_COLL_DONE) ? &totals.done :
                                                        &totals.staged,
                       1, __ATOMIC_RELAXED);
    if (began != 0) {
        call_tell(&call, result, uct_cuda_now_ns() - began);
    }
    return result;
}

void uct_cuda_coll_group_pass(uct_cuda_coll_group_t *group)
{
    if (!group->is_off) {
        uct_cuda_coll_page_pass(group->page, ++group->sequence);
    }
}


/* ----------------------------------------------------------------- groups */

ucs_status_t uct_cuda_coll_group_board(unsigned rank, unsigned size,
                                       char *name,
                                       uct_cuda_coll_board_t **board_p)
{
    return uct_cuda_coll_board_open(BOARD_DIR, rank, size, name, board_p);
}

ucs_status_t uct_cuda_coll_group_create(uct_cuda_coll_board_t *board,
                                        uint64_t key, unsigned rank,
                                        unsigned size,
                                        const unsigned *members,
                                        uint64_t calls,
                                        uct_cuda_coll_group_t **group_p)
{
    uct_cuda_coll_group_t *group = calloc(1, sizeof(*group));
    uct_cuda_coll_common_t *common;
    ucs_status_t status;

    if (group == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    group->rank     = rank;
    group->size     = size;
    group->sequence = calls;
    status          = uct_cuda_coll_page_open(board, key, rank, size, members,
                                              &group->page);
    if (status != UCS_OK) {
        uct_cuda_debug("rank %u of %u has no page for collectives (%d)", rank,
                       size, status);
        free(group);
        return status;
    }

    if (rank == 0) {
        common            = uct_cuda_coll_page_common(group->page);
        common->algorithm = config.said.algorithm;
        common->multipath = config.said.multipath;
    }
    uct_cuda_coll_page_join(group->page, calls + 1);
    *group_p = group;
    return UCS_OK;
}

void uct_cuda_coll_group_destroy(uct_cuda_coll_group_t *group)
{
    unsigned i;

    group_leave_context(group);
    for (i = 0; i < UCT_CUDA_COLL_PAGE_EXPORTS; ++i) {
        export_drop(group, i);
    }
    programs_drop(group);
    uct_cuda_coll_page_close(group->page);
    free(group);
}
