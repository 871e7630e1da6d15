--- Warns of policies by type, op, name or path that were asked and decided nothing.
--
-- A type may be in the graph and own no value that the backward reads: what a module returns belongs to its caller.
-- Such a policy is told once, on the error stream, with the types, ops, names or paths that own values here. Policies
-- with `optional` are not watched, nor those by op that decide about gathers, of which one rank makes none.
-- @internal wane.policy.silent
local iterate = require 'wane.iterate'
local names_of = require('wane.policy.decisions').names_of

local silent = {}

local MOST = 8 -- names that a warning lists, at most
local told = {} -- name of a policy -> true

--- Notes that a policy was asked about a residual.
-- @param asked table of notes by policy
-- @param p policy
-- @param r residual, as policies see it
-- @param decision its decision, or nil
function silent.note(asked, p, r, decision)
    if not p.keys or p.optional or p.gathers or told[p.name] then return end
    local note = asked[p] or { count = 0, names = {}, seen = {} }
    asked[p] = note
    note.count, note.has_decided = note.count + 1, note.has_decided or decision ~= nil
    local name = names_of[p.keys_of](r)[1]
    if name and name ~= '' and not note.seen[name] then
        note.seen[name], note.names[#note.names + 1] = true, name
    end
end

--- Warns of every noted policy that decided nothing.
-- @param asked table of notes
function silent.tell(asked)
    for p, note in iterate(asked) do
        if not note.has_decided then
            told[p.name] = true
            local list = table.concat(note.names, ', ', 1, math.min(MOST, #note.names))
            local more = #note.names > MOST and (' and %d more'):format(#note.names - MOST) or ''
            io.stderr:write(('wane: the policy %s decides about none of the %d values that it was asked about; their '
                .. '%s are %s%s%s (optional = true says that this is meant)\n'):format(p.name, note.count, p.keys_of,
                list == '' and 'empty' or list, more,
                p.keys_of == 'types' and '; what a module returns belongs to its caller' or ''))
        end
    end
end

return silent
