/* SPDX-License-Identifier: BSD-3-Clause */

/* Functions shared by the files of the preloaded library. */
#ifndef CUEMU_PRELOAD_H
#define CUEMU_PRELOAD_H

#include <stdint.h>
#include <time.h>

#define CUEMU_EXPORT __attribute__((visibility("default")))

/* Return libc's function of this name, which the preloaded library replaces */
void *cuemu_libc(const char *name);

/* libc's syscall(), looked up in advance: UCX's memory hooks wait until no
   thread is inside them, and read the clock meanwhile, so the clock must not
   call dlsym(). */
extern long (*cuemu_libc_syscall)(long number, ...);

/* Return the emulated time as nanoseconds since the given clock's epoch; 0
   without a session, and for clocks that stay real. */
uint64_t cuemu_emulated_ns(clockid_t id);

#endif
