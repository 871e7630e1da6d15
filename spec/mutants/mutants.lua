-- The ways Wane is broken on purpose, one row each; run.lua says how they are tried (`make mutants`).
-- To add one: a name; the file; the exact old text, which must be there once (take a whole line, or two, rather
-- than a word); the new text, which must build; the spec file, or a list of them, that must notice; and when the
-- spec is slow, a busted filter (a Lua pattern on the full test name).
-- A row that no spec catches shows a missing spec: add the spec, keep the row.
return {
    {
        name = 'repl forgets locals',
        file = 'lua/wane/repl.lua',
        old = "if name:match('^[%a_]') then rawset(self.env, name, value) end",
        new = "if name:match('^[%d_]') then rawset(self.env, name, value) end",
        spec = 'spec/repl_spec.lua',
        filter = 'repl session',
    },
    {
        name = 'repl never asks for more',
        file = 'lua/wane/repl.lua',
        old = 'if chunk == nil and more then',
        new = 'if chunk == nil and not more then',
        spec = 'spec/repl_spec.lua',
        filter = 'repl session',
    },
    {
        name = 'repl ignores the semicolon',
        file = 'lua/wane/repl.lua',
        old = "self:call(chunk, source:match(';%s*$') ~= nil)",
        new = "self:call(chunk, source:match(';;%s*$') ~= nil)",
        spec = 'spec/repl_spec.lua',
        filter = 'repl session',
    },
    {
        name = 'cli hides a script failure',
        file = 'lua/wane/cli.lua',
        old = 'return getmetatable(result) == Misuse and 2 or 1',
        new = 'return getmetatable(result) == Misuse and 2 or 0',
        spec = 'spec/cli_spec.lua',
    },
    {
        name = 'launcher does not follow links',
        file = 'lua/wane/launcher.sh',
        old = 'while [ -L "$self" ]; do',
        new = 'while [ -p "$self" ]; do',
        spec = 'spec/cli_spec.lua',
    },
    {
        name = 'an op knows the graph',
        file = 'runtime/ops/update.c',
        old = '#include "helper.h"',
        new = '#include "helper.h"\n#include "../graph/graph.h"',
        spec = 'spec/layers_spec.lua',
    },
}
