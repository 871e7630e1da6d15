-- The reference: all that scripts can call has a doc comment with an example, and every example runs.
--
-- A doc comment of a file that opens with `@module` is public unless it says `@within Internal`; its `@usage` is an
-- example, run after the lines that config.ld shows. `-->` in an example promises what it prints.
local helper = require 'spec.helper'
local reference = require 'spec.support.reference'

-- Functions that every layer or class has, described where the class is.
local COMMON = { forward = true, extra = true }

local files = reference.files()
local faults = {}

local function lack(file, ...)
    faults[#faults + 1] = ('lua/wane/%s.lua: '):format(file) .. string.format(...)
end

local function inspect(file)
    for _, block in ipairs(file.blocks) do
        if block.code and not block.is_internal and #block.usages == 0 then
            lack(file.name, '%s, line %d, has no @usage', reference.title(block) or block.code, block.line)
        end
    end
    for _, name in ipairs(file.bare) do
        local last = name:match '[^.:]+$'
        if not COMMON[last] and not last:match '^_' then lack(file.name, '%s has no doc comment', name) end
    end
end

for _, file in ipairs(files) do
    if file.is_public then inspect(file) end
end

local by_title, callable = reference.by_title(files), reference.callable()
local described = {} -- value -> a block about it: wane.isnan is tensor:isnan
for _, name in ipairs(callable) do described[name.value] = described[name.value] or by_title[name.title] end
for _, name in ipairs(callable) do
    local block = by_title[name.title] or described[name.value]
    if block == nil then
        lack(name.file or 'init', '%s has no doc comment', name.title)
    elseif #block.usages == 0 and not block.code and not block.is_internal then
        lack(block.file, '%s has no @usage', name.title)
    end
end

describe('the rules of the reference', function()
    it('see an example that does not run, reads an unknown name, assigns a global or prints another text', function()
        assert.is_nil(reference.run 'print(x.shape) --> (2, 8)')
        for usage, words in pairs {
            ['print(x.shape'] = "'%)' expected", ['print(z)'] = 'reads z, which nothing defines',
            ['z = x'] = 'assigns the global z', ['print(x.shape) --> (2, 4)'] = 'its comments promise\n%(2, 4%)',
            ['x:reshape(3)'] = 'do not fit',
        } do
            assert.truthy(reference.run(usage):find(words), usage)
        end
    end)

    it('see public and internal comments, their names and their examples', function()
        local file = reference.file 'tensor/arith'
        local blocks = {}
        for _, block in ipairs(file.blocks) do blocks[reference.title(block)] = block end
        assert.is_true(file.is_public)
        assert.equal(1, #blocks['tensor:sum'].usages)
        assert.is_false(blocks['tensor:softmax'].is_internal)
        assert.is_true(blocks['wane.linear'].is_internal)
        assert.is_false(reference.file('tensor/op').is_public)
    end)
end)

describe('the reference', function()
    it('documents all that scripts can call, with an example', function()
        table.sort(faults)
        assert.same({}, faults)
    end)

    it('separates every doc comment from the comment above it, so that LDoc sees it', function()
        local bad = {}
        for _, file in ipairs(files) do
            for _, line in ipairs(file.hidden) do bad[#bad + 1] = ('lua/wane/%s.lua:%d'):format(file.name, line) end
        end
        assert.same({}, bad)
    end)

    it('shows the lines that examples run after', function()
        local shown = helper.read('config.ld'):match '\n\n(    local ffi.-)\n%]%]'
        assert.equal(reference.PREAMBLE, (shown:gsub('^    ', ''):gsub('\n    ', '\n')))
    end)

    for _, file in ipairs(files) do
        local count = #(file.head and file.head.usages or {})
        for _, block in ipairs(file.blocks) do count = count + #block.usages end
        if count > 0 then
            it('has examples that run: ' .. file.name, function()
                local bad = {}

                local function try(block)
                    for _, usage in ipairs(block.usages) do
                        local failure = reference.run(usage)
                        if failure then
                            bad[#bad + 1] = ('lua/wane/%s.lua, %s, line %d: %s\nin\n%s'):format(file.name,
                                reference.title(block) or block.code or 'head', block.line, failure, usage)
                        end
                    end
                end
                reference.in_folder(function()
                    if file.head then try(file.head) end
                    for _, block in ipairs(file.blocks) do try(block) end
                end)
                assert.equal('', table.concat(bad, '\n\n'))
            end)
        end
    end
end)
