/* SPDX-License-Identifier: BSD-3-Clause */

/* A library that polls a UCX of its own, which never has anything to do */

unsigned ucp_worker_progress(void *worker);
/* Return the number of polls until the word is not 0. */
unsigned long fake_ucp_poll(const volatile int *word);

unsigned ucp_worker_progress(void *worker)
{
    return 0;
}

unsigned long fake_ucp_poll(const volatile int *word)
{
    /* the address is the preloaded library's */
    unsigned (*volatile progress)(void*) = ucp_worker_progress;
    unsigned long polls                  = 0;

    for (; *word == 0; ++polls) {
        progress(0);
    }
    return polls;
}
