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

    it('are as many as OMP_NUM_THREADS says where WANE_THREADS says nothing', function()
        local function threads(environment)
            return helper.shell(('env -u WANE_THREADS -u OMP_NUM_THREADS %s build/wane version'):format(environment))
                :match '\nthreads    (%d+)\n'
        end
        assert.equal('3', threads 'OMP_NUM_THREADS=3')
        assert.equal('5', threads 'OMP_NUM_THREADS=5,2')
        assert.equal('4', threads 'OMP_NUM_THREADS=3 WANE_THREADS=4')
        for _, senseless in ipairs { '0', '-1', '65', 'x', '3x', "''" } do
            assert.equal(threads '', threads('OMP_NUM_THREADS=' .. senseless), senseless)
        end
    end)
end)
