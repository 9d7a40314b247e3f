/* SPDX-License-Identifier: BSD-3-Clause */
/* File system space for the memory of GPUs. */
#ifndef CUEMU_POPULATE_H
#define CUEMU_POPULATE_H

#include <stdint.h>

/* Allocate the file system space of a range of GPU memory. Returns 0, or -1 if
   the file system is full: reported once, and later calls fail
   (cuemu_gate_leave()). Returns 0 without a check if `gpu` is -1, and on Linux
   before 5.14. */
int cuemu_populate(int gpu, uint64_t offset, uint64_t size);

#endif
