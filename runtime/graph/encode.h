/* A graph's canonical encoding: the bytes by which plans are found again. Local numbers only, so that the
 * same model recorded again gives the same bytes; pointers, random counters, Lua numbers, offsets of narrow and
 * optimizer hyperparameters are bound at run and never written here. Keys compare as bytes; hashes only find them. */
#ifndef WN_GRAPH_ENCODE_H
#define WN_GRAPH_ENCODE_H
#include "graph.h"

struct wn__bytes {
    uint8_t *data;
    int64_t count, capacity;
    int32_t code; /* first failure; later writes do nothing */
};
enum { WN_BYTES_SMALL = 250 };
void wn__bytes_put(struct wn__bytes *b, const void *data, int64_t n);
void wn__bytes_wide(struct wn__bytes *b, int64_t v); /* of any size */
/* Small numbers, which nearly all are, take one byte. */
static inline void wn__bytes_int(struct wn__bytes *b, int64_t v)
{
    if (v >= 0 && v < WN_BYTES_SMALL && b->count < b->capacity) b->data[b->count++] = (uint8_t)v;
    else wn__bytes_wide(b, v);
}
void wn__bytes_type(struct wn__bytes *b, const struct wn_type *t);
void wn__bytes_attrs(struct wn__bytes *b, const struct wn_attrs *a);
/* The attributes of an application, its offset made 0 where the op has one: offsets are bound at run. */
struct wn_attrs wn__attrs_without_offset(int32_t op, const struct wn_attrs *a);
uint64_t wn__bytes_hash(const uint8_t *data, int64_t n);

/* Writes one node of an order whose nodes and cells have their `local` set. Regions are numbered in the order they are met. */
struct wn__regions {
    int32_t *seen; /* ids in order of first sight; local number = place + 1 */
    int64_t count, capacity;
};
int32_t wn__regions_local(struct wn__regions *r, int32_t id, int32_t *local); /* parents first */
void wn__encode_node(struct wn__bytes *b, const struct wn_node *n, struct wn__regions *regions);
void wn__template_encode(struct wn__bytes *b, const struct wn__template *t); /* custom.c */
#endif
