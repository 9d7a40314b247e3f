/* SPDX-License-Identifier: BSD-3-Clause */
/* Sizes in readable form. */
#ifndef UCT_CUDA_BASE_SIZE_H
#define UCT_CUDA_BASE_SIZE_H

#include <ucs/sys/compiler_def.h>

#include <stdbool.h>
#include <stddef.h>

BEGIN_C_DECLS


/**
 * Parse bytes: digits with an optional fraction, then optionally k, m, g or t
 * for powers of 1024, and a "b", in either case.
 *
 * @param end_p  First character after the size; NULL: the text must end there.
 * @return false: no size, or 2^63 or more.
 */
bool uct_cuda_size_parse(const char *text, const char **end_p, size_t *size_p);


END_C_DECLS

#endif
