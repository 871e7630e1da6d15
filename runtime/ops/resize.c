/* Changes the number of rows and columns of an image by interpolation.
 *
 *     upsample2d     x: (N, C, H, W) -> y: (N, C, oh, ow)
 *     upsample2d_dx  dy: (N, C, oh, ow) -> dx: (N, C, H, W)
 *
 * With mode nearest, y(p, q) = x(floor(p s), floor(q s)). With mode bilinear, y(p, q) is interpolated between the four
 * elements around row (p + 1/2) s - 1/2, at least 0, and the column likewise; with align_corners around row
 * p (H - 1) / (oh - 1), so that corners stay. s, the rows of x for one row of y, is attrs.f, or H / oh where that is 0.
 * The larger of the two sizes may be that of x, so this shrinks too. base/resample.h has the formulas. Both ops are
 * linear, and each is the derivative of the other. */
#include "../base/resample.h"
#include "../base/window.h"
#include "helper.h"

static int32_t open(const struct wn_desc *d, int64_t size[2])
{
    const struct wn_type *x = &d->in[0];
    const char *name = wn__op_name(d->op);
    WN_TRY(wn__need_float_at(d, 0));
    WN_TRY(wn__need_image(d, 0, "the input"));
    for (int32_t k = 0; k < 2; k++) {
        size[k] = wn__pair_get(d->attrs.i[d->op == WN_OP_UPSAMPLE2D ? WN_RESAMPLE_OUT : WN_RESAMPLE_IN], k);
        if (size[k] < 1 || size[k] > WN_WINDOW_MOST || x->dim[2 + k] < 1 || x->dim[2 + k] > WN_WINDOW_MOST)
            return wn__fail(WN_VALUE, "%s: %s to %" PRId64 " x %" PRId64 " given, expected sizes from 1 to %d", name,
                            wn__shape_text(x), wn__pair_get(d->attrs.i[WN_RESAMPLE_OUT], 0),
                            wn__pair_get(d->attrs.i[WN_RESAMPLE_OUT], 1), WN_WINDOW_MOST);
        if (!(d->attrs.f[k] >= 0 && d->attrs.f[k] <= WN_WINDOW_MOST))
            return wn__fail(WN_VALUE, "%s: scale %g given, expected 0 (of the sizes) or more, at most %d", name,
                            d->attrs.f[k], WN_WINDOW_MOST);
    }
    if (d->attrs.i[WN_RESAMPLE_MODE] < 0 || d->attrs.i[WN_RESAMPLE_MODE] >= WN_RESAMPLE_MODES)
        return wn__fail(WN_VALUE, "%s: mode %" PRId64 " is unknown", name, d->attrs.i[WN_RESAMPLE_MODE]);
    return WN_OK;
}

static int32_t shape_resize(struct wn_desc *d)
{
    int64_t size[2] = {0, 0};
    WN_TRY(open(d, size));
    d->out = d->in[0];
    for (int32_t k = 0; k < 2; k++) d->out.dim[2 + k] = size[k];
    return wn__check_out(d);
}

static int32_t shape_upsample2d_dx(struct wn_desc *d)
{
    WN_TRY(shape_resize(d));
    for (int32_t k = 0; k < 2; k++)
        if (d->in[0].dim[2 + k] != wn__pair_get(d->attrs.i[WN_RESAMPLE_OUT], k))
            return wn__fail(WN_SHAPE, "upsample2d_dx: dy is %s, expected %" PRId64 " rows and %" PRId64 " columns",
                            wn__shape_text(&d->in[0]), wn__pair_get(d->attrs.i[WN_RESAMPLE_OUT], 0),
                            wn__pair_get(d->attrs.i[WN_RESAMPLE_OUT], 1));
    return WN_OK;
}

/* Returns the cost: four terms of two FLOPs for an element of y with mode bilinear. */
static struct wn_cost cost_resize(const struct wn_desc *d)
{
    const struct wn_type *y = d->op == WN_OP_UPSAMPLE2D ? &d->out : &d->in[0];
    return wn__cost_of(d, (d->attrs.i[WN_RESAMPLE_MODE] == WN_RESAMPLE_BILINEAR ? 8.0 : 1.0) * (double)wn__numel(y));
}

static void grad_upsample2d(struct wn__grad *g)
{
    struct wn_attrs attrs = g->d->attrs;
    attrs.i[WN_RESAMPLE_IN] = wn__pair(g->d->in[0].dim[2], g->d->in[0].dim[3]);
    if (wn__wants(g, 0)) g->dx[0] = wn__emit_op(g, WN_OP_UPSAMPLE2D_DX, g->dy, &attrs);
}

static void grad_upsample2d_dx(struct wn__grad *g)
{
    if (wn__wants(g, 0)) g->dx[0] = wn__emit_op(g, WN_OP_UPSAMPLE2D, g->dy, &g->d->attrs);
}

const struct wn__rules wn__rules_upsample2d = {shape_resize, grad_upsample2d, .cost = cost_resize};
const struct wn__rules wn__rules_upsample2d_dx = {shape_upsample2d_dx, grad_upsample2d_dx, .cost = cost_resize};
