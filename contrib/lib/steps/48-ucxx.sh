# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# UCXX's Python API on an emulated node: GPU arrays there and back, with the
# module and with the wheel's own, every byte compared (contrib/ucxx/bench).

ucxx_arrays() {
    wheel_folder ucxx ucxx-cu13==0.52.0 libucxx-cu13==0.52.0 \
        libucx-cu13==1.21.0 rmm-cu13==26.10.0 librmm-cu13==26.10.0 \
        rapids-logger==0.3.0 cuda-bindings==13.5.0 cuda-core==1.2.2 \
        cuda-pathfinder==1.9.0 nvidia-ml-py==13.615.71 ||
        { skip "no ucxx-cu13"; return; }
    wheel_folder numpy numpy || { skip "no numpy"; return; }
    PYTHONPATH=$ucx_mp_deps/ucxx:$ucx_mp_deps/numpy:${PYTHONPATH-} \
        passing_on '^ +4194304 +[1-9].*x$' \
        "$ucx_mp_top/contrib/ucxx/bench" --emulate hgx-h200 --sizes 2M:4M \
        --rounds 1 --repeat 2 --launcher "$ucx_mp_prefix/bin/ucx_mp_run"
}

step ucxx full 120 ucxx_arrays \
     "UCXX sends and receives GPU arrays"
