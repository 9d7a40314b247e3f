/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_mp_perf: what its parts share. A failed driver call ends the program with
 * the call's name and error: there is nothing to measure then.
 *
 * After Comm|Scope (Pearson et al., ICPE 2019): host memory on the GPU's own
 * NUMA node, times of copies by events, every figure warmed up and repeated.
 */
#ifndef UCX_MP_PERF_TOOL_H
#define UCX_MP_PERF_TOOL_H

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/topo.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>


#define UCX_MP_PERF_MAX_LIST    16
#define UCX_MP_PERF_MAX_REPEATS 1000


/** Exit codes. */
enum {
    UCX_MP_PERF_OK     = 0,
    UCX_MP_PERF_FAILED = 1, /**< No GPU, a failed call, an unwritable file */
    UCX_MP_PERF_USAGE  = 2  /**< The command line is wrong */
};


/** What the command line asks for. */
typedef struct {
    bool       links;    /**< Bandwidths of links and of sets of paths */
    bool       calls;    /**< What driver calls take of the processor */
    bool       graph;    /**< Life of a CUDA graph against its nodes */
    bool       matrix;   /**< All pairs of GPUs */
    bool       blocks;   /**< That lie apart, by three ways */
    bool       quick;
    int        src;      /**< GPUs of relays, sets of paths, graphs, calls */
    int        dst;
    unsigned   repeats;
    unsigned   num_sizes;
    size_t     sizes[UCX_MP_PERF_MAX_LIST]; /**< Bytes */
    unsigned   num_nodes;
    unsigned   nodes[UCX_MP_PERF_MAX_LIST]; /**< Copies in a graph */
    const char *json;      /**< File, or NULL */
    const char *plot;      /**< Likewise, of the matrices */
    const char *calibrate; /**< Likewise, instead of all else */
} ucx_mp_perf_options_t;


/** What repeated measurements gave. */
typedef struct {
    unsigned count;
    double   samples[UCX_MP_PERF_MAX_REPEATS];
} ucx_mp_perf_series_t;


/** Prints "ucx_mp_perf: message" and ends the program. */
void ucx_mp_perf_die(int code, const char *format, ...)
        __attribute__((noreturn, format(printf, 2, 3)));


/** Goes on as ucx_mp_tune, which writes the planner's constants for this node
 *  to a file. */
void ucx_mp_perf_calibrate(const char *file) __attribute__((noreturn));


/** Ends the program if a driver call failed. */
void ucx_mp_perf_check(CUresult result, const char *call);

#define UCX_MP_PERF_CALL(_name, ...) \
    ucx_mp_perf_check(uct_cuda_driver_get()->_name(__VA_ARGS__), #_name)


/** Reads the command line; does not return if it is wrong or asks for help. */
void ucx_mp_perf_options_read(int argc, char **argv,
                              ucx_mp_perf_options_t *options);


/** Seconds, from some moment on. */
double ucx_mp_perf_now(void);


/* The node (node.c) */

/** Opens the driver; every GPU's primary context with peer access between all
 *  pairs that offer it. @return The node as the planner sees it. */
const uct_cuda_topo_t *ucx_mp_perf_node_open(void);

/** Makes a GPU's context current. */
void ucx_mp_perf_use(int gpu);

CUstream ucx_mp_perf_stream(int gpu);

/** An event with a time; @a gpu as for streams. */
CUevent ucx_mp_perf_event(int gpu);

/** Until it is seen to have ended. */
void ucx_mp_perf_wait(CUevent event);

CUdeviceptr ucx_mp_perf_alloc(int gpu, size_t size);

/** Page-locked memory on the NUMA node of a GPU. */
void *ucx_mp_perf_alloc_host(int gpu, size_t size);

void ucx_mp_perf_free_host(void *memory, size_t size);


/* The measurements */

void ucx_mp_perf_links(const uct_cuda_topo_t *topo,
                       const ucx_mp_perf_options_t *options);

void ucx_mp_perf_matrix(const uct_cuda_topo_t *topo,
                        const ucx_mp_perf_options_t *options);

/** Seconds of a copy from one GPU to another, or where @a count is 2 of that
 *  and the one back at the same time. */
void ucx_mp_perf_copies(int src, int dst, size_t size, unsigned count,
                        unsigned repeats, ucx_mp_perf_series_t *series);

void ucx_mp_perf_blocks(const uct_cuda_topo_t *topo,
                        const ucx_mp_perf_options_t *options);

/** Ahead of the driver's start: memory of another process needs one. */
void ucx_mp_perf_calls_prepare(const ucx_mp_perf_options_t *options);

void ucx_mp_perf_calls(const ucx_mp_perf_options_t *options);

void ucx_mp_perf_graph(const uct_cuda_topo_t *topo,
                       const ucx_mp_perf_options_t *options);


/* What comes of them (report.c): a table on standard output as it grows, JSON
 * at the end, progress on standard error where that is a terminal */

void ucx_mp_perf_report_open(const char *json, unsigned num_steps);

/** A step of all that is to be done begins. */
void ucx_mp_perf_report_step(const char *what);

/** Heading of a table's next part. */
void ucx_mp_perf_report_part(const char *title);

/** Bytes over seconds: GB/s, 10^9 bytes/s. @a via is the way, "" if it is the
 *  direct one; from and to are GPUs, or -1 for the host. */
void ucx_mp_perf_report_rate(const char *what, int from, int to,
                             const char *via, size_t size, double bytes,
                             ucx_mp_perf_series_t *seconds);

/** Sorts the series. */
double ucx_mp_perf_median(ucx_mp_perf_series_t *seconds);

/** Rows are of GPUs that send, columns of those that receive; 0 is no link. */
void ucx_mp_perf_report_matrix(
        const char *what, const char *unit, size_t size, int num_gpus,
        double values[][UCT_CUDA_MAX_GPUS], unsigned repeats);

/** Microseconds of one call. */
void ucx_mp_perf_report_call(const char *name, ucx_mp_perf_series_t *seconds);

/** A row of the graph's table: median, minimum and maximum of each phase, in
 *  microseconds. @a num_phases names and series. */
void ucx_mp_perf_report_graph(unsigned nodes, unsigned num_phases,
                              const char *const *phases,
                              ucx_mp_perf_series_t *series);

void ucx_mp_perf_report_close(void);


#endif
