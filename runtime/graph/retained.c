/* The values that a script retained and that no program has computed yet: a program with a backward computes those that
 * hang off its graph. They are not counted: a node leaves the list when it is freed or held. */
#include "../base/alloc.h"
#include "graph.h"

static struct wn__retained *list;
static int64_t capacity, count;

int32_t wn__retained_add(struct wn_node *n, const void *by)
{
    if (n->retained_at > 0) return WN_OK;
    WN_TRY(wn__grow(&list, &capacity, count + 1, sizeof *list));
    list[count++] = (struct wn__retained){n, by};
    n->retained_at = (int32_t)count;
    return WN_OK;
}

void wn__retained_remove(struct wn_node *n)
{
    if (n->retained_at == 0) return;
    list[n->retained_at - 1] = list[--count];
    list[n->retained_at - 1].node->retained_at = n->retained_at;
    n->retained_at = 0;
}

void wn__retained_forget(const void *by)
{
    for (int64_t i = count - 1; i >= 0; i--)
        if (list[i].by == by) wn__retained_remove(list[i].node);
}

int64_t wn__retained(const struct wn__retained **out)
{
    *out = list;
    return count;
}
