/* The table of actions (action.h). A row names the ops that pack and unpack, whose rules then give bytes, seconds
 * and workspace, or the medium that bytes are moved to; and the values that it cannot be applied to. */
#include "action.h"
#include <stddef.h>
#include "../ir/costs.h"

struct row {
    const char *name;
    int32_t lossy;
    int32_t pack, unpack; /* the ops; 0: none, for op 0 is a leaf */
    int32_t dtype;        /* the dtype that the packing op is told */
    int32_t is_shaped;    /* 1: the unpacking op is told the value's shape */
    int32_t partial;      /* 1: what it gives back says whether an element is above 0, and no more */
    int32_t medium;       /* enum wn_medium that it moves to, + 1; 0: none */
    const char *(*refuses)(const struct wn__ir *ir, int32_t node);
};

static const char *only_floats(const struct wn__ir *ir, int32_t node)
{
    int32_t dtype = ir->node[node].type.dtype;
    return dtype == WN_F32 || dtype == WN_F64 ? NULL : "is not made of f32 or f64";
}

static const char *whole_pages(const struct wn__ir *ir, int32_t node)
{
    return ir->node[node].bytes >= WN_PAGE ? NULL : "takes less than a page";
}

/* Refuses signs of a value that the backward reads for more than its sign: that reader has or makes the value
 * anyway. */
static const char *only_signs(const struct wn__ir *ir, int32_t node)
{
    return ir->node[node].is_read_whole ? "is read by the backward for more than its sign, and signs would come on top"
                                        : NULL;
}

static const struct row table[WN_DECISION_COUNT] = {
    [WN_DECISION_OFFLOAD] = {.name = "offload", .medium = -1}, /* resolved to one of the next two, by the device */
    [WN_DECISION_OFFLOAD_DISK] = {.name = "offload:disk", .medium = WN_MEDIUM_DISK + 1, .refuses = whole_pages},
    [WN_DECISION_OFFLOAD_HOST] = {.name = "offload:host", .medium = WN_MEDIUM_HOST + 1, .refuses = whole_pages},
    [WN_DECISION_BF16] = {.name = "compress:bf16",
                          .lossy = 1,
                          .pack = WN_OP_CAST,
                          .unpack = WN_OP_CAST,
                          .dtype = WN_BF16,
                          .refuses = only_floats},
    [WN_DECISION_INT8] =
        {.name = "compress:int8", .lossy = 1, .pack = WN_OP_PACK_INT8, .unpack = WN_OP_UNPACK_INT8, .is_shaped = 1},
    [WN_DECISION_BITS] = {.name = "compress:bits",
                          .pack = WN_OP_PACK_SIGN,
                          .unpack = WN_OP_UNPACK_SIGN,
                          .is_shaped = 1,
                          .partial = 1,
                          .refuses = only_signs},
};

static const struct row *row_of(int32_t action)
{
    return action > 0 && action < WN_DECISION_COUNT && table[action].name != NULL ? &table[action] : NULL;
}

const char *wn__action_name(int32_t action)
{
    return row_of(action) == NULL ? NULL : table[action].name;
}

int32_t wn__action_is_lossy(int32_t action)
{
    return row_of(action) != NULL && table[action].lossy;
}

int32_t wn__action_medium(int32_t action)
{
    return row_of(action) == NULL ? -1 : table[action].medium - 1;
}

/* Offloading from a device whose memory is the host's goes to disk. */
int32_t wn__action_resolved(const struct wn__ir *ir, int32_t decision)
{
    if (decision != WN_DECISION_OFFLOAD) return decision;
    return ir->target->is_unified_memory ? WN_DECISION_OFFLOAD_DISK : WN_DECISION_OFFLOAD_HOST;
}

int32_t wn__action_is_partial(int32_t action)
{
    return row_of(action) != NULL && table[action].partial;
}

/* Fills *d with the op that packs a value of this type; its result has no bytes where the op refuses the type. */
static void packed_type(const struct row *r, const struct wn_type *value, struct wn_desc *d)
{
    *d = (struct wn_desc){.op = r->pack, .n_in = 1, .in = value, .attrs = {.dtype = r->dtype}};
    if (wn__op_rules[r->pack]->shape(d) != WN_OK) d->out = (struct wn_type){0};
}

const char *wn__action_refusal(const struct wn__ir *ir, int32_t node, int32_t decision)
{
    const struct wn__ir_node *p = &ir->node[node];
    const struct row *r = row_of(wn__action_resolved(ir, decision));
    if (r == NULL) return "has no such form in this version";
    if (p->result >= 0) return "is asked for as a result, and stays";
    if (p->bound) return "was there before the step, and stays";
    if (p->is_reissued) return "is gathered from ranks, and is saved or gathered again";
    const char *why = r->refuses != NULL ? r->refuses(ir, node) : NULL;
    if (why != NULL || r->medium > 0) return why;
    struct wn_desc d;
    packed_type(r, &p->type, &d);
    return d.out.ndim == 0 && p->type.ndim > 0        ? "has no such form"
           : wn__padded(wn__bytes(&d.out)) < p->bytes ? NULL
                                                      : "takes as many bytes packed";
}

int64_t wn__action_bytes(const struct wn__ir *ir, int32_t node, int32_t action)
{
    struct wn_type t;
    if (wn__action_medium(action) >= 0) return 0; /* an offload buffer takes none of the device's memory */
    wn__action_type(ir, node, action, &t);
    return wn__padded(wn__bytes(&t));
}

/* Signs as bits keep every bit of what they answer; whatever else is asked of the value is computed again. */
int32_t wn__action_may_choose(const struct wn__ir *ir, const struct wn__marks *marks, int32_t node, int32_t action)
{
    if (action != WN_DECISION_BITS && !(marks->allowed >> action & 1)) return 0;
    return ir->node[node].is_residual && marks->decision[node] == WN_DECISION_NONE &&
           wn__action_refusal(ir, node, action) == NULL;
}

int32_t wn__action_of(const struct wn__ir *ir, const struct wn__marks *marks, int32_t node)
{
    int32_t decision = marks->decision[node];
    if (decision <= WN_DECISION_RECOMPUTE || !ir->node[node].is_residual) return 0;
    return wn__action_refusal(ir, node, decision) == NULL ? wn__action_resolved(ir, decision) : 0;
}

void wn__action_type(const struct wn__ir *ir, int32_t node, int32_t action, struct wn_type *out)
{
    const struct row *r = row_of(action);
    struct wn_desc d;
    *out = ir->node[node].type;
    if (r == NULL || r->pack == 0) return;
    packed_type(r, &ir->node[node].type, &d);
    *out = d.out;
}

void wn__action_pack(const struct wn__ir *ir, int32_t node, int32_t action, struct wn_desc *d)
{
    packed_type(row_of(action), &ir->node[node].type, d);
}

void wn__action_unpack(const struct wn__ir *ir, int32_t node, int32_t action, struct wn_type *packed, struct wn_desc *d)
{
    const struct wn_type *value = &ir->node[node].type;
    const struct row *r = row_of(action);
    wn__action_type(ir, node, action, packed);
    *d = (struct wn_desc){.op = r->unpack, .n_in = 1, .in = packed, .out = *value, .attrs = {.dtype = value->dtype}};
    for (int32_t k = 0; k < value->ndim && r->is_shaped; k++) d->attrs.i[d->attrs.n++] = value->dim[k];
}
