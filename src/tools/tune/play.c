/* SPDX-License-Identifier: BSD-3-Clause */
/* Time the executors' calls by the emulated node's timing core. */
#include "play.h"

#include <common/common.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>


/* Operations at once: the pieces of a gigabyte */
#define MAX_OPS (16 * UCT_CUDA_PLAN_MAX_STEPS)

#define MAX_DEPS (UCT_CUDA_PLAN_NUM_LINKS + 2)

#define MAX_PLACES (UCT_CUDA_MAX_GPUS + CUEMU_MAX_NUMA)


/* Staging memory of a GPU or NUMA node */
typedef struct {
    unsigned      next; /* first slot of the next plan */
    cuemu_op_id_t drained[UCT_CUDA_PLAN_STAGING_SLOTS];
} staging_t;


struct ucx_mp_player {
    cuemu_sim_t   *sim;
    void          *memory;
    const cuemu_cost_t *cost;                     /* cost of each call */
    int           gpu[UCT_CUDA_MAX_GPUS];    /* GPU of the node, by ordinal */
    int           num_numa;
    cuemu_time_t  begin;
    cuemu_time_t  cpu;                            /* time of the calling
                                                     processor */
    bool          is_graph;
    unsigned      num_used;
    uint16_t      used[UCT_CUDA_PLAN_NUM_LINKS];    /* in order of first use */
    cuemu_op_id_t last[UCT_CUDA_PLAN_NUM_LINKS];
    cuemu_op_id_t steps[UCT_CUDA_PLAN_MAX_STEPS];
    unsigned      num_paths;                      /* paths of the last piece */
    staging_t     staging[MAX_PLACES];
};


static int find_gpu(const cuemu_node_t *node, const uct_cuda_topo_gpu_t *gpu)
{
    char busid[CUEMU_BUSID_SIZE];
    int i;

    snprintf(busid, sizeof(busid), "%04x:%02x:%02x.%x",
             gpu->pci_domain & 0xffff, gpu->pci_bus, gpu->pci_device & 0x1f,
             gpu->pci_function & 7);
    for (i = 0; i < node->num_gpus; ++i) {
        if (strcmp(node->gpus[i].busid, busid) == 0) {
            return i;
        }
    }

    ucx_mp_tool_die(UCX_MP_TOOL_FAILED, "the node file has no GPU at %s",
                    busid);
}

ucx_mp_player_t *ucx_mp_player_create(const cuemu_node_t *node,
                                      const uct_cuda_topo_t *topo)
{
    size_t size             = cuemu_sim_size(MAX_OPS);
    ucx_mp_player_t *player = calloc(1, sizeof(*player));
    int i;

    if ((player == NULL) || (posix_memalign(&player->memory, 64, size) != 0)) {
        ucx_mp_tool_die(UCX_MP_TOOL_FAILED, "out of memory");
    }

    if (cuemu_sim_init(player->memory, size, node, MAX_OPS, &player->sim) !=
        CUEMU_OK) {
        ucx_mp_tool_die(UCX_MP_TOOL_FAILED, "the timing core does not start");
    }

    player->cost     = &cuemu_sim_node(player->sim)->cost;
    player->num_numa = node->num_numa;
    for (i = 0; i < topo->num_gpus; ++i) {
        player->gpu[i] = find_gpu(node, &topo->gpus[i]);
    }

    return player;
}

void ucx_mp_player_destroy(ucx_mp_player_t *player)
{
    free(player->memory);
    free(player);
}

static void call(ucx_mp_player_t *player, cuemu_call_t which)
{
    player->cpu += player->cost->call[which];
}

/* Advance the processor's time by a call of the streams executor; a graph has a
 * node instead. */
static void call_stream(ucx_mp_player_t *player, cuemu_call_t which)
{
    if (!player->is_graph) {
        call(player, which);
    }
}

/* A copy may start once the call that submits it has returned */
static cuemu_op_id_t add(ucx_mp_player_t *player, cuemu_op_desc_t *desc,
                         const cuemu_op_id_t *deps, unsigned num_deps)
{
    cuemu_op_id_t id;
    cuemu_status_t status;

    desc->not_before = player->cpu;
    status = cuemu_sim_op_add(player->sim, player->begin, desc, deps, num_deps,
                              &id);
    if (status != CUEMU_OK) {
        ucx_mp_tool_die(UCX_MP_TOOL_FAILED,
                        "a copy from place %d to %d cannot be modelled: %s",
                        desc->src, desc->dst, cuemu_status_string(status));
    }

    return id;
}

static cuemu_place_t link_place(const ucx_mp_player_t *player,
                                uct_cuda_end_t end, int numa)
{
    if (uct_cuda_end_is_gpu(end)) {
        return CUEMU_PLACE_GPU(player->gpu[uct_cuda_end_device(end)]);
    }

    return CUEMU_PLACE_NUMA((numa < player->num_numa) ? numa : 0);
}

/* Return the staging memory of a GPU or, outside the GPUs, of a NUMA node. */
static staging_t *
end_staging(ucx_mp_player_t *player, uct_cuda_end_t end, int numa)
{
    return &player->staging[uct_cuda_end_is_gpu(end) ?
                                    uct_cuda_end_device(end) :
                                    UCT_CUDA_MAX_GPUS + numa % CUEMU_MAX_NUMA];
}

static cuemu_op_id_t *slot_drained(ucx_mp_player_t *player,
                                   const uct_cuda_plan_t *plan,
                                   const uct_cuda_plan_place_t *place)
{
    staging_t *staging;

    if (place->buffer != UCT_CUDA_BUFFER_SCRATCH) {
        return NULL;
    }

    staging = end_staging(player, uct_cuda_end_at(place->owner), plan->numa);
    return &staging->drained[(staging->next + place->slot) %
                             UCT_CUDA_PLAN_STAGING_SLOTS];
}

static void use_link(ucx_mp_player_t *player, uint16_t link)
{
    unsigned i;

    for (i = 0; i < player->num_used; ++i) {
        if (player->used[i] == link) {
            return;
        }
    }

    player->used[player->num_used++] = link;
}

static void submit_step(ucx_mp_player_t *player, const uct_cuda_plan_t *plan,
                        unsigned number, bool is_awaited)
{
    const uct_cuda_plan_step_t *step = &plan->steps[number];
    cuemu_op_id_t *drained           = slot_drained(
            player, plan, uct_cuda_plan_to(plan, number));
    cuemu_op_desc_t desc        = {.kind = CUEMU_OP_COPY};
    unsigned num_deps           = 0;
    cuemu_op_id_t deps[3];

    deps[num_deps++] = player->last[step->queue];
    if (uct_cuda_plan_step_has_wait(plan, number)) {
        call_stream(player, CUEMU_CALL_STREAM_WAIT);
        deps[num_deps++] = player->steps[plan->waits[number]];
    }

    if (drained != NULL) {
        call_stream(player, CUEMU_CALL_STREAM_WAIT);
        deps[num_deps++] = *drained;
    }

    if (num_deps > 1) {
        desc.flags |= CUEMU_OP_CROSS_STREAM;
    }

    if (player->is_graph) {
        player->cpu += player->cost->graph_launch_node;
    } else {
        call(player, CUEMU_CALL_COPY_ASYNC);
    }

    desc.src   = link_place(player, uct_cuda_plan_link_from(step->queue),
                            plan->numa);
    desc.dst   = link_place(player, uct_cuda_plan_link_to(step->queue),
                            plan->numa);
    desc.bytes = step->bytes;

    player->steps[number]     = add(player, &desc, deps, num_deps);
    player->last[step->queue]  = player->steps[number];
    use_link(player, step->queue);
    if (is_awaited) {
        call_stream(player, CUEMU_CALL_EVENT_RECORD);
    }
}

void ucx_mp_player_begin(ucx_mp_player_t *player, bool is_graph)
{
    player->is_graph = is_graph;
    player->begin    = cuemu_sim_time(player->sim);
    player->cpu      = player->begin;
    player->num_used = 0;
    memset(player->last, 0, sizeof(player->last));
    memset(player->staging, 0, sizeof(player->staging));
}

void ucx_mp_player_submit(ucx_mp_player_t *player,
                          const uct_cuda_plan_t *plan)
{
    bool is_awaited[UCT_CUDA_PLAN_MAX_STEPS];
    const uct_cuda_plan_path_share_t *path;
    cuemu_op_id_t *drained;
    staging_t *staging;
    unsigned i;

    call(player, CUEMU_CALL_CTX_SWITCH);
    if (player->is_graph) {
        call(player, CUEMU_CALL_GRAPH_LAUNCH);
    }

    uct_cuda_plan_awaited(plan, is_awaited);
    player->num_paths = plan->num_paths;
    for (i = 0; i < plan->num_steps; ++i) {
        submit_step(player, plan, i, is_awaited[i]);
    }

    /* The next user of a slot waits for the last copy out of it */
    for (i = 0; i < plan->num_steps; ++i) {
        drained = slot_drained(player, plan, uct_cuda_plan_from(plan, i));
        if (drained != NULL) {
            *drained = player->steps[i];
        }
    }

    for (i = 0; i < plan->num_paths; ++i) {
        path = &plan->paths[i];
        if (path->slots > 0) {
            staging        = end_staging(player, path->via, plan->numa);
            staging->next += path->slots;
        }
    }
}

/* Run the simulation up to this operation; returns its seconds. */
static double finish(ucx_mp_player_t *player, cuemu_op_id_t op)
{
    cuemu_time_t end;

    while (!cuemu_sim_op_done(player->sim, op)) {
        (void)cuemu_sim_advance(player->sim, cuemu_sim_next(player->sim));
    }

    end = cuemu_sim_op_end_time(player->sim, op);
    cuemu_sim_op_release(player->sim, op);
    return (double)(end - player->begin +
                    player->cost->call[CUEMU_CALL_QUERY_DONE]) /
           (double)CUEMU_PS_PER_SEC;
}

/* Add an event behind each stream that writes to the destination, and wait. */
double ucx_mp_player_finish(ucx_mp_player_t *player)
{
    cuemu_op_desc_t all = {
        .kind = CUEMU_OP_MARK, .flags = CUEMU_OP_HOLD
    };
    cuemu_op_id_t deps[MAX_DEPS];
    unsigned i;

    call(player, CUEMU_CALL_CTX_SWITCH);
    for (i = 0; i < player->num_used; ++i) {
        deps[i] = player->last[player->used[i]];
    }

    for (i = 0; i < player->num_paths; ++i) {
        call(player, CUEMU_CALL_EVENT_RECORD);
    }

    return finish(player, add(player, &all, deps, player->num_used));
}

double ucx_mp_player_single(ucx_mp_player_t *player, int src_device,
                            int dst_device, size_t size)
{
    cuemu_op_desc_t desc = {
        .kind  = CUEMU_OP_COPY,
        .flags = CUEMU_OP_HOLD,
        .src   = CUEMU_PLACE_GPU(player->gpu[src_device]),
        .dst   = CUEMU_PLACE_GPU(player->gpu[dst_device]),
        .bytes = size
    };

    ucx_mp_player_begin(player, false);
    call(player, CUEMU_CALL_CTX_SWITCH);
    call(player, CUEMU_CALL_COPY_ASYNC);
    return finish(player, add(player, &desc, NULL, 0));
}
