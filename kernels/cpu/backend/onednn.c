/* See onednn.h. This file alone has oneDNN's names and numbers, as its C interface has had them since 2.0.
 *
 * In version 2 a memory description is a struct of the caller, and a product is described before an implementation is
 * found; in version 3 the library allocates descriptions, and one call does both.
 *
 * Implementations whose name does not begin with "brg" are declined: they take memory beside the plan while they run.
 * Measured: 7.6 MB in a step of six layers of 512 (2.6.3 without AVX-512, which says that it takes none).
 *
 * The threads are those of the OpenMP that the library is linked to, found through the library's own handle. Their
 * number is set around every call to that of the kernels, since the scratch grows with it. */
#include "onednn.h"
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "../../../runtime/base/alloc.h"
#include "parallel.h"

#define OLDEST_MINOR 6   /* minor number of the oldest version 2 that was tried */
#define MEMORY_DESC 1024 /* bytes of a description in version 2, at least: 696 in 2.6 */
#define MATMUL_DESC 8192 /* bytes of a description of a product in version 2, at least: 2800 in 2.6 */

enum { SUCCESS = 0, OUT_OF_MEMORY = 1, DECLINED = -1 };
enum { CPU = 1, IN_ORDER = 1, USER_SCRATCHPAD = 1, STRICT = 0 };
enum { QUERY_NAME = 8, QUERY_SCRATCHPAD = 136 };
enum { A, B, C, BIAS, SCRATCH, OPERANDS };
static const int number_of[OPERANDS] = {1, 33, 17, 41, 80};

struct version {
    int major, minor, patch;
};
struct argument {
    int number;
    void *memory;
};

/* The functions of the library; a function that only the other version has is NULL. */
static struct {
    const struct version *(*version)(void);
    int (*engine_create)(void **engine, int kind, size_t index);
    int (*stream_create)(void **stream, void *engine, unsigned flags);
    int (*stream_wait)(void *stream);
    int (*attr_create)(void **attr);
    int (*attr_scratchpad)(void *attr, int mode);
    int (*attr_fpmath)(void *attr, int mode);
    int (*attr_deterministic)(void *attr, int on); /* late 3.x only */
    int (*attr_destroy)(void *attr);
    int (*md_init)(void *md, int ndim, const int64_t *dims, int dtype, const int64_t *strides);
    int (*md_create)(void **md, int ndim, const int64_t *dims, int dtype, const int64_t *strides);
    int (*md_destroy)(void *md);
    size_t (*md_size)(const void *md);
    int (*matmul_init)(void *desc, const void *a, const void *b, const void *bias, const void *c);
    int (*pd_create)(void **pd, const void *desc, const void *attr, void *engine, const void *hint);
    int (*matmul_create)(void **pd, void *engine, const void *a, const void *b, const void *bias, const void *c,
                         const void *attr);
    int (*pd_query)(const void *pd, int what, int index, void *result);
    const void *(*pd_query_md)(const void *pd, int what, int index);
    int (*pd_destroy)(void *pd);
    int (*create)(void **primitive, const void *pd);
    int (*execute)(const void *primitive, void *stream, int n, const struct argument *arguments);
    int (*destroy)(void *primitive);
    int (*memory_create)(void **memory, const void *md, void *engine, void *data);
    int (*memory_set)(void *memory, void *data);
    int (*memory_destroy)(void *memory);
    void (*set_threads)(int n);
    int (*get_threads)(void);
    void *engine, *stream;
    int32_t looked, usable, ready;
    char text[128];
} api;

static const struct symbol {
    const char *name;
    size_t at;
    int32_t major; /* needed with this version; 0: with any; -1: used if it is there */
} symbols[] = {
#define SYMBOL(field, name, major)                                                                                     \
    {                                                                                                                  \
        name, offsetof(__typeof__(api), field), major                                                                  \
    }
    SYMBOL(engine_create, "dnnl_engine_create", 0),
    SYMBOL(stream_create, "dnnl_stream_create", 0),
    SYMBOL(stream_wait, "dnnl_stream_wait", 0),
    SYMBOL(attr_create, "dnnl_primitive_attr_create", 0),
    SYMBOL(attr_scratchpad, "dnnl_primitive_attr_set_scratchpad_mode", 0),
    SYMBOL(attr_fpmath, "dnnl_primitive_attr_set_fpmath_mode", 0),
    SYMBOL(attr_deterministic, "dnnl_primitive_attr_set_deterministic", -1),
    SYMBOL(attr_destroy, "dnnl_primitive_attr_destroy", 0),
    SYMBOL(md_init, "dnnl_memory_desc_init_by_strides", 2),
    SYMBOL(md_create, "dnnl_memory_desc_create_with_strides", 3),
    SYMBOL(md_destroy, "dnnl_memory_desc_destroy", 3),
    SYMBOL(md_size, "dnnl_memory_desc_get_size", 0),
    SYMBOL(matmul_init, "dnnl_matmul_desc_init", 2),
    SYMBOL(pd_create, "dnnl_primitive_desc_create", 2),
    SYMBOL(matmul_create, "dnnl_matmul_primitive_desc_create", 3),
    SYMBOL(pd_query, "dnnl_primitive_desc_query", 0),
    SYMBOL(pd_query_md, "dnnl_primitive_desc_query_md", 0),
    SYMBOL(pd_destroy, "dnnl_primitive_desc_destroy", 0),
    SYMBOL(create, "dnnl_primitive_create", 0),
    SYMBOL(execute, "dnnl_primitive_execute", 0),
    SYMBOL(destroy, "dnnl_primitive_destroy", 0),
    SYMBOL(memory_create, "dnnl_memory_create", 0),
    SYMBOL(memory_set, "dnnl_memory_set_data_handle", 0),
    SYMBOL(memory_destroy, "dnnl_memory_destroy", 0),
    SYMBOL(set_threads, "omp_set_num_threads", 0),
    SYMBOL(get_threads, "omp_get_max_threads", 0),
#undef SYMBOL
};

/* ---- opening ------------------------------------------------------------------------------------- */

static int32_t load_symbols(void *library, const char *name, int32_t major)
{
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        const struct symbol *s = &symbols[i];
        void *f = dlsym(library, s->name);
        if (f == NULL && (s->major == 0 || s->major == major)) {
            snprintf(api.text, sizeof api.text, "%s is there and lacks %s", name, s->name);
            return 0;
        }
        memcpy((char *)&api + s->at, &f, sizeof f);
    }
    return 1;
}

/* Opens the library of a name. Returns whether it is usable; where it is not, api.text says why, unless there is no
 * such file. */
static int32_t try_library(const char *name)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return 0;
    void *f = dlsym(library, "dnnl_version");
    memcpy(&api.version, &f, sizeof f);
    if (f == NULL) {
        snprintf(api.text, sizeof api.text, "%s is there and lacks dnnl_version", name);
        return 0;
    }
    struct version v = *api.version();
    if (v.major > 3 || v.major < 2 || (v.major == 2 && v.minor < OLDEST_MINOR)) {
        snprintf(api.text, sizeof api.text, "%d.%d.%d is there and too %s (2.%d to 3 are known)", v.major, v.minor,
                 v.patch, v.major > 3 ? "new" : "old", OLDEST_MINOR);
        return 0;
    }
    if (!load_symbols(library, name, v.major)) return 0;
    if (api.engine_create(&api.engine, CPU, 0) != SUCCESS ||
        api.stream_create(&api.stream, api.engine, IN_ORDER) != SUCCESS) {
        snprintf(api.text, sizeof api.text, "%d.%d.%d is there and has no engine", v.major, v.minor, v.patch);
        return 0;
    }
    snprintf(api.text, sizeof api.text, "%d.%d.%d", v.major, v.minor, v.patch);
    return 1;
}

int32_t wn__onednn_open(const char *const *names)
{
    static const char *const usual[] = {"libdnnl.so.3", "libdnnl.so.2", NULL};
    if (api.looked) return api.usable;
    api.looked = 1;
    for (const char *const *name = names ? names : usual; *name != NULL && !api.usable; name++)
        api.usable = try_library(*name);
    if (api.text[0] == 0) snprintf(api.text, sizeof api.text, "not found");
    return api.usable;
}

const char *wn__onednn_text(void)
{
    return api.text;
}

int32_t wn__onednn_ready(void)
{
    return api.ready;
}

/* ---- making -------------------------------------------------------------------------------------- */

struct product {
    struct wn_made made; /* first, so that the two addresses are equal */
    void *primitive, *memory[OPERANDS];
    int32_t threads;
};

/* The memory description of one operand, in either version. */
struct layout {
    void *md; /* the description; NULL: no such operand */
    _Alignas(64) char inside[MEMORY_DESC];
};

static int lay_out(struct layout *x, int32_t ndim, const int64_t dims[3], const int64_t strides[3], int dtype)
{
    /* The library's arrays have 12 elements. */
    int64_t d[12] = {0}, s[12] = {0};
    for (int32_t i = 0; i < ndim; i++) {
        d[i] = dims[3 - ndim + i];
        s[i] = strides[3 - ndim + i];
    }
    if (api.md_create != NULL) return api.md_create(&x->md, ndim, d, dtype, s);
    x->md = x->inside;
    return api.md_init(x->md, ndim, d, dtype, s);
}

static int32_t lay_out_all(struct layout *x, const struct wn__gemm *p, int32_t dtype, int32_t has_bias)
{
    int type = dtype == WN_BF16 ? 2 : 3; /* bf16, f32 */
    const int64_t dims[][3] = {{p->batch, p->m, p->k}, {p->batch, p->k, p->n}, {p->batch, p->m, p->n}, {1, 1, p->n}};
    const int64_t strides[][3] = {
        {p->m * p->k, p->ai, p->ak}, {p->k * p->n, p->bk, p->bj}, {p->m * p->n, p->n, 1}, {p->n, p->n, 1}};
    int code = SUCCESS;
    for (int32_t i = A; i <= (has_bias ? BIAS : C) && code == SUCCESS; i++)
        code = lay_out(&x[i], p->batch == 1 ? 2 : 3, dims[i], strides[i], type); /* 2 dims serve one product better */
    return code;
}

/* Finds the implementation that the library thinks best. */
static int find(const struct layout *x, const void *attr, void **pd)
{
    _Alignas(64) char desc[MATMUL_DESC];
    if (api.matmul_create != NULL)
        return api.matmul_create(pd, api.engine, x[A].md, x[B].md, x[BIAS].md, x[C].md, attr);
    int code = api.matmul_init(desc, x[A].md, x[B].md, x[BIAS].md, x[C].md);
    return code == SUCCESS ? api.pd_create(pd, desc, attr, api.engine, NULL) : code;
}

static int set_attributes(void *attr)
{
    int code = api.attr_scratchpad(attr, USER_SCRATCHPAD);
    if (code == SUCCESS) code = api.attr_fpmath(attr, STRICT);
    if (code == SUCCESS && api.attr_deterministic != NULL) code = api.attr_deterministic(attr, 1);
    return code;
}

/* Accepts an implementation of the brgemm family that takes at most *bytes of scratch, and writes what it takes to
 * *bytes; declines every other. */
static int accept(const void *pd, int64_t *bytes)
{
    const char *name = "";
    int code = api.pd_query(pd, QUERY_NAME, 0, &name);
    const void *scratch = api.pd_query_md(pd, QUERY_SCRATCHPAD, 0);
    int64_t takes = scratch != NULL ? (int64_t)api.md_size(scratch) : 0;
    if (code != SUCCESS || strncmp(name, "brg", 3) != 0 || takes > *bytes) return DECLINED;
    *bytes = takes;
    return SUCCESS;
}

static int make(struct product *o, const struct layout *x, const void *pd, int64_t bytes)
{
    int code = api.create(&o->primitive, pd);
    for (int32_t i = 0; i < OPERANDS && code == SUCCESS; i++) {
        const void *md = i < SCRATCH ? x[i].md : bytes > 0 ? api.pd_query_md(pd, QUERY_SCRATCHPAD, 0) : NULL;
        if (md != NULL) code = api.memory_create(&o->memory[i], md, api.engine, NULL);
    }
    return code;
}

static int build(struct product *o, const struct wn__gemm *p, int32_t dtype, int32_t has_bias, int64_t *bytes)
{
    struct layout x[SCRATCH] = {{.md = NULL}};
    void *attr = NULL, *pd = NULL;
    int code = lay_out_all(x, p, dtype, has_bias);
    if (code == SUCCESS) code = api.attr_create(&attr);
    if (code == SUCCESS) code = set_attributes(attr);
    if (code == SUCCESS) code = find(x, attr, &pd);
    if (code == SUCCESS) code = accept(pd, bytes);
    if (code == SUCCESS) code = make(o, x, pd, *bytes);
    if (pd != NULL) api.pd_destroy(pd);
    if (attr != NULL) api.attr_destroy(attr);
    for (int32_t i = 0; i < SCRATCH && api.md_destroy != NULL; i++)
        if (x[i].md != NULL) api.md_destroy(x[i].md);
    return code;
}

static void take_apart(struct product *o)
{
    for (int32_t i = 0; i < OPERANDS; i++)
        if (o->memory[i] != NULL) api.memory_destroy(o->memory[i]);
    if (o->primitive != NULL) api.destroy(o->primitive);
}

static void let_go(struct wn_made *made)
{
    struct product *o = (struct product *)made;
    take_apart(o);
    api.ready--;
    wn__free(o);
}

/* Builds a product with the threads of the kernels, whose number the scratch depends on. */
static int build_for_threads(struct product *o, const struct wn__gemm *p, int32_t dtype, int32_t has_bias,
                             int64_t *bytes)
{
    o->threads = wn_cpu_threads();
    int before = api.get_threads();
    api.set_threads(o->threads);
    int code = build(o, p, dtype, has_bias, bytes);
    api.set_threads(before);
    return code;
}

int32_t wn__onednn_has(int32_t dtype)
{
    const int64_t n = 256;
    const struct wn__gemm p = {.batch = 1, .m = n, .k = n, .n = n, .ai = n, .ak = 1, .bk = n, .bj = 1};
    struct product o = {.primitive = NULL};
    int64_t bytes = INT64_MAX;
    int code = build_for_threads(&o, &p, dtype, 0, &bytes);
    take_apart(&o);
    return code == SUCCESS || code == OUT_OF_MEMORY;
}

int32_t wn__onednn_make(const struct wn__gemm *p, int32_t dtype, int32_t has_bias, int64_t *bytes, struct wn_made **out)
{
    int64_t most = *bytes;
    *out = NULL;
    *bytes = 0;
    struct product *o = wn__alloc(sizeof *o);
    if (o == NULL) return WN_OOM;
    api.ready++;
    o->made.let_go = let_go;
    int code = build_for_threads(o, p, dtype, has_bias, &most);
    if (code != SUCCESS) {
        let_go(&o->made);
        return code == OUT_OF_MEMORY ? wn__fail(WN_OOM, "out of memory: oneDNN could not make a product ready") : WN_OK;
    }
    *bytes = most;
    *out = &o->made;
    return WN_OK;
}

/* ---- running ------------------------------------------------------------------------------------- */

int32_t wn__onednn_run(struct wn_made *made, const struct wn__gemm *p, void *scratch)
{
    const struct product *o = (const struct product *)made;
    void *data[OPERANDS] = {(void *)p->a, (void *)p->b, p->c, (void *)p->bias, scratch};
    struct argument argument[OPERANDS];
    int n = 0, code = SUCCESS;
    for (int32_t i = 0; i < OPERANDS && code == SUCCESS; i++) {
        if (o->memory[i] == NULL) continue;
        argument[n++] = (struct argument){number_of[i], o->memory[i]};
        code = api.memory_set(o->memory[i], data[i]);
    }
    int before = api.get_threads();
    api.set_threads(o->threads);
    if (code == SUCCESS) code = api.execute(o->primitive, api.stream, n, argument);
    if (code == SUCCESS) code = api.stream_wait(api.stream);
    api.set_threads(before);
    if (code == SUCCESS) return WN_OK;
    return wn__fail(WN_DEVICE,
                    "oneDNN failed at a product of %lld x %lld x %lld (its status: %d); WANE_ONEDNN=off does "
                    "without it",
                    (long long)p->m, (long long)p->n, (long long)p->k, code);
}
