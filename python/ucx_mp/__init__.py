# SPDX-License-Identifier: BSD-3-Clause
"""Multi-path CUDA transports for the UCX of this process.

    import ucx_mp
    ucx_mp.enable()         # before the first import that loads UCX

does inside this process what ucx_mp_run does for a command: for notebooks and
servers started without a launcher. This package imports neither UCX nor CUDA.
"""

from ._enable import enable, status

__all__ = ['enable', 'status']
__version__ = '0.1.0'
