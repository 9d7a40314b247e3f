/* SPDX-License-Identifier: BSD-3-Clause */
/* Two events around a copy, and one for each context with known host time.
 * Ended copies are written once enough have accumulated. */
#include <uct/cuda/base/trace.h>

#include <uct/cuda/base/context_data.h>
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/file.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/number.h>
#include <uct/cuda/base/retry.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>


#define MAX_PENDING 256 /* copies until ended ones are written */


/* Clock of a context */
typedef struct {
    CUevent event;
    double  us; /* host time of the event */
} base_t;


struct uct_cuda_trace_copy {
    uct_cuda_trace_copy_t *next;
    uct_cuda_context_t    *context;
    const base_t          *base;
    CUevent               begin;
    CUevent               end;
    size_t                bytes;
    char                  link[32];
    char                  what[24];
    char                  places[96]; /* may be empty */
};


static struct {
    pthread_mutex_t       lock;
    int                   fd;        /* -1: none yet */
    bool                  is_broken; /* writing has failed */
    char                  path[512];
    uct_cuda_trace_copy_t *oldest;
    uct_cuda_trace_copy_t **last;
    unsigned              num_pending;
} trace = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1, .last = &trace.oldest
};

bool uct_cuda_trace_is_on;


static double now(void)
{
    return (double)uct_cuda_now_ns() * 1e-3;
}

/* "gpu0 > gpu1" */
static void name_link(uct_cuda_end_t from, uct_cuda_end_t to, char *link,
                      size_t size)
{
    char ends[2][12];

    snprintf(link, size, "%s > %s",
             uct_cuda_end_str(from, ends[0], sizeof(ends[0])),
             uct_cuda_end_str(to, ends[1], sizeof(ends[1])));
}

/* Return the rank, from an MPI's variables. Perfetto sorts processes by it. */
static const char *rank(void)
{
    static const char *names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK",
                                  "PMI_RANK", "SLURM_PROCID"};
    const char *value          = NULL;
    unsigned i;

    for (i = 0; (i < sizeof(names) / sizeof(names[0])) && (value == NULL);
         ++i) {
        value = getenv(names[i]);
    }

    return ((value == NULL) ||
            (value[strspn(value, "0123456789")] != '\0') || !value[0]) ?
                   "-1" :
                   value;
}

/* Append a line with one call, as several threads may write. A full disk, or a
 * file size limit, ends the trace. */
static void __attribute__((format(printf, 1, 2)))
write_line(const char *format, ...)
{
    char line[512];
    va_list ap;
    int length;

    va_start(ap, format);
    length = uct_cuda_vsnprintf(line, sizeof(line), format, ap);
    va_end(ap);
    if (__atomic_load_n(&trace.is_broken, __ATOMIC_RELAXED) ||
        uct_cuda_file_write(trace.fd, line, (size_t)length, 0) ||
        __atomic_exchange_n(&trace.is_broken, true, __ATOMIC_RELAXED)) {
        return;
    }

    uct_cuda_warn("UCX_CUDA_IPC_MULTIPATH_TRACE: %s: %s; the trace ends here, "
                  "use a directory with more space", trace.path,
                  strerror(errno));
}

void uct_cuda_trace_start(const char *dir)
{
    if (dir[0] == '\0') {
        return;
    }

    pthread_mutex_lock(&trace.lock);
    if (trace.fd < 0) {
        snprintf(trace.path, sizeof(trace.path), "%s/%d.trace", dir,
                 (int)getpid());
        trace.fd = UCT_CUDA_RETRY(open(trace.path,
                                       O_WRONLY | O_CREAT | O_APPEND |
                                               O_CLOEXEC, 0666));
        if (trace.fd < 0) {
            uct_cuda_warn("UCX_CUDA_IPC_MULTIPATH_TRACE: %s: %s; copies are "
                          "not traced", trace.path, strerror(errno));
        } else {
            write_line("{\"process\": %d, \"rank\": %.20s}\n", (int)getpid(),
                       rank());
            uct_cuda_trace_is_on = true;
        }
    }
    pthread_mutex_unlock(&trace.lock);
}

/* Create an event of the current context with known time, in a stream of its
 * own, so that it need not wait for running work */
static ucs_status_t base_create(void *arg)
{
    base_t *base = arg;
    ucs_status_t status;
    CUstream stream;
    double before;

    status = UCT_CUDA_CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    if (status != UCS_OK) {
        return status;
    }

    status = UCT_CUDA_CALL(cuEventCreate, &base->event, CU_EVENT_DEFAULT);
    if (status != UCS_OK) {
        goto out_destroy;
    }

    before = now();
    status = UCT_CUDA_CALL(cuEventRecord, base->event, stream);
    if (status == UCS_OK) {
        status = UCT_CUDA_CALL(cuEventSynchronize, base->event);
    }

    base->us = (before + now()) / 2;
    if (status != UCS_OK) {
        UCT_CUDA_CALL(cuEventDestroy, base->event);
    }

out_destroy:
    UCT_CUDA_CALL(cuStreamDestroy, stream);
    return status;
}

static const uct_cuda_context_kind_t base_kind = {
    .size   = sizeof(base_t),
    .create = base_create
};

static void copy_free(uct_cuda_trace_copy_t *copy)
{
    uct_cuda_context_put(copy->context);
    free(copy);
}

static void copy_destroy(uct_cuda_trace_copy_t *copy)
{
    UCT_CUDA_CALL(cuEventDestroy, copy->begin);
    UCT_CUDA_CALL(cuEventDestroy, copy->end);
    copy_free(copy);
}

/* times in microseconds */
static void write_bar(bool is_link, const char *name, const char *what,
                      const char *places, size_t bytes, double begin,
                      double duration)
{
    write_line("{\"%s\": \"%.80s\", \"what\": \"%.80s\", \"places\": \"%s\", "
               "\"bytes\": %zu, \"ts\": %.3f, \"dur\": %.3f}\n",
               is_link ? "link" : "transfer", name, what, places, bytes, begin,
               duration);
}

static void write_call(bool is_link, const char *name, const char *what,
                       size_t bytes, uint64_t begin)
{
    const double us = (double)begin * 1e-3;

    write_bar(is_link, name, what, "", bytes, us, now() - us);
}

void uct_cuda_trace_bar(bool is_link, uct_cuda_end_t from, uct_cuda_end_t to,
                        size_t bytes, const char *what, uint64_t begin)
{
    char name[32];

    if (uct_cuda_trace_is_on && (begin != 0)) {
        name_link(from, to, name, sizeof(name));
        write_call(is_link, name, what, bytes, begin);
    }
}

void uct_cuda_trace_call(const char *name, size_t bytes, const char *what,
                         uint64_t begin)
{
    if (uct_cuda_trace_is_on && (begin != 0)) {
        write_call(false, name, what, bytes, begin);
    }
}

static void copy_write(const uct_cuda_trace_copy_t *copy)
{
    float begin, end;

    if ((UCT_CUDA_CALL(cuEventElapsedTime, &begin, copy->base->event,
                       copy->begin) != UCS_OK) ||
        (UCT_CUDA_CALL(cuEventElapsedTime, &end, copy->begin, copy->end) !=
         UCS_OK)) {
        return;
    }

    write_bar(true, copy->link, copy->what, copy->places, copy->bytes,
              copy->base->us + begin * 1e3, end * 1e3);
}

/* Write and free a copy, or return UCS_INPROGRESS if it is running. Events of a
 * destroyed context are gone. */
static ucs_status_t copy_collect(uct_cuda_trace_copy_t *copy, bool wait)
{
    if (!uct_cuda_context_push(copy->context)) {
        copy_free(copy);
        return UCS_OK;
    }

    if (wait) {
        (void)UCT_CUDA_CALL(cuEventSynchronize, copy->end);
    } else if (uct_cuda_driver_get()->cuEventQuery(copy->end) ==
               CUDA_ERROR_NOT_READY) {
        uct_cuda_ctx_pop();
        return UCS_INPROGRESS;
    }

    copy_write(copy);
    copy_destroy(copy);
    uct_cuda_ctx_pop();
    return UCS_OK;
}

/* Write ended copies; with @a wait all of them. A running one delays later
 * ones, which does no harm. */
static void collect(bool wait)
{
    uct_cuda_trace_copy_t *next;

    while (trace.oldest != NULL) {
        next = trace.oldest->next;
        if (copy_collect(trace.oldest, wait) != UCS_OK) {
            return;
        }

        trace.oldest = next;
        --trace.num_pending;
    }

    trace.last = &trace.oldest;
}

void uct_cuda_trace_flush(void)
{
    if (uct_cuda_trace_is_on) {
        pthread_mutex_lock(&trace.lock);
        collect(true);
        pthread_mutex_unlock(&trace.lock);
    }
}

static uct_cuda_trace_copy_t *copy_create(CUstream stream)
{
    uct_cuda_trace_copy_t *copy = calloc(1, sizeof(*copy));
    void *base;

    if (copy == NULL) {
        return NULL;
    }

    if (uct_cuda_context_hold_member(&base_kind, &copy->context, &base) !=
        UCS_OK) {
        free(copy);
        return NULL;
    }

    copy->base = base;
    if (UCT_CUDA_CALL(cuEventCreate, &copy->begin, CU_EVENT_DEFAULT) !=
        UCS_OK) {
        goto err_free;
    }

    if (UCT_CUDA_CALL(cuEventCreate, &copy->end, CU_EVENT_DEFAULT) != UCS_OK) {
        goto err_destroy;
    }

    if (UCT_CUDA_CALL(cuEventRecord, copy->begin, stream) != UCS_OK) {
        copy_destroy(copy);
        return NULL;
    }

    return copy;

err_destroy:
    UCT_CUDA_CALL(cuEventDestroy, copy->begin);
err_free:
    copy_free(copy);
    return NULL;
}

uct_cuda_trace_copy_t *uct_cuda_trace_copy_begin(CUstream stream)
{
    uct_cuda_trace_copy_t *copy;

    pthread_mutex_lock(&trace.lock);
    if (trace.num_pending >= MAX_PENDING) {
        collect(false);
    }

    copy = copy_create(stream);
    pthread_mutex_unlock(&trace.lock);
    return copy;
}

void uct_cuda_trace_places(uct_cuda_trace_copy_t *copy, const char *places)
{
    snprintf(copy->places, sizeof(copy->places), "%s", places);
}

void uct_cuda_trace_copy_end(uct_cuda_trace_copy_t *copy, CUstream stream,
                             uct_cuda_end_t from, uct_cuda_end_t to,
                             size_t bytes, const char *what)
{
    copy->bytes = bytes;
    name_link(from, to, copy->link, sizeof(copy->link));
    snprintf(copy->what, sizeof(copy->what), "%s", what);

    pthread_mutex_lock(&trace.lock);
    if (UCT_CUDA_CALL(cuEventRecord, copy->end, stream) == UCS_OK) {
        *trace.last = copy;
        trace.last  = &copy->next;
        ++trace.num_pending;
    } else {
        copy_destroy(copy);
    }
    pthread_mutex_unlock(&trace.lock);
}
