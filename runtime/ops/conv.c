/* Convolutions of images, and their two gradients (Goodfellow, Bengio, Courville, "Deep Learning", 2016, section 9.5).
 *
 *     conv2d     x: (N, C, H, W), w: (O, C/G, kh, kw), b: (O) -> y: (N, O, oh, ow)
 *                y(n, o, p, q) = b(o) + sum over (r, s, c) of x(n, c, p S - P + r D, q S - P + s D) w(o, c, r, s)
 *     conv2d_dx  dy: (N, O, oh, ow), w -> dx: (N, C, H, W)
 *     conv2d_dw  dy, x -> dw: (O, C/G, kh, kw)
 *
 * with stride S, padding P, dilation D and groups G from the attributes (base/window.h), c over the channels of the
 * group of o, and x zero outside of the image. b may be missing; the sum plus b is rounded once.
 *
 * Each is linear in each of its inputs, and the gradients of one are the other two:
 *
 *     conv2d(x, w)       dx = conv2d_dx(dy, w)      dw = conv2d_dw(dy, x)     db = sum of dy over n, p, q
 *     conv2d_dx(dy, w)   of dy: conv2d(u, w)        of w: conv2d_dw(dy, u)    where u is the gradient of dx
 *     conv2d_dw(dy, x)   of dy: conv2d(x, u)        of x: conv2d_dx(dy, u)    where u is the gradient of dw
 *
 * So all orders of derivatives exist, and a transposed convolution (nn.ConvTranspose2d) is conv2d_dx. */
#include "../base/window.h"
#include "helper.h"

static const char *const part_name[2] = {"rows", "columns"};

static int32_t need_weight(const struct wn_desc *d, int32_t i)
{
    if (d->in[i].ndim == 4) return WN_OK;
    return wn__fail(WN_SHAPE, "%s: the weight is %s, expected 4 dims: (outputs, inputs / groups, rows, columns)",
                    wn__op_name(d->op), wn__shape_text(&d->in[i]));
}

/* Checks stride, padding, dilation and groups. */
static int32_t check_attrs(const struct wn_desc *d, struct wn__window *w)
{
    wn__window_conv_attrs(&d->attrs, w);
    for (int32_t k = 0; k < 2; k++) {
        WN_TRY(wn__need_window(d, "stride", w->stride[k], 1));
        WN_TRY(wn__need_window(d, "padding", w->pad[k], 0));
        WN_TRY(wn__need_window(d, "dilation", w->dilation[k], 1));
    }
    return wn__need_window(d, "groups", w->groups, 1);
}

/* Checks that channels and outputs divide into groups, that the weight has the channels of one, and that the kernel
 * fits the padded image; fills w->out. w has all sizes but out. */
static int32_t check_sizes(const struct wn_desc *d, struct wn__window *w, int64_t weight_inputs)
{
    const char *name = wn__op_name(d->op);
    if (w->c < 1 || w->c % w->groups != 0)
        return wn__fail(WN_SHAPE,
                        "%s: %" PRId64 " input channels do not divide into %" PRId64
                        " groups; expected a multiple of the groups",
                        name, w->c, w->groups);
    if (w->o < 1 || w->o % w->groups != 0)
        return wn__fail(WN_SHAPE,
                        "%s: %" PRId64 " output channels do not divide into %" PRId64
                        " groups; expected a multiple of the groups",
                        name, w->o, w->groups);
    if (weight_inputs != w->c && w->groups == 1)
        return wn__fail(WN_SHAPE, "%s: the weight is for %" PRId64 " input channels, the image has %" PRId64, name,
                        weight_inputs, w->c);
    if (weight_inputs != w->c / w->groups)
        return wn__fail(WN_SHAPE,
                        "%s: the weight is for %" PRId64 " input channels a group, the image has %" PRId64 " (%" PRId64
                        " channels in %" PRId64 " groups)",
                        name, weight_inputs, w->c / w->groups, w->c, w->groups);
    for (int32_t k = 0; k < 2; k++) {
        WN_TRY(wn__need_window(d, "kernel size", w->kernel[k], 1));
        WN_TRY(wn__need_window(d, "image size", w->in[k], 1));
        int64_t padded = w->in[k] + 2 * w->pad[k], covered = (w->kernel[k] - 1) * w->dilation[k] + 1;
        if (covered > padded)
            return wn__fail(WN_SHAPE,
                            "%s: a kernel over %" PRId64 " %s is larger than the padded image with %" PRId64
                            "; pad more, or take a smaller kernel or dilation",
                            name, covered, part_name[k], padded);
        w->out[k] = (padded - covered) / w->stride[k] + 1;
    }
    return WN_OK;
}

static int32_t open(const struct wn_desc *d, struct wn__window *w)
{
    WN_TRY(wn__need_float(d));
    return check_attrs(d, w);
}

static struct wn_type image(int32_t dtype, int64_t n, int64_t channels, const int64_t size[2])
{
    return (struct wn_type){.dtype = dtype, .ndim = 4, .dim = {n, channels, size[0], size[1]}};
}

/* Checks that input i, dy, has the image that the windows make. */
static int32_t need_outputs(const struct wn_desc *d, int32_t i, const struct wn__window *w)
{
    struct wn_type want = image(d->in[i].dtype, w->n, w->o, w->out);
    if (wn__shape_equal(&d->in[i], &want)) return WN_OK;
    return wn__fail(WN_SHAPE,
                    "%s: dy is %s, expected %s: what the convolution makes of an image of %" PRId64 " x %" PRId64,
                    wn__op_name(d->op), wn__shape_text(&d->in[i]), wn__shape_text(&want), w->in[0], w->in[1]);
}

/* Returns the cost of one of the three: a multiply-add for each element of the forward's result and each term of it. */
static struct wn_cost cost_conv(const struct wn_desc *d)
{
    const struct wn_type *weight = d->op == WN_OP_CONV2D_DW ? &d->out : &d->in[1];
    const struct wn_type *y = d->op == WN_OP_CONV2D ? &d->out : &d->in[0];
    double terms = (double)(weight->dim[1] * weight->dim[2] * weight->dim[3]);
    struct wn_cost cost = wn__cost_of(d, 2.0 * (double)wn__numel(y) * terms);
    if (d->op == WN_OP_CONV2D && d->n_in > 2) cost.flops += (double)wn__numel(&d->out);
    return cost;
}

/* Records one of the three with the attributes of this application; size: of its result, 0 for conv2d. */
static struct wn_node *emit_conv(struct wn__grad *g, int32_t op, struct wn_node *a, struct wn_node *b, int64_t size,
                                 int32_t layout)
{
    struct wn_node *in[2] = {a, b};
    struct wn_attrs attrs = g->d->attrs;
    attrs.i[WN_CONV_SIZE] = size;
    attrs.layout = (int16_t)layout;
    return wn__emit(g->e, op, 2, in, &attrs);
}

static int64_t size_of(const struct wn_type *t)
{
    return wn__pair(t->dim[2], t->dim[3]);
}

/* ---- conv2d ---------------------------------------------------------------------------------------- */
static int32_t shape_conv2d(struct wn_desc *d)
{
    struct wn__window w;
    WN_TRY(open(d, &w));
    WN_TRY(wn__need_image(d, 0, "the input"));
    WN_TRY(need_weight(d, 1));
    const struct wn_type *x = &d->in[0], *weight = &d->in[1];
    wn__window_conv(&d->attrs, x, weight, x, &w); /* but for w.out */
    WN_TRY(check_sizes(d, &w, weight->dim[1]));
    if (d->n_in > 2 && (d->in[2].ndim != 1 || d->in[2].dim[0] != w.o))
        return wn__fail(WN_SHAPE, "conv2d: the bias is %s, expected (%" PRId64 "), as the weight is %s",
                        wn__shape_text(&d->in[2]), w.o, wn__shape_text(weight));
    d->out = image(x->dtype, w.n, w.o, w.out);
    return wn__check_out(d);
}

static void grad_conv2d(struct wn__grad *g)
{
    const struct wn_type *x = &g->d->in[0], *w = &g->d->in[1];
    if (wn__wants(g, 0)) g->dx[0] = emit_conv(g, WN_OP_CONV2D_DX, g->dy, g->in[1], size_of(x), WN_PLAIN);
    if (wn__wants(g, 1)) g->dx[1] = emit_conv(g, WN_OP_CONV2D_DW, g->dy, g->in[0], size_of(w), w->layout);
    if (g->d->n_in > 2 && wn__wants(g, 2)) {
        struct wn_attrs dims = {.n = 3, .i = {0, 2, 3}};
        g->dx[2] = wn__emit_op(g, WN_OP_SUM, g->dy, &dims);
    }
}

const struct wn__rules wn__rules_conv2d = {shape_conv2d, grad_conv2d, .cost = cost_conv};

/* ---- conv2d_dx ------------------------------------------------------------------------------------- */
static int32_t shape_conv2d_dx(struct wn_desc *d)
{
    struct wn__window w;
    WN_TRY(open(d, &w));
    WN_TRY(wn__need_image(d, 0, "dy"));
    WN_TRY(need_weight(d, 1));
    const struct wn_type *weight = &d->in[1];
    w.n = d->in[0].dim[0];
    WN_TRY(wn__mul(weight->dim[1], w.groups, &w.c));
    w.o = weight->dim[0];
    for (int32_t k = 0; k < 2; k++) {
        w.in[k] = wn__pair_get(d->attrs.i[WN_CONV_SIZE], k);
        w.kernel[k] = weight->dim[2 + k];
    }
    WN_TRY(check_sizes(d, &w, weight->dim[1]));
    WN_TRY(need_outputs(d, 0, &w));
    d->out = image(weight->dtype, w.n, w.c, w.in);
    return wn__check_out(d);
}

static void grad_conv2d_dx(struct wn__grad *g)
{
    const struct wn_type *w = &g->d->in[1];
    if (wn__wants(g, 0)) g->dx[0] = emit_conv(g, WN_OP_CONV2D, g->dy, g->in[1], 0, WN_PLAIN);
    if (wn__wants(g, 1)) g->dx[1] = emit_conv(g, WN_OP_CONV2D_DW, g->in[0], g->dy, size_of(w), w->layout);
}

const struct wn__rules wn__rules_conv2d_dx = {shape_conv2d_dx, grad_conv2d_dx, .cost = cost_conv};

/* ---- conv2d_dw ------------------------------------------------------------------------------------- */
static int32_t shape_conv2d_dw(struct wn_desc *d)
{
    struct wn__window w;
    WN_TRY(open(d, &w));
    WN_TRY(wn__need_image(d, 0, "dy"));
    WN_TRY(wn__need_image(d, 1, "the input"));
    w.n = d->in[1].dim[0];
    w.c = d->in[1].dim[1];
    w.o = d->in[0].dim[1];
    for (int32_t k = 0; k < 2; k++) {
        w.in[k] = d->in[1].dim[2 + k];
        w.kernel[k] = wn__pair_get(d->attrs.i[WN_CONV_SIZE], k);
    }
    WN_TRY(check_sizes(d, &w, w.c / w.groups));
    WN_TRY(need_outputs(d, 0, &w));
    d->out = image(d->in[0].dtype, w.o, w.c / w.groups, w.kernel);
    return wn__check_out(d);
}

static void grad_conv2d_dw(struct wn__grad *g)
{
    if (wn__wants(g, 0)) g->dx[0] = emit_conv(g, WN_OP_CONV2D, g->in[1], g->dy, 0, WN_PLAIN);
    if (wn__wants(g, 1)) g->dx[1] = emit_conv(g, WN_OP_CONV2D_DX, g->in[0], g->dy, size_of(&g->d->in[1]), WN_PLAIN);
}

const struct wn__rules wn__rules_conv2d_dw = {shape_conv2d_dw, grad_conv2d_dw, .cost = cost_conv};
