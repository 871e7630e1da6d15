/* Copies the results, states and gradients of a training into bytes, and compares them. */
#ifndef WN_FUZZ_OUTCOME_H
#define WN_FUZZ_OUTCOME_H
#include <stdio.h>
#include "net.h"

enum { ROOM = 1 << 20, META = 1 };
struct outcome {
    int64_t n;
    uint8_t bytes[ROOM];
};

static void expect(int32_t holds, const char *what)
{
    if (holds) return;
    fprintf(stderr, "fuzz_train: does not hold: %s\nlast message: %s\n", what, wn_message());
    abort();
}

static int32_t refused(int32_t code)
{
    expect(code != 0 && wn_message()[0] != 0, "a failure says why");
    expect(strcmp(wn_status_name(code < 0 ? -code : code), "internal") != 0, "no failure is a defect");
    return code < 0 ? -code : code;
}

/* Gives every NaN one bit pattern: the pattern of a NaN depends on the order of operands. */
static void make_nans_one(uint8_t *at, int64_t n, int32_t dtype)
{
    for (int64_t i = 0; dtype == 0 && i < n / 4; i++)
        if (isnan(((float *)(void *)at)[i])) memset(at + 4 * i, 0xff, 4);
    for (int64_t i = 0; dtype == 1 && i < n / 8; i++)
        if (isnan(((double *)(void *)at)[i])) memset(at + 8 * i, 0xff, 8);
    for (int64_t i = 0; dtype >= 5 && i < n / 2; i++) {
        uint16_t h, top = dtype == 5 ? 0x7f80 : 0x7c00;
        memcpy(&h, at + 2 * i, 2);
        if ((h & top) == top && (h & ~top & 0x7fff) != 0) memset(at + 2 * i, 0xff, 2);
    }
}

static void put_value(struct outcome *o, int32_t handle)
{
    struct wn_info info;
    o->n = (o->n + 7) / 8 * 8;
    if (handle < 0 || wn_info(handle, &info) != 0 || o->n + net_bytes(&info.type) + 8 > ROOM) return;
    int64_t n = net_bytes(&info.type);
    int32_t code = info.device == META ? 1 : wn_read(handle, o->bytes + o->n, n);
    if (code == 0) make_nans_one(o->bytes + o->n, n, info.type.dtype);
    else memset(o->bytes + o->n, 0, (size_t)n);
    o->n += n;
    o->bytes[o->n++] = (uint8_t)(code == 0);
}

static void put_state(struct outcome *o, struct net *w)
{
    for (int32_t i = 0; i < w->n_cells; i++) {
        put_value(o, w->cell[i]);
        put_value(o, w->state[i][0]);
        put_value(o, w->state[i][1]);
        int32_t g = wn_cell_grad(w->cell[i]);
        put_value(o, g);
        if (g >= 0) wn_release(g);
    }
}

static void put_results(struct outcome *o, int32_t p)
{
    for (int32_t i = 0; i < wn_count(p, WN_COUNT_RESULTS); i++) {
        int32_t r = wn_result(p, i);
        put_value(o, r);
        wn_release(r);
    }
    struct wn_info info;
    for (int32_t i = 0; i < wn_count(p, WN_COUNT_CELLS); i++) {
        int32_t c = wn_program_cell(p, i);
        if (c >= 0 && wn_info(c, &info) == 0 && info.cell_kind == WN_KIND_GRADIENT) put_value(o, c);
        wn_release(c);
    }
}

static void clear(struct outcome *o)
{
    memset(o->bytes, 0, (size_t)o->n);
    o->n = 0;
}

static void compare(const struct outcome *a, const struct outcome *o, const char *what)
{
    int64_t at = 0;
    while (at < a->n && at < o->n && a->bytes[at] == o->bytes[at]) at++;
    if (at < a->n || at < o->n)
        fprintf(stderr, "fuzz_train: byte %lld of %lld, %lld\n", (long long)at, (long long)a->n, (long long)o->n);
    expect(at == a->n && at == o->n, what);
}
#endif
