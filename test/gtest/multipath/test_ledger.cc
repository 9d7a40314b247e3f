/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ledger and an engine's use of it: processes with different GPU numbers,
 * that die, or come and go concurrently; invalid files.
 */
#include "fake_node.h"
#include "nodes.h"
#include "process.h"
#include "ticks.h"

#include <uct/cuda/multipath/history.h>
#include <uct/cuda/multipath/traffic.h>
#include <uct/cuda/node/alive.h>
#include <uct/cuda/node/ledger.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <memory>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>


/* Sizes of the control block, and of the file that names its place */
static const size_t PAGE_BYTES  = 16320;
static const size_t PLACE_BYTES = 24;


/* A process's GPUs: UUIDs beginning with these numbers */
struct Gpus {
    uint8_t uuids[UCT_CUDA_MAX_GPUS][16];
    int     count;

    Gpus(std::initializer_list<int> list) : count(0)
    {
        memset(uuids, 0, sizeof(uuids));
        for (int gpu : list) {
            uuids[count++][0] = (uint8_t)gpu;
        }
    }
};


class test_ledger : public ::testing::Test
{
protected:
    test_ledger() : m_now(1)
    {
        char name[] = "/tmp/test_ledger.XXXXXX";

        m_dir = mkdtemp(name);
    }

    ~test_ledger()
    {
        for (uct_cuda_node_ledger_t *ledger : m_open) {
            uct_cuda_node_ledger_close(ledger);
        }
        for (const std::string &file : files()) {
            unlink((m_dir + "/" + file).c_str());
        }
        rmdir(m_dir.c_str());
    }

    std::vector<std::string> files()
    {
        std::vector<std::string> names;
        DIR *dir = opendir(m_dir.c_str());

        while (struct dirent *entry = readdir(dir)) {
            if (entry->d_name[0] != '.') {
                names.push_back(entry->d_name);
            }
        }
        closedir(dir);
        return names;
    }

    /* Return the control block's path, found by making one. */
    std::string page_path()
    {
        Gpus gpus{1};

        close(open(gpus));
        uct_cuda_node_ledger_t *ledger = open(gpus);
        std::string path               = m_dir + "/" + files().at(0);
        close(ledger);
        return path;
    }

    static std::string content(const std::string &path)
    {
        std::ifstream file(path, std::ios::binary);

        return std::string((std::istreambuf_iterator<char>(file)), {});
    }

    /* Map the control block named by a file. */
    static char *page_of(const std::string &path)
    {
        const std::string place = content(path);
        int segment;

        EXPECT_EQ(PLACE_BYTES, place.size());
        memcpy(&segment, place.data() + 12, sizeof(segment));
        return (char*)shmat(segment, NULL, 0);
    }

    ucs_status_t try_open(const Gpus &gpus, uct_cuda_node_ledger_t **ledger_p)
    {
        return uct_cuda_node_ledger_open(m_dir.c_str(), gpus.uuids, gpus.count,
                                         ledger_p);
    }

    uct_cuda_node_ledger_t *open(const Gpus &gpus)
    {
        uct_cuda_node_ledger_t *ledger = NULL;

        EXPECT_EQ(UCS_OK, try_open(gpus, &ledger));
        m_open.push_back(ledger);
        return ledger;
    }

    void close(uct_cuda_node_ledger_t *ledger)
    {
        uct_cuda_node_ledger_close(ledger);
        m_open.erase(std::find(m_open.begin(), m_open.end(), ledger));
    }

    /* Return the flows of others on one directed link, and check for none on
       others. */
    unsigned others(uct_cuda_node_ledger_t *ledger, int from, int to)
    {
        uct_cuda_plan_load_t load = {};
        unsigned sum              = 0;
        bool any = uct_cuda_node_ledger_read(ledger, m_now, &load);

        for (uint8_t count : load.active) {
            sum += count;
        }
        EXPECT_EQ(any, sum > 0);
        EXPECT_EQ(sum, load.active[uct_cuda_plan_link(End(from), End(to))]);
        return load.active[uct_cuda_plan_link(End(from), End(to))];
    }

    /* Return the number of those from its one end to the other. */
    unsigned direct(uct_cuda_node_ledger_t *ledger, int from, int to)
    {
        uct_cuda_plan_load_t load = {};
        unsigned sum              = 0;

        uct_cuda_node_ledger_read(ledger, m_now, &load);
        for (uint8_t count : load.direct) {
            sum += count;
        }
        EXPECT_EQ(sum, load.direct[uct_cuda_plan_link(End(from), End(to))]);
        return sum;
    }

    static void set(uct_cuda_node_ledger_t *ledger, int from, int to, bool on,
                    bool is_direct = false)
    {
        uct_cuda_node_ledger_set(ledger, uct_cuda_plan_link(End(from), End(to)),
                                 on, is_direct);
    }

    /* Fork a process that transfers from GPU 0 to GPU 1. */
    pid_t spawn_busy()
    {
        return spawn([this] {
            uct_cuda_node_ledger_t *ledger;

            if (try_open(Gpus{1, 2}, &ledger) != UCS_OK) {
                return false;
            }
            set(ledger, 0, 1, true);
            return true;
        });
    }

    /* Return the state of this process's first thread from /proc; its name has
       no bracket. */
    static char first_thread_state()
    {
        std::ifstream file("/proc/self/stat");
        std::string pid, name, state;

        file >> pid >> name >> state;
        return state.at(0);
    }

    /* Lock the file as a process does that is stopped while entering or
       leaving. */
    static uct_cuda_node_alive_t *lock_page(const std::string &path)
    {
        const int fd                 = ::open(path.c_str(), O_RDWR);
        uct_cuda_node_alive_t *alive = NULL;

        EXPECT_EQ(UCS_OK, uct_cuda_node_alive_open(fd, &alive));
        ::close(fd);
        EXPECT_TRUE(uct_cuda_node_alive_hold(alive, UCT_CUDA_NODE_ALIVE_FILE));
        return alive;
    }

    /* Check that an unsuitable file is not used and not changed. */
    void refused(const std::string &path, const std::string &content)
    {
        uct_cuda_node_ledger_t *ledger = NULL;

        {
            std::ofstream file(path, std::ios::binary);
            file << content;
        }
        chmod(path.c_str(), 0600);
        EXPECT_EQ(UCS_ERR_UNSUPPORTED, try_open(Gpus{1, 2}, &ledger));

        std::ifstream file(path, std::ios::binary);
        std::string now((std::istreambuf_iterator<char>(file)),
                        std::istreambuf_iterator<char>());
        EXPECT_TRUE(now == content);
        unlink(path.c_str());
    }

    std::string                        m_dir;
    uint64_t                           m_now;
    std::vector<uct_cuda_node_ledger_t*> m_open;
};


TEST_F(test_ledger, others_flows_are_counted_and_own_ones_are_not)
{
    uct_cuda_node_ledger_t *a = open(Gpus{1, 2, 3});
    uct_cuda_node_ledger_t *b = open(Gpus{1, 2, 3});
    uct_cuda_node_ledger_t *c = open(Gpus{1, 2, 3});

    set(a, 0, 2, true);
    EXPECT_EQ(0u, others(a, 0, 2));
    EXPECT_EQ(1u, others(b, 0, 2));
    set(c, 0, 2, true);
    EXPECT_EQ(1u, others(a, 0, 2));
    EXPECT_EQ(2u, others(b, 0, 2));
    set(a, 0, 2, false);
    EXPECT_EQ(1u, others(b, 0, 2));
    set(c, 0, 2, false);
    EXPECT_EQ(0u, others(b, 0, 2));
}

TEST_F(test_ledger, relays_and_direct_paths_are_distinguished)
{
    uct_cuda_node_ledger_t *a = open(Gpus{1, 2, 3});
    uct_cuda_node_ledger_t *b = open(Gpus{3, 2, 1});

    set(a, 0, 2, true);
    EXPECT_EQ(0u, direct(b, 2, 0));
    set(a, 0, 2, true, true);
    EXPECT_EQ(1u, others(b, 2, 0));
    EXPECT_EQ(1u, direct(b, 2, 0));
    set(a, 0, 2, true, false);
    EXPECT_EQ(1u, others(b, 2, 0));
    EXPECT_EQ(0u, direct(b, 2, 0));
}

TEST_F(test_ledger, every_directed_link)
{
    Gpus gpus{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    uct_cuda_node_ledger_t *a = open(gpus);
    uct_cuda_node_ledger_t *b = open(gpus);

    for (int from = HOST; from < UCT_CUDA_MAX_GPUS; ++from) {
        for (int to = HOST; to < UCT_CUDA_MAX_GPUS; ++to) {
            set(a, from, to, true, true);
            EXPECT_EQ(1u, others(b, from, to)) << from << ' ' << to;
            EXPECT_EQ(1u, direct(b, from, to)) << from << ' ' << to;
            set(a, from, to, false);
            EXPECT_EQ(0u, direct(b, from, to)) << from << ' ' << to;
        }
    }
}

TEST_F(test_ledger, gpus_in_another_order)
{
    uct_cuda_node_ledger_t *a = open(Gpus{1, 2, 3, 4});
    uct_cuda_node_ledger_t *b = open(Gpus{4, 3, 2, 1});

    set(a, 0, 1, true);
    EXPECT_EQ(1u, others(b, 3, 2));
    set(a, 0, 1, false);
    set(b, 0, HOST, true);
    EXPECT_EQ(1u, others(a, 3, HOST));
}

TEST_F(test_ledger, begun_transfers_are_counted_by_ends)
{
    uct_cuda_node_ledger_t *a = open(Gpus{1, 2, 3});
    uct_cuda_node_ledger_t *b = open(Gpus{3, 2, 1});
    const auto begun          = [&](int to, int from) {
        return uct_cuda_node_ledger_begun(b, End(to), End(from));
    };
    unsigned before;

    /* a's GPUs 1 to 2 are b's 2 to 1 */
    before = begun(1, 2);
    EXPECT_EQ(begun(0, 0), begun(HOST, HOST));
    set(a, 0, 1, true);
    EXPECT_EQ(before + 2, begun(1, 2));
    EXPECT_EQ(begun(0, 0), begun(HOST, HOST));
    EXPECT_EQ(before + 1, begun(1, 0));
    EXPECT_EQ(before + 1, begun(HOST, 2));

    /* the transfer continues, ends, and begins again */
    set(a, 0, 1, true, true);
    EXPECT_EQ(before + 2, begun(1, 2));
    set(a, 0, 1, false);
    EXPECT_EQ(before + 2, begun(1, 2));
    set(a, 0, 1, true);
    EXPECT_EQ(before + 4, begun(1, 2));

    before = begun(HOST, 1);
    set(a, 1, HOST, true);
    EXPECT_EQ(before + 2, begun(HOST, 1));

    before = begun(HOST, 0);
    set(b, 0, HOST, true);
    EXPECT_EQ(before, begun(HOST, 0)) << "its own";
}

TEST_F(test_ledger, gpus_visible_to_some_processes)
{
    uct_cuda_node_ledger_t *a = open(Gpus{2, 1});
    uct_cuda_node_ledger_t *b = open(Gpus{1, 3});

    set(a, 0, 1, true); /* 2 to 1: not a link that b could use */
    EXPECT_EQ(0u, others(b, 0, 1));
    set(a, HOST, 1, true);
    EXPECT_EQ(1u, others(b, HOST, 0));
    /* Links of GPUs unknown to a process are ignored */
    set(b, 2, 3, true);
    EXPECT_EQ(0u, others(a, 0, 1));
}

TEST_F(test_ledger, the_last_process_removes_the_file)
{
    uct_cuda_node_ledger_t *a = open(Gpus{1});
    uct_cuda_node_ledger_t *b = open(Gpus{1});

    EXPECT_EQ(1u, files().size());
    close(a);
    EXPECT_EQ(1u, files().size());
    close(b);
    EXPECT_EQ(0u, files().size());
}

TEST_F(test_ledger, private_file)
{
    uct_cuda_node_ledger_t *a = open(Gpus{1});
    struct stat st;

    ASSERT_EQ(0, stat((m_dir + "/" + files().at(0)).c_str(), &st));
    EXPECT_EQ(0600u, st.st_mode & 0777);
    close(a);
}

TEST_F(test_ledger, other_processes_are_listed)
{
    uct_cuda_node_ledger_t *a = open(Gpus{1, 2}), *b = open(Gpus{1, 2});
    std::vector<pid_t> pids;
    uint32_t found[4] = {0, 0, 0, 7};

    EXPECT_EQ(0u, uct_cuda_node_ledger_others(a, found, 3)) << "two of our own";
    for (int i = 0; i < 2; ++i) {
        pids.push_back(spawn([&] {
            uct_cuda_node_ledger_t *ledger;
            return try_open(Gpus{1, 2}, &ledger) == UCS_OK;
        }));
    }

    EXPECT_EQ(2u, uct_cuda_node_ledger_others(b, found, 3));
    EXPECT_EQ((uint32_t)pids[0], found[0]);
    EXPECT_EQ((uint32_t)pids[1], found[1]);
    EXPECT_EQ(1u, uct_cuda_node_ledger_others(a, found + 3, 1));
    EXPECT_EQ((uint32_t)pids[0], found[3]);
    EXPECT_EQ(0u, uct_cuda_node_ledger_others(a, found, 0));
    for (pid_t pid : pids) {
        reap(pid);
    }
}

/* Bytes behind the slots in use are ignored */
TEST_F(test_ledger, unused_slots_are_ignored)
{
    uct_cuda_node_ledger_t *a = open(Gpus{1}), *b = open(Gpus{1});
    const std::string path    = m_dir + "/" + files().at(0);
    const uint32_t pid        = (uint32_t)getpid();
    const uint32_t other      = 1;
    const std::string pattern = std::string((const char*)&pid, sizeof(pid));
    uint32_t found[3];

    char *memory = page_of(path);
    std::string page(memory, PAGE_BYTES);
    size_t first  = page.find(pattern);
    size_t second = page.find(pattern, first + 1);
    size_t behind = 2 * second - first;
    ASSERT_NE(std::string::npos, second);
    ASSERT_EQ(std::string::npos, page.find(pattern, second + 1));
    ASSERT_EQ(std::string(sizeof(other), '\0'),
              page.substr(behind, sizeof(other)));

    memcpy(memory + behind, &other, sizeof(other));
    shmdt(memory);
    EXPECT_EQ(0u, uct_cuda_node_ledger_others(a, found, 3));
    EXPECT_EQ(0u, uct_cuda_node_ledger_others(b, found, 3));
}

TEST_F(test_ledger, process_killed_while_it_transfers)
{
    uct_cuda_node_ledger_t *a = open(Gpus{1, 2});
    pid_t pid                 = spawn_busy();

    EXPECT_EQ(1u, others(a, 0, 1));
    /* After any time: the process lives */
    m_now += 10 * UCT_CUDA_NODE_LEDGER_STALE;
    EXPECT_EQ(1u, others(a, 0, 1));
    m_now += 10 * UCT_CUDA_NODE_LEDGER_STALE;
    EXPECT_EQ(1u, others(a, 0, 1));

    kill(pid, SIGKILL);
    siginfo_t info;
    waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT); /* a zombie is dead */
    m_now += UCT_CUDA_NODE_LEDGER_STALE;
    (void)others(a, 0, 1);
    EXPECT_EQ(0u, others(a, 0, 1));
    reap(pid);
}

/* The holder of the lock may be giving the slot to a new process */
TEST_F(test_ledger, slots_of_dead_processes_stay_while_the_file_is_locked)
{
    std::string path          = page_path();
    uct_cuda_node_ledger_t *a = open(Gpus{1, 2});
    pid_t pid                 = spawn_busy();

    EXPECT_EQ(1u, others(a, 0, 1));
    reap(pid);

    uct_cuda_node_alive_t *alive = lock_page(path);
    for (int i = 0; i < 3; ++i) {
        m_now += UCT_CUDA_NODE_LEDGER_STALE;
        EXPECT_EQ(1u, others(a, 0, 1));
    }
    uct_cuda_node_alive_close(alive);
    m_now += UCT_CUDA_NODE_LEDGER_STALE;
    (void)others(a, 0, 1);
    EXPECT_EQ(0u, others(a, 0, 1));
}

TEST_F(test_ledger, slots_of_dead_processes_are_reused)
{
    std::vector<pid_t> pids;
    uct_cuda_node_ledger_t *ledger;

    for (int i = 0; i < UCT_CUDA_NODE_LEDGER_MAX_SLOTS; ++i) {
        pids.push_back(spawn_busy());
    }

    EXPECT_EQ(UCS_ERR_NO_RESOURCE, try_open(Gpus{1, 2}, &ledger));
    reap(pids.back());
    pids.pop_back();
    uct_cuda_node_ledger_t *a = open(Gpus{1, 2});
    EXPECT_EQ(pids.size(), others(a, 0, 1));
    for (pid_t pid : pids) {
        reap(pid);
    }

    close(a);
    EXPECT_EQ(0u, files().size()) << "the dead kept the page";
}

TEST_F(test_ledger, reused_pid_of_a_dead_process)
{
    std::string path          = page_path();
    uct_cuda_node_ledger_t *a = open(Gpus{1, 2});
    pid_t pid                 = spawn_busy();

    EXPECT_EQ(1u, others(a, 0, 1));
    reap(pid);

    /* The pid belongs to a living process now */
    const pid_t another = getppid();
    char *page          = page_of(path);
    for (size_t at = 0; at < PAGE_BYTES; at += 64) {
        if (memcmp(page + at, &pid, sizeof(pid)) == 0) {
            memcpy(page + at, &another, sizeof(another));
        }
    }
    shmdt(page);

    m_now += UCT_CUDA_NODE_LEDGER_STALE;
    (void)others(a, 0, 1);
    EXPECT_EQ(0u, others(a, 0, 1));
}

/* Two copies of the module in one process; one is unloaded */
TEST_F(test_ledger, two_modules_in_one_process)
{
    uct_cuda_node_ledger_t *a = open(Gpus{1, 2});
    pid_t pid                 = spawn([&] {
        uct_cuda_node_ledger_t *first, *second;

        if ((try_open(Gpus{1, 2}, &first) != UCS_OK) ||
            (try_open(Gpus{1, 2}, &second) != UCS_OK)) {
            return false;
        }
        uct_cuda_node_ledger_close(second);
        set(first, 0, 1, true);
        return true;
    });

    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(1u, others(a, 0, 1));
        m_now += UCT_CUDA_NODE_LEDGER_STALE;
    }
    reap(pid);
}

/* A forked child of it lives on */
TEST_F(test_ledger, killed_process_with_a_living_child)
{
    uct_cuda_node_ledger_t *a = open(Gpus{1, 2});
    int wire[2];
    ASSERT_EQ(0, pipe(wire));
    pid_t pid               = spawn([&] {
        uct_cuda_node_ledger_t *ledger;
        pid_t child;

        if (try_open(Gpus{1, 2}, &ledger) != UCS_OK) {
            return false;
        }
        set(ledger, 0, 1, true);
        if (fork() == 0) {
            child = getpid();
            if (write(wire[1], &child, sizeof(child)) == sizeof(child)) {
                pause();
            }
            _exit(0);
        }
        return true;
    });
    pid_t child;

    ASSERT_EQ((ssize_t)sizeof(child), read(wire[0], &child, sizeof(child)));
    EXPECT_EQ(1u, others(a, 0, 1));
    reap(pid);
    m_now += UCT_CUDA_NODE_LEDGER_STALE;
    (void)others(a, 0, 1);
    EXPECT_EQ(0u, others(a, 0, 1));
    kill(child, SIGKILL);
    ::close(wire[0]);
    ::close(wire[1]);
}

TEST_F(test_ledger, forked_child_leaves_the_slot_alone)
{
    uct_cuda_node_ledger_t *a = open(Gpus{1, 2});
    uct_cuda_node_ledger_t *b = open(Gpus{1, 2});

    set(a, 0, 1, true);
    reap(spawn([&] {
        uct_cuda_node_ledger_close(a);
        return true;
    }));
    EXPECT_EQ(1u, others(b, 0, 1));
    EXPECT_EQ(1u, files().size());
}

/* In the child the parent's transfers have ended, too */
TEST_F(test_ledger, forked_child_ends_no_transfer_of_its_parent)
{
    uct_cuda_node_ledger_t *a = open(Gpus{1, 2});
    uct_cuda_node_ledger_t *b = open(Gpus{1, 2});

    set(a, 0, 1, true, true);
    reap(spawn([&] {
        uct_cuda_node_ledger_t *own;

        set(a, 0, 1, false);
        uct_cuda_node_ledger_close(a);

        /* It can open a ledger of its own */
        if (try_open(Gpus{1, 2}, &own) != UCS_OK) {
            return false;
        }
        set(own, 0, 1, true);
        return true;
    }));
    EXPECT_EQ(2u, others(b, 0, 1)) << "the child's, which nobody has missed";
    EXPECT_EQ(1u, direct(b, 0, 1));
}

/* The first thread ends, the process continues: main() calls pthread_exit() */
TEST_F(test_ledger, process_with_an_ended_first_thread)
{
    uct_cuda_node_ledger_t *a = open(Gpus{1, 2});
    int pipes[2];
    char c;

    ASSERT_EQ(0, pipe(pipes));
    pid_t pid = fork();
    if (pid == 0) {
        uct_cuda_node_ledger_t *ledger;

        if (try_open(Gpus{1, 2}, &ledger) != UCS_OK) {
            _exit(1);
        }
        set(ledger, 0, 1, true);
        std::thread([&] {
            while (first_thread_state() != 'Z') {
                usleep(1000);
            }
            (void)!write(pipes[1], "y", 1);
            for (;;) {
                pause();
            }
        }).detach();
        syscall(SYS_exit, 0); /* ends only this thread */
    }

    ASSERT_EQ(1, read(pipes[0], &c, 1));
    EXPECT_EQ(1u, others(a, 0, 1));
    m_now += UCT_CUDA_NODE_LEDGER_STALE;
    (void)others(a, 0, 1);
    EXPECT_EQ(1u, others(a, 0, 1));
    reap(pid);
    m_now += UCT_CUDA_NODE_LEDGER_STALE;
    (void)others(a, 0, 1);
    EXPECT_EQ(0u, others(a, 0, 1));
    ::close(pipes[0]);
    ::close(pipes[1]);
}

TEST_F(test_ledger, too_many_gpus)
{
    uct_cuda_node_ledger_t *ledger;
    uct_cuda_node_ledger_t *a = open(Gpus{1, 2, 3, 4, 5, 6, 7, 8, 9});

    EXPECT_EQ(UCS_ERR_NO_RESOURCE,
              try_open(Gpus{11, 12, 13, 14, 15, 16, 17, 18, 19}, &ledger));
    close(a);
    /* GPUs of processes that have left are forgotten */
    a = open(Gpus{11, 12, 13, 14, 15, 16, 17, 18, 19});
}

TEST_F(test_ledger, garbage)
{
    std::string path = page_path();

    refused(path, "x");
    refused(path, std::string(PLACE_BYTES - 1, '\0'));
    refused(path, std::string(PLACE_BYTES, '\xff'));
    refused(path, std::string(PAGE_BYTES, '\0'));
    refused(path, std::string(1 << 20, 'x'));
}

TEST_F(test_ledger, another_layout)
{
    std::string path = page_path();
    uct_cuda_node_ledger_t *ledger = open(Gpus{1}), *other;
    const std::string good         = content(path);
    char *page                     = page_of(path);

    for (size_t at : {0, 8, 12, 16}) { /* magic, layout, size, GPUs */
        page[at] = (char)(page[at] + 100);
        EXPECT_EQ(UCS_ERR_UNSUPPORTED, try_open(Gpus{1}, &other));
        page[at] = (char)(page[at] - 100);
    }
    shmdt(page);
    close(ledger);

    for (size_t at : {0, 8}) { /* magic, layout */
        std::string bad = good;

        bad[at] = (char)(bad[at] + 100);
        refused(path, bad);
    }
}

/* The owner can truncate a file, which ends processes that map it by SIGBUS.
   Processes with the control block continue; new ones work without it until
   these have left. */
TEST_F(test_ledger, a_truncated_file)
{
    const std::string path  = page_path();
    const std::string other = std::string(PLACE_BYTES, 'x');
    uct_cuda_node_ledger_t *ledger;

    for (const std::string &bytes : {std::string(), other}) {
        uct_cuda_node_ledger_t *a = open(Gpus{1, 2}), *b = open(Gpus{1, 2});

        std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
        set(a, 0, 1, true);
        EXPECT_EQ(1u, others(b, 0, 1));
        EXPECT_EQ(UCS_ERR_UNSUPPORTED, try_open(Gpus{1, 2}, &ledger));
        close(a);
        EXPECT_EQ(0u, others(b, 0, 1));
        close(b);
        EXPECT_TRUE(files().empty());
    }
}

/* The kernel ends a process for writing beyond it */
TEST_F(test_ledger, a_limit_of_file_sizes)
{
    const struct rlimit limit = {PLACE_BYTES - 1, PLACE_BYTES - 1};
    uct_cuda_node_ledger_t *ledger;

    EXPECT_EQ(0, in_child([&] {
        setrlimit(RLIMIT_FSIZE, &limit);
        return try_open(Gpus{1}, &ledger) != UCS_ERR_NO_RESOURCE;
    }));
    EXPECT_TRUE(files().empty());
}

TEST_F(test_ledger, invalid_values_in_a_valid_block)
{
    std::string path               = page_path();
    uct_cuda_node_ledger_t *ledger = open(Gpus{1, 2});
    uct_cuda_plan_load_t load;
    std::string nonsense(PAGE_BYTES, '\0');
    const size_t own = PAGE_BYTES - UCT_CUDA_NODE_LEDGER_MAX_SLOTS * 128;

    for (size_t i = 0; i < nonsense.size(); ++i) {
        nonsense[i] = (char)(i * 2654435761u >> 7);
    }

    /* All but the layout, and the slot of the living process */
    char *page = page_of(path);
    memcpy(page + 20, nonsense.data() + 20, 4);         /* up to the token */
    memcpy(page + 32, nonsense.data() + 32, own - 32);
    memcpy(page + own + 128, nonsense.data() + own + 128,
           PAGE_BYTES - own - 128);
    shmdt(page);

    for (int i = 0; i < 4; ++i) {
        load = {};
        (void)uct_cuda_node_ledger_read(ledger, m_now, &load);
        set(ledger, 0, 1, true, true);
        m_now += UCT_CUDA_NODE_LEDGER_STALE;
    }

    uct_cuda_node_ledger_t *other = open(Gpus{1, 2});
    EXPECT_EQ(0u, others(other, 0, 1)) << "nobody's slots are free again";
}

/* Before the file names the control block; and after, which discards the
   block */
TEST_F(test_ledger, creator_killed)
{
    const std::string path = page_path();
    uct_cuda_node_ledger_t *ledger;

    ::close(::open(path.c_str(), O_CREAT | O_RDWR, 0600));
    for (int i = 0; i < 2; ++i) {
        uct_cuda_node_ledger_t *a = open(Gpus{1, 2}), *b = open(Gpus{1, 2});

        set(a, 0, 1, true);
        EXPECT_EQ(1u, others(b, 0, 1));
        close(a);
        close(b);
        reap(spawn([&] { return try_open(Gpus{1}, &ledger) == UCS_OK; }));
        EXPECT_EQ(PLACE_BYTES, content(path).size());
    }
}

/* Removing a file separates processes that have it from new ones */
TEST_F(test_ledger, a_name_used_by_another_process_stays)
{
    const std::string path         = page_path();
    uct_cuda_node_ledger_t *before = open(Gpus{1, 2, 3});

    unlink(path.c_str());
    uct_cuda_node_ledger_t *after = open(Gpus{1, 2, 3});
    close(before);
    uct_cuda_node_ledger_t *last = open(Gpus{1, 2, 3});
    set(last, 0, 2, true);
    EXPECT_EQ(1u, others(after, 0, 2));
    close(last);
    close(after);
    EXPECT_TRUE(files().empty());
}

TEST_F(test_ledger, foreign_files_are_not_used)
{
    std::string path = page_path();
    uct_cuda_node_ledger_t *ledger;

    /* Readable by others, so another user may have written it */
    ::close(::open(path.c_str(), O_CREAT | O_RDWR, 0644));
    chmod(path.c_str(), 0644);
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, try_open(Gpus{1}, &ledger));
    unlink(path.c_str());

    ASSERT_EQ(0, symlink("elsewhere", path.c_str()));
    EXPECT_EQ(UCS_ERR_IO_ERROR, try_open(Gpus{1}, &ledger));
    unlink(path.c_str());

    ASSERT_EQ(0, mkdir(path.c_str(), 0700));
    EXPECT_EQ(UCS_ERR_IO_ERROR, try_open(Gpus{1}, &ledger));
    rmdir(path.c_str());

    EXPECT_EQ(UCS_ERR_IO_ERROR,
              uct_cuda_node_ledger_open("/nonexistent", Gpus{1}.uuids, 1,
                                        &ledger));
    EXPECT_EQ(UCS_ERR_IO_ERROR,
              uct_cuda_node_ledger_open(std::string(600, 'x').c_str(),
                                        Gpus{1}.uuids, 1, &ledger));
}

TEST_F(test_ledger, lock_that_is_never_released)
{
    std::string path          = page_path();
    uct_cuda_node_ledger_t *a = open(Gpus{1});
    uct_cuda_node_ledger_t *ledger;
    uct_cuda_node_alive_t *alive = lock_page(path);

    EXPECT_EQ(UCS_ERR_BUSY, try_open(Gpus{1}, &ledger));
    close(a);
    uct_cuda_node_alive_close(alive);
}

/* A pause that a signal cuts short must not use up all its patience */
TEST_F(test_ledger, waiting_for_the_lock_survives_signals)
{
    std::string path               = page_path();
    uct_cuda_node_ledger_t *a      = open(Gpus{1});
    uct_cuda_node_ledger_t *ledger = nullptr;
    uct_cuda_node_alive_t *alive   = lock_page(path);
    std::thread other([&] {
        const auto end = std::chrono::steady_clock::now() +
                         std::chrono::milliseconds(12);
        while (std::chrono::steady_clock::now() < end) {
            usleep(100);
        }
        uct_cuda_node_alive_close(alive);
    });

    {
        Ticks ticks;
        EXPECT_EQ(UCS_OK, try_open(Gpus{1}, &ledger));
    }
    other.join();
    if (ledger != nullptr) {
        uct_cuda_node_ledger_close(ledger);
    }
    close(a);
}

/* Processes come, work and go as fast as they can; some are killed */
TEST_F(test_ledger, many_processes_at_once)
{
    uct_cuda_node_ledger_t *a = open(Gpus{1, 2, 3});
    uct_cuda_plan_load_t load;
    std::vector<pid_t> pids;
    uint64_t reads = 0;
    int left       = 8;

    for (int i = 0; i < left; ++i) {
        pid_t pid = fork();
        if (pid == 0) {
            for (int n = 0; n < 200; ++n) {
                uct_cuda_node_ledger_t *ledger;
                ucs_status_t status = try_open(Gpus{3, 2, 1}, &ledger);
                if (status == UCS_ERR_BUSY) {
                    continue;
                } else if (status != UCS_OK) {
                    _exit(2);
                }
                set(ledger, 0, 1, true);
                load = {};
                uct_cuda_node_ledger_read(ledger, (uint64_t)n, &load);
                if (load.active[uct_cuda_plan_link(End(0), End(1))] > 7) {
                    _exit(3);
                }
                if ((i % 2) && (n == 100)) {
                    raise(SIGKILL);
                }
                uct_cuda_node_ledger_close(ledger);
            }
            _exit(0);
        }
        pids.push_back(pid);
    }

    while (left > 0) {
        int wait_status;

        load = {};
        uct_cuda_node_ledger_read(a, 1, &load);
        EXPECT_LE(load.active[uct_cuda_plan_link(End(2), End(1))], 8);
        ++reads;
        if ((reads % 64 == 0) && (waitpid(-1, &wait_status, WNOHANG) > 0)) {
            --left;
            EXPECT_TRUE(WIFSIGNALED(wait_status) ||
                        (WEXITSTATUS(wait_status) == 0))
                    << WEXITSTATUS(wait_status);
        }
    }

    m_now += UCT_CUDA_NODE_LEDGER_STALE;
    (void)uct_cuda_node_ledger_read(a, m_now, &load);
    m_now += UCT_CUDA_NODE_LEDGER_STALE;
    (void)uct_cuda_node_ledger_read(a, m_now, &load);
    EXPECT_EQ(0u, others(a, 2, 1));
    close(a);
    EXPECT_EQ(0u, files().size());
}


/* ------------------------------------------------------------- traffic */

class test_traffic : public test_ledger
{
protected:
    test_traffic() : m_node(4)
    {
    }

    ~test_traffic()
    {
        for (uct_cuda_mp_traffic_t *traffic : m_traffic) {
            uct_cuda_mp_traffic_destroy(traffic);
        }
    }

    uct_cuda_mp_traffic_t *create(const char *dir)
    {
        uct_cuda_mp_traffic_t *traffic;

        EXPECT_EQ(UCS_OK, uct_cuda_mp_traffic_create(dir, &traffic));
        m_traffic.push_back(traffic);
        return traffic;
    }

    static uct_cuda_mp_flow_t flow(int src, int dst, bool is_large = false)
    {
        uct_cuda_mp_flow_t result;

        uct_cuda_mp_flow_single(uct_cuda_plan_link(End(src), End(dst)),
                                64 * MiB, is_large, &result);
        return result;
    }

    uct_cuda_plan_load_t load(uct_cuda_mp_traffic_t *traffic, int src, int dst)
    {
        uct_cuda_plan_load_t result;

        uct_cuda_mp_traffic_load(traffic, End(src), End(dst), &result);
        return result;
    }

    static unsigned on(const uct_cuda_plan_load_t &load, int from, int to)
    {
        return load.active[uct_cuda_plan_link(End(from), End(to))];
    }

    static unsigned direct_on(const uct_cuda_plan_load_t &load, int from,
                              int to)
    {
        return load.direct[uct_cuda_plan_link(End(from), End(to))];
    }

    static void transfer(uct_cuda_mp_traffic_t *traffic,
                         const uct_cuda_mp_flow_t &flow)
    {
        uct_cuda_mp_traffic_begin(traffic, &flow);
        uct_cuda_mp_traffic_end(traffic, &flow);
    }

    FakeNode                            m_node;
    std::vector<uct_cuda_mp_traffic_t*> m_traffic;
};


TEST_F(test_traffic, own_pair_does_not_count)
{
    uct_cuda_mp_traffic_t *a = create(NULL);
    uct_cuda_mp_flow_t there = flow(0, 1);

    uct_cuda_mp_traffic_begin(a, &there);
    uct_cuda_mp_traffic_begin(a, &there);
    EXPECT_EQ(0u, on(load(a, 0, 1), 0, 1));
    EXPECT_EQ(1u, on(load(a, 1, 0), 0, 1));
    EXPECT_FALSE(load(a, 0, 1).is_known);
    uct_cuda_mp_traffic_end(a, &there);
    EXPECT_EQ(1u, on(load(a, 2, 1), 0, 1));
    uct_cuda_mp_traffic_end(a, &there);
}

TEST_F(test_traffic, directed_links_of_a_plan)
{
    uct_cuda_mp_traffic_t *a = create(m_dir.c_str());
    uct_cuda_mp_traffic_t *b = create(m_dir.c_str());
    uct_cuda_plan_t plan;
    uct_cuda_mp_flow_t there;
    Config config;

    config.set("_PATHS", "direct,gpu2,host");
    uct_cuda_topo_t topo = beluga();
    uct_cuda_plan_make(Know(topo, config), End(0), End(1), 64 * MiB, &plan);
    ASSERT_EQ(3u, plan.num_paths);
    uct_cuda_mp_flow_of_plan(&plan, plan.size, &there);
    EXPECT_EQ(5u, there.num_links);

    EXPECT_TRUE(load(a, 0, 1).is_known);
    uct_cuda_mp_traffic_begin(a, &there);
    uct_cuda_plan_load_t seen = load(b, 1, 0);
    EXPECT_TRUE(seen.is_known);
    for (std::pair<int, int> link :
         {std::make_pair(0, 1), std::make_pair(0, 2), std::make_pair(2, 1),
          std::make_pair(0, HOST), std::make_pair(HOST, 1)}) {
        EXPECT_EQ(1u, on(seen, link.first, link.second));
    }
    EXPECT_EQ(0u, on(seen, 1, 0));
    uct_cuda_mp_traffic_end(a, &there);
}

TEST_F(test_traffic, windows_are_as_they_were)
{
    uct_cuda_mp_traffic_t *a = create(NULL);
    uct_cuda_topo_t topo     = hgx();
    uct_cuda_plan_t plan;
    uct_cuda_mp_flow_t there;

    uct_cuda_plan_make(Know(topo, Config()), End(HOST), End(1), 64 * MiB,
                       &plan);
    ASSERT_EQ(4u, plan.num_paths);
    uct_cuda_mp_flow_of_plan(&plan, plan.size, &there);

    EXPECT_EQ(1u, load(a, -1, 1).window);
    for (unsigned count = 1; count <= 3; ++count) {
        uct_cuda_mp_traffic_begin(a, &there);
        uct_cuda_plan_load_t seen = load(a, -1, 1);
        EXPECT_EQ(count, seen.queued);
        EXPECT_EQ(count + 1, seen.window);
        for (unsigned i = 0; i < plan.num_steps; ++i) {
            unsigned path = plan.steps[i].part;
            EXPECT_EQ(count * plan.paths[path].bytes,
                      seen.ahead[plan.steps[i].queue]);
        }
        EXPECT_EQ(1u, load(a, 1, -1).window) << "the other way";
    }

    /* The last but one may end meanwhile: there are four in total */
    uct_cuda_mp_traffic_end(a, &there);
    uct_cuda_mp_traffic_begin(a, &there);
    EXPECT_EQ(5u, load(a, -1, 1).window);
    for (int i = 0; i < 3; ++i) {
        uct_cuda_mp_traffic_end(a, &there);
    }

    uct_cuda_plan_load_t seen = load(a, -1, 1);
    EXPECT_EQ(4u, seen.window) << "as the last one was";
    EXPECT_EQ(0u, seen.ahead[uct_cuda_plan_link(End(HOST), End(1))]);

    /* The old value is used until the next one ends as well */
    uct_cuda_mp_traffic_begin(a, &there);
    EXPECT_EQ(4u, load(a, -1, 1).window);
    uct_cuda_mp_traffic_end(a, &there);
    EXPECT_EQ(1u, load(a, -1, 1).window);
}

/* A flow counts as direct only if the link joins its ends */
TEST_F(test_traffic, relays_and_direct_paths_are_distinguished)
{
    uct_cuda_mp_traffic_t *a = create(m_dir.c_str());
    uct_cuda_mp_traffic_t *b = create(m_dir.c_str());
    uct_cuda_mp_flow_t direct = flow(0, 1);
    uct_cuda_mp_flow_t both   = flow(0, 1);
    uct_cuda_mp_flow_t other  = flow(0, 2);

    both.links[1]  = uct_cuda_plan_link(End(0), End(2));
    both.links[2]  = uct_cuda_plan_link(End(2), End(1));
    both.num_links = 3;

    (void)load(a, 0, 1);
    (void)load(b, 0, 1);
    uct_cuda_mp_traffic_begin(a, &both);
    for (uct_cuda_mp_traffic_t *traffic : {a, b}) { /* known from the process
                                                       itself, and from the
                                                       ledger */
        uct_cuda_plan_load_t seen = load(traffic, 1, 0);
        EXPECT_EQ(1u, on(seen, 0, 2));
        EXPECT_EQ(0u, direct_on(seen, 0, 2));
        EXPECT_EQ(1u, on(seen, 2, 1));
        EXPECT_EQ(0u, direct_on(seen, 2, 1));
        EXPECT_EQ(1u, on(seen, 0, 1));
        EXPECT_EQ(1u, direct_on(seen, 0, 1));
    }

    uct_cuda_mp_traffic_begin(a, &other);
    EXPECT_EQ(1u, direct_on(load(a, 1, 0), 0, 2));
    EXPECT_EQ(1u, direct_on(load(b, 1, 0), 0, 2));
    EXPECT_EQ(0u, direct_on(load(a, 0, 2), 0, 2)) << "its own";
    uct_cuda_mp_traffic_end(a, &other);
    EXPECT_EQ(1u, on(load(b, 1, 0), 0, 2));
    EXPECT_EQ(0u, direct_on(load(b, 1, 0), 0, 2)) << "the relay is left";

    uct_cuda_mp_traffic_begin(a, &direct);
    uct_cuda_mp_traffic_end(a, &both);
    EXPECT_EQ(1u, direct_on(load(b, 1, 0), 0, 1)) << "one of two has ended";
    uct_cuda_mp_traffic_end(a, &direct);
    EXPECT_EQ(0u, on(load(b, 1, 0), 0, 1));
    EXPECT_EQ(0u, direct_on(load(b, 1, 0), 0, 1));
}

/* Two processes exchange messages, then compute: in the pause the other one
   still counts, for transfers between the same ends. */
TEST_F(test_traffic, contention_counts_after_a_pause)
{
    uct_cuda_mp_traffic_t *a = create(m_dir.c_str());
    uct_cuda_mp_traffic_t *b = create(m_dir.c_str());
    uct_cuda_mp_flow_t there = flow(0, 1, true);
    uct_cuda_mp_flow_t back  = flow(1, 0, true);

    (void)load(a, 0, 1);
    (void)load(b, 1, 0);
    uct_cuda_mp_traffic_begin(a, &there);
    transfer(b, back);
    uct_cuda_mp_traffic_end(a, &there);

    usleep(3 * UCT_CUDA_MP_HISTORY_INTERVAL / 1000);
    EXPECT_EQ(1u, on(load(b, 1, 0), 0, 1));
    EXPECT_EQ(1u, direct_on(load(b, 1, 0), 0, 1));
    EXPECT_EQ(0u, on(load(b, 2, 0), 0, 1)) << "nobody was met on the way there";
    EXPECT_EQ(0u, on(load(a, 0, 1), 1, 0)) << "when a ended b had";

    /* One interval alone is chance, two in a row are not */
    for (unsigned expected : {1, 0}) {
        usleep(2 * UCT_CUDA_MP_HISTORY_INTERVAL / 1000);
        transfer(b, back);
        EXPECT_EQ(expected, on(load(b, 1, 0), 0, 1));
    }
}

/* The same process begins and ends each exchange, and never finds the other
   one's transfer in flight. MPI ranks stay in this order, since the one with
   the late message begins the next exchange first. Every second transfer of the
   other process lies within the first one's. */
TEST_F(test_traffic, the_first_and_last_process_is_crossed_too)
{
    uct_cuda_mp_traffic_t *a = create(m_dir.c_str());
    uct_cuda_mp_traffic_t *b = create(m_dir.c_str());
    uct_cuda_mp_flow_t there = flow(0, 1, true);
    uct_cuda_mp_flow_t back  = flow(1, 0, true);

    (void)load(a, 0, 1);
    (void)load(b, 1, 0);
    for (int i = 0; i < 5; ++i) {
        uct_cuda_mp_traffic_begin(a, &there);
        transfer(b, back);
        uct_cuda_mp_traffic_end(a, &there);
        EXPECT_EQ(0u, load(a, 0, 1).uncrossed);
        EXPECT_EQ(0u, load(b, 1, 0).uncrossed);
    }
}

/* The same for two pairs of one process, and for a ring */
TEST_F(test_traffic, crossing_is_seen_in_one_process_and_in_rings)
{
    uct_cuda_mp_traffic_t *a   = create(m_dir.c_str());
    uct_cuda_mp_traffic_t *b   = create(m_dir.c_str());
    uct_cuda_mp_flow_t there   = flow(0, 1, true);
    uct_cuda_mp_flow_t onwards = flow(1, 2, true);
    uct_cuda_mp_flow_t beside  = flow(3, 2, true);
    uct_cuda_mp_flow_t before  = flow(3, 0, true);

    (void)load(b, 0, 1);
    for (unsigned i = 0; i < 5; ++i) {
        EXPECT_EQ(i * 64 * MiB, load(a, 0, 1).uncrossed);
        uct_cuda_mp_traffic_begin(a, &there);
        transfer(b, beside);
        uct_cuda_mp_traffic_end(a, &there);
        if (i % 2) {
            /* a transfer between two others crosses neither */
            transfer(b, before);
        }
    }
    EXPECT_EQ(5 * 64 * MiB, load(a, 0, 1).uncrossed);

    for (uct_cuda_mp_traffic_t *other : {a, b}) {
        for (const uct_cuda_mp_flow_t &crossing : {onwards, before}) {
            transfer(a, there);
            EXPECT_LT(0u, load(a, 0, 1).uncrossed);
            uct_cuda_mp_traffic_begin(a, &there);
            transfer(other, crossing);
            uct_cuda_mp_traffic_end(a, &there);
            EXPECT_EQ(0u, load(a, 0, 1).uncrossed);
        }
    }
}

/* In a window the transfers in flight count as crossed, and no later ones */
TEST_F(test_traffic, crossed_transfers_of_a_window)
{
    uct_cuda_mp_traffic_t *a = create(m_dir.c_str());
    uct_cuda_mp_traffic_t *b = create(m_dir.c_str());
    uct_cuda_mp_flow_t there = flow(0, 1, true);
    uct_cuda_mp_flow_t back  = flow(1, 0, true);
    unsigned i;

    (void)load(b, 1, 0);
    for (i = 0; i < 3; ++i) {
        uct_cuda_mp_traffic_begin(a, &there);
    }
    transfer(b, back);
    uct_cuda_mp_traffic_begin(a, &there);
    for (i = 0; i < 3; ++i) {
        uct_cuda_mp_traffic_end(a, &there);
        EXPECT_EQ(0u, load(a, 0, 1).uncrossed) << i;
    }

    /* A continuous stream of messages */
    for (i = 1; i < 5; ++i) {
        transfer(a, there);
        EXPECT_EQ(i * 64 * MiB, load(a, 0, 1).uncrossed);
    }
    uct_cuda_mp_traffic_end(a, &there);
}

/* One direction, then the other: never both at once */
TEST_F(test_traffic, ping_pong_has_no_contention)
{
    uct_cuda_mp_traffic_t *a = create(m_dir.c_str());
    uct_cuda_mp_traffic_t *b = create(m_dir.c_str());
    uct_cuda_mp_flow_t there = flow(0, 1, true);
    uct_cuda_mp_flow_t back  = flow(1, 0, true);

    for (int i = 0; i < 10; ++i) {
        EXPECT_EQ(0u, on(load(a, 0, 1), 1, 0));
        transfer(a, there);
        EXPECT_EQ(0u, on(load(b, 1, 0), 0, 1));
        transfer(b, back);
    }
}

/* Another process held the lock for longer than this one waits */
TEST_F(test_traffic, a_busy_ledger_is_tried_again)
{
    const std::string path    = page_path();
    uct_cuda_node_ledger_t *a = open(Gpus{1, 2, 3, 4});
    uct_cuda_mp_traffic_t *traffic;
    uct_cuda_node_alive_t *alive = lock_page(path);

    traffic = create(m_dir.c_str());
    EXPECT_FALSE(load(traffic, 0, 1).is_known);
    uct_cuda_node_alive_close(alive);
    EXPECT_FALSE(load(traffic, 0, 1).is_known) << "not with every transfer";
    usleep(250000);
    EXPECT_TRUE(load(traffic, 0, 1).is_known);
    close(a);
}
