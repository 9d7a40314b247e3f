/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages: sent through the attached UCX, at its level. */

#include "host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/time.h>
#include <unistd.h>

/* Below fatal: nothing is logged before an attach. */
static const int uct_abi_log_level_none = -1;

const int *uct_abi_log_level_p = &uct_abi_log_level_none;

void uct_abi_log_attach(const uct_abi_host_t *host)
{
    /* The level is the first member of the log component, which comes first. */
    uct_abi_log_level_p = host->sym.ucs_global_opts;
}

void uct_abi_log_message(const char *file, unsigned line, const char *function,
                         uct_abi_log_level_t level, const char *format, ...)
{
    char message[1024];
    va_list ap;

    if (uct_abi_host.release == NULL) {
        return;
    }

    va_start(ap, format);
    vsnprintf(message, sizeof(message), format, ap);
    va_end(ap);

    uct_abi_host.sym.ucs_log_dispatch(file, line, function, level,
                                      uct_abi_host.sym.ucs_global_opts, "%s",
                                      message);
}

void uct_abi_log_outside(const char *format, ...)
{
    const char *level = getenv("UCX_LOG_LEVEL");
    char hostname[64] = "";
    char message[1024];
    struct timeval now;
    va_list ap;

    if ((level != NULL) && (level[0] != '\0') &&
        ((strncasecmp(level, "fatal", strlen(level)) == 0) ||
         (strncasecmp(level, "error", strlen(level)) == 0))) {
        return;
    }

    va_start(ap, format);
    vsnprintf(message, sizeof(message), format, ap);
    va_end(ap);

    gettimeofday(&now, NULL);
    gethostname(hostname, sizeof(hostname) - 1);
    fprintf(stderr, "[%ld.%06ld] [%s:%d] ucx-cuda-multipath WARN  %s\n",
            (long)now.tv_sec, (long)now.tv_usec, hostname, (int)getpid(),
            message);
}
