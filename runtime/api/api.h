/* What the files of the API share. */
#ifndef WN_API_H
#define WN_API_H
#include "../base/alloc.h"
#include "handle.h"
#include "../io/file.h"
#include "../io/lock.h"
#include "../plan/chain/chain.h"
#include "../program/cache.h"
#include "../plan/ir/rewrite.h"
#include "../run/anomaly.h"
#include "../run/check.h"
#include "../program/program.h"
#include "../run/run.h"
#include "../wane.h"
#include "../wane_chain.h"
#include "../wane_inspect.h"
#include "../wane_process.h"
#include "../wane_test.h"

int32_t wn__enter(void); /* drains the queue of finalizers; refuses other threads, and after a fork */
/* A handle for a node just made (takes the reference over): id or -(status). */
int32_t wn__api_value(int32_t code, struct wn_node *n);

/* api/check.c: what a caller gives, looked at before it is used. Each returns WN_OK, or a status with words; `what` opens
 * them. */
int32_t wn__need(const void *pointer, const char *what);
int32_t wn__check_array(const void *array, int64_t n, int64_t most, const char *what);
int32_t wn__check_bytes(const void *bytes, int64_t at, int64_t n, const char *what); /* n of them, from byte `at` */
int32_t wn__check_type(const struct wn_type *type, const char *what);
int32_t wn__check_device(int32_t device, const char *what);
int32_t wn__check_op(int32_t op, int32_t n_inputs);
int32_t wn__check_attrs(int32_t op, const struct wn_attrs *a); /* NULL: none */
int32_t wn__check_number(double v, int32_t dtype, const char *what);
int32_t wn__check_cell(int32_t kind, const struct wn_node *init);
int32_t wn__check_update(const struct wn_update *u, int64_t stamp); /* stamp: of the cells met in this request */
int32_t wn__check_request(const struct wn_request *r);
int32_t wn__check_recipe(const struct wn_recipe_given *g);
int32_t wn__check_chain(const struct wn_chain *c);

/* api/request.c: turns the handles of a checked request into pointers. Release it on failure too. */
int32_t wn__request_resolve(const struct wn_request *r, struct wn__program_request *out);
void wn__request_release(struct wn__program_request *resolved);
#endif
