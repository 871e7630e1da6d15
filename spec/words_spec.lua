-- Checks the making of plans. Decisions beside a budget bind every plan that the budget may choose: random graphs under
-- random decisions of every kind of policy, with the plans of the whole frontier looked at instruction by instruction.
-- 'recompute': the bytes are freed after the last forward reader, and the value is computed again. 'save': the value is
-- computed once. An action: as under the decisions alone. Then counts of work, requests in every order, and the keys by
-- which plans are found.
local helper = require 'spec.helper'
local wane = helper.wane or require 'wane'
local binding = require 'wane.ffi'
local chains = require 'spec.support.chains'
local graphs = require 'spec.support.planned_graphs'
local native = require 'spec.support.native'
local requests = require 'spec.support.requests'
local models = require 'spec.support.budget_models'
local shapes = require 'spec.support.shapes'
local nn, policy = wane.nn, wane.policy

local LONG = helper.is_long
local target = graphs.target()

-- ---- what a schedule does with a value ----------------------------------------------------------------------------

-- Returns which values each instruction reads, reads[node][value]: also through views, and through a node that another
-- node computes inside.
local function readers_of(graph, steps)
    local runs, reads = {}, {}
    for _, s in ipairs(steps) do
        if s.what == 'run' then runs[s.node] = true end
    end
    local function add(set, node)
        for _, input in ipairs(node.inputs) do
            set[input.index] = true
            if not runs[input.index] then add(set, input) end
        end
    end
    for _, node in ipairs(graph) do
        reads[node.index] = {}
        if runs[node.index] then add(reads[node.index], node) end
    end
    return reads
end

-- Returns what happens to a value until it is computed a second time: made (issues in all), waited (whether its bytes
-- are still taken at an instruction after its last forward reader).
local function life_of(steps, reads, node)
    local life, store, read, ended = { made = 0 }, nil, nil, nil
    for at, s in ipairs(steps) do
        if s.what == 'run' and s.node == node then
            life.made = life.made + 1
            if life.made == 1 then store, read = s.store, at end
        elseif store and not ended and life.made == 1 then
            if s.what == 'run' and s.phase == 'forward' and reads[s.node][node] then read = at end
            if s.store == store then ended = at end -- let go, or taken over in place
        end
    end
    for at = (read or 0) + 1, ended and ended - 1 or #steps do
        life.waited = life.waited or steps[at].what == 'run'
    end
    return life
end

-- Checks that a plan breaks no decision; returns how many decisions there were. by_hand: the plan of the decisions
-- alone.
local function check_words(plan, by_hand, what)
    local C, steps, graph, n = binding.C, plan:schedule(), plan.parts[1].program:graph(), 0
    local theirs, reads = by_hand.parts[1].program:graph(), readers_of(graph, steps)
    for i, node in ipairs(graph) do
        if node.is_residual and node.decision > 0 then
            local life = life_of(steps, reads, node.index)
            local where = ('%s: node %d, %s %s, word %d, made %d times'):format(what, node.index, node.op,
                node.path or '', node.decision, life.made)
            if node.decision == C.WN_DECISION_RECOMPUTE then
                -- A result, or an integer, stays.
                assert(theirs[i].copies == 1 or life.made >= 2 and not life.waited, where)
            else
                assert(node.action == theirs[i].action, where)
                assert(life.made == 1 or node.action == C.WN_DECISION_BITS, where)
            end
            n = n + 1
        end
    end
    return n
end

-- ---- random words ------------------------------------------------------------------------------------------------
local words = { 'save', 'recompute', 'recompute', 'recompute', 'offload', 'compress:bf16' }

local function pick(random, list) return list[random(1, #list)] end

-- Returns rules by one field of a plan's residuals: some of the field's values, each with a random decision of `few`;
-- then a list of all the values.
local function rules(random, residuals, field, few)
    local out, keys = { optional = true }, {}
    for _, r in ipairs(residuals) do
        local key = r[field]
        if key and key ~= '' and not out[key] then
            out[key] = pick(random, few)
            keys[#keys + 1] = key
        end
    end
    for k = 2, #keys do
        if random(1, 2) == 1 then out[keys[k]] = nil end
    end
    return out, keys
end

local ways = {}
function ways.op(random, residuals, few) return policy.by_op((rules(random, residuals, 'op', few))) end
function ways.name(random, residuals, few) return policy.by_name((rules(random, residuals, 'name', few))) end
function ways.type(random, residuals, few) return policy.by_type((rules(random, residuals, 'module', few))) end
function ways.path(random, residuals, few)
    local by, keys = rules(random, residuals, 'path', few)
    local list = { optional = true }
    for _, key in ipairs(keys) do
        if by[key] then list[#list + 1] = { key:gsub('%.', '%%.') .. '$', by[key] } end
    end
    return #list > 0 and policy.by_path(list) or policy.by_op { linear = 'recompute', optional = true }
end
function ways.place(random, _, few)
    local of, share = {}, random(1, 4)
    return policy.of(function(r)
        of[r.place] = of[r.place] or (random(1, 4) <= share and pick(random, few) or 'none')
        return of[r.place] ~= 'none' and of[r.place] or nil
    end)
end

-- Checks the plans of the frontier under the decisions: each keeps them, and one byte less than the least is refused.
local function check_frontier(record, p, what)
    local by_hand = wane.plan(record, { policy = p, target = target })
    local all, n = wane.frontier(record, { policy = p, target = target, points = 2 }).all, 0
    for k = 1, #all, LONG and 1 or math.max(1, math.floor(#all / 4)) do
        local plan = assert(wane.plan(record, { policy = p, budget = all[k].reserved, target = target }))
        assert.equal(all[k].reserved, plan.reserved)
        n = n + check_words(plan, by_hand, ('%s, %s'):format(what, all[k].name))
    end
    assert(all[#all].reserved <= by_hand.reserved, what)
    local none, why = wane.plan(record, { policy = p, budget = all[#all].reserved - 1, target = target })
    assert.is_nil(none)
    assert.equal(all[#all].reserved, why.min_budget)
    return n
end

describe('words beside a budget bind every plan', function()
    for _, kind in ipairs(graphs.kinds) do
        it('on random graphs, ' .. kind, function()
            local n = 0
            for seed = 1, LONG and 10 or 2 do
                local random = chains.random(seed * 31)
                local record = graphs.make(kind, seed, 12)
                local residuals = wane.plan(record, { policy = 'save_all', target = target }):residuals()
                for name, way in pairs(ways) do
                    local few = random(1, 2) == 1 and { 'recompute' } or words
                    local what = ('%s %d by %s'):format(kind, seed, name)
                    n = n + check_frontier(record, way(random, residuals, few), what)
                end
            end
            assert(n > 20, n)
        end)
    end

    it('on small models', function()
        for i, model in ipairs(models) do
            wane.manual_seed(i)
            local record = model.build()
            check_frontier(record, policy.by_op { gelu = 'recompute', relu = 'recompute', tanh = 'recompute',
                silu = 'recompute', optional = true }, model.name)
            if LONG then
                check_frontier(record, policy.by_op { linear = 'recompute', optional = true }, model.name)
                check_frontier(record, function() return 'recompute' end, model.name)
            end
        end
    end)

    it('on modules inside a model that has a budget, and on several losses', function()
        local list = {}
        for i = 1, 6 do list[i] = nn.Sequential { nn.Linear(24, 40), nn.GELU(), nn.Linear(40, 24), nn.Tanh() } end
        local m, x = nn.Sequential(list), wane.eval(wane.randn(64, 24))
        local function record() return m(x):sum() end
        m[2]:checkpoint(policy.by_op { gelu = 'recompute' })
        m[3]:checkpoint(function() return 'save' end)
        m[5]:checkpoint(function() return 'recompute' end)
        local by_hand = wane.plan(record, { target = target })
        for _, q in ipairs(wane.frontier(record, { target = target, points = 2 }).all) do
            m:checkpoint(policy.budget(q.reserved))
            local n = check_words(wane.plan(record, { target = target }), by_hand, q.name)
            assert(n >= 5, n)
            m:checkpoint(false)
        end
        m[2]:checkpoint(false)
        m[3]:checkpoint(false)
        m[5]:checkpoint(false)
        local opt = wane.optim.SGD(m:parameters(), { lr = 0.1 })
        local function step() opt:step { record(), (m(x) * m(x)):mean() } end
        assert(check_frontier(step, policy.by_op { gelu = 'recompute', tanh = 'save' }, 'two losses') >= 24)
        local function trunk()
            local y = m(x)
            opt:step { y:sum(), (y * y):mean() }
        end
        assert(check_frontier(trunk, policy.by_op { gelu = 'recompute', tanh = 'save' }, 'a trunk') >= 12)
    end)

    it('where the backward reads nothing', function()
        local x = wane.eval(wane.randn(64, 24))
        local function record() return x:gelu():tanh():sum() end
        local by_op = policy.by_op { gelu = 'recompute', optional = true }
        local least = wane.min_budget(record)
        for _, p in ipairs { policy.budget(least - 1), policy.compose(by_op, policy.budget(least - 1)) } do
            local none, why = wane.plan(record, { policy = p })
            assert.is_nil(none)
            assert.equal(least, why.min_budget)
        end
    end)
end)

-- ---- counts of work ------------------------------------------------------------------------------------------------
-- Checks planning at size by counts of work, not by seconds: four times the graph must take about four times the work,
-- whatever its shape; placing must meet its bound where it can; what is only looked at must not be kept.
local C = require('wane.ffi').C

local function count(what) return tonumber(C.wn_debug_get(what)) end

-- Instructions of Lua's machine that fn takes, in thousands; compiled code counts none, so nothing is compiled.
local function lua_work(fn)
    local thousands, was_on = 0, jit.status()
    jit.off()
    jit.flush()
    debug.sethook(function() thousands = thousands + 1 end, '', 1000)
    local ok, why = pcall(fn)
    debug.sethook()
    if was_on then jit.on() end
    assert(ok, why)
    return thousands
end

describe('planning at size', function()
    local device
    setup(function() device = wane.set_device 'meta' end)
    teardown(function() wane.set_device(device) end)

    it('records and plans four times as many modules with no more than four times the work of Lua', function()
        for _, name in ipairs { 'uneven', 'fan', 'parameters', 'rnn' } do
            local n = LONG and 400 or 100
            local small, large = shapes[name](n), shapes[name](4 * n)
            local a, b = lua_work(function() wane.plan(small) end), lua_work(function() wane.plan(large) end)
            assert.is_true(b <= 4.6 * a + 50, ('%s: %d thousand instructions, then %d'):format(name, a, b))
        end
    end)

    it('makes the list of four times as many nodes with no more than five times as many boxes placed', function()
        local list = { 'even', 'skips', 'fan' }
        if LONG then list = { 'even', 'uneven', 'skips', 'rnn', 'fan', 'parameters', 'two' } end
        for _, name in ipairs(list) do
            local function placed(n)
                local before = count 'placed_boxes'
                wane.min_budget(shapes[name](n))
                return count 'placed_boxes' - before
            end
            local n = LONG and 120 or 40
            local a, b = placed(n), placed(4 * n)
            assert.is_true(b <= 5 * a + 1000, ('%s: %d boxes placed, then %d'):format(name, a, b))
        end
    end)

    it('places the values of long programs within 2 % of what is alive at once', function()
        for _, name in ipairs { 'even', 'skips', 'two', 'rnn' } do
            local p = wane.plan(shapes[name](100))
            assert.is_true(p.reserved <= p.peak + 0.02 * p.arena, ('%s: %d bytes reserved, %d at the peak'):format(name,
                p.reserved, p.peak))
        end
    end)

    it('keeps no plan that a frontier only compares with', function()
        C.wn_debug('forget_plans', 1)
        local fn = shapes.uneven(4)
        local points = wane.frontier(fn)
        assert.is_true(#points.heuristics >= 5)
        assert.equal(0, count 'plans')
        wane.plan(fn)
        assert.equal(1, count 'plans')
        wane.frontier(fn) -- the script's own plan was there before, so it stays
        assert.equal(1, count 'plans')
    end)
end)

-- ---- requests in every order ---------------------------------------------------------------------------------------
-- Checks that the answer to a request never depends on what was asked before it in the process. Every request of
-- spec/support/requests.lua, first in a fresh process, is compared with the same request after others, in many orders.
local n_requests = #requests.list

-- Returns the reports of one process that makes requests in an order: list of { name =, text = }.
local function process(order)
    local text, code = helper.shell("LUA_PATH='lua/?.lua;lua/?/init.lua;;' WANE_COSTS=off "
        .. (os.getenv 'LUAJIT' or 'luajit') .. ' spec/support/requests.lua ' .. table.concat(order, ','))
    assert(code == 0, text)
    local reports = {}
    for line in (text .. '\n'):gmatch '(.-)\n' do
        local name = line:match '^== (.*)$'
        if name then
            reports[#reports + 1] = { name = name }
        elseif reports[1] then
            table.insert(reports[#reports], line)
        end
    end
    for _, report in ipairs(reports) do report.text = table.concat(report, '\n'):gsub('\n+$', '') end
    assert.equal(#order, #reports)
    return reports
end

local function rotated(first, step)
    local order = {}
    for k = 0, n_requests - 1 do order[k + 1] = (first - 1 + k * step) % n_requests + 1 end
    return order
end

local function differing(a, b)
    local lines = {}
    for line in (b .. '\n'):gmatch '(.-)\n' do lines[#lines + 1] = line end
    local k = 0
    for line in (a .. '\n'):gmatch '(.-)\n' do
        k = k + 1
        if line ~= lines[k] then return ("'%s', alone '%s'"):format(tostring(lines[k]), line) end
    end
    return 'it is longer'
end

describe('a request', function()
    local alone = {}

    setup(function()
        for k = 1, n_requests do alone[k] = process({ k })[1].text end
    end)

    local function check(order)
        for at, report in ipairs(process(order)) do
            local wanted = alone[order[at]]
            if report.text ~= wanted then
                error(("'%s' after '%s', %d before it: %s"):format(report.name,
                    at > 1 and requests.list[order[at - 1]][1] or 'nothing', at - 1, differing(wanted, report.text)), 0)
            end
        end
    end

    it('is answered differently from most others', function()
        local kinds, n = {}, 0
        for k = 1, n_requests do
            if not kinds[alone[k]] then n = n + 1 end
            kinds[alone[k]] = true
        end
        assert(n >= 0.7 * n_requests, n)
    end)

    it('answers what it answers alone, after any other: forwards and backwards through the list', function()
        check(rotated(1, 1))
        check(rotated(n_requests, -1))
    end)

    it('answers what it answers alone, whichever was the first of the process', function()
        for first = 1, n_requests, LONG and 2 or 9 do check(rotated(first, 1)) end
        for first = 2, LONG and n_requests or 0, 2 do check(rotated(first, -1)) end
    end)
end)

-- ---- fields of a key -----------------------------------------------------------------------------------------------
-- Checks the keys by which plans are found against the table of fields, runtime/plan/ir/ir.def: a program in C,
-- spec/support/key_fields.c, changes every field alone, and exactly the keys that its row says must change. A field
-- that is in no row cannot be in a struct, and a field of a target without a row must not compile.
local BUILD = 'gcc -std=c11 -D_GNU_SOURCE -Wall -Werror -O1 -ffunction-sections -Wl,--gc-sections -o %s '
    .. 'spec/support/key_fields.c runtime/plan/ir/keys.c runtime/graph/encode.c runtime/base/alloc.c '
    .. 'runtime/base/status.c'

-- Returns the rows of the table: { of = 'NODE', class =, write =, name = }.
local function rows()
    local out = {}
    for line in io.lines 'runtime/plan/ir/ir.def' do
        local of, class, write, name = line:match '^(%u+)%((%u+),%s*([%u_]+),.-([%w_]+)%)'
        if of then out[#out + 1] = { of = of, class = class, write = write, name = name } end
    end
    return out
end

-- Returns whether the keys of a schedule, a frontier and a block's options change with a field, as a text like '0 1 1'.
local function said(row, of)
    local is_written = row.write ~= 'NONE' and row.class ~= 'RUN'
    if not is_written then return '0 0 0' end
    local in_schedule = row.class ~= 'TAG' and of ~= 'PROPOSAL'
    return ('%d 1 1'):format(in_schedule and 1 or 0)
end

describe('a key', function()
    it('changes with exactly the fields that the table says', function()
        local changed = {}
        for line in helper.shell("'" .. native.make('key_fields', BUILD) .. "'"):gmatch '[^\n]+' do
            local field, keys = line:match '^(%u+ [%w_]+) (.*)$'
            changed[field] = keys
        end
        local wrong, n = {}, 0
        for _, row in ipairs(rows()) do
            local in_both = row.of == 'MARKS' and row.name ~= 'proposal' -- a proposal has none itself
            local list = row.name == 'next' and { 'PROPOSAL' } or in_both and { 'MARKS', 'PROPOSAL' } or { row.of }
            for _, of in ipairs(list) do
                local field = of .. ' ' .. row.name
                if changed[field] ~= said(row, of) then
                    wrong[#wrong + 1] = ('%s: %s, expected %s'):format(field, changed[field], said(row, of))
                end
                n = n + 1
            end
        end
        assert.equal('', table.concat(wrong, '\n'))
        assert(n > 100, n)
    end)

    it('has every field of a target, as one without a row does not compile', function()
        local folder = os.tmpname()
        os.remove(folder)
        local text, code = helper.shell(([[mkdir %s && cp -r runtime kernels %s && cd %s &&
            sed -i 's/    struct wn_profile rates;/&\n    int32_t added;/' runtime/base/target.h &&
            gcc -std=c11 -D_GNU_SOURCE -fsyntax-only runtime/plan/ir/keys.c; code=$?; rm -rf %s; exit $code]])
            :format(folder, folder, folder, folder))
        assert.not_equal(0, code)
        assert.matches('every field of a target has a row in ir.def', text)
    end)
end)
