/* SPDX-License-Identifier: BSD-3-Clause */
/* The driver functions called by the engine, on host memory. */
#include "fake_node.h"
#include "repeat.h"

extern "C" {
#include <uct/cuda/node/watch.h>
}

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>


FakeNode *FakeNode::self = nullptr;

thread_local std::vector<int> FakeNode::m_stack;


static CUcontext context_of(int device)
{
    return (CUcontext)(uintptr_t)(0x1000 + device);
}

static int device_of(CUcontext context)
{
    return (int)((uintptr_t)context - 0x1000);
}


#define ENTER(_function, _needs_context) \
    Lock lock(self->m_lock); \
    CUresult result = self->enter(_function, _needs_context); \
    if (result != CUDA_SUCCESS) { \
        return result; \
    }

FakeNode::FakeNode(int num_gpus, unsigned seed) :
    m_random(seed),
    m_num_gpus(num_gpus),
    m_fail_at(0),
    m_fail_with(CUDA_SUCCESS),
    m_next_handle(0x100000),
    m_retained((size_t)num_gpus)
{
    using Lock = std::unique_lock<std::recursive_mutex>;

    self = this;
    m_stack.clear();
    memset(&m_table, 0, sizeof(m_table));

    m_table.cuGetErrorName = [](CUresult, const char **name) -> CUresult {
        *name = "a fake error";
        return CUDA_SUCCESS;
    };
    m_table.cuDeviceGetCount = [](int *count) -> CUresult {
        *count = self->m_num_gpus;
        return CUDA_SUCCESS;
    };
    m_table.cuDeviceGetUuid = [](CUuuid *uuid, CUdevice device) -> CUresult {
        memset(uuid, 0, sizeof(*uuid));
        uuid->bytes[0] = (char)(device + 1);
        return CUDA_SUCCESS;
    };
    m_table.cuDeviceCanAccessPeer = [](int *can, CUdevice from,
                                       CUdevice to) -> CUresult {
        ENTER("cuDeviceCanAccessPeer", false);
        *can = (self->no_peer.count({from, to}) == 0);
        return CUDA_SUCCESS;
    };
    m_table.cuDevicePrimaryCtxRetain = [](CUcontext *ctx,
                                          CUdevice device) -> CUresult {
        ENTER("cuDevicePrimaryCtxRetain", false);
        ++self->m_num_held;
        self->m_hold.wait(lock,
                          [device] { return self->m_held.count(device) == 0; });
        --self->m_num_held;
        ++self->m_retained[(size_t)device];
        self->m_generation[device] += (self->m_reset.erase(device) > 0);
        *ctx = context_of(device);
        return CUDA_SUCCESS;
    };
    m_table.cuDevicePrimaryCtxGetState = [](CUdevice device, unsigned *flags,
                                            int *active) -> CUresult {
        Lock lock(self->m_lock);
        *flags  = 0;
        *active = (self->m_retained[(size_t)device] > 0) &&
                  (self->m_reset.count(device) == 0);
        return CUDA_SUCCESS;
    };
    m_table.cuCtxGetId = [](CUcontext ctx, unsigned long long *id) -> CUresult {
        Lock lock(self->m_lock);
        if (self->m_reset.count(device_of(ctx))) {
            return CUDA_ERROR_CONTEXT_IS_DESTROYED;
        }
        *id = ((uintptr_t)ctx << 32) + self->m_generation[device_of(ctx)];
        return CUDA_SUCCESS;
    };
    m_table.cuDevicePrimaryCtxRelease = [](CUdevice device) -> CUresult {
        Lock lock(self->m_lock);
        if (--self->m_retained[(size_t)device] < 0) {
            self->complain("context released too often");
        }
        return CUDA_SUCCESS;
    };
    m_table.cuCtxPushCurrent = [](CUcontext ctx) -> CUresult {
        ENTER("cuCtxPushCurrent", false);
        if (((self->m_retained[(size_t)device_of(ctx)] <= 0) &&
             !self->m_offers_own) ||
            self->m_reset.count(device_of(ctx))) {
            self->complain("dead context pushed");
        }
        m_stack.push_back(device_of(ctx));
        return CUDA_SUCCESS;
    };
    m_table.cuCtxPopCurrent = [](CUcontext *ctx) -> CUresult {
        if (m_stack.empty()) {
            self->complain("pop without push");
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        *ctx = context_of(m_stack.back());
        m_stack.pop_back();
        return CUDA_SUCCESS;
    };
    m_table.cuCtxSetCurrent = [](CUcontext ctx) -> CUresult {
        ENTER("cuCtxSetCurrent", true);
        m_stack.back() = device_of(ctx);
        return CUDA_SUCCESS;
    };
    m_table.cuCtxGetCurrent = [](CUcontext *ctx) -> CUresult {
        *ctx = m_stack.empty() ? NULL : context_of(m_stack.back());
        return CUDA_SUCCESS;
    };
    m_table.cuCtxGetDevice = [](CUdevice *device) -> CUresult {
        *device = m_stack.empty() ? -1 : m_stack.back();
        return m_stack.empty() ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
    };
    m_table.cuCtxEnablePeerAccess = [](CUcontext peer, unsigned) -> CUresult {
        ENTER("cuCtxEnablePeerAccess", true);
        std::pair<int, int> pair(m_stack.back(), device_of(peer));
        if (self->no_peer.count(pair)) {
            return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
        }
        return (!self->has_program_peer(pair.first, pair.second) &&
                self->m_peers.insert(pair).second) ?
                       CUDA_SUCCESS :
                       CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    };
    m_table.cuPointerGetAttribute = [](void *value, CUpointer_attribute name,
                                       CUdeviceptr at) -> CUresult {
        ENTER("cuPointerGetAttribute", true);
        const Memory *memory = self->find((void*)at, 1);
        if ((name != CU_POINTER_ATTRIBUTE_DEVICE_POINTER) ||
            (memory == nullptr) ||
            !self->may_reach(m_stack.back(), memory->device)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *(CUdeviceptr*)value = at;
        return CUDA_SUCCESS;
    };
    m_table.cuMemAlloc = [](CUdeviceptr *ptr, size_t size) -> CUresult {
        ENTER("cuMemAlloc", true);
        void *memory = nullptr;
        result = self->allocate(&memory, size, m_stack.back(),
                                (m_stack.back() == self->full_gpu) ?
                                        0 :
                                        self->gpu_memory);
        *ptr = (CUdeviceptr)memory;
        return result;
    };
    m_table.cuMemFree = [](CUdeviceptr ptr) -> CUresult {
        return self->deallocate((void*)ptr, false);
    };
    m_table.cuMemHostAlloc = [](void **memory, size_t size,
                                unsigned flags) -> CUresult {
        ENTER("cuMemHostAlloc", true);
        if (!(flags & CU_MEMHOSTALLOC_PORTABLE)) {
            self->complain("host memory is not portable");
        }
        return self->allocate(memory, size, -1, self->host_memory);
    };
    m_table.cuMemFreeHost = [](void *memory) -> CUresult {
        return self->deallocate(memory, true);
    };
    m_table.cuStreamCreate = [](CUstream *stream, unsigned flags) -> CUresult {
        ENTER("cuStreamCreate", true);
        if (flags != CU_STREAM_NON_BLOCKING) {
            self->complain("stream waits for the default stream");
        }
        *stream = (CUstream)(self->m_next_handle += 16);
        self->m_streams[*stream].device   = m_stack.back();
        self->m_streams[*stream].slowness = 1u << (self->m_random() % 6);
        return CUDA_SUCCESS;
    };
    m_table.cuStreamDestroy = [](CUstream stream) -> CUresult {
        Lock lock(self->m_lock);
        if (!self->m_streams.count(stream) ||
            !self->m_streams[stream].ops.empty()) {
            self->complain("stream destroyed while busy, or twice");
        }
        self->m_streams.erase(stream);
        return CUDA_SUCCESS;
    };
    m_table.cuStreamSynchronize = [](CUstream stream) -> CUresult {
        ENTER("cuStreamSynchronize", true);
        if (stream == nullptr) {
            return CUDA_SUCCESS; /* its copies are done immediately here */
        }
        if (!self->m_streams.count(stream)) {
            self->complain("no such stream");
            return CUDA_ERROR_INVALID_HANDLE;
        }
        while (!self->m_streams[stream].ops.empty()) {
            if (!self->step()) {
                self->complain("deadlock");
                return CUDA_ERROR_UNKNOWN;
            }
        }
        return CUDA_SUCCESS;
    };
    m_table.cuStreamWaitEvent = [](CUstream stream, CUevent event,
                                   unsigned) -> CUresult {
        ENTER("cuStreamWaitEvent", true);
        if (!self->m_streams.count(stream) || !self->m_events.count(event)) {
            self->complain("wait: no such stream or event");
            return CUDA_ERROR_INVALID_HANDLE;
        }
        Op op         = {};
        op.kind       = Op::WAIT;
        op.event      = event;
        op.generation = self->m_events[event].recorded;
        self->m_streams[stream].ops.push_back(op);
        return CUDA_SUCCESS;
    };
    m_table.cuEventCreate = [](CUevent *event, unsigned flags) -> CUresult {
        ENTER("cuEventCreate", true);
        if (flags != CU_EVENT_DISABLE_TIMING) {
            self->complain("event takes times");
        }
        *event = (CUevent)(self->m_next_handle += 16);
        self->m_events[*event].device = m_stack.back();
        return CUDA_SUCCESS;
    };
    m_table.cuEventDestroy = [](CUevent event) -> CUresult {
        Lock lock(self->m_lock);
        if (self->m_events.erase(event) == 0) {
            self->complain("event destroyed twice");
        }
        return CUDA_SUCCESS;
    };
    m_table.cuEventRecord = [](CUevent event, CUstream stream) -> CUresult {
        ENTER("cuEventRecord", true);
        if (!self->m_streams.count(stream) || !self->m_events.count(event)) {
            self->complain("record: no such stream or event");
            return CUDA_ERROR_INVALID_HANDLE;
        }
        if (self->m_streams[stream].device != self->m_events[event].device) {
            self->complain("event and stream are of different contexts");
            return CUDA_ERROR_INVALID_HANDLE;
        }
        Op op         = {};
        op.kind       = Op::RECORD;
        op.event      = event;
        op.generation = ++self->m_events[event].recorded;
        self->m_events[event].pending.insert(op.generation);
        self->m_streams[stream].ops.push_back(op);
        return CUDA_SUCCESS;
    };
    m_table.cuEventQuery = [](CUevent event) -> CUresult {
        ENTER("cuEventQuery", false);
        for (int i = 0; i < 7; ++i) {
            self->step();
        }
        if (!self->m_events.count(event)) {
            self->complain("query: no such event");
            return CUDA_ERROR_INVALID_HANDLE;
        }
        const Event &e = self->m_events[event];
        return e.pending.count(e.recorded) ? CUDA_ERROR_NOT_READY :
                                             CUDA_SUCCESS;
    };
    m_table.cuEventSynchronize = [](CUevent event) -> CUresult {
        Lock lock(self->m_lock);
        const Event &e = self->m_events[event];
        while (e.pending.count(e.recorded)) {
            if (!self->step()) {
                self->complain("deadlock");
                return CUDA_ERROR_UNKNOWN;
            }
        }
        return CUDA_SUCCESS;
    };
    m_table.cuMemcpyAsync = [](CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                               CUstream stream) -> CUresult {
        ENTER("cuMemcpyAsync", true);
        return self->copy(dst, src, bytes, stream);
    };
    m_table.cuLaunchHostFunc = [](CUstream stream, CUhostFn func,
                                  void *arg) -> CUresult {
        ENTER("cuLaunchHostFunc", true);
        Op op   = {};
        op.kind = Op::CALL;
        op.func = func;
        op.arg  = arg;
        self->m_streams[stream].ops.push_back(op);
        return CUDA_SUCCESS;
    };

    init_graphs();
    init_host();
    uct_cuda_node_watch_replace(false);
    uct_cuda_driver_override(&m_table);
}

/* Install the functions called by transports for host memory. */
void FakeNode::init_host()
{
    using Lock = std::lock_guard<std::recursive_mutex>;

    m_table.cuMemcpyHtoDAsync = [](CUdeviceptr dst, const void *src,
                                   size_t bytes, CUstream stream) -> CUresult {
        ENTER("cuMemcpyHtoDAsync", true);
        return self->copy_host(dst, (CUdeviceptr)src, bytes, stream);
    };
    m_table.cuMemcpyDtoHAsync = [](void *dst, CUdeviceptr src, size_t bytes,
                                   CUstream stream) -> CUresult {
        ENTER("cuMemcpyDtoHAsync", true);
        return self->copy_host((CUdeviceptr)dst, src, bytes, stream);
    };
    m_table.cuMemcpy = [](CUdeviceptr dst, CUdeviceptr src,
                          size_t bytes) -> CUresult {
        ENTER("cuMemcpy", true);
        return self->copy_host(dst, src, bytes, nullptr);
    };
    m_table.cuPointerGetAttributes =
            [](unsigned count, CUpointer_attribute *attributes, void **values,
               CUdeviceptr at) -> CUresult {
        Lock lock(self->m_lock);
        for (unsigned i = 0; i < count; ++i) {
            self->attribute(attributes[i], values[i], (void*)at);
        }
        return CUDA_SUCCESS;
    };
    m_table.cuMemHostRegister = [](void *memory, size_t size,
                                   unsigned flags) -> CUresult {
        ENTER("cuMemHostRegister", true);
        auto entry = self->m_memory.find((uint8_t*)memory);
        if ((flags & CU_MEMHOSTREGISTER_PORTABLE) &&
            (self->find(memory, 1) == nullptr)) {
            if (self->used(-1) + size > self->host_memory) {
                return CUDA_ERROR_OUT_OF_MEMORY;
            }
            self->m_memory[(uint8_t*)memory] = Memory{size, -1, -1, false,
                                                      m_stack.back()};
            return CUDA_SUCCESS;
        }
        if (!(flags & CU_MEMHOSTREGISTER_PORTABLE) ||
            (entry == self->m_memory.end()) || (entry->second.size != size) ||
            !entry->second.is_pageable) {
            self->complain("cannot register that");
            return CUDA_ERROR_INVALID_VALUE;
        }
        entry->second.is_pageable = false;
        return CUDA_SUCCESS;
    };
    m_table.cuMemHostUnregister = [](void *memory) -> CUresult {
        Lock lock(self->m_lock);
        auto entry = self->m_memory.find((uint8_t*)memory);
        if (entry == self->m_memory.end()) {
            self->complain("unlocks what is not locked");
        } else if (entry->second.locked_in >= 0) {
            self->m_memory.erase(entry);
        } else {
            entry->second.is_pageable = true;
        }
        return CUDA_SUCCESS;
    };
}

CUresult FakeNode::attribute(CUpointer_attribute which, void *value,
                             const void *at)
{
    const Memory *memory = find(at, 1);

    if ((memory == nullptr) || memory->is_pageable) {
        return CUDA_SUCCESS; /* values keep their initial "unknown" */
    }

    switch (which) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(CUmemorytype*)value = (memory->device < 0) ? CU_MEMORYTYPE_HOST :
                                                       CU_MEMORYTYPE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int*)value = memory->device;
        break;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext*)value = context_of(memory->device);
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr*)value =
                (CUdeviceptr)(--m_memory.upper_bound((const uint8_t*)at))
                        ->first;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t*)value = memory->size;
        break;
    default:
        break;
    }
    return CUDA_SUCCESS;
}

void FakeNode::init_graphs()
{
    using Lock = std::unique_lock<std::recursive_mutex>;

    m_table.cuGraphCreate = [](CUgraph *graph, unsigned) -> CUresult {
        ENTER("cuGraphCreate", false);
        *graph = (CUgraph)(self->m_next_handle += 16);
        self->m_graphs[*graph];
        return CUDA_SUCCESS;
    };
    m_table.cuGraphDestroy = [](CUgraph graph) -> CUresult {
        Lock lock(self->m_lock);
        if (self->m_graphs.erase(graph) == 0) {
            self->complain("graph destroyed twice");
        }
        return CUDA_SUCCESS;
    };
    m_table.cuGraphAddMemcpyNode =
            [](CUgraphNode *handle, CUgraph graph, const CUgraphNode *after,
               size_t count, const CUDA_MEMCPY3D *copy,
               CUcontext ctx) -> CUresult {
        ENTER("cuGraphAddMemcpyNode", false);
        Node node = {};

        result = self->set_node(&node, copy, ctx);
        return (result == CUDA_SUCCESS) ?
                       self->add_node(handle, graph, after, count, node) :
                       result;
    };
    m_table.cuGraphAddEventRecordNode =
            [](CUgraphNode *handle, CUgraph graph, const CUgraphNode *after,
               size_t count, CUevent event) -> CUresult {
        ENTER("cuGraphAddEventRecordNode", false);
        Node node  = {};
        node.kind  = Node::RECORD;
        node.event = event;
        return self->add_node(handle, graph, after, count, node);
    };
    m_table.cuGraphAddEventWaitNode =
            [](CUgraphNode *handle, CUgraph graph, const CUgraphNode *after,
               size_t count, CUevent event) -> CUresult {
        ENTER("cuGraphAddEventWaitNode", false);
        Node node  = {};
        node.kind  = Node::WAIT;
        node.event = event;
        return self->add_node(handle, graph, after, count, node);
    };
    m_table.cuGraphInstantiateWithFlags =
            [](CUgraphExec *exec, CUgraph graph,
               unsigned long long) -> CUresult {
        ENTER("cuGraphInstantiateWithFlags", false);
        *exec = (CUgraphExec)(self->m_next_handle += 16);
        self->m_execs[*exec] = Exec{self->m_graphs.at(graph), graph, 0};
        return CUDA_SUCCESS;
    };
    m_table.cuGraphExecMemcpyNodeSetParams =
            [](CUgraphExec handle, CUgraphNode node, const CUDA_MEMCPY3D *copy,
               CUcontext ctx) -> CUresult {
        ENTER("cuGraphExecMemcpyNodeSetParams", false);
        Exec &exec     = self->m_execs.at(handle);
        auto which     = self->m_nodes.at(node);
        Node &old      = exec.nodes.at(which.second);
        Node changed   = old;

        if (exec.in_flight > 0) {
            self->complain("a graph in flight was changed");
        }
        result = self->set_node(&changed, copy, ctx);
        if ((result == CUDA_SUCCESS) &&
            ((which.first != exec.graph) || (changed.device != old.device) ||
             (changed.src_type != old.src_type) ||
             (changed.dst_type != old.dst_type))) {
            self->complain("a node cannot be changed in this way");
            return CUDA_ERROR_INVALID_VALUE;
        }
        old = changed;
        return result;
    };
    m_table.cuGraphExecDestroy = [](CUgraphExec handle) -> CUresult {
        Lock lock(self->m_lock);
        if (!self->m_execs.count(handle) ||
            (self->m_execs[handle].in_flight > 0)) {
            self->complain("executable graph destroyed in flight, or twice");
        }
        self->m_execs.erase(handle);
        return CUDA_SUCCESS;
    };
    m_table.cuGraphLaunch = [](CUgraphExec handle,
                               CUstream stream) -> CUresult {
        ENTER("cuGraphLaunch", true);
        Exec &exec = self->m_execs.at(handle);
        Op op      = {};
        op.kind = Op::LAUNCH;
        op.run  = std::make_shared<Run>(
                Run{handle, exec.nodes,
                    std::vector<unsigned>(exec.nodes.size())});
        /* A node that waits for an event comes before one that records it
           again: it waits for the earlier record */
        for (Node &node : op.run->nodes) {
            if (node.kind == Node::COPY) {
                self->copied[{self->find(node.src, node.bytes)->device,
                              self->find(node.dst, node.bytes)->device}] +=
                        node.bytes;
                continue;
            }
            if (!self->m_events.count(node.event)) {
                self->complain("launch: no such event");
                return CUDA_ERROR_INVALID_HANDLE;
            }
            Event &event = self->m_events[node.event];
            if (node.kind == Node::RECORD) {
                event.pending.insert(++event.recorded);
            }
            node.generation = event.recorded;
        }
        ++exec.in_flight;
        self->m_streams.at(stream).ops.push_back(op);
        return CUDA_SUCCESS;
    };
}

CUresult FakeNode::add_node(CUgraphNode *handle, CUgraph graph,
                            const CUgraphNode *after, size_t count, Node node)
{
    std::vector<Node> &nodes = m_graphs.at(graph);
    std::set<CUgraphNode> unique(after, after + count);

    if (unique.size() != count) {
        complain("a dependency twice");
    }
    for (CUgraphNode other : unique) {
        if (!m_nodes.count(other) || (m_nodes[other].first != graph)) {
            complain("a dependency of no node");
            return CUDA_ERROR_INVALID_VALUE;
        }
        node.after.push_back(m_nodes[other].second);
    }
    if (node.kind != Node::COPY) {
        if (refuse_event_nodes) {
            return CUDA_ERROR_NOT_SUPPORTED;
        }
        if (!m_events.count(node.event)) {
            complain("node: no such event");
            return CUDA_ERROR_INVALID_HANDLE;
        }
    }

    *handle          = (CUgraphNode)(m_next_handle += 16);
    m_nodes[*handle] = {graph, nodes.size()};
    nodes.push_back(node);
    return CUDA_SUCCESS;
}

void FakeNode::offer_own_contexts()
{
    m_offers_own           = true;
    m_table.cuCtxCreate_v2 = [](CUcontext *ctx, unsigned,
                                CUdevice device) -> CUresult {
        *ctx = context_of(device);
        return self->m_table.cuCtxPushCurrent(*ctx);
    };
    m_table.cuCtxSetLimit = [](CUlimit, size_t) { return CUDA_SUCCESS; };
}

void FakeNode::drop_graphs()
{
    m_table.cuGraphInstantiateWithFlags = nullptr;
}

bool FakeNode::is_pending(CUevent event, unsigned generation)
{
    return m_events.count(event) && m_events[event].pending.count(generation);
}

bool FakeNode::may_begin(const uint8_t *dst, const uint8_t *src, size_t bytes)
{
    return (stuck.first == -2) || (find(src, bytes)->device != stuck.first) ||
           (find(dst, bytes)->device != stuck.second);
}

void FakeNode::note_copy(const uint8_t *dst, const uint8_t *src, size_t bytes,
                         bool begins)
{
    std::pair<int, int> link = {find(src, bytes)->device,
                                find(dst, bytes)->device};

    m_under_way[link] += begins ? 1u : -1u;
    most_at_once[link] = std::max(most_at_once[link], m_under_way[link]);
}

CUresult FakeNode::set_node(Node *node, const CUDA_MEMCPY3D *copy,
                            CUcontext ctx)
{
    node->src_type = copy->srcMemoryType;
    node->dst_type = copy->dstMemoryType;
    node->src      = (uint8_t*)((node->src_type == CU_MEMORYTYPE_HOST) ?
                                        (uintptr_t)copy->srcHost :
                                        (uintptr_t)copy->srcDevice);
    node->dst      = (uint8_t*)((node->dst_type == CU_MEMORYTYPE_HOST) ?
                                        (uintptr_t)copy->dstHost :
                                        (uintptr_t)copy->dstDevice);
    node->bytes    = copy->WidthInBytes;
    node->device   = device_of(ctx);
    for (auto end : {std::make_pair(node->src, node->src_type),
                     std::make_pair(node->dst, node->dst_type)}) {
        const Memory *memory = find(end.first, node->bytes);
        if ((memory == nullptr) || (copy->Height != 1) || (copy->Depth != 1) ||
            ((memory->device < 0) != (end.second == CU_MEMORYTYPE_HOST))) {
            complain("node: no such memory, or not in one dimension");
            return CUDA_ERROR_INVALID_VALUE;
        }
    }

    return CUDA_SUCCESS;
}

std::vector<size_t> FakeNode::ready_nodes(const Run &run)
{
    std::vector<size_t> ready;

    for (size_t i = 0; i < run.nodes.size(); ++i) {
        const Node &node = run.nodes[i];
        bool is_ready    = (run.halves[i] < 2);

        for (size_t other : node.after) {
            is_ready = is_ready && (run.halves[other] == 2);
        }
        if (is_ready && (node.kind == Node::WAIT)) {
            is_ready = !is_pending(node.event, node.generation);
        } else if (is_ready && (node.kind == Node::COPY)) {
            is_ready = may_begin(node.dst, node.src, node.bytes);
        }
        if (is_ready) {
            ready.push_back(i);
        }
    }

    return ready;
}

/* Run half a copy of a launch. Returns true when all copies are done. */
bool FakeNode::step_run(Run *run)
{
    std::vector<size_t> ready = ready_nodes(*run);
    size_t number             = ready[m_random() % ready.size()];
    const Node &node          = run->nodes[number];
    size_t half               = node.bytes / 2;

    switch (node.kind) {
    case Node::COPY:
        check_range(node.dst, node.bytes, node.device);
        check_range(node.src, node.bytes, node.device);
        note_copy(node.dst, node.src, node.bytes, run->halves[number] == 0);
        if (++run->halves[number] == 1) {
            memcpy(node.dst, node.src, half);
        } else {
            memcpy(node.dst + half, node.src + half, node.bytes - half);
        }
        break;
    case Node::RECORD:
        if (m_events.count(node.event)) {
            m_events[node.event].pending.erase(node.generation);
        }
        run->halves[number] = 2;
        break;
    default:
        run->halves[number] = 2;
        break;
    }

    for (unsigned halves : run->halves) {
        if (halves < 2) {
            return false;
        }
    }

    --m_execs.at(run->exec).in_flight;
    return true;
}

FakeNode::~FakeNode()
{
    uct_cuda_driver_override(nullptr);
    for (auto &memory : m_memory) {
        if (memory.second.only_context >= 0) {
            munmap((void*)memory.first, memory.second.size);
        } else if (!m_parts.count(memory.first) &&
                   (memory.second.locked_in < 0)) {
            free((void*)memory.first);
        }
    }
    for (auto &remote : m_remote) {
        close(remote.second);
    }
    self = nullptr;
}

void FakeNode::complain(const std::string &what)
{
    complaints.push_back(what);
}

void FakeNode::fail_call(unsigned n, CUresult result)
{
    std::lock_guard<std::recursive_mutex> lock(m_lock);

    m_fail_at   = num_calls + n;
    m_fail_with = result;
}

CUresult FakeNode::enter(const char *function, bool needs_context)
{
    if (needs_context && m_stack.empty()) {
        complain(std::string(function) + ": no current context");
        return CUDA_ERROR_INVALID_CONTEXT;
    }

    /* Other work may run meanwhile */
    if (m_random() % 4 == 0) {
        step();
    }

    if ((fail_function.empty() || (fail_function == function)) &&
        (++num_calls == m_fail_at)) {
        failed_function = function;
        return m_fail_with;
    }

    return CUDA_SUCCESS;
}

/* Run one step in one stream. Returns false if none can run. */
bool FakeNode::step()
{
    std::vector<Stream*> ready;

    for (auto &entry : m_streams) {
        Stream &stream = entry.second;

        if (stream.ops.empty()) {
            continue;
        }

        const Op &op = stream.ops.front();
        if (((op.kind == Op::WAIT) && is_pending(op.event, op.generation)) ||
            ((op.kind == Op::LAUNCH) && ready_nodes(*op.run).empty()) ||
            ((op.kind == Op::COPY) && !op.is_started &&
             !may_begin(op.dst, op.src, op.bytes))) {
            continue;
        }
        ready.push_back(&stream);
    }

    if (ready.empty()) {
        return false;
    }

    Stream &stream = *ready[m_random() % ready.size()];
    if (m_random() % stream.slowness != 0) {
        return true;
    }

    Op &op = stream.ops.front();
    switch (op.kind) {
    case Op::COPY: {
        size_t half = op.bytes / 2;

        check_range(op.dst, op.bytes, stream.device);
        check_range(op.src, op.bytes, stream.device);
        note_copy(op.dst, op.src, op.bytes, !op.is_started);
        if (!op.is_started) {
            memcpy(op.dst, op.src, half);
            op.is_started = true;
            return true;
        }
        memcpy(op.dst + half, op.src + half, op.bytes - half);
        break;
    }
    case Op::RECORD:
        if (m_events.count(op.event)) {
            m_events[op.event].pending.erase(op.generation);
        }
        break;
    case Op::CALL:
        op.func(op.arg);
        break;
    case Op::LAUNCH:
        if (!step_run(op.run.get())) {
            return true;
        }
        break;
    default:
        break;
    }

    stream.ops.pop_front();
    return true;
}

const FakeNode::Memory *FakeNode::find(const void *address, size_t bytes)
{
    const uint8_t *byte = (const uint8_t*)address;
    auto entry          = m_memory.upper_bound(byte);

    if (entry == m_memory.begin()) {
        return nullptr;
    }

    --entry;
    return (byte + bytes <= entry->first + entry->second.size) ?
                   &entry->second :
                   nullptr;
}

/* Our own contexts do not have the program's peer access */
bool FakeNode::has_program_peer(int from, int to) const
{
    return program_peers &&
           (!m_offers_own || ((m_retained[(size_t)from] > 0) &&
                              (m_retained[(size_t)to] > 0)));
}

bool FakeNode::may_reach(int from, int to) const
{
    return (from == to) || has_program_peer(from, to) || has_peer(from, to);
}

/* Check that a stream of this device may access the memory now. */
void FakeNode::check_range(const void *address, size_t bytes, int device)
{
    const Memory *memory = find(address, bytes);

    if (memory == nullptr) {
        complain("copy touches memory that is not allocated");
    } else if (memory->is_pageable) {
        complain("copy in a stream of memory that is not locked (any more)");
    } else if (memory->only_context >= 0) {
        if (memory->only_context != device) {
            complain("copy uses another context's mapping");
        }
    } else if ((memory->device >= 0) && !may_reach(device, memory->device)) {
        complain("copy without peer access");
    }
}

CUresult FakeNode::copy(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                        CUstream stream)
{
    const Memory *from = find((void*)src, bytes);
    const Memory *to   = find((void*)dst, bytes);
    Op op              = {};

    if (!m_streams.count(stream) || (from == nullptr) || (to == nullptr) ||
        (bytes == 0)) {
        complain("copy: no such stream or memory");
        return CUDA_ERROR_INVALID_VALUE;
    }

    copied[{from->device, to->device}] += bytes;
    op.kind  = Op::COPY;
    op.dst   = (uint8_t*)dst;
    op.src   = (uint8_t*)src;
    op.bytes = bytes;
    m_streams[stream].ops.push_back(op);
    return CUDA_SUCCESS;
}

/* As in the driver: unknown memory is copied immediately, and no copy crosses
   the end of locked memory */
CUresult FakeNode::copy_host(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                             CUstream stream)
{
    const Memory *from = find((void*)src, bytes);
    const Memory *to   = find((void*)dst, bytes);

    if ((from == nullptr) || (to == nullptr)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    if (from->is_pageable || to->is_pageable || (stream == nullptr)) {
        copied[{from->device, to->device}] += bytes;
        memcpy((void*)dst, (void*)src, bytes);
        return CUDA_SUCCESS;
    }

    return copy(dst, src, bytes, stream);
}

size_t FakeNode::used(int device)
{
    size_t sum = 0;

    for (auto &memory : m_memory) {
        sum += (memory.second.device == device) ? memory.second.size : 0;
    }

    return sum;
}

CUresult FakeNode::allocate(void **memory_p, size_t size, int device,
                            size_t limit)
{
    if (used(device) + size > limit) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    *memory_p = malloc(size);
    m_memory[(uint8_t*)*memory_p] = Memory{size, device, -1, false};
    return CUDA_SUCCESS;
}

CUresult FakeNode::deallocate(void *memory, bool is_host)
{
    std::lock_guard<std::recursive_mutex> lock(m_lock);
    auto entry = m_memory.find((uint8_t*)memory);

    if ((entry == m_memory.end()) || m_tests_own.count((uint8_t*)memory) ||
        ((entry->second.device < 0) != is_host)) {
        complain("free of what was not allocated");
        return CUDA_ERROR_INVALID_VALUE;
    }

    m_memory.erase(entry);
    free(memory);
    return CUDA_SUCCESS;
}

uint8_t *FakeNode::alloc(int device, size_t size)
{
    std::lock_guard<std::recursive_mutex> lock(m_lock);

    uint8_t *memory = (uint8_t*)malloc(size);

    m_memory[memory] = Memory{size, device, -1, false};
    m_tests_own.insert(memory);
    return memory;
}

void FakeNode::fill(void *memory, size_t size, uint64_t random)
{
    typedef uint64_t __attribute__((aligned(1), may_alias)) word_t;
    const size_t first = std::min(size, REPEAT_PERIOD);
    word_t *words      = (word_t*)memory;
    uint64_t word;

    /* memcpy() of each word would be a call in a test without optimization */
    for (size_t i = 0; i <= first / sizeof(word); ++i) {
        random = random * UINT64_C(6364136223846793005) + 1;
        word   = (random ^ (random >> 32)) | UINT64_C(0x0101010101010101);
        if (i < first / sizeof(word)) {
            words[i] = word;
        } else {
            memcpy(&words[i], &word, first % sizeof(word));
        }
    }
    repeat(memory, size);
}

uint8_t *FakeNode::alloc_pageable(size_t size)
{
    uint8_t *memory = (uint8_t*)aligned_alloc(4096, size);

    m_memory[memory] = Memory{size, -1, -1, true};
    m_tests_own.insert(memory);
    return memory;
}

void FakeNode::split(uint8_t *memory, size_t at)
{
    std::lock_guard<std::recursive_mutex> lock(m_lock);

    Memory &first = m_memory[memory];

    m_memory[memory + at] = Memory{first.size - at, first.device, -1,
                                   first.is_pageable};
    first.size            = at;
    m_tests_own.insert(memory + at);
    m_parts.insert(memory + at);
}

uint8_t *FakeNode::alloc_remote(int device, size_t size)
{
    std::lock_guard<std::recursive_mutex> lock(m_lock);

    int file = memfd_create("remote", 0);
    uint8_t *memory;

    if (ftruncate(file, (off_t)size) != 0) {
        abort();
    }

    /* Mapped without a context: for the test itself only */
    memory = (uint8_t*)mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED,
                            file, 0);
    m_memory[memory] = Memory{size, device, 99, false};
    m_remote[memory] = file;
    m_tests_own.insert(memory);
    return memory;
}

CUdeviceptr FakeNode::map_remote(const uint8_t *memory, int device)
{
    std::lock_guard<std::recursive_mutex> lock(m_lock);

    size_t size     = m_memory[memory].size;
    uint8_t *mapped = (uint8_t*)mmap(NULL, size, PROT_READ | PROT_WRITE,
                                     MAP_SHARED, m_remote[memory], 0);

    m_memory[mapped] = Memory{size, m_memory[memory].device, device, false};
    m_tests_own.insert(mapped);
    return (CUdeviceptr)mapped;
}

void FakeNode::hold_context(int device)
{
    std::lock_guard<std::recursive_mutex> lock(m_lock);

    m_held.insert(device);
}

void FakeNode::release_contexts()
{
    std::lock_guard<std::recursive_mutex> lock(m_lock);

    m_held.clear();
    m_hold.notify_all();
}

unsigned FakeNode::num_held()
{
    std::lock_guard<std::recursive_mutex> lock(m_lock);

    return m_num_held;
}

void FakeNode::reset_context(int device)
{
    std::lock_guard<std::recursive_mutex> lock(m_lock);

    run_all();
    m_reset.insert(device);
    for (auto i = m_streams.begin(); i != m_streams.end();) {
        i = (i->second.device == device) ? m_streams.erase(i) : std::next(i);
    }
    for (auto i = m_events.begin(); i != m_events.end();) {
        i = (i->second.device == device) ? m_events.erase(i) : std::next(i);
    }
    for (auto i = m_execs.begin(); i != m_execs.end();) {
        const auto &nodes = i->second.nodes;
        bool is_lost      = std::any_of(
                nodes.begin(), nodes.end(), [device](const Node &node) {
                    return (node.kind == Node::COPY) && (node.device == device);
                });
        i = is_lost ? m_execs.erase(i) : std::next(i);
    }
    for (auto i = m_memory.begin(); i != m_memory.end();) {
        uint8_t *memory = (uint8_t*)i->first;
        bool is_locked  = (i->second.locked_in == device);
        bool is_lost    = (i->second.device == device) &&
                          (m_tests_own.count(memory) == 0);
        i = (is_locked || is_lost) ? m_memory.erase(i) : std::next(i);
        if (is_lost) {
            free(memory);
        }
    }
    for (auto i = m_peers.begin(); i != m_peers.end();) {
        i = ((i->first == device) || (i->second == device)) ? m_peers.erase(i) :
                                                              std::next(i);
    }
}

bool FakeNode::has_context(int device)
{
    std::lock_guard<std::recursive_mutex> lock(m_lock);

    return m_retained[(size_t)device] > 0;
}

bool FakeNode::is_idle()
{
    for (auto &stream : m_streams) {
        if (!stream.second.ops.empty()) {
            return false;
        }
    }

    return true;
}

void FakeNode::run_all()
{
    std::lock_guard<std::recursive_mutex> lock(m_lock);

    while (!is_idle()) {
        if (!step()) {
            complain("deadlock");
            return;
        }
    }
}

void FakeNode::run_others()
{
    std::lock_guard<std::recursive_mutex> lock(m_lock);

    while (step()) {
    }
}

std::string FakeNode::leaks()
{
    std::lock_guard<std::recursive_mutex> lock(m_lock);

    std::string what;

    if (!m_streams.empty()) {
        what += "streams: " + std::to_string(m_streams.size()) + " ";
    }
    if (!m_events.empty()) {
        what += "events: " + std::to_string(m_events.size()) + " ";
    }
    if (!m_graphs.empty() || !m_execs.empty()) {
        what += "graphs ";
    }
    if (m_memory.size() != m_tests_own.size()) {
        what += "memory ";
    }
    for (int count : m_retained) {
        if (count != 0) {
            what += "context ";
        }
    }
    if (!m_stack.empty()) {
        what += "current context ";
    }

    return what;
}
