/* Interpolation along one dim of an image: which elements of the source make element `at` of the result, and with which
 * weights. Rules (runtime/ops/resize.c) and kernels share it; the formulas are those of PyTorch's interpolate. */
#ifndef WN_BASE_RESAMPLE_H
#define WN_BASE_RESAMPLE_H
#include "number.h"

enum { WN_RESAMPLE_OUT = 0, WN_RESAMPLE_MODE = 1, WN_RESAMPLE_ALIGN = 2, WN_RESAMPLE_IN = 3 }; /* places in attrs.i */
enum { WN_RESAMPLE_NEAREST, WN_RESAMPLE_BILINEAR, WN_RESAMPLE_MODES };

/* Element at = (1 - weight) source[low] + weight source[high]. */
struct wn__resample {
    int64_t low, high;
    double weight;
};

/* in, out: elements of the source and of the result, each 1 or more; scale: elements of the source for one of the
 * result, 0: in / out; align: the first and the last element stay (bilinear). */
WN_FN struct wn__resample wn__resample_at(int64_t at, int64_t in, int64_t out, double scale, int32_t mode,
                                          int32_t align)
{
    struct wn__resample r = {0, 0, 0};
    if (scale == 0) scale = (double)in / (double)out;
    if (mode == WN_RESAMPLE_NEAREST) {
        r.low = r.high = wn_min((int64_t)((double)at * scale), in - 1);
        return r;
    }
    if (align) scale = out > 1 ? (double)(in - 1) / (double)(out - 1) : 0;
    double place = align ? (double)at * scale : ((double)at + 0.5) * scale - 0.5;
    if (place < 0) place = 0;
    r.low = wn_min((int64_t)place, in - 1);
    r.high = wn_min(r.low + 1, in - 1);
    r.weight = place - (double)r.low;
    if (r.weight > 1) r.weight = 1;
    return r;
}
#endif
