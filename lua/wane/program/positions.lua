--- Follows the positions of one dim of a tensor through a function: the proof behind wane.chunked.
--
-- `positions.follow` walks the nodes that a function recorded on x and finds, for every value, the dim that carries the
-- positions of x's dim, where each position is computed from that position alone. An op without a rule, or one that
-- mixes positions, is refused with its name and its line. `positions.same` then compares the nodes of a piece with
-- that: the same ops over the same numbers and tensors, with fewer positions and no other difference. Both together
-- prove that the pieces' results, one after the other, are the function of x. Nothing runs here.
-- @internal wane.program.positions

local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local op = require 'wane.tensor.op'
local tensor = require 'wane.tensor'

local C, check, raise = binding.C, binding.check, errors.raise
local ipairs, table, tonumber = ipairs, table, tonumber

local positions = {}

-- ---- recorded nodes -------------------------------------------------------------------------------------------

local info = binding.new('struct wn_value_info')

local function node_of(handle)
    check(C.wn_value_info(handle, info))
    local node = { handle = handle, serial = tonumber(info.serial), op = op.rows[info.op].name, n_in = info.n_in,
                   dims = {}, dtype = info.type.dtype, attr_dtype = info.attrs.dtype, number = info.number,
                   n = info.attrs.n, i = {}, f = { info.attrs.f[0], info.attrs.f[1] }, inputs = {}, line = info.line }
    for k = 1, info.type.ndim do node.dims[k] = tonumber(info.type.dim[k - 1]) end
    for k = 1, 8 do node.i[k] = tonumber(info.attrs.i[k - 1]) end
    return node
end

-- Lists the nodes below `result` in the order of recording. Nodes that are older than the value `first` have no inputs.
local function recorded(result, first)
    check(C.wn_value_info(first.id, info))
    local since, list, by_serial, owned = tonumber(info.serial), {}, {}, {}
    local waiting = { node_of(result.id) }
    by_serial[waiting[1].serial] = waiting[1]
    while #waiting > 0 do
        local node = table.remove(waiting)
        list[#list + 1] = node
        for k = 1, node.serial > since and node.n_in or 0 do
            local handle = binding.id(C.wn_value_input(node.handle, k - 1))
            owned[#owned + 1] = handle
            local input = node_of(handle)
            if by_serial[input.serial] == nil then
                by_serial[input.serial] = input
                waiting[#waiting + 1] = input
            end
            node.inputs[k] = by_serial[input.serial]
        end
    end
    for _, handle in ipairs(owned) do C.wn_release(handle) end
    table.sort(list, function(a, b) return a.serial < b.serial end)
    return { list = list, since = since, result = by_serial[node_of(result.id).serial], first = by_serial[since] }
end

-- ---- refusing ---------------------------------------------------------------------------------------------------

local function refuse(node, why, ...)
    local line = binding.text(C.wn_line_text(node.line))
    raise(nil, 'value', 'wane.chunked: %s%s on %s %s', node.op, line ~= '' and ' (' .. line .. ')' or '',
        tensor.shape_text((node.inputs[1] or node).dims), why:format(...))
end

local function mixes(node, at)
    refuse(node, 'works along dim %d, which carries the positions of the pieces, and so mixes them; chunk another dim, '
        .. 'or keep this op outside the function', at.dim)
end

-- ---- rules: the dim of an op's positions --------------------------------------------------------------------------
-- A value has two fields. at = { dim = (from 1), outer =, inner = }: the dim has outer * n * inner elements, and
-- element (o * n + position) * inner + i belongs to that position; nil: the value does not depend on x. fresh: the
-- value is made by a creation inside the function, 'same' in all its elements or 'random', and may follow the shape of
-- a piece.

local function same_at(a, b)
    return a.dim == b.dim and a.outer == b.outer and a.inner == b.inner
end

local function moved(at, dim)
    return { dim = dim, outer = at.outer, inner = at.inner }
end

-- Returns the dim of `input` that broadcasting aligns with dim k of a value of ndim dims, or nil.
local function aligned(input, k, ndim)
    local own = k - (ndim - #input.dims)
    return own >= 1 and own or nil
end

-- Returns the positions on which all inputs agree that broadcast against each other, aligned at the last of ndim dims.
local function broadcast(node, inputs, ndim)
    local at
    for _, input in ipairs(inputs) do
        if input.at then
            local here = moved(input.at, input.at.dim + ndim - #input.dims)
            if at and not same_at(at, here) then
                refuse(node, 'lays the positions of the pieces along dim %d of one input on those along dim %d of '
                    .. 'another, and so mixes them', at.dim, here.dim)
            end
            at = here
        end
    end
    for _, input in ipairs(inputs) do
        local own = not input.at and aligned(input, at.dim, ndim)
        local extent = own and input.dims[own] or 1
        if input.fresh == 'random' and extent == 1 then
            refuse(node, 'reads random numbers that all positions share, and every piece would draw its own; draw '
                .. 'them outside the function')
        elseif not input.fresh and extent ~= 1 then
            refuse(node, 'reads a tensor %s from outside the piece, with values of its own for %d positions; every '
                .. 'piece would meet the same ones. Make it part of x, or keep this op outside the function',
                tensor.shape_text(input.dims), extent)
        end
    end
    return at
end

local function elementwise(node)
    return broadcast(node, node.inputs, #node.dims)
end

-- Returns the positions of the result of an op over rows of x: those of x, along another dim than the last. Inputs 2 to
-- last are values of its rows, which follow x: statistics, labels. Those behind are weights.
local function over_rows(node, last)
    local x = node.inputs[1].at
    for k, input in ipairs(node.inputs) do
        local follows = k > 1 and k <= last
        if input.at and not (k == 1 or follows and x and same_at(x, input.at)) then
            refuse(node, 'has the positions of the pieces in its input %d, which all rows share', k)
        elseif follows and not input.at then
            refuse(node, 'takes its input %d, which has a value for each row, from outside the piece', k)
        end
    end
    if x and x.dim == #node.inputs[1].dims then mixes(node, x) end
    return x
end

local function rows(node) return over_rows(node, 1) end
local function norm(node) return over_rows(node, 3) end

-- Follows logits, labels and statistics, or log-probabilities and labels.
local function loss(node) return over_rows(node, node.i[2] ~= 0 and 3 or 2) end

local function matmul(node)
    local a, b = node.inputs[1], node.inputs[2]
    local ndim = #node.dims
    -- Returns 'batch', 'outer' (a row or column of the result) or 'inner' (contracted).
    local function role(input, transposed)
        if not input.at then return nil end
        local from_end = #input.dims - input.at.dim
        if from_end > 1 then return 'batch' end
        local is_row = (from_end == 1) ~= transposed -- of op(input)
        return is_row == (input == a) and 'outer' or 'inner'
    end
    local ra, rb = role(a, node.i[1] ~= 0), role(b, node.i[2] ~= 0)
    if a == b and ra ~= 'batch' then refuse(node, 'multiplies every position with every other') end
    if ra == 'inner' or rb == 'inner' then mixes(node, (ra == 'inner' and a or b).at) end
    if ra == 'outer' and rb or rb == 'outer' and ra then
        refuse(node, 'multiplies every position with every other; keep it outside the function')
    end
    if ra == 'outer' then return moved(a.at, ndim - 1) end
    if rb == 'outer' then return moved(b.at, ndim) end
    return broadcast(node, node.inputs, ndim)
end

local function reduction(node)
    local x = node.inputs[1]
    local before, keep = 0, node.i[8] ~= 0
    local n = node.op == 'argmax' and 1 or node.n
    if n == 0 then mixes(node, x.at) end
    for k = 1, n do
        local dim = node.i[k] + 1
        if dim == x.at.dim then mixes(node, x.at) end
        if dim < x.at.dim and not keep then before = before + 1 end
    end
    return moved(x.at, x.at.dim - before)
end

-- Returns the positions of the result of an op along dim i[1], counted from 0: those of its first input.
local function along(node)
    local x = node.inputs[1]
    if x.at.dim == node.i[1] + 1 then mixes(node, x.at) end
    return x.at
end

local function cat(node)
    local at
    for _, input in ipairs(node.inputs) do at = at or input.at end
    for k, input in ipairs(node.inputs) do
        if input.at and not same_at(at, input.at) or not input.at and input.fresh ~= 'same' then
            refuse(node, 'joins values of which input %d does not follow the positions of the pieces in the same way',
                k)
        end
    end
    if at.dim == node.i[1] + 1 then mixes(node, at) end
    return at
end

local function permute(node)
    local x = node.inputs[1]
    for k = 1, #x.dims do
        if node.i[k] + 1 == x.at.dim then return moved(x.at, k) end
    end
end

local function expand(node)
    local x = node.inputs[1]
    return moved(x.at, x.at.dim + #node.dims - #x.dims)
end

local function stride(dims, dim)
    local n = 1
    for k = dim + 1, #dims do n = n * dims[k] end
    return n
end

-- Finds the dim that has the positions under another shape: in row-major order a position owns `step` elements out of
-- every n * step, whatever the dims are.
local function reshape(node, count)
    local x = node.inputs[1]
    if #node.inputs > 1 then
        refuse(node, 'has a gradient of wane.custom, which may mix positions; keep it outside the function')
    end
    local step = x.at.inner * stride(x.dims, x.at.dim)
    for k = 1, #node.dims do
        local own = stride(node.dims, k)
        local whole = own * node.dims[k]
        if node.dims[k] > 1 and own > 0 and step % own == 0 and whole % (step * count) == 0 then
            return { dim = k, inner = step / own, outer = whole / (step * count) }
        end
    end
    refuse(node, 'splits the positions of the pieces (dim %d) over several dims of %s; keep that dim whole', x.at.dim,
        tensor.shape_text(node.dims))
end

local function embedding(node)
    local ids = node.inputs[2]
    if node.inputs[1].at then
        refuse(node, 'looks rows up in a table that has the positions of the pieces; any position may be read')
    end
    return ids.at
end

local function gather(node)
    local x, ids, dim = node.inputs[1], node.inputs[2], node.i[1] + 1
    if x.at and x.at.dim == dim then mixes(node, x.at) end
    if not x.at and ids.at.dim == dim then return ids.at end
    if not (x.at and ids.at and same_at(x.at, ids.at)) then
        refuse(node, 'reads by indices that do not follow the positions of the pieces as the values do')
    end
    return x.at
end

local function attention(node)
    local at = node.inputs[1].at
    if at.dim ~= 1 then
        refuse(node, 'reads every time step (dim 2) and every channel (dim 3) for each result; chunk the batch '
            .. '(dim 1); here the pieces lie along dim %d', at.dim)
    end
    return at
end

-- Returns the positions of the result of an op over images: those of the batch. Inputs before number `shared` belong to
-- the images (the index of a pooling, statistics of groups), those from it on are weights, which all images share.
local function of_batch(node, shared)
    local at = node.inputs[1].at
    if at and at.dim ~= 1 then
        refuse(node, 'reads channels (dim 2), rows and columns (dims 3 and 4) of an image together; chunk the batch '
            .. '(dim 1); here the pieces lie along dim %d', at.dim)
    end
    for k = 2, #node.inputs do
        local own = node.inputs[k].at
        if k < shared and not (at and own and same_at(at, own)) then
            refuse(node, 'takes its input %d from outside the piece, or of other images', k)
        elseif k >= shared and own then
            refuse(node, 'has the positions of the pieces in its input %d, which all images share', k)
        end
    end
    return at
end

local function image(node) return of_batch(node, node.op == 'max_pool2d' and 3 or 2) end

local function refuse_mean(node)
    refuse(node, 'averages over all rows, and so mixes the positions of the pieces; return what it takes, and '
        .. 'keep the loss outside the function')
end

-- Returns the positions of the result of a norm over channels. i[1] is its number of groups, each with statistics of
-- one image; with 0 they are those of the whole batch, unless they are given, as running statistics are.
local function channel(node)
    local groups = node.i[1]
    if groups == 0 and node.op ~= 'batch_norm' then refuse_mean(node) end
    return of_batch(node, groups > 0 and 4 or 2)
end

local function first(node)
    return node.inputs[1].at
end

-- Returns the positions of the result of a recurrent cell, whose inputs have the same dims but for the last.
local function cell(node)
    local at = elementwise(node)
    if at and at.dim == #node.dims then mixes(node, at) end
    return at
end

-- The rules that runtime/op.def names in its column `positions`.
local RULES = {
    elementwise = elementwise, matmul = matmul, rows = rows, reduction = reduction, expand = expand,
    reshape = reshape, permute = permute, along = along, cat = cat, embedding = embedding, gather = gather,
    norm = norm, loss = loss, first = first, attention = attention, image = image, channel = channel, cell = cell,
}

-- The rules of creations that may follow the shape of the piece, and the ops after which those of one number still may.
local FRESH = { same = true, random = true }
local STILL_SAME = { expand = true, reshape = true, permute = true, narrow = true }

-- Returns whether a node draws random numbers of its own: a random op that has inputs draws with a probability, its
-- first number. A derivative, which has no rule, draws the numbers of its op again.
local function draws(node)
    local row = op.rows[node.op]
    return row.positions ~= 'none' and row.is_random and node.f[1] > 0
end

-- Returns the field `fresh` of a value that does not depend on x: 'same', 'random' or false.
local function freshness(node)
    local rule = op.rows[node.op].positions
    if FRESH[rule] then return rule end
    local fresh, plain = false, false
    for _, input in ipairs(node.inputs) do
        if input.fresh then fresh = fresh ~= 'random' and input.fresh or fresh
        elseif tensor.count(input.dims) ~= 1 then plain = true end
    end
    if fresh and not plain and rule == 'elementwise' then return fresh end
    if fresh == 'same' and STILL_SAME[node.op] then return fresh end
    if fresh == 'random' or draws(node) then
        refuse(node, 'uses random numbers that are not those of positions, and every piece would draw its own; draw '
            .. 'them outside the function')
    end
    return false
end

local function has_positions(node)
    for _, input in ipairs(node.inputs) do
        if input.at then return true end
    end
    return false
end

local function rule_of(node)
    local name = op.rows[node.op].positions
    if name == 'mixed' then refuse_mean(node) end
    local rule = RULES[name]
    if not rule then
        refuse(node, 'is not known to treat positions independently; keep it outside the function')
    end
    return rule
end

--- Follows the positions of a dim of x through the nodes below `result`.
-- @param x tensor, recorded right before the function was called with it
-- @param dim number of the dim, from 1
-- @param result tensor that the function returned
-- @return trace: { result = node, ... }; result.at is the place of the positions
-- @raise 'value' with the op that mixes positions or has no rule, and its line
function positions.follow(x, dim, result)
    local trace = recorded(result, x)
    trace.count = tensor.typed(x)._dims[dim]
    for _, node in ipairs(trace.list) do
        if node.serial == trace.since then
            node.at = { dim = dim, outer = 1, inner = 1 }
        elseif node.serial > trace.since then
            if has_positions(node) then node.at = rule_of(node)(node, trace.count)
            else node.fresh = freshness(node) end
        end
    end
    local at = trace.result.at
    if not at then
        raise(nil, 'value', 'wane.chunked: what the function returns does not depend on its piece; call it once, '
            .. 'outside')
    elseif at.outer ~= 1 then
        raise(nil, 'value', 'wane.chunked: the function returns %s with the positions of the pieces inside dim %d, '
            .. 'behind others; reshape it so that they come first there, or have a dim of their own',
            tensor.shape_text(trace.result.dims), at.dim)
    end
    return trace
end

-- ---- a piece against the whole ------------------------------------------------------------------------------------

local function differ(node, why, ...)
    refuse(node, 'differs between x and a piece: ' .. why .. '; the function must record the same ops over the same '
        .. 'tensors and numbers whatever the number of positions', ...)
end

local SHAPED = { reshape = true, expand = true, full = true, uniform = true, normal = true, randint = true }

local function same_shape(w, p, n, s)
    if #w.dims ~= #p.dims then return false end
    for k, d in ipairs(w.dims) do
        local e = p.dims[k]
        local scaled = d * s == e * n
        if w.at and w.at.dim == k then
            if not scaled then return false end
        elseif d ~= e and not (w.fresh and scaled) then
            return false
        end
    end
    return true
end

local function same_attrs(w, p)
    if w.attr_dtype ~= p.attr_dtype or w.f[1] ~= p.f[1] or w.f[2] ~= p.f[2] then return false end
    if SHAPED[w.op] then return true end
    for k = 1, 8 do
        if w.i[k] ~= p.i[k] then return false end
    end
    return w.n == p.n
end

local function same_number(a, b)
    return a == b or a ~= a and b ~= b
end

local function compare(w, p, n, s)
    if w.op ~= p.op or w.n_in ~= p.n_in or w.dtype ~= p.dtype then
        differ(p, 'there it was %s', w.op)
    elseif not same_shape(w, p, n, s) then
        differ(p, 'it makes %s of a piece of %d positions and %s of %d', tensor.shape_text(p.dims), s,
            tensor.shape_text(w.dims), n)
    elseif not same_attrs(w, p) then
        differ(p, 'its dims or settings are others')
    elseif w.op == 'const' then
        if #w.dims > 0 or not same_number(w.number, p.number) then
            differ(p, 'the number is %.17g for x and %.17g for a piece', w.number, p.number)
        end
    elseif #w.inputs == 0 and not w.fresh and w.op ~= 'arange' and w.op ~= 'eye' then
        differ(p, 'it reads a tensor that each call makes or takes anew; make it outside the function')
    end
end

--- Raises 'value' unless the recording on a piece is the trace of x with fewer positions.
-- @param trace as positions.follow returns it
-- @param piece tensor that the function was called with
-- @param result tensor that it returned
-- @param size positions of the piece
function positions.same(trace, piece, result, size)
    local other = recorded(result, piece)
    local met, waiting = {}, { { trace.result, other.result } }
    while #waiting > 0 do
        local pair = table.remove(waiting)
        local w, p = pair[1], pair[2]
        local is_piece = w.serial == trace.since
        if is_piece ~= (p.serial == other.since) then
            differ(p, 'one reads its piece where the other reads something else')
        elseif met[w] ~= nil and met[w] ~= p then
            differ(p, 'one value there is two here')
        elseif w.serial == p.serial then
            if w.at or w.fresh then differ(p, 'it is the value of an earlier call') end
        elseif not is_piece and met[w] == nil then
            compare(w, p, trace.count, size)
            for k, input in ipairs(w.inputs) do
                if p.inputs[k] == nil then differ(p, 'it is the value of an earlier call') end
                waiting[#waiting + 1] = { input, p.inputs[k] }
            end
        end
        met[w] = p
    end
end

return positions
