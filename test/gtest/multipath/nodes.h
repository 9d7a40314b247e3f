/* SPDX-License-Identifier: BSD-3-Clause */
/* Nodes for the engine's tests, described by hand. */
#ifndef TEST_MULTIPATH_NODES_H
#define TEST_MULTIPATH_NODES_H

#include <uct/cuda/base/topo.h>
#include <uct/cuda/plan/transfer_paths.h>
#include <uct/cuda/plan/transfer_planner.h>

#include "end.h"

#include <gtest/gtest.h>
#include <string>


const double GB = 1e9;

const size_t KiB = 1ul << 10;
const size_t MiB = 1ul << 20;


/** Every pair of GPUs has links of its own; each GPU has a PCIe link. */
inline uct_cuda_topo_t mesh_node(int num_gpus, double nvlink, double pcie)
{
    uct_cuda_topo_t topo;

    uct_cuda_topo_init(&topo, num_gpus);
    for (int i = 0; i < num_gpus; ++i) {
        int up   = uct_cuda_topo_add_limit(&topo, UCT_CUDA_TOPO_LIMIT_HOST,
                                           pcie);
        int down = uct_cuda_topo_add_limit(&topo, UCT_CUDA_TOPO_LIMIT_HOST,
                                           pcie);

        uct_cuda_topo_set_host(&topo, i, pcie, up, down);
        for (int j = 0; j < num_gpus; ++j) {
            if (i != j) {
                uct_cuda_topo_set_link(&topo, i, j, nvlink,
                                       UCT_CUDA_TOPO_NO_LIMIT,
                                       UCT_CUDA_TOPO_NO_LIMIT);
            }
        }
    }

    return topo;
}


/** Every GPU has all its links to one switch. */
inline uct_cuda_topo_t switch_node(int num_gpus, double ports, double pcie)
{
    uct_cuda_topo_t topo = mesh_node(num_gpus, ports, pcie);
    int out[UCT_CUDA_MAX_GPUS], in[UCT_CUDA_MAX_GPUS];

    for (int i = 0; i < num_gpus; ++i) {
        out[i] = uct_cuda_topo_add_limit(&topo, UCT_CUDA_TOPO_LIMIT_NVLINK,
                                         ports);
        in[i]  = uct_cuda_topo_add_limit(&topo, UCT_CUDA_TOPO_LIMIT_NVLINK,
                                         ports);
    }

    for (int i = 0; i < num_gpus; ++i) {
        for (int j = 0; j < num_gpus; ++j) {
            if (i != j) {
                uct_cuda_topo_set_link(&topo, i, j, ports, out[i], in[j]);
            }
        }
    }

    return topo;
}


/** GPUs with PCIe only: copies between GPUs share links with copies to the
 *  host. */
inline uct_cuda_topo_t pcie_node(int num_gpus, double pcie)
{
    uct_cuda_topo_t topo = mesh_node(num_gpus, pcie, pcie);

    for (int i = 0; i < num_gpus; ++i) {
        for (int j = 0; j < num_gpus; ++j) {
            if (i != j) {
                uct_cuda_topo_set_link(&topo, i, j, pcie,
                                       topo.gpus[i].to_host.limits[0],
                                       topo.gpus[j].from_host.limits[0]);
            }
        }
    }

    return topo;
}


/* 4 x V100, two NVLink 2 between every pair, PCIe 3 */
inline uct_cuda_topo_t beluga()
{
    return mesh_node(4, 48 * GB, 12 * GB);
}

/* 4 x H200 behind NVSwitches, PCIe 5 */
inline uct_cuda_topo_t hgx()
{
    return switch_node(4, 396 * GB, 55 * GB);
}


/** Two sockets, each with two GPUs linked to each other and to their processor.
 *  Traffic to the other socket's GPUs shares the link between the sockets. */
inline uct_cuda_topo_t two_sockets(double nvlink, double cpu, double between)
{
    uct_cuda_topo_t topo = mesh_node(4, nvlink, cpu);
    int there = uct_cuda_topo_add_limit(&topo, UCT_CUDA_TOPO_LIMIT_SOCKET,
                                        between);
    int back  = uct_cuda_topo_add_limit(&topo, UCT_CUDA_TOPO_LIMIT_SOCKET,
                                        between);

    topo.num_numa = 2;
    for (int n = 0; n < 2; ++n) {
        topo.numa[n].os_index = topo.numa[n].socket = n;
        topo.numa[n].read = topo.numa[n].write = UCT_CUDA_TOPO_NO_LIMIT;
    }
    topo.sockets[0][1] = (int16_t)there;
    topo.sockets[1][0] = (int16_t)back;
    for (int i = 0; i < 4; ++i) {
        topo.gpus[i].numa = i / 2;
        for (int j = 0; j < 4; ++j) {
            if (i / 2 != j / 2) {
                uct_cuda_topo_set_link(&topo, i, j, cpu,
                                       topo.gpus[i].to_host.limits[0],
                                       topo.gpus[j].from_host.limits[0]);
                uct_cuda_topo_link_add_limit(&topo, &topo.links[i][j],
                                             (i < 2) ? there : back);
            }
        }
    }

    return topo;
}


/** Configuration from "NAME=value" texts; names omit the prefix with
 *  MULTIPATH. */
class Config
{
public:
    Config()
    {
        uct_cuda_plan_config_init(&m_config);
        set("_TUNING_FILE", ""); /* independent of installed tables */
        set("_START", "wait");   /* the first transfer behaves like later
                                    ones */
    }

    Config &set(const std::string &name, const std::string &value)
    {
        char error[256] = "";

        EXPECT_EQ(UCS_OK,
                  uct_cuda_plan_config_set(&m_config,
                                           ("MULTIPATH" + name).c_str(),
                                           value.c_str(), error, sizeof(error)))
                << error;
        return *this;
    }

    operator const uct_cuda_plan_config_t *() const
    {
        return &m_config;
    }

    const uct_cuda_plan_config_t *operator->() const
    {
        return &m_config;
    }

private:
    uct_cuda_plan_config_t m_config;
};


/** Return the paths of a plan as text, in the plan's order. */
inline std::string path_names(const uct_cuda_plan_t &plan)
{
    std::string text;
    char name[16];

    for (unsigned i = 0; i < plan.num_paths; ++i) {
        text += (i ? "," : "");
        text += uct_cuda_plan_path_str(plan.paths[i].via, name, sizeof(name));
    }
    return text;
}


/** The planner's input for one call. */
class Know
{
public:
    Know(const uct_cuda_topo_t &topo, const uct_cuda_plan_config_t *config,
         const uct_cuda_plan_load_t *load     = NULL,
         const uct_cuda_plan_tuning_t *tuning = NULL, const int *numa = NULL) :
        m_know()
    {
        m_know.numa   = numa;
        m_know.topo   = &topo;
        m_know.config = config;
        m_know.load   = load;
        m_know.tuning = tuning;
    }

    operator const uct_cuda_plan_knowledge_t *() const
    {
        return &m_know;
    }

private:
    uct_cuda_plan_knowledge_t m_know;
};

#endif
