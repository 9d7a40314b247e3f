/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses by which two processes find out whether cuda_ipc can connect
 * them. */
#ifndef UCT_CUDA_NODE_PROCESS_H
#define UCT_CUDA_NODE_PROCESS_H

#include <uct/cuda/base/fabric.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>


/** Device address: the machine and, depending on the magic, its place among
 *  machines that share memory over NVLink. A stock cuda_ipc uses the first 8
 *  bytes as a system id; the magic is in the same place, so neither module
 *  mistakes the other for its own kind. */
typedef struct {
    uint64_t magic;
    uint8_t  machine[16]; /**< Boot id of the kernel */
    uint32_t fabric;      /**< Distinguishes clusters and cliques */
} uct_cuda_node_device_addr_t;

/** Longest device address that UCP can send, bytes */
#define UCT_CUDA_NODE_DEVICE_ADDR_MAX 31


/** Process among those of all machines. */
typedef struct {
    /** PID namespace: its inode number, which is the same on many machines,
     *  mixed with the machine's number; 0: unknown */
    uint64_t pid_ns;
    int32_t  pid;
    /** Interface in the process, 1 to UCT_CUDA_NODE_IFACE_MAX; 0: any */
    uint32_t iface;
} uct_cuda_node_iface_addr_t;

/** Largest interface number: a packed address has 9 bits for it, beside the
 *  PID (22 bits) and a flag */
#define UCT_CUDA_NODE_IFACE_MAX 511


/** Longest interface address, bytes */
#define UCT_CUDA_NODE_IFACE_ADDR_MAX 12


/** Return the length of a device address, bytes. @a fabric is as for
 *  uct_cuda_node_device_addr_self(). */
size_t uct_cuda_node_device_addr_length(const uct_cuda_fabric_t *fabric);

/**
 * Return the address of this machine. Repeated calls cost nanoseconds.
 *
 * @param fabric  NULL: the machine shares no memory over NVLink.
 */
void uct_cuda_node_device_addr_self(uct_cuda_node_device_addr_t *addr,
                                    const uct_cuda_fabric_t *fabric);

/** Return the address of this process, with 0 as interface number. A forked
 *  child gets its own address. Repeated calls cost nanoseconds. */
void uct_cuda_node_iface_addr_self(uct_cuda_node_iface_addr_t *addr);

/** Return a number for a new interface. Numbers repeat from the 512th
 *  interface on; two interfaces with one number cannot reach each other. */
uint32_t uct_cuda_node_iface_number(void);

/**
 * Return the length of a packed interface address, bytes: 4 if the PID
 * namespace is the machine's first one, otherwise
 * UCT_CUDA_NODE_IFACE_ADDR_MAX.
 *
 * @param process  Process of this machine.
 */
size_t
uct_cuda_node_iface_addr_length(const uct_cuda_node_iface_addr_t *process);

/** Pack an interface address, a process of this machine and one of its
 *  interfaces: a word with the PID in its lower bits and, unless the PID
 *  namespace is the machine's first one, the namespace. */
void uct_cuda_node_iface_addr_pack(const uct_cuda_node_iface_addr_t *process,
                                   void *iface_addr);

/**
 * Unpack an interface address. @param device_addr  Address of its machine; NULL
 * or foreign: this machine.
 */
void uct_cuda_node_iface_addr_unpack(const void *device_addr,
                                     const void *iface_addr,
                                     uct_cuda_node_iface_addr_t *process);

static inline bool
uct_cuda_node_is_same_process(const uct_cuda_node_iface_addr_t *a,
                              const uct_cuda_node_iface_addr_t *b)
{
    return (a->pid == b->pid) && (a->pid_ns == b->pid_ns);
}

/** Return whether this is the PID and PID namespace of this process; false if
 *  the namespace is unknown (0). */
bool uct_cuda_node_is_self(int32_t pid, uint64_t pid_ns);

/**
 * Open another process's descriptor of a memfd again, if the file has the given
 * name. The number may belong to another file by now, whose opening could block
 * or have effects: the name is read first.
 *
 * @param flags  O_RDONLY or O_RDWR.
 * @return Descriptor; -1: another file, or it cannot be opened.
 */
int uct_cuda_node_file_open(int32_t pid, int32_t fd, const char *name,
                            int flags);

/** Return an 8-byte id of this machine. Handles of its driver are invalid on
 *  other machines. */
uint64_t uct_cuda_node_machine_self(void);

/**
 * Explain why a peer at these addresses is not reachable. Reads at most 8 bytes
 * of a foreign device address.
 *
 * @param iface   Number of the local interface. UCP must not reach itself:
 *                copies within a worker have no key. Other interfaces of this
 *                process, each in another worker, are peers.
 * @param fabric  As for uct_cuda_node_device_addr_self().
 * @return NULL: reachable; else the reason. For the local interface its text is
 *         that of stock UCX for the same process, word for word, as UCX's tests
 *         expect it.
 */
const char *uct_cuda_node_addr_obstacle(const void *device_addr,
                                        const void *iface_addr, uint32_t iface,
                                        const uct_cuda_fabric_t *fabric);

#endif
