--- The file of costs: what `wane.profile` measured on this machine, for every later process.
--
-- It is WANE_COSTS, else ~/.cache/wane/costs-N.txt for N threads, or costs-CLASS-N.txt where WANE_KERNELS names the
-- class of kernels, which has seconds of its own. WANE_COSTS=off reads and writes none. Its lines, after a comment in
-- the first one:
--
--     processor<tab>its name, caches and class of kernels  what was measured on another one is not used
--     tuning<tab>name value name value ...                 of plan/costs/tuning.lua
--     machine<tab>f64 f32 bf16 bytes launch                FLOP/s, bytes/s, seconds
--     link<tab>to_host to_disk from_host from_disk         bytes/s
--     machine:cuda<tab>, link:cuda<tab>                    the same of a GPU, measured where the device is 'cuda'
--     gpu<tab>its name                                     what was measured of another one is left out
--     seconds<tab>key of an application
-- @internal wane.plan.costs.file
local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local system = require 'wane.system'
local target = require 'wane.plan.costs.target'

local C, iterate, raise = binding.C, errors.iterate, errors.raise
local variable = os.getenv

local costs_file = {}

local function home()
    local set = variable 'XDG_CACHE_HOME'
    if set and set ~= '' then return set end
    set = variable 'HOME'
    return set and set ~= '' and set .. '/.cache' or nil
end

--- Returns the name of the file of costs, or nil when WANE_COSTS is off or no folder for it is known.
function costs_file.name()
    local given = variable 'WANE_COSTS'
    if given == 'off' then return nil end
    if given and given ~= '' then return given end
    local class = binding.text(C.wn_kernels()):match '^(%w+).* WANE_KERNELS says'
    return home() and ('%s/wane/costs-%s%d.txt'):format(home(), class and class .. '-' or '', C.wn_threads()) or nil
end

--- Sees to it that the file of costs can be written, before anything is measured.
-- @return its name; nil and why there is none
-- @raise 'io' where it cannot be written
function costs_file.ready()
    local name = costs_file.name()
    if not name then
        local is_off = variable 'WANE_COSTS' == 'off'
        return nil, is_off and 'WANE_COSTS is off' or 'HOME is not set; WANE_COSTS=FILE names a file'
    end
    system.make_folders(name)
    local fine, why = system.can_write(name)
    if fine then return name end
    raise(nil, 'io', 'wane.profile: %s; WANE_COSTS=FILE names another file, WANE_COSTS=off keeps none', why)
end

local HEAD = '# Seconds measured by Wane on this machine; written by wane.profile. machine, link: rates a second.'
local rates = target.rates
local links = { 'to_host', 'to_disk', 'from_host', 'from_disk' }
costs_file.links = links

local NO_SUCH_FILE = 2 -- errno of a file that does not exist: nothing was measured on this machine so far
-- Most applications that a file may hold whose lines have fewer than 40 letters; wane.profile writes no such file.
local MOST_SHORT = 10000

-- DEVICES lists the devices that rates are measured of. Those of the CPU have the bare words `machine` and `link` in
-- the file, those of another device its name behind them: `machine:cuda`.
local DEVICES = { 'cpu', 'cuda' }
costs_file.DEVICES = DEVICES

--- Returns the word of a line for a device: 'machine:cuda'.
-- @param name 'machine' or 'link'
-- @param device name of DEVICES
function costs_file.word(name, device)
    return device == 'cpu' and name or name .. ':' .. device
end
local word = costs_file.word

-- FIELDS maps a word of the file to the names of its numbers. FROM_0 lists those that may be 0.
local FIELDS = { ranks = { 'start', 'peer', 'inside', 'outside' } }
local FROM_0 = { launch = true, start = true, peer = true }
for _, device in ipairs(DEVICES) do
    FIELDS[word('machine', device)], FIELDS[word('link', device)] = rates, links
end

local WORDS = { processor = true, gpu = true, tuning = true } -- the other words that lines begin with

--- Returns the line that tells this processor from another one: its name, its caches, and the class of kernels.
function costs_file.processor()
    return ('%s; %s'):format(binding.text(C.wn_processor()), binding.text(C.wn_kernels()):match '^%w*')
end

--- Returns the name of the GPU that is here, or nil where there is none.
function costs_file.gpu()
    for id = 0, C.wn_device_count() - 1 do
        if binding.text(C.wn_device_name(id)) == 'cuda' and C.wn_device_absent(id) == nil then
            return binding.text(C.wn_cuda()):match '^(.-), sm_'
        end
    end
end

-- ---- reading -----------------------------------------------------------------------------------------------
-- Parses the numbers in `key` as the rates called `names` into found[field]. Returns false when a number is no rate. A
-- line with another count of numbers is ignored.
local function take_rates(found, field, key, names)
    local list, k = {}, 0
    for text in key:gmatch('%S+') do
        k = k + 1
        local rate, least = tonumber(text), FROM_0[names[k]] and 0 or 5e-324
        if not (rate and rate >= least and rate < math.huge) then return false end
        if names[k] then list[names[k]] = rate end
    end
    if k == #names then found[field] = list end
    return true
end

-- Parses 'name value name value ...' into found.tuning. Returns false when a value is no whole number.
local function take_tuning(found, key)
    found.tuning = {}
    for name, text in key:gmatch '(%S+) +(%S+)' do
        local value = tonumber(text)
        if not (value and value >= 0 and value <= 2 ^ 53 and value % 1 == 0) then return false end
        found.tuning[name] = value
    end
    return true
end

-- Parses one line of the file into `found`. Returns false when its number cannot have been measured.
local function take_line(found, number, key)
    if FIELDS[number] then return take_rates(found, number, key, FIELDS[number]) end
    if number == 'tuning' then return take_tuning(found, key) end
    if number == 'processor' or number == 'gpu' then found[number] = key end
    local seconds = tonumber(number)
    if seconds and not (seconds >= 0 and seconds < C.WN_COST_SECONDS) then return false end
    found.seconds[key] = seconds
    return true
end

-- Parses all lines, or those before the first measured seconds. Returns why the file cannot be used, or nil.
local function take_lines(found, file, only_head)
    local size, count, lines = file:seek 'end', 0, 0
    local is_ours = size == 0
    file:seek 'set'
    while true do
        local line, failed = file:read '*l' -- lines() raises where the medium fails
        if failed then return ('cannot be read (%s)'):format(failed) end
        if not line then break end
        local number, key = line:match '^(%S+)\t([^\r]+)\r?$' -- an editor may have ended lines with \r
        local is_seconds = tonumber(number) ~= nil
        if is_seconds and only_head then return nil end
        is_ours = is_ours or FIELDS[number] or WORDS[number] or is_seconds or line == HEAD
        lines = lines + 1
        if number and not take_line(found, number, key) then
            return ('cannot be read (its line %d has a number that no machine measures)'):format(lines)
        end
        count = count + (is_seconds and 1 or 0)
        if count > math.max(MOST_SHORT, size / 40) then
            return ('cannot be read (it has more than %d lines of few letters)'):format(count - 1)
        end
    end
    if not is_ours then return 'cannot be read (no line of it is one that wane.profile writes)' end
    if size > 0 and not found.processor then
        return "is of an earlier version, which did not note the processor ('wane profile' measures this one)"
    end
end

-- Adds the rates of links to those of their machines.
local function join_links(found)
    for _, device in ipairs(DEVICES) do
        local machine, link = found[word('machine', device)], found[word('link', device)]
        for _, rate in ipairs(links) do
            if machine and link then machine[rate] = link[rate] end
        end
    end
    return found
end

-- Leaves out what was measured of a GPU that is not the one that is here; where none is here, nothing reads it.
local function leave_other_gpu(found)
    local here = costs_file.gpu()
    if not found.gpu or not here or found.gpu == here then return found end
    found.other_gpu, found.gpu = found.gpu, nil
    found[word('machine', 'cuda')], found[word('link', 'cuda')] = nil, nil
    for key in iterate(found.seconds) do
        if key:find '^cuda[: ]' then found.seconds[key] = nil end
    end
    return found
end

--- Reads a file of costs.
-- @param name of the file, or nil
-- @param only_head true: no seconds of applications
-- @param is_whole true: with what was measured of a GPU that is not here
-- @return { machine = rates or nil, link = rates or nil, ['machine:cuda'] =, ['link:cuda'] = the same of a GPU,
-- ranks = rates of the link among ranks or nil, tuning = { name = value } or nil, seconds = { key = number },
-- gpu = (that was measured, or nil), other_gpu = (one that is not here, whose numbers are left out) }, empty when there
-- is no such file or it cannot be used
-- @return nil, or why the file cannot be used: "cannot be read (...)", "was measured on another processor (...)"
function costs_file.read(name, only_head, is_whole)
    local found, nothing = { seconds = {} }, { seconds = {} }
    if not name then return nothing end
    local file, why, errno = system.open(name, 'r')
    if not file then return nothing, errno ~= NO_SUCH_FILE and ('cannot be read (%s)'):format(why) or nil end
    why = take_lines(found, file, only_head)
    file:close()
    if why then return nothing, why end
    if found.processor and found.processor ~= costs_file.processor() then
        return nothing, ("was measured on another processor (%s; this is %s; 'wane profile' measures it)"):format(
            found.processor, costs_file.processor())
    end
    found = join_links(found)
    return is_whole and found or leave_other_gpu(found)
end

-- ---- writing -----------------------------------------------------------------------------------------------
-- Returns the lines before those of seconds.
local function head_lines(found)
    local lines = { HEAD, 'processor\t' .. costs_file.processor() }
    if found.gpu then lines[#lines + 1] = 'gpu\t' .. found.gpu end
    local words = {}
    for key, value in iterate(found.tuning or {}) do words[#words + 1] = ('%s %.0f'):format(key, value) end
    table.sort(words)
    if #words > 0 then lines[#lines + 1] = 'tuning\t' .. table.concat(words, ' ') end
    local function add(field)
        local numbers = {}
        for i, rate in ipairs(found[field] and FIELDS[field] or {}) do
            numbers[i] = ('%.6g'):format(found[field][rate])
        end
        if found[field] then lines[#lines + 1] = field .. '\t' .. table.concat(numbers, ' ') end
    end
    for _, device in ipairs(DEVICES) do
        add(word('machine', device))
        add(word('link', device))
    end
    add 'ranks'
    return lines
end

--- Writes a file of costs, in the place of the old one.
-- @param name of the file
-- @param found what `read` returns
-- @raise 'io' where it cannot be written; 'value' for seconds that costs_file.read would refuse
function costs_file.write(name, found)
    local lines = head_lines(found)
    for _, key in ipairs(errors.names(found.seconds)) do
        local number = ('%.6g'):format(found.seconds[key])
        if not take_line({ seconds = {} }, number, key) then number = ('%.17g'):format(found.seconds[key]) end
        if not take_line({ seconds = {} }, number, key) then
            raise(nil, 'value', 'wane.profile: %s cannot take %s seconds for %s', name, number, key)
        end
        lines[#lines + 1] = number .. '\t' .. key
    end
    system.make_folders(name)
    local fine, why = system.write(name, table.concat(lines, '\n') .. '\n')
    if not fine then raise(nil, 'io', 'wane.profile: %s', why) end
end

return costs_file
