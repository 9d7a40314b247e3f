#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Write calls.h, wrappers.c or mpi3.map: generate.py NAME > FILE.

The build puts these files into mpi below its own src folder. wrappers.c has the
wrappers of MPI's calls, such as MPI_Send().

The tables below, and those of collectives.py, have one entry per MPI call: its
name, its arguments as "kind name", and statements to describe its buffers.
Arguments of kind "in" and "out" may be GPU memory. Each wrapper is defined as
MPI_ and as PMPI_ function (UCX_MP_MPI_DEFINE), since Open MPI's Fortran bindings
and tools call PMPI_.
"""

import sys

sys.dont_write_bytecode = True
from collectives import (ARRIVE, BOTH, COLLECTIVES, ON_GPUS, PERSISTENT_ON_GPUS,
                         READ, RECV, SEND, STARTED_ON_GPUS, WRITE, copied,
                         message, one)

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
    'requests': ('const MPI_Request *',) * 2,
    'result': ('int *',) * 2,
    'status': ('MPI_Status *',) * 2,
    'message': ('MPI_Message *',) * 2,
    'session': ('MPI_Session ',) * 2,
    'win': ('MPI_Win ',) * 2,
    'windows': ('MPI_Win *',) * 2,
    'file': ('MPI_File ',) * 2,
    'offset': ('MPI_Offset ',) * 2,
    'large': ('MPI_Count ',) * 2,
    'at': ('MPI_Aint ',) * 2,
    'unit': ('int ', 'MPI_Aint '),
    'bytes': ('MPI_Aint ', 'MPI_Count '),
    'position': ('int *', 'MPI_Count *'),
    'place': ('MPI_Aint *', 'MPI_Count *'),
    'text': ('const char *',) * 2,
}

# other blocking calls with buffers
OTHERS = {
    'Reduce_local': (
        'in inbuf, out inoutbuf, n count, type datatype, op op', '',
        (one(READ, 'inbuf', 'count', 'datatype'),
         one(BOTH, 'inoutbuf', 'count', 'datatype'))),
    # the MPI has copied the buffer when the call returns
    'Bsend': ('in buf, n count, type datatype, int dest, int tag, comm comm',
              '', (copied(READ, 'buf', 'count', 'datatype'),)),
}

EXCHANGE = (SEND + 'int dest, int sendtag, ' + RECV +
            'int source, int recvtag, comm comm, ', (
                message(READ, 'sendbuf', 'sendcount', 'sendtype', 'dest'),
                message(ARRIVE, 'recvbuf', 'recvcount', 'recvtype', 'source')))
# MPICH 4.0 does not return the received size: keep the old bytes behind it
EXCHANGE_LATER = (EXCHANGE[1][0],
                  message(BOTH + ' | UCX_MP_MPI_RECEIVE', 'recvbuf',
                          'recvcount', 'recvtype', 'source'))
REPLACE = ('out buf, n count, type datatype, int dest, int sendtag, '
           'int source, int recvtag, comm comm, ',
           (copied(BOTH, 'buf', 'count', 'datatype'),))
OTHERS['Sendrecv'] = (EXCHANGE[0] + 'status status', '', EXCHANGE[1])
OTHERS['Sendrecv_replace'] = (REPLACE[0] + 'status status', '', REPLACE[1])

PACKING = (one(READ, 'inbuf', 'incount', 'datatype'),
           one(BOTH, 'outbuf', 'outsize', 'call.byte'))
UNPACKING = (one(READ, 'inbuf', 'insize', 'call.byte'),
             one(WRITE, 'outbuf', 'outcount', 'datatype'))
# packed bytes of a message: the CPU moves them
PACKING_HOST = (message(READ, 'inbuf', 'incount', 'datatype',
                        'MPI_ANY_SOURCE'), PACKING[1])
UNPACKING_HOST = (UNPACKING[0], message(WRITE, 'outbuf', 'outcount',
                                        'datatype', 'MPI_ANY_SOURCE'))
OTHERS.update({
    'Pack': ('in inbuf, n incount, type datatype, out outbuf, n outsize, '
             'position position, comm comm', '', PACKING_HOST),
    'Unpack': ('in inbuf, n insize, position position, out outbuf, '
               'n outcount, type datatype, comm comm', '', UNPACKING_HOST),
    'Pack_external': (
        'text datarep, in inbuf, n incount, type datatype, out outbuf, '
        'bytes outsize, place position', '', PACKING),
    'Unpack_external': (
        'text datarep, in inbuf, bytes insize, place position, out outbuf, '
        'n outcount, type datatype', '', UNPACKING),
})

# Last statement of a wrapper whose operation goes on after the call
LATER = 'nonblocking_defer(&call, request)'
AGAIN = 'call_again(&call, request)'     # persistent
SPLIT = 'call_split(&call, fh)'          # completed by another call

BUFFERED = 'in buf, n count, type datatype, int dest, int tag, comm comm, ' \
           'request request'
MESSAGES_LATER = {
    'Ibsend': (BUFFERED, (copied(READ, 'buf', 'count', 'datatype'),), LATER),
    'Bsend_init': (BUFFERED, (copied(READ, 'buf', 'count', 'datatype'),),
                   AGAIN),
}
MESSAGES_LATER_4 = {
    'Isendrecv': (EXCHANGE[0] + 'request request', EXCHANGE_LATER, LATER),
    'Isendrecv_replace': (REPLACE[0] + 'request request', REPLACE[1], LATER),
}

# File calls: suffix of the name, argument with the position. Collective are
# _all and _ordered; split operations have a _begin and an _end call.
FILES = {'': '', '_all': '', '_at': 'offset offset, ',
         '_at_all': 'offset offset, ', '_shared': '', '_ordered': ''}
FILES_LATER = {}
for where, offset in FILES.items():
    for name, way, use in (('read', 'out', BOTH), ('write', 'in', READ)):
        args = 'file fh, %s%s buf, n count, type datatype' % (offset, way)
        buffers = (one(use, 'buf', 'count', 'datatype'),)
        OTHERS['File_%s%s' % (name, where)] = (args + ', status status', '',
                                               buffers)
        if where != '_ordered':
            FILES_LATER['File_i%s%s' % (name, where)] = (
                args + ', request request', buffers, LATER)
        if where in ('_all', '_at_all', '_ordered'):
            FILES_LATER['File_%s%s_begin' % (name, where)] = (
                args, buffers, SPLIT)

# One-sided calls: arguments, buffers and the window's operation
ORIGIN = '%s origin_addr, n origin_count, type origin_datatype, '
RESULT = 'out result_addr, n result_count, type result_datatype, '
TARGET = 'int target_rank, at target_disp, n target_count, type target_datatype, '
FETCHED = 'out result_addr, type datatype, int target_rank, at target_disp, '
# An operation may write less than its result buffer, or nothing
FETCHES = (one(READ, 'origin_addr', '1', 'datatype'),
           one(BOTH, 'result_addr', '1', 'datatype'))
WINDOWS = {
    'Fetch_and_op': ('in origin_addr, ' + FETCHED + 'op op, win win',
                     FETCHES, 'FETCH'),
    'Compare_and_swap': (
        'in origin_addr, in compare_addr, ' + FETCHED + 'win win',
        FETCHES + (one(READ, 'compare_addr', '1', 'datatype'),), 'SWAP'),
}
for name, args, uses, kind in (
        ('Put', ORIGIN % 'in' + TARGET, (READ,), 'PUT'),
        ('Get', ORIGIN % 'out' + TARGET, (BOTH,), 'GET'),
        ('Accumulate', ORIGIN % 'in' + TARGET + 'op op, ', (READ,),
         'ACCUMULATE'),
        ('Get_accumulate', ORIGIN % 'in' + RESULT + TARGET + 'op op, ',
         (READ, BOTH), 'GET_ACCUMULATE')):
    buffers = tuple(one(use, *(which + '_' + word for word in (
        'addr', 'count', 'datatype')))
        for use, which in zip(uses, ('origin', 'result')))
    WINDOWS[name] = (args + 'win win', buffers, kind)
    WINDOWS['R' + name.lower()] = (args + 'win win, request request', buffers,
                                   kind)
WINDOW_ENDS = {'Rput': LATER, 'Raccumulate': LATER,
               'Rget': 'window_complete(&call, win, target_rank, request)',
               'Rget_accumulate': 'window_complete(&call, win, target_rank, request)'}
ATTACHING = {'Win_attach': 'win win, out base, at size'}
SMALL_ONLY = ('Win_attach', 'Fetch_and_op', 'Compare_and_swap',
              'Psend_init', 'Precv_init')

# Messages, staged unless their datatype is predefined: last statement of the
# wrapper, last arguments
ENDS = {'': ('call_end(&call)', ''), 'I': (LATER, ', request request'),
        '_init': (AGAIN, ', request request')}
PLAIN = '%s buf, n count, type datatype, int %s, int tag, comm comm'
MESSAGES = {}
for mode in ('Send', 'Ssend', 'Rsend'):
    for form, (end, rest) in ENDS.items():
        name = 'I' + mode.lower() if form == 'I' else mode + form
        MESSAGES[name] = (PLAIN % ('in', 'dest') + rest, end,
                          message(READ, 'buf', 'count', 'datatype', 'dest'))
for form, (end, rest) in ENDS.items():
    name = 'Irecv' if form == 'I' else 'Recv' + form
    MESSAGES[name] = (PLAIN % ('out', 'source') +
                      (rest or ', status status'), end,
                      message(ARRIVE, 'buf', 'count', 'datatype', 'source'))
MATCHED = message(ARRIVE, 'buf', 'count', 'datatype',
                  'ucx_mp_mpi_message_peer(message)')
MESSAGES['Mrecv'] = ('out buf, n count, type datatype, message message, '
                     'status status', 'call_end(&call)', MATCHED)
MESSAGES['Imrecv'] = ('out buf, n count, type datatype, message message, '
                      'request request', LATER, MATCHED)
# Partitioned messages: MPICH moves them with the CPU, so they are refused;
# Open MPI packs those with gaps with the CPU, and leaves others to UCX
PARTITIONED = {
    name: '%s buf, int partitions, large count, type datatype, int %s, int tag, '
          'comm comm, info info, request request' % ends
    for name, ends in (('Psend_init', ('in', 'dest')),
                       ('Precv_init', ('out', 'source')))
}
# Calls of MPI 4.1 that ask for the status of several requests, wrapped in
# nonblocking.c; Open MPI 5 lacks them
ASKING = {
    'Request_get_status_' + name: 'int count, requests requests, ' + rest
    for name, rest in (
        ('all', 'result flag, status statuses'),
        ('any', 'result index, result flag, status status'),
        ('some', 'result done, result indices, status statuses'))
}

# Calls of MPI 4.1 that attach memory for MPI_Bsend(), wrapped in attached.c;
# Open MPI 5 lacks them
ATTACHED = {
    '%s_%s_buffer' % (of, what): '%s %s, out buffer, %s size' % (
        of.lower(), of.lower(), kind)
    for of in ('Comm', 'Session')
    for what, kind in (('attach', 'n'), ('detach', 'position'))
}

# Calls with wrappers in C, and those of them with an MPI_..._c form, too
WRAPPED_IN_C = """
    Barrier Buffer_attach Buffer_detach
    Cart_create Cart_sub Comm_create Comm_create_group Comm_dup
    Comm_dup_with_info Comm_idup Comm_split Comm_split_type Dist_graph_create
    Dist_graph_create_adjacent Graph_create Intercomm_merge
    Error_class Init Init_thread
    File_read_all_end File_read_at_all_end File_read_ordered_end
    File_write_all_end File_write_at_all_end File_write_ordered_end
    Request_free Request_get_status Start Startall Test Testall Testany
    Testsome Type_commit Type_free Wait Waitall Waitany Waitsome
    Win_allocate Win_complete Win_create Win_fence Win_flush Win_flush_all
    Win_flush_local Win_flush_local_all Win_free Win_get_attr Win_lock
    Win_lock_all Win_post Win_start Win_sync Win_test Win_unlock
    Win_unlock_all Win_wait
""".split()
WRAPPED_LARGE = 'Buffer_attach Buffer_detach Win_allocate Win_create'.split()

# Functions called but not wrapped; the library is off if the MPI lacks one
HELPERS = """
    Add_error_class Add_error_code Add_error_string Cartdim_get
    Comm_call_errhandler Comm_create_keyval Comm_free Comm_get_attr
    Comm_get_errhandler Comm_group Comm_rank Comm_remote_size Comm_set_attr
    Comm_set_errhandler Comm_size Comm_test_inter Dist_graph_neighbors_count
    Errhandler_free File_get_view Get_elements_x
    Get_library_version Graph_neighbors_count Grequest_complete Grequest_start
    Group_free Group_size Group_translate_ranks Info_get Iprobe Pack_size
    Query_thread Status_set_cancelled Status_set_elements Test_cancelled
    Topo_test Type_contiguous Type_create_hindexed
    Type_create_hvector Type_create_keyval Type_create_resized
    Type_create_struct Type_delete_attr Type_get_attr Type_get_contents
    Type_get_envelope Type_get_extent_x Type_get_true_extent_x Type_set_attr
    Type_size_x Win_call_errhandler Win_get_group
""".split()
# The same of MPI 4: NULL if the MPI lacks them
EXTRAS = ['Type_get_contents_c', 'Type_get_envelope_c']


class Call:
    """A wrapper."""

    def __init__(self, name, arguments, kind='', buffers=(), refused=False,
                 peer=None, end='call_end(&call)', counted=False,
                 window=None):
        self.name = name
        self.kind = kind
        self.buffers = buffers
        self.refused = refused
        self.end = end
        self.counted = counted  # a collective: increments the state's number
        self.peer = peer        # messages: argument with the other rank
        self.window = window    # one-sided calls: ucx_mp_mpi_rma_kind_t
        self.arguments = [item.split() for item in arguments.split(', ')]
        self.is_started = name in STARTED_ON_GPUS
        self.on_gpus = ON_GPUS.get(name) or STARTED_ON_GPUS.get(name)
        self.persistent = PERSISTENT_ON_GPUS.get(name)

    def words(self):
        return ', '.join(name for _, name in self.arguments)

    def pointers(self, what):
        """Return a condition on all buffers; function `what` takes two."""
        found = [name for kind, name in self.arguments
                 if kind in ('in', 'out')]
        found += found[-1:] * (len(found) % 2)
        return ' || '.join('%s(%s, %s)' % (what, found[i], found[i + 1])
                          for i in range(0, len(found), 2))

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
            ('REDUCES', self.is_reduction_later())) if has]
        return ' | '.join('UCX_MP_MPI_' + flag for flag in found) or '0'

    def is_reduction_later(self):
        """Return whether this is a non-blocking or persistent reduction."""
        return self.counted and self.of('op') and self.of('request')

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
        return self.counted or self.of('status') and any(
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
        if not self.refused:
            print('    ucx_mp_mpi_call_t call;')
        if self.arrives():
            print('    MPI_Status own;')
        if self.on_gpus:
            print('    const bool may_be_gpu = ucx_mp_mpi_may_be_gpu();')
        if self.counted:
            print('    ucx_mp_mpi_comm_t *state = ucx_mp_mpi_comm_next%s(comm);'
                  % ('_neighbors' if self.kind == 'neighbors' else ''))
        if self.persistent:
            self.write_persistent(name)
        if not self.refused:
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
        elif self.refused:
            condition = '!ucx_mp_mpi_may_be_gpu() || !(%s)' % (
                self.pointers('ucx_mp_mpi_pointers_are_gpu'))
            if self.name in PARTITIONED:
                condition += (
                    ' ||\n        ucx_mp_mpi_message_has_parts(%s, datatype)'
                    % ('dest' if 'dest' in self.words() else 'source'))
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
        if self.refused:
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
        if not self.counted:
            return rc
        if self.is_started:
            return 'ucx_mp_mpi_comm_end_reduction(state, comm, %s)' % rc
        return 'ucx_mp_mpi_comm_end(state, comm, %s, %s)' % (
            rc, is_made if self.on_gpus else 'false')

    def pass_through(self, name, real):
        """Return the MPI's call without staging. A blocking collective then
        checks for failures that other ranks reported."""
        real = self.ended(real)
        if self.counted and self.end == 'call_end(&call)':
            real = ('ucx_mp_mpi_failure_end(\n                '
                    'ucx_mp_mpi_comm_ordinal(state), "MPI_%s", comm,\n'
                    '                %s)' % (name, real))
        return self.finish(real)

    def finish(self, rc):
        """Return the last statement of a wrapper with this result. A call that
        waits for other ranks then finishes freed requests."""
        if self.end == 'call_end(&call)' and self.waits():
            return 'ucx_mp_mpi_freed_end(%s)' % rc
        return self.begin(rc)

    @staticmethod
    def passing(kind, reason):
        return ('ucx_mp_mpi_collective_fall_back(state, comm, '
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
        print('    ucx_mp_mpi_%s_begin(&call, "MPI_%s", %s, %s);'
              % ('message' if self.peer else 'call', name, self.comm(),
                 self.flags()))
        if self.end == LATER and 'recvtag' in self.words():
            print('    call.is_message = true;')
        if self.counted:
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
        if self.counted:
            # all ranks count a call that fails in staging
            print('    (void)%s;' % self.ended(
                '(call.rc == call.failed) ? MPI_SUCCESS : call.rc',
                '(call.rc == MPI_SUCCESS) || (call.rc != call.failed)'))
        print('    return %s;' % self.finish('ucx_mp_mpi_' + self.end))


def calls():
    """Return the calls of MPI 3, those new in MPI 4, and those that only
    MPICH's libraries wrap."""
    third, fourth = [], []
    for name, (arguments, kind, buffers) in COLLECTIVES.items():
        third.append(Call(name, arguments + 'comm comm', kind, buffers,
                          counted=True))
        third.append(Call('I' + name.lower(),
                          arguments + 'comm comm, request request', kind,
                          buffers, end=LATER, counted=True))
        fourth.append(Call(name + '_init', arguments +
                           'comm comm, info info, request request', kind,
                           buffers, end=AGAIN, counted=True))
    for name, (arguments, kind, buffers) in OTHERS.items():
        third.append(Call(name, arguments, kind, buffers))
    for where, found in ((third, {**FILES_LATER, **MESSAGES_LATER}),
                         (fourth, MESSAGES_LATER_4)):
        where += [Call(name, arguments, '', buffers, end=end)
                  for name, (arguments, buffers, end) in found.items()]
    third += [Call(name, arguments, '', buffers, window=kind,
                   end=WINDOW_ENDS.get(
                       name, 'window_defer(&call, win, target_rank)'))
              for name, (arguments, buffers, kind) in WINDOWS.items()]
    third += [Call(name, arguments, refused=True)
              for name, arguments in ATTACHING.items()]
    third += [Call(name, arguments, '', (buffer,), end=end,
                   peer=buffer[2][1])
              for name, (arguments, end, buffer) in MESSAGES.items()]
    fourth += [Call(name, arguments, refused=True)
               for name, arguments in PARTITIONED.items()]
    return third, fourth


def write_list(name, items):
    print('#define %s(_) \\' % name)
    print(' \\\n'.join('    _(%s)' % item for item in items) + '\n')


def write_lists(third, fourth):
    has_large = [call for call in third + fourth
                 if call.name not in SMALL_ONLY]
    print('#ifdef UCX_MP_MPI_ABI')
    for call in third + fourth:
        call.declare()
    for call in has_large:
        call.declare(True)
    print('#elif MPI_VERSION < 4')
    for call in fourth:
        call.declare()
    print('#endif\n')
    write_list('UCX_MP_MPI_HELPERS', HELPERS)
    write_list('UCX_MP_MPI_SMALL', [call.name for call in third + fourth] +
               WRAPPED_IN_C)
    print('#if MPI_VERSION >= 4')
    write_list('UCX_MP_MPI_LARGE', [name + '_c' for name in [
        call.name for call in has_large] + WRAPPED_LARGE])
    write_list('UCX_MP_MPI_EXTRAS', EXTRAS)
    print('#else\n#define UCX_MP_MPI_LARGE(_)\n'
          '#define UCX_MP_MPI_EXTRAS(_)\n#endif\n')
    print('#ifndef OPEN_MPI')
    for name, arguments in ASKING.items():
        Call(name, arguments).declare()
    print('#if MPI_VERSION >= 4')
    for name, arguments in ATTACHED.items():
        Call(name, arguments).declare()
        Call(name, arguments).declare(True)
    write_list('UCX_MP_MPI_ATTACHED',
               [name + end for name in ATTACHED for end in ('', '_c')])
    print('#else\n#define UCX_MP_MPI_ATTACHED(_)\n#endif\n')
    write_list('UCX_MP_MPI_ASKING', ASKING)
    write_list('UCX_MP_MPI_OF_MPICH',
               ['Comm_create_errhandler', 'Improbe', 'Mprobe',
                'Win_create_errhandler'])
    print('#else\n#define UCX_MP_MPI_ASKING(_)\n'
          '#define UCX_MP_MPI_ATTACHED(_)\n'
          '#define UCX_MP_MPI_OF_MPICH(_)\n#endif\n')
    print('#define UCX_MP_MPI_WRAPPED(_) \\\n'
          '    UCX_MP_MPI_SMALL(_) UCX_MP_MPI_LARGE(_) UCX_MP_MPI_ASKING(_) \\\n'
          '    UCX_MP_MPI_ATTACHED(_) UCX_MP_MPI_OF_MPICH(_)')


def write_wrappers(third, fourth):
    for call in third + fourth:
        call.write(False)
    print('\n#if MPI_VERSION >= 4')
    for call in third + fourth:
        if call.name not in SMALL_ONLY:
            call.write(True)
    print('#endif')


def write_map(fourth):
    """Hide the calls of MPI 4 from programs whose MPI lacks them: mpi4py, for
    one, tests for them with weak symbols."""
    print('{\n    local:')
    for prefix in ('', 'P'):
        # a pattern without a match is allowed
        print('        %sMPI_*_c;' % prefix)
        for name in [call.name for call in fourth] + [*ASKING,
                                                      *ATTACHED]:
            print('        %sMPI_%s*;' % (prefix, name))
    print('};')


def main(what):
    print('/* SPDX-License-Identifier: BSD-3-Clause */')
    print('/* Made by generate.py. */')
    if what == 'mpi3.map':
        write_map(calls()[1])
        return
    if what == 'calls.h':
        print('#include <mpi.h>')
        write_lists(*calls())
        return
    print('#include <mpi/call.h>\n'
          '#include <mpi/collective.h>\n#include <mpi/nonblocking.h>\n#include <mpi/message.h>\n'
          '#include <mpi/window.h>')
    write_wrappers(*calls())


if __name__ == '__main__':
    main(sys.argv[1])
