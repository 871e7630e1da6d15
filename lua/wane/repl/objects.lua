--- The kinds of objects whose methods help at the prompt knows, and the comments of these methods.
--
-- The methods are read from the files that define them: a doc comment above `function Plan:explain(...)` is a method of
-- plans. A kind is added to KINDS.
-- @internal wane.repl.objects

local comments = require 'wane.repl.comments'
local errors = require 'wane.errors'

local objects = {}

-- Kind as scripts write it -> { file below lua/wane, name of its table there }; a kind with a dot is a table of
-- functions.
local KINDS = {
    plan = { 'plan/init', 'Plan' }, frontier = { 'plan/budget/frontier', 'Frontier' },
    sweep = { 'sweep/init', 'Sweep' }, optimizer = { 'optim/optimizer', 'Optimizer' },
    ['optim.schedule'] = { 'optim/schedule', 'schedule' },
    ['wane.memory'] = { 'plan/measure/memory', 'memory' }, memory = { 'plan/measure/memory', 'Report' },
    ['wane.bytes'] = { 'report/bytes', 'bytes' },
    ema = { 'optim/ema', 'EMA' }, curve = { 'report/line_plot', 'Curve' }, recipe = { 'policy/recipe', 'Recipe' },
    batches = { 'data/batches', 'Batches' }, tokens = { 'data/tokens', 'Tokens' },
    module = { 'module/state', 'Module' }, sequential = { 'nn/sequential', 'Sequential' },
    py = { 'pytorch/init', 'Script' },
}

--- Lists the kinds, sorted.
function objects.kinds()
    return errors.names(KINDS)
end

--- Tells whether a word is a kind.
-- @param word text
function objects.is(word)
    return KINDS[word] ~= nil
end

--- Returns the kind of a value, or nil.
-- @param value any value
function objects.kind(value)
    local mt = debug.getmetatable(value)
    while type(value) == 'table' and type(mt) == 'table' do
        local index = rawget(mt, '__index')
        local fn = index
        if type(index) == 'table' then
            for _, entry in errors.iterate(index) do
                if type(entry) == 'function' then fn = entry end
            end
        end
        if type(fn) == 'function' then
            local source = debug.getinfo(errors.inner(fn), 'S').source
            for kind, place in errors.iterate(KINDS) do
                if source == '@' .. comments.folder .. place[1] .. '.lua' and not kind:find '%.' then return kind end
            end
        end
        value, mt = index, debug.getmetatable(index)
    end
    return nil
end

--- Returns a method as scripts write it.
-- @param kind one of `kinds`
-- @param name of the method
function objects.title(kind, name)
    return kind .. (kind:find '%.' and '.' or ':') .. name
end

local methods = {} -- kind -> what objects.methods returns

--- Returns the public methods of a kind: name -> block of comments.of.
-- @param kind one of `kinds`
function objects.methods(kind)
    if methods[kind] then return methods[kind] end
    local found = {}
    local file, class = KINDS[kind][1], KINDS[kind][2]
    for _, block in ipairs(comments.of(file)) do
        local code = block.code or ''
        local owner, name = code:match '^function ([%w_]+)[.:]([%w_]+)'
        if not owner then owner, name = code:match '^([%w_]+)%.([%w_]+) *=' end
        local is_public = not table.concat(block.text, '\n'):find '@within Internal'
        if owner == class and is_public then found[name] = block end
    end
    methods[kind] = found
    return found
end

return objects
