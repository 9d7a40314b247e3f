/* SPDX-License-Identifier: BSD-3-Clause */
/* A file without a name, mapped by all ranks. A rank holds a lock on its own
 * byte of it, which goes with the process however that ends. */
#include <uct/cuda/collective/page.h>

#include <uct/abi/abi.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/collective/plan.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>


#define MAGIC 0x326c6c6f63786375ul /* "ucxcoll2" */

#define LINE_ALIGNED __attribute__((aligned(UCT_CUDA_COLL_PAGE_LINE)))


/* A number of a call with something beside it, in one word */
#define WORD_BITS 24

static uint64_t word_of(uint64_t sequence, uint32_t beside)
{
    return (sequence << WORD_BITS) | beside;
}

typedef struct {
    uct_cuda_ipc_handle_t handle;
    uint32_t              generation;
    uint32_t              is_there;
} export_t;

typedef struct {
    uint64_t phases[UCT_CUDA_COLL_PHASE_LAST] LINE_ALIGNED;
} progress_t;

typedef struct {
    uct_cuda_coll_post_t posts[2] LINE_ALIGNED;
    progress_t           progress;
    uint8_t              gpu[16];
    uint64_t             steps[UCT_CUDA_COLL_MAX_QUEUES] LINE_ALIGNED;
    export_t             exports[UCT_CUDA_COLL_PAGE_EXPORTS] LINE_ALIGNED;
} rank_t;

typedef struct {
    uint64_t               magic;
    uint64_t               bytes;
    uint32_t               num_ranks;
    uct_cuda_coll_common_t common;
    rank_t                 ranks[] LINE_ALIGNED;
} shared_t;

struct uct_cuda_coll_page {
    shared_t *shared;
    size_t   bytes;
    unsigned rank;
    int      fd;
    pid_t    owner;     /* What forks off leaves it as it is */
    char     path[256]; /* Empty: has no name */
};

_Static_assert(sizeof(uct_cuda_coll_post_t) == UCT_CUDA_COLL_PAGE_LINE,
               "a post is a cache line");


/* ------------------------------------------------------------ open, close */

/* Names of pages begin with the machine's number: what bears such a name on
   another machine is another page */
static int page_prefix(char prefix[UCT_CUDA_COLL_PAGE_NAME])
{
    return snprintf(prefix, UCT_CUDA_COLL_PAGE_NAME, "ucx-mp-coll-%llx-",
                    (unsigned long long)uct_abi_system_id());
}

static ucs_status_t page_make(uct_cuda_coll_page_t *page, const char *dir,
                              char *name)
{
    uint64_t random;
    int length;

    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) !=
        (ssize_t)sizeof(random)) {
        return UCS_ERR_NO_RESOURCE;
    }

    length = page_prefix(name);
    snprintf(name + length, UCT_CUDA_COLL_PAGE_NAME - length, "%d-%016llx",
             (int)getpid(), (unsigned long long)random);
    if ((size_t)snprintf(page->path, sizeof(page->path), "%s/%s", dir, name) >=
        sizeof(page->path)) {
        page->path[0] = '\0';
        return UCS_ERR_INVALID_PARAM;
    }

    page->fd = open(page->path,
                    O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (page->fd < 0) {
        page->path[0] = '\0';
        return UCS_ERR_NO_RESOURCE;
    }

    /* A full file system is told now, and not by a signal later */
    return (posix_fallocate(page->fd, 0, (off_t)page->bytes) == 0) ?
                   UCS_OK :
                   UCS_ERR_NO_RESOURCE;
}

static ucs_status_t page_find(uct_cuda_coll_page_t *page, const char *dir,
                              const char *name)
{
    char path[sizeof(page->path)], prefix[UCT_CUDA_COLL_PAGE_NAME];
    struct stat st;

    if ((strchr(name, '/') != NULL) ||
        ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) >=
         sizeof(path))) {
        return UCS_ERR_INVALID_PARAM;
    }

    if (strncmp(name, prefix, page_prefix(prefix)) != 0) {
        return UCS_ERR_UNREACHABLE;
    }

    page->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if ((page->fd < 0) || (fstat(page->fd, &st) != 0) ||
        (st.st_uid != geteuid()) || (st.st_size != (off_t)page->bytes)) {
        return UCS_ERR_UNREACHABLE;
    }

    return UCS_OK;
}

static ucs_status_t page_lock(const uct_cuda_coll_page_t *page)
{
    struct flock lock = {.l_type   = F_WRLCK,
                         .l_whence = SEEK_SET,
                         .l_start  = page->rank,
                         .l_len    = 1};

    return (fcntl(page->fd, F_SETLK, &lock) == 0) ? UCS_OK :
                                                    UCS_ERR_NO_RESOURCE;
}

static ucs_status_t page_map(uct_cuda_coll_page_t *page, unsigned size)
{
    void *shared = mmap(NULL, page->bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                        page->fd, 0);

    if (shared == MAP_FAILED) {
        return UCS_ERR_NO_MEMORY;
    }

    page->shared = shared;
    if (page->rank == 0) {
        page->shared->bytes     = page->bytes;
        page->shared->num_ranks = size;
        __atomic_store_n(&page->shared->magic, MAGIC, __ATOMIC_RELEASE);
    } else if ((__atomic_load_n(&page->shared->magic, __ATOMIC_ACQUIRE) !=
                MAGIC) ||
               (page->shared->num_ranks != size)) {
        return UCS_ERR_UNREACHABLE;
    }

    return UCS_OK;
}

ucs_status_t uct_cuda_coll_page_open(const char *dir, unsigned rank,
                                     unsigned size,
                                     char name[UCT_CUDA_COLL_PAGE_NAME],
                                     uct_cuda_coll_page_t **page_p)
{
    uct_cuda_coll_page_t *page;
    ucs_status_t status;

    if ((size > UCT_CUDA_COLL_MAX_RANKS) || (rank >= size)) {
        return UCS_ERR_INVALID_PARAM;
    }

    page = calloc(1, sizeof(*page));
    if (page == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    page->rank  = rank;
    page->bytes = sizeof(shared_t) + size * sizeof(rank_t);
    page->fd    = -1;
    page->owner = getpid();
    status      = (rank == 0) ? page_make(page, dir, name) :
                                page_find(page, dir, name);
    if (status == UCS_OK) {
        status = page_map(page, size);
    }
    if (status == UCS_OK) {
        status = page_lock(page);
    }

    if (status != UCS_OK) {
        uct_cuda_debug("rank %u of %u has no shared page for collectives in "
                       "%s (%d)", rank, size, dir, status);
        uct_cuda_coll_page_close(page);
        return status;
    }

    *page_p = page;
    return UCS_OK;
}

uct_cuda_coll_common_t *uct_cuda_coll_page_common(uct_cuda_coll_page_t *page)
{
    return &page->shared->common;
}

void uct_cuda_coll_page_unlink(uct_cuda_coll_page_t *page)
{
    if ((page->path[0] != '\0') && (page->owner == getpid())) {
        (void)unlink(page->path);
        page->path[0] = '\0';
    }
}

void uct_cuda_coll_page_close(uct_cuda_coll_page_t *page)
{
    uct_cuda_coll_page_unlink(page);
    if (page->shared != NULL) {
        munmap(page->shared, page->bytes);
    }
    if (page->fd >= 0) {
        close(page->fd);
    }
    free(page);
}

bool uct_cuda_coll_page_is_alive(const uct_cuda_coll_page_t *page,
                                 unsigned rank)
{
    struct flock lock = {.l_type   = F_WRLCK,
                         .l_whence = SEEK_SET,
                         .l_start  = rank,
                         .l_len    = 1};

    return (rank == page->rank) || (fcntl(page->fd, F_GETLK, &lock) != 0) ||
           (lock.l_type != F_UNLCK);
}


/* ------------------------------------------------------------------ posts */

static rank_t *page_self(uct_cuda_coll_page_t *page)
{
    return &page->shared->ranks[page->rank];
}

void uct_cuda_coll_page_post(uct_cuda_coll_page_t *page, uint64_t sequence,
                             const uct_cuda_coll_post_t *post)
{
    uct_cuda_coll_post_t *line = &page_self(page)->posts[sequence % 2];

    memcpy(&line->count, &post->count,
           sizeof(*post) - offsetof(uct_cuda_coll_post_t, count));
    __atomic_store_n(&line->said, word_of(sequence, post->kind),
                     __ATOMIC_RELEASE);
}

void uct_cuda_coll_page_pass(uct_cuda_coll_page_t *page, uint64_t sequence)
{
    uct_cuda_coll_post_t *line = &page_self(page)->posts[sequence % 2];

    __atomic_store_n(&line->said, word_of(sequence, UCT_CUDA_COLL_POST_PASS),
                     __ATOMIC_RELEASE);
}

const uct_cuda_coll_post_t *
uct_cuda_coll_page_read(const uct_cuda_coll_page_t *page, unsigned rank,
                        uint64_t sequence)
{
    static const uct_cuda_coll_post_t passed = {
        .kind = UCT_CUDA_COLL_POST_PASS
    };
    const uct_cuda_coll_post_t *posts = page->shared->ranks[rank].posts;
    const uct_cuda_coll_post_t *line  = &posts[sequence % 2];

    const uint64_t said               = __atomic_load_n(&line->said,
                                                        __ATOMIC_ACQUIRE);

    /* Who passes waits for nobody, and may write the line again by now */
    if ((said >> WORD_BITS) == sequence) {
        return (said == word_of(sequence, UCT_CUDA_COLL_POST_PASS)) ? &passed :
                                                                      line;
    }

    return ((__atomic_load_n(&posts[(sequence + 1) % 2].said,
                             __ATOMIC_ACQUIRE) >> WORD_BITS) > sequence) ?
                   &passed :
                   NULL;
}

void uct_cuda_coll_page_reach(uct_cuda_coll_page_t *page,
                              uct_cuda_coll_phase_t phase, uint64_t sequence,
                              ucs_status_t status)
{
    __atomic_store_n(&page_self(page)->progress.phases[phase],
                     word_of(sequence, (uint8_t)-status),
                     __ATOMIC_RELEASE);
}

ucs_status_t uct_cuda_coll_page_reached(const uct_cuda_coll_page_t *page,
                                        unsigned rank,
                                        uct_cuda_coll_phase_t phase,
                                        uint64_t sequence)
{
    const uint64_t word = __atomic_load_n(
            &page->shared->ranks[rank].progress.phases[phase],
            __ATOMIC_ACQUIRE);

    if ((word >> WORD_BITS) != sequence) {
        /* Further already: then it went well, or it would be here */
        return ((word >> WORD_BITS) > sequence) ? UCS_OK : UCS_INPROGRESS;
    }

    return (ucs_status_t) - (int)(uint8_t)word;
}

void uct_cuda_coll_page_set_gpu(uct_cuda_coll_page_t *page,
                                const uint8_t uuid[16])
{
    memcpy(page_self(page)->gpu, uuid, sizeof(page_self(page)->gpu));
}

const uint8_t *uct_cuda_coll_page_gpu(const uct_cuda_coll_page_t *page,
                                      unsigned rank)
{
    return page->shared->ranks[rank].gpu;
}

void uct_cuda_coll_page_step(uct_cuda_coll_page_t *page, unsigned queue,
                             uint64_t sequence, uint32_t steps)
{
    __atomic_store_n(&page_self(page)->steps[queue],
                     word_of(sequence, steps), __ATOMIC_RELEASE);
}

uint32_t uct_cuda_coll_page_steps(const uct_cuda_coll_page_t *page,
                                  unsigned rank, unsigned queue,
                                  uint64_t sequence)
{
    const uint64_t word = __atomic_load_n(
            &page->shared->ranks[rank].steps[queue], __ATOMIC_ACQUIRE);

    return ((word >> WORD_BITS) == sequence) ?
                   (uint32_t)word & ((1u << WORD_BITS) - 1) :
           ((word >> WORD_BITS) > sequence) ? UINT32_MAX :
                                              0;
}

uint32_t uct_cuda_coll_page_show(uct_cuda_coll_page_t *page, unsigned index,
                                 const uct_cuda_ipc_handle_t *handle)
{
    export_t *export = &page_self(page)->exports[index];

    export->is_there = (handle != NULL);
    if (handle != NULL) {
        export->handle = *handle;
    }
    return ++export->generation;
}

const uct_cuda_ipc_handle_t *
uct_cuda_coll_page_shown(const uct_cuda_coll_page_t *page, unsigned rank,
                         unsigned index, uint32_t *generation_p)
{
    const export_t *export =
            &page->shared->ranks[rank]
                     .exports[index % UCT_CUDA_COLL_PAGE_EXPORTS];

    *generation_p = export->generation;
    return export->is_there ? &export->handle : NULL;
}
