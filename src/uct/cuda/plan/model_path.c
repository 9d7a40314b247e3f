/* SPDX-License-Identifier: BSD-3-Clause */
/* Links, limits, other traffic and constants of a path. */
#include <uct/cuda/plan/model_path.h>

#include <ucs/sys/math.h>

#include <float.h>
#include <string.h>


typedef uct_cuda_plan_query_t      query_t;
typedef uct_cuda_plan_model_path_t candidate_t;


double uct_cuda_plan_model_limit(const query_t *query, int limit)
{
    const uct_cuda_plan_model_t *model = query->model;
    const double bandwidth             = query->topo->limits[limit];

    switch (query->topo->kinds[limit]) {
    case UCT_CUDA_TOPO_LIMIT_NVLINK:
        return bandwidth * model->gpu_efficiency;
    case UCT_CUDA_TOPO_LIMIT_HOST:
        return bandwidth * model->host_efficiency;
    case UCT_CUDA_TOPO_LIMIT_SOCKET:
        return bandwidth * model->socket_efficiency;
    default:
        /* host memory gives at least its probed value; the efficiency below 1
         * may belong to another limit */
        return bandwidth * ucs_max(model->host_efficiency, 1);
    }
}

bool uct_cuda_plan_load_is_crossed(const uct_cuda_plan_load_t *load,
                                   uct_cuda_end_t src, uct_cuda_end_t dst)
{
    uct_cuda_end_t end;
    unsigned i;

    for (i = 0; i < UCT_CUDA_NUM_ENDS; ++i) {
        end = uct_cuda_end_at(i);
        if ((load->active[uct_cuda_plan_link(end, src)] != 0) ||
            (load->active[uct_cuda_plan_link(dst, end)] != 0)) {
            return true;
        }
    }

    return false;
}

/* Add the use of limits by other transfers on a link */
static void add_others(query_t *query, uint16_t link)
{
    const uct_cuda_end_t from = uct_cuda_plan_link_from(link);
    const uct_cuda_end_t to   = uct_cuda_plan_link_to(link);
    const uct_cuda_topo_link_t *wire;
    int i;

    if (uct_cuda_end_equal(from, to)) {
        return;
    }

    wire = uct_cuda_topo_link(query->topo, from, to);
    for (i = 0; i < UCT_CUDA_TOPO_LINK_LIMITS; ++i) {
        if (wire->limits[i] != UCT_CUDA_TOPO_NO_LIMIT) {
            query->others[wire->limits[i]] += query->load->active[link];
            query->direct[wire->limits[i]] += query->load->direct[link];
        }
    }
}

/* Compute the shared limits left by other transfers */
void uct_cuda_plan_model_start(query_t *query)
{
    static const uint8_t idle[16] = {0};
    const uct_cuda_topo_t *topo   = query->topo;
    uint16_t link;
    int i;

    query->queued = (query->load == NULL) ? 0 : query->load->queued;
    memset(query->others, 0, sizeof(query->others));
    memset(query->direct, 0, sizeof(query->direct));
    for (i = 0; i < topo->num_limits; ++i) {
        query->limits[i] = uct_cuda_plan_model_limit(query, i);
    }

    if (query->load == NULL) {
        return;
    }

    for (link = 0; link < UCT_CUDA_PLAN_NUM_LINKS; ++link) {
        /* skip idle links 16 at a time */
        while ((link + sizeof(idle) <= UCT_CUDA_PLAN_NUM_LINKS) &&
               (memcmp(&query->load->active[link], idle, sizeof(idle)) == 0)) {
            link += sizeof(idle);
        }

        if ((link < UCT_CUDA_PLAN_NUM_LINKS) &&
            (query->load->active[link] != 0)) {
            add_others(query, link);
        }
    }

    for (i = 0; i < topo->num_limits; ++i) {
        query->limits[i] /= 1 + query->others[i];
    }
}

/* Return the bytes/s of a link without traffic: its own value within the shared
 * limits. A link between sockets has shared limits only. */
static double hop_bandwidth(const query_t *query, uint16_t link,
                            const uct_cuda_topo_link_t *wire)
{
    const bool is_host =
            uct_cuda_plan_ends_host(uct_cuda_plan_link_from(link),
                                    uct_cuda_plan_link_to(link));
    bool is_own        = true;
    double limit       = DBL_MAX;
    double own;
    unsigned i;

    for (i = 0; i < UCT_CUDA_TOPO_LINK_LIMITS; ++i) {
        if (wire->limits[i] != UCT_CUDA_TOPO_NO_LIMIT) {
            limit  = ucs_min(limit,
                                uct_cuda_plan_model_limit(query,
                                                          wire->limits[i]));
            is_own = is_own && (query->topo->kinds[wire->limits[i]] !=
                                UCT_CUDA_TOPO_LIMIT_SOCKET);
        }
    }

    own = wire->bandwidth * (is_host ? query->model->host_efficiency :
                                       query->model->gpu_efficiency);
    return is_own ? ucs_min(own, limit) : limit;
}

/* Return a hop's latency, s. Probed latencies include the built-in constants:
 * replace them by the model's. */
static double hop_latency(const query_t *query,
                          const uct_cuda_topo_link_t *wire)
{
    const uct_cuda_plan_model_t *builtin = &uct_cuda_plan_model_builtin;
    const uct_cuda_plan_model_t *model   = query->model;

    return wire->latency + model->submit_copy - builtin->submit_copy +
           model->poll - builtin->poll;
}

static void candidate_add_hop(const query_t *query, candidate_t *candidate,
                              uct_cuda_end_t from, uct_cuda_end_t to)
{
    uint16_t link             = uct_cuda_plan_link(from, to);
    uct_cuda_topo_link_t wire = uct_cuda_topo_numa_link(query->topo, from, to,
                                                        query->numa);
    double bandwidth          = hop_bandwidth(query, link, &wire);
    unsigned i;

    if (query->load != NULL) {
        bandwidth          /= 1 + query->load->active[link];
        candidate->is_busy |= (query->load->active[link] > 0);
        candidate->is_taken |= (query->load->direct[link] > 0);
    }

    if ((candidate->hops == 0) || (bandwidth < candidate->cap)) {
        candidate->cap = bandwidth;
    }

    candidate->rates[candidate->hops]   = bandwidth;
    candidate->links[candidate->hops++] = link;
    candidate->latency                 += hop_latency(query, &wire);
    for (i = 0; i < UCT_CUDA_TOPO_LINK_LIMITS; ++i) {
        if (wire.limits[i] != UCT_CUDA_TOPO_NO_LIMIT) {
            candidate->way.resources[candidate->way.count++] = wire.limits[i];
            candidate->is_taken |= (query->direct[wire.limits[i]] > 0);
        }
    }
}

bool uct_cuda_plan_model_path(const query_t *query, uct_cuda_end_t via,
                              candidate_t *candidate)
{
    const bool is_direct = uct_cuda_end_is_none(via);
    const bool is_host   = uct_cuda_plan_ends_host(query->src, query->dst);

    /* host memory has links to GPUs only */
    if (!is_direct && (!uct_cuda_topo_has_end(query->topo, via) ||
                       (is_host && !uct_cuda_end_is_gpu(via)) ||
                       uct_cuda_end_equal(via, query->src) ||
                       uct_cuda_end_equal(via, query->dst))) {
        return false;
    }

    memset(candidate, 0, sizeof(*candidate));
    candidate->via = via;
    if (is_direct) {
        candidate_add_hop(query, candidate, query->src, query->dst);
    } else {
        candidate_add_hop(query, candidate, query->src, via);
        candidate_add_hop(query, candidate, via, query->dst);
    }

    if (uct_cuda_end_is_host(via)) {
        candidate->gap      = query->model->gap_host;
        candidate->latency += query->model->start_host;
        candidate->margin    = query->model->doubt_host;
    } else if (is_host && (candidate->hops > 1)) {
        /* one of its links is to the host, with the host's gaps */
        candidate->gap      = query->model->gap_host;
        candidate->latency += query->model->start_relay;
        candidate->is_free[uct_cuda_end_is_host(query->src) ? 1 : 0] = true;
        if ((query->load == NULL) || (query->load->window < 2)) {
            candidate->margin = query->model->doubt_relay;
        }
    } else {
        candidate->gap = query->model->gap_gpu;
    }

    return candidate->cap > 0;
}
