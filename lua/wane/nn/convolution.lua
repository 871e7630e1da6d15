--- Convolutions of images and transposed ones as layers.
-- @module wane.nn.convolution

local errors = require 'wane.errors'
local image = require 'wane.tensor.image'
local module = require 'wane.module'
local op = require 'wane.tensor.op'
local tensor = require 'wane.tensor'
local uniform = require 'wane.nn.weights'

local convolution = {}

local OPTIONS = { 'stride', 'padding', 'dilation', 'groups', 'bias', 'dtype', 'device', 'layout' }
local TRANSPOSED = { 'stride', 'padding', 'output_padding', 'dilation', 'groups', 'bias', 'dtype', 'device', 'layout' }

local function check_groups(what, n, groups, channels)
    if n % groups ~= 0 then
        errors.raise(nil, 'value', '%s: %d %s do not divide into %d groups; expected a multiple of the groups', what, n,
            channels, groups)
    end
end

-- Fills a new layer `what`.
local function fill(self, what, n_in, n_out, kernel, opts)
    local is_transposed = what == 'nn.ConvTranspose2d'
    opts = errors.check_options(opts, is_transposed and TRANSPOSED or OPTIONS, what)
    self.n_in, self.n_out = op.size(n_in, what .. ': inputs', 1), op.size(n_out, what .. ': outputs', 1)
    local rows, columns = image.sizes(kernel, what .. ': kernel', 1)
    local window = image.conv_window(what, opts, { rows, columns })
    check_groups(what, self.n_in, window.groups, 'inputs')
    check_groups(what, self.n_out, window.groups, 'outputs')
    rawset(self, '_window', window) -- no field: it has no parameters, and nothing reads it again when it changes
    local from, to = self.n_in, self.n_out
    if is_transposed then from, to = to, from end
    local add = uniform(self, what, 1 / math.sqrt(from / window.groups * rows * columns), opts)
    add('weight', { to, from / window.groups, rows, columns }, true)
    if opts.bias ~= false then add('bias', { self.n_out }) end
end

-- Returns the text of a layer behind its name: '3, 64, 7, stride = 2, padding = 3'.
local function text_of(self)
    local window, dims = self._window, self.weight.shape
    local words = { ('%d, %d, %s'):format(self.n_in, self.n_out, image.text(image.pair({ dims[3], dims[4] }, '', 1))) }
    local function add(name, value, default)
        if value ~= default then words[#words + 1] = name .. ' = ' .. value end
    end
    add('stride', image.text(window.stride), '1')
    add('padding', image.text(window.padding), '0')
    add('output_padding', image.text(window.output_padding), '0')
    add('dilation', image.text(window.dilation), '1')
    add('groups', tostring(window.groups), '1')
    add('bias', tostring(self.bias ~= nil), 'true')
    return table.concat(words, ', ')
end

-- Adds the class `name`, as the tensor's method `method`, which record(x, weight, bias, window) computes.
local function layer(name, method, record)
    local class = module.new(name, function(self, ...)
        fill(self, 'nn.' .. name, ...)
    end)
    function class:forward(x)
        tensor.need_self(x, method)
        return record(x, self.weight, self.bias, self._window)
    end
    class.extra = text_of
    convolution[name] = class
end

--- nn.Conv2d(i, o, kernel, {stride = 1, padding = 0, dilation = 1, groups = 1, bias = true, dtype =, device =,
-- layout =}): the convolution of images, x (N, i, H, W) -> (N, o, oh, ow), as tensor:conv2d.
--
-- A size is a number or {rows, columns}; padding = 'same' keeps rows and columns, for stride 1 and an odd kernel,
-- 'valid' pads nothing. It is one node with one rounding. Its parameters are weight (o, i / groups, rows, columns) and
-- bias (o), at first uniform in +-1/sqrt(i / groups rows columns), as PyTorch's are. The weight has the layout that
-- convolutions on its device read fastest, as nn.Linear's has; layout = 'plain' is for a weight that other ops read at
-- every step.
-- @function nn.Conv2d
-- @usage
-- local conv = nn.Conv2d(3, 16, 3, { padding = 1 })
-- print(conv(wane.randn(2, 3, 8, 8)).shape, conv.weight.shape) --> (2, 16, 8, 8)	(16, 3, 3, 3)
layer('Conv2d', 'conv2d', image.conv2d)

--- nn.ConvTranspose2d(i, o, kernel, {stride = 1, padding = 0, output_padding = 0, dilation = 1, groups = 1, bias =
-- true, dtype =, device =, layout =}): the transposed convolution of images, x (N, i, H, W) -> (N, o, oh, ow), as
-- tensor:conv_transpose2d.
--
-- A size is a number or {rows, columns}. Its parameters are weight (i, o / groups, rows, columns) and bias (o), at
-- first uniform in +-1/sqrt(o / groups rows columns), as PyTorch's are. layout is as nn.Conv2d's.
-- @function nn.ConvTranspose2d
-- @usage
-- local up = nn.ConvTranspose2d(16, 8, 2, { stride = 2 })
-- print(up(wane.randn(2, 16, 4, 4)).shape, up.weight.shape) --> (2, 8, 8, 8)	(16, 8, 2, 2)
layer('ConvTranspose2d', 'conv_transpose2d', image.conv_transpose2d)

return convolution
