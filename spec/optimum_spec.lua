-- How good plans are: on small random graphs of unlike kinds every assignment of 'save' and 'recompute' to the residuals
-- is planned, lowered, placed and simulated like any other, and no budget may do worse than the best of them.
local helper = require 'spec.helper'
local wane = helper.wane or require 'wane'
local graphs = require 'spec.support.planned_graphs'

local LONG = os.getenv 'WANE_SPEC_LONG' == '1'
local target = graphs.target()
local MOST = LONG and 11 or 8 -- residuals: 2 ^ MOST plans

-- How much slower a budget's plan is than the best words in the same bytes, at worst; and the least bytes of both.
local function compare(record)
    local points = graphs.all_words(record, { target = target }, MOST)
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

describe('a budget does no worse than any words', function()
    for _, kind in ipairs(graphs.kinds) do
        it('on small random graphs, ' .. kind, function()
            local compared, corners = 0, 0
            for seed = 1, LONG and 60 or 6 do
                for _, size in ipairs { 5, 8, 12 } do
                    local gap, ours, least, n = compare(graphs.make(kind, seed, size))
                    if gap then
                        local what = ('%s, seed %d, size %d: '):format(kind, seed, size)
                        assert(gap <= 0.005, what .. 'slower by ' .. gap)
                        assert(ours <= least, what .. ours .. ' bytes at least, words take ' .. least)
                        compared, corners = compared + 1, corners + n
                    end
                end
            end
            assert(compared >= 5 and corners > compared, compared .. ' ' .. corners)
        end)
    end
end)
