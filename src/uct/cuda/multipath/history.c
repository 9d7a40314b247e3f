/* SPDX-License-Identifier: BSD-3-Clause */
/* Contention history of two intervals. */
#include <uct/cuda/multipath/history.h>

#include <ucs/sys/math.h>

#include <string.h>


static void raise_links(uint8_t *counts, const uint8_t *seen, unsigned first,
                        unsigned last)
{
    unsigned link;

    for (link = first; link < last; ++link) {
        counts[link] = ucs_max(counts[link], seen[link]);
    }
}

/* Take the larger value for each link, a word at a time: nearly all are 0, and
 * a running copy calls this several times. */
static void keep_larger(uint8_t *counts, const uint8_t *seen)
{
    unsigned link = 0;
    uint64_t word;

    for (; link + sizeof(word) <= UCT_CUDA_PLAN_NUM_LINKS;
         link += sizeof(word)) {
        memcpy(&word, &seen[link], sizeof(word));
        if (word != 0) {
            raise_links(counts, seen, link, link + sizeof(word));
        }
    }

    raise_links(counts, seen, link, UCT_CUDA_PLAN_NUM_LINKS);
}

void uct_cuda_mp_history_begin(uct_cuda_mp_history_t *history, uint64_t now)
{
    if ((now - history->interval_begin) < UCT_CUDA_MP_HISTORY_INTERVAL) {
        return;
    }

    history->interval_begin = now;
    if (history->until > now) {
        history->intervals[1] = history->intervals[0];
        memset(&history->intervals[0], 0, sizeof(history->intervals[0]));
    } else if (history->until != 0) {
        memset(history->intervals, 0, sizeof(history->intervals)); /* too old */
        history->until = 0;
    }
}

void uct_cuda_mp_history_add(uct_cuda_mp_history_t *history,
                             const uct_cuda_plan_load_t *load, uint64_t now)
{
    history->until = now + UCT_CUDA_MP_HISTORY_KEEP;
    keep_larger(history->intervals[0].active, load->active);
    keep_larger(history->intervals[0].direct, load->direct);
}

void uct_cuda_mp_history_end(uct_cuda_mp_history_t *history, uint64_t bytes,
                             bool is_crossed)
{
    __atomic_store_n(&history->uncrossed,
                     is_crossed ? 0 : (history->uncrossed + bytes),
                     __ATOMIC_RELAXED);
}

void uct_cuda_mp_history_recall(const uct_cuda_mp_history_t *history,
                                uint64_t now, uct_cuda_plan_load_t *load)
{
    unsigned i;

    load->uncrossed = history->uncrossed;
    for (i = 0; (history->until > now) && (i < 2); ++i) {
        keep_larger(load->active, history->intervals[i].active);
        keep_larger(load->direct, history->intervals[i].direct);
    }
}
