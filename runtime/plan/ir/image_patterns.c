/* The patterns of rewrites over images: rewrite.c says when one may be applied, rewriting.h what each makes.
 *
 *   batch_norm -> add -> relu                         batch_norm_map(x, .., z): one pass over x and z
 *   relu_grad(dy, y) -> batch_norm_sums, _dx          relu_norm_sums, relu_norm_dx: y = relu(batch_norm(x)) again
 *   conv2d -> add -> relu                             conv2d_map
 *   conv2d -> batch_norm -> add -> relu               conv2d_map, where the statistics are given: in evaluation */
#include <string.h>
#include "rewriting.h"

/* The limits of what stands over an op: its steps, and the images that they read, which are inputs from `first` on. */
struct over {
    int32_t steps, first, images;
};

/* Adds elementwise node i, which reads value p, to the steps `c` over the op of p, whose inputs so far are `in`. The
 * value so far is operand 0, the others are images. Returns 0 where it is no such step. */
static int32_t add_step(const struct wn__rewriting *w, int32_t i, int32_t p, const struct over *o, struct wn__fused *c,
                        struct wn__rewrite_inputs *in)
{
    const struct wn__ir_node *q = &w->ir->node[i];
    const int32_t n = wn__elementwise_operands(q->op);
    struct wn__fused_step step = {.op = q->op};
    if (n == 0 || q->op == WN_OP_DROPOUT || c->n == o->steps) return 0;
    if (wn__fused_numbers(c) > 0 && wn__elementwise_has_numbers(q->op)) return 0;
    for (int32_t j = 0; j < n; j++) {
        const int32_t v = wn__rewrite_input(w, i, j);
        if (v == p) continue; /* operand 0 */
        if (in->n == o->first + o->images || !wn__type_equal(&w->ir->node[v].type, &q->type)) return 0;
        step.operand[j] = in->n - o->first + 1;
        in->node[in->n++] = v;
    }
    c->step[c->n++] = step;
    return 1;
}

/* ---- a convolution and what follows it --------------------------------------------------------------------- */

/* Fills *m with what is over the convolution that node p is so far. Returns 0 where p is no convolution. */
static int32_t over_conv(const struct wn__ir_node *p, struct wn__conv_map *m)
{
    *m = (struct wn__conv_map){.conv = p->n_in, .image = p->n_in, .steps = {.n = 0}};
    if (p->op == WN_OP_CONV2D_MAP) *m = wn__conv_map_get(&p->attrs);
    return p->op == WN_OP_CONV2D || p->op == WN_OP_CONV2D_MAP;
}

/* Returns the attributes of a CONV2D_MAP over the convolution p, with the numbers of the step that has some. */
static struct wn_attrs conv_attrs(const struct wn__ir_node *p, const struct wn__ir_node *last,
                                  const struct wn__conv_map *m)
{
    struct wn_attrs attrs = p->attrs;
    attrs.i[WN_CONV_MAP_INPUTS] = m->image;
    wn__fused_put(&m->steps, WN_CONV_MAP_STEP, &attrs);
    if (wn__elementwise_has_numbers(last->op)) memcpy(attrs.f, last->attrs.f, sizeof attrs.f);
    return attrs;
}

/* Adds the batch norm i with given statistics over the convolution, whose inputs are `in`. Returns 0 where it is no
 * such norm. */
static int32_t add_norm(const struct wn__rewriting *w, int32_t i, struct wn__conv_map *m, struct wn__rewrite_inputs *in)
{
    const struct wn__ir_node *c = &w->ir->node[i];
    if (c->op != WN_OP_BATCH_NORM || c->attrs.i[0] != 0 || m->norm || m->steps.n > 0) return 0;
    for (int32_t k = 1; k < WN_NORM_INPUTS; k++) in->node[in->n++] = wn__rewrite_input(w, i, k);
    m->norm = m->conv;
    m->image = in->n;
    return 1;
}

int32_t wn__rewrite_map_conv(struct wn__rewriting *w, int32_t i, int32_t k)
{
    const struct wn__ir_node *c = &w->ir->node[i];
    const int32_t n = c->op == WN_OP_BATCH_NORM ? 1 : wn__elementwise_operands(c->op);
    const int32_t p = k < n ? wn__rewrite_sole(w, i, k, 0) : -1;
    struct wn__conv_map m;
    if (p < 0 || !over_conv(&w->ir->node[p], &m) || !wn__type_equal(&w->ir->node[p].type, &c->type)) return 0;
    struct wn__rewrite_inputs in = wn__rewrite_inputs(w, p);
    const struct over over = {WN_CONV_STEPS, m.image, 1};
    if (!wn__rewrite_may_wait(w, p, i)) return 0;
    if (!add_norm(w, i, &m, &in) && !add_step(w, i, p, &over, &m.steps, &in)) return 0;
    const struct wn_attrs attrs = conv_attrs(&w->ir->node[p], c, &m);
    return wn__rewrite_replace(w, i, k, p, &(struct wn__fusion){WN_OP_CONV2D_MAP, &attrs, &in});
}

/* ---- batch norm and what follows it ------------------------------------------------------------------------ */

/* Fills *c with the steps over the norm that node p is so far. Returns 0 where p is no norm. */
static int32_t norm_steps(const struct wn__ir_node *p, struct wn__fused *c)
{
    *c = (struct wn__fused){.n = 0};
    if (p->op == WN_OP_BATCH_NORM_MAP) *c = wn__fused_get(&p->attrs, 0);
    return p->op == WN_OP_BATCH_NORM || p->op == WN_OP_BATCH_NORM_MAP;
}

/* Returns the attributes of the steps c over the norm p, with the numbers of the node that has some. */
static struct wn_attrs norm_attrs(const struct wn__ir_node *p, const struct wn__ir_node *last,
                                  const struct wn__fused *c)
{
    int64_t groups = p->op == WN_OP_BATCH_NORM ? p->attrs.i[0] : p->attrs.i[WN_NORM_MAP_GROUPS];
    struct wn_attrs attrs = {.n = 0};
    wn__fused_put(c, 0, &attrs);
    attrs.i[WN_NORM_MAP_GROUPS] = groups;
    memcpy(attrs.f, wn__elementwise_has_numbers(last->op) ? last->attrs.f : p->attrs.f, sizeof attrs.f);
    return attrs;
}

int32_t wn__rewrite_map_norm(struct wn__rewriting *w, int32_t i, int32_t k)
{
    static const struct over over = {WN_NORM_STEPS, WN_NORM_INPUTS, 2};
    const struct wn__ir_node *c = &w->ir->node[i];
    struct wn__fused all;
    int32_t p = k < wn__elementwise_operands(c->op) ? wn__rewrite_sole(w, i, k, 0) : -1;
    if (p < 0 || !norm_steps(&w->ir->node[p], &all)) return 0;
    if (!wn__type_equal(&w->ir->node[p].type, &c->type) || !wn__rewrite_may_wait(w, p, i)) return 0;
    struct wn__rewrite_inputs in = wn__rewrite_inputs(w, p);
    if (!add_step(w, i, p, &over, &all, &in)) return 0;
    struct wn_attrs attrs = norm_attrs(&w->ir->node[p], c, &all);
    return wn__rewrite_replace(w, i, k, p, &(struct wn__fusion){WN_OP_BATCH_NORM_MAP, &attrs, &in});
}

/* ---- relu's gradient into that of a batch norm --------------------------------------------------------------- */

/* Returns the node of relu(batch_norm(x, mean, rstd, w, b)) that `grad`, a relu_grad, reads; -1: it reads another
 * value. dx: the batch_norm_dx of that norm. */
static int32_t relu_of_norm(const struct wn__rewriting *w, int32_t grad, int32_t dx)
{
    int32_t y = wn__rewrite_input(w, grad, 1);
    const struct wn__ir_node *q = &w->ir->node[y];
    struct wn__fused c;
    if (q->op != WN_OP_BATCH_NORM_MAP || q->bound || !norm_steps(q, &c)) return -1;
    if (c.n != 1 || c.step[0].op != WN_OP_RELU || q->attrs.i[WN_NORM_MAP_GROUPS] != w->ir->node[dx].attrs.i[0])
        return -1;
    for (int32_t k = 0; k < 4; k++) /* x, mean, rstd and w are inputs 1 to 4 of batch_norm_dx */
        if (wn__rewrite_input(w, y, k) != wn__rewrite_input(w, dx, k + 1)) return -1;
    return y;
}

/* Returns whether the three nodes are of one phase, root and region. */
static int32_t are_together(const struct wn__ir *ir, int32_t a, int32_t b, int32_t c)
{
    const struct wn__ir_node *p = &ir->node[a], *q = &ir->node[b], *r = &ir->node[c];
    return p->phase == q->phase && q->phase == r->phase && p->root == q->root && q->root == r->root &&
           p->region == q->region && q->region == r->region;
}

/* Returns the first node behind node g of an op whose input 0 is g; -1: there is none. */
static int32_t reader_of(const struct wn__rewriting *w, int32_t g, int32_t op)
{
    for (int32_t i = g + 1; i < w->ir->n; i++)
        if (w->ir->node[i].op == op && wn__rewrite_input(w, i, 0) == g) return i;
    return -1;
}

int32_t wn__rewrite_relu_into_norm(struct wn__rewriting *w, int32_t g, int32_t k)
{
    const struct wn__ir *ir = w->ir;
    const struct wn__ir_node *p = &ir->node[g];
    if (k > 0 || p->op != WN_OP_RELU_GRAD || w->readers[g] != 2 || p->result >= 0 || p->absorbed_by >= 0) return 0;
    int32_t sums = reader_of(w, g, WN_OP_BATCH_NORM_SUMS), i = reader_of(w, g, WN_OP_BATCH_NORM_DX);
    if (sums < 0 || i < 0 || wn__rewrite_input(w, i, 5) != sums) return 0;
    int32_t y = are_together(ir, g, sums, i) ? relu_of_norm(w, g, i) : -1;
    if (y < 0) return 0;
    int32_t dy = wn__rewrite_input(w, g, 0), b = wn__rewrite_input(w, y, 4);
    struct wn__rewrite_inputs first = {.n = 6, .node = {dy}}, second = {.n = 7, .node = {dy}};
    for (int32_t j = 1; j < 5; j++) first.node[j] = second.node[j] = wn__rewrite_input(w, i, j);
    first.node[5] = second.node[6] = b;
    second.node[5] = sums;
    const struct wn__fusion to_sums = {WN_OP_RELU_NORM_SUMS, &ir->node[sums].attrs, &first};
    const struct wn__fusion to_dx = {WN_OP_RELU_NORM_DX, &ir->node[i].attrs, &second};
    if (!wn__rewrite_fits(w, sums, &to_sums) || !wn__rewrite_fits(w, i, &to_dx)) return 0;
    return wn__rewrite_replace(w, sums, 0, g, &to_sums) && wn__rewrite_become(w, i, &to_dx);
}
