-- Checks failures that a real GPU can have on demand: a limit that is too low, more bytes than the device has, and
-- wrong data. Each is an error with words, and the next call works and gives the bits of before.
local gpu = require 'spec.gpu.gpu'
local measure = require 'wane.plan.measure'
local networks = require 'spec.gpu.networks'
local wane = require 'wane'

local net = networks.heavy(4, 64, 16)
local want = measure.gradients(net.loss)

local function again(what)
    gpu.fact(what .. ': the next step has the bits of before', measure.gradients(net.loss) == want)
end

wane.memory.trim()
wane.memory.limit(wane.memory('cuda').reserved + 256, 'cuda')
local fine, why = pcall(measure.gradients, net.loss, 'recompute_all')
wane.memory.limit(nil, 'cuda')
gpu.fact('a limit that is too low is out of memory', not fine and why.code == 'oom', why)
gpu.fact('its message names the limit', not fine and tostring(why):find('limit', 1, true) ~= nil, why)
again 'after a limit'

fine, why = pcall(function() return wane.eval(wane.ones(2 ^ 22, 2 ^ 20)) end)
gpu.fact('16 TiB are out of memory', not fine and why.code == 'oom', why)
again 'after 16 TiB'

wane.manual_seed(1)
local rows = wane.nn.Embedding(5, 4)
local opt = wane.optim.SGD(rows:parameters(), { lr = 0.1 })
local function step(ids) opt:step((rows(wane.tensor(ids, { dtype = 'i32' })) ^ 2):sum()) end
step { 1, 2 }
local kept = measure.fingerprint(rows:parameters())
fine, why = pcall(step, { 0, 3, 9, 7 })
gpu.fact('an index outside its table is named, with its place', not fine and why.code == 'value'
    and tostring(why):find('index 9 at element 2 is outside 0..4', 1, true) ~= nil, why)
gpu.fact('nothing has changed', measure.fingerprint(rows:parameters()) == kept)
step { 1, 2 }
gpu.fact('the next step changes it', measure.fingerprint(rows:parameters()) ~= kept)
gpu.finish()
