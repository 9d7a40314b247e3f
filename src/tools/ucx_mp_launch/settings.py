# SPDX-License-Identifier: BSD-3-Clause
"""The environment: settings, each with its reason, and the command with settings
merged into it."""

import glob
import os
import re
import shlex
import sys

from . import MODULE, SetupError
from .find import (
    append, mca_from_command, prepend, split_applications, word_after, words_of)
from .folders import state, temporary_folder

FIRST_UCX_WITH_PLUGIN_PATH = (1, 22)
FIRST_UCX_WITH_BOTH = (1, 23)   # loads a plugin and its own module
PRELOAD = 'libucx_mp_preload.so'
BASE_ENV_LIST = 'mca_base_env_list'     # Open MPI's other way to set variables
LIMITING_OPTIONS = {dash + name for dash in ('-', '--')     # MPICH's
                    for name in ('envnone', 'envlist', 'genvnone', 'genvlist')}


class Settings:
    """The environment for the command, with reasons."""

    def __init__(self, environ):
        # UCX warns about unknown variables with its prefix
        environ = {name: value for name, value in environ.items()
                   if not name.startswith('UCX_MP_') or
                   name == 'UCX_MP_MODULE'}
        self.original = dict(environ)
        self.environ = dict(environ)
        self.reasons = {}               # name -> list of reasons, in order
        self.fronts = {}                # name -> value added by front()
        self.backs = {}                 # name -> value added by back()
        self.notes = []                 # sentences for the user

    def put(self, name, value, reason):
        """Set a variable unless the user has set it."""
        if name in self.original:
            if self.original[name] != value:
                self.notes.append('%s=%s is set by you and kept (%s would be: '
                                  '%s)' % (name, self.original[name], value, reason))
            return
        self.environ[name] = value
        self.reasons.setdefault(name, []).append(reason)

    def front(self, name, value, reason):
        prepend(self.environ, name, value)
        prepend(self.fronts, name, value)
        self.reasons.setdefault(name, []).append(reason)

    def back(self, name, value, reason):
        append(self.environ, name, value)
        append(self.backs, name, value)
        self.reasons.setdefault(name, []).append(reason)

    def note(self, sentence):
        self.notes.append(sentence)

    def has_list(self, name):
        return name in self.fronts or name in self.backs

    def exported(self):
        """Return the names of variables for the ranks, also on other nodes."""
        return [name for name in self.reasons
                if not name.startswith(('OMPI_', 'PRTE_', 'HYDRA_'))]

    def merged(self, name, value):
        """Merge our values into a list that the command sets for its ranks."""
        both = {name: value}
        for item in reversed(self.fronts.get(name, '').split(':')):
            prepend(both, name, item)
        for item in self.backs.get(name, '').split(':'):
            append(both, name, item)
        return both[name]


def set_module(settings, install, target):
    """Load the module into the command's UCX."""
    ucx = target.ucx
    module = install.library(MODULE)
    by_plugin = ucx.version[:2] >= FIRST_UCX_WITH_PLUGIN_PATH
    by_both = ucx.version[:2] >= FIRST_UCX_WITH_BOTH
    stock = ucx.stock_module()
    if by_both or not by_plugin or not target.certain:
        settings.front('LD_PRELOAD', install.library(PRELOAD),
                       'UCX 1.23 would load its stock CUDA module as well' if
                       by_both else
                       'UCX up to 1.21 loads the module through this library%s'
                       % (', in place of its stock CUDA module'
                          if stock and not by_plugin else ''))
    if by_plugin or not target.certain:
        settings.front('UCX_PLUGIN_PATH', plugin_folder(install, module, ucx),
                       'UCX 1.22 and newer load the module from here%s'
                       % (', in place of their stock CUDA module'
                          if stock and by_plugin else ''))


def plugin_folder(install, module, ucx):
    """Return a folder with the module under the name that this UCX looks for."""
    folder = os.path.join(install.libdir, 'plugin')
    name = MODULE[:-len('.so')] + ucx.plugin_suffix()
    if os.path.exists(os.path.join(folder, name)):
        return folder
    folder = os.path.join(temporary_folder(), 'plugin')
    if not state.settings_only:
        os.makedirs(folder, exist_ok=True)
        for suffix in {'.so', '.so.0', '.so.0.0.0', ucx.plugin_suffix()}:
            os.symlink(module, os.path.join(folder,
                                            MODULE[:-len('.so')] + suffix))
    return folder


def set_mpi(settings, target):
    """Make MPI select UCX."""
    mpi = target.mpi
    if mpi is None or mpi.why_none and not target.named:
        return
    if mpi.name == 'Open MPI':
        chosen = mca_from_command(target.command, 'pml')
        chosen = chosen or settings.original.get('OMPI_MCA_pml')
        if chosen and chosen != 'ucx':
            settings.note("Open MPI's pml %s is selected: GPU messages use UCX "
                          'with pml ucx only' % chosen)
        elif not chosen:
            settings.put('OMPI_MCA_pml', 'ucx',
                         'point-to-point goes through UCX')
        reason = 'Open MPI also uses UCX on machines without InfiniBand'
        settings.put('OMPI_MCA_opal_common_ucx_tls', 'any', reason)
        settings.put('OMPI_MCA_opal_common_ucx_devices', 'any', reason)
    elif mpi.name == 'MPICH':
        settings.put('MPIR_CVAR_CH4_NETMOD', 'ucx',
                     'messages between nodes go through UCX')
        settings.put('MPIR_CVAR_NOLOCAL', '1',
                     'messages inside a node go through UCX')
        # seen with 4.3.2 and 5.0.2, not with 4.0.2 and 4.2.3
        if [int(word) for word in mpi.version.split('.') if word] >= [4, 3]:
            settings.note('%s over UCX hangs in a receive from MPI_ANY_SOURCE '
                          'if the message has arrived before, without this '
                          'module, too; 4.2.3 does not' % mpi.text)


def other_collectives(settings, target):
    """Return Open MPI's variable that gives other collectives a higher priority."""
    for name in ('coll_ucc_enable', 'coll_hcoll_enable'):
        value = mca_from_command(target.command, name)
        value = value or settings.original.get('OMPI_MCA_' + name, '0')
        if value.lower() not in ('0', 'n', 'no', 'f', 'false'):
            return name
    return None


def set_collectives(settings, options, install, target):
    """Preload the library for collectives of GPU buffers."""
    mpi = target.mpi
    wanted = options.collectives
    if wanted == 'auto' and options.stock:
        wanted = 'n'
    if mpi is None or wanted == 'n':
        if wanted == 'y':
            raise SetupError('--collectives y: no MPI found in the command')
        return
    name = mpi.collectives()
    other = other_collectives(settings, target)
    if wanted == 'auto' and other is not None:
        settings.note('%s is on: collectives are left to that library '
                      '(--collectives y puts ours first)' % other)
        return
    if name is None:
        problem = 'there is no library for this MPI (%s, %s)' % (mpi.text,
                                                                 mpi.path)
    elif not os.path.exists(os.path.join(install.libdir, name)):
        problem = '%s is not built (it needs the headers of %s)' % (name,
                                                                    mpi.name)
    else:
        # a tool's MPI_ functions must see the program's calls first
        settings.back('LD_PRELOAD', install.library(name),
                      'collectives of GPU buffers run on the GPUs instead of '
                      'in %s%s' % (mpi.name, ' if that is faster'
                                   if mpi.has_cuda else
                                   ', which was built without CUDA'))
        if wanted == 'y':
            settings.put('UCX_CUDA_IPC_COLLECTIVES', 'y', '--collectives y')
        return
    if wanted == 'y':
        raise SetupError('--collectives y: ' + problem)
    if not mpi.has_cuda:
        settings.note('collectives of GPU buffers will not work: ' + problem)


def allows(value, *names):
    """Return whether a list of UCX contains one of these names, or all; or with ^ in
    front none of them. A backslash is before a name that is no alias."""
    words = set(re.split(r'[,:]\\?', re.sub(r'^\^?\\?', '', value)))
    return not words & set(names) if value.startswith('^') else \
        bool(words & {'all', *names})


def check_tls(settings, environ):
    """Warn if the user's variables exclude the CUDA transports."""
    value = environ.get('UCX_TLS') or 'all'
    missing = [name for name in ('cuda_copy', 'cuda_ipc')
               if not allows(value, name, 'cuda')]
    if missing and value.startswith('^'):
        settings.note('UCX_TLS=%s excludes CUDA transports: the module needs '
                      'cuda_copy and cuda_ipc' % value)
    elif missing:
        settings.note('UCX_TLS=%s leaves out %s: the module needs '
                      'cuda_copy and cuda_ipc, add them'
                      % (value, ' and '.join(missing)))
    modules = environ.get('UCX_MODULES') or 'all'
    if not allows(modules, 'cuda'):
        settings.note('UCX_MODULES=%s leaves out cuda: UCX loads no CUDA module '
                      'and cannot send GPU memory; unset UCX_MODULES' % modules)


def gpu_count(install, options):
    """Return the number of GPUs visible to the command; None if unknown."""
    if options.emulate:
        return install.describe(install.node(options.emulate))[0]
    return len(glob.glob('/proc/driver/nvidia/gpus/*')) or None


MAX_GPUS = 16                   # maximum of a plan: base/end.h


def check_values(settings, options, install):
    """Warn of values in the module's variables that do not fit this machine."""
    prefix = 'UCX_CUDA_IPC_MULTIPATH_'
    count = gpu_count(install, options)
    for word in settings.environ.get(prefix + 'PATHS', '').split(','):
        match = re.fullmatch(r'gpu(\d+)', word.strip(), re.IGNORECASE)
        if match and int(match.group(1)) >= MAX_GPUS:
            settings.note('%sPATHS: %s is none of gpu0 to gpu%d: the variable '
                          'is ignored, paths are chosen automatically'
                          % (prefix, word.strip(), MAX_GPUS - 1))
        elif match and count and int(match.group(1)) >= count:
            settings.note('%sPATHS names %s, but the node has %d GPUs, gpu0 to '
                          'gpu%d: that path is ignored'
                          % (prefix, word.strip(), count, count - 1))
    for name in (prefix + 'LEDGER', prefix + 'TRACE'):
        folder = settings.environ.get(name, '')
        if folder.startswith('/') and name not in settings.reasons and \
                not (os.path.isdir(folder) and os.access(folder, os.W_OK)):
            settings.note('%s=%s is not a writable folder: it is '
                          'not used' % (name, folder))


def set_options(settings, options):
    """Set the module's variables from options."""
    if options.multipath:
        settings.environ['UCX_CUDA_IPC_MULTIPATH'] = options.multipath
        settings.reasons['UCX_CUDA_IPC_MULTIPATH'] = ['--multipath']
    if options.paths:
        settings.environ['UCX_CUDA_IPC_MULTIPATH_PATHS'] = options.paths
        settings.reasons['UCX_CUDA_IPC_MULTIPATH_PATHS'] = ['--paths']


def merged_command(settings, target):
    """Merge settings into lists that the command sets for the ranks, such as -x
    LD_PRELOAD=FILE, as they are merged into the environment's."""
    words = list(target.command)
    of_env = list(range(target.launcher or 0))
    for start, wrapper, program in target.applications():
        merge_options(settings, words, start, wrapper)
        of_env += range(wrapper, program)
    for index in of_env:
        words[index] = merged_item(settings, words[index])
        before = os.path.basename(words[index - 1])
        if before == 'env' and words[index] in ('-', '-i',
                                                '--ignore-environment') or \
                before == '-u' and words[index] in settings.reasons:
            settings.note('%s %s hides variables of ucx_mp_run from the '
                          'command: put ucx_mp_run behind it'
                          % (before, words[index]))
    name = 'OMPI_MCA_' + BASE_ENV_LIST
    if settings.environ.get(name):
        settings.environ[name] = merged_list(settings, settings.environ[name])
    return words


def merged_item(settings, text):
    """Do the same in NAME=VALUE; return other text as it is."""
    name, equals, value = text.partition('=')
    return name + equals + (settings.merged(name, value)
                            if equals and settings.has_list(name) else value)


def merge_options(settings, words, start, end):
    """Do the same in a launcher's options."""
    for index in range(start + 1, end):
        word, given = words[index - 1:index + 1]
        if word == '-x':
            words[index] = merged_item(settings, given)
        elif word in ('-env', '-genv', '--env', '--genv') and \
                settings.has_list(given) and index + 1 < len(words):
            words[index + 1] = settings.merged(given, words[index + 1])
        elif given == BASE_ENV_LIST and word in ('-mca', '--mca') and \
                index + 1 < len(words):
            words[index + 1] = merged_list(settings, words[index + 1])
    for index in range(start, end):
        option, equals, given = words[index].partition('=')
        if option == '--export' and equals:                     # srun's
            words[index] = option + '=' + merged_export(settings, given)
        elif option == '--export' and index + 1 < len(words):
            words[index + 1] = merged_export(settings, words[index + 1])


def merged_export(settings, text):
    return ','.join(merged_item(settings, item) for item in text.split(','))


def merged_list(settings, text):
    """Do the same in Open MPI's NAME=VALUE;NAME;... and add missing names: Open
    MPI refuses -x beside it."""
    items = [item.partition('=') for item in text.split(';') if item]
    names = [name for name, _, _ in items]
    items += [(name, '', '') for name in settings.exported()
              if name not in names]
    return ';'.join(merged_item(settings, ''.join(item)) for item in items)


def exported_command(settings, target):
    """Export variables to the ranks on other nodes. Open MPI exports only the
    named ones, for each application separately; MPICH exports all by default."""
    command = target.command
    if target.launcher is None:
        return command
    if os.path.basename(command[target.launcher]) == 'srun':
        return exported_srun(settings, target)
    if target.mpi is None or target.other_mpi():
        return command      # the mpirun of another MPI has other options
    parts = split_applications(command[target.launcher + 1:])
    if target.mpi.name == 'Open MPI':
        if settings.environ.get('OMPI_MCA_' + BASE_ENV_LIST) or \
                mca_from_command(command, BASE_ENV_LIST):
            return command
        files = word_after(command, '-app', '--app')
        if files and not any('-x' in words for words in
                             [command] + [words_of(path) for path in files]):
            # each line of the file is an application, too
            settings.environ['OMPI_MCA_' + BASE_ENV_LIST] = \
                ';'.join(settings.exported())
            return command
        if files:
            settings.note('add to each line of %s: %s' % (files[0], ' '.join(
                '-x ' + name for name in settings.exported())))
        for part in parts:
            given = [word.partition('=')[0] for word in word_after(part, '-x')]
            part[:0] = [word for name in settings.exported()
                        if name not in given for word in ('-x', name)]
    elif target.mpi.name == 'MPICH' and LIMITING_OPTIONS.intersection(command):
        given = word_after(parts[0], '-genv', '--genv')
        parts[0][:0] = [word for name in settings.exported()
                        if name not in given
                        for word in ('-genv', name, settings.environ[name])]
    words = [word for part in parts for word in [':'] + part]
    return command[:target.launcher + 1] + words[1:]


def exported_srun(settings, target):
    """Add our variables to a list of srun. It exports all variables, unless an
    option or its environment has a list, or NONE."""
    words = list(target.command)
    _, end, _ = target.applications()[0]
    place, given = None, settings.environ.get('SLURM_EXPORT_ENV')
    for index in range(target.launcher + 1, end):
        if words[index].startswith('--export='):
            place, given = index, words[index].partition('=')[2]
        elif words[index] == '--export' and index + 1 < end:
            place, given = index + 1, words[index + 1]
    names = [name for name in settings.reasons
             if name not in re.split('[,=]', given or '')]
    if given is None or 'ALL' in given.upper().split(',') or not names:
        return words
    if given.upper() in ('', 'NONE', 'NIL'):
        text = ','.join(names)
    else:
        text = ','.join([given] + names)
    if place is None:
        settings.environ['SLURM_EXPORT_ENV'] = text
        settings.reasons['SLURM_EXPORT_ENV'] = ['variables for srun to export']
    elif words[place].startswith('--export='):
        words[place] = '--export=' + text
    else:
        words[place] = text
    settings.note('%s=%s would hide these variables from the ranks, and the '
                  'module with them: %s and %d more are added to it'
                  % ('SLURM_EXPORT_ENV' if place is None else
                     'srun --export', given, names[0], len(names) - 1))
    return words


def print_settings(settings, target, commands):
    """Print shell commands, and comments of one line each."""
    def put(command, comment=''):
        text = command + '# ' * bool(comment) + comment.replace('\n', ' ')
        sys.stdout.buffer.write(os.fsencode(text + '\n'))  # names of any bytes

    put('', 'command: %s' % target.path)
    if target.program and target.program != target.path:
        put('', 'program: %s' % target.program)
    if target.mpi:
        put('', 'MPI: %s, %s%s' % (target.mpi.text, 'with CUDA, '
                                   if target.mpi.has_cuda else '',
                                   target.mpi.path))
    put('', 'UCX: %s, %s (%s)' % (target.ucx.text, target.ucx.path,
                                  target.ucx.how))
    for ucx in target.others:
        put('', 'UCX as well: %s, %s' % (ucx.text, ucx.path))
    stock = target.ucx.stock_module()
    put('', 'CUDA module of this UCX: %s' % (stock or 'none'))
    for sentence in settings.notes:
        put('', 'note: %s' % sentence)
    for name, reasons in settings.reasons.items():
        put('export %s=%s  ' % (name, shlex.quote(settings.environ[name])),
            '; '.join(dict.fromkeys(reasons)))
    for words in commands:
        put(' '.join(map(shlex.quote, words)))
