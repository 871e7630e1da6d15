--- The file of a sweep: one JSON object a line, one line a point, in the order in which points ended.
--
-- One process writes the file at a time: the holder of the lock PATH.lock beside it (runtime/io/lock.h). The system
-- releases the lock when that process ends, and the processes of points do not hold it. Any process may read the file
-- at any time. A row is appended by one write at the end of the file, so a file whose writer was killed lacks points
-- and has no half rows. A line that is torn nevertheless (a full disk, a lost machine) is the last one and is dropped.
-- Rows are removed by replacing the file as a whole.
-- @internal wane.sweep.store
local errors = require 'wane.errors'
local json = require 'wane.report.json'
local system = require 'wane.system'

local iterate, raise = errors.iterate, errors.raise

local store = {}

-- ---- the form of a row, which a user may have edited --------------------------------------------------------------
local function is_bytes(x) return type(x) == 'number' and x % 1 == 0 and x >= 0 and x < 2 ^ 53 end
local function is_number(x) return type(x) == 'number' and x - x == 0 end
local function is_any_number(x) return type(x) == 'number' end
local function is_string(x) return type(x) == 'string' end
local function is_boolean(x) return type(x) == 'boolean' end
local function is_plain(x) return type(x) ~= 'table' end

-- Tells whether every entry of a table passes a test, and every key another one.
local function is_table_of(x, is_entry, is_key)
    if type(x) ~= 'table' then return false end
    for key, entry in iterate(x) do
        if not is_entry(entry) or is_key and not is_key(key) then return false end
    end
    return true
end
local function is_kinds(x) return is_table_of(x, is_bytes, is_string) end
local function is_times(x) return is_table_of(x, is_number) end

-- Fields that a row of each status must have, and fields that any row may have: name -> { test, expected text }.
local BYTES, NUMBER, STRING = { is_bytes, 'a number of bytes' }, { is_number, 'a number' }, { is_string, 'a text' }
local FLAG, KINDS = { is_boolean, 'true or false' }, { is_kinds, 'bytes by kind' }
local MUST = {
    ok = { peak = BYTES, predicted_peak = BYTES, reserved = BYTES, predicted_reserved = BYTES, seconds = NUMBER,
        recomputed = BYTES, kinds = KINDS, exact = FLAG, lossless = FLAG },
    failed = { error = STRING, code = STRING },
}
local MAY = { state = BYTES, activations = BYTES, wall = NUMBER, loss = { is_any_number, 'a number' },
    loss_bits = STRING, digest = STRING, digest_of = STRING, script = STRING, predicted_kinds = KINDS,
    times = { is_times, 'a list of seconds' }, n = NUMBER, low = NUMBER, high = NUMBER, spread = NUMBER, load = NUMBER,
    cores = NUMBER, noisy = STRING, date = STRING }

-- Returns what is wrong with a decoded row, or nil.
local function fault_of(row)
    if type(row.point) ~= 'table' then return 'it tells no point' end
    if not is_table_of(row.point, is_plain, is_string) then return 'its point is no table of plain values' end
    local must = is_string(row.status) and MUST[row.status]
    if not must then return "its status is neither 'ok' nor 'failed'" end
    for name, kind in iterate(must) do
        if not kind[1](row[name]) then return ("its '%s' is not %s"):format(name, kind[2]) end
    end
    for name, kind in iterate(MAY) do
        if row[name] ~= nil and not kind[1](row[name]) then return ("its '%s' is not %s"):format(name, kind[2]) end
    end
end

-- Returns what is wrong with the text of a line, or nil; and the row that it tells.
local function read_line(line)
    local row, why, place = json.decode(line)
    if row == nil then return place and ('at byte %d: %s'):format(place, why) or 'it is null' end
    if type(row) ~= 'table' then return 'it is no object' end
    return fault_of(row), row
end

-- Returns the line of a row. Raises 'value' for a row that store.read would refuse.
local function line_of(row)
    local line = json.encode(row)
    local fault = read_line(line)
    if fault then raise(nil, 'value', 'wane.sweep: a row is not written, because it could not be read: %s', fault) end
    return line .. '\n'
end

--- Appends a row.
-- @param path file
-- @param row table of plain values
-- @raise 'io' where the file cannot be written; 'value' for a row that store.read would refuse
function store.append(path, row)
    local line = line_of(row)
    local file, why = system.open(path, 'ab')
    if not file then raise(nil, 'io', 'wane.sweep: %s cannot be written (%s)', path, why) end
    file:setvbuf('full', #line + 1) -- room for the whole line, so that it is one write
    local fine, more = file:write(line)
    if fine then fine, more = file:flush() end
    file:close()
    if not fine then raise(nil, 'io', 'wane.sweep: %s cannot be written (%s)', path, more) end
end

--- Reads the rows of a file.
-- @param path file
-- @return list of rows, and the bytes of a torn last line, 0 for none; nil when the file does not exist
-- @raise 'io' for a line that is no row
function store.read(path)
    local text = system.read(path)
    if not text then return nil end
    local rows, number, at = {}, 0, 1
    while true do
        local stop = text:find('\n', at, true)
        if not stop then return rows, #text - at + 1 end
        number = number + 1
        local fault, row = read_line(text:sub(at, stop - 1))
        if fault then
            raise(nil, 'io', 'wane.sweep: line %d of %s is no row of a sweep (%s); take the line out, or name another '
                .. 'file', number, path, fault)
        end
        rows[#rows + 1] = row
        at = stop + 1
    end
end

-- Replaces a file by a text, as a whole or not at all.
local function replace(path, text)
    local fine, why = system.write(path, text)
    if not fine then raise(nil, 'io', 'wane.sweep: %s cannot be written (%s)', path, why) end
end

--- Removes the last bytes of a file.
-- @param path file
-- @param count number of bytes
function store.cut(path, count)
    local text, why = system.read(path)
    if not text then raise(nil, 'io', 'wane.sweep: %s cannot be read (%s)', path, why) end
    replace(path, text:sub(1, #text - count))
end

--- Writes a file of rows, in place of what it holds, as a whole or not at all.
-- @param path file
-- @param rows list of tables of plain values
function store.write(path, rows)
    local lines = {}
    for i, row in ipairs(rows) do lines[i] = line_of(row) end
    replace(path, table.concat(lines))
end

--- Replaces the rows of a point by one row at the end of the file; all other lines stay as they are.
-- @param path file without a torn line
-- @param row table of plain values
function store.supersede(path, row)
    local key, lines = json.encode(row.point), {}
    for line in (system.read(path) or ''):gmatch '[^\n]*\n' do
        local old = json.decode(line)
        if not (type(old) == 'table' and json.encode(old.point) == key) then lines[#lines + 1] = line end
    end
    lines[#lines + 1] = line_of(row)
    replace(path, table.concat(lines))
end

return store
