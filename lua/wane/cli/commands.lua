--- The commands of `wane`, their operands and their options, in one table: what parses a command line, its help, the
-- completion of shells and the manual page all read it.
--
-- A command has these fields: name; operands (as its usage line shows them), least and most (how many), files (a
-- pattern of the files that an operand may be, for completion) or choices (the words it may be) and first (what the
-- first of them is, where it is missing); brief (what it does, in one line); text (paragraphs); options; examples (list
-- of { command line, what it does }); is_open (what follows the first operand belongs to the script); own_value (how
-- the value of the script's own options is shown; nil: it has none).
--
-- An option has these fields: name (of one letter: `-i`); value (the word for its value; nil for a flag); kind (a check
-- of cli/arguments.lua) with least; is_list (values between commas); choices (words that completion offers, and with
-- is_closed the only ones); files (a pattern of files that it offers); may (the one value that a flag may take by `=`);
-- text.
-- @internal wane.cli.commands
local policies = { 'save_all', 'recompute_all', 'sqrt', 'least' }

local function policy_of(text)
    return { name = 'policy', value = 'POLICY', kind = 'policy', choices = policies, text = text }
end

local targets = require('wane.errors').names(require 'wane.plan.costs.targets')

local budget_text = 'the bytes that the step may reserve, such as 2GiB or 800MB'
local warmup = { name = 'warmup', value = 'N', kind = 'count', least = 0,
    text = 'steps before those that are measured (1)' }
local lines = { name = 'lines', text = 'steps in three lines (zero_grad, backward, step) instead of opt:step(loss)' }

local described = 'The script describes its step: it ends in `return wane.main { build = function(p) ... return fn, '
    .. 'model, optimizer end, defaults = { depth = 8 } }`, as `wane new x.lua` writes one.'
local own = 'Further options go to the script: --depth 16 is p.depth = 16 for its build function. `wane %s x.lua '
    .. '--help` lists those of a script.'

local commands = {
    {
        name = 'run', operands = 'SCRIPT [ARGUMENT...]', least = 1, files = '*.lua', is_open = true,
        brief = 'runs a script with Wane on its path',
        text = { 'What follows the script goes to it, in `arg` and in `...`. Lines that it prints leave at once, into '
            .. 'pipes and files too.' },
        examples = { { 'wane run train.lua --lr 0.1 | tee log.txt', 'trains, and keeps what is printed' } },
    },
    {
        name = 'repl', brief = 'opens a prompt',
        text = { 'Values print themselves, and ?name says what a name is for.' },
        options = { { name = 'i', value = 'SCRIPT', kind = 'text', files = '*.lua',
            text = 'runs a script first; its top-level locals become names' } },
        examples = { { 'wane repl -i train.lua', 'a prompt with the names of a script' } },
    },
    {
        name = 'notebook', operands = 'install|run [FILE]', least = 1, most = 2, choices = { 'install', 'run' },
        first = 'what to do', brief = 'adds Wane to the kernels of Jupyter, or runs as one',
        text = { 'Cells run as lines of the prompt do: the last expression of a cell shows itself, and a plan, a '
            .. 'frontier, a sweep, a curve or a memory report shows its picture. It needs libzmq.so.5 (Debian: '
            .. 'libzmq5) beside Jupyter. `wane notebook run FILE` is what Jupyter starts, with a connection file.' },
        options = {
            { name = 'user', text = 'installs for this user (the default)' },
            { name = 'prefix', value = 'DIR', kind = 'text',
                text = "installs into DIR/share/jupyter, a virtual environment's for example" },
        },
        examples = { { 'wane notebook install && jupyter lab', 'notebooks with the kernel Wane (LuaJIT)' } },
    },
    {
        name = 'new', operands = 'FILE', least = 1, most = 1, files = '*.lua',
        brief = 'writes a script to start from, for plan, measure, sweep and profile',
        examples = { { 'wane new x.lua && wane plan x.lua', 'a script, and what its step needs' } },
    },
    {
        name = 'plan', operands = 'SCRIPT', least = 1, most = 1, files = '*.lua', own_value = 'VALUE',
        brief = "says what a script's step would need, and computes nothing",
        text = { described, own:format 'plan', 'Where the script returns an optimizer, it is the whole training step: '
            .. 'opt:step(loss), with the states of the optimizer.',
            'Where no plan fits the budget, it says how many bytes would do and what holds them; exit status 1.' },
        options = {
            policy_of "which activations are kept: save_all, sqrt, 'segments(4)', ...",
            { name = 'budget', value = 'SIZE', kind = 'size', text = budget_text },
            { name = 'target', value = 'MACHINE', kind = 'text', choices = targets, is_closed = true,
                text = 'plans for another machine, by the rates of its data sheet: ' .. table.concat(targets, ', ') },
            { name = 'explain', text = 'says why each value is kept or computed again' },
            { name = 'json', text = 'prints the numbers of the plan as a line of JSON, behind what the script prints' },
            lines,
        },
        examples = {
            { 'wane plan x.lua --policy sqrt --depth 16', 'bytes and seconds under a policy' },
            { 'wane plan x.lua --budget 2GiB --explain', 'the fastest plan within so many bytes, and why it is so' },
        },
    },
    {
        name = 'measure', operands = 'SCRIPT', least = 1, most = 1, files = '*.lua', own_value = 'VALUE',
        brief = "measures a script's step: bytes predicted and measured, seconds",
        text = { described, own:format 'measure', 'Where the script returns an optimizer, it trains: opt:step(loss), '
            .. 'or zero_grad, backward and step with --lines.' },
        options = {
            policy_of "which activations are kept: save_all, sqrt, 'segments(4)', ...",
            { name = 'budget', value = 'SIZE', kind = 'size', text = budget_text .. '; instead of a policy' },
            { name = 'steps', value = 'N', kind = 'count', least = 1, text = 'steps that are measured (5)' },
            warmup, lines,
            { name = 'profile', text = 'adds up the seconds by op and by path of modules' },
        },
        examples = { { 'wane measure x.lua --policy sqrt --steps 10', 'ten steps under a policy' } },
    },
    {
        name = 'sweep', operands = 'SCRIPT', least = 1, most = math.huge, files = '*.lua',
        own_value = 'V1,V2',
        brief = "measures a script's step at every point of a grid, a process each",
        text = { described .. ' It may have a grid, `grid = { depth = { 8, 16 }, policy = { "save_all", "sqrt" } }`; '
            .. 'lists of the command line replace its axes.', own:format 'sweep',
            'The exit status is 1 where a point failed, or where gradients or bytes differ that should not.' },
        options = {
            { name = 'policy', value = 'P1,P2', kind = 'policy', choices = policies, is_list = true,
                text = "policies: save_all,sqrt,'segments(4)'" },
            { name = 'budget', value = 'SIZE1,SIZE2', kind = 'size', is_list = true, text = 'budgets: 1GiB,2GiB' },
            { name = 'order', value = 'NAME1,NAME2', kind = 'text', is_list = true,
                text = 'the axes in order; the last varies fastest' },
            { name = 'out', value = 'FILE', kind = 'name', text = 'keeps the rows, one JSON object a line' },
            { name = 'resume', may = 'force', text = 'goes on with the rows that --out has; =force does so although '
                .. 'the script has changed' },
            { name = 'retry-failed', text = 'runs the points again that failed in --out' },
            { name = 'report', value = 'FILE', kind = 'file', text = 'writes an HTML page with table and pictures' },
            { name = 'csv', value = 'FILE', kind = 'file', text = 'writes the rows as comma separated values' },
            { name = 'svg', value = 'FILE', kind = 'file', text = 'writes the picture of seconds over bytes' },
            { name = 'repeats', value = 'N', kind = 'count', least = 1,
                text = 'steps of a point that are measured (3)' },
            warmup,
            { name = 'limit', value = 'SECONDS', kind = 'seconds', text = 'ends a point that takes longer' },
            lines,
            { name = 'shard', value = 'I/N', kind = 'text', choices = { 'auto' }, text = 'takes every N-th point from '
                .. 'the I-th, into a file of its own; auto: the numbers of a Slurm array or of a rank of MPI' },
            { name = 'points', text = 'prints how many points there are, and runs none' },
            { name = 'merge', value = 'FILE1,FILE2', kind = 'name', is_list = true,
                text = 'makes the files of shards one sweep; runs nothing' },
            { name = 'verbose', text = 'prints a line a point where there is no terminal' },
            { name = 'title', value = 'TEXT', kind = 'text', text = 'heads the report' },
        },
        examples = {
            { 'wane sweep x.lua --policy save_all,sqrt --depth 4,8 --report a.html',
                'four points, and a page about them' },
            { 'wane sweep x.lua --out runs/a.jsonl --resume', "the script's own grid, from where it was stopped" },
            { 'wane sweep x.lua --shard 2/8 --out rows.jsonl', 'an eighth of the points, into rows.2-of-8.jsonl' },
            { "wane sweep x.lua --merge 'rows.*-of-8.jsonl' --out all.jsonl", 'all eighths as one run' },
        },
    },
    {
        name = 'profile', operands = '[SCRIPT]', most = 1, files = '*.lua', own_value = 'VALUE',
        brief = "measures this machine, or the ops of a script's step, for plans to come",
        text = { 'Without a script it measures the rates of the machine, and under mpirun or srun those of the link '
            .. 'among its ranks. Plans then weigh measured seconds; they are kept in the file that WANE_COSTS names.',
            own:format 'profile' },
        options = { policy_of 'the policy under which the step runs' },
        examples = { { 'wane profile', 'the rates of this machine' }, { 'wane profile x.lua', 'the ops of a step' },
            { 'mpirun -n 4 wane profile', 'the rates of the link of 4 ranks' } },
    },
    {
        name = 'version',
        brief = "says Wane's version and this machine's devices, threads and libraries",
        examples = { { 'wane version', 'what computes here' } },
    },
    {
        name = 'completion', operands = 'bash|zsh', least = 1, most = 1, choices = { 'bash', 'zsh' },
        first = 'the name of a shell', brief = 'prints what completes the words of these commands in a shell',
        text = { '`make install` puts it where both shells look. From a checkout, source it in the file that the shell '
            .. 'starts with.' },
        examples = { { 'source <(wane completion bash)', 'completes words in this shell' } },
    },
    {
        name = 'man', brief = 'prints the manual page, for man',
        examples = { { 'wane man | man -l -', 'shows it' } },
    },
    {
        name = 'help', operands = '[COMMAND]', most = 1, brief = 'says what a command does, with its options',
        examples = { { 'wane help sweep', 'the options of a sweep' } },
    },
}

for _, command in ipairs(commands) do
    command.operands, command.text, command.options = command.operands or '', command.text or {}, command.options or {}
    command.least, command.most = command.least or 0, command.most or not command.is_open and 0 or nil
end

return commands
