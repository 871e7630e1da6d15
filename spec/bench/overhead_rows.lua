--- Steps whose cost is Wane's own: small layers, so that recording, finding the plan, binding and committing are most
-- of it. spec/bench/overhead.lua runs them; as a script, `luajit spec/bench/overhead_rows.lua ROW DEVICE SECONDS`, it
-- prints the microseconds of processor time that a step takes, the least of many turns, of the Wane on the path.
local wane = require 'wane'
local stacks = require 'spec.support.stacks'
local nn, optim = wane.nn, wane.optim

local rows = { NAMES = {} }

local function chain(depth, width, activation)
    return stacks.linear(stacks.equal(depth, width), function() return activation() end)
end

-- Adds a row for a step in one line, and one for a step in three. make() returns a model and the shape of its input.
local function add(name, make, optimizer)
    for _, way in ipairs { 'one line', 'three lines' } do
        local full = name .. ', ' .. way
        rows.NAMES[#rows.NAMES + 1] = full
        rows[full] = function()
            local model, shape = make()
            local opt = optim[optimizer](model:parameters(), { lr = 1e-3 })
            local x = wane.randn(shape):retain()
            wane.eval(x)
            if way == 'one line' then return function() return opt:step((model(x) ^ 2):mean()) end end
            return function()
                opt:zero_grad()
                local loss = (model(x) ^ 2):mean()
                loss:backward()
                opt:step()
            end
        end
    end
end

add('4 Linear of 64, GELU, AdamW', function() return chain(4, 64, nn.GELU), { 1, 64 } end, 'AdamW')
add('20 Linear of 64, GELU, AdamW', function() return chain(20, 64, nn.GELU), { 1, 64 } end, 'AdamW')
add('100 Linear of 4, ReLU, SGD', function() return chain(100, 4, nn.ReLU), { 1, 4 } end, 'SGD')
add('2 GPT blocks of 32, AdamW', function()
    return nn.Sequential(stacks.blocks(2, 32, 2, { weights = 0.1 })), { 1, 8, 32 }
end, 'AdamW')
add('LSTM of 16, 8 steps, AdamW', function() return nn.LSTM(16, 16), { 8, 1, 16 } end, 'AdamW')

--- Returns the least seconds of processor time that a step of a row takes on a device, in turns of so many seconds.
function rows.least(name, device, seconds)
    wane.set_device(device)
    local step, clock = rows[name](), os.clock
    for _ = 1, 60 do step() end
    local least, ends = math.huge, clock() + seconds
    while clock() < ends do
        local from = clock()
        for _ = 1, 20 do step() end
        least = math.min(least, (clock() - from) / 20)
    end
    return least
end

if arg and arg[0] and arg[0]:match 'overhead_rows%.lua$' then
    print(('%.3f'):format(1e6 * rows.least(arg[1], arg[2], tonumber(arg[3]))))
end

return rows
