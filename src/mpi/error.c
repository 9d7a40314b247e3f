/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi/error.h>

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>


/* Error codes are cached by class and text: an MPI never frees them */
#define MAX_CODES 64

#define REFUSED "%s: a buffer is in GPU memory, which this MPI cannot do in " \
                "this call, and ucx_mp neither"

static struct {
    pthread_mutex_t lock;
    unsigned        count;
    struct {
        int  error_class;
        int  code;
        char text[MPI_MAX_ERROR_STRING];
    } entries[MAX_CODES];
} codes = {.lock = PTHREAD_MUTEX_INITIALIZER};

__thread bool ucx_mp_mpi_raises_later
        __attribute__((tls_model("initial-exec")));


static bool code_new(int error_class, int *code_p)
{
#ifndef OPEN_MPI
    /* MPICH accepts texts for codes of new classes only */
    if (ucx_mp_mpi_pmpi.Add_error_class(&error_class) != MPI_SUCCESS) {
        return false;
    }
#endif
    return ucx_mp_mpi_pmpi.Add_error_code(error_class, code_p) == MPI_SUCCESS;
}

/* Return an error code with this text, or the class itself if no code is
   available */
static int code_of(int error_class, const char *text)
{
    int code = error_class;
    unsigned i;

    pthread_mutex_lock(&codes.lock);
    for (i = 0; i < codes.count; ++i) {
        if ((codes.entries[i].error_class == error_class) &&
            (strcmp(codes.entries[i].text, text) == 0)) {
            code = codes.entries[i].code;
            goto out;
        }
    }

    if ((codes.count < MAX_CODES) &&
        code_new(error_class, &code) &&
        (ucx_mp_mpi_pmpi.Add_error_string(code, text) == MPI_SUCCESS)) {
        codes.entries[codes.count].error_class = error_class;
        codes.entries[codes.count].code        = code;
        snprintf(codes.entries[codes.count].text,
                 sizeof(codes.entries[codes.count].text), "%s", text);
        ++codes.count;
    }

out:
    pthread_mutex_unlock(&codes.lock);
    return code;
}

int ucx_mp_mpi_raise(MPI_Comm comm, int error_class, const char *fmt, ...)
{
    char text[MPI_MAX_ERROR_STRING];
    va_list ap;
    int code;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);

    code = code_of(error_class, text);
    if (!ucx_mp_mpi_raises_later) {
        ucx_mp_mpi_pmpi.Comm_call_errhandler(comm, code);
    }
    return code;
}

int ucx_mp_mpi_raise_win(MPI_Win win, int code)
{
    ucx_mp_mpi_pmpi.Win_call_errhandler(win, code);
    return code;
}

int ucx_mp_mpi_refuse(const char *name, MPI_Comm comm)
{
    return ucx_mp_mpi_raise(comm, MPI_ERR_BUFFER, REFUSED, name);
}

int ucx_mp_mpi_refuse_win(const char *name, MPI_Win win)
{
    char text[MPI_MAX_ERROR_STRING];

    snprintf(text, sizeof(text), REFUSED, name);
    return ucx_mp_mpi_raise_win(win, code_of(MPI_ERR_BUFFER, text));
}

/* Codes of this library have a class of their own under MPICH: return the
   standard one */
UCX_MP_MPI_DEFINE(Error_class, (code, error_class), int code, int *error_class)
{
    unsigned i;
    int rc;

    ucx_mp_mpi_pmpi_find_calls();
    rc = ucx_mp_mpi_pmpi.Error_class(code, error_class);
    pthread_mutex_lock(&codes.lock);
    for (i = 0; (rc == MPI_SUCCESS) && (i < codes.count); ++i) {
        if (codes.entries[i].code == code) {
            *error_class = codes.entries[i].error_class;
        }
    }
    pthread_mutex_unlock(&codes.lock);
    return rc;
}

#ifndef OPEN_MPI

/* Error handlers of the program, of which this library records the errors */
#define MAX_HANDLERS 16

/* Of communicators, and of windows: `handle` points to one */
typedef void handler_t(void *handle, int *code, ...);

static struct {
    pthread_mutex_t lock;
    unsigned        count;
    handler_t       *functions[MAX_HANDLERS];
} handlers = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The handler may call the MPI, too: record the error afterwards */
static void handler_call(unsigned i, void *handle, int *code)
{
    const int given = *code;

    handlers.functions[i](handle, code);
    ucx_mp_mpi_handled.seen = given;
}

#define FOR_EACH_HANDLER(_) \
    _(0) _(1) _(2) _(3) _(4) _(5) _(6) _(7) \
    _(8) _(9) _(10) _(11) _(12) _(13) _(14) _(15)

#define DEFINE_HANDLER(_i) \
    static void handler_##_i(void *handle, int *code, ...) \
    { \
        handler_call(_i, handle, code); \
    }
FOR_EACH_HANDLER(DEFINE_HANDLER)

#define NAME_HANDLER(_i) handler_##_i,
static handler_t *const noticing[MAX_HANDLERS] = {
    FOR_EACH_HANDLER(NAME_HANDLER)
};

/* Return a handler that calls the program's and records the error; or the
   program's own, if it is NULL or there are too many. Fortran's handlers have
   the same arguments. */
static handler_t *handler_noticing(handler_t *function)
{
    unsigned i = 0;

    if (function == NULL) {
        return NULL;
    }

    pthread_mutex_lock(&handlers.lock);
    while ((i < handlers.count) && (handlers.functions[i] != function)) {
        ++i;
    }
    if ((i == handlers.count) && (i < MAX_HANDLERS)) {
        handlers.functions[handlers.count++] = function;
    }
    pthread_mutex_unlock(&handlers.lock);
    return (i < MAX_HANDLERS) ? noticing[i] : function;
}

#define CREATE_HANDLER(_kind) \
    UCX_MP_MPI_DEFINE(_kind##_create_errhandler, (function, handler), \
                      MPI_##_kind##_errhandler_function *function, \
                      MPI_Errhandler *handler) \
    { \
        ucx_mp_mpi_pmpi_find_calls(); \
        return ucx_mp_mpi_pmpi._kind##_create_errhandler( \
                (MPI_##_kind##_errhandler_function*)handler_noticing( \
                        (handler_t*)function), handler); \
    }

CREATE_HANDLER(Comm)
CREATE_HANDLER(Win)
#endif
