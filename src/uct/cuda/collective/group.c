/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups: made, told what the user says, and gone. */
#include <uct/cuda/collective/group.h>

#include <uct/cuda/base/gpu.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/collective/call.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>


#define BOARD_DIR "/dev/shm"

static struct {
    pthread_mutex_t        lock; /* order: base/thread.h */
    bool                   is_said;
    uct_cuda_coll_config_t said;
    int                    is_on; /* of it, read without the lock */
} config = {.lock = PTHREAD_MUTEX_INITIALIZER};


ucs_status_t uct_cuda_coll_algorithm_parse(const char *name, int *algorithm_p)
{
    static const char *names[] = {
        [UCT_CUDA_COLL_ONE_KERNEL]   = "kernel",
        [UCT_CUDA_COLL_FLAT]         = "flat",
        [UCT_CUDA_COLL_HIERARCHICAL] = "hierarchical",
        [UCT_CUDA_COLL_RING]         = "ring"
    };
    int i;

    *algorithm_p = UCT_CUDA_COLL_AUTO;
    if (strcmp(name, "auto") == 0) {
        return UCS_OK;
    }

    for (i = 0; i < UCT_CUDA_COLL_ALGORITHM_LAST; ++i) {
        if (strcmp(name, names[i]) == 0) {
            *algorithm_p = i;
            return UCS_OK;
        }
    }
    return UCS_ERR_INVALID_PARAM;
}

void uct_cuda_coll_configure(const uct_cuda_coll_config_t *user)
{
    pthread_mutex_lock(&config.lock);
    if (!config.is_said) {
        config.is_said = true;
        config.said    = *user;
        __atomic_store_n(&config.is_on, user->is_on, __ATOMIC_RELEASE);
    } else if ((config.said.is_on != user->is_on) ||
               (config.said.algorithm != user->algorithm) ||
               (config.said.multipath != user->multipath)) {
        uct_cuda_info("UCX_CUDA_IPC_COLLECTIVES* stay as they were when the "
                      "first memory domain was opened");
    }
    pthread_mutex_unlock(&config.lock);
}

int uct_cuda_coll_is_on(void)
{
    const int is_on = __atomic_load_n(&config.is_on, __ATOMIC_ACQUIRE);

    return ((is_on != 0) && (uct_cuda_gpu_count() > 0)) ? is_on : 0;
}


/* ----------------------------------------------------------------- groups */

ucs_status_t uct_cuda_coll_group_board(unsigned rank, unsigned size,
                                       char *name,
                                       uct_cuda_coll_board_t **board_p)
{
    return uct_cuda_coll_board_open(BOARD_DIR, rank, size, name, board_p);
}

ucs_status_t uct_cuda_coll_group_create(uct_cuda_coll_board_t *board,
                                        uint64_t key, unsigned rank,
                                        unsigned size,
                                        const unsigned *members,
                                        uint64_t calls,
                                        uct_cuda_coll_group_t **group_p)
{
    uct_cuda_coll_group_t *group = calloc(1, sizeof(*group));
    uct_cuda_coll_common_t *common;
    uct_cuda_coll_page_t *page;
    ucs_status_t status;

    if (group == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    status = uct_cuda_coll_page_open(board, key, rank, size, members, &page);
    if (status != UCS_OK) {
        uct_cuda_debug("rank %u of %u has no page for collectives (%d)", rank,
                       size, status);
        free(group);
        return status;
    }

    group->agreement.page     = page;
    group->agreement.rank     = rank;
    group->agreement.size     = size;
    group->agreement.sequence = calls;
    group->memory.agreement   = &group->agreement;
    if (rank == 0) {
        common            = uct_cuda_coll_page_common(page);
        common->algorithm = config.said.algorithm;
        common->multipath = config.said.multipath;
    }
    uct_cuda_coll_page_join(page, calls + 1);
    *group_p = group;
    return UCS_OK;
}

void uct_cuda_coll_group_destroy(uct_cuda_coll_group_t *group)
{
    uct_cuda_coll_memory_release(&group->memory);
    uct_cuda_coll_group_drop_programs(group);
    uct_cuda_coll_page_close(group->agreement.page);
    free(group);
}
