/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Record a program's calls of the CUDA driver, by any of its modules and
 * libraries. The dynamic linker asks an auditing library (rtld-audit(7)) about
 * each symbol that it binds, or dlsym() finds, and gets a function of this file
 * for those listed below. Functions from cuGetProcAddress() are not recorded.
 *
 * The library has memory and a clock of its own: on an emulated node times are
 * those of this machine.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MAX_CALLS (1u << 20) /* only the last ones are kept */

/* Name, then the number of the argument to record: an event or a stream, or
   bytes of a copy; 0: none. All functions take only integers and pointers. */
#define CALLS(_) \
    _(cuCtxGetCurrent, 0) \
    _(cuCtxGetDevice, 0) \
    _(cuCtxGetId, 0) \
    _(cuCtxPopCurrent_v2, 0) \
    _(cuCtxPushCurrent_v2, 0) \
    _(cuCtxSetCurrent, 0) \
    _(cuCtxSynchronize, 0) \
    _(cuDevicePrimaryCtxRetain, 0) \
    _(cuEventCreate, 0) \
    _(cuEventQuery, 1) \
    _(cuEventRecord, 1) \
    _(cuEventSynchronize, 1) \
    _(cuGraphLaunch, 2) \
    _(cuIpcCloseMemHandle, 0) \
    _(cuIpcGetMemHandle, 0) \
    _(cuLaunchKernel, 0) \
    _(cuMemGetAddressRange_v2, 0) \
    _(cuMemHostAlloc, 0) \
    _(cuMemHostRegister_v2, 0) \
    _(cuMemcpyAsync, 3) \
    _(cuMemcpyBatchAsync, 4) \
    _(cuMemcpyDtoDAsync_v2, 3) \
    _(cuMemcpyDtoHAsync_v2, 3) \
    _(cuMemcpyHtoDAsync_v2, 3) \
    _(cuPointerGetAttribute, 0) \
    _(cuPointerGetAttributes, 0) \
    _(cuStreamCreate, 0) \
    _(cuStreamQuery, 1) \
    _(cuStreamSynchronize, 1) \
    _(cuStreamWaitEvent, 1)

/* Maximum number of arguments. Missing ones are read from registers and the
   caller's frame, and ignored. */
#define NUM_ARGS 11
typedef long (*function_t)(long, long, long, long, long, long, long, long, long,
                           long, long);

#define NUMBER(_name, _about) NUMBER_##_name,
enum { CALLS(NUMBER) NUM_FUNCTIONS };

typedef struct {
    uint64_t begin, end; /* ns */
    uint64_t about;
    uint32_t thread;
    uint16_t function;
    uint16_t result;
} record_t;

#define NAME(_name, _about) #_name,
static const char *const names[] = {CALLS(NAME)};

static function_t real[NUM_FUNCTIONS];
static record_t records[MAX_CALLS];
static uint64_t num_records;
static pid_t owner; /* Process of the records: a forked child has a copy of
                       them */


static uint64_t now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ((uint64_t)ts.tv_sec * 1000000000u) + (uint64_t)ts.tv_nsec;
}

static void record(unsigned function, uint64_t begin, long about, long result)
{
    const uint64_t end    = now();
    const uint64_t number = __atomic_fetch_add(&num_records, 1,
                                               __ATOMIC_RELAXED);

    if (number == 0) {
        owner = getpid();
    }

    records[number % MAX_CALLS] = (record_t){.begin  = begin,
        .end      = end,
        .about    = (uint64_t)about,
        .thread   = (uint32_t)syscall(SYS_gettid),
        .function = (uint16_t)function,
        .result   = (uint16_t)result
    };
}

#define WRAP(_name, _about) \
    static long wrap_##_name(long a, long b, long c, long d, long e, long f, \
                             long g, long h, long i, long j, long k) \
    { \
        const long args[NUM_ARGS + 1] = {0, a, b, c, d, e, f, g, h, i, j, k}; \
        const uint64_t begin          = now(); \
        const long result             = real[NUMBER_##_name](a, b, c, d, e, f, \
                                                             g, h, i, j, k); \
        record(NUMBER_##_name, begin, args[_about], result); \
        return result; \
    }
CALLS(WRAP)

#define WRAPPER(_name, _about) wrap_##_name,
static const function_t wrappers[] = {CALLS(WRAPPER)};


/* Write one call per line: begin and end in ns, thread, name, recorded
   argument, the driver's result. */
static void __attribute__((destructor)) write_records(void)
{
    const char *folder = getenv("CUDA_CALLS_DIR");
    uint64_t number    = (num_records > MAX_CALLS) ? num_records - MAX_CALLS :
                                                     0;
    char path[4096];
    const record_t *call;
    FILE *file;

    if ((folder == NULL) || (num_records == 0) || (owner != getpid())) {
        return;
    }

    snprintf(path, sizeof(path), "%s/%d.calls", folder, (int)getpid());
    file = fopen(path, "w");
    if (file == NULL) {
        fprintf(stderr, "calls: cannot write %s: %m\n", path);
        return;
    }

    for (; number < num_records; ++number) {
        call = &records[number % MAX_CALLS];
        fprintf(file, "%lu %lu %u %s %lx %u\n", (unsigned long)call->begin,
                (unsigned long)call->end, call->thread, names[call->function],
                (unsigned long)call->about, call->result);
    }

    if (fclose(file) != 0) {
        fprintf(stderr, "calls: cannot write %s: %m\n", path);
    }
}


/* ------------------------------------------- called by the dynamic linker */

unsigned la_version(unsigned version)
{
    return (version < LAV_CURRENT) ? version : LAV_CURRENT;
}

unsigned la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie)
{
    const char *slash = strrchr(map->l_name, '/');
    const char *name  = (slash == NULL) ? map->l_name : slash + 1;

    (void)space;
    (void)cookie;
    return LA_FLG_BINDFROM |
           (strncmp(name, "libcuda.so", strlen("libcuda.so")) ?
                    0 : LA_FLG_BINDTO);
}

uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned index, uintptr_t *from,
                       uintptr_t *to, unsigned *flags, const char *name)
{
    unsigned i;

    (void)index;
    (void)from;
    (void)to;
    *flags |= LA_SYMB_NOPLTENTER | LA_SYMB_NOPLTEXIT;
    for (i = 0; i < NUM_FUNCTIONS; ++i) {
        if (!strcmp(name, names[i])) {
            real[i] = (function_t)symbol->st_value;
            return (uintptr_t)wrappers[i];
        }
    }

    return symbol->st_value;
}
