/* The functions that the files of the API share: entering, and checking arguments. */
#ifndef WN_API_H
#define WN_API_H
#include "../base/alloc.h"
#include "handle.h"
#include "../io/file.h"
#include "../io/lock.h"
#include "../run/watch/watch.h"
#include "../program/program.h"
#include "../run/run.h"
#include "../wane.h"
#include "../wane_inspect.h"
#include "../wane_process.h"
#include "../wane_test.h"

/* Begins a call: releases what is in the queue of handles. Fails with WN_VALUE in another thread, and after a fork. */
int32_t wn__enter(void);
/* Copies n bytes into a value of data, from its byte `at` on; of a value without dims, all of them. */
int32_t wn__value_write(struct wn_node *v, int64_t at, const void *bytes, int64_t n);

/* Evaluates `expr` and returns -(its status) from the enclosing function, which returns an id, unless it is WN_OK. */
#define WN_TRY_ID(expr)                                                                                                \
    do {                                                                                                               \
        int32_t wn_try_code_ = (expr);                                                                                 \
        if (wn_try_code_ != WN_OK) return -wn_try_code_;                                                               \
    } while (0)

/* Return the program of a handle, the cell of one, and the plan of a program, which has a schedule only once it is
 * planned; NULL, with a message, when it is a handle of something else. */
static inline struct wn_program *wn__get_program(int32_t handle)
{
    return wn__handle_get(handle, WN_HANDLE_PROGRAM);
}
static inline struct wn_cell *wn__get_cell(int32_t handle)
{
    return wn__handle_get(handle, WN_HANDLE_CELL);
}
static inline struct wn__plan *wn__get_plan(int32_t handle)
{
    struct wn_program *p = wn__get_program(handle);
    return p == NULL ? NULL : &p->plan;
}
/* Returns the plan of a program that is planned; NULL, with a message, for another. */
struct wn__plan *wn__get_planned(int32_t handle);

/* ---- check.c: each returns WN_OK, or a status with a message that `what` opens -------------------------------- */
/* Fails with WN_VALUE for NULL. */
int32_t wn__need(const void *pointer, const char *what);
/* Fails with WN_VALUE unless 0 <= n <= most and the array of n > 0 entries is not NULL. */
int32_t wn__check_array(const void *array, int64_t n, int64_t most, const char *what);
/* Fails with WN_VALUE unless n bytes from byte `at` are a range, and `bytes` is not NULL where n > 0. */
int32_t wn__check_bytes(const void *bytes, int64_t at, int64_t n, const char *what);
/* Fails unless a type may exist. */
int32_t wn__check_type(const struct wn_type *type, const char *what);
/* Fails with WN_DEVICE unless there is such a device. */
int32_t wn__check_device(int32_t device, const char *what);
/* Fails unless the dtype, the layout and the count of attributes exist. NULL: none. */
int32_t wn__check_attrs(int32_t op, const struct wn_attrs *a);
/* Fails with WN_VALUE unless the dtype holds the number; floats hold every one. */
int32_t wn__check_number(double v, int32_t dtype, const char *what);
/* Fails with WN_VALUE unless a cell of this kind may begin as the value `init`. */
int32_t wn__check_cell(int32_t kind, const struct wn_node *init);
/* Fails unless counts and mode of a request fit each other. */
int32_t wn__check_request(const struct wn_request *r);
/* Fails unless the arrays of a recipe are there and its steps name ranges of them. */
int32_t wn__check_recipe(const struct wn_recipe_given *g);
#endif
