# SPDX-License-Identifier: BSD-3-Clause
"""MPI's functions that this library calls, or wraps in C, for generate.py. Each
line has a function's name and its arguments' types, MPI's own without MPI_.
generate.py declares the functions for the standard's ABI, and lists them for
pmpi.h.
"""

import re


def functions(text):
    """Return the C types of each function's arguments, by its name."""
    rows = (row.split(':') for row in
            text.strip().replace(',\n', ',').split('\n'))
    return {name.strip(): re.sub(r'\b([A-Z])', r'MPI_\1', ' '.join(types.split()))
            for name, types in rows}


# Called, not wrapped; the library is off if the MPI lacks one
HELPERS = functions("""
    Add_error_class: int*
    Add_error_code: int, int*
    Add_error_string: int, const char*
    Cartdim_get: Comm, int*
    Comm_call_errhandler: Comm, int
    Comm_create_keyval: Comm_copy_attr_function*, Comm_delete_attr_function*,
        int*, void*
    Comm_free: Comm*
    Comm_get_attr: Comm, int, void*, int*
    Comm_get_errhandler: Comm, Errhandler*
    Comm_group: Comm, Group*
    Comm_rank: Comm, int*
    Comm_remote_size: Comm, int*
    Comm_set_attr: Comm, int, void*
    Comm_set_errhandler: Comm, Errhandler
    Comm_size: Comm, int*
    Comm_test_inter: Comm, int*
    Dist_graph_neighbors_count: Comm, int*, int*, int*
    Errhandler_free: Errhandler*
    File_get_view: File, Offset*, Datatype*, Datatype*, char*
    Get_elements_x: const Status*, Datatype, Count*
    Get_library_version: char*, int*
    Graph_neighbors_count: Comm, int, int*
    Grequest_complete: Request
    Grequest_start: Grequest_query_function*, Grequest_free_function*,
        Grequest_cancel_function*, void*, Request*
    Group_free: Group*
    Group_size: Group, int*
    Group_translate_ranks: Group, int, const int*, Group, int*
    Info_get: Info, const char*, int, char*, int*
    Iprobe: int, int, Comm, int*, Status*
    Pack_size: int, Datatype, Comm, int*
    Query_thread: int*
    Status_set_cancelled: Status*, int
    Status_set_elements: Status*, Datatype, int
    Test_cancelled: const Status*, int*
    Topo_test: Comm, int*
    Type_contiguous: int, Datatype, Datatype*
    Type_create_hindexed: int, const int*, const Aint*, Datatype, Datatype*
    Type_create_hvector: int, int, Aint, Datatype, Datatype*
    Type_create_keyval: Type_copy_attr_function*, Type_delete_attr_function*,
        int*, void*
    Type_create_resized: Datatype, Aint, Aint, Datatype*
    Type_create_struct: int, const int*, const Aint*, const Datatype*, Datatype*
    Type_delete_attr: Datatype, int
    Type_get_attr: Datatype, int, void*, int*
    Type_get_contents: Datatype, int, int, int, int*, Aint*, Datatype*
    Type_get_envelope: Datatype, int*, int*, int*, int*
    Type_get_extent_x: Datatype, Count*, Count*
    Type_get_true_extent_x: Datatype, Count*, Count*
    Type_set_attr: Datatype, int, void*
    Type_size_x: Datatype, Count*
    Win_call_errhandler: Win, int
    Win_get_group: Win, Group*
""")

# The same of MPI 4: NULL if the MPI lacks them
EXTRAS = functions("""
    Type_get_contents_c: Datatype, Count, Count, Count, Count, int*, Aint*,
        Count*, Datatype*
    Type_get_envelope_c: Datatype, Count*, Count*, Count*, Count*, int*
""")

# Make a communicator, the last argument, from ranks of the first one
MAKERS = functions("""
    Cart_create: Comm, int, const int*, const int*, int, Comm*
    Cart_sub: Comm, const int*, Comm*
    Comm_create: Comm, Group, Comm*
    Comm_create_group: Comm, Group, int, Comm*
    Comm_dup: Comm, Comm*
    Comm_dup_with_info: Comm, Info, Comm*
    Comm_split: Comm, int, int, Comm*
    Comm_split_type: Comm, int, int, Info, Comm*
    Dist_graph_create: Comm, int, const int*, const int*, const int*,
        const int*, Info, int, Comm*
    Dist_graph_create_adjacent: Comm, int, const int*, const int*, int,
        const int*, const int*, Info, int, Comm*
    Graph_create: Comm, int, const int*, const int*, int, Comm*
    Intercomm_merge: Comm, int, Comm*
""")

# With wrappers in C
WRAPPED_IN_C = functions("""
    Barrier: Comm
    Buffer_attach: void*, int
    Buffer_detach: void*, int*
    Comm_idup: Comm, Comm*, Request*
    Error_class: int, int*
    File_read_all_end: File, void*, Status*
    File_read_at_all_end: File, void*, Status*
    File_read_ordered_end: File, void*, Status*
    File_write_all_end: File, const void*, Status*
    File_write_at_all_end: File, const void*, Status*
    File_write_ordered_end: File, const void*, Status*
    Init: int*, char***
    Init_thread: int*, char***, int, int*
    Request_free: Request*
    Request_get_status: Request, int*, Status*
    Start: Request*
    Startall: int, Request*
    Test: Request*, int*, Status*
    Testall: int, Request*, int*, Status*
    Testany: int, Request*, int*, int*, Status*
    Testsome: int, Request*, int*, int*, Status*
    Type_commit: Datatype*
    Type_free: Datatype*
    Wait: Request*, Status*
    Waitall: int, Request*, Status*
    Waitany: int, Request*, int*, Status*
    Waitsome: int, Request*, int*, int*, Status*
    Win_allocate: Aint, int, Info, Comm, void*, Win*
    Win_complete: Win
    Win_create: void*, Aint, int, Info, Comm, Win*
    Win_fence: int, Win
    Win_flush: int, Win
    Win_flush_all: Win
    Win_flush_local: int, Win
    Win_flush_local_all: Win
    Win_free: Win*
    Win_get_attr: Win, int, void*, int*
    Win_lock: int, int, int, Win
    Win_lock_all: int, Win
    Win_post: Group, int, Win
    Win_start: Group, int, Win
    Win_sync: Win
    Win_test: Win, int*
    Win_unlock: int, Win
    Win_unlock_all: Win
    Win_wait: Win
""")
WRAPPED_LARGE = functions("""
    Buffer_attach_c: void*, Count
    Buffer_detach_c: void*, Count*
    Win_allocate_c: Aint, Aint, Info, Comm, void*, Win*
    Win_create_c: void*, Aint, Aint, Info, Comm, Win*
""")

# Wrapped for MPICH alone
WRAPPED_OF_MPICH = functions("""
    Comm_create_errhandler: Comm_errhandler_function*, Errhandler*
    Improbe: int, int, Comm, int*, Message*, Status*
    Mprobe: int, int, Comm, Message*, Status*
    Win_create_errhandler: Win_errhandler_function*, Errhandler*
""")
# Of MPI 4.1: NULL if the MPI lacks them; Open MPI 5 does
ASKING = functions("""
    Request_get_status_all: int, const Request*, int*, Status*
    Request_get_status_any: int, const Request*, int*, int*, Status*
    Request_get_status_some: int, const Request*, int*, int*, Status*
""")
# The same, with large calls
ATTACHED = functions("""
    Comm_attach_buffer: Comm, void*, int
    Comm_attach_buffer_c: Comm, void*, Count
    Comm_detach_buffer: Comm, void*, int*
    Comm_detach_buffer_c: Comm, void*, Count*
    Session_attach_buffer: Session, void*, int
    Session_attach_buffer_c: Session, void*, Count
    Session_detach_buffer: Session, void*, int*
    Session_detach_buffer_c: Session, void*, Count*
""")
