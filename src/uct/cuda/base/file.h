/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files that signals and limits do not break: interrupted calls are repeated
 * (base/retry.h), short reads and writes go on, and what is larger than
 * RLIMIT_FSIZE is refused here, where the kernel would end the program by
 * SIGXFSZ.
 */
#ifndef UCT_CUDA_BASE_FILE_H
#define UCT_CUDA_BASE_FILE_H

#include <ucs/sys/compiler_def.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

BEGIN_C_DECLS


/** Read the beginning of a file, and end it with a 0.
 *  @return Bytes before that; 0, too, if there is no such file. */
size_t uct_cuda_file_text(const char *path, char *text, size_t size);

/** Open a file of text to be read; a FIFO, which would be waited for, is none.
 *  @return NULL with errno. */
FILE *uct_cuda_file_stream(const char *path);

/** Read up to @a size bytes at an offset. @return How many there are. */
size_t uct_cuda_file_read(int fd, void *data, size_t size, off_t offset);

/** Write all of it at an offset, or at the end of a file that was opened with
 *  O_APPEND. @return False with errno; a part may be there. */
bool uct_cuda_file_write(int fd, const void *data, size_t size, off_t offset);

/** Make a memory file as long as that; it takes memory when it is touched.
 *  @return False with errno. */
bool uct_cuda_file_resize(int fd, size_t size);

/** Take memory for a part of a file, so that no mapping of it ends in SIGBUS.
 *  @return False with errno: no room, or beyond a limit. */
bool uct_cuda_file_reserve(int fd, off_t offset, size_t size);


END_C_DECLS

#endif
