--- Warns of steps that are planned again and again, and names the difference.
--
-- A training loop plans its step once and then only runs it, as long as every step records the same program. When a
-- line of a script plans a backward pass or a step five times, with few run points between them and under policies of
-- the same name, it is told once how this recording differs from the one before. Only plans are compared, so a step
-- that is found again costs nothing.
-- @internal wane.program.replan
local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local tensor = require 'wane.tensor'

local C, check = binding.C, binding.check

local replan = {}

local MANY = 5
local APART = 16 -- most run points from one plan to the next; with more, other models are trained in turn
local steps = {} -- place, mode and policy -> { count =, last = run point, seen = description of plan MANY - 1 }

local info = binding.new('struct wn_node_info')

-- Names a node for messages: 'add', "linear 'blocks.1.up'", "an input", "the parameter read by this step".
local function name_of(node)
    if node.op == 'cell' then return ('the %s read by this step'):format(node.cell_kind or 'state') end
    if node.leaf ~= 0 then return 'an input' end
    local path = node.name ~= '' and node.name or node.path
    return path ~= '' and path ~= nil and ("%s '%s'"):format(node.op, path) or node.op
end

local function numbers_of(handle, node)
    check(C.wn_node(handle, node.index, info))
    local list = {}
    for k = 0, math.max(info.attrs.n - 1, 2) do list[#list + 1] = ('%.17g'):format(tonumber(info.attrs.i[k])) end
    for k = 0, 1 do list[#list + 1] = ('%.17g'):format(info.attrs.f[k]) end
    if node.op == 'narrow' or node.op == 'narrow_grad' then list[2] = '' end -- bound at run
    return table.concat(list, ', ')
end

-- Describes an open program for comparison: a list with an entry for each node, and the fields policy and fallback.
local function describe(p)
    local list = { policy = p.policy, fallback = p.fallback }
    for i, node in ipairs(p:graph()) do
        list[i] = { what = name_of(node), op = node.op, type = node.dtype .. ' ' .. tensor.shape_text(node.shape),
            numbers = node.leaf == 0 and numbers_of(p.handle, node) or '', scope = node.scope, region = node.region,
            name = node.name, is_held = node.leaf ~= 0, needs_grad = node.needs_grad,
            line = binding.text(C.wn_line_text(node.line)) }
    end
    return list
end

-- Returns the first difference of two nodes as text, or nil.
local function node_difference(now, before)
    if now.op ~= before.op then
        local pair = { assign = true, accumulate = true }
        if pair[now.op] and pair[before.op] then
            return now.op == 'assign' and 'gradients were cleared this time and not the time before'
                or 'gradients of the step before are still there: opt:zero_grad() clears them'
        end
        return ('%s was recorded where it was %s before'):format(now.what, before.what)
    end
    if now.type ~= before.type then return ('%s is %s, it was %s'):format(now.what, now.type, before.type) end
    if now.numbers ~= before.numbers then
        return ('%s has the attributes (%s), they were (%s)'):format(now.what, now.numbers, before.numbers)
    end
    if now.is_held ~= before.is_held then
        return ('%s %s held already, it was%s before'):format(now.what, now.is_held and 'is' or 'is not',
            now.is_held and ' not' or '')
    end
    if now.needs_grad ~= before.needs_grad then
        return ('%s %s a gradient, it did%s before'):format(now.what, now.needs_grad and 'needs' or 'needs no',
            now.needs_grad and ' not' or '')
    end
    if now.name ~= before.name then return ("%s is named '%s', it was '%s'"):format(now.op, now.name, before.name) end
    if now.region ~= before.region then return now.what .. ' lies in another checkpoint region' end
    if now.scope ~= before.scope then return now.what .. ' was recorded in another module' end
end

-- Returns the first difference of two descriptions as text, or nil.
local function difference(now, before)
    for k, node in ipairs(now) do
        local words = before[k] and node_difference(node, before[k])
        if words then return node.line ~= '' and ('%s (%s)'):format(words, node.line) or words end
    end
    if #now ~= #before then return ('%d nodes were recorded, %d the time before'):format(#now, #before) end
    if now.policy ~= before.policy then
        return ("the policy '%s' is another object; make it once, outside the loop"):format(tostring(now.policy))
    end
    if now.fallback ~= before.fallback then return 'policy.default was set to another policy' end
end

-- Returns words about tensors that the script compared by `==`, after a difference; '' where it compared none.
local function comparisons()
    local lines = tensor.compared()
    if #lines == 0 then return '' end
    return ('. Tensors were compared by == (%s), which asks whether they are the same tensor, not whether values are '
        .. 'equal: use a:eq(b), or compare numbers of item()'):format(table.concat(lines, ', '))
end

--- Counts a plan that a run point had to make, and warns at the fifth.
-- @param p Program that is planned and did not run
-- @param run number of the run point
function replan.note(p, run)
    local mode = p.request.mode
    if mode ~= 'backward' and mode ~= 'step' then return end
    local place = errors.where() or '?'
    local r = p.request -- of a step among ranks, several rounds have plans of their own
    local key = ('%s %s %s %d %s'):format(place, mode, p.policy and p.policy.name or '', r.given or 0, r.is_last)
    local step = steps[key] or { count = 0, last = run }
    steps[key] = step
    if step.count < MANY and run - step.last > APART then step.count = 0 end
    step.count, step.last = step.count + 1, run
    if step.count == MANY - 1 then
        step.seen = describe(p)
    elseif step.count == MANY then
        io.stderr:write(('wane: %s: this step is planned for the %dth time, and planning takes longer than a small '
            .. 'step. What differs from the time before: %s%s\n'):format(place, MANY,
            difference(describe(p), step.seen) or 'nothing of what is recorded differs, so more plans are in use than '
                .. 'the 64 that are kept, or gradients lie elsewhere', comparisons()))
        step.seen = nil
    end
end

return replan
