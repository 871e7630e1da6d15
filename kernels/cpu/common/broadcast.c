/* Calls row loops for the elements of a broadcast iterator (kernels/broadcast.h), and divides columns among threads. */
#include "cpu.h"

void wn__broadcast_range(const struct wn__broadcast *w, int64_t begin, int64_t end, wn__broadcast_row row, void *ctx)
{
    int32_t last = w->ndim - 1;
    int64_t index[WN_MAX_DIMS], offset[WN_BROADCAST_MAX] = {0};
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

int64_t wn__columns_together(int64_t width, int64_t outer, int64_t most)
{
    int64_t parts = (width + most - 1) / most, threads = wn_cpu_threads();
    if (outer < threads && parts < threads) parts = threads;
    int64_t n = ((width + parts - 1) / (parts > 0 ? parts : 1) + 15) / 16 * 16;
    return n < 64 ? 64 : n > most ? most : n;
}
