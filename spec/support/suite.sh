#!/bin/sh
# Runs the specs in one of six ways: plain, nojit, stress, asan, aarch64 (which aarch64.sh prepares), cuda (on the
# simulated GPU). Each file is a process of its own; as many run at once as there are cores, the slowest of the run
# before first.
# usage: spec/support/suite.sh plain|nojit|stress|asan|aarch64|cuda [spec files] [busted options]
# Environment: JOBS, how many files run at once; WANE_SPEC_FOLDER, where what they print is kept (build/suite);
# WANE_SPEC_LONG=1 runs the long form of specs that have one.
# The last line counts all specs. A file whose process gives no count (a crash, os.exit in a spec) is a failure.
way=$1
shift
cd "$(dirname "$0")/../.." || exit 1
case $way in
    plain | nojit | stress | asan | aarch64 | cuda) ;;
    *) echo "suite.sh: plain, nojit, stress, asan, aarch64 or cuda, not '$way'" >&2; exit 2 ;;
esac
export WANE_SPEC_FOLDER="${WANE_SPEC_FOLDER:-build/suite}"
folder=$WANE_SPEC_FOLDER/$way
rm -rf "$folder"
mkdir -p "$folder"
files=
options=
for argument in "$@"; do
    case $argument in
        *_spec.lua) files="$files $argument" ;;
        *) options="$options $argument" ;;
    esac
done
# All that these do is done by processes or libraries of their own, which are alike whatever the way: the plain way runs
# them.
apart='sweep_launchers sweep_shard cudasim examples projects readme repl_tty classes measured neon'
apart="$apart product product_update team"
if [ -z "$files" ]; then
    files=$(ls spec/*_spec.lua)
    # Specs of CUDA have their device in the plain way and under the sanitizers. Those of oneDNN, of planning at size, of
    # best plans and of words beside budgets spend their seconds in C, and wrong arguments make tens of thousands of
    # errors, all alike. Under the sanitizers whole models, whose kernels and plans other specs try small, are left out.
    apart="$apart size optimum words"
    case $way in
        nojit) apart="$apart cuda[a-z_]* onednn[a-z_]*" ;;
        stress) apart="$apart cuda[a-z_]* onednn[a-z_]* arguments gpt zoo" ;;
        asan) apart="$apart onednn_conv gpt zoo" ;;
    esac
    case $way in
        nojit | stress | asan) files=$(echo "$files" | grep -Ev "^spec/($(echo "$apart" | tr " " "|"))_spec") ;;
    esac
fi
echo "== specs, $way${WANE_SPEC_LONG:+, long form}"

luajit=${LUAJIT:-luajit}
export LUAJIT="$luajit"
# shellcheck disable=SC2086
"$luajit" spec/support/tally.lua order "$way" $files |
    WANE_SPEC_OPTIONS=$options xargs -P "${JOBS:-$(nproc 2>/dev/null || echo 2)}" -n 1 sh spec/support/one.sh "$way"
# shellcheck disable=SC2086
exec "$luajit" spec/support/tally.lua report "$way" $files
