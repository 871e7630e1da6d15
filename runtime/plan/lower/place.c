/* Placement: gives an offset to every allocation of the arena, and of each offload buffer, which is an arena without
 * slabs. It is a pure function: the same input gives the same offsets.
 *
 *   bytes
 *     ^   |          +-------------------------+                          |
 *     |   |  arena   |  value   +-----------+  |   +------------+         |  height: what counts
 *     |   |    +-----+----------+ workspace +--+---+   value    |         |
 *     |   +----+-----+----------+-----------+--+---+------------+---------+  arena_base
 *     |   |  slab 1  value (lent)     |      gradient, until the program ends
 *     |   |  slab 0  value (lent)               |      gradient
 *     +---+---------------------------------------------------------------> instructions
 *
 * One address space: first the slabs, whose bytes are lent until a gradient is allocated there, then the arena.
 *
 * Each order of placing gives some height. Several orders are tried; after each, the boxes that reach the top are
 * moved to the front a few times, until the height meets its lower bound. A box goes to its lowest fit, because the low
 * end of a slab is lent longest. The first order begins with the boxes that are alive when the most bytes are: these
 * are put side by side without holes, and boxes that are alive at emptier times fill in around them.
 * Measured: height / bound after the first order alone: 1.74 by size, 1.20 by span, 1.015 by crowd (two towers of
 * 100 layers); 3.19, 1.035, 1.030 (90 uneven residual blocks). */
#include <stdlib.h>
#include <string.h>
#include "occupied.h"
#include "schedule.h"

#define ROUNDS 12     /* rounds of moving the boxes at the top to the front. Measured: more never won (models tried) */
#define MANY 300      /* boxes. Of more, only the two best orders are tried, and left early */
#define STALE 4       /* rounds without a lower height, after which an order of many boxes is left */
#define WORK 12000000 /* pairs of boxes compared before a search ends. Measured: 10 us a node at 1,000 nodes */
#define ROUGH 600000  /* ROUGHLY's rounds of an order * boxes^2: all rounds below 223 boxes, 6 at 300 */
#define HASTY 3       /* HASTILY's rounds of an order */
#define NEAR 1024     /* a height of at most bound + bound / NEAR is good enough */
#define PARTS 8       /* parts of a program: raise_bound looks closely at one instant of each */
#define SPAN 64       /* instructions of a span whose fullest instant is known */

struct box {
    int64_t bytes, at, align;  /* at: address; align: the offset in its region and `bytes` are multiples of this */
    int32_t first, last;       /* the instructions that it lives from and to, both included */
    int32_t allocation, instr; /* its owner: an allocation, or (allocation -1) the workspace of an instruction */
    int64_t crowd;             /* the most bytes alive at any instant of its life, its own included */
};
/* A stretch [base, end) of the address space. */
struct region {
    int64_t base, end;
    int32_t slab; /* number of the slab; -1: the arena, whose end is INT64_MAX */
};
struct placing {
    const struct wn__ir *ir;
    struct wn__schedule *s;
    struct wn__pool scratch;
    struct box *box;   /* (n) what is placed */
    int64_t *best;     /* (n) the address of each box in the best layout so far */
    struct box *fixed; /* (n_fixed) what has its place already: gradients, and bytes of slabs that are not lent */
    int32_t *order;    /* (n) numbers of boxes; the orders of earlier rounds follow it, n numbers each */
    struct wn__occupied placed;
    int32_t n, n_fixed, n_regions;
    struct region *region;
    int64_t arena_base, bound;
    int64_t *live; /* (s->n + 1) bytes of boxes and of fixed ones at each instruction */
    int32_t space; /* enum wn__space: ARENA, HOST or DISK */
    enum wn__place_effort effort;
    int32_t code;
};

static int64_t aligned(const struct placing *p, const struct box *b, int64_t at, int32_t r)
{
    if (b->align == 1) return at;
    int64_t in = at - p->region[r].base;
    return p->region[r].base + (in + b->align - 1) / b->align * b->align;
}

/* Returns the lowest address from `at` on at which b fits into one region, and sets *r to that region. */
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

/* Returns the lowest address at which b fits: in one region, overlapping nothing that lives at the same time. */
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
    WN_KEEP(p->code, wn__occupied_add(&p->placed, &s));
}

/* Places all boxes in the present order, each at its lowest fit, and returns the height. */
static int64_t place_all(struct placing *p)
{
    int64_t height = p->arena_base;
    wn__occupied_clear(&p->placed);
    for (int32_t i = 0; i < p->n_fixed; i++) put_placed(p, &p->fixed[i]);
    wn__placed_boxes += p->n;
    for (int32_t i = 0; i < p->n; i++) {
        struct box *b = &p->box[p->order[i]];
        b->at = lowest_fit(p, b);
        put_placed(p, b);
        if (b->at + b->bytes > height) height = b->at + b->bytes;
    }
    return height - p->arena_base;
}

/* ---- orders ------------------------------------------------------------------------------------------------ */

static struct box
    *sorted_boxes; /* the boxes that comparisons look at: qsort has no context, and placement is not re-entered */

static int by_size(const void *a, const void *b)
{
    const struct box *x = &sorted_boxes[*(const int32_t *)a], *y = &sorted_boxes[*(const int32_t *)b];
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    if (x->first != y->first) return (x->first > y->first) - (x->first < y->first);
    return x->allocation != y->allocation ? x->allocation - y->allocation : x->instr - y->instr;
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

static int by_crowd(const void *a, const void *b)
{
    const struct box *x = &sorted_boxes[*(const int32_t *)a], *y = &sorted_boxes[*(const int32_t *)b];
    return x->crowd != y->crowd ? (x->crowd > y->crowd ? -1 : 1) : by_start(a, b);
}

static int64_t try_order(struct placing *p, int64_t best)
{
    int64_t height = place_all(p);
    for (int32_t i = 0; i < p->n && height < best; i++) p->best[i] = p->box[i].at;
    return height;
}

/* Moves the boxes that reach the top to the front, in the order of their ranks, and keeps the order before as the
 * one of this round. Returns 0 when an earlier round had the new order: everything from there on has been tried. */
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
    int64_t rounds = p->effort != WN__PLACE_FULLY ? ROUGH / p->n / p->n : ROUNDS;
    int32_t most = p->effort == WN__PLACE_HASTILY ? HASTY : ROUNDS;
    return rounds > most ? most : rounds < 1 ? 1 : (int32_t)rounds;
}

/* Returns the number of orders that are tried, the best ones first. */
static int32_t orders_of(const struct placing *p)
{
    return p->effort == WN__PLACE_HASTILY || p->n > MANY ? 2 : 4;
}

/* Runs the rounds of one order and returns the lowest height, of them and `best`. */
static int64_t search_order(struct placing *p, int32_t *rank, int64_t best, int64_t *work)
{
    int32_t rounds = rounds_of(p), stale = 0;
    int64_t good = p->bound + p->bound / NEAR, pairs = (int64_t)p->n * p->n / 2 + 1;
    for (int32_t i = 0; i < p->n; i++) rank[p->order[i]] = i;
    for (int32_t round = 0; round < rounds; round++) {
        int64_t height = try_order(p, best);
        stale = height < best ? 0 : stale + 1;
        if (height < best) best = height;
        *work += pairs;
        if (*work >= WORK || best <= good || (p->n > MANY && stale == STALE)) break;
        if (!lift(p, round, height, rank)) break;
    }
    return best;
}

/* Tries the orders, the best first, until one is good enough or the work is used up. Returns the lowest height. Less
 * effort begins with the same rounds of the first order: where these are good enough, more effort ends there too. */
static int64_t search(struct placing *p, int32_t *rank)
{
    int (*const compares[])(const void *, const void *) = {by_crowd, by_span, by_start, by_size};
    int64_t best = INT64_MAX, good = p->bound + p->bound / NEAR, work = 0;
    for (int32_t c = 0; c < orders_of(p) && best > good && (c == 0 || work < WORK); c++) {
        sorted_boxes = p->box;
        qsort(p->order, (size_t)p->n, sizeof *p->order, compares[c]);
        best = search_order(p, rank, best, &work);
        if (best > good && p->effort != WN__PLACE_FULLY) p->s->is_settled = 0;
    }
    return best;
}

/* ---- input and output --------------------------------------------------------------------------------------- */

/* Makes a box of every allocation of the space, and in the arena of every workspace. */
static void put_boxes(struct placing *p)
{
    for (int32_t t = 0; t < p->s->n_allocations; t++) {
        const struct wn__allocation *st = &p->s->allocation[t];
        if (st->space != p->space || st->bytes == 0) continue;
        p->box[p->n++] = (struct box){.bytes = wn__allocation_span(st),
                                      .align = st->is_paged ? WN_PAGE : 1,
                                      .first = st->first,
                                      .last = st->last,
                                      .allocation = t};
    }
    for (int32_t i = 0; i < p->s->n && p->space == WN_SPACE_ARENA; i++) {
        const struct wn__instr *n = &p->s->instr[i];
        if (!wn__instr_has_kernel(n) || n->work_bytes == 0) continue;
        p->box[p->n++] =
            (struct box){.bytes = n->work_bytes, .align = 1, .first = i, .last = i, .allocation = -1, .instr = i};
    }
}

static int by_offset(const void *a, const void *b)
{
    const struct box *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* Fixes gradients that the program assigns, from their allocation on, and from the start every byte of a slab that
 * is not lent. */
static void put_fixed(struct placing *p)
{
    int64_t base = 0;
    for (int32_t k = 0; k < p->ir->n_slabs && p->space == WN_SPACE_ARENA; k++) {
        int32_t from = p->n_fixed;
        for (int32_t t = 0; t < p->s->n_allocations; t++) {
            const struct wn__allocation *st = &p->s->allocation[t];
            if (st->space != WN_SPACE_SLAB || st->slot != k || st->first < 0 || st->bytes == 0) continue;
            p->fixed[p->n_fixed++] = (struct box){
                .bytes = st->bytes, .at = base + st->offset, .first = st->first, .last = p->s->n, .allocation = t};
        }
        qsort(p->fixed + from, (size_t)(p->n_fixed - from), sizeof *p->fixed, by_offset);
        int64_t at = base, end = base + p->ir->slab[k].bytes;
        for (int32_t i = from, n = p->n_fixed; i <= n; i++) {
            int64_t next = i < n ? p->fixed[i].at : end;
            if (next > at)
                p->fixed[p->n_fixed++] =
                    (struct box){.bytes = next - at, .at = at, .first = 0, .last = p->s->n, .allocation = -1};
            if (i < n) at = next + p->fixed[i].bytes;
        }
        p->region[p->n_regions++] = (struct region){base, end, k};
        base = end;
    }
    qsort(p->fixed, (size_t)p->n_fixed, sizeof *p->fixed, by_offset);
    p->region[p->n_regions++] = (struct region){base, INT64_MAX, -1};
    p->arena_base = base;
}

/* ---- the bound ---------------------------------------------------------------------------------------------- */

/* Finds the lower bound: the most bytes alive at any instruction, less the bytes of slabs that are lent then. */
static void find_bound(struct placing *p)
{
    int64_t live = 0;
    for (int32_t i = 0; i < p->n; i++) {
        p->live[p->box[i].first] += p->box[i].bytes;
        if (p->box[i].last + 1 <= p->s->n) p->live[p->box[i].last + 1] -= p->box[i].bytes;
    }
    for (int32_t i = 0; i < p->n_fixed; i++) p->live[p->fixed[i].first] += p->fixed[i].bytes;
    for (int32_t i = 0; i <= p->s->n; i++) {
        live += p->live[i];
        p->live[i] = live;
        if (live - p->arena_base > p->bound) p->bound = live - p->arena_base;
    }
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Returns how many bytes of a gap boxes can fill at most: multiples of `unit`, as all large boxes are, and up to
 * `small` bytes of others. */
static int64_t filled(int64_t gap, int64_t unit, int64_t small)
{
    int64_t rest = gap % unit;
    return gap - rest + (small < rest ? small : rest);
}

/* Returns how many bytes of the slabs boxes can fill at most at an instruction. */
static int64_t filled_slabs(const struct placing *p, int32_t instr, int64_t unit, int64_t small)
{
    int64_t sum = 0, at = 0;
    for (int32_t r = 0, i = 0; r < p->n_regions - 1; r++) {
        int64_t end = p->region[r].end;
        for (at = p->region[r].base; i < p->n_fixed && p->fixed[i].at < end; i++) {
            if (p->fixed[i].first > instr) continue;
            sum += filled(p->fixed[i].at - at, unit, small);
            at = p->fixed[i].at + p->fixed[i].bytes;
        }
        sum += filled(end - at, unit, small);
    }
    return sum;
}

/* Returns the lower bound at one instruction, where gaps are no multiples of the large boxes. size: (n) bytes of
 * boxes alive, largest first. */
static int64_t bound_at(const struct placing *p, int32_t instr, const int64_t *size, int32_t n)
{
    int64_t all = 0, large = 0, unit = 0, least = INT64_MAX;
    for (int32_t i = 0; i < n; i++) all += size[i];
    for (int32_t i = 0; i < n; i++) {
        unit = common_divisor(unit, size[i]);
        large += size[i];
        if (unit <= WN_GRANULE) break;
        if (i + 1 < n && size[i + 1] == size[i]) continue;
        int64_t now = filled_slabs(p, instr, unit, all - large);
        if (now < least) least = now;
    }
    return least == INT64_MAX ? 0 : all - least;
}

static int by_bytes(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* Raises the bound at the fullest instant of each part of the program, where boxes cannot fill all bytes that are
 * lent. Only placing calls this: forecasts of edits (search/forecast.c) compare better without it. */
static int32_t raise_bound(struct placing *p)
{
    int32_t width = p->s->n / PARTS + 1;
    int64_t *size;
    if (!WN_ARRAY(&p->scratch, size, p->n)) return WN_OOM;
    for (int32_t from = 0; from <= p->s->n && p->arena_base > 0; from += width) {
        int32_t n = 0, at = from;
        for (int32_t i = from; i <= p->s->n && i < from + width; i++)
            if (p->live[i] > p->live[at]) at = i;
        for (int32_t i = 0; i < p->n; i++)
            if (p->box[i].first <= at && p->box[i].last >= at) size[n++] = p->box[i].bytes;
        qsort(size, (size_t)n, sizeof *size, by_bytes);
        int64_t bound = bound_at(p, at, size, n);
        if (bound > p->bound) p->bound = bound;
    }
    return WN_OK;
}

/* Fills `crowd` of every box. */
static int32_t find_crowds(struct placing *p)
{
    int64_t *fullest;
    if (!WN_ARRAY(&p->scratch, fullest, p->s->n / SPAN + 1)) return WN_OOM;
    for (int32_t i = 0; i <= p->s->n; i++)
        if (p->live[i] > fullest[i / SPAN]) fullest[i / SPAN] = p->live[i];
    for (int32_t k = 0; k < p->n; k++) {
        struct box *b = &p->box[k];
        for (int32_t i = b->first; i <= b->last;) {
            int32_t whole = i % SPAN == 0 && i + SPAN - 1 <= b->last;
            int64_t live = whole ? fullest[i / SPAN] : p->live[i];
            if (live > b->crowd) b->crowd = live;
            i += whole ? SPAN : 1;
        }
    }
    return WN_OK;
}

/* Writes the best layout to the schedule, and counts the bytes that are lent. */
static void write_back(struct placing *p)
{
    for (int32_t i = 0; i < p->n; i++) {
        const struct box *b = &p->box[i];
        int32_t r = 0;
        while (r < p->n_regions - 1 && p->best[i] >= p->region[r].end) r++;
        int64_t offset = p->best[i] - p->region[r].base;
        if (b->allocation < 0) {
            p->s->instr[b->instr].work_slab = p->region[r].slab;
            p->s->instr[b->instr].work_offset = offset;
            continue;
        }
        struct wn__allocation *st = &p->s->allocation[b->allocation];
        st->space = p->region[r].slab < 0 ? p->space : WN_SPACE_SLAB;
        st->slot = p->region[r].slab;
        st->offset = offset;
        if (r < p->n_regions - 1) p->s->lent += b->bytes;
    }
}

/* Places the boxes and sets *height. WN_OOM. */
static int32_t place_boxes(struct placing *p, int64_t *height)
{
    int32_t *rank;
    if (!WN_ARRAY(&p->scratch, rank, p->n) || !WN_ARRAY(&p->scratch, p->order, (ROUNDS + 1) * (int64_t)p->n))
        return WN_OOM;
    WN_TRY(raise_bound(p));
    WN_TRY(find_crowds(p));
    for (int32_t i = 0; i < p->n; i++) p->order[i] = i;
    WN_KEEP(p->code, wn__occupied_make(&p->placed, (int64_t)p->n + p->n_fixed, p->s->n + 1));
    if (p->code == WN_OK) *height = search(p, rank);
    wn__occupied_release(&p->placed);
    if (p->code == WN_OK) write_back(p);
    return p->code;
}

/* Sets up the boxes of one space, finds their lower bound, and places them unless the effort is BOUND. */
static int32_t place_space(const struct wn__ir *ir, struct wn__schedule *s, int32_t space, enum wn__place_effort effort,
                           int64_t *height)
{
    struct placing p = {.ir = ir, .s = s, .space = space, .effort = effort};
    int64_t n = (int64_t)s->n_allocations + s->n;
    int32_t is_there = WN_ARRAY(&p.scratch, p.box, n) && WN_ARRAY(&p.scratch, p.best, n) &&
                       WN_ARRAY(&p.scratch, p.fixed, 2 * (int64_t)s->n_allocations + ir->n_slabs) &&
                       WN_ARRAY(&p.scratch, p.region, ir->n_slabs + 1) && WN_ARRAY(&p.scratch, p.live, s->n + 1);
    p.code = is_there ? WN_OK : WN_OOM;
    if (is_there) {
        put_boxes(&p);
        put_fixed(&p);
        find_bound(&p);
        *height = p.n == 0 ? 0 : p.bound;
    }
    if (effort != WN__PLACE_BOUND && p.n > 0) WN_KEEP(p.code, place_boxes(&p, height));
    wn__pool_release(&p.scratch);
    return p.code;
}

int64_t wn__placed_boxes;

int32_t wn__place(const struct wn__ir *ir, struct wn__schedule *s, enum wn__place_effort effort)
{
    s->is_settled = effort != WN__PLACE_BOUND;
    WN_TRY(place_space(ir, s, WN_SPACE_ARENA, effort, &s->arena));
    if (s->n_moves == 0) return WN_OK;
    WN_TRY(place_space(ir, s, WN_SPACE_HOST, effort, &s->offload_buffer[WN_MEDIUM_HOST]));
    WN_TRY(place_space(ir, s, WN_SPACE_DISK, effort, &s->offload_buffer[WN_MEDIUM_DISK]));
    return place_space(ir, s, WN_SPACE_RANKS, effort, &s->offload_buffer[WN_MEDIUM_RANKS]);
}
