--- Simulates a schedule of a chain (spec/support/chains.lua): the reference memory model. It takes the schedule
-- operation by operation, refuses an illegal one, and shares no code with the solver or with an oracle.
--
-- a_0 is live until the end. Of stage i at most one of a_i (bare) and its saved set (which contains a_i) is held. d_i
-- is live from the end of B i+1 to the end of B i; the seed d_n is live during B n only. `live`: all these bytes before
-- the operation starts.
--
--     operation   needs                              bytes during it                        afterwards
--     F i         a_{i-1}; nothing held of i         live + out + fwd_tmp of the stage      a_i held, the input kept
--     Fe i o      a_{i-1}; no saved set of i         live + saved + fwd_tmp of option o     the set held (a_i in it)
--     B i         i is next; its set; a_{i-1}        live [+ d_n, i = n] + d_{i-1}          the set, d_i and a bare
--                                                    + bwd_tmp of its option + wgrad        a_{i-1}, i > 1, are gone
--     Free i      something held of i                -                                      gone
--     Shrink i    the saved set of i                 -                                      only a_i held
--
-- a_{i-1} may be bare or in a saved set. A schedule is complete with B 1.
local errors = require 'wane.errors'

local BARE = -1 -- what is held of a stage: nothing (nil), BARE, or the saved set of that option, from 0

-- Returns a field of option o, from 0, of a stage.
local function field(stage, o, name)
    local option = stage.options and stage.options[o + 1]
    return option and option[name] or stage[name]
end

-- A simulation, { c = the chain, held = by stage, next = the stage whose B is due, 0 when the schedule is complete,
-- live, peak, time, at = number of the operation, item = the operation }. Invariant: live is input_bytes, plus what is
-- held, plus the gradients that are live.
local Replay = {}
Replay.__index = Replay

function Replay:need(is_so, rule)
    if is_so then return end
    local item = self.item
    error(errors.new('illegal', ('operation %d (%s %d): %s'):format(self.at, item[1], item[2], rule)), 0)
end

function Replay:held_bytes(i)
    local s, held = self.c.stages[i], self.held[i]
    if not held then return 0 end
    return held == BARE and s.out_bytes or field(s, held, 'saved_bytes')
end

function Replay:grad_of(i)
    return i == 0 and self.c.input_grad_bytes or self.c.stages[i].grad_bytes
end

-- Makes `what` the only thing held of stage i.
function Replay:hold(i, what)
    self.live = self.live - self:held_bytes(i)
    self.held[i] = what
    self.live = self.live + self:held_bytes(i)
end

-- Counts the time of an operation, and the peak with `extra` bytes above what is live.
function Replay:run_for(extra, time)
    self.time, self.peak = self.time + time, math.max(self.peak, self.live + extra)
end

-- Does one operation each: function(replay, number of the stage, the stage, option).
local operations = {}

function operations.F(r, i, s)
    r:need(r.held[i - 1], 'its input is not held')
    r:need(not r.held[i], 'its output is held already')
    r:run_for(s.out_bytes + s.fwd_tmp_bytes, s.fwd_time)
    r:hold(i, BARE)
end

function operations.Fe(r, i, s, o)
    r:need(o >= 0 and o < (s.options and #s.options or 1), 'the stage has no such option')
    r:need(r.held[i - 1], 'its input is not held')
    r:need(not r.held[i] or r.held[i] == BARE, 'its saved set is held already')
    r:run_for(field(s, o, 'saved_bytes') + field(s, o, 'fwd_tmp_bytes'), field(s, o, 'fwd_time'))
    r:hold(i, o)
end

function operations.B(r, i, s)
    local o = r.held[i]
    r:need(i == r.next, "it is not this stage's turn to go backward")
    r:need(o and o ~= BARE, 'its saved set is not held')
    r:need(r.held[i - 1], 'its input is not held')
    local allocated, seed = s.wgrad_bytes or 0, i == #r.c.stages and r:grad_of(i) or 0
    r:run_for(seed + r:grad_of(i - 1) + field(s, o, 'bwd_tmp_bytes') + allocated, field(s, o, 'bwd_time'))
    r:hold(i, nil)
    if i > 1 and r.held[i - 1] == BARE then r:hold(i - 1, nil) end
    r.live, r.next = r.live + r:grad_of(i - 1) + allocated - (r:grad_of(i) - seed), i - 1
end

function operations.Free(r, i)
    r:need(r.held[i], 'nothing of the stage is held')
    r:hold(i, nil)
end

function operations.Shrink(r, i)
    r:need(r.held[i] and r.held[i] ~= BARE, 'its saved set is not held')
    r:hold(i, BARE)
end

--- Returns what a schedule of a chain takes, { time =, peak = }. Raises 'illegal' with the operation and the rule that
-- it breaks.
return function(c, schedule)
    local r = setmetatable({ c = c, held = { [0] = BARE }, next = #c.stages, live = c.input_bytes,
        peak = c.input_bytes, time = 0 }, Replay)
    for at, item in ipairs(schedule) do
        local i = item[2]
        r.at, r.item = at, item
        r:need(c.stages[i], 'there is no such stage')
        operations[item[1]](r, i, c.stages[i], item[3])
    end
    if r.next > 0 then
        local words = 'the schedule ends after %d operations, before B %d'
        error(errors.new('illegal', words:format(#schedule, r.next)), 0)
    end
    return { time = r.time, peak = r.peak }
end
