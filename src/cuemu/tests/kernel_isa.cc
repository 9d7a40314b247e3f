/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Single instructions that other compilers emit. Expected results are computed
 * here as "Parallel Thread Execution ISA" defines them.
 */
#include "kernel_fixture.h"

#include <array>
#include <cfenv>
#include <cmath>

class kernel_isa : public kernel {
protected:
    kernel_isa() : kernel("hgx-h200", "")
    {
    }

    /* Wrap a body into a module of one kernel "k" with a parameter "out". %out
       is the global address of this thread's 4 bytes; %t is its number in the
       block. */
    static std::string module(const std::string &body,
                              const std::string &before = "")
    {
        return ".version 8.0\n.target sm_90\n.address_size 64\n" + before +
               ".visible .entry k(.param .u64 out)\n{\n"
               ".reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<16>, %t;\n"
               ".reg .f32 %f<8>; .reg .b64 %rd<8>, %out;\n"
               "mov.u32 %t, %tid.x; ld.param.u64 %rd1, [out];\n"
               "cvta.to.global.u64 %rd1, %rd1; mul.wide.u32 %rd2, %t, 4;\n"
               "add.s64 %out, %rd1, %rd2;\n" + body + "\nret;\n}\n";
    }

    /* Return the bits of a normal number with `digits` binary digits behind the
       point, rounded in a mode of fesetround(). */
    static uint32_t shortened(double value, int digits, int least, int mode,
                              int bias)
    {
        int exponent, sign = std::signbit(value) ? -1 : 1;
        double whole;

        std::frexp(value, &exponent);
        exponent = std::max(exponent - 1, least);
        whole    = std::ldexp(value, digits - exponent);
        switch (mode) {
        case FE_TONEAREST:
            whole = std::nearbyint(whole);
            break;
        case FE_TOWARDZERO:
            whole = std::trunc(whole);
            break;
        case FE_DOWNWARD:
            whole = std::floor(whole);
            break;
        default:
            whole = std::ceil(whole);
            break;
        }
        return ((sign < 0) ? (1u << 15) : 0u) +
               ((uint32_t)(exponent + bias - 1) << digits) +
               (uint32_t)(sign * whole);
    }

    void load_text(const std::string &text)
    {
        use(0);
        ASSERT_EQ(CUDA_SUCCESS, cuModuleLoadData(&m_module, text.c_str()));
    }

    /* Return the result of each of `threads` threads. */
    std::vector<uint32_t> results(const std::string &text, unsigned threads)
    {
        std::vector<uint32_t> out(threads);

        load_text(text);
        CUdeviceptr ptr = upload(out);
        launch("k", 1, threads, 0, ptr);
        download(out, ptr);
        return out;
    }

    /* Compare the result of each thread with expected(its number). */
    template<typename F>
    void expect(const std::string &text, unsigned threads, F expected)
    {
        const std::vector<uint32_t> out = results(text, threads);

        for (uint32_t i = 0; i < out.size(); ++i) {
            EXPECT_EQ(expected(i), out[i]) << i;
        }
    }
};

/* f(x) = g(x) + 1; g(x) = x * x for odd x, 7 for even x, with early returns */
static const char functions[] =
        ".func (.param .b32 g_ret) g(.param .b32 g_x);\n"
        ".func (.param .b32 f_ret) f(.param .b32 f_x)\n{\n"
        ".reg .b32 %r<4>;\nld.param.u32 %r1, [f_x];\n"
        "{ .param .b32 a; .param .b32 r; st.param.b32 [a], %r1;\n"
        "call.uni (r), g, (a); ld.param.b32 %r2, [r]; }\n"
        "add.u32 %r2, %r2, 1; st.param.b32 [f_ret], %r2; ret;\n}\n"
        ".func (.param .b32 g_ret) g(.param .b32 g_x)\n{\n"
        ".reg .b32 %r<4>; .reg .pred %p<2>;\nld.param.u32 %r1, [g_x];\n"
        "and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 1; @%p1 bra $ODD;\n"
        "mov.u32 %r3, 7; st.param.b32 [g_ret], %r3; ret;\n"
        "$ODD: mul.lo.u32 %r3, %r1, %r1; st.param.b32 [g_ret], %r3; ret;\n}\n";

TEST_F(kernel_isa, functions_are_called)
{
    run(1, [&](int) {
        auto g = [](uint32_t x) { return (x & 1) ? (x * x) : 7; };
        expect(
                module("mov.u32 %r5, 0; setp.lt.u32 %p1, %t, 60;\n"
                       "{ .param .b32 a; .param .b32 r;\n"
                       "st.param.b32 [a], %t; st.param.b32 [r], %r5;\n"
                       "@%p1 call (r), f, (a); ld.param.b32 %r1, [r]; }\n"
                       "{ .param .b32 a; .param .b32 r;\n"
                       "st.param.b32 [a+0], %r1; call (r), f, (a);\n"
                       "ld.param.b32 %r2, [r+0]; }\n"
                       "st.global.u32 [%out], %r2;", functions), 100,
                [&](uint32_t i) {
            uint32_t once = (i < 60) ? (g(i) + 1) : 0;

            return (uint32_t)(g(once) + 1);
        });
    });
}

/* Debug builds of templates nest many calls */
TEST_F(kernel_isa, many_nested_calls)
{
    run(1, [&](int) {
        std::string text = ".func f0(.param .b64 p)\n{\n.reg .b64 %rd<2>;\n"
                           ".reg .b32 %r<2>;\nld.param.u64 %rd1, [p];\n"
                           "mov.u32 %r1, 77; st.global.u32 [%rd1], %r1;\n}\n";

        for (int i = 1; i < 50; ++i) {
            text += ".func f" + std::to_string(i) +
                    "(.param .b64 p)\n{\n.reg .b64 %rd<2>;\n"
                    "ld.param.u64 %rd1, [p]; { .param .b64 q;\n"
                    "st.param.b64 [q], %rd1; call f" + std::to_string(i - 1) +
                    ", (q); }\n}\n";
        }
        expect(
                module("{ .param .b64 q; st.param.b64 [q], %out;\n"
                       "call f49, (q); }", text), 64,
                [&](uint32_t) { return 77u; });
    });
}

/* Shared memory that the system reserves: cooperative_groups keeps 288 bytes of
   a block's tiles in it */
TEST_F(kernel_isa, reserved_shared_memory)
{
    run(1, [&](int) {
        expect(
                module("mov.u32 %r1, %reserved_smem_offset_1;\n"
                       "mad.lo.u32 %r1, %t, 4, %r1; mov.u32 %r2, own;\n"
                       "mad.lo.u32 %r2, %t, 4, %r2; st.shared.u32 [%r2], 7;\n"
                       "ld.shared.u32 %r3, [%r1]; add.u32 %r3, %r3, %t;\n"
                       "st.shared.u32 [%r1], %r3; ld.shared.u32 %r4, [%r1];\n"
                       "ld.shared.u32 %r5, [%r2]; add.u32 %r4, %r4, %r5;\n"
                       "cvt.u64.u32 %rd3, %r1; cvta.shared.u64 %rd3, %rd3;\n"
                       "isspacep.shared::cluster %p1, %rd3;\n"
                       "@!%p1 mov.u32 %r4, 0;\n"
                       "st.global.u32 [%out], %r4;",
                       ".shared .align 4 .b8 own[288];\n"), 72,
                [&](uint32_t i) { return i + 7; });
    });
}

/* A warp waits for a later one of its block, without a barrier */
TEST_F(kernel_isa, warps_wait_for_later_ones)
{
    run(1, [&](int) {
        for (const char *load : {"ld.acquire.cta.shared.u32",
                                 "ld.volatile.shared.u32"}) {
            expect(
                    module("mov.u32 %r1, own; setp.ne.u32 %p1, %t, 0;\n"
                           "setp.eq.u32 %p2, %t, 255; @!%p2 bra $WAIT;\n"
                           "st.volatile.shared.u32 [%r1], 8;\n"
                           "$WAIT: mov.u32 %r2, 8; @%p1 bra $OUT;\n"
                           "$AGAIN: " + std::string(load) + " %r2, [%r1];\n"
                           "setp.eq.u32 %p3, %r2, 0; @%p3 bra $AGAIN;\n"
                           "$OUT: st.global.u32 [%out], %r2;",
                           ".shared .align 4 .b8 own[4];\n"), 256,
                    [&](uint32_t) { return 8u; });
        }
    });
}

TEST_F(kernel_isa, functions_that_cannot_be_called_are_named)
{
    run(1, [&](int) {
        use(0);
        expect_refused(CUDA_ERROR_NOT_SUPPORTED,
                       module("call.uni r;",
                              ".func r()\n{\ncall.uni r;\nret;\n}\n"),
                       "r is recursive");
        expect_refused(CUDA_ERROR_NOT_SUPPORTED,
                       module("call.uni cudaLaunchDevice;",
                              ".extern .func cudaLaunchDevice();\n"),
                       "cudaLaunchDevice");
    });
}

/* bar.red over all threads of a block, with divergent warps */
TEST_F(kernel_isa, barriers_that_reduce)
{
    run(1, [&](int) {
        std::vector<uint32_t> out = results(
                module("setp.lt.u32 %p1, %t, 130; setp.ge.u32 %p2, %t, 0;\n"
                       "bar.red.popc.u32 %r1, 0, %p1;\n"
                       "bar.red.and.pred %p3, 0, %p1;\n"
                       "bar.red.and.pred %p4, 0, !%p2;\n"
                       "barrier.cta.red.or.pred %p5, 0, %p1;\n"
                       "bar.red.and.pred %p6, 0, %p2;\n"
                       "selp.u32 %r2, 1000, 0, %p3; add.u32 %r1, %r1, %r2;\n"
                       "selp.u32 %r2, 2000, 0, %p4; add.u32 %r1, %r1, %r2;\n"
                       "selp.u32 %r2, 4000, 0, %p5; add.u32 %r1, %r1, %r2;\n"
                       "selp.u32 %r2, 8000, 0, %p6; add.u32 %r1, %r1, %r2;\n"
                       "st.global.u32 [%out], %r1;"), 200);
        EXPECT_EQ(std::vector<uint32_t>(200, 130 + 4000 + 8000), out);
    });
}

TEST_F(kernel_isa, pairs_of_sixteen_bits)
{
    run(1, [&](int) {
        const uint32_t b = 0x8001fffe;
        auto each = [&](uint32_t a, int (*f)(int, int), bool is_signed) {
            uint32_t both = 0;
            for (unsigned j = 0; j < 32; j += 16) {
                uint16_t x = (uint16_t)(a >> j), y = (uint16_t)(b >> j);

                both |= (uint32_t)(uint16_t)(
                        is_signed ? f((int16_t)x, (int16_t)y) : f(x, y)) << j;
            }
            return both;
        };
        auto least = [](int x, int y) { return std::min(x, y); };
        auto most  = [](int x, int y) { return std::max(x, y); };
        auto sum   = [](int x, int y) { return x + y; };
        expect(
                module("mul.lo.u32 %r1, %t, 0x10f001;\n"
                       "mov.u32 %r2, 0x8001fffe;\n"
                       "min.u16x2 %r3, %r1, %r2; min.s16x2 %r4, %r1, %r2;\n"
                       "max.u16x2 %r5, %r1, %r2; max.s16x2 %r6, %r1, %r2;\n"
                       "add.u16x2 %r7, %r1, %r2; xor.b32 %r3, %r3, %r4;\n"
                       "mad.lo.u32 %r3, %r5, 3, %r3;\n"
                       "mad.lo.u32 %r3, %r6, 5, %r3;\n"
                       "mad.lo.u32 %r3, %r7, 7, %r3;\n"
                       "st.global.u32 [%out], %r3;"), 128, [&](uint32_t i) {
            uint32_t a = i * 0x10f001;

            return (each(a, least, false) ^ each(a, least, true)) +
                      3 * each(a, most, false) + 5 * each(a, most, true) +
                      7 * each(a, sum, false);
        });
    });
}

/* set.f16.f16: 1.0 is 0x3c00; "num" is false if either operand is NaN */
TEST_F(kernel_isa, set_in_half_precision)
{
    run(1, [&](int) {
        expect(
                module("setp.eq.u32 %p1, %t, 3; mov.b16 %h1, 0x3c00;\n"
                       "selp.b16 %h1, 0x7e00, %h1, %p1; mov.b16 %h2, 0x4000;\n"
                       "set.nan.f16.f16 %h3, %h1, %h2;\n"
                       "set.lt.f16.f16 %h4, %h1, %h2;\n"
                       "mov.b32 %r1, {%h3, %h4};\n"
                       "st.global.u32 [%out], %r1;"), 5, [&](uint32_t i) {
            return (i == 3) ? 0x00003c00u : 0x3c000000u;
        });
    });
}

/* Results in the rounding modes of an instruction: the host's own */
TEST_F(kernel_isa, directed_rounding)
{
    static const struct {
        const char *name;
        int         mode;
    } modes[] = {{"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO},
                 {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};

    run(1, [&](int) {
        for (auto &mode : modes) {
            std::string text = module(
                    "sub.u32 %r1, %t, 50; mad.lo.u32 %r2, %r1, 0x3000301, 77;\n"
                    "cvt.R.f32.s32 %f1, %r2; mov.f32 %f2, 0f40490fdb;\n"
                    "add.R.f32 %f3, %f1, %f2; mul.R.f32 %f4, %f3, %f2;\n"
                    "fma.R.f32 %f4, %f4, %f2, %f1; div.R.f32 %f5, %f4, %f2;\n"
                    "mul.f32 %f6, %f5, %f5; sqrt.R.f32 %f6, %f6;\n"
                    "rcp.R.f32 %f7, %f6; sub.R.f32 %f7, %f7, %f1;\n"
                    "mul.f32 %f5, %f1, 0f33000000; cvt.R.f16.f32 %h1, %f5;\n"
                    "cvt.R.bf16.f32 %h2, %f1; mov.b32 %r3, {%h1, %h2};\n"
                    "mov.b32 %r4, %f7; xor.b32 %r3, %r3, %r4;\n"
                    "st.global.u32 [%out], %r3;");
            for (size_t at; (at = text.find(".R.")) != std::string::npos;) {
                text.replace(at, 3, "." + std::string(mode.name) + ".");
            }
            std::vector<uint32_t> out = results(text, 100);
            for (uint32_t i = 0; i < out.size(); ++i) {
                /* each operation is done at run time, in this mode */
                volatile float x, y = 3.14159274f, z, w;
                volatile int32_t from = (int32_t)((i - 50) * 0x3000301 + 77);
                uint32_t bits;

                fesetround(mode.mode);
                x = (float)from;
                z = x + y;
                z = z * y;
                z = fmaf(z, y, x);
                z = z / y;
                fesetround(FE_TONEAREST);
                w = z * z;
                fesetround(mode.mode);
                w = sqrtf(w);
                w = 1.0f / w;
                w = w - x;
                fesetround(FE_TONEAREST);
                memcpy(&bits, (const void*)&w, sizeof(bits));
                w     = x * 2.98023224e-8f;
                bits ^= shortened((double)w, 10, -14, mode.mode, 15) |
                        (shortened((double)x, 7, -126, mode.mode, 127) << 16);
                EXPECT_EQ(bits, out[i]) << mode.name << " " << i;
            }
        }
    });
}

TEST_F(kernel_isa, the_programs_rounding_and_exceptions_are_not_the_gpus)
{
    run(1, [&](int) {
        fesetround(FE_UPWARD);
        feclearexcept(FE_ALL_EXCEPT);
        const std::vector<uint32_t> out = results(module(
                "add.f32 %f1, 0f3f800000, 0f00800000;\n" /* 1 + 2^-126 */
                "div.rn.f32 %f2, 0f3f800000, 0f00000000;\n"
                "setp.eq.u32 %p1, %t, 0; selp.f32 %f3, %f1, %f2, %p1;\n"
                "st.global.f32 [%out], %f3;"), 2);
        EXPECT_EQ(0x3f800000u, out[0]);
        EXPECT_EQ(0x7f800000u, out[1]);
        EXPECT_EQ(0, fetestexcept(FE_DIVBYZERO));
        EXPECT_EQ(FE_UPWARD, fegetround());
    });
}

TEST_F(kernel_isa, parts_of_words)
{
    run(1, [&](int) {
        expect(
                module("mul.lo.u32 %r1, %t, 0x7f35a1c3; not.b32 %r2, %r1;\n"
                       "add.u32 %r2, %r2, 0x1234567;\n"
                       "sad.s32 %r3, %r1, %r2, 5; sad.u32 %r4, %r1, %r2, 7;\n"
                       "xor.b32 %r3, %r3, %r4;\n"
                       "dp2a.lo.s32.u32 %r3, %r1, %r2, %r3;\n"
                       "dp2a.hi.u32.s32 %r3, %r1, %r2, %r3;\n"
                       "vabsdiff4.u32.u32.u32.add %r3, %r1, %r2, %r3;\n"
                       "vabsdiff4.u32.s32.s32 %r4, %r1, %r2, %r3;\n"
                       "xor.b32 %r3, %r3, %r4; st.global.u32 [%out], %r3;"),
                100, [&](uint32_t i) {
            uint32_t a = i * 0x7f35a1c3, b = ~a + 0x1234567, all = 0;
            int64_t x = (int32_t)a, y = (int32_t)b;
            uint32_t d = (uint32_t)std::abs(x - y) + 5;

            d ^= ((a > b) ? (a - b) : (b - a)) + 7;
            for (int j = 0; j < 2; ++j) {
                d += (uint32_t)((int16_t)(a >> (16 * j)) *
                                (int)(uint8_t)(b >> (8 * j)));
                d += (uint32_t)((int)(uint16_t)(a >> (16 * j)) *
                                (int8_t)(b >> (16 + 8 * j)));
            }
            for (int j = 0; j < 32; j += 8) {
                d   += (uint32_t)std::abs((uint8_t)(a >> j) -
                                          (uint8_t)(b >> j));
                all |= (uint32_t)(uint8_t)std::abs((int8_t)(a >> j) -
                                                   (int8_t)(b >> j)) << j;
            }
            return d ^ all;
        });
    });
}

/* addc after sub.cc: a subtraction without borrow sets the carry */
TEST_F(kernel_isa, carry_of_a_subtraction)
{
    run(1, [&](int) {
        expect(
                module("sub.cc.u32 %r1, %t, 20; subc.cc.u32 %r2, 7, 7;\n"
                       "addc.u32 %r3, 0, 0; add.cc.u32 %r4, %t, -20;\n"
                       "subc.u32 %r5, 100, 50; mad.lo.u32 %r3, %r5, 10, %r3;\n"
                       "add.u32 %r3, %r3, %r2; st.global.u32 [%out], %r3;"),
                64, [&](uint32_t i) {
            uint32_t borrow = i < 20;

            return (50 - borrow) * 10 + !borrow - borrow;
        });
    });
}

/* Threads at one instruction that name different members of their warp */
TEST_F(kernel_isa, members_of_half_a_warp)
{
    run(1, [&](int) {
        expect(
                module("and.b32 %r1, %t, 16; mov.u32 %r2, 0xffff;\n"
                       "shl.b32 %r2, %r2, %r1;\n"
                       "redux.sync.add.u32 %r3, %t, %r2;\n"
                       "setp.lt.u32 %p1, %t, 20;\n"
                       "vote.sync.ballot.b32 %r4, %p1, %r2;\n"
                       "vote.sync.all.pred %p2, %p1, %r2;\n"
                       "and.b32 %r5, %t, 7; match.any.sync.b32 %r6, %r5, %r2;\n"
                       "xor.b32 %r4, %r4, %r6; mad.lo.u32 %r3, %r3, 17, %r4;\n"
                       "selp.u32 %r4, 1, 0, %p2; add.u32 %r3, %r3, %r4;\n"
                       "st.global.u32 [%out], %r3;"), 64, [&](uint32_t i) {
            uint32_t first = i & ~15u, sum = 16 * first + 120, same, ballot;

            same   = 0x101u << ((i & 7) + (first & 16));
            ballot = (first == 0) ? 0xffff : (first == 16) ? 0xf0000 : 0;
            return sum * 17 + (ballot ^ same) + (first == 0);
        });
    });
}

/* The member of a warp that acts for all: the lowest of those that take part.
   Its number may be left out. */
TEST_F(kernel_isa, members_elect_a_leader)
{
    run(1, [&](int) {
        expect(
                module("mov.u32 %r1, %laneid; setp.ge.u32 %p1, %r1, 5;\n"
                       "mov.u32 %r2, 0; mov.u32 %r3, 99; @!%p1 bra $OUT;\n"
                       "elect.sync %r3|%p2, 0xffffffe0;\n"
                       "elect.sync _|%p3, 0xffffffe0;\n"
                       "selp.u32 %r2, 100, 0, %p2; @%p3 add.u32 %r2, %r2, 7;\n"
                       "$OUT: mad.lo.u32 %r3, %r3, 1000, %r2;\n"
                       "st.global.u32 [%out], %r3;"), 64, [&](uint32_t i) {
            return ((i & 31) < 5) ? 99000u :
                   (uint32_t)(5000 + (((i & 31) == 5) ? 107 : 0));
        });
    });
}

/* Set bits counted from a place, up and down (cooperative_groups) */
TEST_F(kernel_isa, the_nth_set_bit)
{
    run(1, [&](int) {
        const uint32_t mask = 0x80f00a01;

        expect(
                module("and.b32 %r1, %t, 31; shr.u32 %r2, %t, 5;\n"
                       "sub.s32 %r2, %r2, 2; mov.u32 %r3, 0x80f00a01;\n"
                       "fns.b32 %r4, %r3, %r1, %r2;\n"
                       "st.global.u32 [%out], %r4;"), 160, [&](uint32_t i) {
            const int offset = (int)(i / 32) - 2;
            int left         = abs(offset);

            if (offset == 0) {
                return ((mask >> (i % 32)) & 1) ? (i % 32) : UINT32_MAX;
            }
            for (int at = (int)(i % 32); (at >= 0) && (at < 32);
                 at += (offset > 0) ? 1 : -1) {
                if (((mask >> at) & 1) && (--left == 0)) {
                    return (uint32_t)at;
                }
            }
            return UINT32_MAX;
        });
    });
}

/* PTX ISA, cvt: 0 if neither the source is .f64 nor the result has 64 bits */
TEST_F(kernel_isa, integers_for_no_number)
{
    run(1, [&](int) {
        const std::vector<uint32_t> want = {0, 0x80000000, 0x80000000, 0x8000,
                                            0x80000000};

        expect(
                module("cvt.rzi.s32.f32 %r0, 0f7FC00000;\n"
                       "cvt.rni.s32.f64 %r1, 0d7FF8000000000000;\n"
                       "cvt.rzi.u32.f64 %r2, 0d7FF8000000000000;\n"
                       "cvt.rzi.u16.f64 %h0, 0d7FF8000000000000;\n"
                       "cvt.u32.u16 %r3, %h0;\n"
                       "cvt.rzi.s64.f32 %rd3, 0f7FC00000;\n"
                       "shr.u64 %rd3, %rd3, 32; cvt.u32.u64 %r4, %rd3;\n"
                       "mov.u32 %r5, %r0; setp.eq.u32 %p1, %t, 1;\n"
                       "@%p1 mov.u32 %r5, %r1; setp.eq.u32 %p1, %t, 2;\n"
                       "@%p1 mov.u32 %r5, %r2; setp.eq.u32 %p1, %t, 3;\n"
                       "@%p1 mov.u32 %r5, %r3; setp.eq.u32 %p1, %t, 4;\n"
                       "@%p1 mov.u32 %r5, %r4; st.global.u32 [%out], %r5;"), 5,
                [&](uint32_t i) { return want[i]; });
    });
}

/* The first pass over a single block, which makes no store, must end */
TEST_F(kernel_isa, a_block_waits_for_its_own_store)
{
    run(1, [&](int) {
        expect(
                module("mov.u64 %rd3, flag; setp.eq.u32 %p1, %t, 0;\n"
                       "@%p1 bra $SET;\n"
                       "$WAIT: atom.global.add.u32 %r1, [%rd3], 0;\n"
                       "setp.eq.u32 %p2, %r1, 0; @%p2 bra $WAIT;\n"
                       "bra $END;\n$SET: atom.global.exch.b32 %r1, [%rd3], 5;\n"
                       "$END: ld.global.u32 %r2, [%rd3];\n"
                       "st.global.u32 [%out], %r2;",
                       ".global .u32 flag;\n"), 32,
                [](uint32_t) { return 5u; });
    });
}

TEST_F(kernel_isa, clocks_advance)
{
    run(1, [&](int) {
        expect(
                module("mov.u64 %rd3, %clock64; add.u32 %r1, %t, 1;\n"
                       "mov.u64 %rd4, %clock64; nanosleep.u32 5000;\n"
                       "mov.u64 %rd5, %globaltimer; sub.u64 %rd5, %rd5, %rd4;\n"
                       "setp.gt.u64 %p1, %rd4, %rd3;\n"
                       "setp.ge.and.u64 %p1, %rd5, 5000, %p1;\n"
                       "selp.u32 %r1, 1, 0, %p1; st.global.u32 [%out], %r1;"),
                32, [](uint32_t) { return 1u; });
    });
}

/* A thread issues no more than one instruction per clock */
TEST_F(kernel_isa, a_thread_that_counts_clocks_takes_its_time)
{
    run(1, [&](int) {
        CUevent begin, end;
        float ms;

        use(0);
        load_text(module("mov.u64 %rd3, %clock64;\n"
                         "$AGAIN: mov.u64 %rd4, %clock64;\n"
                         "sub.u64 %rd4, %rd4, %rd3;\n"
                         "setp.lt.u64 %p1, %rd4, 1000000; @%p1 bra $AGAIN;"));
        CU_OK(cuEventCreate(&begin, 0));
        CU_OK(cuEventCreate(&end, 0));
        CU_OK(cuEventRecord(begin, nullptr));
        CU_OK(try_launch(function("k"), 1, 1, 0, nullptr, (CUdeviceptr)0));
        CU_OK(cuEventRecord(end, nullptr));
        CU_OK(cuEventSynchronize(end));
        CU_OK(cuEventElapsedTime(&ms, begin, end));
        EXPECT_LT(0.5, ms); /* 1e6 clocks at 1.4 GHz: 0.71 ms */
        EXPECT_GT(1.0, ms);
    });
}

/* Masks of bits, as the manual's pseudo code makes them */
TEST_F(kernel_isa, bit_masks)
{
    run(1, [&](int) {
        expect(
                module("and.b32 %r1, %t, 63; shr.u32 %r2, %t, 4;\n"
                       "mul.lo.u32 %r2, %r2, 3; bmsk.clamp.b32 %r3, %r1, %r2;\n"
                       "bmsk.wrap.b32 %r4, %r1, %r2; mul.lo.u32 %r3, %r3, 3;\n"
                       "xor.b32 %r3, %r3, %r4; st.global.u32 [%out], %r3;"),
                1024, [&](uint32_t i) {
            uint32_t from = i & 63, width = (i >> 4) * 3, clamp = 0, wrap = 0;

            for (uint32_t bit = 0; bit < 32; ++bit) {
                clamp |= (uint32_t)((bit >= from) && (bit < from + width))
                         << bit;
                wrap  |= (uint32_t)((bit >= from % 32) &&
                                    ((bit < from % 32 + width % 32)))
                         << bit;
            }
            return (clamp * 3) ^ wrap;
        });
    });
}

/* Blocks of a cooperative launch wait for each other, as this_grid().sync() of
   cooperative groups does: each block reads the next one's word between two
   barriers. */
TEST_F(kernel_isa, blocks_that_wait_for_each_other)
{
    const std::string sync =
            "bar.sync 0; @%p1 bra $W#; atom.add.release.gpu.u32 %r5, [%rd4], "
            "%r4;\n$L#: ld.acquire.gpu.u32 %r6, [%rd4];\n"
            "xor.b32 %r6, %r6, %r5; setp.gt.s32 %p2, %r6, -1;\n"
            "@%p2 bra $L#;\n$W#: bar.sync 0;\n";
    std::string body =
            "mov.u32 %r1, %envreg1; mov.u32 %r2, %envreg2;\n"
            "mov.b64 %rd3, {%r2, %r1}; add.s64 %rd4, %rd3, 4;\n"
            "mov.u32 %r3, %ctaid.x; mov.u32 %r7, %nctaid.x;\n"
            "setp.ne.u32 %p1, %t, 0; sub.u32 %r4, 0x80000001, %r7;\n"
            "setp.eq.u32 %p3, %r3, 0; selp.b32 %r4, %r4, 1, %p3;\n"
            "mul.wide.u32 %rd5, %r3, 4; add.s64 %out, %rd1, %rd5;\n"
            "add.u32 %r8, %r3, 1; rem.u32 %r8, %r8, %r7;\n"
            "mul.wide.u32 %rd5, %r8, 4; add.s64 %rd6, %rd1, %rd5;\n"
            "mov.u32 %r9, 0;\n$AGAIN: ld.global.u32 %r10, [%rd6];\n" +
            sync + "st.global.u32 [%out], %r10;\n" + sync +
            "add.u32 %r9, %r9, 1; setp.lt.u32 %p4, %r9, 3; @%p4 bra $AGAIN;";
    unsigned number = 0;

    for (size_t at; (at = body.find('#')) != std::string::npos;) {
        body.replace(at, 1, std::to_string(number++ / 4));
    }
    run(1, [&](int) {
        std::vector<uint32_t> out(20);
        int can = 0;

        for (uint32_t i = 0; i < out.size(); ++i) {
            out[i] = 100 + i;
        }
        load_text(module(body));
        CU_OK(cuDeviceGetAttribute(
                &can, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 0));
        EXPECT_EQ(1, can);
        CUdeviceptr ptr = upload(out);
        void *params[]  = {&ptr};
        CU_OK(cuLaunchCooperativeKernel(function("k"), 20, 1, 1, 96, 1, 1, 0,
                                        nullptr, params));
        download(out, ptr);
        for (uint32_t i = 0; i < out.size(); ++i) {
            EXPECT_EQ(100 + (i + 3) % 20, out[i]) << i;
        }
        EXPECT_EQ(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
                  cuLaunchCooperativeKernel(function("k"), 132 * 2 + 1, 1, 1,
                                            1024, 1, 1, 0, nullptr, params));
    });
}

/* A managed variable has one address on all GPUs, and the host uses it, too. It
   may begin with an address, and is freed with the library */
TEST_F(kernel_isa, managed_variables)
{
    run(1, [&](int) {
        const std::string text = module(
                "mov.u64 %rd3, m; atom.global.add.u32 %r1, [%rd3], 2;\n"
                "st.global.u32 [%out], %r1;",
                ".visible .global .attribute(.managed) .align 4 .u32 m = 30;\n"
                ".visible .global .attribute(.managed) .align 8 .u64 p = m;\n"
                ".visible .global .u32 other = 7;\n");
        std::vector<uint32_t> out(1);
        CUdeviceptr managed, again;
        CUlibrary library;
        CUkernel kernel;
        size_t size = 0;

        use(0);
        CU_OK(cuLibraryLoadData(&library, text.c_str(), nullptr, nullptr, 0,
                                nullptr, nullptr, 0));
        CU_OK(cuLibraryGetManaged(&managed, &size, library, "m"));
        EXPECT_EQ(4u, size);
        *(volatile uint32_t*)managed += 10;
        CU_OK(cuLibraryGetManaged(&again, &size, library, "p"));
        EXPECT_EQ(managed, *(volatile uint64_t*)again);
        CU_OK(cuLibraryGetKernel(&kernel, library, "k"));
        for (int device : {0, 1}) {
            use(device);
            CU_OK(cuLibraryGetManaged(&again, &size, library, "m"));
            EXPECT_EQ(managed, again);
            CUdeviceptr ptr = upload(out);
            EXPECT_EQ(CUDA_SUCCESS,
                      try_launch((CUfunction)kernel, 1, 1, 0, nullptr, ptr));
            download(out, ptr);
            EXPECT_EQ(40u + 2 * device, out[0]);
        }
        CU_OK(cuCtxSynchronize());
        EXPECT_EQ(44u, *(volatile uint32_t*)managed);
        CU_OK(cuLibraryUnload(library));
        EXPECT_EQ(CUDA_ERROR_NOT_FOUND,
                  cuMemGetAddressRange(&again, &size, managed));
    });
}

/* Barriers in shared memory, of more threads than run in step: by state, by
   parity, and for a copy of 64 bytes that comes from memory */
TEST_F(kernel_isa, barriers_in_shared_memory)
{
    run(1, [&](int) {
        expect(
                module("mov.u32 %r1, b; mov.u32 %r2, buffer;\n"
                       "setp.ne.u32 %p1, %t, 0; @%p1 bra $GO;\n"
                       "mbarrier.init.shared.b64 [%r1], 200;\n"
                       "$GO: bar.sync 0; mad.lo.u32 %r3, %t, 4, %r2;\n"
                       "mul.lo.u32 %r4, %t, 3; st.shared.u32 [%r3], %r4;\n"
                       "mbarrier.arrive.shared.b64 %rd3, [%r1];\n"
                       "$W1: mbarrier.try_wait.shared.b64 %p2, [%r1], %rd3;\n"
                       "@!%p2 bra $W1; add.u32 %r5, %t, 1;\n"
                       "rem.u32 %r5, %r5, 200; mad.lo.u32 %r5, %r5, 4, %r2;\n"
                       "ld.shared.u32 %r6, [%r5];\n"
                       "mbarrier.arrive.release.cta.shared::cta.b64 _, [%r1];\n"
                       "$W2: mbarrier.test_wait.parity.shared.b64 %p3, [%r1],"
                       " 1;\n@!%p3 bra $W2; mov.u64 %rd4, numbers;\n"
                       "@%p1 bra $ARRIVE; mov.u32 %r7, 64;\n"
                       "mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 64;\n"
                       "cp.async.bulk.shared::cluster.global.mbarrier::"
                       "complete_tx::bytes [%r2], [%rd4], %r7, [%r1];\n"
                       "bra $W3;\n"
                       "$ARRIVE: mbarrier.arrive.shared.b64 _, [%r1];\n"
                       "$W3: mbarrier.try_wait.parity.shared.b64 %p4, [%r1], 0;"
                       "\n@!%p4 bra $W3; ld.shared.u32 %r8, [%r2+60];\n"
                       "mad.lo.u32 %r6, %r8, 10000, %r6;\n"
                       "st.global.u32 [%out], %r6;",
                       ".shared .align 8 .b64 b;\n"
                       ".shared .align 16 .b32 buffer[200];\n"
                       ".global .align 16 .u32 numbers[16] = {0, 0, 0, 0, 0, 0,"
                       " 0, 0, 0, 0, 0, 0, 0, 0, 0, 42};\n"), 200,
                [](uint32_t i) { return 42 * 10000 + (i + 1) % 200 * 3; });
    });
}

/* A phase ends with its arrivals and all its bytes, whatever comes last; later
   phases have fewer arrivals if a thread has dropped out */
TEST_F(kernel_isa, phases_end_with_arrivals_and_bytes)
{
    const std::string test = "mbarrier.test_wait.parity.shared.b64 %p1, [%r1], "
                             "%r2; selp.u32 %r4, 1, 0, %p1;\n"
                             "mad.lo.u32 %r3, %r3, 2, %r4;\n";
    const std::string copy = "cp.async.bulk.shared::cluster.global.mbarrier::"
                             "complete_tx::bytes [%r5], [%rd4], 16, [%r1];\n";
    const std::string drop = "mbarrier.arrive_drop.shared.b64 _, [%r1];\n";
    const std::string more = "mbarrier.arrive.shared.b64 _, [%r1];\n";

    run(1, [&](int) {
        expect(
                module("mov.u32 %r1, b; mov.u32 %r5, buffer;\n"
                       "mov.u64 %rd4, numbers; mov.u32 %r2, 0;\n"
                       "mov.u32 %r3, 0; mbarrier.init.shared.b64 [%r1], 2;\n"
                       "mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 32;\n" +
                       test + copy + test + drop + test + copy + test +
                       "mov.u32 %r2, 1;\n" + test +
                       "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], "
                       "16;\n" + copy + test + more + test +
                       "st.global.u32 [%out], %r3;",
                       ".shared .align 8 .b64 b;\n"
                       ".shared .align 16 .b32 buffer[4];\n"
                       ".global .align 16 .u32 numbers[4];\n"), 1,
                [](uint32_t) { return 0x9u; });
    });
}

/* One thread waits at a barrier in shared memory, the others of its warp for
   that thread: none goes on before another warp has arrived */
TEST_F(kernel_isa, a_warp_waits_for_its_waiting_thread)
{
    run(1, [&](int) {
        expect(
                module("mov.u32 %r1, b; mov.u32 %r4, 1;\n"
                       "setp.ne.u32 %p1, %t, 0; @%p1 bra $GO;\n"
                       "mbarrier.init.shared.b64 [%r1], 1;\n"
                       "$GO: bar.sync 0; setp.eq.u32 %p2, %t, 100;\n"
                       "@%p2 bra $LATE; @%p1 bra $ALL;\n"
                       "$WAIT: mbarrier.try_wait.parity.shared.b64 %p3, [%r1],"
                       " 0;\n@!%p3 bra $WAIT; ld.shared.u32 %r4, [%r1+8];\n"
                       "bra $ALL;\n$LATE: mov.u32 %r5, 0;\n"
                       "$MORE: add.u32 %r5, %r5, 1; setp.lt.u32 %p4, %r5, 3000;"
                       "\n@%p4 bra $MORE; mov.u32 %r6, 77;\n"
                       "st.shared.u32 [%r1+8], %r6;\n"
                       "mbarrier.arrive.shared.b64 _, [%r1];\n"
                       "$ALL: shfl.sync.idx.b32 %r7, %r4, 0, 31, -1;\n"
                       "st.global.u32 [%out], %r7;",
                       ".shared .align 8 .b64 b[2];\n"), 128,
                [](uint32_t i) { return (i < 32) ? 77u : 1u; });
    });
}

/* Linked texts: names that are not visible belong to one text, also beside
   visible ones of another, an external variable is another text's, and of two
   weak ones one remains */
TEST_F(kernel_isa, names_of_linked_texts)
{
    run(1, [&](int) {
        const std::string head = ".version 8.0\n.target sm_90\n"
                                 ".address_size 64\n";
        const std::string own  = ".weak .global .u32 both = 40;\n";
        const std::string f    = ".func (.param .b32 r) same()\n{\n"
                                 ".reg .b32 %r<4>; ld.global.u32 %r1, [mine];\n"
                                 "add.u32 %r1, %r1, N; st.param.b32 [r], %r1;\n"
                                 "ret;\n}\n";
        auto same = [&](const char *number, const char *value,
                        const char *visible = "") {
            std::string text = visible + f;

            text.replace(text.find('N'), 1, number);
            return own + visible + ".global .u32 mine = " + value + ";\n" +
                   text;
        };
        std::string a = module(
                "{ .param .b32 r; call.uni (r), same, (); "
                "ld.param.b32 %r1, [r]; }\n"
                "{ .param .b32 r; call.uni (r), other, (); "
                "ld.param.b32 %r2, [r]; }\n"
                "ld.global.u32 %r3, [far]; ld.global.u32 %r4, [both];\n"
                "add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3;\n"
                "ld.global.u32 %r5, [mine]; add.u32 %r4, %r4, %r5;\n"
                "add.u32 %r1, %r1, %r4; st.global.u32 [%out], %r1;",
                ".extern .global .u32 far;\n"
                ".extern .func (.param .b32 r) other();\n" +
                        same("1", "100"));
        std::string b = ".visible .global .u32 far = 7;\n"
                        ".visible .func (.param .b32 r) other()\n{\n"
                        ".reg .b32 %r<4>;\n"
                        "{ .param .b32 q; call.uni (q), same, (); "
                        "ld.param.b32 %r1, [q]; }\n"
                        "st.param.b32 [r], %r1; ret;\n}\n";
        std::string c    = head + same("2", "1000", ".visible ") + b;
        std::string none = head + ".extern .global .u32 missing;\n";
        std::string bad  = head + ".shared .u32 s;\n.global .u64 p = s;\n";
        CUlinkState link;
        size_t size;
        void *image;

        b = head + same("2", "1000") + b;
        use(0);
        for (auto texts : {std::array<std::string*, 2>{&a, &b}, {&a, &c},
                           {&c, &a}}) {
            CU_OK(cuLinkCreate(0, nullptr, nullptr, &link));
            for (std::string *text : texts) {
                CU_OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, &(*text)[0],
                                    text->size() + 1, "x", 0, nullptr,
                                    nullptr));
            }
            CU_OK(cuLinkComplete(link, &image, &size));
            CU_OK(cuModuleLoadData(&m_module, image));
            CU_OK(cuLinkDestroy(link));
            CUdeviceptr ptr = alloc(4);
            std::vector<uint32_t> out(1);
            launch("k", 1, 1, 0, ptr);
            download(out, ptr);
            EXPECT_EQ(101u + 1002 + 7 + 40 + 100, out[0]);
        }
        expect_refused(CUDA_ERROR_NOT_SUPPORTED, bad);
        expect_refused(CUDA_ERROR_INVALID_PTX,
                       module("call.uni f, ();",
                              ".func (.param .b32 r# f()\n{\nret;\n}\n"),
                       "function without a name");
        expect_refused(CUDA_ERROR_NOT_SUPPORTED, none,
                       "missing is a variable of another");
    });
}

/* const char *text = "hello", and a pointer into an array */
TEST_F(kernel_isa, variables_with_addresses)
{
    run(1, [&](int) {
        expect(
                module("mov.u64 %rd3, text; ld.global.u64 %rd4, [%rd3];\n"
                       "cvt.u64.u32 %rd5, %t; add.s64 %rd4, %rd4, %rd5;\n"
                       "ld.u8 %r1, [%rd4]; ld.global.u64 %rd6, [%rd3+8];\n"
                       "ld.global.u32 %r2, [%rd6]; add.u32 %r1, %r1, %r2;\n"
                       "st.global.u32 [%out], %r1;",
                       ".global .align 1 .b8 $str[6] = {104, 101, 108, 108, "
                       "111, 0};\n.global .u32 numbers[3] = {100, 200, 300};\n"
                       ".visible .global .align 8 .u64 text[2] = "
                      "{generic($str), numbers+8};\n"),
               5, [](uint32_t i) { return (uint32_t) "hello"[i] + 300; });
    });
}

/* Of a program's kernels only those are refused that cannot run */
TEST_F(kernel_isa, one_kernel_of_a_program_is_refused)
{
    run(1, [&](int) {
        const std::string text = module("st.global.u32 [%out], %t;",
                                        ".visible .entry bad()\n{\n"
                                        "bogus.u32 1;\n}\n");
        CUlibrary library;
        CUkernel kernel;
        unsigned count = 0;
        int grid, block;

        use(0);
        CU_OK(cuLibraryLoadData(&library, text.c_str(), nullptr, nullptr, 0,
                                nullptr, nullptr, 0));
        CU_OK(cuLibraryGetKernelCount(&count, library));
        EXPECT_EQ(2u, count);
        CU_OK(cuLibraryGetKernel(&kernel, library, "k"));
        CU_OK(cuOccupancyMaxPotentialBlockSize(
                &grid, &block, (CUfunction)kernel, nullptr, 200000, 0));
        EXPECT_EQ(132, grid); /* one block's shared memory fits */
        EXPECT_EQ(1024, block);
        /* of 228 KiB each block reserves one */
        for (int blocks : {1, 2}) {
            int found = 0;

            CU_OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(
                    &found, (CUfunction)kernel, 128,
                    228 * 1024 / 2 - 1024 * (blocks - 1) - 512));
            EXPECT_EQ(blocks, found);
        }
        CUdeviceptr ptr = alloc(4);
        EXPECT_EQ(CUDA_SUCCESS,
                  try_launch((CUfunction)kernel, 1, 1, 0, nullptr, ptr));
        CU_OK(cuLibraryGetKernel(&kernel, library, "bad"));
        EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED,
                  try_launch((CUfunction)kernel, 1, 1, 0, nullptr));
        CU_OK(cuLibraryUnload(library));
    });
}

/* Each size of memory, signed or not, in each larger register and back */
TEST_F(kernel_isa, loads_extend_and_stores_cut)
{
    static const struct {
        char     sign;
        unsigned bits, width, at;
    } loads[] = {
        {'s', 8, 16, 0}, {'u', 8, 16, 1}, {'s', 16, 16, 2}, {'s', 8, 32, 3},
        {'u', 8, 32, 4}, {'s', 16, 32, 6}, {'u', 16, 32, 2}, {'s', 32, 32, 4},
        {'s', 8, 64, 5}, {'u', 8, 64, 6}, {'s', 16, 64, 4}, {'u', 16, 64, 0},
        {'s', 32, 64, 0}, {'u', 32, 64, 4}, {'u', 64, 64, 0}
    };
    std::string body = "mul.lo.u32 %r1, %t, 0x7f35a1c3; not.b32 %r2, %r1;\n"
                       "mov.u64 %rd3, buffer; mul.wide.u32 %rd4, %t, 8;\n"
                       "add.s64 %rd3, %rd3, %rd4; mov.u32 %r9, 1;\n"
                       "st.shared.v2.u32 [%rd3], {%r1, %r2};\n";

    for (auto &load : loads) {
        body += "ld.shared." + std::string(1, load.sign) +
                std::to_string(load.bits) +
                ((load.width == 16) ? " %h1" : (load.width == 32) ? " %r3" :
                                                                    " %rd5") +
                ", [%rd3+" + std::to_string(load.at) + "];\n" +
                ((load.width == 16) ? "mov.b32 %r3, {%h1, %h1};\n" :
                 (load.width == 64) ? "mov.b64 {%r3, %r4}, %rd5;\n"
                                      "mad.lo.u32 %r3, %r4, 3, %r3;\n" : "") +
                "mad.lo.u32 %r9, %r9, 31, %r3;\n";
    }
    body += "st.shared.u8 [%rd3], %h1; st.shared.u8 [%rd3+1], %r9;\n"
            "st.shared.u16 [%rd3+2], %r9; ld.shared.u32 %r3, [%rd3];\n"
            "mad.lo.u32 %r9, %r9, 31, %r3; st.shared.u8 [%rd3], %rd5;\n"
            "st.shared.u16 [%rd3+2], %rd5; st.shared.u32 [%rd3+4], %rd5;\n"
            "ld.shared.v2.u32 {%r3, %r4}, [%rd3];\n"
            "mad.lo.u32 %r9, %r9, 31, %r3; mad.lo.u32 %r9, %r9, 31, %r4;\n"
            "st.global.u32 [%out], %r9;";

    run(1, [&](int) {
        expect(
                module(body, ".shared .align 8 .b8 buffer[512];\n"), 64,
                [&](uint32_t i) {
            uint32_t words[2] = {i * 0x7f35a1c3, ~(i * 0x7f35a1c3)};
            uint32_t sum      = 1, half = 0;
            uint64_t value    = 0;

            for (auto &load : loads) {
                value = 0;
                memcpy(&value, (char*)words + load.at, load.bits / 8);
                if (load.sign == 's') {
                    value = (uint64_t)((int64_t)(value << (64 - load.bits)) >>
                                       (64 - load.bits));
                }
                if (load.width == 16) {
                    half = (uint16_t)value;
                    sum  = sum * 31 + half * 0x10001;
                } else {
                    sum = sum * 31 + (uint32_t)value +
                          ((load.width == 64) ? 3 * (uint32_t)(value >> 32) :
                                                0);
                }
            }
            words[0] = (half & 0xff) | ((sum & 0xff) << 8) | (sum << 16);
            sum      = sum * 31 + words[0];
            words[0] = (words[0] & 0xff00) | (value & 0xff) |
                       ((uint32_t)value << 16);
            sum = (sum * 31 + words[0]) * 31 + (uint32_t)value;
            return sum;
        });
    });
}

/* As nvcc 13.2 and later write them */
TEST_F(kernel_isa, numbers_in_vectors)
{
    run(1, [&](int) {
        expect(
                module("mov.b64 %rd3, {%t, 7}; mov.b64 {%r1, _}, %rd3;\n"
                       "cvt.u16.u32 %h1, %t; mov.u64 %rd4, buffer;\n"
                       "mul.wide.u32 %rd5, %t, 16; add.s64 %rd4, %rd4, %rd5;\n"
                       "st.shared.v2.b64 [%rd4], {99, %rd3};\n"
                       "ld.shared.v4.b32 {%r2, %r3, %r4, %r5}, [%rd4];\n"
                       "mad.lo.u32 %r1, %r2, 5, %r1; add.u32 %r1, %r1, %r3;\n"
                       "mad.lo.u32 %r1, %r4, 3, %r1; add.u32 %r1, %r1, %r5;\n"
                       "st.shared.v4.u8 [%rd4], {1, %h1, -1, 0};\n"
                       "st.shared.v2.f32 [%rd4+8], {1, 0f3F000000};\n"
                       "ld.shared.v4.b32 {%r2, %r3, %r4, %r5}, [%rd4];\n"
                       "xor.b32 %r1, %r1, %r2; xor.b32 %r1, %r1, %r4;\n"
                       "xor.b32 %r1, %r1, %r5; st.global.u32 [%out], %r1;",
                       ".shared .align 16 .b8 buffer[512];\n"), 32,
                [](uint32_t i) {
            return (99 * 5 + 3 * i + 7 + i) ^ (0xff0001 | (i << 8)) ^
                   0x3f800000 ^ 0x3f000000;
        });
        for (const char *bad : {"ld.global.v2.u32 {%r1, 5}, [%out];",
                                "mov.b64 {%r1, 5}, %rd1;"}) {
            expect_refused(CUDA_ERROR_NOT_SUPPORTED, module(bad));
        }
    });
}

/* Bits of words: fields, counts, shifts and comparisons, signed and not */
TEST_F(kernel_isa, bits_of_words)
{
    run(1, [&](int) {
        expect(
                module("mul.lo.u32 %r1, %t, 0x7f35a1c3; not.b32 %r2, %r1;\n"
                       "mov.b64 %rd3, {%r1, %r2}; and.b32 %r3, %t, 15;\n"
                       "mov.b32 {%h1, %h2}, %r1; mov.u32 %r9, 1;\n"
                       "bfe.u32 %r4, %r1, %r3, 9; mad.lo.u32 %r9, %r9, 31, "
                       "%r4;\n"
                       "bfe.s32 %r4, %r1, %r3, 9; mad.lo.u32 %r9, %r9, 31, "
                       "%r4;\n"
                       "bfe.u64 %rd4, %rd3, %r3, 41; bfe.s64 %rd5, %rd3, %r3, "
                       "41;\n"
                       "xor.b64 %rd4, %rd4, %rd5; brev.b64 %rd6, %rd3;\n"
                       "add.u64 %rd4, %rd4, %rd6; shr.s64 %rd6, %rd3, %r3;\n"
                       "add.u64 %rd4, %rd4, %rd6; bfi.b64 %rd6, %rd3, %rd4, "
                       "%r3, 23;\n"
                       "mov.b64 {%r4, %r5}, %rd6;\n"
                       "mad.lo.u32 %r9, %r9, 31, %r4;\n"
                       "mad.lo.u32 %r9, %r9, 31, %r5;\n"
                       "shr.s16 %h1, %h1, %r3; shr.u16 %h2, %h2, %r3;\n"
                       "mov.b32 %r4, {%h1, %h2};\n"
                       "mad.lo.u32 %r9, %r9, 31, %r4; shr.s32 %r4, %r1, %r3;\n"
                       "mad.lo.u32 %r9, %r9, 31, %r4; popc.b64 %r4, %rd3;\n"
                       "mad.lo.u32 %r9, %r9, 31, %r4; clz.b32 %r4, %r1;\n"
                       "mad.lo.u32 %r9, %r9, 31, %r4; bfind.s32 %r4, %r1;\n"
                       "mad.lo.u32 %r9, %r9, 31, %r4; bfind.u64 %r4, %rd3;\n"
                       "mad.lo.u32 %r9, %r9, 31, %r4;\n"
                       "setp.lt.s32 %p1, %r1, %r2; setp.lt.u32 %p2, %r1, %r2;\n"
                       "xor.pred %p1, %p1, %p2; setp.gt.s64 %p2, %rd3, 0;\n"
                       "selp.u32 %r4, 5, 7, %p1; selp.u32 %r5, 3, 2, %p2;\n"
                       "mad.lo.u32 %r9, %r9, %r5, %r4;\n"
                       "st.global.u32 [%out], %r9;"), 64, [&](uint32_t i) {
            uint32_t a = i * 0x7f35a1c3, b = ~a, n = i & 15, sum = 1;
            uint64_t w = ((uint64_t)b << 32) | a, field, back = 0;
            int32_t s  = (int32_t)a;
            auto add   = [&](uint32_t x) { sum = sum * 31 + x; };

            add((a >> n) & 0x1ff);
            add((uint32_t)((int32_t)(a << (23 - n)) >> 23));
            field  = (w >> n) & ((1ull << 41) - 1);
            field ^= (uint64_t)((int64_t)(w << (23 - n)) >> 23);
            for (int k = 0; k < 64; ++k) {
                back |= ((w >> k) & 1) << (63 - k);
            }
            field += back + (uint64_t)((int64_t)w >> n);
            field  = (field & ~(0x7fffffull << n)) | ((w & 0x7fffff) << n);
            add((uint32_t)field);
            add((uint32_t)(field >> 32));
            add((uint16_t)((int16_t)a >> n) |
                ((uint32_t)((uint16_t)(a >> 16) >> n) << 16));
            add((uint32_t)(s >> n));
            add((uint32_t)__builtin_popcountll(w));
            add((a == 0) ? 32 : (uint32_t)__builtin_clz(a));
            s = (s < 0) ? ~s : s;
            add((s == 0) ? ~0u : (31 - (uint32_t)__builtin_clz((uint32_t)s)));
            add(63 - (uint32_t)__builtin_clzll(w));
            sum = sum * (((int64_t)w > 0) ? 3 : 2) +
                  ((((int32_t)a < (int32_t)b) != (a < b)) ? 5 : 7);
            return sum;
        });
    });
}

/* Pairs of halves: comparisons (1.0 is 0x3c00), and sums in memory; 2^x of 3 is
   8 (0x4800). ".reg" may have no space behind. */
TEST_F(kernel_isa, pairs_of_halves)
{
    run(1, [&](int) {
        std::vector<uint32_t> out = results(
                module("{.reg.b16 h;.reg.b32 w; mov.b16 h, 0x4200;\n"
                       "ex2.approx.f16 h, h; mov.b32 w, {h, h};\n"
                       "mov.u32 %r1, 0x48007e00; set.eq.f16x2.f16x2 %r2, w,"
                       " %r1;\n"
                       "set.neu.u32.f16x2 %r3, w, %r1; xor.b32 %r2, %r2, %r3;\n"
                       "mov.u64 %rd3, sum; mov.b16 %h1, 0x3c00;\n"
                       "atom.shared.add.noftz.f16 %h2, [%rd3], %h1;\n"
                       "mov.b16 %h1, 0x3f80;\n"
                       "red.shared.add.noftz.bf16 [%rd3+2], %h1; bar.sync 0;\n"
                       "ld.shared.u32 %r4, [%rd3]; xor.b32 %r2, %r2, %r4;}\n"
                       "st.global.u32 [%out], %r2;",
                       ".shared .align 4 .b8 sum[4];\n"), 64);
        /* 64 is 0x5400 as a half, 0x4280 as a bfloat16 */
        EXPECT_EQ(std::vector<uint32_t>(64, (0x3c000000 ^ 0x0000ffff) ^
                                            0x42805400), out);
    });
}

/* A function by its address, of a register and of a variable, with a guard; of
   other functions with so many parameters none is called */
TEST_F(kernel_isa, functions_are_called_by_pointer)
{
    const std::string before =
            std::string(functions) +
            ".func (.param .b32 h_ret) h(.param .b32 h_x)\n{\ntrap;\n}\n"
            ".func none()\n{\nret;\n}\n"
            ".func (.param .b32 q_ret) q(.param .b32 q_x)\n{\n"
            "{ .param .b32 a; .param .b32 r; call (r), q, (a); }\nret;\n}\n"
            ".global .align 8 .u64 table[3] = {f, 0, g};\n";
    const std::string call =
            "{ .param .b32 a; .param .b32 r; st.param.b32 [a], %t;\n"
            "st.param.b32 [r], %t;\n"
            "proto: .callprototype (.param .b32 _) _ (.param .b32 _);\n"
            "@%p1 call (r), %rd3, (a), proto;\n"
            "ld.param.b32 %r1, [r+0]; }\n"
            "{ none: .callprototype ()_ (); mov.u64 %rd5, none;\n"
            "call %rd5, (), none; }\n";

    run(1, [&](int) {
        auto g = [](uint32_t x) { return (x & 1) ? (x * x) : 7; };

        expect(
                module("and.b32 %r2, %t, 2; setp.eq.u32 %p2, %r2, 0;\n"
                       "setp.lt.u32 %p1, %t, 50; mov.u64 %rd3, table;\n"
                       "mul.wide.u32 %rd4, %r2, 8; add.s64 %rd3, %rd3, %rd4;\n"
                       "ld.global.u64 %rd3, [%rd3]; mov.u64 %rd4, f;\n"
                       "@%p2 mov.u64 %rd3, %rd4;\n" + call +
                       "st.global.u32 [%out], %r1;", before), 60,
                [&](uint32_t i) {
            return (i >= 50) ? i : (i & 2) ? g(i) : (g(i) + 1);
        });

    });

    /* no function has this address; a recursive one */
    for (const char *bad : {"0", "q"}) {
        run(1, [&](int) {
            load_text(module("setp.eq.u32 %p1, %t, %t; mov.u64 %rd3, " +
                             std::string(bad) + ";\n" + call, before));
            launch("k", 1, 1, 0, alloc(4));
            EXPECT_EQ(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
        });
    }
}

TEST_F(kernel_isa, pointers_to_kernels_are_named)
{
    run(1, [&](int) {
        use(0);
        expect_refused(CUDA_ERROR_NOT_SUPPORTED,
                       module("mov.u64 %rd3, k;", functions),
                       "mov.u64: address of a kernel");
    });
}

/* Kernels of a long module are parsed on their first use: an error in one does
   not affect the others. */
TEST_F(kernel_isa, long_modules)
{
    run(1, [&](int) {
        std::string text = module("st.global.u32 [%out], %t;") +
                           "// " + std::string(1 << 20, 'x') + "\n"
                           ".visible .entry bad()\n{\nfrobnicate.b32;\nret;\n}"
                           "\n.visible .entry braces()\n{\n/* } */ // }\n"
                           "{ ret; }\n}\n.visible .entry last()\n{\nret;\n}\n";
        std::vector<uint32_t> out = results(text, 70);
        CUfunction func;
        int version = 0;

        for (uint32_t i = 0; i < out.size(); ++i) {
            EXPECT_EQ(i, out[i]);
        }
        EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED,
                  cuModuleGetFunction(&func, m_module, "bad"));
        EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED,
                  cuModuleGetFunction(&func, m_module, "bad"));
        EXPECT_EQ(CUDA_SUCCESS,
                  cuModuleGetFunction(&func, m_module, "braces"));
        CU_OK(cuModuleGetFunction(&func, m_module, "last"));
        CU_OK(cuFuncGetAttribute(&version, CU_FUNC_ATTRIBUTE_PTX_VERSION,
                                 func));
        EXPECT_EQ(90, version);
    });
}

/* The driver's linker makes a loadable module: a kernel of one text calls a
   function of another. Machine code is refused with an error message. */
TEST_F(kernel_isa, texts_are_linked)
{
    run(1, [&](int) {
        std::string caller = module(
                "{ .param .b32 a; .param .b32 r; st.param.b32 [a], %t;\n"
                "call.uni (r), f, (a); ld.param.b32 %r1, [r]; }\n"
                "st.global.u32 [%out], %r1;",
                ".extern .func (.param .b32 f_ret) f(.param .b32 f_x);\n");
        std::string callee = ".version 8.0\n.target sm_90\n.address_size 64\n" +
                             std::string(functions);
        std::string data   = ".version 8.0\n.target sm_90\n.address_size 64\n"
                             ".visible .global .u32 x = 1;\n";
        std::vector<uint32_t> out(64);
        char log[256] = "";
        CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER,
                                  CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
        void *values[]         = {log, (void*)sizeof(log)}, *image;
        CUlinkState link;
        size_t size;

        auto add = [&](std::string &text, CUjitInputType type) {
            return cuLinkAddData(link, type, &text[0], text.size() + 1, "x", 0,
                                 nullptr, nullptr);
        };

        use(0);
        CU_OK(cuLinkCreate(2, options, values, &link));
        CU_OK(add(caller, CU_JIT_INPUT_PTX));
        CU_OK(add(callee, CU_JIT_INPUT_PTX));
        EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, add(callee, CU_JIT_INPUT_CUBIN));
        EXPECT_NE(nullptr, strstr(log, "cuLinkAddData")) << log;
        CU_OK(cuLinkComplete(link, &image, &size));
        CU_OK(cuModuleLoadData(&m_module, image));
        CU_OK(cuLinkDestroy(link));
        EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuLinkDestroy(link));

        CUdeviceptr ptr = upload(out);
        launch("k", 1, 64, 0, ptr);
        download(out, ptr);
        for (uint32_t i = 0; i < out.size(); ++i) {
            EXPECT_EQ(((i & 1) ? (i * i) : 7) + 1, out[i]) << i;
        }

        /* Two variables of the same name are refused */
        CU_OK(cuLinkCreate(0, nullptr, nullptr, &link));
        CU_OK(add(data, CU_JIT_INPUT_PTX));
        CU_OK(add(data, CU_JIT_INPUT_PTX));
        CU_OK(cuLinkComplete(link, &image, &size));
        EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED,
                  cuModuleLoadData(&m_module, image));
        CU_OK(cuLinkDestroy(link));
    });
}

/* As Numba's this_grid().sync(): block i writes, block i - 1 reads */
TEST_F(kernel_isa, grids_wait_by_the_device_library)
{
    run(1, [&](int) {
        std::string archive = "!<arch>\ncuda_device_runtime.o/";
        std::string text    = module(
                "{ .param .b32 a; .param .b64 r; mov.u32 %r1, 1;\n"
                "st.param.b32 [a], %r1;\n"
                "call.uni (r), cudaCGGetIntrinsicHandle, (a);\n"
                "ld.param.b64 %rd3, [r]; }\n"
                "mov.u32 %r2, %ctaid.x; mul.wide.u32 %rd4, %r2, 4;\n"
                "add.u64 %rd5, %rd1, %rd4; add.u32 %r3, %r2, 7;\n"
                "st.global.u32 [%rd5], %r3;\n"
                "{ .param .b64 h; .param .b32 f; .param .b32 e;\n"
                "mov.u32 %r4, 0; st.param.b64 [h], %rd3;\n"
                "st.param.b32 [f], %r4;\n"
                "call.uni (e), cudaCGSynchronize, (h, f);\n"
                "ld.param.b32 %r4, [e]; }\n"
                "mov.u32 %r5, %nctaid.x; add.u32 %r6, %r2, 1;\n"
                "rem.u32 %r6, %r6, %r5; mul.wide.u32 %rd6, %r6, 4;\n"
                "add.u64 %rd6, %rd1, %rd6; ld.global.u32 %r7, [%rd6];\n"
                "add.u32 %r7, %r7, %r4; add.u64 %rd5, %rd5, 80;\n"
                "st.global.u32 [%rd5], %r7;",
                ".extern .func (.param .b64 r) cudaCGGetIntrinsicHandle"
                "(.param .b32 a);\n.extern .func (.param .b32 r) "
                "cudaCGSynchronize(.param .b64 h, .param .b32 f);\n");
        std::vector<uint32_t> out(40);
        CUlinkState link;
        void *image;

        use(0);
        CU_OK(cuLinkCreate(0, nullptr, nullptr, &link));
        CU_OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, &text[0], text.size() + 1,
                            "x", 0, nullptr, nullptr));
        CU_OK(cuLinkAddData(link, CU_JIT_INPUT_LIBRARY, &archive[0],
                            archive.size(), "x", 0, nullptr, nullptr));
        EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED,
                  cuLinkAddData(link, CU_JIT_INPUT_LIBRARY, &archive[0], 8, "x",
                                0, nullptr, nullptr));
        CU_OK(cuLinkComplete(link, &image, nullptr));
        CU_OK(cuModuleLoadData(&m_module, image));
        CU_OK(cuLinkDestroy(link));
        CUdeviceptr ptr = upload(out);
        void *params[]  = {&ptr};
        CU_OK(cuLaunchCooperativeKernel(function("k"), 20, 1, 1, 32, 2, 1, 0,
                                        nullptr, params));
        download(out, ptr);
        for (uint32_t i = 0; i < 20; ++i) {
            EXPECT_EQ((i + 1) % 20 + 7, out[20 + i]) << i;
        }
    });
}

/* printf() in kernels: each argument has its own alignment */
TEST_F(kernel_isa, kernels_print)
{
    run(1, [&](int) {
        std::string text = module(
                "setp.eq.u32 %p1, %t, 5; @!%p1 bra $NO;\n"
                "mov.b64 %rd3, buffer; cvta.local.u64 %rd4, %rd3;\n"
                "st.local.u32 [%rd3], %t; mov.f64 %d1, 0d3FF8000000000000;\n"
                "st.local.f64 [%rd3+8], %d1; mov.u64 %rd5, word;\n"
                "cvta.global.u64 %rd5, %rd5; st.local.u64 [%rd3+16], %rd5;\n"
                "mov.u64 %rd6, format; cvta.global.u64 %rd6, %rd6;\n"
                "{ .param .b64 a; .param .b64 b; .param .b32 r;\n"
                "st.param.b64 [a], %rd6; st.param.b64 [b], %rd4;\n"
                "call.uni (r), vprintf, (a, b); }\n$NO:",
                ".extern .func (.param .b32 r) vprintf(.param .b64 a,\n"
                ".param .b64 b);\n"
                ".global .align 1 .b8 format[18] = {37, 100, 32, 37, 45, 54,\n"
                "46, 50, 102, 124, 37, 115, 32, 37, 37, 10, 0, 0};\n"
                ".global .align 1 .b8 word[3] = {111, 107, 0};\n");
        size_t at = text.find(".reg .f32");

        text.insert(at, ".local .align 8 .b8 buffer[24]; .reg .f64 %d<2>;\n");
        load_text(text);
        CUdeviceptr ptr = alloc(4);
        testing::internal::CaptureStdout();
        launch("k", 1, 32, 0, ptr);
        CU_OK(cuCtxSynchronize());
        fflush(stdout);
        EXPECT_EQ("5 1.50  |ok %\n", testing::internal::GetCapturedStdout());
    });
}

extern "C" {
typedef struct CUlinkState_st *jit_t;
int nvJitLinkCreate(jit_t *jit, uint32_t num_options, const char **options);
int nvJitLinkAddData(jit_t jit, int type, const void *data, size_t size,
                     const char *name);
int nvJitLinkComplete(jit_t jit);
int nvJitLinkGetLinkedCubinSize(jit_t jit, size_t *size);
int nvJitLinkGetLinkedCubin(jit_t jit, void *image);
int nvJitLinkGetErrorLogSize(jit_t jit, size_t *size);
int nvJitLinkDestroy(jit_t *jit);
}

/* The nvJitLink replacement turns PTX (2) into a loadable module and refuses
   LTO-IR (3). Queries of cuda.core about a kernel work. */
TEST_F(kernel_isa, nvjitlink_makes_loadable_modules)
{
    run(1, [&](int) {
        std::string text = module("st.global.u32 [%out], %t;");
        std::vector<char> image;
        size_t size = 0, offset = 9;
        CUlibrary library;
        CUkernel kernel;
        int value = 0;
        jit_t jit;

        use(0);
        EXPECT_EQ(0, nvJitLinkCreate(&jit, 0, nullptr));
        EXPECT_NE(0, nvJitLinkComplete(jit));
        EXPECT_NE(0, nvJitLinkAddData(jit, 3, "BC", 2, "x"));
        EXPECT_EQ(0, nvJitLinkGetErrorLogSize(jit, &size));
        EXPECT_LT(20u, size);
        EXPECT_EQ(0, nvJitLinkAddData(jit, 2, text.c_str(), text.size(), "x"));
        EXPECT_EQ(0, nvJitLinkComplete(jit));
        EXPECT_EQ(0, nvJitLinkGetLinkedCubinSize(jit, &size));
        image.resize(size);
        EXPECT_EQ(0, nvJitLinkGetLinkedCubin(jit, image.data()));
        EXPECT_EQ(0, nvJitLinkDestroy(&jit));

        CU_OK(cuLibraryLoadData(&library, image.data(), nullptr, nullptr, 0,
                                nullptr, nullptr, 0));
        CU_OK(cuLibraryGetKernel(&kernel, library, "k"));
        CU_OK(cuKernelGetAttribute(&value,
                                   CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                                   kernel, 0));
        EXPECT_EQ(1024, value);
        CU_OK(cuLibraryUnload(library));
        CU_OK(cuModuleLoadData(&m_module, text.c_str()));
        CU_OK(cuFuncGetParamInfo(function("k"), 0, &offset, &size));
        EXPECT_EQ(0u, offset);
        EXPECT_EQ(8u, size);
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  cuFuncGetParamInfo(function("k"), 1, &offset, &size));
    });
}
