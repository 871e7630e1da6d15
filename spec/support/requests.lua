--- Makes the requests of words_spec.lua: what a script may ask of a step, each with a report of all that it was
-- answered.
--
-- As a script, `luajit spec/support/requests.lua 3,1,2` makes requests 3, 1 and 2 in that order in one process and
-- prints their reports. So the first report is the answer of a process in which nothing was asked before.
local wane = require 'wane'
local nn, optim, policy = wane.nn, wane.optim, wane.policy

local requests = {}

-- ---- two models of one class, so that their modules share paths -----------------------------------------------------
local Block = nn.module('Block', function(self, d)
    self.up, self.act, self.down = nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)
end)
function Block:forward(x) return x + self.down(self.act(self.up(x))) end

local function build()
    local blocks = {}
    for i = 1, 3 do blocks[i] = Block(16) end
    blocks[4] = nn.Dropout(0.1)
    return nn.Sequential(blocks)
end

local function setup()
    wane.manual_seed(7)
    local s = { first = build(), second = build(), x = wane.eval(wane.randn(24, 16)) }
    s.optimizer = optim.Adam(s.first:parameters(), { lr = 1e-3 })
    for _, model in ipairs { s.first, s.second } do wane.eval(unpack(model:parameters())) end
    return s
end

-- ---- losses ---------------------------------------------------------------------------------------------------------
local function plain(s) return (s.first(s.x) ^ 2):mean() end
local function other(s) return (s.second(s.x) ^ 2):mean() end

local function in_regions(s)
    local h = s.x
    for i = 1, 3 do h = wane.checkpoint(s.first[i], h) end
    return (h ^ 2):mean()
end

-- Records a loss whose third region lies in a second one, which holds nothing else and lies in the first one
-- (is_inside) or beside it. Nodes and regions are numbered alike in both.
local function nested(s, is_inside)
    local h = s.x
    local function deep(v) return wane.checkpoint(function(u) return wane.checkpoint(s.first[3], u) end, v) end
    if is_inside then
        h = wane.checkpoint(function(v) return deep(s.first[2](s.first[1](v))) end, h)
    else
        h = deep(wane.checkpoint(function(v) return s.first[2](s.first[1](v)) end, h))
    end
    return (h ^ 2):mean()
end

local function bf16(s) return wane.autocast('bf16', plain, s) end

-- ---- reports --------------------------------------------------------------------------------------------------------
local function numbers(t)
    local out = {}
    for _, name in ipairs { 'peak', 'reserved', 'arena', 'state', 'seconds', 'base_seconds', 'overhead', 'recomputed',
        'nodes', 'instructions', 'blocks', 'residual_count', 'packed', 'lossy', 'costs' } do
        out[#out + 1] = ('%s %s'):format(name, type(t[name]) == 'number' and ('%.17g'):format(t[name])
            or tostring(t[name]))
    end
    return table.concat(out, '\n')
end

local function of_plan(p, why)
    if not p then return 'refused: ' .. tostring(why) end
    local torch = { pcall(p.pytorch, p) }
    return table.concat({ numbers(p), tostring(p), tostring(p:schedule()), tostring(p:recipe()),
        tostring(p:residuals()), torch[1] and ('%d %d'):format(torch[2].peak_forward, torch[2].peak_backward)
            or tostring(torch[2]) }, '\n')
end

local function plan(loss, opts)
    return function(s) return of_plan(wane.plan(function() return loss(s) end, opts and opts())) end
end

local function none() return nil end

-- Returns a request that runs fn and reports the plans of all programs that ran.
local function ran(fn)
    return function(s)
        local text = {}
        local function listen(p) text[#text + 1] = of_plan(require('wane.plan').alone(p)) end
        wane.scoped('listen', listen, function() fn(s) end)
        s.first:zero_grad()
        return table.concat(text, '\n')
    end
end

local function backward(opts)
    return ran(function(s) plain(s):backward(opts and opts()) end)
end

local function measured(opts)
    return function(s)
        local m = wane.measure(function() return plain(s) end, opts())
        return ('%d %d %d %d %s'):format(m.peak, m.predicted_peak, m.reserved, m.predicted_reserved, tostring(m.exact))
    end
end

local function attached(model, p, loss)
    return function(s)
        s[model]:checkpoint(p)
        local text = of_plan(wane.plan(function() return loss(s) end))
        s[model]:checkpoint(false)
        return text
    end
end

-- Reports a plan after other policies were given and taken: the plan is what it was made as.
local function looked_at_later(s)
    s.first:checkpoint('segments(2)')
    local p = wane.plan(function() return plain(s) end)
    s.first:checkpoint('every(1)')
    policy.default = 'recompute_all'
    local text = of_plan(p)
    policy.default = nil
    s.first:checkpoint(false)
    return text
end

local function by_default(s)
    policy.default = 'sqrt'
    local text = of_plan(wane.plan(function() return plain(s) end))
    policy.default = nil
    return text
end

local function evaluating(s)
    s.first:eval()
    local text = of_plan(wane.plan(function() return plain(s) end))
    s.first:train()
    return text
end

local function frontier(loss, opts)
    return function(s)
        local list = wane.frontier(function() return loss(s) end, opts)
        local out = { tostring(list), list.tried }
        for i, q in ipairs(list.all) do
            out[i + 2] = ('%.0f %.0f %.17g %d %s'):format(q.reserved, q.peak, q.seconds, q.recomputed, q.name)
        end
        return table.concat(out, '\n')
    end
end

local function least(loss, opts)
    return function(s) return tostring(wane.min_budget(function() return loss(s) end, opts and opts())) end
end

local function explained(s)
    return tostring(wane.plan(function() return in_regions(s) end, { policy = 'save_all' }):explain())
end

local function by_recipe(s)
    local p = wane.plan(function() return plain(s) end, { policy = 'sqrt' })
    return of_plan(wane.plan(function() return plain(s) end, { policy = policy.recipe(tostring(p:recipe())) }))
end

local function with_lines(s)
    wane.lines(true)
    local text = of_plan(wane.plan(function() return plain(s) end))
    wane.lines(false)
    return text
end

local function given(name) return function() return { policy = name } end end
local function words() return { policy = policy.by_op { gelu = 'recompute' } } end
local function budget() return { budget = '40 KiB' } end
local function both() return { policy = policy.by_op { gelu = 'recompute' }, budget = '40 KiB' } end
local function allowed() return { policy = policy.budget('40 KiB', { allow = { 'compress:bf16' } }) } end
local function asks() return { policy = function(r) return r.bytes > 2000 and 'recompute' or nil end } end

--- list of { name, function(s) -> text }
requests.list = {
    { 'plan by save_all', plan(plain, given 'save_all') },
    { 'plan', plan(plain, none) },
    { 'least', least(plain) },
    { 'plan by recompute_all', plan(plain, given 'recompute_all') },
    { 'plan by segments(2)', plan(plain, given 'segments(2)') },
    { 'plan by words', plan(plain, words) },
    { 'plan by a function', plan(plain, asks) },
    { 'plan by a budget', plan(plain, budget) },
    { 'plan by words and a budget', plan(plain, both) },
    { 'plan by a budget that may compress', plan(plain, allowed) },
    { 'plan by least', plan(plain, given 'least') },
    { 'plan by a recipe', by_recipe },
    { 'plan for an h200', plan(plain, function() return { target = 'h200' } end) },
    { 'least for an h200', least(plain, function() return { target = 'h200' } end) },
    { 'frontier', frontier(plain) },
    { 'frontier within words', frontier(plain, words()) },
    { 'least within words', least(plain, words) },
    { 'least by save_all', least(plain, given 'save_all') },
    { 'backward', backward() },
    { 'backward by save_all', backward(given 'save_all') },
    { 'backward by a budget', backward(budget) },
    { 'step', ran(function(s) s.optimizer:step(plain(s)) end) },
    { 'step by sqrt', ran(function(s) s.optimizer:step(plain(s), { policy = 'sqrt' }) end) },
    { 'measure', measured(function() return { steps = 1 } end) },
    { 'measure by every(1)', measured(function() return { steps = 1, policy = 'every(1)' } end) },
    { 'regions', plan(in_regions, none) },
    { 'regions by save_all', plan(in_regions, given 'save_all') },
    { 'least of regions', least(in_regions) },
    { 'a region in a region', plan(function(s) return nested(s, true) end, none) },
    { 'a region beside a region', plan(function(s) return nested(s, false) end, none) },
    { 'frontier of a region in a region', frontier(function(s) return nested(s, true) end) },
    { 'frontier of a region beside a region', frontier(function(s) return nested(s, false) end) },
    { 'explain', explained },
    { 'a policy of the first model', attached('first', 'recompute_all', plain) },
    { 'a policy of the second model', attached('second', 'segments(2)', other) },
    { 'the second model', plan(other, none) },
    { 'a policy of one block', function(s)
        s.first[2]:checkpoint()
        local text = of_plan(wane.plan(function() return plain(s) end))
        s.first[2]:checkpoint(false)
        return text
    end },
    { 'a plan looked at after other policies', looked_at_later },
    { 'policy.default', by_default },
    { 'evaluation', evaluating },
    { 'autocast', plan(bf16, none) },
    { 'lines', with_lines },
}

--- Makes requests one after the other in one process.
-- @param order list of numbers in requests.list
-- @param report function(name, text)
function requests.make(order, report)
    local s = setup()
    for _, k in ipairs(order) do report(requests.list[k][1], requests.list[k][2](s)) end
end

if arg and arg[0] and arg[0]:find 'requests%.lua$' then
    local order = {}
    for k in arg[1]:gmatch '%d+' do order[#order + 1] = tonumber(k) end
    requests.make(order, function(name, text) io.write('== ', name, '\n', text, '\n') end)
end

return requests
