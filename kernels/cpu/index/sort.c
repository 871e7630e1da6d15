/* ARGSORT: x: (outer, n, inner), along n: the positions of the elements of every line in order, i32.
 *
 * An element becomes a key, a number without sign whose order is that of the op: -0 and 0 are one key, all NaN are the
 * largest one, and where the largest element comes first all bits are turned over. Equal keys stay in the order of
 * their positions. A short line is sorted by insertion. A longer one is sorted by its digits, the lowest first:
 *
 *     result      | positions of line 0 by digits 0..2 |  inner apart        the last pass ends here
 *     workspace   | positions of line 0 by digits 0..1 | line 1 | ..         (outer inner, n) i32
 *
 * A digit that all keys of a line share needs no pass. The order is complete, so the positions depend neither on the
 * algorithm nor on the number of threads, which share the lines. */
#include <stddef.h>
#include <string.h>
#include "../../scalar.h"
#include "../common/cpu.h"
#include "sort.h"

enum {
    BITS = 8, /* of a digit */
    BINS = 1 << BITS,
    DIGITS = 64 / BITS, /* of the largest key */
    BLOCK = 256         /* keys that are made at once */
};

/* Positions in an order, `step` elements apart; at is NULL for those that count up from 0. */
struct positions {
    int32_t *at;
    int64_t step;
};

struct sort {
    const void *x;
    int32_t *out, *scratch;
    struct wn__axis axis;
    int32_t is_descending;
    int32_t digits; /* of a key of the dtype */
    /* Writes the keys of m positions of a line from place `begin` of p on. */
    void (*keys)(const struct sort *k, const void *line, struct positions p, int64_t begin, int64_t m, uint64_t *key);
};

/* ---- keys ---------------------------------------------------------------------------------------- */

/* Defines the key of a float by its bits, an unsigned B; INFINITE: the bits of infinity. */
#define FLOAT_KEY(S, B, INFINITE)                                                                                      \
    static inline B key_##S(B bits)                                                                                    \
    {                                                                                                                  \
        const B top = (B)((B)1 << (8 * sizeof(B) - 1)), size = (B)(bits & (B)~top);                                    \
        if (size > INFINITE) return (B) ~(B)0;                                                                         \
        if (size == 0) return top;                                                                                     \
        return bits & top ? (B)~bits : (B)(bits | top);                                                                \
    }

FLOAT_KEY(bf16, uint16_t, 0x7f80)
FLOAT_KEY(f32, uint32_t, 0x7f800000)
FLOAT_KEY(f64, uint64_t, 0x7ff0000000000000)

static inline uint32_t key_i32(uint32_t bits)
{
    return bits ^ 0x80000000;
}

#define KEYS(S, B)                                                                                                     \
    static void keys_##S(const struct sort *k, const void *line, struct positions p, int64_t begin, int64_t m,         \
                         uint64_t *key)                                                                                \
    {                                                                                                                  \
        const B *x = line, over = k->is_descending ? (B) ~(B)0 : 0;                                                    \
        const int64_t step = k->axis.inner;                                                                            \
        for (int64_t j = 0; j < m; j++) {                                                                              \
            int64_t at = p.at ? p.at[(begin + j) * p.step] : begin + j;                                                \
            key[j] = (B)(key_##S(x[at * step]) ^ over);                                                                \
        }                                                                                                              \
    }

KEYS(bf16, uint16_t)
KEYS(f32, uint32_t)
KEYS(f64, uint64_t)
KEYS(i32, uint32_t)

static void (*const keys_of[WN_DTYPE_COUNT])(const struct sort *, const void *, struct positions, int64_t, int64_t,
                                             uint64_t *) = {WN_FLOATS(keys), [WN_I32] = keys_i32};

/* ---- lines --------------------------------------------------------------------------------------- */

/* Sorts the positions of a line of at most WN_SORT_SHORT elements. */
static void insert(const struct sort *k, const void *line, int32_t *out)
{
    const struct positions all = {NULL, 1};
    const int64_t n = k->axis.n, step = k->axis.inner;
    uint64_t key[WN_SORT_SHORT];
    int32_t at[WN_SORT_SHORT];
    k->keys(k, line, all, 0, n, key);
    for (int64_t i = 0; i < n; i++) {
        const uint64_t own = key[i];
        int64_t hole = i;
        for (; hole > 0 && key[hole - 1] > own; hole--) {
            key[hole] = key[hole - 1];
            at[hole] = at[hole - 1];
        }
        key[hole] = own;
        at[hole] = (int32_t)i;
    }
    for (int64_t i = 0; i < n; i++) out[i * step] = at[i];
}

/* Counts how often each digit has each value. count: (digits, BINS), zeroed. */
static void count_digits(const struct sort *k, const void *line, int32_t (*count)[BINS])
{
    const struct positions all = {NULL, 1};
    uint64_t key[BLOCK];
    for (int64_t begin = 0; begin < k->axis.n; begin += BLOCK) {
        int64_t m = wn_min(k->axis.n - begin, BLOCK);
        k->keys(k, line, all, begin, m, key);
        for (int32_t d = 0; d < k->digits; d++)
            for (int64_t j = 0; j < m; j++) count[d][key[j] >> (d * BITS) & (BINS - 1)]++;
    }
}

/* Makes counts the first place of each value. Returns 0, and changes nothing, where one value has all n. */
static int32_t places_of(int32_t *count, int64_t n)
{
    int32_t first = 0;
    for (int32_t v = 0; v < BINS; v++)
        if (count[v] == n) return 0;
    for (int32_t v = 0; v < BINS; v++) {
        int32_t own = count[v];
        count[v] = first;
        first += own;
    }
    return 1;
}

/* Moves positions from one order to the next, by digit d. place: (BINS) where the first one of each value goes. */
static void pass(const struct sort *k, const void *line, struct positions from, struct positions to, int32_t d,
                 int32_t *place)
{
    uint64_t key[BLOCK];
    for (int64_t begin = 0; begin < k->axis.n; begin += BLOCK) {
        int64_t m = wn_min(k->axis.n - begin, BLOCK);
        k->keys(k, line, from, begin, m, key);
        for (int64_t j = 0; j < m; j++) {
            int64_t goes = place[key[j] >> (d * BITS) & (BINS - 1)]++;
            to.at[goes * to.step] = from.at ? from.at[(begin + j) * from.step] : (int32_t)(begin + j);
        }
    }
}

/* Sorts the positions of a line by their digits. */
static void by_digits(const struct sort *k, const void *line, int32_t *out, int32_t *scratch)
{
    const struct positions place[2] = {{out, k->axis.inner}, {scratch, 1}};
    struct positions from = {NULL, 1};
    int32_t count[DIGITS][BINS], used[DIGITS], passes = 0;
    memset(count, 0, (size_t)k->digits * sizeof *count);
    count_digits(k, line, count);
    for (int32_t d = 0; d < k->digits; d++)
        if (places_of(count[d], k->axis.n)) used[passes++] = d;
    for (int32_t i = 0; i < passes; i++) {
        struct positions to = place[(passes - 1 - i) % 2];
        pass(k, line, from, to, used[i], count[used[i]]);
        from = to;
    }
    for (int64_t j = 0; j < k->axis.n && passes == 0; j++) out[j * k->axis.inner] = (int32_t)j;
}

static void sort_lines(int64_t begin, int64_t end, void *ctx)
{
    const struct sort *k = ctx;
    const int64_t n = k->axis.n, inner = k->axis.inner, size = k->digits * BITS / 8;
    for (int64_t i = begin; i < end; i++) {
        const int64_t first = i / inner * n * inner + i % inner;
        const char *line = (const char *)k->x + first * size;
        if (n <= WN_SORT_SHORT) insert(k, line, k->out + first);
        else by_digits(k, line, k->out + first, k->scratch + i * n);
    }
}

/* ---- which kernel -------------------------------------------------------------------------------- */

static int32_t argsort(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct sort k = {.x = b->in[0], .out = b->out, .scratch = b->workspace, .is_descending = d->attrs.i[1] != 0};
    if (wn__numel(&d->out) == 0) return WN_OK;
    k.axis = wn__axis_of(&d->in[0], d->attrs.i[0]);
    k.digits = (int32_t)wn__dtype_size(d->in[0].dtype) * 8 / BITS;
    k.keys = keys_of[d->in[0].dtype];
    wn__parallel_for(k.axis.outer * k.axis.inner, WN_CPU_GRAIN_MATH / (k.axis.n + 1) + 1, sort_lines, &k);
    return WN_OK;
}

wn_kernel_fn wn__cpu_sort_kernel(const struct wn_desc *d)
{
    return d->op == WN_OP_ARGSORT && keys_of[d->in[0].dtype] ? argsort : NULL;
}
