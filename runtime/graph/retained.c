/* The values that a script retained and that no program has computed yet: a program with a backward computes those that
 * hang off its graph. They are not counted: a node leaves the list when it is freed or held. */
#include "../base/alloc.h"
#include "graph.h"

static struct wn_node **list;
static int64_t capacity, count;

int32_t wn__retained_add(struct wn_node *n)
{
    if (n->retained_at > 0) return WN_OK;
    WN_TRY(wn__grow(&list, &capacity, count + 1, sizeof *list));
    list[count++] = n;
    n->retained_at = (int32_t)count;
    return WN_OK;
}

void wn__retained_remove(struct wn_node *n)
{
    if (n->retained_at == 0) return;
    struct wn_node *last = list[--count];
    list[n->retained_at - 1] = last;
    last->retained_at = n->retained_at;
    n->retained_at = 0;
}

int64_t wn__retained(struct wn_node *const **out)
{
    *out = list;
    return count;
}
