-- A sweep: GPT blocks at two depths under six policies, each point in a process of its own. It finds the bytes that
-- each policy saves for its seconds, and checks that the gradients are the same bits under all of them.
--
--   luajit examples/sweep.lua [--d D] [--heads H] [--t T] [--batch B] [--repeats N] [--small] [--out FOLDER]
--
-- It printed (2 cores, the CPU device, other work beside it):
--
--   depth  policy         peak predicted    measured    reserved   s/step  in programs  recomputed  digest
--   -----  -------------  --------------  ----------  ----------  -------  -----------  ----------  --------  -------
--       4  save_all           33,693,696  33,693,696  33,900,800  0.05328      0.05253           0  8003ffab   noisy
--       4  sqrt               24,653,312  24,653,312  24,860,928  0.03616      0.03508          26  8003ffab   noisy
--       4  every(2)           24,653,312  24,653,312  24,860,928  0.03985      0.03927          52  8003ffab
--       4  recompute_all      20,133,120  20,133,120  20,531,456  0.03899      0.03799          48  8003ffab  *
--       4  attention          27,402,240  27,402,240  27,613,440  0.03435      0.03382           8  8003ffab  *
--       4  MLP                24,256,512  24,256,512  24,463,616  0.03581      0.03516           8  8003ffab  *
--       9  save_all           74,089,216  74,089,216  74,501,888  0.07109      0.06985           0  0306d39b  *
--       9  sqrt               46,968,064  46,968,064  46,989,056  0.09858       0.0976          80  0306d39b   noisy
--       9  every(2)           42,447,872  42,447,872  42,655,488  0.08424      0.08347         116  0306d39b  * noisy
--       9  recompute_all      37,927,680  37,927,680  38,326,016   0.1003      0.09947         108  0306d39b  *
--       9  attention          59,933,440  59,933,440  60,346,112  0.09027      0.08933          18  0306d39b
--       9  MLP                48,923,392  48,923,392  49,336,064   0.0868      0.08598          18  0306d39b
--   12 points: 12 measured; * marks what no other policy beats in peak and seconds; 4 of 12 noisy (the worst:
--     spread 132 %, load 0.9 on 2 cores): measure again on a quiet machine, or with more repeats
--
--   for each extra millisecond of a step, against save_all:
--     4 sqrt             8.62 MiB saved, no extra time measured
--     4 every(2)         8.62 MiB saved, no extra time measured
--     4 recompute_all   12.93 MiB saved, no extra time measured
--     4 attention        6.00 MiB saved, no extra time measured
--     4 MLP              9.00 MiB saved, no extra time measured
--     9 sqrt            25.86 MiB saved, 0.93 MiB a ms
--     9 every(2)        30.18 MiB saved, 2.22 MiB a ms
--     9 recompute_all   34.49 MiB saved, 1.16 MiB a ms
--     9 attention       13.50 MiB saved, 0.69 MiB a ms
--     9 MLP             24.00 MiB saved, 1.49 MiB a ms
--
--   wrote sweep.svg, sweep.csv, sweep.html to examples/out (or --out)
local root = arg[0]:match('^(.*)/examples/[^/]*$') or (arg[0]:match('^examples/') and '.') or '..'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path
local wane = require 'wane'
local nn, policy = wane.nn, wane.policy

local size = dofile(root .. '/examples/options.lua') { d = 192, heads = 6, t = 128, batch = 4,
    repeats = 5, out = root .. '/examples/out', small = { d = 32, heads = 4, t = 32, batch = 2, repeats = 1 } }

local Block = nn.module('Block', function(self, d, heads)
    self.ln1, self.attn = nn.LayerNorm(d), nn.Attention(d, heads, { dropout = 0.1, causal = true })
    self.ln2, self.mlp = nn.LayerNorm(d), nn.MLP(d, 4 * d, { dropout = 0.1 })
end)
function Block:forward(x)
    x = x + self.attn(self.ln1(x))
    return x + self.mlp(self.ln2(x))
end

-- The script above :run() runs in every process; the script below it in this one alone.
local sweep = wane.sweep {
    title = ('GPT blocks, d = %d, T = %d, batch %d'):format(size.d, size.t, size.batch),
    build = function(p)
        local blocks = {}
        for i = 1, p.depth do blocks[i] = Block(size.d, size.heads) end
        local model = nn.Sequential(blocks)
        local x = wane.randn(size.batch, size.t, size.d):retain()
        return function() return (model(x) ^ 2):mean() end, model
    end,
    grid = {
        depth = { 4, 9 },
        policy = { 'save_all', 'sqrt', 'every(2)', 'recompute_all',
            { name = 'attention', value = policy.by_type { Attention = 'recompute', default = 'save' } },
            { name = 'MLP', value = policy.by_type { MLP = 'recompute', default = 'save' } } },
    },
    repeats = size.repeats,
}:run()

print(sweep)
print('\nfor each extra millisecond of a step, against save_all:')
local base
for _, row in ipairs(sweep:rows()) do
    if row.point.policy == 'save_all' then
        base = row
    else
        local saved, extra = (base.peak - row.peak) / wane.MiB, 1000 * (row.seconds - base.seconds)
        print(('  %d %-14s %6.2f MiB saved%s'):format(row.point.depth, row.point.policy, saved,
            extra > 0 and (', %.2f MiB a ms'):format(saved / extra) or ', no extra time measured'))
    end
end
sweep:plot(size.out .. '/sweep.svg')
sweep:csv(size.out .. '/sweep.csv')
sweep:report(size.out .. '/sweep.html')
print('\nwrote sweep.svg, sweep.csv, sweep.html to examples/out (or --out)')
