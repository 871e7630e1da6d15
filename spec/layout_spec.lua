-- Checks layouts (runtime/base/layout.h): a weight of nn.Linear is in panels, and a script can see that only by
-- counting nodes. Everything runs twice, with panels and with { layout = 'plain' }: the bits and the bytes must be
-- equal, and no copy may be made. An op that reads such a weight otherwise must get a plain copy from a node of its
-- own.
local helper = require 'spec.helper'
local wane = helper.wane or require 'wane'
local binding = require 'wane.ffi'
local create = require 'wane.tensor.create'
local programs = require 'spec.support.programs'
local gradcheck = require 'spec.support.gradcheck'

local C = binding.C
local nn, optim = wane.nn, wane.optim

local PANELS = 1
local WAYS = { panels = nil, plain = 'plain' }

local function linear(way, i, o, opts)
    opts = opts or {}
    opts.layout = WAYS[way]
    return nn.Linear(i, o, opts)
end

-- Returns fn('panels') and fn('plain'), with the random numbers from the same place on.
local function both(fn)
    local out = {}
    for _, way in ipairs { 'panels', 'plain' } do
        wane.manual_seed(11)
        out[way] = fn(way)
    end
    return out.panels, out.plain
end

-- Checks that two texts of raw bytes are equal, without printing them.
local function same(a, b)
    assert(#a > 0 and #a == #b, ('%d bytes and %d'):format(#a, #b))
    assert(a == b, 'other bits than with a plain weight')
end

local function bytes_of(list)
    local out = {}
    for k, t in ipairs(list) do out[k] = gradcheck.bytes(t) end
    return table.concat(out, '|')
end

local function count(p, op)
    local n = 0
    for _, step in ipairs(programs.schedule(p)) do
        if step.what == 'run' and step.op == op then n = n + 1 end
    end
    return n
end

-- Returns a model of several layers whose outputs are whole panels, a last panel of 16 and of 32, and none (10).
local function model(way, dtype)
    local opts = { dtype = dtype }
    local function layer(i, o) return linear(way, i, o, { dtype = dtype, bias = i ~= 144 }) end
    return nn.Sequential { layer(37, 144), nn.GELU(), layer(144, 80), nn.ReLU(), nn.LayerNorm(80, opts),
        layer(80, 112), nn.ReLU(), layer(112, 10) }
end

local function batch(dtype, rows)
    return wane.randn(rows, 37, { dtype = dtype }):retain(), wane.randint(0, 10, { rows }):retain()
end

describe('a weight in panels', function()
    it('is there where its outputs are a multiple of 16, and no script can see it', function()
        local layer = nn.Linear(5, 48)
        assert.equal(PANELS, create.layout(layer.weight))
        assert.equal(0, create.layout(layer.bias))
        assert.equal(0, create.layout(nn.Linear(5, 10).weight))
        assert.equal(0, create.layout(nn.Linear(5, 48, { layout = 'plain' }).weight))
        assert.equal(PANELS, create.layout(nn.Linear(5, 16, { device = 'meta' }).weight))
        assert.are.same({ 48, 5 }, layer.weight.shape)
    end)

    it('refuses words that are no layout', function()
        helper.refused(nil, function() nn.Linear(4, 16, { layout = 'panels' }) end,
            "layout must be 'plain' or nil (the device's own), got")
    end)

    it('starts as the same numbers, of every float type and every beginning', function()
        for _, dtype in ipairs { 'f32', 'f64', 'bf16' } do
            for _, begin in ipairs { 'uniform', 'normal', 'ones' } do
                local a, b = both(function(way)
                    local w = linear(way, 131, 112, { dtype = dtype }).weight
                    if begin ~= 'uniform' then nn.init[begin](w) end
                    assert.equal(way == 'panels' and PANELS or 0, create.layout(w))
                    return gradcheck.bytes(w)
                end)
                assert.equal(112 * 131 * binding.element_bytes[dtype], #a)
                same(a, b)
            end
        end
    end)

    it('is read and written by parts, of rows and across panels', function()
        local w = nn.Linear(9, 80).weight
        local rows = {}
        for k = 1, 80 * 9 do rows[k] = k end
        local all = binding.array('f32', 80 * 9)
        for k = 1, 80 * 9 do all[k - 1] = k end
        binding.check(C.wn_write_part(w.id, 0, all, 80 * 9 * 4))
        assert.are.same(rows, w:reshape(80 * 9):totable())
        local part = binding.array('f32', 100)
        for _, at in ipairs { 0, 5, 47 * 9 + 2, 430, 620 } do
            binding.check(C.wn_read_part(w.id, at * 4, part, 400))
            for k = 0, 99 do assert.equal(at + k + 1, part[k]) end
            for k = 0, 99 do part[k] = -(at + k + 1) end
            binding.check(C.wn_write_part(w.id, at * 4, part, 400))
            for k = at + 1, at + 100 do rows[k] = -k end
            assert.are.same(rows, w:reshape(80 * 9):totable())
            for k = at + 1, at + 100 do rows[k] = k end
            binding.check(C.wn_write_part(w.id, 0, all, 80 * 9 * 4))
        end
        assert.is_true(C.wn_read_part(w.id, 2, part, 400) ~= 0) -- half an element
        assert.is_truthy(binding.string(C.wn_message()):find('cut an element', 1, true))
    end)

    for _, dtype in ipairs { 'f32', 'f64', 'bf16' } do
        it('trains to the same bits, whatever the optimizer: ' .. dtype, function()
            for _, make in ipairs { 'SGD', 'Momentum', 'Adam' } do
                local a, b = both(function(way)
                    local m = model(way, dtype)
                    local opt = make == 'Adam' and optim.Adam(m:parameters(), { lr = 0.01 })
                        or optim.SGD(m:parameters(), { lr = 0.1, momentum = make == 'SGD' and 0 or 0.9 })
                    local x, y = batch(dtype, 33)
                    local list = {}
                    opt:step(nn.cross_entropy(m(x), y)) -- gradients used up by updates
                    nn.cross_entropy(m(x), y):backward() -- gradients that stay
                    nn.cross_entropy(m(x), y):backward() -- added to
                    for _, p in ipairs(m:parameters()) do list[#list + 1] = p.grad end
                    local grads = bytes_of(list)
                    opt:step()
                    return grads .. '/' .. bytes_of(m:parameters())
                end)
                same(a, b)
            end
        end)
    end

    it('trains to the same bits under autocast, with many rows and with few', function()
        for _, rows in ipairs { 1, 32, 260 } do
            local a, b = both(function(way)
                local m = model(way)
                local opt = optim.Adam(m:parameters(), { lr = 0.01 })
                local x, y = batch('f32', rows)
                for _ = 1, 2 do
                    local loss = wane.autocast('bf16', function() return nn.cross_entropy(m(x), y) end)
                    opt:step(loss)
                end
                return bytes_of(m:parameters())
            end)
            same(a, b)
        end
    end)

    it('costs no byte and no node: a step, a backward, and a budget', function()
        for _, request in ipairs { 'step', 'backward', 'sqrt' } do
            local a, b = both(function(way)
                local m = model(way)
                local x, y = batch('f32', 64)
                local loss = nn.cross_entropy(m(x), y)
                local opt = optim.Adam(m:parameters())
                local p
                if request == 'step' then
                    p = wane.plan(function() return opt:step(loss) end)
                else
                    p = wane.plan(function() return loss:backward { policy = request == 'sqrt' and 'sqrt' or nil } end)
                end
                return p
            end)
            assert.equal(b.peak, a.peak)
            assert.equal(b.reserved, a.reserved)
            assert.is_true(a.peak > 0)
            assert.equal(b.instructions, a.instructions)
            assert.is_nil(tostring(a:schedule()):find 'relayout')
        end
    end)

    it('keeps prediction and measurement equal where plain copies are made, and counts them', function()
        local m = nn.Linear(64, 96)
        local x = wane.randn(8, 64):retain()
        local loss = m(x):sum() + m.weight:softmax(2):max() + (m.weight * m.weight):sum()
        local p = programs.run { mode = 'backward', roots = { loss } }
        assert.equal(p.predicted.peak, p.measured.peak)
        assert.equal(p.predicted.reserved, p.measured.reserved)
        assert.equal(0, C.wn_verify(p.handle))
        assert.is_true(count(p, 'relayout') >= 2) -- the copy, and its gradient back
    end)

    it('is never kept as a plain copy: the copy is made again where the backward reads it', function()
        local m, v = nn.Linear(64, 96), nn.Parameter(wane.randn(64, 8))
        local p = wane.plan(function() return m.weight:matmul(v):relu():sum():backward() end)
        for _, r in ipairs(p:residuals()) do assert.are_not.equal('relayout', r.op) end
        local n = 0
        for _, step in ipairs(p:schedule()) do n = n + (step.what == 'run' and step.op == 'relayout' and 1 or 0) end
        assert.equal(3, n) -- forward, for the gradient of v, and the gradient of W back
    end)

    -- READERS holds every way an op can meet a weight in panels: the value and the gradient of the result are those of
    -- a plain weight.
    local READERS = {
        transposed = function(w) return w:t() end,
        narrowed = function(w) return w:narrow(1, 40, 30) end,
        reshaped = function(w) return w:reshape(24, 96) end,
        joined = function(w) return wane.cat({ w, w }, 2) end,
        ['row sums'] = function(w) return w:sum(2) end,
        ['column means'] = function(w) return w:mean(1) end,
        ['all of it'] = function(w) return w:max() end,
        softmax = function(w) return w:softmax(2) end,
        doubled = function(w) return w * 2 end,
        squared = function(w) return w * w end,
        ['with a row'] = function(w) return w + wane.arange(24) end,
        ['with a plain one'] = function(w) return w * wane.arange(96 * 24):reshape(96, 24) end,
        ['in a chain'] = function(w) return (w * 0.5):tanh():relu() + w end,
        ['where'] = function(w) return wane.where(w:gt(0), w, w * 0.1) end,
        dropped = function(w) return nn.Dropout(0.5)(w) end,
        cast = function(w) return w:to('bf16'):to('f32') end,
        ['a left factor'] = function(w) return w:matmul(wane.arange(48):reshape(24, 2)) end,
        ['a right factor'] = function(w) return (wane.arange(192):reshape(2, 96) * 0.01):matmul(w) end,
        ['a right factor of many'] = function(w) return (wane.arange(384):reshape(2, 2, 96) * 0.01):matmul(w) end,
        ['under a turned one'] = function(w)
            return (wane.arange(480):reshape(96, 5) * 0.01):matmul(w, { transpose_a = true })
        end,
        ['both turned'] = function(w)
            return (wane.arange(120):reshape(24, 5) * 0.01):matmul(w, { transpose_a = true, transpose_b = true })
        end,
        ['under many turned ones'] = function(w)
            return (wane.arange(960):reshape(2, 96, 5) * 0.01):matmul(w, { transpose_a = true })
        end,
        ['both factors'] = function(w) return w:matmul(w:t()) end,
        ['a table'] = function(w) return w:gather(1, wane.randint(0, 96, { 3, 24 })) end,
        detached = function(w) return w:detach() + w end,
    }
    for name, reader in pairs(READERS) do
        it('is what a plain one is to whoever reads it: ' .. name, function()
            local a, b = both(function(way)
                local w = linear(way, 24, 96).weight
                local y = reader(w):retain()
                local z = (y * y):reshape(-1)
                local loss = (z * wane.arange(z:numel()):to('f32')):sum()
                loss:backward()
                return bytes_of { y, w.grad }
            end)
            same(a, b)
        end)
    end

    -- CUSTOM holds gradients of the caller's own: they are recorded for a plain dy, and arrive in the layout of the
    -- weight.
    local CUSTOM = {
        ['passes dy on'] = function(dy) return dy end,
        ['reads a plain row'] = function(dy, w) return dy * 2 + w:narrow(1, 1, 1) end,
        ['joins many'] = function(dy, w)
            local parts = {}
            for k = 1, 12 do parts[k] = k % 2 == 0 and dy * k or w end
            return wane.cat(parts, 1):narrow(1, 97, 96)
        end,
    }
    for name, backward in pairs(CUSTOM) do
        it('has a gradient of the caller\'s own that ' .. name, function()
            local double = wane.custom(function(_, w) return w * 2 end, function(_, dy, w) return backward(dy, w) end)
            local a, b = both(function(way)
                local w = linear(way, 24, 96).weight
                local y = double(w)
                local loss = (y * y):reshape(-1)
                ;(loss * wane.arange(loss:numel()):to('f32')):sum():backward()
                return bytes_of { w.grad }
            end)
            same(a, b)
        end)
    end

    it('sums in the order of memory, which rounds otherwise, the same every time', function()
        local m = nn.Linear(300, 96)
        local first, again = gradcheck.bytes(m.weight:sum()), gradcheck.bytes(m.weight:sum())
        same(first, again)
        local a, b = both(function(way) return linear(way, 300, 96, { dtype = 'f64' }).weight:sum():item() end)
        assert.is_true(math.abs(a - b) < 1e-9)
    end)

    it('is clipped, assigned, moved and loaded as any other', function()
        local a, b = both(function(way)
            local m = linear(way, 20, 64)
            local x = wane.randn(4, 20)
            m(x):sum():backward()
            optim.clip_grad_norm(m:parameters(), 1e9) -- times 1: the same bits
            local grad = gradcheck.bytes(m.weight.grad)
            m.weight:assign(m.weight * 2)
            m.weight:assign(m.weight + wane.arange(20):to('f32'))
            local whole = gradcheck.bytes(m.weight)
            local other = linear(way, 20, 64)
            other:load_state_dict { weight = m.weight, bias = m.bias }
            same(whole, gradcheck.bytes(other.weight))
            assert.equal(create.layout(m.weight), create.layout(other.weight))
            other:to('f64')
            assert.equal(create.layout(m.weight), create.layout(other.weight))
            other:to('f32')
            same(whole, gradcheck.bytes(other.weight))
            return grad .. whole
        end)
        same(a, b)
    end)

    it('is saved row by row, and loaded into either', function()
        local path = os.tmpname()
        local m = nn.Linear(33, 80)
        wane.save(path, m:state_dict())
        local dict = wane.load(path)
        local plain = nn.Linear(33, 80, { layout = 'plain' })
        local panels = nn.Linear(33, 80)
        plain:load_state_dict(dict)
        panels:load_state_dict(dict)
        os.remove(path)
        for _, t in ipairs { plain.weight, panels.weight, dict.weight } do
            same(gradcheck.bytes(m.weight), gradcheck.bytes(t))
        end
        assert.equal(PANELS, create.layout(panels.weight))
        assert.equal(0, create.layout(dict.weight))
    end)

    it('is the same on another device, behind addresses nobody can follow', function()
        local function trained()
            wane.manual_seed(5)
            local m = model 'panels'
            local opt = optim.Adam(m:parameters())
            local x, y = batch('f32', 5)
            opt:step(nn.cross_entropy(m(x), y))
            m[1].weight:assign(m[1].weight * 0.5)
            return bytes_of(m:parameters())
        end
        same(helper.on('cpu', trained), helper.on('mirror', trained))
        local m = nn.Linear(33, 80):to 'meta'
        assert.equal(PANELS, create.layout(m.weight))
    end)

    it('ties to a table: the cell keeps its layout', function()
        local a, b = both(function(way)
            local table_ = nn.Embedding(96, 24)
            local out = linear(way, 24, 96, { bias = false })
            table_.weight = out.weight
            local ids = wane.randint(0, 96, { 7 })
            nn.cross_entropy(out(table_(ids)), ids):backward()
            return gradcheck.bytes(out.weight.grad)
        end)
        same(a, b)
    end)
end)
