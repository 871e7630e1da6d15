--- Starts processes with WANE_ONEDNN set, for the specs of oneDNN: with the library of this machine, or with a fake.
local helper = require 'spec.helper'

local processes = {}

-- Returns the environment that hands the sanitizer of this process on to a command, but not to the shell. The
-- sanitizer's search for leaks itself dies of a signal in a process with the real oneDNN (seen with 2.6.3), so only the
-- fakes have it.
local function sanitizer(is_real)
    local library, preload = os.getenv 'WANE_LIB', os.getenv 'LD_PRELOAD'
    return (library and "WANE_LIB='" .. library .. "' " or '') .. (preload and "LD_PRELOAD='" .. preload .. "' " or '')
        .. (preload and is_real and 'ASAN_OPTIONS=detect_leaks=0:exitcode=99 ' or '')
end

--- Returns the facts that a script prints, as a table of "name" or "name word ..." = { last words }, and the text that
-- was printed. words: how many words of a line belong to a name that is not one word.
function processes.run(script, words, environment, what)
    local is_fake = environment:find('LD_LIBRARY_PATH', 1, true)
    local command = environment .. ' ' .. sanitizer(not is_fake) .. 'luajit ' .. script .. ' ' .. (what or '')
    local text, code = helper.shell(command)
    assert(code == 0, text)
    local facts = {}
    for line in text:gmatch '[^\n]+' do
        local list = {}
        for word in (line .. '\t'):gmatch '([^\t]*)\t' do list[#list + 1] = word end
        local name = table.remove(list, 1)
        for _ = 1, words[name] or 0 do name = name .. ' ' .. table.remove(list, 1) end
        facts[name] = list
    end
    return facts, text
end

--- Returns what `wane version` says of oneDNN.
function processes.line(environment)
    return helper.shell(environment .. ' build/wane version'):match '\noneDNN     ([^\n]*)\n'
end

--- Builds a fake library in a folder under both names of oneDNN, so that no other is found; returns the environment
-- that leads to it. `options` changes what the fake does; by default it is a 3.2 that makes everything with no scratch.
function processes.fake(dir, options)
    local o = { MAJOR = 3, MINOR = 2, SCRATCH = 0, WEIGHT = 0, MAKE = 0, MAKE_CONV = 0, RUN = 0, THREADS = 2,
        NAME = '\\"brg:fake\\"', CONV = '\\"jit:fake\\"', WITNESS = '\\"' .. dir .. '/computed\\"' }
    for k, v in pairs(options) do o[k] = v end
    local defines = {}
    for k, v in pairs(o) do defines[#defines + 1] = ('"-D%s=%s"'):format(k, v) end
    local text, code = helper.shell(('cd %s && rm -f computed && gcc -shared -fPIC -fopenmp -w %s -o libdnnl.so.3 '
        .. '%s && cp libdnnl.so.3 libdnnl.so.2'):format(dir, table.concat(defines, ' '),
        '"$OLDPWD"/spec/support/fakednnl.c'))
    assert(code == 0, text)
    return ('OMP_NUM_THREADS=5 WANE_THREADS=2 LD_LIBRARY_PATH=%s WANE_ONEDNN=on'):format(dir)
end

--- Returns whether a fake in a folder computed anything.
function processes.computed(dir)
    return select(2, helper.shell('test -e ' .. dir .. '/computed')) == 0
end

--- Ends the line of `wane version` where the library has nothing for a processor.
processes.HAS_NONE = ' has nothing for this processor without memory of its own: own kernels are used'

--- Holds oneDNN to less than AVX-512, where its products are of another family, which takes memory of its own.
processes.BELOW = 'WANE_ONEDNN=on ONEDNN_MAX_CPU_ISA=SSE41 DNNL_MAX_CPU_ISA=SSE41'

return processes
