/* SPDX-License-Identifier: BSD-3-Clause */
/* A table of allocations, and who goes round in it. */
#include <uct/cuda/node/exports.h>

#include <uct/cuda/base/driver.h>
#include <uct/cuda/node/process.h>

#include <pthread.h>
#include <stdlib.h>


/* Old ones asked about for each new one. With four of them half of what is in
 * the table is there at least, however fast allocations come and go. */
#define CHECKS 4

#define NO_SLOT UCT_CUDA_NODE_NOTICES_NO_SLOT


typedef struct {
    uct_cuda_node_handle_t handle;
    bool                   is_there;
    uint32_t               next_free;
} export_t;

static struct {
    pthread_mutex_t lock;   /* order: base/thread.h */
    export_t        *slots;
    uint32_t        num_slots;
    uint32_t        free;   /* NO_SLOT: none of num_slots */
    uint32_t        cursor; /* asked about next */
    unsigned        count;
    int32_t         pid;
} exports = {.lock = PTHREAD_MUTEX_INITIALIZER, .free = NO_SLOT};


/* A child's are none of its parent's, whose memory it cannot use */
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
        exports.count     = 0;
        exports.pid       = self.pid;
    }
}

/* A driver that does not answer, as at the end of a process, has not said that
 * it is gone */
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

static void slot_end(uint32_t slot)
{
    export_t *export = &exports.slots[slot];

    uct_cuda_node_notices_end(slot);
    uct_cuda_node_handle_release(&export->handle);
    export->is_there  = false;
    export->next_free = exports.free;
    exports.free      = slot;
    --exports.count;
}

static void check(void)
{
    unsigned left = CHECKS;
    uint32_t i;

    for (i = 0; (i < exports.num_slots) && (left > 0); ++i) {
        exports.cursor = (exports.cursor + 1) % exports.num_slots;
        if (exports.slots[exports.cursor].is_there) {
            --left;
            if (is_gone(&exports.slots[exports.cursor].handle)) {
                slot_end(exports.cursor);
            }
        }
    }
}

/* More slots, all of them free */
static void grow(void)
{
    uint32_t count = (exports.num_slots == 0) ? 64 : (2 * exports.num_slots);
    export_t *slots;

    if (count > UCT_CUDA_NODE_NOTICES_SLOTS) {
        return;
    }

    slots = realloc(exports.slots, count * sizeof(*slots));
    if (slots == NULL) {
        return;
    }

    exports.slots = slots;
    while (count > exports.num_slots) {
        slots[--count].is_there = false;
        slots[count].next_free  = exports.free;
        exports.free            = count;
    }
    exports.num_slots = (exports.num_slots == 0) ? 64 : (2 * exports.num_slots);
}

static const export_t *find(const uct_cuda_memory_t *memory)
{
    const export_t *export;
    uint32_t i;

    for (i = 0; (i < exports.num_slots) && (memory->buffer_id != 0); ++i) {
        export = &exports.slots[i];
        if (export->is_there && (export->handle.base == memory->base) &&
            (export->handle.length == memory->length) &&
            (export->handle.buffer_id == memory->buffer_id)) {
            return export;
        }
    }

    return NULL;
}

static ucs_status_t add(const void *address, uct_cuda_node_handle_t *handle_p)
{
    ucs_status_t status = uct_cuda_node_handle_export(address, handle_p);
    uint32_t slot;

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

    uct_cuda_node_notices_begin(slot, &handle_p->notice);
    exports.free                 = exports.slots[slot].next_free;
    exports.slots[slot].handle   = *handle_p;
    exports.slots[slot].is_there = true;
    ++exports.count;
    return UCS_OK;
}

ucs_status_t uct_cuda_node_exports_get(const void *address,
                                       const uct_cuda_memory_t *memory,
                                       uct_cuda_node_handle_t *handle_p)
{
    ucs_status_t status = UCS_OK;
    const export_t *known;

    pthread_mutex_lock(&exports.lock);
    notice_fork();
    check();
    known = find(memory);
    if (known != NULL) {
        *handle_p = known->handle;
    } else {
        status = add(address, handle_p);
    }
    pthread_mutex_unlock(&exports.lock);
    return status;
}

void uct_cuda_node_exports_put(uct_cuda_node_handle_t *handle)
{
    if (handle->notice.slot == NO_SLOT) {
        uct_cuda_node_handle_release(handle);
    }
}

void uct_cuda_node_exports_end(uct_cuda_node_handle_t *handle)
{
    if (handle->notice.slot == NO_SLOT) {
        uct_cuda_node_handle_release(handle);
        return;
    }

    pthread_mutex_lock(&exports.lock);
    notice_fork();
    if ((handle->notice.slot < exports.num_slots) &&
        !uct_cuda_node_notices_is_over(&handle->notice)) {
        slot_end(handle->notice.slot);
    }
    pthread_mutex_unlock(&exports.lock);
}

void uct_cuda_node_exports_check(void)
{
    pthread_mutex_lock(&exports.lock);
    notice_fork();
    check();
    pthread_mutex_unlock(&exports.lock);
}

unsigned uct_cuda_node_exports_count(void)
{
    unsigned count;

    pthread_mutex_lock(&exports.lock);
    count = exports.count;
    pthread_mutex_unlock(&exports.lock);
    return count;
}
