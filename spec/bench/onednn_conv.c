/* The own convolutions against oneDNN's, in turns: built by conv.lua with the objects of the library, among them those
 * that open oneDNN (kernels/cpu/backend/onednn_api.c). Images have their channels last; own kernels read the weight in
 * panels where it can be, oneDNN's copy is made of a plain one, as it lies under WANE_ONEDNN=on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "../../kernels/cpu/backend/onednn.h"
#include "../../kernels/cpu/common/cpu.h"
#include "../../runtime/base/memory_order.h"

/* Opens oneDNN. Returns its version, or what is wrong with it. */
const char *onednn_conv_open(int *usable)
{
    *usable = wn__onednn_open(NULL);
    return wn__onednn_text();
}

/* A shape: an op of 0: y, 1: dx, 2: dw; images (n, c, size, size), a weight (o, c / groups, k, k). */
struct onednn_conv_shape {
    int op, bf16;
    int64_t n, c, o, k, size, stride, groups;
};

/* One application and its operands. */
struct application {
    struct wn_desc d;
    struct wn_type in[2];
    const void *data[2];
    struct wn_buffers b;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *noise(const struct wn_type *t)
{
    const int64_t bytes = wn__bytes(t);
    uint16_t *x = aligned_alloc(1 << 21, (size_t)((bytes >> 21) + 1) << 21);
    uint32_t state = 1;
    for (int64_t i = 0; i < bytes / 2; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (uint16_t)(0x3d00 | (state >> 9 & 0x80ff)); /* as bf16 and as f32 a number near 0.05 */
    }
    return x;
}

static void describe(const struct onednn_conv_shape *s, int is_own, struct application *a)
{
    static const int32_t ops[] = {WN_OP_CONV2D, WN_OP_CONV2D_DX, WN_OP_CONV2D_DW};
    const int64_t pad = s->k / 2, out = (s->size + 2 * pad - s->k) / s->stride + 1;
    struct wn_type x = {.dtype = s->bf16 ? WN_BF16 : WN_F32, .ndim = 4, .layout = WN_NHWC}, w = x, y = x;
    memcpy(x.dim, (const int64_t[]){s->n, s->c, s->size, s->size}, 4 * sizeof(int64_t));
    memcpy(w.dim, (const int64_t[]){s->o, s->c / s->groups, s->k, s->k}, 4 * sizeof(int64_t));
    memcpy(y.dim, (const int64_t[]){s->n, s->o, out, out}, 4 * sizeof(int64_t));
    w.layout = is_own && s->o % WN_PANEL_UNIT == 0 ? WN_CONV48 : WN_PLAIN;
    *a = (struct application){.d = {.op = ops[s->op], .n_in = 2}};
    a->in[0] = s->op == 0 ? x : y;
    a->in[1] = s->op == 2 ? x : w;
    a->d.out = s->op == 0 ? y : s->op == 1 ? x : w;
    a->d.in = a->in;
    a->d.attrs = (struct wn_attrs){.n = 5};
    const int64_t size = s->op == 1 ? s->size : s->k;
    const int64_t attrs[] = {wn__pair(s->stride, s->stride), wn__pair(pad, pad), wn__pair(1, 1), s->groups,
                             wn__pair(size, size)};
    memcpy(a->d.attrs.i, attrs, sizeof attrs);
}

/* Measures one application; returns seconds of one call. */
static double seconds_of(const struct application *a, int64_t inner)
{
    const wn_kernel_fn f = wn__cpu_conv_kernel(&a->d);
    const double start = now();
    for (int64_t q = 0; q < inner; q++) f(&a->d, &a->b, NULL);
    return (now() - start) / (double)inner;
}

/* Measures `turn` turns of each side. out, a row a turn: seconds of the own kernel, of oneDNN, bytes of oneDNN's
 * scratch. Returns 0 when oneDNN declines the convolution, else 1. */
int onednn_conv_turns(int threads, const struct onednn_conv_shape *s, int turn, double out[][3])
{
    const struct wn__target own = {.library = 0};
    struct application a[2];
    struct wn_made *made;
    int64_t bytes = INT64_MAX / 2;
    wn_cpu_set_threads(threads);
    describe(s, 1, &a[0]);
    describe(s, 0, &a[1]);
    if (wn__cpu_prepare_conv(&a[1].d, &bytes, &made) != WN_OK || made == NULL) return 0;
    const void *x = noise(&a[0].in[0]), *w = noise(&a[0].in[1]);
    void *y = noise(&a[0].d.out), *own_scratch = aligned_alloc(4096, (size_t)wn__cpu_workspace(&own, &a[0].d) + 4096);
    void *scratch = aligned_alloc(4096, (size_t)(bytes / 4096 + 1) * 4096);
    for (int who = 0; who < 2; who++) {
        a[who].data[0] = x;
        a[who].data[1] = w;
        a[who].b = (struct wn_buffers){.in = a[who].data, .out = y, .workspace = who ? scratch : own_scratch};
        a[who].b.made = who ? made : NULL;
    }
    seconds_of(&a[1], 1);
    const int64_t inner = (int64_t)(0.005 / seconds_of(&a[0], 1)) + 1; /* 5 ms and more */
    for (int i = 0; i < turn; i++) {
        for (int who = 0; who < 2; who++) out[i][who] = seconds_of(&a[who], inner);
        out[i][2] = (double)bytes;
    }
    free((void *)x), free((void *)w), free(y), free(scratch), free(own_scratch);
    made->let_go(made);
    return 1;
}
