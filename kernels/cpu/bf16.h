/* bf16 on the CPU: a value is its f32 formula on the exactly converted inputs, rounded once. Loops are not written
 * twice. An elementwise kernel widens a tile of its operands, runs its f32 loop and rounds the tile back; a kernel that
 * needs whole rows runs on f32 copies in its workspace (workspace.c says how many bytes). */
#ifndef WN_CPU_BF16_H
#define WN_CPU_BF16_H
#include <stdint.h>
#include "../kernel.h"

/* Elements of a tile: three of f32 leave room in a first cache of 32 KiB. On a Zen 5 core with AVX-512 a tile is
 * widened in 35 ns and rounded in 60. */
#define WN_TILE 1024

/* (n) each; the two never overlap. */
void wn__widen(float *to, const uint16_t *from, int64_t n);
void wn__round(uint16_t *to, const float *from, int64_t n);

/* The kernel that copies, calls the f32 kernel and rounds the result; NULL when no input or result is bf16, or f32 has
 * no kernel. Only for ops whose case in workspace.c is that of f32 copies. */
wn_kernel_fn wn__cpu_copies_kernel(const struct wn_desc *d);
#endif
