/* Plans an open program: makes a schedule of its decisions - a recipe from a script, a point of the frontier, or a
 * policy's decisions - on one road. */
#include <string.h>
#include "../base/alloc.h"
#include "../base/outside.h"
#include "../device/device.h"
#include "program.h"

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
        *out = wn__cache_find_schedule(ir, text);
        if (*out == NULL) code = make_schedule(ir, r, text, out);
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

int32_t wn__program_frontier(struct wn_program *p, wn_look look)
{
    return p->frontier != NULL ? WN_OK : wn__frontier_make(p->ir, p->marks, look, &p->frontier);
}

int32_t wn__program_by_recipe(struct wn_program *p, const struct wn_recipe_given *g)
{
    struct wn__recipe r;
    int32_t code = wn__recipe_read(p->ir, g, &r);
    wn__recipe_release(code == WN_OK ? &p->by_recipe : &r);
    if (code == WN_OK) p->by_recipe = r;
    return code;
}

int32_t wn__program_plan(struct wn_program *p)
{
    if (p->schedule != NULL) return WN_OK;
    if (p->by_recipe.block_of != NULL) WN_TRY(plan_recipe(p->ir, &p->by_recipe, &p->schedule));
    else if (p->chosen > 0) WN_TRY(plan_recipe(p->ir, &p->frontier->point[p->chosen - 1].recipe, &p->schedule));
    else WN_TRY(plan_marks(p->ir, p->marks, &p->schedule));
    WN_TRY(wn__cache_put(&p->key, p->ir, p->marks, p->schedule));
    p->put_plan = 1;
    return WN_OK;
}

enum { LARGE = 10000 }; /* nodes from which on a plan leaves many pages free when it is forgotten */

void wn__program_plan_forget(struct wn_program *p)
{
    if (p->put_plan) wn__cache_forget(&p->key);
    p->put_plan = 0;
    if (p->ir->n >= LARGE) wn__alloc_trim();
}

int32_t wn__program_decide_by(struct wn_program *p, int64_t policy)
{
    if (p->ran) return wn__fail(WN_VALUE, "plan: the program ran already; open another one");
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
    p->schedule = NULL;
    p->put_plan = p->chosen = 0;
    p->policy = policy;
    memcpy(p->key.data, &policy, sizeof policy); /* a key begins with the policy (open.c) */
    return WN_OK;
}
