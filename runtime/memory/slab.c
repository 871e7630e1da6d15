/* Gradient slabs: one contiguous piece of device memory for the gradients of a set of parameters (struct wn__slab in
 * ledger.h). A slab without gradients is idle: it keeps its bytes, so that a training loop does not give pages back and
 * take them again at every step, and wn__slab_trim empties it first when a limit would be passed.
 *
 *   data -> | gradient of the first parameter | of the second | .. | of the last |      offsets: struct wn__ir_cell
 */
#include "../base/alloc.h"
#include "ledger.h"

static struct wn__slab *all;
static struct wn__slab *spare[8]; /* by device; counted; NULL: none */

int32_t wn__slab_get(int32_t device, int64_t bytes, struct wn__slab **out)
{
    if (spare[device] != NULL && spare[device]->bytes == bytes) {
        *out = spare[device];
        spare[device] = NULL;
        return WN_OK;
    }
    struct wn__slab *s = wn__alloc(sizeof *s);
    if (s == NULL) return wn__oom(device, bytes, 0);
    s->refs = 1;
    s->device = device;
    s->bytes = bytes;
    s->next = all;
    all = s;
    *out = s;
    return WN_OK;
}

int32_t wn__slab_fill(struct wn__slab *s)
{
    return s->data != NULL ? WN_OK : wn__device_take(s->device, s->bytes, &s->data);
}

static void slab_empty(struct wn__slab *s)
{
    wn__device_give(s->device, s->data, s->bytes);
    s->data = NULL;
}

void wn__slab_unref(struct wn__slab *s)
{
    if (s == NULL || --s->refs > 0) return;
    struct wn__slab **at = &all;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    slab_empty(s);
    wn__free(s);
}

void wn__slab_spare(struct wn__slab *s)
{
    if (s->refs > 1) {
        wn__slab_unref(s);
        return;
    }
    wn__slab_unref(spare[s->device]);
    spare[s->device] = s;
}

static int32_t is_kept(const struct wn__slab *s, struct wn__slab *const *keep, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (keep[i] == s) return 1;
    return 0;
}

void wn__slab_trim(int32_t device, struct wn__slab *const *keep, int32_t n)
{
    for (struct wn__slab *s = all; s != NULL; s = s->next)
        if (s->device == device && s->allocated == 0 && s->hidden == 0 && !is_kept(s, keep, n)) slab_empty(s);
}
