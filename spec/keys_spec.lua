-- Checks that the answer to a request never depends on what was asked before it in the process. Every request of
-- spec/support/requests.lua, first in a fresh process, is compared with the same request after others, in many orders.
-- What is bound at a run must be bound to each recording's own values.
local helper = require 'spec.helper'
local binding = require 'wane.ffi'
local requests = require 'spec.support.requests'
local wane = helper.wane
local native = require 'spec.support.native'
local nn, policy = wane.nn, wane.policy

local LONG = os.getenv 'WANE_SPEC_LONG' == '1'
local count = #requests.list

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
    for k = 0, count - 1 do order[k + 1] = (first - 1 + k * step) % count + 1 end
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
        for k = 1, count do alone[k] = process({ k })[1].text end
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
        for k = 1, count do
            if not kinds[alone[k]] then n = n + 1 end
            kinds[alone[k]] = true
        end
        assert(n >= 0.7 * count, n)
    end)

    it('answers what it answers alone, after any other: forwards and backwards through the list', function()
        check(rotated(1, 1))
        check(rotated(count, -1))
    end)

    it('answers what it answers alone, whichever was the first of the process', function()
        for first = 1, count, LONG and 2 or 9 do check(rotated(first, 1)) end
        for first = 2, LONG and count or 0, 2 do check(rotated(first, -1)) end
    end)
end)

describe('what is bound at run', function()
    it('is the policy of the model that was recorded, though another of the same path came later', function()
        local function build() return nn.Sequential { nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8), nn.GELU() } end
        local a, b, x = build():checkpoint('every(2)'), build(), wane.eval(wane.randn(4, 8))
        local loss_a = a(x):sum()
        wane.eval(wane.ones(2)) -- another program: paths are free again
        local loss_b = b(x):sum()
        local seen = {}
        wane.scoped('listen', function(p) seen[#seen + 1] = require('wane.plan').alone(p).recomputed end, function()
            loss_a:backward()
            loss_b:backward()
            a(x):sum():backward { policy = policy.by_op { gelu = 'save' } }
        end)
        assert(seen[1] > 0, seen[1])
        assert.equal(0, seen[2])
    end)

    it('is what a function of a residual says now, in every question before a run', function()
        local model, x, word = nn.MLP(8, 16), wane.eval(wane.randn(4, 8)), 'save'
        local function loss() return model(x):sum() end
        local opts = { policy = function() return word end }
        local saved = { wane.plan(loss, opts).recomputed, wane.min_budget(loss, opts), #wane.frontier(loss, opts).all }
        word = 'recompute'
        local dropped = { wane.plan(loss, opts).recomputed, wane.min_budget(loss, opts) }
        assert.equal(0, saved[1])
        assert(dropped[1] > 0)
        word = 'save'
        assert.same(saved, { wane.plan(loss, opts).recomputed, wane.min_budget(loss, opts),
            #wane.frontier(loss, opts).all })
    end)

    it('counts the modules of a list that record nothing, of the model that was recorded', function()
        local function build(n)
            local list = { nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU() }
            for k = 1, n do list[4 + k] = nn.Identity() end
            return nn.Sequential(list)
        end
        local x = wane.eval(wane.randn(4, 8))
        local function recipe(model)
            return tostring(wane.plan(function() return model(x):sum() end, { policy = 'segments(2)' }):recipe())
        end
        local short, long = build(0), build(4)
        local of_short, of_long = recipe(short), recipe(long)
        assert.not_equal(of_short, of_long)
        assert.equal(of_short, recipe(short))
        assert.equal(of_long, recipe(build(4)))
    end)

    it('is the mask of each dropout, also where the plan was made while two of them drew the same numbers', function()
        local x, w, drop = wane.eval(wane.ones(64)), nn.Parameter(wane.ones(64)), nn.Dropout(0.5)
        local function step(again)
            wane.manual_seed(3)
            local a = drop(x * w)
            if again then wane.manual_seed(3) end
            local b = drop(x * w * 100)
            binding.check(binding.C.wn_cell_drop_grad(w.id))
            local y = a + b
            y:sum():backward { again = true }
            return y:totable(), w.grad:totable()
        end
        step(true)
        local forward, gradient = step(false)
        for k = 1, 64 do assert.equal(forward[k], gradient[k]) end
    end)

    it('is the line of each recording', function()
        local x, m = wane.eval(wane.randn(4, 8)), nn.Linear(8, 8)
        wane.lines(true)
        local function here() return wane.plan(function() return m(x):gelu():sum() end) end
        local function there()
            return wane.plan(function() return m(x):gelu():sum() end)
        end
        local first, second = here():residuals()[1].line, there():residuals()[1].line
        wane.lines(false)
        local n = tonumber(first:match ':(%d+)')
        assert.equal(n + 2, tonumber(second:match ':(%d+)'))
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
