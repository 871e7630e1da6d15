--- Images in another size, and zeros around any tensor.
--
-- Sizes are numbers for both directions, or {rows, columns}, as in tensor/image.lua. Every function raises 'shape' or
-- 'value' at the line of the call when sizes do not fit.
-- @module wane.tensor.resize

local errors = require 'wane.errors'
local image = require 'wane.tensor.image'
local op = require 'wane.tensor.op'
local tensor = require 'wane.tensor'

local is_plain_table, is_size, MOST = image.is_plain_table, image.is_size, image.MOST
local methods, typed = tensor.methods, tensor.typed
local unary, id, raise = op.unary, op.id, errors.raise
local UPSAMPLE2D, NARROW_GRAD = id.upsample2d, id.narrow_grad
local math, type = math, type

local resize = {}

local MODES = { nearest = 0, bilinear = 1 }

-- Returns two numbers above 0 of v, a number or {rows, columns}.
local function scales(v, what)
    local rows, columns = v, v
    if is_plain_table(v) then rows, columns = v[1], v[2] end
    local function is_scale(s) return type(s) == 'number' and s > 0 and s <= MOST end
    local fits = not is_plain_table(v) or errors.list(v, what .. ': scale', 'two numbers') == 2
    if not fits or not is_scale(rows) or not is_scale(columns) then
        raise(nil, 'value', '%s: scale must be a number above 0, or two of them, {rows, columns}, got %s', what,
            errors.describe(v))
    end
    return { rows, columns }
end

--- Returns what an upsampling does: { size = (pair) or scale = { rows, columns }, mode =, align = }.
-- @within Internal
-- @param what opens messages
-- @param opts {size =, scale =, mode =, align_corners =}
function resize.how(what, opts)
    opts = errors.check_options(opts, { 'size', 'scale', 'mode', 'align_corners' }, what, { 'align_corners' })
    local mode = MODES[opts.mode or 'nearest']
    if not mode then
        raise(nil, 'value', "%s: mode must be 'nearest' or 'bilinear', got %s", what, errors.describe(opts.mode))
    elseif (opts.size == nil) == (opts.scale == nil) then
        raise(nil, 'value', '%s: expected a size or a scale, got %s; write { scale = 2 }', what,
            opts.size == nil and 'neither' or 'both')
    elseif opts.align_corners ~= nil and mode == 0 then
        raise(nil, 'value', "%s: align_corners belongs to mode 'bilinear'; leave it out with 'nearest'", what)
    end
    local how = { mode = mode, align = opts.align_corners or false }
    if opts.scale ~= nil then how.scale = scales(opts.scale, what) end
    if opts.size ~= nil then how.size = image.pair(opts.size, what .. ': size', 1) end
    return how
end

--- Returns the text of a layer that resizes: "scale = 2, mode = 'nearest'".
--
-- @within Internal
function resize.text(how)
    local scale, size = how.scale, how.size and 'size = ' .. image.text(how.size)
    if scale then
        size = (scale[1] == scale[2] and 'scale = %g' or 'scale = {%g, %g}'):format(scale[1], scale[2])
    end
    return ("%s, mode = '%s'%s"):format(size, how.mode == 0 and 'nearest' or 'bilinear',
        how.align and ', align_corners = true' or '')
end

--- Records upsample2d, as resize.how says.
--
-- @within Internal
function resize.upsample(x, how)
    local dims, scale, size = typed(x)._dims, how.scale, how.size
    if scale then
        size = 0
        for k = 1, 2 do
            local n = math.floor((dims[2 + k] or 1) * scale[k])
            if not is_size(n, 1) then
                raise(nil, 'shape', 'upsample: scale %g makes an image of %.0f %s of %s; expected 1 to %d', scale[k], n,
                    k == 1 and 'rows' or 'columns', tensor.describe(x), MOST)
            end
            size = size * 2 ^ 32 + n
        end
    end
    local at = op.attrs(size, how.mode, how.align and 1 or 0, 0)
    if scale then at.f[0], at.f[1] = 1 / scale[1], 1 / scale[2] end
    return (unary(UPSAMPLE2D, x, at))
end

--- Returns an image with another number of rows and columns.
-- @param x float tensor (N, C, H, W)
-- @param opts {size = the new one, or scale = new size for one of the old, mode = 'nearest', align_corners = false};
-- mode = 'bilinear' interpolates between the four nearest elements; align_corners = true: corners stay (bilinear)
-- @return tensor (N, C, oh, ow)
-- @usage
-- local small = wane.tensor { { { { 1, 2 } } } }
-- print(small:upsample { scale = 2 }:totable()[1][1][2][3]) --> 2
-- print(small:upsample { size = { 1, 3 }, mode = 'bilinear', align_corners = true }:totable()[1][1][1][2]) --> 1.5
function methods.upsample(x, opts)
    tensor.need_self(x, 'upsample')
    return resize.upsample(x, resize.how('upsample', opts))
end

-- Returns t with `before` zeros before and `behind` zeros behind the positions of dim d, from 0.
local function pad_dim(t, d, before, behind)
    return (unary(NARROW_GRAD, t, op.attrs(d, before, typed(t)._dims[d + 1] + before + behind)))
end

local function pad_dims(t, amounts)
    for k = 1, #amounts, 2 do
        if amounts[k] + amounts[k + 1] > 0 then
            t = pad_dim(t, #typed(t)._dims - (k + 1) / 2, amounts[k], amounts[k + 1])
        end
    end
    return t
end

--- Returns a tensor with zeros around it.
-- @param t tensor
-- @param amounts numbers of zeros before and behind the positions of each dim, from the last dim on: {left, right}, or
-- {left, right, top, bottom}, or more
-- @param value 0 unless given; no other value is in this version
-- @return tensor
-- @usage
-- print(wane.ones(1, 1, 2, 3):pad({ 1, 1, 2, 0 }).shape) --> (1, 1, 4, 5)
-- print(wane.ones(2):pad { 0, 1 }) --> tensor (3) f32 [1., 1., 0.]
function methods.pad(t, amounts, value)
    tensor.need_self(t, 'pad')
    local n = is_plain_table(amounts) and errors.list(amounts, 'pad', 'amounts') or 1
    if n % 2 ~= 0 or n > 2 * #typed(t)._dims then
        raise(nil, 'value', 'pad: expected a list of two numbers a dim, {left, right, top, bottom}, for at most the %d '
            .. 'dims of %s, got %s', #t._dims, tensor.describe(t),
            is_plain_table(amounts) and tensor.shape_text(amounts) or errors.describe(amounts))
    end
    for k = 1, n do
        if not is_size(amounts[k], 0) then
            raise(nil, 'value', 'pad: amounts must be integers from 0 to %d, got %s; cut with t:narrow(dim, start, '
                .. 'length)', MOST, errors.describe(amounts[k]))
        end
    end
    if value ~= nil and value ~= 0 then
        raise(nil, type(value) == 'number' and 'unsupported' or 'value',
            'pad: only zeros are added in this version, got %s', errors.describe(value))
    end
    return op.in_function('pad', pad_dims, t, amounts)
end

return resize
