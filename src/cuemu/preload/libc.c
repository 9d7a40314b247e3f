/* SPDX-License-Identifier: BSD-3-Clause */

/* Find the functions of libc that the preloaded library replaces. */
#include "preload.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stddef.h>

void *cuemu_libc(const char *name)
{
    /* without a version dlsym() would take the condition variables of
       Linux 2.4 */
    void *function = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");

    return (function != NULL) ? function : dlsym(RTLD_NEXT, name);
}

/* Allocate no memory: AddressSanitizer's malloc() reads the clock with a lock
   held, also before this library's constructors. dlvsym() would not find the
   function in that version, and would allocate a message. */
__attribute__((constructor)) static void cuemu_find_syscall(void)
{
    cuemu_libc_syscall = (__typeof__(cuemu_libc_syscall))dlsym(RTLD_NEXT,
                                                               "syscall");
}

/* A call of another library's constructor, before this one's */
static long cuemu_first_syscall(long number, ...)
{
    va_list list;
    long word[6];
    size_t i;

    cuemu_find_syscall();
    va_start(list, number);
    for (i = 0; i < sizeof(word) / sizeof(word[0]); ++i) {
        word[i] = va_arg(list, long);
    }
    va_end(list);
    return cuemu_libc_syscall(number, word[0], word[1], word[2], word[3],
                              word[4], word[5]);
}

long (*cuemu_libc_syscall)(long number, ...) = cuemu_first_syscall;
