/* Iterates over dense operands together under broadcasting. A broadcast iterator is a list of dims with a step for each
 * operand; merging makes the innermost row as long as it can be, so a kernel needs only row loops. */
#include "cpu.h"

void wn__broadcast_merge(struct wn__broadcast *w)
{
    int32_t n = 0;
    w->numel = 1;
    for (int32_t i = 0; i < w->ndim; i++) w->numel *= w->dim[i];
    for (int32_t i = 0; i < w->ndim; i++) {
        if (w->dim[i] == 1) continue;
        int32_t joins = n > 0;
        for (int32_t k = 0; k < w->n_operands && joins; k++) joins = w->step[k][n - 1] == w->step[k][i] * w->dim[i];
        if (joins) n--;
        w->dim[n] = joins ? w->dim[n] * w->dim[i] : w->dim[i];
        for (int32_t k = 0; k < w->n_operands; k++) w->step[k][n] = w->step[k][i];
        n++;
    }
    if (n == 0) {
        w->dim[0] = 1;
        for (int32_t k = 0; k < w->n_operands; k++) w->step[k][0] = 1;
        n = 1;
    }
    w->ndim = n;
}

void wn__broadcast_make(struct wn__broadcast *w, const struct wn_type *out, int32_t n, const struct wn_type *const *in)
{
    w->n_operands = n;
    w->ndim = out->ndim;
    for (int32_t i = 0; i < out->ndim; i++) w->dim[i] = out->dim[i];
    for (int32_t k = 0; k < n; k++) {
        int64_t step = 1;
        for (int32_t i = out->ndim - 1; i >= 0; i--) {
            int32_t j = i - (out->ndim - in[k]->ndim);
            int64_t dim = j >= 0 ? in[k]->dim[j] : 1;
            w->step[k][i] = dim == 1 ? 0 : step;
            step *= dim;
        }
    }
    wn__broadcast_merge(w);
}

void wn__broadcast_range(const struct wn__broadcast *w, int64_t begin, int64_t end, wn__broadcast_row row, void *ctx)
{
    int32_t last = w->ndim - 1;
    int64_t index[WN_MAX_DIMS], offset[WN_WALK_MAX] = {0};
    if (begin >= end) return;
    int64_t rest = begin;
    for (int32_t i = last; i >= 0; i--) {
        index[i] = rest % w->dim[i];
        rest /= w->dim[i];
        for (int32_t k = 0; k < w->n_operands; k++) offset[k] += index[i] * w->step[k][i];
    }
    while (begin < end) {
        int64_t n = w->dim[last] - index[last];
        if (n > end - begin) n = end - begin;
        row(ctx, begin, n, offset);
        begin += n;
        index[last] += n;
        for (int32_t k = 0; k < w->n_operands; k++) offset[k] += n * w->step[k][last];
        for (int32_t i = last; i > 0 && index[i] == w->dim[i]; i--) {
            index[i] = 0;
            index[i - 1]++;
            for (int32_t k = 0; k < w->n_operands; k++) offset[k] += w->step[k][i - 1] - w->dim[i] * w->step[k][i];
        }
    }
}

struct wn__axis wn__axis_of(const struct wn_type *t, int64_t dim)
{
    struct wn__axis a = {1, 1, 1};
    for (int32_t i = 0; i < t->ndim; i++) {
        if (i < dim) a.outer *= t->dim[i];
        else if (i == dim) a.n = t->dim[i];
        else a.inner *= t->dim[i];
    }
    return a;
}

int64_t wn__columns_together(int64_t width, int64_t outer, int64_t most)
{
    int64_t parts = (width + most - 1) / most, threads = wn_cpu_threads();
    if (outer < threads && parts < threads) parts = threads;
    int64_t n = ((width + parts - 1) / (parts > 0 ? parts : 1) + 15) / 16 * 16;
    return n < 64 ? 64 : n > most ? most : n;
}
