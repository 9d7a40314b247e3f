/* SPDX-License-Identifier: BSD-3-Clause */
/* The model's choice, and the search for the best one. */
#include "tool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>


/* Relays that are tried: the best by bandwidth */
#define MAX_RELAYS 6

#define MAX_SETS (1u << (MAX_RELAYS + 2))

/* Sets of paths that are searched in depth */
#define MAX_DEEP 24

/* Times that differ by less are the same */
#define SAME 1e-6

/* No path carries less: it could as well be left out */
#define MIN_SHARE 0.002


typedef ucx_mp_tune_choice_t choice_t;

typedef struct {
    const ucx_mp_tune_case_t *tune;
    uct_cuda_mp_config_t     config; /* names what is to be tried */
    uct_cuda_mp_plan_t       plan;
    unsigned                 num_relays;
    int                      relays[UCT_CUDA_MAX_GPUS]; /* the best first */
    bool                     has_host;
    unsigned long            plays;
} search_t;


static const unsigned chunk_counts[] = {1,  2,  3,  4,  5,  6,  7,  8,  10, 12,
                                        14, 16, 18, 20, 24, 28, 32};

#define NUM_CHUNK_COUNTS (sizeof(chunk_counts) / sizeof(chunk_counts[0]))


static double min_double(double a, double b)
{
    return (a < b) ? a : b;
}

static double relay_bandwidth(const ucx_mp_tune_case_t *tune, int relay)
{
    return min_double(tune->topo->links[tune->src][relay].bandwidth,
                      tune->topo->links[relay][tune->dst].bandwidth);
}

/* By bandwidth, then as they follow the source */
static void find_relays(search_t *search)
{
    const ucx_mp_tune_case_t *tune = search->tune;
    int num                        = tune->topo->num_gpus;
    unsigned i;
    int n, relay;

    for (n = 1; n < num; ++n) {
        relay = (tune->src + n) % num;
        if ((relay == tune->dst) || !(relay_bandwidth(tune, relay) > 0)) {
            continue;
        }

        for (i = search->num_relays++;
             (i > 0) && (relay_bandwidth(tune, search->relays[i - 1]) <
                         relay_bandwidth(tune, relay));
             --i) {
            search->relays[i] = search->relays[i - 1];
        }
        search->relays[i] = relay;
    }
}

static search_t *search_create(const ucx_mp_tune_case_t *tune)
{
    search_t *search = calloc(1, sizeof(*search));

    if (search == NULL) {
        ucx_mp_tune_die("out of memory");
    }

    search->tune            = tune;
    search->config          = *tune->config;
    search->config.enable   = UCT_CUDA_MP_YES;
    search->config.min_size = 0;
    search->has_host        = tune->config->host != UCT_CUDA_MP_NO;
    find_relays(search);
    return search;
}

/* What a plan has of a choice */
static void choice_of_plan(const search_t *search, choice_t *choice)
{
    const uct_cuda_mp_plan_t *plan = &search->plan;
    const uct_cuda_mp_plan_path_t *part;
    unsigned i;

    memset(choice, 0, sizeof(*choice));
    if (plan->num_paths == 0) {
        choice->count     = 1;
        choice->shares[0] = 1;
        choice->paths[0]  = (uct_cuda_mp_path_t){UCT_CUDA_MP_ROUTE_DIRECT, 0};
        return;
    }

    choice->count = plan->num_paths;
    for (i = 0; i < plan->num_paths; ++i) {
        part              = &plan->paths[i];
        choice->paths[i]  = part->path;
        choice->shares[i] = (double)part->bytes / plan->size;
        if (part->slots > 0) {
            choice->chunks[i] = part->chunks;
        }
    }
}

/* The whole transfer, piece by piece as the engine cuts it. Seconds; and, in
 * path_p unless NULL, when the paths end. The last plan stays. */
static double play(search_t *search, const uct_cuda_mp_config_t *config,
                   double *predicted_p, double *path_p)
{
    const uct_cuda_mp_load_t idle      = {.is_known  = true,
                                          .uncrossed = UINT64_MAX};
    const uct_cuda_mp_knowledge_t know = {
        .topo = search->tune->topo, .config = config, .load = &idle,
        .tuning = search->tune->table
    };
    const ucx_mp_tune_case_t *tune = search->tune;
    const uct_cuda_end_t src       = uct_cuda_end_gpu(tune->src);
    const uct_cuda_end_t dst       = uct_cuda_end_gpu(tune->dst);
    size_t most                    = uct_cuda_mp_plan_max_size(config);
    size_t pieces                  = (tune->size + most - 1) / most;
    size_t piece                   = (tune->size + pieces - 1) / pieces;
    size_t left                    = tune->size;
    uct_cuda_mp_plan_t *plan       = &search->plan;

    ++search->plays;
    *predicted_p = 0;
    if (pieces > 1) {
        piece = (piece + UCT_CUDA_MP_ALIGN - 1) & ~(UCT_CUDA_MP_ALIGN - 1);
    }

    uct_cuda_mp_plan_make(&know, src, dst, piece, plan);
    if (plan->num_paths == 0) {
        *predicted_p = plan->single_seconds * pieces;
        return ucx_mp_player_single(tune->player, tune->src, tune->dst,
                                    tune->size);
    }

    ucx_mp_player_begin(tune->player);
    while (left > 0) {
        piece = (left < piece) ? left : piece;
        if (piece != plan->size) {
            uct_cuda_mp_plan_make(&know, src, dst, piece, plan);
            if (plan->num_paths == 0) {
                uct_cuda_mp_plan_single(src, dst, uct_cuda_end_none(),
                                        piece, plan);
            }
        }

        ucx_mp_player_submit(tune->player, plan);
        *predicted_p += plan->seconds;
        left         -= piece;
    }

    return ucx_mp_player_finish(tune->player, path_p);
}

/* Play a choice; false if the planner would not have it */
static bool play_choice(search_t *search, choice_t *choice, double *path_p)
{
    uct_cuda_mp_config_t *config = &search->config;
    double predicted;

    config->num_paths = config->num_shares = choice->count;
    config->num_chunks                     = choice->count;
    memcpy(config->paths, choice->paths, sizeof(config->paths));
    memcpy(config->shares, choice->shares, sizeof(config->shares));
    memcpy(config->chunks, choice->chunks, sizeof(config->chunks));
    choice->seconds = play(search, config, &predicted, path_p);
    return (search->plan.num_paths == choice->count) || (choice->count == 1);
}

void ucx_mp_tune_model(const ucx_mp_tune_case_t *tune,
                       ucx_mp_tune_found_t *found)
{
    search_t *search = search_create(tune);
    double seconds;

    seconds = play(search, tune->config, &found->predicted, NULL);
    choice_of_plan(search, &found->model);
    found->model.seconds = seconds;
    found->best          = found->model;
    found->single        = ucx_mp_player_single(tune->player, tune->src,
                                                tune->dst, tune->size);
    found->plays         = search->plays;
    free(search);
}


/* ------------------------------------------------------------------ search */

static bool is_better(const choice_t *a, const choice_t *b)
{
    return a->seconds < b->seconds * (1 - SAME);
}

static bool try_choice(search_t *search, choice_t *candidate, choice_t *best)
{
    if (play_choice(search, candidate, NULL) && is_better(candidate, best)) {
        *best = *candidate;
        return true;
    }

    return false;
}

static void normalise(choice_t *choice)
{
    double sum = 0;
    unsigned i;

    for (i = 0; i < choice->count; ++i) {
        choice->shares[i] = fmax(choice->shares[i], MIN_SHARE);
        sum              += choice->shares[i];
    }

    for (i = 0; i < choice->count; ++i) {
        choice->shares[i] /= sum;
    }
}

/* More to paths that end early. Keeps the best of what comes by. */
static bool balance(search_t *search, const choice_t *from, unsigned rounds,
                    choice_t *best)
{
    double path[UCT_CUDA_MP_MAX_PATHS];
    choice_t choice  = *from;
    bool is_improved = false;
    unsigned i;

    while (play_choice(search, &choice, path)) {
        if (is_better(&choice, best)) {
            *best       = choice;
            is_improved = true;
        }

        if ((rounds-- == 0) || (choice.count < 2)) {
            break;
        }

        for (i = 0; i < choice.count; ++i) {
            choice.shares[i] /= path[i];
        }
        normalise(&choice);
    }

    return is_improved;
}

/* From one path to another, or to and from all others alike (to, from ==
 * count) */
static bool move_share(const choice_t *best, unsigned from, unsigned to,
                       double step, choice_t *choice)
{
    *choice = *best;
    if (from < best->count) {
        choice->shares[from] -= step;
    }

    if (to < best->count) {
        choice->shares[to] += step;
    }

    if ((from == to) || ((from < best->count) &&
                         (choice->shares[from] < MIN_SHARE))) {
        return false;
    }

    normalise(choice);
    return true;
}

static bool search_shares(search_t *search, choice_t *best, double step)
{
    bool is_improved = false;
    choice_t choice;
    unsigned from, to;

    if (best->count < 2) {
        return false;
    }

    for (from = 0; from <= best->count; ++from) {
        for (to = 0; to <= best->count; ++to) {
            while (move_share(best, from, to, step, &choice) &&
                   try_choice(search, &choice, best)) {
                is_improved = true;
            }
        }
    }

    return is_improved;
}

/* The next count of chunks up or down that is tried; 0: there is none */
static unsigned next_count(unsigned count, int direction)
{
    unsigned i;

    for (i = 0; (i < NUM_CHUNK_COUNTS) && (chunk_counts[i] < count); ++i) {
    }

    if (direction > 0) {
        i += ((i < NUM_CHUNK_COUNTS) && (chunk_counts[i] == count));
        return (i < NUM_CHUNK_COUNTS) ? chunk_counts[i] : 0;
    }

    return (i > 0) ? chunk_counts[i - 1] : 0;
}

/* One staged path's chunks, or (path == count) all of them */
static bool change_chunks(const choice_t *best, unsigned path, int direction,
                          choice_t *choice)
{
    bool is_changed = false;
    unsigned i, next;

    *choice = *best;
    for (i = 0; i < best->count; ++i) {
        if (((i != path) && (path != best->count)) || (best->chunks[i] == 0)) {
            continue;
        }

        next = next_count(best->chunks[i], direction);
        if (next > 0) {
            choice->chunks[i] = next;
            is_changed        = true;
        }
    }

    return is_changed;
}

static bool search_chunks(search_t *search, choice_t *best)
{
    bool is_improved = false;
    choice_t choice;
    unsigned path;
    int direction;

    for (path = 0; path <= best->count; ++path) {
        for (direction = -1; direction <= 1; direction += 2) {
            while (change_chunks(best, path, direction, &choice) &&
                   balance(search, &choice, 1, best)) {
                is_improved = true;
            }
        }
    }

    return is_improved;
}

static void search_deep(search_t *search, choice_t *best)
{
    static const double steps[] = {0.02, 0.005};
    bool is_improved;
    unsigned i;

    (void)balance(search, best, 4, best);
    for (i = 0; i < sizeof(steps) / sizeof(steps[0]); ++i) {
        do {
            is_improved  = search_chunks(search, best);
            is_improved |= search_shares(search, best, steps[i]);
        } while (is_improved);
    }
}

static void add_path(choice_t *choice, uct_cuda_mp_route_t route, int gpu,
                     unsigned chunks)
{
    choice->paths[choice->count].route = route;
    choice->paths[choice->count].gpu   = gpu;
    choice->shares[choice->count]      = 1;
    choice->chunks[choice->count]      = chunks;
    ++choice->count;
}

/* All paths whose bit is set: direct, host, relays in their order */
static bool make_set(const search_t *search, unsigned bits, unsigned chunks,
                     choice_t *choice)
{
    unsigned i;

    memset(choice, 0, sizeof(*choice));
    if (bits & 1) {
        add_path(choice, UCT_CUDA_MP_ROUTE_DIRECT, 0, 0);
    }

    for (i = 0; (i < search->num_relays) && (i < MAX_RELAYS); ++i) {
        if (bits & (4u << i)) {
            add_path(choice, UCT_CUDA_MP_ROUTE_GPU, search->relays[i], chunks);
        }
    }

    if (bits & 2) {
        add_path(choice, UCT_CUDA_MP_ROUTE_HOST, 0, chunks);
    }

    normalise(choice);
    return choice->count > 0;
}

static int compare_seconds(const void *a, const void *b)
{
    const choice_t *x = a;
    const choice_t *y = b;

    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

/* Sets of relays that are alike take equally long: one of them will do */
static bool is_alike(const choice_t *a, const choice_t *b)
{
    return (a->count == b->count) &&
           (fabs(a->seconds - b->seconds) <= SAME * a->seconds);
}

void ucx_mp_tune_search(const ucx_mp_tune_case_t *tune,
                        ucx_mp_tune_found_t *found)
{
    static const unsigned guesses[] = {1, 2, 4, 10, 24};
    static choice_t sets[MAX_SETS];
    search_t *search = search_create(tune);
    unsigned relays  = (search->num_relays < MAX_RELAYS) ? search->num_relays :
                                                           MAX_RELAYS;
    unsigned count   = 0;
    unsigned deep    = 0;
    choice_t choice;
    unsigned bits, i;

    for (bits = 1; bits < (4u << relays); ++bits) {
        if (((bits & 2) && !search->has_host) ||
            ((unsigned)__builtin_popcount(bits & ~2u) >
             tune->config->max_gpu_paths)) {
            continue;
        }

        sets[count].seconds = INFINITY;
        for (i = 0; i < sizeof(guesses) / sizeof(guesses[0]); ++i) {
            if (make_set(search, bits, guesses[i], &choice)) {
                (void)balance(search, &choice, 2, &sets[count]);
            }
        }
        count += isfinite(sets[count].seconds);
    }

    qsort(sets, count, sizeof(sets[0]), compare_seconds);
    for (i = 0; (i < count) && (deep < MAX_DEEP); ++i) {
        if ((i > 0) && is_alike(&sets[i], &sets[i - 1])) {
            continue;
        }

        choice = sets[i];
        search_deep(search, &choice);
        ++deep;
        if (is_better(&choice, &found->best)) {
            found->best = choice;
        }
    }

    /* And from where the model stands */
    choice = found->model;
    search_deep(search, &choice);
    if (is_better(&choice, &found->best)) {
        found->best = choice;
    }

    found->plays += search->plays;
    free(search);
}

void ucx_mp_tune_choice_print(const ucx_mp_tune_choice_t *choice, FILE *stream)
{
    char name[16];
    unsigned i;

    fprintf(stream, "\"paths\": \"");
    for (i = 0; i < choice->count; ++i) {
        fprintf(stream, "%s%s", (i > 0) ? "," : "",
                uct_cuda_mp_path_str(&choice->paths[i], name, sizeof(name)));
    }

    fprintf(stream, "\", \"shares\": \"");
    for (i = 0; i < choice->count; ++i) {
        fprintf(stream, "%s%.4f", (i > 0) ? "," : "", choice->shares[i]);
    }

    fprintf(stream, "\", \"chunks\": \"");
    for (i = 0; i < choice->count; ++i) {
        fprintf(stream, "%s%u", (i > 0) ? "," : "",
                (choice->chunks[i] > 0) ? choice->chunks[i] : 1);
    }

    fprintf(stream, "\"");
}
