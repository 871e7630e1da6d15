/* A oneDNN that is none, for the specs of oneDNN: what it says is set when it is compiled. MAJOR, MINOR: its version.
 * It has every function, unless LACKS is defined, makes any product ready with SCRATCH bytes of scratch under NAME, and
 * any convolution under CONV with as much scratch and WEIGHT bytes of its weight, and computes nothing: MAKE, MAKE_CONV
 * and RUN are the statuses of describing a product, a convolution and of computing, where OpenMP has THREADS threads at
 * that time. WITNESS: a file that a computation makes. */
#include <omp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const int version[] = {MAJOR, MINOR, 0};
static int something, product, convolution, reorder, weight;

static int status(int usual) { return omp_get_max_threads() == THREADS ? usual : 77; }

const int *dnnl_version(void) { return version; }

int dnnl_engine_create(void **out, int kind, size_t at) { *out = &something; return (void)kind, (void)at, 0; }
int dnnl_stream_create(void **out, void *engine, unsigned flags) { *out = engine; return (void)flags, 0; }
int dnnl_stream_wait(void *stream) { return (void)stream, 0; }
int dnnl_primitive_attr_create(void **out) { *out = &something; return 0; }
int dnnl_primitive_attr_set_scratchpad_mode(void *attr, int mode) { return (void)attr, mode != 1; }
int dnnl_primitive_attr_set_fpmath_mode(void *attr, int mode) { return (void)attr, mode != 0; }
int dnnl_primitive_attr_destroy(void *attr) { return (void)attr, 0; }
int dnnl_memory_desc_init_by_strides(void *md) { *(char *)md = 1; return 0; }
int dnnl_memory_desc_init_by_tag(void *md) { *(char *)md = 1; return 0; }
int dnnl_memory_desc_create_with_strides(void **out) { *out = &something; return 0; }
int dnnl_memory_desc_create_with_tag(void **out) { *out = &something; return 0; }
int dnnl_memory_desc_destroy(void *md) { return (void)md, 0; }
size_t dnnl_memory_desc_get_size(const void *md) { return md == &weight ? WEIGHT : SCRATCH; }

/* ---- version 2: an operation's description names its kind ---- */
static int describe(void *desc, void *kind) { return memcpy(desc, &kind, sizeof kind), 0; }
int dnnl_matmul_desc_init(void *desc) { return describe(desc, &product); }
int dnnl_dilated_convolution_forward_desc_init(void *desc) { return describe(desc, &convolution); }
int dnnl_dilated_convolution_backward_data_desc_init(void *desc) { return describe(desc, &convolution); }
int dnnl_dilated_convolution_backward_weights_desc_init(void *desc) { return describe(desc, &convolution); }
int dnnl_primitive_desc_create(void **out, const void *desc)
{
    memcpy(out, desc, sizeof *out);
    return status(*out == &product ? MAKE : MAKE_CONV);
}

/* ---- version 3 ---- */
int dnnl_matmul_primitive_desc_create(void **out) { *out = &product; return status(MAKE); }
static int convolve(void **out) { *out = &convolution; return status(MAKE_CONV); }
int dnnl_convolution_forward_primitive_desc_create(void **out) { return convolve(out); }
int dnnl_convolution_backward_data_primitive_desc_create(void **out) { return convolve(out); }
int dnnl_convolution_backward_weights_primitive_desc_create(void **out) { return convolve(out); }

int dnnl_reorder_primitive_desc_create(void **out) { *out = &reorder; return status(0); }
int dnnl_primitive_desc_query(void *pd, int what, int at, const char **out)
{
    *out = pd == &convolution ? CONV : NAME;
    return (void)what, (void)at, 0;
}
const void *dnnl_primitive_desc_query_md(void *pd, int what, int at)
{
    return (void)pd, (void)at, what == 131 || what == 132 ? &weight : &something;
}
int dnnl_primitive_desc_destroy(void *pd) { return (void)pd, 0; }
int dnnl_primitive_create(void **out, void *pd) { *out = pd; return 0; }
#ifndef LACKS
int dnnl_primitive_execute(void *primitive)
{
    fclose(fopen(WITNESS, "w"));
    return (void)primitive, status(RUN);
}
#endif
int dnnl_primitive_destroy(void *primitive) { return (void)primitive, 0; }
int dnnl_memory_create(void **out, const void *md, void *engine) { *out = engine; return (void)md, 0; }
int dnnl_memory_set_data_handle(void *memory, void *data) { return (void)memory, (void)data, 0; }
int dnnl_memory_destroy(void *memory) { return (void)memory, 0; }
