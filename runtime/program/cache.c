/* Keeps plans in the cache of plan/ir/cache.h: IR and schedule of a request, and the schedule by what made it. Both are
 * counted, so that a plan in use outlives its entry. */
#include "program.h"
#include <string.h>
#include "../base/alloc.h"
#include "../plan/ir/cache.h"

struct plan {
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
    struct plan *p = thing;
    wn__ir_unref(p->ir);
    wn__marks_unref(p->marks);
    wn__schedule_unref(p->schedule);
    wn__free(p);
}

static void drop_schedule(void *thing)
{
    wn__schedule_unref(thing);
}

const struct wn__ir *wn__cache_find(const struct wn__bytes *key, struct wn__marks **marks,
                                    struct wn__schedule **schedule)
{
    const struct wn__cache_key k = request_key(key);
    const struct plan *p = wn__cached(&k);
    if (p == NULL) return NULL;
    p->marks->refs++;
    p->schedule->refs++;
    *marks = p->marks;
    *schedule = p->schedule;
    return wn__ir_ref(p->ir);
}

struct wn__schedule *wn__cache_find_schedule(const struct wn__ir *ir, const char *recipe)
{
    const struct wn__cache_key k = schedule_key(ir, recipe);
    struct wn__schedule *s = wn__cached(&k);
    if (s != NULL) s->refs++;
    return s;
}

int32_t wn__cache_put(const struct wn__bytes *key, const struct wn__ir *ir, struct wn__marks *marks,
                      struct wn__schedule *s)
{
    const struct wn__cache_key request = request_key(key), by_recipe = schedule_key(ir, s->recipe);
    if (wn__cached(&request) != NULL) return WN_OK;
    struct plan *p = wn__alloc(sizeof *p);
    if (p == NULL) return WN_OOM;
    *p = (struct plan){wn__ir_ref(ir), marks, s};
    marks->refs++;
    s->refs++;
    int32_t code = WN_OK;
    if (wn__cached(&by_recipe) == NULL) {
        s->refs++;
        code = wn__cache_keep(&by_recipe, s, 0, drop_schedule); /* its bytes are counted with the plan */
    }
    int64_t bytes = ir->pool.bytes + marks->pool.bytes + s->pool.bytes;
    if (code == WN_OK) return wn__cache_keep(&request, p, bytes, drop_plan);
    drop_plan(p);
    return code;
}

void wn__cache_forget(const struct wn__bytes *key)
{
    const struct wn__cache_key request = request_key(key);
    const struct plan *p = wn__cached(&request);
    if (p == NULL) return;
    const struct wn__cache_key by_recipe = schedule_key(p->ir, p->schedule->recipe);
    if (wn__cached(&by_recipe) == p->schedule) wn__cache_drop(&by_recipe);
    wn__cache_drop(&request);
}
