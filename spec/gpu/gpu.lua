--- Shared by the checks of a GPU, which facts.lua, kernels.lua and steps.lua beside this hold: the command line, rows
-- of results, the timing of kernels, and what PyTorch takes. `luajit spec/gpu/FILE.lua NAME [--small] [--out FILE]`
-- runs one of them.
--
-- A row is { what =, value =, unit =, predicted =, aim = (text), verdict =, detail = (text) }. Verdicts: 'pass' and
-- 'FAIL' of facts that must hold anywhere; 'reached' and 'missed' of numbers that have an aim; '' of numbers without
-- one; 'simulated: not judged' of numbers on the simulated device, which has no time. A check that raises is a failure
-- of the whole check, and its rows up to there stay: the file of --out is written anew at each row.
local here = (arg[0] or ''):match '^(.*)/[^/]*$' or '.'
local root = here:match '^(.*)/spec/gpu$' or here .. '/../..'
package.path = table.concat({ root .. '/lua/?.lua', root .. '/lua/?/init.lua', root .. '/?.lua',
    root .. '/share/lua/?.lua', root .. '/share/lua/?/init.lua', package.path }, ';')
local wane = require 'wane'
local files = require 'spec.support.files'
local binding = require 'wane.ffi'
local programs = require 'spec.support.programs'
local sim = require 'spec.support.cudasim'
local timing = require 'spec.gpu.timing'

local C = binding.C
local gpu = { root = root, rows = {}, failed = 0, is_simulated = sim.missing() == nil }

local options, names = require 'spec.support.options'({ out = 'text' }, '--small, --out FILE', true)
options.small = options.small or gpu.is_simulated
--- True where sizes are tiny: --small, or the simulated device.
gpu.is_small = options.small

--- Returns `small` of a check with small sizes, else `full`.
function gpu.size(full, small)
    if options.small then return small end
    return full
end

-- ---- rows ---------------------------------------------------------------------------------------------------------
local function save()
    if not options.out then return end
    local lines = { 'return {' }
    for _, row in ipairs(gpu.rows) do
        local cells = {}
        for key, value in pairs(row) do
            cells[#cells + 1] = ('%s = %s'):format(key, type(value) == 'string' and ('%q'):format(value)
                or value == math.huge and 'math.huge' or ('%.17g'):format(value))
        end
        lines[#lines + 1] = '    { ' .. table.concat(cells, ', ') .. ' },'
    end
    lines[#lines + 1] = '}\n'
    files.write(options.out, table.concat(lines, '\n'))
end

local function add(row)
    if row.verdict == 'FAIL' then gpu.failed = gpu.failed + 1 end
    gpu.rows[#gpu.rows + 1] = row
    print(('%-60s %14s %-10s %s%s'):format(row.what, row.value and ('%.6g'):format(row.value) or '', row.unit or '',
        row.verdict, row.value and row.detail and ' ' .. row.detail or ''))
    io.flush()
    save()
end

--- Adds a fact that must hold on any device.
-- @param what that is claimed
-- @param holds true where it does
-- @param detail words that say what was found where it does not
function gpu.fact(what, holds, detail)
    add { what = what, verdict = holds and 'pass' or 'FAIL', detail = not holds and tostring(detail or '') or nil }
end

--- Adds a number, which must be finite and at least 0.
-- @param what that is measured
-- @param value number
-- @param unit text
-- @param more { predicted = number, least = or most = the aim, about = the predicted number times 1 +- this share,
-- aim = text of the aim, detail = words beside the verdict }
function gpu.number(what, value, unit, more)
    more = more or {}
    local row = { what = what, value = value, unit = unit, predicted = more.predicted, aim = more.aim, verdict = '',
        detail = more.detail }
    if not (value >= 0 and value < math.huge) then
        row.verdict, row.value, row.detail = 'FAIL', nil, 'not a number of its kind: ' .. tostring(value)
    elseif gpu.is_simulated then
        row.verdict = 'simulated: not judged'
    elseif more.least or more.most or more.about then
        local is_reached = not (more.least and value < more.least) and not (more.most and value > more.most)
        if more.about then
            is_reached = is_reached and math.abs(value - more.predicted) <= more.about * more.predicted
        end
        row.verdict = is_reached and 'reached' or 'missed'
        row.aim = row.aim or more.least and ('>= %.4g'):format(more.least)
            or more.most and ('<= %.4g'):format(more.most) or ('within %.0f %% of predicted'):format(100 * more.about)
    end
    add(row)
end

--- Adds a text that is kept in the report.
function gpu.note(what, text)
    add { what = what, verdict = '', detail = text }
end

--- Runs the check that the command line names, and exits with 1 where a fact failed or there is no row.
-- @param checks name -> function
function gpu.run(checks)
    local check = checks[names[1]] or error(("%s: there is no check '%s'"):format(arg[0], names[1] or ''), 0)
    check()
    os.exit(gpu.failed == 0 and #gpu.rows > 0 and 0 or 1, true)
end

--- The runtime's line about the GPU that is here.
gpu.card = binding.text(C.wn_cuda())
--- The data sheet's FLOP a second of dense bf16, of an H100 (SXM) and an H200 alike.
gpu.PEAK = 989e12

-- ---- timing -------------------------------------------------------------------------------------------------------

-- Runs a program of n applications; returns its seconds and the bytes that its instructions move.
local function run_once(make, n)
    local roots = {}
    for i = 1, n do roots[i] = make(i) end
    local p = programs.run { mode = 'eval', roots = roots }
    local seconds, moved = p.measured.seconds, programs.moved(p)
    p:close()
    roots = nil -- luacheck: ignore 311
    collectgarbage()
    return seconds, moved
end

--- Measures one application of a kernel (timing.measure), over seven pairs of programs.
-- @param make function(i) that records application i and returns its result
-- @param count how many more applications than one a program has at least, 8 where it is nil
-- @return { seconds =, bytes = read and written, count =, noise = words for gpu.number, or nil }
function gpu.time(make, count)
    local timed = timing.measure(function(n) return run_once(make, n) end, count or gpu.size(8, 2), {
        turns = gpu.size(7, 1), least = 3e-3, room = 16 * 2 ^ 30, no_clock = gpu.is_simulated })
    wane.memory.trim()
    return timed
end

--- Returns whether cuBLASLt was found, which then computes products.
function gpu.has_cublaslt()
    local found = binding.text(C.wn_cuda())
    return found:find('cuBLASLt', 1, true) ~= nil and not found:find('no cuBLASLt', 1, true)
end

--- Returns seconds of a clock that never goes back.
function gpu.now() return C.wn_now() end

--- Makes a tensor of normal numbers that is computed.
function gpu.normal(...)
    local t = wane.randn(...):retain()
    wane.eval(t)
    return t
end

-- ---- PyTorch ------------------------------------------------------------------------------------------------------
local LIMIT = 120 -- seconds of a process

local function quoted(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

--- Runs torch_rates.py with arguments and lines of standard input, where a Python with PyTorch and a GPU is: $PYTHON,
-- else python3. Nothing fails where none is.
-- @return { name = number }, or nil where there is no PyTorch that sees a GPU
-- @return the last line of its errors
function gpu.torch_rates(arguments, input)
    if gpu.is_simulated then return nil, 'the device is simulated' end
    local name = os.tmpname()
    files.write(name, input or '')
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
-- @param rates of gpu.torch_rates, or nil
-- @param why there are none, of gpu.torch_rates
-- @param prefix of the numbers, such as 'compiled_', or nil
-- @return { peak =, ms = }, or nil where there are none
function gpu.add_torch_step(name, rates, why, prefix)
    prefix = prefix or ''
    local peak, ms = rates and rates[prefix .. 'peak'], rates and rates[prefix .. 'ms']
    if not (peak and ms) then
        gpu.note(name, 'left out: ' .. why)
        return nil
    end
    gpu.number(name .. ': peak', peak, 'B')
    gpu.number(name, ms, 'ms')
    return { peak = peak, ms = ms }
end

if not pcall(wane.set_device, 'cuda') then error('there is no GPU: ' .. binding.text(C.wn_cuda()), 0) end
wane.manual_seed(1)

return gpu
