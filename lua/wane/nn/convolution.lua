--- Fills the layers nn.Conv2d and nn.ConvTranspose2d: their parameters, their window, their text.
-- @internal wane.nn.convolution

local create = require 'wane.tensor.create'
local errors = require 'wane.errors'
local image = require 'wane.tensor.image'
local module = require 'wane.module'
local op = require 'wane.tensor.op'

local convolution = {}

local OPTIONS = { 'stride', 'padding', 'dilation', 'groups', 'bias', 'dtype', 'device', 'layout' }
local TRANSPOSED = { 'stride', 'padding', 'output_padding', 'dilation', 'groups', 'bias', 'dtype', 'device', 'layout' }

local function layout_of(what, dims, opts)
    if opts.layout == 'plain' then return 0 end
    if opts.layout ~= nil then
        errors.raise(nil, 'value', "%s: layout must be 'plain' or nil (the device's own), got %s", what,
            errors.describe(opts.layout))
    end
    return create.weight_layout(dims, opts.device ~= nil and op.device(opts.device, what) or nil)
end

local function check_groups(what, n, groups, channels)
    if n % groups ~= 0 then
        errors.raise(nil, 'value', '%s: %d %s do not divide into %d groups; expected a multiple of the groups', what, n,
            channels, groups)
    end
end

-- Gives a layer its weight and bias, uniform in +-1/sqrt(fan-in), where the fan-in is of the weight's second dim.
local function add_parameters(self, what, dims, opts)
    local bound, place = 1 / math.sqrt(dims[2] * dims[3] * dims[4]), { dtype = opts.dtype, device = opts.device }
    local function uniform(shape, layout)
        return create.make(what, op.id.uniform, shape, place, { -bound, bound, layout = layout })
    end
    self.weight = module.parameter(uniform(dims, layout_of(what, dims, opts)), 'weight')
    rawset(self.weight, '_is_weight', opts.layout ~= 'plain') -- model:to lays it out as the device likes
    if opts.bias ~= false then self.bias = module.parameter(uniform { self.n_out }, 'bias') end
end

--- Fills a new layer.
-- @param self layer
-- @param what opens messages
-- @param channels { inputs, outputs, is_transposed = }
-- @param kernel number or {rows, columns}
-- @param opts options of the layer
function convolution.fill(self, what, channels, kernel, opts)
    opts = errors.check_options(opts, channels.is_transposed and TRANSPOSED or OPTIONS, what)
    self.n_in = op.size(channels[1], what .. ': inputs', 1)
    self.n_out = op.size(channels[2], what .. ': outputs', 1)
    local rows, columns = image.sizes(kernel, what .. ': kernel', 1)
    local window = image.conv_window(what, opts, { rows, columns })
    check_groups(what, self.n_in, window.groups, 'inputs')
    check_groups(what, self.n_out, window.groups, 'outputs')
    rawset(self, '_window', window) -- no field: it has no parameters, and nothing reads it again when it changes
    local from, to = self.n_in, self.n_out
    if channels.is_transposed then from, to = to, from end
    add_parameters(self, what, { to, from / window.groups, rows, columns }, opts)
end

--- Returns the text of a layer behind its name: '3, 64, 7, stride = 2, padding = 3'.
-- @param self layer
function convolution.text(self)
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

return convolution
