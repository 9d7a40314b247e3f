/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the user may say about multi-path transfers: the MULTIPATH variables.
 */
#ifndef UCT_CUDA_MP_CONFIG_H
#define UCT_CUDA_MP_CONFIG_H

#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>

#include <stdbool.h>
#include <stddef.h>

BEGIN_C_DECLS


#define UCT_CUDA_MP_MAX_PATHS  8  /**< Paths of one transfer */
#define UCT_CUDA_MP_MAX_CHUNKS 64 /**< Chunks of one path */
#define UCT_CUDA_MP_SIZE_AUTO  ((size_t)-1)
#define UCT_CUDA_MP_NAME_SIZE  256 /**< Of a file's or directory's path */

/** Where the ledger lies unless the user says otherwise. */
#define UCT_CUDA_MP_LEDGER_DIR "/dev/shm"


typedef enum {
    UCT_CUDA_MP_NO,
    UCT_CUDA_MP_YES,
    UCT_CUDA_MP_AUTO
} uct_cuda_mp_ternary_t;


/** Who waits while contexts and staging memory of relays are made. */
typedef enum {
    UCT_CUDA_MP_START_AUTO,      /**< As the next; but nobody for the host's
                                      path, nor, with several paths on auto,
                                      for the probe of the node */
    UCT_CUDA_MP_START_WAIT,      /**< The first transfer that wants them */
    UCT_CUDA_MP_START_BACKGROUND /**< Nobody */
} uct_cuda_mp_start_t;


/** How a path leads from source to destination. */
typedef enum {
    UCT_CUDA_MP_ROUTE_DIRECT, /**< One copy */
    UCT_CUDA_MP_ROUTE_GPU,    /**< Staged in a third GPU's memory */
    UCT_CUDA_MP_ROUTE_HOST    /**< Staged in page-locked host memory */
} uct_cuda_mp_route_t;


typedef struct {
    uct_cuda_mp_route_t route;
    int                 gpu; /**< Relay's ordinal; 0 for other routes */
} uct_cuda_mp_path_t;


static inline bool uct_cuda_mp_path_equal(const uct_cuda_mp_path_t *a,
                                          const uct_cuda_mp_path_t *b)
{
    return (a->route == b->route) && (a->gpu == b->gpu);
}


/** Configuration of an engine. Plain data; sizes in bytes. */
typedef struct {
    uct_cuda_mp_ternary_t enable;         /**< MULTIPATH */
    size_t                min_size;       /**< Smaller ones take one path;
                                               SIZE_AUTO: the model decides */
    unsigned              num_paths;      /**< Explicit paths; 0: choose ... */
    uct_cuda_mp_path_t    paths[UCT_CUDA_MP_MAX_PATHS];
    unsigned              max_gpu_paths;  /**< ... so many over GPUs, the direct
                                               one included */
    uct_cuda_mp_ternary_t host;           /**< Staging through the host */
    unsigned              num_chunks;     /**< Explicit counts of chunks; 0:
                                               choose; 1: for every path */
    unsigned              chunks[UCT_CUDA_MP_MAX_PATHS];
    unsigned              num_shares;     /**< Explicit shares; 0: choose */
    double                shares[UCT_CUDA_MP_MAX_PATHS]; /**< Sum is 1 */
    size_t                staging_size;   /**< A device, and for the host */
    uct_cuda_mp_start_t   start;
    uct_cuda_mp_ternary_t graph;
    /** Empty: none; "auto": one that is installed */
    char                  tuning_file[UCT_CUDA_MP_NAME_SIZE];
    /** Directory; empty: none */
    char                  ledger[UCT_CUDA_MP_NAME_SIZE];
    char                  trace[UCT_CUDA_MP_NAME_SIZE]; /**< Likewise */
} uct_cuda_mp_config_t;


/** One variable, for configuration tables and help texts. */
typedef struct {
    const char *name; /**< Such as "MULTIPATH_MIN_SIZE", without a prefix */
    const char *dfl;  /**< Default, as text */
    const char *doc;

    /** Puts a value in its place. @return false if it is none */
    bool       (*read)(const char *text, uct_cuda_mp_config_t *config,
                       size_t offset);
    size_t     offset;    /**< Of the field, for whom it is one */
    const char *expected; /**< Values, for messages */
} uct_cuda_mp_config_var_t;


/** All variables; the last entry's name is NULL. */
extern const uct_cuda_mp_config_var_t uct_cuda_mp_config_vars[];


/** Every variable at its default. */
void uct_cuda_mp_config_init(uct_cuda_mp_config_t *config);


/**
 * Set one variable from its text. A failure leaves @a config as it was.
 *
 * @param name       As in uct_cuda_mp_config_vars.
 * @param error      Filled with a sentence that names variable and value when
 *                   the result is UCS_ERR_INVALID_PARAM. May be NULL.
 * @return UCS_OK, UCS_ERR_INVALID_PARAM, or UCS_ERR_NO_ELEM for a name that
 *         does not exist.
 */
ucs_status_t uct_cuda_mp_config_set(uct_cuda_mp_config_t *config,
                                    const char *name, const char *value,
                                    char *error, size_t error_size);


/**
 * Check variables against each other (as many shares as paths, ...), once all
 * are set. @return UCS_OK or UCS_ERR_INVALID_PARAM with a sentence.
 */
ucs_status_t uct_cuda_mp_config_check(const uct_cuda_mp_config_t *config,
                                      char *error, size_t error_size);


END_C_DECLS

#endif
