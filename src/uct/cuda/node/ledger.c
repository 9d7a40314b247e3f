/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared segment of the ledger, its slots, and recovery from dead processes.
 *
 * A named file contains the number of the segment. Attaching and detaching
 * happen under a lock on the file, and each process holds the number of its
 * slot in the file (alive.h). All other accesses are plain atomic loads and
 * stores.
 *
 * The segment is a System V segment, because it has a fixed size: the owner of
 * a file could truncate the file, and access to its mapping would then raise
 * SIGBUS. The segment is marked for removal at creation, so the kernel removes
 * it with its last process.
 */
#include <uct/cuda/node/ledger.h>

#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/file.h>
#include <uct/cuda/base/hash.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/retry.h>
#include <uct/cuda/node/alive.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>


/* "ucxmpled", and the layout's number: increase it with every change. Another
 * number of ends is another layout */
#define MAGIC  0x64656c706d786375ul
#define LAYOUT (4 + 256 * (UCT_CUDA_NUM_ENDS - 17))

#define MAX_GPUS  UCT_CUDA_MAX_GPUS
#define NUM_LINKS UCT_CUDA_PLAN_NUM_LINKS
#define WORD_BITS 64
#define NUM_WORDS ((NUM_LINKS + WORD_BITS - 1) / WORD_BITS)
#define NUM_ENDS  UCT_CUDA_NUM_ENDS
#define NO_LINK   UINT16_MAX

#define LOCK_TRIES 40
#define LOCK_PAUSE 500000 /* ns */


/* Slot of a process. Links and ends are numbered by the segment's list of
 * GPUs. */
typedef struct {
    uint32_t pid;     /* 0: free. Written last when taken. */
    uint32_t changes; /* changes of the bits so far */
    uint64_t active[NUM_WORDS];
    uint64_t direct[NUM_WORDS];
    uint8_t  to[NUM_ENDS];   /* Activations of links to an end, modulo 256 */
    uint8_t  from[NUM_ENDS]; /* Activations of links from an end, modulo 256 */
} __attribute__((aligned(64))) slot_t;


typedef struct {
    uint64_t magic;
    uint32_t layout;
    uint32_t size;
    uint32_t num_gpus;
    uint32_t num_slots; /* slots ever used */
    uint64_t token;     /* also in the file */
    uint8_t  uuids[MAX_GPUS][16];
    slot_t   slots[UCT_CUDA_NODE_LEDGER_MAX_SLOTS];
} ledger_segment_t;

_Static_assert((NUM_ENDS != 17) || (sizeof(ledger_segment_t) == 16320),
               "the layout is the same everywhere");


/* Content of the file */
typedef struct {
    uint64_t magic;
    uint32_t layout;
    int32_t  segment; /* number of the segment */
    uint64_t token;   /* a reused segment number has another token */
} ledger_file_t;


struct uct_cuda_mp_ledger {
    ledger_segment_t      *table;
    slot_t                *slot;
    int                   fd;
    uct_cuda_node_alive_t *alive; /* slot numbers are those in the segment */
    uint32_t              pid;
    char                  path[512];
    /* This process's number of each link of the segment, and the reverse;
     * NO_LINK: none */
    uint16_t              from_shared[NUM_WORDS * WORD_BITS];
    uint16_t              to_shared[NUM_LINKS];
    uint8_t               ends[NUM_ENDS]; /* The segment's numbers of ends */
    /* Time of the last change seen in each slot */
    struct {
        uint32_t changes;
        uint64_t time;
    } seen[UCT_CUDA_NODE_LEDGER_MAX_SLOTS];
};


/* Return whether the ledger belongs to the parent of this forked child */
static bool is_foreign(const uct_cuda_node_ledger_t *ledger)
{
    return !uct_cuda_node_alive_is_owner(ledger->alive);
}


/* ------------------------------------------------------------------ file */

static uint64_t hash(uint64_t value, const char *text, size_t length)
{
    size_t i;

    for (i = 0; i < length; ++i) {
        value = uct_cuda_hash64(value, (uint8_t)text[i]);
    }

    return value;
}

static uint64_t hash_namespace(uint64_t id, const char *path)
{
    struct stat st;

    return (stat(path, &st) == 0) ?
                   hash(id, (const char*)&st.st_ino, sizeof(st.st_ino)) :
                   id;
}

/* Identify the namespaces and the boot in which numbers of processes and
 * segments are valid */
static uint64_t numbering_id(void)
{
    char text[64];
    uint64_t id;
    size_t length;

    id     = hash_namespace(UCT_CUDA_HASH64, "/proc/self/ns/pid");
    id     = hash_namespace(id, "/proc/self/ns/ipc");
    length = uct_cuda_file_text("/proc/sys/kernel/random/boot_id", text,
                                sizeof(text));
    return hash(id, text, length);
}

/* Lock the file with a time limit: a stopped process may hold the lock */
static ucs_status_t file_lock(uct_cuda_node_alive_t *alive)
{
    int i;

    for (i = 0; i < LOCK_TRIES; ++i) {
        if (uct_cuda_node_alive_hold(alive, UCT_CUDA_NODE_ALIVE_FILE)) {
            return UCS_OK;
        }
        uct_cuda_sleep_ns(LOCK_PAUSE);
    }

    return UCS_ERR_BUSY;
}

static void file_unlock(uct_cuda_node_alive_t *alive)
{
    uct_cuda_node_alive_release(alive, UCT_CUDA_NODE_ALIVE_FILE);
}

static void file_close(uct_cuda_node_ledger_t *ledger)
{
    uct_cuda_node_alive_close(ledger->alive);
    close(ledger->fd);
}

/* Open and lock the named file, creating it if needed, and fill @a st. On
 * failure nothing stays open; UCS_ERR_BUSY: others hold the lock. */
static ucs_status_t file_open(uct_cuda_node_ledger_t *ledger, struct stat *st)
{
    ucs_status_t status = UCS_ERR_BUSY;
    int tries           = LOCK_TRIES;

    while (tries-- > 0) {
        ledger->fd = UCT_CUDA_RETRY(open(ledger->path,
                                         O_RDWR | O_CREAT | O_CLOEXEC |
                                                 O_NOFOLLOW, 0600));
        if (ledger->fd < 0) {
            return UCS_ERR_IO_ERROR;
        }

        status = uct_cuda_node_alive_open(ledger->fd, &ledger->alive);
        if (status != UCS_OK) {
            close(ledger->fd);
            return status;
        }

        status = file_lock(ledger->alive);
        if ((status == UCS_OK) && (fstat(ledger->fd, st) != 0)) {
            status = UCS_ERR_IO_ERROR;
        }

        if ((status == UCS_OK) && (st->st_nlink > 0)) {
            return UCS_OK;
        }

        file_close(ledger);
        if (status != UCS_OK) {
            return status;
        }

        /* the last process to leave has removed it in the meantime */
        status = UCS_ERR_BUSY;
    }

    return status;
}

/* Return whether no other user can have changed the file */
static bool file_is_ours(const struct stat *st)
{
    return S_ISREG(st->st_mode) && (st->st_uid == geteuid()) &&
           ((st->st_mode & (S_IRWXG | S_IRWXO)) == 0);
}


/* --------------------------------------------------------------- segment */

static void slot_free(slot_t *slot)
{
    unsigned i;

    for (i = 0; i < NUM_WORDS; ++i) {
        __atomic_store_n(&slot->active[i], 0, __ATOMIC_RELAXED);
        __atomic_store_n(&slot->direct[i], 0, __ATOMIC_RELAXED);
    }

    __atomic_store_n(&slot->pid, 0, __ATOMIC_RELEASE);
}

static unsigned table_num_slots(const ledger_segment_t *table)
{
    unsigned count = __atomic_load_n(&table->num_slots, __ATOMIC_ACQUIRE);

    return (count > UCT_CUDA_NODE_LEDGER_MAX_SLOTS) ?
                   UCT_CUDA_NODE_LEDGER_MAX_SLOTS :
                   count;
}

/* Free the slots of dead processes. @return true: a process is left */
static bool table_reap(ledger_segment_t *table,
                       const uct_cuda_node_alive_t *alive)
{
    bool any = false;
    slot_t *slot;
    unsigned i;

    for (i = 0; i < table_num_slots(table); ++i) {
        slot = &table->slots[i];
        if (slot->pid == 0) {
            continue;
        }

        if (uct_cuda_node_alive_is_taken(alive, i)) {
            any = true;
        } else {
            slot_free(slot);
        }
    }

    return any;
}

static ledger_segment_t *segment_attach(int segment)
{
    void *table = shmat(segment, NULL, 0);

    return (table == (void*)-1) ? NULL : table;
}

/* Attach the segment named in the file. Return NULL if it is gone, or if its
 * number now belongs to another user's or another segment (other token). */
static ledger_segment_t *segment_find(const ledger_file_t *place)
{
    struct shmid_ds found;
    ledger_segment_t *table;

    if ((shmctl(place->segment, IPC_STAT, &found) != 0) ||
        (found.shm_segsz != sizeof(ledger_segment_t)) ||
        (found.shm_perm.uid != geteuid())) {
        return NULL;
    }

    table = segment_attach(place->segment);
    if ((table != NULL) && (table->token != place->token)) {
        shmdt(table);
        return NULL;
    }

    return table;
}

/* Create a segment and write its number to the file */
static ledger_segment_t *segment_make(const uct_cuda_node_ledger_t *ledger)
{
    const int segment = shmget(IPC_PRIVATE, sizeof(ledger_segment_t), 0600);
    const ledger_file_t place = {
        .magic   = MAGIC,
        .layout  = LAYOUT,
        .segment = segment,
        .token   = uct_cuda_now_ns() ^ ((uint64_t)ledger->pid << 40)
    };
    ledger_segment_t *table;

    if (segment < 0) {
        return NULL;
    }

    table = segment_attach(segment);
    (void)shmctl(segment, IPC_RMID, NULL);
    if (table == NULL) {
        return NULL;
    }

    table->magic = MAGIC;
    table->layout = LAYOUT;
    table->size  = sizeof(*table);
    table->token = place.token;
    if (!uct_cuda_file_write(ledger->fd, &place, sizeof(place), 0)) {
        shmdt(table);
        return NULL;
    }

    return table;
}

/* Attach the segment named in the file, or a new one if there is none. A file
 * truncated while processes use their segment gets a new one only when they
 * have left (UCS_ERR_UNSUPPORTED before): it would show their links as idle. */
static ucs_status_t page_find(uct_cuda_node_ledger_t *ledger,
                              const struct stat *st)
{
    ledger_file_t place = {0};

    if (!file_is_ours(st) ||
        ((st->st_size != 0) &&
         ((st->st_size != (off_t)sizeof(place)) ||
          (uct_cuda_file_read(ledger->fd, &place, sizeof(place), 0) !=
           sizeof(place)) ||
          (place.magic != MAGIC) || (place.layout != LAYOUT)))) {
        return UCS_ERR_UNSUPPORTED;
    }

    ledger->table = (st->st_size != 0) ? segment_find(&place) : NULL;
    if (ledger->table != NULL) {
        return UCS_OK;
    }

    if (uct_cuda_node_alive_any_is_taken(ledger->alive, 0,
                                         UCT_CUDA_NODE_LEDGER_MAX_SLOTS)) {
        return UCS_ERR_UNSUPPORTED;
    }

    ledger->table = segment_make(ledger);
    if (ledger->table == NULL) {
        (void)unlink(ledger->path);
        return UCS_ERR_NO_RESOURCE;
    }

    return UCS_OK;
}

/* Check the segment's layout, and free the slots of dead processes. If no
 * process is left, empty the list of GPUs, too. */
static ucs_status_t
table_check(ledger_segment_t *table, const uct_cuda_node_alive_t *alive)
{
    if ((table->magic != MAGIC) || (table->layout != LAYOUT) ||
        (table->size != sizeof(*table)) || (table->num_gpus > MAX_GPUS)) {
        return UCS_ERR_UNSUPPORTED;
    }

    if (!table_reap(table, alive)) {
        /* forget the GPUs of processes that have left */
        table->num_gpus = 0;
        table->num_slots = 0;
    }

    return UCS_OK;
}

/* Return the segment's number of a GPU, adding it if needed; -1: too many */
static int table_gpu(ledger_segment_t *table, const uint8_t uuid[16])
{
    unsigned i;

    for (i = 0; i < table->num_gpus; ++i) {
        if (memcmp(table->uuids[i], uuid, 16) == 0) {
            return (int)i;
        }
    }

    if (table->num_gpus == MAX_GPUS) {
        return -1;
    }

    memcpy(table->uuids[table->num_gpus], uuid, 16);
    return (int)table->num_gpus++;
}

static ucs_status_t map_links(uct_cuda_node_ledger_t *ledger,
                              const uint8_t (*uuids)[16], int num_gpus)
{
    uct_cuda_end_t ends[UCT_CUDA_NUM_ENDS] = {{0}};
    uint16_t link, number;
    uct_cuda_end_t from, to;
    int gpu, at;

    memset(ledger->to_shared, 0xff, sizeof(ledger->to_shared));
    memset(ledger->from_shared, 0xff, sizeof(ledger->from_shared));
    for (gpu = 0; gpu < num_gpus; ++gpu) {
        at = table_gpu(ledger->table, uuids[gpu]);
        if (at < 0) {
            return UCS_ERR_NO_RESOURCE;
        }

        ends[gpu]         = uct_cuda_end_gpu(at);
        ledger->ends[gpu] = (uint8_t)at;
    }

    for (at = MAX_GPUS; at < (int)NUM_ENDS; ++at) {
        ends[at]         = uct_cuda_end_at(at);
        ledger->ends[at] = (uint8_t)at;
    }

    for (link = 0; link < NUM_LINKS; ++link) {
        from = ends[uct_cuda_end_index(uct_cuda_plan_link_from(link))];
        to   = ends[uct_cuda_end_index(uct_cuda_plan_link_to(link))];
        if (!uct_cuda_end_is_none(from) && !uct_cuda_end_is_none(to)) {
            number                    = uct_cuda_plan_link(from, to);
            ledger->to_shared[link]     = number;
            ledger->from_shared[number] = link;
        }
    }

    return UCS_OK;
}

static ucs_status_t take_slot(uct_cuda_node_ledger_t *ledger)
{
    ledger_segment_t *table = ledger->table;
    slot_t *slot;
    unsigned i;

    for (i = 0; i < UCT_CUDA_NODE_LEDGER_MAX_SLOTS; ++i) {
        slot = &table->slots[i];
        if (((i >= table->num_slots) || (slot->pid == 0)) &&
            uct_cuda_node_alive_hold(ledger->alive, i)) {
            slot_free(slot);
            __atomic_store_n(&slot->pid, ledger->pid, __ATOMIC_RELEASE);
            if (i >= table->num_slots) {
                __atomic_store_n(&table->num_slots, i + 1, __ATOMIC_RELEASE);
            }
            ledger->slot = slot;
            return UCS_OK;
        }
    }

    return UCS_ERR_NO_RESOURCE;
}

/* Attach the segment, add this process's GPUs and take a slot. On failure no
 * segment stays attached. Call with the file locked. */
static ucs_status_t ledger_attach(uct_cuda_node_ledger_t *ledger,
                                  const struct stat *st,
                                  const uint8_t (*uuids)[16], int num_gpus)
{
    ucs_status_t status = page_find(ledger, st);

    if (status != UCS_OK) {
        return status;
    }

    status = table_check(ledger->table, ledger->alive);
    if (status == UCS_OK) {
        status = map_links(ledger, uuids, num_gpus);
    }

    if (status == UCS_OK) {
        status = take_slot(ledger);
    }

    if (status != UCS_OK) {
        shmdt(ledger->table);
    }

    return status;
}

ucs_status_t uct_cuda_node_ledger_open(const char *dir,
                                       const uint8_t (*uuids)[16], int num_gpus,
                                       uct_cuda_node_ledger_t **ledger_p)
{
    uct_cuda_node_ledger_t *ledger;
    ucs_status_t status;
    struct stat st;

    ledger = calloc(1, sizeof(*ledger));
    if (ledger == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    ledger->pid = (uint32_t)getpid();
    if ((size_t)snprintf(ledger->path, sizeof(ledger->path),
                         "%s/ucx-mp-ledger-%u-%016lx", dir,
                         (unsigned)geteuid(), numbering_id()) >=
        sizeof(ledger->path)) {
        status = UCS_ERR_IO_ERROR;
        goto err_free;
    }

    status = file_open(ledger, &st);
    if (status != UCS_OK) {
        goto err_free;
    }

    status = ledger_attach(ledger, &st, uuids, num_gpus);
    file_unlock(ledger->alive);
    if (status != UCS_OK) {
        goto err_close;
    }

    uct_cuda_debug("the node's ledger is %s", ledger->path);
    *ledger_p = ledger;
    return UCS_OK;

err_close:
    file_close(ledger);
err_free:
    uct_cuda_debug("no ledger of the node's transfers in %s (status %d)",
                   dir, status);
    free(ledger);
    return status;
}

void uct_cuda_node_ledger_close(uct_cuda_node_ledger_t *ledger)
{
    struct stat st;

    if (!is_foreign(ledger)) {
        slot_free(ledger->slot);
        if (file_lock(ledger->alive) == UCS_OK) {
            /* the name of a removed file may belong to another process */
            if (!table_reap(ledger->table, ledger->alive) &&
                (fstat(ledger->fd, &st) == 0) && (st.st_nlink > 0)) {
                (void)unlink(ledger->path);
            }
            file_unlock(ledger->alive);
        }
    }

    shmdt(ledger->table);
    file_close(ledger);
    free(ledger);
}


/* ------------------------------------------------------------------- use */

/* Set a bit; as the only writer, without an atomic read-modify-write */
static void set_bit(uint64_t *word, uint64_t bit, bool is_set)
{
    __atomic_store_n(word, is_set ? (*word | bit) : (*word & ~bit),
                     __ATOMIC_RELAXED);
}

static void count_begin(uint8_t *count)
{
    __atomic_store_n(count, (uint8_t)(*count + 1), __ATOMIC_RELAXED);
}

void uct_cuda_node_ledger_set(uct_cuda_node_ledger_t *ledger, uint16_t link,
                              bool is_active, bool is_direct)
{
    const unsigned number = ledger->to_shared[link];
    const unsigned word   = number / WORD_BITS;
    const uint64_t bit    = UINT64_C(1) << (number % WORD_BITS);
    slot_t *slot          = ledger->slot;

    if ((number == NO_LINK) || is_foreign(ledger)) {
        return;
    }

    if (is_active && !(slot->active[word] & bit)) {
        count_begin(&slot->from[number / NUM_ENDS]);
        count_begin(&slot->to[number % NUM_ENDS]);
    }

    set_bit(&slot->active[word], bit, is_active);
    set_bit(&slot->direct[word], bit, is_direct);
    __atomic_store_n(&slot->changes, slot->changes + 1, __ATOMIC_RELEASE);
}

/* Free a slot with active links if its owner has died. The check is made only
 * if the slot has not changed for UCT_CUDA_NODE_LEDGER_STALE. */
static void ledger_visit(uct_cuda_node_ledger_t *ledger, unsigned number,
                         uint64_t now)
{
    slot_t *slot     = &ledger->table->slots[number];
    uint32_t changes = __atomic_load_n(&slot->changes, __ATOMIC_RELAXED);

    if ((changes != ledger->seen[number].changes) ||
        (ledger->seen[number].time == 0)) {
        ledger->seen[number].changes = changes;
        ledger->seen[number].time    = now;
        return;
    }

    if (now - ledger->seen[number].time < UCT_CUDA_NODE_LEDGER_STALE) {
        return;
    }

    ledger->seen[number].time = now;
    if (is_foreign(ledger) ||
        uct_cuda_node_alive_is_taken(ledger->alive, number) ||
        !uct_cuda_node_alive_hold(ledger->alive, UCT_CUDA_NODE_ALIVE_FILE)) {
        return;
    }

    /* Make sure that no process has taken it in the meantime */
    if (!uct_cuda_node_alive_is_taken(ledger->alive, number)) {
        slot_free(slot);
    }

    file_unlock(ledger->alive);
}

/* Add a slot's bits to the counts of this process's links, and set *any if one
 * was added. @return true: a bit is set, maybe of a link unknown to this
 * process */
static bool add_bits(const uct_cuda_node_ledger_t *ledger,
                     const uint64_t *words, uint8_t *counts, bool *any)
{
    bool is_busy = false;
    uint64_t bits;
    uint16_t link;
    unsigned w;

    for (w = 0; w < NUM_WORDS; ++w) {
        bits     = __atomic_load_n(&words[w], __ATOMIC_RELAXED);
        is_busy |= (bits != 0);
        while (bits != 0) {
            link  = ledger->from_shared[w * WORD_BITS +
                                      (unsigned)__builtin_ctzl(bits)];
            bits &= bits - 1;
            if ((link != NO_LINK) && (counts[link] < UINT8_MAX)) {
                ++counts[link];
                *any = true;
            }
        }
    }

    return is_busy;
}

bool uct_cuda_node_ledger_read(uct_cuda_node_ledger_t *ledger, uint64_t now,
                               uct_cuda_plan_load_t *load)
{
    const unsigned count = table_num_slots(ledger->table);
    bool any             = false;
    slot_t *slot;
    unsigned i;

    for (i = 0; i < count; ++i) {
        slot = &ledger->table->slots[i];
        if ((slot == ledger->slot) ||
            (__atomic_load_n(&slot->pid, __ATOMIC_ACQUIRE) == 0)) {
            continue;
        }

        if (add_bits(ledger, slot->active, load->active, &any)) {
            (void)add_bits(ledger, slot->direct, load->direct, &any);
            ledger_visit(ledger, i, now);
        }
    }

    return any;
}

unsigned uct_cuda_node_ledger_begun(const uct_cuda_node_ledger_t *ledger,
                                    uct_cuda_end_t to, uct_cuda_end_t from)
{
    const uint8_t to_end   = ledger->ends[uct_cuda_end_index(to)];
    const uint8_t from_end = ledger->ends[uct_cuda_end_index(from)];
    unsigned count         = 0;
    const slot_t *slot;
    unsigned i;

    for (i = 0; i < table_num_slots(ledger->table); ++i) {
        slot = &ledger->table->slots[i];
        if (slot != ledger->slot) {
            count += __atomic_load_n(&slot->to[to_end], __ATOMIC_RELAXED) +
                     __atomic_load_n(&slot->from[from_end], __ATOMIC_RELAXED);
        }
    }

    return count;
}

unsigned uct_cuda_node_ledger_others(const uct_cuda_node_ledger_t *ledger,
                                     uint32_t *pids, unsigned max)
{
    unsigned count = 0;
    uint32_t pid;
    unsigned i;

    for (i = 0; (i < table_num_slots(ledger->table)) && (count < max); ++i) {
        pid = __atomic_load_n(&ledger->table->slots[i].pid, __ATOMIC_RELAXED);
        if ((pid != 0) && (pid != ledger->pid)) {
            pids[count++] = pid;
        }
    }

    return count;
}
