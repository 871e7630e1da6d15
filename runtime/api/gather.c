/* The API of batches: draws pieces of a value, which are the examples of a batch, over the bytes of a batch before it.
 * The batch before it has no bytes from then on, so that no use of it can read the numbers of a later one. */
#include "api.h"

#define BLOCK 65536 /* bytes that are written at once */

/* Widens n bytes, which are the last of 4 n bytes, to n integers over all of them: each is read before its place is
 * written. */
static void widen(unsigned char *bytes, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int32_t v = bytes[3 * n + i];
        __builtin_memcpy(bytes + 4 * i, &v, sizeof v);
    }
}

/* Elements on their way into a value, from its first byte on: pieces are written together, block by block. */
struct gathering {
    struct wn_node *to;
    int64_t written, used; /* bytes */
    unsigned char block[BLOCK];
};

static int32_t gather_write(struct gathering *g)
{
    WN_TRY(wn__value_write(g->to, g->written, g->block, g->used));
    g->written += g->used;
    g->used = 0;
    return WN_OK;
}

/* Appends `length` elements of `size` bytes of a value, from element `from` on. u8 becomes i32 where that is asked
 * for. */
static int32_t gather_piece(struct gathering *g, int32_t value, int64_t from, int64_t length, int64_t size)
{
    int64_t own = wn__dtype_size(g->to->type.dtype);
    for (int64_t done = 0, n; done < length; done += n) {
        if (g->used == BLOCK) WN_TRY(gather_write(g));
        int64_t room = (BLOCK - g->used) / own;
        n = length - done < room ? length - done : room;
        unsigned char *to = g->block + g->used;
        WN_TRY(wn_read_part(value, (from + done) * size, to + n * (own - size), n * size));
        if (own != size) widen(to, n);
        g->used += n * own;
    }
    return WN_OK;
}

/* Checks that n pieces of `length` elements, which lie in a value of type `from`, make a value that has bytes. */
static int32_t check_pieces(const struct wn_node *to, const struct wn_type *from, const int64_t *start, int64_t n,
                            int64_t length)
{
    int64_t all = wn__numel(from), given;
    if (to->held == NULL && to->stale) return wn__node_lost(to, NULL);
    if (to->op != WN_OP_DATA || to->held == NULL)
        return wn__fail(WN_VALUE, "gather: into %s, which is no data with bytes", wn__type_text(&to->type));
    if (to->type.dtype != from->dtype && !(to->type.dtype == WN_I32 && from->dtype == WN_U8))
        return wn__fail(WN_DTYPE, "gather: %s into %s; the dtypes must be equal, or bytes go into i32",
                        wn__type_text(from), wn__type_text(&to->type));
    if (n < 0 || length < 0 || wn__mul(n, length, &given) != WN_OK || given != wn__numel(&to->type))
        return wn__fail(WN_SHAPE, "gather: %lld pieces of %lld do not make %s", (long long)n, (long long)length,
                        wn__type_text(&to->type));
    for (int64_t i = 0; i < n; i++)
        if (start[i] < 0 || start[i] > all - length)
            return wn__fail(WN_VALUE, "gather: %lld elements from element %lld of %s", (long long)length,
                            (long long)start[i], wn__type_text(from));
    return WN_OK;
}

/* Makes data of the type of `old` in its bytes, which it loses; in bytes of its own where those are retained. */
static int32_t draw_over(struct wn_node *old, struct wn_node **out)
{
    struct wn_node *n = wn__leaf_new(WN_OP_DATA, &old->type, old->device);
    int32_t code = n == NULL ? WN_OOM : WN_OK;
    if (code == WN_OK && old->retain)
        code = wn__buffer_new(old->device, WN_KIND_INPUT, wn__bytes(&old->type), &n->held);
    if (code != WN_OK) {
        wn__node_unref(n);
        return code;
    }
    n->name = old->name;
    n->is_held = 1;
    *out = n;
    if (old->retain) return WN_OK;
    n->held = old->held;
    old->held = NULL;
    old->stale = 1;
    return WN_OK;
}

int32_t wn_gather(int32_t data, int32_t value, const int64_t *start, int64_t n, int64_t length)
{
    struct wn_info info;
    struct wn_node *old = wn__handle_get(data, WN_HANDLE_VALUE);
    if (old == NULL) return -WN_VALUE;
    int32_t code = wn__check_array(start, n, INT32_MAX, "gather: pieces");
    if (code == WN_OK) code = wn_info(value, &info);
    if (code == WN_OK && (!info.held || (wn__handle_kind(value) == WN_HANDLE_VALUE && info.op == WN_OP_CONST)))
        code = wn__fail(WN_VALUE, "gather: %s holds nothing yet; run it first", wn__type_text(&info.type));
    if (code == WN_OK) code = check_pieces(old, &info.type, start, n, length);
    if (code == WN_OK && value != data) code = wn_read_part(value, 0, NULL, 0); /* before the bytes change hands */
    struct gathering g = {.to = NULL};
    if (code == WN_OK) code = draw_over(old, &g.to);
    for (int64_t i = 0; i < n && code == WN_OK; i++)
        code = gather_piece(&g, value, start[i], length, wn__dtype_size(info.type.dtype));
    if (code == WN_OK) code = gather_write(&g);
    return wn__handle_of(code, WN_HANDLE_VALUE, g.to);
}
