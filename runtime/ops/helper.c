/* Defines what many rules do the same way: checks of dtypes and shapes, broadcasting, costs of ops that touch each byte
 * once, and the nodes that gradient rules record most. helper.h and op.h say what each function returns.
 *
 * Every message opens with the op's name and counts inputs and dims from 1, as scripts do. */
#include "../base/window.h"
#include "helper.h"

/* ---- dtypes ---------------------------------------------------------------------------------------- */
/* Returns whether a later version takes the dtype, and this one does not. */
static int32_t later(int32_t dtype)
{
    return dtype == WN_F16 || dtype == WN_I8;
}

static int32_t bad_dtype(const struct wn_desc *d, int32_t i, const char *accepted)
{
    const char *name = wn__op_name(d->op), *have = wn__dtype_name(d->in[i].dtype);
    if (later(d->in[i].dtype))
        return wn__fail(WN_DTYPE, "%s: %s is not in this version; input %d is %s %s, expected %s: convert it with :to",
                        name, have, (int)i + 1, wn__shape_text(&d->in[i]), have, accepted);
    return wn__fail(WN_DTYPE, "%s: input %d is %s %s, expected %s; convert it with :to", name, (int)i + 1,
                    wn__shape_text(&d->in[i]), have, accepted);
}

int32_t wn__need_float_at(const struct wn_desc *d, int32_t i)
{
    int32_t t = d->in[i].dtype;
    return t == WN_F32 || t == WN_F64 || t == WN_BF16 ? WN_OK : bad_dtype(d, i, "f32, bf16 or f64");
}

int32_t wn__need_float(const struct wn_desc *d)
{
    for (int32_t i = 0; i < d->n_in; i++) WN_TRY(wn__need_float_at(d, i));
    return wn__same_dtype(d);
}

int32_t wn__need_arith(const struct wn_desc *d)
{
    for (int32_t i = 0; i < d->n_in; i++) {
        int32_t t = d->in[i].dtype;
        if (t != WN_F32 && t != WN_F64 && t != WN_BF16 && t != WN_I32) return bad_dtype(d, i, "f32, bf16, f64 or i32");
    }
    return WN_OK;
}

int32_t wn__need_ids(const struct wn_desc *d, int32_t i)
{
    return d->in[i].dtype == WN_I32 ? WN_OK : bad_dtype(d, i, "i32 (0-based indices)");
}

int32_t wn__need_element(const struct wn_desc *d, int32_t dtype)
{
    if (dtype == WN_F32 || dtype == WN_F64 || dtype == WN_BF16 || dtype == WN_I32 || dtype == WN_U8) return WN_OK;
    return wn__fail(WN_DTYPE, "%s: dtype %s is not in this version; use f32, bf16, f64, i32 or u8", wn__op_name(d->op),
                    wn__dtype_name(dtype));
}

int32_t wn__same_dtype_at(const struct wn_desc *d, int32_t i, int32_t j)
{
    int32_t a = d->in[i].dtype, b = d->in[j].dtype;
    int32_t advise_b = wn__dtype_is_float(b) && (!wn__dtype_is_float(a) || a == WN_BF16);
    if (a == b) return WN_OK;
    return wn__fail(WN_DTYPE, "%s: inputs %d and %d are %s and %s; nothing is promoted, convert one with :to '%s'",
                    wn__op_name(d->op), (int)i + 1, (int)j + 1, wn__type_text(&d->in[i]), wn__type_text(&d->in[j]),
                    wn__dtype_name(advise_b ? b : a));
}

int32_t wn__same_dtype(const struct wn_desc *d)
{
    for (int32_t i = 1; i < d->n_in; i++) WN_TRY(wn__same_dtype_at(d, 0, i));
    return WN_OK;
}

/* ---- shapes ---------------------------------------------------------------------------------------- */
int32_t wn__check_out(const struct wn_desc *d)
{
    return wn__type_check(&d->out, wn__op_name(d->op));
}

int64_t wn__from_one(int64_t i)
{
    return i < INT64_MAX ? i + 1 : i;
}

int32_t wn__check_dim(const struct wn_desc *d, int64_t dim, int32_t ndim)
{
    if (dim >= 0 && dim < ndim) return WN_OK;
    /* Lua has added ndim to a negative dim; dim - ndim is the number that the user wrote. */
    int64_t said = dim >= 0 ? wn__from_one(dim) : dim < INT64_MIN + ndim ? dim : dim - ndim;
    if (ndim == 0)
        return wn__fail(WN_SHAPE, "%s: dim %" PRId64 " given, but the input has no dims; reshape it to 1 dim first",
                        wn__op_name(d->op), said);
    return wn__fail(WN_SHAPE, "%s: dim %" PRId64 " is out of range for %s; use 1 to %d, or -%d to -1",
                    wn__op_name(d->op), said, d->n_in ? wn__shape_text(&d->in[0]) : "the shape", (int)ndim, (int)ndim);
}

int32_t wn__need_shape(const struct wn_desc *d, int32_t i, const struct wn_type *want, const char *who)
{
    if (wn__shape_equal(&d->in[i], want)) return WN_OK;
    return wn__fail(WN_SHAPE, "%s: %s is %s, expected %s", wn__op_name(d->op), who, wn__shape_text(&d->in[i]),
                    wn__shape_text(want));
}

int32_t wn__need_image(const struct wn_desc *d, int32_t i, const char *who)
{
    const struct wn_type *t = &d->in[i];
    if (t->ndim == 4) return WN_OK;
    return wn__fail(WN_SHAPE, "%s: %s is %s, expected 4 dims: (batch, channels, rows, columns)%s", wn__op_name(d->op),
                    who, wn__shape_text(t), t->ndim == 3 ? "; add the batch with :unsqueeze(1)" : "");
}

int32_t wn__need_window(const struct wn_desc *d, const char *what, int64_t v, int64_t least)
{
    if (v >= least && v <= WN_WINDOW_MOST) return WN_OK;
    return wn__fail(WN_VALUE, "%s: %s %" PRId64 " given, expected %" PRId64 " to %d", wn__op_name(d->op), what, v,
                    least, WN_WINDOW_MOST);
}

int32_t wn__shape_from_attrs(struct wn_desc *d)
{
    if (d->attrs.n < 0 || d->attrs.n > WN_MAX_DIMS)
        return wn__fail(WN_VALUE, "%s: a shape of %d dims given, a value has 0 to %d", wn__op_name(d->op),
                        (int)d->attrs.n, WN_MAX_DIMS);
    d->out.ndim = d->attrs.n;
    for (int32_t k = 0; k < WN_MAX_DIMS; k++) d->out.dim[k] = k < d->attrs.n ? d->attrs.i[k] : 0;
    return WN_OK;
}

int32_t wn__broadcast_two(struct wn_desc *d, const struct wn_type *a, const struct wn_type *b, struct wn_type *out)
{
    int32_t n = a->ndim > b->ndim ? a->ndim : b->ndim;
    struct wn_type r = {.dtype = out->dtype, .ndim = n};
    for (int32_t k = 1; k <= n; k++) { /* dim k from the end */
        int64_t x = k <= a->ndim ? a->dim[a->ndim - k] : 1;
        int64_t y = k <= b->ndim ? b->dim[b->ndim - k] : 1;
        if (x != y && x != 1 && y != 1)
            return wn__fail(WN_SHAPE,
                            "%s: %s and %s do not broadcast: dim -%d is %" PRId64 " against %" PRId64
                            "; dims must be equal or 1, reshape one of them",
                            wn__op_name(d->op), wn__shape_text(a), wn__shape_text(b), (int)k, x, y);
        r.dim[n - k] = x == 1 ? y : x;
    }
    *out = r;
    return WN_OK;
}

int32_t wn__broadcast(struct wn_desc *d)
{
    struct wn_type t = {.dtype = d->out.dtype};
    for (int32_t i = 0; i < d->n_in; i++) WN_TRY(wn__broadcast_two(d, &t, &d->in[i], &t));
    d->out = t;
    return wn__check_out(d);
}

int32_t wn__like_first_any(struct wn_desc *d)
{
    d->out = d->in[0];
    return WN_OK;
}

int32_t wn__like_first_arith(struct wn_desc *d)
{
    WN_TRY(wn__need_arith(d));
    return wn__like_first_any(d);
}

int32_t wn__like_first_element(struct wn_desc *d)
{
    WN_TRY(wn__need_element(d, d->in[0].dtype));
    return wn__like_first_any(d);
}

int32_t wn__like_first(struct wn_desc *d)
{
    WN_TRY(wn__need_float_at(d, 0));
    return wn__like_first_any(d);
}

int32_t wn__shape_derivative(struct wn_desc *d)
{
    WN_TRY(wn__need_float(d));
    WN_TRY(wn__need_shape(d, 1, &d->in[0], "input 2"));
    return wn__like_first_any(d);
}

/* ---- costs ----------------------------------------------------------------------------------------- */
struct wn_cost wn__cost_of(const struct wn_desc *d, double flops)
{
    double bytes = (double)wn__bytes(&d->out);
    for (int32_t i = 0; i < d->n_in; i++) bytes += (double)wn__bytes(&d->in[i]);
    return (struct wn_cost){flops, bytes};
}

struct wn_cost wn__op_cost(const struct wn_desc *d)
{
    const struct wn__rules *r = wn__op_rules[d->op];
    if (wn__op_flags(d->op) & (WN_LEAF | WN_ALIAS)) return (struct wn_cost){0, 0};
    if (r->cost != NULL) return r->cost(d);
    double flops = r->per_output * (double)wn__numel(&d->out);
    return wn__cost_of(d, d->n_in > 0 ? flops + r->per_input * (double)wn__numel(&d->in[0]) : flops);
}

struct wn_desc wn__inside(const struct wn_desc *d, int32_t op, int32_t n_in)
{
    struct wn_desc inside = *d;
    inside.op = op;
    inside.n_in = n_in;
    return inside;
}

struct wn_desc wn__product_inside(const struct wn_desc *d)
{
    return d->op == WN_OP_LINEAR_MAP ? wn__inside(d, WN_OP_LINEAR, 3) : wn__inside(d, WN_OP_MATMUL, 2);
}

double wn__flops_over(const struct wn_desc *d, int32_t op, int32_t n_in)
{
    struct wn_type in[WN_GRAD_MAX];
    for (int32_t i = 0; i < n_in; i++) in[i] = d->out;
    struct wn_desc one = wn__inside(d, op, n_in);
    one.in = in;
    return wn__op_cost(&one).flops;
}

/* ---- gradients ------------------------------------------------------------------------------------- */
struct wn_attrs wn__attrs_shape(const struct wn_type *t)
{
    struct wn_attrs a = {.n = t->ndim};
    for (int32_t k = 0; k < t->ndim; k++) a.i[k] = t->dim[k];
    return a;
}

struct wn_node *wn__emit_op(struct wn__grad *g, int32_t op, struct wn_node *a, const struct wn_attrs *attrs)
{
    return wn__emit(g->e, op, 1, &a, attrs);
}

struct wn_node *wn__emit_reshape(struct wn__grad *g, struct wn_node *a, const struct wn_type *to)
{
    struct wn_attrs attrs = wn__attrs_shape(to);
    return wn__emit_op(g, WN_OP_RESHAPE, a, &attrs);
}

struct wn_node *wn__emit_number(struct wn__grad *g, double v)
{
    return wn__emit_scalar(g->e, v, g->d->out.dtype);
}

struct wn_node *wn__emit_full(struct wn__grad *g, const struct wn_type *like, double v)
{
    struct wn_attrs attrs = wn__attrs_shape(like);
    attrs.dtype = like->dtype;
    attrs.f[0] = v;
    return wn__emit(g->e, WN_OP_FULL, 0, NULL, &attrs);
}

struct wn_node *wn__emit_as(struct wn__grad *g, struct wn_node *v, int32_t dtype)
{
    struct wn_attrs attrs = {.dtype = dtype};
    return v == NULL || wn__value_type(g, v)->dtype == dtype ? v : wn__emit_op(g, WN_OP_CAST, v, &attrs);
}

struct wn_node *wn__emit_mul(struct wn__grad *g, struct wn_node *a, struct wn_node *b)
{
    return wn__emit2(g->e, WN_OP_MUL, a, b);
}

struct wn_node *wn__emit_sum_dim(struct wn__grad *g, struct wn_node *a, int64_t dim)
{
    struct wn_attrs attrs = {.n = 1, .i = {dim}};
    attrs.i[WN_MAX_DIMS - 1] = 1;
    return wn__emit_op(g, WN_OP_SUM, a, &attrs);
}

void wn__grad_linear_in_first(struct wn__grad *g)
{
    struct wn_node *in[WN_GRAD_MAX] = {g->dy};
    if (!wn__wants(g, 0)) return;
    for (int32_t i = 1; i < g->d->n_in; i++) in[i] = g->in[i];
    g->dx[0] = wn__emit(g->e, g->d->op, g->d->n_in, in, &g->d->attrs);
}

static void grad_by(struct wn__grad *g, struct wn_node *v)
{
    struct wn_node *in[2] = {g->dy, v};
    if (wn__wants(g, 0)) g->dx[0] = wn__emit(g->e, wn__op_rules[g->d->op]->derivative, 2, in, &g->d->attrs);
}

void wn__grad_by_x(struct wn__grad *g)
{
    grad_by(g, g->in[0]);
}

void wn__grad_by_y(struct wn__grad *g)
{
    grad_by(g, g->out);
}

void wn__grad_same(struct wn__grad *g)
{
    if (wn__wants(g, 0)) g->dx[0] = g->dy;
}
