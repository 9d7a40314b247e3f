# SPDX-License-Identifier: BSD-3-Clause
"""Write the page of test/omb/bench, and its plots, from its data."""

import os
import statistics

import plot
import stats
from pages import table
from bench_data import BASES, ORIGINS, kind_of, unit
from runs import size_text

TITLES = {'put': 'UCX put', 'get': 'UCX get', 'bw': 'Bandwidth',
          'bibw': 'Bandwidth, both directions at once', 'latency': 'Latency'}
SIDES = {'D D': 'GPU to GPU', 'P D': 'page-locked host to GPU',
         'D P': 'GPU to page-locked host', 'H D': 'pageable host to GPU',
         'D H': 'GPU to pageable host'}
NAMES = {'stock': 'stock', 'single': 'one path', 'other': 'the other build',
         'ours': 'ours', 'byhand': 'by hand'}
COLORS = {'base': '#777777', 'ours': '#1f6fb4', 'ratio': '#2a9d4a'}


def kind_text(run):
    """Return text such as "UCX 1.16.0 (the one that MPI finds), against one
    path"."""
    ucx, origin, base = kind_of(run)
    return 'UCX %s (%s), against %s' % (ucx, ORIGINS[origin], NAMES[base])


def figures_text(values):
    if not values:
        return '-'
    return '%.4g (%.4g..%.4g)' % (statistics.median(values), min(values),
                                  max(values))


def ratio_text(cell):
    return '-' if cell.median is None else '%.3f' % cell.median


def interval_text(cell):
    return '-' if cell.median is None else '%.3f..%.3f%s' % (
        cell.low, cell.high, '' if cell.sure else ' *')


def verdict_text(cell, claimed):
    if cell.median is None:
        return 'no figure'
    if not claimed:
        return 'not judged'
    return '**loses**' if cell.loses() else ''


def row_of(place, cell, claimed):
    pairs = '%d' % len(cell.ratios)
    if cell.failed:
        pairs += ', %d failed' % cell.failed
    return [size_text(place[4]), figures_text(cell.base),
            figures_text(cell.ours), ratio_text(cell), interval_text(cell),
            pairs, verdict_text(cell, claimed)]


def series_text(place):
    """Return text such as "Bandwidth, H D, window 4 (ucx_mp_bw)"."""
    benchmark, program, memory, window, _ = place
    return '%s, %s%s (%s)' % (
        TITLES[benchmark], memory, ', window %d' % window
        if benchmark != 'latency' else '', program)


def judged_of(data, cells):
    return {place: cell for place, cell in cells.items()
            if cell.median is not None and data.claimed(place, cell)}


def summary(data, cells):
    """Return a summary of all cells, in a few lines."""
    judged = judged_of(data, cells)
    void = [place for place, cell in cells.items() if cell.median is None]
    unclaimed = len(cells) - len(judged) - len(void)
    lost = [place for place, cell in judged.items() if cell.loses()]
    out = []
    if judged:
        pairs = [len(cell.ratios) for cell in judged.values()]
        out += ['- %d cells compared, %d of them lose; pairs a cell: %d to %d, '
                'median %g' % (len(judged), len(lost), min(pairs), max(pairs),
                               statistics.median(pairs)),
                '- geometric mean of all ratios: **%.3f**'
                % stats.geometric_mean([cell.median for cell in
                                        judged.values()])]
        parts = {}
        for place, cell in judged.items():
            parts.setdefault(place[2], {}).setdefault(place[0], []).append(
                cell.median)
        out += ['- %s: %s' % (memory, ', '.join(
            '%s %.3f' % (benchmark, stats.geometric_mean(ratios))
            for benchmark, ratios in means.items()))
            for memory, means in parts.items()]
    if unclaimed:
        out.append('- %d cells not compared: an iteration takes less than 100 us '
                   'of modelled time, of which the processor that runs the '
                   'emulation has too large a part' % unclaimed)
    if void:
        out.append('- %d cells without a figure (below)' % len(void))
    return out + ['']


def listed(data, places, cells):
    heads = ['what', 'size', NAMES[data.base()], 'ours', 'ratio', '95 %',
             'pairs']
    places = sorted(places, key=lambda place: cells[place].median)
    return table(heads, [[series_text(place)] + row_of(
        place, cells[place], True)[:-1] for place in places])


def losing(data, cells):
    """Return rows of one kind of runs: losses first, then other slower
    cells."""
    judged = judged_of(data, cells)
    lost = [place for place, cell in judged.items() if cell.loses()]
    slower = [place for place, cell in judged.items()
              if cell.slower() and not cell.loses()]
    out = listed(data, lost, cells) if lost else ['None.', '']
    if slower:
        out += ['Certainly slower (the interval ends below 1), but by less than '
                'these limits:', ''] + listed(data, slower, cells)
    return out


def all_losing(parts):
    """Return the losses of all parts, each (data, cells)."""
    out = ['## Losing rows', '',
           'A row loses if the 95 %% interval of its ratio ends below %g, or if '
           'the ratio is below %g.' % (stats.REACH, stats.LEAST), '']
    for data, cells in parts:
        if len(parts) > 1:
            out += ['%s:' % kind_text(data.runs[0]), '']
        out += losing(data, cells)
    return out


# ---------------------------------------------------------------------- plots

def panels(series, base):
    """Return two panels of one window: figures above, ratios below."""
    place = next(iter(series))
    benchmark, program, _, window, _ = place
    lines = []
    for name in ('base', 'ours'):
        points = [(place[4], statistics.median(values), min(values),
                   max(values)) for place, cell in series.items()
                  for values in [getattr(cell, name)] if values]
        if points:
            lines.append(plot.Line(NAMES[base] if name == 'base' else name,
                                   COLORS[name], points))
    ratios = [(place[4], cell.median, cell.low, cell.high)
              for place, cell in series.items() if cell.median is not None]
    title = program if benchmark == 'latency' else 'window %d' % window
    return (plot.Panel(title, unit(benchmark), lines, log=True),
            plot.Panel('', 'times ' + NAMES[base], [plot.Line('ratio, 95 %',
                                                     COLORS['ratio'], ratios)]
                       if ratios else [], log=True, at=(1,)))


def picture(group, title, what, base):
    """Return a plot of one benchmark and memory, with a column per window; None
    without figures."""
    columns = []
    for key in dict.fromkeys((place[1], place[3]) for place in group):
        series = {place: cell for place, cell in group.items()
                  if (place[1], place[3]) == key}
        if any(cell.base or cell.ours for cell in series.values()):
            columns.append(panels(series, base))
    if not columns:
        return None
    return plot.figure(title, what, [[column[0] for column in columns],
                                     [column[1] for column in columns]])


# ----------------------------------------------------------------------- page

def sections(data, cells, memories, path, what):
    out, byhand = [], data.byhand()
    keys = dict.fromkeys((place[0], place[2]) for place in cells
                         if place[2] in memories)
    for benchmark, memory in keys:
        group = {place: cell for place, cell in cells.items()
                 if (place[0], place[2]) == (benchmark, memory)}
        title = '%s, %s' % (TITLES[benchmark], SIDES[memory])
        out += ['### %s (%s)' % (title, memory), '']
        name = '%s-%s-%s.svg' % (
            os.path.splitext(os.path.basename(path))[0], benchmark,
            memory.replace(' ', '').lower())
        text = picture(group, title, what, data.base())
        if text:
            with open(os.path.join(os.path.dirname(path), name), 'w',
                      encoding='utf-8') as file:
                file.write(text)
            out += ['![%s](%s)' % (title, name), '']
        for key in dict.fromkeys((place[1], place[3]) for place in group):
            program, window = key
            out += ['%s%s, %s:' % (program, ', window %d' % window if
                                   benchmark != 'latency' else '',
                                   unit(benchmark)), '']
            out += table(['size', NAMES[data.base()], 'ours', 'ratio', '95 %',
                          'pairs', ''],
                         [row_of(place, cell, data.claimed(place, cell))
                          for place, cell in group.items()
                          if (place[1], place[3]) == key])
            out += byhand_table({place: pairs for place, pairs in
                                 byhand.items() if place in group and
                                 (place[1], place[3]) == key})
    return out


def byhand_table(turns):
    """Return the table of ours beside copies by hand, of the same pairs."""
    if not turns:
        return []
    cells = {place: stats.Cell('bw', [(hand, ours) for ours, hand in pairs])
             for place, pairs in turns.items()}
    return ['By hand, over the PCIe links of all GPUs (`test/byhand/'
            'host_to_gpu`), in the same turns:', ''] + table(
                ['size', 'by hand', 'ours', 'ours of it', '95 %', 'turns'],
                [row_of(place, cell, True)[:-1]
                 for place, cell in cells.items()])


def grid_entry(data, place, cell):
    if cell.median is None:
        return 'no figure' if cell.failed else ''
    if not data.claimed(place, cell):
        return '%.4g (not judged)' % statistics.median(cell.ours)
    mark = '**' if cell.loses() else ''
    return '%.4g (%s%.3f%s%s)' % (statistics.median(cell.ours), mark,
                                  cell.median, '' if cell.sure else ' *', mark)


def other(data, cells):
    """Return the section of a further kind of runs."""
    first = data.runs[0]
    out = ['### ' + kind_text(first), ''] + summary(data, cells)
    if first.get('settings'):
        out += ['With %s.' % ', '.join(first['settings']), '']
    for memory, side in SIDES.items():
        places = [place for place in cells if place[2] == memory]
        sizes = sorted({place[4] for place in places})
        rows = []
        for series in dict.fromkeys(place[:4] for place in places):
            found = {place[4]: grid_entry(data, place, cells[place])
                     for place in places if place[:4] == series}
            rows.append([series_text(series + (0,)), unit(series[0])] +
                        [found.get(size, '') for size in sizes])
        if rows:
            out += ['%s:' % (side[0].upper() + side[1:]), '']
            out += table(['what', ''] + [size_text(size) for size in sizes],
                         rows)
    return out


def others(parts):
    """Return the sections of all kinds of runs after the first one."""
    if not parts:
        return []
    out = ['## Other releases of UCX', '',
           'The same measured against another base or with another UCX: the '
           'median of ours, in brackets the median ratio, bold where it '
           'loses. "One path" is %s. Which rows lose is said at the beginning '
           'of the page.' % BASES['single'], '']
    for data, cells in parts:
        out += other(data, cells)
    return out


def errors(parts):
    out, ahead = [], ['## Runs without a figure', '']
    for data in parts:
        out += errors_of(data, kind_text(data.runs[0]) + ': '
                         if len(parts) > 1 else '')
    return ahead + out + [''] if out else []


def errors_of(data, ahead):
    out = []
    for (benchmark, program, memory, variant, error), places, count in \
            data.errors():
        out.append('- %s%s, %s, %s, %s: %d (%s): %s' % (
            ahead, TITLES[benchmark], program, memory, NAMES[variant], count,
            ', '.join(
                '%s%s' % (size_text(size), ' x %d' % window if window > 1
                          else '') for window, size in places[:8]) +
            (' and %d more' % (len(places) - 8) if len(places) > 8 else ''),
            error))
    return out


def runs_table(data):
    pairs = {}
    for sample in data.samples:
        pairs.setdefault(sample['run'], set()).add(sample['pair'])
    return table(['date', 'machine', 'UCX, against', 'MPI', 'revision',
                  'pairs of runs', 'command'], [
        [run['date'], run['machine'], '%s, %s' % (
            run['ucx'], NAMES[kind_of(run)[2]]), run.get('mpi') or '-',
         run.get('revision') or '-', '%d' % len(pairs.get(run['id'], ())),
         '`%s`' % run['command']] for run in data.runs])


def title_of(run):
    return 'the emulated %s' % run['node'] if run['modelled'] else \
        run.get('gpus') or 'this machine'


def write(data, path):
    """Write the page to `path`, and the plots beside it."""
    parts = [(part, part.cells()) for part in data.parts()]
    main, cells = parts[0]
    first, base = main.runs[0], main.base()
    modelled = first['modelled']
    what = '%s: %s; UCX %s; %s' % (
        'modelled' if modelled else 'measured', title_of(first), first['ucx'],
        first['date'])
    machines = list(dict.fromkeys(run['machine'] for run in data.runs))
    out = ['# Ours against %s on %s: %d cells' % (
               NAMES[base], title_of(first), len(judged_of(main, cells))), '',
           'This page is for readers who want to know which messages get faster '
           'with the module, and by how much. *%s*%s; `test/omb/bench` makes it, do not '
           'edit it.' % (
               'Modelled' if modelled else 'Measured', ', %s' % '; '.join(
               dict.fromkeys(run['date'] for run in data.runs))), '',
           '- command: `%s`%s' % (first['command'],
                                  ' and %d more (below)' % (len(data.runs) - 1)
                                  if len(data.runs) > 1 else ''),
           '- machine%s: %s' % ('s' if len(machines) > 1 else '',
                                '; '.join(machines)),
           '- UCX %s (%s), the same libraries for %s and for ours; MPI: %s'
           % (first['ucx'], ORIGINS[kind_of(first)[1]], NAMES[base],
              first.get('mpi') or '-'), '',
           '%s is %s, ours is our module%s%s.'
           ' A pair is a run of each, one right after the other, in alternating '
           'order. Figures are the median (minimum..maximum) of all pairs. A '
           'ratio above 1 means that ours is faster: the median of the ratios of '
           'all pairs, with its 95 %% interval by order statistics. *: fewer than '
           '6 pairs, minimum and maximum instead of the interval. GB/s are 10^9 '
           'bytes a second. Memory, from one process to another: D is GPU memory, '
           'P page-locked and H pageable host memory. put and get are the '
           'averages of `ucx_perftest`; "window" is the number of operations in '
           'flight.' % (
               NAMES[base].capitalize(), BASES[base],
               ' in its place' if base == 'stock' else '',
               ', with %s' % ', '.join(first['settings'])
               if first.get('settings') else ', with default settings'), '']
    out += summary(main, cells) + all_losing(parts)
    for title, memories in (('GPU to GPU', ('D D',)),
                            ('Page-locked host memory', ('P D', 'D P')),
                            ('Pageable host memory', ('H D', 'D H'))):
        text = sections(main, cells, memories, path, what)
        if text:
            out += ['## ' + title, ''] + text
    out += others(parts[1:]) + errors([part for part, _ in parts])
    out += ['## Runs', ''] + runs_table(data)
    with open(path, 'w', encoding='utf-8') as file:
        file.write('\n'.join(out).rstrip() + '\n')
