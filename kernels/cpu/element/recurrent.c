/* LSTM_CELL, LSTM_CELL_GRAD, GRU_GATES, GRU_CELL, GRU_CELL_GRAD: one step of a recurrent layer (runtime/ops/recurrent.c
 * has the shapes, kernels/cells.h the formulas).
 *
 * A row of gates is (parts, H), a row of a state H elements. An element of the result depends on elements of the inputs
 * in its own row and at its own place alone, and all of them are read before it is written, so a result may lie where
 * an input of its type does. */
#include <stddef.h>
#include "../../cells.h"
#include "../common/cpu.h"

struct cell {
    const void *in[3];
    void *out;
    int64_t size;     /* H */
    int32_t of_state; /* of a gradient: 1 where it is that of the state */
};

/* Runs the statements for each element of the state in [begin, end): `own` is its number, j its place in the row `row`,
 * and n is H. */
#define ROWS(...)                                                                                                      \
    for (int64_t at = begin, stop, n = k->size; at < end; at = stop) {                                                 \
        const int64_t row = at / n;                                                                                    \
        stop = end < (row + 1) * n ? end : (row + 1) * n;                                                              \
        _Pragma("omp simd") for (int64_t own = at; own < stop; own++)                                                  \
        {                                                                                                              \
            const int64_t j = own - row * n;                                                                           \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }

/* The place of gate p of a row of `parts` gates. */
#define GATE(p, parts) ((parts)*row * n + (p)*n + j)
/* The gates of a row of x. */
#define FOUR(F, LOAD)                                                                                                  \
    {                                                                                                                  \
        LOAD(x[GATE(0, 4)]), LOAD(x[GATE(1, 4)]), LOAD(x[GATE(2, 4)]), LOAD(x[GATE(3, 4)])                             \
    }

/* Each macro defines loops for elements of T, which compute as those of the suffix F, of the type N. */
#define LSTM(S, T, F, N, LOAD, STORE)                                                                                  \
    static void lstm_##S(int64_t begin, int64_t end, void *ctx)                                                        \
    {                                                                                                                  \
        const struct cell *k = ctx;                                                                                    \
        const T *x = k->in[0], *c = k->in[1];                                                                          \
        T *out = k->out;                                                                                               \
        ROWS(struct wn_gates_##F v = FOUR(F, LOAD); N next = wn_lstm_next_##F(v, LOAD(c[own]));                        \
             out[GATE(0, 2)] = STORE(wn_lstm_out_##F(v, next)); out[GATE(1, 2)] = STORE(next);)                        \
    }

#define LSTM_GRAD(S, T, F, N, LOAD, STORE)                                                                             \
    static void lstm_grad_##S(int64_t begin, int64_t end, void *ctx)                                                   \
    {                                                                                                                  \
        const struct cell *k = ctx;                                                                                    \
        const T *dy = k->in[0], *x = k->in[1], *c = k->in[2];                                                          \
        T *out = k->out;                                                                                               \
        if (k->of_state)                                                                                               \
            ROWS(struct wn_gates_##F v = FOUR(F, LOAD);                                                                \
                 out[own] =                                                                                            \
                     STORE(wn_lstm_grad_state_##F(LOAD(dy[GATE(0, 2)]), LOAD(dy[GATE(1, 2)]), v, LOAD(c[own])));)      \
        else                                                                                                           \
            ROWS(struct wn_gates_##F v = FOUR(F, LOAD);                                                                \
                 v = wn_lstm_grad_##F(LOAD(dy[GATE(0, 2)]), LOAD(dy[GATE(1, 2)]), v, LOAD(c[own]));                    \
                 out[GATE(0, 4)] = STORE(v.a); out[GATE(1, 4)] = STORE(v.b); out[GATE(2, 4)] = STORE(v.c);             \
                 out[GATE(3, 4)] = STORE(v.d);)                                                                        \
    }

#define GRU(S, T, F, N, LOAD, STORE)                                                                                   \
    static void gru_gates_##S(int64_t begin, int64_t end, void *ctx)                                                   \
    {                                                                                                                  \
        const struct cell *k = ctx;                                                                                    \
        const T *x = k->in[0], *y = k->in[1];                                                                          \
        T *out = k->out;                                                                                               \
        ROWS(out[GATE(0, 4)] = STORE(LOAD(x[GATE(0, 3)]) + LOAD(y[GATE(0, 3)]));                                       \
             out[GATE(1, 4)] = STORE(LOAD(x[GATE(1, 3)]) + LOAD(y[GATE(1, 3)])); out[GATE(2, 4)] = x[GATE(2, 3)];      \
             out[GATE(3, 4)] = y[GATE(2, 3)];)                                                                         \
    }                                                                                                                  \
    static void gru_##S(int64_t begin, int64_t end, void *ctx)                                                         \
    {                                                                                                                  \
        const struct cell *k = ctx;                                                                                    \
        const T *x = k->in[0], *h = k->in[1];                                                                          \
        T *out = k->out;                                                                                               \
        ROWS(struct wn_gates_##F v = FOUR(F, LOAD); out[own] = STORE(wn_gru_##F(v, LOAD(h[own])));)                    \
    }

#define GRU_GRAD(S, T, F, N, LOAD, STORE)                                                                              \
    static void gru_grad_##S(int64_t begin, int64_t end, void *ctx)                                                    \
    {                                                                                                                  \
        const struct cell *k = ctx;                                                                                    \
        const T *dy = k->in[0], *x = k->in[1], *h = k->in[2];                                                          \
        T *out = k->out;                                                                                               \
        if (k->of_state)                                                                                               \
            ROWS(struct wn_gates_##F v = FOUR(F, LOAD); out[own] = STORE(wn_gru_grad_state_##F(LOAD(dy[own]), v));)    \
        else                                                                                                           \
            ROWS(struct wn_gates_##F v = FOUR(F, LOAD); v = wn_gru_grad_##F(LOAD(dy[own]), v, LOAD(h[own]));           \
                 out[GATE(0, 4)] = STORE(v.a); out[GATE(1, 4)] = STORE(v.b); out[GATE(2, 4)] = STORE(v.c);             \
                 out[GATE(3, 4)] = STORE(v.d);)                                                                        \
    }

#define CELLS(...) LSTM(__VA_ARGS__) LSTM_GRAD(__VA_ARGS__) GRU(__VA_ARGS__) GRU_GRAD(__VA_ARGS__)
CELLS(f32, float, f32, float, WN_SAME, WN_SAME)
CELLS(f64, double, f64, double, WN_SAME, WN_SAME)
CELLS(bf16, uint16_t, f32, float, wn_from_bf16, wn_to_bf16)

/* ---- which kernel -------------------------------------------------------------------------------- */

static const wn__parallel_body loops[WN_OP_COUNT][WN_DTYPE_COUNT] = {[WN_OP_LSTM_CELL] = {WN_FLOATS(lstm)},
                                                                     [WN_OP_LSTM_CELL_GRAD] = {WN_FLOATS(lstm_grad)},
                                                                     [WN_OP_GRU_GATES] = {WN_FLOATS(gru_gates)},
                                                                     [WN_OP_GRU_CELL] = {WN_FLOATS(gru)},
                                                                     [WN_OP_GRU_CELL_GRAD] = {WN_FLOATS(gru_grad)}};

static int32_t run_cell(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    const struct wn_type *last = &d->in[d->n_in - 1];
    const int64_t parts = d->op == WN_OP_GRU_GATES ? 3 : 1;
    struct cell k = {.out = b->out, .size = last->dim[last->ndim - 1] / parts, .of_state = d->attrs.i[0] == 1};
    for (int32_t i = 0; i < d->n_in; i++) k.in[i] = b->in[i];
    wn__parallel_for(wn__numel(last) / parts, WN_CPU_GRAIN_MATH / 4, loops[d->op][d->out.dtype], &k);
    return WN_OK;
}

wn_kernel_fn wn__cpu_recurrent_kernel(const struct wn_desc *d)
{
    return loops[d->op][d->out.dtype] ? run_cell : NULL;
}
