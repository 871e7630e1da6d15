/* Words of bf16 (driver.h): pairs of steps of k, where the processor multiplies pairs; elsewhere elements that packing
 * widens to f32 for the f32 micro-kernel of the class. Sums are f32 over all of k, and are rounded to bf16 once, after
 * bias; no partial sum is ever bf16. */
#include <stddef.h>
#include <string.h>
#include "driver.h"
#include "../backend/class.h"
#include "../common/micro.h"
#include "../../../runtime/base/number.h"

static const struct wn__gemm_blocks pairs = {
    .part_columns = 32, /* 96: parts of 1024 columns differed by 13 % */
    .column_unit = 96,  /* two micro-panels, three cache lines of c */
    .width_unit = 16,
    .transposed_kc = INT32_MAX,
    .small_m_least = 16,        /* 8: 1.1-1.5x time */
    .small_k = 32,              /* 64: its narrower micro-panels cost 10 % */
    .small_k_outputs = 1 << 14, /* fewer: no difference */
    .small_k_columns = 32,      /* a cache line of a row of c */
    .stream_share = 4,
};
static const struct wn__gemm_blocks widened = {
    .part_columns = 32,
    .column_unit = 96,
    .width_unit = 48,
    .transposed_kc = WN_GEMM_WIDENED_MAX / WN_GEMM_MR_MAX,
    .small_m_least = 1,
    .small_k = WN_GEMM_SMALL_K,
    .small_k_outputs = 1 << 14,
    .small_k_columns = 48,
    .stream_share = 0, /* micro-kernels round to parts of lines */
};

/* Rounds sums + bias; bias: (n), or NULL. */
static void store(const float *restrict sums, const void *bias, int64_t n, void *c)
{
    const uint16_t *restrict add = bias;
    uint16_t *restrict to = c;
    if (add != NULL)
        for (int64_t j = 0; j < n; j++) to[j] = wn_to_bf16(sums[j] + wn_from_bf16(add[j]));
    else
        for (int64_t j = 0; j < n; j++) to[j] = wn_to_bf16(sums[j]);
}

/* ---- pairs --------------------------------------------------------------------------------------- */

static void pack_pairs(const struct wn__gemm_words *w, const struct wn__gemm_rows *x, float *to)
{
    (void)w;
    wn__micro.gemm_bf16->pack(x, to);
}

static void set_output(struct wn__gemm_microtile *t, void *c, int64_t ld, const void *bias)
{
    t->half = c;
    t->half_ld = ld;
    t->half_bias = bias;
}

/* ---- widened elements ---------------------------------------------------------------------------- */

#define STEPS 64 /* of rows that are widened before they are transposed */

/* Packs n rows, k along memory, as one micro-panel. */
static void pack_transposed(const struct wn__gemm_rows *x, const uint16_t *from, int64_t n, float *to)
{
    float wide[WN_GEMM_NR_MAX * STEPS] __attribute__((aligned(64)));
    for (int64_t k = 0; k < x->k; k += STEPS, to += STEPS * x->width) {
        const int64_t steps = wn_min(x->k - k, STEPS);
        for (int64_t i = 0; i < n; i++) wn__gemm_widen(wide + i * STEPS, from + i * x->xi + k, steps);
        wn__micro.gemm->transpose(wide, STEPS, n, steps, to, x->width);
    }
}

#define T uint16_t
#define WIDEN wn__gemm_widen
#define WIDE(from, room) (wn__gemm_widen(room, from, LINE), room)
#define TRANSPOSE(w, x, from, n, to) ((void)(w), pack_transposed(x, from, n, to))
#include "pack.inc"

/* ---- the choice ---------------------------------------------------------------------------------- */

const struct wn__gemm_bf16_kernel *wn__gemm_bf16_here(int32_t choice)
{
    return choice == WN_GEMM_PAIRS && wn__cpu_has_avx512_bf16() ? wn__micro.gemm_bf16 : NULL;
}

struct wn__gemm_words wn__gemm_words_bf16(void)
{
    const struct wn__gemm_bf16_kernel *kernel =
        wn__gemm_bf16_here(wn__tuning.bf16_widened ? WN_GEMM_WIDENED : WN_GEMM_PAIRS);
    struct wn__gemm_words words = {.size = sizeof(uint16_t), .store = store};
    if (kernel != NULL) {
        words.kernel = &kernel->words;
        words.blocks = &pairs;
        words.per = 2;
        words.in_place = 1;
        words.pack = pack_pairs;
        words.panel = kernel->panel;
        words.set_output = set_output;
    } else {
        words.kernel = wn__micro.gemm;
        words.blocks = &widened;
        words.per = 1;
        words.pack = pack;
        if (words.kernel->stores_half) words.set_output = set_output;
    }
    return words;
}
