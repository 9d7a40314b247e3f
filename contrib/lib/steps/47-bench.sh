# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# The benchmark of a real node (test/omb/bench): its arithmetic and its page, and one
# pair of runs on an emulated node. Modelled.

bench_page() {
    python3 "$ucx_mp_top/test/omb/test_bench"
}

# contrib/omb with a replacement for OSU's archive
omb() {
    have mpicc || { skip "no mpicc"; return; }
    wheel_folder cu12 libucx-cu12==1.22.0 ||
        { skip "no libucx-cu12 1.22.0"; return; }
    UCX_MP_RUN=$ucx_mp_prefix/bin/ucx_mp_run UCX_MP_BUILD=$ucx_mp_build \
        python3 "$ucx_mp_top/test/omb/test_osu"
}

front_page() {
    python3 "$ucx_mp_top/test/omb/test_front"
}

# Make every page of figures again from the data files beside it
pages() {
    local top=$ucx_mp_top page dir
    dir=$ucx_mp_build/log/pages
    rm -rf "$dir" && mkdir -p "$dir"
    for page in h200-x2-40 h200-x2-92; do
        "$top/test/omb/bench" --merge "$top/docs/results/$page.json" \
            --page "$dir/$page.md" >/dev/null 2>&1 || return
    done
    "$top/test/omb/allreduce" --from \
        "$top"/docs/results/collectives-{2,4}.json \
        --page "$dir/collectives.md" >/dev/null 2>&1 || return
    # 1: there is no direct measurement for dgx1, as its file says
    "$top/test/omb/allreduce" --from \
        "$top"/docs/results/collectives-{beluga,narval,mist,cedar}.json \
        "$top"/docs/results/collectives-{dgx1,hgx-h200}.json \
        --page "$dir/collectives-modelled.md" >/dev/null 2>&1 ||
        [ $? = 1 ] || return
    if [ -e "$top/docs/results/papers-plans.json" ]; then
        python3 "$top/test/omb/plans_page.py" \
            "$top"/docs/results/{papers-plans,sensitivity,setup}.json \
            "$dir/papers-plans.md" >/dev/null 2>&1 || return
    fi
    if [ -e "$top/docs/results/papers-rows.json" ]; then
        python3 "$top/test/omb/papers_page.py" \
            "$top/docs/results/papers-rows.json" "$dir/papers.md" --no-plots ||
            return
    fi
    if [ -e "$top/docs/results/emulator.json" ]; then
        "$top/test/omb/emulator_page.py" \
            "$top/docs/results/emulator.json" \
            "$dir/emulator.md" "$top/docs/results/h200-x2-40.json" \
            "$top/docs/results/h200-x2-40-4e91233.json" >/dev/null || return
    fi
    if [ -e "$top/docs/results/osu.json" ]; then
        "$top/test/omb/osu_beside" --from "$top/docs/results/osu.json" \
            --page "$dir/osu.md" >/dev/null || [ $? = 1 ] || return
    fi
    cp "$top/docs/results/jacobi.json" "$dir" &&
        python3 "$top/examples/jacobi/figure_page.py" "$dir/jacobi.json" \
            "$dir/jacobi.md" || return
    cp "$top/docs/results/gradients.json" "$dir" &&
        "$top/examples/gradients/figure" --only-page \
            --json "$dir/gradients.json" --page "$dir/gradients.md" || return
    for page in "$dir"/*; do
        cmp "$page" "$top/docs/results/${page##*/}" || return
    done
    ls "$dir"
}

# Make a pair of runs of each in one go, another one in a second, and one page of both.
# Three relays on beluga give a ratio far from 1: 64 MiB are 2.7 times as fast.
bench_emulated() {
    local out=$ucx_mp_build/log/bench
    wheel_folder cu12 libucx-cu12==1.22.0 ||
        { skip "no libucx-cu12 1.22.0"; return; }
    have mpirun || { skip "no mpirun"; return; }
    rm -rf "$out"
    bench_run() {
        "$ucx_mp_top/test/omb/bench" --emulate beluga --sizes 64M \
            --json "$out/bench.json" --wheel "$ucx_mp_deps/cu12" \
            --launcher "$ucx_mp_prefix/bin/ucx_mp_run" \
            --programs "$ucx_mp_build/main/test/mpi" "$@"
    }
    bench_run --only put/DD/1,bw/DD/1 --pairs 1 || return
    # a file keeps its plan
    bench_run --only bw/DD/1 --pairs 2 --resume && return 1
    bench_run --only put/DD/1,bw/DD/1 --pairs 2 --resume \
        --page "$out/bench.md" || return
    python3 - "$out/bench.json" "$out/bench.md" <<'END'
import json
import sys
samples = json.load(open(sys.argv[1]))['samples']
got = sorted((item['benchmark'], item['variant']) for item in samples)
assert got == sorted(2 * [('put', 'stock'), ('put', 'ours'),
                          ('bw', 'stock'), ('bw', 'ours')]), got
late = [item['error'] for item in samples if 'error' in item]
if late:
    print(late[0])
    sys.exit(77 if all(' late' in item for item in late) else 1)
value = {name: max(item['value'] for item in samples
                   if (item['benchmark'], item['variant']) == name)
         for name in got}
for benchmark, seen in (('put', 2.78), ('bw', 2.74)):
    ratio = value[benchmark, 'ours'] / value[benchmark, 'stock']
    print('%s: %.2f times stock' % (benchmark, ratio))
    assert abs(ratio / seen - 1) < 0.05, ratio
page = open(sys.argv[2]).read()
assert page.startswith('# Ours against stock on the emulated beluga'), page
assert '0 of them lose' in page, page
END
}

step pages quick 30 pages \
     "pages of figures agree with their files"
step front-page quick 10 front_page \
     "figures of README and of pages in docs/results agree with their files"
step bench-page quick 30 bench_page \
     "test/omb/bench: intervals, verdicts, pairs, files, page"
step omb full 60 omb \
     "contrib/omb builds OSU's programs and compares both modules"
step bench-emulated full 120 bench_emulated \
     "test/omb/bench: an interrupted and resumed run on beluga"
modelled bench-emulated
