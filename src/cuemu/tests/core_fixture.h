/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A node and its simulation, on the virtual clock.
 */
#ifndef CUEMU_CORE_FIXTURE_H_
#define CUEMU_CORE_FIXTURE_H_

#include <cuemu_core.h>

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

static const double US  = 1e6; /* in picoseconds */
static const double MIB = 1048576.0;

class core_node {
public:
    explicit core_node(const std::string &name) : m_node(new cuemu_node_t)
    {
        const char *dir = getenv("CUEMU_NODES");
        char error[CUEMU_ERRBUF_SIZE];

        m_path = std::string((dir == NULL) ? "nodes" : dir) + "/" + name +
                 ".xml";
        EXPECT_EQ(CUEMU_OK, cuemu_node_load(m_path.c_str(), m_node.get(),
                                            error)) << error;
    }

    cuemu_node_t &operator*()
    {
        return *m_node;
    }

    cuemu_node_t *operator->()
    {
        return m_node.get();
    }

    const cuemu_route_t &route(cuemu_place_t src, cuemu_place_t dst)
    {
        return *cuemu_node_route(m_node.get(), src, dst);
    }

    /* return a link's index by its name */
    int link(const std::string &name)
    {
        for (int i = 0; i < m_node->num_links; ++i) {
            if (name == m_node->links[i].name) {
                return i;
            }
        }
        ADD_FAILURE() << "no link " << name;
        return 0;
    }

    /* remove all fixed times, so that expected times are exact */
    void no_fixed_times()
    {
        for (auto &from : m_node->routes) {
            for (auto &route : from) {
                route.launch = route.setup = route.complete = 0;
            }
        }
        m_node->cost.cross_stream = 0;
    }

private:
    std::unique_ptr<cuemu_node_t> m_node;
    std::string                   m_path;
};

class core_sim {
public:
    explicit core_sim(const cuemu_node_t &node, uint32_t max_ops = 256)
    {
        size_t size = cuemu_sim_size(max_ops);

        m_mem = aligned_alloc(64, size);
        EXPECT_EQ(CUEMU_OK, cuemu_sim_init(m_mem, size, &node, max_ops, &sim));
    }

    ~core_sim()
    {
        free(m_mem);
    }

    core_sim(const core_sim&) = delete;

    cuemu_op_id_t add(const cuemu_op_desc_t &desc,
                      std::vector<cuemu_op_id_t> deps = {},
                      cuemu_time_t now = 0)
    {
        cuemu_op_id_t id = 0;

        EXPECT_EQ(CUEMU_OK,
                  cuemu_sim_op_add(sim, now, &desc, deps.data(),
                                   (unsigned)deps.size(), &id));
        return id;
    }

    static cuemu_op_desc_t copy_desc(cuemu_place_t src, cuemu_place_t dst,
                                     uint64_t bytes, uint32_t flags = 0)
    {
        cuemu_op_desc_t desc;

        memset(&desc, 0, sizeof(desc));
        desc.kind  = CUEMU_OP_COPY;
        desc.src   = src;
        desc.dst   = dst;
        desc.bytes = bytes;
        desc.flags = flags | CUEMU_OP_HOLD;
        return desc;
    }

    static cuemu_op_desc_t delay_desc(cuemu_time_t duration, uint32_t flags = 0)
    {
        cuemu_op_desc_t desc;

        memset(&desc, 0, sizeof(desc));
        desc.kind     = CUEMU_OP_DELAY;
        desc.duration = duration;
        desc.flags    = flags | CUEMU_OP_HOLD;
        return desc;
    }

    cuemu_op_id_t copy(cuemu_place_t src, cuemu_place_t dst, uint64_t bytes,
                       std::vector<cuemu_op_id_t> deps = {},
                       cuemu_time_t now = 0)
    {
        return add(copy_desc(src, dst, bytes), deps, now);
    }

    cuemu_op_id_t delay(cuemu_time_t duration,
                        std::vector<cuemu_op_id_t> deps = {},
                        cuemu_time_t now = 0)
    {
        return add(delay_desc(duration), deps, now);
    }

    void run()
    {
        cuemu_sim_advance(sim, CUEMU_TIME_INF);
    }

    cuemu_time_t end(cuemu_op_id_t id)
    {
        return cuemu_sim_op_end_time(sim, id);
    }

    cuemu_time_t start(cuemu_op_id_t id)
    {
        cuemu_time_t time;

        cuemu_sim_op_query(sim, id, NULL, &time, NULL);
        return time;
    }

    cuemu_sim_t *sim;

private:
    void *m_mem;
};

#endif
