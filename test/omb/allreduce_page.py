# SPDX-License-Identifier: BSD-3-Clause
"""Write the page of test/omb/allreduce, with plots and tables, from its
files."""

import os
import statistics

import plot
import stats
from bench_page import table
from runs import size_text

NAMES = {'ours': 'ours', 'nccl': 'NCCL', 'staged': 'host staging',
         'kernel': 'by hand: kernels', 'copies': 'by hand: copies'}
COLORS = {'ours': '#1f6fb4', 'nccl': '#b4551f', 'staged': '#777777',
          'kernel': '#2a9d4a', 'copies': '#8a5fb4'}
PLACES = {'in': 'in place', 'out': 'not in place'}
CLAIMED = 100e-6        # seconds of modelled time
LEGEND = [
    'It compares ways to sum the buffers of all GPUs:', '',
    '| name | what runs |', '|---|---|',
    '| ours | MPI_Allreduce of GPU buffers, with this project\'s MPI interposition '
    'library |',
    '| NCCL | `ncclAllReduce` and `cuStreamSynchronize`, in the same processes as '
    'ours, one sample of each in turn; without NVLS (multicast, used with more '
    'than two GPUs only), buffers not registered |',
    '| host staging | `cuMemcpyDtoH`, MPI_Allreduce of page-locked memory by the '
    'same MPI, `cuMemcpyHtoD` |',
    '| by hand | `test/byhand/allreduce`: one process with all GPUs |', '',
    'Times run from the call until the host sees its end, on the slowest rank: '
    'median (minimum..maximum) of all samples. A ratio above 1 means that ours is '
    'faster: the median over samples of one turn and round, with its 95 % '
    'interval by order statistics. *: too few samples for an interval, minimum '
    'and maximum instead. Bold: ours loses. All results were checked. GB/s: '
    'bytes of one buffer divided by the time, 10^9 a second.', '']
MODELLED = [
    'An emulated node does not model the MPI\'s own work on host memory. That '
    'work takes this machine\'s processor time divided by the slowdown, so host '
    'staging looks far better than it is.', '']


def samples_of(data, kind, place, size, way):
    """Return {(turn, round): seconds} of one way, without samples marked as
    late on an emulated node."""
    return {(item['turn'], item['round']): item['seconds']
            for item in data['samples']
            if (item['type'], item['place'], item['size'], item['way']) ==
            (kind, place, size, way) and not item.get('late')}


class Row:
    """All samples of one cell."""

    def __init__(self, data, kind, place, size):
        self.size = size
        self.samples = {way: samples_of(data, kind, place, size, way)
                        for way in data['plan']['ways']}
        self.samples = {way: found for way, found in self.samples.items()
                        if found}

    def median(self, way):
        return statistics.median(self.samples[way].values())

    def against(self, *ways):
        """Return the stats.Cell of pairs (other way, ours) of the same turn and
        round. Of several other ways the one with the lowest median counts."""
        ways = [way for way in ways if way in self.samples]
        if not ways or 'ours' not in self.samples:
            return None
        base = self.samples[min(ways, key=self.median)]
        return stats.Cell('latency', [(base.get(key), seconds) for key, seconds
                                      in self.samples['ours'].items()])


def rows_of(data):
    """Return {(type, place): [Row]} of all cells with samples."""
    return {(kind, place): rows for kind in data['plan']['types']
            for place in data['plan']['places']
            for rows in [[row for row in (
                Row(data, kind, place, size) for size in data['plan']['sizes'])
                if row.samples]] if rows}


def time_text(seconds):
    return '%.4g' % (1e6 * seconds)


def spread_text(found):
    return '%s (%s..%s)' % tuple(time_text(value) for value in (
        statistics.median(found.values()), min(found.values()),
        max(found.values())))


def ratio_text(cell):
    if cell is None or cell.median is None:
        return '-'
    return '%s%.3f%s (%.3f..%.3f%s)' % (
        '**' if cell.loses() else '', cell.median,
        '**' if cell.loses() else '', cell.low, cell.high,
        '' if cell.sure else ' *')


def cells_of(data, row):
    ways = data['plan']['ways']
    best = min((row.median(way) for way in row.samples), default=0)
    return [size_text(row.size)] + [
        spread_text(row.samples[way]) if way in row.samples else '-'
        for way in ways] + [
        '%.4g' % (row.size / row.median('ours') * 1e-9)
        if 'ours' in row.samples else '-'] + [
        ratio_text(row.against(*group)) for group in comparisons(data)] + \
        ([] if not modelled(data) or best >= CLAIMED else ['not judged'])


def comparisons(data):
    """Return the groups of ways to compare with ours."""
    ways = data['plan']['ways']
    groups = [[way for way in group if way in ways] for group in (
        ['nccl'], ['kernel', 'copies'], ['staged'])]
    return [group for group in groups if group] if 'ours' in ways else []


def modelled(data):
    return any(run['modelled'] for run in data['runs'])


def busy_rows(data):
    """Return [(type, place, size, way, times of a call, losses of the products'
    speed)] of a plan with matrix products at the same time."""
    plan, found = data['plan'], {}
    for item in data['samples']:
        found.setdefault((item['type'], item['place'], item['size'],
                          item['way']), []).append(item)
    return [key + (
        {index: item['seconds'] for index, item in enumerate(found[key])},
        [1 - item['product_alone'] / item['product'] for item in found[key]])
        for kind in plan['types'] for place in plan['places']
        for size in plan['sizes'] for way in plan['ways']
        for key in [(kind, place, size, way)] if key in found]


def percent_text(losses):
    return '%.1f (%.1f..%.1f)' % tuple(100 * value for value in (
        statistics.median(losses), min(losses), max(losses)))


def busy_table(data):
    return table(['type', 'place', 'size', 'way', 'a call, us',
                  'GB/s', 'products lose, %'], [
        [kind, PLACES[place], size_text(size), NAMES[way], spread_text(times),
         '%.4g' % (size / statistics.median(times.values()) * 1e-9),
         percent_text(losses)]
        for kind, place, size, way, times, losses in busy_rows(data)])


def text(data):
    """Return lines for a terminal: medians in microseconds."""
    ways = data['plan']['ways']
    if data['plan']['busy']:
        return busy_table(data)
    out = []
    for (kind, place), rows in rows_of(data).items():
        out += ['%s, %s, %d GPUs, %s, us:' % (
            kind, PLACES[place], data['plan']['ranks'],
            'modelled' if modelled(data) else 'measured'),
            ' '.join(['%9s' % 'size'] + ['%16s' % NAMES[way] for way in ways] +
                     ['%8s' % 'GB/s'] + ['%14s' % ('x ' + group_name(group))
                                         for group in comparisons(data)])]
        for row in rows:
            cells = [row.against(*group) for group in comparisons(data)]
            out.append(' '.join(
                ['%9s' % size_text(row.size)] +
                ['%16s' % (time_text(row.median(way)) if way in row.samples
                           else '-') for way in ways] +
                ['%8s' % ('%.4g' % (row.size / row.median('ours') * 1e-9)
                          if 'ours' in row.samples else '-')] +
                ['%14s' % ('-' if cell is None or cell.median is None
                           else '%.3f' % cell.median) for cell in cells]))
    return out


def group_name(group):
    return 'by hand' if group[0] in ('kernel', 'copies') else NAMES[group[0]]


def picture(data, rows, title, what):
    """Plot time, rate and ratio by size."""
    def line(way, value):
        return plot.Line(NAMES[way], COLORS[way], [
            (row.size,) + tuple(value(row, seconds) for seconds in (
                row.median(way), max(row.samples[way].values()),
                min(row.samples[way].values())))
            for row in rows if way in row.samples])

    ways = data['plan']['ways']
    panels = [plot.Panel('Time', 'us', [line(
        way, lambda _, seconds: 1e6 * seconds) for way in ways], log=True),
        plot.Panel('Rate', 'GB/s', [line(
            way, lambda row, seconds: row.size / seconds * 1e-9)
            for way in ways])]
    ratios = []
    for group in comparisons(data):
        if group == ['staged']:
            continue
        points = [(row.size, cell.median, cell.low, cell.high)
                  for row in rows for cell in [row.against(*group)]
                  if cell is not None and cell.median is not None]
        ratios.append(plot.Line(NAMES[group[0]], COLORS[group[0]], points))
    if any(item.points for item in ratios):
        panels.append(plot.Panel('Ours, times as fast', 'ratio', ratios,
                                 log=True, at=(1,)))
    return plot.figure(title, what, [panels], width=340)


def num_groups(plan):
    """Return the number of groups of processes: ours and NCCL share one."""
    return len(plan['ways']) - ({'ours', 'nccl'} <= set(plan['ways']))


def about(data):
    run, plan = data['runs'][0], data['plan']
    libraries = sorted({item['library'] for item in data['samples']
                        if 'library' in item})
    out = ['*%s*, %s.' % (
        'Modelled' if modelled(data) else 'Measured',
        '; '.join(dict.fromkeys(run['date'] for run in data['runs']))), '']
    out += ['- command: `%s`' % command for command in dict.fromkeys(
        run['command'] for run in data['runs'])]
    out += ['- machine: %s' % name for name in dict.fromkeys(
        run['machine'] for run in data['runs'])]
    out += ['- revision: %s' % ', '.join(dict.fromkeys(
        run['revision'] or 'unknown' for run in data['runs']))]
    out += ['- MPI: %s%s' % (run['mpi'] or '-', ''.join(
        '; ' + name for name in libraries))]
    out += ['- plan: %d turns, each with a start of all processes per type and '
            'place; %d samples of a size and way per start, each of about %g ms '
            'of calls. %d of %d starts were made' % (
                plan['turns'], plan['rounds'], 1000 * plan['time'],
                len(data['done']), plan['turns'] * len(plan['types']) *
                len(plan['places']) * num_groups(plan))]
    return out + ['- variables: %s' % ', '.join(
        '`%s=%s`' % item for item in run['environment'].items()), '']


def busy_section(data):
    return ['The GPUs multiply matrices of 4096 x 4096 floats meanwhile '
            '(`cublasSgemm` on a stream of its own, 20 products in a row), and '
            'calls are made one behind another as long as that lasts. Lost is '
            '1 - time of the products alone, right before / beside the calls.',
            ''] + busy_table(data)


def nccl_mode(data):
    """Return (how NCCL ran, for a table's head; sentences on other modes)."""
    if 'nccl' not in data['plan']['ways']:
        return '', []
    off = data['runs'][0]['environment'].get('NCCL_NVLS_ENABLE') == '0'
    return ' (%sNVLS, not registered, until the host knows)' % (
        'no ' if off else ''), [
            'NCCL ran %s NVLS, with buffers that are not registered, and each call '
            'until the host knows its end. %segistered buffers, and calls in a '
            'loop on the stream or captured in a graph, were not run here. Such '
            'calls, with registered buffers, are faster below 8 MiB than ours '
            'until the host knows.' % (('without', 'NVLS, r') if off else
                                       ('with', 'R')), '']


def section(data, path, number):
    """Return the tables of one file, and write its plots."""
    plan = data['plan']
    what = '%s: %s; %s' % (
        'modelled' if modelled(data) else 'measured',
        'emulated %s' % data['runs'][0]['node'] if modelled(data)
        else ', '.join(data['runs'][0]['gpus']), data['runs'][0]['date'])
    node = '%s, ' % data['runs'][0]['node'] if modelled(data) else ''
    out = ['## %s%d GPUs%s' % (node, plan['ranks'], ', which compute meanwhile'
                               if plan['busy'] else ''), ''] + about(data)
    mode, others = nccl_mode(data)
    for (kind, place), rows in ({} if plan['busy'] else rows_of(data)).items():
        title = '%ss, %s' % (kind.capitalize(), PLACES[place])
        name = '%s%s-%s-%s.svg' % (
            os.path.splitext(os.path.basename(path))[0],
            '-%d' % number if number else '', kind, place)
        with open(os.path.join(os.path.dirname(path), name), 'w',
                  encoding='utf-8') as file:
            file.write(picture(data, rows, 'All-reduce, ' + title.lower(),
                               what))
        out += ['### ' + title, '', '![%s](%s)' % (title, name), ''] + others
        out += table(['size'] + ['%s%s, us' % (NAMES[way], mode if way == 'nccl'
                                               else '')
                                 for way in plan['ways']] + ['ours, GB/s'] +
                     ['against ' + group_name(group)
                      for group in comparisons(data)] +
                     ([''] if modelled(data) else []),
                     [padded(cells_of(data, row), data) for row in rows])
    if plan['busy']:
        out += busy_section(data)
    late = sum(item.get('late', False) for item in data['samples'])
    if late:
        out += ['%d samples that the emulated node made late are left out.'
                % late, '']
    if data['errors']:
        out += ['Without a figure:', ''] + [
            '- turn %d, %ss, %s, %s: %s' % (
                turn + 1, kind, PLACES[place],
                ', '.join(NAMES[way] for way in ways), item['error'])
            for item in data['errors']
            for turn, kind, place, ways in [item['step']]] + ['']
    return out


def write(files, path):
    """Write the page of several files to `path`, and the plots beside it."""
    where = ' on emulated nodes' if all(modelled(data) for data in files) else ''
    out = ['# All-reduce of GPU buffers' + where, '',
           'This page is for readers who want to know how fast an all-reduce of '
           'GPU buffers is%s. `test/omb/allreduce` writes it from its files; do '
           'not edit it.' % where, ''] + LEGEND
    if any(modelled(data) for data in files):
        out += MODELLED
    for number, data in enumerate(files):
        out += section(data, path, number)
    with open(path, 'w', encoding='utf-8') as file:
        file.write('\n'.join(out).rstrip() + '\n')


def padded(cells, data):
    width = 2 + len(data['plan']['ways']) + len(comparisons(data)) + \
        modelled(data)
    return cells + [''] * (width - len(cells))
