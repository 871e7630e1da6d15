-- Breaks recipes that scripts give, and their rules. mutants.lua says what a row is.
local function row(name, old, new, filter)
    return { name = 'recipe: ' .. name, file = 'runtime/plan/recipe/text.c', old = old, new = new,
        spec = 'spec/recipe_spec.lua', filter = filter }
end

return {
    row('B in any order', 'if (block != c->next)', 'if (block > c->next)', 'breaks a rule'),
    row('a backward that ends early', 'if (!c->has_backward || c->next < 0) return WN_OK;',
        'if (c->has_backward || c->next < 0) return WN_OK;', 'breaks a rule'),
    row('Free keeps what is gone', 'if (s->what == WN_STEP_FREE && !c->held[v] && !is_kept_unsaid(c->ir, v))',
        'if (s->what == WN_STEP_F && !c->held[v] && !is_kept_unsaid(c->ir, v))', 'breaks a rule'),
    row('a view is named', 'if (wn__ir_is_alias(c->ir, v)) {', 'if (wn__ir_is_alias(c->ir, v) && h < 0) {',
        'a view is named'),
    row('a block in two roots', 'if (c->ir->node[c->node[i]].root != c->ir->node[c->node[from]].root)',
        'if (c->ir->node[c->node[i]].root < c->ir->node[c->node[from]].root)', 'a view is named'),
    row('outputs are not kept', 'int32_t by_kind = s->what != WN_STEP_FREE && is_output(c->ir, r, v);',
        'int32_t by_kind = s->what == WN_STEP_SHRINK && is_output(c->ir, r, v);', 'a recipe gives the plan'),
    row('the loss of a B is not written',
        'if (s->root != ir->node[r->first[s->block]].root) say(t, "/%d", s->root + 1);', '', 'share a trunk'),
    row('an action is not written', 'action ? " " : "", action ? action : "");', '"", "");', 'an action'),
    row('an action of integers is not written', 'if (action == NULL && (is_kept_unsaid(ir, v)',
        'if (is_kept_unsaid(ir, v)) continue;\n        if (action == NULL && (is_kept_unsaid(ir, v)', 'an action'),
    row('the room for moves is not written',
        'if (r->prefetch != WN__PREFETCH) say', 'if (r->prefetch > 8) say', 'an action'),
    row('the room for moves is not read',
        'c->g->prefetch < 0 ? WN__PREFETCH : c->g->prefetch', 'WN__PREFETCH', 'an action'),
    row("'offload' stays that word", 'wn__action_resolved(c->ir, c->g->action[s->keep_at + k++])',
        'c->g->action[s->keep_at + k++]', 'an action'),
    row('places are numbers of nodes', 'place[i] = wn__ir_is_forward(ir, i) ? ++n : 0;',
        'place[i] = wn__ir_is_forward(ir, i) ? (++n, i + 1) : 0;', 'a recipe holds'),
}
