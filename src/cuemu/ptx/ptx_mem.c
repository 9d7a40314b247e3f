/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Memory: loads, stores, atomics. An access first converts its threads'
 * addresses into pointers, then moves the elements one after the other. Each
 * thread's bytes count, but bytes shared by neighbours in a warp count once
 * (CUDA C++ Programming Guide, "Device Memory Accesses": a warp's accesses are
 * coalesced). The model has no cache.
 */
#include "ptx_code.h"

#include <string.h>

/* ------------------------------------------------------------ addresses */

/* Return the page of an address; begin == end: nothing is accessible. */
static const cuemu_ptx_page_t *ptx_page(cuemu_ptx_block_t *block,
                                        uint64_t address)
{
    cuemu_ptx_page_t *page = &block->page[(address / CUEMU_PTX_PAGE) %
                                          CUEMU_PTX_PAGES];
    cuemu_ptx_range_t range = {0, 0, NULL, 0, 0};
    uint64_t begin;

    if ((address >= page->begin) && (address < page->end)) {
        return page;
    }

    block->launch->map(block->launch->arg, address, &range);
    begin       = address & ~(uint64_t)(CUEMU_PTX_PAGE - 1);
    page->begin = page->end = 0;
    if (range.memory != NULL) {
        page->begin    = (range.begin > begin) ? range.begin : begin;
        page->end      = (range.end < begin + CUEMU_PTX_PAGE) ?
                         range.end : (begin + CUEMU_PTX_PAGE);
        page->memory   = (uintptr_t)range.memory - range.begin;
        page->place    = range.place;
        page->writable = range.writable;
    }
    return page;
}

/* Return a pointer to global memory. An element at a page's edge is accessible
   through both pages. */
static char *ptx_global(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                        unsigned lane, uint64_t address, unsigned size,
                        int write, uint64_t *count)
{
    cuemu_ptx_block_t *block    = g->block;
    const cuemu_ptx_page_t *page = ptx_page(block, address);

    if ((address < page->begin) || (address + size > page->end) ||
        (write && !page->writable)) {
        cuemu_ptx_fault(g, in, CUEMU_PTX_BAD_ADDRESS, lane, address);
        return NULL;
    }

    count[page->place] += size;
    return (char*)(uintptr_t)(page->memory + address);
}

static char *ptx_shared(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                        unsigned lane, uint64_t offset, unsigned size)
{
    const cuemu_ptx_block_t *block = g->block;

    if (offset >= CUEMU_PTX_DYNAMIC) {
        offset -= CUEMU_PTX_DYNAMIC;
        offset += (block->kernel->shared_size + 15) & ~15u;
    }
    if ((offset > block->shared_size) ||
        (size > block->shared_size - offset)) {
        cuemu_ptx_fault(g, in, CUEMU_PTX_BAD_ADDRESS, lane, offset);
        return NULL;
    }
    return block->shared + offset;
}

const char *cuemu_ptx_generic(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                              unsigned lane, uint64_t address, unsigned size)
{
    const cuemu_ptx_kernel_t *k = g->block->kernel;
    uint64_t offset             = address & ~CUEMU_PTX_WINDOW_MASK;

    switch (address & CUEMU_PTX_WINDOW_MASK) {
    case CUEMU_PTX_WINDOW_SHARED:
        return ptx_shared(g, in, lane, offset, size);
    case CUEMU_PTX_WINDOW_LOCAL:
        if ((offset > k->local_size) || (size > k->local_size - offset)) {
            cuemu_ptx_fault(g, in, CUEMU_PTX_BAD_ADDRESS, lane, address);
            return NULL;
        }
        return g->local + (uint64_t)lane * k->local_size + offset;
    default:
        return ptx_global(g, in, lane, address, size, 0,
                          g->block->count->read);
    }
}

int cuemu_ptx_pointers(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                       cuemu_ptx_mask_t m, uint32_t reg, int write,
                       uint64_t *count)
{
    cuemu_ptx_block_t *block          = g->block;
    const cuemu_ptx_kernel_t *k       = block->kernel;
    unsigned size                     = (unsigned)in->size * in->count;
    const cuemu_ptx_page_t *page      = NULL;
    uint64_t address, space, misaligned = 0, many = 0, before = 0;
    char **pointer                    = block->pointer;

    CUEMU_PTX_FOR_EACH(m, {
        if (reg == CUEMU_PTX_NONE) {
            address = in->imm;
        } else if (in->width2 == 4) {
            address = CUEMU_PTX_REG(g, uint32_t, reg)[i] + in->imm;
        } else {
            address = CUEMU_PTX_REG(g, uint64_t, reg)[i] + in->imm;
        }

        misaligned = address & (size - 1);
        if (misaligned) {
            cuemu_ptx_fault(g, in, CUEMU_PTX_MISALIGNED, i, address);
            return 0;
        }

        space = in->space;
        if (space <= CUEMU_PTX_GLOBAL) {
            /* Most accesses hit the same page as the one before */
            if ((page != NULL) && (address >= page->begin) &&
                (address + size <= page->end)) {
                pointer[i] = (char*)(uintptr_t)(page->memory + address);
                many      += ((address == before) && ((i & 31) != 0)) ? 0 :
                                                                        size;
                before     = address;
                continue;
            }
            switch (address & CUEMU_PTX_WINDOW_MASK) {
            case CUEMU_PTX_WINDOW_SHARED:
                space = CUEMU_PTX_SHARED;
                break;
            case CUEMU_PTX_WINDOW_LOCAL:
                space = CUEMU_PTX_LOCAL;
                break;
            case CUEMU_PTX_WINDOW_PARAM:
                space = CUEMU_PTX_PARAM;
                break;
            default:
                break;
            }
        }
        address &= (space > CUEMU_PTX_GLOBAL) && (space != CUEMU_PTX_CONST) ?
                   ~CUEMU_PTX_WINDOW_MASK : ~0ull;

        switch (space) {
        case CUEMU_PTX_SHARED:
            pointer[i] = ptx_shared(g, in, i, address, size);
            break;
        case CUEMU_PTX_LOCAL:
            if ((address > k->local_size) ||
                (size > k->local_size - address)) {
                cuemu_ptx_fault(g, in, CUEMU_PTX_BAD_ADDRESS, i, address);
                return 0;
            }
            pointer[i] = g->local + (uint64_t)i * k->local_size + address;
            break;
        case CUEMU_PTX_PARAM:
            if ((address > k->params_size) ||
                (size > k->params_size - address) || write) {
                cuemu_ptx_fault(g, in, CUEMU_PTX_BAD_ADDRESS, i, address);
                return 0;
            }
            pointer[i] = (char*)(uintptr_t)block->launch->params + address;
            break;
        default:
            if (page != NULL) {
                count[page->place] += many;
                many                = 0;
            }
            pointer[i] = ptx_global(g, in, i, address, size, write, count);
            before     = address;
            page       = &block->page[(address / CUEMU_PTX_PAGE) %
                                      CUEMU_PTX_PAGES];
            break;
        }
        if (pointer[i] == NULL) {
            return 0;
        }
    })

    if (page != NULL) {
        count[page->place] += many;
    }
    return 1;
}

/* -------------------------------------------------------- loads, stores */

/* One case of a load: elements of `_memory`, extended to `_register`; `_signed`
   is 0 or 1 */
#define PTX_LOAD(_register, _memory, _signed) \
    case sizeof(_memory) * 32 + sizeof(_register) * 2 + (_signed): { \
        _register *d = CUEMU_PTX_REG(g, _register, in->r[j]); \
        CUEMU_PTX_FOR_EACH(m, { \
            _memory x; \
            memcpy(&x, pointer[i] + at, sizeof(x)); \
            d[i] = (_register)x; \
        }) \
        break; \
    }

/* Load one element, extended to the width of its register. */
static void ptx_load_element(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                             cuemu_ptx_mask_t m, unsigned j)
{
    char *const *pointer = g->block->pointer;
    unsigned at          = j * in->size;

    if (in->r[j] == CUEMU_PTX_NONE) {
        return;
    }

    switch (in->size * 32 + in->width * 2 + in->is_signed) {
    PTX_LOAD(uint16_t, uint8_t, 0)
    PTX_LOAD(int16_t, int8_t, 1)
    PTX_LOAD(uint16_t, uint16_t, 0)
    PTX_LOAD(int16_t, int16_t, 1)
    PTX_LOAD(uint32_t, uint8_t, 0)
    PTX_LOAD(int32_t, int8_t, 1)
    PTX_LOAD(uint32_t, uint16_t, 0)
    PTX_LOAD(int32_t, int16_t, 1)
    PTX_LOAD(uint32_t, uint32_t, 0)
    PTX_LOAD(int32_t, int32_t, 1)
    PTX_LOAD(uint64_t, uint8_t, 0)
    PTX_LOAD(int64_t, int8_t, 1)
    PTX_LOAD(uint64_t, uint16_t, 0)
    PTX_LOAD(int64_t, int16_t, 1)
    PTX_LOAD(uint64_t, uint32_t, 0)
    PTX_LOAD(int64_t, int32_t, 1)
    PTX_LOAD(uint64_t, uint64_t, 0)
    PTX_LOAD(int64_t, int64_t, 1)
    default:
        break;
    }
}

static void ptx_load(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                     cuemu_ptx_mask_t m)
{
    unsigned j;

    if (cuemu_ptx_pointers(g, in, m, in->r[5], 0, g->block->count->read)) {
        for (j = 0; j < in->count; ++j) {
            ptx_load_element(g, in, m, j);
        }
    }
}

/* Load a parameter, with the same value for all threads. */
static void ptx_load_param(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                           cuemu_ptx_mask_t m)
{
    const cuemu_ptx_block_t *block = g->block;
    unsigned j;

    if (in->imm + (uint64_t)in->size * in->count >
        block->kernel->params_size) {
        cuemu_ptx_fault(g, in, CUEMU_PTX_BAD_ADDRESS,
                        (unsigned)__builtin_ctzll(m), in->imm);
        return;
    }

    CUEMU_PTX_FOR_EACH(m, {
        g->block->pointer[i] = (char*)(uintptr_t)block->launch->params +
                               in->imm;
    })
    for (j = 0; j < in->count; ++j) {
        ptx_load_element(g, in, m, j);
    }
}

/* One case of a store: the low bytes of `_register`, as `_memory` */
#define PTX_STORE(_register, _memory) \
    case sizeof(_memory) * 32 + sizeof(_register): { \
        const _register *a = CUEMU_PTX_REG(g, const _register, in->r[j]); \
        CUEMU_PTX_FOR_EACH(m, { \
            _memory x = (_memory)a[i]; \
            memcpy(pointer[i] + at, &x, sizeof(x)); \
        }) \
        break; \
    }

static void ptx_store(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                      cuemu_ptx_mask_t m)
{
    char *const *pointer = g->block->pointer;
    unsigned j, at;

    if (!cuemu_ptx_pointers(g, in, m, in->r[5], 1, g->block->count->written) ||
        (g->block->launch->dry && (in->space <= CUEMU_PTX_GLOBAL))) {
        return;
    }

    for (j = 0; j < in->count; ++j) {
        at = j * in->size;
        switch (in->size * 32 + in->width) {
        PTX_STORE(uint16_t, uint8_t)
        PTX_STORE(uint16_t, uint16_t)
        PTX_STORE(uint32_t, uint8_t)
        PTX_STORE(uint32_t, uint16_t)
        PTX_STORE(uint32_t, uint32_t)
        PTX_STORE(uint64_t, uint8_t)
        PTX_STORE(uint64_t, uint16_t)
        PTX_STORE(uint64_t, uint32_t)
        PTX_STORE(uint64_t, uint64_t)
        default:
            break;
        }
    }
}

/* cp.async.ca.shared.global [d], [a], 16: copies at once */
static void ptx_copy(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                     cuemu_ptx_mask_t m)
{
    const uint64_t *from  = CUEMU_PTX_REG(g, const uint64_t, in->r[1]);
    const uint32_t *from4 = CUEMU_PTX_REG(g, const uint32_t, in->r[1]);
    cuemu_ptx_insn_t to   = *in;
    const uint32_t *amount;
    uint64_t at;
    unsigned some;
    char *p;

    to.space  = CUEMU_PTX_SHARED;
    if (!cuemu_ptx_pointers(g, &to, m, in->r[0], 1, g->block->count->written)) {
        return;
    }

    CUEMU_PTX_FOR_EACH(m, {
        at   = ((in->width == 4) ? from4[i] : from[i]) + in->r[3];
        some = in->size;
        if (in->r[2] != CUEMU_PTX_NONE) { /* the rest becomes zeros */
            amount = CUEMU_PTX_REG(g, const uint32_t, in->r[2]);
            some   = (amount[i] < some) ? amount[i] : some;
        }
        memset(g->block->pointer[i], 0, in->size);
        if (some > 0) {
            p = ptx_global(g, in, i, at, some, 0, g->block->count->read);
            if (p == NULL) {
                return;
            }
            memcpy(g->block->pointer[i], p, some);
        }
    })
}

/* -------------------------------------------------------------- atomics */

typedef enum {
    PTX_ADD, PTX_MIN, PTX_MAX, PTX_AND, PTX_OR, PTX_XOR, PTX_EXCH, PTX_CAS,
    PTX_INC, PTX_DEC, PTX_ATOMIC_LAST
} ptx_atomic_t;

static const char *const ptx_atomics[PTX_ATOMIC_LAST] = {
    "add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"
};

static uint32_t ptx_atomic_float(uint32_t x, uint32_t y)
{
    float a, b;

    memcpy(&a, &x, sizeof(a));
    memcpy(&b, &y, sizeof(b));
    a += b;
    memcpy(&x, &a, sizeof(a));
    return x;
}

static uint64_t ptx_atomic_double(uint64_t x, uint64_t y)
{
    double a, b;

    memcpy(&a, &x, sizeof(a));
    memcpy(&b, &y, sizeof(b));
    a += b;
    memcpy(&x, &a, sizeof(a));
    return x;
}

/* One number or two; the other bits are zeros */
static uint32_t ptx_atomic_short(uint32_t x, uint32_t y, int type)
{
    uint32_t result = 0;
    unsigned i;
    double sum;

    for (i = 0; i < 32; i += 16) {
        if ((type == CUEMU_PTX_F16) || (type == CUEMU_PTX_F16X2)) {
            sum     = (double)cuemu_ptx_from_half((uint16_t)(x >> i)) +
                      (double)cuemu_ptx_from_half((uint16_t)(y >> i));
            result |= (uint32_t)cuemu_ptx_to_half(sum) << i;
        } else {
            sum     = (double)cuemu_ptx_from_bfloat((uint16_t)(x >> i)) +
                      (double)cuemu_ptx_from_bfloat((uint16_t)(y >> i));
            result |= (uint32_t)cuemu_ptx_to_bfloat(sum) << i;
        }
    }
    return result;
}

static uint64_t ptx_atomic_result(const cuemu_ptx_insn_t *in, uint64_t x,
                                  uint64_t y, uint64_t z)
{
    int less;

    switch (in->type) {
    case CUEMU_PTX_S32:
        less = (int32_t)x < (int32_t)y;
        break;
    case CUEMU_PTX_S64:
        less = (int64_t)x < (int64_t)y;
        break;
    default:
        less = x < y;
        break;
    }

    switch (in->how) {
    case PTX_ADD:
        switch (in->type) {
        case CUEMU_PTX_F32:
            return ptx_atomic_float((uint32_t)x, (uint32_t)y);
        case CUEMU_PTX_F64:
            return ptx_atomic_double(x, y);
        case CUEMU_PTX_F16:
        case CUEMU_PTX_BF16:
        case CUEMU_PTX_F16X2:
        case CUEMU_PTX_BF16X2:
            return ptx_atomic_short((uint32_t)x, (uint32_t)y, in->type);
        default:
            return x + y;
        }
    case PTX_MIN:
        return less ? x : y;
    case PTX_MAX:
        return less ? y : x;
    case PTX_AND:
        return x & y;
    case PTX_OR:
        return x | y;
    case PTX_XOR:
        return x ^ y;
    case PTX_EXCH:
        return y;
    case PTX_CAS:
        return (x == y) ? z : x;
    case PTX_INC:
        return (x >= y) ? 0 : (x + 1);
    default: /* DEC */
        return ((x == 0) || (x > y)) ? y : (x - 1);
    }
}

#define PTX_ATOMIC(_bits) \
    do { \
        uint##_bits##_t *p = (uint##_bits##_t*)(void*)pointer[i]; \
        uint##_bits##_t *d = CUEMU_PTX_REG(g, uint##_bits##_t, in->r[0]); \
        const uint##_bits##_t *a = CUEMU_PTX_REG(g, const uint##_bits##_t, \
                                                 in->r[1]); \
        const uint##_bits##_t *b = CUEMU_PTX_REG(g, const uint##_bits##_t, \
                                                 in->r[2]); \
        uint##_bits##_t old = __atomic_load_n(p, __ATOMIC_RELAXED); \
        uint##_bits##_t new; \
        do { \
            new = (uint##_bits##_t)ptx_atomic_result(in, old, a[i], b[i]); \
        } while (!dry && \
                 !__atomic_compare_exchange_n(p, &old, new, 0, \
                                              __ATOMIC_ACQ_REL, \
                                              __ATOMIC_RELAXED)); \
        if (in->how2 /* the old value is a result */) { \
            d[i] = old; \
        } \
    } while (0)

/* r: d, a, b, -, -, address */
static void ptx_atomic(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                       cuemu_ptx_mask_t m)
{
    char *const *pointer = g->block->pointer;
    int dry = g->block->launch->dry && (in->space <= CUEMU_PTX_GLOBAL);

    if (!cuemu_ptx_pointers(g, in, m, in->r[5], 1, g->block->count->written)) {
        return;
    }

    CUEMU_PTX_FOR_EACH(m, {
        if (in->size == 4) {
            PTX_ATOMIC(32);
        } else if (in->size == 8) {
            PTX_ATOMIC(64);
        } else {
            PTX_ATOMIC(16);
        }
    })
}

/* ------------------------------------------------------------- decoding */

static const char ptx_modifiers[] =
        "global shared local param const volatile weak relaxed acquire release "
        "acq_rel cta gpu sys cluster nc ca cg cs lu cv wb wt v2 v4 noftz "
        "L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last "
        "L1::no_allocate L2::64B L2::128B L2::256B L2::cache_hint "
        "shared::cta param::entry param::func entry func unified "
        "add min max and or xor exch cas inc dec";

static int ptx_space(const cuemu_ptx_statement_t *st)
{
    return cuemu_ptx_has(st, "global") ? CUEMU_PTX_GLOBAL :
           (cuemu_ptx_has(st, "shared") ||
            cuemu_ptx_has(st, "shared::cta")) ? CUEMU_PTX_SHARED :
           cuemu_ptx_has(st, "local") ? CUEMU_PTX_LOCAL :
           (cuemu_ptx_has(st, "param") ||
            cuemu_ptx_has(st, "param::entry") ||
            cuemu_ptx_has(st, "param::func")) ? CUEMU_PTX_PARAM :
           cuemu_ptx_has(st, "const") ? CUEMU_PTX_CONST : CUEMU_PTX_GENERIC;
}

cuemu_ptx_status_t cuemu_ptx_address(cuemu_ptx_kernel_t *k,
                                     const cuemu_ptx_operand_t *op,
                                     cuemu_ptx_insn_t *in, unsigned index)
{
    if (op->kind != CUEMU_PTX_OPERAND_ADDRESS) {
        return CUEMU_PTX_SYNTAX;
    }

    in->r[index] = op->reg;
    in->imm      = op->value;
    in->width2   = 8;
    if (op->global >= 0) {
        in->r[index] = cuemu_ptx_constant(k, 8, CUEMU_PTX_FILL_GLOBAL,
                                          (uint64_t)op->global, 0);
        return (in->r[index] == CUEMU_PTX_NONE) ? CUEMU_PTX_NO_MEMORY :
                                                  CUEMU_PTX_OK;
    }

    if (op->reg != CUEMU_PTX_NONE) {
        in->width2 = (uint8_t)cuemu_ptx_type_width(op->type);
        return ((in->width2 >= 4) && (in->width2 <= 8)) ? CUEMU_PTX_OK :
                                                          CUEMU_PTX_NOT_KNOWN;
    }
    return CUEMU_PTX_OK;
}

static cuemu_ptx_status_t ptx_decode_access(cuemu_ptx_kernel_t *k,
                                            const cuemu_ptx_statement_t *st,
                                            cuemu_ptx_insn_t *in, int is_store)
{
    int type = cuemu_ptx_type(st->token[st->num_tokens - 1]);
    const cuemu_ptx_operand_t *data = &st->op[is_store ? 1 : 0];
    const cuemu_ptx_operand_t *at   = &st->op[is_store ? 0 : 1];
    cuemu_ptx_status_t status;
    unsigned i;

    if ((type <= 0) || (type == CUEMU_PTX_B128) || (st->num_ops < 2) ||
        (st->num_ops > 3) || /* a cache policy */
        (cuemu_ptx_stranger(st, ptx_modifiers) != NULL)) {
        return CUEMU_PTX_NOT_KNOWN;
    }

    in->size      = (uint8_t)cuemu_ptx_type_size(type);
    in->count     = cuemu_ptx_has(st, "v4") ? 4 : cuemu_ptx_has(st, "v2") ? 2 :
                                                                            1;
    in->space     = (uint8_t)ptx_space(st);
    if ((in->space == CUEMU_PTX_PARAM) &&
        ((at->reg == CUEMU_PTX_NONE) ? (at->space == CUEMU_PTX_LOCAL) :
                                       (k->calls > 0))) {
        in->space = CUEMU_PTX_LOCAL; /* parameter of a call */
    }
    in->is_signed = (uint8_t)cuemu_ptx_is_signed(type);
    status        = cuemu_ptx_address(k, at, in, 5);
    if (status != CUEMU_PTX_OK) {
        return status;
    }

    if (in->count == 1) {
        if (data->kind == CUEMU_PTX_OPERAND_REG) {
            in->r[0]  = data->reg;
            in->width = (uint8_t)cuemu_ptx_type_width(data->type);
        } else if (is_store) {
            in->r[0]  = cuemu_ptx_source(k, data, type);
            in->width = (uint8_t)cuemu_ptx_type_width(type);
        } else {
            in->r[0]  = CUEMU_PTX_NONE;
        }
        if (in->r[0] == CUEMU_PTX_NONE) {
            return CUEMU_PTX_NOT_KNOWN;
        }
    } else {
        if ((data->kind != CUEMU_PTX_OPERAND_VECTOR) ||
            (data->count != in->count)) {
            return CUEMU_PTX_SYNTAX;
        }
        in->width = (uint8_t)cuemu_ptx_type_width(type);
        for (i = 0; i < in->count; ++i) {
            if (data->kinds[i] == CUEMU_PTX_OPERAND_REG) {
                in->width = (uint8_t)cuemu_ptx_type_width(data->types[i]);
            }
        }
        for (i = 0; i < in->count; ++i) {
            in->r[i] = cuemu_ptx_element(k, data, i, in->width, type);
            if ((is_store || (data->kinds[i] != CUEMU_PTX_OPERAND_NONE)) &&
                ((in->r[i] == CUEMU_PTX_NONE) ||
                 (!is_store && (data->regs[i] == CUEMU_PTX_NONE)))) {
                return CUEMU_PTX_NOT_KNOWN;
            }
        }
    }

    if ((in->width < in->size) || (in->width > 8)) {
        return CUEMU_PTX_NOT_KNOWN; /* a 128-bit register */
    }

    if (!is_store &&
        (cuemu_ptx_has(st, "acquire") || cuemu_ptx_has(st, "relaxed") ||
         cuemu_ptx_has(st, "volatile"))) {
        /* The program may wait for another thread's store */
        if (cuemu_ptx_has(st, "cta") || (in->space == CUEMU_PTX_SHARED)) {
            k->has_loops = 1;
        } else {
            k->has_barrier = 1;
        }
    }
    in->run = is_store ? ptx_store : ptx_load;
    if (!is_store && (in->space == CUEMU_PTX_PARAM) &&
        (in->r[5] == CUEMU_PTX_NONE)) {
        in->run = ptx_load_param;
    }
    return CUEMU_PTX_OK;
}

static cuemu_ptx_status_t ptx_decode_atomic(cuemu_ptx_kernel_t *k,
                                            const cuemu_ptx_statement_t *st,
                                            cuemu_ptx_insn_t *in, int is_red)
{
    int type = cuemu_ptx_type(st->token[st->num_tokens - 1]);
    unsigned first = is_red ? 1 : 2, num, i;
    cuemu_ptx_status_t status;
    int is_float;

    if ((type < 0) || (cuemu_ptx_stranger(st, ptx_modifiers) != NULL) ||
        (type == CUEMU_PTX_B128) || (type == CUEMU_PTX_PRED) ||
        cuemu_ptx_has(st, "v2") || cuemu_ptx_has(st, "v4")) {
        return CUEMU_PTX_NOT_KNOWN;
    }

    for (i = 0; i < PTX_ATOMIC_LAST; ++i) {
        if (cuemu_ptx_has(st, ptx_atomics[i])) {
            break;
        }
    }

    is_float = (type >= CUEMU_PTX_F16) && (type <= CUEMU_PTX_BF16X2);
    in->how  = (uint8_t)i;
    in->how2 = !is_red;
    in->type = (uint8_t)type;
    in->size = (uint8_t)cuemu_ptx_type_size(type);
    num      = (i == PTX_CAS) ? 2 : 1;
    if ((i == PTX_ATOMIC_LAST) || (is_float && (i != PTX_ADD)) ||
        (in->size < 2) || (st->num_ops < first + num) ||
        ((in->size == 2) && !is_float && (i != PTX_CAS))) {
        return CUEMU_PTX_NOT_KNOWN;
    }

    in->run   = ptx_atomic;
    in->count = 1;
    in->space = (uint8_t)ptx_space(st);
    status    = cuemu_ptx_address(k, &st->op[first - 1], in, 5);
    if (status != CUEMU_PTX_OK) {
        return status;
    }

    in->r[1] = cuemu_ptx_source(k, &st->op[first], type);
    in->r[2] = (num == 2) ? cuemu_ptx_source(k, &st->op[first + 1], type) :
                            in->r[1];
    in->r[0] = is_red ? in->r[1] : cuemu_ptx_target(k, &st->op[0], type);
    return cuemu_ptx_check(in, 3, NULL);
}

static cuemu_ptx_status_t ptx_decode_copy(cuemu_ptx_kernel_t *k,
                                          const cuemu_ptx_statement_t *st,
                                          cuemu_ptx_insn_t *in)
{
    cuemu_ptx_status_t status;
    cuemu_ptx_insn_t from;

    if (cuemu_ptx_has(st, "commit_group") || cuemu_ptx_has(st, "wait_group") ||
        cuemu_ptx_has(st, "wait_all")) {
        in->run = cuemu_ptx_nothing;
        return (st->num_tokens == 3) ? CUEMU_PTX_OK : CUEMU_PTX_NOT_KNOWN;
    }

    if ((cuemu_ptx_stranger(st, "async ca cg shared shared::cta global "
                            "L2::64B L2::128B L2::256B") != NULL) ||
        !cuemu_ptx_has(st, "async") || (st->num_ops < 3) ||
        (st->num_ops > 4) || (st->op[2].kind != CUEMU_PTX_OPERAND_IMM) ||
        (st->op[2].value > 16)) {
        return CUEMU_PTX_NOT_KNOWN;
    }

    in->run   = ptx_copy;
    in->size  = (uint8_t)st->op[2].value;
    in->count = 1;
    from      = *in;
    status    = cuemu_ptx_address(k, &st->op[1], &from, 1);
    if (status == CUEMU_PTX_OK) {
        status = cuemu_ptx_address(k, &st->op[0], in, 0);
    }
    in->r[1]  = from.r[1];
    in->r[3]  = (uint32_t)from.imm;
    in->width = from.width2;
    in->r[2]  = (st->num_ops < 4) ? CUEMU_PTX_NONE :
                cuemu_ptx_source(k, &st->op[3], CUEMU_PTX_U32);
    return ((status == CUEMU_PTX_OK) &&
            ((in->r[1] == CUEMU_PTX_NONE) || (from.imm > INT32_MAX) ||
             ((st->num_ops == 4) && (in->r[2] == CUEMU_PTX_NONE)))) ?
           CUEMU_PTX_NOT_KNOWN : status;
}

cuemu_ptx_status_t cuemu_ptx_decode_memory(cuemu_ptx_kernel_t *k,
                                           const cuemu_ptx_statement_t *st,
                                           cuemu_ptx_insn_t *in, char *error)
{
    const char *name = st->token[0];

    if ((strcmp(name, "ld") == 0) || (strcmp(name, "ldu") == 0)) {
        return ptx_decode_access(k, st, in, 0);
    } else if (strcmp(name, "st") == 0) {
        return ptx_decode_access(k, st, in, 1);
    } else if ((strcmp(name, "atom") == 0) || (strcmp(name, "red") == 0)) {
        return ptx_decode_atomic(k, st, in, name[0] == 'r');
    } else if (strcmp(name, "cp") == 0) {
        return ptx_decode_copy(k, st, in);
    }
    return CUEMU_PTX_NOT_KNOWN;
}
