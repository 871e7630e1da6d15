/* Effects, the only kernels that write cells: ASSIGN, ACCUMULATE, the optimizers, RUNNING_MEAN, RUNNING_VAR
 * (runtime/ops/update.c has the formulas, kernels/updates.h the rules of optimizers).
 *
 * A cell is read and written element by element, so a gradient must not overlap a cell. bf16 is computed by tiles in
 * the f32 loops: every cell is rounded once a step. */
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

/* Defines the loop of an optimizer with n cells, and CELLS_n(i), the cells of element i. */
#define CELLS_1(i) cell[0] + i
#define CELLS_2(i) CELLS_1(i), cell[1] + i
#define CELLS_3(i) CELLS_2(i), cell[2] + i
#define LOOP_OF(name, n, S, T)                                                                                         \
    static void name##_##S(int64_t begin, int64_t end, void *ctx)                                                      \
    {                                                                                                                  \
        const struct wn__update_numbers *u = ctx;                                                                      \
        const struct wn_constants_##S c = u->constants.S;                                                              \
        const T *g = u->value;                                                                                         \
        T *const cell[3] = {u->cell[0], n > 1 ? u->cell[1] : NULL, n > 2 ? u->cell[2] : NULL};                         \
        _Pragma("omp simd") for (int64_t i = begin; i < end; i++) wn_##name##_##S(&c, g[i], CELLS_##n(i));             \
    }
#define LOOP(NAME, name, n) LOOP_OF(name, n, f32, float) LOOP_OF(name, n, f64, double)
WN_OPTIMIZERS(LOOP)

/* Defines the loops of running statistics; hyper: momentum, eps, n / (n - 1). */
#define RUNNING(S, T)                                                                                                  \
    static void running_mean_##S(int64_t begin, int64_t end, void *ctx)                                                \
    {                                                                                                                  \
        const struct wn__update_numbers *u = ctx;                                                                      \
        const T *mean = u->value;                                                                                      \
        T *cell = u->cell[0];                                                                                          \
        for (int64_t i = begin; i < end; i++) cell[i] = (T)wn_running_mean(cell[i], mean[i], u->constants.running[0]); \
    }                                                                                                                  \
    static void running_var_##S(int64_t begin, int64_t end, void *ctx)                                                 \
    {                                                                                                                  \
        const struct wn__update_numbers *u = ctx;                                                                      \
        const T *rstd = u->value;                                                                                      \
        T *cell = u->cell[0];                                                                                          \
        for (int64_t i = begin; i < end; i++)                                                                          \
            cell[i] = (T)wn_running_var(cell[i], rstd[i], u->constants.running[0], u->constants.running[1],            \
                                        u->constants.running[2]);                                                      \
    }

RUNNING(f32, float)
RUNNING(f64, double)

#define ROW(NAME, name, n) [WN_OP_##NAME] = {WN_F32_F64(name)},

static const wn__parallel_body loops[WN_OP_COUNT][WN_DTYPE_COUNT] = {
    [WN_OP_ACCUMULATE] = {WN_F32_F64(accumulate), [WN_I32] = accumulate_i32},
    [WN_OP_RUNNING_MEAN] = {WN_F32_F64(running_mean)},
    [WN_OP_RUNNING_VAR] = {WN_F32_F64(running_var)},
    WN_OPTIMIZERS(ROW)};

wn__parallel_body wn__cpu_update_loop(int32_t op, int32_t dtype)
{
    return loops[op][dtype];
}

void wn__cpu_update_constants(struct wn__update_numbers *u, int32_t op, int32_t dtype, const double *hyper)
{
    if (dtype == WN_F64) wn_fill_constants_f64(&u->constants.f64, op, hyper);
    else wn_fill_constants_f32(&u->constants.f32, op, hyper);
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

static wn__parallel_body body_of(int32_t op, int32_t dtype)
{
    if (op == WN_OP_ASSIGN) return assign_part;
    if (dtype == WN_BF16) return loops[op][WN_F32] ? halves_part : NULL;
    return loops[op][dtype];
}

static void assign_widened(int64_t begin, int64_t end, void *ctx)
{
    const struct wn__update_numbers *u = ctx;
    wn__widen((float *)u->cell[0] + begin, (const uint16_t *)u->value + begin, end - begin);
}

static void accumulate_widened(int64_t begin, int64_t end, void *ctx)
{
    const struct wn__update_numbers *u = ctx;
    float value[WN_TILE];
    struct wn__update_numbers tile = {.value = value};
    for (int64_t from = begin; from < end; from += WN_TILE) {
        int64_t n = end - from < WN_TILE ? end - from : WN_TILE;
        void *const cell[] = {(float *)u->cell[0] + from};
        wn__widen(value, (const uint16_t *)u->value + from, n);
        tile.cell = cell;
        accumulate_f32(0, n, &tile);
    }
}

/* Adds piece after piece to a sum of n elements, as ACCUMULATE adds each of them; pieces of bf16 to one of f32, as if
 * each had been cast before. is_new: the first piece is copied. */
static void add_pieces(const struct wn_desc *d, const void *pieces, int64_t n, int32_t is_new, void *sum)
{
    int64_t size = wn__dtype_size(d->in[0].dtype);
    int32_t is_wider = d->out.dtype != d->in[0].dtype;
    void *const cell[] = {sum};
    for (int64_t k = 0; k < d->in[0].dim[0]; k++, is_new = 0) {
        struct wn__update_numbers u = {.value = (const char *)pieces + k * n * size,
                                       .cell = cell,
                                       .size = size,
                                       .loop = loops[WN_OP_ACCUMULATE][WN_F32],
                                       .n_cells = 1};
        wn__parallel_body body = is_wider ? is_new ? assign_widened : accumulate_widened
                                          : body_of(is_new ? WN_OP_ASSIGN : WN_OP_ACCUMULATE, d->in[0].dtype);
        wn__parallel_for(n, WN_CPU_GRAIN, body, &u);
    }
}

/* Adds pieces to the own range of a cell, which begins at its address. */
static int32_t ordered_sum(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    add_pieces(d, b->in[0], d->in[0].dim[1], d->attrs.f[0] == 1, b->cell[0]);
    return WN_OK;
}

/* Adds pieces to a sum, in its place or in another one. */
static int32_t partial_sum(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    if (d->n_in > 1 && b->in[1] != b->out) memcpy(b->out, b->in[1], (size_t)wn__bytes(&d->out));
    add_pieces(d, b->in[0], wn__numel(&d->out), d->n_in == 1, b->out);
    return WN_OK;
}

static int32_t update(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    const struct wn_type *value = &d->in[0];
    struct wn__update_numbers u = {.value = b->in[0], .cell = b->cell, .size = wn__dtype_size(value->dtype)};
    if (d->n_in > 1) wn__cpu_update_constants(&u, d->op, value->dtype, b->in[1]);
    int32_t is_running = d->op == WN_OP_RUNNING_MEAN || d->op == WN_OP_RUNNING_VAR;
    if (is_running) {
        u.constants.running[0] = d->attrs.f[0];
        u.constants.running[1] = d->attrs.f[1];
        u.constants.running[2] = (double)d->attrs.i[0] / (double)(d->attrs.i[0] - 1);
    }
    u.loop = loops[d->op][WN_F32];
    u.n_cells = wn__optimizer_cells(d->op);
    if (u.n_cells == 0) u.n_cells = 1;
    int64_t times = is_running ? wn__running_rows(&d->attrs, value) : 1, each = wn__numel(value) / times;
    for (int64_t k = 0; k < times; k++) {
        u.value = (const char *)b->in[0] + (is_running ? wn__running_row(&d->attrs, k) : k) * each * u.size;
        wn__parallel_for(each, WN_CPU_GRAIN, body_of(d->op, value->dtype), &u);
    }
    return WN_OK;
}

wn_kernel_fn wn__cpu_update_kernel(const struct wn_desc *d)
{
    if (d->op == WN_OP_ORDERED_SUM || d->op == WN_OP_PARTIAL_SUM)
        return !body_of(WN_OP_ACCUMULATE, d->in[0].dtype) ? NULL
               : d->op == WN_OP_PARTIAL_SUM               ? partial_sum
                                                          : ordered_sum;
    return body_of(d->op, d->in[0].dtype) ? update : NULL;
}
