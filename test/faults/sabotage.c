/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Break the engine on purpose, from outside: a library preloaded for a program
 * with the module, between the module and the driver. CUEMU_SABOTAGE selects
 * the order to remove:
 *
 *   none    nothing; only counts
 *   hops    the second hop of a chunk does not wait for its first
 *   slots   a staging slot is filled again before it is read
 *   early   a transfer is complete when its direct copy is, a graph at once
 *   query   a graph is reported as ended as soon as it is launched, so that
 *           the engine changes graphs in flight
 *   late    the second hop of a chunk waits for the first hop of the chunk
 *           before (only streams)
 *   short   a second hop omits the last byte
 *
 * A number behind it, as in "hops:5", removes only one: the fifth of a process,
 * among thousands.
 *
 * The tests running with it must fail. Addresses tell the kind of a copy:
 * memory allocated or locked by the module is staging memory. At exit the
 * library prints its number of actions.
 */
#define _GNU_SOURCE
#include <cuda.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


/* The module, by the end of its file's name */
#define SABOTAGE_MODULE "libuct_cuda.so"

#define SABOTAGE_MAX_RANGES 64
#define SABOTAGE_MAX_KINDS  65536 /* a power of two */
#define SABOTAGE_MAX_DEPS   64
#define SABOTAGE_MAX_EXECS  4096


typedef enum {
    SABOTAGE_NONE,
    SABOTAGE_HOPS,
    SABOTAGE_SLOTS,
    SABOTAGE_EARLY,
    SABOTAGE_QUERY,
    SABOTAGE_LATE,
    SABOTAGE_SHORT,
    SABOTAGE_LAST
} sabotage_t;

static const char *const sabotage_names[] = {"none", "hops", "slots", "early",
                                             "query", "late", "short"};


/* Kind of the newest copy in a stream, or before an event */
typedef enum {
    KIND_NONE,
    KIND_DIRECT,
    KIND_FIRST_HOP,
    KIND_SECOND_HOP,
    KIND_GRAPH
} kind_t;


typedef struct {
    uintptr_t begin, end;
} range_t;


typedef struct {
    const void *object; /* NULL: free */
    kind_t     kind;
    CUevent    event;   /* of a stream: the newest one recorded in it; of an
                           event: the one before it in this stream */
} object_kind_t;


/* A launched graph, and an event behind its newest launch */
typedef struct {
    CUgraphExec exec; /* NULL: free */
    CUevent     event;
} exec_t;


static struct {
    pthread_mutex_t lock;
    pthread_once_t  once;
    sabotage_t      what;
    unsigned long   number; /* number of the only action; 0: all */
    unsigned long   count;  /* candidates so far */
    range_t         staging[SABOTAGE_MAX_RANGES];
    object_kind_t   kinds[SABOTAGE_MAX_KINDS];
    unsigned long   waits;
    unsigned long   dropped;
    unsigned long   launches;  /* launches of graphs */
    unsigned long   in_flight; /* graphs changed in flight */
    exec_t          execs[SABOTAGE_MAX_EXECS];
    CUstream        hidden; /* stream of graphs whose end is reported early */
} sabotage = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .once = PTHREAD_ONCE_INIT
};


static void sabotage_report(void)
{
    if (sabotage.waits > 0) {
        fprintf(stderr,
                "sabotage: %s: %lu of %lu waits dropped, %lu graphs launched, "
                "%lu changed in flight\n",
                sabotage_names[sabotage.what], sabotage.dropped, sabotage.waits,
                sabotage.launches, sabotage.in_flight);
    }
}

static void sabotage_init(void)
{
    const char *name = getenv("CUEMU_SABOTAGE");
    size_t length    = (name == NULL) ? 0 : strcspn(name, ":");
    int i;

    for (i = 0; i < SABOTAGE_LAST; ++i) {
        if ((length > 0) && (strlen(sabotage_names[i]) == length) &&
            (strncmp(name, sabotage_names[i], length) == 0)) {
            sabotage.what   = (sabotage_t)i;
            sabotage.number = (name[length] == ':') ?
                                      strtoul(name + length + 1, NULL, 10) :
                                      0;
            atexit(sabotage_report);
            return;
        }
    }

    fprintf(stderr, "sabotage: CUEMU_SABOTAGE is none of: none hops slots "
                    "early query late short\n");
    _Exit(2);
}


/* ------------------------------------------------------------------ kinds */

/* Find the entry of an object's kind. Call with the lock. */
static object_kind_t *find_kind(const void *object)
{
    size_t index = ((uintptr_t)object >> 4) * UINT64_C(0x9e3779b97f4a7c15);
    object_kind_t *entry;
    int i;

    for (i = 0; i < SABOTAGE_MAX_KINDS; ++i) {
        entry = &sabotage.kinds[(index + i) & (SABOTAGE_MAX_KINDS - 1)];
        if ((entry->object == object) || (entry->object == NULL)) {
            entry->object = object;
            return entry;
        }
    }

    fprintf(stderr, "sabotage: too many streams and events\n");
    abort();
}

static void add_staging(uintptr_t address, size_t size)
{
    int i;

    for (i = 0; i < SABOTAGE_MAX_RANGES; ++i) {
        if (sabotage.staging[i].end == 0) {
            sabotage.staging[i].begin = address;
            sabotage.staging[i].end   = address + size;
            return;
        }
    }
}

static void remove_staging(uintptr_t address)
{
    int i;

    for (i = 0; i < SABOTAGE_MAX_RANGES; ++i) {
        if (sabotage.staging[i].begin == address) {
            memset(&sabotage.staging[i], 0, sizeof(sabotage.staging[i]));
        }
    }
}

static int is_staging(uintptr_t address)
{
    int i;

    for (i = 0; i < SABOTAGE_MAX_RANGES; ++i) {
        if ((address >= sabotage.staging[i].begin) &&
            (address < sabotage.staging[i].end)) {
            return 1;
        }
    }

    return 0;
}

static kind_t copy_kind(uintptr_t dst, uintptr_t src)
{
    return is_staging(dst) ? KIND_FIRST_HOP :
           is_staging(src) ? KIND_SECOND_HOP :
                             KIND_DIRECT;
}

/* Count a candidate; return whether it is the one to act on. */
static int is_turn(void)
{
    ++sabotage.count;
    return (sabotage.number == 0) || (sabotage.count == sabotage.number);
}

/* Return whether to drop this wait. A stream without copies keeps its first
   waits: there are many more. */
static int is_unwanted(const object_kind_t *waiter, kind_t awaited)
{
    switch (sabotage.what) {
    case SABOTAGE_HOPS:
    case SABOTAGE_LATE:
        return (waiter->kind != KIND_NONE) && (awaited == KIND_FIRST_HOP) &&
               is_turn();
    case SABOTAGE_SLOTS:
        return (waiter->kind == KIND_FIRST_HOP) &&
               (awaited == KIND_SECOND_HOP) && is_turn();
    default:
        return 0;
    }
}

/* Return the bytes to omit from a copy. */
static size_t unwanted_bytes(kind_t kind)
{
    int is_short = (sabotage.what == SABOTAGE_SHORT) &&
                   (kind == KIND_SECOND_HOP) && is_turn();

    sabotage.dropped += is_short;
    return is_short;
}


/* --------------------------------------------------------------- the calls */

/* The driver's function behind a wrapper, of the same type */
#define REAL(_wrapper) ((__typeof__(&_wrapper))real_##_wrapper)

#define WRAPPERS(_) \
    _(mem_alloc, "cuMemAlloc_v2") \
    _(mem_free, "cuMemFree_v2") \
    _(mem_host_register, "cuMemHostRegister_v2") \
    _(mem_host_unregister, "cuMemHostUnregister") \
    _(memcpy_async, "cuMemcpyAsync") \
    _(event_record, "cuEventRecord") \
    _(stream_wait_event, "cuStreamWaitEvent") \
    _(graph_add_memcpy_node, "cuGraphAddMemcpyNode") \
    _(graph_launch, "cuGraphLaunch") \
    _(graph_exec_set, "cuGraphExecMemcpyNodeSetParams") \
    _(graph_exec_destroy, "cuGraphExecDestroy") \
    _(event_query, "cuEventQuery") \
    _(event_create, "cuEventCreate") \
    _(stream_create, "cuStreamCreate")

#define DECLARE_REAL(_wrapper, _symbol) static void *real_##_wrapper;
WRAPPERS(DECLARE_REAL)

static CUresult mem_alloc(CUdeviceptr *ptr, size_t size)
{
    CUresult result = REAL(mem_alloc)(ptr, size);

    pthread_mutex_lock(&sabotage.lock);
    if (result == CUDA_SUCCESS) {
        add_staging(*ptr, size);
    }
    pthread_mutex_unlock(&sabotage.lock);
    return result;
}

static CUresult mem_free(CUdeviceptr ptr)
{
    pthread_mutex_lock(&sabotage.lock);
    remove_staging(ptr);
    pthread_mutex_unlock(&sabotage.lock);
    return REAL(mem_free)(ptr);
}

static CUresult mem_host_register(void *ptr, size_t size, unsigned flags)
{
    CUresult result = REAL(mem_host_register)(ptr, size, flags);

    pthread_mutex_lock(&sabotage.lock);
    if (result == CUDA_SUCCESS) {
        add_staging((uintptr_t)ptr, size);
    }
    pthread_mutex_unlock(&sabotage.lock);
    return result;
}

static CUresult mem_host_unregister(void *ptr)
{
    pthread_mutex_lock(&sabotage.lock);
    remove_staging((uintptr_t)ptr);
    pthread_mutex_unlock(&sabotage.lock);
    return REAL(mem_host_unregister)(ptr);
}

static CUresult
memcpy_async(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream)
{
    kind_t kind;

    pthread_mutex_lock(&sabotage.lock);
    kind                    = copy_kind(dst, src);
    find_kind(stream)->kind = kind;
    size                   -= unwanted_bytes(kind);
    pthread_mutex_unlock(&sabotage.lock);
    return REAL(memcpy_async)(dst, src, size, stream);
}

static CUresult event_record(CUevent event, CUstream stream)
{
    object_kind_t *recorded, *in;

    pthread_mutex_lock(&sabotage.lock);
    recorded        = find_kind(event);
    in              = find_kind(stream);
    recorded->kind  = in->kind;
    recorded->event = in->event;
    in->event       = event;
    pthread_mutex_unlock(&sabotage.lock);
    return REAL(event_record)(event, stream);
}

static CUresult
stream_wait_event(CUstream stream, CUevent event, unsigned flags)
{
    CUevent before = NULL;
    object_kind_t *waiter;
    kind_t awaited;
    int drop;

    pthread_mutex_lock(&sabotage.lock);
    waiter  = find_kind(stream);
    awaited = find_kind(event)->kind;
    drop    = is_unwanted(waiter, awaited);
    if (drop && (sabotage.what == SABOTAGE_LATE)) {
        before = find_kind(event)->event;
    }
    if ((waiter->kind == KIND_NONE) && (awaited == KIND_GRAPH)) {
        waiter->kind = KIND_GRAPH; /* ends with the graph */
    }
    ++sabotage.waits;
    sabotage.dropped += drop;
    pthread_mutex_unlock(&sabotage.lock);
    if (before != NULL) {
        return REAL(stream_wait_event)(stream, before, flags);
    }

    return drop ? CUDA_SUCCESS : REAL(stream_wait_event)(stream, event, flags);
}


static uintptr_t
operand(CUmemorytype type, CUdeviceptr device, const void *host)
{
    return (type == CU_MEMORYTYPE_HOST) ? (uintptr_t)host : device;
}

/* Waits in a graph are edges */
static CUresult
graph_add_memcpy_node(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
                      size_t num_deps, const CUDA_MEMCPY3D *copy,
                      CUcontext context)
{
    CUgraphNode kept[SABOTAGE_MAX_DEPS];
    object_kind_t self = {.object = NULL};
    size_t num_kept    = 0, i;
    CUresult result;

    if (num_deps > SABOTAGE_MAX_DEPS) {
        fprintf(stderr, "sabotage: %zu edges into a node\n", num_deps);
        abort();
    }

    pthread_mutex_lock(&sabotage.lock);
    self.kind = copy_kind(operand(copy->dstMemoryType, copy->dstDevice,
                                  copy->dstHost) +
                                  copy->dstXInBytes,
                          operand(copy->srcMemoryType, copy->srcDevice,
                                  copy->srcHost) +
                                  copy->srcXInBytes);
    for (i = 0; i < num_deps; ++i) {
        ++sabotage.waits;
        if (is_unwanted(&self, find_kind(deps[i])->kind)) {
            ++sabotage.dropped;
        } else {
            kept[num_kept++] = deps[i];
        }
    }
    pthread_mutex_unlock(&sabotage.lock);

    result = REAL(graph_add_memcpy_node)(node, graph, kept, num_kept, copy,
                                         context);
    if (result == CUDA_SUCCESS) {
        pthread_mutex_lock(&sabotage.lock);
        find_kind(*node)->kind = self.kind;
        pthread_mutex_unlock(&sabotage.lock);
    }

    return result;
}

static CUresult event_query(CUevent event)
{
    CUresult result = REAL(event_query)(event);

    pthread_mutex_lock(&sabotage.lock);
    if ((result == CUDA_ERROR_NOT_READY) &&
        (((sabotage.what == SABOTAGE_QUERY) &&
          (find_kind(event)->kind == KIND_GRAPH)) ||
         ((sabotage.what == SABOTAGE_EARLY) &&
          (find_kind(event)->kind == KIND_SECOND_HOP)))) {
        ++sabotage.dropped;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&sabotage.lock);
    return result;
}

/* Passed on, and used below */
static CUresult event_create(CUevent *event, unsigned flags)
{
    return REAL(event_create)(event, flags);
}

static CUresult stream_create(CUstream *stream, unsigned flags)
{
    return REAL(stream_create)(stream, flags);
}

static exec_t *find_exec(CUgraphExec exec)
{
    int i;

    for (i = 0; i < SABOTAGE_MAX_EXECS; ++i) {
        if (sabotage.execs[i].exec == exec) {
            return &sabotage.execs[i];
        }
    }

    return NULL;
}

static void note_launch(CUgraphExec exec, CUstream stream)
{
    exec_t *entry = find_exec(exec);

    if (entry == NULL) {
        entry = find_exec(NULL);
    }

    if ((entry == NULL) ||
        ((entry->event == NULL) &&
         (REAL(event_create)(&entry->event, CU_EVENT_DISABLE_TIMING) !=
          CUDA_SUCCESS)) ||
        (REAL(event_record)(entry->event, stream) != CUDA_SUCCESS)) {
        fprintf(stderr, "sabotage: a launch cannot be followed\n");
        abort();
    }

    entry->exec = exec;
}

/* Let the hidden stream wait for the stream's waits; no other stream waits for
   the hidden one. */
static CUstream hide(CUstream stream)
{
    CUevent event;

    if (((sabotage.hidden == NULL) &&
         (REAL(stream_create)(&sabotage.hidden, CU_STREAM_NON_BLOCKING) !=
          CUDA_SUCCESS)) ||
        (REAL(event_create)(&event, CU_EVENT_DISABLE_TIMING) !=
         CUDA_SUCCESS) ||
        (REAL(event_record)(event, stream) != CUDA_SUCCESS) ||
        (REAL(stream_wait_event)(sabotage.hidden, event, 0) !=
         CUDA_SUCCESS)) {
        fprintf(stderr, "sabotage: a launch cannot be hidden\n");
        abort();
    }

    ++sabotage.dropped;
    return sabotage.hidden;
}

static CUresult graph_launch(CUgraphExec exec, CUstream stream)
{
    CUstream used = stream;
    CUresult result;

    pthread_mutex_lock(&sabotage.lock);
    ++sabotage.launches;
    find_kind(stream)->kind = KIND_GRAPH;
    if (sabotage.what == SABOTAGE_EARLY) {
        used = hide(stream);
    }

    result = REAL(graph_launch)(exec, used);
    if (result == CUDA_SUCCESS) {
        note_launch(exec, used);
    }
    pthread_mutex_unlock(&sabotage.lock);
    return result;
}

/* Report changes in flight: the driver permits them, since running launches
   keep their old values, but the engine's own rule forbids them. */
static void check_in_flight(CUgraphExec exec, int is_gone)
{
    exec_t *entry;

    pthread_mutex_lock(&sabotage.lock);
    entry = find_exec(exec);
    if (entry != NULL) {
        sabotage.in_flight += (REAL(event_query)(entry->event) ==
                               CUDA_ERROR_NOT_READY);
        if (is_gone) {
            entry->exec = NULL;
        }
    }
    pthread_mutex_unlock(&sabotage.lock);
}

static CUresult graph_exec_set(CUgraphExec exec, CUgraphNode node,
                               const CUDA_MEMCPY3D *copy, CUcontext context)
{
    check_in_flight(exec, 0);
    return REAL(graph_exec_set)(exec, node, copy, context);
}

static CUresult graph_exec_destroy(CUgraphExec exec)
{
    check_in_flight(exec, 1);
    return REAL(graph_exec_destroy)(exec);
}


/* -------------------------------------------------------------- the lookup */

static int is_from_module(const void *caller)
{
    const char *name;
    Dl_info info;

    if ((dladdr(caller, &info) == 0) || (info.dli_fname == NULL)) {
        return 0;
    }

    name = strrchr(info.dli_fname, '/');
    name = (name == NULL) ? info.dli_fname : name + 1;
    return strncmp(name, SABOTAGE_MODULE, strlen(SABOTAGE_MODULE)) == 0;
}

/* Return the wrapper of a function looked up by the module, if there is one. */
static void *find_wrapper(void *handle, const char *name,
                          void *(*real)(void*, const char*))
{
#define FIND(_wrapper, _symbol) \
    if (strcmp(name, _symbol) == 0) { \
        pthread_once(&sabotage.once, sabotage_init); \
        real_##_wrapper = real(handle, name); \
        return (real_##_wrapper == NULL) ? NULL : (void*)_wrapper; \
    }

    WRAPPERS(FIND)
    return NULL;
}

__attribute__((visibility("default"))) void *dlsym(void *handle,
                                                   const char *name);

/* The real function looks at its caller: the last call must be a jump */
#ifdef __clang__
#define CALL_BY_JUMP
#define BY_JUMP __attribute__((musttail))
#else
#define CALL_BY_JUMP __attribute__((optimize("O2")))
#define BY_JUMP
#endif

CALL_BY_JUMP void *dlsym(void *handle, const char *name)
{
    static void *(*real)(void*, const char*);
    void *found;

    if (real == NULL) {
        real = (void *(*)(void*, const char*))dlvsym(RTLD_NEXT, "dlsym",
                                                     "GLIBC_2.34");
        if (real == NULL) {
            real = (void *(*)(void*, const char*))dlvsym(RTLD_NEXT, "dlsym",
                                                         "GLIBC_2.2.5");
        }
    }

    if ((strncmp(name, "cu", 2) == 0) &&
        is_from_module(__builtin_return_address(0)) &&
        ((found = find_wrapper(handle, name, real)) != NULL)) {
        return found;
    }

    BY_JUMP return real(handle, name);
}
