/* Functions that the family files of runtime/ops/ share, beyond the contract of op.h: checks of dtypes and shapes, cost
 * rules, and the nodes that gradient rules record most. Only runtime/ops/ includes this header. */
#ifndef WN_OPS_HELPER_H
#define WN_OPS_HELPER_H
#include <inttypes.h>
#include <stddef.h>
#include "op.h"

/* ---- dtypes ---------------------------------------------------------------------------------------- */
/* Each fails with WN_DTYPE unless its comment holds; the message names the op, the input and what is accepted. */
int32_t wn__need_arith(const struct wn_desc *d);                          /* every input is f32, bf16, f64 or i32 */
int32_t wn__need_ids(const struct wn_desc *d, int32_t i);                 /* input i is i32 */
int32_t wn__need_float_at(const struct wn_desc *d, int32_t i);            /* input i is f32, bf16 or f64 */
int32_t wn__same_dtype_at(const struct wn_desc *d, int32_t i, int32_t j); /* inputs i and j have one dtype */
/* Fails with WN_DTYPE unless dtype is an element type of this version: f32, bf16, f64, i32 or u8. */
int32_t wn__need_element(const struct wn_desc *d, int32_t dtype);

/* ---- shapes ---------------------------------------------------------------------------------------- */
/* Fails with WN_SHAPE unless input i has the shape of `want`. who: what the message calls the input. */
int32_t wn__need_shape(const struct wn_desc *d, int32_t i, const struct wn_type *want, const char *who);
/* Fails with WN_SHAPE unless input i is an image (N, C, H, W). who: what the message calls the input. */
int32_t wn__need_image(const struct wn_desc *d, int32_t i, const char *who);
/* Fails with WN_VALUE unless least <= v <= WN_WINDOW_MOST, v being the number `what` of a window. */
int32_t wn__need_window(const struct wn_desc *d, const char *what, int64_t v, int64_t least);
/* Writes the shape attrs.i[0 .. attrs.n) to d->out; keeps its dtype. WN_VALUE where attrs.n is no number of dims. The
 * lengths are not checked: wn__check_out does that. */
int32_t wn__shape_from_attrs(struct wn_desc *d);
/* Writes the shape to which a and b broadcast to *out; keeps its dtype. Shapes are aligned at their last dims; a dim
 * that is 1 or missing takes the length of the other. WN_SHAPE where two lengths differ and neither is 1. */
int32_t wn__broadcast_two(struct wn_desc *d, const struct wn_type *a, const struct wn_type *b, struct wn_type *out);
/* Write the type of the result, that of the first input: d->out = d->in[0] of any dtype; of one that wn__need_arith or
 * wn__need_element takes. */
int32_t wn__like_first_any(struct wn_desc *d);
int32_t wn__like_first_arith(struct wn_desc *d);
int32_t wn__like_first_element(struct wn_desc *d);
/* Writes d->out of a derivative op (dy, x) or (dy, y): both inputs have one floating-point type, and so has d->out. */
int32_t wn__shape_derivative(struct wn_desc *d);
/* Fails with WN_VALUE where a dim of d->out is negative or its bytes do not fit int64_t. */
int32_t wn__check_out(const struct wn_desc *d);

/* ---- costs ----------------------------------------------------------------------------------------- */
/* Returns a cost of `flops` FLOPs, and of every byte of the inputs and of the result once. */
struct wn_cost wn__cost_of(const struct wn_desc *d, double flops);

/* ---- steps inside an op that a rewrite made --------------------------------------------------------- */
/* Fails unless there are `least` to `most` steps, elementwise ops whose operands are below `inputs`, or earlier steps
 * of an ELEMENTWISE. */
int32_t wn__check_steps(const struct wn_desc *d, const struct wn__fused *c, int32_t least, int32_t most,
                        int32_t inputs);

/* ---- ops inside an op that a rewrite made ----------------------------------------------------------- */
/* Returns the application of `op` to the first n_in inputs of d, with its attributes and its result. */
struct wn_desc wn__inside(const struct wn_desc *d, int32_t op, int32_t n_in);
/* Returns the MATMUL or LINEAR inside a MATMUL_MAP, a LINEAR_MAP or a PRODUCT_UPDATE. */
struct wn_desc wn__product_inside(const struct wn_desc *d);
/* Returns the FLOPs of an op of n_in inputs, each of the type of d's result, over the elements of that result. */
double wn__flops_over(const struct wn_desc *d, int32_t op, int32_t n_in);

/* ---- gradients ------------------------------------------------------------------------------------- */
/* Returns attributes with n = t->ndim and i[k] = t->dim[k]. */
struct wn_attrs wn__attrs_shape(const struct wn_type *t);
/* Record one node each, and return it. */
struct wn_node *wn__emit_op(struct wn__grad *g, int32_t op, struct wn_node *a, const struct wn_attrs *attrs);
struct wn_node *wn__emit_reshape(struct wn__grad *g, struct wn_node *a, const struct wn_type *to);
struct wn_node *wn__emit_number(struct wn__grad *g, double v); /* (), of the dtype of g->out */
struct wn_node *wn__emit_full(struct wn__grad *g, const struct wn_type *like, double v);
struct wn_node *wn__emit_as(struct wn__grad *g, struct wn_node *v, int32_t dtype); /* v in a dtype; v where it has it */
struct wn_node *wn__emit_mul(struct wn__grad *g, struct wn_node *a, struct wn_node *b);
/* Records the sum of a over `dim`, which stays as a dim of length 1. */
struct wn_node *wn__emit_sum_dim(struct wn__grad *g, struct wn_node *a, int64_t dim);
/* Write dx[0] of an op whose gradient is one op with its attributes, of dy and x, or of dy and y. */
void wn__grad_by_x(struct wn__grad *g);
void wn__grad_by_y(struct wn__grad *g);
/* Writes dx[0] = dy. */
void wn__grad_same(struct wn__grad *g);
/* Writes dx[0] of an op y = M(v) dy that is linear in its input dy, where M is a symmetric matrix that depends on the
 * other inputs alone: dx[0] = M(v) u, the op itself, applied to the gradient u of y. */
void wn__grad_linear_in_first(struct wn__grad *g);
/* Records the gradients of the inputs of ATTENTION_GRAD (attention_second.c). */
void wn__grad_attention_grad(struct wn__grad *g);
/* Record the gradients of the inputs of LSTM_CELL_GRAD and GRU_CELL_GRAD (recurrent_second.c). */
void wn__grad_lstm_cell_grad(struct wn__grad *g);
void wn__grad_gru_cell_grad(struct wn__grad *g);
#endif
