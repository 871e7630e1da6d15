/* Micro-kernels, written once for all vector instructions. A micro-tile c: (mr, nr) is divided into register tiles of
 * MR rows x up to 3 vectors of columns, whose sums stay in registers over all of k. A step of k loads up to three
 * vectors of b and broadcasts one element of a for up to three multiply-adds in each row:
 *
 *            b(k, 0..L)   b(k, L..2L)   b(k, 2L..3L)         x[0], x[1], x[2]; L = LANES
 *   a(0, k)    acc[0][0]     acc[0][1]     acc[0][2]
 *   ...
 *   a(7, k)    acc[7][0]     acc[7][1]     acc[7][2]         acc[i][v] = a(i, k) x[v] + acc[i][v]
 *
 * b is a packed micro-panel, or is read in place while its micro-panel is packed: those stores cost little beside the
 * arithmetic. A step also prefetches one line of the memory that is needed next; where a micro-tile has several
 * register tiles, the first one does.
 *
 * The folder of each class includes this file, after its vectors.h, which defines
 *   vec, LANES                          a vector of f32 and its lanes
 *   MR                                  rows of a micro-tile: MR x 3 sums, 3 vectors and a broadcast fit the registers
 *   UNROLL                              steps of k that one turn of a loop takes
 *   vec_zero, vec_set1, vec_add, vec_load, vec_store, vec_stream, vec_multiply_add(a, b, c): a b + c, rounded once
 *   vec_mask, vec_first(n)              the mask of lanes 0 to n - 1; none for n <= 0
 *   vec_load_masked, vec_store_masked   of a mask's lanes alone; the other lanes of a load are 0
 *   vec_keep(x)                         one load of x; without it each multiply-add loads or broadcasts again
 *   OWN_ROW, multiply_row               where the compiler's row of multiply-adds will not do
 *   OWN_PACKED, multiply_packed         where packed elements of a are not multiplied one at a time
 *   OWN_APART, struct apart, apart_of, apart_row, apart_next
 *                                       where pointers to all rows of a do not fit the registers
 * and, where a class stores sums as bf16 (TILE_HALF), vec_half, LANES of them, vec_round, vec_widen, half_load and
 * half_store, and half_load_first and half_store_first, of n alone; and, for words that are pairs of bf16 (TILE_PAIRS,
 * which are always stored as bf16), load_in_place and half_row. */
#ifndef WN_CPU_GEMM_MICROKERNEL_H
#define WN_CPU_GEMM_MICROKERNEL_H
#include <stddef.h>
#include "gemm.h"

#define NR 48
#define REGISTERS 3 /* most vectors of a register tile */
_Static_assert(NR == WN_PANEL && NR == WN_GEMM_NR_MAX && MR <= WN_GEMM_MR_MAX, "drivers and layouts know NR");
_Static_assert(16 % LANES == 0 && NR % LANES == 0, "packed rows are whole vectors");
#if defined(TILE_PAIRS)
#define PANEL_STEPS (WN_PANEL / 2)
#define FAR_STEPS WN_GEMM_FAR_STEPS_BF16
#else
#define PANEL_STEPS WN_PANEL
#define FAR_STEPS WN_GEMM_FAR_STEPS
#endif
_Static_assert(FAR_STEPS % UNROLL == 0 && WN_GEMM_NEAR_STEPS % UNROLL == 0, "unrolled steps share a row of lines");
enum { FAR, NEAR, NONE }; /* where a step prefetches to: the second-level cache, the first, nowhere */

/* Returns the vectors of the next register tile of `left` vectors; 2 + 2 instead of 3 + 1, since one vector has too few
 * sums in flight. */
INLINE int32_t vectors_of(int64_t left)
{
    return left == 4 ? 2 : left < REGISTERS ? (int32_t)left : REGISTERS;
}

INLINE void prefetch_line(const int32_t where, const char *line)
{
    if (where == NEAR) __builtin_prefetch(line, 0, 3);
    else if (where == FAR) __builtin_prefetch(line, 0, 2);
}

INLINE void add_bias(const struct wn__gemm_microtile *t, const int32_t vectors, vec acc[MR][REGISTERS])
{
    if (t->bias) {
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++) {
            vec bias = vec_load_masked(t->bias + LANES * v, vec_first(t->n - LANES * v));
#pragma GCC unroll 8
            for (int32_t i = 0; i < MR; i++) acc[i][v] = vec_add(acc[i][v], bias);
        }
    }
    if (t->row_bias) {
#pragma GCC unroll 8
        for (int32_t i = 0; i < MR; i++) {
            vec bias = vec_set1(i < t->m ? t->row_bias[i] : 0.0f);
#pragma GCC unroll 3
            for (int32_t v = 0; v < vectors; v++) acc[i][v] = vec_add(acc[i][v], bias);
        }
    }
}

INLINE void store_tile(const struct wn__gemm_microtile *t, const int32_t vectors, const int32_t whole,
                       vec acc[MR][REGISTERS])
{
    float *to = t->out ? t->out : t->c;
    const int64_t ld = t->out ? t->out_ld : t->ldc;
    if (t->bias || t->row_bias) add_bias(t, vectors, acc);
    if (t->aux.stream && t->n % LANES == 0) {
#pragma GCC unroll 8
        for (int32_t i = 0; i < MR; i++)
#pragma GCC unroll 3
            for (int32_t v = 0; v < vectors; v++)
                if (whole || i < t->m) vec_stream(to + i * ld + LANES * v, acc[i][v]);
        return;
    }
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++)
            if (whole) vec_store(to + i * ld + LANES * v, acc[i][v]);
            else if (i < t->m) vec_store_masked(to + i * ld + LANES * v, vec_first(t->n - LANES * v), acc[i][v]);
}

#if defined(TILE_HALF)
#if !defined(TILE_PAIRS)
/* Stores a whole row of a register tile as bf16. */
INLINE void half_row(const int32_t vectors, const int32_t stream, const vec *acc, uint16_t *to)
{
    (void)stream;
#pragma GCC unroll 3
    for (int32_t v = 0; v < vectors; v++) half_store(to + LANES * v, vec_round(acc[v]));
}
#endif

/* Stores the sums of a register tile as bf16, with their bias. */
INLINE void store_half(const struct wn__gemm_microtile *t, const int32_t vectors, const int32_t whole,
                       vec acc[MR][REGISTERS])
{
    if (t->half_bias) {
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++) {
            const uint16_t *from = t->half_bias + LANES * v;
            const vec bias = vec_widen(whole ? half_load(from) : half_load_first(from, t->n - LANES * v));
#pragma GCC unroll 8
            for (int32_t i = 0; i < MR; i++) acc[i][v] = vec_add(acc[i][v], bias);
        }
    }
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++) {
        uint16_t *to = t->half + i * t->half_ld;
        if (whole) {
            half_row(vectors, vectors == 2 && t->aux.stream, acc[i], to);
        } else if (i < t->m) {
#pragma GCC unroll 3
            for (int32_t v = 0; v < vectors; v++)
                half_store_first(to + LANES * v, t->n - LANES * v, vec_round(acc[i][v]));
        }
    }
}
#endif

INLINE void load_tile(const struct wn__gemm_microtile *t, const int32_t vectors, const int32_t whole,
                      vec acc[MR][REGISTERS])
{
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++) acc[i][v] = vec_zero();
    if (t->first) return;
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++) {
            const float *c = t->c + i * t->ldc + LANES * v;
            if (whole) acc[i][v] = vec_load(c);
            else if (i < t->m) acc[i][v] = vec_load_masked(c, vec_first(t->n - LANES * v));
        }
}

/* Prefetches the lines that the register tile will write, while it computes: they may be in another core's cache, or in
 * memory. */
INLINE void prefetch_out(const struct wn__gemm_microtile *t, const int32_t vectors, const int32_t whole)
{
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int32_t at = 0; at < vectors * LANES; at += 16)
            if (whole || i < t->m) __builtin_prefetch(t->out + i * t->out_ld + at, 1);
}

#if !defined(TILE_PAIRS)
/* Returns vector v of a step of a b that is read in place, of which n lanes are columns; the others are zero. */
INLINE vec load_in_place(const float *b, int64_t bk, int32_t v, int64_t n)
{
    (void)bk;
    return n >= LANES ? vec_load(b + LANES * v) : vec_load_masked(b + LANES * v, vec_first(n));
}
#endif

#if !defined(OWN_ROW)
/* Adds *a x[v] to the sums of a row. */
INLINE void multiply_row(const int32_t vectors, const float *a, const vec x[REGISTERS], vec acc[REGISTERS])
{
    vec y = vec_set1(*a);
    vec_keep(y);
#pragma GCC unroll 3
    for (int32_t v = 0; v < vectors; v++) acc[v] = vec_multiply_add(y, x[v], acc[v]);
}
#endif

#if !defined(OWN_PACKED)
/* Multiplies one step of k, x: (vectors), by a: (MR), packed. */
INLINE void multiply_packed(const int32_t vectors, const float *a, const vec x[REGISTERS], vec acc[MR][REGISTERS])
{
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++) multiply_row(vectors, a + i, x, acc[i]);
}
#endif

/* Multiplies one step of k, x: (vectors), by element `at` of each row of a. */
INLINE void multiply_step(const int32_t vectors, const float *const row[MR], int64_t at, const vec x[REGISTERS],
                          vec acc[MR][REGISTERS])
{
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++) multiply_row(vectors, row[i] + at, x, acc[i]);
}

#if !defined(OWN_APART)
/* The rows of a whole register tile, each at element `at`. */
struct apart {
    const float *row[MR];
    int64_t at;
};

/* Returns rows that are ai words apart. */
INLINE struct apart apart_of(const float *a, int64_t ai)
{
    struct apart rows = {.at = 0};
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++) rows.row[i] = a + i * ai;
    return rows;
}

/* Returns the element that row i is at. */
INLINE const float *apart_row(const struct apart *rows, const int32_t i)
{
    return rows->row[i] + rows->at;
}

/* Moves the rows on by ak words. */
INLINE void apart_next(struct apart *rows, int64_t ak)
{
    rows->at += ak;
}
#endif

/* Multiplies one step of k, x: (vectors), by the elements that the rows are at. */
INLINE void multiply_apart(const int32_t vectors, const struct apart *rows, const vec x[REGISTERS],
                           vec acc[MR][REGISTERS])
{
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++) multiply_row(vectors, apart_row(rows, i), x, acc[i]);
}

/* Loads a row of a packed b. */
INLINE void load_row(const int32_t vectors, const float *b, vec x[REGISTERS])
{
#pragma GCC unroll 3
    for (int32_t v = 0; v < vectors; v++) {
        x[v] = vec_load(b + LANES * v);
        vec_keep(x[v]);
    }
}

/* Computes one step of k: element `at` of each row of a, b packed. */
INLINE void step_of(const int32_t vectors, const float *const row[MR], int64_t at, const float *b,
                    vec acc[MR][REGISTERS])
{
    vec x[REGISTERS];
    load_row(vectors, b, x);
    multiply_step(vectors, row, at, x, acc);
}

/* One of the ways to compute a register tile; all fields are constants where one is made. */
struct way {
    int32_t vectors; /* of columns */
    int32_t copy;    /* 1: b is read in place and packed */
    int32_t where;   /* prefetches go to */
    int32_t whole;   /* 1: m = MR and n = vectors * LANES */
    int32_t packed;  /* 1: whole, and a is packed, so that one pointer walks its rows */
};
/* The place of a loop over k in its operands. */
struct cursor {
    const float *b;
    float *to;         /* the next row of the packed micro-panel */
    int64_t at;        /* of the element of a, within each row */
    const char *line;  /* the next line to prefetch */
    struct apart rows; /* of a, where the register tile is whole and a is not packed */
};

/* Moves the line on to the next row of lines, where `k` steps are whole rows. */
INLINE void turn_line(const struct wn__gemm_microtile *t, const int32_t where, int64_t k, struct cursor *s)
{
    const int64_t group = where == NEAR ? WN_GEMM_NEAR_STEPS : FAR_STEPS;
    if (k % group == 0) s->line += t->aux.row - group * t->aux.step;
}

/* Computes one step of k. */
INLINE void take_step(const struct wn__gemm_microtile *t, const struct way way, const float *const row[MR],
                      struct cursor *s, vec acc[MR][REGISTERS])
{
    vec x[REGISTERS];
    prefetch_line(way.where, s->line);
    s->line += t->aux.step;
#pragma GCC unroll 3
    for (int32_t v = 0; v < way.vectors; v++) {
        int64_t columns = way.whole ? LANES : t->n - LANES * v;
        x[v] = way.copy ? load_in_place(s->b, t->bk, v, columns) : vec_load(s->b + LANES * v);
        vec_keep(x[v]);
        if (way.copy) vec_store(s->to + LANES * v, x[v]);
    }
    if (way.packed) multiply_packed(way.vectors, row[0] + s->at, x, acc);
    else if (way.whole) multiply_apart(way.vectors, &s->rows, x, acc);
    else multiply_step(way.vectors, row, s->at, x, acc);
    if (way.whole && !way.packed) apart_next(&s->rows, t->ak);
    s->to += NR;
    s->b += t->bk;
    s->at += way.packed ? MR : t->ak;
}

/* Returns the register tile of a micro-tile that begins at column `at` and has at most so many vectors. */
INLINE struct wn__gemm_microtile tile_at(const struct wn__gemm_microtile *of, int64_t at, const int32_t vectors)
{
    struct wn__gemm_microtile t = *of;
    if (NR == REGISTERS * LANES) return t; /* it is the whole micro-tile */
    t.n = of->n - at < vectors * LANES ? of->n - at : vectors * LANES;
    t.b += at;
    t.c += at;
    if (t.copy) t.copy += at;
    if (t.out) t.out += at;
    if (t.bias) t.bias += at;
    if (t.half) t.half += at;
    if (t.half_bias) t.half_bias += at;
    return t;
}

/* Computes a register tile. t is a copy, because the compiler cannot know that what is stored leaves *given alone. A
 * second copy, for the end, leaves more registers to the loop. */
INLINE void run_way(const struct wn__gemm_microtile *given, int64_t at, const struct way way)
{
    const struct wn__gemm_microtile t = tile_at(given, at, way.vectors);
    vec acc[MR][REGISTERS];
    const float *row[MR]; /* rows beyond m repeat the last one and are not stored */
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++) row[i] = way.packed ? t.a + i : t.a + (way.whole || i < t.m ? i : t.m - 1) * t.ai;
    load_tile(&t, way.vectors, way.whole, acc);
    if (t.out && !t.aux.stream) prefetch_out(&t, way.vectors, way.whole);
    struct cursor s = {.b = t.b, .to = t.copy, .line = t.aux.line, .rows = apart_of(t.a, t.ai)};
    int64_t k = 0;
    for (; k + UNROLL <= t.kc; k += UNROLL) {
#pragma GCC unroll 4
        for (int32_t q = 0; q < UNROLL; q++) take_step(&t, way, row, &s, acc);
        turn_line(&t, way.where, k + UNROLL, &s);
    }
    for (; k < t.kc; k++) {
        take_step(&t, way, row, &s, acc);
        turn_line(&t, way.where, k + 1, &s);
    }
    __asm__("" : "+r"(given));
    const struct wn__gemm_microtile end = tile_at(given, at, way.vectors);
#if defined(TILE_HALF)
    if (end.half) {
        store_half(&end, way.vectors, way.whole, acc);
        return;
    }
#endif
    store_tile(&end, way.vectors, way.whole, acc);
}

/* Computes a whole register tile of an a that has k along memory. Each of 8 steps may prefetch a line of one of the
 * rows, so every line is prefetched twice; the reads follow wn__tuning.product_ahead bytes behind. */
INLINE void prefetching_of(const struct wn__gemm_microtile *given, int64_t at, const int32_t vectors)
{
    const struct wn__gemm_microtile of = tile_at(given, at, vectors), *t = &of;
    vec acc[MR][REGISTERS];
    const float *row[MR];
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++) row[i] = t->a + i * t->ai;
    load_tile(t, vectors, 1, acc);
    const char *prefetch = t->aux.line;
    const float *b = t->b;
    const int64_t bk = t->bk, prefetch_row = t->aux.row, turn = t->kc - t->aux.turn;
    int64_t k = 0, left = t->kc;
    for (; left >= 8; left -= 8, prefetch += 32) {
        if (left == turn) prefetch = t->aux.then;
#pragma GCC unroll 8
        for (int32_t q = 0; q < 8; q++, k++, b += bk) {
            if (q < MR) prefetch_line(NEAR, prefetch + q * prefetch_row);
            step_of(vectors, row, k, b, acc);
        }
    }
    for (; left > 0; left--, k++, b += bk) step_of(vectors, row, k, b, acc);
    store_tile(t, vectors, 1, acc);
}

/* A run of whole panels of a, `apart` words from one to the next. */
struct panels {
    int64_t n, apart;
};

/* Computes a whole register tile over panels of a, each (rows, PANEL_STEPS) dense, so that one pointer walks a panel.
 * `where`: NONE, or NEAR. 16 / MR steps read one line and prefetch one. */
INLINE void panels_of(const struct wn__gemm_microtile *given, int64_t at, const int32_t vectors, struct panels panels,
                      const int32_t where)
{
    const struct wn__gemm_microtile of = tile_at(given, at, vectors), *t = &of;
    vec acc[MR][REGISTERS];
    load_tile(t, vectors, 1, acc);
    const float *b = t->b, *panel = t->a;
    const char *prefetch = t->aux.line;
    const int64_t bk = t->bk;
    for (; panels.n > 0; panels.n--, panel += panels.apart, prefetch += 4 * panels.apart)
        for (int64_t k = 0; k < PANEL_STEPS; k += 8) {
            const float *row[MR];
#pragma GCC unroll 8
            for (int32_t i = 0; i < MR; i++) row[i] = panel + i * PANEL_STEPS + k;
#pragma GCC unroll 8
            for (int32_t q = 0; q < 8; q++, b += bk) {
                if (q % (16 / MR) == 0) prefetch_line(where, prefetch + 4 * MR * (k + q));
                step_of(vectors, row, q, b, acc);
            }
        }
    store_tile(t, vectors, 1, acc);
}

/* ---- the ways, compiled ------------------------------------------------------------------------ */

typedef void (*register_tile)(const struct wn__gemm_microtile *t, int64_t at);
typedef void (*panels_tile)(const struct wn__gemm_microtile *t, int64_t at, struct panels panels);

#define WAY(NAME, VECTORS, COPY, WHERE)                                                                                \
    static void NAME(const struct wn__gemm_microtile *t, int64_t at)                                                   \
    {                                                                                                                  \
        int32_t whole = t->m == MR && t->n - at >= LANES * VECTORS;                                                    \
        if (whole && t->ai == 1 && t->ak == MR)                                                                        \
            run_way(t, at, (struct way){.vectors = VECTORS, .copy = COPY, .where = WHERE, .whole = 1, .packed = 1});   \
        else if (whole) run_way(t, at, (struct way){.vectors = VECTORS, .copy = COPY, .where = WHERE, .whole = 1});    \
        else run_way(t, at, (struct way){.vectors = VECTORS, .copy = COPY, .where = WHERE});                           \
    }
#define WAYS(NAME, COPY, WHERE)                                                                                        \
    WAY(NAME##_1, 1, COPY, WHERE)                                                                                      \
    WAY(NAME##_2, 2, COPY, WHERE)                                                                                      \
    WAY(NAME##_3, 3, COPY, WHERE)
#define PANELS(NAME, VECTORS, WHERE)                                                                                   \
    static void NAME(const struct wn__gemm_microtile *t, int64_t at, struct panels panels)                             \
    {                                                                                                                  \
        panels_of(t, at, VECTORS, panels, WHERE);                                                                      \
    }
#define PANELS_WAYS(NAME, WHERE)                                                                                       \
    PANELS(NAME##_1, 1, WHERE)                                                                                         \
    PANELS(NAME##_2, 2, WHERE)                                                                                         \
    PANELS(NAME##_3, 3, WHERE)
#define ALL(NAME)                                                                                                      \
    {                                                                                                                  \
        NAME##_1, NAME##_2, NAME##_3                                                                                   \
    }
#define PREFETCHING(NAME, VECTORS)                                                                                     \
    static void NAME(const struct wn__gemm_microtile *t, int64_t at)                                                   \
    {                                                                                                                  \
        prefetching_of(t, at, VECTORS);                                                                                \
    }

WAYS(far, 0, FAR)
WAYS(near, 0, NEAR)
WAYS(copy, 1, FAR)
PREFETCHING(prefetching_1, 1)
PREFETCHING(prefetching_2, 2)
PREFETCHING(prefetching_3, 3)
PANELS_WAYS(panels, NEAR)
#if NR > REGISTERS * LANES /* a micro-tile has register tiles after the first */
WAYS(silent, 0, NONE)
WAYS(silent_copy, 1, NONE)
PANELS_WAYS(silent_panels, NONE)
static const register_tile further[2][3] = {ALL(silent), ALL(silent_copy)};
static const panels_tile further_panels[3] = ALL(silent_panels);
#endif
static const register_tile first[3][3] = {ALL(far), ALL(near), ALL(copy)}, first_prefetching[3] = ALL(prefetching);
static const panels_tile first_panels[3] = ALL(panels);

static void microkernel(const struct wn__gemm_microtile *t)
{
    int64_t left = (t->n + LANES - 1) / LANES, vectors = vectors_of(left);
    if (t->aux.then && t->m == MR && t->n % LANES == 0) first_prefetching[vectors - 1](t, 0);
    else first[t->copy ? 2 : t->aux.is_near ? 1 : 0][vectors - 1](t, 0);
#if NR > REGISTERS * LANES
    for (int64_t at = vectors * LANES; (left -= vectors) > 0; at += vectors * LANES) {
        vectors = vectors_of(left);
        further[t->copy != NULL][vectors - 1](t, at);
    }
#endif
}

static void panels_kernel(const struct wn__gemm_microtile *t, int64_t panels, int64_t apart)
{
    const struct panels run = {panels, apart};
    int64_t left = t->n / LANES, vectors = vectors_of(left);
    first_panels[vectors - 1](t, 0, run);
#if NR > REGISTERS * LANES
    for (int64_t at = vectors * LANES; (left -= vectors) > 0; at += vectors * LANES) {
        vectors = vectors_of(left);
        further_panels[vectors - 1](t, at, run);
    }
#endif
}
#endif
