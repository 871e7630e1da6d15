/* Declares what the other files tell the watch over memory (hooks.cpp), which one build has: make cudasim-hooks
 * defines WN_SIM_WATCHED and compiles the kernels with -fsanitize=thread, so that they call a function at every load
 * and store. Elsewhere these do nothing. */
#ifndef WN_SIM_HOOKS_H
#define WN_SIM_HOOKS_H
#include <stddef.h>

#ifdef WN_SIM_WATCHED
/* A launch begins: what was touched before it is done. */
void wn__sim_hooks_launch(const char *kernel);
/* A block begins, or has ended. */
void wn__sim_hooks_block(void);
void wn__sim_hooks_block_end(void);
/* The threads of the block have met at a barrier, or the lanes `mask` of a warp in a warp operation. */
void wn__sim_hooks_barrier(void);
void wn__sim_hooks_warp(unsigned warp, unsigned mask);
/* The running thread reads or writes memory in a function of the simulator. */
void wn__sim_hooks_touch(const void *p, size_t bytes, bool is_write);
/* The running thread begins a copy to shared memory at a place of the kernel; from: NULL for zeros. Sectors and banks
 * are those of the lanes that begin it together, whenever it lands. */
void wn__sim_hooks_copy(const void *to, const void *from, size_t bytes, const void *place);
/* A copy of the running thread lands. */
void wn__sim_hooks_land(const void *to, const void *from, size_t bytes);
#else
static inline void wn__sim_hooks_launch(const char *)
{
}
static inline void wn__sim_hooks_block(void)
{
}
static inline void wn__sim_hooks_block_end(void)
{
}
static inline void wn__sim_hooks_barrier(void)
{
}
static inline void wn__sim_hooks_warp(unsigned, unsigned)
{
}
static inline void wn__sim_hooks_touch(const void *, size_t, bool)
{
}
static inline void wn__sim_hooks_copy(const void *, const void *, size_t, const void *)
{
}
static inline void wn__sim_hooks_land(const void *, const void *, size_t)
{
}
#endif
#endif
