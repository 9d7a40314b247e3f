/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Timing core of the emulated node: node description, link simulation, clock.
 *
 * Nothing here starts a thread or keeps a pointer inside one of its objects, so
 * a cuemu_node_t, cuemu_sim_t or cuemu_clock_t may live in memory that many
 * processes map at different addresses. Unless said otherwise the caller
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
    CUEMU_ERR_IO       = -1, /* a file cannot be read */
    CUEMU_ERR_PARSE    = -2, /* a file is not what it should be */
    CUEMU_ERR_INVALID  = -3, /* an argument is out of range */
    CUEMU_ERR_FULL     = -4, /* no free operation or dependency slot */
    CUEMU_ERR_NO_ROUTE = -5  /* nothing connects the two places */
} cuemu_status_t;

typedef int64_t cuemu_time_t;

#define CUEMU_TIME_INF     INT64_MAX
#define CUEMU_PS_PER_NS    ((cuemu_time_t)1000)
#define CUEMU_PS_PER_US    ((cuemu_time_t)1000000)
#define CUEMU_PS_PER_SEC   ((cuemu_time_t)1000000000000)

#define CUEMU_ERRBUF_SIZE  256

#define CUEMU_MAX_GPUS     16
#define CUEMU_MAX_NUMA     8
#define CUEMU_MAX_NVLINKS  36 /* of one GPU */
#define CUEMU_MAX_LINKS    512
#define CUEMU_MAX_HOPS     14
#define CUEMU_MAX_PCI_PATH 6
#define CUEMU_NAME_SIZE    48
#define CUEMU_BUSID_SIZE   20 /* "0000:1b:00.0" */

/* UUIDs of emulated GPUs begin with it; the node's name follows (9 bytes) */
#define CUEMU_UUID_MARK    "emu"


/* ---------------------------------------------------------------- places */

/*
 * Where bytes can be. The numbering is fixed, so that a place can be kept in
 * shared memory and used as an index.
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

/* One NVLink of a GPU, as NVML tells of it. */
typedef struct {
    int32_t peer_type;              /* cuemu_peer_type_t */
    int32_t peer_gpu;               /* index, -1 unless a GPU of this node */
    char    peer_busid[CUEMU_BUSID_SIZE];
} cuemu_nvlink_t;

typedef struct {
    char           name[CUEMU_NAME_SIZE];      /* "Tesla V100-SXM2-16GB" */
    char           busid[CUEMU_BUSID_SIZE];    /* "0000:1b:00.0" */
    uint8_t        uuid[16];
    int32_t        sm;                         /* 70: compute capability 7.0 */
    int32_t        sm_count;                   /* multiprocessors */
    int32_t        numa;                       /* NUMA node it hangs at */
    int32_t        pcie_gen;
    int32_t        pcie_width;
    int32_t        nvlink_version;             /* 0: no NVLink */
    int32_t        nvlink_mbps;                /* MB/s of one link, one way */
    int32_t        c2c_count;                  /* NVLink-C2C to the CPU */
    int32_t        c2c_mbps;                   /* MB/s of one, one way */
    int32_t        num_nvlinks;
    cuemu_nvlink_t nvlinks[CUEMU_MAX_NVLINKS];
    int32_t        pci_depth;                  /* elements of pci_path */
    int32_t        pci_path[CUEMU_MAX_PCI_PATH]; /* from the root: CPU, then
                                                    bridges; node-wide */
    uint64_t       memory_bytes;
} cuemu_gpu_t;

/* A directed (or deliberately shared) piece of the node with a rate. */
typedef struct {
    char    name[CUEMU_NAME_SIZE]; /* "nvlink.0>1", "pcie.2.up", "dram.0.rd" */
    double  capacity;              /* bytes per second */
} cuemu_link_t;

/*
 * How bytes get from one place to another: the links that a copy occupies all
 * at once, and the fixed times of a copy (see "How long a copy takes").
 */
typedef struct {
    int32_t      num_links;               /* 0: no route */
    int32_t      num_own_links;           /* the first ones: see "How long" */
    int32_t      p2p;                     /* GPU to GPU: peer access possible */
    int32_t      kind;                    /* cuemu_route_kind_t */
    int16_t      links[CUEMU_MAX_HOPS];
    double       solo_rate;               /* smallest capacity, bytes/s */
    double       own_rate;                /* rate of the own links */
    cuemu_time_t launch;                  /* submission to start, idle stream */
    cuemu_time_t setup;                   /* link time spent before any byte */
    cuemu_time_t complete;                /* last byte to "done" */
} cuemu_route_t;

/* What a driver call costs the calling CPU. */
typedef enum {
    CUEMU_CALL_COPY_ASYNC,
    CUEMU_CALL_COPY_BATCH,       /* asynchronous copies by one call: the call */
    CUEMU_CALL_COPY_OF_BATCH,    /* each copy of a batch */
    CUEMU_CALL_KERNEL,           /* launching a kernel or host function */
    CUEMU_CALL_EVENT_RECORD,
    CUEMU_CALL_STREAM_WAIT,
    CUEMU_CALL_QUERY_DONE,       /* event/stream query that finds it done */
    CUEMU_CALL_QUERY_BUSY,       /* a query that finds it not ready */
    CUEMU_CALL_CTX_SWITCH,       /* push + pop */
    CUEMU_CALL_POINTER_ATTR,     /* attributes of a device/pinned pointer */
    CUEMU_CALL_POINTER_ATTR_HOST, /* of a pointer unknown to the driver */
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
    CUEMU_CALL_GRAPH_INSTANTIATE, /* fixed part; see graph_* below */
    CUEMU_CALL_GRAPH_LAUNCH,     /* fixed part */
    CUEMU_CALL_GRAPH_UPDATE_NODE, /* setting one node of an executable graph */
    CUEMU_CALL_CONTEXT,          /* making a primary context */
    CUEMU_CALL_CONTEXT_HOLD,     /* its end, when other threads wait */
    CUEMU_CALL_LAST
} cuemu_call_t;

typedef struct {
    cuemu_time_t call[CUEMU_CALL_LAST];
    double       host_register_rate;      /* bytes/s, on top of the call */
    double       host_unregister_rate;
    cuemu_time_t graph_instantiate_node;  /* each node, on top */
    cuemu_time_t graph_launch_node;
    cuemu_time_t graph_first_launch;      /* on top, first launch only */
    cuemu_time_t cross_stream;            /* a wait for another stream's work
                                             that really had to wait */
    cuemu_time_t kernel;                  /* shortest kernel, GPU side */
    cuemu_time_t pull;                    /* set-up of a copy by a GPU that is
                                             not the source, on top */
} cuemu_cost_t;

/* The whole node. Plain data without pointers. */
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
 * Reads an NCCL topology file. On failure `errbuf` (CUEMU_ERRBUF_SIZE bytes)
 * holds one sentence that names the file, the line and the reason.
 */
cuemu_status_t cuemu_node_load(const char *path, cuemu_node_t *node_p,
                               char *errbuf);

/*
 * Turns what a user wrote ("beluga", "./my.xml") into a path: taken as it is
 * if it has a slash or names a file; otherwise NAME.xml (or NAME) is looked up
 * in $CUEMU_NODES, then in `libdir`/../nodes, `libdir`/nodes (`libdir`: folder
 * of the library that asks, may be NULL), then where nodes get installed.
 */
cuemu_status_t cuemu_node_find(const char *name, const char *libdir,
                               char *path_p, size_t path_size, char *errbuf);

/* cuemu_node_find() and cuemu_node_load() of $CUEMU_NODE. */
cuemu_status_t cuemu_node_load_env(const char *libdir, cuemu_node_t *node_p,
                                   char *errbuf);

/* NULL when there is no way from one place to the other. */
const cuemu_route_t *cuemu_node_route(const cuemu_node_t *node,
                                      cuemu_place_t src, cuemu_place_t dst);

/*
 * Kind of connection of two GPUs through PCIe, in the order of closeness:
 * 0 same GPU, 1 one bridge, 2 several bridges, 3 same CPU, 4 other CPU.
 */
int cuemu_node_pci_distance(const cuemu_node_t *node, int gpu1, int gpu2);

/*
 * How long a copy takes that has its route to itself, from the moment that its
 * submission reached the device: launch + setup + bytes / rate + complete.
 */
cuemu_time_t cuemu_route_copy_time(const cuemu_route_t *route, uint64_t bytes);

const char *cuemu_status_string(cuemu_status_t status);


/* ------------------------------------------------------------ simulation */

/*
 * A DAG of timed operations over the node's links.
 *
 * Life of an operation: WAITING (for dependencies), QUEUED (for its start
 * time), RUNNING (moving, or a delay), LANDING (completion latency), then DUE
 * if it needs service (time stands still until it is served), then DONE.
 *
 * How long a copy takes. It may start when its dependencies are done, but not
 * before `not_before` + the route's launch latency: the latency is hidden when
 * the operation is queued behind others. Then its engine is set up, which takes
 * `setup` seconds of those links that are its GPUs' own: an engine that is
 * being set up moves nothing else, so copies that share a GPU's link share that
 * time too, while links that lead on, of switches, sockets and memory, are left
 * to others. Then it occupies all links of its route for its bytes. Each link
 * is divided max-min fairly among all flows on it (progressive filling, renewed
 * at each start and finish). The completion latency follows; successors start
 * after it.
 */
typedef struct cuemu_sim cuemu_sim_t;

/* Index and generation of an operation; 0 is no operation. Never reused. */
typedef uint64_t cuemu_op_id_t;

typedef enum {
    CUEMU_OP_COPY,  /* moves bytes along a route */
    CUEMU_OP_DELAY, /* takes `duration`, shares nothing */
    CUEMU_OP_MARK   /* takes no time: event record, host callback, join */
} cuemu_op_kind_t;

enum {
    /* Completion has to be served (cuemu_sim_service) before time goes on. */
    CUEMU_OP_NEEDS_SERVICE = 1u << 0,
    /* Only its owner can serve it (host memory, callbacks). */
    CUEMU_OP_OWNER_ONLY    = 1u << 1,
    /* Kept after completion until cuemu_sim_op_release(). */
    CUEMU_OP_HOLD          = 1u << 2,
    /* A dependency belongs to another stream: adds node->cost.cross_stream if
       the operation really has to wait for one. */
    CUEMU_OP_CROSS_STREAM  = 1u << 3,
    /* COPY: a kernel's own accesses, which no engine is set up for: no launch
       latency, no setup, no completion latency */
    CUEMU_OP_STREAMED      = 1u << 4,
    /* COPY: from another GPU's memory, by the engine of one that reads it:
       node->cost.pull more set-up */
    CUEMU_OP_PULLED        = 1u << 5
};

#define CUEMU_OP_PAYLOAD_SIZE 128

typedef struct {
    int32_t       kind;       /* cuemu_op_kind_t */
    uint32_t      flags;
    int32_t       owner;      /* caller's process slot, >= 0 */
    cuemu_place_t src, dst;   /* COPY; src == dst is a copy inside a place */
    uint64_t      bytes;      /* COPY */
    cuemu_time_t  duration;   /* DELAY */
    cuemu_time_t  not_before; /* 0: now. E.g. the end of the submitting call */
    uint64_t      cookie[2];  /* the caller's */
    union {                   /* the caller's, for whoever serves it */
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

/* Bytes of memory for a simulation of at most `max_ops` unfinished or held
   operations (suitable: 8192); a multiple of 64. */
size_t cuemu_sim_size(uint32_t max_ops);

/* `mem`: 64-byte aligned, its contents do not matter; the node is copied. */
cuemu_status_t cuemu_sim_init(void *mem, size_t size, const cuemu_node_t *node,
                              uint32_t max_ops, cuemu_sim_t **sim_p);

/* The node that the simulation runs on. */
const cuemu_node_t *cuemu_sim_node(const cuemu_sim_t *sim);

/*
 * Adds an operation at time `now` (or at the simulation's time, if that is
 * later). Dependencies that are done, recycled or 0 are satisfied. Errors:
 * FULL, INVALID, NO_ROUTE.
 */
cuemu_status_t cuemu_sim_op_add(cuemu_sim_t *sim, cuemu_time_t now,
                                const cuemu_op_desc_t *desc,
                                const cuemu_op_id_t *deps, unsigned num_deps,
                                cuemu_op_id_t *id_p);

/*
 * Runs the simulation up to `t`, in order of time, or to the first moment at
 * which something has to be served (all that is due at that very moment becomes
 * due together). Returns the time reached.
 */
cuemu_time_t cuemu_sim_advance(cuemu_sim_t *sim, cuemu_time_t t);

/* Time that the simulation has reached. */
cuemu_time_t cuemu_sim_time(const cuemu_sim_t *sim);

/* Time of the next event of any kind, at least cuemu_sim_time(); the current
   time while something is due; CUEMU_TIME_INF when nothing goes on. */
cuemu_time_t cuemu_sim_next(const cuemu_sim_t *sim);

/* Number of operations that are due or being served: time stands still. */
unsigned cuemu_sim_num_due(const cuemu_sim_t *sim);

/*
 * Takes one due operation that `server` may serve (its own ones first, then any
 * without OWNER_ONLY) and marks it SERVING by it: nobody else gets it. Returns
 * 0 if there is none; then either nothing is due or others have to serve.
 * The lock may be dropped while the bytes move; cuemu_sim_served() ends it.
 */
cuemu_op_id_t cuemu_sim_service(cuemu_sim_t *sim, int32_t server,
                                cuemu_op_desc_t *desc_p);
void cuemu_sim_served(cuemu_sim_t *sim, cuemu_op_id_t id);

/* Non-zero if something is due that nobody but `owner` can serve and that is
   not being served yet. */
int cuemu_sim_owner_is_due(const cuemu_sim_t *sim, int32_t owner);

/* A running delay is over now, however long it was to take; anything else goes
   on. At the simulation's time; cuemu_clock_poll() comes next. */
void cuemu_sim_op_end(cuemu_sim_t *sim, cuemu_op_id_t id);

/* Done, or so long done that it was recycled; 0 counts as done. */
int cuemu_sim_op_done(const cuemu_sim_t *sim, cuemu_op_id_t id);

/* State and times; a recycled one is FREE with times of -1. Times not reached
   yet are -1. Any pointer may be NULL. */
cuemu_op_state_t cuemu_sim_op_query(const cuemu_sim_t *sim, cuemu_op_id_t id,
                                    cuemu_time_t *submit_p,
                                    cuemu_time_t *start_p, cuemu_time_t *end_p);

/* End time, -1 if unknown (not done, or recycled). */
cuemu_time_t cuemu_sim_op_end_time(const cuemu_sim_t *sim, cuemu_op_id_t id);

/* The description of a live operation, NULL if recycled. */
const cuemu_op_desc_t *cuemu_sim_op_desc(const cuemu_sim_t *sim,
                                         cuemu_op_id_t id);

/* Lets a HOLD operation go (at once if done, else when it is done). */
void cuemu_sim_op_release(cuemu_sim_t *sim, cuemu_op_id_t id);

/* Unfinished operations of an owner (-1: of all). */
unsigned cuemu_sim_num_live(const cuemu_sim_t *sim, int32_t owner);

/*
 * A process died: its operations vanish, those that depended on them go on,
 * what it was serving for others becomes due again. Returns the number of
 * vanished.
 */
unsigned cuemu_sim_owner_purge(cuemu_sim_t *sim, int32_t owner);

/* Current rate of a running copy in bytes/s, 0 if it is not running. */
double cuemu_sim_op_rate(const cuemu_sim_t *sim, cuemu_op_id_t id);


/* ----------------------------------------------------------------- clock */

/*
 * Emulated time of all processes of a node: what they did, not what the wall
 * clock says. Each attached process ("rank") has a time of its own, which grows
 * with the processor time that it used, divided by the slowdown. While it waits
 * in the driver its time is the moment that it waits for. The node's time is
 * the lowest of all ranks' times: time that other programs took from a rank
 * does not exist, and a wait of all ranks takes no real time.
 *
 * A rank that is ahead of the node's time by more than the look-ahead forgets
 * the surplus: it cannot be told from polling for a rank that is behind. A rank
 * that sleeps in the kernel holds up nobody; its own time includes the sleep.
 * Where all sleep, or none is attached, the wall clock counts.
 *
 * A program reads the node's time, but never beyond the simulation's next event
 * ("limit"). Once bytes of a due copy were moved the node's time goes on from
 * the moment that the copy ended, so that moving bytes takes no emulated time.
 * A virtual clock only moves when told. With `is_wall` time is the wall clock's
 * over the slowdown: programs of many small messages take less real time, but
 * other programs on the machine show in it.
 *
 * Who reads and writes: any thread of any process takes `lock` to publish its
 * own rank's time and to move the node's on; a reader that does not get it
 * takes the node's time as it is. `limit` is written with `lock` and the
 * caller's lock. Nobody keeps `lock` across a wait; one that was killed or
 * stopped with it loses it after 0.3 s. The node's time only grows, except from
 * beyond `limit`, where nobody has seen it.
 *
 * cuemu_clock_poll() and _advance() want the caller's lock, all else none.
 */
#define CUEMU_CLOCK_RANKS   64
#define CUEMU_CLOCK_STOPPED (-2)
#define CUEMU_CLOCK_THREADS 8 /* of a rank that are in the driver at once */

/* Processor time by which a rank may be ahead of the node */
#define CUEMU_CLOCK_AHEAD_NS 50000

/* A thread of a rank that calls the driver. */
typedef struct {
    int32_t      tid;       /* 0: free */
    uint32_t     is_asleep; /* while it waits: a futex, cleared to wake it */
    uint64_t     left_ns;   /* CLOCK_MONOTONIC when it left the driver; 0: it is
                               there; 1: it left long ago and sleeps */
    cuemu_time_t until;     /* end of its wait in the driver; 0: none */
    cuemu_time_t idle;      /* end of its wait if all ranks wait; >= until */
    uint64_t     cpu_ns;    /* its processor time when it came; 0: not asked */
    cuemu_time_t polled;    /* time that its fruitless queries took, in all */
} cuemu_clock_thread_t;

typedef struct {
    int32_t      pid;       /* 0: free */
    int32_t      service;   /* thread of the emulator in that process, or 0 */
    uint64_t     space;     /* PID namespace; of another one nothing is known */
    uint64_t     service_ns; /* processor time of that thread */
    int32_t      is_asleep; /* in the kernel: holds up nobody */
    int32_t      is_stopped; /* by a signal while it waited: likewise */
    uint64_t     cpu_ns;    /* processor time when `time` was right */
    uint64_t     delay_ns;  /* time in the queue for a processor, so far */
    uint64_t     seen_ns;   /* CLOCK_MONOTONIC of `cpu_ns` */
    uint64_t     looked_ns; /* CLOCK_MONOTONIC when another rank looked */
    uint64_t     ran_ns;    /* CLOCK_MONOTONIC when it was seen to have run */
    uint64_t     asked_ns;  /* CLOCK_MONOTONIC when its state was looked up */
    cuemu_time_t time;
    cuemu_clock_thread_t threads[CUEMU_CLOCK_THREADS];
} cuemu_clock_rank_t;

typedef struct {
    uint64_t     lock;        /* CLOCK_MONOTONIC when it was taken; 0: free */
    uint64_t     wanted_ns;   /* CLOCK_MONOTONIC when a thread waited for it */
    cuemu_time_t time;        /* the node's; shown only up to `limit` */
    cuemu_time_t limit;
    double       slowdown;    /* 0: virtual */
    int32_t      is_stopped;  /* at `limit`, until what is due was served */
    int32_t      num_ranks;   /* highest one + 1 */
    int32_t      num_asleep;  /* threads that wait and sleep */
    int32_t      is_wall;     /* the wall clock counts, not the ranks' work */
    uint64_t     moved_ns;    /* CLOCK_MONOTONIC when `time` grew last */
    uint64_t     stopped_ns;  /* CLOCK_MONOTONIC when it stopped */
    /* statistics: real time for which it stood still to be served, processor
       time that ranks forgot */
    uint64_t     real_clamped_ns;
    uint64_t     forgotten_ns;
    cuemu_clock_rank_t ranks[CUEMU_CLOCK_RANKS];
} cuemu_clock_t;

/* `slowdown`: processor seconds for an emulated one; 0 for a virtual clock. */
cuemu_status_t cuemu_clock_init(cuemu_clock_t *clk, double slowdown);

/* That process of this PID namespace is rank `rank` from now on. */
void cuemu_clock_attach(cuemu_clock_t *clk, int rank, int pid);

/* The rank is no more. */
void cuemu_clock_detach(cuemu_clock_t *clk, int rank);

/*
 * Emulated time; async-signal-safe, by system calls alone. `rank`: what this
 * process did counts up to now; -1: it does not, the caller only looks.
 * `clamped_p` (may be NULL) tells that the clock waits for cuemu_clock_poll()
 * by somebody.
 */
cuemu_time_t cuemu_clock_now(cuemu_clock_t *clk, int rank, int *clamped_p);

/*
 * Brings simulation and clock to the present and returns it. Call it before
 * adding or querying operations, and after cuemu_sim_op_add() or
 * cuemu_sim_served() (so that the limit is right). While cuemu_sim_num_due() is
 * not 0 afterwards, somebody has to serve.
 */
cuemu_time_t cuemu_clock_poll(cuemu_clock_t *clk, cuemu_sim_t *sim);

/* Thread `tid` of this rank comes into the driver. What happens until it leaves
   takes no time but for what it waits for. Returns what the other functions
   want, -1 if there are too many; `hint`: what it was last time, or -1. */
int cuemu_clock_call_begin(cuemu_clock_t *clk, int rank, int tid, int hint);
void cuemu_clock_call_end(cuemu_clock_t *clk, int rank, int thread);

/*
 * It waits there for emulated time `until` (CUEMU_TIME_INF: for what the
 * simulation brings). Where all threads of the rank do that call the driver,
 * that moment does not pass until cuemu_clock_wait_end().
 */
void cuemu_clock_wait_begin(cuemu_clock_t *clk, int rank, int thread,
                            cuemu_time_t until, cuemu_time_t idle);
void cuemu_clock_wait_end(cuemu_clock_t *clk, int rank, int thread);

/* Whether that thread has to go on: its moment has come, something is due, or
   cuemu_clock_wake() was called. */
int cuemu_clock_wait_over(cuemu_clock_t *clk, int rank, int thread,
                          cuemu_time_t until);

/* All of this: returns when that thread has to go on or, with `word`, when that
   is no longer `value`. `idle` >= `until`: the wait ends then if all ranks
   wait, for a thread that polls and finds nothing while no other rank runs. */
void cuemu_clock_wait(cuemu_clock_t *clk, int rank, int thread,
                      cuemu_time_t until, cuemu_time_t idle,
                      const uint64_t *word, uint64_t value);

/* Threads of the rank that wait for the simulation have to go on, at this
   moment of emulated time. */
void cuemu_clock_wake(cuemu_clock_t *clk, int rank);

/*
 * Ends of a thread's wait after it has found nothing since `first`: a part of
 * that time, but neither less than `least` nor more than 2 us or 50 us of
 * processor time; where all ranks wait, up to 100 us.
 */
void cuemu_clock_poll_until(const cuemu_clock_t *clk, cuemu_time_t now,
                            cuemu_time_t first, cuemu_time_t least,
                            cuemu_time_t *until_p, cuemu_time_t *idle_p);

/* End other ranks' idle waits at this rank's time: it may have written what
   they poll for. A rank that begins to wait for more than 1 us does so by
   itself. */
void cuemu_clock_stir(cuemu_clock_t *clk, int rank);

/* Nanoseconds from now until emulated time `t`, at the usual pace; 0 if
   reached; UINT64_MAX for CUEMU_TIME_INF. */
uint64_t cuemu_clock_real_until(cuemu_clock_t *clk, cuemu_time_t t);

/* Virtual clock: moves on to `t`, or to where something becomes due. */
cuemu_time_t cuemu_clock_advance(cuemu_clock_t *clk, cuemu_sim_t *sim,
                                 cuemu_time_t t);

/* Where the clock learns of processes; tests have another one. */
typedef struct {
    uint64_t (*real_ns)(void);
    /* Processor time of a process; 0 if that is not to be learned */
    uint64_t (*cpu_ns)(int pid);
    /* Processor time of the calling thread */
    uint64_t (*thread_ns)(void);
    /* Whether thread `tid` of it runs or waits for a processor; 0: any, but for
       the calling one and `service`. CUEMU_CLOCK_STOPPED: `tid` is stopped.
       -1: that is not to be learned. */
    int      (*is_running)(int pid, int tid, int service);
    /* Time for which its first thread waited for a processor, in all */
    uint64_t (*delay_ns)(int pid);
    void     (*sleep)(uint64_t ns);
    /* Sleep for that long at most (0: without end), or until wake(), if `word`
       is `value`; and wake all that do */
    void     (*wait)(uint32_t *word, uint32_t value, uint64_t ns);
    void     (*wake)(uint32_t *word);
    /* Processors that this process may run on */
    int      (*num_processors)(void);
    /* This process's PID namespace */
    uint64_t (*space)(void);
} cuemu_clock_source_t;

extern const cuemu_clock_source_t cuemu_clock_processes;
extern const cuemu_clock_source_t *cuemu_clock_source;

#ifdef __cplusplus
}
#endif

#endif
