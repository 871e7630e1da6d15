-- Checks that an elementwise op with a gradient is six places, and that a place that was forgotten is named. `tanh`
-- is the example: each place in turn loses what it says of tanh and its derivative, in a copy of the tree in a
-- temporary folder, and the step that notices must fail and name what is missing. The copy starts with the objects of
-- build/release, so a step compiles one file, without optimisation.
-- Measured: 10 s on two busy cores, 2 s of processor time.
local helper = require 'spec.helper'
local files = require 'spec.support.files'

local OP, PAGE = 'tanh', 'runtime/README.md'
local NAMES = { OP, OP .. '_grad' }

-- Removes every match of each pattern: %n stands for the name of the op, %N for its enum.
local function without(...)
    local patterns = { ... }
    return function(text)
        local count = 0
        for _, pattern in ipairs(patterns) do
            for _, name in ipairs(NAMES) do
                local found
                text, found = text:gsub((pattern:gsub('%%n', name):gsub('%%N', name:upper())), '')
                count = count + found
            end
        end
        return text, count
    end
end

local function compile(object)
    return ("make CFLAGS_EXTRA='-O0 -Wno-unused-function' build/release/%s.o"):format(object)
end

local LINK = "make CFLAGS_EXTRA='-O0 -Wno-unused-function' build/libwane.so"

local function spec(name, filter)
    return ('"${LUAJIT:-luajit}" spec/run.lua spec/%s_spec.lua --filter %q'):format(name, filter)
end

-- The places, in the order of the page: files, what is removed from them, how many matches there are, the step that
-- notices, and the words that its output must contain.
local places = {
    { files = { 'runtime/op.def' }, remove = without('\nOP%(%N, [^\n]*'), count = 2,
        step = compile 'runtime/ops/unary', names = 'WN_OP_TANH' },
    { files = { 'runtime/ops/unary.c' }, remove = without('\nconst struct wn__rules wn__rules_%n = [^\n]*'), count = 2,
        step = LINK, names = 'wn__rules_tanh' },
    { files = { 'kernels/scalar.h' }, remove = without('WN_FN %a+ wn_%n_[%w#]+%b()%s*%b{}'), count = 3,
        step = compile 'plain/kernels/cpu/element/unary', names = 'wn_tanh_f32' },
    { files = { 'kernels/cpu/element/unary.def' }, remove = without('\nUNARY%(%N, [^\n]*'), count = 2,
        step = LINK .. ' && ' .. spec('op', OP), names = 'tanh of (3, 4) f32 is not in this version' },
    { files = { 'lua/wane/tensor/arith.lua' }, remove = without('\nfunction methods%.%n%([^\n]*'), count = 1,
        step = spec('op', OP), names = "method 'tanh'" },
    { files = { 'spec/cases/unary.lua', 'spec/cases/derivative.lua' }, remove = without('\n    %n = [^\n]*'), count = 2,
        step = spec('op', 'cover every op'), names = 'without a record in spec/cases: tanh, tanh_grad' },
}

describe('an elementwise op with a gradient', function()
    it('is known in the six places and nowhere else', function()
        local known, bad = {}, {}
        for _, place in ipairs(places) do
            for _, path in ipairs(place.files) do known[path] = true end
        end
        for _, path in ipairs(helper.lines 'find runtime kernels lua/wane -type f | sort') do
            -- Layers use the method, recurrent cells the formula. The GPU's places are its own: spec/cuda_op_spec.lua
            -- names an op without a kernel. The accounting of PyTorch's bytes says which ops it does not know.
            local is_user = path:match '^lua/wane/nn/' or path:match '^lua/wane/pytorch/'
                or path:match '/recurrent[_%a]*%.c$' or path:match '/cells%.h$'
            if not (path:match '%.md$' or path:match '^kernels/cuda/' or is_user or known[path]) then
                local text = helper.read(path)
                for _, name in ipairs { OP, OP:upper() } do
                    if text:match('%f[%w]' .. name .. '%f[%W]') then bad[#bad + 1] = path end
                end
            end
        end
        assert.same({}, bad)
    end)

    it('has the places that the page lists', function()
        local listed = {}
        local part = helper.read(PAGE):match '\n## How to add an op\n(.-)\n## '
        for item in part:gmatch '\n%d+%. ([^\n]*)' do listed[#listed + 1] = item end
        assert.equal(#places, #listed)
        for k, place in ipairs(places) do
            for _, path in ipairs(place.files) do assert.truthy(listed[k]:find('`' .. path .. '`', 1, true), path) end
        end
    end)

    -- The steps show the same however the specs are run, so the plain way is enough.
    local is_plain = not (os.getenv 'LD_PRELOAD' or os.getenv 'WANE_LIB' or os.getenv 'WANE_SPEC_STRESS')
    if not (is_plain and jit.status()) then return end

    local copy

    local function run(command)
        return helper.shell(('cd %s && %s'):format(copy, command))
    end

    setup(function()
        copy = helper.lines('mktemp -d')[1]
        local _, code = helper.shell(('cp -a Makefile lua spec runtime kernels %s && mkdir %s/build && '
            .. 'cp -a build/release build/libwane.so build/wane %s/build && find %s/build -type f -exec touch {} +')
            :format(copy, copy, copy, copy))
        assert.equal(0, code)
    end)

    teardown(function() helper.shell('rm -rf ' .. copy) end)

    it('passes with all of them', function()
        for _, place in ipairs(places) do
            local text, code = run(place.step)
            assert(code == 0, place.files[1] .. ', nothing removed:\n' .. text)
        end
    end)

    for _, place in ipairs(places) do
        it('fails by name without ' .. place.files[1], function()
            local count = 0
            for _, path in ipairs(place.files) do
                local text, found = place.remove(helper.read(path))
                count = count + found
                files.write(copy .. '/' .. path, text)
            end
            assert.equal(place.count, count, 'matches of what is removed')
            local text, code = run(place.step)
            for _, path in ipairs(place.files) do
                helper.shell(('cp %s %s/%s'):format(path, copy, path))
            end
            helper.shell(('cp -r build/release build/libwane.so %s/build && find %s/build -type f -exec touch {} +')
                :format(copy, copy))
            assert(code ~= 0, 'nothing failed:\n' .. text)
            assert(text:find(place.names, 1, true), ("expected '%s' in\n%s"):format(place.names, text))
        end)
    end
end)
