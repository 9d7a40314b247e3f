/* SPDX-License-Identifier: BSD-3-Clause */

/* Number of this process's collectives run by the module's plans. */
#ifndef UCX_MP_TEST_ON_GPUS_H_
#define UCX_MP_TEST_ON_GPUS_H_

/* Return the number, 0 without the module. */
long ucx_mp_on_gpus(void);

/* Return the bytes passed to the MPI's reductions between nodes by this
   process, and its number of agreements with other nodes on a call. */
unsigned long long ucx_mp_between_nodes(unsigned long long *agreements_p);

#endif
