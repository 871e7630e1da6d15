-- Says what is checked: Wane, its libraries, the GPU and its driver.
local gpu = require 'spec.gpu.gpu'
local cli = require 'wane.cli'

for _, line in ipairs(cli.machine()) do gpu.note(line:match '^%S+', line:match '^%S+%s+(.*)$' or line) end

local function output(command)
    local pipe = io.popen(command .. ' 2>/dev/null')
    local text = pipe and pipe:read '*a' or ''
    if pipe then pipe:close() end
    return (text:gsub('%s+$', ''))
end
local shown = output('nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.max.sm,clocks.mem '
    .. '--format=csv,noheader')
gpu.note('nvidia-smi', shown == '' and 'none' or shown)
gpu.note('kernel', output 'uname -sr')
gpu.fact('Wane has the device cuda', true)
gpu.finish()
