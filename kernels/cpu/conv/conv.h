/* Convolutions as products: each of the three is a product of matrices one of which is never made.
 *
 * A patch of a pixel of the result is the row of all that the pixel reads: steps k = (tap row, tap column, channel),
 * zeros outside of the image. With patches as rows, and the weight as a matrix,
 *
 *     conv2d     y (pixels, O)         = patches of x (pixels, (kh, kw, c)) times w ((kh, kw, c), O)
 *     conv2d_dx  dx (pixels, C)        = patches of dy (pixels, (kh, kw, o)) times w ((kh, kw, o), C)
 *     conv2d_dw  dw ((kh, kw, c), O)   = patches of x, transposed, times dy (pixels, O)
 *
 * A block of patches is copied to the stack of a thread (patches.c), a k-block of some pixels, and micro-kernels of
 * products (gemm/gemm.h) read it from there; the weight is read in place where it is in panels (weight.c).
 *
 * Every output is one sum over k in ascending order, as in a product: of y over (kh, kw, c), of dx over (kh, kw, o),
 * of dw over pixels (n, p, q). The terms that read outside of the image are zeros in the sum. Its order depends on
 * the description alone. Kernels of one pixel without stride and padding are plain products of the same sums. */
#ifndef WN_CPU_CONV_H
#define WN_CPU_CONV_H
#include "../../../runtime/base/memory_order.h"
#include "../../../runtime/base/number.h"
#include "../../../runtime/base/window.h"
#include "../common/cpu.h"
#include "../element/elementwise.h"
#include "../gemm/driver.h"
#include "epilogue.h"

#define WN_CONV_SMALL 16384                             /* so many multiply-adds are not worth a thread */
#define WN_CONV_KC 144                                  /* words of k of a k-block */
#define WN_CONV_ROWS 128                                /* most pixels of a block, of words of 4 bytes */
#define WN_CONV_SUMS (160 << 10)                        /* bytes of the sums of a block */
#define WN_CONV_PATCHES (WN_CONV_ROWS * WN_CONV_KC * 4) /* bytes */
#define WN_CONV_PACKED (WN_CONV_KC * WN_PANEL * 8)      /* bytes of a packed micro-panel of the weight */

/* Holds all that differs between element types. A word of gemm may have 8 bytes: an element of f64. */
struct wn__conv_words {
    struct wn__gemm_words gemm;
    int64_t cell; /* bytes of an element in a block of patches: bf16 may be widened there */
};
/* Returns what convolutions need to know of a dtype. */
struct wn__conv_words wn__conv_words_of(int32_t dtype);

/* Rows (or columns) of a result, and where each of them reads. Pixel u is pixel out_first + u * out_step of the result.
 * At tap t it reads pixel u * step + first + t * each, and multiplies it by element tap_first + t * tap_step of the
 * kernel. */
struct wn__conv_axis {
    int64_t pixels, out_first, out_step, out_size;
    int64_t size, step, first, each; /* size: of the image that is read */
    int64_t taps, tap_first, tap_step;
};

/* A block of a result: rows [row0, row0 + rows) and columns [column0, column0 + columns) of a group. */
struct wn__conv_block {
    int64_t group, row0, rows, column0, columns;
};

/* One product of patches, for all its tasks. */
struct wn__conv_job {
    struct wn__conv_words words;
    struct wn__conv_axis axis[2];
    int64_t images, groups;
    const char *image;             /* (images, size, size, channels): what patches are of */
    int64_t channels;              /* of a pixel that is read */
    int64_t depth;                 /* channels of a group: steps of a tap */
    int64_t steps;                 /* of k: taps * depth */
    int64_t run, runs;             /* elements of a patch that are contiguous in the image; runs of a row of taps */
    char *out;                     /* (images, out_size, out_size, out_channels) */
    int64_t out_channels, columns; /* columns: channels of a group of the result */
    const struct wn_type *weight;  /* of w, or of dw */
    const char *w;                 /* of conv2d_dw: dy */
    int32_t is_turned;             /* conv2d_dx: columns are the inputs of w */
    const void *bias;
    const struct wn__conv_epilogue *epilogue; /* of y; or NULL */
    /* of the partition */
    int64_t rows, row_block, column_block, row_parts, column_parts;
    void (*run_block)(const struct wn__conv_job *w, const struct wn__conv_block *b);
};

/* Returns the bytes of a word. */
static inline int64_t wn__conv_word(const struct wn__conv_job *w)
{
    return w->words.cell * w->words.gemm.per;
}

/* Divides the columns of a group into blocks of `widest` at most. */
void wn__conv_split(struct wn__conv_job *w, int64_t widest);
/* Divides `rows` rows into blocks of `most` at most, and runs w->run_block for each block, of k steps. Where blocks are
 * few, they are as many as threads share evenly. */
void wn__conv_blocks(struct wn__conv_job *w, int64_t rows, int64_t most, int64_t k);

/* A pixel of a block: the image that it reads, from the first channel of its group on, where tap (0, 0) is, and its
 * number in the result. */
struct wn__conv_pixel {
    const char *image;
    int64_t at[2], out;
};
/* Writes pixels [begin, begin + n) of the result. */
void wn__conv_pixels(const struct wn__conv_job *w, int64_t group, int64_t begin, int64_t n, struct wn__conv_pixel *to);
/* A block of patches: (n, ld) cells at `to`, a row a pixel. */
struct wn__conv_patches {
    const struct wn__conv_pixel *pixels;
    int64_t n, ld;
    char *to;
};
/* Copies steps [k, k + kc) of patches; steps from w->steps on are zeros. */
void wn__conv_patches(const struct wn__conv_job *w, const struct wn__conv_patches *p, int64_t k, int64_t kc);

/* A micro-panel of the weight: steps [k, k + kc), n columns of a group from `column` on. */
struct wn__conv_micropanel {
    int64_t group, k, kc, column, n;
};
/* Returns a micro-panel of the weight, in place or packed to `packed`; *ld becomes the words from row to row. */
const float *wn__conv_weight(const struct wn__conv_job *w, const struct wn__conv_micropanel *m, float *packed,
                             int64_t *ld);
/* Returns where element (o, i, tap) of a weight of type t is, in elements; i is within the group. */
int64_t wn__conv_weight_at(const struct wn_type *t, int64_t o, int64_t i, int64_t tap);

/* Returns the element of the kernel, row-major, that tap number `tap` of the job multiplies. */
int64_t wn__conv_kernel_tap(const struct wn__conv_job *w, int64_t tap);
/* Returns where share i of a micro-panel is: prefetching the WN_PANEL steps from k + i * WN_PANEL on, a line a step of
 * kc, brings it into the caches before it is read or packed. NULL where it is gathered. */
const char *wn__conv_weight_share(const struct wn__conv_job *w, const struct wn__conv_micropanel *m, int64_t i);

/* Memory that will be read soon: `images` times, `above` bytes apart, `rows` rows of `width` bytes, `stride` bytes
 * apart, of which `given` parts were prefetched. */
struct wn__conv_ahead {
    const char *from;
    int64_t images, above, rows, stride, width, given;
};
/* Describes what the patches of pixels [begin, begin + n) read that those before them did not. */
struct wn__conv_ahead wn__conv_ahead(const struct wn__conv_job *w, int64_t group, int64_t begin, int64_t n);
/* Requests that a micro-tile prefetch the next part; returns 0 where there is none. */
int32_t wn__conv_prefetch(const struct wn__conv_job *w, struct wn__conv_ahead *a, struct wn__gemm_microtile *t);

/* Computes CONV2D or CONV2D_DX, with an epilogue over y, or NULL. Returns WN_OK. */
int32_t wn__conv_run(const struct wn_desc *d, const struct wn_buffers *b, const struct wn__conv_epilogue *e);

/* Compute a product of patches: y or dx; dw. */
void wn__conv_images(struct wn__conv_job *w);
void wn__conv_gradient(struct wn__conv_job *w);
/* Computes y or dx where wn__conv_is_winograd (winograd.h). All taps are one pixel apart, in ascending order. */
void wn__conv_winograd(const struct wn__conv_job *w, void *workspace);
/* Computes dw where wn__conv_is_winograd. */
void wn__conv_winograd_dw(const struct wn__conv_job *w);
/* Computes y or dx, or with is_gradient dw, where every group has one channel and one output; returns 0 where not, or
 * where the kernel is too large. */
int32_t wn__conv_depthwise(struct wn__conv_job *w, int32_t is_gradient);
#endif
