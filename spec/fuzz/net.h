/* Records random networks: the same bytes record the same network on the same first values. A value whose call fails,
 * because a fault was set off or a shape does not fit, is left out of the network. Most values are (rows, width) of one
 * float dtype, so that every step can follow every other. Values of other shapes reach the loss through their mean. */
#ifndef WN_FUZZ_NET_H
#define WN_FUZZ_NET_H
#include <math.h>
#include <stdlib.h>
#include "bytes.h"
#include "wane_inspect.h"
#include "wane_test.h"

enum { NET_CELLS = 8, NET_VALUES = 32, NET_LOOSE = 8, NET_OPEN = 512 };
struct net {
    int32_t device, dtype, retains;
    int64_t rows, width;
    int32_t cell[NET_CELLS], state[NET_CELLS][2], hyper, n_cells; /* 0..2: (width, width), 3..5: (width) */
    int32_t value[NET_VALUES], n;                                 /* (rows, width) */
    int32_t loose[NET_LOOSE], n_loose;                            /* floats of other shapes */
    int32_t x, ids, loss;
    int32_t opened[NET_OPEN], n_opened; /* handles that net_close releases */
};

static int32_t net_own(struct net *w, int32_t id)
{
    if (id < 0) return -1;
    if (w->n_opened < NET_OPEN) w->opened[w->n_opened++] = id;
    else wn_release(id), id = -1;
    return id;
}

static int32_t net_type(int32_t id, struct wn_type *t)
{
    struct wn_value_info info;
    if (id < 0 || wn_value_info(id, &info) != 0) return 0;
    *t = info.type;
    return 1;
}

static int64_t net_bytes(const struct wn_type *t)
{
    static const int64_t size[] = {4, 8, 4, 1, 1, 2, 2};
    int64_t n = size[t->dtype];
    for (int32_t k = 0; k < t->ndim; k++) n *= t->dim[k];
    return n;
}

/* ---- recording --------------------------------------------------------------------------------------------------- */

static int32_t net_op(struct net *w, const char *op, int32_t n, const int32_t *in, const struct wn_attrs *a)
{
    static int32_t line;
    for (int32_t i = 0; i < n; i++)
        if (in[i] < 0) return -1;
    if (line <= 0) line = wn_line("net.lua:1");
    return net_own(w, wn_record(wn_op_id(op), n, in, a, line));
}

static int32_t net_one(struct net *w, const char *op, int32_t a)
{
    return net_op(w, op, 1, &a, NULL);
}

static int32_t net_two(struct net *w, const char *op, int32_t a, int32_t b)
{
    int32_t in[] = {a, b};
    return net_op(w, op, 2, in, NULL);
}

/* Returns attributes with n integers. */
static struct wn_attrs net_attrs(int32_t n, int64_t a, int64_t b, int64_t c)
{
    return (struct wn_attrs){.n = n, .i = {a, b, c}};
}

static int32_t net_with(struct net *w, const char *op, int32_t a, struct wn_attrs attrs)
{
    return net_op(w, op, 1, &a, &attrs);
}

static int32_t net_cast(struct net *w, int32_t v, int32_t dtype)
{
    struct wn_type t;
    if (!net_type(v, &t) || t.dtype == dtype) return v;
    return net_with(w, "cast", v, (struct wn_attrs){.dtype = (int16_t)dtype});
}

static int32_t net_created(struct net *w, const char *op, int32_t dtype, int32_t layout, int64_t rows, int64_t columns)
{
    struct wn_attrs a = net_attrs(columns > 0 ? 2 : 1, rows, columns, 0);
    a.dtype = (int16_t)dtype;
    a.layout = (int16_t)layout;
    a.f[0] = strcmp(op, "full") == 0 ? 0.5 : strcmp(op, "uniform") == 0 ? -0.5 : 0;
    a.f[1] = strcmp(op, "arange") == 0 ? 0.01 : 0.3;
    return net_op(w, op, 0, NULL, &a);
}

/* Draws one of the values: half of the time the last one. */
static int32_t net_pick(struct net *w, struct bytes *b)
{
    uint8_t v = take(b);
    if (w->n == 0) return -1;
    return v < 128 ? w->value[w->n - 1] : w->value[v % w->n];
}

static int32_t net_matrix(struct net *w, struct bytes *b)
{
    return net_cast(w, w->cell[take(b) % 3], w->dtype);
}

static int32_t net_vector(struct net *w, struct bytes *b)
{
    return net_cast(w, w->cell[3 + take(b) % 3], w->dtype);
}

static int32_t net_shaped(struct net *w, int32_t v)
{
    return net_with(w, "reshape", v, net_attrs(2, w->rows, w->width, 0));
}

static int32_t net_loose(struct net *w, int32_t v)
{
    if (v >= 0 && w->n_loose < NET_LOOSE) w->loose[w->n_loose++] = v;
    return -1;
}

/* ---- steps: each returns a value of (rows, width), or -1 --------------------------------------------------------- */

static int32_t net_elementwise(struct net *w, struct bytes *b)
{
    static const char *const one[] = {"neg",  "abs",     "exp",  "relu",  "gelu", "silu", "tanh",
                                      "tanh", "sigmoid", "sqrt", "rsqrt", "relu", "log",  "clamp"};
    static const char *const two[] = {"add", "sub", "mul", "div", "maximum", "minimum", "pow"};
    static const char *const compare[] = {"eq", "ne", "lt", "gt", "le", "ge"};
    int32_t a = net_pick(w, b), c = net_pick(w, b), k = take(b) % 4;
    if (k == 0) {
        const char *op = one[take(b) % 14];
        if (strcmp(op, "clamp") == 0) return net_with(w, op, a, (struct wn_attrs){.f = {-0.25, 0.5}});
        if (op[0] == 'l' || strstr(op, "sqrt") != NULL) a = net_one(w, "exp", net_one(w, "tanh", a));
        return net_one(w, op, a);
    }
    if (k == 1) {
        double half[] = {0.5};
        return net_two(w, "mul", a, net_own(w, wn_const(half, 0, w->dtype)));
    }
    if (k == 2) {
        int32_t in[] = {net_two(w, compare[take(b) % 6], a, c), a, c};
        return net_op(w, "where", 3, in, NULL);
    }
    int32_t op = take(b) % 7;
    if (op == 6) a = net_one(w, "exp", net_one(w, "tanh", a));
    return net_two(w, two[op], a, take(b) < 200 ? c : net_vector(w, b));
}

static int32_t net_product(struct net *w, struct bytes *b)
{
    int32_t a = net_pick(w, b), m = net_matrix(w, b), k = take(b) % 4;
    if (k == 0) {
        int32_t in[] = {a, m, net_vector(w, b)};
        return net_op(w, "linear", 3, in, NULL);
    }
    if (k == 1) m = net_one(w, "tanh", m);
    struct wn_attrs turned = net_attrs(2, 0, take(b) & 1, 0);
    int32_t in[] = {a, m};
    int32_t y = net_op(w, "matmul", 2, in, &turned);
    if (k != 3) return y;
    int32_t grown[] = {a, y};
    turned = net_attrs(2, 1, 0, 0);
    return net_two(w, "mul", y, net_one(w, "mean", net_op(w, "matmul", 2, grown, &turned)));
}

static int32_t net_norm(struct net *w, struct bytes *b)
{
    int32_t x = net_pick(w, b), mean = net_one(w, "row_mean", x), pair[] = {x, mean};
    struct wn_attrs eps = {.f = {1e-5}};
    int32_t in[] = {x, mean, net_op(w, "row_rstd", 2, pair, &eps), net_vector(w, b), net_vector(w, b)};
    return net_op(w, "layernorm", 5, in, NULL);
}

static int32_t net_rows(struct net *w, struct bytes *b)
{
    static const char *const ops[] = {"softmax", "log_softmax", "max", "min", "sum", "mean"};
    int32_t a = net_pick(w, b), k = take(b) % 6;
    struct wn_attrs at = net_attrs(1, take(b) & 1, 0, 0);
    if (k < 2) return net_with(w, ops[k], a, at);
    at.i[7] = 1;
    int32_t few = net_with(w, ops[k], a, at);
    if (take(b) & 1) few = net_with(w, "expand", few, net_attrs(2, w->rows, w->width, 0));
    return net_two(w, "sub", a, few);
}

static int32_t net_cut(struct net *w, struct bytes *b)
{
    int32_t a = net_pick(w, b), c = net_pick(w, b), dim = take(b) & 1;
    int64_t all = dim == 0 ? w->rows : w->width, first = take(b) % (all + 1);
    struct wn_attrs along = net_attrs(1, dim, 0, 0);
    int32_t in[] = {net_with(w, "narrow", a, net_attrs(3, dim, 0, first)),
                    net_with(w, "narrow", c, net_attrs(3, dim, first, all - first))};
    if (first == 0) return in[1];
    if (first == all) return in[0];
    return net_op(w, "cat", 2, in, &along);
}

static int32_t net_turned(struct net *w, struct bytes *b)
{
    int32_t t = net_with(w, "permute", net_pick(w, b), net_attrs(2, 1, 0, 0));
    if (take(b) & 1) return net_with(w, "permute", t, net_attrs(2, 1, 0, 0));
    return net_shaped(w, t);
}

static int32_t net_attention(struct net *w, struct bytes *b)
{
    int32_t qkv = net_with(w, "reshape", net_pick(w, b), net_attrs(3, 1, w->rows, w->width));
    int64_t heads = w->width == 12 ? 1 + take(b) % 2 : 2, keys = heads == 2 && w->width == 12 ? 2 : 1;
    struct wn_attrs a = net_attrs(3, heads, keys, take(b) & 1);
    a.f[0] = take(b) < 100 ? 0.25 : 0;
    a.f[1] = 0.5;
    int32_t y = net_with(w, "attention", qkv, a);
    return net_loose(w, y);
}

static int32_t net_table(struct net *w, struct bytes *b)
{
    int32_t k = take(b) % 3, a = net_pick(w, b);
    if (k == 0) return net_two(w, "embedding", net_matrix(w, b), w->ids);
    struct wn_attrs at = net_attrs(1, 1, 0, 0);
    if (k == 1) {
        int32_t in[] = {a, net_with(w, "reshape", w->ids, net_attrs(2, w->rows, 1, 0))};
        return net_loose(w, net_op(w, "gather", 2, in, &at));
    }
    int32_t in[] = {a, w->ids, net_one(w, "row_stats", a)};
    struct wn_attrs of_logits = net_attrs(2, -100, 1, 0);
    return net_loose(w, net_op(w, "row_nll", 3, in, &of_logits));
}

static int32_t net_through(struct net *w, struct bytes *b)
{
    static const int32_t others[] = {5, 5, 1, 0, 6};
    int32_t a = net_cast(w, net_pick(w, b), others[take(b) % 5]);
    if (take(b) & 1) a = net_one(w, "gelu", a);
    return net_cast(w, a, w->dtype);
}

static int32_t net_random(struct net *w, struct bytes *b)
{
    static const char *const ops[] = {"uniform", "normal", "arange", "full", "eye"};
    int32_t k = take(b) % 7;
    if (k > 4) return net_with(w, "dropout", net_pick(w, b), (struct wn_attrs){.f = {0.3}});
    int32_t made = k == 2 ? net_shaped(w, net_created(w, ops[k], w->dtype, 0, w->rows * w->width, 0))
                          : net_created(w, ops[k], w->dtype, 0, w->rows, w->width);
    return net_two(w, "mul", net_pick(w, b), made);
}

/* Records y = tanh(x) with the custom gradient dy * x. */
static int32_t net_custom(struct net *w, struct bytes *b)
{
    int32_t x = net_pick(w, b), y = net_one(w, "tanh", x);
    int32_t dy = net_created(w, "full", w->dtype, 0, w->rows, w->width), r = net_two(w, "mul", dy, x);
    return y < 0 || r < 0 ? -1 : net_own(w, wn_custom(y, 1, &x, dy, &r, 0));
}

/* Returns the mean of a value of any shape, in the dtype of the network. */
static int32_t net_mean(struct net *w, int32_t v)
{
    struct wn_type t;
    if (!net_type(v, &t)) return -1;
    if (t.dtype != 0 && t.dtype != 1) v = net_cast(w, v, 0);
    return net_cast(w, net_one(w, "mean", v), w->dtype);
}

/* Adds the square of a gradient to the loss, so that the training takes a second gradient. */
static int32_t net_second(struct net *w, struct bytes *b)
{
    int32_t v = w->n_loose > 0 && take(b) < 100 ? w->loose[take(b) % w->n_loose] : net_pick(w, b);
    int32_t root = net_mean(w, v), wrt[2] = {w->cell[take(b) % w->n_cells], w->cell[take(b) % w->n_cells]};
    int32_t got[2] = {-1, -1};
    if (root < 0 || wn_grad(root, 2, wrt, got) != 0) return -1;
    for (int32_t i = 0; i < 2; i++) {
        int32_t g = net_own(w, got[i]);
        net_loose(w, net_two(w, "mul", g, g));
    }
    return -1;
}

static int32_t net_step(struct net *w, struct bytes *b)
{
    switch (take(b) % 14) {
    case 0:
    case 1:
    case 2: return net_elementwise(w, b);
    case 3:
    case 4: return net_product(w, b);
    case 5: return net_norm(w, b);
    case 6: return net_rows(w, b);
    case 7: return net_cut(w, b);
    case 8: return net_turned(w, b);
    case 9: return net_attention(w, b);
    case 10: return net_table(w, b);
    case 11: return net_through(w, b);
    case 12: return net_random(w, b);
    default: return take(b) < 128 ? net_custom(w, b) : net_second(w, b);
    }
}

/* Records n steps; some of them are several steps in a scope or a region of their own. */
static void net_grow(struct net *w, struct bytes *b, int32_t n, int32_t depth)
{
    for (int32_t k = 0; k < n && w->n < NET_VALUES; k++) {
        uint8_t how = take(b);
        if (how > 215 && depth < 3) {
            const struct wn_context before = *wn_here();
            if (how & 1) wn_here()->scope = wn_scope(before.scope, "block", "Block", how % 3);
            if (how & 2) wn_here()->region = wn_region_new(before.region, "block");
            net_grow(w, b, 1 + take(b) % 5, depth + 1);
            wn_here()->region = before.region;
            wn_here()->scope = before.scope;
            continue;
        }
        int32_t grad = wn_here()->grad;
        if (how < 6) wn_here()->grad = 0;
        struct wn_type t;
        int32_t v = net_step(w, b);
        wn_here()->grad = grad;
        if (!net_type(v, &t) || t.dtype != w->dtype || t.ndim != 2 || t.dim[0] != w->rows || t.dim[1] != w->width) {
            net_loose(w, v);
            continue;
        }
        w->value[w->n++] = v;
        if (how > 200) wn_rename(v, "named");
        if (how > 190 && how < 195 && w->retains) wn_retain(v);
    }
}

/* Records the network and its loss, which is one number. Returns the loss, or -1. */
static int32_t net_record(struct net *w, struct bytes b)
{
    w->n = w->n_loose = 0;
    if (w->x >= 0) w->value[w->n++] = w->x;
    wn_seed(11);
    int32_t steps = 3 + take(&b) % 14;
    w->value[w->n] = net_two(w, "mul", w->x, net_vector(w, &b));
    if (w->value[w->n] >= 0) w->n++;
    net_grow(w, &b, steps, 0);
    w->loss = w->n > 0 ? net_mean(w, w->value[w->n - 1]) : -1;
    if (take(&b) & 1) w->loss = net_two(w, "add", w->loss, net_mean(w, net_pick(w, &b)));
    for (int32_t i = 0; i < w->n_loose; i++) {
        int32_t sum = net_two(w, "add", w->loss, net_mean(w, w->loose[i]));
        if (sum >= 0) w->loss = sum;
    }
    return w->loss;
}

/* ---- the world that a network is in ------------------------------------------------------------------------------ */

static int32_t net_data(struct net *w, int32_t dtype, int64_t rows, int64_t columns)
{
    static double room[128 * 16];
    struct wn_type t = {.dtype = dtype, .ndim = columns > 0 ? 2 : 1, .dim = {rows, columns}};
    int64_t n = rows * (columns > 0 ? columns : 1);
    for (int64_t i = 0; i < n; i++) {
        double v = (double)((i * 37 + 11) % 64) / 32 - 1;
        if (dtype == 0) ((float *)room)[i] = (float)v;
        else if (dtype == 1) room[i] = v;
        else ((int32_t *)room)[i] = (int32_t)(i % 5);
    }
    return net_own(w, wn_data(&t, w->device, room));
}

static void net_cells(struct net *w, struct bytes *b)
{
    w->n_cells = 6;
    w->hyper = net_own(w, wn_hyper());
    static const double hyper[] = {0.05, 0.01, 0.9, 0.99, 1e-6, 0.1, 0.01, 1};
    for (int32_t i = 0; i < 8; i++) wn_hyper_set(w->hyper, i, hyper[i]);
    for (int32_t i = 0; i < w->n_cells; i++) {
        uint8_t how = take(b);
        int32_t dtype = how > 240 ? 5 : how > 225 ? 1 - w->dtype : w->dtype;
        int32_t laid = i < 3 && w->width % 16 == 0 && (how & 4);
        int64_t columns = i < 3 ? w->width : 0;
        int32_t first = (how & 1) && !laid && dtype < 2 ? net_data(w, dtype, w->width, columns)
                                                        : net_created(w, "normal", dtype, laid, w->width, columns);
        w->cell[i] = net_own(w, wn_cell(WN_KIND_PARAMETER, first, (how & 2) ? "w" : NULL));
        if (how < 230) wn_cell_need_grad(w->cell[i], 1);
        for (int32_t k = 0; k < 2; k++) {
            int32_t zero = net_created(w, "full", dtype, laid, w->width, columns);
            w->state[i][k] = net_own(w, wn_cell(WN_KIND_OPTIMIZER, zero, NULL));
        }
    }
}

/* Returns the id of a device, here or not. */
static int32_t net_device(const char *name)
{
    int32_t d = 0;
    while (wn_device_name(d) != NULL && strcmp(wn_device_name(d), name) != 0) d++;
    return d;
}

static void net_world(struct net *w, struct bytes *b)
{
    static const int64_t rows[] = {1, 2, 5, 64, 128, 64};
    uint8_t how = take(b), where = take(b);
    *w = (struct net){.device = where > 235 ? net_device("meta") : where > 200 ? net_device("mirror") : 0, .loss = -1};
    wn_device_set(w->device);
    wn_seed(5);
    w->dtype = how < 200 ? 0 : 1;
    uint8_t many = take(b);
    w->rows = many < 26 ? 0 : rows[many % 6]; /* one batch of ten is empty */
    w->width = how & 1 ? 12 : 16;
    w->x = net_data(w, w->dtype, w->rows, w->width);
    w->ids = net_data(w, 2, w->rows, 0);
    net_cells(w, b);
}

/* Releases every handle, in an order that the bytes choose. */
static void net_close(struct net *w, struct bytes *b)
{
    uint8_t turn = take(b);
    for (int32_t i = 0; i < w->n_opened; i++) {
        int32_t k = turn < 100 ? i : turn < 200 ? w->n_opened - 1 - i : i ^ 1;
        wn_release(w->opened[k < w->n_opened ? k : i]);
    }
    w->n_opened = 0;
}
#endif
