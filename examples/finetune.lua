-- Finetunes a GPT-2 on a text within a budget of bytes: all of its weights, or small adapters beside frozen layers
-- (LoRA, Hu et al., 2021). Without --weights a small model over bytes is made on the spot: it is trained for a moment
-- on the pages of this project, saved, and then taught a text of another kind.
--
--   luajit examples/finetune.lua [--budget BYTES] [--lora RANK] [--data FILE] [--steps N] [--stop N] [--lr RATE]
--                                [--weights PATH --tokens FILE.npy] [--batch B] [--length T] [--pretrain N]
--                                [--seed S] [--resume] [--out FOLDER]
--
-- --weights takes published weights (a folder, a file or an index, see zoo/published.lua), and --tokens the ids that
-- their tokenizer gave for a text, as numpy saves them. --resume goes on with the run in the folder, with the same
-- bits, after --stop or a kill. With --lora the checkpoint holds the adapters and their optimizer's state alone.
--
-- It printed with --budget 4MiB, and then with --lora 8 --budget 3MiB (2 cores, 2 seconds each):
--
--   a model of 170,560 parameters, trained for 120 steps on the front page: loss 3.407
--   held-out text before: loss 3.116
--   trained: 170,560 of 170,560 parameters
--   a step: 4,160,768 bytes predicted at the peak, 4,160,768 measured; 4,160,768 reserved, within 4MiB
--   step   30 of 120  loss 1.860
--   step   60 of 120  loss 1.364
--   step   90 of 120  loss 1.214
--   step  120 of 120  loss 1.104
--   held-out text after step 120: loss 1.130
--
--   trained: 24,576 of 195,136 parameters
--   a step: 3,130,624 bytes predicted at the peak, 3,130,624 measured; 3,130,624 reserved, within 3MiB
--   step   30 of 120  loss 2.636
--   step   60 of 120  loss 2.500
--   step   90 of 120  loss 2.361
--   step  120 of 120  loss 2.418
--   held-out text after step 120: loss 2.413
local root = (arg[0]:match('^(.*)/') or '.') .. '/..'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path
local wane = require 'wane'
local gpt2 = require 'wane.zoo.gpt2'
local system = require 'wane.system'

local nn, optim, exact = wane.nn, wane.optim, wane.bytes.exact

local SMALL = { vocab = 256, context = 64, layers = 3, heads = 4, d = 64 }

-- ---- adapters ------------------------------------------------------------------------------------------------------

-- Adds a product of two thin matrices to a frozen layer: y = linear(x) + (x a^T) b^T alpha / rank. b is at first zero,
-- so that the model begins as it was.
local LoRA = nn.module('LoRA', function(self, linear, rank, alpha)
    self.linear = linear:requires_grad(false)
    self.a = nn.Parameter(wane.randn(rank, linear.n_in) / math.sqrt(linear.n_in))
    self.b = nn.Parameter(wane.zeros(linear.n_out, rank))
    self.scale = alpha / rank
end)
function LoRA:forward(x)
    local thin = x:matmul(self.a, { transpose_b = true }):matmul(self.b, { transpose_b = true })
    return self.linear(x) + self.scale * thin
end

-- Holds the parameters of all adapters, so that they are saved without the model.
local Adapters = nn.module('Adapters', function(self) self.a, self.b = {}, {} end)

-- Freezes a model and puts an adapter beside each of its linear layers. Returns the adapters.
local function adapt(model, rank)
    model:requires_grad(false)
    local a, b = {}, {}
    for _, block in ipairs(model.blocks) do
        local attn, mlp = block.attn, block.mlp
        for _, place in ipairs { { attn, 'qkv' }, { attn, 'out' }, { mlp, 'up' }, { mlp, 'down' } } do
            local owner, name = place[1], place[2]
            owner[name] = LoRA(owner[name], rank, 2 * rank)
            a[#a + 1], b[#b + 1] = owner[name].a, owner[name].b
        end
    end
    local adapters = Adapters()
    adapters.a, adapters.b = a, b
    return adapters
end

-- ---- text ----------------------------------------------------------------------------------------------------------

-- Returns a text of another kind than the project's pages: lines of sums in words.
local function sums()
    local words, lines = { [0] = 'zero', 'one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight', 'nine' }, {}
    for k = 1, 2000 do
        local a, b = 7 * k % 5, 3 * k % 5
        lines[k] = ('%s and %s make %s.'):format(words[a], words[b], words[a + b])
    end
    return table.concat(lines, '\n')
end

local function write(path, text)
    local file = assert(io.open(path, 'wb'))
    file:write(text)
    file:close()
    return path
end

-- Cuts windows out of ids: { ids (n, length), the ids that follow each (n, length) }.
local function windows(ids, from, count, length)
    local n = math.floor((count - 1) / length)
    if n < 1 then error(('%d tokens are too few for windows of %d'):format(count, length), 0) end
    local function rows(at) return wane.eval(ids:narrow(1, at, n * length):reshape(n, length)) end
    return { rows(from), rows(from + 1) }
end

-- Returns the tokens to learn from, and those that are only measured.
local function read_tokens(options)
    if options.tokens then
        local ids = wane.data.npy(options.tokens)
        local n = ids:numel()
        local cut = math.floor(0.9 * n)
        ids = wane.eval(ids:reshape(n):to 'i32')
        return windows(ids, 1, cut, options.length), windows(ids, cut + 1, n - cut, options.length)
    end
    local path = options.data or write(options.out .. '/finetune.txt', sums())
    return wane.data.tokens(path, { vocab = 'byte' }):split(0.9)
end

-- ---- models --------------------------------------------------------------------------------------------------------

local function batches_of(data, options, state)
    local length = not options.tokens and options.length or nil
    return wane.data.batches(data, { batch = options.batch, length = length, shuffle = true, seed = options.seed,
        state = state })
end

-- Returns the model to begin with: published weights, or a small one that is made here once and kept.
local function base_model(options)
    if options.weights then return gpt2.load(options.weights, { dropout = 0 }) end
    local path, model = options.out .. '/finetune_base.safetensors', gpt2.new(SMALL)
    if options.resume then
        wane.load(path, model)
        return model
    end
    local opt = optim.AdamW(model:parameters(), { lr = 3e-3, clip_norm = 1 })
    local batches = batches_of(wane.data.tokens(root .. '/README.md', { vocab = 'byte' }), options)
    local loss
    for _ = 1, options.pretrain do
        local x, y = batches:next()
        loss = opt:step(gpt2.loss(model, x, y))
    end
    print(('a model of %s parameters, trained for %d steps on the front page: loss %.3f'):format(
        exact(model:parameter_count()), options.pretrain, loss:item()))
    wane.save(path, model)
    return model
end

local function trained(model)
    local list, count = {}, 0
    for _, p in ipairs(model:parameters()) do
        if p.requires_grad then list[#list + 1], count = p, count + p:numel() end
    end
    return list, count
end

-- Returns the mean loss of a model on a few batches of a text.
local function examine(model, data, options)
    local sum, count = 0, 0
    for x, y in batches_of(data, options) do
        sum, count = sum + wane.no_grad(gpt2.loss, model, x, y):item(), count + 1
        if count == 8 then break end
    end
    return sum / count
end

-- ---- a run ---------------------------------------------------------------------------------------------------------

-- Makes one step and takes it back; prints its predicted and its measured bytes.
local function look_at_a_step(run, options)
    local x, y = batches_of(run.data, options):next()
    local function loss() return gpt2.loss(run.model, x, y) end
    wane.save(run.file, run.kept, { optimizer = run.opt, step = run.step, meta = { data = run.state } })
    local m = wane.measure(loss, { optimizer = run.opt, steps = 1, budget = options.budget })
    wane.load(run.file, run.kept, { optimizer = run.opt })
    print(('a step: %s bytes predicted at the peak, %s measured; %s reserved%s'):format(exact(m.predicted_peak),
        exact(m.peak), exact(m.reserved), options.budget and ', within ' .. options.budget or ''))
    if not m.exact then error('the bytes measured are not those predicted', 0) end
end

local function train(run, options)
    local batches = batches_of(run.data, options, run.state)
    local rate = optim.schedule.cosine(options.lr, { steps = options.steps, warmup = math.floor(options.steps / 10) })
    local last = math.min(options.stop or options.steps, options.steps)
    for step = run.step + 1, last do
        run.opt.lr = rate(step)
        local x, y = batches:next()
        local loss = run.opt:step(gpt2.loss(run.model, x, y), { budget = options.budget })
        if step % math.max(1, math.floor(options.steps / 4)) == 0 then
            print(('step %4d of %d  loss %.3f'):format(step, options.steps, loss:item()))
        end
    end
    run.step, run.state = last, batches:state()
    wane.save(run.file, run.kept, { optimizer = run.opt, step = last, meta = { data = run.state } })
end

local read, refuse = dofile(root .. '/examples/options.lua')

local function options_of()
    local out = read({ steps = 120, batch = 8, length = 32, pretrain = 120, seed = 1, out = root .. '/examples/out',
        resume = false }, { budget = '', lora = 1, data = '', stop = 1, lr = 1, weights = '', tokens = '' })
    if (out.weights == nil) ~= (out.tokens == nil) then
        refuse '--weights and --tokens go together: published weights need the ids of their own tokenizer'
    end
    for _, name in ipairs { 'lora', 'steps', 'stop', 'batch', 'length', 'pretrain' } do
        if out[name] and (out[name] < 1 or out[name] % 1 ~= 0) then
            refuse('--%s takes a whole number from 1, got %g', name, out[name])
        end
    end
    out.lr = out.lr or (out.lora and 1e-2 or 2e-3)
    return out
end

local function main()
    local options = options_of()
    system.make_folders(options.out .. '/x')
    wane.manual_seed(options.seed)
    local model = base_model(options)
    local data, held = read_tokens(options)
    if not options.resume then print(('held-out text before: loss %.3f'):format(examine(model, held, options))) end
    local kept = options.lora and adapt(model, options.lora) or model
    local parameters, count = trained(model)
    local run = { model = model, kept = kept, data = data, step = 0, file = options.out .. '/finetune.safetensors',
        opt = optim.AdamW(parameters, { weight_decay = 0, clip_norm = 1 }) }
    print(('trained: %s of %s parameters'):format(exact(count), exact(model:parameter_count())))
    if options.resume then
        local at = wane.load(run.file, kept, { optimizer = run.opt })
        run.step, run.state = at.step, at.meta.data
        print(('goes on after step %d'):format(run.step))
    else
        run.state = batches_of(data, options):state()
        look_at_a_step(run, options)
    end
    train(run, options)
    print(('held-out text after step %d: loss %.3f'):format(run.step, examine(model, held, options)))
end

local fine, why = pcall(main)
if not fine then
    io.stderr:write('finetune: ', tostring(wane.errors.is(why) and why.message or why), '\n')
    os.exit(1, true)
end
