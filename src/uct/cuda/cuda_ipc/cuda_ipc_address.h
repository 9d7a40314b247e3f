/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses by which two processes find out whether cuda_ipc joins them. */
#ifndef UCT_CUDA_IPC_ADDRESS_H
#define UCT_CUDA_IPC_ADDRESS_H

#include <uct/cuda/base/fabric.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>


/**
 * Device address: which machine, and, where the magic says so, where it is
 * among machines that share memory over NVLink; else that part is left out.
 * A stock cuda_ipc takes the first 8 bytes for a system id, so that is where
 * the magic stands: neither side can take the other for its own kind.
 */
typedef struct {
    uint64_t magic;
    uint8_t  machine[16]; /**< The kernel's boot id */
    uint32_t fabric;      /**< Tells clusters and cliques apart */
} uct_cuda_ipc_device_addr_t;

/** Longest device address that UCP can send, bytes */
#define UCT_CUDA_IPC_DEVICE_ADDR_MAX 31


/** Interface address: which process of all machines. */
typedef struct {
    uint64_t pid_ns; /**< Names a pid namespace: its inode number, which is the
                          same on many machines, and the machine, mixed; 0 if
                          it is not known */
    int32_t  pid;
    uint32_t reserved;
} uct_cuda_ipc_iface_addr_t;


/** Length of a device address, bytes. */
size_t uct_cuda_ipc_device_addr_length(const uct_cuda_fabric_t *fabric);

/**
 * This machine's and this process's addresses. A fork() is noticed; asking
 * again costs nanoseconds.
 *
 * @param fabric  NULL: the machine is on its own.
 */
void uct_cuda_ipc_device_addr_self(uct_cuda_ipc_device_addr_t *addr,
                                   const uct_cuda_fabric_t *fabric);
void uct_cuda_ipc_iface_addr_self(uct_cuda_ipc_iface_addr_t *addr);

/** This machine, in 8 bytes: handles of its driver mean nothing elsewhere. */
uint64_t uct_cuda_ipc_machine_self(void);

/**
 * Can a peer at these addresses be reached? Reads no more than 8 bytes of
 * a device address that is not one of ours.
 *
 * @param fabric  As for uct_cuda_ipc_device_addr_self().
 */
bool uct_cuda_ipc_addr_is_reachable(const void *device_addr,
                                    const void *iface_addr,
                                    const uct_cuda_fabric_t *fabric);

#endif
