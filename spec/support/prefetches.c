/* Counts what the driver of Winograd's convolutions prefetches behind its transformed weight, by a micro-kernel that
 * computes nothing. Nothing is read. */
#include "../../kernels/cpu/conv/winograd.c"

static const char *end;
static int64_t behind;

static void count_lines(const struct wn__gemm_microtile *t)
{
    for (int64_t k = 0; k < t->kc && t->aux.step; k++)
        behind += t->aux.line + k / WN_GEMM_FAR_STEPS * t->aux.row + k % WN_GEMM_FAR_STEPS * t->aux.step >= end;
}

/* Returns the lines behind the weights of (16, depth, columns), depth to 1024, by micro-tiles of 4, 6 and 8 rows. */
__attribute__((visibility("default"))) int64_t prefetched_behind(int64_t columns)
{
    static float weight[16 * 1024 * 160], v[POINTS * APART];
    for (int64_t depth = 32; depth <= 1024; depth += 32)
        for (int64_t mr = 4; mr <= 8; mr += 2) {
            const struct wn__gemm_kernel kernel = {.mr = mr, .nr = WN_PANEL, .microkernel = count_lines};
            const struct wn__conv_job w = {.depth = depth, .columns = columns, .words.gemm.kernel = &kernel};
            const struct winograd f = winograd_of(&w, weight);
            struct block b = {.f = &f, .tiles = f.tile_block, .v = v, .m = v};
            end = (const char *)(weight + POINTS * depth * columns);
            for (; b.column < columns; b.column += f.column_block)
                for (b.k = 0; b.k < depth; b.k += b.kc) {
                    b.columns = wn_min(columns - b.column, f.column_block);
                    b.kc = wn_min(depth - b.k, f.kc);
                    run_points(&b);
                }
        }
    return behind;
}
