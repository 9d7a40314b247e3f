/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The module's view of UCX, independent of the release it is loaded into.
 *
 * Every declaration here has one meaning in all releases. This folder
 * translates it to the tables, arguments and numbers of the running UCX. No
 * other folder calls a UCX symbol or tests a release number. From UCX's
 * installed headers the module uses only types and constants unchanged since
 * 1.13 (status codes, uct_iov_t, uct_completion_t, uct_iface_attr_t,
 * uct_iface_params_t, the UCT_IFACE_FLAG_ bits of 1.13, the UCT_MD_MEM_ flags).
 * It never uses a function, nor a macro or inline function with a call.
 */

#ifndef UCT_ABI_H_
#define UCT_ABI_H_

#include <uct/api/uct.h>
#include <uct/api/tl.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UCT_ABI_BASE_IFACE_SIZE 1280
#define UCT_ABI_BIT(_n)         (UINT64_C(1) << (_n))

/* "No such device", in every release. */
#define UCT_ABI_SYS_DEVICE_UNKNOWN ((ucs_sys_device_t)UINT8_MAX)

/* Memory types. UCX numbers "unknown" after its last type, so its number
   changes between releases; UNKNOWN here is translated. The other numbers never
   changed. */
typedef enum {
    UCT_ABI_MEM_TYPE_HOST         = 0,
    UCT_ABI_MEM_TYPE_CUDA         = 1,
    UCT_ABI_MEM_TYPE_CUDA_MANAGED = 2,
    UCT_ABI_MEM_TYPE_UNKNOWN      = 0xff
} uct_abi_mem_type_t;


/*
 * Configuration
 */

/* Type of a configuration variable; in brackets the C type of its field. */
typedef enum {
    UCT_ABI_CONFIG_END = 0,      /* ends an array of fields */
    UCT_ABI_CONFIG_BOOL,         /* y|n [int] */
    UCT_ABI_CONFIG_TERNARY,      /* y|n|try [int, uct_abi_ternary_t] */
    UCT_ABI_CONFIG_TERNARY_AUTO, /* y|n|auto [int, uct_abi_ternary_t]; read by
                                    the host's own parser, which also accepts
                                    "try" on 1.13 to 1.15 */
    UCT_ABI_CONFIG_ON_OFF_AUTO,  /* on|off|auto [int, uct_abi_on_off_auto_t] */
    UCT_ABI_CONFIG_UINT,         /* number or "inf" = UINT_MAX [unsigned] */
    UCT_ABI_CONFIG_ULUNITS,      /* number, "inf" or "auto" [unsigned long];
                                    UCT_ABI_ULUNITS_{INF,AUTO} */
    UCT_ABI_CONFIG_MEMUNITS,     /* bytes with unit, "inf" or "auto" [size_t];
                                    UCT_ABI_MEMUNITS_{INF,AUTO} */
    UCT_ABI_CONFIG_DOUBLE,       /* [double] */
    UCT_ABI_CONFIG_TIME,         /* seconds, "10us" [double] */
    UCT_ABI_CONFIG_BW,           /* bytes/s, "10GBs" or "auto" [double];
                                    UCT_ABI_DOUBLE_AUTO */
    UCT_ABI_CONFIG_ENUM,         /* a word of .names [int, its index] */
    UCT_ABI_CONFIG_STRING        /* [char *] */
} uct_abi_config_type_t;

#define UCT_ABI_ULUNITS_INF  ((unsigned long)-1)
#define UCT_ABI_ULUNITS_AUTO ((unsigned long)-2)
#define UCT_ABI_MEMUNITS_INF  ((size_t)-1)
#define UCT_ABI_MEMUNITS_AUTO ((size_t)-2)
#define UCT_ABI_DOUBLE_AUTO   (-2.0) /* compare with uct_abi_double_is_auto */

typedef enum {
    UCT_ABI_NO   = 0,
    UCT_ABI_YES  = 1,
    UCT_ABI_TRY  = 2,
    UCT_ABI_AUTO = 3
} uct_abi_ternary_t;

typedef enum {
    UCT_ABI_OFF         = 0,
    UCT_ABI_ON          = 1,
    UCT_ABI_ON_OFF_AUTO = 2
} uct_abi_on_off_auto_t;

/* One variable: UCX_<prefix><name>. Strings must live as long as the module. */
typedef struct {
    const char            *name;
    const char            *dfl;    /* default, as text */
    const char            *doc;
    size_t                offset;  /* of the field in the config structure */
    uct_abi_config_type_t type;
    const char *const     *names;  /* ENUM: NULL-terminated */
} uct_abi_config_field_t;

/* Describe a field; arguments behind the text depend on its type (.names). */
#define UCT_ABI_CONFIG_FIELD(_name, _dfl, _type, _struct, _member, _doc, ...) \
    { \
        .name = _name, .dfl = _dfl, .doc = _doc, \
        .type = UCT_ABI_CONFIG_##_type, .offset = offsetof(_struct, _member), \
        ##__VA_ARGS__ \
    }

typedef struct {
    const char                   *name;   /* title in ucx_info -c */
    const char                   *prefix; /* "CUDA_COPY_" */
    const uct_abi_config_field_t *fields; /* ends with type END */
    size_t                       size;    /* of the config structure, bytes */
} uct_abi_config_t;

static inline int uct_abi_double_is_auto(double value)
{
    return (long)value == -2;
}

/* Beginning of an interface's config structure. The host's own base variables
   (UCX_<prefix>ALLOC and others) live in it and are listed behind it. */
typedef struct {
    uint64_t host[4];
} uct_abi_iface_config_t;


/*
 * Memory domain
 */

typedef struct uct_abi_md uct_abi_md_t;
typedef struct uct_abi_md_ops uct_abi_md_ops_t;
typedef struct uct_abi_component uct_abi_component_t;

/* Capability bits of a memory domain. Bits unknown to the running release are
   omitted. */
enum {
    UCT_ABI_MD_FLAG_ALLOC        = 1 << 0,
    UCT_ABI_MD_FLAG_REG          = 1 << 1,
    UCT_ABI_MD_FLAG_NEED_MEMH    = 1 << 2,
    UCT_ABI_MD_FLAG_NEED_RKEY    = 1 << 3,
    UCT_ABI_MD_FLAG_ADVISE       = 1 << 4,
    UCT_ABI_MD_FLAG_FIXED        = 1 << 5,
    UCT_ABI_MD_FLAG_RKEY_PTR     = 1 << 6, /* offered from 1.21 on: its UCP
                                              knows that the pointer may be GPU
                                              memory */
    UCT_ABI_MD_FLAG_INVALIDATE   = 1 << 8, /* mem_dereg invalidates (RMA and
                                              AMO since 1.15) */
    UCT_ABI_MD_FLAG_REG_DMABUF   = 1 << 10, /* 1.14 */
    UCT_ABI_MD_FLAG_MEMTYPE_COPY = 1 << 13  /* 1.19 */
};

/* Sets of memory types are bit masks, UCT_ABI_BIT(type). */
typedef struct {
    uint64_t          max_alloc;              /* bytes */
    size_t            max_reg;                /* bytes */
    uint64_t          flags;                  /* UCT_ABI_MD_FLAG_ */
    uint64_t          reg_mem_types;
    uint64_t          reg_nonblock_mem_types; /* 1.15 */
    uint64_t          cache_mem_types;        /* 1.14 */
    uint64_t          gva_mem_types;          /* 1.18 */
    uint64_t          detect_mem_types;
    uint64_t          alloc_mem_types;
    uint64_t          access_mem_types;
    uint64_t          dmabuf_mem_types;       /* 1.14 */
    ucs_linear_func_t reg_cost;               /* s, s/byte */
    size_t            rkey_packed_size;       /* bytes */
    size_t            reg_alignment;          /* bytes, 1.16 */
    ucs_cpu_set_t     local_cpus;             /* All bits are set before the
                                                 module is asked */
} uct_abi_md_attr_t;

/* Attributes requested from mem_query. */
enum {
    UCT_ABI_MEM_ATTR_MEM_TYPE     = 1 << 0,
    UCT_ABI_MEM_ATTR_SYS_DEV      = 1 << 1,
    UCT_ABI_MEM_ATTR_BASE_ADDRESS = 1 << 2,
    UCT_ABI_MEM_ATTR_ALLOC_LENGTH = 1 << 3,
    UCT_ABI_MEM_ATTR_DMABUF_FD    = 1 << 4,
    UCT_ABI_MEM_ATTR_DMABUF_OFFSET = 1 << 5,
    UCT_ABI_MEM_ATTR_MEM_FLAGS     = 1 << 6 /* 1.22 */
};

/* All fields are preset (host memory, unknown device, the given range, no file,
   registrable). Fill in the fields of field_mask, and others if they cost
   nothing. Open a dmabuf file only on request: the caller owns it then. */
typedef struct {
    uint64_t           field_mask;
    uct_abi_mem_type_t mem_type;
    ucs_sys_device_t   sys_dev;
    void               *base_address;
    size_t             alloc_length;  /* bytes */
    int                dmabuf_fd;     /* -1: no file */
    size_t             dmabuf_offset; /* bytes */
    int                is_registrable; /* by network devices, 1.22 */
} uct_abi_mem_attr_t;

/* Operations of a memory domain. NULL means UCS_ERR_UNSUPPORTED; close, query,
   mem_reg, mem_dereg and mkey_pack are required. */
struct uct_abi_md_ops {
    void (*close)(uct_abi_md_t *md);

    /* attr_p is zeroed except local_cpus. */
    ucs_status_t (*query)(uct_abi_md_t *md, uct_abi_md_attr_t *attr_p);

    /* sys_dev is UNKNOWN before 1.19. */
    ucs_status_t (*mem_alloc)(uct_abi_md_t *md, size_t *length_p,
                              void **address_p, uct_abi_mem_type_t mem_type,
                              ucs_sys_device_t sys_dev, unsigned flags,
                              const char *name, uct_mem_h *memh_p);

    ucs_status_t (*mem_free)(uct_abi_md_t *md, uct_mem_h memh);

    /* flags: UCT_MD_MEM_ */
    ucs_status_t (*mem_reg)(uct_abi_md_t *md, void *address, size_t length,
                            unsigned flags, uct_mem_h *memh_p);

    /* comp is non-NULL if the memory shall be invalidated: the operation calls
       uct_abi_completion_update(comp, 1, ...) once remote access has ended. */
    ucs_status_t (*mem_dereg)(uct_abi_md_t *md, uct_mem_h memh,
                              uct_completion_t *comp);

    ucs_status_t (*mem_query)(uct_abi_md_t *md, const void *address,
                              size_t length, uct_abi_mem_attr_t *attr_p);

    /* address and length (bytes) are NULL and 0 before 1.16. */
    ucs_status_t (*mkey_pack)(uct_abi_md_t *md, uct_mem_h memh, void *address,
                              size_t length, void *buffer);

    ucs_status_t (*detect_memory_type)(uct_abi_md_t *md, const void *address,
                                       size_t length,
                                       uct_abi_mem_type_t *mem_type_p);

    /* For code on GPUs, 1.21: write a description of the memory behind rkey, in
       the layout of UCX's device header (at most 8 bytes for a domain of this
       kind). The caller's context is current. */
    ucs_status_t (*mem_elem_pack)(uct_abi_md_t *md, uct_mem_h memh,
                                  uct_rkey_t rkey, void *mem_elem);
};

/* Beginning of a memory domain of the module. A uct_md_h may be cast to it. The
   module's md_open sets ops; the other fields are filled after md_open has
   returned. */
struct uct_abi_md {
    const void                *host_ops;  /* laid out as uct_md */
    void                      *host_component;
    const uct_abi_md_ops_t    *ops;
    const uct_abi_component_t *component;
};


/*
 * Interface and endpoint
 */

typedef struct uct_abi_iface uct_abi_iface_t;
typedef struct uct_abi_iface_ops uct_abi_iface_ops_t;

/* Beginning of an interface of the module. A uct_iface_h from UCX may be cast
   to it. */
struct uct_abi_iface {
    uint64_t                  host[UCT_ABI_BASE_IFACE_SIZE / 8];
    const uct_abi_iface_ops_t *ops;
    uct_abi_md_t              *md;
    uct_worker_h              worker;
};

/* Beginning of an endpoint of the module. A uct_ep_h may be cast to it. */
typedef struct {
    uct_ep_t super;
} uct_abi_ep_t;

static inline uct_abi_iface_t *uct_abi_ep_iface(uct_ep_h ep)
{
    return (uct_abi_iface_t*)ep->iface;
}

typedef struct {
    const uct_device_addr_t *dev_addr;   /* may be NULL */
    const uct_iface_addr_t  *iface_addr; /* may be NULL */
} uct_abi_ep_params_t;

/* The module only answers whether it can reach the peer. If not, it may point
   reason at a constant string. This folder handles the scope requested by UCP,
   and UCP's own text. */
typedef struct {
    const uct_device_addr_t *dev_addr;
    const uct_iface_addr_t  *iface_addr;
    const char              *reason;
} uct_abi_reachable_t;

/* Operation of a performance estimate. */
typedef enum {
    UCT_ABI_EP_OP_AM_SHORT = 0,
    UCT_ABI_EP_OP_AM_BCOPY,
    UCT_ABI_EP_OP_AM_ZCOPY,
    UCT_ABI_EP_OP_PUT_SHORT,
    UCT_ABI_EP_OP_PUT_BCOPY,
    UCT_ABI_EP_OP_PUT_ZCOPY,
    UCT_ABI_EP_OP_GET_SHORT,
    UCT_ABI_EP_OP_GET_BCOPY,
    UCT_ABI_EP_OP_GET_ZCOPY,
    UCT_ABI_EP_OP_EAGER_SHORT,
    UCT_ABI_EP_OP_EAGER_BCOPY,
    UCT_ABI_EP_OP_EAGER_ZCOPY,
    UCT_ABI_EP_OP_RNDV_ZCOPY,
    UCT_ABI_EP_OP_ATOMIC_POST,
    UCT_ABI_EP_OP_ATOMIC_FETCH,
    UCT_ABI_EP_OP_UNKNOWN
} uct_abi_ep_op_t;

static inline int uct_abi_ep_op_is_put(uct_abi_ep_op_t op)
{
    return (op == UCT_ABI_EP_OP_PUT_SHORT) || (op == UCT_ABI_EP_OP_PUT_BCOPY) ||
           (op == UCT_ABI_EP_OP_PUT_ZCOPY);
}

static inline int uct_abi_ep_op_is_get(uct_abi_ep_op_t op)
{
    return (op == UCT_ABI_EP_OP_GET_SHORT) || (op == UCT_ABI_EP_OP_GET_BCOPY) ||
           (op == UCT_ABI_EP_OP_GET_ZCOPY);
}

/* Inputs omitted by UCX are UNKNOWN. Outputs are zeroed, max_inflight_eps is
   SIZE_MAX. Set them all; UCX gets the requested ones. path_bandwidth is the
   bandwidth of one path (1.19); zero means the same as bandwidth. */
typedef struct {
    uct_abi_ep_op_t     operation;
    uct_abi_mem_type_t  local_mem_type;
    uct_abi_mem_type_t  remote_mem_type;
    ucs_sys_device_t    local_sys_dev;
    ucs_sys_device_t    remote_sys_dev;
    int                 is_answered;        /* input: UCX expects an answer to
                                               every question, up to 1.18 */
    double              send_pre_overhead;  /* s */
    double              send_post_overhead; /* s */
    double              recv_overhead;      /* s */
    uct_ppn_bandwidth_t bandwidth;          /* bytes/s */
    uct_ppn_bandwidth_t path_bandwidth;     /* bytes/s */
    ucs_linear_func_t   latency;            /* s, s/byte */
    size_t              max_inflight_eps;
    uint64_t            flags;              /* UCT_PERF_ATTR_FLAGS_, 1.17 */
} uct_abi_perf_attr_t;

/* Transfers posted by one call: number i moves lengths[i] bytes between
   buffers[i] and remote_addrs[i], in the memory of rkeys[i]. A length may be 0,
   and so may count. */
typedef struct {
    void *const      *buffers;
    const size_t     *lengths;
    const uint64_t   *remote_addrs;
    const uct_rkey_t *rkeys;
    size_t           count;
} uct_abi_list_t;

/* Operations of an interface and its endpoints. NULL means UCS_ERR_UNSUPPORTED
   unless noted otherwise; iface_query, ep_create, iface_is_reachable,
   estimate_perf and host's iface_get_device_address are required. */
struct uct_abi_iface_ops {
    uct_iface_ops_t host; /* for UCX's table, without a function in between;
                             replaced there: iface_query, ep_create,
                             iface_is_reachable */

    /* attr_p holds libuct's base answers. Set flags newer than 1.13 through
       uct_abi_iface_flags. */
    ucs_status_t (*iface_query)(uct_abi_iface_t *iface,
                                uct_iface_attr_t *attr_p);
    ucs_status_t (*ep_create)(uct_abi_iface_t *iface,
                              const uct_abi_ep_params_t *params,
                              uct_ep_h *ep_p);
    int (*iface_is_reachable)(uct_abi_iface_t *iface,
                              uct_abi_reachable_t *peer);

    /* Return non-zero if the peer with these addresses is the one that ep was
       created for. 1.16. */
    int (*ep_is_connected)(uct_ep_h ep, const uct_abi_ep_params_t *peer);

    /* Return GPU memory that represents the endpoint in code on GPUs; the
       endpoint owns it. The caller's context is current. 1.21. */
    ucs_status_t (*ep_get_device_ep)(uct_ep_h ep, void **device_ep_p);

    /* Post all of a list or nothing. If a part fails later, comp gets the
       error. NULL: UCX learns that lists are not supported. put 1.22, get
       1.23. */
    ucs_status_t (*ep_put_list)(uct_ep_h ep, const uct_abi_list_t *list,
                                uct_completion_t *comp);
    ucs_status_t (*ep_get_list)(uct_ep_h ep, const uct_abi_list_t *list,
                                uct_completion_t *comp);

    ucs_status_t (*estimate_perf)(uct_abi_iface_t *iface,
                                  uct_abi_perf_attr_t *attr);
};

/* Interface flags newer than 1.13; 0 if the running UCX does not have them. */
typedef enum {
    UCT_ABI_IFACE_FLAG_INTER_NODE = 1 << 0, /* 1.18 */
    UCT_ABI_IFACE_FLAG_DEVICE_EP  = 1 << 1  /* 1.21: the first form of the
                                               device API, in 1.20, is not
                                               supported */
} uct_abi_iface_flag_t;

uint64_t uct_abi_iface_flags(unsigned abi_flags);

/* Arguments of libuct for opening an interface. */
typedef struct {
    uct_abi_md_t                 *md;
    uct_worker_h                 worker;
    const uct_iface_params_t     *params;
    const uct_abi_iface_config_t *config;
} uct_abi_iface_args_t;

/* Features requested by the program: tagged messages; RMA or atomics. UCX
   passes RMA from 1.14 on. Below 1.16 it is not reported here. There UCX's
   protocols, by default, never read a program's GPU memory through a transport
   like this one, but use any transport with reads for messages. */
typedef enum {
    UCT_ABI_IFACE_USE_TAG = 1 << 0,
    UCT_ABI_IFACE_USE_RMA = 1 << 1
} uct_abi_iface_use_t;

unsigned uct_abi_iface_uses(const uct_abi_iface_args_t *args);

/* Create an interface of the module, beginning with uct_abi_iface_t: size bytes
   from calloc(), initialized by libuct's base constructor. */
ucs_status_t uct_abi_iface_new(size_t size, const uct_abi_iface_ops_t *ops,
                               const uct_abi_iface_args_t *args,
                               uct_abi_iface_t **iface_p);

/* Run its destructor, which disables progress; the caller frees it. */
void uct_abi_iface_cleanup(uct_abi_iface_t *iface);

/* Create an endpoint, beginning with uct_abi_ep_t, in the same way. */
ucs_status_t
uct_abi_ep_new(size_t size, uct_abi_iface_t *iface, uct_ep_h *ep_p);

/* Run its destructor, and free it. */
void uct_abi_ep_delete(uct_ep_h ep);

/* Call libuct's default progress_enable and _disable (UCT_PROGRESS_ flags). */
void uct_abi_iface_progress_enable(uct_abi_iface_t *iface, unsigned flags);

void uct_abi_iface_progress_disable(uct_abi_iface_t *iface, unsigned flags);

/*
 * Make a worker call func in every progress call until it is removed; one more
 * call may follow. Any thread may call. This does not use libuct's own
 * functions, which take the worker's lock: a thread that closes an interface
 * already holds it.
 *
 * Returns the callback's number, or UCS_CALLBACKQ_ID_NULL if this UCX does not
 * support it.
 */
int uct_abi_worker_callback_add(uct_worker_h worker, ucs_callback_t func,
                                void *arg);

void uct_abi_worker_callback_remove(uct_worker_h worker, int id);

/* Count n operations of a UCT completion as done with this status. The last one
   calls the user's callback. The first error is kept. comp may be NULL. */
static inline void
uct_abi_completion_update(uct_completion_t *comp, int n, ucs_status_t status)
{
    if (comp == NULL) {
        return;
    }

    if ((status != UCS_OK) && (comp->status == UCS_OK)) {
        comp->status = status;
    }

    comp->count -= n;
    if (comp->count == 0) {
        comp->func(comp);
    }
}


/*
 * Component and transport
 */

/* Same as UCX's uct_tl_device_resource_t, in all releases. */
typedef struct {
    char              name[UCT_DEVICE_NAME_MAX];
    uct_device_type_t type;
    ucs_sys_device_t  sys_device;
} uct_abi_tl_device_t;

typedef struct {
    const char        *name;  /* "cuda_copy"; below UCT_TL_NAME_MAX (10) */
    uct_abi_config_t  config; /* its structure begins with
                                 uct_abi_iface_config_t */
    uct_device_type_t device_type;

    /* Return whether there is a device, and fill in its name and system
       device. */
    int (*query_device)(const uct_abi_md_t *md, uct_abi_tl_device_t *device);

    ucs_status_t (*iface_open)(const uct_abi_iface_args_t *args,
                               uct_abi_iface_t **iface_p);
} uct_abi_tl_t;

/* A component with one transport. */
struct uct_abi_component {
    const char         *name;  /* below UCT_COMPONENT_NAME_MAX (16) */
    uct_abi_config_t   config; /* the memory domain's variables; fields NULL: no
                                  variables */
    const uct_abi_tl_t *tl;

    /* Return whether to offer a memory domain (with the component's name). 0 on
       a node without a GPU: UCX then lists nothing. */
    int (*is_available)(const uct_abi_component_t *component);

    /* config points to the structure described by .config. */
    ucs_status_t (*md_open)(const uct_abi_component_t *component,
                            const char *md_name, const void *config,
                            uct_abi_md_t **md_p);

    /* sys_dev: the local device for the key; UNKNOWN before 1.19 or if UCP does
       not give it. */
    ucs_status_t (*rkey_unpack)(const uct_abi_component_t *component,
                                const void *buffer, ucs_sys_device_t sys_dev,
                                uct_rkey_t *rkey_p, void **handle_p);

    /* NULL: unsupported. */
    ucs_status_t (*rkey_ptr)(const uct_abi_component_t *component,
                             uct_rkey_t rkey, void *handle,
                             uint64_t remote_address, void **address_p);

    /* NULL: there is nothing to release. */
    ucs_status_t (*rkey_release)(const uct_abi_component_t *component,
                                 uct_rkey_t rkey, void *handle);
};

/* The module's components, NULL-terminated; the module defines it. */
extern const uct_abi_component_t *const uct_abi_components[];


/*
 * Log: UCX's own, at the running UCX's level. Before an attach nothing is
 * logged.
 */

typedef enum {
    UCT_ABI_LOG_FATAL = 0,
    UCT_ABI_LOG_ERROR,
    UCT_ABI_LOG_WARN,
    UCT_ABI_LOG_DIAG,
    UCT_ABI_LOG_INFO,
    UCT_ABI_LOG_DEBUG,
    UCT_ABI_LOG_TRACE,
    UCT_ABI_LOG_TRACE_REQ,
    UCT_ABI_LOG_TRACE_DATA
} uct_abi_log_level_t;

/* Pointer to the running UCX's level. */
extern const int *uct_abi_log_level_p;

#define uct_abi_log_is_enabled(_level) ((int)(_level) <= *uct_abi_log_level_p)

void uct_abi_log_message(const char *file, unsigned line, const char *function,
                         uct_abi_log_level_t level, const char *format, ...)
        __attribute__((format(printf, 5, 6)));

#define uct_abi_log(_level, ...) \
    do { \
        if (uct_abi_log_is_enabled(_level)) { \
            uct_abi_log_message(__FILE__, __LINE__, __func__, _level, \
                                __VA_ARGS__); \
        } \
    } while (0)

#define uct_abi_error(...) uct_abi_log(UCT_ABI_LOG_ERROR, __VA_ARGS__)
#define uct_abi_info(...)  uct_abi_log(UCT_ABI_LOG_INFO, __VA_ARGS__)
#define uct_abi_debug(...) uct_abi_log(UCT_ABI_LOG_DEBUG, __VA_ARGS__)


/*
 * Topology: UCX's numbering of PCI devices, shared with its other transports
 */

/* Return the number of the device at this PCI address, assigned on first use.
   UCS_ERR_UNSUPPORTED before an attach, otherwise UCX's status. */
ucs_status_t uct_abi_topo_sys_device(uint16_t domain, uint8_t bus, uint8_t slot,
                                     uint8_t function,
                                     ucs_sys_device_t *sys_dev_p);

/* Name a device for UCX's messages; the name of the highest priority is kept
   (1.14; before it the first name). */
ucs_status_t uct_abi_topo_sys_device_set_name(ucs_sys_device_t sys_dev,
                                              const char *name,
                                              unsigned priority);

/* Return a number common to all processes of this machine, and to no others. */
uint64_t uct_abi_system_id(void);


/*
 * Memory: UCX's cache of memory types and its allocation hooks
 */

/* The running UCX's knowledge of memory types. */
typedef enum {
    UCT_ABI_MEMTYPE_CACHE_OFF,    /* asks about every buffer: correct */
    UCT_ABI_MEMTYPE_CACHE_HOOKED, /* sees CUDA's allocations: correct */
    UCT_ABI_MEMTYPE_CACHE_NO_MAPS, /* sees CUDA's allocations except those by
                                      cuMemMap (before UCX 1.18), which count as
                                      host memory */
    UCT_ABI_MEMTYPE_CACHE_BLIND   /* on, but never filled: every pointer counts
                                     as host memory unless the module feeds the
                                     cache or switches it off */
} uct_abi_memtype_cache_state_t;

/* Install UCX's hooks if its cache is on, and return the state. Callers hold a
   lock. */
uct_abi_memtype_cache_state_t uct_abi_memtype_cache_state(void);

/* Return what UCX's hooks on CUDA see, with its cache on or off: HOOKED,
   NO_MAPS, or BLIND if none are loaded. uct_abi_on_gpu_memory() loads them. */
uct_abi_memtype_cache_state_t uct_abi_memtype_hooks(void);

/* Switch the cache off in this process, for existing and later UCP contexts. No
   effect if it is off. UCS_ERR_UNSUPPORTED if it is not accessible. */
ucs_status_t uct_abi_memtype_cache_disable(void);

/* Let the next message create the cache anew. It asks about memory that UCX's
   hooks do not see (imported, variables of device code) only if the driver had
   reserved its address when the cache was created. The old cache stays
   allocated: another thread may be using it. */
void uct_abi_memtype_cache_renew(void);

/* Add a range [address, address + length) bytes of GPU memory to the cache, of
   this type, or unknown: to be asked about. */
void uct_abi_memtype_cache_update(const void *address, size_t length,
                                  uct_abi_mem_type_t mem_type,
                                  ucs_sys_device_t sys_dev);

typedef void (*uct_abi_unmap_cb_t)(void *address, size_t length);

/* Call cb before memory of the process is unmapped, from now on. The callback
   runs inside munmap() of any thread: it must not allocate, log, or take a lock
   held around munmap(). UCS_ERR_UNSUPPORTED if UCX cannot install this hook;
   the caller must not trust a cache of its own then. */
ucs_status_t uct_abi_on_unmap(uct_abi_unmap_cb_t cb);

/* Call cb after GPU memory is allocated or mapped, and before it is freed or
   unmapped, from now on; of mappings only if uct_abi_memtype_hooks() is
   UCT_ABI_MEMTYPE_CACHE_HOOKED. As for uct_abi_on_unmap(). */
ucs_status_t uct_abi_on_gpu_memory(uct_abi_unmap_cb_t cb);

/* Redirect every call of a function of the process to hook, by changing its
   code; *original_p calls the original. Cannot be undone. UCS_ERR_UNSUPPORTED
   if UCX has no patcher, or its patcher cannot move the function's code. */
ucs_status_t uct_abi_function_hook(void *function, void *hook,
                                   const char *name, void **original_p);


/*
 * Attaching
 */

/* Register the module's components with the UCX whose code contains
   caller_address (for instance a return address). Idempotent, thread-safe.
   Returns UCS_OK if registered, now or before. UCS_ERR_UNSUPPORTED if the
   module must not use this UCX (unknown release, statistics, a second one in
   the process), with one warning for each. UCS_ERR_NO_ELEM if there is no UCX
   at this address. */
ucs_status_t uct_abi_attach(const void *caller_address);

/* Remove components with the module's names from the lists of the UCX of
   caller_address, after this UCX has loaded its own modules. */
void uct_abi_displace(const void *caller_address);

/* Return a text for messages: "UCX 1.20 (/path/libucs.so.0)" or "no UCX". */
const char *uct_abi_host_name(void);

#ifdef __cplusplus
}
#endif

#endif
