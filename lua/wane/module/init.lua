--- Modules: named parts of a model that own parameters and other modules.
--
-- `nn.module(name, init)` makes a class; calling the class makes an instance, and calling the instance records its
-- `forward` inside a scope (path and type), which is all that policies and reports know of it. Children and parameters
-- are found by walking the fields in order of assignment, plain tables of modules included, so nothing is registered by
-- hand. A module that only one program uses has the path that its owner gives it; the outermost module of a program has
-- the path ''.
-- @module wane.module

local binding = require 'wane.ffi'
local create = require 'wane.tensor.create'
local errors = require 'wane.errors'
local methods = require 'wane.module.state'
local misspelt = require 'wane.module.misspelt'
local op = require 'wane.tensor.op'
local tensor = require 'wane.tensor'
local walking = require 'wane.module.walk'
local scoped = require 'wane.scoped'

local C = binding.C
local raise = errors.raise
local epoch = op.epoch
local is, kinds, walk = walking.is, walking.kinds, walking.walk
local getmetatable, ipairs, rawget, rawset, select, setmetatable, tostring, type, unpack, xpcall =
    getmetatable, ipairs, rawget, rawset, select, setmetatable, tostring, type, unpack, xpcall

local module = {}

local Module = methods.Module -- methods of every module
module.Module, module.renew = Module, methods.renew

--- Returns whether x is a module.
-- @param x any value
-- @usage print(nn.is_module(model), nn.is_module(nn.Linear)) --> true	false
function module.is(x)
    return is(x)
end

--- Makes a parameter: a state that is trained.
-- A module holds it in a field, or in a plain table in a field, and lists, saves, moves and freezes it under that path.
-- A plain tensor in a field is a constant, which is none of that; one with requires_grad is refused there.
-- @param init float tensor of its first value, usually a creation op, which then takes no storage until it is read
-- @param name text for reports, until a module that holds it is called: its path there names it then
-- @return tensor that names the parameter
-- @raise 'dtype' for a tensor of integers
-- @usage print(nn.Parameter(wane.zeros(3)).requires_grad) --> true
function module.parameter(init, name)
    if not tensor.is(init) then
        raise(nil, 'value', 'nn.Parameter: expected a tensor, got %s', errors.describe(init))
    end
    if not tensor.is_float[tensor.typed(init)._dtype] then
        raise(nil, 'dtype', 'nn.Parameter: only floats can be trained, got %s', tensor.describe(init))
    end
    local p = create.cell(create.KIND_PARAMETER, init, name or 'parameter')
    binding.check(C.wn_cell_need_grad(p.id, 1))
    kinds[p] = 'parameter'
    return p
end

--- Makes a buffer: a state of a module that is not trained, as the running statistics of a batch norm are. It is saved,
-- loaded and moved with the module.
-- @param init tensor of its first value, usually a creation op, which then takes no storage until it is read
-- @param name text for reports, until a module that holds it is called: its path there names it then
-- @return tensor that names the buffer
-- @usage print(nn.Buffer(wane.zeros(3)).requires_grad) --> false
function module.buffer(init, name)
    if not tensor.is(init) then
        raise(nil, 'value', 'nn.Buffer: expected a tensor, got %s', errors.describe(init))
    end
    local b = create.cell(create.KIND_BUFFER, init, name or 'buffer')
    kinds[b] = 'buffer'
    return b
end

-- ---- scopes ---------------------------------------------------------------------------------------------

local stack, scopes, depth, here = {}, { [0] = 0 }, 0, C.wn_here()
local infos = {} -- scope id -> the table that module.of_scope returns; also has `taker`
local takers = {} -- scope id without a variant -> { module = the last one recorded under that path }
local weak_values = { __mode = 'v' }
local info_class = { __index = function(info, key) return key == 'module' and info.taker.module or nil end }

--- Describes a scope: { path =, type =, parent_scope =, policy =, numbers =, module = }, or nil where there is none.
-- `policy` is the one given to the module, or nil; `numbers` lists the names of its numbered children. Neither ever
-- changes: a module with another policy records under another scope. `module` is the instance last recorded under the
-- path, nil when it was collected.
-- @within Internal
function module.of_scope(id)
    return infos[id]
end

-- Returns the names of the children that end in a number ('blocks.3'). Units are counted by them, and a child that
-- records nothing counts too.
local function numbered_children(m)
    local names = {}
    for _, child in ipairs(module.children(m)) do
        local name = tostring(child.name)
        if name:find '%d$' then names[#names + 1] = name end
    end
    return names
end

local variants, n_variants = { ['0 '] = 0 }, 0

-- Returns a number for the policy and the numbered children of a module, on which decisions about its nodes depend and
-- which its path does not say.
local function variant_of(policy, names)
    local text = ('%d %s'):format(policy and policy.serial or 0, table.concat(names, ' '))
    if not variants[text] then
        n_variants = n_variants + 1
        variants[text] = n_variants
    end
    return variants[text]
end

local function intern(parent, name, m)
    local kind, policy, names = module.type(m), rawget(m, '_policy'), numbered_children(m)
    local variant = variant_of(policy, names)
    local id = binding.id(C.wn_scope(parent, name, kind, variant))
    if infos[id] == nil then
        local above = infos[parent]
        local path = above and above.path ~= '' and (above.path .. '.' .. name) or name
        local plain = variant == 0 and id or binding.id(C.wn_scope(parent, name, kind, 0))
        takers[plain] = takers[plain] or setmetatable({}, weak_values)
        infos[id] = setmetatable({ path = path, type = kind, parent_scope = parent, policy = policy, numbers = names,
            taker = takers[plain] }, info_class)
    end
    return id
end

local inner = {} -- scope id -> the scopes inside it under the same path, by the number of their step or their name

-- Returns a scope inside that of the module which is being recorded, under the same path.
local function inner_scope(name, step)
    local parent, key = scopes[depth], step > 0 and step or name
    local known = inner[parent] or {}
    if known[key] == nil then
        local above = infos[parent]
        local id = binding.id(C.wn_scope(parent, '', name, step))
        infos[id] = setmetatable({ path = above and above.path or '', type = name, parent_scope = parent, numbers = {},
            taker = setmetatable({}, weak_values), is_function = true, step = step > 0 and step }, info_class)
        inner[parent], known[key] = known, id
    end
    return known[key]
end

--- Returns the scope of the nodes of a function that is one function in PyTorch: the path of the module that is being
-- recorded, with the function's name as the type. It is a value of scoped('scope', ...).
-- @within Internal
-- @param name of the function
function module.function_scope(name)
    return inner_scope(name, 0)
end

--- Makes what is recorded next a step of time of the module that is being recorded: a unit of policies that cut, under
-- the module's path and type. The end of the module ends its last step.
-- @within Internal
-- @param step number of the step, from 1; 0: no step
function module.step(step)
    here.scope = step > 0 and inner_scope(module.type(stack[depth]), step) or scopes[depth]
end

-- Returns the path of m under the module that is being recorded, or its type when it is no part of that module.
local function relative_name(owner, m)
    local names = rawget(owner, '_names')
    if names == nil or names[m] == nil then
        names = setmetatable({}, { __mode = 'k' })
        walk(owner, '', function(path, child)
            if names[child] == nil then names[child] = path end
        end, nil, {})
        rawset(owner, '_names', names)
    end
    local name = names[m]
    if name == nil or name == '' then return module.type(m) end
    return name
end

-- Returns whether another module of this type took the path of scope `id` in the program being recorded.
local function taken(id, m)
    local other = infos[id] and infos[id].module
    return other ~= nil and other ~= m and rawget(other, '_epoch') == epoch()
end

-- '<parent scope> <type>' -> { epoch =, n = }: the number of modules of the type that took a path in that program, so
-- that thousands of modules do not each try the paths of all before.
local counts = {}

-- parameter or buffer -> the module that named it by a path
local namers = setmetatable({}, { __mode = 'kv' })

local function depth_of(path)
    return select(2, path:gsub('%.', ''))
end

-- Names the parameters and buffers of m by their paths, which they keep in the field _path. A state of two modules that
-- are called on their own, as a model and its head are, has the longer path, whichever is called last: plans are found
-- by names, too.
local function name_parameters(m)
    walk(m, '', nil, function(path, p)
        local before = rawget(p, '_path')
        if namers[p] ~= nil and namers[p] ~= m and depth_of(path) <= depth_of(before) then return end
        namers[p] = m
        rawset(p, '_path', path)
        C.wn_rename(p.id, path)
    end, {})
end

local function root_scope(m)
    local parent, kind = scopes[depth], module.type(m)
    local key = parent .. ' ' .. kind
    local count = counts[key]
    if count == nil or count.epoch ~= epoch() then
        count = { epoch = epoch(), n = 1 }
        counts[key] = count
    end
    local id = intern(parent, count.n == 1 and '' or kind .. '_' .. count.n, m)
    while taken(id, m) do
        count.n = count.n + 1
        id = intern(parent, kind .. '_' .. count.n, m)
    end
    rawset(m, '_epoch', epoch())
    if not rawget(m, '_named') then
        rawset(m, '_named', true)
        name_parameters(m)
    end
    return id
end

local function scope_of(m)
    local owner, parent, cached = stack[depth], scopes[depth], m._scopes
    local id = cached[parent]
    if owner == nil then
        if id == nil or taken(id, m) then
            id = root_scope(m)
            cached[parent] = id
        end
        rawset(m, '_epoch', epoch())
    elseif id == nil then
        id = intern(parent, relative_name(owner, m), m)
        cached[parent] = id
    end
    infos[id].taker.module = m
    return id
end

local function check_state(m, name)
    local value = m[name]
    if value and kinds[value] == nil then walking.check_place(m, name, value) end
end

local function push(m)
    local states = m._states
    -- The first states are written out, since a loop of a few turns is compiled alone, and nothing around it.
    if states[1] then check_state(m, states[1]) end
    if states[2] then check_state(m, states[2]) end
    if states[3] then check_state(m, states[3]) end
    for k = 4, #states do check_state(m, states[k]) end
    local id, before = scope_of(m), depth
    depth = before + 1
    stack[depth], scopes[depth], here.scope = m, id, id
    return before
end

local function pop(before)
    for k = depth, before + 2, -1 do stack[k] = nil end
    stack[before + 1], depth, here.scope = nil, before, scopes[before]
    return before
end

-- The kind 'module' of scopes: a module is entered; a number is the depth to go back to.
scoped.register('module', function(value)
    if type(value) == 'number' then return pop(value) end
    return push(value)
end)

local handler, again = errors.handler, errors.again

-- Tells errors whose forward runs. A module in which a coroutine was left is gone from the stack first.
errors.set_current(function()
    scoped.sync()
    local info = infos[scopes[depth]]
    if info then return info.path, info.type end
end)

local running, watch = coroutine.running, scoped.watch

-- Ends a forward. A module in which a coroutine was left is gone from the stack when the module around it ends.
-- Returns the number of results and the one, or their list: a tail call would be one of 15 (op.lua).
local function leave(m, before, ok, ...)
    if watch.on then scoped.sync() end
    if depth > before and stack[before + 1] == m then pop(before) end
    if not ok then again((...)) end
    local n = select('#', ...)
    if n == 1 then return n, (...) end
    return n, { ... }
end

-- Stands for the forward that a class lacks.
local function refuse(m)
    raise(nil, 'value', '%s: the module has no forward; write function %s:forward(x) ... end', module.type(m),
        module.type(m))
end

-- Raises 'value' where nil is all that a script calls a module with.
local function refuse_nil(m, n)
    if n ~= 1 then return end
    raise(nil, 'value', '%s got nil, expected a tensor; is the name of the argument misspelt?', module.type(m))
end

-- Calls a module, as scoped('module', m, m.forward, m, ...) would; written out because every layer of every step comes
-- through here.
local function call(m, ...)
    local forward = m.forward
    if forward == nil then forward = refuse end
    if depth == 0 and (...) == nil then refuse_nil(m, select('#', ...)) end
    -- The outermost module asks which coroutine runs, for all modules in it; a coroutine that is started in a
    -- forward, and yields in a module there, can mislead names until that forward ends, and nothing else.
    -- Measured: asking takes 0.4 us.
    if watch.on or depth == 0 and running() ~= nil then return scoped('module', m, forward, m, ...) end
    local n, result = leave(m, push(m), xpcall(errors.inside, handler, forward, m, ...))
    if n == 1 then return result end
    return unpack(result, 1, n)
end

-- ---- classes --------------------------------------------------------------------------------------------

module.type, module.children, module.walk, module.kinds = walking.type, walking.children, walk, kinds

local LETTERS = 400 -- of a type or of a field; a scope (runtime/graph/scope.c) has room for 480, with numbers behind

local function check_length(name, what)
    if type(name) ~= 'string' or #name <= LETTERS then return end
    raise(nil, 'value', '%s of %d letters (%s...); a name has at most %d', what, #name, name:sub(1, 20), LETTERS)
end

local function new_field(m, key, value)
    check_length(key, module.type(m) .. ': a field')
    if rawget(Module, key) ~= nil then
        raise(nil, 'value', "%s.%s = ...: '%s' is a method of every module; choose another name", module.type(m),
            tostring(key), tostring(key))
    end
    walking.check_constant(m, key, value)
    rawset(m, key, value)
    if value == nil then return end
    -- Every field has a place, whatever it holds first: a later assignment does not come through here.
    local known = rawget(m, '_known')
    if not known[key] then
        known[key] = true
        local order = rawget(m, '_order')
        order[#order + 1] = key
    end
    if type(value) == 'table' and (is(value) or kinds[value] or getmetatable(value) == nil) then
        rawset(m, '_names', nil)
        rawset(m, '_named', nil)
        rawset(m, '_scopes', {})
    end
end

--- Makes a class of modules: `local Block = nn.module('Block', init)`. Calling the class makes an instance; the script
-- defines Block:forward(...).
-- @param name type name, which policy.by_type matches
-- @param init function(self, ...) that fills a new instance with the arguments of the class's call; may be nil
-- @return the class
-- @usage
-- local Scale = nn.module('Scale', function(self, d) self.weight = nn.Parameter(wane.ones(d)) end)
-- function Scale:forward(h) return h * self.weight end
-- print(Scale(8)(x).shape) --> (2, 8)
function module.new(name, init)
    if type(name) ~= 'string' or name == '' then
        raise(nil, 'value', 'nn.module: expected a type name, got %s', errors.describe(name))
    end
    check_length(name, 'nn.module: a type name')
    if init ~= nil and type(init) ~= 'function' then
        raise(nil, 'value', 'nn.module: expected function(self, ...), got %s', errors.describe(init))
    end
    local class = {}
    local mt = {
        __module = true, __name = name, __index = class, __newindex = new_field, __call = call,
        __tostring = function(m) return module.text(m) end,
        __describe = function() return 'a module ' .. name end,
    }
    return setmetatable(class, {
        __index = Module, __name = name,
        __call = function(_, ...)
            local m = setmetatable({ training = true, _order = {}, _known = {}, _scopes = {}, _states = {} }, mt)
            if init then init(m, ...) end
            return m
        end,
        __tostring = function() return 'nn.module ' .. name end,
        __describe = function() return 'the class ' .. name end,
    })
end

--- Returns the text of a module as a tree, one line for each child.
-- @within Internal
function module.text(m)
    local head = module.type(m) .. '(' .. (m.extra and m:extra() or '') .. ')'
    local children = module.children(m)
    if #children == 0 then return head end
    local lines = { module.type(m) .. '(' }
    for _, child in ipairs(children) do
        local text = module.text(child.module):gsub('\n', '\n  ')
        lines[#lines + 1] = '  ' .. child.name .. ': ' .. text
    end
    lines[#lines + 1] = ')'
    return table.concat(lines, '\n')
end

errors.strict(Module, 'm:%s(...)', is)

-- Methods of other libraries -> what to write.
local ELSEWHERE = {
    cuda = "m:to 'cuda'", cpu = "m:to 'cpu'", float = "m:to 'f32'", double = "m:to 'f64'", bfloat16 = "m:to 'bf16'",
    half = "m:to 'bf16'", zeroGradParameters = 'm:zero_grad()', getParameters = 'm:parameters()',
    parameter = 'm:parameters()', evaluate = 'm:eval()', training_mode = 'm:train()', num_parameters =
    'm:parameter_count()', register_buffer = 'm.name = nn.Buffer(t)', register_parameter = 'm.name = nn.Parameter(t)',
    add_module = 'm.name = layer', requires_grad_ = 'm:requires_grad(true)', compile = 'm(x): steps are planned once',
    named_children = 'm:children()', clone = 'a second instance and other:load_state_dict(m:state_dict())',
}

setmetatable(Module, { __index = misspelt.index(Module, function(m)
    return is(m) and module.type(m) or 'a module'
end, 2, ELSEWHERE) })

return module
