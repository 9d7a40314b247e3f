/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * GPU system functions: printf() and assert() of kernels. No module defines
 * them. CUDA C++ Programming Guide, "Formatted Output": vprintf takes a format
 * and a buffer in which each argument is aligned to its size.
 */
#include "ptx_code.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define PTX_TEXT_SIZE 1024 /* bytes of text that one thread may print */

/* Return an argument of the call: 8 bytes of the thread's local memory. */
static uint64_t ptx_argument(const cuemu_ptx_group_t *g, uint32_t offset,
                             unsigned lane)
{
    uint64_t value;

    memcpy(&value, g->local + (size_t)lane * g->block->kernel->local_size +
           offset, sizeof(value));
    return value;
}

/* Copy a string of the kernel, cut to `size` bytes. */
static void ptx_string(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                       unsigned lane, uint64_t address, char *text,
                       size_t size)
{
    const char *p;
    size_t i;

    for (i = 0; i + 1 < size; ++i) {
        p = cuemu_ptx_generic(g, in, lane, address + i, 1);
        if ((p == NULL) || (*p == '\0')) {
            break;
        }
        text[i] = *p;
    }
    text[i] = '\0';
}

/* Return the next argument of printf(), `size` bytes. */
static uint64_t ptx_next(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                         unsigned lane, uint64_t *at_p, unsigned size)
{
    uint64_t value = 0;
    const char *p;

    *at_p  = (*at_p + size - 1) & ~(uint64_t)(size - 1);
    p      = cuemu_ptx_generic(g, in, lane, *at_p, size);
    *at_p += size;
    if (p != NULL) {
        memcpy(&value, p, size);
    }
    return value;
}

/* Print one conversion, for instance "%-5.2f". `spec` has room for a longer
   length modifier. */
static void ptx_convert(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                        unsigned lane, char *spec, uint64_t *at_p)
{
    size_t length = strlen(spec) - 1;
    char type     = spec[length], text[PTX_TEXT_SIZE];
    int is_long   = (length > 1) && (strchr("lzjt", spec[length - 1]) != NULL);
    uint64_t value;
    double real;

    while (strchr("hlzjt", spec[length - 1]) != NULL) {
        --length;
    }

    if (strchr("eEfFgGaA", type) != NULL) {
        value = ptx_next(g, in, lane, at_p, 8);
        memcpy(&real, &value, sizeof(real));
        spec[length] = type;
        spec[length + 1] = '\0';
        printf(spec, real);
    } else if (type == 's') {
        ptx_string(g, in, lane, ptx_next(g, in, lane, at_p, 8), text,
                   sizeof(text));
        printf(spec, text);
    } else if (type == 'p') {
        printf(spec, (void*)(uintptr_t)ptx_next(g, in, lane, at_p, 8));
    } else if (type == 'c') {
        printf(spec, (int)ptx_next(g, in, lane, at_p, 4));
    } else {
        value = ptx_next(g, in, lane, at_p, is_long ? 8 : 4);
        if (!is_long && ((type == 'd') || (type == 'i'))) {
            value = (uint64_t)(int64_t)(int32_t)value;
        }
        snprintf(spec + length, 4, "ll%c", type);
        printf(spec, (long long)value);
    }
}

static void ptx_print(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                      unsigned lane)
{
    uint64_t at = ptx_argument(g, in->r[1], lane);
    char format[PTX_TEXT_SIZE], spec[64];
    const char *p;
    size_t used;

    ptx_string(g, in, lane, ptx_argument(g, in->r[0], lane), format,
               sizeof(format));
    for (p = format; *p != '\0'; ++p) {
        if ((*p != '%') || (p[1] == '%')) {
            putchar(*p);
            p += (*p == '%');
            continue;
        }

        used = 0;
        do {
            if (*p == '*') {
                used += (size_t)snprintf(spec + used, 12, "%d", (int)ptx_next(
                                         g, in, lane, &at, 4));
            } else {
                spec[used++] = *p;
            }
            ++p;
        } while ((used < sizeof(spec) - 16) && (*p != '\0') &&
                 (strchr("-+ #0123456789.*hlzjt", *p) != NULL));
        if (strchr("diouxXeEfFgGaAcsp", *p) == NULL) {
            return;
        }
        spec[used++] = *p;
        spec[used]   = '\0';
        ptx_convert(g, in, lane, spec, &at);
    }
}

static void ptx_vprintf(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                        cuemu_ptx_mask_t m)
{
    if (!g->block->launch->dry) {
        CUEMU_PTX_FOR_EACH(m, { ptx_print(g, in, i); })
        fflush(stdout);
    }
}

/* __assertfail(message, file, line, function, size of a character) */
static void ptx_assert(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                       cuemu_ptx_mask_t m)
{
    unsigned lane = (unsigned)__builtin_ctzll(m);
    char what[256], file[256];
    uint64_t line;

    ptx_string(g, in, lane, ptx_argument(g, in->r[0], lane), what,
               sizeof(what));
    ptx_string(g, in, lane, ptx_argument(g, in->r[1], lane), file,
               sizeof(file));
    line = ptx_argument(g, in->r[2], lane);
    if (!g->block->launch->dry) {
        fprintf(stderr, "%s:%u: block: [%u,%u,%u], thread: %u Assertion `%s` "
                        "failed.\n", file, (unsigned)line, g->block->ctaid[0],
                g->block->ctaid[1], g->block->ctaid[2], g->first + lane, what);
    }
    cuemu_ptx_fault(g, in, CUEMU_PTX_ASSERT, lane, 0);
}

cuemu_ptx_status_t cuemu_ptx_decode_call(cuemu_ptx_kernel_t *k,
                                         const cuemu_ptx_statement_t *st,
                                         cuemu_ptx_insn_t *in, char *error)
{
    static const struct {
        const char     *name;
        unsigned        num_ops;
        cuemu_ptx_run_t run;
    } functions[] = {
        {"vprintf", 2, ptx_vprintf}, {"__assertfail", 5, ptx_assert}
    };
    size_t i, j;

    for (i = 0; i < sizeof(functions) / sizeof(functions[0]); ++i) {
        if ((strcmp(st->token[1], functions[i].name) != 0) ||
            (st->num_ops != functions[i].num_ops)) {
            continue;
        }
        in->run = functions[i].run;
        for (j = 0; j < st->num_ops; ++j) {
            in->r[j] = (uint32_t)st->op[j].value; /* offsets in local memory */
        }
        k->local_size += 8; /* each is read as 8 bytes */
        return CUEMU_PTX_OK;
    }

    snprintf(error, CUEMU_PTX_ERROR_SIZE,
             "this function is neither in the module nor supported here");
    return CUEMU_PTX_NOT_KNOWN;
}
