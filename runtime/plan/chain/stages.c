/* Turns a table of stages into blocks for the solver. The peaks of a block are what the memory model of
 * replay.c adds to the live bytes, so the bytes of the solver and of a replay are equal. */
#include "../../base/alloc.h"
#include "../../base/status.h"
#include "chain.h"

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
