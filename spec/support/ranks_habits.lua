-- Habits of scripts that hold their optimizers in their own hands, as one process and as many: spec/ranks_spec.lua
-- compares what they print, the digest of the parameters behind each.
--   luajit spec/support/ranks_habits.lua ROOT [RANKS ON EACH MACHINE [WORD of dist.place]]
local root = arg[1]
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path
local wane = require 'wane'
local nn, optim, dist = wane.nn, wane.optim, wane.dist
local fingerprint = require('wane.plan.measure').fingerprint
dist.start { timeout = 30, per_node = tonumber(arg[2]) }

local x, y, net

-- Makes an optimizer, whose states ranks have as the command line says.
local function made(class, params, opts)
    local opt = optim[class](params, opts)
    if arg[3] then dist.place(net, opt, arg[3]) end
    return opt
end

local function loss(i)
    return nn.cross_entropy(net(x:narrow(1, 6 * i - 5, 6)), y:narrow(1, 6 * i - 5, 6))
end

-- Names of habits, in their order, and what each does.
local habits = {
    { 'two steps by hand, whose gradients are clipped by their norm', function()
        local opt = made('AdamW', net:parameters(), { lr = 0.01 })
        for _ = 1, 2 do
            wane.accumulate(loss, { micro = 8 })
            local norm = optim.clip_grad_norm(net:parameters(), 0.1):item()
            opt:step()
            opt:zero_grad()
            io.write(('%d> %.9g\n'):format(dist.rank, norm))
        end
    end },
    { 'gradients clipped by their values', function()
        local opt = made('SGD', net:parameters(), { lr = 0.1, momentum = 0.9 })
        for _ = 1, 2 do
            wane.accumulate(loss, { micro = 8, partial = 2 })
            optim.clip_grad_value(net:parameters(), 1e-3)
            opt:step()
            opt:zero_grad()
        end
    end },
    { 'gradients of two batches added, in whole and in ranges', function()
        local opt = optim.Lion(net:parameters(), { lr = 0.01 })
        dist.place(net, opt, { ['2'] = 'keep', ['5.bias'] = 'keep' })
        for _ = 1, 2 do
            wane.accumulate(loss, { micro = 8 })
            wane.accumulate(loss, { micro = 4, partial = 4 })
            opt:step()
            opt:zero_grad()
        end
    end },
    { 'two optimizers, of which one trains half as often', function()
        local all, first, last = net:parameters(), {}, {}
        for k, p in ipairs(all) do table.insert(k % 2 == 0 and first or last, p) end
        local a, b = made('AdamW', first, { lr = 0.01 }), made('RMSprop', last, { lr = 0.001, clip_norm = 1 })
        for k = 1, 4 do
            wane.accumulate(loss, { micro = 8 })
            a:step()
            if k % 2 == 0 then b:step() end
            a:zero_grad()
            if k % 2 == 0 then b:zero_grad() end
        end
    end },
    { 'a group that joins later, a layer that is frozen, and one that is not any more', function()
        local opt = made('AdamW', net[1]:parameters(), { lr = 0.01, clip_norm = 1 })
        for _, p in ipairs(net[5]:parameters()) do p.requires_grad = false end
        opt:step(loss, { micro = 8 })
        for _, p in ipairs(net[5]:parameters()) do p.requires_grad = true end
        opt:add_param_group { params = net[5]:parameters(), lr = 0.1 }
        opt:step(loss, { micro = 8 })
        for _, p in ipairs(net[1]:parameters()) do p.requires_grad = false end
        opt:step(loss, { micro = 8 })
        for _, p in ipairs(net[1]:parameters()) do p.requires_grad = true end
        opt:step(loss, { micro = 8 })
    end },
    { 'states that another optimizer takes over, and a model that becomes bf16', function()
        local opt = made('AdamW', net:parameters(), { lr = 0.01 })
        opt:step(loss, { micro = 8 })
        local other = made('AdamW', net:parameters(), { lr = 0.02 })
        other:load_state_dict(opt:state_dict())
        other:step(loss, { micro = 8 })
        net:to 'bf16'
        x = wane.eval(x:to 'bf16')
        other:step(loss, { micro = 8 })
        other:step(loss, { micro = 8 })
    end },
    { 'states of a model that no optimizer has, whose weights lie otherwise', function()
        local opt = made('AdamW', net:parameters(), { lr = 0.01 })
        opt:step(loss, { micro = 8 })
        local other = nn.Sequential { nn.Linear(24, 208), nn.LayerNorm(208), nn.GELU(), nn.Dropout(0.1),
            nn.Linear(208, 80) }
        net:load_state_dict(other:state_dict())
        net[1].weight:assign(other[1].weight * 2)
        opt:step(loss, { micro = 8 })
    end },
    { 'a search for values that are not finite, with a batch norm', function()
        local norm = nn.BatchNorm2d(16)
        local images = wane.eval(wane.randn(16, 3, 6, 6))
        net = nn.Sequential { nn.Conv2d(3, 16, 3), norm, nn.ReLU(), nn.Flatten(), nn.Linear(256, 64) }
        local opt = made('AdamW', net:parameters(), { lr = 0.01 })
        wane.anomaly(true)
        local fine, why = pcall(function()
            for _ = 1, 2 do
                opt:step(function(i) return net(images:narrow(1, 2 * i - 1, 2)):pow(2):mean() end, { micro = 8,
                    partial = 2 })
            end
        end)
        wane.anomaly(false)
        if not fine then error(why, 0) end
        io.write(('%d> %s\n'):format(dist.rank, fingerprint { norm.running_mean, norm.running_var }))
    end },
    { 'the moving average of the parameters', function()
        local opt = made('AdamW', net:parameters(), { lr = 0.01 })
        local ema = optim.EMA(net, { decay = 0.9 })
        for _ = 1, 3 do
            opt:step(loss, { micro = 8 })
            ema:update()
        end
        ema:swap_in()
    end },
}

for _, habit in ipairs(habits) do
    wane.manual_seed(11)
    net = nn.Sequential { nn.Linear(24, 208), nn.LayerNorm(208), nn.GELU(), nn.Dropout(0.1), nn.Linear(208, 80) }
    x, y = wane.eval(wane.randn(48, 24), wane.randint(80, { 48 }))
    local fine, why = pcall(habit[2])
    io.write(('%d> %s: %s\n'):format(dist.rank, habit[1], fine and fingerprint(net:parameters()) or tostring(why)))
    io.flush()
end
