/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Liveness of the processes that share a file. Each process holds a number in
 * the file: a lock on one byte, released by the kernel however the process
 * ends. PIDs are not used: they are recycled and mean nothing across PID
 * namespaces.
 *
 * A process may hold several numbers, for example through two copies of the
 * module; releasing one leaves the others in place. A forked child holds
 * nothing.
 */
#ifndef UCT_CUDA_NODE_ALIVE_H
#define UCT_CUDA_NODE_ALIVE_H

#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>

#include <stdbool.h>

BEGIN_C_DECLS


/** Number that stands for the file itself, not for a process. Its holder may
 *  change the shared data. */
#define UCT_CUDA_NODE_ALIVE_FILE (1u << 30)


/** Open file whose numbers this process holds and checks. */
typedef struct uct_cuda_node_alive uct_cuda_node_alive_t;


/**
 * Open the liveness locks of a file.
 *
 * @param fd  File, open for writing. It may be closed and mapped afterwards.
 * @return UCS_OK; UCS_ERR_IO_ERROR, UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_node_alive_open(int fd, uct_cuda_node_alive_t **alive_p);

/** Release all numbers and free the object. */
void uct_cuda_node_alive_close(uct_cuda_node_alive_t *alive);

/** Return false in a forked child, where none of the functions below has an
 *  effect. */
bool uct_cuda_node_alive_is_owner(const uct_cuda_node_alive_t *alive);

/**
 * Hold a number, without waiting.
 *
 * @return true: held, newly or already; false: another object holds it, of
 *         this process or of another one, or locks do not work.
 */
bool uct_cuda_node_alive_hold(uct_cuda_node_alive_t *alive, unsigned number);

/** Hold a number, waiting until it is free, for any time. Return false if
 *  locks do not work. */
bool uct_cuda_node_alive_wait(uct_cuda_node_alive_t *alive, unsigned number);

void uct_cuda_node_alive_release(uct_cuda_node_alive_t *alive, unsigned number);

/** Return whether another object holds the number, of this process or of
 *  another one; true if unknown. Numbers held through @a alive itself do not
 *  count. Takes a system call. */
bool uct_cuda_node_alive_is_taken(const uct_cuda_node_alive_t *alive,
                                  unsigned number);

/** The same of any of @a count numbers from @a first on; also one system
 *  call. */
bool uct_cuda_node_alive_any_is_taken(const uct_cuda_node_alive_t *alive,
                                      unsigned first, unsigned count);


END_C_DECLS

#endif
