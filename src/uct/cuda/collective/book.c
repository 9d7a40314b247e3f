/* SPDX-License-Identifier: BSD-3-Clause */
/* Sizes that are priced, and what is chosen between them. */
#include <uct/cuda/collective/book.h>

#include <ucs/sys/math.h>

#include <float.h>
#include <stdlib.h>
#include <string.h>


/* Sizes that are priced, bytes of the whole: 4 KiB to 16 GiB, two an octave.
 * Below all are alike; above, chunks are what scratch memory allows anyway. */
#define FIRST_OCTAVE 12
#define LAST_OCTAVE  34
#define NUM_POINTS   (2 * (LAST_OCTAVE - FIRST_OCTAVE) + 1)

/* Kinds and roots that are remembered; a root's trees take some 100 KB */
#define NUM_PAGES 8

/* What takes longer than this much of the best at two sizes is not the best of
 * those between them */
#define NEAR           1.15
#define MAX_CANDIDATES 48

/* Times are straight lines along so many parts of the way between two sizes */
#define PARTS 4

/* What has more steps is taken if it is so many times faster; and what has
 * copies instead of kernels, or takes other GPUs */
#define MIN_GAIN      1.005
#define MIN_GAIN_MORE 1.01

/* Elements of priced sizes, bytes */
#define ELEMENT 4


typedef uct_cuda_coll_request_t request_t;
typedef uct_cuda_coll_choice_t  choice_t;


/* A choice, and what it takes at a priced size, on the way to the next one, and
 * there */
typedef struct {
    choice_t choice;
    double   seconds[PARTS + 1];
} candidate_t;


/* What may be best between a priced size and the next one */
typedef struct {
    unsigned    count;
    candidate_t candidates[MAX_CANDIDATES];
} between_t;


typedef struct {
    bool                   is_known;
    ucs_status_t           status;
    choice_t               choice;
    uct_cuda_coll_trials_t *trials;
    between_t              *between; /* NULL: not looked for yet */
} point_t;


typedef struct {
    bool                    is_used;
    int                     kind;
    unsigned                root;
    uint64_t                turn;                   /* of the last use */
    uct_cuda_coll_forests_t forests;
    point_t                 points[2][NUM_POINTS];  /* in place, too */
} page_t;


struct uct_cuda_coll_book {
    uint64_t turn;
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
    for (in_place = 0; in_place < 2; ++in_place) {
        for (i = 0; i < NUM_POINTS; ++i) {
            free(page->points[in_place][i].trials);
            free(page->points[in_place][i].between);
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

    ++book->turn;
    for (i = 0; i < NUM_PAGES; ++i) {
        if (book->pages[i].is_used && (book->pages[i].kind == request->kind) &&
            (book->pages[i].root == request->root)) {
            page = &book->pages[i];
            goto out;
        }
        if (book->pages[i].turn < page->turn) {
            page = &book->pages[i];
        }
    }

    page_release(page);
    page->is_used = true;
    page->kind    = request->kind;
    page->root    = request->root;

out:
    page->turn = book->turn;
    return page;
}

static uint64_t bytes_of(unsigned point)
{
    return (uint64_t)(2 + point % 2) << (FIRST_OCTAVE + point / 2 - 1);
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

/* UCS_ERR_NO_MEMORY is not remembered */
static ucs_status_t find_point(page_t *page, const request_t *request,
                               unsigned index)
{
    point_t *point         = &page->points[request->is_in_place][index];
    const request_t priced = request_of(request, bytes_of(index));

    if (point->is_known) {
        return point->status;
    }

    point->trials = calloc(1, sizeof(*point->trials));
    if (point->trials == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    point->status   = uct_cuda_coll_choose(&priced, &page->forests,
                                           point->trials, &point->choice);
    point->is_known = (point->status != UCS_ERR_NO_MEMORY);
    if (!point->is_known) {
        free(point->trials);
        point->trials = NULL;
    }
    return point->status;
}

static bool is_same(const choice_t *a, const choice_t *b)
{
    return (a->algorithm == b->algorithm) && (a->chunks == b->chunks) &&
           (a->slices == b->slices) && (a->depth == b->depth) &&
           (a->kernels == b->kernels) && (a->multipath == b->multipath);
}

/* Infinitely long: it cannot be made */
static ucs_status_t price(page_t *page, const request_t *request,
                          uint64_t bytes, const choice_t *choice,
                          double *seconds_p)
{
    const request_t priced = request_of(request, bytes);
    ucs_status_t status;

    *seconds_p = DBL_MAX;
    status     = uct_cuda_coll_price(&priced, &page->forests, choice,
                                     seconds_p);
    return (status == UCS_ERR_NO_MEMORY) ? status : UCS_OK;
}

/* What a choice takes at a priced size, by what was tried there if it was */
static ucs_status_t find_seconds(page_t *page, const request_t *request,
                                 unsigned index, const choice_t *choice,
                                 double *seconds_p)
{
    const point_t *point = &page->points[request->is_in_place][index];
    unsigned i;

    for (i = 0; i < point->trials->count; ++i) {
        if (is_same(&point->trials->choices[i], choice)) {
            *seconds_p = point->trials->choices[i].seconds;
            return UCS_OK;
        }
    }

    return price(page, request, bytes_of(index), choice, seconds_p);
}

/* Times of a candidate of one end (0 or PARTS), where it has one */
static ucs_status_t find_times(page_t *page, const request_t *request,
                               unsigned index, unsigned of,
                               candidate_t *candidate, bool *exists_p)
{
    const uint64_t low  = bytes_of(index);
    const uint64_t step = (bytes_of(index + 1) - low) / PARTS;
    ucs_status_t status = UCS_OK;
    unsigned i;

    candidate->seconds[of] = candidate->choice.seconds;
    *exists_p              = true;
    for (i = 0; (i <= PARTS) && (status == UCS_OK) && *exists_p; ++i) {
        if ((i == 0) || (i == PARTS)) {
            status = (i == of) ? UCS_OK :
                                 find_seconds(page, request, index + (i > 0),
                                              &candidate->choice,
                                              &candidate->seconds[i]);
        } else {
            status = price(page, request, low + i * step, &candidate->choice,
                           &candidate->seconds[i]);
        }
        *exists_p = (candidate->seconds[i] < DBL_MAX);
    }
    return status;
}

/* What is near the best of a priced size, with its times from there to the
 * other end */
static ucs_status_t add_near(page_t *page, const request_t *request,
                             unsigned index, bool is_high, between_t *between)
{
    const point_t *point = &page->points[request->is_in_place][index + is_high];
    ucs_status_t status  = UCS_OK;
    candidate_t *candidate;
    bool exists;
    unsigned i, j;

    for (i = 0; (i < point->trials->count) &&
                (between->count < MAX_CANDIDATES) && (status == UCS_OK); ++i) {
        candidate         = &between->candidates[between->count];
        candidate->choice = point->trials->choices[i];
        for (j = 0; (j < between->count) &&
                    !is_same(&between->candidates[j].choice,
                             &candidate->choice); ++j) {
        }

        if ((j == between->count) &&
            (candidate->choice.seconds <= NEAR * point->choice.seconds) &&
            ((request->multipath != 1) ||
             (candidate->choice.multipath == point->choice.multipath))) {
            status          = find_times(page, request, index,
                                         is_high ? PARTS : 0, candidate,
                                         &exists);
            between->count += (status == UCS_OK) && exists;
        }
    }
    return status;
}

/* @return NULL without memory, or where one of the two sizes has no plan */
static const between_t *find_between(page_t *page, const request_t *request,
                                     unsigned index)
{
    point_t *point = &page->points[request->is_in_place][index];
    between_t *between;

    if (point->between != NULL) {
        return point->between;
    }

    between = calloc(1, sizeof(*between));
    if ((between == NULL) ||
        (find_point(page, request, index + 1) != UCS_OK) ||
        (add_near(page, request, index, false, between) != UCS_OK) ||
        (add_near(page, request, index, true, between) != UCS_OK)) {
        free(between);
        return NULL;
    }

    point->between = between;
    return between;
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

/* So far of the way from the one priced size to the next, 0 to 1 */
static double seconds_at(const candidate_t *candidate, double share)
{
    const unsigned part = ucs_min((unsigned)(share * PARTS), PARTS - 1);
    const double rest   = share * PARTS - part;

    return (1 - rest) * candidate->seconds[part] +
           rest * candidate->seconds[part + 1];
}

/* What is chosen for so many bytes in blocks that are much alike: times are as
 * good as straight lines from one priced size to the next */
static ucs_status_t choose(page_t *page, const request_t *request,
                           uint64_t bytes, choice_t *choice)
{
    const unsigned octave = 63 - (unsigned)__builtin_clzll(bytes);
    const unsigned index  = (octave < FIRST_OCTAVE) ? 0 :
                            (octave >= LAST_OCTAVE) ? NUM_POINTS - 1 :
                            2 * (octave - FIRST_OCTAVE) +
                            ((bytes >> (octave - 1)) & 1);
    const double rest     = ((double)bytes - (double)bytes_of(index)) /
                        (double)(bytes_of(index + 1) - bytes_of(index));
    const between_t *between;
    choice_t next;
    ucs_status_t status;
    unsigned i;

    status  = find_point(page, request, index);
    *choice = page->points[request->is_in_place][index].choice;
    if ((status != UCS_OK) || (rest <= 0) || (index == NUM_POINTS - 1)) {
        return status;
    }

    between = find_between(page, request, index);
    if (between == NULL) {
        return UCS_ERR_UNSUPPORTED;
    }

    choice->seconds = 0;
    for (i = 0; i < between->count; ++i) {
        next         = between->candidates[i].choice;
        next.seconds = seconds_at(&between->candidates[i], rest);
        if (is_better(&next, choice)) {
            *choice = next;
        }
    }
    return UCS_OK;
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

static ucs_status_t plan_by(page_t *page, const request_t *request,
                            uct_cuda_coll_plan_t *plan)
{
    ucs_status_t status = UCS_ERR_UNSUPPORTED;
    uct_cuda_coll_plan_t shape;
    choice_t choice;

    memset(plan, 0, sizeof(*plan));
    status = uct_cuda_coll_shape(request, &shape);
    if (status != UCS_OK) {
        return status;
    }

    if ((shape.bytes > 0) && !is_uneven(request, shape.bytes)) {
        status = choose(page, request, shape.bytes, &choice);
        if (status == UCS_OK) {
            status = uct_cuda_coll_make(request, &page->forests, &choice,
                                        plan);
        }
        if ((status == UCS_OK) || (status == UCS_ERR_NO_MEMORY)) {
            return status;
        }
    }

    /* This very size: it may have a plan where those beside it have none */
    status = uct_cuda_coll_choose(request, &page->forests, NULL, &choice);
    return (status == UCS_OK) ? uct_cuda_coll_make(request, &page->forests,
                                                   &choice, plan) :
                                status;
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
