--- Sockets of ZeroMQ, from libzmq, which is opened at run time.
--
-- A message is a list of texts, its parts. `send` and `receive` return at once, and `zmq.poll` waits for at most the
-- time that it is given.
-- @internal wane.notebook.zmq

local binding = require 'wane.ffi'
local errors = require 'wane.errors'

local zmq = {}

local CDEF = [[
struct wane_zmq_message { int64_t words[8]; };
struct wane_zmq_item { void *socket; int fd; short events, seen; };
void *zmq_ctx_new(void);
int zmq_ctx_term(void *context);
void *zmq_socket(void *context, int kind);
int zmq_close(void *socket);
int zmq_setsockopt(void *socket, int option, const void *value, size_t bytes);
int zmq_getsockopt(void *socket, int option, void *value, size_t *bytes);
int zmq_bind(void *socket, const char *endpoint);
int zmq_connect(void *socket, const char *endpoint);
int zmq_send(void *socket, const void *bytes, size_t n, int flags);
int zmq_msg_init(struct wane_zmq_message *message);
int zmq_msg_recv(struct wane_zmq_message *message, void *socket, int flags);
int zmq_msg_more(const struct wane_zmq_message *message);
void *zmq_msg_data(struct wane_zmq_message *message);
size_t zmq_msg_size(const struct wane_zmq_message *message);
int zmq_msg_close(struct wane_zmq_message *message);
int zmq_poll(struct wane_zmq_item *items, int n, long milliseconds);
int zmq_errno(void);
const char *zmq_strerror(int number);
]]
local KINDS = { PUB = 1, SUB = 2, REQ = 3, REP = 4, DEALER = 5, ROUTER = 6 }
-- Options of a socket.
local IDENTITY, SUBSCRIBE, LINGER, MAXMSGSIZE, SNDHWM, LAST_ENDPOINT, HANDOVER = 5, 6, 17, 22, 23, 32, 56
local DONTWAIT, SNDMORE, POLLIN = 1, 2, 1
local EINTR = 4
local LINGERS = 1000 -- milliseconds that a closed socket may take to send what it holds
local MOST = 8 -- sockets that are waited for together
-- Bytes and parts of a message that is taken; messages that a subscriber may leave unread before later ones are lost.
local MOST_BYTES, MOST_PARTS, MOST_UNREAD = 2 ^ 24, 64, 1000

local lib -- libzmq, once it is open

--- Opens libzmq.
-- @return true; nil and the words about what is missing, where it is
function zmq.open()
    lib = lib or binding.open_library({ 'libzmq.so.5' }, CDEF)
    if lib then return true end
    return nil, 'a notebook needs libzmq.so.5, which this system does not have; install it (Debian, Ubuntu: '
        .. 'apt-get install libzmq5; Fedora: dnf install zeromq)'
end

-- Raises 'io' with the library's own words about its last failure.
local function fail(what)
    errors.raise(nil, 'io', '%s: %s', what, binding.text(lib.zmq_strerror(lib.zmq_errno())))
end

local Socket = {}
Socket.__index = Socket

local Context = {}
Context.__index = Context

--- Makes a context, in which sockets are made.
-- @return context with the methods `socket` and `close`
-- @raise 'io' where libzmq is not there
function zmq.context()
    local is_open, why = zmq.open()
    if not is_open then errors.raise(nil, 'io', '%s', why) end
    return setmetatable({ handle = lib.zmq_ctx_new(), sockets = {} }, Context)
end

local function set_number(handle, option, n)
    local value = binding.new('int[1]', n)
    lib.zmq_setsockopt(handle, option, value, binding.sizeof(value))
end

--- Makes a socket.
-- @param kind 'PUB', 'SUB', 'REQ', 'REP', 'DEALER' or 'ROUTER'; a SUB takes all messages
-- @return socket with the methods `bind`, `connect`, `endpoint`, `send`, `receive`
-- @raise 'io' where the system has no more
function Context:socket(kind)
    local handle = lib.zmq_socket(self.handle, KINDS[kind])
    if handle == nil then fail('a socket') end
    set_number(handle, LINGER, LINGERS)
    set_number(handle, SNDHWM, kind == 'PUB' and MOST_UNREAD or 0) -- no reply is dropped because many wait
    local most = binding.new('int64_t[1]', MOST_BYTES)
    lib.zmq_setsockopt(handle, MAXMSGSIZE, most, binding.sizeof(most)) -- the library ends a connection that sends more
    if kind == 'SUB' then lib.zmq_setsockopt(handle, SUBSCRIBE, '', 0) end
    if kind == 'ROUTER' then set_number(handle, HANDOVER, 1) end -- a client that comes back has its name again
    local socket = setmetatable({ handle = handle, message = binding.new 'struct wane_zmq_message' }, Socket)
    self.sockets[#self.sockets + 1] = socket
    return socket
end

--- Closes a context and all of its sockets, after what they hold was sent.
function Context:close()
    for _, socket in ipairs(self.sockets) do lib.zmq_close(socket.handle) end
    self.sockets = {}
    while lib.zmq_ctx_term(self.handle) ~= 0 and lib.zmq_errno() == EINTR do end
end

--- Gives a socket the name under which a ROUTER sends to it; before it connects.
-- @param name text
function Socket:name(name)
    if lib.zmq_setsockopt(self.handle, IDENTITY, name, #name) ~= 0 then fail 'the name of a socket' end
end

--- Takes connections at an endpoint.
-- @param endpoint 'tcp://127.0.0.1:5555', 'ipc:///tmp/name'; port `*` is any that is free
-- @raise 'io' where the endpoint is in use or is none
function Socket:bind(endpoint)
    if lib.zmq_bind(self.handle, endpoint) ~= 0 then fail(endpoint) end
end

--- Connects to an endpoint.
-- @param endpoint as for `bind`
-- @raise 'io' where it is no endpoint
function Socket:connect(endpoint)
    if lib.zmq_connect(self.handle, endpoint) ~= 0 then fail(endpoint) end
end

--- Returns the endpoint of a socket, with the port that it was given.
function Socket:endpoint()
    local text, size = binding.new 'char[256]', binding.new('size_t[1]', 256)
    if lib.zmq_getsockopt(self.handle, LAST_ENDPOINT, text, size) ~= 0 then fail 'the endpoint of a socket' end
    return binding.string(text)
end

--- Sends a message.
-- @param parts list of texts
-- @return whether it was taken: a message to nobody, or to one who does not read, is dropped
function Socket:send(parts)
    for i, part in ipairs(parts) do
        local flags = DONTWAIT + (i < #parts and SNDMORE or 0)
        while lib.zmq_send(self.handle, part, #part, flags) < 0 do
            if lib.zmq_errno() ~= EINTR then return false end
        end
    end
    return true
end

-- Takes a part that has come. Returns its text, '' where it is longer than `room` bytes, its bytes, and whether the
-- message goes on; nil where none has come.
local function receive_part(socket, room)
    local message = socket.message
    lib.zmq_msg_init(message)
    while lib.zmq_msg_recv(message, socket.handle, DONTWAIT) < 0 do
        if lib.zmq_errno() ~= EINTR then
            lib.zmq_msg_close(message)
            return nil
        end
    end
    local size, has_more = tonumber(lib.zmq_msg_size(message)), lib.zmq_msg_more(message) ~= 0
    local text = size <= room and binding.string(lib.zmq_msg_data(message), size) or ''
    lib.zmq_msg_close(message)
    return text, size, has_more
end

--- Takes a message that has come.
-- @return list of its parts, empty where it has more of them, or more bytes, than any message of a notebook; nil where
-- none has come
function Socket:receive()
    local parts, n, bytes = {}, 0, 0
    repeat
        local text, size, has_more = receive_part(self, n < MOST_PARTS and MOST_BYTES - bytes or -1)
        if text == nil then return nil end
        n, bytes = n + 1, bytes + size
        if n <= MOST_PARTS then parts[n] = text end
    until not has_more
    return n <= MOST_PARTS and bytes <= MOST_BYTES and parts or {}
end

--- Waits until a message has come to one of the sockets, until a signal comes, or until the time is over.
-- @param sockets list of at most 8
-- @param milliseconds time; 0 looks and does not wait
-- @return set of the sockets that have a message: socket -> true
function zmq.poll(sockets, milliseconds)
    local items = binding.new 'struct wane_zmq_item[8]'
    local n = math.min(#sockets, MOST)
    for i = 1, n do
        items[i - 1].socket, items[i - 1].events = sockets[i].handle, POLLIN
    end
    local ready = {}
    if lib.zmq_poll(items, n, milliseconds) <= 0 then return ready end
    for i = 1, n do
        if items[i - 1].seen ~= 0 then ready[sockets[i]] = true end
    end
    return ready
end

return zmq
