#!/bin/sh
# Runs libFuzzer drivers one after the other, each from an empty corpus, and fails at the first that finds something.
# usage: spec/support/fuzz.sh SECONDS DRIVER...     the seconds are of all drivers together, half of them the first's
# What a driver found stays in build/fuzz/found, to be run again: build/fuzz/fuzz_api build/fuzz/found/crash-...
seconds=$1
shift
cd "$(dirname "$0")/../.." || exit 1
[ $# -gt 0 ] || { echo "fuzz.sh: no drivers" >&2; exit 2; }
mkdir -p build/fuzz/found
corpus=$(mktemp -d) || exit 1
trap 'rm -rf "$corpus"' EXIT
export OMP_NUM_THREADS=1 WANE_THREADS=1 WANE_ONEDNN=off ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=1
for driver in "$@"; do
    share=$((seconds / (2 * ($# - 1))))
    [ "$driver" = build/fuzz/fuzz_api ] && share=$((seconds / 2))
    [ "$share" -gt 0 ] || share=1
    rm -rf "$corpus"/* && mkdir -p "$corpus/$(basename "$driver")"
    log=$corpus/log
    "$driver" -seed=1 -max_len=4096 -len_control=20 -rss_limit_mb=4096 -timeout=20 -max_total_time="$share" \
        -artifact_prefix=build/fuzz/found/ "$corpus/$(basename "$driver")" > "$log" 2>&1
    code=$?
    runs=$(sed -n 's/^Done \([0-9]*\) runs.*/\1/p' "$log")
    if [ $code -ne 0 ]; then
        tail -60 "$log"
        echo "fuzz: $driver found something (build/fuzz/found)"
        exit 1
    fi
    echo "fuzz: $driver: $runs runs in $share seconds, clean"
done
