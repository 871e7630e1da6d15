--- Modules made of modules: one after the other, and one beside the identity.
-- @module wane.nn.sequential

local errors = require 'wane.errors'
local module = require 'wane.module'

local made = {}

-- Returns m; raises unless it is a module or a function. what: opens the message.
local function check(m, what)
    if module.is(m) or type(m) == 'function' then return m end
    errors.raise(nil, 'value', '%s a module or a function, got %s', what, errors.describe(m))
end

local function entry(m, position)
    return check(m, ('nn.Sequential: entry %d must be'):format(position))
end

--- nn.Sequential{a, b, c}: calls modules or functions one after the other.
--
-- Each is called with all results of the one before it. The children are seq[1], seq[2] and so on, with the paths '1'
-- and '2'; policies made of units (every, segments, sqrt) count them.
-- @function nn.Sequential
-- @usage
-- local stack = nn.Sequential { nn.Linear(8, 8), nn.ReLU(), function(h) return h * 2 end }
-- print(stack(x).shape, #stack) --> (2, 8)	3
local Sequential = module.new('Sequential', function(self, ...)
    local list, n = ..., select('#', ...)
    if n == 1 and type(list) == 'table' and not module.is(list) then
        n = errors.list(list, 'nn.Sequential', 'modules')
    elseif type(list) == 'table' and not module.is(list) then
        errors.raise(nil, 'value', 'nn.Sequential: expected one list of modules, got %d arguments', n)
    else
        list = { ... }
    end
    for k = 1, n do self[k] = entry(list[k], k) end
end)

--- Appends a module or a function. Returns the Sequential.
-- @param m module or function
-- @usage print(#nn.Sequential():add(nn.Linear(8, 4)):add(nn.ReLU())) --> 2
function Sequential:add(m)
    self[#self + 1] = entry(m, #self + 1)
    return self
end

-- Returns the number of values and, if that is not 1, a list of them; else the value.
local function results(...)
    local n = select('#', ...)
    if n == 1 then return n, (...) end
    return n, { ... }
end

-- Calls each entry with all results of the one before it. One value is handed on in a loop, which LuaJIT compiles.
function Sequential:forward(...)
    local n, x = results(...)
    for k = 1, #self do
        if n == 1 then n, x = results(self[k](x)) else n, x = results(self[k](unpack(x, 1, n))) end
    end
    if n == 1 then return x end
    return unpack(x, 1, n)
end
made.Sequential = Sequential

--- nn.Residual(m): returns x + m(x).
--
-- m is a module or a function whose result has the shape of x. Further arguments are passed on to m.
-- @function nn.Residual
-- @usage print(nn.Residual(nn.MLP(8))(x).shape) --> (2, 8)
made.Residual = module.new('Residual', function(self, body)
    self.body = check(body, 'nn.Residual: expected')
end)

function made.Residual:forward(x, ...)
    return x + self.body(x, ...)
end

return made
