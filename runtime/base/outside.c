/* Messages of indices and whole numbers that kernels refuse: see outside.h. Kernels of the CPU find one while they run;
 * other devices tell of one later, and the executor makes the message then. */
#include <inttypes.h>
#include <string.h>
#include "opcode.h"
#include "outside.h"
#include "status.h"

const char *wn__op_said(int32_t op)
{
    static const char *const names[] = {
#define OP(NAME, name, lo, hi, family, flags, operands, autocast, positions) #name,
#include "../op.def"
#undef OP
    };
    switch (op) {
    case WN_OP_NORMAL: return "randn";
    case WN_OP_UNIFORM: return "rand";
    case WN_OP_ROW_NLL:
    case WN_OP_ROW_NLL_GRAD: return "cross_entropy";
    case WN_OP_GATHER_GRAD: return "scatter_add";
    case WN_OP_EMBEDDING:
    case WN_OP_EMBEDDING_GRAD: return "embedding or index_select";
    default: return names[op];
    }
}

int64_t wn__table_size(const struct wn_desc *d)
{
    switch (d->op) {
    case WN_OP_EMBEDDING: return d->in[0].dim[0];
    case WN_OP_EMBEDDING_GRAD: return d->attrs.i[0];
    case WN_OP_GATHER: return d->in[0].dim[d->attrs.i[0]];
    case WN_OP_GATHER_GRAD: return d->attrs.i[1];
    case WN_OP_ROW_NLL: return d->in[0].dim[d->in[0].ndim - 1];
    case WN_OP_ROW_NLL_GRAD: return d->attrs.i[WN_LOSS_CLASSES];
    default: return 0;
    }
}

int32_t wn__fail_outside(const struct wn_desc *d, int64_t element, int32_t value)
{
    int64_t last = wn__table_size(d) - 1;
    switch (d->op) {
    case WN_OP_EMBEDDING:
    case WN_OP_EMBEDDING_GRAD:
    case WN_OP_GATHER:
    case WN_OP_GATHER_GRAD:
        return wn__fail(WN_VALUE,
                        "%s: index %" PRId32 " at element %" PRId64 " is outside 0..%" PRId64
                        "; indices are 0-based, clamp them or enlarge the table",
                        wn__op_said(d->op), value, element, last);
    default:
        return wn__fail(WN_VALUE,
                        "%s: label %" PRId32 " at element %" PRId64 " is outside 0..%" PRId64
                        " and is not ignore_index (%" PRId64 "); labels are 0-based",
                        wn__op_said(d->op), value, element, last, d->attrs.i[0]);
    }
}

int32_t wn__fail_whole(const struct wn_desc *d, int64_t element, double value)
{
    return wn__fail(WN_VALUE,
                    "%s: %.0f at element %" PRId64 " is outside the numbers of i32, %" PRId32 " to %" PRId32
                    "; compute it with x:to 'f64'",
                    wn__op_said(d->op), value, element, INT32_MIN, INT32_MAX);
}

int32_t wn__fail_within(const struct wn_desc *d, int64_t element, double value)
{
    switch (d->attrs.i[0]) {
    case WN_WITHIN_WEIGHT:
        return wn__fail(WN_VALUE, "multinomial: the weight %g at element %" PRId64 " is no finite number from 0 on",
                        value, element);
    case WN_WITHIN_POSITIONS:
        return wn__fail(WN_VALUE,
                        "multinomial: row %" PRId64 " has %.0f weights above 0, expected %.0f or more; a position of "
                        "weight 0 is never drawn",
                        element, value, d->attrs.f[0]);
    default:
        return wn__fail(WN_VALUE, "bernoulli: the probability %g at element %" PRId64 " is outside 0 to 1", value,
                        element);
    }
}

int32_t wn__fail_report(const struct wn_desc *d, uint64_t report)
{
    uint32_t bits = (uint32_t)report;
    float value;
    memcpy(&value, &bits, sizeof value);
    switch (d->op) {
    case WN_OP_ADD:
    case WN_OP_SUB:
    case WN_OP_MUL:
    case WN_OP_SUM:
    case WN_OP_CUMSUM: return wn__fail_whole(d, (int64_t)(report >> 32), (double)value);
    case WN_OP_WITHIN: return wn__fail_within(d, (int64_t)(report >> 32), (double)value);
    default: return wn__fail_outside(d, (int64_t)(report >> 32), (int32_t)bits);
    }
}
