-- A training that ends and goes on, on any number of ranks: spec/ranks_spec.lua compares its files and digests.
--   luajit spec/support/ranks_resume.lua ROOT FILE FROM TO [WORD]    trains from step FROM, of FILE, to TO, and saves
--   there; ranks have parameters as the word of wane.dist.place says
-- It trains until a signal where SIGNALLED is set, says that it has begun, and saves then.
local root, path, from, to = arg[1], arg[2], tonumber(arg[3]), tonumber(arg[4])
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path
local wane = require 'wane'
local nn, dist = wane.nn, wane.dist
dist.start { timeout = 30 }

wane.manual_seed(5)
local tied = nn.Linear(48, 48)
local net = nn.Sequential { nn.Linear(24, 48), tied, nn.GELU(), nn.LayerNorm(48), nn.Dropout(0.2), tied,
    nn.MLP(48, 304), nn.Linear(48, 10) }
local opt = wane.optim.AdamW(net:parameters(), { lr = 0.01, clip_norm = 1 })
if arg[5] then dist.place(net, opt, arg[5]) end
local x, y = wane.eval(wane.randn(96, 24), wane.randint(10, { 96 }))
local at = { step = 0, meta = {} }
if from > 0 then at = wane.load(path, net, { optimizer = opt }) end
local batches = wane.data.batches({ x, y }, { batch = 6, shuffle = true, seed = 1, state = at.meta.data })
local step, place = at.step, at.meta.data

local function save()
    wane.save(path, net, { optimizer = opt, step = step, meta = { data = place } })
    return step
end

local function train()
    while step < to do
        local part = batches:parts(8)
        opt:step(function(i)
            local a, b = part(i)
            return nn.cross_entropy(net(a), b)
        end, { micro = 8, partial = 2 })
        step, place = step + 1, batches:state()
        if step == from + 2 and os.getenv 'SIGNALLED' and dist.is_first then
            io.write 'begun\n'
            io.flush()
        end
    end
end

if os.getenv 'SIGNALLED' then
    local stopped = wane.on_interrupt(save, train)
    io.write(('%d> stopped %d\n'):format(dist.rank, stopped))
else
    train()
    save()
    io.write(('%d> %s\n'):format(dist.rank, require('wane.plan.measure').fingerprint(net:parameters())))
end
