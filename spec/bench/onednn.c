/* The own products against oneDNN's, in turns: built by onednn.lua together with the kernels' own files. oneDNN 2 and 3
 * are opened by name and told what to do through own declarations, so no header of theirs is needed: plain row-major
 * operands, either transposed, scratch from outside. */
#include <dlfcn.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../kernels/cpu/gemm.h"
#include "probe.c"

#define MEMORY_DESC 1024 /* bytes; 696 in oneDNN 2.6 */
#define MATMUL_DESC 8192 /* 2800 */
enum { SRC = 1, WEIGHTS = 33, DST = 17, SCRATCHPAD = 80, SCRATCHPAD_MD = 136 };
enum { BF16 = 2, F32 = 3 };

struct version {
    int major, minor, patch;
};
struct argument {
    int arg;
    void *memory;
};

typedef int32_t dnnl_fn(); /* each call knows what it passes: pointers, int, int64_t */
static struct {
    int major;
    void *engine, *stream;
    dnnl_fn *strides, *matmul, *describe, *attr, *scratchpad, *make, *memory, *handle, *execute, *wait;
    const void *(*query)(void *, int, int);
    size_t (*size)(const void *);
} api;

/* 1000 x major + minor; 0: there is none, -1: it lacks a function. */
int onednn_open(const char *name)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) return 0;
    const struct version *(*version)(void) = dlsym(library, "dnnl_version");
    if (!version) return -1;
    api.major = version()->major;
    int old = api.major < 3;
    const char *names[] = {old ? "dnnl_memory_desc_init_by_strides" : "dnnl_memory_desc_create_with_strides",
                           old ? "dnnl_matmul_desc_init" : "dnnl_matmul_primitive_desc_create",
                           old ? "dnnl_primitive_desc_create" : "dnnl_primitive_create",
                           "dnnl_primitive_attr_create",
                           "dnnl_primitive_attr_set_scratchpad_mode",
                           "dnnl_primitive_create",
                           "dnnl_memory_create",
                           "dnnl_memory_set_data_handle",
                           "dnnl_primitive_execute",
                           "dnnl_stream_wait"};
    dnnl_fn **to[] = {&api.strides, &api.matmul, &api.describe, &api.attr,    &api.scratchpad,
                      &api.make,    &api.memory, &api.handle,   &api.execute, &api.wait};
    for (int i = 0; i < 10; i++)
        if (!(*(void **)to[i] = dlsym(library, names[i]))) return -1;
    *(void **)&api.query = dlsym(library, "dnnl_primitive_desc_query_md");
    *(void **)&api.size = dlsym(library, "dnnl_memory_desc_get_size");
    int32_t (*engine)(void **, int, size_t) = (int32_t(*)(void **, int, size_t))dlsym(library, "dnnl_engine_create");
    int32_t (*stream)(void **, void *, unsigned) =
        (int32_t(*)(void **, void *, unsigned))dlsym(library, "dnnl_stream_create");
    if (!api.query || !api.size || !engine || !stream) return -1;
    if (engine(&api.engine, 1, 0) || stream(&api.stream, api.engine, 1)) return -1;
    return 1000 * api.major + version()->minor;
}

struct primitive {
    void *run, *a, *b, *c, *scratch;
    int64_t scratch_bytes;
};

static int make(struct primitive *o, int type, const struct wn__gemm *p)
{
    static char old[3][MEMORY_DESC], matmul[MATMUL_DESC];
    int64_t dims[3][12] = {{p->batch, p->m, p->k}, {p->batch, p->k, p->n}, {p->batch, p->m, p->n}};
    int64_t strides[3][12] = {
        {p->m * p->k, p->ai, p->ak}, {p->k * p->n, p->bk, p->bj}, {p->m * p->n, p->n, 1}};
    int skip = p->batch == 1; /* two dims serve it better than three */
    void *md[3], *attr, *pd;
    api.attr(&attr);
    api.scratchpad(attr, 1);
    for (int i = 0; i < 3; i++) {
        md[i] = old[i];
        if (api.strides(api.major < 3 ? md[i] : (void *)&md[i], 3 - skip, dims[i] + skip, type, strides[i] + skip))
            return 0;
    }
    if (api.major < 3) {
        if (api.matmul(matmul, md[0], md[1], NULL, md[2])) return 0;
        if (api.describe(&pd, matmul, attr, api.engine, NULL)) return 0;
    } else if (api.matmul(&pd, api.engine, md[0], md[1], NULL, md[2], attr)) return 0;
    if (api.make(&o->run, pd)) return 0;
    const void *scratch = api.query(pd, SCRATCHPAD_MD, 0);
    o->scratch_bytes = scratch ? (int64_t)api.size(scratch) : 0;
    return !(api.memory(&o->a, md[0], api.engine, NULL) || api.memory(&o->b, md[1], api.engine, NULL) ||
             api.memory(&o->c, md[2], api.engine, NULL) || api.memory(&o->scratch, scratch, api.engine, NULL));
}

static void run(struct primitive *o, const struct wn__gemm *p, void *scratch)
{
    api.handle(o->a, p->a);
    api.handle(o->b, p->b);
    api.handle(o->c, p->c);
    if (o->scratch_bytes) api.handle(o->scratch, scratch);
    struct argument list[] = {{SRC, o->a}, {WEIGHTS, o->b}, {DST, o->c}, {SCRATCHPAD, o->scratch}};
    api.execute(o->run, api.stream, o->scratch_bytes ? 4 : 3, list);
    api.wait(api.stream);
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

/* `turn` turns of each; out: GFLOP/s own, GFLOP/s of oneDNN, peak, bytes of its scratch. Operands are
 * 1 to 4 of each, so that b and c come from memory where they would in a step. 0: oneDNN refuses. */
static int turns(int threads, int bf16, struct wn__gemm *p, int turn, double out[][4])
{
    int64_t size = bf16 ? 2 : 4, na = p->batch * p->m * p->k, nb = p->batch * p->n * p->k, nc = p->batch * p->m * p->n;
    int64_t copies = ((int64_t)96 << 20) / (size * (nb > nc ? nb : nc)) + 1;
    struct primitive o = {0};
    if (copies > 4) copies = 4;
    if (!make(&o, bf16 ? BF16 : F32, p)) return 0;
    char *a = operand(na * size), *b = operand(copies * nb * size), *c = operand(copies * nc * size);
    void *scratch = operand(o.scratch_bytes + 64);
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
                if (who == 1) run(&o, p, scratch);
                else if (bf16) wn__gemm_bf16(p);
                else wn__gemm_f32(p);
            }
            seconds[who] = now() - start;
        }
        if (i < 0) continue;
        out[i][0] = flops * (double)inner / seconds[0] * 1e-9;
        out[i][1] = flops * (double)inner / seconds[1] * 1e-9;
        out[i][2] = peak;
        out[i][3] = (double)o.scratch_bytes;
    }
    free(a);
    free(b);
    free(c);
    free(scratch);
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
    p.walk = (struct wn__walk){.n_operands = 2, .ndim = 1, .numel = batch};
    p.walk.dim[0] = batch;
    p.walk.step[0][0] = p.walk.step[1][0] = 1;
    wn_cpu_set_threads(threads);
    omp_set_num_threads(threads); /* oneDNN's */
    return turns(threads, bf16, &p, turn, out);
}
