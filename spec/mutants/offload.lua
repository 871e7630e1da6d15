-- Breaks offloading: values that wait on disk or in host memory between forward and backward. mutants.lua says what a
-- row is.
local function row(name, file, old, new, filter, spec)
    return { name = 'offload: ' .. name, file = 'runtime/' .. file, old = old, new = new,
        spec = spec or 'spec/offload_spec.lua', filter = filter }
end

return {
    row('a wait that does not wait', 'run/issue/transfer.c',
        'r->device->offload_buffer_wait(r->device, t->offload_buffer[place], way, t->move[n->move].number);',
        'way == WN_WAY_IN ? WN_OK : '
            .. 'r->device->offload_buffer_wait(r->device, t->offload_buffer[place], way, t->move[n->move].number);',
        'gives the bits'),
    row('a wrong place in the offload buffer', 'run/issue/transfer.c', '.at = far->offset,',
        '.at = way == WN_WAY_OUT && far->offset > 0 ? far->offset - WN_PAGE : far->offset,',
        'gives the bits'),
    row('a wait for another move', 'run/issue/transfer.c', 't->move[n->move].number = t->started[place][way]++;',
        't->move[n->move].number = t->started[place][way]++ / 2;', 'gives the bits'),
    row('the verifier lets values be freed on their way', 'plan/lower/verify.c',
        'if (m->leaving[n->out] || m->arriving[n->out])', 'if (m->arriving[n->out])', 'waits',
        'spec/verify_spec.lua'),
    row('the verifier lets a fetch read what is being written', 'plan/lower/verify.c',
        '    if (m->arriving[from->allocation]) return',
        '    if (m->arriving[from->allocation] && n->what == WN_DO_RUN) return',
        'waits', 'spec/verify_spec.lua'),
    row('moves are off their pages', 'plan/lower/place.c', '.align = st->is_paged ? WN_PAGE : 1,', '.align = 1,',
        'gives the bits'),
    row('a neighbour in the last page', 'plan/lower/place.c',
        '.bytes = wn__allocation_span(st),', '.bytes = st->bytes,',
        'is predicted', 'spec/action_spec.lua'),
    row('a failed move is not told', 'device/host_offload.c', 'if (error != 0 && l->error == 0) {',
        'if (error != 0 && l->error == 0 && number > 900) {', 'leaves a backward', 'spec/faults_spec.lua'),
    row('a full disk is not met before the step', 'device/host_offload.c',
        'if (error == 0) error = posix_fallocate(d->file, 0, d->is.bytes);', 'if (error != 0) error = 0;', 'is full'),
    row('disk counts as memory', 'plan/lower/simulate.c',
        'return t->space != WN_SPACE_DISK &&', 'return t->space >= 0 &&',
        'is predicted', 'spec/action_spec.lua'),
    row('a packed value is not brought back', 'plan/lower/residency.c',
        '? &x->at.now[node] : &x->at.part[node]) = value;', '? &x->at.now[node] : &x->at.part[node]) = kept;',
        'compress', 'spec/action_spec.lua'),
}
