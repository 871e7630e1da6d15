/* Searches values for elements that are not finite (anomaly.h). Values are read through the device's `get`, a block
 * at a time, so that a device whose memory the host cannot reach is searched like any other. The cost is one more
 * read of everything that a program makes. */
#include "anomaly.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "../plan/ir/rewrite.h"

int32_t wn__anomaly_on;
struct wn_anomaly wn__anomaly_found;

struct count {
    int64_t bad, first; /* how many elements the mode looks for; the index of the first in memory, -1: none */
    double value;
};

static int32_t is_meant(double v)
{
    return wn__anomaly_on == WN_ANOMALY_NAN ? isnan(v) : !isfinite(v);
}

/* Counts the elements of a value that the mode looks for, block by block. */
static int32_t count_in(struct wn_device *d, const struct wn__anomaly_value *v, struct count *c)
{
    char block[65536];
    int64_t size = wn__dtype_size(v->type->dtype), bytes = wn__bytes(v->type);
    *c = (struct count){0, -1, 0};
    if (!wn__dtype_is_float(v->type->dtype) || v->data == NULL || !d->real) return WN_OK;
    WN_TRY(d->sync(d));
    for (int64_t at = 0; at < bytes; at += (int64_t)sizeof block) {
        int64_t n = bytes - at < (int64_t)sizeof block ? bytes - at : (int64_t)sizeof block;
        WN_TRY(d->get(d, block, (const char *)v->data + at, n));
        for (int64_t k = 0; k < n; k += size) {
            double x = wn__number_get(v->type->dtype, block + k);
            if (!is_meant(x)) continue;
            if (c->bad++ == 0) {
                c->first = (at + k) / size;
                c->value = x;
            }
        }
    }
    return WN_OK;
}

/* Appends to the message: ", its inputs are finite", or which of them is not. */
static int32_t tell_inputs(struct wn_device *d, const struct wn__anomaly_value *in, int32_t n_in, char *text,
                           size_t room)
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

static int32_t stop(struct wn_program *p, int32_t node, int32_t phase, const struct wn__anomaly_value *made,
                    const struct count *c, const char *inputs)
{
    static const char *const phases[] = {"forward", "recompute", "backward", "update"};
    const struct wn__ir *ir = p->ir;
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

int32_t wn__anomaly_check(struct wn_program *p, const struct wn__instr *n, const struct wn__anomaly_value *made,
                          const struct wn__anomaly_value *in, int32_t n_in)
{
    struct wn_device *d = wn__device(p->device);
    struct count c;
    char inputs[300];
    WN_TRY(count_in(d, made, &c));
    if (c.bad == 0) return WN_OK;
    WN_TRY(tell_inputs(d, in, n_in, inputs, sizeof inputs));
    return stop(p, n->node, n->phase, made, &c, inputs);
}

int32_t wn__anomaly_check_leaf(struct wn_program *p, int32_t node, const struct wn__anomaly_value *value)
{
    struct count c;
    WN_TRY(count_in(wn__device(p->device), value, &c));
    return c.bad == 0 ? WN_OK
                      : stop(p, node, WN_PHASE_UPDATE, value, &c, "it was so before the run; nothing has changed");
}
