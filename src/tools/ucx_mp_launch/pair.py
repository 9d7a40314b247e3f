# SPDX-License-Identifier: BSD-3-Clause
"""The command as a child process, or as the two ends of a UCX program (--pair)."""

import errno
import os
import re
import signal
import subprocess
import time

from . import EXIT_SETUP, PERFTEST, SetupError, say
from .find import Target, executable, is_elf, word_after
from .folders import temporary_folder

LISTENS_WITHIN = 60     # seconds for a server of --pair to begin listening
ENDS_WITHIN = 3         # seconds that one end of --pair may outlive the other


def in_foreground():
    """Return whether the terminal's keys send signals to this process group."""
    try:
        terminal = os.open('/dev/tty', os.O_RDONLY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def start(call, command):
    """Return call(command). As execvp(3) does, run a script without "#!" by the
    shell."""
    try:
        try:
            return call(command)
        except OSError as error:
            path = executable(command[0])
            if error.errno != errno.ENOEXEC or is_elf(path):
                raise
            return call(['/bin/sh', path] + command[1:])
    except OSError as error:
        raise SetupError('%s cannot be run: %s' % (command[0], error.strerror),
                         126)


class Children:
    """Child processes that receive this process's signals."""

    def __init__(self):
        self.started = []
        self.pending = []

        def forward(signum, frame):
            if signum in (signal.SIGINT, signal.SIGQUIT) and in_foreground():
                return      # the terminal sends it to the children as well
            self.pending.append(signum)
            for child in self.started:
                self.send(child, signum)

        for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1,
                       signal.SIGUSR2, signal.SIGINT, signal.SIGQUIT):
            # nohup's children, for instance, also ignore what it ignores
            if signal.getsignal(signum) != signal.SIG_IGN:
                signal.signal(signum, forward)

    @staticmethod
    def send(child, signum):
        try:
            child.send_signal(signum)
        except OSError:
            pass

    def start(self, command, environ, **streams):
        # inherit descriptors such as PMI_FD's
        child = start(lambda words: subprocess.Popen(
            words, env=environ, close_fds=False, **streams), command)
        earlier = list(self.pending)
        self.started.append(child)
        for signum in earlier:
            self.send(child, signum)
        return child


def run_and_clean(command, environ):
    """Run the command, forward signals, and return its exit code."""
    return exit_code(Children().start(command, environ).wait())


def exit_code(code):
    """Return the exit code in a shell's form."""
    return code if code >= 0 else 128 - code


def pair_target(options):
    """Return the command of --pair: as given, or with the ucx_perftest of a UCX
    wheel if the one in PATH does not support the requested GPU memory."""
    words = options.command
    index = next((index for index, word in enumerate(words)
                  if os.path.basename(word) == PERFTEST), None)
    if index is None:
        raise SetupError('--pair starts both ends of %s, and the command has '
                         'none: %s' % (PERFTEST, ' '.join(words)))
    if '-l' in words[index:]:
        raise SetupError('--pair starts two processes, but -l is for one: '
                         'leave out either')
    target = None
    if os.sep in words[index] or executable(words[index]):
        target = Target(words, os.environ, options.ucx)
        if target.launcher is not None:
            raise SetupError('--pair starts both ends itself; leave out %s'
                             % words[target.launcher])
    memory = ' '.join(word_after(words, '-m') + [
        word for word in words[index:] if re.match('-m.', word)])
    if target and ('cuda' not in memory or target.ucx.measures_gpus()):
        return target
    import importlib.util       # takes a while, for few runs
    wheel = importlib.util.find_spec('libucx')
    path = wheel and os.path.join(os.path.dirname(wheel.origin or ''), 'bin',
                                  PERFTEST)
    if os.sep in words[index] or not path or not os.access(path, os.X_OK):
        raise SetupError(
            '--pair: %s; install the one of a wheel: python3 -m pip install '
            'libucx-cu12 (or libucx-cu13)'
            % ('%s does not support GPU memory (-m %s): its UCX, %s, was built '
               'without CUDA' % (words[index], memory, target.ucx.path)
               if target else 'there is no %s in PATH' % PERFTEST))
    return Target(words[:index] + [path] + words[index + 1:], os.environ,
                  options.ucx)


def in_bytes(words):
    """Return the words with -s 64M replaced by 67108864, since ucx_perftest
    would read 64; and a note, or None."""
    def plain_number(match):
        return str(int(match.group(1)) <<
                   ' KMGT'.index(match.group(2).upper()) * 10)

    changed = list(words)
    for index, word in enumerate(words):
        if index and words[index - 1] == '-s' or re.match(r'-s\d', word):
            changed[index] = re.sub(r'(\d+)([kKmMgGtT])\b', plain_number, word)
    return changed, None if changed == words else (
        '%s expects sizes in bytes, so it gets: %s' % (PERFTEST, ' '.join(
            new for new, old in zip(changed, words) if new != old)))


def pair_of(command):
    """Return (server's command, client's, their port): a free port, unless the
    command names one."""
    given = re.findall(r'(?<= -p)\s*(\d+)', ' '.join(command))
    if given:
        port = int(given[-1])
    else:
        import socket           # takes a tenth of the start of most runs
        with socket.socket() as sock:
            sock.bind(('127.0.0.1', 0))
            port = sock.getsockname()[1]
        command = command + ['-p', str(port)]
    return command, command + ['localhost'], port


def listens(port):
    """Return whether a process listens on the port. Does not connect: the
    server would take that for the client."""
    for path in ('/proc/net/tcp', '/proc/net/tcp6'):
        try:
            with open(path) as file:
                lines = [line.split() for line in file]
        except OSError:
            continue
        if any(words[1].endswith(':%04X' % port) and words[3] == '0A'
               for words in lines):
            return True
    return False


def run_pair(command, environ):
    """Run the server and, when it listens, the client, and return the client's
    exit code. Neither outlives the other."""
    server_command, client_command, port = pair_of(command)
    if listens(port):
        raise SetupError('--pair: port %d is taken; leave out -p' % port)
    children = Children()
    log = open(os.path.join(temporary_folder(), 'server'), 'w+',
               errors='replace')
    server = children.start(server_command, environ, stdout=log,
                            stderr=subprocess.STDOUT,
                            stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + LISTENS_WITHIN
        while not listens(port):
            if server.poll() is not None or time.monotonic() > deadline:
                raise SetupError(
                    '--pair: the server %s%s'
                    % ('ended with exit status %d before it listened'
                       % exit_code(server.returncode)
                       if server.returncode is not None else
                       'did not listen within %d s' % LISTENS_WITHIN,
                       last_words(log)), exit_code(server.returncode or
                                                   EXIT_SETUP))
            time.sleep(0.02)
        client = children.start(client_command, environ)
        while ended_within(server, 0.2) is None and client.poll() is None:
            pass
        if server.returncode:
            ended_within(client, ENDS_WITHIN)
            stop(client)
        elif client.wait() == 0:
            ended_within(server, ENDS_WITHIN)
        if server.returncode:
            say('--pair: the server ended with exit status %d%s'
                % (exit_code(server.returncode), last_words(log)))
        return exit_code(client.returncode)
    finally:
        stop(server)
        log.close()


def ended_within(child, seconds):
    try:
        return child.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def stop(child):
    for signum in (signal.SIGTERM, signal.SIGKILL):
        if child.poll() is None:
            Children.send(child, signum)
            ended_within(child, 5)


def last_words(log):
    """Return a server's last message, for the end of a sentence."""
    log.seek(0)
    lines = [line.strip() for line in log if line.strip('+-| \n')]
    # a page of usage may follow the error
    wrong = [line for line in lines if re.search('error|invalid', line, re.I)]
    return ''.join(': ' + line for line in wrong[:1] or lines[-1:])
