--- Batches of a data set, for loops over epochs.
--
-- C gathers a batch into bytes that the iterator owns and uses in turn (`buffers`, 2 unless given), so memory is
-- steady from the first epoch on. A batch is lent: once its bytes are drawn over, every use of it is refused as stale,
-- by name, and nothing is computed on other numbers. `retain` keeps the bytes, and the iterator takes others. The order
-- follows from (seed, epoch), so a place in it is two numbers; `state()` returns them as a string, which fits a
-- checkpoint's meta.
-- @module wane.data.batches

local binding = require 'wane.ffi'
local create = require 'wane.tensor.create'
local errors = require 'wane.errors'
local op = require 'wane.tensor.op'
local shuffled = require 'wane.data.order'
local read = require 'wane.tensor.read'
local scoped = require 'wane.scoped'
local tensor = require 'wane.tensor'

local C, raise = binding.C, errors.raise
local WHAT = 'wane.data.batches'

-- An iterator. Fields: count (batches of an epoch), epoch (from 1), at (batches that were drawn of this epoch), batch
-- (examples of a batch), seed.
local Batches = {}

Batches.__index = function(_, name)
    local value = Batches[name]
    if value ~= nil then return value end
    raise(nil, 'value', "batches have no '%s'; %s", tostring(name),
        errors.near(name, { 'count', 'epoch', 'at', 'batch', 'seed', 'state', 'next', 'parts' }))
end

function Batches.__tostring(self)
    return ('batches of %d, %d an epoch; epoch %d, %d drawn of it'):format(self.batch, self.count, self.epoch, self.at)
end

-- ---- examples -----------------------------------------------------------------------------------------------------
-- Returns the examples of a list of tensors with equal first dims, in the form of Tokens:examples.
local function examples_of(list)
    local n, pieces = nil, {}
    for k, t in ipairs(list) do
        if not tensor.is(t) or #tensor.typed(t)._dims == 0 then
            raise(nil, 'value', '%s: entry %d must be a tensor of one dim or more, got %s', WHAT, k, errors.describe(t))
        end
        n = n or t._dims[1]
        if t._dims[1] ~= n then
            raise(nil, 'shape', '%s: entry %d is %s; its first dim must be %d, as that of entry 1', WHAT, k,
                tensor.describe(t), n)
        end
        local dims, length = {}, 1
        for i = 2, #t._dims do dims[i - 1], length = t._dims[i], length * t._dims[i] end
        pieces[k] = { value = read.run(t), length = length, stride = length, first = 0, dims = dims, dtype = t.dtype }
    end
    return { n = n, pieces = pieces }
end

-- Returns the examples of a data set, in the form of Tokens:examples.
local function source_of(dataset, opts)
    local is_tokens = type(dataset) == 'table' and getmetatable(dataset) ~= nil and not tensor.is(dataset)
    if is_tokens and type(dataset.examples) == 'function' then
        op.size(opts.length, WHAT .. ': length', 1)
        return dataset:examples(opts.length, WHAT)
    end
    if opts.length ~= nil then
        raise(nil, 'value', '%s: length = %s is for tokens; examples have the length they have', WHAT,
            errors.describe(opts.length))
    end
    if tensor.is(dataset) then dataset = { dataset } end
    errors.list(not is_tokens and dataset, WHAT, 'tensors, tokens or a tensor', 1)
    return examples_of(dataset)
end

-- Returns the name of the device of the batches; raises for one that holds no bytes.
local function device_of(name)
    local device = op.device(name, WHAT .. ': device')
    if name == 'meta' then
        raise(nil, 'device', "%s: device = 'meta' has shapes and no bytes; expected a device that holds batches", WHAT)
    end
    return binding.string(C.wn_device_name(device))
end

-- ---- the place of an iterator -------------------------------------------------------------------------------------
local FORM = 'seed=%.0f epoch=%d at=%d examples=%.0f batch=%d shuffle=%s'

--- Returns the place of the iterator as a string, for {state =} of an iterator of the same data and options.
-- @usage
-- local batches = data.batches(wane.arange(10), { batch = 4, seed = 1 })
-- batches:next()
-- print(batches:state()) --> seed=1 epoch=1 at=1 examples=10 batch=4 shuffle=false
function Batches:state()
    return FORM:format(self.seed, self.epoch, self.at, self._source.n, self.batch, tostring(self._is_shuffled))
end

local function set_state(self, state, seed)
    local pattern = '^seed=(%d+) epoch=(%d+) at=(%d+) examples=(%d+) batch=(%d+) shuffle=(%a+)$'
    local s, epoch, at, n, batch, shuffle
    if type(state) == 'string' then s, epoch, at, n, batch, shuffle = state:match(pattern) end
    if not s then
        raise(nil, 'value', '%s: state = %s; expected what batches:state() returned', WHAT, errors.describe(state))
    end
    for _, row in ipairs {
        { 'examples', tonumber(n), self._source.n }, { 'batch', tonumber(batch), self.batch },
        { 'shuffle', shuffle, tostring(self._is_shuffled) }, { 'seed', tonumber(s), seed or tonumber(s) },
    } do
        if row[2] ~= row[3] then
            raise(nil, 'value', '%s: the state was saved with %s = %s, here it is %s', WHAT, row[1], tostring(row[2]),
                tostring(row[3]))
        end
    end
    if tonumber(at) > self.count or tonumber(epoch) < 1 or tonumber(epoch) >= 2 ^ 53 or tonumber(s) >= 2 ^ 53 then
        raise(nil, 'value', "%s: '%s' is no place in %d batches", WHAT, state, self.count)
    end
    self.seed, self.epoch, self.at = tonumber(s), tonumber(epoch), tonumber(at)
end

-- ---- drawing ------------------------------------------------------------------------------------------------------
-- Returns the ring of batches of n examples, and the place of the one to draw over: the oldest.
local function ring_of(self, n)
    local ring = self._rings[n]
    if ring == nil then
        ring = { turn = 0 }
        self._rings[n] = ring
    end
    local turn = ring.turn % self._buffers + 1
    ring[turn] = ring[turn] or {}
    return ring, turn
end

-- Returns data without numbers for a batch of n examples.
local function room(self, piece, n)
    local device = self._device or piece.value.device
    return create.data({ n, unpack(piece.dims) }, piece.dtype, op.device(device, WHAT))
end

-- Returns the tensors of batch `at`, from 0, of an epoch.
local function draw_at(self, epoch, at)
    local source, from = self._source, at * self.batch
    local n = math.min(self.batch, source.n - from)
    if self._is_shuffled and self._epoch_of_order ~= epoch then
        self._order = shuffled(source.n, self.seed, epoch, self._order)
        self._epoch_of_order = epoch
    end
    local ring, turn = ring_of(self, n)
    local set, starts, list = ring[turn], self._starts, self._order
    for k, piece in ipairs(source.pieces) do
        for i = 0, n - 1 do
            local example = list and list[from + i] or from + i
            starts[i] = piece.first + example * piece.stride
        end
        set[k] = set[k] or room(self, piece, n)
        set[k] = tensor.wrap(binding.id(C.wn_gather(set[k].id, piece.value.id, starts, n, piece.length)))
        set[k]:named(self._name)
    end
    ring.turn = turn
    return unpack(set)
end

-- Returns the tensors of the next batch, or nil at the end of an epoch.
local function draw(self)
    local ranks = scoped.micro()
    if ranks then
        raise(nil, 'value', '%s: a batch is drawn inside of the function of a step on %d ranks, each of which calls it '
            .. 'for micro-batches of its own; take part = batches:parts(n) before the step, and part(i) inside', WHAT,
            ranks)
    end
    if self.at >= self.count then
        self.epoch, self.at = self.epoch + 1, 0
        return nil
    end
    self.at = self.at + 1
    return draw_at(self, self.epoch, self.at - 1)
end

Batches.__call = draw

--- Returns the next batch; after the last one of an epoch, the first one of the next. Never returns nil.
-- @usage
-- local batches = data.batches(wane.arange(10), { batch = 4, shuffle = true })
-- for step = 1, 5 do
--     local numbers = batches:next()
--     assert(numbers.shape[1] == 4)
-- end
-- print(batches.epoch) --> 3
function Batches:next()
    if self.at >= self.count then draw(self) end
    return draw(self)
end

--- Takes the next n batches and returns part(i), which draws the i-th of them when it is asked: for the micro-batches
-- of a step, of which a rank draws its own alone. The iterator stands behind all n, whichever are drawn. Past the end
-- of an epoch the parts go on with the next one.
-- @param n their number; {buffers =} of the iterator is at least `partial` of the step
-- @return function(i), i from 1 to n, that returns what next() would
-- @usage
-- local batches = data.batches(wane.arange(10), { batch = 2 })
-- local part = batches:parts(3)
-- print(part(3), batches.at) --> tensor (2) f32 [4., 5.]	3
function Batches:parts(n)
    errors.count(n, 'batches:parts', 1, 65536)
    local first = (self.epoch - 1) * self.count + self.at
    local function place(k) return math.floor((first + k) / self.count) + 1, (first + k) % self.count end
    self.epoch, self.at = place(n)
    C.wn_here().batches = self.seed % 2 ^ 20 * 2 ^ 32 + first % 2 ^ 32
    return function(i) return draw_at(self, place(errors.count(i, 'part', 1, n) - 1)) end
end

local OPTIONS = { 'batch', 'length', 'shuffle', 'seed', 'drop_last', 'state', 'buffers', 'device' }

--- Makes an iterator over batches; one `for` loop is one epoch, or the rest of one.
-- @function data.batches
-- @param dataset a tensor, a list of tensors with equal first dims, or tokens
-- @param opts {batch = examples of a batch, length = tokens of a window (tokens only), shuffle = false: another order
-- in each epoch, seed = of the order (wane.manual_seed's unless given), drop_last = true: no smaller batch at the end,
-- state = from batches:state(), buffers = 2: batches whose tensors exist at a time, device = of the batches: that of
-- the data set unless given, so that a data set on the CPU feeds a model on a GPU}
-- @return an iterator that returns a tensor (batch, ...) for each tensor of the data set; for tokens x and y (batch,
-- length) i32, where y is one token later. They can be used until `buffers` more were drawn; `x:retain()` keeps x.
-- @raise 'value' when there is no whole batch, or the state is another data set's; 'device' for a device that is not
-- here
-- @usage
-- local inputs, labels = wane.randn(10, 8), wane.randint(4, { 10 })
-- for a, b in data.batches({ inputs, labels }, { batch = 5, shuffle = true }) do
--     opt:step(nn.cross_entropy(model(a), b))
-- end
return function(dataset, opts)
    opts = errors.check_options(opts, OPTIONS, WHAT)
    op.size(opts.batch, WHAT .. ': batch', 1)
    if opts.seed ~= nil then op.size(opts.seed, WHAT .. ': seed') end
    errors.count(opts.buffers or 2, WHAT .. ': buffers', 1, 1024)
    local device = opts.device ~= nil and device_of(opts.device)
    local source, batch = source_of(dataset, opts), opts.batch
    local count = (opts.drop_last == false and math.ceil or math.floor)(source.n / batch)
    if count < 1 then
        raise(nil, 'value', '%s: %.0f examples do not make one batch of %d; give {drop_last = false} or a smaller '
            .. 'batch', WHAT, source.n, batch)
    end
    local self = setmetatable({
        batch = batch, count = count, epoch = 1, at = 0, seed = opts.seed or tonumber(C.wn_here().seed % 2 ^ 53),
        _source = source, _is_shuffled = opts.shuffle and true or false, _buffers = opts.buffers or 2, _rings = {},
        _device = device, _starts = binding.list('int64_t', math.min(batch, source.n)), _order = false,
        _epoch_of_order = false, _name = ('a batch of wane.data.batches (buffers = %d)'):format(opts.buffers or 2),
    }, Batches)
    if opts.state ~= nil then set_state(self, opts.state, opts.seed) end
    return self
end
