/* Makes, copies and frees marks. */
#include "marks.h"
#include <stdio.h>
#include <string.h>

/* Gets the arrays of marks in a pool. WN_OOM. */
static int32_t get_arrays(struct wn__marks *m, int32_t n, struct wn__pool *pool)
{
    return WN_ARRAY(pool, m->decision, n) && WN_ARRAY(pool, m->unit, n) && WN_ARRAY(pool, m->unit_parent, n) ? WN_OK
                                                                                                             : WN_OOM;
}

struct wn__marks *wn__marks_new(int32_t n)
{
    struct wn__pool pool = {0};
    struct wn__marks *m = wn__pool_get(&pool, sizeof *m);
    if (m == NULL || get_arrays(m, n, &pool) != WN_OK) {
        wn__pool_release(&pool);
        return NULL;
    }
    m->pool = pool;
    m->refs = 1;
    return m;
}

void wn__marks_unref(struct wn__marks *m)
{
    if (m == NULL || --m->refs > 0) return;
    struct wn__pool pool = m->pool;
    wn__pool_release(&pool);
}

void wn__marks_set(struct wn__marks *to, const struct wn__marks *from, int32_t n)
{
    memcpy(to->decision, from->decision, (size_t)n * sizeof *to->decision);
    memcpy(to->unit, from->unit, (size_t)n * sizeof *to->unit);
    memcpy(to->unit_parent, from->unit_parent, (size_t)n * sizeof *to->unit_parent);
    to->allowed = from->allowed;
}

int32_t wn__marks_propose(struct wn__marks *m, const char *name, int32_t n, const int32_t *unit, const int32_t *parent,
                          const int32_t *decision)
{
    struct wn__marks *c = wn__pool_get(&m->pool, sizeof *c), **end = &m->proposal;
    if (c == NULL || get_arrays(c, n, &m->pool) != WN_OK) {
        m->proposal = NULL;
        return WN_OOM;
    }
    for (int32_t i = 0; i < n; i++) {
        c->unit[i] = unit != NULL ? unit[i] : 0;
        c->unit_parent[i] = parent != NULL ? parent[i] : 0;
        c->decision[i] = (int8_t)(decision != NULL ? decision[i] : WN_DECISION_NONE);
    }
    c->is_late = unit == NULL;
    snprintf(c->name, sizeof c->name, "%s", name);
    while (*end != NULL) end = &(*end)->next;
    *end = c;
    return WN_OK;
}
