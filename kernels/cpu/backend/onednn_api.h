/* Functions of oneDNN, memory descriptions, and applications that it has ready, for onednn.c (products) and
 * onednn_conv.c (convolutions). Only these files know the library's names and numbers, as its C interface has had
 * them since 2.0, and how versions 2 and 3 differ: in version 2 a memory description is a struct of the caller, and an
 * operation is described before an implementation is found; in version 3 the library allocates descriptions, and one
 * call does both. */
#ifndef WN_CPU_ONEDNN_API_H
#define WN_CPU_ONEDNN_API_H
#include <stddef.h>
#include "../../kernel.h"
#include "onednn.h"

#define WN_ONEDNN_DIMS 12       /* elements of the library's arrays of dims */
#define WN_ONEDNN_MD_BYTES 1024 /* of a description in version 2, at least: 696 in 2.6 */
#define WN_ONEDNN_OP_BYTES 8192 /* of an operation's description in version 2, at least: 5976 of a convolution in 2.6 */

/* Statuses of the library; WN_ONEDNN_DECLINED is Wane's own. */
enum { WN_ONEDNN_SUCCESS = 0, WN_ONEDNN_OUT_OF_MEMORY = 1, WN_ONEDNN_DECLINED = -1 };

struct wn__onednn_version {
    int major, minor, patch;
};
struct wn__onednn_argument {
    int number;
    void *memory;
};
typedef int64_t wn__onednn_dims[WN_ONEDNN_DIMS];

/* The functions of the library; a function that only the other version has is NULL. */
struct wn__onednn_api {
    const struct wn__onednn_version *(*version)(void);
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
    int (*md_init_tag)(void *md, int ndim, const int64_t *dims, int dtype, int tag);
    int (*md_create_tag)(void **md, int ndim, const int64_t *dims, int dtype, int tag);
    int (*md_destroy)(void *md);
    size_t (*md_size)(const void *md);
    int (*pd_create)(void **pd, const void *desc, const void *attr, void *engine, const void *hint);
    int (*pd_query)(const void *pd, int what, int index, void *result);
    const void *(*pd_query_md)(const void *pd, int what, int index);
    int (*pd_destroy)(void *pd);
    int (*create)(void **primitive, const void *pd);
    int (*execute)(const void *primitive, void *stream, int n, const struct wn__onednn_argument *arguments);
    int (*destroy)(void *primitive);
    int (*memory_create)(void **memory, const void *md, void *engine, void *data);
    int (*memory_set)(void *memory, void *data);
    int (*memory_destroy)(void *memory);
    /* ---- products ---- */
    int (*matmul_init)(void *desc, const void *a, const void *b, const void *bias, const void *c);
    int (*matmul_create)(void **pd, void *engine, const void *a, const void *b, const void *bias, const void *c,
                         const void *attr);
    /* ---- convolutions; dilation counts from 0, and `hint` may be NULL ---- */
    int (*reorder_create)(void **pd, const void *from, void *from_engine, const void *to, void *to_engine,
                          const void *attr);
    int (*conv_init)(void *desc, int kind, int way, const void *x, const void *w, const void *bias, const void *y,
                     const int64_t *stride, const int64_t *dilation, const int64_t *before, const int64_t *behind);
    int (*conv_dx_init)(void *desc, int way, const void *dx, const void *w, const void *dy, const int64_t *stride,
                        const int64_t *dilation, const int64_t *before, const int64_t *behind);
    int (*conv_dw_init)(void *desc, int way, const void *x, const void *dw, const void *db, const void *dy,
                        const int64_t *stride, const int64_t *dilation, const int64_t *before, const int64_t *behind);
    int (*conv_create)(void **pd, void *engine, int kind, int way, const void *x, const void *w, const void *bias,
                       const void *y, const int64_t *stride, const int64_t *dilation, const int64_t *before,
                       const int64_t *behind, const void *attr);
    int (*conv_dx_create)(void **pd, void *engine, int way, const void *dx, const void *w, const void *dy,
                          const int64_t *stride, const int64_t *dilation, const int64_t *before, const int64_t *behind,
                          const void *hint, const void *attr);
    int (*conv_dw_create)(void **pd, void *engine, int way, const void *x, const void *dw, const void *db,
                          const void *dy, const int64_t *stride, const int64_t *dilation, const int64_t *before,
                          const int64_t *behind, const void *hint, const void *attr);
    /* ---- threads ---- */
    void (*set_threads)(int n);
    int (*get_threads)(void);
    void *engine, *stream;
};
extern struct wn__onednn_api wn__onednn_api;

/* ---- memory descriptions ------------------------------------------------------------------------- */

/* The memory description of one operand, in either version. It may not be moved. */
struct wn__onednn_md {
    void *md; /* the description; NULL: no such operand */
    _Alignas(64) char inside[WN_ONEDNN_MD_BYTES];
};
/* Describes an operand of f32 or bf16; strides: in elements; NULL: the library chooses the layout. Returns a status. */
int wn__onednn_describe(struct wn__onednn_md *x, int32_t ndim, const int64_t *dims, const int64_t *strides,
                        int32_t dtype);
/* Lets go of n descriptions; those whose md is NULL are left as they are. */
void wn__onednn_forget(struct wn__onednn_md *x, int32_t n);

/* ---- ready applications --------------------------------------------------------------------------- */

enum { WN_ONEDNN_OPERANDS = 5, WN_ONEDNN_STEPS = 2 };

/* A primitive and its operands, the last of which may be its scratch. */
struct wn__onednn_step {
    void *primitive;
    struct wn__onednn_argument operand[WN_ONEDNN_OPERANDS];
    int32_t n;
};

/* An application that is ready: steps that run one after the other. */
struct wn__onednn_made {
    struct wn_made made; /* first, so that the two addresses are equal */
    int32_t threads, n_steps;
    struct wn__onednn_step step[WN_ONEDNN_STEPS];
    int64_t copy; /* bytes of scratch that are before the primitives' own */
};

/* Creates attributes: scratch of the caller, strict f32, deterministic. Returns a status. */
int wn__onednn_attributes(void **attr);
/* Returns the name of the implementation that a primitive description found; "": it has none. */
const char *wn__onednn_name(const void *pd);
/* Returns the bytes of scratch of a primitive description. */
int64_t wn__onednn_scratch(const void *pd);
/* Adds a step: the primitive of pd, with n operands of given numbers and descriptions, and its scratch. Operands whose
 * description is NULL are left out. Returns a status. */
int wn__onednn_add_step(struct wn__onednn_made *o, const void *pd, int32_t n, const int *number, const void *const *md);
/* Runs a step with the data of its operands, in their order, and of its scratch. Returns a status. */
int wn__onednn_run_step(const struct wn__onednn_step *s, void *const *data, void *scratch);

/* Adds the steps of `what` to o, which is empty. bytes: the scratch that it may take; becomes what it takes. Returns a
 * status. */
typedef int (*wn__onednn_builder)(struct wn__onednn_made *o, const void *what, int64_t *bytes);
/* Makes `what` ready with the threads of the kernels, whose number the scratch depends on. *out is NULL where the
 * library declines. name: for a message, "a product". WN_OOM. */
int32_t wn__onednn_make_by(wn__onednn_builder build, const void *what, const char *name, int64_t *bytes,
                           struct wn_made **out);
/* Returns whether `what` could be made ready. */
int32_t wn__onednn_can(wn__onednn_builder build, const void *what);
/* Sets the number of threads of the library, and returns the one before. */
int wn__onednn_set_threads(int n);
#endif
