/* The functions that gradient rules call (declared in op.h). Each asks the recorder of the pass, so that ops link with
 * nothing above them. A rule checks no outcome: after a failure, every function that returns a node returns NULL, and
 * takes NULL. */
#include <stddef.h>
#include "op.h"

int32_t wn__wants(const struct wn__grad *g, int32_t i)
{
    return g->e->recorder->is_wanted(g->e, g->in[i]);
}

void wn__give_zero(struct wn__grad *g, int32_t i)
{
    g->dx[i] = g->e->recorder->zero;
}

int32_t wn__is_made_by(const struct wn__grad *g, const struct wn_node *v, int32_t op, const struct wn_node *x)
{
    return g->e->recorder->is_made_by(v, op, x);
}

const struct wn_type *wn__value_type(const struct wn__grad *g, const struct wn_node *v)
{
    static const struct wn_type none;
    return v == NULL ? &none : g->e->recorder->type(v);
}

struct wn_node *wn__emit(struct wn__emit *e, int32_t op, int32_t n, struct wn_node *const *in,
                         const struct wn_attrs *attrs)
{
    return e->recorder->record(e, op, n, in, attrs, NULL);
}

struct wn_node *wn__emit1(struct wn__emit *e, int32_t op, struct wn_node *a)
{
    return wn__emit(e, op, 1, &a, NULL);
}

struct wn_node *wn__emit2(struct wn__emit *e, int32_t op, struct wn_node *a, struct wn_node *b)
{
    struct wn_node *in[2] = {a, b};
    return wn__emit(e, op, 2, in, NULL);
}

struct wn_node *wn__emit_scalar(struct wn__emit *e, double value, int32_t dtype)
{
    struct wn_attrs attrs = {.n = 0, .dtype = dtype, .f = {value}};
    return wn__emit(e, WN_OP_FULL, 0, NULL, &attrs);
}

struct wn_node *wn__emit_replay(struct wn__emit *e, int32_t op, int32_t n, struct wn_node *const *in,
                                const struct wn_attrs *attrs, const struct wn_node *like)
{
    return e->recorder->record(e, op, n, in, attrs, like);
}

struct wn_node *wn__emit_sum_to(struct wn__emit *e, struct wn_node *g, const struct wn_type *target)
{
    const struct wn_type *type = g == NULL ? target : e->recorder->type(g);
    if (wn__shape_equal(type, target)) return g;
    struct wn_attrs sum = {0}, shape = {.n = target->ndim};
    int32_t extra = type->ndim - target->ndim;
    for (int32_t i = 0; i < type->ndim; i++)
        if (i < extra || (target->dim[i - extra] == 1 && type->dim[i] != 1)) sum.i[sum.n++] = i;
    sum.i[WN_MAX_DIMS - 1] = 1;
    if (sum.n > 0) g = wn__emit(e, WN_OP_SUM, 1, &g, &sum);
    if (extra == 0) return g;
    for (int32_t i = 0; i < target->ndim; i++) shape.i[i] = target->dim[i];
    return wn__emit(e, WN_OP_RESHAPE, 1, &g, &shape);
}
