/* The variant general: any part of c. All of k is computed for as many outputs as the second-level cache holds, then
 * the next block of outputs:
 *
 *     for each block of c (outputs, sums on the stack)
 *         for each k-block: pack a, unless it is read in place
 *             for each micro-panel of b (at most nr columns), in pieces of kc words: pack it, or read it in place
 *                 for each micro-tile (mr rows): micro-kernel
 *
 * Measured: k outside all outputs, which loads and stores c once a k-block: 1.2-1.5x time (k 384 to 3072, shared
 * caches).
 *
 * A micro-panel of b is read in one of three ways (enum reading). A panel of a forward is a packed micro-panel already
 * in f32, and is read in place; in pairs of bf16, a panel is in the order of f32, and words.panel makes the pairs from
 * a whole panel in place.
 * Measured, panels of pairs against plain weights, 1 to 128 rows: 0.85-1.08x time; packed by the first micro-tile
 * 1.0-2.1x; small m 1.04-1.2x.
 * For dX, k has WN_PANEL steps a panel, and micro-panels are transposed one panel at a time.
 *
 * Blocks are tall where a is read in place, and flat where it is packed. The sums are dense and c is written once,
 * because rows of c that are a power of two apart share few sets of the cache. Nothing here allocates. */
#include <stddef.h>
#include "driver.h"
#include "../../../runtime/base/number.h"

/* The ways of reading a micro-panel of b: packed before; in place, while the first micro-tile packs it; in place by all
 * micro-tiles. */
enum reading { PACKED, COPIED, IN_PLACE };

/* The prefetches that the micro-tiles of a micro-panel request: first the next micro-panel of b, then the next k-block
 * of a, then the next rows of a. A micro-tile of kc words prefetches kc lines, and of a row `lines` at a time. */
struct prefetch {
    const char *micropanel; /* the next micro-panel of b */
    const char *rows;       /* the next k-block of a where it will be packed, else NULL */
    int64_t tiles;          /* number of micro-tiles that share the micro-panel */
    int64_t parts, given;   /* parts of `rows`: some lines of a quarter of its steps; given: prefetched already */
    int64_t lines;
};

/* A block of outputs, and its k-block. */
struct block {
    const struct wn__gemm_job *w;
    const struct wn__gemm_part *part;
    int64_t words;  /* of k in all */
    int64_t k, kc;  /* the k-block, in words */
    int64_t piece;  /* words of a micro-panel of b, at most */
    int64_t width;  /* columns of a micro-panel */
    const float *a; /* the k-block of a: its first micro-tile's */
    int64_t ai, ak; /* strides of a, in words */
    float *sums;    /* (rows, ldc); unused where is_single */
    int64_t ldc;
    int32_t is_single; /* all of k is one piece, and micro-kernels write c */
    struct prefetch prefetch;
};

/* Returns the words of which a k-block is a multiple: a panel where k runs along panels (dX), else 16. */
static int64_t k_unit(const struct wn__gemm_job *w)
{
    return w->p->b_panels && w->p->bk == 1 ? WN_PANEL / w->words.per : 16;
}

/* ---- prefetches ---------------------------------------------------------------------------------- */

/* Requests kc lines from `from` on, prefetch.lines of them a row, rows `row` bytes apart. */
static void prefetch_rows(const char *from, int64_t row, struct wn__gemm_microtile *t)
{
    t->aux = (struct wn__gemm_auxinfo){.line = from, .step = 64, .row = row};
}

/* Requests share i of the next micro-panel: kc lines of a dense panel; of dX, of a panel; else some lines of each of
 * kc / lines rows. */
static void prefetch_micropanel(const struct block *f, int64_t i, struct wn__gemm_microtile *t)
{
    const struct wn__gemm *p = f->w->p;
    const int64_t lines = f->prefetch.lines, rows = t->kc / lines, size = f->w->words.size;
    const char *from = f->prefetch.micropanel;
    if (p->b_panels) {
        prefetch_rows(from + i * (p->bj == 1 ? t->kc * 64 : p->n * WN_PANEL * size), lines * 64, t);
    } else if (p->bk == 1) { /* rows of b are columns of the micro-panel */
        const int64_t shares = (WN_GEMM_NR_MAX + rows) / (rows + 1);
        prefetch_rows(from + i / shares * lines * 64 + i % shares * rows * p->bj * size, p->bj * size, t);
    } else {
        prefetch_rows(from + i * rows * p->bk * size, p->bk * size, t);
    }
}

/* Requests the prefetches of micro-tile number i of a micro-panel. */
static void prefetch_next(struct block *f, int64_t i, struct wn__gemm_microtile *t)
{
    const struct wn__gemm *p = f->w->p;
    struct prefetch *to = &f->prefetch;
    if (i < to->tiles) {
        prefetch_micropanel(f, i, t);
    } else if (to->rows && to->given < to->parts) {
        const int64_t row = p->ak * f->w->words.size, quarter = t->kc * f->w->words.per / 4;
        prefetch_rows(to->rows + (to->given >> 2) * to->lines * 64 + (to->given & 3) * quarter * row, row, t);
        to->given++;
    } else {
        const char *line = (const char *)(t->a + f->w->words.kernel->mr * t->ai);
        if (t->ak == 1)
            t->aux = (struct wn__gemm_auxinfo){
                .line = line, .step = t->kc / 4, .row = t->ai * (int64_t)sizeof(float), .is_near = 1};
        else t->aux = (struct wn__gemm_auxinfo){.line = line, .row = 64, .is_near = 1};
    }
}

/* Sets what the micro-panel at word k, column `column`, prefetches: the next piece of its columns, then the next
 * columns, then the next k-block. */
static void set_prefetch(struct block *f, int64_t k, int64_t column)
{
    const int64_t end = f->k + f->kc, per = f->w->words.per;
    const int32_t is_last = end >= f->words;
    int64_t ld;
    if (k >= end) {
        k = f->k;
        column += f->width;
    }
    if (column >= f->part->column1) {
        k = is_last ? 0 : end;
        column = is_last ? f->part->column1 : f->part->column0;
    }
    f->prefetch.micropanel = wn__gemm_b(f->w, f->part, k * per, column, &ld);
}

/* ---- micro-panels -------------------------------------------------------------------------------- */

/* Returns how a micro-panel of n columns is read. */
static enum reading reading_of(const struct block *f, int64_t n)
{
    const struct wn__gemm_words *words = &f->w->words;
    const struct wn__gemm *p = f->w->p;
    if (!f->w->in_place || p->bk == 1) return PACKED;
    if (p->b_panels && (words->is_panel_packed || (words->panel && n == WN_PANEL && f->ak != 1))) return IN_PLACE;
    return COPIED;
}

/* Writes a finished micro-panel of c where micro-kernels leave sums. */
static void store_columns(const struct block *f, int64_t column, int64_t n)
{
    const struct wn__gemm_part *part = f->part;
    int64_t ld;
    char *c = wn__gemm_c(f->w, part, part->row0, column, &ld);
    const float *sums = f->sums + column - part->column0;
    for (int64_t i = part->row0; i < part->row1; i++, sums += f->ldc, c += ld * f->w->words.size)
        f->w->words.store(sums, wn__gemm_bias(f->w, column), n, c);
}

/* Multiplies all rows of a block by one micro-panel of b, m, which is packed to or in `packed`. */
static void run_micropanel(struct block *f, const struct wn__gemm_micropanel *m, float *packed)
{
    const struct wn__gemm_words *words = &f->w->words;
    const struct wn__gemm_part *part = f->part;
    const int64_t mr = words->kernel->mr, rows = part->row1 - part->row0, group = mr * (f->ak == 1 ? f->ai : f->kc);
    const int32_t is_last = m->k + m->kc >= f->words, is_output = is_last && words->set_output != NULL;
    const enum reading reading = reading_of(f, m->n);
    void (*microkernel)(const struct wn__gemm_microtile *) =
        reading == IN_PLACE && words->panel ? words->panel : words->kernel->microkernel;
    int64_t ld, c_ld;
    const float *b = (const float *)(const void *)wn__gemm_b(f->w, part, m->k * words->per, m->column, &ld);
    char *c = wn__gemm_c(f->w, part, part->row0, m->column, &c_ld);
    const float *a = f->a + (m->k - f->k) * f->ak;
    float *sums = f->is_single ? f->sums : f->sums + m->column - part->column0;
    struct wn__gemm_microtile t = {.kc = m->kc, .ai = f->ai, .ak = f->ak, .n = m->n, .first = m->k == 0};
    t.ldc = f->is_single ? 0 : f->ldc;
    if (reading == PACKED) wn__gemm_pack_b(f->w, part, m, packed);
    const int32_t by_tile = is_output && words->blocks->epilogue_by_tile, prefetches = is_last && f->w->p->epilogue_in;
    for (int64_t i = 0; i < rows; i += mr) {
        t.copy = reading == COPIED && i == 0 ? packed : NULL;
        t.b = reading == IN_PLACE || t.copy ? b : packed;
        t.bk = reading == IN_PLACE || t.copy ? ld : reading == COPIED ? words->kernel->nr : m->width;
        t.a = a + i / mr * group;
        t.c = sums + i * t.ldc;
        t.m = wn_min(rows - i, mr);
        if (is_output) words->set_output(&t, c + i * c_ld * words->size, c_ld, wn__gemm_bias(f->w, m->column));
        prefetch_next(f, i / mr, &t);
        const int64_t row = part->row0 + i;
        if (prefetches) wn__gemm_prefetch_epilogue(f->w->p, part->batch, row, row + t.m, m->column, m->n);
        microkernel(&t);
        if (by_tile) wn__gemm_epilogue(f->w->p, part->batch, row, row + t.m, m->column, m->n);
    }
    if (is_last && !is_output) store_columns(f, m->column, m->n);
}

/* Computes the k-block of a block, one micro-panel of b after the other. */
static void run_micropanels(struct block *f)
{
    float packed[WN_GEMM_B_MAX] __attribute__((aligned(64)));
    const struct wn__gemm_job *w = f->w;
    const struct wn__gemm_part *part = f->part;
    const int64_t end = f->k + f->kc;
    for (int64_t column = part->column0; column < part->column1; column += f->width) {
        struct wn__gemm_micropanel m = {.column = column, .n = wn_min(part->column1 - column, f->width)};
        m.width = f->width;
        /* Measured: panels of pairs in pieces of 128 words, which stay in the first-level cache: 1.05-1.09x time (32 x
         * 4096 x 4096). */
        const int64_t piece = reading_of(f, m.n) == IN_PLACE && w->words.panel ? f->kc : f->piece;
        m.k = f->k;
        do { /* once where k = 0, too: c is then the bias, or zeros */
            m.kc = wn_min(end - m.k, piece);
            set_prefetch(f, m.k + m.kc, column);
            run_micropanel(f, &m, packed);
            m.k += m.kc;
        } while (m.k < end);
    }
}

/* ---- blocks -------------------------------------------------------------------------------------- */

/* Sets the prefetches of a k-block. */
static void start_prefetch(struct block *f)
{
    const struct wn__gemm_job *w = f->w;
    const struct wn__gemm *p = w->p;
    const int64_t rows = f->part->row1 - f->part->row0, end = f->k + f->kc, lines = WN_GEMM_FAR_STEPS / w->words.per;
    const int64_t elements = lines * 64 / w->words.size; /* of a row that are prefetched at a time */
    f->prefetch = (struct prefetch){.tiles = 4, .parts = (rows + elements - 1) / elements * 4, .lines = lines};
    if (p->b_panels) f->prefetch.tiles = p->bj == 1 ? 3 : wn_max(f->piece / k_unit(w), 1);
    if (f->ak != 1 && p->ak != 1) f->prefetch.rows = wn__gemm_a(w, f->part, end < f->words ? end * w->words.per : 0);
}

/* Returns the words of a piece of k: as equal as units allow. */
static int64_t piece_of(const struct wn__gemm_job *w, int64_t words)
{
    const int64_t most = w->p->b_panels && w->p->bk == 1 ? WN_GEMM_KC_PANELS : WN_GEMM_KC;
    const int64_t pieces = (words + most - 1) / most;
    return words ? wn_round_up((words + pieces - 1) / pieces, k_unit(w)) : 1;
}

/* Computes a block over all of k. direct: a is read in place. */
static void run_block(const struct wn__gemm_job *w, const struct wn__gemm_part *part, int32_t direct)
{
    float sums[WN_GEMM_OUTPUTS_MAX] __attribute__((aligned(64)));
    float packed_a[WN_GEMM_A_MAX] __attribute__((aligned(64)));
    const struct wn__gemm *p = w->p;
    const int64_t mr = w->words.kernel->mr, nr = w->words.kernel->nr, per = w->words.per;
    const int64_t rows = part->row1 - part->row0, columns = part->column1 - part->column0;
    const int64_t micropanels = (columns + nr - 1) / nr;
    struct block f = {.w = w, .part = part, .words = (p->k + per - 1) / per, .sums = sums};
    f.ldc = wn_round_up(columns, 16);
    f.width = wn_min(wn_round_up((columns + micropanels - 1) / micropanels, w->words.blocks->width_unit), nr);
    if (wn__gemm_column_panels(p)) f.width = nr;
    f.ai = direct ? p->ai / per : 1;
    f.ak = direct ? 1 : mr;
    f.piece = piece_of(w, f.words);
    f.is_single = f.words <= f.piece && w->words.set_output != NULL;
    int64_t step = f.piece;
    /* A panel is read along k for as long as the packed a lasts. */
    if (p->b_panels && p->bj == 1 && !direct) step = WN_GEMM_A_MAX / wn_round_up(rows, mr) / f.piece * f.piece;
    do {
        f.kc = wn_min(f.words - f.k, step);
        f.a = direct ? (const float *)(const void *)wn__gemm_a(w, part, f.k * per) : packed_a;
        if (!direct) wn__gemm_pack_a(w, part, f.k, f.kc, mr, packed_a);
        start_prefetch(&f);
        run_micropanels(&f);
        f.k += f.kc;
    } while (f.k < f.words);
    if (!w->words.blocks->epilogue_by_tile || !w->words.set_output)
        wn__gemm_epilogue(p, part->batch, part->row0, part->row1, part->column0, columns);
}

/* Returns the columns of a block of so many rows. Where no sums are kept, it has all: a is packed once. */
static int64_t columns_of(const struct wn__gemm_job *w, int64_t rows)
{
    const struct wn__gemm_blocks *blocks = w->words.blocks;
    const int64_t words = (w->p->k + w->words.per - 1) / w->words.per;
    if (words <= piece_of(w, words) && w->words.set_output != NULL &&
        (!wn__gemm_has_epilogue(w->p) || blocks->epilogue_by_tile))
        return w->p->n;
    return w->outputs / rows / blocks->column_unit * blocks->column_unit;
}

void wn__gemm_general(const struct wn__gemm_job *w, const struct wn__gemm_part *part)
{
    const int64_t mr = w->words.kernel->mr, rows = part->row1 - part->row0;
    const int32_t direct = w->in_place && w->p->ak == 1 && rows >= WN_GEMM_ROWS_DIRECT;
    const int64_t most = direct ? w->rows_tall : WN_GEMM_ROWS_PACKED, parts = (rows + most - 1) / most;
    int64_t tall = wn_round_up((rows + parts - 1) / parts, mr);
    if (tall > most) tall = most / mr * mr;
    const int64_t wide = columns_of(w, tall);
    struct wn__gemm_part block = *part;
    for (block.row0 = part->row0; block.row0 < part->row1; block.row0 += tall)
        for (block.column0 = part->column0; block.column0 < part->column1; block.column0 += wide) {
            block.row1 = wn_min(block.row0 + tall, part->row1);
            block.column1 = wn_min(block.column0 + wide, part->column1);
            run_block(w, &block, direct);
        }
}
