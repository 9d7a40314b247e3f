# SPDX-License-Identifier: BSD-3-Clause
"""Check that the other nodes of a command have the same files as this one. The
check runs there through the program that the MPI uses to start ranks."""

import os
import re
import shlex
import socket
import subprocess
import threading
import time

HOST_LISTS = ('-H', '-host', '--host', '-hosts', '--hosts')
HOST_FILES = ('-hostfile', '--hostfile', '-machinefile', '--machinefile')
HYDRA_AGENT = ('-launcher-exec', '--launcher-exec', '-bootstrap-exec',
               '--bootstrap-exec')
AT_ONCE = 32                    # nodes checked concurrently
LIMIT = 20                      # seconds to wait for an answer
ASK = '''for file in {files}; do
test -r "$file" || {{ echo "lacks $file"; continue; }}
echo "has $file" `cksum < "$file"`
done
echo asked'''


def hosts_of(launcher, target):
    """Return the nodes in mpirun's options, without this one."""
    command = target.command
    ends = [index for index, word in enumerate(command)
            if target.program and target.program_of(word) == target.program]
    words = command[target.launcher + 1:max(ends, default=len(command))]
    names = [name for text in launcher.word_after(words, *HOST_LISTS)
             for name in text.split(',')]
    files = HOST_FILES
    if launcher.is_hydra(launcher.executable(command[target.launcher])):
        files += ('-f',)
    for path in launcher.word_after(words, *files):
        try:
            with open(path, errors='surrogateescape') as file:
                names += [(line.split('#')[0].split() or [''])[0]
                          for line in file]
        except OSError:
            pass                # mpirun says so
    here = socket.gethostname()
    own = {'localhost', here, here.split('.')[0], '127.0.0.1'}
    names = [re.sub(r':\d+$', '', name) for name in names if name]
    # leave out names such as +e and n[1-8]: only the MPI understands them
    return [name for name in dict.fromkeys(names)
            if name not in own and re.match(r'[\w.@:-]+$', name) and
            not name.startswith('-')]


def agent_of(launcher, target, environ):
    """Return words to run a command on a node; node and command follow them."""
    if launcher.is_hydra(launcher.executable(
            target.command[target.launcher])):
        given = launcher.word_after(target.command, *HYDRA_AGENT) + [
            environ.get(name) for name in ('HYDRA_LAUNCHER_EXEC',
                                           'HYDRA_BOOTSTRAP_EXEC')]
    else:
        names = ('plm_rsh_agent', 'plm_ssh_agent')
        given = [launcher.mca_from_command(target.command, name)
                 for name in names] + [
                     environ.get(prefix + name) for name in names
                     for prefix in ('OMPI_MCA_', 'PRTE_MCA_')]
    text = next(filter(None, given), 'ssh')
    for choice in text.split(':'):          # Open MPI's default is ssh : rsh
        words = choice.split()          # quotes mean nothing to MPIs
        if words and launcher.executable(words[0]):
            return words
    return None


def answer_of(process, limit):
    """Return (output, None), or ('', reason) if it is no complete answer."""
    try:
        text, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return '', 'no answer within %d s' % limit
    if text.splitlines()[-1:] == ['asked']:
        return text, None
    said = (errors or text).strip().splitlines()
    return '', said[-1] if said else 'status %d' % process.returncode


def ask(words, names, paths, end):
    """Return {node: (output, error)}; node None is this one."""
    script = ASK.format(files=' '.join(shlex.quote(path) for path in paths))
    shell = ['/bin/sh', '-c', script]
    answers = {}
    places = threading.Semaphore(AT_ONCE)

    def one(name):
        command = shell if name is None else words + [
            name, ' '.join(shlex.quote(word) for word in shell)]
        with places:
            limit = max(1, min(LIMIT, end - time.monotonic()))
            try:
                # without a terminal, ssh cannot ask for a password
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, errors='surrogateescape',
                    start_new_session=True)
            except OSError as error:
                answers[name] = '', '%s: %s' % (command[0], error.strerror)
                return
            answers[name] = answer_of(process, limit)

    threads = [threading.Thread(target=one, args=(name,))
               for name in [None] + names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def examine(doctor, target):
    """Print the doctor's lines about the other nodes of a command."""
    launcher = doctor.launcher
    if target.launcher is None or os.path.basename(
            target.command[target.launcher]) == 'srun':
        return
    names = hosts_of(launcher, target)
    if not names:
        return
    words = agent_of(launcher, target, os.environ)
    if words is None:
        doctor.look('nodes', 'not checked, since there is no ssh: %s'
                    % ', '.join(names))
        return
    install = doctor.install
    paths = [os.path.join(install.libdir, name) for name in (
        launcher.MODULE, launcher.PRELOAD,
        target.mpi.collectives() if target.mpi else None) if name and
             os.path.exists(os.path.join(install.libdir, name))]
    answers = ask(words, names, paths, doctor.end)
    own = answers[None][0]
    alike = []
    for name in names:
        text, error = answers[name]
        lines = text.splitlines()
        lacks = [line[len('lacks '):] for line in lines
                 if line.startswith('lacks ')]
        if error:
            doctor.look('node ' + name, 'cannot be checked: %s: %s' % (
                words[0], error))
        elif lacks:
            doctor.bad('node ' + name, 'has no %s: ranks there run without it; '
                       'install ucx-mp there in the same place, or in a folder '
                       'that all nodes share' % ', '.join(lacks))
        elif text != own:
            other = next(line.split()[1] for line in lines
                         if line not in own.splitlines())
            doctor.look('node ' + name, '%s is another build than here: '
                        'install the same one on all nodes' % other)
        else:
            alike.append(name)
    if alike:
        doctor.good('nodes', '%s: the same files as here' % ', '.join(alike))
