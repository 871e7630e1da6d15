--- Notebooks: `wane notebook install` and `wane notebook run`.
--
-- A kernel speaks Jupyter's protocol 5.3 by libzmq, which is opened at run time; nothing else is needed. Cells run as
-- lines of the prompt do.
-- @internal wane.notebook

local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local json = require 'wane.report.json'
local system = require 'wane.system'

local notebook = {}

local variable = os.getenv

local folder = debug.getinfo(1, 'S').source:match '^@(.*)[/\\]wane[/\\]notebook[/\\]init%.lua$' or '.'

-- Returns the path of the `wane` command that these files belong to, from the root folder on.
local function launcher()
    local process = binding.open_library({}, 'char *realpath(const char *path, char *out);')
    for _, path in ipairs { folder .. '/../build/wane', folder .. '/../../../bin/wane' } do
        local out = binding.new 'char[4096]' -- PATH_MAX of Linux
        if process and process.realpath(path, out) ~= nil then return binding.string(out) end
    end
    return 'wane'
end

-- Returns the folder in which Jupyter looks for what a user installed.
local function user_data()
    local own, data, home = variable 'JUPYTER_DATA_DIR', variable 'XDG_DATA_HOME', variable 'HOME'
    if own and own ~= '' then return own end
    if data and data ~= '' then return data .. '/jupyter' end
    if home and home ~= '' then return home .. '/.local/share/jupyter' end
    errors.raise(nil, 'io', 'HOME is not set; give --prefix DIR')
end

--- Writes a kernelspec for Jupyter.
-- @param prefix folder of the installation that Jupyter belongs to; nil for the user's own
-- @return the name of the file; and words about what is missing to run it, or nil
-- @raise 'io' where it cannot be written
function notebook.install(prefix)
    local path = (prefix and prefix .. '/share/jupyter' or user_data()) .. '/kernels/wane/kernel.json'
    local text = json.encode { argv = { launcher(), 'notebook', 'run', '{connection_file}' },
        display_name = 'Wane (LuaJIT)', language = 'lua', interrupt_mode = 'signal' }
    system.make_folders(path)
    local fine, why = system.write(path, text .. '\n')
    if not fine then errors.raise(nil, 'io', '%s cannot be written (%s)', path, why) end
    local _, missing = require('wane.notebook.zmq').open()
    return path, missing
end

-- Tells whether a network reaches an endpoint: one of this machine alone begins with 127, or is called localhost.
local function is_open(connection)
    local ip = connection.ip
    local is_own = ip:match '^127%.%d+%.%d+%.%d+$' or ip == 'localhost' or ip == '::1' or ip == '[::1]'
    return connection.transport == 'tcp' and not is_own
end

local PORTS = { 'shell_port', 'control_port', 'stdin_port', 'iopub_port', 'hb_port' }

-- Raises 'value' unless a connection says all that a kernel needs.
local function check(connection, path)
    local function need(is_fine, what)
        if not is_fine then errors.raise(nil, 'value', '%s: %s', path, what) end
    end
    need(connection.transport == 'tcp' or connection.transport == 'ipc', "expected transport 'tcp' or 'ipc', got "
        .. errors.describe(connection.transport))
    need(type(connection.ip) == 'string', 'expected ip, a text, got ' .. errors.describe(connection.ip))
    need(type(connection.key) == 'string', 'expected key, a text, got ' .. errors.describe(connection.key))
    need(connection.key ~= '' or not is_open(connection), ("ip '%s': without a key anybody who reaches this address "
        .. 'could run code; give a key, or ip 127.0.0.1'):format(connection.ip))
    need(connection.key == '' or connection.signature_scheme == 'hmac-sha256', "expected signature_scheme "
        .. "'hmac-sha256', got " .. errors.describe(connection.signature_scheme))
    for _, name in ipairs(PORTS) do
        local port = connection[name]
        need(type(port) == 'number' and port % 1 == 0 and port >= 0 and port < 65536,
            ('expected %s, a port, got %s'):format(name, errors.describe(port)))
    end
end

--- Runs the kernel of a connection file, until it is shut down.
-- @param path the connection file, which Jupyter writes
-- @raise 'io' where it cannot be read, libzmq is missing, or a port is in use; 'value' where it is no connection file
function notebook.run(path)
    local text, why = system.read(path)
    if text == nil then errors.raise(nil, 'io', '%s: cannot be read (%s)', path, why) end
    local connection
    connection, why = json.decode(text)
    if type(connection) ~= 'table' then
        errors.raise(nil, 'value', '%s: this is no connection file of Jupyter: %s', path, tostring(why or 'no object'))
    end
    check(connection, path)
    require('wane.notebook.kernel').new(connection):serve()
end

return notebook
