#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Run the ucx_perftest of a UCX wheel, unmodified and with its own CUDA module,
# between two processes of the emulated node:
#
#   stock_ucx.sh FOLDER [LIB]
#
# FOLDER contains PyPI's libucx-cu12 or libucx-cu13, unpacked (libucx/ and
# libucx_cu12.libs/). LIB contains the emulated libraries (default: $CUEMU_LIB).
# Fails unless the memory hooks work and 64 MiB move within 3 % of the link's 48
# GB/s. Figures are modelled, not measured.

wheel=${1:?usage: stock_ucx.sh FOLDER [LIB]}
lib=${2:-${CUEMU_LIB:?the folder with the emulated libraries}}
node=${CUEMU_NODE:-beluga}
link=${CUEMU_TEST_LINK:-48}
perftest=$wheel/libucx/bin/ucx_perftest

fail() {
    echo "stock_ucx: $*" >&2
    exit 1
}

[ -x "$perftest" ] || chmod +x "$perftest" 2>/dev/null
[ -x "$perftest" ] || fail "no program at $perftest"

# The runtime library under the name required by this wheel
cudart=$(cd "$wheel"/libucx_cu1?.libs 2>/dev/null && ls | grep ^libcudart)
[ -n "$cudart" ] || fail "no libcudart beside $wheel/libucx"

session=$(mktemp -d /dev/shm/cuemu-stock-XXXXXX) || exit 1
server=
cleanup() {
    [ -z "$server" ] || kill "$server" 2>/dev/null
    rm -rf "$session"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

if [ ! -e "$lib/$cudart" ]; then
    "$lib/cuemu_cudart_name" "$cudart" "$session" >/dev/null || exit 1
    cudart=$session/$cudart
else
    cudart=$lib/$cudart
fi

emulated() {
    env CUEMU_SESSION="$session" CUEMU_NODE="$node" \
        LD_LIBRARY_PATH="$lib:$wheel/libucx/lib" \
        LD_PRELOAD="$lib/libcuemu_preload.so $cudart" \
        UCX_TLS="${UCX_TLS:-cuda_copy,cuda_ipc,sm,tcp,self}" \
        UCX_MEM_BISTRO_GRACE_DURATION=1ms "$@"
}

# perf BYTES ITERATIONS: prints the average rate in GB/s (10^9)
perf() {
    port=$((20000 + $$ % 12600 + $2 % 97)) # below those that the system gives
    emulated timeout 300 "$perftest" -t ucp_put_bw -m cuda,cuda -s "$1" \
        -n "$2" -w 3 -p "$port" >"$session/server.log" 2>&1 &
    server=$!
    sleep 1
    emulated timeout 300 "$perftest" -t ucp_put_bw -m cuda,cuda -s "$1" \
        -n "$2" -w 3 -p "$port" -f 127.0.0.1 >"$session/client.log" 2>&1 || {
        cat "$session/server.log" "$session/client.log" >&2
        fail "ucx_perftest failed with $1 bytes"
    }
    wait "$server"
    server=
    awk 'NF >= 8 && $1 + 0 > 0 {rate = $5}
         END {printf "%.2f\n", rate * 1048576 / 1e9}' "$session/client.log"
}

# Check that the hooks were installed and the copies used cuda_ipc
UCX_MEM_LOG_LEVEL=debug emulated timeout 60 "$perftest" -t ucp_put_bw \
    -m cuda,cuda -s 8 -n 1 -w 0 -p $((40000 + $$ % 20000)) -l \
    >"$session/hooks.log" 2>&1
for name in cuMemAlloc cuMemAlloc_v2 cuMemFree cuMemFree_v2; do
    grep -q "installed bistro hook for '$name'" "$session/hooks.log" || {
        cat "$session/hooks.log" >&2
        fail "the memory hook for $name is not there"
    }
done
echo "memory hooks: bistro"

sizes=${CUEMU_TEST_SIZES:-1 4 16 64 256}
for mib in $sizes; do
    iterations=$((6400 / mib))
    [ $iterations -le 400 ] || iterations=400
    rate=$(perf $((mib * 1048576)) $iterations) || exit 1
    echo "$mib MiB: $rate GB/s (modelled, $node, single path)"
    if [ "$mib" = 64 ]; then
        awk -v r="$rate" -v l="$link" \
            'BEGIN {exit !(r >= l * 0.97 && r <= l * 1.03)}' ||
            fail "$rate GB/s is more than 3 % away from $link GB/s"
    fi
done
