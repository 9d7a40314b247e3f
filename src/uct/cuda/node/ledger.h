/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ledger: a page of shared memory, one a node and user, in which every
 * process says which links it is using. A process alone sees its own transfers
 * only, yet the links are the node's.
 *
 * A process has a slot with two bits a lane: one while it uses the lane, one
 * while that is the lane between a transfer's own ends. Nobody waits for
 * anybody: a slot is written by its owner alone and read as it is. The slots of
 * processes that died are found and freed by the others.
 */
#ifndef UCT_CUDA_MP_LEDGER_H
#define UCT_CUDA_MP_LEDGER_H

#include <uct/cuda/plan/model.h>

BEGIN_C_DECLS


typedef struct uct_cuda_mp_ledger uct_cuda_mp_ledger_t;


/** Processes that have room in it. */
#define UCT_CUDA_MP_LEDGER_MAX_SLOTS 125

/** After so long without a change, a slot's owner is looked for, ns. */
#define UCT_CUDA_MP_LEDGER_STALE 100000000ul


/**
 * Take a slot in the ledger of this user, creating the page if there is none.
 * Waits at most some 20 ms for others that do the same.
 *
 * @param dir    Directory that all processes of the node share, best a tmpfs.
 * @param uuids  UUIDs of this process's GPUs, by ordinal. GPUs are matched
 *               between processes by them.
 * @return UCS_OK; UCS_ERR_NO_RESOURCE when all slots are taken, or the GPUs of
 *         all processes are too many, or there is no memory for it;
 *         UCS_ERR_UNSUPPORTED for a file that is not ours, of another layout,
 *         or cut short by somebody (it is left alone); UCS_ERR_BUSY;
 *         UCS_ERR_IO_ERROR; UCS_ERR_NO_MEMORY. Told at debug level.
 */
ucs_status_t uct_cuda_mp_ledger_open(const char *dir,
                                     const uint8_t (*uuids)[16], int num_gpus,
                                     uct_cuda_mp_ledger_t **ledger_p);


/** Give the slot back. The last one to leave removes the page. A process that
 *  was forked off with a ledger open leaves it as it is, in all it does. */
void uct_cuda_mp_ledger_close(uct_cuda_mp_ledger_t *ledger);


/** Say whether this process is using a lane, of its own numbering, and whether
 *  one of the transfers that do goes from the lane's one end to the other. Not
 *  thread-safe; costs some 10 ns. */
void uct_cuda_mp_ledger_set(uct_cuda_mp_ledger_t *ledger, uint16_t lane,
                            bool is_active, bool is_direct);


/**
 * Add what the other slots use to the load's active and direct, by lanes in
 * this process's own numbering. Lanes of GPUs that it does not see are left
 * out. Not thread-safe.
 * Costs some 10 ns a process, and a cache miss for each that changed something.
 *
 * @param now  Any clock that goes on, ns: by it, and by slots that do not
 *             change, dead processes are noticed.
 * @return Whether anybody uses anything.
 */
bool uct_cuda_mp_ledger_read(uct_cuda_mp_ledger_t *ledger, uint64_t now,
                             uct_cuda_mp_load_t *load);


/**
 * Count how often lanes of other processes to @a to and from @a from have
 * become active. The number itself means nothing; if it is the same twice, none
 * has in between. Costs some 2 ns a process.
 */
unsigned uct_cuda_mp_ledger_begun(const uct_cuda_mp_ledger_t *ledger,
                                  uct_cuda_end_t to, uct_cuda_end_t from);


/**
 * Processes that have a slot, this one left out; some may have died.
 *
 * @return How many; @a max at most.
 */
unsigned uct_cuda_mp_ledger_others(const uct_cuda_mp_ledger_t *ledger,
                                   uint32_t *pids, unsigned max);


END_C_DECLS

#endif
