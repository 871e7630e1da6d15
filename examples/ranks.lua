-- One training on any number of processes: the same script, the same bits. A small language model with a tied embedding
-- and dropout takes 5 steps of 12 micro-batches. Each rank computes its share of them, and all end with the parameters
-- of one process; the last line is a number of all their bits. It prints the same text alone and under mpirun:
--   luajit examples/ranks.lua
--   make mpi && mpirun -n 3 luajit examples/ranks.lua
-- --policy NAME     what is kept between forward and backward; each rank may have another one (default save_all)
-- --partial N       micro-batches of a partial sum: fewer bytes move, in another order of sums (default 1)
-- --place WORD      what each rank has: slice (its range of gradients and optimizer states), keep (all of them), or
--                   shard (its range of the parameters, too); the bits are the same (default slice)
--
--     step   loss
--        1   6.3960
--        2   5.9814
--        3   5.4720
--        4   4.9701
--        5   4.6200
--     parameters: 0928a541
local root = arg[0]:match('^(.*)/examples/[^/]*$') or (arg[0]:match('^examples/') and '.') or '..'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path
local opts = dofile(root .. '/examples/options.lua') { policy = 'save_all', partial = 1, place = 'slice' }
local wane = require 'wane'
local nn, optim, dist = wane.nn, wane.optim, wane.dist

dist.start {} -- joins the job of mpirun or srun; alone it does nothing

local VOCABULARY, LENGTH, WIDTH, MICRO = 64, 32, 48, 12

local Block = nn.module('Block', function(self)
    self.norm1, self.attention = nn.LayerNorm(WIDTH), nn.Attention(WIDTH, 4, { causal = true })
    self.norm2, self.mlp, self.dropout = nn.LayerNorm(WIDTH), nn.MLP(WIDTH, 4 * WIDTH), nn.Dropout(0.1)
end)
function Block:forward(x)
    x = x + self.attention(self.norm1(x))
    return x + self.dropout(self.mlp(self.norm2(x)))
end

local Model = nn.module('Model', function(self)
    self.embedding, self.norm = nn.Embedding(VOCABULARY, WIDTH), nn.LayerNorm(WIDTH)
    self.blocks = nn.Sequential { Block(), Block() }
end)
function Model:forward(tokens)
    return self.norm(self.blocks(self.embedding(tokens))):matmul(self.embedding.weight:transpose(1, 2)) * WIDTH ^ -0.5
end

wane.manual_seed(3)
local model = Model()
local opt = optim.AdamW(model:parameters(), { lr = 3e-3, clip_norm = 1 })
dist.place(model, opt, opts.place)
local text = wane.eval(wane.randint(VOCABULARY, { MICRO, 2, LENGTH + 1 }))

-- Returns the loss of micro-batch i of a step: what it reads depends on i alone.
local function loss(i)
    local tokens = text[i]
    return nn.cross_entropy(model(tokens:narrow(2, 1, LENGTH)):reshape(2 * LENGTH, VOCABULARY),
        tokens:narrow(2, 2, LENGTH):reshape(2 * LENGTH))
end

-- Returns a number of all bits of the parameters.
local function digest()
    local sum = 5381
    for _, p in ipairs(model:parameters()) do
        for _, value in ipairs(p:reshape(-1):totable()) do
            for letter in ('%a'):format(value):gmatch '.' do sum = (sum * 33 + letter:byte()) % 2 ^ 32 end
        end
    end
    return ('%08x'):format(sum)
end

if dist.is_first then print 'step   loss' end
for step = 1, 5 do
    local mean = opt:step(loss, { micro = MICRO, partial = opts.partial, policy = opts.policy })
    if dist.is_first then print(('%4d   %.4f'):format(step, mean:item())) end
end
local mine = digest()
if dist.is_first then print('parameters: ' .. mine) end
