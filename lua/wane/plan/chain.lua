--- wane.plan_chain, wane.chain_frontier, wane.replay_chain and wane.chain_binomial: the planner on a table of stages,
-- without a model.
--
-- A chain is `{ input_bytes =, input_grad_bytes =, stages = { stage, ... } }`. A stage is `{ fwd_time =, bwd_time =,
-- out_bytes =, saved_bytes =, fwd_tmp_bytes =, bwd_tmp_bytes =, grad_bytes =, wgrad_bytes = (0), options = (nil) }`.
-- All are whole numbers below 2^53: bytes (text such as '1.5 MiB' is fine), and times in any one unit. `options` lists
-- the alternative saved sets of a stage. Each entry overrides saved_bytes, fwd_time, bwd_time, fwd_tmp_bytes or
-- bwd_tmp_bytes of the stage.
--
-- A schedule is a list of operations on stages, which are counted from 1:
--
-- * `{ 'F', i }` runs stage i and keeps its output;
-- * `{ 'Fe', i, o }` runs stage i and saves the set of option o, counted from 0;
-- * `{ 'B', i }` runs the backward of stage i;
-- * `{ 'Free', i }` frees the output or the saved set of stage i;
-- * `{ 'Shrink', i }` frees the saved set of stage i except its output.
--
-- The head of runtime/plan/chain/replay.c says what each operation requires and how many bytes it takes; the head of
-- runtime/plan/chain/solve.c says how the fastest schedule is found.
-- @module wane.plan.chain
local binding = require 'wane.ffi'
local bytes = require 'wane.report.bytes'
local errors = require 'wane.errors'
local text = require 'wane.report.table'

local C, check, raise = binding.C, binding.check, errors.raise
local ipairs, tonumber, type = ipairs, tonumber, type

local chain = {}

local MOST = 2 ^ 53

-- ---- from Lua to C ------------------------------------------------------------------------------------------------
local top_fields = { 'input_bytes', 'input_grad_bytes', 'stages' }
local own_fields = { 'out_bytes', 'grad_bytes' }
local option_fields = { 'fwd_time', 'bwd_time', 'saved_bytes', 'fwd_tmp_bytes', 'bwd_tmp_bytes' }
local stage_fields = { 'fwd_time', 'bwd_time', 'out_bytes', 'saved_bytes', 'fwd_tmp_bytes', 'bwd_tmp_bytes',
    'grad_bytes', 'wgrad_bytes', 'options' }

local function check_table(t, where, expected)
    if type(t) ~= 'table' or getmetatable(t) ~= nil then
        raise(nil, 'value', '%s: expected %s, got %s', where, expected, errors.describe(t))
    end
    return t
end

-- Refuses fields that `allowed` does not list.
local function check_names(t, allowed, where)
    local known = {}
    for _, name in ipairs(allowed) do known[name] = true end
    for name in pairs(t) do
        if not known[name] then
            raise(nil, 'value', "%s: unknown field '%s'; %s", where, tostring(name), errors.near(name, allowed))
        end
    end
end

-- Checks that a field is a whole number in [0, 2^53) and returns it. A field of bytes may be text such as '1.5 MiB'.
local function whole(value, where, name)
    local is_size = name:find 'bytes$' or name == 'budget'
    if is_size and type(value) == 'string' then value = bytes.parse(value, where .. ': ' .. name) end
    local kind = is_size and 'a whole number of bytes' or 'a whole number'
    if value == nil then raise(nil, 'value', '%s: %s is missing; expected %s, 0 or more', where, name, kind) end
    if type(value) ~= 'number' or not (value >= 0 and value < MOST) or value % 1 ~= 0 then
        raise(nil, 'value', '%s: %s is %s; expected %s, 0 or more, below 2^53', where, name, errors.describe(value),
            kind)
    end
    return value
end

-- Checks that t is a list with at least one entry, and returns it.
local function list_of(t, where, what)
    errors.list(t, where, what .. 's', 1)
    return t
end

-- Returns the options of a stage as plain tables, in which the stage's own fields stand where an option has none.
local function options_of(stage, where)
    if stage.options == nil then return { stage } end
    local out = {}
    for q, option in ipairs(list_of(stage.options, where .. ': options', 'option')) do
        local here = ('%s, option %d'):format(where, q - 1)
        check_names(check_table(option, here, 'a table'), option_fields, here)
        out[q] = {}
        for _, name in ipairs(option_fields) do
            if option[name] ~= nil then out[q][name] = option[name] else out[q][name] = stage[name] end
        end
    end
    return out
end

local function fill_option(target, option, where)
    for _, name in ipairs(option_fields) do target[name] = whole(option[name], where, name) end
end

-- Returns the chain as C structs: { chain, stage, option }, where `chain` points into the two arrays.
local function encode(t, what)
    check_names(check_table(t, what, 'a table of stages'), top_fields, what)
    local stages = list_of(t.stages, what .. ': stages', 'stage')
    local options, count = {}, 0
    for i, stage in ipairs(stages) do
        local where = ('%s: stage %d'):format(what, i)
        check_names(check_table(stage, where, 'a table'), stage_fields, where)
        options[i] = options_of(stage, where)
        count = count + #options[i]
    end
    local self = { stage = binding.list('struct wn_chain_stage', #stages),
        option = binding.list('struct wn_chain_option', count) }
    local first = 0
    for i, stage in ipairs(stages) do
        local where, target = ('%s: stage %d'):format(what, i), self.stage[i - 1]
        for _, name in ipairs(own_fields) do target[name] = whole(stage[name], where, name) end
        for _, name in ipairs { 'fwd_time', 'fwd_tmp_bytes' } do target[name] = whole(stage[name], where, name) end
        target.wgrad_bytes = whole(stage.wgrad_bytes or 0, where, 'wgrad_bytes')
        target.first, target.n_options = first, #options[i]
        for q, option in ipairs(options[i]) do
            local here = stage.options and ('%s, option %d'):format(where, q - 1) or where
            fill_option(self.option[first + q - 1], option, here)
        end
        first = first + #options[i]
    end
    self.chain = binding.new('struct wn_chain', { input_bytes = whole(t.input_bytes, what, 'input_bytes'),
        input_grad_bytes = whole(t.input_grad_bytes, what, 'input_grad_bytes'), stage = self.stage,
        option = self.option, n_stages = #stages, n_options = count })
    return self
end

local words = { [C.WN_CHAIN_F] = 'F', [C.WN_CHAIN_FE] = 'Fe', [C.WN_CHAIN_B] = 'B', [C.WN_CHAIN_FREE] = 'Free',
    [C.WN_CHAIN_SHRINK] = 'Shrink' }
local word_names, numbers = { 'F', 'Fe', 'B', 'Free', 'Shrink' }, {}
for number, word in pairs(words) do numbers[word] = number end

-- Returns a schedule as an array of C structs, and its number of operations.
local function encode_schedule(schedule, what)
    local op = binding.list('struct wn_chain_op', #list_of(schedule, what .. ': the schedule', 'operation'))
    for i, item in ipairs(schedule) do
        local where = ('%s: operation %d'):format(what, i)
        check_table(item, where, "a table such as { 'F', 1 }")
        local number = numbers[item[1]]
        if not number then
            raise(nil, 'value', "%s: there is no operation '%s'; %s", where, tostring(item[1]),
                errors.near(item[1], word_names))
        end
        local target = op[i - 1]
        target.what, target.stage = number, math.min(whole(item[2], where, 'the stage'), 2 ^ 31 - 1)
        if number == C.WN_CHAIN_FE then
            target.option = math.min(whole(item[3], where, 'the option'), 2 ^ 31 - 1)
        end
    end
    return op, #schedule
end

-- Returns n operations of a C array as a list.
local function decode_schedule(op, n)
    local out = {}
    for i = 0, n - 1 do
        local o = op[i]
        out[i + 1] = o.what == C.WN_CHAIN_FE and { 'Fe', o.stage, o.option } or { words[o.what], o.stage }
    end
    return out
end

-- ---- asking ---------------------------------------------------------------------------------------------------------
-- Opens a chain, calls fn(handle), and releases the handle before any error is raised. The first value that fn returns
-- is a negated status when it failed, else 0 or more; the other two are returned.
local function with_open(encoded, fn)
    local handle = binding.id(C.wn_chain_open(encoded.chain))
    local code, a, b = fn(handle)
    C.wn_release(handle)
    if code < 0 then check(code) end
    return a, b
end

local function replay(encoded, op, n)
    local cost = binding.new('struct wn_chain_cost')
    check(C.wn_chain_replay(encoded.chain, n, op, cost))
    return tonumber(cost.time), tonumber(cost.bytes)
end

local Plan = {}
Plan.__index = Plan

local function item_text(item)
    return item[3] and ('%s %d/%d'):format(item[1], item[2], item[3]) or ('%s %d'):format(item[1], item[2])
end

function Plan.__tostring(self)
    local items, runs, stages = {}, 0, 0
    for i, item in ipairs(self.schedule) do
        items[i] = item_text(item)
        if item[1] == 'F' or item[1] == 'Fe' then runs = runs + 1 end
        if item[1] == 'B' then stages = stages + 1 end
    end
    return ('time %d, peak %s bytes, %d stages, %d forward runs repeated\n%s'):format(self.time,
        bytes.exact(self.peak), stages, runs - stages, table.concat(items, ', '))
end

--- Returns the fastest schedule of a chain within a byte budget.
--
-- The schedule is optimal in a class that contains rotor's persistent schedules (Beaumont and others, "Optimal
-- checkpointing for heterogeneous chains", 2019) and the schedules that keep a stage's saved set while its input is
-- freed. Its time and peak are those of a replay (`replay_chain`).
-- @param t chain, as the head of this page describes it
-- @param budget bytes, a number or text such as '1.5 GiB'; the input of the chain counts
-- @return printable { time =, peak = bytes, schedule = list of operations }; or nil and the least budget in bytes when
-- no schedule fits
-- @raise 'value' for a field that is missing, unknown, or not a whole number
-- @usage
-- local stage = { fwd_time = 1, bwd_time = 2, out_bytes = 4, saved_bytes = 16, fwd_tmp_bytes = 0, bwd_tmp_bytes = 0,
--     grad_bytes = 4 }
-- local chain = { input_bytes = 4, input_grad_bytes = 4, stages = { stage, stage, stage, stage } }
-- local plan = wane.plan_chain(chain, 40)
-- print(plan.time, #plan.schedule, plan.schedule[4][1]) --> 15	11	Fe
-- print(wane.plan_chain(chain, 10)) --> nil	32
function chain.plan_chain(t, budget)
    local encoded = encode(t, 'wane.plan_chain')
    local limit = whole(budget, 'wane.plan_chain', 'budget')
    local op, n = with_open(encoded, function(handle)
        local least = binding.new('int64_t[1]')
        local code = C.wn_chain_least(handle, least)
        if code ~= 0 or limit < tonumber(least[0]) then return -code, nil, tonumber(least[0]) end
        local count = C.wn_chain_schedule(handle, limit, 0, nil)
        if count < 0 then return count end
        local list = binding.list('struct wn_chain_op', count)
        return C.wn_chain_schedule(handle, limit, count, list), list, count
    end)
    if not op then return nil, n end
    local time, peak = replay(encoded, op, n)
    return setmetatable({ time = time, peak = peak, schedule = decode_schedule(op, n) }, Plan)
end

local Frontier = {}
Frontier.__index = Frontier

function Frontier.__tostring(self)
    local rows = {}
    for i, point in ipairs(self) do rows[i] = { i, bytes.exact(point.bytes), ('%d'):format(point.time) } end
    return text.text({ '#', 'bytes', 'time' }, rows)
end

--- Returns every budget at which the fastest schedule of a chain gets faster.
--
-- The first point has the least budget that any schedule fits, the last one repeats no forward run.
-- @param t chain, as the head of this page describes it
-- @return printable list of { bytes =, time = } with bytes increasing and time decreasing. Its field `slack` bounds how
-- far a time may lie above the optimum of its budget: 0, unless the list was so long that points were left out.
-- @raise 'value' for a field that is missing, unknown, or not a whole number
-- @usage
-- local stage = { fwd_time = 1, bwd_time = 2, out_bytes = 4, saved_bytes = 16, fwd_tmp_bytes = 0, bwd_tmp_bytes = 0,
--     grad_bytes = 4 }
-- local frontier = wane.chain_frontier { input_bytes = 4, input_grad_bytes = 4, stages = { stage, stage, stage } }
-- print(#frontier, frontier[1].bytes, frontier[1].time) --> 4	32	12
function chain.chain_frontier(t)
    local encoded = encode(t, 'wane.chain_frontier')
    local slack = binding.new('int64_t[1]')
    local points, n = with_open(encoded, function(handle)
        local count = C.wn_chain_frontier(handle, 0, nil, slack)
        if count < 0 then return count end
        local list = binding.list('struct wn_chain_cost', count)
        return C.wn_chain_frontier(handle, count, list, slack), list, count
    end)
    local out = { slack = tonumber(slack[0]) }
    for i = 0, n - 1 do out[i + 1] = { bytes = tonumber(points[i].bytes), time = tonumber(points[i].time) } end
    return setmetatable(out, Frontier)
end

--- Replays a schedule of a chain operation by operation with the memory model of runtime/plan/chain/replay.c.
-- @param t chain, as the head of this page describes it
-- @param schedule list of operations
-- @return { time =, peak = bytes }
-- @raise 'illegal', with the operation and the rule that it breaks; 'value' for a malformed chain or schedule
-- @usage
-- local stage = { fwd_time = 1, bwd_time = 2, out_bytes = 4, saved_bytes = 16, fwd_tmp_bytes = 0, bwd_tmp_bytes = 0,
--     grad_bytes = 4 }
-- local chain = { input_bytes = 4, input_grad_bytes = 4, stages = { stage, stage } }
-- print(wane.replay_chain(chain, { { 'F', 1 }, { 'Fe', 2, 0 }, { 'B', 2 }, { 'Fe', 1, 0 }, { 'B', 1 } }).peak) --> 32
function chain.replay_chain(t, schedule)
    local encoded = encode(t, 'wane.replay_chain')
    local op, n = encode_schedule(schedule, 'wane.replay_chain')
    local time, peak = replay(encoded, op, n)
    return { time = time, peak = peak }
end

--- Returns the binomial schedule of n equal stages with at most `slots` outputs held at a time (Griewank and Walther,
-- "Algorithm 799: revolve", 2000).
-- @param n number of stages
-- @param slots outputs that may be held at a time, the one just computed included; at least 1 when n > 1
-- @return list of operations
-- @raise 'value' for a number of stages or slots that is out of range
-- @usage
-- print(#wane.chain_binomial(6, 2), wane.chain_binomial(6, 2)[1][1]) --> 23	F
function chain.chain_binomial(n, slots)
    local what = 'wane.chain_binomial'
    n = math.min(whole(n, what, 'the number of stages'), 2 ^ 31 - 1)
    slots = math.min(whole(slots, what, 'the number of slots'), 2 ^ 31 - 1)
    local count = binding.id(C.wn_chain_binomial(n, slots, 0, nil))
    local op = binding.list('struct wn_chain_op', count)
    binding.id(C.wn_chain_binomial(n, slots, count, op))
    return decode_schedule(op, count)
end

return chain
