/* Winograd's convolutions F(2 x 2, 3 x 3), and F(3 x 3, 2 x 2) for dw (Lavin and Gray, "Fast Algorithms for
 * Convolutional Neural Networks", 2015): which applications they compute, and the scratch that they take. Both follow
 * from the description alone, so the bits depend on neither class, threads nor machine.
 *
 * A tile of 2 x 2 outputs takes 16 multiplications a channel instead of 36; but tiles hold more pixels than an image of
 * odd size, and the weight, or M of dw, is transformed too.
 * Measured, time against products of patches, one thread, Zen 4, 512 > 512: at 7, whose tiles hold 1.31 times as many
 * pixels: 128 tiles: y 0.78x, dx 0.83x, dw 0.78x; 256 tiles: 0.73x, 0.69x; 512 tiles: 0.72x, 0.62x, dw 0.9x. At 4, 64
 * tiles: 0.83x, 0.78x, 0.7x. */
#ifndef WN_CPU_CONV_WINOGRAD_H
#define WN_CPU_CONV_WINOGRAD_H
#include "../../../runtime/base/opcode.h"
#include "../../../runtime/base/window.h"

#define WN_WINOGRAD_CHANNELS 32 /* least, of the image and of the result; both are multiples of WN_PANEL_UNIT */
#define WN_WINOGRAD_TILES 128   /* least; twice as many where they hold over 6/5 as many pixels as the result */

/* Returns whether an application with the window w is computed so: 3 x 3, stride 1, dilation 1, one group. */
static inline int32_t wn__conv_is_winograd(int32_t op, int32_t dtype, const struct wn__window *w)
{
    if (dtype != WN_F32 || w->groups != 1) return 0;
    for (int32_t k = 0; k < 2; k++)
        if (w->kernel[k] != 3 || w->stride[k] != 1 || w->dilation[k] != 1) return 0;
    if (w->c < WN_WINOGRAD_CHANNELS || w->c % WN_PANEL_UNIT != 0) return 0;
    if (w->o < WN_WINOGRAD_CHANNELS || w->o % WN_PANEL_UNIT != 0) return 0;
    const int64_t *size = op == WN_OP_CONV2D_DX ? w->in : w->out;
    const int64_t each = ((size[0] + 1) / 2) * ((size[1] + 1) / 2), tiles = w->n * each, pixels = size[0] * size[1];
    if (5 * 4 * each <= 6 * pixels) return tiles >= WN_WINOGRAD_TILES;
    return op != WN_OP_CONV2D_DW && 3 * 4 * each <= 4 * pixels && tiles >= 2 * WN_WINOGRAD_TILES;
}

/* Returns the bytes of the transformed weight of CONV2D and CONV2D_DX: (16, c, o) f32. */
static inline int64_t wn__conv_winograd_bytes(const struct wn__window *w)
{
    return 16 * w->c * w->o * (int64_t)sizeof(float);
}
#endif
