/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contexts: kept on demand, one a device; a stack that is left as it was found;
 * peer access enabled once a pair.
 *
 * "Device" is the ordinal of a GPU in this process, which is also its CUdevice.
 */
#ifndef UCT_CUDA_BASE_CTX_H
#define UCT_CUDA_BASE_CTX_H

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/end.h>

#include <stdbool.h>
#include <stdint.h>

BEGIN_C_DECLS


/** Number of GPUs that this process sees; 0 without a driver. No logging. */
int uct_cuda_device_count(void);


/**
 * Keep a context of a device.
 *
 * Without @a is_copy_only, its primary one. With it, whichever there is: the
 * retained one, the primary one if it is active, else one of our own, which is
 * for copies only. Having no room for kernels' stacks, that takes 265 of 529
 * MiB of the GPU's memory (measured on H200); a primary one cannot do without,
 * as the program may use it later. It stays to the end of the process, since
 * memory may have been registered in it and its handle must stay good.
 *
 * Creating one takes 0.11 to 0.24 s, so ask only when it is about to be used.
 * Every success needs a uct_cuda_ctx_release(), whether the program has reset
 * the device since or not. Any thread; does not change the current context.
 *
 * @return UCS_OK, UCS_ERR_NO_DEVICE, or the driver's error (logged).
 */
ucs_status_t
uct_cuda_ctx_retain(int device, bool is_copy_only, CUcontext *ctx_p);

void uct_cuda_ctx_release(int device);


/** As uct_cuda_ctx_retain(), if the context is kept by somebody already and
 *  has not been reset. */
bool uct_cuda_ctx_retain_kept(int device, CUcontext *ctx_p);

/** A context of our own on a device, for copies only, whatever is kept there:
 *  made at first use, as uct_cuda_ctx_retain() makes one, and stays. */
ucs_status_t uct_cuda_ctx_own(int device, CUcontext *ctx_p);

/** Is the context that is kept one of our own, and the primary one active by
 *  now? The program's memory on this device belongs to that one then. */
bool uct_cuda_ctx_has_two(int device);

/** Is there a context to keep, ours or an active primary one, so that it takes
 *  no time? No logging. */
bool uct_cuda_ctx_is_active(int device);


/** A context's number, as uct_cuda_ctx_current() has it. @return Whether it is
 *  known. */
bool uct_cuda_ctx_get_id(CUcontext ctx, unsigned long long *id_p);

/**
 * The calling thread's context, and a number that no other context of this
 * process has or will have (the driver's id; its address before CUDA 12).
 *
 * @return UCS_OK; UCS_ERR_IO_ERROR when no context is current.
 */
ucs_status_t uct_cuda_ctx_current(CUcontext *ctx_p, unsigned long long *id_p);

/** That number; 0 if the context is gone. */
unsigned long long uct_cuda_ctx_id(CUcontext ctx);

/**
 * Is @a ctx still the context that had this number, and not destroyed?
 *
 * A program may reset its device (cudaDeviceReset()) between any two messages.
 * The driver then goes on taking the handle, which is also that of the device's
 * next context; but a call with one of the old one's streams ends the program,
 * and so does one with a graph of it, or never returns (H100, driver 580). Such
 * handles are to be forgotten. Memory went with the context; events answer that
 * it is gone.
 */
bool uct_cuda_ctx_is_alive(CUcontext ctx, unsigned long long id);


/**
 * Make a context current; uct_cuda_ctx_pop() restores the one before. Costs
 * 0.12 us for the pair. A failure is logged and needs no pop.
 */
ucs_status_t uct_cuda_ctx_push(CUcontext ctx);

/** The same, if it is still alive: as uct_cuda_ctx_is_alive(). Logs nothing.
 *  @return Whether it is current now. */
bool uct_cuda_ctx_push_alive(CUcontext ctx, unsigned long long id);

void uct_cuda_ctx_pop(void);


/**
 * Is the current context idle, or soon (@a wait_ns, nanoseconds), in all its
 * streams? Then a call that waits for queued work comes back. What goes on for
 * longer may be waiting for the program.
 *
 * Ends every capture that is under way in the context, in whatever mode, so it
 * is for once in a while only. Then, and for 10 s, the answer is yes: a program
 * that captures has the GPU work by itself. Drivers before CUDA 12.5 cannot
 * say: yes.
 */
bool uct_cuda_ctx_is_idle(uint64_t wait_ns);

/** Was the last answer to that no, within a second? Breaks no capture. */
bool uct_cuda_ctx_was_busy(void);


/**
 * Let copies of @a device's context reach memory of @a peer's. Both must be
 * kept. The driver is asked once a pair. For contexts and programs of our own.
 *
 * @return UCS_OK; UCS_ERR_UNREACHABLE when the hardware has no way (remembered,
 *         debug message); another driver error (logged).
 */
ucs_status_t uct_cuda_ctx_enable_peer(int device, int peer);


/**
 * The same, unless both contexts are the program's (and the driver could have
 * made one of our own): access between those is the program's to enable, and
 * its cudaDeviceEnablePeerAccess() would fail after ours. What it has enabled
 * is used. Nothing changes by asking: to enable access and disable it again
 * would take it from a program that enables it meanwhile.
 *
 * @param memory  Of @a peer's, that is to be reached.
 * @param ours_p  Is it for us to enable? Then it stays; else the program may
 *                change it at any time.
 * @return As uct_cuda_ctx_enable_peer(); UCS_ERR_UNREACHABLE also where the
 *         program has not enabled it (debug message).
 */
ucs_status_t
uct_cuda_ctx_reach_peer(int device, int peer, CUdeviceptr memory, bool *ours_p);


/**
 * May copies of a context of the program's reach this memory of another GPU's?
 * The driver has no device pointer of it for a context that may not (measured
 * on H200, driver 580); this asks and changes nothing.
 */
bool uct_cuda_ctx_has_peer(CUcontext ctx, CUdeviceptr memory);


END_C_DECLS

#endif
