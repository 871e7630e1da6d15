/* Convolutions by oneDNN; see onednn.h.
 *
 * Images have their channels last. The library chooses the layout of the weight, so it has a copy of its own in the
 * scratch: a reorder fills it before y or dx is computed, or writes dw out of it after.
 *
 *     scratch    | the weight as the library lays it out | scratch of the convolution, then or before of the reorder |
 *
 * Implementations of other families than "brg", "brdgmm" and "jit" are declined: they take memory beside the plan while
 * they run.
 * Measured: convolutions of 4 to 60 million multiply-adds by "x64:gemm:jit": 0.3 to 2.9 MB each; by the accepted ones,
 * less than 64 KiB each (2.6.3 and 3.2, held to SSE4.1, to AVX2, to AVX-512 without bf16, and with it). */
#include <string.h>
#include "../../../runtime/base/opcode.h"
#include "onednn.h"
#include "onednn_api.h"

#define api wn__onednn_api

enum { INFERENCE = 96, DIRECT = 1 };
enum { QUERY_WEIGHT = 131, QUERY_WEIGHT_GRADIENT = 132 };
enum { X, W, Y, BIAS, OPERANDS };
enum { FROM, TO, ENDS };
enum { FIRST, SECOND };

/* The numbers of operands: of y, dx and dw. */
static const int forward_numbers[OPERANDS] = {1, 33, 17, 41}, dx_numbers[OPERANDS] = {129, 33, 145, 41},
                 dw_numbers[OPERANDS] = {1, 161, 145, 169}, reorder_numbers[ENDS] = {1, 17};

static int32_t is_dw(const struct wn__onednn_conv *c)
{
    return c->op == WN_OP_CONV2D_DW;
}

/* ---- making -------------------------------------------------------------------------------------- */

static int describe_image(struct wn__onednn_md *x, const struct wn__onednn_conv *c, int64_t channels,
                          const int64_t size[2])
{
    const int64_t dims[4] = {c->window.n, channels, size[0], size[1]};
    const int64_t strides[4] = {size[0] * size[1] * channels, 1, size[1] * channels, channels};
    return wn__onednn_describe(x, 4, dims, strides, c->dtype);
}

/* Describes the weight, in Wane's layout or, where strides is NULL, in the library's. Groups are a dim of their own. */
static int describe_weight(struct wn__onednn_md *x, const struct wn__onednn_conv *c, const int64_t *strides)
{
    const struct wn__window *w = &c->window;
    const int64_t dims[5] = {w->groups, w->o / w->groups, w->c / w->groups, w->kernel[0], w->kernel[1]};
    const int32_t first = w->groups == 1;
    return wn__onednn_describe(x, 5 - first, dims + first, strides == NULL ? NULL : strides + first, c->dtype);
}

static int describe_all(struct wn__onednn_md *x, const struct wn__onednn_conv *c)
{
    const int64_t one = 1;
    int code = describe_image(&x[X], c, c->window.c, c->window.in);
    if (code == WN_ONEDNN_SUCCESS) code = describe_weight(&x[W], c, NULL);
    if (code == WN_ONEDNN_SUCCESS) code = describe_image(&x[Y], c, c->window.o, c->window.out);
    if (code == WN_ONEDNN_SUCCESS && c->has_bias) code = wn__onednn_describe(&x[BIAS], 1, &c->window.o, &one, c->dtype);
    return code;
}

/* The numbers of a window as the library has them. */
struct numbers {
    wn__onednn_dims stride, dilation, pad;
};

static int find_in_2(const struct wn__onednn_conv *c, const struct wn__onednn_md *x, const struct numbers *n,
                     const void *attr, void **pd)
{
    _Alignas(64) char desc[WN_ONEDNN_OP_BYTES];
    int code;
    switch (c->op) {
    case WN_OP_CONV2D:
        code = api.conv_init(desc, INFERENCE, DIRECT, x[X].md, x[W].md, x[BIAS].md, x[Y].md, n->stride, n->dilation,
                             n->pad, n->pad);
        break;
    case WN_OP_CONV2D_DX:
        code = api.conv_dx_init(desc, DIRECT, x[X].md, x[W].md, x[Y].md, n->stride, n->dilation, n->pad, n->pad);
        break;
    default:
        code = api.conv_dw_init(desc, DIRECT, x[X].md, x[W].md, NULL, x[Y].md, n->stride, n->dilation, n->pad, n->pad);
        break;
    }
    return code == WN_ONEDNN_SUCCESS ? api.pd_create(pd, desc, attr, api.engine, NULL) : code;
}

/* Finds the implementation that the library thinks best. */
static int find(const struct wn__onednn_conv *c, const struct wn__onednn_md *x, const void *attr, void **pd)
{
    struct numbers n = {{0}, {0}, {0}};
    for (int32_t k = 0; k < 2; k++) {
        n.stride[k] = c->window.stride[k];
        n.dilation[k] = c->window.dilation[k] - 1;
        n.pad[k] = c->window.pad[k];
    }
    if (api.conv_create == NULL) return find_in_2(c, x, &n, attr, pd);
    switch (c->op) {
    case WN_OP_CONV2D:
        return api.conv_create(pd, api.engine, INFERENCE, DIRECT, x[X].md, x[W].md, x[BIAS].md, x[Y].md, n.stride,
                               n.dilation, n.pad, n.pad, attr);
    case WN_OP_CONV2D_DX:
        return api.conv_dx_create(pd, api.engine, DIRECT, x[X].md, x[W].md, x[Y].md, n.stride, n.dilation, n.pad, n.pad,
                                  NULL, attr);
    default:
        return api.conv_dw_create(pd, api.engine, DIRECT, x[X].md, x[W].md, NULL, x[Y].md, n.stride, n.dilation, n.pad,
                                  n.pad, NULL, attr);
    }
}

/* Returns whether an implementation is of a family that takes no memory beside its scratch. */
static int32_t is_accepted(const char *name)
{
    static const char *const families[] = {"brg", "brdgmm", "jit"};
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (strncmp(name, families[i], strlen(families[i])) == 0) return 1;
    return 0;
}

/* A convolution that the library found, until it is ready. */
struct found {
    struct wn__onednn_md x[OPERANDS], ours;
    void *attr, *pd, *reorder;
    const void *theirs; /* the weight's layout that the implementation chose; it belongs to pd */
};

/* Finds the convolution, and the reorder between the two layouts of its weight. */
static int find_both(const struct wn__onednn_conv *c, struct found *f)
{
    int code = describe_all(f->x, c);
    if (code == WN_ONEDNN_SUCCESS) code = describe_weight(&f->ours, c, c->weight);
    if (code == WN_ONEDNN_SUCCESS) code = wn__onednn_attributes(&f->attr);
    if (code == WN_ONEDNN_SUCCESS) code = find(c, f->x, f->attr, &f->pd);
    if (code == WN_ONEDNN_SUCCESS && !is_accepted(wn__onednn_name(f->pd))) code = WN_ONEDNN_DECLINED;
    if (code != WN_ONEDNN_SUCCESS) return code;
    f->theirs = api.pd_query_md(f->pd, is_dw(c) ? QUERY_WEIGHT_GRADIENT : QUERY_WEIGHT, 0);
    if (f->theirs == NULL) return WN_ONEDNN_DECLINED;
    const void *from = is_dw(c) ? f->theirs : f->ours.md, *to = is_dw(c) ? f->ours.md : f->theirs;
    return api.reorder_create(&f->reorder, from, api.engine, to, api.engine, f->attr);
}

static int add_reorder(struct wn__onednn_made *o, const struct wn__onednn_conv *c, const struct found *f)
{
    const void *const md[ENDS] = {is_dw(c) ? f->theirs : f->ours.md, is_dw(c) ? f->ours.md : f->theirs};
    return wn__onednn_add_step(o, f->reorder, ENDS, reorder_numbers, md);
}

static int add_conv(struct wn__onednn_made *o, const struct wn__onednn_conv *c, const struct found *f)
{
    const void *const md[OPERANDS] = {f->x[X].md, f->theirs, f->x[Y].md, f->x[BIAS].md};
    const int *numbers = is_dw(c) ? dw_numbers : c->op == WN_OP_CONV2D_DX ? dx_numbers : forward_numbers;
    return wn__onednn_add_step(o, f->pd, OPERANDS, numbers, md);
}

/* Adds the two steps in their order, where they take at most *bytes. */
static int add_steps(struct wn__onednn_made *o, const struct wn__onednn_conv *c, const struct found *f, int64_t *bytes)
{
    o->copy = wn_round_up((int64_t)api.md_size(f->theirs), WN_GRANULE);
    const int64_t takes = o->copy + wn_max(wn__onednn_scratch(f->pd), wn__onednn_scratch(f->reorder));
    if (takes > *bytes) return WN_ONEDNN_DECLINED;
    *bytes = takes;
    int code = is_dw(c) ? add_conv(o, c, f) : add_reorder(o, c, f);
    if (code == WN_ONEDNN_SUCCESS) code = is_dw(c) ? add_reorder(o, c, f) : add_conv(o, c, f);
    return code;
}

static int build(struct wn__onednn_made *o, const void *what, int64_t *bytes)
{
    struct found f = {.pd = NULL};
    int code = find_both(what, &f);
    if (code == WN_ONEDNN_SUCCESS) code = add_steps(o, what, &f, bytes);
    if (f.reorder != NULL) api.pd_destroy(f.reorder);
    if (f.pd != NULL) api.pd_destroy(f.pd);
    if (f.attr != NULL) api.attr_destroy(f.attr);
    wn__onednn_forget(f.x, OPERANDS);
    wn__onednn_forget(&f.ours, 1);
    return code;
}

int32_t wn__onednn_has_conv(int32_t dtype)
{
    struct wn__onednn_conv c = {.op = WN_OP_CONV2D, .dtype = dtype, .weight = {1, 576, 9, 3, 1}};
    c.window = (struct wn__window){.n = 1, .c = 64, .o = 64, .groups = 1};
    for (int32_t k = 0; k < 2; k++) {
        c.window.in[k] = c.window.out[k] = 28;
        c.window.kernel[k] = 3;
        c.window.stride[k] = c.window.dilation[k] = c.window.pad[k] = 1;
    }
    return wn__onednn_can(build, &c);
}

int32_t wn__onednn_make_conv(const struct wn__onednn_conv *c, int64_t *bytes, struct wn_made **out)
{
    return wn__onednn_make_by(build, c, "a convolution", bytes, out);
}

/* ---- running ------------------------------------------------------------------------------------- */

int32_t wn__onednn_run_conv(struct wn_made *made, const struct wn__onednn_conv *c, void *scratch)
{
    const struct wn__onednn_made *o = (const struct wn__onednn_made *)made;
    const struct wn__window *w = &c->window;
    char *copy = scratch, *rest = copy + o->copy;
    void *const conv[OPERANDS] = {c->x, copy, c->y, (void *)c->bias};
    void *const reorder[ENDS] = {is_dw(c) ? copy : c->w, is_dw(c) ? c->w : copy};
    const int before = wn__onednn_set_threads(o->threads);
    int code = wn__onednn_run_step(&o->step[FIRST], is_dw(c) ? conv : reorder, rest);
    if (code == WN_ONEDNN_SUCCESS) code = wn__onednn_run_step(&o->step[SECOND], is_dw(c) ? reorder : conv, rest);
    wn__onednn_set_threads(before);
    if (code == WN_ONEDNN_SUCCESS) return WN_OK;
    return wn__fail(WN_DEVICE,
                    "oneDNN failed at a convolution of %lld images of %lld x %lld x %lld (its status: %d); "
                    "WANE_ONEDNN=off does without it",
                    (long long)w->n, (long long)w->c, (long long)w->in[0], (long long)w->in[1], code);
}
