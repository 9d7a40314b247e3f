# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# The Python package; and the wheel as a user would use it: made, installed into
# an empty environment beside a UCX from PyPI, and run from there.

# wheel_tag WHEEL: its name contains the glibc found in it by auditwheel
wheel_tag() {
    wheel_venv auditwheel || { skip "no auditwheel"; return; }
    passing_on "constrains the platform tag to \"$(
            sed 's/.*-none-\(.*\)\.whl/\1/' <<< "$1")\"" \
        "$ucx_mp_deps/venv/bin/auditwheel" show "$1"
}

# wheel_used: from "pip install" to the first checked message, with the time
wheel_used() {
    local venv=$ucx_mp_build/wheel-venv wheel began libucp
    "$ucx_mp_top/contrib/wheel" --no-install || return
    wheel=$(ls "$ucx_mp_build"/dist/ucx_cuda_multipath-*_"$(uname -m)".whl) &&
        wheel_tag "$wheel" || return
    rm -rf "$venv"
    python3 -m venv "$venv" || return

    began=$(date +%s%N)
    # shellcheck disable=SC2046
    "$venv/bin/python" -m pip install $(wheel_source) --quiet \
        --disable-pip-version-check "$wheel" libucx-cu12==1.22.0 || return
    pages_in "$venv/share" || return
    libucp=$(echo "$venv"/lib/python3.*/site-packages/libucx/lib/libucp.so.0)
    passing_on '"kind": "gpu-gpu"' \
        "$venv/bin/ucx_mp_run" --emulate beluga --ucx "$libucp" \
        "$venv/bin/python" -m ucx_mp._transfer "$libucp" gpu-gpu || return
    say "pip install to the first checked message:" \
        "$(( ($(date +%s%N) - began) / 1000000 )) ms (60000 at most)"
    [ $(( ($(date +%s%N) - began) / 1000000 )) -le 60000 ] || return

    # and MPI's programs with the wheel's module
    passing_on '^speedup: [1-9]' "$ucx_mp_top/contrib/demo" --no-install \
        --sizes 16M:32M --run "$venv/bin/ucx_mp_run"
}

# the package as installed by "make install", under each available UCX
python_tests() {
    UCX_MP_PREFIX=$ucx_mp_prefix UCX_MP_BUILD=$ucx_mp_build \
        passing_on '[1-9][0-9]* passed' "$ucx_mp_top/test/python/run"
}

step python full 180 python_tests "ucx_mp.enable() before, after and without UCX"
step wheel full 600 wheel_used "the Python wheel in an empty environment"
wide wheel

# mesh_kit_alone: it writes to a device, and through a symbolic link; and a result
# names neither the host nor the user
mesh_kit_alone() {
    PYTHONPATH=$ucx_mp_top/contrib/lib HOME=/home/someone LOGNAME=someone \
        python3 - "$ucx_mp_build/mesh-kit" <<'PYTHON'
import os, socket, stat, sys, types
import mesh_kit
folder = sys.argv[1]
file, link, pipe = (os.path.join(folder, name) for name in ('f', 'l', 'p'))
os.symlink(file, link)
mesh_kit.Result(link, {'a': 1}).save()
assert os.path.islink(link) and os.path.getsize(file) > 0
os.mkfifo(pipe)
reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
mesh_kit.Result(pipe, {'a': 1}).save()
assert stat.S_ISFIFO(os.stat(pipe).st_mode) and b'"a": 1' in os.read(reader, 99)

host = socket.gethostname()
kit = types.SimpleNamespace(libucp='', program='', launch=lambda *_: (
    1, '', '[%s:7] /home/someone/x: %s\n' % (host, 'someone, someones')))
row = mesh_kit.run_start(kit, (0, 1), mesh_kit.VARIANTS[0], [4], 5)
assert row['error'] == '[HOST:7] $HOME/x: USER, someones', row
assert row['log'].strip() == row['error'], row

# rates of two rounds; the start of the default settings in the second one failed
cell = ['one', 1 << 20, 1]
rows = [{'pair': [0, 1], 'variant': name, 'round': number, 'cells': [
             {'cell': cell, 'wrong': 0, 'seconds': [(1 << 20) / rate / 1e9]}]}
        for name, rates in (('stock', [5]), ('stock-get', [10, 20]),
                            ('ours', [20, 10]))
        for number, rate in enumerate(rates)]
lines, _ = mesh_kit.summarize({
    'pairs': [[0, 1]], 'rounds': 2, 'cells': [cell], 'starts': rows,
    'variants': [{'name': name} for name in ('stock', 'stock-get', 'ours')]})
assert lines[3].split()[-4:] == ['4.000', '(4.000..4.000)',
                                 '1.250', '(0.500..2.000)'], lines
PYTHON
}

# mesh_kit_used: the kit, from one file in an empty folder, on an emulated mesh; and a
# result with a wrong byte is reported
mesh_kit_used() {
    local folder=$ucx_mp_build/mesh-kit
    rm -rf "$folder"
    mkdir -p "$folder"
    mesh_kit_alone || return
    "$ucx_mp_top/contrib/mesh-kit" --no-install --output "$folder/mesh-kit.pyz" ||
        return
    cd "$folder" || return
    passing_on ': 36 starts$' python3 mesh-kit.pyz --emulate cedar --plan ||
        return
    python3 mesh-kit.pyz --emulate cedar --plan > plan || return
    grep -m1 '^round 2' plan | grep stock-put > /dev/null ||
        { echo "round 2 begins with another variant"; return 1; }
    passing_on '^2 starts, 0 failed; samples with a wrong byte: 0$' \
        python3 mesh-kit.pyz --emulate cedar --quick --output result.json ||
        return
    sed -i '0,/"wrong": 0/s//"wrong": 1/' result.json
    passing_on 'samples with a wrong byte: 1$' \
        python3 mesh-kit.pyz --show result.json
}

step mesh-kit full 600 mesh_kit_used "the mesh kit on an emulated node"
after mesh-kit wheel
