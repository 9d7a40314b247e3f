/* SPDX-License-Identifier: BSD-3-Clause */
/* Affinity masks and control groups of Linux. */
#include <uct/cuda/base/host/host_cpus.h>

#include <uct/cuda/base/file.h>
#include <uct/cuda/base/number.h>
#include <uct/cuda/base/thread.h>

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>


#define MAX_CPUS 8192

/* Path of a control group, and space for a file's name */
#define FOLDER_MAX (PATH_MAX + 32)

/* Larger than one cpu_set_t: the system fills no mask that is too small */
typedef struct {
    cpu_set_t sets[MAX_CPUS / CPU_SETSIZE];
} mask_t;


static unsigned share; /* 0: not known yet */


/* Get an affinity mask; empty if unknown */
static bool mask_get(pid_t pid, mask_t *mask)
{
    memset(mask, 0, sizeof(*mask));
    return sched_getaffinity(pid, sizeof(*mask), mask->sets) == 0;
}

static bool mask_has(const mask_t *mask, int cpu)
{
    return CPU_ISSET_S(cpu, sizeof(*mask), mask->sets);
}

/* Read a file of a folder. @a folder: its path, with space behind it */
static void read_in(char folder[FOLDER_MAX], const char *name, char text[64])
{
    const size_t length = strlen(folder);

    snprintf(folder + length, FOLDER_MAX - length, "/%s", name);
    (void)uct_cuda_file_text(folder, text, 64);
    folder[length] = '\0';
}

/* Return the quota of one group; 0: no limit. The two layouts use different
 * files. */
static unsigned group_quota(char folder[FOLDER_MAX], bool is_v1)
{
    long long quota = 0, period = 0;
    char text[64];

    if (is_v1) {
        read_in(folder, "cpu.cfs_quota_us", text);
        quota = atoll(text);
        read_in(folder, "cpu.cfs_period_us", text);
        period = atoll(text);
    } else {
        /* "max 100000" means no limit */
        read_in(folder, "cpu.max", text);
        if (sscanf(text, "%lld %lld", &quota, &period) != 2) {
            return 0;
        }
    }

    return ((quota > 0) && (period > 0) && (quota / period < MAX_CPUS)) ?
                   (unsigned)((quota + period - 1) / period) :
                   0;
}

/* Return the smaller quota; 0 means no limit */
static unsigned smaller_quota(unsigned a, unsigned b)
{
    return ((a == 0) || ((b != 0) && (b < a))) ? b : a;
}

/* Return the smallest quota of a group and its ancestors */
static unsigned path_quota(const char *root, const char *group, size_t length,
                           bool is_v1)
{
    unsigned least = 0;
    char folder[FOLDER_MAX];
    size_t root_length;
    char *end;

    root_length = (size_t)snprintf(folder, sizeof(folder), "%s%s%.*s", root,
                                   is_v1 ? "/cpu" : "", (int)length, group);
    if (root_length >= PATH_MAX) {
        return 0;
    }

    root_length = strlen(root);
    for (;;) {
        least = smaller_quota(least, group_quota(folder, is_v1));
        end   = strrchr(folder, '/');
        if ((end == NULL) || ((size_t)(end - folder) < root_length)) {
            return least;
        }

        *end = '\0';
    }
}

unsigned uct_cuda_host_cpus_quota(const char *root, const char *groups)
{
    unsigned least = 0;
    const char *line, *end, *group;
    bool is_v1;

    /* lines like "0::/a/b", or "4:cpu,cpuacct:/a/b" in the old layout */
    for (line = groups; *line != '\0'; line = (*end == '\0') ? end : end + 1) {
        end   = strchrnul(line, '\n');
        group = memchr(line, ':', (size_t)(end - line));
        if (group == NULL) {
            continue;
        }

        is_v1 = (strncmp(group, "::", 2) != 0);
        if (is_v1 && (strncmp(group, ":cpu,", 5) != 0) &&
            (strncmp(group, ":cpu:", 5) != 0)) {
            continue;
        }

        group = memchr(group + 1, ':', (size_t)(end - group - 1));
        if (group == NULL) {
            continue;
        }

        least = smaller_quota(least, path_quota(root, group + 1,
                                                (size_t)(end - group - 1),
                                                is_v1));
    }

    return least;
}

void uct_cuda_host_cpus_set_others(const uint32_t *pids, unsigned count)
{
    unsigned char *claims = calloc(MAX_CPUS, 1); /* of each processor */
    double sum            = 0;
    mask_t own, other;
    unsigned quota, i;
    char groups[4096];
    int cpu;

    if (claims == NULL) {
        return;
    }

    /* the process's mask, used for new threads: the calling thread may be bound
     * elsewhere */
    (void)mask_get(getpid(), &own);
    for (i = 0; (i < count) && (i < UCHAR_MAX); ++i) {
        if (((pid_t)pids[i] == getpid()) ||
            !mask_get((pid_t)pids[i], &other)) {
            continue;
        }

        for (cpu = 0; cpu < MAX_CPUS; ++cpu) {
            claims[cpu] += mask_has(&other, cpu);
        }
    }

    for (cpu = 0; cpu < MAX_CPUS; ++cpu) {
        sum += mask_has(&own, cpu) ? 1.0 / (1 + claims[cpu]) : 0;
    }
    free(claims);

    /* processes of one job share a group */
    (void)uct_cuda_file_text("/proc/self/cgroup", groups, sizeof(groups));
    quota = uct_cuda_host_cpus_quota("/sys/fs/cgroup", groups);
    if ((quota != 0) && (sum > (double)quota / (count + 1))) {
        sum = (double)quota / (count + 1);
    }

    __atomic_store_n(&share, (sum < 1) ? 1 : (unsigned)(sum + 1e-6),
                     __ATOMIC_RELAXED);
}

unsigned uct_cuda_host_cpus_share(void)
{
    if (__atomic_load_n(&share, __ATOMIC_RELAXED) == 0) {
        uct_cuda_host_cpus_set_others(NULL, 0);
    }

    return __atomic_load_n(&share, __ATOMIC_RELAXED);
}

/* Add the numbers of a list like "0-3,8" that are in @a of to a mask. @return
 * Their number */
static unsigned parse_list(const char *text, const mask_t *of, mask_t *mask)
{
    unsigned count = 0;
    long first, last;

    while (uct_cuda_number_range(&text, &first, &last)) {
        for (; (first <= last) && (first < MAX_CPUS); ++first) {
            if (mask_has(of, (int)first)) {
                CPU_SET_S((int)first, sizeof(*mask), mask->sets);
                ++count;
            }
        }
    }

    return count;
}

void uct_cuda_host_cpus_run_near(const char *bus_id)
{
    char path[128], text[1024], name[32];
    mask_t process, near;
    size_t i;

    if (!mask_get(getpid(), &process)) {
        return;
    }

    /* sysfs uses lower case */
    for (i = 0; (i + 1 < sizeof(name)) && (bus_id[i] != '\0'); ++i) {
        name[i] = (char)tolower((unsigned char)bus_id[i]);
    }
    name[i] = '\0';

    memset(&near, 0, sizeof(near));
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/local_cpulist", name);
    (void)uct_cuda_file_text(path, text, sizeof(text));
    (void)sched_setaffinity(0, sizeof(near),
                            (parse_list(text, &process, &near) > 0) ?
                                    near.sets :
                                    process.sets);
}

/* Invert a mask, including absent processors: the system uses the present ones
 * granted by the control group */
static void mask_invert(mask_t *mask)
{
    mask_t all;

    memset(&all, 0xff, sizeof(all));
    CPU_XOR_S(sizeof(all), mask->sets, mask->sets, all.sets);
}

/* Work of a thread beside its caller's processor */
typedef struct {
    void   *(*func)(void *arg);
    void   *arg;
    mask_t mask; /* of the caller */
} beside_t;

/* driver threads have names like cuda-EvtHandlr or cuda00004c00014 */
static bool is_of_driver(const char *task)
{
    char path[64], name[32];

    snprintf(path, sizeof(path), "/proc/self/task/%.20s/comm", task);
    (void)uct_cuda_file_text(path, name, sizeof(name));
    return !strncmp(name, "cuda-Evt", 8) ||
           (!strncmp(name, "cuda", 4) && isdigit((unsigned char)name[4]));
}

/* Threads started by the driver during the call would stay on the calling
 * thread's processor; give them the caller's processors. They are the younger
 * ones, unless thread ids have wrapped around: then they stay, which does no
 * harm. */
static void restore_processors(const mask_t *mask)
{
    const pid_t self = (pid_t)syscall(SYS_gettid);
    DIR *tasks       = opendir("/proc/self/task");
    const struct dirent *entry;
    mask_t own, other;
    pid_t task;

    if (tasks == NULL) {
        return;
    }

    (void)mask_get(0, &own);
    while ((entry = readdir(tasks)) != NULL) {
        task = atoi(entry->d_name);
        if ((task > self) && mask_get(task, &other) &&
            CPU_EQUAL_S(sizeof(own), own.sets, other.sets) &&
            is_of_driver(entry->d_name)) {
            (void)sched_setaffinity(task, sizeof(*mask), mask->sets);
        }
    }

    closedir(tasks);
}

static void *beside_run(void *arg)
{
    beside_t *beside = arg;
    void *result     = beside->func(beside->arg);

    restore_processors(&beside->mask);
    free(beside);
    return result;
}

static bool start_beside(beside_t *beside, pthread_t *thread_p)
{
    bool has_begun = false;
    mask_t others  = beside->mask;
    pthread_attr_t attr;

    if (pthread_attr_init(&attr) == 0) {
        mask_invert(&others);
        has_begun = (pthread_attr_setaffinity_np(&attr, sizeof(others),
                                                 others.sets) == 0) &&
                    uct_cuda_thread_start_with(&attr, beside_run, beside,
                                               thread_p);
        pthread_attr_destroy(&attr);
    }

    return has_begun;
}

bool uct_cuda_host_cpus_start_beside(void *(*func)(void *arg), void *arg,
                                     pthread_t *thread_p)
{
    beside_t *beside;
    mask_t mask;

    /* of the calling thread: its processor must be avoided */
    if (mask_get(0, &mask) && (CPU_COUNT_S(sizeof(mask), mask.sets) == 1)) {
        beside = malloc(sizeof(*beside));
        if (beside != NULL) {
            *beside = (beside_t){.func = func, .arg = arg, .mask = mask};
            if (start_beside(beside, thread_p)) {
                return true;
            }

            free(beside);
        }
    }

    return uct_cuda_thread_start(func, arg, thread_p);
}
