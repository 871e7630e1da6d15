/* Blocks of patches: copies what pixels of a result read, k by k, zeros outside of the image.
 *
 * Steps of a tap are channels, which are contiguous in the image; with a dilation of 1 and one group, all taps of a row
 * are. Such a run is copied at once for each pixel, cut where the image ends. */
#include <string.h>
#include "conv.h"

void wn__conv_pixels(const struct wn__conv_job *w, int64_t group, int64_t begin, int64_t n, struct wn__conv_pixel *to)
{
    const struct wn__conv_axis *rows = &w->axis[0], *columns = &w->axis[1];
    const int64_t size = w->words.gemm.size, bytes = rows->size * columns->size * w->channels * size;
    int64_t v = begin % columns->pixels, u = begin / columns->pixels % rows->pixels;
    int64_t image = begin / columns->pixels / rows->pixels;
    for (int64_t i = 0; i < n; i++) {
        const int64_t out_u = u * rows->out_step + rows->out_first, out_v = v * columns->out_step + columns->out_first;
        to[i] = (struct wn__conv_pixel){w->image + image * bytes + group * w->depth * size,
                                        {u * rows->step + rows->first, v * columns->step + columns->first},
                                        (image * rows->out_size + out_u) * columns->out_size + out_v};
        if (++v < columns->pixels) continue;
        v = 0;
        if (++u < rows->pixels) continue;
        u = 0;
        image++;
    }
}

/* A piece of a run: elements [at, at + n) of the run that begins at tap (y, x). */
struct piece {
    int64_t y, x, at, n;
};

/* Copies `bytes` bytes, lines at a time; the last line overlaps the one before. No call: most runs are short. */
INLINE void copy_bytes(const char *from, int64_t bytes, char *to)
{
    if (bytes >= 64) {
        for (int64_t i = 0; i + 64 <= bytes; i += 64) memcpy(to + i, from + i, 64);
        memcpy(to + bytes - 64, from + bytes - 64, 64);
    } else if (bytes >= 16) {
        for (int64_t i = 0; i + 16 <= bytes; i += 16) memcpy(to + i, from + i, 16);
        memcpy(to + bytes - 16, from + bytes - 16, 16);
    } else {
        for (int64_t i = 0; i < bytes; i += 2) memcpy(to + i, from + i, 2);
    }
}

/* The bytes of an element, and of a cell, into which it is copied or, where they differ, widened; constants where a
 * copy is made. */
struct sizes {
    int64_t element, cell;
};

/* Copies n elements. */
INLINE void copy_elements(const struct sizes s, const char *from, int64_t n, char *to)
{
    if (s.element != s.cell) wn__gemm_widen((float *)(void *)to, (const uint16_t *)(const void *)from, n);
    else copy_bytes(from, n * s.element, to);
}

/* Copies a piece of a run for all pixels of a block. */
INLINE void copy_piece(const struct wn__conv_job *w, const struct sizes s, const struct wn__conv_patches *b,
                       struct piece p)
{
    const int64_t size = s.element, cell = s.cell, row = w->axis[1].size * w->channels;
    char *to = b->to;
    for (int64_t i = 0; i < b->n; i++, to += b->ld * cell) {
        const int64_t y = b->pixels[i].at[0] + p.y, from = (b->pixels[i].at[1] + p.x) * w->channels + p.at;
        const char *at = b->pixels[i].image + (y * row + from) * size;
        if (y < 0 || y >= w->axis[0].size) {
            memset(to, 0, (size_t)(p.n * cell));
        } else if (from >= 0 && from + p.n <= row) {
            copy_elements(s, at, p.n, to);
        } else {
            const int64_t begin = wn_min(wn_max(-from, 0), p.n), end = wn_max(wn_min(row - from, p.n), begin);
            memset(to, 0, (size_t)(p.n * cell));
            copy_elements(s, at + begin * size, end - begin, to + begin * cell);
        }
    }
}

#define COPY(NAME, ELEMENT, CELL)                                                                                      \
    static void NAME(const struct wn__conv_job *w, const struct wn__conv_patches *b, struct piece p)                   \
    {                                                                                                                  \
        copy_piece(w, (struct sizes){ELEMENT, CELL}, b, p);                                                            \
    }
COPY(copy_2, 2, 2)
COPY(copy_4, 4, 4)
COPY(copy_8, 8, 8)
COPY(widen, 2, 4)

void wn__conv_patches(const struct wn__conv_job *w, const struct wn__conv_patches *p, int64_t k, int64_t kc)
{
    const int64_t size = w->words.gemm.size, cell = w->words.cell, end = wn_min(k + kc, w->steps);
    void (*copy)(const struct wn__conv_job *, const struct wn__conv_patches *, struct piece) = size != cell ? widen
                                                                                               : size == 2  ? copy_2
                                                                                               : size == 4  ? copy_4
                                                                                                            : copy_8;
    struct wn__conv_patches b = *p;
    struct piece piece;
    for (int64_t at = k; at < end; at += piece.n, b.to += piece.n * cell) {
        const int64_t run = at / w->run;
        piece.y = run / w->runs * w->axis[0].each;
        piece.x = run % w->runs * w->axis[1].each;
        piece.at = at % w->run;
        piece.n = wn_min(w->run - piece.at, end - at);
        copy(w, &b, piece);
    }
    const int64_t rest = (k + kc - wn_max(end, k)) * cell;
    for (int64_t i = 0; i < p->n && rest > 0; i++, b.to += p->ld * cell) memset(b.to, 0, (size_t)rest);
}

/* ---- prefetches ---------------------------------------------------------------------------------- */

struct wn__conv_ahead wn__conv_ahead(const struct wn__conv_job *w, int64_t group, int64_t begin, int64_t n)
{
    const struct wn__conv_axis *rows = &w->axis[0], *columns = &w->axis[1];
    const int64_t size = w->words.gemm.size, pixels = w->images * rows->pixels * columns->pixels;
    if (begin >= pixels) return (struct wn__conv_ahead){0};
    struct wn__conv_pixel p;
    wn__conv_pixels(w, group, begin, 1, &p);
    const int64_t last = rows->each > 0 ? (rows->taps - 1) * rows->each : 0;
    const int64_t y = wn_max(wn_min(p.at[0] + last, rows->size - 1), 0), x = wn_max(p.at[1], 0);
    struct wn__conv_ahead a = {.rows = wn_min(n, pixels - begin), .images = wn_min(rows->step, rows->taps)};
    a.above = -columns->size * w->channels * size;
    a.stride = columns->step * w->channels * size;
    a.width = w->groups == 1 ? wn_min(columns->step, columns->taps) * w->channels * size : w->depth * size;
    a.from = p.image + (y * columns->size + x) * w->channels * size;
    return a;
}

int32_t wn__conv_prefetch(const struct wn__conv_job *w, struct wn__conv_ahead *a, struct wn__gemm_microtile *t)
{
    const int64_t lines = w->words.gemm.per == 1 ? WN_GEMM_FAR_STEPS : WN_GEMM_FAR_STEPS_BF16, at_once = t->kc / lines;
    const int64_t parts = wn_max((a->width + lines * 64 - 1) / (lines * 64), 1);
    if (at_once == 0) return 0;
    const int64_t each = (a->rows + at_once - 1) / at_once * parts; /* parts of all rows */
    if (a->given >= each * a->images) return 0;
    const int64_t at = a->given % each;
    const int64_t line = a->given / each * a->above + at / parts * at_once * a->stride + at % parts * lines * 64;
    t->aux = (struct wn__gemm_auxinfo){.line = a->from + line, .step = 64, .row = a->stride};
    a->given++;
    return 1;
}
