#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Write a page of figures from fresh starts: starts_page.py NAME.json NAME.md.

docs/results/h100-x2 and h200-x2-starts are such pages."""

import json
import os
import statistics
import sys

MIB = 1 << 20
SIZES = [1, 4, 16, 64, 256]
TESTS = [('bibw1', 'both ways, one at a time'), ('bw', 'one way, one at a time'),
         ('bw16', 'one way, 16 at once')]


def load(path):
    with open(path) as file:
        return json.load(file)


def values(data, test, variant, size):
    """Return the GB/s of each start."""
    return [sample['value'] for sample in data['samples'] if
            (sample['test'], sample['variant'], sample['size']) ==
            (test, variant, size)]


def ratio(data, test, size):
    """Return ours relative to stock's median: the median of the starts, and the
    lowest."""
    stock = statistics.median(values(data, test, 'stock', size))
    ours = values(data, test, 'ours', size)
    return statistics.median(ours) / stock, min(ours) / stock


def messages(data):
    yield '| | | ' + ' | '.join('%d MiB' % size for size in SIZES) + ' |'
    yield '|---|---' + '|---' * len(SIZES) + '|'
    for test, title in TESTS:
        for variant in ('stock', 'ours'):
            cells = []
            for size in SIZES:
                found = values(data, test, variant, size * MIB)
                cells.append('%.1f (%.1f..%.1f)' % (
                    statistics.median(found), min(found), max(found))
                    if found else '')
            yield '| %s | %s | %s |' % (title, variant, ' | '.join(cells))
            title = ''
        cells = ['%.3f, %.3f' % ratio(data, test, size * MIB)
                 if values(data, test, 'ours', size * MIB) else ''
                 for size in SIZES]
        yield '| | ratio, worst start | %s |' % ' | '.join(cells)


def freed(data):
    yield '| | memory | before | with it | after | within |'
    yield '|---|---|---|---|---|---|'
    for who in dict.fromkeys(row['who'] for row in data['freed']):
        rows = [row for row in data['freed'] if row['who'] == who]
        for kind in dict.fromkeys(row['kind'] for row in rows):
            of_kind = [row for row in rows if row['kind'] == kind]
            yield '| %s | %s | %d | %d | %d | %d ms |' % (
                who, kind, *(max(row[name] for row in of_kind)
                             for name in ('before', 'with', 'after', 'ms')))


def solver(data):
    yield '| revision | row | stock | ours | ratio |'
    yield '|---|---|---|---|---|'
    for revision, size in dict.fromkeys((row.get('revision'), row['row'])
                                        for row in data['jacobi']):
        times = {name: [row['us'] for row in data['jacobi'] if (
            row['variant'], row['row'], row.get('revision')) == (
                name, size, revision)] for name in ('stock', 'ours')}
        stock, ours = (statistics.median(times[name])
                       for name in ('stock', 'ours'))
        yield '| %s | %d MiB | %s | %s | %.3f |' % (
            revision or data['about']['revision'], size, *(
            '%.1f (%.1f..%.1f)' % (statistics.median(found), min(found),
                                   max(found)) for found in times.values()),
            stock / ours)


def page(data, source):
    about = data['about']
    yield '# ' + about['title']
    yield ''
    yield 'This page is for readers who want to know whether figures repeat ' \
        'from run to run. *Measured* on %s, revision %s, %s;' % (
            about['machine'], about['revision'], about['date'])
    yield '`test/omb/starts_page.py` makes it from [the samples](%s). ' \
        'Stock is UCX 1.22\'s own CUDA module.' % source
    yield ''
    yield '## Messages'
    yield ''
    yield 'GPU to GPU with MPI. Each start is a new job; stock and ours ' \
        'alternate. Figures are medians of the starts'
    yield '(minimum..maximum), GB/s. A ratio divides the medians. "Worst start": ' \
        'our slowest start divided by stock\'s median.'
    yield ''
    yield from messages(data)
    yield ''
    yield '## Solver'
    yield ''
    yield '[examples/jacobi](../../examples/jacobi/README.md), two ranks that ' \
        'send to each other: %s starts each in' % about['solver_starts']
    yield 'turns, us an iteration, stock\'s time over ours.'
    yield ''
    yield from solver(data)
    yield ''
    if 'freed' in data:
        yield from memory(data)
    yield '## Commands'
    yield ''
    yield '```'
    yield from about['commands']
    yield '```'


def memory(data):
    yield '## Memory'
    yield ''
    yield 'MiB in use on the owner\'s GPU, contexts of both processes ' \
        'included: before the memory is made,'
    yield 'with it, and after its owner has freed it, while the reader is ' \
        'idle. NIXL\'s rows are the'
    yield 'most of four runs each: deregistered or not, agent kept or removed.'
    yield ''
    yield from freed(data)
    yield ''


def main(arguments):
    source, target = arguments
    with open(target, 'w') as file:
        file.write('\n'.join(page(load(source),
                                  os.path.basename(source))) + '\n')


if __name__ == '__main__':
    main(sys.argv[1:])
