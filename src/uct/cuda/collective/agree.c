/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks tell each other on the page, and read there. */
#include <uct/cuda/collective/agree.h>

#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/log.h>

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>


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
void uct_cuda_coll_agree_waits(call_t *call, unsigned rank, const char *wanted)
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
ucs_status_t uct_cuda_coll_agree_meet(call_t *call, uct_cuda_coll_phase_t phase,
                              ucs_status_t status)
{
    uct_cuda_coll_group_t *group = call->group;
    ucs_status_t result          = UCS_OK;
    ucs_status_t reached, idle;
    unsigned rank;

    uct_cuda_coll_page_reach(group->page, phase, group->sequence, status);
    call->spins = 0;
    for (rank = 0; rank < group->size; ++rank) {
        uct_cuda_coll_agree_waits(call, rank,
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
ucs_status_t uct_cuda_coll_agree_idle(void *arg)
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

/* --------------------------------------------------------------- agreement */

/* Has every rank come to the page before this call, so that it says there what
   it does? The first call with GPU buffers gives the others' first ones a
   moment: who sees them on all ranks at once need stage none. A rank whose
   buffers are in host memory may not come. */
bool uct_cuda_coll_agree_is_whole(call_t *call)
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
        uct_cuda_coll_agree_waits(call, rank,
                                  "brought GPU memory to the communicator");
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
uct_cuda_coll_result_t uct_cuda_coll_agree(call_t *call)
{
    uct_cuda_coll_group_t *group = call->group;
    unsigned rank;

    call->spins = 0;
    for (rank = 0; rank < group->size; ++rank) {
        uct_cuda_coll_agree_waits(call, rank, "come to this call");
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

/* -------------------------------------------------------------------- GPUs */

/* Rank 0 sees the node for all */
void uct_cuda_coll_agree_tell_topo(uct_cuda_coll_group_t *group)
{
    uct_cuda_coll_common_t *common = uct_cuda_coll_page_common(group->page);
    const uct_cuda_topo_t *topo    = uct_cuda_topo_get();

    if ((topo != NULL) && !common->has_topo) {
        common->topo     = *topo;
        common->has_topo = true;
    }
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
void uct_cuda_coll_agree_find_gpus(uct_cuda_coll_group_t *group)
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
