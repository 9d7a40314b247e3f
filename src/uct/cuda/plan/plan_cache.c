/* SPDX-License-Identifier: BSD-3-Clause */
/* Sizes with a choice, and plans used as templates. */
#include <uct/cuda/plan/plan_cache.h>

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


typedef uct_cuda_plan_coll_request_t request_t;
typedef uct_cuda_plan_coll_choice_t  choice_t;


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
    uct_cuda_plan_coll_t plan;
} template_t;


typedef struct {
    bool                            is_used;
    int                             kind;
    unsigned                        root;
    uint64_t used;                   /* time of last use */
    uct_cuda_plan_coll_tree_cache_t tree_cache;
    point_t points[2][NUM_POINTS];  /* out of place, in place */
    template_t                      kept[NUM_KEPT];
} cache_record_t;


struct uct_cuda_plan_cache {
    uint64_t       uses;
    cache_record_t records[NUM_PAGES];
};


uct_cuda_plan_cache_t *uct_cuda_plan_cache_create(void)
{
    return calloc(1, sizeof(uct_cuda_plan_cache_t));
}

static void record_release(cache_record_t *record)
{
    unsigned i;

    uct_cuda_plan_coll_tree_cache_release(&record->tree_cache);
    for (i = 0; i < NUM_KEPT; ++i) {
        uct_cuda_plan_coll_release(&record->kept[i].plan);
    }
    memset(record, 0, sizeof(*record));
}

void uct_cuda_plan_cache_destroy(uct_cuda_plan_cache_t *cache)
{
    unsigned i;

    for (i = 0; (cache != NULL) && (i < NUM_PAGES); ++i) {
        record_release(&cache->records[i]);
    }
    free(cache);
}

/* Return the record of the request's kind and root. If there is none, empty the
 * least recently used record and assign it to them. */
static cache_record_t *find_record(uct_cuda_plan_cache_t *cache,
                                   const request_t *request)
{
    cache_record_t *record = &cache->records[0];
    unsigned i;

    ++cache->uses;
    for (i = 0; i < NUM_PAGES; ++i) {
        if (cache->records[i].is_used &&
            (cache->records[i].kind == request->kind) &&
            (cache->records[i].root == request->root)) {
            record = &cache->records[i];
            goto out;
        }
        if (cache->records[i].used < record->used) {
            record = &cache->records[i];
        }
    }

    record_release(record);
    record->is_used = true;
    record->kind    = request->kind;
    record->root    = request->root;

out:
    record->used = cache->uses;
    return record;
}

static uint64_t bytes_of(unsigned point)
{
    return (uint64_t)(8 + point % 8) << (FIRST_OCTAVE + point / 8 - 3);
}

/* Fill in the choice for the same collective of bytes_of(index) bytes in equal
 * blocks. It is made at the first request and cached with its status, except
 * for UCS_ERR_NO_MEMORY. */
static ucs_status_t find_choice(cache_record_t *record,
                                const request_t *request, unsigned index,
                                choice_t *choice)
{
    const unsigned parts = uct_cuda_coll_kind(request->kind)->has_blocks ?
                                   request->num_ranks :
                                   1;
    point_t *point       = &record->points[request->is_in_place][index];
    request_t alike      = *request;

    if (!point->is_known) {
        alike.counts    = NULL;
        alike.element   = ELEMENT;
        alike.count     = bytes_of(index) / ELEMENT / parts;
        point->status   = uct_cuda_plan_coll_choose(&alike, &record->tree_cache,
                                                    &point->choice);
        point->is_known = (point->status != UCS_ERR_NO_MEMORY);
    }

    *choice = point->choice;
    return point->status;
}

/* Return the index, in points, of the size nearest to this one */
static unsigned nearest(uint64_t bytes)
{
    const uint64_t within = ucs_max(ucs_min(bytes, bytes_of(NUM_POINTS - 1)),
                                    bytes_of(0));
    const unsigned octave = 63 - (unsigned)__builtin_clzll(within);

    return 8 * (octave - FIRST_OCTAVE) +
           (unsigned)(((within >> (octave - 4)) - 16 + 1) / 2);
}

/* Return the bytes of equal blocks as large as the largest, whose copies take
 * longest */
static uint64_t even_bytes(const request_t *request, uint64_t bytes)
{
    uint64_t most = 0;
    unsigned rank;

    if (request->counts == NULL) {
        return bytes;
    }

    for (rank = 0; rank < request->num_ranks; ++rank) {
        most = ucs_max(most, request->counts[rank]);
    }
    return most * request->element * request->num_ranks;
}

/* Return the template of a choice. If there is none, empty the least recently
 * used one and assign it to the choice. */
static template_t *find_kept(cache_record_t *record, const request_t *request,
                             const choice_t *choice)
{
    template_t *kept = &record->kept[0];
    template_t *entry;

    for (entry = record->kept; entry < record->kept + NUM_KEPT; ++entry) {
        if ((entry->used > 0) &&
            uct_cuda_plan_coll_choice_is_same(&entry->choice, choice) &&
            (entry->is_in_place == request->is_in_place)) {
            kept = entry;
            goto out;
        }
        if (entry->used < kept->used) {
            kept = entry;
        }
    }

    uct_cuda_plan_coll_release(&kept->plan);
    kept->choice      = *choice;
    kept->is_in_place = request->is_in_place;

out:
    kept->used = record->used;
    return kept;
}

/* Make a plan from the choice's cached template, if there is one. A long plan
 * becomes the template unless one with as many steps is cached. */
static ucs_status_t make(cache_record_t *record, const request_t *request,
                         const choice_t *choice, uct_cuda_plan_coll_t *plan)
{
    template_t *kept    = find_kept(record, request, choice);
    ucs_status_t status = uct_cuda_plan_coll_make(
            request, &record->tree_cache, choice,
            (kept->plan.list.num_steps > 0) ? &kept->plan : NULL, plan);

    if ((status == UCS_OK) && record->is_used &&
        (plan->list.num_steps >= MIN_STEPS) &&
        (plan->list.num_steps != kept->plan.list.num_steps)) {
        uct_cuda_plan_coll_release(&kept->plan);
        kept->plan.num_queues = plan->num_queues;
        if (uct_cuda_plan_steps_copy(&plan->list, &kept->plan.list) != UCS_OK) {
            kept->used = 0;
        }
    }
    return status;
}

static ucs_status_t plan_by(cache_record_t *record, const request_t *request,
                            uct_cuda_plan_coll_t *plan)
{
    ucs_status_t status = UCS_ERR_UNSUPPORTED;
    uct_cuda_plan_coll_t signature;
    choice_t choice;

    memset(plan, 0, sizeof(*plan));
    status = uct_cuda_plan_coll_signature(request, &signature);
    if (status != UCS_OK) {
        return status;
    }

    if (signature.bytes > 0) {
        status = find_choice(record, request,
                             nearest(even_bytes(request, signature.bytes)),
                             &choice);
        if (status == UCS_OK) {
            status = make(record, request, &choice, plan);
        }
        if ((status == UCS_OK) || (status == UCS_ERR_NO_MEMORY)) {
            return status;
        }
    }

    /* The nearest size has no plan: choose for this very size, which may have
     * one */
    status = uct_cuda_plan_coll_choose(request, &record->tree_cache, &choice);
    return (status == UCS_OK) ? make(record, request, &choice, plan) : status;
}

ucs_status_t uct_cuda_plan_cache_get(uct_cuda_plan_cache_t *cache,
                                     const request_t *request,
                                     uct_cuda_plan_coll_t *plan)
{
    cache_record_t *record = (cache == NULL) ? calloc(1, sizeof(*record)) :
                                              find_record(cache, request);
    ucs_status_t status;

    if (record == NULL) {
        memset(plan, 0, sizeof(*plan));
        return UCS_ERR_NO_MEMORY;
    }

    status = plan_by(record, request, plan);
    if (cache == NULL) {
        record_release(record);
        free(record);
    }
    return status;
}
