#!/bin/sh
# Runs one of the three tiers of checks, each stage whatever became of the ones before.
# usage: spec/support/check.sh test|check|all
#   test   the files that spec/support/tiers.sh lists under `test_files`, and lint
#   check  lint, the reference pages, and the specs as users run them, those of CUDA on the simulated GPU; by turns
#          (tiers.sh) a fifth of them in their long form and under sanitizers, and one of the other ways of running them
#   all    everything in every way, ten minutes of random calls, trainings and files, and every mutant
# The last line is `N passed, N failed`: the specs of the last stage, and one failure for each other stage that failed.
tier=$1
cd "$(dirname "$0")/../.." || exit 1
make=${MAKE:-make}
failed=
. spec/support/tiers.sh

stage() { # name, command
    name=$1
    shift
    start=$(date +%s)
    "$@" || failed="$failed $name"
    echo "   $name: $(($(date +%s) - start)) s"
}

# Builds the simulated GPU, on which the specs of CUDA run in the plain way, where that is possible.
simulated() { # targets of make
    if command -v "${CXX:-g++}" >/dev/null 2>&1; then $make --no-print-directory "$@"
    else echo "cuda: the simulated GPU is skipped: no C++ compiler (${CXX:-g++})"; fi
}

suite() { sh spec/support/suite.sh "$@"; }

# The last stage: its count is the closing one.
plain() { # files; none: all of them
    mkdir -p build/suite
    { suite plain "$@"; echo $? >build/suite/plain.code; } | tee build/suite/plain.out
    return "$(cat build/suite/plain.code)"
}

$make --no-print-directory all || { echo '0 passed, 1 failed'; exit 1; }
rm -f build/suite/plain.out
case $tier in
    test)
        stage lint sh spec/support/lint.sh files
        # shellcheck disable=SC2046
        stage plain plain $(files_of $test_files)
        ;;
    check)
        say_turn
        stage lint sh spec/support/lint.sh files
        stage doc $make --no-print-directory doc
        stage simulated simulated cudasim
        stage mpi $make --no-print-directory mpi
        stage asan $make --no-print-directory asan SPEC="$(asan_files | tr '\n' ' ')"
        stage "$(turn_of $ways)" by_turns "$(turn_of $ways)"
        WANE_SPEC_LONG_FILES=$(long_files | tr '\n' ' ')
        export WANE_SPEC_LONG_FILES
        # shellcheck disable=SC2046
        stage plain plain $(plain_files)
        ;;
    all)
        export FUZZ_SEED="${FUZZ_SEED:-$(date +%s)}"
        stage lint sh spec/support/lint.sh files
        stage doc $make --no-print-directory doc
        for way in $ways; do stage "$way" every "$way"; done
        stage asan $make --no-print-directory asan
        stage mpi $make --no-print-directory mpi
        stage mutants $make --no-print-directory mutants
        WANE_SPEC_LONG=1 stage plain plain
        ;;
    *) echo "check.sh: test, check or all, not '$tier'" >&2; exit 2 ;;
esac

closing=$(tail -n 1 build/suite/plain.out 2>/dev/null)
if ! echo "$closing" | grep -Eq '^[0-9]+ passed, [0-9]+ failed'; then
    closing='0 passed, 1 failed'
fi
[ -z "$failed" ] || printf '\nfailed stages:%s\n' "$failed"
# The count of the plain stage is its own: other stages are one failure each.
others=$(echo " $failed" | sed 's/ plain$//' | wc -w)
echo "$closing" | awk -v more="$others" '{ $3 += more; print }' | tee build/check.closing
[ -z "$failed" ]
