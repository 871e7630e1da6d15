-- Checks the warning about replanning: a step that is planned for the fifth time is warned about once, in words that
-- name what differs; a loop that plans once is never warned about, whatever is bound at a run.
local helper = require 'spec.helper'
local wane = helper.wane
local nn, optim, policy = wane.nn, wane.optim, wane.policy

-- Returns the lines that fn writes to the error stream.
local function heard(fn)
    local text, before = {}, io.stderr
    io.stderr = { write = function(_, ...) text[#text + 1] = table.concat { ... } end } -- luacheck: ignore 122
    local ok, why = pcall(fn)
    io.stderr = before -- luacheck: ignore 122
    assert(ok, why)
    return text
end

local x, w
before_each(function() x, w = wane.eval(wane.randn(16, 4)), nn.Parameter(wane.ones(4)) end)

local function times(n, step)
    return heard(function() for i = 1, n do step(i) end end)
end

local function warned(words, text)
    assert.equal(1, #text)
    assert(text[1]:find('replan_spec.lua:%d+: this step is planned for the 5th time'), text[1])
    assert(text[1]:find(words, 1, true), text[1])
end

describe('a step planned for the fifth time', function()
    it('names the shape of an input', function()
        warned('an input is f32 (5, 4), it was f32 (4, 4)', times(9, function(i)
            (wane.eval(wane.ones(i, 4)) * w):sum():backward()
            w.grad = nil
        end))
    end)

    it('names an attribute', function()
        warned('clamp has the attributes', times(9, function(i)
            (x * w):clamp(0, i / 10):sum():backward { again = true }
            w.grad = nil
        end))
    end)

    it('names an op, and its line', function()
        wane.lines(true)
        local text = times(9, function(i)
            local y = x * w
            for _ = 1, i do y = y:tanh() end
            y:sum():backward()
            w.grad = nil
        end)
        wane.lines(false)
        warned("was recorded where it was", text)
        assert(text[1]:find('%(.*replan_spec.lua:%d+%)'), text[1])
    end)

    it('names a policy that is made anew', function()
        warned("the policy 'function' is another object", times(9, function(i)
            (x * w):gelu():sum():backward { policy = function() return i > 0 and 'save' or nil end }
            w.grad = nil
        end))
    end)

    it('is told once, and for opt:step too', function()
        local o = optim.SGD({ w }, { lr = 0.1 })
        warned('an input is f32 (5, 4), it was f32 (4, 4)', times(20, function(i)
            o:step((wane.eval(wane.ones(i, 4)) * w):sum())
        end))
    end)

    it('is not told of models that are trained one after the other', function()
        assert.same({}, times(8, function(i)
            local m = nn.Linear(4, i)
            local o = optim.SGD(m:parameters(), { lr = 0.1 })
            local step = wane.eval(wane.ones(2, 4))
            for _ = 1, 20 do o:step(m(step):sum()) end
        end))
    end)

    it('is not told of loops that plan once: slices, numbers, hyperparameters, random numbers, policies by name',
        function()
            local m = nn.Sequential { nn.Linear(4, 8), nn.Dropout(0.5), nn.GELU(), nn.Linear(8, 1) }
            local o = optim.Adam(m:parameters(), { lr = 0.1 })
            local words = policy.by_op { gelu = 'recompute' }
            assert.same({}, times(20, function(i)
                o.lr = 0.1 / i
                o:step((m(x:narrow(1, (i - 1) % 12 + 1, 4)) * i):mean(), { policy = words })
            end))
            assert.same({}, times(12, function(i)
                o:zero_grad()
                m(x[i]):sum():backward { policy = ({ 'save_all', 'sqrt', 'every(1)', 'segments(2)', 'every(2)',
                    'recompute_all' })[i % 6 + 1] }
                o:step()
            end))
        end)

    it('is kept from the output of specs, and not lost', function()
        local before = #helper.notices
        for i = 1, 9 do
            (wane.eval(wane.ones(20 + i, 4)) * w):sum():backward()
            w.grad = nil
        end
        assert.equal(before + 1, #helper.notices)
        assert.matches('for the 5th time', helper.notices[before + 1])
    end)
end)
