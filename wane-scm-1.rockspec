rockspec_format = '3.0'
package = 'wane'
version = 'scm-1'
source = { url = 'git+file://.' }
description = {
    summary = 'A training runtime in C, scripted from LuaJIT, that obeys a memory plan to the byte',
    detailed = [[
Says which activations to save, recompute, offload or compress, or takes a budget in bytes; the predicted
peak is the measured peak, and the gradients are the same bits whatever the plan. Needs LuaJIT, gcc and make.]],
    license = 'MIT',
    labels = { 'deep-learning', 'autograd', 'luajit' },
}
supported_platforms = { 'linux' }
dependencies = { 'lua == 5.1' }
deploy = { wrap_bin_scripts = false }
build = {
    type = 'make',
    build_target = 'all',
    install_target = 'install',
    install_variables = {
        PREFIX = '$(PREFIX)',
        LUADIR = '$(LUADIR)',
        BINDIR = '$(BINDIR)',
        LIBDIR = '$(LUADIR)/wane',
    },
}
test = { type = 'command', command = 'make test' }
