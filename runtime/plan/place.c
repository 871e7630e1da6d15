/* Placement: an offset for every store of the arena, and of each depot, which is the same without slabs. One address space: first the intervals of gradient slabs,
 * lent until a gradient is born there, then the arena, whose height is what counts. A pure function; the same
 * input gives the same offsets.
 *
 * Each order of placing gives some height; several orders are tried, then whatever reaches the top is moved to
 * the front a few times, until the height meets its lower bound (most bytes alive at once). Lowest fit, because
 * the low end of a slab is lent longest. */
#include <stdlib.h>
#include <string.h>
#include "schedule.h"

#define ROUNDS 12     /* of moving what reaches the top to the front; more never won on the models tried */
#define WORK 12000000 /* pairs of boxes looked at before a search ends: 10 us a node at 1,000 nodes */
#define NEAR 1024     /* a height within bound / NEAR of the bound is good enough */

struct box {
    int64_t bytes, at, align; /* align: from the start of its region; what bytes are a multiple of */
    int32_t first, last;      /* instructions */
    int32_t store, instr;     /* whose: a store, or an instruction's workspace (store -1) */
    int32_t lifted;
};
struct region { /* of the address space */
    int64_t base, end;
    int32_t slab; /* -1: the arena, without end */
};
struct placing {
    const struct wn__form *f;
    struct wn__schedule *s;
    struct wn__pool scratch;
    struct box *box, *best;  /* (n) to be placed, best heights' positions */
    struct box *fixed;       /* (n_fixed) gradients, and slab bytes not lent */
    int32_t *order, *placed; /* numbers of boxes; placed: by address, fixed ones as -1 - i */
    int32_t n, n_fixed, n_placed, n_regions;
    struct region *region;
    int64_t arena_base, bound;
    int32_t space; /* ARENA, HOST or DISK */
};

static void *get(struct placing *p, int64_t n, int64_t size)
{
    return wn__pool_get(&p->scratch, (n + 1) * size);
}

static const struct box *placed_box(const struct placing *p, int32_t i)
{
    return p->placed[i] < 0 ? &p->fixed[-1 - p->placed[i]] : &p->box[p->placed[i]];
}

static int32_t overlaps(const struct box *a, const struct box *b)
{
    return a->first <= b->last && b->first <= a->last;
}

static void insert_placed(struct placing *p, int32_t number, int64_t at)
{
    int32_t lo = 0, hi = p->n_placed++;
    while (lo < hi) {
        int32_t middle = (lo + hi) / 2;
        if (placed_box(p, middle)->at > at) hi = middle;
        else lo = middle + 1;
    }
    memmove(p->placed + lo + 1, p->placed + lo, (size_t)(p->n_placed - 1 - lo) * sizeof *p->placed);
    p->placed[lo] = number;
}

static int64_t aligned(const struct placing *p, const struct box *b, int64_t at, int32_t r)
{
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

/* Lowest address where b fits: a gap between what overlaps it in time, inside one region. What is placed is
 * sorted by address, so one pass does. */
static int64_t lowest_fit(const struct placing *p, const struct box *b)
{
    int32_t r = 0;
    int64_t at = into_region(p, b, 0, &r);
    for (int32_t i = 0; i < p->n_placed; i++) {
        const struct box *q = placed_box(p, i);
        if (q->at >= at + b->bytes) break;
        if (q->at + q->bytes > at && overlaps(q, b)) at = into_region(p, b, q->at + q->bytes, &r);
    }
    return at;
}

static int64_t place_all(struct placing *p)
{
    int64_t height = p->arena_base;
    p->n_placed = 0;
    for (int32_t i = 0; i < p->n_fixed; i++) insert_placed(p, -1 - i, p->fixed[i].at);
    for (int32_t i = 0; i < p->n; i++) {
        struct box *b = &p->box[p->order[i]];
        b->at = lowest_fit(p, b);
        insert_placed(p, p->order[i], b->at);
        if (b->at + b->bytes > height) height = b->at + b->bytes;
    }
    return height - p->arena_base;
}

/* ---- orders ------------------------------------------------------------------------------------------------ */

static struct box *sorted_boxes; /* qsort has no context; placement is not re-entered */

static int by_size(const void *a, const void *b)
{
    const struct box *x = &sorted_boxes[*(const int32_t *)a], *y = &sorted_boxes[*(const int32_t *)b];
    if (x->lifted != y->lifted) return x->lifted > y->lifted ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x->first != y->first ? (x->first > y->first) - (x->first < y->first) : x->store - y->store;
}

static int by_span(const void *a, const void *b)
{
    const struct box *x = &sorted_boxes[*(const int32_t *)a], *y = &sorted_boxes[*(const int32_t *)b];
    int32_t dx = x->last - x->first, dy = y->last - y->first;
    if (x->lifted != y->lifted) return x->lifted > y->lifted ? -1 : 1;
    return dx != dy ? (dx > dy ? -1 : 1) : by_size(a, b);
}

static int by_start(const void *a, const void *b)
{
    const struct box *x = &sorted_boxes[*(const int32_t *)a], *y = &sorted_boxes[*(const int32_t *)b];
    if (x->lifted != y->lifted) return x->lifted > y->lifted ? -1 : 1;
    return x->first != y->first ? (x->first > y->first) - (x->first < y->first) : by_size(a, b);
}

static int64_t try_order(struct placing *p, int (*compare)(const void *, const void *), int64_t best)
{
    sorted_boxes = p->box;
    qsort(p->order, (size_t)p->n, sizeof *p->order, compare);
    int64_t height = place_all(p);
    if (height < best) memcpy(p->best, p->box, (size_t)p->n * sizeof *p->box);
    return height;
}

static int64_t search(struct placing *p)
{
    int (*const compares[])(const void *, const void *) = {by_size, by_span, by_start};
    int64_t best = INT64_MAX, good = p->bound + p->bound / NEAR, pairs = (int64_t)p->n * p->n / 2 + 1, work = 0;
    for (int32_t c = 0; c < 3 && best > good; c++) {
        for (int32_t i = 0; i < p->n; i++) p->box[i].lifted = 0;
        for (int32_t round = 0; round < ROUNDS && best > good && (c == 0 || work < WORK); round++) {
            int64_t height = try_order(p, compares[c], best);
            if (height < best) best = height;
            work += pairs;
            if (work >= WORK) break;
            for (int32_t i = 0; i < p->n; i++)
                if (p->box[i].at + p->box[i].bytes - p->arena_base == height) p->box[i].lifted = round + 1;
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
    for (int32_t i = 0; i < p->n; i++) p->order[i] = i;
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
        const struct box *b = &p->best[i];
        int32_t r = 0;
        while (r < p->n_regions - 1 && b->at >= p->region[r].end) r++;
        int64_t offset = b->at - p->region[r].base;
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

static int32_t place_space(const struct wn__form *f, struct wn__schedule *s, int32_t space, int64_t *height)
{
    struct placing p = {.f = f, .s = s, .space = space};
    int64_t n = (int64_t)s->n_stores + s->n;
    p.box = get(&p, n, sizeof *p.box);
    p.best = get(&p, n, sizeof *p.best);
    p.fixed = get(&p, 2 * (int64_t)s->n_stores + f->n_slabs, sizeof *p.fixed);
    p.order = get(&p, n, sizeof *p.order);
    p.placed = get(&p, n + 2 * (int64_t)s->n_stores + f->n_slabs, sizeof *p.placed);
    p.region = get(&p, f->n_slabs + 1, sizeof *p.region);
    int32_t code = p.box && p.best && p.fixed && p.order && p.placed && p.region ? WN_OK : WN_OOM;
    if (code == WN_OK) {
        put_boxes(&p);
        put_fixed(&p);
        find_bound(&p);
        *height = p.n > 0 ? search(&p) : 0;
        write_back(&p);
    }
    wn__pool_release(&p.scratch);
    return code;
}

int32_t wn__place(const struct wn__form *f, struct wn__schedule *s)
{
    WN_TRY(place_space(f, s, WN_SPACE_ARENA, &s->arena));
    if (s->n_moves == 0) return WN_OK;
    WN_TRY(place_space(f, s, WN_SPACE_HOST, &s->depot[WN_PLACE_HOST]));
    return place_space(f, s, WN_SPACE_DISK, &s->depot[WN_PLACE_DISK]);
}
