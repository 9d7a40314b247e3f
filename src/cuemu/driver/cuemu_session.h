/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * State shared by all processes of an emulated node. It lies in a folder:
 * "state" (cuemu_shared_t of this header, then the simulation), "gpuN" (memory
 * of GPU N, sparse), "slots" (one locked byte per living process), "lock" (held
 * while processes start and end) and "memoryN" (behind descriptors of memory
 * with id N).
 */
#ifndef CUEMU_SESSION_H_
#define CUEMU_SESSION_H_

#include "../core/cuemu_core.h"

#include <pthread.h>
#include <stdint.h>

#define CUEMU_SESSION_MAGIC   0x63756d5553313037ull
#define CUEMU_MAX_PROCS       CUEMU_CLOCK_RANKS
#define CUEMU_MAX_EXTENTS     16384
#define CUEMU_MAX_MOVES       4096
#define CUEMU_MAX_OPS         16384
#define CUEMU_POPULATED       4096 /* entries that granules share:
                                      populate.c */
#define CUEMU_GRANULE         ((uint64_t)2 << 20) /* allocation unit of physical
                                                     memory, bytes */

/* A contiguous piece of a GPU's memory. */
typedef struct {
    uint64_t id;      /* never reused; 0: free entry */
    uint64_t offset;
    uint64_t size;
    uint64_t users;   /* bit per slot of a using process */
    int32_t  gpu;     /* GPU's index in the node */
    int32_t  owner;   /* slot of the allocating process */
    int32_t  live;    /* not freed by its owner */
    int32_t  next;    /* in the GPU's list, by offset; or in the free list */
    int32_t  shared;  /* exported as a descriptor */
    int32_t  spare;
} cuemu_extent_t;

/* A submitted copy whose bytes have not moved yet */
typedef struct {
    cuemu_op_id_t op;         /* 0: free entry */
    uint64_t      skip_begin; /* part already moved, see work.c */
    uint64_t      skip_end;
} cuemu_move_t;

typedef struct {
    int32_t       pid;        /* 0: free */
    int32_t       call_tid;   /* thread of `call`; 0: not started yet */
    cuemu_op_id_t call;       /* host function that runs while the clock stands
                                 still; 0: none */
    uint64_t      call_ns;    /* CLOCK_MONOTONIC at its beginning */
} cuemu_slot_t;

typedef struct {
    uint64_t        magic;
    uint64_t        size;           /* size of the whole file, bytes */
    uint64_t        sim_offset;
    uint64_t        real_epoch_ns;  /* CLOCK_REALTIME at emulated time 0 */
    uint64_t        mono_epoch_ns;  /* CLOCK_MONOTONIC at emulated time 0 */
    pthread_mutex_t lock;           /* robust; everything below */
    cuemu_clock_t   clock;
    uint64_t        change;         /* number of changes so far; a waiting
                                       process checks its condition again after
                                       each */
    uint32_t        served;         /* futex: a due operation was served */
    uint32_t        sleepers;       /* number of processes waiting on
                                       `served` */
    int32_t         failed;         /* the session's memory ran full */
    int32_t         num_unused;     /* extents kept only by descriptors */
    uint64_t        next_id;
    uint64_t        time_only;      /* copies of at least so many bytes take
                                       their time without moving bytes; 0: all
                                       copies move bytes */
    uint64_t        gpu_bytes[CUEMU_MAX_GPUS];
    uint64_t        gpu_used[CUEMU_MAX_GPUS];
    int32_t         extent_head[CUEMU_MAX_GPUS];
    int32_t         extent_free;
    uint32_t        losses[CUEMU_POPULATED]; /* how often space was freed */
    int32_t         num_moves;      /* highest used entry of moves + 1 */
    int32_t         own_dir;        /* the last process removes the folder */
    cuemu_slot_t    slots[CUEMU_MAX_PROCS];
    cuemu_extent_t  extents[CUEMU_MAX_EXTENTS];
    cuemu_move_t    moves[CUEMU_MAX_MOVES];
} cuemu_shared_t;

/* This process's view of the session */
typedef struct {
    cuemu_shared_t     *shared;
    cuemu_sim_t        *sim;
    const cuemu_node_t *node;
    int                 slot;
    unsigned            joins;  /* number of sessions joined so far */
    char               *memory[CUEMU_MAX_GPUS]; /* each GPU's memory as mapped
                                                   for the emulator itself */
    int                 fd[CUEMU_MAX_GPUS];
    char                dir[256];
} cuemu_session_t;

extern cuemu_session_t cuemu_session;

/* Return the index in `losses` of a granule of a GPU's memory. */
static inline unsigned cuemu_session_loss(int gpu, uint64_t granule)
{
    return (granule + (uint64_t)gpu * (CUEMU_POPULATED / CUEMU_MAX_GPUS)) %
           CUEMU_POPULATED;
}

/* Join the session named by the environment, or create it. On failure prints
   one sentence on stderr. Returns 0 or -1. */
int cuemu_session_join(void);

/* Report on stderr that the folder's file system has no space for `size` bytes
   of `what`, and the remedy. Only a process's first call reports. */
void cuemu_session_no_space(uint64_t size, const char *what);

/* Release everything this process uses in the session. The last process to
   leave removes the folder if the emulator created it. Has no effect if the
   process has not joined. */
void cuemu_session_leave(void);

/* Take the lock of cuemu_shared_t. If its holder has died, the lock passes to
   the caller, and the resources of dead processes are released. */
void cuemu_session_lock(void);
void cuemu_session_unlock(void);

/* Release the resources of dead processes. Looks at most every 20 ms unless
   `force`. Call with the lock. */
void cuemu_session_reap(int force);

/* Allocate memory of a GPU, in granules, first fit. Return the extent's index;
   -1 if `size` is 0 or there is no such gap or no free entry. The process
   becomes owner and user, with one reference. Call with the lock. */
int cuemu_session_extent_alloc(int gpu, uint64_t size);

/* Add a reference of the caller to an extent. Call with the lock. */
void cuemu_session_extent_get(int index);

/* Drop a reference of this process to the extent. `free_it`: its owner frees
   it, so that IPC handles of it can no longer be opened. The memory returns to
   the GPU with the last reference of all processes and the last descriptor.
   Call with the lock. */
void cuemu_session_extent_put(int index, int free_it);

/* Return a new descriptor of the extent, -1 on failure. The extent's memory
   stays in use until it and all its duplicates are closed. Call with the
   lock. */
int cuemu_session_extent_share(int index);

/* Release memory whose descriptors are all closed. Call with the lock. */
void cuemu_session_collect(void);

/* Wait until a due operation was served since `served` was read, 0.2 ms at most
   (real time). */
static inline void cuemu_session_wait_served(cuemu_shared_t *shared,
                                             uint32_t served)
{
    __atomic_add_fetch(&shared->sleepers, 1, __ATOMIC_SEQ_CST);
    cuemu_clock_source->wait(&shared->served, served, 200000);
    __atomic_sub_fetch(&shared->sleepers, 1, __ATOMIC_SEQ_CST);
}

/* Return a number unique in the session. */
uint64_t cuemu_unique_id(void);

/* Return CLOCK_MONOTONIC in ns: real time, not the emulated clock. */
uint64_t cuemu_real_ns(void);

/* Owners in the simulation: copies of a process, and its host functions, which
   only its service thread starts. */
#define CUEMU_OWNER_COPY(_slot) ((_slot) * 2)
#define CUEMU_OWNER_CALL(_slot) ((_slot) * 2 + 1)
_Static_assert(CUEMU_OWNER_CALL(CUEMU_MAX_PROCS - 1) < CUEMU_OWNERS,
               "each process has two owners");

#endif
