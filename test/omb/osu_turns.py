# SPDX-License-Identifier: BSD-3-Clause
"""Run OSU's programs with stock UCX and with ours in alternation; write tables,
a file and a plot."""

import json
import os
import statistics
import subprocess
import time

import machine
import plot
import prepare
import runs
import stats
from runs import Refused, size_text

# name: (quantity, has a window option, needs a rank per GPU)
PROGRAMS = {'osu_bw': ('bandwidth', True, False),
            'osu_bibw': ('bandwidth', True, False),
            'osu_latency': ('latency', False, False),
            'osu_allreduce': ('latency', False, True),
            'osu_allgather': ('latency', False, True),
            'osu_alltoall': ('latency', False, True)}
UNITS = {'bandwidth': 'GB/s', 'latency': 'us'}
VARIANTS = ('stock', 'ours')
COLORS = {'stock': '#888', 'ours': '#0050b0'}
MIB = 1 << 20


def chooses_type(program):
    """Return whether the program has an option for the type to add; older ones
    add floats."""
    with open(program, 'rb') as file:
        return b'MPI_FLOAT' in file.read()


class Turns:
    def __init__(self, options):
        self.options = options
        self.library = self.find_library()
        self.count = self.count_gpus()
        gpus = options.gpus or list(range(self.count))
        for gpu in gpus:
            if gpu >= self.count:
                raise Refused('--gpus: there is no GPU %d among %d' % (
                    gpu, self.count))
        if len(gpus) < 2:
            raise Refused('one GPU is here, and two are wanted; --emulate NODE '
                          'puts an emulated node under the programs')
        self.gpus = gpus
        self.samples = []

    # --------------------------------------------------------------- one run

    def launched(self, variant, command):
        options = self.options
        words = [options.launcher, '--quiet']
        words += ['--stock'] * (variant == 'stock')
        if options.emulate:
            words += ['--emulate', options.emulate, '--slowdown',
                      '%g' % runs.slowdown_of(options.emulate)]
        return words + command

    def find_library(self):
        """Return the folder of the UCX for all runs; None: the one MPI
        finds."""
        named = self.options.wheel
        if named == 'none':
            return None
        if named is None:
            words = [self.options.launcher, '--stock', '--print', 'mpirun',
                     next(iter(self.options.osu.values()))]
            said = subprocess.run(words, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT,
                                  env=runs.environment(),
                                  universal_newlines=True).stdout
            if 'no CUDA module of its own' not in said:
                return None
        return runs.wheel_library(prepare.wheel(named))

    def count_gpus(self):
        topo = os.path.join(os.path.dirname(self.options.launcher),
                            'ucx_mp_topo')
        asked = subprocess.run(self.launched('ours', [topo, '--json']),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=runs.environment(self.library),
                               universal_newlines=True)
        try:
            return len(json.loads(asked.stdout)['gpus'])
        except (ValueError, KeyError):
            lines = asked.stderr.strip().splitlines()
            raise Refused('no GPUs: %s' % (lines[-1] if lines else 'silent'))

    def run_one(self, name, variant):
        """Run a program once; return ({size: GB/s or us}, the reason for
        missing ones)."""
        options = self.options
        measures, has_window, is_collective = PROGRAMS[name]
        low, high = options.sizes
        ranks = len(self.gpus) if is_collective else 2
        command = ['mpirun', '-n', str(ranks), options.osu[name], '-m',
                   '%d:%d' % (low, high)]
        if options.iterations:
            command += ['-i', str(options.iterations), '-x',
                        str(-(-options.iterations // 10))]
        if has_window and options.window:
            command += ['-W', str(options.window)]
        if is_collective:
            # it skips sizes above this number of bytes per process
            command += ['-M', str(max(512 * MIB, 4 * ranks * high)), '-d',
                        'cuda']
            if name == 'osu_allreduce' and chooses_type(options.osu[name]):
                command += ['-T', 'mpi_float']      # float instead of char
        else:
            command += ['D', 'D']
        environ = runs.environment(self.library)
        # OSU's rank r uses the r-th visible GPU
        environ['CUDA_VISIBLE_DEVICES'] = ','.join(map(str, self.gpus + [
            gpu for gpu in range(self.count) if gpu not in self.gpus]))
        with runs.session(environ, options.emulate):
            rows, error = runs.osu_rows(self.launched(variant, command),
                                        environ, options.timeout)
        scale = 1e-3 if measures == 'bandwidth' else 1
        return {size: scale * value for size, value in rows.items()
                if low <= size <= high and value > 0}, error

    def run(self):
        """Run all programs, each with stock and with ours directly one after
        the other."""
        options = self.options
        total = options.repeat * len(options.only) * len(VARIANTS)
        for turn in range(options.repeat):
            for name in options.only:
                for variant in VARIANTS[::-1 if turn % 2 else 1]:
                    began = time.monotonic()
                    values, error = self.run_one(name, variant)
                    sample = {'turn': turn, 'program': name,
                              'variant': variant, 'values':
                              {str(size): value for size, value in
                               sorted(values.items())}}
                    if set(values) != set(runs.growing(*options.sizes)):
                        sample['error'] = error
                    self.samples.append(sample)
                    prepare.say('%d of %d  %-13s %-5s %5.1f s%s' % (
                        len(self.samples), total, name, variant,
                        time.monotonic() - began, '  ' + error
                        if 'error' in sample else ''))

    # --------------------------------------------------------------- figures

    def values(self, name, variant, size):
        return [sample['values'][str(size)] for sample in self.samples
                if (sample['program'], sample['variant']) == (name, variant)
                and str(size) in sample['values']]

    def is_whole(self):
        return not any('error' in sample for sample in self.samples)

    def rows(self):
        """Return [{program, size, unit, stock, ours, ratio}] of medians."""
        found = []
        for name in self.options.only:
            for size in runs.growing(*self.options.sizes):
                row = {'program': name, 'size': size,
                       'unit': UNITS[PROGRAMS[name][0]]}
                for variant in VARIANTS:
                    values = self.values(name, variant, size)
                    row[variant] = statistics.median(values) if values else None
                row['ratio'] = stats.ratio(
                    PROGRAMS[name][0], row['ours'], row['stock']) \
                    if row['ours'] and row['stock'] else None
                found.append(row)
        return found

    def about(self):
        options = self.options
        environ = runs.environment(self.library)
        return {'modelled': bool(options.emulate),
                'date': time.strftime('%Y-%m-%d %H:%M'),
                'revision': machine.revision(options.launcher),
                'node': options.emulate or ', '.join(machine.gpus()),
                'machine': machine.machine_text(), 'gpus': self.gpus,
                'ucx': machine.ucx_version(environ),
                'mpi': machine.mpi_version('mpirun'),
                'command': ' '.join(options.words)}

    def report(self):
        options, about, rows = self.options, self.about(), self.rows()
        where = '%s, GPUs %s, %s' % (
            about['node'], ','.join(map(str, self.gpus)),
            'modelled' if about['modelled'] else 'measured')
        for name in options.only:
            part = [row for row in rows if row['program'] == name]
            print('%s, %s, median of %d, %s' % (
                name, part[0]['unit'], options.repeat, where))
            print('%10s %12s %12s %8s' % ('size', 'stock', 'ours', 'ratio'))
            for row in part:
                print('%10s %12s %12s %8s' % (
                    (size_text(row['size']),) + tuple(
                        'no figure' if row[variant] is None else
                        '%.2f' % row[variant] for variant in VARIANTS) +
                    ('-' if row['ratio'] is None else
                     '%.2f' % row['ratio'],)))
            print()
        self.explain()
        if options.json:
            runs.write_whole(options.json, runs.one_a_line(
                {'about': about, 'rows': rows, 'samples': self.samples}))
        if options.plot:
            runs.write_whole(options.plot, self.picture(where))
            print('plot: ' + options.plot)

    def explain(self):
        """Return the error messages of runs without figures."""
        lost = {sample['program'] for sample in self.samples
                if sample['variant'] == 'stock' and 'error' in sample}
        if any(PROGRAMS[name][2] for name in lost):
            print('stock: an MPI that was built without CUDA ends collectives '
                  'of GPU memory by a\nsegmentation fault; contrib/cuda-mpi '
                  'builds one with it\n')

    def picture(self, where):
        panels = []
        for name in self.options.only:
            lines = []
            for variant in VARIANTS:
                points = []
                for size in runs.growing(*self.options.sizes):
                    values = self.values(name, variant, size)
                    if values:
                        points.append((size, statistics.median(values),
                                       min(values), max(values)))
                lines.append(plot.Line(variant, COLORS[variant], points))
            measures = PROGRAMS[name][0]
            panels.append(plot.Panel(name, UNITS[measures], lines,
                                     log=measures == 'latency'))
        return plot.figure("OSU's programs, D D", where,
                           [panels[at:at + 3] for at in
                            range(0, len(panels), 3)])
