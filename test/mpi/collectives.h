/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Parts of ucx_mp_collectives.c: datatypes with known bytes, and calls
 * described so that any of them can be drawn and made.
 */
#ifndef UCX_MP_TEST_COLLECTIVES_H_
#define UCX_MP_TEST_COLLECTIVES_H_

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COLL_MAX_RANKS  64
#define COLL_MAX_BLOCKS 8

/* A predefined datatype: `size` bytes from one to the next */
typedef enum {
    COLL_INTEGER,
    COLL_REAL,
    COLL_LOGICAL,
    COLL_PAIR /* a value and an int, with gaps */
} coll_class_t;

typedef struct {
    const char   *name;
    MPI_Datatype mpi;
    size_t       size;
    coll_class_t class;
    size_t       value; /* bytes of a pair's value; its int ends the pair */
} coll_base_t;

/* A datatype of `base` elements; all numbers count base elements */
typedef struct {
    const coll_base_t *base;
    MPI_Datatype      mpi;
    bool              is_derived;
    int               blocks;
    int               offset[COLL_MAX_BLOCKS];
    int               length[COLL_MAX_BLOCKS];
    int               elements;  /* in all blocks */
    int               low, high; /* bytes of one element, [low, high) */
    int               extent;
    int               max_count; /* more would overlap; 0: any number */
} coll_type_t;

/* Data that one rank sends, or room to receive into: `parts` pieces */
typedef struct {
    bool               is_used; /* the argument is significant */
    bool               is_in_place;
    int                parts;
    const coll_type_t  *type[COLL_MAX_RANKS];
    int                count[COLL_MAX_RANKS];
    int                displ[COLL_MAX_RANKS]; /* in base elements */
    int                low, high;             /* bytes of all parts, [low,
                                                 high) */
} coll_side_t;

typedef enum {
    COLL_NONE,
    COLL_ONE,    /* (count, type) */
    COLL_EACH,   /* the same for every rank */
    COLL_VECTOR, /* counts and displacements */
    COLL_TYPES   /* types as well */
} coll_shape_t;

typedef enum {
    COLL_ALL,
    COLL_TO_ROOT,
    COLL_FROM_ROOT
} coll_flow_t;

typedef struct coll_draw coll_draw_t;

/* Forms of a call; not every call, nor every MPI, has all of them */
typedef enum {
    COLL_NOW,
    COLL_LARGE, /* large counts */
    COLL_LATER, /* MPI_I...: completes with its request */
    COLL_LARGE_LATER,
    COLL_FORM_LAST
} coll_form_t;

typedef int (*coll_function_t)(const coll_draw_t *draw, const void *send,
                               void *recv, MPI_Request *request);

typedef struct {
    const char   *name;
    bool         reduces;
    bool         is_neighbor;
    bool         has_in_place;
    bool         has_inter;
    bool         has_plan; /* the GPUs may run it */
    coll_flow_t  flow;
    coll_shape_t send, recv;
    coll_function_t forms[COLL_FORM_LAST]; /* NULL: not available */
} coll_call_t;

extern const coll_call_t coll_calls[];
extern const int coll_num_calls;

/* A call that was drawn, with this rank's part */
struct coll_draw {
    const coll_call_t *call;
    MPI_Comm          comm;
    int               root;
    int               dest, source; /* ranks of MPI_Sendrecv */
    MPI_Op            op;
    bool              is_own; /* a user-defined reduction */
    coll_side_t       send, recv;
    int               counts[COLL_MAX_RANKS]; /* counts of MPI_Reduce_scatter */
    int               result; /* elements of a reduction's result here */
};

extern const coll_base_t coll_bases[];
extern const int coll_num_bases;

/* Make a derived datatype of this base, or the base itself; the caller frees
   it. Of `kinds`, up to COLL_TYPE_KINDS, the first three neither begin before
   their origin nor interleave. */
#define COLL_TYPE_KINDS        7
#define COLL_TYPE_KINDS_PLAIN  3
void coll_type_draw(coll_type_t *type, const coll_base_t *base, int kinds,
                    uint64_t *state);
void coll_type_base(coll_type_t *type, const coll_base_t *base);
void coll_type_free(coll_type_t *type);

/* Make the same type again with each block moved by so many bytes. */
void coll_type_scatter(coll_type_t *twin, const coll_type_t *type,
                       const ptrdiff_t *places);

/* Fill `count` base elements with values for which overflow in reductions does
   not depend on their order. Gaps are filled, too. */
void coll_base_fill(const coll_base_t *base, void *buffer, size_t count,
                    uint64_t *state);

/* Set the bytes covered by the side to their block's value, NULL: 1; `mask`
   begins at its lowest. */
void coll_side_cover(const coll_side_t *side, const coll_base_t *base,
                     const uint8_t *values, uint8_t *mask);

/* Return a user-defined non-commutative reduction for a type. */
MPI_Op coll_op_own(const coll_type_t *type);

/* Draw a predefined reduction for a base. */
MPI_Op coll_op_draw(const coll_base_t *base, uint64_t *state);

#endif
