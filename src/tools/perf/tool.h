/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_mp_perf: declarations shared by its parts. A failed driver call ends the
 * program with the call's name and error, since nothing can be measured then.
 *
 * The method follows Comm|Scope (Pearson et al., ICPE 2019): host memory on the
 * GPU's own NUMA node, times of copies by events, every figure warmed up and
 * repeated.
 */
#ifndef UCX_MP_PERF_TOOL_H
#define UCX_MP_PERF_TOOL_H

#include <common/common.h>

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/topo.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>


#define UCX_MP_PERF_MAX_LIST    16
#define UCX_MP_PERF_MAX_REPEATS 1000


/** The command line. */
typedef struct {
    bool       links;    /**< Bandwidths of links and of sets of paths */
    bool       calls;    /**< Processor time of driver calls */
    bool       graph;    /**< Phases of a CUDA graph by its nodes */
    bool       matrix;   /**< Matrices of all pairs of GPUs */
    bool       blocks;   /**< Blocks that lie apart, copied in three ways */
    bool       quick;
    int        src;      /**< GPUs of relays, sets of paths, graphs, calls */
    int        dst;
    unsigned   repeats;  /**< Of each measurement, at least */
    double     deviation; /**< Of its median, at most; 0: any */
    unsigned   num_sizes;
    size_t     sizes[UCX_MP_PERF_MAX_LIST]; /**< Bytes */
    unsigned   num_nodes;
    size_t     nodes[UCX_MP_PERF_MAX_LIST]; /**< Copies in a graph */
    const char *json;      /**< File, or NULL */
    const char *plot;      /**< File for the matrices, or NULL */
    const char *calibrate; /**< File for the planner's constants, or NULL */
} ucx_mp_perf_options_t;


/** Results of repeated measurements. */
typedef struct {
    unsigned count;
    double   samples[UCX_MP_PERF_MAX_REPEATS];
} ucx_mp_perf_series_t;


/** End the program if a driver call failed. */
void ucx_mp_perf_check(CUresult result, const char *call);

#define UCX_MP_PERF_CALL(_name, ...) \
    ucx_mp_perf_check(uct_cuda_driver_get()->_name(__VA_ARGS__), #_name)


/** Read the command line; does not return if it is wrong or asks for help. */
void ucx_mp_perf_options_read(int argc, char **argv,
                              ucx_mp_perf_options_t *options);


/** Return seconds since a fixed time. */
double ucx_mp_perf_now(void);


#define UCX_MP_PERF_WARM_UP 2u

/** Return whether the median of a series is as certain as --deviation asks. */
bool ucx_mp_perf_is_certain(const ucx_mp_perf_series_t *series);

/** Measure the seconds of an expression many times, after a warm-up, until the
 *  median is certain. @a _undo follows each time and is not measured. */
#define UCX_MP_PERF_MEASURE(_series, _repeats, _expression, _undo) \
    do { \
        unsigned measured; \
        double began; \
        (_series)->count = 0; \
        for (measured = 0; \
             (measured < UCX_MP_PERF_WARM_UP + (_repeats)) || \
             !ucx_mp_perf_is_certain(_series); ++measured) { \
            began = ucx_mp_perf_now(); \
            _expression; \
            (_series)->samples[(_series)->count] = ucx_mp_perf_now() - began; \
            (_series)->count += (measured >= UCX_MP_PERF_WARM_UP); \
            _undo; \
        } \
    } while (0)


/* The node (node.c) */

/** Open the driver, and the primary context of every GPU. @return The node as
 *  the planner sees it. */
const uct_cuda_topo_t *ucx_mp_perf_node_open(void);

/** Give GPUs access to each other's memory, where the node supports it. */
void ucx_mp_perf_node_connect(void);

/** Make a GPU's context current. */
void ucx_mp_perf_use(int gpu);

CUstream ucx_mp_perf_stream(int gpu);

/** Return an event with a time; @a gpu as for streams. */
CUevent ucx_mp_perf_event(int gpu);

/** Wait until the event is seen to have completed. */
void ucx_mp_perf_wait(CUevent event);

CUdeviceptr ucx_mp_perf_alloc(int gpu, size_t size);

/** Allocate page-locked memory on the NUMA node of a GPU. */
void *ucx_mp_perf_alloc_host(int gpu, size_t size);

#define UCX_MP_PERF_NEAR (-1) /* the NUMA node of the GPU */

/** Allocate page-locked memory on a NUMA node. */
void *ucx_mp_perf_alloc_host_on(int gpu, int numa, size_t size);

void ucx_mp_perf_free_host(void *memory, size_t size);


/* The measurements */

/** Measure a pair of GPUs, if there is one, without access to each other's
 *  memory. Call before ucx_mp_perf_node_connect(). */
void ucx_mp_perf_apart(const ucx_mp_perf_options_t *options);

void ucx_mp_perf_links(const uct_cuda_topo_t *topo,
                       const ucx_mp_perf_options_t *options);

void ucx_mp_perf_matrix(const uct_cuda_topo_t *topo,
                        const ucx_mp_perf_options_t *options);

#define UCX_MP_PERF_HOST (-1)

/** A copy between two GPUs, or one and page-locked memory
 *  (UCX_MP_PERF_HOST). */
typedef struct {
    int from, to;
} ucx_mp_perf_hop_t;

/** Measure seconds of @a count copies of @a size bytes each at the same time.
 *  @a numa  NUMA node of page-locked memory */
void ucx_mp_perf_copies(const ucx_mp_perf_hop_t *hops, unsigned count,
                        int numa, size_t size, unsigned repeats,
                        ucx_mp_perf_series_t *series);

void ucx_mp_perf_blocks(const uct_cuda_topo_t *topo,
                        const ucx_mp_perf_options_t *options);

/** Start the process that owns memory to open. Call before the driver
 *  starts. */
void ucx_mp_perf_calls_prepare(const ucx_mp_perf_options_t *options);

void ucx_mp_perf_calls(const ucx_mp_perf_options_t *options);

void ucx_mp_perf_graph(const uct_cuda_topo_t *topo,
                       const ucx_mp_perf_options_t *options);


/* Results (report.c): a table on standard output as it grows, JSON at the end,
   progress on standard error if this is a terminal */

void ucx_mp_perf_report_open(const ucx_mp_perf_options_t *options,
                             unsigned num_steps);

/** Report that the next of all steps begins. */
void ucx_mp_perf_report_step(const char *what);

/** Print the heading of a table's next part. */
void ucx_mp_perf_report_part(const char *title);

/** Report bytes over seconds as GB/s, 10^9 bytes/s. @a via is the path, "" for
 *  direct; from and to are GPUs, or -1 for the host. */
void ucx_mp_perf_report_rate(const char *what, int from, int to,
                             const char *via, size_t size, double bytes,
                             ucx_mp_perf_series_t *seconds);

/** Return the median; sorts the series. */
double ucx_mp_perf_median(ucx_mp_perf_series_t *seconds);

/** Report a matrix: rows are sending GPUs, columns receiving GPUs; 0 means no
 *  link. */
void ucx_mp_perf_report_matrix(
        const char *what, const char *unit, size_t size, int num_gpus,
        double values[][UCT_CUDA_MAX_GPUS], unsigned repeats);

/** Report the microseconds of one call. */
void ucx_mp_perf_report_call(const char *name, ucx_mp_perf_series_t *seconds);

/** Report a row of the graph's table: median, minimum and maximum of each
 *  phase, in microseconds. @a num_phases is the number of names and series. */
void ucx_mp_perf_report_graph(unsigned nodes, unsigned num_phases,
                              const char *const *phases,
                              ucx_mp_perf_series_t *series);

void ucx_mp_perf_report_close(void);


#endif
