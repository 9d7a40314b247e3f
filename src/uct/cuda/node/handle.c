/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Export and import of GPU memory between processes, with a pair of functions
 * for each method of the driver: legacy handles for cuMemAlloc memory; fabric
 * handles and file descriptors for cuMemCreate memory and for pools. Pool
 * memory is named by its pool and a location in it. cuMemCreate memory in
 * several pieces is mapped as one range, each piece by its own handle.
 */
#include <uct/cuda/node/handle.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/device_memory.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/file.h>
#include <uct/cuda/base/imports.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/range.h>
#include <uct/cuda/base/vmm.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>


#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif


/* CU_MEM_HANDLE_TYPE_FABRIC, missing in cuda.h before 12.3 */
#define HANDLE_TYPE_FABRIC ((CUmemAllocationHandleType)8)


/*
 * A pool of another process, and memory in it. The driver opens either once in
 * a process and returns the same result again, in any context. A pool must be
 * closed as often as it was opened, after its memory; memory is closed by the
 * first call that frees it. (Observed on an H100.)
 */
typedef struct pool {
    LIST_ENTRY(pool) link;
    CUmemoryPool     cuda;
    unsigned         opened; /* times */
    unsigned         places; /* number of places that are open */
} pool_t;

typedef struct place {
    LIST_ENTRY(place) link;
    pool_t            *pool;
    CUdeviceptr       mapped;
    unsigned          opened;
} place_t;

static struct {
    pthread_mutex_t   lock;
    LIST_HEAD(, pool) list;
    LIST_HEAD(, place) places;
} pools = {.lock = PTHREAD_MUTEX_INITIALIZER};


/* A range of another process, mapped piece by piece */
typedef struct range {
    LIST_ENTRY(range)      link;
    CUdeviceptr            mapped;
    unsigned               count;
    uct_cuda_node_handle_t pieces[];
} range_t;

static struct {
    pthread_mutex_t    lock; /* takes no other lock */
    LIST_HEAD(, range) list;
} ranges = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Smallest piece that any GPU maps, bytes */
#define MIN_PIECE 65536

/* Handles that this thread cannot open have a fallback */
static __thread bool has_fallback;


bool uct_cuda_node_handle_is_valid(const uct_cuda_node_handle_t *handle)
{
    return (handle->type < UCT_CUDA_NODE_HANDLE_LAST) && (handle->pid > 0) &&
           (handle->length > 0) && (handle->base > 0) &&
           (handle->length <= UINT64_MAX - handle->base) &&
           uct_cuda_node_invalidation_is_valid(&handle->notice);
}

/* Return the descriptor if the driver has created it, else -1. Set
 * close-on-exec: a program executed by this process must not keep the memory in
 * use. */
static int made_descriptor(CUresult result, int fd)
{
    if (result != CUDA_SUCCESS) {
        return -1;
    }

    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
}

/* Return a descriptor of cuMemCreate memory, or -1 */
static int vmm_descriptor(CUmemGenericAllocationHandle allocation)
{
    const CUmemAllocationHandleType type =
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    int fd = -1;
    CUresult result;

    result = uct_cuda_driver_get()->cuMemExportToShareableHandle(
            &fd, allocation, type, 0);
    return made_descriptor(result, fd);
}

/* Export cuMemCreate memory by a handle type it was created for */
static ucs_status_t export_vmm(CUdeviceptr address, uint64_t allowed,
                               uct_cuda_node_handle_t *handle)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    CUmemGenericAllocationHandle allocation;
    ucs_status_t status = UCS_ERR_UNSUPPORTED;

    if (!uct_cuda_pointer_retain(driver, address, &allocation)) {
        return UCS_ERR_UNSUPPORTED;
    }

    if ((allowed & HANDLE_TYPE_FABRIC) &&
        (driver->cuMemExportToShareableHandle(handle->os.bytes, allocation,
                                              HANDLE_TYPE_FABRIC, 0) ==
         CUDA_SUCCESS)) {
        handle->type = UCT_CUDA_NODE_HANDLE_FABRIC;
        status       = UCS_OK;
    } else if (allowed & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        handle->os.fd = vmm_descriptor(allocation);
        if (handle->os.fd >= 0) {
            handle->type = UCT_CUDA_NODE_HANDLE_FD;
            status       = UCS_OK;
        }
    }

    (void)driver->cuMemRelease(allocation);
    return status;
}

static bool can_export_pools(const uct_cuda_driver_t *driver)
{
    return (driver->cuMemPoolExportPointer != NULL) &&
           (driver->cuMemPoolExportToShareableHandle != NULL);
}

/* Return a descriptor of a pool, or -1 */
static int pool_descriptor(CUmemoryPool pool)
{
    const CUmemAllocationHandleType type =
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    int fd = -1;
    CUresult result;

    result = uct_cuda_driver_get()->cuMemPoolExportToShareableHandle(&fd, pool,
                                                                     type, 0);
    return made_descriptor(result, fd);
}

/* Export memory of a pool created for sharing. The driver exports memory only
 * after its pool (H200, driver 580). */
static ucs_status_t export_pool(const uct_cuda_pointer_sharing_t *sharing,
                                uct_cuda_node_handle_t *handle)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    const uint64_t allowed          = sharing->handle_types;
    const CUmemoryPool pool         = sharing->pool;
    CUmemPoolPtrExportData place;

    _Static_assert(sizeof(place) == sizeof(handle->place),
                   "what a pool's memory is exported as");

    if (uct_cuda_memory_is_closed(sharing) || !can_export_pools(driver)) {
        return UCS_ERR_UNSUPPORTED;
    }

    if ((allowed & HANDLE_TYPE_FABRIC) &&
        (driver->cuMemPoolExportToShareableHandle(handle->os.bytes, pool,
                                                  HANDLE_TYPE_FABRIC, 0) ==
         CUDA_SUCCESS)) {
        handle->type = UCT_CUDA_NODE_HANDLE_POOL_FABRIC;
    } else if ((allowed & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) &&
               ((handle->os.fd = pool_descriptor(pool)) >= 0)) {
        handle->type = UCT_CUDA_NODE_HANDLE_POOL_FD;
    } else {
        return UCS_ERR_UNSUPPORTED;
    }

    if (driver->cuMemPoolExportPointer(&place, (CUdeviceptr)handle->base) !=
        CUDA_SUCCESS) {
        uct_cuda_node_handle_release(handle);
        return UCS_ERR_UNSUPPORTED;
    }

    memcpy(handle->place, &place, sizeof(place));
    return UCS_OK;
}

/* Get the IPC handle of cuMemAlloc memory. The driver asks for a current
 * context (H200, 580), and a thread that progresses UCX, such as UCXX's, may
 * have none. */
static bool get_legacy(const void *address, const uct_cuda_memory_t *memory,
                       CUipcMemHandle *legacy_p)
{
    uct_cuda_ctx_scope_t context;
    CUresult result;

    (void)uct_cuda_ctx_enter(memory->context, uct_cuda_end_device(memory->end),
                             &context);
    result = uct_cuda_driver_get()->cuIpcGetMemHandle(legacy_p,
                                                      (CUdeviceptr)address);
    uct_cuda_ctx_leave(&context);
    return result == CUDA_SUCCESS;
}

/* Export cuMemAlloc memory of this process, or of another process whose handle
 * the program has opened */
static bool export_legacy(const void *address, const uct_cuda_memory_t *memory,
                          bool is_own, uct_cuda_node_handle_t *handle)
{
    CUipcMemHandle legacy;

    if (is_own ? !get_legacy(address, memory, &legacy) :
                 !uct_cuda_imports_find(memory->base, memory->buffer_id,
                                        &legacy)) {
        return false;
    }

    handle->type        = UCT_CUDA_NODE_HANDLE_LEGACY;
    handle->is_imported = !is_own;
    memcpy(handle->os.bytes, &legacy, sizeof(legacy));
    return true;
}

int uct_cuda_node_handle_descriptor(const uct_cuda_node_handle_t *handle)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    CUmemGenericAllocationHandle allocation;
    uct_cuda_pointer_sharing_t sharing;
    int fd = -1;

    if ((handle->type == UCT_CUDA_NODE_HANDLE_FD) &&
        uct_cuda_pointer_retain(driver, handle->base, &allocation)) {
        fd = vmm_descriptor(allocation);
        (void)driver->cuMemRelease(allocation);
    } else if (handle->type == UCT_CUDA_NODE_HANDLE_POOL_FD) {
        uct_cuda_pointer_sharing(driver, handle->base, &sharing);
        if ((sharing.pool != NULL) && can_export_pools(driver)) {
            fd = pool_descriptor(sharing.pool);
        }
    }

    return fd;
}

ucs_status_t uct_cuda_node_handle_export(const void *address,
                                         uct_cuda_node_handle_t *handle_p)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    uct_cuda_pointer_sharing_t sharing;
    uct_cuda_node_iface_addr_t self;
    uct_cuda_memory_t memory;
    CUdeviceptr base;
    CUuuid uuid;
    size_t length;

    memset(handle_p, 0, sizeof(*handle_p));
    handle_p->notice.slot = UCT_CUDA_NODE_INVALIDATION_NO_SLOT;

    uct_cuda_memory_query(address, 0, &memory);
    if ((memory.type != UCS_MEMORY_TYPE_CUDA) || (driver == NULL)) {
        return UCS_ERR_INVALID_ADDR;
    }

    uct_cuda_node_iface_addr_self(&self);
    handle_p->pid       = self.pid;
    handle_p->pid_ns    = self.pid_ns;
    handle_p->machine   = uct_cuda_node_machine_self();
    handle_p->buffer_id = memory.buffer_id;

    /* The driver does not report the start of the mapping, so an importer could
     * not find the address in it */
    if (uct_cuda_end_is_host_vmm(memory.end)) {
        handle_p->type   = UCT_CUDA_NODE_HANDLE_NONE;
        handle_p->base   = memory.base;
        handle_p->length = memory.length;
        uct_cuda_debug("host memory at %p from cuMemCreate cannot be shared "
                       "with other processes",
                       address);
        return UCS_OK;
    }

    base   = memory.base;
    length = memory.length;
    if (length == 0) {
        return UCS_ERR_INVALID_ADDR;
    }

    if (driver->cuDeviceGetUuid(&uuid, uct_cuda_end_device(memory.end)) !=
        CUDA_SUCCESS) {
        return UCS_ERR_IO_ERROR;
    }

    handle_p->base   = base;
    handle_p->length = length;
    memcpy(handle_p->gpu, &uuid, sizeof(handle_p->gpu));

    uct_cuda_pointer_sharing(driver, (CUdeviceptr)address, &sharing);
    if (!sharing.is_legacy &&
        ((sharing.is_vmm ? export_vmm((CUdeviceptr)address,
                                      sharing.handle_types, handle_p) :
                           export_pool(&sharing, handle_p)) == UCS_OK)) {
        return UCS_OK;
    }

    if (!export_legacy(address, &memory, sharing.is_legacy, handle_p)) {
        handle_p->type = UCT_CUDA_NODE_HANDLE_NONE;
        if (uct_cuda_file_has_room()) {
            uct_cuda_memory_report_closed(address);
        } else {
            uct_cuda_node_handle_warn_descriptors();
        }
    }

    return UCS_OK;
}

void uct_cuda_node_handle_warn_descriptors(void)
{
    static bool is_logged;

    if (!__atomic_exchange_n(&is_logged, true, __ATOMIC_RELAXED)) {
        uct_cuda_warn("too few file descriptors are left to share GPU memory "
                      "with other processes: UCX sends it through host "
                      "memory, slowly. Raise the limit of open files (ulimit "
                      "-n)");
    }
}

void uct_cuda_node_handle_release(uct_cuda_node_handle_t *handle)
{
    if (uct_cuda_node_handle_is_fd(handle) && (handle->os.fd >= 0)) {
        close(handle->os.fd);
    }
}

/* Duplicate a process's descriptor, unless it is of a file with a name: no
 * handle or socket is one. The number may have been used again, and closing a
 * duplicate ends all record locks (fcntl()) of this process on the file.
 * @param pidfd  -1: the process cannot be opened */
static int get_fd(int32_t pid, int pidfd, int number)
{
    struct stat file;
    char path[64];

    if ((pidfd < 0) || (number < 0)) {
        return -1;
    }

    (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, number);
    if ((stat(path, &file) == 0) && S_ISREG(file.st_mode) &&
        (file.st_nlink > 0)) {
        return -1;
    }

    return (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);
}

/* Duplicate the descriptor published by the exporter. It is the right
 * descriptor if the published number is unchanged afterwards, and the process
 * still has the page.
 * @return -1: none, or changed */
static int fetch_shown(const uct_cuda_node_invalidation_view_t *view,
                       const uct_cuda_node_handle_t *handle, int pidfd)
{
    const int number = uct_cuda_node_invalidation_view_fd(view,
                                                          &handle->notice);
    int fd;

    if (number < 0) {
        return -1;
    }

    fd = get_fd(handle->pid, pidfd, number);
    if ((fd >= 0) &&
        ((uct_cuda_node_invalidation_view_fd(view, &handle->notice) !=
          number) ||
         !uct_cuda_node_invalidation_view_is_current(view, &handle->notice))) {
        close(fd);
        fd = -1;
    }

    return fd;
}

/* Duplicate the socket on which the exporter takes requests, or connect to its
 * named one if the kernel does not allow that; -1: none */
static int fetch_server(const uct_cuda_node_invalidation_view_t *view,
                        const uct_cuda_node_handle_t *handle, int pidfd,
                        uint64_t *inode_p)
{
    bool is_named;
    const int number = uct_cuda_node_invalidation_view_server(view, inode_p,
                                                              &is_named);
    int server       = get_fd(handle->pid, pidfd, number);

    if ((server < 0) && is_named) {
        server = uct_cuda_node_descriptors_connect(handle->pid_ns,
                                                   handle->pid);
        if (server >= 0) {
            *inode_p = uct_cuda_file_inode(server);
        }
    }

    return server;
}

static int fetch_by_request(const uct_cuda_node_invalidation_view_t *view,
                            const uct_cuda_node_handle_t *handle, int pidfd)
{
    int server, fd = -1;
    uint64_t inode;

    server = fetch_server(view, handle, pidfd, &inode);
    if (server >= 0) {
        fd = uct_cuda_node_descriptors_ask(server, inode, &handle->notice,
                                           has_fallback);
        close(server);
    }

    return fd;
}

static int fetch_by_page(const uct_cuda_node_handle_t *handle, int pidfd)
{
    uct_cuda_node_invalidation_view_t *view = uct_cuda_node_handle_view(handle);
    int fd;

    if (view == NULL) {
        return -1;
    }

    fd = fetch_shown(view, handle, pidfd);
    if (fd < 0) {
        fd = fetch_by_request(view, handle, pidfd);
    }
    uct_cuda_node_invalidation_view_put(view);
    return fd;
}

/* Duplicate the descriptor whose number is in the handle, of an exporter that
 * takes no requests. If the exporter has a page, the number is right while the
 * page has the same number. */
static int fetch_numbered(const uct_cuda_node_handle_t *handle, int pidfd)
{
    int fd = get_fd(handle->pid, pidfd, handle->os.fd);
    uct_cuda_node_invalidation_view_t *view;
    bool is_right;

    if ((fd < 0) || (handle->notice.page_id == 0)) {
        return fd;
    }

    view     = uct_cuda_node_handle_view(handle);
    is_right = (view != NULL) &&
               !uct_cuda_node_invalidation_view_is_over(view,
                                                        &handle->notice) &&
               uct_cuda_node_invalidation_view_is_current(view,
                                                          &handle->notice);
    if (view != NULL) {
        uct_cuda_node_invalidation_view_put(view);
    }
    if (!is_right) {
        close(fd);
        fd = -1;
    }

    return fd;
}

/* Open the exporter's process. The kernel looks up a PID in this process's
 * namespace: the PID of another container may name another process here, with
 * other files under its numbers. @return -1: not available */
static int open_pid(const uct_cuda_node_handle_t *handle)
{
    uct_cuda_node_iface_addr_t self;

    uct_cuda_node_iface_addr_self(&self);
    return ((handle->pid_ns == 0) || (handle->pid_ns != self.pid_ns)) ?
                   -1 :
                   (int)syscall(SYS_pidfd_open, handle->pid, 0);
}

static void close_pid(int pidfd)
{
    if (pidfd >= 0) {
        close(pidfd);
    }
}

/* Return whether an answer is a handle of the same process and GPU for at least
 * the addresses of another one */
static bool is_answer(const uct_cuda_node_handle_t *answer,
                      const uct_cuda_node_handle_t *handle)
{
    return uct_cuda_node_handle_is_valid(answer) &&
           uct_cuda_node_handle_is_mapped(answer) &&
           (answer->pid == handle->pid) && (answer->pid_ns == handle->pid_ns) &&
           (answer->machine == handle->machine) &&
           (memcmp(answer->gpu, handle->gpu, sizeof(answer->gpu)) == 0) &&
           uct_cuda_range_holds(answer->base, answer->length, handle->base,
                                handle->length);
}

ucs_status_t
uct_cuda_node_handle_renew(const uct_cuda_node_invalidation_view_t *view,
                           uct_cuda_node_handle_t *handle)
{
    const int pidfd     = open_pid(handle);
    ucs_status_t status = UCS_ERR_NOT_CONNECTED;
    uct_cuda_node_handle_t answer;
    uint64_t inode;
    int server;

    server = fetch_server(view, handle, pidfd, &inode);
    close_pid(pidfd);
    if (server >= 0) {
        status = uct_cuda_node_descriptors_ask_handle(server, inode,
                                                      &handle->notice,
                                                      handle->base,
                                                      handle->length,
                                                      has_fallback, &answer,
                                                      sizeof(answer));
        close(server);
    }

    if (status != UCS_OK) {
        return status;
    }

    if (!is_answer(&answer, handle)) {
        return UCS_ERR_UNREACHABLE;
    }

    *handle = answer;
    return UCS_OK;
}

/* Duplicate the exporter's file descriptor in this process. @param fd_p
 * Descriptor, closed by the caller; -1 after a failure. @return
 * UCS_ERR_EXCEEDS_LIMIT: this process or the system has none left;
 * UCS_ERR_NOT_CONNECTED: not available. */
static ucs_status_t
fetch_fd(const uct_cuda_node_handle_t *handle, int *fd_p)
{
    int pidfd;

    errno = 0;
    pidfd = open_pid(handle);
    *fd_p = (uct_cuda_node_handle_is_fd(handle) && (handle->os.fd >= 0)) ?
                 fetch_numbered(handle, pidfd) :
                 fetch_by_page(handle, pidfd);
    close_pid(pidfd);
    return (*fd_p >= 0)                             ? UCS_OK :
           ((errno == EMFILE) || (errno == ENFILE)) ? UCS_ERR_EXCEEDS_LIMIT :
                                                      UCS_ERR_NOT_CONNECTED;
}

/* Return whether the mapping is at least as long as its handle says; true if
 * the driver does not report its length */
static bool is_all_mapped(const uct_cuda_node_handle_t *handle,
                          CUdeviceptr mapped)
{
    CUdeviceptr base;
    size_t length;

    if ((uct_cuda_pointer_range(uct_cuda_driver_get(), mapped, &base,
                                &length) != CUDA_SUCCESS) ||
        uct_cuda_range_holds(base, length, mapped, handle->length)) {
        return true;
    }

    uct_cuda_debug("a key of pid %d is for %lu bytes at %#lx, of which %lu are "
                   "there",
                   handle->pid, (unsigned long)handle->length,
                   (unsigned long)handle->base,
                   (unsigned long)(base + length - mapped));
    return false;
}

static ucs_status_t open_legacy(const uct_cuda_node_handle_t *handle,
                                CUdeviceptr *mapped_p)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    CUipcMemHandle legacy;
    CUresult result;

    memcpy(&legacy, handle->os.bytes, sizeof(legacy));
    uct_cuda_imports_set_own(true);
    result = driver->cuIpcOpenMemHandle(mapped_p, legacy,
                                        CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    uct_cuda_imports_set_own(false);
    if (result != CUDA_SUCCESS) {
        uct_cuda_debug("cuIpcOpenMemHandle(pid %d, %#lx): %s", handle->pid,
                       (unsigned long)handle->base,
                       uct_cuda_result_name(result));
        return (result == CUDA_ERROR_ALREADY_MAPPED) ? UCS_ERR_ALREADY_EXISTS :
                                                       UCS_ERR_UNREACHABLE;
    }

    if (!is_all_mapped(handle, *mapped_p)) {
        (void)driver->cuIpcCloseMemHandle(*mapped_p);
        return UCS_ERR_UNREACHABLE;
    }

    return UCS_OK;
}

/* Get the arguments of cuMemImportFromShareableHandle() for a handle. The
 * caller closes *fd_p after the import; -1: nothing to close. */
static ucs_status_t os_handle_get(const uct_cuda_node_handle_t *handle,
                                  CUmemAllocationHandleType *type_p,
                                  void **os_handle_p, int *fd_p)
{
    ucs_status_t status;

    if (uct_cuda_node_handle_is_fabric(handle)) {
        *type_p      = HANDLE_TYPE_FABRIC;
        *os_handle_p = (void*)handle->os.bytes;
        *fd_p        = -1;
        return UCS_OK;
    }

    *type_p      = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    status       = fetch_fd(handle, fd_p);
    *os_handle_p = (void*)(intptr_t)*fd_p;
    return status;
}

/* Import cuMemCreate memory and map it to a reserved address */
static ucs_status_t map_vmm(const uct_cuda_node_handle_t *handle,
                            CUdevice device, CUdeviceptr address)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    const CUmemAccessDesc access    = uct_cuda_vmm_access(device);
    CUmemGenericAllocationHandle allocation;
    CUmemAllocationHandleType type;
    ucs_status_t status;
    void *os_handle;
    int fd;

    status = os_handle_get(handle, &type, &os_handle, &fd);
    if (status != UCS_OK) {
        return status;
    }

    status = UCS_ERR_UNREACHABLE;
    if (driver->cuMemImportFromShareableHandle(&allocation, os_handle, type) ==
        CUDA_SUCCESS) {
        if (driver->cuMemMap(address, handle->length, 0, allocation, 0) ==
            CUDA_SUCCESS) {
            status = UCS_OK;
        }

        /* a mapping keeps the memory */
        (void)driver->cuMemRelease(allocation);
    }

    if ((status == UCS_OK) &&
        (driver->cuMemSetAccess(address, handle->length, &access, 1) !=
         CUDA_SUCCESS)) {
        (void)driver->cuMemUnmap(address, handle->length);
        status = UCS_ERR_UNREACHABLE;
    }

    if (fd >= 0) {
        close(fd);
    }
    return status;
}

static ucs_status_t reserve(uint64_t length, CUdeviceptr *mapped_p)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();

    if (driver->cuMemImportFromShareableHandle == NULL) {
        return UCS_ERR_UNSUPPORTED;
    }

    return (driver->cuMemAddressReserve(mapped_p, length, 0, 0, 0) ==
            CUDA_SUCCESS) ?
                   UCS_OK :
                   UCS_ERR_UNREACHABLE;
}

static ucs_status_t open_vmm(const uct_cuda_node_handle_t *handle,
                             CUdevice device, CUdeviceptr *mapped_p)
{
    ucs_status_t status;

    status = reserve(handle->length, mapped_p);
    if (status != UCS_OK) {
        return status;
    }

    status = map_vmm(handle, device, *mapped_p);
    if (status != UCS_OK) {
        (void)uct_cuda_driver_get()->cuMemAddressFree(*mapped_p,
                                                      handle->length);
    }

    return status;
}

/* Read a range's pieces from a file that the exporter makes on request */
static ucs_status_t
receive_pieces(const uct_cuda_node_handle_t *handle, range_t *range)
{
    const size_t size = range->count * sizeof(range->pieces[0]);
    ucs_status_t status;
    int fd;

    status = fetch_fd(handle, &fd);
    if (status == UCS_OK) {
        if (uct_cuda_file_read(fd, range->pieces, size, 0) != size) {
            status = UCS_ERR_NOT_CONNECTED;
        }
        close(fd);
    }

    return status;
}

/* Read a range's pieces from its exporter's memory. The exporter may free the
 * list at any time: the copy is right if the range is still valid
 * afterwards. */
static bool copy_pieces(const uct_cuda_node_handle_t *handle, range_t *range)
{
    const size_t size = range->count * sizeof(range->pieces[0]);
    uct_cuda_node_invalidation_view_t *view;
    uct_cuda_node_iface_addr_t self;
    struct iovec local, remote;
    bool is_right;

    local.iov_base  = range->pieces;
    local.iov_len   = size;
    remote.iov_base = (void*)(uintptr_t)handle->os.pieces.address;
    remote.iov_len  = size;

    uct_cuda_node_iface_addr_self(&self);
    if ((handle->pid_ns == 0) || (handle->pid_ns != self.pid_ns)) {
        return false;
    }

    view = uct_cuda_node_handle_view(handle);
    if (view == NULL) {
        return false;
    }

    is_right = (process_vm_readv(handle->pid, &local, 1, &remote, 1, 0) ==
                (ssize_t)size) &&
               !uct_cuda_node_invalidation_view_is_over(view, &handle->notice);
    uct_cuda_node_invalidation_view_put(view);
    return is_right;
}

/* Return whether the pieces are in order, inside the range, and of the process
 * that exported the range */
static bool has_valid_pieces(const uct_cuda_node_handle_t *handle,
                             const range_t *range)
{
    uint64_t end = handle->base;
    const uct_cuda_node_handle_t *piece;
    unsigned i;

    for (i = 0; i < range->count; ++i) {
        piece = &range->pieces[i];
        if (piece->type == UCT_CUDA_NODE_HANDLE_NONE) {
            continue;
        }

        if (!uct_cuda_node_handle_is_valid(piece) ||
            !uct_cuda_node_handle_is_vmm(piece) || (piece->base < end) ||
            !uct_cuda_range_holds(handle->base, handle->length, piece->base,
                                  piece->length) ||
            (piece->pid != handle->pid) || (piece->pid_ns != handle->pid_ns) ||
            (piece->machine != handle->machine)) {
            return false;
        }

        end = piece->base + piece->length;
    }

    return true;
}

/* Unmap the first @a count pieces, and free the addresses and the record */
static void range_unmap(const uct_cuda_node_handle_t *handle, range_t *range,
                        unsigned count)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    const uct_cuda_node_handle_t *piece;
    unsigned i;

    for (i = 0; i < count; ++i) {
        piece = &range->pieces[i];
        if (piece->type != UCT_CUDA_NODE_HANDLE_NONE) {
            (void)driver->cuMemUnmap(range->mapped +
                                             (piece->base - handle->base),
                                     piece->length);
        }
    }

    (void)driver->cuMemAddressFree(range->mapped, handle->length);
    free(range);
}

static ucs_status_t range_map(const uct_cuda_node_handle_t *handle,
                              CUdevice device, range_t *range)
{
    ucs_status_t status = UCS_OK;
    const uct_cuda_node_handle_t *piece;
    unsigned i;

    for (i = 0; (i < range->count) && (status == UCS_OK); ++i) {
        piece = &range->pieces[i];
        if (piece->type != UCT_CUDA_NODE_HANDLE_NONE) {
            status = map_vmm(piece, device,
                             range->mapped + (piece->base - handle->base));
        }
    }

    if (status != UCS_OK) {
        range_unmap(handle, range, i - 1);
    }

    return status;
}

static ucs_status_t range_open(const uct_cuda_node_handle_t *handle,
                               CUdevice device, CUdeviceptr *mapped_p)
{
    const uint64_t count = handle->os.pieces.count;
    ucs_status_t status;
    range_t *range;

    if ((count == 0) || (count > handle->length / MIN_PIECE)) {
        return UCS_ERR_UNREACHABLE;
    }

    range = malloc(sizeof(*range) + (count * sizeof(range->pieces[0])));
    if (range == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    range->count = (unsigned)count;
    status = copy_pieces(handle, range) ? UCS_OK :
                                          receive_pieces(handle, range);
    if (status == UCS_OK) {
        status = has_valid_pieces(handle, range) ?
                         reserve(handle->length, &range->mapped) :
                         UCS_ERR_UNREACHABLE;
    }
    if (status != UCS_OK) {
        free(range);
        return status;
    }

    status = range_map(handle, device, range);
    if (status != UCS_OK) {
        return status;
    }

    *mapped_p = range->mapped;
    pthread_mutex_lock(&ranges.lock);
    LIST_INSERT_HEAD(&ranges.list, range, link);
    pthread_mutex_unlock(&ranges.lock);
    uct_cuda_debug("mapped %lu pieces of pid %d as one range of %lu bytes",
                   (unsigned long)count, handle->pid,
                   (unsigned long)handle->length);
    return UCS_OK;
}

static void range_close(const uct_cuda_node_handle_t *handle,
                        CUdeviceptr mapped)
{
    range_t *range;

    pthread_mutex_lock(&ranges.lock);
    range = LIST_FIRST(&ranges.list);
    while ((range != NULL) && (range->mapped != mapped)) {
        range = LIST_NEXT(range, link);
    }

    if (range != NULL) {
        LIST_REMOVE(range, link);
    }
    pthread_mutex_unlock(&ranges.lock);

    if (range != NULL) {
        range_unmap(handle, range, range->count);
    }
}

/* Count an import of a pool in its record, created at the first one. NULL: no
 * memory. Call with the lock held. */
static pool_t *pool_get(CUmemoryPool cuda)
{
    pool_t *pool = LIST_FIRST(&pools.list);

    while ((pool != NULL) && (pool->cuda != cuda)) {
        pool = LIST_NEXT(pool, link);
    }

    if (pool == NULL) {
        pool = calloc(1, sizeof(*pool));
        if (pool == NULL) {
            return NULL;
        }

        pool->cuda = cuda;
        LIST_INSERT_HEAD(&pools.list, pool, link);
    }

    ++pool->opened;
    return pool;
}

/* Close a pool as often as it was opened, and free its record. Do nothing while
 * memory of it is open. Call with the lock held. */
static void pool_put(pool_t *pool)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();

    if (pool->places > 0) {
        return;
    }

    while (pool->opened-- > 0) {
        (void)driver->cuMemPoolDestroy(pool->cuda);
    }

    LIST_REMOVE(pool, link);
    free(pool);
}

/* Call with the lock held */
static place_t *place_find(CUdeviceptr mapped)
{
    place_t *place = LIST_FIRST(&pools.places);

    while ((place != NULL) && (place->mapped != mapped)) {
        place = LIST_NEXT(place, link);
    }

    return place;
}

/* Record that memory of a pool was opened once more. Fails only without memory
 * for the record. Call with the lock held. */
static ucs_status_t place_get(pool_t *pool, CUdeviceptr mapped)
{
    place_t *place = place_find(mapped);

    if (place == NULL) {
        place = calloc(1, sizeof(*place));
        if (place == NULL) {
            return UCS_ERR_NO_MEMORY;
        }

        place->pool   = pool;
        place->mapped = mapped;
        LIST_INSERT_HEAD(&pools.places, place, link);
        ++pool->places;
    }

    ++place->opened;
    return UCS_OK;
}

static ucs_status_t open_pool(const uct_cuda_node_handle_t *handle,
                              CUdevice device, CUdeviceptr *mapped_p)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    const CUmemAccessDesc access    = uct_cuda_vmm_access(device);
    CUmemAllocationHandleType type;
    CUmemPoolPtrExportData data;
    ucs_status_t status;
    CUmemoryPool cuda;
    void *os_handle;
    pool_t *pool;
    int fd;

    if ((driver->cuMemPoolImportFromShareableHandle == NULL) ||
        (driver->cuMemPoolImportPointer == NULL) ||
        (driver->cuMemPoolDestroy == NULL) ||
        (driver->cuMemPoolSetAccess == NULL)) {
        return UCS_ERR_UNSUPPORTED;
    }

    status = os_handle_get(handle, &type, &os_handle, &fd);
    if (status != UCS_OK) {
        return status;
    }

    status = UCS_ERR_UNREACHABLE;
    pthread_mutex_lock(&pools.lock);
    if (driver->cuMemPoolImportFromShareableHandle(&cuda, os_handle, type, 0) !=
        CUDA_SUCCESS) {
        goto out;
    }

    pool = pool_get(cuda);
    if (pool == NULL) {
        (void)driver->cuMemPoolDestroy(cuda);
        status = UCS_ERR_NO_MEMORY;
        goto out;
    }

    memcpy(&data, handle->place, sizeof(data));
    if ((driver->cuMemPoolSetAccess(cuda, &access, 1) == CUDA_SUCCESS) &&
        (driver->cuMemPoolImportPointer(mapped_p, cuda, &data) ==
         CUDA_SUCCESS)) {
        status = place_get(pool, *mapped_p);
        if (status != UCS_OK) {
            (void)driver->cuMemFree(*mapped_p);
        }
    }

    if (status != UCS_OK) {
        pool_put(pool);
    }

out:
    pthread_mutex_unlock(&pools.lock);
    if (fd >= 0) {
        close(fd);
    }
    return status;
}

static void close_pool(CUdeviceptr mapped)
{
    place_t *place;

    pthread_mutex_lock(&pools.lock);
    place = place_find(mapped);
    if ((place != NULL) && (--place->opened == 0)) {
        UCT_CUDA_DEVICE_MEMORY_FREE(mapped, true);
        LIST_REMOVE(place, link);
        --place->pool->places;
        pool_put(place->pool);
        free(place);
    }
    pthread_mutex_unlock(&pools.lock);
}

static ucs_status_t open_pool_checked(const uct_cuda_node_handle_t *handle,
                                      CUdevice device, CUdeviceptr *mapped_p)
{
    ucs_status_t status = open_pool(handle, device, mapped_p);

    if ((status == UCS_OK) && !is_all_mapped(handle, *mapped_p)) {
        close_pool(*mapped_p);
        status = UCS_ERR_UNREACHABLE;
    }

    return status;
}

void uct_cuda_node_handle_set_fallback(bool is_active)
{
    has_fallback = is_active;
}

ucs_status_t uct_cuda_node_handle_open(const uct_cuda_node_handle_t *handle,
                                       CUdevice device, CUdeviceptr *mapped_p)
{
    if (!uct_cuda_node_handle_is_fabric(handle) &&
        (handle->machine != uct_cuda_node_machine_self())) {
        return UCS_ERR_UNREACHABLE;
    }

    switch (handle->type) {
    case UCT_CUDA_NODE_HANDLE_LEGACY:
        return open_legacy(handle, mapped_p);
    case UCT_CUDA_NODE_HANDLE_FABRIC:
    case UCT_CUDA_NODE_HANDLE_FD:
        return open_vmm(handle, device, mapped_p);
    case UCT_CUDA_NODE_HANDLE_POOL_FABRIC:
    case UCT_CUDA_NODE_HANDLE_POOL_FD:
        return open_pool_checked(handle, device, mapped_p);
    case UCT_CUDA_NODE_HANDLE_RANGE:
        return range_open(handle, device, mapped_p);
    default:
        return UCS_ERR_UNREACHABLE;
    }
}

void uct_cuda_node_handle_close(const uct_cuda_node_handle_t *handle,
                                CUdeviceptr mapped)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();

    switch (handle->type) {
    case UCT_CUDA_NODE_HANDLE_LEGACY:
        (void)driver->cuIpcCloseMemHandle(mapped);
        break;
    case UCT_CUDA_NODE_HANDLE_FABRIC:
    case UCT_CUDA_NODE_HANDLE_FD:
        (void)driver->cuMemUnmap(mapped, handle->length);
        (void)driver->cuMemAddressFree(mapped, handle->length);
        break;
    case UCT_CUDA_NODE_HANDLE_RANGE:
        range_close(handle, mapped);
        break;
    default:
        close_pool(mapped);
        break;
    }
}
