# SPDX-License-Identifier: BSD-3-Clause
"""The program ucx_mp_run: its options, its decisions, and the command's start.

It has four steps: find this project's files, find the UCX that the command will
load, decide on the environment (a list of settings, each with its reason), run.
--print stops before the last one.
"""

import argparse
import errno
import os
import re
import shlex
import signal
import sys

from . import (
    DEFAULT_SLOWDOWN, EXIT_SETUP, PERFTEST, SetupError, VERSION, say)
from .find import (
    Installation, NO_UCX, Target, executable, ignores_preload)
from .folders import state
from .settings import (
    Settings, check_tls, check_values, exported_command, merged_command,
    print_settings, set_collectives, set_module, set_mpi, set_options)
from .emulation import (
    gpu_is_here, number_of_ranks, set_emulated_openmpi, set_emulation,
    slowdown_of)
from .pair import (
    in_bytes, pair_of, pair_target, run_and_clean, run_pair, start)
from .trace import set_trace
# names of this program used by _doctor.py and _hosts.py of ucx_mp
from . import MISSING, MODULE
from .find import (
    Ucx, is_elf, is_hydra, linked_libraries, mca_from_command, probe,
    word_after)
from .settings import PRELOAD
from .emulation import has_static_runtime, static_runtime


def words_of(parser, option, text):
    """Return the words of a command as a shell would cut them; None: none."""
    if text is None:
        return []
    try:
        words = shlex.split(text)
    except ValueError as error:
        parser.error("%s '%s': %s" % (option, text, str(error).lower()))
    if not words:
        parser.error("%s '%s' does not name a command" % (option, text))
    return words


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog='ucx_mp_run', usage='ucx_mp_run [options] COMMAND...',
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description='Runs COMMAND (mpirun, srun, a UCX program, Python) with '
        'the multi-path CUDA\ntransports in its UCX. Neither COMMAND nor UCX '
        'is rebuilt.\n\nexamples:\n'
        '  ucx_mp_run mpirun -n 2 ./program   run it\n'
        '  ucx_mp_run --doctor                check this machine first\n'
        '  ucx_mp_run --emulate beluga mpirun -n 2 ./program\n'
        '                                     try it without GPUs',
        epilog='Programs and libraries are found relative to ucx_mp_run; '
        'UCX_MP_LIBDIR names another\nfolder for the libraries. The exit '
        'status is that of COMMAND.')
    group = parser.add_argument_group('checks')
    group.add_argument('--doctor', action='store_true',
                       help='check this machine, send a message of each kind, '
                       'and name a remedy for each fault. COMMAND, if given, '
                       'is not run, but its UCX and MPI are checked. Exit '
                       'status: 0 all messages arrived; 1 the same, but '
                       'something costs speed; 2 a message failed, or wrong '
                       'arguments; 3 nothing could be sent')
    group.add_argument('--json', action='store_true',
                       help='with --doctor: print one JSON object, for health '
                       'checks')
    group.add_argument('--peer', metavar='COMMAND',
                       help='with --doctor: start the receiver of each message '
                       "by COMMAND, such as 'docker exec -i NAME', to check "
                       'messages between two containers')
    group.add_argument('--print', action='store_true', dest='show',
                       help='print the variables that would be set, each with '
                       'its reason, as shell commands; run nothing')
    group.add_argument('--summary', action='store_true',
                       help='log, when each process ends, how many of its '
                       'messages took several paths, and the gain expected by '
                       'the model (sets UCX_LOG_LEVEL=info)')
    group.add_argument('--trace', metavar='FILE',
                       help='write a timeline of all copies on the links of '
                       'this node to FILE (JSON), for ui.perfetto.dev or '
                       'chrome://tracing')
    group.add_argument('--waits', action='store_true',
                       help='log the rank and the reason when a collective on '
                       'GPUs has waited for a second (sets '
                       'UCX_CUDA_IPC_COLLECTIVES_WAITS=y)')
    group = parser.add_argument_group('messages and collectives')
    group.add_argument('--multipath', choices=['y', 'n', 'auto'],
                       help='split messages wherever there is a second path '
                       '(y), never (n), or where the model expects a gain '
                       '(auto, the default); sets UCX_CUDA_IPC_MULTIPATH')
    group.add_argument('--paths', metavar='LIST',
                       help='allow only these paths, separated by commas: '
                       'direct, gpuN (through GPU N), host (through host '
                       'memory); sets UCX_CUDA_IPC_MULTIPATH_PATHS (default: '
                       'chosen by the model)')
    group.add_argument('--collectives', choices=['auto', 'y', 'n'],
                       default='auto',
                       help='let GPUs carry out collectives of GPU buffers, '
                       'by the MPI interposition library: if one fits '
                       'the MPI and neither UCC nor HCOLL is on (auto, the '
                       'default); always, for each supported call, or fail '
                       '(y); never (n)')
    group.add_argument('--stock', action='store_true',
                       help="use UCX's own CUDA module instead, as a baseline "
                       'to compare with')
    group.add_argument('--ucx', metavar='PATH',
                       help='UCX to be loaded by COMMAND: path of its libucp '
                       'or of the folder with it (default: found by looking at '
                       'COMMAND; a note names it)')
    group = parser.add_argument_group('emulated nodes')
    group.add_argument('--emulate', metavar='NODE',
                       help='run on an emulated node: a name such as beluga, '
                       'or an NCCL topology file')
    group.add_argument('--nodes', metavar='N',
                       help="emulate N such nodes, connected by this machine's "
                       'network, and distribute the ranks of mpirun evenly; or '
                       'give the number of ranks per node, such as 3,1 '
                       '(default: 1)')
    group.add_argument('--slowdown', metavar='F',
                       help="count F seconds of a rank's processor time as one "
                       'modelled second (default: %d)' % DEFAULT_SLOWDOWN)
    group.add_argument('--pair', action='store_true',
                       help='run both ends of ucx_perftest: COMMAND as the '
                       'server, and COMMAND with localhost appended as the '
                       'client. Output and exit status are those of the client')
    parser.add_argument('--quiet', action='store_true',
                        help='print errors, but no notes')
    parser.add_argument('--version', action='version',
                        version='ucx_mp_run ' + VERSION)
    parser.add_argument('command', nargs=argparse.REMAINDER,
                        metavar='COMMAND', help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.command and options.command[0] == '--':
        options.command = options.command[1:]
    if not options.command and not options.doctor:
        parser.error('there is no COMMAND to run')
    if options.pair and (options.doctor or options.nodes is not None):
        parser.error('--pair runs two processes on one node: not with --doctor '
                     'or --nodes')
    if options.json and not options.doctor:
        parser.error('--json needs --doctor')
    if options.peer is not None and not options.doctor:
        parser.error('--peer needs --doctor')
    options.peer = words_of(parser, '--peer', options.peer)
    if options.emulate == '':
        parser.error("--emulate '' does not name a node")
    if options.nodes is not None:
        if not options.emulate:
            parser.error('--nodes needs --emulate')
        if not re.fullmatch(r'[1-9]\d{0,3}(,[1-9]\d{0,3})*', options.nodes):
            parser.error('--nodes: %s is neither a number of nodes nor a '
                         'list of ranks per node, such as 3,1' % options.nodes)
    if options.emulate:
        options.slowdown = slowdown_of(options.slowdown)
    elif options.slowdown is not None:
        parser.error('--slowdown needs --emulate')
    if options.stock and (options.multipath or options.paths or options.trace):
        parser.error('--stock runs without this module: --multipath, '
                     '--paths and --trace would have no effect')
    if options.trace is not None:
        if not options.trace or os.path.isdir(options.trace):
            parser.error("--trace '%s' does not name a file" % options.trace)
        folder = os.path.dirname(os.path.abspath(options.trace))
        if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
            parser.error('--trace %s: %s is not a writable folder'
                         % (options.trace, folder))
    return options


def decide(options, install, target):
    """Return all settings, each with its reason."""
    settings = Settings(os.environ)
    if target.wheel_libs:
        settings.front('LD_LIBRARY_PATH', target.wheel_libs,
                       "the wheel's programs need it to find the wheel's "
                       'libraries')
    if options.stock:
        if target.ucx.stock_module() is None:
            settings.note('this UCX has no CUDA module of its own: GPU '
                          'buffers will not work with --stock')
    else:
        target.ucx.check()
        set_module(settings, install, target)
        if not target.certain and not target.is_told and \
                os.path.basename(target.path) not in NO_UCX:
            settings.note(target.assumption())
    for sentence in filter(None, (target.other_mpi(),
                                  not options.stock and
                                  target.hidden_launcher())):
        settings.note(sentence)
    set_mpi(settings, target)
    set_collectives(settings, options, install, target)
    set_options(settings, options)
    if options.emulate:
        set_emulation(settings, options, install, target)
    elif 'CUEMU_SESSION' in settings.original:
        set_emulated_openmpi(settings, number_of_ranks(target),
                             len(os.sched_getaffinity(0)))
    elif not gpu_is_here():
        settings.note('no NVIDIA GPU is visible here: the CUDA transports will '
                      'not be used; --emulate NODE runs the command on an '
                      'emulated node')
    if options.waits:
        settings.put('UCX_CUDA_IPC_COLLECTIVES_WAITS', 'y', '--waits')
    if options.summary:
        settings.put('UCX_LOG_LEVEL', 'info', '--summary')
    if target.program and 'LD_PRELOAD' in settings.reasons and \
            ignores_preload(target.program):
        settings.note('%s is setuid, setgid or has capabilities: the dynamic '
                      'linker ignores LD_PRELOAD for it' % target.program)
    if options.trace:
        set_trace(settings, options, install, target)
    check_tls(settings, target.environ)
    if not options.stock:
        check_values(settings, options, install)
    return settings


def examine(options):
    """Run --doctor, from a Python package beside our files."""
    here = os.path.dirname(state.program)
    for folder in ('../share/ucx-mp/python', '../..', '../../python'):
        folder = os.path.normpath(os.path.join(here, folder))
        if os.path.exists(os.path.join(folder, 'ucx_mp', '_doctor.py')):
            sys.path.insert(0, folder)
            from ucx_mp import _doctor
            return _doctor.main(sys.modules[__name__], options)
    raise SetupError('--doctor: the Python package ucx_mp is not beside %s'
                     % here)


# Subjects of errors without a file name; others are those of a new process
NAMELESS = {errno.ENOENT: 'the current folder',
            errno.EACCES: 'the current folder',
            **dict.fromkeys((errno.ENOSPC, errno.EPIPE, errno.EIO, errno.EFBIG,
                             errno.EBADF, errno.EDQUOT), 'standard output')}


def open_streams():
    """Open /dev/null as closed standard streams, as left by some daemons.
    Otherwise a file opened later would get its number, also in the command."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)      # takes the lowest number
            os.set_inheritable(descriptor, True)
    sys.stdout = sys.stdout or open(1, 'w', closefd=False)
    sys.stderr = sys.stderr or open(2, 'w', closefd=False)


def main(arguments):
    open_streams()
    # The reader of our output may end early, as head does; a run must go on and
    # clean up
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    # empty without PATH, as with srun --export=NONE
    sys.executable = sys.executable or os.path.realpath('/proc/self/exe')
    try:
        options = parse(arguments)
        if not options.show and not options.doctor:
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        state.settings_only = options.show
        if options.doctor:
            return examine(options)
        install = Installation(os.environ, os.path.dirname(state.program))
        target = pair_target(options) if options.pair else \
            Target(options.command, os.environ, options.ucx)
        settings = decide(options, install, target)
        settings.notes[:0] = state.notes
        if options.pair:
            target.command, note = in_bytes(target.command)
            settings.notes += [note] * bool(note)
            if target.path not in map(executable, options.command):
                settings.note("PATH's %s does not support GPU memory: using %s"
                              % (PERFTEST, target.program))
        target.command = merged_command(settings, target)
        command = exported_command(settings, target)
        if options.show:
            print_settings(settings, target,
                           pair_of(command)[:2] if options.pair else [command])
            sys.stdout.flush()
            return 0
        if not options.quiet:
            for sentence in settings.notes:
                say(sentence)
        sys.stdout.flush()
        if state.folder is None and not options.pair:
            # no cleanup needed: become the command
            for signum in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(signum, signal.SIG_DFL)   # as Popen() does
            start(lambda words: os.execvpe(words[0], words, settings.environ),
                  command)
        code = (run_pair if options.pair else
                run_and_clean)(command, settings.environ)
        for call in state.when_done:
            call()
        return code
    except SetupError as error:
        say(str(error))
        return error.code
    except OSError as error:            # a full disk, for instance
        say('%s: %s%s' % (
            error.filename or NAMELESS.get(error.errno, 'a new process'),
            error.strerror or error,
            '; set TMPDIR, or give a container more (docker run --shm-size=1g)'
            if error.errno == errno.ENOSPC and error.filename else ''))
        return EXIT_SETUP
