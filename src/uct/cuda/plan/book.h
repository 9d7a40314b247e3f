/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plans for sizes that change. Choosing takes milliseconds, and is much the
 * same for sizes near each other: it is done for a few sizes, and between two
 * of them one of their choices is taken. The book keeps what was found. It is
 * a memory, not a policy: the plan of a request is the same whatever the book
 * has seen before, so that ranks need not have seen the same.
 */
#ifndef UCT_CUDA_COLL_BOOK_H
#define UCT_CUDA_COLL_BOOK_H

#include <uct/cuda/plan/collective_planner.h>

BEGIN_C_DECLS


typedef struct uct_cuda_coll_book uct_cuda_coll_book_t;


/** An empty one, some hundred KB when it is full; NULL without memory. */
uct_cuda_coll_book_t *uct_cuda_coll_book_create(void);

void uct_cuda_coll_book_destroy(uct_cuda_coll_book_t *book);


/**
 * The plan of a request.
 *
 * @param book  Of requests that differ in kind, root, sizes and in whether they
 *              are in place alone; or NULL.
 * @param plan  Filled; to be released. No elements: no steps.
 * @return As uct_cuda_coll_choose().
 */
ucs_status_t uct_cuda_coll_plan(uct_cuda_coll_book_t *book,
                                const uct_cuda_coll_request_t *request,
                                uct_cuda_coll_plan_t *plan);


END_C_DECLS

#endif
