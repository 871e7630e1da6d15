-- What planning a chain takes: the least budget alone, the whole frontier, and one plan with its schedule and replay.
-- One core, medians; the table also says how long the frontier is and how far a thinned one may be off. What a chain
-- is and where these come from: spec/support/chains.lua.
local common = dofile((arg[0]:match '^(.*)/[^/]*$' or '.') .. '/common.lua')
local wane = require 'wane'
local chains = require 'spec.support.chains'
local now = require('wane.ffi').C.wn_now

local function seconds(fn, repeats)
    local times = {}
    for k = 1, repeats do
        local from = now()
        fn()
        times[k] = now() - from
    end
    return common.median(times)
end

local cases = {
    { 'GPT-2 774M, 36 blocks and head, 8 options', chains.gpt(36, 1024, 1280, 20, 50257, 1) },
    { 'GPT-2 wide, 96 blocks and head, 8 options', chains.gpt(96, 2048, 12288, 96, 50257, 1) },
    { '24 stages, none equal, 6 options', chains.varied(24, 6, 3) },
    { '52 stages, none equal, 1 option', chains.varied(52, 1, 3) },
    { '52 stages, none equal, 6 options', chains.varied(52, 6, 3) },
}

local rows = {}
for _, case in ipairs(cases) do
    local name, chain = case[1], case[2]
    common.progress(name)
    local frontier = wane.chain_frontier(chain)
    local repeats = 5
    local middle = frontier[math.ceil(#frontier / 2)].bytes
    rows[#rows + 1] = { name, #frontier, ('%.2f'):format(frontier[1].time / frontier[#frontier].time),
        ('%.3f %%'):format(100 * frontier.slack / frontier[#frontier].time),
        ('%.4f'):format(seconds(function() wane.plan_chain(chain, 0) end, repeats)),
        ('%.4f'):format(seconds(function() wane.chain_frontier(chain) end, repeats)),
        ('%.4f'):format(seconds(function() wane.plan_chain(chain, middle) end, repeats)) }
end
common.progress()
common.table({ 'chain', 'corners', 'slowest / fastest', 'slack', 'least budget, s', 'frontier, s',
    'one plan, s' }, rows)
