/* SPDX-License-Identifier: BSD-3-Clause */

#ifndef UCX_MP_KERNELS_PTX_H_
#define UCX_MP_KERNELS_PTX_H_

/*
 * Define `_name` as the text of the PTX file `_file`, zero-terminated and
 * hidden (see regenerate).
 */
#define UCX_MP_KERNELS_PTX(_name, _file) \
    __asm__(".pushsection .rodata\n" \
            ".globl " #_name "\n" \
            ".hidden " #_name "\n" \
            #_name ":\n" \
            ".incbin \"" _file "\"\n" \
            ".byte 0\n" \
            ".popsection\n"); \
    extern const char _name[] __attribute__((visibility("hidden")))

#endif
