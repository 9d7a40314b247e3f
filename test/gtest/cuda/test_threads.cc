/* SPDX-License-Identifier: BSD-3-Clause */
/* State shared by the workers of a process, used by many threads at once.
   Errors seldom show in the results: these tests are for the build with
   ThreadSanitizer. */
#include "fake_driver.h"

extern "C" {
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/queue.h>
#include <uct/cuda/multipath/traffic.h>
#include <uct/cuda/node/mappings.h>
#include <uct/cuda/node/process.h>
#include <uct/cuda/node/rkey.h>
#include <uct/cuda/node/unmap.h>
#include <uct/cuda/node/watch.h>
#include <multipath/end.h>
}

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstring>
#include <functional>
#include <random>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

static const int num_threads = 4;
static std::atomic<uintptr_t> objects; /* created by the driver */

template<typename T> static T make()
{
    return reinterpret_cast<T>(0x10000 + 0x100 * ++objects);
}

class Threads : public ::testing::Test
{
protected:
    FakeDriver driver;

    /* Install the calls made by several threads at once. */
    void SetUp() override
    {
        driver.offer_handles();
        driver.table.cuStreamCreate = [](CUstream *stream, unsigned) {
            *stream = make<CUstream>();
            return CUDA_SUCCESS;
        };
        driver.table.cuStreamDestroy = [](CUstream) { return CUDA_SUCCESS; };
        driver.table.cuEventCreate   = [](CUevent *event, unsigned) {
            *event = make<CUevent>();
            return CUDA_SUCCESS;
        };
        driver.table.cuEventDestroy = [](CUevent) { return CUDA_SUCCESS; };
        driver.table.cuEventRecord  = [](CUevent, CUstream) {
            return CUDA_SUCCESS;
        };
        driver.table.cuEventQuery = [](CUevent) { return CUDA_SUCCESS; };
        driver.table.cuLaunchHostFunc = [](CUstream, CUhostFn, void *) {
            return CUDA_SUCCESS;
        };
    }

    /* Run threads, each with random numbers of its own. */
    static void
    run(const std::function<void(int number, std::mt19937 &random)> &func)
    {
        std::vector<std::thread> threads;

        for (int i = 0; i < num_threads; ++i) {
            threads.emplace_back([&func, i] {
                std::mt19937 random(i);
                func(i, random);
            });
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
    }

    static uct_cuda_node_handle_t random_handle(std::mt19937 &random)
    {
        uct_cuda_node_handle_t handle;

        memset(&handle, 0, sizeof(handle));
        handle.type      = UCT_CUDA_NODE_HANDLE_LEGACY;
        handle.machine   = uct_cuda_node_machine_self();
        handle.pid       = 42 + random() % 2;
        handle.pid_ns    = random() % 2;
        handle.base      = 0x10000 * (1 + random() % 4);
        handle.length    = 4096;
        handle.buffer_id = random() % 2;
        snprintf((char*)handle.os.bytes, sizeof(handle.os.bytes), "%d %u %u %u",
                 (int)handle.pid, (unsigned)handle.pid_ns,
                 (unsigned)handle.base, (unsigned)handle.buffer_id);
        return handle;
    }

    void purge_all()
    {
        for (int pid = 42; pid < 44; ++pid) {
            uct_cuda_node_cache_purge_peer(0, pid);
            uct_cuda_node_cache_purge_peer(1, pid);
        }
        EXPECT_EQ(0u, uct_cuda_node_cache_count());
        uct_cuda_node_unmap_all();
        EXPECT_TRUE(driver.mapped.empty());
    }
};

TEST_F(Threads, mappings)
{
    run([](int number, std::mt19937 &random) {
        for (int i = 0; i < 2000; ++i) {
            uct_cuda_node_handle_t handle = random_handle(random);
            uct_cuda_node_mapping_t *mapping;

            ASSERT_EQ(UCS_OK, uct_cuda_node_cache_get(&handle, 0, &mapping));
            EXPECT_EQ(0, memcmp(&handle, &mapping->handle, sizeof(handle)));
            uct_cuda_node_cache_put(mapping, random() % 4 != 0);
            if (random() % 16 == 0) {
                uct_cuda_node_cache_purge_peer(handle.pid_ns, handle.pid);
            } else if (random() % 16 == 0) {
                uct_cuda_node_cache_limit(1 + random() % 8, SIZE_MAX);
                uct_cuda_node_cache_limit(ULONG_MAX, SIZE_MAX);
            }
        }
    });
    purge_all();
}

TEST_F(Threads, keys)
{
    static const CUdeviceptr base = 0x7f0000000000;
    uct_cuda_node_memh_t *memh;

    driver.offer_gpu_memory(base, 1 << 20);
    driver.table.cuPointerGetAttributes =
            [](unsigned count, CUpointer_attribute *names, void **values,
               CUdeviceptr address) {
                static std::atomic<unsigned> asked;

                for (unsigned i = 0; i < count; ++i) {
                    if (names[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
                        *(unsigned*)values[i] = CU_MEMORYTYPE_DEVICE;
                    } else if (names[i] == CU_POINTER_ATTRIBUTE_BUFFER_ID) {
                        /* Freed and allocated again, now and then */
                        *(unsigned long long*)values[i] = ++asked / 8;
                    } else if (names[i] ==
                               CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) {
                        *(CUdeviceptr*)values[i] = base;
                    } else if (names[i] == CU_POINTER_ATTRIBUTE_RANGE_SIZE) {
                        *(size_t*)values[i] = 1 << 20;
                    }
                }
                return CUDA_SUCCESS;
            };

    driver.table.cuMemGetAddressRange = [](CUdeviceptr *start, size_t *size,
                                           CUdeviceptr) {
        *start = base;
        *size  = 4096;
        return CUDA_SUCCESS;
    };

    ASSERT_EQ(UCS_OK, uct_cuda_node_memh_create((void*)base, 4096, &memh));
    run([memh](int number, std::mt19937 &random) {
        uct_cuda_node_packed_rkey_t packed;
        uct_cuda_node_rkey_t *rkey;

        for (int i = 0; i < 300; ++i) {
            ASSERT_EQ(UCS_OK, uct_cuda_node_rkey_pack(memh, NULL, 0, &packed));
            EXPECT_EQ(base, packed.handle.base);
            packed.handle.pid    = 42 + random() % 2;
            packed.handle.pid_ns = random() % 2;
            ASSERT_EQ(UCS_OK, uct_cuda_node_rkey_unpack(&packed,
                                               uct_cuda_end_none(), &rkey));
            uct_cuda_node_rkey_destroy(rkey);
        }
    });
    uct_cuda_node_memh_destroy(memh);
    purge_all();
}

/* One worker per thread: descriptors move between them */
TEST_F(Threads, queues)
{
    run([](int number, std::mt19937 &random) {
        for (int i = 0; i < 200; ++i) {
            uct_cuda_queue_t queue;
            uct_cuda_stream_t *stream;
            uct_cuda_op_t *op;
            int fd = -1;

            ASSERT_EQ(UCS_OK, uct_cuda_queue_init(&queue, 16, UINT_MAX));
            ASSERT_EQ(UCS_OK, uct_cuda_queue_event_fd(&queue, &fd));
            ASSERT_EQ(UCS_OK, uct_cuda_queue_stream(&queue, 0, &stream));
            ASSERT_EQ(UCS_OK, uct_cuda_op_get(stream, &op));
            ASSERT_EQ(UCS_INPROGRESS, uct_cuda_op_post(&queue, op));
            EXPECT_EQ(UCS_ERR_BUSY, uct_cuda_queue_arm(&queue));
            EXPECT_EQ(1u, uct_cuda_queue_progress(&queue));
            uct_cuda_queue_cleanup(&queue);
        }
    });
}

TEST_F(Threads, contexts)
{
    driver.table.cuCtxCreate_v2 = [](CUcontext *context, unsigned, CUdevice) {
        usleep(1000); /* while others use the primary context */
        *context = make<CUcontext>();
        return CUDA_SUCCESS;
    };
    driver.table.cuCtxSetLimit = [](CUlimit, size_t) { return CUDA_SUCCESS; };
    driver.table.cuDevicePrimaryCtxGetState = [](CUdevice, unsigned *flags,
                                                 int *is_active) {
        *is_active = 0;
        return CUDA_SUCCESS;
    };
    driver.table.cuDevicePrimaryCtxRetain = [](CUcontext *context, CUdevice) {
        *context = reinterpret_cast<CUcontext>(0x777);
        return CUDA_SUCCESS;
    };
    driver.table.cuDevicePrimaryCtxRelease = [](CUdevice) {
        return CUDA_SUCCESS;
    };
    run([](int number, std::mt19937 &random) {
        for (int i = 0; i < 2000; ++i) {
            const int device = 8 + i / 250; /* about the same for all */
            CUcontext context, again;

            ASSERT_EQ(UCS_OK,
                      uct_cuda_ctx_retain(device, random() % 2, &context));
            EXPECT_TRUE(uct_cuda_ctx_is_active(device));
            EXPECT_FALSE(uct_cuda_ctx_has_two(device));
            ASSERT_TRUE(uct_cuda_ctx_retain_kept(device, &again));
            EXPECT_EQ(context, again);
            uct_cuda_ctx_release(device);
            uct_cuda_ctx_release(device);
        }
    });
}

TEST_F(Threads, traffic)
{
    uct_cuda_mp_traffic_t *traffic;
    uct_cuda_plan_load_t load;

    ASSERT_EQ(UCS_OK, uct_cuda_mp_traffic_create(NULL, &traffic));
    run([traffic](int number, std::mt19937 &random) {
        for (int i = 0; i < 500; ++i) {
            const int src = random() % 4, dst = (src + 1) % 4;
            uct_cuda_plan_load_t met;
            uct_cuda_mp_flow_t flow;
            unsigned queued, window;

            uct_cuda_mp_flow_single(uct_cuda_plan_link(End(src), End(dst)),
                                    1 << 20, random() % 2, &flow);
            uct_cuda_mp_traffic_begin(traffic, &flow);
            uct_cuda_mp_traffic_peek(traffic, End(dst), End((dst + 1) % 4),
                                     &queued, &window);
            EXPECT_LE(queued, (unsigned)num_threads);
            uct_cuda_mp_traffic_load(traffic, End(src), End(dst), &met);
            uct_cuda_mp_traffic_end(traffic, &flow);
        }
    });

    for (int src = 0; src < 4; ++src) {
        uct_cuda_mp_traffic_load(traffic, End(src), End((src + 1) % 4), &load);
        EXPECT_EQ(0u, load.queued);
    }
    uct_cuda_mp_traffic_destroy(traffic);
}

/* glibc runs the handlers of several forks at once. A lock of the watch thread
   that stays locked would delay each later fork by 0.1 s. */
TEST_F(Threads, forks_at_once_release_the_watch_thread)
{
    auto least = std::chrono::steady_clock::duration::max();
    std::vector<std::thread> threads;
    auto fork_once = [] {
        const pid_t pid = fork();

        if (pid == 0) {
            _exit(0);
        }
        waitpid(pid, nullptr, 0);
    };
    int i;

    uct_cuda_node_watch_replace(true);
    for (i = 0; i < num_threads; ++i) {
        threads.emplace_back([&] {
            for (int j = 0; j < 50; ++j) {
                fork_once();
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    for (i = 0; (i < 50) && (least >= std::chrono::milliseconds(90)); ++i) {
        const auto start = std::chrono::steady_clock::now();

        fork_once();
        least = std::min(least, std::chrono::steady_clock::now() - start);
    }
    EXPECT_LT(least, std::chrono::milliseconds(90));
    uct_cuda_node_watch_replace(false);
}

/* A process that has mapped memory of peers, but has exported none, answers no
   request. The messages in its sockets must not keep the thread awake. In a new
   process, where the thread has not been tried. */
TEST(ThreadsWatch, a_process_without_exports_receives_requests_and_wakeups)
{
    static std::atomic<unsigned> looks;
    static const uct_cuda_node_watched_t watched = {
        [] {
            ++looks;
            return false;
        },
        nullptr, nullptr, nullptr
    };
    auto start = [] {
        const uct_cuda_node_descriptors_t *socket =
                uct_cuda_node_watch_start(&watched);
        uct_cuda_node_iface_addr_t self;

        uct_cuda_node_iface_addr_self(&self);
        usleep(50000); /* asleep by then */
        uct_cuda_node_watch_wake();
        (void)send(uct_cuda_node_descriptors_connect(self.pid_ns, self.pid),
                   "x", 1, 0);
        usleep(300000);
        return (socket == nullptr) || (looks >= 10);
    };

    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_EXIT(_exit(start()), ::testing::ExitedWithCode(0), "");
}

/* A peer that maps memory in many pieces asks for one after the other. A check
   of all memory after each answer would take longer than the mapping. */
TEST(ThreadsWatch, requests_do_not_wait_for_a_check_each)
{
    static std::atomic<unsigned> looks;
    static const uct_cuda_node_watched_t watched = {
        [] {
            ++looks;
            return true;
        },
        nullptr, nullptr, nullptr
    };
    auto start = [] {
        const uct_cuda_node_descriptors_t *socket =
                uct_cuda_node_watch_start(&watched);
        std::chrono::steady_clock::time_point begin;
        unsigned first, count;

        usleep(100000);
        begin = std::chrono::steady_clock::now();
        first = looks;
        for (int i = 0; i < 300; ++i) {
            uct_cuda_node_descriptors_wake(socket);
            usleep(1000);
        }
        count = looks - first;
        /* one every 20 ms */
        return (socket == nullptr) ||
               (count > 2 + (std::chrono::steady_clock::now() - begin) /
                                    std::chrono::milliseconds(20));
    };

    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_EXIT(_exit(start()), ::testing::ExitedWithCode(0), "");
}
