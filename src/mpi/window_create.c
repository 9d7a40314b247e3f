/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows with GPU memory: their creation, attributes and end. */
#include <mpi/module.h>
#include <mpi/window.h>
#include <mpi/job.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>


#define CONTROL_NAME 64

/* Description of a rank's memory, exchanged when a window is made */
typedef struct {
    char    handle[UCT_CUDA_COLL_API_HANDLE];
    char    control[CONTROL_NAME]; /* file of the control block; of rank 0 */
    int64_t size, unit;
    int32_t is_gpu;
} part_t;

/* Arguments of the call that makes a window */
typedef struct {
    const char *name;
    void       *base;
    MPI_Aint   size, unit;
    MPI_Info   info;
    MPI_Comm   comm;
    bool       is_allocate; /* MPI_Win_allocate */
    bool       is_gpu;
    bool       is_large;
    void       *base_p;
    int        rank, ranks; /* of the communicator */
    bool       is_spread;   /* it has ranks on other nodes */
    const uct_cuda_coll_api_t *api;
} making_t;


/* ----------------------------------------------------------- control block */

/* Map the file of a control block; with O_CREAT in `flags`, create it first.
   @return NULL on failure, with no new file left. */
static void *control_open(const char *name, int flags, size_t size)
{
    const int fd   = open(name, O_RDWR | O_CLOEXEC | flags, S_IRUSR | S_IWUSR);
    void *address  = MAP_FAILED;

    if (fd < 0) {
        return NULL;
    }

    if (!(flags & O_CREAT) || (posix_fallocate(fd, 0, (off_t)size) == 0)) {
        address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    close(fd);
    if (address != MAP_FAILED) {
        return address;
    }

    if (flags & O_CREAT) {
        (void)unlink(name);
    }
    return NULL;
}

static bool control_create(ucx_mp_mpi_window_t *window,
                           char name[CONTROL_NAME])
{
    unsigned long long word;

    if (getrandom(&word, sizeof(word), GRND_NONBLOCK) != sizeof(word)) {
        return false;
    }

    snprintf(name, CONTROL_NAME, "/dev/shm/ucx_mp_window.%016llx", word);
    window->control = control_open(
            name, O_CREAT | O_EXCL,
            ucx_mp_mpi_window_control_size(window->size));
    if (window->control == NULL) {
        name[0] = '\0';
    }
    return window->control != NULL;
}


/* ---------------------------------------------------------------- creation */

static void window_unmap(ucx_mp_mpi_window_t *window)
{
    int i;

    for (i = 0; i < window->size; ++i) {
        if (window->targets[i].mapping != NULL) {
            window->api->memory_unmap(window->targets[i].mapping);
            window->targets[i].mapping = NULL;
        }
    }
}

/* Free what a window holds, after the other ranks have unmapped its memory. */
static void window_destroy(ucx_mp_mpi_window_t *window)
{
    window_unmap(window);
    if (window->is_gpu) {
        window->api->memory_release(window->handle);
    }
    if (window->is_allocated) {
        ucx_mp_mpi_gpu_free(window->base);
    }
    if (window->control != NULL) {
        munmap(window->control, ucx_mp_mpi_window_control_size(window->size));
    }
    if (window->trial != ucx_mp_mpi_pmpi.comm_null) {
        ucx_mp_mpi_pmpi.Comm_free(&window->trial);
    }
    free(window->starts);
    free(window->posts);
    pthread_mutex_destroy(&window->lock);
    free(window);
}

/* Create a window: allocate and export this rank's GPU memory, if any, and on
   rank 0 create the control block. Fill handle and file name in `part`. @return
   NULL on failure, with nothing left allocated. */
static ucx_mp_mpi_window_t *window_new(const making_t *making, part_t *part)
{
    ucx_mp_mpi_window_t *window = calloc(1, sizeof(*window) +
                                                    making->ranks *
                                                    sizeof(window->targets[0]));

    if (window == NULL) {
        return NULL;
    }

    pthread_mutex_init(&window->lock, NULL);
    window->trial = ucx_mp_mpi_pmpi.comm_null;
    window->api   = making->api;
    window->rank  = making->rank;
    window->size  = making->ranks;
    window->base  = making->base;
    window->unit  = (int)making->unit;
    if (making->is_gpu && making->is_allocate) {
        window->base         = ucx_mp_mpi_gpu_alloc(making->size);
        window->is_allocated = (window->base != NULL);
    }
    if (making->is_gpu && (window->base != NULL)) {
        window->is_gpu = (window->api->memory_export(
                                  window->base, making->size,
                                  window->handle) == 0);
    }
    /* the owner's copies come before the others' puts */
    if (window->is_gpu) {
        window->api->sync(window->base);
    }
    if ((making->is_gpu && !window->is_gpu) ||
        ((making->rank == 0) && !control_create(window, part->control))) {
        window_destroy(window);
        return NULL;
    }

    memcpy(part->handle, window->handle, sizeof(part->handle));
    return window;
}

/* Map the control block and the other ranks' GPU memory. @return false: not all
   is mapped; window_unmap() and window_destroy() undo the rest. */
static bool window_map(ucx_mp_mpi_window_t *window, const part_t *parts)
{
    ucx_mp_mpi_target_t *target;
    void *ctx     = NULL;
    int is_copied = 0;
    int i;

    if (window->control == NULL) {
        window->control = control_open(
                parts[0].control, 0,
                ucx_mp_mpi_window_control_size(window->size));
    }
    for (i = 0; i < window->size; ++i) {
        window->has_host |= !parts[i].is_gpu && (parts[i].size > 0);
    }

    /* loads the driver of a rank that uses no GPU */
    if ((window->control == NULL) || !ucx_mp_mpi_gpu_is_available()) {
        return false;
    }

    for (i = 0; i < window->size; ++i) {
        target          = &window->targets[i];
        target->size    = parts[i].size;
        target->unit    = parts[i].unit;
        target->is_ours = parts[i].is_gpu || !window->has_host;
        if (!parts[i].is_gpu) {
            continue;
        }
        if (i == window->rank) {
            target->address = window->base;
            continue;
        }

        target->address = (char*)window->api->memory_map(
                parts[i].handle, &target->mapping, &ctx, &is_copied);
        target->ctx       = ctx;
        target->is_copied = is_copied;
        if (target->address == NULL) {
            return false;
        }
    }
    return true;
}

#if MPI_VERSION >= 4
#define REAL(_name, ...) \
    (making->is_large ? ucx_mp_mpi_pmpi._name##_c(__VA_ARGS__) : \
                        ucx_mp_mpi_pmpi._name(__VA_ARGS__))
#else
#define REAL(_name, ...) ucx_mp_mpi_pmpi._name(__VA_ARGS__)
#endif

/* Make the MPI's call that creates the window. @return Its result. */
static int window_make(const making_t *making, MPI_Win *win)
{
    return UCX_MP_MPI_CHECKED(
            making->is_allocate ?
                    REAL(Win_allocate, making->size, making->unit,
                         making->info, making->comm, making->base_p, win) :
                    REAL(Win_create, making->base, making->size, making->unit,
                         making->info, making->comm, win));
}

/* Create the window on all ranks, once one of them has GPU memory; all call
   this, and it blocks. @return NULL on all ranks if one of them cannot take
   part. Aborts without memory. */
static ucx_mp_mpi_window_t *window_agree(const making_t *making)
{
    part_t *parts = calloc(making->ranks + 1, sizeof(*parts));
    part_t *own   = parts + making->ranks;
    ucx_mp_mpi_window_t *window;
    bool is_whole;

    if (parts == NULL) {
        abort(); /* the other ranks rely on it */
    }

    window      = window_new(making, own);
    own->size   = making->size;
    own->unit   = making->unit;
    own->is_gpu = making->is_gpu;
    if (ucx_mp_mpi_pmpi.Allgather(own, sizeof(*own), ucx_mp_mpi_pmpi.byte,
                                  parts, sizeof(*own), ucx_mp_mpi_pmpi.byte,
                                  making->comm) != MPI_SUCCESS) {
        abort();
    }

    is_whole = ucx_mp_mpi_on_all(making->comm,
                                 (window != NULL) && window_map(window, parts));
    if ((making->rank == 0) && (parts[0].control[0] != '\0')) {
        (void)unlink(parts[0].control);
    }
    free(parts);
    if (is_whole) {
        return window;
    }

    if (window != NULL) {
        window_unmap(window);
    }
    (void)ucx_mp_mpi_on_all(making->comm, true); /* all have unmapped */
    if (window != NULL) {
        window_destroy(window);
    }
    return NULL;
}

/* Fill rank, ranks, api and is_spread from the communicator. @return Whether
   its ranks may agree on a window with GPU memory: the MPI has no CUDA support,
   the module is loaded, and all are of this program. The same on all of
   them. */
static bool comm_is_known(making_t *making)
{
    const ucx_mp_mpi_pmpi_t *real = &ucx_mp_mpi_pmpi;
    const MPI_Comm comm           = making->comm;
    int is_inter;

    if (!real->stages || (comm == real->comm_null) || (comm == (MPI_Comm)0) ||
        (real->Comm_test_inter(comm, &is_inter) != MPI_SUCCESS) || is_inter ||
        (real->Comm_rank(comm, &making->rank) != MPI_SUCCESS) ||
        (real->Comm_size(comm, &making->ranks) != MPI_SUCCESS)) {
        return false;
    }

    making->api = (making->ranks == 1) ? ucx_mp_mpi_module() :
                                         ucx_mp_mpi_job.api;
    return (making->api != NULL) &&
           ((making->ranks == 1) ||
            ucx_mp_mpi_job_has(comm, making->ranks, &making->is_spread));
}

/* Create the communicator for checks of operations. Open MPI needs none: its
   MPI_Accumulate() to MPI_PROC_NULL checks them. @return The MPI's result. */
static int window_split(const making_t *making, ucx_mp_mpi_window_t *window)
{
#ifdef OPEN_MPI
    return MPI_SUCCESS;
#else
    const ucx_mp_mpi_pmpi_t *real = &ucx_mp_mpi_pmpi;
    const int rc = real->Comm_split(making->comm, making->rank, 0,
                                    &window->trial);

    return (rc == MPI_SUCCESS) ?
                   real->Comm_set_errhandler(window->trial,
                                             real->errors_return) :
                   rc;
#endif
}

/* Return whether MPI_Win_allocate() shall allocate GPU memory: the info's
   "mpi_memory_alloc_kinds" begins with "cuda:device" or is "cuda". */
static bool info_is_gpu(MPI_Info info)
{
    char value[64] = "";
    int is_found   = 0;

    return (info != ucx_mp_mpi_pmpi.info_null) &&
           (ucx_mp_mpi_pmpi.Info_get(info, "mpi_memory_alloc_kinds",
                                     sizeof(value) - 1, value, &is_found) ==
            MPI_SUCCESS) &&
           is_found && ((strncmp(value, "cuda:device", 11) == 0) ||
                        (strcmp(value, "cuda") == 0));
}

/* Return whether this rank's memory is, or shall be, on a GPU, and the MPI has
   no CUDA support. */
static bool making_is_gpu(const making_t *making)
{
    return !ucx_mp_mpi_passes_through() && (making->size > 0) &&
           (making->is_allocate ? info_is_gpu(making->info) :
                                  ucx_mp_mpi_pointer_is_gpu(making->base));
}

static int window_create(making_t *making, MPI_Win *win)
{
    ucx_mp_mpi_window_t *window;
    int rc;

    making->is_gpu = making_is_gpu(making);
    /* The MPI rejects these arguments on this rank alone: the other ranks do
       not take part in an agreement */
    if ((making->size < 0) || (making->unit <= 0)) {
        return window_make(making, win);
    }

    if (!comm_is_known(making)) {
        return making->is_gpu ? ucx_mp_mpi_refuse(making->name, making->comm) :
                                window_make(making, win);
    }

    if (ucx_mp_mpi_on_all(making->comm, !making->is_gpu)) {
        return window_make(making, win);
    }

    window = making->is_spread ? NULL : window_agree(making);
    if (window == NULL) {
        return ucx_mp_mpi_refuse(making->name, making->comm);
    }

    if (making->is_gpu) { /* the MPI gets no memory of this rank */
        making->base = NULL;
        making->size = 0;
    }
    rc = window_split(making, window);
    if (rc == MPI_SUCCESS) {
        rc = window_make(making, win);
    }
    if (rc == MPI_SUCCESS) {
        rc = ucx_mp_mpi_pmpi.Win_get_group(*win, &window->group);
    }
    if (rc != MPI_SUCCESS) {
        window_destroy(window);
        return rc;
    }

    window->win = *win;
    if (window->is_allocated) {
        memcpy(making->base_p, &window->base, sizeof(window->base));
    }
    ucx_mp_mpi_window_add(window);
    return MPI_SUCCESS;
}

#define CREATE(_name, _is_large, ...) \
    window_create(&(making_t){.name = "MPI_" #_name, .size = size, \
                              .unit = unit, .info = info, .comm = comm, \
                              .is_large = _is_large, __VA_ARGS__}, win)

/* Define the calls that make a window; `_unit_t`: of the displacement unit */
#define DEFINE(_create, _allocate, _unit_t, _is_large) \
    UCX_MP_MPI_DEFINE(_create, (base, size, unit, info, comm, win), \
                      void *base, MPI_Aint size, _unit_t unit, \
                      MPI_Info info, MPI_Comm comm, MPI_Win *win) \
    { \
        return CREATE(_create, _is_large, .base = base); \
    } \
    \
    UCX_MP_MPI_DEFINE(_allocate, (size, unit, info, comm, base_p, win), \
                      MPI_Aint size, _unit_t unit, MPI_Info info, \
                      MPI_Comm comm, void *base_p, MPI_Win *win) \
    { \
        return CREATE(_allocate, _is_large, .is_allocate = true, \
                      .base_p = base_p); \
    }

DEFINE(Win_create, Win_allocate, int, false)
#if MPI_VERSION >= 4
DEFINE(Win_create_c, Win_allocate_c, MPI_Aint, true)
#endif


/* --------------------------------------------------------- attributes, end */

/* Window that this thread frees, while the MPI deletes its attributes: it is no
   longer in the list, since another thread may get the handle anew. */
static __thread ucx_mp_mpi_window_t *freed
        __attribute__((tls_model("initial-exec")));

UCX_MP_MPI_DEFINE(Win_get_attr, (win, keyval, value, flag), MPI_Win win,
                  int keyval, void *value, int *flag)
{
    ucx_mp_mpi_window_t *window;
    ucx_mp_mpi_target_t *own;

    ucx_mp_mpi_pmpi_find_calls();
    window = ((freed != NULL) && (freed->win == win)) ?
                     freed :
                     ucx_mp_mpi_window_find(win);
    if ((window == NULL) || !window->is_gpu ||
        ((keyval != MPI_WIN_BASE) && (keyval != MPI_WIN_SIZE) &&
         (keyval != MPI_WIN_DISP_UNIT))) {
        return ucx_mp_mpi_pmpi.Win_get_attr(win, keyval, value, flag);
    }

    own            = &window->targets[window->rank];
    *(void**)value = (keyval == MPI_WIN_BASE) ? window->base :
                     (keyval == MPI_WIN_SIZE) ? (void*)&own->size :
                                                (void*)&window->unit;
    *flag          = 1;
    return MPI_SUCCESS;
}

UCX_MP_MPI_DEFINE(Win_free, (win), MPI_Win *win)
{
    const uint64_t mark = ucx_mp_mpi_window_mark();
    ucx_mp_mpi_window_t *outer = freed;
    ucx_mp_mpi_window_t *window;
    int rc, real_rc;

    ucx_mp_mpi_pmpi_find_calls();
    window = ucx_mp_mpi_window_find(*win);
    if (window == NULL) {
        rc      = ucx_mp_mpi_window_settle(*win, UCX_MP_MPI_ALL, mark,
                                           MPI_SUCCESS);
        real_rc = ucx_mp_mpi_pmpi.Win_free(win);
        return (real_rc != MPI_SUCCESS) ? real_rc : rc;
    }

    rc = ucx_mp_mpi_window_wait(window);
    window_unmap(window);
    ucx_mp_mpi_window_barrier(window);
    real_rc = ucx_mp_mpi_window_settle(*win, UCX_MP_MPI_ALL, mark,
                                           MPI_SUCCESS);
    rc      = (rc == MPI_SUCCESS) ? real_rc : rc;
    ucx_mp_mpi_window_remove(window);
    ucx_mp_mpi_pmpi.Group_free(&window->group);
    freed   = window;
    real_rc = ucx_mp_mpi_pmpi.Win_free(win);
    freed   = outer;
    window_destroy(window);
    return (real_rc != MPI_SUCCESS) ? real_rc : rc;
}
