/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Decoded kernels: an array of instructions over a file of registers.
 *
 * Threads of a block run in groups of 64, one bit of a mask each. A register is
 * an array over its group's threads, with elements of its own size; a predicate
 * is a mask. Immediates and special registers are arrays as well, filled before
 * anything runs, so all operands have the same form: offsets into the group's
 * register file.
 */
#ifndef CUEMU_PTX_CODE_H_
#define CUEMU_PTX_CODE_H_

#include "ptx.h"

#define CUEMU_PTX_LANES 64

typedef uint64_t cuemu_ptx_mask_t; /* bit i: thread i of the group */

typedef enum {
    CUEMU_PTX_PRED = 0,
    CUEMU_PTX_B8, CUEMU_PTX_U8, CUEMU_PTX_S8,
    CUEMU_PTX_B16, CUEMU_PTX_U16, CUEMU_PTX_S16,
    CUEMU_PTX_B32, CUEMU_PTX_U32, CUEMU_PTX_S32,
    CUEMU_PTX_B64, CUEMU_PTX_U64, CUEMU_PTX_S64,
    CUEMU_PTX_F16, CUEMU_PTX_BF16, CUEMU_PTX_F32, CUEMU_PTX_F64,
    CUEMU_PTX_F16X2, CUEMU_PTX_BF16X2, CUEMU_PTX_B128,
    CUEMU_PTX_U16X2, CUEMU_PTX_S16X2,
    CUEMU_PTX_TYPE_LAST
} cuemu_ptx_type_t;

typedef enum {
    CUEMU_PTX_GENERIC = 0,
    CUEMU_PTX_GLOBAL,
    CUEMU_PTX_SHARED,
    CUEMU_PTX_LOCAL,
    CUEMU_PTX_PARAM,
    CUEMU_PTX_CONST
} cuemu_ptx_space_t;

/* Windows of the generic address space onto shared and local memory. No process
   and no GPU uses these addresses. */
#define CUEMU_PTX_WINDOW_SHARED 0x0100000000000000ull
#define CUEMU_PTX_WINDOW_LOCAL  0x0200000000000000ull
#define CUEMU_PTX_WINDOW_PARAM  0x0300000000000000ull
#define CUEMU_PTX_WINDOW_MASK   0xff00000000000000ull

/* First offset of shared memory with the size given by the launch */
#define CUEMU_PTX_DYNAMIC       0x1000000u

/* Instructions executed by the scheduler itself */
typedef enum {
    CUEMU_PTX_PLAIN = 0,
    CUEMU_PTX_BRANCH,
    CUEMU_PTX_BRANCH_INDEX, /* through a table of targets */
    CUEMU_PTX_EXIT,
    CUEMU_PTX_BARRIER,
    CUEMU_PTX_CLOCK,        /* reads the number of instructions so far */
    CUEMU_PTX_WARP          /* waits for the warp's other threads, then `run` */
} cuemu_ptx_kind_t;

typedef struct cuemu_ptx_insn  cuemu_ptx_insn_t;
typedef struct cuemu_ptx_group cuemu_ptx_group_t;

typedef void (*cuemu_ptx_run_t)(cuemu_ptx_group_t *g,
                                const cuemu_ptx_insn_t *in,
                                cuemu_ptx_mask_t m);

#define CUEMU_PTX_MAX_OPERANDS 6
#define CUEMU_PTX_NONE         UINT32_MAX

struct cuemu_ptx_insn {
    cuemu_ptx_run_t run;
    cuemu_ptx_run_t rounded;  /* called by `run` in another rounding mode */
    uint32_t        r[CUEMU_PTX_MAX_OPERANDS]; /* offsets of registers;
                                                  destinations come first */
    uint32_t        guard;    /* offset of a predicate, or NONE */
    uint8_t         negated;  /* the guard is negated */
    uint8_t         negated_source; /* a source predicate is negated */
    uint8_t         kind;
    uint8_t         space;
    uint8_t         size;     /* MEMORY: bytes of an element */
    uint8_t         count;    /* MEMORY: elements */
    uint8_t         width;    /* MEMORY: bytes of a register element */
    uint8_t         width2;   /* bytes of an element of the source or address
                                 register */
    uint8_t         is_signed;
    uint8_t         type, type2;
    uint8_t         how;      /* comparison, rounding or atomic operation */
    uint8_t         how2;
    uint8_t         rounding; /* the mode's index */
    uint64_t        imm;      /* offset of an address, or table */
    uint32_t        target;   /* instruction */
    uint32_t        line;
};

/* Results of bar.red: in->how2 */
enum {
    CUEMU_PTX_RED_NONE, CUEMU_PTX_RED_AND, CUEMU_PTX_RED_OR, CUEMU_PTX_RED_COUNT
};

/* Sources of registers that are filled before a group begins */
typedef enum {
    CUEMU_PTX_FILL_IMM,      /* `value` */
    CUEMU_PTX_FILL_TID,      /* x; the next two are y and z; likewise for NTID,
                                CTAID and NCTAID */
    CUEMU_PTX_FILL_NTID   = CUEMU_PTX_FILL_TID + 3,
    CUEMU_PTX_FILL_CTAID  = CUEMU_PTX_FILL_NTID + 3,
    CUEMU_PTX_FILL_NCTAID = CUEMU_PTX_FILL_CTAID + 3,
    CUEMU_PTX_FILL_LANEID = CUEMU_PTX_FILL_NCTAID + 3,
    CUEMU_PTX_FILL_WARPID,
    CUEMU_PTX_FILL_NWARPID,
    CUEMU_PTX_FILL_MASK_EQ,
    CUEMU_PTX_FILL_MASK_LT,
    CUEMU_PTX_FILL_MASK_LE,
    CUEMU_PTX_FILL_MASK_GT,
    CUEMU_PTX_FILL_MASK_GE,
    CUEMU_PTX_FILL_DYNAMIC_SHARED,
    CUEMU_PTX_FILL_TOTAL_SHARED,
    CUEMU_PTX_FILL_SMID,     /* a multiprocessor for each block in turn */
    CUEMU_PTX_FILL_ENVREG1,  /* address of the grid's barrier: upper half */
    CUEMU_PTX_FILL_ENVREG2,  /* lower half */
    CUEMU_PTX_FILL_GLOBAL,   /* address of the module's value-th variable, plus
                                `offset` */
    CUEMU_PTX_FILL_LAST
} cuemu_ptx_fill_kind_t;

typedef struct {
    uint32_t reg;
    uint8_t  kind;
    uint8_t  width;
    uint64_t value;
    uint64_t offset;
} cuemu_ptx_fill_t;

typedef struct {
    char    *name;
    uint32_t offset, size;
} cuemu_ptx_param_t;

struct cuemu_ptx_kernel {
    char               *name;
    cuemu_ptx_module_t *module;
    const char         *text;          /* text after its name, until the kernel
                                          is parsed */
    uint32_t            line;          /* first line of its text */
    unsigned            unit;          /* its text's number among linked ones */
    cuemu_ptx_status_t  status;        /* result of parsing it */
    unsigned            calls;         /* depth of inlined calls at the parser's
                                          position */
    cuemu_ptx_insn_t   *code;
    uint32_t            num_code, max_code;
    cuemu_ptx_fill_t   *fills;
    uint32_t            num_fills, max_fills;
    cuemu_ptx_param_t  *params;
    uint32_t            num_params, params_size;
    uint32_t            registers;     /* bytes of a group's register file */
    uint32_t            num_registers;
    uint32_t            shared_size, local_size;
    unsigned            max_threads;
    int                 has_barrier;   /* threads wait for others of their
                                          block */
    int                 has_loops;     /* in which they wait, often */
    uint32_t           *tables;        /* tables of branch targets, each
                                          preceded by its length */
    uint32_t            num_tables;
};

/* A variable's address in another one's initial value */
typedef struct {
    unsigned from, to;   /* the variable with the value, and the other one */
    uint64_t at;         /* offset in the value */
    uint64_t offset;     /* added to the address */
} cuemu_ptx_link_t;

struct cuemu_ptx_module {
    struct ptx_parser   *parser;       /* parser of kernels not parsed yet, or
                                          NULL */
    cuemu_ptx_kernel_t **kernels;
    uint32_t             num_kernels;
    cuemu_ptx_global_t  *globals;
    uint32_t             num_globals;
    cuemu_ptx_link_t    *links;
    unsigned             num_links, max_links;
};

/* ------------------------------------------------------------- decoding */

/* An operand as written, with its register or address */
typedef enum {
    CUEMU_PTX_OPERAND_NONE,    /* "_" */
    CUEMU_PTX_OPERAND_REG,
    CUEMU_PTX_OPERAND_IMM,     /* integer */
    CUEMU_PTX_OPERAND_F32,
    CUEMU_PTX_OPERAND_F64,
    CUEMU_PTX_OPERAND_VECTOR,
    CUEMU_PTX_OPERAND_ADDRESS, /* [base + offset] */
    CUEMU_PTX_OPERAND_SYMBOL,  /* variable or parameter (+ offset) */
    CUEMU_PTX_OPERAND_CLOCK,   /* clock register */
    CUEMU_PTX_OPERAND_LABEL
} cuemu_ptx_operand_kind_t;

typedef struct {
    uint8_t  kind;
    uint8_t  type;        /* REG: as it was declared */
    uint8_t  negated;     /* "!p" */
    uint8_t  space;       /* SYMBOL, ADDRESS of a symbol */
    uint8_t  count;       /* VECTOR, as are all arrays */
    uint8_t  kinds[4], types[4];
    uint32_t reg;         /* REG, ADDRESS; NONE: no register */
    uint32_t second;      /* REG: the q of "p|q", or NONE */
    uint32_t regs[4];
    uint64_t values[4];
    int32_t  global;      /* SYMBOL: index of a module's variable, or -1 */
    uint64_t value;       /* IMM, F32, F64: bits; offset; LABEL: its number */
} cuemu_ptx_operand_t;

typedef struct {
    char    *token[12];   /* words between the dots of, for example,
                             "ld.global.v4.u32" */
    unsigned num_tokens;
    char    *written;     /* all of it */
    cuemu_ptx_operand_t op[8];
    unsigned num_ops;
} cuemu_ptx_statement_t;

/* Make room for one more element; `array` is the address of a pointer. Returns
   -1 if out of memory. */
int cuemu_ptx_grow(void *array, unsigned count, unsigned *max, size_t size);

/* Allocate a register and return its offset. */
uint32_t cuemu_ptx_new_register(cuemu_ptx_kernel_t *k, unsigned width);
/* Return a register with this value in each thread, NONE if out of memory. */
uint32_t cuemu_ptx_constant(cuemu_ptx_kernel_t *k, unsigned width,
                            cuemu_ptx_fill_kind_t kind, uint64_t value,
                            uint64_t offset);

/*
 * Decode a statement into `in`. On NOT_KNOWN and SYNTAX `error` names the
 * unknown operation, with its operands and types if only these are unknown.
 */
cuemu_ptx_status_t cuemu_ptx_decode(cuemu_ptx_kernel_t *k,
                                    const cuemu_ptx_statement_t *st,
                                    cuemu_ptx_insn_t *in, char *error);

/* Decode a statement of one family. NOT_KNOWN without an error text means that
   the statement belongs to another family. */
cuemu_ptx_status_t cuemu_ptx_decode_integer(cuemu_ptx_kernel_t *k,
                                            const cuemu_ptx_statement_t *st,
                                            cuemu_ptx_insn_t *in, char *error);
cuemu_ptx_status_t cuemu_ptx_decode_float(cuemu_ptx_kernel_t *k,
                                          const cuemu_ptx_statement_t *st,
                                          cuemu_ptx_insn_t *in, char *error);
cuemu_ptx_status_t cuemu_ptx_decode_compare(cuemu_ptx_kernel_t *k,
                                            const cuemu_ptx_statement_t *st,
                                            cuemu_ptx_insn_t *in, char *error);
cuemu_ptx_status_t cuemu_ptx_decode_move(cuemu_ptx_kernel_t *k,
                                         const cuemu_ptx_statement_t *st,
                                         cuemu_ptx_insn_t *in, char *error);
cuemu_ptx_status_t cuemu_ptx_decode_memory(cuemu_ptx_kernel_t *k,
                                           const cuemu_ptx_statement_t *st,
                                           cuemu_ptx_insn_t *in, char *error);
cuemu_ptx_status_t cuemu_ptx_decode_warp(cuemu_ptx_kernel_t *k,
                                         const cuemu_ptx_statement_t *st,
                                         cuemu_ptx_insn_t *in, char *error);

cuemu_ptx_status_t cuemu_ptx_decode_mbarrier(cuemu_ptx_kernel_t *k,
                                             const cuemu_ptx_statement_t *st,
                                             cuemu_ptx_insn_t *in, char *error);

/* Decode the register, in->r[index], and the offset of an address. */
cuemu_ptx_status_t cuemu_ptx_address(cuemu_ptx_kernel_t *k,
                                     const cuemu_ptx_operand_t *op,
                                     cuemu_ptx_insn_t *in, unsigned index);

/* Decode a call of a GPU system function; token 1 is its name. */
cuemu_ptx_status_t cuemu_ptx_decode_call(cuemu_ptx_kernel_t *k,
                                         const cuemu_ptx_statement_t *st,
                                         cuemu_ptx_insn_t *in, char *error);

/* An operation of a family: its implementation for each type */
typedef struct {
    const char     *name;
    unsigned        num_sources;
    cuemu_ptx_run_t run[CUEMU_PTX_TYPE_LAST];
} cuemu_ptx_entry_t;

/* Set in->r to the destination and the sources, all of one type. */
cuemu_ptx_status_t cuemu_ptx_operands(cuemu_ptx_kernel_t *k,
                                      const cuemu_ptx_statement_t *st,
                                      cuemu_ptx_insn_t *in, int to, int from,
                                      unsigned num_sources, char *error);

/* Return OK if the instruction's first `count` registers are set, otherwise
   NOT_KNOWN, and the operand's number in `error` unless that is NULL. */
cuemu_ptx_status_t cuemu_ptx_check(const cuemu_ptx_insn_t *in, unsigned count,
                                   char *error);

/* Return non-zero if one of the statement's words, after the first, is
   `word`. */
int cuemu_ptx_has(const cuemu_ptx_statement_t *st, const char *word);

/* Return the first word of a statement that is not in `known` (words with
   spaces between), NULL if all are. */
const char *cuemu_ptx_stranger(const cuemu_ptx_statement_t *st,
                               const char *known);

/* Return a type by its name, -1 if the word is no type. */
int cuemu_ptx_type(const char *word);
unsigned cuemu_ptx_type_size(int type); /* Return the size of a type in bytes; 0
                                           for PRED */
unsigned cuemu_ptx_type_width(int type); /* Return the bytes of an element of a
                                            register for this type */

/* Return non-zero for the types S8 to S64. */
int cuemu_ptx_is_signed(int type);

/* Return the register of a source operand read as elements of a type: its own
   register, or a constant. NONE if the operand has no such value. */
uint32_t cuemu_ptx_source(cuemu_ptx_kernel_t *k, const cuemu_ptx_operand_t *op,
                          int type);
/* The same of a vector's element, as a register of that many bytes. */
uint32_t cuemu_ptx_element(cuemu_ptx_kernel_t *k,
                           const cuemu_ptx_operand_t *vector, unsigned i,
                           unsigned width, int type);
/* Return the register of a destination operand of a type, or NONE. */
uint32_t cuemu_ptx_target(cuemu_ptx_kernel_t *k, const cuemu_ptx_operand_t *op,
                          int type);

/* ------------------------------------------------------------ execution */

/* Convert half precision to float. */
float cuemu_ptx_from_half(uint16_t bits);

/* Convert to half precision, in the calling thread's rounding mode. */
uint16_t cuemu_ptx_to_half(double value);

/* Convert bfloat16 to float. */
float cuemu_ptx_from_bfloat(uint16_t bits);

/* Convert to bfloat16, in the calling thread's rounding mode. */
uint16_t cuemu_ptx_to_bfloat(double value);

/* Convert bit i of the mask to byte i, and back; the bytes are 0 or 1. */
static inline void cuemu_ptx_spread(cuemu_ptx_mask_t mask, uint8_t *bytes)
{
    uint64_t eight;
    unsigned i;

    for (i = 0; i < 8; ++i) {
        eight = ((mask >> (8 * i)) & 0xff) * 0x0101010101010101ull;
        eight = (eight & 0x8040201008040201ull) + 0x00406070787c7e7full;
        eight = (eight >> 7) & 0x0101010101010101ull;
        __builtin_memcpy(bytes + 8 * i, &eight, sizeof(eight));
    }
}

static inline cuemu_ptx_mask_t cuemu_ptx_gather(const uint8_t *bytes)
{
    cuemu_ptx_mask_t mask = 0;
    uint64_t eight;
    unsigned i;

    for (i = 0; i < 8; ++i) {
        __builtin_memcpy(&eight, bytes + 8 * i, sizeof(eight));
        mask |= ((eight * 0x0102040810204080ull) >> 56) << (8 * i);
    }
    return mask;
}

typedef struct {
    uint64_t begin, end; /* accessible part of the page; 0, 0: none */
    uint64_t memory;     /* added to an address, modulo 2^64: its pointer */
    int32_t  place;
    int32_t  writable;
} cuemu_ptx_page_t;

#define CUEMU_PTX_PAGES 512

/* Threads at the same instruction */
typedef struct {
    uint32_t         pc;
    uint32_t         waits;  /* non-zero: wait at pc for other threads of their
                                warps */
    cuemu_ptx_mask_t mask;
} cuemu_ptx_fragment_t;

#define CUEMU_PTX_BARRIERS 16

typedef struct cuemu_ptx_block cuemu_ptx_block_t;

struct cuemu_ptx_group {
    char                *reg;      /* register file */
    cuemu_ptx_mask_t     exists;   /* threads of the group */
    cuemu_ptx_mask_t     live;     /* threads that have not ended */
    cuemu_ptx_mask_t     carry;    /* carry bit of add.cc and similar */
    cuemu_ptx_block_t   *block;
    char                *local;    /* local memory of thread 0 */
    unsigned             first;    /* number of its first thread in the block */
    unsigned             num_fragments;
    unsigned             num_parked;
    uint32_t             avoid;    /* instruction of a fragment that ran for
                                      long, or UINT32_MAX */
    cuemu_ptx_fragment_t fragment[CUEMU_PTX_LANES];
    struct {
        uint32_t         pc;       /* where to go on */
        uint32_t         barrier;
        cuemu_ptx_mask_t mask;
    } parked[CUEMU_PTX_LANES];
};

struct cuemu_ptx_block {
    const cuemu_ptx_kernel_t *kernel;
    const cuemu_ptx_launch_t *launch;
    cuemu_ptx_count_t        *count;
    uint64_t                  budget;   /* instructions left */
    uint64_t                  slept;    /* ns, its first threads */
    cuemu_ptx_status_t        status;
    uint64_t                  address;  /* bad address of a fault */
    unsigned                  thread;   /* its thread in the block */
    const cuemu_ptx_insn_t   *insn;
    unsigned                  ctaid[3];
    char                     *shared;
    uint32_t                  shared_size;
    unsigned                  num_threads, num_groups;
    int                       at_once;  /* its groups run in turn, each with a
                                           register file */
    int                       yields;   /* the running group lets others run */
    cuemu_ptx_group_t        *groups;
    char                     *memory;   /* register files, local memory */
    struct {
        unsigned arrived, expected;     /* expected 0: all live threads */
        unsigned yes;                   /* arrived with a true predicate */
    } barrier[CUEMU_PTX_BARRIERS];
    char                     *pointer[CUEMU_PTX_LANES]; /* pointers of one
                                                           access */
    cuemu_ptx_page_t          page[CUEMU_PTX_PAGES];
};

/* Run an instruction without effect. */
void cuemu_ptx_nothing(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                       cuemu_ptx_mask_t m);

/* End the kernel with a fault. */
void cuemu_ptx_fault(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                     cuemu_ptx_status_t status, unsigned lane,
                     uint64_t address);

/* Return the memory behind a generic address. If it is not readable, end the
   kernel and return NULL. */
const char *cuemu_ptx_generic(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                              unsigned lane, uint64_t address, unsigned size);

/* Convert the addresses of all threads, in register `reg`, to pointers in
   g->block->pointer. Return 0 if one is invalid. */
int cuemu_ptx_pointers(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                       cuemu_ptx_mask_t m, uint32_t reg, int write,
                       uint64_t *count);

#define CUEMU_PTX_REG(_g, _type, _offset) ((_type*)((_g)->reg + (_offset)))

#ifdef __clang__
#define CUEMU_PTX_VECTORIZE _Pragma("clang loop vectorize(assume_safety)")
/* Loops without a vector form stay scalar: clang must not warn */
#pragma clang diagnostic ignored "-Wpass-failed"
#else
#define CUEMU_PTX_VECTORIZE _Pragma("GCC ivdep")
#endif

/* Run the body for all threads `i` of mask `m`, in one loop without tests if
   the mask is full */
#define CUEMU_PTX_FOR(_g, _m, ...) \
    do { \
        if ((_m) == (_g)->exists) { \
            CUEMU_PTX_VECTORIZE \
            for (unsigned i = 0; i < CUEMU_PTX_LANES; ++i) { \
                __VA_ARGS__ \
            } \
        } else { \
            CUEMU_PTX_FOR_EACH(_m, __VA_ARGS__) \
        } \
    } while (0)

/* Run the body for each existing thread in turn */
#define CUEMU_PTX_FOR_EACH(_m, ...) \
    for (cuemu_ptx_mask_t left = (_m); left != 0; left &= left - 1) { \
        unsigned i = (unsigned)__builtin_ctzll(left); \
        __VA_ARGS__ \
    }

#endif
