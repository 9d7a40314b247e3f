/* SPDX-License-Identifier: BSD-3-Clause */
/* Child processes of tests. */
#ifndef UCT_CUDA_TEST_PROCESS_H
#define UCT_CUDA_TEST_PROCESS_H

#include <csignal>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>


/**
 * Run a function in a forked process.
 *
 * @return  Its result, up to 255; -1 if a signal has ended the process.
 */
template<typename F> int in_child(F func)
{
    const pid_t pid = fork();
    int status      = 0;

    if (pid == 0) {
        _exit((int)func());
    }
    return ((waitpid(pid, &status, 0) == pid) && WIFEXITED(status)) ?
                   WEXITSTATUS(status) :
                   -1;
}

/**
 * Fork a process that calls a function and then waits for signals, until
 * reap(). The function has returned, with true, before this does.
 */
template<typename F> pid_t spawn(F func)
{
    int wire[2];
    char ready = 0;

    EXPECT_EQ(0, pipe(wire));
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* if the test crashes */
        ready = func();
        if (write(wire[1], &ready, 1) != 1) {
            _exit(1);
        }
        for (;;) {
            pause();
        }
    }
    close(wire[1]);
    EXPECT_EQ(1, read(wire[0], &ready, 1));
    EXPECT_TRUE(ready);
    close(wire[0]);
    return pid;
}

static inline void reap(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

#endif
