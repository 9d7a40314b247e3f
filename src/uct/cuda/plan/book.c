/* SPDX-License-Identifier: BSD-3-Clause */
/* Sizes that are priced, and what is chosen between them. */
#include <uct/cuda/plan/book.h>

#include <ucs/sys/math.h>

#include <float.h>
#include <stdlib.h>
#include <string.h>


/* Sizes that are priced, bytes of the whole: 4 KiB to 16 GiB, eight an octave.
 * Below all are alike; above, chunks are what scratch memory allows anyway. */
#define FIRST_OCTAVE 12
#define LAST_OCTAVE  34
#define NUM_POINTS   (8 * (LAST_OCTAVE - FIRST_OCTAVE) + 1)

/* Kinds and roots that are remembered; a root's trees take some 100 KB */
#define NUM_PAGES 8

/* Plans that are kept of each, and the steps that make one worth it: each step
 * takes some 100 bytes */
#define NUM_KEPT  4
#define MIN_STEPS 200

/* What takes longer than this much of the best at two sizes is not the best of
 * those between them */
#define NEAR 1.15

/* What has more steps is taken if it is so many times faster; and what has
 * copies instead of kernels, or takes other GPUs */
#define MIN_GAIN      1.005
#define MIN_GAIN_MORE 1.01

/* Elements of priced sizes, bytes */
#define ELEMENT 4


typedef uct_cuda_coll_request_t request_t;
typedef uct_cuda_coll_choice_t  choice_t;


/* What was tried to choose for a size, and what others' choices take there */
typedef struct {
    bool                   is_known;
    ucs_status_t           status;
    unsigned               num_tried; /* of the trials: up to here */
    choice_t               choice;
    uct_cuda_coll_trials_t *trials;
} point_t;


/* A plan of many steps that others are made like */
typedef struct {
    uint64_t             used; /* the last time; 0: none */
    choice_t             choice;
    bool                 is_in_place;
    uct_cuda_coll_plan_t plan;
} kept_t;


typedef struct {
    bool                    is_used;
    int                     kind;
    unsigned                root;
    uint64_t                used;                   /* the last time */
    uct_cuda_coll_forests_t forests;
    point_t                 points[2][NUM_POINTS];  /* in place, too */
    kept_t                  kept[NUM_KEPT];
} page_t;


struct uct_cuda_coll_book {
    uint64_t uses;
    page_t   pages[NUM_PAGES];
};


uct_cuda_coll_book_t *uct_cuda_coll_book_create(void)
{
    return calloc(1, sizeof(uct_cuda_coll_book_t));
}

static void page_release(page_t *page)
{
    unsigned in_place, i;

    uct_cuda_coll_forests_release(&page->forests);
    for (i = 0; i < NUM_KEPT; ++i) {
        uct_cuda_coll_plan_release(&page->kept[i].plan);
    }
    for (in_place = 0; in_place < 2; ++in_place) {
        for (i = 0; i < NUM_POINTS; ++i) {
            free(page->points[in_place][i].trials);
        }
    }
    memset(page, 0, sizeof(*page));
}

void uct_cuda_coll_book_destroy(uct_cuda_coll_book_t *book)
{
    unsigned i;

    for (i = 0; (book != NULL) && (i < NUM_PAGES); ++i) {
        page_release(&book->pages[i]);
    }
    free(book);
}

/* That of a kind and root; the one that was not needed for longest if there is
 * none */
static page_t *find_page(uct_cuda_coll_book_t *book, const request_t *request)
{
    page_t *page = &book->pages[0];
    unsigned i;

    ++book->uses;
    for (i = 0; i < NUM_PAGES; ++i) {
        if (book->pages[i].is_used && (book->pages[i].kind == request->kind) &&
            (book->pages[i].root == request->root)) {
            page = &book->pages[i];
            goto out;
        }
        if (book->pages[i].used < page->used) {
            page = &book->pages[i];
        }
    }

    page_release(page);
    page->is_used = true;
    page->kind    = request->kind;
    page->root    = request->root;

out:
    page->used = book->uses;
    return page;
}

static uint64_t bytes_of(unsigned point)
{
    return (uint64_t)(8 + point % 8) << (FIRST_OCTAVE + point / 8 - 3);
}

/* The same collective of so many bytes, all blocks alike */
static request_t request_of(const request_t *request, uint64_t bytes)
{
    const unsigned parts = uct_cuda_coll_kind_has_blocks(request->kind) ?
                                   request->num_ranks :
                                   1;
    request_t priced     = *request;

    priced.counts  = NULL;
    priced.element = ELEMENT;
    priced.count   = bytes / ELEMENT / parts;
    return priced;
}

/* Filled when first asked for; UCS_ERR_NO_MEMORY is not remembered */
static point_t *find_point(page_t *page, const request_t *request,
                           unsigned index)
{
    point_t *point         = &page->points[request->is_in_place][index];
    const request_t priced = request_of(request, bytes_of(index));

    if (!point->is_known) {
        point->trials = calloc(1, sizeof(*point->trials));
        point->status = (point->trials == NULL) ?
                                UCS_ERR_NO_MEMORY :
                                uct_cuda_coll_choose(&priced, &page->forests,
                                                     point->trials,
                                                     &point->choice);
        point->is_known = (point->status != UCS_ERR_NO_MEMORY);
        if (point->is_known) {
            point->num_tried = point->trials->count;
        } else {
            free(point->trials);
            point->trials = NULL;
        }
    }
    return point;
}

/* As of priced sizes, but times are not exact: with as much to gain as there, a
 * choice may be missed by what they are wrong */
static bool is_better(const choice_t *choice, const choice_t *best)
{
    const bool is_more = (best->kernels && !choice->kernels) ||
                         (choice->multipath && !best->multipath);

    return (best->seconds == 0) ||
           (choice->seconds * (is_more ? MIN_GAIN_MORE : MIN_GAIN) <
            best->seconds);
}

/* What a choice takes at a priced size. DBL_MAX: it cannot be made there */
static ucs_status_t find_seconds(page_t *page, const request_t *request,
                                 unsigned index, const choice_t *choice,
                                 double *seconds_p)
{
    point_t *point = &page->points[request->is_in_place][index];
    uct_cuda_coll_trials_t *trials = point->trials;
    const request_t priced         = request_of(request, bytes_of(index));
    choice_t trial                 = *choice;
    ucs_status_t status;
    unsigned i;

    for (i = 0; i < trials->count; ++i) {
        if (uct_cuda_coll_choice_is_same(&trials->choices[i], choice)) {
            *seconds_p = trials->choices[i].seconds;
            return UCS_OK;
        }
    }

    trial.seconds = DBL_MAX;
    status        = uct_cuda_coll_price(&priced, &page->forests, choice,
                                        &trial.seconds);
    if ((status != UCS_ERR_NO_MEMORY) &&
        (trials->count < UCT_CUDA_COLL_MAX_TRIALS)) {
        trials->choices[trials->count++] = trial;
    }
    *seconds_p = trial.seconds;
    return (status == UCS_ERR_NO_MEMORY) ? status : UCS_OK;
}

/* What is best so far of the way from a priced size to the next, 0 to 1, of
 * what comes near the best of one of the two: times are straight lines */
static ucs_status_t choose_between(page_t *page, const request_t *request,
                                   unsigned index, unsigned of, double share,
                                   choice_t *best)
{
    const point_t *point = &page->points[request->is_in_place][index + of];
    ucs_status_t status  = UCS_OK;
    double low, high;
    choice_t trial;
    unsigned i;

    for (i = 0; (i < point->num_tried) && (status == UCS_OK); ++i) {
        trial = point->trials->choices[i];
        if ((trial.seconds > NEAR * point->choice.seconds) ||
            ((request->multipath == 1) &&
             (trial.multipath != point->choice.multipath))) {
            continue;
        }

        low    = trial.seconds;
        high   = trial.seconds;
        status = find_seconds(page, request, index + !of, &trial,
                              of ? &low : &high);
        trial.seconds = (1 - share) * low + share * high;
        if ((status == UCS_OK) && is_better(&trial, best)) {
            *best = trial;
        }
    }
    return status;
}

/* What is chosen for so many bytes in blocks that are much alike */
static ucs_status_t choose(page_t *page, const request_t *request,
                           uint64_t bytes, choice_t *choice)
{
    const uint64_t within = ucs_max(ucs_min(bytes, bytes_of(NUM_POINTS - 1)),
                                    bytes_of(0));
    const unsigned octave = 63 - (unsigned)__builtin_clzll(within);
    const unsigned index  = 8 * (octave - FIRST_OCTAVE) +
                           ((within >> (octave - 3)) & 7);
    const double share    = (double)(within - bytes_of(index)) /
                         (double)(bytes_of(index + 1) - bytes_of(index));
    const point_t *point  = find_point(page, request, index);
    ucs_status_t status   = point->status;
    unsigned of;

    *choice = point->choice;
    if ((status != UCS_OK) || (share == 0)) {
        return status;
    }

    status          = find_point(page, request, index + 1)->status;
    choice->seconds = 0;
    for (of = 0; (of < 2) && (status == UCS_OK); ++of) {
        status = choose_between(page, request, index, of, share, choice);
    }
    return status;
}

/* Is a block so much longer than others that times are not those of blocks of
 * equal sizes? */
static bool is_uneven(const request_t *request, uint64_t bytes)
{
    uint64_t most = 0;
    unsigned rank;

    for (rank = 0; (request->counts != NULL) && (rank < request->num_ranks);
         ++rank) {
        most = ucs_max(most, request->counts[rank]);
    }
    return most * request->element > 2 * (bytes / request->num_ranks);
}

/* That of a choice; the one that was not needed for longest if there is none */
static kept_t *find_kept(page_t *page, const request_t *request,
                         const choice_t *choice)
{
    kept_t *kept = &page->kept[0];
    kept_t *entry;

    for (entry = page->kept; entry < page->kept + NUM_KEPT; ++entry) {
        if ((entry->used > 0) &&
            uct_cuda_coll_choice_is_same(&entry->choice, choice) &&
            (entry->is_in_place == request->is_in_place)) {
            kept = entry;
            goto out;
        }
        if (entry->used < kept->used) {
            kept = entry;
        }
    }

    uct_cuda_coll_plan_release(&kept->plan);
    kept->choice      = *choice;
    kept->is_in_place = request->is_in_place;

out:
    kept->used = page->used;
    return kept;
}

/* Like the last one of the choice, or to be what others are like */
static ucs_status_t make(page_t *page, const request_t *request,
                         const choice_t *choice, uct_cuda_coll_plan_t *plan)
{
    kept_t *kept        = find_kept(page, request, choice);
    ucs_status_t status = uct_cuda_coll_make(
            request, &page->forests, choice,
            (kept->plan.list.num_steps > 0) ? &kept->plan : NULL, plan);

    if ((status == UCS_OK) && page->is_used &&
        (plan->list.num_steps >= MIN_STEPS) &&
        (plan->list.num_steps != kept->plan.list.num_steps)) {
        uct_cuda_coll_plan_release(&kept->plan);
        kept->plan.num_queues = plan->num_queues;
        if (uct_cuda_steps_copy(&plan->list, &kept->plan.list) != UCS_OK) {
            kept->used = 0;
        }
    }
    return status;
}

static ucs_status_t plan_by(page_t *page, const request_t *request,
                            uct_cuda_coll_plan_t *plan)
{
    ucs_status_t status = UCS_ERR_UNSUPPORTED;
    uct_cuda_coll_plan_t frame;
    choice_t choice;

    memset(plan, 0, sizeof(*plan));
    status = uct_cuda_coll_frame(request, &frame);
    if (status != UCS_OK) {
        return status;
    }

    if ((frame.bytes > 0) && !is_uneven(request, frame.bytes)) {
        status = choose(page, request, frame.bytes, &choice);
        if (status == UCS_OK) {
            status = make(page, request, &choice, plan);
        }
        if ((status == UCS_OK) || (status == UCS_ERR_NO_MEMORY)) {
            return status;
        }
    }

    /* This very size: it may have a plan where those beside it have none */
    status = uct_cuda_coll_choose(request, &page->forests, NULL, &choice);
    return (status == UCS_OK) ? make(page, request, &choice, plan) : status;
}

ucs_status_t uct_cuda_coll_plan(uct_cuda_coll_book_t *book,
                                const request_t *request,
                                uct_cuda_coll_plan_t *plan)
{
    page_t *page = (book == NULL) ? calloc(1, sizeof(*page)) :
                                    find_page(book, request);
    ucs_status_t status;

    if (page == NULL) {
        memset(plan, 0, sizeof(*plan));
        return UCS_ERR_NO_MEMORY;
    }

    status = plan_by(page, request, plan);
    if (book == NULL) {
        page_release(page);
        free(page);
    }
    return status;
}
