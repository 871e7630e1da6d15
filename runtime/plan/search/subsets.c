/* Proposes every flat recipe (flat.c) of a graph with few residuals: one for each set of residuals that is kept. Edits
 * (toggle.c) and the chain solver reach most of the good plans; this move reaches the others where all sets can be
 * listed.
 *
 * Judges a set only if its bounds, made from one schedule that keeps every residual, beat the list:
 *   seconds >= seconds of that schedule + seconds of each recomputed value, counted once;
 *   bytes at an instruction >= bytes alive there - bytes of each residual that is not kept and waits there, after its
 *   last forward reader and before its first backward one.
 *
 * Measured: no set of some 100,000 is below its bounds; seconds equal to the bound, bytes 6 to 13 % above it on
 * average; a quarter to a half of the sets is judged (seven kinds of random graphs). */
#include <stdlib.h>
#include <string.h>
#include "../recipe/action.h"
#include "frontier.h"

#define MAX_VALUES 12 /* the sets of more residuals are not listed */
#define MAX_SETS 1024 /* that are judged: those with the best bounds */
#define WORK 200000   /* sets judged * nodes */

/* A set of residuals that are not kept, and its bounds. */
struct subset {
    int64_t reserved; /* bytes */
    double seconds;
    double gain;   /* wn__frontier_gain of the bounds, before any set was judged */
    uint32_t bits; /* bit k: value[k] is not kept */
};

/* All sets of a graph. Invariant: n <= MAX_VALUES, and every set has its own `bits`. */
struct subsets {
    struct wn__building *b;
    struct wn__pool pool;
    struct wn__forecast all;   /* of the recipe that keeps every residual */
    int32_t value[MAX_VALUES]; /* (n) residuals that may be dropped */
    int32_t n;
    int8_t *kept;       /* (ir->n) as wn__flat_recipe reads it */
    uint8_t *again;     /* (ir->n) scratch, as wn__flat_again fills it */
    int32_t *stack;     /* (ir->n) scratch */
    struct subset *set; /* (n_sets) those whose bounds beat the list */
    int64_t n_sets;
};

/* Fills `kept` with what save_all keeps, and lists the residuals that may be dropped. Returns 0 if there are none, or
 * more than MAX_VALUES. */
static int32_t find_values(struct subsets *s)
{
    const struct wn__ir *ir = s->b->ir;
    const struct wn__marks *marks = s->b->marks;
    for (int32_t v = 0; v < ir->n; v++) {
        const struct wn__ir_node *p = &ir->node[v];
        s->kept[v] = WN__GONE;
        if (!wn__ir_is_forward(ir, v) || wn__ir_is_alias(ir, v) || p->is_reissued) continue;
        int32_t always = wn__recipe_always_keeps(ir, marks, v), decision = marks->decision[v];
        if (always || (p->is_residual && decision != WN_DECISION_RECOMPUTE))
            s->kept[v] = (int8_t)wn__action_of(ir, marks, v);
        if (!p->is_residual || decision != WN_DECISION_NONE || always || p->bytes == 0) continue;
        if (s->n == MAX_VALUES) return 0;
        s->value[s->n++] = v;
    }
    return s->n > 0;
}

/* Makes `kept` the set of `bits`. */
static void put_bits(struct subsets *s, uint32_t bits)
{
    for (int32_t k = 0; k < s->n; k++) s->kept[s->value[k]] = bits >> k & 1 ? WN__GONE : 0;
}

/* Returns the seconds of what the backward computes again if `kept` is kept, each value counted once. */
static double seconds_again(struct subsets *s)
{
    int32_t n = wn__flat_again(s->b->ir, s->kept, s->again, s->stack);
    double sum = 0;
    for (int32_t at = 0; at < n; at++) sum += s->b->ir->seconds[s->stack[at]];
    return sum;
}

/* Returns the bound of the bytes reserved if the residuals of `bits` are not kept. */
static int64_t least_reserved(const struct subsets *s, uint32_t bits)
{
    const struct wn__forecast *c = &s->all;
    int64_t peak = 0;
    for (int32_t i = 0; i < c->n; i++) {
        int64_t live = c->live[i];
        for (int32_t k = 0; k < s->n; k++) {
            int32_t v = s->value[k];
            if (bits >> k & 1 && i >= c->from[v] && i < c->to[v]) live -= s->b->ir->node[v].bytes;
        }
        if (live > peak) peak = live;
    }
    return c->reserved + peak - c->peak;
}

static int compare_gain(const void *x, const void *y)
{
    const struct subset *a = x, *b = y;
    if (a->gain != b->gain) return a->gain > b->gain ? -1 : 1;
    return (a->bits > b->bits) - (a->bits < b->bits);
}

/* Lists the sets whose bounds beat the list, the most promising first. */
static void list_sets(struct subsets *s)
{
    for (uint32_t bits = 0; bits < UINT32_C(1) << s->n; bits++) {
        put_bits(s, bits);
        struct subset *x = &s->set[s->n_sets];
        x->bits = bits;
        x->seconds = s->all.seconds + seconds_again(s);
        x->reserved = least_reserved(s, bits);
        x->gain = wn__frontier_gain(s->b, x->reserved, x->seconds);
        s->n_sets += x->gain > 0;
    }
    qsort(s->set, (size_t)s->n_sets, sizeof *s->set, compare_gain);
}

/* Offers the listed sets whose bounds still beat the list, up to MAX_SETS and WORK / nodes. */
static int32_t try_sets(struct subsets *s)
{
    struct wn__building *b = s->b;
    int32_t most = WORK / (b->ir->n + 1), stop = b->tried + (most < MAX_SETS ? most : MAX_SETS);
    for (int64_t i = 0; i < s->n_sets && b->tried < stop; i++) {
        struct wn__recipe r;
        if (wn__frontier_gain(b, s->set[i].reserved, s->set[i].seconds) <= 0) continue;
        put_bits(s, s->set[i].bits);
        WN_TRY(wn__flat_recipe(b->ir, &b->base, s->kept, &r));
        WN_TRY(wn__frontier_offer(b, &r, "subset"));
    }
    return WN_OK;
}

/* Gets memory for the sets, and makes the forecast of `kept`. */
static int32_t make_room(struct subsets *s)
{
    struct wn__recipe r;
    if (!WN_ARRAY(&s->pool, s->set, INT64_C(1) << s->n)) return WN_OOM;
    WN_TRY(wn__flat_recipe(s->b->ir, &s->b->base, s->kept, &r));
    int32_t code = wn__forecast_make(s->b->ir, &r, &s->all);
    wn__recipe_release(&r);
    return code;
}

int32_t wn__frontier_subsets(struct wn__building *b)
{
    struct subsets s = {.b = b};
    int32_t n = b->ir->n, code = WN_OK;
    if (!WN_ARRAY(&s.pool, s.kept, n) || !WN_ARRAY(&s.pool, s.again, n) || !WN_ARRAY(&s.pool, s.stack, n))
        code = WN_OOM;
    if (code == WN_OK && find_values(&s)) {
        code = make_room(&s);
        if (code == WN_OK) list_sets(&s);
        if (code == WN_OK) code = try_sets(&s);
        wn__forecast_release(&s.all);
    }
    wn__pool_release(&s.pool);
    return code;
}
