/* The step of one element of ACCUMULATE and of the optimizers (runtime/ops/update.c has the formulas), for update.cu
 * and for product_update.cu, which uses a gradient as soon as it is computed.
 *
 * Scalars are computed in double and rounded once to the number's type, a scaled sum is one fma, as in
 * kernels/cpu/element/update.c, so cells get the CPU's bits. */
#ifndef WN_CUDA_UPDATE_CUH
#define WN_CUDA_UPDATE_CUH
#include "scalar.cuh"

/* The numbers of an optimizer, ready for a step. N: the type that a step computes in. */
template <class N> struct wn__rule {
    N down, decay, mu, share;      /* SGD and MOMENTUM; ADAM: down and decay */
    int32_t is_nesterov, is_first; /* MOMENTUM */
    N keep, w1, stay, b2, w2, eps,
        root; /* ADAM; RMSPROP: b2 = alpha, w1 = w2, stay, eps, mu; LION: keep, b1, w1, b2, w2 */
    N b1;
};

/* Reads number i of the hyperparameters, of an optimizer: f64, or f32. */
WN_DEVICE_FN double wn__hyper(const void *hyper, int32_t is_f64, int i)
{
    return is_f64 ? ((const double *)hyper)[i] : (double)((const float *)hyper)[i];
}

/* Tells whether an op is of the family of RMSPROP. */
static inline constexpr __host__ __device__ bool wn__is_rmsprop(int32_t op)
{
    return op == WN_OP_RMSPROP || op == WN_OP_RMSPROP_MOMENTUM || op == WN_OP_RMSPROP_CENTERED;
}

/* Fills the numbers of RMSPROP and LION; the learning rate and the decay are filled. */
template <int OP, class N> WN_DEVICE_FN void wn__rule_fill_others(wn__rule<N> *r, const void *hyper, int32_t is_f64)
{
    double lr = wn__hyper(hyper, is_f64, 0), wd = wn__hyper(hyper, is_f64, 1), third = wn__hyper(hyper, is_f64, 2);
    if (wn__is_rmsprop(OP)) {
        r->b2 = (N)third;
        r->w1 = r->w2 = (N)(1.0 - third);
        r->stay = (N)1 - r->w1;
        r->eps = (N)wn__hyper(hyper, is_f64, 3);
        r->mu = (N)wn__hyper(hyper, is_f64, 4);
    }
    if (OP == WN_OP_LION) {
        double b2 = wn__hyper(hyper, is_f64, 3);
        r->decay = (N)0;
        r->keep = (N)(1.0 - lr * wd);
        r->b1 = (N)third;
        r->w1 = (N)(1.0 - third);
        r->b2 = (N)b2;
        r->w2 = (N)(1.0 - b2);
    }
}

/* Fills the numbers of an op. One thread of a block does so. hyper: (8) f64 or f32. OP is not ACCUMULATE. */
template <int OP, class N> WN_DEVICE_FN void wn__rule_fill(wn__rule<N> *r, const void *hyper, int32_t is_f64)
{
    double lr = wn__hyper(hyper, is_f64, 0), wd = wn__hyper(hyper, is_f64, 1);
    r->down = (N)-lr;
    r->decay = (N)wd;
    if (OP == WN_OP_MOMENTUM) {
        r->mu = (N)wn__hyper(hyper, is_f64, 2);
        r->share = (N)(1.0 - wn__hyper(hyper, is_f64, 3));
        r->is_nesterov = wn__hyper(hyper, is_f64, 4) != 0;
        r->is_first = wn__hyper(hyper, is_f64, 5) != 0;
    }
    if (OP == WN_OP_ADAM) {
        double b1 = wn__hyper(hyper, is_f64, 2), b2 = wn__hyper(hyper, is_f64, 3);
        int32_t is_decoupled = wn__hyper(hyper, is_f64, 7) != 0;
        r->decay = is_decoupled ? (N)0 : (N)wd;
        r->keep = is_decoupled ? (N)(1.0 - lr * wd) : (N)1;
        r->w1 = (N)(1.0 - b1);
        r->stay = (N)1 - r->w1;
        r->b2 = (N)b2;
        r->w2 = (N)(1.0 - b2);
        r->eps = (N)wn__hyper(hyper, is_f64, 4);
        r->down = (N)(-(lr / wn__hyper(hyper, is_f64, 5)));
        r->root = (N)sqrt(wn__hyper(hyper, is_f64, 6));
    }
    wn__rule_fill_others<OP>(r, hyper, is_f64);
}

WN_DEVICE_FN float wn__fma(float a, float b, float c)
{
    return fmaf(a, b, c);
}
WN_DEVICE_FN double wn__fma(double a, double b, double c)
{
    return fma(a, b, c);
}

/* Returns the running mean of g after `mean`: mean + w1 (g - mean), computed from the nearer end. */
template <class N> WN_DEVICE_FN N wn__toward(const wn__rule<N> &r, N mean, N g)
{
    N far = g - mean;
    return r.w1 < (N)0.5 ? wn__fma(r.w1, far, mean) : wn__fma(-r.stay, far, g);
}

/* Steps one element by the rule of an optimizer. cell: (3) the numbers of its cells, those that OP writes; grad: its
 * gradient. */
template <int OP, class N> WN_DEVICE_FN void wn__optimizer_step(const wn__rule<N> &r, N grad, N (&cell)[3])
{
    N p = cell[0], g = r.decay != 0 ? wn__fma(p, r.decay, grad) : grad;
    if (OP == WN_OP_SGD) cell[0] = wn__fma(g, r.down, p);
    if (OP == WN_OP_MOMENTUM) {
        N next = r.is_first ? g : wn__fma(g, r.share, cell[1] * r.mu);
        cell[1] = next;
        cell[0] = wn__fma(r.is_nesterov ? wn__fma(next, r.mu, g) : next, r.down, p);
    }
    if (OP == WN_OP_ADAM) {
        N first = wn__toward(r, cell[1], g);
        N second = wn__fma(r.w2 * g, g, cell[2] * r.b2);
        cell[1] = first;
        cell[2] = second;
        cell[0] = p * r.keep + r.down * first / (wn_sqrt(second) / r.root + r.eps);
    }
    if (wn__is_rmsprop(OP)) {
        N square = wn__fma(r.w2 * g, g, cell[1] * r.b2), spread = square;
        cell[1] = square;
        if (OP == WN_OP_RMSPROP_CENTERED) {
            cell[2] = wn__toward(r, cell[2], g);
            spread = wn__fma(-cell[2], cell[2], square);
        }
        N root = wn_sqrt(spread) + r.eps;
        if (OP != WN_OP_RMSPROP_MOMENTUM) cell[0] = p + r.down * g / root;
        else {
            cell[2] = cell[2] * r.mu + g / root;
            cell[0] = wn__fma(cell[2], r.down, p);
        }
    }
    if (OP == WN_OP_LION) {
        N mix = wn__fma(r.w1, g, cell[1] * r.b1), sign = mix > 0 ? (N)1 : mix < 0 ? (N)-1 : mix;
        cell[1] = wn__fma(r.w2, g, cell[1] * r.b2);
        cell[0] = p * r.keep + r.down * sign;
    }
}

/* Steps one element: the sum of ACCUMULATE, or the rule of an optimizer. */
template <int OP, class N> WN_DEVICE_FN void wn__rule_step(const wn__rule<N> &r, N grad, N (&cell)[3])
{
    if constexpr (OP == WN_OP_ACCUMULATE) cell[0] = wn_add(cell[0], grad);
    else wn__optimizer_step<OP>(r, grad, cell);
}

/* Returns the number of cells that an update op writes. */
static inline constexpr __host__ __device__ int wn__rule_cells(int32_t op)
{
    if (op == WN_OP_ADAM || op == WN_OP_RMSPROP_MOMENTUM || op == WN_OP_RMSPROP_CENTERED) return 3;
    return op == WN_OP_MOMENTUM || op == WN_OP_RMSPROP || op == WN_OP_LION ? 2 : 1;
}
#endif
