--- The operating system: terminals, folders, files, and the command line of this process.
--
-- Each function asks the system and assumes nothing: it returns nil or false where the system has no answer.
-- @internal wane.system

local binding = require 'wane.ffi'
local errors = require 'wane.errors'

local system = {}

local variable = os.getenv
local process = binding.open_library({}, [[
struct wane_window { unsigned short rows, columns, width, height; };
struct wane_poll { int fd; short events, happened; };
int isatty(int fd);
int ioctl(int fd, unsigned long request, ...);
int mkdir(const char *path, unsigned int mode);
int access(const char *path, int mode);
int mkostemp(uint8_t *template, int flags);
int unlink(const uint8_t *path);
int close(int fd);
int ferror(void *stream);
int poll(struct wane_poll *streams, unsigned long n, int milliseconds);
int glob(const char *pattern, int flags, void *failed, void *found);
void globfree(void *found);
int usleep(unsigned int);
]])

--- Tells whether a stream is a terminal.
-- @param fd 0 input, 1 output, 2 errors
function system.is_terminal(fd)
    return process.isatty(fd) == 1
end

--- Tells whether lines of a stream may be rewritten: it is a terminal, and not a dumb one.
-- @param fd 0 input, 1 output, 2 errors
function system.is_rich(fd)
    return system.is_terminal(fd) and (variable 'TERM' or 'dumb') ~= 'dumb'
end

--- Tells whether a stream may show colours: it is rich, and NO_COLOR is not set (https://no-color.org).
-- @param fd 0 input, 1 output, 2 errors
function system.has_color(fd)
    return system.is_rich(fd) and (os.getenv 'NO_COLOR' or '') == ''
end

local ASK, LEAST, USUAL = 0x5413, 20, 80 -- TIOCGWINSZ of Linux; columns

--- Returns the columns that output may take: COLUMNS where it is set, else those of the terminal, 80 in a pipe.
function system.columns()
    local set = tonumber(variable 'COLUMNS' or '')
    if set and set >= 1 and set < 1e6 then return math.max(LEAST, math.floor(set)) end
    local window = binding.new 'struct wane_window'
    if not system.is_terminal(1) or process.ioctl(1, ASK, window) ~= 0 or window.columns == 0 then return USUAL end
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
-- @return the first folder that it made, or nil
function system.make_folders(path, mode)
    if type(path) ~= 'string' then return end -- opening the file reports the problem
    local first
    for at in path:gmatch '()/' do
        if at > 1 and process.mkdir(path:sub(1, at - 1), mode or 511) == 0 then first = first or path:sub(1, at) end
    end
    return first
end

--- Tells whether there is a file or a folder of a name, also one that may not be read.
-- @param path name
function system.exists(path)
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

-- Makes the temporary of a file that is to be written. Returns its handle, or nil and the reason.
local function create(path)
    if type(path) ~= 'string' or path == '' or path:find('\0', 1, true) then
        return nil, 'expected the name of a file, got ' .. errors.describe(path)
    end
    local file = binding.C.wn_file_create(path)
    if file < 0 then return nil, binding.text(binding.C.wn_message()) end
    return file
end

--- Writes a file, as a whole or not at all (runtime/io/file.h): a failure leaves the file that was there.
-- @param path name of the file
-- @param text its contents
-- @return true, or nil and the reason
function system.write(path, text)
    local file, why = create(path)
    if not file then return nil, why end
    local code = binding.C.wn_file_write(file, text, #text)
    if code == 0 then code = binding.C.wn_file_commit(file) end
    why = code ~= 0 and binding.text(binding.C.wn_message()) or nil
    binding.C.wn_free(file)
    return code == 0 or nil, why
end

--- Tells whether a file could be written, and leaves everything as it is.
-- @param path name of the file
-- @return true, or nil and the reason
function system.can_write(path)
    local file, why = create(path)
    if not file then return nil, why end
    binding.C.wn_free(file)
    return true
end

--- Takes the lock of a file (runtime/io/lock.h).
-- @param path file, which need not exist; its folder must
-- @param seconds that another process may hold it (optional)
-- @return function() that releases it, and whether the file system has locks; nil and the reason, where another process
-- holds it or the name of the lock is another file's
function system.lock(path, seconds)
    local is_kept, start = binding.new('int32_t[1]'), binding.C.wn_now()
    local lock, why
    repeat
        if lock then system.sleep(0.02) end
        lock = binding.C.wn_lock(path, is_kept)
        why = lock < 0 and binding.text(binding.C.wn_message())
    until not why or not why:find 'is in use' or binding.C.wn_now() - start >= (seconds or 0)
    if why then return nil, why end
    return function() binding.C.wn_free(lock) end, is_kept[0] ~= 0
end

local CLOEXEC = 0x80000 -- O_CLOEXEC of Linux

--- Makes a file without a name, in TMPDIR or else in /tmp, which is gone when this process ends, however it ends.
-- @return { path = name for this process and those that it starts, close = function() }
-- @raise 'io' where there is no folder for it
function system.unnamed()
    for _, folder in ipairs { variable 'TMPDIR' or '', '/tmp', '/var/tmp' } do
        local template = folder .. '/wane-XXXXXX'
        local name = binding.array('u8', #template + 1)
        binding.copy(name, template)
        local file = folder ~= '' and process.mkostemp(name, CLOEXEC) or -1
        if file >= 0 then
            process.unlink(name)
            return { path = ('/proc/%d/fd/%d'):format(binding.C.wn_process(), file),
                close = function() process.close(file) end }
        end
    end
    errors.raise(nil, 'io', 'no file can be made in TMPDIR, /tmp or /var/tmp; name a folder for it in TMPDIR')
end

--- Tells whether something that was written to a stream was lost.
-- @param stream open file
function system.has_failed(stream)
    return process.ferror(stream) ~= 0
end

local POLLOUT, POLLERR, POLLHUP = 4, 8, 16

--- Waits until a stream is ready.
-- @param fd 0 input, 1 output, 2 errors
-- @param events bits of what is waited for: 1 input, 4 room for output
-- @param milliseconds that the wait may take
-- @return bits of what happened, 0 for nothing
function system.poll(fd, events, milliseconds)
    local stream = binding.new('struct wane_poll[1]')
    stream[0].fd, stream[0].events = fd, events
    return process.poll(stream, 1, milliseconds) > 0 and stream[0].happened or 0
end

--- Tells whether the reader of a stream went away.
-- @param fd 1 output, 2 errors
function system.is_abandoned(fd)
    return bit.band(system.poll(fd, POLLOUT, 0), POLLERR + POLLHUP) ~= 0
end

--- Returns the files whose names match a pattern of the shell, sorted by name.
-- @param pattern with *, ? and [...]; a backslash before one of these makes it mean itself
-- @return list of paths, empty where none matches
function system.glob(pattern)
    local out = {}
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
    process.usleep(math.floor(seconds * 1e6))
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
