/* SPDX-License-Identifier: BSD-3-Clause */
/* Planner constants, measured on real messages by ucx_mp_tune. */
#include "tool.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>


#define TUNE "ucx_mp_tune"


void ucx_mp_perf_calibrate(const char *file)
{
    char path[PATH_MAX + sizeof(TUNE)];
    ssize_t length;
    char *name;

    /* It is installed beside this program */
    length = readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (length > 0) {
        path[length] = '\0';
        name         = strrchr(path, '/') + 1;
        strcpy(name, TUNE);
        (void)execl(path, TUNE, "--calibrate", "--output", file,
                    (char*)NULL);
    }

    (void)execlp(TUNE, TUNE, "--calibrate", "--output", file, (char*)NULL);
    ucx_mp_tool_die(UCX_MP_TOOL_FAILED, "%s cannot be started: %s", TUNE,
                    strerror(errno));
}
