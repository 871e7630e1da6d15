/* Blocks of less than a page for values of few elements, so that a bias of 64 numbers takes 256 bytes and no page. */
#ifndef WN_DEVICE_POOL_H
#define WN_DEVICE_POOL_H
#include <stdint.h>

#define WN_POOL_MOST 2048 /* bytes of a block; more takes pages of its own */

void *wn__pool_take(int64_t bytes); /* 256-byte aligned, zeroed, 1 <= bytes <= WN_POOL_MOST; NULL: the system refused */
void wn__pool_give(void *p, int64_t bytes);
#endif
