/* The own products against oneDNN's, in turns: built by onednn.lua with the objects of the library, among them
 * the one that opens oneDNN (kernels/cpu/backend/onednn.c). Plain row-major operands, either transposed, scratch from
 * outside. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../kernels/cpu/backend/onednn.h"
#include "probe.c"

/* Opens oneDNN under `name`, NULL for the usual names. Returns its version, or what is wrong with it. */
const char *onednn_open(const char *name, int *usable)
{
    const char *names[] = {name, NULL};
    *usable = wn__onednn_open(name ? names : NULL);
    return wn__onednn_text();
}

static void *operand(int64_t bytes)
{
    uint16_t *x = aligned_alloc(1 << 21, (size_t)((bytes >> 21) + 1) << 21);
    uint32_t state = 1;
    for (int64_t i = 0; i < bytes / 2; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (uint16_t)(0x3d00 | (state >> 9 & 0x80ff)); /* as bf16 and as f32 a number near 0.05 */
    }
    return x;
}

/* Measures `turn` turns of each side. out, a row a turn: GFLOP/s of the own product, GFLOP/s of oneDNN, peak in
 * GFLOP/s, bytes of oneDNN's scratch. b and c exist in 1 to 4 copies, used in rotation, so that they come from memory
 * where they would in a step. Returns 0 when oneDNN refuses the product, else 1. */
static int turns(int threads, int bf16, struct wn__gemm *p, int turn, double out[][4])
{
    int64_t size = bf16 ? 2 : 4, na = p->batch * p->m * p->k, nb = p->batch * p->n * p->k, nc = p->batch * p->m * p->n;
    int64_t copies = ((int64_t)96 << 20) / (size * (nb > nc ? nb : nc)) + 1;
    struct wn_made *made;
    int64_t scratch_bytes = INT64_MAX;
    if (copies > 4) copies = 4;
    if (wn__onednn_make(p, bf16 ? WN_BF16 : WN_F32, 0, &scratch_bytes, &made) != WN_OK || made == NULL) return 0;
    char *a = operand(na * size), *b = operand(copies * nb * size), *c = operand(copies * nc * size);
    void *scratch = operand(scratch_bytes + 64);
    double flops = 2.0 * (double)na * (double)p->n;
    int64_t inner = (int64_t)((bf16 ? 1e9 : 5e8) * threads / flops) + 1; /* 2 ms and more */
    for (int i = -1; i < turn; i++) {
        double peak = bf16 ? probe_gflops_bf16(threads) : probe_gflops(threads), seconds[2];
        for (int who = 0; who < 2; who++) {
            double start = now();
            for (int64_t q = 0; q < inner; q++) {
                p->a = a;
                p->b = b + q % copies * nb * size;
                p->c = c + q % copies * nc * size;
                if (who == 1) wn__onednn_run(made, p, scratch);
                else if (bf16) wn__gemm_bf16(p);
                else wn__gemm_f32(p);
            }
            seconds[who] = now() - start;
        }
        if (i < 0) continue;
        out[i][0] = flops * (double)inner / seconds[0] * 1e-9;
        out[i][1] = flops * (double)inner / seconds[1] * 1e-9;
        out[i][2] = peak;
        out[i][3] = (double)scratch_bytes;
    }
    free(a);
    free(b);
    free(c);
    free(scratch);
    made->let_go(made);
    return 1;
}

int onednn_turns(int threads, int bf16, int64_t batch, int64_t m, int64_t n, int64_t k, int flip_a, int flip_b,
                 int turn, double out[][4])
{
    struct wn__gemm p = {.m = m, .n = n, .k = k, .batch = batch};
    p.ai = flip_a ? 1 : k;
    p.ak = flip_a ? m : 1;
    p.bj = flip_b ? k : 1;
    p.bk = flip_b ? 1 : n;
    p.broadcast = (struct wn__broadcast){.n_operands = 2, .ndim = 1, .numel = batch};
    p.broadcast.dim[0] = batch;
    p.broadcast.step[0][0] = p.broadcast.step[1][0] = 1;
    wn_cpu_set_threads(threads);
    return turns(threads, bf16, &p, turn, out);
}
