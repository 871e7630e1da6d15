/* Micro-panels of a convolution's weight: rows are steps k = (tap row, tap column, channel), columns are outputs, or,
 * for conv2d_dx, inputs.
 *
 *     in panels, conv2d      a micro-panel is a part of a panel: read in place, or packed where elements are not words
 *     in panels, conv2d_dx   steps run along the rows of a panel: transposed, a tap and a panel at a time
 *     plain, or of a group   gathered element by element
 *
 * Nothing here computes. */
#include <string.h>
#include "conv.h"

int64_t wn__conv_weight_at(const struct wn_type *t, int64_t o, int64_t i, int64_t tap)
{
    const int64_t taps = t->dim[2] * t->dim[3], columns = taps * t->dim[1];
    if (t->layout == WN_PLAIN) return o * columns + i * taps + tap;
    int64_t width, at = wn__panel_row(t->dim[0], columns, o, &width);
    return at + (tap * t->dim[1] + i) * width;
}

int64_t wn__conv_kernel_tap(const struct wn__conv_job *w, int64_t tap)
{
    const struct wn__conv_axis *rows = &w->axis[0], *columns = &w->axis[1];
    const int64_t r = rows->tap_first + tap / columns->taps * rows->tap_step;
    return r * w->weight->dim[3] + columns->tap_first + tap % columns->taps * columns->tap_step;
}

#define GATHER_STEPS 64 /* of a piece that is gathered before it is packed */

/* Copies n elements of `size` bytes that are `stride` elements apart. */
static void copy_strided(const char *from, int64_t stride, int64_t n, int64_t size, char *to)
{
    if (size == 4)
        for (int64_t j = 0; j < n; j++) memcpy(to + j * 4, from + j * stride * 4, 4);
    else if (size == 2)
        for (int64_t j = 0; j < n; j++) memcpy(to + j * 2, from + j * stride * 2, 2);
    else
        for (int64_t j = 0; j < n; j++) memcpy(to + j * 8, from + j * stride * 8, 8);
}

/* Copies the columns of m at one step, tap `tap` of the kernel and channel `channel` of the group: to (m->n). */
static void gather_step(const struct wn__conv_job *w, const struct wn__conv_micropanel *m, int64_t tap, int64_t channel,
                        char *to)
{
    const struct wn_type *t = w->weight;
    const int64_t size = w->words.gemm.size, taps = t->dim[2] * t->dim[3], elements = taps * t->dim[1];
    for (int64_t j = 0, n, width; j < m->n; j += n, to += n * size) {
        const int64_t o = m->group * (w->is_turned ? w->depth : w->columns) + (w->is_turned ? channel : m->column + j);
        const int64_t at = wn__conv_weight_at(t, o, w->is_turned ? m->column : channel, tap);
        wn__panel_row(t->dim[0], elements, o, &width);
        n = w->is_turned || t->layout == WN_PLAIN ? m->n : wn__gemm_in_panel(o, m->n - j);
        const int64_t in_panels = w->is_turned ? width : 1, plain = w->is_turned ? taps : elements;
        copy_strided(w->w + at * size, t->layout == WN_PLAIN ? plain : in_panels, n, size, to);
    }
}

/* Packs a micro-panel of any weight: to (kc, width) words. */
static void gather(const struct wn__conv_job *w, const struct wn__conv_micropanel *m, int64_t width, char *to)
{
    char rows[GATHER_STEPS * WN_PANEL * 8] __attribute__((aligned(64)));
    const struct wn__gemm_words *words = &w->words.gemm;
    const int64_t end = wn_min(m->k + m->kc, w->steps);
    int64_t tap = m->k / w->depth, channel = m->k % w->depth;
    for (int64_t k = m->k, n; k < end; k += n, to += n / words->per * width * w->words.cell * words->per) {
        n = wn_min(end - k, GATHER_STEPS);
        for (int64_t s = 0; s < n; s++, channel++) {
            if (channel == w->depth) tap++, channel = 0;
            gather_step(w, m, wn__conv_kernel_tap(w, tap), channel, rows + s * WN_PANEL * words->size);
        }
        const struct wn__gemm_rows x = {.x = rows, .xi = 1, .xk = WN_PANEL, .rows = m->n, .k = n, .width = width};
        words->pack(words, &x, (float *)(void *)to);
    }
}

/* Packs a micro-panel of a weight in panels whose columns are inputs. */
static void pack_turned(const struct wn__conv_job *w, const struct wn__conv_micropanel *m, int64_t width, char *to)
{
    const struct wn__gemm_words *words = &w->words.gemm;
    const int64_t end = wn_min(m->k + m->kc, w->steps), word = w->words.cell * words->per;
    for (int64_t k = m->k, n; k < end; k += n, to += n / words->per * width * word) {
        const int64_t o = k % w->depth, tap = wn__conv_kernel_tap(w, k / w->depth);
        n = wn_min(wn__gemm_in_panel(o, w->depth - o), end - k);
        int64_t panel;
        wn__panel_row(w->weight->dim[0], 1, o, &panel);
        const char *from = w->w + wn__conv_weight_at(w->weight, o, m->column, tap) * words->size;
        const struct wn__gemm_rows x = {.x = from, .xi = panel, .xk = 1, .rows = m->n, .k = n, .width = width};
        words->pack(words, &x, (float *)(void *)to);
    }
}

/* Copies a micro-panel that is in two panels: rows of `width` words. */
static void copy_across(const struct wn__conv_job *w, const struct wn__conv_micropanel *m, int64_t width, char *to)
{
    const int64_t size = w->words.gemm.size;
    for (int64_t j = 0, n; j < m->n; j += n) {
        n = wn__gemm_in_panel(m->column + j, m->n - j);
        int64_t ld, at = wn__panel_row(w->weight->dim[0], w->steps, m->column + j, &ld);
        const char *from = w->w + (at + m->k * ld) * size;
        for (int64_t k = 0; k < m->kc; k++) /* n is a multiple of WN_PANEL_UNIT: whole lines */
            for (int64_t i = 0; i < n * size; i += 64)
                memcpy(to + (k * width + j) * size + i, from + k * ld * size + i, 64);
    }
}

/* Returns a micro-panel of conv2d whose weight is in panels. */
static const float *weight_in_panels(const struct wn__conv_job *w, const struct wn__conv_micropanel *m, float *packed,
                                     int64_t *ld)
{
    const struct wn__gemm_words *words = &w->words.gemm;
    int64_t width, at = wn__panel_row(w->weight->dim[0], w->steps, m->column, &width);
    const char *from = w->w + (at + m->k * width) * words->size;
    if (!words->is_panel_packed) {
        const struct wn__gemm_rows x = {
            .x = from, .xi = 1, .xk = width, .rows = m->n, .k = wn_min(m->kc, w->steps - m->k), .width = *ld};
        words->pack(words, &x, packed);
    } else if (wn__gemm_in_panel(m->column, m->n) < m->n) {
        copy_across(w, m, *ld, (char *)packed);
    } else {
        *ld = width;
        return (const float *)(const void *)from;
    }
    return packed;
}

const float *wn__conv_weight(const struct wn__conv_job *w, const struct wn__conv_micropanel *m, float *packed,
                             int64_t *ld)
{
    *ld = wn_round_up(m->n, 16);
    if (w->weight->layout == WN_PLAIN || w->groups > 1) gather(w, m, *ld, (char *)packed);
    else if (w->is_turned) pack_turned(w, m, *ld, (char *)packed);
    else return weight_in_panels(w, m, packed, ld);
    return packed;
}

const char *wn__conv_weight_share(const struct wn__conv_job *w, const struct wn__conv_micropanel *m, int64_t i)
{
    const int64_t k = wn_min(m->k + i * WN_PANEL * w->words.gemm.per, w->steps - 1), size = w->words.gemm.size;
    if (w->weight->layout == WN_PLAIN || w->groups > 1 || m->column >= w->columns || w->steps == 0) return NULL;
    if (w->is_turned)
        return w->w +
               wn__conv_weight_at(w->weight, k % w->depth, m->column, wn__conv_kernel_tap(w, k / w->depth)) * size;
    int64_t width, at = wn__panel_row(w->weight->dim[0], w->steps, m->column, &width);
    return w->w + (at + k * width) * size;
}
