-- Changes at random what the readers in Lua read. Each text must be taken, or refused by an error of Wane's that names
-- the file (or, where there is none, says what was expected). Anything else - an error of Lua's, a place outside the
-- text, a training afterwards with other bits - ends the driver and leaves the text in build/fuzz/found.
-- usage: FUZZ_SEED=n luajit spec/fuzz/readers.lua SECONDS
package.path = './?.lua;./lua/?.lua;./lua/?/init.lua;' .. package.path
local ffi = require 'ffi'
local files = require 'spec.support.files'
local wane = require 'wane'
local bytes = require 'wane.report.bytes'
local costs = require 'wane.plan.costs'
local errors = require 'wane.errors'
local json = require 'wane.report.json'
local recipe = require 'wane.policy.recipe'
local store = require 'wane.sweep.store'

ffi.cdef 'int setenv(const char *name, const char *value, int replace);'

local SECONDS, SEED = tonumber(arg[1]) or 10, tonumber(os.getenv 'FUZZ_SEED') or 1
local PATH, FOUND = os.tmpname(), 'build/fuzz/found/readers.txt'

-- ---- a small generator, so that a seed is enough to repeat what was found ----------------------------------------
local state = SEED * 7919 + 17
local function roll(n)
    state = (state * 1103515245 + 12345) % 2147483648
    return math.floor(state / 65536) % n + 1
end

-- ---- texts that are right ------------------------------------------------------------
local function model()
    wane.manual_seed(4)
    return wane.nn.Sequential { wane.nn.Linear(3, 4), wane.nn.GELU(), wane.nn.Linear(4, 2) }
end

local function loss_of(net) return (net(wane.ones(2, 3)):tanh()):sum() end

local function plan(policy)
    local net = model()
    return wane.plan(function() return loss_of(net) end, { policy = policy })
end

local function saved(with_optimizer)
    local net = model()
    local opt = wane.optim.Adam(net:parameters(), { lr = 0.1 })
    opt:step(loss_of(net))
    wane.save(PATH, net, with_optimizer and { optimizer = opt } or nil)
    return assert(files.read(PATH))
end

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

local function rows()
    os.remove(PATH)
    sweep():run()
    return assert(files.read(PATH))
end

local function recipe_text(policy)
    return tostring(plan(policy):recipe())
end

local IDX = '\0\0\8\3\0\0\0\2\0\0\0\1\0\0\0\3' .. '\0\1\2\128\254\255'
local COSTS = '# Seconds measured by Wane on this machine; written by wane.profile. machine, link: rates a second.\n'
    .. 'machine\t1e+10 2e+10 4e+10 8e+09 1e-06\nlink\t8e+09 1.5e+09 8e+09 1.5e+09\n'
    .. '1e-05\tmatmul f32 (4, 3)\n2.5e-06\tadd\n'
local JSON = '{"a":[1,-2.5e-3,"x\\u00e9\\n",null,true,{"b":[]}],"point":{"width":3},"s":"\195\169"}'

-- ---- the readers ------------------------------------------------------------
-- Fields of a reader: texts = right ones; read(path, text) reads one; is_named = its errors name the file; weight = its
-- share of the tries.
local readers = {
    { name = 'load into a model', weight = 4, texts = { saved(false), saved(true) }, is_named = true,
        read = function(path)
            local net = model()
            local strict = roll(2) == 1
            wane.load(path, net, { strict = strict, optimizer = roll(3) == 1 and wane.optim.Adam(net:parameters(),
                { lr = 0.1 }) or nil })
            return loss_of(net):item()
        end },
    { name = 'load as a table', weight = 3, texts = { saved(false), saved(true) }, is_named = true,
        read = function(path)
            for _, t in pairs(wane.load(path)) do
                if type(t) == 'table' and t.numel and t:numel() < 4096 then t:totable() end
            end
        end },
    { name = 'npy', weight = 3, texts = { assert(files.read 'spec/fixtures/numpy_f4.npy') }, is_named = true,
        read = function(path) return wane.data.npy(path):totable() end },
    { name = 'idx', weight = 2, texts = { IDX }, is_named = true,
        read = function(path) return wane.data.idx(path):totable() end },
    { name = 'tokens', weight = 1, texts = { 'to be or not \195\169 to be' }, is_named = true,
        read = function(path)
            local tokens = wane.data.tokens(path, { vocab = roll(2) == 1 and 'char' or 'byte' })
            return tostring(tokens) .. tokens:decode(tokens:encode 'to')
        end },
    { name = 'costs', weight = 2, texts = { COSTS }, is_named = true,
        read = function(path)
            ffi.C.setenv('WANE_COSTS', path, 1)
            costs.forget()
            local ok, why = pcall(function() return plan('recompute_all').seconds end)
            ffi.C.setenv('WANE_COSTS', 'off', 1)
            costs.forget()
            if not ok then error(why, 0) end
            assert(why == why and why >= 0 and why < math.huge, 'a plan of no time')
        end },
    { name = 'rows', weight = 2, texts = { rows() }, is_named = true,
        read = function(path) return store.read(path) end },
    { name = 'sweep', weight = 1, texts = { rows() },
        read = function()
            local s = sweep 'force'
            s:run()
            return tostring(s) .. s:csv()
        end },
    { name = 'json', weight = 3, texts = { JSON },
        read = function(_, text)
            local value, why, at = json.decode(text)
            if value == nil and why ~= nil and type(why) ~= 'table' then
                assert(type(why) == 'string' and at >= 1 and at <= #text + 1, 'a place outside the text')
            elseif value ~= nil then
                assert(json.decode(json.encode(value)) ~= nil, 'what was read is not written')
            end
        end },
    { name = 'recipe', weight = 4, texts = { recipe_text 'recompute_all', recipe_text 'save_all', recipe_text 'sqrt' },
        read = function(_, text)
            local parsed = recipe.parse(text)
            assert(recipe.parse(tostring(parsed)) == parsed, 'a recipe reads back as another')
            return plan(parsed).peak
        end },
    { name = 'bytes', weight = 1, texts = { '1.5 GiB', '800 MB', '4096' },
        read = function(_, text)
            local n = bytes.parse(text)
            assert(n >= 0 and n == math.floor(n), 'no whole number of bytes')
        end },
    { name = 'policy', weight = 1, texts = { 'sqrt', 'segments(3)', 'keep_last(2)', 'budget(2 GiB)', 'save_all' },
        read = function(_, text) return plan(text).peak end },
}

-- ---- changes ------------------------------------------------------------
local ODD = { '-1', '0', '1e308', '1e999', '9223372036854775807', '18446744073709551616', '4294967296', 'nan', 'inf',
    '-inf', '0x10', '""', '"', '\\', '\\u0000', '{', '}', '[', ']', ':', ',', 'null', 'true', '\0', '\255', '\n', '\t',
    ' ', '\r\n', 'F64', 'BF16', 'I64', 'BOOL', '<f8', '>i2', '|b1', 'h0', 'h99999999999', 'block 1', 'ahead 9',
    'group 9',
    '__metadata__', '../x' }

local function cut(text, at, n, put)
    return text:sub(1, at - 1) .. put .. text:sub(at + n)
end

local changes = {
    function(t, at) return cut(t, at, 1, string.char(roll(256) - 1)) end,
    function(t, at) return cut(t, at, 0, ODD[roll(#ODD)]) end,
    function(t, at) return cut(t, at, roll(4), '') end,
    function(t, at) return cut(t, at, 0, t:sub(at, at + roll(40))) end,
    function(t, at) return t:sub(1, at) end,
    function(t, at) -- the next number becomes another
        local first, last = t:find('%d+', at)
        return first and cut(t, first, last - first + 1, ODD[roll(12)]) or t
    end,
    function(t, at) -- the next word becomes another
        local first, last = t:find('%a[%w_]*', at)
        return first and cut(t, first, last - first + 1, ODD[roll(#ODD)]) or t
    end,
    function(t, at) return cut(t, at, 1, string.char((t:byte(at) or 0) % 2 == 0 and 255 or 0)) end,
}

local function change(text)
    for _ = 1, roll(4) do
        local at = roll(3) == 1 and roll(math.min(#text, 24) + 1) or roll(#text + 1)
        text = changes[roll(#changes)](text, at)
    end
    return text
end

-- ---- one try ------------------------------------------------------------
local function found(reader, text, what)
    files.write(FOUND, text)
    print(('reader %s, seed %d: %s; the text is in %s'):format(reader.name, SEED, what, FOUND))
    os.exit(1)
end

local function try(reader, text)
    files.write(PATH, text)
    local ok, e = pcall(reader.read, PATH, text)
    if ok then return true end
    if not errors.is(e) then found(reader, text, 'no error of Wane: ' .. tostring(e)) end
    local word = e.code
    if type(word) ~= 'string' or word == 'internal' then found(reader, text, 'code ' .. tostring(word)) end
    if #e.message == 0 or e.message:find 'attempt to' then found(reader, text, e.message) end
    local is_told = not reader.is_named or e.message:find(PATH, 1, true)
    if not is_told then found(reader, text, 'no file is named: ' .. e.message) end
    return false
end

local function train()
    local net = model()
    local opt = wane.optim.SGD(net:parameters(), { lr = 0.1 })
    local seen = {}
    for k = 1, 2 do seen[k] = ('%.17g'):format(opt:step(loss_of(net)):item()) end
    return table.concat(seen, ' ')
end

local bag = {}
for _, reader in ipairs(readers) do
    for _, text in ipairs(reader.texts) do
        local taken, tries = false, 0
        while not taken and tries < 16 do -- the options of a try are drawn, and not all of them fit the file
            taken, tries = try(reader, text), tries + 1
        end
        if not taken then found(reader, text, 'a right text was refused') end
    end
    for _ = 1, reader.weight do bag[#bag + 1] = reader end
end

io.stderr:setvbuf 'full'
local before, runs, taken, stop = train(), 0, 0, os.time() + SECONDS
while os.time() < stop do
    local reader = bag[roll(#bag)]
    runs = runs + 1
    local text = change(reader.texts[roll(#reader.texts)])
    if try(reader, text) then taken = taken + 1 end
    if runs % 50 == 0 and train() ~= before then found(reader, text, 'a training has other bits afterwards') end
    if runs % 200 == 0 then collectgarbage() end
end
os.remove(PATH)
os.remove(PATH .. '.lock')
print(('Done %d runs in %d second(s), seed %d: %d texts taken, the others refused in words'):format(runs, SECONDS, SEED,
    taken))
