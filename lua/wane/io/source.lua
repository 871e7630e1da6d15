--- Safetensors files as one source of tensors: a single file, or all files that an index lists.
--
-- Large models are published in several files with an index beside them, model.safetensors.index.json, whose weight_map
-- says for each tensor in which file it is. The files of an index are opened together, and a tensor is found by its
-- name alone. A folder stands for the model.safetensors in it, or for the index.
-- @internal wane.io.source

local errors = require 'wane.errors'
local file = require 'wane.io.file'
local header = require 'wane.io.header'
local json = require 'wane.report.json'
local system = require 'wane.system'

local fail = file.fail

local source = {}

local LARGEST_INDEX = 64e6 -- bytes
local MOST_FILES = 500
local WHOLE, INDEX = 'model.safetensors', 'model.safetensors.index.json'

local Source = {}
Source.__index = Source

-- Adds the tensors of a file to a source.
local function add(s, head, f)
    s.heads[#s.heads + 1], s.size = head, s.size + f.size
    for _, name in ipairs(head.names) do
        s.n = s.n + 1
        s.names[s.n], s.owners[s.n] = name, head
    end
end

--- Describes tensor k, from 1, as wane.io.header does, with file = the open file that has it. Its name is
-- source.names[k].
function Source:entry(k)
    return self.owners[k]:find(self.names[k])
end

--- Returns the tensor of a name in the form of source:entry, or nil.
function Source:find(name)
    for _, head in ipairs(self.heads) do
        local entry = head:find(name)
        if entry then return entry end
    end
end

-- Reads an index. Returns the table name -> file name, and the list of file names, sorted.
local function read_index(path, what)
    local text, f = file.read(path, what, function(f)
        if f.size > LARGEST_INDEX then
            fail(f, 'it has %.0f bytes; an index has at most %.0f', f.size, LARGEST_INDEX)
        end
        return f:read(0, f.size), f
    end)
    local value, why, at = json.decode(text)
    if value == nil then fail(f, 'at byte %.0f the index is no JSON: %s', at - 1, why) end
    local map = type(value) == 'table' and value.weight_map
    if type(map) ~= 'table' or next(map) == nil then
        fail(f, 'it has no weight_map, which says in which file each tensor is')
    end
    local names, seen = {}, {}
    for name, shard in errors.iterate(map) do
        if type(name) ~= 'string' or type(shard) ~= 'string' or shard == '' or shard == '..' or shard:find '[/%z]' then
            fail(f, "weight_map: '%s' is in %s; a file in the folder of the index expected",
                tostring(name):sub(1, 80), errors.describe(shard):sub(1, 80))
        end
        if not seen[shard] then names[#names + 1], seen[shard] = shard, true end
    end
    if #names > MOST_FILES then fail(f, 'it lists %d files; at most %d are read', #names, MOST_FILES) end
    table.sort(names)
    return map, names
end

-- Raises 'io' unless every tensor of the index is in its file, and no tensor is in two.
local function check_map(s, map, head_of)
    for name, shard in errors.iterate(map) do
        if not head_of[shard]:find(name) then
            fail(s, "weight_map: '%s' is not in '%s'", name:sub(1, 200), head_of[shard].file.path)
        end
    end
    local owner = {}
    for k, name in ipairs(s.names) do
        local head = s.owners[k]
        if owner[name] then
            fail(s, "'%s' is in '%s' and in '%s'", name:sub(1, 200), owner[name].file.path, head.file.path)
        end
        owner[name] = head
    end
end

-- Opens the files from number i on, then calls fn(source, {}).
local function read_shards(s, index, i, fn)
    local name = index.names[i]
    if name == nil then
        check_map(s, index.map, index.heads)
        return fn(s, {})
    end
    return file.read(index.folder .. name, index.what, function(f)
        local head = header.read(f)
        index.heads[name] = head
        add(s, head, f)
        return read_shards(s, index, i + 1, fn)
    end)
end

--- Returns the file that a path stands for: the whole model or the index in a folder, or the path itself.
function source.resolve(path)
    if type(path) ~= 'string' then return path end
    for _, name in ipairs { WHOLE, INDEX } do
        local inside = path:gsub('/*$', '') .. '/' .. name
        if system.exists(inside) then return inside end
    end
    return path
end

--- Opens a safetensors file, the files of an index (a path that ends in .json), or those of a folder, and calls
-- fn(source, strings of the metadata).
-- @return the results of fn
-- @raise 'io' for what is no whole safetensors file or no index, and for tensors that are not where the index says
function source.read(path, what, fn)
    path = source.resolve(path)
    local s = setmetatable({ path = path, heads = {}, names = {}, owners = {}, n = 0, size = 0 }, Source)
    if type(path) == 'string' and path:find '%.json$' then
        local map, names = read_index(path, what)
        local folder = path:match '^(.*/)' or ''
        return read_shards(s, { map = map, names = names, folder = folder, what = what, heads = {} }, 1, fn)
    end
    return file.read(path, what, function(f)
        local head, strings = header.read(f)
        add(s, head, f)
        return fn(s, strings)
    end)
end

return source
