/* SPDX-License-Identifier: BSD-3-Clause */
/* Contention history of two intervals. */
#include <uct/cuda/multipath/meetings.h>

#include <ucs/sys/math.h>

#include <string.h>


static void raise_lanes(uint8_t *counts, const uint8_t *seen, unsigned first,
                        unsigned last)
{
    unsigned lane;

    for (lane = first; lane < last; ++lane) {
        counts[lane] = ucs_max(counts[lane], seen[lane]);
    }
}

/* Take the larger value for each link, a word at a time: nearly all are 0, and
 * a running copy calls this several times. */
static void keep_larger(uint8_t *counts, const uint8_t *seen)
{
    unsigned lane = 0;
    uint64_t word;

    for (; lane + sizeof(word) <= UCT_CUDA_MP_NUM_LANES; lane += sizeof(word)) {
        memcpy(&word, &seen[lane], sizeof(word));
        if (word != 0) {
            raise_lanes(counts, seen, lane, lane + sizeof(word));
        }
    }

    raise_lanes(counts, seen, lane, UCT_CUDA_MP_NUM_LANES);
}

void uct_cuda_mp_meetings_begin(uct_cuda_mp_meetings_t *meetings, uint64_t now)
{
    if ((now - meetings->turned) < UCT_CUDA_MP_MEETINGS_TURN) {
        return;
    }

    meetings->turned = now;
    if (meetings->until > now) {
        meetings->turns[1] = meetings->turns[0];
        memset(&meetings->turns[0], 0, sizeof(meetings->turns[0]));
    } else if (meetings->until != 0) {
        memset(meetings->turns, 0, sizeof(meetings->turns)); /* too old */
        meetings->until = 0;
    }
}

void uct_cuda_mp_meetings_add(uct_cuda_mp_meetings_t *meetings,
                              const uct_cuda_mp_load_t *load, uint64_t now)
{
    meetings->until = now + UCT_CUDA_MP_MEETINGS_KEEP;
    keep_larger(meetings->turns[0].active, load->active);
    keep_larger(meetings->turns[0].direct, load->direct);
}

void uct_cuda_mp_meetings_end(uct_cuda_mp_meetings_t *meetings, uint64_t bytes,
                              bool is_crossed)
{
    meetings->uncrossed = is_crossed ? 0 : (meetings->uncrossed + bytes);
}

void uct_cuda_mp_meetings_recall(const uct_cuda_mp_meetings_t *meetings,
                                 uint64_t now, uct_cuda_mp_load_t *load)
{
    unsigned i;

    load->uncrossed = meetings->uncrossed;
    for (i = 0; (meetings->until > now) && (i < 2); ++i) {
        keep_larger(load->active, meetings->turns[i].active);
        keep_larger(load->direct, meetings->turns[i].direct);
    }
}
