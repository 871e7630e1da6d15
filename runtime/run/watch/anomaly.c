/* Searches for values that are not finite while a program runs: those that each application made, before the next one
 * starts, and before the first those that effects read. Values are read through the device's `get`, a block
 * at a time, so that a device whose memory the host cannot reach is searched like any other. The cost is one more
 * read of everything that a program makes. */
#include <math.h>
#include <stdio.h>
#include "watch.h"

int32_t wn__anomaly_on;
struct wn_anomaly wn__anomaly_found;

/* A value in memory: `type` at `data` of a device. */
struct value {
    const struct wn_type *type;
    const void *data; /* NULL: it is overwritten by now, or there is none */
};

struct count {
    int64_t bad, first; /* how many elements the mode looks for; the index of the first in memory, -1: none */
    double value;
};

static int32_t is_meant(double v)
{
    return wn__anomaly_on == WN_ANOMALY_NAN ? isnan(v) : !isfinite(v);
}

/* Returns the number of the element at a place in memory, counted in elements. Images and weights count as they lie. */
static int64_t element_at(const struct wn_type *t, int64_t place)
{
    if (t->layout != WN_ROWS) return place;
    const int64_t pitch = wn__row_pitch(t);
    return place / pitch * t->dim[t->ndim - 1] + place % pitch;
}

/* Counts the elements of a value that the mode looks for, block by block. */
static int32_t count_in(struct wn_device *d, const struct value *v, struct count *c)
{
    char block[65536];
    int64_t size = wn__dtype_size(v->type->dtype), bytes = wn__bytes(v->type);
    *c = (struct count){0, -1, 0};
    if (!wn__dtype_is_float(v->type->dtype) || v->data == NULL || !d->real) return WN_OK;
    WN_TRY(d->sync(d));
    for (int64_t at = 0; at < bytes; at += (int64_t)sizeof block) {
        int64_t n = bytes - at < (int64_t)sizeof block ? bytes - at : (int64_t)sizeof block;
        WN_TRY(d->get(d, block, (const char *)v->data + at, n));
        wn__rows_clear(v->type, block, at, n);
        for (int64_t k = 0; k < n; k += size) {
            double x = wn__number_get(v->type->dtype, block + k);
            if (!is_meant(x)) continue;
            if (c->bad++ == 0) {
                c->first = element_at(v->type, (at + k) / size);
                c->value = x;
            }
        }
    }
    return WN_OK;
}

/* Appends to the message: ", its inputs are finite", or which of them is not. */
static int32_t tell_inputs(struct wn_device *d, const struct value *in, int32_t n_in, char *text, size_t room)
{
    struct count c;
    snprintf(text, room, "%s", n_in > 0 ? "its inputs are finite" : "it has no input");
    for (int32_t i = 0; i < n_in; i++) {
        if (in[i].data == NULL) {
            snprintf(text, room, "input %d was overwritten by it", i + 1);
            return WN_OK;
        }
        WN_TRY(count_in(d, &in[i], &c));
        if (c.bad == 0) continue;
        snprintf(text, room, "input %d, %s, is not finite either", i + 1, wn__type_text(in[i].type));
        return WN_OK;
    }
    return WN_OK;
}

/* Returns WN_ANOMALY with op, module, line and phase. */
static int32_t tell(const struct wn_program *p, int32_t node, int32_t phase, const struct value *made,
                    const struct count *c, const char *inputs)
{
    static const char *const phases[] = {"forward", "recompute", "backward", "update"};
    const struct wn__ir *ir = p->plan.ir;
    const struct wn__ir_node *q = &ir->node[node], *said = q->forward_of >= 0 ? &ir->node[q->forward_of] : q;
    const struct wn__scope *scope = wn__scope_get(said->scope > 0 ? said->scope : q->scope);
    int32_t line = said->line > 0 ? said->line : q->line;
    const char *at = wn__line_text(line), *op = wn__ir_op_text(ir, node);
    wn__anomaly_found = (struct wn_anomaly){.op = wn__op_name(q->op),
                                            .path = scope->path,
                                            .module = scope->type,
                                            .phase = phase,
                                            .line = line,
                                            .node = node,
                                            .count = c->bad,
                                            .elements = wn__numel(made->type),
                                            .first = c->first,
                                            .value = c->value};
    return wn__fail(
        WN_ANOMALY,
        "anomaly: %s of %s%s%s%s%s%s, in the %s, made %lld of %lld values that are not finite (element %lld is "
        "%g); %s",
        op, scope->path[0] ? scope->path : "the script", scope->path[0] ? " (" : "", scope->path[0] ? scope->type : "",
        scope->path[0] ? ")" : "", at[0] ? ", recorded at " : "", at, phases[phase], (long long)c->bad,
        (long long)wn__numel(made->type), (long long)c->first + 1, c->value, inputs);
}

/* Searches the value that instruction n made, or wrote into a cell. The message says which of its n_in inputs were
 * finite. */
static int32_t search_made(struct wn__run *r, const struct wn__instr *n, const struct value *made,
                           const struct value *in, int32_t n_in)
{
    struct count c;
    char inputs[300];
    WN_TRY(count_in(r->device, made, &c));
    if (c.bad == 0) return WN_OK;
    WN_TRY(tell_inputs(r->device, in, n_in, inputs, sizeof inputs));
    return tell(r->p, n->node, n->phase, made, &c, inputs);
}

/* Searches what an instruction made. Inputs whose bytes the output took over are gone by now. */
static int32_t search(struct wn__run *r, void *own, const struct wn__instr *n)
{
    struct value made, in[8];
    struct wn__applied room;
    const struct wn__schedule *s = r->schedule;
    (void)own;
    if (!wn__instr_has_kernel(n)) return WN_OK;
    const struct wn_desc *desc = wn__instr_desc(r->ir, s, n, &room);
    int32_t n_in = desc->n_in < 8 ? desc->n_in : 8;
    made.type = &desc->out;
    made.data = n->out >= 0 ? wn__value_address(r, n->out) : NULL;
    for (int32_t k = 0; k < n_in; k++) {
        const void *at = wn__value_address(r, s->in[n->in_at + k]);
        in[k] = (struct value){&desc->in[k], n->out >= 0 && at == made.data ? NULL : at};
    }
    if (n->out >= 0) return search_made(r, n, &made, in, n_in);
    for (int32_t k = 0; k < 3; k++) {
        if (n->cell[k] < 0) continue;
        made.data = wn__written_address(r, n, k);
        WN_TRY(search_made(r, n, &made, in, n_in));
    }
    return WN_OK;
}

/* Searches what effects read and no instruction makes, gradients and held values, before any state is changed. */
static int32_t search_before(struct wn__run *r, void **own)
{
    const struct wn_program *p = r->p;
    const struct wn__ir *ir = p->plan.ir;
    *own = r;
    for (int32_t i = ir->n - ir->n_effects; i < ir->n; i++) {
        const struct wn__ir_node *q = &ir->node[ir->in[ir->node[i].in_at]];
        struct value v = {&q->type, NULL};
        struct count c;
        if (q->leaf == WN_LEAF_CELL) v.data = wn__cell_data(p->bindings.cell[q->slot]);
        if (q->leaf == WN_LEAF_HELD) v.data = p->bindings.bound[q->slot]->held->data;
        WN_TRY(count_in(r->device, &v, &c));
        if (c.bad > 0) return tell(p, i, WN_PHASE_UPDATE, &v, &c, "it was so before the run; nothing has changed");
    }
    return WN_OK;
}

const struct wn__watch wn__watch_anomaly = {
    .is_on = &wn__anomaly_on, .is_apart = 1, .start = search_before, .at[WN_MOMENT_AFTER] = search};
