--- Images: convolutions and poolings.
--
-- An image is a tensor (batch, channels, rows, columns), as in PyTorch. Kernels read and write it with its channels
-- last in memory; no script sees that order. A size is a number for both directions, or {rows, columns}. Every function
-- raises 'shape' or 'value' at the line of the call when sizes do not fit; an input of three dims is refused, add the
-- batch with t:unsqueeze(1).
-- @module wane.tensor.image

local create = require 'wane.tensor.create'
local errors = require 'wane.errors'
local op = require 'wane.tensor.op'
local shape = require 'wane.tensor.shape'
local tensor = require 'wane.tensor'

local methods, typed = tensor.methods, tensor.typed
local unary, binary, ternary, id, raise = op.unary, op.binary, op.ternary, op.id, errors.raise
local getmetatable, math, type = getmetatable, math, type

local image = {}

local CONV2D, CONV2D_DX = id.conv2d, id.conv2d_dx
local MAX_POOL2D_INDEX, MAX_POOL2D, AVG_POOL2D = id.max_pool2d_index, id.max_pool2d, id.avg_pool2d
local NHWC = 2 -- WN_NHWC in runtime/base/layout.h
local HIGH = 2 ^ 32 -- a pair is rows * HIGH + columns, as runtime/base/window.h reads it
local MOST = 2 ^ 20 - 1 -- WN_WINDOW_MOST there
local CEIL, COUNTS_PAD, IS_ADAPTIVE = 1, 2, 4 -- enum wn_pool_flag there

-- ---- sizes ------------------------------------------------------------------------------------------------------

local function is_plain_table(x)
    return type(x) == 'table' and getmetatable(x) == nil
end

-- Returns whether v is an integer from `least` to the largest size of a window.
local function is_size(v, least)
    return type(v) == 'number' and v % 1 == 0 and v >= least and v <= MOST
end
image.is_size, image.MOST, image.is_plain_table = is_size, MOST, is_plain_table

--- Returns rows and columns of v, a number for both or {rows, columns}.
-- @within Internal
-- @param v value that was given
-- @param what opens the message: 'conv2d: stride'
-- @param least smallest number allowed
function image.sizes(v, what, least)
    local rows, columns = v, v
    if is_plain_table(v) then rows, columns = v[1], v[2] end
    local fits = rows == v or errors.list(v, what, 'two sizes') == 2
    if not fits or not is_size(rows, least) or not is_size(columns, least) then
        raise(nil, 'value', '%s must be an integer from %d to %d, or two of them, {rows, columns}, got %s', what, least,
            MOST, is_plain_table(v) and tensor.shape_text(v) or errors.describe(v))
    end
    return rows, columns
end

--- Returns v, as image.sizes takes it, as one number: rows * 2^32 + columns.
--
-- @within Internal
function image.pair(v, what, least)
    local rows, columns = image.sizes(v, what, least)
    return rows * HIGH + columns
end

-- Returns the rows and columns of a pair.
local function parts(pair)
    return math.floor(pair / HIGH), pair % HIGH
end

--- Returns a pair as a script writes it: '3' or '{3, 5}'.
--
-- @within Internal
function image.text(pair)
    local rows, columns = parts(pair)
    return rows == columns and ('%d'):format(rows) or ('{%d, %d}'):format(rows, columns)
end

--- Returns x with its channels last in memory, which the ops of this file read without a copy of their own.
--
-- @within Internal
function image.channels_last(x)
    local dims = typed(x)._dims
    if #dims ~= 4 or dims[2] == 1 or dims[3] * dims[4] == 1 then return x end
    return create.laid(x, NHWC)
end

-- ---- convolutions ----------------------------------------------------------------------------------------------

local OPTIONS = {
    conv2d = { 'stride', 'padding', 'dilation', 'groups' },
    conv_transpose2d = { 'stride', 'padding', 'output_padding', 'dilation', 'groups' },
}

-- Returns the pair of paddings with which the result is as large as the image. kernel: { rows, columns }
local function same_padding(what, window, kernel)
    local rows, columns = parts(window.dilation)
    local total = { (kernel[1] - 1) * rows, (kernel[2] - 1) * columns }
    if window.stride ~= HIGH + 1 then
        raise(nil, 'value', "%s: padding 'same' needs stride 1, got %s; give the padding as a number", what,
            image.text(window.stride))
    elseif total[1] % 2 ~= 0 or total[2] % 2 ~= 0 then
        raise(nil, 'value', "%s: padding 'same' needs an odd kernel, got %d x %d; pad with x:pad {left, right, top, "
            .. 'bottom} first', what, kernel[1], kernel[2])
    end
    return image.pair({ total[1] / 2, total[2] / 2 }, what .. ': padding', 0)
end

--- Returns the window of a convolution, which its attributes hold: { stride =, padding =, dilation =, output_padding =
-- (pairs), groups = }.
-- @within Internal
-- @param what opens messages
-- @param opts {stride = 1, padding = 0, dilation = 1, groups = 1, output_padding = 0}, whose names are checked already
-- @param kernel { rows, columns }
function image.conv_window(what, opts, kernel)
    local padding = opts.padding == 'valid' and 0 or opts.padding or 0
    local window = {
        stride = image.pair(opts.stride or 1, what .. ': stride', 1),
        dilation = image.pair(opts.dilation or 1, what .. ': dilation', 1),
        output_padding = image.pair(opts.output_padding or 0, what .. ': output_padding', 0),
        groups = opts.groups or 1,
    }
    if not is_size(window.groups, 1) then
        raise(nil, 'value', '%s: groups must be an integer from 1 to %d, got %s', what, MOST,
            errors.describe(opts.groups))
    end
    if padding == 'same' then
        window.padding = same_padding(what, window, kernel)
    elseif type(padding) == 'string' then
        raise(nil, 'value', "%s: padding must be a number, {rows, columns}, 'same' or 'valid', got %s", what,
            errors.describe(padding))
    else
        window.padding = image.pair(padding, what .. ': padding', 0)
    end
    return window
end

-- Returns the attributes of a convolution; size: pair of the result, of CONV2D_DX.
local function conv_attrs(window, size)
    return op.attrs(window.stride, window.padding, window.dilation, window.groups, size or 0)
end

--- Records conv2d of tensors with a window of image.conv_window.
--
-- @within Internal
function image.conv2d(x, w, b, window)
    if b then return (ternary(CONV2D, x, w, b, conv_attrs(window))) end
    return (binary(CONV2D, x, w, conv_attrs(window)))
end

-- Checks the operands of conv_transpose2d. Returns the channels of the result.
local function check_transpose(x, w, b, window)
    local what, dims, weight = 'conv_transpose2d', typed(x)._dims, typed(w)._dims
    if #dims ~= 4 then
        raise(nil, 'shape', '%s: the input is %s, expected 4 dims: (batch, channels, rows, columns)%s', what,
            tensor.describe(x), #dims == 3 and '; add the batch with :unsqueeze(1)' or '')
    elseif #weight ~= 4 then
        raise(nil, 'shape', '%s: the weight is %s, expected 4 dims: (inputs, outputs / groups, rows, columns)', what,
            tensor.describe(w))
    elseif weight[1] ~= dims[2] then
        raise(nil, 'shape', '%s: the weight is for %d input channels, the image has %d', what, weight[1], dims[2])
    elseif dims[2] % window.groups ~= 0 then
        raise(nil, 'shape', '%s: %d input channels do not divide into %d groups; expected a multiple of the groups',
            what, dims[2], window.groups)
    end
    local channels = weight[2] * window.groups
    if b and (#typed(b)._dims ~= 1 or b._dims[1] ~= channels) then
        raise(nil, 'shape', '%s: the bias is %s, expected (%d), as the weight is %s', what, tensor.describe(b),
            channels, tensor.describe(w))
    end
    return channels
end

-- Returns the rows (part 1) or columns (part 2) that a transposed convolution makes of the image x.
local function transposed_size(x, w, window, part)
    local function of(pair) return (select(part, parts(pair))) end
    local stride, more, dilation = of(window.stride), of(window.output_padding), of(window.dilation)
    if more >= math.max(stride, dilation) then
        raise(nil, 'value', 'conv_transpose2d: output_padding %d given, expected less than the stride %d%s', more,
            stride, dilation > stride and (' or the dilation %d'):format(dilation) or '')
    end
    local size = (x._dims[2 + part] - 1) * stride - 2 * of(window.padding) + dilation
        * (w._dims[2 + part] - 1) + more + 1
    if size < 1 or size > MOST then
        raise(nil, 'shape', 'conv_transpose2d: the image would have %d %s, of %s with padding %d; pad less', size,
            part == 1 and 'rows' or 'columns', tensor.describe(x), of(window.padding))
    end
    return size
end

-- Returns how many strides the output padding of rows (part 1) or columns (part 2) has: as many rows of zeros behind
-- the image make them.
local function strides_in_padding(window, part)
    local stride, more = select(part, parts(window.stride)), select(part, parts(window.output_padding))
    return math.floor(more / stride)
end

local function add_bias(x, w, b, at)
    local channels = b._dims[1]
    return binary(CONV2D_DX, x, w, at) + shape.to(op.low(b), channels, 1, 1)
end

--- Records conv_transpose2d of tensors with a window of image.conv_window.
--
-- @within Internal
function image.conv_transpose2d(x, w, b, window)
    check_transpose(x, w, b, window)
    local size = transposed_size(x, w, window, 1) * HIGH + transposed_size(x, w, window, 2)
    local below, right = strides_in_padding(window, 1), strides_in_padding(window, 2)
    if below + right > 0 then x = methods.pad(x, { 0, right, 0, below }) end
    if not b then return (binary(CONV2D_DX, x, w, conv_attrs(window, size))) end
    local at = conv_attrs(window, size)
    return op.in_function('conv_transpose2d', add_bias, x, w, b, at)
end

-- Checks weight, bias and options of the method `name`, then applies image[name].
local function convolve(name, x, w, b, opts)
    tensor.need_self(x, name)
    if opts == nil and is_plain_table(b) then b, opts = nil, b end
    opts = errors.check_options(opts, OPTIONS[name], name)
    tensor.id(w, name .. ': weight')
    if b ~= nil then tensor.id(b, name .. ': bias') end
    local dims = typed(w)._dims
    return image[name](x, w, b, image.conv_window(name, opts, { dims[3] or 1, dims[4] or 1 }))
end

--- Returns the convolution of images with a weight: each output channel is the sum, over the channels of its group and
-- the places of the kernel, of image times weight, plus its bias. Images count as 0 outside of their borders.
-- @param x float tensor (N, C, H, W)
-- @param w tensor (O, C / groups, rows, columns) of the same dtype
-- @param b tensor (O); nil for none; it may be left out
-- @param opts {stride = 1, padding = 0, dilation = 1, groups = 1}; padding = 'same': the result is as large as x, for
-- stride 1 and an odd kernel; 'valid': no padding
-- @return tensor (N, O, oh, ow), oh = floor((H + 2 padding - dilation (rows - 1) - 1) / stride) + 1, ow likewise
-- @usage
-- local pictures = wane.randn(2, 3, 8, 8)
-- print(pictures:conv2d(wane.randn(16, 3, 3, 3), { padding = 1 }).shape) --> (2, 16, 8, 8)
-- print(pictures:conv2d(wane.randn(6, 1, 3, 3), wane.zeros(6), { stride = 2, groups = 3 }).shape) --> (2, 6, 3, 3)
function methods.conv2d(x, w, b, opts)
    return convolve('conv2d', x, w, b, opts)
end

--- Returns the transposed convolution of images with a weight, which is the gradient of conv2d with respect to its
-- image, as PyTorch's conv_transpose2d.
-- @param x float tensor (N, C, H, W)
-- @param w tensor (C, O / groups, rows, columns) of the same dtype
-- @param b tensor (O); nil for none; it may be left out
-- @param opts {stride = 1, padding = 0, output_padding = 0, dilation = 1, groups = 1}
-- @return tensor (N, O, oh, ow), oh = (H - 1) stride - 2 padding + dilation (rows - 1) + output_padding + 1
-- @usage print(wane.randn(2, 8, 4, 4):conv_transpose2d(wane.randn(8, 3, 2, 2), { stride = 2 }).shape) --> (2, 3, 8, 8)
function methods.conv_transpose2d(x, w, b, opts)
    return convolve('conv_transpose2d', x, w, b, opts)
end

-- ---- poolings ---------------------------------------------------------------------------------------------------

--- Returns the window of a pooling: { kernel =, stride =, padding = (pairs), flags = }.
-- @within Internal
-- @param what opens messages
-- @param kernel size of the windows
-- @param opts {stride = kernel, padding = 0, ceil_mode = false}, whose names are checked already
-- @param flags that hold beside ceil_mode
function image.pool_window(what, kernel, opts, flags)
    errors.check_flags(opts, { 'ceil_mode', 'count_include_pad' }, what)
    return {
        kernel = image.pair(kernel, what .. ': kernel', 1),
        stride = image.pair(opts.stride or kernel, what .. ': stride', 1),
        padding = image.pair(opts.padding or 0, what .. ': padding', 0),
        flags = flags + (opts.ceil_mode and CEIL or 0),
    }
end

--- Returns the window of max_pool2d, of its arguments.
-- @within Internal
function image.max_pool_window(what, kernel, opts)
    opts = errors.check_options(opts, { 'stride', 'padding', 'ceil_mode' }, what)
    return image.pool_window(what, kernel, opts, 0)
end

--- Returns the window of avg_pool2d, of its arguments.
-- @within Internal
function image.avg_pool_window(what, kernel, opts)
    opts = errors.check_options(opts, { 'stride', 'padding', 'ceil_mode', 'count_include_pad' }, what)
    return image.pool_window(what, kernel, opts, opts.count_include_pad ~= false and COUNTS_PAD or 0)
end

--- Returns the window of adaptive_avg_pool2d, of its size.
-- @within Internal
function image.adaptive_window(what, size)
    return { kernel = image.pair(size, what .. ': size', 1), stride = 0, padding = 0, flags = IS_ADAPTIVE }
end

--- Returns the text of a layer with the window of a pooling: '3, stride = 2, padding = 1'.
--
-- @within Internal
function image.pool_text(window)
    local text = image.text(window.kernel)
    if window.stride ~= window.kernel then text = text .. ', stride = ' .. image.text(window.stride) end
    if window.padding ~= 0 then text = text .. ', padding = ' .. image.text(window.padding) end
    return text .. (window.flags % 2 == CEIL and ', ceil_mode = true' or '')
end

local function pool_attrs(window)
    return op.attrs(window.kernel, window.stride, window.padding, window.flags, 0)
end

--- Records max_pool2d: the places of the largest elements and the elements there, where x needs a gradient; else the
-- elements alone, of which wane.grad makes the places.
--
-- @within Internal
function image.max_pool2d(x, window)
    if tensor.info(x).needs_grad == 0 or not op.is_tracking() then return (unary(MAX_POOL2D, x, pool_attrs(window))) end
    x = image.channels_last(x)
    local index = unary(MAX_POOL2D_INDEX, x, pool_attrs(window))
    return (binary(MAX_POOL2D, x, index, pool_attrs(window)))
end

--- Records avg_pool2d with any window.
--
-- @within Internal
function image.avg_pool2d(x, window)
    return (unary(AVG_POOL2D, x, pool_attrs(window)))
end

--- Returns the largest element of each window of an image. A NaN counts as the largest; of equal ones the first gets
-- the gradient, which costs one byte a window.
-- @param x float tensor (N, C, H, W)
-- @param kernel size of the windows, at most 255 elements
-- @param opts {stride = kernel, padding = 0, ceil_mode = false}; padding is at most half of the kernel; ceil_mode: the
-- last window may reach beyond the padded image
-- @return tensor (N, C, oh, ow), oh = floor((H + 2 padding - rows) / stride) + 1, or ceil(...) + 1
-- @usage
-- print(wane.randn(2, 3, 8, 8):max_pool2d(2).shape) --> (2, 3, 4, 4)
-- print(wane.randn(2, 3, 8, 8):max_pool2d(3, { stride = 2, padding = 1 }).shape) --> (2, 3, 4, 4)
function methods.max_pool2d(x, kernel, opts)
    tensor.need_self(x, 'max_pool2d')
    return image.max_pool2d(x, image.max_pool_window('max_pool2d', kernel, opts))
end

--- Returns the mean of each window of an image.
-- @param x float tensor (N, C, H, W)
-- @param kernel size of the windows
-- @param opts {stride = kernel, padding = 0, ceil_mode = false, count_include_pad = true}; count_include_pad = false:
-- divides by the elements inside the image alone
-- @return tensor (N, C, oh, ow), as max_pool2d's
-- @usage print(wane.ones(1, 1, 4, 4):avg_pool2d({ 2, 4 }):totable()[1][1][2][1]) --> 1
function methods.avg_pool2d(x, kernel, opts)
    tensor.need_self(x, 'avg_pool2d')
    return image.avg_pool2d(x, image.avg_pool_window('avg_pool2d', kernel, opts))
end

--- Returns the means of windows that cut an image into a given number of rows and columns: window i of n goes from
-- floor(i H / n) to ceil((i + 1) H / n).
-- @param x float tensor (N, C, H, W)
-- @param size of the result
-- @return tensor (N, C, size, size)
-- @usage print(wane.randn(2, 3, 7, 7):adaptive_avg_pool2d(1).shape) --> (2, 3, 1, 1)
function methods.adaptive_avg_pool2d(x, size)
    tensor.need_self(x, 'adaptive_avg_pool2d')
    return image.avg_pool2d(x, image.adaptive_window('adaptive_avg_pool2d', size))
end

return image
