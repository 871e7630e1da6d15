--- Machines that plans are made for, by name. The library gets the rates of a machine when a plan first asks for it.
-- @internal wane.plan.costs.target
local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local rates = require 'wane.plan.costs.rates'

local C, raise = binding.C, errors.raise

local target = { rates = { 'f64', 'f32', 'bf16', 'bytes', 'launch' } }

local assumed = { to_host = 8e9, to_disk = 1.5e9, from_host = 8e9, from_disk = 1.5e9 }

--- Sets the rates of a machine that plans can be made for.
-- @param name of the machine
-- @param t { f64 =, f32 =, bf16 = (FLOP/s), bytes = (bytes/s), launch = (seconds), to_host =, to_disk =, from_host =,
-- from_disk = (bytes/s, optional), cuda = }
-- @return the library's number of the machine
function target.put(name, t)
    local p = binding.new('struct wn_profile')
    p.cuda = t.cuda and 1 or 0
    for _, rate in ipairs(target.rates) do p[rate] = t[rate] end
    for i, place in ipairs { 'host', 'disk' } do
        p.out[i - 1] = t['to_' .. place] or assumed['to_' .. place]
        p['in'][i - 1] = t['from_' .. place] or assumed['from_' .. place]
    end
    return binding.id(C.wn_target_set(name, p))
end

--- Puts rates of classes of applications on a machine.
-- @param id the library's number of the machine
-- @param is_cuda whether they are those of CUDA's kernels
-- @param gpu of plan/costs/rates.lua
function target.put_classes(id, is_cuda, gpu)
    local rate = binding.new('struct wn_rate')
    rates.each(gpu, function(class, r)
        rate.cuda, rate.launch = is_cuda and 1 or 0, r.launch
        rate.bytes, rate.flops, rate.half = r.bytes or 0, r.flops or 0, r.half or 0
        binding.check(C.wn_target_rate(id, class, rate))
    end)
end

--- Returns the target whose rates of classes are those of the GPU that is here.
-- @return 'h100' or 'h200', or nil
-- @return what plan/costs/rates.lua has of it
function target.shipped()
    local here = binding.text(C.wn_cuda()):gsub('^simulated, for specs: ', ''):match '^(.-), sm_'
    for _, name in ipairs { 'h100', 'h200' } do
        if here and here:find(rates[name].gpu) then return name, rates[name] end
    end
end

--- Returns the rates that plans for a device of this machine take, measured or assumed.
-- @param device number of the device
-- @return { f64 =, f32 =, bf16 = (FLOP/s), bytes = (bytes/s), launch = (seconds), to_host =, to_disk =, from_host =,
-- from_disk = (bytes/s) }
function target.here(device)
    local p, t = binding.new('struct wn_profile'), {}
    binding.check(C.wn_profile_get(device, p))
    for _, rate in ipairs(target.rates) do t[rate] = p[rate] end
    for i, place in ipairs { 'host', 'disk' } do
        t['to_' .. place], t['from_' .. place] = p.out[i - 1], p['in'][i - 1]
    end
    return t
end

local ids = { cpu = 0 }

--- Returns the library's number of a target.
-- @param name 'cpu', a name of plan/costs/targets.lua, or nil for this machine
-- @param what opens the message of an error
-- @return number, 0 for this machine
-- @raise 'value' for an unknown name, with names like it
function target.of(name, what)
    if name == nil then return 0 end
    if ids[name] then return ids[name] end
    local known = require 'wane.plan.costs.targets'
    if type(name) ~= 'string' or rawget(known, name) == nil then
        raise(nil, 'value', "%s: there is no target '%s'; %s", what, tostring(name),
            errors.near(name, errors.names(known, { cpu = true })))
    end
    ids[name] = target.put(name, known[name])
    if known[name].classes then target.put_classes(ids[name], known[name].cuda, known[name].classes) end
    return ids[name]
end

return target
