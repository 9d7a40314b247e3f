/* SPDX-License-Identifier: BSD-3-Clause */
/* A fake node with the driver calls of collectives, beside those of transfers.
   Launched kernels do nothing. */
#ifndef TEST_COLLECTIVE_GPUS_H
#define TEST_COLLECTIVE_GPUS_H

#include <multipath/fake_node.h>

extern "C" {
#include <uct/cuda/base/topo.h>
}

#include <atomic>
#include <cstring>
#include <functional>


class Gpus : public FakeNode
{
public:
    /* @a has_words: the GPU can write a word when a step has ended. */
    Gpus(int num_gpus, bool has_words, unsigned seed = 1) :
        FakeNode(num_gpus, seed)
    {
        uct_cuda_driver_t *table = const_cast<uct_cuda_driver_t*>(
                uct_cuda_driver_get());

        /* Contexts of earlier nodes had other numbers */
        ++epoch;
        context_id        = table->cuCtxGetId;
        wait              = table->cuLaunchHostFunc;
        copy_async        = table->cuMemcpyAsync;
        node              = this;
        table->cuCtxGetId = [](CUcontext context, unsigned long long *id) {
            const CUresult result = context_id(context, id);
            *id += epoch << 8;
            return result;
        };
        table->cuMemcpyAsync = [](CUdeviceptr dst, CUdeviceptr src,
                                  size_t bytes, CUstream stream) {
            if (node->on_copy) {
                node->on_copy();
            }
            return copy_async(dst, src, bytes, stream);
        };
        table->cuDeviceGetAttribute = [](int *value, CUdevice_attribute,
                                         CUdevice) {
            *value = 1;
            return CUDA_SUCCESS;
        };
        table->cuModuleLoadData = [](CUmodule *module, const void*) {
            *module = (CUmodule)1;
            return CUDA_SUCCESS;
        };
        table->cuModuleGetFunction = [](CUfunction *function, CUmodule,
                                        const char*) {
            *function = (CUfunction)1;
            return CUDA_SUCCESS;
        };
        table->cuModuleUnload = [](CUmodule) { return CUDA_SUCCESS; };
        table->cuLaunchKernel = [](CUfunction, unsigned, unsigned, unsigned,
                                   unsigned, unsigned, unsigned, unsigned,
                                   CUstream, void**, void**) {
            ++node->launches;
            return CUDA_SUCCESS;
        };
        table->cuStreamQuery = [](CUstream) {
            node->run_others();
            return node->is_idle() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
        };
        table->cuIpcGetMemHandle = [](CUipcMemHandle *handle, CUdeviceptr) {
            memset(handle, 0, sizeof(*handle));
            return node->exports ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
        };
        if (has_words) {
            table->cuStreamWriteValue32 = [](CUstream stream,
                                             CUdeviceptr address,
                                             cuuint32_t value, unsigned) {
                Word *word            = new Word{address, value};
                const CUresult result = wait(stream, write, word);

                if (result != CUDA_SUCCESS) {
                    delete word;
                }
                return result;
            };
        }
    }

    std::atomic<unsigned> launches{0};
    bool exports = true; /* memory can be exported to other processes */

    /* Called when any thread submits a copy */
    std::function<void()> on_copy;

    /* All pairs are joined */
    static uct_cuda_topo_t topo(int num_gpus)
    {
        uct_cuda_topo_t result;

        uct_cuda_topo_init(&result, num_gpus);
        for (int from = 0; from < num_gpus; ++from) {
            result.gpus[from].uuid[0] = (uint8_t)(from + 1);
            for (int to = 0; to < num_gpus; ++to) {
                if (from != to) {
                    uct_cuda_topo_set_link(&result, from, to, 20e9,
                                           UCT_CUDA_TOPO_NO_LIMIT,
                                           UCT_CUDA_TOPO_NO_LIMIT);
                }
            }
        }
        return result;
    }

private:
    struct Word {
        CUdeviceptr address;
        uint32_t    value;
    };

    static void write(void *arg)
    {
        Word *word = static_cast<Word*>(arg);

        __atomic_store_n((uint32_t*)word->address, word->value,
                         __ATOMIC_RELEASE);
        delete word;
    }

    static inline Gpus *node                                       = nullptr;
    static inline unsigned long long epoch                         = 0;
    static inline decltype(uct_cuda_driver_t::cuCtxGetId) context_id = nullptr;
    static inline decltype(uct_cuda_driver_t::cuLaunchHostFunc) wait = nullptr;
    static inline decltype(uct_cuda_driver_t::cuMemcpyAsync) copy_async =
            nullptr;
};

#endif
