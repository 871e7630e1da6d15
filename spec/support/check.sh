#!/bin/sh
# All that is checked before a change lands, each stage whatever became of the ones before: lint, the reference
# pages, then the specs without the JIT, under collector stress, under sanitizers, some of them on the simulated GPU and
# for aarch64 under qemu-user; random calls, trainings and files for 24 s; and the specs as users run them, where those
# that have a long form (random networks, every index of a fault) run it once.
# The last line is `N passed, N failed`: the specs of the last stage, and one failure for each other stage that failed.
cd "$(dirname "$0")/../.." || exit 1
make=${MAKE:-make}
failed=

stage() { # name, command
    name=$1
    shift
    start=$(date +%s)
    "$@" || failed="$failed $name"
    echo "   $name: $(($(date +%s) - start)) s"
}

$make --no-print-directory all || { echo '0 passed, 1 failed'; exit 1; }
stage lint sh spec/support/lint.sh
stage doc $make --no-print-directory doc
stage nojit sh spec/support/suite.sh nojit
stage stress sh spec/support/suite.sh stress
stage asan $make --no-print-directory asan
stage cuda sh spec/support/cuda.sh
stage aarch64 sh spec/support/aarch64.sh
stage fuzz sh spec/support/fuzz_short.sh
start=$(date +%s)
mkdir -p build/suite
{ WANE_SPEC_LONG=1 sh spec/support/suite.sh plain; echo $? >build/suite/plain.code; } | tee build/suite/plain.out
plain=$(cat build/suite/plain.code)
echo "   plain, long form: $(($(date +%s) - start)) s"

closing=$(tail -n 1 build/suite/plain.out)
if ! echo "$closing" | grep -Eq '^[0-9]+ passed, [0-9]+ failed'; then
    closing='0 passed, 1 failed'
fi
[ -z "$failed" ] || printf '\nfailed stages:%s\n' "$failed"
echo "$closing" | awk -v more="$(echo "$failed" | wc -w)" '{ $3 += more; print }' | tee build/check.closing
[ $plain = 0 ] && [ -z "$failed" ]
