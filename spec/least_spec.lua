-- Checks the least budget of models whose parameters outweigh their activations: few bytes of such a step are a plan's
-- to choose, most gradients lend theirs to activations, and edits of one value seldom change the peak. No policy that a
-- person would write, by position, module or op, may take fewer bytes, nor be faster than a budget of its own bytes.
local helper = require 'spec.helper'
local wane = helper.wane or require 'wane'
local chains = require 'spec.support.chains'
local graphs = require 'spec.support.planned_graphs'

local nn, optim, policy = wane.nn, wane.optim, wane.policy
local target = graphs.target()

-- ---- models --------------------------------------------------------------------------------------------------------
-- A block of a diffusion model: two convolutions, between them what the time of the noise adds.
local Block = nn.module('LeastBlock', function(self, from, to, time)
    self.norm1, self.conv1 = nn.GroupNorm(2, from), nn.Conv2d(from, to, 3, { padding = 1 })
    self.norm2, self.conv2 = nn.GroupNorm(2, to), nn.Conv2d(to, to, 3, { padding = 1 })
    self.time, self.skip = nn.Linear(time, to), from ~= to and nn.Conv2d(from, to, 1) or nil
end)
function Block:forward(x, t)
    local y = self.conv1(self.norm1(x):silu()) + self.time(t:silu()):unsqueeze(3):unsqueeze(4)
    return (self.skip and self.skip(x) or x) + self.conv2(self.norm2(y):silu())
end

-- Attention over the places of an image.
local Places = nn.module('LeastPlaces', function(self, width)
    self.norm, self.attend = nn.GroupNorm(2, width), nn.Attention(width, 2)
end)
function Places:forward(x)
    local n, c, h, w = x.shape[1], x.shape[2], x.shape[3], x.shape[4]
    local y = self.attend(self.norm(x):reshape(n, c, h * w):transpose(2, 3))
    return x + y:transpose(2, 3):reshape(n, c, h, w)
end

local UNet = nn.module('LeastUNet', function(self, widths, time)
    self.time1, self.time2 = nn.Linear(time, time), nn.Linear(time, time)
    self.first, self.down, self.shrink, self.up = nn.Conv2d(1, widths[1], 3, { padding = 1 }), {}, {}, {}
    local from = widths[1]
    for i, to in ipairs(widths) do
        self.down[i], self.shrink[i] = Block(from, to, time), nn.Conv2d(to, to, 3, { stride = 2, padding = 1 })
        from = to
    end
    self.middle, self.places = Block(from, from, time), Places(from)
    for i = #widths, 1, -1 do self.up[i], from = Block(from + widths[i], widths[i], time), widths[i] end
    self.norm, self.last = nn.GroupNorm(2, from), nn.Conv2d(from, 1, 3, { padding = 1 })
    self.grow = nn.Upsample { scale = 2 }
end)
function UNet:forward(x, t)
    local skips = {}
    t, x = self.time2(self.time1(t):silu()), self.first(x)
    for i, block in ipairs(self.down) do
        skips[i] = block(x, t)
        x = self.shrink[i](skips[i])
    end
    x = self.places(self.middle(x, t))
    for i = #self.up, 1, -1 do x = self.up[i](wane.cat({ self.grow(x), skips[i] }, 2), t) end
    return self.last(self.norm(x):silu())
end

local function diffusion(widths, time, images)
    local m = UNet(widths, time)
    local x, t, noise = wane.randn(images, 1, 8, 8), wane.randn(images, time), wane.randn(images, 1, 8, 8)
    wane.eval(x, t, noise)
    return function() return nn.mse_loss(m(x, t), noise) end, m
end

-- A normalizing flow of coupling layers (Dinh et al., "Density estimation using Real NVP", 2017).
local Coupling = nn.module('LeastCoupling', function(self, size, width)
    for _, name in ipairs { 'scale', 'shift' } do
        self[name] = nn.Sequential { nn.Linear(size, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, size) }
    end
end)
function Coupling:forward(x, mask, other)
    local kept = x * mask
    local s = self.scale(kept):tanh() * other
    return kept + (x * s:exp() + self.shift(kept) * other) * other, s:sum(2)
end

local function flow(size, width, layers, rows)
    local m, even, odd = nn.Sequential {}, {}, {}
    for i = 1, size do even[i], odd[i] = i % 2, 1 - i % 2 end
    for _ = 1, layers do m:add(Coupling(size, width)) end
    local x, a, b = wane.eval(wane.randn(rows, size)), wane.tensor(even):retain(), wane.tensor(odd):retain()
    wane.eval(a, b)
    return function()
        local z, volume = x, 0
        for i = 1, layers do
            local grown
            z, grown = m[i](z, i % 2 == 1 and a or b, i % 2 == 1 and b or a)
            volume = volume + grown
        end
        return ((z * z):sum(2) * 0.5 - volume):mean()
    end, m
end

local function stack(layers, width, rows)
    local list = {}
    for i = 1, layers do
        list[2 * i - 1], list[2 * i] = nn.Linear(width, width), i % 2 == 0 and nn.GELU() or nn.Tanh()
    end
    local m, x = nn.Sequential(list), wane.eval(wane.randn(rows, width))
    return function() return m(x):pow(2):mean() end, m
end

-- ---- policies ------------------------------------------------------------------------------------------------------
-- Returns functions by position, module and op, and random ones: { name, fn }.
local function policies(residuals, seed)
    local list, met, random = {}, {}, chains.random(seed)
    local function add(name, is_in)
        list[#list + 1] = { 'all but ' .. name, function(r) return is_in(r) and 'recompute' or 'save' end }
        list[#list + 1] = { name, function(r) return is_in(r) and 'save' or 'recompute' end }
    end
    for k = 2, 6 do
        for from = 0, k - 1 do add(('each %d, %d'):format(k, from), function(r) return r.index % k == from end) end
    end
    for part = 1, 3 do add('first ' .. part, function(r) return r.index <= part * #residuals / 4 end) end
    for _, r in ipairs(residuals) do
        for _, key in ipairs { 'path', 'op' } do
            if not met[key .. r[key]] then add(key .. ' ' .. r[key], function(x) return x[key] == r[key] end) end
            met[key .. r[key]] = true
        end
    end
    for k = 1, 10 do
        local bits = {}
        for i = 1, #residuals do bits[i] = random(1, 11) <= k end
        add('random ' .. k, function(r) return bits[r.index] end)
    end
    return list
end

-- Checks that a step's budgets do no worse than the policies. Returns how many those were.
local function check(step, what)
    local all = wane.frontier(step, { target = target, points = 2 }).all
    local list = policies(wane.plan(step, { policy = 'save_all', target = target }):residuals(), 7)
    for _, p in ipairs(list) do
        local hand, best = wane.plan(step, { policy = policy.of(p[2]), target = target })
        for _, q in ipairs(all) do best = best or q.reserved <= hand.reserved and q or nil end
        local where = ('%s, %s, %d bytes: '):format(what, p[1], hand.reserved)
        assert(best, where .. 'refused, least ' .. all[#all].reserved)
        assert(best.seconds <= hand.seconds * (1 + 1e-12), where .. best.seconds / hand.seconds - 1)
    end
    return #list
end

describe('where parameters outweigh activations, a budget does no worse than a function', function()
    -- Trains a model by one optimizer's step.
    local function step(fn, m, opts)
        local opt = optim.SGD(m:parameters(), opts)
        return function() return opt:step(fn()) end
    end

    it('on a diffusion U-Net of 8 x 8 images', function()
        assert(check(diffusion({ 4, 4 }, 16, 3), 'U-Net') > 100)
    end)

    it('on a flow of few rows', function() assert(check(flow(4, 16, 5, 19), 'flow') > 100) end)

    it('on one whose gradients are clipped', function()
        local fn, m = flow(4, 16, 8, 19)
        assert(check(step(fn, m, { lr = 0.01, clip_norm = 1 }), 'clipped flow') > 100)
    end)

    it('on a stack of few rows with its steps', function()
        local fn, m = stack(12, 32, 3)
        assert(check(step(fn, m, { lr = 0.01, momentum = 0.9 }), 'stack') > 100)
    end)
end)
