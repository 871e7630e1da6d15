--- nn.LSTM and nn.GRU: recurrent layers, with PyTorch's names, shapes and order of gates.
--
-- The projection of the inputs of all steps is one product; a step is a product with the state before it and a cell,
-- one op, whose backward reads its gates and its state, or what a policy leaves of them. Policies that cut take steps
-- for units. With `chunk = n`, n steps are a unit, which projects its own inputs: a region then leaves nothing but its
-- first state, and a layer of T steps is trained in bytes that grow with T / n + n. (Hochreiter and Schmidhuber, "Long
-- Short-Term Memory", 1997; Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder", 2014.)
-- @module wane.nn.recurrent

local arith = require 'wane.tensor.arith'
local create = require 'wane.tensor.create'
local errors = require 'wane.errors'
local module = require 'wane.module'
local op = require 'wane.tensor.op'
local shape = require 'wane.tensor.shape'
local tensor = require 'wane.tensor'
local uniform = require 'wane.nn.weights'

local cut, linear, to = shape.cut, arith.linear, shape.to
local raise, FULL = errors.raise, op.id.full

local OPTIONS = { 'num_layers', 'bias', 'batch_first', 'dropout', 'bidirectional', 'chunk', 'dtype', 'device' }
local FLAGS = { 'bias', 'batch_first', 'bidirectional' }

-- ---- cells --------------------------------------------------------------------------------------------------

-- Returns h and c after a step of an LSTM. x: (B, 4 H), the projection of the input; y: (B, 4 H), that of h. The gates
-- are input, forget, cell, output.
local function lstm_step(x, y, size, _, c)
    local both = op.binary(op.id.lstm_cell, y + x, c) -- the product first: its kernel adds x
    return cut(both, 1, 0, size), cut(both, 1, size, size)
end

-- Returns h after a step of a GRU. x, y: (B, 3 H). The gates are reset, update, new.
local function gru_step(x, y, _, h)
    return (op.binary(op.id.gru_cell, op.binary(op.id.gru_gates, x, y), h))
end

-- ---- layers -------------------------------------------------------------------------------------------------

local function initialise(self, what, gates, ...)
    local n_in, size, opts = ...
    opts = errors.check_options(opts, OPTIONS, what, FLAGS)
    rawset(self, '_what', what)
    self.input_size, self.hidden_size = op.size(n_in, what .. ': inputs', 1), op.size(size, what .. ': hidden size', 1)
    self.num_layers = op.size(opts.num_layers or 1, what .. ': num_layers', 1)
    self.batch_first, self.bidirectional = opts.batch_first == true, opts.bidirectional == true
    self.chunk = opts.chunk and op.size(opts.chunk, what .. ': chunk', 1)
    self.p = opts.dropout or 0
    if type(self.p) ~= 'number' or not (self.p >= 0 and self.p < 1) or self.p > 0 and self.num_layers == 1 then
        raise(nil, 'value', '%s: dropout must be a number from 0 to below 1, and acts between layers, of which there '
            .. 'are %d; got %s', what, self.num_layers, errors.describe(opts.dropout))
    end
    local add = uniform(self, what, 1 / math.sqrt(size), opts)
    for layer = 0, self.num_layers - 1 do
        local width = layer == 0 and n_in or size * (self.bidirectional and 2 or 1)
        for _, suffix in ipairs(self.bidirectional and { '', '_reverse' } or { '' }) do
            local tail = ('_l%d%s'):format(layer, suffix)
            add('weight_ih' .. tail, { gates * size, width }, true)
            add('weight_hh' .. tail, { gates * size, size }, true)
            if opts.bias ~= false then
                add('bias_ih' .. tail, { gates * size })
                add('bias_hh' .. tail, { gates * size })
            end
        end
    end
end

-- Returns tensors along a dim as one.
local function joined(list, dim)
    return #list == 1 and list[1] or shape.cat(list, dim)
end

-- Runs direction k of all, from 0, by units of steps. x: (T, B, width), or (B, T, width) with batch_first; before: the
-- first states. Returns the results of all steps, of the shape of x but for its last dim, and the last h and c, (B, H).
local function run(self, step, x, tail, before, k)
    local dim, dims, is_back = self.batch_first and 1 or 0, tensor.typed(x)._dims, tail:find 'reverse' ~= nil
    local n, b, size, chunk = dims[dim + 1], dims[2 - dim], self.hidden_size, self.chunk or 1
    local weight_ih, bias_ih = self['weight_ih' .. tail], self['bias_ih' .. tail]
    local weight_hh, bias_hh = self['weight_hh' .. tail], self['bias_hh' .. tail]
    local width, projected, offset = tensor.typed(weight_ih)._dims[1], nil, 1
    local h, c = to(cut(before.h, 0, k, 1), b, size), before.c and to(cut(before.c, 0, k, 1), b, size)
    if not self.chunk then projected = linear(x, weight_ih, bias_ih) end
    local units, unit = {}, {}
    for i = 1, n do
        local t = is_back and n + 1 - i or i
        local u = math.ceil(t / chunk) -- the unit
        local low, high = (u - 1) * chunk + 1, math.min(u * chunk, n)
        if t == (is_back and high or low) then
            module.step(u)
            unit = {}
            if self.chunk then
                projected, offset = linear(cut(x, dim, low - 1, high - low + 1), weight_ih, bias_ih), low
            end
        end
        local input = to(cut(projected, dim, t - offset, 1), b, width)
        h, c = step(input, linear(h, weight_hh, bias_hh), size, h, c)
        unit[t - low + 1] = dim == 1 and to(h, b, 1, size) or to(h, 1, b, size)
        if t == (is_back and low or high) then units[u] = joined(unit, dim + 1) end
    end
    module.step(0)
    return joined(units, dim + 1), h, c
end

-- Returns the state `name` that was given, or zeros: (layers * directions, B, H). line: of the script's call.
local function state_of(self, given, name, x, b, line)
    local n, state = self.num_layers * (self.bidirectional and 2 or 1), given[name]
    if state == nil then
        local at = op.attrs()
        at.n, at.dtype = 3, x._dtype
        at.i[0], at.i[1], at.i[2] = n, b, self.hidden_size
        return create.on(x._device, FULL, at, line)
    end
    local want = ('(%d, %d, %d)'):format(n, b, self.hidden_size)
    if not tensor.is(state) or tensor.shape_text(tensor.typed(state)._dims) ~= want then
        raise(nil, tensor.is(state) and 'shape' or 'value', '%s: %s must be (layers and directions, batch, hidden) = '
            .. '%s, got %s', self._what, name, want, errors.describe(state))
    end
    return state
end

local function check_input(self, x)
    tensor.need_self(x, self._what)
    local dims = tensor.typed(x)._dims
    if #dims ~= 3 or dims[3] ~= self.input_size then
        raise(nil, 'shape', '%s: expected %s, got %s', self._what, (self.batch_first and '(batch, time, %d)'
            or '(time, batch, %d)'):format(self.input_size), tensor.describe(x))
    end
    local n, b = dims[self.batch_first and 2 or 1], dims[self.batch_first and 1 or 2]
    if n == 0 then raise(nil, 'shape', '%s: %s has no steps', self._what, tensor.describe(x)) end
    return b
end

-- Runs all layers. names: those of the states of a cell. Returns the result and the last states.
local function forward(self, step, x, names, given)
    local b, size = check_input(self, x), self.hidden_size
    given = errors.check_options(given, names, self._what .. ': the state')
    local before, last = {}, {}
    local line = op.line(true) -- once, since to find it takes longer than to record
    for _, name in ipairs(names) do before[name], last[name] = state_of(self, given, name, x, b, line), {} end
    local k = 0
    for layer = 0, self.num_layers - 1 do
        if layer > 0 and self.training and self.p > 0 then x = arith.dropout(x, self.p) end
        local sides = {}
        for side, suffix in ipairs(self.bidirectional and { '', '_reverse' } or { '' }) do
            local y, h, c = run(self, step, x, ('_l%d%s'):format(layer, suffix), before, k)
            k = k + 1
            sides[side], last.h[k] = y, to(h, 1, b, size)
            if last.c then last.c[k] = to(c, 1, b, size) end
        end
        x = joined(sides, 3)
    end
    return x, joined(last.h, 1), last.c and joined(last.c, 1)
end

local function extra(self)
    return ('%d, %d%s%s'):format(self.input_size, self.hidden_size,
        self.num_layers > 1 and ', num_layers = ' .. self.num_layers or '',
        self.bidirectional and ', bidirectional = true' or '')
end

local recurrent = {}

-- Adds the class `name` of cells with that many gates and with states of those names.
local function layer(name, gates, step, states)
    local class = module.new(name, function(self, ...) initialise(self, 'nn.' .. name, gates, ...) end)
    function class:forward(x, state) return forward(self, step, x, states, state) end
    class.extra = extra
    recurrent[name] = class
end

--- Makes a long short-term memory. A call lstm(x, {h =, c =}) returns the results of the last layer at all steps, and
-- h and c after the last step.
-- x: (T, B, inputs), or (B, T, inputs) with batch_first; results (T, B, H) or (B, T, H), twice H with bidirectional;
-- h, c: (layers * directions, B, H), zeros at first unless given.
-- @function nn.LSTM
-- @param inputs number of features of x
-- @param hidden number H
-- @param opts {num_layers = 1, bias = true, batch_first = false, dropout = 0: between layers, bidirectional = false,
-- chunk = n: units of n steps, which project their own inputs, dtype =, device =}; its parameters are weight_ih_l0
-- (4 H, inputs), weight_hh_l0 (4 H, H), bias_ih_l0 and bias_hh_l0
-- (4 H) for each layer, with _reverse for the way back
-- @usage
-- local lstm = nn.LSTM(8, 16, { batch_first = true })
-- local y, h, c = lstm(wane.randn(2, 5, 8))
-- print(y.shape, h.shape, c.shape) --> (2, 5, 16)	(1, 2, 16)	(1, 2, 16)
-- y, h = lstm(wane.randn(2, 3, 8), { h = h, c = c })
layer('LSTM', 4, lstm_step, { 'h', 'c' })

--- Makes a gated recurrent unit. A call gru(x, {h =}) returns the results of the last layer at all steps, and h after
-- the last step; shapes and options are those of nn.LSTM, with 3 H for 4 H.
-- @function nn.GRU
-- @param inputs number of features of x
-- @param hidden number H
-- @param opts those of nn.LSTM
-- @usage
-- local gru = nn.GRU(8, 16, { num_layers = 2, bidirectional = true })
-- local y, h = gru(wane.randn(5, 2, 8))
-- print(y.shape, h.shape) --> (5, 2, 32)	(4, 2, 16)
layer('GRU', 3, gru_step, { 'h' })

return recurrent
