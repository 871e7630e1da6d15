/* The two ways of working with a tile of attention's weights beside each other, for attention_spec: the portable loops,
 * as a class has them, and those of its own. Compiled by the spec with the flags and the objects of that class. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../kernels/cpu/attention/attention.h"
#include "../../kernels/cpu/backend/tuning.h"
#include "../../kernels/cpu/element/elementwise.h"

/* Stands in for that of backend/tuning.c. */
struct wn__tuning wn__tuning = {.stream_ahead = 4096,
                                .thread_grain = WN_THREAD_GRAIN,
                                .product_block = 256 << 10,
                                .product_stream = 4 << 20,
                                .product_ahead = 640};

/* Stands in for the function of backend/class.c. */
int32_t wn__cpu_has_avx512_bf16(void)
{
    return 0;
}

/* Stands in for the library's function of this name and aborts: no product here has an op over it. */
void wn__elementwise_run(const struct wn__elementwise *s, const struct wn__operands *o, int64_t n, int64_t at)
{
    (void)s, (void)o, (void)n, (void)at;
    abort();
}

#define KEYS 128
#define WIDTH 96
#define SIZE 40
#define WIDE 48 /* a row of SIZE, to the next vector */

/* The results of one kernel for a tile; every field is compared. */
struct results {
    float s[KEYS * WIDTH], ds[KEYS * WIDTH], c[SIZE * WIDTH], d[KEYS * SIZE], best[WIDTH], sum[WIDTH], back[WIDTH];
    uint16_t kept[WIDTH / 16 * WN_ATTENTION_KEPT];
} __attribute__((aligned(64)));

static uint32_t state;

static void fill(float *x, int64_t n, float size)
{
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = size * ((float)(state >> 8) / 8388608.0f - 1);
    }
}

/* size: the largest magnitude of what scores are products of. Small scores have weights near 1, whose last bits show
 * how 2^x is rounded. */
static void work(const struct wn__attention_kernel *g, const struct wn__attention *k, struct wn__attention_tile t,
                 float size, struct results *r)
{
    static float a[KEYS * SIZE], b[SIZE * WIDTH] __attribute__((aligned(64)));
    static float q[WIDTH * WIDE] __attribute__((aligned(64)));
    float factor[WIDTH], shared[WIDTH];
    state = 7;
    memset(r, 0, sizeof *r);
    fill(a, KEYS * SIZE, size);
    fill(b, SIZE * WIDTH, size);
    fill(q, WIDTH * WIDE, 4);
    fill(r->c, SIZE * WIDTH, 1);
    fill(r->d, KEYS * SIZE, 1);
    fill(factor, WIDTH, 1);
    fill(shared, WIDTH, 1);
    for (int64_t c = 0; c < WIDTH; c++)
        r->best[c] = c % 3 || t.diagonal > 0 ? (float)size * 2.5f : -INFINITY, r->sum[c] = c % 3;
    t.s = r->s;
    t.ld = WIDTH;
    struct wn__attention_product p = {
        .m = t.keys, .n = t.width, .k = SIZE, .a = a, .ai = SIZE, .ak = 1, .b = b, .bk = WIDTH, .c = r->s};
    p.ldc = WIDTH;
    p.first = 1;
    wn__attention_scores(g, &p, &t);
    wn__attention_mask(&t);
    if (k->p > 0) {
        t.kept = r->kept;
        g->draw(k, &t, wn__attention_weight(k, 1, 1, 5, 11));
    }
    struct wn__attention_tile all = t;
    all.kept = t.keys % 2 ? t.kept : NULL;
    g->softmax(&all, r->best, r->sum, r->back);
    struct wn__attention_weighing weighing = {r->s, factor, shared, t.kept};
    p.c = r->ds;
    p.weighing = &weighing;
    wn__attention_scores(g, &p, &t);
    p = (struct wn__attention_product){
        .m = SIZE, .n = t.width, .k = t.keys, .a = a, .ai = 1, .ak = SIZE, .b = r->s, .bk = WIDTH, .c = r->c};
    p.ldc = WIDTH;
    p.back = r->back;
    p.seen = &t;
    g->multiply(&p);
    t.fresh = t.keys % 3 * 8;
    p = (struct wn__attention_product){.m = t.keys,
                                       .n = SIZE,
                                       .k = t.width,
                                       .a = r->ds,
                                       .ai = WIDTH,
                                       .ak = 1,
                                       .b = q,
                                       .bk = WIDE,
                                       .c = r->d,
                                       .ldc = SIZE};
    p.late = &t;
    g->multiply(&p);
}

/* Returns whether this processor has the instructions of the class. */
static int32_t is_here(void)
{
#if defined(__AVX512F__)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#else
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
}

static int64_t differences(const void *a, const void *b, size_t bytes)
{
    int64_t n = 0;
    for (size_t i = 0; i < bytes; i++) n += ((const char *)a)[i] != ((const char *)b)[i];
    return n;
}

/* Counts the bytes in which the results of the two ways differ; 0 where the processor lacks the class. */
__attribute__((visibility("default"))) int64_t attention_differ(int64_t time, int64_t keys, int64_t width,
                                                                int64_t diagonal, double p, double size)
{
    static struct results one, other;
    struct wn__attention k = {.batch = 2, .time = time, .heads = 2, .kv_heads = 2, .size = SIZE, .p = p};
    struct wn__attention_tile t = {.keys = keys, .width = width, .diagonal = diagonal};
    k.seed = 0x123456789abcdefu;
    k.counter = 3;
    if (!is_here()) return 0;
    if (wn__attention_here() == &wn__attention_portable) return -1;
    work(&wn__attention_portable, &k, t, (float)size, &one);
    work(wn__attention_here(), &k, t, (float)size, &other);
    return differences(&one, &other, sizeof one);
}

/* Counts the bytes in which the masks differ that the two ways draw for a tile whose first weight has the index
 * `element`. */
__attribute__((visibility("default"))) int64_t attention_draws_differ(int64_t time, double element)
{
    static struct results one, other;
    struct wn__attention k = {.time = time, .p = 0.5, .seed = 0xfedcba987654321u, .counter = 0x500000007u};
    struct wn__attention_tile t = {.keys = 120, .width = WIDTH, .diagonal = WN_ATTENTION_EVERY};
    if (!is_here()) return 0;
    t.kept = one.kept;
    wn__attention_portable.draw(&k, &t, (uint64_t)element);
    t.kept = other.kept;
    wn__attention_here()->draw(&k, &t, (uint64_t)element);
    return differences(one.kept, other.kept, sizeof one.kept);
}
