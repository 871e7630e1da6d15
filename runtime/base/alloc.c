/* Counted host memory: see alloc.h. Uses malloc's own notion of a block's size, so no header is added. Everything here
 * is called from the one thread of the library at a time. */
#include "alloc.h"
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include "status.h"

static int64_t live_bytes;
static int64_t fail_in; /* 0: off; 1: the next attempt fails */

int32_t wn__alloc_must_fail(void)
{
    if (fail_in == 0) return 0;
    return --fail_in == 0;
}

void wn__alloc_fail_nth(int64_t n)
{
    fail_in = n > 0 ? n : 0;
}

int64_t wn__alloc_fails_in(void)
{
    return fail_in;
}

int64_t wn__alloc_host_bytes(void)
{
    return live_bytes;
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
    return p;
}

void wn__free(void *p)
{
    if (p == NULL) return;
    live_bytes -= (int64_t)malloc_usable_size(p);
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

struct wn__pool_chunk {
    struct wn__pool_chunk *next;
    int64_t used, size;
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
