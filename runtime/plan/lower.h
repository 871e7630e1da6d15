/* What the rooms of lowering share: lower.c (order of issue), effects.c (where effects stand), stores.c
 * (lifetimes, in-place, frees, the finished list). */
#ifndef WN_PLAN_LOWER_H
#define WN_PLAN_LOWER_H
#include "schedule.h"

struct wn__item { /* an issue, before stores and frees are known */
    int32_t node, phase, block, out, in_at;
};

struct wn__lowering {
    const struct wn__form *f;
    const struct wn__recipe *r;
    struct wn__pool scratch;
    int32_t code, in_backward;
    struct wn__item *item;
    int64_t n_items, item_capacity;
    int32_t *in; /* copies */
    int64_t n_in, in_capacity;
    struct wn__copy *copy;
    int64_t n_copies, copy_capacity;
    int32_t *cur;                  /* (f->n) the copy a value is to be had from now, or -1 */
    int32_t *needed;               /* (f->n) scratch of demand */
    int32_t *reissued, n_reissued; /* (f->n) those issued in this step: forgotten at its end */
    uint8_t *mark, *useful, *reached, *issued_once;
    int32_t *backward_first, *backward_next;
    int32_t *effect_in; /* (n_effects) where its inputs' copies were noted when its gradient's turn came, or -1 */
};

void wn__sort_ascending(int32_t *v, int32_t n);
int32_t wn__lower_effects(struct wn__lowering *l);
int32_t wn__lower_finish(struct wn__lowering *l, struct wn__schedule **out);
#endif
