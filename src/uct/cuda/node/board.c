/* SPDX-License-Identifier: BSD-3-Clause */
/* Every process holds the number of its rank (alive.h), and the file's number
 * while it allocates or releases a control block. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* F_OFD_GETLK */
#endif

#include <uct/cuda/node/board.h>

#include <uct/abi/abi.h>
#include <uct/cuda/base/file.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/retry.h>
#include <uct/cuda/node/alive.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>


#define MAGIC 0x376c6c6f63786375ul /* "ucxcoll7" */

/* Control blocks begin at multiples of the largest memory page of any
 * processor */
#define ALIGNMENT ((size_t)64 << 10)

/* Age at which a named segment without processes is removed, seconds */
#define LEFT_MIN 60

#define ALIGN_UP(_bytes) (((_bytes) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT)


/* Memory of a control block, in use or free */
typedef struct {
    uint64_t key; /* written last; kept after the last user */
    uint64_t offset;
    uint64_t bytes;
    uint32_t users; /* processes using it */
    uint32_t reserved;
} entry_t;

/* Failure of a rank in a call */
typedef struct {
    uint64_t key; /* written last */
    uint64_t number;
    uint32_t start;
    uint32_t rank;
} failure_t;

typedef struct {
    uint64_t magic;
    uint32_t num_ranks;
    uint32_t word;        /* control blocks created so far */
    uint32_t num_entries; /* entries ever used */
    uint64_t end;         /* end of the file, bytes */
    entry_t  entries[UCT_CUDA_COLL_BOARD_PAGES];

    _Alignas(64) uint32_t num_failures; /* reported by ranks so far */
    failure_t             failures[UCT_CUDA_COLL_BOARD_FAILURES];
} layout_t;

struct uct_cuda_coll_board {
    layout_t              *shared;
    uct_cuda_node_alive_t *alive;
    pthread_mutex_t       lock;  /* threads of a process share its numbers */
    unsigned              rank;
    int                   fd;
    /* A forked child leaves the segment as it is */
    pid_t                 owner;
    char                  path[256]; /* Empty: no name */
};


/* ------------------------------------------------------------ open, close */

/* Names begin with the machine's number: a file of another machine has another
 * prefix */
static int board_prefix(char prefix[UCT_CUDA_COLL_BOARD_NAME])
{
    return snprintf(prefix, UCT_CUDA_COLL_BOARD_NAME, "ucx-mp-coll-%llx-",
                    (unsigned long long)uct_abi_system_id());
}

/* Remove a segment whose job was killed before all ranks had opened it */
static void board_sweep_one(int folder, const char *name)
{
    const int fd      = UCT_CUDA_RETRY(openat(folder, name,
                                              O_RDWR | O_CLOEXEC | O_NOFOLLOW |
                                                      O_NONBLOCK));
    struct flock lock = {.l_type = F_WRLCK}; /* of all numbers */
    struct stat st;

    if (fd < 0) {
        return;
    }

    if ((fstat(fd, &st) == 0) && S_ISREG(st.st_mode) &&
        (st.st_uid == geteuid()) && (st.st_mtime < time(NULL) - LEFT_MIN) &&
        (UCT_CUDA_RETRY(fcntl(fd, F_OFD_GETLK, &lock)) == 0) &&
        (lock.l_type == F_UNLCK)) {
        uct_cuda_debug("removed an unused shared segment for collectives (%s)",
                       name);
        (void)unlinkat(folder, name, 0);
    }
    close(fd);
}

static void board_sweep(const char *dir)
{
    char prefix[UCT_CUDA_COLL_BOARD_NAME];
    const int length = board_prefix(prefix);
    DIR *folder      = opendir(dir);
    struct dirent *entry;

    if (folder == NULL) {
        return;
    }

    while ((entry = readdir(folder)) != NULL) {
        if (strncmp(entry->d_name, prefix, length) == 0) {
            board_sweep_one(dirfd(folder), entry->d_name);
        }
    }
    closedir(folder);
}

static ucs_status_t board_make(uct_cuda_coll_board_t *board, const char *dir,
                               char *name)
{
    uint64_t random;
    int length;

    board_sweep(dir);
    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) !=
        (ssize_t)sizeof(random)) {
        return UCS_ERR_NO_RESOURCE;
    }

    length = board_prefix(name);
    snprintf(name + length, UCT_CUDA_COLL_BOARD_NAME - length, "%d-%016llx",
             (int)getpid(), (unsigned long long)random);
    if ((size_t)snprintf(board->path, sizeof(board->path), "%s/%s", dir,
                         name) >= sizeof(board->path)) {
        board->path[0] = '\0';
        return UCS_ERR_INVALID_PARAM;
    }

    board->fd = UCT_CUDA_RETRY(open(board->path,
                                    O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC |
                                            O_NOFOLLOW, 0600));
    if (board->fd < 0) {
        board->path[0] = '\0';
        return UCS_ERR_NO_RESOURCE;
    }

    /* Allocate the memory now: a full file system gives an error here instead
     * of SIGBUS later */
    return uct_cuda_file_reserve(board->fd, 0, sizeof(layout_t)) ?
                   UCS_OK :
                   UCS_ERR_NO_RESOURCE;
}

static ucs_status_t board_find(uct_cuda_coll_board_t *board, const char *dir,
                               const char *name)
{
    char path[sizeof(board->path)], prefix[UCT_CUDA_COLL_BOARD_NAME];
    struct stat st;

    if ((strchr(name, '/') != NULL) ||
        ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) >=
         sizeof(path))) {
        return UCS_ERR_INVALID_PARAM;
    }

    if (strncmp(name, prefix, board_prefix(prefix)) != 0) {
        return UCS_ERR_UNREACHABLE;
    }

    board->fd = UCT_CUDA_RETRY(open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if ((board->fd < 0) || (fstat(board->fd, &st) != 0) ||
        (st.st_uid != geteuid()) || (st.st_size < (off_t)sizeof(layout_t))) {
        return UCS_ERR_UNREACHABLE;
    }

    return UCS_OK;
}

static void *board_map(const uct_cuda_coll_board_t *board, size_t bytes,
                       off_t offset)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                        board->fd, offset);

    return (memory == MAP_FAILED) ? NULL : memory;
}

static ucs_status_t board_begin(uct_cuda_coll_board_t *board, unsigned size)
{
    board->shared = board_map(board, sizeof(layout_t), 0);
    if (board->shared == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    if (board->rank == 0) {
        board->shared->num_ranks = size;
        board->shared->end = ALIGN_UP(sizeof(layout_t));
        __atomic_store_n(&board->shared->magic, MAGIC, __ATOMIC_RELEASE);
    } else if ((__atomic_load_n(&board->shared->magic, __ATOMIC_ACQUIRE) !=
                MAGIC) ||
               (board->shared->num_ranks != size)) {
        return UCS_ERR_UNREACHABLE;
    }

    return ((uct_cuda_node_alive_open(board->fd, &board->alive) == UCS_OK) &&
            uct_cuda_node_alive_take(board->alive, board->rank)) ?
                   UCS_OK :
                   UCS_ERR_NO_RESOURCE;
}

ucs_status_t uct_cuda_coll_board_open(const char *dir, unsigned rank,
                                      unsigned size,
                                      char name[UCT_CUDA_COLL_BOARD_NAME],
                                      uct_cuda_coll_board_t **board_p)
{
    uct_cuda_coll_board_t *board;
    ucs_status_t status;

    if (rank >= size) {
        return UCS_ERR_INVALID_PARAM;
    }

    board = calloc(1, sizeof(*board));
    if (board == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    pthread_mutex_init(&board->lock, NULL);
    board->rank  = rank;
    board->fd    = -1;
    board->owner = getpid();
    status       = (rank == 0) ? board_make(board, dir, name) :
                                 board_find(board, dir, name);
    if (status == UCS_OK) {
        status = board_begin(board, size);
    }

    if (status != UCS_OK) {
        uct_cuda_debug("rank %u of %u: no shared segment for collectives in %s "
                       "(status %d)",
                       rank, size, dir, status);
        uct_cuda_coll_board_close(board);
        return status;
    }

    *board_p = board;
    return UCS_OK;
}

void uct_cuda_coll_board_unlink(uct_cuda_coll_board_t *board)
{
    if ((board->path[0] != '\0') && uct_cuda_coll_board_is_own(board)) {
        (void)unlink(board->path);
        board->path[0] = '\0';
    }
}

void uct_cuda_coll_board_close(uct_cuda_coll_board_t *board)
{
    uct_cuda_coll_board_unlink(board);
    if (board->shared != NULL) {
        munmap(board->shared, sizeof(layout_t));
    }
    if (board->alive != NULL) {
        uct_cuda_node_alive_close(board->alive);
    }
    if (board->fd >= 0) {
        close(board->fd);
    }
    pthread_mutex_destroy(&board->lock);
    free(board);
}

bool uct_cuda_coll_board_is_own(const uct_cuda_coll_board_t *board)
{
    return board->owner == getpid();
}

bool uct_cuda_coll_board_is_alive(const uct_cuda_coll_board_t *board,
                                  unsigned rank)
{
    return (rank == board->rank) ||
           uct_cuda_node_alive_is_there(board->alive, rank);
}


/* --------------------------------------------------------- control blocks */

const uint32_t *uct_cuda_coll_board_word(const uct_cuda_coll_board_t *board)
{
    return &board->shared->word;
}

static entry_t *board_entry(const uct_cuda_coll_board_t *board, uint64_t key)
{
    layout_t *shared   = board->shared;
    const uint32_t end = __atomic_load_n(&shared->num_entries,
                                         __ATOMIC_ACQUIRE);
    entry_t *entry;
    uint32_t i;

    for (i = 0; i < end; ++i) {
        entry = &shared->entries[i];
        if ((__atomic_load_n(&entry->key, __ATOMIC_ACQUIRE) == key) &&
            (__atomic_load_n(&entry->users, __ATOMIC_ACQUIRE) > 0)) {
            return entry;
        }
    }
    return NULL;
}

bool uct_cuda_coll_board_has(const uct_cuda_coll_board_t *board, uint64_t key)
{
    return board_entry(board, key) != NULL;
}

/* Reuse free memory, or extend the file */
static ucs_status_t board_add(uct_cuda_coll_board_t *board, size_t bytes,
                              entry_t **entry_p)
{
    layout_t *shared = board->shared;
    entry_t *entry;
    uint32_t i;

    for (i = 0; i < shared->num_entries; ++i) {
        entry = &shared->entries[i];
        if ((entry->users == 0) && (entry->bytes == bytes)) {
            *entry_p = entry;
            return UCS_OK;
        }
    }

    if (i == UCT_CUDA_COLL_BOARD_PAGES) {
        return UCS_ERR_EXCEEDS_LIMIT;
    }

    if (!uct_cuda_file_reserve(board->fd, (off_t)shared->end, bytes)) {
        return UCS_ERR_NO_RESOURCE;
    }

    entry         = &shared->entries[i];
    entry->offset = shared->end;
    entry->bytes  = bytes;
    shared->end   = ALIGN_UP(shared->end + bytes);
    __atomic_store_n(&shared->num_entries, i + 1, __ATOMIC_RELEASE);
    *entry_p = entry;
    return UCS_OK;
}

static ucs_status_t board_take(uct_cuda_coll_board_t *board, uint64_t key,
                               size_t bytes, void **memory_p)
{
    entry_t *entry      = board_entry(board, key);
    const bool is_there = (entry != NULL);
    ucs_status_t status;

    if (!is_there) {
        status = board_add(board, bytes, &entry);
        if (status != UCS_OK) {
            return status;
        }
    } else if (entry->bytes != bytes) {
        return UCS_ERR_INVALID_PARAM;
    }

    *memory_p = board_map(board, bytes, (off_t)entry->offset);
    if (*memory_p == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    if (!is_there) {
        memset(*memory_p, 0, bytes);
        __atomic_store_n(&entry->key, key, __ATOMIC_RELEASE);
    }
    __atomic_fetch_add(&entry->users, 1, __ATOMIC_RELEASE);
    if (!is_there) {
        __atomic_fetch_add(&board->shared->word, 1, __ATOMIC_RELEASE);
    }
    return UCS_OK;
}

static bool board_enter(uct_cuda_coll_board_t *board)
{
    pthread_mutex_lock(&board->lock);
    return uct_cuda_node_alive_wait(board->alive, UCT_CUDA_NODE_ALIVE_FILE);
}

static void board_leave(uct_cuda_coll_board_t *board)
{
    uct_cuda_node_alive_drop(board->alive, UCT_CUDA_NODE_ALIVE_FILE);
    pthread_mutex_unlock(&board->lock);
}

ucs_status_t uct_cuda_coll_board_get(uct_cuda_coll_board_t *board, uint64_t key,
                                     size_t bytes, void **memory_p)
{
    ucs_status_t status = UCS_ERR_NO_RESOURCE;

    if (board_enter(board)) {
        status = board_take(board, key, bytes, memory_p);
    }
    board_leave(board);
    return status;
}

void uct_cuda_coll_board_put(uct_cuda_coll_board_t *board, uint64_t key,
                             size_t bytes, void *memory)
{
    entry_t *entry;

    munmap(memory, bytes);
    if (!uct_cuda_coll_board_is_own(board)) {
        return;
    }

    if (board_enter(board)) {
        entry = board_entry(board, key);
        if (entry != NULL) {
            __atomic_fetch_sub(&entry->users, 1, __ATOMIC_RELEASE);
        }
    }
    board_leave(board);
}


/* --------------------------------------------------------------- failures */

const uint32_t *uct_cuda_coll_board_failures(const uct_cuda_coll_board_t *board)
{
    return &board->shared->num_failures;
}

void uct_cuda_coll_board_fail(uct_cuda_coll_board_t *board, uint64_t key,
                              uint64_t number, uint32_t start, uint32_t rank)
{
    layout_t *shared = board->shared;
    failure_t *failure;

    if (board_enter(board)) {
        failure = &shared->failures[shared->num_failures %
                                    UCT_CUDA_COLL_BOARD_FAILURES];
        /* Written before the key is cleared: a reader of a new value also sees
         * the key cleared */
        __atomic_store_n(&failure->key, 0, __ATOMIC_RELEASE);
        __atomic_store_n(&failure->number, number, __ATOMIC_RELEASE);
        __atomic_store_n(&failure->start, start, __ATOMIC_RELEASE);
        __atomic_store_n(&failure->rank, rank, __ATOMIC_RELEASE);
        __atomic_store_n(&failure->key, key, __ATOMIC_RELEASE);
        __atomic_fetch_add(&shared->num_failures, 1, __ATOMIC_RELEASE);
    }
    board_leave(board);
}

int uct_cuda_coll_board_failed(const uct_cuda_coll_board_t *board, uint64_t key,
                               uint64_t number, uint32_t start)
{
    const failure_t *failure = board->shared->failures;
    const failure_t *end     = failure + UCT_CUDA_COLL_BOARD_FAILURES;
    uint32_t rank;

    for (; failure < end; ++failure) {
        if ((__atomic_load_n(&failure->key, __ATOMIC_ACQUIRE) != key) ||
            (__atomic_load_n(&failure->number, __ATOMIC_ACQUIRE) != number) ||
            (__atomic_load_n(&failure->start, __ATOMIC_ACQUIRE) != start)) {
            continue;
        }

        rank = __atomic_load_n(&failure->rank, __ATOMIC_ACQUIRE);
        if (__atomic_load_n(&failure->key, __ATOMIC_RELAXED) == key) {
            return (int)rank;
        }
    }
    return -1;
}
