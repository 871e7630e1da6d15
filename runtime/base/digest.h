/* Digests of bytes: FNV-1a of 64 bits (Fowler, Noll and Vo), by which two lots of bytes are told apart. It is no guard
 * against someone who wants two to be alike. */
#ifndef WN_BASE_DIGEST_H
#define WN_BASE_DIGEST_H
#include <stdint.h>

#define WN_DIGEST_START UINT64_C(0xcbf29ce484222325) /* of no bytes */

/* Returns the digest `state` with n bytes folded in. */
static inline uint64_t wn__digest(uint64_t state, const void *bytes, int64_t n)
{
    const uint8_t *at = bytes;
    for (int64_t i = 0; i < n; i++) state = (state ^ at[i]) * UINT64_C(0x100000001b3);
    return state;
}
#endif
