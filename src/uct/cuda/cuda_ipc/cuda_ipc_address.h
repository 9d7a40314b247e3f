/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses by which two processes find out whether cuda_ipc joins them. */
#ifndef UCT_CUDA_IPC_ADDRESS_H
#define UCT_CUDA_IPC_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>


/**
 * Device address: which machine. A stock cuda_ipc takes the first 8 bytes for a
 * system id, so that is where the magic stands: neither side can take the other
 * for its own kind.
 */
typedef struct {
    uint64_t magic;
    uint8_t  machine[16]; /**< The kernel's boot id */
} uct_cuda_ipc_device_addr_t;


/** Interface address: which process of the machine. */
typedef struct {
    uint64_t pid_ns; /**< Inode number of the pid namespace */
    int32_t  pid;
    uint32_t reserved;
} uct_cuda_ipc_iface_addr_t;


/** This machine's and this process's addresses. A fork() is noticed; asking
 *  again costs nanoseconds. */
void uct_cuda_ipc_device_addr_self(uct_cuda_ipc_device_addr_t *addr);
void uct_cuda_ipc_iface_addr_self(uct_cuda_ipc_iface_addr_t *addr);

/**
 * Can a peer at these addresses be reached? Reads no more than 8 bytes of
 * a device address that is not one of ours.
 */
bool uct_cuda_ipc_addr_is_reachable(const void *device_addr,
                                    const void *iface_addr);

#endif
