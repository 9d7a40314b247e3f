/* SPDX-License-Identifier: BSD-3-Clause */
/* Table of exported allocations. */
#include <uct/cuda/node/exports.h>

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/gpu.h>
#include <uct/cuda/base/hash.h>
#include <uct/cuda/node/process.h>
#include <uct/cuda/node/watch.h>

#include <ucs/sys/math.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>


/* Old allocations checked for each new one. With 4, at least half of the table
 * exists at any rate of allocation. */
#define CHECKS 4

/* Allocations checked by the watch thread in each period, 0.2 us each */
#define CHECKS_OF_WATCH 2048

#define NUM_BUCKETS 4096

#define NO_SLOT UCT_CUDA_NODE_INVALIDATION_NO_SLOT


typedef struct {
    uct_cuda_node_handle_t handle;
    bool                   is_there;
    int                    fd;    /* open, or -1 */
    unsigned               users; /* number of users */
    uint32_t               next;  /* in its bucket, or free */
} export_slot_t;

static struct {
    pthread_mutex_t lock;   /* order: base/thread.h */
    export_slot_t   *slots;
    uint32_t        num_slots;
    uint32_t        free;   /* NO_SLOT: all num_slots are used */
    uint32_t        cursor; /* next one to check */
    uint32_t        high;   /* first slot never used */
    unsigned        count;
    unsigned        num_held;
    int32_t         pid;
    uint32_t        buckets[NUM_BUCKETS]; /* first slot + 1, by base */
} exports = {.lock = PTHREAD_MUTEX_INITIALIZER, .free = NO_SLOT};


/* Start an empty table in a forked child: it cannot use its parent's memory */
static void notice_fork(void)
{
    uct_cuda_node_iface_addr_t self;

    uct_cuda_node_iface_addr_self(&self);
    if (exports.pid != self.pid) {
        free(exports.slots);
        exports.slots     = NULL;
        exports.num_slots = 0;
        exports.free      = NO_SLOT;
        exports.cursor    = 0;
        exports.high      = 0;
        exports.count     = 0;
        exports.num_held  = 0;
        exports.pid       = self.pid;
        memset(exports.buckets, 0, sizeof(exports.buckets));
    }
}

/* Return whether the driver says that the allocation is gone. An error of the
 * driver, as at process exit, says nothing. */
static bool is_gone(const uct_cuda_node_handle_t *handle)
{
    CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_BUFFER_ID;
    unsigned long long id         = 0;
    void *value                   = &id;

    return (handle->buffer_id != 0) &&
           (uct_cuda_driver_get()->cuPointerGetAttributes(1, &attribute, &value,
                                                          handle->base) ==
            CUDA_SUCCESS) &&
           (id != handle->buffer_id);
}

static uint32_t *bucket_of(uint64_t base)
{
    /* allocations begin at multiples of at least 512 bytes */
    return &exports.buckets[uct_cuda_hash64(UCT_CUDA_HASH64, base >> 9) %
                            NUM_BUCKETS];
}

static void bucket_remove(uint32_t slot)
{
    uint32_t *link = bucket_of(exports.slots[slot].handle.base);

    while (*link != slot + 1) {
        link = &exports.slots[*link - 1].next;
    }
    *link = exports.slots[slot].next;
}

/* Keep a descriptor open for peers to duplicate, up to the limit */
static void hold(uint32_t slot, int fd)
{
    if ((fd >= 0) && (exports.num_held == UCT_CUDA_NODE_EXPORTS_MAX_HELD)) {
        close(fd);
        fd = -1;
    }

    exports.slots[slot].fd = fd;
    if (fd >= 0) {
        ++exports.num_held;
        uct_cuda_node_invalidation_set_fd(slot, fd);
    }
}

static void let_go(uint32_t slot)
{
    export_slot_t *export = &exports.slots[slot];

    if (export->fd >= 0) {
        uct_cuda_node_invalidation_set_fd(slot, -1);
        close(export->fd);
        export->fd = -1;
        --exports.num_held;
    }
}

static void slot_end(uint32_t slot)
{
    export_slot_t *export = &exports.slots[slot];

    uct_cuda_node_invalidation_end(slot);
    let_go(slot);
    uct_cuda_node_handle_release(&export->handle);
    bucket_remove(slot);
    export->is_there = false;
    export->next     = exports.free;
    exports.free     = slot;
    --exports.count;
}

static void check(unsigned left)
{
    uint32_t i;

    left = ucs_min(left, exports.count);
    for (i = 0; (i < exports.high) && (left > 0); ++i) {
        exports.cursor = (exports.cursor + 1 < exports.high) ?
                                 exports.cursor + 1 :
                                 0;
        if (exports.slots[exports.cursor].is_there) {
            --left;
            if (is_gone(&exports.slots[exports.cursor].handle)) {
                slot_end(exports.cursor);
            }
        }
    }
}

/* Add free slots */
static void grow(void)
{
    uint32_t count = (exports.num_slots == 0) ? 64 : (2 * exports.num_slots);
    export_slot_t *slots;

    if (count > UCT_CUDA_NODE_INVALIDATION_SLOTS) {
        return;
    }

    slots = realloc(exports.slots, count * sizeof(*slots));
    if (slots == NULL) {
        return;
    }

    exports.slots = slots;
    while (count > exports.num_slots) {
        slots[--count].is_there = false;
        slots[count].next       = exports.free;
        exports.free            = count;
    }
    exports.num_slots = (exports.num_slots == 0) ? 64 : (2 * exports.num_slots);
}

/* Find the slot of an allocation; NO_SLOT: no handle yet */
static uint32_t find(const uct_cuda_memory_t *memory)
{
    const export_slot_t *export;
    uint32_t next;

    for (next = *bucket_of(memory->base);
         (next != 0) && (memory->buffer_id != 0); next = export->next) {
        export = &exports.slots[next - 1];
        if ((export->handle.base == memory->base) &&
            (export->handle.length == memory->length) &&
            (export->handle.buffer_id == memory->buffer_id)) {
            return next - 1;
        }
    }

    return NO_SLOT;
}

static ucs_status_t add(const void *address,
                        const uct_cuda_node_descriptors_t *socket,
                        uct_cuda_node_handle_t *handle_p)
{
    ucs_status_t status = uct_cuda_node_handle_export(address, handle_p);
    uint32_t slot;
    int fd = -1;

    if ((status != UCS_OK) || (handle_p->type == UCT_CUDA_NODE_HANDLE_NONE)) {
        return status;
    }

    if (exports.free == NO_SLOT) {
        grow();
    }

    slot = exports.free;
    if (slot == NO_SLOT) {
        return UCS_OK;
    }

    uct_cuda_node_invalidation_begin(slot, &handle_p->notice);
    if (uct_cuda_node_handle_is_fd(handle_p) && (socket != NULL) &&
        (handle_p->notice.board != 0)) {
        uct_cuda_node_invalidation_set_server(socket->peers,
                                              socket->peers_inode);
        fd              = handle_p->os.fd;
        handle_p->os.fd = -1;
    }

    exports.free                  = exports.slots[slot].next;
    exports.slots[slot].handle    = *handle_p;
    exports.slots[slot].is_there  = true;
    exports.slots[slot].users     = 1;
    exports.slots[slot].next      = *bucket_of(handle_p->base);
    *bucket_of(handle_p->base)    = slot + 1;
    exports.high                  = ucs_max(exports.high, slot + 1);
    ++exports.count;
    hold(slot, fd);
    return UCS_OK;
}

/* Add a user to a handle, maybe long unused */
static void use(uint32_t slot)
{
    export_slot_t *export = &exports.slots[slot];

    if ((export->users++ == 0) && uct_cuda_node_handle_is_fd(&export->handle) &&
        (export->handle.os.fd < 0) &&
        (exports.num_held < UCT_CUDA_NODE_EXPORTS_MAX_HELD)) {
        hold(slot, uct_cuda_node_handle_descriptor(&export->handle));
    }
}

/* Return whether the notice belongs to the slot's current handle */
static bool is_current(const uct_cuda_node_invalidation_t *notice)
{
    return (notice->slot < exports.num_slots) &&
           exports.slots[notice->slot].is_there &&
           !uct_cuda_node_invalidation_is_over(notice);
}

unsigned uct_cuda_node_exports_check(unsigned count)
{
    unsigned left;

    pthread_mutex_lock(&exports.lock);
    notice_fork();
    check(count);
    left = exports.count;
    pthread_mutex_unlock(&exports.lock);
    return left;
}

int uct_cuda_node_exports_descriptor(const uct_cuda_node_invalidation_t *notice)
{
    int fd = -1;

    pthread_mutex_lock(&exports.lock);
    notice_fork();
    if (is_current(notice) &&
        !is_gone(&exports.slots[notice->slot].handle)) {
        fd = uct_cuda_node_handle_descriptor(
                &exports.slots[notice->slot].handle);
    }
    pthread_mutex_unlock(&exports.lock);
    return fd;
}

static void close_inherited(void)
{
    uint32_t i;

    for (i = 0; i < exports.num_slots; ++i) {
        if (exports.slots[i].is_there) {
            if (exports.slots[i].fd >= 0) {
                close(exports.slots[i].fd);
            }
            uct_cuda_node_handle_release(&exports.slots[i].handle);
            exports.slots[i].is_there = false;
        }
    }
    pthread_mutex_init(&exports.lock, NULL);
}

/* Create a descriptor. The attribute of a pool may need a context. */
static int make_descriptor(const uct_cuda_node_invalidation_t *notice)
{
    uct_cuda_gpu_context_t context;
    bool is_pushed;
    int fd;

    is_pushed = (uct_cuda_gpu_context_push_any(uct_cuda_end_none(),
                                               &context) == UCS_OK);
    fd        = uct_cuda_node_exports_descriptor(notice);
    if (is_pushed) {
        uct_cuda_gpu_context_pop(&context);
    }

    return fd;
}

static bool watch_look(void)
{
    return uct_cuda_node_exports_check(CHECKS_OF_WATCH) > 0;
}

ucs_status_t uct_cuda_node_exports_get(const void *address,
                                       const uct_cuda_memory_t *memory,
                                       uct_cuda_node_handle_t *handle_p)
{
    static const uct_cuda_node_watched_t watched = {
        .look            = watch_look,
        .make            = make_descriptor,
        .close_inherited = close_inherited
    };
    const uct_cuda_node_descriptors_t *socket;
    ucs_status_t status = UCS_OK;
    uint32_t slot;

    socket = uct_cuda_node_watch_start(&watched);
    pthread_mutex_lock(&exports.lock);
    notice_fork();
    check(CHECKS);
    slot = find(memory);
    if (slot != NO_SLOT) {
        use(slot);
        *handle_p = exports.slots[slot].handle;
    } else {
        status = add(address, socket, handle_p);
    }
    pthread_mutex_unlock(&exports.lock);

    uct_cuda_node_watch_wake();
    return status;
}

void uct_cuda_node_exports_put(uct_cuda_node_handle_t *handle)
{
    const uint32_t slot = handle->notice.slot;

    if (slot == NO_SLOT) {
        uct_cuda_node_handle_release(handle);
        return;
    }

    pthread_mutex_lock(&exports.lock);
    notice_fork();
    if (is_current(&handle->notice) && (--exports.slots[slot].users == 0)) {
        /* peers without requests use the number of the descriptor itself */
        if (uct_cuda_node_handle_is_fd(handle) && (handle->os.fd >= 0)) {
            slot_end(slot);
        } else {
            let_go(slot);
        }
    }
    pthread_mutex_unlock(&exports.lock);
}

void uct_cuda_node_exports_end(uct_cuda_node_handle_t *handle)
{
    if (handle->notice.slot == NO_SLOT) {
        uct_cuda_node_handle_release(handle);
        return;
    }

    pthread_mutex_lock(&exports.lock);
    notice_fork();
    if (is_current(&handle->notice)) {
        slot_end(handle->notice.slot);
    }
    pthread_mutex_unlock(&exports.lock);
}

static unsigned read_count(const unsigned *count)
{
    unsigned value;

    pthread_mutex_lock(&exports.lock);
    value = *count;
    pthread_mutex_unlock(&exports.lock);
    return value;
}

unsigned uct_cuda_node_exports_count(void)
{
    return read_count(&exports.count);
}

unsigned uct_cuda_node_exports_num_held(void)
{
    return read_count(&exports.num_held);
}
