--- The parts of a step: what the plan of each takes, and what they take together.
--
-- A part is one program of a step (program/sequence.lua). Parts run one after the other, and the arena is empty between
-- them. So the step takes the maximum of bytes over them, each with what the others hold beside it, and the sum of
-- their seconds, each as many times as it is bound. Counts, and bytes of residuals, are those of each part once.
-- @internal wane.plan.parts
local binding = require 'wane.ffi'
local bytes = require 'wane.report.bytes'
local iterate = require 'wane.iterate'
local program = require 'wane.program'
local sequence = require 'wane.program.sequence'
local table_ = require 'wane.report.table'

local C, check = binding.C, binding.check

local parts = { instants = { 'before', 'after_forward', 'peak_forward', 'peak_backward', 'after' } }

local maxima = { 'arena', 'host', 'disk', 'lent' }
local counts = { 'activation_bytes', 'nodes', 'instructions', 'recomputed', 'packed', 'lossy', 'blocks',
    'residual_count' }
local wires = { 'sent', 'got', 'sent_outside', 'got_outside' } -- bytes among ranks, and with other machines
local sums = { 'seconds', 'base_seconds', 'measured_seconds', 'moved', 'move_seconds', 'stall_seconds', 'wire_seconds',
    'wait', unpack(wires) }

--- Returns the live bytes at the instants of a run, by name.
-- @param array int64_t[5] of wn_summary or wn_measured
function parts.by_instant(array)
    local out = {}
    for i, name in ipairs(parts.instants) do out[name] = tonumber(array[i - 1]) end
    out.after_backward = out.after
    return out
end

--- Puts the bytes among ranks of a struct wn_summary or wn_measured into a table of numbers.
function parts.take_wire(out, s)
    out.sent_outside, out.got_outside = tonumber(s.wire_out[1]), tonumber(s.wire_in[1])
    out.sent, out.got = tonumber(s.wire_out[0]) + out.sent_outside, tonumber(s.wire_in[0]) + out.got_outside
end

--- Returns the bytes among ranks of a table of numbers, as the field `wire` of a plan and of a measurement.
function parts.wire(numbers)
    local wire = {}
    for _, name in ipairs(wires) do wire[name] = numbers[name] end
    return wire
end

--- Tells whether two tables of numbers have the same bytes among ranks.
function parts.is_same_wire(a, b)
    for _, name in ipairs(wires) do
        if a[name] ~= b[name] then return false end
    end
    return true
end

local summary = binding.new('struct wn_summary')

--- Returns the numbers of a planned program alone, by the names of the fields of a plan.
-- @param p planned Program
function parts.numbers(p)
    local out, s = {}, summary
    check(C.wn_summary(p.handle, s))
    for _, name in ipairs { 'peak', 'reserved', 'arena', 'state', 'activation_bytes', 'lent', 'host', 'disk' } do
        out[name] = tonumber(s[name])
    end
    for _, name in ipairs { 'seconds', 'base_seconds', 'measured_seconds', 'nodes', 'instructions', 'recomputed',
        'packed', 'lossy', 'blocks', 'move_seconds', 'stall_seconds', 'wire_seconds' } do out[name] = s[name] end
    out.wait, out.late, out.forward = s.wait_seconds, s.late_seconds, s.forward_seconds
    out.late_first, out.late_share = s.late_first, s.late_share
    parts.take_wire(out, s)
    out.residual_count, out.moved = s.residuals, tonumber(s.out) + tonumber(s['in'])
    out.kinds, out.kinds_before = program.by_kind(s.peak_kinds), program.by_kind(s.kinds)
    out.at, out.device = parts.by_instant(s.at), binding.text(C.wn_device_name(s.device))
    return out
end

--- Returns the sums of two tables of bytes by kind.
function parts.plus(kinds, more)
    local out = {}
    for name, value in iterate(kinds) do out[name] = value + more[name] end
    return out
end

-- Puts the live bytes at the instants of a part into those of the step, which are the largest of any part.
local function put_instants(at, own, live)
    for name, value in iterate(own) do at[name] = math.max(at[name] or 0, value + live) end
end

--- Returns the numbers of a whole step: maxima of bytes over its parts, sums of seconds and counts. Instants are the
-- largest over the parts with a backward, where there are any.
-- @param list parts
-- @param plans list of the numbers of each part alone, as of parts.numbers; those that are missing there count 0. Their
-- field live_beside goes before that of the part. nil: the parts have them themselves
-- @return { peak =, kinds = (at the peak), reserved =, at =, arena =, host =, disk =, lent =, and sums }
function parts.totals(list, plans)
    local all, chooses = { peak = -1, reserved = 0, at = {} }, false
    for _, names in ipairs { maxima, counts, sums } do
        for _, name in ipairs(names) do all[name] = 0 end
    end
    for _, part in ipairs(list) do chooses = chooses or sequence.chooses(part.request) end
    for i, part in ipairs(list) do
        local p = plans and plans[i] or part
        local live = p.live_beside or part.live_beside
        if p.peak + live > all.peak then
            all.peak, all.kinds = p.peak + live, p.kinds and parts.plus(p.kinds, part.kinds_beside)
        end
        all.reserved = math.max(all.reserved, p.reserved + part.beside)
        if not chooses or sequence.chooses(part.request) then put_instants(all.at, p.at or {}, live) end
        for _, name in ipairs(maxima) do all[name] = math.max(all[name], p[name] or 0) end
        for _, name in ipairs(counts) do all[name] = all[name] + (p[name] or 0) end
        for _, name in ipairs(sums) do all[name] = all[name] + #part.points * (p[name] or 0) end
    end
    -- The forward of the next step hides what an update exchanges, layer by layer. Let n layers take equal shares of
    -- its F seconds and E seconds each of the link, which is done L seconds behind the update. Layer k comes at
    -- L - (n - k) E, and is used at F (k - 1) / n: the forward waits for the first, or for the last. 1 / n is the share
    -- of the longest.
    local late
    for i, part in ipairs(list) do
        local p = plans and plans[i] or part
        if (p.late or 0) > (late and late.late or 0) then late = p end
    end
    if late then
        local forward = (plans and plans[1] or list[1]).forward
        local more = math.max(late.late_first, late.late - forward * (1 - late.late_share))
        for _, name in ipairs { 'wait', 'seconds', 'base_seconds' } do all[name] = all[name] + more end
    end
    return all
end

-- ---- the first step ------------------------------------------------------------------------------------------------

--- Returns the bytes that making the missing states and data of a part takes before its first run, with the bytes
-- that are held beside it; 0 where none is missing.
function parts.first_reserved(part)
    return part.first.cells > 0 and part.first.reserved + part.first_beside or 0
end

--- Returns the peak and the bytes of the whole first step, the one that makes states and data. It may hold fewer where
-- it leaves gradients that later steps, of which the parts are, find and add to.
-- @param list planned parts
-- @return { cells = number of states and data, peak =, reserved =, beside = bytes of the data that states begin as };
-- all 0 where none is missing
function parts.first(list)
    local all = { cells = 0, peak = 0, reserved = 0, beside = 0 }
    for _, part in ipairs(list) do
        local first, live = part.first, part.first_live_beside
        all.cells, all.beside = all.cells + first.cells, math.max(all.beside, first.beside)
        all.peak = math.max(all.peak, first.peak + live, part.peak + first.beside + live)
        all.reserved = math.max(all.reserved, parts.first_reserved(part),
            part.reserved + first.beside + part.first_beside)
    end
    if all.cells == 0 then all.peak, all.reserved = 0, 0 end
    return all
end

-- ---- printing ------------------------------------------------------------------------------------------------------

--- Returns a table as text. Where its rows are of several parts, the first column says of which each is.
-- @param head list of words
-- @param rows list of lists of cells
-- @param items list of what the rows are of; the field `part` of each is a number, or nil
function parts.text(head, rows, items)
    local several = false
    for _, item in ipairs(items) do several = several or item.part ~= items[1].part end
    if not several then return table_.text(head, rows) end
    local out = {}
    for i, row in ipairs(rows) do out[i] = { items[i] and items[i].part or '', unpack(row) } end
    return table_.text({ 'part', unpack(head) }, out)
end

--- Returns a row for each kind that has bytes: its name, and its bytes in two forms.
-- @param kinds { [name of a kind] = bytes }
function parts.kind_rows(kinds)
    local rows = {}
    for _, name in ipairs(program.kind_names) do
        if kinds[name] > 0 then rows[#rows + 1] = { name, bytes.exact(kinds[name]), bytes.text(kinds[name]) } end
    end
    return rows
end

--- Class of the lists of parts of plans; prints as a table.
parts.List = {}
function parts.List.__tostring(list)
    local head, rows, several = { '#', 'program' }, {}, false
    for _, part in ipairs(list) do several = several or part.times > 1 end
    if several then head[3] = 'times' end
    for _, word in ipairs { 'peak', 'reserved', 'beside it', 'reserved in all', 'seconds' } do
        head[#head + 1] = word
    end
    for i, p in ipairs(list) do
        local row = { i, p.mode, several and p.times or nil }
        for _, size in ipairs { p.peak, p.reserved, p.beside, p.reserved + p.beside } do
            row[#row + 1] = bytes.exact(size)
        end
        row[#row + 1], rows[i] = ('%.6f'):format(p.seconds), row
    end
    return table_.text(head, rows)
end

return parts
