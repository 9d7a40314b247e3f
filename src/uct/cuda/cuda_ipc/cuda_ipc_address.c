/* SPDX-License-Identifier: BSD-3-Clause */
/* Machine and process identity for cuda_ipc's addresses. */
#include <uct/cuda/cuda_ipc/cuda_ipc_address.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>


/* "ucxmpipc", then the layout's version in the last byte */
#define CUDA_IPC_ADDR_MAGIC UINT64_C(0x7563786d70697001)


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

static void read_iface_addr(uct_cuda_ipc_iface_addr_t *addr)
{
    struct stat st;

    memset(addr, 0, sizeof(*addr));
    addr->pid = getpid();
    if (stat("/proc/self/ns/pid", &st) == 0) {
        addr->pid_ns = st.st_ino;
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
        read_iface_addr(&self.iface);
        __atomic_store_n(&self.is_known, true, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&self.lock);
}

void uct_cuda_ipc_device_addr_self(uct_cuda_ipc_device_addr_t *addr)
{
    self_fill();
    *addr = self.device;
}

void uct_cuda_ipc_iface_addr_self(uct_cuda_ipc_iface_addr_t *addr)
{
    self_fill();
    *addr = self.iface;
}

bool uct_cuda_ipc_addr_is_reachable(const void *device_addr,
                                    const void *iface_addr)
{
    uct_cuda_ipc_device_addr_t self_device;
    uct_cuda_ipc_iface_addr_t self_iface;
    uint64_t magic;

    if ((device_addr == NULL) || (iface_addr == NULL)) {
        return false;
    }

    memcpy(&magic, device_addr, sizeof(magic));
    if (magic != CUDA_IPC_ADDR_MAGIC) {
        return false;
    }

    uct_cuda_ipc_device_addr_self(&self_device);
    uct_cuda_ipc_iface_addr_self(&self_iface);

    /* The driver cannot open a process's own handles */
    return (memcmp(device_addr, &self_device, sizeof(self_device)) == 0) &&
           (memcmp(iface_addr, &self_iface, sizeof(self_iface)) != 0);
}
