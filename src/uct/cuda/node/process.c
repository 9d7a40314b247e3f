/* SPDX-License-Identifier: BSD-3-Clause */
/* Machine and process identity for cuda_ipc's addresses. */
#include <uct/cuda/node/process.h>

#include <uct/cuda/base/file.h>
#include <uct/cuda/base/hash.h>
#include <uct/cuda/base/retry.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>


/* "ucxmpip", then the layout's version in the last byte */
#define ADDR_MAGIC UINT64_C(0x7563786d70697004)

/* The same for a machine in a group joined by NVLink */
#define ADDR_MAGIC_FABRIC UINT64_C(0x7563786d70697084)

/* Inode number of Linux's first PID namespace */
#define FIRST_PID_NS UINT64_C(0xeffffffc)

/* Word of an interface address: PID (at most 22 bits on Linux), interface, and
 * a flag for a PID namespace following it */
#define PID_BITS   22
#define PID_MASK   ((1u << PID_BITS) - 1)
#define HAS_PID_NS 0x80000000u

_Static_assert((uint64_t)UCT_CUDA_NODE_IFACE_MAX << PID_BITS < HAS_PID_NS,
               "the number of an interface ends where the flag begins");


/* Read from /proc once in a process: every unpacked key needs them */
static struct {
    pthread_mutex_t             lock;
    bool                        is_known;
    uct_cuda_node_device_addr_t device;
    uct_cuda_node_iface_addr_t  iface;
} self = {.lock = PTHREAD_MUTEX_INITIALIZER};


static void read_device_addr(uct_cuda_node_device_addr_t *addr)
{
    /* text such as 2f1c9d3e-...: hexadecimal digits and dashes */
    char text[64] = "";
    unsigned nibble, count = 0;
    const char *p;

    memset(addr, 0, sizeof(*addr));
    addr->magic = ADDR_MAGIC;

    if (uct_cuda_file_text("/proc/sys/kernel/random/boot_id", text,
                           sizeof(text)) == 0) {
        (void)gethostname(text, sizeof(text) - 1);
    }

    for (p = text; (*p != '\0') && (count < 2 * sizeof(addr->machine)); ++p) {
        if (*p == '-') {
            continue;
        }

        nibble = ((*p >= '0') && (*p <= '9')) ? (unsigned)(*p - '0') :
                                                ((unsigned)*p + 9) & 0xf;
        addr->machine[count / 2] |= (uint8_t)(nibble << (4 * (count % 2)));
        ++count;
    }
}

/* Return the boot id folded to 64 bits (XOR of its halves): its bits are
 * random, so the result is unique, too */
static uint64_t machine_number(const uct_cuda_node_device_addr_t *addr)
{
    uint64_t halves[2];

    memcpy(halves, addr->machine, sizeof(halves));
    return halves[0] ^ halves[1];
}

static void read_iface_addr(uct_cuda_node_iface_addr_t *addr,
                            const uct_cuda_node_device_addr_t *device)
{
    struct stat st;

    memset(addr, 0, sizeof(*addr));
    addr->pid = getpid();
    if (stat("/proc/self/ns/pid", &st) == 0) {
        addr->pid_ns = st.st_ino ^ machine_number(device);
    }
}

static void forget_in_child(void)
{
    pthread_mutex_init(&self.lock, NULL);
    __atomic_store_n(&self.is_known, false, __ATOMIC_RELEASE);
}

static void register_fork_handler(void)
{
    pthread_atfork(NULL, NULL, forget_in_child);
}

static void self_fill(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    if (__atomic_load_n(&self.is_known, __ATOMIC_ACQUIRE)) {
        return;
    }

    pthread_once(&once, register_fork_handler);
    pthread_mutex_lock(&self.lock);
    /* never written again: other threads copy it without the lock */
    if (!self.is_known) {
        read_device_addr(&self.device);
        read_iface_addr(&self.iface, &self.device);
        __atomic_store_n(&self.is_known, true, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&self.lock);
}

#define ADDR_LENGTH_PLAIN  offsetof(uct_cuda_node_device_addr_t, fabric)
#define ADDR_LENGTH_FABRIC (ADDR_LENGTH_PLAIN + sizeof(uint32_t))

_Static_assert(ADDR_LENGTH_FABRIC <= UCT_CUDA_NODE_DEVICE_ADDR_MAX,
               "UCP packs the length into five bits");

size_t uct_cuda_node_device_addr_length(const uct_cuda_fabric_t *fabric)
{
    return (fabric != NULL) ? ADDR_LENGTH_FABRIC : ADDR_LENGTH_PLAIN;
}

/* Hash a fabric's identity. A collision costs a failed attempt to map
 * memory. */
static uint32_t fabric_number(const uct_cuda_fabric_t *fabric)
{
    const uint8_t *byte = (const uint8_t*)fabric;
    uint32_t number     = UCT_CUDA_HASH32;
    size_t i;

    for (i = 0; i < sizeof(*fabric); ++i) {
        number = uct_cuda_hash32(number, byte[i]);
    }

    return number;
}

void uct_cuda_node_device_addr_self(uct_cuda_node_device_addr_t *addr,
                                    const uct_cuda_fabric_t *fabric)
{
    self_fill();
    *addr = self.device;
    if (fabric != NULL) {
        addr->magic  = ADDR_MAGIC_FABRIC;
        addr->fabric = fabric_number(fabric);
    }
}

uint64_t uct_cuda_node_machine_self(void)
{
    self_fill();
    return machine_number(&self.device);
}

void uct_cuda_node_iface_addr_self(uct_cuda_node_iface_addr_t *addr)
{
    self_fill();
    *addr = self.iface;
}

uint32_t uct_cuda_node_iface_number(void)
{
    static uint32_t count;

    return (__atomic_fetch_add(&count, 1, __ATOMIC_RELAXED) %
            UCT_CUDA_NODE_IFACE_MAX) + 1;
}

/* Return whether the address is of this version of the module */
static bool is_ours(const void *device_addr)
{
    uint64_t magic;

    memcpy(&magic, device_addr, sizeof(magic));
    return (magic == ADDR_MAGIC) ||
           (magic == ADDR_MAGIC_FABRIC);
}

/* Return the machine's initial PID namespace in the form of addresses: the
 * kernel's fixed number, combined with the machine's */
static uint64_t first_pid_ns(void)
{
    return FIRST_PID_NS ^ uct_cuda_node_machine_self();
}

size_t
uct_cuda_node_iface_addr_length(const uct_cuda_node_iface_addr_t *process)
{
    return (process->pid_ns == first_pid_ns()) ? sizeof(int32_t) :
                                                 UCT_CUDA_NODE_IFACE_ADDR_MAX;
}

void uct_cuda_node_iface_addr_pack(const uct_cuda_node_iface_addr_t *process,
                                   void *iface_addr)
{
    const bool has_ns  = (process->pid_ns != first_pid_ns());
    const uint32_t word = (uint32_t)process->pid |
                          (process->iface << PID_BITS) |
                          (has_ns ? HAS_PID_NS : 0);

    memcpy(iface_addr, &word, sizeof(word));
    if (has_ns) {
        memcpy((char*)iface_addr + sizeof(word), &process->pid_ns,
               sizeof(process->pid_ns));
    }
}

void uct_cuda_node_iface_addr_unpack(const void *device_addr,
                                     const void *iface_addr,
                                     uct_cuda_node_iface_addr_t *process)
{
    uct_cuda_node_device_addr_t device;
    uint32_t word;

    memcpy(&word, iface_addr, sizeof(word));
    memset(process, 0, sizeof(*process));
    process->pid   = (int32_t)(word & PID_MASK);
    process->iface = (word & ~HAS_PID_NS) >> PID_BITS;
    if (word & HAS_PID_NS) {
        memcpy(&process->pid_ns, (const char*)iface_addr + sizeof(word),
               sizeof(process->pid_ns));
    } else if ((device_addr == NULL) || !is_ours(device_addr)) {
        process->pid_ns = first_pid_ns();
    } else {
        memcpy(&device, device_addr, ADDR_LENGTH_PLAIN);
        process->pid_ns = FIRST_PID_NS ^ machine_number(&device);
    }
}

bool uct_cuda_node_is_self(int32_t pid, uint64_t pid_ns)
{
    self_fill();
    return (pid == self.iface.pid) && (pid_ns == self.iface.pid_ns) &&
           (pid_ns != 0);
}

int uct_cuda_node_file_open(int32_t pid, int32_t fd, const char *name,
                            int flags)
{
    char path[64], expected[64], found[64];
    ssize_t length;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
    length = readlink(path, found, sizeof(found) - 1);
    if (length < 0) {
        return -1;
    }

    found[length] = '\0';
    snprintf(expected, sizeof(expected), "/memfd:%s (deleted)", name);
    return (strcmp(found, expected) == 0) ?
                   UCT_CUDA_RETRY(open(path, flags | O_CLOEXEC | O_NONBLOCK |
                                                     O_NOCTTY)) :
                   -1;
}

const char *uct_cuda_node_addr_obstacle(const void *device_addr,
                                        const void *iface_addr, uint32_t iface,
                                        const uct_cuda_fabric_t *fabric)
{
    uct_cuda_node_iface_addr_t self_iface, process;
    uct_cuda_node_device_addr_t peer;
    bool has_fabric;

    if ((device_addr == NULL) || (iface_addr == NULL)) {
        return "an address is missing";
    }

    if (!is_ours(device_addr)) {
        return "another cuda_ipc";
    }

    uct_cuda_node_iface_addr_self(&self_iface);
    uct_cuda_node_iface_addr_unpack(device_addr, iface_addr, &process);
    if (uct_cuda_node_is_same_process(&process, &self_iface) &&
        ((process.iface == iface) || (process.iface == 0) ||
         !uct_cuda_node_is_self(process.pid, process.pid_ns))) {
        return "same process";
    }

    memcpy(&peer, device_addr, ADDR_LENGTH_PLAIN);
    if (memcmp(peer.machine, self.device.machine, sizeof(peer.machine)) == 0) {
        return NULL;
    }

    has_fabric = (peer.magic == ADDR_MAGIC_FABRIC) && (fabric != NULL);
    if (has_fabric) {
        memcpy(&peer, device_addr, ADDR_LENGTH_FABRIC);
    }

    return (has_fabric && (peer.fabric == fabric_number(fabric))) ?
                   NULL :
                   "different machine, which NVLink does not join to this one";
}
