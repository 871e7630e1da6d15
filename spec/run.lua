-- Runs the specs under LuaJIT: `luajit spec/run.lua [files or busted options]`, from any folder.
-- Busted itself would start the plain Lua of the system, which has no ffi; --ignore-lua keeps this process.
local root = arg[0]:match('^(.*)/spec/[^/]*$') or (arg[0]:match('^spec/') and '.') or '..'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. root .. '/?.lua;' .. package.path

table.insert(arg, 1, '--ignore-lua')
require 'busted.runner' ({ standalone = false })
