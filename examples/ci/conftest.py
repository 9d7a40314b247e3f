# SPDX-License-Identifier: BSD-3-Clause
"""Beside heat.py, so that pytest finds it."""
