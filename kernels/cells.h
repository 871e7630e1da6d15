/* The formulas of recurrent cells and their gradients for one element of the state, once, for every device, as those of
 * scalar.h are (runtime/ops/recurrent.c has them in words). bf16 is computed as f32 and rounded once. They take and
 * return the gates of an element by value, which leaves them in registers, so loops over elements vectorize. */
#ifndef WN_CELLS_H
#define WN_CELLS_H
#include "scalar.h"

/* Each is defined for a type T with the suffix S. x: the gates before their functions, in the order of the op.
 *
 *     wn_lstm_next, wn_lstm_out   return the next c, and the next h from it
 *     wn_lstm_grad                returns the gradients of x; dh, dc: those of the next h and c
 *     wn_lstm_grad_state          returns the gradient of c
 *     wn_gru                      returns the next h
 *     wn_gru_grad                 returns the gradients of x; dy: that of the next h
 *     wn_gru_grad_state           returns the gradient of h */
#define WN_CELLS(S, T)                                                                                                 \
    struct wn_gates_##S {                                                                                              \
        T a, b, c, d;                                                                                                  \
    };                                                                                                                 \
    WN_CELLS_LSTM(S, T)                                                                                                \
    WN_CELLS_GRU(S, T)

#define WN_CELLS_LSTM(S, T)                                                                                            \
    WN_FN T wn_lstm_next_##S(struct wn_gates_##S x, T c)                                                               \
    {                                                                                                                  \
        return wn_sigmoid_##S(x.b) * c + wn_sigmoid_##S(x.a) * wn_tanh_##S(x.c);                                       \
    }                                                                                                                  \
    WN_FN T wn_lstm_out_##S(struct wn_gates_##S x, T next)                                                             \
    {                                                                                                                  \
        return wn_sigmoid_##S(x.d) * wn_tanh_##S(next);                                                                \
    }                                                                                                                  \
    WN_FN struct wn_gates_##S wn_lstm_grad_##S(T dh, T dc, struct wn_gates_##S x, T c) {                               \
        T in = wn_sigmoid_##S(x.a), keep = wn_sigmoid_##S(x.b), fresh = wn_tanh_##S(x.c), o = wn_sigmoid_##S(x.d);     \
        T t = wn_tanh_##S(keep * c + in * fresh), d = dc + wn_tanh_grad_##S(dh * o, t);                                \
        struct wn_gates_##S dx = {wn_sigmoid_grad_##S(d * fresh, in), wn_sigmoid_grad_##S(d *c, keep),                 \
                                  wn_tanh_grad_##S(d *in, fresh), wn_sigmoid_grad_##S(dh *t, o)};                      \
        return dx;                                                                                                     \
    } WN_FN T wn_lstm_grad_state_##S(T dh, T dc, struct wn_gates_##S x, T c)                                           \
    {                                                                                                                  \
        T t = wn_tanh_##S(wn_lstm_next_##S(x, c));                                                                     \
        return (dc + wn_tanh_grad_##S(dh * wn_sigmoid_##S(x.d), t)) * wn_sigmoid_##S(x.b);                             \
    }

#define WN_CELLS_GRU(S, T)                                                                                             \
    WN_FN T wn_gru_##S(struct wn_gates_##S x, T h)                                                                     \
    {                                                                                                                  \
        T fresh = wn_tanh_##S(x.c + wn_sigmoid_##S(x.a) * x.d);                                                        \
        return fresh + wn_sigmoid_##S(x.b) * (h - fresh);                                                              \
    }                                                                                                                  \
    WN_FN struct wn_gates_##S wn_gru_grad_##S(T dy, struct wn_gates_##S x, T h) {                                      \
        T reset = wn_sigmoid_##S(x.a), update = wn_sigmoid_##S(x.b), fresh = wn_tanh_##S(x.c + reset * x.d);           \
        T d = wn_tanh_grad_##S(dy * ((T)1 - update), fresh);                                                           \
        struct wn_gates_##S dx = {wn_sigmoid_grad_##S(d * x.d, reset), wn_sigmoid_grad_##S(dy *(h - fresh), update),   \
                                  d, d *reset};                                                                        \
        return dx;                                                                                                     \
    } WN_FN T wn_gru_grad_state_##S(T dy, struct wn_gates_##S x)                                                       \
    {                                                                                                                  \
        return dy * wn_sigmoid_##S(x.b);                                                                               \
    }

WN_CELLS(f32, float)
WN_CELLS(f64, double)
#endif
