/* The driver of products: partitions a batch into tasks, and chooses a variant for each (driver.h, gemm.h):
 *
 *   general     micro-panels of b are packed once for all rows of a block; a is read in place, or packed where that is
 *               cheaper (general.c)
 *   transposed  few rows, b has k along memory (the forward of a layer): transposed.c
 *   small m     few rows, b has its columns along memory (dX of a layer): small_m.c
 *   small k     many outputs of few steps of k (dW of a layer at a small batch): small_k.c
 *
 * Tasks divide outputs, never k. Nothing here allocates. */
#include <stddef.h>
#include "driver.h"
#include "../common/nontemporal.h"
#include "../../../runtime/base/number.h"

/* Row weight of small k: a part gets rows of its own unless n > 4 m.
 * Measured: 1024 x 1024 x 32: bf16 -> 0.93-0.98x, f32 -> 0.98-0.995x; with row weight 16: 1.02-1.04x. */
#define SMALL_K_TALL 4

void wn__gemm_pack_a(const struct wn__gemm_job *w, const struct wn__gemm_part *part, int64_t k, int64_t kc,
                     int64_t width, float *to)
{
    const struct wn__gemm *p = w->p;
    const int64_t at = k * w->words.per;
    const struct wn__gemm_rows x = {.x = wn__gemm_a(w, part, at),
                                    .xi = p->ai,
                                    .xk = p->ak,
                                    .rows = part->row1 - part->row0,
                                    .k = wn_min(p->k - at, kc * w->words.per),
                                    .width = width};
    w->words.pack(&w->words, &x, to);
}

void wn__gemm_pack_b(const struct wn__gemm_job *w, const struct wn__gemm_part *part,
                     const struct wn__gemm_micropanel *m, float *to)
{
    const struct wn__gemm *p = w->p;
    const int64_t per = w->words.per;
    for (int64_t k = m->k * per, end = wn_min(p->k, k + m->kc * per), n, ld; k < end; k += n) {
        n = p->b_panels && p->bk == 1 ? wn__gemm_in_panel(k, end - k) : end - k;
        const char *b = wn__gemm_b(w, part, k, m->column, &ld);
        const struct wn__gemm_rows x = {
            .x = b, .xi = p->bk == 1 ? ld : 1, .xk = p->bk == 1 ? 1 : ld, .rows = m->n, .k = n, .width = m->width};
        w->words.pack(&w->words, &x, to);
        to += n / per * m->width;
    }
}

/* Returns whether small m computes a part of so many rows. */
static int32_t is_small_m(const struct wn__gemm_job *w, int64_t rows)
{
    const struct wn__gemm *p = w->p;
    if (!w->in_place || p->bk == 1 || p->k == 0) return 0;
    if (rows < w->words.blocks->small_m_least || rows > WN_GEMM_SMALL_M) return 0;
    return p->b_panels ? w->words.is_panel_packed : w->words.kernel->packing_kernel != NULL;
}

/* Returns whether transposed computes a part of so many rows. */
static int32_t is_transposed(const struct wn__gemm_job *w, int64_t rows)
{
    const struct wn__gemm *p = w->p;
    return p->bk == 1 && p->k > 0 && !p->c_panels && rows <= WN_GEMM_TRANSPOSED_ROWS &&
           (w->in_place || !w->words.in_place);
}

static void run_tasks(int64_t begin, int64_t end, void *ctx)
{
    const struct wn__gemm_job *w = ctx;
    for (int64_t task = begin; task < end; task++) {
        struct wn__gemm_part part;
        if (!wn__gemm_part(w->p, &w->partition, task, &part)) continue;
        const int64_t rows = part.row1 - part.row0;
        if (is_transposed(w, rows)) wn__gemm_transposed(w, &part);
        else if (is_small_m(w, rows)) wn__gemm_small_m(w, &part);
        else if (w->small_k) wn__gemm_small_k(w, &part);
        else wn__gemm_general(w, &part);
    }
    if (w->stream) wn__stream_end();
}

/* Returns whether small k may store c non-temporally: in whole cache lines, or in runs (c in panels). */
static int32_t may_stream(const struct wn__gemm_job *w)
{
    const struct wn__gemm *p = w->p;
    const int64_t line = 64 / w->words.size;
    if ((uintptr_t)p->c % 64 != 0) return 0;
    return p->c_panels || (p->n % line == 0 && wn__gemm_small_k_width(w) % line == 0);
}

/* Sets the block sizes for the numbers of this machine (backend/tuning.h). A block that fills a quarter of the most
 * still has a micro-tile of columns for each WN_GEMM_ROWS_PACKED or rows_tall rows. */
static void fit_blocks(struct wn__gemm_job *w)
{
    const int64_t most = WN_GEMM_BLOCK_MOST, block = wn_min(wn_max(wn__tuning.product_block, most / 4), most);
    w->outputs = WN_GEMM_OUTPUTS_MAX * block / most;
    w->rows_tall = WN_GEMM_ROWS_TALL_MAX * block / most;
    w->transposed_packed = WN_GEMM_TRANSPOSED_PACKED_MAX * block / most;
}

static int32_t run(const struct wn__gemm *p, struct wn__gemm_words words)
{
    const struct wn__gemm_blocks *blocks = words.blocks;
    const int64_t outputs = p->batch * p->m * p->n;
    if (outputs == 0) return WN_OK;
    struct wn__gemm_job w = {.p = p, .words = words, .in_place = words.in_place && p->k % words.per == 0};
    fit_blocks(&w);
    w.small_k =
        !wn__gemm_has_epilogue(p) && p->k > 0 && p->k <= blocks->small_k && p->m * p->n >= blocks->small_k_outputs;
    w.partition = wn__gemm_partition(p, words.kernel->mr, blocks->part_columns, w.small_k ? SMALL_K_TALL : 1);
    /* c is written once and larger than the caches: a non-temporal store does not read its lines first. */
    w.stream = w.small_k && words.set_output && blocks->stream_share > 0 && may_stream(&w) &&
               outputs * (int64_t)sizeof(float) >= blocks->stream_share * wn__tuning.product_stream;
    wn__parallel_tasks(w.partition.tasks, w.partition.grain, run_tasks, &w);
    return WN_OK;
}

int32_t wn__gemm_f32(const struct wn__gemm *p)
{
    return run(p, wn__gemm_words_f32());
}

int32_t wn__gemm_bf16(const struct wn__gemm *p)
{
    return run(p, wn__gemm_words_bf16());
}
