--- Offers what the specs of shared sweeps use: a folder, a small sweep, its rows, and what is said and refused.
local helper = require 'spec.helper'
local files = require 'spec.support.files'
local json = require 'wane.report.json'

local wane = helper.wane
local sweeps = { folder = files.folder, write = files.write, read = files.read }

--- Returns the rows of a file.
function sweeps.rows(path)
    local rows = {}
    for line in sweeps.read(path):gmatch '(.-)\n' do rows[#rows + 1] = assert(json.decode(line)) end
    return rows
end

--- Checks that there are `count` rows and that no two have the same point, told apart as text.
function sweeps.assert_once(rows, count)
    local seen = {}
    for _, row in ipairs(rows) do
        local key = json.encode(row.point)
        assert(not seen[key], key)
        seen[key] = true
    end
    assert(count == #rows, #rows)
end

-- Fields that two runs of a point may differ in.
local TIMED = { 'seconds', 'low', 'high', 'wall', 'times', 'load', 'spread', 'noisy', 'date' }

--- Returns rows without what depends on the time of their run, as text.
function sweeps.timeless(rows)
    local out = {}
    for i, row in ipairs(rows) do
        local copy = {}
        for name, value in pairs(row) do copy[name] = value end
        for _, name in ipairs(TIMED) do copy[name] = nil end
        out[i] = json.encode(copy)
    end
    return table.concat(out, '\n')
end

--- Returns what an error says, and its code; fails when fn raises none, or not at a line of a spec.
function sweeps.refusal(fn, ...)
    local fine, e = pcall(fn, ...)
    assert(not fine, 'it was taken')
    assert(type(e) == 'table', e)
    assert((e.where or ''):match '^%.?/?spec/[%w_/]+%.lua:%d+$', e.message)
    return e.message, e.code
end

--- Calls fn; returns what it writes to the error stream, and its result.
function sweeps.said(fn)
    local lines, stream = {}, io.stderr
    io.stderr = { write = function(_, ...) lines[#lines + 1] = table.concat { ... } end } -- luacheck: ignore 122
    local fine, result = pcall(fn)
    io.stderr = stream -- luacheck: ignore 122
    if not fine then error(result, 0) end
    return table.concat(lines), result
end

local function build(p)
    local w = wane.randn(p.width, 4, { requires_grad = true })
    local x = wane.randn(2, p.width):retain()
    return function() return x:matmul(w):gelu():sum() end
end

--- Makes a sweep over 20 points, two policies at each of ten widths, in this process.
-- @param t further fields of wane.sweep, and others in place of these (optional)
function sweeps.sweep(t)
    local all = { build = build, grid = { width = { 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 },
        policy = { 'save_all', 'recompute_all' } }, isolate = false, repeats = 1, warmup = 0,
        order = not (t and t.grid) and { 'width', 'policy' } or nil }
    for name, value in pairs(t or {}) do all[name] = value end
    return wane.sweep(all)
end

return sweeps
