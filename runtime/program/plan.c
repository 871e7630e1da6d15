/* Plans an open program: makes a schedule of its decisions - a recipe from a script, a point of the frontier, or a
 * policy's decisions - on one road.
 *
 * The cache (plan/ir/cache.h) finds a plan by two keys. The first is of the request: graph, tags, policy, budget; it
 * finds IR and schedule at once. The second is of the IR without tags, and the recipe: it finds the schedule of another
 * request that decides the same. What is found is counted, so that a plan in use outlives its entry. */
#include <string.h>
#include "../base/alloc.h"
#include "../base/outside.h"
#include "../device/device.h"
#include "../plan/ir/cache.h"
#include "program.h"

/* ---- the cache ---------------------------------------------------------------------------------------- */

struct kept {
    const struct wn__ir *ir;
    struct wn__marks *marks;
    struct wn__schedule *schedule;
};

static struct wn__cache_key request_key(const struct wn__bytes *key)
{
    return (struct wn__cache_key){WN_CACHED_PLAN, {key->data, NULL}, {key->count, 0}};
}

static struct wn__cache_key schedule_key(const struct wn__ir *ir, const char *recipe)
{
    return (struct wn__cache_key){WN_CACHED_SCHEDULE, {ir->key, recipe}, {ir->key_bytes, (int64_t)strlen(recipe)}};
}

static void drop_plan(void *thing)
{
    struct kept *p = thing;
    wn__ir_unref(p->ir);
    wn__marks_unref(p->marks);
    wn__schedule_unref(p->schedule);
    wn__free(p);
}

static void drop_schedule(void *thing)
{
    wn__schedule_unref(thing);
}

void wn__plan_find(struct wn__plan *p)
{
    const struct wn__cache_key k = request_key(&p->key);
    const struct kept *found = wn__cached(&k);
    if (found == NULL) return;
    p->ir = wn__ir_ref(found->ir);
    p->marks = found->marks;
    p->schedule = found->schedule;
    p->marks->refs++;
    p->schedule->refs++;
}

/* Adds a plan under its key, unless the key has one. WN_OOM. */
static int32_t put_plan(const struct wn__plan *p)
{
    struct wn__schedule *s = p->schedule;
    const struct wn__cache_key request = request_key(&p->key), by_recipe = schedule_key(p->ir, s->recipe);
    if (wn__cached(&request) != NULL) return WN_OK;
    struct kept *kept = wn__alloc(sizeof *kept);
    if (kept == NULL) return WN_OOM;
    *kept = (struct kept){wn__ir_ref(p->ir), p->marks, s};
    p->marks->refs++;
    s->refs++;
    int32_t code = WN_OK;
    if (wn__cached(&by_recipe) == NULL) {
        s->refs++;
        code = wn__cache_keep(&by_recipe, s, 0, drop_schedule); /* its bytes are counted with the plan */
    }
    int64_t bytes = p->ir->pool.bytes + p->marks->pool.bytes + s->pool.bytes;
    if (code == WN_OK) return wn__cache_keep(&request, kept, bytes, drop_plan);
    drop_plan(kept);
    return code;
}

/* Drops the plan of a key, if there is one. */
static void forget_plan(const struct wn__bytes *key)
{
    const struct wn__cache_key request = request_key(key);
    const struct kept *kept = wn__cached(&request);
    if (kept == NULL) return;
    const struct wn__cache_key by_recipe = schedule_key(kept->ir, kept->schedule->recipe);
    if (wn__cached(&by_recipe) == kept->schedule) wn__cache_drop(&by_recipe);
    wn__cache_drop(&request);
}

/* ---- making schedules --------------------------------------------------------------------------------- */

/* Asks the device for the kernel of every instruction, and for what a library prepares, which may change workspaces. */
static int32_t bind_kernels(const struct wn__ir *ir, struct wn__schedule *s)
{
    struct wn_device *d = wn__device(ir->device);
    for (int32_t i = 0; i < s->n; i++) {
        struct wn__instr *n = &s->instr[i];
        if (!wn__instr_has_kernel(n)) continue;
        struct wn__applied room;
        const struct wn_desc *desc = wn__instr_kernel_desc(ir, s, n, &room);
        n->kernel = d->kernel(d, desc);
        if (n->kernel == NULL)
            return wn__fail(WN_UNSUPPORTED, "%s of %s is not in this version on %s; %s", wn__op_said(desc->op),
                            wn__type_text(&desc->out), d->name,
                            desc->out.dtype == WN_F32 ? "run it on another device, with :to('cpu')"
                                                      : "cast with :to('f32') or :to('f64')");
        WN_TRY(d->prepare(d, desc, &n->work_bytes, &n->made));
        n->work_bytes = wn__padded(n->work_bytes);
    }
    return WN_OK;
}

/* Makes and verifies the schedule of a recipe, whose text it keeps. */
static int32_t make_schedule(const struct wn__ir *ir, const struct wn__recipe *r, const char *text,
                             struct wn__schedule **out)
{
    WN_TRY(wn__compile(ir, r, bind_kernels, WN__PLACE_FULLY, out));
    int64_t length = (int64_t)strlen(text);
    int32_t code = WN_ARRAY(&(*out)->pool, (*out)->recipe, length) ? wn__verify(ir, *out) : WN_OOM;
    if (code == WN_OK) memcpy((*out)->recipe, text, (size_t)length);
    if (code == WN_OK) return WN_OK;
    wn__schedule_unref(*out);
    *out = NULL;
    return code;
}

/* Fills the schedule of a recipe: one of the cache that was made of the same IR and decisions, or a new one. */
static int32_t plan_recipe(const struct wn__ir *ir, const struct wn__recipe *r, struct wn__schedule **out)
{
    struct wn__pool scratch = {0};
    char *text = NULL;
    int32_t code = wn__recipe_text(ir, r, &scratch, &text);
    if (code == WN_OK) {
        const struct wn__cache_key key = schedule_key(ir, text);
        *out = wn__cached(&key);
        if (*out != NULL) (*out)->refs++;
        else code = make_schedule(ir, r, text, out);
    }
    wn__pool_release(&scratch);
    return code;
}

static int32_t plan_marks(const struct wn__ir *ir, const struct wn__marks *marks, struct wn__schedule **out)
{
    struct wn__recipe recipe = {0};
    int32_t code = wn__recipe_compile(ir, marks, &recipe);
    if (code == WN_OK) code = plan_recipe(ir, &recipe, out);
    wn__recipe_release(&recipe);
    return code;
}

int32_t wn__plan_make(struct wn__plan *p)
{
    if (p->schedule != NULL) return WN_OK;
    if (p->by_recipe.block_of != NULL) WN_TRY(plan_recipe(p->ir, &p->by_recipe, &p->schedule));
    else if (p->chosen > 0) WN_TRY(plan_recipe(p->ir, &p->frontier->point[p->chosen - 1].recipe, &p->schedule));
    else WN_TRY(plan_marks(p->ir, p->marks, &p->schedule));
    WN_TRY(put_plan(p));
    p->is_put = 1;
    return WN_OK;
}

enum { LARGE = 10000 }; /* nodes from which on a plan leaves many pages free when it is forgotten */

void wn__plan_forget(struct wn__plan *p, int32_t is_any)
{
    if (p->is_put || is_any) forget_plan(&p->key);
    p->is_put = 0;
    if (p->ir->n >= LARGE) wn__alloc_trim();
}

int32_t wn__program_decide_by(struct wn_program *program, int64_t policy)
{
    struct wn__plan *p = &program->plan;
    if (program->run.ran) return wn__fail(WN_VALUE, "plan: the program ran already; open another one");
    if (p->marks->refs > 1) {
        struct wn__marks *own = wn__marks_new(p->ir->n);
        if (own == NULL) return WN_OOM;
        wn__marks_set(own, p->marks, p->ir->n);
        wn__marks_unref(p->marks);
        p->marks = own;
        wn__frontier_unref(p->frontier); /* its proposals went; it is found again once they are made again */
        p->frontier = NULL;
    }
    wn__schedule_unref(p->schedule);
    wn__recipe_release(&p->by_recipe);
    p->schedule = NULL;
    p->is_put = p->chosen = 0;
    program->request.policy = policy;
    memcpy(p->key.data, &policy, sizeof policy); /* a key begins with the policy (open.c) */
    return WN_OK;
}
