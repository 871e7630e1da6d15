/* Words of f32: a word is an element (driver.h). Block sizes, packing, and the end of a micro-tile. */
#include <stddef.h>
#include <string.h>
#include "driver.h"
#include "../common/micro.h"
#include "../../../runtime/base/number.h"

static const struct wn__gemm_blocks blocks = {
    .part_columns = 16, /* 48: parts of 1024 columns differed by 6 % */
    .kc = WN_GEMM_KC,
    .kc_panels = 144,
    .rows_packed = 128,
    .rows_direct = 192,
    .rows_tall = 512,
    .outputs = 49152, /* 24576: the same */
    .column_unit = 48,
    .width_unit = 48,
    .epilogue_by_tile = 1, /* by blocks: 1.01-1.05x time (2048 x 1536 x 384, one sum an element) */
    .transposed_rows = 64,
    .transposed_packed = 65536, /* k-blocks of 128: 15-20 % slower */
    .transposed_kc = INT32_MAX,
    .transposed_sums = 8192, /* 32768: the same */
    .small_m_least = 1,
    .small_k = WN_GEMM_SMALL_K,
    .small_k_outputs = 1 << 18, /* half as many: the same, 3 % slower on a shared core */
    .small_k_columns = 48,
    .stream_share = 1,
};

/* Packs groups of mr rows that are along memory, 16 rows in all, so that a whole cache line of each step is read
 * once. */
static inline __attribute__((always_inline)) void pack_line_of(const struct wn__gemm_rows *x, const float *from,
                                                               const int64_t mr, float *to)
{
    for (int64_t k = 0; k < x->k; k++, from += x->xk, to += mr)
        for (int64_t i = 0; i < 16; i += mr) memcpy(to + i * x->k, from + i, (size_t)mr * sizeof *to);
}

/* Packs as many rows, 16 at a time, as are whole lines; returns how many. */
static int64_t pack_lines(const struct wn__gemm_rows *x, float *to)
{
    const float *from = x->x;
    int64_t i = 0;
    for (; x->rows - i >= 16; i += 16)
        if (x->width == 8) pack_line_of(x, from + i, 8, to + i * x->k);
        else pack_line_of(x, from + i, 4, to + i * x->k);
    return i;
}

/* Packs n rows that are along memory as one micro-panel. */
static void pack_rows(const struct wn__gemm_rows *x, const float *from, int64_t n, float *to)
{
    if (n == WN_PANEL && x->width == WN_PANEL) /* a constant */
        for (int64_t k = 0; k < x->k; k++, from += x->xk, to += WN_PANEL) memcpy(to, from, WN_PANEL * sizeof *to);
    else
        for (int64_t k = 0; k < x->k; k++) memcpy(to + k * x->width, from + k * x->xk, (size_t)n * sizeof *to);
}

static void pack(const struct wn__gemm_words *w, const struct wn__gemm_rows *x, float *to)
{
    const float *from = x->x;
    int64_t i = x->xk != 1 && (x->width == 4 || x->width == 8) ? pack_lines(x, to) : 0;
    for (; i < x->rows; i += x->width) {
        const int64_t n = wn_min(x->rows - i, x->width);
        float *out = to + i * x->k;
        if (n < x->width) memset(out, 0, (size_t)(x->k * x->width) * sizeof *out);
        if (x->xk == 1) w->kernel->transpose(from + i * x->xi, x->xi, n, x->k, out, x->width);
        else pack_rows(x, from + i, n, out);
    }
}

static void store(const float *sums, const void *bias, int64_t n, void *c)
{
    const float *add = bias;
    if (add == NULL) memcpy(c, sums, (size_t)n * sizeof *sums);
    else
        for (int64_t j = 0; j < n; j++) ((float *)c)[j] = sums[j] + add[j];
}

static void set_output(struct wn__gemm_microtile *t, void *c, int64_t ld, const void *bias)
{
    t->out = c;
    t->out_ld = ld;
    t->bias = bias;
}

struct wn__gemm_words wn__gemm_words_f32(void)
{
    return (struct wn__gemm_words){.kernel = wn__micro.gemm,
                                   .blocks = &blocks,
                                   .per = 1,
                                   .size = sizeof(float),
                                   .in_place = 1,
                                   .is_panel_packed = 1,
                                   .pack = pack,
                                   .store = store,
                                   .set_output = set_output};
}
