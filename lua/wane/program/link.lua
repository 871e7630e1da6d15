--- Links among ranks: how many bytes a second they exchange on one machine, and among machines.
-- @internal wane.program.link
local binding = require 'wane.ffi'
local errors = require 'wane.errors'

local raise = errors.raise
local link = {}

-- Returns the count and the rate of entry k of a link. least, most: of the count.
local function level(list, k, least, most, what)
    local name = ('%s: link[%d]'):format(what, k)
    local pair = errors.check_options(list[k], { 1, 2 }, name)
    local rate = pair[2]
    if type(rate) ~= 'number' or not (rate > 0 and rate < math.huge) then
        raise(nil, 'value', '%s[2] must be bytes a second, above 0, got %s', name, errors.describe(rate))
    end
    return errors.count(pair[1], name .. '[1]', least, most), rate
end

--- Checks a link that a script describes.
-- @param list { { ranks of a machine, bytes a second among them }, { all ranks, bytes a second } }, the second for
-- several machines; nil: nothing is said
-- @param size number of ranks
-- @param what names the call
-- @return how many ranks share a machine, and a struct wn_link_rates, or nil where nothing is said
function link.of(list, size, what)
    if list == nil then return size, nil end
    errors.check_options(list, { 1, 2 }, what .. ': link')
    local per_node, inside = level(list, 1, 1, size, what)
    local all, outside = per_node, inside
    if list[2] ~= nil then all, outside = level(list, 2, per_node, size, what) end
    if all ~= size or size % per_node ~= 0 then
        raise(nil, 'value', '%s: link: the last pair is of all %d ranks, and machines have equally many; got machines '
            .. 'of %d, and %d ranks', what, size, per_node, all)
    end
    local rates = binding.new 'struct wn_link_rates'
    rates.bytes[0], rates.bytes[1] = inside, outside
    return per_node, rates
end

return link
