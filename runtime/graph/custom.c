/* A value with a gradient of the caller's own (wane.custom). The caller records the gradient once, for a
 * placeholder in the place of dy; the nodes that depend on the placeholder are kept as a template: steps over dy,
 * over inputs of the node and over earlier steps. Differentiation emits the steps anew with the gradient that
 * arrives, as nodes like any others, so that plans, policies and recomputation need to know nothing about it.
 *
 * The node is a reshape of its first input to the same shape, so its value is that input and no instruction. Its
 * further inputs are those that get gradients, then what the template reads. A plan sees the first alone
 * (program/assemble.c); the key has all of them and the bytes of the template, since equal keys must mean equal
 * gradients. */
#include <stdio.h>
#include <stdlib.h>
#include "../base/alloc.h"
#include "emit.h"
#include "encode.h"

/* A reference is OF_DY, the number of an input of the node, or n_inputs + the number of a step; OF_NONE: no
 * gradient. */
enum { OF_NONE = -2, OF_DY = -1 };
struct wn__template {
    int32_t refs, n_steps, n_out;
    struct template_step {
        int32_t op, n_in, first; /* its operands are in[first .. first + n_in) */
        struct wn_attrs attrs;
    } * step;     /* (n_steps) */
    int32_t *in;  /* (n_operands) references: the operands of all steps */
    int32_t *out; /* (n_out) references: out[i] is the gradient of input 1 + i */
    int32_t n_inputs, n_operands;
    int32_t is_opaque; /* 1: the gradient of its inputs is not known, and refused */
};

/* The making of a template. */
struct maker {
    struct wn__template *t;
    struct wn__order reached; /* what r reaches that is newer than the placeholder */
    /* The inputs of the node: y, x, then what steps read. They are told apart by place, so an x may be listed twice. */
    struct wn__order external;
    int64_t steps_capacity, operands_capacity;
    int64_t dependent; /* `wanted` of the nodes that depend on the placeholder */
    const struct wn_node *placeholder;
};

void wn__template_unref(struct wn__template *t)
{
    if (t == NULL || --t->refs > 0) return;
    wn__free(t->step);
    wn__free(t->in);
    wn__free(t->out);
    wn__free(t);
}

int32_t wn__template_count(const struct wn__template *t)
{
    return t->is_opaque ? t->n_inputs - 1 : t->n_out;
}

static int32_t maker_push(struct maker *m, struct wn_node *n, int64_t stamp)
{
    if (n->seq <= m->placeholder->seq || n->stamp == stamp) return WN_OK;
    n->stamp = stamp;
    return wn__order_push(&m->reached, n);
}

/* Finds what the gradients r are made of since the placeholder was recorded. */
static int32_t maker_reach(struct maker *m, struct wn_node *const *r, int32_t n)
{
    int64_t stamp = wn__node_stamp();
    for (int32_t i = 0; i < n; i++)
        if (r[i] != NULL) WN_TRY(maker_push(m, r[i], stamp));
    for (int64_t at = 0; at < m->reached.count; at++)
        for (int32_t k = 0; k < m->reached.nodes[at]->n_in; k++)
            WN_TRY(maker_push(m, m->reached.nodes[at]->in[k], stamp));
    if (m->reached.count > 0)
        qsort(m->reached.nodes, (size_t)m->reached.count, sizeof *m->reached.nodes, wn__node_by_record);
    return WN_OK;
}

/* Fills the reference of n. Steps count from 0 until template_settle moves them behind the inputs, whose number is not
 * known before. */
static int32_t maker_ref(struct maker *m, struct wn_node *n, int32_t *ref, int32_t *is_step)
{
    *is_step = 0;
    *ref = OF_DY;
    if (n == m->placeholder) return WN_OK;
    if (n->wanted == m->dependent) {
        *ref = n->local;
        *is_step = 1;
        return WN_OK;
    }
    for (int64_t i = 0; i < m->external.count; i++) {
        if (m->external.nodes[i] != n) continue;
        *ref = (int32_t)i;
        return WN_OK;
    }
    *ref = (int32_t)m->external.count;
    return wn__order_push(&m->external, n);
}

enum { STEP_MARK = 1 << 30 }; /* bit of a reference to a step until the inputs are counted */

static int32_t maker_operand(struct maker *m, struct wn_node *n, int32_t *ref)
{
    int32_t is_step;
    WN_TRY(maker_ref(m, n, ref, &is_step));
    if (is_step) *ref |= STEP_MARK;
    return WN_OK;
}

static int32_t maker_step(struct maker *m, struct wn_node *n)
{
    struct wn__template *t = m->t;
    if (wn__op_draws(n->op, &n->attrs))
        return wn__fail(WN_VALUE,
                        "custom: the backward draws random numbers over dy (%s); draw them in the forward and "
                        "keep them in ctx.saved",
                        wn__op_name(n->op));
    WN_TRY(wn__grow(&t->step, &m->steps_capacity, t->n_steps + 1, sizeof *t->step));
    WN_TRY(wn__grow(&t->in, &m->operands_capacity, t->n_operands + n->n_in, sizeof *t->in));
    struct template_step *s = &t->step[t->n_steps];
    *s = (struct template_step){n->op, n->n_in, t->n_operands, n->attrs};
    for (int32_t k = 0; k < n->n_in; k++) WN_TRY(maker_operand(m, n->in[k], &t->in[s->first + k]));
    t->n_operands += n->n_in;
    n->wanted = m->dependent;
    n->local = t->n_steps++;
    return WN_OK;
}

/* Makes a step of every node that depends on the placeholder, and the references of the gradients r. */
static int32_t maker_steps(struct maker *m, struct wn_node *const *r, int32_t n)
{
    m->dependent = wn__node_stamp();
    for (int64_t i = 0; i < m->reached.count; i++) {
        struct wn_node *node = m->reached.nodes[i];
        int32_t depends = 0;
        for (int32_t k = 0; k < node->n_in; k++)
            depends |= node->in[k] == m->placeholder || node->in[k]->wanted == m->dependent;
        if (!depends) continue;
        if (node->custom != NULL)
            return wn__fail(WN_VALUE, "custom: the backward applies a custom function to dy; write its ops here");
        WN_TRY(maker_step(m, node));
    }
    m->t->out = wn__alloc((n + 1) * (int64_t)sizeof *m->t->out);
    if (m->t->out == NULL) return WN_OOM;
    m->t->n_out = n;
    for (int32_t i = 0; i < n; i++) {
        m->t->out[i] = OF_NONE;
        if (r[i] != NULL) WN_TRY(maker_operand(m, r[i], &m->t->out[i]));
    }
    return WN_OK;
}

/* Moves references to steps behind the inputs. */
static void template_settle(struct wn__template *t, int32_t n_inputs)
{
    t->n_inputs = n_inputs;
    for (int32_t i = 0; i < t->n_operands; i++)
        if (t->in[i] >= STEP_MARK) t->in[i] = n_inputs + (t->in[i] & ~STEP_MARK);
    for (int32_t i = 0; i < t->n_out; i++)
        if (t->out[i] >= STEP_MARK) t->out[i] = n_inputs + (t->out[i] & ~STEP_MARK);
}

static int32_t custom_check(struct wn_node *const *x, struct wn_node *const *r, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        if (r[i] == NULL || wn__type_agrees(&r[i]->type, &x[i]->type)) continue;
        char want[128];
        snprintf(want, sizeof want, "%s", wn__type_text(&x[i]->type));
        return wn__fail(WN_SHAPE, "custom: the backward returned %s as the gradient of tensor %d, which is %s",
                        wn__type_text(&r[i]->type), (int)i + 1, want);
    }
    return WN_OK;
}

/* Records the node that carries the template: a reshape of external[0], with n inputs that get gradients. */
static int32_t custom_node(struct maker *m, int32_t n, int32_t line, struct wn_node **out)
{
    struct wn_node *y = m->external.nodes[0], *node = wn__node_new((int32_t)m->external.count);
    if (node == NULL) return WN_OOM;
    node->op = WN_OP_RESHAPE;
    node->type = y->type;
    node->device = y->device;
    node->attrs.n = y->type.ndim;
    for (int32_t k = 0; k < y->type.ndim; k++) node->attrs.i[k] = y->type.dim[k];
    node->scope = wn__here.scope;
    node->region = wn__here.region;
    node->line = line;
    node->is_cut = !wn__here.grad;
    for (int32_t i = 0; i < node->n_in; i++) {
        struct wn_node *in = m->external.nodes[i];
        node->in[i] = in;
        wn__node_ref(in);
        if (in->depth >= node->depth) node->depth = in->depth + 1;
        if (i < 1 || i > n || !wn__here.grad) continue;
        node->needs_grad |= in->needs_grad;
        node->over_spent |= in->over_spent;
    }
    template_settle(m->t, node->n_in);
    node->custom = m->t;
    m->t->refs++;
    *out = node;
    return WN_OK;
}

int32_t wn__record_custom(const struct wn__custom *c, int32_t line, struct wn_node **out)
{
    struct maker m = {.placeholder = c->placeholder};
    int32_t n = c->n;
    WN_TRY(custom_check(c->x, c->r, n));
    m.t = wn__alloc(sizeof *m.t);
    if (m.t == NULL) return WN_OOM;
    *m.t = (struct wn__template){.refs = 1};
    int32_t code = wn__order_push(&m.external, c->y);
    for (int32_t i = 0; i < n && code == WN_OK; i++) code = wn__order_push(&m.external, c->x[i]);
    if (code == WN_OK) code = maker_reach(&m, c->r, n);
    if (code == WN_OK) code = maker_steps(&m, c->r, n);
    if (code == WN_OK) code = custom_node(&m, n, line, out);
    wn__template_unref(m.t);
    wn__order_release(&m.reached);
    wn__order_release(&m.external);
    return code;
}

/* ---- differentiating it -------------------------------------------------------------------------------- */

/* Returns whether v is made, by way of floats, of x. A value whose own inputs are gone may be, so it counts; one that
 * was recorded before x cannot be. A CELL counts as recorded first, since a cell may be read anew at any time. */
static int32_t is_made_of(struct wn_node *v, const struct wn_node *x, struct wn__order *w)
{
    int64_t stamp = wn__node_stamp(), first = x->op == WN_OP_CELL ? 0 : x->seq;
    w->count = 0;
    if (wn__order_push(w, v) != WN_OK) return 1;
    for (int64_t at = 0; at < w->count; at++) {
        struct wn_node *o = w->nodes[at];
        if (wn__node_is_same(o, x)) return 1;
        if (o->n_in == 0 && wn__op_rows[o->op].least > 0 && o->seq > first) return 1;
        for (int32_t k = 0; k < o->n_in; k++) {
            struct wn_node *in = o->in[k];
            if (in->stamp == stamp || in->seq < first || !wn__dtype_is_float(in->type.dtype)) continue;
            in->stamp = stamp;
            if (wn__order_push(w, in) != WN_OK) return 1;
        }
    }
    return 0;
}

/* Emits v as a value that depends in a way that is not known on the inputs of n that it is made of: its gradient is
 * refused. Returns v itself where it is made of none. */
static struct wn_node *opaque(struct wn__emitter *e, const struct wn_node *n, struct wn_node *v, struct wn__order *w)
{
    struct maker m = {.t = wn__alloc(sizeof *m.t)};
    struct wn_node *made = NULL;
    e->code = m.t == NULL ? WN_OOM : WN_OK;
    if (m.t != NULL) *m.t = (struct wn__template){.refs = 1, .is_opaque = 1};
    WN_KEEP(e->code, wn__order_push(&m.external, v));
    for (int32_t i = 1; i <= n->custom->n_out; i++)
        if (wn__dtype_is_float(n->in[i]->type.dtype) && is_made_of(v, n->in[i], w))
            WN_KEEP(e->code, wn__order_push(&m.external, n->in[i]));
    int32_t made_of = (int32_t)m.external.count - 1;
    struct wn_context before = wn__here;
    wn__here.scope = n->scope;
    wn__here.region = n->region;
    if (made_of > 0) WN_KEEP(e->code, custom_node(&m, made_of, n->line, &made));
    wn__here = before;
    wn__template_unref(m.t);
    wn__order_release(&m.external);
    if (e->code != WN_OK) return NULL;
    return made == NULL ? v : wn__emit_keep(e, made);
}

/* Fills value[i], which the steps read for input i of n. Where the gradient may be differentiated again, each value
 * says what it depends on: the result does so as the node itself; a value that the forward made of its arguments,
 * with gradients off, is opaque. */
static void template_inputs(struct wn__emitter *e, struct wn_node *n, struct wn_node **value)
{
    struct wn__order w = {0};
    for (int32_t i = 0; i < n->n_in; i++) {
        struct wn_node *v = n->in[i];
        value[i] = v;
        if (!wn__here.grad || e->code != WN_OK) continue;
        if (i == 0) value[i] = n;
        if (i > n->custom->n_out && v->is_cut && wn__dtype_is_float(v->type.dtype)) value[i] = opaque(e, n, v, &w);
    }
    wn__order_release(&w);
}

static int32_t template_refuse(const struct wn_node *n)
{
    const char *line = wn__line_text(n->line);
    return wn__fail(
        WN_UNSUPPORTED,
        "backward: the gradient of a custom function%s%s%s reads what its forward made of the arguments "
        "(ctx.saved), so it cannot be differentiated again; make that value of the arguments in the backward",
        line[0] ? " (recorded at " : "", line, line[0] ? ")" : "");
}

int32_t wn__template_emit(struct wn__emitter *e, struct wn_node *n)
{
    const struct wn__template *t = n->custom;
    if (t->is_opaque) return template_refuse(n);
    struct wn_node **value = wn__alloc((t->n_inputs + t->n_steps + t->n_operands + 1) * (int64_t)sizeof *value);
    if (value == NULL) return WN_OOM;
    struct wn_node **made = value + t->n_inputs, **in = made + t->n_steps,
                   *dy = wn__emit_layout(e, n->grad, WN_PLAIN); /* as the placeholder is */
    template_inputs(e, n, value);
    for (int32_t s = 0; s < t->n_steps && e->code == WN_OK; s++) {
        const struct template_step *step = &t->step[s];
        for (int32_t k = 0; k < step->n_in; k++) {
            int32_t ref = t->in[step->first + k];
            in[k] = ref == OF_DY ? dy : value[ref]; /* made[] goes on where the inputs end */
        }
        made[s] = wn__emit(&e->base, step->op, step->n_in, in, &step->attrs);
    }
    for (int32_t i = 0; i < t->n_out && e->code == WN_OK; i++) {
        struct wn_node *x = n->in[1 + i];
        int32_t ref = t->out[i];
        if (ref == OF_NONE || x->wanted != e->stamp) continue;
        wn__emit_gradient(e, x, ref == OF_DY ? dy : value[ref]);
    }
    wn__free(value);
    return e->code;
}

void wn__template_encode(struct wn__bytes *b, const struct wn__template *t)
{
    wn__bytes_int(b, t->is_opaque);
    wn__bytes_int(b, t->n_steps);
    wn__bytes_int(b, t->n_out);
    for (int32_t s = 0; s < t->n_steps; s++) {
        wn__bytes_int(b, t->step[s].op);
        wn__bytes_int(b, t->step[s].n_in);
        wn__bytes_attrs(b, &t->step[s].attrs);
    }
    for (int32_t i = 0; i < t->n_operands; i++) wn__bytes_int(b, t->in[i] - OF_NONE);
    for (int32_t i = 0; i < t->n_out; i++) wn__bytes_int(b, t->out[i] - OF_NONE);
}
