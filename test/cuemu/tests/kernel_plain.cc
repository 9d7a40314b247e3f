/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Kernels in the manner of other people's programs, as nvcc compiled them
 * (kernels/plain.cu), launched by the emulated driver. What is expected is
 * computed here, in plain C.
 */
#include "kernel_fixture.h"

#include <cmath>

class kernel_plain : public kernel {
protected:
    kernel_plain() : kernel("narval", "plain.ptx")
    {
    }
};

TEST_F(kernel_plain, vector_add)
{
    run(1, [&](int) {
        const int n = 100003;
        std::vector<float> a(n), b(n), out(n), want(n);

        load(0);
        for (int i = 0; i < n; ++i) {
            a[i]    = (float)i / 7;
            b[i]    = (float)(n - i) * 3;
            want[i] = a[i] + b[i];
        }
        CUdeviceptr d_a = upload(a), d_b = upload(b), d_out = upload(out);
        launch("vector_add", (n + 255) / 256, 256, 0, d_out, d_a, d_b, n);
        download(out, d_out);
        EXPECT_EQ(want, out);
    });
}
