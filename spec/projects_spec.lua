-- Runs examples/finetune.lua and examples/projects small, from another folder, and checks what they claim: budgets are
-- kept, the peak is the predicted one, a resumed run ends in the same bits, and misuse is answered with a word.
local files = require 'spec.support.files'
local helper = require 'spec.helper'

local LUAJIT = os.getenv 'LUAJIT' or 'luajit'

local example = files.example

-- Makes a fresh folder and returns its name; the folder is removed after the spec.
local function folder()
    local name = files.folder()
    finally(function() os.execute('rm -rf "' .. name .. '"') end)
    return name
end

local function bytes(cell) return (tonumber((cell:gsub(',', '')))) end

describe('examples/finetune.lua', function()
    local function digest(to)
        return helper.lines("cksum < '" .. to .. "/finetune.safetensors'")[1]
    end

    it('finetunes all weights within a budget, with the bytes that it predicts', function()
        local to = folder()
        local out = example('finetune', '--pretrain 2 --steps 20 --batch 4 --budget 3600KiB --out "' .. to .. '"')
        local predicted, measured, reserved =
            out:match 'a step: ([%d,]+) bytes predicted at the peak, ([%d,]+) measured; ([%d,]+) reserved, within'
        assert.equal(predicted, measured)
        assert.is_true(bytes(reserved) <= 3600 * 1024)
        local before, after = out:match 'before: loss ([%d.]+)', out:match 'after step 20: loss ([%d.]+)'
        assert.is_true(tonumber(after) < tonumber(before) - 0.5, out)
    end)

    it('finetunes adapters alone, which a checkpoint of their size holds, and goes on with the same bits', function()
        local to, other = folder(), folder()
        local out = example('finetune', '--lora 4 --pretrain 1 --steps 8 --batch 2 --out "' .. to .. '"')
        assert.matches('trained: 12,288 of 182,848 parameters\n', out)
        local size = tonumber(helper.lines("wc -c < '" .. to .. "/finetune.safetensors'")[1])
        assert.is_true(size > 12 * 12288 and size < 12 * 12288 + 8192, size) -- values and two states
        example('finetune', '--lora 4 --pretrain 1 --steps 8 --batch 2 --stop 3 --out "' .. other .. '"')
        out = example('finetune', '--lora 4 --steps 8 --batch 2 --resume --budget 3MiB --out "' .. other .. '"')
        assert.matches('goes on after step 3\n', out)
        assert.equal(digest(to), digest(other))
    end)

    it('takes published weights and the ids of their tokenizer', function()
        local to = folder()
        local header = "{'descr': '|u1', 'fortran_order': False, 'shape': (260,), }"
        local file = assert(io.open(to .. '/ids.npy', 'wb'))
        file:write('\147NUMPY\1\0', string.char(#header, 0), header)
        for k = 1, 260 do file:write(string.char(k % 13)) end
        file:close()
        local out = example('finetune', ('--weights "%s/spec/fixtures/published/gpt2" --tokens "%s/ids.npy" --length 7 '
            .. '--batch 2 --steps 80 --lr 0.05 --out "%s"'):format(helper.lines('pwd')[1], to, to))
        assert.matches('trained: 1,928 of 1,928 parameters', out)
        assert.is_true(tonumber(out:match 'after step 80: loss ([%d.]+)') < 1, out)
    end)

    it('says what would do where a budget cannot be kept, and refuses what it does not know', function()
        local to = folder()
        for options, words in pairs {
            ['--budget 1MiB --pretrain 1'] = 'finetune: a budget of 1,048,576 bytes cannot be kept: the least ',
            ['--rank 2'] = "unknown option '%-%-rank'", ['--lora all'] = '%-%-lora takes a number, got all',
            ['--weights x'] = '%-%-weights and %-%-tokens go together', ['--resume --out /nowhere'] = 'No such file',
        } do
            local text, code = helper.shell(("%s examples/finetune.lua --out '%s' %s"):format(LUAJIT, to, options))
            assert.equal((options:find '/nowhere' or options:find 'budget') and 1 or 2, code, text)
            assert.matches(words, text)
        end
    end)
end)

describe('the projects', function()
    it('train a classifier in a budget, resume it to the bit, and sweep', function()
        local out = example('projects/classifier', '--out "' .. folder() .. '"')
        local free, tight = out:match 'a step reserves (%d+) bytes, (%d+) within a budget of 1.4 MiB'
        assert.is_true(tonumber(tight) <= 1.4 * 2 ^ 20 and tonumber(tight) < tonumber(free), out)
        assert.is_true(tonumber(out:match 'right: ([%d.]+) %%') > 95, out)
        assert.matches('the same loss, to the bit: true\n', out)
        local count = 0
        for predicted, measured in out:gmatch 'predicted +(%d+) measured +(%d+)' do
            assert.equal(predicted, measured)
            count = count + 1
        end
        assert.equal(6, count)
    end)

    it('train by a layer, an op, an optimizer and a data source of their own', function()
        local out = example('projects/custom', '')
        assert.matches('%[%-0.2500,  0.0000,  0.1250,  1.2500%]\nits gradient\ttensor %(2%) f32 %[1., 1.%]\n', out)
        assert.is_true(tonumber(out:match 'step 300  loss ([%d.]+)') < 0.02, out)
        assert.is_nil(out:match 'planned for the')
    end)

    it('find where the bytes of a step go', function()
        local out = example('projects/hunt', '')
        assert.matches('\n2%. Which ops keep it%? exp 2.00 MiB, ', out)
        assert.matches('\n   2 mistakes\n   %- reshape of .-detached', out)
        local before, after = out:match 'the peak goes from (%d+) to (%d+), with no mistakes: true'
        assert.is_true(tonumber(after) < 0.6 * tonumber(before), out)
        local measured, predicted = out:match 'measured: (%d+), predicted: (%d+)'
        assert.equal(predicted, measured)
    end)
end)
