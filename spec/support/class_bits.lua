-- Prints a digest of the result and of every gradient of every record in spec/cases, and of a training of layers, by
-- the class of kernels that WANE_KERNELS names; classes_spec runs it in a process for each class, aarch64.sh under an
-- emulator.
-- usage: luajit spec/support/class_bits.lua [ops]     a line each: op<tab>case, float, what<tab>digest
-- Without ops: all.
local root = arg[0]:match('^(.*)/spec/support/[^/]*$') or '.'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. root .. '/?.lua;' .. package.path
local case_inputs = require 'spec.support.case_inputs'
local gradcheck = require 'spec.support.gradcheck'
local programs = require 'spec.support.programs'
local op = require 'wane.tensor.op'
local wane = require 'wane'

-- Returns a digest of a string of bytes: FNV-1a in two halves of 32 bits.
local function digest(bytes)
    local bit = require 'bit'
    local a, b = 0x811c9dc5, 0x01000193
    for i = 1, #bytes do
        local byte = bytes:byte(i)
        a = bit.tobit(bit.bxor(a, byte) * 0x193) + bit.lshift(a, 24)
        b = bit.bxor(bit.rol(b, 5), byte) + 0x9e37
        a, b = bit.tobit(a), bit.tobit(b)
    end
    return bit.tohex(a) .. bit.tohex(b)
end

-- Returns the bytes of an entry with all NaN alike: their signs and payloads are the processor's own.
local function bytes_of(entry)
    for _, value in ipairs(entry.values) do
        if value ~= value then
            local out = {}
            for i, v in ipairs(entry.values) do out[i] = ('%.17g'):format(v):gsub('^%-nan', 'nan') end
            return table.concat(out, ' ')
        end
    end
    return entry.bytes
end

local CPU = op.device('cpu', 'class_bits')
for _, name in ipairs(#arg > 0 and arg or programs.ops()) do
    case_inputs.each(name, function(case, float)
        for _, entry in ipairs(case_inputs.run(case, float, name, CPU)) do
            print(('%s\t%s, %s, %s\t%s'):format(name, case.name, float, entry.what, digest(bytes_of(entry))))
        end
    end)
end

-- Trains layers whose sums over the batch, inputs and outputs all take several k-blocks and end within a micro-tile.
for _, float in ipairs { 'f32', 'bf16' } do
    wane.manual_seed(1)
    local layers = {}
    for i, width in ipairs { 150, 272, 208, 52 } do
        layers[i] = wane.nn.Sequential { wane.nn.Linear(i == 1 and 37 or ({ 150, 272, 208 })[i - 1], width,
            { dtype = float }), wane.nn.ReLU() }
    end
    local model = wane.nn.Sequential(layers)
    local opt = wane.optim.SGD(model:parameters(), { lr = 1e-2, momentum = 0.9 })
    local x = wane.randn(203, 37, { dtype = float }):retain()
    for _ = 1, 3 do opt:step(model(x):sum()) end
    for i, p in ipairs(model:parameters()) do
        print(('training\t%s, parameter %d\t%s'):format(float, i, digest(gradcheck.bytes(p))))
    end
end
