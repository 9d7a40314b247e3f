/* SPDX-License-Identifier: BSD-3-Clause */
/* This process's invalidation page, and views of peers' pages. */
#include <uct/cuda/node/invalidation.h>

#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/file.h>
#include <uct/cuda/base/first_use.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/memtype.h>
#include <uct/cuda/node/process.h>

#include <ucs/sys/math.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>


/* "ucxmpbrd", and the layout's version */
#define MAGIC UINT64_C(0x7563786d70627203)

#define FILE_NAME "ucx-mp-invalidation"

/* A file that cannot shrink raises no SIGBUS in its readers */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

/* Bit of `remaps`: hooks do not see this process's calls of cuMemMap and
 * cuMemUnmap */
#define UNSEEN (UINT64_C(1) << 63)


typedef struct {
    uint64_t magic;
    uint32_t page_id;
    int32_t  pid;
    uint32_t server; /* descriptor + 1; 0: none */
    uint32_t is_unnamed; /* no named socket: others may have its name */
    uint64_t server_inode;
    /* changes of generations so far */
    uint32_t changes __attribute__((aligned(64)));
    uint64_t remaps;  /* of exported memory so far, and UNSEEN */
    uint32_t generations[UCT_CUDA_NODE_INVALIDATION_SLOTS];
    /* descriptor + 1; 0: none */
    uint32_t fds[UCT_CUDA_NODE_INVALIDATION_SLOTS];
} invalidation_page_t;

struct uct_cuda_node_invalidation_view {
    uct_cuda_node_invalidation_view_t *next;
    const invalidation_page_t         *page;
    uint64_t                          pid_ns;
    int32_t                           pid;
    uint32_t seen;  /* value of changes at the last check */
    unsigned                          users;
    bool                              is_purged; /* close with the last user */
    dev_t                             device; /* of the page's file */
    ino_t                             inode;
};

/* This process's page; @a alone is used if no page can be shared */
static struct {
    invalidation_page_t *page;
    invalidation_page_t alone;
    int                 fd;
    int                 error; /* errno, if no page can be shared */
    pid_t               pid;
} own;

/* Addresses where memory mapped with cuMemMap was exported. Read in the
 * program's calls of the driver, without a lock. */
static struct {
    uint64_t begin;
    uint64_t end;
} counted = {.begin = UINT64_MAX};

static uct_cuda_node_invalidation_view_t *views;


/* ------------------------------------------------------------ local page */

static invalidation_page_t *page_make(int *fd_p)
{
    const int fd = uct_cuda_file_keep(
            memfd_create(FILE_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    void *page;

    if (fd < 0) {
        return NULL;
    }

    if (!uct_cuda_file_resize(fd, sizeof(invalidation_page_t)) ||
        (fcntl(fd, F_ADD_SEALS, SEALS) != 0)) {
        goto err_close;
    }

    page = mmap(NULL, sizeof(invalidation_page_t), PROT_READ | PROT_WRITE,
                MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        goto err_close;
    }

    *fd_p = fd;
    return page;

err_close:
    close(fd);
    return NULL;
}

/* Return a number that other processes cannot guess, but not 0 */
static uint32_t random_number(void)
{
    uint32_t number;

    if (getrandom(&number, sizeof(number), GRND_NONBLOCK) !=
        (ssize_t)sizeof(number)) {
        number = (uint32_t)(uct_cuda_now_ns() * 2654435761u);
    }

    return number | 1;
}

/* Create this process's page unless done; again in a forked child, where the
 * mapped one belongs to the parent. If that fails, use own.alone. */
static void page_open(void)
{
    uct_cuda_node_iface_addr_t self;

    uct_cuda_node_iface_addr_self(&self);
    if (own.pid == self.pid) {
        return;
    }

    own.page = page_make(&own.fd);
    if (own.page == NULL) {
        own.error = errno;
        uct_cuda_debug("no invalidation page: peers keep mappings of freed "
                       "memory longer");
        own.page = &own.alone;
    } else {
        own.page->pid     = self.pid;
        own.page->page_id = random_number();
        own.page->magic   = MAGIC;
    }
    /* last, for the watch thread */
    __atomic_store_n(&own.pid, self.pid, __ATOMIC_RELEASE);
}

/* Return this process's page if it is shared, else NULL. Thread safe. */
static const invalidation_page_t *page_shown(void)
{
    uct_cuda_node_iface_addr_t self;

    uct_cuda_node_iface_addr_self(&self);
    return ((__atomic_load_n(&own.pid, __ATOMIC_ACQUIRE) == self.pid) &&
            (own.page != &own.alone)) ?
                   own.page :
                   NULL;
}

void uct_cuda_node_invalidation_warn(void)
{
    static bool is_logged;

    if (!__atomic_exchange_n(&is_logged, true, __ATOMIC_RELAXED)) {
        uct_cuda_warn("memfd_create failed (%s): UCX may send memory of "
                      "cuMemCreate and of pools through host memory, slowly. "
                      "Allow this call in the container's seccomp profile, or "
                      "raise ulimit -n",
                      strerror(own.error));
    }
}

void uct_cuda_node_invalidation_begin(uint32_t slot,
                                      uct_cuda_node_invalidation_t *notice_p)
{
    page_open();
    notice_p->page_id    = own.page->page_id;
    notice_p->fd         = own.fd;
    notice_p->slot       = slot;
    notice_p->generation = own.page->generations[slot];
}

void uct_cuda_node_invalidation_end(uint32_t slot)
{
    __atomic_add_fetch(&own.page->generations[slot], 1, __ATOMIC_RELEASE);
    __atomic_add_fetch(&own.page->changes, 1, __ATOMIC_RELEASE);
}

/* A forked child counts in its parent's page until it has its own page. This
 * costs the parent's peers one unnecessary request. */
static void count_remap(uintptr_t address, size_t length)
{
    invalidation_page_t *page;

    if ((address < __atomic_load_n(&counted.end, __ATOMIC_ACQUIRE)) &&
        (address + length >
         __atomic_load_n(&counted.begin, __ATOMIC_ACQUIRE))) {
        page = __atomic_load_n(&own.page, __ATOMIC_ACQUIRE);
        __atomic_add_fetch(&page->remaps, 1, __ATOMIC_SEQ_CST);
    }
}

void uct_cuda_node_invalidation_count_remaps(uint64_t base, uint64_t length)
{
    page_open();
    __atomic_store_n(&counted.begin, ucs_min(counted.begin, base),
                     __ATOMIC_RELEASE);
    __atomic_store_n(&counted.end, ucs_max(counted.end, base + length),
                     __ATOMIC_RELEASE);
    uct_cuda_first_use_on_remap(count_remap);
    if (!uct_cuda_memtype_sees_remaps()) {
        __atomic_or_fetch(&own.page->remaps, UNSEEN, __ATOMIC_SEQ_CST);
    }
}

uint64_t uct_cuda_node_invalidation_remaps(void)
{
    const invalidation_page_t *page = __atomic_load_n(&own.page,
                                                      __ATOMIC_ACQUIRE);

    return (page == NULL) ? 0 :
                            __atomic_load_n(&page->remaps, __ATOMIC_SEQ_CST);
}

void uct_cuda_node_invalidation_set_fd(uint32_t slot, int fd)
{
    page_open();
    __atomic_store_n(&own.page->fds[slot], (uint32_t)(fd + 1),
                     __ATOMIC_SEQ_CST);
}

void uct_cuda_node_invalidation_set_server(int fd, uint64_t inode,
                                           bool is_named)
{
    page_open();
    __atomic_store_n(&own.page->is_unnamed, !is_named, __ATOMIC_RELAXED);
    __atomic_store_n(&own.page->server_inode, inode, __ATOMIC_RELAXED);
    __atomic_store_n(&own.page->server, (uint32_t)(fd + 1), __ATOMIC_RELEASE);
}

int uct_cuda_node_invalidation_page(void)
{
    return (page_shown() == NULL) ? -1 : own.fd;
}

bool uct_cuda_node_invalidation_is_own(
    const uct_cuda_node_invalidation_t *notice)
{
    const invalidation_page_t *page = page_shown();

    return (page != NULL) && (notice->page_id == page->page_id);
}

bool uct_cuda_node_invalidation_is_over(
    const uct_cuda_node_invalidation_t *notice)
{
    return (notice->slot != UCT_CUDA_NODE_INVALIDATION_NO_SLOT) &&
           (__atomic_load_n(&own.page->generations[notice->slot],
                            __ATOMIC_ACQUIRE) != notice->generation);
}


/* ---------------------------------------------------------- peers' pages */

/* Map a page. The descriptor is closed. @param file_p  The page's file */
static const invalidation_page_t *
page_map(int fd, int32_t pid, const uct_cuda_node_invalidation_t *notice,
         struct stat *file_p)
{
    invalidation_page_t *page = MAP_FAILED;
    int seals;

    if (fd < 0) {
        return NULL;
    }

    seals = fcntl(fd, F_GET_SEALS); /* -1: a file that has none */
    if ((seals >= 0) && ((seals & SEALS) == SEALS) &&
        (fstat(fd, file_p) == 0) &&
        (file_p->st_size == (off_t)sizeof(invalidation_page_t))) {
        page = mmap(NULL, sizeof(invalidation_page_t), PROT_READ, MAP_SHARED,
                    fd, 0);
    }

    close(fd);
    if (page == MAP_FAILED) {
        return NULL;
    }

    if ((page->magic != MAGIC) || (page->pid != pid) ||
        (page->page_id != notice->page_id)) {
        munmap(page, sizeof(invalidation_page_t));
        return NULL;
    }

    return page;
}

uct_cuda_node_invalidation_view_t *
uct_cuda_node_invalidation_view_get(uint64_t pid_ns, int32_t pid,
                                    const uct_cuda_node_invalidation_t *notice,
                                    uct_cuda_node_fetch_page_t fetch)
{
    uct_cuda_node_iface_addr_t        self;
    uct_cuda_node_invalidation_view_t *view;
    const invalidation_page_t *page;
    struct stat file;

    if ((notice->page_id == 0) ||
        (notice->slot >= UCT_CUDA_NODE_INVALIDATION_SLOTS)) {
        return NULL;
    }

    for (view = views; view != NULL; view = view->next) {
        if ((view->pid == pid) && (view->pid_ns == pid_ns) &&
            (view->page->page_id == notice->page_id)) {
            view->is_purged = false;
            ++view->users;
            return view;
        }
    }

    uct_cuda_node_iface_addr_self(&self);
    if (pid_ns == 0) {
        return NULL;
    }

    page = page_map((pid_ns == self.pid_ns) ?
                            uct_cuda_node_file_open(pid, notice->fd, FILE_NAME,
                                                    O_RDONLY) :
                            fetch(pid_ns, pid, notice->page_id),
                    pid, notice, &file);
    if (page == NULL) {
        return NULL;
    }

    view = malloc(sizeof(*view));
    if (view == NULL) {
        munmap((void*)page, sizeof(*page));
        return NULL;
    }

    view->device = file.st_dev;
    view->inode  = file.st_ino;
    view->next   = views;
    view->page   = page;
    view->pid_ns = pid_ns;
    view->pid    = pid;
    view->seen   = __atomic_load_n(&page->changes, __ATOMIC_ACQUIRE);
    view->users     = 1;
    view->is_purged = false;
    views           = view;
    return view;
}

/* Close the views that were purged and have no user */
static void close_purged(void)
{
    uct_cuda_node_invalidation_view_t **link = &views, *view;

    while ((view = *link) != NULL) {
        if (view->is_purged && (view->users == 0)) {
            *link = view->next;
            munmap((void*)view->page, sizeof(*view->page));
            free(view);
        } else {
            link = &view->next;
        }
    }
}

void uct_cuda_node_invalidation_view_put(
    uct_cuda_node_invalidation_view_t *view)
{
    if ((--view->users == 0) && view->is_purged) {
        close_purged();
    }
}

void uct_cuda_node_invalidation_view_purge(uint64_t pid_ns, int32_t pid)
{
    uct_cuda_node_invalidation_view_t *view;

    for (view = views; view != NULL; view = view->next) {
        if ((view->pid == pid) && (view->pid_ns == pid_ns)) {
            view->is_purged = true;
        }
    }
    close_purged();
}

bool uct_cuda_node_invalidation_view_is_current(
        const uct_cuda_node_invalidation_view_t *view,
        const uct_cuda_node_invalidation_t *notice)
{
    struct stat file;
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", view->pid,
                   notice->fd);
    return (stat(path, &file) == 0) && (file.st_dev == view->device) &&
           (file.st_ino == view->inode);
}

bool uct_cuda_node_invalidation_view_has_changed(
    uct_cuda_node_invalidation_view_t *view)
{
    const uint32_t changes = __atomic_load_n(&view->page->changes,
                                             __ATOMIC_ACQUIRE);
    const bool has_changed = (changes != view->seen);

    view->seen = changes;
    return has_changed;
}

bool uct_cuda_node_invalidation_views_have_changed(void)
{
    bool has_changed = false;
    uct_cuda_node_invalidation_view_t *view;

    for (view = views; view != NULL; view = view->next) {
        has_changed |= uct_cuda_node_invalidation_view_has_changed(view);
    }

    return has_changed;
}

unsigned uct_cuda_node_invalidation_num_views(void)
{
    unsigned count = 0;
    const uct_cuda_node_invalidation_view_t *view;

    for (view = views; view != NULL; view = view->next) {
        ++count;
    }

    return count;
}

bool uct_cuda_node_invalidation_view_is_over(
        const uct_cuda_node_invalidation_view_t *view,
        const uct_cuda_node_invalidation_t *notice)
{
    return __atomic_load_n(&view->page->generations[notice->slot],
                           __ATOMIC_ACQUIRE) != notice->generation;
}

bool uct_cuda_node_invalidation_view_may_differ(
        const uct_cuda_node_invalidation_view_t *view,
        const uct_cuda_node_invalidation_t *notice, uint64_t remaps)
{
    const uint64_t now = __atomic_load_n(&view->page->remaps,
                                         __ATOMIC_ACQUIRE);

    return (now != remaps) || (now & UNSEEN) ||
           uct_cuda_node_invalidation_view_is_over(view, notice);
}

int uct_cuda_node_invalidation_view_fd(
    const uct_cuda_node_invalidation_view_t *view,
    const uct_cuda_node_invalidation_t *notice)
{
    /* Read before the generation: a reused slot has a new generation */
    const uint32_t fd = __atomic_load_n(&view->page->fds[notice->slot],
                                        __ATOMIC_SEQ_CST);

    return uct_cuda_node_invalidation_view_is_over(view, notice) ? -1 :
                                                              (int)fd - 1;
}

int uct_cuda_node_invalidation_view_server(
        const uct_cuda_node_invalidation_view_t *view, uint64_t *inode_p,
        bool *is_named_p)
{
    const int fd = (int)__atomic_load_n(&view->page->server,
                                        __ATOMIC_ACQUIRE) - 1;

    *inode_p    = __atomic_load_n(&view->page->server_inode, __ATOMIC_RELAXED);
    *is_named_p = (fd >= 0) && !__atomic_load_n(&view->page->is_unnamed,
                                                __ATOMIC_RELAXED);
    return fd;
}
