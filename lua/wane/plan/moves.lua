--- Describes what a plan does with each residual - saves, recomputes, offloads or compresses it - and the transfers of
-- the whole step.
-- @internal wane.plan.moves
local binding = require 'wane.ffi'
local bytes = require 'wane.report.bytes'
local policy = require 'wane.policy'
local ranks = require 'wane.program.ranks'

local C = binding.C

local moves = {}

--- Returns what a plan does with a residual.
-- @param node of plan:graph()
-- @return 'save', 'recompute', or an action such as 'compress:bf16'
function moves.decision(node)
    if node.action > 0 then return policy.decision_name(node.action) end
    return node.copies > 1 and 'recompute' or 'save'
end

--- Returns a line about the values that are kept in other forms, or nil when there are none.
-- @param plan Plan, whose parts have their graphs
function moves.text(plan)
    local counts, order = {}, {}
    local function add(node)
        local c = counts[node.action]
        if not c then
            c = { word = policy.decision_name(node.action), n = 0, bytes = 0,
                lossy = C.wn_action_lossy(node.action) ~= 0 }
            counts[node.action], order[#order + 1] = c, c
        end
        c.n, c.bytes = c.n + 1, c.bytes + node.bytes
    end
    for _, part in ipairs(plan.parts) do
        for _, node in ipairs(part.graph) do
            if node.action > 0 then add(node) end
        end
    end
    if #order == 0 then return nil end
    table.sort(order, function(a, b) return a.word < b.word end)
    local words = {}
    for i, c in ipairs(order) do
        words[i] = ('%s %d values of %s%s'):format(c.word, c.n, bytes.text(c.bytes), c.lossy and ' (lossy)' or '')
    end
    local moved = plan.moved > 0 and ('; %s moved in %.3g s, %.0f %% of it hidden; buffers: %s on disk, %s of host '
        .. 'memory'):format(bytes.text(plan.moved), plan.move_seconds, 100 * plan.hidden, bytes.text(plan.disk),
        bytes.text(plan.host)) or ''
    return 'between forward and backward: ' .. table.concat(words, ', ') .. moved
        .. (plan.lossy > 0 and '; gradients are not those of saving, to the bit' or '')
end

--- Returns a line about what moves among ranks, what that costs, and what a larger `partial` would send less; nil where
-- nothing does.
-- @param plan Plan
function moves.exchanges(plan)
    if plan.wire_seconds == 0 then return nil end
    -- exchanges of partial sums; bytes sent in all of them; whether machines make those together
    local rounds, given, is_shared, count, starts = 0, 0, false, 0, 0
    for number, part in ipairs(plan.parts) do
        local summed = part.request.given and #part.points or 0
        rounds, is_shared = rounds + summed, is_shared or part.request.is_shared
        for _, step in ipairs(summed > 0 and plan:schedule() or {}) do
            if step.part == number and step.op == 'all_to_all' and step.what == 'exchange' then
                given = given + summed * (part.request.is_shared and step.sent_outside or step.sent)
            end
        end
    end
    local before
    for _, step in ipairs(plan:schedule()) do
        if step.what == 'exchange' then
            local points = #plan.parts[step.part].points
            count, starts = count + points, starts + (before == 'exchange' and 0 or points)
        end
        if step.what ~= 'free' then before = step.what end
    end
    local less = rounds > 1 and ('; twice the `partial` would send %s less'):format(
        bytes.text(given * math.floor(rounds / 2) / rounds)) or ''
    if plan.sent_outside > 0 and not is_shared and ranks.per_node > 1 then
        less = less .. ('; a `partial` that %d divides would have each machine make its partial sums together'):format(
            ranks.per_node)
    end
    local far = plan.sent_outside > 0 and (', %s of it to other machines'):format(bytes.text(plan.sent_outside)) or ''
    return ('among ranks: %s sent%s by %d exchanges in %d groups, in %.3g s, of which kernels wait for %.3g s%s')
        :format(bytes.text(plan.sent), far, count, starts, plan.wire_seconds, plan.wait, less)
end

return moves
