#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Ask the CUDA transports of UCX 1.22 all their queries.

    ask.py FOLDER_OF_LIBUCT

Prints one answer per line, "key = value", the same in each run on an emulated
node. A second process plays the peer that receives keys.
"""

import ctypes
import json
import os
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import gpu as gpus
from layout import CONSTANTS, OFFSETS, Record, constant

u8, u32, u64 = ctypes.c_uint8, ctypes.c_uint32, ctypes.c_uint64
double, size_t, pointer = ctypes.c_double, ctypes.c_size_t, ctypes.c_void_p

MEM_TYPES = ('host', 'cuda', 'cuda-managed')
MD_FLAGS = {name[len('UCT_MD_FLAG_'):]: value
            for name, value in CONSTANTS.items()
            if name.startswith('UCT_MD_FLAG_') and
            name[len('UCT_MD_FLAG_'):] not in ('LAST', 'V2_FIRST')}
IFACE_FLAGS = {
    'AM_SHORT': 0, 'AM_BCOPY': 1, 'AM_ZCOPY': 2, 'PENDING': 3, 'PUT_SHORT': 4,
    'PUT_BCOPY': 5, 'PUT_ZCOPY': 6, 'GET_SHORT': 8, 'GET_BCOPY': 9,
    'GET_ZCOPY': 10, 'ERRHANDLE_ZCOPY_BUF': 34, 'ERRHANDLE_REMOTE_MEM': 36,
    'ERRHANDLE_PEER_FAILURE': 38, 'EP_CHECK': 39, 'CONNECT_TO_IFACE': 40,
    'CONNECT_TO_EP': 41, 'CB_SYNC': 44, 'CB_ASYNC': 45, 'EP_KEEPALIVE': 46,
    'PUT_AM_ORDER': 47, 'INTER_NODE': 54, 'DEVICE_EP': 55, 'DEVICE_LKEY': 56}
EVENT_FLAGS = {'SEND_COMP': 0, 'RECV': 1, 'RECV_SIG': 2, 'FD': 3,
               'ASYNC_CB': 4}
OPERATIONS = ('PUT_SHORT', 'PUT_ZCOPY', 'GET_SHORT', 'GET_ZCOPY')
DEVICE_MODE, POLL_MODE, REG_FLAGS = 1, 3, 0x3e0    # access of every kind
HIDE_ERRORS = 8


def show(*words):
    print('%s = %s' % (' / '.join(words[:-1]), words[-1]), flush=True)


def names(value, bits):
    """Return the names of the set bits, and bits without a name in hexadecimal."""
    out = []
    for name, bit in sorted(bits.items(), key=lambda item: item[1]):
        if value & bit:
            out.append(name)
            value &= ~bit
    return ' '.join(out + (['%#x' % value] if value else [])) or 'none'


def types(mask):
    return names(mask, {name: 1 << i for i, name in enumerate(MEM_TYPES)})


def limit(value):
    return 'no limit' if value >= (1 << 63) - 1 else str(value)


def rate(pair):
    return ('%.0f MiB/s dedicated, %.0f shared'
            % (pair[0] / 2 ** 20, pair[1] / 2 ** 20))


def seconds(value):
    return '%.4g us' % (value * 1e6)


class Ucx:
    """libuct with one of the CUDA components open: md, iface."""

    def __init__(self, folder):
        self.ucs = ctypes.CDLL(os.path.join(folder, 'libucs.so.0'),
                               ctypes.RTLD_GLOBAL)
        self.uct = ctypes.CDLL(os.path.join(folder, 'libuct.so.0'),
                               ctypes.RTLD_GLOBAL)
        self.ucs.ucs_status_string.restype = ctypes.c_char_p
        self.context = pointer()
        self.worker = pointer()
        self.check(self.ucs.ucs_async_context_create(
            POLL_MODE, ctypes.byref(self.context)))
        self.check(self.uct.uct_worker_create(self.context, 0,
                                              ctypes.byref(self.worker)))
        found, count = ctypes.POINTER(pointer)(), ctypes.c_uint()
        self.check(self.uct.uct_query_components(ctypes.byref(found),
                                                 ctypes.byref(count)))
        self.components = {ctypes.string_at(found[i]).decode(): found[i]
                           for i in range(count.value)}

    def word(self, status):
        status = ctypes.c_int8(status & 0xff).value
        return ('OK' if status == 0 else 'under way' if status == 1 else
                self.ucs.ucs_status_string(ctypes.c_int(status)).decode())

    def check(self, status):
        if ctypes.c_int8(status & 0xff).value != 0:
            raise RuntimeError(self.word(status))


class Domain:
    def __init__(self, ucx, component, transport):
        self.ucx, self.uct = ucx, ucx.uct
        self.transport = transport
        self.component = pointer(ucx.components[component])
        config = pointer()
        ucx.check(self.uct.uct_md_config_read(self.component, None, None,
                                              ctypes.byref(config)))
        self.md = pointer()
        ucx.check(self.uct.uct_md_open(self.component, component.encode(),
                                       config, ctypes.byref(self.md)))
        self.uct.uct_config_release(config)
        config = pointer()
        ucx.check(self.uct.uct_md_iface_config_read(
            self.md, transport.encode(), None, None, ctypes.byref(config)))
        params = Record('uct_iface_params_t')
        params.set('field_mask', 2 | 4)    # open mode, device
        params.set('open_mode', DEVICE_MODE)
        self.kept = [ctypes.c_char_p(transport.encode()),
                     ctypes.c_char_p(b'cuda')]
        for field, text in zip(('tl_name', 'dev_name'), self.kept):
            params.set('mode.device.' + field,
                       ctypes.cast(text, pointer).value)
        self.iface = pointer()
        ucx.check(self.uct.uct_iface_open(self.md, ucx.worker,
                                          params.address(), config,
                                          ctypes.byref(self.iface)))
        self.attr = Record('uct_iface_attr_t')
        ucx.check(self.uct.uct_iface_query(self.iface, self.attr.address()))
        md_attr = self.md_attr()
        self.key_size = md_attr.get('rkey_packed_size')

    def md_attr(self):
        attr = Record('uct_md_attr_v2_t')
        attr.set('field_mask', (1 << 19) - 1)
        self.ucx.check(self.uct.uct_md_query_v2(self.md, attr.address()))
        return attr

    def operation(self, name, *arguments):
        """Call an operation of the interface that UCX's headers call inline."""
        table = ctypes.cast(self.iface, ctypes.POINTER(u64))
        address = table[OFFSETS['uct_iface_ops_t'][name] // 8]
        return ctypes.CFUNCTYPE(ctypes.c_int)(address)(*arguments)

    def device_address(self):
        out = ctypes.create_string_buffer(self.attr.get('device_addr_len') + 1)
        self.ucx.check(self.uct.uct_iface_get_device_address(self.iface, out))
        return out.raw[:-1]

    def iface_address(self):
        out = ctypes.create_string_buffer(self.attr.get('iface_addr_len') + 1)
        self.ucx.check(self.uct.uct_iface_get_address(self.iface, out))
        return out.raw[:-1]

    def is_reachable(self, device_address, iface_address, scope):
        params = Record('uct_iface_is_reachable_params_t')
        self.kept_addresses = [ctypes.create_string_buffer(device_address),
                               ctypes.create_string_buffer(iface_address)]
        params.set('field_mask', 1 | 2 | 16 | 32 | 64)
        for field, text in zip(('device_addr', 'iface_addr'),
                               self.kept_addresses):
            params.set(field, ctypes.addressof(text))
        params.set('scope', scope, u32)
        params.set('device_addr_length', len(device_address))
        params.set('iface_addr_length', len(iface_address))
        return bool(self.uct.uct_iface_is_reachable_v2(self.iface,
                                                       params.address()))

    def connect(self, device_address, iface_address):
        params = Record('uct_ep_params_t')
        device = ctypes.create_string_buffer(device_address)
        own = ctypes.create_string_buffer(iface_address)
        params.set('field_mask',
                   1 | 4 | 8 |
                   constant('UCT_EP_PARAM_FIELD_DEV_ADDR_LENGTH') |
                   constant('UCT_EP_PARAM_FIELD_IFACE_ADDR_LENGTH'))
        params.set('iface', self.iface.value)
        params.set('dev_addr', ctypes.addressof(device))
        params.set('iface_addr', ctypes.addressof(own))
        params.set('dev_addr_length', len(device_address))
        params.set('iface_addr_length', len(iface_address))
        ep = pointer()
        self.ucx.check(self.uct.uct_ep_create(params.address(),
                                              ctypes.byref(ep)))
        return ep

    def register(self, address, size):
        params = Record('uct_md_mem_reg_params_t')
        params.set('field_mask', 1)
        params.set('flags', REG_FLAGS | HIDE_ERRORS)
        memh = pointer()
        status = self.uct.uct_md_mem_reg_v2(self.md, pointer(address),
                                            size_t(size), params.address(),
                                            ctypes.byref(memh))
        return self.ucx.word(status), memh

    def pack(self, memh, address, size):
        params = Record('uct_md_mkey_pack_params_t')
        key = ctypes.create_string_buffer(max(self.key_size, 1))
        status = self.uct.uct_md_mkey_pack_v2(self.md, memh, pointer(address),
                                              size_t(size), params.address(),
                                              key)
        return self.ucx.word(status), key.raw

    def query(self, address, size):
        attr = Record('uct_md_mem_attr_v2_t')
        attr.set('field_mask', 0x4f)    # all but dmabuf
        attr.set('mem_flags', 0xff, u8)
        attr.set('mem_type', 99, u32)
        status = self.uct.uct_md_mem_query_v2(self.md, pointer(address),
                                              size_t(size), attr.address())
        return self.ucx.word(status), attr


def show_md(domain):
    attr, name = domain.md_attr(), domain.transport
    show(name, 'md', 'flags', names(attr.get('flags'), MD_FLAGS))
    for field in ('reg', 'reg_nonblock', 'cache', 'gva', 'detect', 'alloc',
                  'access', 'dmabuf'):
        show(name, 'md', field + '_mem_types',
             types(attr.get(field + '_mem_types')))
    for field in ('max_alloc', 'max_reg'):
        show(name, 'md', field, limit(attr.get(field)))
    for field in ('rkey_packed_size', 'reg_alignment',
                  'exported_mkey_packed_size'):
        show(name, 'md', field, attr.get(field))
    show(name, 'md', 'required_mem_flags',
         names(attr.get('required_mem_flags', u8), {'REGISTRABLE': 1}))
    show(name, 'md', 'reg_cost', '%s, %g us a MiB'
         % (seconds(attr.pair('reg_cost')[0]),
            attr.pair('reg_cost')[1] * 2 ** 20 * 1e6))


def show_iface(domain):
    attr, name = domain.attr, domain.transport
    bits = {key: 1 << bit for key, bit in IFACE_FLAGS.items()}
    show(name, 'iface', 'flags', names(attr.get('cap.flags'), bits))
    show(name, 'iface', 'event_flags',
         names(attr.get('cap.event_flags'),
               {key: 1 << bit for key, bit in EVENT_FLAGS.items()}))
    for way in ('put', 'get'):
        for field in ('max_short', 'max_bcopy', 'min_zcopy', 'max_zcopy',
                      'opt_zcopy_align', 'align_mtu', 'max_iov'):
            field = 'cap.%s.%s' % (way, field)
            show(name, 'iface', field[4:], limit(attr.get(field)))
    for field in ('device_addr_len', 'iface_addr_len', 'ep_addr_len',
                  'max_conn_priv', 'max_num_eps'):
        show(name, 'iface', field, limit(attr.get(field)))
    show(name, 'iface', 'dev_num_paths', attr.get('dev_num_paths', u32))
    show(name, 'iface', 'priority', attr.get('priority', u8))
    show(name, 'iface', 'ctl_device',
         'unknown' if attr.get('ctl_device', u8) == 255 else 'known')
    show(name, 'iface', 'overhead', seconds(attr.get('overhead', double)))
    show(name, 'iface', 'latency', seconds(attr.pair('latency')[0]))
    show(name, 'iface', 'bandwidth', rate(attr.pair('bandwidth')))


def show_estimates(domain):
    prefix = 'UCT_PERF_ATTR_FIELD_'
    wanted = sum(value for key, value in CONSTANTS.items()
                 if key.startswith(prefix) and not key.endswith('_SYS_DEVICE'))
    for operation in OPERATIONS:
        for local in MEM_TYPES:
            for remote in MEM_TYPES:
                attr = Record('uct_perf_attr_t')
                attr.set('field_mask', wanted)
                attr.set('operation', constant('UCT_EP_OP_' + operation), u32)
                attr.set('local_memory_type', MEM_TYPES.index(local), u32)
                attr.set('remote_memory_type', MEM_TYPES.index(remote), u32)
                status = domain.uct.uct_iface_estimate_perf(domain.iface,
                                                            attr.address())
                key = (domain.transport, 'estimate', operation,
                       '%s, %s' % (local, remote))
                if domain.ucx.word(status) != 'OK':
                    show(*key, domain.ucx.word(status))
                    continue
                text = '%s; ' % rate(attr.pair('bandwidth'))
                if attr.pair('path_bandwidth') != attr.pair('bandwidth'):
                    text += 'a path %s; ' % rate(attr.pair('path_bandwidth'))
                text += ('before %s, after %s, receive %s, latency %s'
                         % (tuple(seconds(attr.get(field, double))
                                  for field in ('send_pre_overhead',
                                                'send_post_overhead',
                                                'recv_overhead')) +
                            (seconds(attr.pair('latency')[0]),)))
                if (attr.get('max_inflight_eps') != (1 << 64) - 1 or
                        attr.get('flags') != 0):
                    text += ('; endpoints %s, flags %#x'
                             % (limit(attr.get('max_inflight_eps')),
                                attr.get('flags')))
                show(*key, text)


class Peer:
    """The other process, which maps memory by its key."""

    def __init__(self, folder):
        self.process = subprocess.Popen(
            [sys.executable, os.path.realpath(__file__), folder, '--peer'],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **question):
        try:
            self.process.stdin.write(json.dumps(question) + '\n')
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ''
        return json.loads(answer) if answer else None

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def transfer(domain, ep, name, buffer, size, remote, rkey):
    """Put or get; returns the complete transfer's status."""
    iov = Record('uct_iov_t')
    iov.set('buffer', buffer)
    iov.set('length', size)
    iov.set('count', 1, u32)
    completion = Record('uct_completion_t')
    over = []
    callback = ctypes.CFUNCTYPE(None, pointer)(lambda _: over.append(1))
    completion.set('func', ctypes.cast(callback, pointer).value)
    completion.set('count', 1, ctypes.c_int)
    status = domain.ucx.word(domain.operation(
        name, ep, iov.address(), size_t(1), u64(remote), u64(rkey),
        completion.address()))
    end = time.monotonic() + 60
    while status == 'under way':
        domain.operation('iface_progress', domain.iface)
        if over:
            status = domain.ucx.word(completion.get('status', u8))
        elif time.monotonic() > end:
            status = 'never ended'
    return status


def peer(folder):
    """Answer questions from standard input, one line each."""
    gpu = gpus.Gpu(1)
    domain = Domain(Ucx(folder), 'cuda_ipc', 'cuda_ipc')
    local = gpu.plain()
    for line in sys.stdin:
        question = json.loads(line)
        if question['what'] == 'addresses':
            answer = {'device': domain.device_address().hex(),
                      'iface': domain.iface_address().hex()}
        else:
            answer = use_key(gpu, domain, local, question)
        print(json.dumps(answer), flush=True)


def use_key(gpu, domain, local, question):
    ep = domain.connect(bytes.fromhex(question['device']),
                        bytes.fromhex(question['iface']))
    bundle = Record('uct_rkey_bundle_t')
    key = ctypes.create_string_buffer(bytes.fromhex(question['key']))
    remote, size = question['address'], question['size']
    answer = {'unpack': domain.ucx.word(domain.uct.uct_rkey_unpack(
        domain.component, key, bundle.address()))}
    if answer['unpack'] == 'OK':
        rkey = bundle.get('rkey')
        gpu.fill(local, size, question['value'])
        answer['put'] = transfer(domain, ep, 'ep_put_zcopy', local, size,
                                 remote, rkey)
        gpu.fill(local, size, 0)
        answer['get'] = transfer(domain, ep, 'ep_get_zcopy', local, size,
                                 remote, rkey)
        if answer['get'] == 'OK':
            answer['got'] = (gpu.read(local, size) ==
                             bytes([question['value']]) * size)
        address = pointer()
        answer['rkey_ptr'] = domain.ucx.word(domain.uct.uct_rkey_ptr(
            domain.component, bundle.address(), u64(remote),
            ctypes.byref(address)))
        element = ctypes.create_string_buffer(64)
        answer['mem_elem_pack'] = domain.ucx.word(
            domain.uct.uct_md_mem_elem_pack(domain.md, None, u64(rkey),
                                            element))
        if answer['mem_elem_pack'] == 'OK':
            offset = ctypes.c_int64.from_buffer(element).value
            answer['mem_elem_is_mapping'] = (
                gpu.read(remote + offset, size) ==
                bytes([question['value']]) * size)
        device_ep = pointer()
        answer['get_device_ep'] = domain.ucx.word(
            domain.uct.uct_ep_get_device_ep(ep, ctypes.byref(device_ep)))
        if answer['get_device_ep'] == 'OK':
            answer['device_ep'] = gpu.read(device_ep.value, 1)[0]
    domain.uct.uct_ep_destroy(ep)
    return answer


def show_query(domain, key, address, size):
    status, attr = domain.query(address, size)
    if status != 'OK':
        show(domain.transport, 'memory', key, 'query', status)
        return
    base = attr.get('base_address')
    show(domain.transport, 'memory', key, 'query',
         '%s, %s, %s, %s, %s'
         % (MEM_TYPES[attr.get('mem_type', u32)],
            'GPU unknown' if attr.get('sys_dev', u8) == 255 else 'GPU known',
            'from its start' if base == address else
            'from address 0' if base == 0 else
            'from %+d' % (base - address),
            'the queried bytes' if attr.get('alloc_length') == size else
            '%d KiB' % (attr.get('alloc_length') >> 10),
            'registrable' if attr.get('mem_flags', u8) == 1 else
            'not registrable' if attr.get('mem_flags', u8) == 0 else
            'registrable or not is unsaid'))


def show_alloc(domain):
    for name in ('cuda', 'cuda-managed', 'host'):
        for size in (4096, 3 * gpus.MIB):
            length, address, memh = size_t(size), pointer(), pointer()
            table = ctypes.cast(domain.md, ctypes.POINTER(u64))
            table = ctypes.cast(table[0], ctypes.POINTER(u64))

            def operation(field):
                return ctypes.CFUNCTYPE(ctypes.c_int)(
                    table[OFFSETS['uct_md_ops_t'][field] // 8])

            status = domain.ucx.word(operation('mem_alloc')(
                domain.md, ctypes.byref(length), ctypes.byref(address),
                MEM_TYPES.index(name), 255, REG_FLAGS | HIDE_ERRORS, b'floor',
                ctypes.byref(memh)))
            if status == 'OK':
                allowed, legacy = u64(), ctypes.c_int()
                cuda = ctypes.CDLL('libcuda.so.1')
                cuda.cuPointerGetAttribute(ctypes.byref(allowed), 14, address)
                cuda.cuPointerGetAttribute(ctypes.byref(legacy), 10, address)
                text = ('%d KiB, handles: %s'
                        % (length.value >> 10,
                           names(allowed.value, {'file descriptor': 1,
                                                 'fabric': 8,
                                                 'legacy': 1 << 32})
                           if not legacy.value else 'legacy'))
                text += ', free: ' + domain.ucx.word(
                    operation('mem_free')(domain.md, memh))
            else:
                text = status
            show(domain.transport, 'alloc', name, '%d KiB' % (size >> 10),
                 text)


def show_copies(gpu, domain, name, address):
    """Copy between pageable host memory and this memory, in all four ways."""
    ep = domain.connect(domain.device_address(), domain.iface_address())
    host = gpu.pageable()
    found = []
    for way, size, value in (('short', 64, 0xa1), ('zcopy', gpus.MIB, 0xa2)):
        for direction, byte in (('put', value), ('get', value + 16)):
            text = bytes([byte]) * size
            ctypes.memset(host, 0, size)
            gpu.copy(address, host, size)
            source = host if direction == 'put' else address
            written = ctypes.create_string_buffer(text, size)
            gpu.copy(source, ctypes.addressof(written), size)
            operation = 'ep_%s_%s' % (direction, way)
            if way == 'short':
                status = domain.ucx.word(domain.operation(
                    operation, ep, pointer(host), ctypes.c_uint(size),
                    u64(address), u64(0)))
            else:
                status = transfer(domain, ep, operation, host, size, address,
                                  0)
            gpu.copy(host, address if direction == 'put' else host, size)
            if status == 'OK' and ctypes.string_at(host, size) != text:
                status = 'wrong bytes'
            found.append((operation[3:], status))
    domain.uct.uct_ep_destroy(ep)
    show(domain.transport, 'memory', name, 'put and get',
         'OK, every byte' if {status for _, status in found} == {'OK'} else
         ', '.join('%s: %s' % pair for pair in found))


def show_kind(gpu, copy, ipc, other, name, make, value):
    try:
        address = make(gpu)
    except gpus.NoMemory as refusal:
        show('memory', name, 'allocate', refusal)
        return
    half = gpus.SIZE // 2
    show_query(copy, name, address, gpus.MIB)
    show_query(copy, name + ', second half', address + half, gpus.MIB)
    status, _ = copy.register(address, gpus.SIZE)
    show('cuda_copy', 'memory', name, 'register', status)
    show_copies(gpu, copy, name, address)
    status, memh = ipc.register(address, gpus.SIZE)
    show('cuda_ipc', 'memory', name, 'register', status)
    if status != 'OK':
        return
    for part, offset, size in (('first', 0, gpus.MIB),
                               ('second half', half, gpus.MIB),
                               ('whole', 0, gpus.SIZE)):
        status, key = ipc.pack(memh, address + offset, size)
        label = (name if part == 'first' else '%s, %s' % (name, part))
        show('cuda_ipc', 'memory', label, 'pack', status)
        if status != 'OK':
            continue
        value += 1
        answer = other.ask(what='key', key=key.hex(), value=value & 0xff,
                           device=ipc.device_address().hex(),
                           iface=ipc.iface_address().hex(),
                           address=address + offset, size=size)
        if answer is None:
            show('cuda_ipc', 'memory', label, 'peer', 'died')
            return
        if answer.get('put') == 'OK':
            answer['put'] += (', every byte' if
                              gpu.read(address + offset, size) ==
                              bytes([value & 0xff]) * size else
                              ', wrong bytes')
        if answer.get('get') == 'OK':
            answer['get'] += (', every byte' if answer.pop('got') else
                              ', wrong bytes')
        for field in sorted(answer):
            show('cuda_ipc', 'memory', label, field, answer[field])


def show_reachable(domain, other):
    answer = other.ask(what='addresses')
    addresses = [bytes.fromhex(answer[key]) for key in ('device', 'iface')]
    own = [domain.device_address(), domain.iface_address()]
    for scope, text in ((0, 'network'), (1, 'device')):
        show(domain.transport, 'reachable', text, 'another process',
             domain.is_reachable(*addresses, scope))
        show(domain.transport, 'reachable', text, 'this process',
             domain.is_reachable(*own, scope))


def main():
    folder = sys.argv[1]
    if '--peer' in sys.argv:
        peer(folder)
        return
    gpu = gpus.Gpu(0)
    ucx = Ucx(folder)
    copy = Domain(ucx, 'cuda_cpy', 'cuda_copy')
    ipc = Domain(ucx, 'cuda_ipc', 'cuda_ipc')
    for domain in (copy, ipc):
        show_md(domain)
        show_iface(domain)
    show_alloc(copy)
    other = Peer(folder)
    show_reachable(ipc, other)
    for i, (name, make) in enumerate(gpus.KINDS):
        show_kind(gpu, copy, ipc, other, name, make, 16 * (i + 1))
        if other.process.poll() is not None:
            other = Peer(folder)
    for domain in (copy, ipc):
        show_estimates(domain)
    other.end()


if __name__ == '__main__':
    main()
    sys.stdout.flush()
    os._exit(0)    # both modules end their threads in their own time
