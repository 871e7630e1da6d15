--- Recipes as text: which values each step of a plan keeps, and which blocks it runs again.
--
-- A recipe can be read, edited, kept with a script and given back. It names values by their place: h1, h2 and so on are
-- the values that the forward computes, in the order in which they are recorded (with several losses: loss by loss). So
-- it holds for every recording of the same forward, on any shapes, and for backward() as for opt:step(loss). A line is
-- a block, which is a part of the forward with the ops of its values, or a step; steps are done in order:
--
--     block 1: h1-h3 linear gelu linear   -- blocks.1       (two dashes: a comment; an indented line goes on)
--     block 2: h4-h6 as 1                                   (has the ops of block 1)
--     Fe 1: h1 h2    run block 1 forward; keep h1, h2 and the values that later blocks read
--     Fe 1: h1 compress:bf16 h2    run it forward too, and keep h1 in that form until it is read again
--     F 2            run block 2 forward; keep the values that later blocks read
--     Free 1: h2     keep h2 of block 1 only; without a list, keep no value of it
--     Shrink 1       keep of block 1 only the values that later blocks read
--     B 2            run the backward of block 2; missing values are computed right before they are read
--     B 1/2          run block 1's backward for loss 2, where it was run for loss 1
--     ahead 4        transfers may hold 4/8 of the bytes that offloading saves, to start early, and exchanges among
--                    ranks 4/8 of the bytes that they move, to be hidden; 2/8 unless given
--     group 65536    exchanges among ranks start together until they are 64 KiB; by the rates of the link unless given
--
-- Results, integers and values from before the step always stay, and are named only where an action is given for them.
-- Every block is run forward before the backward of its loss, which takes the blocks from the last to the first. The
-- library checks that (plan/recipe/text.c) and names the step and the rule; this file reads, writes, and compares with
-- the graph. The block operations are those of rotor (Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova, 2019).
-- @module wane.policy.recipe
local decisions = require 'wane.policy.decisions'
local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local rows = require('wane.tensor.op').rows
local utf8 = require 'wane.utf8'

local C, check, iterate, raise = binding.C, binding.check, errors.iterate, errors.raise

local recipe = {}

-- A recipe. Fields: blocks (list of { first =, last = places, ops = list of names or nil, path = text }), steps (list
-- of { what = 'F', 'Fe', 'Free', 'Shrink' or 'B', block =, root = nil or number of the loss, keep = list of places,
-- action = { [place] = decision } }), ahead = eighths or nil, group = bytes or nil. It prints as text; two recipes are
-- equal when their texts are equal but for paths.
local Recipe = {}
Recipe.__index = Recipe

local kinds = { F = C.WN_STEP_F, Fe = C.WN_STEP_FE, Free = C.WN_STEP_FREE, B = C.WN_STEP_B, Shrink = C.WN_STEP_SHRINK }
local WIDTH = 110

-- ---- writing ------------------------------------------------------------------------------------------------
-- Adds a head and tokens to lines, broken at WIDTH columns.
local function put_line(lines, head, tokens, comment)
    local line = head
    for _, token in ipairs(tokens) do
        if #line + #token + 1 > WIDTH then
            lines[#lines + 1] = line
            line = '   '
        end
        line = line .. ' ' .. token
    end
    lines[#lines + 1] = utf8.shown(comment and line .. '  -- ' .. comment or line) -- tokens and names may be a file's
end

local function put_block(lines, blocks, i, first_like, has_paths)
    local block = blocks[i]
    local ops = block.ops and table.concat(block.ops, ' ')
    local like = ops and first_like[ops]
    if ops then first_like[ops] = like or i end
    put_line(lines, ('block %d: h%s-h%s'):format(i, tostring(block.first), tostring(block.last)),
        like and { 'as', tostring(like) } or block.ops or {}, has_paths and block.path or nil)
end

local function put_step(lines, step)
    local tokens = {}
    for _, place in ipairs(step.keep or {}) do
        local action = step.action and step.action[place]
        tokens[#tokens + 1] = 'h' .. tostring(place) .. (action and ' ' .. tostring(action) or '')
    end
    local root = step.root and '/' .. tostring(step.root) or ''
    local head = ('%s %s%s'):format(tostring(step.what), tostring(step.block), root)
    put_line(lines, tokens[1] and head .. ':' or head, tokens)
end

local function text_of(self, has_paths)
    local lines, first_like = {}, {}
    for i in ipairs(self.blocks) do put_block(lines, self.blocks, i, first_like, has_paths) end
    if self.ahead then lines[#lines + 1] = 'ahead ' .. tostring(self.ahead) end
    if self.group then
        local is_number = type(self.group) == 'number'
        lines[#lines + 1] = 'group ' .. (is_number and ('%.17g'):format(self.group) or tostring(self.group))
    end
    for _, step in ipairs(self.steps) do put_step(lines, step) end
    return table.concat(lines, '\n')
end

function Recipe.__tostring(self)
    return text_of(self, true)
end

--- Returns the text without paths; equal recipes have equal keys.
-- @usage
-- local recipe = wane.plan(function() return nn.cross_entropy(model(x), y) end):recipe()
-- print(recipe:key() == policy.recipe(recipe).recipe:key()) --> true
function Recipe:key()
    return text_of(self, false)
end

function Recipe.__eq(a, b)
    return a:key() == b:key()
end

local policy_of -- makes a policy of a recipe

--- Sets the function that makes a policy of a recipe; policy/init.lua fills it in when it is loaded.
-- @within Internal
function recipe.set_policy(fn)
    policy_of = fn
end

--- Returns the policy that takes its decisions from this recipe; a recipe can be given where a policy is expected.
-- @usage
-- local recipe = wane.plan(function() return nn.cross_entropy(model(x), y) end, { policy = 'sqrt' }):recipe()
-- loss:backward { policy = recipe }
function Recipe:as_policy()
    return policy_of(self)
end
Recipe.__describe = function(self)
    return ('a recipe of %d blocks and %d steps'):format(#self.blocks, #self.steps)
end

-- ---- reading ------------------------------------------------------------------------------------------------
local function fail(line, fmt, ...)
    raise(nil, 'value', 'recipe, line %d: %s', line, fmt:format(...))
end

local MOST_PLACE = 2 ^ 31 - 1

-- Returns the number of a block, a value or a loss; raises 'value' for one that the library cannot hold.
local function number_of(digits, line)
    local number = tonumber(digits)
    if number and number > MOST_PLACE then fail(line, 'the number %s is above %d', digits:sub(1, 24), MOST_PLACE) end
    return number
end

local function read_ops(blocks, tokens, line)
    local like = tokens:match '^as%s+(%d+)%s*$'
    if like then
        local block = blocks[tonumber(like)]
        if not block or not block.ops then fail(line, "'as %s': block %s stands before and has no ops", like, like) end
        return block.ops
    end
    local ops = {}
    for token in tokens:gmatch '%S+' do ops[#ops + 1] = token end
    return ops[1] and ops or nil
end

local function read_block(self, rest, line)
    local number, first, last, tokens = rest:match '^(%d+)%s*:%s*h(%d+)%s*%-%s*h(%d+)%s*(.*)$'
    if not number then fail(line, "expected a block such as 'block 1: h1-h4 linear gelu', got 'block %s'", rest) end
    local before = self.blocks[#self.blocks]
    local want, from = #self.blocks + 1, before and before.last + 1 or 1
    if tonumber(number) ~= want then fail(line, 'block %s comes where block %d is next', number, want) end
    if tonumber(first) ~= from or number_of(last, line) < from then
        fail(line, 'block %s is h%s to h%s; it must begin at h%d, behind the block before, and not be empty', number,
            first, last, from)
    end
    local ops = read_ops(self.blocks, tokens, line)
    local count = tonumber(last) - tonumber(first) + 1
    if ops and #ops ~= count then fail(line, 'block %s has %d values and %d ops', number, count, #ops) end
    self.blocks[want] = { first = tonumber(first), last = tonumber(last), ops = ops }
end

local function read_values(step, list, line)
    for token in list:gmatch '[^%s,]+' do
        local place = number_of(token:match '^h(%d+)$', line)
        if place then
            step.keep[#step.keep + 1] = place
        elseif not step.keep[1] or step.action and step.action[step.keep[#step.keep]] then
            fail(line, "'%s' is no value; values are h1, h2, ...", token)
        else
            decisions.check(token, ('recipe, line %d: h%d'):format(line, step.keep[#step.keep]))
            step.action = step.action or {}
            step.action[step.keep[#step.keep]] = token
        end
    end
    table.sort(step.keep)
end

local function read_step(self, what, rest, line)
    if not kinds[what] then
        local known = { 'F', 'Fe', 'Free', 'Shrink', 'B', 'block', 'ahead', 'group' }
        fail(line, "'%s' is no step; %s", what, errors.near(what, known))
    end
    local block, root, tail = rest:match '^(%d+)/?(%d*)%s*(.*)$'
    local list = tail and (tail == '' and '' or tail:match '^:%s*(.-)%s*$')
    if not list then fail(line, "expected a step such as 'F 3' or 'Fe 3: h7 h9', got '%s %s'", what, rest) end
    local step = { what = what, block = number_of(block, line), root = number_of(root, line), keep = {} }
    if list ~= '' and (what == 'B' or what == 'Shrink') then fail(line, '%s takes no values', what) end
    read_values(step, list, line)
    self.steps[#self.steps + 1] = step
end

local function read_ahead(self, rest, line)
    self.ahead = tonumber(rest:match '^%d$')
    if not self.ahead or self.ahead > 8 then fail(line, "expected eighths from 0 to 8, got 'ahead %s'", rest) end
end

local function read_group(self, rest, line)
    self.group = tonumber(rest:match '^%d+$')
    if not self.group or self.group > 2 ^ 53 then fail(line, "expected bytes, 0 or more, got 'group %s'", rest) end
end

--- Reads a recipe from its text; raises 'value' with the line and the form that was expected there.
-- @within Internal
function recipe.parse(text)
    local self, number = setmetatable({ blocks = {}, steps = {} }, Recipe), 0
    local logical = {} -- { text, line }
    for line in (text .. '\n'):gmatch '(.-)\r?\n' do
        number = number + 1
        local tokens, last = line:gsub('%-%-.*$', ''), logical[#logical]
        if tokens:find '^%s+%S' and last then
            last.text = last.text .. ' ' .. tokens
        elseif tokens:find '%S' then
            logical[#logical + 1] = { text = tokens, line = number }
        end
    end
    for _, each in ipairs(logical) do
        local head, rest = each.text:match '^%s*(%S+)%s*(.-)%s*$'
        if head == 'block' then read_block(self, rest, each.line)
        elseif head == 'ahead' then read_ahead(self, rest, each.line)
        elseif head == 'group' then read_group(self, rest, each.line)
        else read_step(self, head, rest, each.line) end
    end
    if #self.blocks == 0 or #self.steps == 0 then
        raise(nil, 'value', "recipe: expected lines of blocks and of steps, as print(plan:recipe()) shows them; got %d "
            .. 'and %d', #self.blocks, #self.steps)
    end
    return self
end

local field_kinds = { ops = 'table', keep = 'table', action = 'table', path = 'string' }

-- Raises 'value' for entries that are no table, and for fields that could not be read from text.
local function check_entries(list, what)
    for k = 1, errors.list(list, 'policy.recipe', what .. 's') do
        local entry = list[k]
        if type(entry) ~= 'table' then
            raise(nil, 'value', 'policy.recipe: %s %d must be a table, got %s', what, k, errors.describe(entry))
        end
        for name, kind in iterate(field_kinds) do
            if entry[name] ~= nil and type(entry[name]) ~= kind then
                raise(nil, 'value', 'policy.recipe: %s %d: %s must be a %s, got %s', what, k, name, kind,
                    errors.describe(entry[name]))
            end
        end
        if entry.keep then errors.list(entry.keep, ('policy.recipe: %s %d: keep'):format(what, k), 'places') end
        for i = 1, entry.ops and errors.list(entry.ops, ('policy.recipe: %s %d: ops'):format(what, k), 'ops') or 0 do
            local op = entry.ops[i]
            if type(op) ~= 'string' then
                raise(nil, 'value', 'policy.recipe: %s %d: entry %d of ops must be the name of an op, got %s', what, k,
                    i, errors.describe(op))
            end
        end
    end
end

--- Makes a recipe of a recipe, its text, a table of its fields, or a plan. It is read as text is, so the argument may
-- be changed afterwards.
-- @within Internal
function recipe.of(x)
    if type(x) == 'table' and type(x.recipe) == 'function' then x = x:recipe() end
    if type(x) == 'string' then return recipe.parse(x) end
    if type(x) ~= 'table' or type(x.blocks) ~= 'table' or type(x.steps) ~= 'table' then
        raise(nil, 'value', 'policy.recipe: expected a recipe as plan:recipe() gives it, its text or a plan, got %s',
            errors.describe(x))
    end
    check_entries(x.blocks, 'block')
    check_entries(x.steps, 'step')
    return recipe.parse(text_of(x, false))
end

--- Returns the recipe of a planned program.
-- @within Internal
-- @param p Program
-- @param graph its Program:graph(): gives the ops and paths of the blocks
function recipe.from(p, graph)
    local nodes = recipe.forward(graph)
    if #nodes == 0 then raise(nil, 'value', 'plan:recipe: the %s has none, it keeps no values', p.request.mode) end
    local self = recipe.parse(binding.text(C.wn_recipe(p.handle)))
    for _, block in ipairs(self.blocks) do
        block.ops = {}
        local first, last
        for place = block.first, block.last do
            local node = nodes[place]
            block.ops[#block.ops + 1] = node.op
            local path = node.path ~= '' and node.path or nil
            first, last = first or path, path or last
        end
        block.path = first and (first == last and first or first .. ' to ' .. last) or nil
    end
    return self
end

-- ---- giving it to a program -----------------------------------------------------------------------------------

--- Lists the values that the forward of a graph computes, in order: h1, h2 and so on. Leaves are not among them.
-- @within Internal
function recipe.forward(graph)
    local nodes = {}
    for _, node in ipairs(graph) do
        if node.phase == 'forward' and node.leaf == 0 then nodes[#nodes + 1] = node end
    end
    return nodes
end

-- Returns whether an op has no inputs, as randn, zeros and arange have none.
local function is_source(name)
    local row = rows[name]
    return row ~= nil and row.most == 0
end

-- Returns the recipe without some places. Blocks that lose all their places are dropped, with their steps.
local function without(self, is_gone)
    local out, place_of, block_of, n = { blocks = {}, steps = {}, ahead = self.ahead, group = self.group }, {}, {}, 0
    for i, block in ipairs(self.blocks) do
        local ops, first = {}, n + 1
        for place = block.first, block.last do
            if not is_gone[place] then
                n = n + 1
                place_of[place], ops[#ops + 1] = n, block.ops[place - block.first + 1]
            end
        end
        if n >= first then
            out.blocks[#out.blocks + 1] = { first = first, last = n, ops = ops }
            block_of[i] = #out.blocks
        end
    end
    for _, step in ipairs(self.steps) do
        local copy = { what = step.what, block = block_of[step.block], root = step.root, keep = {}, action = {} }
        for _, place in ipairs(step.keep) do
            local now = place_of[place]
            if now then
                copy.keep[#copy.keep + 1] = now
                copy.action[now] = step.action and step.action[place]
            end
        end
        if copy.block then out.steps[#out.steps + 1] = copy end
    end
    return setmetatable(out, Recipe)
end

-- Returns the recipe as it is for a graph. Values without inputs may exist before the step (x:retain(), wane.eval(x));
-- the recipe decides nothing about them then.
local function for_graph(self, nodes)
    local is_gone, n = {}, 0
    for _, node in ipairs(nodes) do
        if is_source(node.op) then return self end
    end
    for _, block in ipairs(self.blocks) do
        for place = block.first, block.last do
            if block.ops and is_source(block.ops[place - block.first + 1]) then is_gone[place], n = true, n + 1 end
        end
    end
    return n > 0 and without(self, is_gone) or self
end

local function step_of(self, block)
    for i, step in ipairs(self.steps) do
        if step.block == block then return ('step %d (%s %d)'):format(i, step.what, block) end
    end
    return 'no step'
end

-- Raises 'illegal' for another graph, with the first value of another op, or with the number of values.
local function compare(self, nodes)
    for i, block in ipairs(self.blocks) do
        for place = block.first, math.min(block.last, #nodes) do
            local want, node = block.ops and block.ops[place - block.first + 1], nodes[place]
            if want and want ~= node.op then
                raise(nil, 'illegal', "recipe: it is of another graph: h%d of block %d, which %s is first about, is "
                    .. "%s there, and here %s%s", place, i, step_of(self, i), want, node.op,
                    (node.path ~= '' and (" of '%s'"):format(node.path) or '') .. (is_source(node.op) and ', a value '
                    .. 'made in the step: wane.eval it before' or ''))
            end
        end
    end
    local last = self.blocks[#self.blocks].last
    if last ~= #nodes then
        raise(nil, 'illegal', 'recipe: it is of another graph: of %d values, and the forward here computes %d%s', last,
            #nodes, last < #nodes and (': h%d is %s'):format(last + 1, nodes[last + 1].op) or '')
    end
end

--- Gives an open program the recipe to be planned by.
-- @within Internal
-- @raise 'illegal' with the first value that differs when it is of another graph, else with the step and the rule that
-- it breaks
-- @param p Program
-- @param self Recipe
-- @param graph Program:graph()
function recipe.give(p, self, graph)
    local nodes = recipe.forward(graph)
    self = for_graph(self, nodes)
    compare(self, nodes)
    local n_keep = 0
    for _, step in ipairs(self.steps) do n_keep = n_keep + #step.keep end
    local steps = binding.list('struct wn_recipe_step', #self.steps)
    local keep = binding.array('i32', n_keep + 1)
    local action = binding.array('i32', n_keep + 1)
    local limit = binding.array('i32', #self.blocks)
    for i, block in ipairs(self.blocks) do limit[i - 1] = block.last end
    local at = 0
    for i, step in ipairs(self.steps) do
        local s = steps[i - 1]
        s.what, s.block, s.root, s.keep_at, s.n_keep = kinds[step.what], step.block, step.root or 0, at, #step.keep
        for _, place in ipairs(step.keep) do
            keep[at] = place
            action[at] = step.action and decisions.numbers[step.action[place]] or 0
            at = at + 1
        end
    end
    local given = binding.new('struct wn_recipe_given')
    given.step, given.keep, given.action, given.limit = steps, keep, action, limit
    given.n_steps, given.n_blocks, given.n_keep = #self.steps, #self.blocks, n_keep
    given.prefetch = self.ahead or -1
    given.group = self.group or -1
    check(C.wn_give_recipe(p.handle, given))
end

return recipe
