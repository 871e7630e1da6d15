--- nn.Embedding(v, d, {dtype =, device =}): returns row `id` of a table (v, d) for each id; ids (...) -> (..., d).
--
-- ids are i32 and 0-based, as tokenizers write them. Its parameter is weight (v, d), at first normal with mean 0 and
-- deviation 1.
-- @module wane.nn.embedding
-- @usage print(nn.Embedding(100, 8)(wane.randint(100, { 2, 5 })).shape) --> (2, 5, 8)

local create = require 'wane.tensor.create'
local errors = require 'wane.errors'
local module = require 'wane.module'
local op = require 'wane.tensor.op'
local tensor = require 'wane.tensor'

local EMBEDDING = op.id.embedding

local Embedding = module.new('Embedding', function(self, v, d, opts)
    opts = errors.check_options(opts, { 'dtype', 'device' }, 'nn.Embedding')
    self.v = op.size(v, 'nn.Embedding: rows', 1)
    self.d = op.size(d, 'nn.Embedding: size', 1)
    self.weight = module.parameter(create.make('nn.Embedding', op.id.normal, { v, d }, opts, { 0, 1 }), 'weight')
end)

function Embedding:forward(ids)
    tensor.need_self(ids, 'embedding')
    return (op.binary(EMBEDDING, self.weight, ids))
end

function Embedding:extra()
    return ('%d, %d'):format(self.v, self.d)
end

return Embedding
