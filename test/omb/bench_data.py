# SPDX-License-Identifier: BSD-3-Clause
"""The file of test/omb/bench: every figure, with the run it comes from.

{"runs": [{"id", "machine", "ucx", "plan", ...}], "samples": [{"run", "pair",
"variant", "benchmark", "program", "memory", "window", "size", "value" or
"error"}]}

A pair is one run of the base and one of ours, directly one after the other,
identified by (run, pair). With copies by hand there is a third run. The base is
stock's module, ours with one path, or another build of ours. Figures are GB/s
(10^9 bytes/s), those of latency microseconds. A file may have runs of several
releases of UCX and several bases; a cell never mixes them.
"""

import json

import stats
from runs import Refused, one_a_line, write_whole

BENCHMARKS = ('put', 'get', 'bw', 'bibw', 'latency')
# D is GPU memory, H pageable and P page-locked host memory
MEMORIES = ('D D', 'P D', 'D P', 'H D', 'D H')
BASES = {'stock': "UCX's own CUDA module",
         'single': 'our module with UCX_CUDA_IPC_MULTIPATH=n',
         'other': 'another build of our module'}
# Origin of the UCX's libraries
ORIGINS = {'wheel': "PyPI's wheel", 'system': 'the one that MPI finds',
           'folder': 'a folder of libraries'}
# Seconds of modelled time; shorter times depend on the processor, not on the
# node
CLAIMED = 100e-6

# Facts that must agree in all runs of a page
ALIKE = (('modelled', 'one is modelled and the other measured'),
         ('node', 'emulated nodes differ'))
# Facts that must also agree in runs of one kind
ALIKE_IN_KIND = (('settings', 'other variables were set'),)


def kind_of(run):
    """Return a run's kind, (UCX's release, origin of the libraries, base): a
    cell has figures of one kind."""
    return run['ucx'], run.get('origin', 'wheel'), run.get('base', 'stock')


def unit(benchmark):
    return 'GB/s' if stats.higher_is_better(benchmark) else 'us'


class Data:
    """Runs with their samples, of one invocation or several."""

    def __init__(self):
        self.runs, self.samples = [], []
        self.known = set()

    @classmethod
    def load(cls, path):
        data = cls()
        try:
            with open(path, encoding='utf-8') as file:
                content = json.load(file)
            data.add(content['runs'], content['samples'], path)
        except OSError as error:
            raise Refused('%s: %s' % (path, error.strerror))
        except (ValueError, KeyError, TypeError) as error:
            raise Refused('%s: not a file of test/omb/bench: %s'
                          % (path, error or type(error).__name__))
        return data

    @staticmethod
    def key(sample):
        return tuple(sample[name] for name in (
            'run', 'pair', 'variant', 'benchmark', 'program', 'memory',
            'window', 'size'))

    def add_run(self, run, where=''):
        if any(run['id'] == other['id'] for other in self.runs):
            return
        if run.get('base', 'stock') not in BASES:
            raise Refused("%s'%s' is no base" % (where and where + ': ',
                                                 run['base']))
        kin = [other for other in self.runs if kind_of(other) == kind_of(run)]
        for alike, others in ((ALIKE, self.runs), (ALIKE_IN_KIND, kin)):
            for name, why in alike:
                if others and run.get(name) != others[0].get(name):
                    raise Refused('%scannot be put together with what is '
                                  'there: %s (%s, %s)' % (
                                      where and where + ': ', why,
                                      run.get(name), others[0].get(name)))
        self.runs.append(run)

    def add(self, found, samples, where=''):
        """Add runs and samples, except those already present."""
        for run in found:
            self.add_run(run, where)
        for sample in samples:
            key = self.key(sample)
            if key not in self.known:
                self.known.add(key)
                self.samples.append(sample)

    def save(self, path):
        write_whole(path, one_a_line({'runs': self.runs,
                                      'samples': self.samples}))

    def part(self, kind):
        """Return the data of one kind of runs."""
        part = Data()
        part.runs = [run for run in self.runs if kind_of(run) == kind]
        ids = {run['id'] for run in part.runs}
        part.samples = [sample for sample in self.samples
                        if sample['run'] in ids]
        return part

    def parts(self):
        """Return the data of each kind of runs, in order of time, those against
        stock first."""
        return [self.part(kind) for kind in sorted(
            dict.fromkeys(kind_of(run) for run in self.runs),
            key=lambda kind: kind[2] != 'stock')]

    def base(self):
        """Return 'stock' or 'single'. This and all methods below need runs of
        one kind."""
        kinds = {kind_of(run) for run in self.runs}
        if len(kinds) > 1:
            raise ValueError('figures of several kinds: %s' % sorted(kinds))
        return next((kind[2] for kind in kinds), 'stock')

    def pairs(self):
        """Return {(benchmark, program, memory, window, size): [(base, ours)]}.
        None stands for a run without figure; half a pair is left out."""
        base, table = self.base(), {}
        for sample in self.samples:
            place = self.key(sample)[3:]
            pair = table.setdefault(place, {}).setdefault(
                (sample['run'], sample['pair']), {})
            pair[sample['variant']] = sample.get('value')
        return {place: [(pair[base], pair['ours']) for pair in found.values()
                        if base in pair and 'ours' in pair]
                for place, found in table.items()}

    def byhand(self):
        """Return {place: [(ours, by hand)]} of the same pairs."""
        table = {}
        for sample in self.samples:
            turn = table.setdefault(self.key(sample)[3:], {}).setdefault(
                (sample['run'], sample['pair']), {})
            turn[sample['variant']] = sample.get('value')
        found = {place: [(turn['ours'], turn['byhand'])
                         for turn in turns.values()
                         if turn.get('ours') and turn.get('byhand')]
                 for place, turns in table.items()}
        return {place: pairs for place, pairs in found.items() if pairs}

    def cells(self):
        """Return {place as above: stats.Cell}, in the order of the page."""
        table = self.pairs()
        return {place: stats.Cell(place[0], table[place]) for place in sorted(
            table, key=place_order) if table[place]}

    def claimed(self, place, cell):
        """Return whether a figure counts: modelled ones only if long enough to
        depend on the node and not on the processor."""
        if not (self.runs and self.runs[0].get('modelled')):
            return True
        return all(seconds(place, value) >= CLAIMED
                   for value in cell.base + cell.ours)

    def errors(self):
        """Return [((benchmark, program, memory, variant, error), [(window,
        size)], number)]."""
        table = {}
        for sample in self.samples:
            if 'error' in sample:
                places = table.setdefault(
                    (sample['benchmark'], sample['program'], sample['memory'],
                     sample['variant'], sample['error']), [])
                places.append((sample['window'], sample['size']))
        return [(what, sorted(set(places)), len(places))
                for what, places in table.items()]


def place_order(place):
    benchmark, program, memory, window, size = place
    return (MEMORIES.index(memory), BENCHMARKS.index(benchmark), program,
            window, size)


def seconds(place, value):
    """Return the seconds of an iteration with the figure `value`."""
    benchmark, _, _, window, size = place
    if benchmark == 'latency':
        return 2e-6 * value
    return size * window * (2 if benchmark == 'bibw' else 1) / (value * 1e9)
