/* The gradients of the gradients of recurrent cells, composed of elementwise ops; bf16 is computed in f32.
 *
 * A gradient G of a cell F, for one input, is the derivative of dy F, so with u the gradient of G the sum S = u G is dy
 * times the derivative of F in the direction u, and the gradients are those of S. Letters are those of recurrent.c; p_a
 * is the derivative of the function that gives a, D_a what a changes by in the direction u, u_a the part of u that
 * belongs to the gate a, 0 where G is the gradient of the other input.
 *
 *     lstm   t = tanh(c');  D_a = p_a u_a;  D_c' = D_f c + f u_c + D_i g + i D_g;  D_h' = D_o t + o p_t D_c'
 *            e = dh o p_t + dc;  w = p_t dh (D_o - 2 o t D_c')
 *            of dh, dc: D_h', D_c'        of gate o: dh ((1 - 2 o) D_o t + p_o p_t D_c')
 *            of gate i: e ((1 - 2 i) D_i g + p_i D_g) + w p_i g      of gate f: e ((1 - 2 f) D_f c + p_f u_c) + w p_f c
 *            of gate g: e (D_i p_g - 2 i g D_g) + w i p_g            of c: e D_f + w f
 *     gru    D_r = p_r u_r;  D_z = p_z u_z;  D_m = u_2 + D_r x3 + r u_3;  D_n = p_n D_m
 *            M = -dy p_n (D_z + 2 n (1 - z) D_m);  q = dy p_n (1 - z)
 *            of dy: (1 - z) D_n + (h - n) D_z + z u_h        of h: dy D_z
 *            of x0: p_r (M x3 + q u_3) + q x3 (1 - 2 r) D_r      of x1: dy (p_z (u_h - D_n) + (h - n) (1 - 2 z) D_z)
 *            of x2: M      of x3: M r + q D_r */
#include "helper.h"

enum { STATE = 4 }; /* behind the gates */

/* A gradient that is being differentiated. */
struct second {
    struct wn__grad *g;
    int64_t size;       /* H */
    int32_t dtype;      /* of all nodes between the casts of inputs and results: f32 or f64 */
    struct wn_node *no; /* 0, of shape () */
};

static struct wn_node *mul(const struct second *s, struct wn_node *a, struct wn_node *b)
{
    return a == s->no || b == s->no ? s->no : wn__emit2(s->g->e, WN_OP_MUL, a, b);
}

static struct wn_node *add(const struct second *s, struct wn_node *a, struct wn_node *b)
{
    if (a == s->no) return b;
    return b == s->no ? a : wn__emit2(s->g->e, WN_OP_ADD, a, b);
}

static struct wn_node *sub(const struct second *s, struct wn_node *a, struct wn_node *b)
{
    return b == s->no ? a : wn__emit2(s->g->e, WN_OP_SUB, a, b);
}

static struct wn_node *number(const struct second *s, double v)
{
    return wn__emit_scalar(s->g->e, v, s->dtype);
}

/* Records a b + c d. */
static struct wn_node *two(const struct second *s, struct wn_node *a, struct wn_node *b, struct wn_node *c,
                           struct wn_node *d)
{
    return add(s, mul(s, a, b), mul(s, c, d));
}

/* Records a (1 - a), the derivative of the sigmoid; 1 - a a, that of tanh; 1 - 2 a. */
static struct wn_node *of_sigmoid(const struct second *s, struct wn_node *a)
{
    return sub(s, a, mul(s, a, a));
}

static struct wn_node *of_tanh(const struct second *s, struct wn_node *a)
{
    return sub(s, number(s, 1), mul(s, a, a));
}

static struct wn_node *turned(const struct second *s, struct wn_node *a)
{
    return sub(s, number(s, 1), mul(s, number(s, 2), a));
}

/* Records gate k of v. */
static struct wn_node *gate(const struct second *s, struct wn_node *v, int64_t k)
{
    struct wn_attrs at = {.n = 3, .i = {s->g->d->out.ndim - 1, k * s->size, s->size}};
    return wn__emit_as(s->g, wn__emit_op(s->g, WN_OP_NARROW, v, &at), s->dtype);
}

static struct wn_node *apply(const struct second *s, int32_t op, struct wn_node *v)
{
    return wn__emit1(s->g->e, op, v);
}

/* Gives input i the gradient whose gates are part: (n). */
static void give(const struct second *s, int32_t i, struct wn_node *const *part, int32_t n)
{
    struct wn_attrs along = {.n = 1, .i = {s->g->d->out.ndim - 1}};
    struct wn_type state = s->g->d->in[2];
    struct wn_node *in[4];
    state.dtype = s->dtype;
    for (int32_t k = 0; k < n; k++) in[k] = part[k] == s->no ? wn__emit_full(s->g, &state, 0) : part[k];
    struct wn_node *whole = n == 1 ? in[0] : wn__emit(s->g->e, WN_OP_CAT, n, in, &along);
    s->g->dx[i] = wn__emit_as(s->g, whole, s->g->d->out.dtype);
}

/* Opens the gradient of a gradient; fills u: those of the gates, then that of the state. */
static struct second open_second(struct wn__grad *g, struct wn_node *(*u)[5])
{
    const struct wn_type *state = &g->d->in[2];
    struct second s = {.g = g, .size = state->dim[state->ndim - 1]};
    s.dtype = g->d->out.dtype == WN_F64 ? WN_F64 : WN_F32;
    s.no = number(&s, 0);
    for (int32_t k = 0; k < 5; k++)
        (*u)[k] = (k == STATE) == (g->d->attrs.i[0] == 1) ? gate(&s, g->dy, k % STATE) : s.no;
    return s;
}

/* ---- lstm_cell_grad --------------------------------------------------------------------------------- */

enum { I, F, G, O }; /* gates */

void wn__grad_lstm_cell_grad(struct wn__grad *g)
{
    struct wn_node *u[5], *v[4], *p[4], *d[4], *part[4];
    struct second made = open_second(g, &u);
    const struct second *s = &made;
    struct wn_node *dh = gate(s, g->in[0], 0), *dc = gate(s, g->in[0], 1), *c = wn__emit_as(s->g, g->in[2], s->dtype);
    for (int32_t k = 0; k < 4; k++) {
        v[k] = apply(s, k == G ? WN_OP_TANH : WN_OP_SIGMOID, gate(s, g->in[1], k));
        p[k] = k == G ? of_tanh(s, v[k]) : of_sigmoid(s, v[k]);
        d[k] = mul(s, p[k], u[k]);
    }
    struct wn_node *t = apply(s, WN_OP_TANH, two(s, v[F], c, v[I], v[G])), *pt = of_tanh(s, t), *opt = mul(s, v[O], pt);
    struct wn_node *next = add(s, two(s, d[F], c, v[F], u[STATE]), two(s, d[I], v[G], v[I], d[G]));
    struct wn_node *e = add(s, mul(s, dh, opt), dc);
    struct wn_node *bend = mul(s, number(s, 2), mul(s, mul(s, v[O], t), next));
    struct wn_node *w = mul(s, mul(s, pt, dh), sub(s, d[O], bend));
    if (wn__wants(g, 0)) give(s, 0, (struct wn_node *[]){two(s, d[O], t, opt, next), next}, 2);
    if (wn__wants(g, 1)) {
        struct wn_node *curve = mul(s, mul(s, turned(s, v[I]), d[I]), v[G]);
        part[I] = two(s, e, add(s, curve, mul(s, p[I], d[G])), w, mul(s, p[I], v[G]));
        curve = mul(s, mul(s, turned(s, v[F]), d[F]), c);
        part[F] = two(s, e, add(s, curve, mul(s, p[F], u[STATE])), w, mul(s, p[F], c));
        curve = mul(s, number(s, 2), mul(s, mul(s, v[I], v[G]), d[G]));
        part[G] = two(s, e, sub(s, mul(s, d[I], p[G]), curve), w, mul(s, v[I], p[G]));
        curve = mul(s, mul(s, turned(s, v[O]), d[O]), t);
        part[O] = mul(s, dh, add(s, curve, mul(s, mul(s, p[O], pt), next)));
        give(s, 1, part, 4);
    }
    if (wn__wants(g, 2)) give(s, 2, (struct wn_node *[]){two(s, e, d[F], w, v[F])}, 1);
}

/* ---- gru_cell_grad ---------------------------------------------------------------------------------- */

void wn__grad_gru_cell_grad(struct wn__grad *g)
{
    struct wn_node *u[5], *x[4];
    struct second made = open_second(g, &u);
    const struct second *s = &made;
    struct wn_node *dy = wn__emit_as(s->g, g->in[0], s->dtype), *h = wn__emit_as(s->g, g->in[2], s->dtype);
    for (int32_t k = 0; k < 4; k++) x[k] = gate(s, g->in[1], k);
    struct wn_node *r = apply(s, WN_OP_SIGMOID, x[0]), *z = apply(s, WN_OP_SIGMOID, x[1]);
    struct wn_node *n = apply(s, WN_OP_TANH, add(s, x[2], mul(s, r, x[3])));
    struct wn_node *pr = of_sigmoid(s, r), *pz = of_sigmoid(s, z), *pn = of_tanh(s, n), *left = sub(s, h, n);
    struct wn_node *rest = sub(s, number(s, 1), z), *dr = mul(s, pr, u[0]), *dz = mul(s, pz, u[1]);
    struct wn_node *dm = add(s, u[2], two(s, dr, x[3], r, u[3])), *dn = mul(s, pn, dm);
    struct wn_node *bend = mul(s, number(s, 2), mul(s, mul(s, n, rest), dm));
    struct wn_node *m = mul(s, mul(s, dy, pn), mul(s, number(s, -1), add(s, dz, bend)));
    struct wn_node *q = mul(s, mul(s, dy, pn), rest);
    if (wn__wants(g, 0)) give(s, 0, (struct wn_node *[]){add(s, two(s, rest, dn, left, dz), mul(s, z, u[STATE]))}, 1);
    if (wn__wants(g, 1)) {
        struct wn_node *part[4] = {NULL, NULL, m, two(s, m, r, q, dr)};
        struct wn_node *curve = mul(s, mul(s, mul(s, q, x[3]), turned(s, r)), dr);
        part[0] = add(s, mul(s, pr, two(s, m, x[3], q, u[3])), curve);
        curve = mul(s, mul(s, left, turned(s, z)), dz);
        part[1] = mul(s, dy, add(s, mul(s, pz, sub(s, u[STATE], dn)), curve));
        give(s, 1, part, 4);
    }
    if (wn__wants(g, 2)) give(s, 2, (struct wn_node *[]){mul(s, dy, dz)}, 1);
}
