/* See onednn.h. The library is opened at run time and called through own declarations, so that nothing of it is needed
 * to build. Versions 2 and 3 differ: in version 2 a memory description is a struct of the caller, and a product is
 * described before an implementation is found; in version 3 the library allocates descriptions, and one call does both.
 *
 * A product is divided into pieces of fixed size, which own threads share. A primitive of the library, made once for
 * one thread, adds the product of a block of a and a block of b to the sums of a piece. Packing the blocks reads
 * panels; at the end the sums are rounded to bf16 and copied to c, which may be in panels. So every product adds k in
 * one order, and the bytes of scratch are known where the library is not:
 *
 *     workspace    | thread 0 | thread 1 | ...
 *     a thread     | block of a, at the end the rounded sums | block of b | sums | scratch of a primitive |
 *
 * A primitive whose name does not begin with "brg" is declined, because it takes memory beside the plan while it runs.
 * Measured: 7.6 MB in a step of six layers of 512 (2.6.3 without AVX-512, which says that it takes none). */
#include "onednn.h"
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include "../../../runtime/base/opcode.h"
#include "class.h"
#include "parallel.h"

/* The side of a piece of c, and of the blocks of a and b. */
enum { SIDE = 256 };
/* The bytes of a thread.
 * Measured: a primitive takes up to 160 KiB of scratch (2.6.3 and 3.2, AVX-512). */
enum {
    BLOCK_BYTES = SIDE * SIDE * 2,
    SUMS_BYTES = SIDE * SIDE * 4,
    SCRATCH_BYTES = 512 << 10,
    THREAD_BYTES = 2 * BLOCK_BYTES + SUMS_BYTES + SCRATCH_BYTES
};

/* ---- the interface of the library ---------------------------------------------------------------- */

enum { OLDEST_MINOR = 6 };           /* minor number of the oldest version 2 that was tried */
enum { SUCCESS = 0, DECLINED = -1 }; /* statuses; DECLINED is Wane's own */
enum { CPU = 1, IN_ORDER = 1, USER_SCRATCHPAD = 1, BF16 = 2, F32 = 3 };
enum { QUERY_NAME = 8, QUERY_SCRATCHPAD = 136 };
enum { MOST_DIMS = 12, DESCRIPTION_BYTES = 1024, PRODUCT_BYTES = 8192 }; /* at least what version 2 has */
enum { OPERANDS = 4 };

struct version {
    int major, minor, patch;
};
struct argument {
    int number;
    void *memory;
};

/* The functions of the library; a function that only the other version has is NULL. */
static struct api {
    const struct version *(*version)(void);
    int (*engine_create)(void **engine, int kind, size_t index);
    int (*stream_create)(void **stream, void *engine, unsigned flags);
    int (*stream_destroy)(void *stream);
    int (*attr_create)(void **attr);
    int (*attr_scratchpad)(void *attr, int mode);
    int (*attr_post_ops)(void *attr, const void *ops);
    int (*post_ops_create)(void **ops);
    int (*post_ops_sum)(void *ops, float scale, int32_t zero, int dtype); /* version 2 has the first two */
    int (*md_init)(void *md, int ndim, const int64_t *dims, int dtype, const int64_t *strides);
    int (*md_create)(void **md, int ndim, const int64_t *dims, int dtype, const int64_t *strides);
    size_t (*md_size)(const void *md);
    int (*matmul_init)(void *product, const void *a, const void *b, const void *bias, const void *c);
    int (*pd_create)(void **pd, const void *product, const void *attr, void *engine, const void *hint);
    int (*matmul_create)(void **pd, void *engine, const void *a, const void *b, const void *bias, const void *c,
                         const void *attr);
    int (*reorder_create)(void **pd, const void *from, void *from_engine, const void *to, void *to_engine,
                          const void *attr);
    int (*pd_query)(const void *pd, int what, int index, void *result);
    const void *(*pd_query_md)(const void *pd, int what, int index);
    int (*create)(void **primitive, const void *pd);
    int (*execute)(const void *primitive, void *stream, int n, const struct argument *arguments);
    int (*memory_create)(void **memory, const void *md, void *engine, void *data);
    int (*memory_destroy)(void *memory);
    void (*set_threads)(int n);
    int (*get_threads)(void);
} api;

static const struct symbol {
    const char *name;
    size_t at;
    int32_t major; /* needed with this version; 0: with any */
} symbols[] = {
    {"dnnl_version", offsetof(struct api, version), 0},
    {"dnnl_engine_create", offsetof(struct api, engine_create), 0},
    {"dnnl_stream_create", offsetof(struct api, stream_create), 0},
    {"dnnl_stream_destroy", offsetof(struct api, stream_destroy), 0},
    {"dnnl_primitive_attr_create", offsetof(struct api, attr_create), 0},
    {"dnnl_primitive_attr_set_scratchpad_mode", offsetof(struct api, attr_scratchpad), 0},
    {"dnnl_primitive_attr_set_post_ops", offsetof(struct api, attr_post_ops), 0},
    {"dnnl_post_ops_create", offsetof(struct api, post_ops_create), 0},
    {"dnnl_post_ops_append_sum", offsetof(struct api, post_ops_sum), 0},
    {"dnnl_memory_desc_init_by_strides", offsetof(struct api, md_init), 2},
    {"dnnl_memory_desc_create_with_strides", offsetof(struct api, md_create), 3},
    {"dnnl_memory_desc_get_size", offsetof(struct api, md_size), 0},
    {"dnnl_matmul_desc_init", offsetof(struct api, matmul_init), 2},
    {"dnnl_primitive_desc_create", offsetof(struct api, pd_create), 2},
    {"dnnl_matmul_primitive_desc_create", offsetof(struct api, matmul_create), 3},
    {"dnnl_reorder_primitive_desc_create", offsetof(struct api, reorder_create), 0},
    {"dnnl_primitive_desc_query", offsetof(struct api, pd_query), 0},
    {"dnnl_primitive_desc_query_md", offsetof(struct api, pd_query_md), 0},
    {"dnnl_primitive_create", offsetof(struct api, create), 0},
    {"dnnl_primitive_execute", offsetof(struct api, execute), 0},
    {"dnnl_memory_create", offsetof(struct api, memory_create), 0},
    {"dnnl_memory_destroy", offsetof(struct api, memory_destroy), 0},
    {"omp_set_num_threads", offsetof(struct api, set_threads), 0},
    {"omp_get_max_threads", offsetof(struct api, get_threads), 0},
};

static int32_t set_threads(int32_t n)
{
    const int32_t before = api.get_threads();
    api.set_threads(n);
    return before;
}

/* ---- what is made when Wane starts --------------------------------------------------------------- */

/* The memory description of an operand, in either version. It may not be moved. */
struct description {
    void *md;
    _Alignas(64) char inside[DESCRIPTION_BYTES];
};

/* A primitive that adds the product of two blocks to sums. */
struct multiplication {
    void *primitive;
    const void *scratchpad; /* the description of its scratch; NULL: it takes none */
};

static struct {
    int32_t is_on;
    void *engine;
    struct description block[2], sums;          /* a block row by row, or column by column */
    struct multiplication multiplication[2][2]; /* [a is column by column][b is] */
    void *rounding;                             /* of sums to a block row by row */
} library;
static char state[128]; /* the version, or why there is no usable one */
static char text[160];

/* Describes a block or the sums. Returns a status. */
static int describe(struct description *x, int32_t is_turned, int dtype)
{
    const int64_t dims[MOST_DIMS] = {SIDE, SIDE}, strides[MOST_DIMS] = {is_turned ? 1 : SIDE, is_turned ? SIDE : 1};
    if (api.md_create != NULL) return api.md_create(&x->md, 2, dims, dtype, strides);
    x->md = x->inside;
    return api.md_init(x->md, 2, dims, dtype, strides);
}

/* Creates the attributes of a product that is added to its result, with scratch of the caller. Returns a status. */
static int create_attributes(void **attr)
{
    void *ops = NULL;
    int code = api.post_ops_create(&ops);
    if (code == SUCCESS) code = api.post_ops_sum(ops, 1, 0, 0);
    if (code == SUCCESS) code = api.attr_create(attr);
    if (code == SUCCESS) code = api.attr_scratchpad(*attr, USER_SCRATCHPAD);
    return code == SUCCESS ? api.attr_post_ops(*attr, ops) : code;
}

/* Finds the implementation that the library thinks best. Returns a status. */
static int find(const void *a, const void *b, const void *attr, void **pd)
{
    _Alignas(64) char product[PRODUCT_BYTES];
    const void *c = library.sums.md;
    if (api.matmul_create != NULL) return api.matmul_create(pd, library.engine, a, b, NULL, c, attr);
    int code = api.matmul_init(product, a, b, NULL, c);
    return code == SUCCESS ? api.pd_create(pd, product, attr, library.engine, NULL) : code;
}

/* Makes the primitive for two descriptions. Returns a status. */
static int make_multiplication(struct multiplication *m, const void *a, const void *b, const void *attr)
{
    void *pd = NULL;
    const char *name = "";
    int code = find(a, b, attr, &pd);
    if (code == SUCCESS) code = api.pd_query(pd, QUERY_NAME, 0, &name);
    if (code != SUCCESS) return code;
    m->scratchpad = api.pd_query_md(pd, QUERY_SCRATCHPAD, 0);
    const size_t bytes = m->scratchpad != NULL ? api.md_size(m->scratchpad) : 0;
    if (strncmp(name, "brg", 3) != 0 || bytes > SCRATCH_BYTES) return DECLINED;
    if (bytes == 0) m->scratchpad = NULL;
    return api.create(&m->primitive, pd);
}

/* Makes all primitives. Returns a status. */
static int make_all(void)
{
    void *attr = NULL, *pd = NULL;
    int code = describe(&library.sums, 0, F32);
    for (int32_t i = 0; i < 2 && code == SUCCESS; i++) code = describe(&library.block[i], i, BF16);
    if (code == SUCCESS) code = create_attributes(&attr);
    for (int32_t i = 0; i < 4 && code == SUCCESS; i++)
        code = make_multiplication(&library.multiplication[i / 2][i % 2], library.block[i / 2].md,
                                   library.block[i % 2].md, attr);
    if (code == SUCCESS)
        code = api.reorder_create(&pd, library.sums.md, library.engine, library.block[0].md, library.engine, NULL);
    return code == SUCCESS ? api.create(&library.rounding, pd) : code;
}

/* Finds the functions of a library whose version is known. Returns whether there are all; `state` says what lacks. */
static int32_t load(void *from, const char *name, int32_t major)
{
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        const struct symbol *s = &symbols[i];
        void *f = dlsym(from, s->name);
        if (f == NULL && (s->major == 0 || s->major == major)) {
            snprintf(state, sizeof state, "%s lacks %s", name, s->name);
            return 0;
        }
        memcpy((char *)&api + s->at, &f, sizeof f);
    }
    return 1;
}

/* Opens the library of a name. Returns whether it is usable; `state` becomes its version, or why it is not. */
static int32_t open_library(const char *name)
{
    void *from = dlopen(name, RTLD_NOW | RTLD_LOCAL), *f = from != NULL ? dlsym(from, "dnnl_version") : NULL;
    if (f == NULL) return 0;
    memcpy(&api.version, &f, sizeof f);
    const struct version v = *api.version();
    if (v.major > 3 || v.major < 2 || (v.major == 2 && v.minor < OLDEST_MINOR)) {
        snprintf(state, sizeof state, "%d.%d.%d is too %s (2.%d to 3 are known)", v.major, v.minor, v.patch,
                 v.major > 3 ? "new" : "old", OLDEST_MINOR);
        return 0;
    }
    if (!load(from, name, v.major) || api.engine_create(&library.engine, CPU, 0) != SUCCESS) return 0;
    const int32_t before = set_threads(1), is_made = make_all() == SUCCESS;
    set_threads(before);
    snprintf(state, sizeof state, "%d.%d.%d%s", v.major, v.minor, v.patch,
             is_made ? "" : " has no products for this processor that take no memory of their own");
    return is_made;
}

/* Returns whether the processor has AMX; 0 where WANE_KERNELS names a class below that of such a processor. */
static int32_t has_amx(void)
{
#if defined(__x86_64__) && !defined(__clang__) /* some versions of clang do not know the name */
    return strcmp(wn__cpu_class()->name, "avx512") == 0 && __builtin_cpu_supports("amx-bf16");
#else
    return 0;
#endif
}

const char *wn__onednn_start(int32_t use, struct wn__target *t)
{
    static char unmet[192];
    if (use == WN_LIBRARY_OFF || (use == WN_LIBRARY_AUTO && !has_amx())) return NULL;
    snprintf(state, sizeof state, "not found");
    library.is_on = open_library("libdnnl.so.3") || open_library("libdnnl.so.2");
    snprintf(text, sizeof text, library.is_on ? "; large products of bf16 by oneDNN %s" : "; oneDNN: %s", state);
    if (library.is_on) t->library |= 1 << WN_BF16;
    if (library.is_on || use != WN_LIBRARY_ON) return NULL;
    snprintf(unmet, sizeof unmet, "WANE_ONEDNN=on: oneDNN: %s; own kernels are used", state);
    return unmet;
}

const char *wn__onednn_text(void)
{
    return text;
}

/* ---- which products ------------------------------------------------------------------------------ */

/* The library computes products of at least LEAST_PIECES pieces, of which at most a quarter is padding. Fewer pieces
 * would keep fewer cores busy than own kernels do. */
enum { LEAST_PIECES = 8 };

static int64_t ceil_of(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit;
}

/* Returns the product of all dims but the last two. */
static int64_t leading(const struct wn_type *t)
{
    int64_t n = 1;
    for (int32_t i = 0; i < t->ndim - 2; i++) n *= t->dim[i];
    return n;
}

/* Writes m, n and k of an application that is one product of matrices: a batch is one where all products share b and
 * rows of a follow one another. Returns 0 for other applications. */
static int32_t sizes_of(const struct wn_desc *d, int64_t to[3])
{
    const struct wn_type *a = &d->in[0], *b = &d->in[1];
    const int32_t ta = d->attrs.i[0] != 0, tb = d->attrs.i[1] != 0;
    switch (d->op) {
    case WN_OP_LINEAR:
    case WN_OP_LINEAR_MAP:
        to[1] = b->dim[0];
        to[2] = b->dim[1];
        to[0] = to[2] > 0 ? wn__numel(a) / to[2] : 0;
        return 1;
    case WN_OP_MATMUL:
    case WN_OP_MATMUL_MAP:
        to[0] = a->dim[a->ndim - 2 + ta] * leading(a);
        to[1] = b->dim[b->ndim - 1 - tb];
        to[2] = a->dim[a->ndim - 1 - ta];
        return leading(b) == 1 && (!ta || leading(a) == 1);
    default: return 0;
    }
}

/* Returns the number of pieces of a product that the library takes where it is used; 0: it takes another or none. */
static int64_t pieces_of(const struct wn_desc *d)
{
    int64_t size[3], padded = 1;
    if (!sizes_of(d, size)) return 0;
    if (d->in[0].dtype != WN_BF16 || d->in[1].dtype != WN_BF16 || d->out.dtype != WN_BF16) return 0;
    for (int32_t i = 0; i < 3; i++) padded *= ceil_of(size[i], SIDE) * SIDE;
    const int64_t pieces = ceil_of(size[0], SIDE) * ceil_of(size[1], SIDE);
    return pieces >= LEAST_PIECES && 4 * size[0] * size[1] * size[2] > 3 * padded ? pieces : 0;
}

int32_t wn__onednn_takes(const struct wn_desc *d)
{
    return library.is_on && pieces_of(d) > 0;
}

int64_t wn__onednn_workspace(const struct wn__target *t, const struct wn_desc *d)
{
    return (t->library >> WN_BF16 & 1) != 0 ? wn_min(t->threads, pieces_of(d)) * THREAD_BYTES : 0;
}

/* ---- running ------------------------------------------------------------------------------------- */

struct job {
    const struct wn__gemm *p;
    char *workspace;
    struct wn__tasks pieces;
    _Atomic int32_t status; /* of a primitive that failed */
};

/* The part of a piece that is inside c, and the buffers of a thread. */
struct piece {
    const struct wn__gemm *p;
    int64_t row, column, rows, columns;
    uint16_t *a, *b; /* the rounded sums are where `a` is */
    float *sums;
    void *scratch, *stream;
};

/* Calls a primitive; md, data: of its operands in the order of `numbers`, md is NULL where there is none. Returns a
 * status. */
static int call(const struct piece *e, const void *primitive, const void *const *md, void *const *data)
{
    static const int numbers[OPERANDS] = {1, 33, 17, 80}; /* first, second, result, scratch */
    struct argument given[OPERANDS];
    int32_t n = 0;
    int code = SUCCESS;
    for (int32_t i = 0; i < OPERANDS && code == SUCCESS; i++) {
        if (md[i] == NULL) continue;
        given[n].number = numbers[i];
        code = api.memory_create(&given[n].memory, md[i], library.engine, data[i]);
        n += code == SUCCESS;
    }
    if (code == SUCCESS) code = api.execute(primitive, e->stream, n, given); /* one thread: it ends before this does */
    while (n > 0) api.memory_destroy(given[--n].memory);
    return code;
}

/* Copies `rows` rows of n elements to the rows of a block. */
static void copy(uint16_t *block, const uint16_t *from, int64_t apart, int64_t rows, int64_t n)
{
    for (int64_t i = 0; i < rows; i++) memcpy(block + i * SIDE, from + i * apart, (size_t)n * sizeof *block);
}

/* Packs `steps` steps of a from k on. */
static void pack_a(const struct piece *e, int64_t k, int64_t steps)
{
    const struct wn__gemm *p = e->p;
    const uint16_t *a = (const uint16_t *)p->a + e->row * p->ai + k * p->ak;
    if (p->ak == 1) copy(e->a, a, p->ai, e->rows, steps);
    else copy(e->a, a, p->ak, steps, e->rows);
}

/* Packs `steps` steps of b from k on, panel by panel. */
static void pack_b(const struct piece *e, int64_t k, int64_t steps)
{
    const struct wn__gemm *p = e->p;
    const int32_t is_turned = p->bk == 1;
    const int64_t first = is_turned ? k : e->column, most = is_turned ? steps : e->columns;
    for (int64_t i = 0, n, ld; i < most; i += n) {
        n = p->b_panels ? wn__gemm_in_panel(first + i, most - i) : most;
        const int64_t at = wn__gemm_b_at(p, 0, is_turned ? k + i : k, is_turned ? e->column : e->column + i, &ld);
        copy(e->b + i, (const uint16_t *)p->b + at, ld, is_turned ? e->columns : steps, n);
    }
}

/* Sets the sums to the bias. */
static void start_sums(const struct piece *e)
{
    const uint16_t *bias = e->p->bias;
    memset(e->sums, 0, SUMS_BYTES);
    for (int64_t j = 0; bias != NULL && j < e->columns; j++) e->sums[j] = wn_from_bf16(bias[e->column + j]);
    for (int64_t i = 1; bias != NULL && i < e->rows; i++) memcpy(e->sums + i * SIDE, e->sums, SIDE * sizeof *e->sums);
}

/* Adds up to SIDE steps of k from k on, with zeros behind the last. Returns a status. */
static int add(const struct piece *e, int64_t k)
{
    const int64_t steps = wn_min(e->p->k - k, SIDE);
    const int32_t is_a_turned = e->p->ak != 1, is_b_turned = e->p->bk == 1;
    const struct multiplication *m = &library.multiplication[is_a_turned][is_b_turned];
    if (steps < SIDE) memset(e->a, 0, 2 * BLOCK_BYTES);
    pack_a(e, k, steps);
    pack_b(e, k, steps);
    const void *const md[OPERANDS] = {library.block[is_a_turned].md, library.block[is_b_turned].md, library.sums.md,
                                      m->scratchpad};
    return call(e, m->primitive, md, (void *[]){e->a, e->b, e->sums, e->scratch});
}

/* Rounds the sums and copies them to c. Returns a status. */
static int finish(const struct piece *e)
{
    const void *const md[OPERANDS] = {library.sums.md, NULL, library.block[0].md, NULL};
    const int code = call(e, library.rounding, md, (void *[]){e->sums, NULL, e->a, NULL});
    for (int64_t j = 0, n, ld; j < e->columns; j += n) {
        n = e->p->c_panels ? wn__gemm_in_panel(e->column + j, e->columns - j) : e->columns;
        const int64_t at = wn__gemm_c_at(e->p, 0, e->row, e->column + j, &ld);
        uint16_t *c = (uint16_t *)e->p->c + at;
        for (int64_t i = 0; i < e->rows; i++) memcpy(c + i * ld, e->a + i * SIDE + j, (size_t)n * sizeof *c);
    }
    return code;
}

/* Computes piece number i. Returns a status. */
static int compute(struct piece *e, int64_t i)
{
    const struct wn__gemm *p = e->p;
    const int64_t down = ceil_of(p->m, SIDE);
    e->row = i % down * SIDE;
    e->column = i / down * SIDE;
    e->rows = wn_min(p->m - e->row, SIDE);
    e->columns = wn_min(p->n - e->column, SIDE);
    start_sums(e);
    int code = SUCCESS;
    for (int64_t k = 0; k < p->k && code == SUCCESS; k += SIDE) code = add(e, k);
    return code == SUCCESS ? finish(e) : code;
}

static void run_thread(int32_t thread, void *ctx)
{
    struct job *j = ctx;
    char *at = j->workspace + (int64_t)thread * THREAD_BYTES;
    struct piece e = {.p = j->p, .a = (void *)at, .b = (void *)(at + BLOCK_BYTES)};
    e.sums = (void *)(at + 2 * BLOCK_BYTES);
    e.scratch = at + 2 * BLOCK_BYTES + SUMS_BYTES;
    const int32_t before = set_threads(1);
    int code = api.stream_create(&e.stream, library.engine, IN_ORDER);
    for (int64_t i, end; code == SUCCESS && wn__tasks_take(&j->pieces, thread, &i, &end);) code = compute(&e, i);
    if (e.stream != NULL) api.stream_destroy(e.stream);
    set_threads(before);
    if (code != SUCCESS) atomic_store(&j->status, code);
}

int32_t wn__onednn_run(const struct wn__gemm *p, void *workspace)
{
    struct job j = {.p = p, .workspace = workspace};
    wn__tasks_share(&j.pieces, ceil_of(p->m, SIDE) * ceil_of(p->n, SIDE), 1);
    wn__team_run((int32_t)j.pieces.threads, run_thread, &j);
    const int32_t status = atomic_load(&j.status);
    if (status == SUCCESS) return WN_OK;
    return wn__fail(WN_DEVICE,
                    "oneDNN failed at a product of %lld x %lld x %lld (its status: %d); WANE_ONEDNN=off does "
                    "without it",
                    (long long)p->m, (long long)p->n, (long long)p->k, status);
}
