/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Robust file operations: interrupted calls are repeated (base/retry.h), short
 * reads and writes continued, and writes beyond RLIMIT_FSIZE refused; the
 * kernel would end the program with SIGXFSZ.
 */
#ifndef UCT_CUDA_BASE_FILE_H
#define UCT_CUDA_BASE_FILE_H

#include <ucs/sys/compiler_def.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

BEGIN_C_DECLS


/**
 * Read the beginning of a file and terminate it with a zero.
 *
 * @return Number of bytes; 0 also if there is no such file.
 */
size_t uct_cuda_file_text(const char *path, char *text, size_t size);

/**
 * Open a text file for reading, but no FIFO, which would block.
 *
 * @return NULL with errno.
 */
FILE *uct_cuda_file_stream(const char *path);

/**
 * Read up to @a size bytes at an offset.
 *
 * @return Number of bytes read
 */
size_t uct_cuda_file_read(int fd, void *data, size_t size, off_t offset);

/**
 * Write all bytes at an offset, or at the end of a file opened with O_APPEND.
 *
 * @return false with errno; a part may be written.
 */
bool uct_cuda_file_write(int fd, const void *data, size_t size, off_t offset);

/**
 * Set the size of a memory file; it uses memory when touched.
 *
 * @return false with errno.
 */
bool uct_cuda_file_resize(int fd, size_t size);

/**
 * Allocate memory for a part of a file, so that access to a mapping raises no
 * SIGBUS.
 *
 * @return false with errno: no space, or beyond a limit.
 */
bool uct_cuda_file_reserve(int fd, off_t offset, size_t size);

/**
 * Return the inode and the device of a descriptor in one number, to find out
 * whether a program that closes descriptors not its own has opened another file
 * under its number.
 *
 * @return 0: not open.
 */
uint64_t uct_cuda_file_inode(int fd);

/** Descriptors of RLIMIT_NOFILE that the module leaves to the program and to
 *  UCX: it keeps none open while fewer are left. */
#define UCT_CUDA_FILE_SPARE 16

/**
 * Return a descriptor that the module will keep open, or close it if the number
 * is one of the last UCT_CUDA_FILE_SPARE below RLIMIT_NOFILE. The kernel gives
 * out the lowest free number.
 *
 * @param fd  -1: none.
 * @return @a fd; -1: none, or closed.
 */
int uct_cuda_file_keep(int fd);

/** Return whether the process and the system have a free descriptor. */
bool uct_cuda_file_has_room(void);

/** Descriptor of this module. The program may close it and open another file
 *  under its number. */
typedef struct {
    int      fd;    /**< -1: none */
    uint64_t inode; /**< uct_cuda_file_inode() */
} uct_cuda_file_t;

/** Take over a descriptor, or none (-1). */
uct_cuda_file_t uct_cuda_file_of(int fd);

/** Return whether the descriptor is still this module's. */
bool uct_cuda_file_is_valid(const uct_cuda_file_t *file);

/** Close the descriptor if it is still this module's. */
void uct_cuda_file_close(const uct_cuda_file_t *file);


END_C_DECLS

#endif
