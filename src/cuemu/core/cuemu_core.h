/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Timing core of the emulated node: node description, link simulation, clock.
 *
 * The core starts no thread. Its objects hold no pointers into themselves, so a
 * cuemu_node_t, cuemu_sim_t or cuemu_clock_t may lie in memory mapped by many
 * processes at different addresses. Unless a comment says otherwise, the caller
 * serialises all calls on one object.
 *
 * Units: time is int64_t picoseconds of emulated time, sizes are bytes, rates
 * are bytes per second (node files and messages use GB/s = 10^9 bytes/s).
 */
#ifndef CUEMU_CORE_H_
#define CUEMU_CORE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif


/* ---------------------------------------------------------------- basics */

typedef enum {
    CUEMU_OK           = 0,
    CUEMU_ERR_IO       = -1, /* file not readable */
    CUEMU_ERR_PARSE    = -2, /* malformed file */
    CUEMU_ERR_INVALID  = -3, /* argument out of range */
    CUEMU_ERR_FULL     = -4, /* no free operation or dependency slot */
    CUEMU_ERR_NO_ROUTE = -5  /* no route between the two places */
} cuemu_status_t;

typedef int64_t cuemu_time_t;

#define CUEMU_TIME_INF     INT64_MAX
#define CUEMU_PS_PER_NS    ((cuemu_time_t)1000)
#define CUEMU_PS_PER_US    ((cuemu_time_t)1000000)
#define CUEMU_PS_PER_SEC   ((cuemu_time_t)1000000000000)

#define CUEMU_ERRBUF_SIZE  320

#define CUEMU_MAX_GPUS     16
#define CUEMU_MAX_NUMA     8
#define CUEMU_MAX_NVLINKS  36 /* maximum of a GPU's NVLinks */
#define CUEMU_MAX_LINKS    512
#define CUEMU_MAX_HOPS     14
#define CUEMU_MAX_PCI_PATH 6
#define CUEMU_NAME_SIZE    48
#define CUEMU_BUSID_SIZE   20 /* "0000:1b:00.0" */

/* First 3 bytes of an emulated GPU's UUID; 9 bytes of the node's name follow */
#define CUEMU_UUID_MARK    "emu"

/** strtod() and snprintf() in the C locale: a program's own may have a decimal
 * comma. */
double cuemu_strtod(const char *text, char **end_p);

/* Return the bytes of a variable such as "123", "64M", "16g"; 0 if unset, -1 if
   malformed, which is reported. */
int64_t cuemu_env_bytes(const char *name);

void cuemu_print(char *text, size_t size, const char *format, ...)
        __attribute__((format(printf, 3, 4)));


/* ---------------------------------------------------------------- places */

/*
 * Location of bytes: a GPU, the page-locked memory of a NUMA node, or pageable
 * host memory. The numbers are fixed, so a place can be stored in shared memory
 * and used as an index.
 */
typedef int32_t cuemu_place_t;

#define CUEMU_PLACE_GPU(_i)   ((cuemu_place_t)(_i))
#define CUEMU_PLACE_NUMA(_n)  ((cuemu_place_t)(CUEMU_MAX_GPUS + (_n)))
#define CUEMU_PLACE_PAGEABLE  ((cuemu_place_t)(CUEMU_MAX_GPUS + CUEMU_MAX_NUMA))
#define CUEMU_NUM_PLACES      (CUEMU_MAX_GPUS + CUEMU_MAX_NUMA + 1)


/* ------------------------------------------------------------------ node */

typedef enum {
    CUEMU_PEER_NONE = 0,
    CUEMU_PEER_GPU,
    CUEMU_PEER_SWITCH,
    CUEMU_PEER_CPU
} cuemu_peer_type_t;

/* One NVLink of a GPU, with the remote end as NVML reports it. */
typedef struct {
    int32_t peer_type;              /* cuemu_peer_type_t */
    int32_t peer_gpu;               /* index in the node; -1: no GPU of this
                                       node */
    char    peer_busid[CUEMU_BUSID_SIZE];
} cuemu_nvlink_t;

typedef struct {
    char           name[CUEMU_NAME_SIZE];      /* "Tesla V100-SXM2-16GB" */
    char           busid[CUEMU_BUSID_SIZE];    /* "0000:1b:00.0" */
    uint8_t        uuid[16];
    int32_t        sm;                         /* 70: compute capability 7.0 */
    int32_t        sm_count;                   /* multiprocessors */
    int32_t        numa;                       /* NUMA node of its PCIe root */
    int32_t        pcie_gen;
    int32_t        pcie_width;
    int32_t        nvlink_version;             /* 0: no NVLink */
    int32_t        nvlink_mbps;                /* MB/s of one link and
                                                  direction */
    int32_t        c2c_count;                  /* number of NVLink-C2C links to
                                                  the CPU */
    int32_t        c2c_mbps;                   /* MB/s of one C2C link and
                                                  direction */
    int32_t        num_nvlinks;
    cuemu_nvlink_t nvlinks[CUEMU_MAX_NVLINKS];
    int32_t        pci_depth;                  /* elements of pci_path */
    int32_t        pci_path[CUEMU_MAX_PCI_PATH]; /* ids unique in the node: CPU,
                                                    then bridges */
    uint64_t       memory_bytes;
} cuemu_gpu_t;

/* A resource shared by copies: one direction of a link, a memory's read or
   write side, or several of these limited together (<cuemu set="shared">). */
typedef struct {
    char    name[CUEMU_NAME_SIZE]; /* "nvlink.0>1", "pcie.2.up", "dram.0.rd" */
    double  capacity;              /* bytes per second */
} cuemu_link_t;

/*
 * Route from one place to another: the links that a copy occupies, all at once,
 * and the fixed times of a copy. The comment on cuemu_sim_t tells how these add
 * up.
 */
typedef struct {
    int32_t      num_links;               /* 0: no route */
    int32_t      num_own_links;           /* number of links, from the first on,
                                             busy during `setup`: those of the
                                             GPUs themselves */
    int32_t      p2p;                     /* GPU to GPU: peer access possible */
    int32_t      kind;                    /* cuemu_route_kind_t */
    int16_t      links[CUEMU_MAX_HOPS];
    double       solo_rate;               /* smallest capacity, bytes/s */
    double       own_rate;                /* smallest capacity of the own links,
                                             bytes/s */
    cuemu_time_t launch;                  /* from submission to start, in an
                                             idle stream */
    cuemu_time_t setup;                   /* time of the engine's set-up: the
                                             own links are busy, no byte
                                             moves */
    cuemu_time_t complete;                /* from the last byte to completion */
    cuemu_time_t small;                   /* added to `setup` for the first
                                             CUEMU_SMALL_COPY bytes, in
                                             proportion */
} cuemu_route_t;

/* The driver copies so many bytes to or from pageable memory more slowly than
   the rest of a copy */
#define CUEMU_SMALL_COPY 65536

/* Driver calls with a modelled time on the calling CPU */
typedef enum {
    CUEMU_CALL_COPY_ASYNC,
    CUEMU_CALL_COPY_BATCH,       /* submission of several copies by one call:
                                    fixed part */
    CUEMU_CALL_COPY_OF_BATCH,    /* each copy of a batch */
    CUEMU_CALL_KERNEL,           /* launch of a kernel or host function */
    CUEMU_CALL_EVENT_RECORD,
    CUEMU_CALL_STREAM_WAIT,
    CUEMU_CALL_QUERY_DONE,       /* query of a completed event or stream */
    CUEMU_CALL_QUERY_BUSY,       /* query returning NOT_READY */
    CUEMU_CALL_CTX_SWITCH,       /* push + pop */
    CUEMU_CALL_POINTER_ATTR,     /* attributes of a device or page-locked
                                    pointer */
    CUEMU_CALL_POINTER_ATTR_HOST, /* attributes of a pointer unknown to the
                                     driver */
    CUEMU_CALL_ADDRESS_RANGE,
    CUEMU_CALL_IPC_GET,
    CUEMU_CALL_IPC_OPEN,
    CUEMU_CALL_IPC_CLOSE,
    CUEMU_CALL_EVENT_CREATE,
    CUEMU_CALL_STREAM_CREATE,
    CUEMU_CALL_MEM_ALLOC,
    CUEMU_CALL_MEM_FREE,
    CUEMU_CALL_HOST_REGISTER,    /* fixed part; see host_register_rate */
    CUEMU_CALL_HOST_UNREGISTER,
    CUEMU_CALL_GRAPH_ADD_NODE,
    CUEMU_CALL_GRAPH_INSTANTIATE, /* fixed part; each node adds
                                     graph_instantiate_node */
    CUEMU_CALL_GRAPH_LAUNCH,     /* fixed part */
    CUEMU_CALL_GRAPH_UPDATE_NODE, /* update of one node of an executable
                                     graph */
    CUEMU_CALL_CONTEXT,          /* creation of a primary context */
    CUEMU_CALL_CONTEXT_HOLD,     /* last part of the creation, in which calls of
                                    other threads wait */
    CUEMU_CALL_LAST
} cuemu_call_t;

typedef struct {
    cuemu_time_t call[CUEMU_CALL_LAST];
    double       host_register_rate;      /* bytes/s, added to the call's fixed
                                             part */
    double       host_unregister_rate;
    cuemu_time_t graph_instantiate_node;  /* per node, added to the fixed
                                             part */
    cuemu_time_t graph_launch_node;
    cuemu_time_t graph_first_launch;      /* added to the first launch of a
                                             graph */
    cuemu_time_t cross_stream;            /* added to an operation after a wait
                                             for work of another stream */
    cuemu_time_t kernel;                  /* shortest time of a kernel on the
                                             GPU */
    cuemu_time_t kernel_start;            /* from its launch to its start, in an
                                             idle stream */
    cuemu_time_t pull;                    /* added to `setup` if the reading
                                             GPU's engine makes the copy */
} cuemu_cost_t;

/* A node: plain data without pointers. */
typedef struct {
    char          name[CUEMU_NAME_SIZE];  /* file name without ".xml" */
    int32_t       num_gpus;
    int32_t       num_numa;
    int32_t       num_links;
    int32_t       has_nvswitch;
    cuemu_gpu_t   gpus[CUEMU_MAX_GPUS];
    cuemu_link_t  links[CUEMU_MAX_LINKS];
    cuemu_route_t routes[CUEMU_NUM_PLACES][CUEMU_NUM_PLACES];
    cuemu_cost_t  cost;
} cuemu_node_t;

/*
 * Read an NCCL topology file. Errors: IO (not readable), PARSE (malformed). On
 * failure `errbuf` (CUEMU_ERRBUF_SIZE bytes) holds one sentence with the file,
 * the line and the reason.
 */
cuemu_status_t cuemu_node_load(const char *path, cuemu_node_t *node_p,
                               char *errbuf);

/*
 * Find the file of a node by the user's name for it, such as "beluga" or
 * "./my.xml", and write its path to `path_p`. A name with a slash is used as it
 * is, even if there is no such file; so is the name of an existing file.
 * Otherwise NAME.xml, then NAME, is searched in $CUEMU_NODES,
 * `libdir`/../nodes, `libdir`/nodes and the folder of installed nodes.
 * `libdir` is the calling library's folder and may be NULL.
 * Errors: INVALID (path longer than `path_size`), IO (not found), with a
 * sentence in `errbuf`.
 */
cuemu_status_t cuemu_node_find(const char *name, const char *libdir,
                               char *path_p, size_t path_size, char *errbuf);

/* Find and load the node named by $CUEMU_NODE, also beside the library that
   contains this function. Errors: those of cuemu_node_find() and
   cuemu_node_load(); INVALID if the variable is unset or empty. */
cuemu_status_t cuemu_node_load_env(cuemu_node_t *node_p, char *errbuf);

/* Write a GPU's UUID as the driver and NVML print it. */
#define CUEMU_UUID_SIZE 41
void cuemu_gpu_uuid_text(const cuemu_gpu_t *gpu, char *text);

/* Return the route from `src` to `dst`, NULL if there is none. */
const cuemu_route_t *cuemu_node_route(const cuemu_node_t *node,
                                      cuemu_place_t src, cuemu_place_t dst);

/*
 * Return the distance of two GPUs in the PCIe tree: 0 same GPU, 1 connected by
 * one bridge, 2 by several bridges, 3 by the same CPU, 4 on different CPUs.
 */
int cuemu_node_pci_distance(const cuemu_node_t *node, int gpu1, int gpu2);

/* Return the time that the engine's set-up of a copy takes. */
cuemu_time_t cuemu_route_setup(const cuemu_route_t *route, uint64_t bytes);

/*
 * Return the time of a copy with the route to itself, from its submission in an
 * idle stream: launch + setup + bytes / rate + complete.
 */
cuemu_time_t cuemu_route_copy_time(const cuemu_route_t *route, uint64_t bytes);

const char *cuemu_status_string(cuemu_status_t status);


/* ------------------------------------------------------------ simulation */

/*
 * A DAG of timed operations over the node's links.
 *
 * States of an operation: WAITING (for dependencies), QUEUED (for its start
 * time), RUNNING (moving bytes, or a delay), LANDING (completion latency), then
 * DONE. Between LANDING and DONE an operation with NEEDS_SERVICE is DUE, then
 * SERVING while a process moves its bytes or runs its function. Simulated time
 * stands still until then.
 *
 * Time of a copy. A copy starts when its dependencies are done, but not before
 * `not_before` + the route's launch latency, which other work in the stream can
 * hide. First its engine is set up. This occupies the GPUs' own links for the
 * route's `setup` time, so copies over one GPU's link share that time as well;
 * links of switches, sockets and memory stay free. Then the copy occupies all
 * links of its route until its bytes have moved. Each link is divided max-min
 * fairly among the copies on it (progressive filling, repeated whenever a copy
 * starts or ends). The completion latency follows, and only after it the
 * operation's successors start.
 */
typedef struct cuemu_sim cuemu_sim_t;

/* Id of an operation: its slot's index and generation, so ids are not reused;
   0: no operation */
typedef uint64_t cuemu_op_id_t;

typedef enum {
    CUEMU_OP_COPY,  /* moves `bytes` along the route from `src` to `dst` */
    CUEMU_OP_DELAY, /* takes `duration`, uses no link */
    CUEMU_OP_MARK   /* takes no time: event record, host callback, join */
} cuemu_op_kind_t;

enum {
    /* On completion simulated time stands still until the operation was served
       (cuemu_sim_service(), cuemu_sim_served()) */
    CUEMU_OP_NEEDS_SERVICE = 1u << 0,
    /* Only its owner may serve it (host memory, callbacks) */
    CUEMU_OP_OWNER_ONLY    = 1u << 1,
    /* Times stay available after completion, until cuemu_sim_op_release() */
    CUEMU_OP_HOLD          = 1u << 2,
    /* A dependency belongs to another stream: adds node->cost.cross_stream if
       one was unfinished when the operation was added */
    CUEMU_OP_CROSS_STREAM  = 1u << 3,
    /* COPY: no launch, set-up or completion latency: memory accesses of a
       kernel, or a later copy of a batch, set up while earlier ones run */
    CUEMU_OP_STREAMED      = 1u << 4,
    /* COPY: made by the engine of the reading GPU, not of the source: adds
       node->cost.pull to the set-up */
    CUEMU_OP_PULLED        = 1u << 5
};

#define CUEMU_OP_PAYLOAD_SIZE 128
#define CUEMU_OWNERS          128

typedef struct {
    int32_t       kind;       /* cuemu_op_kind_t */
    uint32_t      flags;
    int32_t       owner;      /* number below CUEMU_OWNERS chosen by the caller,
                                 e.g. a process's slot */
    cuemu_place_t src, dst;   /* COPY; src == dst is a copy inside a place */
    uint64_t      bytes;      /* COPY */
    cuemu_time_t  duration;   /* DELAY */
    cuemu_time_t  not_before; /* earliest submission time, e.g. the end of the
                                 submitting call; 0: no limit */
    union {                   /* the caller's data for the serving process */
        uint8_t   bytes[CUEMU_OP_PAYLOAD_SIZE];
        uint64_t  words[CUEMU_OP_PAYLOAD_SIZE / 8];
    } payload;
} cuemu_op_desc_t;

typedef enum {
    CUEMU_OP_STATE_FREE,
    CUEMU_OP_STATE_WAITING,
    CUEMU_OP_STATE_QUEUED,
    CUEMU_OP_STATE_RUNNING,
    CUEMU_OP_STATE_LANDING,
    CUEMU_OP_STATE_DUE,
    CUEMU_OP_STATE_SERVING,
    CUEMU_OP_STATE_DONE
} cuemu_op_state_t;

/* Return the bytes of memory for a simulation of at most `max_ops` unfinished
   or held operations (8192 is a suitable number); a multiple of 64. */
size_t cuemu_sim_size(uint32_t max_ops);

/* Create a simulation in `mem` (64-byte aligned, any contents) with a copy of
   `node`. INVALID if an argument is out of range or `size` is too small. */
cuemu_status_t cuemu_sim_init(void *mem, size_t size, const cuemu_node_t *node,
                              uint32_t max_ops, cuemu_sim_t **sim_p);

/* Return the simulation's copy of its node. */
const cuemu_node_t *cuemu_sim_node(const cuemu_sim_t *sim);

/*
 * Advance the simulation to `now`, as cuemu_sim_advance() does, and add an
 * operation at the time reached: earlier than `now` while an operation is due.
 * Ids in `deps` of operations that are done or unknown, and 0, count as
 * satisfied. `id_p` may be NULL. Errors: FULL (no free operation or dependency
 * slot), INVALID (bad description), NO_ROUTE (no route from `src` to `dst`).
 */
cuemu_status_t cuemu_sim_op_add(cuemu_sim_t *sim, cuemu_time_t now,
                                const cuemu_op_desc_t *desc,
                                const cuemu_op_id_t *deps, unsigned num_deps,
                                cuemu_op_id_t *id_p);

/*
 * Run the simulation up to time `t`, or to the first moment at which an
 * operation has to be served; all operations that complete at that moment
 * become due. Time does not move while an operation is due. With CUEMU_TIME_INF
 * it stops at the last event. Return the time reached.
 */
cuemu_time_t cuemu_sim_advance(cuemu_sim_t *sim, cuemu_time_t t);

/* Return the simulation's present time. */
cuemu_time_t cuemu_sim_time(const cuemu_sim_t *sim);

/* Return the time of the next event, at least cuemu_sim_time(): the current
   time while an operation is due, CUEMU_TIME_INF if nothing is running. */
cuemu_time_t cuemu_sim_next(const cuemu_sim_t *sim);

/* Return the number of operations due or being served. Unless it is 0,
   simulated time stands still. */
unsigned cuemu_sim_num_due(const cuemu_sim_t *sim);

/*
 * Take one due operation to serve: one owned by `server` if there is any,
 * otherwise one without OWNER_ONLY. The operation becomes SERVING, so no other
 * server gets it. Return its id, and its description in *desc_p (may be NULL);
 * 0 if nothing is due, or only operations that others must serve. The caller
 * may unlock while it moves the bytes, and ends the service by
 * cuemu_sim_served().
 */
cuemu_op_id_t cuemu_sim_service(cuemu_sim_t *sim, int32_t server,
                                cuemu_op_desc_t *desc_p);

/* Let time continue while a mark is being served: the mark is RUNNING until
   cuemu_sim_served(). Has no effect on other operations. Call
   cuemu_clock_poll() next. */
void cuemu_sim_suspend(cuemu_sim_t *sim, cuemu_op_id_t id);

/* Let time continue without a stopped server: due operations that only this
   server may serve become due again at the time `until`; operations that it is
   serving land at cuemu_sim_served(). Call cuemu_clock_poll() next. */
void cuemu_sim_put_off(cuemu_sim_t *sim, int32_t owner, cuemu_time_t until);

/* End the service of an operation: it is done, and its successors are queued.
   Has no effect on operations that are neither SERVING, suspended nor put off.
   Call cuemu_clock_poll() next. */
void cuemu_sim_served(cuemu_sim_t *sim, cuemu_op_id_t id);

/* Return non-zero if an OWNER_ONLY operation of `owner` is due and not being
   served. */
int cuemu_sim_owner_is_due(const cuemu_sim_t *sim, int32_t owner);

/* End a running delay at the simulation's time, before its `duration` is over.
   Has no effect on other operations. Call cuemu_clock_poll() next. */
void cuemu_sim_op_end(cuemu_sim_t *sim, cuemu_op_id_t id);

/* Return non-zero if the operation is done or unknown, or if `id` is 0. */
int cuemu_sim_op_done(const cuemu_sim_t *sim, cuemu_op_id_t id);

/* Return the state of an operation, and its times of submission, start and end;
   -1 for times not reached yet. An unknown operation, or one whose slot another
   operation uses now, is FREE with times of -1. Without HOLD the slot may be
   used again at any time after the end. Any pointer may be NULL. */
cuemu_op_state_t cuemu_sim_op_query(const cuemu_sim_t *sim, cuemu_op_id_t id,
                                    cuemu_time_t *submit_p,
                                    cuemu_time_t *start_p, cuemu_time_t *end_p);

/* Return the end time of an operation; -1 if it is not done, or if
   cuemu_sim_op_query() would return FREE. */
cuemu_time_t cuemu_sim_op_end_time(const cuemu_sim_t *sim, cuemu_op_id_t id);

/* Return the description of an operation, valid while its slot is not used
   again; NULL if cuemu_sim_op_query() would return FREE. */
const cuemu_op_desc_t *cuemu_sim_op_desc(const cuemu_sim_t *sim,
                                         cuemu_op_id_t id);

/* Clear an operation's HOLD: it is recycled now if done, otherwise once it is
   done. */
void cuemu_sim_op_release(cuemu_sim_t *sim, cuemu_op_id_t id);

/* Return the number of unfinished operations of an owner; -1: of all owners. */
unsigned cuemu_sim_num_live(const cuemu_sim_t *sim, int32_t owner);

/*
 * Remove the operations of an owner whose process has died. Operations that
 * waited for them go on; operations it was serving for other owners become due
 * again. An operation being served by another process stays until that ends.
 * HOLD is cleared on all of the owner's operations, the finished ones included.
 * Return the number of unfinished operations removed.
 */
unsigned cuemu_sim_owner_purge(cuemu_sim_t *sim, int32_t owner);

/* Return the current rate of a running copy in bytes/s, 0 if it is not
   running. */
double cuemu_sim_op_rate(const cuemu_sim_t *sim, cuemu_op_id_t id);


/* ----------------------------------------------------------------- clock */

/*
 * Emulated time of all processes of a node. It follows the processor time that
 * they used, not the wall clock. Each attached process (a "rank") has its own
 * time, which grows with its processor time divided by the slowdown. While a
 * rank waits in the driver, its time is the end of the wait. The node's time is
 * the lowest of all ranks' times. So other programs on the machine do not
 * affect emulated time, and a wait of all ranks takes no real time.
 *
 * A rank may be ahead of the node's time by at most the look-ahead
 * (CUEMU_CLOCK_AHEAD_NS). Processor time beyond it does not count, because the
 * rank may only be polling for a rank that is behind. A rank asleep in the
 * kernel does not hold back the others; its own time includes the sleep. If all
 * ranks sleep, or none is attached, time follows the wall clock.
 *
 * A program reads the node's time, but never beyond the simulation's next event
 * (`limit`). After a due copy was served, time goes on from the copy's end, so
 * moving the bytes takes no emulated time. A virtual clock (slowdown 0) moves
 * only by cuemu_clock_advance(). With `is_wall` time is that of the wall clock
 * divided by the slowdown: programs with many small messages take less real
 * time, but other programs on the machine affect their times.
 *
 * Locking: any thread of any process takes `lock` to update its rank's time and
 * to move the node's time. A reader that finds it taken uses the node's time
 * unchanged. `limit` is written with both `lock` and the caller's lock. No
 * thread keeps `lock` across a wait; one killed or stopped while holding it
 * loses it after 0.3 s. The node's time never decreases, except from beyond
 * `limit`, where no program has seen it.
 *
 * cuemu_clock_poll() and cuemu_clock_advance() need the caller's lock on the
 * simulation, the other functions do not.
 */
#define CUEMU_CLOCK_RANKS   64
#define CUEMU_CLOCK_STOPPED (-2)
#define CUEMU_CLOCK_THREADS 8 /* threads of a rank in the driver at once */

/* Look-ahead: processor time by which a rank may be ahead of the node, ns */
#define CUEMU_CLOCK_AHEAD_NS 50000

/* A thread of a rank that calls the driver */
typedef struct {
    int32_t      tid;       /* 0: free */
    uint32_t     is_asleep; /* futex: 1 while it sleeps in a wait, cleared to
                               wake it */
    uint64_t     left_ns;   /* CLOCK_MONOTONIC when it left the driver; 0: in
                               the driver; 1: left long ago, asleep */
    cuemu_time_t until;     /* end of its wait in the driver; 0: no wait */
    cuemu_time_t idle;      /* end of its wait if all ranks wait, >= `until` */
    uint64_t     cpu_ns;    /* its processor time on entering the driver; 0: not
                               read */
    cuemu_time_t polled;    /* sum of the times of its queries that found
                               nothing */
} cuemu_clock_thread_t;

typedef struct {
    int32_t      pid;       /* 0: free */
    int32_t      service;   /* tid of the emulator's thread in that process, or
                               0 */
    uint64_t     space;     /* PID namespace; /proc cannot be read in another */
    uint64_t     service_ns; /* processor time of thread `service` */
    int32_t      is_asleep; /* in the kernel: does not hold back time */
    int32_t      is_stopped; /* stopped or killed during a wait: does not hold
                                back time */
    uint64_t     cpu_ns;    /* processor time already counted in `time` */
    uint64_t     delay_ns;  /* total time in the queue for a processor */
    uint64_t     seen_ns;   /* CLOCK_MONOTONIC of `cpu_ns` */
    uint64_t     looked_ns; /* CLOCK_MONOTONIC when another rank last looked */
    uint64_t     ran_ns;    /* CLOCK_MONOTONIC when it was last seen to have
                               run */
    uint64_t     asked_ns;  /* CLOCK_MONOTONIC when its state was last read */
    uint64_t     stop_asked_ns; /* the same for whether it is stopped */
    uint64_t     calls;     /* number of driver calls and yields so far */
    cuemu_time_t time;
    cuemu_clock_thread_t threads[CUEMU_CLOCK_THREADS];
} cuemu_clock_rank_t;

typedef struct {
    uint64_t     lock;        /* CLOCK_MONOTONIC when it was taken; 0: free */
    uint64_t     wanted_ns;   /* CLOCK_MONOTONIC when a thread last waited for
                                 it */
    cuemu_time_t time;        /* node's time; programs see at most `limit` */
    cuemu_time_t limit;
    double       slowdown;    /* 0: virtual */
    int32_t      is_stopped;  /* at `limit`, until all due operations were
                                 served */
    int32_t      num_ranks;   /* highest used rank + 1 */
    int32_t      num_asleep;  /* threads asleep in a wait */
    int32_t      is_wall;     /* time follows the wall clock, not processor
                                 time */
    uint64_t     moved_ns;    /* CLOCK_MONOTONIC when `time` last grew */
    uint64_t     stopped_ns;  /* CLOCK_MONOTONIC when the clock stopped */
    /* statistics: real time spent stopped, for service; processor time
       forgotten by ranks beyond the look-ahead */
    uint64_t     real_clamped_ns;
    uint64_t     forgotten_ns;
    cuemu_clock_rank_t ranks[CUEMU_CLOCK_RANKS];
} cuemu_clock_t;

/* Initialise a clock. `slowdown`: processor seconds per emulated second, 0.001
   to 1e6; 0: virtual clock. INVALID for other values. */
cuemu_status_t cuemu_clock_init(cuemu_clock_t *clk, double slowdown);

/* Attach process `pid`, of the caller's PID namespace, as rank `rank`. */
void cuemu_clock_attach(cuemu_clock_t *clk, int rank, int pid);

/* Detach a rank: its process has ended. */
void cuemu_clock_detach(cuemu_clock_t *clk, int rank);

/*
 * Return the emulated time. Async-signal-safe: uses system calls only. `rank`:
 * the caller's rank, whose processor time up to now is counted; -1: only read
 * the time. *clamped_p (may be NULL) is set if time cannot pass `limit` until a
 * process calls cuemu_clock_poll().
 */
cuemu_time_t cuemu_clock_now(cuemu_clock_t *clk, int rank, int *clamped_p);

/*
 * Bring the simulation and the clock to the present time and return it. Call it
 * before adding or querying operations, and after cuemu_sim_op_add() and
 * cuemu_sim_served(), so that `limit` is right. If cuemu_sim_num_due() is not 0
 * afterwards, the clock has stopped: serve the operations. The first call after
 * all of them were served restarts it.
 */
cuemu_time_t cuemu_clock_poll(cuemu_clock_t *clk, cuemu_sim_t *sim);

/* Note that thread `tid` of the rank enters the driver. Until it leaves, only
   its waits take emulated time. Return a number for the other functions'
   `thread`; -1 if CUEMU_CLOCK_THREADS others are inside, or with `is_wall`: the
   other functions accept -1, too. `hint`: the number returned to this thread
   last time, or -1. */
int cuemu_clock_call_begin(cuemu_clock_t *clk, int rank, int tid, int hint);

/* Note that the thread leaves the driver: its processor time counts again. */
void cuemu_clock_call_end(cuemu_clock_t *clk, int rank, int thread);

/*
 * Begin a wait of a thread in the driver, until emulated time `until`
 * (CUEMU_TIME_INF: until an event of the simulation) or, if all ranks wait,
 * until `idle`. Once all threads of the rank inside the driver wait, time
 * cannot pass the first of these moments before cuemu_clock_wait_end(). A wait
 * of more than 1 us with `idle` == `until` also does cuemu_clock_stir().
 * Returns at once.
 */
void cuemu_clock_wait_begin(cuemu_clock_t *clk, int rank, int thread,
                            cuemu_time_t until, cuemu_time_t idle);

/* End the thread's wait. If all threads of the rank waited, the rank's time is
   the node's time from now on. */
void cuemu_clock_wait_end(cuemu_clock_t *clk, int rank, int thread);

/* Update the clock and return non-zero if the thread's wait is over: its end
   has come, the simulation's next event (`limit`) has, or another thread has
   ended it (cuemu_clock_wake(), cuemu_clock_stir()). `until` is used only if
   `thread` is -1. */
int cuemu_clock_wait_over(cuemu_clock_t *clk, int rank, int thread,
                          cuemu_time_t until);

/* Do a whole wait: return when the thread's wait is over or, unless `word` is
   NULL, *word differs from `value`. If `idle` is later than `until`, the thread
   polls without finding anything: if all ranks wait, its wait lasts until
   `idle`. */
void cuemu_clock_wait(cuemu_clock_t *clk, int rank, int thread,
                      cuemu_time_t until, cuemu_time_t idle,
                      const uint64_t *word, uint64_t value);

/* End, at the present emulated time, those waits of the rank's threads that
   have no end of their own (CUEMU_TIME_INF). */
void cuemu_clock_wake(cuemu_clock_t *clk, int rank);

/*
 * Compute the two ends, for cuemu_clock_wait(), of the wait of a thread that
 * has found nothing since emulated time `first`. A wait takes a part (1/16) of
 * that time: at least `least`, and at most 2 us or 50 us of processor time,
 * whichever is longer. If all ranks wait: at most 100 us.
 */
void cuemu_clock_poll_until(const cuemu_clock_t *clk, cuemu_time_t now,
                            cuemu_time_t first, cuemu_time_t least,
                            cuemu_time_t *until_p, cuemu_time_t *idle_p);

/* End the polling waits (`idle` > `until`) of all other ranks at the time of
   `rank`, which may have written the memory that they poll.
   cuemu_clock_wait_begin() does so by itself before a wait of more than 1
   us. */
void cuemu_clock_stir(cuemu_clock_t *clk, int rank);

/* Return the real time from now until emulated time `t`, in ns, if time passes
   at 1/slowdown of the wall clock; 0 if reached; UINT64_MAX for
   CUEMU_TIME_INF. */
uint64_t cuemu_clock_real_until(cuemu_clock_t *clk, cuemu_time_t t);

/* Move a virtual clock and its simulation to `t`, or to the first moment with
   due operations. Return the time reached. */
cuemu_time_t cuemu_clock_advance(cuemu_clock_t *clk, cuemu_sim_t *sim,
                                 cuemu_time_t t);

/* Source of the clock's information on processes; tests replace it */
typedef struct {
    uint64_t (*real_ns)(void);
    /* Return the processor time of a process in ns, 0 if unknown */
    uint64_t (*cpu_ns)(int pid);
    /* Return the processor time of the calling thread in ns */
    uint64_t (*thread_ns)(void);
    /* Return 1 if thread `tid` of the process runs, or waits for a processor, a
       disk or memory; CUEMU_CLOCK_STOPPED if it is stopped, or was the first
       one and has ended; 0 if it sleeps or has ended. `tid` 0: return 1 if
       any thread other than the caller and `service` does so, otherwise 0;
       -1 if unknown */
    int      (*is_running)(int pid, int tid, int service);
    /* Return the total time that the process's first thread waited for a
       processor, ns; 0 if unknown */
    uint64_t (*delay_ns)(int pid);
    /* Sleep for `ns` of real time, less than a second */
    void     (*sleep)(uint64_t ns);
    /* Sleep until wake(), at most `ns` (0: no limit), unless *word differs
       from `value` */
    void     (*wait)(uint32_t *word, uint32_t value, uint64_t ns);
    /* Wake all threads asleep on `word` */
    void     (*wake)(uint32_t *word);
    /* Return the number of processors that this process may use */
    int      (*num_processors)(void);
    /* Return a number of this process's PID namespace */
    uint64_t (*space)(void);
} cuemu_clock_source_t;

extern const cuemu_clock_source_t cuemu_clock_processes;
extern const cuemu_clock_source_t *cuemu_clock_source;

#ifdef __cplusplus
}
#endif

#endif
