-- Checks that bits do not depend on the number of threads: work is divided by outputs, and a sum is split by its
-- length, never by threads. It holds for own kernels; oneDNN promises less.
local helper = require 'spec.helper'

describe('threads', function()
    local function run(n)
        local out, code = helper.shell(('WANE_ONEDNN=off WANE_THREADS=%d luajit spec/support/threads.lua'):format(n))
        assert.equal(0, code, out)
        assert.equal(tostring(n), out:match 'threads%s+(%d+)')
        return (out:gsub('threads%s+%d+', ''))
    end

    it('change no bit of sums, softmax and a training with dropout', function()
        local one = run(1)
        assert.is_truthy(one:find 'trained%s+%x+')
        assert.is_nil(one:lower():find 'nan')
        assert.equal(one, run(2))
        assert.equal(one, run(3))
    end)
end)
