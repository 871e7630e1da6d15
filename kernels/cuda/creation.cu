/* FULL, ARANGE, EYE, UNIFORM, NORMAL, RANDINT: values computed from attributes alone, with the CPU's bits.
 *
 * A random number is a function of (seed, counter, element): a thread draws the Philox words of four elements. Formulas
 * are computed in double and rounded once to the dtype; bf16 is the f32 value, rounded. */
#include "map.cuh"

/* One creation. */
struct creation_rule {
    int32_t op;
    double f0, f1;          /* attrs.f: runtime/ops/creation.c */
    int64_t rows, columns;  /* of EYE, and of a value in panels */
    int64_t first;          /* of a random value: the quad of the whole that it begins with */
    const uint64_t *random; /* {seed, counter} of random values, in the device's memory */
};

/* Writes elements [4 q, 4 q + 4) of a random value, before they are rounded. */
static __device__ __forceinline__ void random_quad(const struct creation_rule &k, int64_t q, double (&z)[4])
{
    uint32_t w[4];
    wn_philox(k.random[0], k.random[1], (uint64_t)(k.first + q), w);
    if (k.op == WN_OP_NORMAL) {
        wn_box_muller(w[0], w[1], z);
        wn_box_muller(w[2], w[3], z + 2);
        WN_UNROLL
        for (int v = 0; v < 4; v++) z[v] = k.f0 + k.f1 * z[v];
    } else {
        WN_UNROLL
        for (int v = 0; v < 4; v++) z[v] = k.f0 + (k.f1 - k.f0) * wn_unit(w[v]);
        if (k.op == WN_OP_RANDINT) {
            WN_UNROLL
            for (int v = 0; v < 4; v++) z[v] = floor(z[v]);
        }
    }
}

/* Writes elements [4 q, 4 q + 4), before they are rounded. */
static __device__ __forceinline__ void creation_quad(const struct creation_rule &k, int64_t q, double (&z)[4])
{
    switch (k.op) {
    case WN_OP_FULL:
        WN_UNROLL
        for (int v = 0; v < 4; v++) z[v] = k.f0;
        break;
    case WN_OP_ARANGE:
        WN_UNROLL
        for (int v = 0; v < 4; v++) z[v] = k.f0 + (double)(4 * q + v) * k.f1;
        break;
    case WN_OP_EYE:
        WN_UNROLL
        for (int v = 0; v < 4; v++) {
            int64_t i = 4 * q + v;
            z[v] = (double)(i / k.columns == i % k.columns);
        }
        break;
    default: random_quad(k, q, z); break;
    }
}

/* Returns element i. */
template <class T> static __device__ __forceinline__ T creation_element(const struct creation_rule &k, int64_t i)
{
    double z[4];
    creation_quad(k, i >> 2, z);
    return wn__cast<T>((i & 2) ? ((i & 1) ? z[3] : z[2]) : ((i & 1) ? z[1] : z[0]));
}

template <class T> struct creation_plain {
    enum { V = 4 };
    struct creation_rule rule;
    T *out;
    template <int M> __device__ __forceinline__ void run(int64_t at) const
    {
        if (M == 1) {
            out[at] = creation_element<T>(rule, at);
            return;
        }
        double z[4];
        wn__pack<T, 4> y;
        creation_quad(rule, at >> 2, z);
        WN_UNROLL
        for (int v = 0; v < 4; v++) y.at[v] = wn__cast<T>(z[v]);
        *(wn__pack<T, 4> *)(out + at) = y;
    }
};

/* A matrix in panels (runtime/base/layout.h): each element has the number of the same element of a plain value. */
template <class T> struct creation_panels {
    enum { V = 1 };
    struct creation_rule rule;
    T *out;
    template <int M> __device__ __forceinline__ void run(int64_t at) const
    {
        const int64_t most = WN_PANEL;
        int64_t first = at / (most * rule.columns) * most, inside = at - first * rule.columns;
        int64_t width = rule.rows - first < most ? rule.rows - first : most;
        out[at] = creation_element<T>(rule, (first + inside % width) * rule.columns + inside / width);
    }
};

template <class T> static int32_t creation_start(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    struct creation_rule rule = {.op = d->op,
                                 .f0 = d->attrs.f[0],
                                 .f1 = d->attrs.f[1],
                                 .rows = 1,
                                 .columns = 1,
                                 .first = wn__created_first(d) / WN_CREATED_STEP,
                                 .random = b->random};
    int32_t n = d->out.ndim;
    if (n > 0) rule.columns = d->out.dim[n - 1];
    if (n > 1) rule.rows = d->out.dim[n - 2];
    int64_t elements = wn__numel(&d->out);
    if (d->out.layout == WN_PLAIN || d->op == WN_OP_FULL)
        return wn__map_start(creation_plain<T>{rule, (T *)b->out}, elements, stream);
    return wn__map_start(creation_panels<T>{rule, (T *)b->out}, elements, stream);
}

wn_kernel_fn wn__cuda_creation_kernel(const struct wn_desc *d)
{
    int32_t real = d->op == WN_OP_UNIFORM || d->op == WN_OP_NORMAL;
    return wn__kernel_of(d->out.dtype, creation_start<float>, creation_start<double>, creation_start<wn_bf16>,
                         real ? NULL : creation_start<int32_t>, real ? NULL : creation_start<uint8_t>);
}
