/* What the family files share among themselves, beyond the contract of op.h: dtype checks by name, types
 * built from attributes, and costs of a given weight. Nothing outside ops/ includes this. */
#ifndef WN_OPS_HELPER_H
#define WN_OPS_HELPER_H
#include <inttypes.h>
#include <stddef.h>
#include "op.h"

/* ---- dtypes: each fails with the op's name, the input's number and what would be accepted ---------- */
int32_t wn__need_arith(const struct wn_desc *d);               /* all inputs f32, bf16, f64 or i32 */
int32_t wn__need_ids(const struct wn_desc *d, int32_t i);      /* input i is i32 */
int32_t wn__need_float_at(const struct wn_desc *d, int32_t i); /* input i is f32, bf16 or f64 */
int32_t wn__same_dtype_at(const struct wn_desc *d, int32_t i, int32_t j);
/* The dtype may be an element type of this version: f32, bf16, f64, i32 or u8. */
int32_t wn__need_element(const struct wn_desc *d, int32_t dtype);

/* ---- shapes ---------------------------------------------------------------------------------------- */
int32_t wn__need_shape(const struct wn_desc *d, int32_t i, const struct wn_type *want, const char *who);
int32_t wn__shape_from_attrs(struct wn_desc *d); /* out.dim = attrs.i[0..n), checked; the dtype is left alone */
int32_t wn__broadcast_two(struct wn_desc *d, const struct wn_type *a, const struct wn_type *b, struct wn_type *out);
int32_t wn__like_first_any(struct wn_desc *d);   /* out = in[0], whatever its dtype */
int32_t wn__shape_derivative(struct wn_desc *d); /* (dy, x or y): the same float type; out = it */
int32_t wn__check_out(const struct wn_desc *d);  /* the bytes of out fit */

/* ---- costs ----------------------------------------------------------------------------------------- */
double wn__all_bytes(const struct wn_desc *d); /* each input read once, the output written once */
void wn__cost_per_output(const struct wn_desc *d, double flops, struct wn_cost *cost);
void wn__cost_per_input(const struct wn_desc *d, double flops, struct wn_cost *cost); /* an element of in[0] */
void wn__cost_move(const struct wn_desc *d, struct wn_cost *cost); /* no arithmetic, all bytes once */

/* ---- scratch --------------------------------------------------------------------------------------- */
/* Of ops whose kernels on the CPU go by whole rows: an f32 copy of each bf16 input and of a bf16 result, each padded,
 * in that order, of a stretch of rows where the op has stretches (stretch.h). Nothing for other types. */
int64_t wn__workspace_f32_copies(const struct wn_desc *d, const struct wn__target *t);
/* Of products, whether an op stands over them or not. */
int64_t wn__workspace_product(const struct wn_desc *d, const struct wn__target *t);

/* ---- gradients ------------------------------------------------------------------------------------- */
struct wn_attrs wn__attrs_shape(const struct wn_type *t); /* attributes that say t's shape */
struct wn_node *wn__emit_op(struct wn__grad *g, int32_t op, struct wn_node *a, const struct wn_attrs *attrs);
struct wn_node *wn__emit_reshape(struct wn__grad *g, struct wn_node *a, const struct wn_type *to);
struct wn_node *wn__emit_number(struct wn__grad *g, double v); /* 0-d, of the result's dtype */
struct wn_node *wn__emit_full(struct wn__grad *g, const struct wn_type *like, double v);
struct wn_node *wn__emit_mul(struct wn__grad *g, struct wn_node *a, struct wn_node *b);
/* Sums over one dim, 0-based, which stays as a dim of 1. */
struct wn_node *wn__emit_sum_dim(struct wn__grad *g, struct wn_node *a, int64_t dim);
/* Of a derivative op, which is linear in its input 0 and symmetric: dx[0] is the op itself, with the gradient that
 * arrives in the place of input 0. */
void wn__grad_linear_in_first(struct wn__grad *g);
/* Of attention_grad (ops/attention_second.c). */
void wn__grad_attention_grad(struct wn__grad *g);
#endif
