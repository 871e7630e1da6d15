/* Counts host memory and holds the failure switch: see alloc.h. The count takes malloc's own size of an allocation
 * (malloc_usable_size), so no allocation carries a header. Only the thread that owns the library calls these functions,
 * so the counters need no lock. */
#include "alloc.h"
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include "status.h"

static int64_t live_bytes; /* bytes that are allocated now, as malloc counts them */
static int64_t live_count; /* allocations that live_bytes are of */
int64_t wn__alloc_fails_in;

int32_t wn__alloc_must_fail(void)
{
    return wn__alloc_fails_in > 0 && --wn__alloc_fails_in == 0;
}

int64_t wn__alloc_host_bytes(void)
{
    return live_bytes;
}

int64_t wn__alloc_count(void)
{
    return live_count;
}

void *wn__alloc(int64_t bytes)
{
    void *p = bytes < 0 || wn__alloc_must_fail() ? NULL : calloc(1, bytes > 0 ? (size_t)bytes : 1);
    if (p == NULL) {
        wn__fail(WN_OOM, "out of host memory: %lld bytes were asked for; free values you no longer need",
                 (long long)bytes);
        return NULL;
    }
    live_bytes += (int64_t)malloc_usable_size(p);
    live_count++;
    return p;
}

void wn__free(void *p)
{
    if (p == NULL) return;
    live_bytes -= (int64_t)malloc_usable_size(p);
    live_count--;
    free(p);
}

void wn__alloc_trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

int32_t wn__grow(void *array, int64_t *capacity, int64_t need, size_t element)
{
    void **slot = array;
    if (need <= *capacity) return WN_OK;
    int64_t wanted = *capacity < 8 ? 8 : *capacity;
    while (wanted < need) wanted *= 2;
    void *p = wn__alloc(wanted * (int64_t)element);
    if (p == NULL) return WN_OOM;
    if (*slot != NULL) memcpy(p, *slot, (size_t)*capacity * element);
    wn__free(*slot);
    *slot = p;
    *capacity = wanted;
    return WN_OK;
}

/* One allocation of a pool. Invariant: 0 <= used <= size, and bytes from `used` on are zero and belong to nobody. */
struct wn__pool_chunk {
    struct wn__pool_chunk *next; /* the chunk before it, which is full; NULL: it is the first one */
    int64_t used, size;          /* bytes of `data`: handed out, always a multiple of 16; there */
    _Alignas(16) unsigned char data[];
};

void *wn__pool_get(struct wn__pool *p, int64_t bytes)
{
    struct wn__pool_chunk *c = p->chunks;
    bytes = (bytes + 15) & ~(int64_t)15;
    if (c == NULL || c->size - c->used < bytes) {
        int64_t size = bytes > 16384 ? bytes : 16384;
        c = wn__alloc((int64_t)sizeof *c + size);
        if (c == NULL) return NULL;
        c->size = size;
        c->next = p->chunks;
        p->chunks = c;
        p->bytes += size;
    }
    void *out = c->data + c->used;
    c->used += bytes;
    return out;
}

void wn__pool_release(struct wn__pool *p)
{
    while (p->chunks != NULL) {
        struct wn__pool_chunk *next = p->chunks->next;
        wn__free(p->chunks);
        p->chunks = next;
    }
    p->bytes = 0;
}
