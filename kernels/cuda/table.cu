/* GELU, SILU, TANH, SIGMOID, GELU_GRAD and SILU_GRAD of many bf16 by a table (table.h), with the bits of the formula,
 * which makes the table: a first launch fills it in the workspace, and each block of the second copies it to shared
 * memory. Made by each block, it would need no workspace, but all resident blocks would compute it at once before they
 * load anything: 18 formulas a thread, predicted as a sixth of the time of a large op or more.
 *
 *     block    256 threads; a thread has TABLE_PACKS packs of 8 elements, 256 packs apart
 *
 * A pack with an element outside of the table takes the formula, behind the others. Few elements, and numbers of
 * elements that are no multiple of 8, take the formula alone (unary.cu).
 *
 * Counted in SASS of sm_90: 13 instructions an element, 15 of a gradient; the formula of GELU takes 99.
 * Predicted: 85 % of the rate of copies. */
#include "elementwise.cuh"
#include "pair.cuh"
extern "C" {
#include "table.h"
}

enum { TABLE_PACKS = 8, TABLE_AHEAD = 4 }; /* packs of a thread, and those that it loads at once */

/* An entry: the bits of a result of bf16, or the factor of dy. */
template <int IS_GRAD> struct table_entry {
    uint16_t result;
    __device__ __forceinline__ void fill(int op, float x)
    {
        result = wn__store<wn_bf16>(wn__formula<float>(op, x, x, 0, 0)).bits;
    }
};
template <> struct table_entry<1> {
    float factor;
    __device__ __forceinline__ void fill(int op, float x)
    {
        factor = wn__formula<float>(op, 1, x, 0, 0);
    }
};

/* One application. */
struct table_call {
    const wn_bf16 *x, *dy; /* dy: of a gradient */
    wn_bf16 *out;
    void *table;
    int64_t packs;
};

template <int OP, int IS_GRAD> static __global__ void table_fill(struct table_call c)
{
    const int i = (int)wn__thread();
    if (i >= WN_TABLE_ENTRIES) return;
    const uint32_t bits = (uint32_t)(WN_TABLE_FIRST + i / 2) << 16 | (uint32_t)i << 31;
    ((table_entry<IS_GRAD> *)c.table)[i].fill(OP, wn_from_bits((int32_t)bits));
}

/* Returns the entry of the bf16 in the low or high half of a word; where it has none, the first, and makes is_out true.
 */
static __device__ __forceinline__ uint32_t entry_of(uint32_t word, int is_high, bool &is_out)
{
    const uint32_t half = is_high ? word >> 16 : word & 0xffffu;
    const uint32_t at = ((half << 1 | half >> 15) & 0xffffu) - 2 * WN_TABLE_FIRST;
    is_out |= at >= WN_TABLE_ENTRIES;
    return at < WN_TABLE_ENTRIES ? at : 0;
}

/* Returns the results of a pair of elements. dy: theirs, of a gradient. */
static __device__ __forceinline__ uint32_t pair_of(const table_entry<0> *table, uint32_t x, uint32_t, bool &is_out)
{
    const uint32_t low = table[entry_of(x, 0, is_out)].result, high = table[entry_of(x, 1, is_out)].result;
    return low | high << 16;
}
static __device__ __forceinline__ uint32_t pair_of(const table_entry<1> *table, uint32_t x, uint32_t dy, bool &is_out)
{
    const float low = table[entry_of(x, 0, is_out)].factor, high = table[entry_of(x, 1, is_out)].factor;
    return wn__pair_of(wn__pair_low(dy) * low, wn__pair_high(dy) * high);
}

/* Computes the packs of a thread whose bits are set by the formula. first: the first pack. */
template <int OP, int IS_GRAD>
static __device__ __forceinline__ void by_formula(const struct table_call &c, int64_t first, uint32_t packs)
{
    WN_ROLLED
    for (; packs != 0; packs &= packs - 1) {
        const int64_t at = (first + (__ffs((int)packs) - 1) * WN_THREADS) * WN_TABLE_PACK;
        WN_ROLLED
        for (int k = 0; k < WN_TABLE_PACK; k++) {
            const float x = wn__load(c.x[at + k]), dy = IS_GRAD ? wn__load(c.dy[at + k]) : x;
            c.out[at + k] = wn__store<wn_bf16>(wn__formula<float>(OP, dy, x, 0, 0));
        }
    }
}

template <int OP, int IS_GRAD> static __global__ void __launch_bounds__(WN_THREADS, 4) by_table(struct table_call c)
{
    enum { CHUNKS = WN_TABLE_ENTRIES * sizeof(table_entry<IS_GRAD>) / 16 };
    __shared__ __align__(16) table_entry<IS_GRAD> table[WN_TABLE_ENTRIES];
    for (int i = (int)threadIdx.x; i < CHUNKS; i += WN_THREADS) ((uint4 *)table)[i] = ((const uint4 *)c.table)[i];
    __syncthreads();
    const int64_t first = (int64_t)blockIdx.x * TABLE_PACKS * WN_THREADS + threadIdx.x;
    uint32_t outside = 0;
    WN_ROLLED
    for (int p = 0; p < TABLE_PACKS; p += TABLE_AHEAD) {
        uint4 x[TABLE_AHEAD] = {}, dy[TABLE_AHEAD] = {};
        WN_UNROLL
        for (int k = 0; k < TABLE_AHEAD; k++) {
            const int64_t at = first + (p + k) * WN_THREADS;
            if (at < c.packs) x[k] = ((const uint4 *)c.x)[at];
            if (IS_GRAD && at < c.packs) dy[k] = ((const uint4 *)c.dy)[at];
        }
        WN_UNROLL
        for (int k = 0; k < TABLE_AHEAD; k++) {
            const int64_t at = first + (p + k) * WN_THREADS;
            if (at >= c.packs) continue;
            bool is_out = false;
            const uint32_t word[4] = {pair_of(table, x[k].x, dy[k].x, is_out), pair_of(table, x[k].y, dy[k].y, is_out),
                                      pair_of(table, x[k].z, dy[k].z, is_out), pair_of(table, x[k].w, dy[k].w, is_out)};
            if (is_out) outside |= 1u << (p + k);
            else wn__store16((uint4 *)c.out + at, word);
        }
    }
    by_formula<OP, IS_GRAD>(c, first, outside);
}

template <int OP, int IS_GRAD>
static int32_t table_start(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    const int64_t packs = wn__numel(&d->out) / WN_TABLE_PACK;
    struct table_call c = {.x = (const wn_bf16 *)b->in[IS_GRAD],
                           .dy = (const wn_bf16 *)b->in[0],
                           .out = (wn_bf16 *)b->out,
                           .table = b->workspace,
                           .packs = packs};
    LAUNCH_EACH((table_fill<OP, IS_GRAD>), WN_TABLE_ENTRIES, stream, c);
    LAUNCH_BLOCKS((by_table<OP, IS_GRAD>), wn__blocks(packs, TABLE_PACKS * WN_THREADS), stream, c);
    return wn__cuda_launched();
}

wn_kernel_fn wn__cuda_table_kernel(const struct wn_desc *d)
{
    if (wn__table_bytes(d) == 0) return NULL;
    switch (d->op) {
    case WN_OP_GELU: return table_start<WN_OP_GELU, 0>;
    case WN_OP_SILU: return table_start<WN_OP_SILU, 0>;
    case WN_OP_TANH: return table_start<WN_OP_TANH, 0>;
    case WN_OP_SIGMOID: return table_start<WN_OP_SIGMOID, 0>;
    case WN_OP_GELU_GRAD: return table_start<WN_OP_GELU_GRAD, 1>;
    case WN_OP_SILU_GRAD: return table_start<WN_OP_SILU_GRAD, 1>;
    default: return NULL;
    }
}
