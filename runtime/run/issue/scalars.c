/* The bytes of a program that the host writes and reads: numbers of the host, seeds and counters, reports of wrong data
 * (the allocation `scalars` of plan/lower/schedule.h), and results that are numbers. A report is looked at where the
 * device was waited for anyway. */
#include <string.h>
#include "../../base/alloc.h"
#include "../../base/outside.h"
#include "issue.h"

/* Writes what wn__scalars_put uploads to `host`: (bytes of the allocation). */
static void fill(const struct wn__run *r, char *host)
{
    const struct wn__ir *ir = r->ir;
    const struct wn__bindings *b = &r->p->bindings;
    for (int32_t i = 0; i < ir->n_scalars; i++)
        if (b->scalar[i] != NULL) wn__node_numbers_put(b->scalar[i], host + wn__scalar_at(i));
    for (int32_t i = 0; ir->target->is_asynchronous && i < ir->n_random; i++)
        memcpy(host + wn__random_at(ir, i), &b->random[i], sizeof b->random[i]);
    memset(host + wn__report_at(ir, 0), 0xff, (size_t)r->schedule->n_reports * WN_REPORT_BYTES);
}

int32_t wn__scalars_put(const struct wn__run *r)
{
    const struct wn__schedule *s = r->schedule;
    if (s->scalars < 0) return WN_OK;
    int64_t bytes = s->allocation[s->scalars].bytes;
    char small[4096], *host = bytes <= (int64_t)sizeof small ? small : wn__alloc(bytes);
    if (host == NULL) return WN_OOM;
    memset(host, 0, (size_t)bytes);
    fill(r, host);
    int32_t code = r->device->put(r->device, wn__allocation_address(r, &s->allocation[s->scalars]), host, bytes);
    if (host != small) wn__free(host);
    return code;
}

/* ---- results that are numbers ------------------------------------------------------------------------------ */

int32_t wn__number_read(const struct wn__run *r, const struct wn__instr *n)
{
    const struct wn__ir_node *q = &r->ir->node[n->node];
    struct wn_device *d = r->device;
    if (!d->real) return WN_OK;
    return d->read(d, &r->number[q->result], wn__value_address(r, n->out), wn__dtype_size(q->type.dtype));
}

void wn__numbers_take(const struct wn__run *r)
{
    for (int32_t i = 0; i < r->ir->n_results; i++)
        if (r->schedule->result_allocation[i] < 0)
            r->p->bindings.result[i]->number = wn__number_get(r->p->bindings.result[i]->type.dtype, &r->number[i]);
}

/* ---- reports of wrong data --------------------------------------------------------------------------------- */

int32_t wn__reports_check(const struct wn__run *r)
{
    const struct wn__schedule *s = r->schedule;
    struct wn_device *d = r->device;
    struct wn__applied room;
    if (s->n_reports == 0 || !d->real) return WN_OK;
    const char *from = wn__allocation_address(r, &s->allocation[s->scalars]) + wn__report_at(r->ir, 0);
    WN_TRY(d->get(d, r->report, from, (int64_t)s->n_reports * WN_REPORT_BYTES));
    for (int32_t i = 0; i < s->n; i++) {
        const struct wn__instr *n = &s->instr[i];
        if (n->what == WN_DO_RUN && n->report >= 0 && r->report[n->report] != UINT64_MAX)
            return wn__fail_report(wn__instr_desc(r->ir, s, n, &room), r->report[n->report]);
    }
    return WN_OK;
}
