#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draw README's picture: gain by message size, modelled and measured, from the
files of pages in docs/results.

usage: gain_picture.py PLANS.json REAL.json PICTURE.svg
"""

import sys

sys.dont_write_bytecode = True
import emulator_page
import plans_page
import plot

# names of plans_page, and colors
PLANS = {'own': ('a searched table', '#0050b0'),
         'calibrated': ('model, calibrated', '#2ca02c'),
         'model': ('out of the box', '#d62728'),
         'equal, no host': ('equal parts, GPUs', '#9467bd'),
         'naive': ('by data sheets', '#888')}
# (benchmark, memory, window)
CELLS = {('bw', 'D D', 16): ('GPU to GPU, 16', '#17becf'),
         ('bw', 'P D', 4): ('host to GPU, 4', '#ff7f0e')}
NODES = ('beluga', 'narval')


def modelled(data, node):
    rows = [row for group in data['rows'] for row in group]
    sizes = sorted({row['size'] for row in rows})
    lines = []
    for variant, (name, color) in PLANS.items():
        points = []
        for size in sizes:
            gain, = plans_page.speedups(rows, node, 'papers', variant, size)
            points.append((size, gain, gain, gain))
        lines.append(plot.Line(name, color, points))
    return plot.Panel('%s, one put, modelled' % node, 'times one path', lines,
                      at=(1,))


def measured(path):
    cells = emulator_page.stock_part(path).cells()
    return plot.Panel('2 x H200, MPI, measured', 'times stock UCX', [
        plot.Line(name, color, [
            (place[4], cell.median, cell.low, cell.high)
            for place, cell in cells.items()
            if (place[0], place[2], place[3]) == key])
        for key, (name, color) in CELLS.items()], at=(1,))


def main(arguments):
    if len(arguments) != 3:
        sys.exit(__doc__)
    data = plans_page.load(arguments[0])
    panels = [modelled(data, node) for node in NODES] + [measured(arguments[1])]
    with open(arguments[2], 'w', encoding='utf-8') as file:
        file.write(plot.figure(
            'Gain by message size', 'plans by where their figures come from; '
            'measured: windows of 16 and 4, page-locked host memory, bars 95 %',
            [panels], width=330))


if __name__ == '__main__':
    try:
        main(sys.argv[1:])
    except (OSError, ValueError, KeyError, emulator_page.Refused) as error:
        sys.exit('gain_picture.py: %s' % error)
