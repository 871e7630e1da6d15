-- The 100-layer network by which segments of checkpoints are often shown: a convolution from 1 to 320 channels, then
-- 100 times convolution (3x3, padding 2), ReLU and pooling of 2x2, then two linear layers. An image of 28 x 28 is 2 x 2
-- after six of the 100 layers, and stays so: padding makes 4 x 4 of it, pooling 2 x 2 again.
--
--   local cnn100 = require 'wane.zoo.cnn100'
--   local model = cnn100.new('320')                     -- '320' 'small'
--   local loss = cnn100.loss(model, images, labels)     -- images (N, 1, 28, 28), labels (N) i32, 0-based
local wane = require 'wane'

local nn, raise = wane.nn, wane.errors.raise

local cnn100 = {}

--- Sizes by name. Fields: width (channels) and layers.
cnn100.configs = { ['320'] = { width = 320, layers = 100 }, small = { width = 16, layers = 20 } }

--- Counts of parameters.
cnn100.parameters = { ['320'] = 92208120 }

local Layer = nn.module('Layer', function(self, width, place)
    self.conv = nn.Conv2d(width, width, 3, { padding = 2, dtype = place.dtype, device = place.device })
end)

function Layer:forward(x)
    return self.conv(x):relu():max_pool2d(2)
end

local CNN = nn.module('CNN', function(self, c, o)
    self.config = c
    self.first = nn.Conv2d(1, c.width, 3, { padding = 2, dtype = o.dtype, device = o.device })
    self.layers = {}
    for i = 1, c.layers do self.layers[i] = Layer(c.width, o.place) end
    self.hidden = nn.Linear(4 * c.width, o.classes, o.place)
    self.out = nn.Linear(o.classes, o.classes, o.place)
end)

-- Returns logits (N, classes) of images (N, 1, 28, 28).
function CNN:forward(x)
    x = self.first(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.out(self.hidden(x:flatten(2)))
end

local known = { classes = true, dtype = true, device = true }

--- Makes a model.
-- @param what name of a config, or a table like one
-- @param opts { classes = 10, dtype = 'f32', device = }
function cnn100.new(what, opts)
    local c, o = cnn100.configs[tostring(what)] or what, { classes = 10 }
    if type(c) ~= 'table' then raise(nil, 'value', "cnn100.new: no size '%s'; known: 320 small", tostring(c)) end
    for name, value in pairs(opts or {}) do
        if not known[name] then raise(nil, 'value', "cnn100.new: unknown option '%s'", tostring(name)) end
        o[name] = value
    end
    o.place = { dtype = o.dtype, device = o.device }
    return CNN(c, o)
end

--- Records the mean loss of a batch. images: (N, 1, 28, 28), labels: (N) i32.
function cnn100.loss(model, images, labels)
    return nn.cross_entropy(model(images), labels)
end

return cnn100
