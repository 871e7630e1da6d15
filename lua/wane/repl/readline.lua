--- A line editor: libreadline, or libedit where that is missing, opened at run time.
--
-- Neither library is required: `readline.open` returns nil without them, and the prompt reads plain lines. ^C is a key
-- here and not a signal: the terminal sends no SIGINT while a line is typed, so the library is never left in the middle
-- of a call. The terminal is restored before the line runs. Callbacks never raise through C.
-- @internal wane.repl.readline

local binding = require 'wane.ffi'
local complete = require 'wane.repl.complete'

local readline = {}

local CDEF = [[
typedef int (*wane_rl_command)(int count, int key);
typedef char **(*wane_rl_complete)(const char *text, int start, int end);
extern const char *rl_readline_name;
extern const char *rl_completer_word_break_characters;
extern wane_rl_complete rl_attempted_completion_function;
extern int rl_attempted_completion_over;
extern int rl_completion_append_character;
extern int rl_catch_signals;
extern int rl_done;
int rl_add_defun(const char *name, wane_rl_command fn, int key);
int rl_initialize(void);
int rl_parse_and_bind(char *line);
int rl_variable_bind(const char *name, const char *value);
char *readline(const char *prompt);
void add_history(const char *line);
]]
local PROCESS = [[
struct wane_termios { unsigned int flags[4]; unsigned char line, cc[32]; unsigned int speed[2]; };
int tcgetattr(int fd, struct wane_termios *out);
int tcsetattr(int fd, int when, const struct wane_termios *in);
void *malloc(size_t bytes);
void free(void *p);
]]
local LIBRARIES = { readline = 'libreadline.so.8', libedit = 'libedit.so.2' }
local VINTR, NOW = 0, 0 -- of Linux: index of ^C among the special characters; TCSANOW

local anchors = {} -- objects that the libraries point to for the life of the process

local process

-- Copies a text into memory of malloc, which the library frees.
local function duplicate(text)
    local p = binding.cast('char *', process.malloc(#text + 1))
    if p ~= nil then binding.copy(p, text) end
    return p
end

-- Returns the list that readline takes over and frees: the common beginning of all words, the words, NULL.
local function word_list(words)
    if #words == 0 then return nil end
    local list = binding.cast('char **', process.malloc((#words + 2) * binding.sizeof 'char *'))
    if list == nil then return nil end
    list[0] = duplicate(complete.common(words))
    local n = 1
    if #words > 1 then
        for i, word in ipairs(words) do list[i] = duplicate(word) end
        n = #words + 1
    end
    list[n] = nil
    return list
end

local Reader = {}
Reader.__index = Reader

-- Stops libedit from setting the terminal up itself, where ^C would be a signal.
local function set_up_libedit(lib)
    lib.rl_initialize()
    local words = 'setty -d -isig'
    local line = binding.list('char', #words + 1)
    binding.copy(line, words)
    lib.rl_parse_and_bind(line)
end

-- Sets up completion and ^C in a library.
local function set_up(self, lib, env)
    local name, breaks = 'wane', complete.breaks
    local completer = binding.cast('wane_rl_complete', function(text)
        lib.rl_attempted_completion_over = 1 -- completes no file names
        lib.rl_completion_append_character = 0 -- none; the library resets it before each completion
        local ok, words = pcall(complete.words, env, binding.string(text))
        return ok and word_list(words) or nil
    end)
    local on_interrupt = binding.cast('wane_rl_command', function()
        self.interrupted = true
        lib.rl_done = 1
        return 0
    end)
    anchors[#anchors + 1] = { name, breaks, completer, on_interrupt }
    lib.rl_readline_name = name
    lib.rl_catch_signals = 0
    lib.rl_completer_word_break_characters = breaks
    lib.rl_attempted_completion_function = completer
    if self.name == LIBRARIES.libedit then
        set_up_libedit(lib)
    else
        lib.rl_variable_bind('enable-bracketed-paste', 'on')
    end
    lib.rl_add_defun('wane-interrupt', on_interrupt, 3)
end

--- Opens a reader of edited lines.
-- @param env names of the prompt, for completion
-- @param kind 'readline' or 'libedit', or nil for the first that exists
-- @return reader with the methods `read` and `remember`, or nil when no library exists
function readline.open(env, kind)
    local list = kind and { LIBRARIES[kind] } or { LIBRARIES.readline, LIBRARIES.libedit }
    process = process or binding.open_library({}, PROCESS)
    if process == nil or #list == 0 then return nil end
    local lib, name = binding.open_library(list, CDEF)
    if lib == nil then return nil end
    local self = setmetatable({ lib = lib, name = name, interrupted = false }, Reader)
    if not pcall(set_up, self, lib, env) then return nil end
    self.before = binding.new 'struct wane_termios'
    self.typing = binding.new 'struct wane_termios'
    return self
end

-- Calls the library. LuaJIT must not compile this function, because the library calls Lua back.
local function call_readline(lib, prompt)
    return lib.readline(prompt)
end
jit.off(call_readline)

--- Reads one line.
-- @param prompt text
-- @return line (a pasted block is several, with newlines); or nil and 'interrupt' after ^C, nil and 'end' after ^D
function Reader:read(prompt)
    local has_terminal = process.tcgetattr(0, self.before) == 0
    if has_terminal then
        binding.copy(self.typing, self.before, binding.sizeof 'struct wane_termios')
        self.typing.cc[VINTR] = 0
        process.tcsetattr(0, NOW, self.typing)
    end
    self.interrupted = false
    local p = call_readline(self.lib, prompt)
    if has_terminal then process.tcsetattr(0, NOW, self.before) end
    local line = binding.text(p)
    if p ~= nil then process.free(p) end
    if self.interrupted then
        io.stdout:write('^C\n')
        return nil, 'interrupt'
    end
    if line == nil then return nil, 'end' end
    return line
end

--- Adds a line to those that the arrow keys recall.
-- @param line text
function Reader:remember(line)
    self.lib.add_history(line)
end

return readline
