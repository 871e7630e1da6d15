--- The file of a sweep: one JSON object a line, one line a point, in the order in which points came to their end.
--
-- A line is added whole, by one write at the file's end, so that a file whose writer was killed lacks points and has no
-- half ones; where a line is torn all the same (a full disk, a lost machine) it is the last, and it is dropped.
-- @module wane.sweep.store
local errors = require 'wane.errors'
local json = require 'wane.json'
local system = require 'wane.system'

local raise = errors.raise

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

--- Rows of a file from a byte on.
-- @param path file
-- @param from bytes to pass over (optional)
-- @return list of rows, and the bytes of a torn last line (0 when there is none); nil when there is no file
function store.read(path, from)
    local text = system.read(path)
    if not text then return nil end
    local rows, number, at = {}, 0, (from or 0) + 1
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

--- Takes the last bytes of a file away.
-- @param path file
-- @param count bytes
function store.cut(path, count)
    local text = assert(system.read(path))
    local file, why = system.open(path .. '.new', 'wb')
    if not file then raise(nil, 'io', 'wane.sweep: %s.new cannot be written (%s)', path, why) end
    file:write(text:sub(1, #text - count))
    file:close()
    os.rename(path .. '.new', path)
end

--- Bytes of a file, 0 when there is none.
function store.size(path)
    local file = system.open(path, 'rb')
    if not file then return 0 end
    local size = file:seek 'end'
    file:close()
    return size
end

return store
