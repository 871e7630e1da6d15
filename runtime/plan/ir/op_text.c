/* Names of nodes that rewrites made, "linear+relu": the ops that one kernel computes, in their order. See rewrite.c. */
#include <stdio.h>
#include "ir.h"

/* Puts a step of an op in front of others, as far as there is room. */
static struct wn__fused led_by(int32_t op, const struct wn__fused *steps)
{
    struct wn__fused all = {1, {{op, {0}}}};
    for (int32_t k = 0; k < steps->n && all.n < WN_FUSED_STEPS; k++) all.step[all.n++] = steps->step[k];
    return all;
}

static struct wn__fused steps_over_conv(struct wn__conv_map m)
{
    if (m.norm) m.steps = led_by(WN_OP_BATCH_NORM, &m.steps);
    return led_by(WN_OP_CONV2D, &m.steps);
}

/* Returns the ops of an application as steps; none where it computes one op alone. */
static struct wn__fused steps_of(int32_t op, const struct wn_attrs *attrs)
{
    struct wn__fused one = {1, {{0, {0}}}};
    one.step[0].op = (int32_t)attrs->i[2];
    switch (op) {
    case WN_OP_ELEMENTWISE: return wn__fused_get(attrs, 0);
    case WN_OP_LINEAR_MAP: return led_by(WN_OP_LINEAR, &one);
    case WN_OP_MATMUL_MAP:
    case WN_OP_PRODUCT_UPDATE: return led_by(WN_OP_MATMUL, &one);
    case WN_OP_CONV2D_MAP: return steps_over_conv(wn__conv_map_get(attrs));
    case WN_OP_BATCH_NORM_MAP: one = wn__fused_get(attrs, 0); return led_by(WN_OP_BATCH_NORM, &one);
    default: return (struct wn__fused){.n = 0};
    }
}

const char *wn__op_text(int32_t op, const struct wn_attrs *attrs)
{
    struct wn__fused c = steps_of(op, attrs);
    char text[256] = "";
    if (c.n == 0) return wn__op_name(op);
    int32_t at = 0;
    for (int32_t k = 0; k < c.n && at < (int32_t)sizeof text - 1; k++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s%s", k ? "+" : "", wn__op_name(c.step[k].op));
    const char *interned = wn__intern(text);
    return interned != NULL ? interned : wn__op_name(op);
}
