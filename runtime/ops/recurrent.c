/* Cells of recurrent layers: one step, over the last dim. H is the size of the state, s the sigmoid.
 *
 *     lstm_cell   x: (..., 4 H), c: (..., H) -> (..., 2 H): the next h, then the next c
 *                     i, f, g, o = s(x0), s(x1), tanh(x2), s(x3)      c' = f c + i g      h' = o tanh(c')
 *     gru_gates   x, y: (..., 3 H) -> (..., 4 H): x0 + y0, x1 + y1, x2, y2
 *     gru_cell    x: (..., 4 H), h: (..., H) -> h': (..., H)
 *                     r, z = s(x0), s(x1)      n = tanh(x2 + r x3)      h' = n + z (h - n)
 *
 * The x and y of gru_gates are the projections of the input and of h, which the gate r keeps apart. Gradients of cells
 * are ops (dy, x, state), that of input attrs.i[0]: they read the inputs of the cell alone, so a step keeps its gates
 * and its state and nothing else. (Hochreiter and Schmidhuber, "Long Short-Term Memory", 1997; Cho et al., "Learning
 * Phrase Representations using RNN Encoder-Decoder", 2014, with the gate r as PyTorch and cuDNN have it.) */
#include "helper.h"

/* FLOPs of an element of the state. */
static const double flops[WN_OP_COUNT] = {
    [WN_OP_LSTM_CELL] = 40, [WN_OP_LSTM_CELL_GRAD] = 60, [WN_OP_GRU_CELL] = 30, [WN_OP_GRU_CELL_GRAD] = 45};

/* Fails unless input i is (..., parts H), for (..., H) the type of input `state`. */
static int32_t check_gates(const struct wn_desc *d, int32_t i, int32_t state, int64_t parts)
{
    struct wn_type want = d->in[state];
    WN_TRY(wn__need_float(d));
    if (want.ndim < 1 || want.dim[want.ndim - 1] < 1)
        return wn__fail(WN_SHAPE, "%s: the state is %s, expected a last dim of 1 or more", wn__op_name(d->op),
                        wn__shape_text(&want));
    if (wn__mul(parts, want.dim[want.ndim - 1], &want.dim[want.ndim - 1]) != WN_OK)
        return wn__fail_more(WN_VALUE, "%s: ", wn__op_name(d->op));
    return wn__need_shape(d, i, &want, "the gates");
}

/* Writes the type of the gradient of a cell: dy, whose rows have one state, or two of an LSTM, x, state. */
static int32_t shape_cell_grad(struct wn_desc *d)
{
    int64_t i = d->attrs.i[0], parts = d->op == WN_OP_LSTM_CELL_GRAD ? 2 : 1;
    WN_TRY(check_gates(d, 1, 2, 4));
    WN_TRY(check_gates(d, 0, 2, parts));
    if (i != 0 && i != 1)
        return wn__fail(WN_VALUE, "%s: the gradient of input %" PRId64 " asked for, of 2", wn__op_name(d->op),
                        wn__from_one(i));
    d->out = d->in[1 + i];
    return WN_OK;
}

static struct wn_cost cost_cell(const struct wn_desc *d)
{
    return wn__cost_of(d, flops[d->op] * (double)wn__numel(&d->in[d->n_in - 1]));
}

/* Records the gradient of each input that is wanted. */
static void grad_cell(struct wn__grad *g)
{
    int32_t op = g->d->op == WN_OP_LSTM_CELL ? WN_OP_LSTM_CELL_GRAD : WN_OP_GRU_CELL_GRAD;
    struct wn_node *in[3] = {g->dy, g->in[0], g->in[1]};
    for (int32_t i = 0; i < 2; i++) {
        struct wn_attrs of = {.n = 1, .i = {i}};
        if (wn__wants(g, i)) g->dx[i] = wn__emit(g->e, op, 3, in, &of);
    }
}

/* ---- lstm_cell, lstm_cell_grad ---------------------------------------------------------------------- */
static int32_t shape_lstm_cell(struct wn_desc *d)
{
    WN_TRY(check_gates(d, 0, 1, 4));
    d->out = d->in[1];
    d->out.dim[d->out.ndim - 1] *= 2;
    return WN_OK;
}

const struct wn__rules wn__rules_lstm_cell = {shape_lstm_cell, grad_cell, .cost = cost_cell};
const struct wn__rules wn__rules_lstm_cell_grad = {shape_cell_grad, wn__grad_lstm_cell_grad, .cost = cost_cell};

/* ---- gru_gates -------------------------------------------------------------------------------------- */
static int32_t shape_gru_gates(struct wn_desc *d)
{
    const struct wn_type *x = &d->in[0];
    int64_t width = x->ndim > 0 ? x->dim[x->ndim - 1] : 0;
    WN_TRY(wn__need_float(d));
    if (width < 3 || width % 3 != 0)
        return wn__fail(WN_SHAPE, "%s: the gates are %s, expected a last dim of three times the state",
                        wn__op_name(d->op), wn__shape_text(x));
    WN_TRY(wn__need_shape(d, 1, x, "the gates of the state"));
    d->out = *x;
    d->out.dim[x->ndim - 1] = width / 3 * 4;
    return wn__check_out(d);
}

/* Records `length` elements of the last dim of dy, from `start` on. */
static struct wn_node *part(struct wn__grad *g, int64_t start, int64_t length)
{
    struct wn_attrs at = {.n = 3, .i = {g->d->out.ndim - 1, start, length}};
    return wn__emit_op(g, WN_OP_NARROW, g->dy, &at);
}

static void grad_gru_gates(struct wn__grad *g)
{
    int64_t size = g->d->out.dim[g->d->out.ndim - 1] / 4;
    struct wn_attrs along = {.n = 1, .i = {g->d->out.ndim - 1}};
    if (wn__wants(g, 0)) g->dx[0] = part(g, 0, 3 * size);
    if (!wn__wants(g, 1)) return;
    struct wn_node *in[2] = {part(g, 0, 2 * size), part(g, 3 * size, size)};
    g->dx[1] = wn__emit(g->e, WN_OP_CAT, 2, in, &along);
}

const struct wn__rules wn__rules_gru_gates = {shape_gru_gates, grad_gru_gates, .per_output = 1};

/* ---- gru_cell, gru_cell_grad ------------------------------------------------------------------------ */
static int32_t shape_gru_cell(struct wn_desc *d)
{
    WN_TRY(check_gates(d, 0, 1, 4));
    d->out = d->in[1];
    return WN_OK;
}

const struct wn__rules wn__rules_gru_cell = {shape_gru_cell, grad_cell, .cost = cost_cell};
const struct wn__rules wn__rules_gru_cell_grad = {shape_cell_grad, wn__grad_gru_cell_grad, .cost = cost_cell};
