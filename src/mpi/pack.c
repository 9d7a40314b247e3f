/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi/pack.h>

#include <mpi/module.h>
#include <uct/cuda/base/capture.h>

#include <pthread.h>
#include <stdlib.h>


#define BLOCK_MIN ((size_t)64 << 10)
#define BLOCK_MAX ((size_t)64 << 20) /* up to here block sizes are powers of
                                        two */
#define IDLE_MAX  ((size_t)512 << 20) /* cached per context */
#define MAX_UNIT  16

typedef struct ucx_mp_mpi_context context_t;

/* Memory and kernel of a context. After a device reset a new context may have
   the same handle, but not the same id. */
struct ucx_mp_mpi_context {
    context_t              *next;
    CUcontext              ctx;
    unsigned long long     id;
    CUfunction             pack;
    bool                   is_tried;     /* loading; read without the lock */
    bool                   is_committed; /* MPI_Type_commit() has asked */
    uint64_t               busy;         /* see the module's may_load() */
    ucx_mp_kernels_t       *reductions;
    bool                   is_refused[UCX_MP_OP_LAST][UCX_MP_TYPE_LAST];
    ucx_mp_mpi_block_t *idle;
    size_t                 idle_size; /* bytes */
};

/* Copy of an element's rows in GPU memory of one context */
typedef struct rows rows_t;
struct rows {
    rows_t                 *next;
    context_t              *context;
    ucx_mp_mpi_block_t *block;
    unsigned long long     bits; /* bitwise OR of all offsets and lengths: gives
                                    their alignment */
};

static struct {
    pthread_mutex_t lock;
    context_t       *contexts;
} gpu = {.lock = PTHREAD_MUTEX_INITIALIZER};


/* Return the state of the copy's context, created at first use. NULL: the
   context has no id, or no memory is left. The caller holds the lock. */
static context_t *context_find(ucx_mp_mpi_copy_t *copy)
{
    ucx_mp_kernels_driver_t driver;
    unsigned long long id;
    context_t *context;

    if (!ucx_mp_mpi_copy_context_id(copy, &id)) {
        return NULL;
    }

    for (context = gpu.contexts; context != NULL; context = context->next) {
        if ((context->ctx == copy->ctx) && (context->id == id)) {
            return context;
        }
    }

    context = calloc(1, sizeof(*context));
    if (context != NULL) {
        context->ctx  = copy->ctx;
        context->id   = id;
        context->next = gpu.contexts;
        gpu.contexts  = context;
        if (ucx_mp_mpi_gpu_kernels(&driver)) {
            context->reductions = ucx_mp_kernels_create(&driver);
        }
    }
    return context;
}

/* The same for a caller without the lock. Contexts are never freed. */
static context_t *context_get(ucx_mp_mpi_copy_t *copy)
{
    context_t *context;

    pthread_mutex_lock(&gpu.lock);
    context = context_find(copy);
    pthread_mutex_unlock(&gpu.lock);
    return context;
}

/* Free idle memory until at most `size` bytes of it are left; `is_waited`: it
   is needed at once. The caller holds the lock, and the context is current. */
static void context_trim(context_t *context, size_t size, bool is_waited)
{
    ucx_mp_mpi_block_t *block;

    while ((context->idle != NULL) && (context->idle_size > size)) {
        block               = context->idle;
        context->idle       = block->next;
        context->idle_size -= block->size;
        ucx_mp_mpi_gpu_free_unused(block->address, is_waited);
        free(block);
    }
}

static ucx_mp_mpi_block_t *context_alloc(context_t *context, size_t size)
{
    ucx_mp_mpi_block_t *block = calloc(1, sizeof(*block));

    if (block == NULL) {
        return NULL;
    }

    context_trim(context, IDLE_MAX, false);
    block->context = context;
    block->size    = size;
    block->address = ucx_mp_mpi_gpu_alloc(size);
    if ((block->address == NULL) && (context->idle != NULL)) {
        context_trim(context, 0, true);
        block->address = ucx_mp_mpi_gpu_alloc(size);
    }
    if (block->address == NULL) {
        free(block);
        return NULL;
    }
    return block;
}

static ucx_mp_mpi_block_t *block_get(context_t *context, size_t size)
{
    ucx_mp_mpi_block_t *block;
    size_t rounded;

    if (size > SIZE_MAX - UCX_MP_MPI_GRANULE) {
        return NULL;
    }

    for (rounded = BLOCK_MIN; (rounded < size) && (rounded < BLOCK_MAX);
         rounded *= 2) {
    }
    if (rounded < size) {
        rounded = (size + UCX_MP_MPI_GRANULE - 1) & ~(UCX_MP_MPI_GRANULE - 1);
    }

    block = ucx_mp_mpi_block_take(&context->idle, rounded, 4 * rounded);
    if (block == NULL) {
        return context_alloc(context, rounded);
    }

    context->idle_size -= block->size;
    return block;
}

static void block_put(ucx_mp_mpi_block_t *block)
{
    block->next                = block->context->idle;
    block->context->idle       = block;
    block->context->idle_size += block->size;
}

ucx_mp_mpi_block_t *ucx_mp_mpi_gpu_block_get(ucx_mp_mpi_copy_t *copy,
                                             size_t size)
{
    ucx_mp_mpi_block_t *block = NULL;
    context_t *context;

    pthread_mutex_lock(&gpu.lock);
    context = context_find(copy);
    if (context != NULL) {
        block = block_get(context, size);
    }
    pthread_mutex_unlock(&gpu.lock);
    return block;
}

/* Make the context current and free idle blocks until at most IDLE_MAX bytes of
   them are left. The caller holds the lock, and there is an idle block. If the
   context is destroyed, so is its memory: do nothing. */
static void context_trim_now(context_t *context)
{
    ucx_mp_mpi_copy_t copy;
    unsigned long long id;

    ucx_mp_mpi_copy_begin(&copy, context->idle->address);
    if (ucx_mp_mpi_copy_context_id(&copy, &id) &&
        (copy.ctx == context->ctx) && (id == context->id)) {
        context_trim(context, IDLE_MAX, false);
    }
    (void)ucx_mp_mpi_copy_end(&copy);
}

void ucx_mp_mpi_block_put(ucx_mp_mpi_block_t *block)
{
    context_t *context;

    if (block == NULL) {
        return;
    }
    if (block->context == NULL) {
        ucx_mp_mpi_pool_put(block);
        return;
    }

    context = block->context;
    pthread_mutex_lock(&gpu.lock);
    block_put(block);
    if (context->idle_size > IDLE_MAX) {
        context_trim_now(context);
    }
    pthread_mutex_unlock(&gpu.lock);
}


/* Release an element's rows when the element is freed */
static void rows_free(void *on_gpu)
{
    rows_t *rows, *next;

    pthread_mutex_lock(&gpu.lock);
    for (rows = on_gpu; rows != NULL; rows = next) {
        next = rows->next;
        block_put(rows->block);
        free(rows);
    }
    pthread_mutex_unlock(&gpu.lock);
}

/* Convert the rows to the kernel's format. @return Bitwise OR of all
   numbers. */
static unsigned long long rows_write(const ucx_mp_mpi_layout_t *layout,
                                     ucx_mp_pack_rows_t *to)
{
    unsigned long long bits  = 0;
    unsigned long long first = 0;
    const ucx_mp_mpi_strided_t *from;
    size_t i;

    for (i = 0; i < layout->count; ++i) {
        from         = &layout->rows[i];
        to[i].offset = from->offset;
        to[i].stride = from->stride;
        to[i].packed = from->packed;
        to[i].step   = from->step;
        to[i].length = from->length;
        to[i].first  = first;
        first       += from->length * from->count;
        bits        |= to[i].offset | to[i].packed | to[i].length;
        if (from->count > 1) {
            bits |= to[i].stride | to[i].step;
        }
    }
    return bits;
}

static rows_t *rows_make(context_t *context, ucx_mp_mpi_copy_t *copy,
                         const ucx_mp_mpi_layout_t *layout)
{
    const size_t size        = layout->count * sizeof(ucx_mp_pack_rows_t);
    ucx_mp_pack_rows_t *list = malloc(size);
    rows_t *rows             = calloc(1, sizeof(*rows));

    if ((list == NULL) || (rows == NULL)) {
        goto err;
    }

    rows->context = context;
    rows->bits    = rows_write(layout, list);
    rows->block   = block_get(context, size);
    if (rows->block == NULL) {
        goto err;
    }

    if (!ucx_mp_mpi_copy_upload(copy, rows->block->address, list, size)) {
        block_put(rows->block);
        goto err;
    }

    free(list);
    return rows;

err:
    free(list);
    free(rows);
    return NULL;
}

static rows_t *rows_find(const context_t *context,
                         const ucx_mp_mpi_element_t *element)
{
    rows_t *rows = element->on_gpu;

    while ((rows != NULL) && (rows->context != context)) {
        rows = rows->next;
    }
    return rows;
}

/* Return whether a kernel can be loaded now. Loading waits for all work on the
   GPU, which may wait for the program: not on a busy one. The answer takes up
   to 2 ms: the caller does not hold the lock. */
static bool context_may_load(context_t *context)
{
    const uct_cuda_coll_api_t *module = ucx_mp_mpi_module();

    return (module == NULL) || module->may_load(&context->busy);
}

/* Load the packing kernel, all calls in relaxed mode: the program may capture
   a graph meanwhile. @return Whether it is loaded. */
static bool context_load(context_t *context)
{
    ucx_mp_kernels_driver_t driver;
    bool is_changed;

    if (!__atomic_load_n(&context->is_tried, __ATOMIC_ACQUIRE)) {
        if (!context_may_load(context)) {
            return false;
        }

        pthread_mutex_lock(&gpu.lock);
        if (!context->is_tried) {
            is_changed = uct_cuda_capture_relax();
            if (!ucx_mp_mpi_gpu_kernels(&driver) ||
                (ucx_mp_pack_load(&driver, &context->pack) != CUDA_SUCCESS)) {
                context->pack = NULL;
            }
            uct_cuda_capture_restore(is_changed);
            __atomic_store_n(&context->is_tried, true, __ATOMIC_RELEASE);
        }
        pthread_mutex_unlock(&gpu.lock);
    }
    return context->pack != NULL;
}

void ucx_mp_mpi_pack_load(void)
{
    ucx_mp_mpi_copy_t copy;
    context_t *context;

    if ((ucx_mp_mpi_module() == NULL) || !ucx_mp_mpi_copy_here(&copy)) {
        return;
    }

    context = context_get(&copy);
    if ((context != NULL) &&
        !__atomic_exchange_n(&context->is_committed, true, __ATOMIC_RELAXED)) {
        (void)context_load(context);
    }
}

bool ucx_mp_mpi_pack_prepare(ucx_mp_mpi_copy_t *copy,
                             ucx_mp_mpi_element_t *element)
{
    context_t *context;
    rows_t *rows;

    if (element->layout.count > UINT32_MAX) {
        return false;
    }

    context = context_get(copy);
    if ((context == NULL) || !context_load(context)) {
        return false;
    }

    pthread_mutex_lock(&gpu.lock);
    rows = rows_find(context, element);
    if (rows == NULL) {
        rows = rows_make(context, copy, &element->layout);
        if (rows != NULL) {
            rows->next           = element->on_gpu;
            element->on_gpu      = rows;
            element->on_gpu_free = rows_free;
        }
    }
    pthread_mutex_unlock(&gpu.lock);
    return rows != NULL;
}

ucx_mp_kernels_t *ucx_mp_mpi_reduce_prepare(ucx_mp_mpi_copy_t *copy,
                                            ucx_mp_op_t op,
                                            ucx_mp_type_t type)
{
    context_t *context = context_get(copy);
    bool is_changed, *is_refused;

    if ((context == NULL) || (context->reductions == NULL)) {
        return NULL;
    }

    is_refused = &context->is_refused[op][type];
    if (!ucx_mp_kernels_are_loaded(context->reductions, op, type)) {
        if (__atomic_load_n(is_refused, __ATOMIC_RELAXED) ||
            !context_may_load(context)) {
            return NULL;
        }

        is_changed = uct_cuda_capture_relax();
        if (ucx_mp_kernels_load(context->reductions, op, type) !=
            CUDA_SUCCESS) {
            __atomic_store_n(is_refused, true, __ATOMIC_RELAXED);
        }
        uct_cuda_capture_restore(is_changed);
    }
    return __atomic_load_n(is_refused, __ATOMIC_RELAXED) ? NULL :
                                                           context->reductions;
}

void ucx_mp_mpi_pack(ucx_mp_mpi_copy_t *copy, ucx_mp_mpi_element_t *element,
                     const void *program, void *staged, size_t bytes,
                     bool is_back)
{
    ucx_mp_pack_args_t args = {
        .program  = (uintptr_t)program,
        .staged   = (uintptr_t)staged,
        .num_rows = element->layout.count,
        .extent   = element->extent,
        .element  = element->layout.size,
        .bytes    = bytes,
        .is_back  = is_back
    };
    unsigned long long bits = 0;
    CUfunction function     = NULL;
    context_t *context;
    rows_t *rows;

    if (bytes == 0) {
        return;
    }

    pthread_mutex_lock(&gpu.lock);
    context = context_find(copy);
    rows    = (context == NULL) ? NULL : rows_find(context, element);
    if (rows != NULL) {
        function  = context->pack;
        args.rows = (uintptr_t)rows->block->address;
        bits      = rows->bits;
    }
    pthread_mutex_unlock(&gpu.lock);

    bits |= args.program | args.staged | args.extent | args.element |
            args.bytes | MAX_UNIT;
    args.unit = bits & -bits;
    ucx_mp_mpi_copy_pack(copy, function, &args, program);
}
