/* See cublaslt.h. This file alone has cuBLASLt's names and numbers, as its C interface has had them since 11.0.
 *
 * The library counts in columns: our row-major c (m, n) = op(a) op(b) is its (n, m) = op(b)' op(a)', so b comes first.
 *
 *     ours   a(i, k) = a[i ai + k ak]     b(k, j) = b[j bj + k bk]     c[i n + j]
 *     its    A(j, k) of b, transposed where bk is 1      B(k, i) of a, transposed where ai is 1      D(j, i), ld n */
#include "gemm_store.cuh"
#include "opened.h"

enum { SUCCESS = 0, NOT_SUPPORTED = 15 };
enum { COMPUTE_F32 = 68, COMPUTE_TF32 = 77, TYPE_F32 = 0, TYPE_BF16 = 14 };
enum { DESC_TRANS_A = 3, DESC_TRANS_B = 4, DESC_EPILOGUE = 7, DESC_BIAS = 8 };
enum { EPILOGUE_BIAS = 4, LAYOUT_BATCH = 5, LAYOUT_STRIDE = 6 };
enum { PREF_WORKSPACE = 1, PREF_REDUCTIONS = 3, PREF_ALIGNMENT_A = 5 };
enum { OWN_LEAST = 16, OWN_TILES = 128 }; /* of terms, and of tiles of 128 x 128 (gemm_mma.cuh) */
enum { A, B, C, D, OPERANDS };

/* An algorithm that the library proposes, as it lays it out. */
struct proposal {
    uint64_t algo[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

/* A product, as far as the choice of its algorithm depends on it. Compared byte by byte, so padding is cleared too. */
struct shape {
    int64_t m, n, k, batch, stride[2]; /* of a and b between products of the batch, in elements */
    int64_t ld[2], ld_out;
    int32_t flip[2], dtype, has_bias, is_tf32;
};

/* A product that is ready. */
struct product {
    struct product *next;
    struct shape shape;
    int32_t is_declined; /* 1: the library has no algorithm for it */
    void *desc, *layout[OPERANDS];
    uint64_t algo[8];
};

/* The functions of the library. */
static struct {
    size_t (*version)(void);
    int (*create)(void **handle);
    int (*desc_create)(void **desc, int compute, int scale);
    int (*desc_set)(void *desc, int attribute, const void *value, size_t bytes);
    int (*desc_destroy)(void *desc);
    int (*layout_create)(void **layout, int type, uint64_t rows, uint64_t columns, int64_t ld);
    int (*layout_set)(void *layout, int attribute, const void *value, size_t bytes);
    int (*layout_destroy)(void *layout);
    int (*pref_create)(void **preference);
    int (*pref_set)(void *preference, int attribute, const void *value, size_t bytes);
    int (*pref_destroy)(void *preference);
    int (*propose)(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, int most,
                   struct proposal *out, int *n);
    int (*matmul)(void *handle, void *desc, const void *alpha, const void *a, void *la, const void *b, void *lb,
                  const void *beta, const void *c, void *lc, void *d, void *ld, const void *algo, void *workspace,
                  size_t bytes, void *stream);
    void *handle;
    struct product *products;
} api;

static const struct wn__opened_function functions[] = {
    {"cublasLtGetVersion", (void **)&api.version},
    {"cublasLtCreate", (void **)&api.create},
    {"cublasLtMatmulDescCreate", (void **)&api.desc_create},
    {"cublasLtMatmulDescSetAttribute", (void **)&api.desc_set},
    {"cublasLtMatmulDescDestroy", (void **)&api.desc_destroy},
    {"cublasLtMatrixLayoutCreate", (void **)&api.layout_create},
    {"cublasLtMatrixLayoutSetAttribute", (void **)&api.layout_set},
    {"cublasLtMatrixLayoutDestroy", (void **)&api.layout_destroy},
    {"cublasLtMatmulPreferenceCreate", (void **)&api.pref_create},
    {"cublasLtMatmulPreferenceSetAttribute", (void **)&api.pref_set},
    {"cublasLtMatmulPreferenceDestroy", (void **)&api.pref_destroy},
    {"cublasLtMatmulAlgoGetHeuristic", (void **)&api.propose},
    {"cublasLtMatmul", (void **)&api.matmul},
};

/* ---- opening ---------------------------------------------------------------------------------------------------- */

#ifdef WN_SIMULATED
/* Returns a function of the part of the library that is simulated (spec/cudasim/lt.cpp), by its name. */
void *wn__sim_cublaslt(const char *name);
#define SIMULATED wn__sim_cublaslt
#define UNSET "off" /* the simulated GPU has own products unless a spec asks */
#else
#define SIMULATED NULL
#define UNSET "auto"
#endif

static size_t version(void)
{
    return api.version();
}

static struct wn__opened opened = {
    .name = "cuBLASLt",
    .variable = "WANE_CUDA_LT",
    .unset = UNSET,
    .usual = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11", "libcublasLt.so"},
    .instead = "own kernels are used",
    .oldest = 11,
    .oldest_minor = 0,
    .simulated = SIMULATED,
    .version = version,
    .functions = functions,
    .n = sizeof functions / sizeof functions[0],
    .text = "",
};

int32_t wn__cublaslt_open(int32_t arch)
{
    return !wn__opened_find(&opened) ? 0 : arch >= 80 ? 1 << WN_F32 | 1 << WN_BF16 : 1 << WN_F32;
}

const char *wn__cublaslt_text(void)
{
    return opened.text;
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

static int32_t failed(const struct shape *s, int status)
{
    return wn__fail(WN_DEVICE,
                    "cuBLASLt failed at a product of %lld x %lld x %lld (its status: %d); WANE_CUDA_LT=off does "
                    "without it",
                    (long long)s->m, (long long)s->n, (long long)s->k, status);
}

/* Returns whether the library computes an application that is a product of its dtypes. */
static int32_t is_library_product(const struct wn_desc *d, int32_t library)
{
    int32_t is_linear = d->op == WN_OP_LINEAR || d->op == WN_OP_LINEAR_MAP;
    int32_t dtype = d->out.dtype;
    if (!is_linear && d->op != WN_OP_MATMUL && d->op != WN_OP_MATMUL_MAP) return 0;
    if ((library >> dtype & 1) == 0 || d->in[0].dtype != dtype || d->in[1].dtype != dtype) return 0;
    if (wn__numel(&d->out) == 0 || wn__numel(&d->in[0]) == 0 || wn__numel(&d->in[1]) == 0) return 0;
    if (dtype != WN_F32 || is_linear || d->in[0].ndim != 2 || d->in[1].ndim != 2) return 1;
    return d->in[0].dim[d->attrs.i[0] != 0 ? 0 : 1] > WN_PRODUCT_UPDATE_ROWS;
}

/* Fills the shape of a product. Returns 0 where its batch is none that the library counts through. */
static int32_t shape_of(const struct wn_desc *d, int32_t library, struct shape *s)
{
    const void *nowhere[3] = {NULL, NULL, NULL};
    struct wn_buffers b;
    memset(&b, 0, sizeof b);
    b.in = nowhere;
    struct wn__product p = wn__product_of(d, &b);
    memset(s, 0, sizeof *s);
    s->m = p.m;
    s->n = p.n;
    s->k = p.k;
    s->batch = p.batch;
    s->dtype = d->out.dtype;
    s->has_bias = d->op == WN_OP_LINEAR || d->op == WN_OP_LINEAR_MAP;
    s->is_tf32 = s->dtype == WN_F32 && (library & WN_LIBRARY_TF32) != 0;
    s->ld_out = p.ld;
    s->flip[0] = !(p.ak == 1 && p.ai >= p.k);
    s->flip[1] = !(p.bj == 1 && p.bk >= p.n);
    s->ld[0] = s->flip[0] ? p.ak : p.ai;
    s->ld[1] = s->flip[1] ? p.bj : p.bk;
    if (p.batch == 1) return 1;
    if (p.lead.ndim != 1) return 0;
    s->stride[0] = p.lead.step[0][0] * p.apart[0];
    s->stride[1] = p.lead.step[1][0] * p.apart[1];
    return 1;
}

/* Returns the alignment of an operand in every product of the batch, in bytes. */
static uint32_t alignment(const struct shape *s, int64_t stride)
{
    uint64_t bytes = (uint64_t)stride * (s->dtype == WN_BF16 ? 2 : 4);
    for (uint32_t most = 256; most > 1; most /= 2)
        if (s->batch == 1 || bytes % most == 0) return most;
    return 1;
}

/* Returns whether own kernels are faster. In f32: where a side is short (few_rows.cu); without a workspace the library
 * then has too few blocks for a GPU. In bf16: where there are enough tiles for a GPU, and rows of the result lie on no
 * 16 bytes while those of the operands do.
 * Measured: 136 us by the library (32 x 4096 x 4096 in f32, H100)
 * Measured: 100 TF/s by the library, 205 by own tiles (logits in bf16, H100) */
static int32_t is_better_own(const struct shape *s)
{
    const int64_t chunk = 16 / 2, tiles = (s->m + 127) / 128 * ((s->n + 127) / 128) * s->batch;
    if (s->dtype == WN_F32) return wn__has_few_rows(s->batch, s->m, s->n);
    if (s->k < OWN_LEAST || tiles < OWN_TILES) return 0;
    return s->ld_out % chunk != 0 && s->ld[0] % chunk == 0 && s->ld[1] % chunk == 0;
}

static int lay_out(struct product *o, int operand, const int64_t (&dims)[2], int64_t ld, int64_t stride)
{
    const struct shape *s = &o->shape;
    int32_t batch = (int32_t)s->batch;
    int code = api.layout_create(&o->layout[operand], s->dtype == WN_BF16 ? TYPE_BF16 : TYPE_F32, (uint64_t)dims[0],
                                 (uint64_t)dims[1], ld);
    if (code != SUCCESS || batch == 1) return code;
    code = api.layout_set(o->layout[operand], LAYOUT_BATCH, &batch, sizeof batch);
    return code != SUCCESS ? code : api.layout_set(o->layout[operand], LAYOUT_STRIDE, &stride, sizeof stride);
}

static int describe(struct product *o)
{
    const struct shape *s = &o->shape;
    int32_t flip_a = s->flip[1], flip_b = s->flip[0], epilogue = EPILOGUE_BIAS;
    int code = api.desc_create(&o->desc, s->is_tf32 ? COMPUTE_TF32 : COMPUTE_F32, TYPE_F32);
    if (code == SUCCESS) code = api.desc_set(o->desc, DESC_TRANS_A, &flip_a, sizeof flip_a);
    if (code == SUCCESS) code = api.desc_set(o->desc, DESC_TRANS_B, &flip_b, sizeof flip_b);
    if (code == SUCCESS && s->has_bias) code = api.desc_set(o->desc, DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (code == SUCCESS) code = lay_out(o, A, {flip_a ? s->k : s->n, flip_a ? s->n : s->k}, s->ld[1], s->stride[1]);
    if (code == SUCCESS) code = lay_out(o, B, {flip_b ? s->m : s->k, flip_b ? s->k : s->m}, s->ld[0], s->stride[0]);
    for (int i = C; i < OPERANDS && code == SUCCESS; i++)
        code = lay_out(o, i, {s->n, s->m}, s->ld_out, s->m * s->ld_out);
    return code;
}

/* Asks for the best algorithm without workspace and without parts of sums that are added later. */
static int choose(struct product *o)
{
    const struct shape *s = &o->shape;
    const int64_t stride[OPERANDS] = {s->stride[1], s->stride[0], s->m * s->ld_out, s->m * s->ld_out};
    struct proposal best;
    void *preference = NULL;
    uint64_t workspace = 0;
    uint32_t reductions = 0;
    int n = 0;
    memset(&best, 0, sizeof best);
    int code = api.pref_create(&preference);
    if (code == SUCCESS) code = api.pref_set(preference, PREF_WORKSPACE, &workspace, sizeof workspace);
    if (code == SUCCESS) code = api.pref_set(preference, PREF_REDUCTIONS, &reductions, sizeof reductions);
    for (int i = 0; i < OPERANDS && code == SUCCESS; i++) {
        uint32_t bytes = alignment(s, stride[i]);
        code = api.pref_set(preference, PREF_ALIGNMENT_A + i, &bytes, sizeof bytes);
    }
    if (code == SUCCESS)
        code = api.propose(api.handle, o->desc, o->layout[A], o->layout[B], o->layout[C], o->layout[D], preference, 1,
                           &best, &n);
    if (preference != NULL) api.pref_destroy(preference);
    o->is_declined = code == NOT_SUPPORTED || (code == SUCCESS && (n < 1 || best.state != SUCCESS));
    memcpy(o->algo, best.algo, sizeof o->algo);
    return o->is_declined ? SUCCESS : code;
}

static void take_apart(struct product *o)
{
    for (int i = 0; i < OPERANDS; i++)
        if (o->layout[i] != NULL) api.layout_destroy(o->layout[i]);
    if (o->desc != NULL) api.desc_destroy(o->desc);
    free(o);
}

int32_t wn__cublaslt_make(const struct wn_desc *d, int32_t library, const void **out)
{
    struct shape s;
    *out = NULL;
    if (!is_library_product(d, library) || !shape_of(d, library, &s) || is_better_own(&s)) return WN_OK;
    struct product *o = api.products;
    while (o != NULL && memcmp(&o->shape, &s, sizeof s) != 0) o = o->next;
    if (o == NULL) {
        if (api.handle == NULL) {
            int code = api.create(&api.handle);
            if (code != SUCCESS)
                return wn__fail(WN_DEVICE,
                                "%s does not start (its status: %d): it may need another driver; WANE_CUDA_LT names "
                                "another one, WANE_CUDA_LT=off does without",
                                opened.text, code);
        }
        o = (struct product *)calloc(1, sizeof *o);
        if (o == NULL) return wn__fail(WN_OOM, "out of memory: a product of cuBLASLt could not be made ready");
        o->shape = s;
        int code = describe(o);
        if (code == SUCCESS) code = choose(o);
        if (code != SUCCESS) {
            take_apart(o);
            return failed(&s, code);
        }
        o->next = api.products;
        api.products = o;
    }
    *out = o->is_declined ? NULL : o;
    return WN_OK;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* The epilogue of a product, over all its rounded elements in place. */
template <class T> struct wn__product_map {
    enum { V = wn__wide<T>::N };
    struct wn__step step;
    T *c;
    const T *other; /* the second operand, or NULL */
    template <int N> __device__ void run(int64_t at) const
    {
        typename wn__number<T>::type y[N], with[N];
        WN_UNROLL
        for (int v = 0; v < N; v++) with[v] = 0;
        wn__get(c + at, y);
        if (other != NULL) wn__get(other + at, with);
        wn__elementwise_pack<typename wn__number<T>::type, N>(step, y, with, y, at);
        wn__put(c + at, y);
    }
};

template <class T> static int32_t apply(const struct wn__gemm_job &w, int64_t n, void *stream)
{
    wn__product_map<T> f = {w.step, (T *)w.c, (const T *)w.other};
    return wn__map_start(f, n, stream);
}

int32_t wn__cublaslt_run(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    const struct product *o = (const struct product *)b->made;
    struct wn__gemm_job w = wn__gemm_job_of(d, b);
    const float one = 1, zero = 0;
    int code = o->shape.has_bias ? api.desc_set(o->desc, DESC_BIAS, &w.bias, sizeof w.bias) : (int)SUCCESS;
    if (code == SUCCESS)
        code = api.matmul(api.handle, o->desc, &one, w.p.b, o->layout[A], w.p.a, o->layout[B], &zero, w.c, o->layout[C],
                          w.c, o->layout[D], o->algo, NULL, 0, stream);
    if (code != SUCCESS) return failed(&o->shape, code);
    if (!w.has_step) return WN_OK;
    int64_t n = wn__numel(&d->out);
    return d->out.dtype == WN_BF16 ? apply<wn_bf16>(w, n, stream) : apply<float>(w, n, stream);
}
