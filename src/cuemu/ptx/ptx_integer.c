/* SPDX-License-Identifier: BSD-3-Clause */

/* Arithmetic and logic of integers. */
#include "ptx_code.h"

#include <stdlib.h>
#include <string.h>

#define PTX_D(_type)     _type *d = CUEMU_PTX_REG(g, _type, in->r[0])
#define PTX_S(_x, _type, _i) \
    const _type *_x = CUEMU_PTX_REG(g, const _type, in->r[_i])

#define PTX_RUN(_name) \
    static void ptx_##_name(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in, \
                            cuemu_ptx_mask_t m)

/* x, y, z: the sources' values as `_wide`, a type in which no operation
   overflows and C leaves no result undefined */
#define PTX_UNARY(_name, _type, _wide, ...) \
    PTX_RUN(_name) \
    { \
        PTX_D(_type); \
        PTX_S(a, _type, 1); \
        CUEMU_PTX_FOR(g, m, { \
            _wide x = a[i]; \
            d[i] = (_type)(__VA_ARGS__); \
        }); \
    }

#define PTX_BINARY(_name, _type, _wide, ...) \
    PTX_RUN(_name) \
    { \
        PTX_D(_type); \
        PTX_S(a, _type, 1); \
        PTX_S(b, _type, 2); \
        CUEMU_PTX_FOR(g, m, { \
            _wide x = a[i]; \
            _wide y = b[i]; \
            d[i] = (_type)(__VA_ARGS__); \
        }); \
    }

#define PTX_TERNARY(_name, _type, _wide, ...) \
    PTX_RUN(_name) \
    { \
        PTX_D(_type); \
        PTX_S(a, _type, 1); \
        PTX_S(b, _type, 2); \
        PTX_S(c, _type, 3); \
        CUEMU_PTX_FOR(g, m, { \
            _wide x = a[i]; \
            _wide y = b[i]; \
            _wide z = c[i]; \
            d[i] = (_type)(__VA_ARGS__); \
        }); \
    }

#define PTX_UNSIGNED(_what, _name, ...) \
    PTX_##_what(_name##_u16, uint16_t, uint32_t, __VA_ARGS__) \
    PTX_##_what(_name##_u32, uint32_t, uint32_t, __VA_ARGS__) \
    PTX_##_what(_name##_u64, uint64_t, uint64_t, __VA_ARGS__)

#define PTX_SIGNED(_what, _name, ...) \
    PTX_##_what(_name##_s16, int16_t, int32_t, __VA_ARGS__) \
    PTX_##_what(_name##_s32, int32_t, int32_t, __VA_ARGS__) \
    PTX_##_what(_name##_s64, int64_t, int64_t, __VA_ARGS__)

/* The functions for 16, 32 and 64 bits; `_s`: the signed types' suffix */
#define PTX_BY_TYPE(_name, _s) \
    { \
        [CUEMU_PTX_B16] = ptx_##_name##_u16, \
        [CUEMU_PTX_U16] = ptx_##_name##_u16, \
        [CUEMU_PTX_S16] = ptx_##_name##_##_s##16, \
        [CUEMU_PTX_B32] = ptx_##_name##_u32, \
        [CUEMU_PTX_U32] = ptx_##_name##_u32, \
        [CUEMU_PTX_S32] = ptx_##_name##_##_s##32, \
        [CUEMU_PTX_B64] = ptx_##_name##_u64, \
        [CUEMU_PTX_U64] = ptx_##_name##_u64, \
        [CUEMU_PTX_S64] = ptx_##_name##_##_s##64 \
    }

#define PTX_BOTH(_name) PTX_BY_TYPE(_name, s)

/* Operations with the same result for signed and unsigned types */
#define PTX_SAME(_name) PTX_BY_TYPE(_name, u)

/* Operations on bits, and on predicates */
#define PTX_BITS(_name) \
    { \
        [CUEMU_PTX_PRED] = ptx_##_name##_pred, \
        [CUEMU_PTX_B16]  = ptx_##_name##_u16, \
        [CUEMU_PTX_B32]  = ptx_##_name##_u32, \
        [CUEMU_PTX_B64]  = ptx_##_name##_u64 \
    }

/* Operations on integers, and on words, of 32 and 64 bits */
#define PTX_LONG(_name) \
    { \
        [CUEMU_PTX_U32] = ptx_##_name##_u32, \
        [CUEMU_PTX_S32] = ptx_##_name##_s32, \
        [CUEMU_PTX_U64] = ptx_##_name##_u64, \
        [CUEMU_PTX_S64] = ptx_##_name##_s64 \
    }

#define PTX_WORDS(_name) \
    { \
        [CUEMU_PTX_B32] = ptx_##_name##_u32, \
        [CUEMU_PTX_B64] = ptx_##_name##_u64 \
    }

#define PTX_PAIRS(_unsigned, _signed) \
    { \
        [CUEMU_PTX_U16X2] = ptx_##_unsigned, \
        [CUEMU_PTX_S16X2] = ptx_##_signed \
    }

PTX_UNSIGNED(BINARY, add, x + y)
PTX_UNSIGNED(BINARY, sub, x - y)
PTX_UNSIGNED(BINARY, mul, x *y)
PTX_UNSIGNED(TERNARY, mad, x *y + z)
PTX_UNSIGNED(BINARY, and, x &y)
PTX_UNSIGNED(BINARY, or, x | y)
PTX_UNSIGNED(BINARY, xor, x ^ y)
PTX_UNSIGNED(UNARY, not, ~x)
PTX_UNSIGNED(UNARY, cnot, x == 0)
PTX_UNSIGNED(UNARY, neg, 0 - x)
PTX_UNSIGNED(BINARY, min, (x < y) ? x : y)
PTX_SIGNED(BINARY, min, (x < y) ? x : y)
PTX_UNSIGNED(BINARY, max, (x > y) ? x : y)
PTX_SIGNED(BINARY, max, (x > y) ? x : y)
/* Two numbers in one register */
#define PTX_TWO(_name, _type, _expr) \
    PTX_RUN(_name) \
    { \
        PTX_D(uint32_t); \
        PTX_S(a, uint32_t, 1); \
        PTX_S(b, uint32_t, 2); \
        CUEMU_PTX_FOR(g, m, { \
            uint32_t both = 0; \
            for (unsigned j = 0; j < 32; j += 16) { \
                _type x = (_type)(a[i] >> j); \
                _type y = (_type)(b[i] >> j); \
                both |= (uint32_t)(uint16_t)(_expr) << j; \
            } \
            d[i] = both; \
        }); \
    }

PTX_TWO(add_u16x2, uint16_t, x + y)
PTX_TWO(min_u16x2, uint16_t, (x < y) ? x : y)
PTX_TWO(min_s16x2, int16_t, (x < y) ? x : y)
PTX_TWO(max_u16x2, uint16_t, (x > y) ? x : y)
PTX_TWO(max_s16x2, int16_t, (x > y) ? x : y)

PTX_UNSIGNED(TERNARY, sad, z + ((x > y) ? (x - y) : (y - x)))
PTX_TERNARY(sad_s16, int16_t, int32_t, z + ((x > y) ? (x - y) : (y - x)))
PTX_TERNARY(sad_s32, int32_t, int64_t, z + ((x > y) ? (x - y) : (y - x)))
PTX_TERNARY(sad_s64, int64_t, __int128, z + ((x > y) ? (x - y) : (y - x)))

PTX_UNARY(abs_u16, int16_t, int32_t, (x < 0) ? -x : x)
PTX_UNARY(abs_u32, uint32_t, uint32_t, (x >> 31) ? (0 - x) : x)
PTX_UNARY(abs_u64, uint64_t, uint64_t, (x >> 63) ? (0 - x) : x)

/* Division by zero gives all ones, as on GPUs; the manual leaves it open */
PTX_UNSIGNED(BINARY, div, (y == 0) ? ~(uint64_t)0 : (x / y))
PTX_UNSIGNED(BINARY, rem, (y == 0) ? x : (x % y))

#define PTX_DIVIDE_SIGNED(_bits, _type) \
    PTX_BINARY(div_s##_bits, _type, int64_t, \
               (y == 0) ? -1 : (y == -1) ? (int64_t)(0 - (uint64_t)x) : \
                                           (x / y)) \
    PTX_BINARY(rem_s##_bits, _type, int64_t, \
               (y == 0) ? x : (y == -1) ? 0 : (x % y))

PTX_DIVIDE_SIGNED(16, int16_t)
PTX_DIVIDE_SIGNED(32, int32_t)
PTX_DIVIDE_SIGNED(64, int64_t)

PTX_BINARY(mulhi_u16, uint16_t, uint32_t, (x * y) >> 16)
PTX_BINARY(mulhi_s16, int16_t, int32_t, (x * y) >> 16)
PTX_BINARY(mulhi_u32, uint32_t, uint64_t, (x * y) >> 32)
PTX_BINARY(mulhi_s32, int32_t, int64_t, (x * y) >> 32)
PTX_BINARY(mulhi_u64, uint64_t, unsigned __int128, (x * y) >> 64)
PTX_BINARY(mulhi_s64, int64_t, __int128, (x * y) >> 64)
PTX_TERNARY(madhi_u32, uint32_t, uint64_t, ((x * y) >> 32) + z)
PTX_TERNARY(madhi_s32, int32_t, int64_t, ((x * y) >> 32) + z)
PTX_TERNARY(madhi_u64, uint64_t, unsigned __int128, ((x * y) >> 64) + z)
PTX_TERNARY(madhi_s64, int64_t, __int128, ((x * y) >> 64) + z)

#define PTX_WIDE(_name, _from, _to) \
    PTX_RUN(mulwide_##_name) \
    { \
        PTX_D(_to); \
        PTX_S(a, _from, 1); \
        PTX_S(b, _from, 2); \
        CUEMU_PTX_FOR(g, m, { d[i] = (_to)((_to)a[i] * (_to)b[i]); }); \
    } \
    PTX_RUN(madwide_##_name) \
    { \
        PTX_D(u##_to); \
        PTX_S(a, _from, 1); \
        PTX_S(b, _from, 2); \
        PTX_S(c, u##_to, 3); \
        CUEMU_PTX_FOR(g, m, { \
            d[i] = (u##_to)((_to)a[i] * (_to)b[i]) + c[i]; \
        }); \
    }

typedef uint32_t uuint32_t;
typedef uint64_t uuint64_t;

PTX_WIDE(u16, uint16_t, uint32_t)
PTX_WIDE(s16, int16_t, int32_t)
PTX_WIDE(u32, uint32_t, uint64_t)
PTX_WIDE(s32, int32_t, int64_t)

/* The amount is a .u32; larger amounts than the width are clamped to it */
#define PTX_SHIFT(_name, _type, ...) \
    PTX_RUN(_name) \
    { \
        const unsigned bits = sizeof(_type) * 8; \
        PTX_D(_type); \
        PTX_S(a, _type, 1); \
        PTX_S(b, uint32_t, 2); \
        CUEMU_PTX_FOR(g, m, { \
            _type x    = a[i]; \
            uint32_t y = b[i]; \
            d[i]       = (_type)(__VA_ARGS__); \
        }); \
    }

#define PTX_SHIFTS(_bits) \
    PTX_SHIFT(shl_u##_bits, uint##_bits##_t, (y < bits) ? ((uint64_t)x << y) : \
                                                          0) \
    PTX_SHIFT(shr_u##_bits, uint##_bits##_t, (y < bits) ? (x >> y) : 0) \
    PTX_SHIFT(shr_s##_bits, int##_bits##_t, \
              (y < bits) ? (x >> y) : (x >> (bits - 1)))

PTX_SHIFTS(16)
PTX_SHIFTS(32)
PTX_SHIFTS(64)

static inline unsigned ptx_clz(uint64_t x, unsigned bits)
{
    return (x == 0) ? bits : ((unsigned)__builtin_clzll(x) - (64 - bits));
}

static inline uint64_t ptx_reverse(uint64_t x, unsigned bits)
{
    uint64_t y = 0;
    unsigned i;

    for (i = 0; i < bits; ++i) {
        y |= ((x >> i) & 1) << (bits - 1 - i);
    }
    return y;
}

/* The result is a .u32 for every source type */
#define PTX_COUNT(_name, _type, ...) \
    PTX_RUN(_name) \
    { \
        PTX_D(uint32_t); \
        PTX_S(a, _type, 1); \
        CUEMU_PTX_FOR(g, m, { \
            _type x = a[i]; \
            d[i]    = (uint32_t)(__VA_ARGS__); \
        }); \
    }

PTX_COUNT(popc_u32, uint32_t, __builtin_popcount(x))
PTX_COUNT(popc_u64, uint64_t, __builtin_popcountll(x))
PTX_COUNT(clz_u32, uint32_t, ptx_clz(x, 32))
PTX_COUNT(clz_u64, uint64_t, ptx_clz(x, 64))
PTX_UNARY(brev_u32, uint32_t, uint32_t, ptx_reverse(x, 32))
PTX_UNARY(brev_u64, uint64_t, uint64_t, ptx_reverse(x, 64))

static inline uint32_t ptx_find(uint64_t x, unsigned bits, int is_signed,
                                int amount)
{
    uint64_t sign = is_signed ? (0 - ((x >> (bits - 1)) & 1)) : 0;

    x ^= (bits == 64) ? sign : (sign & ((1ull << bits) - 1));
    if (x == 0) {
        return ~0u;
    }
    return amount ? ptx_clz(x, bits) : (bits - 1 - ptx_clz(x, bits));
}

PTX_COUNT(find_u32, uint32_t, ptx_find(x, 32, 0, in->how))
PTX_COUNT(find_s32, uint32_t, ptx_find(x, 32, 1, in->how))
PTX_COUNT(find_u64, uint64_t, ptx_find(x, 64, 0, in->how))
PTX_COUNT(find_s64, uint64_t, ptx_find(x, 64, 1, in->how))

static inline uint64_t ptx_extract(uint64_t x, uint32_t pos, uint32_t len,
                                   unsigned bits, int is_signed)
{
    uint64_t sign;

    pos &= 0xff;
    len &= 0xff;
    sign = 0;
    if (is_signed && (len > 0)) {
        sign = (x >> ((pos + len - 1 < bits - 1) ? (pos + len - 1) :
                                                   (bits - 1))) & 1;
    }
    x = (pos < bits) ? (x >> pos) : 0;
    if ((pos < bits) && (len > bits - pos)) {
        len = bits - pos;
    }
    if (pos >= bits) {
        len = 0;
    }
    if (len < 64) {
        x &= (1ull << len) - 1;
        x |= sign ? ~((1ull << len) - 1) : 0;
    }
    return x;
}

#define PTX_EXTRACT(_name, _type, _signed) \
    PTX_RUN(_name) \
    { \
        PTX_D(_type); \
        PTX_S(a, _type, 1); \
        PTX_S(b, uint32_t, 2); \
        PTX_S(c, uint32_t, 3); \
        CUEMU_PTX_FOR_EACH(m, { \
            d[i] = (_type)ptx_extract(a[i], b[i], c[i], sizeof(_type) * 8, \
                                      _signed); \
        }) \
    }

PTX_EXTRACT(bfe_u32, uint32_t, 0)
PTX_EXTRACT(bfe_s32, uint32_t, 1)
PTX_EXTRACT(bfe_u64, uint64_t, 0)
PTX_EXTRACT(bfe_s64, uint64_t, 1)

#define PTX_INSERT(_name, _type) \
    PTX_RUN(_name) \
    { \
        const unsigned bits = sizeof(_type) * 8; \
        PTX_D(_type); \
        PTX_S(a, _type, 1); \
        PTX_S(b, _type, 2); \
        PTX_S(c, uint32_t, 3); \
        PTX_S(e, uint32_t, 4); \
        CUEMU_PTX_FOR_EACH(m, { \
            uint32_t pos = c[i] & 0xff, len = e[i] & 0xff; \
            _type mask   = (len >= bits) ? (_type)~(_type)0 : \
                           (_type)(((_type)1 << len) - 1); \
            d[i] = (pos >= bits) ? b[i] : \
                   (_type)((b[i] & ~(_type)(mask << pos)) | \
                           ((a[i] & mask) << pos)); \
        }) \
    }

PTX_INSERT(bfi_u32, uint32_t)
PTX_INSERT(bfi_u64, uint64_t)

/* shf.l takes the upper, shf.r the lower half of {b, a} moved by c */
PTX_RUN(shf)
{
    PTX_D(uint32_t);
    PTX_S(a, uint32_t, 1);
    PTX_S(b, uint32_t, 2);
    PTX_S(c, uint32_t, 3);

    CUEMU_PTX_FOR_EACH(m, {
        uint64_t both = ((uint64_t)b[i] << 32) | a[i];
        unsigned n    = (in->how2 /* wrap */) ? (c[i] & 31) :
                        (c[i] > 32) ? 32 : c[i];
        d[i] = (uint32_t)(in->how /* left */ ? ((both << n) >> 32) :
                                               (both >> n));
    })
}

/* Select bytes by prmt's other modes, as the manual's table does */
static inline uint32_t ptx_permute(uint32_t a, uint32_t b, uint32_t c,
                                   unsigned mode)
{
    uint64_t both = ((uint64_t)b << 32) | a;
    uint32_t result = 0, byte;
    unsigned i, at;

    for (i = 0; i < 4; ++i) {
        switch (mode) {
        case 1: /* f4e */
            at = (c & 3) + i;
            break;
        case 2: /* b4e */
            at = ((c & 3) + 8 - i) & 7;
            break;
        case 3: /* rc8 */
            at = c & 3;
            break;
        case 4: /* ecl */
            at = ((c & 3) > i) ? (c & 3) : i;
            break;
        case 5: /* ecr */
            at = ((c & 3) < i) ? (c & 3) : i;
            break;
        case 6: /* rc16 */
            at = ((c & 1) * 2) + (i & 1);
            break;
        default:
            at = (c >> (4 * i)) & 0xf;
            break;
        }
        byte = (uint32_t)(both >> (8 * (at & 7))) & 0xff;
        if ((mode == 0) && (at & 8)) {
            byte = (byte & 0x80) ? 0xff : 0;
        }
        result |= byte << (8 * i);
    }
    return result;
}

PTX_TERNARY(prmt, uint32_t, uint32_t, ptx_permute(x, y, z, in->how))

/* Return the place of the set bit number `count`, from 1 on, at or above
   `base`, or below if it is negative; 0: `base` itself. ~0 if there is none. */
static inline uint32_t ptx_nth_bit(uint32_t mask, uint32_t base, uint32_t count)
{
    const uint32_t step = (count >> 31) ? ~0u : 1;
    uint32_t left = (count >> 31) ? (0 - count) : count, at;

    mask &= (count == 0) ? (1u << (base & 31)) : ~0u;
    left += (count == 0);
    for (at = base; at < 32; at += step) {
        left -= (mask >> at) & 1;
        if (left == 0) {
            return at;
        }
    }
    return ~0u;
}

PTX_TERNARY(fns, uint32_t, uint32_t, ptx_nth_bit(x, y, z))

static inline uint32_t ptx_lop3(uint32_t a, uint32_t b, uint32_t c,
                                unsigned table)
{
    uint32_t result = 0;
    unsigned i;

    for (i = 0; i < 8; ++i) {
        if (table & (1u << i)) {
            result |= ((i & 4) ? a : ~a) & ((i & 2) ? b : ~b) &
                      ((i & 1) ? c : ~c);
        }
    }
    return result;
}

PTX_TERNARY(lop3_run, uint32_t, uint32_t, ptx_lop3(x, y, z, in->how))

/* add.cc, addc, sub.cc, subc, mad.lo.cc, madc.hi: one carry per thread. GPUs
   subtract by adding the complement, so the carry of a subtraction is that of
   no borrow: nvcc's 128-bit division reads it with addc. */
enum {
    PTX_CARRY_IN   = 1,
    PTX_CARRY_OUT  = 2,
    PTX_CARRY_SUB  = 4,
    PTX_CARRY_MAD  = 8,
    PTX_CARRY_HIGH = 16,
    PTX_CARRY_SIGN = 32
};

#define PTX_CARRY(_name, _type, _wide, _swide) \
    PTX_RUN(_name) \
    { \
        const unsigned bits   = sizeof(_type) * 8; \
        const unsigned is_sub = (in->how & PTX_CARRY_SUB) != 0; \
        PTX_D(_type); \
        PTX_S(a, _type, 1); \
        PTX_S(b, _type, 2); \
        PTX_S(c, _type, (in->how & PTX_CARRY_MAD) ? 3 : 2); \
        CUEMU_PTX_FOR_EACH(m, { \
            _wide x = a[i]; \
            _wide y = b[i]; \
            _wide sum; \
            if (in->how & PTX_CARRY_MAD) { \
                if (in->how & PTX_CARRY_SIGN) { \
                    x = (_wide)((_swide)(x << bits) >> bits) * \
                        (_wide)((_swide)(y << bits) >> bits); \
                } else { \
                    x = x * y; \
                } \
                x = (in->how & PTX_CARRY_HIGH) ? (x >> bits) : (_type)x; \
                x = (_type)x; \
                y = c[i]; \
            } \
            sum = (in->how & PTX_CARRY_IN) ? \
                  (((g->carry >> i) & 1) ^ is_sub) : 0; \
            sum = is_sub ? (x - y - sum) : (x + y + sum); \
            d[i] = (_type)sum; \
            if (in->how & PTX_CARRY_OUT) { \
                g->carry &= ~((uint64_t)1 << i); \
                g->carry |= (uint64_t)(((sum >> bits) & 1) ^ is_sub) << i; \
            } \
        }) \
    }

PTX_CARRY(carry_u32, uint32_t, uint64_t, int64_t)
PTX_CARRY(carry_u64, uint64_t, unsigned __int128, __int128)

/* bmsk: `width` ones from bit `from` on */
static inline uint32_t ptx_mask(uint32_t from, uint32_t width, int clamp)
{
    const uint32_t end = (from & 31) + (width & 31);
    const uint32_t low = (clamp && (from >= 32)) ? 0 : (~0u << (from & 31));

    return ((end >= 32) || (clamp && ((from >= 32) || (width >= 32)))) ?
           low : (low & ~(~0u << end));
}

PTX_BINARY(bmsk, uint32_t, uint32_t, ptx_mask(x, y, in->how))

static inline uint32_t ptx_dot(uint32_t a, uint32_t b, uint32_t c, int signed_a,
                               int signed_b)
{
    unsigned i;

    for (i = 0; i < 32; i += 8) {
        c += (uint32_t)((signed_a ? (int8_t)(a >> i) : (int)((a >> i) & 0xff)) *
                        (signed_b ? (int8_t)(b >> i) : (int)((b >> i) & 0xff)));
    }
    return c;
}

PTX_TERNARY(dp4a, uint32_t, uint32_t, ptx_dot(x, y, z, in->how, in->how2))

/* Two 16-bit numbers of a by two bytes of b, from bit `in->count` on */
static inline uint32_t ptx_dot_two(uint32_t a, uint32_t b, uint32_t c,
                                   const cuemu_ptx_insn_t *in)
{
    unsigned i;

    b >>= in->count;
    for (i = 0; i < 2; ++i) {
        c += (uint32_t)(in->how ? (int16_t)(a >> (16 * i)) :
                                  (int)(uint16_t)(a >> (16 * i))) *
             (uint32_t)(in->how2 ? (int8_t)(b >> (8 * i)) :
                                   (int)(uint8_t)(b >> (8 * i)));
    }
    return c;
}

PTX_TERNARY(dp2a, uint32_t, uint32_t, ptx_dot_two(x, y, z, in))

/* Differences of four bytes each, or their sum plus c */
static inline uint32_t ptx_differences(uint32_t a, uint32_t b, uint32_t c,
                                       const cuemu_ptx_insn_t *in)
{
    uint32_t all = 0;
    unsigned i;
    int x, y;

    for (i = 0; i < 32; i += 8) {
        x    = in->how ? (int8_t)(a >> i) : (int)(uint8_t)(a >> i);
        y    = in->how2 ? (int8_t)(b >> i) : (int)(uint8_t)(b >> i);
        c   += (uint32_t)abs(x - y);
        all |= ((uint32_t)abs(x - y) & 0xff) << i;
    }
    return in->count ? c : all;
}

PTX_TERNARY(vabsdiff4, uint32_t, uint32_t, ptx_differences(x, y, z, in))

/* ------------------------------------------------------------- predicates */

#define PTX_PRED(_name, _expr) \
    PTX_RUN(_name) \
    { \
        uint64_t x = *CUEMU_PTX_REG(g, uint64_t, in->r[1]); \
        uint64_t y = *CUEMU_PTX_REG(g, uint64_t, in->r[2]); \
        uint64_t *d = CUEMU_PTX_REG(g, uint64_t, in->r[0]); \
        *d = (*d & ~m) | ((_expr) & m); \
    }

PTX_PRED(and_pred, x &y)
PTX_PRED(or_pred, x | y)
PTX_PRED(xor_pred, x ^ y)

PTX_RUN(not_pred)
{
    uint64_t x  = *CUEMU_PTX_REG(g, uint64_t, in->r[1]);
    uint64_t *d = CUEMU_PTX_REG(g, uint64_t, in->r[0]);

    *d = (*d & ~m) | (~x & m);
}

/* ---------------------------------------------------------------- table */

static const cuemu_ptx_entry_t ptx_integers[] = {
    {"add", 2, PTX_SAME(add)},
    {"add", 2, PTX_PAIRS(add_u16x2, add_u16x2)},
    {"sub", 2, PTX_SAME(sub)},
    {"mul", 2, PTX_SAME(mul)},
    {"mad", 3, PTX_SAME(mad)},
    {"min", 2, PTX_BOTH(min)},
    {"min", 2, PTX_PAIRS(min_u16x2, min_s16x2)},
    {"max", 2, PTX_BOTH(max)},
    {"max", 2, PTX_PAIRS(max_u16x2, max_s16x2)},
    {"div", 2, PTX_BOTH(div)},
    {"rem", 2, PTX_BOTH(rem)},
    {"abs", 1, PTX_SAME(abs)},
    {"neg", 1, PTX_SAME(neg)},
    {"sad", 3, PTX_BOTH(sad)},
    {"and", 2, PTX_BITS(and)},
    {"or", 2, PTX_BITS(or)},
    {"xor", 2, PTX_BITS(xor)},
    {"not", 1, PTX_BITS(not)},
    {"cnot", 1, PTX_SAME(cnot)},
    {"brev", 1, PTX_WORDS(brev)},
    {"prmt", 3, {[CUEMU_PTX_B32] = ptx_prmt}},
    {"fns", 3, {[CUEMU_PTX_B32] = ptx_fns}}
};

static const cuemu_ptx_run_t ptx_mulhi[CUEMU_PTX_TYPE_LAST]   = PTX_BOTH(mulhi);
static const cuemu_ptx_run_t ptx_mulwide[CUEMU_PTX_TYPE_LAST] = {
    [CUEMU_PTX_U16] = ptx_mulwide_u16, [CUEMU_PTX_S16] = ptx_mulwide_s16,
    [CUEMU_PTX_U32] = ptx_mulwide_u32, [CUEMU_PTX_S32] = ptx_mulwide_s32
};
static const cuemu_ptx_run_t ptx_madhi[CUEMU_PTX_TYPE_LAST]   = PTX_LONG(madhi);
static const cuemu_ptx_run_t ptx_madwide[CUEMU_PTX_TYPE_LAST] = {
    [CUEMU_PTX_U16] = ptx_madwide_u16, [CUEMU_PTX_S16] = ptx_madwide_s16,
    [CUEMU_PTX_U32] = ptx_madwide_u32, [CUEMU_PTX_S32] = ptx_madwide_s32
};

/* Sources of different types: a of the given type, others .u32 */
static const cuemu_ptx_entry_t ptx_mixed[] = {
    {"shl", 2, {[CUEMU_PTX_B16] = ptx_shl_u16, [CUEMU_PTX_B32] = ptx_shl_u32,
                [CUEMU_PTX_B64] = ptx_shl_u64}},
    {"shr", 2, PTX_BOTH(shr)},
    {"bfe", 3, PTX_LONG(bfe)},
    {"bfi", 4, PTX_WORDS(bfi)},
    {"popc", 1, PTX_WORDS(popc)},
    {"clz", 1, PTX_WORDS(clz)},
    {"bfind", 1, PTX_LONG(find)}
};

static cuemu_ptx_status_t ptx_decode_mixed(cuemu_ptx_kernel_t *k,
                                           const cuemu_ptx_statement_t *st,
                                           cuemu_ptx_insn_t *in, int type,
                                           const cuemu_ptx_entry_t *entry,
                                           char *error)
{
    int is_count  = (entry->num_sources == 1);
    unsigned same = is_count ? 1 : (entry->num_sources == 4) ? 2 : 1;
    unsigned i;

    in->run = entry->run[type];
    in->how = (uint8_t)cuemu_ptx_has(st, "shiftamt");
    if ((in->run == NULL) || (cuemu_ptx_stranger(st, "shiftamt") != NULL)) {
        return CUEMU_PTX_NOT_KNOWN;
    }

    if (st->num_ops != entry->num_sources + 1) {
        return CUEMU_PTX_SYNTAX;
    }

    in->r[0] = cuemu_ptx_target(k, &st->op[0], is_count ? CUEMU_PTX_U32 : type);
    for (i = 1; i <= entry->num_sources; ++i) {
        in->r[i] = cuemu_ptx_source(k, &st->op[i],
                                    (i <= same) ? type : CUEMU_PTX_U32);
    }
    return cuemu_ptx_check(in, entry->num_sources + 1, error);
}

static cuemu_ptx_status_t ptx_decode_carry(cuemu_ptx_kernel_t *k,
                                           const cuemu_ptx_statement_t *st,
                                           cuemu_ptx_insn_t *in, int type,
                                           char *error)
{
    const char *name = st->token[0];
    unsigned sources = (name[0] == 'm') ? 3 : 2;
    unsigned size    = cuemu_ptx_type_size(type);

    in->run = (size == 4) ? ptx_carry_u32 : (size == 8) ? ptx_carry_u64 : NULL;
    in->how = (uint8_t)((cuemu_ptx_has(st, "cc") ? PTX_CARRY_OUT : 0) |
                        ((name[3] == 'c') ? PTX_CARRY_IN : 0) |
                        ((name[0] == 's') ? PTX_CARRY_SUB : 0) |
                        ((name[0] == 'm') ? PTX_CARRY_MAD : 0) |
                        (cuemu_ptx_has(st, "hi") ? PTX_CARRY_HIGH : 0) |
                        (((type == CUEMU_PTX_S32) || (type == CUEMU_PTX_S64)) ?
                         PTX_CARRY_SIGN : 0));
    if ((in->run == NULL) || (cuemu_ptx_stranger(st, "cc lo hi") != NULL)) {
        return CUEMU_PTX_NOT_KNOWN;
    }
    return cuemu_ptx_operands(k, st, in, type, type, sources, error);
}

/* lop3.b32 d, a, b, c, table; shf.l.wrap.b32 d, a, b, c; dp4a.s32.u32 and
   other operations on parts of words */
static cuemu_ptx_status_t ptx_decode_special(cuemu_ptx_kernel_t *k,
                                             const cuemu_ptx_statement_t *st,
                                             cuemu_ptx_insn_t *in, char *error)
{
    cuemu_ptx_statement_t three = *st;
    const char *name            = st->token[0];

    if (strcmp(name, "lop3") == 0) {
        if ((st->num_ops != 5) || (st->num_tokens != 2) ||
            (st->op[4].kind != CUEMU_PTX_OPERAND_IMM)) {
            return CUEMU_PTX_NOT_KNOWN;
        }
        in->run       = ptx_lop3_run;
        in->how       = (uint8_t)st->op[4].value;
        three.num_ops = 4;
    } else if (strcmp(name, "shf") == 0) {
        if (cuemu_ptx_stranger(st, "l r wrap clamp") != NULL) {
            return CUEMU_PTX_NOT_KNOWN;
        }
        in->run  = ptx_shf;
        in->how  = (uint8_t)cuemu_ptx_has(st, "l");
        in->how2 = (uint8_t)cuemu_ptx_has(st, "wrap");
    } else if ((strcmp(name, "dp4a") == 0) && (st->num_tokens == 3)) {
        in->run  = ptx_dp4a;
        in->how  = (st->token[1][0] == 's');
        in->how2 = (st->token[2][0] == 's');
    } else if ((strcmp(name, "dp2a") == 0) && (st->num_tokens == 4)) {
        in->run   = ptx_dp2a;
        in->count = cuemu_ptx_has(st, "hi") ? 16 : 0;
        in->how   = (st->token[2][0] == 's');
        in->how2  = (st->token[3][0] == 's');
    } else if ((strcmp(name, "vabsdiff4") == 0) && (st->num_tokens >= 4) &&
               (cuemu_ptx_stranger(st, "add") == NULL)) {
        in->run   = ptx_vabsdiff4;
        in->count = (uint8_t)cuemu_ptx_has(st, "add");
        in->how   = (st->token[2][0] == 's');
        in->how2  = (st->token[3][0] == 's');
    } else {
        return CUEMU_PTX_NOT_KNOWN;
    }

    return cuemu_ptx_operands(k, &three, in, CUEMU_PTX_B32, CUEMU_PTX_B32, 3,
                              error);
}

cuemu_ptx_status_t cuemu_ptx_decode_integer(cuemu_ptx_kernel_t *k,
                                            const cuemu_ptx_statement_t *st,
                                            cuemu_ptx_insn_t *in, char *error)
{
    static const char *const modes[] = {"", "f4e", "b4e", "rc8", "ecl", "ecr",
                                        "rc16"};
    const char *name = st->token[0];
    int type = cuemu_ptx_type(st->token[st->num_tokens - 1]), to;
    const cuemu_ptx_run_t *runs;
    const cuemu_ptx_entry_t *entry = NULL;
    unsigned i;

    if ((st->num_tokens == 3) && (strcmp(name, "bmsk") == 0)) {
        in->run = ptx_bmsk;
        in->how = (uint8_t)cuemu_ptx_has(st, "clamp");
        return ((type != CUEMU_PTX_B32) ||
                (cuemu_ptx_stranger(st, "clamp wrap") != NULL)) ?
               CUEMU_PTX_NOT_KNOWN :
               cuemu_ptx_operands(k, st, in, CUEMU_PTX_B32, CUEMU_PTX_B32, 2,
                                  error);
    }

    if ((st->num_tokens > 1) && (strcmp(name, "prmt") == 0)) {
        for (i = 1; i < sizeof(modes) / sizeof(modes[0]); ++i) {
            if (cuemu_ptx_has(st, modes[i])) {
                in->how = (uint8_t)i;
                in->run = ptx_prmt;
                return cuemu_ptx_operands(k, st, in, CUEMU_PTX_B32,
                                          CUEMU_PTX_B32, 3, error);
            }
        }
    }

    if (ptx_decode_special(k, st, in, error) == CUEMU_PTX_OK) {
        return CUEMU_PTX_OK;
    }

    if (type < 0) {
        return CUEMU_PTX_NOT_KNOWN;
    }

    if ((type >= CUEMU_PTX_F16) && (type <= CUEMU_PTX_BF16X2)) {
        return CUEMU_PTX_NOT_KNOWN;
    }

    if (((strncmp(name, "add", 3) == 0) || (strncmp(name, "sub", 3) == 0) ||
         (strncmp(name, "mad", 3) == 0)) &&
        ((name[3] == 'c') || cuemu_ptx_has(st, "cc"))) {
        return ptx_decode_carry(k, st, in, type, error);
    }

    for (i = 0; i < sizeof(ptx_mixed) / sizeof(ptx_mixed[0]); ++i) {
        if (strcmp(name, ptx_mixed[i].name) == 0) {
            return ptx_decode_mixed(k, st, in, type, &ptx_mixed[i], error);
        }
    }

    for (i = 0; i < sizeof(ptx_integers) / sizeof(ptx_integers[0]); ++i) {
        if ((strcmp(name, ptx_integers[i].name) == 0) &&
            (ptx_integers[i].run[type] != NULL)) {
            entry = &ptx_integers[i];
        }
    }

    if ((entry == NULL) || (cuemu_ptx_stranger(st, "lo hi wide") != NULL)) {
        return CUEMU_PTX_NOT_KNOWN;
    }

    to   = type;
    runs = entry->run;
    if (cuemu_ptx_has(st, "wide")) {
        to   = type + 3; /* next larger type */
        runs = (entry->num_sources == 3) ? ptx_madwide : ptx_mulwide;
    } else if (cuemu_ptx_has(st, "hi")) {
        runs = (entry->num_sources == 3) ? ptx_madhi : ptx_mulhi;
    }

    in->run = runs[type];
    if (in->run == NULL) {
        return CUEMU_PTX_NOT_KNOWN;
    }

    if ((to != type) && (entry->num_sources == 3)) { /* mad.wide */
        if (st->num_ops != 4) {
            return CUEMU_PTX_SYNTAX;
        }
        in->r[0] = cuemu_ptx_target(k, &st->op[0], to);
        in->r[1] = cuemu_ptx_source(k, &st->op[1], type);
        in->r[2] = cuemu_ptx_source(k, &st->op[2], type);
        in->r[3] = cuemu_ptx_source(k, &st->op[3], to);
        return cuemu_ptx_check(in, 4, NULL);
    }

    return cuemu_ptx_operands(k, st, in, to, type, entry->num_sources, error);
}
