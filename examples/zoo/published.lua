-- Published weights for the models of the zoo: safetensors files in the naming of Hugging Face, with config.json beside
-- them. zoo.gpt2 and zoo.llama say how their states are named there and what of a config.json they can compute; the
-- rest is here.
--
--   local model = require('wane.zoo.gpt2').load 'folder/of/gpt2'    -- or its model.safetensors, or ...index.json
--   local model = require('wane.zoo.llama').load('llama/model.safetensors.index.json', { dtype = 'bf16' })
--
-- Floats of any width become those of the model's dtype, f32 unless told. When anything does not fit, the error names
-- every tensor that is missing, unexpected or of another shape, and a model that was given is as it was.
local wane = require 'wane'

local json = require 'wane.report.json'
local system = require 'wane.system'

local published = {}

--- Raises an error object of Wane at the script's line.
function published.fail(fmt, ...)
    wane.errors.raise(nil, 'value', fmt, ...)
end

local fail = published.fail

-- Returns the table of config.json in the folder of a file, or in the folder itself; nil where there is none.
local function read_config(path)
    local text, name
    for _, folder in ipairs { path:gsub('/*$', '') .. '/', path:match '^(.*/)' or '' } do
        name = folder .. 'config.json'
        text = text or system.read(name)
    end
    if not text then return nil end
    local value, why = json.decode(text)
    if type(value) ~= 'table' then fail("'%s': %s", name, why or 'no table') end
    return value, name
end

--- Refuses what a config.json asks for and a model of the zoo does not compute.
-- @param config table of config.json
-- @param only name -> list of the values that are computed, of which the first is meant where the name is absent
function published.require_values(config, only)
    for name, values in pairs(only) do
        local given, is_known = config[name], config[name] == nil
        for _, value in ipairs(values) do is_known = is_known or given == value end
        if not is_known then
            fail("config.json: %s = %s is not computed here; known: %s", name,
                type(given) == 'table' and 'a table' or tostring(given), tostring(values[1]))
        end
    end
end

--- Returns the numbers of a config.json under the zoo's names.
-- @param config table of config.json
-- @param fields the zoo's name -> name in config.json
function published.numbers(config, fields)
    local out = {}
    for field, name in pairs(fields) do
        local value = config[name]
        if type(value) ~= 'number' or value <= 0 then
            fail("config.json: %s = %s; a number above 0 expected", name, tostring(value))
        end
        out[field] = value
    end
    return out
end

-- Returns what stands before the name of the table of tokens in a file ('transformer.', 'model.', or nothing), and the
-- entry of that table.
local function prefix_of(list, table_name)
    for _, entry in ipairs(list) do
        if entry.name:sub(-#table_name) == table_name then return entry.name:sub(1, -#table_name - 1), entry end
    end
end

-- Raises unless a model has the numbers that config.json says.
local function compare(zoo, model, config)
    local mine = zoo.complete(model.config)
    for name, value in pairs(zoo.complete(config)) do
        if mine[name] ~= value then
            fail('%s: the model has %s = %s, config.json says %s', zoo.what, name, tostring(mine[name]),
                tostring(value))
        end
    end
end

-- Returns the config that the weights were published with.
local function config_of(zoo, path, list, opts)
    if opts.config ~= nil then
        for name in pairs(type(opts.config) == 'table' and zoo.smallest or {}) do
            if opts.config[name] == nil then fail('%s: config has no %s', zoo.what, name) end
        end
        return opts.config
    end
    local config = read_config(path)
    if config then return zoo.read(config) end
    local guess = zoo.guess and zoo.guess(list)
    if guess then return guess end
    fail("%s: no config.json beside '%s', and the weights do not show the number of heads; give {config = a size or a "
        .. 'table as for new}', zoo.what, path)
end

-- Says on the error stream that a model has less dropout than its weights were trained with.
local function tell_dropout(zoo, p)
    if p == 0 then return end
    io.stderr:write(('wane: %s: config.json trains with dropout %g, the model has 0; { dropout = %g } gives it to the '
        .. 'model, { dropout = 0 } ends this line\n'):format(zoo.what, p, p))
end

--- Loads published weights.
-- @param zoo { what = opens messages, new = function(config, opts), read = function(table of config.json) that returns
-- a config, complete = function(config) that fills in defaults, smallest = a whole config, guess = function(list of
-- tensors) that returns a config or nil, table_name =, names = function(prefix, config) that returns the rule for
-- wane.load, ignore = patterns }
-- @param path of the weights: a file, an index, or a folder
-- @param opts options of zoo.new, and model = one that takes the weights, config = instead of config.json
-- @return the model
function published.load(zoo, path, opts)
    local rest, given = {}, opts or {}
    if type(path) ~= 'string' then
        fail('%s: expected the name of a file or folder, got %s', zoo.what, tostring(path))
    end
    if type(given) ~= 'table' then fail('%s: options must be a table, got %s', zoo.what, tostring(given)) end
    if given.model ~= nil and not (wane.nn.is_module(given.model) and type(given.model.config) == 'table') then
        fail('%s: model = %s; expected a model of the zoo', zoo.what, tostring(given.model))
    end
    for name, value in pairs(given) do
        if name ~= 'model' and name ~= 'config' then rest[name] = value end
    end
    local list = wane.inspect(path)
    local prefix = prefix_of(list, zoo.table_name) or ''
    local model = given.model
    if model then
        if next(rest) ~= nil then fail('%s: %s is an option of a new model, and one is given', zoo.what, next(rest)) end
        if given.config == nil and read_config(path) then compare(zoo, model, zoo.read(read_config(path))) end
    else
        local config = config_of(zoo, path, list, given)
        model = zoo.new(config, rest)
        if given.dropout == nil and type(config) == 'table' then tell_dropout(zoo, config.dropout or 0) end
    end
    wane.load(path, model, { names = zoo.names(prefix, zoo.complete(model.config)), ignore = zoo.ignore,
        cast = true })
    return model
end

return published
