/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses by which two processes find out whether cuda_ipc joins them. */
#ifndef UCT_CUDA_NODE_PROCESS_H
#define UCT_CUDA_NODE_PROCESS_H

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
} uct_cuda_node_device_addr_t;

/** Longest device address that UCP can send, bytes */
#define UCT_CUDA_NODE_DEVICE_ADDR_MAX 31


/** Which process of all machines. */
typedef struct {
    uint64_t pid_ns; /**< Names a pid namespace: its inode number, which is the
                          same on many machines, and the machine, mixed; 0 if
                          it is not known */
    int32_t  pid;
    uint32_t iface; /**< Which interface of the process, 1 to
                         UCT_CUDA_NODE_IFACE_MAX; 0: it does not matter */
} uct_cuda_node_iface_addr_t;

/** Numbers of interfaces: what pids (22 bits) leave of a word, and a flag */
#define UCT_CUDA_NODE_IFACE_MAX 511


/** Longest interface address, bytes */
#define UCT_CUDA_NODE_IFACE_ADDR_MAX 12


/** Length of a device address, bytes. */
size_t uct_cuda_node_device_addr_length(const uct_cuda_fabric_t *fabric);

/**
 * This machine's and this process's addresses, the latter of no interface. A
 * fork() is noticed; asking again costs nanoseconds.
 *
 * @param fabric  NULL: the machine is on its own.
 */
void uct_cuda_node_device_addr_self(uct_cuda_node_device_addr_t *addr,
                                    const uct_cuda_fabric_t *fabric);
void uct_cuda_node_iface_addr_self(uct_cuda_node_iface_addr_t *addr);

/** A number for a new interface. From the 512th on they come again: two of one
 *  number do not reach each other. */
uint32_t uct_cuda_node_iface_number(void);

/**
 * Interface address: a process, and which interface of it, as its peers are
 * told. It is a word, with the pid in its lower bits, where the pid namespace
 * is the first one of its machine, which the device address names: 4 bytes,
 * otherwise 12.
 *
 * @param process  Of this machine.
 */
size_t
uct_cuda_node_iface_addr_length(const uct_cuda_node_iface_addr_t *process);
void uct_cuda_node_iface_addr_pack(const uct_cuda_node_iface_addr_t *process,
                                   void *iface_addr);

/** @param device_addr  That of its machine; NULL, or not one of ours: this. */
void uct_cuda_node_iface_addr_unpack(const void *device_addr,
                                     const void *iface_addr,
                                     uct_cuda_node_iface_addr_t *process);

static inline bool
uct_cuda_node_is_same_process(const uct_cuda_node_iface_addr_t *a,
                              const uct_cuda_node_iface_addr_t *b)
{
    return (a->pid == b->pid) && (a->pid_ns == b->pid_ns);
}

/** Is it this process, for certain? */
bool uct_cuda_node_is_own_process(int32_t pid, uint64_t pid_ns);

/**
 * Open another process's descriptor of a memfd anew, if the file has that name.
 * The number may be another file's by now, whose opening might wait or do
 * something: the name is read first.
 *
 * @param flags  O_RDONLY or O_RDWR.
 * @return -1: the descriptor is of another file, or cannot be opened.
 */
int uct_cuda_node_file_open(int32_t pid, int32_t fd, const char *name,
                            int flags);

/** This machine, in 8 bytes: handles of its driver mean nothing elsewhere. */
uint64_t uct_cuda_node_machine_self(void);

/**
 * Why can a peer at these addresses not be reached? Reads no more than 8 bytes
 * of a device address that is not one of ours.
 *
 * @param iface   The own interface's number. UCP must not reach itself: its
 *                worker's copies come without a key. Other interfaces of the
 *                process, each in a worker of its own, are peers.
 * @param fabric  As for uct_cuda_node_device_addr_self().
 *
 * @return NULL if it can; else a text. That for the own interface is stock's
 *         for the own process, word for word: UCX's tests ask for it.
 */
const char *uct_cuda_node_addr_obstacle(const void *device_addr,
                                        const void *iface_addr, uint32_t iface,
                                        const uct_cuda_fabric_t *fabric);

#endif
