/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two dummy components with the names of the real ones: they show whether a UCX
 * sees components registered through src/uct/abi. Memory is from malloc(); put
 * and get copy it at once.
 */

#include <uct/abi/abi.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef FAKE_DEVICE
#define FAKE_DEVICE    "fake"
#endif
#define FAKE_BANDWIDTH 123e9
#define FAKE_MAGIC     UINT64_C(0x464b4d50)

typedef struct {
    int           yes_no;
    int           ternary;
    int           ternary_auto;
    int           on_off_auto;
    unsigned      uint;
    unsigned long ulunits;
    size_t        memunits;
    double        number;
    double        time;
    double        bw;
    int           choice;
    char          *string;
} fake_md_config_t;

typedef struct {
    uct_abi_iface_config_t super;
    unsigned               max_poll;
    double                 bw;
} fake_iface_config_t;

typedef struct {
    uct_abi_md_t super;
} fake_md_t;

typedef struct {
    uct_abi_iface_t super;
    double          bw;
    unsigned        uses;
} fake_iface_t;

static const char *const fake_choices[] = {"red", "green", "blue", NULL};

#define FAKE_FIELD(_name, _dfl, _type, _field) \
    {_name, _dfl, "doc of " _name, offsetof(fake_md_config_t, _field), \
     UCT_ABI_CONFIG_##_type, NULL}

static const uct_abi_config_field_t fake_md_config_fields[] = {
    FAKE_FIELD("FAKE_BOOL", "y", BOOL, yes_no),
    FAKE_FIELD("FAKE_TERNARY", "try", TERNARY, ternary),
    FAKE_FIELD("FAKE_TERNARY_AUTO", "auto", TERNARY_AUTO, ternary_auto),
    FAKE_FIELD("FAKE_ON_OFF_AUTO", "auto", ON_OFF_AUTO, on_off_auto),
    FAKE_FIELD("FAKE_UINT", "inf", UINT, uint),
    FAKE_FIELD("FAKE_ULUNITS", "inf", ULUNITS, ulunits),
    FAKE_FIELD("FAKE_MEMUNITS", "4mb", MEMUNITS, memunits),
    FAKE_FIELD("FAKE_DOUBLE", "0.5", DOUBLE, number),
    FAKE_FIELD("FAKE_TIME", "5us", TIME, time),
    FAKE_FIELD("FAKE_BW", "auto", BW, bw),
    {"FAKE_ENUM", "green", "doc of FAKE_ENUM",
     offsetof(fake_md_config_t, choice), UCT_ABI_CONFIG_ENUM, fake_choices},
    FAKE_FIELD("FAKE_STRING", "some text", STRING, string),
    {NULL, NULL, NULL, 0, UCT_ABI_CONFIG_END, NULL}
};

static const uct_abi_config_field_t fake_iface_config_fields[] = {
    {"MAX_POLL", "16", "doc of MAX_POLL",
     offsetof(fake_iface_config_t, max_poll), UCT_ABI_CONFIG_UINT, NULL},
    {"BW", "auto", "doc of BW", offsetof(fake_iface_config_t, bw),
     UCT_ABI_CONFIG_BW, NULL},
    {NULL, NULL, NULL, 0, UCT_ABI_CONFIG_END, NULL}
};

static void fake_md_close(uct_abi_md_t *md)
{
    free(md);
}

static ucs_status_t fake_md_query(uct_abi_md_t *md, uct_abi_md_attr_t *attr_p)
{
    attr_p->max_alloc        = 1 << 20;
    attr_p->max_reg          = 1 << 21;
    attr_p->flags            = UCT_ABI_MD_FLAG_ALLOC | UCT_ABI_MD_FLAG_REG |
                               UCT_ABI_MD_FLAG_INVALIDATE |
                               UCT_ABI_MD_FLAG_RKEY_PTR |
                               UCT_ABI_MD_FLAG_MEMTYPE_COPY;
    attr_p->reg_mem_types    = UCT_ABI_BIT(UCT_ABI_MEM_TYPE_HOST) |
                               UCT_ABI_BIT(UCT_ABI_MEM_TYPE_CUDA);
    attr_p->cache_mem_types  = UCT_ABI_BIT(UCT_ABI_MEM_TYPE_CUDA);
    attr_p->detect_mem_types = UCT_ABI_BIT(UCT_ABI_MEM_TYPE_CUDA_MANAGED);
    attr_p->alloc_mem_types  = UCT_ABI_BIT(UCT_ABI_MEM_TYPE_CUDA);
    attr_p->access_mem_types = UCT_ABI_BIT(UCT_ABI_MEM_TYPE_HOST) |
                               UCT_ABI_BIT(UCT_ABI_MEM_TYPE_CUDA);
    attr_p->dmabuf_mem_types = UCT_ABI_BIT(UCT_ABI_MEM_TYPE_CUDA);
    attr_p->reg_cost.c       = 1e-6;
    attr_p->reg_cost.m       = 2e-9;
    attr_p->rkey_packed_size = 24;
    return UCS_OK;
}

static ucs_status_t fake_md_mem_alloc(uct_abi_md_t *md, size_t *length_p,
                                      void **address_p,
                                      uct_abi_mem_type_t mem_type,
                                      ucs_sys_device_t sys_dev, unsigned flags,
                                      const char *name, uct_mem_h *memh_p)
{
    if ((mem_type != UCT_ABI_MEM_TYPE_CUDA) ||
        (sys_dev != UCT_ABI_SYS_DEVICE_UNKNOWN) ||
        (strcmp(name, "abi test") != 0)) {
        return UCS_ERR_INVALID_PARAM;
    }

    *address_p = malloc(*length_p);
    *memh_p    = *address_p;
    return (*address_p == NULL) ? UCS_ERR_NO_MEMORY : UCS_OK;
}

static ucs_status_t fake_md_mem_free(uct_abi_md_t *md, uct_mem_h memh)
{
    free(memh);
    return UCS_OK;
}

static ucs_status_t
fake_md_mem_reg(uct_abi_md_t *md, void *address, size_t length,
                unsigned flags, uct_mem_h *memh_p)
{
    if (flags != UCT_MD_MEM_ACCESS_RMA) {
        return UCS_ERR_INVALID_PARAM;
    }

    *memh_p = address;
    return UCS_OK;
}

static ucs_status_t
fake_md_mem_dereg(uct_abi_md_t *md, uct_mem_h memh, uct_completion_t *comp)
{
    uct_abi_completion_update(comp, 1, UCS_OK);
    return UCS_OK;
}

static ucs_status_t fake_md_mem_query(uct_abi_md_t *md, const void *address,
                                      size_t length, uct_abi_mem_attr_t *attr_p)
{
    if (length == 1) { /* a range of unknown memory */
        attr_p->mem_type = UCT_ABI_MEM_TYPE_UNKNOWN;
        return UCS_OK;
    }

    attr_p->mem_type     = UCT_ABI_MEM_TYPE_CUDA_MANAGED;
    attr_p->sys_dev      = 5;
    attr_p->base_address = (char*)(uintptr_t)address - 16;
    attr_p->alloc_length = length + 32;
    return UCS_OK;
}

static ucs_status_t fake_md_mkey_pack(uct_abi_md_t *md, uct_mem_h memh,
                                      void *address, size_t length,
                                      void *buffer)
{
    uint64_t key[3] = {FAKE_MAGIC, (uintptr_t)memh};

    memcpy(buffer, key, sizeof(key));
    return UCS_OK;
}

static ucs_status_t fake_md_detect(uct_abi_md_t *md, const void *address,
                                   size_t length,
                                   uct_abi_mem_type_t *mem_type_p)
{
    *mem_type_p = UCT_ABI_MEM_TYPE_CUDA_MANAGED;
    return UCS_OK;
}

static const uct_abi_md_ops_t fake_md_ops = {
    .close              = fake_md_close,
    .query              = fake_md_query,
    .mem_alloc          = fake_md_mem_alloc,
    .mem_free           = fake_md_mem_free,
    .mem_reg            = fake_md_mem_reg,
    .mem_dereg          = fake_md_mem_dereg,
    .mem_query          = fake_md_mem_query,
    .mkey_pack          = fake_md_mkey_pack,
    .detect_memory_type = fake_md_detect
};

static int fake_near(double a, double b)
{
    return (a > b * 0.999999) && (a < b * 1.000001);
}

/* Compare the configuration's values with the defaults above. Each field has a
   bit, for the log of wrong ones. */
static unsigned fake_config_check(const fake_md_config_t *config)
{
    unsigned wrong = 0;

    wrong |= (unsigned)(config->yes_no != 1) << 0;
    wrong |= (unsigned)(config->ternary != UCT_ABI_TRY) << 1;
    wrong |= (unsigned)(config->ternary_auto != UCT_ABI_AUTO) << 2;
    wrong |= (unsigned)(config->on_off_auto != UCT_ABI_ON_OFF_AUTO) << 3;
    wrong |= (unsigned)(config->uint != UINT32_MAX) << 4;
    wrong |= (unsigned)(config->ulunits != UCT_ABI_ULUNITS_INF) << 5;
    wrong |= (unsigned)(config->memunits != (4 << 20)) << 6;
    wrong |= (unsigned)(config->number != 0.5) << 7;
    wrong |= (unsigned)(!fake_near(config->time, 5e-6)) << 8;
    wrong |= (unsigned)(!uct_abi_double_is_auto(config->bw)) << 9;
    wrong |= (unsigned)(config->choice != 1) << 10;
    wrong |= (unsigned)(strcmp(config->string, "some text") != 0) << 11;
    return wrong;
}

#define FAKE_SURE(_condition) \
    do { \
        if (!(_condition)) { \
            uct_abi_error("not so: %s", #_condition); \
        } \
    } while (0)

typedef struct {
    void     *address;
    unsigned hits;
} fake_watch_t;

static fake_watch_t fake_watch;

static void fake_unmapped(void *address, size_t length)
{
    if ((address == fake_watch.address) && (length == 1 << 20)) {
        ++fake_watch.hits;
    }
}

/* Try the functions of UCX available to the module: topology, memory events,
   and the memory-type cache, left off. */
static void fake_try_host(void)
{
    ucs_sys_device_t device[3];

    FAKE_SURE(uct_abi_topo_sys_device(0, 0x17, 0, 0, &device[0]) == UCS_OK);
    FAKE_SURE(uct_abi_topo_sys_device(0, 0x17, 0, 0, &device[1]) == UCS_OK);
    FAKE_SURE(uct_abi_topo_sys_device(1, 0x17, 0, 0, &device[2]) == UCS_OK);
    FAKE_SURE(device[0] == device[1]);
    FAKE_SURE(device[0] != device[2]);
    FAKE_SURE(uct_abi_topo_sys_device_set_name(device[0], "GPU0", 10) ==
              UCS_OK);
    FAKE_SURE(uct_abi_system_id() != 0);

    FAKE_SURE(uct_abi_on_unmap(fake_unmapped) == UCS_OK);
    fake_watch.address = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(fake_watch.address, 1 << 20);
    FAKE_SURE(fake_watch.hits == 1);

    /* no hooks on CUDA here: the cache must be reported as blind */
    FAKE_SURE(uct_abi_memtype_cache_state() == UCT_ABI_MEMTYPE_CACHE_BLIND);
    FAKE_SURE(uct_abi_memtype_cache_disable() == UCS_OK);
    FAKE_SURE(uct_abi_memtype_cache_state() == UCT_ABI_MEMTYPE_CACHE_OFF);
    uct_abi_memtype_cache_update(&fake_watch, sizeof(fake_watch),
                                 UCT_ABI_MEM_TYPE_CUDA, device[0]);
    uct_abi_info("host tried");
}

static int fake_is_available(const uct_abi_component_t *component)
{
    return getenv("UCX_MP_FAKE_NO_GPU") == NULL;
}

static ucs_status_t
fake_md_open(const uct_abi_component_t *component, const char *md_name,
             const void *config, uct_abi_md_t **md_p)
{
    unsigned wrong = fake_config_check(config);
    fake_md_t *md;

    if (strcmp(md_name, component->name) != 0) {
        return UCS_ERR_NO_DEVICE;
    }

    if ((wrong != 0) && (getenv("UCX_MP_FAKE_CONFIG") == NULL)) {
        uct_abi_error("configuration has wrong values: 0x%x", wrong);
        return UCS_ERR_INVALID_PARAM;
    }

    uct_abi_info("fake memory domain %s opened under %s", md_name,
                 uct_abi_host_name());

    if ((getenv("UCX_MP_FAKE_TRY_HOST") != NULL) &&
        (strcmp(md_name, "cuda_cpy") == 0)) {
        fake_try_host();
    }

    md = calloc(1, sizeof(*md));
    if (md == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    md->super.ops = &fake_md_ops;
    *md_p         = &md->super;
    return UCS_OK;
}

static ucs_status_t fake_rkey_ptr(const uct_abi_component_t *component,
                                  uct_rkey_t rkey, void *handle,
                                  uint64_t remote_address, void **address_p)
{
    *address_p = (void*)(uintptr_t)(rkey + remote_address);
    return UCS_OK;
}

static ucs_status_t fake_rkey_unpack(const uct_abi_component_t *component,
                                     const void *buffer,
                                     ucs_sys_device_t sys_dev,
                                     uct_rkey_t *rkey_p, void **handle_p)
{
    uint64_t key[3];

    memcpy(key, buffer, sizeof(key));
    if (key[0] != FAKE_MAGIC) {
        return UCS_ERR_UNREACHABLE;
    }

    *rkey_p   = key[1];
    *handle_p = NULL;
    return UCS_OK;
}

static int
fake_query_device(const uct_abi_md_t *md, uct_abi_tl_device_t *device)
{
    strcpy(device->name, FAKE_DEVICE);
    device->sys_device = UCT_ABI_SYS_DEVICE_UNKNOWN;
    return 1;
}

static ucs_status_t
fake_iface_query(uct_abi_iface_t *iface, uct_iface_attr_t *attr_p)
{
    attr_p->iface_addr_len    = sizeof(uint64_t);
    attr_p->device_addr_len   = sizeof(uint64_t);
    attr_p->cap.flags         = UCT_IFACE_FLAG_CONNECT_TO_IFACE |
                                UCT_IFACE_FLAG_PUT_SHORT |
                                UCT_IFACE_FLAG_PUT_ZCOPY |
                                UCT_IFACE_FLAG_GET_ZCOPY |
                                UCT_IFACE_FLAG_PENDING |
                                uct_abi_iface_flags(
                                        UCT_ABI_IFACE_FLAG_INTER_NODE);
    attr_p->cap.put.max_short = 4096;
    attr_p->cap.put.max_zcopy = SIZE_MAX;
    attr_p->cap.put.max_iov   = 1;
    attr_p->cap.get.max_zcopy = SIZE_MAX;
    attr_p->cap.get.max_iov   = 1;
    attr_p->latency.c         = 8e-6;
    attr_p->bandwidth.shared  = FAKE_BANDWIDTH;
    attr_p->overhead          = 3e-6;
    attr_p->priority          = ((fake_iface_t*)iface)->uses;
    return UCS_OK;
}

static ucs_status_t
fake_iface_get_address(uct_iface_h iface, uct_iface_addr_t *address)
{
    uint64_t magic = FAKE_MAGIC;

    memcpy(address, &magic, sizeof(magic));
    return UCS_OK;
}

static ucs_status_t
fake_iface_get_device_address(uct_iface_h iface, uct_device_addr_t *address)
{
    return fake_iface_get_address(iface, (uct_iface_addr_t*)address);
}

static int
fake_iface_is_reachable(uct_abi_iface_t *iface, uct_abi_reachable_t *peer)
{
    uint64_t magic;

    memcpy(&magic, peer->dev_addr, sizeof(magic));
    if (magic != FAKE_MAGIC) {
        peer->reason = "not a fake";
        return 0;
    }

    return 1;
}

static ucs_status_t
fake_ep_create(uct_abi_iface_t *iface, const uct_abi_ep_params_t *params,
               uct_ep_h *ep_p)
{
    return uct_abi_ep_new(sizeof(uct_abi_ep_t), iface, ep_p);
}

static ucs_status_t fake_ep_put_short(uct_ep_h ep, const void *buffer,
                                      unsigned length, uint64_t remote_addr,
                                      uct_rkey_t rkey)
{
    memcpy((void*)(uintptr_t)remote_addr, buffer, length);
    return UCS_OK;
}

/* Return the total bytes of an iov */
static size_t iov_length(const uct_iov_t *iov, size_t iovcnt)
{
    size_t length = 0, i;

    for (i = 0; i < iovcnt; ++i) {
        length += iov[i].length * iov[i].count;
    }

    return length;
}

static ucs_status_t fake_ep_put_zcopy(uct_ep_h ep, const uct_iov_t *iov,
                                      size_t iovcnt, uint64_t remote_addr,
                                      uct_rkey_t rkey, uct_completion_t *comp)
{
    memcpy((void*)(uintptr_t)remote_addr, iov->buffer,
           iov_length(iov, iovcnt));
    return UCS_OK;
}

static ucs_status_t fake_ep_get_zcopy(uct_ep_h ep, const uct_iov_t *iov,
                                      size_t iovcnt, uint64_t remote_addr,
                                      uct_rkey_t rkey, uct_completion_t *comp)
{
    memcpy(iov->buffer, (void*)(uintptr_t)remote_addr,
           iov_length(iov, iovcnt));
    return UCS_OK;
}

static ucs_status_t fake_ep_put_list(uct_ep_h ep, const uct_abi_list_t *list,
                                     uct_completion_t *comp)
{
    size_t i;

    for (i = 0; i < list->count; ++i) {
        memcpy((void*)(uintptr_t)list->remote_addrs[i], list->buffers[i],
               list->lengths[i]);
    }

    return (ucs_status_t)(list->count + list->rkeys[0]);
}

static ucs_status_t fake_ep_get_list(uct_ep_h ep, const uct_abi_list_t *list,
                                     uct_completion_t *comp)
{
    return (ucs_status_t)(list->count * 100);
}

static ucs_status_t
fake_ep_flush(uct_ep_h ep, unsigned flags, uct_completion_t *comp)
{
    return UCS_OK;
}

static ucs_status_t
fake_iface_flush(uct_iface_h iface, unsigned flags, uct_completion_t *comp)
{
    return UCS_OK;
}

static ucs_status_t
fake_ep_pending_add(uct_ep_h ep, uct_pending_req_t *request, unsigned flags)
{
    return UCS_ERR_BUSY;
}

static ucs_status_t fake_ep_fence(uct_ep_h ep, unsigned flags)
{
    return UCS_OK;
}

static ucs_status_t fake_iface_fence(uct_iface_h iface, unsigned flags)
{
    return UCS_OK;
}

static void fake_iface_progress_enable(uct_iface_h iface, unsigned flags)
{
    uct_abi_iface_progress_enable((uct_abi_iface_t*)iface, flags);
}

static void fake_iface_progress_disable(uct_iface_h iface, unsigned flags)
{
    uct_abi_iface_progress_disable((uct_abi_iface_t*)iface, flags);
}

static unsigned fake_iface_progress(uct_iface_h iface)
{
    return 1;
}

static void fake_iface_close(uct_iface_h iface)
{
    uct_abi_iface_cleanup((uct_abi_iface_t*)iface);
    free(iface);
}

static ucs_status_t
fake_iface_estimate_perf(uct_abi_iface_t *iface, uct_abi_perf_attr_t *attr)
{
    attr->send_pre_overhead  = 1e-6;
    attr->send_post_overhead = 2e-6;
    attr->recv_overhead      = 3e-6;
    attr->bandwidth.shared   = FAKE_BANDWIDTH;
    attr->latency.c          = 4e-6;
    attr->max_inflight_eps   = 42 + (attr->is_answered ? 1 : 0);
    attr->flags              = 0;

    /* this answer proves the question's arrival */
    if ((attr->operation == UCT_ABI_EP_OP_PUT_ZCOPY) &&
        (attr->local_mem_type == UCT_ABI_MEM_TYPE_CUDA) &&
        (attr->remote_mem_type == UCT_ABI_MEM_TYPE_UNKNOWN)) {
        attr->bandwidth.shared = FAKE_BANDWIDTH * 2;
    }
    if (attr->local_sys_dev != UCT_ABI_SYS_DEVICE_UNKNOWN) {
        attr->send_pre_overhead = attr->local_sys_dev;
    }
    if (attr->remote_sys_dev != UCT_ABI_SYS_DEVICE_UNKNOWN) {
        attr->recv_overhead = attr->remote_sys_dev;
    }

    return UCS_OK;
}

static const uct_abi_iface_ops_t fake_iface_ops = {
    .host = {
        .ep_put_short             = fake_ep_put_short,
        .ep_put_zcopy             = fake_ep_put_zcopy,
        .ep_get_zcopy             = fake_ep_get_zcopy,
        .ep_pending_add           = fake_ep_pending_add,
        .ep_flush                 = fake_ep_flush,
        .ep_fence                 = fake_ep_fence,
        .ep_destroy               = uct_abi_ep_delete,
        .iface_flush              = fake_iface_flush,
        .iface_fence              = fake_iface_fence,
        .iface_progress_enable    = fake_iface_progress_enable,
        .iface_progress_disable   = fake_iface_progress_disable,
        .iface_progress           = fake_iface_progress,
        .iface_close              = fake_iface_close,
        .iface_get_device_address = fake_iface_get_device_address,
        .iface_get_address        = fake_iface_get_address
    },
    .iface_query        = fake_iface_query,
    .ep_put_list        = fake_ep_put_list,
    .ep_get_list        = fake_ep_get_list,
    .ep_create          = fake_ep_create,
    .iface_is_reachable = fake_iface_is_reachable,
    .estimate_perf      = fake_iface_estimate_perf
};

static ucs_status_t
fake_iface_open(const uct_abi_iface_args_t *args, uct_abi_iface_t **iface_p)
{
    const fake_iface_config_t *fake = (const fake_iface_config_t*)args->config;
    ucs_status_t status;

    if ((fake->max_poll != 16) || !uct_abi_double_is_auto(fake->bw)) {
        uct_abi_error("interface configuration has wrong values");
        return UCS_ERR_INVALID_PARAM;
    }

    status = uct_abi_iface_new(sizeof(fake_iface_t), &fake_iface_ops, args,
                               iface_p);
    if (status == UCS_OK) {
        ((fake_iface_t*)*iface_p)->uses = uct_abi_iface_uses(args);
    }

    return status;
}

#define FAKE_TL(_name, _component, _prefix) \
    static const uct_abi_tl_t fake_##_name##_tl = { \
        .name          = #_name, \
        .config        = {#_name " transport", _prefix, \
                          fake_iface_config_fields, \
                          sizeof(fake_iface_config_t)}, \
        .device_type   = UCT_DEVICE_TYPE_ACC, \
        .query_device  = fake_query_device, \
        .iface_open    = fake_iface_open \
    }; \
    static const uct_abi_component_t fake_##_name = { \
        .name         = _component, \
        .config       = {#_name " memory domain", _prefix, \
                         fake_md_config_fields, sizeof(fake_md_config_t)}, \
        .tl           = &fake_##_name##_tl, \
        .is_available = fake_is_available, \
        .md_open      = fake_md_open, \
        .rkey_unpack  = fake_rkey_unpack, \
        .rkey_ptr     = fake_rkey_ptr \
    }

FAKE_TL(cuda_copy, "cuda_cpy", "CUDA_COPY_");
FAKE_TL(cuda_ipc, "cuda_ipc", "CUDA_IPC_");

const uct_abi_component_t *const uct_abi_components[] = {
    &fake_cuda_copy, &fake_cuda_ipc, NULL
};
