# SPDX-License-Identifier: BSD-3-Clause
"""Compute the limits set by a node's links: rates of paths, and of a pipeline
over them.

Reads the node's description (NCCL topology XML, see src/cuemu/nodes) itself,
without the emulator's settings in it (<cuemu>), and takes rates from
specifications only. It shares neither code nor figures with the emulator and
the planner, so a mistake in one of them is detected. All rates are GB/s (10^9
bytes/s) of payload: calls, events, starts of copies and packet headers cost
nothing here, so no node can be faster.

How to compute the bound of a transfer:

1. A path is one hop (direct) or two (over a relay GPU, or over host memory),
   and a hop is a set of links. All paths that run at the same time share the
   links fairly: all rates rise equally until a link is full, and those on it
   stop there.
2. A staged path sends its share in chunks, and a chunk's second hop begins when
   its first has ended. The path takes the time of a pipeline: the first chunk
   fills it, the last one drains it. Chunks are those of the plan in question.
   In a window of messages the next message's chunks follow at once, so only the
   first message fills and the last one drains.
3. The bound is the sum of these paths' speeds, as if the shares were chosen so
   that all paths end together, whatever the plan's shares are.
"""

import os
import xml.etree.ElementTree

# GB/s of one NVLink, one direction, by compute capability, from NVIDIA's data
# sheets: P100 160 GB/s in both directions over four links, V100 300 over six,
# A100 600 over twelve, H100 and H200 900 over eighteen, B200 1800 over
# eighteen.
NVLINK = {60: 20.0, 70: 25.0, 80: 25.0, 90: 25.0, 100: 50.0}

# GB/s of one PCIe lane by GT/s, one direction, after its line code: 8b/10b,
# from generation 3 on 128b/130b, 242 of 256 bytes in generation 6 (PCI-SIG).
PCIE_LANE = {2.5: 0.25, 5.0: 0.5, 8.0: 8 / 8 * 128 / 130,
             16.0: 16 / 8 * 128 / 130, 32.0: 32 / 8 * 128 / 130,
             64.0: 64 / 8 * 242 / 256}

# (GB/s of one socket's memory, GB/s one way between two sockets) by processor:
# architecture, family, model.
# Xeon Scalable of 2017 and 2019: six channels of DDR4-2666 or -2933, here the
# faster; three UPI links of 10.4 GT/s, 20.8 GB/s each. EPYC 7003: eight of
# DDR4-3200; four links of 16 lanes at 18 GT/s. Xeon Scalable of 2023: eight of
# DDR5-5600; four UPI links of 20 GT/s, 40 GB/s each. Xeon E5 v4: four of
# DDR4-2400; two QPI links of 9.6 GT/s, 19.2 GB/s each. POWER9: eight of
# DDR4-2666; an X-bus of 64 GB/s.
HOST = {('x86_64', 6, 85): (140.8, 62.4), ('x86_64', 175, 1): (204.8, 144.0),
        ('x86_64', 6, 207): (358.4, 160.0), ('x86_64', 6, 79): (76.8, 38.4),
        ('ppc64', None, None): (170.6, 64.0)}
HOST_OTHER = (358.4, 160.0)


def host_of(cpu):
    arch = cpu.get('arch') or ''
    for (known, family, model), figures in HOST.items():
        if arch.startswith(known) and family in (None, int(
                cpu.get('familyid') or 0)) and model in (None, int(
                    cpu.get('modelid') or 0)):
            return figures
    return HOST_OTHER


class Node:
    """A node's links and routes, named as in the emulator."""

    def __init__(self, path):
        root = xml.etree.ElementTree.parse(path).getroot()
        self.name = os.path.basename(path)[:-len('.xml')]
        self.capacity = {}
        self.shared = []                # (name, members)
        self.gpus = {}                  # dev: its description
        self.to_cpu = {}                # dev: links towards the CPU
        self.from_cpu = {}
        for cpu in root.iter('cpu'):
            numa = int(cpu.get('numaid', '0'))
            memory, self.socket = host_of(cpu)
            # reads and writes share one limit
            both = {'dram.%d.rd' % numa, 'dram.%d.wr' % numa}
            self.capacity.update(dict.fromkeys(both, memory))
            self.capacity['dram.%d' % numa] = memory
            self.shared.append(('dram.%d' % numa, both))
            self._pci(cpu, numa, [], [])
        by_bus = {gpu['bus']: dev for dev, gpu in self.gpus.items()}
        for dev, gpu in self.gpus.items():
            for link in gpu['element'].iter('nvlink'):
                rate = int(link.get('count', '1')) * NVLINK[max(
                    sm for sm in NVLINK if sm <= max(gpu['sm'], 60))]
                tclass = int(link.get('tclass', '0x030200'), 16)
                if tclass == 0x068000:
                    for way in ('out', 'in'):
                        self._add('nvport.%d.%s' % (dev, way), rate)
                elif tclass == 0x068001:
                    self._add('nvlink.%d>cpu' % dev, rate)
                    self._add('nvlink.cpu>%d' % dev, rate)
                elif link.get('target', '').lower() in by_bus:
                    self._add('nvlink.%d>%d' % (
                        dev, by_bus[link.get('target').lower()]), rate)
        for dev in self.gpus:
            if 'nvlink.%d>cpu' % dev in self.capacity:
                self.to_cpu[dev] = ['nvlink.%d>cpu' % dev]
                self.from_cpu[dev] = ['nvlink.cpu>%d' % dev]
        numas = {gpu['numa'] for gpu in self.gpus.values()}
        for one in numas:
            for other in numas - {one}:
                self._add('socket.%d>%d' % (one, other), self.socket)

    def _add(self, name, gbps):
        self.capacity[name] = self.capacity.get(name, 0) + gbps

    def _pci(self, element, numa, up, down):
        for pci in element.findall('pci'):
            words = pci.get('link_speed', '').split()
            lane = PCIE_LANE.get(float(words[0]) if words else 8.0,
                                 PCIE_LANE[8.0])
            rate = lane * int(pci.get('link_width') or 16)
            gpu = pci.find('gpu')
            name = 'bridge.%s' % pci.get('busid') if gpu is None else \
                'pcie.%s' % gpu.get('dev')
            self.capacity[name + '.up'] = rate
            self.capacity[name + '.down'] = rate
            ups, downs = up + [name + '.up'], down + [name + '.down']
            if gpu is not None:
                dev = int(gpu.get('dev'))
                self.gpus[dev] = {'bus': pci.get('busid').lower(),
                                  'sm': int(gpu.get('sm')), 'numa': numa,
                                  'element': gpu}
                self.to_cpu[dev], self.from_cpu[dev] = ups, downs
            self._pci(pci, numa, ups, downs)

    def _with_shared(self, links):
        return links + [name for name, members in self.shared
                        if members & set(links)]

    def gpu_to_gpu(self, src, dst):
        """Return the links of a copy between two GPUs; None without peer
        access."""
        if 'nvlink.%d>%d' % (src, dst) in self.capacity:
            links = ['nvlink.%d>%d' % (src, dst)]
        elif 'nvport.%d.out' % src in self.capacity and \
                'nvport.%d.in' % dst in self.capacity:
            links = ['nvport.%d.out' % src, 'nvport.%d.in' % dst]
        elif self.gpus[src]['numa'] == self.gpus[dst]['numa']:
            up, down = self.to_cpu[src], self.from_cpu[dst]
            both = {name.rsplit('.', 1)[0] for name in up} & \
                {name.rsplit('.', 1)[0] for name in down}
            links = [name for name in up + down
                     if name.rsplit('.', 1)[0] not in both]
        else:
            return None
        return self._with_shared(links)

    def hops(self, path, src, dst):
        """Return the links of each hop of "direct", "gpuN" or "host"; None if
        there is no such path."""
        if path == 'direct':
            hops = [self.gpu_to_gpu(src, dst)]
        elif path.startswith('gpu'):
            relay = int(path[len('gpu'):])
            hops = [self.gpu_to_gpu(src, relay), self.gpu_to_gpu(relay, dst)]
        else:
            numa, far = self.gpus[src]['numa'], self.gpus[dst]['numa']
            down = self.from_cpu[dst] + ['dram.%d.rd' % numa]
            if far != numa:
                down = down + ['socket.%d>%d' % (numa, far)]
            hops = [self._with_shared(self.to_cpu[src] +
                                      ['dram.%d.wr' % numa]),
                    self._with_shared(down)]
        return None if any(hop is None for hop in hops) else hops

    def solo(self, hop):
        return min(self.capacity[name] for name in hop)


def fair_rates(node, flows):
    """Return the max-min fair rates of flows; each is a list of hops with one
    rate."""
    uses = [[name for hop in flow for name in hop] for flow in flows]
    left = dict(node.capacity)
    rates = [0.0] * len(flows)
    open_flows = set(range(len(flows)))
    while open_flows:
        load = {}
        for index in open_flows:
            for name in uses[index]:
                load[name] = load.get(name, 0) + 1
        step = min(left[name] / count for name, count in load.items())
        for name, count in load.items():
            left[name] -= step * count
        full = {name for name in load if left[name] < 1e-9 * node.capacity[name]}
        for index in list(open_flows):
            rates[index] += step
            if full & set(uses[index]):
                open_flows.discard(index)
    return rates


def pipeline_seconds(chunks, rates):
    """Return the seconds of chunks (bytes) through hops (GB/s). A hop carries
    one chunk at a time, in order, once the hop before has ended it."""
    ends = [0.0] * len(rates)
    for chunk in chunks:
        before = 0.0
        for hop, rate in enumerate(rates):
            ends[hop] = max(before, ends[hop]) + chunk / (rate * 1e9)
            before = ends[hop]
    return ends[-1]


def bound(node, plan, window=1, both_ways=False, src=0, dst=1):
    """Return (GB/s with fill and drain, GB/s of the paths' plain sum) of a
    plan.

    plan: [(path, bytes, chunk)], the shares of one message; chunk is the size
    of all its chunks but the last, in bytes. An empty plan is the direct path.
    both_ways: the same plan runs in the other direction at the same time, and
    both sums count.
    """
    plan = plan or [('direct', 1 << 20, 1 << 20)]
    ways = [(src, dst)] + ([(dst, src)] if both_ways else [])
    flows = [(path, size, chunk, node.hops(path, one, other))
             for one, other in ways for path, size, chunk in plan if size > 0]
    rates = fair_rates(node, [hops for _, _, _, hops in flows])
    total = 0.0
    for (_, size, chunk, hops), rate in zip(flows, rates):
        if len(hops) == 1:
            total += rate
            continue
        parts = [chunk] * (size // chunk) + \
            ([size % chunk] if size % chunk else [])
        seconds = pipeline_seconds(parts * window,
                                   [node.solo(hop) for hop in hops])
        total += min(rate, size * window / seconds / 1e9)
    return total, sum(rates)
