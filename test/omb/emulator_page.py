#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The emulated node against the real one, cell by cell, from two files of
test/omb/bench: the same benchmarks, windows and sizes, the medians of all
samples of each, stock's and ours.

usage: emulator_page.py REAL.json EMULATED.json PAGE.md

Judged are cells that take 100 us or more on the real node: within 7 % each, 3 %
in the median. Below, where a process has one speed, a cell has to lie within the
real samples.
"""

import statistics
import sys

sys.dont_write_bytecode = True
import stats
from bench_data import CLAIMED, Data, seconds
from runs import Refused, size_text

CELL = 0.07
MEDIAN = 0.03


class Pair:
    """One variant of one cell on both nodes."""

    def __init__(self, place, variant, real, emulated):
        self.place, self.variant = place, variant
        self.real, self.emulated = real, emulated
        self.median_real = statistics.median(real)
        self.median = statistics.median(emulated)

    def judged(self):
        return seconds(self.place, self.median_real) >= CLAIMED

    def off(self):
        """How much better the emulated node is: 0.05 is 5 % faster."""
        return stats.ratio(self.place[0], self.median, self.median_real) - 1

    def fails(self):
        if self.judged():
            return abs(self.off()) > CELL
        return not min(self.real) <= self.median <= max(self.real)

    def line(self):
        benchmark, program, memory, window, size = self.place
        return ['%s %s, window %d (%s)' % (benchmark, memory, window, program),
                size_text(size), self.variant, '%.4g (%.4g to %.4g, %d)' % (
                    self.median_real, min(self.real), max(self.real),
                    len(self.real)), '%.4g (%d)' % (self.median, len(
                        self.emulated)), '%+.1f %%' % (100 * self.off()),
                '**no**' if self.fails() else 'yes']


def stock_part(path):
    """The runs against stock of the release that has most samples."""
    parts = [part for part in Data.load(path).parts()
             if part.base() == 'stock']
    if not parts:
        raise Refused('%s: no run against stock' % path)
    return max(parts, key=lambda part: len(part.samples))


def pairs_of(real, emulated):
    found, missing = [], []
    modelled = emulated.cells()
    for place, cell in real.cells().items():
        other = modelled.get(place)
        for variant, values, others in (
                ('stock', cell.base, other and other.base),
                ('ours', cell.ours, other and other.ours)):
            if values and others:
                found.append(Pair(place, variant, values, others))
            elif values and seconds(place, statistics.median(values)) >= \
                    CLAIMED:
                missing.append((place, variant))
    return found, missing


def table(pairs):
    heads = ['what', 'size', 'by', 'real (least to most, samples)',
             'emulated (samples)', 'emulated is', 'within']
    return ['| ' + ' | '.join(heads) + ' |', '|' + '---|' * len(heads)] + [
        '| ' + ' | '.join(pair.line()) + ' |' for pair in pairs] + ['']


def summary(pairs, missing):
    judged = [pair for pair in pairs if pair.judged()]
    small = [pair for pair in pairs if not pair.judged()]
    out = []
    if judged:
        off = [abs(pair.off()) for pair in judged]
        worst = max(judged, key=lambda pair: abs(pair.off()))
        out.append('cells of 100 us or more: %d of %d within %g %%; median of '
                   'the differences %.1f %% (asked: %g), worst %+.1f %% (%s)' % (
                       sum(not pair.fails() for pair in judged), len(judged),
                       100 * CELL, 100 * statistics.median(off), 100 * MEDIAN,
                       100 * worst.off(), ', '.join(worst.line()[:3])))
    if small:
        out.append('shorter ones: %d of %d medians within the real samples' % (
            sum(not pair.fails() for pair in small), len(small)))
    out.append('real cells of 100 us or more with no emulated figure: %d'
               % len(missing))
    return out


def page(real, emulated):
    pairs, missing = pairs_of(real, emulated)
    run, other = real.runs[0], emulated.runs[0]
    out = ['# The emulated node against the real one', '',
           'Made from two files of `test/omb/bench` by `emulator_page.py`; do '
           'not edit it. GB/s are 10^9 bytes/s, latency is in us. "Emulated is" '
           'says how much faster (+) or slower the emulated node is.', '',
           '- real: %s; UCX %s, revision %s, %s' % (
               run['machine'], run['ucx'], run['revision'], run['date']),
           '- emulated: `%s`: %s; UCX %s, revision %s, %s' % (
               other['command'], other['machine'], other['ucx'],
               other['revision'], other['date'])]
    out += ['- ' + line for line in summary(pairs, missing)] + ['']
    failing = sorted((pair for pair in pairs if pair.fails()),
                     key=lambda pair: (not pair.judged(), -abs(pair.off())))
    out += ['## Cells that are off', '']
    out += table(failing) if failing else ['None.', '']
    for title, wanted in (('100 us or more', True), ('Shorter', False)):
        group = [pair for pair in pairs if pair.judged() == wanted]
        if group:
            out += ['## ' + title, ''] + table(group)
    if missing:
        out += ['## Not emulated', '']
        out += ['- %s %s, window %d, %s: %s' % (
            place[0], place[2], place[3], size_text(place[4]), variant)
                for place, variant in missing] + ['']
    return '\n'.join(out).rstrip() + '\n', pairs, missing


def main(arguments):
    if len(arguments) != 3:
        sys.exit(__doc__)
    real, emulated = stock_part(arguments[0]), stock_part(arguments[1])
    if real.runs[0].get('modelled') or not emulated.runs[0].get('modelled'):
        raise Refused('the first file is to be a real node\'s and the second '
                      'an emulated one\'s')
    text, pairs, missing = page(real, emulated)
    with open(arguments[2], 'w', encoding='utf-8') as file:
        file.write(text)
    print('\n'.join(summary(pairs, missing)))


if __name__ == '__main__':
    try:
        main(sys.argv[1:])
    except Refused as refused:
        sys.exit('emulator_page.py: ' + str(refused))
