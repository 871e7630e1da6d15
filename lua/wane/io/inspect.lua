--- The list of the tensors of a file, without reading them: names, shapes, dtypes, bytes.
-- @module wane.io.inspect

local bytes = require 'wane.report.bytes'
local source = require 'wane.io.source'
local table_ = require 'wane.report.table'
local tensor = require 'wane.tensor'

local inspect = {}

local SHOWN = 100 -- rows that print; the list has them all

local List = {}
List.__index = List

function List:__tostring()
    local rows, all = {}, 0
    for k, item in ipairs(self) do
        all = all + item.bytes
        if k <= SHOWN then
            rows[k] = { item.name, tensor.shape_text(item.shape), item.kind, bytes.exact(item.bytes) }
        end
    end
    if #self > SHOWN then rows[#rows + 1] = { ('and %d more'):format(#self - SHOWN) } end
    return ('%d tensors, %s\n%s'):format(#self, bytes.text(all),
        table_.text({ 'name', 'shape', 'kind', 'bytes' }, rows))
end

--- Lists the tensors of a safetensors file, of the files of an index, or of those in a folder. It reads headers alone.
-- @function wane.inspect
-- @param path as for wane.load
-- @return list of { name =, shape = list, kind = as the file has it ('F16'), dtype = what it becomes here, or nil,
-- bytes =, file = name }, sorted by names; it prints as a table
-- @raise 'io' as wane.load does
-- @usage
-- wane.save('run.safetensors', model)
-- for _, t in ipairs(wane.inspect 'run.safetensors') do print(t.name, t.kind, t.shape[1], t.bytes) end
-- --> 1.bias	F32	16	64
-- --> 1.weight	F32	16	512
-- --> 3.bias	F32	4	16
-- --> 3.weight	F32	4	256
function inspect.inspect(path)
    return source.read(path, 'wane.inspect', function(src)
        local list = {}
        for k = 1, src.n do
            local entry = src:entry(k)
            list[k] = { name = entry.name, shape = entry.dims, kind = entry.kind,
                dtype = not entry.why and entry.dtype or nil, bytes = entry.bytes, file = entry.file.path }
        end
        table.sort(list, function(a, b) return a.name < b.name end)
        return setmetatable(list, List)
    end)
end

return inspect
