-- Breaks plans of steps of several run points: what a rehearsal notes, and what is held beside a program. mutants.lua
-- says what a row is.
local PARTS = 'spec/parts_spec.lua'

return {
    {
        name = 'planning drops the gradients that a function clears',
        file = 'runtime/api/value.c',
        old = '    if (wn__rehearsal_now() != NULL) return wn__rehearse_drop(c);\n',
        new = '',
        spec = PARTS,
    },
    {
        name = 'a cleared gradient loses its memory to a trim while a step is planned',
        file = 'runtime/memory/slab.c',
        old = ' && s->hidden == 0',
        new = '',
        spec = PARTS,
    },
    {
        name = 'states that an earlier program makes are made again by the later ones',
        file = 'runtime/run/materialise.c',
        old = ' && !wn__rehearsed_value(c);',
        new = ';',
        spec = PARTS,
    },
    {
        name = 'what other programs of a step hold is not counted',
        file = 'lua/wane/plan/planning.lua',
        old = 'all.reserved = math.max(all.reserved, p.reserved + beside.reserved)',
        new = 'all.reserved = math.max(all.reserved, p.reserved)',
        spec = PARTS,
    },
    {
        name = 'states that the first step has yet to make are counted in it',
        file = 'runtime/program/rehearse.c',
        old = '    return made > 0 && made <= i;',
        new = '    return made > 0 && made <= i + 1000;',
        spec = PARTS,
    },
    {
        name = 'gradients are alive before the backward that makes them',
        file = 'runtime/program/rehearse.c',
        old = 'now->change[k].program <= i; k++)\n        now->cell',
        new = 'now->change[k].program <= i + 1000; k++)\n        now->cell',
        spec = PARTS,
    },
    {
        name = 'a budget of a step leaves out what is held beside its programs',
        file = 'lua/wane/plan/choose.lua',
        old = 'if p.reserved + beside <= limit then',
        new = 'if p.reserved <= limit then',
        spec = PARTS,
    },
    {
        name = 'a plan made for a budget of the whole step is found again for one of the backward',
        file = 'runtime/program/plan.c',
        old = '    wn__bytes_int(&p->key, 1);\n',
        new = '',
        spec = PARTS,
    },
    {
        name = 'a script that clears gradients changes those of a suspended planning',
        file = 'lua/wane/optim/optimizer.lua',
        old = '    scoped.sync() -- not the gradients of a suspended planning\n',
        new = '',
        spec = PARTS,
    },
    {
        name = 'a budget leaves out data that parameters begin as',
        file = 'lua/wane/plan/choose.lua',
        old = 'beside = beside + first.beside --',
        new = '--',
        spec = 'spec/step_budget_spec.lua',
    },
}
