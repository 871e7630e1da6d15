/* Convolutions that a library has ready (backend/library.h): describes them, and repacks a weight in panels, which the
 * library cannot read: it is copied to the order (kh, kw, inputs, O) before y or dx is computed, and dw comes back from
 * such a copy.
 *
 *     workspace    | copy of the weight, where it is in panels | scratch of the library | */
#include <string.h>
#include "../backend/onednn.h"
#include "conv.h"

/* Returns the type of the weight, or of its gradient. */
static const struct wn_type *weight_of(const struct wn_desc *d)
{
    return d->op == WN_OP_CONV2D_DW ? &d->out : &d->in[1];
}

static int64_t copy_bytes(const struct wn_desc *d)
{
    const struct wn_type *t = weight_of(d);
    return t->layout == WN_PLAIN ? 0 : wn__padded(wn__bytes(t));
}

/* Writes the elements from one index to the next: of groups, outputs, inputs, rows, columns. */
static void weight_strides(const struct wn_type *t, int64_t groups, int64_t to[5])
{
    const int64_t o = t->dim[0], i = t->dim[1], rows = t->dim[2], columns = t->dim[3];
    const int64_t plain[4] = {i * rows * columns, rows * columns, columns, 1};
    const int64_t copied[4] = {1, o, columns * i * o, i * o};
    memcpy(to + 1, t->layout == WN_PLAIN ? plain : copied, sizeof plain);
    to[0] = o / groups * to[1];
}

static void describe(const struct wn_desc *d, struct wn__onednn_conv *c)
{
    const struct wn_type *x = &d->in[0], *y = &d->out;
    if (d->op == WN_OP_CONV2D_DX) x = &d->out, y = &d->in[0];
    if (d->op == WN_OP_CONV2D_DW) x = &d->in[1], y = &d->in[0];
    *c = (struct wn__onednn_conv){.op = d->op, .dtype = d->out.dtype};
    c->has_bias = d->op == WN_OP_CONV2D && d->n_in > 2;
    wn__window_conv(&d->attrs, x, weight_of(d), y, &c->window);
    weight_strides(weight_of(d), c->window.groups, c->weight);
}

int32_t wn__cpu_prepare_conv(const struct wn_desc *d, int64_t *bytes, struct wn_made **out)
{
    const struct wn__target own = {.library = 0};
    const int64_t copy = copy_bytes(d);
    struct wn__onednn_conv c;
    describe(d, &c);
    *bytes -= copy;
    WN_TRY(wn__onednn_make_conv(&c, bytes, out));
    *bytes = *out != NULL ? *bytes + copy : wn__cpu_workspace(&own, d);
    return WN_OK;
}

/* ---- running ------------------------------------------------------------------------------------- */

/* A weight in panels, and its copy in the order (kh, kw, inputs, O), of elements of `size` bytes. */
struct repacking {
    char *panels, *copy;
    int64_t outputs, steps, size;
    int32_t is_back; /* from the copy to the panels */
};

/* Repacks steps [begin, end) of all panels. */
static void repack_range(int64_t begin, int64_t end, void *ctx)
{
    const struct repacking *r = ctx;
    for (int64_t o = 0, width; o < r->outputs; o += width) {
        const int64_t at = wn__panel_row(r->outputs, r->steps, o, &width), n = width * r->size;
        for (int64_t k = begin; k < end; k++) {
            char *panel = r->panels + (at + k * width) * r->size, *copy = r->copy + (k * r->outputs + o) * r->size;
            memcpy(r->is_back ? panel : copy, r->is_back ? copy : panel, (size_t)n);
        }
    }
}

static void repack(const struct wn_desc *d, void *weight, void *copy)
{
    const struct wn_type *t = weight_of(d);
    struct repacking r = {.panels = weight, .copy = copy, .outputs = t->dim[0], .size = wn__dtype_size(t->dtype)};
    r.steps = t->dim[1] * t->dim[2] * t->dim[3];
    r.is_back = d->op == WN_OP_CONV2D_DW;
    wn__parallel_for(r.steps, WN_CPU_GRAIN / (r.outputs + 1) + 1, repack_range, &r);
}

int32_t wn__conv_run_made(const struct wn_desc *d, const struct wn_buffers *b)
{
    const int32_t is_dx = d->op == WN_OP_CONV2D_DX, is_dw = d->op == WN_OP_CONV2D_DW;
    const int64_t copy = copy_bytes(d);
    void *weight = is_dw ? b->out : (void *)b->in[1];
    struct wn__onednn_conv c;
    describe(d, &c);
    c.x = is_dx ? b->out : (void *)b->in[is_dw];
    c.y = is_dx || is_dw ? (void *)b->in[0] : b->out;
    c.w = copy > 0 ? b->workspace : weight;
    c.bias = c.has_bias ? b->in[2] : NULL;
    if (copy > 0 && !is_dw) repack(d, weight, b->workspace);
    WN_TRY(wn__onednn_run_conv(b->made, &c, (char *)b->workspace + copy));
    if (copy > 0 && is_dw) repack(d, weight, b->workspace);
    return WN_OK;
}
