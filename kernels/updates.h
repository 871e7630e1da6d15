/* The rules of the optimizers for one element, once, for every device, as the formulas of scalar.h are: updates.inc,
 * for f32 and f64. bf16 is computed as f32, and every cell is rounded once a step.
 *
 *     C      wn_fill_constants_f32(&c, WN_OP_ADAM, hyper);       once a step, struct wn_constants_f32 c
 *            wn_adam_f32(&c, g[i], theta + i, m + i, v + i);     each element
 *     C++    wn_adam(&c, g[i], theta + i, m + i, v + i);         overloads of both types
 *
 * The operations and their order are those of PyTorch's single-tensor path: constants are computed in double and
 * rounded once to the type of the numbers, a scaled sum is one fma. So every device gives the same bits. */
#ifndef WN_UPDATES_H
#define WN_UPDATES_H
#include "scalar.h"
#include "../runtime/base/opcode.h"

/* Calls ROW(NAME, name, n) for each optimizer: its op, its rule, and the cells of an element. */
#define WN_OPTIMIZERS(ROW)                                                                                             \
    ROW(SGD, sgd, 1)                                                                                                   \
    ROW(MOMENTUM, momentum, 2)                                                                                         \
    ROW(ADAM, adam, 3)                                                                                                 \
    ROW(RMSPROP, rmsprop, 2)                                                                                           \
    ROW(RMSPROP_MOMENTUM, rmsprop_momentum, 3)                                                                         \
    ROW(RMSPROP_CENTERED, rmsprop_centered, 3)                                                                         \
    ROW(LION, lion, 2)

#if defined(__cplusplus)
#define WN_RULE_OF(name, S) name
#else
#define WN_RULE_OF(name, S) name##_##S
#endif

#define T float
#define CONSTANTS wn_constants_f32
#define RULE(name) WN_RULE_OF(name, f32)
#define FMA fmaf
#define SQRT sqrtf
#include "updates.inc"
#define T double
#define CONSTANTS wn_constants_f64
#define RULE(name) WN_RULE_OF(name, f64)
#define FMA fma
#define SQRT sqrt
#include "updates.inc"
#endif
