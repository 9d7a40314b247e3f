/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading, writing and resizing of files, safe against signals. */
#include <uct/cuda/base/file.h>

#include <uct/cuda/base/retry.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>


/* posix_fallocate() on a tmpfs frees what it has allocated if a signal
 * interrupts it, so each call allocates an amount that takes only a few
 * microseconds */
#define RESERVE_BYTES ((size_t)16 << 10)


size_t uct_cuda_file_read(int fd, void *data, size_t size, off_t offset)
{
    size_t length = 0;
    ssize_t got;

    do {
        got     = UCT_CUDA_RETRY(pread(fd, (char*)data + length, size - length,
                                       offset + (off_t)length));
        length += (got > 0) ? (size_t)got : 0;
    } while ((got > 0) && (length < size));

    return length;
}

size_t uct_cuda_file_text(const char *path, char *text, size_t size)
{
    const int fd  = UCT_CUDA_RETRY(open(path, O_RDONLY | O_CLOEXEC));
    size_t length = 0;

    if (fd >= 0) {
        length = uct_cuda_file_read(fd, text, size - 1, 0);
        close(fd);
    }

    text[length] = '\0';
    return length;
}

FILE *uct_cuda_file_stream(const char *path)
{
    const int fd = UCT_CUDA_RETRY(open(path, O_RDONLY | O_CLOEXEC |
                                                     O_NONBLOCK));
    struct stat st;
    FILE *stream;

    if (fd < 0) {
        return NULL;
    }

    if ((fstat(fd, &st) != 0) || S_ISFIFO(st.st_mode)) {
        close(fd);
        errno = EINVAL;
        return NULL;
    }

    stream = fdopen(fd, "r");
    if (stream == NULL) {
        close(fd);
    }
    return stream;
}

static bool may_end_at(off_t end)
{
    struct rlimit limit;

    if ((getrlimit(RLIMIT_FSIZE, &limit) == 0) &&
        ((rlim_t)end > limit.rlim_cur)) {
        errno = EFBIG;
        return false;
    }

    return true;
}

/* With O_APPEND the kernel writes at the end, whatever the offset */
static off_t write_end(int fd, size_t size, off_t offset)
{
    struct stat st;

    return (off_t)size + (((fcntl(fd, F_GETFL) & O_APPEND) &&
                           (fstat(fd, &st) == 0)) ?
                                  st.st_size :
                                  offset);
}

bool uct_cuda_file_write(int fd, const void *data, size_t size, off_t offset)
{
    size_t done = 0;
    ssize_t put;

    if (!may_end_at(write_end(fd, size, offset))) {
        return false;
    }

    while (done < size) {
        put = UCT_CUDA_RETRY(pwrite(fd, (const char*)data + done, size - done,
                                    offset + (off_t)done));
        if (put <= 0) {
            return false;
        }

        done += (size_t)put;
    }

    return true;
}

bool uct_cuda_file_resize(int fd, size_t size)
{
    return may_end_at((off_t)size) &&
           (UCT_CUDA_RETRY(ftruncate(fd, (off_t)size)) == 0);
}

bool uct_cuda_file_reserve(int fd, off_t offset, size_t size)
{
    size_t done = 0, bytes;
    int error;

    if (!may_end_at(offset + (off_t)size)) {
        return false;
    }

    while (done < size) {
        bytes = (size - done < RESERVE_BYTES) ? size - done : RESERVE_BYTES;
        error = posix_fallocate(fd, offset + (off_t)done, (off_t)bytes);
        if ((error != 0) && (error != EINTR)) {
            errno = error;
            return false;
        }

        done += (error == 0) ? bytes : 0;
    }

    return true;
}

uint64_t uct_cuda_file_inode(int fd)
{
    struct stat file;

    if (fstat(fd, &file) != 0) {
        return 0;
    }

    /* all sockets are on one device; peers read a socket's inode */
    return S_ISSOCK(file.st_mode) ?
                   file.st_ino :
                   (file.st_ino ^ ((uint64_t)file.st_dev << 32));
}

int uct_cuda_file_keep(int fd)
{
    struct rlimit limit;

    if ((fd < 0) || (getrlimit(RLIMIT_NOFILE, &limit) != 0) ||
        ((rlim_t)fd + UCT_CUDA_FILE_SPARE < limit.rlim_cur)) {
        return fd;
    }

    close(fd);
    errno = EMFILE;
    return -1;
}

bool uct_cuda_file_has_room(void)
{
    const int fd = open("/", O_PATH | O_CLOEXEC);

    if (fd < 0) {
        return (errno != EMFILE) && (errno != ENFILE);
    }

    close(fd);
    return true;
}

uct_cuda_file_t uct_cuda_file_of(int fd)
{
    return (uct_cuda_file_t){.fd = fd, .inode = uct_cuda_file_inode(fd)};
}

bool uct_cuda_file_is_valid(const uct_cuda_file_t *file)
{
    return (file->fd >= 0) && (uct_cuda_file_inode(file->fd) == file->inode);
}

void uct_cuda_file_close(const uct_cuda_file_t *file)
{
    if (uct_cuda_file_is_valid(file)) {
        close(file->fd);
    }
}
