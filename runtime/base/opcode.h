/* Declares the ops by number, their rows of op.def, and the facts of an op that both its rules (runtime/ops/) and its
 * kernels (kernels/) need: limits, and the steps of fused ops. runtime/ops/op.h declares the rules. */
#ifndef WN_BASE_OPCODE_H
#define WN_BASE_OPCODE_H
#include <stdint.h>
#include <string.h>
#include "desc.h"
#include "ranks.h"

enum wn_op {
#define OP(NAME, name, lo, hi, family, flags, operands, autocast, positions) WN_OP_##NAME,
#include "../op.def"
#undef OP
    WN_OP_COUNT
};

/* The bits of wn__op_flags; the head of op.def says what each means. */
#define WN_OP_FLAGS(FLAG)                                                                                              \
    FLAG(LEAF, 1), FLAG(RANDOM, 2), FLAG(EFFECT, 4), FLAG(ALIAS, 8), FLAG(INPLACE, 16), FLAG(INDEX, 32),               \
        FLAG(OFFSET, 64), FLAG(NUMBERS, 128), FLAG(CHECKED, 256), FLAG(REAL, 512), FLAG(WHOLE, 1024),                  \
        FLAG(LINK, 2048), FLAG(IMAGE, 4096), FLAG(IMAGES, 8192)
#define WN_OP_FLAG(name, bit) WN_##name = bit
enum wn_op_flag { WN_OP_FLAGS(WN_OP_FLAG) };
#define WN_OFFSET_AT 1 /* attrs.i[WN_OFFSET_AT] is the offset of an op with the flag OFFSET */

/* A row of op.def. */
struct wn__op_row {
    const char *name;
    int32_t least, most; /* numbers of inputs */
    int32_t flags;       /* bits of enum wn_op_flag */
    int32_t operands;    /* 1 or 2, of an op that may be a step or a product's epilogue; 0: it may be neither */
    const char *autocast, *positions;
};
extern const struct wn__op_row wn__op_rows[]; /* (WN_OP_COUNT) */
static inline int32_t wn__op_is(int32_t op)
{
    return op >= 0 && op < WN_OP_COUNT;
}
/* Return the name, the flags and the operands of an op; "unknown op" or 0 for a number that is none. */
static inline const char *wn__op_name(int32_t op)
{
    return wn__op_is(op) ? wn__op_rows[op].name : "unknown op";
}
static inline int32_t wn__op_flags(int32_t op)
{
    return wn__op_is(op) ? wn__op_rows[op].flags : 0;
}
static inline int32_t wn__elementwise_operands(int32_t op)
{
    return wn__op_is(op) ? wn__op_rows[op].operands : 0;
}
/* Returns how many leading inputs of an op over images are images; 0: the op is none of these. */
static inline int32_t wn__op_images(int32_t op)
{
    return wn__op_flags(op) / WN_IMAGE;
}

/* ---- losses ---------------------------------------------------------------------------------------------- */
/* attrs.i of ROW_NLL and ROW_NLL_GRAD: the label that does not count; 1 where there are statistics of the rows, because
 * x are logits; of the gradient the number of classes. */
enum { WN_LOSS_IGNORED, WN_LOSS_STATS, WN_LOSS_CLASSES };

/* The inputs of ROW_NLL (x, labels[, stats][, weight]) and ROW_NLL_GRAD (dy, labels[, x, stats][, weight]) by place;
 * -1: there is none. n: how many inputs there are with these. */
struct wn__loss_inputs {
    int32_t x, stats, weight, n;
};
static inline struct wn__loss_inputs wn__loss_inputs(const struct wn_desc *d)
{
    const int32_t is_grad = d->op == WN_OP_ROW_NLL_GRAD, has = d->attrs.i[WN_LOSS_STATS] != 0,
                  known = 2 + (is_grad ? 2 * has : has);
    struct wn__loss_inputs at = {is_grad ? -1 : 0, has ? known - 1 : -1, d->n_in > known ? known : -1,
                                 d->n_in > known ? known + 1 : known};
    if (is_grad && has) at.x = 2;
    return at;
}

/* The sides of a product (m, k) by (k, n). */
struct wn__sides {
    int64_t m, n, k;
};
/* Returns the sides of the product that MATMUL, LINEAR, their forms with an epilogue or PRODUCT_UPDATE compute: of each
 * matrix of a batch, of all rows of LINEAR. Zeros for another op. */
static inline struct wn__sides wn__product_sides(const struct wn_desc *d)
{
    const int32_t is_linear = d->op == WN_OP_LINEAR || d->op == WN_OP_LINEAR_MAP;
    struct wn__sides s = {0, 0, 0};
    if (!is_linear && d->op != WN_OP_MATMUL && d->op != WN_OP_MATMUL_MAP && d->op != WN_OP_PRODUCT_UPDATE) return s;
    const struct wn_type *a = &d->in[0], *b = &d->in[1];
    const int32_t flip_a = !is_linear && d->attrs.i[0] != 0, flip_b = is_linear || d->attrs.i[1] != 0;
    s.k = a->dim[a->ndim - (flip_a ? 2 : 1)];
    s.n = b->dim[b->ndim - (flip_b ? 2 : 1)];
    s.m = is_linear ? (s.n > 0 ? wn__numel(&d->out) / s.n : 0) : a->dim[a->ndim - (flip_a ? 1 : 2)];
    return s;
}

/* Returns whether the result of an op may lie where input k does, if both have one type: the op has the flag INPLACE,
 * and element i of the input is read for element i of the result alone. Statistics of rows are not: of two classes they
 * have the type of logits. */
static inline int32_t wn__may_overwrite(int32_t op, const struct wn_attrs *attrs, int32_t k)
{
    if ((wn__op_flags(op) & WN_INPLACE) == 0) return 0;
    return op != WN_OP_ROW_NLL_GRAD || (attrs->i[WN_LOSS_STATS] != 0 && k == 2);
}

/* The kinds of elements of WITHIN: the weight of a position that is drawn, the number of positions of a row that can
 * be, a probability. */
enum { WN_WITHIN_WEIGHT, WN_WITHIN_POSITIONS, WN_WITHIN_CHANCE };

/* ---- creation -------------------------------------------------------------------------------------------- */
/* attrs.i of a FULL or of random values of one dim: their number; the element that the first of them is of a whole
 * value, whose numbers they are, behind all that a shape may have. */
enum { WN_CREATED_COUNT, WN_CREATED_FIRST = WN_MAX_DIMS - 1 };
#define WN_CREATED_STEP 4 /* such an element is a multiple of it: one call of Philox makes four */
static inline int64_t wn__created_first(const struct wn_desc *d)
{
    return d->out.ndim == 1 ? d->attrs.i[WN_CREATED_FIRST] : 0;
}

/* ---- running statistics ------------------------------------------------------------------------------------ */
/* attrs.i of RUNNING_MEAN and RUNNING_VAR: elements of a channel. Of a value with the statistics of many micro-batches,
 * rows of C behind each other, rank by rank: how many micro-batches of a partial sum each rank has, 0 where the value
 * is one statistic; how many ranks share a partial sum; how often a micro-batch changes the buffer. */
enum { WN_RUNNING_COUNT, WN_RUNNING_PASSES, WN_RUNNING_SHARE, WN_RUNNING_USES };

/* Returns which row is taken k-th: micro-batches go in their order, and those of a shared partial sum go round. */
static inline int64_t wn__running_row(const struct wn_attrs *a, int64_t k)
{
    int64_t passes = a->i[WN_RUNNING_PASSES], share = a->i[WN_RUNNING_SHARE], uses = a->i[WN_RUNNING_USES];
    if (passes == 0) return k;
    int64_t use = k % uses, rank = k / uses % share, pass = k / (uses * share) % passes,
            part = k / (uses * share * passes);
    return ((part * share + rank) * passes + pass) * uses + use;
}
/* Returns how many rows a value of one dim, or of a dim of ranks and one of what each gives, has. */
static inline int64_t wn__running_rows(const struct wn_attrs *a, const struct wn_type *value)
{
    int64_t passes = a->i[WN_RUNNING_PASSES];
    return passes == 0 ? 1 : value->dim[0] * passes * a->i[WN_RUNNING_USES];
}

/* ---- ranks ----------------------------------------------------------------------------------------------- */
/* attrs.i of the ops among ranks, which cut a value (ranks.h): the number of ranks; this one; the cut's start; how many
 * of the group, the first ones, give a value; elements of the value that is cut; 1 where every rank gets the whole of
 * it; how many consecutive ranks are a team; the group that takes part, an enum wn_group. */
enum {
    WN_RANKS_SIZE,
    WN_RANKS_RANK,
    WN_RANKS_START,
    WN_RANKS_GIVEN,
    WN_RANKS_ELEMENTS,
    WN_RANKS_WHOLE,
    WN_RANKS_TEAM,
    WN_RANKS_GROUP,
    WN_RANKS_COUNT
};

static inline struct wn__cut wn__cut_of(const struct wn_attrs *a)
{
    return (struct wn__cut){a->i[WN_RANKS_ELEMENTS], (int32_t)a->i[WN_RANKS_SIZE], (int32_t)a->i[WN_RANKS_START],
                            (int32_t)a->i[WN_RANKS_TEAM]};
}
/* Returns what a rank gets: of an exchange inside a team its share, else its part, or the whole. */
static inline struct wn__range wn__range_at(const struct wn_attrs *a, int32_t rank)
{
    const struct wn__cut cut = wn__cut_of(a);
    return a->i[WN_RANKS_WHOLE] ? (struct wn__range){0, cut.elements}
                                : wn__range_of(&cut, rank, a->i[WN_RANKS_GROUP] == WN_GROUP_TEAM);
}
static inline struct wn__range wn__own_range(const struct wn_attrs *a)
{
    return wn__range_at(a, (int32_t)a->i[WN_RANKS_RANK]);
}
/* Returns the elements that an exchange of values is given: all, or the share of this rank where it goes on across
 * teams. */
static inline struct wn__range wn__given_range(const struct wn_attrs *a)
{
    const struct wn__cut cut = wn__cut_of(a);
    return a->i[WN_RANKS_GROUP] == WN_GROUP_ACROSS ? wn__range_of(&cut, (int32_t)a->i[WN_RANKS_RANK], 1)
                                                   : (struct wn__range){0, cut.elements};
}
/* Returns a rank's number in the group that it takes part with. */
static inline int32_t wn__place_at(const struct wn_attrs *a, int32_t rank)
{
    int32_t team = (int32_t)a->i[WN_RANKS_TEAM], group = (int32_t)a->i[WN_RANKS_GROUP];
    return group == WN_GROUP_TEAM ? rank % team : group == WN_GROUP_ACROSS ? rank / team : rank;
}
/* Returns how many ranks take part. */
static inline int32_t wn__group_size(const struct wn_attrs *a)
{
    int32_t team = (int32_t)a->i[WN_RANKS_TEAM], size = (int32_t)a->i[WN_RANKS_SIZE];
    int32_t group = (int32_t)a->i[WN_RANKS_GROUP];
    return group == WN_GROUP_TEAM ? team : group == WN_GROUP_ACROSS ? size / team : size;
}
/* Returns the rank with number `place` in the group of this one. */
static inline int32_t wn__rank_at(const struct wn_attrs *a, int32_t place)
{
    int32_t team = (int32_t)a->i[WN_RANKS_TEAM], rank = (int32_t)a->i[WN_RANKS_RANK];
    int32_t group = (int32_t)a->i[WN_RANKS_GROUP];
    return group == WN_GROUP_TEAM     ? rank / team * team + place
           : group == WN_GROUP_ACROSS ? place * team + rank % team
                                      : place;
}
/* Returns the elements that those who take part own together, which follow each other. */
static inline struct wn__range wn__group_range(const struct wn_attrs *a)
{
    struct wn__range all = {0, 0};
    for (int32_t k = 0; k < wn__group_size(a); k++) {
        struct wn__range theirs = wn__range_at(a, wn__rank_at(a, k));
        int64_t end = all.first + all.count, last = theirs.first + theirs.count;
        if (theirs.count == 0) continue;
        if (all.count == 0 || theirs.first < all.first) all.first = theirs.first;
        all.count = (all.count > 0 && end > last ? end : last) - all.first;
    }
    return all;
}

/* ---- limits ---------------------------------------------------------------------------------------------- */
/* The largest inner dimension k of PRODUCT_UPDATE, a product that is computed inside the update that reads it: partial
 * sums are never stored. Kernels are held to it. */
enum { WN_PRODUCT_UPDATE_ROWS = 128 };

/* Returns the number of cells that the op of an optimizer writes, the parameter first; 0: the op is none. */
static inline int32_t wn__optimizer_cells(int32_t op)
{
    switch (op) {
    case WN_OP_SGD: return 1;
    case WN_OP_MOMENTUM:
    case WN_OP_RMSPROP:
    case WN_OP_LION: return 2;
    case WN_OP_ADAM:
    case WN_OP_RMSPROP_MOMENTUM:
    case WN_OP_RMSPROP_CENTERED: return 3;
    default: return 0;
    }
}

/* Number of consecutive elements that share one scale in the int8 form of a value. */
enum { WN_INT8_GROUP = 256 };

/* ---- elementwise steps inside one node ------------------------------------------------------------------ */
/* A fused elementwise op: n elementwise ops, its steps, 1 <= n <= WN_FUSED_STEPS. Each step reads inputs of the node
 * and values of earlier steps; the value of step n - 1 is the result of the node. Operand k < WN_FUSED_INPUTS is input
 * k of the node; operand k >= WN_FUSED_INPUTS is step k - WN_FUSED_INPUTS. */
enum { WN_FUSED_INPUTS = 4, WN_FUSED_STEPS = 6 };
struct wn__fused {
    int32_t n; /* number of steps */
    struct wn__fused_step {
        int32_t op;         /* WN_OP_* of an elementwise op */
        int32_t operand[2]; /* operand[1] counts only where the op has two operands */
    } step[WN_FUSED_STEPS];
};
/* A BATCH_NORM_MAP: at most WN_NORM_STEPS steps, whose operand 0 is the value of the norm and the steps so far, operand
 * k > 0 the input WN_NORM_INPUTS + k - 1 of the node; the groups of the norm are an attribute behind them.
 *
 * A CONV2D_MAP: behind the attributes of the convolution, WN_CONV_MAP_INPUTS, the number of inputs of the convolution
 * and of the batch norm over it, x, w[, b][, mean, rstd, weight, bias], and at most WN_CONV_STEPS steps, whose operand
 * 0 is the value so far and operand 1 the one input behind those. */
enum {
    WN_NORM_STEPS = 4,
    WN_NORM_INPUTS = 5,
    WN_NORM_MAP_GROUPS = 7,
    WN_CONV_MAP_INPUTS = 5,
    WN_CONV_MAP_STEP = 6, /* the first */
    WN_CONV_STEPS = 2
};

/* Read and write steps as attributes behind the first `from`, 0 of an ELEMENTWISE or a BATCH_NORM_MAP:
 * attrs.n = from + n, and of step k attrs.i[from + k] = op << 8 | operand[1] << 4 | operand[0]. */
static inline struct wn__fused wn__fused_get(const struct wn_attrs *a, int32_t from)
{
    struct wn__fused c;
    memset(&c, 0, sizeof c);
    c.n = a->n - from;
    for (int32_t k = 0; k < c.n && k < WN_FUSED_STEPS && from + k < WN_MAX_DIMS; k++) {
        c.step[k].op = (int32_t)(a->i[from + k] >> 8);
        c.step[k].operand[0] = (int32_t)(a->i[from + k] & 15);
        c.step[k].operand[1] = (int32_t)(a->i[from + k] >> 4 & 15);
    }
    return c;
}
static inline void wn__fused_put(const struct wn__fused *c, int32_t from, struct wn_attrs *a)
{
    a->n = from + c->n;
    for (int32_t k = 0; k < c->n; k++)
        a->i[from + k] = (int64_t)c->step[k].op << 8 | c->step[k].operand[1] << 4 | c->step[k].operand[0];
}

/* The inputs of a CONV2D_MAP. norm: where those of the batch norm begin, mean, rstd, weight and bias; 0: there is none.
 * conv: inputs of the convolution. image: the input that is operand 1 of steps. */
struct wn__conv_map {
    int32_t conv, norm, image;
    struct wn__fused steps;
};
static inline struct wn__conv_map wn__conv_map_get(const struct wn_attrs *a)
{
    const int32_t image = (int32_t)a->i[WN_CONV_MAP_INPUTS], has_norm = image > 3, conv = image - 4 * has_norm;
    struct wn__conv_map m = {conv, has_norm ? conv : 0, image, wn__fused_get(a, WN_CONV_MAP_STEP)};
    return m;
}
#endif
