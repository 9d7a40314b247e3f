/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * CUDA contexts: retain one for each device on demand, make it current and
 * restore the previous one, enable peer access once for each pair.
 * context_data.h has the module's data of each context.
 *
 * A device is the ordinal of a GPU in this process, equal to its CUdevice.
 */
#ifndef UCT_CUDA_BASE_CTX_H
#define UCT_CUDA_BASE_CTX_H

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/end.h>

#include <stdbool.h>
#include <stdint.h>

BEGIN_C_DECLS


/** Return the number of GPUs visible to this process; 0 without a driver.
 *  Never logs. */
int uct_cuda_device_count(void);


/**
 * Retain a context of a device.
 *
 * Without @a is_copy_only it is the primary context. With it, it is any
 * existing one: the retained one, the primary one if active, otherwise one of
 * the module for copies only. Without space for kernels' stacks that takes 265
 * of 529 MiB of the GPU's memory (measured on H200); a primary context needs
 * the full size, as the program may use it later. A context of the module stays
 * until the process ends: memory may have been registered in it, and its handle
 * must remain valid.
 *
 * Creating a context takes 0.11 to 0.24 s, so call this only just before its
 * use. Each success needs one uct_cuda_ctx_release(), even if the program has
 * reset the device. Thread safe; does not change the current context.
 *
 * @return UCS_OK, UCS_ERR_NO_DEVICE, or the driver's error (logged).
 */
ucs_status_t
uct_cuda_ctx_retain(int device, bool is_copy_only, CUcontext *cuda_p);

void uct_cuda_ctx_release(int device);


/** Retain the context like uct_cuda_ctx_retain() if it is retained already
 *  and has not been reset. */
bool uct_cuda_ctx_retain_kept(int device, CUcontext *cuda_p);

/** Return the module's context on a device, for copies only, whether or not
 *  another one is retained. Created at first use like in
 *  uct_cuda_ctx_retain(), and kept. */
ucs_status_t uct_cuda_ctx_own(int device, CUcontext *cuda_p);

/** Return whether the retained context is the module's while the primary one
 *  is active, too. The program's memory on this device then belongs to the
 *  primary one. */
bool uct_cuda_ctx_has_two(int device);

/** Return whether a context exists, the module's or an active primary one,
 *  so that retaining takes no time. Never logs. */
bool uct_cuda_ctx_is_active(int device);


/** Get a context's id, as from uct_cuda_ctx_current(). @return Whether it is
 *  known. */
bool uct_cuda_ctx_get_id(CUcontext cuda, unsigned long long *id_p);

/**
 * Return the calling thread's context and its id, unique in this process (the
 * driver's id; its address before CUDA 12).
 *
 * @return UCS_OK; UCS_ERR_IO_ERROR: no current context.
 */
ucs_status_t uct_cuda_ctx_current(CUcontext *cuda_p, unsigned long long *id_p);

/** Return the id of a context; 0 if it is gone. */
unsigned long long uct_cuda_ctx_id(CUcontext cuda);

/**
 * Return whether @a cuda is still the context with this id, and not destroyed.
 *
 * A program may reset its device (cudaDeviceReset()) between any two messages.
 * The driver continues to accept the handle, which is also that of the device's
 * next context; but a call with a stream of the old context crashes the
 * program, and a call with a graph of it crashes or never returns (H100, driver
 * 580). Such handles must be dropped. Memory is gone with the context; events
 * report that it is gone.
 */
bool uct_cuda_ctx_is_alive(CUcontext cuda, unsigned long long id);


/** Make a context current; uct_cuda_ctx_pop() restores the previous one.
 *  Both together cost 0.12 us. A failure is logged and needs no pop. */
ucs_status_t uct_cuda_ctx_push(CUcontext cuda);

/**
 * Make a context current if it is alive, see uct_cuda_ctx_is_alive(). Never
 * logs.
 *
 * @return true: it is current and needs a pop.
 */
bool uct_cuda_ctx_push_alive(CUcontext cuda, unsigned long long id);

void uct_cuda_ctx_pop(void);


/** Time that an idle GPU needs to answer, with a margin (ns). The event of an
 *  idle stream takes 10 us (H100). */
#define UCT_CUDA_CTX_ANSWER_NS (100 * 1000)

/**
 * Return whether all streams of the current context are idle, now or within @a
 * wait_ns (nanoseconds). If so, a driver call that waits for queued work
 * returns. Work that runs longer may be waiting for the program.
 *
 * While a blocking stream is under capture, the answer is true without a query:
 * the module assumes that such a program has queued no work that waits for it.
 * The query invalidates every capture of other streams in the context, in
 * whatever mode, so it must be called rarely. After that, and for the next
 * 10 s, the answer is true as well. Drivers before CUDA 12.5 lack the query:
 * true.
 */
bool uct_cuda_ctx_is_idle(uint64_t wait_ns);

/**
 * Wait until the current context is idle, for 2 ms at most. Within 0.1 s after
 * a wait that timed out, wait for 0.1 ms at most: a program may keep its GPU
 * busy in each call. Use this before a driver call that waits for all work of
 * the context (loading a kernel, closing a mapping), since that work may wait
 * for the program.
 *
 * @param busy_p  Time of the last wait that timed out, ns; 0: none. Threads may
 *                share it.
 *
 * @return As uct_cuda_ctx_is_idle().
 */
bool uct_cuda_ctx_wait_idle(uint64_t *busy_p);

/** Return whether the last answer was negative within the last second.
 *  Leaves captures intact. */
bool uct_cuda_ctx_was_busy(void);


/**
 * Let copies of @a device's context access memory of @a peer. Both contexts
 * must be retained. Queries the driver once for each pair. For contexts and
 * programs of the module.
 *
 * @return UCS_OK; UCS_ERR_UNREACHABLE: not possible in hardware (remembered,
 *         debug message); another driver error (logged).
 */
ucs_status_t uct_cuda_ctx_enable_peer(int device, int peer);


/**
 * Like uct_cuda_ctx_enable_peer(), unless both contexts are the program's (and
 * the driver could have created one of the module). Only the program enables
 * access between its own contexts: its cudaDeviceEnablePeerAccess() would fail
 * after the module's. Access enabled by the program is used. The query changes
 * nothing: enabling access and disabling it again would take it from a program
 * that enables it meanwhile.
 *
 * @param memory  Memory of @a peer to be accessed.
 * @param ours_p  The module has enabled it, permanently; else the program may
 *                change it at any time.
 * @return As uct_cuda_ctx_enable_peer(); UCS_ERR_UNREACHABLE also if the
 *         program has not enabled it (debug message).
 */
ucs_status_t
uct_cuda_ctx_reach_peer(int device, int peer, CUdeviceptr memory, bool *ours_p);


/** Return whether copies in a context of the program can access this memory
 *  of another GPU. The driver has no device pointer of it for a context
 *  without access (measured on H200, driver 580); this query changes
 *  nothing. */
bool uct_cuda_ctx_has_peer(CUcontext cuda, CUdeviceptr memory);

/** Return the module's context on a device, with access to memory of another
 *  context; NULL: not possible. */
CUcontext
uct_cuda_ctx_own_for(int device, CUcontext owner, CUdeviceptr memory);


/** Reference to a context, taken on entering it. */
typedef enum {
    UCT_CUDA_CTX_RETAINED_NONE,
    UCT_CUDA_CTX_RETAINED_PRIMARY, /**< Of the primary context */
    UCT_CUDA_CTX_RETAINED_KEPT     /**< Of the engine's */
} uct_cuda_ctx_retained_t;


/** Context made current for some time. */
typedef struct {
    CUcontext               cuda;
    int                     device;    /**< Its device */
    bool                    is_pushed; /**< Was not current before */
    uct_cuda_ctx_retained_t retained;
} uct_cuda_ctx_scope_t;


/**
 * Make a context current to access memory of a device.
 *
 * @param cuda  Context of the memory. NULL, for memory without one (pools,
 *              VMM): the primary context of the device if active, else the
 *              current context if it is on the device, else the one
 *              retained for the engine.
 *
 * @return UCS_OK, UCS_ERR_NO_DEVICE (not active), UCS_ERR_IO_ERROR.
 */
ucs_status_t uct_cuda_ctx_enter(CUcontext cuda, int device,
                                uct_cuda_ctx_scope_t *context);

/**
 * Make the engine's context on a device current, for copies; it may be one of
 * the module.
 *
 * @return UCS_OK, UCS_ERR_NO_DEVICE (none), UCS_ERR_IO_ERROR.
 */
ucs_status_t uct_cuda_ctx_enter_kept(int device, uct_cuda_ctx_scope_t *context);

/**
 * Make any usable context current: the current one, else the active primary one
 * of @a gpu, or the first one if that is none.
 *
 * @param memory  Without @a gpu, memory from cuMemCreate that the context's GPU
 *                must be able to access; 0: none.
 * @return UCS_OK, UCS_ERR_NO_DEVICE (none), UCS_ERR_IO_ERROR.
 */
ucs_status_t uct_cuda_ctx_enter_any(uct_cuda_end_t gpu, CUdeviceptr memory,
                                    uct_cuda_ctx_scope_t *context);

/**
 * Make a context current for GPU memory without a context, from cuMemCreate or
 * a pool. If its GPU has no context in this process, because the program has
 * imported a peer's memory, use a context of another GPU with access. If its
 * GPU's context was created by the program and cannot be found, use one of the
 * module.
 *
 * @param device  GPU of the memory.
 * @return UCS_OK, or an error: no usable context.
 */
ucs_status_t uct_cuda_ctx_enter_for(int device, CUdeviceptr memory,
                                    uct_cuda_ctx_scope_t *context);

void uct_cuda_ctx_leave_entered(const uct_cuda_ctx_scope_t *context);

/** Make the context before an enter current again, and release what that
 *  retained. Does nothing after an enter that failed. */
static inline void uct_cuda_ctx_leave(const uct_cuda_ctx_scope_t *context)
{
    if (context->is_pushed) {
        uct_cuda_ctx_leave_entered(context);
    }
}


END_C_DECLS

#endif
