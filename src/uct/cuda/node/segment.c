/* SPDX-License-Identifier: BSD-3-Clause */
/* Every process holds the number of its rank (alive.h), and the file's number
 * while it allocates or releases a control block. */
#include <uct/cuda/node/segment.h>

#include <uct/abi/abi.h>
#include <uct/cuda/base/file.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/retry.h>
#include <uct/cuda/node/alive.h>

#include <dirent.h>
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


#define MAGIC 0x386c6c6f63786375ul /* "ucxcoll8" */

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
} block_t;

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
    uint32_t word;       /* control blocks created so far */
    uint32_t num_blocks; /* entries ever used */
    uint64_t end;        /* end of the file, bytes */
    block_t  blocks[UCT_CUDA_NODE_SEGMENT_PAGES];

    _Alignas(64) uint32_t num_failures; /* reported by ranks so far */
    failure_t             failures[UCT_CUDA_NODE_SEGMENT_FAILURES];
} layout_t;

struct uct_cuda_node_segment {
    layout_t              *shared;
    uct_cuda_node_alive_t *alive;
    pthread_mutex_t       lock;  /* threads of a process share its numbers */
    unsigned              rank;
    uct_cuda_file_t       file;
    /* A forked child leaves the segment as it is */
    pid_t                 owner;
    char                  path[256]; /* Empty: no name */
};


/* ------------------------------------------------------------ open, close */

/* Names begin with the machine's number: a file of another machine has another
 * prefix */
static int segment_prefix(char prefix[UCT_CUDA_NODE_SEGMENT_NAME])
{
    return snprintf(prefix, UCT_CUDA_NODE_SEGMENT_NAME, "ucx-mp-coll-%llx-",
                    (unsigned long long)uct_abi_system_id());
}

/* Remove a named segment of this user if it is older than LEFT_MIN and no
 * process holds it: its job was killed before all ranks had opened it */
static void segment_sweep_one(int folder, const char *name)
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

static void segment_sweep(const char *dir)
{
    char prefix[UCT_CUDA_NODE_SEGMENT_NAME];
    const int length = segment_prefix(prefix);
    DIR *folder      = opendir(dir);
    struct dirent *block;

    if (folder == NULL) {
        return;
    }

    while ((block = readdir(folder)) != NULL) {
        if (strncmp(block->d_name, prefix, length) == 0) {
            segment_sweep_one(dirfd(folder), block->d_name);
        }
    }
    closedir(folder);
}

static ucs_status_t segment_make(uct_cuda_node_segment_t *segment,
                                 const char *dir, char *name)
{
    uint64_t random;
    int length;

    segment_sweep(dir);
    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) !=
        (ssize_t)sizeof(random)) {
        return UCS_ERR_NO_RESOURCE;
    }

    length = segment_prefix(name);
    snprintf(name + length, UCT_CUDA_NODE_SEGMENT_NAME - length, "%d-%016llx",
             (int)getpid(), (unsigned long long)random);
    if ((size_t)snprintf(segment->path, sizeof(segment->path), "%s/%s", dir,
                         name) >= sizeof(segment->path)) {
        segment->path[0] = '\0';
        return UCS_ERR_INVALID_PARAM;
    }

    segment->file = uct_cuda_file_of(
            UCT_CUDA_RETRY(open(segment->path,
                                O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC |
                                        O_NOFOLLOW, 0600)));
    if (segment->file.fd < 0) {
        segment->path[0] = '\0';
        return UCS_ERR_NO_RESOURCE;
    }

    /* Allocate the memory now: a full file system gives an error here instead
     * of SIGBUS later */
    return uct_cuda_file_reserve(segment->file.fd, 0, sizeof(layout_t)) ?
                   UCS_OK :
                   UCS_ERR_NO_RESOURCE;
}

static ucs_status_t segment_find(uct_cuda_node_segment_t *segment,
                                 const char *dir, const char *name)
{
    char path[sizeof(segment->path)], prefix[UCT_CUDA_NODE_SEGMENT_NAME];
    struct stat st;

    if ((strchr(name, '/') != NULL) ||
        ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) >=
         sizeof(path))) {
        return UCS_ERR_INVALID_PARAM;
    }

    if (strncmp(name, prefix, segment_prefix(prefix)) != 0) {
        return UCS_ERR_UNREACHABLE;
    }

    segment->file = uct_cuda_file_of(
            UCT_CUDA_RETRY(open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW)));
    if ((fstat(segment->file.fd, &st) != 0) || (st.st_uid != geteuid()) ||
        (st.st_size < (off_t)sizeof(layout_t))) {
        return UCS_ERR_UNREACHABLE;
    }

    return UCS_OK;
}

static void *segment_map(const uct_cuda_node_segment_t *segment, size_t bytes,
                         off_t offset)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                        segment->file.fd, offset);

    return (memory == MAP_FAILED) ? NULL : memory;
}

static ucs_status_t segment_begin(uct_cuda_node_segment_t *segment,
                                  unsigned size)
{
    segment->shared = segment_map(segment, sizeof(layout_t), 0);
    if (segment->shared == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    if (segment->rank == 0) {
        segment->shared->num_ranks = size;
        segment->shared->end = ALIGN_UP(sizeof(layout_t));
        __atomic_store_n(&segment->shared->magic, MAGIC, __ATOMIC_RELEASE);
    } else if ((__atomic_load_n(&segment->shared->magic, __ATOMIC_ACQUIRE) !=
                MAGIC) ||
               (segment->shared->num_ranks != size)) {
        return UCS_ERR_UNREACHABLE;
    }

    return ((uct_cuda_node_alive_open(segment->file.fd, &segment->alive) ==
             UCS_OK) &&
            uct_cuda_node_alive_hold(segment->alive, segment->rank)) ?
               UCS_OK :
               UCS_ERR_NO_RESOURCE;
}

ucs_status_t uct_cuda_node_segment_open(const char *dir, unsigned rank,
                                        unsigned size,
                                        char name[UCT_CUDA_NODE_SEGMENT_NAME],
                                        uct_cuda_node_segment_t **segment_p)
{
    uct_cuda_node_segment_t *segment;
    ucs_status_t status;

    if (rank >= size) {
        return UCS_ERR_INVALID_PARAM;
    }

    segment = calloc(1, sizeof(*segment));
    if (segment == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    pthread_mutex_init(&segment->lock, NULL);
    segment->rank    = rank;
    segment->file.fd = -1;
    segment->owner   = getpid();
    status           = (rank == 0) ? segment_make(segment, dir, name) :
                                     segment_find(segment, dir, name);
    if (status == UCS_OK) {
        status = segment_begin(segment, size);
    }

    if (status != UCS_OK) {
        uct_cuda_debug("rank %u of %u: no shared segment for collectives in %s "
                       "(status %d)",
                       rank, size, dir, status);
        uct_cuda_node_segment_close(segment);
        return status;
    }

    *segment_p = segment;
    return UCS_OK;
}

void uct_cuda_node_segment_unlink(uct_cuda_node_segment_t *segment)
{
    if ((segment->path[0] != '\0') && uct_cuda_node_segment_is_owner(segment)) {
        (void)unlink(segment->path);
        segment->path[0] = '\0';
    }
}

void uct_cuda_node_segment_close(uct_cuda_node_segment_t *segment)
{
    uct_cuda_node_segment_unlink(segment);
    if (segment->shared != NULL) {
        munmap(segment->shared, sizeof(layout_t));
    }
    if (segment->alive != NULL) {
        uct_cuda_node_alive_close(segment->alive);
    }
    uct_cuda_file_close(&segment->file);
    pthread_mutex_destroy(&segment->lock);
    free(segment);
}

bool uct_cuda_node_segment_is_owner(const uct_cuda_node_segment_t *segment)
{
    return segment->owner == getpid();
}

bool uct_cuda_node_segment_is_alive(const uct_cuda_node_segment_t *segment,
                                    unsigned rank)
{
    return (rank == segment->rank) ||
           uct_cuda_node_alive_is_taken(segment->alive, rank);
}


/* --------------------------------------------------------- control blocks */

const uint32_t *
uct_cuda_node_segment_changes(const uct_cuda_node_segment_t *segment)
{
    return &segment->shared->word;
}

static block_t *segment_block(const uct_cuda_node_segment_t *segment,
                              uint64_t key)
{
    layout_t *shared   = segment->shared;
    const uint32_t end = __atomic_load_n(&shared->num_blocks,
                                         __ATOMIC_ACQUIRE);
    block_t *block;
    uint32_t i;

    for (i = 0; i < end; ++i) {
        block = &shared->blocks[i];
        if ((__atomic_load_n(&block->key, __ATOMIC_ACQUIRE) == key) &&
            (__atomic_load_n(&block->users, __ATOMIC_ACQUIRE) > 0)) {
            return block;
        }
    }
    return NULL;
}

bool uct_cuda_node_segment_has(const uct_cuda_node_segment_t *segment,
                               uint64_t key)
{
    return segment_block(segment, key) != NULL;
}

/* Find free memory of this size, or extend the file. The caller maps and clears
 * it and sets its key. Call it between segment_enter() and segment_leave(). */
static ucs_status_t segment_add(uct_cuda_node_segment_t *segment, size_t bytes,
                                block_t **block_p)
{
    layout_t *shared = segment->shared;
    block_t *block;
    uint32_t i;

    for (i = 0; i < shared->num_blocks; ++i) {
        block = &shared->blocks[i];
        if ((block->users == 0) && (block->bytes == bytes)) {
            *block_p = block;
            return UCS_OK;
        }
    }

    if (i == UCT_CUDA_NODE_SEGMENT_PAGES) {
        return UCS_ERR_EXCEEDS_LIMIT;
    }

    if (!uct_cuda_file_reserve(segment->file.fd, (off_t)shared->end, bytes)) {
        return UCS_ERR_NO_RESOURCE;
    }

    block         = &shared->blocks[i];
    block->offset = shared->end;
    block->bytes  = bytes;
    shared->end   = ALIGN_UP(shared->end + bytes);
    __atomic_store_n(&shared->num_blocks, i + 1, __ATOMIC_RELEASE);
    *block_p = block;
    return UCS_OK;
}

static ucs_status_t segment_take(uct_cuda_node_segment_t *segment, uint64_t key,
                                 size_t bytes, void **memory_p)
{
    block_t *block      = segment_block(segment, key);
    const bool is_known = (block != NULL);
    ucs_status_t status;

    if (!is_known) {
        status = segment_add(segment, bytes, &block);
        if (status != UCS_OK) {
            return status;
        }
    } else if (block->bytes != bytes) {
        return UCS_ERR_INVALID_PARAM;
    }

    *memory_p = segment_map(segment, bytes, (off_t)block->offset);
    if (*memory_p == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    if (!is_known) {
        if (block->key != 0) {
            memset(*memory_p, 0, bytes); /* new memory is zero */
        }
        __atomic_store_n(&block->key, key, __ATOMIC_RELEASE);
    }
    __atomic_fetch_add(&block->users, 1, __ATOMIC_RELEASE);
    if (!is_known) {
        __atomic_fetch_add(&segment->shared->word, 1, __ATOMIC_RELEASE);
    }
    return UCS_OK;
}

/* Lock the segment against other threads and processes, waiting for them.
 * @return false: only against threads. Call segment_leave() in both cases. */
static bool segment_enter(uct_cuda_node_segment_t *segment)
{
    pthread_mutex_lock(&segment->lock);
    return uct_cuda_node_alive_wait(segment->alive, UCT_CUDA_NODE_ALIVE_FILE);
}

static void segment_leave(uct_cuda_node_segment_t *segment)
{
    uct_cuda_node_alive_release(segment->alive, UCT_CUDA_NODE_ALIVE_FILE);
    pthread_mutex_unlock(&segment->lock);
}

ucs_status_t uct_cuda_node_segment_get(uct_cuda_node_segment_t *segment,
                                       uint64_t key, size_t bytes,
                                       void **memory_p)
{
    ucs_status_t status = UCS_ERR_NO_RESOURCE;

    if (segment_enter(segment) && uct_cuda_file_is_valid(&segment->file)) {
        status = segment_take(segment, key, bytes, memory_p);
    }
    segment_leave(segment);
    return status;
}

void uct_cuda_node_segment_put(uct_cuda_node_segment_t *segment, uint64_t key,
                               size_t bytes, void *memory)
{
    block_t *block;

    munmap(memory, bytes);
    if (!uct_cuda_node_segment_is_owner(segment)) {
        return;
    }

    if (segment_enter(segment)) {
        block = segment_block(segment, key);
        if (block != NULL) {
            __atomic_fetch_sub(&block->users, 1, __ATOMIC_RELEASE);
        }
    }
    segment_leave(segment);
}


/* --------------------------------------------------------------- failures */

const uint32_t *
uct_cuda_node_segment_failures(const uct_cuda_node_segment_t *segment)
{
    return &segment->shared->num_failures;
}

void uct_cuda_node_segment_report_failure(uct_cuda_node_segment_t *segment,
                                          uint64_t key, uint64_t number,
                                          uint32_t start, uint32_t rank)
{
    layout_t *shared = segment->shared;
    failure_t *failure;

    if (segment_enter(segment)) {
        failure = &shared->failures[shared->num_failures %
                                    UCT_CUDA_NODE_SEGMENT_FAILURES];
        /* Written before the key is cleared: a reader of a new value also sees
         * the key cleared */
        __atomic_store_n(&failure->key, 0, __ATOMIC_RELEASE);
        __atomic_store_n(&failure->number, number, __ATOMIC_RELEASE);
        __atomic_store_n(&failure->start, start, __ATOMIC_RELEASE);
        __atomic_store_n(&failure->rank, rank, __ATOMIC_RELEASE);
        __atomic_store_n(&failure->key, key, __ATOMIC_RELEASE);
        __atomic_fetch_add(&shared->num_failures, 1, __ATOMIC_RELEASE);
    }
    segment_leave(segment);
}

void uct_cuda_node_segment_withdraw_failure(uct_cuda_node_segment_t *segment,
                                            uint64_t key, uint64_t number,
                                            uint32_t rank)
{
    failure_t *failure   = segment->shared->failures;
    const failure_t *end = failure + UCT_CUDA_NODE_SEGMENT_FAILURES;

    if (segment_enter(segment)) {
        for (; failure < end; ++failure) {
            if ((failure->key == key) && (failure->number == number) &&
                (failure->rank == rank)) {
                __atomic_store_n(&failure->key, 0, __ATOMIC_RELEASE);
            }
        }
    }
    segment_leave(segment);
}

int uct_cuda_node_segment_failed_rank(const uct_cuda_node_segment_t *segment,
                                      uint64_t key, uint64_t number,
                                      uint32_t start)
{
    const failure_t *failure = segment->shared->failures;
    const failure_t *end     = failure + UCT_CUDA_NODE_SEGMENT_FAILURES;
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
