--- Gradients of a batch that comes in parts, with one part in memory at a time.
--
-- fn(i) records micro-batch i and returns its loss. Its forward and backward run at once, so that the values which they
-- keep are gone before micro-batch i + 1 is recorded. Gradients are added into the cells in that order, each scaled by
-- 1/n, so opt:step() after it has the bits of opt:step({l1, ..., ln}, {scale = 1/n}).
-- @module wane.program.accumulate

local errors = require 'wane.errors'
local grad = require 'wane.program.grad'
local tensor = require 'wane.tensor'
local scoped = require 'wane.scoped'

local raise = errors.raise
local what = 'wane.accumulate'

local function add(total, loss)
    return total == nil and loss or total + loss
end

--- Runs forward and backward of n micro-batches, one after the other. A run point.
-- Gradients are added to those that the cells hold already (opt:zero_grad() clears them). When fn or a run fails, the
-- gradients of the micro-batches before it stay, and the error goes on; a run that fails while it adds to gradients (a
-- disk that fails under an offloaded value) drops them, and the error says so.
-- @function wane.accumulate
-- @param fn function(i), i from 1 to n, that records a micro-batch and returns its loss: a tensor of one element
-- @param opts {micro = n, mean = true: losses and gradients are divided by n; policy =, budget =: of each micro-batch}
-- @return the mean of the losses (their sum with mean = false): a tensor, computed when it is read
-- @usage
-- local inputs, labels = wane.randn(8, 8), wane.randint(4, { 8 })
-- local mean = wane.accumulate(function(i)
--     return nn.cross_entropy(model(inputs:narrow(1, 2 * i - 1, 2)), labels:narrow(1, 2 * i - 1, 2))
-- end, { micro = 4 })
-- opt:step()
-- print(mean:item() > 0) --> true
local function accumulate(fn, opts)
    if type(fn) ~= 'function' then
        raise(nil, 'value', '%s: expected a function(i) that returns a loss, got %s', what, errors.describe(fn))
    end
    opts = errors.check_options(opts, { 'micro', 'mean', 'policy', 'budget' }, what)
    local n = errors.count(opts.micro, what .. ': micro', 1, 65536)
    errors.check_flags(opts, { 'mean' }, what)
    local scale = opts.mean ~= false and 1 / n or nil
    local total
    for i = 1, n do
        local loss = fn(i)
        if not tensor.is(loss) then
            raise(nil, 'value', '%s: the function must return the loss of micro-batch %d, got %s', what, i,
                errors.describe(loss))
        end
        grad.check_root(loss, what)
        loss:backward { scale = scale, policy = opts.policy, budget = opts.budget }
        total = scoped('grad', 0, add, total, loss)
    end
    return scale and scoped('grad', 0, add, nil, total * scale) or total
end
-- Compiled code holds the first closures that it was made for, and the batches that they name, for as long as it lives.
-- So no function of the library that calls one of the script's again and again is compiled.
jit.off(accumulate)
return accumulate
