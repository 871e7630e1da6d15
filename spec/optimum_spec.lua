-- Checks how good plans are: on small random graphs of several kinds every assignment of 'save' and 'recompute' to the
-- residuals is planned, lowered, placed and simulated like any other, and no budget may give a worse plan than the best
-- of them.
local helper = require 'spec.helper'
local wane = helper.wane or require 'wane'
local graphs = require 'spec.support.planned_graphs'

local LONG = helper.is_long
local target = graphs.target()
local MOST = LONG and 10 or 8 -- residuals: 2 ^ MOST plans
local NODES = 14 -- of the forward, in graphs whose words are all planned, however many they are

-- Compares every budget with the best decisions in the same bytes. Returns how much slower the budget is at worst, the
-- least bytes of both, and how many plans of decisions nothing beats; or nil where there are more than `most`
-- residuals.
local function compare(record, most)
    local points = graphs.all_words(record, { target = target }, most)
    if not points then return nil end
    local best, all, gap = graphs.front(points), wane.frontier(record, { target = target, points = 2 }).all, 0
    for _, b in ipairs(best) do
        for _, q in ipairs(all) do
            if q.reserved <= b.reserved then
                gap = math.max(gap, q.seconds / b.seconds - 1)
                break
            end
        end
    end
    return gap, all[#all].reserved, best[#best].reserved, #best
end

-- Checks that the gap is 0.5 % at most, and that no decisions take fewer bytes than the least budget. Returns how many
-- plans of decisions nothing beats, or nil.
local function check_words(record, most, what)
    local gap, ours, least, n = compare(record, most)
    if not gap then return nil end
    assert(gap <= 0.005, what .. ': slower by ' .. gap)
    assert(ours <= least, what .. ': ' .. ours .. ' bytes at least, words take ' .. least)
    return n
end

describe('a budget does no worse than any words', function()
    for _, kind in ipairs(graphs.kinds) do
        it('on small random graphs, ' .. kind, function()
            local compared, corners = 0, 0
            for seed = 1, LONG and 16 or 6 do
                for _, size in ipairs { 5, 8, 12 } do
                    local what = ('%s, seed %d, size %d'):format(kind, seed, size)
                    local n = check_words(graphs.make(kind, seed, size), MOST, what)
                    compared, corners = compared + (n and 1 or 0), corners + (n or 0)
                end
            end
            assert(compared >= 5 and corners > compared, compared .. ' ' .. corners)
        end)

        it('on every random graph of ' .. NODES .. ' nodes, ' .. kind, function()
            for seed = 1, LONG and 16 or 2 do
                local what = ('%s, seed %d, %d nodes'):format(kind, seed, NODES)
                assert(check_words(graphs.make_within(kind, seed, NODES), NODES, what) >= 1, what)
            end
        end)
    end

    it('where no edit of a good plan leads to the best one', function()
        assert(check_words(graphs.make('chain', 25, 8), 10, 'chain') > 1)
        assert(check_words(graphs.make_within('residual', 300, 14), 10, 'residual') > 1)
    end)
end)

-- ---- policies by hand ----------------------------------------------------------------------------------------------
local nn, policy = wane.nn, wane.policy

-- Returns policies as people write them: in units of modules and blocks, decisions by op and type, functions.
local function policies(record)
    local list = { 'save_all', 'recompute_all', 'sqrt' }
    for k = 1, 7 do
        for _, name in ipairs { 'every', 'segments', 'binomial', 'keep_last' } do
            list[#list + 1] = ('%s(%d)'):format(name, name == 'binomial' and k - 1 or k)
        end
    end
    local met = {}
    for _, r in ipairs(wane.plan(record, { policy = 'save_all', target = target }):residuals()) do
        if not met[r.op] then list[#list + 1] = policy.by_op { [r.op] = 'recompute' } end
        if r.module and not met['type ' .. r.module] then
            list[#list + 1] = policy.by_type { [r.module] = 'recompute', optional = true }
        end
        met[r.op], met['type ' .. (r.module or '')] = true, true
    end
    list[#list + 1] = policy.of(function(r) return r.index % 3 == 0 and 'recompute' or 'save' end)
    return list
end

-- Checks that no policy's plan is faster than a budget of its bytes, and that no such budget is refused; returns how
-- many plans there were.
local function check_by_hand(record, what)
    local all, n = wane.frontier(record, { points = 2, target = target }).all, 0
    for _, p in ipairs(policies(record)) do
        local fine, hand = pcall(wane.plan, record, { policy = p, target = target })
        local best
        for _, q in ipairs(fine and all or {}) do best = best or q.reserved <= hand.reserved and q or nil end
        if fine then
            local where = ('%s, %s: '):format(what, tostring(p))
            assert(best, where .. 'refused')
            assert(best.seconds <= hand.seconds * (1 + 1e-12), where .. best.seconds / hand.seconds - 1)
            n = n + 1
        end
    end
    return n
end

local Cell = nn.module('OptimumCell', function(self) self.a, self.b = nn.Linear(32, 32), nn.Linear(32, 32) end)
function Cell:forward(x, steps)
    local h = self.a(x):tanh()
    for _ = 1, steps do h = (self.a(x) + self.b(h)):tanh() end
    return h
end

describe('a budget does no worse than policies by hand', function()
    it('on a cell that is unrolled, lists in lists, and a list behind another', function()
        local x, first, second = wane.eval(wane.randn(128, 32)), {}, {}
        local cell = Cell()
        assert(check_by_hand(function() return cell(x, 10):sum() end, 'cell') > 20)
        if LONG then assert(check_by_hand(function() return cell(x, 80):sum() end, 'long cell') > 20) end
        for i = 1, 5 do
            first[i] = nn.Sequential { nn.Linear(32, 24 * i), nn.GELU(), nn.Linear(24 * i, 32) }
            second[i] = nn.Residual(nn.MLP(32, 96))
        end
        local a, b = nn.Sequential(first), nn.Sequential(second)
        assert(check_by_hand(function() return a(x):sum() end, 'lists in lists') > 20)
        assert(check_by_hand(function() return b(a(x)):sum() end, 'two lists') > 20)
    end)

    it('on lists so long that a plan of few slots is many times as long as the graph', function()
        local layers, width = {}, 64
        for i = 1, LONG and 200 or 70 do
            local to = 32 * (1 + i * 7 % 13)
            layers[2 * i - 1], layers[2 * i], width = nn.Linear(width, to), nn.GELU(), to
        end
        local m, x = nn.Sequential(layers), wane.eval(wane.randn(4096, 64))
        assert(check_by_hand(function() return m(x):sum() end, #layers .. ' layers') > 20)
    end)

    it('on plans whose bytes only the placement of a run shows', function()
        local blocks, x = {}, wane.eval(wane.randn(64, 32))
        for i = 1, LONG and 100 or 20 do blocks[i] = nn.Residual(nn.MLP(32, 96)) end
        local m = nn.Sequential(blocks)
        assert(check_by_hand(function() return m(x):sum() end, #blocks .. ' blocks') > 20)
    end)

    it('on random graphs', function()
        for _, kind in ipairs(graphs.kinds) do
            for seed = 1, LONG and 6 or 1 do
                assert(check_by_hand(graphs.make(kind, seed, 20), kind .. ' ' .. seed) > 10)
            end
        end
    end)

    it('on small models, attached to their parts too', function()
        local models = require 'spec.support.budget_models'
        for i = 1, LONG and #models or 1 do
            wane.manual_seed(i)
            assert(check_by_hand(models[i].build(), models[i].name) > 20)
        end
    end)
end)
