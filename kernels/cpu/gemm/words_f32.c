/* Words of f32: a word is an element (driver.h). Block sizes, packing, and the end of a micro-tile. */
#include <stddef.h>
#include <string.h>
#include "driver.h"
#include "../common/micro.h"
#include "../../../runtime/base/number.h"

static const struct wn__gemm_blocks blocks = {
    .part_columns = 16, /* 48: parts of 1024 columns differed by 6 % */
    .column_unit = 48,
    .width_unit = 48,
    .epilogue_by_tile = 1, /* by blocks: 1.01-1.05x time (2048 x 1536 x 384, one sum an element) */
    .transposed_kc = INT32_MAX,
    .small_m_least = 1,
    .small_k = WN_GEMM_SMALL_K,
    .small_k_outputs = 1 << 18, /* half as many: the same, 3 % slower on a shared core */
    .small_k_columns = 48,
    .stream_share = 1,
};

#define T float
#define WIDEN(to, from, n) memcpy(to, from, (size_t)(n) * sizeof(float))
#define WIDE(from, room) ((void)(room), from)
#define TRANSPOSE(w, x, from, n, to) (w)->kernel->transpose(from, (x)->xi, n, (x)->k, to, (x)->width)
#include "pack.inc"

static void store(const float *sums, const void *bias, int64_t n, void *c)
{
    const float *add = bias;
    if (add == NULL) memcpy(c, sums, (size_t)n * sizeof *sums);
    else
        for (int64_t j = 0; j < n; j++) ((float *)c)[j] = sums[j] + add[j];
}

static void set_output(struct wn__gemm_microtile *t, void *c, int64_t ld, const void *bias)
{
    t->out = c;
    t->out_ld = ld;
    t->bias = bias;
}

struct wn__gemm_words wn__gemm_words_f32(void)
{
    return (struct wn__gemm_words){.kernel = wn__micro.gemm,
                                   .blocks = &blocks,
                                   .per = 1,
                                   .size = sizeof(float),
                                   .in_place = 1,
                                   .is_panel_packed = 1,
                                   .pack = pack,
                                   .store = store,
                                   .set_output = set_output};
}
