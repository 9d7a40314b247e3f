/* SPDX-License-Identifier: BSD-3-Clause */

/* Captured kernels run when their graph is launched. */
#include "kernel_fixture.h"

class kernel_capture : public kernel {
protected:
    kernel_capture() : kernel("beluga", "plain.ptx")
    {
    }

    /* Load a kernel that adds *parameter to a word of each of its threads. */
    void load_add()
    {
        use(0);
        CU_OK(cuModuleLoadData(&m_module,
                               ".version 6.0\n.target sm_60\n"
                               ".address_size 64\n"
                               ".visible .entry add(.param .u64 add_p,\n"
                               ".param .u32 add_n)\n{\n"
                               ".reg .b32 %r<4>;\n.reg .b64 %rd<4>;\n"
                               "ld.param.u64 %rd0, [add_p];\n"
                               "ld.param.u32 %r0, [add_n];\n"
                               "mov.u32 %r1, %tid.x;\n"
                               "mul.wide.u32 %rd1, %r1, 4;\n"
                               "add.s64 %rd2, %rd0, %rd1;\n"
                               "ld.global.u32 %r2, [%rd2];\n"
                               "add.u32 %r3, %r2, %r0;\n"
                               "st.global.u32 [%rd2], %r3;\nret;\n}\n"));
    }
};

/* Three kernels with different arguments, in order, twice; arguments are those
   of the captured calls */
TEST_F(kernel_capture, kernels_run_when_the_graph_does)
{
    run(1, [&](int) {
        std::vector<uint32_t> words(64, 5), sums(64), twice(64);
        CUgraphExec exec;
        CUgraph graph;

        load_add();
        CUdeviceptr ptr = upload(words);
        CUstream s      = stream();

        CU_OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
        for (uint32_t n : {1, 10, 100}) {
            CU_OK(try_launch(function("add"), 1, 64, 0, s, ptr, n));
        }
        CU_OK(cuStreamEndCapture(s, &graph));
        CU_OK(cuStreamSynchronize(s));
        download(sums, ptr);
        EXPECT_EQ(words, sums) << "nothing has run yet";

        CU_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
        CU_OK(cuGraphDestroy(graph));
        for (uint32_t sum : {116, 227}) {
            CU_OK(cuGraphLaunch(exec, s));
            CU_OK(cuStreamSynchronize(s));
            download(sums, ptr);
            EXPECT_EQ(std::vector<uint32_t>(64, sum), sums);
        }
        CU_OK(cuGraphExecDestroy(exec));
        CU_OK(cuModuleUnload(m_module));
    });
}
