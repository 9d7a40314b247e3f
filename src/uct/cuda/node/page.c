/* SPDX-License-Identifier: BSD-3-Clause */
#include <uct/cuda/node/page.h>

#include <uct/cuda/plan/collective_plan.h>

#include <stddef.h>
#include <stdlib.h>
#include <string.h>


#define LINE_ALIGNED __attribute__((aligned(UCT_CUDA_COLL_PAGE_LINE)))


/* A call's number, and more bits beside it, in one word */
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
    uint32_t               is_there;
} shown_t;

typedef struct {
    uint64_t phases[UCT_CUDA_COLL_PHASE_LAST] LINE_ALIGNED;
} progress_t;

/* An announcement is written and read word by word; the first word is @a
 * said */
#define POST_WORDS (sizeof(uct_cuda_coll_post_t) / sizeof(uint64_t))

typedef struct {
    uint64_t             posts[2][POST_WORDS] LINE_ALIGNED;
    progress_t           progress;
    uint64_t             first;   /* first call announced; 0: not joined */
    uint32_t             is_gone;
    uint8_t              gpu[16];
    uint64_t             steps[UCT_CUDA_COLL_MAX_QUEUES] LINE_ALIGNED;
    shown_t              exports[UCT_CUDA_COLL_PAGE_EXPORTS] LINE_ALIGNED;
} rank_t;

typedef struct {
    uct_cuda_coll_common_t common;
    rank_t                 ranks[] LINE_ALIGNED;
} shared_t;

struct uct_cuda_coll_page {
    uct_cuda_coll_board_t *board;
    shared_t              *shared;
    size_t                bytes;
    uint64_t              key;
    unsigned              rank;
    /* ranks of the segment */
    unsigned              members[UCT_CUDA_COLL_MAX_RANKS];
};

_Static_assert(sizeof(uct_cuda_coll_post_t) == UCT_CUDA_COLL_PAGE_LINE,
               "a post is a cache line");


/* ------------------------------------------------------------ open, close */

ucs_status_t uct_cuda_coll_page_open(uct_cuda_coll_board_t *board,
                                     uint64_t key, unsigned rank,
                                     unsigned size, const unsigned *members,
                                     uct_cuda_coll_page_t **page_p)
{
    uct_cuda_coll_page_t *page;
    ucs_status_t status;
    void *memory;

    if ((size > UCT_CUDA_COLL_MAX_RANKS) || (rank >= size)) {
        return UCS_ERR_INVALID_PARAM;
    }

    page = calloc(1, sizeof(*page));
    if (page == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    page->board = board;
    page->key   = key;
    page->rank  = rank;
    page->bytes = sizeof(shared_t) + size * sizeof(rank_t);
    memcpy(page->members, members, size * sizeof(*members));
    status = uct_cuda_coll_board_get(board, key, page->bytes, &memory);
    if (status != UCS_OK) {
        free(page);
        return status;
    }

    page->shared = memory;
    *page_p      = page;
    return UCS_OK;
}

void uct_cuda_coll_page_close(uct_cuda_coll_page_t *page)
{
    if (uct_cuda_coll_board_is_own(page->board)) {
        __atomic_store_n(&page->shared->ranks[page->rank].is_gone, 1,
                         __ATOMIC_RELEASE);
    }
    uct_cuda_coll_board_put(page->board, page->key, page->bytes, page->shared);
    free(page);
}

uct_cuda_coll_common_t *uct_cuda_coll_page_common(uct_cuda_coll_page_t *page)
{
    return &page->shared->common;
}

/* Words of earlier calls must not look like announcements of later ones */
void uct_cuda_coll_page_join(uct_cuda_coll_page_t *page, uint64_t first)
{
    const uint64_t before = word_of(first - 1, UCT_CUDA_COLL_POST_PASS);
    rank_t *self          = &page->shared->ranks[page->rank];
    unsigned i;

    for (i = 0; i < 2; ++i) {
        __atomic_store_n(&self->posts[i][0], before, __ATOMIC_RELAXED);
    }
    for (i = 0; i < UCT_CUDA_COLL_PHASE_LAST; ++i) {
        __atomic_store_n(&self->progress.phases[i], before, __ATOMIC_RELAXED);
    }
    for (i = 0; i < UCT_CUDA_COLL_MAX_QUEUES; ++i) {
        __atomic_store_n(&self->steps[i], before, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&self->first, first, __ATOMIC_RELEASE);
}

uint64_t uct_cuda_coll_page_joined(const uct_cuda_coll_page_t *page,
                                   unsigned rank)
{
    return __atomic_load_n(&page->shared->ranks[rank].first, __ATOMIC_ACQUIRE);
}

bool uct_cuda_coll_page_is_alive(const uct_cuda_coll_page_t *page,
                                 unsigned rank)
{
    return !__atomic_load_n(&page->shared->ranks[rank].is_gone,
                            __ATOMIC_ACQUIRE) &&
           uct_cuda_coll_board_is_alive(page->board, page->members[rank]);
}


/* ---------------------------------------------------------- announcements */

static rank_t *page_self(uct_cuda_coll_page_t *page)
{
    return &page->shared->ranks[page->rank];
}

void uct_cuda_coll_page_post(uct_cuda_coll_page_t *page, uint64_t sequence,
                             const uct_cuda_coll_post_t *post)
{
    uint64_t *line = page_self(page)->posts[sequence % 2];
    uint64_t words[POST_WORDS];
    unsigned i;

    /* A rank may still be reading the announcement of two calls ago. Each word
     * is stored with release: a reader that loads a new word (acquire) then
     * also sees the first word changed when it checks it again. */
    memcpy(words, post, sizeof(words));
    __atomic_store_n(&line[0], word_of(sequence, UCT_CUDA_COLL_POST_WRITING),
                     __ATOMIC_RELAXED);
    for (i = 1; i < POST_WORDS; ++i) {
        __atomic_store_n(&line[i], words[i], __ATOMIC_RELEASE);
    }
    __atomic_store_n(&line[0], word_of(sequence, post->kind),
                     __ATOMIC_RELEASE);
}

/* Announce a decline: the first word alone holds it, with the reason */
void uct_cuda_coll_page_pass(uct_cuda_coll_page_t *page, uint64_t sequence,
                             uint8_t reason, ucs_status_t status)
{
    const uint32_t why = reason | ((uint32_t)(uint8_t)-status << 8);

    __atomic_store_n(&page_self(page)->posts[sequence % 2][0],
                     word_of(sequence, UCT_CUDA_COLL_POST_PASS | (why << 8)),
                     __ATOMIC_RELEASE);
}

bool uct_cuda_coll_page_read(const uct_cuda_coll_page_t *page, unsigned rank,
                             uint64_t sequence, uct_cuda_coll_post_t *post)
{
    const rank_t *other  = &page->shared->ranks[rank];
    const uint64_t *line = other->posts[sequence % 2];
    uint64_t words[POST_WORDS];
    unsigned i;

    /* in order: the first word is checked again after the others, see above */
    for (i = 0; i < POST_WORDS; ++i) {
        words[i] = __atomic_load_n(&line[i], __ATOMIC_ACQUIRE);
    }

    post->kind   = UCT_CUDA_COLL_POST_PASS;
    post->reason = 0;
    post->status = 0;
    if (words[0] == word_of(sequence, UCT_CUDA_COLL_POST_GPU)) {
        if (__atomic_load_n(&line[0], __ATOMIC_RELAXED) == words[0]) {
            memcpy(post, words, sizeof(*post));
        }
        return true;
    }

    if ((word_ahead(words[0], sequence) == 0) &&
        ((uint8_t)words[0] == UCT_CUDA_COLL_POST_PASS)) {
        post->reason = (uint8_t)(words[0] >> 8);
        post->status = (uint8_t)(words[0] >> 16);
        return true;
    }

    return (word_ahead(words[0], sequence) > 0) ||
           (word_ahead(__atomic_load_n(&other->posts[(sequence + 1) % 2][0],
                                       __ATOMIC_ACQUIRE),
                       sequence) > 0);
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

    const int64_t ahead = word_ahead(word, sequence);

    if (ahead != 0) {
        /* a rank ahead of this call had no failure in it */
        return (ahead > 0) ? UCS_OK : UCS_INPROGRESS;
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

    const int64_t ahead = word_ahead(word, sequence);

    return (ahead == 0) ? (uint32_t)word & ((1u << WORD_BITS) - 1) :
           (ahead > 0)  ? UINT32_MAX :
                          0;
}

uint32_t uct_cuda_coll_page_show(uct_cuda_coll_page_t *page, unsigned index,
                                 const uct_cuda_node_handle_t *handle)
{
    shown_t *export = &page_self(page)->exports[index];

    export->is_there = (handle != NULL);
    if (handle != NULL) {
        export->handle = *handle;
    }
    return ++export->generation;
}

const uct_cuda_node_handle_t *
uct_cuda_coll_page_shown(const uct_cuda_coll_page_t *page, unsigned rank,
                         unsigned index, uint32_t *generation_p)
{
    const shown_t *export =
            &page->shared->ranks[rank]
                     .exports[index % UCT_CUDA_COLL_PAGE_EXPORTS];

    *generation_p = export->generation;
    return export->is_there ? &export->handle : NULL;
}
