/* Names classes of applications and keeps their rates: see rates.h. A key of a rate is a text, as those of measured
 * seconds are (costs.c). */
#include "rates.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "../../base/opcode.h"
#include "../../graph/encode.h"

#define LEAST 1e-12 /* of a number that is not 0: below, seconds of large values leave the numbers of a plan */

enum {
    FEW = 64,        /* rows, columns or terms of a product, elements of a sum */
    LONG_ROW = 2048, /* elements */
    ALIGNED = 16,    /* bytes */
    LETTERS = 320    /* of a class: the names of all ops of the longest fused one, and what follows them */
};

static struct wn__names known; /* keys of rates; the id of each is its index in `rates` */
static struct wn_rate *rates;  /* (known.count) */
static int64_t capacity;

/* ---- classes ---------------------------------------------------------------------------------------------------- */

static int64_t lesser(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int32_t is_aligned(const struct wn_type *t)
{
    return t->layout != WN_PLAIN || t->ndim == 0 || t->dim[t->ndim - 1] * wn__dtype_size(t->dtype) % ALIGNED == 0;
}

static const char *class_of_product(const struct wn_desc *d, const struct wn__sides *s)
{
    if (d->in[0].dtype == WN_BF16)
        return is_aligned(&d->in[0]) && is_aligned(&d->in[1]) && is_aligned(&d->out) ? "" : " unaligned";
    return s->k <= FEW ? " few terms" : lesser(s->m, s->n) <= FEW ? " few rows" : "";
}

/* Returns whether a reduction adds rows, columns, few elements a column, or all elements. */
static const char *class_of_reduction(const struct wn_desc *d)
{
    int64_t n = wn__numel(&d->out);
    if (n == 1) return " all";
    for (int32_t i = 0; i < d->attrs.n; i++)
        if (d->attrs.i[i] == d->in[0].ndim - 1) return " rows";
    return n > 0 && wn__numel(&d->in[0]) / n <= FEW ? " columns few" : " columns";
}

static const char *class_of_row(const struct wn_type *x)
{
    return x->ndim > 0 && x->dim[x->ndim - 1] > LONG_ROW ? " long" : "";
}

/* Returns what a class has behind its op and dtypes. */
static const char *detail(const struct wn_desc *d)
{
    static char text[32];
    const struct wn__sides s = wn__product_sides(d);
    if (s.k > 0) return class_of_product(d, &s);
    switch (d->op) {
    case WN_OP_ATTENTION:
    case WN_OP_ATTENTION_GRAD: {
        const struct wn_type *y = d->op == WN_OP_ATTENTION ? &d->out : &d->in[0];
        snprintf(text, sizeof text, " heads of %lld", (long long)(y->dim[2] / d->attrs.i[0]));
        return text;
    }
    case WN_OP_SUM:
    case WN_OP_MEAN:
    case WN_OP_MAX:
    case WN_OP_MIN: return class_of_reduction(d);
    case WN_OP_ROW_NLL:
    case WN_OP_SOFTMAX:
    case WN_OP_LOG_SOFTMAX:
    case WN_OP_SOFTMAX_GRAD:
    case WN_OP_LOG_SOFTMAX_GRAD:
    case WN_OP_ROW_STATS: return class_of_row(&d->in[0]);
    case WN_OP_ROW_NLL_GRAD: return class_of_row(&d->out);
    default: return "";
    }
}

const char *wn__rate_class(const struct wn_desc *d)
{
    static char text[LETTERS];
    int32_t reads = d->n_in > 0 ? d->in[0].dtype : d->out.dtype, writes = d->out.dtype;
    int32_t is_other = writes != reads && wn__dtype_is_float(writes) && wn__dtype_is_float(reads);
    snprintf(text, sizeof text, "%s %s%s%s%s", wn__op_text(d->op, &d->attrs), wn__dtype_name(reads),
             is_other ? " to " : "", is_other ? wn__dtype_name(writes) : "", detail(d));
    return text;
}

/* ---- rates ------------------------------------------------------------------------------------------------------ */

static const char *key_of(int32_t machine, const char *kind, const char *class)
{
    static char text[LETTERS + 64];
    snprintf(text, sizeof text, "%d %s %s", (int)machine, kind, class);
    return text;
}

int32_t wn__rate_put(int32_t machine, const char *kind, const char *class, const struct wn_rate *rate)
{
    if (strlen(class) >= LETTERS)
        return wn__fail(WN_VALUE, "rate of %.32s...: a class has fewer than %d letters", class, (int)LETTERS);
    const double number[] = {rate->launch, rate->bytes, rate->flops, rate->half};
    for (int32_t i = 0; i < 4; i++)
        if (!((number[i] == 0 || number[i] >= LEAST) && number[i] < 1e18))
            return wn__fail(WN_VALUE, "rate of %s: numbers must be 0, or 1e-12 or more and below 1e18, %g given", class,
                            number[i]);
    if (rate->bytes == 0 && rate->flops == 0)
        return wn__fail(WN_VALUE, "rate of %s: bytes or FLOP a second must be above 0", class);
    WN_TRY(wn__grow(&rates, &capacity, known.count + 1, sizeof *rates));
    struct wn__name *n = wn__names_get(&known, key_of(machine, kind, class));
    if (n == NULL) return WN_OOM;
    if (n->id < 0) n->id = (int32_t)known.count - 1;
    rates[n->id] = *rate;
    return WN_OK;
}

double wn__rate_seconds(int32_t machine, const char *kind, const struct wn_desc *d)
{
    if (known.count == 0) return -1;
    const struct wn__name *n = wn__names_known(&known, key_of(machine, kind, wn__rate_class(d)));
    if (n == NULL || n->id < 0) return -1;
    const struct wn_rate *r = &rates[n->id];
    const struct wn_cost cost = wn__op_cost(d);
    const struct wn__sides s = wn__product_sides(d);
    int64_t least = lesser(s.m, lesser(s.n, s.k));
    double flops = r->flops > 0 ? cost.flops * (1 + (least > 0 ? r->half / (double)least : 0)) / r->flops : 0,
           bytes = r->bytes > 0 ? cost.bytes / r->bytes : 0;
    return r->launch + (flops > bytes ? flops : bytes);
}
