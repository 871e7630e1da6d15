-- Checks oneDNN (kernels/cpu/backend/onednn.c) in processes with WANE_ONEDNN set: the library of this machine for the
-- results of its products, and fake libraries for what happens when it is missing, old, broken, or refuses a product.
local helper = require 'spec.helper'
local native = require 'spec.support.native'
local processes = require 'spec.support.onednn_processes'

local long_it = helper.is_long and it or function() end

local WORDS = { product = 2, same = 2, bits = 2, trained = 1, ['plans agree'] = 1, ['rounded once'] = 1 }

local function run(environment, what)
    return processes.run('spec/support/onednn.lua', WORDS, environment, what)
end

local LARGE = { 'a b', "a b'", "a' b", "a' b'", 'a batch', 'one b for all', 'linear' }
local OWN = { 'small', 'thin', 'b again and again' }
local line, BELOW, HAS_NONE = processes.line, processes.BELOW, processes.HAS_NONE
local here = line 'WANE_ONEDNN=on'

describe('oneDNN of this machine', function()
    if not here:match '^%d+%.%d+%.%d+ makes large products' then
        pending('is not tried: ' .. here)
        return
    end
    local on, off, text

    setup(function()
        on, text = run 'WANE_ONEDNN=on'
        off = run 'WANE_ONEDNN=off'
    end)

    it('makes the large products, each near the one in f64', function()
        local scratch = 0
        for _, dtype in ipairs { 'f32', 'bf16' } do
            for _, name in ipairs(LARGE) do
                local f = on[('product %s %s'):format(name, dtype)]
                assert.same({ '1', '0' }, { f[1], f[3] }, name .. ' ' .. dtype)
                if tonumber(f[2]) > 0 then scratch = scratch + 1 end
            end
            assert.same({ '0' }, on['rounded once ' .. dtype])
        end
        assert.is_true(scratch > 7, 'scratch in ' .. scratch .. ' of 14') -- predicted as measured, or the script stops
    end)

    it('leaves the small and odd ones, and those an update may take in, to own kernels', function()
        for _, dtype in ipairs { 'f32', 'bf16' } do
            for _, name in ipairs(OWN) do
                assert.same({ '0', '0', '0' }, on[('product %s %s'):format(name, dtype)], name)
                local bits = ('bits %s %s'):format(name, dtype)
                assert.is_truthy(on[bits][1])
                assert.same(off[bits], on[bits])
            end
        end
        assert.same({ '0', '0', '0' }, on['product what an update takes f32'])
        assert.equal('1', on['product what an update takes bf16'][1]) -- no update takes bf16
    end)

    it('makes none when it is off', function()
        for _, name in ipairs(LARGE) do assert.same({ '0', '0', '0' }, off['product ' .. name .. ' f32'], name) end
    end)

    it('gives a product the same bits twice, with an op over it and without', function()
        for _, dtype in ipairs { 'f32', 'bf16' } do
            for _, list in ipairs { LARGE, OWN } do
                for _, name in ipairs(list) do
                    assert.same({ '3' }, on[('same %s %s'):format(name, dtype)], name)
                end
            end
        end
    end)

    it('gives a training the same bits under every plan, fused or not, and in checked runs', function()
        for _, name in ipairs { '96 rows in f32', '96 rows in bf16', '192 rows in f32', '192 rows in bf16' } do
            assert.same({ '5' }, on['plans agree ' .. name])
        end
        assert.same({ on['trained 192 rows in f32'][1], on['trained 192 rows in bf16'][1] }, on.checked)
    end)

    it('gives the same bits in the next process, whatever the number of threads', function()
        assert.equal(text, select(2, run 'WANE_ONEDNN=on'))
        for _, n in ipairs(helper.is_long and { 1, 3 } or {}) do
            local threads = ('WANE_THREADS=%d WANE_ONEDNN=on'):format(n)
            local _, once = run(threads)
            assert.equal(once, select(2, run('OMP_NUM_THREADS=5 ' .. threads)))
        end
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
        assert.is_true(tonumber(own.plan[1]) < tonumber(cpu.plan[1]))
    end)

    it('asks nobody for memory while it runs', function()
        local library = native.foreign()
        for _, environment in ipairs(helper.is_long and { 'WANE_ONEDNN=on', BELOW } or { 'WANE_ONEDNN=on' }) do
            local out = helper.shell(('%s LD_PRELOAD=%s luajit spec/support/foreign.lua 512')
                :format(environment, library))
            assert.equal('0', out:match 'foreign (%d+)', out)
        end
    end)
end)

describe('oneDNN on a processor that it has no products for', function()
    local none = line(BELOW)
    if not none:match '^%d+%.%d+%.%d+ ' then
        pending('is not tried: ' .. none)
        return
    end

    it('says so', function()
        assert.equal(none:match '^[%d.]+' .. ' makes large convolutions of f32', none)
    end)

    long_it('leaves every product to own kernels, to the bit', function()
        local old, off = run(BELOW), run 'WANE_ONEDNN=off'
        for _, dtype in ipairs { 'f32', 'bf16' } do
            for _, name in ipairs(LARGE) do
                assert.same({ '0', '0', '0' }, old[('product %s %s'):format(name, dtype)], name)
                local bits = ('bits %s %s'):format(name, dtype)
                assert.is_truthy(off[bits][1])
                assert.same(off[bits], old[bits], name)
            end
        end
    end)
end)

describe('WANE_ONEDNN', function()
    it('is auto when it is not set or makes no sense, and says so', function()
        local amx = table.concat(helper.lines 'cat /proc/cpuinfo'):find 'amx_bf16'
        local usual = line 'unset WANE_ONEDNN;'
        if here:match '^%d+%.%d+%.%d+ makes' or here:match(HAS_NONE, 1) then
            assert.equal(here:match '^[%d.]+' .. (amx and ' makes large products and convolutions of bf16, with AMX'
                or ' is there and not used: without AMX own kernels are as fast'), usual)
        else assert.equal(here, usual) end
        assert.equal(usual, line 'WANE_ONEDNN=auto')
        local text, code = helper.shell 'WANE_THREADS=2 WANE_ONEDNN=yes build/wane version'
        assert.equal(0, code)
        assert.equal(usual, text:match '\noneDNN     ([^\n]*)\n')
        assert.equal('WANE_ONEDNN=yes makes no sense (off, auto or on); auto is used',
            text:match '\nnotice     ([^\n]*)\n')
        text = helper.shell 'WANE_THREADS=no WANE_ONEDNN=yes build/wane version'
        assert.matches('notice     WANE_ONEDNN=yes [^\n]*; WANE_THREADS=no [^\n]*\n', text)
    end)

    it('off does not even look', function()
        assert.equal('off: own kernels are used', line 'WANE_ONEDNN=off')
    end)
end)

describe('a fake oneDNN', function()
    local dir, own
    setup(function()
        dir = helper.lines('mktemp -d')[1]
        own = run('WANE_ONEDNN=off', 'product')
    end)
    teardown(function() helper.shell('rm -r ' .. dir) end)

    local function fake(options) return processes.fake(dir, options) end

    local function computed() return processes.computed(dir) end

    -- Checks that own kernels make the products, to the bit, and that the fake computes none; returns the state that
    -- the process prints.
    local function unused(environment)
        local facts = run(environment, 'product')
        assert.same({ '0', '0', '0' }, facts['product one f32'])
        assert.is_truthy(own['bits one f32'][1])
        assert.same(own['bits one f32'], facts['bits one f32'])
        assert.is_false(computed())
        return facts.state[1]
    end

    it('computes when it can be used, with the threads of kernels: the other cases would be seen', function()
        for _, major in ipairs { 2, 3 } do
            local facts = run(fake { MAJOR = major, MINOR = 6, SCRATCH = 5000 }, 'product')
            assert.equal(major .. '.6.0 makes large products and convolutions of f32 and bf16', facts.state[1])
            assert.same({ '1', '5120' }, { facts['product one f32'][1], facts['product one f32'][2] })
            assert.not_equal('0', facts['product one f32'][3]) -- it leaves the result as it was, and that is noticed
            assert.is_true(computed())
            assert.same({ '0' }, facts.left)
        end
    end)

    it('too old, or newer than any that is known', function()
        assert.equal('2.5.0 is there and too old (2.6 to 3 are known): own kernels are used',
            unused(fake { MAJOR = 2, MINOR = 5 }))
        assert.equal('1.9.0 is there and too old (2.6 to 3 are known): own kernels are used',
            unused(fake { MAJOR = 1, MINOR = 9 }))
        assert.equal('4.0.0 is there and too new (2.6 to 3 are known): own kernels are used',
            unused(fake { MAJOR = 4, MINOR = 0 }))
    end)

    it('without a function that is called', function()
        assert.equal('libdnnl.so.2 is there and lacks dnnl_primitive_execute: own kernels are used',
            unused(fake { LACKS = 1 }))
    end)

    it('that is no library, or not there', function()
        local environment = fake {}
        helper.shell(('cd %s && for n in 2 3; do echo no > libdnnl.so.$n; done'):format(dir))
        assert.equal('not found: own kernels are used', unused(environment))
    end)

    it('that wants more scratch than threads may have, or memory of its own, or has nothing that fits', function()
        assert.matches('^3.2.0 makes', unused(fake { SCRATCH = 2 ^ 22 + 1 }))
        assert.equal('3.2.0' .. HAS_NONE, unused(fake { NAME = '\\"gemm:jit\\"', MAKE_CONV = 3 }))
        assert.equal('3.2.0' .. HAS_NONE, unused(fake { MAKE = 3, MAKE_CONV = 3 }))
        assert.equal('1', run(fake { SCRATCH = 2 ^ 22 }, 'product')['product one f32'][1])
    end)

    it('that runs out of memory or fails stops the run, and not the process', function()
        local _, text = run(fake { MAKE = 1 }, 'product')
        assert.matches('refused\t[^\n]*out of memory: oneDNN could not make a product ready', text)
        local facts
        facts, text = run(fake { RUN = 5 }, 'product')
        assert.matches('refused\t[^\n]*oneDNN failed at a product of 200 x 200 x 200 %(its status: 5%); '
            .. 'WANE_ONEDNN=off does without it', text)
        assert.same({ '0' }, facts.left)
    end)

    it('beside a usable one of version 2: that one is used', function()
        fake { MAJOR = 2, MINOR = 7 }
        local environment = ('LD_LIBRARY_PATH=%s WANE_ONEDNN=on'):format(dir)
        helper.shell(('echo no > %s/libdnnl.so.3'):format(dir))
        assert.equal('2.7.0 makes large products and convolutions of f32 and bf16', line(environment))
    end)
end)
