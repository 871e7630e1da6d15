/* Writes the encoding of encode.h. Everything that may differ between two programs that must not share a plan is
 * written: ops, types with their layouts, attributes, scopes, regions by local numbers. */
#include "encode.h"
#include <string.h>
#include "../base/alloc.h"

void wn__bytes_put(struct wn__bytes *b, const void *data, int64_t n)
{
    if (b->code != WN_OK || n == 0) return;
    WN_KEEP(b->code, wn__grow(&b->data, &b->capacity, b->count + n, 1));
    if (b->code != WN_OK) return;
    memcpy(b->data + b->count, data, (size_t)n);
    b->count += n;
}

void wn__bytes_wide(struct wn__bytes *b, int64_t v)
{
    if (v >= 0 && v < WN_BYTES_SMALL) {
        uint8_t small = (uint8_t)v;
        wn__bytes_put(b, &small, 1);
    } else {
        uint8_t wide[9] = {255};
        memcpy(wide + 1, &v, sizeof v);
        wn__bytes_put(b, wide, sizeof wide);
    }
}

void wn__bytes_type(struct wn__bytes *b, const struct wn_type *t)
{
    wn__bytes_int(b, t->dtype);
    wn__bytes_int(b, t->ndim);
    wn__bytes_int(b, t->layout);
    for (int32_t i = 0; i < t->ndim; i++) wn__bytes_int(b, t->dim[i]);
}

void wn__bytes_attrs(struct wn__bytes *b, const struct wn_attrs *a)
{
    static const struct wn_attrs none;
    if (memcmp(a, &none, sizeof none) == 0) {
        wn__bytes_int(b, 0);
        return;
    }
    wn__bytes_int(b, 1);
    wn__bytes_int(b, a->n);
    wn__bytes_int(b, a->dtype);
    wn__bytes_int(b, a->layout);
    for (int32_t i = 0; i < WN_MAX_DIMS; i++) wn__bytes_int(b, a->i[i]);
    wn__bytes_put(b, a->f, sizeof a->f);
}

struct wn_attrs wn__attrs_without_offset(int32_t op, const struct wn_attrs *a)
{
    struct wn_attrs out = *a;
    if (wn__op_has_offset(op)) out.i[WN_OFFSET_AT] = 0;
    return out;
}

/* Writes the parents of regions[known ..), which were met since, so that nesting is part of the key even where a region
 * holds no node of its own. */
static void encode_regions(struct wn__bytes *b, struct wn__regions *regions, int64_t known)
{
    for (int64_t i = known; i < regions->count && b->code == WN_OK; i++) {
        int32_t parent = 0;
        WN_KEEP(b->code, wn__regions_local(regions, wn__region_parent(regions->seen[i]), &parent));
        wn__bytes_int(b, parent);
    }
}

uint64_t wn__bytes_hash(const uint8_t *data, int64_t n)
{
    uint64_t h = 14695981039346656037u, word;
    for (; n >= 8; n -= 8, data += 8) {
        memcpy(&word, data, 8);
        h = (h ^ word) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    }
    for (; n > 0; n--) h = (h ^ *data++) * 1099511628211u;
    return h;
}

int32_t wn__regions_local(struct wn__regions *r, int32_t id, int32_t *local)
{
    *local = 0;
    if (id == 0) return WN_OK;
    for (int64_t i = r->count - 1; i >= 0; i--) {
        if (r->seen[i] != id) continue;
        *local = (int32_t)i + 1;
        return WN_OK;
    }
    int32_t parent;
    WN_TRY(wn__regions_local(r, wn__region_parent(id), &parent));
    WN_TRY(wn__grow(&r->seen, &r->capacity, r->count + 1, sizeof *r->seen));
    r->seen[r->count++] = id;
    *local = (int32_t)r->count;
    return WN_OK;
}

void wn__encode_node(struct wn__bytes *b, const struct wn_node *n, struct wn__regions *regions)
{
    int32_t region, leaf = wn__node_is_leaf(n) || n->closed;
    wn__bytes_int(b, n->closed || (leaf && n->is_held) ? WN_OP_DATA : n->op);
    wn__bytes_int(b, n->needs_grad | n->is_held << 1 | n->retain << 2 | (n->name != NULL) << 3);
    if (n->name != NULL) wn__bytes_put(b, &n->name, sizeof n->name); /* interned: one address a name */
    if (leaf || n->is_held) wn__bytes_type(b, &n->type);
    if (n->op == WN_OP_CELL) wn__bytes_int(b, n->cell->local);
    if (leaf) return;
    int64_t known = regions->count;
    WN_KEEP(b->code, wn__regions_local(regions, n->region, &region));
    if (b->code != WN_OK) return;
    struct wn_attrs attrs = wn__attrs_without_offset(n->op, &n->attrs);
    wn__bytes_attrs(b, &attrs);
    wn__bytes_int(b, n->scope);
    wn__bytes_int(b, region);
    encode_regions(b, regions, known);
    wn__bytes_int(b, n->n_in);
    if (n->custom != NULL) wn__template_encode(b, n->custom);
    for (int32_t i = 0; i < n->n_in; i++) wn__bytes_int(b, n->local - n->in[i]->local);
}
