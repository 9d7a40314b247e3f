/* SPDX-License-Identifier: BSD-3-Clause */
/* Sizes as people write them. */
#ifndef UCT_CUDA_BASE_SIZE_H
#define UCT_CUDA_BASE_SIZE_H

#include <ucs/sys/compiler_def.h>

#include <stdbool.h>
#include <stddef.h>

BEGIN_C_DECLS


/**
 * Read bytes: digits, maybe a fraction, then maybe k, m, g or t for powers of
 * 1024, and a "b", in either case.
 *
 * @param end_p  The first character behind it; NULL: there may be none.
 * @return False: it is no size, or 2^63 and more.
 */
bool uct_cuda_size_parse(const char *text, const char **end_p, size_t *size_p);


END_C_DECLS

#endif
