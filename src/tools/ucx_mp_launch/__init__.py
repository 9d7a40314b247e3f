# SPDX-License-Identifier: BSD-3-Clause
"""The parts of ucx_mp_run."""

import sys

VERSION = '0.1.0'
MODULE = 'libuct_cuda.so'
DEFAULT_SLOWDOWN = 20
MISSING = 'not found'                   # ldd's words
PERFTEST = 'ucx_perftest'
EXIT_SETUP = 2          # setup error, explained by a message
EXIT_NOT_FOUND = 127    # as of a shell


class SetupError(Exception):
    """Something is missing; the message names it."""

    def __init__(self, message, code=EXIT_SETUP):
        super().__init__(message)
        self.code = code


def say(message):
    try:
        print('ucx_mp_run: ' + message, file=sys.stderr, flush=True)
    except OSError:
        pass                    # a lost message must not stop the command
