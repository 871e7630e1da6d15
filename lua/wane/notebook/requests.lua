--- The answers of a kernel to the requests of Jupyter's protocol: one function a request.
--
-- Each takes the kernel and the request, and returns the content of the reply. Places in a text are counted in
-- characters there, in bytes here.
-- @internal wane.notebook.requests

local binding = require 'wane.ffi'
local cell = require 'wane.repl.cell'
local complete = require 'wane.repl.complete'
local display = require 'wane.notebook.display'
local errors = require 'wane.errors'
local json = require 'wane.report.json'
local messages = require 'wane.notebook.messages'
local session = require 'wane.repl.session'
local utf8 = require 'wane.utf8'

local requests = {}

-- Returns the number of bytes that the first n characters of a text take.
local function bytes_of(text, n)
    local at = 1
    for _ = 1, n do
        local _, last = text:find('^[%z\1-\127\192-\255][\128-\191]*', at)
        if last == nil then break end
        at = last + 1
    end
    return at - 1
end

-- Returns the code of a request, and its part before the cursor.
local function code_of(content)
    local code = type(content.code) == 'string' and content.code or ''
    local place = type(content.cursor_pos) == 'number' and content.cursor_pos or #code
    return code, code:sub(1, bytes_of(code, place))
end

function requests.kernel_info_request()
    return {
        status = 'ok', protocol_version = messages.VERSION, implementation = 'wane',
        implementation_version = binding.text(binding.C.wn_version()),
        language_info = { name = 'lua', version = _VERSION:match '%d[%d.]*', mimetype = 'text/x-lua',
            file_extension = '.lua', pygments_lexer = 'lua', codemirror_mode = 'lua', nbconvert_exporter = 'script' },
        banner = ('Wane %s (%s). The last expression of a cell shows itself; ?name tells about a name.')
            :format(binding.text(binding.C.wn_version()), jit.version),
        help_links = json.empty_list, debugger = false,
    }
end

function requests.comm_info_request()
    return { status = 'ok', comms = {} }
end

function requests.history_request()
    return { status = 'ok', history = json.empty_list }
end

function requests.is_complete_request(kernel, request)
    local code = code_of(request.content)
    if code:match '^%s*%?' then return { status = 'complete' } end
    local chunk, _, more = cell.compile(kernel.session, code, 'cell')
    if chunk then return { status = 'complete' } end
    return more and { status = 'incomplete', indent = '    ' } or { status = 'invalid' }
end

function requests.complete_request(kernel, request)
    local _, before = code_of(request.content)
    local word = before:match('[^' .. complete.breaks:gsub('[%]%^%-%%]', '%%%0') .. ']*$')
    local matches = complete.words(kernel.session.env, word)
    local stop = utf8.length(before)
    return { status = 'ok', matches = #matches > 0 and matches or json.empty_list, metadata = {},
        cursor_start = stop - utf8.length(word), cursor_end = stop }
end

function requests.inspect_request(kernel, request)
    local code, before = code_of(request.content)
    local name = before:match '[%w_.:]*$' .. code:sub(#before + 1):match '^[%w_]*'
    if name == '' then name = before:match '([%w_.:]+)%($' or '' end
    local text = name ~= '' and require('wane.repl.help').text(kernel.session.env, name) or nil
    local is_found = text ~= nil and not text:match '^nothing is known'
    return { status = 'ok', found = is_found, metadata = {}, data = is_found and { ['text/plain'] = text } or {} }
end

function requests.interrupt_request()
    binding.C.wn_interrupt(1)
    return { status = 'ok' }
end

function requests.shutdown_request(kernel, request)
    kernel.is_over = true
    binding.C.wn_interrupt(1) -- stops the cell that runs
    return { status = 'ok', restart = request.content.restart == true }
end

-- ---- running a cell ----------------------------------------------------------------------------------------------

-- Publishes an error and returns the content of the reply about it. `text`: the message and the user's frames.
local function failed(kernel, name, message, text)
    local lines = {}
    for line in (text .. '\n'):gmatch '(.-)\n' do lines[#lines + 1] = line end
    local content = { ename = name, evalue = message, traceback = lines }
    kernel:publish('error', content)
    content.status, content.execution_count = 'error', kernel.count
    return content
end

-- Shows the values of a cell's last expression.
local function show_values(kernel, values, n)
    local data, picture = display.all(values, n)
    kernel:publish('execute_result', { execution_count = kernel.count, data = data, metadata = {} })
    if picture then kernel:publish('display_data', { data = picture, metadata = {} }) end
end

-- Runs a compiled cell. Returns nil, or the content of the reply about an error.
local function run(kernel, chunk, is_quiet)
    local n, results = kernel.session:run(chunk)
    kernel.streams:flush()
    if not results[1] then
        local e = results[2]
        return failed(kernel, errors.is(e) and e.code or 'error', tostring(e), session.failure_text(e, chunk))
    end
    if is_quiet or n == 1 then return nil end
    local values = { unpack(results, 2, n) }
    -- Showing a tensor runs a program, which may fail as the cell may.
    local fine, e = kernel.session.protect(function() show_values(kernel, values, n - 1) end, errors.handler)
    if fine then return nil end
    return failed(kernel, errors.is(e) and e.code or 'error', tostring(e), 'error: ' .. tostring(e))
end

-- Returns the values of the expressions that a front end wants with the reply.
local function expressions(kernel, wanted)
    local out = {}
    for name, code in errors.iterate(type(wanted) == 'table' and wanted or {}) do
        local chunk, why = cell.compile(kernel.session, tostring(code), 'expression')
        local n, results = 0, { false, why }
        if chunk then n, results = kernel.session:run(chunk) end
        if results[1] then
            out[name] = { status = 'ok', metadata = {}, data = display.all({ unpack(results, 2, n) }, n - 1) }
        else
            local e = results[2]
            out[name] = { status = 'error', ename = errors.is(e) and e.code or 'error', evalue = tostring(e),
                traceback = json.empty_list }
        end
    end
    return out
end

-- Returns the content of the reply to a cell that asks for help.
local function help(kernel, query)
    local data = { ['text/plain'] = require('wane.repl.help').text(kernel.session.env, query) }
    kernel:publish('execute_result', { execution_count = kernel.count, data = data, metadata = {} })
end

-- Runs the code of a request. Returns nil, or the content of the reply about an error.
local function execute(kernel, code)
    local query = code:match '^%s*%?([^\n]*)%s*$' or code:match '^%s*([%w_.:]+)%?%s*$'
    if query then return help(kernel, query) end
    code = code:gsub('^%s*=', '', 1)
    local chunk, is_quiet = cell.compile(kernel.session, code, ('cell %d'):format(kernel.count))
    if chunk == nil then return failed(kernel, 'syntax', is_quiet, 'error: ' .. is_quiet) end
    return run(kernel, chunk, is_quiet)
end

function requests.execute_request(kernel, request)
    local content = request.content
    local code = code_of(content)
    kernel.is_silent = content.silent == true
    if not kernel.is_silent and content.store_history ~= false then kernel.count = kernel.count + 1 end
    kernel.may_ask = content.allow_stdin == true
    kernel:publish('execute_input', { code = code, execution_count = kernel.count })
    local reply = code:match '%S' and execute(kernel, code)
    reply = reply or { status = 'ok', execution_count = kernel.count, payload = json.empty_list,
        user_expressions = expressions(kernel, content.user_expressions) }
    kernel.streams:flush()
    kernel.is_silent = false
    -- The first collection runs finalizers, the second one frees the bytes that these released.
    collectgarbage()
    collectgarbage()
    if kernel.is_over then reply.payload = { { source = 'ask_exit', keepkernel = false } } end
    kernel.has_failed = reply.status == 'error' and content.stop_on_error ~= false
    return reply
end

return requests
