-- Residual networks of 18 to 152 layers for images: He et al., "Deep Residual Learning for Image Recognition", 2016,
-- with the stride of a bottleneck in its 3x3 convolution, as published weights have it.
--
--   local resnet = require 'wane.zoo.resnet'
--   local model = resnet.new('50', { classes = 1000 })    -- '18' '34' '50' '101' '152' 'small'
--   local loss = resnet.loss(model, images, labels)       -- images (N, 3, H, W), labels (N) i32, 0-based
--
-- Names and shapes of parameters and buffers are torchvision's, so wane.load(path, model, { names = 'torch' }) reads
-- its weights from a safetensors file. First values are its too: normal with variance 2 / (outputs rows columns) for
-- convolutions, ones and zeros for norms.
local wane = require 'wane'

local nn, raise = wane.nn, wane.errors.raise

local resnet = {}

--- Sizes by name. Fields: block, layers of each of four stages, width of the first stage, stem ('image': 7x7 with
-- stride 2 and pooling; 'small': 3x3 for images of a few dozen pixels).
resnet.configs = {
    ['18'] = { block = 'basic', layers = { 2, 2, 2, 2 }, width = 64, stem = 'image' },
    ['34'] = { block = 'basic', layers = { 3, 4, 6, 3 }, width = 64, stem = 'image' },
    ['50'] = { block = 'bottleneck', layers = { 3, 4, 6, 3 }, width = 64, stem = 'image' },
    ['101'] = { block = 'bottleneck', layers = { 3, 4, 23, 3 }, width = 64, stem = 'image' },
    ['152'] = { block = 'bottleneck', layers = { 3, 8, 36, 3 }, width = 64, stem = 'image' },
    small = { block = 'basic', layers = { 1, 1, 1, 1 }, width = 16, stem = 'small' }, -- trains on a CPU in seconds
}

--- Counts of parameters of the published models, with 1000 classes.
resnet.parameters = { ['18'] = 11689512, ['34'] = 21797672, ['50'] = 25557032, ['101'] = 44549160, ['152'] = 60192808 }

local function conv(i, o, kernel, stride, place)
    return nn.Conv2d(i, o, kernel, { stride = stride, padding = (kernel - 1) / 2, bias = false, dtype = place.dtype,
        device = place.device })
end

-- Fills in what both kinds of block have: the norm after each convolution, and the shortcut where shapes change.
local function shortcut(self, i, o, stride, place)
    if stride == 1 and i == o then return end
    self.downsample = nn.Sequential(conv(i, o, 1, stride, place), nn.BatchNorm2d(o, place))
end

local BasicBlock = nn.module('BasicBlock', function(self, i, width, stride, place)
    self.conv1, self.bn1 = conv(i, width, 3, stride, place), nn.BatchNorm2d(width, place)
    self.conv2, self.bn2 = conv(width, width, 3, 1, place), nn.BatchNorm2d(width, place)
    shortcut(self, i, width, stride, place)
end)

function BasicBlock:forward(x)
    local y = self.bn1(self.conv1(x)):relu()
    y = self.bn2(self.conv2(y))
    return (y + (self.downsample and self.downsample(x) or x)):relu()
end

local Bottleneck = nn.module('Bottleneck', function(self, i, width, stride, place)
    self.conv1, self.bn1 = conv(i, width, 1, 1, place), nn.BatchNorm2d(width, place)
    self.conv2, self.bn2 = conv(width, width, 3, stride, place), nn.BatchNorm2d(width, place)
    self.conv3, self.bn3 = conv(width, 4 * width, 1, 1, place), nn.BatchNorm2d(4 * width, place)
    shortcut(self, i, 4 * width, stride, place)
end)

function Bottleneck:forward(x)
    local y = self.bn1(self.conv1(x)):relu()
    y = self.bn2(self.conv2(y)):relu()
    y = self.bn3(self.conv3(y))
    return (y + (self.downsample and self.downsample(x) or x)):relu()
end

local kinds = { basic = { class = BasicBlock, factor = 1 }, bottleneck = { class = Bottleneck, factor = 4 } }

local ResNet = nn.module('ResNet', function(self, c, o)
    self.config, self.region = c, o.region
    local kind, at = kinds[c.block], c.width
    if c.stem == 'image' then
        self.conv1 = conv(o.channels, c.width, 7, 2, o.place)
    else
        self.conv1 = conv(o.channels, c.width, 3, 1, o.place)
    end
    self.bn1 = nn.BatchNorm2d(c.width, o.place)
    for stage, count in ipairs(c.layers) do
        local width, blocks = c.width * 2 ^ (stage - 1), {}
        for k = 1, count do
            blocks[k] = kind.class(at, width, (k == 1 and stage > 1) and 2 or 1, o.place)
            at = width * kind.factor
        end
        self['layer' .. stage] = blocks
    end
    self.fc = nn.Linear(at, o.classes, o.place)
end)

-- Returns logits (N, classes) of images (N, channels, H, W).
function ResNet:forward(x)
    x = self.bn1(self.conv1(x)):relu()
    if self.config.stem == 'image' then x = x:max_pool2d(3, { stride = 2, padding = 1 }) end
    for stage = 1, #self.config.layers do
        for _, block in ipairs(self['layer' .. stage]) do
            x = self.region and wane.checkpoint(block, x) or block(x)
        end
    end
    return self.fc(x:adaptive_avg_pool2d(1):flatten(2))
end

local function start(model)
    for _, p in model:named_parameters() do
        local dims = p.shape
        if #dims == 4 then nn.init.normal(p, math.sqrt(2 / (dims[1] * dims[3] * dims[4]))) end
    end
    return model
end

local known = { classes = true, channels = true, region = true, dtype = true, device = true }

--- Makes a model.
-- @param what name of a config, or a table like one
-- @param opts { classes = 1000, channels = 3, region = false, dtype = 'f32', device = }; region: wane.checkpoint around
-- each block
function resnet.new(what, opts)
    local c, o = resnet.configs[tostring(what)] or what, { classes = 1000, channels = 3 }
    if type(c) ~= 'table' then
        raise(nil, 'value', "resnet.new: no size '%s'; known: 18 34 50 101 152 small", tostring(c))
    end
    for name, value in pairs(opts or {}) do
        if not known[name] then raise(nil, 'value', "resnet.new: unknown option '%s'", tostring(name)) end
        o[name] = value
    end
    o.place = { dtype = o.dtype, device = o.device }
    return start(ResNet(c, o))
end

--- Records the mean loss of a batch. images: (N, channels, H, W), labels: (N) i32.
function resnet.loss(model, images, labels)
    return nn.cross_entropy(model(images), labels)
end

return resnet
