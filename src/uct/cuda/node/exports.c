/* SPDX-License-Identifier: BSD-3-Clause */
/* Table of exported allocations. */
#include <uct/cuda/node/exports.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/file.h>
#include <uct/cuda/base/hash.h>
#include <uct/cuda/base/pointer.h>
#include <uct/cuda/base/range.h>
#include <uct/cuda/node/process.h>
#include <uct/cuda/node/watch.h>

#include <ucs/sys/math.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>


/* Old allocations checked for each new one. With 4, at least half of the
 * table's allocations still exist, however fast the program allocates. */
#define CHECKS 4

/* Allocations checked by the watch thread in each period, 0.2 us each */
#define CHECKS_OF_WATCH 2048

#define NUM_BUCKETS 4096

/* Step between addresses where a piece may begin (all GPUs so far) */
#define GRANULARITY ((uint64_t)2 << 20)

/* Most memory in pieces of one GPU, bytes */
#define MAX_PIECES ((uint64_t)1 << 39)

/* Ids of ranges; those of the driver count up from 0 */
#define RANGE_ID ((uint64_t)1 << 63)

#define NO_SLOT UCT_CUDA_NODE_INVALIDATION_NO_SLOT


typedef struct {
    uct_cuda_node_handle_t handle;
    bool                   is_valid;
    int                    fd;    /* open, or -1 */
    unsigned               users; /* number of users */
    uint32_t               next;  /* in its bucket, or free */
    uct_cuda_node_handle_t *pieces; /* of a range, read by peers; or NULL */
    uint64_t               used;   /* of a range: order of last use */
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
    unsigned        num_ranges;
    uint64_t        num_uses; /* of ranges so far */
    int32_t         pid;
    uint32_t        buckets[NUM_BUCKETS]; /* first slot + 1, by base */
    LIST_HEAD(, uct_cuda_node_region) regions;
    const uct_cuda_node_descriptors_t *socket; /* NULL: no watch thread */
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
        exports.num_ranges = 0;
        exports.pid       = self.pid;
        memset(exports.buckets, 0, sizeof(exports.buckets));
    }
}

/* Return whether other memory, or none, is at the handle's address now. False
 * after an error of the driver, as at process exit: then it is unknown. */
static bool is_changed(const uct_cuda_node_handle_t *handle)
{
    unsigned long long id;

    return uct_cuda_pointer_id(uct_cuda_driver_get(), handle->base, &id) &&
           (id != handle->buffer_id);
}

/* Return whether the driver confirms all pieces of a range, and its holes */
static bool has_pieces(const export_slot_t *export)
{
    uint64_t i;

    for (i = 0; i < export->handle.os.pieces.count; ++i) {
        if (is_changed(&export->pieces[i])) {
            return false;
        }
    }

    return true;
}

/* Return whether the allocation was freed, or a piece of the range was
 * invalidated: each piece is in the table itself. False if the allocation has
 * no buffer id. */
static bool is_freed(const export_slot_t *export)
{
    uint64_t i;

    if (export->pieces == NULL) {
        return (export->handle.buffer_id != 0) && is_changed(&export->handle);
    }

    for (i = 0; i < export->handle.os.pieces.count; ++i) {
        if ((export->pieces[i].type != UCT_CUDA_NODE_HANDLE_NONE) &&
            uct_cuda_node_invalidation_is_over(&export->pieces[i].notice)) {
            return true;
        }
    }

    return false;
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

/* Publish a descriptor for peers to duplicate, and keep it open; close it if
 * too many are open already, in the table or in the process. -1: none. */
static void hold(uint32_t slot, int fd)
{
    if ((fd >= 0) && (exports.num_held == UCT_CUDA_NODE_EXPORTS_MAX_HELD)) {
        close(fd);
        fd = -1;
    }

    fd                     = uct_cuda_file_keep(fd);
    exports.slots[slot].fd = fd;
    if (fd >= 0) {
        ++exports.num_held;
        uct_cuda_node_invalidation_set_fd(slot, fd);
    }
}

static void slot_close_fd(uint32_t slot)
{
    export_slot_t *export = &exports.slots[slot];
    int fd;

    if (export->fd >= 0) {
        uct_cuda_node_invalidation_set_fd(slot, -1);
        fd         = export->fd;
        export->fd = -1; /* for a child, see grow() */
        close(fd);
        --exports.num_held;
    }
}

static void slot_end(uint32_t slot)
{
    export_slot_t *export = &exports.slots[slot];

    __atomic_store_n(&export->is_valid, false, __ATOMIC_SEQ_CST);
    uct_cuda_node_invalidation_end(slot);
    slot_close_fd(slot);
    uct_cuda_node_handle_release(&export->handle);
    bucket_remove(slot);
    if (export->pieces != NULL) {
        --exports.num_ranges;
        free(export->pieces);
        export->pieces = NULL;
    }
    export->next = exports.free;
    exports.free = slot;
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
        if (exports.slots[exports.cursor].is_valid) {
            --left;
            if (is_freed(&exports.slots[exports.cursor])) {
                slot_end(exports.cursor);
            }
        }
    }
}

/* Double the number of slots. Without memory, or at the maximum, no slot is
 * added. Another thread may fork at any time, and the child reads the slots. */
static void grow(void)
{
    const uint32_t num_slots = (exports.num_slots == 0) ?
                                       64 :
                                       (2 * exports.num_slots);
    uint32_t count     = num_slots;
    export_slot_t *old = exports.slots;
    export_slot_t *slots;

    if (count > UCT_CUDA_NODE_INVALIDATION_SLOTS) {
        return;
    }

    slots = malloc(count * sizeof(*slots));
    if (slots == NULL) {
        return;
    }

    if (exports.num_slots > 0) {
        memcpy(slots, old, exports.num_slots * sizeof(*slots));
    }
    __atomic_store_n(&exports.slots, slots, __ATOMIC_SEQ_CST);
    free(old);
    while (count > exports.num_slots) {
        slots[--count].is_valid = false;
        slots[count].fd         = -1;
        slots[count].next       = exports.free;
        exports.free            = count;
    }
    __atomic_store_n(&exports.num_slots, num_slots, __ATOMIC_RELEASE);
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

/* Add a handle to the table, with one user, and set its notice. The table takes
 * over the handle's descriptor and the pieces (NULL: not a range). If peers can
 * ask for descriptors, the handle has no number of one any more. @return false:
 * no slot; nothing is taken over. The lock is held. */
static bool
slot_begin(uct_cuda_node_handle_t *handle, uct_cuda_node_handle_t *pieces)
{
    uint32_t slot;
    int fd = -1;

    if (exports.free == NO_SLOT) {
        grow();
    }

    slot = exports.free;
    if (slot == NO_SLOT) {
        return false;
    }

    uct_cuda_node_invalidation_begin(slot, &handle->notice);
    if (uct_cuda_node_handle_is_fd(handle) && (exports.socket != NULL) &&
        (handle->notice.page_id != 0)) {
        uct_cuda_node_invalidation_set_server(
                exports.socket->peers.fd, exports.socket->peers.inode,
                uct_cuda_file_is_valid(&exports.socket->named));
        fd            = handle->os.fd;
        handle->os.fd = -1;
    }

    if ((handle->notice.page_id == 0) &&
        (uct_cuda_node_handle_is_fd(handle) ||
         uct_cuda_node_handle_is_mapped(handle))) {
        uct_cuda_node_invalidation_warn();
    }

    if (uct_cuda_node_handle_is_mapped(handle)) {
        uct_cuda_node_invalidation_count_remaps(handle->base, handle->length);
    }

    exports.free                  = exports.slots[slot].next;
    exports.slots[slot].handle    = *handle;
    exports.slots[slot].pieces    = pieces;
    exports.slots[slot].users     = 1;
    exports.slots[slot].next      = *bucket_of(handle->base);
    *bucket_of(handle->base)      = slot + 1;
    exports.high                  = ucs_max(exports.high, slot + 1);
    ++exports.count;
    hold(slot, fd);
    /* last, for a child, see grow() */
    __atomic_store_n(&exports.slots[slot].is_valid, true, __ATOMIC_RELEASE);
    return true;
}

/* Return whether peers can ask for descriptors */
static bool is_asked(void)
{
    return (exports.socket != NULL) && (uct_cuda_node_invalidation_page() >= 0);
}

/* Memory is not shared if its descriptor would have to stay open, and too few
 * were left */
static ucs_status_t add(const void *address, uct_cuda_node_handle_t *handle_p)
{
    ucs_status_t status = uct_cuda_node_handle_export(address, handle_p);

    if ((status == UCS_OK) && uct_cuda_node_handle_is_fd(handle_p) &&
        !is_asked() && (uct_cuda_file_keep(handle_p->os.fd) < 0)) {
        handle_p->type = UCT_CUDA_NODE_HANDLE_NONE;
        uct_cuda_node_handle_warn_descriptors();
    }

    if ((status == UCS_OK) && (handle_p->type != UCT_CUDA_NODE_HANDLE_NONE)) {
        (void)slot_begin(handle_p, NULL);
    }

    return status;
}

/* Add a user to a handle. The first user after a time without any opens the
 * descriptor again, up to the limit. */
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
           exports.slots[notice->slot].is_valid &&
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

/* Return a file with the pieces of a range, for peers that cannot read this
 * process's memory; -1: none */
static int pieces_descriptor(const export_slot_t *export)
{
    const int fd = memfd_create("ucx-mp-pieces", MFD_CLOEXEC);

    if ((fd >= 0) &&
        !uct_cuda_file_write(fd, export->pieces,
                             export->handle.os.pieces.count *
                                     sizeof(export->pieces[0]),
                             0)) {
        close(fd);
        return -1;
    }

    return fd;
}

/* The attribute of a pool may need a context */
int uct_cuda_node_exports_descriptor(const uct_cuda_node_invalidation_t *notice)
{
    const export_slot_t *export;
    uct_cuda_ctx_scope_t context;
    int fd = -1;

    (void)uct_cuda_ctx_enter_any(uct_cuda_end_none(), 0, &context);
    pthread_mutex_lock(&exports.lock);
    notice_fork();
    if (is_current(notice) && !is_freed(&exports.slots[notice->slot])) {
        export = &exports.slots[notice->slot];
        fd     = (export->pieces != NULL) ?
                         pieces_descriptor(export) :
                         uct_cuda_node_handle_descriptor(&export->handle);
    }
    pthread_mutex_unlock(&exports.lock);
    uct_cuda_ctx_leave(&context);
    return fd;
}

static void close_inherited(void)
{
    uint32_t i;

    for (i = 0; i < exports.num_slots; ++i) {
        if (exports.slots[i].is_valid) {
            if (exports.slots[i].fd >= 0) {
                close(exports.slots[i].fd);
            }
            uct_cuda_node_handle_release(&exports.slots[i].handle);
            exports.slots[i].is_valid = false;
        }
    }
    pthread_mutex_init(&exports.lock, NULL);
}

static bool watch_poll(void)
{
    return uct_cuda_node_exports_check(CHECKS_OF_WATCH) > 0;
}

static void start_watch(void)
{
    static const uct_cuda_node_watched_t watched = {
        .poll            = watch_poll,
        .make            = uct_cuda_node_exports_descriptor,
        .renew           = uct_cuda_node_exports_renew,
        .close_inherited = close_inherited
    };
    const uct_cuda_node_descriptors_t *socket;

    socket = uct_cuda_node_watch_start(&watched);
    pthread_mutex_lock(&exports.lock);
    exports.socket = socket;
    pthread_mutex_unlock(&exports.lock);
}

/* As uct_cuda_node_exports_get(), in the watch thread, too */
static ucs_status_t get(const void *address, const uct_cuda_memory_t *memory,
                        uct_cuda_node_handle_t *handle_p)
{
    ucs_status_t status = UCS_OK;
    uint32_t slot;

    pthread_mutex_lock(&exports.lock);
    notice_fork();
    check(CHECKS);
    slot = find(memory);
    if (slot != NO_SLOT) {
        use(slot);
        *handle_p = exports.slots[slot].handle;
    } else {
        status = add(address, handle_p);
    }
    pthread_mutex_unlock(&exports.lock);
    return status;
}

ucs_status_t uct_cuda_node_exports_get(const void *address,
                                       const uct_cuda_memory_t *memory,
                                       uct_cuda_node_handle_t *handle_p)
{
    ucs_status_t status;

    start_watch();
    status = get(address, memory, handle_p);
    uct_cuda_node_watch_wake();
    return status;
}

/* Describe the piece at an address, exported by itself, or a hole up to where
 * the next one may begin */
static ucs_status_t get_piece(uint64_t address, uct_cuda_node_handle_t *piece)
{
    uct_cuda_memory_t memory;
    ucs_status_t status;

    uct_cuda_memory_query((void*)address, 1, &memory);
    if ((memory.type == UCS_MEMORY_TYPE_HOST) && !memory.is_pinned) {
        memset(piece, 0, sizeof(*piece));
        piece->base   = address & ~(GRANULARITY - 1);
        piece->length = GRANULARITY;
        return UCS_OK;
    }

    status = get((void*)address, &memory, piece);
    if (status != UCS_OK) {
        return UCS_ERR_UNSUPPORTED;
    }

    /* peers find the descriptor by the notice */
    status = (uct_cuda_node_handle_is_vmm(piece) &&
              (piece->notice.page_id != 0) &&
              (uct_cuda_node_handle_is_fabric(piece) || (piece->os.fd < 0))) ?
                     UCS_OK :
                     UCS_ERR_UNSUPPORTED;
    uct_cuda_node_exports_put(piece);
    return status;
}

/* Describe all pieces of a range, from the first one's base. On success the
 * caller owns *pieces_p. */
static ucs_status_t get_pieces(uint64_t address, size_t length,
                               uct_cuda_node_handle_t *range,
                               uct_cuda_node_handle_t **pieces_p)
{
    const uct_cuda_node_handle_t *first = NULL;
    uct_cuda_node_handle_t *pieces      = NULL, *piece;
    uint64_t next = address, count, room = 0;
    ucs_status_t status = UCS_OK;

    for (count = 0; (status == UCS_OK) && (next < address + length); ++count) {
        if (count == room) {
            room  = (room == 0) ? 8 : (2 * room);
            piece = realloc(pieces, room * sizeof(*pieces));
            if (piece == NULL) {
                free(pieces);
                return UCS_ERR_NO_MEMORY;
            }

            pieces = piece;
        }

        piece  = &pieces[count];
        status = get_piece(next, piece);
        next   = piece->base + piece->length;
    }

    for (piece = pieces; (piece < pieces + count) && (status == UCS_OK);
         ++piece) {
        if (piece->type != UCT_CUDA_NODE_HANDLE_NONE) {
            first = (first == NULL) ? piece : first;
            if (memcmp(piece->gpu, first->gpu, sizeof(piece->gpu)) != 0) {
                status = UCS_ERR_UNSUPPORTED;
            }
        }
    }

    if ((status != UCS_OK) || (first == NULL)) {
        free(pieces);
        return UCS_ERR_UNSUPPORTED;
    }

    *range           = *first;
    range->type      = UCT_CUDA_NODE_HANDLE_RANGE;
    range->base      = pieces[0].base;
    range->length    = next - pieces[0].base;
    memset(&range->os, 0, sizeof(range->os));
    range->os.pieces.address = (uintptr_t)pieces;
    range->os.pieces.count   = count;
    *pieces_p                = pieces;
    return UCS_OK;
}

/* Find the range that begins at @a base and whose last piece contains @a last.
 * End it if its pieces have changed. @return Slot; NO_SLOT: none. The lock is
 * held. */
static uint32_t find_range(uint64_t base, uint64_t last)
{
    const uct_cuda_node_handle_t *handle, *final;
    const export_slot_t *export;
    uint32_t slot, next;

    for (next = *bucket_of(base); next != 0;) {
        slot   = next - 1;
        export = &exports.slots[slot];
        handle = &export->handle;
        next   = export->next;
        if ((export->pieces == NULL) || (handle->base != base)) {
            continue;
        }

        final = &export->pieces[handle->os.pieces.count - 1];
        if (uct_cuda_range_holds(final->base, final->length, last, 1)) {
            if (!is_freed(export) && has_pieces(export)) {
                return slot;
            }

            slot_end(slot);
        }
    }

    return NO_SLOT;
}

/* Note the use of a range and return its handle. No user is added. The lock is
 * held. */
static void use_range(uint32_t slot, uct_cuda_node_handle_t *handle_p)
{
    exports.slots[slot].used = ++exports.num_uses;
    *handle_p                = exports.slots[slot].handle;
}

static bool get_known_range(uint64_t address, size_t length,
                            uct_cuda_node_handle_t *handle_p)
{
    uct_cuda_memory_t memory;
    uint32_t slot;

    uct_cuda_memory_query((void*)address, 1, &memory);
    pthread_mutex_lock(&exports.lock);
    notice_fork();
    slot = find_range(memory.base, address + length - 1);
    if (slot != NO_SLOT) {
        ++exports.slots[slot].users;
        use_range(slot, handle_p);
    }
    pthread_mutex_unlock(&exports.lock);
    return slot != NO_SLOT;
}

/* Invalidate the range that has been without a user for longest: a program may
 * send from any part of its memory, and so create many ranges. The lock is
 * held. */
static void end_oldest_range(void)
{
    uint32_t oldest = NO_SLOT, slot;
    const export_slot_t *export;

    for (slot = 0; slot < exports.high; ++slot) {
        export = &exports.slots[slot];
        if (export->is_valid && (export->pieces != NULL) &&
            (export->users == 0) &&
            ((oldest == NO_SLOT) ||
             (export->used < exports.slots[oldest].used))) {
            oldest = slot;
        }
    }

    if (oldest != NO_SLOT) {
        slot_end(oldest);
    }
}

/* As uct_cuda_node_exports_get_range(), in the watch thread, too */
static ucs_status_t get_range(const void *address, size_t length,
                              uct_cuda_node_handle_t *handle_p)
{
    ucs_status_t status;
    uct_cuda_node_handle_t *pieces;

    if ((length == 0) || (length > UINT64_MAX - GRANULARITY -
                                           (uintptr_t)address)) {
        return UCS_ERR_UNSUPPORTED;
    }

    if (get_known_range((uintptr_t)address, length, handle_p)) {
        return UCS_OK;
    }

    status = get_pieces((uintptr_t)address, length, handle_p, &pieces);
    if (status != UCS_OK) {
        return status;
    }

    pthread_mutex_lock(&exports.lock);
    notice_fork();
    if (exports.num_ranges >= UCT_CUDA_NODE_EXPORTS_MAX_RANGES) {
        end_oldest_range();
    }

    handle_p->buffer_id = RANGE_ID | exports.num_uses;
    if (slot_begin(handle_p, pieces)) {
        ++exports.num_ranges;
        use_range(handle_p->notice.slot, handle_p);
    } else {
        free(pieces);
        status = UCS_ERR_UNSUPPORTED;
    }
    pthread_mutex_unlock(&exports.lock);
    return status;
}

ucs_status_t uct_cuda_node_exports_get_range(const void *address, size_t length,
                                             uct_cuda_node_handle_t *handle_p)
{
    ucs_status_t status;

    start_watch();
    status = get_range(address, length, handle_p);
    uct_cuda_node_watch_wake();
    return status;
}

void uct_cuda_node_exports_add_region(uct_cuda_node_region_t *region)
{
    pthread_mutex_lock(&exports.lock);
    LIST_INSERT_HEAD(&exports.regions, region, link);
    pthread_mutex_unlock(&exports.lock);
}

void uct_cuda_node_exports_remove_region(uct_cuda_node_region_t *region)
{
    pthread_mutex_lock(&exports.lock);
    LIST_REMOVE(region, link);
    pthread_mutex_unlock(&exports.lock);
}

/* Return whether a key may have this range: registered regions cover it, except
 * for parts of at most a piece's size at their ends. Searching the pieces of an
 * invalid range could keep the watch thread busy for hours. */
static bool is_registered(uint64_t base, uint64_t length)
{
    const uct_cuda_node_region_t *region;
    uint64_t longest = 0;

    pthread_mutex_lock(&exports.lock);
    LIST_FOREACH(region, &exports.regions, link)
    {
        if ((region->base < base + length) &&
            (region->base + region->length > base)) {
            longest += (longest == 0) ? MAX_PIECES : 0;
            longest += region->length;
        }
    }
    pthread_mutex_unlock(&exports.lock);
    return length <= longest;
}

size_t uct_cuda_node_exports_renew(uint64_t base, uint64_t length, void *answer)
{
    UCS_STATIC_ASSERT(sizeof(uct_cuda_node_handle_t) <=
                      UCT_CUDA_NODE_MAX_ANSWER);
    const uint64_t remaps          = uct_cuda_node_invalidation_remaps();
    uct_cuda_node_handle_t *handle = answer;
    uct_cuda_ctx_scope_t context;
    uct_cuda_memory_t memory;
    ucs_status_t status;

    if ((length > UINT64_MAX - base) || !is_registered(base, length)) {
        return 0;
    }

    (void)uct_cuda_ctx_enter_any(uct_cuda_end_none(), 0, &context);
    uct_cuda_memory_query((void*)base, 1, &memory);
    status = ((memory.type == UCS_MEMORY_TYPE_CUDA) &&
              uct_cuda_range_holds(memory.base, memory.length, base, length)) ?
                     get((void*)base, &memory, handle) :
                     get_range((void*)base, length, handle);
    uct_cuda_ctx_leave(&context);
    if (status != UCS_OK) {
        return 0;
    }

    uct_cuda_node_exports_put(handle);
    handle->remaps = remaps;
    return uct_cuda_node_handle_is_mapped(handle) ? sizeof(*handle) : 0;
}

bool uct_cuda_node_exports_has_range(const uct_cuda_node_handle_t *handle)
{
    const export_slot_t *export;
    bool is_valid;

    pthread_mutex_lock(&exports.lock);
    notice_fork();
    is_valid = is_current(&handle->notice);
    if (is_valid) {
        export   = &exports.slots[handle->notice.slot];
        is_valid = (export->pieces != NULL) && has_pieces(export);
    }
    pthread_mutex_unlock(&exports.lock);
    return is_valid;
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
            slot_close_fd(slot);
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

unsigned uct_cuda_node_exports_num_held(void)
{
    unsigned count;

    pthread_mutex_lock(&exports.lock);
    count = exports.num_held;
    pthread_mutex_unlock(&exports.lock);
    return count;
}
