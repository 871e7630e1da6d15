-- U-Nets for segmentation: a path down, whose values are kept and read again on the path up. Ronneberger et al.,
-- "U-Net: Convolutional Networks for Biomedical Image Segmentation", 2015; with padding, so that the result is as large
-- as the image, and batch norm after each convolution, as most implementations have them.
--
--   local unet = require 'wane.zoo.unet'
--   local model = unet.new('64', { classes = 2 })        -- '64' 'small'
--   local loss = unet.loss(model, images, labels)        -- images (N, 3, H, W), labels (N, H, W) i32, 0-based
--
-- H and W are multiples of 2 ^ (stages - 1). The values of the path down wait the longest of all; what a plan does with
-- them, and with what is cheap to compute again, is why this model is here.
local wane = require 'wane'

local nn, raise = wane.nn, wane.errors.raise

local unet = {}

--- Sizes by name. Fields: width of the first stage, which doubles from stage to stage, and stages.
unet.configs = {
    ['64'] = { width = 64, stages = 5 },
    small = { width = 8, stages = 3 }, -- trains on a CPU in seconds
}

--- Counts of parameters with 3 channels and 2 classes, the path up by transposed convolutions.
unet.parameters = { ['64'] = 31037698 }

local function norm_conv(i, o, place)
    return nn.Conv2d(i, o, 3, { padding = 1, bias = false, dtype = place.dtype, device = place.device })
end

-- Two convolutions, each with a norm and a ReLU.
local Double = nn.module('Double', function(self, i, o, place)
    self.conv1, self.bn1 = norm_conv(i, o, place), nn.BatchNorm2d(o, place)
    self.conv2, self.bn2 = norm_conv(o, o, place), nn.BatchNorm2d(o, place)
end)

function Double:forward(x)
    x = self.bn1(self.conv1(x)):relu()
    return self.bn2(self.conv2(x)):relu()
end

-- One stage up: x (N, 2 o, H, W) and the value of the path down (N, o, 2 H, 2 W) -> (N, o, 2 H, 2 W).
local Up = nn.module('Up', function(self, o, up, place)
    if up == 'bilinear' then
        self.up = nn.Sequential(nn.Upsample { scale = 2, mode = 'bilinear', align_corners = true },
            nn.Conv2d(2 * o, o, 1, place))
    else
        self.up = nn.ConvTranspose2d(2 * o, o, 2, { stride = 2, dtype = place.dtype, device = place.device })
    end
    self.conv = Double(2 * o, o, place)
end)

function Up:forward(x, skip)
    return self.conv(wane.cat({ skip, self.up(x) }, 2))
end

local UNet = nn.module('UNet', function(self, c, o)
    self.config, self.region = c, o.region
    self.down, self.up = {}, {}
    for k = 1, c.stages do
        self.down[k] = Double(k == 1 and o.channels or c.width * 2 ^ (k - 2), c.width * 2 ^ (k - 1), o.place)
    end
    for k = 1, c.stages - 1 do self.up[k] = Up(c.width * 2 ^ (c.stages - 1 - k), o.up, o.place) end
    self.out = nn.Conv2d(c.width, o.classes, 1, o.place)
end)

-- Returns logits (N, classes, H, W) of images (N, channels, H, W).
function UNet:forward(x)
    local function stage(block, ...)
        if self.region then return wane.checkpoint(block, ...) end
        return block(...)
    end
    local skips = {}
    for k, block in ipairs(self.down) do
        if k > 1 then x = x:max_pool2d(2) end
        x = stage(block, x)
        skips[k] = x
    end
    for k, block in ipairs(self.up) do x = stage(block, x, skips[#skips - k]) end
    return self.out(x)
end

local known = { classes = true, channels = true, up = true, region = true, dtype = true, device = true }

--- Makes a model.
-- @param what name of a config, or a table like one
-- @param opts { classes = 2, channels = 3, up = 'transpose' or 'bilinear', region = false, dtype = 'f32', device = };
-- region: wane.checkpoint around each stage
function unet.new(what, opts)
    local c, o = unet.configs[tostring(what)] or what, { classes = 2, channels = 3, up = 'transpose' }
    if type(c) ~= 'table' then raise(nil, 'value', "unet.new: no size '%s'; known: 64 small", tostring(c)) end
    for name, value in pairs(opts or {}) do
        if not known[name] then raise(nil, 'value', "unet.new: unknown option '%s'", tostring(name)) end
        o[name] = value
    end
    if o.up ~= 'transpose' and o.up ~= 'bilinear' then
        raise(nil, 'value', "unet.new: up must be 'transpose' or 'bilinear', got %s", tostring(o.up))
    end
    o.place = { dtype = o.dtype, device = o.device }
    return UNet(c, o)
end

--- Records the mean loss over all pixels of a batch. images: (N, channels, H, W), labels: (N, H, W) i32.
function unet.loss(model, images, labels)
    return nn.cross_entropy(model(images):permute(1, 3, 4, 2), labels)
end

return unet
