/* The part of cuBLASLt that kernels/cuda/cublaslt.cu calls, simulated: it reads descriptions as NVIDIA's manual has
 * them, refuses what would be refused there, and computes products on the stream. WANE_CUDA_LT=simulated asks for it.
 *
 * Sums go from the last k to the first, so that their bits differ from those of own kernels: a spec sees which of the
 * two computed a product. tf32 rounds operands to 10 bits of fraction. */
#include <stdlib.h>
#include "state.h"

enum { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum { COMPUTE_TF32 = 77, TYPE_F32 = 0, TYPE_BF16 = 14 };

struct lt_desc {
    int compute, scale, epilogue;
    int32_t flip[2];
    const void *bias;
};
struct lt_layout {
    int type;
    uint64_t rows, columns;
    int64_t ld, stride;
    int32_t batch;
};
struct lt_preference {
    uint64_t workspace;
    uint32_t reductions, alignment[4];
};
struct lt_proposal {
    uint64_t algo[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

/* Copies an attribute where its size is right. */
static int take(void *to, size_t bytes, const void *value, size_t given)
{
    if (value == NULL || given != bytes) return INVALID_VALUE;
    memcpy(to, value, bytes);
    return SUCCESS;
}

static size_t version(void)
{
    return 130002;
}

static int create(void **handle)
{
    static int only;
    if (wn__sim_must_fail(WN_SIM_LIBRARY)) return NOT_INITIALIZED;
    *handle = &only;
    return SUCCESS;
}

static int desc_create(void **desc, int compute, int scale)
{
    *desc = new lt_desc{compute, scale, 1, {0, 0}, NULL};
    return SUCCESS;
}

static int desc_set(void *desc, int attribute, const void *value, size_t bytes)
{
    lt_desc *d = (lt_desc *)desc;
    switch (attribute) {
    case 3: return take(&d->flip[0], sizeof d->flip[0], value, bytes);
    case 4: return take(&d->flip[1], sizeof d->flip[1], value, bytes);
    case 7: return take(&d->epilogue, sizeof d->epilogue, value, bytes);
    case 8: return take(&d->bias, sizeof d->bias, value, bytes);
    default: return INVALID_VALUE;
    }
}

static int layout_create(void **layout, int type, uint64_t rows, uint64_t columns, int64_t ld)
{
    if (ld < (int64_t)rows || (type != TYPE_F32 && type != TYPE_BF16)) return INVALID_VALUE;
    *layout = new lt_layout{type, rows, columns, ld, 0, 1};
    return SUCCESS;
}

static int layout_set(void *layout, int attribute, const void *value, size_t bytes)
{
    lt_layout *l = (lt_layout *)layout;
    if (attribute == 5) return take(&l->batch, sizeof l->batch, value, bytes);
    return attribute == 6 ? take(&l->stride, sizeof l->stride, value, bytes) : (int)INVALID_VALUE;
}

static int pref_create(void **preference)
{
    *preference = new lt_preference{0, 0xffffffffu, {256, 256, 256, 256}};
    return SUCCESS;
}

static int pref_set(void *preference, int attribute, const void *value, size_t bytes)
{
    lt_preference *p = (lt_preference *)preference;
    if (attribute == 1) return take(&p->workspace, sizeof p->workspace, value, bytes);
    if (attribute == 3) return take(&p->reductions, sizeof p->reductions, value, bytes);
    if (attribute < 5 || attribute > 8) return INVALID_VALUE;
    return take(&p->alignment[attribute - 5], sizeof(uint32_t), value, bytes);
}

/* Returns the dims (rows, columns) of an operand after its transpose. */
static void dims_of(const lt_layout *l, int32_t flip, uint64_t (&dims)[2])
{
    dims[0] = flip ? l->columns : l->rows;
    dims[1] = flip ? l->rows : l->columns;
}

static int check(const lt_desc *d, const lt_layout *const (&l)[4])
{
    uint64_t a[2], b[2];
    dims_of(l[0], d->flip[0], a);
    dims_of(l[1], d->flip[1], b);
    if (a[1] != b[0] || a[0] != l[3]->rows || b[1] != l[3]->columns || a[1] == 0) return INVALID_VALUE;
    if (l[2]->rows != l[3]->rows || l[2]->columns != l[3]->columns || l[2]->ld != l[3]->ld) return INVALID_VALUE;
    for (int i = 0; i < 4; i++)
        if (l[i]->type != l[0]->type || l[i]->batch != l[0]->batch) return INVALID_VALUE;
    return SUCCESS;
}

/* Returns the alignment in bytes that the strides of all products leave an operand. */
static uint64_t alignment_of(const lt_layout *l)
{
    uint64_t stride = (uint64_t)l->stride * (l->type == TYPE_BF16 ? 2 : 4), most = 256;
    while (l->batch > 1 && stride % most != 0) most /= 2;
    return most;
}

static int propose(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, int most,
                   lt_proposal *out, int *n)
{
    const lt_layout *const l[4] = {(lt_layout *)a, (lt_layout *)b, (lt_layout *)c, (lt_layout *)d};
    const lt_preference *p = (const lt_preference *)preference;
    *n = 0;
    if (handle == NULL || most < 1) return INVALID_VALUE;
    if (wn__sim_must_fail(WN_SIM_LIBRARY)) return EXECUTION_FAILED;
    int code = check((const lt_desc *)desc, l);
    if (code != SUCCESS) return code;
    for (int i = 0; i < 4; i++)
        if (p->alignment[i] > alignment_of(l[i])) return INVALID_VALUE; /* the caller promised what is not so */
    if (l[3]->columns == 1 && l[3]->rows == 1) return NOT_SUPPORTED;
    memset(out, 0, sizeof *out);
    out->algo[0] = 0x7ac;
    out->algo[1] = p->workspace;
    *n = 1;
    return SUCCESS;
}

/* One product of the batch, as a kernel is given it. */
struct lt_job {
    lt_desc desc;
    lt_layout l[4];
    const void *a, *b;
    void *d;
};

/* Computes an output a thread. */
static void lt_product(lt_job w)
{
    const int64_t rows = (int64_t)w.l[3].rows, all = rows * (int64_t)w.l[3].columns * w.l[3].batch;
    const int64_t k_end = (int64_t)(w.desc.flip[0] ? w.l[0].rows : w.l[0].columns);
    const bool is_f32 = w.l[0].type == TYPE_F32, tf32 = w.desc.compute == COMPUTE_TF32; /* check: all of one type */
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= all) return;
    int64_t i = at % rows, j = at / rows % (int64_t)w.l[3].columns, z = at / rows / (int64_t)w.l[3].columns;
    float sum = 0;
    for (int64_t k = k_end - 1; k >= 0; k--) {
        int64_t x = z * w.l[0].stride + (w.desc.flip[0] ? k + i * w.l[0].ld : i + k * w.l[0].ld);
        int64_t y = z * w.l[1].stride + (w.desc.flip[1] ? j + k * w.l[1].ld : k + j * w.l[1].ld);
        sum = fmaf(wn__sim_element(w.a, x, is_f32, tf32), wn__sim_element(w.b, y, is_f32, tf32), sum);
    }
    if (w.desc.epilogue == 4) sum += wn__sim_element(w.desc.bias, i, is_f32, false);
    wn__sim_put(w.d, z * w.l[3].stride + i + j * w.l[3].ld, is_f32, sum);
}

static int matmul(void *handle, void *desc, const void *alpha, const void *a, void *la, const void *b, void *lb,
                  const void *beta, const void *c, void *lc, void *d, void *ld, const void *algo, void *workspace,
                  size_t bytes, void *stream)
{
    const lt_layout *const l[4] = {(lt_layout *)la, (lt_layout *)lb, (lt_layout *)lc, (lt_layout *)ld};
    const lt_desc *k = (const lt_desc *)desc;
    int code = check(k, l);
    if (handle == NULL || code != SUCCESS) return INVALID_VALUE;
    if (wn__sim_must_fail(WN_SIM_LIBRARY)) return EXECUTION_FAILED;
    if (*(const float *)alpha != 1 || *(const float *)beta != 0 || c != d) return NOT_SUPPORTED;
    if (algo == NULL || ((const uint64_t *)algo)[0] != 0x7ac) return INVALID_VALUE;
    if (workspace != NULL || bytes != 0 || (k->epilogue == 4) != (k->bias != NULL)) return INVALID_VALUE;
    lt_job w = {*k, {*l[0], *l[1], *l[2], *l[3]}, a, b, d};
    int64_t n = (int64_t)(l[3]->rows * l[3]->columns) * l[3]->batch;
    LAUNCH(lt_product, (unsigned)((n + 255) / 256), 256, 0, stream, w);
    return cudaGetLastError() == cudaSuccess ? (int)SUCCESS : (int)EXECUTION_FAILED;
}

void *wn__sim_cublaslt(const char *name);
void *wn__sim_cublaslt(const char *name)
{
    static const struct wn__sim_entry rows[] = {
        {"cublasLtGetVersion", (void *)version},
        {"cublasLtCreate", (void *)create},
        {"cublasLtMatmulDescCreate", (void *)desc_create},
        {"cublasLtMatmulDescSetAttribute", (void *)desc_set},
        {"cublasLtMatmulDescDestroy", (void *)wn__sim_destroy<lt_desc>},
        {"cublasLtMatrixLayoutCreate", (void *)layout_create},
        {"cublasLtMatrixLayoutSetAttribute", (void *)layout_set},
        {"cublasLtMatrixLayoutDestroy", (void *)wn__sim_destroy<lt_layout>},
        {"cublasLtMatmulPreferenceCreate", (void *)pref_create},
        {"cublasLtMatmulPreferenceSetAttribute", (void *)pref_set},
        {"cublasLtMatmulPreferenceDestroy", (void *)wn__sim_destroy<lt_preference>},
        {"cublasLtMatmulAlgoGetHeuristic", (void *)propose},
        {"cublasLtMatmul", (void *)matmul},
    };
    return wn__sim_function(rows, name);
}
