/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi/rank_check.h>

#include <mpi/symbols.h>
#include <mpi/pmpi.h>

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>


static struct {
    bool is_starting; /* inside MPI_Init() */
    bool has_pmix;    /* the key is published */
    int  socket;      /* bound to this rank's name; -1: none */
} state = {.socket = -1};

/* Number of this library variant: variants for one MPI wrap different functions
   and must not be mixed */
static unsigned variant(void)
{
    return ucx_mp_mpi_pmpi.is_newer ? 3 : 4;
}


/* ------------------------------------------------------------------- PMIx */

/* PMIx interface, versions 2 to 5 of the standard: data structures from its
   text, numbers from its reference implementation */
#define PMIX_MAX_NSLEN  255
#define PMIX_MAX_KEYLEN 511
#define PMIX_SUCCESS    0
#define PMIX_GLOBAL     3
#define PMIX_BOOL       1
#define PMIX_UINT64     15
#define PMIX_IMMEDIATE  "pmix.immediate"

typedef struct {
    char     nspace[PMIX_MAX_NSLEN + 1];
    uint32_t rank;
} pmix_proc_t;

typedef struct {
    uint16_t type;
    union {
        bool     flag;
        uint64_t uint64;
        void     *words[3]; /* size of the largest member */
    } data;
} pmix_value_t;

typedef struct {
    char         key[PMIX_MAX_KEYLEN + 1];
    uint32_t     flags;
    pmix_value_t value;
} pmix_info_t;

typedef int (*pmix_commit_func_t)(void);
typedef int (*pmix_put_func_t)(uint8_t scope, const char key[],
                               pmix_value_t *value);
typedef int (*pmix_get_func_t)(const pmix_proc_t *proc, const char key[],
                               const pmix_info_t *info, size_t num_info,
                               pmix_value_t **value_p);

#define KEY "ucx-cuda-multipath"

/* Publish this library's key together with the MPI's, and call the real
   function */
__attribute__((visibility("default"))) int PMIx_Commit(void)
{
    pmix_commit_func_t commit = (pmix_commit_func_t)ucx_mp_mpi_symbol_of_others(
        "PMIx_Commit");
    pmix_put_func_t put = (pmix_put_func_t)ucx_mp_mpi_symbol_of_others(
        "PMIx_Put");
    pmix_value_t value = {.type = PMIX_UINT64, .data.uint64 = variant()};

    if (state.is_starting && !state.has_pmix && (put != NULL)) {
        state.has_pmix = (put(PMIX_GLOBAL, KEY, &value) == PMIX_SUCCESS);
    }
    return (commit != NULL) ? commit() : -1; /* PMIX_ERROR */
}

static bool pmix_has(pmix_get_func_t get, int rank)
{
    const char *name    = getenv("PMIX_NAMESPACE");
    pmix_info_t info    = {.key   = PMIX_IMMEDIATE,
                           .value = {.type = PMIX_BOOL, .data.flag = true}};
    pmix_proc_t proc    = {.rank = rank};
    pmix_value_t *value = NULL;
    bool has;

    snprintf(proc.nspace, sizeof(proc.nspace), "%s",
             (name == NULL) ? "" : name);
    if (get(&proc, KEY, &info, 1, &value) != PMIX_SUCCESS) {
        return false;
    }

    has = (value->data.uint64 == variant());
    free(value); /* a number owns no other memory */
    return has;
}


/* -------------------------------------------------------------------- PMI */

/* Make the socket name of a rank. It contains the process id of the node's
   launcher, found at the other end of the PMI socket. @return false:
   unknown. */
static bool socket_name(struct sockaddr_un *name, socklen_t *length_p, int rank)
{
    const char *fd    = getenv("PMI_FD");
    struct ucred peer = {.pid = 0};
    socklen_t length  = sizeof(peer);

    if ((fd == NULL) ||
        (getsockopt(atoi(fd), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) ||
        (peer.pid == 0)) {
        return false;
    }

    /* starts with a zero: abstract name, no file */
    memset(name, 0, sizeof(*name));
    name->sun_family = AF_UNIX;
    *length_p        = offsetof(struct sockaddr_un, sun_path) + 1 +
                snprintf(name->sun_path + 1, sizeof(name->sun_path) - 1,
                         "ucx-mp-%u-rank-%d-%d-%d", variant(), (int)geteuid(),
                         (int)peer.pid, rank);
    return true;
}

static void socket_begin(void)
{
    const char *rank = getenv("PMI_RANK");
    struct sockaddr_un name;
    socklen_t length;
    int fd;

    if ((rank == NULL) || !socket_name(&name, &length, atoi(rank))) {
        return;
    }

    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if ((fd >= 0) && (bind(fd, (struct sockaddr*)&name, length) != 0)) {
        close(fd);
        fd = -1;
    }
    state.socket = fd;
}

static bool socket_has(int rank)
{
    struct sockaddr_un name;
    bool has = false;
    socklen_t length;
    int fd;

    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        has = socket_name(&name, &length, rank) &&
              (connect(fd, (struct sockaddr*)&name, length) == 0);
        close(fd);
    }
    return has;
}


/* ------------------------------------------------------------------- both */

void ucx_mp_mpi_rank_check_begin(void)
{
    state.is_starting = true;
    socket_begin();
}

ucx_mp_mpi_rank_check_t ucx_mp_mpi_rank_check_run(int size, int *first_p,
                                                  int *missing_p)
{
    pmix_get_func_t get = NULL;
    int rank;
    bool has;

    state.is_starting = false;
    *first_p          = -1;
    *missing_p        = -1;
    if (state.has_pmix) {
        get = (pmix_get_func_t)ucx_mp_mpi_symbol_of_others("PMIx_Get");
    }
    if ((get == NULL) && (state.socket < 0)) {
        return UCX_MP_MPI_RANK_CHECK_UNKNOWN;
    }

    for (rank = 0; (rank < size) && ((*first_p < 0) || (*missing_p < 0));
         ++rank) {
        has = (get != NULL) ? pmix_has(get, rank) : socket_has(rank);
        if (has && (*first_p < 0)) {
            *first_p = rank;
        } else if (!has && (*missing_p < 0)) {
            *missing_p = rank;
        }
    }
    if (*missing_p < 0) {
        return UCX_MP_MPI_RANK_CHECK_ALL;
    }

    /* Ranks may still be looking: keep the name bound until the process ends */
    state.socket = -1;
    return UCX_MP_MPI_RANK_CHECK_SOME;
}

void ucx_mp_mpi_rank_check_end(void)
{
    if (state.socket >= 0) {
        close(state.socket);
        state.socket = -1;
    }
}
