/* Checks a table of stages and turns it into blocks for the solver. The peaks of a block are what the memory model of
 * replay.c adds to the live bytes, so the bytes of the solver and of a replay are equal. */
#include <stdio.h>
#include "../../base/alloc.h"
#include "../../base/status.h"
#include "chain.h"

/* Returns WN_VALUE with a message about a field. stage < 1: of the chain; option < 0: of the stage. */
static int32_t refuse(int32_t stage, int32_t option, const char *field, int64_t given, const char *expected)
{
    char where[64] = "chain";
    if (stage > 0 && option >= 0) snprintf(where, sizeof where, "stage %d, option %d", stage, option);
    else if (stage > 0) snprintf(where, sizeof where, "stage %d", stage);
    return wn__fail(WN_VALUE, "%s: %s is %lld; expected %s", where, field, (long long)given, expected);
}

/* A number of a table, with its name for messages. */
struct field {
    const char *name; /* as scripts write it */
    int64_t value;
};

static int32_t check_fields(int32_t stage, int32_t option, const struct field *f, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (f[i].value < 0 || f[i].value >= WN__CHAIN_EXACT)
            return refuse(stage, option, f[i].name, f[i].value, "0 or more, below 2^53");
    return WN_OK;
}

static int32_t check_stage(const struct wn_chain *c, int32_t i)
{
    const struct wn_chain_stage *s = &c->stage[i];
    const struct field fields[] = {{"fwd_time", s->fwd_time},
                                   {"out_bytes", s->out_bytes},
                                   {"fwd_tmp_bytes", s->fwd_tmp_bytes},
                                   {"grad_bytes", s->grad_bytes},
                                   {"wgrad_bytes", s->wgrad_bytes}};
    WN_TRY(check_fields(i + 1, -1, fields, 5));
    if (s->n_options < 1 || s->n_options > WN__CHAIN_MOST_OPTIONS || s->first < 0 ||
        s->first > c->n_options - s->n_options)
        return refuse(i + 1, -1, "the number of options", s->n_options, "1 to 1024");
    for (int32_t q = 0; q < s->n_options; q++) {
        const struct wn_chain_option *o = &c->option[s->first + q];
        const struct field more[] = {{"fwd_time", o->fwd_time},
                                     {"bwd_time", o->bwd_time},
                                     {"saved_bytes", o->saved_bytes},
                                     {"fwd_tmp_bytes", o->fwd_tmp_bytes},
                                     {"bwd_tmp_bytes", o->bwd_tmp_bytes}};
        WN_TRY(check_fields(i + 1, q, more, 5));
        if (o->saved_bytes < s->out_bytes)
            return refuse(i + 1, q, "saved_bytes", o->saved_bytes, "at least out_bytes, which it includes");
    }
    return WN_OK;
}

int32_t wn__chain_check(const struct wn_chain *c)
{
    const struct field fields[] = {{"input_bytes", c->input_bytes}, {"input_grad_bytes", c->input_grad_bytes}};
    if (c->n_stages < 1 || c->n_stages > WN__CHAIN_LONGEST)
        return refuse(0, -1, "the number of stages", c->n_stages, "1 to 1024");
    WN_TRY(check_fields(0, -1, fields, 2));
    for (int32_t i = 0; i < c->n_stages; i++) WN_TRY(check_stage(c, i));
    return WN_OK;
}

int32_t wn__chain_of_stages(const struct wn_chain *c, struct wn__chain_blocks *out, void **memory)
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
        const struct wn_chain_stage *s = &c->stage[i];
        block[i] = (struct wn__chain_block){.time = s->fwd_time,
                                            .peak = s->out_bytes + s->fwd_tmp_bytes,
                                            .bytes = s->out_bytes,
                                            .grad = s->grad_bytes,
                                            .allocated = s->wgrad_bytes,
                                            .first = next,
                                            .n_options = s->n_options};
        for (int32_t q = s->first; q < s->first + s->n_options; q++) {
            const struct wn_chain_option *o = &c->option[q];
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
