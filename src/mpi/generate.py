#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Write calls.h, wrappers.c or mpi3.map: generate.py NAME > FILE.

The build puts these files into mpi below its own src folder. wrappers.c has the
wrappers of MPI's calls, such as MPI_Send().

The calls below, and those of collectives.py, have a name, arguments as "kind
name", and statements to describe their buffers. functions.py has those without.
Arguments of kind "in" and "out" may be GPU memory. Each wrapper is defined as
MPI_ and as PMPI_ function (UCX_MP_MPI_DEFINE), since Open MPI's Fortran bindings
and tools call PMPI_.
"""

import sys

sys.dont_write_bytecode = True
from collectives import (ARRIVE, BOTH, COLLECTIVES, ON_GPUS, PERSISTENT_ON_GPUS,
                         READ, RECV, SEND, STARTED_ON_GPUS, WRITE, copied,
                         message, one)
from functions import (ASKING, ATTACHED, EXTRAS, HELPERS, MAKERS, WRAPPED_IN_C,
                       WRAPPED_LARGE, WRAPPED_OF_MPICH)

# kind: C type, C type of the MPI_..._c call
KINDS = {
    'in': ('const void *', 'const void *'),
    'out': ('void *', 'void *'),
    'n': ('int ', 'MPI_Count '),            # a count
    'ns': ('const int *', 'const MPI_Count *'),
    'ds': ('const int *', 'const MPI_Aint *'),
    'as': ('const MPI_Aint *', 'const MPI_Aint *'),
    'type': ('MPI_Datatype ',) * 2,
    'types': ('const MPI_Datatype *',) * 2,
    'op': ('MPI_Op ',) * 2,
    'int': ('int ',) * 2,
    'comm': ('MPI_Comm ',) * 2,
    'info': ('MPI_Info ',) * 2,
    'request': ('MPI_Request *',) * 2,
    'status': ('MPI_Status *',) * 2,
    'message': ('MPI_Message *',) * 2,
    'win': ('MPI_Win ',) * 2,
    'file': ('MPI_File ',) * 2,
    'offset': ('MPI_Offset ',) * 2,
    'large': ('MPI_Count ',) * 2,
    'at': ('MPI_Aint ',) * 2,
    'bytes': ('MPI_Aint ', 'MPI_Count '),
    'position': ('int *', 'MPI_Count *'),
    'place': ('MPI_Aint *', 'MPI_Count *'),
    'text': ('const char *',) * 2,
}

# Last statement of a wrapper: the operation ends in the call, or goes on
ENDED = 'call_end(&call)'
LATER = 'nonblocking_defer(&call, request)'
AGAIN = 'call_again(&call, request)'     # persistent
SPLIT = 'call_split(&call, fh)'          # completed by another call

# Every call with a generated wrapper: name, arguments, buffers, and named
# arguments of class Call
CALLS = []


def add(name, arguments, buffers=(), **properties):
    CALLS.append((name, arguments, buffers, properties))


for name, (args, kind, buffers) in COLLECTIVES.items():
    how = {'kind': kind, 'is_counted': True}
    add(name, args + 'comm comm', buffers, **how)
    add('I' + name.lower(), args + 'comm comm, request request', buffers,
        end=LATER, **how)
    add(name + '_init', args + 'comm comm, info info, request request', buffers,
        end=AGAIN, is_of_mpi4=True, **how)

add('Reduce_local', 'in inbuf, out inoutbuf, n count, type datatype, op op',
    (one(READ, 'inbuf', 'count', 'datatype'),
     one(BOTH, 'inoutbuf', 'count', 'datatype')))

# Buffered messages: the MPI has copied the buffer when the call returns
BUFFERED = 'in buf, n count, type datatype, int dest, int tag, comm comm'
COPIED = (copied(READ, 'buf', 'count', 'datatype'),)
add('Bsend', BUFFERED, COPIED)
add('Ibsend', BUFFERED + ', request request', COPIED, end=LATER)
add('Bsend_init', BUFFERED + ', request request', COPIED, end=AGAIN)

EXCHANGE = (SEND + 'int dest, int sendtag, ' + RECV +
            'int source, int recvtag, comm comm, ')
SENT = message(READ, 'sendbuf', 'sendcount', 'sendtype', 'dest')
add('Sendrecv', EXCHANGE + 'status status', (
    SENT, message(ARRIVE, 'recvbuf', 'recvcount', 'recvtype', 'source')))
# MPICH 4.0 does not return the received size: keep the old bytes behind it
add('Isendrecv', EXCHANGE + 'request request', (
    SENT, message(BOTH + ' | UCX_MP_MPI_RECEIVE', 'recvbuf', 'recvcount',
                  'recvtype', 'source')), end=LATER, is_of_mpi4=True)
REPLACE = ('out buf, n count, type datatype, int dest, int sendtag, '
           'int source, int recvtag, comm comm, ')
REPLACED = (copied(BOTH, 'buf', 'count', 'datatype'),)
add('Sendrecv_replace', REPLACE + 'status status', REPLACED)
add('Isendrecv_replace', REPLACE + 'request request', REPLACED, end=LATER,
    is_of_mpi4=True)

# MPI_Pack and MPI_Unpack pack as messages do, but the CPU moves the bytes
PACKING = (one(READ, 'inbuf', 'incount', 'datatype'),
           one(BOTH, 'outbuf', 'outsize', 'call.byte'))
UNPACKING = (one(READ, 'inbuf', 'insize', 'call.byte'),
             one(WRITE, 'outbuf', 'outcount', 'datatype'))
add('Pack', 'in inbuf, n incount, type datatype, out outbuf, n outsize, '
    'position position, comm comm',
    (message(READ, 'inbuf', 'incount', 'datatype', 'MPI_ANY_SOURCE'),
     PACKING[1]))
add('Unpack', 'in inbuf, n insize, position position, out outbuf, '
    'n outcount, type datatype, comm comm',
    (UNPACKING[0],
     message(WRITE, 'outbuf', 'outcount', 'datatype', 'MPI_ANY_SOURCE')))
add('Pack_external', 'text datarep, in inbuf, n incount, type datatype, '
    'out outbuf, bytes outsize, place position', PACKING)
add('Unpack_external', 'text datarep, in inbuf, bytes insize, place position, '
    'out outbuf, n outcount, type datatype', UNPACKING)

# File calls: suffix of the name, argument with the position. Collective are
# _all and _ordered; split operations have a _begin and an _end call.
FILES = {'': '', '_all': '', '_at': 'offset offset, ',
         '_at_all': 'offset offset, ', '_shared': '', '_ordered': ''}
for where, offset in FILES.items():
    for name, way, use in (('read', 'out', BOTH), ('write', 'in', READ)):
        args = 'file fh, %s%s buf, n count, type datatype' % (offset, way)
        buffers = (one(use, 'buf', 'count', 'datatype'),)
        add('File_%s%s' % (name, where), args + ', status status', buffers)
        if where != '_ordered':
            add('File_i%s%s' % (name, where), args + ', request request',
                buffers, end=LATER)
        if where in ('_all', '_at_all', '_ordered'):
            add('File_%s%s_begin' % (name, where), args, buffers, end=SPLIT)

# One-sided calls. They may write less than the result buffer, or nothing.
WIN_ENDED = 'window_defer(&call, win, target_rank)'
WIN_READ = 'window_complete(&call, win, target_rank, request)'
FETCHED = 'out result_addr, type datatype, int target_rank, at target_disp, '
FETCHES = (one(READ, 'origin_addr', '1', 'datatype'),
           one(BOTH, 'result_addr', '1', 'datatype'))
add('Fetch_and_op', 'in origin_addr, ' + FETCHED + 'op op, win win', FETCHES,
    end=WIN_ENDED, window='FETCH', has_large=False)
add('Compare_and_swap',
    'in origin_addr, in compare_addr, ' + FETCHED + 'win win',
    FETCHES + (one(READ, 'compare_addr', '1', 'datatype'),),
    end=WIN_ENDED, window='SWAP', has_large=False)
ORIGIN = '%s origin_addr, n origin_count, type origin_datatype, '
RESULT = 'out result_addr, n result_count, type result_datatype, '
TARGET = 'int target_rank, at target_disp, n target_count, type target_datatype, '
for name, args, uses, end in (
        ('Put', ORIGIN % 'in' + TARGET, (READ,), LATER),
        ('Get', ORIGIN % 'out' + TARGET, (BOTH,), WIN_READ),
        ('Accumulate', ORIGIN % 'in' + TARGET + 'op op, ', (READ,), LATER),
        ('Get_accumulate', ORIGIN % 'in' + RESULT + TARGET + 'op op, ',
         (READ, BOTH), WIN_READ)):
    buffers = tuple(one(use, *(which + '_' + word for word in (
        'addr', 'count', 'datatype')))
        for use, which in zip(uses, ('origin', 'result')))
    add(name, args + 'win win', buffers, end=WIN_ENDED, window=name.upper())
    add('R' + name.lower(), args + 'win win, request request', buffers,
        end=end, window=name.upper())
add('Win_attach', 'win win, out base, at size', is_refused=True,
    has_large=False)

# Messages, staged unless their datatype is predefined
PLAIN = '%s buf, n count, type datatype, int %s, int tag, comm comm'
for mode in ('Send', 'Ssend', 'Rsend', 'Recv'):
    way, peer, use, last = (('out', 'source', ARRIVE, ', status status')
                            if mode == 'Recv' else ('in', 'dest', READ, ''))
    args = PLAIN % (way, peer)
    buffers = (message(use, 'buf', 'count', 'datatype', peer),)
    add(mode, args + last, buffers, peer=peer)
    add('I' + mode.lower(), args + ', request request', buffers, peer=peer,
        end=LATER)
    add(mode + '_init', args + ', request request', buffers, peer=peer,
        end=AGAIN)
SENDER = 'ucx_mp_mpi_message_peer(message)'
for name, last, end in (('Mrecv', 'status status', ENDED),
                        ('Imrecv', 'request request', LATER)):
    add(name, 'out buf, n count, type datatype, message message, ' + last,
        (message(ARRIVE, 'buf', 'count', 'datatype', SENDER),), peer=SENDER,
        end=end)

# Partitioned messages: MPICH moves them with the CPU, so they are refused;
# Open MPI packs those with gaps with the CPU, and leaves others to UCX
for name, way, peer in (('Psend_init', 'in', 'dest'),
                        ('Precv_init', 'out', 'source')):
    add(name, '%s buf, int partitions, large count, type datatype, int %s, '
        'int tag, comm comm, info info, request request' % (way, peer),
        is_refused=True, sends_parts_to=peer, has_large=False, is_of_mpi4=True)


class Call:
    """A wrapper."""

    def __init__(self, name, arguments, buffers, kind='', end=ENDED, peer=None,
                 window=None, is_counted=False, is_refused=False,
                 sends_parts_to=None, has_large=True, is_of_mpi4=False):
        self.name = name
        self.kind = kind        # 'root' or 'neighbors', if buffers depend on it
        self.buffers = buffers
        self.end = end
        self.peer = peer        # messages: argument with the other rank
        self.window = window    # one-sided calls: ucx_mp_mpi_rma_kind_t
        # a collective: increments the number of the communicator's state
        self.is_counted = is_counted
        self.is_refused = is_refused
        self.sends_parts_to = sends_parts_to  # partitioned: the other rank
        self.has_large = has_large            # there is an MPI_..._c call
        self.is_of_mpi4 = is_of_mpi4
        self.arguments = [item.split() for item in arguments.split(', ')]
        self.is_started = name in STARTED_ON_GPUS
        self.on_gpus = ON_GPUS.get(name) or STARTED_ON_GPUS.get(name)
        self.persistent = PERSISTENT_ON_GPUS.get(name)

    def words(self):
        return ', '.join(name for _, name in self.arguments)

    def of(self, kind):
        """Return the first argument of a kind, or None."""
        return next((name for other, name in self.arguments if other == kind),
                    None)

    def flags(self):
        """Return the ucx_mp_mpi_call_flags_t. No PACKS for reductions and
        external representations: they depend on the datatype."""
        is_file = self.name.startswith('File_')
        is_local = self.of('position') or self.of('place')
        is_joint = (('_all' in self.name or '_ordered' in self.name) if is_file
                    else self.of('comm') and not is_local)
        is_message = is_file or 'dest' in self.words() or self.peer
        is_joint = is_joint or self.peer
        found = [flag for flag, has in (
            ('PACKS', not (self.of('op') or self.of('text') or
                           self.window == 'SWAP')),
            ('JOINS', is_joint),
            ('EMPTY', is_joint and is_message),
            ('AGAIN', self.peer and self.end == AGAIN),
            ('HOST', self.of('position')),
            ('MESSAGE', self.peer or self.end == LATER and
             'recvtag' in self.words()),
            ('REDUCES', self.is_reduction_later())) if has]
        return ' | '.join('UCX_MP_MPI_' + flag for flag in found) or '0'

    def is_reduction_later(self):
        """Return whether this is a non-blocking or persistent reduction."""
        return self.is_counted and self.of('op') and self.of('request')

    def passed(self):
        """Return a condition that an MPI with CUDA shall send all buffers of a
        message as they are; empty if this is no message."""
        return ' &&\n         '.join(
            'ucx_mp_mpi_message_is_passed(%s, %s, %s)' % tuple(
                rest[i].strip('&') for i in (-4, -3, -1))
            for _, way, rest in self.buffers if way in ('message', 'copied'))

    def arrives(self):
        """Return whether the call's status has the received size."""
        return self.of('status') and any(
            way == 'message' for _, way, _ in self.buffers)

    def waits(self):
        """Return whether the call waits for a message or for other ranks."""
        return self.is_counted or self.of('status') and any(
            way in ('message', 'copied') for _, way, _ in self.buffers)

    def comm(self):
        return self.of('comm') or 'ucx_mp_mpi_pmpi.comm_world'

    def refusal(self, name):
        if self.of('win'):
            return 'ucx_mp_mpi_refuse_win("MPI_%s", %s)' % (name,
                                                            self.of('win'))
        return 'ucx_mp_mpi_refuse("MPI_%s", %s)' % (name, self.comm())

    def declare(self, large=False):
        """Declare a call that mpi.h may lack."""
        name = self.name + ('_c' if large else '')
        for prefix in ('', 'P'):
            print('int %sMPI_%s(%s);' % (prefix, name, ', '.join(
                KINDS[kind][large] + word for kind, word in self.arguments)))

    def write(self, large):
        name = self.name + ('_c' if large else '')
        print('\nUCX_MP_MPI_DEFINE(%s, (%s), %s)\n{' % (
            name, self.words(), ', '.join(KINDS[kind][large] + word for
                                          kind, word in self.arguments)))
        real = 'UCX_MP_MPI_CHECKED(ucx_mp_mpi_pmpi.%s(%s))' % (name,
                                                               self.words())
        if not self.is_refused:
            print('    ucx_mp_mpi_call_t call;')
        if self.arrives():
            print('    MPI_Status own;')
        if self.on_gpus:
            print('    const bool may_be_gpu = ucx_mp_mpi_may_be_gpu();')
        if self.is_counted:
            print('    ucx_mp_mpi_comm_t *state = ucx_mp_mpi_comm_next(comm, %s);'
                  % ('true' if self.kind == 'neighbors' else 'false'))
        if self.persistent:
            self.write_persistent(name)
        if not self.is_refused:
            print()
        if self.on_gpus:
            self.write_on_gpus(name, real)
        if self.window:
            self.write_window()
        condition = 'ucx_mp_mpi_passes_through()'
        if self.is_reduction_later():
            condition = 'ucx_mp_mpi_passes_through() && !ucx_mp_mpi_assists()'
        elif self.on_gpus:
            condition = '!may_be_gpu || !ucx_mp_mpi_pmpi.stages'
        elif self.is_refused:
            condition += (' || !ucx_mp_mpi_pointer_is_gpu(%s)'
                          % (self.of('in') or self.of('out')))
            if self.sends_parts_to:
                condition += (
                    ' ||\n        ucx_mp_mpi_message_has_parts(%s, datatype)'
                    % self.sends_parts_to)
        elif self.window:
            condition += ' || (target_rank == MPI_PROC_NULL)'
        elif self.peer:
            condition = ('ucx_mp_mpi_message_passes_through(%s, %s, buf, count, '
                         'datatype)' % (self.comm(), self.peer))
        elif self.passed():
            condition += (' && (!ucx_mp_mpi_assists() ||\n        (%s))'
                          % self.passed())
        print('    if (%s) {' % condition)
        print('        return %s;\n    }\n' % self.pass_through(name, real))
        if self.is_refused:
            print('    return %s;' % self.refusal(name))
        else:
            self.write_staging(name, real)
        print('}')

    def write_window(self):
        print('    if (ucx_mp_mpi_has_windows()) {')
        print('        const ucx_mp_mpi_rma_t args = {')
        for kind, word in self.arguments:
            if word == 'datatype':
                for which in ('origin', 'result', 'target'):
                    print('            .%s_count = 1,' % which)
                    print('            .%s_datatype = datatype,' % which)
            else:
                print('            .%s = %s,' % (word, word))
        print('            .kind = UCX_MP_MPI_RMA_%s\n        };' % self.window)
        print('        int rc;\n')
        print('        if (ucx_mp_mpi_window_rma(&args, &rc)) {\n'
              '            return rc;\n        }\n    }\n')

    def write_on_gpus(self, name, real):
        kind, words = self.on_gpus
        print('    if (!may_be_gpu%s) {'
              % ('' if self.is_started else
                 ' && ' + self.passing(kind, 'HOST')))
        print('        return %s;\n    }\n\n    {'
              % self.pass_through(name, real))
        self.write_arguments(name, kind, words)
        print('        int rc;\n')
        wrong = self.looks_wrong()
        call = 'ucx_mp_mpi_collective(state, &args, &rc)'
        if self.is_started:
            call = ('ucx_mp_mpi_collective_start(state, &args, %s,\n'
                    '                                        request, &rc)'
                    % ('!(%s)' % wrong if wrong else 'true'))
            wrong = None
        elif wrong:
            wrong = '%s && %s' % (wrong, self.passing(kind, 'ARGUMENTS'))
        print('        if (%s%s) {'
              % ('!(%s) &&\n            ' % wrong if wrong else '', call))
        print('            return %s;\n        }\n    }\n' % self.finish('rc'))

    @staticmethod
    def write_arguments(name, kind, words):
        print('        const ucx_mp_mpi_collective_t args = {')
        print('            .name = "MPI_%s",\n            .comm = comm,' % name)
        for word in words.split():
            field, _, value = word.partition('=')
            value = value or field
            print('            .%s = %s,' % (
                field, 'UCX_MP_MPI_VECTOR(%s)' % value
                if field in ('counts', 'displs') else value))
        print('            .kind = UCT_CUDA_COLL_KIND_%s\n        };' % kind)

    def write_persistent(self, name):
        self.write_arguments(name, *self.persistent)
        print('    const bool is_usable = !(%s);'
              % (self.looks_wrong() or 'false'))

    def begin(self, rc):
        """Return the last statement of a wrapper with this result."""
        return ('ucx_mp_mpi_persistent_begin(state, &args, is_usable, request,'
                '\n                                       %s)' % rc
                if self.persistent else rc)

    def ended(self, rc, is_made='true'):
        """Return the MPI's result of a collective, for comm.h. `is_made`: condition
        that the MPI's call was made."""
        if not self.is_counted:
            return rc
        if self.is_started:
            return 'ucx_mp_mpi_comm_end_reduction(state, comm, %s)' % rc
        return 'ucx_mp_mpi_comm_end(state, comm, %s, %s)' % (
            rc, is_made if self.on_gpus else 'false')

    def pass_through(self, name, real):
        """Return the MPI's call without staging. A blocking collective then
        checks for failures that other ranks reported."""
        real = self.ended(real)
        if self.is_counted and self.end == ENDED:
            real = ('ucx_mp_mpi_failure_end(\n                '
                    'ucx_mp_mpi_comm_ordinal(state), "MPI_%s", comm,\n'
                    '                %s)' % (name, real))
        return self.finish(real)

    def finish(self, rc):
        """Return the last statement of a wrapper with this result. A call that
        waits for other ranks then finishes freed requests."""
        if self.end == ENDED and self.waits():
            return 'ucx_mp_mpi_freed_end(%s)' % rc
        return self.begin(rc)

    @staticmethod
    def passing(kind, reason):
        return ('ucx_mp_mpi_comm_fall_back(state, comm, '
                'UCT_CUDA_COLL_KIND_%s, '
                'UCT_CUDA_COLL_NO_%s)' % (kind, reason))

    def looks_wrong(self):
        """Return a condition for arguments that the MPI reports as errors:
        those significant on all ranks, or the root's buffers."""
        names = [name for _, name in self.arguments]
        if 'root' in names:
            return ('(sendbuf == recvbuf) && ucx_mp_mpi_rank_is_self(comm, root)'
                    if 'sendbuf' in names else None)
        wrong = ['(sendbuf == recvbuf)']
        for name in names:
            if name in ('recvtype', 'datatype'):
                wrong.append('(%s == ucx_mp_mpi_pmpi.datatype_null)' % name)
            if name == 'sendtype':
                wrong.append('((sendbuf != MPI_IN_PLACE) &&\n             '
                             '(sendtype == ucx_mp_mpi_pmpi.datatype_null))')
        return '(%s)' % ' ||\n            '.join(wrong)

    def write_staging(self, name, real):
        print('    ucx_mp_mpi_call_%s(&call, "MPI_%s", %s, %s);'
              % ('init' if self.peer else 'begin', name, self.comm(),
                 self.flags()))
        if self.is_counted:
            print('    call.ordinal = ucx_mp_mpi_comm_ordinal(state);')
        if self.of('file'):
            print('    call.file_p = &%s;' % self.of('file'))
        if self.kind == 'root':
            print('    ucx_mp_mpi_call_root(&call, root);')
        if self.kind == 'neighbors':
            print('    ucx_mp_mpi_call_neighbors(&call);')
        for when, way, (use, pointer, *rest) in self.buffers:
            function = {'message': 'message_buffer',
                        'copied': 'message_copied'}.get(way, 'call_' + way)
            text = ('ucx_mp_mpi_%s(&call, %s, %s, %s);'
                    % (function, use, pointer, ', '.join(rest)))
            if when:
                print('    if (%s) {\n        %s\n    }' % (when, text))
            else:
                print('    ' + text)
        print('    if (ucx_mp_mpi_call_stage(&call)) {')
        if 'sendbuf' in self.words() and self.of('int') == 'dest':
            print('        sendcount = ucx_mp_mpi_call_pack(&call, dest, '
                  '&sendbuf, sendcount, &sendtype, recvbuf);')
        if self.arrives():
            print('        status  = ucx_mp_mpi_message_status(status, &own);')
        print('        call.rc = %s;' % real)
        if self.arrives():
            print('        if (call.rc == MPI_SUCCESS) {\n            '
                  'ucx_mp_mpi_message_arrived(&call, status);\n        }')
        print('    }\n')
        if self.is_counted:
            # all ranks count a call that fails in staging
            print('    (void)%s;' % self.ended(
                '(call.rc == call.failed) ? MPI_SUCCESS : call.rc',
                '(call.rc == MPI_SUCCESS) || (call.rc != call.failed)'))
        print('    return %s;' % self.finish('ucx_mp_mpi_' + self.end))


def declare(found):
    """Declare functions with arguments of these types."""
    for name, types in found.items():
        print('int MPI_%s(%s);\nint PMPI_%s(%s);' % (name, types, name, types))


def write_maker(name, types):
    """Write the wrapper of a call that makes a communicator."""
    types = types.split(', ')
    words = ['argument_%d' % i for i in range(len(types))]
    print('\nUCX_MP_MPI_DEFINE(%s, (%s), %s)\n{' % (
        name, ', '.join(words), ', '.join(map(' '.join, zip(types, words)))))
    print('    ucx_mp_mpi_pmpi_find_calls();\n'
          '    return ucx_mp_mpi_comm_made(\n'
          '            UCX_MP_MPI_CHECKED(ucx_mp_mpi_pmpi.%s(%s)), %s, %s);\n}'
          % (name, ', '.join(words), words[0], words[-1]))


def write_list(name, items):
    print('#define %s(_) \\' % name)
    print(' \\\n'.join('    _(%s)' % item for item in items) + '\n')


def write_lists(calls):
    large = [call for call in calls if call.has_large]
    print('#ifdef UCX_MP_MPI_ABI')
    for found in (HELPERS, EXTRAS, MAKERS, WRAPPED_IN_C, WRAPPED_LARGE,
                  WRAPPED_OF_MPICH):
        declare(found)
    for call in calls:
        call.declare()
    for call in large:
        call.declare(True)
    print('#elif MPI_VERSION < 4')
    for call in calls:
        if call.is_of_mpi4:
            call.declare()
    print('#endif\n')
    write_list('UCX_MP_MPI_HELPERS', HELPERS)
    write_list('UCX_MP_MPI_SMALL',
               [call.name for call in calls] + [*WRAPPED_IN_C, *MAKERS])
    print('#if MPI_VERSION >= 4')
    write_list('UCX_MP_MPI_LARGE',
               [call.name + '_c' for call in large] + [*WRAPPED_LARGE])
    write_list('UCX_MP_MPI_EXTRAS', EXTRAS)
    print('#else\n#define UCX_MP_MPI_LARGE(_)\n'
          '#define UCX_MP_MPI_EXTRAS(_)\n#endif\n')
    print('#ifndef OPEN_MPI')
    declare(ASKING)
    print('#if MPI_VERSION >= 4')
    declare(ATTACHED)
    write_list('UCX_MP_MPI_ATTACHED', ATTACHED)
    print('#else\n#define UCX_MP_MPI_ATTACHED(_)\n#endif\n')
    write_list('UCX_MP_MPI_ASKING', ASKING)
    write_list('UCX_MP_MPI_OF_MPICH', WRAPPED_OF_MPICH)
    print('#else\n#define UCX_MP_MPI_ASKING(_)\n'
          '#define UCX_MP_MPI_ATTACHED(_)\n'
          '#define UCX_MP_MPI_OF_MPICH(_)\n#endif\n')
    print('#define UCX_MP_MPI_WRAPPED(_) \\\n'
          '    UCX_MP_MPI_SMALL(_) UCX_MP_MPI_LARGE(_) UCX_MP_MPI_ASKING(_) \\\n'
          '    UCX_MP_MPI_ATTACHED(_) UCX_MP_MPI_OF_MPICH(_)')


def write_wrappers(calls):
    print('#include <mpi/call.h>\n#include <mpi/collective.h>\n'
          '#include <mpi/nonblocking.h>\n#include <mpi/message.h>\n'
          '#include <mpi/window.h>')
    for name, types in MAKERS.items():
        write_maker(name, types)
    for call in calls:
        call.write(False)
    print('\n#if MPI_VERSION >= 4')
    for call in calls:
        if call.has_large:
            call.write(True)
    print('#endif')


def write_map(calls):
    """Hide the calls of MPI 4 from programs whose MPI lacks them: mpi4py, for
    one, tests for them with weak symbols."""
    print('{\n    local:')
    for prefix in ('', 'P'):
        # a pattern without a match is allowed
        print('        %sMPI_*_c;' % prefix)
        for name in [call.name for call in calls if call.is_of_mpi4] + [
                *ASKING, *ATTACHED]:
            print('        %sMPI_%s*;' % (prefix, name))
    print('};')


def main(what):
    calls = [Call(name, arguments, buffers, **properties)
             for name, arguments, buffers, properties in CALLS]
    print('/* SPDX-License-Identifier: BSD-3-Clause */')
    print('/* Made by generate.py. */')
    if what == 'mpi3.map':
        write_map(calls)
    elif what == 'calls.h':
        print('#include <mpi.h>')
        write_lists(calls)
    else:
        write_wrappers(calls)


if __name__ == '__main__':
    main(sys.argv[1])
