/* Solves tables of stages with the solver of the library (chain_tables.h). */
#include "chain_tables.h"
#include <string.h>
#include "../../runtime/base/alloc.h"
#include "../../runtime/base/number.h"
#include "../../runtime/base/status.h"

/* Turns a table of stages into blocks for the solver. The peaks of a block are what the memory model of chain_replay.c
 * adds to the live bytes, so the bytes of the solver and of a replay are equal. *memory: to be freed (wn__free). */
static int32_t blocks_of(const struct chain *c, struct wn__chain_blocks *out, void **memory)
{
    /* Stages may share options, but peak_backward depends on the stage: so each block has options of its own. */
    int32_t all = 0, next = 0;
    for (int32_t i = 0; i < c->n_stages; i++) all += c->stage[i].n_options;
    size_t blocks = (size_t)c->n_stages * sizeof *out->block;
    char *bytes = wn__alloc((int64_t)(blocks + (size_t)all * sizeof *out->option));
    if (bytes == NULL) return WN_OOM;
    struct wn__chain_block *block = (struct wn__chain_block *)bytes;
    struct wn__block_option *option = (struct wn__block_option *)(bytes + blocks);
    int64_t grad_before = c->input_grad_bytes;
    for (int32_t i = 0; i < c->n_stages; i++) {
        const struct chain_stage *s = &c->stage[i];
        block[i] = (struct wn__chain_block){.time = s->fwd_time,
                                            .peak = s->out_bytes + s->fwd_tmp_bytes,
                                            .bytes = s->out_bytes,
                                            .grad = s->grad_bytes,
                                            .allocated = s->wgrad_bytes,
                                            .first = next,
                                            .n_options = s->n_options};
        for (int32_t q = s->first; q < s->first + s->n_options; q++) {
            const struct chain_option *o = &c->option[q];
            option[next++] =
                (struct wn__block_option){o->fwd_time, o->bwd_time, o->saved_bytes, o->saved_bytes + o->fwd_tmp_bytes,
                                          o->saved_bytes + s->grad_bytes + grad_before + o->bwd_tmp_bytes};
        }
        grad_before = s->grad_bytes;
    }
    *out = (struct wn__chain_blocks){c->n_stages, all, block, option, c->input_bytes};
    *memory = bytes;
    return WN_OK;
}

enum { LONGEST = 1024, MOST_OPTIONS = 1024 }; /* stages; options of a stage */

/* Refuses tables without stages, and those that would take the solver too long. */
static int32_t check(const struct chain *c)
{
    if (c->n_stages < 1 || c->n_stages > LONGEST)
        return wn__fail(WN_VALUE, "chain: %d stages given; expected 1 to %d", c->n_stages, LONGEST);
    for (int32_t i = 0; i < c->n_stages; i++)
        if (c->stage[i].n_options < 1 || c->stage[i].n_options > MOST_OPTIONS)
            return wn__fail(WN_VALUE, "chain: stage %d has %d options; expected 1 to %d", i + 1, c->stage[i].n_options,
                            MOST_OPTIONS);
    return WN_OK;
}

static int32_t open_chain(const struct chain *c, struct wn__chain_solution **out)
{
    struct wn__chain_blocks chain;
    void *memory = NULL;
    WN_TRY(check(c));
    WN_TRY(blocks_of(c, &chain, &memory));
    int32_t code = wn__chain_open(&chain, out);
    wn__free(memory);
    return code;
}

int32_t chain_plan(const struct chain *c, int64_t budget, int32_t room, struct wn__chain_op *out, int64_t *least)
{
    struct wn__chain_solution *s = NULL;
    struct wn__chain_op *op = NULL;
    int32_t n = 0, code = open_chain(c, &s);
    if (code == WN_OK) *least = wn__chain_least(s);
    if (code == WN_OK && budget >= *least) code = wn__chain_schedule(s, budget, &op, &n);
    if (code == WN_OK && room > 0 && n > 0) memcpy(out, op, (size_t)wn_min(n, room) * sizeof *out);
    wn__free(op);
    wn__chain_close(s);
    return code == WN_OK ? n : -code;
}

int32_t chain_frontier(const struct chain *c, int32_t room, struct wn__chain_cost *out, int64_t *slack)
{
    struct wn__chain_solution *s = NULL;
    const struct wn__chain_cost *points;
    int32_t n = 0, code = open_chain(c, &s);
    if (code == WN_OK) code = wn__chain_frontier(s, &points, &n, slack);
    if (code == WN_OK && room > 0) memcpy(out, points, (size_t)wn_min(n, room) * sizeof *out);
    wn__chain_close(s);
    return code == WN_OK ? n : -code;
}
