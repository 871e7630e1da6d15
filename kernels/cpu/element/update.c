/* Effects, the only kernels that write cells: ASSIGN, ACCUMULATE, SGD, MOMENTUM, ADAM, RMSPROP,
 * RMSPROP_MOMENTUM, RMSPROP_CENTERED, LION, RUNNING_MEAN, RUNNING_VAR (runtime/ops/update.c has the formulas).
 *
 * The operations and their order are those of PyTorch's single-tensor path: scalars are computed in double and rounded
 * once to the dtype of the parameter; a scaled sum is one fma. A cell is read and written element by element, so a
 * gradient must not overlap a cell. bf16 is computed by tiles in the f32 loops: every cell is rounded once a step. */
#include <math.h>
#include <stddef.h>
#include <string.h>
#include "../../scalar.h"
#include "../common/bf16.h"
#include "update.h"

static void assign_part(int64_t begin, int64_t end, void *ctx)
{
    const struct wn__update_numbers *u = ctx;
    char *cell = u->cell[0];
    memmove(cell + begin * u->size, (const char *)u->value + begin * u->size, (size_t)((end - begin) * u->size));
}

#define ACCUMULATE(S, T)                                                                                               \
    static void accumulate_##S(int64_t begin, int64_t end, void *ctx)                                                  \
    {                                                                                                                  \
        const struct wn__update_numbers *u = ctx;                                                                      \
        const T *value = u->value;                                                                                     \
        T *cell = u->cell[0];                                                                                          \
        _Pragma("omp simd") for (int64_t i = begin; i < end; i++) cell[i] = wn_add_##S(cell[i], value[i]);             \
    }

ACCUMULATE(f32, float)
ACCUMULATE(f64, double)
ACCUMULATE(i32, int32_t)

/* The loops of optimizers. hyper of sgd: lr, wd; of momentum: lr, wd, mu, dampening, nesterov, first; of adam: lr, wd,
 * b1, b2, eps, 1 - b1^t, 1 - b2^t, decoupled; of rmsprop, centered too: lr, wd, alpha, eps[, mu]; of lion: lr, wd, b1,
 * b2. */
#define SGD(S, T, F)                                                                                                   \
    static void sgd_##S(int64_t begin, int64_t end, void *ctx)                                                         \
    {                                                                                                                  \
        const struct wn__update_numbers *u = ctx;                                                                      \
        const T *grad = u->value;                                                                                      \
        T *p = u->cell[0], down = (T)-u->hyper[0], wd = (T)u->hyper[1];                                                \
        _Pragma("omp simd") for (int64_t i = begin; i < end; i++)                                                      \
        {                                                                                                              \
            T g = wd != 0 ? fma##F(p[i], wd, grad[i]) : grad[i];                                                       \
            p[i] = fma##F(g, down, p[i]);                                                                              \
        }                                                                                                              \
    }

#define MOMENTUM(S, T, F)                                                                                              \
    static void momentum_##S(int64_t begin, int64_t end, void *ctx)                                                    \
    {                                                                                                                  \
        const struct wn__update_numbers *u = ctx;                                                                      \
        const T *grad = u->value;                                                                                      \
        T *p = u->cell[0], *buf = u->cell[1];                                                                          \
        T down = (T)-u->hyper[0], wd = (T)u->hyper[1], mu = (T)u->hyper[2], share = (T)(1.0 - u->hyper[3]);            \
        int32_t nesterov = u->hyper[4] != 0, first = u->hyper[5] != 0;                                                 \
        _Pragma("omp simd") for (int64_t i = begin; i < end; i++)                                                      \
        {                                                                                                              \
            T g = wd != 0 ? fma##F(p[i], wd, grad[i]) : grad[i];                                                       \
            T next = first ? g : fma##F(g, share, buf[i] * mu);                                                        \
            buf[i] = next;                                                                                             \
            p[i] = fma##F(nesterov ? fma##F(next, mu, g) : next, down, p[i]);                                          \
        }                                                                                                              \
    }

/* Defines the numbers of a step of Adam, the same for all elements. */
#define ADAM_NUMBERS(S, T)                                                                                             \
    struct adam_##S {                                                                                                  \
        T l2, keep, w1, stay, b2, w2, eps, down, root;                                                                 \
        int32_t near_start;                                                                                            \
    };                                                                                                                 \
    static struct adam_##S adam_numbers_##S(const double *h) {                                                         \
        struct adam_##S a = {.w1 = (T)(1.0 - h[2]), .b2 = (T)h[3], .w2 = (T)(1.0 - h[3]), .eps = (T)h[4]};             \
        a.l2 = h[7] != 0 ? (T)0 : (T)h[1];                                                                             \
        a.keep = h[7] != 0 ? (T)(1.0 - h[0] * h[1]) : (T)1;                                                            \
        a.stay = (T)1 - a.w1;                                                                                          \
        a.down = (T)(-(h[0] / h[5]));                                                                                  \
        a.root = (T)sqrt(h[6]);                                                                                        \
        a.near_start = a.w1 < (T)0.5;                                                                                  \
        return a;                                                                                                      \
    }

#define ADAM(S, T, F)                                                                                                  \
    static void adam_##S(int64_t begin, int64_t end, void *ctx)                                                        \
    {                                                                                                                  \
        const struct wn__update_numbers *u = ctx;                                                                      \
        const struct adam_##S a = adam_numbers_##S(u->hyper);                                                          \
        const T *grad = u->value;                                                                                      \
        T *p = u->cell[0], *m = u->cell[1], *v = u->cell[2];                                                           \
        _Pragma("omp simd") for (int64_t i = begin; i < end; i++)                                                      \
        {                                                                                                              \
            T g = a.l2 != 0 ? fma##F(p[i], a.l2, grad[i]) : grad[i];                                                   \
            T far = g - m[i], first = a.near_start ? fma##F(a.w1, far, m[i]) : fma##F(-a.stay, far, g);                \
            T second = fma##F(a.w2 * g, g, v[i] * a.b2);                                                               \
            m[i] = first;                                                                                              \
            v[i] = second;                                                                                             \
            T denominator = sqrt##F(second) / a.root + a.eps;                                                          \
            p[i] = p[i] * a.keep + a.down * first / denominator;                                                       \
        }                                                                                                              \
    }

#define RMSPROP(S, T, F)                                                                                               \
    static void rmsprop_##S(int64_t begin, int64_t end, void *ctx)                                                     \
    {                                                                                                                  \
        const struct wn__update_numbers *u = ctx;                                                                      \
        const T *grad = u->value;                                                                                      \
        T *p = u->cell[0], *v = u->cell[1];                                                                            \
        T down = (T)-u->hyper[0], wd = (T)u->hyper[1], alpha = (T)u->hyper[2], share = (T)(1.0 - u->hyper[2]);         \
        T eps = (T)u->hyper[3];                                                                                        \
        _Pragma("omp simd") for (int64_t i = begin; i < end; i++)                                                      \
        {                                                                                                              \
            T g = wd != 0 ? fma##F(p[i], wd, grad[i]) : grad[i];                                                       \
            v[i] = fma##F(share * g, g, v[i] * alpha);                                                                 \
            p[i] = p[i] + down * g / (sqrt##F(v[i]) + eps);                                                            \
        }                                                                                                              \
    }

#define RMSPROP_MOMENTUM(S, T, F)                                                                                      \
    static void rmsprop_momentum_##S(int64_t begin, int64_t end, void *ctx)                                            \
    {                                                                                                                  \
        const struct wn__update_numbers *u = ctx;                                                                      \
        const T *grad = u->value;                                                                                      \
        T *p = u->cell[0], *v = u->cell[1], *buf = u->cell[2];                                                         \
        T down = (T)-u->hyper[0], wd = (T)u->hyper[1], alpha = (T)u->hyper[2], share = (T)(1.0 - u->hyper[2]);         \
        T eps = (T)u->hyper[3], mu = (T)u->hyper[4];                                                                   \
        _Pragma("omp simd") for (int64_t i = begin; i < end; i++)                                                      \
        {                                                                                                              \
            T g = wd != 0 ? fma##F(p[i], wd, grad[i]) : grad[i];                                                       \
            v[i] = fma##F(share * g, g, v[i] * alpha);                                                                 \
            buf[i] = buf[i] * mu + g / (sqrt##F(v[i]) + eps);                                                          \
            p[i] = fma##F(buf[i], down, p[i]);                                                                         \
        }                                                                                                              \
    }

#define RMSPROP_CENTERED(S, T, F)                                                                                      \
    static void rmsprop_centered_##S(int64_t begin, int64_t end, void *ctx)                                            \
    {                                                                                                                  \
        const struct wn__update_numbers *u = ctx;                                                                      \
        const T *grad = u->value;                                                                                      \
        T *p = u->cell[0], *v = u->cell[1], *mean = u->cell[2];                                                        \
        T down = (T)-u->hyper[0], wd = (T)u->hyper[1], alpha = (T)u->hyper[2], share = (T)(1.0 - u->hyper[2]);         \
        T eps = (T)u->hyper[3], stay = (T)1 - share;                                                                   \
        int32_t near_start = share < (T)0.5;                                                                           \
        _Pragma("omp simd") for (int64_t i = begin; i < end; i++)                                                      \
        {                                                                                                              \
            T g = wd != 0 ? fma##F(p[i], wd, grad[i]) : grad[i];                                                       \
            T far = g - mean[i], next = near_start ? fma##F(share, far, mean[i]) : fma##F(-stay, far, g);              \
            v[i] = fma##F(share * g, g, v[i] * alpha);                                                                 \
            mean[i] = next;                                                                                            \
            p[i] = p[i] + down * g / (sqrt##F(fma##F(-next, next, v[i])) + eps);                                       \
        }                                                                                                              \
    }

/* The step of Lion: 1, -1, or what has no sign: 0 and NaN. */
#define LION(S, T, F)                                                                                                  \
    static void lion_##S(int64_t begin, int64_t end, void *ctx)                                                        \
    {                                                                                                                  \
        const struct wn__update_numbers *u = ctx;                                                                      \
        const T *grad = u->value;                                                                                      \
        T *p = u->cell[0], *m = u->cell[1];                                                                            \
        T down = (T)-u->hyper[0], keep = (T)(1.0 - u->hyper[0] * u->hyper[1]);                                         \
        T b1 = (T)u->hyper[2], w1 = (T)(1.0 - u->hyper[2]), b2 = (T)u->hyper[3], w2 = (T)(1.0 - u->hyper[3]);          \
        _Pragma("omp simd") for (int64_t i = begin; i < end; i++)                                                      \
        {                                                                                                              \
            T mix = fma##F(w1, grad[i], m[i] * b1);                                                                    \
            T sign = mix > 0 ? (T)1 : mix < 0 ? (T)-1 : mix;                                                           \
            m[i] = fma##F(w2, grad[i], m[i] * b2);                                                                     \
            p[i] = p[i] * keep + down * sign;                                                                          \
        }                                                                                                              \
    }

/* Defines the loops of running statistics; hyper: momentum, eps, n / (n - 1). */
#define RUNNING(S, T)                                                                                                  \
    static void running_mean_##S(int64_t begin, int64_t end, void *ctx)                                                \
    {                                                                                                                  \
        const struct wn__update_numbers *u = ctx;                                                                      \
        const T *mean = u->value;                                                                                      \
        T *cell = u->cell[0];                                                                                          \
        for (int64_t i = begin; i < end; i++) cell[i] = (T)wn_running_mean(cell[i], mean[i], u->hyper[0]);             \
    }                                                                                                                  \
    static void running_var_##S(int64_t begin, int64_t end, void *ctx)                                                 \
    {                                                                                                                  \
        const struct wn__update_numbers *u = ctx;                                                                      \
        const T *rstd = u->value;                                                                                      \
        T *cell = u->cell[0];                                                                                          \
        for (int64_t i = begin; i < end; i++)                                                                          \
            cell[i] = (T)wn_running_var(cell[i], rstd[i], u->hyper[0], u->hyper[1], u->hyper[2]);                      \
    }

#define STEPS(S, T, F)                                                                                                 \
    SGD(S, T, F)                                                                                                       \
    MOMENTUM(S, T, F)                                                                                                  \
    ADAM_NUMBERS(S, T)                                                                                                 \
    ADAM(S, T, F)                                                                                                      \
    RMSPROP(S, T, F)                                                                                                   \
    RMSPROP_MOMENTUM(S, T, F)                                                                                          \
    RMSPROP_CENTERED(S, T, F)                                                                                          \
    LION(S, T, F)

STEPS(f32, float, f)
STEPS(f64, double, )
RUNNING(f32, float)
RUNNING(f64, double)

#define FLOAT_ROW(NAME, name) [WN_OP_##NAME] = {[WN_F32] = name##_f32, [WN_F64] = name##_f64},

static const wn__parallel_body loops[WN_OP_COUNT][WN_DTYPE_COUNT] = {
    [WN_OP_ACCUMULATE] = {[WN_F32] = accumulate_f32, [WN_F64] = accumulate_f64, [WN_I32] = accumulate_i32},
    FLOAT_ROW(SGD, sgd) FLOAT_ROW(MOMENTUM, momentum) FLOAT_ROW(ADAM, adam) FLOAT_ROW(RMSPROP, rmsprop)
        FLOAT_ROW(RMSPROP_MOMENTUM, rmsprop_momentum) FLOAT_ROW(RMSPROP_CENTERED, rmsprop_centered)
            FLOAT_ROW(LION, lion) FLOAT_ROW(RUNNING_MEAN, running_mean) FLOAT_ROW(RUNNING_VAR, running_var)};

wn__parallel_body wn__cpu_update_loop(int32_t op, int32_t dtype)
{
    return loops[op][dtype];
}

void wn__cpu_update_numbers(const struct wn_type *type, const void *hyper, struct wn__update_numbers *u)
{
    int64_t n = wn__numel(type);
    for (int64_t i = 0; i < n && i < 8; i++)
        u->hyper[i] = type->dtype == WN_F64 ? ((const double *)hyper)[i] : ((const float *)hyper)[i];
}

static void halves_part(int64_t begin, int64_t end, void *ctx)
{
    const struct wn__update_numbers *u = ctx;
    float value[WN_TILE], wide[3][WN_TILE];
    void *const cells[3] = {wide[0], wide[1], wide[2]};
    struct wn__update_numbers tile = *u;
    tile.value = value;
    tile.cell = cells;
    for (int64_t at = begin; at < end; at += WN_TILE) {
        int64_t n = end - at < WN_TILE ? end - at : WN_TILE;
        wn__widen(value, (const uint16_t *)u->value + at, n);
        for (int32_t k = 0; k < u->n_cells; k++) wn__widen(wide[k], (const uint16_t *)u->cell[k] + at, n);
        u->loop(0, n, &tile);
        for (int32_t k = 0; k < u->n_cells; k++) wn__round((uint16_t *)u->cell[k] + at, wide[k], n);
    }
}

static wn__parallel_body body_of(const struct wn_desc *d)
{
    int32_t dtype = d->in[0].dtype;
    if (d->op == WN_OP_ASSIGN) return assign_part;
    if (dtype == WN_BF16) return loops[d->op][WN_F32] ? halves_part : NULL;
    return loops[d->op][dtype];
}

static int32_t update(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    const struct wn_type *value = &d->in[0];
    struct wn__update_numbers u = {.value = b->in[0], .cell = b->cell, .size = wn__dtype_size(value->dtype)};
    if (d->n_in > 1) wn__cpu_update_numbers(&d->in[1], b->in[1], &u);
    if (d->op == WN_OP_RUNNING_MEAN || d->op == WN_OP_RUNNING_VAR) {
        u.hyper[0] = d->attrs.f[0];
        u.hyper[1] = d->attrs.f[1];
        u.hyper[2] = (double)d->attrs.i[0] / (double)(d->attrs.i[0] - 1);
    }
    u.loop = loops[d->op][WN_F32];
    u.n_cells = wn__optimizer_cells(d->op);
    if (u.n_cells == 0) u.n_cells = 1;
    wn__parallel_for(wn__numel(value), WN_CPU_GRAIN, body_of(d), &u);
    return WN_OK;
}

wn_kernel_fn wn__cpu_update_kernel(const struct wn_desc *d)
{
    if (d->n_in > 1 && d->in[1].dtype != WN_F64 && d->in[1].dtype != WN_F32) return NULL;
    return body_of(d) ? update : NULL;
}
