# SPDX-License-Identifier: BSD-3-Clause
"""Starting benchmark programs and stopping all that they have started."""

import os
import signal
import socket
import subprocess


def size_text(size):
    for shift, unit in ((30, 'GiB'), (20, 'MiB'), (10, 'KiB')):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return '%d %s' % (size >> shift, unit)
    return '%d B' % size


def free_port():
    with socket.socket() as sock:
        sock.bind(('127.0.0.1', 0))
        return sock.getsockname()[1]


def listening(port):
    """Whether somebody listens, without connecting: perftest takes one only."""
    with open('/proc/net/tcp') as file:
        for line in file:
            words = line.split()
            if len(words) > 3 and words[3] == '0A' and \
                    words[1].endswith(':%04X' % port):
                return True
    return False


def start(command, environ):
    return subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            universal_newlines=True, start_new_session=True)


def finish(process, timeout):
    try:
        return process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        stop(process)
        return '', 'took more than %d s' % timeout


def stop(process):
    """Ends a process of ours and what it has started."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            try:
                os.killpg(process.pid, signum)
                process.wait(10)
            except (OSError, subprocess.TimeoutExpired):
                pass
    for stream in (process.stdout, process.stderr):
        if stream and not stream.closed:
            stream.close()


def failed(command, process, text=None):
    if text is None:
        text = ''.join(finish(process, 5))
    lines = [line for line in text.splitlines() if line.strip('- ')]
    own = [line for line in lines if line.startswith('ucx_mp_')]
    return {'error': 'exit code %s: %s' % (
        process.returncode, ' / '.join((own or lines)[-3:]) or 'silent'),
            'command': command}
