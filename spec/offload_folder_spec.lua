-- Checks where offloaded values are written: each script runs in a process of its own, with another folder in
-- WANE_OFFLOAD_DIR.
require 'spec.helper'

describe('a folder', function()
    it('is where WANE_OFFLOAD_DIR says; one that is not there is an error, one without O_DIRECT is said', function()
        local script = os.tmpname()
        local file = io.open(script, 'w')
        file:write [[
            local wane = require 'wane'
            local m = wane.nn.Linear(64, 64)
            local x = wane.randn(64, 64)
            local ok, why = pcall(function()
                (m(x):relu() ^ 2):sum():backward { policy = function() return 'offload' end }
            end)
            print(ok, ok and wane.memory().disk > 0 or tostring(why))
        ]]
        file:close()
        local function run(folder)
            local pipe = io.popen(("WANE_OFFLOAD_DIR='%s' build/wane run %s 2>&1"):format(folder, script))
            local out = pipe:read('*a')
            pipe:close()
            return out
        end
        assert.is_truthy(run('/var/tmp'):find('true%s+true'))
        local missing = run('/no/such/folder')
        assert.is_truthy(missing:find('/no/such/folder', 1, true), missing)
        assert.is_truthy(run('/dev/shm'):find('true%s+true'))
        os.remove(script)
    end)
end)
