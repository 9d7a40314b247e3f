/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A fake driver: GPU memory is host memory, streams are queues that run on
 * request, in any order permitted by the driver's rules.
 *
 * A copy moves half of its bytes when it starts and half when it ends, with
 * other copies in between, so that a missing wait shows as wrong bytes. Calls
 * that a real driver would refuse, or crash on, are refused and noted.
 */
#ifndef TEST_MULTIPATH_FAKE_NODE_H
#define TEST_MULTIPATH_FAKE_NODE_H

#include <uct/cuda/base/driver.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>


class FakeNode
{
public:
    FakeNode(int num_gpus, unsigned seed = 1);

    ~FakeNode();

    /* ---- what a test looks at and turns */

    /** Let the n-th call from now (1: the next) fail; later calls work. */
    void fail_call(unsigned n, CUresult result = CUDA_ERROR_UNKNOWN);

    /** Only calls of this function count and fail; empty: all that can fail. */
    std::string fail_function;

    /** The function that failed. */
    std::string failed_function;

    /** Number of calls so far that could have failed. */
    unsigned num_calls = 0;

    /** Bytes of each GPU, and of page-locked host memory. */
    size_t gpu_memory  = 1ul << 40;
    size_t host_memory = 1ul << 40;

    /** This GPU has no memory left for the module; -1: none. */
    int full_gpu = -1;

    /** Allow contexts other than primary ones. */
    void offer_own_contexts();

    /** Behave as a driver before CUDA 11.4. */
    void drop_graphs();

    /** Refuse event nodes of graphs. */
    bool refuse_event_nodes = false;

    /** Copies over this link do not begin; {-2, -2}: all begin. */
    std::pair<int, int> stuck = {-2, -2};

    /** Maximum number of concurrent copies over each link. */
    std::map<std::pair<int, int>, unsigned> most_at_once;

    /** Let making contexts of these GPUs take until release_contexts(). */
    void hold_context(int device);
    void release_contexts();

    /** Return the number of threads waiting for such a context. */
    unsigned num_held();

    /** Destroy this GPU's primary context with its objects. When retained
     *  again, it has another id. No work may be in flight. Memory of the test
     *  stays. */
    void reset_context(int device);

    /** Pairs without peer access. */
    std::set<std::pair<int, int>> no_peer;
    /** The program has enabled all other pairs. */
    bool                          program_peers = true;
    bool has_program_peer(int from, int to) const;
    /** Return whether the module has enabled it. */
    /** Return whether access is enabled in any way, or the GPU is the same. */
    bool may_reach(int from, int to) const;
    bool has_peer(int from, int to) const
    {
        return m_peers.count({from, to});
    }

    /** Violated rules; a test expects none. */
    std::vector<std::string> complaints;

    /** Every copy in the order of submission: bytes by {device, device}. */
    std::map<std::pair<int, int>, size_t> copied;

    /** Return the objects not released: contexts, streams, events,
     *  allocations. */
    std::string leaks();

    bool has_context(int device);

    unsigned num_streams() const
    {
        return (unsigned)m_streams.size();
    }

    /** Return whether no copy or wait is queued. */
    bool is_idle();

    /** Run all queued work. */
    void run_all();

    /** Run all work except stuck copies and work behind them. */
    void run_others();

    /** Allocate memory on a GPU (or -1) for the test; the fake owns it. */
    uint8_t *alloc(int device, size_t size);

    /** Fill memory with random bytes, none of them zero: missing bytes are all
     *  wrong, displaced bytes nearly all. */
    static void fill(void *memory, size_t size, uint64_t random);

    /** Allocate host memory with malloc: full pages, not page-locked. */
    uint8_t *alloc_pageable(size_t size);

    /** Split an allocation: copies must not cross the boundary any more. */
    void split(uint8_t *memory, size_t at);

    /** Allocate memory of another process, at the test's own address. */
    uint8_t *alloc_remote(int device, size_t size);

    /** Map it for copies in one device's context, and in no other. */
    CUdeviceptr map_remote(const uint8_t *memory, int device);

private:
    struct Node {
        enum { COPY, RECORD, WAIT } kind;
        CUevent             event;
        unsigned            generation; /* number of a launch, for its nodes'
                                           events */
        std::vector<size_t> after; /* indices */
        uint8_t             *dst, *src;
        CUmemorytype        dst_type, src_type;
        size_t              bytes;
        int                 device;
    };

    struct Exec {
        std::vector<Node> nodes;
        CUgraph           graph;
        unsigned          in_flight;
    };

    /* A launch: nodes run in any order permitted by their dependencies */
    struct Run {
        CUgraphExec           exec;
        std::vector<Node>     nodes;
        std::vector<unsigned> halves; /* finished halves of each node: 2 is
                                         complete */
    };

    struct Op {
        enum { COPY, RECORD, WAIT, CALL, LAUNCH } kind;
        uint8_t  *dst, *src;
        size_t   bytes;
        bool     is_started;
        CUevent  event;
        unsigned generation;
        CUhostFn func;
        void     *arg;
        std::shared_ptr<Run> run;
    };

    struct Stream {
        int            device;
        unsigned       slowness;
        std::deque<Op> ops;
    };

    struct Event {
        int      device;
        unsigned recorded; /* generation of the last record submitted */
        /* Outstanding records. Records of one event in different streams may
           complete in any order; a wait is for the last one before its
           submission. */
        std::set<unsigned> pending;
    };

    struct Memory {
        size_t size;
        int    device;
        int    only_context; /* -1: every context with peer access */
        bool   is_pageable;
        /* Context that page-locks pageable memory, or -1 */
        int    locked_in = -1;
    };

    CUresult enter(const char *function, bool needs_context);
    void complain(const std::string &what);
    size_t used(int device);
    int current_device();
    bool step();
    CUresult copy(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                  CUstream stream);
    CUresult set_node(Node *node, const CUDA_MEMCPY3D *copy, CUcontext ctx);
    CUresult copy_host(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                       CUstream stream);
    CUresult attribute(CUpointer_attribute which, void *value, const void *at);
    void init_graphs();
    void init_host();
    CUresult add_node(CUgraphNode *handle, CUgraph graph,
                      const CUgraphNode *after, size_t count, Node node);
    std::vector<size_t> ready_nodes(const Run &run);
    bool step_run(Run *run);
    bool may_begin(const uint8_t *dst, const uint8_t *src, size_t bytes);
    void note_copy(const uint8_t *dst, const uint8_t *src, size_t bytes,
                   bool begins);
    bool is_pending(CUevent event, unsigned generation);
    const Memory *find(const void *address, size_t bytes);
    void check_range(const void *address, size_t bytes, int device);
    CUresult allocate(void **memory_p, size_t size, int device, size_t limit);
    CUresult deallocate(void *memory, bool is_host);

    static FakeNode *self;

    uct_cuda_driver_t                    m_table;
    std::recursive_mutex                 m_lock;
    std::mt19937                         m_random;
    int                                  m_num_gpus;
    unsigned                             m_fail_at;
    CUresult                             m_fail_with;
    uintptr_t                            m_next_handle;
    std::vector<int>                     m_retained;
    std::map<int, unsigned>              m_generation; /* generation of each
                                                          GPU's context */
    std::set<int>                        m_reset;
    bool                                 m_offers_own = false;
    std::set<int>                        m_held;
    unsigned                             m_num_held = 0;
    std::condition_variable_any          m_hold;
    std::set<std::pair<int, int>>        m_peers;
    std::map<CUstream, Stream>           m_streams;
    std::map<CUevent, Event>             m_events;
    std::map<std::pair<int, int>, unsigned> m_under_way;
    std::map<CUgraph, std::vector<Node>> m_graphs;
    std::map<CUgraphExec, Exec>          m_execs;
    std::map<CUgraphNode, std::pair<CUgraph, size_t>> m_nodes;
    std::map<const uint8_t*, Memory>     m_memory;
    std::set<const uint8_t*>             m_tests_own;
    std::set<const uint8_t*>             m_parts; /* split off others */
    std::map<const uint8_t*, int>        m_remote; /* file behind each remote
                                                      memory */
    static thread_local std::vector<int> m_stack;
};

#endif
