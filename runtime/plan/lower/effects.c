/* Where effects stand: each as early as it may - its value is there, and every read of the state's old version
 * (tied uses, values computed again, the gradient of the input) has been issued. Early, so that a gradient an
 * optimizer consumes dies at once. */
#include <string.h>
#include "lower.h"

static int32_t cell_of(const struct wn__lowering *l, int32_t value)
{
    const struct wn__ir_node *p = &l->f->node[l->value[value].node];
    return p->leaf == WN_LEAF_CELL ? p->slot : -1;
}

/* made[value]: one past the item that makes it; read[slot]: one past the last item that reads the cell. */
static void find_times(const struct wn__lowering *l, int32_t *made, int32_t *read)
{
    for (int64_t i = 0; i < l->n_items; i++) {
        const struct wn__item *it = &l->item[i];
        if (it->out >= 0) made[it->out] = (int32_t)i + 1;
        if (it->what == WN_DO_WAIT) made[l->in[it->in_at + 1]] = (int32_t)i + 1; /* there once it has arrived */
        for (int32_t k = 0; k < it->n_in; k++) {
            int32_t slot = cell_of(l, l->in[it->in_at + k]);
            if (slot >= 0) read[slot] = (int32_t)i + 1;
        }
    }
}

/* The value an effect reads as input k. */
static int32_t copy_read(const struct wn__lowering *l, int32_t node, int32_t k)
{
    int32_t noted = l->effect_in[node - (l->f->n - l->f->n_effects)];
    return noted >= 0 ? l->in[noted + k] : l->cur[wn__ir_storage(l->f, wn__ir_in(l->f, node, k))];
}

static int32_t effect_time(const struct wn__lowering *l, int32_t node, const int32_t *made, const int32_t *read)
{
    const struct wn__ir_node *p = &l->f->node[node];
    int32_t time = 0;
    for (int32_t k = 0; k < p->n_in; k++) {
        int32_t at = made[copy_read(l, node, k)];
        if (at > time) time = at;
    }
    for (int32_t k = 0; k < 3; k++)
        if (p->cell[k] >= 0 && read[p->cell[k]] > time) time = read[p->cell[k]];
    return time;
}

int32_t wn__lower_effects(struct wn__lowering *l)
{
    const struct wn__ir *f = l->f;
    int64_t before = l->n_items;
    int32_t first = f->n - f->n_effects;
    int32_t *made = wn__pool_get(&l->scratch, (l->n_values + 1) * (int64_t)sizeof *made);
    int32_t *read = wn__pool_get(&l->scratch, (f->n_cells + 1) * (int64_t)sizeof *read);
    int32_t *head = wn__pool_get(&l->scratch, (before + 2) * (int64_t)sizeof *head);
    int32_t *next = wn__pool_get(&l->scratch, (f->n_effects + 1) * (int64_t)sizeof *next);
    struct wn__item *merged = wn__alloc((before + f->n_effects + 1) * (int64_t)sizeof *merged);
    if (!made || !read || !head || !next || !merged) {
        wn__free(merged);
        return WN_OOM;
    }
    find_times(l, made, read);
    for (int64_t i = 0; i <= before; i++) head[i] = -1;
    for (int32_t e = f->n_effects - 1; e >= 0; e--) {
        int32_t time = effect_time(l, first + e, made, read);
        next[e] = head[time];
        head[time] = e;
    }
    int64_t n = 0;
    for (int64_t i = 0; i <= before; i++) {
        if (i > 0) merged[n++] = l->item[i - 1];
        for (int32_t e = head[i]; e >= 0; e = next[e]) {
            const struct wn__ir_node *p = &f->node[first + e];
            int32_t in_at = (int32_t)l->n_in;
            int32_t code = wn__grow(&l->in, &l->in_capacity, l->n_in + p->n_in, sizeof *l->in);
            if (code != WN_OK) {
                wn__free(merged);
                return code;
            }
            for (int32_t k = 0; k < p->n_in; k++) l->in[l->n_in++] = copy_read(l, first + e, k);
            merged[n++] = (struct wn__item){
                .node = first + e, .phase = WN_PHASE_UPDATE, .block = -1, .out = -1, .in_at = in_at, .n_in = p->n_in};
        }
    }
    wn__free(l->item);
    l->item = merged;
    l->n_items = n;
    l->item_capacity = before + f->n_effects + 1;
    return WN_OK;
}

void wn__sort_ascending(int32_t *v, int32_t n)
{
    /* Demands come almost sorted and short: insertion; long ones by halves. */
    if (n > 32) {
        int32_t pivot = v[n / 2], i = 0, j = n - 1;
        while (i <= j) {
            while (v[i] < pivot) i++;
            while (v[j] > pivot) j--;
            if (i > j) break;
            int32_t t = v[i];
            v[i++] = v[j];
            v[j--] = t;
        }
        wn__sort_ascending(v, j + 1);
        wn__sort_ascending(v + i, n - i);
        return;
    }
    for (int32_t i = 1; i < n; i++) {
        int32_t x = v[i], k = i;
        for (; k > 0 && v[k - 1] > x; k--) v[k] = v[k - 1];
        v[k] = x;
    }
}
