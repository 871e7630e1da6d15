/* bf16 on the CPU: a result is the f32 formula on inputs converted exactly, rounded once. No loop is written twice: an
 * elementwise kernel converts a tile of its operands, runs its f32 loop and rounds the tile; a kernel that needs whole
 * rows runs on f32 copies in its workspace (workspace.c). */
#ifndef WN_CPU_BF16_H
#define WN_CPU_BF16_H
#include <stdint.h>
#include "../../kernel.h"

/* Elements of a tile: three f32 tiles leave room in a first-level cache of 32 KiB.
 * Measured: a tile is converted to f32 in 35 ns and rounded in 60 ns (Zen 5, AVX-512). */
#define WN_TILE 1024

/* Convert n elements to f32, or round them to bf16; to and from do not overlap. */
void wn__widen(float *to, const uint16_t *from, int64_t n);
void wn__round(uint16_t *to, const float *from, int64_t n);

/* Returns the kernel that copies to f32, calls the f32 kernel and rounds the result; NULL where nothing is bf16, or f32
 * has no kernel. Requires an op whose case in workspace.c is that of f32 copies. */
wn_kernel_fn wn__cpu_copies_kernel(const struct wn_desc *d);
#endif
