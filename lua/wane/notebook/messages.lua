--- Messages of Jupyter's protocol 5.3: their parts on the wire, their signatures, their headers.
--
--     names of the receiver | <IDS|MSG> | signature | header | parent header | metadata | content | buffers
--
-- The parent header of an answer is the request's header, byte for byte.
-- @internal wane.notebook.messages

local binding = require 'wane.ffi'
local hmac = require 'wane.notebook.hmac'
local json = require 'wane.report.json'

local messages = {}

messages.VERSION = '5.3'

local DELIMITER = '<IDS|MSG>'

local Wire = {}
Wire.__index = Wire

-- Returns 16 random bytes as hexadecimal digits.
local function random_name()
    local source = io.open('/dev/urandom', 'rb')
    local bytes = source and source:read(16)
    if source then source:close() end
    return hmac.hex(bytes or hmac.sha256(tostring(binding.C.wn_now()) .. binding.C.wn_process()):sub(1, 16))
end

--- Makes what packs and unpacks the messages of one session.
-- @param key that signs them; '' signs none
-- @return wire with the methods `pack` and `unpack`
function messages.wire(key)
    return setmetatable({ key = key, session = random_name(), count = 0, seen = {}, before = {}, n_seen = 0 }, Wire)
end

local function signature(wire, parts)
    return wire.key ~= '' and hmac.sign(wire.key, table.concat(parts)) or ''
end

--- Returns a message as parts.
-- @param message { type =, content = table, names = list of the receiver's names or topics (optional), parent = JSON
-- of the parent's header (optional), metadata = table (optional) }
-- @return list of texts
function Wire:pack(message)
    self.count = self.count + 1
    local header = json.encode { msg_id = ('%s_%d'):format(self.session, self.count), session = self.session,
        username = 'wane', date = os.date '!%Y-%m-%dT%H:%M:%S.000000Z', msg_type = message.type,
        version = messages.VERSION }
    local signed = { header, message.parent or '{}', json.encode(message.metadata or {}),
        json.encode(message.content) }
    local parts = {}
    for _, name in ipairs(message.names or {}) do parts[#parts + 1] = name end
    parts[#parts + 1] = DELIMITER
    parts[#parts + 1] = signature(self, signed)
    for _, part in ipairs(signed) do parts[#parts + 1] = part end
    return parts
end

-- Tells whether two texts are equal, in a time that does not depend on where they differ.
local function is_equal(a, b)
    local differs = #a == #b and 0 or 1
    for i = 1, math.min(#a, #b) do differs = bit.bor(differs, bit.bxor(a:byte(i), b:byte(i))) end
    return differs == 0
end

local MOST_SEEN = 2 ^ 16 -- signatures that are kept twice over; older messages may be sent again

-- Returns what is wrong with the signature of some parts, or nil; a signature is right once.
local function fault_of(wire, given, signed)
    if wire.key == '' then return nil end
    if #given ~= 64 or not is_equal(signature(wire, signed), given) then return 'a message has a wrong signature' end
    if wire.seen[given] or wire.before[given] then return 'a message came a second time' end
    if wire.n_seen == MOST_SEEN then wire.before, wire.seen, wire.n_seen = wire.seen, {}, 0 end
    wire.seen[given], wire.n_seen = true, wire.n_seen + 1
end

--- Returns the message of some parts. A message is taken once: whoever sends a copy of it is refused.
-- @param parts list of texts
-- @return { type =, header = table, content = table, names = list, parent = JSON of its own header, for answers };
-- or nil and what is wrong with it
function Wire:unpack(parts)
    local at = 1
    while parts[at] and parts[at] ~= DELIMITER do at = at + 1 end
    if #parts < at + 5 then return nil, 'a message lacks parts' end
    local signed = { unpack(parts, at + 2, at + 5) }
    local fault = fault_of(self, parts[at + 1], signed)
    if fault then return nil, fault end
    local header, why = json.decode(signed[1])
    if type(header) ~= 'table' or type(header.msg_type) ~= 'string' then
        return nil, 'a header is none: ' .. tostring(why or 'it has no msg_type')
    end
    local content
    content, why = json.decode(signed[4])
    if type(content) ~= 'table' then
        return nil, ('the content of %s is none: %s'):format(header.msg_type, tostring(why or 'it is no object'))
    end
    return { type = header.msg_type, header = header, content = content, parent = signed[1],
        names = { unpack(parts, 1, at - 1) } }
end

return messages
