/* Blocks of less than a page, for values of few elements: a bias of 64 numbers takes 256 bytes, not a page. */
#ifndef WN_DEVICE_POOL_H
#define WN_DEVICE_POOL_H
#include <stdint.h>

#define WN_POOL_MOST 2048 /* bytes of the largest block; a larger value takes pages of its own */

/* Returns a block of 1 <= bytes <= WN_POOL_MOST, aligned to 256 bytes and cleared; NULL where the system refused. */
void *wn__pool_take(int64_t bytes);
/* Gives a block back; bytes: as given to wn__pool_take. */
void wn__pool_give(void *p, int64_t bytes);
#endif
