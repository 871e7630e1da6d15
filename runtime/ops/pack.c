/* Packed forms of a value: what a plan may keep instead of it between its last forward reader and its first backward
 * one.
 *
 *     pack_int8    x: (n elements, any shape) -> (n + 4 ceil(n / 256)) u8    f32 scales of groups of 256, then bytes
 *     unpack_int8  those bytes -> x~: the shape attrs.i, the dtype attrs.dtype
 *     pack_sign    x: (n elements, any shape) -> (ceil(n / 8)) u8            a bit an element
 *     unpack_sign  those bytes -> 1 where x > 0 or x is NaN, else 0
 *
 *     int8:  | scale 0 | scale 1 | ... | q 0 | q 1 | ... | q n-1 |     scales f32, q int8
 *
 * int8 is block-wise quantisation with a symmetric range: each group of 256 consecutive elements shares one f32 scale,
 * so an outlier costs precision in its own group alone. Groups in the order of memory: Dettmers, Lewis, Shleifer,
 * Zettlemoyer, "8-bit Optimizers via Block-wise Quantization" (ICLR 2022), section 2.1; 256 elements of a group for
 * activations: Chen and others, "ActNN: Reducing Training Memory Footprint via 2-Bit Activation Compressed Training"
 * (ICML 2021), section 4. Rounding is to nearest, not stochastic: the same value always gives the same bytes.
 *
 * A sign is all that the gradient of ReLU reads. The number of packed bytes follows from the shape alone, even where
 * the data would fit fewer: a plan counts bytes before there is data. */
#include "helper.h"

enum { ENCODE = 4 }; /* FLOPs of an element: magnitude, maximum, product, rounding */

/* Returns the bytes of x in the packed form of an op. */
static int64_t packed_bytes(int32_t op, const struct wn_type *x)
{
    int64_t n = wn__numel(x);
    if (op == WN_OP_PACK_SIGN || op == WN_OP_UNPACK_SIGN) return (n + 7) / 8;
    return n + (n + WN_INT8_GROUP - 1) / WN_INT8_GROUP * (int64_t)sizeof(float);
}

static int32_t shape_packed(struct wn_desc *d)
{
    WN_TRY(wn__need_float_at(d, 0));
    d->out = (struct wn_type){.dtype = WN_U8, .ndim = 1, .dim = {packed_bytes(d->op, &d->in[0])}};
    return wn__check_out(d);
}

static int32_t shape_unpacked(struct wn_desc *d)
{
    const struct wn_type *in = &d->in[0];
    WN_TRY(wn__shape_from_attrs(d));
    d->out.dtype = d->attrs.dtype;
    if (!wn__dtype_is_float(d->out.dtype) || d->out.dtype == WN_F16)
        return wn__fail(WN_DTYPE, "%s: dtype %s given, expected f32, bf16 or f64", wn__op_name(d->op),
                        wn__dtype_name(d->out.dtype));
    WN_TRY(wn__check_out(d));
    if (in->dtype == WN_U8 && in->ndim == 1 && in->dim[0] == packed_bytes(d->op, &d->out)) return WN_OK;
    return wn__fail(WN_SHAPE, "%s: input 1 is %s, expected (%" PRId64 ") u8, the packed bytes of %s",
                    wn__op_name(d->op), wn__type_text(in), packed_bytes(d->op, &d->out), wn__type_text(&d->out));
}

const struct wn__rules wn__rules_pack_int8 = {shape_packed, NULL, .per_input = ENCODE};
const struct wn__rules wn__rules_unpack_int8 = {shape_unpacked, NULL, .per_output = 1};
const struct wn__rules wn__rules_pack_sign = {shape_packed, NULL, .per_input = 1};
const struct wn__rules wn__rules_unpack_sign = {shape_unpacked, NULL, .per_output = 1};
