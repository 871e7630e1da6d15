-- Runs spec files written for busted where busted is not: `luajit spec/gpu/runner.lua [--every N] file...`. The machine
-- with a GPU has neither busted nor its C modules; luassert and say, which are Lua alone, travel in the bundle.
--
-- Knows describe, it, pending, setup, teardown, before_each, after_each and finally, in busted's order. --every N runs
-- the first of every N tests. Prints what failed, and last `N passed, N failed, N pending`; exits with 1 where a test
-- failed or none ran.
local here = arg[0]:match '^(.*)/[^/]*$' or '.'
local root = here:match '^(.*)/spec/gpu$' or here .. '/../..'
package.path = table.concat({ root .. '/lua/?.lua', root .. '/lua/?/init.lua', root .. '/?.lua',
    root .. '/share/lua/?.lua', root .. '/share/lua/?/init.lua', package.path }, ';')

local counts = { passed = 0, failed = 0, pending = 0, seen = 0 }
local every = 1
local block -- that is being defined or run: { name, parent, items, setup, teardown, before_each, after_each: lists }
local Pending = {} -- raised by pending() inside a test
local last -- functions that finally() has put off in the running test

local function new_block(name, parent)
    return { name = name, parent = parent, items = {}, setup = {}, teardown = {}, before_each = {}, after_each = {} }
end

-- Returns the names of a block and of those around it as one text.
local function path(of, name)
    local words = { name }
    while of do
        if of.name then table.insert(words, 1, of.name) end
        of = of.parent
    end
    return table.concat(words, ' ')
end

local function handler(e)
    if e == Pending or type(e) ~= 'string' then return e end
    return debug.traceback(e, 2)
end

local function fail(name, why)
    counts.failed = counts.failed + 1
    io.write('failed: ', name, '\n    ', (tostring(why):gsub('\n', '\n    ')), '\n')
    io.flush()
end

-- ---- what spec files call -----------------------------------------------------------------------------------------
local words = {}

function words.describe(name, fn)
    local outer = block
    block = new_block(name, outer)
    table.insert(outer.items, block)
    local fine, why = xpcall(fn, handler)
    if not fine then fail(path(block, '(while it was read)'), why) end
    block = outer
end

function words.it(name, fn)
    counts.seen = counts.seen + 1
    if (counts.seen - 1) % every == 0 then table.insert(block.items, { name = name, test = fn }) end
end

function words.pending(name)
    if not last then table.insert(block.items, { name = name }) else error(Pending, 0) end
end

function words.finally(fn) table.insert(last, fn) end

for _, kind in ipairs { 'setup', 'teardown', 'before_each', 'after_each' } do
    words[kind] = function(fn) table.insert(block[kind], fn) end
end
words.context, words.insulate, words.expose = words.describe, words.describe, words.describe
words.lazy_setup, words.strict_setup, words.lazy_teardown = words.setup, words.setup, words.teardown

-- ---- running ------------------------------------------------------------------------------------------------------

-- Calls the functions of a kind of a block and of those around it, the outermost first; of after_each the innermost.
local function each(of, kind)
    if of.parent and kind == 'before_each' then each(of.parent, kind) end
    for _, fn in ipairs(of[kind]) do fn() end
    if of.parent and kind == 'after_each' then each(of.parent, kind) end
end

local function run_test(of, item)
    if not item.test then
        counts.pending = counts.pending + 1
        return
    end
    last = {}
    local fine, why = xpcall(function()
        each(of, 'before_each')
        item.test()
    end, handler)
    for _, fn in ipairs(last) do pcall(fn) end
    last = nil
    local after_fine, after_why = xpcall(each, handler, of, 'after_each')
    if not fine and why == Pending then counts.pending = counts.pending + 1
    elseif not fine or not after_fine then fail(path(of, item.name), fine and after_why or why)
    else counts.passed = counts.passed + 1 end
end

local function run_block(of)
    local fine, why = xpcall(function() for _, fn in ipairs(of.setup) do fn() end end, handler)
    if not fine then
        fail(path(of, '(setup)'), why)
        return
    end
    for _, item in ipairs(of.items) do
        if item.items then run_block(item) else run_test(of, item) end
    end
    fine, why = xpcall(function() for _, fn in ipairs(of.teardown) do fn() end end, handler)
    if not fine then fail(path(of, '(teardown)'), why) end
end

local function main()
    local given, files = require 'spec.support.options'({ every = 1 }, '--every N', true)
    every = given.every
    for name, fn in pairs(words) do rawset(_G, name, fn) end
    rawset(_G, 'assert', require 'luassert')
    require 'spec.helper'
    for _, file in ipairs(files) do
        local chunk, why = loadfile(file)
        block = new_block(nil, nil)
        if chunk then
            words.describe(nil, chunk)
            run_block(block)
        else
            fail(file, why)
        end
    end
    io.write(('%d passed, %d failed, %d pending\n'):format(counts.passed, counts.failed, counts.pending))
    os.exit(counts.failed == 0 and counts.passed > 0 and 0 or 1, true)
end

main()
