/* The contract of an operation: what each family file of runtime/ops/ provides for its ops, and which functions its
 * rules may call.
 *
 * An op has three rules: shape, cost and gradient. Each is a function of one application of the op, that is,
 * of the types of its inputs and of its attributes (`struct wn_desc`). No rule sees bytes, devices or the graph. A
 * gradient rule records nodes through `wn__emit`, which asks the recorder that the pass hands in.
 *
 * No op declares its residuals: the residuals of a program are the forward values that its backward nodes read.
 *
 * Shapes are written as `x: (B, T, C)`, outermost dim first; `(..., C)` has any number of dims before C, `()` is one
 * number. Dims and indices count from 0 in C, from 1 in messages. dy is the gradient of a result y, dx that of x. */
#ifndef WN_OPS_OP_H
#define WN_OPS_OP_H
#include <stdint.h>
#include "../base/opcode.h"
#include "../base/status.h"
#include "../base/type.h"

/* ---- rules --------------------------------------------------------------------------------------- */

/* Writes the type of the result to d->out, from d->in, d->n_in and d->attrs. The caller has checked n_in. Returns
 * WN_OK, WN_SHAPE, WN_DTYPE or WN_VALUE; the message starts with the op's name and says what was given, what was
 * expected, and what to do. */
typedef int32_t (*wn__shape_rule)(struct wn_desc *d);

/* The cost of one application on a device that reads each input once. */
struct wn_cost {
    double flops; /* floating-point operations */
    double bytes; /* bytes read plus bytes written */
};
/* Returns the cost of one application, whose d->out is known. */
typedef struct wn_cost (*wn__cost_rule)(const struct wn_desc *d);

struct wn_node; /* a value of the graph; rules do not see inside */
struct wn__emit;

/* The functions of the graph that rules need, as a table, so that ops link with nothing above. runtime/graph/emit.c has
 * the one table; rules call it through the functions of gradient.c. */
struct wn__recorder {
    /* Records one node of the backward pass, which draws the random numbers of `like`; NULL: none. in: (n); attrs: NULL
     * for none. Returns NULL where an input is NULL or the pass has failed. */
    struct wn_node *(*record)(struct wn__emit *e, int32_t op, int32_t n, struct wn_node *const *in,
                              const struct wn_attrs *attrs, const struct wn_node *like);
    int32_t (*is_wanted)(const struct wn__emit *e, const struct wn_node *v);             /* wn__wants of the value v */
    int32_t (*is_made_by)(const struct wn_node *v, int32_t op, const struct wn_node *x); /* see wn__is_made_by */
    const struct wn_type *(*type)(const struct wn_node *v);                              /* of v, which is not NULL */
    struct wn_node *zero; /* stands for a gradient of zeros that no node computes */
};
/* The emitter of one backward pass. It keeps the first failure of the pass. */
struct wn__emit {
    const struct wn__recorder *recorder;
};
#define WN_GRAD_MAX 8 /* the most inputs of a differentiable op with a fixed number of inputs; only CAT takes more */

/* One application that is being differentiated: out = op(in[0], ..., in[n_in - 1]). For every i with wn__wants(g, i)
 * the rule sets dx[i], or calls wn__give_zero(g, i). The pass refuses an application that leaves such a dx[i] NULL.
 * dx[i] has the dtype and shape of in[i]; the pass gives it the layout of in[i]. */
struct wn__grad {
    struct wn__emit *e;
    const struct wn_desc *d;   /* the application: op, types, attributes */
    struct wn_node *const *in; /* (n_in) the inputs */
    struct wn_node *out;       /* the result */
    struct wn_node *dy;        /* the gradient of out, of the type of out */
    struct wn_node **dx;       /* (n_in) the gradients of the inputs, NULL at first; the rule writes them */
};
/* Records the nodes that compute the gradients of the inputs from g->dy, g->in and g->out. */
typedef void (*wn__grad_rule)(struct wn__grad *g);

/* The rules of one op. A family file defines `const struct wn__rules wn__rules_<name>` for each of its ops. */
struct wn__rules {
    wn__shape_rule shape;         /* NULL: of a leaf */
    wn__grad_rule grad;           /* NULL: the op has no gradient, and a pass that needs one refuses it */
    int32_t derivative;           /* of wn__grad_by_x and wn__grad_by_y: the op that they record */
    double per_output, per_input; /* FLOPs for each element of the result, and for each of input 0 */
    wn__cost_rule cost; /* NULL: the FLOPs of those numbers, and every byte once; of a leaf or an alias nothing */
};

/* ---- the table of rules (table.c) ------------------------------------------------------------------ */
extern const struct wn__rules *const wn__op_rules[]; /* (WN_OP_COUNT) */
/* Returns whether an application takes a number of the random counter: an op with the flag RANDOM and no input always
 * does, one with inputs (dropout, attention) does where its probability attrs->f[0] > 0. */
int32_t wn__op_draws(int32_t op, const struct wn_attrs *attrs);
/* Returns whether attrs.i[WN_OFFSET_AT] of the op is an offset, which is bound at a run. */
static inline int32_t wn__op_has_offset(int32_t op)
{
    return (wn__op_flags(op) & WN_OFFSET) != 0;
}
int32_t wn__op_find(const char *name); /* -1 when there is none */
/* Returns whether the op takes numbers of its own (attrs.f). At most one step of a fused op does. */
static inline int32_t wn__elementwise_has_numbers(int32_t op)
{
    return (wn__op_flags(op) & WN_NUMBERS) != 0;
}

/* Returns how many steps take numbers of their own. */
static inline int32_t wn__fused_numbers(const struct wn__fused *c)
{
    int32_t n = 0;
    for (int32_t k = 0; k < c->n; k++) n += wn__elementwise_has_numbers(c->step[k].op);
    return n;
}

/* ---- layouts (layout.c) ------------------------------------------------------------------------------ */
/* Returns the layout in which the op reads input i. Where the input has another, whoever records the application puts a
 * RELAYOUT before it. in: (n) the types of the inputs, 1 <= n <= WN_GRAD_MAX. */
int32_t wn__op_wants(int32_t op, int32_t n, const struct wn_type *const *in, const struct wn_attrs *attrs, int32_t i);
/* Returns the layout of a result of the shape of `out`, given that every input has the layout that the op reads. */
int32_t wn__op_layout(int32_t op, int32_t n, const struct wn_type *const *in, const struct wn_attrs *attrs,
                      const struct wn_type *out);
/* Returns whether the kernels of an application read each operand, and write the result, in the layouts and dtypes that
 * d names. The answer is yes for every recorded and emitted node. A rewrite that makes one node of several asks before
 * it does (plan/ir/rewrite.c), and the verifier asks again. */
int32_t wn__op_reads(const struct wn_desc *d);

/* ---- what a gradient rule may call (gradient.c) ------------------------------------------------- */
/* Every function that returns a node returns NULL after a failure and accepts NULL operands, so a rule checks nothing:
 * the emitter keeps the first failure, and the pass reports it once. */

/* Returns whether a gradient of input i is asked for. */
int32_t wn__wants(const struct wn__grad *g, int32_t i);
/* Marks the gradient of input i as zero everywhere, without a node that computes it. The pass records zeros only for a
 * parameter, or another value whose gradient is asked for, that no other gradient reaches. */
void wn__give_zero(struct wn__grad *g, int32_t i);
/* Record one node of the backward pass. in: (n) the inputs; an input in a layout that the op does not read becomes
 * plain by a RELAYOUT before it. The node takes no random number. */
struct wn_node *wn__emit(struct wn__emit *e, int32_t op, int32_t n, struct wn_node *const *in,
                         const struct wn_attrs *attrs /* NULL: none */);
struct wn_node *wn__emit1(struct wn__emit *e, int32_t op, struct wn_node *a);
struct wn_node *wn__emit2(struct wn__emit *e, int32_t op, struct wn_node *a, struct wn_node *b);
/* Records a constant of shape () by FULL. Its value is an attribute, and so part of the key of the graph. */
struct wn_node *wn__emit_scalar(struct wn__emit *e, double value, int32_t dtype);
/* Records a random node that draws the numbers that the node `like` draws, as the gradient of dropout does. */
struct wn_node *wn__emit_replay(struct wn__emit *e, int32_t op, int32_t n, struct wn_node *const *in,
                                const struct wn_attrs *attrs, const struct wn_node *like);
/* Undoes broadcasting: records the sum of g over the dims in which `target` is 1 or has none; the result has the shape
 * of `target`. Returns g itself where the shapes are equal. */
struct wn_node *wn__emit_sum_to(struct wn__emit *e, struct wn_node *g, const struct wn_type *target);
/* Returns whether v is an application of `op` whose first input is x. A CAST or RELAYOUT of x counts as x, and so does
 * another CELL node that reads the same version of the same cell. */
int32_t wn__is_made_by(const struct wn__grad *g, const struct wn_node *v, int32_t op, const struct wn_node *x);
/* Returns the type of v; all zeros where v is NULL. */
const struct wn_type *wn__value_type(const struct wn__grad *g, const struct wn_node *v);

/* ---- helpers shared by the families (ops/helper.c) ----------------------------------------------- */
/* Writes the shape to which the shapes of all inputs broadcast to d->out; keeps the dtype of d->out. WN_SHAPE where
 * they do not broadcast. */
int32_t wn__broadcast(struct wn_desc *d);
/* Fails with WN_DTYPE unless all inputs have one dtype. */
int32_t wn__same_dtype(const struct wn_desc *d);
/* Fails with WN_DTYPE unless all inputs have one dtype, which is f32, bf16 or f64. */
int32_t wn__need_float(const struct wn_desc *d);
/* Writes the type of the result, that of the first input, which must be f32, bf16 or f64: d->out = d->in[0]. */
int32_t wn__like_first(struct wn_desc *d);
/* Returns the index that a message shows for the index i of C: i + 1, or i where i + 1 overflows. */
int64_t wn__from_one(int64_t i);
/* Fails with WN_SHAPE unless 0 <= dim < ndim; the message counts dims from 1. */
int32_t wn__check_dim(const struct wn_desc *d, int64_t dim, int32_t ndim);
/* Returns the cost of an application, whose d->out is known, by the rules of its op. */
struct wn_cost wn__op_cost(const struct wn_desc *d);
#endif
