/* CONV2D, CONV2D_DX, CONV2D_DW: describes each as products of patches (conv.h) and runs them.
 *
 *     f32, bf16  micro-kernels of products; kernels of one pixel without stride, padding and groups are plain products
 *     f64        the same driver over a micro-kernel of its own (words.c)
 *
 * Order of sums: conv.h. conv2d_dx with a stride S is a product for each of S x S phases of its pixels, because pixels
 * of a phase are read by the same taps. */
#include <stddef.h>
#include <string.h>
#include "conv.h"
#include "winograd.h"

/* ---- kernels of one pixel ------------------------------------------------------------------------ */

static int32_t is_product(const struct wn__window *w, int32_t dtype)
{
    for (int32_t k = 0; k < 2; k++)
        if (w->kernel[k] != 1 || w->stride[k] != 1 || w->pad[k] != 0) return 0;
    return w->groups == 1 && dtype != WN_F64;
}

static int32_t run_product(struct wn__gemm *p, int32_t dtype)
{
    p->batch = 1;
    return dtype == WN_F32 ? wn__gemm_f32(p) : wn__gemm_bf16(p);
}

static void finish_rows(const void *epilogue, int64_t row, int64_t rows, int64_t column, int64_t n)
{
    wn__conv_finish(epilogue, row, rows, column, n);
}

/* Computes y or dx: (pixels, n) = a: (pixels, k) times the weight. */
static int32_t product_image(const struct wn_desc *d, const struct wn_buffers *b, const struct wn__window *w,
                             const struct wn__conv_epilogue *e)
{
    const int32_t is_dx = d->op == WN_OP_CONV2D_DX, in_panels = d->in[1].layout != WN_PLAIN;
    struct wn__gemm p = {.m = w->n * w->in[0] * w->in[1], .n = is_dx ? w->c : w->o, .k = is_dx ? w->o : w->c};
    p.ai = p.k;
    p.ak = 1;
    p.b_panels = in_panels;
    if (is_dx) p.bj = in_panels ? WN_PANEL : 1, p.bk = in_panels ? 1 : w->c;
    else p.bj = in_panels ? 1 : w->c, p.bk = in_panels ? WN_PANEL : 1;
    p.a = b->in[0];
    p.b = b->in[1];
    p.bias = d->n_in > 2 ? b->in[2] : NULL;
    p.c = b->out;
    p.finish = e ? finish_rows : NULL;
    p.finish_context = e;
    return run_product(&p, d->out.dtype);
}

/* Computes dw, (O, C), or its transpose where it is in panels. */
static int32_t product_gradient(const struct wn_desc *d, const struct wn_buffers *b, const struct wn__window *w)
{
    const int32_t in_panels = d->out.layout != WN_PLAIN;
    const int64_t rows = in_panels ? w->c : w->o, columns = in_panels ? w->o : w->c;
    struct wn__gemm p = {.m = rows, .n = columns, .k = w->n * w->in[0] * w->in[1], .c_panels = in_panels};
    p.ai = p.bj = 1;
    p.ak = rows;
    p.bk = columns;
    p.a = b->in[in_panels];
    p.b = b->in[!in_panels];
    p.c = b->out;
    return run_product(&p, d->out.dtype);
}

/* ---- products of patches ------------------------------------------------------------------------- */

/* Sets the axis of conv2d and of conv2d_dw. */
static void forward_axis(const struct wn__window *w, int32_t k, struct wn__conv_axis *a)
{
    *a = (struct wn__conv_axis){.pixels = w->out[k], .out_step = 1, .out_size = w->out[k], .size = w->in[k]};
    a->step = w->stride[k];
    a->first = -w->pad[k];
    a->each = w->dilation[k];
    a->taps = w->kernel[k];
    a->tap_step = 1;
}

/* Sets the axis of a phase of conv2d_dx: pixels `phase`, phase + stride and so on. Tap r of the kernel reads pixel
 * (y + pad - r dilation) / stride of dy where the division leaves nothing; those r are every tap_step-th. */
static void phase_axis(const struct wn__window *w, int32_t k, int64_t phase, struct wn__conv_axis *a)
{
    const int64_t stride = w->stride[k], dilation = w->dilation[k];
    *a = (struct wn__conv_axis){.out_first = phase, .out_step = stride, .out_size = w->in[k], .size = w->out[k]};
    a->pixels = phase < w->in[k] ? (w->in[k] - phase + stride - 1) / stride : 0;
    a->step = 1;
    int64_t r = 0;
    while (r < wn_min(stride, w->kernel[k]) && (phase + w->pad[k] - r * dilation) % stride != 0) r++;
    if (r == wn_min(stride, w->kernel[k])) return;
    a->tap_first = r;
    a->tap_step = 1;
    while (a->tap_step * dilation % stride != 0) a->tap_step++;
    a->taps = (w->kernel[k] - r + a->tap_step - 1) / a->tap_step;
    a->first = (phase + w->pad[k] - r * dilation) / stride;
    a->each = -a->tap_step * dilation / stride;
}

/* Sets what follows from the axes. Elements of a row of taps are contiguous where they are all channels of
 * neighbours. */
static void set_steps(struct wn__conv_job *j)
{
    j->steps = j->axis[0].taps * j->axis[1].taps * j->depth;
    const int32_t is_row = j->axis[1].each == 1 && j->depth == j->channels;
    j->run = is_row ? wn_max(j->axis[1].taps, 1) * j->depth : j->depth;
    j->runs = is_row ? 1 : wn_max(j->axis[1].taps, 1);
}

static void conv2d(const struct wn__window *w, struct wn__conv_job *j)
{
    j->channels = w->c;
    j->depth = w->c / w->groups;
    j->out_channels = w->o;
    j->columns = w->o / w->groups;
    for (int32_t k = 0; k < 2; k++) forward_axis(w, k, &j->axis[k]);
    set_steps(j);
}

static void conv2d_dx(const struct wn__window *w, struct wn__conv_job *j)
{
    j->channels = w->o;
    j->depth = w->o / w->groups;
    j->out_channels = w->c;
    j->columns = w->c / w->groups;
    j->is_turned = 1;
}

static void run_phases(const struct wn__window *w, struct wn__conv_job *j)
{
    for (int64_t y = 0; y < wn_min(w->stride[0], w->in[0]); y++)
        for (int64_t x = 0; x < wn_min(w->stride[1], w->in[1]); x++) {
            phase_axis(w, 0, y, &j->axis[0]);
            phase_axis(w, 1, x, &j->axis[1]);
            set_steps(j);
            if (!wn__conv_depthwise(j, 0)) wn__conv_images(j);
        }
}

/* Sets the axes of a conv2d_dx of stride 1 so that taps are in the order of the pixels that they read. */
static void turned_axes(const struct wn__window *w, struct wn__conv_job *j)
{
    for (int32_t k = 0; k < 2; k++) {
        phase_axis(w, k, 0, &j->axis[k]);
        j->axis[k].first += (w->kernel[k] - 1) * j->axis[k].each;
        j->axis[k].each = -j->axis[k].each;
        j->axis[k].tap_first = w->kernel[k] - 1;
        j->axis[k].tap_step = -1;
    }
    set_steps(j);
}

/* ---- blocks of a result -------------------------------------------------------------------------- */

void wn__conv_split(struct wn__conv_job *w, int64_t widest)
{
    w->column_parts = (w->columns + widest - 1) / widest;
    w->column_block = wn_round_up((w->columns + w->column_parts - 1) / w->column_parts, WN_PANEL);
    w->column_parts = (w->columns + w->column_block - 1) / w->column_block;
}

static void run_blocks(int64_t begin, int64_t end, void *ctx)
{
    const struct wn__conv_job *w = ctx;
    for (int64_t task = begin; task < end; task++) {
        struct wn__conv_block b = {.group = task / w->column_parts / w->row_parts};
        b.column0 = task % w->column_parts * w->column_block;
        b.row0 = task / w->column_parts % w->row_parts * w->row_block;
        b.rows = wn_min(w->rows - b.row0, w->row_block);
        b.columns = wn_min(w->columns - b.column0, w->column_block);
        if (b.rows > 0 && b.columns > 0) w->run_block(w, &b);
    }
}

void wn__conv_blocks(struct wn__conv_job *w, int64_t rows, int64_t most, int64_t k)
{
    const int64_t threads = wn_cpu_threads(), others = w->column_parts * w->groups, mr = w->words.gemm.kernel->mr;
    int64_t parts = (rows + most - 1) / most;
    while (parts * others % threads != 0 && parts * others < 8 * threads && parts * mr < rows) parts++;
    w->rows = rows;
    w->row_block = wn_min(wn_round_up((rows + parts - 1) / parts, mr), most);
    w->row_parts = (rows + w->row_block - 1) / w->row_block;
    const int64_t work = w->row_block * w->column_block * (k + 1);
    wn__parallel_tasks(w->row_parts * others, WN_CONV_SMALL / work + 1, run_blocks, w);
}

/* ---- the ops ------------------------------------------------------------------------------------- */

int32_t wn__conv_run(const struct wn_desc *d, const struct wn_buffers *b, const struct wn__conv_epilogue *e)
{
    const int32_t is_dx = d->op == WN_OP_CONV2D_DX;
    struct wn__window w;
    wn__window_conv(&d->attrs, is_dx ? &d->out : &d->in[0], &d->in[1], is_dx ? &d->in[0] : &d->out, &w);
    if (is_product(&w, d->out.dtype)) return product_image(d, b, &w, e);
    struct wn__conv_job j = {.words = wn__conv_words_of(d->out.dtype), .images = w.n, .groups = w.groups};
    j.image = b->in[0];
    j.weight = &d->in[1];
    j.w = b->in[1];
    j.bias = d->n_in > 2 ? b->in[2] : NULL;
    j.out = b->out;
    j.epilogue = e;
    if (is_dx) conv2d_dx(&w, &j);
    else conv2d(&w, &j);
    if (wn__conv_is_winograd(d->op, d->out.dtype, &w)) {
        if (is_dx) turned_axes(&w, &j);
        wn__conv_winograd(&j, b->workspace);
    } else if (is_dx) {
        run_phases(&w, &j);
    } else if (!wn__conv_depthwise(&j, 0)) {
        wn__conv_images(&j);
    }
    return WN_OK;
}

static int32_t image(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    return wn__conv_run(d, b, NULL);
}

static int32_t gradient(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct wn__window w;
    wn__window_conv(&d->attrs, &d->in[1], &d->out, &d->in[0], &w);
    if (is_product(&w, d->out.dtype)) return product_gradient(d, b, &w);
    struct wn__conv_job j = {.words = wn__conv_words_of(d->out.dtype), .images = w.n, .groups = w.groups};
    j.image = b->in[1];
    j.w = b->in[0];
    j.weight = &d->out;
    j.out = b->out;
    conv2d(&w, &j);
    if (wn__conv_is_winograd(d->op, d->out.dtype, &w)) wn__conv_winograd_dw(&j);
    else if (!wn__conv_depthwise(&j, 1)) wn__conv_gradient(&j);
    return WN_OK;
}

wn_kernel_fn wn__cpu_conv_kernel(const struct wn_desc *d)
{
    if (!wn__dtype_is_float(d->out.dtype)) return NULL;
    return d->op == WN_OP_CONV2D_DW ? gradient : image;
}
