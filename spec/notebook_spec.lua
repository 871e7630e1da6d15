-- Checks notebooks: signatures against RFC 4231, messages on the wire, where a cell's last expression begins, and a
-- whole conversation with a kernel in a process of its own, over sockets. What needs libzmq is pending without it; the
-- rest runs everywhere.
local helper = require 'spec.helper'
local files = require 'spec.support.files'
local wane = require 'wane'
local binding = require 'wane.ffi'
local cell = require 'wane.repl.cell'
local display = require 'wane.notebook.display'
local hmac = require 'wane.notebook.hmac'
local json = require 'wane.report.json'
local messages = require 'wane.notebook.messages'
local session = require 'wane.repl.session'
local streams = require 'wane.notebook.streams'
local zmq = require 'wane.notebook.zmq'

local has_zmq = zmq.open() == true
local with_zmq = has_zmq and it or pending
local KEY = 'a key of these specs'

describe('HMAC-SHA256', function()
    it('computes what FIPS 180-4 and RFC 4231 list', function()
        assert.equal('e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855', hmac.hex(hmac.sha256 ''))
        assert.equal('248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1',
            hmac.hex(hmac.sha256 'abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq'))
        assert.equal('b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7',
            hmac.sign(('\11'):rep(20), 'Hi There'))
        assert.equal('5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843',
            hmac.sign('Jefe', 'what do ya want for nothing?'))
        assert.equal('773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe',
            hmac.sign(('\170'):rep(20), ('\221'):rep(50)))
        assert.equal('60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54',
            hmac.sign(('\170'):rep(131), 'Test Using Larger Than Block-Size Key - Hash Key First'))
    end)

    it('pads texts of every length to whole blocks', function() -- lengths around a block, against `sha256sum`
        for _, n in ipairs { 55, 56, 63, 64, 119, 120 } do
            local line = helper.lines(("head -c %d /dev/zero | sha256sum"):format(n))[1]
            assert.equal(line:match '^%x+', hmac.hex(hmac.sha256(('\0'):rep(n))))
        end
    end)
end)

describe('a message', function()
    it('comes back as it was, and is refused with another key or with parts missing', function()
        local wire = messages.wire(KEY)
        local parts = wire:pack { type = 'execute_request', content = { code = '1 + 1' }, names = { 'a', 'b' } }
        assert.equal(8, #parts)
        assert.equal('<IDS|MSG>', parts[3])
        local got = messages.wire(KEY):unpack(parts)
        assert.are.same({ 'a', 'b' }, got.names)
        assert.are.same({ code = '1 + 1' }, got.content)
        assert.equal(parts[5], got.parent)
        assert.equal('5.3', got.header.version)
        local none, why = messages.wire('another'):unpack(parts)
        assert.is_nil(none)
        assert.equal('a message has a wrong signature', why)
        assert.equal('a message lacks parts', select(2, wire:unpack { 'a', '<IDS|MSG>', 'b' }))
        assert.equal('a message lacks parts', select(2, wire:unpack {}))
        local open = messages.wire ''
        assert.is_table(open:unpack(open:pack { type = 'x', content = {} }))
        local _, what = open:unpack { '<IDS|MSG>', '', '[', '{}', '{}', '{}' }
        assert.truthy(what:find('a header is none', 1, true))
    end)

    it('is taken once, and refused for many parts, before anything of it is read', function()
        local wire, reader = messages.wire(KEY), messages.wire(KEY)
        local list = {}
        for k = 1, 50 do list[k] = wire:pack { type = 'x', content = { k = k } } end
        for _ = 1, 3 do
            for k, parts in ipairs(list) do
                local got, why = reader:unpack(parts)
                if _ == 1 then
                    assert.equal(k, got.content.k)
                else
                    assert.is_nil(got)
                    assert.equal('a message came a second time', why)
                end
            end
        end
        local many = { '<IDS|MSG>', 'x', '{}', '{}', '{}', '{}' }
        for k = 1, 20000 do many[k + 6] = '' end
        assert.equal('a message has a wrong signature', select(2, reader:unpack(many)))
        for k = 1, 20000 do many[k] = 'name' end
        assert.equal('a message lacks parts', select(2, reader:unpack(many)))
    end)

    with_zmq('that is larger than any of a notebook is not taken, and the next one is', function()
        local context = zmq.context()
        local one, asker = context:socket 'ROUTER', context:socket 'DEALER'
        one:bind 'tcp://127.0.0.1:*'
        asker:connect(one:endpoint())
        local parts = {}
        for k = 1, 20000 do parts[k] = 'x' end
        for _, big in ipairs { parts, { ('x'):rep(9 * 2 ^ 20), ('y'):rep(9 * 2 ^ 20) } } do
            assert.is_true(asker:send(big))
            assert.is_true(zmq.poll({ one }, 5000)[one])
            assert.are.same({}, one:receive())
        end
        local huge = { ('z'):rep(2 ^ 26) }
        local before = collectgarbage 'count'
        asker:send(huge) -- ends the connection, and another one is made
        assert.is_nil(zmq.poll({ one }, 300)[one])
        assert.is_true(collectgarbage 'count' - before < 2 ^ 10)
        local got
        for _ = 1, 50 do
            asker:send { 'small' }
            if zmq.poll({ one }, 100)[one] then got = one:receive() end
            if got then break end
        end
        assert.equal('small', got[2])
        context:close()
    end)
end)

-- Runs a cell in a session. Returns how many values it has, and the first.
local function run(s, source)
    local chunk, quiet = cell.compile(s, source, 'cell 1')
    local n, results = s:run(assert(chunk, quiet))
    assert(results[1], results[2])
    return n - 1, results[2], quiet
end

describe('a cell', function()
    it('has the value of its last expression, and keeps its locals', function()
        local s = session.new(function() end)
        for source, value in pairs { ['1 + 2'] = 3, ['local x = 4\nx'] = 4, ['a = {\n5\n}\na[1] -- five\n-- more'] = 5,
            ['local n = 0\nlocal function add() n = n + 1 return n end\nadd()'] = 1, ['return 6'] = 6,
            ['("x")\n:rep(2)'] = 'xx', ['z = 7; z'] = 7, ['f = "a; b"; f'] = 'a; b', ['({ 1; 2 })\n[2]'] = 2 } do
            local n, got = run(s, source)
            assert.are.same({ 1, value }, { n, got }, source)
        end
        assert.are.same({ 4, 1 }, { s.env.x, s.env.n })
        assert.is_nil(rawget(s.env, '__results'))
        assert.equal(3, (run(s, '1, nil, 3')))
        assert.equal(0, (run(s, 'y = 3\n-2'))) -- one statement over two lines
        assert.equal(1, s.env.y)
        assert.is_true(select(3, run(s, '7;')))
        assert.equal(0, (run(s, '-- no; error "this is a comment"')))
        assert.equal(0, (run(s, '--[[ no; error "this is a comment" ]]')))
    end)

    it('is incomplete where lines are missing, and wrong where none can help', function()
        local s = session.new(function() end)
        assert.is_true(select(3, cell.compile(s, 'for i = 1, 2 do', 'c')))
        assert.is_false(select(3, cell.compile(s, 'x = = 1', 'c')))
    end)

    it('keeps the locals that it had made when it failed', function()
        local s = session.new(function() end)
        local _, results = s:run(cell.compile(s, 'local kept = 8\nerror("no")', 'cell 1'))
        assert.is_false(results[1])
        assert.equal(8, s.env.kept)
    end)
end)

describe('what a cell shows', function()
    it('is a picture beside the text for what has one', function()
        local m, x = wane.nn.Linear(4, 4), wane.ones(2, 4)
        local function step() return m(x):sum() end
        for name, value in pairs { plan = wane.plan(step), frontier = wane.frontier(step), memory = wane.memory() } do
            local data, picture = display.of(value)
            assert.equal(tostring(value), data['text/plain'], name)
            assert.truthy(picture['image/svg+xml']:find('^<svg'), name)
        end
        local data, more = display.of(wane.plot { 3, 2, 1 })
        assert.truthy(data['image/svg+xml']:find '^<svg')
        assert.is_nil(more)
        assert.is_string(display.of(wane.plan(step):timeline())['image/svg+xml'])
        assert.are.same({ ['text/plain'] = '<svg is a word' }, (display.of '<svg is a word'))
        local own = setmetatable({}, { __index = { plot = function() error 'not asked for' end } })
        assert.are.same({ 'text/plain' }, { next(display.of(own)), nil })
    end)

    it('is printed at once, gathered where very much is printed, and never lost', function()
        local sent = {}
        local s = streams.new(function(name, text) sent[#sent + 1] = { name, text } end)
        s:start(function() return '12' end)
        print(1, nil)
        io.write('a', 2)
        io.stderr:write 'e'
        local number, real = io.read '*n', io.stdout
        assert.equal('12', io.stdin:read '*l')
        assert.equal('12', io.stdin:lines()())
        assert.has_error(function() io.stdin:write 'x' end)
        assert.has_error(function() io.stdout:read() end)
        assert.has_error(function() io.stdout:seek() end)
        for _ = 1, 5000 do io.stdout:write '.' end
        local fine, why = pcall(function() real:write {} end)
        s:stop()
        assert.are.same({ { 'stdout', '1\tnil\n' }, { 'stdout', 'a2' }, { 'stderr', 'e' } }, { unpack(sent, 1, 3) })
        assert.equal(12, number)
        assert.is_false(fine)
        assert.truthy(why:find("bad argument #1 to 'write' (string expected, got table)", 1, true))
        local text = {}
        for i = 4, #sent do text[#text + 1] = sent[i][2] end
        assert.equal(('.'):rep(5000), table.concat(text))
        assert.is_true(#sent < 1000)
        assert.not_equal(real, io.stdout)
    end)
end)

-- ---- a kernel in a process of its own ----------------------------------------------------------------------------
local Client = {}
Client.__index = Client

-- Starts a kernel, and connects to it.
local function start()
    local base = os.tmpname()
    local connection = { transport = 'ipc', ip = base, key = KEY, signature_scheme = 'hmac-sha256', shell_port = 1,
        iopub_port = 2, stdin_port = 3, control_port = 4, hb_port = 5 }
    files.write(base, json.encode(connection))
    local pid = helper.lines(("build/wane notebook run %s > %s.log 2>&1 & echo $!"):format(base, base))[1]
    local self = setmetatable({ base = base, pid = pid, wire = messages.wire(KEY), context = zmq.context() }, Client)
    for i, kind in ipairs { 'DEALER', 'SUB', 'DEALER', 'DEALER', 'REQ' } do
        self[i] = self.context:socket(kind)
        self[i]:name 'client'
        self[i]:connect(('ipc://%s-%d'):format(base, i))
    end
    return self
end

-- Returns the next message from a socket within some seconds, or nil.
function Client:next(socket, seconds)
    local stop = binding.C.wn_now() + (seconds or 20)
    repeat
        local ready = zmq.poll({ self[socket] }, 50)
        if ready[self[socket]] then return assert(self.wire:unpack(self[socket]:receive())) end
    until binding.C.wn_now() > stop
end

function Client:send(type, content, socket)
    local parts = self.wire:pack { type = type, content = content }
    self[socket or 1]:send(parts)
    return parts[3]
end

-- Sends a request. Returns the content of its reply, and what was published about it: a list of { type =, content = }.
function Client:ask(type, content, socket)
    local header = self:send(type, content, socket)
    local reply = assert(self:next(socket or 1), 'no reply to ' .. type)
    local out = {}
    while true do
        local message = assert(self:next(2), 'the kernel is not idle again')
        out[#out + 1] = message
        if message.content.execution_state == 'idle' then break end
    end
    assert.equal(type:gsub('_request$', '_reply'), reply.type)
    return reply.content, out, header
end

function Client:execute(code, more)
    local content = { code = code, silent = false, store_history = true, allow_stdin = true }
    for k, v in pairs(more or {}) do content[k] = v end
    return self:ask('execute_request', content)
end

-- Returns the types of messages in one line.
local function types(list)
    local out = {}
    for i, message in ipairs(list) do out[i] = message.type end
    return table.concat(out, ' ')
end

describe('a kernel', function()
    local client

    if has_zmq then
        setup(function()
            client = start()
            repeat -- whoever subscribes late misses what was published before
                client:send('kernel_info_request', {})
                assert(client:next(1), 'the kernel does not start')
            until client:next(2, 0.05)
            while client:next(2, 0.1) do end
        end)
        teardown(function()
            os.execute(('kill %s 2> /dev/null; rm -f %s %s.log %s-?'):format(client.pid, client.base, client.base,
                client.base))
            client.context:close()
        end)
    end

    with_zmq('says what it is', function()
        local info = client:ask('kernel_info_request', {})
        assert.equal('5.3', info.protocol_version)
        assert.equal('lua', info.language_info.name)
        assert.are.same({ status = 'ok', history = {} }, (client:ask('history_request', {})))
        assert.are.same({ status = 'ok', comms = {} }, (client:ask('comm_info_request', {})))
        client[5]:send { 'beat' }
        assert.is_true(zmq.poll({ client[5] }, 5000)[client[5]])
        assert.are.same({ 'beat' }, client[5]:receive())
    end)

    with_zmq('runs cells: what they print, their value, their pictures, their errors', function()
        local reply, out = client:execute 'local a = 20\nprint("hi")\na + 22'
        assert.equal('ok', reply.status)
        assert.equal('status execute_input stream execute_result status', types(out))
        assert.equal('hi\n', out[3].content.text)
        assert.equal('42', out[4].content.data['text/plain'])
        assert.equal(reply.execution_count, out[4].content.execution_count)
        reply, out = client:execute 'a'
        assert.equal('20', out[3].content.data['text/plain'])
        local count = reply.execution_count
        reply, out = client:execute 'wane.memory()'
        assert.equal('status execute_input execute_result display_data status', types(out))
        assert.equal(count + 1, reply.execution_count)
        assert.truthy(out[4].content.data['image/svg+xml']:find '^<svg')
        reply, out = client:execute 'local function f()\n  error("no")\nend\nf()'
        assert.equal('error', reply.status)
        assert.equal('status execute_input error status', types(out))
        local at = ('cell %d:2: no'):format(count + 2)
        assert.equal(at, out[3].content.evalue)
        assert.equal('error: ' .. at, out[3].content.traceback[1])
        assert.equal(('  cell %d:4: in main chunk'):format(count + 2), out[3].content.traceback[3])
        assert.equal('status execute_input error status', types(select(2, client:execute 'x = = 1')))
        assert.equal('status status', types(select(2, client:execute('1', { silent = true }))))
        reply = client:execute('', { user_expressions = { two = '1 + 1', bad = 'nil + 1' } })
        assert.equal('2', reply.user_expressions.two.data['text/plain'])
        assert.equal('error', reply.user_expressions.bad.status)
    end)

    with_zmq('completes, and tells about a name', function()
        local reply = client:ask('complete_request', { code = 'é = wane.zer', cursor_pos = 12 })
        assert.are.same({ 'wane.zeros', 'wane.zeros_like' }, reply.matches)
        assert.are.same({ 4, 12 }, { reply.cursor_start, reply.cursor_end })
        reply = client:ask('inspect_request', { code = 'wane.zeros(2)', cursor_pos = 8 })
        assert.truthy(reply.found and reply.data['text/plain']:find('wane.zeros', 1, true))
        assert.is_false(client:ask('inspect_request', { code = 'no_such', cursor_pos = 3 }).found)
        assert.equal('complete', client:ask('is_complete_request', { code = 'x = 1' }).status)
        assert.equal('incomplete', client:ask('is_complete_request', { code = 'for i = 1, 2 do' }).status)
        assert.equal('invalid', client:ask('is_complete_request', { code = 'x = = 1' }).status)
    end)

    with_zmq('asks for input, where the front end takes questions', function()
        client:send('execute_request', { code = 'io.read() .. "!"', allow_stdin = true })
        assert.equal('input_request', client:next(3).type)
        client:send('input_reply', { value = 'typed' }, 3)
        assert.equal('ok', client:next(1).content.status)
        local published = {}
        for i = 1, 4 do published[i] = client:next(2) end
        assert.equal('typed!', published[3].content.data['text/plain'])
        local reply = client:execute('io.read()', { allow_stdin = false })
        assert.truthy(reply.evalue:find('this front end of the notebook gives no input', 1, true))
    end)

    with_zmq('stops a cell at an interrupt, and does not run those that wait behind it', function()
        for _, code in ipairs { 'while true do end', 'never = 1', 'never = 2' } do
            client:send('execute_request', { code = code })
        end
        client:next(2)
        client:send('interrupt_request', {}, 4)
        assert.equal('ok', client:next(4).content.status)
        local failed = client:next(1)
        assert.are.same({ 'error', 'interrupt' }, { failed.content.status, failed.content.ename })
        for _ = 1, 2 do assert.equal('aborted', client:next(1).content.status) end
        while client:next(2, 0.1) do end
        assert.equal('nil', select(2, client:execute 'never')[3].content.data['text/plain'])
        client:send('execute_request', { code = 'while true do end' })
        client:next(2) -- a signal that comes before the cell runs stops it too
        os.execute('kill -INT ' .. client.pid)
        assert.equal('interrupt', client:next(1).content.ename)
        while client:next(2, 0.1) do end
    end)

    with_zmq('takes no message of another key, and goes on', function()
        local foreign = messages.wire('another'):pack { type = 'execute_request', content = { code = 'owned = 1' } }
        client[1]:send(foreign)
        client[1]:send(foreign)
        local _, out = client:execute 'owned'
        assert.equal('nil', out[3].content.data['text/plain'])
        assert.truthy(helper.lines('cat ' .. client.base .. '.log')[1]:find('wrong signature', 1, true))
    end)

    with_zmq('runs a message once, and none of very many parts, and goes on', function()
        local count = client.wire:pack { type = 'execute_request', content = { code = 'times = (times or 0) + 1' } }
        for _ = 1, 3 do client[1]:send(count) end
        assert.equal('ok', client:next(1).content.status)
        while client:next(2, 0.1) do end
        local many = { unpack(count) }
        for _ = 1, 20000 do many[#many + 1] = '' end
        for _, socket in ipairs { 1, 3, 4 } do client[socket]:send(many) end
        client[5]:send(many)
        assert.is_true(zmq.poll({ client[5] }, 5000)[client[5]])
        client[5]:receive()
        local _, out = client:execute 'times'
        assert.equal('1', out[3].content.data['text/plain'])
        local log = table.concat(helper.lines('cat ' .. client.base .. '.log'), '\n')
        assert.truthy(log:find('came a second time', 1, true))
        client[5]:send { 'beat' }
        assert.is_true(zmq.poll({ client[5] }, 5000)[client[5]])
        assert.are.same({ 'beat' }, client[5]:receive())
    end)

    with_zmq('ends when it is told to', function()
        local reply = client:ask('shutdown_request', { restart = false }, 4)
        assert.are.same({ status = 'ok', restart = false }, reply)
        local _, code = helper.lines(('( for i in $(seq 200); do grep -qs "State:.[^Z]" '
            .. '/proc/%s/status || exit 7; sleep 0.02; done )'):format(client.pid)) -- Z: nobody has asked for it yet
        assert.equal(7, code)
    end)

    with_zmq('refuses an endpoint that is in use, at the library\'s own words', function()
        local context = zmq.context()
        local one, two, asker = context:socket 'REP', context:socket 'REP', context:socket 'REQ'
        one:bind 'tcp://127.0.0.1:*'
        local why = helper.refused(nil, function() two:bind(one:endpoint()) end)
        assert.truthy(why.message:find(one:endpoint(), 1, true))
        asker:connect(one:endpoint())
        assert.is_true(asker:send { 'a', '', ('b'):rep(1e5) })
        assert.is_true(zmq.poll({ one }, 5000)[one])
        assert.are.same({ 'a', '', ('b'):rep(1e5) }, one:receive())
        assert.is_nil(one:receive())
        context:close()
    end)
end)

describe('wane notebook', function()
    it('names the package where libzmq is missing', function()
        local open, loaded = binding.open_library, zmq
        package.loaded['wane.notebook.zmq'], binding.open_library = nil, function() end
        local fresh = require 'wane.notebook.zmq'
        local _, why = fresh.open()
        local fine, e = pcall(fresh.context)
        package.loaded['wane.notebook.zmq'], binding.open_library = loaded, open
        assert.is_false(fine)
        assert.equal(why, e.message:match 'a notebook needs.*')
        assert.truthy(why:find('apt-get install libzmq5', 1, true))
    end)

    it('writes a kernelspec, and refuses what it cannot do', function()
        local folder = os.tmpname()
        os.remove(folder)
        local text, code = helper.shell(('JUPYTER_DATA_DIR=%s build/wane notebook install'):format(folder))
        local path = folder .. '/kernels/wane/kernel.json'
        assert.equal(0, code)
        assert.truthy(text:find('wrote ' .. path, 1, true))
        local spec = json.decode(helper.shell('cat ' .. path))
        assert.are.same({ helper.shell('printf %s "$(pwd -P)"') .. '/build/wane', 'notebook', 'run',
            '{connection_file}' }, spec.argv)
        assert.are.same({ 'Wane (LuaJIT)', 'lua', 'signal' }, { spec.display_name, spec.language,
            spec.interrupt_mode })
        assert.truthy(helper.shell(('build/wane notebook install --prefix %s'):format(folder))
            :find(folder .. '/share/jupyter/kernels/wane/kernel.json', 1, true))
        for words, expected in pairs {
            [''] = 'what to do, install|run [FILE], is missing',
            ['run a b'] = "notebook takes a word and a file, got 'b' too",
            ['frob'] = "notebook takes install or run, got 'frob'",
            ['run'] = 'notebook run: give the connection file',
            ['install x'] = "notebook install takes no file, got 'x'",
            ['install --user --prefix /x'] = 'give one of them',
            ['run /nowhere/x.json'] = '/nowhere/x.json: cannot be read',
            ['run ' .. path] = "expected transport 'tcp' or 'ipc', got nil",
            ['run build/wane'] = 'this is no connection file of Jupyter',
            ['install --prefix /dev/null'] = 'cannot be written',
        } do
            text, code = helper.shell('build/wane notebook ' .. words)
            assert.truthy(code == 1 or code == 2, words)
            assert.truthy(text:find(expected, 1, true), text)
        end
        os.execute('rm -r ' .. folder)
    end)

    it('listens to no network without a key', function()
        local file, run_ = os.tmpname(), require('wane.notebook').run
        local function why_of(ip, key, transport)
            files.write(file, json.encode { transport = transport or 'tcp', ip = ip, key = key, shell_port = 1,
                iopub_port = 1,
                signature_scheme = 'hmac-sha256', stdin_port = 1, control_port = 1, hb_port = 1.5 })
            local e = helper.refused(nil, function() run_(file) end)
            return e.message
        end
        for _, ip in ipairs { '0.0.0.0', '*', '::', '[::]', '10.0.0.7', 'eth0', '127.evil.org', '1270.0.0.1', '' } do
            assert.matches('without a key anybody who reaches', why_of(ip, ''), 1, true)
            assert.matches('expected hb_port', why_of(ip, KEY), 1, true)
        end
        for _, ip in ipairs { '127.0.0.1', '127.1.2.3', 'localhost', '::1', '[::1]' } do
            assert.matches('expected hb_port', why_of(ip, ''), 1, true)
        end
        assert.matches('expected hb_port', why_of('/tmp/x', '', 'ipc'), 1, true)
        os.remove(file)
    end)
end)
