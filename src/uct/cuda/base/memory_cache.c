/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A small table of page numbers, each with the generation it was learned in.
 * Every unmapping of memory starts a new generation, which forgets them all.
 */
#include <uct/cuda/base/memory_cache.h>

#include <uct/abi/abi.h>
#include <uct/cuda/base/log.h>

#include <pthread.h>
#include <stdint.h>


#define PAGE_SHIFT      12
#define TABLE_SIZE      1024
#define GENERATION_BITS 28
#define GENERATION_MASK ((UINT64_C(1) << GENERATION_BITS) - 1)


static uint64_t table[TABLE_SIZE]; /* page number, generation; 0 is empty */
static uint64_t generation;        /* 0: nothing is remembered */


/* The event comes before the memory goes: a page that is learned in between is
 * of a generation that this ends */
static void on_unmap(void *address, size_t length)
{
    __atomic_add_fetch(&generation, 1, __ATOMIC_SEQ_CST);
}

static void enable_once(void)
{
    if (uct_abi_on_unmap(on_unmap) == UCS_OK) {
        __atomic_store_n(&generation, 1, __ATOMIC_SEQ_CST);
    } else {
        uct_cuda_debug("no hooks on unmapping: every buffer is asked about");
    }
}

void uct_cuda_memory_cache_enable(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, enable_once);
}

static uint64_t entry_of(uint64_t page)
{
    return (page << GENERATION_BITS) |
           (__atomic_load_n(&generation, __ATOMIC_ACQUIRE) & GENERATION_MASK);
}

bool uct_cuda_memory_cache_is_host(const void *address)
{
    const uint64_t page = (uintptr_t)address >> PAGE_SHIFT;

    return __atomic_load_n(&table[page % TABLE_SIZE], __ATOMIC_RELAXED) ==
           entry_of(page);
}

void uct_cuda_memory_cache_add_host(const void *address, size_t length)
{
    const uint64_t page = (uintptr_t)address >> PAGE_SHIFT;

    if (__atomic_load_n(&generation, __ATOMIC_RELAXED) != 0) {
        __atomic_store_n(&table[page % TABLE_SIZE], entry_of(page),
                         __ATOMIC_RELAXED);
    }
}
