/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A fake UCX: libucs, libuct and libucp in one file, with just enough for the
 * module and the preload shim to decide not to use it. FAKE_UCX_VERSION, for
 * instance "1.23", is its reported version. With FAKE_UCX_STATS it reports
 * statistics, with FAKE_UCX_NAMELESS it has no version.
 */

#include <stdio.h>
#include <stdlib.h>

#define FAKE_UCX_EXPORT __attribute__((visibility("default")))

FAKE_UCX_EXPORT void *uct_components_list[2] = {uct_components_list,
                                                uct_components_list};

FAKE_UCX_EXPORT void
ucs_log_dispatch(const char *file, unsigned line, const char *function,
                 int level, void *component, const char *format, ...);
FAKE_UCX_EXPORT void ucs_load_modules(const char *framework,
                                      const char *modules, void *init_once,
                                      unsigned flags);
FAKE_UCX_EXPORT void fake_ucx_query_components(void);

void ucs_log_dispatch(const char *file, unsigned line, const char *function,
                      int level, void *component, const char *format, ...)
{
    printf("logged through the UCX to stay out of\n");
}

void ucs_load_modules(const char *framework, const char *modules,
                      void *init_once, unsigned flags)
{
    printf("load %s: %s, %u\n", framework, modules, flags);
}

/* Call as libuct does, through a name, so a shim can interpose it. */
void fake_ucx_query_components(void)
{
    static long once;

    ucs_load_modules("uct", "ib:cuda:cma", &once, 5);
    printf("%s\n", (uct_components_list[0] == uct_components_list) ?
                           "nothing registered" :
                           "something registered");
    fflush(stdout);
}

#ifdef FAKE_UCX_STATS
FAKE_UCX_EXPORT void ucs_stats_node_alloc(void);

void ucs_stats_node_alloc(void)
{
}
#endif

#ifndef FAKE_UCX_NAMELESS
FAKE_UCX_EXPORT void
ucp_get_version(unsigned *major, unsigned *minor, unsigned *release);

void ucp_get_version(unsigned *major, unsigned *minor, unsigned *release)
{
    const char *version = getenv("FAKE_UCX_VERSION");

    *major   = 0;
    *minor   = 0;
    *release = 0;
    if (version != NULL) {
        (void)sscanf(version, "%u.%u", major, minor);
    }
}
#endif
