# SPDX-License-Identifier: BSD-3-Clause
"""Emulated nodes: settings for one node or several."""

import glob
import os
import shlex
import subprocess
import sys

from . import DEFAULT_SLOWDOWN, MISSING, SetupError
from .find import contains, is_elf, linked, linked_libraries, word_after
from .folders import matches, state, step_folder, temporary_folder
from .settings import allows

FIRST_UCX_WITH_GRACE_DURATION = (1, 21)
BISTRO_GRACE_US = 50000         # UCX's default
EMULATOR_PRELOAD = 'libcuemu_preload.so'


def slowdown_of(text):
    """Return the factor in the option's text, or in the variable if None."""
    name = '--slowdown'
    if text is None:
        name, text = 'CUEMU_SLOWDOWN', (os.environ.get('CUEMU_SLOWDOWN') or
                                        DEFAULT_SLOWDOWN)
    try:
        factor = float(text)
    except ValueError:
        factor = 0
    if not 0.01 <= factor <= 1e6:
        raise SetupError('%s: %s is not a factor from 0.01 to 1000000'
                         % (name, text))
    return factor


def number_of_ranks(target):
    if target.launcher is None:
        tasks = os.environ.get('SLURM_STEP_NUM_TASKS', '')
        return int(tasks) if tasks.isdigit() else 2
    # srun's -c is its cores of a rank
    names = ['-n', '-np', '--np', '--ntasks'] + ['-c'] * (
        os.path.basename(target.command[target.launcher]) != 'srun')
    count = sum(int(word) for words in target.launchers_words()
                for word in word_after(words, *names) if word.isdigit())
    return count or os.cpu_count() or 1


def has_static_runtime(path, environ):
    """Return whether NVIDIA's runtime library seems to be linked statically,
    without the symbols needed to redirect it to the emulated one."""
    if linked(linked_libraries(path, environ), 'libcudart')[0] or (
            os.uname().machine == 'x86_64' and
            contains(path, b'\0__cudaGetKernel\0')):
        return False
    return contains(path, b'cuGetExportTable') and contains(path,
                                                            b'libcuda.so.1')


def static_runtime(path):
    return ("%s has NVIDIA's CUDA runtime linked in statically and no symbol "
            'table, so that the emulated one cannot take its place; keep the '
            'symbols (no strip, no -s), or link with -cudart shared' % path)


def set_runtime_libraries(settings, install, target):
    """Make wheels load the emulated runtime. They ask for libcudart by a name
    of their own at a fixed path; only a preloaded library of this name replaces
    it."""
    if target.ucx.libucs == MISSING:
        return
    folder = os.path.dirname(os.path.realpath(target.ucx.libucs))
    package = os.path.dirname(os.path.dirname(folder))
    names = {os.path.basename(path)
             for path in matches(folder, 'libcudart-*.so*') +
             matches(package, '*.libs', 'libcudart-*.so*')}
    for name in sorted(names):
        path = os.path.join(install.cuemu_dir, name)
        if not os.path.exists(path):
            path = runtime_of_name(install, name)
        if path is not None:
            settings.front('LD_PRELOAD', path, 'the wheel asks for the CUDA '
                           'runtime by this name')
        else:
            settings.note("the emulator has no %s, the CUDA runtime's name "
                          "in this UCX's CUDA modules: memory hooks and "
                          'ucx_perftest -m cuda will not work' % name)


def runtime_of_name(install, name):
    """Return a copy of the emulated runtime with this name, or None."""
    maker = os.path.join(install.cuemu_dir, 'cuemu_cudart_name')
    if not os.path.exists(maker):
        return None
    folder = temporary_folder()
    path = os.path.join(folder, name)
    if state.settings_only:
        return path
    result = subprocess.run([sys.executable, maker, name, folder],
                            stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL)
    return path if result.returncode == 0 and os.path.exists(path) else None


def set_emulation(settings, options, install, target):
    """Run the command on an emulated node."""
    node = install.node(options.emulate)
    settings.notes += install.describe(node)[1]
    if target.program and is_elf(target.program) and \
            has_static_runtime(target.program, target.environ):
        raise SetupError(static_runtime(target.program))

    ranks = number_of_ranks(target)
    cores = len(os.sched_getaffinity(0))
    for name in ('CUEMU_NODE', 'CUEMU_SLOWDOWN'):
        settings.original.pop(name, None)
    settings.put('CUEMU_NODE', node, '--emulate %s' % options.emulate)
    if options.nodes:
        set_nodes(settings, options, target, ranks)
    elif 'CUEMU_SESSION' not in settings.original:
        # a session of the user joins several commands on one node
        session = os.path.join(target.launcher is None and step_folder() or
                               temporary_folder(), 'session')
        settings.put('CUEMU_SESSION', session,
                     'what the processes of the emulated node share')
        if not state.settings_only:
            os.makedirs(session, exist_ok=True)
    # UCX warns of variables of a transport that it does not open
    is_used = not options.stock and allows(
        target.environ.get('UCX_TLS') or 'all', 'cuda_ipc', 'cuda')
    if is_used and not options.nodes and \
            'UCX_CUDA_IPC_MULTIPATH_LEDGER' not in settings.original:
        settings.put('UCX_CUDA_IPC_MULTIPATH_LEDGER',
                     os.path.abspath(settings.environ['CUEMU_SESSION']),
                     'each emulated node has a ledger of its own')
    table = os.path.splitext(node)[0] + '.tune'
    if is_used and os.path.isfile(table) and \
            'UCX_CUDA_IPC_MULTIPATH_TUNING_FILE' not in settings.original:
        settings.put('UCX_CUDA_IPC_MULTIPATH_TUNING_FILE', table,
                     'calibrated constants of the emulated node')
    sysfs = os.path.join(temporary_folder(), 'sys')
    settings.put('SYSFS_PATH', sysfs, "the emulated node's PCIe switches and "
                 'NUMA nodes')
    if not state.settings_only:
        install.describe(node, sysfs)
    settings.put('CUEMU_SLOWDOWN', '%g' % options.slowdown,
                 'processor seconds of a rank for a modelled one')
    settings.front('LD_LIBRARY_PATH', install.cuemu_dir,
                   'the emulated CUDA driver, runtime and NVML')
    settings.front('LD_PRELOAD',
                   os.path.join(install.cuemu_dir, EMULATOR_PRELOAD),
                   'program clocks run at modelled time')
    if 'CUPY_COMPILE_WITH_PTX' not in settings.original:
        settings.put('CUPY_COMPILE_WITH_PTX', '1', 'the emulated driver runs '
                     'PTX, no machine code')
    set_runtime_libraries(settings, install, target)
    if target.ucx.version[:2] >= FIRST_UCX_WITH_GRACE_DURATION:
        settings.put('UCX_MEM_BISTRO_GRACE_DURATION',
                     '%.0fus' % (BISTRO_GRACE_US / options.slowdown),
                     'installing a memory hook takes as long as on real '
                     'hardware')

    if target.mpi is not None and target.mpi.name == 'Open MPI':
        set_emulated_openmpi(settings, ranks, cores)


# Replacement for ssh: processes for another node run here, with the emulated
# GPUs, ledger and temporary files of that node
AGENT = '''#!/bin/sh
while case $1 in -*) ;; *) false ;; esac; do shift; done
CUEMU_HOST=$1
TMPDIR={folder}/$1
export CUEMU_HOST TMPDIR CUEMU_SESSION="$TMPDIR/session"
export {ledger}
shift
exec /bin/sh -c "$*"
'''
HOST_OPTIONS = ('-H', '-host', '--host', '-hosts', '--hosts', '-f',
                '-hostfile', '--hostfile', '-machinefile', '--machinefile')


def ranks_of_nodes(options, ranks):
    """Return the number of ranks on each of --nodes."""
    words = options.nodes.split(',')
    if len(words) > 1:
        counts = [int(word) for word in words]
        if sum(counts) != ranks:
            raise SetupError('--nodes %s: places for %d ranks, but the '
                             'command has %d'
                             % (options.nodes, sum(counts), ranks))
        return counts
    count = int(words[0])
    if count > ranks:
        raise SetupError('--nodes %d: the command has only %d ranks'
                         % (count, ranks))
    return [ranks // count + (node < ranks % count) for node in range(count)]


def set_nodes(settings, options, target, ranks):
    """Emulate several nodes: the MPI starts the ranks of each through an agent."""
    if target.launcher is None or target.mpi is None or \
            target.mpi.name not in ('Open MPI', 'MPICH'):
        raise SetupError('--nodes: the command must be the mpirun of Open MPI '
                         'or MPICH')
    own = [word for words in target.launchers_words() for word in words
           if word in HOST_OPTIONS]
    if own:
        raise SetupError('--nodes says where ranks run; leave out %s' % own[0])
    hosts = ['node%d:%d' % item
             for item in enumerate(ranks_of_nodes(options, ranks))]
    folder = temporary_folder()
    agent = os.path.join(folder, 'agent')
    ledger = 'UCX_CUDA_IPC_MULTIPATH_LEDGER'
    for name in ('CUEMU_SESSION', 'CUEMU_HOST'):
        settings.original.pop(name, None)
        settings.environ.pop(name, None)
    if not state.settings_only:
        for host in hosts:
            os.makedirs(os.path.join(folder, host.split(':')[0], 'session'))
        with open(agent, 'w') as file:
            file.write(AGENT.format(
                folder=shlex.quote(folder), ledger='CUEMU_HOST'
                if options.stock or ledger in settings.original
                else ledger + '="$CUEMU_SESSION"'))
        os.chmod(agent, 0o700)
    reason = '--nodes %s: starts ranks of other nodes' % options.nodes
    at = target.launcher + 1
    if target.mpi.name == 'Open MPI':
        target.command[at:at] = ['--host', ','.join(hosts)]
        settings.put('OMPI_MCA_plm_rsh_agent', agent, reason)
        settings.put('PRTE_MCA_plm_ssh_agent', agent, reason)
    else:
        target.command[at:at] = ['-hosts', ','.join(hosts)]
        settings.put('HYDRA_LAUNCHER', 'ssh', reason)
        settings.put('HYDRA_LAUNCHER_EXEC', agent, reason)


def set_emulated_openmpi(settings, ranks, cores):
    if os.geteuid() == 0:
        for name in ('OMPI_ALLOW_RUN_AS_ROOT', 'PRTE_ALLOW_RUN_AS_ROOT'):
            for suffix in ('', '_CONFIRM'):
                settings.put(name + suffix, '1',
                             'you are root, and the node is emulated')
    if ranks > cores:
        reason = 'more ranks than cores'
        settings.put('OMPI_MCA_rmaps_base_oversubscribe', '1', reason)
        settings.put('PRTE_MCA_rmaps_default_mapping_policy',
                     ':oversubscribe', reason)
    reason = 'ranks and the emulator share the cores'
    settings.put('OMPI_MCA_mpi_yield_when_idle', '1', reason)
    settings.put('OMPI_MCA_hwloc_base_binding_policy', 'none', reason)
    settings.put('PRTE_MCA_hwloc_default_binding_policy', 'none', reason)


def gpu_is_here():
    return bool(glob.glob('/dev/nvidia[0-9]*') or os.path.exists('/dev/dxg'))
