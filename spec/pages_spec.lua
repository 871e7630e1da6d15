-- Checks what the pages say about the tree: every path that they name must exist, every link must lead to a file, the
-- front page must be short, and each function and struct that runtime/README.md names must be in the file that it
-- names.
local helper = require 'spec.helper'
local readme = require 'spec.support.readme'
local report = require 'spec.bench.report'
local reference = require 'spec.support.reference'

local function exists(path)
    local file = io.open(helper.root .. '/' .. path, 'rb')
    if file then file:close() end
    return file ~= nil
end

-- Returns whether a file of this name is anywhere in the tree.
local names
local function is_name(name)
    if not names then
        names = {}
        for _, path in ipairs(helper.lines('git ls-files --cached --others --exclude-standard 2>/dev/null || '
            .. 'find . -type f')) do names[path:match '[^/]+$'] = true end
    end
    return names[name] ~= nil
end

local FOLDERS = { runtime = true, kernels = true, lua = true, spec = true, examples = true, ['.ci'] = true }

-- Returns the text without its fenced blocks: what they show is run, or was printed.
local function prose_of(text)
    return (('\n' .. text):gsub('\n```.-\n```%f[^`]', '\n'))
end

-- Returns what a page names and does not exist: paths in backquotes, from the root, and links, from the page's folder.
local function missing_paths(page, text)
    local missing, count, folder = {}, 0, page:match '^(.*/)' or ''
    text = prose_of(text)
    local function check(name, is_there)
        count = count + 1
        if not is_there then missing[#missing + 1] = page .. ': ' .. name end
    end
    for word in text:gmatch '`([%w_./-]+)`' do
        local top = word:match '^([%w_.-]+)/'
        if top == 'examples' and word:match '^examples/out' then top = nil end -- written when examples run
        if FOLDERS[top] then
            check(word, exists(word) or exists(word .. '/.'))
        elseif not top and word:match '^[%w_-]+%.[ch]$' then
            check(word, is_name(word))
        end
    end
    for target in text:gmatch '%]%(([^)#%s]+)[^)]*%)' do
        if not target:match '^%a+://' then check(target, exists(folder .. target)) end
    end
    return missing, count
end

-- Returns whether the text of a file defines a function, a method, a struct or a macro of this name.
local function defines(text, name)
    text = '\n' .. text
    local struct = name:match '^struct ([%w_]+)$'
    if struct then return text:find('\nstruct ' .. struct .. ' {') ~= nil end
    for _, pattern in ipairs { '\n%a[^\n;{}()]-%f[%w_]NAME%b()%s*{', -- C
        '\n%s*local function NAME%s*%(', '\n%s*function [%w_]+[.:]NAME%s*%(' } do -- Lua
        if text:find((pattern:gsub('NAME', name))) then return true end
    end
    return false
end

-- Returns what runtime/README.md says is in a file: rows | `file` | `name`, `name` | ... |, and "`name` in `file`".
local function named_places(text)
    local places = {}
    local function add(name, path) places[#places + 1] = { name = name, path = path } end
    for path, cell in text:gmatch '\n| `([%w_./]+%.%a+)` | ([^|]+) |' do
        for name in cell:gmatch '`([^`]+)`' do add(name, path) end
    end
    for name, path in text:gmatch '`([%a_][%w_ ]*)`,? in%s+`([%w_./]+%.%a+)`' do add(name, path) end
    return places
end

describe('the checks of the pages', function()
    it('see a path, a link and a name that are not there', function()
        assert.same({ 'x/README.md: runtime/nowhere.c', 'x/README.md: nowhere_at_all.h', 'x/README.md: y.md' },
            (missing_paths('x/README.md', '`runtime/nowhere.c` `nowhere_at_all.h` `runtime/wane.h` [a](y.md)\n'
                .. '```lua\n`runtime/inside.c`\n```\n')))
        assert.is_true(defines('static int32_t f(int a,\n    int b)\n{\n}\n', 'f'))
        assert.is_false(defines('int32_t f(int a);\nint g(void)\n{\n    return f(1);\n}\n', 'f'))
        assert.is_false(defines('int32_t wn__f(int a)\n{\n}\n', 'f'))
        assert.is_true(defines('struct wn__x {\n', 'struct wn__x'))
        assert.is_false(defines('struct wn__x *f(void)\n{\n}\n', 'struct wn__x'))
        assert.is_true(defines('function Optimizer:step(what)\nend\n', 'step'))
        assert.is_false(defines('x.step()\n', 'step'))
    end)
end)

describe('the pages', function()
    for _, page in ipairs(readme.PAGES) do
        it('name only files that exist: ' .. page, function()
            local missing, count = missing_paths(page, helper.read(page))
            assert.same({}, missing)
            assert.is_true(count > 0)
        end)
    end

    it('claim on the front page only numbers that were published', function()
        local published = {}
        for _, page in ipairs { 'README.md', 'spec/README.md', 'spec/bench/RESULTS.md' } do
            for _, bench in ipairs { 'rival', 'budget', 'seconds' } do
                published[#published + 1] = report.marked(helper.read(page), bench)
            end
        end
        local all = table.concat(published, '\n'):gsub(',', '')
        local claims, count = helper.read('README.md'):match '\n## Why\n(.-)\n## ', 0
        for number in claims:gmatch '%d+%.%d+' do
            assert.truthy(all:find('%f[%d.]' .. number:gsub('%p', '%%%0') .. '%f[^%d]'), number)
            count = count + 1
        end
        assert.is_true(count >= 7)
        local compared = claims:match 'Of (%d+) pairs'
        assert.truthy(all:find('of ' .. compared .. ' pairs', 1, true), compared)
    end)

    -- Returns the pages that a page links to, as paths from the root, as a set.
    local function links_of(page)
        local linked, folder = {}, page:match '^(.*/)' or ''
        for target in helper.read(page):gmatch '%]%(([^)#%s]+)' do
            local path = folder .. target
            for _ = 1, 3 do path = path:gsub('[^/]+/%.%./', '', 1) end
            linked[path] = true
        end
        return linked
    end

    it('have a front page of at most 250 lines and a guide of at most 150, which link to all others', function()
        local front, guide = links_of 'README.md', links_of 'lua/README.md'
        for page, most in pairs { ['README.md'] = 250, ['lua/README.md'] = 150 } do
            assert.is_true(select(2, helper.read(page):gsub('\n', '')) <= most)
        end
        for _, page in ipairs(readme.PAGES) do
            if page ~= 'README.md' then assert.truthy(front[page] or guide[page], page) end
        end
    end)
end)

describe('runtime/README.md', function()
    local text = helper.read 'runtime/README.md'
    local places = named_places(text)

    it('names functions and structs where they stand', function()
        local wrong = {}
        for _, place in ipairs(places) do
            local is_there = exists(place.path) and defines(helper.read(place.path), place.name)
            if not is_there then wrong[#wrong + 1] = place.name .. ' is not in ' .. place.path end
        end
        assert.same({}, wrong)
        assert.is_true(#places > 60)
    end)

    it('tells the life of a step in the direction of its calls', function()
        local life = text:match '\n## The life of a step\n(.-)\n## '
        local by_script = { step = true, cross_entropy = true }
        local source, uncalled = '', {}
        for _, place in ipairs(named_places(life)) do
            -- Each function is named twice in the files up to its own: where it is defined, and where it is called.
            local own = helper.read(place.path)
            if not source:find(own, 1, true) then source = source .. '\n' .. own end
            local count = select(2, source:gsub('%f[%w_]' .. place.name .. '%f[^%w_]', ''))
            if count < 2 and not by_script[place.name] then uncalled[#uncalled + 1] = place.name end
        end
        assert.same({}, uncalled)
    end)

    it('tells the life of a step that calls each function of Lua it names', function()
        local life, defined, missing = text:match '\n## The life of a step\n(.-)\n## ', {}, {}
        for _, place in ipairs(named_places(life)) do
            local n = 0
            for line in (place.path:match '%.lua$' and helper.read(place.path) or ''):gmatch '([^\n]*)\n' do
                n = n + 1
                local name = place.name
                if line:match('function%s+[%w_.:]*' .. name .. '%s*%(') or line:match(name .. '%s*=%s*function') then
                    defined[('%s:%d'):format(place.path, n)] = name
                    missing[name] = true
                end
            end
        end
        assert.truthy(next(missing))
        local wane = helper.wane or require 'wane'
        local nn = wane.nn
        local model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
        local opt = wane.optim.SGD(model:parameters(), { lr = 0.1 })
        local x, y = wane.eval(wane.randn(2, 4)), wane.tensor({ 0, 2 }, { dtype = 'i32' })
        local was_on = jit.status()
        jit.off()
        jit.flush() -- traces call no hook
        debug.sethook(function()
            local info = debug.getinfo(2, 'S')
            local path = info.source:match 'lua/wane/.*$'
            missing[defined[('%s:%d'):format(path or '', info.linedefined)] or ''] = nil
        end, 'c')
        local ok, why = pcall(function() opt:step(nn.cross_entropy(model(x), y), { policy = 'sqrt' }) end)
        debug.sethook()
        if was_on then jit.on() end
        assert(ok, why)
        assert.same({}, missing)
    end)

    it('says of every function of the library in which file it stands', function()
        local known, unknown = {}, {}
        for _, place in ipairs(places) do known[place.name:match '[%w_]+$'] = true end
        for name in text:gmatch '%f[%w_](wn_[%l%d_]+)' do
            if not known[name] then unknown[#unknown + 1] = name end
        end
        assert.same({}, unknown)
    end)
end)

-- ---- the reference -------------------------------------------------------------------------------------------------
-- The reference: all that scripts can call has a doc comment with an example, and every example runs.
--
-- A doc comment of a file that opens with `@module` is public unless it says `@within Internal`; its `@usage` is an
-- example, run after the lines that config.ld shows. `-->` in an example promises what it prints.
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
