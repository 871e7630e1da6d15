--- Cases of convolutions, against loops over windows: sizes around micro-tiles, panels and k-blocks, strides, padding,
-- dilation, groups, weights plain and in panels.
local array = require 'spec.cases.array'
local record, calls, pair = array.record, array.calls, array.pairs

local PANELS = 3 -- WN_CONV48
local tol = { f32 = 2e-5, f64 = 1e-12 }

local refs = {
    conv2d = array.conv2d,
    conv2d_dx = function(s, dy, w)
        local dx = array.zeros(s.x)
        array.each_product(s, function(i, j, k) dx[i] = dx[i] + dy[k] * w[j] end)
        return dx
    end,
    conv2d_dw = function(s, dy, x)
        local dw = array.zeros(s.w)
        array.each_product(s, function(i, j, k) dw[j] = dw[j] + dy[k] * x[i] end)
        return dw
    end,
}

-- Returns the case of an op; options of array.window, and panels = true: the weight is in panels, bias = true,
-- grad = false.
local function case(op, name, x, w, o)
    o = o or {}
    local s = array.window(x, w, o)
    local attrs = { i = { unpack(s.attrs, 1, 4) } }
    local inputs = op == 'conv2d' and { s.x, s.w } or op == 'conv2d_dx' and { s.y, s.w } or { s.y, s.x }
    if o.bias then inputs[3] = { s.o } end
    if op == 'conv2d_dx' then attrs.i[5] = pair(s.size) end
    if op == 'conv2d_dw' then
        attrs.i[5] = pair(s.kernel)
        attrs.layout = o.panels and PANELS or 0
    end
    local function call(_, a, b, bias)
        if o.panels and op ~= 'conv2d_dw' then b = record('relayout', { b }, { layout = PANELS }) end
        return record(op, bias and { a, b, bias } or { a, b }, attrs)
    end
    return { name = name .. (o.panels and ', in panels' or ''), inputs = inputs, call = call, tol = o.tol or tol,
        grad = o.grad ~= false, only = o.only, orders = o.orders, ref = function(...) return refs[op](s, ...) end }
end

-- Returns the cases that all three ops have.
local function cases_of(op)
    -- Gradients of conv2d_dx and conv2d_dw are the other two: six cases are enough there.
    local list, few = {}, op == 'conv2d' and math.huge or 6
    local function add(name, x, w, o)
        list[#list + 1] = case(op, name, x, w, o)
        if #list > few then list[#list].grad = nil end
    end
    add('3 x 3', { 2, 3, 5, 6 }, { 4, 3, 3 }, { pad = 1 })
    add('3 x 3', { 1, 3, 4, 5 }, { 16, 3, 3 }, { pad = 1, panels = true })
    add('groups', { 2, 4, 4, 5 }, { 6, 3, 2 }, { groups = 2, pad = 1 })
    add('an even kernel, strides and pads that differ', { 1, 2, 7, 5 }, { 3, 2, 4 },
        { stride = { 2, 1 }, pad = { 1, 2 } })
    add('dilation', { 1, 2, 9, 8 }, { 2, 3, 2 }, { dilation = { 2, 3 }, pad = 1 })
    add('dilation and stride with a common divisor', { 1, 1, 11, 9 }, { 2, 3, 3 },
        { dilation = { 2, 4 }, stride = { 4, 6 }, pad = { 3, 4 } })
    add('a stride beyond the kernel', { 1, 2, 8, 7 }, { 2, 1, 2 }, { stride = 3 })
    add('depthwise', { 2, 5, 6, 4 }, { 5, 3, 3 }, { groups = 5, pad = 1, stride = { 1, 2 } })
    add('depthwise, two outputs a channel', { 1, 3, 4, 4 }, { 6, 2, 2 }, { groups = 3 })
    add('one pixel', { 2, 3, 3, 4 }, { 5, 1, 1 })
    add('one pixel, stride', { 1, 3, 5, 4 }, { 5, 1, 1 }, { stride = 2 })
    add('no images', { 0, 2, 4, 4 }, { 3, 3, 3 })
    add('more padding than image', { 1, 2, 2, 1 }, { 2, 2, 2 }, { pad = 3, stride = 2 })
    local o = { grad = false, pad = 1, panels = true }
    add('past tiles and k-blocks', { 1, 19, 7, 13 }, { 64, 3, 3 }, o)
    add('stride 2, past tiles', { 1, 17, 11, 12 }, { 80, 3, 3 }, { grad = false, pad = 1, panels = true, stride = 2 })
    add('one pixel, past tiles', { 1, 21, 4, 7 }, { 64, 1, 1 }, { grad = false, panels = true })
    add('plain, past tiles', { 1, 19, 6, 6 }, { 50, 3, 3 }, { grad = false, pad = 1 })
    add('chunks of channels', { 1, 16, 5, 6 }, { 24, 3, 3 }, { grad = false, pad = 1 })
    add('groups, past tiles', { 1, 8, 5, 7 }, { 80, 3, 3 },
        { grad = false, groups = 2, panels = true, dilation = 2, pad = 2 })
    add('depthwise, past vectors', { 1, 83, 7, 6 }, { 83, 3, 3 }, { grad = false, groups = 83, pad = 1 })
    for _, stride in ipairs { 1, 2 } do
        local what = 'depthwise, stride ' .. stride .. ', '
        o = { grad = false, groups = 35, stride = stride, pad = 1 }
        add(what .. 'rows past micro-tiles', { 2, 35, 5, 41 }, { 35, 3, 3 }, o)
        o = { grad = false, groups = 18, stride = stride, pad = 2 }
        add(what .. '5 x 5', { 1, 18, 7, 13 }, { 18, 5, 5 }, o)
        add(what .. '4 x 2', { 1, 18, 7, 9 }, { 18, 4, 2 }, o)
        o = { grad = false, groups = 64, stride = stride, pad = 1, panels = true }
        add(what .. '3 x 3', { 1, 64, 4, 5 }, { 64, 3, 3 }, o)
    end
    add('depthwise, past blocks', { 1, 290, 3, 4 }, { 290, 3, 1 }, { grad = false, groups = 290, pad = 1 })
    -- By Winograd's method in f32: at least 128 tiles of 2 x 2. A GPU computes them as the ones above.
    o = { grad = false, pad = 1, panels = true, only = 'f32', orders = false, tol = { f32 = 1e-4 } }
    if op ~= 'conv2d_dw' then add('tiles, past blocks', { 1, 32, 16, 31 }, { 144, 3, 3 }, o) end
    add('tiles, past k-blocks', { 1, 80, 22, 23 }, { 32, 3, 3 }, o)
    add('tiles, plain, more padding', { 2, 32, 13, 17 }, { 48, 3, 3 },
        { grad = false, pad = 2, only = 'f32', orders = false, tol = o.tol })
    return list
end

local conv2d = cases_of 'conv2d'
table.insert(conv2d, case('conv2d', 'bias', { 1, 2, 4, 4 }, { 3, 3, 3 }, { bias = true }))
table.insert(conv2d, case('conv2d', 'bias', { 2, 3, 3, 3 }, { 64, 2, 2 }, { bias = true, panels = true }))
table.insert(conv2d, case('conv2d', 'tiles, bias', { 2, 32, 18, 18 }, { 32, 3, 3 },
    { bias = true, panels = true, only = 'f32', orders = false, grad = false, tol = { f32 = 1e-4 } }))
table.insert(conv2d, case('conv2d', 'one pixel, bias', { 1, 2, 3, 4 }, { 3, 1, 1 }, { bias = true }))
table.insert(conv2d, case('conv2d', 'depthwise, bias, past blocks', { 1, 290, 2, 9 }, { 290, 3, 3 },
    { bias = true, groups = 290, pad = 1, grad = false }))
table.insert(conv2d, case('conv2d', 'groups, bias', { 1, 4, 3, 4 }, { 6, 2, 1 }, { bias = true, groups = 2 }))
table.insert(conv2d, case('conv2d', 'depthwise, bias', { 1, 4, 3, 4 }, { 4, 2, 1 }, { bias = true, groups = 4 }))

-- Returns an application that is refused; attributes: { stride, pad, dilation, groups, size }, pairs as those of
-- array.window.
local function bad(op, a, b, attributes, message)
    local attrs = { i = {} }
    for k, v in ipairs(attributes) do attrs.i[k] = k == 4 and v or pair(v) end
    return { inputs = { a, b }, error = message, call = function(_, x, y) return record(op, { x, y }, attrs) end }
end

local with_bias = { inputs = { { 1, 2, 4, 4 }, { 3, 2, 3, 3 }, { 4 } },
    error = 'conv2d: the bias is %(4%), expected %(3%)',
    call = calls('conv2d', { i = { pair(1), 0, pair(1), 1 } }) }

return {
    conv2d = { cases = conv2d, bad = {
        bad('conv2d', { 2, 4, 4 }, { 3, 2, 3, 3 }, { 1, 0, 1, 1 },
            'the input is %(2, 4, 4%), expected 4 dims: .* :unsqueeze'),
        bad('conv2d', { 1, 2, 4, 4 }, { 3, 2 }, { 1, 0, 1, 1 }, 'the weight is %(3, 2%), expected 4 dims'),
        bad('conv2d', { 1, 2, 4, 4 }, { 3, 3, 3, 3 }, { 1, 0, 1, 1 },
            'the weight is for 3 input channels, the image has 2'),
        bad('conv2d', { 1, 4, 4, 4 }, { 2, 4, 3, 3 }, { 1, 0, 1, 2 },
            'the weight is for 4 input channels a group, the image has 2 %(4 channels in 2 groups%)'),
        bad('conv2d', { 1, 3, 4, 4 }, { 2, 1, 3, 3 }, { 1, 0, 1, 2 }, '3 input channels do not divide into 2 groups'),
        bad('conv2d', { 1, 2, 4, 4 }, { 3, 1, 3, 3 }, { 1, 0, 1, 2 }, '3 output channels do not divide into 2 groups'),
        bad('conv2d', { 1, 2, 4, 4 }, { 3, 2, 3, 3 }, { { 1, 0 }, 0, 1, 1 }, 'stride 0 given, expected 1 to'),
        bad('conv2d', { 1, 2, 4, 4 }, { 3, 2, 3, 3 }, { 1, 0, 2, 1 },
            'a kernel over 5 rows is larger than the padded image with 4; pad more'),
        with_bias,
    } },
    conv2d_dx = { cases = cases_of 'conv2d_dx', bad = {
        bad('conv2d_dx', { 1, 3, 3, 2 }, { 3, 2, 3, 3 }, { 1, 0, 1, 1, 4 },
            'conv2d_dx: dy is %(1, 3, 3, 2%), expected %(1, 3, 2, 2%): .* image of 4 x 4'),
        bad('conv2d_dx', { 1, 3, 2, 2 }, { 3, 2, 3, 3 }, { 1, 0, 1, 1, { 0, 4 } }, 'image size 0 given'),
    } },
    conv2d_dw = { cases = cases_of 'conv2d_dw', bad = {
        bad('conv2d_dw', { 1, 3, 3, 2 }, { 1, 2, 4, 4 }, { 1, 0, 1, 1, 3 },
            'conv2d_dw: dy is %(1, 3, 3, 2%), expected %(1, 3, 2, 2%)'),
        bad('conv2d_dw', { 3, 2, 2 }, { 1, 2, 4, 4 }, { 1, 0, 1, 1, 3 }, 'dy is %(3, 2, 2%), expected 4 dims'),
    } },
}
