/* See onednn_api.h: opens the library and keeps the table of its functions; makes primitives ready, runs them, and lets
 * go of them.
 *
 * The threads are those of the OpenMP that the library is linked to, found through the library's own handle. Their
 * number is set around every call to that of the kernels, since the scratch grows with it. */
#include "onednn_api.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include "../../../runtime/base/alloc.h"
#include "parallel.h"

#define OLDEST_MINOR 6 /* minor number of the oldest version 2 that was tried */

enum { CPU = 1, IN_ORDER = 1, USER_SCRATCHPAD = 1, STRICT = 0, ANY = 1, BF16 = 2, F32 = 3 };
enum { QUERY_NAME = 8, QUERY_SCRATCHPAD = 136, NUMBER_SCRATCHPAD = 80 };

struct wn__onednn_api wn__onednn_api;
#define api wn__onednn_api

static int32_t has_looked, is_usable, n_ready;
static char state[128];

static const struct symbol {
    const char *name;
    size_t at;
    int32_t major; /* needed with this version; 0: with any; -1: used if it is there */
} symbols[] = {
#define SYMBOL(field, name, major)                                                                                     \
    {                                                                                                                  \
        name, offsetof(struct wn__onednn_api, field), major                                                            \
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
    SYMBOL(md_init_tag, "dnnl_memory_desc_init_by_tag", 2),
    SYMBOL(md_create_tag, "dnnl_memory_desc_create_with_tag", 3),
    SYMBOL(md_destroy, "dnnl_memory_desc_destroy", 3),
    SYMBOL(md_size, "dnnl_memory_desc_get_size", 0),
    SYMBOL(pd_create, "dnnl_primitive_desc_create", 2),
    SYMBOL(pd_query, "dnnl_primitive_desc_query", 0),
    SYMBOL(pd_query_md, "dnnl_primitive_desc_query_md", 0),
    SYMBOL(pd_destroy, "dnnl_primitive_desc_destroy", 0),
    SYMBOL(create, "dnnl_primitive_create", 0),
    SYMBOL(execute, "dnnl_primitive_execute", 0),
    SYMBOL(destroy, "dnnl_primitive_destroy", 0),
    SYMBOL(memory_create, "dnnl_memory_create", 0),
    SYMBOL(memory_set, "dnnl_memory_set_data_handle", 0),
    SYMBOL(memory_destroy, "dnnl_memory_destroy", 0),
    SYMBOL(matmul_init, "dnnl_matmul_desc_init", 2),
    SYMBOL(matmul_create, "dnnl_matmul_primitive_desc_create", 3),
    SYMBOL(reorder_create, "dnnl_reorder_primitive_desc_create", 0),
    SYMBOL(conv_init, "dnnl_dilated_convolution_forward_desc_init", 2),
    SYMBOL(conv_dx_init, "dnnl_dilated_convolution_backward_data_desc_init", 2),
    SYMBOL(conv_dw_init, "dnnl_dilated_convolution_backward_weights_desc_init", 2),
    SYMBOL(conv_create, "dnnl_convolution_forward_primitive_desc_create", 3),
    SYMBOL(conv_dx_create, "dnnl_convolution_backward_data_primitive_desc_create", 3),
    SYMBOL(conv_dw_create, "dnnl_convolution_backward_weights_primitive_desc_create", 3),
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
            snprintf(state, sizeof state, "%s is there and lacks %s", name, s->name);
            return 0;
        }
        memcpy((char *)&api + s->at, &f, sizeof f);
    }
    return 1;
}

/* Opens the library of a name. Returns whether it is usable; where it is not, `state` says why, unless there is no such
 * file. */
static int32_t try_library(const char *name)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return 0;
    void *f = dlsym(library, "dnnl_version");
    memcpy(&api.version, &f, sizeof f);
    if (f == NULL) {
        snprintf(state, sizeof state, "%s is there and lacks dnnl_version", name);
        return 0;
    }
    struct wn__onednn_version v = *api.version();
    if (v.major > 3 || v.major < 2 || (v.major == 2 && v.minor < OLDEST_MINOR)) {
        snprintf(state, sizeof state, "%d.%d.%d is there and too %s (2.%d to 3 are known)", v.major, v.minor, v.patch,
                 v.major > 3 ? "new" : "old", OLDEST_MINOR);
        return 0;
    }
    if (!load_symbols(library, name, v.major)) return 0;
    if (api.engine_create(&api.engine, CPU, 0) != WN_ONEDNN_SUCCESS ||
        api.stream_create(&api.stream, api.engine, IN_ORDER) != WN_ONEDNN_SUCCESS) {
        snprintf(state, sizeof state, "%d.%d.%d is there and has no engine", v.major, v.minor, v.patch);
        return 0;
    }
    snprintf(state, sizeof state, "%d.%d.%d", v.major, v.minor, v.patch);
    return 1;
}

int32_t wn__onednn_open(const char *const *names)
{
    static const char *const usual[] = {"libdnnl.so.3", "libdnnl.so.2", NULL};
    if (has_looked) return is_usable;
    has_looked = 1;
    for (const char *const *name = names ? names : usual; *name != NULL && !is_usable; name++)
        is_usable = try_library(*name);
    if (state[0] == 0) snprintf(state, sizeof state, "not found");
    return is_usable;
}

const char *wn__onednn_text(void)
{
    return state;
}

int32_t wn__onednn_ready(void)
{
    return n_ready;
}

/* ---- memory descriptions ------------------------------------------------------------------------- */

int wn__onednn_describe(struct wn__onednn_md *x, int32_t ndim, const int64_t *dims, const int64_t *strides,
                        int32_t dtype)
{
    const int type = dtype == WN_BF16 ? BF16 : F32;
    wn__onednn_dims d = {0}, s = {0};
    for (int32_t i = 0; i < ndim; i++) {
        d[i] = dims[i];
        if (strides != NULL) s[i] = strides[i];
    }
    if (api.md_create != NULL)
        return strides != NULL ? api.md_create(&x->md, ndim, d, type, s)
                               : api.md_create_tag(&x->md, ndim, d, type, ANY);
    x->md = x->inside;
    return strides != NULL ? api.md_init(x->md, ndim, d, type, s) : api.md_init_tag(x->md, ndim, d, type, ANY);
}

void wn__onednn_forget(struct wn__onednn_md *x, int32_t n)
{
    for (int32_t i = 0; i < n && api.md_destroy != NULL; i++)
        if (x[i].md != NULL) api.md_destroy(x[i].md);
}

/* ---- making -------------------------------------------------------------------------------------- */

int wn__onednn_attributes(void **attr)
{
    int code = api.attr_create(attr);
    if (code == WN_ONEDNN_SUCCESS) code = api.attr_scratchpad(*attr, USER_SCRATCHPAD);
    if (code == WN_ONEDNN_SUCCESS) code = api.attr_fpmath(*attr, STRICT);
    if (code == WN_ONEDNN_SUCCESS && api.attr_deterministic != NULL) code = api.attr_deterministic(*attr, 1);
    return code;
}

const char *wn__onednn_name(const void *pd)
{
    const char *name = "";
    return api.pd_query(pd, QUERY_NAME, 0, &name) == WN_ONEDNN_SUCCESS ? name : "";
}

int64_t wn__onednn_scratch(const void *pd)
{
    const void *md = api.pd_query_md(pd, QUERY_SCRATCHPAD, 0);
    return md != NULL ? (int64_t)api.md_size(md) : 0;
}

static int add_operand(struct wn__onednn_step *s, int number, const void *md)
{
    struct wn__onednn_argument *a = &s->operand[s->n];
    int code = api.memory_create(&a->memory, md, api.engine, NULL);
    if (code != WN_ONEDNN_SUCCESS) return code;
    a->number = number;
    s->n++;
    return WN_ONEDNN_SUCCESS;
}

int wn__onednn_add_step(struct wn__onednn_made *o, const void *pd, int32_t n, const int *number, const void *const *md)
{
    struct wn__onednn_step *s = &o->step[o->n_steps++];
    int code = api.create(&s->primitive, pd);
    for (int32_t i = 0; i < n && code == WN_ONEDNN_SUCCESS; i++)
        if (md[i] != NULL) code = add_operand(s, number[i], md[i]);
    if (code == WN_ONEDNN_SUCCESS && wn__onednn_scratch(pd) > 0)
        code = add_operand(s, NUMBER_SCRATCHPAD, api.pd_query_md(pd, QUERY_SCRATCHPAD, 0));
    return code;
}

static void take_apart(struct wn__onednn_made *o)
{
    for (int32_t k = 0; k < o->n_steps; k++) {
        struct wn__onednn_step *s = &o->step[k];
        for (int32_t i = 0; i < s->n; i++) api.memory_destroy(s->operand[i].memory);
        if (s->primitive != NULL) api.destroy(s->primitive);
    }
}

static void let_go(struct wn_made *made)
{
    struct wn__onednn_made *o = (struct wn__onednn_made *)made;
    take_apart(o);
    n_ready--;
    wn__free(o);
}

int wn__onednn_set_threads(int n)
{
    int before = api.get_threads();
    api.set_threads(n);
    return before;
}

static int build_for_threads(struct wn__onednn_made *o, wn__onednn_builder build, const void *what, int64_t *bytes)
{
    o->threads = wn_cpu_threads();
    const int before = wn__onednn_set_threads(o->threads);
    const int code = build(o, what, bytes);
    wn__onednn_set_threads(before);
    return code;
}

int32_t wn__onednn_can(wn__onednn_builder build, const void *what)
{
    struct wn__onednn_made o = {.n_steps = 0};
    int64_t bytes = INT64_MAX;
    int code = build_for_threads(&o, build, what, &bytes);
    take_apart(&o);
    return code == WN_ONEDNN_SUCCESS || code == WN_ONEDNN_OUT_OF_MEMORY;
}

int32_t wn__onednn_make_by(wn__onednn_builder build, const void *what, const char *name, int64_t *bytes,
                           struct wn_made **out)
{
    int64_t most = *bytes;
    *out = NULL;
    *bytes = 0;
    struct wn__onednn_made *o = wn__alloc(sizeof *o);
    if (o == NULL) return WN_OOM;
    n_ready++;
    o->made.let_go = let_go;
    int code = build_for_threads(o, build, what, &most);
    if (code != WN_ONEDNN_SUCCESS) {
        let_go(&o->made);
        if (code != WN_ONEDNN_OUT_OF_MEMORY) return WN_OK;
        return wn__fail(WN_OOM, "out of memory: oneDNN could not make %s ready", name);
    }
    *bytes = most;
    *out = &o->made;
    return WN_OK;
}

/* ---- running ------------------------------------------------------------------------------------- */

int wn__onednn_run_step(const struct wn__onednn_step *s, void *const *data, void *scratch)
{
    int code = WN_ONEDNN_SUCCESS;
    for (int32_t i = 0; i < s->n && code == WN_ONEDNN_SUCCESS; i++)
        code = api.memory_set(s->operand[i].memory, s->operand[i].number == NUMBER_SCRATCHPAD ? scratch : data[i]);
    if (code == WN_ONEDNN_SUCCESS) code = api.execute(s->primitive, api.stream, s->n, s->operand);
    return code == WN_ONEDNN_SUCCESS ? api.stream_wait(api.stream) : code;
}
