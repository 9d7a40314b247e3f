/* SPDX-License-Identifier: BSD-3-Clause */
#include <uct/cuda/node/control.h>

#include <uct/cuda/plan/collective_plan.h>

#include <stddef.h>
#include <stdlib.h>
#include <string.h>


#define LINE_ALIGNED __attribute__((aligned(UCT_CUDA_NODE_CONTROL_LINE)))


/* A word with a call's number and, in its lowest bits, further information */
#define WORD_BITS 24

static uint64_t word_of(uint64_t sequence, uint32_t beside)
{
    return (sequence << WORD_BITS) | beside;
}

/* Return the number of calls that a word is ahead of this one; negative:
 * behind. Numbers wrap around after weeks. */
static int64_t word_ahead(uint64_t word, uint64_t sequence)
{
    return (int64_t)(word - word_of(sequence, 0)) >> WORD_BITS;
}

typedef struct {
    uct_cuda_node_handle_t handle;
    uint32_t               generation;
    uint32_t               is_valid;
} export_t;

typedef struct {
    uint64_t phases[UCT_CUDA_NODE_PHASE_LAST] LINE_ALIGNED;
} progress_t;

/* An announcement is written and read word by word; the first word is its
 * stamp */
#define POST_WORDS (sizeof(uct_cuda_node_announcement_t) / sizeof(uint64_t))

typedef struct {
    uint64_t             posts[2][POST_WORDS] LINE_ALIGNED;
    progress_t           progress;
    uint64_t             first;   /* first call announced; 0: not joined */
    uint64_t             able;    /* first non-blocking call that the rank was
                                     able to queue; 0: none yet */
    uint32_t             is_gone;
    uint8_t              gpu[16];
    uint64_t             steps[UCT_CUDA_PLAN_COLL_MAX_QUEUES] LINE_ALIGNED;
    export_t             exports[UCT_CUDA_NODE_CONTROL_EXPORTS] LINE_ALIGNED;
} rank_t;

/* Lowest bit of the word @a queued. Set: the word's number is the first call
 * that the ranks queue. Clear: it is the last one known not to be queued. */
#define QUEUED 1

typedef struct {
    uct_cuda_node_control_common_t common;
    /* Number of a non-blocking call, shifted by one bit, and QUEUED */
    uint64_t                       queued LINE_ALIGNED;
    rank_t                         ranks[] LINE_ALIGNED;
} control_block_t;

struct uct_cuda_node_control {
    uct_cuda_node_segment_t *segment;
    control_block_t         *shared;
    size_t                  bytes;
    uint64_t                key;
    unsigned                rank;
    /* ranks of the segment */
    unsigned                members[UCT_CUDA_PLAN_COLL_MAX_RANKS];
};

_Static_assert(sizeof(uct_cuda_node_announcement_t) ==
                   UCT_CUDA_NODE_CONTROL_LINE,
               "a post is a cache line");


/* ------------------------------------------------------------ open, close */

ucs_status_t uct_cuda_node_control_open(uct_cuda_node_segment_t *segment,
                                        uint64_t key, unsigned rank,
                                        unsigned size, const unsigned *members,
                                        uct_cuda_node_control_t **control_p)
{
    uct_cuda_node_control_t *control;
    ucs_status_t status;
    void *memory;

    if ((size > UCT_CUDA_PLAN_COLL_MAX_RANKS) || (rank >= size)) {
        return UCS_ERR_INVALID_PARAM;
    }

    control = calloc(1, sizeof(*control));
    if (control == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    control->segment = segment;
    control->key     = key;
    control->rank    = rank;
    control->bytes   = sizeof(control_block_t) + size * sizeof(rank_t);
    memcpy(control->members, members, size * sizeof(*members));
    status = uct_cuda_node_segment_get(segment, key, control->bytes, &memory);
    if (status != UCS_OK) {
        free(control);
        return status;
    }

    control->shared = memory;
    *control_p      = control;
    return UCS_OK;
}

void uct_cuda_node_control_close(uct_cuda_node_control_t *control)
{
    if (uct_cuda_node_segment_is_owner(control->segment)) {
        __atomic_store_n(&control->shared->ranks[control->rank].is_gone, 1,
                         __ATOMIC_RELEASE);
    }
    uct_cuda_node_segment_put(control->segment, control->key, control->bytes,
                              control->shared);
    free(control);
}

uct_cuda_node_control_common_t *
uct_cuda_node_control_common(uct_cuda_node_control_t *control)
{
    return &control->shared->common;
}

/* Set all words of this rank to the call before @a first: values from an
 * earlier use of the memory must not look like announcements */
void uct_cuda_node_control_join(uct_cuda_node_control_t *control,
                                uint64_t first)
{
    const uint64_t before = word_of(first - 1, UCT_CUDA_NODE_ANNOUNCE_DECLINE);
    rank_t *self          = &control->shared->ranks[control->rank];
    unsigned i;

    for (i = 0; i < 2; ++i) {
        __atomic_store_n(&self->posts[i][0], before, __ATOMIC_RELAXED);
    }
    for (i = 0; i < UCT_CUDA_NODE_PHASE_LAST; ++i) {
        __atomic_store_n(&self->progress.phases[i], before, __ATOMIC_RELAXED);
    }
    for (i = 0; i < UCT_CUDA_PLAN_COLL_MAX_QUEUES; ++i) {
        __atomic_store_n(&self->steps[i], before, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&self->first, first, __ATOMIC_RELEASE);
}

uint64_t uct_cuda_node_control_joined(const uct_cuda_node_control_t *control,
                                      unsigned rank)
{
    return __atomic_load_n(&control->shared->ranks[rank].first,
                           __ATOMIC_ACQUIRE);
}

/* A rank queues no call before the first call that it is able to queue. Until
 * all ranks have been able, each call raises the word's number. Then the first
 * rank to see this sets QUEUED, with a number larger than those of all calls
 * not queued. */
bool uct_cuda_node_control_is_queued(uct_cuda_node_control_t *control,
                                     unsigned size, uint64_t number,
                                     bool is_able)
{
    rank_t *ranks   = control->shared->ranks;
    uint64_t *state = &control->shared->queued;
    uint64_t *able  = &ranks[control->rank].able;
    uint64_t word   = __atomic_load_n(state, __ATOMIC_ACQUIRE);
    uint64_t last, first, next;
    bool is_whole;
    unsigned rank;

    if (*able == 0) {
        if (!is_able) {
            return false;
        }
        __atomic_store_n(able, number, __ATOMIC_SEQ_CST);
    }

    while (!(word & QUEUED)) {
        last     = word >> 1;
        is_whole = true;
        for (rank = 0; rank < size; ++rank) {
            first    = __atomic_load_n(&ranks[rank].able,
                                       __ATOMIC_SEQ_CST);
            is_whole = is_whole && (first != 0);
            last     = (first > last + 1) ? first - 1 : last;
        }
        if (!is_whole) {
            last = (number > last) ? number : last;
        }

        next = is_whole ? ((last + 1) << 1 | QUEUED) : last << 1;
        if (__atomic_compare_exchange_n(state, &word, next, false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
            word = next;
            if (!is_whole) {
                break;
            }
        }
    }
    return (word & QUEUED) && (number >= word >> 1);
}

bool uct_cuda_node_control_is_running(const uct_cuda_node_control_t *control,
                                      unsigned rank)
{
    return uct_cuda_node_segment_is_alive(control->segment,
                                          control->members[rank]);
}

bool uct_cuda_node_control_is_alive(const uct_cuda_node_control_t *control,
                                    unsigned rank)
{
    return !__atomic_load_n(&control->shared->ranks[rank].is_gone,
                            __ATOMIC_ACQUIRE) &&
           uct_cuda_node_control_is_running(control, rank);
}


/* ---------------------------------------------------------- announcements */

static rank_t *control_self(uct_cuda_node_control_t *control)
{
    return &control->shared->ranks[control->rank];
}

void uct_cuda_node_control_announce(uct_cuda_node_control_t *control,
                                    uint64_t sequence,
                                    const uct_cuda_node_announcement_t *post)
{
    uint64_t *line = control_self(control)->posts[sequence % 2];
    uint64_t words[POST_WORDS];
    unsigned i;

    /* A rank may still be reading the announcement of two calls ago. Each word
     * is stored with release: a reader that loads a new word (acquire) then
     * also sees the first word changed when it checks it again. */
    memcpy(words, post, sizeof(words));
    __atomic_store_n(&line[0],
                     word_of(sequence, UCT_CUDA_NODE_ANNOUNCE_WRITING),
                     __ATOMIC_RELAXED);
    for (i = 1; i < POST_WORDS; ++i) {
        __atomic_store_n(&line[i], words[i], __ATOMIC_RELEASE);
    }
    __atomic_store_n(&line[0], word_of(sequence, post->kind),
                     __ATOMIC_RELEASE);
}

/* Announce a decline: the first word alone holds it, with the reason */
void uct_cuda_node_control_decline(uct_cuda_node_control_t *control,
                                   uint64_t sequence, uint8_t reason,
                                   ucs_status_t status)
{
    const uint32_t why = reason | ((uint32_t)(uint8_t)-status << 8);

    __atomic_store_n(&control_self(control)->posts[sequence % 2][0],
                     word_of(sequence,
                             UCT_CUDA_NODE_ANNOUNCE_DECLINE | (why << 8)),
                     __ATOMIC_RELEASE);
}

bool uct_cuda_node_control_read(const uct_cuda_node_control_t *control,
                                unsigned rank, uint64_t sequence,
                                uct_cuda_node_announcement_t *post)
{
    const rank_t *other  = &control->shared->ranks[rank];
    const uint64_t *line = other->posts[sequence % 2];
    uint64_t words[POST_WORDS];
    unsigned i;

    /* in order: the first word is checked again after the others, see above */
    for (i = 0; i < POST_WORDS; ++i) {
        words[i] = __atomic_load_n(&line[i], __ATOMIC_ACQUIRE);
    }

    post->kind   = UCT_CUDA_NODE_ANNOUNCE_DECLINE;
    post->reason = 0;
    post->status = 0;
    if (words[0] == word_of(sequence, UCT_CUDA_NODE_ANNOUNCE_GPU)) {
        if (__atomic_load_n(&line[0], __ATOMIC_RELAXED) == words[0]) {
            memcpy(post, words, sizeof(*post));
        }
        return true;
    }

    if ((word_ahead(words[0], sequence) == 0) &&
        ((uint8_t)words[0] == UCT_CUDA_NODE_ANNOUNCE_DECLINE)) {
        post->reason = (uint8_t)(words[0] >> 8);
        post->status = (uint8_t)(words[0] >> 16);
        return true;
    }

    return (word_ahead(words[0], sequence) > 0) ||
           (word_ahead(__atomic_load_n(&other->posts[(sequence + 1) % 2][0],
                                       __ATOMIC_ACQUIRE),
                       sequence) > 0);
}

void uct_cuda_node_control_reach(uct_cuda_node_control_t *control,
                                 uct_cuda_node_phase_t phase, uint64_t sequence,
                                 ucs_status_t status)
{
    __atomic_store_n(&control_self(control)->progress.phases[phase],
                     word_of(sequence, (uint8_t)-status),
                     __ATOMIC_RELEASE);
}

ucs_status_t
uct_cuda_node_control_reached(const uct_cuda_node_control_t *control,
                              unsigned rank, uct_cuda_node_phase_t phase,
                              uint64_t sequence)
{
    const uint64_t word = __atomic_load_n(
            &control->shared->ranks[rank].progress.phases[phase],
            __ATOMIC_ACQUIRE);

    const int64_t ahead = word_ahead(word, sequence);

    if (ahead != 0) {
        /* a rank in a later call completed this one without failure */
        return (ahead > 0) ? UCS_OK : UCS_INPROGRESS;
    }

    return (ucs_status_t) - (int)(uint8_t)word;
}

void uct_cuda_node_control_set_gpu(uct_cuda_node_control_t *control,
                                   const uint8_t uuid[16])
{
    memcpy(control_self(control)->gpu, uuid,
           sizeof(control_self(control)->gpu));
}

const uint8_t *uct_cuda_node_control_gpu(const uct_cuda_node_control_t *control,
                                         unsigned rank)
{
    return control->shared->ranks[rank].gpu;
}

void uct_cuda_node_control_step(uct_cuda_node_control_t *control,
                                unsigned queue, uint64_t sequence,
                                uint32_t steps)
{
    __atomic_store_n(&control_self(control)->steps[queue],
                     word_of(sequence, steps), __ATOMIC_RELEASE);
}

uint32_t uct_cuda_node_control_steps(const uct_cuda_node_control_t *control,
                                     unsigned rank, unsigned queue,
                                     uint64_t sequence)
{
    const uint64_t word = __atomic_load_n(
            &control->shared->ranks[rank].steps[queue], __ATOMIC_ACQUIRE);

    const int64_t ahead = word_ahead(word, sequence);

    return (ahead == 0) ? (uint32_t)word & ((1u << WORD_BITS) - 1) :
           (ahead > 0)  ? UINT32_MAX :
                          0;
}

uint32_t uct_cuda_node_control_export(uct_cuda_node_control_t *control,
                                      unsigned index,
                                      const uct_cuda_node_handle_t *handle)
{
    export_t *export = &control_self(control)->exports[index];

    export->is_valid = (handle != NULL);
    if (handle != NULL) {
        export->handle = *handle;
    }
    return ++export->generation;
}

const uct_cuda_node_handle_t *
uct_cuda_node_control_exported(const uct_cuda_node_control_t *control,
                               unsigned rank, unsigned index,
                               uint32_t *generation_p)
{
    const export_t *export =
            &control->shared->ranks[rank]
                     .exports[index % UCT_CUDA_NODE_CONTROL_EXPORTS];

    *generation_p = export->generation;
    return export->is_valid ? &export->handle : NULL;
}
