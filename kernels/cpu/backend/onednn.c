/* Products by oneDNN; see onednn.h.
 *
 * Implementations whose name does not begin with "brg" are declined: they take memory beside the plan while they run.
 * Measured: 7.6 MB in a step of six layers of 512 (2.6.3 without AVX-512, which says that it takes none). */
#include "onednn.h"
#include <string.h>
#include "onednn_api.h"

#define api wn__onednn_api

enum { A, B, C, BIAS, OPERANDS };
static const int number_of[OPERANDS] = {1, 33, 17, 41};

struct product {
    const struct wn__gemm *p;
    int32_t dtype, has_bias;
};

/* ---- making -------------------------------------------------------------------------------------- */

static int describe_all(struct wn__onednn_md *x, const struct product *what)
{
    const struct wn__gemm *p = what->p;
    const int64_t dims[][3] = {{p->batch, p->m, p->k}, {p->batch, p->k, p->n}, {p->batch, p->m, p->n}, {1, 1, p->n}};
    const int64_t strides[][3] = {
        {p->m * p->k, p->ai, p->ak}, {p->k * p->n, p->bk, p->bj}, {p->m * p->n, p->n, 1}, {p->n, p->n, 1}};
    const int32_t first = p->batch == 1; /* 2 dims serve one product better */
    int code = WN_ONEDNN_SUCCESS;
    for (int32_t i = A; i <= (what->has_bias ? BIAS : C) && code == WN_ONEDNN_SUCCESS; i++)
        code = wn__onednn_describe(&x[i], 3 - first, dims[i] + first, strides[i] + first, what->dtype);
    return code;
}

/* Finds the implementation that the library thinks best. */
static int find(const struct wn__onednn_md *x, const void *attr, void **pd)
{
    _Alignas(64) char desc[WN_ONEDNN_OP_BYTES];
    if (api.matmul_create != NULL)
        return api.matmul_create(pd, api.engine, x[A].md, x[B].md, x[BIAS].md, x[C].md, attr);
    int code = api.matmul_init(desc, x[A].md, x[B].md, x[BIAS].md, x[C].md);
    return code == WN_ONEDNN_SUCCESS ? api.pd_create(pd, desc, attr, api.engine, NULL) : code;
}

/* Accepts an implementation of the brgemm family that takes at most *bytes of scratch, and writes what it takes to
 * *bytes; declines every other. */
static int accept(const void *pd, int64_t *bytes)
{
    const int64_t takes = wn__onednn_scratch(pd);
    if (strncmp(wn__onednn_name(pd), "brg", 3) != 0 || takes > *bytes) return WN_ONEDNN_DECLINED;
    *bytes = takes;
    return WN_ONEDNN_SUCCESS;
}

static int build(struct wn__onednn_made *o, const void *what, int64_t *bytes)
{
    struct wn__onednn_md x[OPERANDS] = {{.md = NULL}};
    void *attr = NULL, *pd = NULL;
    int code = describe_all(x, what);
    if (code == WN_ONEDNN_SUCCESS) code = wn__onednn_attributes(&attr);
    if (code == WN_ONEDNN_SUCCESS) code = find(x, attr, &pd);
    if (code == WN_ONEDNN_SUCCESS) code = accept(pd, bytes);
    const void *const md[OPERANDS] = {x[A].md, x[B].md, x[C].md, x[BIAS].md};
    if (code == WN_ONEDNN_SUCCESS) code = wn__onednn_add_step(o, pd, OPERANDS, number_of, md);
    if (pd != NULL) api.pd_destroy(pd);
    if (attr != NULL) api.attr_destroy(attr);
    wn__onednn_forget(x, OPERANDS);
    return code;
}

int32_t wn__onednn_has(int32_t dtype)
{
    const int64_t n = 256;
    const struct wn__gemm p = {.batch = 1, .m = n, .k = n, .n = n, .ai = n, .ak = 1, .bk = n, .bj = 1};
    return wn__onednn_can(build, &(struct product){&p, dtype, 0});
}

int32_t wn__onednn_make(const struct wn__gemm *p, int32_t dtype, int32_t has_bias, int64_t *bytes, struct wn_made **out)
{
    return wn__onednn_make_by(build, &(struct product){p, dtype, has_bias}, "a product", bytes, out);
}

/* ---- running ------------------------------------------------------------------------------------- */

int32_t wn__onednn_run(struct wn_made *made, const struct wn__gemm *p, void *scratch)
{
    const struct wn__onednn_made *o = (const struct wn__onednn_made *)made;
    void *const data[OPERANDS] = {(void *)p->a, (void *)p->b, p->c, (void *)p->bias};
    const int before = wn__onednn_set_threads(o->threads);
    const int code = wn__onednn_run_step(&o->step[0], data, scratch);
    wn__onednn_set_threads(before);
    if (code == WN_ONEDNN_SUCCESS) return WN_OK;
    return wn__fail(WN_DEVICE,
                    "oneDNN failed at a product of %lld x %lld x %lld (its status: %d); WANE_ONEDNN=off does "
                    "without it",
                    (long long)p->m, (long long)p->n, (long long)p->k, code);
}
