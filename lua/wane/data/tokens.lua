--- Texts as numbers: one token for each character, or for each byte.
--
-- The file is read in pieces, and the numbers are kept once: a byte each for up to 256 characters, else i32. Token ids
-- are data and count from 0: `vocab[id + 1]` is the text of id.
-- @module wane.data.tokens

local binding = require 'wane.ffi'
local create = require 'wane.tensor.create'
local errors = require 'wane.errors'
local file = require 'wane.io.file'
local read = require 'wane.tensor.read'
local tensor = require 'wane.tensor'
local utf8 = require 'wane.utf8'

local C, check, raise = binding.C, binding.check, errors.raise

local PIECE = 65536

-- Tokens. Fields: vocab (list of strings), counts (how often each occurs), length (number of tokens), entropy (of
-- single tokens, in nats: the loss of a model that knows the counts alone), path.
local Tokens = {}

local fields = {}

Tokens.__index = function(self, name)
    local value = Tokens[name]
    if value ~= nil then return value end
    if fields[name] then
        value = fields[name](self)
        rawset(self, name, value)
        return value
    end
    raise(nil, 'value', "tokens have no '%s'; %s", tostring(name), errors.near(name, { 'vocab', 'counts', 'length',
        'entropy', 'path', 'encode', 'decode', 'split' }))
end

function Tokens.__tostring(self)
    return ("tokens of '%s': %.0f, %d different, %.4f nats each"):format(self.path, self.length, #self.vocab,
        self.entropy)
end

function Tokens.__describe(self)
    return tostring(self)
end

-- ---- counting -----------------------------------------------------------------------------------------------------

--- Holds how often each entry of the vocabulary occurs: a list of numbers, counted when it is first read.
-- @usage
-- local file = io.open('text.txt', 'w')
-- file:write 'to be or not to be'
-- file:close()
-- local text = data.tokens 'text.txt'
-- print(text.vocab[2], text.counts[2]) --> b	2
function fields.counts(self)
    local n, dtype = #self.vocab, self._value.dtype
    local size = binding.element_bytes[dtype]
    local block, counts, list = binding.array(dtype, PIECE), binding.array('f64', n), {}
    for at = 0, self.length - 1, PIECE do
        local m = math.min(PIECE, self.length - at)
        check(C.wn_read_part(self._value.id, (self._first + at) * size, block, m * size))
        for k = 0, m - 1 do counts[block[k]] = counts[block[k]] + 1 end
    end
    for k = 1, n do list[k] = counts[k - 1] end
    return list
end

--- Holds the entropy of single tokens in nats: the loss of a model that knows the counts alone.
-- @usage
-- local file = io.open('text.txt', 'w')
-- file:write 'to be or not to be'
-- file:close()
-- print(('%.2f'):format(data.tokens('text.txt').entropy)) --> 1.80
function fields.entropy(self)
    local sum = 0
    for _, n in ipairs(self.counts) do
        if n > 0 then sum = sum - n / self.length * math.log(n / self.length) end
    end
    return sum
end

-- ---- reading a file -----------------------------------------------------------------------------------------------
-- Calls fn(code) for every character of a file, piece by piece. Returns the number of characters.
local function each_character(f, fn)
    local block, kept, at, count = binding.array('u8', PIECE + 4), 0, 0, 0
    while at < f.size do
        local m = math.min(PIECE, f.size - at)
        f:read_into(at, block + kept, m)
        local n, i = kept + m, 0
        at = at + m
        while i < n do
            local code, length = utf8.next(block, i, n)
            if code < 0 and (length == 0 or at == f.size) then
                raise(nil, 'io', "reading '%s': at byte %.0f it is no UTF-8; give {vocab = 'byte'}", f.path, at - n + i)
            end
            if code < 0 then break end
            fn(code)
            i, count = i + length, count + 1
        end
        kept = n - i
        for k = 0, kept - 1 do block[k] = block[i + k] end
    end
    return count
end

-- Returns the characters of a file in the order of their codes, and the number of characters in the file.
local function character_vocab(f)
    local seen, codes, vocab = {}, {}, {}
    local count = each_character(f, function(code)
        if not seen[code] then
            seen[code] = true
            codes[#codes + 1] = code
        end
    end)
    table.sort(codes)
    for k, code in ipairs(codes) do vocab[k] = utf8.char(code) end
    return vocab, count
end

local function ids_of(vocab)
    local ids = {}
    for k, word in ipairs(vocab) do ids[word] = k - 1 end
    return ids
end

-- Returns the ids of all characters as a state, which is written here alone.
local function character_value(f, vocab, count)
    local dtype, ids, id_of = #vocab <= 256 and 'u8' or 'i32', ids_of(vocab), {}
    local size, block, m, at = binding.element_bytes[dtype], binding.array(dtype, PIECE), 0, 0
    local value = create.cell(create.KIND_INPUT, create.zeros({ count }, { dtype = dtype }), 'tokens')
    local function flush()
        check(C.wn_write_part(value.id, at * size, block, m * size))
        at, m = at + m, 0
    end
    each_character(f, function(code)
        local id = id_of[code] or ids[utf8.char(code)]
        if id == nil then
            raise(nil, 'value', "wane.data.tokens: '%s' has the character '%s', which the vocabulary given has not",
                f.path, utf8.char(code))
        end
        id_of[code], block[m], m = id, id, m + 1
        if m == PIECE then flush() end
    end)
    if m > 0 then flush() end
    return value
end

local function byte_vocab()
    local vocab = {}
    for k = 0, 255 do vocab[k + 1] = string.char(k) end
    return vocab
end

local function read_tokens(f, kind)
    if f.size == 0 then raise(nil, 'io', "reading '%s': it holds no text", f.path) end
    if kind == 'byte' then
        return byte_vocab(), f:data { at = 0, kind = 'U8', dims = { f.size }, name = 'the text' }, f.size
    end
    local vocab, count = character_vocab(f)
    if kind ~= 'char' then vocab = kind end
    return vocab, character_value(f, vocab, count), count
end

-- ---- using them ---------------------------------------------------------------------------------------------------

--- Returns the ids of a text: a list of numbers from 0.
-- @param text string
-- @raise 'value' for a character that the vocabulary does not have
-- @usage
-- local file = io.open('text.txt', 'w')
-- file:write 'to be or not to be'
-- file:close()
-- print(table.concat(data.tokens('text.txt'):encode 'bet', ' ')) --> 1 2 6
function Tokens:encode(text)
    if type(text) ~= 'string' then
        raise(nil, 'value', 'encode: expected a text, got %s', errors.describe(text))
    end
    local ids, list, i = self._ids, {}, 1
    while i <= #text do
        local word = self._is_byte and text:sub(i, i) or text:match('^[%z\1-\127\194-\244][\128-\191]*', i)
        local id = word and ids[word]
        if id == nil then
            raise(nil, 'value', "encode: '%s', at byte %d, is not in the vocabulary of '%s'",
                word or text:sub(i, i), i, self.path)
        end
        list[#list + 1], i = id, i + #word
    end
    return list
end

--- Returns the text of ids.
-- @param ids list of numbers, tensor, or one number
-- @raise 'value' for a number that is no id
-- @usage
-- local file = io.open('text.txt', 'w')
-- file:write 'to be or not to be'
-- file:close()
-- print(data.tokens('text.txt'):decode { 1, 2 }) --> be
function Tokens:decode(ids)
    if tensor.is(ids) then
        local buffer, n = read.buffer(ids, 'decode')
        ids = {}
        for k = 1, n do ids[k] = tonumber(buffer[k - 1]) end
    end
    if type(ids) == 'number' then ids = { ids } end
    local words = {}
    for k = 1, errors.list(ids, 'decode', 'ids, or a tensor,') do
        local id = ids[k]
        words[k] = type(id) == 'number' and self.vocab[id + 1]
        if not words[k] then
            raise(nil, 'value', 'decode: entry %d is %s; ids go from 0 to %d', k, errors.describe(id), #self.vocab - 1)
        end
    end
    return table.concat(words)
end

local function part_of(self, first, length)
    return setmetatable({ path = self.path, vocab = self.vocab, length = length, _ids = self._ids, _value = self._value,
        _first = self._first + first, _is_byte = self._is_byte }, Tokens)
end

--- Returns two parts, which share the bytes and the vocabulary.
-- @param share part of the tokens that the first one gets, between 0 and 1
-- @usage
-- local file = io.open('text.txt', 'w')
-- file:write 'to be or not to be'
-- file:close()
-- local train, test = data.tokens('text.txt'):split(0.5)
-- print(train.length, test.length) --> 9	9
function Tokens:split(share)
    if type(share) ~= 'number' or not (share > 0 and share < 1) then
        raise(nil, 'value', 'split: the share must lie between 0 and 1, got %s', errors.describe(share))
    end
    local n = math.floor(self.length * share)
    return part_of(self, 0, n), part_of(self, n, self.length - n)
end

--- Returns the examples of tokens: windows of `length` tokens, and the windows one token later.
-- @within Internal
-- @param length tokens of a window
-- @param what opens the message of an error
-- @return { n = windows, pieces = list of { value =, length =, stride =, first =, dims =, dtype = } }
function Tokens:examples(length, what)
    local n = math.floor((self.length - 1) / length)
    local function piece(later)
        return { value = self._value, length = length, stride = length, first = self._first + later,
            dims = { length }, dtype = 'i32' }
    end
    if n < 1 then
        raise(nil, 'value', '%s: %.0f tokens do not make one window of %d and the token after it', what, self.length,
            length)
    end
    return { n = n, pieces = { piece(0), piece(1) } }
end

--- Reads a text file into tokens.
-- @function data.tokens
-- @param path name of a text file
-- @param opts {vocab = 'char': a token for each character of UTF-8, and a vocabulary of those that occur, in the order
-- of their codes; 'byte': a token for each byte, with a vocabulary of 256; or the .vocab of other tokens}
-- @return tokens: .vocab .counts .length .entropy, :encode(text) :decode(ids) :split(share)
-- @raise 'io' when the file cannot be read or is no UTF-8; 'value' for a character that a given vocabulary does not
-- have
-- @usage
-- local file = io.open('text.txt', 'w')
-- file:write 'to be or not to be'
-- file:close()
-- local text = data.tokens 'text.txt'
-- print(text.length, #text.vocab) --> 18	7
-- for a, b in data.batches(text, { batch = 2, length = 4 }) do print(a.shape, b.shape) end
-- --> (2, 4)	(2, 4)
-- --> (2, 4)	(2, 4)
return function(path, opts)
    local what = 'wane.data.tokens'
    opts = errors.check_options(opts, { 'vocab' }, what)
    local kind = opts.vocab or 'char'
    if kind ~= 'char' and kind ~= 'byte' and (type(kind) ~= 'table' or type(kind[1]) ~= 'string') then
        raise(nil, 'value', "%s: vocab = %s; there are 'char' and 'byte', or the .vocab of other tokens", what,
            errors.describe(kind))
    end
    return file.read(path, what, function(f)
        local vocab, value, count = read_tokens(f, kind)
        return setmetatable({ path = path, vocab = vocab, length = count, _ids = ids_of(vocab), _value = value,
            _first = 0, _is_byte = kind == 'byte' }, Tokens)
    end)
end
