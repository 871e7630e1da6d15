/* Products whose result is an image, conv2d and conv2d_dx: rows are pixels, columns are channels.
 *
 *     for each block of the result (pixels x columns, sums on the stack)
 *         for each k-block: copy the patches of all pixels
 *             for each micro-panel of the weight (at most nr columns): read it in place, or pack it
 *                 for each micro-tile (mr pixels): micro-kernel
 *
 * Sums over k are in ascending order (conv.h); blocks divide the result alone. */
#include <stddef.h>
#include "conv.h"

struct block {
    const struct wn__conv_job *w;
    int64_t group, row0, rows, column0, columns;
    int64_t words, k, kc; /* words of k in all; the k-block, in words */
    const float *patches;
    char *sums; /* (rows, ldc) words */
    int64_t ldc;
    const struct wn__conv_pixel *pixels;
    struct wn__conv_ahead ahead; /* of the next block */
};

/* Returns where pixel `row` of a block is in the result, from column `column` of the group on. */
static char *out_at(const struct block *f, int64_t row, int64_t column)
{
    const struct wn__conv_job *w = f->w;
    const int64_t at = f->pixels[row].out * w->out_channels + f->group * w->columns + column;
    return w->out + at * w->words.gemm.size;
}

static const void *bias_at(const struct block *f, int64_t column)
{
    const struct wn__conv_job *w = f->w;
    return w->bias ? (const char *)w->bias + (f->group * w->columns + column) * w->words.gemm.size : NULL;
}

/* Runs a micro-kernel over the last k-block of the pixels from `row` on. It writes the result, where it can and the
 * pixels are evenly apart in it; else its sums are stored pixel by pixel. */
static void finish_microtile(const struct block *f, struct wn__gemm_microtile *t, int64_t row, int64_t column)
{
    const struct wn__gemm_words *words = &f->w->words.gemm;
    const int64_t step = f->w->axis[1].out_step, word = wn__conv_word(f->w);
    const int32_t is_even = f->pixels[row + t->m - 1].out - f->pixels[row].out == (t->m - 1) * step;
    if (words->set_output != NULL && is_even) {
        words->set_output(t, out_at(f, row, column), step * f->w->out_channels, bias_at(f, column));
        words->kernel->microkernel(t);
        t->out = NULL; /* a copy of *t would wait for the stores before it */
        t->half = NULL;
        t->bias = NULL;
        return;
    }
    words->kernel->microkernel(t);
    for (int64_t i = 0; i < t->m; i++)
        words->store((const float *)(const void *)((const char *)t->c + i * t->ldc * word), bias_at(f, column), t->n,
                     out_at(f, row + i, column));
}

/* Requests that micro-tile number i of a micro-panel prefetch its share of the next one, or the image of the next
 * block, or the next rows of patches. */
static void prefetch_next(struct block *f, int64_t i, const struct wn__conv_micropanel *next,
                          struct wn__gemm_microtile *t)
{
    const char *share = i < 3 ? wn__conv_weight_share(f->w, next, i) : NULL;
    if (share != NULL) {
        const int64_t steps = f->w->words.gemm.per == 1 ? WN_GEMM_FAR_STEPS : WN_GEMM_FAR_STEPS_BF16;
        t->aux = (struct wn__gemm_auxinfo){.line = share, .step = 64, .row = steps * 64};
    } else if (i < 3 || !wn__conv_prefetch(f->w, &f->ahead, t)) {
        const char *line = (const char *)(t->a + t->ai * t->m);
        t->aux = (struct wn__gemm_auxinfo){
            .line = line, .step = t->kc / 4, .row = t->ai * (int64_t)sizeof(float), .is_near = 1};
    }
}

/* Returns the micro-panel that is read after m. */
static struct wn__conv_micropanel after(const struct block *f, const struct wn__conv_micropanel *m)
{
    struct wn__conv_micropanel next = *m;
    next.column += m->n;
    if (next.column < f->column0 + f->columns) return next;
    next.column = f->column0;
    next.k += m->kc;
    if (f->k + f->kc >= f->words) next.k = 0;
    return next;
}

/* Multiplies the patches of a block by n columns of the weight. */
static void run_micropanel(struct block *f, int64_t column, int64_t n, float *packed)
{
    const struct wn__conv_job *w = f->w;
    const struct wn__gemm_words *words = &w->words.gemm;
    const int64_t mr = words->kernel->mr, word = wn__conv_word(w), floats = word / (int64_t)sizeof(float);
    const int32_t is_last = f->k + f->kc >= f->words;
    const struct wn__conv_micropanel m = {
        .group = f->group, .k = f->k * words->per, .kc = f->kc * words->per, .column = column, .n = n};
    const struct wn__conv_micropanel next = after(f, &m);
    struct wn__gemm_microtile t = {.kc = f->kc, .ai = WN_CONV_KC, .ak = 1, .ldc = f->ldc, .n = n, .first = f->k == 0};
    t.b = wn__conv_weight(w, &m, packed, &t.bk);
    char *c = f->sums + (column - f->column0) * word;
    for (int64_t i = 0; i < f->rows; i += mr) {
        t.a = f->patches + i * WN_CONV_KC * floats;
        t.c = (float *)(void *)(c + i * f->ldc * word);
        t.m = wn_min(f->rows - i, mr);
        prefetch_next(f, i / mr, &next, &t);
        if (is_last) finish_microtile(f, &t, i, column);
        else words->kernel->microkernel(&t);
    }
}

/* Returns the columns of the micro-panel at `column`, where so many are left: those of a panel, but 32 and 32 instead
 * of 48 and 16 where 16 columns are one vector, which has few sums in flight.
 * Measured: 3 x 3, 64 > 64 at 56, AVX-512: y 0.90x time, dx 0.93x. */
static int64_t columns_of(const struct wn__conv_job *w, int64_t column, int64_t left)
{
    const struct wn__gemm_kernel *kernel = w->words.gemm.kernel;
    if (kernel->mr < WN_GEMM_MR_MAX || !(w->words.gemm.is_panel_packed || w->is_turned))
        return wn_min(wn__gemm_in_panel(column, left), kernel->nr);
    return left == WN_PANEL + WN_PANEL_UNIT ? 2 * WN_PANEL_UNIT : wn_min(left, kernel->nr);
}

/* Returns the words of a k-block of `words` in all: as equal as multiples of 16 allow. */
static int64_t piece_of(int64_t words)
{
    const int64_t pieces = (words + WN_CONV_KC - 1) / WN_CONV_KC;
    return words ? wn_round_up((words + pieces - 1) / pieces, 16) : 1;
}

static void run_block(const struct wn__conv_job *w, const struct wn__conv_block *b)
{
    char sums[WN_CONV_SUMS] __attribute__((aligned(64)));
    char patches[WN_CONV_PATCHES] __attribute__((aligned(64)));
    char packed[WN_CONV_PACKED] __attribute__((aligned(64)));
    struct wn__conv_pixel pixels[WN_CONV_ROWS];
    struct block block = {.w = w, .group = b->group, .row0 = b->row0, .rows = b->rows}, *f = &block;
    f->column0 = b->column0;
    f->columns = b->columns;
    const int64_t per = w->words.gemm.per;
    f->words = (w->steps + per - 1) / per;
    const int64_t piece = piece_of(f->words);
    const struct wn__conv_patches take = {pixels, f->rows, WN_CONV_KC * per, patches};
    f->sums = sums;
    f->patches = (const float *)(const void *)patches;
    f->ldc = wn_round_up(f->columns, 16);
    f->pixels = pixels;
    wn__conv_pixels(w, f->group, f->row0, f->rows, pixels);
    f->ahead = wn__conv_ahead(w, f->group, f->row0 + w->row_block, w->row_block);
    f->k = 0;
    do { /* once where there are no taps, too: the result is then zeros */
        f->kc = wn_min(f->words - f->k, piece);
        wn__conv_patches(w, &take, f->k * per, f->kc * per);
        for (int64_t column = f->column0, n; column < f->column0 + f->columns; column += n) {
            n = columns_of(w, column, f->column0 + f->columns - column);
            run_micropanel(f, column, n, (float *)(void *)packed);
        }
        f->k += f->kc;
    } while (f->k < f->words);
    /* Pixels of y are in order. */
    wn__conv_finish(w->epilogue, pixels[0].out, f->rows, f->group * w->columns + f->column0, f->columns);
}

/* Blocks have as many pixels as their buffers hold, and columns whose sums fit beside them. */
void wn__conv_images(struct wn__conv_job *w)
{
    const int64_t rows = w->images * w->axis[0].pixels * w->axis[1].pixels, word = wn__conv_word(w);
    const int64_t most = WN_CONV_PATCHES / (WN_CONV_KC * word);
    if (rows == 0) return;
    w->run_block = run_block;
    wn__conv_split(w, WN_CONV_SUMS / word / most / WN_PANEL * WN_PANEL);
    wn__conv_blocks(w, rows, most, w->steps);
}
