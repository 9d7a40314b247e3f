#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compare the emulated node with real ones, cell by cell, from files of
test/omb/bench: the same benchmarks, windows and sizes, medians of all samples
of each.

usage: emulator_page.py EMULATED.json[,EMULATED.json]... PAGE.md REAL.json...

With several files of the emulated node a cell has the samples of all. Each real
file is of a machine of its own. Compared are stock's cells, ours, and copies by
hand, if the real file has them.

Cells of 100 us or more on the real node must be within 7 % each, 3 % in the
median. Of shorter ones 80 % must be within 15 % of the real samples' median.
"""

import statistics
import sys

sys.dont_write_bytecode = True
import pages
import stats
from bench_data import CLAIMED, Data, seconds
from runs import Refused, size_text

CELL = 0.07
MEDIAN = 0.03
SHORT = 0.15        # a cell of less than 100 us
SHORT_CELLS = 0.8   # how many of them


class Pair:
    """One variant of one cell on both nodes."""

    def __init__(self, place, variant, real, emulated):
        self.place, self.variant = place, variant
        self.real, self.emulated = real, emulated
        self.median_real = statistics.median(real)
        self.median = statistics.median(emulated)

    def is_long(self):
        return seconds(self.place, self.median_real) >= CLAIMED

    def off(self):
        """Return how much better the emulated node is: 0.05 is 5 % faster."""
        return stats.ratio(self.place[0], self.median, self.median_real) - 1

    def fails(self):
        return abs(self.off()) > (CELL if self.is_long() else SHORT)

    def line(self):
        benchmark, program, memory, window, size = self.place
        return ['%s %s, window %d (%s)' % (benchmark, memory, window, program),
                size_text(size), self.variant, '%.4g (%.4g to %.4g, %d)' % (
                    self.median_real, min(self.real), max(self.real),
                    len(self.real)), '%.4g (%d)' % (self.median, len(
                        self.emulated)), '%+.1f %%' % (100 * self.off()),
                '**no**' if self.fails() else 'yes']


def stock_part(path):
    """Return the runs against stock of the release with most samples."""
    parts = [part for part in Data.load(path).parts()
             if part.base() == 'stock']
    if not parts:
        raise Refused('%s: no run against stock' % path)
    return max(parts, key=lambda part: len(part.samples))


def variants(*files):
    """Return {place: {variant: samples}}."""
    table = {}

    def add(place, who, samples):
        table.setdefault(place, {}).setdefault(who, []).extend(samples)

    for data in files:
        for place, cell in data.cells().items():
            add(place, 'stock', cell.base)
            add(place, 'ours', cell.ours)
        for place, turns in data.byhand().items():
            add(place, 'by hand', [byhand for _, byhand in turns])
    return table


class Part:
    """Cells of a real file with the emulated ones."""

    def __init__(self, title, real, emulated):
        self.title, self.run = title, real.runs[0]
        self.pairs, self.missing = [], []
        modelled = variants(*emulated)
        for place, by in variants(real).items():
            for who, values in by.items():
                others = modelled.get(place, {}).get(who)
                if not values:
                    continue
                if others:
                    self.pairs.append(Pair(place, who, values, others))
                elif seconds(place, statistics.median(values)) >= CLAIMED:
                    self.missing.append((place, who))

    def judged(self, who=None):
        return [pair for pair in self.pairs
                if pair.is_long() and who in (None, pair.variant)]

    def summary(self):
        out = []
        for who in (None, 'stock', 'by hand', 'ours'):
            judged = self.judged(who)
            if not judged or len(judged) == len(self.judged()) and who:
                continue
            off = [abs(pair.off()) for pair in judged]
            worst = max(judged, key=lambda pair: abs(pair.off()))
            out.append('%s: %d of %d within %g %%; median of the differences '
                       '%.1f %% (required: %g), worst %+.1f %% (%s)' % (
                           who or 'cells of 100 us or more',
                           sum(not pair.fails() for pair in judged),
                           len(judged), 100 * CELL,
                           100 * statistics.median(off), 100 * MEDIAN,
                           100 * worst.off(), ', '.join(worst.line()[:3])))
        short = [pair for pair in self.pairs if not pair.is_long()]
        if short:
            out.append(
                "shorter ones: %d of %d within %g %% of the real samples' median "
                '(required: %g %% of them); the emulated node is faster in %d '
                'of those outside' % (
                    sum(not pair.fails() for pair in short), len(short),
                    100 * SHORT, 100 * SHORT_CELLS,
                    sum(pair.fails() and pair.off() > 0 for pair in short)))
        if self.missing:
            out.append('real cells of 100 us or more with no emulated figure: '
                       '%d' % len(self.missing))
        return out

    def lines(self):
        failing = sorted((pair for pair in self.pairs if pair.fails()),
                         key=lambda pair: (not pair.is_long(),
                                           -abs(pair.off())))
        out = ['## ' + self.title, '',
               '- real: %s; UCX %s, revision %s, %s' % (
                   self.run['machine'], self.run['ucx'], self.run['revision'],
                   self.run['date'])]
        out += ['- ' + line for line in self.summary()] + ['']
        out += ['### Cells outside the limits', '']
        out += table(failing) if failing else ['None.', '']
        for title, wanted in (('100 us or more', True), ('Shorter', False)):
            group = [pair for pair in self.pairs if pair.is_long() == wanted]
            if group:
                out += ['### ' + title, ''] + table(group)
        if self.missing:
            out += ['### Not emulated', '']
            out += ['- %s %s, window %d, %s: %s' % (
                place[0], place[2], place[3], size_text(place[4]), who)
                    for place, who in self.missing] + ['']
        return out


def table(pairs):
    return pages.table(['what', 'size', 'by', 'real (least to most, samples)',
                        'emulated (samples)', 'emulated is', 'within'],
                       [pair.line() for pair in pairs])


def parts_of(emulated, reals):
    return [Part('Real machine %d' % number, real, emulated)
            for number, real in enumerate(reals, 1)]


def page(emulated, parts):
    out = ['# The emulated node against the real one', '',
           'This page is for readers who want to know how accurate modelled '
           'figures are: it compares the emulated node with the real one, cell by cell. '
           '`test/omb/emulator_page.py` makes it from files of `test/omb/bench`; do not '
           'edit it. No constant of the emulator was fitted to these cells. '
           'GB/s are 10^9 bytes/s, latency is in us. "Emulated is": how much '
           'faster (+) or slower (-) the emulated node is.', '',
           "Cells of 100 us or more must be within %g %% of the real samples' "
           'median. Of shorter ones %g %% must be within %g %%. Two things limit '
           'the accuracy:' % (100 * CELL, 100 * SHORT_CELLS, 100 * SHORT), '',
           '* **Processor time.** With a slowdown of 100, the processor time of '
           'UCX, MPI and the module counts only a hundredth. With 5 instead, '
           'messages of 8 B, 64 KiB and 1 MiB between GPUs take 1.2 to 1.7 us '
           'more (`ucx_mp_run --emulate h200-x2 --slowdown 5 mpirun -n 2 '
           'ucx_mp_bw --benchmark latency`, with and without `--stock`). For '
           'the same code of UCX, processors of real nodes took 1.6 to 2.7 '
           'times as long as the one here (part h200-5daf37c6-31 of the '
           'logs). A '
           'message of 4 KiB between GPUs takes 22.5 us with stock, of which '
           'its two copies by hand explain 17.5 ([by hand]'
           '(by-hand.md#calls-and-copies)).',
           '* **Machines.** Real machines differ. On another one, stock took 1 '
           'to 46 % longer for cells of up to 1 MiB, 9 % in the median (three '
           'to four pairs, part h200-x2-312577dd-10 of the logs).', '']
    out += ['- emulated: `%s`: %s; UCX %s, revision %s, %s' % (
        run['command'], run['machine'], run['ucx'], run['revision'],
        run['date']) for run in (data.runs[0] for data in emulated)] + ['']
    for part in parts:
        out += part.lines()
    return '\n'.join(out).rstrip() + '\n'


def check(emulated, reals):
    """Refuse files that cannot be compared."""
    if not all(data.runs[0].get('modelled') for data in emulated) or \
            any(real.runs[0].get('modelled') for real in reals):
        raise Refused('the first file is to be an emulated node\'s and the '
                      'others real ones\'')
    nodes = {(str(run.get('node')), run['ucx'],
              run['machine'].split(', on ')[0])
             for run in (data.runs[0] for data in emulated)}
    if len(nodes) > 1:
        raise Refused('the emulated files are of several nodes, slowdowns or '
                      'releases of UCX: %s' % sorted(nodes))


def main(arguments):
    if len(arguments) < 3:
        sys.exit(__doc__)
    emulated = [stock_part(path) for path in arguments[0].split(',')]
    reals = [stock_part(path) for path in arguments[2:]]
    check(emulated, reals)
    parts = parts_of(emulated, reals)
    with open(arguments[1], 'w', encoding='utf-8') as file:
        file.write(page(emulated, parts))
    for part in parts:
        print(part.title + ':')
        print('\n'.join(part.summary()))


if __name__ == '__main__':
    try:
        main(sys.argv[1:])
    except Refused as refused:
        sys.exit('emulator_page.py: ' + str(refused))
