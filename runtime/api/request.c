/* Turns the handles of a request, with which a script opens a program, into pointers. The request was checked, so
 * its counts and its mode fit each other; only handles and memory may fail here. */
#include "api.h"

static int32_t resolve_roots(const struct wn_request *r, struct wn_node **root, struct wn_cell **cell, int32_t *n)
{
    for (; *n < r->n_roots; ++*n) WN_TRY(wn__handle_value(r->roots[*n], &root[*n]));
    for (int32_t i = 0; i < r->n_cells; i++) {
        cell[i] = wn__handle_get(r->cells[i], WN_HANDLE_CELL);
        if (cell[i] == NULL) return WN_VALUE;
    }
    return WN_OK;
}

static int32_t resolve_update(const struct wn_update *u, struct wn__program_update *out)
{
    out->op = u->op;
    out->hyper = wn__handle_get(u->hyper, WN_HANDLE_HYPER);
    if (out->hyper == NULL) return WN_VALUE;
    for (int32_t k = 0; k < 3; k++) {
        if (u->cell[k] < 0) continue;
        out->cell[k] = wn__handle_get(u->cell[k], WN_HANDLE_CELL);
        if (out->cell[k] == NULL) return WN_VALUE;
    }
    return WN_OK;
}

int32_t wn__request_resolve(const struct wn_request *r, struct wn__program_request *out)
{
    int64_t roots = r->n_roots * (int64_t)sizeof(struct wn_node *);
    int64_t cells = r->n_cells * (int64_t)sizeof(struct wn_cell *);
    char *memory = wn__alloc(roots + cells + r->n_updates * (int64_t)sizeof(struct wn__program_update) + 1);
    if (memory == NULL) return WN_OOM;
    struct wn_node **root = (struct wn_node **)memory;
    struct wn_cell **cell = (struct wn_cell **)(memory + roots);
    struct wn__program_update *update = (struct wn__program_update *)(memory + roots + cells);
    *out = (struct wn__program_request){.mode = r->mode,
                                        .joint = r->joint,
                                        .n_also = r->n_also,
                                        .again = r->again,
                                        .target = r->target,
                                        .scale = r->scale,
                                        .clip = r->clip,
                                        .policy = r->policy,
                                        .n_updates = r->n_updates,
                                        .root = root,
                                        .cell = cell,
                                        .update = update};
    WN_TRY(resolve_roots(r, root, cell, &out->n_roots));
    for (int32_t i = 0; i < r->n_updates; i++) WN_TRY(resolve_update(&r->updates[i], &update[i]));
    return WN_OK;
}

void wn__request_release(struct wn__program_request *resolved)
{
    for (int32_t i = 0; i < resolved->n_roots; i++) wn__node_unref(resolved->root[i]);
    wn__free((void *)resolved->root);
}
