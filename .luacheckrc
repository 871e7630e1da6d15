-- What luacheck holds the Lua files to: LuaJIT's names, no globals, 120 columns. Arguments may stay unused:
-- rules and methods share signatures.
std = 'luajit'
max_line_length = 120
codes = true
unused_args = false
ignore = { '581' } -- not (a > b): refuses NaN too
exclude_files = { 'build' }
files['spec'] = { std = 'luajit+busted' }
files['wane-scm-1.rockspec'] = { std = 'luajit+rockspec' }
files['config.ld'] = { std = 'luajit+ldoc' }
