/* SPDX-License-Identifier: BSD-3-Clause */
/* Settings of multi-path transfers: the MULTIPATH variables. */
#ifndef UCT_CUDA_PLAN_CONFIG_H
#define UCT_CUDA_PLAN_CONFIG_H

#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>
#include <uct/cuda/base/end.h>

#include <stdbool.h>
#include <stddef.h>

BEGIN_C_DECLS


#define UCT_CUDA_PLAN_MAX_PATHS  8  /**< Paths of one transfer */
#define UCT_CUDA_PLAN_MAX_CHUNKS 64 /**< Chunks of one path */
#define UCT_CUDA_PLAN_SIZE_AUTO  ((size_t)-1)
#define UCT_CUDA_PLAN_NAME_SIZE \
    256 /**< Longest file or directory name, bytes */

/** Default directory of the ledger. */
#define UCT_CUDA_PLAN_LEDGER_DIR "/dev/shm"


typedef enum {
    UCT_CUDA_PLAN_NO,
    UCT_CUDA_PLAN_YES,
    UCT_CUDA_PLAN_AUTO
} uct_cuda_plan_ternary_t;


/** Parse y, n or auto, as a word, a number or a letter in either case.
 *  @return false: another word */
bool uct_cuda_plan_ternary_parse(const char *text,
                                 uct_cuda_plan_ternary_t *value_p);


/** When contexts and staging memory of relays are created. */
typedef enum {
    /** WAIT, but in the background for the host path and, with several paths
     *  on auto, for the probe of the node */
    UCT_CUDA_PLAN_START_AUTO,
    UCT_CUDA_PLAN_START_WAIT, /**< The first transfer that uses them waits */
    UCT_CUDA_PLAN_START_BACKGROUND /**< No transfer waits */
} uct_cuda_plan_start_t;


/** Configuration of an engine. Plain data; sizes in bytes. */
typedef struct {
    uct_cuda_plan_ternary_t enable;         /**< MULTIPATH */
    /** Smaller messages use one path; SIZE_AUTO: the model decides */
    size_t                  min_size;
    /** Number of explicit paths; 0: automatic */
    unsigned                num_paths;
    /** End at which each is staged; none: direct */
    uct_cuda_end_t          paths[UCT_CUDA_PLAN_MAX_PATHS];
    /** Maximum automatic paths over GPUs, including the direct one */
    unsigned                max_gpu_paths;
    uct_cuda_plan_ternary_t host;           /**< Host path */
    /** Number of explicit chunk counts; 0: automatic; 1: for every path */
    unsigned                num_chunks;
    unsigned                chunks[UCT_CUDA_PLAN_MAX_PATHS];
    /** Number of explicit shares; 0: automatic */
    unsigned                num_shares;
    double                  shares[UCT_CUDA_PLAN_MAX_PATHS]; /**< Sum is 1 */
    /** For each device, and for the host */
    size_t                  staging_size;
    uct_cuda_plan_start_t   start;
    uct_cuda_plan_ternary_t graph;
    /** Empty: none; "auto": an installed one */
    char                    tuning_file[UCT_CUDA_PLAN_NAME_SIZE];
    /** Directory; empty: none */
    char                    ledger[UCT_CUDA_PLAN_NAME_SIZE];
    /** Directory; empty: none */
    char                    trace[UCT_CUDA_PLAN_NAME_SIZE];
} uct_cuda_plan_config_t;


/** A variable, for configuration tables and help texts. */
typedef struct {
    const char *name; /**< Without prefix, for example "MULTIPATH_MIN_SIZE" */
    const char *dfl;  /**< Default, as text */
    const char *doc;

    /**
     * Parse a value and store it.
     *
     * @return false: invalid; @a config may be partly changed
     */
    bool       (*read)(const char *text, uct_cuda_plan_config_t *config,
                       size_t offset);
    size_t     offset;    /**< Of the field, if the variable has one field */
    const char *expected; /**< Valid values, for messages */
} uct_cuda_plan_config_var_t;


/** All variables; the last entry's name is NULL. */
extern const uct_cuda_plan_config_var_t uct_cuda_plan_config_vars[];


/** Set every variable to its default. */
void uct_cuda_plan_config_init(uct_cuda_plan_config_t *config);


/**
 * Set a variable from text. On failure @a config is unchanged.
 *
 * @param name       As in uct_cuda_plan_config_vars.
 * @param error      Filled with a sentence naming variable and value if the
 *                   result is UCS_ERR_INVALID_PARAM. May be NULL.
 * @return UCS_OK, UCS_ERR_INVALID_PARAM, or UCS_ERR_NO_ELEM for an unknown
 *         name.
 */
ucs_status_t uct_cuda_plan_config_set(uct_cuda_plan_config_t *config,
                                      const char *name, const char *value,
                                      char *error, size_t error_size);


/**
 * Check variables against each other, for example the number of shares and of
 * paths, once all are set.
 *
 * @return UCS_OK, or UCS_ERR_INVALID_PARAM with a sentence in @a error.
 */
ucs_status_t uct_cuda_plan_config_check(const uct_cuda_plan_config_t *config,
                                        char *error, size_t error_size);


END_C_DECLS

#endif
