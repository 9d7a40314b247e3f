# SPDX-License-Identifier: BSD-3-Clause
"""Multi-path CUDA transports for the UCX of this process."""
