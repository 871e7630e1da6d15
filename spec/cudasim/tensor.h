/* Tensor cores and asynchronous copies on the simulated device, under the names that the kernels' wrappers of PTX have:
 * each function is one instruction, and every lane of a warp calls it.
 *
 * A warp holds a 16x8 matrix f32 and a 16x16 or 16x8 matrix bf16 in its registers. With g = lane / 4 and t = lane % 4,
 * by the PTX manual ("Matrix Fragments for mma.m16n8k16"):
 *
 *   d[i]   is element (g + 8 (i / 2), 2 t + i % 2) of D, (16, 8)
 *   a[r]   is elements (g + 8 (r % 2), 2 t + 8 (r / 2)) and the next of A, (16, 16); the low half is the first
 *   b[r]   is elements (2 t + 8 r, g) and the one below of B, (16, 8)
 *
 * A copy lands as late as its wait allows, so that a missing wait shows; at once where threads run ahead
 * (WN_SIM_AHEAD), so that a buffer that is still read shows; and early or late by chance where they are shuffled. */
#ifndef WN_SIM_TENSOR_H
#define WN_SIM_TENSOR_H
#include <stdint.h>

/* Adds A B to D, mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32. Each element is one sum in f32 in the
 * order of k; a GPU adds several products at once, so the last bits of a sum differ there. */
void wn__mma_bf16_16816(float d[4], const uint32_t a[4], const uint32_t b[2]);

/* Loads four 8x8 matrices of 16-bit elements, ldmatrix.sync.aligned.m8n8.x4. row: in shared memory, on 16 bytes; lane l
 * gives row l % 8 of matrix l / 8. r[m] becomes elements (g, 2 t) and (g, 2 t + 1) of matrix m. */
void wn__ldmatrix_x4(uint32_t r[4], const void *row);
/* Loads four such matrices transposed: r[m] becomes elements (2 t, g) and (2 t + 1, g) of matrix m. */
void wn__ldmatrix_x4_trans(uint32_t r[4], const void *row);

/* Begins a copy of 16 bytes to shared memory, cp.async.cg.shared.global. Both addresses are multiples of 16. */
void wn__cp_async16(void *shared, const void *global);
/* Begins a copy of 4 bytes, cp.async.ca.shared.global. Both addresses are multiples of 4. */
void wn__cp_async4(void *shared, const void *global);
/* Begins one of 16 bytes, or one of zeros where is_real is false: nothing is read then. */
void wn__cp_async16_or_zeros(void *shared, const void *global, bool is_real);
/* Makes one group of the thread's copies since the last commit. */
void wn__cp_async_commit(void);
/* Waits until at most `newest` groups of the thread are under way. */
void wn__sim_wait_copies(int newest);
template <int N> static inline void wn__cp_async_wait(void)
{
    wn__sim_wait_copies(N);
}

/* Asks for an element of global memory, prefetch.global.L2, which is counted and moves nothing. */
void wn__prefetch(const void *global);

/* Forgets all copies under way: a block of `threads` begins. */
void wn__sim_forget_copies(unsigned threads);
/* Lands the copies of a thread that ends without having waited for them. */
void wn__sim_end_copies(void);
#endif
