/* The kernels of a tile of attention for AVX-512 (struct wn__attention_kernel). The bits are those of the portable
 * loops of tile.c: the same steps in the same order, with one instruction for 2^n.
 *
 * Products are computed by micro-tiles of 8 rows x 1, 2 or 3 vectors: 12 cycles a step at two multiply-adds a cycle,
 * with nothing beside them but loads.
 * Measured, share of the peak: 99 % for tiles in the first-level cache; the micro-kernel of large products (gemm.h),
 * which also prefetches and can pack, 86 % for k = 64 and 79 % where a is read by columns. */
#include "../attention/attention.h"
#include <immintrin.h>
#include <stddef.h>
#include <string.h>
#include "../gemm/gemm.h"

#define MR 8
#define NR 48 /* columns of the widest micro-tile */
#define INLINE static inline __attribute__((always_inline))

/* ---- products ------------------------------------------------------------------------------------ */

INLINE void load_tile(const struct wn__attention_product *p, const float *c, const float *back, int64_t m,
                      __mmask16 last, const int32_t vectors, const int32_t whole, __m512 acc[MR][3])
{
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++) {
            const float *from = c + i * p->ldc + 16 * v;
            if (whole) acc[i][v] = _mm512_loadu_ps(from);
            else acc[i][v] = _mm512_maskz_loadu_ps(i >= m ? 0 : v == vectors - 1 ? last : 0xffff, from);
        }
    if (!back) return;
#pragma GCC unroll 3
    for (int32_t v = 0; v < vectors; v++) {
        __m512 factor = _mm512_maskz_loadu_ps(v == vectors - 1 ? last : 0xffff, back + 16 * v);
#pragma GCC unroll 8
        for (int32_t i = 0; i < MR; i++) acc[i][v] = _mm512_mul_ps(acc[i][v], factor);
    }
}

/* PREFETCH_WORK: work for each line prefetched, in steps of a vector, 4 cycles each. PREFETCH_STEPS: steps of k from
 * one look at the prefetches to the next. Lines are prefetched into the first-level cache.
 * Measured, heads of 256 positions, causal, forward: PREFETCH_STEPS 32: 6 % slower; no prefetch: 22 % slower;
 * PREFETCH_WORK 4: 1 % slower, 16: 5 % slower; into the second-level cache: 3 % slower, backward 4 %. */
#define PREFETCH_WORK 8
#define PREFETCH_STEPS 8

/* Prefetches the rows that `work` more steps of products pay for. */
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
    const float *half[2]; /* whole: rows 0 and 4 of a at the next step */
    const float *row[MR]; /* not whole: the rows of a */
    int64_t at;           /* index in row of the next step */
    const float *next;    /* NULL, or the next rows of a: prefetched */
    const float *soon;    /* NULL, or rows read at the end of this micro-tile or the start of the next: prefetched */
    int32_t lower;        /* which half of the next rows is prefetched next */
};

/* Prefetches a line of four of the next rows of a, and a row of what is read soon; called once in PREFETCH_STEPS
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
        for (int32_t v = 0; v < vectors; v++) __builtin_prefetch(s->soon + 16 * v, 1, 3);
        s->soon += p->ldc;
    }
}

/* Runs `steps` steps of k for vectors [from, vectors). */
INLINE void run_steps(const struct wn__attention_product *p, struct place *s, int64_t steps, const int32_t from,
                      const int32_t vectors, const int32_t whole, struct wn__attention_prefetch *prefetch,
                      __m512 acc[MR][3])
{
    const int64_t ai = p->ai, ak = p->ak, bk = p->bk;
    for (; steps > 0; steps -= PREFETCH_STEPS) {
        int64_t n = steps < PREFETCH_STEPS ? steps : PREFETCH_STEPS;
        if (prefetch) prefetch_pieces(prefetch, n * (vectors - from));
        prefetch_keys(p, s, vectors);
        for (; n > 0; n--, s->b += bk) {
            __m512 x[3];
            /* Two registers address all rows; without this the compiler keeps a moving pointer for each row. */
            if (whole) __asm__("" : "+r"(s->half[0]), "+r"(s->half[1]));
            else __asm__("" : "+r"(s->at));
#pragma GCC unroll 3
            for (int32_t v = from; v < vectors; v++) x[v] = _mm512_load_ps(s->b + 16 * v);
#pragma GCC unroll 8
            for (int32_t i = 0; i < MR; i++) {
                __m512 y = _mm512_set1_ps(whole ? s->half[2 * i / MR][i % (MR / 2) * ai] : s->row[i][s->at]);
                __asm__("" : "+v"(y)); /* one load; without this each multiply-add broadcasts again */
#pragma GCC unroll 3
                for (int32_t v = from; v < vectors; v++) acc[i][v] = _mm512_fmadd_ps(y, x[v], acc[i][v]);
            }
            if (whole) s->half[0] += ak, s->half[1] += ak;
            else s->at += ak;
        }
    }
}

/* Applies a weighing to rows i0 to i0 + m - 1 of a micro-tile; kept: whether there is dropout. */
INLINE void weigh_rows(const struct wn__attention_product *p, int64_t i0, int64_t j, const int32_t vectors,
                       const int64_t m, const int32_t kept, __m512 acc[MR][3])
{
    const struct wn__attention_weighing *w = p->weighing;
    const int64_t at = i0 * p->ldc + j;
#pragma GCC unroll 3
    for (int32_t v = 0; v < vectors; v++) {
        const __m512 f = _mm512_loadu_ps(w->factor + j + 16 * v), less = _mm512_loadu_ps(w->shared + j + 16 * v);
        const uint16_t *bits = kept ? w->kept + (j / 16 + v) * WN_ATTENTION_KEPT + i0 : NULL;
#pragma GCC unroll 8
        for (int32_t i = 0; i < MR; i++) {
            if (i >= m) break;
            float *s = w->s + at + i * p->ldc + 16 * v;
            const __mmask16 stays = kept ? bits[i] : 0xffff;
            const __m512 weight = _mm512_mul_ps(_mm512_load_ps(s), f);
            const __m512 d = kept ? _mm512_maskz_mov_ps(stays, acc[i][v]) : acc[i][v];
            _mm512_store_ps(p->c + at + i * p->ldc + 16 * v, _mm512_mul_ps(weight, _mm512_sub_ps(d, less)));
            _mm512_store_ps(s, kept ? _mm512_maskz_mov_ps(stays, weight) : weight);
        }
    }
}

INLINE void weigh(const struct wn__attention_product *p, int64_t i0, int64_t j, const int32_t vectors, const int64_t m,
                  __m512 acc[MR][3])
{
    if (p->weighing->kept) weigh_rows(p, i0, j, vectors, m, 1, acc);
    else weigh_rows(p, i0, j, vectors, m, 0, acc);
}

/* Finds what a micro-tile prefetches: the next rows of a; the rows of weights that it ends with; and, where c is added
 * to, the rows of c that the next micro-tile begins with. Columns of a, where ak is not 1, are not worth a prefetch,
 * nor is what the forward keeps in the first two caches.
 * Measured, 12 heads of 64, 1024 positions, backward, two threads: 1.5, 0.7 and 0.5 % faster; heads of 128: 4 % by the
 * last. */
INLINE void find_prefetch(const struct wn__attention_product *p, int64_t i0, int64_t j, struct place *s)
{
    const int32_t more = i0 + MR < p->m; /* the rows below belong to this product */
    s->next = s->soon = NULL;
    s->lower = 0;
    if (!p->far) return;
    if (p->first) s->next = more || j + NR >= p->n ? p->a + (i0 + MR) * p->ai : p->a;
    if (p->weighing) s->soon = p->weighing->s + i0 * p->ldc + j;
    else if (!p->first) s->soon = p->c + (i0 + MR) * p->ldc + j;
}

/* Computes the micro-tile at row i0 and column j of c. last: the lanes of the last vector; whole: all rows and lanes
 * are there; steps: steps of k of each vector, ascending. */
INLINE void run_tile(const struct wn__attention_product *p, int64_t i0, int64_t j, __mmask16 last,
                     const int64_t steps[3], const int32_t vectors, const int32_t whole)
{
    __m512 acc[MR][3];
    const int64_t m = p->m - i0, ldc = p->ldc, skip = p->late ? wn__attention_unseen(p->late, i0) : 0;
    const int32_t first = p->late ? i0 >= p->late->fresh : p->first;
    float *c = p->c + i0 * ldc + j;
    struct place s = {.b = p->b + skip * p->bk + j}; /* rows beyond m repeat the last one and are not stored */
    struct wn__attention_prefetch *prefetch = whole ? p->prefetch : NULL;
    if (skip >= p->k) return;
    find_prefetch(p, i0, j, &s);
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++) s.row[i] = p->a + (i0 + (i < m ? i : m - 1)) * p->ai + skip * p->ak;
    s.half[0] = p->a + i0 * p->ai + skip * p->ak;
    s.half[1] = s.half[0] + MR / 2 * p->ai;
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++) acc[i][v] = _mm512_setzero_ps();
    if (!first) load_tile(p, c, p->back ? p->back + j : NULL, m, last, vectors, whole, acc);
    run_steps(p, &s, steps[0] - skip, 0, vectors, whole, prefetch, acc);
    if (vectors > 1) run_steps(p, &s, steps[1] - steps[0], 1, vectors, whole, prefetch, acc);
    if (vectors > 2) run_steps(p, &s, steps[2] - steps[1], 2, vectors, whole, prefetch, acc);
    if (p->weighing) {
        weigh(p, i0, j, vectors, whole ? MR : m, acc);
        return;
    }
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++)
            if (whole) _mm512_storeu_ps(c + i * ldc + 16 * v, acc[i][v]);
            else if (i < m) _mm512_mask_storeu_ps(c + i * ldc + 16 * v, v == vectors - 1 ? last : 0xffff, acc[i][v]);
}

#define QUERY_PANEL(VECTORS)                                                                                           \
    static void strip_##VECTORS(const struct wn__attention_product *p, int64_t j, __mmask16 last,                      \
                                const int64_t steps[3])                                                                \
    {                                                                                                                  \
        int64_t i = 0;                                                                                                 \
        if (last == 0xffff)                                                                                            \
            for (; i + MR <= p->m; i += MR) run_tile(p, i, j, last, steps, VECTORS, 1);                                \
        for (; i < p->m; i += MR) run_tile(p, i, j, last, steps, VECTORS, 0);                                          \
    }
QUERY_PANEL(1)
QUERY_PANEL(2)
QUERY_PANEL(3)

/* Divides the columns into panels of 3 vectors, but 4 vectors into 2 + 2, since one vector has too few sums in
 * flight. */
static void multiply(const struct wn__attention_product *p)
{
    for (int64_t j = 0, vectors; j < p->n; j += 16 * vectors) {
        int64_t left = (p->n - j + 15) / 16, over = 16 * left - (p->n - j), steps[3] = {p->k, p->k, p->k};
        vectors = left == 4 ? 2 : left < 3 ? left : 3;
        __mmask16 last = vectors < left ? 0xffff : (__mmask16)(0xffffu >> over);
        if (p->seen)
            for (int64_t v = 0; v < vectors; v++) steps[v] = wn__attention_seen(p->seen, j + 16 * v);
        if (vectors == 3) strip_3(p, j, last, steps);
        else if (vectors == 2) strip_2(p, j, last, steps);
        else strip_1(p, j, last, steps);
    }
}

/* ---- softmax ------------------------------------------------------------------------------------- */

#define TOGETHER 4 /* rows at once. Measured: 4.5 cycles for 16 weights; one row 5.8, eight rows 4.4 */
#define EACH_ROW _Pragma("GCC unroll 4") for (int32_t i = 0; i < TOGETHER; i++)

/* Computes x = 2^x with the bits of wn_exp2_below_f32: scalef takes the floor itself, and rounds once, as the second of
 * the two multiplications of wn_exp2_below_f32 does. reduce_ps would take the floor and the difference at once, and
 * round the difference down. */
INLINE void exp2_below(__m512 x[TOGETHER])
{
    __m512 r[TOGETHER], p[TOGETHER];
    EACH_ROW r[i] = _mm512_sub_ps(x[i], _mm512_roundscale_ps(x[i], _MM_FROUND_TO_NEG_INF));
    EACH_ROW p[i] = _mm512_fmadd_ps(_mm512_set1_ps(WN_EXP2_5), r[i], _mm512_set1_ps(WN_EXP2_4));
    EACH_ROW p[i] = _mm512_fmadd_ps(p[i], r[i], _mm512_set1_ps(WN_EXP2_3));
    EACH_ROW p[i] = _mm512_fmadd_ps(p[i], r[i], _mm512_set1_ps(WN_EXP2_2));
    EACH_ROW p[i] = _mm512_fmadd_ps(p[i], r[i], _mm512_set1_ps(WN_EXP2_1));
    EACH_ROW p[i] = _mm512_fmadd_ps(p[i], r[i], _mm512_set1_ps(1.0f));
    EACH_ROW x[i] = _mm512_scalef_ps(p[i], x[i]);
}

INLINE void softmax_lanes(float *s, const uint16_t *kept, int64_t ld, int64_t keys, float *best, float *sum,
                          float *back)
{
    const __m512 before = _mm512_loadu_ps(best);
    __m512 top = before, part = _mm512_setzero_ps();
    int64_t j = 0;
    for (; j + 4 <= keys; j += 4) {
        const float *a = s + j * ld;
        __m512 x = _mm512_max_ps(_mm512_load_ps(a), _mm512_load_ps(a + ld));
        __m512 y = _mm512_max_ps(_mm512_load_ps(a + 2 * ld), _mm512_load_ps(a + 3 * ld));
        top = _mm512_max_ps(top, _mm512_max_ps(x, y));
    }
    for (; j < keys; j++) top = _mm512_max_ps(top, _mm512_load_ps(s + j * ld));
    for (j = 0; j < keys; j += TOGETHER, s += TOGETHER * ld) {
        const int32_t rows = keys - j < TOGETHER ? (int32_t)(keys - j) : TOGETHER;
        __m512 p[TOGETHER];
        EACH_ROW p[i] = _mm512_sub_ps(_mm512_load_ps(s + (i < rows ? i : 0) * ld), top);
        exp2_below(p);
        if (rows < TOGETHER) {
            for (int32_t i = 0; i < rows; i++) part = _mm512_add_ps(part, p[i]);
        } else {
            part = _mm512_add_ps(part, _mm512_add_ps(_mm512_add_ps(p[0], p[1]), _mm512_add_ps(p[2], p[3])));
        }
        EACH_ROW if (i < rows) _mm512_store_ps(s + i * ld, kept ? _mm512_maskz_mov_ps(kept[j + i], p[i]) : p[i]);
    }
    __m512 fall[TOGETHER];
    EACH_ROW fall[i] = _mm512_sub_ps(before, top);
    exp2_below(fall);
    _mm512_storeu_ps(back, fall[0]);
    _mm512_storeu_ps(sum, _mm512_fmadd_ps(_mm512_loadu_ps(sum), fall[0], part));
    _mm512_storeu_ps(best, top);
}

static void softmax(const struct wn__attention_tile *t, float *best, float *sum, float *back)
{
    for (int64_t c = 0; c < t->width; c += 16) {
        int64_t keys = wn__attention_seen(t, c);
        if (t->kept)
            softmax_lanes(t->s + c, t->kept + c / 16 * WN_ATTENTION_KEPT, t->ld, keys, best + c, sum + c, back + c);
        else softmax_lanes(t->s + c, NULL, t->ld, keys, best + c, sum + c, back + c);
    }
}

/* ---- dropout ------------------------------------------------------------------------------------- */

struct philox {
    uint64_t k0[10], k1[10], n; /* the key of each round; the number of the call */
};

#define CHAINS 6 /* of eight quads, at once. Measured: 10.6 cycles for 16 weights; four chains 12.5, eight 11.1 */
#define EACH_CHAIN _Pragma("GCC unroll 6") for (int32_t i = 0; i < CHAINS; i++)

/* Computes wn_philox of the quads in c[0], eight a chain; the words come to the low halves of c[0] to c[3]. */
INLINE void philox(const struct philox *x, __m512i c[4][CHAINS])
{
    const __m512i m0 = _mm512_set1_epi64(0xD2511F53), m1 = _mm512_set1_epi64(0xCD9E8D57);
    EACH_CHAIN
    {
        c[1][i] = _mm512_srli_epi64(c[0][i], 32);
        c[2][i] = _mm512_set1_epi64((int64_t)x->n);
        c[3][i] = _mm512_set1_epi64((int64_t)(x->n >> 32));
    }
#pragma GCC unroll 10
    for (int32_t round = 0; round < 10; round++) {
        const __m512i k0 = _mm512_set1_epi64((int64_t)x->k0[round]), k1 = _mm512_set1_epi64((int64_t)x->k1[round]);
        EACH_CHAIN
        {
            __m512i p0 = _mm512_mul_epu32(m0, c[0][i]), p1 = _mm512_mul_epu32(m1, c[2][i]);
            c[0][i] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p1, 32), c[1][i], k0, 0x96); /* xor of three */
            c[1][i] = p1;
            c[2][i] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p0, 32), c[3][i], k1, 0x96);
            c[3][i] = p0;
        }
    }
}

#define QUADS (CHAINS / 2) /* of a column, at once */

/* Sets bit i of bits[j] where word j of column i is at most `last`, for 16 columns whose quads begin at low and
 * high. */
INLINE void draw_words(const struct philox *x, __m512i low, __m512i high, int64_t words, __m512i last, uint16_t *bits)
{
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    for (int64_t j = 0; j < words; j += 4 * QUADS, bits += 4 * QUADS) {
        __m512i c[4][CHAINS];
        EACH_CHAIN c[0][i] = _mm512_add_epi64(i % 2 ? high : low, _mm512_set1_epi64(j / 4 + i / 2));
        philox(x, c);
#pragma GCC unroll 4
        for (int32_t q = 0; q < QUADS; q++)
#pragma GCC unroll 4
            for (int32_t r = 0; r < 4; r++) {
                __m512i word = _mm512_permutex2var_epi32(c[r][2 * q], even, c[r][2 * q + 1]);
                bits[4 * q + r] = _mm512_cmple_epu32_mask(word, last);
            }
    }
}

/* Draws t->kept; a column begins at word 0, 1, 2 or 3 of a quad. */
static void draw(const struct wn__attention *k, const struct wn__attention_tile *t, uint64_t element)
{
    const uint64_t threshold = wn_dropout_threshold(k->p);
    const __m512i last = _mm512_set1_epi32((int32_t)(uint32_t)(threshold - 1)), time = _mm512_set1_epi64(k->time);
    const __m512i lane = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), three = _mm512_set1_epi64(3);
    struct philox x = {.n = k->counter};
    for (int32_t r = 0; r < 10; r++) {
        x.k0[r] = k->seed + (uint64_t)r * 0x9E3779B9u;
        x.k1[r] = (k->seed >> 32) + (uint64_t)r * 0xBB67AE85u;
    }
    for (int64_t c = 0; c < t->width; c += 16) {
        uint16_t bits[WN_ATTENTION_DRAWN + 4 * QUADS] = {0}, begins[4], *kept = t->kept + c / 16 * WN_ATTENTION_KEPT;
        const int64_t keys = wn__attention_seen(t, c);
        __m512i low = _mm512_set1_epi64((int64_t)element + c * k->time);
        low = _mm512_add_epi64(low, _mm512_mullo_epi64(lane, time));
        __m512i high = _mm512_add_epi64(low, _mm512_slli_epi64(time, 3));
        for (int32_t w = 0; w < 4; w++) {
            __m512i word = _mm512_set1_epi64(w);
            begins[w] = (uint16_t)(_mm512_cmpeq_epi64_mask(_mm512_and_si512(low, three), word) |
                                   _mm512_cmpeq_epi64_mask(_mm512_and_si512(high, three), word) << 8);
        }
        if (threshold > 0)
            draw_words(&x, _mm512_srli_epi64(low, 2), _mm512_srli_epi64(high, 2), keys + (begins[0] == 0xffff ? 0 : 3),
                       last, bits);
        for (int64_t j = 0; j < keys; j++)
            kept[j] = (uint16_t)((bits[j] & begins[0]) | (bits[j + 1] & begins[1]) | (bits[j + 2] & begins[2]) |
                                 (bits[j + 3] & begins[3]));
    }
}

const struct wn__attention_kernel wn__attention_avx512 = {multiply, softmax, draw};
