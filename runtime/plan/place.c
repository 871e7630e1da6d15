/* Placement: an offset for every store of the arena, and of each depot, which is the same without slabs. One address space: first the intervals of gradient slabs,
 * lent until a gradient is born there, then the arena, whose height is what counts. A pure function; the same
 * input gives the same offsets.
 *
 * Each order of placing gives some height; several orders are tried, then whatever reaches the top is moved to
 * the front a few times, until the height meets its lower bound (most bytes alive at once). Lowest fit, because
 * the low end of a slab is lent longest. */
#include <stdlib.h>
#include <string.h>
#include "occupied.h"
#include "schedule.h"

#define ROUNDS 12     /* of moving what reaches the top to the front; more never won on the models tried */
#define WORK 12000000 /* pairs of boxes looked at before a search ends: 10 us a node at 1,000 nodes */
#define ROUGH                                                                                                          \
    600000        /* rounds of an order x boxes squared, when roughly: all below 223 boxes, 3 at 400, 1 from 775 on */
#define NEAR 1024 /* a height within bound / NEAR of the bound is good enough */

struct box {
    int64_t bytes, at, align; /* align: from the start of its region; what bytes are a multiple of */
    int32_t first, last;      /* instructions */
    int32_t store, instr;     /* whose: a store, or an instruction's workspace (store -1) */
};
struct region { /* of the address space */
    int64_t base, end;
    int32_t slab; /* -1: the arena, without end */
};
struct placing {
    const struct wn__form *f;
    struct wn__schedule *s;
    struct wn__pool scratch;
    struct box *box;   /* (n) to be placed */
    int64_t *best;     /* (n) where each lies in the best layout met */
    struct box *fixed; /* (n_fixed) gradients, and slab bytes not lent */
    int32_t *order;    /* (n) numbers of boxes; the orders of earlier rounds lie behind it, one after the other */
    struct wn__occupied placed;
    int32_t n, n_fixed, n_regions;
    struct region *region;
    int64_t arena_base, bound;
    int32_t space; /* ARENA, HOST or DISK */
    enum wn__place_effort effort;
    int32_t code;
};

static void *get(struct placing *p, int64_t n, int64_t size)
{
    return wn__pool_get(&p->scratch, (n + 1) * size);
}

static int64_t aligned(const struct placing *p, const struct box *b, int64_t at, int32_t r)
{
    if (b->align == 1) return at;
    int64_t in = at - p->region[r].base;
    return p->region[r].base + (in + b->align - 1) / b->align * b->align;
}

/* Moves `at` up to the first region in which b still fits. */
static int64_t into_region(const struct placing *p, const struct box *b, int64_t at, int32_t *r)
{
    at = aligned(p, b, at, *r);
    while (*r < p->n_regions - 1 && at + b->bytes > p->region[*r].end) {
        ++*r;
        if (at < p->region[*r].base) at = p->region[*r].base;
        at = aligned(p, b, at, *r);
    }
    return at;
}

/* Lowest address where b fits: a gap between what overlaps it in time, inside one region. */
static int64_t lowest_fit(struct placing *p, const struct box *b)
{
    int32_t r = 0;
    int64_t at = into_region(p, b, 0, &r), above;
    wn__occupied_start(&p->placed, b->first, b->last);
    while ((above = wn__occupied_above(&p->placed, at, at + b->bytes, b->first, b->last)) > at)
        at = into_region(p, b, above, &r);
    return at;
}

static void put_placed(struct placing *p, const struct box *b)
{
    const struct wn__stretch s = {b->at, b->at + b->bytes, b->first, b->last};
    if (p->code == WN_OK) p->code = wn__occupied_add(&p->placed, &s);
}

static int64_t place_all(struct placing *p)
{
    int64_t height = p->arena_base;
    wn__occupied_clear(&p->placed);
    for (int32_t i = 0; i < p->n_fixed; i++) put_placed(p, &p->fixed[i]);
    for (int32_t i = 0; i < p->n; i++) {
        struct box *b = &p->box[p->order[i]];
        b->at = lowest_fit(p, b);
        put_placed(p, b);
        if (b->at + b->bytes > height) height = b->at + b->bytes;
    }
    return height - p->arena_base;
}

/* ---- orders ------------------------------------------------------------------------------------------------ */

static struct box *sorted_boxes; /* qsort has no context; placement is not re-entered */

static int by_size(const void *a, const void *b)
{
    const struct box *x = &sorted_boxes[*(const int32_t *)a], *y = &sorted_boxes[*(const int32_t *)b];
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    if (x->first != y->first) return (x->first > y->first) - (x->first < y->first);
    return x->store != y->store ? x->store - y->store : x->instr - y->instr;
}

static int by_span(const void *a, const void *b)
{
    const struct box *x = &sorted_boxes[*(const int32_t *)a], *y = &sorted_boxes[*(const int32_t *)b];
    int32_t dx = x->last - x->first, dy = y->last - y->first;
    return dx != dy ? (dx > dy ? -1 : 1) : by_size(a, b);
}

static int by_start(const void *a, const void *b)
{
    const struct box *x = &sorted_boxes[*(const int32_t *)a], *y = &sorted_boxes[*(const int32_t *)b];
    return x->first != y->first ? (x->first > y->first) - (x->first < y->first) : by_size(a, b);
}

static int64_t try_order(struct placing *p, int64_t best)
{
    int64_t height = place_all(p);
    for (int32_t i = 0; i < p->n && height < best; i++) p->best[i] = p->box[i].at;
    return height;
}

/* Moves what reaches the top to the front, in the order it had first (`rank` of each box), and keeps the order before as
 * the one of this round. Returns 0 when a round before had the new order: everything from there on has been tried. */
static int32_t lift(struct placing *p, int32_t round, int64_t height, const int32_t *rank)
{
    int32_t *order = p->order, *old = order + (int64_t)(round + 1) * p->n, n = 0;
    size_t bytes = (size_t)p->n * sizeof *order;
    memcpy(old, order, bytes);
    for (int32_t i = 0; i < p->n; i++) {
        const struct box *b = &p->box[old[i]];
        if (b->at + b->bytes - p->arena_base != height) continue;
        int32_t k = n++;
        for (; k > 0 && rank[order[k - 1]] > rank[old[i]]; k--) order[k] = order[k - 1];
        order[k] = old[i];
    }
    for (int32_t i = 0; i < p->n; i++) {
        const struct box *b = &p->box[old[i]];
        if (b->at + b->bytes - p->arena_base != height) order[n++] = old[i];
    }
    for (int32_t k = 1; k <= round + 1; k++)
        if (memcmp(order, order + (int64_t)k * p->n, bytes) == 0) return 0;
    return 1;
}

static int32_t rounds_of(const struct placing *p)
{
    int64_t rounds = p->effort == WN__PLACE_ROUGHLY ? ROUGH / p->n / p->n : ROUNDS;
    return rounds > ROUNDS ? ROUNDS : rounds < 1 ? 1 : (int32_t)rounds;
}

static int64_t search(struct placing *p, int32_t *rank)
{
    int32_t rounds = rounds_of(p);
    int (*const compares[])(const void *, const void *) = {by_size, by_span, by_start};
    int64_t best = INT64_MAX, good = p->bound + p->bound / NEAR, pairs = (int64_t)p->n * p->n / 2 + 1, work = 0;
    for (int32_t c = 0; c < 3 && best > good; c++) {
        sorted_boxes = p->box;
        qsort(p->order, (size_t)p->n, sizeof *p->order, compares[c]);
        for (int32_t i = 0; i < p->n; i++) rank[p->order[i]] = i;
        for (int32_t round = 0; round < rounds && best > good && (c == 0 || work < WORK); round++) {
            int64_t height = try_order(p, best);
            if (height < best) best = height;
            work += pairs;
            if (work >= WORK || best <= good || !lift(p, round, height, rank)) break;
        }
    }
    return best;
}

/* ---- input and output --------------------------------------------------------------------------------------- */

static void put_boxes(struct placing *p)
{
    for (int32_t t = 0; t < p->s->n_stores; t++) {
        const struct wn__store *st = &p->s->store[t];
        if (st->space != p->space || st->bytes == 0) continue;
        p->box[p->n++] = (struct box){.bytes = wn__store_span(st),
                                      .align = st->is_paged ? WN_PAGE : 1,
                                      .first = st->first,
                                      .last = st->last,
                                      .store = t};
    }
    for (int32_t i = 0; i < p->s->n && p->space == WN_SPACE_ARENA; i++) {
        const struct wn__instr *n = &p->s->instr[i];
        if (!wn__instr_has_kernel(n) || n->work_bytes == 0) continue;
        p->box[p->n++] =
            (struct box){.bytes = n->work_bytes, .align = 1, .first = i, .last = i, .store = -1, .instr = i};
    }
}

static int by_offset(const void *a, const void *b)
{
    const struct box *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* Gradients assigned here hold their interval from birth on; the rest of a slab is not lent at all. */
static void put_fixed(struct placing *p)
{
    int64_t base = 0;
    for (int32_t k = 0; k < p->f->n_slabs && p->space == WN_SPACE_ARENA; k++) {
        int32_t from = p->n_fixed;
        for (int32_t t = 0; t < p->s->n_stores; t++) {
            const struct wn__store *st = &p->s->store[t];
            if (st->space != WN_SPACE_SLAB || st->slot != k || st->first < 0 || st->bytes == 0) continue;
            p->fixed[p->n_fixed++] = (struct box){
                .bytes = st->bytes, .at = base + st->offset, .first = st->first, .last = p->s->n, .store = t};
        }
        qsort(p->fixed + from, (size_t)(p->n_fixed - from), sizeof *p->fixed, by_offset);
        int64_t at = base, end = base + p->f->slab[k].bytes;
        for (int32_t i = from, n = p->n_fixed; i <= n; i++) {
            int64_t next = i < n ? p->fixed[i].at : end;
            if (next > at)
                p->fixed[p->n_fixed++] =
                    (struct box){.bytes = next - at, .at = at, .first = 0, .last = p->s->n, .store = -1};
            if (i < n) at = next + p->fixed[i].bytes;
        }
        p->region[p->n_regions++] = (struct region){base, end, k};
        base = end;
    }
    p->region[p->n_regions++] = (struct region){base, INT64_MAX, -1};
    p->arena_base = base;
}

/* The most that must lie in the arena at any instruction: what is alive less what is lent then. */
static void find_bound(struct placing *p)
{
    int64_t *change = get(p, p->s->n + 1, sizeof *change), live = 0;
    if (change == NULL) return;
    for (int32_t i = 0; i < p->n; i++) {
        change[p->box[i].first] += p->box[i].bytes;
        if (p->box[i].last + 1 <= p->s->n) change[p->box[i].last + 1] -= p->box[i].bytes;
    }
    for (int32_t i = 0; i < p->n_fixed; i++) change[p->fixed[i].first] += p->fixed[i].bytes;
    for (int32_t i = 0; i <= p->s->n; i++) {
        live += change[i];
        if (live - p->arena_base > p->bound) p->bound = live - p->arena_base;
    }
}

static void write_back(struct placing *p)
{
    for (int32_t i = 0; i < p->n; i++) {
        const struct box *b = &p->box[i];
        int32_t r = 0;
        while (r < p->n_regions - 1 && p->best[i] >= p->region[r].end) r++;
        int64_t offset = p->best[i] - p->region[r].base;
        if (b->store < 0) {
            p->s->instr[b->instr].work_slab = p->region[r].slab;
            p->s->instr[b->instr].work_offset = offset;
            continue;
        }
        struct wn__store *st = &p->s->store[b->store];
        st->space = p->region[r].slab < 0 ? p->space : WN_SPACE_SLAB;
        st->slot = p->region[r].slab;
        st->offset = offset;
        if (r < p->n_regions - 1) p->s->lent += b->bytes;
    }
}

static int32_t place_boxes(struct placing *p, int64_t *height)
{
    int32_t *rank = get(p, p->n, sizeof *rank);
    p->order = get(p, (ROUNDS + 1) * (int64_t)p->n, sizeof *p->order);
    if (rank == NULL || p->order == NULL) return WN_OOM;
    for (int32_t i = 0; i < p->n; i++) p->order[i] = i;
    p->code = wn__occupied_make(&p->placed, (int64_t)p->n + p->n_fixed, p->s->n + 1);
    if (p->code == WN_OK) *height = search(p, rank);
    wn__occupied_release(&p->placed);
    if (p->code == WN_OK) write_back(p);
    return p->code;
}

/* Sets the boxes of one space up, finds their lower bound, and places them unless only that is asked for. */
static int32_t place_space(const struct wn__form *f, struct wn__schedule *s, int32_t space,
                           enum wn__place_effort effort, int64_t *height)
{
    struct placing p = {.f = f, .s = s, .space = space, .effort = effort};
    int64_t n = (int64_t)s->n_stores + s->n;
    p.box = get(&p, n, sizeof *p.box);
    p.best = get(&p, n, sizeof *p.best);
    p.fixed = get(&p, 2 * (int64_t)s->n_stores + f->n_slabs, sizeof *p.fixed);
    p.region = get(&p, f->n_slabs + 1, sizeof *p.region);
    p.code = p.box && p.best && p.fixed && p.region ? WN_OK : WN_OOM;
    if (p.code == WN_OK) {
        put_boxes(&p);
        put_fixed(&p);
        find_bound(&p);
        *height = p.n == 0 ? 0 : p.bound;
    }
    if (p.code == WN_OK && effort != WN__PLACE_BOUND && p.n > 0) p.code = place_boxes(&p, height);
    wn__pool_release(&p.scratch);
    return p.code;
}

int32_t wn__place(const struct wn__form *f, struct wn__schedule *s, enum wn__place_effort effort)
{
    WN_TRY(place_space(f, s, WN_SPACE_ARENA, effort, &s->arena));
    if (s->n_moves == 0) return WN_OK;
    WN_TRY(place_space(f, s, WN_SPACE_HOST, effort, &s->depot[WN_PLACE_HOST]));
    return place_space(f, s, WN_SPACE_DISK, effort, &s->depot[WN_PLACE_DISK]);
}
