/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi/module.h>
#include <mpi/rank_check.h>
#include <mpi/job.h>
#include <uct/cuda/base/hash.h>

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>


static const uint32_t no_failures;

ucx_mp_mpi_job_t ucx_mp_mpi_job;
const uint32_t *ucx_mp_mpi_failures = &no_failures;


bool ucx_mp_mpi_on_all(MPI_Comm comm, bool mine)
{
    const int is_mine = mine;
    int is_all        = 0;

    return (ucx_mp_mpi_pmpi.Allreduce(&is_mine, &is_all, 1,
                                      ucx_mp_mpi_pmpi.integer,
                                      ucx_mp_mpi_pmpi.min,
                                      comm) == MPI_SUCCESS) &&
           is_all;
}

int ucx_mp_mpi_machine_color(void)
{
    uint32_t hash  = UCT_CUDA_HASH32;
    char text[512] = "";
    ssize_t length = 0;
    const char *p;
    int fd;

    fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        length = read(fd, text, 64);
        length = (length < 0) ? 0 : length;
        close(fd);
    }

    (void)gethostname(text + length, sizeof(text) / 2);
    for (p = text; *p != '\0'; ++p) {
        hash = uct_cuda_hash32(hash, (unsigned char)*p);
    }
    return (int)(hash & INT_MAX);
}

/* Translate a communicator's ranks to ranks of group `other`; MPI_UNDEFINED:
   not in it. @return An array to free; NULL if the MPI fails. */
static int *ranks_in(MPI_Group other, MPI_Comm comm, int size)
{
    const ucx_mp_mpi_pmpi_t *real = &ucx_mp_mpi_pmpi;
    int *ranks                    = malloc(2 * size * sizeof(*ranks));
    MPI_Group group;
    int i, rc;

    if ((ranks == NULL) || (real->Comm_group(comm, &group) != MPI_SUCCESS)) {
        abort(); /* other ranks rely on this one */
    }

    /* second half: input; first half: output */
    for (i = 0; i < size; ++i) {
        ranks[size + i] = i;
    }
    rc = real->Group_translate_ranks(group, size, ranks + size, other, ranks);
    real->Group_free(&group);
    if (rc != MPI_SUCCESS) {
        free(ranks);
        return NULL;
    }

    return ranks;
}

/* Find the places of a communicator's ranks in the segment; -1: another node.
   @return An array to free; NULL if a rank is not of this program: it may have
   been started without this library. */
static int *places_of(MPI_Comm comm, int size)
{
    int *places = ranks_in(ucx_mp_mpi_job.group, comm, size);
    int i;

    for (i = 0; (places != NULL) && (i < size); ++i) {
        if (places[i] == MPI_UNDEFINED) {
            free(places);
            return NULL;
        }
        places[i] = ucx_mp_mpi_job.places[places[i]];
    }
    return places;
}

bool ucx_mp_mpi_job_has(MPI_Comm comm, int size, bool *is_spread_p)
{
    int *places         = places_of(comm, size);
    const bool is_known = (places != NULL);
    int i;

    *is_spread_p = false;
    for (i = 0; is_known && (i < size); ++i) {
        *is_spread_p |= (places[i] < 0);
    }
    free(places);
    return is_known;
}

uct_cuda_coll_team_t *
ucx_mp_mpi_job_join(MPI_Comm comm, uint64_t key, int rank, int size,
                    uint64_t calls)
{
    const ucx_mp_mpi_job_t *job     = &ucx_mp_mpi_job;
    uct_cuda_coll_team_t *team      = NULL;
    unsigned members[UCT_CUDA_COLL_API_RANKS];
    int *places, i;

    places = (size > UCT_CUDA_COLL_API_RANKS) ? NULL : places_of(comm, size);
    if (places == NULL) {
        return NULL;
    }

    for (i = 0; i < size; ++i) {
        members[i] = (unsigned)places[i];
    }
    free(places);
    return (job->api->team_create(job->segment, key, rank, size, members,
                                  calls, &team) == 0) ?
                   team :
                   NULL;
}

/* Open this node's shared segment. Rank 0 of `local` creates it and broadcasts
   its name. All ranks have finished the split by then, so that a program which
   ends earlier leaves no segment behind. @return Whether this rank has opened
   it. */
static bool segment_open(const uct_cuda_coll_api_t *api, MPI_Comm local,
                         uct_cuda_node_segment_t **segment_p)
{
    const ucx_mp_mpi_pmpi_t *real     = &ucx_mp_mpi_pmpi;
    char name[UCT_CUDA_COLL_API_NAME] = "";
    bool is_open                      = false;
    int rank, size;

    if ((real->Comm_rank(local, &rank) != MPI_SUCCESS) ||
        (real->Comm_size(local, &size) != MPI_SUCCESS)) {
        return false;
    }

    if (rank == 0) {
        is_open = (api->segment_open(0, size, name, segment_p) == 0);
        name[0] = is_open ? name[0] : '\0';
    }
    if (real->Bcast(name, sizeof(name), ucx_mp_mpi_pmpi.byte, 0, local) !=
        MPI_SUCCESS) {
        name[0] = '\0';
    }
    if ((rank != 0) && (name[0] != '\0')) {
        is_open = (api->segment_open(rank, size, name, segment_p) == 0);
    }

    (void)ucx_mp_mpi_on_all(local, is_open);
    if (is_open) {
        api->segment_opened(*segment_p);
    }
    return is_open;
}

/* Set `places` and `is_spread` of the job; `local` holds the ranks of this
   node.
   @return Whether it succeeded. */
static bool places_find(MPI_Comm comm, MPI_Comm local, int size)
{
    ucx_mp_mpi_job_t *job = &ucx_mp_mpi_job;
    MPI_Group group;
    int i;

    if (ucx_mp_mpi_pmpi.Comm_group(local, &group) != MPI_SUCCESS) {
        return false;
    }

    job->places = ranks_in(group, comm, size);
    for (i = 0; (job->places != NULL) && (i < size); ++i) {
        if (job->places[i] == MPI_UNDEFINED) {
            job->places[i]   = -1;
            job->is_spread   = true;
        }
    }
    ucx_mp_mpi_pmpi.Group_free(&group);
    return job->places != NULL;
}

/* Return whether this rank can make the MPI's calls of declined reductions in
   UCX's progress. With MPI_THREAD_MULTIPLE, MPICH holds its locks there. */
static bool can_queue(void)
{
#ifdef OPEN_MPI
    return true;
#else
    int level = MPI_THREAD_MULTIPLE;

    (void)ucx_mp_mpi_pmpi.Query_thread(&level);
    return level != MPI_THREAD_MULTIPLE;
#endif
}

/* Set up GPU collectives; all ranks call this, or none. Sets `api` of the job
   on all ranks, or leaves it NULL on all. */
static void job_join(MPI_Comm comm, int rank, int size)
{
    const ucx_mp_mpi_pmpi_t *real  = &ucx_mp_mpi_pmpi;
    ucx_mp_mpi_job_t *job          = &ucx_mp_mpi_job;
    const uct_cuda_coll_api_t *api = ucx_mp_mpi_module();
    bool is_joined                 = false;
    MPI_Comm local;

    if (!ucx_mp_mpi_on_all(comm, (api != NULL) && api->is_on())) {
        return;
    }

    if (real->Comm_split(comm, ucx_mp_mpi_machine_color(), rank, &local) ==
        MPI_SUCCESS) {
        is_joined = segment_open(api, local, &job->segment) &&
                    (real->Comm_group(comm, &job->group) == MPI_SUCCESS) &&
                    places_find(comm, local, size);
        real->Comm_free(&local);
    }

    if (ucx_mp_mpi_on_all(comm, is_joined)) {
        job->has_rival      = !real->stages &&
                              !ucx_mp_mpi_on_all(comm, api->is_on() == 2);
        job->has_queues     = ucx_mp_mpi_on_all(comm, can_queue());
        job->api            = api;
        ucx_mp_mpi_failures = api->segment_failures(job->segment);
    }
}

/* Print a warning if the module is loaded and collectives are on. `what`:
   format for `missing`, or without a conversion. */
static void job_warn(const char *what, int missing)
{
    const uct_cuda_coll_api_t *api = ucx_mp_mpi_module();

    if ((api != NULL) && api->is_on()) {
        fprintf(stderr, what, missing);
    }
}

void ucx_mp_mpi_job_begin(void)
{
    const MPI_Comm comm = ucx_mp_mpi_pmpi.comm_world;
    int rank, size, first, missing;

    if ((ucx_mp_mpi_pmpi.Comm_rank(comm, &rank) != MPI_SUCCESS) ||
        (ucx_mp_mpi_pmpi.Comm_size(comm, &size) != MPI_SUCCESS) ||
        (size == 1)) {
        return;
    }

    if (ucx_mp_mpi_pmpi.is_newer && (rank == 0)) {
        job_warn("ucx_mp: this MPI has functions of MPI 4, which bypass "
                 "ucx_mp's MPI interposition library, and crash with GPU "
                 "memory if the MPI has no CUDA: load the library whose name "
                 "ends in _mpi4.so\n",
                 0);
    }

    switch (ucx_mp_mpi_rank_check_run(size, &first, &missing)) {
    case UCX_MP_MPI_RANK_CHECK_ALL:
        job_join(comm, rank, size);
        break;
    case UCX_MP_MPI_RANK_CHECK_SOME:
        if (rank == first) {
            job_warn("ucx_mp: rank %d runs without ucx_mp's MPI interposition "
                     "library, or with another variant of it (is it in "
                     "LD_PRELOAD there, and its file on that node?): GPUs "
                     "carry out no collectives of this program\n",
                     missing);
        }
        break;
    default:
        if (rank == 0) {
            job_warn("ucx_mp: ranks were started in a way that does not tell "
                     "whether all of them run with ucx_mp's MPI interposition "
                     "library (mpirun and srun --mpi=pmix do): GPUs carry out "
                     "no collectives of this program\n",
                     0);
        }
        break;
    }
}
