--- The operating system: terminals, folders, files, and the command line of this process.
--
-- Each function asks the system and assumes nothing: it returns nil or false where the system has no answer.
-- @internal wane.system

local binding = require 'wane.ffi'
local errors = require 'wane.errors'

local system = {}

local variable = os.getenv

--- Tells whether a stream is a terminal.
-- @param fd 0 input, 1 output, 2 errors
function system.is_terminal(fd)
    local process = binding.open_library({}, 'int isatty(int fd);')
    return process ~= nil and process.isatty(fd) == 1
end

--- Tells whether lines of a stream may be rewritten: it is a terminal, and not a dumb one.
-- @param fd 0 input, 1 output, 2 errors
function system.is_rich(fd)
    return system.is_terminal(fd) and (variable 'TERM' or 'dumb') ~= 'dumb'
end

--- Tells whether a stream may show colours: it is rich, and NO_COLOR is not set (https://no-color.org).
-- @param fd 0 input, 1 output, 2 errors
function system.has_color(fd)
    return system.is_rich(fd) and (variable 'NO_COLOR' or '') == ''
end

local WINDOW = [[
struct wane_window { unsigned short rows, columns, width, height; };
int ioctl(int fd, unsigned long request, ...);
]]
local ASK, LEAST, USUAL = 0x5413, 20, 80 -- TIOCGWINSZ of Linux; columns

--- Returns the columns that output may take: COLUMNS where it is set, else those of the terminal, 80 in a pipe.
function system.columns()
    local set = tonumber(variable 'COLUMNS' or '')
    if set and set >= 1 and set < 1e6 then return math.max(LEAST, math.floor(set)) end
    local process = system.is_terminal(1) and binding.open_library({}, WINDOW)
    if not process then return USUAL end
    local window = binding.new 'struct wane_window'
    if process.ioctl(1, ASK, window) ~= 0 or window.columns == 0 then return USUAL end
    return math.max(LEAST, window.columns)
end

--- Tells whether the locale allows text beyond ASCII.
function system.is_utf8()
    for _, name in ipairs { 'LC_ALL', 'LC_CTYPE', 'LANG' } do
        local value = variable(name)
        if value and value ~= '' then return value:lower():match 'utf%-?8' ~= nil end
    end
    return false
end

--- Makes the folders of a file where they are missing.
-- @param path name of a file
-- @param mode permissions, default 0777 less the umask
function system.make_folders(path, mode)
    local process = binding.open_library({}, 'int mkdir(const char *path, unsigned int mode);')
    if process == nil or type(path) ~= 'string' then return end -- opening the file reports the problem
    for at in path:gmatch '()/' do
        if at > 1 then process.mkdir(path:sub(1, at - 1), mode or 511) end
    end
end

--- Tells whether there is a file or a folder of a name, also one that may not be read.
-- @param path name
function system.exists(path)
    local process = binding.open_library({}, 'int access(const char *path, int mode);')
    if process == nil then return system.open(path, 'rb') ~= nil end
    return process.access(path, 0) == 0
end

--- Opens a file as io.open does, but never waits: a pipe, a socket, a device or a folder is refused.
-- @param path name of a file
-- @param mode as for io.open
-- @return open file, or nil and the reason
function system.open(path, mode)
    if type(path) ~= 'string' or path == '' or path:find('\0', 1, true) then
        return nil, 'expected the name of a file, got ' .. errors.describe(path)
    end
    local is_written = mode:find '[wa]' and 1 or 0
    if binding.C.wn_file_check(path, is_written) ~= 0 then return nil, binding.text(binding.C.wn_message()) end
    return io.open(path, mode)
end

--- Reads a whole file.
-- @param path name of a file
-- @return text, or nil and the reason
function system.read(path)
    local file, why = system.open(path, 'rb')
    if not file then return nil, why end
    local text = file:read '*a'
    file:close()
    return text
end

--- Writes a text to a file, and sees to it that all of it is written.
-- @param path name of the file
-- @param text its contents
-- @return true, or nil and the reason
function system.write(path, text)
    local file, why = system.open(path, 'wb')
    if not file then return nil, why end
    local fine
    fine, why = file:write(text)
    if fine then fine, why = file:flush() end -- a small text stays in the buffer up to here
    local is_closed, problem = file:close()
    if fine and is_closed then return true end
    return nil, why or problem
end

--- Tells whether something that was written to a stream was lost.
-- @param stream open file
function system.has_failed(stream)
    local process = binding.open_library({}, 'int ferror(void *stream);')
    return process ~= nil and process.ferror(stream) ~= 0
end

local POLL = 'struct wane_poll { int fd; short events, happened; };'
    .. 'int poll(struct wane_poll *streams, unsigned long n, int milliseconds);'
local POLLOUT, POLLERR, POLLHUP = 4, 8, 16

--- Waits until a stream is ready.
-- @param fd 0 input, 1 output, 2 errors
-- @param events bits of what is waited for: 1 input, 4 room for output
-- @param milliseconds that the wait may take
-- @return bits of what happened, 0 for nothing; nil where the system has no such call
function system.poll(fd, events, milliseconds)
    local process = binding.open_library({}, POLL)
    if process == nil then return nil end
    local stream = binding.new('struct wane_poll[1]')
    stream[0].fd, stream[0].events = fd, events
    return process.poll(stream, 1, milliseconds) > 0 and stream[0].happened or 0
end

--- Tells whether the reader of a stream went away.
-- @param fd 1 output, 2 errors
function system.is_abandoned(fd)
    return bit.band(system.poll(fd, POLLOUT, 0) or 0, POLLERR + POLLHUP) ~= 0
end

--- Returns the files whose names match a pattern of the shell, sorted by name.
-- @param pattern with *, ? and [...]; a backslash before one of these makes it mean itself
-- @return list of paths, empty where none matches or the system has no such call
function system.glob(pattern)
    local process = binding.open_library({}, 'int glob(const char *, int, void *, void *); void globfree(void *);')
    local out = {}
    if process == nil then return out end
    local found = binding.new('size_t[64]') -- a glob_t begins with the count and the list, and is smaller than this
    if process.glob(pattern, 0, nil, found) == 0 then
        local list = binding.cast('const char **', found[1])
        for i = 0, tonumber(found[0]) - 1 do out[i + 1] = binding.text(list[i]) end
        process.globfree(found)
    end
    return out
end

--- Sleeps; a signal may end the sleep.
-- @param seconds number below 1
function system.sleep(seconds)
    local process = binding.open_library({}, 'int usleep(unsigned int);')
    if process then process.usleep(math.floor(seconds * 1e6)) end
end

--- Returns the command line of this process.
-- @return list of words, the interpreter first; nil where the system does not say
function system.command_line()
    local text = system.read '/proc/self/cmdline'
    if text == nil or text == '' then return nil end
    local words = {}
    for word in text:gmatch '(.-)%z' do words[#words + 1] = word end
    return words
end

--- Returns the number of processes that ran or waited for a core, on average over the last minute; nil where the
-- system does not say.
function system.load()
    local text = system.read '/proc/loadavg'
    return text and tonumber(text:match '^[%d.]+')
end

--- Returns the number of cores that are online; at least 1.
function system.cores()
    local count = 0
    for from, to in (system.read '/sys/devices/system/cpu/online' or ''):gmatch '(%d+)%-?(%d*)' do
        count = count + 1 + (tonumber(to) or tonumber(from)) - tonumber(from)
    end
    return math.max(1, count)
end

--- Quotes words as a command line for a shell.
-- @param words list of words
-- @return text
function system.quoted(words)
    local out = {}
    for i, word in ipairs(words) do
        out[i] = word:match '^[%w%%%+%-%./:=@_,]+$' and word or "'" .. word:gsub("'", "'\\''") .. "'"
    end
    return table.concat(out, ' ')
end

return system
