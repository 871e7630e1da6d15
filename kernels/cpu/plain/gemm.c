/* The f32 micro-kernel in plain C, 4 x 16: every processor has it, and it is the one to read first. It fuses multiply
 * and add where the processor does so in hardware, and rounds twice elsewhere. */
#include "../common/lanes.h"
#include "../gemm/gemm.h"

#define MR 4
#define NR 16
_Static_assert(WN_GEMM_NR_MAX % NR == 0, "micro-panels of 48 columns hold whole ones of every micro-kernel");

static void microkernel(const struct wn__gemm_microtile *t)
{
    float acc[MR][NR] = {{0}};
    const float *b = t->b;
    int64_t bk = t->bk;
    if (t->copy) {
        for (int64_t k = 0; k < t->kc; k++)
            for (int64_t j = 0; j < NR; j++) t->copy[k * NR + j] = j < t->n ? b[k * bk + j] : 0;
        b = t->copy;
        bk = NR;
    }
    if (!t->first)
        for (int64_t i = 0; i < t->m; i++)
            for (int64_t j = 0; j < t->n; j++) acc[i][j] = t->c[i * t->ldc + j];
    for (int64_t k = 0; k < t->kc; k++, b += bk)
        for (int64_t i = 0; i < t->m; i++) {
            float a = t->a[i * t->ai + k * t->ak];
            for (int32_t j = 0; j < NR; j++) acc[i][j] = wn__multiply_add(a, b[j], acc[i][j]);
        }
    float *out = t->out ? t->out : t->c;
    int64_t ld = t->out ? t->out_ld : t->ldc;
    for (int64_t i = 0; i < t->m; i++)
        for (int64_t j = 0; j < t->n; j++) {
            float sum = t->bias ? acc[i][j] + t->bias[j] : acc[i][j];
            out[i * ld + j] = t->row_bias ? sum + t->row_bias[i] : sum;
        }
}

static void transpose(const float *x, int64_t ldx, int64_t m, int64_t n, float *to, int64_t ldt)
{
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < m; i++) to[j * ldt + i] = x[i * ldx + j];
}

const struct wn__gemm_kernel wn__gemm_plain = {.mr = MR, .nr = NR, .microkernel = microkernel, .transpose = transpose};
