-- Checks rows of sweeps that somebody edited: whatever is in a field, the sweep must go on, or say at the user's line
-- which line of the file is wrong and why; so must everything that shows rows.
require 'spec.helper'
local wane = require 'wane'
local errors = require 'wane.errors'
local json = require 'wane.report.json'

local HERE = debug.getinfo(1, 'S').short_src
local PATH = os.tmpname()
teardown(function() os.remove(PATH) end)

local function sweep(resume)
    return wane.sweep {
        build = function(p)
            local w = wane.nn.Linear(p.width, 2)
            return function() return w(wane.ones(1, p.width)):sum() end
        end,
        grid = { width = { 3 }, policy = { 'save_all', 'recompute_all' } }, out = PATH, isolate = false,
        resume = resume, repeats = 1, warmup = 0,
    }
end

local VALUES = { 'null', '"x"', '""', '-1', '0.5', '1e300', '9007199254740992', '[]', '[1]', '["x"]', '{}', '{"x":"y"}',
    '{"x":-1}', '{"x":[]}', 'true', 'false' }

local function lines()
    local list = {}
    for line in io.lines(PATH) do list[#list + 1] = line end
    return list
end

local function write(list)
    local file = assert(io.open(PATH, 'wb'))
    file:write(table.concat(list, '\n'), '\n')
    file:close()
end

-- The uses of a sweep, each on its own.
local USES = {
    function(s) return s:rows() end, tostring, function(s) return s:csv() end, function(s) return s:report() end,
    function(s) return s:plot() end, function(s) return s:pareto('peak', 'seconds') end,
    function(s) return s:pareto('activation', 'loss') end, function(s) return s:problems() end,
}

-- Runs fn: fine, or an error of Wane's at a line of this file.
local function fine_or_told(what, fn, ...)
    local ok, e = pcall(function(...)
        local result = fn(...)
        return result
    end, ...)
    if ok then return true, e end
    assert.is_true(errors.is(e), what .. ': ' .. tostring(e))
    assert.equal(HERE, (e.where or ''):sub(1, #HERE), what .. ': ' .. tostring(e))
    assert.is_nil(e.message:find 'attempt to', e.message)
    return false, e
end

describe('a row that was edited', function()
    it('is taken, or refused with its line and field', function()
        os.remove(PATH)
        sweep():run()
        local good, refused = lines(), 0
        local row = json.decode(good[1])
        row.code, row.error, row.status_ = 'oom', 'words', nil
        for name in pairs(row) do
            for _, value in ipairs(VALUES) do
                local edited = json.decode(good[1])
                edited[name] = nil
                local text = json.encode(edited):gsub('}$', (',%q:%s}'):format(name, value:gsub('%%', '%%%%')))
                write { text, good[2] }
                local what = ('%s = %s'):format(name, value)
                local ok, e = fine_or_told(what, function()
                    local s = sweep 'force'
                    s:run()
                    return s
                end)
                if ok then
                    for k, use in ipairs(USES) do fine_or_told(('%s, use %d'):format(what, k), use, e) end
                else
                    refused = refused + 1
                    assert.is_truthy(e.message:find('line 1', 1, true) or e.message:find('predicted', 1, true)
                        or e.message:find('differ', 1, true), what .. ': ' .. e.message)
                end
                if not ok and name == 'kinds' then assert.is_truthy(e.message:find("'kinds'", 1, true), e.message) end
            end
        end
        assert.is_true(refused > 100, refused)
    end)

    it('without a field is refused where the field is needed', function()
        os.remove(PATH)
        sweep():run()
        local good = lines()
        for _, name in ipairs { 'status', 'point', 'peak', 'predicted_peak', 'reserved', 'predicted_reserved',
            'seconds', 'recomputed', 'kinds', 'exact', 'lossless' } do
            local edited = json.decode(good[1])
            edited[name] = nil
            write { json.encode(edited), good[2] }
            local ok, e = fine_or_told(name, function() sweep('force'):run() end)
            assert.is_false(ok, name)
            assert.is_truthy(e.message:find('line 1', 1, true), e.message)
        end
        for _, line in ipairs { 'null', '3', '"x"', '[]', '[[1]]', 'true', '{}', '{"point":[]}' } do
            write { line, good[2] }
            local ok, e = fine_or_told(line, function() sweep('force'):run() end)
            assert.is_false(ok, line)
            assert.is_truthy(e.message:find('line 1', 1, true), e.message)
        end
    end)
end)
