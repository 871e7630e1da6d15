/* The canonical encoding of a graph: the bytes by which plans are found again. Nodes, cells and regions are written
 * by local numbers, so that the same model recorded again gives the same bytes. Pointers, random counters, numbers
 * of the host, offsets of narrow and the numbers of optimizers are bound at run and never written, except the offsets
 * of slices that may tile their value (tiles.c). Two keys are equal when their bytes are; a hash only finds them. */
#ifndef WN_GRAPH_ENCODE_H
#define WN_GRAPH_ENCODE_H
#include "graph.h"

/* Bytes that are written one after the other. */
struct wn__bytes {
    uint8_t *data;
    int64_t count, capacity;
    int32_t code; /* first failure; later writes do nothing */
};
enum { WN_BYTES_SMALL = 250 }; /* numbers from 0 to below it take one byte, others nine: 255, then 8 bytes */
void wn__bytes_put(struct wn__bytes *b, const void *data, int64_t n);
/* Writes a number of any size. */
void wn__bytes_wide(struct wn__bytes *b, int64_t v);
/* Writes a number. Nearly all of them are small and take one byte, without a call. */
static inline void wn__bytes_int(struct wn__bytes *b, int64_t v)
{
    if (v >= 0 && v < WN_BYTES_SMALL && b->count < b->capacity) b->data[b->count++] = (uint8_t)v;
    else wn__bytes_wide(b, v);
}
void wn__bytes_type(struct wn__bytes *b, const struct wn_type *t);
void wn__bytes_attrs(struct wn__bytes *b, const struct wn_attrs *a);
/* Returns the attributes of an application with 0 for the offset, where the op has one: offsets are bound at run. */
struct wn_attrs wn__attrs_without_offset(int32_t op, const struct wn_attrs *a);
uint64_t wn__bytes_hash(const uint8_t *data, int64_t n);

/* The regions of a graph, numbered in the order in which they are met. */
struct wn__regions {
    int32_t *seen; /* (count) ids; the local number of seen[i] is i + 1 */
    int64_t count, capacity;
};
/* Fills *local with the local number of a region, and numbers it after its parents if it is new; 0 for no region. */
int32_t wn__regions_local(struct wn__regions *r, int32_t id, int32_t *local);
/* Writes one node of an order. Requires `local` of the order's nodes and cells. */
void wn__encode_node(struct wn__bytes *b, const struct wn_node *n, struct wn__regions *regions);
/* Writes where the slices of an order, (count), begin that leave no place of a dim of their value out. Requires `local`
 * of the nodes; overwrites `slice`. */
void wn__tiles_encode(struct wn__bytes *b, struct wn_node *const *order, int64_t count);
/* Writes a gradient that a script gave (custom.c). */
void wn__template_encode(struct wn__bytes *b, const struct wn__template *t);
#endif
