-- Breaks effects of forward values and the layouts of images. mutants.lua says what a row is.
local function row(name, file, old, new, filter)
    return { name = 'forward effect: ' .. name, file = file, old = old, new = new,
        spec = 'spec/forward_effect_spec.lua', filter = filter }
end

return {
    row('carried out by every program', 'runtime/program/open.c', 'if (v->effects_done || v->is_held',
        'if (v->is_held', 'whoever computes'),
    row('carried out by quiet runs', 'runtime/program/open.c', 'if (n == 0 || p->transient) return WN_OK;',
        'if (n == 0) return WN_OK;', 'left out by plans'),
    row('looked up at the end', 'runtime/plan/lower/issue.c',
        'if (p->has_effects && !x->is_issued[node])', 'if (p->has_effects && x->is_issued[node])',
        nil),
    row('as early as they can be', 'runtime/plan/lower/effects.c', '        if (time[e] > least) least = time[e];\n'
        .. '        time[e] = least;', '        least = time[e];', 'first update'),
    row('two programs carry one out', 'runtime/run/run.c',
        'if (p->order.nodes[p->forward_effect[i].node]->effects_done)',
        'if (0)', 'waited'),
    row('no part of the key', 'runtime/program/open.c', '    wn__bytes_int(b, p->n_forward_effects);\n'
        .. '    for (int32_t i = 0; i < p->n_forward_effects; i++) {',
        '    for (int32_t i = 0; i < 0; i++) {', nil),
    row('buffers are not saved', 'lua/wane/module/state.lua',
        'for _, entry in ipairs(named(module, m)) do dict[entry.name] = entry.state end',
        "for _, entry in ipairs(named(module, m, '_parameter')) do dict[entry.name] = entry.state end", 'is listed'),
    row('momentum the other way', 'kernels/scalar.h', 'return (1 - momentum) * cell + momentum * mean;',
        'return momentum * cell + (1 - momentum) * mean;', 'one set of bits'),
}
