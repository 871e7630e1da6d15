/* Checks what a caller gives, one function a concept, before any room below sees it. Whatever numbers come, a call
 * either does what its comment says or returns a status with words: nothing is read past an array, no sum
 * overflows, no NULL pointer is followed. Only the length of a caller's array cannot be checked. */
#include <math.h>
#include "../link/link.h"
#include "api.h"

int32_t wn__need(const void *pointer, const char *what)
{
    if (pointer != NULL) return WN_OK;
    return wn__fail(WN_VALUE, "%s: a NULL pointer was given; give the address of what it asks for", what);
}

int32_t wn__check_array(const void *array, int64_t n, int64_t most, const char *what)
{
    if (n < 0 || n > most)
        return wn__fail(WN_VALUE, "%s: %lld entries given, expected 0 to %lld", what, (long long)n, (long long)most);
    return n == 0 ? WN_OK : wn__need(array, what);
}

int32_t wn__check_bytes(const void *bytes, int64_t at, int64_t n, const char *what)
{
    if (at < 0 || n < 0 || at > INT64_MAX - n)
        return wn__fail(WN_VALUE, "%s: %lld bytes from byte %lld given, expected 0 or more of both", what, (long long)n,
                        (long long)at);
    return n == 0 ? WN_OK : wn__need(bytes, what);
}

int32_t wn__check_type(const struct wn_type *type, const char *what)
{
    WN_TRY(wn__need(type, what));
    return wn__type_check(type, what);
}

int32_t wn__check_device(int32_t device, const char *what)
{
    WN_TRY(wn__thread_check());
    const struct wn_device *d = wn__device(device);
    if (d == NULL) return wn__fail(WN_DEVICE, "%s: there is no device %d", what, device);
    return d->absent == NULL ? WN_OK : wn__fail(WN_DEVICE, "%s: %s is not here: %s", what, d->name, d->absent);
}

/* ---- recording ------------------------------------------------------------------------------------------------ */

/* Returns whether an op reads attrs.layout, which then need not be plain. */
static int32_t has_layout(int32_t op)
{
    return op == WN_OP_FULL || op == WN_OP_UNIFORM || op == WN_OP_NORMAL || op == WN_OP_RELAYOUT ||
           op == WN_OP_MATMUL || op == WN_OP_CONV2D_DW;
}

int32_t wn__check_attrs(int32_t op, const struct wn_attrs *a)
{
    const char *name = wn__op_name(op);
    if (a == NULL) return WN_OK;
    if (a->n < 0 || a->n > WN_MAX_DIMS)
        return wn__fail(WN_VALUE, "%s: %d attributes given, expected 0 to %d", name, a->n, WN_MAX_DIMS);
    if (a->dtype < 0 || a->dtype >= WN_DTYPE_COUNT)
        return wn__fail(WN_DTYPE, "%s: element type %d is unknown", name, a->dtype);
    if (a->layout < 0 || a->layout >= WN_LAYOUT_COUNT)
        return wn__fail(WN_VALUE, "%s: layout %d is unknown", name, a->layout);
    if (a->layout == WN_PLAIN || has_layout(op)) return WN_OK;
    return wn__fail(WN_VALUE, "%s: its result can only be plain, layout %d was given", name, a->layout);
}

int32_t wn__check_number(double v, int32_t dtype, const char *what)
{
    struct wn_type type = {.dtype = dtype};
    WN_TRY(wn__type_check(&type, what));
    double least = dtype == WN_I32 ? INT32_MIN : dtype == WN_I8 ? INT8_MIN : 0;
    double most = dtype == WN_I32 ? INT32_MAX : dtype == WN_I8 ? INT8_MAX : UINT8_MAX;
    if (wn__dtype_is_float(dtype) || (v > least - 1 && v < most + 1)) return WN_OK;
    return wn__fail(WN_VALUE, "%s: %g is no number of %s; use one from %g to %g, or a float dtype", what, v,
                    wn__dtype_name(dtype), least, most);
}

/* ---- state and programs ---------------------------------------------------------------------------------------- */

int32_t wn__check_cell(int32_t kind, const struct wn_node *init)
{
    if (kind != WN_KIND_PARAMETER && kind != WN_KIND_OPTIMIZER && kind != WN_KIND_BUFFER && kind != WN_KIND_INPUT)
        return wn__fail(WN_VALUE,
                        "cell: a state cannot be of kind %d; expected a parameter, optimizer, buffer or input", kind);
    if (init->op == WN_OP_CONST && init->type.ndim > 0)
        return wn__fail(WN_VALUE, "cell: it cannot begin as a vector of host numbers; begin with wn_data or a created "
                                  "value");
    return wn__type_check(&init->type, "cell");
}

int32_t wn__check_request(const struct wn_request *r)
{
    enum { MOST = 1 << 24 };
    WN_TRY(wn__need(r, "run"));
    if (r->mode < WN_RUN_EVAL || r->mode > WN_RUN_ASSIGN)
        return wn__fail(WN_VALUE, "run: there is no mode %d", r->mode);
    WN_TRY(wn__check_array(r->roots, r->n_roots, MOST, "run: roots"));
    WN_TRY(wn__check_array(r->updates, r->n_updates, MOST, "run: updates"));
    WN_TRY(wn__check_array(r->cells, r->n_cells, MOST, "run: cells"));
    if (!isfinite(r->scale)) return wn__fail(WN_VALUE, "run: the scale is %g, expected a finite number", r->scale);
    if (!(r->clip >= 0) || (r->clip > 0 && r->mode != WN_RUN_STEP))
        return wn__fail(WN_VALUE, "run: a clip of %g given, expected 0 (none), or a norm above 0 with a step", r->clip);
    int32_t ranks = wn__link_get()->size;
    if (r->given < 0 || r->given > ranks || (r->given > 0 && r->mode != WN_RUN_BACKWARD && r->mode != WN_RUN_UPDATE))
        return wn__fail(WN_VALUE,
                        "run: %d of %d ranks give, expected 0 (none is asked), or more with a backward or an update",
                        r->given, ranks);
    int32_t place = r->is_shared ? wn__link_get()->rank / wn__link_get()->per_node : wn__link_get()->rank;
    if (r->given > 0 && r->is_idle != (place >= r->given))
        return wn__fail(WN_VALUE, "run: rank %d is %sidle where %d %s give", wn__link_get()->rank,
                        r->is_idle ? "" : "not ", r->given, r->is_shared ? "machines" : "ranks");
    if (r->is_shared && (r->joint || r->given > ranks / wn__link_get()->per_node || r->mode != WN_RUN_BACKWARD))
        return wn__fail(WN_VALUE,
                        "run: a partial sum of %d machines of %d given, expected one of a backward root by root",
                        r->given, ranks / wn__link_get()->per_node);
    int32_t updates = r->mode == WN_RUN_STEP || r->mode == WN_RUN_UPDATE;
    if ((r->mode == WN_RUN_UPDATE) != (r->n_roots == 0))
        return wn__fail(WN_VALUE, "run: %d roots given, expected %s", r->n_roots,
                        r->mode == WN_RUN_UPDATE ? "none: an update reads the gradients" : "1 or more");
    int32_t one_pass = r->joint || r->n_roots - r->n_also == 1;
    if (r->n_also != 0 && (r->n_also < 0 || r->n_also >= r->n_roots || !one_pass ||
                           (r->mode != WN_RUN_BACKWARD && r->mode != WN_RUN_STEP)))
        return wn__fail(WN_VALUE, "run: %d of %d roots given beside the losses, expected one loss with them", r->n_also,
                        r->n_roots);
    if (updates != (r->n_updates > 0))
        return wn__fail(WN_VALUE, "run: %d updates given, expected %s", r->n_updates, updates ? "1 or more" : "none");
    if (r->n_cells != (r->mode == WN_RUN_ASSIGN ? r->n_roots : 0))
        return wn__fail(WN_VALUE, "run: %d cells given, expected one a value assigned", r->n_cells);
    return WN_OK;
}

int32_t wn__check_recipe(const struct wn_recipe_given *g)
{
    enum { MOST = 1 << 26 };
    WN_TRY(wn__need(g, "recipe"));
    WN_TRY(wn__check_array(g->step, g->n_steps, MOST, "recipe: steps"));
    WN_TRY(wn__check_array(g->limit, g->n_blocks, MOST, "recipe: blocks"));
    WN_TRY(wn__check_array(g->keep, g->n_keep, MOST, "recipe: keep sets"));
    WN_TRY(wn__check_array(g->action, g->n_keep, MOST, "recipe: actions"));
    for (int32_t i = 0; i < g->n_steps; i++) {
        const struct wn_recipe_step *s = &g->step[i];
        if (s->keep_at < 0 || s->n_keep < 0 || s->keep_at > g->n_keep - s->n_keep)
            return wn__fail(WN_ILLEGAL, "recipe: rule 'keep': step %d names values %d to %lld of %d", i + 1, s->keep_at,
                            (long long)s->keep_at + s->n_keep, g->n_keep);
    }
    return WN_OK;
}
