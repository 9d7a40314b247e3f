/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * One-sided calls on windows in GPU memory, and in memory of several kinds.
 * Every rank draws the operations of all ranks from one sequence of random
 * numbers and applies them to images of all windows. After each epoch it
 * compares its own window, and the memory around it, with its image.
 *
 * A window has a part for each origin, which that rank alone puts to, and
 * words that all ranks change at once: sums of integers and floats, results
 * of fetches, counters behind a lock.
 */
#include "driver.h"
#include "gpu.h"
#include "util.h"

#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_RANKS  16
#define MAX_BLOCKS 512
#define GUARD      256           /* bytes around a window */
#define PART       (96 << 10)    /* bytes of each origin in a window */
#define WORDS      4096          /* that all ranks change */
#define SUMS       ((WORDS - 64) * 8) /* bytes of those that are summed */
#define MAX_SUMS   3900 /* changed by one call */
#define MAX_COMMS  3000 /* more than MPICH has */
#define WORLD      MPI_COMM_WORLD

/* Bytes of one side of an operation, and its arguments */
typedef struct {
    MPI_Datatype base;
    int          unit;              /* bytes of the base type */
    int          kind, a, b, c, gap; /* a * b * c elements */
    int          count;             /* argument of the call */
    int          num_blocks;
    int          offset[MAX_BLOCKS], length[MAX_BLOCKS];
    int          bytes, room;       /* packed, and from first to last */
} shape_t;

typedef struct {
    int     origin, target, at; /* at: offset in the target's window */
    bool    is_get;
    bool    is_request;
    shape_t near, far;
    int     mem;
    int     id;
} op_t;

static uint64_t epochs = 120;
static uint64_t seed   = 1;
static int on_host, is_timed, is_pt2pt, has_threads;
static const char *kinds = "";

static uint64_t state;
static int rank, size, unit;
static size_t bytes;             /* of a window */
static uint8_t *images[MAX_RANKS];
static uint8_t *look;            /* copy of this rank's memory */
static char *memory, *base;      /* allocation, and the window in it */
static ucx_mp_mem_t mem_of[MAX_RANKS];
static bool is_allocated;
static bool has_gpu;             /* the window, on any rank */
static MPI_Win win;
static int keyval, num_deleted;  /* of an attribute of all windows */
static MPI_Group everybody;
static uint64_t wrong, num_puts, num_gets, changes, made;

static const ucx_mp_option_t options[] = {
    UCX_MP_NUMBER("epochs", epochs, 1, 1000000, "N", "synchronised parts"),
    UCX_MP_NUMBER("seed", seed, 0, 1u << 30, "N",
                  "seed of the random numbers"),
    UCX_MP_TEXT("memory", kinds, "LETTERS",
                "memory of each rank's windows, repeated: d (device), h "
                "(host), m (managed), p (pinned); default: drawn at random"),
    UCX_MP_FLAG("host", on_host, "use no GPU memory, to test the MPI alone"),
    UCX_MP_FLAG("pt2pt", is_pt2pt,
                "omit what fails in Open MPI 4's component pt2pt"),
    UCX_MP_FLAG("threads", has_threads,
                "let two threads of rank 0 get, flush and lock instead"),
    UCX_MP_FLAG("speed", is_timed,
                "measure puts from rank 0 to 1 and messages instead"),
    {NULL}
};


static int below(int n)
{
    return (int)ucx_mp_random_below(&state, n);
}

static void fail(const char *what, int id, long at)
{
    if (++wrong <= 5) {
        printf("%s: rank %d: operation %d: %s, at %ld\n", ucx_mp_program, rank,
               id, what, at);
    }
}

static void expect(bool is_right, const char *what)
{
    if (!is_right) {
        fail(what, -1, 0);
    }
}

/* ------------------------------------------------------------------ shapes */

static void shape_block(shape_t *shape, int offset, int length)
{
    shape->offset[shape->num_blocks]   = offset * shape->unit;
    shape->length[shape->num_blocks++] = length * shape->unit;
    shape->bytes                      += length * shape->unit;
    shape->room = (offset + length) * shape->unit > shape->room ?
                          (offset + length) * shape->unit :
                          shape->room;
}

/* `model` has the elements of it all. */
static void shape_draw(shape_t *shape, const shape_t *model)
{
    const int a = model->a, b = model->b, c = model->c;
    int i, j, inner;

    *shape            = *model;
    shape->kind       = below(5);
    shape->gap        = below(4) + (shape->kind == 2);
    shape->num_blocks = 0;
    shape->bytes      = 0;
    shape->room       = 0;
    shape->count      = 1;
    inner             = b * (c + shape->gap);
    switch (shape->kind) {
    case 0:
        shape->count = a * b * c;
        shape_block(shape, 0, a * b * c);
        break;
    case 1: /* vector */
        for (i = 0; i < a; ++i) {
            shape_block(shape, i * (b * c + shape->gap), b * c);
        }
        break;
    case 2: /* indexed, the last block in front */
        for (i = 0; i < a; ++i) {
            j = (i + 1) % a;
            shape_block(shape, j * (b * c + shape->gap) + j % 2, b * c);
        }
        break;
    default: /* vectors of vectors; several elements of a vector */
        shape->count = (shape->kind == 3) ? 1 : a;
        for (i = 0; i < a; ++i) {
            for (j = 0; j < b; ++j) {
                shape_block(shape, i * inner + j * (c + shape->gap), c);
            }
        }
    }
    shape->room += shape->unit; /* kind 2 may begin one later */
}

static MPI_Datatype shape_type(const shape_t *shape)
{
    const int a = shape->a, b = shape->b, c = shape->c, gap = shape->gap;
    const MPI_Aint inner = (MPI_Aint)b * (c + gap) * shape->unit;
    MPI_Datatype type, part;
    int lengths[64], displs[64];
    int i, j;

    switch (shape->kind) {
    case 0:
        return shape->base;
    case 1:
        MPI_Type_vector(a, b * c, b * c + gap, shape->base, &type);
        break;
    case 2:
        for (i = 0; i < a; ++i) {
            j          = (i + 1) % a;
            lengths[i] = b * c;
            displs[i]  = j * (b * c + gap) + j % 2;
        }
        MPI_Type_indexed(a, lengths, displs, shape->base, &type);
        break;
    default:
        MPI_Type_vector(b, c, c + gap, shape->base, &part);
        if (shape->kind == 3) {
            MPI_Type_create_hvector(a, 1, inner, part, &type);
        } else {
            MPI_Type_create_resized(part, 0, inner, &type);
        }
        MPI_Type_free(&part);
    }
    MPI_Type_commit(&type);
    return type;
}

static void shape_free(const shape_t *shape, MPI_Datatype *type)
{
    if (shape->kind != 0) {
        MPI_Type_free(type);
    }
}

/* Copy between packed bytes and a shape's. */
static void shape_copy(const shape_t *shape, uint8_t *place, uint8_t *packed,
                       bool is_back)
{
    int i;

    for (i = 0; i < shape->num_blocks; ++i) {
        if (is_back) {
            memcpy(place + shape->offset[i], packed, shape->length[i]);
        } else {
            memcpy(packed, place + shape->offset[i], shape->length[i]);
        }
        packed += shape->length[i];
    }
}

/* -------------------------------------------------------------- operations */

static void op_draw(op_t *op, int id, int origin, int target, bool is_get)
{
    static const struct {
        int          unit;
        MPI_Datatype mpi;
    } bases[] = {{1, MPI_BYTE}, {2, MPI_SHORT}, {4, MPI_INT}, {8, MPI_DOUBLE}};
    const int i   = below(4);
    shape_t model = {.base = bases[i].mpi, .unit = bases[i].unit};
    int part;

    do {
        model.a = 1 + below(20);
        model.b = 1 + below(8);
        model.c = 1 + below(below(4) ? 16 : 400);
        shape_draw(&op->near, &model);
        shape_draw(&op->far, &model);
    } while (op->far.room > PART - 8);

    part           = is_get ? below(size) : origin;
    op->at         = part * PART + below((PART - op->far.room) / 8) * 8;
    op->id         = id;
    op->origin     = origin;
    op->target     = target;
    op->is_get     = is_get;
    op->is_request = (below(4) == 0);
    op->mem        = on_host ? UCX_MP_MEM_HOST : below(UCX_MP_MEM_LAST);
}

static uint8_t value_of(int id, int i)
{
    return (uint8_t)ucx_mp_hash((uint64_t)id << 32 | (unsigned)i / 8) ^
           (uint8_t)(i * 37);
}

/* What the operation has to leave in the images; every rank. */
static void op_apply(const op_t *op)
{
    uint8_t *packed = malloc(op->far.bytes);
    int i;

    if (!op->is_get) {
        for (i = 0; i < op->far.bytes; ++i) {
            packed[i] = value_of(op->id, i);
        }
        shape_copy(&op->far, images[op->target] + op->at, packed, true);
    }
    free(packed);
}

typedef struct {
    op_t         op;
    char         *buffer;
    MPI_Datatype near, far;
    MPI_Request  request;
} begun_t;

static void op_begin(begun_t *begun, bool may_request)
{
    const op_t *op    = &begun->op;
    const MPI_Aint at = op->at / unit;
    uint8_t *packed   = malloc(op->near.bytes);
    uint8_t *bounce   = malloc(op->near.room);
    bool is_request   = may_request && op->is_request;
    int i;

    begun->buffer  = ucx_mp_mem_alloc(op->mem, op->near.room);
    begun->near    = shape_type(&op->near);
    begun->far     = shape_type(&op->far);
    begun->request = MPI_REQUEST_NULL;
    memset(bounce, 0x5a, op->near.room);
    for (i = 0; i < op->near.bytes; ++i) {
        packed[i] = value_of(op->id, i);
    }
    if (!op->is_get) {
        shape_copy(&op->near, bounce, packed, true);
    }
    ucx_mp_mem_write(op->mem, begun->buffer, bounce, op->near.room);

    if (op->is_get && is_request) {
        MPI_Rget(begun->buffer, op->near.count, begun->near, op->target, at,
                 op->far.count, begun->far, win, &begun->request);
    } else if (op->is_get) {
        MPI_Get(begun->buffer, op->near.count, begun->near, op->target, at,
                op->far.count, begun->far, win);
    } else if (is_request) {
        MPI_Rput(begun->buffer, op->near.count, begun->near, op->target, at,
                 op->far.count, begun->far, win, &begun->request);
    } else {
        MPI_Put(begun->buffer, op->near.count, begun->near, op->target, at,
                op->far.count, begun->far, win);
    }
    if (is_request && below(2)) {
        MPI_Wait(&begun->request, MPI_STATUS_IGNORE);
    }
    num_gets += op->is_get;
    num_puts += !op->is_get;
    free(packed);
    free(bounce);
}

/* The epoch is over: what a get has to have brought is in the images. */
static void op_end(begun_t *begun)
{
    const op_t *op   = &begun->op;
    uint8_t *packed  = malloc(op->near.bytes);
    uint8_t *want    = malloc(op->near.room);
    uint8_t *is      = malloc(op->near.room);
    int i;

    MPI_Wait(&begun->request, MPI_STATUS_IGNORE);
    if (op->is_get) {
        memset(want, 0x5a, op->near.room);
        shape_copy(&op->far, images[op->target] + op->at, packed, false);
        shape_copy(&op->near, want, packed, true);
        ucx_mp_mem_read(op->mem, is, begun->buffer, op->near.room);
        for (i = 0; i < op->near.room; ++i) {
            if (is[i] != want[i]) {
                fail("a get brought another byte", op->id, i);
                break;
            }
        }
    }
    shape_free(&op->near, &begun->near);
    shape_free(&op->far, &begun->far);
    ucx_mp_mem_free(op->mem, begun->buffer);
    free(packed);
    free(want);
    free(is);
}

/* ----------------------------------------------------------------- windows */

/* Compare this rank's memory with its image; every rank has ended its part. */
static void check(int id)
{
    const size_t guard = is_allocated ? 0 : GUARD;
    size_t i;

    ucx_mp_mem_read(mem_of[rank], look, base - guard, bytes + 2 * guard);
    for (i = 0; i < bytes + 2 * guard; ++i) {
        if (look[i] != (((i < guard) || (i >= guard + bytes)) ?
                                0xa5 :
                                images[rank][i - guard])) {
            fail("another byte in the window", id, (long)i - (long)guard);
            break;
        }
    }
}

static void check_attributes(void)
{
    void *value, *found_base = NULL;
    char name[MPI_MAX_OBJECT_NAME] = "";
    MPI_Group group;
    int flag, found, length;

    MPI_Win_get_attr(win, MPI_WIN_BASE, &found_base, &flag);
    expect(flag && (found_base == base), "MPI_WIN_BASE is another");
    MPI_Win_get_attr(win, MPI_WIN_SIZE, &value, &flag);
    expect(flag && (*(MPI_Aint*)value == (MPI_Aint)bytes),
           "MPI_WIN_SIZE is another");
    MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, &value, &flag);
    expect(flag && (*(int*)value == unit), "MPI_WIN_DISP_UNIT is another");
    MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &value, &flag);
    expect(flag && (*(int*)value == (is_allocated ? MPI_WIN_FLAVOR_ALLOCATE :
                                                    MPI_WIN_FLAVOR_CREATE)),
           "MPI_WIN_CREATE_FLAVOR is another");
    MPI_Win_set_name(win, "a window");
    MPI_Win_get_name(win, name, &length);
    expect(strcmp(name, "a window") == 0, "the name is another");
    MPI_Win_get_group(win, &group);
    MPI_Group_size(group, &found);
    expect(found == size, "the group is another");
    MPI_Group_free(&group);
}

/* Called by MPI_Win_free() */
static int attribute_deleted(MPI_Win freed, int key, void *value, void *state)
{
    void *found_base = NULL;
    int flag;

    (void)key;
    (void)value;
    (void)state;
    MPI_Win_get_attr(freed, MPI_WIN_BASE, &found_base, &flag);
    expect(flag && (found_base == base),
           "MPI_WIN_BASE is another while the window is freed");
    ++num_deleted;
    return MPI_SUCCESS;
}

static void window_make(void)
{
    static const int units[] = {1, 4, 8};
    int i, kind;
    MPI_Info info;

    bytes        = (size_t)size * PART + WORDS * 8;
    unit         = units[below(3)];
    is_allocated = (below(3) == 0);
    kind         = below(3); /* all device, mixed, drawn */
    for (i = 0; i < size; ++i) {
        mem_of[i] = (kind == 0) ? UCX_MP_MEM_DEVICE :
                    (kind == 1) ? (i % 2 ? UCX_MP_MEM_HOST :
                                           UCX_MP_MEM_DEVICE) :
                                  (ucx_mp_mem_t)below(UCX_MP_MEM_LAST);
        if (kinds[0] != '\0') {
            mem_of[i] = (ucx_mp_mem_t)(strchr("dhpm",
                                              kinds[i % strlen(kinds)]) -
                                       "dhpm");
        }
        /* UCX 1.13 aborts when pt2pt's message with gaps arrives in managed
           memory */
        if ((is_allocated || is_pt2pt) && (mem_of[i] != UCX_MP_MEM_DEVICE)) {
            mem_of[i] = UCX_MP_MEM_HOST;
        }
        if (on_host) {
            mem_of[i] = UCX_MP_MEM_HOST;
        }
        has_gpu = (has_gpu && (i > 0)) || (mem_of[i] == UCX_MP_MEM_DEVICE);
        memset(images[i], 0, bytes);
    }

    memset(look, 0xa5, bytes + 2 * GUARD);
    memset(look + GUARD, 0, bytes);
    if (is_allocated) {
        MPI_Info_create(&info);
        if (mem_of[rank] == UCX_MP_MEM_DEVICE) {
            MPI_Info_set(info, "mpi_memory_alloc_kinds", "cuda:device");
        }
        MPI_Win_allocate(bytes, unit, info, WORLD, &base, &win);
        MPI_Info_free(&info);
        ucx_mp_mem_write(mem_of[rank], base, look + GUARD, bytes);
    } else {
        memory = ucx_mp_mem_alloc(mem_of[rank], bytes + 2 * GUARD);
        base   = memory + GUARD;
        ucx_mp_mem_write(mem_of[rank], memory, look, bytes + 2 * GUARD);
        MPI_Win_create(base, bytes, unit, MPI_INFO_NULL, WORLD, &win);
    }
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    check_attributes();
    MPI_Win_set_attr(win, keyval, NULL);
    ++made;
    MPI_Barrier(WORLD); /* all have written their memory */
}

static void window_free(void)
{
    num_deleted = 0;
    MPI_Win_free(&win);
    expect(win == MPI_WIN_NULL, "a freed window's handle is another");
    expect(num_deleted == 1, "a freed window's attribute is not deleted");
    if (!is_allocated) {
        ucx_mp_mem_free(mem_of[rank], memory);
    }
}

/* ------------------------------------------------------------------ epochs */

enum { FENCE, GROUPS, LOCK, LOCK_ALL, NUM_MODES };

static void epoch_begin(int mode)
{
    if (mode == FENCE) {
        MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
    } else if (mode == GROUPS) {
        MPI_Win_post(everybody, 0, win);
        MPI_Win_start(everybody, 0, win);
    } else if (mode == LOCK_ALL) {
        MPI_Win_lock_all(0, win);
    }
}

static void epoch_end(int mode)
{
    static unsigned turn;
    int flag = 0;

    if (mode == FENCE) {
        MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    } else if (mode == GROUPS) {
        MPI_Win_complete(win);
        if (++turn % 2) {
            MPI_Win_wait(win);
        } else {
            while (!flag) {
                MPI_Win_test(win, &flag);
            }
        }
    } else if (mode == LOCK_ALL) {
        MPI_Win_unlock_all(win);
    }
}

/* Puts of all ranks to all ranks, or gets */
static void epoch(int number)
{
    const int count   = 1 + below(4);
    const int mode    = below(NUM_MODES);
    const bool is_get = below(2);
    const int draws   = below(1 << 20);
    const bool is_passive = (mode == LOCK) || (mode == LOCK_ALL);
    const bool is_full    = is_pt2pt && !has_gpu;
    begun_t *begun    = calloc(count, sizeof(*begun));
    op_t *all         = malloc(count * size * sizeof(*all));
    uint64_t shared;
    int i, origin;

    for (i = 0; i < count; ++i) {
        for (origin = 0; origin < size; ++origin) {
            op_draw(&all[i * size + origin],
                    (number * 8 + i) * MAX_RANKS + origin, origin, below(size),
                    is_get);
        }
    }

    shared = state;
    state  = ucx_mp_hash(draws + rank);
    epoch_begin(mode);
    for (i = 0; i < count; ++i) {
        begun[i].op = all[i * size + rank];
        if (mode == LOCK) {
            MPI_Win_lock(below(2) ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE,
                         begun[i].op.target, 0, win);
        }
        op_begin(&begun[i], is_passive);
        if (is_passive) {
            int rc = MPI_SUCCESS;

            switch (below(5)) {
            case 0:
                rc = MPI_Win_flush(begun[i].op.target, win);
                break;
            case 1:
                rc = is_full ? MPI_Win_flush(begun[i].op.target, win) :
                               MPI_Win_flush_local(begun[i].op.target, win);
                break;
            case 2:
                rc = MPI_Win_flush_all(win);
                break;
            case 3:
                rc = is_full ? MPI_Win_flush_all(win) :
                               MPI_Win_flush_local_all(win);
                break;
            }
            expect(rc == MPI_SUCCESS, "a flush fails");
        }
        /* puts of one origin to the same bytes are in order with a flush */
        if ((mode == LOCK_ALL) && !is_get) {
            MPI_Win_flush(begun[i].op.target, win);
        }
        if (mode == LOCK) {
            MPI_Win_unlock(begun[i].op.target, win);
        }
        if (!is_passive && !is_get) {
            epoch_end(mode);
            epoch_begin(mode);
        }
    }
    epoch_end(mode);
    state = shared;

    MPI_Barrier(WORLD);
    for (i = 0; i < count * size; ++i) {
        op_apply(&all[i]);
    }
    for (i = 0; i < count; ++i) {
        op_end(&begun[i]);
    }
    check(number);
    MPI_Barrier(WORLD);
    free(begun);
    free(all);
}

/* Each rank writes its own part of its window, some late, and opens it. Gets
   have to bring what was written before. */
static void epoch_late(int number)
{
    const int mode       = below(2) ? FENCE : GROUPS;
    const unsigned delay = (unsigned)below(3) * 2000; /* us, of some ranks */
    const int target     = (rank + 1 + below(size)) % size;
    const int late       = below(size);
    const int mem        = on_host ? UCX_MP_MEM_HOST : UCX_MP_MEM_DEVICE;
    char *buffer         = ucx_mp_mem_alloc(mem, PART);
    int owner, i;

    for (owner = 0; owner < size; ++owner) {
        for (i = 0; i < PART; ++i) {
            images[owner][owner * PART + i] = value_of(number * size + owner,
                                                       i);
        }
    }

    if (rank == late) {
        usleep(delay);
    }
    ucx_mp_mem_write(mem_of[rank], base + rank * PART,
                     images[rank] + rank * PART, PART);
    epoch_begin(mode);
    MPI_Get(buffer, PART, MPI_BYTE, target, (MPI_Aint)target * PART / unit,
            PART, MPI_BYTE, win);
    epoch_end(mode);
    ucx_mp_mem_read(mem, look, buffer, PART);
    expect(memcmp(look, images[target] + target * PART, PART) == 0,
           "a get came before the window was open");
    ucx_mp_mem_free(mem, buffer);
    MPI_Barrier(WORLD);
    check(number);
    MPI_Barrier(WORLD);
}

#define CASES(_) \
    _(int32_t, MPI_INT) \
    _(int64_t, MPI_INT64_T) \
    _(uint64_t, MPI_UNSIGNED_LONG) \
    _(float, MPI_FLOAT) \
    _(double, MPI_DOUBLE)

/* Add, or take the larger of, small whole numbers: exact in each type. */
#define FOLD(_type, _mpi) \
    if (mpi == _mpi) { \
        for (i = 0; i < count; ++i) { \
            _type old, new; \
            \
            memcpy(&old, to + i * sizeof(_type), sizeof(old)); \
            new = (_type)((const int*)from)[i]; \
            new = (op == MPI_MAX) ? ((old > new) ? old : new) : old + new; \
            memcpy(to + i * sizeof(_type), &new, sizeof(new)); \
        } \
        return; \
    }

static void fold(MPI_Datatype mpi, MPI_Op op, uint8_t *to, const int *from,
                 int count)
{
    int i;

    CASES(FOLD)
}

#define FILL(_type, _mpi) \
    if (mpi == _mpi) { \
        for (i = 0; i < count; ++i) { \
            const _type value = (_type)from[i]; \
            memcpy(to + i * sizeof(_type), &value, sizeof(value)); \
        } \
    }

/* Accumulates of all ranks to the same words */
static void epoch_sums(int number)
{
    static const MPI_Datatype types[] = {MPI_INT, MPI_INT64_T,
                                         MPI_UNSIGNED_LONG, MPI_FLOAT,
                                         MPI_DOUBLE};
    const MPI_Datatype mpi = types[below(5)];
    const MPI_Op op        = below(3) ? MPI_SUM : MPI_MAX;
    const int mode         = below(NUM_MODES);
    const size_t at        = (size_t)size * PART;
    const int form         = below(3);
    const int base_count   = 1 + below(below(3) ? 40 : MAX_SUMS);
    int *from              = malloc(MAX_SUMS * sizeof(*from));
    uint8_t *to            = malloc(MAX_SUMS * 8);
    int origin, i, width, target, count, first, mem, gap;
    char *buffer, *result;
    MPI_Datatype vector;
    MPI_Request request;

    /* new words, that each type has as 0 */
    MPI_Win_fence(0, win);
    memset(look, 0, SUMS);
    memset(images[rank] + at, 0, SUMS);
    ucx_mp_mem_write(mem_of[rank], base + at, look, SUMS);
    for (i = 0; i < size; ++i) {
        memset(images[i] + at, 0, SUMS);
    }
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);

    MPI_Type_size(mpi, &width);
    epoch_begin(mode);
    for (origin = 0; origin < size; ++origin) {
        target = below(size);
        count  = base_count;
        first  = below(100) * 8;
        mem    = on_host ? UCX_MP_MEM_HOST : below(UCX_MP_MEM_LAST);
        gap    = (count <= 500) ? below(3) : 0;
        for (i = 0; i < count; ++i) {
            from[i] = below(1000);
        }
        if (gap == 0) {
            fold(mpi, op, images[target] + at + first, from, count);
        } else {
            for (i = 0; i < count; ++i) {
                fold(mpi, op, images[target] + at + first + i * width *
                     (1 + gap), &from[i], 1);
            }
        }
        if (origin != rank) {
            continue;
        }

        CASES(FILL)
        buffer = ucx_mp_mem_alloc(mem, count * width);
        result = ucx_mp_mem_alloc(mem, count * width);
        ucx_mp_mem_write(mem, buffer, to, count * width);
        MPI_Type_vector(count, 1, 1 + gap, mpi, &vector);
        MPI_Type_commit(&vector);
        if (mode == LOCK) {
            MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win);
        }
        if ((form == 0) ||
            (is_pt2pt && (mem_of[target] != UCX_MP_MEM_DEVICE))) {
            MPI_Accumulate(buffer, count, mpi, target,
                           (MPI_Aint)(at + first) / unit, 1, vector, op, win);
        } else if ((form == 1) && ((mode == LOCK) || (mode == LOCK_ALL))) {
            MPI_Raccumulate(buffer, count, mpi, target,
                            (MPI_Aint)(at + first) / unit, 1, vector, op, win,
                            &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            MPI_Get_accumulate(buffer, count, mpi, result, count, mpi, target,
                               (MPI_Aint)(at + first) / unit, 1, vector, op,
                               win);
        }
        if (mode == LOCK) {
            MPI_Win_unlock(target, win);
        } else if (mode == LOCK_ALL) {
            MPI_Win_flush(target, win);
        } else {
            epoch_end(mode);
            epoch_begin(mode);
        }
        MPI_Type_free(&vector);
        ucx_mp_mem_free(mem, buffer);
        ucx_mp_mem_free(mem, result);
        ++changes;
    }
    epoch_end(mode);
    MPI_Barrier(WORLD);
    check(number);
    MPI_Barrier(WORLD);
    free(from);
    free(to);
}

/* Words that all ranks count up: by fetches, swaps, and under a lock */
static void epoch_counters(int number)
{
    const int turns     = 1 + below(6);
    const int target    = below(size);
    const int mem       = on_host ? UCX_MP_MEM_HOST : below(UCX_MP_MEM_LAST);
    const size_t at     = bytes - 64 * 8;
    int64_t *seen       = calloc(turns * size, sizeof(*seen));
    int64_t *mine       = calloc(turns, sizeof(*mine));
    char *buffer        = ucx_mp_mem_alloc(mem, 64);
    int64_t word, start, found, next;
    int i, j;

    /* Open MPI 4 crashes in swaps of host memory, by its component rdma */
    if (mem_of[target] != UCX_MP_MEM_DEVICE) {
        goto out;
    }

    memcpy(&start, images[target] + at, 8);
    MPI_Win_lock_all(0, win);
    for (i = 0; i < turns; ++i) {
        word = 1;
        ucx_mp_mem_write(mem, buffer, &word, 8);
        MPI_Fetch_and_op(buffer, buffer + 16, MPI_INT64_T, target,
                         (MPI_Aint)at / unit, MPI_SUM, win);
        MPI_Win_flush(target, win);
        ucx_mp_mem_read(mem, &mine[i], buffer + 16, 8);

        /* add by swaps to the next word */
        found = -1;
        do {
            MPI_Fetch_and_op(NULL, buffer + 16, MPI_INT64_T, target,
                             (MPI_Aint)(at + 8) / unit, MPI_NO_OP, win);
            MPI_Win_flush(target, win);
            ucx_mp_mem_read(mem, &word, buffer + 16, 8);
            next = word + 3;
            ucx_mp_mem_write(mem, buffer, &next, 8);
            ucx_mp_mem_write(mem, buffer + 8, &word, 8);
            MPI_Compare_and_swap(buffer, buffer + 8, buffer + 16, MPI_INT64_T,
                                 target, (MPI_Aint)(at + 8) / unit, win);
            MPI_Win_flush(target, win);
            ucx_mp_mem_read(mem, &found, buffer + 16, 8);
        } while (found != word);
        ++changes;
    }
    MPI_Win_unlock_all(win);

    for (i = 0; i < turns; ++i) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, win);
        MPI_Get(buffer, 1, MPI_INT64_T, target, (MPI_Aint)(at + 16) / unit, 1,
                MPI_INT64_T, win);
        MPI_Win_flush(target, win);
        ucx_mp_mem_read(mem, &word, buffer, 8);
        word += 5;
        ucx_mp_mem_write(mem, buffer, &word, 8);
        MPI_Put(buffer, 1, MPI_INT64_T, target, (MPI_Aint)(at + 16) / unit, 1,
                MPI_INT64_T, win);
        MPI_Win_unlock(target, win);
    }

    MPI_Allgather(mine, turns, MPI_INT64_T, seen, turns, MPI_INT64_T, WORLD);
    for (i = 0; i < turns * size; ++i) {
        for (j = 0; (j < turns * size) && (seen[j] != start + i); ++j) {
        }
        expect(j < turns * size, "no rank has fetched a number");
    }
    for (i = 0; i < 3; ++i) {
        static const int steps[] = {1, 3, 5};

        memcpy(&word, images[target] + at + i * 8, 8);
        word += (int64_t)turns * size * steps[i];
        memcpy(images[target] + at + i * 8, &word, 8);
    }
    MPI_Barrier(WORLD);
    check(number);
    MPI_Barrier(WORLD);
out:
    ucx_mp_mem_free(mem, buffer);
    free(mine);
    free(seen);
}

/* Each rank accumulates to one rank and opens its window to one, others in each
   turn, while a message to it waits. What Open MPI 4's component rdma fetches
   may be wrong, without this library as well. */
static void epoch_pairs(int number)
{
    const int count   = 1 + below(MAX_SUMS);
    const int mem     = on_host ? UCX_MP_MEM_HOST : below(UCX_MP_MEM_LAST);
    const size_t at   = (size_t)size * PART;
    const size_t room = count * sizeof(int64_t);
    char *buffer      = ucx_mp_mem_alloc(mem, room);
    char *result      = ucx_mp_mem_alloc(mem, room);
    int64_t *words    = malloc(room);
    MPI_Datatype mpi  = MPI_INT64_T;
    int turn, to, from, target, i, flag;
    MPI_Group origins, targets;
    MPI_Request request;
    bool is_gpu;

    MPI_Isend(NULL, 0, MPI_BYTE, (rank + 1) % size, 0, WORLD, &request);
    MPI_Probe(MPI_ANY_SOURCE, 0, WORLD, MPI_STATUS_IGNORE);
    for (turn = 0; turn < 2 * size; ++turn) {
        MPI_Barrier(WORLD); /* without it, MPICH's own windows hang */
        to     = (rank + turn) % size;
        from   = (rank + 2 * size - turn) % size;
        is_gpu = (mem_of[to] == UCX_MP_MEM_DEVICE);
        MPI_Group_incl(everybody, 1, &to, &targets);
        MPI_Group_incl(everybody, 1, &from, &origins);
        for (i = 0; i < count; ++i) {
            words[i] = number + turn + rank + i;
        }
        ucx_mp_mem_write(mem, buffer, words, room);

        MPI_Win_post(origins, 0, win);
        MPI_Win_start(targets, 0, win);
        if (is_gpu || !is_pt2pt) {
            MPI_Get_accumulate(buffer, count, mpi, result, count, mpi, to,
                               (MPI_Aint)at / unit, count, mpi, MPI_SUM, win);
        } else {
            MPI_Accumulate(buffer, count, mpi, to, (MPI_Aint)at / unit, count,
                           mpi, MPI_SUM, win);
        }
        MPI_Win_complete(win);
        if (turn % 2) {
            MPI_Win_wait(win);
        } else {
            do {
                MPI_Win_test(win, &flag);
            } while (!flag);
        }
        ++changes;

        ucx_mp_mem_read(mem, words, result, room);
        expect(!is_gpu || (memcmp(words, images[to] + at, room) == 0),
               "an accumulate fetched other words");
        for (target = 0; target < size; ++target) {
            from = (target + 2 * size - turn) % size;
            memcpy(words, images[target] + at, room);
            for (i = 0; i < count; ++i) {
                words[i] += number + turn + from + i;
            }
            memcpy(images[target] + at, words, room);
        }
        MPI_Group_free(&targets);
        MPI_Group_free(&origins);
    }

    MPI_Recv(NULL, 0, MPI_BYTE, MPI_ANY_SOURCE, 0, WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check(number);
    MPI_Barrier(WORLD);
    ucx_mp_mem_free(mem, buffer);
    ucx_mp_mem_free(mem, result);
    free(words);
}

static int class_of(int rc)
{
    int error_class = MPI_SUCCESS;

    MPI_Error_class(rc, &error_class);
    return error_class;
}

/* Mistakes that a call has to name; of GPU memory, since the rest is the
   MPI's. */
static void errors(void)
{
    char byte = 0;
    int i, rc;

    if (mem_of[0] == UCX_MP_MEM_DEVICE) {
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
        rc = MPI_Put(&byte, 1, MPI_BYTE, 0, (MPI_Aint)bytes / unit, 1, MPI_BYTE,
                     win);
        expect(class_of(rc) == MPI_ERR_RMA_RANGE, "a put beyond the end");
        rc = MPI_Get(&byte, 1, MPI_BYTE, 0, -1, 1, MPI_BYTE, win);
        expect(rc != MPI_SUCCESS, "a get before the beginning");
        rc = MPI_Put(&byte, 1, MPI_BYTE, size, 0, 1, MPI_BYTE, win);
        expect(class_of(rc) == MPI_ERR_RANK, "a put to no rank");
        rc = MPI_Put(&byte, 1, MPI_BYTE, MPI_PROC_NULL, 0, 1, MPI_BYTE, win);
        expect(rc == MPI_SUCCESS, "a put to MPI_PROC_NULL");
        MPI_Win_unlock(0, win);
        rc = MPI_Put(&byte, 1, MPI_BYTE, 0, 0, 1, MPI_BYTE, win);
        expect(class_of(rc) == MPI_ERR_RMA_SYNC, "a put outside of an epoch");
        rc = MPI_Win_unlock(0, win);
        expect(class_of(rc) == MPI_ERR_RMA_SYNC, "an unlock without a lock");
    }
    for (i = 0; i < size; ++i) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, i, 0, win);
        expect(MPI_Win_sync(win) == MPI_SUCCESS, "a sync in a lock");
        MPI_Win_unlock(i, win);
    }
    MPI_Barrier(WORLD);
}

/* ------------------------------------------------------------------- edges */

static ucx_mp_mem_t edge_mem(void)
{
    return on_host ? UCX_MP_MEM_HOST : UCX_MP_MEM_DEVICE;
}

/* Gets that bring fewer bytes than their buffer has, or none, leave the rest of
   it. In a window of host memory, which is the MPI's. */
static void edge_short_gets(void)
{
    const ucx_mp_mem_t mem = edge_mem();
    const MPI_Datatype mpi = MPI_INT64_T;
    const int next         = (rank + 1) % size;
    char *buffer           = ucx_mp_mem_alloc(mem, 64);
    int64_t words[8], old[8];
    MPI_Request request;

    memset(words, 0x33, sizeof(words));
    memset(old, 0x5a, sizeof(old));
    ucx_mp_mem_write(mem, buffer, old, sizeof(old));
    MPI_Win_create(words, sizeof(words), 1, MPI_INFO_NULL, WORLD, &win);
    MPI_Win_lock_all(0, win);
    MPI_Get(buffer, 1, mpi, MPI_PROC_NULL, 0, 1, mpi, win);
    MPI_Rget(buffer + 8, 1, mpi, MPI_PROC_NULL, 0, 1, mpi, win, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Fetch_and_op(buffer, buffer + 16, mpi, MPI_PROC_NULL, 0, MPI_SUM, win);
    MPI_Compare_and_swap(buffer, buffer + 8, buffer + 24, mpi, MPI_PROC_NULL, 0,
                         win);
    MPI_Get_accumulate(buffer, 1, mpi, buffer + 32, 1, mpi, MPI_PROC_NULL, 0, 1,
                       mpi, MPI_SUM, win);
    MPI_Rget_accumulate(buffer, 1, mpi, buffer + 40, 1, mpi, MPI_PROC_NULL, 0,
                        1, mpi, MPI_SUM, win, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Win_flush_all(win);
    ucx_mp_mem_read(mem, look, buffer, sizeof(old));
    expect(memcmp(look, old, sizeof(old)) == 0, "a get from MPI_PROC_NULL");

    if (is_pt2pt) { /* other components, and MPICH, bring 8 words */
        MPI_Get(buffer, 8, mpi, next, 0, 2, mpi, win);
        MPI_Win_flush(next, win);
        memset(old, 0x33, 2 * sizeof(*old));
        ucx_mp_mem_read(mem, look, buffer, sizeof(old));
        expect(memcmp(look, old, sizeof(old)) == 0,
               "a get of 2 words into a buffer of 8");
    }
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
    ucx_mp_mem_free(mem, buffer);
}

/* The MPI rejects windows of one rank, and makes the next one of all ranks. */
static void edge_rejected(void)
{
    char *memory = ucx_mp_mem_alloc(edge_mem(), 64);

    MPI_Comm_set_errhandler(WORLD, MPI_ERRORS_RETURN);
    if (rank == 0) {
        expect(MPI_Win_create(memory, 64, 0, MPI_INFO_NULL, WORLD, &win) !=
               MPI_SUCCESS, "a window of units of 0 bytes");
        expect(MPI_Win_create(memory, -1, 1, MPI_INFO_NULL, WORLD, &win) !=
               MPI_SUCCESS, "a window of less than 0 bytes");
    }
    MPI_Comm_set_errhandler(WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Win_create(memory, 64, 1, MPI_INFO_NULL, WORLD, &win);
    MPI_Win_fence(0, win);
    MPI_Win_free(&win);
    ucx_mp_mem_free(edge_mem(), memory);
}

/* A flush of no rank completes no get. Open MPI refuses it, or crashes. */
static void edge_flush_no_rank(void)
{
#ifndef OPEN_MPI
    const int next    = (rank + 1) % size;
    const size_t room = 1 << 20;
    char *memory      = malloc(room);
    char *buffer      = ucx_mp_mem_alloc(edge_mem(), room);
    char *is          = malloc(room);

    memset(memory, 0x33, room);
    ucx_mp_mem_set(edge_mem(), buffer, 0x5a, room);
    MPI_Win_create(memory, room, 1, MPI_INFO_NULL, WORLD, &win);
    MPI_Win_lock_all(0, win);
    MPI_Get(buffer, (int)room, MPI_BYTE, next, 0, (int)room, MPI_BYTE, win);
    MPI_Win_flush(MPI_PROC_NULL, win);
    MPI_Win_flush(next, win);
    ucx_mp_mem_read(edge_mem(), is, buffer, room);
    expect(memcmp(is, memory, room) == 0, "a get beside a flush of no rank");
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
    ucx_mp_mem_free(edge_mem(), buffer);
    free(memory);
    free(is);
#endif
}

/* A square's columns as a datatype without gaps: blocks in another order than
   in memory, under `depth` more constructors. On one side, the square arrives
   transposed. */
static void edge_order(int n, int depth, char *buffer)
{
    enum { PUT, GET, SUM, FETCH, NUM_CALLS };
    const int count   = n * n;
    const int next    = (rank + 1) % size;
    const size_t room = count * sizeof(double);
    double *from      = malloc(room);
    double *to        = calloc(count, sizeof(*to));
    MPI_Datatype column, square, outer, near, far;
    int form, call, i, near_count, far_count;
    bool is_get;

    MPI_Type_vector(n, 1, n, MPI_DOUBLE, &column);
    MPI_Type_create_hvector(n, 1, sizeof(double), column, &square);
    MPI_Type_free(&column);
    for (i = 0; i < depth; ++i) {
        MPI_Type_dup(square, &outer);
        MPI_Type_free(&square);
        square = outer;
    }
    MPI_Type_commit(&square);
    for (i = 0; i < count; ++i) {
        from[i] = rank * count + i + 1;
    }

    for (form = 0; form < 2 * NUM_CALLS; ++form) {
        call       = form / 2;
        is_get     = (call == GET) || (call == FETCH);
        near       = (form % 2) ? MPI_DOUBLE : square;
        far        = (form % 2) ? square : MPI_DOUBLE;
        near_count = (form % 2) ? count : 1;
        far_count  = (form % 2) ? 1 : count;

        memset(to, 0, room);
        MPI_Put(is_get ? from : to, count, MPI_DOUBLE, next, 0, count,
                MPI_DOUBLE, win);
        MPI_Win_flush(next, win);
        ucx_mp_mem_write(edge_mem(), buffer, is_get ? to : from, room);
        if (call == PUT) {
            MPI_Put(buffer, near_count, near, next, 0, far_count, far, win);
        } else if (call == GET) {
            MPI_Get(buffer, near_count, near, next, 0, far_count, far, win);
        } else if (call == SUM) {
            MPI_Accumulate(buffer, near_count, near, next, 0, far_count, far,
                           MPI_SUM, win);
        } else {
            MPI_Get_accumulate(NULL, 0, MPI_DOUBLE, buffer, near_count, near,
                               next, 0, far_count, far, MPI_NO_OP, win);
        }
        MPI_Win_flush(next, win);
        if (is_get) {
            ucx_mp_mem_read(edge_mem(), to, buffer, room);
        } else {
            MPI_Get(to, count, MPI_DOUBLE, next, 0, count, MPI_DOUBLE, win);
            MPI_Win_flush(next, win);
        }

        for (i = 0; (i < count) && (to[i] == from[i % n * n + i / n]); ++i) {
        }
        if (i < count) {
            fail("a square is not transposed", form, i);
        }
    }
    MPI_Type_free(&square);
    free(from);
    free(to);
}

/* Begin synchronous copies of `room` bytes of pageable memory to a GPU: of so
   few bytes CUDA may return before the last ones have arrived. */
static void copy_pageable(char *buffer, char *scratch, const uint8_t *from,
                          size_t room)
{
    int i;

    for (i = 0; i < 100; ++i) {
        UCX_MP_DRIVER(copy_htod, (uintptr_t)scratch, from, room);
    }
    UCX_MP_DRIVER(copy_htod, (uintptr_t)buffer, from, room);
}

/* Call on GPU memory into which the program has just copied, another
   allocation each time: after one call its copies are complete on return. */
static void edge_copied(void)
{
    enum { PUT, GET, SUM, NUM_CALLS };
    const size_t room = 32 << 10;
    const int next    = (rank + 1) % size;
    const int words   = (int)(room / sizeof(int64_t));
    uint8_t *from     = malloc(room);
    uint8_t *to       = malloc(room);
    char *scratch     = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, room);
    char *buffer;
    int call;

    for (call = 0; call < NUM_CALLS; ++call) {
        buffer = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, room);
        memset(to, 0, room);
        MPI_Put(to, room, MPI_BYTE, next, 0, room, MPI_BYTE, win);
        MPI_Win_flush(next, win);
        ucx_mp_mem_set(UCX_MP_MEM_DEVICE, buffer, 0x5a, room);
        memset(from, 0x11 * (call + 1), room);
        copy_pageable(buffer, scratch, from, room);
        if (call == PUT) {
            MPI_Put(buffer, words, MPI_INT64_T, next, 0, words, MPI_INT64_T,
                    win);
        } else if (call == GET) {
            MPI_Get(buffer, words, MPI_INT64_T, next, 0, words, MPI_INT64_T,
                    win);
            memset(from, 0, room);
        } else {
            MPI_Accumulate(buffer, words, MPI_INT64_T, next, 0, words,
                           MPI_INT64_T, MPI_SUM, win);
        }
        MPI_Win_flush(next, win);
        if (call == GET) {
            ucx_mp_mem_read(UCX_MP_MEM_DEVICE, to, buffer, room);
        } else {
            MPI_Get(to, words, MPI_INT64_T, next, 0, words, MPI_INT64_T, win);
            MPI_Win_flush(next, win);
        }
        if (memcmp(to, from, room) != 0) {
            fail("a call came before the program's copy", call, 0);
        }
        ucx_mp_mem_free(UCX_MP_MEM_DEVICE, buffer);
    }
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, scratch);
    free(from);
    free(to);
}

/* Put into a window whose owner has just copied into its memory: the owner's
   copies come first. */
static void edge_filled(void)
{
    const int next     = (rank + 1) % size;
    const int previous = (rank + size - 1) % size;
    const size_t room  = 32 << 10;
    uint8_t *values    = malloc(room);
    char *scratch      = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, room);
    char *window       = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, room);

    memset(values, 0xee, room);
    copy_pageable(window, scratch, values, room);
    MPI_Win_create(window, room, 1, MPI_INFO_NULL, WORLD, &win);
    memset(values, rank + 1, room);
    MPI_Win_lock(MPI_LOCK_SHARED, next, 0, win);
    MPI_Put(values, room, MPI_BYTE, next, 0, room, MPI_BYTE, win);
    MPI_Win_unlock(next, win);
    MPI_Win_free(&win);
    ucx_mp_mem_read(UCX_MP_MEM_DEVICE, values, window, room);
    expect((values[0] == previous + 1) &&
                   (memcmp(values, values + 1, room - 1) == 0),
           "a put came before the owner's copy");
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, window);
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, scratch);
    free(values);
}

/* Add the datatypes of MPI_MAXLOC, whose elements have gaps, in larger ones. */
static void edge_pairs(char *buffer)
{
    enum { COUNT = 4 };
    typedef struct {
        double value;
        int    place;
    } pair_t;
    const int next    = (rank + 1) % size;
    const pair_t old[COUNT] = {{1, 5}, {4, 6}, {-2, 7}, {8, 1}};
    const pair_t new[COUNT] = {{2, 3}, {3, 4}, {-2, 6}, {8, 2}};
    const pair_t max[COUNT] = {{2, 3}, {4, 6}, {-2, 6}, {8, 1}};
    const pair_t *want;
    pair_t found[COUNT];
    MPI_Datatype two, near, far;
    int form, i, rc, near_count, far_count;
    MPI_Op op;

    MPI_Type_contiguous(2, MPI_DOUBLE_INT, &two);
    MPI_Type_commit(&two);
    for (form = 0; form < 9; ++form) {
        op         = (form / 3 == 0) ? MPI_MAXLOC :
                     (form / 3 == 1) ? MPI_REPLACE : MPI_NO_OP;
        want       = (form / 3 == 0) ? max : (form / 3 == 1) ? new : old;
        near       = (form % 3 == 0) ? MPI_DOUBLE_INT : two;
        far        = (form % 3 == 1) ? MPI_DOUBLE_INT : two;
        near_count = (form % 3 == 0) ? COUNT : COUNT / 2;
        far_count  = (form % 3 == 1) ? COUNT : COUNT / 2;

        MPI_Put(old, COUNT, MPI_DOUBLE_INT, next, 0, COUNT, MPI_DOUBLE_INT,
                win);
        MPI_Win_flush(next, win);
        ucx_mp_mem_write(edge_mem(), buffer, new, sizeof(new));
        if (op == MPI_NO_OP) {
            rc = MPI_Get_accumulate(NULL, 0, MPI_BYTE, buffer, near_count,
                                    near, next, 0, far_count, far, op, win);
        } else {
            rc = MPI_Accumulate(buffer, near_count, near, next, 0, far_count,
                                far, op, win);
        }
        MPI_Win_flush(next, win);
        if (op == MPI_NO_OP) {
            ucx_mp_mem_read(edge_mem(), found, buffer, sizeof(found));
        } else {
            MPI_Get(found, COUNT, MPI_DOUBLE_INT, next, 0, COUNT,
                    MPI_DOUBLE_INT, win);
            MPI_Win_flush(next, win);
        }
        for (i = 0; (i < COUNT) && (found[i].value == want[i].value) &&
                    (found[i].place == want[i].place); ++i) {
        }
        if ((i < COUNT) || (rc != MPI_SUCCESS)) {
            fail("a pair is another", form, i);
        }
    }
    MPI_Type_free(&two);
}

/* Add elements of a parametrised datatype of Fortran. */
static void edge_parametrised(char *buffer)
{
    const int next = (rank + 1) % size;
    double new[]   = {1, 2, 3};
    MPI_Datatype real;
    int rc;

    MPI_Type_create_f90_real(15, MPI_UNDEFINED, &real);
    MPI_Put(new, 3, MPI_DOUBLE, next, 0, 3, MPI_DOUBLE, win);
    MPI_Win_flush(next, win);
    ucx_mp_mem_write(edge_mem(), buffer, new, sizeof(new));
    rc = MPI_Accumulate(buffer, 3, real, next, 0, 3, real, MPI_SUM, win);
    MPI_Win_flush(next, win);
    MPI_Get(new, 3, MPI_DOUBLE, next, 0, 3, MPI_DOUBLE, win);
    MPI_Win_flush(next, win);
    expect((rc == MPI_SUCCESS) && (new[0] == 2) && (new[1] == 4) &&
           (new[2] == 6), "a sum of a parametrised datatype");
}

static void not_called(void *from, void *to, int *count, MPI_Datatype *type)
{
    (void)from;
    (void)to;
    (void)count;
    (void)type;
    fail("a user's operation was called", 0, 0);
}

/* Make calls of which the operation is invalid for the datatype. */
static void edge_operation(char *buffer, MPI_Op op, MPI_Datatype type)
{
    const int next = (rank + 1) % size;
    int rc;

    rc = MPI_Accumulate(buffer, 1, type, next, 0, 1, type, op, win);
    expect(class_of(rc) == MPI_ERR_OP, "an accumulate's operation");
    rc = MPI_Get_accumulate(buffer, 1, type, buffer + 64, 1, type, next, 0, 1,
                            type, op, win);
    expect(class_of(rc) == MPI_ERR_OP, "a get's operation");
    rc = MPI_Fetch_and_op(buffer, buffer + 64, type, next, 0, op, win);
    expect(class_of(rc) == MPI_ERR_OP, "a fetch's operation");
}

/* Make calls of which a datatype is not committed, or derived where MPI demands
   a predefined one. */
static void edge_datatypes(char *buffer)
{
    const int next = (rank + 1) % size;
    MPI_Datatype two;
    int rc;

    MPI_Type_contiguous(2, MPI_INT, &two);
    rc = MPI_Put(buffer, 1, two, next, 0, 2, MPI_INT, win);
    expect(class_of(rc) == MPI_ERR_TYPE, "a put's datatype");
    rc = MPI_Get(buffer, 2, MPI_INT, next, 0, 1, two, win);
    expect(class_of(rc) == MPI_ERR_TYPE, "a get's datatype");
    rc = MPI_Accumulate(buffer, 1, two, next, 0, 2, MPI_INT, MPI_SUM, win);
    expect(class_of(rc) == MPI_ERR_TYPE, "an accumulate's datatype");
    rc = MPI_Get_accumulate(NULL, 0, MPI_INT, buffer, 1, two, next, 0, 2,
                            MPI_INT, MPI_NO_OP, win);
    expect(class_of(rc) == MPI_ERR_TYPE, "a result's datatype");

    MPI_Type_commit(&two);
    rc = MPI_Fetch_and_op(buffer, buffer + 64, two, next, 0, MPI_SUM, win);
    expect(class_of(rc) == MPI_ERR_TYPE, "a fetch's datatype");
    rc = MPI_Compare_and_swap(buffer, buffer + 64, buffer + 128, two, next, 0,
                              win);
    expect(class_of(rc) == MPI_ERR_TYPE, "a swap's datatype");
    MPI_Type_free(&two);
}

/* Duplicate MPI_COMM_SELF MAX_COMMS times, or until the MPI has no more.
   @return The number of duplicates. */
static int comms_take(MPI_Comm *comms)
{
    int count = 0;

    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    while ((count < MAX_COMMS) &&
           (MPI_Comm_dup(MPI_COMM_SELF, &comms[count]) == MPI_SUCCESS)) {
        ++count;
    }
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    return count;
}

/* Calls that MPI forbids return an error of the window's handler, and change
   nothing; what MPI allows and the kernels lack is done, and needs no
   communicator. */
static void edge_refused(char *buffer)
{
    const int next      = (rank + 1) % size;
    const long double a = 3;
    long double found   = 4;
    const char new[64]  = {1, 2, 3};
    static MPI_Comm comms[MAX_COMMS];
    char old[64], now[64];
    int count, rc;
    MPI_Op own;

    MPI_Get(old, 64, MPI_BYTE, next, 0, 64, MPI_BYTE, win);
    MPI_Win_flush(next, win);
    ucx_mp_mem_write(edge_mem(), buffer, new, sizeof(new));
    MPI_Op_create(not_called, 1, &own);
    edge_operation(buffer, MPI_OP_NULL, MPI_INT);
    edge_operation(buffer, own, MPI_INT);
    edge_operation(buffer, MPI_BAND, MPI_DOUBLE);
    edge_operation(buffer, MPI_BAND, MPI_LONG_DOUBLE);
    edge_datatypes(buffer);
    MPI_Op_free(&own);
    MPI_Get(now, 64, MPI_BYTE, next, 0, 64, MPI_BYTE, win);
    MPI_Win_flush(next, win);
    expect(memcmp(now, old, 64) == 0, "a forbidden call changed the window");

    MPI_Put(&found, 1, MPI_LONG_DOUBLE, next, 0, 1, MPI_LONG_DOUBLE, win);
    MPI_Win_flush(next, win);
    ucx_mp_mem_write(edge_mem(), buffer, &a, sizeof(a));
    count = comms_take(comms);
    rc = MPI_Accumulate(buffer, 1, MPI_LONG_DOUBLE, next, 0, 1, MPI_LONG_DOUBLE,
                        MPI_SUM, win);
    MPI_Win_flush(next, win);
    MPI_Get(&found, 1, MPI_LONG_DOUBLE, next, 0, 1, MPI_LONG_DOUBLE, win);
    MPI_Win_flush(next, win);
    expect((rc == MPI_SUCCESS) && (found == 7), "a sum of long doubles");
    while (count > 0) {
        MPI_Comm_free(&comms[--count]);
    }
}

static int num_handled;

static void flush_again(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    (void)code;
    ++num_handled;
    MPI_Win_flush(rank, win);
}

/* The driver fails to copy a get's data back, and the error handler flushes the
   window. For an emulated GPU. */
static void edge_handler(void)
{
    int (*set)(const char *faults) = ucx_mp_gpu_function("cuemu_fault");
    char bytes[64]                 = {0};
    MPI_Errhandler handler;
    char *buffer;

    if (on_host || (set == NULL)) {
        return;
    }

    buffer = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, 2 * sizeof(bytes));
    MPI_Comm_create_errhandler(flush_again, &handler);
    MPI_Comm_set_errhandler(WORLD, handler);
    MPI_Win_create(bytes, sizeof(bytes), 1, MPI_INFO_NULL, WORLD, &win);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    MPI_Get(buffer, 64, MPI_BYTE, rank, 0, 64, MPI_BYTE, win);
    MPI_Get(buffer + 64, 64, MPI_BYTE, rank, 0, 64, MPI_BYTE, win);
    set("cuMemcpyAsync:1:700");
    expect(MPI_Win_flush(rank, win) != MPI_SUCCESS, "a failed copy of a get");
    set("");
    expect(num_handled == 1, "an error handler that flushes");
    MPI_Win_unlock(rank, win);
    MPI_Win_free(&win);
    MPI_Comm_set_errhandler(WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&handler);
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, buffer);
}

/* A lock of no rank beside one of a rank. Open MPI refuses it. */
static void edge_no_rank(void)
{
    const int next = (rank + 1) % size;

    if (MPI_Win_lock(MPI_LOCK_SHARED, MPI_PROC_NULL, 0, win) != MPI_SUCCESS) {
        return;
    }

    MPI_Win_lock(MPI_LOCK_SHARED, next, 0, win);
    expect(MPI_Win_flush_all(win) == MPI_SUCCESS, "a flush beside no rank");
    expect(MPI_Win_sync(win) == MPI_SUCCESS, "a sync beside no rank");
    MPI_Win_unlock(next, win);
    MPI_Win_unlock(MPI_PROC_NULL, win);
}

/* Datatypes and copies in windows of GPU memory */
static void edge_gpu(void)
{
    const int room = 64 * 64 * sizeof(double);
    char *window   = ucx_mp_mem_alloc(edge_mem(), room);
    char *buffer   = ucx_mp_mem_alloc(edge_mem(), room);

    MPI_Win_create(window, room, 1, MPI_INFO_NULL, WORLD, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    MPI_Win_lock_all(0, win);
    edge_order(4, 70, buffer);
    edge_order(64, 0, buffer); /* large enough for kernels */
    edge_pairs(buffer);
    edge_parametrised(buffer);
    if (!on_host) {
        edge_refused(buffer);
        edge_copied();
    }
    MPI_Win_unlock_all(win);
    edge_no_rank();
    MPI_Win_free(&win);
    if (!on_host) {
        edge_filled();
    }
    ucx_mp_mem_free(edge_mem(), window);
    ucx_mp_mem_free(edge_mem(), buffer);
}

/* ------------------------------------------------------------------- speed */

#define AT_ONCE 16

enum { TIMED_PUT, TIMED_GET, TIMED_ADD, TIMED_MESSAGE, NUM_TIMED };

/* Return the seconds of a turn: `count` operations, then a flush or an answer.
   */
static double time_of(int what, int count, int length, char *mine, char *other)
{
    const int turns = (length > (1 << 20)) ? 3 : 10;
    MPI_Request requests[AT_ONCE];
    double start = 0;
    int turn, i;

    MPI_Barrier(WORLD);
    for (turn = -1; turn < turns; ++turn) {
        start = (turn == 0) ? ucx_mp_time() : start; /* after one to warm up */
        for (i = 0; i < count; ++i) {
            if ((what == TIMED_MESSAGE) && (rank == 0)) {
                MPI_Isend(mine, length, MPI_BYTE, 1, 0, WORLD, &requests[i]);
            } else if (what == TIMED_MESSAGE) {
                MPI_Irecv(other, length, MPI_BYTE, 0, 0, WORLD, &requests[i]);
            } else if (rank != 0) {
                continue;
            } else if (what == TIMED_PUT) {
                MPI_Put(mine, length, MPI_BYTE, 1, 0, length, MPI_BYTE, win);
            } else if (what == TIMED_GET) {
                MPI_Get(mine, length, MPI_BYTE, 1, 0, length, MPI_BYTE, win);
            } else {
                MPI_Accumulate(mine, length / 8, MPI_DOUBLE, 1, 0, length / 8,
                               MPI_DOUBLE, MPI_SUM, win);
            }
        }
        if (what != TIMED_MESSAGE) {
            MPI_Win_flush(1, win);
            continue;
        }
        MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
        if (rank == 0) {
            MPI_Recv(mine, count == 1 ? length : 0, MPI_BYTE, 1, 1, WORLD,
                     MPI_STATUS_IGNORE);
        } else {
            MPI_Send(other, count == 1 ? length : 0, MPI_BYTE, 0, 1, WORLD);
        }
    }
    start = (ucx_mp_time() - start) / turns;
    return ((what == TIMED_MESSAGE) && (count == 1)) ? start / 2 : start;
}

static void measure(void)
{
    static const char *const names[] = {"put", "get", "sum", "message"};
    const int most = 64 << 20;
    char *mine     = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, most);
    char *other    = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, most);
    int length, what;
    double latency, all;

    MPI_Win_create(other, most, 1, MPI_INFO_NULL, WORLD, &win);
    MPI_Win_lock_all(0, win);
    for (length = 8; length <= most; length *= 8) {
        for (what = 0; what < NUM_TIMED; ++what) {
            latency = time_of(what, 1, length, mine, other);
            all     = time_of(what, AT_ONCE, length, mine, other);
            if (rank == 0) {
                printf("%10d bytes, %-7s: %9.2f us, %7.2f GB/s\n", length,
                       names[what], latency * 1e6,
                       AT_ONCE * 1e-9 * length / all);
            }
        }
    }
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, mine);
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, other);
}

/* ----------------------------------------------------------------- threads */

#define LONG_GET  (8 << 20)
#define SHORT_GET (64 << 10)
#define PEER      1

typedef struct {
    int room, at_once; /* bytes of a get, gets before a flush */
    int turns;
} getter_t;

/* Get GPU buffers from rank 1's host memory and flush, while another thread
   does the same. A flush must not end gets that it has not completed. */
static void *get_and_flush(void *arg)
{
    const getter_t *getter = arg;
    const size_t all       = (size_t)getter->room * getter->at_once;
    uint8_t *is            = malloc(all);
    char *buffer;
    size_t at;
    int turn, i;

    ucx_mp_gpu_require(rank); /* of this thread */
    buffer = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, all);
    for (turn = 0; turn < getter->turns; ++turn) {
        ucx_mp_mem_set(UCX_MP_MEM_DEVICE, buffer, 0x5a, all);
        for (i = 0; i < getter->at_once; ++i) {
            MPI_Get(buffer + (size_t)i * getter->room, getter->room, MPI_BYTE,
                    PEER, 0, getter->room, MPI_BYTE, win);
        }
        MPI_Win_flush(PEER, win);
        ucx_mp_mem_get(UCX_MP_MEM_DEVICE, is, buffer, all);
        for (at = 0; (at < all) && (is[at] == 0x33); ++at) {
        }
        if (at < all) {
            fail("a flush left bytes of a get", turn, (long)at);
        }
        __atomic_fetch_add(&num_gets, getter->at_once, __ATOMIC_RELAXED);
    }
    free(is);
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, buffer);
    return NULL;
}

static void thread_start(pthread_t *thread, void *(*func)(void*), void *arg)
{
    if (pthread_create(thread, NULL, func, arg) != 0) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "no thread");
    }
}

/* Let the other ranks wait for rank 0, with progress now and then. */
static void let_end(void)
{
    MPI_Request request;
    int is_over = 0;

    MPI_Ibarrier(WORLD, &request);
    while (!is_over) {
        usleep((rank == 0) ? 0 : 1000);
        MPI_Test(&request, &is_over, MPI_STATUS_IGNORE);
    }
}

/* Two threads of rank 0 get and flush. */
static void run_threads(void)
{
    getter_t large  = {LONG_GET, 4, 10};
    getter_t small  = {SHORT_GET, 1, 60};
    char *memory    = malloc(LONG_GET);
    pthread_t thread;

    memset(memory, 0x33, LONG_GET);
    MPI_Win_create(memory, LONG_GET, 1, MPI_INFO_NULL, WORLD, &win);
    MPI_Win_lock_all(0, win);
    if (rank == 0) {
        thread_start(&thread, get_and_flush, &large);
        (void)get_and_flush(&small);
        pthread_join(thread, NULL);
    }
    let_end();
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
    free(memory);
    ++made;
}

/* Lock and unlock a rank, for the MPI without a message. */
static void *lock_often(void *arg)
{
    const int *target = arg;
    int turn;

    for (turn = 0; turn < 200000; ++turn) {
        MPI_Win_lock(MPI_LOCK_SHARED, *target, MPI_MODE_NOCHECK, win);
        MPI_Win_unlock(*target, win);
    }
    return NULL;
}

/* Two threads of rank 0 lock two ranks with host memory in a window with GPU
   memory. Afterwards there is no lock. */
static void run_locks(void)
{
    const ucx_mp_mem_t mem = (rank == 0) ? UCX_MP_MEM_DEVICE : UCX_MP_MEM_HOST;
    char *memory           = ucx_mp_mem_alloc(mem, 64);
    int targets[]          = {1, 2};
    pthread_t thread;

    MPI_Win_create(memory, 64, 1, MPI_INFO_NULL, WORLD, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    if (rank == 0) {
        thread_start(&thread, lock_often, &targets[0]);
        (void)lock_often(&targets[1]);
        pthread_join(thread, NULL);
        expect(MPI_Win_flush_all(win) == MPI_SUCCESS, "a flush after locks");
        expect(MPI_Win_sync(win) == MPI_SUCCESS, "a sync after locks");
    }
    let_end();
    MPI_Win_free(&win);
    ucx_mp_mem_free(mem, memory);
    ++made;
}

/* Print the results of all ranks. @return The program's exit status. */
static int report(void)
{
    const uint64_t counts[4] = {wrong, num_puts, num_gets, changes};
    uint64_t sums[4];

    MPI_Allreduce(counts, sums, 4, MPI_UINT64_T, MPI_SUM, WORLD);
    if (rank == 0) {
        printf("%s: %d windows, %d puts, %d gets, %d changes, %d wrong\n",
               ucx_mp_program, (int)made, (int)sums[1], (int)sums[2],
               (int)sums[3], (int)sums[0]);
    }
    return (sums[0] == 0) ? UCX_MP_EXIT_OK : UCX_MP_EXIT_WRONG;
}

int main(int argc, char **argv)
{
    uint64_t i;
    size_t room;
    int rc, r;

    ucx_mp_program = "ucx_mp_windows";
    ucx_mp_parse_options(argc, argv, "Makes random one-sided calls.", options);
    MPI_Init_thread(&argc, &argv,
                    has_threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &r);
    if (has_threads && (r < MPI_THREAD_MULTIPLE)) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "the MPI has no MPI_THREAD_MULTIPLE");
    }
    ucx_mp_get_rank(&rank, &size);
    if (size > MAX_RANKS) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "at most %d ranks", MAX_RANKS);
    }
    if (!on_host) {
        ucx_mp_gpu_require(rank);
    }

    if ((is_timed && (size != 2)) || (has_threads && (size < 2))) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "--speed and --threads need two ranks");
    } else if (has_threads) {
        run_threads();
        if (size > 2) {
            run_locks();
        }
        rc = report();
        MPI_Finalize();
        return rc;
    } else if (is_timed) {
        measure();
        MPI_Finalize();
        return UCX_MP_EXIT_OK;
    }

    room = (size_t)size * PART + WORDS * 8;
    for (r = 0; r < size; ++r) {
        images[r] = malloc(room);
    }
    look = malloc(room + 2 * GUARD);
    MPI_Comm_group(WORLD, &everybody);
    MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, attribute_deleted, &keyval,
                          NULL);

    edge_rejected();
    edge_short_gets();
    edge_flush_no_rank();
    edge_handler();
    edge_gpu();
    state = ucx_mp_hash(seed);
    for (i = 0; i < epochs; ++i) {
        if (i % 12 == 0) {
            if (i > 0) {
                errors();
                window_free();
            }
            window_make();
        }
        switch (below(6)) {
        case 0:
            epoch_sums((int)i);
            break;
        case 3:
            epoch_pairs((int)i);
            break;
        case 2:
            epoch_late((int)i);
            break;
        case 1:
            epoch_counters((int)i);
            break;
        default:
            epoch((int)i);
        }
    }
    window_free();

    rc = report();
    MPI_Win_free_keyval(&keyval);
    MPI_Group_free(&everybody);
    MPI_Finalize();
    return rc;
}
