--- `who()` at the prompt: lists the tensors, modules and optimizers among its names, with the bytes that each holds.
--
-- A value that was recorded and not computed holds none; parameters hold theirs from the first run on. Bytes that two
-- names share (a model and the parameters of its optimizer) are shown with each; `wane.memory()` counts them once.
-- Nothing runs.
-- @internal wane.repl.who

local binding = require 'wane.ffi'
local bytes = require 'wane.report.bytes'
local iterate = require 'wane.iterate'
local module = require 'wane.module'
local names = require 'wane.repl.names'
local program = require 'wane.program'
local table_ = require 'wane.report.table'
local tensor = require 'wane.tensor'

local C = binding.C

local who = {}

local info = binding.new('struct wn_info')

-- Returns the bytes that a handle holds now, and its kind.
local function held(handle)
    binding.check(C.wn_info(handle, info))
    local is_held = info.held ~= 0
    local kind = info.is_cell ~= 0 and program.kinds[info.cell_kind] or is_held and 'value' or 'recorded'
    return is_held and tonumber(info.bytes) or 0, kind
end

local function of_tensor(t)
    local size, kind = held(t.id)
    return { what = 'tensor ' .. t.dtype, shape = tostring(t.shape), bytes = size, kind = kind }
end

-- Returns the row of a module: the bytes of its parameters and of their gradients.
local function of_module(m)
    local size, elements = 0, 0
    for _, p in ipairs(m:parameters()) do
        size, elements = size + held(p.id), elements + tensor.count(tensor.typed(p)._dims)
        local grad = C.wn_cell_grad(p.id)
        if grad >= 0 then
            size = size + held(grad)
            C.wn_release(grad)
        end
    end
    return { what = 'module ' .. module.type(m), shape = bytes.exact(elements) .. ' elements', bytes = size,
        kind = 'parameter, gradient' }
end

-- Returns the row of an optimizer: the bytes of its states.
local function of_optimizer(o)
    local size = 0
    for _, cells in ipairs(rawget(o, '_cells')) do
        for _, cell in iterate(cells) do size = size + held(tensor.is(cell) and cell.id or cell) end
    end
    return { what = 'optimizer ' .. o._class.name:gsub('^optim%.', ''),
        shape = ('%d parameters'):format(#o._params), bytes = size, kind = 'optimizer' }
end

local function is_optimizer(value)
    return type(value) == 'table' and type(rawget(value, '_cells')) == 'table' and rawget(value, '_class') ~= nil
end

local function row_of(value)
    if tensor.is(value) then return of_tensor(value) end
    if module.is(value) then return of_module(value) end
    if is_optimizer(value) then return of_optimizer(value) end
end

local Rows = {}
Rows.__index = Rows

function Rows.__tostring(rows)
    if #rows == 0 then return 'no tensors, modules or optimizers among the names' end
    local cells = {}
    for i, r in ipairs(rows) do cells[i] = { r.name, r.what, r.shape, bytes.exact(r.bytes), r.kind } end
    return table_.text({ 'name', 'what', 'shape', 'bytes', 'kind' }, cells)
end

--- Lists the names that hold tensors, modules or optimizers.
-- @param env names of the prompt
-- @return printable list of { name =, what =, shape =, bytes =, kind = }, sorted by name
function who.of(env)
    local rows = {}
    for _, name in ipairs(names.of(env)) do
        local row = row_of(rawget(env, name))
        if row then
            row.name = name
            rows[#rows + 1] = row
        end
    end
    return setmetatable(rows, Rows)
end

return who
