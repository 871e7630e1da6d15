-- Breaks the keys by which plans are found, what is bound at a run, and the scopes of coroutines. mutants.lua says what
-- a row is.
return {
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
