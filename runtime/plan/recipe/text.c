/* Writes recipes as lines of text, and takes them from a script.
 *
 * Numbers of nodes are no names: they change when a state was read earlier, or a gradient is there already. Places do
 * not change: h1, h2, ... hN are the values that the forward computes, in the order in which they were recorded, root
 * by root. So a recipe fits every recording of the same forward, whatever its shapes, tags and addresses, and whether
 * gradients stay or are used up.
 *
 *   block 1: h1-h4     a block's values; blocks follow one another and end where a root ends
 *   Fe 1: h2 h3        keeps these values besides those that every step keeps, and those that later blocks read
 *   Fe 1: h2 offload   keeps the value in the form that an action makes (action.h) until it is read again
 *   Shrink 1           a Free that keeps no more than later blocks read
 *   B 1/2              the backward of block 1 for root 2, which is another than its own
 *   ahead 4            the prefetch budget in eighths (recipe.h)
 *   group 65536        the bytes of exchanges among ranks that start together (recipe.h)
 *
 * A value that every step keeps is not written unless an action keeps it: results, bound inputs, integers. A view is
 * its source's bytes, so it is never named. Text reads back to the same steps. A recipe from a script must obey the
 * rules below, and an error names the step and the rule. Whatever obeys them can be lowered: values that are missing
 * are computed again. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "../../base/status.h"
#include "action.h"
#include "recipe.h"

static const char *const words[] = {"F", "Fe", "Free", "B", "Shrink"};

static int32_t is_kept_unsaid(const struct wn__ir *ir, int32_t v)
{
    const struct wn__ir_node *p = &ir->node[v];
    return p->result >= 0 || p->bound || (wn__ir_flags(ir, v) & WN_INDEX) != 0;
}

static int32_t is_output(const struct wn__ir *ir, const struct wn__recipe *r, int32_t v)
{
    return r->last[v] >= r->limit[r->block_of[v]] && !ir->node[v].is_reissued && !wn__ir_is_alias(ir, v);
}

/* ---- writing ---------------------------------------------------------------------------------------------- */

struct text {
    char *at;
    int64_t n, room;
};

static void say(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    t->n += vsnprintf(t->at + t->n, (size_t)(t->room - t->n), format, args);
    va_end(args);
}

static int32_t action_at(const struct wn__recipe *r, const struct wn__recipe_step *s, int32_t k)
{
    return r->action == NULL ? 0 : r->action[s->keep_at + k];
}

/* Returns whether a step is a Free that keeps all values that a block gives to later ones, and nothing else. */
static int32_t is_shrink(const struct wn__ir *ir, const struct wn__recipe *r, const struct wn__recipe_step *s)
{
    int32_t k = 0, n = 0;
    if (s->kind != WN_STEP_FREE) return 0;
    for (int32_t i = 0; i < s->n_keep; i++)
        if (action_at(r, s, i) != 0) return 0;
    for (int32_t v = r->first[s->block]; v < r->limit[s->block]; v++) {
        if (r->block_of[v] != s->block || wn__ir_is_alias(ir, v) || is_kept_unsaid(ir, v)) continue;
        while (k < s->n_keep && r->keep[s->keep_at + k] < v) k++;
        int32_t kept = k < s->n_keep && r->keep[s->keep_at + k] == v;
        if (kept != is_output(ir, r, v)) return 0;
        n += kept;
    }
    return n > 0;
}

/* Writes the line of a step. */
static void say_step(struct text *t, const struct wn__ir *ir, const struct wn__recipe *r,
                     const struct wn__recipe_step *s, const int32_t *place)
{
    int32_t shrinks = is_shrink(ir, r, s), said = 0;
    say(t, "%s %d", shrinks ? "Shrink" : words[s->kind], s->block + 1);
    if (s->root != ir->node[r->first[s->block]].root) say(t, "/%d", s->root + 1);
    for (int32_t k = 0; k < s->n_keep; k++) {
        int32_t v = r->keep[s->keep_at + k], unsaid = s->kind != WN_STEP_FREE || shrinks;
        const char *action = wn__action_name(action_at(r, s, k));
        if (wn__ir_is_alias(ir, v)) continue;
        if (action == NULL && (is_kept_unsaid(ir, v) || (unsaid && is_output(ir, r, v)))) continue;
        say(t, "%s h%d%s%s", said++ ? "" : ":", place[v], action ? " " : "", action ? action : "");
    }
    say(t, "\n");
}

/* Fills the place of each node, from 1; 0: it is no value of the forward. Returns how many places there are. place:
 * (ir->n). */
static int32_t find_places(const struct wn__ir *ir, int32_t *place)
{
    int32_t n = 0;
    for (int32_t i = 0; i < ir->n; i++) place[i] = wn__ir_is_forward(ir, i) ? ++n : 0;
    return n;
}

int32_t wn__recipe_text(const struct wn__ir *ir, const struct wn__recipe *r, struct wn__pool *pool, char **out)
{
    struct text t = {.room = 40 * ((int64_t)r->n_blocks + r->n) + 32 * (int64_t)r->n_keep + 64};
    int32_t *place;
    if (!WN_ARRAY(pool, t.at, t.room) || !WN_ARRAY(pool, place, ir->n)) return WN_OOM;
    find_places(ir, place);
    for (int32_t b = 0; b < r->n_blocks; b++)
        say(&t, "block %d: h%d-h%d\n", b + 1, place[r->first[b]], place[r->limit[b] - 1]);
    if (r->prefetch != WN__PREFETCH) say(&t, "ahead %d\n", r->prefetch);
    if (r->group != WN__GROUP) say(&t, "group %lld\n", (long long)r->group);
    for (int32_t i = 0; i < r->n; i++) say_step(&t, ir, r, &r->step[i], place);
    *out = t.at;
    return WN_OK;
}

/* ---- reading: the rules ------------------------------------------------------------------------------------- */

struct reading {
    const struct wn__ir *ir;
    const struct wn_recipe_given *g;
    struct wn__recipe *r;
    int32_t *place; /* (ir->n) the place of each node, from 1; 0: none */
    int32_t *node;  /* (n_values) the node of place k + 1 */
    uint8_t *held;  /* (ir->n) 1: a value that the steps so far have kept */
    uint8_t *ran;   /* (n_blocks) 1: the block's forward has run */
    int32_t n_values;
    int32_t at, root, next; /* number of the step; its root; the block that goes backward next */
};

/* Fails with WN_ILLEGAL, naming rule and step. */
static int32_t refuse(const struct reading *c, const char *rule, const char *format, ...)
{
    char why[200];
    const struct wn_recipe_step *s = &c->g->step[c->at];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    const char *word = s->what >= 0 && s->what < WN_STEP_COUNT ? words[s->what] : "?";
    return wn__fail(WN_ILLEGAL, "recipe: step %d (%s %d): rule '%s': %s", c->at + 1, word, s->block, rule, why);
}

static int32_t root_of(const struct reading *c, int32_t block)
{
    return c->ir->node[c->r->first[block]].root;
}

static int32_t last_block(const struct reading *c, int32_t root)
{
    int32_t b = c->r->n_blocks - 1;
    while (b >= 0 && root_of(c, b) != root) b--;
    return b;
}

/* Checks rule 'block' and reads the blocks: they cover the forward in order, none is empty, none is in two roots. */
static int32_t read_blocks(struct reading *c)
{
    struct wn__recipe *r = c->r;
    int32_t from = 0;
    for (int32_t b = 0; b < c->g->n_blocks; b++) {
        int32_t to = c->g->limit[b];
        if (to <= from || to > c->n_values)
            return wn__fail(WN_ILLEGAL, "recipe: rule 'block': block %d is h%d to h%d; the forward has %d values",
                            b + 1, from + 1, to, c->n_values);
        r->first[b] = c->node[from];
        r->limit[b] = c->node[to - 1] + 1;
        for (int32_t i = from; i < to; i++) {
            r->block_of[c->node[i]] = b;
            if (c->ir->node[c->node[i]].root != c->ir->node[c->node[from]].root)
                return wn__fail(WN_ILLEGAL, "recipe: rule 'block': h%d of block %d is of another root than h%d", i + 1,
                                b + 1, from + 1);
        }
        r->n_blocks++;
        from = to;
    }
    if (from == c->n_values) return WN_OK;
    return wn__fail(WN_ILLEGAL, "recipe: rule 'block': the blocks end at h%d; the forward has %d values", from,
                    c->n_values);
}

/* Checks rule 'action': the action can be applied to the value. An offloaded value
 * may be read by what is computed again alone; a packed one must be read by a backward. */
static int32_t check_action(const struct reading *c, int32_t h, int32_t v, int32_t action)
{
    if (action == 0) return WN_OK;
    const char *name = wn__action_name(action), *why = wn__action_refusal(c->ir, v, action);
    if (why != NULL) return refuse(c, "action", "h%d %s: it %s", h, name != NULL ? name : "", why);
    if (c->ir->node[v].is_residual || wn__action_medium(wn__action_resolved(c->ir, action)) >= 0) return WN_OK;
    return refuse(c, "action", "h%d %s: no backward reads it", h, name != NULL ? name : "");
}

/* Checks rule 'keep': a named value is of the block and has bytes of its own; and rule 'held': a Free keeps values
 * that are there. */
static int32_t check_named(const struct reading *c, const struct wn_recipe_step *s)
{
    for (int32_t k = 0; k < s->n_keep; k++) {
        int32_t h = c->g->keep[s->keep_at + k], from = c->place[c->r->first[s->block - 1]];
        int32_t to = c->place[c->r->limit[s->block - 1] - 1];
        if (h < from || h > to) return refuse(c, "keep", "it names h%d; the block has h%d to h%d", h, from, to);
        int32_t v = c->node[h - 1];
        if (k > 0 && h <= c->g->keep[s->keep_at + k - 1]) return refuse(c, "keep", "it names h%d twice, or late", h);
        if (wn__ir_is_alias(c->ir, v)) {
            int32_t source = c->place[wn__ir_storage(c->ir, v)];
            return source > 0 ? refuse(c, "keep", "h%d is a view of h%d; name that", h, source)
                              : refuse(c, "keep", "h%d is a view of what is there anyway", h);
        }
        if (c->ir->node[v].is_reissued && c->ir->node[v].op != WN_OP_ALL_GATHER)
            return refuse(c, "keep",
                          "h%d is a copy of a state, cast or laid out, which is issued again where it is read", h);
        if (s->what == WN_STEP_FREE && !c->held[v] && !is_kept_unsaid(c->ir, v))
            return refuse(c, "held", "h%d is not there: no step before it has kept it", h);
        WN_TRY(check_action(c, h, v, c->g->action[s->keep_at + k]));
    }
    return WN_OK;
}

/* Reads the keep set of a step: the values that it names and those that it must keep anyway. */
static int32_t read_keep(struct reading *c, const struct wn_recipe_step *s)
{
    struct wn__recipe *r = c->r;
    int32_t b = s->block - 1, n = 0, k = 0;
    WN_TRY(check_named(c, s));
    WN_TRY(wn__recipe_room(r, r->limit[b] - r->first[b]));
    for (int32_t v = r->first[b]; v < r->limit[b]; v++) {
        if (r->block_of[v] != b || wn__ir_is_alias(c->ir, v)) continue;
        int32_t named = k < s->n_keep && c->g->keep[s->keep_at + k] == c->place[v];
        int32_t action = named ? wn__action_resolved(c->ir, c->g->action[s->keep_at + k++]) : 0;
        int32_t by_kind = s->what != WN_STEP_FREE && is_output(c->ir, r, v);
        c->held[v] = (uint8_t)(named || by_kind || is_kept_unsaid(c->ir, v));
        if (c->held[v]) wn__recipe_keep(r, n++, v, action);
    }
    int32_t frees = s->what == WN_STEP_FREE || s->what == WN_STEP_SHRINK;
    int32_t kind = frees ? WN_STEP_FREE : s->what;
    return wn__recipe_put(r, kind, b, c->root, n);
}

/* Checks rule 'end': a root's backward is whole before the next root begins. */
static int32_t check_end(const struct reading *c)
{
    if (!c->ir->has_backward || c->next < 0) return WN_OK;
    return wn__fail(WN_ILLEGAL, "recipe: rule 'end': after step %d root %d ends, before B %d%s", c->at, c->root + 1,
                    c->next + 1, c->ran[c->next] ? "" : ", which was not run forward either");
}

/* Checks rule 'order': forwards come before the backward, and blocks go backward from the last to the first. */
static int32_t check_backward(const struct reading *c, int32_t block)
{
    if (block != c->next)
        return c->next < 0 ? refuse(c, "order", "every block of its root went backward already")
                           : refuse(c, "order", "B %d is next", c->next + 1);
    for (int32_t b = 0; b < c->r->n_blocks; b++)
        if (root_of(c, b) == c->root && !c->ran[b])
            return refuse(c, "order", "block %d was not run forward yet", b + 1);
    return WN_OK;
}

/* Checks a step by every rule and adds it to the recipe. */
static int32_t read_step(struct reading *c)
{
    const struct wn_recipe_step *s = &c->g->step[c->at];
    if (s->block < 1 || s->block > c->r->n_blocks)
        return refuse(c, "block", "there is no block %d; there are %d", s->block, c->r->n_blocks);
    int32_t b = s->block - 1, root = s->root > 0 ? s->root - 1 : root_of(c, b);
    if (s->what < 0 || s->what >= WN_STEP_COUNT) return refuse(c, "kind", "there is no step of kind %d", s->what);
    if (root < c->root || root >= c->ir->n_roots)
        return refuse(c, "root", "root %d comes after root %d", root + 1, c->root + 1);
    if (root < root_of(c, b)) return refuse(c, "root", "root %d does not reach the block", root + 1);
    if (root > c->root) {
        WN_TRY(check_end(c));
        c->root = root;
        c->next = last_block(c, root);
    }
    if (s->what == WN_STEP_B) {
        WN_TRY(check_backward(c, b));
        c->next = b - 1;
        return wn__recipe_put(c->r, WN_STEP_B, b, root, 0);
    }
    int32_t frees = s->what == WN_STEP_FREE || s->what == WN_STEP_SHRINK;
    if (frees && !c->ran[b]) return refuse(c, "held", "the block was not run yet, nothing of it is there");
    c->ran[b] = 1;
    return read_keep(c, s);
}

/* Reads blocks and steps, and checks that the last root has ended. */
static int32_t read_all(struct reading *c)
{
    if (c->g->prefetch < -1 || c->g->prefetch > 8)
        return wn__fail(WN_ILLEGAL, "recipe: rule 'ahead': it says %d; eighths are 0 to 8", c->g->prefetch);
    c->r->prefetch = c->g->prefetch < 0 ? WN__PREFETCH : c->g->prefetch;
    if (c->g->group < -1)
        return wn__fail(WN_ILLEGAL, "recipe: rule 'group': it says %lld; expected bytes, 0 or more",
                        (long long)c->g->group);
    c->r->group = c->g->group < 0 ? WN__GROUP : c->g->group;
    WN_TRY(read_blocks(c));
    wn__recipe_serve(c->ir, c->r);
    wn__ir_last_readers(c->ir, c->r->last);
    c->next = last_block(c, 0);
    for (c->at = 0; c->at < c->g->n_steps; c->at++) WN_TRY(read_step(c));
    WN_TRY(check_end(c));
    int32_t most = c->r->n_blocks > 0 ? root_of(c, c->r->n_blocks - 1) : 0;
    if (c->root == most) return WN_OK;
    return wn__fail(WN_ILLEGAL, "recipe: rule 'end': it ends after root %d of %d", c->root + 1, most + 1);
}

int32_t wn__recipe_read(const struct wn__ir *ir, const struct wn_recipe_given *g, struct wn__recipe *r)
{
    struct wn__pool scratch = {0};
    struct reading c = {.ir = ir, .g = g, .r = r};
    WN_TRY(wn__recipe_make(ir, g->n_blocks, r));
    int32_t code = WN_ARRAY(&scratch, c.place, ir->n) && WN_ARRAY(&scratch, c.node, ir->n) &&
                           WN_ARRAY(&scratch, c.held, ir->n) && WN_ARRAY(&scratch, c.ran, g->n_blocks)
                       ? WN_OK
                       : WN_OOM;
    if (code == WN_OK) {
        c.n_values = find_places(ir, c.place);
        for (int32_t i = 0; i < ir->n; i++) {
            r->block_of[i] = -1;
            if (c.place[i] > 0) c.node[c.place[i] - 1] = i;
        }
        code = read_all(&c);
    }
    wn__pool_release(&scratch);
    return code;
}
