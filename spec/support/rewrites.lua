--- Runs what a script records with rewrites (runtime/plan/ir/rewrite.c) and without, for specs of their patterns.
local assert = require 'luassert'
local wane = require 'wane'
local binding = require 'wane.ffi'
local programs = require 'spec.support.programs'
local gradcheck = require 'spec.support.gradcheck'

local C = binding.C
local rewrites = {}

--- Calls fn(...) without rewrites.
function rewrites.split(fn, ...)
    binding.check(C.wn_debug('rewrite', 0))
    local function restore(ok, ...)
        binding.check(C.wn_debug('rewrite', 1))
        if not ok then error((...), 0) end
        return ...
    end
    return restore(pcall(fn, ...))
end

--- Runs build() -> request, tensors whose bytes matter after it. Returns { ops =, peak =, moved =, bytes = }.
function rewrites.run(build)
    wane.manual_seed(3)
    local request, outputs = build()
    local p = programs.run(request)
    assert.equal(p.predicted.peak, p.measured.peak)
    assert.equal(p.predicted.reserved, p.measured.reserved)
    assert.equal(0, C.wn_verify(p.handle))
    local out = { ops = {}, count = {}, last = {}, peak = p.predicted.peak, moved = programs.moved(p), bytes = {} }
    for _, step in ipairs(programs.schedule(p)) do
        if step.what == 'run' then
            out.ops[#out.ops + 1] = step.op
            out.count[step.op] = (out.count[step.op] or 0) + 1
            out.last[step.phase] = #out.ops
        end
    end
    if type(outputs) == 'function' then outputs = outputs() end
    for k, t in ipairs(outputs) do out.bytes[k] = gradcheck.bytes(t) end
    out.bytes = table.concat(out.bytes, '|')
    return out
end

--- Checks that the pattern is found (its name is in the schedule), gives the same bits, moves fewer bytes and holds no
-- more, or at most `more` bytes more; returns both runs.
function rewrites.better(build, word, more)
    local fused, apart = rewrites.run(build), rewrites.split(rewrites.run, build)
    local list = table.concat(fused.ops, ' ')
    assert.is_truthy(fused.count[word], word .. ' not in: ' .. list)
    assert.is_nil(apart.count[word], 'not apart: ' .. table.concat(apart.ops, ' '))
    assert.is_true(#fused.bytes > 0)
    assert.equal(apart.bytes, fused.bytes)
    assert.is_true(fused.moved < apart.moved, fused.moved .. ' bytes moved, apart ' .. apart.moved)
    assert.is_true(fused.peak <= apart.peak + (more or 0), fused.peak .. ' bytes held, apart ' .. apart.peak)
    return fused, apart
end

--- Returns the request of a backward, and a function that returns the loss and the gradients of parameters.
function rewrites.backward(loss, parameters)
    return { mode = 'backward', roots = { loss } }, function()
        local grads = { loss }
        for k, p in ipairs(parameters) do grads[k + 1] = p.grad end
        return grads
    end
end

return rewrites
