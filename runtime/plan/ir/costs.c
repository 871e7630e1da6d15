/* Keeps targets and measured seconds, and says what nodes cost: see costs.h. A key of measured seconds is a text, so
 * that a person can read and correct the file that they are saved in. */
#include "costs.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "../../graph/encode.h"
#include "rates.h"

#define MAX_MACHINES 16

static struct {
    char name[32];
    struct wn__target target; /* its kind, with the rates of this machine */
} machines[MAX_MACHINES] = {{.name = "this machine"}};
static int32_t n_machines = 1;

static struct wn__names known; /* the keys of measured seconds; the id of each is its index in `measured` */
static double *measured;       /* (known.count) seconds of one application */
static int64_t measured_capacity;
static int64_t id = 1; /* changes with every change of targets and seconds */

static int32_t check_rates(const char *name, const struct wn_profile *p)
{
    const double rates[] = {p->f64, p->f32, p->bf16, p->bytes, p->out[0], p->out[1], p->in[0], p->in[1]};
    for (int32_t i = 0; i < 8; i++)
        if (!(rates[i] > 0 && rates[i] < INFINITY))
            return wn__fail(WN_VALUE, "target %s: rates must be above 0 and finite, in units a second", name);
    if (!(p->launch >= 0 && p->launch < 1e18))
        return wn__fail(WN_VALUE, "target %s: launch must be 0 or more seconds", name);
    return WN_OK;
}

void wn__machine_here(const struct wn__target *t)
{
    machines[0].target = *t;
    id++;
}

int32_t wn__machine_put(const char *name, const struct wn__target *t)
{
    int32_t code = check_rates(name, &t->rates), at = 0;
    if (code != WN_OK) return -code;
    while (at < n_machines && strcmp(machines[at].name, name) != 0) at++;
    if (at == MAX_MACHINES || strlen(name) >= sizeof machines[0].name)
        return -wn__fail(WN_VALUE, "target %s: at most %d targets, of names below %d letters", name, MAX_MACHINES,
                         (int)sizeof machines[0].name);
    if (at == n_machines) n_machines++;
    snprintf(machines[at].name, sizeof machines[at].name, "%s", name);
    if (at > 0 || strcmp(t->name, machines[0].target.name) == 0) machines[at].target = *t;
    id++;
    return at;
}

const struct wn__target *wn__machine(int32_t machine)
{
    return machine >= 0 && machine < n_machines ? &machines[machine].target : NULL;
}

const char *wn__machine_name(int32_t machine)
{
    return machine >= 0 && machine < n_machines ? machines[machine].name : NULL;
}

int32_t wn__class_put(int32_t machine, const char *kind, const char *class, const struct wn_rate *rate)
{
    if (wn__machine(machine) == NULL)
        return wn__fail(WN_VALUE, "rate of %s: there is no target %d", class, (int)machine);
    WN_TRY(wn__rate_put(machine, kind, class, rate));
    id++;
    return WN_OK;
}

int64_t wn__costs_id(void)
{
    return id;
}

/* ---- the table ------------------------------------------------------------------------------------------------ */

int32_t wn__cost_put(const char *key, double seconds)
{
    if (!(seconds >= 0 && seconds < WN_COST_SECONDS))
        return wn__fail(WN_VALUE, "cost of %s: %g seconds given, expected 0 to below %d", key, seconds,
                        WN_COST_SECONDS);
    WN_TRY(wn__grow(&measured, &measured_capacity, known.count + 1, sizeof *measured));
    struct wn__name *n = wn__names_get(&known, key);
    if (n == NULL) return WN_OOM;
    if (n->id < 0) n->id = (int32_t)known.count - 1;
    measured[n->id] = seconds;
    id++;
    return WN_OK;
}

void wn__costs_clear(void)
{
    wn__names_release(&known);
    id++;
}

/* ---- keys ------------------------------------------------------------------------------------------------------- */

/* A text that grows and is cut at its end. Invariant: at < sizeof s. */
struct text {
    char s[512];
    int32_t at; /* bytes in use, the final 0 excluded */
};

static void put(struct text *t, const char *format, ...)
{
    int32_t left = (int32_t)sizeof t->s - t->at;
    va_list args;
    va_start(args, format);
    int32_t n = vsnprintf(t->s + t->at, (size_t)left, format, args);
    va_end(args);
    t->at += n < left ? n : left - 1;
}

static void put_type(struct text *t, const struct wn_type *type)
{
    put(t, "%s", wn__dtype_name(type->dtype));
    for (int32_t i = 0; i < type->ndim; i++) put(t, "%s%lld", i == 0 ? " " : "x", (long long)type->dim[i]);
    if (type->layout != WN_PLAIN)
        put(t, type->layout == WN_NHWC ? " channels last" : type->layout == WN_ROWS ? " padded rows" : " panels");
}

/* Puts what tells one target's seconds from another's: "cuda 90 library 6: ", its architecture and the dtypes that a
 * library computes for it. */
static void put_target(struct text *t, const struct wn__target *target)
{
    put(t, "%s", target->name);
    if (target->arch != 0) put(t, " %d", (int)target->arch);
    if (target->library != 0) put(t, " library %d", (int)target->library);
    put(t, ": ");
}

const char *wn__cost_key(const struct wn__ir *ir, const struct wn_desc *d)
{
    static struct text t;
    t.at = 0;
    if (strcmp(ir->target->name, "cpu") != 0) put_target(&t, ir->target);
    put(&t, "%s", wn__op_name(d->op));
    struct wn_attrs attrs = wn__attrs_without_offset(d->op, &d->attrs); /* the offset of a slice costs nothing */
    for (int32_t i = 0; i < d->attrs.n && d->n_in > 0; i++)
        put(&t, "%s%lld", i == 0 ? " [" : ",", (long long)attrs.i[i]);
    put(&t, d->attrs.n > 0 && d->n_in > 0 ? "] " : " ");
    put_type(&t, &d->out);
    for (int32_t i = 0; i < d->n_in; i++) {
        put(&t, i == 0 ? " <- " : ", ");
        put_type(&t, &d->in[i]);
    }
    return t.s;
}

const char *wn__cost_key_again(const struct wn__ir *ir, const struct wn_desc *d)
{
    static struct text t;
    t.at = 0;
    put(&t, "%s again", wn__cost_key(ir, d));
    return t.s;
}

/* ---- seconds --------------------------------------------------------------------------------------------------- */

/* Returns the FLOP a second of the dtype that the op reads. */
static double rate(const struct wn_profile *p, const struct wn_desc *d)
{
    int32_t dtype = d->n_in > 0 ? d->in[0].dtype : d->out.dtype;
    return dtype == WN_F64 ? p->f64 : dtype == WN_BF16 ? p->bf16 : p->f32;
}

double wn__desc_roofline(const struct wn__ir *ir, const struct wn_desc *d)
{
    const struct wn_profile *p = &ir->target->rates;
    struct wn_cost cost = wn__op_cost(d);
    double flops = cost.flops / rate(p, d), bytes = cost.bytes / p->bytes;
    return p->launch + (flops > bytes ? flops : bytes);
}

#define MOVE_STARTS 50e-6 /* seconds to wake the thread and start the first request; assumed, not measured */

double wn__move_seconds(const struct wn__ir *ir, int32_t place, int32_t way, int64_t bytes)
{
    const struct wn_profile *p = &ir->target->rates;
    return MOVE_STARTS + (double)bytes / (way == WN_WAY_OUT ? p->out[place] : p->in[place]);
}

double wn__move_share(const struct wn__ir *ir, int64_t bytes)
{
    return (double)bytes / ir->target->rates.bytes;
}

/* ---- exchanges among ranks --------------------------------------------------------------------------------------- */

/* Assumed until they are measured: a thread that wakes and tests, a message, shared memory, a network of 10 Gbit/s. */
static struct wn_link_rates link_rates = {.start = 50e-6, .peer = 2e-6, .bytes = {4e9, 1.2e9}};

int32_t wn__link_rates(const struct wn_link_rates *r)
{
    double least = r->bytes[0] < r->bytes[1] ? r->bytes[0] : r->bytes[1], most = r->start + r->peer;
    if (!(r->start >= 0 && r->peer >= 0 && most < 1e9))
        return wn__fail(WN_VALUE, "link: %g seconds to start and %g for each rank, expected 0 or more", r->start,
                        r->peer);
    if (!(least > 0 && r->bytes[0] + r->bytes[1] < INFINITY))
        return wn__fail(WN_VALUE, "link: %g and %g bytes a second, expected numbers above 0", r->bytes[0], r->bytes[1]);
    link_rates = *r;
    id++;
    return WN_OK;
}

const struct wn_link_rates *wn__link_rates_now(void)
{
    return &link_rates;
}

void wn__exchange_wire(const struct wn__ir *ir, int32_t node, struct wn__wire *out)
{
    const struct wn__ir_node *q = &ir->node[node];
    const int64_t *i = q->attrs.i, size = wn__dtype_size(q->type.dtype);
    int32_t rank = (int32_t)i[WN_RANKS_RANK], team = (int32_t)i[WN_RANKS_TEAM], ranks = wn__group_size(&q->attrs);
    int64_t own = wn__own_range(&q->attrs).count, gives = wn__place_at(&q->attrs, rank) < i[WN_RANKS_GIVEN];
    *out = (struct wn__wire){.peers = ranks - 1};
    for (int32_t k = 0; k < ranks; k++) {
        int32_t peer = wn__rank_at(&q->attrs, k), level = peer / team != rank / team;
        int64_t theirs = wn__range_at(&q->attrs, peer).count;
        if (peer == rank) continue;
        int32_t is_whole = q->op == WN_OP_REFRESH || q->op == WN_OP_ALL_GATHER;
        out->out[level] += size * (is_whole ? own : gives ? theirs : 0);
        out->in[level] += size * (is_whole ? theirs : k < i[WN_RANKS_GIVEN] ? own : 0);
    }
}

double wn__exchange_seconds(const struct wn__ir *ir, const struct wn__wire *w)
{
    const struct wn_profile *p = &ir->target->rates;
    double longest = 0, staged = 0;
    for (int32_t level = 0; level < WN_LEVEL_COUNT; level++) {
        double bytes = (double)(w->out[level] > w->in[level] ? w->out[level] : w->in[level]);
        if (bytes / link_rates.bytes[level] > longest) longest = bytes / link_rates.bytes[level];
        staged += (double)w->out[level] / p->out[WN_MEDIUM_HOST] + (double)w->in[level] / p->in[WN_MEDIUM_HOST];
    }
    if (!wn__target_stages(ir->target)) staged = 0;
    return w->peers > 0 ? link_rates.start + link_rates.peer * w->peers + longest + staged : 0;
}

int64_t wn__exchange_bytes(const struct wn__ir *ir, int32_t node)
{
    return ir->node[node].attrs.i[WN_RANKS_ELEMENTS] * wn__dtype_size(ir->node[node].type.dtype);
}

double wn__exchange_start_seconds(void)
{
    return link_rates.start;
}

#define FIXED_GROUP (1 << 18) /* bytes */
#define HAND_OVER 8e-6        /* seconds that a start takes of the kernels beside it; measured: wakes of a thread */

/* S bytes in groups of g take S / g starts, and the last group follows the backward: start S / g + g / rate seconds are
 * least at g = sqrt(start rate S). The eighth bounds the bytes that wait for their group. Ranks that gather states
 * start exchanges in one order, which no rank's rates decide. */
int64_t wn__exchange_group(const struct wn__ir *ir)
{
    int64_t all = 0, is_outside = 0;
    if (wn__ir_gathers(ir) > 0) return FIXED_GROUP;
    for (int32_t i = 0; i < ir->n; i++) {
        if ((wn__ir_flags(ir, i) & WN_LINK) == 0) continue;
        is_outside |= ir->node[i].attrs.i[WN_RANKS_TEAM] < ir->node[i].attrs.i[WN_RANKS_SIZE];
        all += wn__exchange_bytes(ir, i);
    }
    double start = link_rates.start > HAND_OVER ? link_rates.start : HAND_OVER;
    double best = sqrt(start * link_rates.bytes[is_outside] * (double)all);
    return best < (double)(all / 8) ? (int64_t)best : all / 8;
}

/* ---- what was measured ------------------------------------------------------------------------------------------- */

/* Returns the measured seconds of a key; NULL: none were measured. */
static const double *find_key(const char *key)
{
    const struct wn__name *n = wn__names_known(&known, key);
    return n != NULL && n->id >= 0 ? &measured[n->id] : NULL;
}

double wn__desc_seconds(const struct wn__ir *ir, const struct wn_desc *d, int32_t *is_measured)
{
    const double *seconds = ir->machine == 0 && known.count > 0 ? find_key(wn__cost_key(ir, d)) : NULL;
    if (seconds == NULL && ir->machine == 0 && known.count > 0) seconds = find_key(wn__cost_key_again(ir, d));
    *is_measured = seconds != NULL;
    double of_class = seconds != NULL ? *seconds : wn__rate_seconds(ir->machine, ir->target->name, d);
    return of_class >= 0 ? of_class : wn__desc_roofline(ir, d);
}

int32_t wn__ir_costs(struct wn__ir *ir)
{
    if (!WN_ARRAY(&ir->pool, ir->seconds, ir->n) || !WN_ARRAY(&ir->pool, ir->is_measured, ir->n) ||
        !WN_ARRAY(&ir->pool, ir->seconds_again, ir->n))
        return WN_OOM;
    for (int32_t i = 0; i < ir->n; i++) {
        if (ir->node[i].leaf != WN_LEAF_NONE) continue;
        struct wn_desc d = wn__ir_desc_of(ir, &ir->node[i]);
        int32_t is_measured = 0;
        if ((wn__ir_flags(ir, i) & WN_LINK) != 0) {
            struct wn__wire wire;
            wn__exchange_wire(ir, i, &wire);
            ir->seconds[i] = ir->seconds_again[i] = wn__exchange_seconds(ir, &wire);
            continue;
        }
        ir->seconds[i] = wn__desc_seconds(ir, &d, &is_measured);
        ir->is_measured[i] = (uint8_t)is_measured;
        const double *again = ir->machine == 0 && known.count > 0 ? find_key(wn__cost_key_again(ir, &d)) : NULL;
        ir->seconds_again[i] = again != NULL ? *again : ir->seconds[i];
    }
    return WN_OK;
}
