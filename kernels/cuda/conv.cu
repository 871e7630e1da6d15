/* CONV2D, CONV2D_DX, CONV2D_DW, CONV2D_MAP over images with channels last (runtime/ops/conv.c and fused_image.c have
 * the formulas, conv.h the cuts, conv_store.cuh what follows a sum).
 *
 * Every output of CONV2D is one sum of fused multiply-adds over (kh, kw, channel) in ascending order, and of
 * CONV2D_DX over (kh, kw, output); places outside of the image are zeros. Then the bias is added, and the result
 * rounded once. CONV2D_DW is a sum over pixels for each part of them (conv.h), and the parts are added in order. f64
 * rounds products and sums apart, as matrix products do; bf16 is summed in f32, by tensor cores where they take the
 * shape (conv_mma.cu), in steps of 16 terms. cuDNN computes the sums where it was asked for (cudnn.h).
 * conv_gemm.cu has the tiles; this file packs weights and computes products with few columns, an output a thread. */
#include "conv_store.cuh"
extern "C" {
#include "cudnn.h"
}

/* ---- packing -------------------------------------------------------------------------------------------------- */

/* Packs a weight to rows of terms: of CONV2D (O, kh, kw, C / groups), of CONV2D_DX (C, kh, kw, O / groups); of a
 * depthwise one (kh, kw, O). Stores are in order. */
template <class T> static __global__ void pack_weight(struct wn__conv c, const T *weight, T *packed, int64_t n)
{
    const int64_t at = wn__thread();
    if (at >= n) return;
    const int64_t row = wn__quotient(at, c.terms), term = at - row * c.terms;
    const bool is_dx = c.op == WN_OP_CONV2D_DX;
    if (c.is_by_places) {
        const int64_t of = wn__quotient(at, c.w.o);
        packed[at] = weight[(at - of * c.w.o) * c.places + of];
        return;
    }
    const int64_t kc = is_dx ? c.co : c.ci, place = wn__quotient(term, kc), channel = term - place * kc;
    const int64_t group = is_dx ? wn__quotient(row, c.ci) : 0;
    packed[at] = is_dx ? weight[wn__conv_weight_at(c, group * c.co + channel, row - group * c.ci, place)]
                       : weight[wn__conv_weight_at(c, row, channel, place)];
}

/* ---- few columns ---------------------------------------------------------------------------------------------- */

/* Computes an element of y or dx. */
template <class T> static __global__ void gather_directly(struct wn__conv_job j, int64_t n)
{
    const int64_t at = wn__thread();
    if (at >= n) return;
    typename wn__number<T>::type sum = 0;
    const bool is_dx = j.c.op == WN_OP_CONV2D_DX;
    const struct wn__pixel p = wn__pixel_at(j.target, at);
    const int64_t group = wn__quotient(p.channel, j.c.columns), column = p.channel - group * j.c.columns;
    struct wn__conv_taps taps[2];
    int first[2];
    for (int k = 0; k < 2; k++) {
        const int by = is_dx ? (int)j.c.w.stride[k] : 1;
        taps[k] = wn__conv_taps_of(j, k, (int)p.at[k] % by);
        first[k] = (int)p.at[k] / by * taps[k].stride + taps[k].origin;
    }
    for (int r = 0; r < taps[0].count; r++)
        for (int s = 0; s < taps[1].count; s++) {
            const int row = first[0] + r * taps[0].apart, left = first[1] + s * taps[1].apart;
            if (row < 0 || row >= taps[0].size || left < 0 || left >= taps[1].size) continue;
            const int64_t place = (int64_t)(taps[0].first + r * taps[0].step) * j.c.w.kernel[1] + taps[1].first +
                                  (int64_t)s * taps[1].step;
            const T *x = (const T *)j.x + wn__element_at(j.source, p.n, row, left, group * j.kc);
            for (int64_t c = 0; c < j.kc; c++) {
                const int64_t o = group * j.c.co + (is_dx ? c : column), i = is_dx ? column : c;
                const int64_t from = j.c.is_by_places ? place * j.c.w.o + o : wn__conv_weight_at(j.c, o, i, place);
                const T weight = ((const T *)j.weight)[from];
                sum = wn__chain_add(wn__load(x[c]), wn__load(weight), sum);
            }
        }
    typename wn__number<T>::type one[1] = {sum};
    wn__conv_put<T, 1, true>(j, at, p.channel, one);
}

/* Computes an element of dw, or the sum of a part of the pixels; inputs fastest, then outputs, places, parts. */
template <class T> static __global__ void weight_directly(struct wn__conv_job j, int64_t n)
{
    const int64_t at = wn__thread();
    if (at >= n * j.c.parts) return;
    typename wn__number<T>::type sum = 0;
    const int64_t part = at / n, in_part = at - part * n, line = wn__quotient(in_part, j.c.ci),
                  i = in_part - line * j.c.ci;
    const int64_t place = wn__quotient(line, j.c.w.o), o = line - place * j.c.w.o;
    const int64_t channel = wn__quotient(o, j.c.co) * j.c.ci + i;
    const struct wn__conv_taps taps[2] = {wn__conv_taps_of(j, 0, 0), wn__conv_taps_of(j, 1, 0)};
    const int r = (int)(place / j.c.w.kernel[1]) * taps[0].apart + taps[0].origin;
    const int s = (int)(place % j.c.w.kernel[1]) * taps[1].apart + taps[1].origin;
    const int64_t end = j.c.terms * (part + 1) / j.c.parts;
    for (int64_t pixel = j.c.terms * part / j.c.parts; pixel < end; pixel++) {
        const struct wn__conv_pixel p = wn__conv_pixel_of(taps, pixel);
        const int row = p.at[0] * taps[0].stride + r, left = p.at[1] * taps[1].stride + s;
        if (row < 0 || row >= taps[0].size || left < 0 || left >= taps[1].size) continue;
        const T x = ((const T *)j.x)[wn__element_at(j.source, p.n, row, left, channel)];
        sum = wn__chain_add(wn__load(x), wn__load(((const T *)j.dy)[pixel * j.c.w.o + o]), sum);
    }
    wn__conv_put_weight<T>(j, part, o, place * j.c.ci + i, sum);
}

/* ---- joining the parts of CONV2D_DW --------------------------------------------------------------------------- */

template <class T> static __global__ void join_weight(struct wn__conv_job j, int64_t n)
{
    typedef typename wn__number<T>::type N;
    const int64_t at = wn__thread();
    if (at >= n) return;
    const N *sums = (const N *)j.sums;
    N sum = sums[at];
    for (int64_t part = 1; part < j.c.parts; part++) sum = sum + sums[part * n + at];
    const int64_t o = wn__quotient(at, j.c.columns);
    j.sums = NULL;
    wn__conv_put_weight<T>(j, 0, o, at - o * j.c.columns, sum);
}

/* ---- starting it ---------------------------------------------------------------------------------------------- */

static int greatest_divisor(int a, int b)
{
    return b == 0 ? a : greatest_divisor(b, a % b);
}

/* Fills in what follows the products of CONV2D_MAP. */
static void map_of(const struct wn_desc *d, const struct wn_buffers *b, struct wn__conv_job *j)
{
    const struct wn__conv_map m = wn__conv_map_get(&d->attrs);
    j->bias = m.conv > 2 ? b->in[2] : NULL;
    for (int32_t k = 0; m.norm && k < 4; k++) j->norm[k] = b->in[m.norm + k];
    j->image = d->n_in > m.image ? b->in[m.image] : NULL;
    j->steps = m.steps.n;
    for (int32_t s = 0; s < m.steps.n; s++) {
        j->step[s] = wn__step_of(m.steps.step[s].op, d->out.dtype, d->attrs.f, NULL);
        for (int32_t k = 0; k < 2; k++) j->operand[s][k] = m.steps.step[s].operand[k];
    }
}

static struct wn__conv_job job_of(const struct wn_desc *d, const struct wn_buffers *b)
{
    struct wn__conv_job j;
    memset(&j, 0, sizeof j);
    j.c = wn__conv_of(d);
    const int32_t is_dx = d->op == WN_OP_CONV2D_DX, is_dw = d->op == WN_OP_CONV2D_DW;
    j.source = wn__images_of(&d->in[is_dw]);
    j.target = wn__images_of(is_dw ? &d->in[0] : &d->out);
    j.kc = (int32_t)(is_dx ? j.c.co : j.c.ci);
    j.x = b->in[is_dw];
    j.dy = is_dw ? b->in[0] : NULL;
    j.weight = is_dw ? NULL : j.c.is_packed || j.c.is_by_places ? b->workspace : b->in[1];
    if (d->op == WN_OP_CONV2D && d->n_in > 2) j.bias = b->in[2];
    if (d->op == WN_OP_CONV2D_MAP) map_of(d, b, &j);
    j.out = b->out;
    j.sums = j.c.parts > 1 ? b->workspace : NULL;
    for (int k = 0; k < 2; k++) {
        const int stride = (int)j.c.w.stride[k];
        j.phases[k] = is_dx ? (int32_t)wn_min(stride, j.c.w.in[k]) : 1;
        j.period[k] = stride / greatest_divisor(stride, (int)j.c.w.dilation[k]);
    }
    return j;
}

template <class T> static int32_t start_weight(const struct wn__conv_job &j, int64_t n, void *stream)
{
    int32_t status = WN_OK;
    if (j.c.is_direct) LAUNCH_EACH((weight_directly<T>), n * j.c.parts, stream, j, n);
    else if (sizeof(T) != 2 || !wn__conv_mma(j, stream, &status)) status = wn__conv_gemm<T>(j, stream);
    WN_TRY(status);
    if (j.sums != NULL) LAUNCH_EACH((join_weight<T>), n, stream, j, n);
    return wn__cuda_launched();
}

/* ---- after cuDNN ---------------------------------------------------------------------------------------------- */

/* Makes outputs of the rounded sums of a library, in place. */
template <class T, int V> static __global__ void finish_sums(struct wn__conv_job j, int64_t n)
{
    typename wn__number<T>::type sum[V];
    const int64_t at = wn__thread() * V;
    if (at >= n) return;
    wn__get((const T *)j.out + at, sum);
    wn__conv_put<T, V, true>(j, at, at - wn__quotient(at, j.c.w.o) * j.c.w.o, sum);
}

template <class T>
static int32_t run_made(const struct wn_desc *d, const struct wn_buffers *b, const struct wn__conv_job &j, void *stream)
{
    WN_TRY(wn__cudnn_run(d, b, stream));
    if (j.bias == NULL && !wn__conv_is_map(j)) return WN_OK;
    WN_IMAGE_LAUNCH(finish_sums, T, j.c.w.o, wn__numel(&d->out), stream, j);
    return wn__cuda_launched();
}

template <class T> static int32_t conv(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    const struct wn__conv_job j = job_of(d, b);
    const int64_t n = wn__numel(&d->out);
    if (b->made != NULL) return run_made<T>(d, b, j, stream);
    int32_t status = WN_OK;
    if (n == 0) return WN_OK;
    if (d->op == WN_OP_CONV2D_DW) return start_weight<T>(j, n, stream);
    const int64_t weights = wn__numel(&d->in[1]);
    if (j.c.is_packed || j.c.is_by_places)
        LAUNCH_EACH((pack_weight<T>), weights, stream, j.c, (const T *)b->in[1], (T *)b->workspace, weights);
    if (j.c.is_direct) {
        LAUNCH_EACH((gather_directly<T>), n, stream, j, n);
        return wn__cuda_launched();
    }
    if (sizeof(T) == 2 && wn__conv_mma(j, stream, &status)) return status;
    return wn__conv_gemm<T>(j, stream);
}

wn_kernel_fn wn__cuda_conv_kernel(const struct wn_desc *d)
{
    if (!wn__has_one_dtype(d)) return NULL;
    return wn__kernel_of(d->out.dtype, conv<float>, conv<double>, conv<wn_bf16>);
}
