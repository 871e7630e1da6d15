-- Checks values that outlive the step that computed them: kept values that enter the loss of a later step behind a cut.
require 'spec.helper'
local wane = require 'wane'

local nn, optim = wane.nn, wane.optim

local function bits(t)
    return table.concat(t:reshape(-1):to('f64'):totable(), ' ')
end

-- Returns a held copy of a value that nothing connects with what the value was made of.
local function copy(t)
    local buffer = require('wane.tensor.read').buffer(t, 'copy')
    return wane.from(buffer, { unpack(t.shape) }, t.dtype == 'bf16' and 'f32' or t.dtype)
end

local cuts = {
    detach = function(y) return y:detach() end,
    ['no_grad'] = function(y) return wane.no_grad(function() return (y * 2):tanh() end) end,
    ['a view of a cut'] = function(y) return y:detach():narrow(2, 1, 3):transpose(1, 2) end,
    argmax = function(y) return y:argmax(2) end,
    comparison = function(y) return y:gt(0):to 'f32' end,
    ['whole numbers'] = function(y) return (y * 3):to('i32'):to('f32') end,
    ['two cuts'] = function(y) return y:detach():exp() + y:detach():le(0.1):to 'f32' end,
}

-- The forms of a run point that ends in new weights or gradients.
local forms = {
    ['opt:step(loss)'] = function(net, loss) net.opt:step(loss) end,
    ['opt:step of a list'] = function(net, loss, other) net.opt:step { loss, other } end,
    ['opt:step of a list, last'] = function(net, loss, other) net.opt:step { other, loss } end,
    ['three lines'] = function(net, loss)
        net.opt:zero_grad()
        loss:backward()
        net.opt:step()
    end,
    ['wane.backward'] = function(net, loss, other)
        net.opt:zero_grad()
        wane.backward { other, loss }
        net.opt:step()
    end,
    ['wane.grad'] = function(net, loss)
        local list = net.model:parameters()
        local grads = wane.grad(loss, list)
        for k, g in ipairs(grads) do grads[k] = list[k] - g * 0.1 end
        wane.eval(loss, unpack(grads))
        for k, p in ipairs(list) do p:assign(grads[k]) end
    end,
}

local function new_net(seed)
    wane.manual_seed(seed)
    local model = nn.Sequential { nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4) }
    return { model = model, opt = optim.AdamW(model:parameters(), { lr = 0.05, clip_norm = 1 }),
        x = wane.eval(wane.randn(3, 6)) }
end

-- Trains; before each step after the first the kept value of the one before enters the loss through `cut`. is_copy: a
-- copy of the kept value is cut instead.
local function train(form, cut, is_copy)
    local net, kept, lines = new_net(8), nil, {}
    for step = 1, 4 do
        local hidden = net.model[2](net.model[1](net.x * step)):retain()
        local out = net.model[3](hidden)
        local loss = out:pow(2):mean()
        local other = net.model(net.x):mean()
        if kept then
            local term = cut(is_copy and copy(kept) or kept):to 'f32'
            loss = loss + (term * out:mean()):mean()
            other = other + (term:sum() * 0.25 * other)
        end
        form(net, loss, other)
        kept = hidden
        lines[#lines + 1] = bits(loss)
        for _, p in ipairs(net.model:parameters()) do lines[#lines + 1] = bits(p) end
    end
    return table.concat(lines, '\n')
end

describe('a kept value behind a cut', function()
    for form, run in pairs(forms) do
        for cut, fn in pairs(cuts) do
            it(('is a leaf of the next step: %s, %s'):format(form, cut), function()
                assert.equal(train(run, fn, true), train(run, fn, false))
            end)
        end
    end
end)

describe('a kept value without a cut', function()
    it('is refused in the next step, with the cut that is missing, and the step goes on with it', function()
        for form, run in pairs(forms) do
            local net = new_net(3)
            local y = net.model(net.x):retain()
            net.opt:step(y:pow(2):mean())
            local before = bits(net.model[1].weight)
            local ok, e = pcall(run, net, (y + net.model(net.x)):pow(2):mean(), net.model(net.x):mean())
            assert.is_false(ok, form)
            assert.equal('stale', e.code)
            assert.is_truthy(e.message:find(':detach()', 1, true), e.message)
            assert.equal(before, bits(net.model[1].weight))
            run(net, (y:detach() + net.model(net.x)):pow(2):mean(), net.model(net.x):mean())
            assert.not_equal(before, bits(net.model[1].weight))
        end
    end)
end)
