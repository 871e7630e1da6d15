# Says which spec files each tier of checks and each way of running them has, for check.sh and suite.sh beside this. A file
# belongs to `make check` by its name alone; to have it in `make test` too, add it to a list here.

# ---- make test ----------------------------------------------------------------------------------------------------
# At most 3 minutes on two cores, and nothing of CUDA: what a change breaks most often, each by its cheapest specs.
# Measured: 190 s of processor time, of which ops take 53, pages 28, recipes 23, budgets 15 and chains 13.
tree='layers links sentences suite mutants'
ops='op tensor nn optim random'
plans='verify policy checkpoint cache rewrite recipe budget chain'
bytes='exact gc'
bits='state runpoints microbatch fused_step ways save'
misuse='errors api traps'
pages='readme pages bench'
test_files="$tree $ops $plans $bytes $bits $misuse $pages"

files_of() { # names
    for name in "$@"; do echo "spec/${name}_spec.lua"; done
}

# ---- ways of running specs ------------------------------------------------------------------------------------------
# All that these do is done by processes or libraries of their own, which are alike whatever the way: the plain way runs
# them.
apart='sweep_shard dist cudasim examples readme classes neon product threads'
# These spend their seconds in C. Specs of CUDA have their device in the plain way and under the sanitizers; wrong arguments
# make tens of thousands of errors, all alike; and the kernels and plans of whole models are tried small by other specs.
apart="$apart optimum words"
apart_nojit='cuda[a-z_]* onednn'
apart_stress='cuda[a-z_]* onednn arguments zoo'
apart_asan='zoo'

# Files that take longest where nothing was run yet, in any of the ways, the slowest first: they begin first, so that no
# core is left alone at the end, and each part of the files has its share of them.
slowest='cuda_op examples product op onednn neon cuda_networks cuda_attention cuda_bundle ways recipe cudasim arguments
readme oom classes stream chain optimum costs budget checkpoint words threads zoo
cuda_device parts cuda_memory cuda_graph op_places offload repl sweep_merge planning cuda_library whole_step hostile'
slowest_first() { # files on standard input
    awk -v names="$slowest" 'BEGIN { n = split(names, list); for (i in list) place["spec/" list[i] "_spec.lua"] = i }
        { print ($0 in place) ? place[$0] : n + NR, $0 }' | sort -n | cut -d ' ' -f 2
}

# Prints one of so many parts of the files, dealt out as 0 1 2 2 1 0 0 1 2, so that each part has as many slow ones.
part_of() { # parts, number from 0 on, any; files on standard input
    slowest_first | awk -v parts="$1" -v number="$2" '{
        k = (NR - 1) % (2 * parts)
        if ((k < parts ? k : 2 * parts - 1 - k) == number % parts) print
    }'
}

# Prints the files that a way runs. third: a number, and that third of them.
files_of_way() { # way, third or nothing
    case $1 in
        nojit) without="$apart $apart_nojit" ;;
        stress) without="$apart $apart_stress" ;;
        asan) without="$apart $apart_asan" ;;
        *) without='none' ;;
    esac
    all=$(ls spec/*_spec.lua | grep -Ev "^spec/($(echo $without | tr ' ' '|'))_spec" | slowest_first)
    if [ -n "$2" ]; then echo "$all" | part_of 3 "$2"; else echo "$all"; fi
}

# ---- turns of make check --------------------------------------------------------------------------------------------
# What is too long for every change comes by turns. The turn is a number made of the commit, so that a failure repeats;
# WANE_TURN asks for one. Each way, each fifth of the files under sanitizers and each fifth of the long forms has one turn in
# five; each third of the files in the other ways, and of those that run rarely, one in three.
ways='nojit stress aarch64 cuda fuzz'
fuzz_seconds=60
[ "$tier" != all ] || fuzz_seconds=600
commit=$(git rev-parse --short=7 HEAD 2>/dev/null) || commit=0
turn=${WANE_TURN:-$((0x$commit % 15))}

say_turn() {
    echo "== turn $turn of 0 to 14, of commit $commit: WANE_TURN=$turn make check runs the same again"
    echo "   beside all that every turn runs: $(turn_of $ways); fifth $((turn % 5 + 1)) of the files under sanitizers, and of those with a long form in it; third $((turn % 3 + 1)) of those that run rarely"
}

# Prints the one whose turn it is.
turn_of() { # at least one word
    shift $((turn % $#))
    echo "$1"
}

# Runs one of the ways as `make check` does: the long ones on a third of the files.
by_turns() { # way
    case $1 in
        nojit | stress) suite "$1" "third=$turn" ;;
        *) every "$1" ;;
    esac
}

# Runs all that is run in one of the ways.
every() { # way
    case $1 in
        nojit | stress) suite "$1" ;;
        fuzz) sh spec/support/fuzz_short.sh "$fuzz_seconds" ;;
        *) sh "spec/support/$1.sh" ;;
    esac
}

# These try what few commits change for many seconds: kernels of each class of processors, the simulated device itself,
# plans of many graphs against all others, and trainings of many models on the simulated device, whose ops, faults, heap and
# graphs every turn tries. In two turns of three they run only if the commit is about them.
rarely='product neon classes onednn cudasim cuda_bundle words optimum cuda_attention cuda_networks'

# Prints the files, at most 12, that are about files which the commit changed, or the working tree; none where there is no
# commit before, as in a clone of the last one alone.
touched() {
    git diff --name-only HEAD~1 2>/dev/null | ${LUAJIT:-luajit} spec/support/touched.lua | head -n 12
}

# Prints what the plain way runs, and what the sanitizers run: a fifth of their files, but none of CUDA, whose device the
# plain way runs. Both have what is touched.
plain_files() {
    is_rare="^spec/($(echo $rarely | tr ' ' '|'))_spec"
    { files_of_way plain | grep -Ev "$is_rare"; files_of_way plain | grep -E "$is_rare" | part_of 3 "$turn"; touched; } | sort -u
}
asan_files() {
    { files_of_way asan | grep -v '^spec/cuda' | part_of 5 "$turn"; files_of_way asan | grep -xF "$(touched)"; } | sort -u
}

# Prints the files that run in their long form, of those that have one.
long_files() {
    grep -lE 'is_long|WANE_SPEC_LONG' spec/*_spec.lua | part_of 5 "$turn"
}
