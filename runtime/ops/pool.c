/* Poolings of images: the largest element, or the mean, of each window (base/window.h).
 *
 *     max_pool2d_index  x: (N, C, H, W) -> i: (N, C, oh, ow) u8: the place of the largest element in its window,
 *                       kh * kernel columns + kw. The first of equal ones; a NaN is larger than any number.
 *     max_pool2d        x, i -> y: (N, C, oh, ow), the elements at these places; without i the largest of each window
 *     max_pool2d_dx     dy, i -> dx: (N, C, H, W): each element is the sum of the dy whose windows chose it
 *     avg_pool2d        x -> y: (N, C, oh, ow), the mean of each window
 *     avg_pool2d_dx     dy -> dx: (N, C, H, W)
 *
 * A byte a window is all that the gradient of a maximum needs: PyTorch keeps x and an i64 a window. The index is
 * integer, so it is saved and never recomputed; y may be recomputed. All but the index are linear, and each derivative
 * is the other's. */
#include "../base/window.h"
#include "helper.h"

enum { PLACES = 255 }; /* of a window of max_pool2d: the index is a byte, and 255 stays free */

static const char *const part_name[2] = {"rows", "columns"};

/* Fills w->out[k] from w->in[k]. The last window begins inside the image or the padding before it. */
static int32_t count_windows(const struct wn_desc *d, struct wn__window *w, int32_t k)
{
    WN_TRY(wn__need_window(d, "image size", w->in[k], 1));
    if (w->flags & WN_POOL_IS_ADAPTIVE) {
        w->out[k] = w->kernel[k];
        if (w->pad[k] != 0)
            return wn__fail(WN_VALUE, "%s: padding %" PRId64 " given with the size of the result, expected 0",
                            wn__op_name(d->op), w->pad[k]);
        return wn__need_window(d, "output size", w->out[k], 1);
    }
    WN_TRY(wn__need_window(d, "kernel size", w->kernel[k], 1));
    WN_TRY(wn__need_window(d, "stride", w->stride[k], 1));
    WN_TRY(wn__need_window(d, "padding", w->pad[k], 0));
    if (w->pad[k] > w->kernel[k] / 2)
        return wn__fail(WN_VALUE,
                        "%s: padding %" PRId64 " given, expected at most %" PRId64 ", half of the window's %" PRId64
                        " %s",
                        wn__op_name(d->op), w->pad[k], w->kernel[k] / 2, w->kernel[k], part_name[k]);
    int64_t padded = w->in[k] + 2 * w->pad[k], room = padded - w->kernel[k];
    if (room < 0)
        return wn__fail(WN_SHAPE,
                        "%s: a window of %" PRId64 " %s is larger than the padded image with %" PRId64
                        "; take a smaller window",
                        wn__op_name(d->op), w->kernel[k], part_name[k], padded);
    int32_t is_ceil = (w->flags & WN_POOL_CEIL) != 0;
    w->out[k] = (room + (is_ceil ? w->stride[k] - 1 : 0)) / w->stride[k] + 1;
    if (is_ceil && (w->out[k] - 1) * w->stride[k] >= w->in[k] + w->pad[k]) w->out[k]--;
    return WN_OK;
}

/* Checks the image, and fills *w for windows over one of size `in`. */
static int32_t open(const struct wn_desc *d, const int64_t in[2], struct wn__window *w)
{
    WN_TRY(wn__need_float_at(d, 0));
    WN_TRY(wn__need_image(d, 0, "the input"));
    wn__window_pool_attrs(&d->attrs, w);
    int32_t is_max = d->op != WN_OP_AVG_POOL2D && d->op != WN_OP_AVG_POOL2D_DX;
    if (w->flags & ~(WN_POOL_CEIL | (is_max ? 0 : WN_POOL_COUNTS_PAD | WN_POOL_IS_ADAPTIVE)))
        return wn__fail(WN_VALUE, "%s: flags %d are unknown", wn__op_name(d->op), (int)w->flags);
    for (int32_t k = 0; k < 2; k++) {
        w->in[k] = in[k];
        WN_TRY(count_windows(d, w, k));
    }
    if (!is_max || w->kernel[0] * w->kernel[1] <= PLACES) return WN_OK;
    return wn__fail(WN_VALUE,
                    "%s: a window of %" PRId64 " x %" PRId64
                    " given, expected at most %d places; pool twice with smaller windows",
                    wn__op_name(d->op), w->kernel[0], w->kernel[1], PLACES);
}

static struct wn_type with_size(const struct wn_type *t, const int64_t size[2])
{
    struct wn_type out = {.dtype = t->dtype, .ndim = 4, .dim = {t->dim[0], t->dim[1], size[0], size[1]}};
    return out;
}

/* Writes the type of a pooling's result. */
static int32_t shape_forward(struct wn_desc *d)
{
    struct wn__window w;
    WN_TRY(open(d, d->in[0].dim + 2, &w));
    d->out = with_size(&d->in[0], w.out);
    return wn__check_out(d);
}

/* Writes the type of a derivative's result, of the size that attrs name, where dy has the windows of that size. */
static int32_t shape_backward(struct wn_desc *d)
{
    struct wn__window w;
    int64_t size[2] = {wn__pair_get(d->attrs.i[WN_POOL_SIZE], 0), wn__pair_get(d->attrs.i[WN_POOL_SIZE], 1)};
    WN_TRY(open(d, size, &w));
    struct wn_type want = with_size(&d->in[0], w.out);
    if (!wn__shape_equal(&d->in[0], &want))
        return wn__fail(WN_SHAPE,
                        "%s: dy is %s, expected %s: what the pooling makes of an image of %" PRId64 " x %" PRId64,
                        wn__op_name(d->op), wn__shape_text(&d->in[0]), wn__shape_text(&want), size[0], size[1]);
    d->out = with_size(&d->in[0], size);
    return wn__check_out(d);
}

/* Fails unless input 2 holds a u8 for each window. */
static int32_t need_index(const struct wn_desc *d, const struct wn_type *windows)
{
    if (d->in[1].dtype != WN_U8)
        return wn__fail(WN_DTYPE, "%s: the index is %s, expected u8", wn__op_name(d->op), wn__type_text(&d->in[1]));
    return wn__need_shape(d, 1, windows, "the index");
}

/* Returns a cost of 1 FLOP for every place of every window of y; with an index max_pool2d computes nothing. */
static struct wn_cost cost_windows(const struct wn_desc *d)
{
    struct wn__window w;
    const struct wn_type *y = d->op == WN_OP_MAX_POOL2D_DX || d->op == WN_OP_AVG_POOL2D_DX ? &d->in[0] : &d->out;
    if (d->op == WN_OP_MAX_POOL2D && d->n_in > 1) return wn__cost_of(d, 0);
    wn__window_pool_attrs(&d->attrs, &w);
    double places = (double)w.kernel[0] * (double)w.kernel[1];
    if (w.flags & WN_POOL_IS_ADAPTIVE)
        places = (double)wn__numel(y == &d->out ? &d->in[0] : &d->out) / wn_max(wn__numel(y), 1);
    return wn__cost_of(d, (double)wn__numel(y) * places);
}

/* Records op(dy, index of this application) with its attributes, and the size of the image in[0]. */
static struct wn_node *emit_pool(struct wn__grad *g, int32_t op, struct wn_node *index)
{
    struct wn_node *in[2] = {g->dy, index};
    struct wn_attrs attrs = g->d->attrs;
    attrs.i[WN_POOL_SIZE] = wn__pair(g->d->in[0].dim[2], g->d->in[0].dim[3]);
    return wn__emit(g->e, op, index == NULL ? 1 : 2, in, &attrs);
}

/* ---- max_pool2d_index ------------------------------------------------------------------------------ */
static int32_t shape_max_pool2d_index(struct wn_desc *d)
{
    WN_TRY(shape_forward(d));
    d->out.dtype = WN_U8;
    return WN_OK;
}

const struct wn__rules wn__rules_max_pool2d_index = {shape_max_pool2d_index, NULL, .cost = cost_windows};

/* ---- max_pool2d ------------------------------------------------------------------------------------ */
static int32_t shape_max_pool2d(struct wn_desc *d)
{
    WN_TRY(shape_forward(d));
    return d->n_in > 1 ? need_index(d, &d->out) : WN_OK;
}

/* Without an index the gradient makes one. */
static void grad_max_pool2d(struct wn__grad *g)
{
    if (!wn__wants(g, 0)) return;
    struct wn_node *index = g->d->n_in > 1 ? g->in[1] : NULL;
    if (index == NULL) index = wn__emit_op(g, WN_OP_MAX_POOL2D_INDEX, g->in[0], &g->d->attrs);
    g->dx[0] = emit_pool(g, WN_OP_MAX_POOL2D_DX, index);
}

const struct wn__rules wn__rules_max_pool2d = {shape_max_pool2d, grad_max_pool2d, .cost = cost_windows};

/* ---- max_pool2d_dx --------------------------------------------------------------------------------- */
static int32_t shape_max_pool2d_dx(struct wn_desc *d)
{
    WN_TRY(shape_backward(d));
    return need_index(d, &d->in[0]);
}

static void grad_max_pool2d_dx(struct wn__grad *g)
{
    if (wn__wants(g, 0)) g->dx[0] = emit_pool(g, WN_OP_MAX_POOL2D, g->in[1]);
}

const struct wn__rules wn__rules_max_pool2d_dx = {shape_max_pool2d_dx, grad_max_pool2d_dx, .cost = cost_windows};

/* ---- avg_pool2d, avg_pool2d_dx --------------------------------------------------------------------- */
/* Records the gradient of one of the two, which is the other. */
static void grad_avg_pool2d(struct wn__grad *g)
{
    int32_t other = g->d->op == WN_OP_AVG_POOL2D ? WN_OP_AVG_POOL2D_DX : WN_OP_AVG_POOL2D;
    if (wn__wants(g, 0)) g->dx[0] = emit_pool(g, other, NULL);
}

const struct wn__rules wn__rules_avg_pool2d = {shape_forward, grad_avg_pool2d, .cost = cost_windows};
const struct wn__rules wn__rules_avg_pool2d_dx = {shape_backward, grad_avg_pool2d, .cost = cost_windows};
