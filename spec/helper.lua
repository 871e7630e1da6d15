-- Offers what many specs need: `local helper = require 'spec.helper'`. Busted loads it once, before any spec file, and
-- it keeps the one copy of the binding for the whole run. It must require the binding here, because busted forgets
-- modules between files, and a second copy would meet the metatables of the first. It must not need the library for
-- specs that only read files.
local helper = package.loaded['spec.helper']
if type(helper) == 'table' then return helper end -- while it loads, LuaJIT keeps a mark of its own there
helper = {}
package.loaded['spec.helper'] = helper

--- The checkout's folder, without a trailing slash.
helper.root = (debug.getinfo(1, 'S').source:match('^@(.*)/spec/helper%.lua$') or '.')

--- Returns the whole text of a file below the root. Raises when it cannot be read.
function helper.read(path)
    local file = assert(io.open(helper.root .. '/' .. path, 'rb'))
    local text = file:read('*a')
    file:close()
    return text
end

-- PLAIN gives commands the ordinary library where this process has one that they cannot load: that of the sanitizers,
-- which are preloaded here and hidden from shells and compilers, for those leak as they please; or that of an emulated
-- processor, whose LuaJIT commands are not run by.
local PLAIN = '[ -z "$LD_PRELOAD$WANE_SPEC_CC" ] || unset LD_PRELOAD WANE_LIB; '

--- True when specs that have a long form (more random networks, every index of a fault) run it: WANE_SPEC_LONG=1.
helper.is_long = os.getenv 'WANE_SPEC_LONG' == '1'

--- The name of the device that this way of running the specs has: specs that change it put it back to this.
helper.device = os.getenv 'WANE_DEVICE' or 'cpu'

--- Returns the non-empty lines that a shell command prints, run in the root folder; then its exit code.
function helper.lines(command)
    local pipe = assert(io.popen(PLAIN .. 'cd "' .. helper.root .. '" && { ' .. command .. '\n}; echo "rc $?"', 'r'))
    local out = {}
    for line in pipe:lines() do
        if line ~= '' then out[#out + 1] = line end
    end
    pipe:close()
    local code = tonumber((table.remove(out) or ''):match('^rc (%d+)$'))
    return out, code
end

--- Runs a shell command in the root folder; returns what it prints on both streams, and its exit code.
-- `input`, when given, is its standard input (else it has none).
function helper.shell(command, input)
    local name = os.tmpname()
    local file = assert(io.open(name, 'wb'))
    file:write(input or '')
    file:close()
    local line = '( ' .. command .. '\n) < ' .. name .. ' 2>&1; printf "\\nrc %d" $?'
    local pipe = assert(io.popen(PLAIN .. 'cd "' .. helper.root .. '" && { ' .. line .. '\n}', 'r'))
    local text = pipe:read('*a')
    pipe:close()
    os.remove(name)
    local body, code = text:match('^(.*)\nrc (%d+)$')
    return body, tonumber(code)
end

-- Specs plan one step in many ways, read one value many times and make captures of a GPU fail, on purpose. The notices
-- that warn of that in a script are kept in helper.notices instead of being shown among the results; a spec that is
-- about such a notice takes io.stderr itself.
local ON_PURPOSE = { 'this step is planned for the', 'was computed by three programs', 'no graph of this step' }
--- Notices that were kept from the output, oldest first.
helper.notices = {}

local function keep_notices(stream)
    local kept = {}
    function kept:write(...)
        local text = table.concat { ... }
        for _, words in ipairs(ON_PURPOSE) do
            if text:find(words, 1, true) then
                table.insert(helper.notices, text)
                return self
            end
        end
        stream:write(text)
        return self
    end
    return setmetatable(kept, { __index = function(_, name)
        return function(_, ...) return stream[name](stream, ...) end
    end })
end
io.stderr = keep_notices(io.stderr) -- luacheck: ignore 122

if os.getenv('WANE_SPEC_STRESS') then
    -- The collector never rests and goes in its smallest steps, and traces are compiled after two turns:
    -- finalizers and compiled code meet everywhere. (After one turn, LuaJIT 2.1.0-beta3 itself crashed in its
    -- unwinder, in 5 runs of 20; after two in none of 24.)
    collectgarbage('setpause', 0)
    collectgarbage('setstepmul', 120)
    if jit.status() then require('jit.opt').start('hotloop=2') end
end

-- Specs that only read files run without the library too; one that needs it meets the same error itself.
local has_wane, wane = pcall(require, 'wane')
--- The table `wane`, or nil when the library does not load.
helper.wane = has_wane and wane or nil
if has_wane then
    -- Loads the parts that are otherwise loaded when first asked for, or a later file would meet a second copy of their
    -- classes.
    for _, path in ipairs(helper.lines "find lua/wane -name '*.lua'") do
        pcall(require, (path:gsub('^lua/', ''):gsub('%.lua$', ''):gsub('/init$', ''):gsub('/', '.')))
    end
end

--- Fails unless fn raises an error of this code, whose words have each of the texts behind fn; returns the error.
-- @param code of Wane's error, such as 'value'; nil: any error will do
-- @param fn function without arguments
function helper.refused(code, fn, ...)
    local ok, e = pcall(fn)
    assert(not ok, 'nothing was refused')
    local words = tostring(e)
    assert(code == nil or type(e) == 'table' and e.code == code, words)
    for _, text in ipairs { ... } do
        assert(words:find(text, 1, true), ("'%s' is not in '%s'"):format(text, words))
    end
    return e
end

--- Calls fn(...) with a device as the default one, named as in wane.set_device; returns what it returns.
function helper.on(device, fn, ...)
    return require 'wane.scoped'('device', require('wane.tensor.op').device(device, 'spec'), fn, ...)
end

--- Returns the most bytes that are alive on the current device while fn runs, above those that are not its own.
-- @param fn function without arguments, which runs
-- @param foreign bytes of what the specs before hold
function helper.held_by(fn, foreign)
    collectgarbage()
    collectgarbage()
    helper.wane.memory.reset_peak()
    fn()
    return helper.wane.memory().peak - foreign
end

--- Returns a generator of whole numbers with a state of its own, for specs whose networks follow from a seed: Lua's
-- differs between machines.
-- @param seed whole number
-- @return function(n) -> a number from 1 to n
function helper.dice(seed)
    local state = (seed * 2654435 + 12345) % 2147483647
    return function(n)
        state = (state * 16807) % 2147483647
        return state % n + 1
    end
end

return helper
