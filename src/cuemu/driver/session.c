/* SPDX-License-Identifier: BSD-3-Clause */

/* Start and end of processes, and allocation of the GPUs' memory. */
#include "cuemu_session.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CUEMU_DEFAULT_SLOWDOWN 20.0

cuemu_session_t cuemu_session = {.slot = -1};

/* Stays open: closing any descriptor of this file would release the process's
   lock */
static int cuemu_slots_fd = -1;

/* References of this process to each extent */
static uint16_t cuemu_extent_refs[CUEMU_MAX_EXTENTS];


uint64_t cuemu_real_ns(void)
{
    struct timespec ts;

    /* libc's clocks may be interposed and show emulated time */
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static uint64_t cuemu_real_wall_ns(void)
{
    struct timespec ts;

    syscall(SYS_clock_gettime, CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static int cuemu_slot_lock(int slot, short type)
{
    struct flock fl = {
        .l_type   = type,
        .l_whence = SEEK_SET,
        .l_start  = slot,
        .l_len    = 1
    };

    return fcntl(cuemu_slots_fd, F_SETLK, &fl);
}

/* Return non-zero if a process holds the lock on the slot's byte: it lives. */
static int cuemu_slot_is_alive(int slot)
{
    struct flock fl = {
        .l_type   = F_WRLCK,
        .l_whence = SEEK_SET,
        .l_start  = slot,
        .l_len    = 1
    };

    if (slot == cuemu_session.slot) {
        return 1;
    }

    return (fcntl(cuemu_slots_fd, F_GETLK, &fl) == 0) &&
           (fl.l_type != F_UNLCK);
}

/* ------------------------------------------------------------- extents */

static void cuemu_session_path(char *path, size_t size, const char *name)
{
    snprintf(path, size, "%s/%s", cuemu_session.dir, name);
}

static void cuemu_extent_path(char *path, size_t size,
                              const cuemu_extent_t *ext)
{
    snprintf(path, size, "%s/memory%llu", cuemu_session.dir,
             (unsigned long long)ext->id);
}

/* Let all processes allocate the space of an extent again. */
static void cuemu_extent_lost(const cuemu_extent_t *ext)
{
    uint64_t i;

    for (i = 0; i < ext->size / CUEMU_GRANULE; ++i) {
        __atomic_add_fetch(
                &cuemu_session.shared->losses[cuemu_session_loss(
                        ext->gpu, ext->offset / CUEMU_GRANULE + i)],
                1, __ATOMIC_RELEASE);
    }
}

static void cuemu_extent_release(cuemu_shared_t *sh, int index)
{
    cuemu_extent_t *ext = &sh->extents[index];
    int32_t *link       = &sh->extent_head[ext->gpu];
    char path[300];

    while (*link != index) {
        link = &sh->extents[*link].next;
    }
    *link = ext->next;

    /* a program reading freed memory shall not find the old bytes */
    if (cuemu_session.memory[ext->gpu] != NULL) {
        (void)fallocate(cuemu_session.fd[ext->gpu],
                        FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        (off_t)ext->offset, (off_t)ext->size);
        cuemu_extent_lost(ext);
    }

    if (ext->shared) {
        cuemu_extent_path(path, sizeof(path), ext);
        (void)unlink(path);
    }

    sh->gpu_used[ext->gpu] -= ext->size;
    ext->id                 = 0;
    ext->shared             = 0;
    ext->next               = sh->extent_free;
    sh->extent_free         = index;
}

/* Return non-zero if a descriptor of cuMemExportToShareableHandle() or a
   duplicate in any process is open: the memory stays until all are closed (1
   GiB on an H100, driver 580). Each descriptor locks its file; the lock ends
   with the last duplicate. */
static int cuemu_extent_has_descriptor(const cuemu_extent_t *ext)
{
    char path[300];
    int fd, held;

    if (!ext->shared) {
        return 0;
    }

    cuemu_extent_path(path, sizeof(path), ext);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }

    held = (flock(fd, LOCK_EX | LOCK_NB) != 0);
    close(fd);
    return held;
}

/* Release an extent that no process uses any more. If a descriptor of it is
   open, count it in num_unused instead: cuemu_session_collect() releases it
   later. */
static void cuemu_extent_unused(cuemu_shared_t *sh, int index)
{
    if (cuemu_extent_has_descriptor(&sh->extents[index])) {
        ++sh->num_unused;
    } else {
        cuemu_extent_release(sh, index);
    }
}

int cuemu_session_extent_share(int index)
{
    cuemu_extent_t *ext = &cuemu_session.shared->extents[index];
    char path[300];
    int fd;

    cuemu_extent_path(path, sizeof(path), ext);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if ((fd >= 0) && (flock(fd, LOCK_SH | LOCK_NB) != 0)) {
        close(fd);
        return -1;
    }

    ext->shared |= (fd >= 0);
    return fd;
}

void cuemu_session_collect(void)
{
    cuemu_shared_t *sh = cuemu_session.shared;
    const cuemu_extent_t *ext;
    int i;

    for (i = 0; (i < CUEMU_MAX_EXTENTS) && (sh->num_unused > 0); ++i) {
        ext = &sh->extents[i];
        if ((ext->id != 0) && (ext->users == 0) &&
            !cuemu_extent_has_descriptor(ext)) {
            --sh->num_unused;
            cuemu_extent_release(sh, i);
        }
    }
}

int cuemu_session_extent_alloc(int gpu, uint64_t size)
{
    cuemu_shared_t *sh = cuemu_session.shared;
    int32_t *link      = &sh->extent_head[gpu];
    uint64_t offset    = 0;
    cuemu_extent_t *ext;
    int index;

    cuemu_session_collect();
    size = (size + CUEMU_GRANULE - 1) & ~(CUEMU_GRANULE - 1);
    if ((size == 0) || (size > sh->gpu_bytes[gpu]) || (sh->extent_free < 0)) {
        return -1;
    }

    while (*link >= 0) {
        ext = &sh->extents[*link];
        if (ext->offset - offset >= size) {
            break;
        }
        offset = ext->offset + ext->size;
        link   = &ext->next;
    }

    if (offset + size > sh->gpu_bytes[gpu]) {
        return -1;
    }

    index           = sh->extent_free;
    ext             = &sh->extents[index];
    sh->extent_free = ext->next;
    ext->id         = ++sh->next_id;
    ext->offset     = offset;
    ext->size       = size;
    ext->gpu        = gpu;
    ext->owner      = cuemu_session.slot;
    ext->users      = 1ull << cuemu_session.slot;
    ext->live       = 1;
    ext->next       = *link;
    *link           = index;

    sh->gpu_used[gpu]        += size;
    cuemu_extent_refs[index]  = 1;
    return index;
}

void cuemu_session_extent_get(int index)
{
    cuemu_shared_t *sh = cuemu_session.shared;

    sh->num_unused -= (sh->extents[index].users == 0);
    ++cuemu_extent_refs[index];
    sh->extents[index].users |= 1ull << cuemu_session.slot;
}

void cuemu_session_extent_put(int index, int free_it)
{
    cuemu_shared_t *sh  = cuemu_session.shared;
    cuemu_extent_t *ext = &sh->extents[index];

    if (free_it) {
        ext->live = 0;
    }

    if (--cuemu_extent_refs[index] > 0) {
        return;
    }

    ext->users &= ~(1ull << cuemu_session.slot);
    if (ext->users == 0) {
        cuemu_extent_unused(sh, index);
    }
}

/* ---------------------------------------------------------------- lock */

static void cuemu_slot_reclaim(cuemu_shared_t *sh, int slot)
{
    cuemu_extent_t *ext;
    int i;

    cuemu_sim_owner_purge(cuemu_session.sim, CUEMU_OWNER_COPY(slot));
    cuemu_sim_owner_purge(cuemu_session.sim, CUEMU_OWNER_CALL(slot));

    for (i = 0; i < sh->num_moves; ++i) {
        if ((sh->moves[i].op != 0) &&
            cuemu_sim_op_done(cuemu_session.sim, sh->moves[i].op)) {
            sh->moves[i].op = 0;
        }
    }

    for (i = 0; i < CUEMU_MAX_EXTENTS; ++i) {
        ext = &sh->extents[i];
        if ((ext->id == 0) || !(ext->users & (1ull << slot))) {
            continue;
        }

        if (ext->owner == slot) {
            ext->live = 0;
        }

        ext->users &= ~(1ull << slot);
        if (ext->users == 0) {
            cuemu_extent_unused(sh, i);
        }
    }

    sh->slots[slot].pid  = 0;
    sh->slots[slot].call = 0;
    cuemu_clock_detach(&sh->clock, slot);
    ++sh->change;
}

void cuemu_session_reap(int force)
{
    static uint64_t last_ns = 0;
    cuemu_shared_t *sh      = cuemu_session.shared;
    uint64_t now_ns         = cuemu_real_ns();
    int slot;

    if (!force && (now_ns - last_ns < 20000000ull)) {
        return;
    }

    last_ns = now_ns;
    for (slot = 0; slot < CUEMU_MAX_PROCS; ++slot) {
        if ((sh->slots[slot].pid != 0) && !cuemu_slot_is_alive(slot)) {
            cuemu_slot_reclaim(sh, slot);
        }
    }
}

void cuemu_session_lock(void)
{
    cuemu_shared_t *sh = cuemu_session.shared;

    if (pthread_mutex_lock(&sh->lock) == EOWNERDEAD) {
        pthread_mutex_consistent(&sh->lock);
        cuemu_session_reap(1);
    }
}

void cuemu_session_unlock(void)
{
    pthread_mutex_unlock(&cuemu_session.shared->lock);
}

/* ------------------------------------------------------------- founding */

static void cuemu_session_complain(const char *what, const char *path)
{
    fprintf(stderr, "cuemu: %s %s: %s%s\n", what, path, strerror(errno),
            ((errno == EROFS) || (errno == EACCES) || (errno == ENOSPC)) ?
                    "; name a folder elsewhere in CUEMU_SESSION, or give this "
                    "file system more space (Docker: --shm-size)" :
                    "");
}

void cuemu_session_no_space(uint64_t size, const char *what)
{
    static int is_reported;

    if (!__atomic_exchange_n(&is_reported, 1, __ATOMIC_RELAXED)) {
        fprintf(stderr,
                "cuemu: no space for %llu bytes of %s in the file system of "
                "session folder %s: enlarge it (Docker: --shm-size), or name "
                "a folder elsewhere in CUEMU_SESSION\n",
                (unsigned long long)size, what, cuemu_session.dir);
    }
}

/* Set the size of a file. Return 0, or -1 with a sentence on stderr. Fails
   beyond RLIMIT_FSIZE, where the kernel would end the program by SIGXFSZ. */
static int cuemu_session_resize(int fd, uint64_t size, const char *path)
{
    struct rlimit limit;

    if ((getrlimit(RLIMIT_FSIZE, &limit) == 0) && (size > limit.rlim_cur)) {
        errno = EFBIG;
    } else if (ftruncate(fd, (off_t)size) == 0) {
        return 0;
    }

    cuemu_session_complain("cannot size", path);
    return -1;
}

/* Reserve memory for all of a file: SIGBUS would end a process that touches a
   page without memory. Return 0, or -1 with a sentence on stderr. A tmpfs gives
   back all of a reservation when a signal interrupts it, so reserve page by
   page. */
static int cuemu_session_reserve(int fd, uint64_t size)
{
    uint64_t at = 0, bytes;
    int error;

    while (at < size) {
        bytes = (size - at < 4096) ? size - at : 4096;
        error = posix_fallocate(fd, (off_t)at, (off_t)bytes);
        if ((error != 0) && (error != EINTR)) {
            cuemu_session_no_space(size, "the session's state");
            return -1;
        }
        at += (error == 0) ? bytes : 0;
    }

    return 0;
}

static uint64_t cuemu_hash(uint64_t hash, const void *data, size_t size)
{
    const unsigned char *p = data;

    while (size-- > 0) {
        hash = (hash ^ *p++) * 0x100000001b3ull;
    }

    return hash;
}

/* Return non-zero for CUEMU_TIME=wall; the default is "ranks". */
static int cuemu_session_is_wall(void)
{
    const char *env = getenv("CUEMU_TIME");

    if ((env != NULL) && (strcmp(env, "wall") != 0) &&
        (strcmp(env, "ranks") != 0)) {
        fprintf(stderr, "cuemu: CUEMU_TIME=%s is neither ranks nor wall; "
                "using ranks\n", env);
    }
    return (env != NULL) && (strcmp(env, "wall") == 0);
}

static double cuemu_env_slowdown(void)
{
    const char *env = getenv("CUEMU_SLOWDOWN");
    char *end;
    double value;

    if ((env == NULL) || (*env == '\0')) {
        return CUEMU_DEFAULT_SLOWDOWN;
    }

    value = cuemu_strtod(env, &end);
    if ((*end != '\0') || !(value >= 0.01) || !(value <= 1e6)) {
        fprintf(stderr,
                "cuemu: CUEMU_SLOWDOWN=%s is not a factor from 0.01 to 1e6\n",
                env);
        return -1;
    }

    return value;
}

static int cuemu_session_load_node(cuemu_node_t *node)
{
    char errbuf[CUEMU_ERRBUF_SIZE] = "";

    if (getenv("CUEMU_NODE") == NULL) {
        fprintf(stderr, "cuemu: CUEMU_NODE is not set: it names the node to "
                        "emulate (a file, or for instance \"beluga\"); "
                        "ucx_mp_run sets it, tox and env -i remove it\n");
        return -1;
    }

    if (cuemu_node_load_env(node, errbuf) != CUEMU_OK) {
        fprintf(stderr, "cuemu: %s\n", errbuf);
        return -1;
    }

    return 0;
}

/* Offset of the simulation in a session's state, bytes */
static uint64_t cuemu_session_sim_offset(void)
{
    return (sizeof(cuemu_shared_t) + 4095) & ~(uint64_t)4095;
}

static int cuemu_session_found(const cuemu_node_t *node, double slowdown,
                               int64_t gpu_memory, int64_t time_only,
                               int own_dir)
{
    size_t sim_size = cuemu_sim_size(CUEMU_MAX_OPS);
    pthread_mutexattr_t attr;
    char path[300], tmp[300];
    cuemu_shared_t *sh;
    cuemu_sim_t *sim;
    uint64_t offset;
    int fd, i;

    offset = cuemu_session_sim_offset();
    cuemu_session_path(tmp, sizeof(tmp), "state.new");
    cuemu_session_path(path, sizeof(path), "state");
    fd = open(tmp, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        cuemu_session_complain("cannot create", tmp);
        return -1;
    }

    if ((cuemu_session_resize(fd, offset + sim_size, tmp) != 0) ||
        (cuemu_session_reserve(fd, offset + sim_size) != 0)) {
        close(fd);
        unlink(tmp);
        return -1;
    }

    sh = mmap(NULL, offset + sim_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
              0);
    close(fd);
    if (sh == MAP_FAILED) {
        cuemu_session_complain("cannot map", tmp);
        return -1;
    }

    sh->size       = offset + sim_size;
    sh->sim_offset = offset;
    sh->own_dir    = own_dir;
    sh->time_only  = (uint64_t)time_only;
    sh->next_id    = 1;
    for (i = 0; i < CUEMU_MAX_EXTENTS; ++i) {
        sh->extents[i].next = (i + 1 < CUEMU_MAX_EXTENTS) ? (i + 1) : -1;
    }
    for (i = 0; i < CUEMU_MAX_GPUS; ++i) {
        sh->extent_head[i] = -1;
    }

    for (i = 0; i < node->num_gpus; ++i) {
        sh->gpu_bytes[i] = (gpu_memory > 0) ? (uint64_t)gpu_memory :
                                              node->gpus[i].memory_bytes;
        sh->gpu_bytes[i] &= ~(CUEMU_GRANULE - 1);
    }

    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&sh->lock, &attr);
    pthread_mutexattr_destroy(&attr);

    if (cuemu_sim_init((char*)sh + offset, sim_size, node, CUEMU_MAX_OPS,
                       &sim) != CUEMU_OK) {
        fprintf(stderr, "cuemu: cannot set up the simulation of %s\n",
                node->name);
        munmap(sh, offset + sim_size);
        return -1;
    }

    for (i = 0; i < node->num_gpus; ++i) {
        snprintf(tmp, sizeof(tmp), "%s/gpu%d", cuemu_session.dir, i);
        fd = open(tmp, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (fd < 0) {
            cuemu_session_complain("cannot create", tmp);
        }
        if ((fd < 0) ||
            (cuemu_session_resize(fd, sh->gpu_bytes[i], tmp) != 0)) {
            if (fd >= 0) {
                close(fd);
            }
            munmap(sh, offset + sim_size);
            return -1;
        }
        close(fd);
    }

    cuemu_clock_init(&sh->clock, slowdown);
    sh->clock.is_wall = cuemu_session_is_wall();
    sh->mono_epoch_ns = cuemu_real_ns();
    sh->real_epoch_ns = cuemu_real_wall_ns();
    sh->magic         = CUEMU_SESSION_MAGIC;
    munmap(sh, offset + sim_size);

    cuemu_session_path(tmp, sizeof(tmp), "state.new");
    if (rename(tmp, path) != 0) {
        cuemu_session_complain("cannot create", path);
        return -1;
    }

    return 0;
}

static int cuemu_session_map(void)
{
    cuemu_shared_t *sh;
    struct stat st;
    char path[300];
    int fd, i;

    cuemu_session_path(path, sizeof(path), "state");
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        if (errno != ENOENT) {
            cuemu_session_complain("cannot open", path);
        }
        return -1;
    }

    if ((fstat(fd, &st) != 0) || ((size_t)st.st_size < sizeof(*sh))) {
        fprintf(stderr, "cuemu: %s is not a session's state\n", path);
        close(fd);
        return -1;
    }

    sh = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
              0);
    close(fd);
    if (sh == MAP_FAILED) {
        cuemu_session_complain("cannot map", path);
        return -1;
    }

    if ((sh->magic != CUEMU_SESSION_MAGIC) ||
        (sh->size != (uint64_t)st.st_size) ||
        (sh->sim_offset != cuemu_session_sim_offset()) ||
        (sh->size != sh->sim_offset + cuemu_sim_size(CUEMU_MAX_OPS))) {
        fprintf(stderr, "cuemu: %s was made by another version\n", path);
        munmap(sh, (size_t)st.st_size);
        return -1;
    }

    cuemu_session.shared = sh;
    cuemu_session.sim    = (cuemu_sim_t*)((char*)sh + sh->sim_offset);
    cuemu_session.node   = cuemu_sim_node(cuemu_session.sim);
    ++cuemu_session.joins;
    for (i = 0; i < cuemu_session.node->num_gpus; ++i) {
        snprintf(path, sizeof(path), "%s/gpu%d", cuemu_session.dir, i);
        fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0) {
            cuemu_session_complain("cannot open", path);
            return -1;
        }

        cuemu_session.fd[i]     = fd;
        cuemu_session.memory[i] = mmap(NULL, sh->gpu_bytes[i],
                                       PROT_READ | PROT_WRITE,
                                       MAP_SHARED | MAP_NORESERVE, fd, 0);
        if (cuemu_session.memory[i] == MAP_FAILED) {
            cuemu_session.memory[i] = NULL;
            cuemu_session_complain("cannot map", path);
            return -1;
        }

        /* a core file or a forked child does not need a GPU's memory */
        (void)madvise(cuemu_session.memory[i], sh->gpu_bytes[i],
                      MADV_DONTDUMP);
    }

    return 0;
}

static void cuemu_session_remove(void)
{
    static const char *names[] = {"state", "state.new", "slots", "lock"};
    char path[300];
    size_t i;

    for (i = 0; i < CUEMU_MAX_GPUS; ++i) {
        snprintf(path, sizeof(path), "%s/gpu%zu", cuemu_session.dir, i);
        unlink(path);
    }

    for (i = 0; i < CUEMU_MAX_EXTENTS; ++i) {
        if (cuemu_session.shared->extents[i].shared) {
            cuemu_extent_path(path, sizeof(path),
                              &cuemu_session.shared->extents[i]);
            unlink(path);
        }
    }

    for (i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        cuemu_session_path(path, sizeof(path), names[i]);
        unlink(path);
    }

    rmdir(cuemu_session.dir);
}

/* Take the folder's lock, waiting for it, and create the folder if missing
   (*made_p). Return a descriptor that holds the lock until it is closed; -1,
   with a sentence on stderr, on failure. If another process deletes the folder
   meanwhile, try again, at most 100 times. */
static int cuemu_session_lock_dir(int *made_p)
{
    struct stat st_fd, st_path;
    char path[300];
    int fd, rc, tries;

    *made_p = 0;
    cuemu_session_path(path, sizeof(path), "lock");
    for (tries = 0; tries < 100; ++tries) {
        if (mkdir(cuemu_session.dir, 0700) == 0) {
            *made_p = 1;
        } else if (errno != EEXIST) {
            break;
        }

        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0) {
            if (errno == ENOENT) {
                continue;
            }
            break;
        }

        while ((rc = flock(fd, LOCK_EX)) != 0 && (errno == EINTR)) {
        }
        if ((rc == 0) && (fstat(fd, &st_fd) == 0) &&
            (stat(path, &st_path) == 0) && (st_fd.st_ino == st_path.st_ino)) {
            return fd;
        }

        close(fd);
    }

    cuemu_session_complain("cannot use the session folder", cuemu_session.dir);
    return -1;
}

static int cuemu_session_any_alive(void)
{
    int slot;

    for (slot = 0; slot < CUEMU_MAX_PROCS; ++slot) {
        if (cuemu_slot_is_alive(slot)) {
            return 1;
        }
    }

    return 0;
}

int cuemu_session_join(void)
{
    const char *env = getenv("CUEMU_SESSION");
    cuemu_node_t *node;
    char path[300];
    int64_t gpu_memory, time_only;
    double slowdown;
    int lock_fd, made, default_dir, slot, ret = -1;
    uint64_t hash;

    node = calloc(1, sizeof(*node));
    if (node == NULL) {
        return -1;
    }

    slowdown   = cuemu_env_slowdown();
    gpu_memory = cuemu_env_bytes("CUEMU_GPU_MEMORY");
    time_only  = cuemu_env_bytes("CUEMU_TIME_ONLY");
    if ((slowdown < 0) || (gpu_memory < 0) || (time_only < 0) ||
        (cuemu_session_load_node(node) != 0)) {
        goto out_free;
    }

    default_dir = (env == NULL) || (*env == '\0');
    if (default_dir) {
        hash = cuemu_hash(0xcbf29ce484222325ull, node, sizeof(*node));
        hash = cuemu_hash(hash, &slowdown, sizeof(slowdown));
        hash = cuemu_hash(hash, &gpu_memory, sizeof(gpu_memory));
        hash = cuemu_hash(hash, &time_only, sizeof(time_only));
        snprintf(cuemu_session.dir, sizeof(cuemu_session.dir),
                 "/dev/shm/cuemu-%u-%016llx", (unsigned)getuid(),
                 (unsigned long long)hash);
    } else if (strlen(env) >= sizeof(cuemu_session.dir)) {
        fprintf(stderr, "cuemu: CUEMU_SESSION is too long\n");
        goto out_free;
    } else {
        strcpy(cuemu_session.dir, env);
    }

    lock_fd = cuemu_session_lock_dir(&made);
    if (lock_fd < 0) {
        goto out_free;
    }

    cuemu_session_path(path, sizeof(path), "slots");
    cuemu_slots_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (cuemu_slots_fd < 0) {
        cuemu_session_complain("cannot open", path);
        goto out_unlock;
    }

    cuemu_session_path(path, sizeof(path), "state");
    if (default_dir && !cuemu_session_any_alive()) {
        unlink(path); /* left by killed processes */
    }

    if ((access(path, F_OK) != 0) &&
        (cuemu_session_found(node, slowdown, gpu_memory, time_only,
                             default_dir || made) != 0)) {
        goto out_unlock;
    }

    if (cuemu_session_map() != 0) {
        goto out_unlock;
    }

    cuemu_session_lock();
    cuemu_session_reap(1);
    for (slot = 0; slot < CUEMU_MAX_PROCS; ++slot) {
        if ((cuemu_session.shared->slots[slot].pid == 0) &&
            (cuemu_slot_lock(slot, F_WRLCK) == 0)) {
            cuemu_session.slot                  = slot;
            cuemu_session.shared->slots[slot].pid = getpid();
            cuemu_clock_attach(&cuemu_session.shared->clock, slot, getpid());
            ret                                 = 0;
            break;
        }
    }
    cuemu_session_unlock();

    if (ret != 0) {
        fprintf(stderr, "cuemu: more than %d processes in session %s\n",
                CUEMU_MAX_PROCS, cuemu_session.dir);
    }

out_unlock:
    close(lock_fd);
out_free:
    free(node);
    return ret;
}

void cuemu_session_leave(void)
{
    int slot, alive = 0, made;
    int lock_fd;

    if (cuemu_session.slot < 0) {
        return;
    }

    lock_fd = cuemu_session_lock_dir(&made);
    cuemu_session_lock();
    cuemu_slot_reclaim(cuemu_session.shared, cuemu_session.slot);
    cuemu_clock_poll(&cuemu_session.shared->clock, cuemu_session.sim);
    for (slot = 0; slot < CUEMU_MAX_PROCS; ++slot) {
        if ((slot != cuemu_session.slot) && cuemu_slot_is_alive(slot)) {
            alive = 1;
        }
    }
    cuemu_session_unlock();

    cuemu_slot_lock(cuemu_session.slot, F_UNLCK);
    if (!alive && cuemu_session.shared->own_dir) {
        cuemu_session_remove();
    }

    cuemu_session.slot = -1;
    if (lock_fd >= 0) {
        close(lock_fd);
    }
}

uint64_t cuemu_unique_id(void)
{
    return __atomic_add_fetch(&cuemu_session.shared->next_id, 1,
                              __ATOMIC_RELAXED);
}
