# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# The benchmark of all-reduces (test/omb/allreduce) and the programs of
# test/byhand: arithmetic and page, and a small run on an emulated node.

allreduce_page() {
    python3 "$ucx_mp_top/test/omb/test_allreduce"
}

allreduce_emulated() {
    local out=$ucx_mp_build/log/allreduce
    have mpirun || { skip "no mpirun"; return; }
    rm -rf "$out"
    "$ucx_mp_top/test/omb/allreduce" --emulate hgx-h200 --sizes 8,1M \
        --types double --places out --turns 1 --rounds 1 \
        --json "$out/a.json" --page "$out/a.md" \
        --launcher "$ucx_mp_prefix/bin/ucx_mp_run" \
        --programs "$ucx_mp_build/main/test/mpi" || return
    python3 - "$out/a.json" <<'END'
import json
import sys
data = json.load(open(sys.argv[1]))
got = sorted((item['way'], item['size']) for item in data['samples'])
assert got == [(way, size) for way in ('copies', 'kernel', 'ours', 'staged')
               for size in (8, 1 << 20)], got
assert all(item['checked'] for item in data['samples'])
END
}

# byhand_run PROGRAM OPTION...: its bytes are right
byhand_run() {
    passing_on '^ +[1-9][0-9]* .* right' \
        "$ucx_mp_prefix/bin/ucx_mp_run" --emulate mist \
        "$ucx_mp_build/main/test/byhand/$1" --samples 1 --time 1 "${@:2}"
}

# byhand_answers NAME PROGRAM...: the emulated driver answers as two H200 did
byhand_answers() {
    local out=$ucx_mp_build/log/$1.txt
    "$ucx_mp_prefix/bin/ucx_mp_run" --quiet --emulate h200-x2 "${@:2}" \
        >"$out" && diff "$out" "$ucx_mp_top/test/byhand/$1-h200.txt"
}

byhand_all() {
    byhand_run allreduce --sizes 8,72,1M --way copies --place out &&
        byhand_run allreduce --sizes 8,72,256K --way kernel &&
        byhand_run host_to_gpu --sizes 1M --links 4 --chunk 48K &&
        byhand_run host_to_gpu --sizes 14M --links 2 --chunk 1M \
            --direction to-host &&
        byhand_run peer_copy --sizes 1M --directions both --window 3 &&
        byhand_run peer_copy --sizes 64K --window 5 --by batch &&
        byhand_run peer_copy --sizes 64K --directions both --buffers 2 \
            --engine destination &&
        byhand_run own_process --sizes 1M --way push &&
        byhand_run staged_copy --sizes 3M --chunk 512K --slots 2 &&
        byhand_run staged_copy --sizes 1M --way driver &&
        byhand_run pageable --sizes 1M --way staged &&
        byhand_run pageable --sizes 1M --way across --direction to-host &&
        byhand_run blocks --blocks 9 --group 4 --streams 2 --way batch &&
        byhand_run blocks --blocks 9 --group 4 --parts 2 --way kernel &&
        byhand_answers reach "$ucx_mp_build/main/test/byhand/reach" &&
        byhand_answers pointers "$ucx_mp_top/test/byhand/pointers" &&
        passing_on '^process_vm_readv locked +1048576 ' \
            "$ucx_mp_prefix/bin/ucx_mp_run" --emulate h200-x2 \
            "$ucx_mp_build/main/test/byhand/host_copies" --rounds 2 &&
        passing_on '^  context on GPU 1 ' \
            "$ucx_mp_prefix/bin/ucx_mp_run" --emulate mist \
            "$ucx_mp_build/main/test/byhand/setup" --gpus 1
}

step allreduce-page quick 30 allreduce_page \
     "test/omb/allreduce: plans, ratios, file, page"
step allreduce-emulated full 60 allreduce_emulated \
     "test/omb/allreduce: each way on hgx-h200, results compared"
step by-hand-programs full 60 byhand_all \
     "test/byhand: all-reduces, host memory, peers' copies, small blocks"
modelled allreduce-emulated
