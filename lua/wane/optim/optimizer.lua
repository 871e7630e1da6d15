--- Optimizers: the methods of all of them, their state cells, and the block of numbers that a step reads.
--
-- `opt.lr` and the other settings can be read and assigned at any time. All state is made when the optimizer is
-- constructed, as creation nodes: it takes storage at the first step. A parameter counts its own steps, so bias
-- corrections are right for one whose first gradient comes late. Parameters that have counted equally share one block
-- of numbers; the block is read when the program runs, so settings may change at every step. Counts move only after the
-- program ran.
-- @module wane.optim.optimizer

local binding = require 'wane.ffi'
local create = require 'wane.tensor.create'
local errors = require 'wane.errors'
local op = require 'wane.tensor.op'
local tensor = require 'wane.tensor'
local gc = require 'wane.gc'
local scoped = require 'wane.scoped'

local C = binding.C
local raise = errors.raise
local ipairs, pairs, rawget, rawset, setmetatable, tostring, type =
    ipairs, pairs, rawget, rawset, setmetatable, tostring, type

local Optimizer = {}

local STEP_OPTIONS = { 'policy', 'budget', 'scale' }

-- Raises 'value' unless params is a list of parameters, each once.
local function check_params(params, what)
    if type(params) ~= 'table' or tensor.is(params) or params.parameters then -- a module is a table too
        raise(nil, 'value', '%s: expected a list of parameters (model:parameters()), got %s', what,
            errors.describe(params))
    end
    if #params == 0 then
        raise(nil, 'value', '%s: the list of parameters is empty', what)
    end
    local seen = {}
    for k, p in ipairs(params) do
        if not tensor.is(p) or not tensor.typed(p)._cell or not tensor.is_float[p._dtype] then
            raise(nil, 'value', '%s: entry %d must be a parameter, got %s', what, k, errors.describe(p))
        end
        if seen[p.id] then raise(nil, 'value', '%s: entry %d is listed twice', what, k) end
        seen[p.id] = true
    end
end

-- Raises 'value' unless a setting is within the limits of its class.
local function check_setting(class, name, value)
    if name == 'clip_norm' then
        if value ~= false and not (type(value) == 'number' and value > 0) then
            raise(nil, 'value', '%s: clip_norm must be a number above 0, or false, got %s', class.name,
                errors.describe(value))
        end
        return
    end
    local least, below = class.limits[name][1], class.limits[name][2]
    if type(value) == 'boolean' and class.defaults[name] == false then return end
    if type(value) ~= 'number' or value ~= value or value < least or value == 1 / 0 or below and value >= below then
        raise(nil, 'value', '%s: %s must be a finite number from %g%s, got %s', class.name, name, least,
            below and (' to below %g'):format(below) or '', errors.describe(value))
    end
end

-- Makes the state cells of parameter k.
local function make_state(self, class, p, k)
    local cells = {}
    for _, name in ipairs(class.states) do
        local init = create.make(class.name, op.id.full, p._dims,
            { dtype = tensor.dtype_name[p._dtype], device = p.device }, { 0, 0, layout = create.layout(p) })
        cells[name] = create.cell(create.KIND_OPTIMIZER, init, ('%s.%d'):format(name, k))
    end
    self._cells[k] = cells
    self._count[k] = 0
end

-- Returns a state with the value of `cell` that lies as parameter p does: on its device, in its dtype and layout.
local function state_like(p, cell, name)
    local layout = create.layout(p)
    if tensor.typed(cell)._device ~= p._device then
        cell = tensor.wrap(binding.id(C.wn_cell_move(cell.id, p._device, cell._dtype == p._dtype and layout or 0)))
    end
    if tensor.typed(cell)._dtype == p._dtype then return cell end
    return create.cell(create.KIND_OPTIMIZER, create.laid(cell:to(p.dtype):detach(), layout), name)
end

-- Takes the states of each parameter along to where model:to has put it. nn.init gives a parameter another cell too.
local function follow(self)
    for k, p in ipairs(self._params) do
        if self._ids[k] ~= tensor.typed(p).id then
            local cells = {}
            for name, cell in pairs(self._cells[k]) do cells[name] = state_like(p, cell, ('%s.%d'):format(name, k)) end
            self._cells[k], self._ids[k], self._updates[k] = cells, p.id, nil
        end
    end
end

--- Makes the constructor of a class of optimizers.
-- @within Internal
-- @param class { name =, op = of one update, states = names of the state cells, allowed = names of options, defaults =,
-- limits =, options = function(opts) -> opts, prepare = function(settings) -> { op =, states = } (may be nil), fill =
-- function(settings, set, t) that sets the numbers of step t }
function Optimizer.class(class)
    class.defaults.clip_norm = false
    local mt = {}
    local methods = setmetatable({}, { __index = Optimizer })
    mt.__index = function(self, key)
        local settings = rawget(self, '_settings')
        if settings and settings[key] ~= nil then return settings[key] end
        return methods[key]
    end
    mt.__newindex = function(self, key, value)
        if class.defaults[key] == nil then
            raise(nil, 'value', "%s has no setting '%s'; %s", class.name, tostring(key),
                errors.near(key, class.defaults))
        end
        check_setting(class, key, value)
        self._settings[key] = value
        if key == 'clip_norm' then tensor.mode_changed() end -- clipping is recorded, and not read at every step
    end
    mt.__tostring = function(self)
        local parts = {}
        for key, value in pairs(self._settings) do
            if value ~= false then parts[#parts + 1] = key .. ' = ' .. tostring(value) end
        end
        table.sort(parts)
        return class.name .. '(' .. #self._params .. ' parameters, ' .. table.concat(parts, ', ') .. ')'
    end
    mt.__describe = function() return 'an optimizer ' .. class.name end
    return function(params, opts)
        check_params(params, class.name)
        opts = class.options(errors.check_options(opts, class.allowed, class.name))
        local settings = {}
        for key, default in pairs(class.defaults) do
            local value = opts[key]
            if value == nil then value = default end
            check_setting(class, key, value)
            settings[key] = value
        end
        local self = setmetatable({
            _class = class, _params = {}, _settings = settings, _cells = {}, _count = {}, _blocks = {}, _updates = {},
            _versions = {}, _ids = {},
        }, mt)
        local used = class.prepare and class.prepare(settings) or class
        rawset(self, '_kind', used)
        for k, p in ipairs(params) do
            self._params[k], self._ids[k] = p, p.id
            make_state(self, used, p, k)
        end
        return self
    end
end

local filling -- the block whose numbers are being set; LuaJIT does not compile functions that make functions

local function set(i, v)
    binding.check(C.wn_hyper_set(filling, i, v))
end

-- Returns the block of numbers for parameters whose t-th step comes now, filled.
local function block(self, t, blocks)
    local b = blocks[t]
    if b then return b end
    -- Blocks are reused by how many steps a parameter is behind, so a program meets the same blocks at every step.
    local late = self._steps_now - t
    b = self._blocks[late]
    if b == nil then
        local id = binding.id(C.wn_hyper())
        b = { id = id, ref = binding.Ref(id) }
        self._blocks[late] = b
    end
    filling = b.id
    self._class.fill(self._settings, set, t)
    blocks[t] = b
    return b
end

-- Lists the updates of a step, one for each parameter that may take part, and the parameters' numbers in _params; sets
-- the numbers of the step. needs_value: only parameters that have a value.
local function updates(self, needs_value)
    local list, who, blocks = {}, {}, {}
    follow(self)
    local most = 0
    for _, n in ipairs(self._count) do most = math.max(most, n) end
    rawset(self, '_steps_now', most + 1)
    local kind = self._kind
    for k, p in ipairs(self._params) do
        local state, version = C.wn_cell_state(p.id), C.wn_cell_version(p.id)
        if state == 3 or (state == 1 and not needs_value) then
            local update = self._updates[k]
            if update == nil then
                update = { op = kind.op, cells = { p.id } }
                for i, name in ipairs(kind.states) do update.cells[i + 1] = self._cells[k][name].id end
                self._updates[k] = update
            end
            update.hyper = block(self, self._count[k] + 1, blocks).id
            list[#list + 1] = update
            who[#who + 1] = k
            self._versions[k] = version
        end
    end
    return list, who
end

-- Counts the step of the parameters that the program wrote: a parameter that the loss does not reach is not written,
-- and planning writes none.
local function commit(self, who)
    local written = {}
    for _, k in ipairs(who) do
        if C.wn_cell_version(self._params[k].id) ~= self._versions[k] then
            self._count[k] = self._count[k] + 1
            written[#written + 1] = k
        end
    end
    rawset(self, '_last', written)
end

--- Sets the numbers of another step of the same parameters without recording.
-- A compiled step calls it before it runs again, and `advance` after it ran; a step that stops between the two is not
-- counted.
-- @within Internal
function Optimizer:ready()
    local blocks, most = {}, 0
    for _, n in ipairs(self._count) do most = math.max(most, n) end
    rawset(self, '_steps_now', most + 1)
    for _, k in ipairs(rawget(self, '_last') or {}) do block(self, self._count[k] + 1, blocks) end
end

--- Counts the step that `ready` prepared.
-- @within Internal
function Optimizer:advance()
    for _, k in ipairs(rawget(self, '_last') or {}) do self._count[k] = self._count[k] + 1 end
end

local function run(self, request, who)
    request.optimizer = self
    require('wane.program').run(request)
    gc.warn()
    commit(self, who)
end

-- Returns the versions of all gradients as text. It tells gradients that a step clipped before its update failed.
local function gradient_versions(self)
    local versions = {}
    for k, p in ipairs(self._params) do versions[k] = p.grad and C.wn_cell_version(p.grad.id) or 0 end
    return table.concat(versions, ' ')
end

-- Clips the gradients unless they are clipped already.
local function clip(self)
    if rawget(self, '_clipped') == gradient_versions(self) then return end
    require('wane.optim.clip')(self._params, self.clip_norm)
    if not require('wane.program').is_planning() then rawset(self, '_clipped', gradient_versions(self)) end
end

-- Steps with the gradients that the cells hold.
local function update(self, opts)
    if opts.policy ~= nil or opts.budget ~= nil or opts.scale ~= nil then
        raise(nil, 'value', '%s: step() takes no options without a loss; give them to loss:backward', self._class.name)
    end
    local list, who = updates(self, true)
    if self.clip_norm then clip(self) end
    if #list == 0 then
        raise(nil, 'value', '%s: step: no parameter has a gradient; call loss:backward() first, or opt:step(loss)',
            self._class.name)
    end
    run(self, { mode = 'update', roots = {}, updates = list }, who)
    rawset(self, '_clipped', nil)
end

-- Computes all gradients once and drops them under wane.anomaly, so that a value that is not finite is met before a
-- parameter changes.
local function rehearse(request)
    local program = require 'wane.program'
    if C.wn_anomaly(-1) == 0 or program.is_planning() then return end
    local p = program.open {
        mode = 'backward', roots = request.roots, scale = request.scale, policy = request.policy,
        transient = true, again = true,
    }
    local ok, why = pcall(p.go, p)
    p:close()
    if not ok then error(why, 0) end
end

-- Runs forward, backward and update of the losses `roots` as one program.
local function fused(self, roots, opts)
    local grad = require 'wane.program.grad'
    for _, t in ipairs(roots) do grad.check_root(t, 'step') end
    local policy = grad.policy(opts)
    local list, who = updates(self, false)
    if #list == 0 then
        raise(nil, 'value', '%s: step: all parameters are frozen', self._class.name)
    end
    local request = { mode = 'step', roots = roots, updates = list, scale = opts.scale, policy = policy,
        clip = self.clip_norm or nil }
    rehearse(request)
    run(self, request, who)
end

--- Updates the parameters. A run point.
-- opt:step() takes the gradients that loss:backward() left. opt:step(loss) runs forward, backward and update as one
-- program, which needs fewer bytes. opt:step{ l1, l2 } does so for micro-batches, one after the other, whose gradients
-- are added.
-- @param what nil, a loss (a tensor of one element), or a list of losses
-- @param opts {policy =, budget = bytes or text such as '2GiB', scale = factor of the gradients}; only with a loss
-- @return the argument `what`
-- @raise 'value' without a gradient or with all parameters frozen; 'shape' for a loss of more elements
-- @usage
-- loss:backward()
-- opt:step()
-- opt:zero_grad()
-- print(opt:step(nn.cross_entropy(model(x), y), { policy = 'sqrt' }):item() > 0) --> true
function Optimizer:step(what, opts)
    opts = errors.check_options(opts, STEP_OPTIONS, self._class.name .. ': step')
    scoped.sync()
    if what == nil then return update(self, opts) end
    if tensor.is(what) then
        fused(self, { what }, opts)
    elseif type(what) == 'table' and #what > 0 then
        for k, t in ipairs(what) do
            if not tensor.is(t) then
                raise(nil, 'value', '%s: step: loss %d must be a tensor, got %s', self._class.name, k,
                    errors.describe(t))
            end
        end
        fused(self, what, opts)
    else
        raise(nil, 'value', '%s: step: expected a loss or a list of losses, got %s', self._class.name,
            errors.describe(what))
    end
    return what
end

--- Drops the gradients of all its parameters; their bytes are given back at once.
-- @usage
-- loss:backward()
-- opt:zero_grad()
-- print(model[1].weight.grad) --> nil
function Optimizer:zero_grad()
    scoped.sync() -- not the gradients of a suspended planning
    for _, p in ipairs(self._params) do binding.check(C.wn_cell_drop_grad(p.id)) end
end

--- Lists the parameters that it trains.
-- @usage print(#opt:parameters()) --> 4
function Optimizer:parameters()
    local list = {}
    for k, p in ipairs(self._params) do list[k] = p end
    return list
end

--- Returns the state for checkpoints. The tensors are the optimizer's own, not copies.
-- @return { kind = 'optim.AdamW', states = names of the state cells, cells = { ['m.1'] = tensor, ... }, count = { steps
-- of each parameter }, settings = { lr =, ... } }
-- @usage print(opt:state_dict().cells['m.1'].shape, opt:state_dict().settings.lr) --> (16, 8)	0.01
function Optimizer:state_dict()
    follow(self)
    local dict = { kind = self._class.name, states = self._kind.states, cells = {}, count = {}, settings = {} }
    for k, cells in ipairs(self._cells) do
        for name, cell in pairs(cells) do dict.cells[('%s.%d'):format(name, k)] = cell end
        dict.count[k] = self._count[k]
    end
    for key, value in pairs(self._settings) do dict.settings[key] = value end
    return dict
end

--- Raises 'value' for counts and settings that set_progress could not take. Changes nothing.
-- @within Internal
function Optimizer:check_progress(count, settings)
    local class = self._class
    for k = 1, #self._count do
        if type(count[k]) ~= 'number' or count[k] < 0 or count[k] % 1 ~= 0 then
            raise(nil, 'value', '%s: the count of steps of parameter %d is %s', class.name, k,
                errors.describe(count[k]))
        end
    end
    for key, value in pairs(settings) do
        if class.defaults[key] == nil then
            raise(nil, 'value', "%s has no setting '%s'; %s", class.name, tostring(key),
                errors.near(key, class.defaults))
        end
        check_setting(class, key, value)
    end
end

--- Sets the count of steps of each parameter, and settings by name, as a saved run left them.
-- @within Internal
function Optimizer:set_progress(count, settings)
    self:check_progress(count, settings)
    for k = 1, #self._count do self._count[k] = count[k] end
    for key, value in pairs(settings) do self[key] = value end
end

--- Takes a state back. A run point. Everything is checked before anything is changed.
-- @param dict the state_dict of an equal optimizer
-- @raise 'shape' for a state that does not fit; 'value' for counts or settings that do not
-- @usage
-- opt:step(loss)
-- local other = optim.AdamW(model:parameters())
-- other:load_state_dict(opt:state_dict())
-- print(other.lr) --> 0.01
function Optimizer:load_state_dict(dict)
    local roots, targets = {}, {}
    if type(dict) ~= 'table' or type(dict.cells) ~= 'table' or type(dict.count) ~= 'table' then
        raise(nil, 'value', '%s: load_state_dict: expected {cells =, count =, settings =}, got %s', self._class.name,
            errors.describe(dict))
    end
    follow(self)
    for k, cells in ipairs(self._cells) do
        for name, cell in pairs(cells) do
            local key = ('%s.%d'):format(name, k)
            local value = dict.cells[key]
            if not tensor.is(value) or tensor.describe(value) ~= tensor.describe(cell) then
                raise(nil, 'shape', '%s: load_state_dict: %s must be %s, got %s', self._class.name, key,
                    tensor.describe(cell), errors.describe(value))
            end
            roots[#roots + 1], targets[#targets + 1] = value, cell
        end
    end
    self:check_progress(dict.count, dict.settings or {})
    if #roots > 0 then require('wane.program').run { mode = 'assign', roots = roots, cells = targets } end
    self:set_progress(dict.count, dict.settings or {})
end

return Optimizer
