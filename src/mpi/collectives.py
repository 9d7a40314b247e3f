# SPDX-License-Identifier: BSD-3-Clause
"""MPI's collectives for generate.py: arguments, buffers, and the collectives that
GPUs carry out. Arguments are "kind name" (KINDS in generate.py). A buffer is made
by one of the functions below; "call" is the ucx_mp_mpi_call_t.
"""

READ, WRITE, BOTH = ('UCX_MP_MPI_READ', 'UCX_MP_MPI_WRITE',
                     'UCX_MP_MPI_READ | UCX_MP_MPI_WRITE')
ARRIVE = WRITE + ' | UCX_MP_MPI_RECEIVE'


def one(use, name, count, datatype, when=None):
    return when, 'buffer', (use, '&' + name, count, '&' + datatype)


def message(use, name, count, datatype, peer):
    return None, 'message', (use, peer, '&' + name, '&' + count,
                             'sizeof(%s)' % count, '&' + datatype)


def copied(use, name, count, datatype):
    """Return a buffer whose data the MPI copies itself."""
    return None, 'copied', (use, '&' + name, '&' + count,
                            'sizeof(%s)' % count, '&' + datatype)


def blocks(use, name, ranks, counts, displs, datatype, when=None):
    """Return a buffer of one block per rank, of one datatype or of several."""
    parts = {'ranks': 'call.' + ranks,
             'counts': 'UCX_MP_MPI_VECTOR(%s)' % counts,
             'displs': 'UCX_MP_MPI_VECTOR(%s)' % displs,
             'types_p' if datatype.endswith('types') else 'type_p':
             '&' + datatype}
    return when, 'blocks', (use, '&' + name, '(ucx_mp_mpi_parts_t){%s}' % (
        ', '.join('.%s = %s' % part for part in parts.items())))


def each(count, ranks):
    return '(MPI_Count)%s * call.%s' % (count, ranks)


def total(counts):
    return 'ucx_mp_mpi_sum(UCX_MP_MPI_VECTOR(%s), call.local)' % counts


SEND = 'in sendbuf, n sendcount, type sendtype, '
SENDS = 'in sendbuf, ns sendcounts, ds sdispls, type sendtype, '
SENDW = 'in sendbuf, ns sendcounts, %s sdispls, types sendtypes, '
RECV = 'out recvbuf, n recvcount, type recvtype, '
RECVS = 'out recvbuf, ns recvcounts, ds displs, type recvtype, '
RECVR = 'out recvbuf, ns recvcounts, ds rdispls, type recvtype, '
RECVW = 'out recvbuf, ns recvcounts, %s rdispls, types recvtypes, '
REDUCE = 'in sendbuf, out recvbuf, n count, type datatype, op op, '

SENDING = one(READ, 'sendbuf', 'sendcount', 'sendtype')
RECEIVING = one(WRITE, 'recvbuf', 'recvcount', 'recvtype')
REDUCING = (one(READ, 'sendbuf', 'count', 'datatype'),
            one(WRITE, 'recvbuf', 'count', 'datatype'))


def all_to_all(write):
    """Return the calls for all ranks, and for neighbours: a rank may have none,
    so `write` then keeps the old bytes."""
    sent = one(READ, 'sendbuf', each('sendcount', 'targets'), 'sendtype')
    got = one(write, 'recvbuf', each('recvcount', 'sources'), 'recvtype')
    gather = blocks(write, 'recvbuf', 'sources', 'recvcounts',
                   'displs', 'recvtype')
    return {
        'allgather': (SEND + RECV, (SENDING, got)),
        'allgatherv': (SEND + RECVS, (SENDING, gather)),
        'alltoall': (SEND + RECV, (sent, got)),
        'alltoallv': (SENDS + RECVR, (
            blocks(READ, 'sendbuf', 'targets', 'sendcounts',
                  'sdispls', 'sendtype'),
            blocks(write, 'recvbuf', 'sources', 'recvcounts',
                  'rdispls', 'recvtype'))),
        'alltoallw': (SENDW + RECVW, (
            blocks(READ, 'sendbuf', 'targets', 'sendcounts',
                  'sdispls', 'sendtypes'),
            blocks(write, 'recvbuf', 'sources', 'recvcounts',
                  'rdispls', 'recvtypes'))),
    }


# name: arguments before the communicator, property of the call, buffers
COLLECTIVES = {
    'Bcast': ('out buffer, n count, type datatype, int root, ', 'root',
              (one(READ, 'buffer', 'count', 'datatype', 'call.is_root'),
               one(WRITE, 'buffer', 'count', 'datatype',
                   'call.is_member && !call.is_root'))),
    'Reduce': (REDUCE + 'int root, ', 'root',
               (one(READ, 'sendbuf', 'count', 'datatype', 'call.is_member'),
                one(WRITE, 'recvbuf', 'count', 'datatype', 'call.is_root'))),
    'Allreduce': (REDUCE, '', REDUCING),
    'Scan': (REDUCE, '', REDUCING),
    # does not write the first rank's result
    'Exscan': (REDUCE, '',
               (REDUCING[0], one(BOTH, 'recvbuf', 'count', 'datatype'))),
    'Reduce_scatter': (
        'in sendbuf, out recvbuf, ns recvcounts, type datatype, op op, ',
        '', (one(READ, 'sendbuf', total('recvcounts'), 'datatype'),
             one(WRITE, 'recvbuf', 'call.is_in_place ? %s : '
                 'ucx_mp_mpi_vector_at(UCX_MP_MPI_VECTOR(recvcounts), call.rank)'
                 % total('recvcounts'), 'datatype'))),
    'Reduce_scatter_block': (
        'in sendbuf, out recvbuf, n recvcount, type datatype, op op, ', '',
        (one(READ, 'sendbuf', each('recvcount', 'local'), 'datatype'),
         one(WRITE, 'recvbuf', 'call.is_in_place ? %s : recvcount'
             % each('recvcount', 'local'), 'datatype'))),
    'Gather': (SEND + RECV + 'int root, ', 'root',
               (one(READ, 'sendbuf', 'sendcount', 'sendtype',
                    'call.is_member'),
                one(WRITE, 'recvbuf', each('recvcount', 'sources'),
                    'recvtype', 'call.is_root'))),
    'Gatherv': (SEND + RECVS + 'int root, ', 'root',
                (one(READ, 'sendbuf', 'sendcount', 'sendtype',
                     'call.is_member'),
                 blocks(WRITE, 'recvbuf', 'sources', 'recvcounts',
                       'displs', 'recvtype', 'call.is_root'))),
    'Scatter': (SEND + RECV + 'int root, ', 'root',
                (one(READ, 'sendbuf', each('sendcount', 'targets'),
                     'sendtype', 'call.is_root'),
                 one(WRITE, 'recvbuf', 'recvcount', 'recvtype',
                     'call.is_member'))),
    'Scatterv': ('in sendbuf, ns sendcounts, ds displs, type sendtype, ' +
                 RECV + 'int root, ', 'root',
                 (blocks(READ, 'sendbuf', 'targets', 'sendcounts',
                        'displs', 'sendtype', 'call.is_root'),
                  one(WRITE, 'recvbuf', 'recvcount', 'recvtype',
                      'call.is_member'))),
}
for name, (args, buffers) in all_to_all(WRITE).items():
    COLLECTIVES[name.capitalize()] = (
        args % (('ds', ) * args.count('%s')), '', buffers)
for name, (args, buffers) in all_to_all(BOTH).items():
    COLLECTIVES['Neighbor_' + name] = (
        args % (('as', ) * args.count('%s')), 'neighbors', buffers)

# collectives to try on GPUs first: uct_cuda_coll_kind_t, and arguments of
# ucx_mp_mpi_collective_t as "field" or "field=argument"
REDUCED = 'sendbuf recvbuf count datatype op '
MOVED = 'sendbuf recvbuf count=sendcount datatype=sendtype recvcount recvtype '
ON_GPUS = {
    'Allreduce': ('ALLREDUCE', REDUCED),
    'Reduce': ('REDUCE', REDUCED + 'root'),
    'Reduce_scatter': (
        'REDUCE_SCATTER', 'sendbuf recvbuf datatype op counts=recvcounts'),
    'Reduce_scatter_block': (
        'REDUCE_SCATTER', 'sendbuf recvbuf count=recvcount datatype op'),
    'Bcast': ('BCAST', 'recvbuf=buffer count datatype root'),
    'Allgather': ('ALLGATHER', MOVED),
    'Allgatherv': (
        'ALLGATHER', 'sendbuf recvbuf count=sendcount datatype=sendtype '
        'counts=recvcounts displs recvtype'),
    'Gather': ('GATHER', MOVED + 'root'),
    'Scatter': ('SCATTER', MOVED + 'root'),
    'Alltoall': ('ALLTOALL', MOVED),
}

# non-blocking ones that the module may start: the same arguments
REDUCTIONS = ('Allreduce', 'Reduce', 'Reduce_scatter', 'Reduce_scatter_block')
STARTED_ON_GPUS = {'I' + name.lower(): ON_GPUS[name] for name in REDUCTIONS}
# persistent ones, whose starts are non-blocking ones
PERSISTENT_ON_GPUS = {name + '_init': ON_GPUS[name] for name in REDUCTIONS}
