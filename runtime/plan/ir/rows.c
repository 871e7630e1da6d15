/* Lays matrices of bf16 out in padded rows (WN_ROWS), where their rows begin on no 16 bytes, on a target whose products
 * are slow then: logits of 50,257 words, their gradient.
 *
 *   recorded    7: matmul(x, table)  bf16 (8192, 50257)         rows of 100,514 bytes
 *   laid out    7: the same, at a pitch of 50,304 elements      rows of 100,608 bytes
 *
 * A value gets the layout if a kernel that knows it makes it, each of its readers knows it, through reshapes that keep
 * the last dim too, and a product is among them. What is computed is the same; the bytes of the value are those of its
 * pitch, so predictions hold. This runs last, on the ops that all rewrites leave.
 *
 * Measured: 8192 x 50257 x 1280 by cuBLASLt on an H100, 99 TF/s for 752 of a product whose rows are aligned. */
#include <string.h>
#include "rewriting.h"

enum { ALIGNED = 16, MOST_WASTE = 8 }; /* bytes; a pitch may add at most 1/8 of a row */

int32_t wn__rows_on = 1;

static int32_t is_product(int32_t op)
{
    return op == WN_OP_MATMUL || op == WN_OP_LINEAR;
}

/* Returns whether a value of the IR has rows that a pitch mends. */
static int32_t is_askew(const struct wn_type *t)
{
    if (t->dtype != WN_BF16 || t->layout != WN_PLAIN || t->ndim < 2 || wn__numel(t) == 0) return 0;
    int64_t columns = t->dim[t->ndim - 1], waste = wn_round_up(columns, WN_ROW_UNIT) - columns;
    return columns * wn__dtype_size(WN_BF16) % ALIGNED != 0 && waste * MOST_WASTE <= columns;
}

/* Returns whether input k of node r may be in padded rows. */
static int32_t may_read(const struct wn__ir_node *r, int32_t k)
{
    switch (r->op) {
    case WN_OP_MATMUL: return 1;
    case WN_OP_LINEAR: return k < 2;
    case WN_OP_ROW_STATS:
    case WN_OP_ROW_NLL: return k == 0;
    case WN_OP_ROW_NLL_GRAD: return k == 2 && r->attrs.i[WN_LOSS_STATS] != 0;
    default: return 0;
    }
}

static int32_t is_reshape_of_rows(const struct wn__ir *ir, int32_t i)
{
    const struct wn__ir_node *p = &ir->node[i];
    if (p->op != WN_OP_RESHAPE || !wn__ir_is_alias(ir, i)) return 0;
    const struct wn_type *from = &ir->in_type[p->in_at];
    return p->type.ndim > 1 && p->type.dim[p->type.ndim - 1] == from->dim[from->ndim - 1];
}

/* Marks the reshapes of value v, and returns whether every reader of all of them may read padded rows and one is a
 * product, or v is made by one. is_in: (n), zeros but for v. */
static int32_t readers_agree(const struct wn__ir *ir, int32_t v, uint8_t *is_in)
{
    int32_t by_product = is_product(ir->node[v].op), n_readers = 0;
    for (int32_t i = v + 1; i < ir->n; i++) {
        const struct wn__ir_node *r = &ir->node[i];
        for (int32_t k = 0; k < r->n_in && r->absorbed_by < 0; k++) {
            if (!is_in[wn__ir_in(ir, i, k)]) continue;
            if (is_reshape_of_rows(ir, i)) {
                is_in[i] = 1;
                continue;
            }
            if (r->leaf != WN_LEAF_NONE || r->bound || !may_read(r, k)) return 0;
            by_product |= is_product(r->op);
            n_readers++;
        }
    }
    return by_product && n_readers > 0;
}

static int32_t may_write(const struct wn__ir *ir, int32_t v)
{
    const struct wn__ir_node *p = &ir->node[v];
    if (p->leaf != WN_LEAF_NONE || p->bound || p->absorbed_by >= 0 || p->result >= 0 || !is_askew(&p->type)) return 0;
    return is_product(p->op) || p->op == WN_OP_ROW_NLL_GRAD;
}

/* Gives the values of a family their layout, as results and as inputs. */
static void lay_out(struct wn__ir *ir, const uint8_t *is_in)
{
    for (int32_t i = 0; i < ir->n; i++) {
        struct wn__ir_node *p = &ir->node[i];
        for (int32_t k = 0; k < p->n_in; k++)
            if (is_in[wn__ir_in(ir, i, k)]) ir->in_type[p->in_at + k].layout = WN_ROWS;
        if (!is_in[i]) continue;
        p->type.layout = WN_ROWS;
        p->attrs.layout = WN_ROWS;
        p->bytes = wn__padded(wn__bytes(&p->type));
    }
}

int32_t wn__ir_rows(struct wn__ir *ir, struct wn__pool *scratch)
{
    uint8_t *is_in = NULL;
    if (!wn__rows_on || !ir->target->has_mixed_types) return WN_OK;
    for (int32_t v = 0; v < ir->n; v++) {
        if (!may_write(ir, v)) continue;
        if (is_in == NULL && !WN_ARRAY(scratch, is_in, ir->n)) return WN_OOM;
        memset(is_in, 0, (size_t)ir->n);
        is_in[v] = 1;
        if (readers_agree(ir, v, is_in)) lay_out(ir, is_in);
    }
    return WN_OK;
}
