/* SPDX-License-Identifier: BSD-3-Clause */
#include "draw.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>


#define PROGRAM "ucx_mp_draw"

/* Exit status of a child that could not start the program */
#define NOT_STARTED 127


/* Return the program's path in this program's installation, or as
   configured. */
static const char *program_path(char *path, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", path, size - 1);
    int i;

    for (i = 0; (length > 0) && (i < 2); ++i) {
        path[length] = '\0'; /* PREFIX of PREFIX/bin/NAME */
        length       = strrchr(path, '/') - path;
    }

    if (length > 0) {
        snprintf(path + length, size - length, "/share/ucx-mp/" PROGRAM);
        if (access(path, R_OK) == 0) {
            return path;
        }
    }
    return UCX_MP_DATADIR "/" PROGRAM;
}

static void run(const char *what, int in, int out)
{
    char path[PATH_MAX];
    const char *program = program_path(path, sizeof(path));

    (void)dup2(in, STDIN_FILENO);
    (void)dup2(out, STDOUT_FILENO);
    if (access(program, R_OK) != 0) {
        fprintf(stderr, PROGRAM ": %s cannot be read: %s\n", program,
                strerror(errno));
    } else {
        execlp("python3", "python3", "-IS", program, what, (char*)NULL);
        fprintf(stderr, PROGRAM ": python3 cannot be started: %s; pictures and "
                "XML need Python\n", strerror(errno));
    }
    _exit(NOT_STARTED);
}

int ucx_mp_draw_open(ucx_mp_draw_t *draw, const char *what, const char *file)
{
    int out = STDOUT_FILENO;
    int ends[2], error;

    /* If the program ends early, its exit status tells why, not SIGPIPE */
    signal(SIGPIPE, SIG_IGN);
    fflush(stdout);
    if (file != NULL) {
        out = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (out < 0) {
            return errno;
        }
    }

    if (pipe2(ends, O_CLOEXEC) != 0) {
        error = errno;
    } else {
        draw->pid = fork();
        if (draw->pid == 0) {
            run(what, ends[0], out);
        }

        error      = (draw->pid < 0) ? errno : 0;
        draw->json = fdopen(ends[1], "w");
        close(ends[0]);
    }

    if (out != STDOUT_FILENO) {
        close(out);
    }
    return error;
}

int ucx_mp_draw_close(ucx_mp_draw_t *draw)
{
    int status = -1;

    fclose(draw->json);
    while ((waitpid(draw->pid, &status, 0) < 0) && (errno == EINTR)) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : NOT_STARTED;
}
