-- Checks the completion of zsh in a zsh, where one is installed: what TAB makes of a line at an interactive prompt, and
-- what it lists. The shell runs in a terminal of zsh's own module zpty.
local helper = require 'spec.helper'

-- Reads lines, types each with a TAB behind it into an interactive zsh, and prints what that shows and runs. $1: the
-- folder of the completion, which compinit finds, or a file that is sourced.
local DRIVER = [[
zmodload zsh/zpty
zpty z env TERM=dumb zsh -f -i
load="fpath=($1 \$fpath); compinit -D -u"
[ -d "$1" ] || load="compinit -D -u; source $1"
zpty -w z "PROMPT= PS2= RPROMPT=; unsetopt zle_bracketed_paste prompt_cr prompt_sp; stty -echo; LISTMAX=0
autoload -Uz compinit; $load
wane() { print -r -- \"<\${(j:|:)@}>\" }; print -r -- READY-\$((1 + 1))"
zpty -r z out '*READY-2*'
while IFS= read -r line; do
    zpty -w -n z "$line"$'\t\n'
    zpty -r z out '*<*>*'
    print -r -- "${out//$'\r'/}"
    print -r -- "end of $line"
done]]

local function write(path, text)
    local file = assert(io.open(path, 'w'))
    file:write(text)
    file:close()
end

-- Line that is typed -> the words that run, in which `|` stands between two.
local LINES = {
    ['wane sw'] = 'sweep', ['wane help sw'] = 'help|sweep', ['wane completion b'] = 'completion|bash',
    ['wane sweep --ret'] = 'sweep|--retry-failed', ['wane plan fi'] = 'plan|first.lua',
    ['wane repl -i fi'] = 'repl|-i|first.lua', ['wane run first.lua se'] = 'run|first.lua|second.txt',
    ['wane plan --target h2'] = 'plan|--target|h200',
    ['wane plan first.lua --policy=sq'] = 'plan|first.lua|--policy=sqrt',
    ['wane sweep --policy save_all,sq'] = 'sweep|--policy|save_all,sqrt',
    ['wane sweep first.lua --out se'] = 'sweep|first.lua|--out|second.txt',
    ['wane sweep first.lua --merge a.jsonl,b.j'] = 'sweep|first.lua|--merge|a.jsonl,b.jsonl',
    ['wane sweep first.lua --resume=f'] = 'sweep|first.lua|--resume=force',
    ['wane sweep first.lua --resume --ret'] = 'sweep|first.lua|--resume|--retry-failed',
    ['wane nothing of ours'] = 'nothing|of|ours',
}

-- Line that is typed -> texts that TAB lists.
local LISTS = {
    ['wane '] = { 'sweep +%-%- measures', 'completion +%-%- prints', 'version +%-%- says' },
    ['wane sweep --'] = { '%-%-policy +%-%- policies', '%-%-resume +%-%- goes on', '%-%-help +%-%- says' },
    ['wane sweep --policy '] = { 'recompute_all', 'save_all', 'sqrt' },
    ['wane notebook '] = { 'install +run' },
    ['wane plan '] = { 'first.lua +sub/' },
}

describe('the completion of zsh', function()
    local has_zsh = select(2, helper.shell 'command -v zsh') == 0
    local folder, typed

    -- Returns what the shell shows of each line, by line.
    local function type_in(lines, place)
        write(folder .. '/lines', table.concat(lines, '\n') .. '\n')
        local line = ('cd %s/typed && timeout 60 zsh -f ../driver %s < ../lines'):format(folder, place)
        local text, code = helper.shell(line)
        assert.equal(0, code, text)
        local shown = {}
        for block, of in text:gmatch '(.-)\nend of ([^\n]*)\n' do shown[of] = block end
        return shown
    end

    setup(function()
        if not has_zsh then return end
        folder = helper.lines('mktemp -d')[1]
        helper.shell(('mkdir -p %s/functions %s/typed/sub && build/wane completion zsh > %s/functions/_wane'):format(
            folder, folder, folder))
        write(folder .. '/driver', DRIVER)
        for _, name in ipairs { 'first.lua', 'second.txt', 'a.jsonl', 'b.jsonl' } do
            write(folder .. '/typed/' .. name, '')
        end
        local lines = {}
        for line in pairs(LINES) do lines[#lines + 1] = line end
        for line in pairs(LISTS) do lines[#lines + 1] = line end
        typed = type_in(lines, folder .. '/functions')
    end)
    teardown(function() if folder then os.execute('rm -rf ' .. folder) end end)

    it('finishes commands, options, values and files', function()
        if not has_zsh then return pending 'is not tried: no zsh' end
        for line, want in pairs(LINES) do
            assert.equal(want, typed[line]:match '<(.-)>', line .. ': ' .. typed[line])
        end
    end)

    it('lists what may follow, with a word about each', function()
        if not has_zsh then return pending 'is not tried: no zsh' end
        for line, texts in pairs(LISTS) do
            for _, text in ipairs(texts) do assert.matches(text, typed[line]) end
        end
    end)

    it('may be sourced too, after compinit, and says so before it', function()
        if not has_zsh then return pending 'is not tried: no zsh' end
        local shown = type_in({ 'wane sw' }, folder .. '/functions/_wane')
        assert.equal('sweep', shown['wane sw']:match '<(.-)>')
        local text = helper.shell(('zsh -f -c "source %s/functions/_wane" 2>&1'):format(folder))
        assert.matches('^wane: completion is not loaded; [^\n]*: autoload %-Uz compinit && compinit\n$', text)
    end)
end)
