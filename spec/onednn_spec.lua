-- Checks products by oneDNN (kernels/cpu/backend/onednn.c) in processes with WANE_ONEDNN set: with the library of this
-- machine, on any processor, what it computes; without one, that own kernels do all and one line says so.
local helper = require 'spec.helper'
local native = require 'spec.support.native'

local LARGE = { 'a b', "a b'", "a' b", "a' b'", 'one b for all', 'y of panels', 'dX of panels', 'dW in panels',
    'linear' }
local OWN = { 'small', 'padded', 'a batch', 'b again and again', 'f32' }
local NAMED = { product = true, same = true, bits = true }

-- Returns the environment that hands the sanitizer of this process on to a command, but not to the shell. Its search
-- for leaks dies of a signal in a process with oneDNN 2.6.3.
local function sanitizer()
    local library, preload = os.getenv 'WANE_LIB', os.getenv 'LD_PRELOAD'
    return (library and "WANE_LIB='" .. library .. "' " or '')
        .. (preload and "LD_PRELOAD='" .. preload .. "' ASAN_OPTIONS=detect_leaks=0:exitcode=99 " or '')
end

-- Returns the facts that spec/support/onednn.lua prints, as a table of "name" or "name product" = { words }, and the
-- text.
local function run(environment, what)
    local text, code = helper.shell(('WANE_THREADS=2 WANE_ONEDNN=on %s %s luajit spec/support/onednn.lua %s')
        :format(environment, sanitizer(), what or ''))
    assert(code == 0, text)
    local facts = {}
    for line in text:gmatch '[^\n]+' do
        local list = {}
        for word in (line .. '\t'):gmatch '([^\t]*)\t' do list[#list + 1] = word end
        local name = table.remove(list, 1)
        if NAMED[name] then name = name .. ' ' .. table.remove(list, 1) end
        facts[name] = list
    end
    return facts, text
end

-- Returns what `wane version` says of the kernels, and its notice.
local function version(environment)
    local text = helper.shell(environment .. ' build/wane version')
    return text:match '\nkernels    ([^\n]*)\n', text:match '\nnotice     ([^\n]*)'
end

local kernels, notice = version 'WANE_ONEDNN=on'

describe('oneDNN of this machine', function()
    if not kernels:find 'large products of bf16 by oneDNN %d+%.%d+%.%d+$' then
        pending('is not tried: ' .. notice)
        return
    end
    local on, off, text

    setup(function()
        on, text = run ''
        off = run('WANE_ONEDNN=off', 'products')
    end)

    it('computes large products of bf16, each near the one in f64, with the scratch of two threads', function()
        for _, name in ipairs(LARGE) do
            assert.same({ tostring(2 ^ 21), '0' }, on['product ' .. name], name)
        end
        assert.same({ '0' }, on['rounded once'])
    end)

    it('leaves the others to own kernels, and all where it is off', function()
        for _, name in ipairs(OWN) do
            assert.same({ '0', '0' }, on['product ' .. name], name)
            assert.is_truthy(on['bits ' .. name][1])
            assert.same(off['bits ' .. name], on['bits ' .. name], name)
        end
        for _, name in ipairs(LARGE) do assert.same({ '0', '0' }, off['product ' .. name], name) end
    end)

    it('gives a product the same bits twice, with an op over it and without', function()
        for _, list in ipairs { LARGE, OWN } do
            for _, name in ipairs(list) do assert.same({ '3' }, on['same ' .. name], name) end
        end
    end)

    it('gives a training the same bits under every plan, fused or not, and in checked runs', function()
        assert.same({ '5' }, on['plans agree'])
        assert.same(on.trained, on.checked)
    end)

    it('gives the same bits with any number of threads', function()
        local function without_scratch(s) return (s:gsub('(product[^\n]*)\t%d+\t', '%1\t')) end
        for _, threads in ipairs(helper.is_long and { 1, 3 } or { 3 }) do
            local _, other = run(('WANE_THREADS=%d OMP_NUM_THREADS=5'):format(threads))
            assert.equal(without_scratch(text), without_scratch(other))
        end
    end)

    it('is planned alike on meta, where nothing runs', function()
        local here = run('', 'plan').plan[1]
        assert.equal(here, run('WANE_DEVICE=meta', 'plan').plan[1])
        assert.is_true(tonumber(here) > tonumber(run('WANE_ONEDNN=off', 'plan').plan[1]))
    end)

    it('asks nobody for memory while it runs', function()
        local out = helper.shell(('WANE_ONEDNN=on LD_PRELOAD=%s luajit spec/support/foreign.lua 720 700 bf16')
            :format(native.foreign()))
        assert.equal('0', out:match 'foreign (%d+)', out)
    end)

    it('is not used where its products would take memory of their own, or are none', function()
        for _, isa in ipairs { 'AVX512_CORE', 'SSE41' } do
            local _, said = version(('WANE_ONEDNN=on ONEDNN_MAX_CPU_ISA=%s DNNL_MAX_CPU_ISA=%s'):format(isa, isa))
            assert.equal('WANE_ONEDNN=on: oneDNN: ' .. kernels:match '[%d.]+$' .. ' has no products for this processor '
                .. 'that take no memory of their own; own kernels are used', said)
        end
    end)
end)

describe('WANE_ONEDNN', function()
    it('is auto where it is not set, which asks for the library where the processor has AMX', function()
        local usual, said = version 'env -u WANE_ONEDNN'
        assert.is_nil(said)
        assert.equal(usual, (version 'WANE_ONEDNN=auto'))
        local has_amx = table.concat(helper.lines 'cat /proc/cpuinfo'):find 'amx_bf16' ~= nil
        assert.equal(has_amx, usual:find 'oneDNN' ~= nil)
    end)

    it('off does not even look', function()
        assert.is_nil((version 'WANE_ONEDNN=off'):find 'oneDNN')
    end)

    it('says what to write instead of a word that it has not, and takes auto', function()
        local usual = version 'WANE_ONEDNN=auto'
        for _, word in ipairs { 'yes', 'f32', 'conv', '/usr/lib/libdnnl.so' } do
            local said, line = version('WANE_ONEDNN=' .. word)
            assert.equal(usual, said)
            assert.equal('WANE_ONEDNN=' .. word .. ' makes no sense (off, auto or on); auto is used', line)
        end
        assert.matches('^WANE_ONEDNN=yes [^\n]*; WANE_THREADS=no [^\n]*$',
            (select(2, version 'WANE_THREADS=no WANE_ONEDNN=yes')))
    end)

    it('on says in a line that there is no library, and own kernels do all', function()
        local dir = helper.lines('mktemp -d')[1]
        helper.shell(('cd %s && for n in 2 3; do echo no > libdnnl.so.$n; done'):format(dir))
        local there, line = version(('LD_LIBRARY_PATH=%s WANE_ONEDNN=on'):format(dir))
        helper.shell('rm -r ' .. dir)
        assert.equal('WANE_ONEDNN=on: oneDNN: not found; own kernels are used', line)
        assert.equal(version 'WANE_ONEDNN=off' .. '; oneDNN: not found', there)
    end)
end)
