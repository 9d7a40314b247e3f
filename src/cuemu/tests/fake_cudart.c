/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Imitate NVIDIA's CUDA runtime linked statically into a program or library:
 * local functions with its names and no effect.
 */
#define FAKE __attribute__((noinline, noclone, aligned(16), used)) static

enum { FAKE_ERROR = 46 };

FAKE int cudaGetDeviceCount(int *count)
{
    __asm__ volatile("nop; nop; nop; nop; nop; nop; nop; nop" : : "r"(count));
    return FAKE_ERROR;
}

/* A name missing in the emulated runtime */
FAKE int cudaFrobnicate(int a)
{
    __asm__ volatile("nop; nop; nop; nop; nop; nop; nop; nop" : : "r"(a));
    return FAKE_ERROR;
}

FAKE int cudaGetExportTable(void)
{
    __asm__ volatile("nop; nop; nop; nop; nop; nop; nop; nop");
    return FAKE_ERROR;
}

FAKE int __cudaGetKernel(void)
{
    __asm__ volatile("nop; nop; nop; nop; nop; nop; nop; nop");
    return FAKE_ERROR;
}

FAKE int cudaGetDeviceProperties_v2(void)
{
    __asm__ volatile("nop; nop; nop; nop; nop; nop; nop; nop");
    return FAKE_ERROR;
}

/* Calls through pointers, as from other files: with an aligned stack */
static int (*volatile fake_count)(int*) = cudaGetDeviceCount;
static int (*volatile fake_other)(int)  = cudaFrobnicate;

/* Before main(), like calls of a library's constructors */
static int fake_early;

static void __attribute__((constructor)) fake_init(void)
{
    int count = -1;

    fake_early = (fake_count(&count) == 0) ? count : -1;
}

int fake_call(int *count, int *early)
{
    *early = fake_early;
    return fake_count(count) * 1000 + fake_other(1);
}
