/* SPDX-License-Identifier: BSD-3-Clause */
#include <uct/cuda/collective/agree.h>

#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/wiring.h>
#include <uct/cuda/collective/options.h>
#include <uct/cuda/run/schedule.h>

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>


/* Idle rounds before the first call of the MPI's progress, between two calls,
 * and before the thread yields its processor */
#define SPINS_BEFORE_PROGRESS 256
#define SPINS_A_PROGRESS      64
#define SPINS_BEFORE_YIELD    4096

/* Interval of liveness checks, ns */
#define ALIVE_INTERVAL 100000000ul

/* Such checks for which a rank waits for others that are alive after one has
 * ended */
#define MAX_LOOKS 20

/* Longest wait of a communicator's first call with GPU buffers for the first
 * such call of the other ranks, ns */
#define JOIN_TIME 200000000ul

/* Assumed bandwidth of links between GPUs hidden from rank 0, without a switch,
 * bytes/s */
#define UNKNOWN_BANDWIDTH 20e9


typedef uct_cuda_coll_agreement_t agreement_t;


void uct_cuda_coll_agree_begin(agreement_t *agreement,
                               const uct_cuda_coll_call_t *what, char *why,
                               size_t why_size)
{
    ++agreement->sequence;
    agreement->what     = what;
    agreement->bytes    = 0;
    agreement->looked   = 0;
    agreement->why      = why;
    agreement->why_size = why_size;
    agreement->why[0]   = '\0';
    agreement->is_running = false;
    uct_cuda_coll_agree_set_reason(agreement, UCT_CUDA_COLL_AHEAD,
                                   UCT_CUDA_COLL_ALL, UCS_OK);
}

const char *uct_cuda_coll_agree_name(const agreement_t *agreement, char *text,
                                     size_t size)
{
    snprintf(text, size, "collective %lu: %s of %lu bytes, %u ranks",
             (unsigned long)agreement->sequence,
             uct_cuda_coll_kind(agreement->what->kind)->name,
             (unsigned long)agreement->bytes, agreement->size);
    return text;
}

void uct_cuda_coll_agree_set_reason(agreement_t *agreement,
                                    uct_cuda_coll_reason_t reason, int rank,
                                    ucs_status_t status)
{
    agreement->fallback.reason = reason;
    agreement->fallback.rank   = rank;
    agreement->fallback.status = status;
}

__attribute__((format(printf, 2, 3))) static void
explain(agreement_t *agreement, const char *format, ...)
{
    va_list ap;

    if (agreement->why[0] == '\0') { /* keep the first reason */
        va_start(ap, format);
        vsnprintf(agreement->why, agreement->why_size, format, ap);
        va_end(ap);
    }
}


static void explain_fallback(agreement_t *agreement)
{
    const bool has_ended = (agreement->fallback.reason ==
                            UCT_CUDA_COLL_FAULT_ENDED);

    explain(agreement,
            has_ended ? "the process of rank %d has ended" :
                        "rank %d could not continue",
            agreement->fallback.rank);
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

/* Record the awaited action and its rank, and restart the time of the wait */
static void wait_for(agreement_t *agreement, unsigned rank, const char *wanted)
{
    agreement->waits_for = rank;
    agreement->wanted    = wanted;
    agreement->began     = 0;
}

/* Report a long wait once, to show the user of a hanging program its cause */
static void log_wait(agreement_t *agreement, uint64_t now)
{
    char name[128];

    /* do not count time in which this process stood still */
    if ((agreement->began == 0) ||
        (now - agreement->checked > UCT_CUDA_RUN_REPORT_NS / 2)) {
        agreement->began = now;
    } else if ((agreement->wanted != NULL) &&
               (now - agreement->began >= UCT_CUDA_RUN_REPORT_NS)) {
        uct_cuda_log(uct_cuda_coll_wait_level(),
                     "%s: rank %u waiting for rank %u, which has not %s after "
                     "1 s",
                     uct_cuda_coll_agree_name(agreement, name, sizeof(name)),
                     agreement->rank, agreement->waits_for, agreement->wanted);
        agreement->wanted = NULL;
    }
    agreement->checked = now;
}

static ucs_status_t check_alive(agreement_t *agreement)
{
    const uint64_t now = uct_cuda_now_ns();
    unsigned rank;

    log_wait(agreement, now);

    if (agreement->looked == 0) {
        agreement->looked = now;
    } else if (now - agreement->looked > ALIVE_INTERVAL) {
        agreement->looked = now;
        for (rank = 0; rank < agreement->size; ++rank) {
            if (!uct_cuda_node_control_is_alive(agreement->control, rank)) {
                uct_cuda_coll_agree_set_reason(agreement,
                                               UCT_CUDA_COLL_FAULT_ENDED,
                                               (int)rank, UCS_OK);
                return UCS_ERR_ENDPOINT_TIMEOUT;
            }
        }
    }
    return UCS_OK;
}

static ucs_status_t reached(const agreement_t *agreement, unsigned rank,
                            uct_cuda_node_phase_t phase)
{
    return uct_cuda_node_control_reached(agreement->control, rank, phase,
                                         agreement->sequence);
}

ucs_status_t uct_cuda_coll_agree_check(agreement_t *agreement)
{
    ucs_status_t status = check_alive(agreement);
    unsigned rank;

    for (rank = 0; (status == UCS_OK) && agreement->is_running &&
                   (rank < agreement->size);
         ++rank) {
        status = reached(agreement, rank, UCT_CUDA_NODE_PHASE_DONE);
        /* not arrived yet */
        status = (status < UCS_OK) ? UCS_ERR_CANCELED : UCS_OK;
    }
    return status;
}

ucs_status_t uct_cuda_coll_agree_idle(agreement_t *agreement)
{
    if (++agreement->spins < SPINS_BEFORE_PROGRESS) {
        cpu_relax();
        return UCS_OK;
    }

    if (agreement->spins >= SPINS_BEFORE_YIELD) {
        sched_yield();
    }

    if ((agreement->spins % SPINS_A_PROGRESS) != 0) {
        return UCS_OK;
    }

    if (agreement->what->progress != NULL) {
        agreement->what->progress(agreement->what->arg);
    }
    return uct_cuda_coll_agree_check(agreement);
}

/* Wait for the next rank from here on. @a wanted: its action, for the log */
static void next_rank(agreement_t *agreement, const char *wanted)
{
    wait_for(agreement, ++agreement->next, wanted);
}

static const char *phase_wanted(const agreement_t *agreement)
{
    return (agreement->phase == UCT_CUDA_NODE_PHASE_DONE) ?
                   "completed its steps" :
                   "prepared the call";
}

void uct_cuda_coll_agree_reach(agreement_t *agreement,
                               uct_cuda_node_phase_t phase, ucs_status_t status)
{
    uct_cuda_node_control_reach(agreement->control, phase, agreement->sequence,
                                status);
    agreement->phase      = phase;
    agreement->result     = UCS_OK;
    agreement->spins      = 0;
    agreement->is_running = false;
    agreement->next       = 0;
    agreement->looks      = 0;
    wait_for(agreement, 0, phase_wanted(agreement));
}

/* Return whether a living rank may still use memory in its steps, though
 * another rank has ended. Not for ever: it may have left the call before. */
static bool may_still_run(agreement_t *agreement, ucs_status_t waited)
{
    agreement->looks += (waited == UCS_ERR_ENDPOINT_TIMEOUT);
    return (agreement->phase == UCT_CUDA_NODE_PHASE_DONE) &&
           uct_cuda_node_control_is_alive(agreement->control,
                                          agreement->next) &&
           (agreement->looks <= MAX_LOOKS);
}

ucs_status_t
uct_cuda_coll_agree_reached(agreement_t *agreement, ucs_status_t waited)
{
    static const uct_cuda_coll_reason_t reasons[] = {
        [UCT_CUDA_NODE_PHASE_PLANNED] = UCT_CUDA_COLL_NO_PLAN,
        [UCT_CUDA_NODE_PHASE_MADE]    = UCT_CUDA_COLL_FAULT_MAKE,
        [UCT_CUDA_NODE_PHASE_READY]   = UCT_CUDA_COLL_NO_MAP,
        [UCT_CUDA_NODE_PHASE_DONE]    = UCT_CUDA_COLL_FAULT_RUN
    };
    ucs_status_t status;

    for (; agreement->next < agreement->size;
         next_rank(agreement, phase_wanted(agreement))) {
        status = reached(agreement, agreement->next, agreement->phase);
        if (status == UCS_INPROGRESS) {
            if ((waited == UCS_OK) || may_still_run(agreement, waited)) {
                return UCS_INPROGRESS;
            }

            agreement->result       = waited;
            agreement->first_failed = agreement->next;
            if (agreement->phase != UCT_CUDA_NODE_PHASE_DONE) {
                break;
            }
            continue;
        }

        /* skip ranks that stopped because another one failed */
        if ((status != UCS_OK) && ((agreement->result == UCS_OK) ||
                                   (agreement->result == UCS_ERR_CANCELED))) {
            agreement->result       = status;
            agreement->first_failed = agreement->next;
        }
    }

    if (agreement->result != UCS_OK) {
        /* Before the last phase all ranks decide by statuses seen by all; a
         * rank that ended meanwhile must not change the result */
        if ((agreement->next == agreement->size) &&
            ((agreement->phase != UCT_CUDA_NODE_PHASE_DONE) ||
             (agreement->fallback.reason != UCT_CUDA_COLL_FAULT_ENDED))) {
            uct_cuda_coll_agree_set_reason(agreement, reasons[agreement->phase],
                                           (int)agreement->first_failed,
                                           agreement->result);
        }
        explain_fallback(agreement);
    }
    return agreement->result;
}

void uct_cuda_coll_agree_run(agreement_t *agreement)
{
    agreement->spins      = 0;
    agreement->is_running = true;
    /* the rank schedule reports its own waits */
    wait_for(agreement, agreement->rank, NULL);
}


/* ---------------------------------------------------------------- the call */

void uct_cuda_coll_agree_decline(agreement_t *agreement,
                                 uct_cuda_coll_reason_t reason,
                                 ucs_status_t status)
{
    uct_cuda_coll_agree_set_reason(agreement, reason, (int)agreement->rank,
                                   status);
    uct_cuda_node_control_decline(agreement->control, agreement->sequence,
                                  (uint8_t)reason, status);
}

/* Record that another rank declined */
static void record_decline(agreement_t *agreement, unsigned rank,
                           const uct_cuda_node_announcement_t *post)
{
    const uct_cuda_coll_reason_t reason =
            (post->reason < UCT_CUDA_COLL_REASON_LAST) ?
                    (uct_cuda_coll_reason_t)post->reason :
                    UCT_CUDA_COLL_AHEAD;

    uct_cuda_coll_agree_set_reason(agreement, reason, (int)rank,
                                   (ucs_status_t) - (int)post->status);
}

/* Longest wait of the next communicator's first call. Halved after each wait in
 * vain: some programs create many communicators with a rank that never uses GPU
 * memory. */
static uint64_t patience = JOIN_TIME;

bool uct_cuda_coll_agree_all_joined(agreement_t *agreement)
{
    const uint64_t wait = __atomic_load_n(&patience, __ATOMIC_RELAXED);
    const bool is_first = (agreement->deadline == 0);
    uint64_t first;
    unsigned rank;

    if (agreement->is_joined) {
        return true;
    }

    if (is_first) {
        agreement->deadline = uct_cuda_now_ns() + wait;
    }

    agreement->spins = 0;
    for (rank = 0; rank < agreement->size; ++rank) {
        wait_for(agreement, rank, "brought GPU memory to the communicator");
        while (((first = uct_cuda_node_control_joined(agreement->control,
                                                      rank)) == 0) &&
               (uct_cuda_now_ns() < agreement->deadline) &&
               (uct_cuda_coll_agree_idle(agreement) == UCS_OK)) {
        }
        if ((first == 0) || (first > agreement->sequence)) {
            if (is_first && (first == 0)) {
                __atomic_store_n(&patience, wait / 2, __ATOMIC_RELAXED);
            }
            uct_cuda_coll_agree_decline(agreement, UCT_CUDA_COLL_NO_JOIN,
                                        UCS_OK);
            uct_cuda_coll_agree_set_reason(agreement, UCT_CUDA_COLL_NO_JOIN,
                                           (int)rank, UCS_OK);
            return false;
        }
    }
    agreement->is_joined = true;
    __atomic_store_n(&patience, JOIN_TIME, __ATOMIC_RELAXED);
    return true;
}

/* Compare the announcements of all ranks, all with GPU buffers. @return DONE:
 * they agree. STAGE: only operation, type or in-place flags differ. DIFFERS:
 * something else does, explained in `why`. */
static uct_cuda_coll_result_t compare(agreement_t *agreement)
{
    const uct_cuda_node_announcement_t *first = &agreement->posts[0];
    uct_cuda_coll_result_t result             = UCT_CUDA_COLL_DONE;
    const bool has_root = uct_cuda_coll_kind(first->call)->has_root;
    const uct_cuda_node_announcement_t *post;
    unsigned rank;

    for (rank = 0; rank < agreement->size; ++rank) {
        post = &agreement->posts[rank];
        if (post->is_short) {
            explain(agreement, "rank %u's buffer ends before the %lu bytes do",
                    rank, (unsigned long)post->bytes);
        } else if (post->call != first->call) {
            explain(agreement, "rank 0 calls %s, rank %u calls %s",
                    uct_cuda_coll_kind(first->call)->name, rank,
                    uct_cuda_coll_kind(post->call)->name);
        } else if (post->root != first->root) {
            explain(agreement, "rank 0 calls with root %u, rank %u with %u",
                    first->root, rank, post->root);
        } else if (post->bytes != first->bytes) {
            explain(agreement,
                    "rank 0 calls with %lu bytes, rank %u with %lu",
                    (unsigned long)first->bytes, rank,
                    (unsigned long)post->bytes);
        } else if (post->counts != first->counts) {
            explain(agreement, "ranks 0 and %u call with different counts",
                    rank);
        } else if ((post->op != first->op) || (post->type != first->type) ||
                   (!has_root && (post->is_in_place != first->is_in_place))) {
            uct_cuda_coll_agree_set_reason(agreement, UCT_CUDA_COLL_NO_MIXED,
                                           (int)rank, UCS_OK);
            result = UCT_CUDA_COLL_STAGE;
        }
        if (agreement->why[0] != '\0') {
            return UCT_CUDA_COLL_DIFFERS;
        }
    }
    return result;
}

/* Return whether a rank has declined, and record its reason. It may have left
 * the team since, and all ranks fall back. */
static bool is_passed(agreement_t *agreement)
{
    uct_cuda_node_announcement_t post;
    unsigned rank;

    for (rank = 0; rank < agreement->size; ++rank) {
        if (uct_cuda_node_control_read(agreement->control, rank,
                                       agreement->sequence, &post) &&
            (post.kind != UCT_CUDA_NODE_ANNOUNCE_GPU)) {
            record_decline(agreement, rank, &post);
            return true;
        }
    }
    return false;
}

static const char wanted_call[] = "made this call";

void uct_cuda_coll_agree_announce(agreement_t *agreement,
                                  const uct_cuda_node_announcement_t *post)
{
    uct_cuda_node_control_announce(agreement->control, agreement->sequence,
                                   post);
    agreement->spins   = 0;
    agreement->is_new  = false;
    agreement->is_lost = false;
    agreement->next    = 0;
    wait_for(agreement, 0, wanted_call);
}

uct_cuda_coll_result_t
uct_cuda_coll_agree_test(agreement_t *agreement, ucs_status_t waited)
{
    uct_cuda_node_announcement_t *post;

    for (; agreement->next < agreement->size;
         next_rank(agreement, wanted_call)) {
        post = &agreement->posts[agreement->next];
        if (!uct_cuda_node_control_read(agreement->control, agreement->next,
                                        agreement->sequence, post)) {
            if (waited == UCS_OK) {
                return UCT_CUDA_COLL_PENDING;
            } else if (is_passed(agreement)) {
                return UCT_CUDA_COLL_STAGE;
            }
            explain_fallback(agreement);
            return UCT_CUDA_COLL_FAILED;
        }

        if (post->kind != UCT_CUDA_NODE_ANNOUNCE_GPU) {
            record_decline(agreement, agreement->next, post);
            return UCT_CUDA_COLL_STAGE;
        }
        agreement->is_new  |= post->is_new;
        agreement->is_lost |= post->is_lost;
    }
    return compare(agreement);
}


/* -------------------------------------------------------------------- GPUs */

void uct_cuda_coll_agree_publish_node(agreement_t *agreement)
{
    uct_cuda_node_control_common_t *common = uct_cuda_node_control_common(
            agreement->control);
    const uct_cuda_topo_t *topo = uct_cuda_topo_get();

    if ((topo != NULL) && !common->has_topo) {
        common->topo = *topo;
        /* Other ranks may see other GPUs behind the same switch, which the
         * process's own topology of one GPU leaves out */
        if (topo->num_gpus == 1) {
            (void)uct_cuda_topo_probe(&common->topo, true);
        }
        common->transfers = *uct_cuda_coll_constants(topo);
        common->has_topo  = true;
    }
}

/* Return the number of a rank's GPU in the topology, or -1 */
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

/* Return the bytes/s of a GPU's ports to a switch, or 0 */
static double topo_ports(const uct_cuda_topo_t *topo)
{
    int i;

    for (i = 0; i < topo->num_limits; ++i) {
        if (topo->kinds[i] == UCT_CUDA_TOPO_LIMIT_NVLINK) {
            return topo->limits[i];
        }
    }
    return 0;
}

/* Return the limit of a GPU's ports in a direction, as topo_add() adds them */
static int port_limit(const uct_cuda_topo_t *topo, int gpu, int is_in)
{
    return (topo->num_limits > 0) ? 2 * gpu + is_in : UCT_CUDA_TOPO_NO_LIMIT;
}

/* Add a GPU with links to all others, through ports of this rate if any.
 * @return Its number; -1: no room */
static int topo_add(uct_cuda_topo_t *topo, const uint8_t *uuid, double ports)
{
    const double rate = (ports > 0) ? ports : UNKNOWN_BANDWIDTH;
    const int gpu     = topo->num_gpus;
    int peer;

    if (gpu == UCT_CUDA_MAX_GPUS) {
        return -1;
    }

    if (ports > 0) {
        uct_cuda_topo_add_limit(topo, UCT_CUDA_TOPO_LIMIT_NVLINK, ports);
        uct_cuda_topo_add_limit(topo, UCT_CUDA_TOPO_LIMIT_NVLINK, ports);
    }

    ++topo->num_gpus;
    memcpy(topo->gpus[gpu].uuid, uuid, sizeof(topo->gpus[gpu].uuid));
    for (peer = 0; peer < gpu; ++peer) {
        uct_cuda_topo_set_link(topo, gpu, peer, rate,
                               port_limit(topo, gpu, 0),
                               port_limit(topo, peer, 1));
        uct_cuda_topo_set_link(topo, peer, gpu, rate,
                               port_limit(topo, peer, 0),
                               port_limit(topo, gpu, 1));
    }
    return gpu;
}

/* If rank 0 does not see all GPUs, assume a node of the ranks' GPUs with equal
 * links, behind a switch if rank 0's GPU is. Mapping memory shows later whether
 * they are peers. */
bool uct_cuda_coll_agree_find_gpus(agreement_t *agreement)
{
    const uct_cuda_node_control_common_t *common = uct_cuda_node_control_common(
            agreement->control);
    uct_cuda_topo_t *topo = &agreement->topo;
    bool is_known         = common->has_topo;
    const uint8_t *uuid;
    unsigned rank;
    double ports;
    int gpu;

    *topo                = common->topo;
    agreement->transfers = common->transfers;
    for (rank = 0; rank < agreement->size; ++rank) {
        uuid = uct_cuda_node_control_gpu(agreement->control, rank);
        agreement->gpus[rank] = topo_find(topo, uuid);
        is_known             &= (agreement->gpus[rank] >= 0);
    }
    if (is_known) {
        return true;
    }

    agreement->transfers = uct_cuda_plan_model_builtin;
    ports                = topo_ports(topo);
    uct_cuda_topo_init(topo, 0);
    for (rank = 0; rank < agreement->size; ++rank) {
        uuid = uct_cuda_node_control_gpu(agreement->control, rank);
        gpu  = topo_find(topo, uuid);
        gpu  = (gpu < 0) ? topo_add(topo, uuid, ports) : gpu;
        if (gpu < 0) {
            return false;
        }
        agreement->gpus[rank] = gpu;
    }
    return true;
}

bool uct_cuda_coll_agree_is_peer(const agreement_t *agreement, unsigned rank)
{
    const int own = agreement->gpus[agreement->rank];
    const int gpu = agreement->gpus[rank];

    return (own == gpu) || (agreement->topo.links[own][gpu].bandwidth > 0) ||
           (agreement->topo.links[gpu][own].bandwidth > 0);
}
