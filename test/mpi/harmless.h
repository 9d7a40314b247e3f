/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * ucx_mp_harmless: declarations shared by its parts.
 *
 * The program keeps a copy of the contents of all its memory (the shadow), and
 * knows everything it has registered, enabled and allocated. This determines
 * the result of every driver call and every byte. A transport that changes the
 * program's state changes a call's result.
 */
#ifndef UCX_MP_TEST_HARMLESS_H_
#define UCX_MP_TEST_HARMLESS_H_

#include <stddef.h>
#include <stdint.h>

#define HARMLESS_MAX_GPUS    4   /* maximum of visible GPUs to use */
#define HARMLESS_MAX_BUFFERS 48
#define HARMLESS_MAX_REGS    6   /* registrations of a buffer at the same
                                    time */
#define HARMLESS_MAX_BUSY    48  /* ranges of one buffer in a step */
#define HARMLESS_PAGE        ((size_t)4096)
#define HARMLESS_GUARD       ((size_t)512) /* bytes compared around a change */

/* Results of the driver expected by the program */
enum {
    HARMLESS_CUDA_SUCCESS                = 0,
    HARMLESS_CUDA_PEER_UNSUPPORTED       = 217,
    HARMLESS_CUDA_PEER_ALREADY_ENABLED   = 704,
    HARMLESS_CUDA_PEER_NOT_ENABLED       = 705,
    HARMLESS_CUDA_ALREADY_REGISTERED     = 712,
    HARMLESS_CUDA_NOT_REGISTERED         = 713
};

/* Values of the driver's interface */
enum {
    HARMLESS_CUDA_MEMORY_TYPE      = 2, /* CU_POINTER_ATTRIBUTE_MEMORY_TYPE */
    HARMLESS_CUDA_TYPE_HOST        = 1,
    HARMLESS_CUDA_TYPE_DEVICE      = 2,
    HARMLESS_CUDA_ATTACH_GLOBAL    = 1,
    HARMLESS_CUDA_STREAM_NONBLOCK  = 1,
    HARMLESS_CUDA_SCHED_MASK       = 7
};

typedef struct {
    int   device;
    void *ctx;        /* primary */
    void *streams[2]; /* one waits for the default stream, one does not */
} harmless_gpu_t;

typedef enum {
    HARMLESS_DEVICE,
    HARMLESS_MANAGED,
    HARMLESS_PINNED,        /* cuMemHostAlloc */
    HARMLESS_MALLOC,
    HARMLESS_MMAP,
    HARMLESS_FILE_PRIVATE,
    HARMLESS_FILE_SHARED,
    HARMLESS_FILE_READONLY, /* mapped read-only; changed by pwrite */
    HARMLESS_WINDOW,        /* all of an MPI window; not used otherwise */
    HARMLESS_KIND_LAST
} harmless_kind_t;

extern const char *const harmless_kind_names[];

/* Bytes [begin, end) of a buffer, page-locked by the program */
typedef struct {
    size_t begin, end;
    int    gpu;
} harmless_reg_t;

/* Bytes read or written by a message or copy in flight */
typedef struct {
    size_t begin, end;
    int    is_write;
} harmless_busy_t;

typedef struct {
    int             is_valid;
    int             is_temporary; /* for this step only */
    harmless_kind_t kind;
    int             gpu;          /* index; host memory: GPU of its context */
    size_t          size;
    uint8_t        *ptr;
    uint8_t        *shadow;       /* expected contents of the memory */
    int             fd;
    size_t          largest;      /* for any buffer in this slot */
    unsigned        life;         /* number of earlier buffers in this slot */
    harmless_reg_t  regs[HARMLESS_MAX_REGS];
    int             num_regs;
    harmless_busy_t busy[HARMLESS_MAX_BUSY];
    int             num_busy;
} harmless_buffer_t;

/* A part of a buffer */
typedef struct {
    harmless_buffer_t *buffer;
    size_t             begin;
    size_t             size;
} harmless_range_t;

/* Place of a part of host memory relative to the program's registrations */
typedef enum {
    HARMLESS_OUTSIDE, /* outside of all registrations */
    HARMLESS_INSIDE,  /* inside one registration */
    HARMLESS_INTO,    /* begins before one and ends in it */
    HARMLESS_OVER,    /* begins before one and ends behind it */
    HARMLESS_REFUSED  /* the driver refuses to copy it */
} harmless_place_t;

/* Purpose of a part of memory */
enum {
    HARMLESS_TO_WRITE   = 1,
    HARMLESS_TO_SEND    = 2, /* or receive: by MPI, in parts chosen by MPI */
    HARMLESS_HOST_ONLY  = 4,
    HARMLESS_PLAIN_EDGE = 8  /* inside or outside of a registration, not both */
};

enum {
    HARMLESS_NUM_MESSAGES,
    HARMLESS_NUM_BYTES,
    HARMLESS_NUM_COPIES,
    HARMLESS_NUM_ASYNC,
    HARMLESS_NUM_REGISTRATIONS,
    HARMLESS_NUM_ALLOCATIONS,
    HARMLESS_NUM_WINDOWS,
    HARMLESS_NUM_PEERS,
    HARMLESS_NUM_OTHERS,
    HARMLESS_NUM_RESETS,
    HARMLESS_NUM_REFUSED,
    HARMLESS_NUM_WRONG,
    HARMLESS_NUM_LAST
};

typedef struct {
    uint64_t steps;
    uint64_t seed;
    size_t   max_size;
    double   time_limit;
    unsigned stall_limit;
    int      resets;
    int      host_only;
    int      no_windows;
    int      self_test;
    int      verbose;
} harmless_options_t;

typedef struct {
    harmless_options_t   opts;
    int                  rank;
    int                  size;
    uint64_t             step;
    uint64_t             random;  /* of this rank in this step */
    uint64_t             counts[HARMLESS_NUM_LAST];
    harmless_gpu_t       gpus[HARMLESS_MAX_GPUS];
    int                  num_gpus;
    int                  home;    /* index of this rank's GPU */
    uint8_t              can_peer[HARMLESS_MAX_GPUS][HARMLESS_MAX_GPUS];
    uint8_t              has_peer[HARMLESS_MAX_GPUS][HARMLESS_MAX_GPUS];
    harmless_buffer_t    buffers[HARMLESS_MAX_BUFFERS];
} harmless_t;

extern harmless_t harmless;

/* ------------------------------------------------------------------ driver */

/* Look up the driver's functions and make streams on `count` visible GPUs. This
   rank's GPU is current. */
void harmless_driver_init(int count);

/* Open a context and streams of GPU `gpu`, also after its reset. */
void harmless_gpu_open(int gpu);

/* Make the primary context of GPU `gpu` current. */
void harmless_gpu_use(int gpu);

/*
 * Compare a call's result with the expected one; a different result is reported
 * as refused.
 *
 * @param fmt  The call, for the report.
 *
 * @return  Whether the call succeeded, expected or not.
 */
int harmless_call(int result, int expected, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

/* Report any other violation. */
void harmless_wrong(const char *fmt, ...)
        __attribute__((format(printf, 1, 2)));

/* With --verbose, print an action. */
void harmless_log(const char *fmt, ...)
        __attribute__((format(printf, 1, 2)));

/* ------------------------------------------------------------------ memory */

/* Return a random number in [0, n) from this rank's sequence. */
uint64_t harmless_below(uint64_t n);

/* Make the buffers for the start of a run. */
void harmless_memory_init(void);

/* Make a buffer in a free slot. */
harmless_buffer_t *harmless_buffer_new(harmless_kind_t kind, int gpu,
                                       size_t size);

/* Unregister and free a buffer. With `is_gone`, only forget it after a
   reset. */
void harmless_buffer_free(harmless_buffer_t *buffer, int is_gone);

/* Free a buffer and make another one of the same kind in its place, at the same
   address if possible. */
void harmless_buffer_replace(harmless_buffer_t *buffer);

/* Forget memory freed by a reset of GPU `gpu`, and replace it. */
void harmless_memory_reset(int gpu);

/* End a step: nothing is in flight. */
void harmless_memory_settle(void);

void harmless_memory_free_all(void);

int harmless_index(const harmless_buffer_t *buffer);

int harmless_is_pageable(const harmless_buffer_t *buffer);

harmless_place_t harmless_place(const harmless_range_t *range);

/* Return whether copies of all of it are copies of pageable memory. */
int harmless_is_plain(const harmless_range_t *range);

/* Return whether no operation in flight uses it, or if it is only read, whether
   none writes it. */
int harmless_is_free(const harmless_range_t *range, int is_write);

/* Find a random unused part of `size` bytes that suits `flags`. @return 0 if
   there is none. */
int harmless_find(harmless_range_t *range, size_t size, unsigned flags);

/* Find one as above, or make a new buffer. */
void harmless_find_or_new(harmless_range_t *range, size_t size, unsigned flags);

/* Mark it as in use until the end of this step. */
void harmless_set_busy(const harmless_range_t *range, int is_write);

uint8_t *harmless_ptr(const harmless_range_t *range);
uint8_t *harmless_shadow(const harmless_range_t *range);

/* Fill memory and shadow with the bytes of `seed`. */
void harmless_fill(const harmless_range_t *range, uint64_t seed);

/* Compare a range's memory with its shadow, including `guard` bytes around it
   unless an operation in flight writes them. `what` is for the report. */
void harmless_verify(const harmless_range_t *range, size_t guard,
                     const char *what);

void harmless_verify_buffer(harmless_buffer_t *buffer, const char *what);

/* ------------------------------------------------------------------- calls */

/* Make one random call of the program itself, or a few related ones. */
void harmless_do_something(void);

/* Wait for the copies in flight, and check their destinations. */
void harmless_wait_copies(void);

/* Reset this rank's GPU; no message and no copy may be in flight. */
void harmless_reset(void);

#endif
