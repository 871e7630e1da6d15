/* Rates of classes: what an application takes on a machine where its op was measured in other shapes.
 *
 * A class is the name of an op with what its rate depends on: "matmul bf16", "matmul bf16 unaligned", "sum f32
 * columns", "attention bf16 heads of 64". A rate says
 *
 *   seconds = launch + max(bytes / rate of bytes, FLOP (1 + half / least side) / rate of FLOP)
 *
 * where `half` is the least side of a product at which it runs at half of its rate. An application whose class has no
 * rate on a machine follows the roofline of costs.h. */
#ifndef WN_PLAN_IR_RATES_H
#define WN_PLAN_IR_RATES_H
#include "../../wane_inspect.h"
#include "ir.h"

/* Returns the class of an application. The text is valid until the next call. */
const char *wn__rate_class(const struct wn_desc *d);
/* Puts the rate of a class on devices of a machine whose target is named `kind`, in place of an earlier one. WN_VALUE
 * for numbers that are none, WN_OOM. */
int32_t wn__rate_put(int32_t machine, const char *kind, const char *class, const struct wn_rate *rate);
/* Returns the seconds of an application by the rate of its class on a machine; below 0: the class has none there. */
double wn__rate_seconds(int32_t machine, const char *kind, const struct wn_desc *d);
#endif
