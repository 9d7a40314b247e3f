/* SPDX-License-Identifier: BSD-3-Clause */

/* GPU memory mapped for the processor: the emulated GDRCopy. */
#include "driver_fixture.h"

#include <cerrno>
#include <csetjmp>
#include <csignal>

/* As gdrapi.h of GDRCopy 2.4 declares them */
extern "C" {
typedef struct gdr *gdr_t;
typedef struct {
    unsigned long h;
} gdr_mh_t;
typedef struct {
    uint64_t va, mapped_size;
    uint32_t page_size;
    uint64_t tm_cycles;
    uint32_t cycles_per_ms;
    unsigned mapped : 1, wc_mapping : 1;
    int      mapping_type;
} gdr_info_t;
gdr_t gdr_open(void);
int gdr_close(gdr_t g);
int gdr_pin_buffer(gdr_t g, unsigned long addr, size_t size, uint64_t token,
                   uint32_t va_space, gdr_mh_t *handle);
int gdr_unpin_buffer(gdr_t g, gdr_mh_t handle);
int gdr_get_info_v2(gdr_t g, gdr_mh_t handle, gdr_info_t *info);
int gdr_map(gdr_t g, gdr_mh_t handle, void **va, size_t size);
int gdr_unmap(gdr_t g, gdr_mh_t handle, void *va, size_t size);
int gdr_copy_to_mapping(gdr_mh_t handle, void *ptr, const void *src, size_t n);
int gdr_copy_from_mapping(gdr_mh_t handle, void *dst, const void *ptr,
                          size_t n);
int cuemu_fault(const char *faults);
}

class gdrapi : public driver {
protected:
    enum { PAGE = 65536 };

    /* Pin, map and query memory; `*ptr_p` is the processor's address of it */
    void map(gdr_t g, CUdeviceptr dev, size_t size, gdr_mh_t *mh, char **ptr_p)
    {
        void *va = nullptr;
        gdr_info_t info;

        ASSERT_EQ(0, gdr_pin_buffer(g, dev, size, 0, 0, mh));
        ASSERT_EQ(0, gdr_map(g, *mh, &va, dev % PAGE + size));
        ASSERT_EQ(0, gdr_get_info_v2(g, *mh, &info));
        EXPECT_EQ(dev - dev % PAGE, info.va);
        EXPECT_EQ((dev % PAGE + size + PAGE - 1) / PAGE * PAGE,
                  info.mapped_size);
        EXPECT_EQ(65536u, info.page_size);
        EXPECT_EQ(1u, info.mapped);
        EXPECT_EQ(1u, info.wc_mapping);
        EXPECT_EQ(1, info.mapping_type);
        *ptr_p = (char*)va + (dev - info.va);
    }

    static sigjmp_buf jump;
    static void on_fault(int)
    {
        siglongjmp(jump, 1);
    }

    /* Return whether reading a byte faults. */
    static bool faults(const char *ptr)
    {
        struct sigaction act = {}, old_segv, old_bus;
        volatile bool fault = true;

        act.sa_handler = on_fault;
        sigaction(SIGSEGV, &act, &old_segv);
        sigaction(SIGBUS, &act, &old_bus);
        if (sigsetjmp(jump, 1) == 0) {
            (void)*(const volatile char*)ptr;
            fault = false;
        }
        sigaction(SIGSEGV, &old_segv, nullptr);
        sigaction(SIGBUS, &old_bus, nullptr);
        return fault;
    }
};

sigjmp_buf gdrapi::jump;

TEST_F(gdrapi, processor_and_gpu_see_the_same_bytes)
{
    run(1, [this](int) {
        use(1);
        /* a small allocation in the middle of a page, and a large one */
        CUdeviceptr first = alloc(4096), small = alloc(8192);
        CUdeviceptr large = alloc(3 * MiB) + 2 * MiB + 20480;
        gdr_t g           = gdr_open();

        ASSERT_NE(nullptr, g);
        CU_OK(cuMemFree(first)); /* the page begins with free memory */
        for (CUdeviceptr dev : {small, large}) {
            std::vector<uint32_t> in = pattern(8192, 1), out(2048);
            gdr_mh_t mh;
            char *ptr;

            map(g, dev, 8192, &mh, &ptr);
            ASSERT_EQ(0, gdr_copy_to_mapping(mh, ptr, in.data(), 8192));
            EXPECT_EQ(in, get(dev, 8192));

            in = pattern(8192, 2);
            put(dev, in);
            ASSERT_EQ(0, gdr_copy_from_mapping(mh, out.data(), ptr, 8192));
            EXPECT_EQ(in, out);

            ((volatile uint32_t*)ptr)[3] = 7; /* without a function */
            EXPECT_EQ(7u, get(dev, 16)[3]);

            ASSERT_EQ(0, gdr_unmap(g, mh, ptr - dev % PAGE, dev % PAGE + 8192));
            EXPECT_TRUE(faults(ptr));
            ASSERT_EQ(0, gdr_unpin_buffer(g, mh));
        }
        EXPECT_EQ(0, gdr_close(g));
    });
}

TEST_F(gdrapi, wrong_arguments_are_refused)
{
    run(1, [](int) {
        gdr_t g     = gdr_open();
        gdr_mh_t mh = {}, none = {};
        void *va    = nullptr, *host = malloc(4096);
        char byte   = 0;

        /* before the driver is up no address is a GPU's */
        EXPECT_EQ(EINVAL, gdr_pin_buffer(g, 0x110000000000ul, 1, 0, 0, &mh));

        use(0);
        CUdeviceptr dev = alloc(2 * MiB), gone = alloc(2 * MiB), managed;
        CU_OK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
        CU_OK(cuMemFree(gone));
        for (unsigned long addr : {(unsigned long)(uintptr_t)host,
                                   (unsigned long)(uintptr_t)pinned(4096),
                                   (unsigned long)gone, (unsigned long)managed,
                                   0ul}) {
            EXPECT_EQ(EINVAL, gdr_pin_buffer(g, addr, 4096, 0, 0, &mh));
        }
        EXPECT_EQ(EINVAL, gdr_pin_buffer(g, dev, 0, 0, 0, &mh));
        EXPECT_EQ(EINVAL, gdr_pin_buffer(g, dev, 2 * MiB + 1, 0, 0, &mh));
        EXPECT_EQ(EINVAL, gdr_pin_buffer(g, dev, 8, 1, 0, &mh));
        EXPECT_EQ(EINVAL, gdr_unpin_buffer(g, none));

        ASSERT_EQ(0, gdr_pin_buffer(g, dev, 8, 0, 0, &mh));
        EXPECT_EQ(EINVAL, gdr_copy_to_mapping(mh, &byte, &byte, 1));
        EXPECT_EQ(EINVAL, gdr_unmap(g, mh, &byte, 8));
        EXPECT_EQ(EINVAL, gdr_map(g, mh, &va, 0));
        EXPECT_EQ(EINVAL, gdr_map(g, mh, &va, PAGE + 1));
        ASSERT_EQ(0, gdr_map(g, mh, &va, PAGE));
        EXPECT_EQ(EAGAIN, gdr_map(g, mh, &va, PAGE));
        EXPECT_EQ(0, gdr_unmap(g, mh, va, PAGE));
        EXPECT_EQ(EINVAL, gdr_unmap(g, mh, va, PAGE));
        EXPECT_EQ(0, gdr_unpin_buffer(g, mh));
        EXPECT_EQ(EINVAL, gdr_unpin_buffer(g, mh));

        EXPECT_EQ(0, cuemu_fault("gdr_pin_buffer:1:12"));
        EXPECT_EQ(ENOMEM, gdr_pin_buffer(g, dev, 8, 0, 0, &mh));
        EXPECT_EQ(0, gdr_close(g));
        free(host);
    });
}

TEST_F(gdrapi, freed_memory_stays_until_it_is_unpinned)
{
    run(1, [this](int) {
        size_t before, after, total;
        uint32_t word = 5;
        gdr_mh_t mh;
        char *ptr;

        use(0);
        CU_OK(cuMemGetInfo(&before, &total));
        CUdeviceptr dev = alloc(2 * MiB);
        gdr_t g         = gdr_open();
        map(g, dev, 4096, &mh, &ptr);
        CU_OK(cuMemFree(dev));

        /* the bytes belong to nobody else */
        CUdeviceptr next = alloc(2 * MiB);
        CU_OK(cuMemsetD8(next, 0xff, 2 * MiB));
        CU_OK(cuCtxSynchronize());
        EXPECT_EQ(0, gdr_copy_to_mapping(mh, ptr, &word, 4));
        word = 0;
        EXPECT_EQ(0, gdr_copy_from_mapping(mh, &word, ptr, 4));
        EXPECT_EQ(5u, word);
        EXPECT_EQ(0xffffffffu, get(next, 4)[0]);
        CU_OK(cuMemFree(next));
        CU_OK(cuMemGetInfo(&after, &total));
        EXPECT_EQ(before - 2 * MiB, after);

        EXPECT_EQ(0, gdr_close(g)); /* unpins */
        EXPECT_TRUE(faults(ptr));
        CU_OK(cuMemGetInfo(&after, &total));
        EXPECT_EQ(before, after);
    });
}

TEST_F(gdrapi, copies_take_the_published_time)
{
    /* gdrcopy_copylat in the README of GDRCopy 2.6, us */
    static const struct {
        bool   write;
        size_t size;
        double us;
    } published[] = {{true, 8, 0.0884},    {true, 1024, 0.1825},
                     {true, 8192, 0.8141},
                     {false, 1024, 2.802}, {false, 8192, 14.921},
                     {false, 65536, 114.1}};

    run(1, [this](int) {
        use(0);
        CUdeviceptr dev = alloc(2 * MiB);
        CUstream s      = stream();
        std::vector<char> host(2 * MiB);
        gdr_t g = gdr_open();
        gdr_mh_t mh;
        char *ptr;

        map(g, dev, 2 * MiB, &mh, &ptr);
        for (const auto &row : published) {
            CUevent begin = event(), end = event();
            double best = 1e9;

            for (int i = 0; i < 20; ++i) {
                float ms;
                CU_OK(cuEventRecord(begin, s));
                for (int j = 0; j < 10; ++j) {
                    row.write ? gdr_copy_to_mapping(mh, ptr, &host[0], row.size)
                              : gdr_copy_from_mapping(mh, &host[0], ptr,
                                                      row.size);
                }
                CU_OK(cuEventRecord(end, s));
                CU_OK(cuEventSynchronize(end));
                CU_OK(cuEventElapsedTime(&ms, begin, end));
                best = std::min(best, ms * 100.0);
            }
            /* an event's record takes time, too, and the loop */
            EXPECT_GT(best, row.us * 0.9) << row.size;
            EXPECT_LT(best, row.us * 1.1 + 0.3) << row.size;
        }
        EXPECT_EQ(0, gdr_close(g));
    });
}
