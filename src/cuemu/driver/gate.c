/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Check at every entry point whether the driver is initialised, whether this
 * thread may call it, and whether CUEMU_FAULT or cuemu_fault() fails this call.
 * Count the calls.
 */
#include "cuemu_gate.h"
#include "cuemu_work.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUEMU_MAX_FAULTS 32

typedef struct {
    char     name[64];
    uint64_t nth;
    CUresult result;
    uint64_t calls;
} cuemu_fault_t;

static cuemu_fault_t cuemu_faults[CUEMU_MAX_FAULTS];
static int cuemu_num_faults;
static pthread_once_t cuemu_faults_once = PTHREAD_ONCE_INIT;
static cuemu_gate_t *cuemu_gates; /* functions called at least once */

int cuemu_gate_ended = 0;

CUresult (*cuemu_gate_ask)(const char *call);

/* Parse CUEMU_FAULT. "cuMemAlloc:3:2,cuIpcOpenMemHandle:1:400": the third
   cuMemAlloc returns error 2, the first cuIpcOpenMemHandle error 400.
   "kernel:3:700": the third kernel to run fails with error 700, and its context
   with it. Return the number of malformed faults. */
static int cuemu_faults_parse(const char *text)
{
    int count = 0, wrong = 0;
    char *copy, *item, *save = NULL;
    cuemu_fault_t *fault;
    unsigned long nth;
    int result, used;
    char name[64];

    if ((text == NULL) || ((copy = strdup(text)) == NULL)) {
        return 0;
    }

    for (item = strtok_r(copy, ",", &save); item != NULL;
         item = strtok_r(NULL, ",", &save)) {
        used = 0;
        if ((sscanf(item, "%63[A-Za-z0-9_]:%lu:%d%n", name, &nth, &result,
                    &used) != 3) ||
            (item[used] != '\0') || (nth == 0) || (result <= 0)) {
            fprintf(stderr,
                    "cuemu: CUEMU_FAULT: \"%s\" is not FUNCTION:N:ERROR\n",
                    item);
            ++wrong;
            continue;
        }

        if (count == CUEMU_MAX_FAULTS) {
            fprintf(stderr, "cuemu: CUEMU_FAULT: more than %d faults\n",
                    CUEMU_MAX_FAULTS);
            ++wrong;
            break;
        }

        fault = &cuemu_faults[count++];
        snprintf(fault->name, sizeof(fault->name), "%s", name);
        fault->nth    = nth;
        fault->result = (CUresult)result;
        fault->calls  = 0;
    }

    free(copy);
    __atomic_store_n(&cuemu_num_faults, count, __ATOMIC_RELEASE);
    return wrong;
}

static void cuemu_faults_read(void)
{
    (void)cuemu_faults_parse(getenv("CUEMU_FAULT"));
}

int cuemu_fault(const char *faults)
{
    pthread_once(&cuemu_faults_once, cuemu_faults_read);
    __atomic_store_n(&cuemu_num_faults, 0, __ATOMIC_RELEASE);
    return (cuemu_faults_parse(faults) == 0) ? 0 : -1;
}

/* Return non-zero if the fault applies to this function: cuMemAlloc means
   cuMemAlloc_v2, too. */
static int cuemu_fault_matches(const char *fault, const char *name)
{
    size_t length = strlen(fault);

    return (strncmp(fault, name, length) == 0) &&
           ((name[length] == '\0') || (strncmp(name + length, "_v", 2) == 0));
}

CUresult cuemu_gate_fault(const char *name)
{
    int i;

    for (i = 0; i < cuemu_num_faults; ++i) {
        if (cuemu_fault_matches(cuemu_faults[i].name, name) &&
            (__atomic_add_fetch(&cuemu_faults[i].calls, 1, __ATOMIC_RELAXED) ==
             cuemu_faults[i].nth)) {
            return cuemu_faults[i].result;
        }
    }

    return CUDA_SUCCESS;
}

unsigned long long cuemu_calls(const char *name)
{
    unsigned long long calls = 0;
    const cuemu_gate_t *gate;

    for (gate = __atomic_load_n(&cuemu_gates, __ATOMIC_ACQUIRE); gate != NULL;
         gate = gate->next) {
        if (cuemu_fault_matches(name, gate->name)) {
            calls += __atomic_load_n(&gate->calls, __ATOMIC_RELAXED);
        }
    }

    return calls;
}

/* Add a function to the list for cuemu_calls(). Call it only once for each
   function, at the function's first call. */
static void cuemu_gate_list(cuemu_gate_t *gate)
{
    gate->next = __atomic_load_n(&cuemu_gates, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&cuemu_gates, &gate->next, gate, 0,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
    }
}

/* Return non-zero if the call is refused because bytes were lost, since the
   file system is full (reported on stderr). Calls to move bytes, wait for them
   or allocate memory are refused. Queries and releases of memory still work:
   UCX would take a pointer for host memory if the driver refused to tell its
   type. `is_over`: the call has run; then allocations are not refused. */
static int cuemu_gate_is_full(const cuemu_gate_t *gate, int is_over)
{
    static const char *names[] = {
        "cuMemcpy",       "cuMemset",        "cuLaunch",     "cuGraphLaunch",
        "cuStreamSync",   "cuStreamQuery",   "cuEventSync",  "cuEventQuery",
        "cuCtxSync",      "cuMemAlloc",      "cuMemCreate"
    };
    const size_t moving = 9;
    size_t i;

    if ((cuemu_session.shared == NULL) || !cuemu_session.shared->failed) {
        return 0;
    }

    for (i = 0; i < (is_over ? moving : sizeof(names) / sizeof(names[0]));
         ++i) {
        if (strncmp(gate->name, names[i], strlen(names[i])) == 0) {
            return 1;
        }
    }

    return 0;
}

CUresult cuemu_gate_enter(cuemu_gate_t *gate)
{
    CUresult (*ask)(const char *call);
    CUresult result;

    cuemu_work_call_begin();
    pthread_once(&cuemu_faults_once, cuemu_faults_read);
    if (__atomic_fetch_add(&gate->calls, 1, __ATOMIC_RELAXED) == 0) {
        cuemu_gate_list(gate);
    }

    if (cuemu_gate_ended) {
        return CUDA_ERROR_DEINITIALIZED;
    }

    if (!(gate->flags & CUEMU_GATE_NO_INIT)) {
        /* like the real driver, unusable in the child of a fork */
        if (!cuemu_process.initialized || cuemu_process.forked) {
            return CUDA_ERROR_NOT_INITIALIZED;
        }

        if (cuemu_in_callback) {
            return CUDA_ERROR_NOT_PERMITTED;
        }

        if (cuemu_gate_is_full(gate, 0)) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }

        cuemu_work_wait_held();
    }

    if (cuemu_num_faults > 0) {
        result = cuemu_gate_fault(gate->name);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }

    result = cuemu_context_fault_of(gate->name);
    ask    = __atomic_load_n(&cuemu_gate_ask, __ATOMIC_ACQUIRE);
    if ((result == CUDA_SUCCESS) && (ask != NULL)) {
        result = ask(gate->name);
    }
    return ((result == CUDA_SUCCESS) && (gate->flags & CUEMU_GATE_CONTEXT) &&
            (cuemu_context_current() == NULL)) ? cuemu_context_error() : result;
}

/* Report a failed call. Warn on stderr at the first call of a function that the
   emulated driver lacks. Append name and error to the file CUEMU_REFUSED, if
   set, except NOT_READY: compute-sanitizer's memcheck lists the same calls. */
static void cuemu_gate_refused(const cuemu_gate_t *gate, CUresult result)
{
    const char *path = getenv("CUEMU_REFUSED");
    FILE *file;

    if ((gate->flags & CUEMU_GATE_LACKS) && (gate->calls == 1)) {
        fprintf(stderr, "cuemu: the emulated driver has no %s; it returns "
                        "CUDA_ERROR_NOT_SUPPORTED\n", gate->name);
    }

    if ((path == NULL) || (result == CUDA_ERROR_NOT_READY)) {
        return;
    }

    file = fopen(path, "a");
    if (file == NULL) {
        fprintf(stderr, "cuemu: cannot write CUEMU_REFUSED=%s\n", path);
        return;
    }
    fprintf(file, "%s %d\n", gate->name, (int)result);
    fclose(file);
}

CUresult cuemu_gate_leave(const cuemu_gate_t *gate, CUresult result)
{
    if ((result == CUDA_SUCCESS) && cuemu_gate_is_full(gate, 1)) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (__builtin_expect(result != CUDA_SUCCESS, 0)) {
        cuemu_gate_refused(gate, result);
    }

    cuemu_work_call_end();
    return result;
}
