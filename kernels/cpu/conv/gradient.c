/* The product whose result is the gradient of a weight, conv2d_dw: rows are steps (kh, kw, c) of a patch, columns are
 * outputs, and k runs over the pixels of dy.
 *
 *     for each block of dw (rows x columns, sums on the stack)
 *         for each k-block of pixels: copy the patches, and pack micro-panels of them
 *             for each micro-panel of dy (at most nr outputs): pack it
 *                 for each micro-tile (mr rows): micro-kernel
 *
 * Pixels are added in ascending order (n, p, q); blocks divide the result alone. */
#include <stddef.h>
#include <string.h>
#include "conv.h"

#define ROWS 128    /* most rows of a block */
#define SMALL 16384 /* so many multiply-adds are not worth a thread */
#define PACKED_A (ROWS * WN_CONV_KC * 4)

struct block {
    const struct wn__conv_job *w;
    int64_t group, row0, rows, column0, columns;
    int64_t pixels, at, n; /* pixels of k in all; those of the k-block */
    const float *a;        /* packed micro-panels */
    char *sums;            /* (rows, ldc) words */
    int64_t ldc;
};

static int64_t word_of(const struct wn__conv_job *w)
{
    return w->words.cell * w->words.gemm.per;
}

/* Writes a row of sums, n columns from `column` on, to dw. */
static void store_row(const struct block *f, int64_t row, int64_t column, int64_t n, const char *sums)
{
    const struct wn__conv_job *w = f->w;
    const int64_t size = w->words.gemm.size, tap = row / w->depth, channel = row % w->depth;
    const int64_t o = f->group * w->columns + column;
    char *to = w->out + wn__conv_weight_at(w->weight, o, channel, tap) * size, line[WN_PANEL * 8];
    if (w->weight->layout != WN_PLAIN && w->groups == 1) { /* all of one panel */
        w->words.gemm.store((const float *)(const void *)sums, NULL, n, to);
        return;
    }
    w->words.gemm.store((const float *)(const void *)sums, NULL, n, line);
    for (int64_t j = 0; j < n; j++)
        memcpy(w->out + wn__conv_weight_at(w->weight, o + j, channel, tap) * size, line + j * size, (size_t)size);
}

/* Multiplies the patches of a k-block by n outputs of dy. */
static void run_micropanel(const struct block *f, int64_t column, int64_t n, float *packed)
{
    const struct wn__conv_job *w = f->w;
    const struct wn__gemm_words *words = &w->words.gemm;
    const int64_t mr = words->kernel->mr, word = word_of(w), kc = (f->n + words->per - 1) / words->per;
    const int64_t width = wn_round_up(n, 16);
    const char *dy = w->w + (f->at * w->groups * w->columns + f->group * w->columns + column) * words->size;
    const struct wn__gemm_rows x = {dy, 1, w->groups * w->columns, n, f->n, width};
    words->pack(words, &x, packed);
    struct wn__gemm_microtile t = {
        .kc = kc, .ai = 1, .ak = mr, .b = packed, .bk = width, .ldc = f->ldc, .n = n, .first = f->at == 0};
    char *c = f->sums + (column - f->column0) * word;
    for (int64_t i = 0; i < f->rows; i += mr) {
        t.a = f->a + i * kc * (word / (int64_t)sizeof(float));
        t.c = (float *)(void *)(c + i * f->ldc * word);
        t.m = wn_min(f->rows - i, mr);
        t.prefetch = (const char *)t.a;
        words->kernel->microkernel(&t);
    }
    if (f->at + f->n < f->pixels) return;
    for (int64_t i = 0; i < f->rows; i++) store_row(f, f->row0 + i, column, n, c + i * f->ldc * word);
}

/* Copies the patches of the k-block, and packs micro-panels of mr rows. */
static void pack_patches(const struct block *f, char *patches, float *packed)
{
    const struct wn__conv_job *w = f->w;
    struct wn__conv_pixel pixels[2 * WN_CONV_KC];
    const int64_t cells = wn_round_up(f->rows, 16);
    const struct wn__conv_patches b = {pixels, f->n, cells, patches};
    wn__conv_pixels(w, f->group, f->at, f->n, pixels);
    wn__conv_patches(w, &b, f->row0, f->rows);
    struct wn__gemm_words words = w->words.gemm;
    if (w->words.cell != words.size) words = wn__gemm_words_f32(); /* they were widened */
    const struct wn__gemm_rows x = {patches, 1, cells, f->rows, f->n, words.kernel->mr};
    words.pack(&words, &x, packed);
}

static void run_block(struct block *f)
{
    char sums[WN_CONV_SUMS] __attribute__((aligned(64)));
    char patches[WN_CONV_PATCHES] __attribute__((aligned(64)));
    char packed_a[PACKED_A] __attribute__((aligned(64)));
    char packed_b[WN_CONV_PACKED / 2] __attribute__((aligned(64)));
    const struct wn__conv_job *w = f->w;
    const int64_t nr = w->words.gemm.kernel->nr, word = word_of(w);
    const int64_t piece = (word == 8 ? 64 : 128) * w->words.gemm.per;
    f->sums = sums;
    f->a = (const float *)(const void *)packed_a;
    f->ldc = wn_round_up(f->columns, 16);
    f->at = 0;
    do { /* once where there are no pixels, too: the result is then zeros */
        f->n = wn_min(f->pixels - f->at, piece);
        pack_patches(f, patches, (float *)(void *)packed_a);
        for (int64_t column = f->column0, n; column < f->column0 + f->columns; column += n) {
            n = wn_min(wn_min(f->column0 + f->columns - column, wn__gemm_in_panel(column, nr)), nr);
            run_micropanel(f, column, n, (float *)(void *)packed_b);
        }
        f->at += f->n;
    } while (f->at < f->pixels);
}

static void run_tasks(int64_t begin, int64_t end, void *ctx)
{
    const struct wn__conv_job *w = ctx;
    for (int64_t task = begin; task < end; task++) {
        struct block f = {.w = w, .pixels = w->images * w->axis[0].pixels * w->axis[1].pixels};
        f.column0 = task % w->column_parts * w->column_block;
        f.row0 = task / w->column_parts % w->row_parts * w->row_block;
        f.group = task / w->column_parts / w->row_parts;
        f.rows = wn_min(w->steps - f.row0, w->row_block);
        f.columns = wn_min(w->columns - f.column0, w->column_block);
        if (f.rows > 0 && f.columns > 0) run_block(&f);
    }
}

/* Divides dw into blocks whose sums fit; where they are few, as many as threads share evenly. */
static void partition(struct wn__conv_job *w)
{
    const int64_t mr = w->words.gemm.kernel->mr, threads = wn_cpu_threads();
    const int64_t widest = WN_CONV_SUMS / word_of(w) / ROWS / WN_PANEL * WN_PANEL;
    w->column_parts = (w->columns + widest - 1) / widest;
    w->column_block = wn_round_up((w->columns + w->column_parts - 1) / w->column_parts, WN_PANEL);
    w->column_parts = (w->columns + w->column_block - 1) / w->column_block;
    const int64_t others = w->column_parts * w->groups;
    int64_t parts = (w->steps + ROWS - 1) / ROWS;
    while (parts * others % threads != 0 && parts * others < 8 * threads && parts * mr < w->steps) parts++;
    w->row_block = wn_min(wn_round_up((w->steps + parts - 1) / parts, mr), ROWS);
    w->row_parts = (w->steps + w->row_block - 1) / w->row_block;
}

void wn__conv_gradient(struct wn__conv_job *w)
{
    partition(w);
    const int64_t tasks = w->row_parts * w->column_parts * w->groups;
    const int64_t pixels = w->images * w->axis[0].pixels * w->axis[1].pixels;
    const int64_t work = w->row_block * w->column_block * (pixels + 1);
    wn__parallel_tasks(tasks, SMALL / work + 1, run_tasks, w);
}
