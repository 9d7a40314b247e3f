/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arguments and small structures of UCX to which 1.14 to 1.23 only added fields
 * at the end. A newer field is valid only with a bit of field_mask that older
 * releases never set, so one declaration fits all.
 */

#ifndef UCT_ABI_ARGS_H_
#define UCT_ABI_ARGS_H_

#include "abi.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    uint64_t                field_mask;
    uct_iface_h             iface;
    void                    *user_data;
    const uct_device_addr_t *dev_addr;
    const uct_iface_addr_t  *iface_addr;
    const void              *connection[8]; /* not used by the module */
    unsigned                path_index;
    const void              *resolve[4];    /* not used by the module */
    size_t                  dev_addr_length;   /* 1.18 */
    size_t                  iface_addr_length; /* 1.18 */
} uct_abi_host_ep_params_t;

enum {
    UCT_ABI_EP_PARAM_IFACE             = 1 << 0,
    UCT_ABI_EP_PARAM_DEV_ADDR          = 1 << 2,
    UCT_ABI_EP_PARAM_IFACE_ADDR        = 1 << 3,
    UCT_ABI_EP_PARAM_PATH_INDEX        = 1 << 12,
    UCT_ABI_EP_PARAM_DEV_ADDR_LENGTH   = 1 << 17,
    UCT_ABI_EP_PARAM_IFACE_ADDR_LENGTH = 1 << 18
};

typedef struct {
    uint64_t                field_mask;
    const uct_device_addr_t *device_addr;
    const uct_iface_addr_t  *iface_addr;
    char                    *info_string;
    size_t                  info_string_length;
    int                     scope;              /* 1.15 */
    size_t                  device_addr_length; /* 1.18 */
    size_t                  iface_addr_length;  /* 1.18 */
} uct_abi_host_reachable_params_t;

enum {
    UCT_ABI_REACHABLE_DEVICE_ADDR        = 1 << 0,
    UCT_ABI_REACHABLE_IFACE_ADDR         = 1 << 1,
    UCT_ABI_REACHABLE_INFO_STRING        = 1 << 2,
    UCT_ABI_REACHABLE_INFO_STRING_LENGTH = 1 << 3,
    UCT_ABI_REACHABLE_SCOPE              = 1 << 4,
    UCT_ABI_REACHABLE_DEVICE_ADDR_LENGTH = 1 << 5,
    UCT_ABI_REACHABLE_IFACE_ADDR_LENGTH  = 1 << 6
};

enum {
    UCT_ABI_SCOPE_DEVICE  = 0,
    UCT_ABI_SCOPE_NETWORK = 1
};

typedef struct {
    uint64_t                field_mask;
    const uct_device_addr_t *device_addr;
    const uct_iface_addr_t  *iface_addr;
    const uct_ep_addr_t     *ep_addr;
} uct_abi_host_connected_params_t;

enum {
    UCT_ABI_CONNECTED_DEVICE_ADDR = 1 << 0,
    UCT_ABI_CONNECTED_IFACE_ADDR  = 1 << 1
};

typedef struct {
    uint64_t         field_mask; /* UCT_ABI_MEM_ATTR_ */
    int              mem_type;
    ucs_sys_device_t sys_dev;
    void             *base_address;
    size_t           alloc_length;
    int              dmabuf_fd;     /* 1.14 */
    size_t           dmabuf_offset; /* 1.14 */
    uint8_t          mem_flags;     /* 1.22 */
} uct_abi_host_mem_attr_t;

enum {
    UCT_ABI_MEM_FLAG_REGISTRABLE = 1 << 0
};

typedef struct {
    uint64_t field_mask;
    uint64_t flags;
    int      dmabuf_fd;
    size_t   dmabuf_offset;
    int      mem_type; /* 1.22 */
} uct_abi_host_mem_reg_params_t;

enum {
    UCT_ABI_MEM_REG_FLAGS         = 1 << 0,
    UCT_ABI_MEM_REG_DMABUF_FD     = 1 << 1,
    UCT_ABI_MEM_REG_DMABUF_OFFSET = 1 << 2,
    UCT_ABI_MEM_REG_MEM_TYPE      = 1 << 3
};

typedef struct {
    uint64_t         field_mask;
    unsigned         flags;
    uct_mem_h        memh;
    uct_completion_t *comp;
} uct_abi_host_mem_dereg_params_t;

enum {
    UCT_ABI_MEM_DEREG_INVALIDATE = 1 << 0
};

enum {
    UCT_ABI_MEM_DEREG_FIELD_MEMH       = 1 << 0,
    UCT_ABI_MEM_DEREG_FIELD_FLAGS      = 1 << 1,
    UCT_ABI_MEM_DEREG_FIELD_COMPLETION = 1 << 2
};

typedef struct {
    uint64_t         field_mask; /* bit 0: sys_device */
    ucs_sys_device_t sys_device;
} uct_abi_host_rkey_unpack_params_t;

typedef struct uct_abi_host_list {
    struct uct_abi_host_list *prev;
    struct uct_abi_host_list *next;
} uct_abi_host_list_t;

typedef struct {
    const char *name;
    size_t     size;
    void       *superclass;
    void       *init;
    void       *cleanup;
} uct_abi_host_class_t;

typedef struct {
    uint16_t domain;
    uint8_t  bus;
    uint8_t  slot;
    uint8_t  function;
} uct_abi_host_bus_id_t;

/* Member of the union ucm_event_t for the observed event. */
typedef union {
    struct {
        void   *address;
        size_t size;
    } vm_unmapped, mem_type;
} uct_abi_host_mem_event_t;

enum {
    UCT_ABI_HOST_EVENT_VM_UNMAPPED    = 1 << 17,
    UCT_ABI_HOST_EVENT_MEM_TYPE_ALLOC = 1 << 20,
    UCT_ABI_HOST_EVENT_MEM_TYPE_FREE  = 1 << 21
};

#ifdef __cplusplus
}
#endif

#endif
