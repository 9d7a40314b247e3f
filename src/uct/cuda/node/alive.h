/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who of those that share a file is there: each holds a number in it, which is
 * a lock on a byte and goes with the process however that ends. So nothing is
 * asked of process numbers, which other processes get and which other PID
 * namespaces do not know.
 *
 * A process may hold numbers several times, as with two copies of the module in
 * it: what one gives up the others keep. What is forked off holds nothing.
 */
#ifndef UCT_CUDA_NODE_ALIVE_H
#define UCT_CUDA_NODE_ALIVE_H

#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>

#include <stdbool.h>

BEGIN_C_DECLS


/** No number of anybody's: who has it changes what all share. */
#define UCT_CUDA_NODE_ALIVE_FILE (1u << 30)


/** Numbers of a file that are held together. */
typedef struct uct_cuda_node_alive uct_cuda_node_alive_t;


/**
 * @param fd  The file, open for writing; may be closed then, and mapped.
 * @return UCS_OK; UCS_ERR_IO_ERROR, UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_node_alive_open(int fd, uct_cuda_node_alive_t **alive_p);

/** Give up all numbers. */
void uct_cuda_node_alive_close(uct_cuda_node_alive_t *alive);

/** False in a process that was forked off: none of what is below has an effect
 *  there. */
bool uct_cuda_node_alive_is_own(const uct_cuda_node_alive_t *alive);

/** Hold a number. @return False: somebody else does, or nobody can. */
bool uct_cuda_node_alive_take(uct_cuda_node_alive_t *alive, unsigned number);

/** The same, once nobody else does. */
bool uct_cuda_node_alive_wait(uct_cuda_node_alive_t *alive, unsigned number);

void uct_cuda_node_alive_drop(uct_cuda_node_alive_t *alive, unsigned number);

/** Does somebody else hold it? True where that cannot be told. Takes a system
 *  call. */
bool uct_cuda_node_alive_is_there(const uct_cuda_node_alive_t *alive,
                                  unsigned number);


END_C_DECLS

#endif
