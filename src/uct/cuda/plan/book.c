/* SPDX-License-Identifier: BSD-3-Clause */
/* Sizes with a choice, and plans used as templates. */
#include <uct/cuda/plan/book.h>

#include <ucs/sys/math.h>

#include <stdlib.h>
#include <string.h>


/* Sizes with a choice, bytes of all blocks: 4 KiB to 16 GiB, eight for each
 * doubling. Below, choices do not differ; above, scratch memory limits the
 * chunks. */
#define FIRST_OCTAVE 12
#define LAST_OCTAVE  34
#define NUM_POINTS   (8 * (LAST_OCTAVE - FIRST_OCTAVE) + 1)

/* Cached pairs of kind and root; the trees of a root take some 100 KB */
#define NUM_PAGES 8

/* Cached plans of each pair, and the steps from which a plan is worth caching:
 * a step takes about 100 bytes */
#define NUM_KEPT  4
#define MIN_STEPS 200

/* Element size assumed for the choices, bytes */
#define ELEMENT 4


typedef uct_cuda_coll_request_t request_t;
typedef uct_cuda_coll_choice_t  choice_t;


/* Choice for a size */
typedef struct {
    bool         is_known;
    ucs_status_t status;
    choice_t     choice;
} point_t;


/* Plan of many steps, used as a template */
typedef struct {
    uint64_t             used; /* time of last use; 0: empty */
    choice_t             choice;
    bool                 is_in_place;
    uct_cuda_coll_plan_t plan;
} kept_t;


typedef struct {
    bool                    is_used;
    int                     kind;
    unsigned                root;
    uint64_t                used;                   /* time of last use */
    uct_cuda_coll_forests_t forests;
    point_t                 points[2][NUM_POINTS];  /* out of place, in place */
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
    unsigned i;

    uct_cuda_coll_forests_release(&page->forests);
    for (i = 0; i < NUM_KEPT; ++i) {
        uct_cuda_coll_plan_release(&page->kept[i].plan);
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

/* Return the entry of a kind and root, or the least recently used one */
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

/* Return the choice for the same collective with this many bytes in equal
 * blocks. It is made at the first request; UCS_ERR_NO_MEMORY is not cached. */
static ucs_status_t find_choice(page_t *page, const request_t *request,
                                unsigned index, choice_t *choice)
{
    const unsigned parts = uct_cuda_coll_kind_has_blocks(request->kind) ?
                                   request->num_ranks :
                                   1;
    point_t *point       = &page->points[request->is_in_place][index];
    request_t alike      = *request;

    if (!point->is_known) {
        alike.counts    = NULL;
        alike.element   = ELEMENT;
        alike.count     = bytes_of(index) / ELEMENT / parts;
        point->status   = uct_cuda_coll_choose(&alike, &page->forests,
                                               &point->choice);
        point->is_known = (point->status != UCS_ERR_NO_MEMORY);
    }

    *choice = point->choice;
    return point->status;
}

/* Return the index of the nearest size with a choice */
static unsigned nearest(uint64_t bytes)
{
    const uint64_t within = ucs_max(ucs_min(bytes, bytes_of(NUM_POINTS - 1)),
                                    bytes_of(0));
    const unsigned octave = 63 - (unsigned)__builtin_clzll(within);

    return 8 * (octave - FIRST_OCTAVE) +
           (unsigned)(((within >> (octave - 4)) - 16 + 1) / 2);
}

/* Return whether a block is so much longer than others that times of equal
 * blocks do not apply */
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

/* Return the cached plan of a choice, or the least recently used entry */
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

/* Make a plan from the choice's cached template, or make it the template */
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
        status = find_choice(page, request, nearest(frame.bytes), &choice);
        if (status == UCS_OK) {
            status = make(page, request, &choice, plan);
        }
        if ((status == UCS_OK) || (status == UCS_ERR_NO_MEMORY)) {
            return status;
        }
    }

    /* choose for this very size: it may have a plan where its neighbours have
     * none */
    status = uct_cuda_coll_choose(request, &page->forests, &choice);
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
