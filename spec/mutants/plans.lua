-- Breaks what stands beside the planner: effects of forward values and layouts of images, offloading, recipes that
-- scripts give, the keys by which plans are found, and the scopes of coroutines. mutants.lua says what a row is.
local rows = {}
local function add(list)
    for _, row in ipairs(list) do rows[#rows + 1] = row end
end

local function effects(name, file, old, new, filter)
    return { name = 'forward effect: ' .. name, file = file, old = old, new = new,
        spec = 'spec/forward_effect_spec.lua', filter = filter }
end

add {
    effects('carried out by every program', 'runtime/program/request.c', 'if (v->effects_done || v->is_held',
        'if (v->is_held', 'whoever computes'),
    effects('looked up at the end', 'runtime/plan/lower/issue.c',
        'if (p->has_effects && !x->is_issued[node])', 'if (p->has_effects && x->is_issued[node])',
        nil),
    effects('as early as they can be', 'runtime/plan/lower/effects.c', '        if (time[e] > least) least = time[e];\n'
        .. '        time[e] = least;', '        least = time[e];', 'first update'),
    effects('two programs carry one out', 'runtime/run/run.c',
        'if (b->order.nodes[b->forward_effect[i].node]->effects_done)',
        'if (0)', 'waited'),
    effects('no part of the key', 'runtime/program/open.c', '    wn__bytes_int(b, bound->n_forward_effects);\n'
        .. '    for (int32_t i = 0; i < bound->n_forward_effects; i++) {',
        '    for (int32_t i = 0; i < 0; i++) {', nil),
    effects('buffers are not saved', 'lua/wane/module/state.lua',
        'for k, entry in ipairs(named(m)) do\n        values[k]',
        "for k, entry in ipairs(named(m, 'parameter')) do\n        values[k]", 'is listed'),
    effects('momentum the other way', 'kernels/scalar.h', 'return (1 - momentum) * cell + momentum * mean;',
        'return momentum * cell + (1 - momentum) * mean;', 'one set of bits'),
    {
        name = 'gradients: wrt is reached where a weight needs a gradient alone',
        file = 'runtime/graph/grad.c',
        old = 'p->wrt == NULL ? n->needs_grad : !n->is_cut && wn__dtype_is_float(n->type.dtype);',
        new = 'n->needs_grad;',
        spec = 'spec/grad_spec.lua',
    },
    {
        name = 'gradients: what a value was made of before it was read is left out',
        file = 'runtime/graph/grad.c',
        old = 'else if (n->spent || pass_entry(p, n, 1) < p->n_wrt) n->wanted = stamp;',
        new = 'else if (n->spent) n->wanted = stamp;',
        spec = 'spec/grad_spec.lua',
    },
    {
        name = 'gradients: a value that was read is made of all that is older',
        file = 'runtime/graph/past.c',
        old = 'return part.who < n->past->before && part.who < n->seq;',
        new = 'return part.who < n->seq;',
        spec = 'spec/grad_spec.lua',
    },
    {
        name = 'gradients: the readers of a state that was frozen are left out',
        file = 'runtime/graph/grad.c',
        old = '        n->grad = NULL;\n    }\n    pass_write_zeros',
        new = '        v->grad = n->grad = NULL;\n    }\n    pass_write_zeros',
        spec = 'spec/grad_spec.lua',
    },
}

local function offload(name, file, old, new, filter, spec)
    return { name = 'offload: ' .. name, file = 'runtime/' .. file, old = old, new = new,
        spec = spec or 'spec/offload_spec.lua', filter = filter }
end

add {
    offload('a wait that does not wait', 'run/issue/transfer.c',
        'r->device->offload_buffer_wait(r->device, t->offload_buffer[medium], way, t->move[n->move].number);',
        'way == WN_WAY_IN ? WN_OK : '
            .. 'r->device->offload_buffer_wait(r->device, t->offload_buffer[medium], way, t->move[n->move].number);',
        'gives the bits'),
    offload('a wrong place in the offload buffer', 'run/issue/transfer.c', '.at = far->offset,',
        '.at = way == WN_WAY_OUT && far->offset > 0 ? far->offset - WN_PAGE : far->offset,',
        'gives the bits'),
    offload('a wait for another move', 'run/issue/transfer.c', 't->move[n->move].number = t->started[medium][way]++;',
        't->move[n->move].number = t->started[medium][way]++ / 2;', 'gives the bits'),
    offload('the verifier lets values be freed on their way', 'plan/lower/verify.c',
        'if (m->leaving[n->out] || m->arriving[n->out])', 'if (m->arriving[n->out])', 'waits',
        'spec/verify_spec.lua'),
    offload('the verifier lets a fetch read what is being written', 'plan/lower/verify.c',
        '    if (m->arriving[from->allocation]) return',
        '    if (m->arriving[from->allocation] && n->what == WN_DO_RUN) return',
        'waits', 'spec/verify_spec.lua'),
    offload('moves are off their pages', 'plan/lower/place.c', '.align = st->is_paged ? WN_PAGE : 1,', '.align = 1,',
        'gives the bits'),
    offload('a neighbour in the last page', 'plan/lower/place.c',
        '.bytes = wn__allocation_span(st),', '.bytes = st->bytes,',
        'is predicted', 'spec/action_spec.lua'),
    offload('a failed move is not told', 'device/host_offload.c', 'if (error != 0 && l->error == 0) {',
        'if (error != 0 && l->error == 0 && number > 900) {', 'leaves a backward', 'spec/faults_spec.lua'),
    offload('a full disk is not met before the step', 'device/host_offload.c',
        'if (error == 0) error = posix_fallocate(d->file, 0, d->is.bytes);', 'if (error != 0) error = 0;', 'is full'),
    offload('disk counts as memory', 'plan/lower/simulate.c',
        'return t->space != WN_SPACE_DISK &&', 'return t->space >= 0 &&',
        'is predicted', 'spec/action_spec.lua'),
    offload('a packed value is not brought back', 'plan/lower/residency.c',
        '? &x->at.now[node] : &x->at.part[node]) = value;', '? &x->at.now[node] : &x->at.part[node]) = kept;',
        'compress', 'spec/action_spec.lua'),
}

local function recipe(name, old, new, filter)
    return { name = 'recipe: ' .. name, file = 'runtime/plan/recipe/text.c', old = old, new = new,
        spec = 'spec/recipe_spec.lua', filter = filter }
end

add {
    recipe('B in any order', 'if (block != c->next)', 'if (block > c->next)', 'breaks a rule'),
    recipe('a backward that ends early', 'if (!c->has_backward || c->next < 0) return WN_OK;',
        'if (c->has_backward || c->next < 0) return WN_OK;', 'breaks a rule'),
    recipe('Free keeps what is gone', 'if (s->what == WN_STEP_FREE && !c->held[v] && !is_kept_unsaid(c->ir, v))',
        'if (s->what == WN_STEP_F && !c->held[v] && !is_kept_unsaid(c->ir, v))', 'breaks a rule'),
    recipe('a view is named', 'if (wn__ir_is_alias(c->ir, v)) {', 'if (wn__ir_is_alias(c->ir, v) && h < 0) {',
        'a view is named'),
    recipe('a block in two roots', 'if (c->ir->node[c->node[i]].root != c->ir->node[c->node[from]].root)',
        'if (c->ir->node[c->node[i]].root < c->ir->node[c->node[from]].root)', 'a view is named'),
    recipe('outputs are not kept', 'int32_t by_kind = s->what != WN_STEP_FREE && is_output(c->ir, r, v);',
        'int32_t by_kind = s->what == WN_STEP_SHRINK && is_output(c->ir, r, v);', 'a recipe gives the plan'),
    recipe('the loss of a B is not written',
        'if (s->root != ir->node[r->first[s->block]].root) say(t, "/%d", s->root + 1);', '', 'share a trunk'),
    recipe('an action is not written', 'action ? " " : "", action ? action : "");', '"", "");', 'an action'),
    recipe('an action of integers is not written', 'if (action == NULL && (is_kept_unsaid(ir, v)',
        'if (is_kept_unsaid(ir, v)) continue;\n        if (action == NULL && (is_kept_unsaid(ir, v)', 'an action'),
    recipe('the room for moves is not written',
        'if (r->prefetch != WN__PREFETCH) say', 'if (r->prefetch > 8) say', 'an action'),
    recipe('the room for moves is not read',
        'c->g->prefetch < 0 ? WN__PREFETCH : c->g->prefetch', 'WN__PREFETCH', 'an action'),
    recipe("'offload' stays that word", 'wn__action_resolved(c->ir, c->g->action[s->keep_at + k++])',
        'c->g->action[s->keep_at + k++]', 'an action'),
    recipe('places are numbers of nodes', 'place[i] = wn__ir_is_forward(ir, i) ? ++n : 0;',
        'place[i] = wn__ir_is_forward(ir, i) ? (++n, i + 1) : 0;', 'a recipe holds'),
}

add {
    {
        name = 'a policy is no part of a scope',
        file = 'lua/wane/module/init.lua',
        old = "local text = ('%d %s'):format(policy and policy.serial or 0, table.concat(names, ' '))",
        new = "local text = ('%d %s'):format(0, table.concat(names, ' '))",
        spec = 'spec/keys_spec.lua',
    },
    {
        name = 'the nesting of empty regions is no part of a key',
        file = 'runtime/graph/encode.c',
        old = 'for (int64_t i = known; i < regions->count && b->code == WN_OK; i++) {',
        new = 'for (int64_t i = regions->count - (known < regions->count); i < regions->count; i++) {',
        spec = 'spec/keys_spec.lua',
    },
    {
        name = 'a slice begins where it did when it was planned',
        file = 'runtime/program/bindings.c',
        old = 'if (q->offset >= 0) b->offset[q->offset] = n->attrs.i[WN_OFFSET_AT];',
        new = 'static int64_t was[64]; if (q->offset >= 0 && !was[q->offset % 64]) was[q->offset % 64] = '
            .. 'n->attrs.i[WN_OFFSET_AT] + 1; if (q->offset >= 0) b->offset[q->offset] = was[q->offset % 64] - 1;',
        spec = 'spec/offset_spec.lua',
    },
    {
        name = 'scopes of a suspended coroutine stay',
        file = 'lua/wane/scoped.lua',
        old = 'if not holds(owners[k], co) then',
        new = 'if false then',
        spec = 'spec/coroutine_spec.lua',
    },
    {
        name = 'a resumed coroutine has no scopes',
        file = 'lua/wane/scoped.lua',
        old = 'if parked[co] then resume(co) end',
        new = 'parked[co] = nil',
        spec = 'spec/coroutine_spec.lua',
    },
    {
        name = 'a program runs though what it reads has changed',
        file = 'runtime/run/run.c',
        old = 'return check_versions(&p->bindings);',
        new = 'return ((void)check_versions, WN_OK);',
        spec = 'spec/coroutine_spec.lua',
    },
    {
        name = 'slices that tile a value begin where they did when they were planned',
        file = 'runtime/program/open.c',
        old = 'if (wn__is_backward(r)) wn__tiles_encode(',
        new = 'if (0) wn__tiles_encode(',
        spec = 'spec/offset_spec.lua',
    },
    {
        name = 'slices are put side by side where they overlap',
        file = 'runtime/graph/tiles.c',
        old = 'if (start_of(slice[i]) != end) return 0;',
        new = 'if (start_of(slice[i]) > end) return 0;',
        spec = 'spec/offset_spec.lua',
    },
    {
        name = 'a frontier is found whatever the marks say',
        file = 'runtime/plan/search/frontier.c',
        old = 'wn__ir_encode(&b, ir, marks, WN_FIELD_TAG);',
        new = 'wn__ir_encode(&b, ir, marks, WN_FIELD_RUN);',
        spec = 'spec/keys_spec.lua',
    },
    {
        name = 'numbers of a row are written as 0',
        file = 'runtime/plan/ir/keys.c',
        old = '#define WRITE_INT(p, name) wn__bytes_int(w->b, (p)->name)',
        new = '#define WRITE_INT(p, name) wn__bytes_int(w->b, 0 * (p)->name)',
        spec = 'spec/keys_spec.lua',
    },
}

return rows
