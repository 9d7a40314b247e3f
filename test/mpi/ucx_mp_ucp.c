/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Two processes with UCP and without MPI: actions towards a transport that an
 * MPI never permits. Every message is compared, byte by byte. See usage().
 */
#define _GNU_SOURCE
#include "driver.h"
#include "gpu.h"
#include "pattern.h"
#include "util.h"

#include <ucp/api/ucp.h>

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAIR_SIZE    ((size_t)24 << 20)
#define PAIR_WINDOW  8
#define PAIR_THREADS 4
#define PAIR_POISON  0x5a
#define PAIR_TIMEOUT 60.0

/* The UCX of the library path, of any release */
#define PAIR_FUNCTIONS(_) \
    _(ucp_config_read) _(ucp_config_release) _(ucp_init_version) \
    _(ucp_cleanup) _(ucp_worker_create) _(ucp_worker_destroy) \
    _(ucp_worker_progress) _(ucp_worker_get_address) \
    _(ucp_worker_release_address) _(ucp_ep_create) _(ucp_ep_close_nbx) \
    _(ucp_tag_send_nbx) _(ucp_tag_recv_nbx) _(ucp_request_check_status) \
    _(ucp_request_cancel) _(ucp_request_free) _(ucp_mem_map) \
    _(ucp_mem_query) _(ucp_mem_unmap) _(ucp_rkey_pack) \
    _(ucp_rkey_buffer_release) _(ucp_ep_rkey_unpack) _(ucp_rkey_ptr) \
    _(ucp_rkey_destroy) _(ucp_put_nbx) _(ucp_get_nbx) _(ucp_ep_flush_nbx)

#define PAIR_MEMBER(_name) __typeof__(_name) *_name;

static struct {
    PAIR_FUNCTIONS(PAIR_MEMBER)
} ucx;

/* One end of a pair: this process's worker, and its endpoint to the other's */
typedef struct {
    ucp_context_h context;
    ucp_worker_h  worker;
    ucp_ep_h      ep;
    int           failed; /* the endpoint failed, since the peer has gone */
    void          *requests[PAIR_WINDOW]; /* requests in flight, or NULL */
} end_t;

typedef void (*role_func_t)(int role, int fd);

static uint64_t pair_features              = UCP_FEATURE_TAG;
static ucp_err_handling_mode_t pair_errors = UCP_ERR_HANDLING_MODE_PEER;
static int pair_wrong, pair_messages;
static const char *pair_mode;


/* ---------------------------------------------------------------- helpers */

static void pair_check(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "%s: %s failed: %d", pair_mode, what,
                   (int)status);
    }
}

static void pair_load(void)
{
    void *library = dlopen("libucp.so.0", RTLD_NOW | RTLD_GLOBAL);

    if (library == NULL) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "no UCX: %s", dlerror());
    }

#define PAIR_FIND(_name) \
    *(void**)&ucx._name = dlsym(library, #_name); \
    if (ucx._name == NULL) { \
        ucx_mp_die(UCX_MP_EXIT_USAGE, "this UCX has no %s", #_name); \
    }
    PAIR_FUNCTIONS(PAIR_FIND)
}

static void send_bytes(int fd, const void *bytes, size_t size)
{
    ssize_t n;

    do {
        n = write(fd, bytes, size);
    } while ((n < 0) && (errno == EINTR));
    if (n != (ssize_t)size) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "%s: the peer does not listen",
                   pair_mode);
    }
}

static void recv_bytes(int fd, void *bytes, size_t size)
{
    size_t got = 0;
    ssize_t n;

    while (got < size) {
        n = read(fd, (char*)bytes + got, size - got);
        if ((n < 0) && (errno == EINTR)) {
            continue;
        }
        if (n <= 0) {
            ucx_mp_die(UCX_MP_EXIT_WRONG, "%s: the peer has gone", pair_mode);
        }
        got += (size_t)n;
    }
}

/* Wait until both processes get here. */
static void meet(int fd)
{
    char byte = 1;

    send_bytes(fd, &byte, 1);
    recv_bytes(fd, &byte, 1);
}

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    ((end_t*)arg)->failed = 1;
}

static void context_open(end_t *end)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES |
                                         UCP_PARAM_FIELD_MT_WORKERS_SHARED,
                           .features          = pair_features,
                           .mt_workers_shared = 1};
    ucp_config_t *config;

    pair_check(ucx.ucp_config_read(NULL, NULL, &config), "ucp_config_read");
    pair_check(ucx.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params,
                                    config, &end->context),
               "ucp_init");
    ucx.ucp_config_release(config);
}

static void worker_open(end_t *end)
{
    ucp_worker_params_t params = {
        .field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = UCS_THREAD_MODE_SINGLE
    };

    pair_check(ucx.ucp_worker_create(end->context, &params, &end->worker),
               "ucp_worker_create");
}

/* Exchange addresses with the peer through the socket. */
static void end_connect(end_t *end, int fd)
{
    ucp_ep_params_t params = {
        .field_mask      = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                           UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                           UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .err_mode        = pair_errors,
        .err_handler.cb  = on_error,
        .err_handler.arg = end
    };
    ucp_address_t *own;
    size_t length;
    void *peer;

    pair_check(ucx.ucp_worker_get_address(end->worker, &own, &length),
               "ucp_worker_get_address");
    send_bytes(fd, &length, sizeof(length));
    send_bytes(fd, own, length);
    ucx.ucp_worker_release_address(end->worker, own);

    recv_bytes(fd, &length, sizeof(length));
    peer = malloc(length);
    recv_bytes(fd, peer, length);
    params.address = peer;
    pair_check(ucx.ucp_ep_create(end->worker, &params, &end->ep),
               "ucp_ep_create");
    free(peer);
}

static void end_open(end_t *end, int fd)
{
    memset(end, 0, sizeof(*end));
    context_open(end);
    worker_open(end);
    end_connect(end, fd);
}

/* Yield when idle, since this machine may have fewer processors than
   processes */
static void progress(end_t *end)
{
    if (ucx.ucp_worker_progress(end->worker) == 0) {
        sched_yield();
    }
}

static void progress_until(end_t *end, void *request)
{
    const double deadline = ucx_mp_real_time() + PAIR_TIMEOUT;

    while (ucx.ucp_request_check_status(request) == UCS_INPROGRESS) {
        progress(end);
        if (ucx_mp_real_time() > deadline) {
            ucx_mp_die(UCX_MP_EXIT_WRONG, "%s: a request does not end",
                       pair_mode);
        }
    }
}

static ucs_status_t wait_for(end_t *end, void *request)
{
    ucs_status_t status;

    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request);
    }

    progress_until(end, request);
    status = ucx.ucp_request_check_status(request);
    ucx.ucp_request_free(request);
    return status;
}

static void ep_close(end_t *end, unsigned flags)
{
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                       .flags        = flags};

    (void)wait_for(end, ucx.ucp_ep_close_nbx(end->ep, &param));
}

static void end_close(end_t *end, unsigned flags)
{
    ep_close(end, flags);
    ucx.ucp_worker_destroy(end->worker);
    ucx.ucp_cleanup(end->context);
}

static void *send_start(end_t *end, const void *buffer, size_t size)
{
    static const ucp_request_param_t param;

    return ucx.ucp_tag_send_nbx(end->ep, buffer, size, 1, &param);
}

static void *recv_start(end_t *end, void *buffer, size_t size)
{
    static const ucp_request_param_t param;

    return ucx.ucp_tag_recv_nbx(end->worker, buffer, size, 1, (ucp_tag_t)-1,
                                &param);
}

static void compare_some(const uint8_t *buffer, size_t size, uint64_t seed)
{
    __atomic_add_fetch(&pair_messages, 1, __ATOMIC_RELAXED);
    if (ucx_mp_pattern_is_wrong(UCX_MP_MEM_DEVICE, buffer, size, seed,
                                PAIR_POISON, "%s", pair_mode)) {
        pair_wrong = 1;
    }
}

static void compare(const uint8_t *buffer, uint64_t seed)
{
    compare_some(buffer, PAIR_SIZE, seed);
}

/* Send a message in each direction. */
static void exchange_in(end_t *end, int role, uint8_t *buffer, uint64_t seed)
{
    int turn;

    for (turn = 0; turn < 2; ++turn) {
        if (role == turn) {
            ucx_mp_pattern_fill(UCX_MP_MEM_DEVICE, buffer, PAIR_SIZE,
                                seed + (uint64_t)turn);
            pair_check(wait_for(end, send_start(end, buffer, PAIR_SIZE)),
                       "sending");
        } else {
            ucx_mp_mem_set(UCX_MP_MEM_DEVICE, buffer, PAIR_POISON, PAIR_SIZE);
            pair_check(wait_for(end, recv_start(end, buffer, PAIR_SIZE)),
                       "receiving");
            compare(buffer, seed + (uint64_t)turn);
        }
    }
}

static void exchange(end_t *end, int role, uint64_t seed)
{
    uint8_t *buffer = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, PAIR_SIZE);

    exchange_in(end, role, buffer, seed);
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, buffer);
}

static void gpu_use(int number)
{
    ucx_mp_gpu_require(number);
}

/* Begin a window of messages and leave it soon after: some copies are under
   way, some wait, some have ended. */
static void begin_window(end_t *end, int role, uint8_t *buffer,
                         unsigned num_calls)
{
    unsigned i;

    for (i = 0; i < PAIR_WINDOW; ++i) {
        end->requests[i] = (role == 0) ? send_start(end, buffer, PAIR_SIZE) :
                                         recv_start(end, buffer, PAIR_SIZE);
    }

    for (i = 0; i < num_calls; ++i) {
        ucx.ucp_worker_progress(end->worker);
    }
}


/* Drop these messages without waiting. */
static void leave_window(end_t *end)
{
    unsigned i;

    for (i = 0; i < PAIR_WINDOW; ++i) {
        if (UCS_PTR_IS_PTR(end->requests[i])) {
            ucx.ucp_request_cancel(end->worker, end->requests[i]);
            ucx.ucp_request_free(end->requests[i]);
        }
    }
}

/* Destroy a worker that has dropped messages, after UCX's one-time callbacks:
   1.22 frees the remaining ones twice. */
static void worker_destroy(end_t *end)
{
    unsigned i;

    for (i = 0; i < 8; ++i) {
        ucx.ucp_worker_progress(end->worker);
    }

    ucx.ucp_worker_destroy(end->worker);
}


/* ------------------------------------------------------------------ modes */

/* Force-close endpoints with copies in flight, and destroy their workers before
   the copies end; then new ones exchange messages. */
static void mode_destroy(int role, int fd)
{
    uint8_t *buffer;
    unsigned i;
    end_t end;

    gpu_use(role);
    buffer = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, PAIR_SIZE);
    for (i = 0; i < 12; ++i) {
        end_open(&end, fd);
        exchange_in(&end, role, buffer, 100 * i);
        meet(fd);
        begin_window(&end, role, buffer, 1u << i);
        ep_close(&end, UCP_EP_CLOSE_FLAG_FORCE);
        leave_window(&end);

        worker_destroy(&end);
        ucx.ucp_cleanup(end.context);
        meet(fd);
    }

    end_open(&end, fd);
    exchange_in(&end, role, buffer, 7);
    meet(fd);
    end_close(&end, 0);
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, buffer);
}

/* Kill one end with copies in flight; the other one continues with the next
   peer, through the same socket. */
static void mode_killed(int role, int fd)
{
    end_t end, next;
    uint8_t *buffer;
    double deadline;
    pid_t peer;
    int i, status;

    if (role == 1) {
        /* Alternate: one process dies, one stays */
        for (i = 0; i < 5; ++i) {
            peer = fork();
            if (peer == 0) {
                gpu_use(1);
                buffer = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, PAIR_SIZE);
                end_open(&end, fd);
                exchange_in(&end, role, buffer, (uint64_t)i);
                if (i == 4) {
                    meet(fd);
                    end_close(&end, 0);
                    exit(pair_wrong);
                }
                begin_window(&end, role, buffer, 1u << (2 * i + 3));
                raise(SIGKILL);
            }
            waitpid(peer, &status, 0);
            if ((i < 4) ? !WIFSIGNALED(status) : (status != 0)) {
                ucx_mp_die(UCX_MP_EXIT_WRONG, "killed: peer %d ended with %d",
                           i, status);
            }
        }
        pair_messages = 5;
        return;
    }

    gpu_use(0);
    buffer = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, PAIR_SIZE);
    for (i = 0; i < 5; ++i) {
        end_open(&end, fd);
        exchange_in(&end, role, buffer, (uint64_t)i);
        if (i == 4) {
            break;
        }

        begin_window(&end, role, buffer, 0);
        deadline = ucx_mp_real_time() + 0.5;
        while (!end.failed && (ucx_mp_real_time() < deadline)) {
            progress(&end);
        }

        if (i % 2) {
            ep_close(&end, UCP_EP_CLOSE_FLAG_FORCE);
            for (status = 0; status < 1000; ++status) {
                ucx.ucp_worker_progress(end.worker);
            }
        }
        leave_window(&end);

        /* Other work of this process continues beside the remains of the dead
           one */
        memset(&next, 0, sizeof(next));
        context_open(&next);
        worker_open(&next);
        worker_destroy(&end);
        ucx.ucp_cleanup(end.context);
        ucx.ucp_worker_destroy(next.worker);
        ucx.ucp_cleanup(next.context);
    }

    meet(fd);
    end_close(&end, 0);
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, buffer);
}

/* Fork children that execute another program, exit or fail, during messages and
   between them. */
static void mode_fork(int role, int fd)
{
    uint8_t *buffer;
    pid_t child;
    end_t end;
    int i, status;

    gpu_use(role);
    end_open(&end, fd);
    buffer = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, PAIR_SIZE);
    for (i = 0; i < 8; ++i) {
        exchange_in(&end, role, buffer, (uint64_t)(10 * i));
        child = fork();
        if (child == 0) {
            if (i % 2) {
                execl("/bin/true", "true", NULL);
                _exit(1);
            } else if (i % 4) {
                _exit(0);
            }
            exit(0); /* with the handlers registered for exit */
        }
        exchange_in(&end, role, buffer, (uint64_t)(10 * i + 5));
        if ((waitpid(child, &status, 0) != child) || (status != 0)) {
            ucx_mp_die(UCX_MP_EXIT_WRONG, "fork: child %d ended with %d", i,
                       status);
        }
    }

    meet(fd);
    end_close(&end, 0);
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, buffer);
}

/* Return from main() with everything open, and copies in flight. */
static void mode_exit(int role, int fd)
{
    static end_t end;
    uint8_t *buffer;

    gpu_use(role);
    end_open(&end, fd);
    buffer = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, PAIR_SIZE);
    exchange_in(&end, role, buffer, 3);
    meet(fd);
    begin_window(&end, role, buffer, 200);
}

/* Free memory before endpoints, one process long before the other, and of two
   contexts the older one first. */
static void mode_order(int role, int fd)
{
    uint8_t *buffer;
    end_t first, second;

    gpu_use(role);
    end_open(&first, fd);
    end_open(&second, fd);
    exchange(&first, role, 1);
    exchange(&second, role, 2);
    meet(fd);
    if (role == 0) {
        end_close(&first, UCP_EP_CLOSE_FLAG_FORCE);
    }
    exchange(&second, role, 3);
    meet(fd);
    if (role == 1) {
        ucx.ucp_worker_destroy(first.worker);
        ucx.ucp_cleanup(first.context);
    }

    /* The cache drops its mapping of the other one's memory after this
       memory */
    buffer = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, PAIR_SIZE);
    exchange_in(&second, role, buffer, 4);
    meet(fd);
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, buffer);
    meet(fd);
    end_open(&first, fd);
    exchange(&first, role, 5);
    meet(fd);
    end_close(&second, 0);
    exchange(&first, role, 6);
    meet(fd);
    end_close(&first, 0);
}

typedef struct {
    pthread_t     thread;
    ucp_context_h context; /* shared by all, or NULL: one of its own */
    int           role;
    int           number;
    int           fd;
} pair_thread_t;

/* Run a worker per thread. Each is created and destroyed a few times. */
static void *thread_main(void *arg)
{
    pair_thread_t *self = arg;
    uint64_t seed;
    end_t end;
    int i;

    gpu_use(self->role + (self->number % 2));
    for (i = 0; i < 4; ++i) {
        memset(&end, 0, sizeof(end));
        end.context = self->context;
        if (end.context == NULL) {
            context_open(&end);
        }
        worker_open(&end);
        end_connect(&end, self->fd);
        seed = (uint64_t)(1000 * self->number + 10 * i);
        exchange(&end, self->role, seed);
        exchange(&end, self->role, seed + 5);
        meet(self->fd);
        ep_close(&end, (i % 2) ? UCP_EP_CLOSE_FLAG_FORCE : 0);
        ucx.ucp_worker_destroy(end.worker);
        if (self->context == NULL) {
            ucx.ucp_cleanup(end.context);
        }
    }
    return NULL;
}

static int pair_fds[PAIR_THREADS][2];

static void mode_threads(int role, int fd)
{
    pair_thread_t threads[PAIR_THREADS];
    end_t shared;
    int i;

    gpu_use(role);
    context_open(&shared);
    for (i = 0; i < PAIR_THREADS; ++i) {
        threads[i].context = (i % 2) ? shared.context : NULL;
        threads[i].role    = role;
        threads[i].number  = i;
        threads[i].fd      = pair_fds[i][role];
        if (pthread_create(&threads[i].thread, NULL, thread_main,
                           &threads[i]) != 0) {
            ucx_mp_die(UCX_MP_EXIT_WRONG, "no thread %d", i);
        }
    }

    for (i = 0; i < PAIR_THREADS; ++i) {
        pthread_join(threads[i].thread, NULL);
    }
    ucx.ucp_cleanup(shared.context);
    meet(fd);
}

static void exchange_few(int role, int fd, uint8_t *buffer, int count)
{
    end_t end;
    int i;

    end_open(&end, fd);
    for (i = 0; i < count; ++i) {
        exchange_in(&end, role, buffer, (uint64_t)(10 * i));
    }

    meet(fd);
    printf("ucx_mp_ucp: pid %d\n", (int)getpid());
    end_close(&end, 0);
}

/* Exchange messages between memory shared by file descriptors with the same
   number in both processes, and with the same pid: behind the peer's number
   each process has memory of its own. */
static void mode_pids(int role, int fd)
{
    gpu_use(role);
    ucx_mp_driver_load();
    exchange_few(role, fd, ucx_mp_driver_vmm(PAIR_SIZE), 4);
}

/* Exchange messages of memory from cuMemAlloc */
static void mode_plain(int role, int fd)
{
    gpu_use(role);
    exchange_few(role, fd, ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, PAIR_SIZE), 2);
}

/* A program that has a context before UCX, and allocates memory before it
   retains another GPU's: UCX still knows the type of that memory. */
static void mode_type(int role, int fd)
{
    ucp_mem_map_params_t params = {.field_mask =
                                           UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                                           UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .length = PAIR_SIZE};
    ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_MEM_TYPE};
    ucp_mem_h memh;
    void *context;
    end_t end;

    gpu_use(role);
    ucx_mp_driver_load();
    end_open(&end, fd);
    exchange(&end, role, 1);
    params.address = ucx_mp_mem_alloc(UCX_MP_MEM_MANAGED, PAIR_SIZE);
    UCX_MP_DRIVER(ctx_retain, &context, !role);

    pair_check(ucx.ucp_mem_map(end.context, &params, &memh), "ucp_mem_map");
    pair_check(ucx.ucp_mem_query(memh, &attr), "ucp_mem_query");
    if (attr.mem_type != UCS_MEMORY_TYPE_CUDA_MANAGED) {
        fprintf(stderr, "ucx_mp_ucp: WRONG type %d of managed memory\n",
                (int)attr.mem_type);
        pair_wrong = 1;
    }

    meet(fd);
    pair_check(ucx.ucp_mem_unmap(end.context, memh), "ucp_mem_unmap");
    end_close(&end, 0);
    ucx_mp_mem_free(UCX_MP_MEM_MANAGED, params.address);
}

/* Send the key of a buffer to the peer. */
static void key_send(end_t *end, uint8_t *buffer, size_t size, int fd,
                     ucp_mem_h *memh_p)
{
    const ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                      UCP_MEM_MAP_PARAM_FIELD_LENGTH,
        .address    = buffer,
        .length     = size
    };
    size_t length;
    void *key;

    pair_check(ucx.ucp_mem_map(end->context, &params, memh_p), "ucp_mem_map");
    pair_check(ucx.ucp_rkey_pack(end->context, *memh_p, &key, &length),
               "ucp_rkey_pack");
    send_bytes(fd, &buffer, sizeof(buffer));
    send_bytes(fd, &length, sizeof(length));
    send_bytes(fd, key, length);
    ucx.ucp_rkey_buffer_release(key);
}

/* Receive the peer's key; return its buffer's address there. */
static uint64_t key_recv(end_t *end, int fd, ucp_rkey_h *rkey_p)
{
    uint64_t address;
    size_t length;
    void *key;

    recv_bytes(fd, &address, sizeof(address));
    recv_bytes(fd, &length, sizeof(length));
    key = malloc(length);
    recv_bytes(fd, key, length);
    pair_check(ucx.ucp_ep_rkey_unpack(end->ep, key, rkey_p),
               "ucp_ep_rkey_unpack");
    free(key);
    return address;
}

/* A pointer into the peer's memory is valid as long as its key, independent of
   other users of the peer's memory in this process */
static void mode_pointers(int role, int fd)
{
    end_t first, other;
    ucp_rkey_h rkey;
    ucp_mem_h memh;
    uint64_t address;
    uint8_t *buffer;
    void *here;
    int i;

    pair_features = UCP_FEATURE_TAG | UCP_FEATURE_RMA;
    gpu_use(role);
    end_open(&first, fd);
    buffer = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, PAIR_SIZE);
    if (role == 0) {
        key_send(&first, buffer, PAIR_SIZE, fd, &memh);
    } else {
        ucx_mp_mem_free(UCX_MP_MEM_DEVICE, buffer);
        address = key_recv(&first, fd, &rkey);
        pair_check(ucx.ucp_rkey_ptr(rkey, address, &here), "ucp_rkey_ptr");
        buffer = here;
    }

    for (i = 0; i < 4; ++i) {
        if (role == 0) {
            ucx_mp_pattern_fill(UCX_MP_MEM_DEVICE, buffer, PAIR_SIZE,
                                (uint64_t)i);
        }
        end_open(&other, fd);
        exchange(&other, role, (uint64_t)(100 + i));
        meet(fd);
        end_close(&other, (i % 2) ? UCP_EP_CLOSE_FLAG_FORCE : 0);
        if (role == 1) {
            compare(buffer, (uint64_t)i);
        }
        meet(fd);
    }

    if (role == 0) {
        pair_check(ucx.ucp_mem_unmap(first.context, memh), "ucp_mem_unmap");
    } else {
        ucx.ucp_rkey_destroy(rkey);
    }
    meet(fd);
    end_close(&first, 0);
}

/* ------------------------------------------------------------- one-sided */

#define ONE_RENEW     25
#define ONE_BLOCKS    50
#define ONE_MAX_SIZE  ((size_t)64 << 20)
#define ONE_MAX_GAP   256
#define ONE_SIZE      (ONE_MAX_SIZE + ONE_BLOCKS * ONE_MAX_GAP + ONE_MAX_GAP)
#define ONE_KINDS     UCX_MP_MEM_MANAGED /* the kinds before it */
#define ONE_MIN_RATE  5e9                /* bytes/s; through TCP: at most 1e9 */

/* Memory of each kind, and its description for the other process */
typedef struct {
    uint8_t    *memory[ONE_KINDS];
    ucp_mem_h  memh[ONE_KINDS];
    uint64_t   peer[ONE_KINDS];
    ucp_rkey_h rkey[ONE_KINDS];
} one_side_t;

typedef struct {
    int      is_put;
    int      count;
    int      mem[2];                /* of role 0 and of role 1 */
    size_t   extent[2];             /* bytes of each memory, gaps included */
    size_t   offset[2][ONE_BLOCKS];
    size_t   length[ONE_BLOCKS];
    uint64_t seed;
} one_transfer_t;

static void one_make(one_side_t *side, end_t *end, int fd)
{
    int mem;

    for (mem = 0; mem < ONE_KINDS; ++mem) {
        side->memory[mem] = ucx_mp_mem_alloc(mem, ONE_SIZE);
        key_send(end, side->memory[mem], ONE_SIZE, fd, &side->memh[mem]);
        side->peer[mem] = key_recv(end, fd, &side->rkey[mem]);
    }
}

static void one_free(one_side_t *side, end_t *end, int fd)
{
    int mem;

    for (mem = 0; mem < ONE_KINDS; ++mem) {
        ucx.ucp_rkey_destroy(side->rkey[mem]);
    }

    meet(fd);
    for (mem = 0; mem < ONE_KINDS; ++mem) {
        pair_check(ucx.ucp_mem_unmap(end->context, side->memh[mem]),
                   "ucp_mem_unmap");
        ucx_mp_mem_free(mem, side->memory[mem]);
    }
}

/* Draw blocks of any size and place; the peer's have the same order, or the
   reverse. */
static void one_draw(one_transfer_t *transfer, uint64_t *state)
{
    static const int counts[] = {1, 1, 2, 8, ONE_BLOCKS};
    const int is_reversed     = ucx_mp_random_below(state, 2) != 0;
    size_t size, *at;
    int side, i, block;

    transfer->is_put = ucx_mp_random_below(state, 2) != 0;
    transfer->count  = counts[ucx_mp_random_below(state, 5)];
    transfer->seed   = ucx_mp_random(state);
    size             = ucx_mp_random_size(state, 1, ONE_MAX_SIZE) /
                       (size_t)transfer->count;
    for (i = 0; i < transfer->count; ++i) {
        transfer->length[i] = 1 + ucx_mp_random_below(state, size + 1) / 2 +
                              ((transfer->count == 1) ? size / 2 : 0);
    }

    for (side = 0; side < 2; ++side) {
        transfer->mem[side] = (int)ucx_mp_random_below(state, ONE_KINDS);
        at                  = &transfer->extent[side];
        *at                 = 0;
        for (i = 0; i < transfer->count; ++i) {
            block   = (side && is_reversed) ? transfer->count - 1 - i : i;
            *at    += ucx_mp_random_below(state, ONE_MAX_GAP);
            transfer->offset[side][block] = *at;
            *at    += transfer->length[block];
        }
        *at += ucx_mp_random_below(state, ONE_MAX_GAP);
    }
}

/* Prepare this role's memory: with the blocks' bytes, or without. */
static void one_prepare(const one_transfer_t *transfer, int role,
                        const one_side_t *side)
{
    const int mem   = transfer->mem[role];
    uint8_t *memory = side->memory[mem];
    int i;

    ucx_mp_mem_set(mem, memory, PAIR_POISON, transfer->extent[role]);
    for (i = 0; (role != transfer->is_put) && (i < transfer->count); ++i) {
        ucx_mp_pattern_fill(mem, memory + transfer->offset[role][i],
                            transfer->length[i], transfer->seed + (uint64_t)i);
    }
}

static void one_wrong(const one_transfer_t *transfer, int role,
                      const ucx_mp_pattern_error_t *error)
{
    fprintf(stderr, "ucx_mp_ucp: WRONG data, %s: %s, %d blocks, %s %s, role "
            "%d: offset %zu expected 0x%02x got 0x%02x%s\n", pair_mode,
            transfer->is_put ? "put" : "get", transfer->count,
            ucx_mp_mem_names[transfer->mem[0]],
            ucx_mp_mem_names[transfer->mem[1]], role, error->offset,
            error->expected, error->got, error->hint);
    pair_wrong = 1;
}

/* Check every byte of the written memory, also beside the blocks. */
static void one_check(const one_transfer_t *transfer, int role,
                      const one_side_t *side)
{
    const int mem         = transfer->mem[role];
    const uint8_t *memory = side->memory[mem];
    ucx_mp_pattern_error_t error;
    size_t at = 0;
    int i, block, reversed;

    reversed = transfer->offset[role][0] >
               transfer->offset[role][transfer->count - 1];
    for (i = 0; i <= transfer->count; ++i) {
        block = reversed ? transfer->count - 1 - i : i;
        if (ucx_mp_pattern_check_value(
                    mem, memory + at,
                    ((i < transfer->count) ? transfer->offset[role][block] :
                                             transfer->extent[role]) - at,
                    PAIR_POISON, &error)) {
            one_wrong(transfer, role, &error);
        }
        if (i == transfer->count) {
            break;
        }

        at = transfer->offset[role][block];
        if (ucx_mp_pattern_check(mem, memory + at, transfer->length[block],
                                 transfer->seed + (uint64_t)block, 0,
                                 PAIR_POISON, &error)) {
            one_wrong(transfer, role, &error);
        }
        at += transfer->length[block];
    }
}

/* Move all blocks at once, and wait until they have arrived. */
static void one_move(end_t *end, const one_side_t *side,
                     const one_transfer_t *transfer)
{
    static const ucp_request_param_t param;
    const int peer_mem = transfer->mem[1];
    void *requests[ONE_BLOCKS];
    uint8_t *local;
    uint64_t remote;
    int i;

    for (i = 0; i < transfer->count; ++i) {
        local       = side->memory[transfer->mem[0]] + transfer->offset[0][i];
        remote      = side->peer[peer_mem] + transfer->offset[1][i];
        requests[i] = transfer->is_put ?
                              ucx.ucp_put_nbx(end->ep, local,
                                              transfer->length[i], remote,
                                              side->rkey[peer_mem], &param) :
                              ucx.ucp_get_nbx(end->ep, local,
                                              transfer->length[i], remote,
                                              side->rkey[peer_mem], &param);
    }

    for (i = 0; i < transfer->count; ++i) {
        pair_check(wait_for(end, requests[i]), "a put or a get");
    }
    pair_check(wait_for(end, ucx.ucp_ep_flush_nbx(end->ep, &param)),
               "ucp_ep_flush_nbx");
}

/* Run the process whose memory is read and written. */
static void one_serve(end_t *end, int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    while (poll(&poll_fd, 1, 0) <= 0) { /* a signal is no message of the peer */
        progress(end);
    }
}

/* Check that reads from GPU to GPU do not go through TCP. */
static void one_rate(end_t *end, const one_side_t *side)
{
    const one_transfer_t transfer = {.count  = 1,
                                     .mem    = {UCX_MP_MEM_DEVICE,
                                                UCX_MP_MEM_DEVICE},
                                     .length = {(size_t)16 << 20}};
    double best = 0, start, rate;
    int i;

    for (i = 0; i < 6; ++i) {
        start = ucx_mp_time();
        one_move(end, side, &transfer);
        rate = (double)transfer.length[0] / (ucx_mp_time() - start);
        best = (rate > best) ? rate : best;
    }

    printf("ucx_mp_ucp: %s: 16 MiB are read at %.1f GB/s%s\n", pair_mode,
           best / 1e9, (best < ONE_MIN_RATE) ? ": too slow" : "");
    pair_wrong |= best < ONE_MIN_RATE;
}

static void one_sided(int role, int fd, int count)
{
    uint64_t state = 1;
    one_transfer_t transfer;
    one_side_t side;
    end_t end;
    int i;

    gpu_use(role);
    end_open(&end, fd);
    one_make(&side, &end, fd);
    for (i = 0; i < count; ++i) {
        one_draw(&transfer, &state);
        one_prepare(&transfer, role, &side);
        meet(fd);
        if (role == 0) {
            one_move(&end, &side, &transfer);
        } else {
            one_serve(&end, fd);
        }

        meet(fd);
        if (role == transfer.is_put) {
            one_check(&transfer, role, &side);
        }
        ++pair_messages;
        if ((i % ONE_RENEW) == (ONE_RENEW - 1)) {
            one_free(&side, &end, fd);
            one_make(&side, &end, fd);
        }
    }

    meet(fd);
    if (role == 0) {
        one_rate(&end, &side);
    } else {
        one_serve(&end, fd);
    }
    meet(fd);
    one_free(&side, &end, fd);
    meet(fd);
    end_close(&end, UCP_EP_CLOSE_FLAG_FORCE);
}

/* Read and write memory of any kind by a program with RMA alone. */
static void mode_onesided(int role, int fd)
{
    pair_features = UCP_FEATURE_RMA;
    one_sided(role, fd, 500);
}

/* Do the same, with fewer transfers, by a program with messages, too, like an
   MPI. */
static void mode_beside(int role, int fd)
{
    pair_features = UCP_FEATURE_TAG | UCP_FEATURE_RMA;
    pair_errors   = UCP_ERR_HANDLING_MODE_NONE;
    one_sided(role, fd, 100);
}

#define IMPORTED_SIZE ((size_t)16 << 20)

/* A process that owns GPU memory, and exports it to its parent */
static void own_memory(int fd)
{
    ucx_mp_handle_t handle;
    void *memory;
    char byte;

    gpu_use(1);
    ucx_mp_driver_load();
    memory = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, IMPORTED_SIZE);
    UCX_MP_DRIVER(ipc_get, &handle, (uintptr_t)memory);
    send_bytes(fd, &handle, sizeof(handle));
    (void)!read(fd, &byte, 1); /* until the parent ends */
    exit(UCX_MP_EXIT_OK);
}

/* Return memory of another process, which `fd` leads to */
static uint8_t *import_memory(int fd)
{
    ucx_mp_handle_t handle;
    ucx_mp_ptr_t memory;

    ucx_mp_driver_load();
    recv_bytes(fd, &handle, sizeof(handle));
    UCX_MP_DRIVER(ipc_open, &memory, handle, 1);
    return (uint8_t*)memory;
}

/* Read and write memory that the peer has imported from a third process, as
   servers of caches do */
static void mode_imported(int role, int fd)
{
    const one_transfer_t transfer = {.is_put = 1,
                                     .count  = 1,
                                     .extent = {IMPORTED_SIZE, IMPORTED_SIZE},
                                     .length = {IMPORTED_SIZE},
                                     .seed   = 7};
    int owner[2] = {-1, -1};
    one_side_t side;
    end_t end;

    pair_features = UCP_FEATURE_RMA;
    if (role == 1) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, owner) != 0) {
            ucx_mp_die(UCX_MP_EXIT_USAGE, "socketpair: %s", strerror(errno));
        }
        if (fork() == 0) {
            close(owner[0]);
            own_memory(owner[1]);
        }
    }

    gpu_use(role);
    end_open(&end, fd);
    if (role == 1) {
        side.memory[0] = import_memory(owner[0]);
        key_send(&end, side.memory[0], IMPORTED_SIZE, fd, &side.memh[0]);
        one_serve(&end, fd);
        one_check(&transfer, role, &side);
        meet(fd);
        one_serve(&end, fd);
        pair_check(ucx.ucp_mem_unmap(end.context, side.memh[0]),
                   "ucp_mem_unmap");
    } else {
        side.memory[0] = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, IMPORTED_SIZE);
        side.peer[0]   = key_recv(&end, fd, &side.rkey[0]);
        one_prepare(&transfer, role, &side);
        one_move(&end, &side, &transfer);
        meet(fd);
        one_rate(&end, &side);
        one_check(&transfer, role, &side);
        ucx.ucp_rkey_destroy(side.rkey[0]);
    }

    ++pair_messages;
    meet(fd);
    end_close(&end, UCP_EP_CLOSE_FLAG_FORCE);
}

#define SIGNALS_COUNT 150

/* Put and get between GPU memory and the peer's page-locked memory, which the
   peer's GPU copies: for runs with signals (test/faults/ticks.c) */
static void mode_signals(int role, int fd)
{
    static const ucp_request_param_t param;
    uint8_t *mine, *host;
    uint64_t theirs;
    ucp_rkey_h rkey;
    ucp_mem_h memh;
    end_t end;
    int i;

    pair_features = UCP_FEATURE_RMA;
    pair_errors   = UCP_ERR_HANDLING_MODE_NONE;
    gpu_use(role);
    end_open(&end, fd);
    mine = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, PAIR_SIZE);
    host = ucx_mp_mem_alloc(UCX_MP_MEM_PINNED, PAIR_SIZE);
    key_send(&end, host, PAIR_SIZE, fd, &memh);
    theirs = key_recv(&end, fd, &rkey);
    for (i = 0; (role == 0) && (i < SIGNALS_COUNT); ++i) {
        ucx_mp_pattern_fill(UCX_MP_MEM_DEVICE, mine, PAIR_SIZE, (uint64_t)i);
        pair_check(wait_for(&end, ucx.ucp_put_nbx(end.ep, mine, PAIR_SIZE,
                                                  theirs, rkey, &param)),
                   "a put");
        pair_check(wait_for(&end, ucx.ucp_ep_flush_nbx(end.ep, &param)),
                   "ucp_ep_flush_nbx");
        ucx_mp_mem_set(UCX_MP_MEM_DEVICE, mine, PAIR_POISON, PAIR_SIZE);
        pair_check(wait_for(&end, ucx.ucp_get_nbx(end.ep, mine, PAIR_SIZE,
                                                  theirs, rkey, &param)),
                   "a get");
        compare(mine, (uint64_t)i);
    }
    if (role == 1) {
        one_serve(&end, fd);
    }
    meet(fd);
    ucx.ucp_rkey_destroy(rkey);
    pair_check(ucx.ucp_mem_unmap(end.context, memh), "ucp_mem_unmap");
    meet(fd);
    end_close(&end, UCP_EP_CLOSE_FLAG_FORCE);
}

#define RECONNECT_COUNT 300
#define RECONNECT_FILES 200

/* Create and destroy workers in one process, while the other keeps its
   endpoints to them: UCX may keep one descriptor for each, the module none */
static void mode_reconnect(int role, int fd)
{
    static const ucp_request_param_t param;
    const struct rlimit limit = {RECONNECT_FILES, RECONNECT_FILES};
    uint8_t *mine, *host;
    uint64_t theirs;
    ucp_rkey_h rkey;
    ucp_mem_h memh;
    end_t end;
    int i;

    pair_features = UCP_FEATURE_RMA;
    pair_errors   = UCP_ERR_HANDLING_MODE_NONE;
    setrlimit(RLIMIT_NOFILE, &limit);
    gpu_use(role);
    memset(&end, 0, sizeof(end));
    context_open(&end);
    worker_open(&end);
    mine = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, PAIR_SIZE);
    host = ucx_mp_mem_alloc(UCX_MP_MEM_PINNED, PAIR_SIZE);
    for (i = 0; i < RECONNECT_COUNT; ++i) {
        end_connect(&end, fd);
        if (role == 0) {
            ucx_mp_pattern_fill(UCX_MP_MEM_PINNED, host, PAIR_SIZE / 1024,
                                (uint64_t)i);
            key_send(&end, host, PAIR_SIZE, fd, &memh);
            one_serve(&end, fd);
        } else {
            theirs = key_recv(&end, fd, &rkey);
            pair_check(wait_for(&end, ucx.ucp_get_nbx(end.ep, mine,
                                                      PAIR_SIZE / 1024,
                                                      theirs, rkey, &param)),
                       "a get");
            compare_some(mine, PAIR_SIZE / 1024, (uint64_t)i);
            ucx.ucp_rkey_destroy(rkey);
        }
        meet(fd);
        if (role == 0) {
            pair_check(ucx.ucp_mem_unmap(end.context, memh), "ucp_mem_unmap");
            ucx.ucp_worker_destroy(end.worker);
            worker_open(&end);
        }
    }
    meet(fd);
    ucx.ucp_worker_destroy(end.worker);
    ucx.ucp_cleanup(end.context);
}


static const struct {
    const char  *name;
    role_func_t func;
    const char  *what;
} pair_modes[] = {
    {"destroy", mode_destroy, "workers destroyed with copies under way"},
    {"killed", mode_killed, "a peer killed with copies under way"},
    {"fork", mode_fork, "children that execute others, and exit"},
    {"exit", mode_exit, "the end of a process with everything open"},
    {"order", mode_order, "things that go in other orders than they came"},
    {"threads", mode_threads, "a worker a thread, of one context and several"},
    {"pointers", mode_pointers, "pointers to a peer's memory, from UCX 1.21"},
    {"onesided", mode_onesided, "500 random puts and gets, lists of them"},
    {"beside", mode_beside, "100, by a program that has messages, too"},
    {"imported", mode_imported, "memory of a third process"},
    {"signals", mode_signals, "150 puts and gets of page-locked memory"},
    {"reconnect", mode_reconnect, "endpoints to 300 workers of one peer"},
    {"type", mode_type, "the type of memory older than a context"},
    {"pids", mode_pids, "memory by file descriptor; with PATH, containers"},
    {"plain", mode_plain, "memory from cuMemAlloc; with PATH, containers"}
};

static void usage(void)
{
    size_t i;

    fprintf(stderr, "usage: ucx_mp_ucp MODE [ROLE PATH]\n"
            "  Two processes, or one of two: ROLE 0 or 1, who meet at the "
            "socket PATH.\n");
    for (i = 0; i < sizeof(pair_modes) / sizeof(pair_modes[0]); ++i) {
        fprintf(stderr, "  %-9s %s\n", pair_modes[i].name,
                pair_modes[i].what);
    }
    exit(UCX_MP_EXIT_USAGE);
}

/* Connect two processes that know the socket's path. */
static int meet_at(const char *path, int role)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), i, peer;

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    if (role == 0) {
        if ((bind(fd, (struct sockaddr*)&address, sizeof(address)) == 0) &&
            (listen(fd, 1) == 0) && ((peer = accept(fd, NULL, NULL)) >= 0)) {
            close(fd);
            return peer;
        }
    } else {
        for (i = 0; i < 1000; ++i) {
            if (connect(fd, (struct sockaddr*)&address, sizeof(address)) == 0) {
                return fd;
            }
            usleep(10000);
        }
    }

    ucx_mp_die(UCX_MP_EXIT_USAGE, "%s: %s", path, strerror(errno));
}

static int play(role_func_t func, int role, int fd)
{
    pair_load();
    func(role, fd);
    printf("ucx_mp_ucp: %s, process %d: %d messages, %s\n", pair_mode, role,
           pair_messages, pair_wrong ? "WRONG" : "0 wrong");
    return pair_wrong ? UCX_MP_EXIT_WRONG : UCX_MP_EXIT_OK;
}

int main(int argc, char **argv)
{
    role_func_t func = NULL;
    int fds[2], role, status, result = 0;
    pid_t children[2];
    size_t i;

    ucx_mp_program = "ucx_mp_ucp";
    for (i = 0; i < sizeof(pair_modes) / sizeof(pair_modes[0]); ++i) {
        if ((argc > 1) && (strcmp(argv[1], pair_modes[i].name) == 0)) {
            func       = pair_modes[i].func;
            pair_mode = pair_modes[i].name;
        }
    }

    if ((func == NULL) || ((argc != 2) && (argc != 4))) {
        usage();
    }

    if (argc == 4) {
        role = (int)ucx_mp_parse_number("ROLE", argv[2], 0, 1);
        return play(func, role, meet_at(argv[3], role));
    }

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "socketpair: %s", strerror(errno));
    }
    for (i = 0; i < PAIR_THREADS; ++i) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair_fds[i]) != 0) {
            ucx_mp_die(UCX_MP_EXIT_USAGE, "socketpair: %s", strerror(errno));
        }
    }

    for (role = 0; role < 2; ++role) {
        children[role] = fork();
        if (children[role] == 0) {
            close(fds[!role]);
            return play(func, role, fds[role]);
        }
    }

    close(fds[0]);
    close(fds[1]);
    for (role = 0; role < 2; ++role) {
        while ((waitpid(children[role], &status, 0) < 0) && (errno == EINTR)) {
        }
        if (status != 0) {
            fprintf(stderr, "ucx_mp_ucp: %s, process %d ended with %s %d\n",
                    pair_mode, role,
                    WIFSIGNALED(status) ? "signal" : "status",
                    WIFSIGNALED(status) ? WTERMSIG(status) :
                                          WEXITSTATUS(status));
            result = UCX_MP_EXIT_WRONG;
        }
    }
    return result;
}
