--- Runs torch_rates.py where a Python with PyTorch and a GPU is: $PYTHON, else python3. Nothing fails where none is.
local gpu = require 'spec.gpu.gpu'

local torch = {}

local LIMIT = 120 -- seconds of a process

local function quoted(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

--- Runs it with arguments and lines of standard input.
-- @return { name = number }, or nil where there is no PyTorch that sees a GPU
-- @return the last line of its errors
function torch.rates(arguments, input)
    if gpu.is_simulated then return nil, 'the device is simulated' end
    local name = os.tmpname()
    local file = assert(io.open(name, 'wb'))
    file:write(input or '')
    file:close()
    -- The libraries that the checks were given must not come before those that PyTorch brings along.
    local pipe = io.popen(('unset LD_LIBRARY_PATH; timeout -k 5 %d %s %s %s <%s 2>%s.errors'):format(LIMIT,
        quoted(os.getenv 'PYTHON' or 'python3'), quoted(gpu.root .. '/spec/gpu/torch_rates.py'), arguments, name, name))
    local out, last
    for line in pipe:lines() do
        local what, value = line:match '^(%S+) (%S+)$'
        if tonumber(value) then
            out = out or {}
            out[what] = tonumber(value)
        end
    end
    pipe:close()
    for line in io.lines(name .. '.errors') do
        if line:find '%S' then last = line end
    end
    os.remove(name .. '.errors')
    os.remove(name)
    return out, last or 'no word of why'
end

--- Adds rows of a step's peak and milliseconds in PyTorch, or one that says why there are none.
-- @param name of the rows
-- @param rates of torch.rates, or nil
-- @param prefix of the numbers, such as 'compiled_'
-- @param why of torch.rates
-- @return { peak =, ms = }, or nil where there are none
function torch.rows(name, rates, prefix, why)
    local peak, ms = rates and rates[prefix .. 'peak'], rates and rates[prefix .. 'ms']
    if not (peak and ms) then
        gpu.note(name, 'left out: ' .. why)
        return nil
    end
    gpu.number(name .. ': peak', peak, 'B')
    gpu.number(name, ms, 'ms')
    return { peak = peak, ms = ms }
end

return torch
