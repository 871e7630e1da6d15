#!/bin/sh
# Runs the specs in one of four ways and makes sure they came to their end: plain, nojit, stress, asan.
# usage: spec/support/suite.sh plain|nojit|stress|asan [spec files or busted options]
# The closing line must be the last one and name no failure: a spec that calls os.exit(0), or a crash, fails here.
way=$1
shift
cd "$(dirname "$0")/../.." || exit 1
luajit=${LUAJIT:-luajit}
# Specs are thousands of tiny kernels: threads that spin between them take ten times as long on a busy machine.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
# Plans of specs must not depend on what somebody measured here.
export WANE_COSTS=off
log=build/suite.$way.log
status=build/suite.$way.status
mkdir -p build
rm -f "$log" "$status"
# What collects at each of ten thousand failures comes first, while there is little to collect: it takes 5 s instead of 220.
[ $# -gt 0 ] || set -- spec/oom_spec.lua $(ls spec/*_spec.lua | grep -v /oom_spec)
echo "== specs, $way"

{
    case $way in
        plain) "$luajit" spec/run.lua "$@" ;;
        nojit) "$luajit" -joff spec/run.lua "$@" ;;
        stress) WANE_SPEC_STRESS=1 "$luajit" spec/run.lua "$@" ;;
        asan)
            WANE_LIB="$PWD/build/asan" LD_PRELOAD="$(${CC:-gcc} -print-file-name=libasan.so)" \
                ASAN_OPTIONS="detect_leaks=1:abort_on_error=0:exitcode=99" \
                LSAN_OPTIONS="print_suppressions=0${WANE_LSAN:+:suppressions=$WANE_LSAN}" \
                "$luajit" spec/run.lua "$@" ;;
        *) echo "suite.sh: plain, nojit, stress or asan, not '$way'" ;;
    esac
    echo $? > "$status"
} 2>&1 </dev/null | tee "$log"

code=$(cat "$status")
closing=$(tail -n 1 "$log")
if ! echo "$closing" | grep -Eq '^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$'; then
    printf '\nwane: %s\n' "the specs ($way) did not come to their end: no closing line, exit code ${code:-none}"
    exit 1
fi
if [ "$code" != 0 ] || ! echo "$closing" | grep -q ' 0 failed'; then
    exit 1
fi
