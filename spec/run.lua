-- Runs the specs under LuaJIT: `luajit spec/run.lua [files or busted options]`, from any folder.
-- Busted itself would start the plain Lua of the system, which has no ffi; --ignore-lua keeps this process.
local root = arg[0]:match('^(.*)/spec/[^/]*$') or (arg[0]:match('^spec/') and '.') or '..'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. root .. '/?.lua;' .. package.path

-- Busted would remember every value whose type was asked for, whole arrays among them, so that files may declare types
-- twice: ours do not, and the collector would go through all of it at each of thousands of full collections.
package.loaded['busted.luajit'] = function() end
table.insert(arg, 1, '--ignore-lua')
require 'busted.runner' ({ standalone = false })
