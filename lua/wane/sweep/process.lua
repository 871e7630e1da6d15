--- Runs points in processes of their own: starts the script again with the number of a point.
--
-- The child runs the same script up to the same call of :run(), identified by its number among all such calls. There it
-- measures the one point, writes its row to a file of its own and ends; nothing after that call runs in it. The parent
-- holds the lock of the sweep's file and reads the row. The environment tells a child what it is for: WANE_SWEEP_POINT
-- is "call:point:grid:parent", WANE_SWEEP_OUT its file, which has no name in any folder, so that a kill leaves none.
-- What a child prints is kept while it runs; its last lines become the reason of a point that left no row.
-- @internal wane.sweep.process
local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local json = require 'wane.report.json'
local point = require 'wane.sweep.point'
local store = require 'wane.sweep.store'
local system = require 'wane.system'

local C, raise = binding.C, errors.raise

local process = {}

local LOOK = 0.1 -- seconds between two calls of `alive`

-- Seconds after which a process whose point was killed still lives, so that it was not killed together with its point.
-- A scheduler that ends or requeues a job kills all of its processes, one after the other; a point that it killed did
-- not fail. Measured: Slurm 22.05 left up to a few milliseconds between the two.
local GRACE = 0.5

--- Returns the point that this process was started for.
-- @return { call =, point =, grid =, parent =, out = }; nil for a process that a user started
-- @raise 'value' for a malformed WANE_SWEEP_POINT
function process.role()
    local text, out = os.getenv 'WANE_SWEEP_POINT', os.getenv 'WANE_SWEEP_OUT'
    if text == nil or text == '' then return nil end
    local call, number, grid, parent = text:match '^(%d+):(%d+):(%x+):(%d+)$'
    if not call or not out then
        raise(nil, 'value', 'WANE_SWEEP_POINT=%s makes no sense; wane.sweep sets it, unset it', text)
    end
    return { call = tonumber(call), point = tonumber(number), grid = grid, parent = tonumber(parent), out = out }
end

--- Tells whether the script can be started again: the system knows its command line, and it does not come from standard
-- input.
function process.can_restart()
    local words = system.command_line()
    if words == nil then return false end
    local level = 2
    while true do
        local info = debug.getinfo(level, 'S')
        if not info then return true end
        if info.source == '=stdin' then return false end
        level = level + 1
    end
end

-- Returns texts as a C array that ends with NULL; the texts live as long as `words`.
local function list_of(words)
    local list = binding.list('const char *', #words + 1)
    for i, word in ipairs(words) do list[i - 1] = word end
    list[#words] = nil
    return list
end

-- Starts a child. Returns its process id, and the texts that must live until then.
local function start(role, log)
    local words = system.command_line()
    local set = {
        ('WANE_SWEEP_POINT=%d:%d:%s:%d'):format(role.call, role.point, role.grid, C.wn_process()),
        'WANE_SWEEP_OUT=' .. role.out,
    }
    local pid = C.wn_spawn('/proc/self/exe', list_of(words), list_of(set), log)
    return binding.id(pid), words, set -- returned too, so that the texts live until here
end

-- Returns the last three lines that a process printed, without a traceback.
local function last_words(log)
    local text = (system.read(log) or ''):gsub('\nstack traceback:.*$', ''):gsub('%s+$', '')
    local lines = {}
    for line in text:gmatch '[^\n]+' do lines[#lines + 1] = line end
    return table.concat(lines, '\n', math.max(1, #lines - 2))
end

-- Makes the row of a point whose process ended without one.
local function reason(settings, q, ended, log)
    local said = last_words(log)
    local after = said ~= '' and ': ' .. said or ''
    if ended.signal ~= 0 then
        local name = binding.text(C.wn_signal_name(ended.signal)) or tostring(ended.signal)
        return point.failed(settings, q, 'signal', ('ended by signal %d (SIG%s)%s'):format(ended.signal, name, after),
            { signal = ended.signal })
    elseif ended.code ~= 0 then
        return point.failed(settings, q, 'exit', ('ended with code %d%s'):format(ended.code, after))
    end
    return point.failed(settings, q, 'exit', 'the script, started again, came to its end without this sweep; what '
        .. 'leads to it must not depend on time, input or chance' .. after)
end

-- Waits for a process; the limit or ^C ends it. Returns struct wn_ended, 'limit' or 'interrupt'.
local function wait(pid, limit, alive)
    local ended, start_time = binding.new('struct wn_ended'), C.wn_now()
    while true do
        local left = limit and limit - (C.wn_now() - start_time) or LOOK
        binding.check(C.wn_wait(pid, math.max(0, math.min(LOOK, left)), ended))
        if ended.ended ~= 0 then return ended end
        local why = C.wn_interrupted() ~= 0 and 'interrupt' or limit and C.wn_now() - start_time >= limit and 'limit'
        if why then
            C.wn_kill(pid)
            binding.check(C.wn_wait(pid, 60, ended))
            return why
        end
        alive()
    end
end

-- Returns the row that a point's process left in a file, or nil.
local function row_of(q, path)
    local found
    for _, written in ipairs(store.read(path) or {}) do
        if json.encode(written.point) == q.key then found = written end
    end
    return found
end

-- Tells whether a point that did not end well was ended together with this process: by ^C, or by what ends this process
-- within GRACE seconds, in which case this does not return.
local function was_stopped(result)
    if result ~= 'limit' and result.signal ~= 0 then system.sleep(GRACE) end
    return C.wn_interrupted() ~= 0
end

--- Runs a point in a process of its own.
-- @param settings of the sweep; `limit` in seconds (optional)
-- @param q point
-- @param role { call =, point =, grid = }
-- @param alive function() that is called every LOOK seconds
-- @return row; nil when ^C ended the process
function process.run(settings, q, role, alive)
    local log, out = system.unnamed(), system.unnamed()
    role.out = out.path
    local fine, result = errors.pcall(function() return wait((start(role, log.path)), settings.limit, alive) end)
    local row = fine and row_of(q, role.out) or nil
    local is_stopped = fine and (row == nil or row.status ~= 'ok') and (result == 'interrupt' or was_stopped(result))
    if is_stopped then
        row = nil
    elseif fine and row == nil then
        row = result == 'limit' and point.failed(settings, q, 'limit', ('longer than the limit of %g s')
            :format(settings.limit)) or reason(settings, q, result, log.path)
    end
    log.close()
    out.close()
    if not fine then errors.again(result) end
    return row
end

--- Runs, in a child, the point that this process was started for, writes its row, and ends the process.
-- @param settings of the sweep
-- @param q point
-- @param role of process.role
function process.serve(settings, q, role)
    binding.check(C.wn_exit_with_parent(role.parent))
    store.append(role.out, point.run(settings, q))
    io.stdout:flush()
    os.exit(0, true) -- closes the state, so that finalizers run
end

return process
