/* Host memory: makes counted, zeroed allocations, growing arrays and pools. Every host allocation of the library is
 * made here, so that it is counted and can be made to fail (WANE_FAIL_ALLOC=n, or wn_debug "fail_alloc"): the specs
 * make each one fail once. */
#ifndef WN_BASE_ALLOC_H
#define WN_BASE_ALLOC_H
#include <stddef.h>
#include <stdint.h>

/* Returns `bytes` zeroed bytes, at least 1, which wn__free frees. NULL: the message of WN_OOM is set. */
void *wn__alloc(int64_t bytes);
/* Frees what wn__alloc returned, or nothing for NULL. */
void wn__free(void *p);
/* Returns free pages of the C library to the system, where it can do that; called at the end of large work. */
void wn__alloc_trim(void);

/* Makes room for `need` elements of `element` bytes in a growing array. `array` is the address of the pointer,
 * *capacity the elements there is room for; the capacity doubles, starts at 8, and new elements are zeroed. WN_OOM
 * leaves both as they were. */
int32_t wn__grow(void *array, int64_t *capacity, int64_t need, size_t element);

/* Counts one attempt against the failure switch and returns 1 if this attempt must fail. wn__alloc asks it, and whoever
 * takes bytes of a device. */
int32_t wn__alloc_must_fail(void);
extern int64_t wn__alloc_fails_in; /* attempts until one fails, that one counted: 1 fails the next; 0: none does */
/* Returns the bytes of all live host allocations. malloc may give an allocation some bytes more than the next time, so
 * the same allocations differ by a few bytes each; their number, which wn__alloc_count returns, is exact. */
int64_t wn__alloc_host_bytes(void);
int64_t wn__alloc_count(void);

/* An allocator for the many small arrays of a plan, which frees all of them at once. A zeroed struct is an empty pool.
 *
 *   chunks -> [ used ... | free ] -> [ used ........ ] -> [ used ........ ] -> NULL
 *              newest chunk: new     older chunks: full for the size that was asked for when the next one was made
 *              arrays come from here
 */
struct wn__pool {
    struct wn__pool_chunk *chunks; /* the newest first; NULL: empty */
    int64_t bytes;                 /* of all chunks' data, used or not */
};
/* Returns zeroed bytes on a 16-byte boundary that live until wn__pool_release. NULL: the message of WN_OOM is set. */
void *wn__pool_get(struct wn__pool *p, int64_t bytes);
/* Takes zeroed room for n + 1 elements of an array from a pool, assigns it to `array`, and says whether it is there; if
 * not, the message of WN_OOM is set. */
#define WN_ARRAY(pool, array, n) (((array) = wn__pool_get((pool), ((n) + 1) * (int64_t)sizeof *(array))) != NULL)
/* Frees everything the pool returned, and leaves an empty pool. */
void wn__pool_release(struct wn__pool *p);
#endif
