#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Make a page of test/omb/played from its files: the gain of plans from several
sources, and how the headline figures depend on the emulator's constants.

usage: plans_page.py PLANS.json SENSITIVITY.json SETUP.json PAGE.md
"""

import json
import os
import statistics
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)
import bound
from pages import table

NODES = os.path.join(os.path.dirname(os.path.dirname(HERE)), 'src', 'cuemu',
                     'nodes')
# Papers' figures for a put of any size (papers.json), the source of the aims
PAPERS = {'beluga': 2.85, 'narval': 2.75, 'mist': 1.84, 'cedar': 1.23}
HEADLINE = 256 << 20
PATHS_TEXT = {
    ('beluga', 'papers'): 'three GPU paths and the host',
    ('narval', 'papers'): 'three GPU paths and the host',
    ('mist', 'papers'): 'the direct path and the host',
    ('cedar', 'papers'): 'the direct path and the host'}
TEXT = {'model': "the model alone, its built-in constants (H200's)",
        'calibrated': 'the model alone, constants by `--calibrate` there',
        'other': 'the best plan found on another node of the kind (median of '
                 'seeds, least to most)',
        'own': 'the best plan found on the node itself',
        'naive': 'naive: shares by data sheets, 16 chunks',
        'equal': 'equal parts on all of them, 16 chunks',
        'equal, no host': 'equal parts, GPU paths only, 16 chunks'}


def load(path):
    with open(path, encoding='utf-8') as file:
        return json.load(file)


def speedups(rows, node, paths, variant, size):
    return [row['single'] / row['seconds'] for row in rows
            if (row['node'], row['paths'], row['variant'], row['size']) ==
            (node, paths, variant, size)]


def cell(values):
    text = '%.2fx' % statistics.median(values)
    if len(values) > 1:
        text += ' (%.2f to %.2f)' % (min(values), max(values))
    return text


def bounds(rows, node, paths, size):
    """Return the limit set by the links' specifications, in GB/s and relative
    to one link: the plain sum of the rates of the paths used by plans of this
    size. Only paths with links of their own count (mist's sockets have none
    from GPU to GPU)."""
    described = bound.Node(os.path.join(NODES, node + '.xml'))
    used = set()
    for row in rows:
        if (row['node'], row['paths'], row['size']) == (node, paths, size):
            used.update(row['plan'].split()[0].split(','))
    _, total = bound.bound(described, [(name, 1 << 26, 1 << 22)
                                       for name in sorted(used)
                                       if described.hops(name, 0, 1)])
    return total, total / described.solo(described.gpu_to_gpu(0, 1))


def size_text(size):
    return '%d MiB' % (size >> 20)


def summary(rows):
    lines = []
    for node, paper in PAPERS.items():
        if not any(row['node'] == node for row in rows):
            continue
        line = [node, '%.2fx' % paper]
        for variant in ('model', 'calibrated', 'other', 'own', 'naive',
                        'equal, no host'):
            values = speedups(rows, node, 'papers', variant, HEADLINE)
            line.append(cell(values) if values else '-')
        line.append('%.2fx' % bounds(rows, node, 'papers', HEADLINE)[1])
        values = speedups(rows, node, 'papers', 'calibrated', HEADLINE)
        line.append('yes' if values and statistics.median(values) >= paper
                    else '**no**')
        lines.append(line)
    return table(['node', 'the paper', 'model, built-in', 'model, calibrated',
                  "another node's best", 'own best', 'naive',
                  'equal, no host', 'links', 'paper reached, calibrated'],
                 lines)


def plans(data):
    rows = [row for group in data['rows'] for row in group]
    sizes = sorted({row['size'] for row in rows})
    out = ['## Gain of a plan, by source of its constants', '',
           '*Modelled, no processes*: `ucx_mp_plan_time` computes the time of one '
           'put from GPU 0 to GPU 1 with the timing core of the emulated node; '
           'the figures are the same every time. `%s`, revision %s, %s. A figure '
           'is the gain over one plain copy.' % (
               data['about']['command'], data['about']['revision'],
               data['about']['date']), '',
           '| column | plan |', '|---|---|',
           '| model, built-in | the module\'s, without a tuning table |',
           '| model, calibrated | the module\'s, with the table of '
           '`ucx_mp_tune --calibrate`, as any user can make it |',
           '| own best | best plan of `ucx_mp_tune --search`, forced by variables '
           '|',
           '| another node\'s best | the same, searched on a node with each '
           'constant of the emulator (links, copies, calls) changed at random by '
           'up to 10 % |',
           '| naive | shares from data sheets |',
           '| equal, no host | equal shares, without the host path |',
           '| links | no plan: the bound by data sheets, without packet headers '
           'and calls (`test/omb/bound.py`) |', '',
           '256 MiB, over the papers\' paths:', '']
    out += summary(rows)
    for node, paths in dict.fromkeys((row['node'], row['paths'])
                                     for row in rows):
        out += ['**%s**, %s' % (node, PATHS_TEXT.get(
            (node, paths), 'all paths, default settings')), '']
        lines = []
        for variant, text in TEXT.items():
            values = [speedups(rows, node, paths, variant, size)
                      for size in sizes]
            if all(values):
                lines.append([text] + [cell(item) for item in values])
        lines.append(['the links\' bound'] + ['%.2fx' % bounds(
            rows, node, paths, size)[1] for size in sizes])
        out += table(['plan by'] + [size_text(size) for size in sizes], lines)
    return out


# ------------------------------------------------------------------ sensitivity

def plot(rows, path):
    """Return a plot: bars from the lowest to the highest figure of a node as
    one constant is changed, a node below the other; an SVG as text, the same on
    every machine."""
    left, width, step = 190, 420, 15
    out, top = [], 20
    for node in dict.fromkeys(row['node'] for row in rows):
        own = [row for row in rows if row['node'] == node]
        base = next(row for row in own if row['constant'] is None)
        names = list(dict.fromkeys(row['constant'] for row in own
                                   if row['constant']))
        values = [row[variant]['speedup'] for row in own
                  for variant in ('new', 'old')] + [PAPERS[node]]
        low, high = min(values) - 0.02, max(values) + 0.02

        def place(value, low=low, high=high):
            return left + width * (value - low) / (high - low)

        out.append('<text x="%d" y="%d" font-weight="bold">%s: %.2fx; dashed: '
                   'the paper, %.2fx</text>' % (10, top, node, base['new'][
                       'speedup'], PAPERS[node]))
        for index, name in enumerate(names):
            y = top + 12 + index * step
            out.append('<text x="%d" y="%d" text-anchor="end">%s</text>' % (
                left - 8, y + 9, name))
            for variant, color, off in (('new', '#1f77b4', 0),
                                        ('old', '#ff7f0e', 6)):
                ends = [row[variant]['speedup'] for row in own
                        if row['constant'] == name] + [
                            base[variant]['speedup']]
                out.append('<rect x="%.1f" y="%d" width="%.1f" height="5" '
                           'fill="%s"/>' % (place(min(ends)), y + off, max(
                               place(max(ends)) - place(min(ends)), 1), color))
        bottom = top + 12 + len(names) * step
        for value, dash in ((base['new']['speedup'], ''),
                            (PAPERS[node], ' stroke-dasharray="3 3"')):
            out.append('<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" '
                       'stroke="black"%s/>' % (place(value), place(value),
                                               top + 8, bottom, dash))
        for value in (low + 0.02, high - 0.02):
            out.append('<text x="%.1f" y="%d" text-anchor="middle">%.2f</text>'
                       % (place(value), bottom + 11, value))
        top = bottom + 36
    with open(path, 'w', encoding='utf-8') as file:
        file.write('<svg xmlns="http://www.w3.org/2000/svg" width="640" '
                   'height="%d" font-family="sans-serif" font-size="10">\n'
                   '<rect width="640" height="%d" fill="white"/>\n%s\n</svg>\n'
                   % (top, top, '\n'.join(out)))


def sensitivity(data, page):
    rows = [row for group in data['rows'] for row in group]
    out = ['## Sensitivity to the emulator\'s constants', '',
           '*Modelled, no processes*, as above: a put of 256 MiB over the '
           'papers\' paths, with one constant of the emulator 20 %% smaller or '
           'larger. The model plans with constants measured by `--calibrate` on '
           'the changed node ("again"), or on the node before the change '
           '("before"). `%s`, revision %s, %s.' % (
               data['about']['command'], data['about']['revision'],
               data['about']['date']), '']
    name = os.path.splitext(os.path.basename(page))[0] + '-sensitivity.svg'
    plot(rows, os.path.join(os.path.dirname(page) or '.', name))
    out += ['![times stock while one constant is turned; blue: calibrated '
            'again, orange: before](%s)' % name, '']
    lines = []
    for node in dict.fromkeys(row['node'] for row in rows):
        own = [row for row in rows if row['node'] == node]
        base = next(row for row in own if row['constant'] is None)
        lines.append([node, 'none'] + ['%.2fx' % base['new']['speedup'], '',
                                       '', ''])
        for constant in dict.fromkeys(row['constant'] for row in own
                                      if row['constant']):
            values = {row['sign']: row for row in own
                      if row['constant'] == constant}
            lines.append(['', constant] + ['%.2fx' % values[sign][variant][
                'speedup'] for variant in ('new', 'old') for sign in (-1, 1)])
    out += table(['node', 'constant', '-20 %, again', '+20 %, again',
                  '-20 %, before', '+20 %, before'], lines)
    worst = {}
    for row in rows:
        worst.setdefault(row['node'], []).append(row['new']['speedup'])
    out += ['The least of each node, calibrated again: %s.' % ', '.join(
        '%s %.2fx (paper %.2f)' % (node, min(values), PAPERS[node])
        for node, values in worst.items()), '']
    return out


def setup(data):
    """Return the gain of plans by factors of the set-up costs."""
    rows = [row for group in data['rows'] for row in group]
    sizes = sorted({row['size'] for row in rows})
    found = {(row['node'], row['times'], row['size']): row['speedup']
             for row in rows}
    out = ['## Set-up costs of older machines', '',
           '*Modelled, no processes*, as above. The emulated nodes take the costs '
           'of copies and calls from an H200, and the papers\' machines are older. '
           'Here a copy\'s set-up and a stream that waits for another one '
           'take several times as long, and `--calibrate` measures the changed '
           'node. The papers\' figures of 256 and 512 MiB lie between 2 and 5 '
           'times an H200\'s set-up, cedar\'s below all. `%s`, revision %s, %s.'
           % (data['about']['command'], data['about']['revision'],
              data['about']['date']), '']
    return out + table(
        ['node', 'the paper', 'set-up'] + [size_text(size) for size in sizes],
        [[node, '%.2fx' % PAPERS[node], '%d x H200\'s' % times] +
         ['%.2fx' % found[node, times, size] for size in sizes]
         for node, times in dict.fromkeys((row['node'], row['times'])
                                          for row in rows)])


def parts(plans_path, sensitivity_path, setup_path, page):
    """Return the lines of the page."""
    out = ['# The papers\' nodes, planned by constants and by search', '',
           'This page is for readers who want to know how good the module\'s '
           'plans are, and how reliable the modelled figures are. '
           '`test/omb/plans_page.py` makes it from JSON files; do not edit it. '
           'For runs with processes and MPI see [papers.md](papers.md).', '']
    if os.path.exists(plans_path):
        out += plans(load(plans_path))
    if os.path.exists(sensitivity_path):
        out += sensitivity(load(sensitivity_path), page)
    if os.path.exists(setup_path):
        out += setup(load(setup_path))
    return out


if __name__ == '__main__':
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    with open(sys.argv[4], 'w', encoding='utf-8') as out_file:
        out_file.write('\n'.join(parts(*sys.argv[1:])).rstrip() + '\n')
