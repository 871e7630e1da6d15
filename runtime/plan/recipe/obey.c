/* Makes a recipe obey decisions of 'recompute'. Proposals of the planner keep what crosses the edges of their blocks
 * until the backward; a value whose decision is 'recompute' must not be there then. Right before the first backward
 * step of a root every block lets go of such values, so each lives until its last forward reader and is computed
 * again when the backward asks for it. Every recipe on its way into the list of plans passes here, so no plan of the
 * list breaks a decision: 'save' and the actions are part of every keep set already (wn__recipe_always_keeps). */
#include <string.h>
#include "recipe.h"

static int32_t has_word(const struct wn__ir *ir, const struct wn__marks *marks)
{
    for (int32_t k = 0; k < ir->n_residuals; k++)
        if (wn__recipe_must_go(ir, marks, ir->residual[k])) return 1;
    return 0;
}

/* Adds a Free of a block to `out` if the block's latest step, number `at`, keeps values that must go. Returns the
 * number of the block's latest step then. */
static int32_t put_free(const struct wn__ir *ir, const struct wn__marks *marks, struct wn__recipe *out, int32_t at,
                        int32_t *code)
{
    struct wn__recipe_step s = out->step[at];
    int32_t n = 0;
    *code = wn__recipe_room(out, s.n_keep);
    if (*code != WN_OK) return at;
    for (int32_t k = s.keep_at; k < s.keep_at + s.n_keep; k++)
        if (!wn__recipe_must_go(ir, marks, out->keep[k])) wn__recipe_keep(out, n++, out->keep[k], out->action[k]);
    if (n == s.n_keep) return at;
    *code = wn__recipe_put(out, WN_RECIPE_FREE, s.block, s.root, n);
    return out->n - 1;
}

static int32_t put_step(const struct wn__recipe *r, const struct wn__recipe_step *s, struct wn__recipe *out)
{
    WN_TRY(wn__recipe_room(out, s->n_keep));
    for (int32_t k = 0; k < s->n_keep; k++) wn__recipe_keep(out, k, r->keep[s->keep_at + k], r->action[s->keep_at + k]);
    return wn__recipe_put(out, s->kind, s->block, s->root, s->n_keep);
}

/* Copies the steps of r to `out`, with the frees. latest: (n_blocks) the latest step of `out` that ran a block or
 * let go of a part of it; -1: none. */
static int32_t copy_obeying(const struct wn__ir *ir, const struct wn__marks *marks, const struct wn__recipe *r,
                            int32_t *latest, struct wn__recipe *out)
{
    int32_t in_backward = 0, code = WN_OK;
    for (int32_t b = 0; b < r->n_blocks; b++) latest[b] = -1;
    for (int32_t i = 0; i < r->n; i++) {
        const struct wn__recipe_step *s = &r->step[i];
        if (i > 0 && s->root != r->step[i - 1].root) in_backward = 0;
        for (int32_t b = 0; b < r->n_blocks && s->kind == WN_RECIPE_B && !in_backward && code == WN_OK; b++)
            if (latest[b] >= 0) latest[b] = put_free(ir, marks, out, latest[b], &code);
        in_backward |= s->kind == WN_RECIPE_B;
        if (code == WN_OK) code = put_step(r, s, out);
        if (code != WN_OK) return code;
        if (s->kind != WN_RECIPE_B) latest[s->block] = out->n - 1;
    }
    return WN_OK;
}

int32_t wn__recipe_obey(const struct wn__ir *ir, const struct wn__marks *marks, struct wn__recipe *r)
{
    if (!has_word(ir, marks)) return WN_OK;
    struct wn__recipe out;
    wn__recipe_begin(r, &out);
    out.pool = r->pool;
    int32_t *latest;
    int32_t code = WN_ARRAY(&out.pool, latest, r->n_blocks) ? copy_obeying(ir, marks, r, latest, &out) : WN_OOM;
    *r = out;
    return code;
}
