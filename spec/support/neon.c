/* The NEON kernels of products, for neon_spec, which runs this program under an emulator: built by the spec with
 * products.c and the objects of the class.
 * usage: neon               reads a product a line, and prints the number of wrong elements of each: `p` and the
 *                           arguments of products_wrong, flips in one, or `l` and those of products_panels_wrong
 *        neon KERNEL STEPS  calls one of `kernels` with so many steps of k */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "../../kernels/cpu/gemm/gemm.h"

int64_t products_wrong(int threads, int bf16, int64_t batch, int64_t m, int64_t n, int64_t k, int flip_a, int flip_b,
                       int with_bias);
int64_t products_panels_wrong(int threads, int bf16, int which, int64_t m, int64_t n, int64_t k, int turned,
                              int with_bias);

#define MR 8
#define NR 48
#define MOST 144 /* most steps of k */

static float a[MR * MOST] __attribute__((aligned(64))), b[NR * MOST] __attribute__((aligned(64)));
static float c[MR * NR] __attribute__((aligned(64)));
static const struct wn__gemm_microtile micro_tile = {
    .a = a, .b = b, .bk = NR, .c = c, .ldc = NR, .m = MR, .n = NR, .first = 1, .aux.line = (const char *)a};

static void packed(int64_t k)
{
    struct wn__gemm_microtile t = micro_tile;
    t.kc = k;
    t.ai = 1;
    t.ak = MR;
    wn__gemm_neon.microkernel(&t);
}

static void in_place(int64_t k) /* k along memory in each row of a */
{
    struct wn__gemm_microtile t = micro_tile;
    t.kc = k;
    t.ai = MOST;
    t.ak = 1;
    wn__gemm_neon.microkernel(&t);
}

static void panels(int64_t k)
{
    wn__gemm_neon.panels_kernel(&micro_tile, k / WN_PANEL, MR * WN_PANEL);
}

static void few_steps(int64_t k)
{
    struct wn__gemm_macrotile t = {.kc = k, .n = NR, .tiles = 1, .a = a, .b = b, .c = c, .ldc = NR, .then = c};
    wn__gemm_neon.macrokernel(&t);
}

static int64_t next(void)
{
    int64_t x = 0;
    if (scanf("%" SCNd64, &x) != 1) exit(1);
    return x;
}

/* Returns the number of wrong elements of the product whose arguments are read. */
static int64_t wrong_of(char what)
{
    int threads = (int)next(), bf16 = (int)next();
    int64_t batch = next(), m = next(), n = next(), k = next();
    int flips = (int)next(), bias = (int)next();
    if (what == 'p') return products_wrong(threads, bf16, batch, m, n, k, flips & 1, flips >> 1, bias);
    return products_panels_wrong(threads, bf16, (int)batch, m, n, k, flips, bias);
}

int main(int argc, char **argv)
{
    static void (*const kernels[])(int64_t) = {packed, in_place, panels, few_steps};
    char what;
    if (argc == 3) kernels[atoi(argv[1])](atoi(argv[2]));
    else
        while (scanf(" %c", &what) == 1) printf("%" PRId64 "\n", wrong_of(what));
    return 0;
}
