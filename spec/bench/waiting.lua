-- Measures how threads wait: a small step with the machine to itself, and beside a process that keeps one of its cores
-- busy. Each way of waiting is a process of its own, and they take turns. A ratio is the median of a way's turns over
-- another way's beside them; a busy machine therefore shows in both.
--
--   luajit spec/bench/waiting.lua [--turns N] [--before FOLDER] [--class avx2]
--
-- --before names the folder of another libwane.so, the one that was there before a change, whose ways are shown beside.
-- Limits: alone, the usual wait takes at most 1.05 times spinning; beside a busy process 3 times sleeping.
local common = dofile((arg[0]:match '^(.*)/[^/]*$' or '.') .. '/common.lua')
local C = require('wane.ffi').C

local TURN, WARM = 0.1, 2 -- seconds of a turn at least; turns that do not count

-- ---- the process of a way -------------------------------------------------------------------------------------
-- Returns the step: two GPT blocks of 64, or 20 layers of 256.
local function step_of(what)
    local wane = require 'wane'
    local nn, modules = wane.nn, {}
    local x = what == 'gpt' and wane.randn(4, 64, 64):retain() or wane.randn(32, 256):retain()
    if what == 'gpt' then
        local Block = nn.module('Block', function(self, d)
            self.ln1, self.attn = nn.LayerNorm(d), nn.Attention(d, 4, { causal = true })
            self.ln2, self.mlp = nn.LayerNorm(d), nn.MLP(d, 4 * d)
        end)
        function Block:forward(y)
            y = y + self.attn(self.ln1(y))
            return y + self.mlp(self.ln2(y))
        end
        for i = 1, 2 do modules[i] = Block(64) end
    else
        for _ = 1, 20 do
            modules[#modules + 1] = nn.Linear(256, 256)
            modules[#modules + 1] = nn.ReLU()
        end
    end
    local model = nn.Sequential(modules)
    local opt = wane.optim.Adam(model:parameters(), { lr = 1e-3 })
    return function() return opt:step((model(x) ^ 2):mean()) end
end

-- Answers each line with the seconds of a step, the mean of a turn.
local function serve(what)
    local step = step_of(what)
    for _ in io.lines() do
        local from, n = C.wn_now(), 0
        repeat
            step()
            n = n + 1
        until C.wn_now() - from > TURN
        print((C.wn_now() - from) / n)
        io.flush()
    end
end

if arg[1] == 'serve' then return serve(arg[2]) end

-- ---- taking turns ---------------------------------------------------------------------------------------------
local chosen = common.options({ turns = 15, before = 'file' }, '--turns N, --before FOLDER')
-- Spinning ends after 300000 pauses: later than any gap within a step, and before the turn of another process.
local POLICY = { usual = '', spin = 'GOMP_SPINCOUNT=300000', sleep = 'OMP_WAIT_POLICY=passive' }

-- Starts the process of a way; returns a function that takes a turn, and one that ends it.
local function start(what, environment)
    local fifo = os.tmpname()
    os.remove(fifo)
    assert(os.execute('mkfifo ' .. fifo) == 0, 'mkfifo failed')
    local command = ('exec env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT WANE_COSTS=off %s %s %s serve %s > %s'):format(
        environment, os.getenv 'LUAJIT' or 'luajit', arg[0], what, fifo)
    local input = assert(io.popen(command, 'w'))
    local output = assert(io.open(fifo, 'r'))
    os.remove(fifo)
    return function()
        input:write 'turn\n'
        input:flush()
        local seconds = tonumber(output:read '*l')
        common.rest()
        return assert(seconds, 'a process died')
    end, function()
        input:close()
        output:close()
    end
end

-- Keeps the last core that this process may use busy; returns a function that ends it.
local function occupy()
    local core = common.machine().cores:match '(%d+)%D*$'
    local pipe = assert(io.popen(('exec taskset -c %s sh -c \'echo $$; while :; do :; done\''):format(core)))
    local id = assert(tonumber(pipe:read '*l'), 'there is no taskset')
    return function()
        os.execute('kill ' .. id)
        pipe:close()
    end
end

-- Returns name -> list of seconds, a turn each.
local function take_turns(ways)
    local seconds = {}
    for turn = 1, WARM + chosen.turns do
        for name, way in pairs(ways) do
            seconds[name] = seconds[name] or {}
            local s = way.take()
            if turn > WARM then table.insert(seconds[name], s) end
        end
    end
    return seconds
end

-- Returns the median of the ratios of two lists, turn by turn.
local function over(a, b)
    local ratios = {}
    for i = 1, #a do ratios[i] = a[i] / b[i] end
    return ('%.2f'):format(common.median(ratios))
end

local function microseconds(list)
    local copy = {}
    for i = 1, #list do copy[i] = list[i] end
    return ('%.0f'):format(1e6 * common.median(copy))
end

-- Returns name -> way. Ways of the library before have names that end in ', before'.
local function start_ways(what)
    local ways = {}
    for name, environment in pairs(POLICY) do
        local take, close = start(what, environment)
        ways[name] = { take = take, close = close }
        if chosen.before then
            take, close = start(what, environment .. ' WANE_LIB=' .. chosen.before)
            ways[name .. ', before'] = { take = take, close = close }
        end
    end
    return ways
end

local rows = {}
for _, what in ipairs { 'gpt', 'mlp' } do
    local ways = start_ways(what)
    for _, beside in ipairs { 'nothing', 'a busy process' } do
        local release = beside ~= 'nothing' and occupy()
        local seconds = take_turns(ways)
        if release then release() end
        for _, version in ipairs(chosen.before and { '', ', before' } or { '' }) do
            local usual, sleep = seconds['usual' .. version], seconds['sleep' .. version]
            local is_alone = beside == 'nothing'
            local base = is_alone and seconds['spin' .. version] or sleep
            local aim = is_alone and '<= 1.05 of spinning' or '<= 3 of sleeping'
            table.insert(rows, { what .. version, beside, microseconds(usual), microseconds(seconds['spin' .. version]),
                microseconds(sleep), over(usual, base), aim,
                chosen.before and over(usual, seconds['usual, before']) or nil })
        end
    end
    for _, way in pairs(ways) do way.close() end
end
common.table({ 'a step', 'beside', 'usual, us', 'spinning', 'sleeping', 'ratio', 'aim',
    chosen.before and 'over before' or nil }, rows)
