--- Runs torch_rates.py where a Python with PyTorch and a GPU is: $PYTHON, else python3. Nothing fails where none is.
local gpu = require 'spec.gpu.gpu'

local torch = {}

local function quoted(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

--- Runs it with arguments and lines of standard input.
-- @return { name = number }, or nil where there is no PyTorch that sees a GPU
function torch.rates(arguments, input)
    if gpu.is_simulated then return nil end
    local name = os.tmpname()
    local file = assert(io.open(name, 'wb'))
    file:write(input or '')
    file:close()
    -- The libraries that the checks were given must not come before those that PyTorch brings along.
    local pipe = io.popen(('unset LD_LIBRARY_PATH; %s %s %s <%s 2>/dev/null'):format(quoted(os.getenv 'PYTHON'
        or 'python3'), quoted(gpu.root .. '/spec/gpu/torch_rates.py'), arguments, name))
    local out
    for line in pipe:lines() do
        local what, value = line:match '^(%S+) (%S+)$'
        if tonumber(value) then
            out = out or {}
            out[what] = tonumber(value)
        end
    end
    pipe:close()
    os.remove(name)
    return out
end

return torch
