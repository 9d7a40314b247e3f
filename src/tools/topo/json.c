/* SPDX-License-Identifier: BSD-3-Clause */
/* Print the node as JSON: the probed data, and the links and limits derived
   from it. */
#include "tool.h"

#include <uct/cuda/plan/tuning.h>

#include <stdlib.h>


#define GIGA 1e9


static void put_text(const char *text, FILE *stream)
{
    fputc('"', stream);
    for (; *text != '\0'; ++text) {
        if ((*text == '"') || (*text == '\\')) {
            fprintf(stream, "\\%c", *text);
        } else if ((unsigned char)*text >= ' ') {
            fputc(*text, stream);
        }
    }
    fputc('"', stream);
}

static void put_bus_id(const uct_cuda_bus_id_t *bus_id, FILE *stream)
{
    char text[32];

    fprintf(stream, "\"%s\"",
            uct_cuda_bus_id_str(bus_id, text, sizeof(text)));
}

/* Print an index, or null. */
static void put_index(int index, FILE *stream)
{
    if (index == UCT_CUDA_WIRING_NONE) {
        fprintf(stream, "null");
    } else {
        fprintf(stream, "%d", index);
    }
}

static void put_pcie(const uct_cuda_wiring_pcie_t *pcie, FILE *stream)
{
    fprintf(stream, "{\"generation\": %u, \"width\": %u}", pcie->generation,
            pcie->width);
}

static void put_link(const uct_cuda_topo_link_t *link, FILE *stream)
{
    const char *comma = "";
    int i;

    fprintf(stream,
            "{\"gbps\": %.3f, \"latency_us\": %.2f, \"doubtful\": %s, "
            "\"limits\": [",
            link->bandwidth / GIGA, link->latency * 1e6,
            link->is_doubtful ? "true" : "false");
    for (i = 0; i < UCT_CUDA_TOPO_LINK_LIMITS; ++i) {
        if (link->limits[i] != UCT_CUDA_TOPO_NO_LIMIT) {
            fprintf(stream, "%s%d", comma, link->limits[i]);
            comma = ", ";
        }
    }
    fprintf(stream, "]}");
}

static void put_gpu(const ucx_mp_topo_node_t *node, int index, FILE *stream)
{
    static const char *ends[] = {"gpu", "switch", "cpu", "hidden", "unknown"};
    const uct_cuda_wiring_gpu_t *gpu = &node->wiring.gpus[index];
    const uct_cuda_topo_gpu_t *drawn = &node->topo.gpus[index];
    const uct_cuda_wiring_peer_t *peer;
    char how[32];
    unsigned i;

    fprintf(stream, "    {\"gpu\": %d, \"name\": ", index);
    put_text(gpu->name, stream);
    fprintf(stream, ", \"sm\": %d, \"memory_mib\": %zu, \"bus_id\": ", gpu->sm,
            gpu->memory >> 20);
    put_bus_id(&gpu->bus_id, stream);
    fprintf(stream, ", \"uuid\": \"");
    for (i = 0; i < sizeof(gpu->uuid); ++i) {
        fprintf(stream, "%02x", gpu->uuid[i]);
    }
    fprintf(stream, "\",\n     \"numa\": %d, \"home\": ", drawn->numa);
    put_index(gpu->numa, stream);
    fprintf(stream, ", \"pci_switch\": ");
    put_index(gpu->pci_switch, stream);
    fprintf(stream, ", \"pcie\": ");
    put_pcie(&gpu->pcie, stream);
    fprintf(stream, ", \"mig\": %s,\n     \"nvlink\": {\"version\": %u, "
                    "\"rate_gbps\": %.3f, \"down\": %u, \"to\": [",
            gpu->is_mig ? "true" : "false", gpu->nvlink_version,
            gpu->nvlink_rate / GIGA, gpu->nvlinks_down);
    for (i = 0; i < gpu->num_peers; ++i) {
        peer = &gpu->peers[i];
        fprintf(stream, "%s{\"what\": \"%s\", \"gpu\": ", (i > 0) ? ", " : "",
                ends[peer->end]);
        put_index(peer->gpu, stream);
        fprintf(stream, ", \"count\": %u, \"bus_id\": ", peer->count);
        put_bus_id(&peer->bus_id, stream);
        fprintf(stream, "}");
    }
    fprintf(stream, "]},\n     \"c2c\": {\"count\": %u, \"rate_gbps\": %.3f}",
            gpu->num_c2c, gpu->c2c_rate / GIGA);
    fprintf(stream, ",\n     \"host_how\": \"%s\", \"to_host\": ",
            ucx_mp_topo_host_str(&node->wiring, index, how, sizeof(how)));
    put_link(&drawn->to_host, stream);
    fprintf(stream, ", \"from_host\": ");
    put_link(&drawn->from_host, stream);
    fprintf(stream, "}");
}

static void put_hardware(const ucx_mp_topo_node_t *node, FILE *stream)
{
    const uct_cuda_wiring_t *wiring = &node->wiring;
    const uct_cuda_wiring_switch_t *sw;
    int i, limit;

    fprintf(stream, "  \"gpus\": [\n");
    for (i = 0; i < wiring->num_gpus; ++i) {
        put_gpu(node, i, stream);
        fprintf(stream, (i + 1 < wiring->num_gpus) ? ",\n" : "],\n");
    }

    fprintf(stream, "  \"hidden_gpus\": %d,\n  \"pci_switches\": [",
            wiring->num_hidden);
    for (i = 0; i < wiring->num_switches; ++i) {
        sw = &wiring->switches[i];
        fprintf(stream, "%s\n    {\"bus_id\": ", (i > 0) ? "," : "");
        put_bus_id(&sw->bus_id, stream);
        fprintf(stream, ", \"parent\": ");
        put_index(sw->parent, stream);
        fprintf(stream, ", \"numa\": ");
        put_index((sw->numa != UCT_CUDA_WIRING_NONE) ?
                          wiring->numa[sw->numa].os_index :
                          UCT_CUDA_WIRING_NONE,
                  stream);
        fprintf(stream, ", \"pcie\": ");
        put_pcie(&sw->pcie, stream);
        fprintf(stream, "}");
    }

    fprintf(stream, "],\n  \"numa\": [");
    for (i = 0; i < wiring->num_numa; ++i) {
        fprintf(stream, "%s{\"node\": %d, \"socket\": %d}", (i > 0) ? ", " : "",
                wiring->numa[i].os_index, wiring->numa[i].socket);
    }

    /* Links between each NUMA node and the next */
    fprintf(stream, "],\n  \"sockets_gbps\": [");
    for (i = 1; i < wiring->num_numa; ++i) {
        limit = node->topo.sockets[i - 1][i];
        fprintf(stream, "%s%.3f", (i > 1) ? ", " : "",
                (limit == UCT_CUDA_TOPO_NO_LIMIT) ?
                        0 :
                        node->topo.limits[limit] / GIGA);
    }
    fprintf(stream, "],\n");
}

void ucx_mp_topo_json(const ucx_mp_topo_node_t *node,
                      const ucx_mp_topo_near_t *near,
                      const ucx_mp_topo_plan_t *plan,
                      const ucx_mp_topo_collective_t *collective,
                      const char *name,
                      FILE *stream)
{
    static const char *kinds[]  = {
        [UCT_CUDA_TOPO_LIMIT_NVLINK] = "nvlink",
        [UCT_CUDA_TOPO_LIMIT_HOST]   = "host",
        [UCT_CUDA_TOPO_LIMIT_MEMORY] = "memory",
        [UCT_CUDA_TOPO_LIMIT_SOCKET] = "socket"
    };
    const uct_cuda_topo_t *topo   = &node->topo;
    uct_cuda_plan_tuning_t *table = uct_cuda_plan_tuning_create(topo);
    const char *comma             = "";
    char how[16];
    int i, j;

    if (table == NULL) {
        ucx_mp_tool_die(UCX_MP_TOOL_FAILED, "out of memory");
    }

    /* Names of the node and its pairs in tuning tables */
    fprintf(stream, "{\n  \"node\": \"%s\",\n", table->node);
    put_hardware(node, stream);
    ucx_mp_topo_near_json(node, near, stream);
    fprintf(stream, "  \"links\": [");
    for (i = 0; i < topo->num_gpus; ++i) {
        for (j = 0; j < topo->num_gpus; ++j) {
            if (i != j) {
                fprintf(stream,
                        "%s\n    {\"from\": %d, \"to\": %d, \"access\": %s, "
                        "\"atomics\": %s, \"rank\": %d, \"how\": \"%s\", "
                        "\"link\": ",
                        comma, i, j,
                        node->wiring.access[i][j] ? "true" : "false",
                        node->wiring.atomics[i][j] ? "true" : "false",
                        node->wiring.rank[i][j],
                        ucx_mp_topo_pair_str(&node->wiring, i, j, how,
                                             sizeof(how)));
                put_link(&topo->links[i][j], stream);
                if (table->class_of[i][j] >= 0) {
                    fprintf(stream, ", \"class\": \"%s\"",
                            table->classes[table->class_of[i][j]]);
                }
                fprintf(stream, "}");
                comma = ",";
            }
        }
    }

    free(table);
    fprintf(stream, "],\n  \"limits_gbps\": [");
    for (i = 0; i < topo->num_limits; ++i) {
        fprintf(stream, "%s%.3f", (i > 0) ? ", " : "", topo->limits[i] / GIGA);
    }
    fprintf(stream, "],\n  \"limits_of\": [");
    for (i = 0; i < topo->num_limits; ++i) {
        fprintf(stream, "%s\"%s\"", (i > 0) ? ", " : "",
                kinds[topo->kinds[i]]);
    }
    fprintf(stream, "]");
    if (plan != NULL) {
        ucx_mp_topo_plan_json(plan, stream);
    }
    if (collective != NULL) {
        ucx_mp_topo_collective_json(collective, name, stream);
    }
    fprintf(stream, "\n}\n");
}
