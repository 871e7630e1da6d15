--- The files of a sweep's shards as one: reads their rows, compares what is in several, and tells what is in none.
--
-- A row is taken when it is of this text of the script and of a point of this grid. A point that failed in one file and
-- was measured in another is measured. Two measurements of a point must have the same bits and bytes; of their seconds,
-- those of the file that is named first are taken.
-- @internal wane.sweep.merge
local errors = require 'wane.errors'
local json = require 'wane.report.json'
local shard = require 'wane.sweep.shard'
local store = require 'wane.sweep.store'
local system = require 'wane.system'

local raise = errors.raise

local merge = {}

local MOST_NAMES = 20 -- points that a message names, of a shard or of a list

-- Fields in which two measurements of a point must be equal, and what is said of them.
local EQUAL = { { 'digest', 'gradients' }, { 'loss_bits', 'losses' }, { 'predicted_peak', 'predicted peaks' },
    { 'peak', 'peaks' }, { 'predicted_reserved', 'predicted reserved bytes' }, { 'reserved', 'reserved bytes' },
    { 'state', 'bytes of state' }, { 'activations', 'bytes of activations' }, { 'kinds', 'bytes by kind' },
    { 'recomputed', 'recomputed nodes' } }

--- Returns the files that a list names.
-- @param given list of names, or one name; a name with *, ? or [ that is no file's is a pattern of the shell
-- @return list of names, each once; a pattern that no file matches is a name of its own
-- @raise 'value' for anything else, and for an empty list
function merge.files(given)
    if type(given) == 'string' then given = { given } end
    errors.list(given, 'sweep:merge', "files such as { 'rows.1-of-2.jsonl', 'rows.2-of-2.jsonl' }", 1)
    local files, seen = {}, {}
    local function add(name)
        if not seen[name] then files[#files + 1] = name end
        seen[name] = true
    end
    for _, name in ipairs(given) do
        if type(name) ~= 'string' or name == '' then
            raise(nil, 'value', 'sweep:merge: expected names of files, got %s', errors.describe(name))
        end
        local found = name:find '[*?%[]' and not system.exists(name) and system.glob(name) or {}
        for _, path in ipairs(found) do add(path) end
        if #found == 0 then add(name) end
    end
    return files
end

-- Returns a field of a row as text.
local function text_of(value)
    if value == nil then return 'none' end
    return type(value) == 'string' and value or json.encode(value)
end

-- Returns what two measurements of a point differ in, with both values; nil where they agree.
local function difference(a, b)
    for _, field in ipairs(EQUAL) do
        local left, right = a[field[1]], b[field[1]]
        if text_of(left) ~= text_of(right) then
            return ('%s differ: %s and %s'):format(field[2], text_of(left), text_of(right))
        end
    end
end

-- Refuses a row that this sweep cannot have measured.
local function check(row, path, q, settings)
    if row.script ~= settings.script and not settings.is_forced then
        raise(nil, 'value', 'sweep:merge: %s has rows of another text of the script, or of other settings (repeats, '
            .. "warmup, lines, seed, defaults); give those of its run, or resume = 'force' (--resume=force) to take "
            .. 'them all the same', path)
    end
    if q == nil then
        raise(nil, 'value', 'sweep:merge: %s has a row of %s, which is no point of this grid; give the grid of its run '
            .. '(the same --NAME, --policy and --budget)', path, json.encode(row.point))
    end
end

-- Returns the rows of a file; nil where there is no such file. Notes a torn line. Raises 'io' where it cannot be read.
local function read(path, notes)
    local rows, torn = store.read(path)
    if rows == nil then
        local _, why = system.read(path)
        if system.exists(path) then raise(nil, 'io', 'sweep:merge: %s cannot be read (%s)', path, why) end
        return nil
    end
    if torn > 0 then
        notes[#notes + 1] = ('the last line of %s is torn (%d bytes without an end); it is left out'):format(path, torn)
    end
    return rows
end

-- Takes the rows of a file. Counts measurements that were there already, and notes the first difference of each.
local function take(into, rows, path, settings)
    for _, row in ipairs(rows) do
        local q = into.by_key[json.encode(row.point)]
        check(row, path, q, settings)
        local had = into.found[q.key]
        if had and had.status == 'ok' and row.status == 'ok' then
            into.repeated = into.repeated + 1
            local why = difference(had, row)
            if why then
                into.conflicts[#into.conflicts + 1] = ('%s is in %s and in %s, and the %s'):format(q.label,
                    into.source[q.key], path, why)
            end
        elseif not had or had.status ~= 'ok' and row.status == 'ok' then
            row.n = q.number
            into.found[q.key], into.source[q.key] = row, path
        end
    end
end

--- Reads files of rows as those of one sweep.
-- @param files list of names
-- @param own file that an earlier merge wrote and that is read after them, or nil
-- @param points of the sweep
-- @param settings of the sweep; `is_forced` tells whether rows of another text of the script are taken
-- @return { found = { [key of a point] = row }, source = { [key] = file }, absent = files that are not there, notes =
-- lines }
-- @raise 'io' for a file that holds no rows or cannot be read, and when none is there; 'value' for rows of another
-- script or grid, and for measurements of a point that differ
function merge.gather(files, own, points, settings)
    local into = { found = {}, source = {}, absent = {}, notes = {}, conflicts = {}, repeated = 0, by_key = {} }
    for _, q in ipairs(points) do into.by_key[q.key] = q end
    for _, path in ipairs(files) do
        local rows = read(path, into.notes)
        if rows then
            take(into, rows, path, settings)
        else
            into.absent[#into.absent + 1] = path
        end
    end
    if #into.absent == #files then raise(nil, 'io', 'sweep:merge: there is no file %s', table.concat(files, ', ')) end
    local repeated = into.repeated
    if own then take(into, read(own, into.notes), own, settings) end
    if #into.conflicts > 0 then
        raise(nil, 'value', 'sweep:merge: %s\ntake the wrong row out of its file, or leave the file out',
            table.concat(into.conflicts, '\n', 1, math.min(MOST_NAMES, #into.conflicts)))
    end
    if repeated > 0 then
        into.notes[#into.notes + 1] = ('%d rows are of points that an earlier file has, with the same bits and bytes; '
            .. 'the earlier counts'):format(repeated)
    end
    return into
end

-- ---- what is missing ----------------------------------------------------------------------------------------------

-- Returns the labels of points as a text, at most MOST_NAMES of them.
local function labels_of(list)
    local words = {}
    for i = 1, math.min(MOST_NAMES, #list) do words[i] = list[i].label end
    if #list > MOST_NAMES then words[#words + 1] = ('and %d more'):format(#list - MOST_NAMES) end
    return table.concat(words, '; ')
end

-- Returns the number of shards and the file of each, by index; nil where files are not those of one division.
local function division(files)
    local count, file_of = nil, {}
    for _, path in ipairs(files) do
        local one = shard.named(path)
        if one == nil or count and count ~= one.count then return nil end
        count = one.count
        file_of[one.index] = path
    end
    return count, file_of
end

-- Returns a line for every shard that lacks points.
local function by_shard(lines, missing, count, file_of)
    local lacks, indices = {}, {}
    for _, q in ipairs(missing) do
        local index = (q.number - 1) % count + 1
        if not lacks[index] then
            lacks[index] = {}
            indices[#indices + 1] = index
        end
        table.insert(lacks[index], q)
    end
    table.sort(indices)
    for _, index in ipairs(indices) do
        lines[#lines + 1] = ('shard %d/%d (%s) lacks %d: %s'):format(index, count, file_of[index]
            or 'no file of it was given', #lacks[index], labels_of(lacks[index]))
    end
    lines[#lines + 1] = ('run %s again with resume (--shard %d/%d --resume), then merge again'):format(#indices == 1
        and 'it' or 'each', indices[1], count)
end

--- Tells what files of shards lack.
-- @param points of the sweep
-- @param missing list of those without a row
-- @param gathered of merge.gather
-- @param files list of names
-- @return list of lines, empty where nothing is missing
function merge.lacks(points, missing, gathered, files)
    local lines = {}
    for _, path in ipairs(gathered.absent) do lines[#lines + 1] = 'there is no file ' .. path end
    if #missing == 0 then return lines end
    lines[#lines + 1] = ('%d of %d points have no row'):format(#missing, #points)
    local count, file_of = division(files)
    if count then
        by_shard(lines, missing, count, file_of)
    else
        lines[#lines + 1] = labels_of(missing)
    end
    return lines
end

return merge
