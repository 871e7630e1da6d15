-- Checks wane.json: what is written is read back equal to the last bit, and text that is no JSON is refused with its
-- place.
require 'spec.helper'
local json = require 'wane.report.json'

describe('wane.json', function()
    it('gives back what it was given', function()
        for _, value in ipairs { 0, 1, -17, 0.1, 1 / 3, 2 ^ 53, 1e300, 5e-324, -2.5e-8, true, false, '',
            'a "b" \\ \n\1 \127', 'grün 😀', { 1, { 2, 'x' }, {} }, { a = 1, b = { c = { true } } } } do
            assert.same(value, (json.decode(json.encode(value))))
        end
        for _ = 1, 200 do
            local x = (math.random() - 0.5) * 10 ^ math.random(-300, 300)
            assert.equal(x, json.decode(json.encode(x)))
        end
    end)

    it('writes equal values as equal text, numbers in few digits, bad text as U+FFFD', function()
        assert.equal('{"a":1,"b":[1,2.5],"c":"x"}', json.encode { c = 'x', b = { 1, 2.5 }, a = 1 })
        assert.equal('0.1', json.encode(0.1))
        assert.equal('9007199254740991', json.encode(2 ^ 53 - 1))
        assert.equal('[null,1e999,1]', json.encode { 0 / 0, 1 / 0, 1 })
        assert.equal('"a\239\191\189b"', json.encode 'a\255b')
        assert.equal('"\\u0000\\n\\u007f"', json.encode '\0\n\127')
        assert.has_error(function() json.encode { print } end)
    end)

    it('reads what others write', function()
        assert.same({ a = { 1, 2 }, d = 'é😀/' },
            (json.decode ' { "a" : [ 1 , 2e0 ],\n"b":null, "d":"\\u00e9\\ud83d\\ude00\\/" } '))
        assert.same({}, (json.decode '[]'))
        assert.is_false(json.decode 'false')
    end)

    it('says where a text is none', function()
        for text, at in pairs { ['{"a":1,}'] = 8, ['[1 2]'] = 4, ['"abc'] = 1, ['1 2'] = 3, nul = 1, [''] = 1,
            ['{"a" 1}'] = 6, ['[1'] = 3, ['"\n"'] = 2, ['"\\x"'] = 2, ['{1:2}'] = 2, ['-'] = 1 } do
            local value, why, place = json.decode(text)
            assert.is_nil(value)
            assert.matches('%a', why)
            assert.equal(at, place, text)
        end
    end)
end)
