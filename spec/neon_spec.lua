-- Checks the micro-kernels of NEON under an emulator, without a processor that has it: products against exact sums, and
-- the instructions that a step of k takes. Needs the cross compiler and qemu-user (spec/support/deps.sh).
local helper = require 'spec.helper'
local native = require 'spec.support.native'
local tiles = require 'spec.support.tiles'

local CC = 'aarch64-linux-gnu-gcc'
local FOLDER = 'build/aarch64'

local function is_here()
    local _, code = helper.shell('command -v ' .. CC .. ' && command -v qemu-aarch64')
    return code == 0
end

-- Returns the program of spec/support/neon.c with the objects of the class, which are the library's for aarch64.
local function build()
    local objects = {}
    for _, name in ipairs { 'neon/kernels/cpu/neon/gemm', 'neon/kernels/cpu/common/broadcast',
        'neon/kernels/cpu/common/nontemporal',
        'kernels/cpu/backend/parallel', 'kernels/cpu/backend/team', 'runtime/base/type', 'runtime/base/status' } do
        objects[#objects + 1] = ('%s/%s.o'):format(FOLDER, name)
    end
    for _, source in ipairs(tiles.drivers()) do
        objects[#objects + 1] = ('%s/neon/%s.o'):format(FOLDER, (source:gsub('%.c$', '')))
    end
    local all = table.concat(objects, ' ')
    local text, code = helper.shell(('unset MAKEFLAGS; make -s CC=%s O=%s %s'):format(CC, FOLDER, all))
    assert(code == 0, text)
    -- The name of a program tells sources and command apart; its objects depend on flags of the Makefile too.
    local sum = helper.lines('cat ' .. all .. ' | cksum')[1]:match '%d+'
    return native.make('neon', CC .. ' -DOBJECTS=' .. sum .. ' -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra '
        .. '-ffp-contract=off -pthread -static -DPRODUCTS_NEON -o %s spec/support/neon.c spec/support/products.c '
        .. all .. ' -lm')
end

describe('the micro-kernels of NEON', function()
    if not is_here() then
        pending('need ' .. CC .. ' and qemu-aarch64')
        return
    end
    local program
    setup(function() program = build() end)

    -- Computes products, a list of { 'p' or 'l', arguments in words (neon.c) }, each for f32 and for bf16.
    local function try(products)
        local input = {}
        for _, p in ipairs(products) do
            for bf16 = 0, 1 do input[#input + 1] = ('%s %d %d %s\n'):format(p[1], p[2], bf16, p[3]) end
        end
        local text, code = helper.shell("qemu-aarch64 '" .. program .. "'", table.concat(input))
        assert.equal(0, code)
        local n = 0
        for wrong in text:gmatch '[^\n]+' do
            n = n + 1
            assert(wrong == '0', input[n] .. ': ' .. wrong .. ' wrong')
        end
        assert.equal(#input, n)
    end

    it('are right', function()
        local products = {}
        local function add(batch, m, n, k)
            for flips = 0, 3 do
                products[#products + 1] = { 'p', 1 + (m + flips) % 2 * 2, ('%d %d %d %d %d %d'):format(batch, m, n, k,
                    flips, (m + n + k + flips) % 2) }
            end
        end
        for _, m in ipairs { 1, 5, 8, 17, 65 } do
            for _, n in ipairs { 1, 16, 31, 49, 100 } do
                for _, k in ipairs { 0, 1, 2, 15, 130 } do add(1, m, n, k) end
            end
        end
        add(3, 17, 50, 33)
        add(1, 200, 100, 257) -- a block with a read in place
        add(1, 805, 515, 3) -- few steps of k, and more rows than are packed at once
        try(products)
    end)

    it('are right with a weight in panels', function()
        local products = {}
        local function add(rows, inputs, outputs)
            for case = 0, 5 do
                local which = case % 3
                local sizes = ({ [0] = { rows, outputs, inputs }, { rows, inputs, outputs },
                    { inputs, outputs, rows } })[which]
                products[#products + 1] = { 'l', 1 + (rows + case) % 2 * 2, ('%d %d %d %d %d %d'):format(which,
                    sizes[1], sizes[2], sizes[3], case < 3 and 0 or 1, (rows + inputs + outputs) % 2) }
            end
        end
        for _, rows in ipairs { 8, 17, 65 } do
            for _, inputs in ipairs { 5, 48, 131 } do
                for _, outputs in ipairs { 16, 48, 112 } do add(rows, inputs, outputs) end
            end
        end
        add(33, 301, 80)
        add(3, 520, 528) -- dW of few rows
        try(products)
    end)

    -- ---- instructions ------------------------------------------------------------------------------------------
    -- An emulator says nothing of time. But a core that starts two instructions for each of its multiply-adds is bound
    -- by these alone while there are fewer than two instructions a multiply-add.

    -- { what, greatest number of instructions a multiply-add } of the kernels of neon.c.
    local KERNELS = { { 'packed', 1.35 }, { 'in place', 1.7 }, { 'panels', 1.55 }, { 'few steps', 1.35 } }
    local STEPS = 48
    local MULTIPLY_ADDS = STEPS * 8 * 48 / 4 -- of four lanes, for a micro-tile of 8 x 48

    local of_program

    -- Returns { address = instruction } of the program.
    local function instructions()
        if of_program then return of_program end
        local out = {}
        of_program = out
        for _, line in ipairs((helper.lines("aarch64-linux-gnu-objdump -d --no-show-raw-insn '" .. program .. "'"))) do
            local address, text = line:match '^ +(%x+):%s+(.*)$'
            if address then out[tonumber(address, 16)] = text end
        end
        return out
    end

    -- Returns { address = times } of the instructions that a call of a kernel executes.
    local function executed(kernel, steps)
        local name, times = os.tmpname(), {}
        local text, code = helper.shell(("qemu-aarch64 -singlestep -d exec,nochain -D '%s' '%s' %d %d"):format(name,
            program, kernel, steps))
        assert.equal(0, code, text)
        for line in io.lines(name) do
            local address = tonumber(line:match '^Trace %d+: 0x%x+ %[%x+/(%x+)/' or '', 16)
            if address then times[address] = (times[address] or 0) + 1 end
        end
        os.remove(name)
        return times
    end

    for k, of in ipairs(KERNELS) do
        it(('take few instructions a multiply-add, and keep sums in registers: %s'):format(of[1]), function()
            local text = instructions()
            local more, fewer = executed(k - 1, 2 * STEPS), executed(k - 1, STEPS)
            local all, multiply_adds, spilled = 0, 0, {}
            for address, times in pairs(more) do
                local n, what = times - (fewer[address] or 0), text[address]
                all = all + n
                if what:find '^fmla%s' then multiply_adds = multiply_adds + n end
                if n > 0 and what:find '^[ls][td]u?[rp]%s+[qds]%d.*%[sp' then spilled[#spilled + 1] = what end
            end
            assert.same({}, spilled)
            assert.equal(MULTIPLY_ADDS, multiply_adds)
            assert(all <= of[2] * multiply_adds, ('%.3f instructions a multiply-add, not %.2f at most'):format(
                all / multiply_adds, of[2]))
        end)
    end
end)
