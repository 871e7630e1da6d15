/* Every host allocation of the library goes through here, so that it is counted and can be made to fail
 * (WANE_FAIL_ALLOC=n, or wn_debug "fail_alloc"): the suite fails each one once. Memory is zeroed. */
#ifndef WN_BASE_ALLOC_H
#define WN_BASE_ALLOC_H
#include <stddef.h>
#include <stdint.h>

void *wn__alloc(int64_t bytes); /* NULL: WN_OOM is set */
void wn__free(void *p);         /* NULL is fine */
/* Gives pages that hold nothing any more back to the system, where the C library can; for the end of large work. */
void wn__alloc_trim(void);

/* Makes room for `need` elements in a growing array; the new part is zeroed. WN_OOM leaves it as it was. */
int32_t wn__grow(void *array /* address of the pointer */, int64_t *capacity, int64_t need, size_t element);

/* Counts one attempt against the failure switch; 1 when this one must fail. Devices ask it too. */
int32_t wn__alloc_must_fail(void);
void wn__alloc_fail_nth(int64_t n); /* 1: the next; 0: off */
int64_t wn__alloc_fails_in(void);   /* 0: the failure asked for has happened, or none was */
int64_t wn__alloc_host_bytes(void); /* live */

/* A pool frees everything it gave at once; for the many small arrays of a plan. */
struct wn__pool {
    struct wn__pool_chunk *chunks;
    int64_t bytes;
};
void *wn__pool_get(struct wn__pool *p, int64_t bytes); /* zeroed, 16-byte aligned; NULL: WN_OOM is set */
void wn__pool_release(struct wn__pool *p);
#endif
