-- The ways Wane is broken on purpose, one row each; run.lua says how they are tried (`make mutants`).
-- To add one: a name; the file; the exact old text, which must be there once (take a whole line, or two, rather
-- than a word); the new text, which must build; the spec file, or a list of them, that must notice; and when the
-- spec is slow, a busted filter (a Lua pattern on the full test name).
-- A row that no spec catches shows a missing spec: add the spec, keep the row.
return {
    {
        name = 'repl forgets locals',
        file = 'lua/wane/repl/session.lua',
        old = "if name:match('^[%a_]') then rawset(self.env, name, value) end",
        new = "if name:match('^[%d_]') then rawset(self.env, name, value) end",
        spec = 'spec/repl_spec.lua',
        filter = 'repl session',
    },
    {
        name = 'repl never asks for more',
        file = 'lua/wane/repl/session.lua',
        old = 'if chunk == nil and more then',
        new = 'if chunk == nil and not more then',
        spec = 'spec/repl_spec.lua',
        filter = 'repl session',
    },
    {
        name = 'repl ignores the semicolon',
        file = 'lua/wane/repl/session.lua',
        old = "self:call(chunk, source:match(';%s*$') ~= nil)",
        new = "self:call(chunk, source:match(';;%s*$') ~= nil)",
        spec = 'spec/repl_spec.lua',
        filter = 'repl session',
    },
    {
        name = 'cli hides a script failure',
        file = 'lua/wane/cli.lua',
        old = 'return getmetatable(result) == Misuse and 2 or 1',
        new = 'return getmetatable(result) == Misuse and 2 or 0',
        spec = 'spec/cli_spec.lua',
    },
    {
        name = 'launcher does not follow links',
        file = 'lua/wane/launcher.sh',
        old = 'while [ -L "$self" ]; do',
        new = 'while [ -p "$self" ]; do',
        spec = 'spec/cli_spec.lua',
    },
    {
        name = 'an op knows the graph',
        file = 'runtime/ops/update.c',
        old = '#include "helper.h"',
        new = '#include "helper.h"\n#include "../graph/graph.h"',
        spec = 'spec/layers_spec.lua',
    },
    {
        name = 'a value is freed one instruction early',
        file = 'runtime/plan/stores.c',
        old = '        x->store_last[copy->store] = x->last[it->out];',
        new = '        x->store_last[copy->store] = x->last[it->out] > i ? x->last[it->out] - 1 : i;',
        spec = 'spec/exact_spec.lua',
        filter = 'recomputation',
    },
    {
        name = 'a value is freed one instruction late',
        file = 'runtime/plan/stores.c',
        old = '        x->store_last[copy->store] = x->last[it->out];',
        new = '        x->store_last[copy->store] = x->last[it->out] + (x->last[it->out] + 1 < x->l->n_items);',
        spec = 'spec/exact_spec.lua',
        filter = 'a free',
    },
    {
        name = 'a boundary is skipped',
        file = 'runtime/plan/recipe.c',
        old = 'c->r->last[i] >= rule.beyond || by_default;',
        new = 'c->r->last[i] > rule.beyond + 2 || by_default;',
        spec = 'spec/exact_spec.lua',
        filter = 'recomputation',
    },
    {
        name = 'a hidden 4 KB is counted',
        file = 'runtime/plan/simulate.c',
        old = [[
    move(m, t->kind, t->bytes);
}]],
        new = [[
    move(m, t->kind, t->bytes + (t->kind == WN_KIND_RESULT ? 4096 : 0));
}]],
        spec = 'spec/exact_spec.lua',
        filter = 'predicted',
    },
    {
        name = 'the meter forgets results',
        file = 'runtime/run/measure.c',
        old = '    if (t->space == WN_SPACE_RESULT) m->fixed += bytes;',
        new = '    if (t->space == WN_SPACE_RESULT) return;',
        spec = 'spec/exact_spec.lua',
        filter = 'predicted',
    },
    {
        name = 'dropout draws another mask on replay',
        file = 'runtime/run/run.c',
        old = 'buffers.counter = p->random[q->random].counter + shift;',
        new = 'buffers.counter = p->random[q->random].counter + shift + (uint64_t)n->recompute;',
        spec = 'spec/verify_spec.lua',
        filter = 'same bits',
    },
    {
        name = 'an effect is executed twice',
        file = 'runtime/run/run.c',
        old = '        WN_TRY(issue(p, b, n, shift));',
        new = [[
        WN_TRY(issue(p, b, n, shift));
        if (n->out < 0) WN_TRY(issue(p, b, n, shift));]],
        spec = 'spec/optim_spec.lua',
    },
    {
        name = 'an update does not wait for the last reader',
        file = 'runtime/plan/effects.c',
        old = '        if (p->cell[k] >= 0 && read[p->cell[k]] > time) time = read[p->cell[k]];',
        new = '        if (p->cell[k] >= 0 && read[p->cell[k]] > time + 1000000) time = read[p->cell[k]];',
        spec = 'spec/verify_spec.lua',
        filter = 'waits',
    },
    {
        name = 'a slab interval is lent too long',
        file = 'runtime/plan/place.c',
        old = '.at = base + st->offset, .first = st->first,',
        new = '.at = base + st->offset, .first = st->first + 2,',
        spec = 'spec/exact_spec.lua',
        filter = 'predicted',
    },
    {
        name = 'stores that meet in time may overlap',
        file = 'runtime/plan/place.c',
        old = 'return a->first <= b->last && b->first <= a->last;',
        new = 'return a->first + 3 <= b->last && b->first + 3 <= a->last;',
        spec = 'spec/exact_spec.lua',
        filter = 'predicted',
    },
    {
        name = 'an op overwrites an input that lives on',
        file = 'runtime/plan/stores.c',
        old = 'if (store->pinned || x->store_last[t] != i || store->bytes != p->bytes) continue;',
        new = 'if (store->pinned || store->bytes != p->bytes) continue;',
        spec = 'spec/exact_spec.lua',
        filter = 'predicted',
    },
    {
        name = 'the verifier forgets the rule of stale states',
        file = 'runtime/plan/verify.c',
        old = 'if (v->leaf == WN_LEAF_CELL && m->written[v->slot])',
        new = 'if (v->leaf == WN_LEAF_CELL && m->written[v->slot] > 1)',
        spec = 'spec/verify_spec.lua',
        filter = 'stale',
    },
    {
        name = 'the verifier forgets the bounds',
        file = 'runtime/plan/verify.c',
        old = 'if (t->offset < 0 || t->offset % WN_GRANULE != 0 ||',
        new = 'if (t->offset < 0 ||',
        spec = 'spec/verify_spec.lua',
        filter = 'bounds',
    },
    {
        name = 'the verifier lets an effect pass twice',
        file = 'runtime/plan/verify.c',
        old = '    if (m->issued[n->node]++ > 0) {',
        new = '    if (m->issued[n->node]++ > 9) {',
        spec = 'spec/verify_spec.lua',
        filter = 'effect',
    },
    {
        name = 'integer results are recomputed',
        file = 'runtime/plan/recipe.c',
        old = '(wn__form_flags(f, i) & WN_INDEX) ||',
        new = '(wn__form_flags(f, i) & WN_LEAF) ||',
        spec = 'spec/verify_spec.lua',
        filter = 'index',
    },
    {
        name = 'a limit is one granule too kind',
        file = 'runtime/run/run.c',
        old = [[
    if (after <= l->limit) return WN_OK;
    wn__fail(WN_OOM]],
        new = [[
    if (after <= l->limit + 256) return WN_OK;
    wn__fail(WN_OOM]],
        spec = 'spec/oom_spec.lua',
        filter = 'granule',
    },
    {
        name = 'zero_grad keeps its bytes',
        file = 'runtime/graph/cell.c',
        old = [[
    g->born = 0;
    g->slab->born--;
    wn__ledger_move(g->device, g->kind, -wn__padded(wn__bytes(&g->type)));
    wn__cell_changed(g);]],
        new = [[
    g->born = 0;
    g->slab->born--;
    wn__cell_changed(g);]],
        spec = 'spec/state_spec.lua',
    },
    {
        name = 'a changed state keeps its version',
        file = 'runtime/graph/cell.c',
        old = [[
    c->version++;
    c->reader = NULL;]],
        new = '    c->reader = NULL;',
        spec = 'spec/runpoints_spec.lua',
    },
    {
        name = 'backward forgets that it ran',
        file = 'runtime/run/run.c',
        old = '        p->root[i]->spent = p->root[i]->over_spent = 1;',
        new = '        p->root[i]->spent = p->root[i]->over_spent = 0;',
        spec = 'spec/runpoints_spec.lua',
    },
    {
        name = 'a compiled step draws the same mask again',
        file = 'runtime/run/run.c',
        old = '        wn__here.counter += p->taken;',
        new = '        wn__here.counter += 0;',
        spec = 'spec/compile_spec.lua',
    },
    {
        name = 'the key forgets attributes',
        file = 'runtime/graph/encode.c',
        old = [[
    wn__bytes_attrs(b, &n->attrs);
    wn__bytes_int(b, n->scope);]],
        new = '    wn__bytes_int(b, n->scope);',
        spec = 'spec/op_spec.lua',
    },
    {
        name = 'the key forgets the policy',
        file = 'runtime/run/open.c',
        old = '{p->mode,   p->joint,   p->transient, p->policy,',
        new = '{p->mode,   p->joint,   p->transient, 0,',
        spec = 'spec/policy_spec.lua',
    },
    {
        name = 'gradients are assigned where they should add',
        file = 'runtime/run/assemble.c',
        old = '        q->born_here = g == NULL || !g->born;',
        new = '        q->born_here = 1;',
        spec = 'spec/state_spec.lua',
    },
    {
        name = 'planning takes random numbers',
        file = 'lua/wane/program.lua',
        old = [[
        C.wn_counter_set(counter)
]],
        new = '',
        spec = 'spec/random_spec.lua',
    },
    {
        name = 'garbage is never let go',
        file = 'runtime/graph/handle.c',
        old = '        handle_let_go(h.kind, h.what);',
        new = '        if (h.kind != WN_HANDLE_VALUE) handle_let_go(h.kind, h.what);',
        spec = 'spec/gc_spec.lua',
    },
    {
        name = 'a kernel takes memory of its own',
        file = 'kernels/cpu/dropout.c',
        old = '    int64_t blocks = (k.n + 4 * WN_QUADS - 1) / (4 * WN_QUADS);',
        new = '    int64_t blocks = (k.n + 4 * WN_QUADS - 1) / (4 * WN_QUADS);\n'
            .. '    extern void *malloc(size_t);\n    if (malloc(1 << 20) == NULL) return WN_OOM;',
        spec = 'spec/foreign_spec.lua',
    },
    {
        name = 'a kernel writes past its output',
        file = 'kernels/cpu/dropout.c',
        old = '    int64_t blocks = (k.n + 4 * WN_QUADS - 1) / (4 * WN_QUADS);',
        new = '    int64_t blocks = (k.n + 4 * WN_QUADS - 1) / (4 * WN_QUADS);\n    ((char *)k.out)[k.n * 4] ^= 1;',
        spec = 'spec/exact_spec.lua',
        filter = 'checked run',
    },
    {
        name = 'an error leaves a dynamic extent open',
        file = 'lua/wane/within.lua',
        old = '    set(before)\n    if not ok then error((...), 0) end',
        new = '    if not ok then error((...), 0) end\n    set(before)',
        spec = 'spec/runpoints_spec.lua',
    },
    {
        name = 'a sum is reordered: cut where threads begin',
        file = 'kernels/cpu/reduce.c',
        old = '        p->chunks = chunks > CHUNKS ? CHUNKS : chunks < 1 ? 1 : (int32_t)chunks; ',
        new = '        p->chunks = chunks > wn_cpu_threads() ? wn_cpu_threads() : chunks < 1 ? 1 : (int32_t)chunks; ',
        spec = 'spec/threads_spec.lua',
    },
    {
        name = 'bf16 rows of odd length are read in pairs',
        file = 'kernels/cpu/gemm_bf16.c',
        old = '.in_place = kernel.per > 1 && p->k % kernel.per == 0}',
        new = '.in_place = kernel.per > 1}',
        spec = 'spec/product_spec.lua',
    },
    {
        name = 'bf16 sums begin anew at every stretch of k',
        file = 'kernels/cpu/gemm_bf16.c',
        old = '        t.first = k == 0;',
        new = '        t.first = 1;',
        spec = 'spec/product_spec.lua',
    },
    {
        name = 'bf16 products are cut off instead of rounded',
        file = 'kernels/cpu/tile_avx512.h',
        old = '            __m256i h = (__m256i)_mm512_cvtneps_pbh(acc[i][v]);',
        new = '            __m256i h = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(acc[i][v]), 16));',
        spec = 'spec/product_spec.lua',
    },
    {
        name = 'the portable bf16 product forgets its last step',
        file = 'kernels/cpu/gemm_bf16.c',
        old = '        for (int64_t s = 0; s < k; s++, to += width)',
        new = '        for (int64_t s = 0; s < k - (k > 9); s++, to += width)',
        spec = 'spec/product_spec.lua',
    },
}
