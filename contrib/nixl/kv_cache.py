# SPDX-License-Identifier: BSD-3-Clause
"""A KV cache moved between two NIXL agents, as engines for language models do.

    bench --kv [--model NAME] [--layouts LIST] [--operations LIST]
          [--tokens N] [--repeat N] [--gpus A,B] [--near] [--check] [--json FILE]
    bench --kv --compare [--starts N] [--launcher COMMAND] [--plot FILE] ...

A request of N tokens has blocks at random places of both caches. The layout says
how a block lies in memory:

    vllm    one tensor per layer, keys and values apart, blocks of 16 tokens: two
            pieces per layer
    sglang  the same with pages of one token
    heads   16 tokens of each head apart, as in vLLM's HND layout: a peer with
            another number of ranks reads such pieces
    cross   all layers of a block in one piece

The first agent starts all operations. offload writes its GPU memory to the other
agent's page-locked memory, load reads it back. push writes it to the other
agent's GPU (a prefill engine), pull reads it from there (a decode engine). GB/s
are 10^9 bytes a second, medians of the repetitions. "Posting" is the share of the
time that the program's thread spends in the call that starts the transfer.

--compare alternates four variants: --stock with default settings, --stock with
UCX_RMA_PPLN_ENABLE=y (UCX 1.22 and newer then pipelines puts and gets with host
memory through cuda_ipc and cuda_copy instead of TCP), the module, and the module
with lists (NIXL_UCX_SGL_ENABLE). It prints medians over the starts, and their
spread.
"""

import argparse
import json
import os
import random
import shlex
import statistics
import subprocess
import sys
import time

import nixl_peers

# layers, heads of keys and values, elements of a head: of the models' own
# config.json (num_hidden_layers, num_key_value_heads, head_dim). Two bytes each
MODELS = {'llama-8b': (32, 8, 128),         # meta-llama/Llama-3.1-8B
          'llama-70b': (80, 8, 128),        # meta-llama/Llama-3.1-70B
          'qwen-7b': (28, 4, 128),          # Qwen/Qwen2.5-7B
          'tiny': (2, 2, 128)}              # none: for tests
BYTES = 2
BLOCK_TOKENS = 16                           # vLLM's default block_size
SPARE = 2               # blocks of a cache for each that a request has
OPERATIONS = {'offload': ('V', 'WRITE', 'P'), 'load': ('V', 'READ', 'P'),
              'push': ('V', 'WRITE', 'V'), 'pull': ('V', 'READ', 'V')}
# name, words of ucx_mp_run, variables
PIPELINE = 'UCX_RMA_PPLN_ENABLE'
LISTS = 'NIXL_UCX_SGL_ENABLE'
WAYS = (('stock', ['--stock'], {}),
        ('stock, pipeline', ['--stock'], {PIPELINE: 'y'}),
        ('module', [], {}), ('module, lists', [], {LISTS: 'y'}))


class Layout:
    """Where the pieces of a block lie in a cache of so many blocks."""

    def __init__(self, name, model, tokens):
        layers, heads, size = MODELS[model]
        self.tokens = 1 if name == 'sglang' else BLOCK_TOKENS
        self.blocks = -(-tokens // self.tokens)
        self.total = SPARE * self.blocks
        planes = 2 * layers
        if name == 'cross':
            self.piece = planes * self.tokens * heads * size * BYTES
            self.planes, self.parts = 1, 1
        elif name == 'heads':
            self.piece = self.tokens * size * BYTES
            self.planes, self.parts = planes, heads
        else:
            self.piece = self.tokens * heads * size * BYTES
            self.planes, self.parts = planes, 1

    @property
    def size(self):
        return self.total * self.planes * self.parts * self.piece

    def pieces(self, blocks):
        return [(((plane * self.total + block) * self.parts + part) *
                 self.piece, self.piece)
                for block in blocks for plane in range(self.planes)
                for part in range(self.parts)]


def check(pair, way, here, there, before):
    """Every byte of both caches."""
    mine, theirs = before
    got = (pair.agent.memory[way[0]].read(), pair.peer.ask('read', way[2]))
    source, target = (mine, theirs) if way[1] == 'WRITE' else (theirs, mine)
    if way[1] == 'READ':
        here, there = there, here
    wanted = bytearray(target)
    for (begin, length), (to, _) in zip(here, there):
        wanted[to:to + length] = source[begin:begin + length]
    wanted = (mine, bytes(wanted)) if way[1] == 'WRITE' else \
        (bytes(wanted), theirs)
    if got != wanted:
        raise nixl_peers.Failure('%s %s %s: wrong bytes' % way)


def measure(pair, operation, layout, options, chance):
    way = OPERATIONS[operation]
    here, there = (layout.pieces(chance.sample(range(layout.total),
                                               layout.blocks))
                   for _ in range(2))
    if options.check:
        before = tuple(os.urandom(layout.size) for _ in range(2))
        pair.agent.memory[way[0]].write(before[0])
        pair.peer.ask('write', way[2], before[1])
    handle = pair.prepare(way[1], way[0], here, way[2], there)
    pair.run(handle)
    times, posts = [], []
    for _ in range(options.repeat):
        times.append(pair.run(handle))
        posts.append(pair.posting)
    pair.release(handle)
    if options.check:
        check(pair, way, here, there, before)
    seconds = statistics.median(times)
    return {'operation': operation, 'pieces': len(here),
            'piece': layout.piece, 'bytes': len(here) * layout.piece,
            'gbps': len(here) * layout.piece / seconds / 1e9,
            'ms': 1e3 * seconds,
            'posting': statistics.median(posts) / seconds}


def measure_all(options):
    rows = []
    chance = random.Random(options.seed)
    for name in options.layouts:
        layout = Layout(name, options.model, options.tokens)
        kinds = {end for operation in options.operations
                 for end in OPERATIONS[operation][::2]}
        pair = nixl_peers.Pair(options.near, layout.size, options.gpus,
                               suffix='-' + name, kinds=tuple(sorted(kinds)))
        for operation in options.operations:
            row = measure(pair, operation, layout, options, chance)
            row['layout'] = name
            rows.append(row)
            if not options.quiet:
                print('%-8s %-8s %7d x %9d B  %8.1f GB/s  %8.2f ms, posting '
                      '%3.0f %%' % (name, operation, row['pieces'],
                                    row['piece'], row['gbps'], row['ms'],
                                    100 * row['posting']), flush=True)
        pair.close()
    return rows


def run_once(options, arguments, way):
    """The rows of one start; of stock's lists NIXL can say nothing."""
    _, words, variables = way
    environ = {name: value for name, value in os.environ.items()
               if name not in (PIPELINE, LISTS)}
    command = shlex.split(options.launcher) + words + [
        sys.executable, os.path.join(os.path.dirname(os.path.realpath(
            __file__)), 'bench'), '--kv', '--json', '-', '--quiet'] + arguments
    result = subprocess.run(command, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, universal_newlines=True,
                            env=dict(environ, **variables))
    for line in result.stdout.splitlines():
        if line.startswith('{"rows"'):
            return json.loads(line)['rows']
    said = [line for line in (result.stdout + result.stderr).splitlines()
            if line.startswith(('bench: ', 'ucx_mp_run: '))]
    raise nixl_peers.Failure('%s ended with status %d%s' % (
        ' '.join(command), result.returncode,
        ': ' + said[-1] if said else ''))


def compare(options, arguments):
    """All ways in turns; rows of {way: [GB/s a start]}."""
    table = {}
    begin = time.monotonic()
    for start in range(options.starts):
        for way in WAYS:
            print('start %d of %d, %s (%.0f s so far)' % (
                start + 1, options.starts, way[0], time.monotonic() - begin),
                file=sys.stderr, flush=True)
            for row in run_once(options, arguments, way):
                key = (row['layout'], row['operation'], row['pieces'],
                       row['piece'])
                table.setdefault(key, {}).setdefault(way[0], []).append(
                    row['gbps'])
    print('%-8s %-8s %-20s' % ('layout', 'moves', 'pieces') +
          ''.join('%26s' % way[0] for way in WAYS))
    for key, ways in table.items():
        print('%-8s %-8s %-20s' % (key[0], key[1], '%d x %d B' % key[2:]) +
              ''.join('%26s' % ('%.1f (%.1f..%.1f)' % (
                  statistics.median(values), min(values), max(values)))
                  for values in (ways[way[0]] for way in WAYS)))
    return [{'layout': key[0], 'operation': key[1], 'pieces': key[2],
             'piece': key[3], 'gbps': ways} for key, ways in table.items()]


def plot(rows, path, title):
    try:
        import matplotlib
    except ImportError:
        raise nixl_peers.Failure('--plot: no matplotlib (python3 -m pip '
                                 'install matplotlib)')
    matplotlib.use('Agg')
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(figsize=(1.5 + 1.1 * len(rows), 4.5))
    width = 0.8 / len(WAYS)
    for index, way in enumerate(WAYS):
        values = [row['gbps'][way[0]] for row in rows]
        middle = [statistics.median(value) for value in values]
        axes.bar([place + width * (index - (len(WAYS) - 1) / 2)
                  for place in range(len(rows))], middle, width, label=way[0],
                 yerr=([m - min(v) for m, v in zip(middle, values)],
                       [max(v) - m for m, v in zip(middle, values)]))
    axes.set_xticks(range(len(rows)))
    axes.set_xticklabels(['%s\n%s\n%d B' % (row['layout'], row['operation'],
                                            row['piece']) for row in rows])
    axes.set_yscale('log')
    axes.set_ylabel('GB/s')
    axes.set_title(title)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)


def names(allowed):
    def parse(text):
        for name in text.split(','):
            if name not in allowed:
                raise argparse.ArgumentTypeError(
                    "'%s' is none of %s" % (name, ', '.join(allowed)))
        return text.split(',')
    return parse


def positive(text):
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError("'%s' is no number from 1 on" % text)
    return value


def gpus(text):
    items = text.split(',')
    if len(items) != 2 or not all(item.isdigit() for item in items):
        raise argparse.ArgumentTypeError("'%s' is not two GPUs (0,1)" % text)
    return tuple(int(item) for item in items)


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog='bench --kv', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--model', choices=sorted(MODELS), default='llama-8b')
    parser.add_argument('--layouts', default='vllm,heads', metavar='LIST',
                        type=names(('vllm', 'sglang', 'heads', 'cross')))
    parser.add_argument('--operations', type=names(tuple(OPERATIONS)),
                        default='offload,load,push,pull', metavar='LIST')
    parser.add_argument('--tokens', type=positive, default=2048, metavar='N')
    parser.add_argument('--repeat', type=positive, default=5, metavar='N')
    parser.add_argument('--seed', type=int, default=1, metavar='N')
    parser.add_argument('--gpus', type=gpus, default='0,1', metavar='A,B')
    parser.add_argument('--near', action='store_true',
                        help='both agents in this process')
    parser.add_argument('--check', action='store_true',
                        help='compare all bytes of both caches afterwards')
    parser.add_argument('--json', metavar='FILE', help='- is the output')
    parser.add_argument('--compare', action='store_true')
    parser.add_argument('--starts', type=positive, default=3, metavar='N')
    parser.add_argument('--launcher', default='ucx_mp_run', metavar='COMMAND',
                        help="such as 'ucx_mp_run --emulate hgx-h200'")
    parser.add_argument('--plot', metavar='FILE',
                        help='of --compare: bars, by its suffix png, svg, pdf')
    parser.add_argument('--quiet', action='store_true', help='no table')
    options = parser.parse_args(arguments)
    if options.plot and not options.compare:
        parser.error('--plot is of --compare')
    return options


def write(rows, path):
    text = json.dumps({'rows': rows})
    if path == '-':
        print(text, flush=True)
        return
    with open(path, 'w') as file:
        file.write(text + '\n')


def passed_on(options):
    """What each start of --compare is called with."""
    words = ['--model', options.model, '--layouts', ','.join(options.layouts),
             '--operations', ','.join(options.operations),
             '--tokens', str(options.tokens), '--repeat', str(options.repeat),
             '--seed', str(options.seed),
             '--gpus', '%d,%d' % options.gpus]
    return words + ['--near'] * options.near + ['--check'] * options.check


def main(arguments):
    """Exit status: 0, or 1 with a sentence."""
    options = parse(arguments)
    try:
        if options.compare:
            rows = compare(options, passed_on(options))
            if options.plot:
                plot(rows, options.plot, '%s, %d tokens'
                     % (options.model, options.tokens))
        else:
            rows = measure_all(options)
        if options.json:
            write(rows, options.json)
    except (nixl_peers.Failure, OSError) as error:
        print('bench: %s' % error, flush=True)
        return 1
    return 0
