/* The contract of an operation: what a family file in this folder provides for each of its ops, and what
 * it may ask for. Rules see types and attributes, never bytes, devices or the graph; a gradient rule
 * speaks to the graph through `wn__emit`, which is declared here and implemented by graph/.
 * Residuals are not declared anywhere: they are what backward nodes turn out to read. */
#ifndef WN_OPS_OP_H
#define WN_OPS_OP_H
#include <stdint.h>
#include "../base/status.h"
#include "../base/type.h"

enum wn_op {
#define OP(NAME, name, lo, hi, family, flags, operands, autocast, positions, saves) WN_OP_##NAME,
#include "../op.def"
#undef OP
    WN_OP_COUNT
};

enum wn_op_flag {
    WN_LEAF = 1,
    WN_RANDOM = 2,
    WN_EFFECT = 4,
    WN_ALIAS = 8,
    WN_INPLACE = 16,
    WN_INDEX = 32,
    WN_OFFSET = 64,
    WN_NUMBERS = 128
};
#define WN_OFFSET_AT 1 /* which of attrs.i is the offset of an op with the flag OFFSET */

/* ---- rules --------------------------------------------------------------------------------------- */

/* The type of the result, into d->out; d->in, d->n_in and d->attrs are given. Input counts were checked.
 * Errors: WN_SHAPE, WN_DTYPE, WN_VALUE; the message starts with the op's name, says what was given, what
 * was expected, and what to do. */
typedef int32_t (*wn__shape_rule)(struct wn_desc *d);

struct wn_cost {
    double flops;
    double bytes; /* read + written */
};
typedef void (*wn__cost_rule)(const struct wn_desc *d, struct wn_cost *cost);

/* What a plan is made for. Which algorithm computes a node follows from its description and this, and nothing else. */
enum wn_target_kind { WN_TARGET_CPU, WN_TARGET_CUDA };
struct wn__target {
    int32_t kind;
    int32_t library;         /* bit 1 << dtype: large products of that type are a library's (ops/matmul.c) */
    int64_t library_scratch; /* bytes one of them may take at most */
};

/* Scratch a kernel needs on the target, in bytes: pure. A library may turn out to need less (wn_device's prepare). */
typedef int64_t (*wn__workspace_rule)(const struct wn_desc *d, const struct wn__target *t);

/* One application being differentiated. The rule fills dx[i] for every i that wn__wants(g, i), or calls wn__give_zero;
 * one left NULL is refused. dx[i] must have the type of in[i], but for the layout, which it is given afterwards. */
struct wn_node; /* a value of the graph: opaque here */
struct wn__emit;
#define WN_GRAD_MAX 8 /* inputs of a differentiable op with a fixed arity; CAT writes dx one by one */
struct wn__grad {
    struct wn__emit *e;
    const struct wn_desc *d;
    struct wn_node *const *in; /* (n_in) */
    struct wn_node *out;
    struct wn_node *dy;  /* gradient of out, same type as out */
    struct wn_node **dx; /* (n_in) */
};
typedef void (*wn__grad_rule)(struct wn__grad *g);

struct wn__rules {
    wn__shape_rule shape;
    wn__cost_rule cost;
    wn__grad_rule grad;           /* NULL: a float result of it cannot be differentiated, and a pass says so */
    wn__workspace_rule workspace; /* NULL: none */
};

/* The table, assembled in ops/table.c from one symbol an op: `const struct wn__rules wn__rules_<name>`. */
const struct wn__rules *wn__op_rules(int32_t op);
const char *wn__op_name(int32_t op);
int32_t wn__op_flags(int32_t op);
/* Whether an application takes a number: a creation that draws always, dropping something only with a probability. */
int32_t wn__op_draws(int32_t op, const struct wn_attrs *attrs);
static inline int32_t wn__op_has_offset(int32_t op)
{
    return (wn__op_flags(op) & WN_OFFSET) != 0;
}
/* Return the words of three columns of op.def; "" where op is no op. */
const char *wn__op_autocast(int32_t op);
const char *wn__op_positions(int32_t op);
const char *wn__op_saves(int32_t op);
int32_t wn__op_least_inputs(int32_t op);
int32_t wn__op_most_inputs(int32_t op);
int32_t wn__op_find(const char *name); /* -1 when there is none */

/* ---- layouts (layout.c) ------------------------------------------------------------------------------ */
/* Whether input i, which is not plain, is taken as it lies; if not, it is made plain before. */
int32_t wn__op_takes(int32_t op, int32_t n, const struct wn_type *const *in, const struct wn_attrs *attrs, int32_t i);
/* The result's, once no input is left that is not taken so. */
int32_t wn__op_layout(int32_t op, int32_t n, const struct wn_type *const *in, const struct wn_attrs *attrs);
/* Returns whether the kernels of an application read each operand, and write the result, in the layouts and dtypes that d
 * names. It holds for every recorded and emitted node; whoever makes one node of several asks first (plan/ir/rewrite.c), and
 * the verifier asks again. */
int32_t wn__op_reads(const struct wn_desc *d);

/* ---- elementwise steps inside one node --------------------------------------------------------------- */
/* A fused elementwise op: up to WN_CHAIN_STEPS elementwise ops, its steps, each over inputs of the node and steps before
 * it. The last step's value is the node's. An operand k < WN_CHAIN_INPUTS is input k, another is step k - WN_CHAIN_INPUTS. */
enum { WN_CHAIN_INPUTS = 4, WN_CHAIN_STEPS = 6 };
struct wn__fused {
    int32_t n;
    struct wn__fused_step {
        int32_t op, operand[2]; /* the second is read by ops of two */
    } step[WN_CHAIN_STEPS];
};
/* Returns the number of operands, 1 or 2, of an op that may be a step or a product's epilogue; 0: it may be neither. */
int32_t wn__elementwise_operands(int32_t op);
/* Whether an elementwise op takes numbers of its own (attrs.f). At most one step of a fused op does. */
int32_t wn__elementwise_has_numbers(int32_t op);

/* A product that goes straight into an update: rows of a batch it is summed over at most, since its partial sums never
 * leave, and columns a strip of its packed factor has. Kernels of the CPU are held to both. */
enum { WN_PRODUCT_UPDATE_ROWS = 128, WN_PRODUCT_UPDATE_STRIP = 48 };

/* Whether this product, or the product under the op of a MATMUL_MAP or LINEAR_MAP, is a library's on this target. */
int32_t wn__library_product(const struct wn_desc *d, const struct wn__target *t);

/* Reductions down columns go by parts of the rows, added in order at the end; how many follows from the rows alone. A part
 * is read row by row in the order of memory, whoever else reads another. They wait in the workspace: part after part,
 * WN_PART_BYTES an output. */
enum { WN_PART_ROWS = 1024, WN_PARTS = 64, WN_PART_BYTES = 8, WN_FEW_OUTPUTS = 32 };
static inline int64_t wn__parts_of(int64_t rows)
{
    int64_t parts = 1;
    while (parts < WN_PARTS && parts * 2 * WN_PART_ROWS <= rows) parts *= 2;
    return parts;
}
/* Those of SUM, MEAN, MAX, MIN and ARGMAX; 1 where these go by rows, or have few outputs, which wait nowhere. */
int64_t wn__reduce_parts(const struct wn_desc *d);

/* Elements that share a scale in the int8 form of a value. */
enum { WN_INT8_GROUP = 256 };

static inline struct wn__fused wn__fused_get(const struct wn_attrs *a)
{
    struct wn__fused c = {.n = a->n};
    for (int32_t k = 0; k < a->n && k < WN_CHAIN_STEPS; k++)
        c.step[k] =
            (struct wn__fused_step){(int32_t)(a->i[k] >> 8), {(int32_t)(a->i[k] & 15), (int32_t)(a->i[k] >> 4 & 15)}};
    return c;
}
static inline void wn__fused_put(const struct wn__fused *c, struct wn_attrs *a)
{
    a->n = c->n;
    for (int32_t k = 0; k < c->n; k++)
        a->i[k] = (int64_t)c->step[k].op << 8 | c->step[k].operand[1] << 4 | c->step[k].operand[0];
}

/* ---- what a gradient rule may call --------------------------------------------------------------- */
/* All return NULL after a failure and accept NULL operands, so rules need no checks of their own: the
 * first failure is kept by the emitter and reported once. */
int32_t wn__wants(const struct wn__grad *g, int32_t i);
/* Says that the gradient of input i is zero everywhere, without a node that computes it: what input i is made of gets zeros
 * where nothing else reaches it. */
void wn__give_zero(struct wn__grad *g, int32_t i);
struct wn_node *wn__emit(struct wn__emit *e, int32_t op, int32_t n, struct wn_node *const *in,
                         const struct wn_attrs *attrs /* NULL: none */);
struct wn_node *wn__emit1(struct wn__emit *e, int32_t op, struct wn_node *a);
struct wn_node *wn__emit2(struct wn__emit *e, int32_t op, struct wn_node *a, struct wn_node *b);
struct wn_node *wn__emit_scalar(struct wn__emit *e, double value, int32_t dtype); /* 0-d, fixed by structure */
/* A random node that draws the very numbers `like` drew (dropout's gradient). */
struct wn_node *wn__emit_replay(struct wn__emit *e, int32_t op, int32_t n, struct wn_node *const *in,
                                const struct wn_attrs *attrs, struct wn_node *like);
/* v as `layout` has it. */
struct wn_node *wn__emit_layout(struct wn__emit *e, struct wn_node *v, int32_t layout);
/* Sums g over the dims that broadcasting added, so that it gets the shape of `target`. */
struct wn_node *wn__emit_sum_to(struct wn__emit *e, struct wn_node *g, const struct wn_type *target);
/* Whether v is `op` of x as its first input; casts and relayouts of x, and readers of one state, count as x. */
int32_t wn__is_made_by(const struct wn_node *v, int32_t op, const struct wn_node *x);
/* What a value is. */
const struct wn_type *wn__value_type(const struct wn_node *v);

/* ---- helpers shared by the families (ops/helper.c) ----------------------------------------------- */
/* d->out.dim = broadcast of all inputs' shapes; the dtype is left alone. */
int32_t wn__broadcast(struct wn_desc *d);
int32_t wn__same_dtype(const struct wn_desc *d);
int32_t wn__need_float(const struct wn_desc *d);
int32_t wn__like_first(struct wn_desc *d); /* out = in[0], floats only */
/* A dim attribute that rules get 0-based: fails with the user's 1-based wording when out of range. */
/* Counted from 1 as the user does, for messages: i + 1, or i where that overflows. */
int64_t wn__from_one(int64_t i);
int32_t wn__check_dim(const struct wn_desc *d, int64_t dim, int32_t ndim);
void wn__cost_elementwise(const struct wn_desc *d, struct wn_cost *cost); /* 1 FLOP an output, all bytes once */
#endif
