# SPDX-License-Identifier: BSD-3-Clause
"""Multi-path CUDA transports for the UCX of this process.

    import ucx_mp
    ucx_mp.enable()         # before the first import that loads UCX

does what ucx_mp_run does around a command, from inside: for notebooks, and for
servers that nobody launches. Nothing here imports UCX or CUDA.
"""

from ._enable import enable, status

__all__ = ['enable', 'status']
__version__ = '0.1.0'
