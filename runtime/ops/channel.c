/* Norms over the channels of images: batch norm (Ioffe and Szegedy, 2015) and group norm (Wu and He, 2018).
 *
 *     channel_mean     x: (N, C, H, W) -> mean: stat                     mean = m(x)
 *     channel_rstd     x, mean -> rstd: stat                             rstd = 1 / sqrt(m((x - mean)^2) + eps)
 *     batch_norm       x, mean, rstd, w: (C), b: (C) -> y: like x        y = h w + b
 *     batch_norm_sums  dy, x, mean, rstd -> s: (2, C) or (2, N, C)       s[0] = sum of dy h, s[1] = sum of dy
 *     batch_norm_dx    dy, x, mean, rstd, w, s -> dx: like x             dx = rstd (dy w - (A + h B) / n)
 *
 * with eps = attrs.f[0] and h = (x - mean) rstd. attrs.i[0] is the number of groups G, and
 *
 *     G = 0, batch norm: stat is (C); m is the mean over the n = N H W elements of a channel, A = w s[1], B = w s[0]
 *     G > 0, group norm: stat is (N, G); m is the mean over the n = (C / G) H W elements of a group of channels of one
 *                        image; A and B are the sums of w s[1] and of w s[0] over the channels of the group
 *
 * mean and rstd are values of their own, so a policy may save or recompute them, and batch norm in evaluation gives
 * them from its running statistics. Where they are channel_mean and channel_rstd of x, batch_norm_dx is the whole
 * gradient of x, and the inputs mean and rstd get zero. Elsewhere x gets dy w rstd, and mean and rstd their own. The
 * gradients of the last two ops treat each input as a variable of its own: what flows to x through mean and rstd flows
 * by the rules of the first two. */
#include "helper.h"

/* FLOPs of an element of x. */
enum { MEAN_FLOPS = 1, RSTD_FLOPS = 3, NORM_FLOPS = 4, SUMS_FLOPS = 5, DX_FLOPS = 6 };

/* ---- types ------------------------------------------------------------------------------------------- */

static int64_t groups_of(const struct wn_desc *d)
{
    return d->attrs.i[0];
}

/* Checks dtypes, that input x is an image whose channels divide into the groups, and that no mean is over nothing.
 * *stat becomes the type of a statistic, *channels that of w. */
static int32_t open(const struct wn_desc *d, int32_t x, struct wn_type *stat, struct wn_type *channels)
{
    const struct wn_type *t = &d->in[x];
    const char *name = wn__op_name(d->op);
    int64_t groups = groups_of(d);
    WN_TRY(wn__need_float(d));
    WN_TRY(wn__need_image(d, x, "the input"));
    if (groups < 0 || t->dim[1] < 1 || (groups > 0 && t->dim[1] % groups != 0))
        return wn__fail(WN_SHAPE,
                        "%s: %" PRId64 " channels do not divide into %" PRId64
                        " groups; expected a multiple of the groups",
                        name, t->dim[1], groups);
    int32_t is_mean = d->op == WN_OP_CHANNEL_MEAN || d->op == WN_OP_CHANNEL_RSTD;
    if (is_mean && wn__numel(t) == 0 && (groups == 0 || t->dim[0] > 0))
        return wn__fail(WN_SHAPE, "%s: the input %s has no elements; a mean needs 1 or more", name, wn__shape_text(t));
    *channels = (struct wn_type){.dtype = t->dtype, .ndim = 1, .dim = {t->dim[1]}};
    *stat = *channels;
    if (groups > 0) *stat = (struct wn_type){.dtype = t->dtype, .ndim = 2, .dim = {t->dim[0], groups}};
    return WN_OK;
}

/* Checks that inputs x + 1 and x + 2 are statistics. */
static int32_t need_statistics(const struct wn_desc *d, int32_t x, const struct wn_type *stat)
{
    WN_TRY(wn__need_shape(d, x + 1, stat, "the mean"));
    return wn__need_shape(d, x + 2, stat, "the rstd");
}

/* Writes the type of batch_norm_sums over an image x. */
static struct wn_type sums_type(const struct wn_desc *d, const struct wn_type *x)
{
    if (groups_of(d) == 0) return (struct wn_type){.dtype = x->dtype, .ndim = 2, .dim = {2, x->dim[1]}};
    return (struct wn_type){.dtype = x->dtype, .ndim = 3, .dim = {2, x->dim[0], x->dim[1]}};
}

/* ---- nodes that the gradients record ---------------------------------------------------------------------- */

/* An application that is being differentiated, the type of its image, and whether statistics are of groups. */
struct context {
    struct wn__grad *g;
    struct wn_type x, stat;
    int32_t is_grouped;
};

static struct context context_of(struct wn__grad *g, int32_t x)
{
    struct context c = {.g = g, .x = g->d->in[x], .is_grouped = groups_of(g->d) > 0};
    c.stat = (struct wn_type){.ndim = 1, .dim = {c.x.dim[1]}};
    if (c.is_grouped) c.stat = (struct wn_type){.ndim = 2, .dim = {c.x.dim[0], groups_of(g->d)}};
    return c;
}

/* Records v as (a, b, c) or, where d > 0, as (a, b, c, d). */
static struct wn_node *shaped(const struct context *c, struct wn_node *v, int64_t a, int64_t b, int64_t dim3, int64_t d)
{
    struct wn_type t = {.ndim = (int16_t)(d > 0 ? 4 : 3), .dim = {a, b, dim3, d}};
    return wn__emit_reshape(c->g, v, &t);
}

/* Records v: (C) as (1, C, 1, 1), or v: (N, C) as (N, C, 1, 1). */
static struct wn_node *over_image(const struct context *c, struct wn_node *v, int32_t is_of_images)
{
    return shaped(c, v, is_of_images ? c->x.dim[0] : 1, c->x.dim[1], 1, 1);
}

/* Records a statistic with one number a channel: (1, C, 1, 1), or (N, C, 1, 1) of groups. */
static struct wn_node *of_channels(const struct context *c, struct wn_node *stat)
{
    int64_t n = c->x.dim[0], groups = c->stat.dim[1];
    if (!c->is_grouped) return over_image(c, stat, 0);
    struct wn_attrs shape = {.n = 3, .i = {n, groups, c->x.dim[1] / groups}};
    return over_image(c, wn__emit_op(c->g, WN_OP_EXPAND, shaped(c, stat, n, groups, 1, 0), &shape), 1);
}

/* Records the sum of v: (N, C) over the channels of each group: (N, G). */
static struct wn_node *sum_group(const struct context *c, struct wn_node *v)
{
    int64_t n = c->x.dim[0], groups = c->stat.dim[1];
    struct wn_attrs last = {.n = 1, .i = {2}};
    return wn__emit_op(c->g, WN_OP_SUM, shaped(c, v, n, groups, c->x.dim[1] / groups, 0), &last);
}

/* Records the sum of an image over all that a statistic is the mean of. */
static struct wn_node *sum_statistic(const struct context *c, struct wn_node *v)
{
    struct wn_attrs all = {.n = 3, .i = {0, 2, 3}}, one = {.n = 2, .i = {2, 3}};
    if (!c->is_grouped) return wn__emit_op(c->g, WN_OP_SUM, v, &all);
    return sum_group(c, wn__emit_op(c->g, WN_OP_SUM, v, &one));
}

static struct wn_node *add(const struct context *c, struct wn_node *a, struct wn_node *b)
{
    return wn__emit2(c->g->e, WN_OP_ADD, a, b);
}

static struct wn_node *mul(const struct context *c, struct wn_node *a, struct wn_node *b)
{
    return wn__emit_mul(c->g, a, b);
}

static struct wn_node *negative(const struct context *c, struct wn_node *a)
{
    return wn__emit1(c->g->e, WN_OP_NEG, a);
}

/* Records v / n, n being the number of elements that a statistic is the mean of. */
static struct wn_node *shared(const struct context *c, struct wn_node *v)
{
    double n = (double)wn__numel(&c->x) / (double)wn__numel(&c->stat);
    return mul(c, v, wn__emit_scalar(c->g->e, 1 / n, c->g->d->out.dtype));
}

/* Records x - mean, of inputs x and x + 1. */
static struct wn_node *apart(const struct context *c, int32_t x)
{
    return wn__emit2(c->g->e, WN_OP_SUB, c->g->in[x], of_channels(c, c->g->in[x + 1]));
}

/* Records row `k` of sums s: (C), or (N, C) of groups. */
static struct wn_node *row(const struct context *c, struct wn_node *s, int64_t k)
{
    struct wn_attrs narrow = {.n = 3, .i = {0, k, 1}};
    struct wn_type t = {.ndim = 1, .dim = {c->x.dim[1]}};
    if (c->is_grouped) t = (struct wn_type){.ndim = 2, .dim = {c->x.dim[0], c->x.dim[1]}};
    return wn__emit_reshape(c->g, wn__emit_op(c->g, WN_OP_NARROW, s, &narrow), &t);
}

/* ---- channel_mean ------------------------------------------------------------------------------------------ */
static int32_t shape_channel_mean(struct wn_desc *d)
{
    struct wn_type channels;
    return open(d, 0, &d->out, &channels);
}

static void grad_channel_mean(struct wn__grad *g)
{
    struct context c = context_of(g, 0);
    struct wn_attrs shape = wn__attrs_shape(&c.x);
    shape.layout = c.x.layout;
    if (wn__wants(g, 0)) g->dx[0] = wn__emit_op(g, WN_OP_EXPAND, of_channels(&c, shared(&c, g->dy)), &shape);
}

const struct wn__rules wn__rules_channel_mean = {shape_channel_mean, grad_channel_mean, .per_input = MEAN_FLOPS};

/* ---- channel_rstd ------------------------------------------------------------------------------------------ */
static int32_t shape_channel_rstd(struct wn_desc *d)
{
    struct wn_type stat, channels;
    WN_TRY(open(d, 0, &stat, &channels));
    WN_TRY(wn__need_shape(d, 1, &stat, "the mean"));
    if (!(d->attrs.f[0] >= 0))
        return wn__fail(WN_VALUE, "channel_rstd: eps %g given, expected 0 or more", d->attrs.f[0]);
    d->out = stat;
    return WN_OK;
}

/* dx = -dy rstd^3 (x - mean) / n, dmean = -(sum of dx). */
static void grad_channel_rstd(struct wn__grad *g)
{
    struct context c = context_of(g, 0);
    struct wn_node *cube = mul(&c, mul(&c, g->out, g->out), g->out);
    struct wn_node *share = shared(&c, negative(&c, mul(&c, g->dy, cube)));
    struct wn_node *dx = mul(&c, apart(&c, 0), of_channels(&c, share));
    if (wn__wants(g, 0)) g->dx[0] = dx;
    if (wn__wants(g, 1)) g->dx[1] = negative(&c, sum_statistic(&c, dx));
}

const struct wn__rules wn__rules_channel_rstd = {shape_channel_rstd, grad_channel_rstd, .per_input = RSTD_FLOPS};

/* ---- batch_norm -------------------------------------------------------------------------------------------- */
static int32_t shape_batch_norm(struct wn_desc *d)
{
    struct wn_type stat, channels;
    WN_TRY(open(d, 0, &stat, &channels));
    WN_TRY(need_statistics(d, 0, &stat));
    WN_TRY(wn__need_shape(d, 3, &channels, "the weight"));
    WN_TRY(wn__need_shape(d, 4, &channels, "the bias"));
    return wn__like_first(d);
}

/* Records the gradients of x, mean and rstd where the statistics are not those of x. */
static void grad_given_statistics(const struct context *c)
{
    struct wn__grad *g = c->g;
    struct wn_node *scaled = mul(c, g->dy, over_image(c, g->in[3], 0));
    if (wn__wants(g, 0)) g->dx[0] = mul(c, scaled, of_channels(c, g->in[2]));
    if (wn__wants(g, 1)) g->dx[1] = negative(c, mul(c, g->in[2], sum_statistic(c, scaled)));
    if (wn__wants(g, 2)) g->dx[2] = sum_statistic(c, mul(c, scaled, apart(c, 0)));
}

static void grad_batch_norm(struct wn__grad *g)
{
    struct context c = context_of(g, 0);
    struct wn_node *in[6] = {g->dy, g->in[0], g->in[1], g->in[2], g->in[3]};
    struct wn_attrs images = {.n = 1, .i = {0}};
    int32_t is_own = wn__is_made_by(g, g->in[1], WN_OP_CHANNEL_MEAN, g->in[0]) &&
                     wn__is_made_by(g, g->in[2], WN_OP_CHANNEL_RSTD, g->in[0]);
    int32_t wants_x = is_own && wn__wants(g, 0);
    if (wants_x || wn__wants(g, 3) || wn__wants(g, 4))
        in[5] = wn__emit(g->e, WN_OP_BATCH_NORM_SUMS, 4, in, &g->d->attrs);
    if (wants_x) g->dx[0] = wn__emit(g->e, WN_OP_BATCH_NORM_DX, 6, in, &g->d->attrs);
    for (int32_t i = 1; i < 3 && is_own; i++) wn__give_zero(g, i); /* dx[0] contains it */
    if (!is_own) grad_given_statistics(&c);
    for (int32_t i = 3; i < 5; i++) {
        if (!wn__wants(g, i)) continue;
        g->dx[i] = row(&c, in[5], i - 3);
        if (c.is_grouped) g->dx[i] = wn__emit_op(g, WN_OP_SUM, g->dx[i], &images);
    }
}

const struct wn__rules wn__rules_batch_norm = {shape_batch_norm, grad_batch_norm, .per_output = NORM_FLOPS};

/* ---- batch_norm_sums --------------------------------------------------------------------------------------- */
static int32_t shape_batch_norm_sums(struct wn_desc *d)
{
    struct wn_type stat, channels;
    WN_TRY(open(d, 1, &stat, &channels));
    WN_TRY(wn__need_shape(d, 0, &d->in[1], "dy"));
    WN_TRY(need_statistics(d, 1, &stat));
    d->out = sums_type(d, &d->in[1]);
    return WN_OK;
}

/* With u the gradient of the sums: of dy u[0] h + u[1], of x u[0] dy rstd, of mean -(sum of that), of rstd the sum of
 * u[0] dy (x - mean). */
static void grad_batch_norm_sums(struct wn__grad *g)
{
    struct context c = context_of(g, 1);
    struct wn_node *u0 = over_image(&c, row(&c, g->dy, 0), c.is_grouped);
    struct wn_node *u1 = over_image(&c, row(&c, g->dy, 1), c.is_grouped);
    struct wn_node *rstd = of_channels(&c, g->in[3]), *away = apart(&c, 1), *scaled = mul(&c, g->in[0], u0);
    struct wn_node *dx = mul(&c, scaled, rstd);
    if (wn__wants(g, 0)) g->dx[0] = add(&c, mul(&c, mul(&c, away, rstd), u0), u1);
    if (wn__wants(g, 1)) g->dx[1] = dx;
    if (wn__wants(g, 2)) g->dx[2] = negative(&c, sum_statistic(&c, dx));
    if (wn__wants(g, 3)) g->dx[3] = sum_statistic(&c, mul(&c, scaled, away));
}

const struct wn__rules wn__rules_batch_norm_sums = {shape_batch_norm_sums, grad_batch_norm_sums,
                                                    .per_input = SUMS_FLOPS};

/* ---- batch_norm_dx ----------------------------------------------------------------------------------------- */
static int32_t shape_batch_norm_dx(struct wn_desc *d)
{
    struct wn_type stat, channels, sums = sums_type(d, &d->in[1]);
    WN_TRY(open(d, 1, &stat, &channels));
    WN_TRY(wn__need_shape(d, 0, &d->in[1], "dy"));
    WN_TRY(need_statistics(d, 1, &stat));
    WN_TRY(wn__need_shape(d, 4, &channels, "the weight"));
    WN_TRY(wn__need_shape(d, 5, &sums, "the sums"));
    d->out = d->in[1];
    return WN_OK;
}

/* Records w s, s: (C) or (N, C), summed over each group: A or B of the formula, a statistic. */
static struct wn_node *weighted(const struct context *c, struct wn_node *s)
{
    struct wn_node *v = mul(c, s, c->g->in[4]);
    return c->is_grouped ? sum_group(c, v) : v;
}

/* Records the gradients of w and of the sums. v: u rstd, da and db: the gradients of A and B, a number a channel. */
static void grad_dx_factors(const struct context *c, struct wn_node *v, struct wn_node *da, struct wn_node *db)
{
    struct wn__grad *g = c->g;
    struct wn_node *s[2] = {row(c, g->in[5], 0), row(c, g->in[5], 1)}, *d[2] = {db, da};
    struct wn_attrs images = {.n = 1, .i = {0}}, image = {.n = 3, .i = {0, 2, 3}}, first = {.n = 1, .i = {0}};
    for (int32_t k = 0; k < 2; k++) {
        struct wn_type t = *wn__value_type(g, s[k]);
        d[k] = wn__emit_reshape(g, d[k], &t);
    }
    if (wn__wants(g, 4)) {
        struct wn_node *by_sums = add(c, mul(c, s[0], d[0]), mul(c, s[1], d[1]));
        if (c->is_grouped) by_sums = wn__emit_op(g, WN_OP_SUM, by_sums, &images);
        g->dx[4] = add(c, by_sums, wn__emit_op(g, WN_OP_SUM, mul(c, v, g->in[0]), &image));
    }
    if (!wn__wants(g, 5)) return;
    struct wn_node *rows[2];
    struct wn_type one = g->d->in[5];
    one.dim[0] = 1;
    for (int32_t k = 0; k < 2; k++) rows[k] = wn__emit_reshape(g, mul(c, d[k], g->in[4]), &one);
    g->dx[5] = wn__emit(g->e, WN_OP_CAT, 2, rows, &first);
}

/* With u the gradient of dx and v = u rstd: of dy v w; of x -(v B rstd) / n, of mean minus the sum of that; of rstd the
 * sum of u dx / rstd - v B (x - mean) / n; of A -(sum of v) / n, of B -(sum of v h) / n. */
static void grad_batch_norm_dx(struct wn__grad *g)
{
    struct context c = context_of(g, 1);
    struct wn_node *rstd = of_channels(&c, g->in[3]), *away = apart(&c, 1), *v = mul(&c, g->dy, rstd);
    struct wn_node *b = of_channels(&c, shared(&c, weighted(&c, row(&c, g->in[5], 0))));
    struct wn_node *through = negative(&c, mul(&c, v, b)), *dx = mul(&c, through, rstd);
    struct wn_node *da = negative(&c, shared(&c, sum_statistic(&c, v)));
    struct wn_node *db = negative(&c, shared(&c, sum_statistic(&c, mul(&c, v, mul(&c, away, rstd)))));
    if (wn__wants(g, 0)) g->dx[0] = mul(&c, v, over_image(&c, g->in[4], 0));
    if (wn__wants(g, 1)) g->dx[1] = dx;
    if (wn__wants(g, 2)) g->dx[2] = negative(&c, sum_statistic(&c, dx));
    if (wn__wants(g, 3)) {
        struct wn_node *outer = wn__emit2(g->e, WN_OP_DIV, mul(&c, g->dy, g->out), rstd);
        g->dx[3] = sum_statistic(&c, add(&c, outer, mul(&c, through, away)));
    }
    grad_dx_factors(&c, v, of_channels(&c, da), of_channels(&c, db));
}

const struct wn__rules wn__rules_batch_norm_dx = {shape_batch_norm_dx, grad_batch_norm_dx, .per_output = DX_FLOPS};
