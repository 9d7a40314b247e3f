#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes a page, and a picture a node beside it, of what figure wrote:

    figure_page.py FILE.json PAGE.md
"""

import json
import os
import statistics
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)),
                                '..', '..', 'test', 'omb'))
import plot
from pages import table
from runs import size_text

STRIP = 8               # rows of a thread, jacobi_layout.h
# What the papers have at their largest size
PAPER = {'beluga': {'2/streams': 1.26, '2/graph': 1.28, '3/graph': 1.2},
         'narval': {'2/streams': 1.15, '2/graph': 1.16, '3/graph': 1.08}}
AIM = {'beluga': 1.28, 'narval': 1.16}
AIM_OF_BOUND = 0.90
NAMES = {'one': 'one path', '2/streams': 'two GPU paths, streams',
         '2/graph': 'two GPU paths, graphs',
         '3/streams': 'three GPU paths, streams',
         '3/graph': 'three GPU paths, graphs',
         'auto-no-host': 'default settings, no host path',
         'auto': 'default settings', 'stock': "stock UCX's own module"}
COLORS = {'one': '#888', '2/streams': '#1f77b4', '2/graph': '#d62728',
          '3/streams': '#17becf', '3/graph': '#ff7f0e',
          'auto-no-host': '#2ca02c', 'auto': '#9467bd', 'stock': '#000'}


def ms(seconds):
    return '%.3f' % (seconds * 1e3) if seconds < 1e-2 else \
        '%.2f' % (seconds * 1e3)


class Cell:
    """All iterations of a node, order, size and configuration that count."""

    def __init__(self, data, node, mode, row, config, moved=False):
        mine = [run for run in data['runs'] if
                (run['node'], run['mode'], run['row'], run['config'],
                 run['bytes'] and node != 'this') ==
                (node, mode, row, config, moved)]
        kept = [run for run in mine if not run['dropped']]
        self.seconds = [value for run in kept for value in run['seconds']]
        self.update = [value for run in kept for value in
                       run['update_seconds']]
        self.why = 'not run' if not mine else ', '.join(sorted(
            {run.get('error', '')[:60] for run in mine}))

    def __bool__(self):
        return bool(self.seconds)

    def median(self):
        return statistics.median(self.seconds)


# -------------------------------------------------------------------- bounds

def bytes_of(rows):
    """Bytes a column that the kernel asks for to update `rows` rows: each row
    once, and two more a strip, two neighbours of every four columns, and what it
    writes."""
    strips = -(-rows // STRIP)
    return 4 * (rows + 2 * strips) + 2 * rows + 4 * rows


def update_seconds(about, node, row, rows):
    return row / 4 * bytes_of(rows) / (about['nodes'][node]['memory_gbps'] *
                                       1e9)


def bound_seconds(about, node, mode, row, config):
    """The least that kernels' and links' times allow for an iteration."""
    link = about['nodes'][node]['link_gbps'] * 1e9
    rows = about['rows']
    if mode == 'ordered':
        # idle: the ring's other direction and the links across it, twice as
        # many as the messages use, and a relay takes two
        paths = 1 if config in ('one', 'stock') else 2
        return update_seconds(about, node, row, rows) + \
            2 * row / (paths * link)
    # any relay takes a link of the ring, which another message uses whole
    edges = 2 * update_seconds(about, node, row, 1)
    return edges + max(update_seconds(about, node, row, rows - 2), row / link)


def bounded(about, node):
    known = about['nodes'].get(node)
    return bool(known and known['memory_gbps'] and known['gpus'] == 4 and
                about['ranks'] == 4 and about['rows'] > 2)


def arithmetic(about, node, row):
    """How the bound of the papers' order comes about, in a paragraph."""
    rows, known = about['rows'], about['nodes'][node]
    update = update_seconds(about, node, row, rows)
    direct = row / (known['link_gbps'] * 1e9)
    return [
        'The bound, for rows of %s. The kernel reads and writes %d bytes a point: '
        'each row once, two more for %d of them, two neighbours of every four '
        'points, the result. %d rows of %.4g million points are %.2f GB, at %g '
        'GB/s %s ms. '
        'A message over its own link takes %s / %g GB/s = %s ms, two of them one '
        'after the other %s ms, over two paths half of that. Together %s ms with '
        'one path, %s ms with two: %.2fx. No call, event or start of a copy costs '
        'anything in it.' % (
            size_text(row), bytes_of(rows) // rows, min(STRIP, rows), rows,
            row / 4e6, row / 4 * bytes_of(rows) / 1e9, known['memory_gbps'],
            ms(update), size_text(row), known['link_gbps'], ms(direct),
            ms(2 * direct), ms(update + 2 * direct), ms(update + direct),
            (update + 2 * direct) / (update + direct)), '']


# --------------------------------------------------------------------- tables

def entry(cell, base, limit):
    if not cell:
        return cell.why
    text = '%s (%s..%s)' % (ms(cell.median()), ms(min(cell.seconds)),
                            ms(max(cell.seconds)))
    if base and base is not cell:
        text += ', **%.2fx**' % (base.median() / cell.median())
    if limit:
        text += ', %.0f %%' % (100 * limit / cell.median())
    return text


def node_table(data, node, mode, rows, configs):
    about, lines = data['about'], []
    for row in rows:
        base = Cell(data, node, mode, row, configs[0])
        line = [size_text(row)]
        update = [value for config in configs for value in
                  Cell(data, node, mode, row, config).update]
        line.append(ms(statistics.median(update)) if update else '')
        for config in configs:
            limit = bound_seconds(about, node, mode, row, config) \
                if bounded(about, node) else None
            line.append(entry(base if config == configs[0] else
                              Cell(data, node, mode, row, config), base, limit))
        lines.append(line)
    return table(['row', 'update' if mode == 'ordered' else "edges' update"] +
                 [NAMES[config] for config in configs], lines)


def aims(data, node, rows, configs):
    """The papers' order, no host path: what came out against what was aimed."""
    lines = []
    for config in configs[1:]:
        gains = {}
        for row in rows:
            one = Cell(data, node, 'ordered', row, configs[0])
            cell = Cell(data, node, 'ordered', row, config)
            if one and cell:
                gains[row] = one.median() / cell.median()
        if rows[-1] not in gains:
            continue
        paper = PAPER.get(node, {}).get(config)
        limit = bound_seconds(data['about'], node, 'ordered', rows[-1], config)
        share = limit / Cell(data, node, 'ordered', rows[-1], config).median()
        smaller = {row: gain for row, gain in gains.items() if row != rows[-1]}
        least = min(smaller, key=smaller.get) if smaller else None
        good = gains[rows[-1]] >= AIM.get(node, 1) and \
            share >= AIM_OF_BOUND and (not smaller or smaller[least] >= 1)
        lines.append([node, NAMES[config], '%.2fx' % paper if paper else '',
                      '%.3fx' % gains[rows[-1]], '%.1f %%' % (100 * share),
                      '%.2fx (%s)' % (smaller[least], size_text(least))
                      if smaller else '', 'yes' if good else 'no'])
    return lines


def moved_table(data):
    """Runs that move all bytes beside those that take their time alone."""
    lines = []
    for cell in data['plan']:
        if not cell['bytes'] or cell['node'] == 'this' or cell['round']:
            continue
        place = [cell[key] for key in ('node', 'mode', 'row', 'config')]
        moved, timed = Cell(data, *place, moved=True), Cell(data, *place)
        lines.append([cell['node'], size_text(cell['row']),
                      NAMES[cell['config']], entry(timed, None, None),
                      entry(moved, None, None),
                      '%.3f' % (timed.median() / moved.median())
                      if timed and moved else ''])
    return table(['node', 'row', 'paths', 'times alone, ms', 'all bytes, ms',
                  'ratio'], lines) if lines else []


def picture(data, node, modes, path):
    """Times one path by size; SVG."""
    panels = []
    for mode, (rows, configs) in modes.items():
        lines = []
        for config in configs[1:]:
            points = []
            for row in rows:
                one = Cell(data, node, mode, row, configs[0])
                cell = Cell(data, node, mode, row, config)
                if one and cell:
                    base = one.median()
                    points.append((row, base / cell.median(),
                                   base / max(cell.seconds),
                                   base / min(cell.seconds)))
            if points:
                lines.append(plot.Line(NAMES[config], COLORS[config], points))
        panels.append(plot.Panel(mode, 'times %s' % NAMES[configs[0]], lines,
                                 at=(1,)))
    with open(path, 'w', encoding='utf-8') as file:
        file.write(plot.figure('jacobi on %s' % node, data['about']['command'],
                               [panels], width=420, height=280))


# ----------------------------------------------------------------------- page

def cells_of(data, node):
    """{order: (sizes, configurations)} of the plan."""
    modes = {}
    for cell in data['plan']:
        if cell['node'] == node and not (cell['bytes'] and node != 'this'):
            rows, configs = modes.setdefault(cell['mode'], ([], []))
            if cell['row'] not in rows:
                rows.append(cell['row'])
            if cell['config'] not in configs:
                configs.append(cell['config'])
    return {mode: (sorted(rows), configs)
            for mode, (rows, configs) in modes.items()}


def heading(data, source):
    """`source` is where the page's readers find the file."""
    about = data['about']
    modelled = 'this' not in about['nodes']
    base = NAMES[data['plan'][0]['config']]
    dropped = sum(run['dropped'] for run in data['runs'])
    out = ['# A Jacobi solver, several paths against one', '',
           'This page is for readers of the papers: an application with one and '
           'with several paths. %s. `%s`, revision %s, %s, UCX %s, %s. '
           'It is made from [the output of that command](%s) by '
           '`examples/jacobi/figure_page.py`; do not edit it.' % (
               '*Modelled*: emulated nodes' if modelled else
               '*Measured*: %s' % about['machine'], about['command'],
               about['revision'], about['date'], about['ucx'], about['mpi'],
               source), '',
           '[jacobi](../../examples/jacobi/README.md): %d ranks in a ring, one '
           'GPU and %d rows per rank; each iteration sends a boundary row to both '
           'neighbours. *Ordered* is the papers\' order (Sojoodi et al., 000, '
           'section 5.4, and 001, section 4.3; [sources](papers.md)): update, one '
           'direction of the ring, then the other. *Overlapped*: both directions '
           'at once, while the interior is updated. A cell is the median time '
           'of %d iterations in milliseconds, with the shortest and the longest, '
           'then **times %s**%s. The papers run 1,000 iterations, each like the '
           'one before.' % (
               about['ranks'], about['rows'], about['iterations'], base,
               ', then the share of the bound' if any(
                   bounded(about, node) for node in about['nodes']) else ''),
           '']
    if modelled:
        out += ['Copies of %s and more take modelled time but move no bytes, and '
                'of a kernel only the first and the last 32 blocks run '
                '(`CUEMU_TIME_ONLY`). Rows of 256 MiB would need 20 GiB of GPU '
                'memory. The runs at the end of the page move every byte. %d of '
                '%d runs were dropped. In the model, a kernel\'s accesses and '
                'messages do not share memory bandwidth.' % (
                    about['time_only'], dropped, len(data['runs'])), '']
    return out


def page(data, source, path):
    about = data['about']
    out = heading(data, os.path.relpath(source, os.path.dirname(path) or '.'))
    stem = os.path.splitext(path)[0]
    lines = []
    for node in about['nodes']:
        rows, configs = cells_of(data, node).get('ordered', ([], []))
        if rows and bounded(about, node):
            lines += aims(data, node, rows, configs)
    if lines:
        out += ['## Aims', '',
                'The papers\' order, no host path, the largest size: at least '
                '1.28x on beluga and 1.16x on narval, and 90 % of the bound; '
                'every smaller size at least 1.0x.', '']
        out += table(['node', 'paths', 'paper, up to', 'largest size',
                      'of the bound', 'least of the smaller ones', 'reached'],
                     lines)
    for node in about['nodes']:
        modes = cells_of(data, node)
        drawing = '%s-%s.svg' % (stem, os.path.basename(node).replace(
            '.xml', ''))
        picture(data, node, modes, drawing)
        out += ['## %s' % (about['machine'] if node == 'this' else node), '',
                '![several paths by size](%s)' % os.path.basename(drawing), '']
        for mode, (rows, configs) in modes.items():
            out += ['### %s' % mode.capitalize(), '']
            out += node_table(data, node, mode, rows, configs)
            if mode == 'ordered' and bounded(about, node):
                out += arithmetic(about, node, rows[-1])
        if 'overlapped' in modes and bounded(about, node):
            out += ['Overlapped, a relay gains nothing: every way over another '
                    'GPU ends or begins with a link of the ring, and all of those '
                    'carry a message already. Only the host\'s path is more. The '
                    'bound is the edges\' update, then the longer one of the '
                    'interior\'s and a message over its own link.', '']
    lines = moved_table(data)
    if lines:
        out += ['## With all bytes moved', '',
                'Where a ratio is far from 1, iterations of one run fall into '
                'groups: see the shortest and the longest. Why was not '
                'examined.', ''] + lines
    settings = ['`%s`: %s' % (name, ', '.join(
        '`%s=%s`' % pair for pair in sorted(values.items())) or 'nothing set')
        for name, values in about['configs'].items()]
    out += ['## Settings', '', 'UCX_TLS=%s, and for' % about['ucx_tls'], '']
    out += ['* ' + text for text in settings]
    with open(path, 'w', encoding='utf-8') as file:
        file.write('\n'.join(out).rstrip() + '\n')


def main(arguments):
    if len(arguments) != 2:
        sys.exit(__doc__)
    with open(arguments[0], encoding='utf-8') as file:
        data = json.load(file)
    page(data, *arguments)
    print(arguments[1], file=sys.stderr)


main(sys.argv[1:])
