/* SPDX-License-Identifier: BSD-3-Clause */
/* Machine and process identity for cuda_ipc's addresses. */
#include <uct/cuda/cuda_ipc/cuda_ipc_address.h>

#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>


/* "ucxmpipc", then the layout's version in the last byte */
#define CUDA_IPC_ADDR_MAGIC UINT64_C(0x7563786d70697002)

/* The same, and the machine is one of several that NVLink joins */
#define CUDA_IPC_ADDR_MAGIC_FABRIC UINT64_C(0x7563786d70697082)


/* Read from /proc once a process: every key that is unpacked asks for them */
static struct {
    pthread_mutex_t            lock;
    bool                       is_known;
    uct_cuda_ipc_device_addr_t device;
    uct_cuda_ipc_iface_addr_t  iface;
} self = {.lock = PTHREAD_MUTEX_INITIALIZER};


static void read_device_addr(uct_cuda_ipc_device_addr_t *addr)
{
    /* Text such as 2f1c9d3e-...: hexadecimal digits and dashes */
    char text[64] = "";
    unsigned nibble, count = 0;
    const char *p;
    int fd;

    memset(addr, 0, sizeof(*addr));
    addr->magic = CUDA_IPC_ADDR_MAGIC;

    fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (read(fd, text, sizeof(text) - 1) < 0) {
            text[0] = '\0';
        }
        close(fd);
    }

    if (text[0] == '\0') {
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

/* Boot ids are random bits: halves of them tell machines apart as well */
static uint64_t machine_number(const uct_cuda_ipc_device_addr_t *addr)
{
    uint64_t halves[2];

    memcpy(halves, addr->machine, sizeof(halves));
    return halves[0] ^ halves[1];
}

static void read_iface_addr(uct_cuda_ipc_iface_addr_t *addr,
                            const uct_cuda_ipc_device_addr_t *device)
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
    /* Others copy it without the lock once it is known: never written again */
    if (!self.is_known) {
        read_device_addr(&self.device);
        read_iface_addr(&self.iface, &self.device);
        __atomic_store_n(&self.is_known, true, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&self.lock);
}

#define ADDR_LENGTH_PLAIN  offsetof(uct_cuda_ipc_device_addr_t, fabric)
#define ADDR_LENGTH_FABRIC (ADDR_LENGTH_PLAIN + sizeof(uint32_t))

_Static_assert(ADDR_LENGTH_FABRIC <= UCT_CUDA_IPC_DEVICE_ADDR_MAX,
               "UCP packs the length into five bits");

size_t uct_cuda_ipc_device_addr_length(const uct_cuda_fabric_t *fabric)
{
    return (fabric != NULL) ? ADDR_LENGTH_FABRIC : ADDR_LENGTH_PLAIN;
}

/* FNV-1a. Two fabrics of one number would cost an attempt to map memory, which
 * the driver refuses. */
static uint32_t fabric_number(const uct_cuda_fabric_t *fabric)
{
    const uint8_t *byte = (const uint8_t*)fabric;
    uint32_t number     = 2166136261u;
    size_t i;

    for (i = 0; i < sizeof(*fabric); ++i) {
        number = (number ^ byte[i]) * 16777619u;
    }

    return number;
}

void uct_cuda_ipc_device_addr_self(uct_cuda_ipc_device_addr_t *addr,
                                   const uct_cuda_fabric_t *fabric)
{
    self_fill();
    *addr = self.device;
    if (fabric != NULL) {
        addr->magic  = CUDA_IPC_ADDR_MAGIC_FABRIC;
        addr->fabric = fabric_number(fabric);
    }
}

uint64_t uct_cuda_ipc_machine_self(void)
{
    self_fill();
    return machine_number(&self.device);
}

void uct_cuda_ipc_iface_addr_self(uct_cuda_ipc_iface_addr_t *addr)
{
    self_fill();
    *addr = self.iface;
}

bool uct_cuda_ipc_addr_is_reachable(const void *device_addr,
                                    const void *iface_addr,
                                    const uct_cuda_fabric_t *fabric)
{
    uct_cuda_ipc_device_addr_t peer;
    uct_cuda_ipc_iface_addr_t self_iface;
    uint64_t magic;

    if ((device_addr == NULL) || (iface_addr == NULL)) {
        return false;
    }

    memcpy(&magic, device_addr, sizeof(magic));
    if ((magic != CUDA_IPC_ADDR_MAGIC) &&
        (magic != CUDA_IPC_ADDR_MAGIC_FABRIC)) {
        return false;
    }

    /* The driver cannot open a process's own handles */
    uct_cuda_ipc_iface_addr_self(&self_iface);
    if (memcmp(iface_addr, &self_iface, sizeof(self_iface)) == 0) {
        return false;
    }

    memcpy(&peer, device_addr,
           (magic == CUDA_IPC_ADDR_MAGIC) ? ADDR_LENGTH_PLAIN :
                                            ADDR_LENGTH_FABRIC);
    if (memcmp(peer.machine, self.device.machine, sizeof(peer.machine)) == 0) {
        return true;
    }

    return (magic == CUDA_IPC_ADDR_MAGIC_FABRIC) && (fabric != NULL) &&
           (peer.fabric == fabric_number(fabric));
}
