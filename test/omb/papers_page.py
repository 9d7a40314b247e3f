#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Write the page of test/omb/papers, and its plots, from its rows.

usage: papers_page.py ROWS.json PAGE.md [--no-plots]

Plots (SVG, one per node) need matplotlib; without it, or with --no-plots, the
page has none.
"""

import json
import os
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)
import experiments
from pages import table
from runs import MIB, size_text

TITLES = {'put': 'UCX put', 'bw': 'MPI bandwidth', 'bibw':
          'MPI bandwidth, both ways', 'latency': 'MPI latency'}
ORDER = list(TITLES)
LARGE = 32 * MIB    # smaller messages have tables of their own


def config_text(row):
    """Return the short name of a column."""
    if row['executor'] in ('stock', 'single', 'auto'):
        return {'stock': 'stock', 'single': 'ours, one path',
                'auto': 'ours, `auto`, with table'}[row['executor']]
    return '%d GPU%s, %s' % (row['paths'], {'n': '', 'y': ' + host', 'auto':
                                            ' (+ host)'}[row['host']],
                             row['executor'])


def config_order(row):
    return ({'stock': 0, 'single': 1, 'auto': 2}.get(row['executor'], 3),
            row['executor'] == 'graph', str(row['paths']),
            'nay'.index(row['host'][0]))


def test_text(row):
    if row['benchmark'] in ('bw', 'bibw'):
        return '%s, window %d' % (TITLES[row['benchmark']], row['window'])
    return TITLES[row['benchmark']]


def test_order(row):
    return (ORDER.index(row['benchmark']), row['window'])


def why_void(row):
    text = row.get('void') or row.get('void_ratio') or 'not run'
    if ' late' in text or text.startswith('scattered'):
        text = 'machine too busy'
    return text


def matches(row, item):
    return all(row[name] == item[name] for name in
               ('node', 'benchmark', 'window', 'paths', 'host', 'executor')
               if name in item) and row['size'] >= item['size_min'] and \
        row['executor'] in ('streams', 'graph')


# --------------------------------------------------------------------- tables

def node_tables(rows):
    """Return a table per benchmark: GB/s, and in brackets the ratio to
    stock."""
    out = []
    for test in sorted({test_order(row) for row in rows}):
        group = [row for row in rows if test_order(row) == test]
        heads = sorted({config_order(row): config_text(row)
                        for row in group}.items())
        out += ['**%s** (GB/s)' % test_text(group[0]), '']
        for least, most in ((0, LARGE), (LARGE, 1 << 62)):
            sizes = sorted({row['size'] for row in group
                            if least <= row['size'] < most})
            if sizes:
                out += size_table(group, heads, sizes)
    return out


def size_table(group, heads, sizes):
    """Return the lines of the table of these sizes."""
    lines = []
    for order, name in heads:
        line = [name]
        for size in sizes:
            found = [row for row in group if row['size'] == size and
                     config_order(row) == order]
            line.append(cell(found[0]) if found else '-')
        if set(line[1:]) != {'-'}:
            lines.append(line)
    return table(['paths'] + [size_text(size) for size in sizes], lines)


def cell(row):
    if not row['gbps']:
        return 'void: ' + why_void(row)
    text = '%.1f' % row['gbps']
    if row['executor'] == 'stock':
        if row.get('stock_of_link'):
            text += ' (%.1f %% of its link)' % (100 * row['stock_of_link'])
        return text
    if row.get('void_ratio'):
        return text + ' (ratio void: %s)' % row['void_ratio']
    if row['speedup']:
        text += ', **%.2fx**' % row['speedup']
    if row['bound_gbps'] and row['executor'] in ('streams', 'graph'):
        text += ', %.0f %%' % (100 * row['gbps'] / row['bound_gbps'])
    return text


def aims(rows, items):
    """Return the aims, each with the lowest result in its range of sizes."""
    lines = []
    for item in items:
        found = [row for row in rows if matches(row, item)]
        if not found and item['node'] not in {row['node'] for row in rows}:
            continue
        for executor in sorted({item.get('executor')} - {None} or
                               {'streams', 'graph'}, reverse=True):
            group = [row for row in found if row['executor'] == executor]
            name = '%s, %s, %s %s, from %s' % (
                item['node'], test_text(dict(item, window=item['window']))
                if 'window' in item else TITLES[item['benchmark']],
                '%d GPU path%s' % (item['paths'], 's' * (item['paths'] > 1)),
                {'y': '+ host', 'n': '', 'auto': '(host if idle)'}[
                    item['host']], size_text(item['size_min']))
            for key, what in (('speedup', 'x stock'), ('of_bound', 'bound'),
                              ('of_sum', 'plain sum')):
                if key not in item:
                    continue
                base = {'of_bound': 'bound_gbps', 'of_sum': 'sum_gbps'}.get(key)
                values = [row['speedup'] if key == 'speedup' else
                          row['gbps'] / row[base] for row in group
                          if row['gbps'] and (row['speedup'] if key == 'speedup'
                                              else row.get(base))]
                void = [row for row in group if not row['gbps'] or
                        row.get('void_ratio')]
                if not values:
                    seen, verdict = ('void: ' + why_void(void[0])
                                     if void else 'not run'), '-'
                elif key == 'speedup':
                    seen = '%.2fx' % min(values)
                    if max(values) - min(values) > 0.005:
                        seen += ' to %.2fx' % max(values)
                    verdict = 'yes' if round(min(values), 2) >= item[key] \
                        else 'up to' if max(values) >= item[key] else 'no'
                else:
                    seen = '%.1f %%' % (100 * min(values))
                    verdict = 'yes' if min(values) >= item[key] else 'no'
                aim = '>= %.2f%s' % (item[key], what) if key == 'speedup' \
                    else '>= %.0f %% of the %s' % (100 * item[key], what)
                lines.append([name, executor, aim, seen, verdict])
    return table(['what', 'executor', 'aim', 'came out', 'reached'], lines)


def beside(rows, items):
    """Return the papers' figures, with ours in the same range of sizes."""
    lines = []
    for item in items:
        found = [row for row in rows if matches(row, item)]
        if not any(row['node'] == item['node'] for row in rows):
            continue
        ours = [row for row in found if row['speedup']]
        if ours:
            best = max(ours, key=lambda row: row['speedup'])
            seen = '%.2fx at %s (%.1f GB/s, bound %.1f)' % (
                best['speedup'], size_text(best['size']), best['gbps'],
                best['bound_gbps'] or 0)
            if len(ours) > 1:
                seen += '; %.2fx at least' % min(row['speedup'] for row in ours)
        else:
            seen = 'void: ' + why_void(found[0]) if found else 'not run'
        paper = '%s%.2fx' % ('up to ' if item['up_to'] else '', item['speedup'])
        if 'gbps' in item:
            paper += ' (%g GB/s)' % item['gbps']
        lines.append(['%s, %s%s, %d GPU path%s + host, %s' % (
            item['node'], TITLES[item['benchmark']], ', window %d' %
            item['window'] if 'window' in item else '', item['paths'],
            's' * (item['paths'] > 1), item['executor']), paper,
                      item['source'], seen, item.get('remark', '')])
    return table(['what', 'paper', 'where', 'ours, modelled', 'why they differ'],
                 lines)


# ---------------------------------------------------------------------- plots

def plotted(rows):
    """Return the rows shown in pictures."""
    return [row for row in rows if row['speedup'] and
            row['executor'] in ('streams', 'graph')]


def plot(rows, items, path):
    """Draw a node's picture: ratio to stock by size, a panel per benchmark."""
    try:
        import matplotlib
    except ImportError:
        print('(no matplotlib, so no plots)', file=sys.stderr)
        return False
    matplotlib.use('Agg')
    matplotlib.rcParams['svg.hashsalt'] = 'ucx-mp'
    matplotlib.rcParams['svg.fonttype'] = 'none'
    from matplotlib import pyplot

    rows = plotted(rows)
    tests = sorted({test_order(row) for row in rows})
    if not tests:
        return False
    columns = min(len(tests), 4)
    lines = -(-len(tests) // columns)
    figure, axes = pyplot.subplots(lines, columns, squeeze=False, sharey=True,
                                   figsize=(3.1 * columns, 2.8 * lines))
    colors = {}
    for index, axis in enumerate(axes.flat):
        if index >= len(tests):
            axis.axis('off')
            continue
        group = [row for row in rows if test_order(row) == tests[index]]
        sizes = sorted({row['size'] for row in group})
        for order in sorted({config_order(row) for row in group}):
            mine = sorted((row for row in group if config_order(row) == order),
                          key=lambda row: row['size'])
            name = config_text(mine[0])
            key = name.rsplit(',', 1)[0]
            color = colors.setdefault(key, 'C%d' % len(colors))
            axis.plot([row['size'] for row in mine],
                      [row['speedup'] for row in mine], label=name, color=color,
                      marker='os'[mine[0]['executor'] == 'graph'], ms=4,
                      ls='-' if mine[0]['executor'] == 'streams' else '--')
        for item in items:
            if any(matches(row, item) for row in group):
                axis.axhline(item['speedup'], color='k', lw=0.8, ls=':')
                axis.text(sizes[0], item['speedup'], 'paper %.2f' %
                          item['speedup'], fontsize=6, va='bottom')
        axis.axhline(1, color='0.6', lw=0.8)
        axis.set_xscale('log', base=2)
        axis.set_xticks(sizes)
        axis.set_xticklabels([size_text(size) for size in sizes], fontsize=6,
                             rotation=30)
        axis.minorticks_off()
        axis.set_title(test_text(group[0]), fontsize=8)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    for line in axes:
        line[0].set_ylabel('times stock', fontsize=8)
    found = {}
    for axis in axes.flat:
        for handle, label in zip(*axis.get_legend_handles_labels()):
            found.setdefault(label, handle)
    figure.legend(found.values(), found.keys(), fontsize=7, ncol=4,
                  loc='lower center')
    figure.tight_layout(rect=(0, 0.06 + 0.06 * (len(found) > 4), 1, 1))
    figure.savefig(path, metadata={'Date': None})
    pyplot.close(figure)
    return True


# ----------------------------------------------------------------------- main

def page(data, papers, path, plots=True):
    rows = data['rows']
    nodes = list(dict.fromkeys(row['node'] for row in rows))
    modelled = 'this' not in nodes
    out = ['# The papers\' tables', '',
           'This page is for readers of the papers. It repeats their tables with '
           'this module, and says which tables and figures could be '
           'reproduced. %s; `test/omb/papers` makes it from its rows, do not '
           'edit it.' % (
               '*Modelled*: emulated nodes' if modelled else '*Measured*'), '']
    for number, run in enumerate(data['runs']):
        own = sum(row['run'] == number for row in rows)
        if own:
            out += ['- %d cells: `%s`, revision %s, %s; %s; UCX %s, %s' % (
                own, run['command'], run['revision'], run['date'],
                run['machine'], run['ucx'], run['mpi'])]
    out += ['',
           'Two processes on GPU 0 and GPU 1. Stock is UCX 1.22\'s own CUDA '
           'module, ours is our module in the same UCX. "Put" is the median of '
           'single puts, one at a time. A cell has GB/s (10^9 bytes/s), **times '
           'stock**, and the share of the bound. The bound is the limit set by '
           'the links alone: rates of the paths, with the first and last chunk of '
           'a staged path (`test/omb/bound.py`). `(+ host)` uses the host path '
           'only while nothing runs the other way. *Void*: a run '
           'failed, the graph executor was not used, '
           'or stock stayed below 97 % of its link at 128 MiB or more.', '']
    out += ['The papers have numbers here:', '']
    out += ['- %s: %s' % item for item in papers['sources'].items()] + ['']
    out += ['"3 GPU" is three paths without the host: the direct one and two '
            'over relays. "With table" is the module\'s own plan with the '
            'tuning table of that emulated node; in the first run it is a '
            '[searched table](../glossary.md#terms-of-the-project).', '']
    out += experiments.section()
    out += ['## Aims', '',
            'The lowest value of all sizes counts. *Reached*: "yes" at every '
            'size, "up to" at some sizes, "no" at none. The *plain '
            'sum* is that of the rates of all paths, without the time to fill '
            'and drain their pipelines.', '']
    out += aims(rows, papers['aims'])
    out += ['## The papers\' figures beside ours', '']
    out += beside(rows, papers['figures'])
    for remark in papers['remarks']:
        out += [experiments.filled(remark), '']
    for node in nodes:
        own = [row for row in rows if row['node'] == node]
        out += ['## %s' % node, '']
        plans = [row for row in own if row['benchmark'] == 'put' and
                 row.get('plan')]
        name = os.path.splitext(os.path.basename(path))[0] + '-%s.svg' % node
        where = os.path.join(os.path.dirname(path) or '.', name)
        if plots and plotted(own) and plot(own, papers['figures'], where):
            out += ['![times stock on %s](%s)' % (node, name), '']
        out += node_tables(own)
        if plans:
            most = max(plans, key=lambda row: (row['size'], str(row['paths']),
                                               row['host']))
            out += ['Plan of a %s put with %s: %s.' % (
                size_text(most['size']), config_text(most), most['plan']), '']
    with open(path, 'w', encoding='utf-8') as file:
        file.write('\n'.join(out).rstrip() + '\n')


def main(arguments):
    plots = arguments[2:] != ['--no-plots']
    if len(arguments) != 3 - plots:
        sys.exit(__doc__)
    with open(arguments[0], encoding='utf-8') as file:
        data = json.load(file)
    with open(os.path.join(HERE, 'papers.json'), encoding='utf-8') as file:
        papers = json.load(file)
    page(data, papers, arguments[1], plots)
    print(arguments[1], file=sys.stderr)


if __name__ == '__main__':
    main(sys.argv[1:])
