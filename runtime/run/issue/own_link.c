/* The link that devices have of their own among ranks, NCCL of GPUs: whether all ranks use it, and its opening.
 *
 * Each rank says which version it has, and which device it uses. All see the same, and so decide the same: it is used
 * where every rank has it and a device of its own. It is opened by the first run that exchanges something: a script
 * that stays on the CPU never pays for it. */
#include <stdio.h>
#include <string.h>
#include "../../link/control.h"
#include "issue.h"

enum { MOST_RANKS = 1024 }; /* a group of NCCL holds 2,048 operations */

static char words[160]; /* of wn__own_link_text */

/* Returns the device that may have such a link; NULL: there is none. */
static struct wn_device *own_device(void)
{
    for (int32_t id = 0; id < wn__device_count(); id++)
        if (wn__device(id)->absent == NULL && wn__device(id)->link_say != NULL) return wn__device(id);
    return NULL;
}

const char *wn__own_link_text(void)
{
    return words[0] == 0 ? NULL : words;
}

int32_t wn__own_link_say(struct wn_link_facts *out)
{
    struct wn_device *d = own_device();
    memset(out, 0, sizeof *out);
    return d == NULL ? WN_OK : d->link_say(d, out);
}

/* Says why two ranks that both have a version go through the host; "" where they need not. */
static void compare(const struct wn_link_facts *all, int32_t a, int32_t b)
{
    if (strcmp(all[a].where, all[b].where) == 0)
        snprintf(words, sizeof words, "pinned memory: ranks %d and %d use one GPU", a, b);
}

/* Refuses a rank with another kind of device than rank 0, on which a training would have other bits. */
static int32_t check_kind(const struct wn_link_facts *all, int32_t r)
{
    const char *theirs = all[r].kind, *first = all[0].kind;
    if (strcmp(theirs, first) == 0) return WN_OK;
    return wn__fail(WN_VALUE,
                    "dist: rank %d has %s, rank 0 has %s: give all ranks GPUs of one kind with the same driver and "
                    "libraries, or none by WANE_CUDA_LIB=off",
                    r, theirs[0] == 0 ? "no GPU" : theirs, first[0] == 0 ? "no GPU" : first);
}

int32_t wn__own_link_choose(const struct wn_link_facts *all)
{
    const struct wn__link *l = wn__link_get();
    struct wn_device *d = own_device();
    words[0] = 0;
    for (int32_t r = 1; r < l->size; r++) WN_TRY(check_kind(all, r));
    if (d == NULL) return WN_OK;
    if (l->size > MOST_RANKS)
        snprintf(words, sizeof words, "pinned memory: NCCL takes at most %d ranks here", MOST_RANKS);
    for (int32_t r = 0; r < l->size && words[0] == 0; r++)
        if (all[r].version[0] == 0) snprintf(words, sizeof words, "pinned memory: rank %d has no NCCL", r);
    for (int32_t r = 1; r < l->size && words[0] == 0; r++) {
        if (strcmp(all[r].version, all[0].version) != 0)
            return wn__fail(WN_VALUE,
                            "dist: rank %d has %s, rank 0 %s: give all ranks one version by WANE_CUDA_NCCL, or none by "
                            "WANE_CUDA_NCCL=off",
                            r, all[r].version, all[0].version);
        for (int32_t k = 0; k < r && words[0] == 0; k++) compare(all, k, r);
    }
    if (words[0] != 0) return WN_OK;
    snprintf(words, sizeof words, "%s", all[0].version);
    d->target.has_link = 1;
    return WN_OK;
}

int32_t wn__own_link_open(struct wn__run *r)
{
    static int32_t is_open;
    const struct wn__link *l = wn__link_get();
    struct wn_link_job job = {.rank = l->rank, .size = l->size, .look = wn__link_look, .broke = wn__link_break};
    if (is_open || !r->ir->target->has_link) return WN_OK;
    int32_t code = l->rank == 0 ? r->device->link_id(r->device, job.id) : WN_OK;
    char why[1024];
    snprintf(why, sizeof why, "%s", code == WN_OK ? "" : wn__message());
    const struct wn__call call = {
        .said = "the start of the GPUs' link", .needed = "the start of the GPUs' link", .code = code, .words = why};
    WN_TRY(wn__control_call(&call, job.id, sizeof job.id));
    memcpy(job.id, wn__control_result(), sizeof job.id);
    code = r->device->link_open(r->device, &job);
    is_open = code == WN_OK;
    return is_open ? WN_OK : wn__link_break(code);
}
