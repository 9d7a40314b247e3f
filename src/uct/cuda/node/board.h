/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The board of a program's ranks on one node: one file without a name, made
 * when MPI starts and open in each of them. It tells who of them is there, and
 * has memory for the pages of communicators, which cost nothing before a GPU
 * buffer comes to one: who sees the first one asks for a page by the
 * communicator's key, and the others notice that there is a new one.
 */
#ifndef UCT_CUDA_COLL_BOARD_H
#define UCT_CUDA_COLL_BOARD_H

#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

BEGIN_C_DECLS


#define UCT_CUDA_COLL_BOARD_NAME  64   /**< Bytes of a name */
#define UCT_CUDA_COLL_BOARD_PAGES 4096 /**< That there are at once, at most */
#define UCT_CUDA_COLL_BOARD_FAILURES 256 /**< Reports that are kept */


typedef struct uct_cuda_coll_board uct_cuda_coll_board_t;


/**
 * Make a board (rank 0), or open one.
 *
 * @param dir   Directory that all processes of the node share, best a tmpfs.
 * @param name  Filled by rank 0, within @a dir; read by the others.
 * @return UCS_OK; UCS_ERR_UNREACHABLE: no such board here, as for ranks of
 *         another node; UCS_ERR_NO_RESOURCE, UCS_ERR_NO_MEMORY,
 *         UCS_ERR_INVALID_PARAM. Nothing is logged above debug level.
 */
ucs_status_t uct_cuda_coll_board_open(const char *dir, unsigned rank,
                                      unsigned size,
                                      char name[UCT_CUDA_COLL_BOARD_NAME],
                                      uct_cuda_coll_board_t **board_p);

/** Rank 0: nobody is to come any more. */
void uct_cuda_coll_board_unlink(uct_cuda_coll_board_t *board);

/** After all its pages were put back. */
void uct_cuda_coll_board_close(uct_cuda_coll_board_t *board);

/** Is this the process that opened it, and not one that was forked off? */
bool uct_cuda_coll_board_is_own(const uct_cuda_coll_board_t *board);

/** Is the process of a rank there? Takes a system call. Works across pid
 *  namespaces. */
bool uct_cuda_coll_board_is_alive(const uct_cuda_coll_board_t *board,
                                  unsigned rank);


/** A word that is another one once there is a page that was not there before;
 *  0: there never was one. */
const uint32_t *uct_cuda_coll_board_word(const uct_cuda_coll_board_t *board);

/** Does somebody have the page with this key? Takes no lock. */
bool uct_cuda_coll_board_has(const uct_cuda_coll_board_t *board, uint64_t key);

/**
 * The memory of a page; of zeros if nobody else has it.
 *
 * @param key    Not 0.
 * @param bytes  The same in all processes.
 * @return UCS_OK; UCS_ERR_EXCEEDS_LIMIT: too many pages; UCS_ERR_NO_RESOURCE:
 *         the file system is full; UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_coll_board_get(uct_cuda_coll_board_t *board, uint64_t key,
                                     size_t bytes, void **memory_p);

/** Unmap it. Once nobody has it any more it may become another page. */
void uct_cuda_coll_board_put(uct_cuda_coll_board_t *board, uint64_t key,
                             size_t bytes, void *memory);


/** The number of failures that ranks have reported; 0: none. */
const uint32_t *
uct_cuda_coll_board_failures(const uct_cuda_coll_board_t *board);

/**
 * Report that a rank has failed in a call. The oldest of more than
 * UCT_CUDA_COLL_BOARD_FAILURES reports are forgotten.
 *
 * @param key     Of the communicator, not 0.
 * @param number  Of the call in the communicator.
 * @param start   Of a persistent call: how often it was started.
 * @param rank    In the communicator.
 */
void uct_cuda_coll_board_fail(uct_cuda_coll_board_t *board, uint64_t key,
                              uint64_t number, uint32_t start, uint32_t rank);

/** Find the report of a call. Takes no lock. @return The rank; -1: there is
 *  none. */
int uct_cuda_coll_board_failed(const uct_cuda_coll_board_t *board, uint64_t key,
                               uint64_t number, uint32_t start);


END_C_DECLS

#endif
