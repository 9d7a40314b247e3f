/* SPDX-License-Identifier: BSD-3-Clause */

/* Parse PTX text: modules, kernels, variables, statements with operands. */
#define _GNU_SOURCE
#include "ptx_code.h"

#include <ctype.h>
#include <locale.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A .reg declaration: one name, or `count` numbered names */
typedef struct {
    char    *name;
    unsigned count;   /* 0: the name alone */
    int      type;
    uint32_t reg;     /* register of the first name */
    int      scope;
} ptx_reg_t;

typedef struct {
    char    *name;
    int      space;   /* SHARED, LOCAL; GLOBAL and CONST: a module's */
    uint64_t offset;
    uint64_t size, align; /* SHARED, module scope: each kernel that uses it has
                             an offset of its own */
    int      global;
    int      scope;   /* 0: the module's */
    unsigned unit;    /* of the module's: its text, 0 if all texts see it */
} ptx_symbol_t;

#define PTX_NO_OFFSET UINT64_MAX

/* A label, or a use of a label by an instruction's target or a table entry */
typedef struct {
    char    *name;
    int      scope;
    uint32_t pc;      /* label: its instruction; use: the instruction to
                         patch */
    int      is_table;
} ptx_label_t;

/* A .func: where its parameters and its body are in the text */
typedef struct {
    char       *name;
    const char *results;  /* behind "("; NULL: no results */
    const char *params;   /* behind "("; NULL: no parameters */
    const char *body;     /* behind "{"; NULL: declared only */
    uint32_t    line;     /* line of the body */
    unsigned    unit;     /* its text, 1 for the first */
    int         is_local; /* not seen by other texts */
} ptx_function_t;

/* Nested braces, and nested calls of functions (which are inlined) */
#define PTX_MAX_DEPTH 300
#define PTX_MAX_CALLS 64

/* Instructions parsed for a kernel at which it may call no more functions */
#define PTX_MAX_CODE (1u << 20)

/* Addresses of functions, which no memory has */
#define PTX_FUNCTIONS 0x0400000000000000ull

/* Longer texts: parse each kernel on its first use */
#define PTX_EAGER_SIZE (1u << 20)

/* Target of "ret" in an inlined function: not a valid PTX name */
#define PTX_RETURN "%ret"

/* A word of the text, from calloc(); lives as long as the parser */
typedef struct ptx_word {
    struct ptx_word *next;
    char             text[];
} ptx_word_t;

typedef struct ptx_parser {
    const char         *begin, *p, *end;
    uint32_t            line;
    cuemu_ptx_module_t *module;
    cuemu_ptx_kernel_t *kernel;
    cuemu_ptx_status_t  status;
    char               *error;
    ptx_word_t         *words;

    ptx_reg_t          *regs;
    unsigned            num_regs, max_regs;
    ptx_symbol_t       *symbols;
    unsigned            num_symbols, max_symbols;
    ptx_label_t        *labels, *uses;
    unsigned            num_labels, max_labels, num_uses, max_uses;
    int                 scope, last_scope;
    int                 is_weak;      /* the next declaration is weak */
    int                 is_visible;   /* to other texts: the next declaration */
    unsigned            unit;         /* number of the text among linked ones:
                                         each begins with .version */
    ptx_label_t        *externs;      /* variables declared, with their lines */
    unsigned            num_externs, max_externs;
    struct {
        int             scope;
        unsigned        uses, labels; /* uses and labels before this scope */
        uint32_t        local;        /* local memory in use before it */
    } parent[PTX_MAX_DEPTH];
    unsigned            depth;
    uint32_t            local;        /* local memory in use, bytes */
    unsigned            calls;        /* calls around the current text */
    const char         *called[PTX_MAX_CALLS]; /* bodies of these functions */
    const char         *last;         /* end of the module's text */
    unsigned            parsed;       /* instructions of the kernel, also of
                                         calls that failed */
    uint32_t            max_tables;
    ptx_function_t     *functions;
    unsigned            num_functions, max_functions;
} ptx_parser_t;


static int ptx_fail(ptx_parser_t *ps, cuemu_ptx_status_t status,
                    const char *format, ...)
{
    va_list args;
    int length;

    if (ps->status == CUEMU_PTX_OK) {
        ps->status = status;
        length     = snprintf(ps->error, CUEMU_PTX_ERROR_SIZE, "line %u: ",
                              ps->line);
        va_start(args, format);
        vsnprintf(ps->error + length, CUEMU_PTX_ERROR_SIZE - (size_t)length,
                  format, args);
        va_end(args);
    }
    return -1;
}

static int ptx_no_memory(ptx_parser_t *ps)
{
    return ptx_fail(ps, CUEMU_PTX_NO_MEMORY, "no memory");
}

/* --------------------------------------------------------------- lexer */

static void ptx_skip_space(ptx_parser_t *ps)
{
    for (; ps->p < ps->end; ++ps->p) {
        if (*ps->p == '\n') {
            ++ps->line;
        } else if ((*ps->p == '/') && (ps->p + 1 < ps->end) &&
                   (ps->p[1] == '/')) {
            while ((ps->p + 1 < ps->end) && (ps->p[1] != '\n')) {
                ++ps->p;
            }
        } else if ((*ps->p == '/') && (ps->p + 1 < ps->end) &&
                   (ps->p[1] == '*')) {
            for (ps->p += 2; (ps->p + 1 < ps->end) &&
                 ((ps->p[0] != '*') || (ps->p[1] != '/')); ++ps->p) {
                ps->line += (*ps->p == '\n');
            }
            ++ps->p;
        } else if (!isspace((unsigned char)*ps->p)) {
            return;
        }
    }
    ps->p = ps->end;
}

static void ptx_skip_line(ptx_parser_t *ps)
{
    while ((ps->p < ps->end) && (*ps->p != '\n')) {
        ++ps->p;
    }
}

static int ptx_peek(ptx_parser_t *ps)
{
    ptx_skip_space(ps);
    return (ps->p < ps->end) ? (unsigned char)*ps->p : 0;
}

static int ptx_accept(ptx_parser_t *ps, char c)
{
    if (ptx_peek(ps) != c) {
        return 0;
    }
    ++ps->p;
    return 1;
}

static int ptx_expect(ptx_parser_t *ps, char c)
{
    return ptx_accept(ps, c) ? 0 :
           ptx_fail(ps, CUEMU_PTX_SYNTAX, "'%c' expected before '%.12s'", c,
                    (ps->p < ps->end) ? ps->p : "end");
}

static char *ptx_keep(ptx_parser_t *ps, const char *text, size_t length)
{
    ptx_word_t *word = calloc(1, sizeof(*word) + length + 1);

    if (word == NULL) {
        ptx_no_memory(ps);
        return NULL;
    }
    memcpy(word->text, text, length);
    word->next = ps->words;
    ps->words  = word;
    return word->text;
}

/* Names, numbers, opcodes and directives with their dots; NULL: no word here */
static char *ptx_word(ptx_parser_t *ps)
{
    const char *begin;

    ptx_skip_space(ps);
    begin = ps->p;
    while (ps->p < ps->end) {
        if (isalnum((unsigned char)*ps->p) ||
            (strchr("_$%.", *ps->p) != NULL)) {
            ++ps->p;
        } else if ((ps->p + 1 < ps->end) && (ps->p[0] == ':') &&
                   (ps->p[1] == ':')) {
            ps->p += 2;
        } else {
            break;
        }
    }

    return (ps->p == begin) ? NULL :
                              ptx_keep(ps, begin, (size_t)(ps->p - begin));
}

static char *ptx_expect_word(ptx_parser_t *ps)
{
    char *word = ptx_word(ps);

    if ((word == NULL) && (ps->status == CUEMU_PTX_OK)) {
        ptx_fail(ps, CUEMU_PTX_SYNTAX, "a word expected before '%.12s'",
                 (ps->p < ps->end) ? ps->p : "end");
    }
    return word;
}

/* Return non-zero if the word is a number: an integer, or the bits of a
   float. */
static int ptx_number(const char *word, uint64_t *value_p, int *kind_p)
{
    char *end;
    double value;

    if (!isdigit((unsigned char)*word)) {
        return 0;
    }

    *kind_p = CUEMU_PTX_OPERAND_IMM;
    if ((word[0] == '0') && ((word[1] | 0x20) == 'f') && (word[2] != '\0')) {
        *kind_p  = CUEMU_PTX_OPERAND_F32;
        *value_p = strtoull(word + 2, &end, 16);
    } else if ((word[0] == '0') && ((word[1] | 0x20) == 'd') &&
               (word[2] != '\0')) {
        *kind_p  = CUEMU_PTX_OPERAND_F64;
        *value_p = strtoull(word + 2, &end, 16);
    } else if (strchr(word, '.') != NULL) {
        *kind_p = CUEMU_PTX_OPERAND_F64;
        value   = strtod_l(word, &end,
                           newlocale(LC_ALL_MASK, "C", (locale_t)0));
        memcpy(value_p, &value, sizeof(value));
    } else if ((word[0] == '0') && ((word[1] | 0x20) == 'b')) {
        *value_p = strtoull(word + 2, &end, 2);
    } else {
        *value_p = strtoull(word, &end, 0);
    }
    return (*end == '\0') || (((*end | 0x20) == 'u') && (end[1] == '\0'));
}

static int ptx_integer(ptx_parser_t *ps, uint64_t *value_p)
{
    int negative = ptx_accept(ps, '-'), kind;
    char *word   = ptx_expect_word(ps);

    if (word == NULL) {
        return -1;
    }

    if (!ptx_number(word, value_p, &kind) || (kind != CUEMU_PTX_OPERAND_IMM)) {
        return ptx_fail(ps, CUEMU_PTX_SYNTAX, "'%s' is not an integer", word);
    }

    *value_p = negative ? (0 - *value_p) : *value_p;
    return 0;
}

/* Skip to the end of a statement or of a braced block. */
static void ptx_skip_statement(ptx_parser_t *ps)
{
    int depth = 0, c;

    while ((c = ptx_peek(ps)) != 0) {
        ++ps->p;
        if (c == '"') {
            while ((ps->p < ps->end) && (*ps->p != '"')) {
                ++ps->p;
            }
            ++ps->p;
        } else if (c == '{') {
            ++depth;
        } else if (c == '}') {
            if (--depth == 0) {
                (void)ptx_accept(ps, ';');
                return;
            }
        } else if ((c == ';') && (depth == 0)) {
            return;
        }
    }
}

/* ----------------------------------------------------------- registers */

/* .reg .b32 %r<9>, %x; */
static int ptx_parse_reg(ptx_parser_t *ps)
{
    char *word = ptx_expect_word(ps);
    int type   = (word == NULL) ? -1 : cuemu_ptx_type(word + 1);
    ptx_reg_t *reg;
    uint64_t count;
    unsigned i;

    if (word == NULL) {
        return -1;
    }

    if (type < 0) {
        return ptx_fail(ps, CUEMU_PTX_NOT_KNOWN, ".reg %s", word);
    }

    do {
        if (cuemu_ptx_grow(&ps->regs, ps->num_regs, &ps->max_regs,
                     sizeof(*ps->regs)) != 0) {
            return ptx_no_memory(ps);
        }

        reg        = &ps->regs[ps->num_regs];
        reg->name  = ptx_expect_word(ps);
        reg->count = 0;
        reg->type  = type;
        reg->scope = ps->scope;
        if (reg->name == NULL) {
            return -1;
        }

        if (ptx_accept(ps, '<')) {
            if ((ptx_integer(ps, &count) != 0) || (ptx_expect(ps, '>') != 0)) {
                return -1;
            }
            if ((count == 0) || (count > 100000)) {
                return ptx_fail(ps, CUEMU_PTX_NOT_KNOWN,
                                "%llu registers %s",
                                (unsigned long long)count, reg->name);
            }
            reg->count = (unsigned)count;
        }

        reg->reg = cuemu_ptx_new_register(ps->kernel,
                                          cuemu_ptx_type_width(type));
        for (i = 1; i < reg->count; ++i) {
            (void)cuemu_ptx_new_register(ps->kernel,
                                         cuemu_ptx_type_width(type));
        }
        ps->kernel->num_registers += (reg->count == 0) ? 1 : reg->count;
        ++ps->num_regs;
    } while (ptx_accept(ps, ','));

    return ptx_expect(ps, ';');
}

static int ptx_find_register(ptx_parser_t *ps, const char *word,
                             cuemu_ptx_operand_t *op)
{
    size_t length = strlen(word), name;
    const ptx_reg_t *reg;
    unsigned long number;
    unsigned i, step, size;
    char *end;

    for (i = ps->num_regs; i-- > 0;) { /* inner scopes hide outer ones */
        reg    = &ps->regs[i];
        name   = strlen(reg->name);
        number = 0;
        if (reg->count > 0) {
            if ((length <= name) || (strncmp(word, reg->name, name) != 0) ||
                !isdigit((unsigned char)word[name])) {
                continue;
            }
            number = strtoul(word + name, &end, 10);
            if ((*end != '\0') || (number >= reg->count)) {
                continue;
            }
        } else if (strcmp(word, reg->name) != 0) {
            continue;
        }

        size     = cuemu_ptx_type_width(reg->type) * CUEMU_PTX_LANES;
        step     = (size == 0) ? 64 : ((size + 63) & ~63u);
        op->kind = CUEMU_PTX_OPERAND_REG;
        op->type = (uint8_t)reg->type;
        op->reg  = reg->reg + (uint32_t)number * step;
        return 1;
    }

    return 0;
}

static int ptx_find_special(ptx_parser_t *ps, const char *word,
                            cuemu_ptx_operand_t *op)
{
    static const struct {
        const char *name;
        int         kind;
    } special[] = {
        {"%tid.x",                CUEMU_PTX_FILL_TID},
        {"%tid.y",                CUEMU_PTX_FILL_TID + 1},
        {"%tid.z",                CUEMU_PTX_FILL_TID + 2},
        {"%ntid.x",               CUEMU_PTX_FILL_NTID},
        {"%ntid.y",               CUEMU_PTX_FILL_NTID + 1},
        {"%ntid.z",               CUEMU_PTX_FILL_NTID + 2},
        {"%ctaid.x",              CUEMU_PTX_FILL_CTAID},
        {"%ctaid.y",              CUEMU_PTX_FILL_CTAID + 1},
        {"%ctaid.z",              CUEMU_PTX_FILL_CTAID + 2},
        {"%nctaid.x",             CUEMU_PTX_FILL_NCTAID},
        {"%nctaid.y",             CUEMU_PTX_FILL_NCTAID + 1},
        {"%nctaid.z",             CUEMU_PTX_FILL_NCTAID + 2},
        {"%laneid",               CUEMU_PTX_FILL_LANEID},
        {"%warpid",               CUEMU_PTX_FILL_WARPID},
        {"%nwarpid",              CUEMU_PTX_FILL_NWARPID},
        {"%lanemask_eq",          CUEMU_PTX_FILL_MASK_EQ},
        {"%lanemask_lt",          CUEMU_PTX_FILL_MASK_LT},
        {"%lanemask_le",          CUEMU_PTX_FILL_MASK_LE},
        {"%lanemask_gt",          CUEMU_PTX_FILL_MASK_GT},
        {"%lanemask_ge",          CUEMU_PTX_FILL_MASK_GE},
        {"%dynamic_smem_size",    CUEMU_PTX_FILL_DYNAMIC_SHARED},
        {"%total_smem_size",      CUEMU_PTX_FILL_TOTAL_SHARED},
        {"%smid",                 CUEMU_PTX_FILL_SMID},
        {"%envreg1",              CUEMU_PTX_FILL_ENVREG1},
        {"%envreg2",              CUEMU_PTX_FILL_ENVREG2},
        {"%clock",                CUEMU_PTX_FILL_LAST},
        {"%clock_hi",             CUEMU_PTX_FILL_LAST},
        {"%clock64",              CUEMU_PTX_FILL_LAST},
        {"%globaltimer",          CUEMU_PTX_FILL_LAST},
        {"%globaltimer_lo",       CUEMU_PTX_FILL_LAST}
    };
    size_t i;

    for (i = 0; i < sizeof(special) / sizeof(special[0]); ++i) {
        if (strcmp(word, special[i].name) != 0) {
            continue;
        }

        op->type = CUEMU_PTX_U32;
        if (special[i].kind == CUEMU_PTX_FILL_LAST) {
            op->kind = CUEMU_PTX_OPERAND_CLOCK;
            return 1;
        }

        op->kind = CUEMU_PTX_OPERAND_REG;
        op->reg  = cuemu_ptx_constant(ps->kernel, 4,
                                      (cuemu_ptx_fill_kind_t)special[i].kind,
                                      0, 0);
        return (op->reg != CUEMU_PTX_NONE) ? 1 : ptx_no_memory(ps);
    }

    return 0;
}

/* ----------------------------------------------------------- variables */

/* Append a label, or a use of one, at an instruction. */
static int ptx_append(ptx_parser_t *ps, ptx_label_t **labels, unsigned *num,
                      unsigned *max, char *name, uint32_t pc)
{
    if (cuemu_ptx_grow(labels, *num, max, sizeof(**labels)) != 0) {
        return ptx_no_memory(ps);
    }
    (*labels)[(*num)++] = (ptx_label_t){.name = name, .scope = ps->scope,
                                        .pc = pc};
    return 0;
}

static int ptx_place_shared(ptx_parser_t *ps, ptx_symbol_t *symbol,
                            uint64_t size, uint64_t align)
{
    uint64_t start = (ps->kernel->shared_size + align - 1) & ~(align - 1);

    if (start + size > CUEMU_PTX_DYNAMIC) {
        return ptx_fail(ps, CUEMU_PTX_NOT_KNOWN, "the size of %s",
                        symbol->name);
    }

    symbol->offset          = start;
    ps->kernel->shared_size = (uint32_t)(start + size);
    return 0;
}

/* Find a parameter or a variable. Returns -1 for one without storage. */
static int ptx_find_symbol(ptx_parser_t *ps, const char *word,
                           cuemu_ptx_operand_t *op)
{
    const cuemu_ptx_kernel_t *k = ps->kernel;
    ptx_symbol_t *symbol, *found = NULL;
    unsigned i;

    op->global = -1;
    op->reg    = CUEMU_PTX_NONE;
    for (i = 0; (k != NULL) && (i < k->num_params); ++i) {
        if (strcmp(word, k->params[i].name) == 0) {
            op->kind  = CUEMU_PTX_OPERAND_SYMBOL;
            op->space = CUEMU_PTX_PARAM;
            op->value = k->params[i].offset;
            return 1;
        }
    }

    /* The kernel's names come before those of its text, and these before names
       that other texts make visible */
    for (i = ps->num_symbols; i-- > 0;) {
        symbol = &ps->symbols[i];
        if ((strcmp(word, symbol->name) == 0) &&
            ((symbol->unit == ps->unit) ||
             ((symbol->unit == 0) && (found == NULL)))) {
            found = symbol;
            if ((symbol->scope != 0) || (symbol->unit != 0)) {
                break;
            }
        }
    }
    if (found == NULL) {
        return 0;
    }
    if ((found->offset == PTX_NO_OFFSET) &&
        ((k == NULL) || (ptx_place_shared(ps, found, found->size,
                                          found->align) != 0))) {
        return -1;
    }

    op->kind   = CUEMU_PTX_OPERAND_SYMBOL;
    op->space  = (uint8_t)found->space;
    op->value  = found->offset;
    op->global = found->global;
    return 1;
}

/* Return the definition of a function, or its declaration without one: that of
   the current text, or else a visible one, or any text's. NULL: no such
   name. */
static const ptx_function_t *ptx_find_function(const ptx_parser_t *ps,
                                               const char *name)
{
    const ptx_function_t *found = NULL, *function;
    int rank = 0, best = 0;
    unsigned i;

    for (i = 0; i < ps->num_functions; ++i) {
        function = &ps->functions[i];
        if (strcmp(function->name, name) == 0) {
            rank = (function->body == NULL)     ? 1 :
                   (function->unit == ps->unit) ? 4 :
                   function->is_local           ? 2 : 3;
            if (rank > best) {
                best  = rank;
                found = function;
            }
        }
    }
    return found;
}

/* Return the address that stands for a function in registers and memory, 0 if
   no function has this name. No memory has such an address. */
static uint64_t ptx_function_address(const ptx_parser_t *ps, const char *name)
{
    unsigned i;

    for (i = 0; i < ps->num_functions; ++i) {
        if (strcmp(ps->functions[i].name, name) == 0) {
            return PTX_FUNCTIONS + 16ull * i;
        }
    }
    return 0;
}

/* Parse "name", "name + 4" or "generic(name)", `word` being its first word: the
   address of an earlier variable, to be stored at offset `at` of `global`. */
static int ptx_parse_link(ptx_parser_t *ps, const cuemu_ptx_global_t *global,
                          uint64_t at, const char *word)
{
    cuemu_ptx_module_t *module = ps->module;
    const int is_generic       = (strcmp(word, "generic") == 0);
    cuemu_ptx_link_t link      = {
        .from = (unsigned)(global - module->globals), .at = at
    };
    cuemu_ptx_operand_t op;

    if (is_generic && ((ptx_expect(ps, '(') != 0) ||
                       ((word = ptx_expect_word(ps)) == NULL) ||
                       (ptx_expect(ps, ')') != 0))) {
        return -1;
    }
    if (((ptx_accept(ps, '+') && (ptx_integer(ps, &link.offset) != 0))) ||
        (ptx_find_symbol(ps, word, &op) != 1) || (op.global < 0)) {
        return -1;
    }

    link.to = (unsigned)op.global;
    if (cuemu_ptx_grow(&module->links, module->num_links, &module->max_links,
                       sizeof(link)) != 0) {
        return ptx_no_memory(ps);
    }
    module->links[module->num_links++] = link;
    return 0;
}

/* Parse the bytes behind "=". */
static int ptx_parse_init(ptx_parser_t *ps, cuemu_ptx_global_t *global,
                          int type)
{
    unsigned size = cuemu_ptx_type_size(type);
    char *bytes   = calloc(1, global->size + 8);
    int braces    = 0, kind, negative;
    uint64_t at   = 0, value;
    float single;
    double real;
    char *word;

    if (bytes == NULL) {
        return ptx_no_memory(ps);
    }
    global->init = bytes;

    do {
        while (ptx_accept(ps, '{')) {
            ++braces;
        }
        negative = ptx_accept(ps, '-');
        word     = ptx_expect_word(ps);
        if (word == NULL) {
            return -1;
        }
        if (!ptx_number(word, &value, &kind)) {
            value = ptx_function_address(ps, word);
            kind  = CUEMU_PTX_OPERAND_IMM;
            if ((size != 8) ||
                ((value == 0) && (ptx_parse_link(ps, global, at, word) != 0))) {
                return ptx_fail(ps, CUEMU_PTX_NOT_KNOWN, "%s begins with the "
                                "address %s: only functions, and variables "
                                "before it", global->name, word);
            }
        }
        if ((kind == CUEMU_PTX_OPERAND_F64) && (type == CUEMU_PTX_F32)) {
            memcpy(&real, &value, sizeof(real));
            single = (float)real;
            value  = 0;
            memcpy(&value, &single, sizeof(single));
        }
        if (negative) {
            value = (kind == CUEMU_PTX_OPERAND_IMM) ? (0 - value) :
                    (value ^ (1ull << (size * 8 - 1)));
        }
        if (at + size > global->size) {
            return ptx_fail(ps, CUEMU_PTX_SYNTAX, "%s has too many values",
                            global->name);
        }
        memcpy(bytes + at, &value, size);
        at += size;
        while ((braces > 0) && ptx_accept(ps, '}')) {
            --braces;
        }
    } while (ptx_accept(ps, ','));

    return 0;
}

/* Parse the text behind .global, .const, .shared, .local: .align 4 .b8 name[16]
   = {0, 1}; */
static int ptx_parse_variable(ptx_parser_t *ps, int space, int is_extern)
{
    uint64_t align = 0, elements = 1, size, dim, start;
    cuemu_ptx_module_t *module = ps->module;
    cuemu_ptx_global_t *globals;
    int type = -1, vector = 1, open = 0, managed = 0;
    ptx_symbol_t *symbol;
    unsigned i, unit;
    char *word;

    for (;;) {
        word = ptx_expect_word(ps);
        if (word == NULL) {
            return -1;
        }
        if (strcmp(word, ".align") == 0) {
            if (ptx_integer(ps, &align) != 0) {
                return -1;
            }
        } else if ((strcmp(word, ".v2") == 0) || (strcmp(word, ".v4") == 0)) {
            vector = word[2] - '0';
        } else if (strcmp(word, ".attribute") == 0) {
            word    = (ptx_expect(ps, '(') != 0) ? NULL : ptx_expect_word(ps);
            managed = (word != NULL) && (strcmp(word, ".managed") == 0);
            if (!managed || (ptx_expect(ps, ')') != 0)) {
                return ptx_fail(ps, CUEMU_PTX_NOT_KNOWN, "variable with "
                                ".attribute(%s)", (word == NULL) ? "" : word);
            }
        } else if (word[0] == '.') {
            type = cuemu_ptx_type(word + 1);
            if (type < 0) {
                return ptx_fail(ps, CUEMU_PTX_NOT_KNOWN, "variable with %s",
                                word);
            }
        } else {
            break;
        }
    }

    if (type < 0) {
        return ptx_fail(ps, CUEMU_PTX_SYNTAX, "%s has no type", word);
    }

    while (ptx_accept(ps, '[')) {
        if (ptx_accept(ps, ']')) {
            open = 1;
            continue;
        }
        if ((ptx_integer(ps, &dim) != 0) || (ptx_expect(ps, ']') != 0)) {
            return -1;
        }
        if ((dim == 0) || (dim > (1ull << 32)) ||
            (elements > (1ull << 32) / dim)) {
            return ptx_fail(ps, CUEMU_PTX_NOT_KNOWN, "the size of %s", word);
        }
        elements *= dim;
    }

    size = elements * cuemu_ptx_type_size(type) * (unsigned)vector;
    if (align == 0) {
        align = cuemu_ptx_type_size(type) * (unsigned)vector;
    }
    if ((align & (align - 1)) != 0) {
        return ptx_fail(ps, CUEMU_PTX_SYNTAX, "alignment of %s", word);
    }

    if (cuemu_ptx_grow(&ps->symbols, ps->num_symbols, &ps->max_symbols,
                 sizeof(*ps->symbols)) != 0) {
        return ptx_no_memory(ps);
    }
    unit = ((ps->kernel == NULL) && !is_extern && !ps->is_visible) ? ps->unit :
                                                                     0;
    for (i = 0; (i < ps->num_symbols) && (ps->kernel == NULL) && !is_extern;
         ++i) {
        if ((strcmp(ps->symbols[i].name, word) != 0) ||
            (ps->symbols[i].unit != unit)) {
            continue;
        }
        if (ps->is_weak) {
            ptx_skip_statement(ps); /* one of them remains */
            return 0;
        }
        return ptx_fail(ps, CUEMU_PTX_NOT_KNOWN, "%s is declared twice", word);
    }
    if (is_extern && (space != CUEMU_PTX_SHARED)) {
        return (ptx_append(ps, &ps->externs, &ps->num_externs,
                           &ps->max_externs, word, ps->line) != 0) ? -1 :
               ptx_expect(ps, ';');
    }

    symbol  = &ps->symbols[ps->num_symbols++];
    *symbol = (ptx_symbol_t){.name = word, .space = space, .global = -1,
                             .scope = ps->scope, .unit = unit};

    switch (space) {
    case CUEMU_PTX_SHARED:
        if (open || (is_extern && (ps->kernel == NULL))) {
            symbol->offset = CUEMU_PTX_DYNAMIC;
        } else if (ps->kernel == NULL) {
            symbol->size   = size;
            symbol->align  = align;
            symbol->offset = PTX_NO_OFFSET;
        } else if (ptx_place_shared(ps, symbol, size, align) != 0) {
            return -1;
        }
        break;
    case CUEMU_PTX_LOCAL:
        start          = (ps->local + align - 1) & ~(align - 1);
        symbol->offset = start;
        if (start + size > (1u << 20)) {
            return ptx_fail(ps, CUEMU_PTX_NOT_KNOWN, "the size of %s", word);
        }
        ps->local = (uint32_t)(start + size + 15) & ~15u;
        if (ps->local > ps->kernel->local_size) {
            ps->kernel->local_size = ps->local;
        }
        break;
    default:
        globals = realloc(module->globals, (module->num_globals + 1) *
                                           sizeof(*globals));
        if (globals == NULL) {
            return ptx_no_memory(ps);
        }
        module->globals = globals;
        globals        += module->num_globals;
        memset(globals, 0, sizeof(*globals));
        globals->name   = strdup(word);
        globals->size   = size;
        globals->align  = align;
        globals->managed = managed;
        symbol->global  = (int)module->num_globals++;
        if (globals->name == NULL) {
            return ptx_no_memory(ps);
        }
        if (ptx_accept(ps, '=') && (ptx_parse_init(ps, globals, type) != 0)) {
            return -1;
        }
        break;
    }

    return ptx_expect(ps, ';');
}

/* ------------------------------------------------------------ operands */

static int ptx_parse_operand(ptx_parser_t *ps, cuemu_ptx_operand_t *op);

static int ptx_add_label(ptx_parser_t *ps, char *name)
{
    return ptx_append(ps, &ps->labels, &ps->num_labels, &ps->max_labels, name,
                      ps->kernel->num_code);
}

static int ptx_use_label(ptx_parser_t *ps, char *name, cuemu_ptx_operand_t *op)
{
    op->kind  = CUEMU_PTX_OPERAND_LABEL;
    op->value = ps->num_uses;
    return ptx_append(ps, &ps->uses, &ps->num_uses, &ps->max_uses, name,
                      ps->kernel->num_code);
}

/* Parse "|q" behind a register or "_", if it is there. */
static int ptx_parse_second(ptx_parser_t *ps, cuemu_ptx_operand_t *op)
{
    cuemu_ptx_operand_t q = {.reg = CUEMU_PTX_NONE};
    char *word;

    if (!ptx_accept(ps, '|')) {
        return 0;
    }
    word = ptx_expect_word(ps);
    if (word == NULL) {
        return -1;
    }
    if ((strcmp(word, "_") != 0) && !ptx_find_register(ps, word, &q)) {
        return ptx_fail(ps, CUEMU_PTX_SYNTAX, "%s is not declared", word);
    }
    op->second = q.reg;
    return 0;
}

/* Parse a register, "_", a number or a name; no brackets or braces. */
static int ptx_parse_simple(ptx_parser_t *ps, cuemu_ptx_operand_t *op)
{
    int negative = ptx_accept(ps, '-'), kind, found;
    char *word   = ptx_expect_word(ps);
    uint64_t offset;

    if (word == NULL) {
        return -1;
    }

    if (strcmp(word, "_") == 0) {
        op->kind = CUEMU_PTX_OPERAND_NONE;
        return ptx_parse_second(ps, op);
    }

    if (strcmp(word, "WARP_SZ") == 0) {
        op->kind  = CUEMU_PTX_OPERAND_IMM;
        op->value = 32;
        return 0;
    }

    if (ptx_number(word, &op->value, &kind)) {
        op->kind = (uint8_t)kind;
        if (negative) {
            op->value = (kind == CUEMU_PTX_OPERAND_IMM) ? (0 - op->value) :
                        (kind == CUEMU_PTX_OPERAND_F32) ?
                        (op->value ^ 0x80000000u) :
                        (op->value ^ (1ull << 63));
        }
        return 0;
    }

    if (ptx_find_register(ps, word, op)) {
        return ptx_parse_second(ps, op);
    }

    found = (word[0] == '%') ? ptx_find_special(ps, word, op) : 0;
    if (found != 0) {
        return (found > 0) ? 0 : -1;
    }

    found = ptx_find_symbol(ps, word, op);
    if (found < 0) {
        return -1;
    }
    if (found > 0) {
        if (ptx_accept(ps, '+')) {
            if (ptx_integer(ps, &offset) != 0) {
                return -1;
            }
            op->value += offset;
        }
        return 0;
    }

    if (word[0] == '%') {
        return ptx_fail(ps, CUEMU_PTX_NOT_KNOWN, "register %s", word);
    }

    op->value = (word[0] == '$') ? 0 : ptx_function_address(ps, word);
    if (op->value != 0) {
        op->kind = CUEMU_PTX_OPERAND_IMM;
        return 0;
    }
    return ptx_use_label(ps, word, op);
}

static int ptx_parse_address(ptx_parser_t *ps, cuemu_ptx_operand_t *op)
{
    cuemu_ptx_operand_t base = {.reg = CUEMU_PTX_NONE, .global = -1};
    uint64_t offset;

    if (ptx_parse_simple(ps, &base) != 0) {
        return -1;
    }

    *op      = base;
    op->kind = CUEMU_PTX_OPERAND_ADDRESS;
    switch (base.kind) {
    case CUEMU_PTX_OPERAND_REG:
        op->global = -1;
        op->value  = 0;
        op->space  = CUEMU_PTX_GENERIC;
        break;
    case CUEMU_PTX_OPERAND_IMM:
        op->reg    = CUEMU_PTX_NONE;
        op->global = -1;
        break;
    case CUEMU_PTX_OPERAND_SYMBOL:
        break;
    default:
        return ptx_fail(ps, CUEMU_PTX_SYNTAX, "such an address");
    }

    if (ptx_accept(ps, '+')) {
        if (ptx_integer(ps, &offset) != 0) {
            return -1;
        }
        op->value += offset;
    } else if (ptx_peek(ps) == '-') {
        if (ptx_integer(ps, &offset) != 0) {
            return -1;
        }
        op->value += offset;
    }

    return ptx_expect(ps, ']');
}

static int ptx_parse_operand(ptx_parser_t *ps, cuemu_ptx_operand_t *op)
{
    cuemu_ptx_operand_t element;

    memset(op, 0, sizeof(*op));
    op->reg    = CUEMU_PTX_NONE;
    op->second = CUEMU_PTX_NONE;
    op->global = -1;

    if (ptx_accept(ps, '[')) {
        return ptx_parse_address(ps, op);
    }

    if (ptx_accept(ps, '!')) {
        op->negated = 1;
        return ptx_parse_simple(ps, op);
    }

    if (!ptx_accept(ps, '{')) {
        return ptx_parse_simple(ps, op);
    }

    op->kind = CUEMU_PTX_OPERAND_VECTOR;
    do {
        memset(&element, 0, sizeof(element));
        element.reg = CUEMU_PTX_NONE;
        if (ptx_parse_simple(ps, &element) != 0) {
            return -1;
        }
        if ((op->count == 4) || (element.kind > CUEMU_PTX_OPERAND_F64)) {
            return ptx_fail(ps, CUEMU_PTX_SYNTAX,
                            "a vector of more than registers and numbers");
        }
        op->kinds[op->count]  = element.kind;
        op->types[op->count]  = element.type;
        op->values[op->count] = element.value;
        op->regs[op->count++] = (element.kind == CUEMU_PTX_OPERAND_REG) ?
                                element.reg : CUEMU_PTX_NONE;
    } while (ptx_accept(ps, ','));

    return ptx_expect(ps, '}');
}

/* ---------------------------------------------------------- statements */

static cuemu_ptx_insn_t *ptx_new_insn(ptx_parser_t *ps)
{
    cuemu_ptx_kernel_t *k = ps->kernel;
    cuemu_ptx_insn_t *in;

    if (cuemu_ptx_grow(&k->code, k->num_code, &k->max_code,
                 sizeof(*k->code)) != 0) {
        ptx_no_memory(ps);
        return NULL;
    }
    ++ps->parsed;
    in         = &k->code[k->num_code];
    memset(in, 0, sizeof(*in));
    in->guard  = CUEMU_PTX_NONE;
    in->target = CUEMU_PTX_NONE;
    in->line   = ps->line;
    return in;
}

/* Report an unknown instruction, or an unknown form of one; `why` may say more,
   or is empty. */
static int ptx_fail_insn(ptx_parser_t *ps, cuemu_ptx_status_t status,
                         const char *word, const char *why)
{
    ps->status = CUEMU_PTX_OK;
    return ptx_fail(ps, status, "%s: %s", word, (*why != '\0') ? why :
                    "the emulator lacks this instruction, or this form of it");
}

/* Report an operand of an instruction. If text follows, the instruction may be
   valid, and its operands of a kind that the parser does not know. */
static int ptx_fail_operand(ptx_parser_t *ps, const char *word)
{
    const char *why = strchr(ps->error, ':');
    const int more  = (ptx_peek(ps) != 0);
    char *copy;

    if ((why == NULL) || (ps->status == CUEMU_PTX_NO_MEMORY)) {
        return -1;
    }
    copy = (more && (ps->status == CUEMU_PTX_SYNTAX)) ? NULL :
           ptx_keep(ps, why + 2, strlen(why + 2));
    return ptx_fail_insn(ps, more ? CUEMU_PTX_NOT_KNOWN : ps->status, word,
                         (copy == NULL) ? "" : copy);
}

static int ptx_parse_call(ptx_parser_t *ps, const char *word,
                          const cuemu_ptx_operand_t *guard);
static int ptx_try_call(ptx_parser_t *ps, const char *word,
                        const cuemu_ptx_operand_t *guard);

static int ptx_parse_insn(ptx_parser_t *ps, char *word,
                          const cuemu_ptx_operand_t *guard)
{
    cuemu_ptx_statement_t st = {.written = word};
    char error[CUEMU_PTX_ERROR_SIZE] = "";
    cuemu_ptx_status_t status;
    cuemu_ptx_insn_t *in;
    char *copy = ptx_keep(ps, word, strlen(word)), *token, *save = NULL;

    if (copy == NULL) {
        return -1;
    }

    for (token = strtok_r(copy, ".", &save); token != NULL;
         token = strtok_r(NULL, ".", &save)) {
        if (st.num_tokens == sizeof(st.token) / sizeof(st.token[0])) {
            return ptx_fail(ps, CUEMU_PTX_NOT_KNOWN, "%s", word);
        }
        st.token[st.num_tokens++] = token;
    }

    if ((st.num_tokens > 0) && (strcmp(st.token[0], "call") == 0)) {
        return (st.num_tokens > 1) && (strcmp(st.token[1], "try") == 0) ?
               ptx_try_call(ps, word, guard) : ptx_parse_call(ps, word, guard);
    }

    if ((ps->calls > 0) && (strcmp(copy, "ret") == 0)) {
        st.token[0] = "bra";
        if (ptx_use_label(ps, PTX_RETURN, &st.op[st.num_ops++]) != 0) {
            return -1;
        }
    }

    while (!ptx_accept(ps, ';')) {
        if (st.num_ops == sizeof(st.op) / sizeof(st.op[0])) {
            return ptx_fail(ps, CUEMU_PTX_NOT_KNOWN, "operands of %s", word);
        }
        if ((ptx_parse_operand(ps, &st.op[st.num_ops++]) != 0) ||
            (!ptx_accept(ps, ',') && (ptx_peek(ps) != ';') &&
             (ptx_expect(ps, ';') != 0))) {
            return ptx_fail_operand(ps, word);
        }
    }

    in = ptx_new_insn(ps);
    if (in == NULL) {
        return -1;
    }

    if (guard != NULL) {
        in->guard   = guard->reg;
        in->negated = guard->negated;
    }

    status = cuemu_ptx_decode(ps->kernel, &st, in, error);
    if (status != CUEMU_PTX_OK) {
        return (status == CUEMU_PTX_NO_MEMORY) ? ptx_no_memory(ps) :
               ptx_fail_insn(ps, status, word, error);
    }

    ++ps->kernel->num_code;
    return 0;
}

static int ptx_add_to_table(ptx_parser_t *ps, uint32_t value)
{
    cuemu_ptx_kernel_t *k = ps->kernel;

    if (cuemu_ptx_grow(&k->tables, k->num_tables, &ps->max_tables,
                 sizeof(*k->tables)) != 0) {
        return ptx_no_memory(ps);
    }
    k->tables[k->num_tables++] = value;
    return 0;
}

/* label: .branchtargets A, B; the label before names the table */
static int ptx_parse_targets(ptx_parser_t *ps)
{
    cuemu_ptx_kernel_t *k = ps->kernel;
    uint32_t table        = k->num_tables;
    cuemu_ptx_operand_t op;

    if ((ps->num_labels == 0) || (ptx_add_to_table(ps, 0) != 0)) {
        return ptx_fail(ps, CUEMU_PTX_SYNTAX, ".branchtargets has no label");
    }

    ps->labels[ps->num_labels - 1].is_table = 1;
    ps->labels[ps->num_labels - 1].pc       = table;
    do {
        memset(&op, 0, sizeof(op));
        if (ptx_parse_simple(ps, &op) != 0) {
            return -1;
        }
        if (op.kind != CUEMU_PTX_OPERAND_LABEL) {
            return ptx_fail(ps, CUEMU_PTX_SYNTAX, "a target is not a label");
        }
        ps->uses[op.value].pc       = k->num_tables;
        ps->uses[op.value].is_table = 1;
        if (ptx_add_to_table(ps, 0) != 0) {
            return -1;
        }
        ++k->tables[table];
    } while (ptx_accept(ps, ','));

    return ptx_expect(ps, ';');
}

/* Resolve uses of labels in a scope that ends; unresolved ones move to the
   outer scope. */
static int ptx_close_scope(ptx_parser_t *ps)
{
    unsigned depth        = --ps->depth, i, j;
    int parent            = ps->parent[depth].scope;
    cuemu_ptx_kernel_t *k = ps->kernel;
    const ptx_label_t *label;
    ptx_label_t *use;

    for (i = ps->parent[depth].uses; i < ps->num_uses; ++i) {
        use = &ps->uses[i];
        if (use->scope != ps->scope) {
            continue;
        }

        for (j = ps->parent[depth].labels; j < ps->num_labels; ++j) {
            label = &ps->labels[j];
            if ((label->scope == ps->scope) &&
                (strcmp(label->name, use->name) == 0)) {
                break;
            }
        }

        if (j == ps->num_labels) {
            use->scope = parent;
            if (parent == 0) {
                return ptx_fail(ps, CUEMU_PTX_SYNTAX, "%s is not declared",
                                use->name);
            }
            continue;
        }

        use->scope = -1;
        if (use->is_table) {
            k->tables[use->pc] = ps->labels[j].pc;
        } else if (ps->labels[j].is_table) {
            k->code[use->pc].imm = ps->labels[j].pc;
        } else {
            k->code[use->pc].target = ps->labels[j].pc;
        }
    }

    while ((ps->num_regs > 0) &&
           (ps->regs[ps->num_regs - 1].scope == ps->scope)) {
        --ps->num_regs;
    }
    while ((ps->num_symbols > 0) &&
           (ps->symbols[ps->num_symbols - 1].scope == ps->scope)) {
        --ps->num_symbols;
    }
    ps->scope = parent;
    ps->local = ps->parent[depth].local;
    return 0;
}

static int ptx_open_scope(ptx_parser_t *ps)
{
    if (ps->depth == PTX_MAX_DEPTH) {
        return ptx_fail(ps, CUEMU_PTX_NOT_KNOWN, "so many braces");
    }
    ps->parent[ps->depth].scope  = ps->scope;
    ps->parent[ps->depth].uses   = ps->num_uses;
    ps->parent[ps->depth].labels = ps->num_labels;
    ps->parent[ps->depth].local  = ps->local;
    ++ps->depth;
    ps->scope = ++ps->last_scope;
    return 0;
}

static int ptx_parse_directive(ptx_parser_t *ps, char *word)
{
    char *type = strchr(word + 1, '.');

    if (type != NULL) { /* as in ".reg.b32" */
        ps->p -= strlen(type);
        *type  = '\0';
    }

    if (strcmp(word, ".reg") == 0) {
        return ptx_parse_reg(ps);
    } else if (strcmp(word, ".shared") == 0) {
        return ptx_parse_variable(ps, CUEMU_PTX_SHARED, 0);
    } else if (strcmp(word, ".local") == 0) {
        return ptx_parse_variable(ps, CUEMU_PTX_LOCAL, 0);
    } else if (strcmp(word, ".param") == 0) { /* parameter of a call */
        return ptx_parse_variable(ps, CUEMU_PTX_LOCAL, 0);
    } else if (strcmp(word, ".branchtargets") == 0) {
        return ptx_parse_targets(ps);
    } else if (strcmp(word, ".loc") == 0) {
        ptx_skip_line(ps);
        return 0;
    } else if ((strcmp(word, ".pragma") == 0) ||
               (strcmp(word, ".callprototype") == 0)) {
        ptx_skip_statement(ps);
        return 0;
    }

    return ptx_fail(ps, CUEMU_PTX_NOT_KNOWN, "%s in a kernel", word);
}

static int ptx_parse_statement(ptx_parser_t *ps)
{
    cuemu_ptx_operand_t guard;
    char *word;

    if (ptx_accept(ps, '@')) {
        memset(&guard, 0, sizeof(guard));
        guard.second  = CUEMU_PTX_NONE;
        guard.negated = (uint8_t)ptx_accept(ps, '!');
        if (ptx_parse_simple(ps, &guard) != 0) {
            return -1;
        }
        if ((guard.kind != CUEMU_PTX_OPERAND_REG) ||
            (guard.type != CUEMU_PTX_PRED)) {
            return ptx_fail(ps, CUEMU_PTX_SYNTAX, "a guard is not a predicate");
        }
        word = ptx_expect_word(ps);
        return (word == NULL) ? -1 : ptx_parse_insn(ps, word, &guard);
    }

    if (ptx_accept(ps, ';')) {
        return 0;
    }

    word = ptx_expect_word(ps);
    if (word == NULL) {
        return -1;
    }

    if (word[0] == '.') {
        return ptx_parse_directive(ps, word);
    }

    if (ptx_accept(ps, ':')) {
        return ptx_add_label(ps, word);
    }

    return ptx_parse_insn(ps, word, NULL);
}

/* Parse up to the brace that ends the innermost scope. */
static int ptx_parse_body(ptx_parser_t *ps)
{
    unsigned depth = ps->depth;
    cuemu_ptx_insn_t *in;
    cuemu_ptx_statement_t ret = {.token = {"exit"}, .num_tokens = 1,
                                 .written = "exit"};
    char error[CUEMU_PTX_ERROR_SIZE];

    while (ps->depth >= depth) {
        if (ptx_peek(ps) == 0) {
            return ptx_fail(ps, CUEMU_PTX_SYNTAX, "%s has no end",
                            ps->kernel->name);
        } else if (ptx_accept(ps, '{')) {
            if (ptx_open_scope(ps) != 0) {
                return -1;
            }
        } else if (ptx_accept(ps, '}')) {
            if ((ps->depth == depth) && (ps->calls > 0) &&
                (ptx_add_label(ps, PTX_RETURN) != 0)) {
                return -1;
            }
            if (ps->parent[ps->depth - 1].scope == 0) {
                /* Threads end after the last instruction */
                in = ptx_new_insn(ps);
                if ((in == NULL) ||
                    (cuemu_ptx_decode(ps->kernel, &ret, in, error) !=
                     CUEMU_PTX_OK)) {
                    return ptx_no_memory(ps);
                }
                ++ps->kernel->num_code;
            }
            if (ptx_close_scope(ps) != 0) {
                return -1;
            }
        } else if (ptx_parse_statement(ps) != 0) {
            return -1;
        }
    }

    return 0;
}

/* ------------------------------------------------------------- kernels */

/* .param .align 8 .b8 name[16] */
static int ptx_parse_param(ptx_parser_t *ps)
{
    cuemu_ptx_kernel_t *k = ps->kernel;
    uint64_t align = 0, count = 1, offset;
    cuemu_ptx_param_t *params;
    int type = -1;
    char *word;

    for (;;) {
        word = ptx_expect_word(ps);
        if (word == NULL) {
            return -1;
        }
        if (strcmp(word, ".align") == 0) {
            if (ptx_integer(ps, &align) != 0) {
                return -1;
            }
        } else if ((strcmp(word, ".ptr") == 0) ||
                   (strcmp(word, ".global") == 0) ||
                   (strcmp(word, ".param") == 0) ||
                   (strcmp(word, ".const") == 0) ||
                   (strcmp(word, ".shared") == 0)) {
            if (strcmp(word, ".ptr") == 0) {
                align = 8; /* the next words describe the pointer's target */
            }
        } else if (word[0] == '.') {
            type = cuemu_ptx_type(word + 1);
            if (type < 0) {
                return ptx_fail(ps, CUEMU_PTX_NOT_KNOWN, "parameter %s", word);
            }
        } else {
            break;
        }
    }

    if (type < 0) {
        return ptx_fail(ps, CUEMU_PTX_SYNTAX, "%s has no type", word);
    }

    if (ptx_accept(ps, '[') &&
        ((ptx_integer(ps, &count) != 0) || (ptx_expect(ps, ']') != 0))) {
        return -1;
    }

    if (cuemu_ptx_type_size(type) > 1) {
        align = cuemu_ptx_type_size(type);
    }
    align  = (align == 0) ? 1 : align;
    offset = (k->params_size + align - 1) & ~(align - 1);
    if ((count > 32768) || (offset > 32768)) {
        return ptx_fail(ps, CUEMU_PTX_NOT_KNOWN, "the size of %s", word);
    }

    params = realloc(k->params, (k->num_params + 1) * sizeof(*params));
    if (params == NULL) {
        return ptx_no_memory(ps);
    }
    k->params      = params;
    params        += k->num_params++;
    params->name   = strdup(word);
    params->offset = (uint32_t)offset;
    params->size   = (uint32_t)(count * cuemu_ptx_type_size(type));
    k->params_size = params->offset + params->size;
    return (params->name == NULL) ? ptx_no_memory(ps) : 0;
}

/* .maxntid 512, 1, 1 and other directives, up to the body */
static int ptx_parse_tuning(ptx_parser_t *ps)
{
    uint64_t value, product;
    char *word;

    while ((ptx_peek(ps) != '{') && (ptx_peek(ps) != ';')) {
        word = ptx_expect_word(ps);
        if (word == NULL) {
            return -1;
        }

        product = 1;
        if (isdigit((unsigned char)ptx_peek(ps))) {
            do {
                if (ptx_integer(ps, &value) != 0) {
                    return -1;
                }
                product *= value;
            } while (ptx_accept(ps, ','));
        } else if (ptx_peek(ps) == '"') {
            ptx_skip_statement(ps);
        }

        if ((strcmp(word, ".maxntid") == 0) ||
            (strcmp(word, ".reqntid") == 0)) {
            ps->kernel->max_threads = (unsigned)product;
        } else if ((strstr(word, "cluster") != NULL) &&
                   (strcmp(word, ".maxclusterrank") != 0)) {
            return ptx_fail(ps, CUEMU_PTX_NOT_KNOWN, "%s: the emulator lacks "
                            "clusters of blocks", word);
        }
    }
    return 0;
}

/* Skip a body behind its opening brace. */
static void ptx_skip_body(ptx_parser_t *ps)
{
    const char *p = ps->p;
    int depth     = 1;

    for (; (p < ps->end) && (depth > 0); ++p) {
        switch (*p) {
        case '\n':
            ++ps->line;
            break;
        case '{':
            ++depth;
            break;
        case '}':
            --depth;
            break;
        case '"':
        case '/':
            ps->p = p; /* a string or a comment */
            if (*p == '"') {
                for (++p; (p < ps->end) && (*p != '"'); ++p) {
                }
            } else if ((p + 1 < ps->end) && ((p[1] == '/') || (p[1] == '*'))) {
                ptx_skip_space(ps);
                p = ps->p - 1;
            }
            break;
        default:
            break;
        }
    }
    ps->p = p;
}

/* Parse parameters and body of a kernel found by ptx_parse_entry(). */
static int ptx_parse_kernel(ptx_parser_t *ps, cuemu_ptx_kernel_t *k)
{
    unsigned i;

    ps->kernel     = k;
    ps->p          = k->text;
    ps->line       = k->line;
    ps->unit       = k->unit;
    ps->num_regs   = 0;
    ps->num_labels = 0;
    ps->num_uses   = 0;
    ps->max_tables = 0;
    ps->depth      = 0;
    ps->scope      = 0;
    ps->calls      = 0;
    ps->parsed     = 0;
    ps->local      = 0;
    k->text        = NULL;
    while ((ps->num_symbols > 0) &&
           (ps->symbols[ps->num_symbols - 1].scope != 0)) {
        --ps->num_symbols; /* drop those of a kernel that failed to parse */
    }
    for (i = 0; i < ps->num_symbols; ++i) {
        if (ps->symbols[i].size > 0) {
            ps->symbols[i].offset = PTX_NO_OFFSET;
        }
    }

    if (ptx_accept(ps, '(') && !ptx_accept(ps, ')')) {
        do {
            if (ptx_parse_param(ps) != 0) {
                return -1;
            }
        } while (ptx_accept(ps, ','));
        if (ptx_expect(ps, ')') != 0) {
            return -1;
        }
    }

    return ((ptx_parse_tuning(ps) != 0) || (ptx_expect(ps, '{') != 0) ||
            (ptx_open_scope(ps) != 0)) ? -1 : ptx_parse_body(ps);
}

static int ptx_parse_entry(ptx_parser_t *ps)
{
    cuemu_ptx_module_t *module = ps->module;
    char *word                 = ptx_expect_word(ps);
    const char *text           = ps->p;
    uint32_t line              = ps->line;
    cuemu_ptx_kernel_t **kernels, *k;
    int c;

    if (word == NULL) {
        return -1;
    }

    while (((c = ptx_peek(ps)) != 0) && (c != ';') && (c != '{')) {
        ++ps->p;
    }
    if (c == ';') { /* declared, defined elsewhere */
        ++ps->p;
        return 0;
    }

    kernels = realloc(module->kernels, (module->num_kernels + 1) *
                                       sizeof(*kernels));
    k       = calloc(1, sizeof(*k));
    if (kernels != NULL) {
        module->kernels = kernels;
    }
    if ((kernels == NULL) || (k == NULL)) {
        free(k);
        return ptx_no_memory(ps);
    }
    kernels[module->num_kernels++] = k;
    k->module                      = module;
    k->name                        = strdup(word);
    k->text                        = text;
    k->line                        = line;
    k->unit                        = ps->unit;
    if (k->name == NULL) {
        return ptx_no_memory(ps);
    }

    if (c == '{') {
        ++ps->p;
        ptx_skip_body(ps);
    }
    return 0;
}

/* ----------------------------------------------------------- functions */

/* Parse the text behind .func: (results) name (parameters), then a body or
   ";" */
static int ptx_parse_function(ptx_parser_t *ps)
{
    ptx_function_t function = {.name = NULL};
    int c;

    while (((c = ptx_peek(ps)) != 0) && (c != ';') && (c != '{')) {
        if (c == '(') {
            ++ps->p;
            *((function.name == NULL) ? &function.results :
                                        &function.params) = ps->p;
            while (((c = ptx_peek(ps)) != 0) && (c != ')')) {
                ++ps->p;
            }
            ++ps->p;
        } else if (function.name == NULL) {
            function.name = ptx_expect_word(ps);
            if (function.name == NULL) {
                return -1;
            }
        } else {
            ++ps->p; /* .noreturn and similar */
        }
    }

    if (function.name == NULL) {
        return ptx_fail(ps, CUEMU_PTX_SYNTAX, "function without a name");
    }

    ps->p += (c != 0);
    if (c == '{') {
        function.body = ps->p;
        function.line = ps->line;
        ptx_skip_body(ps);
    }
    if (cuemu_ptx_grow(&ps->functions, ps->num_functions, &ps->max_functions,
                       sizeof(*ps->functions)) != 0) {
        return ptx_no_memory(ps);
    }
    function.unit                      = ps->unit;
    function.is_local                  = !ps->is_visible;
    ps->functions[ps->num_functions++] = function;
    return 0;
}

/* Parse (a, b), possibly empty: up to `max` operands. */
static int ptx_parse_arguments(ptx_parser_t *ps, cuemu_ptx_operand_t *op,
                               unsigned max, unsigned *count_p)
{
    *count_p = 0;
    if (ptx_accept(ps, ')')) {
        return 0;
    }

    do {
        if (*count_p == max) {
            return ptx_fail(ps, CUEMU_PTX_NOT_KNOWN, "so many arguments");
        }
        if (ptx_parse_operand(ps, &op[(*count_p)++]) != 0) {
            return -1;
        }
    } while (ptx_accept(ps, ','));
    return ptx_expect(ps, ')');
}

/* Bind a function's parameters to variables of its caller. */
static int ptx_bind(ptx_parser_t *ps, const char *text,
                    const cuemu_ptx_operand_t *op, unsigned count)
{
    ptx_symbol_t *symbol;
    uint64_t number;
    char *word;

    for (ps->p = text; (text != NULL) && !ptx_accept(ps, ')'); ++op) {
        do {
            word = ptx_expect_word(ps);
            if ((word == NULL) || ((strcmp(word, ".align") == 0) &&
                                   (ptx_integer(ps, &number) != 0))) {
                return -1;
            }
            if (strcmp(word, ".reg") == 0) {
                return ptx_fail(ps, CUEMU_PTX_NOT_KNOWN,
                                "a function with parameters in registers");
            }
        } while (word[0] == '.');
        if (ptx_accept(ps, '[') && ((ptx_integer(ps, &number) != 0) ||
                                    (ptx_expect(ps, ']') != 0))) {
            return -1;
        }
        (void)ptx_accept(ps, ',');
        if ((count-- == 0) || (op->kind != CUEMU_PTX_OPERAND_SYMBOL) ||
            (op->space != CUEMU_PTX_LOCAL)) {
            return ptx_fail(ps, CUEMU_PTX_NOT_KNOWN, "argument %s", word);
        }
        if (cuemu_ptx_grow(&ps->symbols, ps->num_symbols, &ps->max_symbols,
                           sizeof(*ps->symbols)) != 0) {
            return ptx_no_memory(ps);
        }
        symbol  = &ps->symbols[ps->num_symbols++];
        *symbol = (ptx_symbol_t){.name = word, .space = CUEMU_PTX_LOCAL,
                                 .offset = op->value, .global = -1,
                                 .scope = ps->scope};
    }
    return 0;
}

/* Add an instruction of our own; its name cannot occur in PTX. */
static int ptx_emit(ptx_parser_t *ps, cuemu_ptx_statement_t *st,
                    const cuemu_ptx_operand_t *guard, int negate)
{
    char error[CUEMU_PTX_ERROR_SIZE] = "";
    cuemu_ptx_insn_t *in             = ptx_new_insn(ps);

    if (in == NULL) {
        return -1;
    }
    if (guard != NULL) {
        in->guard   = guard->reg;
        in->negated = guard->negated ^ (uint8_t)negate;
    }
    if (cuemu_ptx_decode(ps->kernel, st, in, error) != CUEMU_PTX_OK) {
        return ptx_fail(ps, CUEMU_PTX_NOT_KNOWN, "%s: %s", st->written, error);
    }
    ++ps->kernel->num_code;
    return 0;
}

/* Return the number of parameters in "a, b)"; NULL: none. */
static unsigned ptx_count_parameters(const char *text)
{
    unsigned count = 0, is_empty = 1;

    for (; (text != NULL) && (*text != ')'); ++text) {
        count   += (*text == ',');
        is_empty = is_empty && isspace((unsigned char)*text);
    }
    return count + !is_empty;
}

/* Where a parser reads */
typedef struct {
    const char *p, *end;
    unsigned    line, unit;
} ptx_place_t;

static ptx_place_t ptx_place_get(const ptx_parser_t *ps)
{
    return (ptx_place_t){ps->p, ps->end, ps->line, ps->unit};
}

static void ptx_place_set(ptx_parser_t *ps, const ptx_place_t *place)
{
    ps->p    = place->p;
    ps->end  = place->end;
    ps->line = place->line;
    ps->unit = place->unit;
}

/* "call (results), %pointer, (arguments), prototype;" */
typedef struct {
    const char *pointer;
    const char *results, *arguments; /* texts around the pointer */
    int         results_length, arguments_length;
    unsigned    num_results, num_arguments;
} ptx_pointer_call_t;

/* Return whether linked texts have several functions of this name, which share
   an address. */
static int ptx_is_ambiguous(const ptx_parser_t *ps,
                            const ptx_function_t *function)
{
    const ptx_function_t *other;
    unsigned i;

    for (i = 0; i < ps->num_functions; ++i) {
        other = &ps->functions[i];
        if ((other != function) && (other->body != NULL) &&
            (other->is_local || function->is_local) &&
            (strcmp(other->name, function->name) == 0)) {
            return 1;
        }
    }
    return 0;
}

/* Write statements that call each function of so many parameters if the pointer
   is its address. Returns NULL without memory. */
static char *ptx_write_calls(const ptx_parser_t *ps,
                             const ptx_pointer_call_t *call, size_t *size_p)
{
    const ptx_function_t *function;
    unsigned long long address;
    char *text = NULL;
    FILE *file = open_memstream(&text, size_p);
    unsigned i;

    if (file == NULL) {
        return NULL;
    }
    fprintf(file, ".reg .pred %%is, %%left; setp.eq.u64 %%left, %s, %s; ",
            call->pointer, call->pointer);
    for (i = 0; i < ps->num_functions; ++i) {
        function = &ps->functions[i];
        address  = ptx_function_address(ps, function->name);
        if ((function->body != NULL) &&
            !ptx_is_ambiguous(ps, function) &&
            (ptx_count_parameters(function->results) == call->num_results) &&
            (ptx_count_parameters(function->params) == call->num_arguments)) {
            fprintf(file, "setp.eq.u64 %%is, %s, %llu; "
                    "setp.ne.and.u64 %%left, %s, %llu, %%left; "
                    "@%%is call.try %.*s %s %.*s; ", call->pointer, address,
                    call->pointer, address, call->results_length,
                    call->results, function->name, call->arguments_length,
                    call->arguments);
        }
    }
    fprintf(file, "@%%left trap; %s: }", PTX_RETURN);
    return (fclose(file) == 0) ? text : NULL;
}

/* Inline all functions that a pointer may point to, each behind a comparison */
static int ptx_call_pointer(ptx_parser_t *ps, const ptx_pointer_call_t *call,
                            const cuemu_ptx_operand_t *guard)
{
    cuemu_ptx_statement_t skip = {.token = {"bra"}, .num_tokens = 1,
                                  .num_ops = 1, .written = "call"};
    const ptx_place_t after = ptx_place_get(ps);
    size_t size             = 0;
    char *text              = ptx_write_calls(ps, call, &size);
    int result              = (text == NULL) ? ptx_no_memory(ps) :
                                               ptx_open_scope(ps);

    if ((result == 0) && (guard != NULL)) {
        result = (ptx_use_label(ps, PTX_RETURN, &skip.op[0]) != 0) ? -1 :
                 ptx_emit(ps, &skip, guard, 1);
    }
    ps->p   = text;
    ps->end = text + size;
    result  = (result != 0) ? -1 : ptx_parse_body(ps);
    /* arguments with line breaks were written several times */
    ptx_place_set(ps, &after);
    free(text);
    return result;
}

/*
 * Parse "call (results), function, (arguments);" and inline the function: parse
 * its text once more, in a scope of its own.
 */
static int ptx_parse_call(ptx_parser_t *ps, const char *word,
                          const cuemu_ptx_operand_t *guard)
{
    cuemu_ptx_statement_t st = {.token = {"bra"}, .num_tokens = 1,
                                .num_ops = 1, .written = "call"};
    cuemu_ptx_operand_t result[4], argument[64];
    unsigned num_results = 0, num_arguments = 0;
    const ptx_function_t *function;
    ptx_pointer_call_t call = {.results = ps->p};
    ptx_place_t after;
    unsigned i;
    char *name;

    if (ptx_accept(ps, '(') &&
        ((ptx_parse_arguments(ps, result, 4, &num_results) != 0) ||
         (ptx_expect(ps, ',') != 0))) {
        return -1;
    }

    call.results_length = (int)(ps->p - call.results);
    name                = ptx_expect_word(ps);
    call.pointer        = name;
    call.arguments      = ps->p;
    if ((name == NULL) ||
        (ptx_accept(ps, ',') &&
         ((ptx_expect(ps, '(') != 0) ||
          (ptx_parse_arguments(ps, argument, 64, &num_arguments) != 0)))) {
        return -1;
    }
    call.arguments_length = (int)(ps->p - call.arguments);
    call.num_results      = num_results;
    call.num_arguments    = num_arguments;
    if (ptx_accept(ps, ',') && (ptx_expect_word(ps) == NULL)) {
        return -1; /* a prototype */
    }
    if (ptx_expect(ps, ';') != 0) {
        return -1;
    }
    if (name[0] == '%') {
        return ptx_call_pointer(ps, &call, guard);
    }

    function = ptx_find_function(ps, name);
    if ((function == NULL) || (function->body == NULL)) {
        st.token[0]   = "call";
        st.token[1]   = name;
        st.num_tokens = 2;
        st.written    = name;
        st.num_ops    = (num_arguments < 8) ? num_arguments : 8;
        memcpy(st.op, argument, st.num_ops * sizeof(*argument));
        return ptx_emit(ps, &st, guard, 0);
    }

    for (i = 0; i < ps->calls; ++i) {
        if (ps->called[i] == function->body) {
            return ptx_fail(ps, CUEMU_PTX_NOT_KNOWN, "%s: %s is recursive",
                            word, name);
        }
    }
    if (ps->parsed > PTX_MAX_CODE) {
        return ptx_fail(ps, CUEMU_PTX_NOT_KNOWN, "%s: %s: calls make more than "
                        "%u instructions", word, name, PTX_MAX_CODE);
    }
    if (ps->calls == PTX_MAX_CALLS) {
        return ptx_fail(ps, CUEMU_PTX_NOT_KNOWN, "%s: %s: %u calls are nested",
                        word, name, PTX_MAX_CALLS);
    }

    after   = ptx_place_get(ps);
    ps->end = ps->last;
    if (ptx_open_scope(ps) != 0) {
        return -1;
    }
    if ((guard != NULL) &&
        ((ptx_use_label(ps, PTX_RETURN, &st.op[0]) != 0) ||
         (ptx_emit(ps, &st, guard, 1) != 0))) {
        return -1;
    }
    if ((ptx_bind(ps, function->results, result, num_results) != 0) ||
        (ptx_bind(ps, function->params, argument, num_arguments) != 0)) {
        return -1;
    }

    ps->p    = function->body;
    ps->line = function->line;
    ps->unit = function->unit;
    ps->called[ps->calls++] = function->body;
    ps->kernel->calls       = ps->calls;
    if (ptx_parse_body(ps) != 0) {
        return -1;
    }
    --ps->calls;
    ps->kernel->calls = ps->calls;
    ptx_place_set(ps, &after);
    return 0;
}

/* Parse one of our calls of what a pointer may point to. If the function is
   recursive or not supported, the kernel ends where it would call it. */
static int ptx_try_call(ptx_parser_t *ps, const char *word,
                        const cuemu_ptx_operand_t *guard)
{
    cuemu_ptx_statement_t lacks = {.token = {"trap", "lacks"},
                                   .num_tokens = 2, .written = "trap"};
    cuemu_ptx_kernel_t *k       = ps->kernel;
    const ptx_parser_t before   = *ps;
    const ptx_place_t place     = ptx_place_get(ps);
    const uint32_t num_code = k->num_code, num_tables = k->num_tables;

    if ((ptx_parse_call(ps, word, guard) == 0) ||
        (ps->status == CUEMU_PTX_NO_MEMORY)) {
        return (ps->status == CUEMU_PTX_OK) ? 0 : -1;
    }
    if (ps->parsed > PTX_MAX_CODE) {
        ps->status = CUEMU_PTX_OK;
        return ptx_fail(ps, CUEMU_PTX_NOT_KNOWN, "calls by pointer make more "
                        "than %u instructions", PTX_MAX_CODE);
    }

    ps->status      = CUEMU_PTX_OK;
    ptx_place_set(ps, &place);
    ps->scope       = before.scope;
    ps->depth       = before.depth;
    ps->calls       = before.calls;
    ps->local       = before.local;
    ps->num_regs    = before.num_regs;
    ps->num_symbols = before.num_symbols;
    ps->num_labels  = before.num_labels;
    ps->num_uses    = before.num_uses;
    k->num_code     = num_code;
    k->num_tables   = num_tables;
    k->calls        = before.calls;
    ptx_skip_statement(ps);
    return ptx_emit(ps, &lacks, guard, 0);
}

/* Fail if a declared variable is in none of the linked texts. */
static int ptx_check_externs(ptx_parser_t *ps)
{
    unsigned i, j;

    for (i = 0; i < ps->num_externs; ++i) {
        for (j = 0; (j < ps->num_symbols) &&
             ((ps->symbols[j].unit != 0) ||
              (strcmp(ps->symbols[j].name, ps->externs[i].name) != 0)); ++j) {
        }
        if (j == ps->num_symbols) {
            ps->line = ps->externs[i].pc;
            return ptx_fail(ps, CUEMU_PTX_NOT_KNOWN,
                            "%s is a variable of another module",
                            ps->externs[i].name);
        }
    }
    return 0;
}

static int ptx_parse_module(ptx_parser_t *ps)
{
    int is_extern = 0, seen_version = 0;
    uint64_t size;
    char *word;

    while (ptx_peek(ps) != 0) {
        word = ptx_expect_word(ps);
        if (word == NULL) {
            return -1;
        }

        if (strcmp(word, ".version") == 0) {
            seen_version = 1;
            ++ps->unit;
            ptx_skip_line(ps);
        } else if (!seen_version) {
            return ptx_fail(ps, CUEMU_PTX_SYNTAX, "no .version: not PTX");
        } else if (strcmp(word, ".address_size") == 0) {
            if (ptx_integer(ps, &size) != 0) {
                return -1;
            }
            if (size != 64) {
                return ptx_fail(ps, CUEMU_PTX_NOT_KNOWN, ".address_size %llu",
                                (unsigned long long)size);
            }
        } else if ((strcmp(word, ".target") == 0) ||
                   (strcmp(word, ".file") == 0) ||
                   (strcmp(word, ".loc") == 0)) {
            ptx_skip_line(ps);
        } else if ((strcmp(word, ".section") == 0) ||
                   (strcmp(word, ".pragma") == 0)) {
            ptx_skip_statement(ps);
        } else if ((strcmp(word, ".extern") == 0)) {
            is_extern      = 1;
            ps->is_visible = 1;
            continue;
        } else if ((strcmp(word, ".visible") == 0) ||
                   (strcmp(word, ".weak") == 0) ||
                   (strcmp(word, ".common") == 0)) {
            ps->is_weak   |= (word[1] != 'v');
            ps->is_visible = 1;
            continue;
        } else if (strcmp(word, ".entry") == 0) {
            if (ptx_parse_entry(ps) != 0) {
                return -1;
            }
        } else if (strcmp(word, ".func") == 0) {
            if (ptx_parse_function(ps) != 0) {
                return -1;
            }
        } else if ((strcmp(word, ".global") == 0) ||
                   (strcmp(word, ".const") == 0) ||
                   (strcmp(word, ".shared") == 0)) {
            if (ptx_parse_variable(ps, (word[1] == 'g') ? CUEMU_PTX_GLOBAL :
                                   (word[1] == 'c') ? CUEMU_PTX_CONST :
                                                      CUEMU_PTX_SHARED,
                                   is_extern) != 0) {
                return -1;
            }
        } else {
            return ptx_fail(ps, CUEMU_PTX_NOT_KNOWN, "%s", word);
        }
        is_extern      = 0;
        ps->is_weak    = 0;
        ps->is_visible = 0;
    }

    return seen_version ? ptx_check_externs(ps) :
           ptx_fail(ps, CUEMU_PTX_SYNTAX, "no .version: not PTX");
}

static void ptx_parser_free(ptx_parser_t *ps)
{
    ptx_word_t *word;

    while (ps->words != NULL) {
        word      = ps->words;
        ps->words = word->next;
        free(word);
    }
    free(ps->regs);
    free(ps->symbols);
    free(ps->labels);
    free(ps->uses);
    free(ps->functions);
    free(ps->externs);
    free((void*)ps->begin);
    free(ps);
}

/* Declare what the system reserves of shared memory. cooperative_groups expects
   288 bytes there (details/memory.h). */
static int ptx_parse_reserved(ptx_parser_t *ps)
{
    static const char text[] = ".align 16 .b8 %reserved_smem_offset_1[288];";
    const char *begin = ps->p, *end = ps->end;
    int result;

    ps->p   = text;
    ps->end = text + sizeof(text) - 1;
    result  = ptx_parse_variable(ps, CUEMU_PTX_SHARED, 0);
    ps->p   = begin;
    ps->end = end;
    return result;
}

cuemu_ptx_status_t cuemu_ptx_load(const char *text, size_t size, int lazy,
                                  cuemu_ptx_module_t **module_p, char *error)
{
    ptx_parser_t *ps          = calloc(1, sizeof(*ps));
    cuemu_ptx_status_t status = CUEMU_PTX_NO_MEMORY;
    cuemu_ptx_module_t *module;
    uint32_t i;

    *module_p = NULL;
    module    = calloc(1, sizeof(*module));
    snprintf(error, CUEMU_PTX_ERROR_SIZE, "no memory");
    if ((ps == NULL) || (module == NULL)) {
        free(module);
        free(ps);
        return status;
    }

    size       = strnlen(text, size);
    lazy       = lazy || (size >= PTX_EAGER_SIZE);
    ps->begin  = strndup(text, size);
    ps->p      = ps->begin;
    ps->end    = ps->begin + size;
    ps->last   = ps->end;
    ps->line   = 1;
    ps->error  = error;
    ps->module = module;
    if (ps->begin != NULL) {
        (void)ptx_parse_reserved(ps);
        (void)ptx_parse_module(ps);
        status = ps->status;
    }

    module->parser = ps;
    for (i = 0; (status == CUEMU_PTX_OK) && !lazy &&
         (i < module->num_kernels); ++i) {
        status = cuemu_ptx_kernel_parse(module->kernels[i], error);
    }

    if ((status != CUEMU_PTX_OK) || !lazy) {
        ptx_parser_free(ps);
        module->parser = NULL;
    }
    if (status == CUEMU_PTX_OK) {
        *module_p = module;
        error[0]  = '\0';
    } else {
        cuemu_ptx_unload(module);
    }
    return status;
}

cuemu_ptx_status_t cuemu_ptx_kernel_parse(cuemu_ptx_kernel_t *kernel,
                                          char *error)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    cuemu_ptx_status_t status   = CUEMU_PTX_OK;
    ptx_parser_t *ps            = kernel->module->parser;

    pthread_mutex_lock(&lock);
    if (kernel->text != NULL) {
        ps->error      = error;
        ps->status     = CUEMU_PTX_OK;
        (void)ptx_parse_kernel(ps, kernel);
        kernel->status = ps->status;
        ps->kernel     = NULL;
    }
    status = kernel->status;
    pthread_mutex_unlock(&lock);
    return status;
}

void cuemu_ptx_unload(cuemu_ptx_module_t *module)
{
    cuemu_ptx_kernel_t *k;
    uint32_t i, j;

    if (module->parser != NULL) {
        ptx_parser_free(module->parser);
    }
    for (i = 0; i < module->num_kernels; ++i) {
        k = module->kernels[i];
        for (j = 0; j < k->num_params; ++j) {
            free(k->params[j].name);
        }
        free(k->params);
        free(k->fills);
        free(k->tables);
        free(k->code);
        free(k->name);
        free(k);
    }
    for (i = 0; i < module->num_globals; ++i) {
        free((void*)module->globals[i].init);
        free((void*)module->globals[i].name);
    }
    free(module->kernels);
    free(module->globals);
    free(module->links);
    free(module);
}

void cuemu_ptx_link(cuemu_ptx_module_t *module)
{
    const cuemu_ptx_link_t *link;
    uint64_t address;
    unsigned i;

    for (i = 0; i < module->num_links; ++i) {
        link    = &module->links[i];
        address = module->globals[link->to].address + link->offset;
        memcpy((char*)(uintptr_t)module->globals[link->from].init + link->at,
               &address, sizeof(address));
    }
}

cuemu_ptx_kernel_t *cuemu_ptx_kernel(cuemu_ptx_module_t *module,
                                     const char *name, unsigned index)
{
    uint32_t i;

    if (name == NULL) {
        return (index < module->num_kernels) ? module->kernels[index] : NULL;
    }

    for (i = 0; i < module->num_kernels; ++i) {
        if (strcmp(module->kernels[i]->name, name) == 0) {
            return module->kernels[i];
        }
    }
    return NULL;
}

void cuemu_ptx_kernel_info(const cuemu_ptx_kernel_t *kernel,
                           cuemu_ptx_info_t *info)
{
    info->name             = kernel->name;
    info->num_params       = kernel->num_params;
    info->params_size      = kernel->params_size;
    info->shared_size      = kernel->shared_size;
    info->local_size       = kernel->local_size;
    info->max_threads      = kernel->max_threads;
    info->num_registers    = kernel->num_registers;
    info->num_instructions = kernel->num_code;
}

void cuemu_ptx_kernel_param(const cuemu_ptx_kernel_t *kernel, unsigned index,
                            uint32_t *offset_p, uint32_t *size_p)
{
    *offset_p = kernel->params[index].offset;
    *size_p   = kernel->params[index].size;
}

cuemu_ptx_global_t *cuemu_ptx_global(cuemu_ptx_module_t *module, unsigned index)
{
    return (index < module->num_globals) ? &module->globals[index] : NULL;
}
