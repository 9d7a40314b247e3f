/* SPDX-License-Identifier: BSD-3-Clause */
/* Control block of a server: creation, mapping, sleep. */
#include <uct/cuda/cuda_cma/cuda_cma_control.h>

#include <uct/cuda/base/file.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/node/process.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>


#define FILE_NAME "ucx-mp-requests"

/* Neither side can truncate the file of the other */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)


static uct_cuda_cma_control_t *map(int fd)
{
    void *control = mmap(NULL, sizeof(uct_cuda_cma_control_t),
                         PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    return (control == MAP_FAILED) ? NULL : control;
}

uct_cuda_cma_control_t *
uct_cuda_cma_control_create(uct_cuda_cma_server_id_t *id_p)
{
    uct_cuda_cma_control_t *control = NULL;
    int fd;

    fd = uct_cuda_file_keep(
            memfd_create(FILE_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd < 0) {
        uct_cuda_debug("cannot create the file for peers' requests: %s",
                       strerror(errno));
        return NULL;
    }

    if (uct_cuda_file_resize(fd, sizeof(*control)) &&
        (fcntl(fd, F_ADD_SEALS, SEALS) == 0)) {
        control = map(fd);
    }
    if (control == NULL) {
        uct_cuda_debug("no memory for peers' requests: %s", strerror(errno));
        close(fd);
        return NULL;
    }

    /* a forked child is no server of these requests */
    (void)madvise(control, sizeof(*control), MADV_DONTFORK);
    control->size = sizeof(*control);
    if (getrandom(&control->token, sizeof(control->token), GRND_NONBLOCK) !=
        sizeof(control->token)) {
        control->token = (uintptr_t)control ^ (uint64_t)getpid() << 32;
    }
    control->token |= 1;

    memset(id_p, 0, sizeof(*id_p));
    id_p->token = control->token;
    id_p->fd    = fd;
    return control;
}

uct_cuda_cma_control_t *
uct_cuda_cma_control_open(pid_t pid, const uct_cuda_cma_server_id_t *id,
                          uct_cuda_node_alive_t **alive_p)
{
    uct_cuda_cma_control_t *control = NULL;
    struct stat file;
    int fd;

    fd = uct_cuda_node_file_open(pid, id->fd, FILE_NAME, O_RDWR);
    if (fd < 0) {
        return NULL;
    }

    if ((fstat(fd, &file) == 0) && S_ISREG(file.st_mode) &&
        (file.st_size == sizeof(*control)) &&
        (fcntl(fd, F_GET_SEALS) == SEALS)) {
        control = map(fd);
    }

    if ((control != NULL) &&
        ((control->token != id->token) || (control->size != sizeof(*control)) ||
         (uct_cuda_node_alive_open(fd, alive_p) != UCS_OK))) {
        uct_cuda_cma_control_close(control);
        control = NULL;
    }
    close(fd);

    return control;
}

void uct_cuda_cma_control_close(uct_cuda_cma_control_t *control)
{
    munmap(control, sizeof(*control));
}

static void futex(uint32_t *word, int operation, uint32_t value,
                  const struct timespec *timeout)
{
    (void)syscall(SYS_futex, word, operation, value, timeout, NULL, 0);
}

void uct_cuda_cma_control_wake(uct_cuda_cma_control_t *control)
{
    if (__atomic_load_n(&control->is_asleep, __ATOMIC_SEQ_CST) &&
        __atomic_exchange_n(&control->is_asleep, 0, __ATOMIC_SEQ_CST)) {
        futex(&control->is_asleep, FUTEX_WAKE, 1, NULL);
    }
}

void uct_cuda_cma_control_wake_self(uct_cuda_cma_control_t *control)
{
    __atomic_store_n(&control->is_asleep, 0, __ATOMIC_SEQ_CST);
    futex(&control->is_asleep, FUTEX_WAKE, 1, NULL);
}

void uct_cuda_cma_control_sleep(uct_cuda_cma_control_t *control,
                                bool (*is_idle)(void), uint64_t max_ns)
{
    const struct timespec timeout = {
        .tv_sec  = (time_t)(max_ns / 1000000000ul),
        .tv_nsec = (long)(max_ns % 1000000000ul)
    };

    __atomic_store_n(&control->is_asleep, 1, __ATOMIC_SEQ_CST);
    if (is_idle()) {
        futex(&control->is_asleep, FUTEX_WAIT, 1, &timeout);
    }
    __atomic_store_n(&control->is_asleep, 0, __ATOMIC_SEQ_CST);
}
