--- States in ranges, in files: on several ranks each has a range of an optimizer's states alone, and the file of any
-- number of ranks is that of one.
--
-- Rank 0 writes such a state block after block: each rank gives it what it has of the block. A rank reads its own range
-- of a file.
-- @internal wane.io.ranges
local binding = require 'wane.ffi'
local file = require 'wane.io.file'
local iterate = require 'wane.iterate'
local ranks = require 'wane.program.ranks'
local read = require 'wane.tensor.read'
local tensor = require 'wane.tensor'

local BLOCK = 2 ^ 22 -- elements that rank 0 has at once, of all ranks

local ranges = {}

--- Makes the entry of a state that of the whole, where this rank has a range of it.
-- @param entry of the state: { name =, tensor =, dtype =, dims =, bytes = }
-- @param p the parameter that it belongs to
-- @return the entry; with `of`, the parameter, and `first` and `count`, which elements of the whole the state holds
function ranges.entry(entry, p)
    local first, count = tensor.range(p)
    if not first then return entry end
    entry.of, entry.first, entry.count, entry.dims = p, first, count, p._dims
    entry.bytes = tensor.count(p._dims) * binding.element_bytes[entry.dtype]
    return entry
end

-- Returns the first element of [from, to) that a rank has of an entry, and how many.
local function overlap(entry, rank, from, to)
    local first, count = tensor.range(entry.of, rank)
    local begin = math.max(first, from)
    return begin, math.max(0, math.min(first + count, to) - begin)
end

-- Writes a block of elements, which `all` has in the order of ranks, in their own order.
local function write_block(f, entry, from, to, all)
    local size, at, pieces = binding.element_bytes[entry.dtype], 0, {}
    for r = 0, ranks.size - 1 do
        local begin, count = overlap(entry, r, from, to)
        pieces[#pieces + 1] = { begin = begin, at = at, bytes = count * size }
        at = at + count * size
    end
    table.sort(pieces, function(a, b) return a.begin < b.begin end)
    for _, piece in ipairs(pieces) do
        if piece.bytes > 0 then f:write_from(all + piece.at, piece.bytes) end
    end
end

--- Appends the bytes of an entry to a file, which rank 0 writes; every rank calls it for those in ranges.
-- @param f File; nil: this is another rank
-- @param entry of ranges.entry, or any that is whole
function ranges.save(f, entry)
    if not entry.of then return f and f:save(entry.tensor) end
    local size, n = binding.element_bytes[entry.dtype], tensor.count(entry.dims)
    local own = read.own(entry.tensor)
    local all = binding.array('u8', math.max(1, math.min(BLOCK, n)) * size)
    for from = 0, n - 1, BLOCK do
        local to = math.min(n, from + BLOCK)
        local function give()
            local begin, count = overlap(entry, ranks.rank, from, to)
            return own + (begin - entry.first), count * size
        end
        ranks.collect(('elements of %s from %.0f on'):format(entry.name, from), give, all, (to - from) * size)
        if f then write_block(f, entry, from, to, all) end
    end
end

--- Returns a piece of a file for a state, cut to the range that this rank has of it.
-- @param piece of wane.io.file: { entry =, cell =, first =, count =, columns = }
-- @param entry that the piece is for
function ranges.piece(piece, entry)
    if not entry.of then return piece end
    -- `first` is where the piece begins in the range, `from` where the range begins in the piece; where they do not
    -- meet, both are at an end, and `count` is 0.
    local first = math.max(0, math.min(piece.first - entry.first, entry.count))
    local from = math.max(0, math.min(entry.first - piece.first, piece.count))
    local count = math.min(piece.count - from, entry.count - first)
    local cut = { cell = piece.cell, first = first, count = count }
    if piece.columns > 0 and count > 0 then -- the elements of the range are all over the file's matrix
        cut.entry, cut.columns, cut.rows, cut.from = piece.entry, piece.columns, piece.count / piece.columns, from
        return cut
    end
    cut.entry, cut.columns = {}, 0
    for name, value in iterate(piece.entry) do cut.entry[name] = value end
    cut.entry.at = cut.entry.at + from * file.element(piece.entry.kind)
    return cut
end

return ranges
