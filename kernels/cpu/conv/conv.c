/* CONV2D, CONV2D_DX and CONV2D_DW by plain loops. */
#include "../../../runtime/base/memory_order.h"
#include "../../../runtime/base/window.h"
#include "../cpu.h"

struct conv {
    struct wn__window w;
    const struct wn_type *weight; /* of the weight, or of its gradient */
    int32_t dtype;
    const void *a, *b, *bias;
    void *out;
};

static double get(int32_t dtype, const void *p, int64_t i)
{
    return dtype == WN_F32 ? (double)((const float *)p)[i] : dtype == WN_F64 ? ((const double *)p)[i] : (double)wn_from_bf16(((const uint16_t *)p)[i]);
}

static void put(int32_t dtype, void *p, int64_t i, double v)
{
    if (dtype == WN_F32) ((float *)p)[i] = (float)v;
    else if (dtype == WN_F64) ((double *)p)[i] = v;
    else ((uint16_t *)p)[i] = wn_to_bf16((float)v);
}

static int64_t weight_at(const struct conv *c, int64_t o, int64_t i, int64_t kh, int64_t kw)
{
    const struct wn_type *t = c->weight;
    int64_t column = (i * t->dim[2] + kh) * t->dim[3] + kw, columns = wn__panel_columns(t), width;
    if (t->layout == WN_PLAIN) return o * columns + column;
    int64_t at = wn__panel_row(t->dim[0], columns, o, &width);
    return at + wn__panel_column(t, column) * width;
}

static double add(const struct conv *c, double sum, double a, double b)
{
    return c->dtype == WN_F64 ? __builtin_fma(a, b, sum) : (double)__builtin_fmaf((float)a, (float)b, (float)sum);
}

static void forward(int64_t begin, int64_t end, void *ctx)
{
    const struct conv *c = ctx;
    const struct wn__window *w = &c->w;
    int64_t ci = w->c / w->groups, co = w->o / w->groups;
    for (int64_t at = begin; at < end; at++) {
        int64_t q = at % w->out[1], p = at / w->out[1] % w->out[0], n = at / w->out[1] / w->out[0];
        for (int64_t o = 0; o < w->o; o++) {
            double sum = 0;
            for (int64_t kh = 0; kh < w->kernel[0]; kh++)
                for (int64_t kw = 0; kw < w->kernel[1]; kw++) {
                    int64_t y = p * w->stride[0] - w->pad[0] + kh * w->dilation[0], x = q * w->stride[1] - w->pad[1] + kw * w->dilation[1];
                    if (y < 0 || y >= w->in[0] || x < 0 || x >= w->in[1]) continue;
                    for (int64_t i = 0; i < ci; i++)
                        sum = add(c, sum, get(c->dtype, c->a, ((n * w->in[0] + y) * w->in[1] + x) * w->c + o / co * ci + i),
                                  get(c->dtype, c->b, weight_at(c, o, i, kh, kw)));
                }
            if (c->bias) sum += get(c->dtype, c->bias, o);
            put(c->dtype, c->out, at * w->o + o, sum);
        }
    }
}

static void backward_x(int64_t begin, int64_t end, void *ctx)
{
    const struct conv *c = ctx;
    const struct wn__window *w = &c->w;
    int64_t ci = w->c / w->groups, co = w->o / w->groups;
    for (int64_t at = begin; at < end; at++) {
        int64_t x = at % w->in[1], y = at / w->in[1] % w->in[0], n = at / w->in[1] / w->in[0];
        for (int64_t i = 0; i < w->c; i++) {
            double sum = 0;
            for (int64_t kh = 0; kh < w->kernel[0]; kh++)
                for (int64_t kw = 0; kw < w->kernel[1]; kw++) {
                    int64_t p = y + w->pad[0] - kh * w->dilation[0], q = x + w->pad[1] - kw * w->dilation[1];
                    if (p < 0 || q < 0 || p % w->stride[0] || q % w->stride[1] || p / w->stride[0] >= w->out[0] || q / w->stride[1] >= w->out[1]) continue;
                    for (int64_t o = 0; o < co; o++) {
                        int64_t from = i / ci * co + o;
                        sum = add(c, sum, get(c->dtype, c->a, ((n * w->out[0] + p / w->stride[0]) * w->out[1] + q / w->stride[1]) * w->o + from),
                                  get(c->dtype, c->b, weight_at(c, from, i % ci, kh, kw)));
                    }
                }
            put(c->dtype, c->out, at * w->c + i, sum);
        }
    }
}

static void backward_w(int64_t begin, int64_t end, void *ctx)
{
    const struct conv *c = ctx;
    const struct wn__window *w = &c->w;
    int64_t ci = w->c / w->groups, co = w->o / w->groups;
    for (int64_t o = begin; o < end; o++)
        for (int64_t i = 0; i < ci; i++)
            for (int64_t kh = 0; kh < w->kernel[0]; kh++)
                for (int64_t kw = 0; kw < w->kernel[1]; kw++) {
                    double sum = 0;
                    for (int64_t at = 0; at < w->n * w->out[0] * w->out[1]; at++) {
                        int64_t q = at % w->out[1], p = at / w->out[1] % w->out[0], n = at / w->out[1] / w->out[0];
                        int64_t y = p * w->stride[0] - w->pad[0] + kh * w->dilation[0], x = q * w->stride[1] - w->pad[1] + kw * w->dilation[1];
                        if (y < 0 || y >= w->in[0] || x < 0 || x >= w->in[1]) continue;
                        sum = add(c, sum, get(c->dtype, c->b, ((n * w->in[0] + y) * w->in[1] + x) * w->c + o / co * ci + i), get(c->dtype, c->a, at * w->o + o));
                    }
                    put(c->dtype, c->out, weight_at(c, o, i, kh, kw), sum);
                }
}

static int32_t conv(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct conv c = {.dtype = d->out.dtype, .a = b->in[0], .b = b->in[1], .bias = d->n_in > 2 ? b->in[2] : NULL, .out = b->out};
    if (d->op == WN_OP_CONV2D) {
        wn__window_conv(&d->attrs, &d->in[0], &d->in[1], &d->out, &c.w);
        c.weight = &d->in[1];
        wn__parallel_for(c.w.n * c.w.out[0] * c.w.out[1], 1, forward, &c);
    } else if (d->op == WN_OP_CONV2D_DX) {
        wn__window_conv(&d->attrs, &d->out, &d->in[1], &d->in[0], &c.w);
        c.weight = &d->in[1];
        wn__parallel_for(c.w.n * c.w.in[0] * c.w.in[1], 1, backward_x, &c);
    } else {
        wn__window_conv(&d->attrs, &d->in[1], &d->out, &d->in[0], &c.w);
        c.weight = &d->out;
        wn__parallel_for(c.w.o, 1, backward_w, &c);
    }
    return WN_OK;
}

wn_kernel_fn wn__cpu_conv_kernel(const struct wn_desc *d)
{
    return d->out.dtype == WN_F32 || d->out.dtype == WN_F64 || d->out.dtype == WN_BF16 ? conv : NULL;
}
