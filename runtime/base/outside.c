/* Messages of indices and whole numbers that kernels refuse: see outside.h. Kernels of the CPU find one while they run;
 * other devices tell of one later, and the executor makes the message then. */
#include <inttypes.h>
#include <string.h>
#include "opcode.h"
#include "outside.h"
#include "status.h"

const char *wn__op_said(int32_t op)
{
    switch (op) {
    case WN_OP_NORMAL: return "randn";
    case WN_OP_UNIFORM: return "rand";
    case WN_OP_ROW_NLL:
    case WN_OP_ROW_NLL_GRAD: return "cross_entropy";
    case WN_OP_GATHER_GRAD: return "scatter_add";
    case WN_OP_EMBEDDING:
    case WN_OP_EMBEDDING_GRAD: return "embedding or index_select";
    default: return wn__op_name(op);
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

/* Sets the message of an element of WITHIN and returns WN_VALUE. */
static int32_t fail_within(const struct wn_desc *d, int64_t element, double value)
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

int32_t wn__fail_outside(const struct wn_desc *d, int64_t element, double value)
{
    const char *said = wn__op_said(d->op);
    int64_t last = wn__table_size(d) - 1;
    if (d->op == WN_OP_WITHIN) return fail_within(d, element, value);
    if (wn__op_flags(d->op) & WN_WHOLE)
        return wn__fail(WN_VALUE,
                        "%s: %.0f at element %" PRId64 " is outside the numbers of i32, %" PRId32 " to %" PRId32
                        "; compute it with x:to 'f64'",
                        said, value, element, INT32_MIN, INT32_MAX);
    if (d->op == WN_OP_ROW_NLL || d->op == WN_OP_ROW_NLL_GRAD)
        return wn__fail(WN_VALUE,
                        "%s: label %.0f at element %" PRId64 " is outside 0..%" PRId64
                        " and is not ignore_index (%" PRId64 "); labels are 0-based",
                        said, value, element, last, d->attrs.i[WN_LOSS_IGNORED]);
    return wn__fail(WN_VALUE,
                    "%s: index %.0f at element %" PRId64 " is outside 0..%" PRId64
                    "; indices are 0-based, clamp them or enlarge the table",
                    said, value, element, last);
}

int32_t wn__fail_report(const struct wn_desc *d, uint64_t report)
{
    uint32_t bits = (uint32_t)report;
    int32_t is_number = d->op == WN_OP_WITHIN || (wn__op_flags(d->op) & WN_WHOLE) != 0;
    float value;
    memcpy(&value, &bits, sizeof value);
    return wn__fail_outside(d, (int64_t)(report >> 32), is_number ? (double)value : (int32_t)bits);
}
