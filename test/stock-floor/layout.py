# SPDX-License-Identifier: BSD-3-Clause
"""UCX 1.22's structures in Python, by the offsets of test/abi-facts."""

import ctypes
import os

FACTS = os.path.join(os.path.dirname(os.path.realpath(__file__)), os.pardir,
                     'abi-facts', 'facts.txt')


def _read_facts():
    offsets, constants = {}, {}
    with open(FACTS) as facts:
        for line in facts:
            words = line.split()
            if not words or words[0].startswith('#'):
                continue
            value = words[2 + 22 - 13]      # the first column is 1.13's
            if value == '-':
                continue
            if words[0] == 'constant':
                constants[words[1]] = int(value)
            else:
                offsets.setdefault(words[0], {})[words[1]] = int(value)
    return offsets, constants


OFFSETS, CONSTANTS = _read_facts()

# 1.22's uct_md_mem_query_v2() takes v1's structure, and one byte of flags
OFFSETS['uct_md_mem_attr_v2_t'] = dict(OFFSETS['uct_md_mem_attr_t'],
                                       mem_flags=48, **{'*': 56})


def constant(name):
    return CONSTANTS[name]


class Record:
    """A zeroed structure; fields are read and written by name and type."""

    def __init__(self, structure):
        self.offsets = OFFSETS[structure]
        self.memory = ctypes.create_string_buffer(self.offsets['*'])

    def at(self, field, kind):
        return kind.from_buffer(self.memory, self.offsets[field])

    def get(self, field, kind=ctypes.c_uint64):
        return self.at(field, kind).value

    def set(self, field, value, kind=ctypes.c_uint64):
        self.at(field, kind).value = value

    def pair(self, field):
        """Two doubles: a bandwidth or a linear function."""
        return tuple((ctypes.c_double * 2).from_buffer(self.memory,
                                                       self.offsets[field]))

    def address(self):
        return ctypes.byref(self.memory)
