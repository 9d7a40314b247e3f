/* SPDX-License-Identifier: BSD-3-Clause */

/* Functions shared by the files of the preloaded library. */
#ifndef CUEMU_PRELOAD_H
#define CUEMU_PRELOAD_H

#include <stdint.h>
#include <time.h>

#define CUEMU_EXPORT __attribute__((visibility("default")))

/* Return the emulated time as nanoseconds since the given clock's epoch; 0
   without a session, and for clocks that stay real. */
uint64_t cuemu_emulated_ns(clockid_t id);

#endif
