/* SPDX-License-Identifier: BSD-3-Clause */
/* List of the windows with GPU memory. */
#include <mpi/window.h>


unsigned ucx_mp_mpi_num_windows;

static struct {
    pthread_mutex_t     lock;
    ucx_mp_mpi_window_t *first;
} windows = {.lock = PTHREAD_MUTEX_INITIALIZER};


ucx_mp_mpi_window_t *ucx_mp_mpi_window_find(MPI_Win win)
{
    ucx_mp_mpi_window_t *window;

    if (!ucx_mp_mpi_has_windows()) {
        return NULL;
    }

    pthread_mutex_lock(&windows.lock);
    window = windows.first;
    while ((window != NULL) && (window->win != win)) {
        window = window->next;
    }
    pthread_mutex_unlock(&windows.lock);
    return window;
}

void ucx_mp_mpi_window_add(ucx_mp_mpi_window_t *window)
{
    pthread_mutex_lock(&windows.lock);
    window->next  = windows.first;
    windows.first = window;
    pthread_mutex_unlock(&windows.lock);
    __atomic_fetch_add(&ucx_mp_mpi_num_windows, 1, __ATOMIC_RELEASE);
}

void ucx_mp_mpi_window_remove(ucx_mp_mpi_window_t *window)
{
    ucx_mp_mpi_window_t **link = &windows.first;

    pthread_mutex_lock(&windows.lock);
    while (*link != window) {
        link = &(*link)->next;
    }
    *link = window->next;
    pthread_mutex_unlock(&windows.lock);
    __atomic_fetch_sub(&ucx_mp_mpi_num_windows, 1, __ATOMIC_RELEASE);
}
