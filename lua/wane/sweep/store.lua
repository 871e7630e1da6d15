--- The file of a sweep: one JSON object a line, one line a point, in the order in which points came to their end.
--
-- One process writes it at a time: the one that holds the lock PATH.lock beside it (runtime/io/lock.h), which the
-- system gives back when that process ends, and which the processes of points do not have. Anybody may read it at any
-- time. A line is added whole, by one write at the file's end, so that a file whose writer was killed lacks points and
-- has no half ones; a line that is torn all the same (a full disk, a lost machine) is the last, and is dropped. Lines
-- are taken away by a new file in the place of the old one.
-- @module wane.sweep.store
local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local json = require 'wane.json'
local system = require 'wane.system'

local C, check, raise = binding.C, binding.check, errors.raise

local store = {}

--- Adds a row.
-- @param path file
-- @param row table of plain values
function store.append(path, row)
    local line = json.encode(row) .. '\n'
    local file, why = system.open(path, 'ab')
    if not file then raise(nil, 'io', 'wane.sweep: %s cannot be written (%s)', path, why) end
    file:setvbuf('full', #line + 1) -- room for all of it: one write
    local fine, more = file:write(line)
    if fine then fine, more = file:flush() end
    file:close()
    if not fine then raise(nil, 'io', 'wane.sweep: %s cannot be written (%s)', path, more) end
end

--- Rows of a file.
-- @param path file
-- @return list of rows, and the bytes of a torn last line (0 when there is none); nil when there is no file
function store.read(path)
    local text = system.read(path)
    if not text then return nil end
    local rows, number, at = {}, 0, 1
    while true do
        local stop = text:find('\n', at, true)
        if not stop then return rows, #text - at + 1 end
        number = number + 1
        local row, why, place = json.decode(text:sub(at, stop - 1))
        if type(row) ~= 'table' or type(row.point) ~= 'table' then
            raise(nil, 'io', 'wane.sweep: line %d of %s is no row of a sweep (%s); take the line out, or name another '
                .. 'file', number, path, row == nil and ('at byte %d: %s'):format(place, why) or 'it tells no point')
        end
        rows[#rows + 1] = row
        at = stop + 1
    end
end

--- Takes the lock of a file.
-- @param path file, which need not be there; its folder must
-- @return the lock, for store.unlock; nil where the file system has no locks
-- Errors: 'io' when another process holds it: which, and since when.
function store.lock(path)
    local is_kept = binding.new('int32_t[1]')
    local lock = C.wn_lock(path, is_kept)
    if lock < 0 then raise(nil, 'io', 'wane.sweep: %s', binding.text(C.wn_message())) end
    if is_kept[0] ~= 0 then return lock end
    C.wn_lock_close(lock)
end

--- Gives a lock back; nil is none.
function store.unlock(lock)
    if lock then C.wn_lock_close(lock) end
end

-- Puts a text in the place of a file, whole or not at all.
local function replace(path, text)
    local file = binding.id(C.wn_file_create(path))
    local fine, why = pcall(function()
        check(C.wn_file_write(file, text, #text))
        check(C.wn_file_commit(file))
    end)
    C.wn_file_close(file)
    if not fine then error(why, 0) end
end

--- Takes the last bytes of a file away.
-- @param path file
-- @param count bytes
function store.cut(path, count)
    local text, why = system.read(path)
    if not text then raise(nil, 'io', 'wane.sweep: %s cannot be read (%s)', path, why) end
    replace(path, text:sub(1, #text - count))
end

--- Puts a row in the place of those its point has, at the end; all other lines stay as they are.
-- @param path file without a torn line
-- @param row table of plain values
function store.supersede(path, row)
    local key, lines = json.encode(row.point), {}
    for line in (system.read(path) or ''):gmatch '[^\n]*\n' do
        local old = json.decode(line)
        if not (type(old) == 'table' and json.encode(old.point) == key) then lines[#lines + 1] = line end
    end
    lines[#lines + 1] = json.encode(row) .. '\n'
    replace(path, table.concat(lines))
end

return store
