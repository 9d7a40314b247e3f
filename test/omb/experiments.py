# SPDX-License-Identifier: BSD-3-Clause
"""Write the table of the papers' experiments from experiments.json. A text there
names figures of docs/results as {kind name=value ...}: a function below, with
its arguments. Sizes and rows are in MiB."""

import json
import os
import re
import statistics

import allreduce_page
from pages import table

HERE = os.path.dirname(os.path.realpath(__file__))
RESULTS = os.path.join(os.path.dirname(os.path.dirname(HERE)), 'docs',
                       'results')
MIB = 1 << 20
VERDICTS = ('reproduced', 'contradicted', 'out of reach')
# Bytes of a buffer per second by rings over all links (docs/collectives.md)
RING_GBPS = {'mist': 41 * 4 / 6, 'cedar': 143.858 * 4 / 6}
# Figure 13 of 000: number of nodes of a graph, and the message of two paths. Of
# the papers' 34 nodes, 32 were measured
GRAPHS = {1: None, 2: None, 4: None, 8: 32, 16: 128, 32: 512}
loaded = {}


def load(name):
    if name not in loaded:
        with open(os.path.join(RESULTS, name), encoding='utf-8') as file:
            loaded[name] = json.load(file)
    return loaded[name]


def only(found, what):
    """Return what was found; fail if that is nothing."""
    found = list(found)
    if not found:
        raise ValueError('experiments.json: no figure of %s' % (what,))
    return found


def span(values, form, tail=''):
    low, high = ((form % value).replace('-0.0', '+0.0')
                 for value in (min(values), max(values)))
    return (low if low == high else '%s to %s' % (low, high)) + tail


def cells(least=32, most=1 << 20, **where):
    """Return the rows of papers-rows.json with these values: of the sizes that
    the papers' figures are held against, unless others are named."""
    return only((row for row in load('papers-rows.json')['rows'] if all(
        str(row[name]) == value for name, value in where.items()) and
                 int(least) <= row['size'] // MIB <= int(most) and
                 row['gbps']), where)


def gain(**where):
    return span([row['speedup'] for row in cells(**where)], '%.2fx')


def rate(**where):
    return '%.1f GB/s' % max(row['gbps'] for row in cells(**where))


def unsettled(executor):
    """Return how many MPI cells of these executors have a highest sample of
    more than 1.1 times the lowest."""
    found = [row for row in load('papers-rows.json')['rows']
             if row['benchmark'] != 'put' and
             row['executor'] in executor.split(',')]
    return '%d of %d cells' % (sum(
        max(row['samples']) > 1.1 * min(row['samples']) for row in found),
                               len(found))


def change(base, **where):
    """Return the rate of each row relative to that of `base`, in percent."""
    rows, others = cells(**where), cells(
        least=0, node=where['node'], benchmark=where['benchmark'])
    return [100 * (row['gbps'] / other['gbps'] - 1) for row in rows
            for other in others if all(
                other[key] == base.get(key, row[key])
                for key in ('size', 'window', 'paths', 'host', 'executor'))]


def host(single=False, **where):
    """Return what the host path adds."""
    base = {'host': 'n', 'executor': 'single'} if single else {'host': 'n'}
    return span(change(base, host='y', **where), '%+.1f', ' %')


def graphs(**where):
    """Return what graphs add to streams."""
    return span(change({'executor': 'streams'}, executor='graph', **where),
                '%+.1f', ' %')


def jacobi(node, config, row):
    def median(name):
        return statistics.median(sum(only((
            run['seconds'] for run in load('jacobi.json')['runs']
            if (run['node'], run['mode'], run['row'], run['config'],
                run['bytes'], run['dropped']) ==
            (node, 'ordered', int(row) * MIB, name, False, False)), config),
                                     []))
    return '%.2fx' % (median('one') / median(config))


def own(node, way, size, base='own'):
    """Return the time of `base` over that of `way`, of one all-reduce."""
    def median(name):
        return statistics.median(only((
            item['seconds'] for item in load('own-way.json')['samples']
            if (item['node'], item['way'], item['size'], item['late']) ==
            (node, name, int(size) * MIB, False)), (node, name)))
    return '%.3gx' % (median(base) / median(way))


def rings(node, size):
    """Return the rate of ours over that of rings by formula."""
    row = allreduce_page.Row(load('collectives-%s.json' % node), 'float', 'in',
                             int(size) * MIB)
    return '%.2fx' % (row.size / row.median('ours') * 1e-9 / RING_GBPS[node])


def nccl(name, size):
    """Return NCCL's time over ours, measured."""
    return '%.2fx' % allreduce_page.Row(
        load('collectives-%s.json' % name), 'float', 'in',
        int(size) * MIB).against('nccl').median


def step(name, node, model, config):
    """Return the median time of a training step, and its part without
    communication."""
    data = load(name)
    found, = only((item for item in data['results'] if all(
        data['plan'][item['cell']][key] == value for key, value in
        (('node', node), ('model', model), ('config', config)))),
                  (node, model, config))
    return statistics.median(
        item['seconds'] for item in found['steps']), found['limit']


def train(node, base, models, name='gradients.json'):
    """Return the speed of ours over that of `base`, for each model."""
    return ', '.join('%.2fx' % (
        step(name, node, model, base.replace('_', ' '))[0] /
        step(name, node, model, 'ours')[0]) for model in models.split(','))


def share(node, models):
    """Return the part of a step in the MPI's own all-reduce."""
    found = [step('gradients-cuda-mpi.json', node, model, "the MPI's own")
             for model in models.split(',')]
    return span([100 * (1 - limit / seconds) for seconds, limit in found],
                '%.0f', ' %')


def largest(model):
    data = load('gradients.json')
    return '%.0f MiB' % (only((
        item['steps'][0]['largest'] for item in data['results']
        if (data['plan'][item['cell']]['model'],
            data['plan'][item['cell']]['config']) == (model, 'ours')),
                              model)[0] / MIB)


def setup(node, times, size):
    return '%.2fx' % only((
        row['speedup'] for group in load('setup.json')['rows'] for row in group
        if (row['node'], row['times'], row['size'] // MIB) ==
        (node, int(times), int(size))), node)[0]


def plan(node, variant, size):
    return '%.2fx' % statistics.median(only((
        row['single'] / row['seconds']
        for group in load('papers-plans.json')['rows'] for row in group
        if (row['node'], row['paths'], row['variant'], row['size'] // MIB) ==
        (node, 'papers', variant, int(size))), (node, variant)))


def phase(name, nodes):
    return '%.1f us' % only((row[name] for row in load(
        'graph-h200.json')['rows'] if row['nodes'] == int(nodes)), name)[0]


KINDS = {kind.__name__: kind for kind in (
    gain, rate, unsettled, host, graphs, jacobi, own, rings, nccl, train, share,
    largest, setup, plan, phase)}


def filled(text):
    """Return the text with its figures."""
    return re.sub(r'\{(\w+)([^}]*)\}', lambda match: KINDS[match.group(1)](
        **dict(word.split('=') for word in match.group(2).split())), text)


def graph_table():
    """Return the phases of graphs, and their share of a message's time."""
    lines = []
    for row in load('graph-h200.json')['rows']:
        if row['nodes'] not in GRAPHS:
            continue
        first = sum(row[name] for name in ('create', 'construct', 'instantiate',
                                           'first_launch'))
        line = ['%d' % row['nodes']] + ['%.1f' % row[name] for name in (
            'create', 'construct', 'instantiate', 'first_launch', 'launch',
            'update_launch', 'streams')]
        size = GRAPHS[row['nodes']]
        if size:
            put, = cells(node='narval', benchmark='put', paths='2', host='n',
                         executor='graph', least=size, most=size)
            usec = put['size'] / put['gbps'] * 1e-3
            line += ['%d MiB' % size, '%.0f' % usec] + ['%.1f %%' % (
                100 * spent / (spent + usec)) for spent in (
                    first, row['launch'])]
        lines.append(line + ['-'] * (12 - len(line)))
    return table(['copies', 'create', 'construct', 'instantiate',
                  'first launch', 'launch', 'update, launch', 'streams',
                  'message', 'transfer', 'share, first call',
                  'share, later calls'], lines)


def section():
    """Return the lines of the section."""
    with open(os.path.join(HERE, 'experiments.json'), encoding='utf-8') as file:
        data = json.load(file)
    lines = []
    for item in data['experiments']:
        if item['verdict'] not in VERDICTS:
            raise ValueError('experiments.json: verdict %s' % item['verdict'])
        lines.append([item['paper'], item['figure'], item['theirs'],
                      filled(item['ours']), '**%s**' % item['verdict'],
                      filled(item['why'])])
    out = ['## Every table and figure', ''] + [
        filled(text) for text in data['head']] + ['']
    out += table(['paper', 'table or figure', 'theirs', 'ours', 'verdict',
                  'why'], lines)
    for title, text in data['contradictions'].items():
        out += ['### ' + title, '', filled(text), '']
    about = load('graph-h200.json')['about']
    out += ['### Phases of a graph', ''] + [
        filled(text).replace('ABOUT', '%(command)s`, %(machine)s, %(date)s '
                             '(%(revision)s)' % about)
        for text in data['graphs']] + [''] + graph_table()
    return out
