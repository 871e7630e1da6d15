-- Checks oneDNN's convolutions (kernels/cpu/backend/onednn_conv.c, kernels/cpu/conv/made.c) in processes with
-- WANE_ONEDNN set: the library of this machine for results, and fake libraries for what happens when it declines or
-- fails. onednn_spec has what is the same for products.
local helper = require 'spec.helper'
local native = require 'spec.support.native'
local processes = require 'spec.support.onednn_processes'

local WORDS = { conv = 3, bits = 3, trained = 1, ['plans agree'] = 1, refused = 1 }

local function run(environment, what)
    return processes.run('spec/support/onednn_conv.lua', WORDS, environment, what)
end

local OPS = { 'conv2d', 'conv2d_dx', 'conv2d_dw' }
local LARGE = { '3x3', '3x3 in panels', '1x1', '1x1 in panels, stride', 'stride', 'odd', 'dilation', 'stem', 'groups',
    'groups in panels', 'depthwise' }
local here = processes.line 'WANE_ONEDNN=on'

-- Calls fn with each op of the shapes named, in both dtypes: what the fact of it is called behind its first word.
local function each(names, fn)
    for _, dtype in ipairs { 'f32', 'bf16' } do
        for _, name in ipairs(names) do
            for _, op in ipairs(OPS) do fn(('%s %s %s'):format(name, op, dtype)) end
        end
    end
end

describe('oneDNN of this machine', function()
    if not here:match '^%d+%.%d+%.%d+ makes large products and convolutions of f32 and bf16' then
        pending('is not tried: ' .. here)
        return
    end
    local on, off, text

    setup(function()
        on, text = run 'WANE_ONEDNN=on'
        off = run 'WANE_ONEDNN=off'
    end)

    it('makes large convolutions and their gradients, each near the one in f64, with the bytes of the plan', function()
        local scratch = 0
        each(LARGE, function(name)
            local f = on['conv ' .. name]
            assert.same({ '1', '0' }, { f[1], f[3] }, name)
            if tonumber(f[2]) > 0 then scratch = scratch + 1 end
        end)
        assert.equal(66, scratch) -- predicted as measured, or the script stops
    end)

    it('leaves small ones to own kernels', function()
        each({ 'small' }, function(name)
            assert.same({ '0', '0', '0' }, { unpack(on['conv ' .. name], 1, 3) }, name)
            assert.is_truthy(on['bits ' .. name][1])
            assert.same(off['bits ' .. name], on['bits ' .. name], name)
        end)
    end)

    it('makes none when it is off', function()
        each(LARGE, function(name) assert.equal('0', off['conv ' .. name][1], name) end)
    end)

    it('gives a convolution the same bits twice', function()
        each(LARGE, function(name) assert.equal('1', on['conv ' .. name][4], name) end)
    end)

    it('gives a training the same bits under every plan and in checked runs', function()
        for _, dtype in ipairs { 'f32', 'bf16' } do
            assert.equal('6', on['trained ' .. dtype][2])
            assert.same({ '2' }, on['plans agree ' .. dtype])
        end
        assert.same({ on['trained f32'][1] }, on.checked)
        assert.not_same(off['trained f32'][1], on['trained f32'][1]) -- or the library computed nothing
    end)

    it('gives the same bits in the next process, whatever the number of threads', function()
        assert.equal(text, select(2, run 'WANE_ONEDNN=on'))
        for _, n in ipairs(helper.is_long and { 1, 3 } or {}) do
            local threads = ('WANE_THREADS=%d WANE_ONEDNN=on'):format(n)
            local _, once = run(threads)
            assert.equal(once, select(2, run('OMP_NUM_THREADS=5 ' .. threads)))
        end
    end)

    it('gives a convolution the bits of separate ops under what follows it', function()
        local output, code = helper.shell('WANE_ONEDNN=on luajit spec/run.lua spec/image_rewrite_spec.lua 2>&1')
        assert.equal(0, code, output)
    end)

    it('lets go of what it made', function()
        assert.same({ '0' }, on.left)
    end)

    it('takes the same bytes on meta, where it leaves nothing behind', function()
        local cpu, meta = run('WANE_ONEDNN=on', 'plan'), run('WANE_ONEDNN=on WANE_DEVICE=meta', 'plan')
        local own = run('WANE_ONEDNN=off', 'plan')
        assert.is_true(tonumber(cpu.plan[2]) > 0)
        assert.equal('0', meta.plan[2])
        assert.equal(cpu.plan[1], meta.plan[1])
        assert.not_equal(own.plan[1], cpu.plan[1])
    end)

    it('lets go of what it made, whichever allocation of a run fails', function()
        local facts = run('WANE_ONEDNN=on', 'failing')
        assert.is_true(tonumber(facts.failed[1]) > 10)
        assert.same({ '0' }, facts.left)
    end)

    it('asks nobody for memory while it runs', function()
        local watch = ' LD_PRELOAD=' .. native.foreign()
        local environments = helper.is_long and { 'WANE_ONEDNN=on', processes.BELOW } or { 'WANE_ONEDNN=on' }
        for _, environment in ipairs(environments) do
            local facts = run(environment .. watch, 'shapes')
            each(LARGE, function(name) assert.equal('0', facts['conv ' .. name][5], name) end)
        end
    end)
end)

describe('oneDNN of this machine, held to less than AVX-512', function()
    local less = processes.line(processes.BELOW)
    if not less:match '^%d+%.%d+%.%d+ makes large convolutions of f32' then
        pending('is not tried: ' .. less)
        return
    end

    it('makes y alone, and leaves what takes memory of its own to own kernels, to the bit', function()
        local below, off = run(processes.BELOW, 'shapes'), run('WANE_ONEDNN=off', 'shapes')
        local made = { conv2d = 0, conv2d_dx = 0, conv2d_dw = 0 }
        each(LARGE, function(name)
            local f, op = below['conv ' .. name], name:match '(conv2d[_a-z]*) b?f'
            assert.equal('0', f[3], name)
            made[op] = made[op] + tonumber(f[1])
            if f[1] == '1' then return end
            assert.same(off['bits ' .. name], below['bits ' .. name], name)
            assert.equal(off['conv ' .. name][2], f[2], name)
        end)
        assert.same({ conv2d = 10, conv2d_dx = 1, conv2d_dw = 1 }, made) -- in f32
    end)
end)

describe('a fake oneDNN', function()
    local dir, own
    setup(function()
        dir = helper.lines('mktemp -d')[1]
        own = run('WANE_ONEDNN=off', 'conv')
    end)
    teardown(function() helper.shell('rm -r ' .. dir) end)

    local function fake(options) return processes.fake(dir, options) end

    -- Checks that own kernels make the convolutions, to the bit, and that the fake computes none; returns the state
    -- that the process prints.
    local function unused(environment)
        local facts = run(environment, 'conv')
        for _, op in ipairs(OPS) do
            local name = ('one %s f32'):format(op)
            assert.same(own['conv ' .. name], facts['conv ' .. name])
            assert.is_truthy(own['bits ' .. name][1])
            assert.same(own['bits ' .. name], facts['bits ' .. name])
        end
        assert.is_false(processes.computed(dir))
        return facts.state[1]
    end

    it('computes when it can be used, with the threads of kernels: the other cases would be seen', function()
        local copy = 48 * 64 * 9 * 4 -- of the weight, which is in panels
        for _, major in ipairs { 2, 3 } do
            local facts = run(fake { MAJOR = major, MINOR = 6, SCRATCH = 5000, WEIGHT = 1000 }, 'conv')
            assert.equal(major .. '.6.0 makes large products and convolutions of f32 and bf16', facts.state[1])
            for _, op in ipairs(OPS) do
                local f = facts[('conv one %s f32'):format(op)]
                assert.same({ '1', tostring(copy + 1024 + 5120) }, { f[1], f[2] })
                assert.not_equal('0', f[3]) -- it leaves the result as it was, and that is noticed
            end
            assert.is_true(processes.computed(dir))
            assert.same({ '0' }, facts.left)
        end
    end)

    it('that wants more scratch than threads may have, or memory of its own, or has nothing that fits', function()
        local products = '3.2.0 makes large products of f32 and bf16'
        assert.equal('3.2.0 makes large products and convolutions of f32 and bf16', unused(fake { SCRATCH = 2 ^ 24 }))
        assert.equal(products, unused(fake { CONV = '\\"x64:gemm:jit\\"' }))
        assert.equal(products, unused(fake { CONV = '\\"ref:any\\"' }))
        assert.equal(products, unused(fake { MAKE_CONV = 3 }))
        assert.equal('3.2.0 makes large convolutions of f32 and bf16',
            run(fake { NAME = '\\"gemm:jit\\"' }, 'conv').state[1])
    end)

    it('that runs out of memory or fails stops the run, and not the process', function()
        local facts = run(fake { MAKE_CONV = 1 }, 'conv')
        for _, op in ipairs(OPS) do
            assert.matches('out of memory: oneDNN could not make a convolution ready', facts['refused ' .. op][1])
        end
        facts = run(fake { RUN = 5 }, 'conv')
        for _, op in ipairs(OPS) do
            assert.matches('oneDNN failed at a convolution of 2 images of 48 x 21 x 21 %(its status: 5%); '
                .. 'WANE_ONEDNN=off does without it', facts['refused ' .. op][1])
        end
        assert.same({ '0' }, facts.left)
    end)
end)
