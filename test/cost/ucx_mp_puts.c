/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Put between two GPUs of two processes through a UCX's own UCT calls, one
 * after the other, and nothing else. test/cost/instructions counts the cost of
 * the module's layers from outside. The peer is another process of this
 * program, which only offers its memory.
 */
#include <uct/api/uct.h>

#include <cuda.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_KEY 1024


/* The peer's description */
typedef struct {
    uint64_t address;
    char     dev_addr[256];
    char     iface_addr[256];
    char     key[MAX_KEY];
} peer_t;

typedef struct {
    ucs_async_context_t *async;
    uct_worker_h        worker;
    uct_component_h     component;
    uct_md_h            md;
    uct_iface_h         iface;
    uct_iface_attr_t    attr;
} side_t;

static void *libuct, *libucs, *libcuda;


static void die(const char *what)
{
    fprintf(stderr, "ucx_mp_puts: %s\n", what);
    exit(1);
}

static void *find(void *library, const char *name)
{
    void *symbol = dlsym(library, name);

    if (symbol == NULL) {
        die(name);
    }

    return symbol;
}

#define STRING_(_text) #_text
#define STRING(_text)  STRING_(_text)
#define UCT(_name)  ((__typeof__(&_name))find(libuct, #_name))
#define CUDA(_name) ((__typeof__(&_name))find(libcuda, STRING(_name)))

static void check(ucs_status_t status, const char *what)
{
    if (UCS_STATUS_IS_ERR(status)) {
        die(what);
    }
}

#define CALL(_name, ...) check(UCT(_name)(__VA_ARGS__), #_name)

static void find_component(side_t *side)
{
    uct_component_h *list;
    uct_component_attr_t attr;
    unsigned i, count;

    CALL(uct_query_components, &list, &count);
    for (i = 0; i < count; ++i) {
        attr.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME;
        CALL(uct_component_query, list[i], &attr);
        if (strcmp(attr.name, "cuda_ipc") == 0) {
            side->component = list[i];
        }
    }

    UCT(uct_release_component_list)(list);
    if (side->component == NULL) {
        die("there is no cuda_ipc");
    }
}

static void open_side(side_t *side)
{
    ucs_status_t (*async_create)(ucs_async_mode_t mode,
                                 ucs_async_context_t **async) =
            find(libucs, "ucs_async_context_create");
    uct_iface_params_t params = {
        .field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE |
                      UCT_IFACE_PARAM_FIELD_DEVICE,
        .open_mode  = UCT_IFACE_OPEN_MODE_DEVICE
    };
    uct_tl_resource_desc_t *resources;
    uct_iface_config_t *iface_config;
    uct_md_config_t *md_config;
    unsigned count;

    find_component(side);
    check(async_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &side->async), "async");
    CALL(uct_worker_create, side->async, UCS_THREAD_MODE_SINGLE, &side->worker);
    CALL(uct_md_config_read, side->component, NULL, NULL, &md_config);
    CALL(uct_md_open, side->component, "cuda_ipc", md_config, &side->md);
    CALL(uct_md_query_tl_resources, side->md, &resources, &count);
    if (count == 0) {
        die("cuda_ipc offers nothing");
    }

    CALL(uct_md_iface_config_read, side->md, resources[0].tl_name, NULL, NULL,
         &iface_config);
    params.mode.device.tl_name  = resources[0].tl_name;
    params.mode.device.dev_name = resources[0].dev_name;
    CALL(uct_iface_open, side->md, side->worker, &params, iface_config,
         &side->iface);
    CALL(uct_iface_query, side->iface, &side->attr);
    uct_iface_progress_enable(side->iface,
                              UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
}

/* Allocate memory of a GPU; its context stays current. */
static CUdeviceptr gpu_memory(int device, size_t size)
{
    CUdeviceptr memory = 0;
    CUcontext context;

    if ((CUDA(cuInit)(0) != CUDA_SUCCESS) ||
        (CUDA(cuDevicePrimaryCtxRetain)(&context, device) != CUDA_SUCCESS) ||
        (CUDA(cuCtxSetCurrent)(context) != CUDA_SUCCESS) ||
        (CUDA(cuMemAlloc)(&memory, size) != CUDA_SUCCESS)) {
        die("no memory of a GPU");
    }

    return memory;
}

/* Describe this side's memory, and wait until it is not needed any more. */
static void offer(int device, size_t size)
{
    side_t side = {0};
    peer_t peer = {0};
    uct_mem_h memh;
    char end;

    peer.address = gpu_memory(device, size);
    open_side(&side);
    CALL(uct_md_mem_reg, side.md, (void*)peer.address, size,
         UCT_MD_MEM_ACCESS_ALL, &memh);
    CALL(uct_md_mkey_pack, side.md, memh, peer.key);
    CALL(uct_iface_get_device_address, side.iface,
         (uct_device_addr_t*)peer.dev_addr);
    CALL(uct_iface_get_address, side.iface, (uct_iface_addr_t*)peer.iface_addr);
    if ((write(STDOUT_FILENO, &peer, sizeof(peer)) != sizeof(peer)) ||
        (read(STDIN_FILENO, &end, 1) != 0)) {
        die("nobody wants the memory");
    }

    _exit(0);
}

static void start_peer(char *self, char *device, char *size, peer_t *peer)
{
    int there[2], back[2];

    if ((pipe(there) != 0) || (pipe(back) != 0)) {
        die("no pipe");
    }

    if (fork() == 0) {
        dup2(there[0], STDIN_FILENO);
        dup2(back[1], STDOUT_FILENO);
        close(there[1]);
        execl(self, self, "offer", device, size, NULL);
        _exit(1);
    }

    close(back[1]);
    if (read(back[0], peer, sizeof(*peer)) != sizeof(*peer)) {
        die("the peer offers nothing");
    }
}

static void on_end(uct_completion_t *completion UCS_V_UNUSED)
{
}

/* Query a put seldom: the number of queries depends on time */
static void wait_for(const side_t *side, const uct_completion_t *completion)
{
    const struct timespec time = {0, 20000000};

    while (completion->count > 0) {
        nanosleep(&time, NULL);
        (void)side->iface->ops.iface_progress(side->iface);
    }
}

int main(int argc, char **argv)
{
    uct_ep_params_t params = {
        .field_mask = UCT_EP_PARAM_FIELD_IFACE |
                      UCT_EP_PARAM_FIELD_DEV_ADDR |
                      UCT_EP_PARAM_FIELD_IFACE_ADDR
    };
    /* Threads of the module that the first put starts end in this time */
    const struct timespec settled = {1, 500000000};
    side_t side                   = {0};
    uct_completion_t completion   = {.func = on_end};
    uct_rkey_bundle_t rkey;
    ucs_status_t status;
    unsigned i, puts;
    uct_iov_t iov = {.count = 1};
    size_t size;
    peer_t peer;
    uct_ep_h ep;

    if ((argc < 4) || (argc > 5)) {
        fprintf(stderr, "Usage: ucx_mp_puts PUTS FROM TO BYTES\n");
        return 1;
    }

    libuct  = dlopen("libuct.so.0", RTLD_NOW | RTLD_GLOBAL);
    libucs  = dlopen("libucs.so.0", RTLD_NOW | RTLD_GLOBAL);
    libcuda = dlopen("libcuda.so.1", RTLD_NOW);
    if ((libuct == NULL) || (libucs == NULL) || (libcuda == NULL)) {
        die(dlerror());
    }

    if (strcmp(argv[1], "offer") == 0) {
        offer(atoi(argv[2]), strtoul(argv[3], NULL, 0));
    }

    if (argc != 5) {
        die("arguments are missing");
    }

    puts = (unsigned)atoi(argv[1]);
    size = strtoul(argv[4], NULL, 0);
    start_peer(argv[0], argv[3], argv[4], &peer);
    iov.buffer = (void*)gpu_memory(atoi(argv[2]), size);
    iov.length = size;
    open_side(&side);
    params.iface      = side.iface;
    params.dev_addr   = (uct_device_addr_t*)peer.dev_addr;
    params.iface_addr = (uct_iface_addr_t*)peer.iface_addr;
    CALL(uct_ep_create, &params, &ep);
    CALL(uct_rkey_unpack, side.component, peer.key, &rkey);
    for (i = 0; i < puts; ++i) {
        completion.count  = 1;
        completion.status = UCS_OK;
        status = ep->iface->ops.ep_put_zcopy(ep, &iov, 1, peer.address,
                                             rkey.rkey, &completion);
        check(status, "put_zcopy");
        if (status == UCS_INPROGRESS) {
            wait_for(&side, &completion);
        }
        if (i == 0) {
            nanosleep(&settled, NULL);
        }
    }

    _exit(0);
}
