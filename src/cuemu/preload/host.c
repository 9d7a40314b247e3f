/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Several emulated nodes on one machine: with CUEMU_HOST, the node's name, a
 * process gets this host name and a kernel boot id derived from it. UCX and
 * this project's module compare boot ids, so processes on two such nodes offer
 * each other neither shared memory nor CUDA IPC.
 */
#include "preload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#define CUEMU_BOOT_ID "/proc/sys/kernel/random/boot_id"


static const char *cuemu_host(void)
{
    const char *host = getenv("CUEMU_HOST");

    return ((host == NULL) || (*host == '\0')) ? NULL : host;
}

static int cuemu_open_boot_id(const char *host)
{
    uint64_t id = 0xcbf29ce484222325ull;
    char text[64];
    int fd, length;

    for (; *host != '\0'; ++host) {
        id = (id ^ (uint8_t)*host) * 0x100000001b3ull;
    }

    length = snprintf(text, sizeof(text), "c0de0000-0000-4000-%04x-%012llx\n",
                      (unsigned)(id >> 48),
                      (unsigned long long)(id & 0xffffffffffffull));
    fd     = (int)syscall(SYS_memfd_create, "boot_id", MFD_CLOEXEC);
    if ((fd >= 0) && ((write(fd, text, (size_t)length) != length) ||
                      (lseek(fd, 0, SEEK_SET) != 0))) {
        close(fd);
        errno = EIO;
        return -1;
    }

    return fd;
}

static int cuemu_open(const char *path, int flags, va_list ap)
{
    const char *host;
    mode_t mode = 0;

    if (strcmp(path, CUEMU_BOOT_ID) == 0) {
        host = cuemu_host();
        if (host != NULL) {
            return cuemu_open_boot_id(host);
        }
    }

    if ((flags & O_CREAT) || ((flags & O_TMPFILE) == O_TMPFILE)) {
        mode = va_arg(ap, mode_t);
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

CUEMU_EXPORT int open(const char *path, int flags, ...)
{
    va_list ap;
    int fd;

    va_start(ap, flags);
    fd = cuemu_open(path, flags, ap);
    va_end(ap);
    return fd;
}

CUEMU_EXPORT int open64(const char *path, int flags, ...)
{
    va_list ap;
    int fd;

    va_start(ap, flags);
    fd = cuemu_open(path, flags | O_LARGEFILE, ap);
    va_end(ap);
    return fd;
}

CUEMU_EXPORT int gethostname(char *name, size_t size)
{
    const char *host = cuemu_host();
    struct utsname uts;

    if (host == NULL) {
        if (uname(&uts) != 0) {
            return -1;
        }
        host = uts.nodename;
    }

    if (strlen(host) >= size) {
        errno = ENAMETOOLONG;
        return -1;
    }

    strcpy(name, host);
    return 0;
}
