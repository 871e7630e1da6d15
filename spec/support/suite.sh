#!/bin/sh
# Runs the specs in one of six ways: plain, nojit, stress, asan, aarch64 (which aarch64.sh prepares), cuda (on the
# simulated GPU). Each file is a process of its own; as many run at once as there are cores, the slowest of the run
# before first.
# usage: spec/support/suite.sh plain|nojit|stress|asan|aarch64|cuda [third=N] [spec files] [busted options]
# third=N: that third of the files of the way (tiers.sh).
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
. spec/support/tiers.sh
export WANE_SPEC_FOLDER="${WANE_SPEC_FOLDER:-build/suite}"
folder=$WANE_SPEC_FOLDER/$way
rm -rf "$folder"
mkdir -p "$folder"
files=
third=
options=
for argument in "$@"; do
    case $argument in
        third=*) third=${argument#third=} ;;
        *_spec.lua) files="$files $argument" ;;
        *) options="$options $argument" ;;
    esac
done
# shellcheck disable=SC2086
[ -n "$files" ] || files=$(files_of_way "$way" "$third")
echo "== specs, $way${WANE_SPEC_LONG:+, long form}"

luajit=${LUAJIT:-luajit}
export LUAJIT="$luajit"
# shellcheck disable=SC2086
"$luajit" spec/support/tally.lua order "$way" $files |
    WANE_SPEC_OPTIONS=$options xargs -P "${JOBS:-$(nproc 2>/dev/null || echo 2)}" -n 1 sh spec/support/one.sh "$way"
# shellcheck disable=SC2086
exec "$luajit" spec/support/tally.lua report "$way" $files
