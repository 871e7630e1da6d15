-- Breaks effects of forward values and the layouts of images. mutants.lua says what a row is.
local function row(name, file, old, new, filter)
    return { name = 'forward effect: ' .. name, file = file, old = old, new = new,
        spec = 'spec/forward_effect_spec.lua', filter = filter }
end

return {
    row('carried out by every program', 'runtime/program/request.c', 'if (v->effects_done || v->is_held',
        'if (v->is_held', 'whoever computes'),
    row('looked up at the end', 'runtime/plan/lower/issue.c',
        'if (p->has_effects && !x->is_issued[node])', 'if (p->has_effects && x->is_issued[node])',
        nil),
    row('as early as they can be', 'runtime/plan/lower/effects.c', '        if (time[e] > least) least = time[e];\n'
        .. '        time[e] = least;', '        least = time[e];', 'first update'),
    row('two programs carry one out', 'runtime/run/run.c',
        'if (b->order.nodes[b->forward_effect[i].node]->effects_done)',
        'if (0)', 'waited'),
    row('no part of the key', 'runtime/program/open.c', '    wn__bytes_int(b, bound->n_forward_effects);\n'
        .. '    for (int32_t i = 0; i < bound->n_forward_effects; i++) {',
        '    for (int32_t i = 0; i < 0; i++) {', nil),
    row('buffers are not saved', 'lua/wane/module/state.lua',
        'for k, entry in ipairs(named(m)) do\n        values[k]',
        "for k, entry in ipairs(named(m, 'parameter')) do\n        values[k]", 'is listed'),
    row('momentum the other way', 'kernels/scalar.h', 'return (1 - momentum) * cell + momentum * mean;',
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
