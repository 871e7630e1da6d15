-- Vision transformers: an image is cut into patches, which are the positions of a transformer's encoder. Dosovitskiy et
-- al., "An Image is Worth 16x16 Words", 2021.
--
--   local vit = require 'wane.zoo.vit'
--   local model = vit.new('B/16', { classes = 1000 })   -- 'B/16' 'L/16' 'small'
--   local loss = vit.loss(model, images, labels)        -- images (N, 3, size, size), labels (N) i32, 0-based
--
-- A convolution with a kernel as large as its stride is a product over patches, so patches are projected by nn.Linear:
-- the images are rearranged once, and no value lies otherwise than the next op reads it.
local wane = require 'wane'

local nn, raise = wane.nn, wane.errors.raise

local vit = {}

--- Sizes by name. Fields: size of the image and of a patch, layers, heads, d (width of the stream), mlp (of its MLP).
vit.configs = {
    ['B/16'] = { size = 224, patch = 16, layers = 12, heads = 12, d = 768, mlp = 3072 },
    ['L/16'] = { size = 224, patch = 16, layers = 24, heads = 16, d = 1024, mlp = 4096 },
    small = { size = 32, patch = 8, layers = 3, heads = 4, d = 64, mlp = 128 }, -- trains on a CPU in seconds
}

--- Counts of parameters of the published models, with 1000 classes.
vit.parameters = { ['B/16'] = 86567656, ['L/16'] = 304326632 }

local Block = nn.module('Block', function(self, c, o)
    self.ln1 = nn.LayerNorm(c.d, { eps = 1e-6, dtype = o.dtype, device = o.device })
    self.attn = nn.Attention(c.d, c.heads, { dropout = o.dropout, dtype = o.dtype, device = o.device })
    self.drop = nn.Dropout(o.dropout)
    self.ln2 = nn.LayerNorm(c.d, { eps = 1e-6, dtype = o.dtype, device = o.device })
    self.mlp = nn.MLP(c.d, c.mlp, { act = 'gelu', dropout = o.dropout, dtype = o.dtype, device = o.device })
end)

function Block:forward(x)
    x = x + self.drop(self.attn(self.ln1(x)))
    return x + self.mlp(self.ln2(x))
end

local ViT = nn.module('ViT', function(self, c, o)
    self.config, self.channels, self.region = c, o.channels, o.region
    local positions = (c.size / c.patch) ^ 2 + 1
    self.patches = nn.Linear(o.channels * c.patch * c.patch, c.d, o.place)
    self.class = nn.Parameter(wane.zeros(1, 1, c.d, o.place))
    self.positions = nn.Parameter(wane.randn(1, positions, c.d, o.place) * 0.02)
    self.drop = nn.Dropout(o.dropout)
    self.blocks = {}
    for i = 1, c.layers do self.blocks[i] = Block(c, o) end
    self.norm = nn.LayerNorm(c.d, { eps = 1e-6, dtype = o.dtype, device = o.device })
    self.head = nn.Linear(c.d, o.classes, o.place)
end)

-- Returns the patches of images (N, channels, size, size) as rows: (N, patches, channels patch patch).
local function rows_of(self, images)
    local c, shape = self.config, images.shape
    local n, side = shape[1], c.size / c.patch
    if #shape ~= 4 or shape[2] ~= self.channels or shape[3] ~= c.size or shape[4] ~= c.size then
        raise(nil, 'shape', 'vit: images (%s) given, expected (batch, %d, %d, %d)', table.concat(shape, ', '),
            self.channels, c.size, c.size)
    end
    local cut = images:reshape(n, self.channels, side, c.patch, side, c.patch):permute(1, 3, 5, 2, 4, 6)
    return cut:reshape(n, side * side, self.channels * c.patch * c.patch)
end

-- Returns logits (N, classes).
function ViT:forward(images)
    local x = self.patches(rows_of(self, images))
    local first = self.class:expand(x.shape[1], 1, self.config.d)
    x = self.drop(wane.cat({ first, x }, 2) + self.positions)
    for _, block in ipairs(self.blocks) do x = self.region and wane.checkpoint(block, x) or block(x) end
    return self.head(self.norm(x):narrow(2, 1, 1):reshape(x.shape[1], self.config.d))
end

local known = { classes = true, channels = true, dropout = true, region = true, dtype = true, device = true }

--- Makes a model.
-- @param what name of a config, or a table like one
-- @param opts { classes = 1000, channels = 3, dropout = 0, region = false, dtype = 'f32', device = }; region:
-- wane.checkpoint around each block
function vit.new(what, opts)
    local c, o = vit.configs[what] or what, { classes = 1000, channels = 3, dropout = 0 }
    if type(c) ~= 'table' then raise(nil, 'value', "vit.new: no size '%s'; known: B/16 L/16 small", tostring(c)) end
    for name, value in pairs(opts or {}) do
        if not known[name] then raise(nil, 'value', "vit.new: unknown option '%s'", tostring(name)) end
        o[name] = value
    end
    o.place = { dtype = o.dtype or 'f32', device = o.device }
    return ViT(c, o)
end

--- Records the mean loss of a batch. images: (N, channels, size, size), labels: (N) i32.
function vit.loss(model, images, labels)
    return nn.cross_entropy(model(images), labels)
end

return vit
