--- A kernel: the sockets of a connection file, and the loop that takes requests from them.
--
-- One thread does everything. While a cell runs, the hook that looks for ^C also looks at the sockets: it answers
-- heartbeats and what comes on the control socket (interrupt, shutdown), and sends what was printed.
-- @internal wane.notebook.kernel

local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local interrupt = require 'wane.repl.interrupt'
local messages = require 'wane.notebook.messages'
local repl = require 'wane.repl'
local requests = require 'wane.notebook.requests'
local scoped = require 'wane.scoped'
local streams = require 'wane.notebook.streams'
local utf8 = require 'wane.utf8'
local zmq = require 'wane.notebook.zmq'

local kernel = {}

local C = binding.C
local variable = os.getenv
local WAIT = 1000 -- milliseconds between two looks at whether the parent is there
local GLANCE = 0.02 -- seconds between two looks at the sockets while a cell runs

local Kernel = {}
Kernel.__index = Kernel

local KINDS = { shell = 'ROUTER', control = 'ROUTER', stdin = 'ROUTER', iopub = 'PUB', hb = 'REP' }
local NAMES = { 'hb', 'control', 'shell', 'stdin', 'iopub' }

-- Returns the endpoint of one of a connection's sockets.
local function endpoint(connection, name)
    local separator = connection.transport == 'ipc' and '-' or ':'
    return ('%s://%s%s%.0f'):format(connection.transport, connection.ip, separator, connection[name .. '_port'])
end

--- Opens the sockets of a connection.
-- @param connection contents of a connection file
-- @return kernel with the method `serve`
-- @raise 'io' where libzmq is not there, or a port is in use
function kernel.new(connection)
    local self = setmetatable({ wire = messages.wire(connection.key), context = zmq.context(), sockets = {}, count = 0,
        glanced = 0, log = io.stderr }, Kernel)
    local fine, why = errors.pcall(function()
        for _, name in ipairs(NAMES) do
            self.sockets[name] = self.context:socket(KINDS[name])
            self.sockets[name]:bind(endpoint(connection, name))
        end
    end)
    if not fine then
        self.context:close()
        errors.again(why)
    end
    self.streams = streams.new(function(name, text) self:publish('stream', { name = name, text = text }) end)
    self.session = repl.session(function(text) self.streams:write('stdout', text) end,
        { protect = interrupt.guarded, columns = function() return 100 end })
    self.session:welcome()
    self:set_names()
    return self
end

-- Makes the names that only notebooks have, and those that mean something else there.
function Kernel:set_names()
    local env = self.session.env
    env.exit = function() self.is_over = true end
    env.quit = env.exit
    env.display = function(...)
        local values, display = { ... }, require 'wane.notebook.display'
        self.streams:flush()
        for i = 1, select('#', ...) do
            local data, picture = display.of(values[i])
            self:publish('display_data', { data = data, metadata = {} })
            if picture then self:publish('display_data', { data = picture, metadata = {} }) end
        end
    end
end

-- Sends a message by a socket; the hook sends none in the middle of it.
function Kernel:send(socket, message)
    local was_busy = self.is_busy
    self.is_busy = true
    local sent = self.sockets[socket]:send(self.wire:pack(message))
    self.is_busy = was_busy
    return sent
end

--- Publishes a message about the request that is carried out, unless it is a silent one.
-- @param type of the message
-- @param content table
function Kernel:publish(type, content)
    if self.is_silent and type ~= 'status' then return end
    self:send('iopub', { type = type, content = content, parent = self.parent, names = { type } })
end

-- Writes a line to the kernel's own error stream; parts of it may come from a front end.
function Kernel:note(text)
    self.log:write('wane notebook: ', utf8.shown(text), '\n')
end

-- Takes a message from a socket. Returns it, or nil; and whether there was one, which may be signed by another key.
function Kernel:take(socket)
    local parts = self.sockets[socket]:receive()
    if parts == nil then return nil, false end
    local message, why = self.wire:unpack(parts)
    if message == nil then self:note(why) end
    return message, true
end

-- Takes all requests that have come by the shell socket.
function Kernel:take_waiting()
    local list = {}
    while true do
        local request, was_there = self:take 'shell'
        if not was_there then return list end
        list[#list + 1] = request
    end
end

-- Carries out `act` between the messages that say that the kernel is busy with a request, and idle again.
function Kernel:during(request, act)
    local before = self.parent
    self.parent = request.parent
    self:publish('status', { execution_state = 'busy' })
    act()
    self:publish('status', { execution_state = 'idle' })
    self.parent = before
end

-- Sends the reply to a request.
function Kernel:reply(socket, request, content)
    self:send(socket, { type = request.type:gsub('_request$', '_reply'), content = content, parent = request.parent,
        names = request.names })
end

-- Answers a request that came by a socket.
function Kernel:answer(socket, request)
    self:during(request, function()
        local answer = requests[request.type]
        if not answer then
            if request.type:match '^comm_' then return end -- messages of widgets, which have no reply
            self:note('there is no answer to ' .. request.type)
            return
        end
        local fine, content = pcall(answer, self, request)
        if not fine then
            local message = tostring(content)
            content = { status = 'error', ename = 'error', evalue = message, traceback = { message } }
        end
        -- Requests that wait are taken before the reply leaves, because later ones come from someone who knows of it.
        if self.has_failed then self.waiting = self:take_waiting() end
        self:reply(socket, request, content)
    end)
end

-- Answers the requests that waited behind a cell that failed: cells are not run.
function Kernel:abort()
    self.has_failed = false
    for _, request in ipairs(self.waiting) do
        if request.type ~= 'execute_request' then
            self:answer('shell', request)
        else
            self:during(request, function()
                self:reply('shell', request, { status = 'aborted', execution_count = self.count })
            end)
        end
    end
    self.waiting = nil
end

-- Answers heartbeats, and the requests on the control socket.
function Kernel:answer_control(ready)
    local beat = ready[self.sockets.hb] and self.sockets.hb:receive()
    if beat then self.sockets.hb:send(#beat > 0 and beat or { '' }) end
    local request = ready[self.sockets.control] and self:take 'control'
    if request then self:answer('control', request) end
end

-- Tells whether the process that started this kernel is gone, where it is one that said so.
function Kernel:is_orphan()
    return self.system ~= nil and self.system.getppid() ~= self.starter
end

-- Looks at the sockets while a cell runs; the hook calls it.
function Kernel:glance()
    if self.is_busy or C.wn_now() - self.glanced < GLANCE then return end
    self.is_busy = true
    self.glanced = C.wn_now()
    local is_silent = self.is_silent
    self.is_silent = false
    self:answer_control(zmq.poll({ self.sockets.hb, self.sockets.control }, 0))
    self.is_silent = is_silent
    self.streams:tick()
    if self:is_orphan() then requests.shutdown_request(self, { content = {} }) end
    self.is_busy = false
end

--- Takes the answer to a question that a cell asks by io.read.
-- @param prompt text before the answer
-- @return text; raises where the front end takes no questions, and after ^C
function Kernel:ask(prompt)
    if not self.may_ask then
        errors.raise(nil, 'io', 'this front end of the notebook gives no input; put the text into the cell')
    end
    self.streams:flush()
    while select(2, self:take 'stdin') do end -- the answer to a question that ^C ended
    self:send('stdin', { type = 'input_request', content = { prompt = prompt, password = false },
        parent = self.parent, names = self.asker })
    while true do
        local ready = zmq.poll({ self.sockets.stdin, self.sockets.hb, self.sockets.control }, 100)
        self:answer_control(ready)
        local reply = ready[self.sockets.stdin] and self:take 'stdin'
        if reply and reply.type == 'input_reply' then return tostring(reply.content.value or '') end
        if C.wn_interrupted() ~= 0 then error(errors.new('interrupt', 'interrupted'), 0) end
    end
end

-- Answers one request of the shell.
function Kernel:answer_shell()
    local request = self:take 'shell'
    if request == nil then return end
    self.asker = request.names
    C.wn_interrupt(0) -- a ^C between two cells stops none
    interrupt.each(function() self:glance() end)
    self:answer('shell', request)
    interrupt.each(nil)
    if self.waiting then self:abort() end
end

-- Takes requests until one ends the kernel.
function Kernel:loop()
    self.system = variable 'JPY_PARENT_PID' and binding.open_library({}, 'int getppid(void);') or nil
    self.starter = self.system and self.system.getppid()
    local sockets = { self.sockets.hb, self.sockets.control, self.sockets.shell }
    self:publish('status', { execution_state = 'starting' })
    while not self.is_over do
        local ready = zmq.poll(sockets, WAIT)
        self:answer_control(ready)
        if ready[self.sockets.shell] and not self.is_over then self:answer_shell() end
        if self:is_orphan() then break end
    end
end

--- Takes requests until one ends the kernel, or until the process that started it ends.
function Kernel:serve()
    repl.is_on = true
    interrupt.listen(true)
    self.streams:start(function() return self:ask '' end)
    local exit = os.exit
    local function stop()
        self.streams:stop()
        rawset(os, 'exit', exit)
        interrupt.listen(false)
        self.context:close()
        repl.is_on = false
    end
    rawset(os, 'exit', function(...)
        stop()
        exit(...)
    end)
    scoped.always(stop, self.loop, self)
end

return kernel
