/* The product whose result is the gradient of a weight, conv2d_dw: rows are steps (kh, kw, c) of a patch, columns are
 * outputs, and k runs over the pixels of dy.
 *
 *     for each block of dw (rows x columns, sums on the stack)
 *         for each k-block of pixels: pack micro-panels of dy, all columns of the block
 *             for each part of the rows, at most ROWS: copy that part of the patches of all pixels
 *                 for each micro-panel of dy
 *                     for each micro-tile (mr rows): micro-kernel
 *
 * Pixels are added in ascending order (n, p, q); blocks divide the result alone. The patches of a k-block are read once
 * for all taps, from memory that the caches hold then. */
#include <stddef.h>
#include <string.h>
#include "conv.h"

#define ROWS 128         /* rows of patches that are copied at once */
#define LD (ROWS + 16)   /* an odd number of lines, so that rows of a micro-tile are in all sets of the cache */
#define COLUMNS 192      /* of a block */
#define SUMS (144 << 10) /* bytes of the sums of a block */
#define KC 128           /* pixels of a k-block; of words of 8 bytes KC_HALF */
#define KC_HALF (KC / 2)

struct block {
    const struct wn__conv_job *w;
    int64_t group, row0, rows, column0, columns;
    int64_t pixels, at, n, kc; /* pixels of k in all; those of the k-block; its words */
    int64_t width;             /* columns of a micro-panel */
    char *sums;                /* (rows, ldc) words */
    int64_t ldc;
    const struct wn__conv_pixel *pixel;
    char *patches; /* (n, LD) cells */
    float *a;      /* micro-panels of the patches where words are pairs, else NULL: they are read where they are */
    float *dy;     /* micro-panels, each (kc, width) */
    struct wn__conv_ahead ahead[2]; /* of the next k-block: dy, the image */
};

/* ---- the end of a block ------------------------------------------------------------------------ */

/* Writes n sums, of outputs that are evenly apart in dw or not, to dw. */
static void store_row(const struct block *f, int64_t row, int64_t column, int64_t n, const char *sums)
{
    const struct wn__conv_job *w = f->w;
    const int64_t size = w->words.gemm.size, tap = row / w->depth, channel = row % w->depth;
    const int64_t o = f->group * w->columns + column;
    const int32_t in_panels = w->weight->layout != WN_PLAIN;
    for (int64_t j = 0, part; j < n; j += part, sums += part * wn__conv_word(w)) {
        char line[WN_PANEL * sizeof(double)];
        char *to = w->out + wn__conv_weight_at(w->weight, o + j, channel, tap) * size;
        part = wn__gemm_in_panel(in_panels ? o + j : 0, n - j);
        w->words.gemm.store((const float *)(const void *)sums, NULL, part, in_panels ? (void *)to : line);
        for (int64_t i = 0; i < part && !in_panels; i++)
            memcpy(w->out + wn__conv_weight_at(w->weight, o + j + i, channel, tap) * size, line + i * size,
                   (size_t)size);
    }
}

static void store_block(const struct block *f)
{
    const int64_t word = wn__conv_word(f->w);
    for (int64_t i = 0; i < f->rows; i++)
        store_row(f, f->row0 + i, f->column0, f->columns, f->sums + i * f->ldc * word);
}

/* ---- a k-block --------------------------------------------------------------------------------- */

/* Packs the micro-panels of dy. */
static void pack_dy(const struct block *f)
{
    const struct wn__conv_job *w = f->w;
    const struct wn__gemm_words *words = &w->words.gemm;
    const int64_t outputs = w->groups * w->columns;
    const char *dy = w->w + (f->at * outputs + f->group * w->columns + f->column0) * words->size;
    char *to = (char *)f->dy;
    for (int64_t j = 0; j < f->columns; j += f->width, to += f->kc * f->width * wn__conv_word(w)) {
        const struct wn__gemm_rows x = {.x = dy + j * words->size,
                                        .xi = 1,
                                        .xk = outputs,
                                        .rows = wn_min(f->columns - j, f->width),
                                        .k = f->n,
                                        .width = f->width};
        words->pack(words, &x, (float *)(void *)to);
    }
}

/* Copies rows [row, row + n) of a block of patches, and packs them where words are pairs. */
static void take_patches(const struct block *f, int64_t row, int64_t n)
{
    const struct wn__conv_job *w = f->w;
    const struct wn__conv_patches b = {f->pixel, f->n, LD, f->patches};
    wn__conv_patches(w, &b, f->row0 + row, n);
    if (f->a == NULL) return;
    const struct wn__gemm_rows x = {
        .x = f->patches, .xi = 1, .xk = LD, .rows = n, .k = f->n, .width = w->words.gemm.kernel->mr};
    w->words.gemm.pack(&w->words.gemm, &x, f->a);
}

/* Requests what a micro-tile prefetches: some of the next k-block, or nothing new. */
static void prefetch_next(struct block *f, struct wn__gemm_microtile *t)
{
    if (wn__conv_prefetch(f->w, &f->ahead[0], t) || wn__conv_prefetch(f->w, &f->ahead[1], t)) return;
    t->aux = (struct wn__gemm_auxinfo){.line = (const char *)t->a};
}

/* Sets what the k-block prefetches. */
static void set_prefetch(struct block *f)
{
    const struct wn__conv_job *w = f->w;
    const int64_t size = w->words.gemm.size, outputs = w->groups * w->columns, at = f->at + f->n;
    f->ahead[0] = (struct wn__conv_ahead){.from = w->w + (at * outputs + f->group * w->columns + f->column0) * size,
                                          .images = 1,
                                          .rows = wn_min(f->pixels - at, f->n),
                                          .stride = outputs * size,
                                          .width = f->columns * size};
    f->ahead[1] = wn__conv_ahead(w, f->group, at, f->n);
}

/* Multiplies rows [row, row + n) of a block by all columns. */
static void run_rows(struct block *f, int64_t row, int64_t n)
{
    const struct wn__gemm_kernel *kernel = f->w->words.gemm.kernel;
    const int64_t mr = kernel->mr, word = wn__conv_word(f->w), floats = word / (int64_t)sizeof(float);
    const int64_t group = f->a ? mr * f->kc : mr;
    const float *a = f->a ? f->a : (const float *)(const void *)f->patches;
    struct wn__gemm_microtile t = {.kc = f->kc, .ai = 1, .ak = f->a ? mr : LD, .bk = f->width, .ldc = f->ldc};
    t.first = f->at == 0;
    t.b = f->dy;
    for (int64_t j = 0; j < f->columns; j += f->width, t.b += f->kc * f->width * floats) {
        t.n = wn_min(f->columns - j, f->width);
        for (int64_t i = 0; i < n; i += mr) {
            t.a = a + i / mr * group * floats;
            t.c = (float *)(void *)(f->sums + ((row + i) * f->ldc + j) * word);
            t.m = wn_min(n - i, mr);
            prefetch_next(f, &t);
            kernel->microkernel(&t);
        }
    }
}

/* ---- blocks ------------------------------------------------------------------------------------ */

static void run_block(const struct wn__conv_job *w, const struct wn__conv_block *b)
{
    char sums[SUMS] __attribute__((aligned(64)));
    char patches[KC * LD * sizeof(float)] __attribute__((aligned(64)));
    char dy[KC * COLUMNS * sizeof(float)] __attribute__((aligned(64)));
    struct wn__conv_pixel pixel[KC];
    struct block block = {.w = w, .group = b->group, .row0 = b->row0, .rows = b->rows}, *f = &block;
    f->column0 = b->column0;
    f->columns = b->columns;
    f->pixels = w->images * w->axis[0].pixels * w->axis[1].pixels;
    const int64_t per = w->words.gemm.per, panels = (f->columns + WN_PANEL - 1) / WN_PANEL;
    const int64_t piece = wn__conv_word(w) == 8 ? KC_HALF : KC;
    f->width = w->words.gemm.kernel->nr;
    if (w->words.gemm.kernel->mr == WN_GEMM_MR_MAX) /* as equal as possible, see images.c */
        f->width = wn_min(wn_round_up((f->columns + panels - 1) / panels, 16), f->width);
    f->ldc = wn_round_up(f->columns, 16);
    f->sums = sums;
    f->pixel = pixel;
    f->patches = patches;
    f->dy = (float *)(void *)dy;
    if (per > 1) f->a = (float *)(void *)(patches + KC * LD * sizeof(uint16_t));
    f->at = 0;
    do { /* once where there are no pixels, too: the result is then zeros */
        f->n = wn_min(f->pixels - f->at, piece);
        f->kc = (f->n + per - 1) / per;
        wn__conv_pixels(w, f->group, f->at, f->n, pixel);
        pack_dy(f);
        set_prefetch(f);
        for (int64_t row = 0; row < f->rows; row += ROWS) {
            take_patches(f, row, wn_min(f->rows - row, ROWS));
            run_rows(f, row, wn_min(f->rows - row, ROWS));
        }
        f->at += f->n;
    } while (f->at < f->pixels);
    store_block(f);
}

/* The sums of a block fit SUMS. */
void wn__conv_gradient(struct wn__conv_job *w)
{
    const int64_t word = wn__conv_word(w), mr = w->words.gemm.kernel->mr;
    w->run_block = run_block;
    wn__conv_split(w, word == 8 ? COLUMNS / 2 : COLUMNS);
    const int64_t most = SUMS / word / wn_round_up(wn_min(w->columns, w->column_block), 16) / mr * mr;
    wn__conv_blocks(w, w->steps, most, w->images * w->axis[0].pixels * w->axis[1].pixels);
}
