/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ledger of link use: one shared segment for each node and user, in which every
 * process marks the links it is using. The links belong to the node, but a
 * process sees only its own transfers.
 *
 * A process has a slot with two bits for each directed link: one is set while
 * it uses the link, the other while the link connects the two ends of a
 * transfer. Only the owner writes a slot; readers never wait. Processes free
 * the slots of dead ones.
 */
#ifndef UCT_CUDA_NODE_LEDGER_H
#define UCT_CUDA_NODE_LEDGER_H

#include <uct/cuda/plan/model_path.h>

BEGIN_C_DECLS


typedef struct uct_cuda_mp_ledger uct_cuda_node_ledger_t;


/** Maximum number of processes. */
#define UCT_CUDA_NODE_LEDGER_MAX_SLOTS 125

/** Time without a change after which a slot's owner is checked, ns. */
#define UCT_CUDA_NODE_LEDGER_STALE 100000000ul


/**
 * Take a slot in this user's ledger, creating the segment if there is none.
 * Waits up to about 20 ms for other processes doing the same.
 *
 * @param dir    Directory shared by all processes of the node, preferably a
 *               tmpfs.
 * @param uuids  UUIDs of this process's GPUs, by ordinal. They identify a GPU
 *               across processes.
 * @return UCS_OK; UCS_ERR_NO_RESOURCE: no free slot, too many GPUs in all
 *         processes, or no memory; UCS_ERR_UNSUPPORTED: the file has another
 *         owner or layout, or was truncated (it is left unchanged);
 *         UCS_ERR_BUSY; UCS_ERR_IO_ERROR; UCS_ERR_NO_MEMORY. Failures are
 *         logged at debug level.
 */
ucs_status_t uct_cuda_node_ledger_open(const char *dir,
                                       const uint8_t (*uuids)[16], int num_gpus,
                                       uct_cuda_node_ledger_t **ledger_p);


/** Release the slot. The last process removes the segment. In a forked child
 *  all functions leave the segment unchanged. */
void uct_cuda_node_ledger_close(uct_cuda_node_ledger_t *ledger);


/** Set whether this process uses a link (@a is_active), and whether the link
 *  connects the two ends of one of its transfers (@a is_direct). The link is in
 *  this process's numbering; one that the ledger cannot number is ignored. Not
 *  thread safe; costs about 10 ns. */
void uct_cuda_node_ledger_set(uct_cuda_node_ledger_t *ledger, uint16_t link,
                              bool is_active, bool is_direct);


/**
 * Add the links used by other slots to the load's active and direct counts, in
 * this process's numbering. Links of GPUs unknown to this process are left out.
 * Frees the slots of dead processes. Not thread safe. Costs about 10 ns for
 * each process, and a cache miss for each that has changed.
 *
 * @param now  Time of any monotonic clock, ns; used with unchanged slots to
 *             detect dead processes.
 * @return true: another process uses a link known to this one.
 */
bool uct_cuda_node_ledger_read(uct_cuda_node_ledger_t *ledger, uint64_t now,
                               uct_cuda_plan_load_t *load);


/**
 * Count activations, by other processes, of links to @a to and from @a from.
 * Only equality matters: with the same result twice no link was activated in
 * between. Costs about 2 ns for each process.
 */
unsigned uct_cuda_node_ledger_begun(const uct_cuda_node_ledger_t *ledger,
                                    uct_cuda_end_t to, uct_cuda_end_t from);


/**
 * List the other processes with a slot; some may have died.
 *
 * @param pids  Filled with up to @a max PIDs.
 * @return Number of PIDs.
 */
unsigned uct_cuda_node_ledger_others(const uct_cuda_node_ledger_t *ledger,
                                     uint32_t *pids, unsigned max);


END_C_DECLS

#endif
