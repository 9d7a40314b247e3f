/* SPDX-License-Identifier: BSD-3-Clause */

/* Objects behind handles. */
#ifndef CUEMU_OBJECT_H_
#define CUEMU_OBJECT_H_

#include <stddef.h>
#include <stdint.h>

/* Header of all objects behind handles. Handles are checked without being
   dereferenced. Memory of deleted objects is reused late, so that stale handles
   are detected. */
typedef struct cuemu_object {
    uint32_t             type;
    struct cuemu_object *next_free;
} cuemu_object_t;

typedef enum {
    CUEMU_OBJ_FREE = 0,
    CUEMU_OBJ_CONTEXT,
    CUEMU_OBJ_STREAM,
    CUEMU_OBJ_EVENT,
    CUEMU_OBJ_POOL,
    CUEMU_OBJ_HANDLE,
    CUEMU_OBJ_GRAPH,
    CUEMU_OBJ_NODE,
    CUEMU_OBJ_EXEC,
    CUEMU_OBJ_MODULE,
    CUEMU_OBJ_FUNCTION,
    CUEMU_OBJ_LIBRARY,
    CUEMU_OBJ_LINK,
    CUEMU_OBJ_KERNEL,
    CUEMU_OBJ_LAST
} cuemu_obj_type_t;

/* Return a zeroed object of `size` bytes, or NULL. The size is the same for all
   objects of a type. */
void *cuemu_object_new(cuemu_obj_type_t type, size_t size);

/* Make a live object's handle invalid, and its memory available to later
   objects of the type. Not for retired objects. */
void cuemu_object_delete(void *obj);

/* Return the number of live objects of the type. */
unsigned cuemu_object_count(cuemu_obj_type_t type);

/* Return the live object of this type behind `handle`, or NULL. */
void *cuemu_object_check(const void *handle, cuemu_obj_type_t type);

/* Make an object's handle invalid when its context ends. The memory is never
   reused. */
void cuemu_object_retire(void *obj);

/* Undo cuemu_object_retire(), for a primary context that begins again. */
void cuemu_object_revive(void *obj);

/* Return non-zero if the object was retired. */
int cuemu_object_is_stale(const void *handle, cuemu_obj_type_t type);

/* Return the live object behind `after` (NULL: the first), in any order; NULL
   after the last. No other thread may create or delete objects of the type
   meanwhile. */
void *cuemu_object_next(cuemu_obj_type_t type, const void *after);

/* End the program with a sentence on stderr, where the real driver crashes or
   never returns. */
void cuemu_die(const char *what, const void *handle)
        __attribute__((noreturn));

/* Lock this process's tables. Take this lock before the session's. */
void cuemu_lock(void);
void cuemu_unlock(void);

#endif
