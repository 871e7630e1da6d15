/* What tiles of attention are worked with, for AVX-512: see struct wn__attention_kernel. Its bits are those of the
 * portable loops in attention/tile.c: the same steps in the same order, with one instruction for 2^n.
 *
 * Products go by 8 rows x 1, 2 or 3 vectors, 12 cycles a step at two multiply-adds a cycle, with nothing beside them
 * but the loads: 99 % of the peak for tiles in the first cache, where the tile of the large products (gemm.h), which
 * also touches memory ahead and can pack, reaches 86 % for k = 64 and 79 % where a lies by columns. */
#include "attention.h"
#include <stddef.h>
#include <string.h>
#include "../gemm/gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define MR 8
#define NR 48 /* columns of the widest strip */
#define ISA __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,fma")))
#define ISA_INLINE static inline __attribute__((always_inline, target("avx512f,avx512dq,avx512bw,avx512vl,fma")))

/* ---- products ------------------------------------------------------------------------------------ */

ISA_INLINE void load_tile(const struct wn__attention_product *p, const float *c, const float *back, int64_t m,
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

/* Work for each line touched, in steps of a vector, 4 cycles each; and the steps that go by before more are. Heads
 * of 256 positions under a causal mask took 6 % longer forward with stretches of 32 steps, 22 % with nothing
 * touched; 1 % longer with 4 for a line, 5 % with 16. Lines come to the first cache: asked for no nearer than the
 * second one, many did not come, and such heads took 3 % longer forward, 4 % backward. */
#define TOUCH_LINE 8
#define TOUCH_STEPS 8

/* Rows for which there was work enough. */
ISA_INLINE void prefetch_pieces(struct wn__attention_prefetch *a, int64_t work)
{
    if (a->i >= a->n) return;
    const int64_t cost = a->bytes / 64 * TOUCH_LINE;
    for (a->credit += work; a->credit >= cost && a->i < a->n; a->credit -= cost) {
        const char *at = a->list[a->i].at;
        for (int64_t byte = 0; byte < a->bytes; byte += 64) __builtin_prefetch(at + byte, 0, 3);
        a->list[a->i].at = at + a->list[a->i].step;
        if (--a->list[a->i].rows <= 0) a->i++;
    }
}

/* Where a tile stands in b and in rows of a: those of a whole one are two pointers and a stride, since eight
 * pointers do not fit the registers beside all else (1 % of the backward). And what is asked for meanwhile, or NULL:
 * a's next rows, and rows that are read at the end of this tile or at the beginning of the next. */
struct place {
    const float *b, *half[2], *row[MR];
    int64_t at; /* in row */
    const float *next, *soon;
    int32_t lower; /* half of the next rows */
};

/* Once in TOUCH_STEPS. */
ISA_INLINE void prefetch_keys(const struct wn__attention_product *p, struct place *s, const int32_t vectors)
{
    if (s->next) { /* a line of a row holds 16 steps: half of the rows at a time */
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

/* Steps of the vectors from `from` on. */
ISA_INLINE void run_steps(const struct wn__attention_product *p, struct place *s, int64_t steps, const int32_t from,
                          const int32_t vectors, const int32_t whole, struct wn__attention_prefetch *prefetch,
                          __m512 acc[MR][3])
{
    const int64_t ai = p->ai, ak = p->ak, bk = p->bk;
    for (; steps > 0; steps -= TOUCH_STEPS) {
        int64_t n = steps < TOUCH_STEPS ? steps : TOUCH_STEPS;
        if (prefetch) prefetch_pieces(prefetch, n * (vectors - from));
        prefetch_keys(p, s, vectors);
        for (; n > 0; n--, s->b += bk) {
            __m512 x[3];
            /* These stand for all rows: else each row has a pointer that moves on. */
            if (whole) __asm__("" : "+r"(s->half[0]), "+r"(s->half[1]));
            else __asm__("" : "+r"(s->at));
#pragma GCC unroll 3
            for (int32_t v = from; v < vectors; v++) x[v] = _mm512_load_ps(s->b + 16 * v);
#pragma GCC unroll 8
            for (int32_t i = 0; i < MR; i++) {
                __m512 y = _mm512_set1_ps(whole ? s->half[2 * i / MR][i % (MR / 2) * ai] : s->row[i][s->at]);
                __asm__("" : "+v"(y)); /* one load: else each multiply-add broadcasts again */
#pragma GCC unroll 3
                for (int32_t v = from; v < vectors; v++) acc[i][v] = _mm512_fmadd_ps(y, x[v], acc[i][v]);
            }
            if (whole) s->half[0] += ak, s->half[1] += ak;
            else s->at += ak;
        }
    }
}

/* The weights beside a tile and their gradient, which is stored; kept: whether weights are dropped. */
ISA_INLINE void weigh_rows(const struct wn__attention_product *p, int64_t i0, int64_t j, const int32_t vectors,
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

ISA_INLINE void weigh(const struct wn__attention_product *p, int64_t i0, int64_t j, const int32_t vectors,
                      const int64_t m, __m512 acc[MR][3])
{
    if (p->weighing->kept) weigh_rows(p, i0, j, vectors, m, 1, acc);
    else weigh_rows(p, i0, j, vectors, m, 0, acc);
}

/* What a tile asks for: a's next rows, the rows of weights that it ends with, and where c is added to, those of c
 * that the next tile begins with. 12 heads of 64, 1024 positions, backward, two threads: 1.5, 0.7 and 0.5 % faster;
 * heads of 128 gain 4 % by the last. Steps of a, where its rows do not lie by steps, are not worth asking for, nor
 * is what the forward keeps in the first two caches. */
ISA_INLINE void find_prefetch(const struct wn__attention_product *p, int64_t i0, int64_t j, struct place *s)
{
    const int32_t more = i0 + MR < p->m; /* else the next strip begins, or what lies below is the next product's */
    s->next = s->soon = NULL;
    s->lower = 0;
    if (!p->far) return;
    if (p->first) s->next = more || j + NR >= p->n ? p->a + (i0 + MR) * p->ai : p->a;
    if (p->weighing) s->soon = p->weighing->s + i0 * p->ldc + j;
    else if (!p->first) s->soon = p->c + (i0 + MR) * p->ldc + j;
}

/* Rows i .. i + 7, columns j .. of c; last: the lanes of the last vector. whole: all rows and all lanes are there.
 * steps: that each vector takes, no more than the next one. */
ISA_INLINE void run_tile(const struct wn__attention_product *p, int64_t i0, int64_t j, __mmask16 last,
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

#define STRIP(VECTORS)                                                                                                 \
    ISA static void strip_##VECTORS(const struct wn__attention_product *p, int64_t j, __mmask16 last,                  \
                                    const int64_t steps[3])                                                            \
    {                                                                                                                  \
        int64_t i = 0;                                                                                                 \
        if (last == 0xffff)                                                                                            \
            for (; i + MR <= p->m; i += MR) run_tile(p, i, j, last, steps, VECTORS, 1);                                \
        for (; i < p->m; i += MR) run_tile(p, i, j, last, steps, VECTORS, 0);                                          \
    }
STRIP(1)
STRIP(2)
STRIP(3)

/* Columns in strips of 3 vectors, but 4 as 2 + 2: a single one has too few sums in flight. */
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

#define TOGETHER 4 /* rows side by side: 4.5 cycles for 16 weights; one by one 5.8, eight 4.4 */
#define EACH_ROW _Pragma("GCC unroll 4") for (int32_t i = 0; i < TOGETHER; i++)

/* wn_exp2_below_f32: scalef takes the floor itself, and rounds once, as the second of the two multiplications there. */
ISA_INLINE void exp2_below(__m512 x[TOGETHER])
{
    __m512 r[TOGETHER], p[TOGETHER];
    EACH_ROW r[i] = _mm512_reduce_ps(x[i], _MM_FROUND_TO_NEG_INF);
    EACH_ROW p[i] = _mm512_fmadd_ps(_mm512_set1_ps(WN_EXP2_5), r[i], _mm512_set1_ps(WN_EXP2_4));
    EACH_ROW p[i] = _mm512_fmadd_ps(p[i], r[i], _mm512_set1_ps(WN_EXP2_3));
    EACH_ROW p[i] = _mm512_fmadd_ps(p[i], r[i], _mm512_set1_ps(WN_EXP2_2));
    EACH_ROW p[i] = _mm512_fmadd_ps(p[i], r[i], _mm512_set1_ps(WN_EXP2_1));
    EACH_ROW p[i] = _mm512_fmadd_ps(p[i], r[i], _mm512_set1_ps(1.0f));
    EACH_ROW x[i] = _mm512_scalef_ps(p[i], x[i]);
}

ISA_INLINE void softmax_lanes(float *s, const uint16_t *kept, int64_t ld, int64_t keys, float *best, float *sum,
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

ISA static void softmax(const struct wn__attention_tile *t, float *best, float *sum, float *back)
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

#define CHAINS 6 /* of eight quads, side by side: 10.6 cycles for 16 weights; four 12.5, eight 11.1 */
#define EACH_CHAIN _Pragma("GCC unroll 6") for (int32_t i = 0; i < CHAINS; i++)

/* wn_philox of the quads in c[0], eight of a chain; words come to the low halves of c[0..3]. */
ISA_INLINE void philox(const struct philox *x, __m512i c[4][CHAINS])
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

#define QUADS (CHAINS / 2) /* a column has side by side */

/* Sixteen columns, whose quads begin at low and high: bit i of bits[j] says whether word j of column i is <= last. */
ISA_INLINE void draw_words(const struct philox *x, __m512i low, __m512i high, int64_t words, __m512i last,
                           uint16_t *bits)
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

/* A column begins at word 0, 1, 2 or 3 of a quad. */
ISA static void draw(const struct wn__attention *k, const struct wn__attention_tile *t, uint64_t element)
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

const struct wn__attention_kernel *wn__attention_avx512(void)
{
    static const struct wn__attention_kernel kernel = {multiply, softmax, draw};
    return wn__gemm_avx512() ? &kernel : NULL;
}
#else
const struct wn__attention_kernel *wn__attention_avx512(void)
{
    return NULL;
}
#endif
