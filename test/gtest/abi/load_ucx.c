/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Load the given libraries without making their symbols visible to each other,
 * and make the UCX in them look for its transports, and with ABI_TEST_HOOKS
 * watch memory:
 *
 *     abi_load_ucx LIBRARY...
 *
 * Exit status 77: a library cannot be loaded.
 */

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void on_event(int type, void *event, void *arg)
{
}

static int watch_memory(void *library)
{
    int (*set)(int events, int priority, void (*cb)(int, void*, void*),
               void *arg);

    *(void**)&set = dlsym(library, "ucm_set_event_handler");
    return (set == NULL) || (set(1 << 6, 0, on_event, NULL) != 0);
}

int main(int argc, char **argv)
{
    int (*query)(void *components_p, unsigned *num_components_p);
    unsigned num_components;
    void (*fake_query)(void);
    void *components;
    void *library;
    int i, round;

    for (i = 1; i < argc; ++i) {
        library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) {
            printf("%s\n", dlerror());
            return 77;
        }

        *(void**)&query      = dlsym(library, "uct_query_components");
        *(void**)&fake_query = dlsym(library, "fake_ucx_query_components");
        for (round = 0; round < 3; ++round) {
            if (fake_query != NULL) {
                fake_query();
            } else if ((query == NULL) ||
                       (query(&components, &num_components) != 0)) {
                printf("%s: its components cannot be queried\n", argv[i]);
                return 1;
            }
        }
        if ((getenv("ABI_TEST_HOOKS") != NULL) && watch_memory(library)) {
            printf("%s: its memory cannot be watched\n", argv[i]);
            return 1;
        }
    }

    printf("the program runs on\n");
    fflush(stdout);
    if (getenv("ABI_TEST_QUICK_EXIT") != NULL) {
        _exit(0); /* some wheels' libraries crash in their destructors */
    }

    return 0;
}
