/* Convolutions by cuDNN, where this machine has it and WANE_CUDA_DNN asks for it.
 *
 * The library, of version 8 or 9, is opened at run time and called through own declarations, so that nothing of it is
 * needed to build. It computes CONV2D, that of CONV2D_MAP, CONV2D_DX and CONV2D_DW of f32 and bf16; f64 stays with own
 * kernels. f32 stays f32 unless wane.tf32 was asked for; bf16 is summed in f32 and rounded once. A pass of conv.cu over
 * the rounded sums adds the bias, rounds again, and does what a CONV2D_MAP has over it.
 *
 * Its algorithms are those that it documents as deterministic, and the one of an application follows from shape, dtype
 * and tf32 alone: nothing is timed, and no budget changes a bit. Images are read where they are; a weight, and the
 * gradient of one, is (O, kh, kw, C / groups) for the library. The workspace of an application is
 *
 *     | the weight or its gradient in that order | the library's scratch, at most WN_CUDNN_SCRATCH |
 *
 * and its first part is empty where the weight is in that order already. A plan that is made before the library is
 * asked reserves all of WN_CUDNN_SCRATCH; once it is loaded it has what the library wants. What wants more, or is
 * declined, runs on own kernels. */
#ifndef WN_CUDA_CUDNN_H
#define WN_CUDA_CUDNN_H
#include "../kernel.h"
#include "conv.h"

enum { WN_CUDNN_SCRATCH = 32 << 20 }; /* bytes; guessed, no GPU was asked */

/* Opens the library that WANE_CUDA_DNN names; unset or off: none, auto: the first of the usual names. Returns the bits
 * WN_LIBRARY_CONV << dtype of what it computes on a GPU of this architecture, 0 where there is none. */
int32_t wn__cudnn_open(int32_t arch);
/* Returns the version, "cuDNN 9.19.0", or why there is none. */
const char *wn__cudnn_text(void);
/* Makes ready an application that wn__cudnn_takes. bytes: its workspace by the rule; becomes what is taken. *out is
 * NULL where an own kernel computes it; equal applications get equal answers. What it makes lives as long as the
 * process, once a shape. WN_DEVICE where the library fails, WN_OOM. */
int32_t wn__cudnn_make(const struct wn_desc *d, const struct wn__target *t, int64_t *bytes, const void **out);
/* Starts an application that is ready (b->made) on the stream, without bias and what follows it. WN_DEVICE where the
 * library fails, WN_OOM. */
int32_t wn__cudnn_run(const struct wn_desc *d, const struct wn_buffers *b, void *stream);

/* Returns whether the library is asked for an application on a target that has it. It counts elements as 32 bits. */
static inline int32_t wn__cudnn_takes(const struct wn__target *t, const struct wn_desc *d)
{
    const int32_t dtype = d->out.dtype;
    if ((t->library / WN_LIBRARY_CONV >> dtype & 1) == 0) return 0;
    if (d->op != WN_OP_CONV2D && d->op != WN_OP_CONV2D_MAP && d->op != WN_OP_CONV2D_DX && d->op != WN_OP_CONV2D_DW)
        return 0;
    for (int32_t i = -1; i < d->n_in; i++) {
        const struct wn_type *x = i < 0 ? &d->out : &d->in[i];
        if (x->dtype != dtype || wn__numel(x) == 0 || wn__numel(x) > INT32_MAX) return 0;
    }
    return 1;
}

/* Returns the bytes of the first part of the workspace, a multiple of 256; 0: the library reads or writes the weight
 * itself. */
static inline int64_t wn__cudnn_packed(const struct wn_desc *d)
{
    const struct wn_type *weight = d->op == WN_OP_CONV2D_DW ? &d->out : &d->in[1];
    const int64_t places = weight->dim[2] * weight->dim[3];
    if (weight->layout == WN_PLAIN && (places == 1 || weight->dim[1] == 1)) return 0;
    return wn_round_up(wn__bytes(weight), 256);
}
#endif
