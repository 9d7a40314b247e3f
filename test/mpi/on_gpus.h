/* SPDX-License-Identifier: BSD-3-Clause */

/* How many collectives of this process the module's plans have carried out. */
#ifndef UCX_MP_TEST_ON_GPUS_H_
#define UCX_MP_TEST_ON_GPUS_H_

/* 0 where there is no module of ours. */
long ucx_mp_on_gpus(void);

/* What this process has given to the MPI's reductions between nodes, bytes; and
   how often it has agreed with other nodes on a call. */
unsigned long long ucx_mp_between_nodes(unsigned long long *agreements_p);

#endif
