/* The kernels of a tile of attention (struct wn__attention_kernel), written once for all vector instructions. The bits
 * are those of the portable loops of tile.c: the same steps in the same order.
 *
 * Products are computed by micro-tiles of MR rows x 1, 2 or 3 vectors, whose sums stay in registers over all of k, with
 * nothing beside them but loads and prefetches. The micro-kernel of large products (gemm/microkernel.h) knows no
 * columns that end before others, no factors and no weighing.
 *
 * The folder of each class includes this file, after its vectors.h (gemm/microkernel.h says what that defines) and
 *   vec_sub, vec_mul, vec_max           vec_max(a, b): a > b ? a : b
 *   vec_kept, vec_kept_of(bits)         which lanes dropout keeps, from the lowest LANES bits
 *   vec_drop(kept, x)                   x, and 0 in lanes that dropout does not keep
 *   exp2_below(x)                       x = 2^x of TOGETHER vectors, with the bits of wn_exp2_below_f32
 *   wn__words                           as element/philox_bulk.h has them: LANES / 2 numbers of Philox calls
 *   quads_load(from, half)              half 0 and 1 of LANES calls, in any order
 *   quads_keep(low, high, last, c, kept)
 *                                       sets bit c + i of *kept where the low half of call i is at most `last`, and
 *                                       clears it elsewhere; low, high: halves 0 and 1 of LANES calls
 *   GROUPS                              vectors of calls that are computed at once; even */
#ifndef WN_CPU_ATTENTION_MICROTILE_H
#define WN_CPU_ATTENTION_MICROTILE_H
#include <stddef.h>
#include <string.h>
#include "attention.h"
#include "../../../runtime/base/random.h"

#define VECTORS 3 /* most vectors of a micro-tile */
#define NR (VECTORS * LANES)
_Static_assert(16 % LANES == 0 && 8 % MR == 0, "a tile is known by 16 columns and by 8 rows");

/* ---- products ------------------------------------------------------------------------------------ */

/* A way of computing a micro-tile; both fields are constants where one is made. */
struct way {
    int32_t vectors, whole; /* whole: all rows and lanes are there */
};

/* Up to three vectors of columns of c, from column j on. */
struct columns {
    int64_t j, steps[VECTORS]; /* steps of k of each vector, ascending */
    vec_mask last;             /* lanes of the last vector that are there */
};

INLINE vec_mask lanes_of(const struct columns *c, const struct way way, int32_t v)
{
    return v == way.vectors - 1 ? c->last : vec_first(LANES);
}

/* Loads the sums of m rows from `from` on, times p->back. */
INLINE void load_sums(const struct wn__attention_product *p, const struct columns *c, int64_t row, const struct way way,
                      vec acc[MR][VECTORS])
{
    const float *from = p->c + row * p->ldc + c->j;
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int32_t v = 0; v < way.vectors; v++) {
            if (way.whole) acc[i][v] = vec_load(from + i * p->ldc + LANES * v);
            else if (row + i < p->m) acc[i][v] = vec_load_masked(from + i * p->ldc + LANES * v, lanes_of(c, way, v));
        }
    if (!p->back) return;
#pragma GCC unroll 3
    for (int32_t v = 0; v < way.vectors; v++) {
        vec factor = vec_load_masked(p->back + c->j + LANES * v, lanes_of(c, way, v));
#pragma GCC unroll 8
        for (int32_t i = 0; i < MR; i++) acc[i][v] = vec_mul(acc[i][v], factor);
    }
}

INLINE void store_sums(const struct wn__attention_product *p, const struct columns *c, int64_t row,
                       const struct way way, vec acc[MR][VECTORS])
{
    float *to = p->c + row * p->ldc + c->j;
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int32_t v = 0; v < way.vectors; v++)
            if (way.whole) vec_store(to + i * p->ldc + LANES * v, acc[i][v]);
            else if (row + i < p->m) vec_store_masked(to + i * p->ldc + LANES * v, lanes_of(c, way, v), acc[i][v]);
}

/* PREFETCH_WORK: work for each line prefetched, in steps of 8 x 16 sums. PREFETCH_STEPS: steps of k from one look at
 * the prefetches to the next. Lines are prefetched into the first-level cache.
 * Measured, heads of 256 positions, causal, forward: PREFETCH_STEPS 32: 6 % slower; no prefetch: 22 % slower;
 * PREFETCH_WORK 4: 1 % slower, 16: 5 % slower; into the second-level cache: 3 % slower, backward 4 % (AVX-512,
 * Zen 5). */
#define PREFETCH_WORK (8 * 8 * 16 / (MR * LANES))
#define PREFETCH_STEPS 8

/* Prefetches the rows that `work` more steps of a vector pay for. */
INLINE void prefetch_pieces(struct wn__attention_prefetch *a, int64_t work)
{
    if (a->i >= a->n) return;
    const int64_t cost = a->bytes / 64 * PREFETCH_WORK;
    for (a->credit += work; a->credit >= cost && a->i < a->n; a->credit -= cost) {
        const char *at = a->list[a->i].at;
        for (int64_t byte = 0; byte < a->bytes; byte += 64) __builtin_prefetch(at + byte, 0, 3);
        a->list[a->i].at = at + a->list[a->i].step;
        if (--a->list[a->i].rows <= 0) a->i++;
    }
}

/* The position of a micro-tile in b and in the rows of a, and what it prefetches. The rows of a whole micro-tile are
 * two pointers and a stride, since eight pointers do not fit the registers.
 * Measured: eight pointers: backward 1 % slower. */
struct place {
    const float *b;       /* the row of b of the next step */
    const float *half[2]; /* whole: rows 0 and MR / 2 of a at the next step */
    const float *row[MR]; /* not whole: the rows of a; those beyond m repeat the last one and are not stored */
    int64_t at;           /* index in row of the next step */
    const float *next;    /* NULL, or the next rows of a: prefetched */
    const float *soon;    /* NULL, or rows read at the end of this micro-tile or the start of the next: prefetched */
    int32_t lower;        /* which half of the next rows is prefetched next */
    struct wn__attention_prefetch *prefetch; /* NULL, or rows for later */
};

/* Prefetches a line of half of the next rows of a, and a row of what is read soon; called once in PREFETCH_STEPS
 * steps. */
INLINE void prefetch_keys(const struct wn__attention_product *p, struct place *s, const int32_t vectors)
{
    if (s->next) { /* a line holds 16 steps, so half of the rows at a time */
        const int64_t ai = p->ai;
        for (int32_t i = 0; i < MR / 2; i++) __builtin_prefetch(s->next + i * ai, 0, 3);
        s->next += s->lower ? 16 - MR / 2 * ai : MR / 2 * ai;
        s->lower = !s->lower;
    }
    if (s->soon) {
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++) __builtin_prefetch(s->soon + LANES * v, 1, 3);
        s->soon += p->ldc;
    }
}

#if !defined(OWN_ROW)
/* Adds *a x[v] to the sums of a row. */
INLINE void multiply_row(const int32_t vectors, const float *a, const vec *x, vec *acc)
{
    vec y = vec_set1(*a);
    vec_keep(y);
#pragma GCC unroll 3
    for (int32_t v = 0; v < vectors; v++) acc[v] = vec_multiply_add(y, x[v], acc[v]);
}
#endif

/* Computes one step of k for vectors [from, way.vectors). */
INLINE void take_step(const struct wn__attention_product *p, struct place *s, const int32_t from, const struct way way,
                      vec acc[MR][VECTORS])
{
    const int64_t ai = p->ai;
    vec x[VECTORS];
    /* Two registers address all rows; without this the compiler keeps a moving pointer for each row. */
    if (way.whole) __asm__("" : "+r"(s->half[0]), "+r"(s->half[1]));
    else __asm__("" : "+r"(s->at));
#pragma GCC unroll 3
    for (int32_t v = from; v < way.vectors; v++) x[v] = vec_load(s->b + LANES * v);
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++)
        multiply_row(way.vectors - from, way.whole ? s->half[2 * i / MR] + i % (MR / 2) * ai : s->row[i] + s->at,
                     x + from, acc[i] + from);
    if (way.whole) s->half[0] += p->ak, s->half[1] += p->ak;
    else s->at += p->ak;
    s->b += p->bk;
}

/* Computes `steps` steps of k for vectors [from, way.vectors). */
INLINE void run_steps(const struct wn__attention_product *p, struct place *s, int64_t steps, const int32_t from,
                      const struct way way, vec acc[MR][VECTORS])
{
    for (; steps > 0; steps -= PREFETCH_STEPS) {
        int64_t n = steps < PREFETCH_STEPS ? steps : PREFETCH_STEPS;
        if (s->prefetch) prefetch_pieces(s->prefetch, n * (way.vectors - from));
        prefetch_keys(p, s, way.vectors);
        for (; n > 0; n--) take_step(p, s, from, way, acc);
    }
}

/* Applies a weighing to the sums of rows [row, row + MR) that are there; kept: whether there is dropout. */
INLINE void weigh_rows(const struct wn__attention_product *p, const struct columns *c, int64_t row,
                       const struct way way, const int32_t kept, vec acc[MR][VECTORS])
{
    const struct wn__attention_weighing *w = p->weighing;
    const int64_t m = way.whole ? MR : p->m - row;
#pragma GCC unroll 3
    for (int32_t v = 0; v < way.vectors; v++) {
        const int64_t j = c->j + LANES * v;
        const vec factor = vec_load(w->factor + j), shared = vec_load(w->shared + j);
        const uint16_t *bits = kept ? w->kept + j / 16 * WN_ATTENTION_KEPT + row : NULL;
#pragma GCC unroll 8
        for (int32_t i = 0; i < MR; i++) {
            if (i >= m) break;
            const int64_t at = (row + i) * p->ldc + j;
            vec weight = vec_mul(vec_load(w->s + at), factor), d = acc[i][v];
            if (kept) {
                const vec_kept stays = vec_kept_of(bits[i] >> j % 16);
                vec_store(p->c + at, vec_mul(weight, vec_sub(vec_drop(stays, d), shared)));
                vec_store(w->s + at, vec_drop(stays, weight));
            } else {
                vec_store(p->c + at, vec_mul(weight, vec_sub(d, shared)));
                vec_store(w->s + at, weight);
            }
        }
    }
}

/* Finds what a micro-tile prefetches: the next rows of a; the rows of weights that it ends with; and, where c is added
 * to, the rows of c that the next micro-tile begins with. Columns of a, where ak is not 1, are not worth a prefetch,
 * nor is what the forward keeps in the first two caches.
 * Measured, 12 heads of 64, 1024 positions, backward, two threads: 1.5, 0.7 and 0.5 % faster; heads of 128: 4 % by the
 * last (AVX-512, Zen 5). */
INLINE void find_prefetch(const struct wn__attention_product *p, int64_t row, int64_t j, struct place *s)
{
    const int32_t more = row + MR < p->m; /* the rows below belong to this product */
    s->next = s->soon = NULL;
    s->lower = 0;
    if (!p->far) return;
    if (p->first) s->next = more || j + NR >= p->n ? p->a + (row + MR) * p->ai : p->a;
    if (p->weighing) s->soon = p->weighing->s + row * p->ldc + j;
    else if (!p->first) s->soon = p->c + (row + MR) * p->ldc + j;
}

/* Computes the micro-tile at row `row` of some columns of c. */
INLINE void run_microtile(const struct wn__attention_product *p, const struct columns *c, int64_t row,
                          const struct way way)
{
    const int64_t skip = p->late ? wn__attention_unseen(p->late, row / 8 * 8) : 0, m = p->m - row;
    const float *a = p->a + row * p->ai + skip * p->ak;
    struct place s = {.b = p->b + skip * p->bk + c->j, .prefetch = way.whole ? p->prefetch : NULL};
    vec acc[MR][VECTORS];
    if (skip >= p->k) return;
    find_prefetch(p, row, c->j, &s);
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++) s.row[i] = a + (i < m ? i : m - 1) * p->ai;
    s.half[0] = a;
    s.half[1] = a + MR / 2 * p->ai;
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int32_t v = 0; v < way.vectors; v++) acc[i][v] = vec_zero();
    if (!(p->late ? row >= p->late->fresh : p->first)) load_sums(p, c, row, way, acc);
    run_steps(p, &s, c->steps[0] - skip, 0, way, acc);
    if (way.vectors > 1) run_steps(p, &s, c->steps[1] - c->steps[0], 1, way, acc);
    if (way.vectors > 2) run_steps(p, &s, c->steps[2] - c->steps[1], 2, way, acc);
    if (!p->weighing) store_sums(p, c, row, way, acc);
    else if (p->weighing->kept) weigh_rows(p, c, row, way, 1, acc);
    else weigh_rows(p, c, row, way, 0, acc);
}

#define ALL_ROWS(N)                                                                                                    \
    static void all_rows_##N(const struct wn__attention_product *p, const struct columns *c)                           \
    {                                                                                                                  \
        int64_t row = 0;                                                                                               \
        if (p->n - c->j >= N * LANES)                                                                                  \
            for (; row + MR <= p->m; row += MR) run_microtile(p, c, row, (struct way){N, 1});                          \
        for (; row < p->m; row += MR) run_microtile(p, c, row, (struct way){N, 0});                                    \
    }
ALL_ROWS(1)
ALL_ROWS(2)
ALL_ROWS(3)

/* Divides the columns into groups of 3 vectors, but 4 vectors into 2 + 2, since one vector has too few sums in
 * flight. */
static void multiply(const struct wn__attention_product *p)
{
    for (int64_t j = 0, vectors; j < p->n; j += LANES * vectors) {
        const int64_t left = (p->n - j + LANES - 1) / LANES;
        vectors = left == 4 ? 2 : left < VECTORS ? left : VECTORS;
        struct columns c = {j, {p->k, p->k, p->k}, vec_first(p->n - j - (vectors - 1) * LANES)};
        if (p->seen)
            for (int64_t v = 0; v < vectors; v++) c.steps[v] = wn__attention_seen(p->seen, (j + LANES * v) / 16 * 16);
        if (vectors == 3) all_rows_3(p, &c);
        else if (vectors == 2) all_rows_2(p, &c);
        else all_rows_1(p, &c);
    }
}

/* ---- softmax ------------------------------------------------------------------------------------- */

#define EACH_ROW _Pragma("GCC unroll 4") for (int32_t i = 0; i < TOGETHER; i++)
_Static_assert(TOGETHER == 4, "the weights of four keys are added first");

#define GROUP (16 / LANES) /* vectors of the 16 columns that count the same keys */
#define EACH_VECTOR _Pragma("GCC unroll 4") for (int32_t v = 0; v < GROUP; v++)

/* 16 columns of a tile, (keys, 16), and the running numbers of the softmax of each column. */
struct group {
    float *s;
    const uint16_t *kept; /* NULL, or the bits of these columns */
    int64_t ld, keys;
    vec top[GROUP], sum[GROUP];
};

/* Computes top = max(top, maximum of s over keys). */
INLINE void find_tops(struct group *g)
{
    const int64_t ld = g->ld;
    const float *s = g->s;
    int64_t j = 0;
    for (; j + 4 <= g->keys; j += 4, s += 4 * ld) EACH_VECTOR
        {
            const float *a = s + LANES * v;
            vec x = vec_max(vec_load(a), vec_load(a + ld)), y = vec_max(vec_load(a + 2 * ld), vec_load(a + 3 * ld));
            g->top[v] = vec_max(g->top[v], vec_max(x, y));
        }
    for (; j < g->keys; j++, s += ld) EACH_VECTOR g->top[v] = vec_max(g->top[v], vec_load(s + LANES * v));
}

/* Computes s = kept ? 2^(s - top) : 0 and sum = sum + 2^(s - top) for `keys` keys from key j on, at most TOGETHER, of
 * vector v; dropout: whether there is g->kept. */
INLINE void weigh_keys(struct group *g, int64_t j, const int32_t keys, const int32_t v, const int32_t dropout)
{
    float *s = g->s + j * g->ld + LANES * v;
    vec p[TOGETHER];
    EACH_ROW p[i] = vec_sub(vec_load(s + (i < keys ? i : 0) * g->ld), g->top[v]);
    exp2_below(p);
    if (keys < TOGETHER)
        for (int32_t i = 0; i < keys; i++) g->sum[v] = vec_add(g->sum[v], p[i]);
    else g->sum[v] = vec_add(g->sum[v], vec_add(vec_add(p[0], p[1]), vec_add(p[2], p[3])));
    EACH_ROW if (i < keys)
        vec_store(s + i * g->ld, dropout ? vec_drop(vec_kept_of(g->kept[j + i] >> LANES * v), p[i]) : p[i]);
}

INLINE void weigh_scores(struct group *g, const int32_t dropout)
{
    int64_t j = 0;
    for (; j + TOGETHER <= g->keys; j += TOGETHER) EACH_VECTOR weigh_keys(g, j, TOGETHER, v, dropout);
    for (; j < g->keys; j++) EACH_VECTOR weigh_keys(g, j, 1, v, dropout);
}

static void softmax(const struct wn__attention_tile *t, float *best, float *sum, float *back)
{
    for (int64_t c = 0; c < t->width; c += 16) {
        struct group g = {.s = t->s + c, .ld = t->ld, .keys = wn__attention_seen(t, c)};
        if (t->kept) g.kept = t->kept + c / 16 * WN_ATTENTION_KEPT;
        EACH_VECTOR g.top[v] = vec_load(best + c + LANES * v), g.sum[v] = vec_zero();
        find_tops(&g);
        if (t->kept) weigh_scores(&g, 1);
        else weigh_scores(&g, 0);
        EACH_VECTOR
        {
            const int64_t at = c + LANES * v;
            vec fall[TOGETHER];
            EACH_ROW fall[i] = vec_sub(vec_load(best + at), g.top[v]);
            exp2_below(fall);
            vec_store(back + at, fall[0]);
            vec_store(sum + at, vec_multiply_add(vec_load(sum + at), fall[0], g.sum[v]));
            vec_store(best + at, g.top[v]);
        }
    }
}

/* ---- dropout ------------------------------------------------------------------------------------- */

/* The numbers that Philox calls of one seed and counter n share (base/random.h) where their numbers q have one high
 * half: half of the first two rounds is the same for all of them. */
struct philox {
    uint64_t k0[10], k1[10];   /* the key of each round */
    uint64_t c2_0, c0_1, c2_1; /* what is xored to a product's high half: c2 after round 0; c0 and c2 after round 1 */
    uint64_t c3_1;             /* c3 after round 1 */
};

static struct philox philox_of(uint64_t seed, uint64_t n, uint64_t high)
{
    const uint64_t low = 0xffffffffu;
    struct philox x;
    for (uint64_t r = 0; r < WN_PHILOX_ROUNDS; r++) {
        x.k0[r] = seed + r * WN_PHILOX_K0;
        x.k1[r] = (seed >> 32) + r * WN_PHILOX_K1;
    }
    const uint64_t p1 = WN_PHILOX_M1 * (n & low), p0 = WN_PHILOX_M0 * (((p1 >> 32) ^ high ^ x.k0[0]) & low);
    x.c2_0 = (n >> 32) ^ x.k1[0];
    x.c0_1 = p1 ^ x.k0[1];
    x.c2_1 = (p0 >> 32) ^ x.k1[1];
    x.c3_1 = p0;
    return x;
}

#define EACH_GROUP _Pragma("GCC unroll 8") for (int32_t i = 0; i < GROUPS; i++)

/* Computes wn_philox of the calls in c[..][0]; the words come to the low halves. */
INLINE void philox(const struct philox *x, wn__words c[GROUPS][4])
{
    const wn__words m0 = wn__words_set1(WN_PHILOX_M0), m1 = wn__words_set1(WN_PHILOX_M1);
    EACH_GROUP
    {
        wn__words p0 = wn__words_multiply(m0, c[i][0]);
        wn__words p1 = wn__words_multiply(m1, wn__words_upper(p0) ^ wn__words_set1(x->c2_0));
        c[i][0] = wn__words_upper(p1) ^ wn__words_set1(x->c0_1);
        c[i][1] = p1;
        c[i][2] = p0 ^ wn__words_set1(x->c2_1);
        c[i][3] = wn__words_set1(x->c3_1);
    }
#pragma GCC unroll 10
    for (int32_t round = 2; round < WN_PHILOX_ROUNDS; round++) {
        const wn__words k0 = wn__words_set1(x->k0[round]), k1 = wn__words_set1(x->k1[round]);
        EACH_GROUP wn__words_round(c[i], k0, k1);
    }
}

#define QUADS (GROUPS / 2) /* of a column, at once */

/* Sets bit c + i of bits[j] where word j of column c + i is at most `last`, for LANES columns of 16; the calls of
 * column i begin at first[i]. bits has room for whole QUADS. */
INLINE void draw_words(const struct philox *x, const uint64_t first[16], int32_t c, int64_t words, uint32_t last,
                       uint16_t *bits)
{
    const wn__words low = quads_load(first + c, 0), high = quads_load(first + c, 1);
    for (int64_t j = 0; j < words; j += 4 * QUADS, bits += 4 * QUADS) {
        wn__words w[GROUPS][4];
        EACH_GROUP w[i][0] = wn__words_add(i % 2 ? high : low, wn__words_set1((uint64_t)(j / 4 + i / 2)));
        philox(x, w);
#pragma GCC unroll 4
        for (int32_t q = 0; q < QUADS; q++)
#pragma GCC unroll 4
            for (int32_t r = 0; r < 4; r++) quads_keep(w[2 * q][r], w[2 * q + 1][r], last, c, bits + 4 * q + r);
    }
}

/* Draws 16 columns of a tile whose first weight has the index `element`; a column begins at word 0, 1, 2 or 3 of a
 * call. */
static void draw_columns(const struct wn__attention *k, const struct philox *x, uint64_t element, int64_t keys,
                         uint16_t *kept)
{
    uint16_t bits[WN_ATTENTION_DRAWN + 4 * QUADS + 4] = {0}, begins[4] = {0};
    const uint64_t threshold = wn_dropout_threshold(k->p);
    uint64_t first[16];
    for (int32_t i = 0; i < 16; i++, element += (uint64_t)k->time) {
        first[i] = element >> 2;
        begins[element & 3] |= (uint16_t)(1u << i);
    }
    const int32_t whole = begins[0] == 0xffff;
    for (int32_t c = 0; c < 16 && threshold > 0; c += LANES)
        draw_words(x, first, c, keys + (whole ? 0 : 3), (uint32_t)(threshold - 1), bits);
    if (whole) memcpy(kept, bits, (size_t)keys * sizeof *kept);
    else
        for (int64_t j = 0; j < keys; j++)
            kept[j] = (uint16_t)((bits[j] & begins[0]) | (bits[j + 1] & begins[1]) | (bits[j + 2] & begins[2]) |
                                 (bits[j + 3] & begins[3]));
}

static void draw(const struct wn__attention *k, const struct wn__attention_tile *t, uint64_t element)
{
    const uint64_t most = element + (uint64_t)(t->width * k->time + WN_ATTENTION_DRAWN + 4 * QUADS + 4);
    const struct philox x = philox_of(k->seed, k->counter, element >> 34);
    if (element >> 34 != most >> 34) { /* calls of two high halves, of which there is no more than one tile in 2^34 */
        wn__attention_portable.draw(k, t, element);
        return;
    }
    for (int64_t c = 0; c < t->width; c += 16)
        draw_columns(k, &x, element + (uint64_t)(c * k->time), wn__attention_seen(t, c),
                     t->kept + c / 16 * WN_ATTENTION_KEPT);
}
#endif
