--- Makes chains for the specs of the planner, and has the solver (runtime/plan/chain) solve them: random ones, and
-- two oracles that share nothing with the solver or with each other but the table of the memory model: an exhaustive
-- search over everything that is legal, and the recurrence of a class of schedules at one budget.
--
-- A chain is `{ input_bytes =, input_grad_bytes =, stages = { stage, ... } }`. A stage is `{ fwd_time =, bwd_time =,
-- out_bytes =, saved_bytes =, fwd_tmp_bytes =, bwd_tmp_bytes =, grad_bytes =, wgrad_bytes = (0), options = (nil) }`,
-- all whole numbers. An entry of `options` overrides saved_bytes, fwd_time, bwd_time, fwd_tmp_bytes or bwd_tmp_bytes
-- of the stage. A schedule is a list of operations on stages, from 1: { 'F', i }, { 'Fe', i, option from 0 },
-- { 'B', i }, { 'Free', i }, { 'Shrink', i }; the head of chain_replay.lua says what each requires and takes.
local binding = require 'wane.ffi'
local ffi = require 'ffi'
local cuts, errors, native = require 'wane.policy.cuts', require 'wane.errors', require 'spec.support.native'

local chains = { replay = require 'spec.support.chain_replay' }

--- Returns a generator of whole numbers, random(low, high), with a state of its own: Lua's is shared by everybody.
function chains.random(seed)
    local state = seed % 2147483646 + 1
    local function draw()
        state = state * 48271 % 2147483647
        return state
    end
    draw()
    return function(low, high) return low + draw() % (high - low + 1) end
end

--- Makes a chain of n stages with up to `most` options each, every number drawn on its own.
-- @param more { allocated = true: gradients of parameters are allocated; plain = true: no `options` }
function chains.make(random, n, most, more)
    more = more or {}
    local stages = {}
    for i = 1, n do
        local out, time = random(2, 40), random(1, 40)
        local s = { fwd_time = time, bwd_time = random(1, 80), out_bytes = out, saved_bytes = out + random(0, 80),
            fwd_tmp_bytes = random(0, 20), bwd_tmp_bytes = random(0, 20), grad_bytes = random(0, 3) > 0 and out
            or random(0, 40) }
        if more.allocated then s.wgrad_bytes = random(0, 60) end
        if not more.plain then
            s.options = {}
            for q = 1, random(1, most) do
                s.options[q] = { saved_bytes = out + random(0, 120), bwd_time = s.bwd_time + random(0, 40) }
                if random(0, 1) == 1 then s.options[q].fwd_time = time + random(0, 10) end
                if random(0, 1) == 1 then s.options[q].fwd_tmp_bytes = random(0, 30) end
                if random(0, 1) == 1 then s.options[q].bwd_tmp_bytes = random(0, 30) end
            end
        end
        stages[i] = s
    end
    return { input_bytes = random(0, 40), input_grad_bytes = random(0, 40), stages = stages }
end

--- Returns a field of option o, from 0, of a stage.
function chains.field(stage, o, name)
    local option = stage.options and stage.options[o + 1]
    if option and option[name] ~= nil then return option[name] end
    return stage[name]
end
local field = chains.field

function chains.options(stage)
    return stage.options and #stage.options or 1
end

local function grad(c, i)
    return i == 0 and c.input_grad_bytes or c.stages[i].grad_bytes
end

-- ---- the solver's answers -------------------------------------------------------------------------------------------
local library -- the solver, once it is asked for

--- Returns the library of the solver, with what it declares and what its memory can be asked.
function chains.library()
    if library then return library end
    local file = assert(io.open 'runtime/plan/chain/chain.h')
    ffi.cdef((file:read('*a'):gsub('\n#[^\n]*', '\n')))
    file:close()
    ffi.cdef [[
        const char *wn__message(void);
        const char *wn__status_name(int32_t code);
        void wn__free(void *p);
        int64_t wn__alloc_fails_in;
        int64_t wn__alloc_count(void);
    ]]
    library = native.load('chain.so', (os.getenv 'WANE_SPEC_CC' or 'gcc') .. ' -std=c11 -D_GNU_SOURCE -O2 -fPIC '
        .. '-shared -Wl,-z,defs -o %s runtime/plan/chain/*.c runtime/base/alloc.c runtime/base/status.c '
        .. 'runtime/base/interrupt.c')
    return library
end

-- Raises the error that the library says, where a status is one.
local function check(code)
    if code == 0 then return end
    error(errors.new(ffi.string(library.wn__status_name(code)), ffi.string(library.wn__message())), 0)
end

-- Returns a chain as blocks for the solver, and the arrays that they point into. The peaks of a block are what the
-- memory model of chain_replay.lua adds to the live bytes, so the bytes of the solver and of a replay are equal.
-- longest: most corners of a table, or nil.
local function encode(c, longest)
    local n = 0
    for _, stage in ipairs(c.stages) do n = n + chains.options(stage) end
    local blocks = binding.list('struct wn__chain_block', #c.stages)
    local options = binding.list('struct wn__block_option', n)
    n = 0
    for i, s in ipairs(c.stages) do
        blocks[i - 1] = { time = s.fwd_time, peak = s.out_bytes + s.fwd_tmp_bytes, bytes = s.out_bytes,
            grad = i < #c.stages and s.grad_bytes or 0, allocated = s.wgrad_bytes or 0, first = n,
            n_options = chains.options(s) }
        for o = 0, chains.options(s) - 1 do
            local saved = field(s, o, 'saved_bytes')
            options[n] = { forward = field(s, o, 'fwd_time'), backward = field(s, o, 'bwd_time'), saved = saved,
                peak_forward = saved + field(s, o, 'fwd_tmp_bytes'),
                peak_backward = saved + s.grad_bytes + grad(c, i - 1) + field(s, o, 'bwd_tmp_bytes') }
            n = n + 1
        end
    end
    return binding.new('struct wn__chain_blocks', { n = #c.stages, n_options = n, block = blocks, option = options,
        outside = c.input_bytes, longest = longest or 2 ^ 31 - 1 }), { blocks, options }
end

-- Returns what fn(solution of the chain) does.
local function solved(c, longest, fn)
    chains.library()
    local blocks, arrays = encode(c, longest)
    local out = ffi.new 'struct wn__chain_solution *[1]'
    check(library.wn__chain_open(blocks, out))
    local function closed(_, ok, ...)
        library.wn__chain_close(out[0])
        if not ok then error((...), 0) end
        return ...
    end
    return closed(arrays, pcall(fn, out[0])) -- keeps the arrays until here
end

local words = { [0] = 'F', 'Fe', 'Free', 'B', 'Shrink' } -- WN_STEP_

--- Returns the fastest schedule of a chain within a budget in bytes: { time =, peak =, schedule = }, as a replay finds
-- them; or nil and the least budget. longest: most corners of a table, or nil.
function chains.plan(c, budget, longest)
    return solved(c, longest, function(solution)
        local least = tonumber(library.wn__chain_least(solution))
        if budget < least then return nil, least end
        local out, n, schedule = ffi.new 'struct wn__chain_op *[1]', ffi.new 'int32_t[1]', {}
        check(library.wn__chain_schedule(solution, budget, out, n))
        for i = 1, n[0] do
            local op = out[0][i - 1]
            schedule[i] = { words[op.what], op.stage, words[op.what] == 'Fe' and op.option or nil }
        end
        library.wn__free(out[0])
        local plan = chains.replay(c, schedule)
        plan.schedule = schedule
        return plan
    end)
end

--- Returns the budgets at which the fastest schedule of a chain gets faster: a list of { bytes =, time = }, bytes up.
-- longest: most corners of a table, or nil.
function chains.frontier(c, longest)
    return solved(c, longest, function(solution)
        local points, n = ffi.new 'const struct wn__chain_cost *[1]', ffi.new 'int32_t[1]'
        local out = {}
        check(library.wn__chain_frontier(solution, points, n))
        for i = 1, n[0] do
            out[i] = { bytes = tonumber(points[0][i - 1].bytes), time = tonumber(points[0][i - 1].time) }
        end
        return out
    end)
end

--- Returns Griewank and Walther's schedule of n equal stages with at most `slots` outputs held at a time.
function chains.binomial(n, slots)
    local list = {}
    local function add(...) list[#list + 1] = { ... } end
    local function reverse(first, length, left)
        while length > 1 do
            local k = cuts.split(length, left)
            for i = first, first + k - 1 do
                add('F', i)
                if i > first then add('Free', i - 1) end
            end
            reverse(first + k, length - k, left - 1)
            length = k
        end
        add('Fe', first, 0)
        add('B', first)
    end
    reverse(1, n, slots)
    return list
end

-- ---- chains of the size of models ----------------------------------------------------------------------------------
--- Returns times in nanoseconds of a device with 150 TFLOP/s in products and 2 TB/s.
local function nanoseconds(flops, bytes)
    return math.ceil(math.max(flops / 150e3, bytes / 2e3)) + 2000
end

-- The values that a block of a transformer can keep, as shares of tokens x width in two bytes, and the time to compute
-- them again: the options are the 8 nested sets from the block's input to all of it.
local keeps = {
    { 'norm', 1, 0 }, { 'qkv', 3, 6 }, { 'attention', 1, 4 }, { 'projection', 1, 2 }, { 'norm 2', 1, 0 },
    { 'wide', 4, 8 }, { 'gelu', 4, 0 },
}

--- Makes the chain of GPT-2 with a head: layers of one kind, each with 8 saved sets, and the head as a last stage.
function chains.gpt(layers, tokens, width, heads, vocabulary, batch)
    local unit = 2 * batch * tokens * width
    local square = batch * tokens * width * width
    local score = 2 * batch * tokens * tokens * width
    local forward = nanoseconds(24 * square + 2 * score, 30 * unit)
    local all = { out_bytes = unit, fwd_time = forward, bwd_time = 2 * forward, saved_bytes = 16 * unit,
        fwd_tmp_bytes = 8 * unit, bwd_tmp_bytes = 9 * unit, grad_bytes = unit,
        options = {} }
    local saved, again = unit + 4 * batch * heads * tokens, forward
    all.options[1] = { saved_bytes = saved, bwd_time = 2 * forward + again, bwd_tmp_bytes = 24 * unit }
    for _, keep in ipairs(keeps) do
        saved = saved + keep[2] * unit
        again = again - math.floor(forward * (keep[2] + 2 * keep[3]) / 60)
        all.options[#all.options + 1] = { saved_bytes = saved, bwd_time = 2 * forward + again,
            bwd_tmp_bytes = 24 * unit - math.floor((saved - unit) / 2) }
    end
    local stages = {}
    for i = 1, layers do stages[i] = all end
    local logits = 4 * batch * tokens * vocabulary
    local head = nanoseconds(2 * batch * tokens * width * vocabulary, 2 * logits)
    stages[layers + 1] = { fwd_time = head, bwd_time = 2 * head, out_bytes = 4, saved_bytes = logits,
        fwd_tmp_bytes = logits, bwd_tmp_bytes = logits, grad_bytes = 4 }
    return { input_bytes = unit, input_grad_bytes = unit, stages = stages }
end

--- Makes a chain of stages without an equal pair, each with `options` saved sets, the more bytes the less time.
function chains.varied(n, options, seed)
    local random, stages = chains.random(seed), {}
    for i = 1, n do
        local out, time = random(2e6, 4e7), random(1e5, 2e6)
        local all = random(2 * out, 8 * out)
        local s = { fwd_time = time, bwd_time = 2 * time, out_bytes = out, saved_bytes = all,
            fwd_tmp_bytes = random(0, out), bwd_tmp_bytes = random(0, 2 * out), grad_bytes = out, options = {} }
        for q = 1, options do
            local share = options > 1 and (q - 1) / (options - 1) or 1
            s.options[q] = { saved_bytes = math.floor(out + (all - out) * share) + random(0, 1e5),
                bwd_time = math.floor(2 * time + time * (1 - share) ^ 2) + random(0, 1e4) }
        end
        stages[i] = s
    end
    return { input_bytes = 1e7, input_grad_bytes = 0, stages = stages }
end

-- ---- the oracle of everything legal ----------------------------------------------------------------------------
-- A state is the stage whose backward is next and, of each stage before it, what is held: 0 nothing, 1 the bare
-- output, 2 + o the saved set of option o. What is held of later stages is of no use and never made.

local function bytes_of(stage, held)
    if held == 0 then return 0 end
    return held == 1 and stage.out_bytes or field(stage, held - 2, 'saved_bytes')
end

local function heap_push(heap, item)
    local i = #heap + 1
    heap[i] = item
    while i > 1 do
        local up = math.floor(i / 2)
        if heap[up].time <= heap[i].time then break end
        heap[up], heap[i] = heap[i], heap[up]
        i = up
    end
end

local function heap_pop(heap)
    local top, last = heap[1], table.remove(heap)
    if #heap == 0 then return top end
    heap[1] = last
    local i = 1
    while true do
        local least = i
        for child = 2 * i, 2 * i + 1 do
            if heap[child] and heap[child].time < heap[least].time then least = child end
        end
        if least == i then return top end
        heap[least], heap[i] = heap[i], heap[least]
        i = least
    end
end

-- Returns the model of a chain as arrays: base (digits of a state), place[i] (weight of stage i's digit), allocated[i]
-- (bytes of the gradients of parameters that are live when the backward of stage i is next).
local function model_of(c)
    local m = { c = c, n = #c.stages, base = 2, place = {}, allocated = {} }
    for _, s in ipairs(c.stages) do m.base = math.max(m.base, 2 + chains.options(s)) end
    local weight = #c.stages + 1
    for i = 1, m.n do
        m.place[i] = weight
        weight = weight * m.base
    end
    m.allocated[m.n] = 0
    for i = m.n, 1, -1 do m.allocated[i - 1] = m.allocated[i] + (c.stages[i].wgrad_bytes or 0) end
    return m
end

-- Calls visit(next state, bytes during, time, operation) for everything that can be done in a state.
local function each_move(m, state, visit)
    local c, next_b = m.c, state % (m.n + 1)
    local held, live = {}, c.input_bytes + m.allocated[next_b] + (next_b < m.n and grad(c, next_b) or 0)
    for i = 1, next_b do
        held[i] = math.floor(state / m.place[i]) % m.base
        live = live + bytes_of(c.stages[i], held[i])
    end
    held[0] = 1
    for i = 1, next_b do
        local s, here = c.stages[i], m.place[i]
        local bare = state - held[i] * here
        if held[i - 1] > 0 then
            if held[i] == 0 and i < next_b then
                visit(bare + here, live + s.out_bytes + s.fwd_tmp_bytes, s.fwd_time, { 'F', i })
            end
            for o = 0, held[i] < 2 and chains.options(s) - 1 or -1 do
                visit(bare + (2 + o) * here, live + field(s, o, 'saved_bytes') + field(s, o, 'fwd_tmp_bytes'),
                    field(s, o, 'fwd_time'), { 'Fe', i, o })
            end
        end
        if held[i] > 0 then visit(bare, live, 0, { 'Free', i }) end
        if held[i] > 1 then visit(bare + here, live, 0, { 'Shrink', i }) end
    end
    local k = next_b
    if held[k] > 1 and held[k - 1] > 0 then
        local s, o = c.stages[k], held[k] - 2
        local after = state - held[k] * m.place[k] - 1
        if k > 1 and held[k - 1] == 1 then after = after - m.place[k - 1] end
        visit(after, live + (k == m.n and grad(c, k) or 0) + grad(c, k - 1) + field(s, o, 'bwd_tmp_bytes')
            + (s.wgrad_bytes or 0), field(s, o, 'bwd_time'), { 'B', k })
    end
end

-- Returns the least time within a budget, then the peak, the operations and the last state of one schedule that takes
-- it; nil: there is none.
local function search(m, budget)
    local start = m.n
    local time, peak, from, heap, done = { [start] = 0 }, { [start] = m.c.input_bytes }, {}, {}, {}
    heap_push(heap, { time = 0, state = start })
    while #heap > 0 do
        local item = heap_pop(heap)
        local state = item.state
        if not done[state] then
            done[state] = true
            if state % (m.n + 1) == 0 then return item.time, peak[state], from, state end
            each_move(m, state, function(after, during, takes, operation)
                local total = item.time + takes
                if during <= budget and not done[after] and (time[after] == nil or total < time[after]) then
                    time[after], peak[after] = total, math.max(peak[state], during)
                    from[after] = { state, operation }
                    heap_push(heap, { time = total, state = after })
                end
            end)
        end
    end
end

--- Returns the frontier of all legal schedules: a list of { bytes, time, schedule }, bytes up.
function chains.best_frontier(c)
    local m, budget, out = model_of(c), math.huge, {}
    while true do
        local time, peak, from, state = search(m, budget)
        if not time then return out end
        local schedule = {}
        while from[state] do
            table.insert(schedule, 1, from[state][2])
            state = from[state][1]
        end
        if out[1] and out[1].time == time then table.remove(out, 1) end
        table.insert(out, 1, { bytes = peak, time = time, schedule = schedule })
        budget = peak - 1
    end
end

--- Returns the time a frontier has at a budget, or nil.
function chains.at(frontier, budget)
    local found
    for _, point in ipairs(frontier) do
        if point.bytes <= budget then found = point.time end
    end
    return found
end

-- ---- the oracles of classes of schedules ---------------------------------------------------------------------------
--- Returns the least time within a budget, or nil, of a class of schedules. 'persistent' (rotor's class): what is kept
-- in the forward stays until its backward. 'extended': a stage may also be saved by any of its options while its input
-- is let go, which is made again before its backward (move D of runtime/plan/chain/solve.c). Solves one budget at a
-- time, straight from the memory model.
function chains.least_time(c, budget, class)
    local n, memo, none = #c.stages, {}, { saved = 0 }
    local option = {}
    for i, stage in ipairs(c.stages) do
        option[i] = {}
        for o = 0, chains.options(stage) - 1 do
            option[i][o + 1] = { saved = field(stage, o, 'saved_bytes'), forward = field(stage, o, 'fwd_time'),
                backward = field(stage, o, 'bwd_time'), forward_tmp = field(stage, o, 'fwd_tmp_bytes'),
                backward_tmp = field(stage, o, 'bwd_tmp_bytes'), number = o + 1 }
        end
    end
    local function allocated(i)
        local sum = 0
        for k = i + 1, n do sum = sum + (c.stages[k].wgrad_bytes or 0) end
        return sum
    end
    local function backward_bytes(i, q)
        return allocated(i - 1) + q.saved + grad(c, i) + grad(c, i - 1) + q.backward_tmp
    end
    local solve
    -- Solves stages s..t, the input of s held elsewhere; p: how t is saved already, or none.
    local function solve_anew(s, t, p, room)
        local best, beside = math.huge, allocated(t) + (t < n and grad(c, t) or 0) + p.saved
        if s == t and p ~= none then return backward_bytes(s, p) <= room and p.backward or best end
        for _, q in ipairs(option[s]) do
            if beside + q.saved + q.forward_tmp <= room and backward_bytes(s, q) <= room then
                local rest = s < t and solve(s + 1, t, p, room - q.saved) or 0
                best = math.min(best, q.forward + rest + q.backward)
            end
        end
        local ran, input = 0, 0
        for j = s + 1, t do
            local before = c.stages[j - 1]
            if beside + input + before.out_bytes + before.fwd_tmp_bytes > room then break end
            ran, input = ran + before.fwd_time, before.out_bytes
            best = math.min(best, ran + solve(j, t, p, room - input) + solve(s, j - 1, none, room))
            for _, q in ipairs(class == 'extended' and (j < t or p == none) and option[j] or {}) do
                if beside + input + q.saved + q.forward_tmp <= room then
                    local rest = j < t and solve(j + 1, t, p, room - q.saved) or 0
                    best = math.min(best, ran + q.forward + rest + solve(s, j, q, room))
                end
            end
        end
        return best
    end
    function solve(s, t, p, room)
        local key = ((s * (n + 1) + t) * 16 + (p.number or 0)) * 2 ^ 30 + room
        if memo[key] == nil then memo[key] = solve_anew(s, t, p, room) end
        return memo[key]
    end
    local time = solve(1, n, none, budget - c.input_bytes)
    return time < math.huge and time or nil
end

return chains
