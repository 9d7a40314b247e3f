/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Small table of page numbers, each with the generation of its entry. Every
 * unmapping starts a new generation, which invalidates all entries.
 */
#include <uct/cuda/base/memory_cache.h>

#include <uct/abi/abi.h>
#include <uct/cuda/base/log.h>

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>


#define PAGE_SHIFT      12
#define TABLE_SIZE      1024
#define GENERATION_BITS 28
#define GENERATION_MASK ((UINT64_C(1) << GENERATION_BITS) - 1)


static uint64_t table[TABLE_SIZE]; /* page number, generation; 0: empty */
static uint64_t generation;        /* 0: disabled */


/* The event comes before the memory is unmapped: a page added in between has
 * the old generation */
static void on_unmap(void *address, size_t length)
{
    __atomic_add_fetch(&generation, 1, __ATOMIC_SEQ_CST);
}

/*
 * Return whether this process can read the page. For freed GPU memory the
 * driver answers as for host memory; its addresses stay in the process without
 * permissions, and come back as GPU memory without an unmapping visible to
 * hooks (H100, driver 580).
 *
 * The kernel reads the signal set before it checks the operation, which is
 * invalid: 0.1 us, and no system call filter refuses it.
 */
static bool is_readable(uint64_t page)
{
    const long no_way = -1;

    return (syscall(SYS_rt_sigprocmask, no_way, page << PAGE_SHIFT, NULL,
                    sizeof(uint64_t)) == -1) &&
           (errno == EINVAL);
}

/* Return whether the kernel, or its replacement, answers as expected */
static bool is_answer_reliable(void)
{
    const uint64_t readable = (uintptr_t)table >> PAGE_SHIFT;
    const size_t size       = (size_t)1 << PAGE_SHIFT;
    void *none              = mmap(NULL, size, PROT_NONE,
                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool is_reliable;

    if (none == MAP_FAILED) {
        return false;
    }

    is_reliable = is_readable(readable) &&
                  !is_readable((uintptr_t)none >> PAGE_SHIFT);
    munmap(none, size);
    return is_reliable;
}

static void enable_once(void)
{
    if (!is_answer_reliable()) {
        uct_cuda_debug("cannot test which memory is readable: the driver is "
                       "queried for every buffer");
    } else if (uct_abi_on_unmap(on_unmap) == UCS_OK) {
        __atomic_store_n(&generation, 1, __ATOMIC_SEQ_CST);
    } else {
        uct_cuda_debug("no hooks on unmapping: the driver is queried for every "
                       "buffer");
    }
}

void uct_cuda_memory_cache_enable(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, enable_once);
}

static uint64_t entry_of(uint64_t page, uint64_t now)
{
    return (page << GENERATION_BITS) | (now & GENERATION_MASK);
}

bool uct_cuda_memory_cache_is_host(const void *address)
{
    const uint64_t page = (uintptr_t)address >> PAGE_SHIFT;

    return __atomic_load_n(&table[page % TABLE_SIZE], __ATOMIC_RELAXED) ==
           entry_of(page, __atomic_load_n(&generation, __ATOMIC_ACQUIRE));
}

void uct_cuda_memory_cache_add_host(const void *address)
{
    const uint64_t page = (uintptr_t)address >> PAGE_SHIFT;
    /* read before the check: memory unmapped meanwhile is not cached */
    const uint64_t now  = __atomic_load_n(&generation, __ATOMIC_SEQ_CST);
    const int error     = errno;

    if ((now != 0) && is_readable(page)) {
        __atomic_store_n(&table[page % TABLE_SIZE], entry_of(page, now),
                         __ATOMIC_RELAXED);
    }

    errno = error;
}
