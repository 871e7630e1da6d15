/* Blocks to plan by. Where the graph has cuts that one value crosses, they are the IR's own blocks. Where it has few
 * of them - long skips, values read again much later - a block that is too large is cut further, in front of
 * nodes that read a state, wherever no more than one value made since the last cut crosses: older ones go by on their
 * way from an earlier block to a later one. A value whose decision is 'recompute' is not kept, so no cut lies where one
 * crosses: such a cut moves to the nearest place that another single value crosses, or goes. Too many blocks are joined
 * in pairs.
 *
 * The fine partition cuts at every place that a single value crosses, so Linear and GELU are two blocks: then a plan may
 * keep what crosses into the GELU and let its output go, which is cheap to compute again. */
#include <string.h>
#include "planner.h"

#define SHARE 4  /* a block with more than this part of the forward's nodes is cut further */
#define MOST 160 /* blocks: the solver's time grows with their square */

static int32_t reads_state(const struct wn__ir *f, int32_t i)
{
    for (int32_t k = 0; k < f->node[i].n_in; k++) {
        int32_t v = wn__ir_storage(f, wn__ir_in(f, i, k));
        if (f->node[v].leaf == WN_LEAF_CELL || f->node[v].is_reissued) return 1;
    }
    return 0;
}

/* Cuts [from, to) of one block of the IR further: cut[i] = 1 where a block starts. */
static void cut_inside(const struct wn__ir *f, const int32_t *last, int32_t from, int32_t to, uint8_t *cut)
{
    int32_t start = from;
    for (int32_t i = from + 1; i < to; i++) {
        if (!wn__ir_is_forward(f, i) || !reads_state(f, i) || f->node[i].is_reissued) continue;
        int32_t fresh = 0, stateful = 0;
        for (int32_t j = start; j < i; j++) {
            if (!wn__ir_is_forward(f, j) || f->node[j].is_reissued) continue;
            stateful |= reads_state(f, j);
            fresh += !wn__ir_is_alias(f, j) && last[j] >= i;
        }
        if (fresh > 1 || !stateful) continue;
        cut[i] = 1;
        start = i;
    }
}

static void find_cuts(const struct wn__ir *f, const int32_t *last, uint8_t *cut)
{
    int32_t before = -1, n = 0, from = 0;
    for (int32_t i = 0; i < f->n; i++) {
        if (!wn__ir_is_forward(f, i)) continue;
        const struct wn__ir_node *p = &f->node[i], *q = before >= 0 ? &f->node[before] : NULL;
        cut[i] = q == NULL || p->root != q->root || p->block != q->block;
        before = i;
        n++;
    }
    for (int32_t i = 0; i <= f->n; i++) { /* a block's stretch: from its first node to the next block's */
        if (i < f->n && !(wn__ir_is_forward(f, i) && cut[i])) continue;
        int32_t size = 0;
        for (int32_t j = from; j < i; j++) size += wn__ir_is_forward(f, j);
        if (size * SHARE > n) cut_inside(f, last, from, i, cut);
        from = i;
    }
}

/* ---- cuts that no decision forbids ----------------------------------------------------------------------------------- */

struct crossing {
    int32_t *all;   /* (f->n + 1) computed values made before node i and read at or after it by the forward */
    int32_t *words; /* (f->n + 1) of those, the ones whose decision is 'recompute' */
};

static void count_crossing(const struct wn__ir *f, const int32_t *last, struct crossing *x)
{
    for (int32_t v = 0; v < f->n; v++) {
        if (!wn__ir_is_forward(f, v) || wn__ir_is_alias(f, v) || f->node[v].is_reissued || last[v] == v) continue;
        int32_t must_go = f->node[v].decision == WN_DECISION_RECOMPUTE && !wn__recipe_always_keeps(f, v);
        x->all[v + 1]++;
        x->all[last[v] + 1]--;
        x->words[v + 1] += must_go;
        x->words[last[v] + 1] -= must_go;
    }
    for (int32_t i = 1; i <= f->n; i++) {
        x->all[i] += x->all[i - 1];
        x->words[i] += x->words[i - 1];
    }
}

/* The nearest place before or after cut i that at most one value crosses, none with that decision, up to the next cut; -1. */
static int32_t nearest_free(const struct wn__ir *f, const struct crossing *x, const uint8_t *cut, int32_t i, int32_t by)
{
    for (int32_t j = i + by; j > 0 && j < f->n; j += by) {
        if (!wn__ir_is_forward(f, j)) continue;
        if (f->node[j].root != f->node[i].root || cut[j]) return -1;
        if (x->all[j] <= 1 && x->words[j] == 0 && !f->node[j].is_reissued) return j;
    }
    return -1;
}

static void move_cuts(const struct wn__ir *f, const struct crossing *x, uint8_t *cut)
{
    int32_t before = -1;
    for (int32_t i = 0; i < f->n; i++) {
        if (!wn__ir_is_forward(f, i)) continue;
        int32_t starts_root = before < 0 || f->node[before].root != f->node[i].root;
        before = i;
        if (!cut[i] || starts_root || x->words[i] == 0) continue;
        int32_t to = nearest_free(f, x, cut, i, -1);
        if (to < 0) to = nearest_free(f, x, cut, i, 1);
        cut[i] = 0;
        if (to >= 0) cut[to] = 1;
    }
}

/* A cut in front of every op that a single value crosses, no two without an op between them. */
static void cut_finely(const struct wn__ir *f, const struct crossing *x, uint8_t *cut)
{
    int32_t has_op = 0;
    for (int32_t i = 0; i < f->n; i++) {
        if (!wn__ir_is_forward(f, i) || f->node[i].is_reissued || wn__ir_is_alias(f, i)) continue;
        if (f->node[i].absorbed_by >= 0) continue;
        if (has_op && x->all[i] <= 1 && x->words[i] == 0) cut[i] = 1;
        has_op = 1;
    }
}

/* One cut of two goes, as often as it takes; those between roots stay. */
static void join(const struct wn__ir *f, uint8_t *cut)
{
    for (int32_t left = INT32_MAX;;) {
        int32_t n = 0, before = -1;
        for (int32_t i = 0; i < f->n; i++) n += wn__ir_is_forward(f, i) && cut[i];
        if (n <= MOST || n == left) return;
        left = n;
        for (int32_t i = 0, k = 0; i < f->n; i++) {
            if (!wn__ir_is_forward(f, i)) continue;
            int32_t same = before >= 0 && f->node[before].root == f->node[i].root;
            if (cut[i] && same && k++ % 2 == 0) cut[i] = 0;
            before = i;
        }
    }
}

int32_t wn__partition(const struct wn__ir *f, int32_t is_fine, struct wn__recipe *r)
{
    int64_t size = (f->n + 1) * (int64_t)sizeof(int32_t);
    struct wn__pool scratch = {0};
    memset(r, 0, sizeof *r);
    r->ahead = WN__PREFETCH;
    r->block_of = wn__pool_get(&r->pool, size);
    r->first = wn__pool_get(&r->pool, size);
    r->limit = wn__pool_get(&r->pool, size);
    r->last = wn__pool_get(&r->pool, size);
    uint8_t *cut = wn__pool_get(&scratch, f->n + 1);
    struct crossing x = {wn__pool_get(&scratch, size + 4), wn__pool_get(&scratch, size + 4)};
    int32_t code = r->block_of && r->first && r->limit && r->last && cut && x.all && x.words ? WN_OK : WN_OOM;
    if (code == WN_OK) {
        wn__ir_last_readers(f, r->last);
        find_cuts(f, r->last, cut);
        count_crossing(f, r->last, &x);
        move_cuts(f, &x, cut);
        if (is_fine) cut_finely(f, &x, cut);
        else join(f, cut);
        for (int32_t i = 0; i < f->n; i++) {
            r->block_of[i] = -1;
            if (!wn__ir_is_forward(f, i)) continue;
            if (cut[i]) r->first[r->n_blocks++] = i;
            r->block_of[i] = r->n_blocks - 1;
            r->limit[r->n_blocks - 1] = i + 1;
        }
        wn__recipe_serve(f, r);
    }
    wn__pool_release(&scratch);
    return code;
}

/* An effect works for the block of the gradient it takes, or computes itself. */
void wn__partition_home(const struct wn__ir *f, const struct wn__recipe *r, int32_t *home)
{
    int32_t effects = f->n - f->n_effects;
    for (int32_t i = 0; i < f->n; i++) home[i] = -1;
    for (int32_t i = 0; i < effects; i++) {
        const struct wn__ir_node *p = &f->node[i];
        int32_t block = r->block_of[i];
        if (p->leaf != WN_LEAF_NONE || p->bound || block < 0 || p->root != f->node[r->first[block]].root) continue;
        home[i] = block;
        if (p->absorbed_by >= effects) home[p->absorbed_by] = block;
    }
    for (int32_t i = effects; i < f->n; i++)
        for (int32_t k = 0; k < f->node[i].n_in && home[i] < 0; k++) {
            int32_t v = wn__ir_storage(f, wn__ir_in(f, i, k));
            if (f->node[v].phase == WN_PHASE_BACKWARD) home[i] = home[v];
        }
}
